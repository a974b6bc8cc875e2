# Each contract check is given something broken and must find it, and something right and must not.

import sys
import unittest

import children
import circles
import contract
import control_api
import coverage
import exports
import files
import folders
import functions
import layers
import names
import needed
import orders
import pages
import sentences
import start
import statics
import walk
import words

ROWS = contract.read_rows('''
#define AG_HOOK(base, symbol, since, flavour, need, flush) X(symbol)
/* AG_UNHOOKED(cuInComment, NO_FLUSH, "a row in a comment is no row") */
AG_HOOK(cuMemAlloc, cuMemAlloc_v2, 3020, NONE, REQUIRED, FLUSH(FREE))
AG_HOOK_IF(cuLaunchKernel, cuLaunchKernel, 4000, LEGACY, OPTIONAL, MANUAL, LAUNCHES)
AG_CALL(cuEventRecord, cuEventRecord, 2000, LEGACY, REQUIRED, NO_FLUSH)
AG_UNHOOKED(cuStreamQuery, NO_FLUSH, "order is the driver's, and (here) commas")
AG_LIBC(_exit,
        "pays the barrier that is still owed")
''')


class Rows(unittest.TestCase):
    def test_kinds_and_symbols(self):
        self.assertEqual([(r.kind, r.symbol) for r in ROWS],
                         [('HOOK', 'cuMemAlloc_v2'), ('HOOK', 'cuLaunchKernel'),
                          ('CALL', 'cuEventRecord'), ('UNHOOKED', 'cuStreamQuery'), ('LIBC', '_exit')])
        self.assertEqual(ROWS[3].args[2], '"order is the driver\'s, and (here) commas"')
        self.assertEqual([r.line for r in ROWS], [4, 5, 6, 7, 8])

    def test_twice(self):
        self.assertEqual(coverage.row_problems(ROWS), [])
        twice = contract.read_rows('AG_HOOK(a, cuX, 1, P, R)\nAG_UNHOOKED(cuX, NO_FLUSH, "a good reason")')
        self.assertEqual(len(coverage.row_problems(twice)), 1)

    def test_reason(self):
        self.assertEqual(len(coverage.row_problems(contract.read_rows('AG_UNHOOKED(cuX, NO_FLUSH, "")'))), 1)

    def test_missing(self):
        told = {'cuMemAlloc_v2', 'cuEventRecord', 'cuStreamQuery'}
        self.assertEqual(coverage.coverage_problems(ROWS, told), [])
        self.assertEqual(len(coverage.coverage_problems(ROWS, told | {'cuNew'})), 1)


class Circles(unittest.TestCase):
    LISTINGS = {
        'tools/a/x.c': '0000000000000000 T x_go\n                 U y_go\n                 U puts\n',
        'tools/a/y.c': '0000000000000000 T y_go\n                 U z_table\n',
        'tools/b/z.c': '0000000000000000 R z_table\n0000000000000010 t help\n',
    }

    def circle(self, path, *lines):
        return circles.problems_of(dict(self.LISTINGS, **{path: '\n'.join(lines)}))

    def test_graph(self):
        self.assertEqual(circles.problems_of(self.LISTINGS), [])
        self.assertEqual(circles.graph_of(self.LISTINGS)['tools/a/y.c'], {'tools/b/z.c': 'z_table'})

    def test_files(self):
        found = self.circle('tools/a/y.c', '0000000000000000 T y_go', '                 U x_go')
        self.assertEqual(len(found), 1)
        self.assertIn('(y_go) tools/a/y.c -> (x_go) tools/a/x.c', found[0])

    def test_folders(self):
        lines = '0000000000000000 T w', '                 U x_go'
        self.assertEqual(len(self.circle('tools/b/w.c', *lines)), 1)
        self.assertEqual(self.circle('tools/c/w.c', *lines), [])

    def test_names(self):
        self.assertEqual(self.circle('tools/b/w.c', '0000000000000000 t x_go', '0000000000000010 T w'), [])
        self.assertEqual(len(self.circle('tools/b/w.c', '                 w x_go')), 1)


class Exports(unittest.TestCase):
    def test_exact(self):
        right = {'dlsym', 'cuMemAlloc_v2', 'cuLaunchKernel', '_exit'}
        self.assertEqual(exports.problems(right, ROWS), [])
        self.assertEqual(len(exports.problems(right | {'ag_leak'}, ROWS)), 1)
        self.assertEqual(len(exports.problems(right - {'_exit'}, ROWS)), 1)
        self.assertEqual(len(exports.problems(right | {'dlsym@@AG_1'}, ROWS)), 1)

    def test_trampolines(self):
        right = {'dlsym', 'cuMemAlloc_v2', 'cuLaunchKernel', '_exit', 'cuArrayDestroy', 'cuGraphUpload'}
        rows = ROWS + contract.read_rows('AG_UNHOOKED(cuArrayDestroy, TRAMPOLINE_MEMORY, "(why), so")\n'
                                         'AG_CALL(cuGraphUpload, cuGraphUpload, 11010, LEGACY, OPTIONAL, TRAMPOLINE)\n'
                                         'AG_UNHOOKED(cuInit, NO_FLUSH, "start")')
        self.assertEqual(exports.problems(right, rows), [])
        self.assertEqual(len(exports.problems(right - {'cuArrayDestroy'}, rows)), 1)
        self.assertEqual(len(exports.problems(right | {'cuInit'}, rows)), 1)


class Needed(unittest.TestCase):
    LIBC = ' 0x1 (NEEDED)  Shared library: [libc.so.6]\n 0x1 (NEEDED) [ld-linux-x86-64.so.2]\n'

    def test_libc_only(self):
        self.assertEqual(needed.problems(self.LIBC, ' U dlvsym@GLIBC_2.34\n'), [])
        more = self.LIBC + ' 0x1 (NEEDED)  Shared library: [libm.so.6]\n'
        self.assertEqual(len(needed.problems(more, '')), 1)

    def test_versions(self):
        self.assertEqual(len(needed.problems(self.LIBC, ' U strlcpy@GLIBC_2.38\n')), 1)
        self.assertEqual(len(needed.problems(self.LIBC, ' U f@GCC_3.0\n')), 1)

    def test_locale(self):
        for name in ('strcasecmp', 'strncasecmp', 'strcasestr', 'strtod', 'tolower', '__ctype_b_loc', 'isspace'):
            self.assertEqual(len(needed.problems(self.LIBC, ' U %s@GLIBC_2.2.5\n' % name)), 1, name)
        for name in ('strcmp', 'strtol', 'strtoull', 'strstr', 'strtok_r'):
            self.assertEqual(needed.problems(self.LIBC, ' U %s@GLIBC_2.2.5\n' % name), [])

    def test_run_path(self):
        self.assertEqual(len(needed.problems(' (RUNPATH) Library runpath: [/x]\n', '')), 1)


class Start(unittest.TestCase):
    SECTION = '  [20] %s INIT_ARRAY  0000000000003df8 002df8 %s 08  WA  0   0  8\n'

    def test_constructors(self):
        for size in ('000008', '000010'):
            self.assertEqual(start.constructor_problems(self.SECTION % ('.init_array', size), 8), [])
        for name, size in (('.init_array', '000018'), ('.ctors', '000008')):
            self.assertEqual(len(start.constructor_problems(self.SECTION % (name, size), 8)), 1)

    def test_jump(self):
        good = (' 10:\tpush   %rdi\n 11:\tcall   40 <ag_f>\n 16:\tpop %rdi\n'
                ' 18:\tjmp    *%rax\n 1a:\tnop\n')
        self.assertEqual(start.dlsym_problems(good), [])
        self.assertEqual(start.dlsym_problems(' 10:\tbl 40 <ag_f>\n 14:\tbr\tx16\n'), [])

    def test_call(self):
        bad = ' 10:\tsub $8,%rsp\n 14:\tcall   *%rax\n 16:\tadd $8,%rsp\n 1a:\tret\n'
        self.assertEqual(len(start.dlsym_problems(bad)), 3)
        self.assertEqual(len(start.dlsym_problems('')), 1)


class Orders(unittest.TestCase):
    ACCESS = 'int get(void)\n{\n    return atomic_load_explicit(&n, memory_order_relaxed);%s\n}\n'

    def test_argument(self):
        self.assertEqual(orders.problems_of('a.c', self.ACCESS % ' /* relaxed: a count */'), [])
        self.assertEqual(orders.problems_of('a.c', '/* Relaxed: a count. */\n' + self.ACCESS % ''), [])
        self.assertEqual(orders.problems_of('a.c', '/* memory_order_relaxed */\n'), [])

    def test_none(self):
        found = orders.problems_of('a.c', self.ACCESS % ' /* a count */')
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith('a.c:3: '))
        self.assertEqual(len(orders.problems_of('a.c', self.ACCESS % ' /* memory_order_relaxed */')), 1)


class Children(unittest.TestCase):
    TABLE = ('static void (*const children[])(void) = {\n    ag_a_begin_child, /* ag_comment */\n};\n')
    A = 'void ag_a_begin_child(void)\n{\n    ag_b_begin_child();\n}\n'
    B = 'bool ag_b_begin_child(void)\n{\n    return true;\n}\n'

    def count(self, **sources):
        sources = {'policy/%s.c' % name: text for name, text in sources.items()}
        return len(children.problems({children.TABLE_FILE: self.TABLE, **sources}))

    def test_reached(self):
        self.assertEqual(self.count(a=self.A, b=self.B), 0)

    def test_forgotten(self):
        self.assertEqual(self.count(a=self.A, b=self.B, c='void ag_c_begin_child(void)\n{\n}\n'), 1)
        self.assertEqual(self.count(a=self.A.replace('ag_b', '/* ag_b */ ag_x'), b=self.B), 1)

    def test_locks(self):
        field = 'static struct {\n    struct ag_lock lock;\n    int n;\n} state = {.n = 1, .lock = AG_LOCK_INIT(1)};\n'
        plain = 'static struct ag_arena arena = AG_ARENA_INIT(struct a);\n'
        child = 'void ag_a_begin_child(void)\n{\n    ag_lock_init(&state.lock, 1);\n    ag_arena_begin_child(&arena);\n}\n'
        self.assertEqual(self.count(a=field + plain + child), 0)
        self.assertEqual(self.count(a=field + plain + child.replace('&state.lock', '&other.lock')), 1)
        self.assertEqual(self.count(a=field + plain + child.replace('&arena', '&rare_arena')), 1)
        self.assertEqual(self.count(a='#define AG_ARENA_INIT(type) {1}\n' + child), 0)

    def test_twice_and_other_names(self):
        twice = self.TABLE.replace('ag_a_begin_child', 'ag_a_begin_child, ag_a_begin_child')
        self.assertEqual(len(children.problems({children.TABLE_FILE: twice})), 1)
        self.assertEqual(self.count(a='void ag_a_forget_all(void);\n'), 1)
        self.assertEqual(len(children.problems({children.TABLE_FILE: 'int x;\n'})), 1)


class ControlApi(unittest.TestCase):
    ROWS = control_api.listed('/* AG_API(no, row) */\nAG_API(last_error, last_error)\nAG_API(open, open_all)\n')
    HEADER = """struct allograft_api {
    uint32_t version, bytes;
    const char *(*last_error)(void);
    allograft_status (*open)(const struct allograft_range *, void **,
                             size_t);
};
/* Why. */
static inline const char *allograft_last_error(void)
{
    return "";
}

/* Opens. */
static inline allograft_status allograft_open_all(const struct allograft_range *range, void **ret,
                                                  size_t n)
{
    ALLOGRAFT_CALL(open, range, ret, n);
}
"""
    MIRRORS = {'struct allograft_range': 'Range'}
    PYTHON = [('last_error', []), ('open', ['LP_Range', 'LP_c_void_p', 'c_ulong'])]

    def test_stubs(self):
        self.assertEqual(self.ROWS, [('last_error', 'last_error'), ('open', 'open_all')])
        self.assertEqual(control_api.stub_problems(self.ROWS, self.HEADER), [])
        for old, new in ('range, ret, n', 'ret, range, n'), ('CALL(open', 'CALL(close'), ('/* Opens. */', ''), \
                        ('_all(', '('):
            self.assertEqual(len(control_api.stub_problems(self.ROWS, self.HEADER.replace(old, new))), 1, old)

    def test_python(self):
        def count(functions):
            return len(control_api.python_problems(self.ROWS, self.HEADER, functions, self.MIRRORS))
        self.assertEqual(count(self.PYTHON), 0)
        self.assertEqual(count(self.PYTHON[:1]), 1)
        self.assertEqual(count(self.PYTHON[::-1]), 2)
        self.assertEqual(count([self.PYTHON[0], ('open', ['LP_Range', 'c_void_p', 'c_ulong'])]), 1)

    def test_places(self):
        self.assertEqual(control_api.place_problems(self.ROWS, 'AT(last_error, 0);\nAT(open, 1);\n'), [])
        self.assertEqual(len(control_api.place_problems(self.ROWS, 'AT(last_error, 0);\n')), 1)


class Layers(unittest.TestCase):
    KNOWN = {'interpose/hooks/entry.h', 'policy/alloc/alloc.h', 'interpose/core/driver/driver.h',
             'interpose/core/base/log.h', 'interpose/core/driver/abi.h', 'tests/sim/sim.h'}

    def count(self, path, name):
        return len(layers.problems_of(path, '/* x */\n#include "%s"\n' % name, self.KNOWN))

    def test_headers_of_cuda(self):
        for name, n in (('cuda.h', 0), ('stdio.h', 0), ('cudaProfiler.h', 1), ('nvtx3/nvToolsExt.h', 1)):
            self.assertEqual(len(layers.header_problems('tests/sim/a.c', '# include <%s>\n' % name)), n, name)
            self.assertEqual(layers.header_problems('tests/gpu/a.cu', '#include <%s>\n' % name), [])
        self.assertEqual(layers.header_problems('tests/sim/a.c', '/*\n#include <cudaProfiler.h>\n*/\n'), [])

    def test_down(self):
        self.assertEqual(self.count('interpose/hooks/entry_mem.c', 'policy/alloc/alloc.h'), 0)
        self.assertEqual(self.count('policy/alloc/freed.c', 'interpose/core/base/log.h'), 0)
        self.assertEqual(self.count('policy/alloc/freed.c', 'interpose/core/driver/driver.h'), 0)

    def test_up(self):
        self.assertEqual(self.count('interpose/core/driver/driver.c', 'policy/alloc/alloc.h'), 1)
        self.assertEqual(self.count('interpose/core/base/log.c', 'interpose/core/driver/driver.h'), 1)
        self.assertEqual(self.count('policy/alloc/freed.c', 'interpose/hooks/entry.h'), 1)

    def test_outside(self):
        self.assertEqual(self.count('policy/alloc/freed.c', 'tests/sim/sim.h'), 1)
        self.assertEqual(self.count('policy/alloc/freed.c', 'alloc.h'), 1)
        self.assertEqual(self.count('policy/alloc/freed.c', '../../interpose/core/driver/driver.h'), 1)

    def test_cuda(self):
        self.assertEqual(self.count('policy/alloc/freed.c', 'cuda.h'), 1)
        self.assertEqual(self.count('interpose/core/driver/abi.h', 'cuda.h'), 0)

    def test_pure(self):
        sources = {'a/one.h': '/* What it does. Pure. */\n', 'a/two.h': '/* What it does.\n *\n * Pure: no clock. */\n',
                   'a/three.c': '/* What (it does). Pure; knows no CUDA.\n */\n', 'a/four.h': '/* Pure water. */\n',
                   'a/five.h': '/* What it does. */\n/* Pure. */\n', 'a/six.h': '#include <a.h>\n/* Pure. */\n'}
        self.assertEqual(layers.pure_parts(sources), {'a/one', 'a/two', 'a/three'})
        for text in ('#include "interpose/core/driver/driver.h"\n', 'int f(void)\n{\n    ag_stats_add(X, 1);\n}\n',
                     'int f(void)\n{\n    return ag_cu.cuInit(0);\n}\n'):
            self.assertEqual(len(layers.pure_problems('policy/a.c', text)), 1, text)
        for text in ('#include "interpose/core/driver/abi.h"\n', '/* ag_stats_add() */\n', 'int i = ag_stats_sum_of(s, 1);\n'):
            self.assertEqual(layers.pure_problems('policy/a.c', text), [], text)


class Names(unittest.TestCase):
    SOURCES = {'interpose/hooks/entry.h': 'extern int ag_entry_depth;\n#define AG_ENTER(x) x\n',
               'graph/stream.h': 'struct ag_stream;\nvoid ag_stream_own(struct ag_stream *stream);\n',
               'graph/replayer.h': 'enum ag_flush {\n    AG_FLUSH_FREE,\n};\n'}

    def count(self, path, text):
        declared = names.declared(self.SOURCES)
        return len(names.problems_of(path, text, declared, self.SOURCES))

    def test_names(self):
        self.assertEqual(self.count('graph/a.c', 'ag_stream_own(stream); f(AG_FLUSH_FREE);'), 0)
        self.assertEqual(self.count('policy/a.c', 'ag_stream_own(stream); f(AG_FLUSH_FREE);'), 2)
        self.assertEqual(self.count('graph/a.c', 'AG_ENTER(ag_entry_depth);'), 2)
        self.assertEqual(self.count('graph/a.c', '/* ag_entry_depth */ struct ag_stream *unknown;'), 0)

    def test_hooks(self):
        self.assertEqual(self.count('graph/a.c', 'ag_cu.cuLaunchKernel(f); p->cuLaunchKernel (f);'), 0)
        self.assertEqual(self.count('graph/a.c', 'x = cuLaunchKernel(f);'), 1)
        self.assertEqual(self.count('interpose/hooks/a.c', 'x = cuLaunchKernel(f);'), 0)

    def test_comments(self):
        self.assertEqual(self.count('policy/a.c', '/* see graph/stream.h and graph/gone.h */'), 1)
        self.assertEqual(self.count('interpose/hooks/a.c', '/* see graph/stream.h */'), 0)


class Functions(unittest.TestCase):
    def count(self, path, head, lines):
        text = '/* { */\nstruct s {\n    int a;\n};\n' + head + '\n{\n'
        text += '    f("{");\n' * lines + '}\n'
        return len(functions.problems_of(path, text))

    def test_limit(self):
        self.assertEqual(self.count('policy/a.c', 'static int f(int (*g)(int))', 70), 0)
        self.assertEqual(self.count('policy/a.c', 'static int f(int (*g)(int))', 71), 1)

    def test_entries(self):
        for head in ('CUresult cuMemAlloc_v2(void)', 'AG_EXPORT CUresult ag_hook_cuMemFree(int a)',
                     'AG_ENTRY(cuMemFree_v2)(CUdeviceptr p)',
                     'AG_ENTRY(cuMemFree_v2, CUdeviceptr p)'):
            self.assertEqual(self.count('interpose/hooks/entry_mem.c', head, 12), 0, head)
        self.assertEqual(self.count('interpose/hooks/entry_mem.c', 'CUresult cuMemAlloc_v2(void)', 13), 1)
        self.assertEqual(self.count('interpose/e.c', 'AG_ENTRY(cuMemFree_v2)(int p)', 13), 1)
        self.assertEqual(self.count('tests/sim/mem.c', 'CUresult cuMemAlloc_v2(void)', 13), 0)
        self.assertEqual(self.count('interpose/hooks/made/copies.h', 'CUresult cuMemcpy(void)', 13), 1)
        self.assertEqual(self.count('interpose/hooks/made/copies.h', 'CUresult watched_cuMemcpy(void)', 13), 0)

    def macro(self, path, head, lines):
        text = '#define M(symbol, parameters, ...) \\\n' + head + ' \\\n{ \\\n' + '    f("{"); \\\n' * lines + '}\n'
        return len(functions.problems_of(path, text))

    def test_macros(self):
        for head in ('AG_ENTRY CUresult symbol parameters', 'AG_ENTRY CUresult symbol(CUstream stream)',
                     'static __attribute__((noinline)) CUresult watched_##symbol parameters'):
            self.assertEqual(self.macro('interpose/hooks/e.c', head, 12), 0, head)
            self.assertEqual(self.macro('interpose/hooks/e.c', head, 13), 1, head)
            self.assertEqual(self.macro('tests/sim/mem.c', head, 70), 0, head)
            self.assertEqual(self.macro('tests/sim/mem.c', head, 71), 1, head)
        for head in ('struct s parameters = ', 'if (symbol)', '((struct s)', 'do'):
            self.assertEqual(self.macro('interpose/hooks/e.c', head, 80), 0, head)

    def test_hooks_are_measured(self):
        made = ('#define MADE(symbol) CUresult symbol(void) { }\n#define TWO(symbol, b) MADE(symbol) MADE(b)\n'
                'MADE(cuA)\nTWO(cuB, cuC)\nCUresult cuD(void)\n{\n}\nOTHER(cuE)\n')
        self.assertEqual(functions.unmeasured_hooks([made], ['cuA', 'cuB', 'cuD']), [])
        self.assertEqual(len(functions.unmeasured_hooks([made], ['cuE'])), 1)

    def test_tables_are_no_functions(self):
        self.assertEqual(self.count('policy/a.c', 'static const int t[F(2)] =', 200), 0)
        two = functions.functions('int a(void)\n{\n}\nint b(void) {\n}\n')
        self.assertEqual([function.name for function in two], ['a', 'b'])


class Folders(unittest.TestCase):
    def test_limit(self):
        full = ['policy/%d.c' % i for i in range(25)] + ['policy/app/%d.c' % i for i in range(25)]
        self.assertEqual(folders.problems(full, {}), [])
        self.assertEqual(len(folders.problems(full + ['policy/x.c'], {})), 1)
        self.assertEqual(folders.problems(full + ['policy/x.c'], {'policy': (26, 'a reason')}), [])
        self.assertEqual(len(folders.problems(full + ['policy/x.c', 'policy/y.c'], {'policy': (26, 'a reason')})), 1)

    def test_needless_exception(self):
        self.assertEqual(len(folders.problems(['policy/a.c'], {'policy': (26, 'a reason')})), 1)


class Files(unittest.TestCase):
    def test_first_line(self):
        for text in ('/* What it is. */\n', '# What it is.\n', '#!/bin/sh\n# What it is.\n',
                     '// What it is.\n', '"""What it is."""\n', '/*\n * What it is.\n */\n'):
            self.assertIsNone(files.first_line_problem('a.c', text), text)
        for text in ('', '#include <a.h>\n', '#!/bin/sh\nset -e\n', '\n/* late */\n',
                     'import os\n', '/*\n'):
            self.assertIsNotNone(files.first_line_problem('a.c', text), text)

    def test_forbidden(self):
        for name in ('https://pypi.' + 'org/simple', 'http://deb.' + 'debian.org', '/' + 'work/x'):
            self.assertEqual(len(files.problems_of('README.md', 'see %s\n' % name)), 1, name)
        self.assertEqual(files.problems_of('README.md', 'framework/x and network/work/y\n'), [])


PAGES = {
    'README.md': '# A page\nsee [pages](docs/README.md#the-index-of-them) and `tools/run/*.c`\n',
    'docs/README.md': '# The `index`, of them!\n- [a](a.md#same-1), [home](../README.md), ![x](images/x.svg)\n',
    'docs/a.md': '## same\n## same\n```sh\n# no heading, [no link](nowhere)\n```\n`[no link](b)` [x](https://b/c)\n',
}
THERE = pages.with_folders([*PAGES, 'docs/images/x.svg', 'tools/run/run.c'])


class Pages(unittest.TestCase):
    def problems(self, **changed):
        return pages.problems_of({**PAGES, **{name.replace('__', '/') + '.md': text for name, text in changed.items()}},
                                 THERE)

    def test_right(self):
        self.assertEqual(self.problems(), [])

    def test_links(self):
        for link in ('[a](b.md)', '![a](docs/images/y.svg)', '<img src="docs/x.svg">', '[a](docs/a.md#none)',
                     '[a](#none)', '[a](tools/run/run.c#L1)', '[a](docs/a.md#same-2)', '[a](docs/nofolder/)'):
            self.assertNotEqual(self.problems(README=PAGES['README.md'] + link + '\n'), [], link)

    def test_anchors(self):
        heads = '# A *b*, c_d: `e()`\n## [Linked](x.md) - twice?\n~~~\n# code\n~~~\n### A b, c_d: e\n'
        self.assertEqual(pages.anchors(heads), {'a-b-c_d-e', 'linked---twice', 'a-b-c_d-e-1'})

    def test_reach(self):
        self.assertEqual(len(self.problems(docs__README='# The index of them\n')), 1)
        self.assertEqual(len(self.problems(README='# No link\n')), 1)

    def test_names(self):
        for name in ('`tools/run/walk.c`', 'tests/none/', 'interpose/x_<arch>.S', 'docs/*.pdf'):
            self.assertEqual(len(self.problems(docs__a='## same\n## same\n' + name + '\n')), 1, name)
        self.assertEqual(pages.name_problems('CONTRIBUTING.md', '`run.c` `cuda.h` tools/run/r*\n', THERE), [])
        self.assertEqual(len(pages.name_problems('CONTRIBUTING.md', '`walk.c`\n', THERE)), 1)

    def test_length(self):
        self.assertEqual(pages.length_problems('a\n' * pages.README_LINES), [])
        self.assertEqual(len(pages.length_problems('a\n' * (pages.README_LINES + 1))), 1)


FOLDERS_AND_FLOORS = """
| folder | holds | layer |
|---|---|---|
| `policy/` | `alloc/`, and `order/` | 2 |
| `policy/made/` | lists | 2 |

| floor | files of `policy/` | knows |
|---|---|---|
| blocks | `cache.c`, `alloc/` above `order/watch.c` | memory |
"""


class Places(unittest.TestCase):
    def test_places(self):
        there = ['policy/cache.c', 'policy/cache.h', 'policy/alloc/plan.c', 'policy/order/watch.c', 'policy/meson.build',
                 'policy/made/a.h', 'tools/run/run.c']
        self.assertEqual(pages.place_problems(FOLDERS_AND_FLOORS, there), [])
        for path, n in (('policy/slab.c', 1), ('policy/order/free.c', 1), ('policy/ipc/a.c', 2), ('policy/ipc/a.h', 1),
                        ('graph/a.c', 1), ('interpose/core/a.S', 1)):
            self.assertEqual(len(pages.place_problems(FOLDERS_AND_FLOORS, [*there, path])), n, path)


class Words(unittest.TestCase):
    def count(self, path, line):
        return len(words.problems_of(path, line + '\n', words.compiled()))

    def test_found(self):
        for line in ('/* One lane each. */', 'unsigned n_lanes;', 'struct ag_lane *lane_of(int x);', 'through every door',
                     '#define MAX_ROUNDS 3', '# nothing came of looking on', 'who pays what is owed',
                     'AG_STAT(X, frees, x, "drained the context")', 'text_group(view, "fences of watched frees");',
                     'host waits left pending by ordered frees'):
            self.assertGreaterEqual(self.count('graph/a.c', line), 1, line)
        self.assertEqual(self.count('interpose/core/driver/hooks.def', 'AG_HOOK(a, cuA, 1, NONE, REQUIRED, FIRST(FREE))'), 1)

    def test_plain_sense(self):
        for line in ('int planes, island;', 'rounds a size up', 'n = round_up(n, 8);', 'return first;', 'in turn',
                     'CUDA_HOME=/usr'):
            self.assertEqual(self.count('graph/a.c', line), 0, line)
        for line in ('the shape of a matrix', 'quiet=True', 'home = getcwd()'):
            self.assertEqual(self.count('tests/a.py', line), 0, line)
            self.assertEqual(self.count('policy/a.c', line), 1, line)

    def test_behind(self):
        for line in ('/* What lies behind it. */', 'CUevent before, behind;', 'if (is_behind(stream))'):
            self.assertEqual(self.count('graph/a.c', line), 1, line)
        for line in ('"written behind the block"', 'AG_GUARD_BEHIND,'):
            self.assertEqual(self.count('graph/a.c', line), 0, line)


class Statics(unittest.TestCase):
    ENTER = 'static void enter(int a)\n{\n    f(a);\n}\n'

    def count(self, **sources):
        return len(statics.problems_of({'policy/%s' % name.replace('_', '.'): text for name, text in sources.items()}))

    def test_twice(self):
        self.assertEqual(self.count(a_c=self.ENTER, b_c=self.ENTER), 1)
        self.assertEqual(self.count(a_c=self.ENTER, b_h=self.ENTER.replace('static', 'static inline')), 1)
        self.assertEqual(self.count(a_c=self.ENTER, b_c=self.ENTER.replace('static ', '')), 1)

    def test_once(self):
        self.assertEqual(self.count(a_c=self.ENTER, b_c=self.ENTER.replace('enter', 'enter_row')), 0)
        self.assertEqual(self.count(a_c=self.ENTER, a_h=self.ENTER), 0)
        self.assertEqual(self.count(a_c=self.ENTER, b_c='static void enter(int a);\n/* static void enter(int a)\n{\n} */\n'), 0)
        hook = '#define HOOK(symbol) \\\n    int symbol(int a) \\\n    { \\\n        return a; \\\n    }\n'
        self.assertEqual(self.count(a_c=hook, b_c=hook), 0)


class Sentences(unittest.TestCase):
    def count(self, text):
        return len(sentences.problems_of('policy/a.c', text + '\n'))

    def test_headless(self):
        for words in ('Of the way that is not kept, beyond one that is: ns.', 'Else it is not left alone.',
                      'The same, of host memory.', 'The same of a wait.', 'Likewise, and destroys the proxy.',
                      'Nor the last one.', 'Not for ever: nobody may have it.', 'As above, of a stream.',
                      'What a free that has succeeded was of; the block may be another\'s.', 'By the helper.',
                      'With the lock held. NULL: none.', 'Around a launch.', 'Before the first call.',
                      'So many threads\n * at a time.'):
            self.assertEqual(self.count('/* %s */' % words), 1, words)

    def test_sentences(self):
        for words in ('The length of the first segment.', 'Called with the lock held.', 'Asks the driver.',
                      'The same thread may ask again.', 'What the driver says of it; NULL: nothing.', 'Notes it.',
                      'Before a capture every stream is owned in turn: a thread may withhold.', 'Is it over?', '--- ends ---'):
            self.assertEqual(self.count('/* %s */' % words), 0, words)
        for line in ('int n; /* of the last */', 'f("/* Of a text. */");', 'int n; /* Of it. */'):
            self.assertEqual(self.count(line), 0, line)


class Walk(unittest.TestCase):
    NAMES = {1: 'cuMemAlloc_v2', 2: 'ag_alloc', 3: 'from_driver'}
    OUTPUT = 'native 1 1\nnative 2 2\nnative 3 3\nnative 3 0\nnative 3 3\nhit 1 1\n'

    def count(self, name, most, deepest):
        walked = walk.walks_of(self.OUTPUT, self.NAMES)[name]
        return sum(line.startswith(name) for line in walk.problems_of(name, walked, most, deepest))

    def test_bounds(self):
        self.assertEqual(self.count('native', 3, 3), 0)
        self.assertEqual(self.count('native', 2, 3), 1)
        self.assertEqual(self.count('native', 3, 2), 1)
        self.assertEqual(self.count('native', 2, 2), 2)

    def test_driver(self):
        self.assertEqual(self.count('hit', 1, None), 0)
        self.assertEqual(self.count('hit', 1, 1), 1)
        self.assertEqual(self.count('native', 3, None), 1)

    def test_list(self):
        walked = walk.walks_of(self.OUTPUT, self.NAMES)['native']
        self.assertEqual(walk.problems_of('native', walked, 1, 3)[1:],
                         ['  cuMemAlloc_v2', '    ag_alloc', '      from_driver', '      the driver'])

    def test_cut_off(self):
        with self.assertRaises(ValueError):
            walk.walks_of('native has entered more than 4096\n', self.NAMES)


if __name__ == '__main__':
    sys.exit(0 if unittest.main(exit=False, verbosity=0).result.wasSuccessful() else 1)
