"""The report's page in a browser: tables sort, memory over time zooms and says what lies under the mouse, a flame graph
goes into parts, by mouse and by keyboard; nothing is said on the console. Skipped where there is no Chromium."""

import json
import os
import random
import struct

import browser
import command
from test_job import JobTest, sample

EVENT = struct.Struct("<6QIIBBhHH")
HEADER = struct.Struct("<8sIIIiiI5Q32s72s256s80s")
ALLOC, FREE, STACK, REPLAY, TEXT, CLOCK = 1, 2, 8, 16, 48, 49
MIB = 1 << 20
# The charts' time, in seconds, and the level in MiB: up, then down.
LEVELS = list(range(1, 101)) + list(range(99, 0, -1))


def event(kind, ticks, address=0, size=0, placement=1, code=0, caller=64, stream=0):
    return EVENT.pack(ticks, 1, address, size, stream, caller, 1, 0, kind, placement, 0, 0, code)


def trace(events, last):
    """A tick is a microsecond."""
    head = HEADER.pack(b"AGTRACE", 1, 512, 64, 7, -1, 0, 0, 0, 0, 0, 0, b"v", b"h", b"p", b"")
    name = event(TEXT, 0, 1, 4, code=1) + b"pool".ljust(64, b"\0")
    return head + name + events + event(CLOCK, last, last * 1000)


def up_and_down():
    """A block of 1 MiB each 10 ms, then they go again."""
    events = [event(ALLOC, 10000 * (i + 1), (i + 1) << 32, MIB) for i in range(100)]
    events += [event(FREE, 10000 * (101 + i), (i + 1) << 32, MIB) for i in range(99)]
    return trace(b"".join(events), 2000000)


def million():
    generator, live, events = random.Random(1), [], []
    for i in range(1000000):
        if i % 1000 == 999:
            events.append(event(REPLAY, 20 + 10 * i, 4, 30, stream=9))
        elif live and (len(live) > 3000 or generator.random() < .48):
            address, size = live.pop(generator.randrange(len(live)))
            events.append(event(FREE, 20 + 10 * i, address, size))
        else:
            size = generator.randrange(1, 64 * MIB)
            live.append(((i + 1) << 28, size))
            events.append(event(ALLOC, 20 + 10 * i, (i + 1) << 28, size, caller=64 + 16 * generator.randrange(200)))
    return trace(b"".join(events), 20 + 10 * 1000000)


def holders(file=lambda name: "a.py"):
    def stack(peak, live, *functions):
        return {"kind": "device", "device": 0, "cut": False, "live": {"bytes": live, "blocks": 1},
                "ever": {"bytes": peak, "blocks": 1}, "peak": {"bytes": peak, "blocks": 1},
                "frames": [{"function": name, "file": file(name), "line": 7} for name in functions]}
    return {"most_frames": 16, "sample_bytes": 0, "without_stack": 0, "modules": [], "peaks": [],
            "stacks": [stack(600, 0, "copy", "train", "main"), stack(300, 300, "grow", "train", "main"),
                       stack(100, 100, "load", "main")]}


def stacks_of_blocks():
    """A trace of four blocks that lie on one another, 4 MiB at the bottom, and what its process says of their stacks. Of
    the uppermost nothing is known; the report has other code where the stack of the one below it was."""
    native, own = {"module": 1, "offset": 4}, {"module": 2, "offset": 16}
    python = [{"function": f"forward_{i}", "file": "/v/lib/python3.11/site-packages/torch/nn/modules/a_module_with_a_long_name.py",
               "line": i} for i in range(30)]
    main = {"function": "main", "file": "/src/train.py", "line": 7}
    count = {"bytes": MIB, "blocks": 1}
    held = {"most_frames": 32, "sample_bytes": 0, "without_stack": 0, "peaks": [],
            "modules": [{"path": "/usr/lib/libcudart.so.13", "build_id": "", "base": 60}, {"path": "/src/train", "build_id": "", "base": 4096}],
            "stacks": [{"number": number, "kind": "device", "device": 0, "cut": cut, "live": count, "ever": count, "peak": count, "frames": frames}
                       for number, cut, frames in ((3, False, [native, own, *python, main]), (0, True, [native, main]),
                                                   (1, False, [own, main]))]}
    blocks = [(4, 3), (2, 0), (1, 1), (1, None)]
    events = b"".join(event(ALLOC, 1000 * (i + 1), (i + 1) << 32, mib * MIB) +
                      (event(STACK, 1000 * (i + 1) + 1, (i + 1) << 32, code=number, caller=0) if number is not None else b"")
                      for i, (mib, number) in enumerate(blocks))
    return trace(events + event(REPLAY, 10000, 4, 30, stream=9), 10000), held


SAYING = "document.querySelector('.timeline .saying').textContent"
SCALE = "(() => { const {min, max} = document.querySelector('.timeline').drawn.plots[0].scales.x; return [min, max]; })()"
FLAME_SAYING = "document.querySelector('.flames .saying').textContent"
FRAMES = "[...document.querySelectorAll('.frame')].map(e => [e.textContent, Math.round(e.getBoundingClientRect().width)])"


class InABrowser(JobTest):
    browser = None  # one for all: to start it takes seconds

    def setUp(self):
        super().setUp()
        if not browser.find():
            self.skipTest("there is no Chromium")
        if not self.browser:
            InABrowser.browser = browser.Browser()
        self.browser.said.clear()

    @classmethod
    def tearDownClass(cls):
        if cls.browser:
            cls.browser.close()

    def page(self, data=None, held=None, pid=7):
        out = os.path.join(self.folder, "out.html")
        # Numbers as wide as they come.
        large = {"devices__0__placements__pool__" + key: 888 << 30 for key in ("peak_bytes", "alloc_bytes", "current_bytes")}
        large["process__pid"] = pid  # the trace's
        report = self.write("a.json", sample(**large) | {"holders": held or holders()})
        self.assertEqual(self.shown("report", "--html", out, report, self.write("a.trace", data or up_and_down())), "")
        return out

    def open(self, path, **how):
        self.browser.open(path, **how)
        self.browser.wait_for_a_frame()
        self.assertEqual(self.browser.said, [])

    def ask(self, expression):
        return self.browser.ask(expression)

    def assert_nothing_was_said(self):
        self.assertEqual(self.browser.said, [])

    # ---- tables ------------------------------------------------------------------------------

    def test_a_table_sorts(self):
        self.open(self.page())
        table = "[...document.querySelectorAll('table')].find(t => t.textContent.includes('train') && t.tHead)"
        self.ask(f"{table}.id = 'stacks'; document.querySelectorAll('details').forEach(d => d.open = true)")
        column = self.ask("[...document.querySelectorAll('#stacks th')].findIndex(h => h.textContent.includes('never freed'))")
        cells = f"[...document.querySelectorAll('#stacks tbody tr')].map(r => r.cells[{column}].textContent)"
        self.assertEqual(self.ask(cells), ["0 B", "300 B", "100 B"])
        head = f"#stacks th:nth-child({column + 1})"
        self.browser.click(head + " button")
        self.assertEqual(self.ask(cells), ["300 B", "100 B", "0 B"])
        self.assertEqual(self.ask(f"document.querySelector('{head}').getAttribute('aria-sort')"), "descending")
        self.ask(f"document.querySelector('{head} button').focus()")
        self.browser.press("Enter", "\r")
        self.assertEqual(self.ask(cells), ["0 B", "100 B", "300 B"])
        self.assertEqual(self.ask("document.querySelectorAll('#stacks [aria-sort]').length"), 1)
        self.assert_nothing_was_said()

    # ---- jobs --------------------------------------------------------------------------------

    def job(self, n):
        reports = [sample(process__rank=i, process__pid=100 + i, devices__0__placements__pool__allocs=900 + i if i in (7, 41) else 3)
                   | {"holders": holders()} for i in range(n)]
        traces = [self.write(f"{i}.trace", up_and_down()) for i in range(2)]
        out = os.path.join(self.folder, "job.html")
        self.assertEqual(self.shown("report", "--html", out, *self.write_all(*reports), *traces), "")
        return out

    def test_ranks_sort(self):
        self.open(self.job(64))
        rows = "[...document.querySelectorAll('%s tbody tr')].map(r => r.cells[0].textContent.split(',')[0])"
        self.assertEqual(self.ask(rows % "#processes ~ table"), ["rank 7", "rank 41"])
        self.ask("[...document.querySelectorAll('summary')].find(s => s.textContent === 'All 64 processes').id = 'all'")
        self.browser.click("#all")
        self.ask("document.querySelector('#all').nextElementSibling.id = 'ranks'")
        self.assertEqual(self.ask(rows % "#ranks"), [f"rank {i}" for i in range(64)])
        self.browser.click("#ranks th:nth-child(4) button")
        self.assertEqual(self.ask(rows % "#ranks")[:3], ["rank 41", "rank 7", "rank 0"])
        self.browser.click("#ranks th:nth-child(1) button")
        self.assertEqual(self.ask(rows % "#ranks"), [f"rank {63 - i}" for i in range(64)])
        self.assertEqual(self.ask("document.querySelector('#ranks tfoot').textContent.slice(0, 6)"), "median")
        self.assert_nothing_was_said()

    def test_a_rank_opens(self):
        path = self.job(3)
        for how in ("click", "address", "keys"):
            with self.subTest(how):
                self.open(path + ("#own=1&at=who-held-memory-rank-2-3" if how == "address" else "#own=1"))
                link = "nav a[href='#who-held-memory-rank-2-3']"
                card = "document.querySelector('#who-held-memory-rank-2-3').closest('details')"
                if how == "click":
                    self.assertEqual(self.ask(f"{card}.open"), False)
                    self.browser.click(link)
                elif how == "keys":
                    self.ask(f"document.querySelector(\"{link}\").focus()")
                    self.browser.press("Enter", "\r")
                self.browser.wait_for_a_frame()
                self.assertEqual(self.ask(f"{card}.open"), True)
                self.assertGreater(self.ask(f"{card}.querySelector('.frame').getBoundingClientRect().width"), 500)
                self.assertLess(abs(self.ask(f"{card}.getBoundingClientRect().top")), 40)
                self.assertIn("own=1", self.ask("location.hash"))
                self.assertIn("at=who-held-memory-rank-2-3", self.ask("location.hash"))
        # A chart that was folded is as wide as its card once it opens, and alone in that.
        self.ask("document.querySelectorAll('details.card').forEach(d => d.open = true)")
        self.browser.wait_for_a_frame()
        widths = self.ask("[...document.querySelectorAll('.timeline .u-wrap canvas')].map(c => c.getBoundingClientRect().width)")
        self.assertGreater(min(widths), 700)
        self.assertEqual(len(widths), 2)
        self.assert_nothing_was_said()

    # ---- memory over time --------------------------------------------------------------------

    def test_memory_under_the_mouse(self):
        self.open(self.page())
        self.assertIn("Drag", self.ask(SAYING))
        for x, seconds, level in ((.25, .5, 50), (.5, 1, 100), (.75, 1.5, 50)):
            self.browser.move(self.browser.middle(".timeline .u-over", x))
            time, said = self.ask(SAYING).split(": ", 1)
            self.assertRegex(time, r"^(\d{3}\.\d\d ms|\d\.\d{5} s)$")
            self.assertAlmostEqual(float(time.split()[0]) / (1000 if time.endswith("ms") else 1), seconds, delta=.05)
            self.assertRegex(said, r"^\w+( \w+)* [\d.]+ MiB, pool [\d.]+ MiB$")
            self.assertAlmostEqual(float(said.split()[-2]), level, delta=5)
        self.assert_nothing_was_said()

    def test_memory_over_time_zooms(self):
        self.open(self.page())
        full = self.ask(SCALE)
        self.assertAlmostEqual(full[1], 2, delta=.02)
        point = self.browser.middle(".timeline .u-over", .25)
        self.browser.drag(point, self.browser.middle(".timeline .u-over", .5))
        low, high = self.ask(SCALE)
        self.assertAlmostEqual(low, .5, delta=.05)
        self.assertAlmostEqual(high, 1, delta=.05)
        self.browser.click(".timeline .u-over", times=2)
        self.assertEqual(self.ask(SCALE), full)
        self.assert_nothing_was_said()

    def test_the_vertical_axis_zooms_along(self):
        self.open(self.page())
        plot = "document.querySelector('.timeline').drawn.plots[0]"
        scale, labels = f"(({{min, max}}) => [min, max])({plot}.scales.y)", plot + ".axes[1]._values"
        full = self.ask(scale)
        self.assertEqual(full[0], 0)
        for begin, end, least, most in ((.905, .995, 90, 99), (.4, .6, 39, 60), (1.0005, 1.004, 100, 100), (.0001, .005, 0, 0)):
            with self.subTest(begin):
                self.ask(f"{plot}.setScale('x', {{min: {begin}, max: {end}}})")
                self.browser.wait_for_a_frame()
                low, high = (value / MIB for value in self.ask(scale))
                self.assertTrue(least * .8 <= low <= least, (low, high))
                self.assertTrue(most <= high <= most * 1.1 + 1, (low, high))
                said = self.ask(labels)
                self.assertEqual(len(said), len(set(said)), said)
        begun = "[...document.querySelectorAll('.timeline .u-over')].map(e => Math.round(e.getBoundingClientRect().left))"
        self.assertEqual(len(set(self.ask(begun))), 1)
        self.ask("document.querySelector('.timeline [role=group]').focus()")
        self.browser.press("0")
        self.assertEqual(self.ask(scale), full)
        self.assert_nothing_was_said()

    def test_a_block_says_who_allocated_it(self):
        self.open(self.page())
        said = "document.querySelector('.block-saying').textContent"
        # At 1 s a hundred blocks lie on one another, the first one at the bottom.
        chart = self.ask("(() => { const b = document.querySelector('.timeline').drawn.blocks.scales(); return [b.left, b.width]; })()")
        whole = self.ask("document.querySelector('.blocks').getBoundingClientRect().width")
        middle = (chart[0] + chart[1] / 2) / whole
        for height, number in ((.995, 1), (.505, 50), (.015, 99)):
            self.browser.move(self.browser.middle(".blocks", middle, height))
            lines = self.ask(said).split("\n")
            self.assertRegex(lines[0], r"^1.00 MiB, from .* to .*$")
            unit = {"ms": 1, "s": 1000}
            time = lines[0].split(" from ")[1].split(" to ")[0].split()
            self.assertAlmostEqual(float(time[0]) * unit[time[1]], number * 10, delta=11)
            self.assertIn("0x40", lines[1])
        self.ask("document.querySelector('.blocks').focus()")
        self.browser.press("Home")
        self.assertTrue(self.ask(said).startswith("1.00 MiB, from 10.00 ms to "), self.ask(said))
        self.browser.press("End")
        self.assertIn("from 1.00000 s on, not freed", self.ask(said))
        self.browser.press("ArrowLeft")
        self.assertIn("from 990.00 ms to ", self.ask(said))
        self.assert_nothing_was_said()

    STACK = "[...document.querySelectorAll('.stack-of li')].map(e => e.textContent)"

    def at_block(self, height):
        """A point at the end of the blocks' chart, where they all are: `height` from 0, the bottom, to 1."""
        left, width = self.ask("(() => { const b = document.querySelector('.timeline').drawn.blocks.scales(); return [b.left, b.width]; })()")
        whole = self.ask("document.querySelector('.blocks').getBoundingClientRect().width")
        return self.browser.middle(".blocks", (left + .9 * width) / whole, 1 - height)

    def test_a_block_shows_its_stack(self):
        whole = ["libcudart.so.13+0x4 libcudart.so.13", "train+0x10 train",
                 *(f"forward_{i} /v/lib/python3.11/site-packages/torch/nn/modules/a_module_with_a_long_name.py:{i}" for i in range(30)),
                 "main /src/train.py:7"]
        path = self.page(*stacks_of_blocks())
        for width in (500, 1400):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    self.open(path, width=width, dark=dark)
                    self.assertEqual(self.ask(self.STACK), ["The stack of a block stands here."])
                    self.browser.move(self.at_block(.25))
                    self.assertEqual(self.ask(self.STACK), whole)
                    for height, lines in ((.6, [whole[0], whole[-1], "further frames were not recorded"]),
                                          (.81, ["not known"]), (.95, ["not known"])):
                        self.browser.move(self.at_block(height))
                        self.assertEqual(self.ask(self.STACK), lines)
                    # It has its place, whatever the stack is, and what does not fit there is scrolled to.
                    box = "document.querySelector('.stack-of')"
                    before = self.ask(f"{box}.getBoundingClientRect().height")
                    point = self.at_block(.25)
                    self.browser.move(point)
                    self.assertEqual(self.ask(f"{box}.getBoundingClientRect().height"), before)
                    self.assertLess(before, 250)
                    self.assertGreater(self.ask(f"{box}.scrollHeight"), 2 * before)
                    self.assertLessEqual(self.ask(f"{box}.scrollWidth"), self.ask(f"{box}.clientWidth"))
                    self.assertLessEqual(self.ask("document.documentElement.scrollWidth"), width)
                    shades = self.ask(f"[{box}.querySelector('small'), {box}.closest('.card')].map((e, i) => getComputedStyle(e)"
                                      "[i ? 'backgroundColor' : 'color'].match(/[0-9]+/g).slice(0, 3).reduce((sum, one) => sum + +one, 0))")
                    self.assertGreater(abs(shades[0] - shades[1]), 200)
                    # A click keeps it while the mouse goes elsewhere.
                    for kind in ("mousePressed", "mouseReleased"):
                        self.browser.mouse(kind, point, button="left", clickCount=1)
                    self.browser.move(self.at_block(.6))
                    self.assertEqual(self.ask(self.STACK), whole)
                    self.ask("document.querySelector('.blocks').focus()")
                    self.browser.press("Escape")
                    self.browser.move(self.at_block(.25))
                    self.browser.move(self.at_block(.6))
                    self.assertEqual(len(self.ask(self.STACK)), 3)
        self.assert_nothing_was_said()

    def test_a_block_shows_its_stack_by_keyboard(self):
        self.open(self.page(*stacks_of_blocks()))
        scale = self.ask(SCALE)
        self.ask("document.querySelector('.blocks').focus()")
        self.assertEqual(len(self.ask(self.STACK)), 33)
        self.browser.press("ArrowRight")
        self.assertEqual(len(self.ask(self.STACK)), 3)
        self.browser.press("Home")
        self.ask("document.querySelector('.stack-of').focus()")
        self.assertEqual(self.ask("document.activeElement.className"), "stack-of")
        self.browser.press("+", "+")
        self.assertEqual(self.ask(SCALE), scale)
        self.assertEqual(len(self.ask(self.STACK)), 33)
        self.assert_nothing_was_said()

    def test_frames_of_libraries_are_hidden_in_the_stack_of_a_block(self):
        self.open(self.page(*stacks_of_blocks()) + "#own=1")
        self.ask("document.querySelector('.blocks').focus()")
        own = ["train+0x10 train", "main /src/train.py:7", "31 frames of libraries are hidden"]
        self.assertEqual(self.ask(self.STACK), own)
        self.ask("[...document.querySelectorAll('.search button')].find(b => b.textContent.includes('ibrar')).id = 'own'")
        self.browser.click("#own")
        self.assertEqual(len(self.ask(self.STACK)), 33)
        self.browser.click("#own")
        self.assertEqual(self.ask(self.STACK), own)
        self.assert_nothing_was_said()

    def test_only_the_process_of_the_trace_has_its_stacks(self):
        data, held = stacks_of_blocks()
        for pid, module in ((8, 60), (7, 61)):
            held["modules"][0]["base"] = module
            self.open(self.page(data, held, pid=pid))
            self.assertEqual(self.ask("document.querySelectorAll('.stack-of').length"), 0)
        # Without stacks the blocks are as short as they were.
        path = self.page()
        with open(path, encoding="utf-8") as file:
            self.assertRegex(file.read(), r'"of":100,\n"blocks":\[\[0\.010000000,1\.010000000,1048576,0\],')
        self.open(path)
        self.assertEqual(self.ask("document.querySelectorAll('.stack-of').length"), 0)

    def test_large_levels_close_together_are_told_apart(self):
        events = [event(ALLOC, 10, 1 << 40, 50 << 30)] + [event(ALLOC, 1000 * i, i << 20, 3 << 10) for i in range(1, 100)]
        self.open(self.page(trace(b"".join(events + [event(REPLAY, 1000, 4, 30, stream=9)]), 100000)))
        plot = "document.querySelector('.timeline').drawn.plots[0]"
        self.ask(f"{plot}.setScale('x', {{min: .05, max: .053}})")
        self.browser.wait_for_a_frame()
        self.browser.wait_for_a_frame()
        said = self.ask(plot + ".axes[1]._values")
        self.assertEqual(len(said), len(set(said)), said)
        self.assertGreater(len(said), 2)
        # The labels have room, and the tracks below begin where the chart does.
        begun = self.ask("[...document.querySelectorAll('.timeline .u-over')].map(e => Math.round(e.getBoundingClientRect().left -"
                         " e.closest('.timeline').getBoundingClientRect().left))")
        self.assertGreater(len(begun), 1)
        self.assertEqual(len(set(begun)), 1, begun)
        self.assertGreater(begun[0], 6.5 * max(map(len, said)))
        self.assert_nothing_was_said()

    def test_ticks_are_as_far_apart_as_they_say(self):
        self.open(self.page())
        plot = "document.querySelector('.timeline').drawn.plots[0]"
        for most in (.0135, .009, .03, .27, 2):  # of the first, ticks stand at 2.5 ms
            self.ask(f"{plot}.setScale('x', {{min: 0, max: {most}}})")
            self.browser.wait_for_a_frame()
            at = [float(label.split()[0]) for label in self.ask(plot + ".axes[0]._values")]
            steps = [b - a for a, b in zip(at, at[1:])]
            self.assertGreater(len(steps), 1)
            self.assertLess(max(steps) - min(steps), 1e-6, at)

    def test_memory_over_time_by_keyboard(self):
        self.open(self.page())
        full = self.ask(SCALE)
        self.ask("document.querySelector('.timeline [role=group]').focus()")
        self.browser.press("ArrowRight")
        first = self.ask(SAYING)
        self.browser.press("End")
        self.assertNotEqual(self.ask(SAYING), first)
        self.assertIn("1.00 MiB", self.ask(SAYING))
        self.browser.press("+")
        low, high = self.ask(SCALE)
        self.assertAlmostEqual(high - low, (full[1] - full[0]) / 2, delta=.2)
        self.browser.press("0")
        self.assertEqual(self.ask(SCALE), full)
        self.assert_nothing_was_said()

    # ---- flame graphs ------------------------------------------------------------------------

    def widths(self):
        return dict(self.ask(FRAMES))

    def test_a_flame_graph_zooms(self):
        self.open(self.page())
        all_of_it = self.widths()
        self.assertAlmostEqual(all_of_it["copy"] / all_of_it["main"], .6, delta=.02)
        self.assertAlmostEqual(all_of_it["load"] / all_of_it["main"], .1, delta=.02)
        self.ask("document.querySelectorAll('.frame').forEach(e => e.id = 'frame-' + e.textContent.split(' ')[0])")
        self.browser.move(self.browser.middle("#frame-grow"))
        self.assertEqual(self.ask(FLAME_SAYING), "grow (a.py:7): 300 B, 30.0 %")
        self.browser.click("#frame-grow")
        part = self.widths()
        self.assertNotIn("copy", part)
        self.assertEqual(part["grow"], all_of_it["main"])
        self.assertEqual(self.ask("document.activeElement.textContent"), "grow")
        self.browser.press("Escape")
        self.assertEqual(self.widths(), all_of_it)
        self.assert_nothing_was_said()

    def test_a_flame_graph_by_keyboard(self):
        self.open(self.page())
        self.ask("document.querySelector('.frame[tabindex=\"0\"]').focus()")
        for key, at in (("ArrowDown", "memory of device 0"), ("ArrowDown", "main"), ("ArrowDown", "train"),
                        ("ArrowRight", "load"), ("ArrowLeft", "train"), ("ArrowDown", "copy"), ("ArrowUp", "train")):
            self.browser.press(key)
            self.assertEqual(self.ask("document.activeElement.textContent"), at, key)
        self.browser.press("Enter", "\r")
        self.assertNotIn("load", self.widths())
        self.assert_nothing_was_said()

    def type(self, text):
        self.ask("document.querySelector('.flames input').focus()")
        for letter in text:
            self.browser.press(letter, letter)

    def test_a_flame_graph_is_searched(self):
        path = self.page()
        self.open(path)
        self.type("GROW")
        hits = "[...document.querySelectorAll('.frame.hit')].map(e => e.textContent)"
        self.assertEqual(self.ask(hits), ["grow"])
        found = "document.querySelector('.flames .search .note').textContent"
        self.assertEqual(self.ask(found), "300 B, 30.0 % in all matches")
        self.browser.press("Enter", "\r")
        self.assertEqual(self.ask("document.activeElement.textContent"), "grow")
        self.assertTrue(self.ask("location.hash").endswith("#find=GROW"))
        # Whoever is sent the address sees the same; what is within what was found does not count twice.
        self.open(path + "#find=a.py")
        self.assertEqual(self.ask("document.querySelector('.flames input').value"), "a.py")
        self.assertEqual(len(self.ask(hits)), 5)
        self.assertEqual(self.ask(found), "1000 B, 100.0 % in all matches")
        self.ask("location.hash = '#find=nobody'")
        self.browser.wait_for_a_frame()
        self.assertEqual((self.ask(hits), self.ask(found)), ([], "no match"))
        self.assert_nothing_was_said()

    def test_frames_of_libraries_are_hidden(self):
        path = self.page(held=holders(lambda name: "/v/lib/python3.11/site-packages/x/y.py" if name in ("train", "copy") else "/a/lib/a.py"))
        self.open(path)
        self.assertIn("train", self.widths())
        self.ask("[...document.querySelectorAll('.search button')].find(b => b.textContent.includes('ibrar')).id = 'own'")
        self.browser.click("#own")
        shown = self.widths()
        self.assertEqual(list(shown), ["all memory", "memory of device 0", "main", "grow", "load"])
        self.assertAlmostEqual(shown["grow"] / shown["main"], .3, delta=.02)
        self.assertEqual(self.ask("document.querySelector('#own').getAttribute('aria-pressed')"), "true")
        self.assertTrue(self.ask("location.hash").endswith("#own=1"))
        self.open(path + "#own=1&find=train")
        self.assertEqual(list(self.widths()), list(shown))
        self.assertIn("no match", self.ask("document.querySelector('.flames .search .note').textContent"))
        self.assert_nothing_was_said()

    def test_without_libraries_nothing_can_be_hidden(self):
        self.open(self.page())
        self.assertEqual(self.ask("document.querySelectorAll('.search button').length"), 0)

    def test_who_called_is_shown_at_a_block(self):
        self.open(self.page())
        self.ask("[...document.querySelectorAll('.frame')].find(e => e.textContent === 'grow').id = 'grow'")
        self.browser.move(self.browser.middle("#grow"))
        self.assertEqual(self.ask("document.querySelector('#grow').title").split("\n"),
                         ["grow (a.py:7): 300 B, 30.0 %", "from train (a.py:7)", "from main (a.py:7)"])

    def test_what_was_never_freed(self):
        self.open(self.page())
        self.ask("[...document.querySelectorAll('.choice button')].find(b => b.textContent.includes('freed')).id = 'freed'")
        self.browser.click("#freed")
        shown = self.widths()
        self.assertNotIn("copy", shown)
        self.assertAlmostEqual(shown["grow"] / shown["main"], .75, delta=.02)
        self.assertEqual(self.ask("document.querySelector('#freed').getAttribute('aria-pressed')"), "true")
        # The table and its caption follow.
        table = "document.querySelector('#freed').closest('.card').querySelector('table')"
        self.assertEqual(self.ask(table + ".caption.textContent"), "Stacks, by never freed, largest first")
        column = self.ask(f"[...{table}.tHead.rows[0].cells].findIndex(h => h.textContent === 'never freed')")
        self.assertEqual(self.ask(f"[...{table}.tBodies[0].rows].map(r => r.cells[{column}].textContent)"),
                         ["300 B", "100 B", "0 B"])
        self.assert_nothing_was_said()

    # ---- screens -----------------------------------------------------------------------------

    def test_narrow_wide_light_and_dark(self):
        path = self.page()
        spilt = ("[...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > "
                 "t.closest('.card').getBoundingClientRect().right).map(t => t.textContent)")
        brightness = ("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3)"
                      ".reduce((sum, one) => sum + Number(one), 0)")
        for width in (400, 500, 780, 1100, 1400):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    self.open(path, width=width, dark=dark)
                    self.assertLessEqual(self.ask("document.documentElement.scrollWidth"), width)
                    self.assertEqual(self.ask(spilt), [])
                    self.assertEqual(self.ask(brightness) < 300, dark)
                    self.assertGreater(self.ask("document.querySelector('.timeline canvas').getBoundingClientRect().width"),
                                       width * .7)
                    self.assertEqual(self.ask("[...document.querySelectorAll('.frame')].filter(e => "
                                              "e.getBoundingClientRect().right > innerWidth).length"), 0)

    def test_without_scripts_the_tables_stand(self):
        path = self.page()
        self.browser.open(path, scripts=False)
        text = self.ask("document.body.innerText")
        for words in ("Memory over time", "Stacks, those that held most at the peak first", "600 B"):
            self.assertIn(words, text)
        self.assertEqual(self.ask("document.querySelectorAll('canvas, button, .frame').length"), 0)
        self.assertGreater(self.ask("document.querySelector('.timeline svg').getBoundingClientRect().height"), 50)

    def test_a_million_events(self):
        path = self.page(million())
        self.assertLess(os.path.getsize(path), 5 * 10**6)
        drawn = []
        for _ in range(5):  # the least: whatever else the machine does makes it longer
            self.open(path)
            drawn.append(float(self.ask("document.documentElement.dataset.drawnMs")))
        self.assertLess(min(drawn), 2000, drawn)
        self.browser.move(self.browser.middle(".timeline .u-over", .5))
        self.assertIn("GiB", self.ask(SAYING))
        self.assert_nothing_was_said()


del JobTest  # its own tests run in test_job.py

if __name__ == "__main__":
    command.main()
