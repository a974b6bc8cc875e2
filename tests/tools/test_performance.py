"""The page of performance: what is measured becomes a results file, and results files become tables and charts."""

import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

import command
from command import CommandTest, paths

WHERE = {"machine": "NVIDIA H200", "driver": "580.1", "date": "2026-01-02T03:04Z", "commit": "abc"}
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


class Performance(CommandTest):
    def setUp(self):
        super().setUp()
        sys.path.insert(0, os.path.join(paths.root, "docs"))
        import performance
        import results
        self.performance, self.results = performance, results
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name

    def write(self, name, data):
        path = os.path.join(self.scratch, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(data if isinstance(data, str) else json.dumps(data))
        return path

    def page(self, tables, frame, **changes):
        self.write("r/a.json", {**WHERE, "tables": tables, **changes})
        return self.performance.Page(self.results.Results(os.path.join(self.scratch, "r")), frame)

    # ---- the suite writes results ------------------------------------------------------------

    def shell(self, text):
        out = os.path.join(self.scratch, "out")
        os.makedirs(out, exist_ok=True)
        subprocess.run(["bash", "-euc", f'HERE={paths.root}/tests/gpu OUT={out} ONLY=""; . "$HERE/lib.sh"; cd "$OUT"\n' + text],
                       check=True, stdout=subprocess.PIPE, timeout=60)
        return out

    def test_a_bound_that_is_missed_is_measured_once_more(self):
        out = self.shell("""
            set +e # as run.sh
            : >verdicts
            figures_of() { echo "${OF:-median} $(grep -c x "$1")" >>"$1.log"; }
            slow_once() { echo x >>once; [[ $(grep -c x once) == 1 ]] && echo 200 >figure || echo 100 >figure; figures_of once; }
            slow() { echo x >>ever; echo 200 >figure; figures_of ever; }
            quick() { echo "$(cat figure)"; (( $(cat figure) <= $1 )); }
            OF=--least measures speed/once slow_once
            check speed/a bound quick 100
            check speed/b bound quick 100
            measures speed/ever slow
            check speed/c bound quick 100
            check speed/d bound quick 100
            check speed/e bound quick 200
            check speed/f again quick 100
        """)
        with open(os.path.join(out, "verdicts"), encoding="utf-8") as file:
            verdicts = sorted(line.rstrip() for line in file)
        self.assertEqual(verdicts, [
            "FAIL speed/c: 200 measured again: 200", "FAIL speed/d: 200", "FAIL speed/f: 200 measured again: 200",
            "ok speed/a: 200 measured again: 100", "ok speed/b: 100", "ok speed/e: 200", "ok speed/ever:", "ok speed/once:"])
        for name, said in (("once", "--least 1\n--least 2\n"), ("ever", "median 1\nmedian 2\n")):
            with open(os.path.join(out, name + ".log"), encoding="utf-8") as file:
                self.assertEqual(file.read(), said)

    def test_what_the_suite_is_not_asked_for(self):
        gpu = os.path.join(paths.root, "tests", "gpu")
        for words, status, said in (([], 2, "a folder is needed, not nothing"), (["--begin", "x"], 2, "not --begin x"),
                                    (["--help"], 2, "not --help"), (["a", "b"], 2, "not a b"),
                                    (["/no/such"], 1, "/no/such: tests/gpu/run.sh has left nothing there")):
            done = subprocess.run([sys.executable, os.path.join(gpu, "results.py"), *words], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (status, "", 1), done.stderr)
            self.assertIn(said, done.stderr)
        for words in (["--no"], ["a", "b"], ["--only"]):
            done = subprocess.run(["bash", os.path.join(gpu, "run.sh"), *words], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertTrue(done.stderr.startswith("usage: run.sh "), done.stderr)

    def test_a_run_of_the_suite(self):
        out = self.shell("""
            python3 "$HERE/results.py" --begin "$OUT" "NVIDIA H200, NVL, 580.1" 3 --only speed/
            for i in 1 2 3; do
                printf 'pair_ns %s\\nrate_per_s 5\\n' $((i * 100)) >speed.$i.native
                printf 'pair_ns %s\\nrate_per_s 50\\n' $((i * 2)) >speed.$i.with
            done
            medians speed speed.?.native -- speed.?.with && tabulate speed
            medians best --least speed.?.native -- speed.?.with
            for i in 1 2 3; do
                printf 'a_per_s %s\n' $((i * 10)) >pair.$i.native
                printf 'a_per_s %s\n' $((i * 10 + i % 2)) >pair.$i.with
            done
            medians pair --paired pair.?.native -- pair.?.with && tabulate pair
            table best native with times "with, FREE=sync"
            figure pair_ns 100 2 50x 7.5
            table other native "8 blocks, nothing to do"
            figure said - 3
            printf 'ok speed/x: 1\\nFAIL speed/y: no: 2\\nskip speed/z: \\n' >verdicts
            python3 "$HERE/results.py" "$OUT"
        """)
        with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual((run["machine"], run["driver"], run["iterations"], run["options"]),
                         ("NVIDIA H200, NVL", "580.1", 3, "--only speed/"))
        self.assertRegex(run["date"], r"^20\d\d-\d\d-\d\dT\d\d:\d\dZ$")
        self.assertEqual(run["verdicts"], {"passed": 1, "failed": ["speed/y"], "skipped": 1})
        self.assertEqual(run["tables"], {
            "speed": {"of": "median", "rows": {"pair_ns": {"native": [100, 200, 300], "with": [2, 4, 6]},
                                               "rate_per_s": {"native": [5] * 3, "with": [50] * 3}}},
            "best": {"of": "least", "rows": {"pair_ns": {"native": [100, 200, 300], "with": [2, 4, 6],
                                                         "with, FREE=sync": [7.5]}}},
            "pair": {"of": "paired", "rows": {"a_per_s": {"native": [10, 20, 30], "with": [11, 20, 31]}}},
            "other": {"of": "median", "rows": {"said": {"8 blocks, nothing to do": [3]}}}})
        with open(os.path.join(out, "figures"), encoding="utf-8") as file:
            self.assertEqual(file.read().splitlines()[:5], ["[speed]\tnative\twith\ttimes", "pair_ns\t200\t4\t50x",
                                                            "rate_per_s\t5\t50\t10x", "[pair]\tnative\twith\ttimes",
                                                            "a_per_s\t30\t31\t1.03x"])

    # ---- results become text -----------------------------------------------------------------

    def test_figures(self):
        def said(name, *values, of="median"):
            return self.results.Figure(name, values, of).text()
        self.assertEqual(said("a_ns", 66868.2, 56640, 77130), "66.9 us (56.6 to 77.1)")
        self.assertEqual(said("a_ns", 237.4), "237 ns")
        self.assertEqual(said("a_us", 5, 3, 4, of="least"), "3 us (3 to 5)")
        self.assertEqual(said("a_per_s", 6.74e6), "6.74 M/s")
        self.assertEqual(said("a_per_s", 5, 9, of="least"), "9 /s (5 to 9)")
        self.assertEqual(said("a_gb_per_s", 3581.3), "3,581 GB/s")
        self.assertEqual(said("a_peak_bytes", 3 * 2 ** 30), "3 GiB")
        self.assertEqual(said("a_more_ns", -6.8), "-6.8 ns")
        self.assertEqual(said("wrong_words", 0), "0")
        self.assertEqual([self.results.gain(ratio) for ratio in (0.0244, 0.546, 0.996, 1.049, 1.052, 9.94, 9.96, 1683, None)],
                         ["0.024x", "0.55x", "1.00x", "1.05x", "1.1x", "9.9x", "10x", "1,700x", ""])

    def test_the_worst_row_is_first(self):
        rows = {"good_us": {"native": [10, 12], "with": [1, 1]}, "bad_us": {"native": [10, 11], "with": [20, 30]},
                "rate_per_s": {"native": [5, 5], "with": [10, 10]}, "alone_us": {"native": [3]}}
        page = self.page({"t": {"rows": rows}}, """<!-- table one | native | ours | times | by hand
the good | t/good_us | "none"
the bad | t/bad_us | t/alone_us.native
the rate | t/rate_per_s | t/not_there.native
not measured | t/nothing_us | "none"
-->
Between {t/alone_us.native}.
<!-- slower -->
""")
        self.assertIn("""| | native | ours | times | by hand |
| --- | --- | --- | --- | --- |
| the bad | 10.5 us (10 to 11) | 25 us (20 to 30) | 0.42x | 3 us |
| the rate | 5 /s | 10 /s | 2.0x | not measured |
| the good | 11 us (10 to 12) | 1 us | 11x | none |

*NVIDIA H200, driver 580.1, 2026-01-02, commit abc: medians of 2 runs.*
Between 3 us.
| | native | with Allograft | times as fast | |
| --- | --- | --- | --- | --- |
| the bad | 10.5 us (10 to 11) | 25 us (20 to 30) | 0.42x | |
""", page.text)

    def test_what_lies_within_the_spread_is_said(self):
        page = self.page({"t": {"rows": {"a_us": {"native": [10, 13, 14], "with": [12, 14, 15]}}}}, "<!-- slower -->\n")
        self.assertIn("| 0.93x | within the spread |", page.text)
        for table, ours in (("t", 10.1), ("paging-t", 100)):  # natively without the limit
            page = self.page({table: {"rows": {"a_us": {"native": [10], "with": [ours]}}}}, "<!-- slower -->\n")
            self.assertIn("No row is.", page.text)

    def test_what_each_process_has_measured_both_ways(self):
        rows = {"a_us": {"native": [10, 13, 14], "with": [20, 13, 15]}, "b_us": {"native": [3]}}
        page = self.page({"t": {"rows": rows, "of": "paired"}},
                         "<!-- table one | native | ours | times\nit | t/a_us\n-->\n{t/b_us.native}\n")
        self.assertIn("| it | 14 us (10 to 14) | 15 us (13 to 20) | 0.93x |\n\n*NVIDIA H200, driver 580.1, 2026-01-02, commit "
                      "abc: both measured in turns, the median ratio of 3 runs.*\n3 us\n", page.text)

    def test_rows_have_names(self):
        rows = {name: {"native": [1], "with": [2]} for name in ("pair_65536_ns", "small_4kib_us", "other_us", "step_ms_net", "step_ms_to_marked")}
        frame = "<!-- slower -->\n<!-- names\nt/pair_(\\d+)_ns | a pair of \\1 bytes\nt/small_(\\d)([km])ib_us | \\1 \\2iB\n" \
            "t/pair.* | no longer asked\nt/step.* | a step\n-->\nEnd.\n"
        page = self.page({"t": {"rows": rows}}, frame)
        for row in ("| a pair of 64 KiB | 1 ns | 2 ns | 0.50x | |", "| 4 KiB | 1 us | 2 us | 0.50x | |", "| a step | 1 ms | 2 ms | 0.50x | |",
                    "| `t/other_us` | 1 us | 2 us | 0.50x | |"):
            self.assertIn(row + "\n", page.text)
        self.assertEqual(page.nameless, ["t/other_us"])
        self.assertTrue(page.text.endswith("one run.*\nEnd.\n"), page.text)

    def test_a_list_of_the_sections(self):
        page = self.page({"t": {"rows": {}}}, "# P\n<!-- contents -->\n## One, two\n### Not this\n## The program's own\n")
        self.assertIn("# P\n- [One, two](#one-two)\n- [The program's own](#the-programs-own)\n## One", page.text)

    def test_what_the_programs_come_to(self):
        def app(*ways):
            return {"output": "the same", "rows": {"seconds": dict(zip(("native", "default", "replay"), ([way] for way in ways)))}}
        tables = {"app a": app(6, 3), "app b": app(6, 12, 2), "app c": {"output": "none", "rows": {"seconds": {}}}}
        page = self.page(tables, "{programs/default.programs} {programs/default.mean} {programs/default.least} "
                                 "{programs/default.most} {programs/replay.mean}\n")
        self.assertIn("2 1.00 0.50 2.00 3.00\n", page.text)
        for wrong in ("{programs/pool.mean}", "{programs/default.sum}"):
            with self.subTest(wrong), self.assertRaises(self.performance.Problem):
                self.page(tables, wrong + "\n")

    def test_the_page_begins_with_five_sentences(self):
        with open(os.path.join(paths.root, "docs", "performance.md"), encoding="utf-8") as file:
            first, contents = file.read().split("# Performance\n\n")[1].split("\n\n")[:2]
        sentences = re.split(r"(?<=[.])\s+(?=[A-Z])", first.strip())
        self.assertEqual([sentence[-1] for sentence in sentences], ["."] * 5, sentences)
        self.assertTrue(all(line.startswith("- [") for line in contents.splitlines()), contents)
        self.assertNotIn("{", first)

    def test_every_row_of_the_page_has_a_name(self):
        page = self.performance.Page(self.results.Results(), self.performance.read(self.performance.FRAME))
        self.assertEqual(page.nameless, [])
        # Whatever the suite measures may turn out slower one day.
        for reference, _, _ in page.results.compared():
            page.name_of(reference)
        self.assertEqual(page.nameless, [])

    def test_the_newest_table_counts(self):
        frame = "<!-- table one | native | ours | times\nit | t/a_us\n-->\n"
        self.write("r/old.json", {**WHERE, "date": "2025-12-31T00:00Z", "tables": {
            "t": {"rows": {"a_us": {"native": [7], "with": [7]}}}, "u": {"rows": {}}}})
        self.write("r/older.json", {**WHERE, "date": None, "tables": {"t": {"rows": {"a_us": {"native": [8], "with": [8]}}}}})
        page = self.page({"t": {"rows": {"a_us": {"native": [9], "with": [9]}}, "runs": "3"}}, frame)
        self.assertIn("| it | 9 us | 9 us | 1.00x |", page.text)
        self.assertIn("medians of 3 runs whose spread was not kept", page.text)
        self.assertEqual([os.path.basename(path) for path in page.results.needless()], ["older.json"])

    def test_runs_say_what_failed(self):
        page = self.page({"t": {"rows": {}}}, "<!-- runs -->\n", suite="gpu", options="--quick", processors=16, processor="Some CPU",
                         verdicts={"passed": 5, "skipped": 1, "failed": ["speed/x", "graph/y"]})
        self.assertIn("| gpu | NVIDIA H200, driver 580.1, 2026-01-02, commit abc | 16 of Some CPU | `--quick` | "
                      "5 passed, 1 skipped, 2 failed: `speed/x`, `graph/y` |", page.text)

    def test_a_frame_that_asks_for_what_is_not_there(self):
        for frame in ("Says {t/none_us.with}.\n", "<!-- text none -->\n"):
            with self.subTest(frame=frame), self.assertRaises(self.performance.Problem):
                self.page({"t": {"rows": {}}}, frame)

    # ---- what other programs write -----------------------------------------------------------

    APP = {"recipe": "cloverleaf/bm4.in", "rows": [
        {"way": "native", "runs": 9, "seconds": 2.0, "spread": "1.900 to 2.100", "same": True, "timer": 1.0},
        {"way": "default", "runs": 7, "seconds": 1.0, "spread": "0.900 to 1.200", "same": True, "timer": 0.5},
        {"way": "replay", "runs": 7, "seconds": 4.0, "spread": "3.900 to 4.100", "same": False, "timer": None}]}
    BENCH = {"machine": {"gpu": "NVIDIA H200, 580.1", "processors": 16, "date": "2026-01-02"}, "iterations": 2,
             "died": [["async", "hurried", "status 86"]], "values": {
                 "native": {"pair_512_ns": [50000, 60000], "t trace_x1_ns": [7, 8]}, "allograft": {"pair_512_ns": [200, 300], "x_per_s": [5, 5]},
                 "rmm-pool": {"pair_512_ns": [100, 100], "x_per_s": [1, 1]}, "async": {"pair_512_ns": [400, 400]}}}

    def test_programs_and_other_allocators(self):
        app = self.results.taken(self.APP, WHERE)
        bench = self.results.taken(self.BENCH, {"commit": "def"})
        self.assertEqual((bench["machine"], bench["driver"], bench["date"], bench["commit"]),
                         ("NVIDIA H200", "580.1", "2026-01-02", "def"))
        self.write("r/app.json", self.results.written(app))
        self.write("r/bench.json", self.results.written(bench))
        page = self.performance.Page(self.results.Results(os.path.join(self.scratch, "r")), "<!-- apps -->\n<!-- bench bench -->\n<!-- bench traces -->\n")
        self.assertIn("| cloverleaf/bm4.in | 2 s (1.9 to 2.1) | 2.0x: 1 s (0.9 to 1.2) | 0.50x: 4 s (3.9 to 4.1) | "
                      "differs: replay |", page.text)
        self.assertIn("medians of 7 runs", page.text)
        self.assertIn("| default | 1 | 2.000x | 2.000x |\n| replay | 1 | 0.500x | 0.500x |", page.text)
        self.assertIn("""| figure | allograft | native | async | rmm-pool | Allograft against the best of the others |
| --- | --- | --- | --- | --- | --- |
| `pair_512_ns` | 250 ns (200 to 300) | 55 us (50 to 60) | 400 ns | 100 ns | 0.40x |
| `x_per_s` | 5 /s | - | - | 1 /s | 5.0x |
""", page.text)
        self.assertIn("- `async` died: `hurried`: status 86\n", page.text)
        self.assertIn("| `t trace_x1_ns` | 7.5 ns (7 to 8) | - |\n", page.text)
        self.assertEqual(sorted(page.charts), ["apps.svg", "bench.svg", "traces.svg"])

    def test_what_a_mechanism_wins(self):
        page = self.performance.Page(self.results.Results(self.scratch), "<!-- bench without -->\n")
        self.assertEqual(page.text.splitlines()[-1], "Not measured yet.")
        run = self.results.taken({**self.BENCH, "died": [], "values": {
            "allograft": {"pair_512_ns": [300, 200], "x_per_s": [5, 4], "t trace_x1_ns": [8]},
            "allograft ALLOGRAFT_SLAB=0": {"pair_512_ns": [400, 500], "x_per_s": [1, 2]}}}, {"commit": "def"})
        self.write("r/bench.json", self.results.written(run))
        page = self.performance.Page(self.results.Results(os.path.join(self.scratch, "r")), "<!-- bench without -->\n")
        self.assertIn("""| | as it is | `ALLOGRAFT_SLAB=0` |
| --- | --- | --- |
| `pair_512_ns` | 200 ns (200 to 300) | 2.0x |
| `x_per_s` | 5 /s (4 to 5) | 2.5x |
| `t trace_x1_ns` | 8 ns | - |
""", page.text)
        self.assertIn("the best of 2 runs", page.text)

    def test_a_suite_of_programs(self):
        def row(name, *ratios, **more):
            ways = {way: {"seconds": 6 / ratio, "all": [6 / ratio] * 3, "ratio": ratio, "timer_ratio": timer}
                    for way, (ratio, timer) in zip(("native", "default", "replay"), ratios)}
            return {"name": name, "lists": "A", "command": ["x"], "trouble": None, "output": "the same", "turns": 3,
                    **({"ways": ways} if ratios else {}), **more}
        run = self.results.taken([row("a/fast", (1, None), (2, None), (3, None)), row("a/slow", (1, 1), (.5, .75), (1, 1)),
                                  row("a/broken", trouble="natively it ended with 1\nmore"), row("a/late")], WHERE)
        self.assertEqual(self.results.name_of(run), "apps-2026-01-02T0304Z.json")
        self.write("r/app.json", self.results.written(run))
        page = self.performance.Page(self.results.Results(os.path.join(self.scratch, "r")), "<!-- apps -->\n")
        self.assertIn("""| | native | default | replay | output |
| --- | --- | --- | --- | --- |
| a/slow | 6 s | 0.50x, by its own timer 0.75x: 12 s | 1.00x, by its own timer 1.00x: 6 s | the same |
| a/fast | 6 s | 2.0x: 3 s | 3.0x: 2 s | the same |
""", page.text)
        self.assertIn("| default | 2 | 1.000x | 0.500x |\n| replay | 2 | 1.732x | 1.000x |", page.text)
        self.assertIn("Not measured; their output, or why there is none:\n\n- a/broken: natively it ended with 1\n- a/late: the same\n", page.text)

    def test_what_tune_picks(self):
        rows = [{"name": "a", "trouble": None, "pick": "pool", "way": "pool", "gain": 1.5, "best": "pool", "best_ratio": 1.44,
                 "right": True},
                {"name": "b", "trouble": "it ended with 3"} | dict.fromkeys(("best", "best_ratio", "right")),
                {"name": "c", "trouble": None, "pick": "native", "way": "native", "gain": None, "best": None,
                 "best_ratio": None, "right": None}]
        run = self.results.taken(rows, WHERE)
        self.assertEqual((run["suite"], run["texts"]["tuned"]["rows"]),
                         ("tuned", [["a", "pool", "1.50x", "pool", "1.44x", "yes"],
                                    ["c", "native", "-", "-", "-", "nobody can say"],
                                    ["b", "it ended with 3", "-", "-", "-", "nobody can say"]]))
        self.assertEqual(json.loads(self.results.written(run)), run)

    # ---- charts ------------------------------------------------------------------------------

    def test_series_are_told_apart(self):
        import chart
        looks = [chart.look(i) for i in range(40)]
        self.assertEqual(len(set(looks)), 40)
        for which in (0, 1):
            self.assertEqual(len({look[which] for look in looks[:9]}), 9)
        dark = [chart.DARK[colour] for _, colour in looks[:9]]
        self.assertEqual(len(set(dark)), 9)

    def test_ratios_on_an_axis_do_not_run_into_each_other(self):
        import chart
        for low, high in ((.0003, 35), (.004, 9), (.01, 12), (.1, 4), (.5, 5), (.75, 1.32), (.7, 2.7), (1e-5, 9e4)):
            ticks = chart.ratio_ticks(low, high)
            self.assertIn(1, ticks)
            self.assertTrue(all(low <= tick <= high for tick in ticks))
            self.assertLess(len(ticks), 12)
            parts = [math.log(b / a) / math.log(high / low) for a, b in zip(ticks, ticks[1:])]
            self.assertTrue(all(part > .07 for part in parts), (low, high, ticks, parts))

    def test_what_is_not_said_is_asked_for(self):
        with self.assertRaisesRegex(ValueError, "it does not say its machine: give --machine"):
            self.results.taken(self.APP, {})

    # ---- the command -------------------------------------------------------------------------

    def copied(self):
        docs = os.path.join(self.scratch, "docs")
        os.makedirs(os.path.join(docs, "results"))
        for name in ("performance.py", "results.py", "chart.py"):
            shutil.copy(os.path.join(paths.root, "docs", name), docs)
        self.write("docs/performance.md.in", "# P\n<!-- table one | native | ours | times\nit | t/a_us\n-->\n"
                   "<!-- chart a.svg A chart\nit | t/a_us\n-->\n<!-- apps -->\n<!-- bench bench -->\n<!-- bench traces -->\n"
                   "<!-- names\nbench/(.*) | \\1\n-->\n")
        self.write("README.md", "before\n<!-- figures: one -->\nold\n<!-- end of figures -->\nafter\n")
        os.makedirs(os.path.join(docs, "images"))
        return docs

    def run_it(self, docs, *words):
        done = subprocess.run([sys.executable, os.path.join(docs, "performance.py"), *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=100, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_it_says_what_differs(self):
        docs = self.copied()
        self.write("docs/results/a.json", {**WHERE, "tables": {"t": {"rows": {"a_us": {"native": [9], "with": [3]}}}}})
        self.assertEqual(self.run_it(docs, "--check"), (1, """docs/performance.md: is not what docs/results/ says; run docs/performance.py
README.md: is not what docs/results/ says; run docs/performance.py
docs/images/a.svg: is not made of these results; run docs/performance.py with matplotlib
"""))

    def test_a_file_that_cannot_be_added_is_said(self):
        docs = self.copied()
        self.assertEqual(self.run_it(docs, "--add", "/no/such"),
                         (1, "performance.py: /no/such: No such file or directory\n"))

    def test_results_are_added_and_drawn(self):
        if not HAS_MATPLOTLIB:
            self.skipTest("there is no matplotlib")
        docs = self.copied()
        self.write("docs/results/old.json", {**WHERE, "date": None, "tables": {"t": {"rows": {}}}})
        run = self.write("run.json", {"suite": "gpu", **WHERE, "commit": None,
                                      "tables": {"t": {"rows": {"a_us": {"native": [9, 8], "with": [3, 2]}}}}})
        status, said = self.run_it(docs, "--add", run)
        self.assertEqual((status, said), (1, f"performance.py: {run}: it does not say its commit: give --commit\n"))
        app, bench = self.write("app.json", {**self.APP, **WHERE}), self.write("bench.json", self.BENCH)
        status, said = self.run_it(docs, "--add", run, app, bench, "--commit", "fed")
        self.assertEqual(status, 0, said)
        self.assertIn("out of date, removed:", said)
        self.assertEqual(sorted(os.listdir(os.path.join(docs, "results"))),
                         ["app-cloverleaf-bm4.in.json", "bench-2026-01-02.json", "gpu-2026-01-02T0304Z.json"])
        self.assertEqual(self.run_it(docs, "--check"), (1, "docs/performance.md.in: names has none for traces/t trace_x1_ns\n"))
        with open(os.path.join(self.scratch, "README.md"), encoding="utf-8") as file:
            self.assertIn("| it | 8.5 us (8 to 9) | 2.5 us (2 to 3) | 3.4x |", file.read())
        for name in ("a.svg", "apps.svg", "bench.svg", "traces.svg"):
            with open(os.path.join(docs, "images", name), encoding="utf-8") as file:
                self.assertIn("prefers-color-scheme: dark", file.read())


if __name__ == "__main__":
    command.main()
