# clang-format over every source in C, C++ and CUDA; clang-tidy and cppcheck over the library and the
# command, without a single warning.
#
#     lint.py ROOT BUILD [clang-format|clang-tidy|cppcheck]...
#
# With LINT_SINCE, a commit, clang-tidy reads only what has changed since, and what includes a header that has.
#
# BUILD is a configured build folder (its compile_commands.json says how each file is compiled). The
# last lines say what became of each tool: "clang-tidy: ok", "failed" or "skipped" (not installed).
# Exit 0 when nothing failed, 77 when nothing could be run.

import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys

FORMATTER = 'clang-format version 18.1.8'
COLUMNS = 100
FOLDERS = ('interpose', 'policy', 'graph', 'tools')
JOBS = int(os.environ.get('TEST_JOBS', str(os.cpu_count() or 1)))

# How far the analyzer of clang-tidy goes into each function, in states. tools/test.sh --full goes to 30000, which takes
# more than three times as long; its own 225000 take four times as long again and see the longest paths of the largest
# functions as well.
DEPTH = os.environ.get('LINT_DEPTH', '4000')
ANALYZER = ['--extra-arg=-Xclang', '--extra-arg=-analyzer-config', '--extra-arg=-Xclang', '--extra-arg=max-nodes=' + DEPTH]

# What cppcheck is not asked, with the reason.
NOT_ASKED = (
    'allocaCalled',        # arguments of exec, on the stack on purpose: see exit_hooks.c
    'constParameter',      # functions called through a pointer have the pointer's type
    'missingIncludeSystem',
    'unreadVariable',      # the last step of a list that a .def file unrolls
    'unusedStructMember',  # structs that describe a file's layout
    'variableScope',       # declarations stand at the head of their block
)


def sources(root, build):
    """The compiled files of our folders, each once."""
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as f:
        commands = json.load(f)
    found = {os.path.realpath(os.path.join(c['directory'], c['file'])) for c in commands}
    folders = tuple(os.path.join(os.path.realpath(root), folder) + os.sep for folder in FOLDERS)
    return sorted(path for path in found if path.startswith(folders) and path.endswith('.c'))


def changed(root, files, since):
    """Those of the files that differ from the commit, or include a header that does; all where git cannot tell."""
    done = subprocess.run(['git', '-C', root, 'diff', '--name-only', since], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    if done.returncode:
        return files
    names = set(done.stdout.split('\n'))
    included = re.compile(r'^#include "([^"]+)"', re.M)
    return [path for path in files if os.path.relpath(path, root) in names
            or names.intersection(included.findall(open(path, encoding='utf-8').read()))]


def clang_tidy(root, build, files):
    since = os.environ.get('LINT_SINCE')
    if since:
        files = changed(root, files, since)

    def check(path):
        done = subprocess.run(['clang-tidy', '--quiet', '-p', build, *ANALYZER, path], cwd=root,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)
        # Its own trouble (no such flag, no such file) is told on stderr only.
        return done.returncode, done.stdout or (done.stderr if done.returncode else '')

    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        results = []
        for n, result in enumerate(pool.map(check, files), 1):
            results.append(result)
            print('[%d/%d]' % (n, len(files)), flush=True)
    for code, text in results:
        if code:
            print(text)
    return not any(code for code, _ in results)


def cppcheck(root, build, files):
    command = ['cppcheck', '--quiet', '--std=c11', '--inline-suppr', '--error-exitcode=1',
               '--enable=warning,style,performance,portability', '-j', str(JOBS), '-D__x86_64__',
               '-I.', '-I' + build]
    command += ['--suppress=' + name for name in NOT_ASKED]
    done = subprocess.run(command + [os.path.relpath(f, root) for f in files], cwd=root,
                          stdin=subprocess.DEVNULL)
    return done.returncode == 0


def formatter():
    """The clang-format of the version that .clang-format is written for: others lay out differently."""
    for path in (os.environ.get('CLANG_FORMAT'), shutil.which('clang-format')):
        if path and FORMATTER in subprocess.run([path, '--version'], stdout=subprocess.PIPE,
                                                universal_newlines=True).stdout:
            return path
    return None


def clang_format(root, build, files):
    del build, files  # headers and tests as well
    found = [os.path.join(folder, name) for folder in (*FOLDERS, 'tests')
             for folder, _, names in os.walk(os.path.join(root, folder)) for name in names]
    formatted = sorted(path for path in found if path.endswith(('.c', '.h', '.cu', '.cpp')))
    done = subprocess.run([formatter(), '--dry-run', '--Werror', *formatted], cwd=root,
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True)
    differing = sorted(set(re.findall(r'^(\S+?):\d+:\d+: error', done.stderr, re.M)))
    # What it leaves alone: comments, and the tables of .def files, where a name and its symbol share a line.
    longer = [path for path in formatted + [path for path in found if path.endswith('.def')]
              for line in open(path, encoding='utf-8') if len(line.rstrip('\n')) > COLUMNS
              and not re.fullmatch(r'AG_HOOK\w*\(\w+, \w+,\n', line)]
    for path in differing:
        print('%s: differs from what tools/format.sh makes of it' % os.path.relpath(path, root))
    for path in sorted(set(longer)):
        print('%s: has lines of more than %d columns' % (os.path.relpath(path, root), COLUMNS))
    if done.returncode and not differing:
        print(done.stderr)
    return not done.returncode and not longer


TOOLS = {'clang-format': clang_format, 'clang-tidy': clang_tidy, 'cppcheck': cppcheck}


def main():
    root, build = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
    files = sources(root, build)
    if not files:
        sys.exit('no source of %s in %s' % (', '.join(FOLDERS), build))
    outcome = {}
    for name in sys.argv[3:] or TOOLS:
        if not (formatter() if name == 'clang-format' else shutil.which(name)):
            outcome[name] = 'skipped'
        else:
            outcome[name] = 'ok' if TOOLS[name](root, build, files) else 'failed'
    for name, word in outcome.items():
        print('%s: %s' % (name, word))
    if all(word == 'skipped' for word in outcome.values()):
        sys.exit(77)
    sys.exit(1 if 'failed' in outcome.values() else 0)


if __name__ == '__main__':
    main()
