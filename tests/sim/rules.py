#!/usr/bin/env python3
"""Holds the table of RULES.md against what a driver answers.

rules.py RULES.md --program sim_truth   runs the program (on the simulation: see its environment in
                                        tests/sim/tests/meson.build) and compares its lines
rules.py RULES.md --output gpu.txt      compares lines that were written down elsewhere, on a GPU
rules.py RULES.md ... --write           takes the answers over into the table
"""
import argparse
import re
import subprocess
import sys

ROW = re.compile(r'^\| (R\d+) \| (.*?) \| (.*?) \| (.*?) \|$')
LINE = re.compile(r'^(R\d+) (.*?): (.*)$')


def answers(text):
    """The program's lines as {id: (question, answer)}, and what it says went wrong."""
    found, complaints = {}, []
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            found[match[1]] = (match[2], match[3])
        elif line.startswith('#'):
            complaints.append(line)
    return found, complaints


def table(path):
    with open(path, encoding='utf-8') as file:
        rows = [ROW.match(line.rstrip('\n')) for line in file]
    return {row[1]: (row[2], row[3], row[4]) for row in rows if row}


def differences(rules, found, partial):
    for rule, (question, answer, _) in rules.items():
        if rule not in found:
            if not partial:
                yield f'{rule} {question}: no answer'
        elif found[rule] != (question, answer):
            yield f'{rule} {question}: {answer}\n     but now {found[rule][0]}: {found[rule][1]}'
    for rule in found.keys() - rules.keys():
        yield f'{rule} {found[rule][0]}: not in the table'


def write(path, found):
    with open(path, encoding='utf-8') as file:
        lines = file.read().splitlines()
    for i, line in enumerate(lines):
        row = ROW.match(line)
        if row and row[1] in found:
            question, answer = found[row[1]]
            lines[i] = f'| {row[1]} | {question} | {answer} | {row[4]} |'
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines) + '\n')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('rules')
    parser.add_argument('--program')
    parser.add_argument('--output')
    parser.add_argument('--partial', action='store_true', help='rules may be left unanswered')
    parser.add_argument('--write', action='store_true')
    options = parser.parse_args()
    if options.program:
        text = subprocess.run([options.program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=True).stdout
    else:
        with open(options.output, encoding='utf-8') as file:
            text = file.read()
    found, complaints = answers(text)
    if options.write:
        write(options.rules, found)
    wrong = list(differences(table(options.rules), found, options.partial)) + complaints
    print('\n'.join(wrong) if wrong else f'{len(found)} rules answered as the table says')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
