#!/usr/bin/env python3
"""The page of performance, of what docs/results/ has: its tables, its charts, and the tables of other pages.

usage: performance.py                      writes docs/performance.md of docs/performance.md.in, the tables of other pages,
                                           and the charts (which need matplotlib)
       performance.py --check              names what differs from the results; needs nothing but Python
       performance.py --add FILE... [--machine M] [--driver D] [--date D] [--commit C]
                                           takes what tests/gpu/run.sh, tests/bench/run.py or tests/apps/apps.py wrote
                                           into docs/results/, removes what is then out of date, and writes all pages

In the frame and in other pages a directive is a comment of its own, and what is made of it stands behind it:

    table NAME | HEAD...      lines `label | cell...`; a cell is `table/row`, which makes three (native, with Allograft,
                              how many times better), or `table/row.column`, or "text". Rows that were not measured are
                              left out, those of three cells are sorted: the worst first.
    chart FILE                lines `label | table/row`
    text NAME                 a table of text
    contents                  a list of the sections
    names                     lines `PATTERN | name`: what a row is called of which no table says it, or that has no table;
                              \\1 is what the pattern's first group found, and "65536 bytes" become 64 KiB. The first
                              that fits `table/row` as a whole counts
    slower                    every row with the library that is slower than natively
    runs                      the runs that the page is of
    apps                      programs
    bench bench|traces        other allocators beside ours: the bench's own rows, and the traces that it played
    bench without             Allograft as it is beside Allograft with one setting changed

{table/row.column} in the prose is that figure, {programs/WAY.programs}, .mean, .least and .most what the programs come to
under a way of running them. Another page has `<!-- figures: NAME -->`, for a table of the frame.
"""

import argparse
import glob
import os
import re
import statistics
import sys

import chart
import results
from results import gain, times

DOCS = os.path.dirname(os.path.abspath(__file__))
FRAME = os.path.join(DOCS, "performance.md.in")
PAGE = os.path.join(DOCS, "performance.md")
IMAGES = os.path.join(DOCS, "images")
SAID_BY_OTHERS = re.compile(r" trace_x\d+_(ms|asked_bytes)$")  # what _ns is times the operations; the same for all
DIRECTIVE = re.compile(r"<!-- (table|chart|text|slower|apps|bench|runs|names|contents)\b([^\n]*?)(?:\n(.*?))?-->\n", re.S)
INLINE = re.compile(r"\{([\w .-]+/\w+\.[^{}]+)\}")
BORROWED = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- end of figures -->\n", re.S)
SLOWER = 0.98
LIMITED = "paging-"  # tables of programs under a limit that they natively do not have
OF_PYTHON = ("graph-torch-turns", "managed-training")
WAYS = ("default", "pool", "managed", "replay")
OURS = ("allograft", "allograft pool", "allograft managed")
MADE = ("<!-- Made by docs/performance.py of docs/performance.md.in and docs/results/: edit those. -->\n")


class Problem(Exception):
    """The frame asks for what there is not."""


def markdown(rows):
    """rows: the heads, then cells."""
    lines = [rows[0], ["---"] * len(rows[0])] + rows[1:]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines).replace("|  |", "| |")


def split(line):
    return [cell.strip() for cell in line.split("|")]


class Page:
    """A frame and the results; what is drawn is gathered while it is written."""

    def __init__(self, found, frame):
        self.results, self.frame = found, frame
        self.tables, self.charts, self.labels, self.names, self.nameless = {}, {}, {}, [], []
        DIRECTIVE.sub(self.made, frame)  # for the labels and names
        self.nameless.clear()
        self.text = MADE + "\n" + INLINE.sub(self.inline, DIRECTIVE.sub(self.made, frame))

    def inline(self, match):
        if match[1].startswith("programs/"):
            return self.programs_come_to(match[1])
        figure = self.results.figure(match[1])
        if not figure:
            raise Problem(f"{{{match[1]}}} was not measured")
        return figure.text(False)

    def made(self, match):
        kind, words, lines = match[1], split(match[2]), [split(line) for line in (match[3] or "").splitlines() if line.strip()]
        name, heads = words[0], words[1:]
        if kind == "names":
            self.names = [(re.compile(pattern), name) for pattern, name in lines]
            return ""
        if kind == "table":
            self.tables[name] = self.table(heads, lines)
            return "".join(self.tables[name])
        if kind == "chart":
            return self.times_chart(name, lines)
        if kind == "text":
            return self.text_table(name)
        if kind == "bench":
            return self.bench(name)
        return {"slower": self.slower, "apps": self.apps, "runs": self.runs, "contents": self.contents}[kind]()

    def contents(self):
        heads = re.findall(r"^## (.+)$", self.frame, re.M)
        return "".join(f"- [{head}](#{re.sub(r'[^a-z0-9 -]', '', head.lower()).replace(' ', '-')})\n" for head in heads)

    def name_of(self, reference, other=None):
        """What a reader calls the row."""
        for pattern, name in self.names:
            match = pattern.fullmatch(reference)
            if match:
                said = re.sub(r"(?<=\d )[kmg](?=iB)", lambda unit: unit[0].upper(), match.expand(name))
                return re.sub(r"(\d+) bytes\b", lambda found: results.Figure("_bytes", [int(found[1])]).text(), said)
        if reference in self.labels:
            return self.labels[reference]
        self.nameless.append(reference)
        return f"`{other or reference}`"

    # ---- tables of the suite -------------------------------------------------------------------

    def cells(self, reference, used):
        """The cells that one cell of the frame makes; None: its row was not measured."""
        if reference.startswith('"'):
            return [reference.strip('"')]
        used.append(results.split(reference)[0])
        if results.split(reference)[2]:
            figure = self.results.figure(reference)
            return [figure.text()] if figure else None
        row = self.results.row(reference)
        if "native" not in row or "with" not in row:
            return None
        return [row["native"].text(), row["with"].text(), gain(times(row["native"], row["with"]))]

    def table(self, heads, lines):
        """(the table, where it is from)."""
        rows, used, ranked = [], [], False
        for label, *references in lines:
            mine = []
            made = [self.cells(reference, mine) for reference in references]
            if not made or made[0] is None:
                continue
            cells = [cell for some in made for cell in (some or ["not measured"])]
            rank = 0
            if len(made[0]) == 3:
                row = self.results.row(references[0])
                rank, ranked = times(row["native"], row["with"]) or 0, True
                self.labels[references[0]] = label
            rows.append((rank, [label, *cells]))
            used += [table for table in mine if table in self.results.newest]
        if not rows:
            return "", ""
        if ranked:
            rows.sort(key=lambda row: row[0])
        return markdown([["", *heads] if len(heads) < len(rows[0][1]) else heads] + [row for _, row in rows]), \
            "\n" + self.results.provenance(dict.fromkeys(used)) + "\n"

    def text_table(self, name):
        path = self.results.texts.get(name)
        if not path:
            raise Problem(f"no results have a text {name}")
        run = self.results.files[path]
        table = run["texts"][name]
        note = f"; {table['note']}" if "note" in table else ""
        return markdown([table["columns"], *table["rows"]]) + f"\n*{self.results.place(run)}{note}.*\n"

    def slower(self):
        rows, used = [], []
        for reference, native, ours in self.results.compared():
            ratio = times(native, ours)
            if ratio is None or ratio >= SLOWER or reference.startswith(LIMITED):
                continue
            worst = ours.values if native.larger else native.values
            within = min(ours.values) <= max(worst) and min(native.values) <= max(ours.values)
            said = "within the spread" if within and len(native.values) > 1 else ""
            table = results.split(reference)[0]
            if table in OF_PYTHON:
                said = "two processes of Python"
            used.append(table)
            rows.append((ratio, [self.name_of(reference), native.text(), ours.text(), gain(ratio), said]))
        if not rows:
            return "No row is.\n"
        rows.sort(key=lambda row: row[0])
        return markdown([["", "native", "with Allograft", "times as fast", ""]] + [row for _, row in rows]) + \
            "\n" + self.results.provenance(dict.fromkeys(used)) + "\n"

    def runs(self):
        """One row for each file with measured tables, and what failed in it."""
        rows = []
        for run in self.results.files.values():
            if not run.get("tables"):
                continue
            checks = ""
            if "verdicts" in run:
                verdicts = run["verdicts"]
                failed = ", ".join(f"`{name}`" for name in verdicts["failed"])
                checks = f"{verdicts['passed']} passed, {verdicts['skipped']} skipped, {len(verdicts['failed'])} failed" + \
                    (f": {failed}" if failed else "")
            processor = run.get("processor") or ""
            if run.get("processors"):
                processor = f"{run['processors']} of {processor}" if processor else f"{run['processors']} processors"
            options = re.sub(r"--only .*", "--only PATTERN", run.get("options") or "")
            said = f"`{options}`" if options else ""
            rows.append([run["suite"], self.results.place(run), processor, said, checks])
        return markdown([["suite", "on", "host", "options", "checks"], *sorted(rows)])

    # ---- programs, and other allocators --------------------------------------------------------

    def programs(self):
        """([(table, its seconds, {way: how many times as fast as natively})...], the tables without a native run)."""
        rows, left_out = [], []
        for name in (name for name in self.results.newest if name.startswith("app ")):
            seconds = self.results.row(name + "/seconds")
            if "native" in seconds:
                rows.append((name, seconds, {way: times(seconds["native"], seconds[way]) for way in WAYS if way in seconds}))
            else:
                left_out.append(name)
        return rows, left_out

    def programs_come_to(self, reference):
        _, way, what = results.split(reference)
        ratios = [ratios[way] for _, _, ratios in self.programs()[0] if way in ratios]
        if not ratios or what not in ("programs", "mean", "least", "most"):
            raise Problem(f"{{{reference}}} was not measured")
        if what == "programs":
            return str(len(ratios))
        return f"{ {'mean': statistics.geometric_mean, 'least': min, 'most': max}[what](ratios):.2f}"

    def apps(self):
        rows, left_out = self.programs()
        if not rows and not left_out:
            return "Not measured yet.\n"
        ways = [way for way in WAYS if any(way in ratios for _, _, ratios in rows)]
        rows.sort(key=lambda row: min(row[2].values(), default=0))
        lines = [["", "native", *ways, "output"]]
        for name, seconds, ratios in rows:
            lines.append([name[4:], seconds["native"].text(), *(self.way(name, seconds, ratios, way) for way in ways),
                          self.results.run_of(name)["tables"][name]["output"]])
        drawn = [(name[4:], *(ratios.get(way) for way in ways)) for name, _, ratios in rows]
        self.charts["apps.svg"] = (chart.draw_ratios, drawn, ways, "whole run, times as fast\nas natively (logarithmic)")
        measured = [name for name, _, _ in rows]
        return markdown(lines) + "\n" + self.results.provenance(measured) + "\n\n" + self.means(rows, ways) + \
            ("\nNot measured; their output, or why there is none:\n\n" + "".join(
                f"- {name[4:]}: {self.results.run_of(name)['tables'][name]['output']}\n" for name in left_out) if left_out else "") + \
            "\n![How many times as fast each program is](images/apps.svg)\n"

    def way(self, name, seconds, ratios, way):
        """A cell: how many times as fast, by the program's own timer too, and the seconds."""
        if way not in ratios:
            return "-"
        own = self.results.run_of(name)["tables"][name].get("by_timer", {}).get(way)
        timer = f", by its own timer {gain(own)}" if own else ""
        return f"{gain(ratios[way])}{timer}: {seconds[way].text()}"

    def means(self, rows, ways):
        """What the table comes to."""
        said = "| | programs | geometric mean | least |\n| --- | --- | --- | --- |\n"
        for way in ways:
            ratios = [ratios[way] for _, _, ratios in rows if way in ratios]
            said += f"| {way} | {len(ratios)} | {statistics.geometric_mean(ratios):.3f}x | {min(ratios):.3f}x |\n"
        return said

    def without(self):
        """What a mechanism wins: the figure without it, over the figure with it."""
        rows = []
        for name in self.results.run_of("without")["tables"]["without"]["rows"]:
            row = self.results.row(f"without/{name}")
            if "allograft" in row and not SAID_BY_OTHERS.search(name) and not name.endswith("wrong_words"):
                kind = "traces" if " trace_" in name else "bench"
                rows.append((self.name_of(f"{kind}/{name}", name), row))
        settings = list(dict.fromkeys(one for _, row in rows for one in row if one != "allograft"))
        return markdown([["", "as it is", *(f"`{one.split()[1]}`" for one in settings)]] +
                        [[name, row["allograft"].text(), *(gain(times(row[one], row["allograft"])) if one in row else "-"
                                                           for one in settings)] for name, row in rows]) + \
            "\n" + self.results.provenance(["without"]) + "\n"

    def bench(self, table):
        """`bench`, whose rows the bench has by itself, or `traces`, which it played."""
        if table not in self.results.newest:
            return "Not measured yet.\n"
        if table == "without":
            return self.without()
        rows, who = [], []
        for name in self.results.run_of(table)["tables"][table]["rows"]:
            if SAID_BY_OTHERS.search(name):
                continue
            row = self.results.row(f"{table}/{name}")
            who += [one for one in row if one not in who]
            peers = [figure for one, figure in row.items() if one not in OURS + ("native",)]
            ratio = None
            if peers and "allograft" in row and not name.endswith("wrong_words"):
                best = (max if row["allograft"].larger else min)(peers, key=lambda figure: figure.value)
                ratio = times(best, row["allograft"])
            rows.append((ratio, self.name_of(f"{table}/{name}", name), row))
        rows.sort(key=lambda row: (row[0] is None, row[0]))
        who.sort(key=lambda one: (one not in OURS, one != "native", one))
        others = [one for one in who if one != "allograft"]
        drawn = [(name.strip("`"), *(times(row["allograft"], row[one]) if one in row else None for one in others))
                 for ratio, name, row in rows if ratio is not None]
        self.charts[table + ".svg"] = (chart.draw_ratios, drawn, others, "times as good as Allograft (logarithmic)")
        died = "".join(f"- `{one[0]}` died: `{' '.join(one[1:-1])}`: {one[-1]}\n"
                       for one in self.results.run_of(table)["tables"][table].get("died", []))
        return markdown([["figure", *who, "Allograft against the best of the others"]] +
                        [[name, *(row[one].text() if one in row else "-" for one in who), gain(ratio) or "-"]
                         for ratio, name, row in rows]) + \
            "\n" + self.results.provenance([table]) + "\n" + ("\n" + died if died else "") + \
            f"\n![Other allocators beside Allograft](images/{table}.svg)\n"

    # ---- charts --------------------------------------------------------------------------------

    def times_chart(self, name, lines):
        words = name.split(None, 1)
        drawn, where = [], []
        for label, reference in lines:
            row = self.results.row(reference)
            if "native" in row and "with" in row:
                drawn.append((label, row["native"], row["with"], gain(times(row["native"], row["with"]))))
                where.append(self.results.run_of(results.split(reference)[0])["machine"])
        if not drawn:
            return ""
        self.charts[words[0]] = (chart.draw_times, drawn, ", ".join(dict.fromkeys(where)))
        return f"![{words[1]}](images/{words[0]})\n"

    def source(self, name):
        _, rows, *rest = self.charts[name]
        return chart.made_of([chart.described(rows), rest])


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def borrowers():
    """(path, text, what is to stand there) of the other pages that have a table of the frame."""
    for path in [os.path.join(DOCS, os.pardir, "README.md")] + sorted(glob.glob(os.path.join(DOCS, "*.md"))):
        if path != PAGE and BORROWED.search(read(path)):
            yield path, read(path)


def lent(page, text):
    def table(match):
        if match[1] not in page.tables:
            raise Problem(f"the frame has no table {match[1]}")
        return f"<!-- figures: {match[1]} -->\n{''.join(page.tables[match[1]])}<!-- end of figures -->\n"
    return BORROWED.sub(table, text)


def problems():
    """What is not as the results say."""
    def named(path):
        return os.path.relpath(path, os.path.join(DOCS, os.pardir))
    try:
        found = results.Results()
        page = Page(found, read(FRAME))
        wanted = [(PAGE, read(PAGE) if os.path.exists(PAGE) else "", page.text)]
        wanted += [(path, text, lent(page, text)) for path, text in borrowers()]
    except Problem as problem:
        return [f"docs/performance.md.in: {problem}"]
    said = [f"{named(path)}: is not what docs/results/ says; run docs/performance.py"
            for path, text, made in wanted if text != made]
    said += [f"docs/performance.md.in: names has none for {reference}" for reference in dict.fromkeys(page.nameless)]
    for name in page.charts:
        path = os.path.join(IMAGES, name)
        if page.source(name) not in (read(path) if os.path.exists(path) else ""):
            said.append(f"{named(path)}: is not made of these results; run docs/performance.py with matplotlib")
    return said + [f"{named(path)}: every table of it is in a newer file" for path in found.needless()]


def write():
    page = Page(results.Results(), read(FRAME))
    for path, text in [(PAGE, page.text)] + [(path, lent(page, text)) for path, text in borrowers()]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    for name, (draw, *what) in page.charts.items():
        draw(*what, page.source(name), os.path.join(IMAGES, name))


def add(options):
    given = {key: getattr(options, key) for key in results.REQUIRED}
    for path in options.add:
        try:
            run = results.taken(results.load(path), given)
        except OSError as trouble:
            raise SystemExit(f"performance.py: {path}: {trouble.strerror}")
        except (ValueError, KeyError) as trouble:
            raise SystemExit(f"performance.py: {path}: {trouble}")
        with open(os.path.join(results.FOLDER, results.name_of(run)), "w", encoding="utf-8") as file:
            file.write(results.written(run))
    for path in results.Results().needless():
        print("out of date, removed:", os.path.relpath(path))
        os.remove(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="name what differs")
    parser.add_argument("--add", nargs="+", default=[], metavar="FILE", help="what was measured")
    for key in results.REQUIRED:
        parser.add_argument("--" + key, help="where FILE does not say it")
    options = parser.parse_args()
    if options.check:
        return "\n".join(problems()) or 0
    if options.add:
        add(options)
    try:
        write()
    except Problem as problem:
        return f"performance.py: docs/performance.md.in: {problem}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
