#!/usr/bin/env python3
# The version script of a driver of some age: exports the symbols that it had, and the simulation's own.

import re
import sys

ROW = re.compile(r'^SYMBOL\(\w+, (\d+), (\w+), \w+\)', re.M)


def main():
    definitions, age = sys.argv[1], int(sys.argv[2])
    with open(definitions, encoding='utf-8') as f:
        names = sorted({name for version, name in ROW.findall(f.read()) if int(version) <= age})
    print('{\n  global:\n%s\n    allograft_simulated_driver;\n    sim_*;\n  local:\n    *;\n};'
          % '\n'.join('    %s;' % name for name in names))


if __name__ == '__main__':
    main()
