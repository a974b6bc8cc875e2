"""Reports read back: one, several added up, two compared, and files that are none."""

import base64
import copy
import hashlib
import html.parser
import json
import os
import random
import re
import shutil
import struct


import command
from command import CommandTest, allograft, clean_environment, paths
from json_schema import problems
from test_report import SAMPLE, UNITS, read_schema, stats_schema


def sample(**changes):
    """SAMPLE with other values: names are paths with __ between their steps."""
    report = copy.deepcopy(SAMPLE)
    for path, value in changes.items():
        place = report
        *steps, last = path.split("__")
        for step in steps:
            place = place[int(step) if isinstance(place, list) else step]
        place[last] = value
    return report


def counting(value, schema):
    """The report with 1 for every count that is 0 or not there."""
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    counts = {name: 1 for name, field in fields.items() if field.get("$ref") in UNITS}
    return counts | {name: counting(field, fields.get(name, {})) for name, field in value.items()
                     if name not in counts or field}


def rank(number, **changes):
    """One process of a job; the later ranks began first."""
    return sample(process__rank=number, process__pid=109 - number, **changes)


class JobTest(CommandTest):
    def setUp(self):
        folder = command.tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        path = self.write("probe.json", SAMPLE)
        if "made without jansson" in allograft("report", path).stderr:
            self.skipTest("the command was built without jansson")

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def write_all(self, *reports):
        return [self.write(f"{i}.json", report) for i, report in enumerate(reports)]

    def copies(self, path, n):
        """The file and others like it, `n` in all."""
        return [path, *(shutil.copy(path, f"{path}.{i}") for i in range(1, n))]

    def shown(self, *args):
        """What a command says that has nothing to complain of."""
        result = allograft(*args)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def read(self, *args):
        return json.loads(self.shown(*args))

    def demo(self, *args, **variables):
        """The report of a run of the demo, as a file."""
        path = os.path.join(self.folder, "demo.json")
        env = clean_environment(LD_LIBRARY_PATH=paths.sim, **variables)
        demo = os.path.join(paths.sim, "demo", "demo-sim")
        result = allograft("run", *args, "--stats", path, "--", demo, env=env)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return path


class One(JobTest):
    def assert_holds(self, whole, part, where=""):
        """All of `part` is in `whole`."""
        if isinstance(part, dict):
            for key, value in part.items():
                self.assertIn(key, whole, where)
                self.assert_holds(whole[key], value, f"{where}.{key}")
        elif isinstance(part, list) and part and isinstance(part[0], dict):
            for value, there in zip(part, whole):
                self.assert_holds(there, value, where)
        else:
            self.assertEqual(whole, part, where)

    def test_is_what_was_written(self):
        for args in ((), ("--policy", "managed"), ("--graph", "all"), ("--rule", "size>=1MiB:native")):
            path = self.demo(*args)
            with open(path, encoding="utf-8") as file:
                written = json.load(file)
            self.assertEqual(self.read("report", "--json", path), written, args)

    def test_reads_every_field(self):
        report = sample(rules=[{"text": "*:pool", "hits": 3, "bytes": 1536}],
                        no_rule={"hits": 4, "bytes": 7}, process__rank=3)
        report["settings"][0].update(source="file", place="/etc/a.conf:3", value="managed")
        again = self.read("report", "--json", self.write("a.json", report))
        self.assertEqual(problems(again, read_schema(), closed=True), [])
        del report["warnings"], report["verdict"]  # both come from the counts
        self.assert_holds(again, report)
        report["replay"].update(state="unavailable", reason="the driver is old")
        again = self.read("report", "--json", self.write("a.json", report))
        self.assertEqual(again["replay"]["reason"], "the driver is old")
        self.assertIn("nothing was replayed: the driver is old", again["warnings"])

    def test_keeps_the_numbers_of_stacks(self):
        """By which traces name them; rows between are of waits, of which there may be as many as there is room."""
        count = {"bytes": 8, "blocks": 1}
        def stacks(*numbers):
            return [{"number": number, "kind": "device", "device": 0, "cut": False, "live": count, "ever": count, "peak": count,
                     "frames": [{"function": f"f{number}", "file": "a.py", "line": 1}]} for number in numbers]
        waits = {"bound_ns": 1, "shorter": {"times": 0, "ns": 0}, "without_stack": {"times": 0, "ns": 0}, "modules": [], "stacks": [
            {"call": f"cu{i}", "kind": "sync", "times": 1, "ns": 9 - i, "longest_ns": 9 - i, "cut": False, "frames": []} for i in range(3)]}
        held = {"most_frames": 16, "sample_bytes": 0, "without_stack": 0, "modules": [], "peaks": [], "stacks": stacks(8191, 2, 4)}
        def numbers(report):
            return {s["number"]: s["frames"][0]["function"] for s in report["holders"]["stacks"]}
        again = self.read("report", "--json", self.write("a.json", sample(holders=held, waits=waits)))
        self.assertEqual(numbers(again), {2: "f2", 4: "f4", 8191: "f8191"})
        self.assertEqual([s["call"] for s in again["waits"]["stacks"]], ["cu0", "cu1", "cu2"])
        for stack in held["stacks"]:  # as earlier versions wrote them
            del stack["number"]
        again = self.read("report", "--json", self.write("a.json", sample(holders=held, waits=waits)))
        self.assertEqual(numbers(again), {0: "f8191", 1: "f2", 2: "f4"})
        for wrong in ((3, 3), (8192,)):
            path = self.write("a.json", sample(holders=held | {"stacks": stacks(*wrong)}))
            self.assertIn("number is not of one stack alone", allograft("report", "--json", path).stderr.replace('"', ""))

    def test_whose_memory_moved(self):
        count = {"bytes": 8, "blocks": 1}
        def stack(number, **moved):
            return {"number": number, "kind": "device", "device": 0, "cut": False, "live": {"bytes": 0, "blocks": 0}, "ever": count,
                    "peak": count, "frames": [{"function": f"f{number}", "file": "a.py", "line": 1}], **moved}
        def moved(came, went, in_place):
            return {"moved": {"in_bytes": came, "out_bytes": went, "in_place_bytes": in_place}}
        stacks = [stack(0), stack(1, **moved(1 << 20, 2 << 20, 3 << 20)), stack(2, **moved(0, 0, 7 << 20))]
        holders = {"most_frames": 16, "sample_bytes": 0, "without_stack": 0, "taken": 0, "taking_ns": 0, "modules": [], "peaks": [],
                   "stacks": stacks}
        path = self.write("a.json", sample(holders=holders))
        again = self.read("report", "--json", path)
        self.assertEqual(again["holders"], holders)
        self.assertEqual(problems(again, read_schema(), closed=True), [])
        self.assertIn("  whose memory moved: 1.00 MiB to the device, 2.00 MiB to the host, 10.00 MiB used there, from 2 stacks\n"
                      "    0 B to the device, 0 B to the host, 7.00 MiB used there, device 0\n"
                      "      f2 at a.py:1 (Python)\n"
                      "    1.00 MiB to the device, 2.00 MiB to the host, 3.00 MiB used there, device 0\n"
                      "      f1 at a.py:1 (Python)\n", self.shown("report", path))
        holders.update(sample_bytes=512, stacks=stacks[:2])
        self.assertIn("    ~1.00 MiB to the device, ~2.00 MiB to the host, ~3.00 MiB used there, device 0\n",
                      self.shown("report", self.write("a.json", sample(holders=holders))))

    def test_knows_why_nothing_was_redirected(self):
        path = self.write("a.json", sample(coverage__redirecting=False,
                                           warnings=["nothing was redirected: a reason"]))
        self.assertIn("warning: nothing was redirected: a reason", self.shown("report", path))

    def test_is_the_report_at_exit_as_text(self):
        text = self.shown("report", self.write("a.json", SAMPLE))
        self.assertTrue(text.startswith(
            "allograft 0.1.0: p (process 1) after 5 ns\n"
            "  gained:    3 of 3 allocations did not ask the driver; 2 of 2 frees did not wait for the device; "), text)
        for line in (r"device 0, d, 1.00 GiB", r"pool +3 +2 +1.50 KiB +1.00 KiB +512 B",
                     r"allocations redirected +3 of +3 +100.0 %",
                     r"allocations answered by the cache +1 of +3 +33.3 %",
                     r"operations launched in graphs +1 of +1 +100.0 %"):
            self.assertRegex(text, line)

    def test_share_of_frees_that_waited_is_of_all(self):
        counted = sorted(set(read_schema()["properties"]["frees"]["properties"])
                         - {"fences", "drain_reasons", "late_waits", "waited", "pending_peak_bytes"})
        frees = dict(SAMPLE["frees"], **{key: 10 for key in counted})
        text = self.shown("report", self.write("a.json", sample(frees=frees)))
        self.assertRegex(text, f"frees that made the host wait +20 of +{10 * len(counted) - 10} ")

    def test_passes_over_fields_of_a_later_version(self):
        path = self.write("a.json", sample(later={"a": [1.5]}, cache__later="x", version="9.9.9"))
        self.assertIn("allograft 9.9.9: p", self.shown("report", path))


class Several(JobTest):
    def test_begin_with_the_verdict_of_their_sum(self):
        lines = self.shown("report", *self.write_all(rank(0), rank(1))).splitlines()
        self.assertTrue(lines[1].startswith("  gained:    6 of 6 allocations did not ask the driver; 4 of 4 "), lines[1])
        self.assertTrue(lines[2].startswith("  held back: calls of lib.so went past Allograft"), lines[2])
        self.assertEqual(lines[3], "  try:       allograft run --audit")
        self.assertEqual(len([line for line in lines if line.startswith("  gained:")]), 1)
        # Below the sum's title nothing of its report is lost.
        below = lines[lines.index(next(line for line in lines if line.startswith("  all together"))) + 1]
        self.assertTrue(below.startswith("  warning: "), below)

    def test_are_added_up(self):
        files = self.write_all(rank(1), rank(0, process__elapsed_ns=7), rank(2, process__host="other"))
        job = self.read("report", "--json", *files)
        self.assertEqual(job["schema"], "allograft-job/1")
        self.assertEqual([row["rank"] for row in job["processes"]], [0, 1, 2])
        self.assertEqual(job["medians"]["allocs"], 3)
        total = job["total"]
        self.assertEqual(problems(total, read_schema(), closed=True), [])
        pool = total["devices"][0]["placements"]["pool"]
        self.assertEqual(len(total["devices"]), 1)
        self.assertEqual((pool["allocs"], pool["peak_bytes"], pool["size_histogram"]),
                         (9, 3072, [{"up_to_bytes": 512, "count": 9}]))
        self.assertEqual((total["cache"]["hits"], total["cache"]["peak_bytes"]), (3, 512))
        self.assertEqual((total["process"]["host"], total["process"]["elapsed_ns"]), ("several hosts", 7))
        self.assertEqual(total["app_pools"][0]["allocs"], 9)
        self.assertEqual(total["coverage"]["bypassing"], ["lib.so"])
        self.assertEqual(total["coverage"]["unseen"], ["libnvoptix.so.1"])

    def test_moves_are_as_fast_as_the_fastest(self):
        files = self.write_all(rank(0, pressure__bus_gib_ns=0), rank(1), rank(2, pressure__bus_gib_ns=1000))
        pressure = self.read("report", "--json", *files)["total"]["pressure"]
        self.assertEqual([pressure[key] for key in ("move_ns", "bus_gib_ns", "move_least_ns")], [15000, 1000, 3000])

    def test_are_files_and_not_all_there_is(self):
        files = self.write_all(rank(0), rank(1))
        for given in (files[:1], files):
            self.assert_refused(allograft("report", "--all", *given), f"not with the file {files[0]}")

    def test_count_a_file_once(self):
        files = self.write_all(rank(0), rank(1))
        linked = os.path.join(self.folder, "linked.json")
        os.symlink(files[0], linked)
        for again in (files[0], os.path.join(self.folder, ".", "0.json"), linked):
            result = allograft("report", "--json", *files, again)
            self.assertEqual((result.returncode, result.stderr),
                             (0, f"allograft: {again}: given twice, counted once\n"))
            job = json.loads(result.stdout)
            self.assertEqual([row["rank"] for row in job["processes"]], [0, 1])
            self.assertEqual(job["total"]["devices"][0]["placements"]["pool"]["allocs"], 6)
        self.assertIn(": 1 process of ", allograft("report", files[0], linked).stdout.splitlines()[0])
        job = json.loads(allograft("report", "--json", files[0], linked).stdout)
        self.assertEqual((job["schema"], len(job["processes"])), ("allograft-job/1", 1))

    def test_with_devices_of_their_own(self):
        files = self.write_all(rank(0), rank(1, devices__0__name="e"), rank(2, devices__0__ordinal=40))
        devices = self.read("report", "--json", *files)["total"]["devices"]
        self.assertEqual([(d["name"], d["placements"]["pool"]["allocs"]) for d in devices],
                         [("d", 6), ("e", 3)])

    def test_marks_are_added_by_their_name(self):
        def marks(*rows):
            return [{"name": name, "count": count, "first_ns": first, "last_ns": first + count, "bytes": 7}
                    for name, count, first in rows]
        files = self.write_all(rank(0, marks=marks(("a", 1, 50), ("b", 2, 60))), rank(1, marks=marks(("b", 4, 40))))
        self.assertEqual(self.read("report", "--json", *files)["total"]["marks"],
                         [{"name": "a", "count": 1, "first_ns": 50, "last_ns": 51, "bytes": 7},
                          {"name": "b", "count": 6, "first_ns": 40, "last_ns": 62, "bytes": 14}])

    def test_say_which_settings_differ(self):
        files = self.write_all(rank(0), rank(1, settings__0__value="managed"))
        settings = self.read("report", "--json", *files)["total"]["settings"]
        self.assertEqual(settings[0]["value"], "(differs)")
        self.assertEqual({row["source"] for row in settings[1:]}, {"default"})

    def test_rules_are_added_by_their_text(self):
        def rules(*rows):
            return [{"text": text, "hits": hits, "bytes": 10} for text, hits in rows]
        files = self.write_all(rank(0, rules=rules(("a:pool", 1), ("b:pool", 2))),
                               rank(1, rules=rules(("b:pool", 4), ("c:pool", 8))))
        total = self.read("report", "--json", *files)["total"]
        self.assertEqual([(rule["text"], rule["hits"]) for rule in total["rules"]],
                         [("a:pool", 1), ("b:pool", 6), ("c:pool", 8)])

    def test_outliers_are_marked(self):
        def with_peak(number, peak):
            return rank(number, devices__0__placements__pool__peak_bytes=peak, process__elapsed_ns=1000,
                        devices__0__placements__pool__alloc_ns=0, devices__0__placements__pool__free_ns=9)
        files = self.write_all(*(with_peak(i, peak) for i, peak in enumerate((1000, 1000, 1500, 1501, 666))))
        job = self.read("report", "--json", *files)
        self.assertEqual([row["outliers"] for row in job["processes"]],
                         [[], [], [], ["peak_bytes"], ["peak_bytes"]])
        text = self.shown("report", *files)
        self.assertRegex(text, r"\n +3 h +106 +1.00 us  +1.47 KiB\* +3 ")
        self.assertRegex(text, r"\n +2 h +107 +1.00 us  +1.46 KiB  +3 ")
        self.assertIn("* an outlier: more than 1.5 times the median", text)
        self.assertNotIn("outlier", self.shown("report", *files[:2]))

    def test_times_and_shares_are_outliers_by_what_they_matter(self):
        def with_calls(number, elapsed, ns, hits):
            return rank(number, process__elapsed_ns=elapsed, devices__0__placements__pool__alloc_ns=ns,
                        devices__0__placements__pool__free_ns=0, cache__hits=hits, cache__misses=100 - hits)
        for elapsed, ns, hits, outliers in ((10000, 199, 1, []), (10000, 201, 6, ["alloc_and_free_ns"]),
                                            (10000, 100, 7, ["cached_percent"])):
            files = self.write_all(*(with_calls(i, 10000, 100, 1) for i in range(2)),
                                   with_calls(2, elapsed, ns, hits))
            self.assertEqual(self.read("report", "--json", *files)["processes"][2]["outliers"], outliers)

    def test_need_all_of_their_files(self):
        there, missing = self.write("a.json", SAMPLE), os.path.join(self.folder, "no")
        self.assert_refused(allograft("report", there, missing), "no: No such file", status=1)
        self.assert_refused(allograft("report", there, "1"), "give one process, or several files")


class Document(html.parser.HTMLParser):
    """A page taken apart: its elements must nest, and its texts are kept."""

    VOID = {"meta", "br", "link", "img", "input"}
    ALONE = {"rect", "path", "line"}  # SVG, closed in their tag

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.attributes, self.wrong = [], [], [], [], []
        self.scripts, self.last = [], []  # (text, attributes); of the newest element
        self.folded = []  # of each card that folds: is it closed?
        self.feed(text)
        self.close()
        self.wrong += self.open

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.ALONE:
            self.wrong.append(f"<{tag}/>")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.last = attrs
        if tag == "details" and "card" in dict(attrs).get("class", ""):
            self.folded.append("open" not in dict(attrs))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append((data, dict(self.last)))
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    def values(self, name):
        return [value for key, value in self.attributes if key == name]

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


class Page(JobTest):
    def page(self, *files):
        out = os.path.join(self.folder, "out.html")
        self.assertEqual(self.shown("report", "--html", out, *files), "")
        with open(out, encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(self.shown("report", *files, "--html", "-"), text)
        page = Document(text)
        self.assertEqual(page.wrong, [])
        self.assert_needs_nothing(text, page)
        return page

    def assert_needs_nothing(self, text, page):
        self.assertEqual(set(page.tags) & {"link", "img", "iframe", "object", "base", "form"}, set())
        names = {name for name, _ in page.attributes}
        self.assertEqual({n for n in names if n.startswith("on")} | names & {"src"}, set())
        ids = page.values("id")
        self.assertEqual(len(ids), len(set(ids)), ids)
        self.assertEqual(set(page.values("href")) - {"#" + one for one in ids}, set())
        # The scripts that run are ours: the policy names each by its hash. All others are data.
        for script, attributes in page.scripts:
            if attributes.get("type") == "application/json":
                json.loads(script)
                continue
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            self.assertIn(f"'sha256-{digest}'", dict(page.attributes)["content"])
            text = text.replace(script, "")
        self.assertNotIn("unsafe-inline", dict(page.attributes)["content"].split("script-src")[1])
        self.assertNotRegex(text, r"://|@import|url\(")
        self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f]")

    def test_of_one_process(self):
        text = self.page(self.write("a.json", SAMPLE)).text
        for words in ("Gained: 3 of 3 allocations did not ask the driver;", "Held back: calls of lib.so went past",
                      "Try: allograft run --audit", "process 1 on h, ran 5 ns", "Peak memory 1.00 KiB", "Allocations answered by the cache 33.3 %",
                      "d 1.00 GiB", "512 B 3 100.0 %", "ordered on the NULL stream 1 50.0 %",
                      "launched in graphs 1 100.0 %", "a wait for a stream, or a query of one 1 100.0 %",
                      "Driver: /lib/libcuda.so.1", "cuMemAlloc_v2 3", "POLICY pool default",
                      "Libraries that call the driver directly, past Allograft: lib.so",
                      "Libraries that use the device where Allograft does not see it, so that frees wait: libnvoptix.so.1",
                      "default, device 0 3 1.50 KiB 1.00 KiB 32.00 MiB",
                      "copies alone 3.00 us 60.0 %", "the rest 2.00 us 40.0 %", "the bus alone, as fast as it was once 2.00 us 40.0 %"):
            self.assertIn(words, text)
        self.assertNotIn("outlier", text)

    def test_has_every_counter(self):
        """A group of stats.def that html_report.c does not know would be on no page; of traces it tells otherwise."""
        groups = stats_schema.groups_of(os.path.join(paths.root, "interpose", "core", "report", "stats.def"))
        text = self.page(self.write("a.json", counting(sample(frees__fences={}), read_schema()))).text
        for group, labels in groups.items():
            for label in labels.values() if group != "trace" else ():
                self.assertIn(label, text, group)

    def test_contents_lead_to_every_card(self):
        page = self.page(self.write("a.json", SAMPLE))
        headings = page.values("id")
        self.assertEqual(page.values("href"), ["#" + one for one in headings])
        self.assertGreater(len(headings), 5)
        self.assertIn("who-held-memory", self.page(self.write("b.json", SAMPLE | {"holders": self.holders()})).values("id"))
        self.assertIn("the-program-s-own-pools", headings)

    def holders(self):
        part = {"bytes": 600, "blocks": 1}
        return {"most_frames": 16, "sample_bytes": 0, "without_stack": 0, "modules": [], "peaks": [],
                "stacks": [{"kind": "device", "device": 0, "cut": False, "live": part, "ever": part, "peak": part,
                            "frames": [{"function": "f", "file": "a.py", "line": 7}]}]}

    def test_titles_name_the_rank(self):
        alone = self.page(self.write("a.json", rank(3, holders=self.holders())))
        self.assertTrue(alone.text.strip().startswith("p, rank 3: Allograft report"), alone.text[:200])
        self.assertIn("Who held memory", alone.text)
        self.assertNotIn("Who held memory, rank", alone.text)
        self.assertEqual(alone.folded, [False])
        page = self.page(*self.write_all(rank(1, holders=self.holders()), sample(process__rank=None, process__pid=110, holders=self.holders()), rank(2)))
        self.assertIn("Who held memory, rank 1", page.text)
        self.assertIn("Who held memory, process 110", page.text)
        self.assertEqual(page.folded, [False, True])  # the first one is open

    def test_the_table_names_the_programs_own_function(self):
        held = self.holders()
        held["stacks"][0]["frames"] = [{"function": name, "file": file, "line": 7} for name, file in (
            ("inner", "/v/lib/python3.11/site-packages/x.py"), ("own", "a.py"), ("main", "a.py"))]
        text = self.page(self.write("a.json", rank(0, holders=held))).text
        self.assertIn("allocated own a.py:7 inner /v/lib/python3.11/site-packages/x.py:7 own a.py:7 main a.py:7", text)
        held["stacks"][0]["frames"].pop(0)
        self.assertIn("allocated own a.py:7 main a.py:7", self.page(self.write("a.json", rank(0, holders=held))).text)

    def test_of_a_run_that_did_nothing(self):
        places = {"devices__0__placements__pool__" + key: 0 for key in ("allocs", "frees", "failed", "alloc_bytes", "peak_bytes")}
        page = self.page(self.write("a.json", sample(**places)), self.write("a.trace", self.empty_trace()))
        self.assertIn("Nothing was allocated, launched in graphs, or done on a stream.", page.text)
        for words in ("The same in numbers", "placement peak"):
            self.assertNotIn(words, page.text)

    def empty_trace(self):
        head = struct.Struct("<8sIIIiiI5Q32s72s256s80s")
        return head.pack(b"AGTRACE", 1, 512, 64, 7, -1, 0, 0, 0, 0, 0, 0, b"v", b"h", b"p", b"")

    def test_columns_without_a_value_go(self):
        places = {"devices__0__placements__pool__" + key: 0 for key in ("alloc_ns", "free_ns", "current_bytes")}
        pools = sample()["app_pools"][0] | {"used_high_bytes": None, "reserved_high_bytes": None}
        def heads(*reports):
            return re.findall("placement (peak .*?asked for)|process (time.*?) rank|pool (allocs.*?) default",
                              self.page(*self.write_all(*reports)).text)
        full = "".join(map("".join, heads(rank(0), rank(1))))
        for words in ("at the end", "in calls", "most used most held"):
            self.assertIn(words, full)
        empty = "".join(map("".join, heads(*(rank(i, app_pools=[pools], **places) for i in range(2)))))
        for words in ("at the end", "in calls", "most used", "most held"):
            self.assertNotIn(words, empty)
        for words in ("peak of that allocs asked for", "allocs asked for", "peak allocs"):
            self.assertIn(words, empty)

    def test_many_ranks_fold(self):
        for n, folded in ((16, False), (17, True), (64, True)):
            ranks = [rank(i, holders=self.holders(), devices__0__placements__pool__allocs=900 if i == 13 else 3) for i in range(n)]
            page = self.page(*self.write_all(*ranks))
            self.assertEqual(f"All {n} processes" in page.text, folded)
            self.assertEqual(f"1 of {n} processes is an outlier" in page.text, folded)
            self.assertEqual(page.text.count("rank 13, h, process"), 2 if folded else 1)
            self.assertEqual(page.text.count("rank 12, h, process"), 1)
            # Stacks of eight are shown, the outlier's first.
            cards = re.findall(r"Who held memory, rank (\d+)", page.text)
            self.assertEqual(cards[:8], cards[8:])  # the contents, the cards
            self.assertEqual(cards[:8], ["13", "0", "1", "2", "3", "4", "5", "6"])
            self.assertIn(f"Those of {n - 8} more processes are not shown here", page.text)
        page = self.page(*self.write_all(*(rank(i) for i in range(17))))
        self.assertIn("0 of 17 processes are outliers", page.text)

    def test_native_cost_has_its_source(self):
        pool = SAMPLE["devices"][0]["placements"]["pool"] | {
            "allocs": 1000, "frees": 1000, "alloc_bytes": 1000 << 20, "alloc_ns": 300000, "free_ns": 200000}
        native = pool | {"allocs": 200, "frees": 200, "alloc_ns": 2000000, "free_ns": 4000000}
        text = self.page(self.write("a.json", sample(devices__0__placements={"pool": pool}))).text
        for words in ("redirected 500.00 us", "native, estimated 50.30 ms", "figures of another machine"):
            self.assertIn(words, text)
        text = self.page(self.write("a.json", sample(coverage__passed=200,
                                                     devices__0__placements={"native": native, "pool": pool}))).text
        for words in ("redirected 500.00 us", "native, estimated 30.00 ms", "10.00 us per allocation and 20.00 us per free"):
            self.assertIn(words, text)
        text = self.page(self.write("a.json", sample(devices__0__placements={"native": native}))).text
        self.assertNotIn("native, estimated", text)
        # Native memory that the cache hands out again tells nothing of the driver's own calls.
        text = self.page(self.write("a.json", sample(coverage__passed=199,
                                                     devices__0__placements={"native": native, "pool": pool}))).text
        self.assertIn("native, estimated 50.30 ms", text)

    def test_the_hosts_time_is_no_speed(self):
        waited, unwaited = (self.page(self.write("a.json", sample(
            replay__eager_ns=9000, replay__replayed_ns=6000, replay__compared_unwaited=was))).text for was in (False, True))
        self.assertIn("Speed of iterations with graphs 1.50x 6.00 us instead of 9.00 us an iteration", waited)
        self.assertIn("Speed of the host with graphs 1.50x 6.00 us instead of 9.00 us for 512 operations", unwaited)

    def test_bars_are_as_long_as_their_share(self):
        sizes = [{"up_to_bytes": 512, "count": 1}, {"up_to_bytes": 1024, "count": 3}]
        out = os.path.join(self.folder, "out.html")
        self.shown("report", "--html", out, self.write("a.json", sample(devices__0__placements__pool__size_histogram=sizes)))
        with open(out, encoding="utf-8") as file:
            card = file.read().split("Sizes of allocations</h2>")[1].split("</section>")[0]
        self.assertEqual(re.findall(r'([\d.]+) %</td>.*?class="c1" width="([\d.]+)"', card),
                         [("25.0", "250.0"), ("75.0", "750.0")])

    def test_of_several(self):
        files = self.write_all(*(rank(i) for i in range(4)),
                               rank(4, devices__0__placements__pool__peak_bytes=1 << 20))
        page = self.page(*files)
        self.assertIn("5 processes on h", page.text)
        self.assertIn("1.00 MiB * ", page.text)
        self.assertIn("rank 3, h, process 106", page.text)
        self.assertIn("* an outlier: more than 1.5 times the median", page.text)

    def test_charts_can_be_read_out(self):
        page = self.page(self.write("a.json", SAMPLE))
        drawings, hidden = page.tags.count("svg"), page.attributes.count(("aria-hidden", "true"))
        self.assertGreater(hidden, 5)
        self.assertEqual(drawings - hidden, page.attributes.count(("role", "img")))
        self.assertEqual(drawings - hidden, page.tags.count("desc"))

    def test_of_a_real_run(self):
        page = self.page(self.demo("--graph", "all", "--rule", "size>=1MiB:native"))
        self.assertIn("size>=1MiB:native", page.text)
        self.assertLess(sum(map(len, page.texts)), 100000)

    def test_texts_are_no_markup(self):
        nasty = "\"'><script>alert(1)</script>&lt;</style>\ud7ff\U0001f600"
        page = self.page(self.write("a.json", sample(
            process__program=nasty, process__host=nasty, devices__0__name=nasty, version=nasty,
            process__ended_by=nasty, coverage__libcuda=nasty, coverage__bypassing=[nasty], settings__0__value=nasty,
            settings__0__source="file", settings__0__place=nasty,
            rules=[{"text": nasty, "hits": 1, "bytes": 1}])))
        self.assertGreaterEqual(page.text.count(nasty), 7)

    def test_without_any_memory(self):
        page = self.page(self.write("a.json", sample(devices=[], coverage__redirected=0, cache__hits=0,
                                                     cache__misses=0, replay__state="off")))
        self.assertIn("Peak memory 0 B", page.text)

    def test_with_a_trace(self):
        trace = os.path.join(self.folder, "a.trace")
        report = self.demo("--set", "TRACE=" + trace)
        page = self.page(report, trace)
        for words in ("Memory over time demo-sim", ": 402 events", "native over time",
                      "At the peak of 2.00 MiB, after",
                      "Temporary allocations, freed before any other allocation: 100 of 201 (49.8 %).", "Call sites of allocations",
                      ": 201 allocations, 50 % temporary 101.02 MiB 100.0 %"):
            self.assertIn(words, page.text)
        self.assertEqual(page.tags.count("path"), 2)
        # So many, of any length, keep the page small; more are counted.
        page = self.page(report, *self.copies(trace, 20))
        self.assertEqual(page.tags.count("path"), 32)
        self.assertIn("4 more are not shown", page.text)
        self.assertLess(os.path.getsize(os.path.join(self.folder, "out.html")), 1 << 20)

    def data(self, page, key):
        """What charts are drawn from."""
        found = [json.loads(text) for text, given in page.scripts if given.get("type") == "application/json"]
        return [one for one in found if key in one]

    def test_thinning_keeps_every_peak(self):
        generator, live, level, peaks = random.Random(1), [], [0, 0], [0, 0, 0]
        events = bytearray()
        def event(kind, ticks, address, size, placement):
            return struct.pack("<6QIIBBhHH", ticks, 1, address, size, 0, 64, 1, 0, kind, placement, 0, 0, 0)
        for i in range(20000):
            if live and generator.random() < .5:
                address, size, place = live.pop(generator.randrange(len(live)))
                events += event(2, 20 + 10 * i, address, size, place)
                level[place] -= size
            else:
                size, place = generator.randrange(1, 1 << 20) << (9 if i % 997 == 0 else 0), i % 2
                live.append(((i + 1) << 32, size, place))
                events += event(1, 20 + 10 * i, (i + 1) << 32, size, place)
                level[place] += size
            peaks = [max(peaks[0], sum(level)), max(peaks[1], level[0]), max(peaks[2], level[1])]
        head = struct.pack("<8sIIIiiI5Q32s72s256s80s", b"AGTRACE", 1, 512, 64, 7, -1, 0, 0, 0, 0, 0, 0, b"v", b"h", b"p", b"")
        clock = struct.pack("<6QIIBBhHH", 1 << 20, 0, 1 << 20, 0, 0, 0, 0, 0, 49, 0, 0, 0, 0)
        page = self.page(self.write("a.json", SAMPLE), self.write("a.trace", head + events + clock))
        data = self.data(page, "series")[0]
        self.assertEqual([max(one["values"]) for one in data["series"]], peaks)
        self.assertEqual([one["values"][-1] for one in data["series"]], [sum(level), *level])
        self.assertEqual(data["time"], sorted(data["time"]))
        for one in data["series"]:
            self.assertEqual(len(one["values"]), len(data["time"]))
        self.assertLess(len(data["time"]), 7000)

    def test_stacks_are_a_flame_graph(self):
        nasty = "</script><script>alert(1)</script>\"'&"
        def stack(size, *functions):
            held = {"bytes": size, "blocks": 1}
            return {"kind": "device", "device": 0, "cut": False, "live": {"bytes": 0, "blocks": 0}, "ever": held,
                    "peak": held, "frames": [{"function": name, "file": nasty, "line": 7} for name in functions]}
        holders = {"most_frames": 16, "sample_bytes": 0, "without_stack": 0, "modules": [], "peaks": [],
                   "stacks": [stack(300, "inner", "main"), stack(100, nasty, "main"), stack(0, "none", "main")]}
        page = self.page(self.write("a.json", SAMPLE | {"holders": holders}))
        root = self.data(page, "root")[0]["root"]
        self.assertEqual(root[:3], ["all memory", "", [400, 0, 400]])
        (device,) = root[3]
        (main,) = device[3]
        self.assertEqual((device[0], main[0], main[2]), ("memory of device 0", "main", [400, 0, 400]))
        self.assertEqual({node[0]: (node[1], node[2]) for node in main[3]},
                         {"inner": (nasty + ":7", [300, 0, 300]), nasty: (nasty + ":7", [100, 0, 100])})
        self.assertIn("Stacks, those that held most at the peak first", page.text)
        self.assertIn("memory at the peak allocated inner", page.text)
        self.assertIn("300 B 300 B", page.text)
        holders["stacks"][0]["moved"] = {"in_bytes": 50, "out_bytes": 60, "in_place_bytes": 0}
        page = self.page(self.write("a.json", SAMPLE | {"holders": holders}))
        (data,) = self.data(page, "root")
        self.assertEqual(data["measures"][3:], ["moved to the device", "moved to the host", "used on the host"])
        self.assertEqual(data["root"][2], [400, 0, 400, 50, 60, 0])
        self.assertIn("memory at the peak allocated moved to the device moved to the host inner", page.text)
        self.assertIn("300 B 300 B 50 B 60 B", page.text)

    def test_waits_are_a_flame_graph(self):
        nasty = "</script><script>alert(1)</script>\"'&"
        def stack(call, kind, times, ns, *names):
            return {"call": call, "kind": kind, "times": times, "ns": ns, "longest_ns": ns // times, "cut": False,
                    "frames": [{"function": name, "file": "a.py", "line": 7} for name in names]}
        waits = {"bound_ns": 5000, "shorter": {"times": 1234, "ns": 2500000}, "without_stack": {"times": 0, "ns": 0},
                 "modules": [], "stacks": [stack("cuCtxSynchronize", "sync", 4, 3000000000, "step", "main"),
                                           stack("cuMemcpyDtoH_v2", "copy", 2, 200000, "item", "main"),
                                           stack(nasty, "sync", 1, 100000, "step", "main"),
                                           stack("cuLater", "later", 1, 100000, "main")]}
        page = self.page(self.write("a.json", SAMPLE | {"waits": waits}))
        (data,) = self.data(page, "root")
        self.assertEqual((data["measures"], data["units"]), (["time waited", "waits"], ["ns", "count"]))
        self.assertEqual(data["root"][:3], ["all waits", "", [3000300000, 7]])
        kinds = {node[0]: node for node in data["root"][3]}
        self.assertEqual({name: node[2] for name, node in kinds.items()},
                         {"synchronisation": [3000100000, 5], "blocking copy": [200000, 2]})
        ((name, place, _, ((step, _, _, calls),)),) = kinds["synchronisation"][3]
        self.assertEqual((name, place, step), ("main", "a.py:7", "step"))
        self.assertEqual({call[0]: call[2] for call in calls}, {"cuCtxSynchronize": [3000000000, 4], nasty: [100000, 1]})
        self.assertIn("Stacks, those that waited longest first", page.text)
        self.assertIn("cuCtxSynchronize 3.00 s 4 750.00 ms", page.text)
        self.assertIn("1234 calls took less than 5.00 us each, 2.50 ms together", page.text)
        self.assertNotIn("Who held memory", page.text)

    def test_with_a_trace_of_somebody_else(self):
        nasty = b"\x1b[1m<script>'\"&\xff"
        head = struct.pack("<8sIIIiiI5Q32s72s256s80s", b"AGTRACE", 1, 512, 64, 7, -1, 0, 0, 0, 10, 10, 0,
                           nasty, nasty, nasty, b"")
        def event(kind, ticks=0, address=0, size=0, placement=0, code=0, module=0):
            return struct.pack("<6QIIBBhHH", ticks, 5, address, size, 0, 64, 1, 0, kind, placement, 0, module, code)
        texts = b"".join(event(48, address=number, size=len(nasty), code=code) + nasty.ljust(64, b"\0")
                         for number, code in ((1, 1), (9, 5)))
        good = head + texts + event(1, 20, 4096, 512, 1, module=9) + event(2, 40, 4096, 512, 1)
        report = self.write("a.json", SAMPLE)
        page = self.page(report, self.write("a.trace", good))
        self.assertGreaterEqual(page.text.count("<script>'\"&\ufffd"), 4)
        self.page(report, self.write("a.trace", good[:-100]))
        for bad in (good[:100], good[:12] + b"\xff" * 500):
            result = allograft("report", "--html", "-", report, self.write("bad.trace", bad))
            self.assert_refused(result, "bad.trace: ", status=1)
        self.assert_refused(allograft("report", self.write("a.trace", good)), "is a trace: `allograft trace`", status=1)
        self.assert_refused(allograft("report", "--html", "-", self.write("a.trace", good)), "besides traces", status=1)

    def test_cannot_be_written(self):
        path = self.write("a.json", SAMPLE)
        out = os.path.join(self.folder, "no", "out.html")
        self.assert_refused(allograft("report", "--html", out, path), out + ": No such file", status=1)
        self.assert_refused(allograft("report", path, "--html"), "--html needs a value")
        self.assert_refused(allograft("report", "--json", "--html", out, path), "not both")


class Two(JobTest):
    def differences(self, *reports):
        rows = self.read("diff", "--json", *self.write_all(*reports))["differences"]
        self.assertEqual([row["weight_percent"] for row in rows],
                         sorted((row["weight_percent"] for row in rows), reverse=True))
        return {f"{row['group']}: {row['what']}": row for row in rows}

    def test_that_are_the_same(self):
        files = self.write_all(SAMPLE, SAMPLE)
        self.assertIn("  no number differs\n", self.shown("diff", *files))
        self.assertEqual(self.read("diff", "--json", *files),
                         {"schema": "allograft-diff/1",
                          "verdict": ["same    5 ns for the whole run", "same    1.50 us in allocs and frees",
                                      "same    1.00 KiB of peak memory"],
                          "times_compared": True, "settings": [], "differences": []})

    def test_are_compared_by_weight(self):
        found = self.differences(sample(process__elapsed_ns=10000), sample(
            process__elapsed_ns=9000, cache__hits=2, frees__drained=5,
            devices__0__placements__pool__peak_bytes=4096, replay__replayed=0))
        self.assertEqual({name: (row["unit"], row["a"], row["b"], row["weight_percent"], row["change_percent"])
                          for name, row in found.items()},
                         {"process: time": ("ns", 10000, 9000, 10, -10),
                          "memory: peak": ("bytes", 1024, 4096, 75, 300),
                          "pool: peak": ("bytes", 1024, 4096, 75, 300),
                          "cache: allocations answered without the driver": ("count", 1, 2, 20, 100),
                          "frees: waited for all work of the context": ("count", 0, 5, 100, None),
                          "replay: launched in graphs": ("count", 1, 0, 100, -100)})

    def test_are_shown_with_units(self):
        files = self.write_all(sample(process__elapsed_ns=10000), sample(
            process__elapsed_ns=9000, settings__0__value="managed", cache__misses=9, frees__drained=5,
            replay__replayed=0, devices__0__placements__pool__peak_bytes=4096))
        text = self.shown("diff", *files)
        for line in (r"POLICY +pool -> managed", r" 10.0 % +-10.0 % +10.00 us +9.00 us  process: time",
                     r" 75.0 % +4.0x +1.00 KiB +4.00 KiB  memory: peak", r" new +0 +5  frees: waited",
                     r" gone +1 +0  replay: launched"):
            self.assertRegex(text, line)
        self.assertNotIn("process: time", self.shown("diff", "--least", "10.1%", *files))
        self.assertIn("no number differs by as much", self.shown("diff", "--least", "1000", *files))

    def words(self, *reports):
        """What was gained and lost, before everything else."""
        files = self.write_all(*reports)
        text = self.shown("diff", *files)
        words = re.match(r"B against A\n((?:    .*\n)*)A: allograft ", text)[1]
        self.assertLessEqual(max(map(len, words.splitlines())), 80, words)
        words = [line.strip() for line in words.splitlines()]
        self.assertEqual(self.read("diff", "--json", *files)["verdict"], words)
        return words

    def test_begins_with_what_was_gained(self):
        def run(elapsed, place, allocs, ns, peak, **changes):
            pool = SAMPLE["devices"][0]["placements"]["pool"] | {
                "allocs": allocs, "frees": allocs, "alloc_ns": ns, "free_ns": 0, "peak_bytes": peak}
            return sample(process__elapsed_ns=elapsed, devices__0__placements={place: pool}, **changes)
        native, pool = run(10 ** 9, "native", 200, 10 ** 8, 2048), run(8 * 10 ** 8, "pool", 200, 10 ** 7, 3072)
        self.assertEqual(self.words(native, pool), [
            "gained  200.00 ms less for the whole run: 1.00 s -> 800.00 ms (-20.0 %)",
            "gained  90.00 ms less in allocs and frees: 100.00 ms -> 10.00 ms (-90.0 %)",
            "lost    1.00 KiB more of peak memory: 2.00 KiB -> 3.00 KiB (+50.0 %)",
            "moved   allocations: native 200 -> 0, pool 0 -> 200"])
        self.assertEqual(self.words(pool, pool), ["same    800.00 ms for the whole run",
                                                  "same    10.00 ms in allocs and frees",
                                                  "same    3.00 KiB of peak memory"])
        self.assertEqual(self.words(pool, run(10 ** 9, "pool", 200, 10 ** 8, 2048))[0][:34],
                         "lost    200.00 ms more for the who")
        close = self.words(native, run(99 * 10 ** 7, "native", 200, 10 ** 8, 2048))
        self.assertIn("(times this close may be chance; `allograft tune` compares several runs)", close)
        other = self.words(native, run(10 ** 9, "native", 300, 10 ** 8, 2048))
        self.assertIn("(different work? allocations: 200 -> 300 (+50.0 %))", other)
        events = self.words(native, run(10 ** 9, "native", 200, 10 ** 8, 2048, frees__drained=5, replay__replayed=0))
        self.assertIn("lost    5 more frees that made the host wait: 0 -> 5", events)
        left = sample(process__elapsed_ns=10 ** 9, frees__native=5)  # the driver's own free waits, too
        self.assertNotIn("host wait", self.shown("diff", *self.write_all(left, sample(
            process__elapsed_ns=10 ** 9, frees__drained=5))).split("A: ")[0])
        self.assertIn("lost    operations launched in graphs: 100.0 % -> 0.0 %", events)
        killed = self.words(native, run(0, "native", 200, 10 ** 8, 2048))
        self.assertIn("(how long a killed process ran is not known)", killed)

    def test_placements_come_behind_their_sum(self):
        native, pool = (sample(process__elapsed_ns=10000 + i, devices__0__placements={
            place: SAMPLE["devices"][0]["placements"]["pool"] | {"alloc_ns": 900 + i}})
            for i, place in enumerate(("native", "pool")))
        titles = ("the whole run, and all memory", "memory by placement", "what the library did")
        text = self.shown("diff", *self.write_all(native, sample(
            process__elapsed_ns=9000, devices__0__placements=pool["devices"][0]["placements"], cache__hits=2)))
        self.assertEqual(re.findall("(?m)^  (%s)$" % "|".join(titles), text), list(titles))
        first, places, library = re.split("(?m)^  (?:%s)\n" % "|".join(titles), text)[1:]
        self.assertEqual([line.rpartition("  ")[2] for line in first.splitlines()],
                         ["process: time", "memory: time in allocations"])
        self.assertIn("native: bytes asked for", places)
        self.assertIn("cache: allocations answered", library)
        # Where there is one placement, it is the sum.
        self.assertNotIn(titles[1], self.shown("diff", *self.write_all(
            SAMPLE, sample(devices__0__placements__pool__peak_bytes=4096))))

    def test_counts_every_field(self):
        """Whatever number is changed, there is a difference."""
        for group, fields in SAMPLE.items():
            if not isinstance(fields, dict) or group in ("process", "coverage"):
                continue
            for name, value in fields.items():
                if type(value) is int and name not in ("waited", "move_least_ns"):  # a truth is none, and those are of others
                    self.assertEqual(len(self.differences(SAMPLE, sample(**{f"{group}__{name}": value + 7}))),
                                     1, (group, name))

    def test_words(self):
        path = self.write("a.json", SAMPLE)
        self.assert_refused(allograft("diff", path), "too few arguments", "A B")
        self.assert_refused(allograft("diff", path, path, path), "too many", "A B")
        self.assert_refused(allograft("diff", "--most", path, path), "--most")
        self.assert_refused(allograft("diff", "--least", "x", path, path), "--least")
        self.assert_refused(allograft("diff", path, os.path.join(self.folder, "no")), "no: No such", status=1)
        self.assertIn("weight", self.shown("diff", "--help"))


class Malformed(JobTest):
    def refused(self, content, *said):
        path = self.write("bad.json", content)
        for args in (("report", path), ("report", "--json", path), ("report", path, path)):
            result = allograft(*args)
            self.assertEqual((result.returncode, result.stdout), (1, ""), content[:80])
            lines = result.stderr.splitlines()
            self.assertEqual(len(lines), len(args) - 1 if args[-2] == path else 1, result.stderr)
            for text in ("bad.json is ", "JSON", *said):
                self.assertIn(text, lines[0])
            self.assertNotRegex(result.stderr, r"[\x00-\x09\x0b-\x1f\x7f]")

    def test_is_said_in_a_line(self):
        whole = json.dumps(SAMPLE).encode()
        self.refused(whole[:-20], "line 1, column")
        self.refused(b'{"schema":"\x1b[31m', "not valid JSON")
        self.refused(b"{}", "schema is not")
        self.refused(b'{"schema":"allograft-stats/2"}', "is JSON of a newer version of Allograft", "allograft-stats/2")
        self.refused(b'{"schema":"allograft-stats/x"}', "schema is not")
        self.refused(b'{"schema":"allograft-stats/1"}', "process is missing")
        self.refused(b"{" * 100000, "not valid JSON")
        self.refused(b" \n" + whole + b"x", "line 2")
        self.refused(b'{"schema":"allograft-stats/1","version":99999999999999999999}', "too big integer")

    def test_values_of_another_kind(self):
        for path, said in (("process__pid", "pid"), ("cache__hits", "hits"), ("coverage__lookups", "lookups"),
                           ("coverage__hooks", "hooks"), ("devices", "devices"), ("settings", "settings"),
                           ("devices__0__placements__pool__size_histogram", "size_histogram"),
                           ("replay__flushes", "flushes"), ("app_pools__0__kind", "kind"),
                           ("coverage__redirecting", "redirecting"), ("process__program", "program")):
            for value in (1.5, -1, [1.5], {"a": -1}, "x"):
                if isinstance(value, {"devices": list, "settings": list, "size_histogram": list,
                                      "lookups": dict, "hooks": dict, "flushes": dict, "kind": str,
                                      "program": str}.get(said, bool)):
                    continue
                self.refused(json.dumps(sample(**{path: value})).encode(), said)

    def test_texts_cannot_steer_a_terminal(self):
        nasty = "\x1b]0;x\x07\x7f\u009b31m\n"
        path = self.write("a.json", sample(process__program=nasty, process__host=nasty, devices__0__name=nasty,
                                           coverage__bypassing=[nasty], replay__state="unavailable",
                                           replay__reason=nasty, settings__0__value=nasty, version=nasty,
                                           rules=[{"text": nasty, "hits": 1, "bytes": 1}]))
        for args in ((path,), self.copies(path, 2), ("--json", path)):
            self.assertNotRegex(self.shown("report", *args), r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")

    def test_large_numbers(self):
        most = (1 << 63) - 1
        path = self.write("a.json", sample(
            process__elapsed_ns=most, cache__hits=most, devices__0__total_bytes=most, process__rank=(1 << 31) - 1,
            devices__0__placements__pool=dict.fromkeys(SAMPLE["devices"][0]["placements"]["pool"], most)
            | {"size_histogram": [{"up_to_bytes": most, "count": most}] * 300}))
        for args in ((path,), self.copies(path, 5), ("--json", path)):
            self.assertRegex(self.shown("report", *args), "allograft")


class Opened(JobTest):
    """The command that opens jansson when it needs it."""

    def test_reads_the_same(self):
        opens = os.path.join(os.path.dirname(paths.bare), "allograft-opens")
        path = self.write("a.json", SAMPLE)
        for words in (("report", path), ("report", "--json", path), ("diff", path, path), ("report", self.write("b.json", b"{"))):
            linked, opened = allograft(*words), allograft(*words, command=opens)
            if "there is no jansson here" in opened.stderr:
                self.skipTest("libjansson.so.4 is not installed")
            self.assertEqual((opened.returncode, opened.stdout, opened.stderr),
                             (linked.returncode, linked.stdout, linked.stderr))


class Bare(JobTest):
    """The command without the optional libraries."""

    def test_says_what_it_lacks(self):
        path = self.write("a.json", SAMPLE)
        self.assert_refused(allograft("report", path, command=paths.bare),
                            "a.json is a JSON report", "made without jansson (libjansson-dev)", status=1)
        self.assert_refused(allograft("report", self.write("a", b"x"), command=paths.bare),
                            "is neither a JSON report", "nor a file of counters", status=1)
        self.assert_refused(allograft("top", "--prometheus", "9400", command=paths.bare),
                            "--prometheus=9400", "built without libmicrohttpd (libmicrohttpd-dev)", status=1)


if __name__ == "__main__":
    command.main()
