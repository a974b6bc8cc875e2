"""framework_tests.py on a checkout of a few tests, on the simulated driver. Skipped where pytest is not installed.

usage: test_framework_tests.py LIBRARY SIM
"""

import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY, SIM = sys.argv.pop(1), os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, HERE)

import apps  # noqa: E402
import framework_tests  # noqa: E402

INSTALLED = os.path.join(HERE, "..", "..", "build-deps", "python")  # by tools/setup.sh

ALWAYS = "import os, pytest, time\n\ndef test_always():\n    pass\n"
PACKAGE = {f"tests/cupy_tests/{folder}__init__.py": "" for folder in ("", "core_tests/", "math_tests/", "cuda_tests/")}
CORE, MATHS, MEMORY = "core_tests/test_core.py", "math_tests/test_sums.py", "cuda_tests/test_memory.py"
POOL = "os.environ.get('ALLOGRAFT_POLICY') == 'pool'"


class Frameworks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout, self.out = (os.path.join(folder.name, name) for name in ("checkout", "out"))
        self.set(LD_LIBRARY_PATH=SIM)

    def set(self, **variables):
        was = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        for name, value in was.items():
            self.addCleanup(lambda name=name, value=value: os.environ.pop(name) if value is None
                            else os.environ.update({name: value}))

    def write(self, files):
        for name, text in files.items():
            path = os.path.join(self.checkout, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def run_on(self, tests, *words):
        """Exit status, file -> its row, and all that is said. `tests`: file -> what comes after ALWAYS."""
        self.write({**PACKAGE, **{"tests/cupy_tests/" + file: ALWAYS + text for file, text in tests.items()}})
        out, err = io.StringIO(), io.StringIO()
        was = sys.argv
        sys.argv = ["framework_tests.py", "--cupy", self.checkout, "--library", LIBRARY, "--out", self.out, *words]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = framework_tests.main()
        except SystemExit as end:
            status = end.code
        finally:
            sys.argv = was
        rows = {}
        if os.path.exists(os.path.join(self.out, "results.json")):
            with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
                rows = {row["file"].removeprefix("cupy/"): row for row in json.load(file)}
        return status, rows, out.getvalue() + err.getvalue()

    def test_same(self):
        status, rows, said = self.run_on({CORE: "", MEMORY: """
def test_the_library_is_preloaded():
    ours = 'LD_PRELOAD' in os.environ
    assert ours == ('liballograft' in open('/proc/self/maps').read())

@pytest.mark.slow
def test_slow():
    assert False

@pytest.mark.parametrize('value', ['a|b', 'test_memory.py'])
class TestValues:
    def test_value(self, value):
        pass
"""})
        self.assertEqual(status, 0, said)
        self.assertEqual(list(rows), [MEMORY, CORE])
        self.assertEqual([rows[MEMORY][key] for key in ("passed_natively", "native_runs", "ways", "not_compared")],
                         [4, 2, {way: 4 for way in apps.WAYS}, {}])
        self.assertIn("| cupy/core_tests/test_core.py | 1 | 0 | 1 | 1 | 1 | 1 | nothing |", said)
        self.assertIn("| all | 5 | 0 | 5 | 5 | 5 | 5 | 0 files |", said)
        with open(os.path.join(self.out, "table.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), said)
        self.assertEqual(sorted(os.listdir(self.out)), ["results.json", "table.md"])

    def test_different(self):
        status, rows, said = self.run_on({CORE: f"""
class TestPool:
    def test_pool(self):
        assert not {POOL}, 'what is wrong'

def test_replay():
    if os.environ.get('ALLOGRAFT_GRAPH') == 'all':
        pytest.skip('not so')

def test_natively():
    assert 'LD_PRELOAD' in os.environ, 'never so'
""", MATHS: ""})
        self.assertEqual(status, 1, said)
        self.assertEqual(rows[CORE]["different"],
                         {**{way: {"TestPool::test_pool": ["failed", "AssertionError: what is wrong"]}
                             for way in ("pool", "managed")}, "replay": {"test_replay": ["skipped", "not so"]}})
        self.assertEqual(rows[CORE]["not_compared"],
                         {"test_natively": ["failed", "AssertionError: never so"]})
        self.assertEqual((rows[CORE]["native_runs"], rows[MATHS]["native_runs"]), (5, 2))
        self.assertIn("| cupy/core_tests/test_core.py | 3 | 1 | 3 | 2 | 2 | 2 | pool: TestPool::test_pool; ", said)
        self.assertIn("DIFFERENT: cupy/core_tests/test_core.py: TestPool::test_pool: natively passed, pool failed: "
                      "AssertionError: what is wrong\n", said)
        self.assertIn("cupy/core_tests/test_core.py: 1 fail natively: test_natively\n", said)
        self.assertIn("| all | 4 | 1 | 4 | 3 | 3 | 3 | 1 files |", said)
        with open(os.path.join(self.out, "cupy-core_tests-test_core.py.pool.0.txt"), encoding="utf-8") as file:
            self.assertIn("what is wrong", file.read())

    def test_varies(self):
        """The second native run is not as the first; the fourth is not as those before it."""
        count = "open('seen%d', 'a').write('.'); runs = len(open('seen%d').read())\n"
        status, rows, said = self.run_on({CORE: "\ndef test_second():\n    " + count % (2, 2) + "    assert runs != 2\n"
                                                "\ndef test_later():\n    " + count % (4, 4) + "    assert runs < 3\n"},
                                         "--ways", "pool")
        self.assertEqual((status, rows[CORE]["native_runs"]), (0, 3), said)
        self.assertEqual({test: what for test, (what, _) in rows[CORE]["not_compared"].items()},
                         {"test_second": "varies", "test_later": "varies"})
        self.assertIn("cupy/core_tests/test_core.py: 2 vary natively: test_second, test_later\n", said)

    def test_ends_early(self):
        for deed, why in (("os.kill(os.getpid(), 9)", "pytest ended with -9: "),
                          ("__import__('atexit').register(os._exit, 7)", "pytest ended with 7: "),
                          ("time.sleep(60)", "it took more than 5 s")):
            with self.subTest(deed=deed):
                status, rows, said = self.run_on({CORE: f"\ndef test_last():\n    {deed} if {POOL} else None\n"},
                                                 "--timeout", "5", "--ways", "pool")
                self.assertEqual((status, rows[CORE]["ways"]), (1, {"pool": 0}), said)
                self.assertIn(f"DIFFERENT: cupy/core_tests/test_core.py: pool: {why}", said)
                self.assertIn("; 2 tests have not passed\n", said)
                self.assertIn(f" | 2 | 0 | 0 | pool: {why}", said)

    def test_not_to_be_had(self):
        status, rows, said = self.run_on({CORE: "import no_extension\n", MATHS: "", MEMORY: "os.abort()\n"},
                                         "--ways", "pool")
        self.assertEqual(status, 0, said)
        self.assertEqual([(rows[file]["passed_natively"], rows[file]["ways"]) for file in (CORE, MEMORY)],
                         [(0, {})] * 2)
        self.assertEqual(rows[CORE]["trouble"],
                         "natively no test passes: ModuleNotFoundError: No module named 'no_extension'")
        self.assertIn("cupy/core_tests/test_core.py: 1 fail natively: the file\n", said)
        self.assertIn("natively pytest ended with -6", rows[MEMORY]["trouble"])
        self.assertIn("cupy-core_tests-test_core.py.native.0.txt", os.listdir(self.out))
        status, _, said = self.run_on({}, "--only", "cupy/core_tests/*")
        self.assertEqual((status, "nothing passes natively" in said), (3, True), said)

    def test_budget(self):
        status, rows, said = self.run_on({CORE: "", MATHS: ""}, "--budget", "0")
        self.assertEqual((status, rows[CORE]["trouble"]), (3, "no time was left for it"), said)
        self.assertIn("no time was left for 2 files", said)

    def test_words_of_pytest(self):
        status, rows, said = self.run_on({CORE: "\ndef test_other():\n    pass\n"}, "-k", "other", "--ways", "pool")
        self.assertEqual((status, rows[CORE]["passed_natively"]), (0, 1), said)

    def test_sample(self):
        """CuPy's tests are told which by the environment."""
        text = "\ndef test_sample():\n    assert 'CUPY_TEST_RANDOM_SUBSAMPLE' in os.environ\n"
        for words, n in (((), 1), (("--sample",), 2)):
            _, rows, said = self.run_on({CORE: text}, *words, "--ways", "pool")
            self.assertEqual(rows[CORE]["passed_natively"], n, said)

    def test_other_checkouts(self):
        """RMM's tests import one another; those of JAX must not find the folders beside them, which are no installed JAX."""
        helped = "import test_helpers\n\ndef test_helped():\n    assert test_helpers.there\n"
        alone = ("import importlib.util, os\n\ndef test_alone():\n"
                 "    assert importlib.util.find_spec('jaxlike') is None\n"
                 "    assert os.environ['XLA_PYTHON_CLIENT_ALLOCATOR'] == 'platform'\n")
        self.write({"python/rmm/rmm/__init__.py": "assert False", "python/rmm/rmm/tests/test_pool.py": helped,
                    "python/rmm/rmm/tests/test_helpers.py": "there = True\n", "tests/array_test.py": alone,
                    "tests/other_test.py": "assert False", "jaxlike/__init__.py": "", "conftest.py": ""})
        status, rows, said = self.run_on({}, "--cupy", "", "--rmm", self.checkout, "--jax", self.checkout, "--ways", "pool")
        self.assertEqual(status, 0, said)
        self.assertEqual({file: row["passed_natively"] for file, row in rows.items()},
                         {"rmm/test_pool.py": 1, "jax/array_test.py": 1}, said)

    def test_no_gpu(self):
        self.set(SIM_FAIL="cuInit:1:100")
        status, rows, said = self.run_on({CORE: ""})
        self.assertEqual((status, rows, said), (77, {}, "there is no GPU: CUDA says 100\n"))

    def test_bad_words(self):
        for words, why in ((("--library", "/no"), "there is no /no"), (("--ways", "mine"), "--ways=mine"),
                           (("--cupy", "/no"), "there is no /no/tests/cupy_tests"), (("--jobs", "0"), "--jobs"),
                           (("--only", "other/*"), "no file is like --only=other/*"),
                           (("--python", "/no"), "there is no /no"), (("--rmm", "/no"), "there is no /no/python/rmm/rmm/tests"),
                           (("--cupy", ""), "--cupy, --rmm, --jax or --numba is needed")):
            with self.subTest(words=words):
                status, _, said = self.run_on({CORE: ""}, *words)
                self.assertEqual(status, 2, said)
                self.assertIn(why, said)


if __name__ == "__main__":
    if not importlib.util.find_spec("pytest") and os.path.isdir(INSTALLED):
        sys.path.append(INSTALLED)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.path.abspath(INSTALLED)]))
    if not importlib.util.find_spec("pytest"):
        print("pytest is not installed")
        sys.exit(77)
    unittest.main()
