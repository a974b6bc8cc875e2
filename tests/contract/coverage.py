# Every symbol of the driver is hooked, called, or named as left alone with a reason; each once.

import argparse
import glob
import os
import shutil
import sys

from contract import finish, read_rows, read_text, run, skip


def find_stub(cuda_root):
    """The toolkit's stub of libcuda, which lists the driver's symbols; None without a toolkit."""
    roots = [cuda_root, os.environ.get('CUDA_HOME'), os.environ.get('CUDA_PATH')]
    if shutil.which('nvcc'):
        roots.append(os.path.dirname(os.path.dirname(os.path.realpath(shutil.which('nvcc')))))
    roots += ['/usr/local/cuda', '/opt/cuda'] + sorted(glob.glob('/usr/local/cuda-*'), reverse=True)
    for root in filter(None, roots):
        for folder in ('lib64/stubs', 'lib/stubs', 'targets/*/lib/stubs'):
            for path in sorted(glob.glob(os.path.join(root, folder, 'libcuda.so'))):
                return path
    return None


def stub_symbols(path):
    lines = run('nm', '-D', '--defined-only', path).splitlines()
    return {line.split()[-1].split('@')[0] for line in lines if ' cu' in line}


def row_problems(rows):
    found = []
    seen = {}
    for row in rows:
        other = seen.setdefault(row.symbol, row)
        if other is not row:
            found.append('line %d: %s has a row at line %d already'
                         % (row.line, row.symbol, other.line))
        if row.kind in ('UNHOOKED', 'LIBC') and len(row.args[-1].strip('"')) < 4:
            found.append('line %d: %s is named without a reason' % (row.line, row.symbol))
    return found


def coverage_problems(rows, symbols):
    told = {r.symbol for r in rows if r.kind in ('HOOK', 'CALL', 'UNHOOKED')}
    return ['%s: the driver exports it, hooks.def does not name it' % name
            for name in sorted(symbols - told)]


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('hooks')
    parser.add_argument('--cuda-root', default='')
    options = parser.parse_args()
    rows = read_rows(read_text(options.hooks))
    problems = row_problems(rows) or ([] if rows else ['%s: no rows found' % options.hooks])
    stub = find_stub(options.cuda_root)
    if not stub and not problems:
        skip('no stub of libcuda: the rows name no symbol twice, coverage cannot be seen')
    symbols = stub_symbols(stub) if stub else set()
    finish(problems + coverage_problems(rows, symbols),
           'all %d symbols of %s are named' % (len(symbols), stub))
