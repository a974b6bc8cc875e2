#!/usr/bin/env python3
"""One seed is one schedule: two runs of a program log the same calls and operations."""
import os
import re
import subprocess
import sys

ADDRESS = re.compile(r'0x[0-9a-f]+')


def log_of(program, seed):
    environment = dict(os.environ, SIM_LOG='1', SIM_SEED=str(seed), SIM_VIOLATION='count')
    run = subprocess.run([program], env=environment, stderr=subprocess.PIPE, text=True, check=True)
    return [ADDRESS.sub('ADDRESS', line) for line in run.stderr.splitlines()
            if line.startswith('sim: [')]


def main():
    failed = 0
    for program in sys.argv[1:]:
        logs = {seed: log_of(program, seed) for seed in (1, 2)}
        for seed, log in logs.items():
            if log_of(program, seed) != log:
                print(f'{program}: two runs with seed {seed} differ')
                failed = 1
        if logs[1] == logs[2]:
            print(f'{program}: two seeds make no difference')
            failed = 1
    return failed


if __name__ == '__main__':
    sys.exit(main())
