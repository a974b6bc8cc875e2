"""`allograft trace`: what it makes of a trace whose every event is known, and of a real one."""

import csv
import io
import json
import os
import pickle
import pickletools
import re
import struct

import command
from command import CommandTest, allograft, clean_environment, paths
from json_schema import problems

HEADER = struct.Struct("<8sIIIiiI5Q32s72s256s80s")
EVENT = struct.Struct("<6Q2I2BhHH")

# What Perfetto takes of the JSON trace event format; times are microseconds.
NUMBER = {"type": "number", "minimum": 0}
SCHEMA = {
    "type": "object", "required": ["traceEvents", "displayTimeUnit", "otherData"],
    "properties": {
        "displayTimeUnit": {"type": "string", "enum": ["ns"]},
        "traceEvents": {"type": "array", "items": {
            "type": "object", "required": ["ph", "pid", "tid", "ts", "name"],
            "properties": {
                "ph": {"type": "string", "enum": ["M", "C", "X", "i"]},
                "pid": {"type": "integer"}, "tid": {"type": "integer", "minimum": 0},
                "ts": NUMBER, "dur": NUMBER, "name": {"type": "string", "minLength": 1},
                "cat": {"type": "string", "minLength": 1},
                "s": {"type": "string", "enum": ["t", "p", "g"]},
                "args": {"type": "object"},
            }}},
    },
}
# What an event of each phase must have beside it.
NEEDS = {"M": {"args"}, "C": {"args", "cat"}, "X": {"args", "cat", "dur"}, "i": {"args", "cat", "s"}}


def header(version=1, program=b'demo "one"'):
    # A tick is 10 ns; the trace begins 1 us after the process.
    return HEADER.pack(b"AGTRACE\0", version, 512, 64, 77, 3, 0, 1000, 50000, 1100, 51000,
                       1700000000 * 10**9, b"0.1.0", b"host", program, b"")


def event(kind, ticks=0, duration=0, address=0, size=0, stream=0, caller=0, place=1, device=0, module=0, code=0):
    return EVENT.pack(ticks, duration, address, size, stream, caller, 78, 0, kind, place, device, module, code)


def text(space, number, words, base=0):
    raw = words.encode()
    return event(48, address=number, size=len(raw), caller=base, code=space) + raw.ljust((len(raw) + 63) // 64 * 64, b"\0")


ALLOC, FREE, ALLOC_ASYNC, FREE_ASYNC, FAILED, MOVED, STEP, STACK = range(1, 9)
REPLAY, RELEASE, FLUSH, BUILD, MARK, CLOCK, DROPPED, END = 16, 17, 18, 19, 32, 49, 50, 51
NAMES = (text(1, 1, "pool") + text(1, 2, "managed") + text(1, 4, "spilled") + text(1, 15, "own pool") +
         text(2, 9, "over_limit") + text(3, 8, "stream") + text(4, 5, 'epoch "1"\n') +
         text(5, 3, "/lib/libx.so\0" "0a0b", 0x7000))
EVENTS = [
    event(FREE, 1150, 1, 0x900, 64),  # of before the trace
    event(ALLOC, 1200, 100, 0x1000, 1024, caller=0x7123, module=3),
    event(ALLOC, 1400, 10, 0x2000, 4096, caller=0x7200, module=3),
    event(FREE, 1500, 5, 0x2000, 4096),
    event(ALLOC_ASYNC, 1600, 5, 0x3000, 100, stream=5, place=15),
    event(FREE_ASYNC, 1700, 5, 0x3000, 0, stream=5, place=15, device=-1),
    event(STEP, 1800, size=1 << 20, code=9),
    event(ALLOC, 1801, 9, 0x4000, 1 << 20, place=4),
    event(FAILED, 1900, 9, size=1 << 40, code=2),
    event(REPLAY, 2000, 50, 4, 30, stream=9),
    event(FLUSH, 2100, size=3, stream=9, code=8),
    event(RELEASE, 2100, 60, 0, 3, stream=9),
    event(BUILD, 2200, 900, size=33, stream=9),
    event(MARK, 3200, code=5, device=-1),
    event(FREE, 3300, 5, 0x1000, 1024),
    event(MOVED, 3400, 2, 0x4000, 1 << 20, place=2),
    event(ALLOC, 3500, 1, 0x5000, 300, device=1, caller=0x99),
    event(CLOCK, 4000, address=80000), event(DROPPED, size=7), event(END, 4100, code=1),
]
TRANSFER, API_CAPTURE, API_REPLAY, MANAGED_ALLOC, MANAGED_FREE, PREFETCH = range(24, 30)
API_EVENTS = [
    event(MANAGED_ALLOC, 1200, 20, 0x8000, 4096, stream=3), event(PREFETCH, 1205, 10, 0x8000, 4096, stream=3),
    event(API_CAPTURE, 1300, 100, stream=5), event(TRANSFER, 1310, 10, 0x9000, 512, stream=4, code=1),
    event(API_CAPTURE, 1350, 5, stream=6, code=1), event(API_REPLAY, 1500, 5, stream=5),
    event(PREFETCH, 1600, 5, 0x8000, 2048, stream=3, device=-1), event(MANAGED_FREE, 1700, 5, 0x8000, 4096),
    event(CLOCK, 4000, address=80000), event(END, 4100, code=1),
]


def elf_file(symbols, build_id=b"\x0a\x0b", table=2, base=0):
    """A library with these functions, [(name, address, size)], and nothing else."""
    note = struct.pack("<3I4s", 4, len(build_id), 3, b"GNU\0") + build_id.ljust((len(build_id) + 3) // 4 * 4, b"\0")
    names, entries = b"\0", struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name, address, size in symbols:
        entries += struct.pack("<IBBHQQ", len(names), 0x12, 0, 1, base + address, size)
        names += name.encode() + b"\0"
    at = 64 + 2 * 56
    tables = at + len(note)
    sections = tables + len(entries) + len(names)
    head = struct.pack("<16s2HI3QI6H", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, sections, 0, 64, 56, 2, 64, 3, 0)
    head += struct.pack("<2I6Q", 1, 5, 0, base, base, sections, sections, 4096)
    head += struct.pack("<2I6Q", 4, 4, at, at, at, len(note), len(note), 4)
    rows = bytes(64) + struct.pack("<2I4Q2I2Q", 0, table, 0, 0, tables, len(entries), 2, 1, 8, 24)
    rows += struct.pack("<2I4Q2I2Q", 0, 3, 0, 0, tables + len(entries), len(names), 0, 0, 1, 0)
    return head + note + entries + names + rows


class Trace(CommandTest):
    def setUp(self):
        folder = command.tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, data, name="a.trace"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def known(self):
        return self.file(header() + NAMES + b"".join(EVENTS))

    def good(self, *args, **kwargs):
        result = allograft("trace", *args, **kwargs)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_stacks_change_nothing_else(self):
        with_stacks = [one for e in EVENTS for one in
                       ([e, event(STACK, 1401, address=0x2000, code=7)] if e == EVENTS[2] else [e])]
        plain, stacks = self.known(), self.file(header() + NAMES + b"".join(with_stacks), "b.trace")
        for words in (("--csv", "rmm"), ("--perfetto", "-")):
            self.assertEqual(self.good(stacks, *words), self.good(plain, *words))
        lines = set(self.good(stacks).splitlines()) - set(self.good(plain).splitlines())
        self.assertEqual(len(lines), 2, lines)  # one more event, and what it is
        self.assertRegex("\n".join(sorted(lines)), r"^ +stacks of allocations +1\n +\d+ events in ")

    def perfetto(self, *args):
        written = json.loads(self.good(*args, "--perfetto", "-"))
        self.assertEqual(problems(written, SCHEMA, False), [])
        for one in written["traceEvents"]:
            self.assertEqual(NEEDS[one["ph"]] - set(one), set(), one)
            if one["ph"] == "M":  # the names that the format knows
                self.assertIn(one["name"], ("process_name", "process_labels", "thread_name"))
                self.assertIsInstance(one["args"]["labels" if one["name"] == "process_labels" else "name"], str)
            if one["ph"] == "C":  # a series for each argument
                self.assertEqual({type(value) for value in one["args"].values()} - {int, float}, set())
        self.assert_slices_nest(written["traceEvents"])
        return written

    def assert_slices_nest(self, events):
        """Those of one thread lie in each other or behind each other: others are not shown as they are."""
        threads = {}
        for one in events:
            if one["ph"] == "X":
                threads.setdefault(one["tid"], []).append((one["ts"], -one["dur"]))
        for slices in threads.values():
            open_until = []
            for begin, length in sorted(slices):
                while open_until and open_until[-1] <= begin + 1e-3:
                    open_until.pop()
                self.assertTrue(not open_until or begin - length <= open_until[-1] + 1e-3, (begin, -length))
                open_until.append(begin - length)

    def test_summary(self):
        shown = self.good(self.known())
        self.assertEqual(shown, self.good(self.known(), "--summary"))
        lines = [re.sub(" +", " ", line.strip()) for line in shown.splitlines()]
        for line in ('trace of demo "one" (process 77, rank 3) on host, by allograft 0.1.0',
                     "17 events in 24.01 us, from 1.00 us after the process began; ended by exit",
                     "7 events were dropped because the buffer was full: see ALLOGRAFT_TRACE_BUFFER",
                     "allocations 4", "frees 3", "spilled blocks moved to the device 1", "graphs launched 1",
                     "pool 3 2 1 5.29 KiB 5.00 KiB 300 B", "managed 0 0 0 0 B 1.00 MiB 1.00 MiB",
                     "spilled 1 0 0 1.00 MiB 1.00 MiB 0 B", "own pool 1 1 1 100 B 100 B 0 B",
                     "temporary (freed before any other allocation): 2 of 5",
                     "frees whose allocation is not in the trace: 1", "stream 1", "over_limit 1",
                     "1 1 4.00 KiB libx.so+0x200 (no symbol: the file cannot be read here)", "1 0 300 B 0x99 (no symbol: the code is not in a file)"):
            self.assertIn(line, lines, shown)

    def test_perfetto(self):
        written = self.perfetto(self.known(), "--slow", "0")
        self.assertEqual(written["otherData"], {"program": 'demo "one"', "host": "host", "rank": 3, "dropped": 7})
        events = written["traceEvents"]
        levels = [e["args"] for e in events if e["ph"] == "C"]
        nothing = {"pool": 0, "managed": 0, "spilled": 0, "own pool": 0}
        self.assertEqual(levels[0], nothing)
        self.assertEqual(levels[2], dict(nothing, pool=5120))
        self.assertEqual(levels[-1], dict(nothing, pool=300, managed=1 << 20))
        self.assertEqual([e["name"] for e in events if e["ph"] == "i"],
                         ["step: over_limit", "allocation failed: CUDA error 2", "flush: stream", 'epoch "1"\n'])
        slices = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
        self.assertIn(("replay", 10.0, 0.5), slices)
        self.assertIn(("build a graph", 12.0, 9.0), slices)
        self.assertIn(("allocate", 2.0, 1.0), slices)
        self.assertEqual(len([s for s in slices if s[0] in ("allocate", "free", "move")]), 10)
        replay, = [e for e in events if e["name"] == "replay"]
        self.assertEqual(replay["args"], {"operations": 30, "nodes updated": 4, "stream": "0x9"})
        first = [e for e in events if e["name"] == "allocate"][0]
        self.assertEqual(first["args"], {"bytes": 1024, "address": "0x1000", "placement": "pool",
                                         "caller": "libx.so+0x123"})
        self.assertEqual({e["pid"] for e in events}, {77})

    def api(self):
        return self.file(header() + NAMES + b"".join(API_EVENTS))

    def test_the_control_api_has_tracks_of_its_own(self):
        events = self.perfetto(self.api())["traceEvents"]
        tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.assertEqual(sorted(tracks.values()),
                         ["captures and replays (thread 78)", "managed memory (thread 78)", "transfers (thread 78)"])
        self.assertNotIn(78, tracks)
        slices = [(tracks[e["tid"]].split(" (")[0], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
        self.assertEqual(slices, [
            ("managed memory", "allocate", 2.0, 0.2), ("managed memory", "prefetch to device 0", 2.05, 0.1),
            ("captures and replays", "capture", 3.0, 1.0), ("transfers", "transfer", 3.1, 0.1),
            ("captures and replays", "capture in vain", 3.5, 0.05), ("captures and replays", "replay", 5.0, 0.05),
            ("managed memory", "prefetch to the host", 6.0, 0.05), ("managed memory", "free", 7.0, 0.05)])
        transfer, = [e for e in events if e["name"] == "transfer"]
        self.assertEqual(transfer["args"], {"stream": "0x4", "bytes": 512, "address": "0x9000", "slot": 1})
        replay, = [e for e in events if e["name"] == "replay"]
        self.assertEqual(replay["args"], {"stream": "0x5"})

    def test_tracks_of_many_threads(self):
        many = b"".join(EVENT.pack(2000 + 10 * i, 1, 0, 0, 0, 0, 100 + i, 0, TRANSFER, 0, 0, 0, 0) for i in range(200))
        events = self.perfetto(self.file(header() + many))["traceEvents"]
        self.assertEqual(len([e for e in events if e["name"] == "thread_name"]), 64)
        self.assertEqual(len({e["tid"] for e in events if e["ph"] == "X"}), 200)

    def test_pinned_memory(self):
        path = self.file(header() + NAMES + event(41, 1200, 20, 0x8000, 4096, caller=0x7123, module=3, device=-1) +
                         event(42, 1300, 10, 0x8000, device=-1) + event(END, 4100, code=1))
        lines = [re.sub(" +", " ", line.strip()) for line in self.good(path).splitlines()]
        for line in ("allocations of pinned memory 1", "frees of pinned memory 1", "pinned: 4.00 KiB, in calls of 300 ns"):
            self.assertIn(line, lines)
        events = self.perfetto(path)["traceEvents"]
        self.assertEqual([e["args"]["name"] for e in events if e["name"] == "thread_name"], ["pinned memory (thread 78)"])
        given, freed = [e for e in events if e["ph"] == "X"]
        self.assertEqual((given["name"], given["ts"], given["args"]),
                         ("allocate", 2.0, {"address": "0x8000", "bytes": 4096, "caller": "libx.so+0x123"}))
        self.assertEqual((freed["name"], freed["dur"], freed["args"]["address"]), ("free", 0.1, "0x8000"))

    def test_pieces_that_moved(self):
        path = self.file(header() + NAMES + event(43, 1200, 20, size=8192, device=1, code=2) +
                         event(43, 1200, 20, size=4096, device=-1, code=1) + event(END, 4100, code=1))
        lines = [re.sub(" +", " ", line.strip()) for line in self.good(path).splitlines()]
        for line in ("moves of pieces, each way 2", "moved to the device: 8.00 KiB, to the host: 4.00 KiB"):
            self.assertIn(line, lines)
        events = self.perfetto(path)["traceEvents"]
        self.assertEqual([e["args"]["name"] for e in events if e["name"] == "thread_name"], ["bus (thread 78)"])
        self.assertEqual([(e["name"], e["dur"], e["args"]) for e in events if e["ph"] == "X"],
                         [("to device 1", 0.2, {"bytes": 8192, "pieces": 2}),
                          ("to the host", 0.2, {"bytes": 4096, "pieces": 1})])

    def test_summary_of_the_control_api(self):
        lines = [re.sub(" +", " ", line.strip()) for line in self.good(self.api()).splitlines()]
        for line in ("transfers of the control API 1", "graphs captured by the control API 2",
                     "graphs replayed by the control API 1", "managed allocations of the control API 1",
                     "frees of these 1", "prefetches of managed memory 2", "transferred to the device: 512 B",
                     "prefetched managed memory: 6.00 KiB"):
            self.assertIn(line, lines)

    def test_perfetto_shows_what_is_slow(self):
        for micros, n in (("1", 1), ("2", 0), (None, 0)):
            words = ["--slow", micros] if micros else []
            events = self.perfetto(self.known(), *words)["traceEvents"]
            self.assertEqual(len([e for e in events if e["name"] == "allocate"]), n)

    def test_perfetto_of_many(self):
        # More than are shown one by one: the peak and the end are the same.
        n = 60000
        many = b"".join(event(ALLOC, 2000 + 10 * i, 1, 0x1000, 100 if i != n // 3 else 77777) +
                        event(FREE, 2005 + 10 * i, 1, 0x1000) for i in range(n))
        path = self.file(header() + NAMES + many + event(CLOCK, 2000 + 10 * n, address=60000 + 100 * n))
        levels = [e["args"]["pool"] for e in self.perfetto(path)["traceEvents"] if e["ph"] == "C"]
        self.assertLess(len(levels), n)
        self.assertEqual((max(levels), levels[-1]), (77777, 0))

    def test_perfetto_into_a_file(self):
        out = os.path.join(self.folder, "out.json")
        self.assertEqual(self.good(self.known(), "--perfetto", out), "")
        with open(out, encoding="utf-8") as file:
            self.assertEqual(json.load(file), self.perfetto(self.known()))
        self.assert_refused(allograft("trace", self.known(), "--perfetto", self.folder + "/no/out"), "no/out", status=1)

    def test_rmm(self):
        env = clean_environment(TZ="UTC")
        rows = list(csv.DictReader(io.StringIO(self.good(self.known(), "--csv", "rmm", env=env))))
        self.assertEqual([(r["Action"], r["Pointer"], r["Size"], r["Stream"]) for r in rows], [
            ("allocate", "0x1000", "1024", "0x0"), ("allocate", "0x2000", "4096", "0x0"),
            ("free", "0x2000", "4096", "0x0"), ("allocate", "0x3000", "100", "0x5"),
            ("free", "0x3000", "100", "0x5"), ("allocate", "0x4000", "1048576", "0x0"),
            ("free", "0x1000", "1024", "0x0"), ("allocate", "0x5000", "300", "0x0")])
        self.assertEqual(list(rows[0]), ["Thread", "Time", "Action", "Pointer", "Size", "Stream"])
        self.assertEqual({r["Thread"] for r in rows}, {"78"})
        self.assertEqual([r["Time"] for r in rows][:3], ["22:13:20.000002", "22:13:20.000003", "22:13:20.000004"])

    def site_of(self, file, build_id="0a0b", base=0x7000, caller=0x7123):
        path = self.file(file, "libx.so") if file is not None else os.path.join(self.folder, "gone.so")
        data = header() + text(1, 1, "pool") + text(5, 3, f"{path}\0{build_id}", base)
        shown = self.good(self.file(data + event(ALLOC, 1200, 1, 0x1000, 1024, caller=caller, module=3)))
        return re.search(r"(?:libx|gone)\.so\+0x[0-9a-f]+ ?(.*)", shown)[1]

    def test_sites_have_functions(self):
        functions = [("before", 0x100, 0x20), ("step", 0x120, 0x10), ("_Z4workPfi", 0x130, 0x10)]
        self.assertEqual(self.site_of(elf_file(functions)), "step")
        self.assertEqual(self.site_of(elf_file(functions, table=11)), "step")
        self.assertEqual(self.site_of(elf_file(functions, base=0x400000)), "step")
        # A call that is the last instruction of a function returns to behind it.
        self.assertEqual(self.site_of(elf_file(functions), caller=0x7120), "before")
        self.assertIn(self.site_of(elf_file(functions), caller=0x7134), ("work(float*, int)", "_Z4workPfi"))
        self.assertEqual(self.site_of(elf_file([("libcudart_static_0053c1d3", 0x120, 0x10)])),
                         "(CUDA runtime, linked statically)")
        self.assertEqual(self.site_of(elf_file([("step\x1b[31m", 0x120, 0x10)])), "step?[31m")

    def test_sites_without_a_function_say_why(self):
        functions = [("before", 0x100, 0x10), ("unsized", 0x120, 0)]
        self.assertEqual(self.site_of(elf_file(functions)), "(no symbol: the file is stripped)")
        self.assertEqual(self.site_of(elf_file([("step", 0x120, 0x10)]), build_id="0c0d"),
                         "(no symbol: the file has changed since)")
        self.assertEqual(self.site_of(elf_file([("step", 0x120, 0x10)]), build_id=""), "step")
        self.assertEqual(self.site_of(b"no ELF"), "(no symbol: the file is not a program or library)")
        self.assertEqual(self.site_of(None), "(no symbol: the file cannot be read here)")
        self.assertEqual(self.site_of(b""), "(no symbol: the file cannot be read here)")

    def test_texts_cannot_steer_a_terminal(self):
        nasty = "\x1b]0;x\x07\x7f\u009b31m"
        data = header(program=nasty.encode()) + text(1, 1, nasty) + text(2, 9, nasty) + text(5, 3, nasty, 0x7000)
        data += event(ALLOC, 1200, 1, 0x1000, 1024, caller=0x7123, module=3) + event(STEP, 1800, code=9)
        self.assertNotRegex(self.good(self.file(data)), r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")

    # What MemoryViz.js of PyTorch reads of pickle; it throws at anything else.
    OPERATIONS = {"PROTO", "STOP", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "SHORT_BINUNICODE",
                  "BINUNICODE", "LONG_BINPUT", "BINGET", "LONG_BINGET", "BININT1", "BININT2", "LONG1", "TUPLE2", "NEWFALSE"}

    def torch(self, path, *words):
        out = os.path.join(self.folder, "out.pickle")
        self.assert_silent(allograft("trace", path, "--torch-snapshot", out, *words), "")
        with open(out, "rb") as file:
            data = file.read()
        self.assertEqual({operation.name for operation, _, _ in pickletools.genops(data)} - self.OPERATIONS, set())
        snapshot = pickle.loads(data)
        self.check_torch(snapshot)
        return snapshot

    def check_torch(self, snapshot):
        """What _memory_viz.py and MemoryViz.js take for granted."""
        for number, events in enumerate(snapshot["device_traces"]):
            segments, blocks = {}, {}
            for segment in snapshot["segments"]:
                self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["total_size"])
                if segment["device"] == number:
                    segments[segment["address"]] = segment["total_size"]
                    blocks.update({block["address"]: block["size"] for block in segment["blocks"]})
            for event in reversed(events):  # each block that is live lies in a segment that is
                for address, size in blocks.items():
                    self.assertLessEqual(size, segments[address])
                (into, begins) = {"free_completed": (blocks, True), "alloc": (blocks, False), "segment_free": (segments, True),
                                  "segment_alloc": (segments, False), "free_requested": ({}, True)}[event["action"]]
                if begins:
                    into[event["addr"]] = event["size"]
                else:
                    del into[event["addr"]]

    def test_torch_snapshot(self):
        snapshot = self.torch(self.known())
        self.assertEqual(snapshot["allograft"], 'trace of demo "one" (process 77) on host, by allograft 0.1.0')
        first, second = snapshot["device_traces"]
        self.assertEqual([(e["action"], e["addr"], e["size"], e["stream"]) for e in first if "segment" not in e["action"]], [
            ("free_requested", 0x900, 64, 0), ("free_completed", 0x900, 64, 0), ("alloc", 0x1000, 1024, 0),
            ("alloc", 0x2000, 4096, 0), ("free_requested", 0x2000, 4096, 0), ("free_completed", 0x2000, 4096, 0),
            ("alloc", 0x3000, 100, 5), ("free_requested", 0x3000, 100, 5), ("free_completed", 0x3000, 100, 5),
            ("alloc", 0x4000, 1 << 20, 0), ("free_requested", 0x1000, 1024, 0), ("free_completed", 0x1000, 1024, 0)])
        self.assertEqual([(e["action"], e["addr"]) for e in first if "segment" in e["action"]][:3],
                         [("segment_free", 0x900), ("segment_alloc", 0x1000), ("segment_alloc", 0x2000)])
        # A tick is 10 ns; the allocation ends 1 + 2 us after the file was opened.
        alloc = [e for e in first if e["action"] == "alloc"]
        self.assertEqual(alloc[0]["time_us"], 1700000000 * 10**6 + 2)
        self.assertEqual(alloc[0]["frames"], [{"name": "libx.so+0x123 (no symbol: the file cannot be read here)",
                                               "filename": "/lib/libx.so", "line": 0}])
        self.assertEqual(alloc[3]["frames"], [{"name": "not known", "filename": "?", "line": 0}])
        self.assertEqual(second[1]["frames"], [{"name": "0x99", "filename": "?", "line": 0}])
        self.assertEqual([(s["device"], s["address"], s["total_size"]) for s in snapshot["segments"]],
                         [(0, 0x4000, 1 << 20), (1, 0x5000, 300)])
        self.assertEqual(snapshot["segments"][0], {
            "device": 0, "address": 0x4000, "total_size": 1 << 20, "allocated_size": 1 << 20, "active_size": 1 << 20,
            "requested_size": 1 << 20, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": alloc[3]["frames"], "blocks": [{"address": 0x4000, "size": 1 << 20, "requested_size": 1 << 20,
                                                      "state": "active_allocated", "frames": alloc[3]["frames"]}]})

    def test_torch_snapshot_of_one_device(self):
        snapshot = self.torch(self.known(), "--device", "1")
        self.assertEqual([len(events) for events in snapshot["device_traces"]], [0, 2])
        self.assertEqual([s["device"] for s in snapshot["segments"]], [1])

    def test_torch_snapshot_of_many(self):
        sizes = (1, 255, 256, 65535, 65536, 1 << 31, 1 << 47, (1 << 63) - 1)
        events = [event(ALLOC, 1200 + i, 1, 0x7f0000000000 + i * 0x1000, sizes[i % 8], caller=0x7000 + i, module=3)
                  for i in range(3500)] + [event(ALLOC, 5000, 1, (1 << 64) - 1, (1 << 64) - 1)]
        snapshot = self.torch(self.file(header(program=b"a\xff\xc3\xa9") + NAMES + b"".join(events)))
        self.assertIn("trace of a?\u00e9 ", snapshot["allograft"])
        allocs = [e for e in snapshot["device_traces"][0] if e["action"] == "alloc"]
        self.assertEqual([(e["addr"], e["size"]) for e in allocs[:3500]],
                         [(0x7f0000000000 + i * 0x1000, sizes[i % 8]) for i in range(3500)])
        self.assertEqual((allocs[-1]["addr"], allocs[-1]["size"]), ((1 << 64) - 1, (1 << 64) - 1))
        self.assertEqual(len(snapshot["segments"]), 3501)
        self.assertTrue(allocs[3000]["frames"][0]["name"].startswith("libx.so+0xbb8 "))

    def test_torch_snapshot_replaces_its_like_only(self):
        path = self.known()
        self.torch(path)
        self.torch(path)
        other = os.path.join(self.folder, "other")
        with open(other, "wb") as file:
            file.write(pickle.dumps([1], 4))
        self.assert_refused(allograft("trace", path, "--torch-snapshot", other), "this is another kind of file, not a snapshot",
                            "would be overwritten", status=1)
        self.assert_silent(allograft("trace", path, "--torch-snapshot", other, "--force"), "")
        self.assert_refused(allograft("trace", path, "--torch-snapshot", path), "this command reads that file", status=1)

    def test_of_one_device(self):
        shown = self.good(self.known(), "--device", "1", "--csv", "rmm")
        self.assertEqual(len(shown.splitlines()), 2)
        self.assertIn(",allocate,0x5000,300,0x0", shown)

    def test_cut_anywhere(self):
        data = header() + NAMES + b"".join(EVENTS)
        for n in (512, 513, 600, 700, len(data) - 1, len(data) - 200):
            self.assertIn("process 77", self.good(self.file(data[:n])))
        self.assertIn("the file is incomplete", self.good(self.file(data[:-1])))
        self.assertIn("running, or killed", self.good(self.file(data[:-64])))

    def test_what_is_no_trace(self):
        for data, why in ((b"", "not a trace"), (b"AGTRACE", "not a trace"), (b"\x7fELF" * 300, "not a trace"),
                          (header()[:300], "ends within its header"), (header(version=2), "a newer version"), (header(version=0), "another version")):
            self.assert_refused(allograft("trace", self.file(data)), "a.trace", why, status=1)
        self.assert_refused(allograft("trace", self.folder), "not a regular file", status=1)
        self.assert_refused(allograft("trace", self.folder + "/none"), "No such file", status=1)

    def test_words(self):
        path = self.known()
        for words in (["--csv", "other"], ["--csv"], ["--device", "x"], ["--slow", "-1"], ["--no"], ["b.trace"]):
            self.assert_refused(allograft("trace", path, *words), "trace")
        self.assert_refused(allograft("trace"), "too few arguments", "FILE")
        self.assertIn("--perfetto", allograft("trace", "--help").stdout)

    def test_real(self):
        path = os.path.join(self.folder, "demo.trace")
        demo = os.path.join(paths.sim, "demo", "demo-sim")
        report = os.path.join(self.folder, "report.json")
        result = allograft("run", "--set", "TRACE=" + path, "--stats", report, "--", demo,
                           env=clean_environment(LD_LIBRARY_PATH=paths.sim))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(report, encoding="utf-8") as file:
            memory = json.load(file)["devices"][0]["placements"]["native"]
        rows = list(csv.DictReader(io.StringIO(self.good(path, "--csv", "rmm"))))
        self.assertEqual([len([r for r in rows if r["Action"] == a]) for a in ("allocate", "free")],
                         [memory["allocs"], memory["frees"]])
        self.assertEqual(sum(int(r["Size"]) for r in rows if r["Action"] == "allocate"), memory["alloc_bytes"])
        levels = [e["args"]["native"] for e in self.perfetto(path)["traceEvents"] if e["ph"] == "C"]
        self.assertEqual((max(levels), levels[-1]), (memory["peak_bytes"], memory["current_bytes"]))
        snapshot = self.torch(path)
        self.assertIn("ran on the simulated driver", snapshot["allograft"])
        allocs = [e for e in snapshot["device_traces"][0] if e["action"] == "alloc"]
        self.assertEqual((len(allocs), sum(e["size"] for e in allocs)), (memory["allocs"], memory["alloc_bytes"]))
        self.assertTrue(all(e["frames"] for e in allocs))
        self.assertEqual(sum(s["total_size"] for s in snapshot["segments"]), memory["current_bytes"])


if __name__ == "__main__":
    command.main()
