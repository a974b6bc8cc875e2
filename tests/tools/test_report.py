"""The JSON report against its schema, and how that is made of a template and the list of counters."""

import copy
import json
import os
import sys

import command
from command import CommandTest, allograft, clean_environment, paths
from json_schema import problems

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools"))
import stats_schema  # noqa: E402

try:
    import jsonschema
except ImportError:
    jsonschema = None

PLACEMENT = {"allocs": 3, "frees": 2, "alloc_bytes": 1536, "current_bytes": 512, "current_blocks": 1,
             "peak_bytes": 1024, "alloc_ns": 900, "free_ns": 600, "failed": 0,
             "size_histogram": [{"up_to_bytes": 512, "count": 3}]}

# A report as small as it can be with something in every place; counters that it does not name are 0.
SAMPLE = {
    "schema": "allograft-stats/1", "version": "0.1.0", "simulated": False,
    "process": {"pid": 1, "program": "p", "host": "h", "rank": None, "elapsed_ns": 5, "ended_by": "exit"},
    "verdict": {"gained": "nothing", "held_back": "a reason", "try": "A=1", "memory": "none"},
    "settings": [{"name": "ALLOGRAFT_POLICY", "value": "pool", "source": "default"}],
    "coverage": {
        "intercepted": True, "redirecting": True, "libcuda": "/lib/libcuda.so.1",
        "lookups": {"exported": 0, "dlsym": 1, "get_proc_address": 440, "unmatched": 0},
        "substituted": 37, "hooks": {"cuMemAlloc_v2": 3}, "redirected": 3, "passed": 0,
        "fallbacks": {"capture_open": 1}, "bypassing": ["lib.so"], "unseen": ["libnvoptix.so.1"]},
    "devices": [{"ordinal": 0, "name": "d", "total_bytes": 1 << 30, "placements": {"pool": PLACEMENT}}],
    "frees": {"null_stream": 1, "context_fence": 1, "set_aside": 0, "waited": 0, "drained": 0, "native": 0,
              "refused": 0, "drain_reasons": {"pinned_host_memory": 0}, "late_waits": {"exit": 1},
              "pending_peak_bytes": 512},
    "cache": {"hits": 1, "misses": 2, "blocks_returned": 0, "over_limit": 0, "peak_bytes": 512},
    "slabs": {"blocks_cut": 2, "asked": 0, "made": 1, "given_back": 0, "held_bytes": 1 << 21, "peak_bytes": 1 << 21},
    "pinned": {"asked": 5, "hits": 3, "kept": 4, "nothing_submitted": 1, "waited": 3, "left": 0, "native": 1,
               "over_limit": 0, "idle": 1, "host_short": 0, "relieved": 0, "held_bytes": 4096, "peak_bytes": 8192},
    "pool": {"made": 1},
    "managed": {"advice": 1}, "injected": {"host": 1}, "copies": {"crew": 2, "crew_bytes": 4096},
    "pressure": {"trimmed": 1, "moved_in_bytes": 1 << 30, "moved_out_bytes": 1 << 29, "move_copy_ns": 3000, "move_ns": 5000,
                 "bus_gib_ns": 2000, "move_least_ns": 2000},
    "guard": {"findings": [{"written": "behind", "found": "when it was freed", "device": 0, "address": "0x7f00",
                            "bytes": 512, "first_offset": 512, "wrong_bytes": 4, "allocated_by": "p+0x10",
                            "freed_by": None}]},
    "async": {"freed": 2, "captured": 0, "thresholds_raised": 1, "managed": 0, "managed_bytes": 0,
              "managed_capture_open": 0, "managed_own_pool": 0, "managed_unavailable": 0, "managed_exhausted": 0},
    "app_pools": [{"kind": "default", "device": 0, "allocs": 3, "frees": 2, "failed": 0,
                   "alloc_bytes": 1536, "other_calls": 1, "reserved_high_bytes": 1 << 25,
                   "used_high_bytes": 1024, "destroyed": False, "threshold_raised": True}],
    "own_graphs": {"instantiated": 3, "failed": 1, "destroyed": 1, "live": 2, "live_peak": 3,
                   "devices": [{"device": 0, "instantiation_bytes": 1 << 20, "first_launch_bytes": 0,
                                "used_bytes": 0, "used_high_bytes": 1 << 21, "reserved_bytes": 1 << 21,
                                "reserved_high_bytes": 1 << 22}]},
    "replay": {"state": "on", "reason": "", "streams_marked": 1, "operations": 1, "withheld": 1,
               "replayed": 1, "released": 1, "mismatches": 1,
               "passed_in_back_off": 1, "back_offs": 1, "late_errors": 1, "graph_launches": 1,
               "graph_launches_failed": 1, "nodes_updated": 1, "nodes_foreseen": 1, "graphs_built": 1,
               "build_ns": 1, "builds_failed": 1,
               "graphs_evicted": 1, "segments": 1, "iterations": 1, "marks": 1, "comparisons": 1, "eager_iterations": 1,
               "watchdog_releases": 1, "segments_forgotten": 1, "verified_same": 1, "verified_different": 1,
               "verify_skipped": 1, "eager_ns": 5, "replayed_ns": 4, "compared_unwaited": False, "flushes": {"stream": 1},
               "staging": {"copies": 1, "bytes": 1, "packed": 1, "stalls": 1, "too_large": 1, "full": 1}},
    "ipc": {"handles_given": 1, "served": 1, "opened": 0, "closed": 0, "held": 0, "refused_other_user": 0,
            "refused_malformed": 0, "refused_too_slow": 0, "refused_unknown": 0, "unreachable": 0,
            "not_imported": 0},
    "api": {"captures": 1, "captures_failed": 1, "replays": 1, "private_allocations": 1, "managed_allocations": 1,
            "prefetched_bytes": 1, "copies": 1, "copied_bytes": 1},
    "marks": [{"name": "epoch", "count": 2, "first_ns": 1, "last_ns": 2, "bytes": 3}],
    "trace": {"written": 2, "dropped": 1},
    "waiting": {"slept": 3, "asleep_ns": 15000000, "awake": 2, "flags": 0, "legacy_stream": 1, "capture_open": 0},
    "warnings": ["w"],
}


def read_schema():
    return stats_schema.schema_of(os.path.join(ROOT, "tools", "allograft-stats.schema.json.in"),
                                  os.path.join(ROOT, "interpose", "core", "report", "stats.def"))


UNITS = ["#/$defs/" + unit for unit in ("count", "bytes", "nanoseconds")]


def add_counters(value, schema):
    """Adds the counters to a report that it does not name itself; they are 0."""
    for item in value if isinstance(value, list) else ():
        add_counters(item, schema.get("items", {}))
    for name, field in schema.get("properties", {}).items() if isinstance(value, dict) else ():
        if name in value:
            add_counters(value[name], field)
        elif name in schema.get("required", ()) and field.get("$ref") in UNITS:
            value[name] = 0


add_counters(SAMPLE, read_schema())


def objects_within(value):
    """Every object with named fields in the sample, as it lies there (not the tallies)."""
    if isinstance(value, dict):
        yield value
        for name, field in value.items():
            if name not in ("hooks", "placements"):
                yield from objects_within(field)
            elif name == "placements":
                yield from objects_within(field["pool"])
    elif isinstance(value, list):
        for item in value:
            yield from objects_within(item)


class SchemaTest(CommandTest):
    def setUp(self):
        self.schema = read_schema()

    def assert_fits(self, report, closed=False):
        self.assertEqual(problems(report, self.schema, closed), [])
        if jsonschema:
            jsonschema.Draft202012Validator(self.schema).validate(report)

    def assert_does_not_fit(self, report, closed=False):
        self.assertNotEqual(problems(report, self.schema, closed), [], json.dumps(report))
        if jsonschema and not closed:
            self.assertFalse(jsonschema.Draft202012Validator(self.schema).is_valid(report))


class Schema(SchemaTest):
    def test_is_a_schema(self):
        if not jsonschema:
            self.skipTest("the jsonschema package is not installed")
        jsonschema.Draft202012Validator.check_schema(self.schema)

    def test_takes_a_report(self):
        self.assert_fits(SAMPLE, closed=True)

    def test_takes_rules_and_places_where_there_are_any(self):
        report = copy.deepcopy(SAMPLE)
        report["rules"] = [{"text": "*:pool", "hits": 3, "bytes": 1536},
                           {"text": "*:fail", "hits": 0, "bytes": 0, "held": 4, "failed": 4}]
        report["no_rule"] = {"hits": 1, "bytes": 0}
        report["settings"][0].update(source="file", place="/etc/a.conf:3")
        self.assert_fits(report, closed=True)
        for path, value in ((("rules",), []), (("rules", 0, "text"), ""), (("rules", 0, "hits"), -1),
                            (("rules", 0), {"text": "*:pool", "hits": 3}), (("no_rule",), {"hits": 1}),
                            (("settings", 0, "place"), "/etc/a.conf")):
            wrong = copy.deepcopy(report)
            place = wrong
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            self.assert_does_not_fit(wrong)

    def test_takes_fields_of_a_later_version(self):
        report = copy.deepcopy(SAMPLE)
        for i, place in enumerate(list(objects_within(report))):
            place[f"later_{i}"] = i
        self.assert_fits(report)
        self.assert_does_not_fit(report, closed=True)

    def test_misses_every_field_that_is_not_there(self):
        n_fields = sum(len(place) for place in objects_within(SAMPLE))
        self.assertGreater(n_fields, 50)
        for i, place in enumerate(objects_within(SAMPLE)):
            for name in place:
                report = copy.deepcopy(SAMPLE)
                del list(objects_within(report))[i][name]
                if name == "app_pools":
                    continue
                self.assert_does_not_fit(report)

    def test_refuses_a_value_of_another_kind_in_every_field(self):
        for i, place in enumerate(objects_within(SAMPLE)):
            for name in place:
                report = copy.deepcopy(SAMPLE)
                list(objects_within(report))[i][name] = 1.5
                self.assert_does_not_fit(report)

    def test_refuses_what_is_out_of_range(self):
        for path, value in ((("process", "pid"), 0), (("process", "rank"), -1), (("schema",), "other/1"),
                            (("cache", "hits"), -1), (("settings", 0, "source"), "guess"),
                            (("settings",), []), (("coverage", "hooks"), {"malloc": 1}),
                            (("coverage", "fallbacks"), {"capture_open": -1}), (("warnings",), [""])):
            report = copy.deepcopy(SAMPLE)
            place = report
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            self.assert_does_not_fit(report)


class Generated(SchemaTest):
    """The schema of a template and a list of counters."""

    def made(self, template, rows):
        with command.tempfile.TemporaryDirectory() as folder:
            paths_of = [os.path.join(folder, name) for name in ("template", "stats.def")]
            for path, text in zip(paths_of, (json.dumps(template), rows)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            return stats_schema.schema_of(*paths_of)

    def test_is_what_was_built(self):
        with open(os.path.join(os.path.dirname(paths.command), "tools", "allograft-stats.schema.json"),
                  encoding="utf-8") as file:
            self.assertEqual(json.load(file), self.schema)

    def test_has_and_requires_every_counter(self):
        schema = self.made({"properties": {"a": {"$counters": "g", "properties": {"own": {}}, "required": ["own"]}}},
                           'AG_STAT(A, g, hits, "hits")\n'
                           'AG_STAT(B, g, held_bytes,\n        "of them, " "held \\"now\\"")\n'
                           'AG_STAT(C, g, build_ns, "time")\n')
        self.assertEqual(schema, {"properties": {"a": {
            "properties": {"hits": {"$ref": "#/$defs/count", "description": "hits"},
                           "held_bytes": {"$ref": "#/$defs/bytes", "description": 'of them, held "now"'},
                           "build_ns": {"$ref": "#/$defs/nanoseconds", "description": "time"}, "own": {}},
            "required": ["hits", "held_bytes", "build_ns", "own"]}}})

    def test_is_not_made_of_what_does_not_fit(self):
        row = 'AG_STAT(A, g, hits, "hits")\n'
        for template, rows, said in (
                ({}, row, "no object has the counters of \\['g'\\]"),
                ({"a": {"$counters": "g"}, "b": {"$counters": "h"}}, row, "names h"),
                ({"a": {"$counters": "g"}, "b": {"$counters": "g"}}, row, "names g"),
                ({"$counters": "g", "properties": {"hits": {}}}, row, "describes counters of g: \\['hits'\\]"),
                ({"$counters": "g"}, row + 'AG_STAT(B, g, hits, "others")\n', "two counters hits"),
                ({"$counters": "g"}, row + "AG_STAT(B, g, misses, LABEL)\n", "a row is not read"),
                ({}, "", "a row is not read")):
            with self.assertRaisesRegex(ValueError, said):
                self.made(template, rows)


class RealReport(SchemaTest):
    """Reports of the demo on the simulated driver."""

    def report_under(self, *args):
        with command.tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            env = clean_environment(LD_LIBRARY_PATH=paths.sim)
            demo = os.path.join(paths.sim, "demo", "demo-sim")
            result = allograft("run", *args, "--stats", path, "--", demo, env=env)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        self.assert_fits(report, closed=True)
        return report

    def placements(self, report):
        self.assertNotEqual(report["devices"], [])
        return {name: numbers for device in report["devices"]
                for name, numbers in device["placements"].items() if numbers["allocs"]}

    def test_fits_under_every_policy(self):
        for policy in ("pool", "native", "managed"):
            with self.subTest(policy=policy):
                report = self.report_under("--policy", policy)
                self.assertIs(report["coverage"]["intercepted"], True)
                self.assertIs(report["coverage"]["redirecting"], True)
                self.assertEqual(list(self.placements(report)), [policy])
                allocs = self.placements(report)[policy]["allocs"]
                counted = "passed" if policy == "native" else "redirected"
                self.assertEqual(report["coverage"][counted], allocs)
                self.assertIn({"name": "ALLOGRAFT_POLICY", "value": policy, "source": "environment"},
                              report["settings"])

    def test_says_whether_a_pool_was_made(self):
        for args, made, places in (((), 0, ["native"]), (("--policy", "pool"), 1, ["pool"]),
                                   (("--pool-keep", "1MiB"), 1, ["pool"])):
            report = self.report_under(*args)
            self.assertEqual(report["pool"], {"made": made}, args)
            self.assertEqual(sorted(self.placements(report)), places, args)
            self.assertEqual((report["coverage"]["redirected"], report["coverage"]["passed"]), (201, 0), args)

    def test_adds_up(self):
        report = self.report_under("--policy", "pool")
        pool = self.placements(report)["pool"]
        self.assertEqual(pool["allocs"], report["coverage"]["redirected"])
        self.assertEqual(pool["allocs"], sum(c["count"] for c in pool["size_histogram"]))
        self.assertEqual(pool["allocs"] - pool["frees"], pool["current_blocks"])
        self.assertEqual(pool["allocs"], report["cache"]["hits"] + report["cache"]["misses"]
                         + report["slabs"]["blocks_cut"])
        self.assertGreaterEqual(pool["alloc_bytes"], pool["peak_bytes"])
        self.assertGreaterEqual(pool["peak_bytes"], pool["current_bytes"])
        classes = [c["up_to_bytes"] for c in pool["size_histogram"]]
        self.assertEqual(classes, sorted(set(classes)))
        self.assertGreaterEqual(report["coverage"]["hooks"]["cuMemAlloc_v2"], pool["allocs"])

    def test_lists_every_setting(self):
        report = self.report_under("--set", "cache=1MiB")
        table = [line.split()[:2] for line in allograft("options").stdout.splitlines()
                 if line.startswith("ALLOGRAFT_")]
        self.assertEqual([row["name"] for row in report["settings"]], [name for name, _ in table])
        changed = {row["name"]: row["value"] for row in report["settings"]
                   if row["source"] == "environment"}
        self.assertEqual(set(changed), {"ALLOGRAFT_CACHE", "ALLOGRAFT_STATS"})
        for row, (name, preset) in zip(report["settings"], table):
            if row["source"] == "default":
                self.assertEqual(row["value"], preset, name)

    def test_says_where_settings_come_from(self):
        with command.tempfile.TemporaryDirectory() as folder:
            config = os.path.join(folder, "a.conf")
            with open(config, "w", encoding="utf-8") as file:
                file.write("# for the test\nPOLICY = native\nCACHE = 2MiB\nRULES = device=7:native\n"
                           "RULES = thread=nobody:managed\n")
            report = self.report_under("--set", "CONFIG=" + config, "--set", "CACHE=1MiB")
        rows = {row.pop("name").removeprefix("ALLOGRAFT_"): row for row in report["settings"]}
        self.assertEqual(rows["POLICY"], {"value": "native", "source": "file", "place": config + ":2"})
        self.assertEqual(rows["CACHE"], {"value": "1MiB", "source": "environment"})
        self.assertEqual(rows["RULES"], {"value": "device=7:native; thread=nobody:managed",
                                         "source": "file", "place": config + ":4"})
        self.assertEqual(rows["CONFIG"], {"value": config, "source": "environment"})
        self.assertEqual(rows["LIMIT"]["source"], "default")
        self.assertEqual(report["rules"], [{"text": "device=7:native", "hits": 0, "bytes": 0},
                                           {"text": "thread=nobody:managed", "hits": 0, "bytes": 0}])

    def test_leaves_rules_out_where_there_are_none(self):
        self.assertNotIn("rules", self.report_under())


if __name__ == "__main__":
    command.main()
