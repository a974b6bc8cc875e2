"""What was measured: the files of docs/results/, one for each run, and how their figures are written.

A file says where, when and of what it is (machine, driver, cuda, date, commit, iterations) and has tables: name -> rows:
name -> column -> the values measured, one for each run. Of a table that several files have, the newest counts.
`texts` are tables whose cells are text: of figures that no script of ours measures.
"""

import glob
import json
import os
import statistics

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
REQUIRED = ("machine", "driver", "date", "commit")
LARGER_IS_BETTER = ("_per_s", "_to_marked")
UNITS = (("_gb_per_s", "GB/s", 1), ("_per_s", "/s", 1), ("_ns", "s", 1e-9), ("_us", "s", 1e-6), ("_ms", "s", 1e-3),
         ("seconds", "s", 1), ("_mib", "MiB", 1), ("_bytes", "B", 1))


class Figure:
    """The values of one row and column."""

    def __init__(self, name, values, of="median", at=None):
        self.name, self.values = name, values
        self.larger = name.endswith(LARGER_IS_BETTER)
        if at is not None:
            self.value = values[at]
        elif of == "least":
            self.value = max(values) if self.larger else min(values)
        elif of == "quicker":
            better = sorted(values, reverse=self.larger)
            self.value = statistics.median(better[:(len(values) + 1) // 2])
        else:
            self.value = statistics.median(values)

    def unit(self):
        if "_ms_" in self.name and not self.larger:  # a step of this or that
            return "s", 1e-3
        return next(((unit, factor) for end, unit, factor in UNITS if self.name.endswith(end)), ("", 1))

    def seconds(self):
        unit, factor = self.unit()
        return self.value * factor if unit == "s" else None

    def scale(self):
        """(factor, unit) in which the value is written: times and rates get the prefix that fits."""
        unit, factor = self.unit()
        size = abs(self.value * factor)
        if unit == "s":
            steps = ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
        elif unit == "/s":
            steps = ((1e6, "M/s"), (1e3, "k/s"), (1, "/s"))
        elif unit == "B":
            steps = ((2 ** 30, "GiB"), (2 ** 20, "MiB"), (2 ** 10, "KiB"), (1, "B"))
        else:
            return factor, unit
        step, name = next(((step, name) for step, name in steps if size >= step), steps[-1])
        return factor / step, name

    def text(self, spread=True):
        factor, unit = self.scale()
        said = f"{digits(self.value * factor)} {unit}".strip()
        if spread and len(set(self.values)) > 1:
            said += f" ({digits(min(self.values) * factor)} to {digits(max(self.values) * factor)})"
        return said


def digits(value):
    """Three significant digits."""
    if value and abs(value) < 100:
        value = float(f"{value:.3g}")
        return f"{value:.6f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
    return f"{value:,.0f}"


def middle_pair(columns):
    """Where the ratio of both is the median one, of an even number the lower one of two; None: they are not both there."""
    if not {"native", "with"} <= columns.keys():
        return None
    ratios = sorted((ours / native if native else 1, i)
                    for i, (native, ours) in enumerate(zip(columns["native"], columns["with"])))
    return ratios[(len(ratios) - 1) // 2][1]


def times(native, ours):
    """How many times better; None where one of them is a difference that is not above 0."""
    if native.value <= 0 or ours.value <= 0:
        return None
    return ours.value / native.value if native.larger else native.value / ours.value


def gain(ratio):
    """With two digits."""
    if ratio is None:
        return ""
    if ratio >= 9.95:
        return f"{float(f'{ratio:.2g}'):,.0f}x"
    return f"{ratio:.1f}x" if ratio >= 1.05 else f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"


def split(reference):
    """(table, row, column) of `table/row.column`; a table's name may have / and . in it."""
    table, _, rest = reference.rpartition("/")
    row, _, column = rest.partition(".")
    return table, row, column


class Results:
    """All files, the newest of each table first."""

    def __init__(self, folder=FOLDER):
        self.files = {}
        for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
            self.files[path] = load(path)
        self.newest, self.texts = {}, {}
        for path, run in sorted(self.files.items(), key=lambda item: (item[1]["date"] or "", item[0])):
            for name in run.get("tables", {}):
                self.newest[name] = path
            for name in run.get("texts", {}):
                self.texts[name] = path

    def needless(self):
        """Files of which every table is in a newer one."""
        return sorted(set(self.files) - set(self.newest.values()) - set(self.texts.values()))

    def run_of(self, table):
        return self.files[self.newest[table]]

    def row(self, reference):
        """column -> Figure, of `table/row`; {} if nothing of that name was measured."""
        table, name = split(reference)[:2]
        if table not in self.newest:
            return {}
        found = self.run_of(table)["tables"][table]
        columns = found["rows"].get(name, {})
        at = middle_pair(columns) if found.get("of") == "paired" else None
        return {column: Figure(name, values, found.get("of", "median"), at) for column, values in columns.items()}

    def figure(self, reference):
        """The Figure of `table/row.column`, or None."""
        table, row, column = split(reference)
        return self.row(f"{table}/{row}").get(column)

    def compared(self):
        """(reference, native, ours) of every row that has both."""
        for table in self.newest:
            for name in self.run_of(table)["tables"][table]["rows"]:
                row = self.row(f"{table}/{name}")
                if "native" in row and "with" in row:
                    yield f"{table}/{name}", row["native"], row["with"]

    def provenance(self, tables):
        """A line that says where the figures of these tables are from, and how often they were measured."""
        said = {}
        for table in tables:
            run = self.run_of(table)
            found = run["tables"][table]
            values = [len(values) for row in found["rows"].values() for values in row.values()]
            runs = found.get("runs") or str(max(values, default=1))
            of = {"least": "the best of", "quicker": "medians of the quicker half of",
                  "paired": "both measured in turns, the median ratio of"}.get(found.get("of"), "medians of")
            of = f"{of} {runs} runs" if runs != "1" else "one run"
            if runs != "1" and max(values, default=1) == 1:
                of += " whose spread was not kept"
            said.setdefault(self.place(run), []).append(of)
        return "*" + "; ".join(f"{place}: {', '.join(dict.fromkeys(how))}" for place, how in said.items()) + ".*"

    @staticmethod
    def place(run):
        words = [run["machine"]]
        if not run["driver"]:
            return words[0]
        words.append("driver " + run["driver"])
        if run.get("cuda"):
            words.append("CUDA " + run["cuda"])
        words.append(run["date"][:10] if run["date"] else "date not kept")
        if run["commit"]:
            words.append("commit " + run["commit"])
        return ", ".join(words)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def written(run):
    """JSON with a line for each row, so that a change of one can be read."""
    head = {key: value for key, value in run.items() if key != "tables"}
    text = json.dumps(head, indent=1)[:-2] + ',\n "tables": {'
    for i, (name, table) in enumerate(run["tables"].items()):
        rest = {key: value for key, value in table.items() if key != "rows"}
        text += ("," if i else "") + f"\n  {json.dumps(name)}: {json.dumps(rest)[:-1]}{', ' if rest else ''}\"rows\": {{"
        text += ",".join(f"\n   {json.dumps(row)}: {json.dumps(columns)}" for row, columns in table["rows"].items())
        text += "}}"
    return text + "}\n}\n"


# ---- what others write, as such files ----------------------------------------------------------

def spread_values(row):
    """apps.py keeps the median, the least and the most of a way."""
    if "values" in row:
        return row["values"]
    least, most = map(float, row["spread"].split(" to "))
    return [least, row["seconds"], most]


def of_apps(data):
    """tests/apps/apps.py --out."""
    rows = {"seconds": {row["way"]: spread_values(row) for row in data["rows"]}}
    if all(row.get("timer") for row in data["rows"]):
        rows["timer_seconds"] = {row["way"]: [row["timer"]] for row in data["rows"]}
    other = [row["way"] for row in data["rows"] if not row["same"]]
    table = {"rows": rows, "runs": str(min(row["runs"] for row in data["rows"])),
             "output": "differs: " + ", ".join(other) if other else "the same"}
    return {"suite": "apps", "tables": {"app " + data["recipe"]: table}}


def of_suite(data):
    """tests/apps/suite.py's results.json: one row for each program."""
    tables = {}
    for row in data:
        if row["trouble"] == "no time was left for it":
            continue
        found = {"rows": {}, "output": row["trouble"].splitlines()[0] if row["trouble"] else row["output"]}
        if row.get("ways"):
            found["rows"]["seconds"] = {way: figures["all"] for way, figures in row["ways"].items()}
            found["by_timer"] = {way: figures["timer_ratio"] for way, figures in row["ways"].items() if figures["timer_ratio"]}
        tables["app " + row["name"]] = found
    return {"suite": "apps", "tables": tables}


def of_tuned(data):
    """tests/apps/tuned.py's tuned.json: what tune picked for each program, beside what was best."""
    def cell(ratio):
        return "-" if ratio is None else f"{ratio:.2f}x"

    said = {True: "yes", False: "no", None: "nobody can say"}
    rows = [[row["name"], row["pick"], cell(row["gain"]), row["best"] or "-", cell(row["best_ratio"]), said[row["right"]]]
            for row in data if not row["trouble"]]
    rows += [[row["name"], row["trouble"], "-", "-", "-", said[None]] for row in data if row["trouble"]]
    columns = ["", "`allograft tune` picks", "times as fast in its runs", "the best when measured", "times as fast",
               "as good as the best"]
    return {"suite": "tuned", "tables": {}, "texts": {"tuned": {"columns": columns, "rows": rows}}}


def of_bench(data):
    """tests/bench/run.py --out, also with --without."""
    tables = {}
    without = any("=" in contestant for contestant in data["values"])
    for contestant, figures in data["values"].items():
        for name, values in figures.items():
            kind = "without" if without else "traces" if " trace_" in name else "bench"
            table = tables.setdefault(kind, {"died": [], "rows": {}})
            if without:  # what a busy host disturbs comes out worse, and the differences are small
                table["of"] = "least"
            table["rows"].setdefault(name, {})[contestant] = values
    for one in data["died"]:
        table = "without" if without else "traces" if one[1] in ("trace", "checked") else "bench"
        tables.setdefault(table, {"died": [], "rows": {}})["died"].append(one)
    return {"suite": "bench", "iterations": data["iterations"], "tables": tables}


def taken(data, given):
    """A file of ours, whichever program wrote `data`; `given` says what it does not."""
    if isinstance(data, list):
        run, data = of_tuned(data) if any("right" in row for row in data) else of_suite(data), {}
    else:
        run = dict(data) if "tables" in data else of_bench(data) if "values" in data else of_apps(data)
    machine = data.get("machine")
    said = {key: data[key] for key in REQUIRED if isinstance(data.get(key), str)}
    if isinstance(machine, dict):
        said.update(machine)
        if ", " in machine.get("gpu", ""):
            said["machine"], said["driver"] = machine["gpu"].rsplit(", ", 1)
    run = {"schema": "allograft-results/1", "suite": run["suite"], **run}
    for key in REQUIRED:
        run[key] = given.get(key) or said.get(key)
        if not run[key]:
            raise ValueError(f"it does not say its {key}: give --{key}")
    return run


def name_of(run):
    if run["suite"] == "apps" and len(run["tables"]) == 1:
        return next(iter(run["tables"])).replace(" ", "-").replace("/", "-") + ".json"
    return f"{run['suite']}-{run['date'].replace(':', '')}.json"
