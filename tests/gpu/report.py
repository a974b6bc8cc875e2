#!/usr/bin/env python3
"""Reads fields of a report and judges conditions on them.

usage: report.py FILE [FIELD | CONDITION]...

FIELD is a path such as frees.drained; `*` stands for every member and numbers are summed, a field
that is not there counts as 0. CONDITION compares a field with a number or a word, for example
'frees.drained > 0' or 'process.ended_by == exit'. Fields are printed; the exit status is 1 when a
condition does not hold, 2 when the file is no report.
"""
import json
import operator
import re
import sys

COMPARE = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}


def members(value):
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def find(report, path):
    values = [report]
    for step in path.split("."):
        found = []
        for value in values:
            if step == "*":
                found += members(value)
            elif isinstance(value, dict) and step in value:
                found.append(value[step])
            elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
                found.append(value[int(step)])
        values = found
    if len(values) == 1 and not isinstance(values[0], (dict, list)):
        return values[0]
    return sum(v for v in values if isinstance(v, (int, float)))


def holds(report, condition):
    path, sign, wanted = re.fullmatch(r"(\S+)\s*(==|!=|>=|<=|>|<)\s*(\S+)", condition).groups()
    got = find(report, path)
    if re.fullmatch(r"-?[0-9.]+", wanted):
        right = isinstance(got, (int, float)) and COMPARE[sign](got, float(wanted))
    else:
        right = COMPARE[sign](str(got), wanted)
    if not right:
        print(f"{path} is {got}, wanted {sign} {wanted}")
    return right


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            report = json.load(file)
        if report["schema"] != "allograft-stats/1":
            raise ValueError("schema " + str(report["schema"]))
    except (OSError, ValueError, KeyError) as error:
        print(f"no report: {error}")
        return 2
    status = 0
    for word in sys.argv[2:]:
        if re.search(r"[=<>]", word):
            if not holds(report, word):
                status = 1
        else:
            print(find(report, word))
    return status


sys.exit(main())
