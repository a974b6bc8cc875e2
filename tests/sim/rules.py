#!/usr/bin/env python3
"""Holds the table of RULES.md against what a driver answers.

rules.py RULES.md --program sim_truth   runs the program (on the simulation: see its environment in
                                        tests/sim/tests/meson.build) and compares its lines
rules.py RULES.md --output gpu.txt      compares lines that were written down elsewhere, on a GPU; what none had
                                        answered before is told, and is no difference; of a group that was asked twice,
                                        the last answers count
rules.py RULES.md --output gpu.txt --groups
                                        only names the groups to be asked again, by themselves: of answers that differ,
                                        or that no GPU had given before, and of questions without an answer
rules.py RULES.md ... --write           takes the answers over into the table, and rows that a GPU
                                        answers for the first time into the upper one
"""
import argparse
import re
import subprocess
import sys

UNANSWERED = '## What no GPU has answered yet'
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


def groups_of(text):
    """The lines of each group, and under "" those before the first."""
    groups, lines = {}, []
    for line in ['= '] + text.splitlines():
        if line.startswith('= '):
            lines = groups[line[2:]] = []
        else:
            lines.append(line)
    return groups


def table(path):
    with open(path, encoding='utf-8') as file:
        rows = [ROW.match(line.rstrip('\n')) for line in file]
    return {row[1]: (row[2], row[3], row[4]) for row in rows if row}


def unanswered(path):
    """The rules of the table of guesses."""
    with open(path, encoding='utf-8') as file:
        _, _, after = file.read().partition(UNANSWERED + '\n')
    rows = [ROW.match(line) for line in after.partition('\n## ')[0].splitlines()]
    return [row[1] for row in rows if row]


def first_answers(path, found):
    """What a GPU answers for the first time, and whether as the simulation does."""
    rules = table(path)
    for rule in unanswered(path):
        if rule in found:
            question, answer, _ = rules[rule]
            differs = found[rule][1] != answer
            yield f'{rule} {question}: {found[rule][1]}' + f'\n     the simulation: {answer}' * differs


def move_answered(path, found):
    """The rows go behind the last one that a GPU had answered; those of what is still open stay."""
    answered = [rule for rule in unanswered(path) if rule in found]
    with open(path, encoding='utf-8') as file:
        lines = file.read().splitlines()
    moved = [line for line in lines if (row := ROW.match(line)) and row[1] in answered]
    lines = [line for line in lines if line not in moved]
    end = lines.index(UNANSWERED)
    last = max(i for i in range(end) if ROW.match(lines[i]))
    lines[last + 1:last + 1] = moved
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines) + '\n')


def differences(rules, found, partial):
    for rule, (question, answer, _) in rules.items():
        if rule not in found:
            if not partial:
                yield f'{rule} {question}: no answer'
        elif found[rule] != (question, answer):
            yield f'{rule} {question}: {answer}\n     but now {found[rule][0]}: {found[rule][1]}'
    for rule in found.keys() - rules.keys():
        yield f'{rule} {found[rule][0]}: not in the table'


def groups_to_ask_again(path, groups):
    """Those in which something is to be looked at once more."""
    rules, guesses = table(path), unanswered(path)
    for name, lines in groups.items():
        found, complaints = answers('\n'.join(lines))
        known = {rule: row[:2] for rule, row in rules.items() if rule in found and rule not in guesses}
        if complaints or known != found:
            yield name


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
    parser.add_argument('--groups', action='store_true')
    options = parser.parse_args()
    if options.program:
        text = subprocess.run([options.program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=True).stdout
    else:
        with open(options.output, encoding='utf-8') as file:
            groups = groups_of(file.read())
        if options.groups:
            for name in groups_to_ask_again(options.rules, groups):
                print(name)
            return 0
        text = '\n'.join(line for lines in groups.values() for line in lines)
    found, complaints = answers(text)
    first = list(first_answers(options.rules, found)) if options.output else []
    if options.write:
        write(options.rules, found)
        if options.output:
            move_answered(options.rules, found)
    guesses = unanswered(options.rules) if options.output else []
    wrong = list(differences({rule: row for rule, row in table(options.rules).items() if rule not in guesses},
                             {rule: row for rule, row in found.items() if rule not in guesses}, options.partial))
    wrong += complaints
    print('\n'.join(wrong) if wrong else f'{len(found)} rules answered as the table says' + (
        f', {len(first)} of them asked for the first time, '
        f'{sum("the simulation:" in one for one in first)} otherwise than the simulation' if first else ''))
    if first:
        print('\n'.join(['answered for the first time, to be taken over by --write:'] + first))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
