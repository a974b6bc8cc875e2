"""megatron.py on a checkout of a few lines, with as much of pytest as it asks for, so that neither need be installed.

usage: test_megatron.py LIBRARY
"""

import contextlib
import io
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = sys.argv.pop(1)
sys.path.insert(0, HERE)

import megatron  # noqa: E402

PYTEST = '''
import importlib, os, sys, time, traceback
from types import SimpleNamespace

class Skipped(Exception):
    pass

def skip(reason):
    raise Skipped(reason)

def fixture(function):
    return function

def hookimpl(**options):
    return fixture

def report(nodeid, when, failed):
    outcome = 'passed' if not failed else 'skipped' if isinstance(failed, Skipped) else 'failed'
    why = ''.join(traceback.format_exception(failed)) if failed else None
    if outcome == 'skipped':
        why = ('', 0, str(failed))
    return SimpleNamespace(nodeid=nodeid, when=when, outcome=outcome, longrepr=why, duration=0.5)

def main(words):
    print(words)
    plugin = importlib.import_module(words[words.index('-p') + 1])
    root = words[words.index('--rootdir') + 1]
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None), rootpath=root)
    items = []
    for path in (word for word in words if word.endswith('.py')):
        scope = {'__name__': os.path.basename(path)[:-3]}
        try:
            with open(os.path.join(root, path)) as file:
                exec(compile(file.read(), path, 'exec'), scope)
        except Exception as failed:
            plugin.pytest_collectreport(report(path, 'collect', failed))
            continue
        items += [SimpleNamespace(path=path, name=name, nodeid=path + '::' + name, run=thing, cls=scope.get('OF_CLASS'))
                  for name, thing in scope.items() if name.startswith('test_')]
    plugin.pytest_collection_modifyitems(config, items)
    session = SimpleNamespace(items=items, config=config)
    plugin.pytest_collection_finish(session)
    for item in items:
        failed = None
        try:
            plugin.pytest_runtest_setup(item)
            item.run()
        except Exception as reason:
            failed = reason
        plugin.pytest_runtest_logreport(report(item.nodeid, 'call', failed))
    plugin.pytest_sessionfinish(session, 0)
'''

CHECKOUT = {
    "megatron/core/__init__.py": "",
    "megatron/core/inference/__init__.py": "",
    "megatron/core/full_cuda_graph.py": "class FullCudaGraphWrapper:\n    pass\n",
    "megatron/core/inference/unified_memory.py": "class CompilationState:\n    pass\n",
    "megatron/core/schedule.py": "from megatron.core.full_cuda_graph import FullCudaGraphWrapper\n",
    "megatron/core/extension.py": "import no_extension\nfrom megatron.core.full_cuda_graph import FullCudaGraphWrapper\n",
}
GRAPHS, MEMORY = "tests/unit_tests/transformer/test_full_cuda_graph.py", "tests/unit_tests/inference/test_unified_memory.py"
CONTEXTS = "tests/unit_tests/inference/contexts/test_dynamic_context.py"
SHARDED = "tests/unit_tests/distributed/mfsdp_v1/test_mcore_fully_sharded_data_parallel.py"
IMPORTS = """
import os, pytest, time
from megatron.core import full_cuda_graph, schedule
import megatron.core.full_cuda_graph as again

def test_one_module():
    assert again is full_cuda_graph and schedule.FullCudaGraphWrapper is again.FullCudaGraphWrapper

OURS = 'LD_PRELOAD' in os.environ
"""


class Megatron(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkout, self.out, self.site = (os.path.join(folder.name, name) for name in ("checkout", "out", "site"))
        self.write(self.site, {"pytest/__init__.py": PYTEST,
                               "pytest/__main__.py": "import sys, pytest; pytest.main(sys.argv[1:])"})
        was = os.environ.get("PYTHONPATH")
        self.addCleanup(lambda: os.environ.pop("PYTHONPATH") if was is None else os.environ.update(PYTHONPATH=was))
        os.environ["PYTHONPATH"] = self.site

    def write(self, folder, files):
        for name, text in files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

    def run_on(self, tests, *words):
        """Exit status, standard output, standard error. `tests`: path -> what comes after IMPORTS."""
        self.write(self.checkout, {**CHECKOUT, **{path: IMPORTS + text for path, text in tests.items()}})
        out, err = io.StringIO(), io.StringIO()
        was = sys.argv
        sys.argv = ["megatron.py", self.checkout, "--library", LIBRARY, "--out", self.out, *words]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = megatron.main()
        except SystemExit as end:
            status = end.code
        finally:
            sys.argv = was
        return status, out.getvalue(), err.getvalue()

    def read(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return file.read()

    def test_same(self):
        status, out, err = self.run_on({GRAPHS: "", MEMORY: "def test_more():\n    pass\n"})
        self.assertEqual(status, 0, out + err)
        self.assertIn("all 3 tests that pass natively pass with the drop-in modules", out)
        self.assertIn("| transformer/test_full_cuda_graph.py | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 |", out)
        self.assertIn("native: megatron.core.full_cuda_graph is in megatron.core, megatron.core.schedule", out)
        self.assertIn("drop-in: allograft.compat.full_cuda_graph is in megatron.core, megatron.core.schedule", out)
        self.assertNotIn("drop-in: megatron.core", out)
        self.assertIn("drop-in: 3 tests were collected, 3 of them ran", out)
        self.assertNotIn("DIFFERENT", out)

    def test_what_is_in_their_place(self):
        status, out, _ = self.run_on({GRAPHS: """
def test_name():
    from megatron.core.inference import unified_memory
    assert [unified_memory.__name__, unified_memory.__spec__.name, full_cuda_graph.__name__] == (
        ['allograft.compat.unified_memory'] * 2 + ['allograft.compat.full_cuda_graph'] if OURS else
        ['megatron.core.inference.unified_memory'] * 2 + ['megatron.core.full_cuda_graph'])

def test_the_library_is_preloaded():
    assert not OURS or 'liballograft' in open('/proc/self/maps').read()

def test_one_process_is_the_world():
    assert [os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK')] == ['0', '1', '0']
"""})
        self.assertEqual((status, "all 4 tests" in out), (0, True), out)

    def test_different(self):
        status, out, _ = self.run_on({GRAPHS: """
def test_worse():
    assert not OURS, 'what is wrong'

def test_better():
    assert OURS

def test_never():
    assert not 'anything'
"""})
        self.assertEqual((status, out.count("DIFFERENT")), (1, 2), out)
        named = f"DIFFERENT: {GRAPHS}::"
        self.assertIn(named + "test_worse: natively passed, drop-in failed: AssertionError: what is wrong", out)
        self.assertIn(named + "test_better: natively failed, drop-in passed: AssertionError", out)
        self.assertIn("1 of transformer/test_full_cuda_graph.py fail both ways: AssertionError (test_never)", out)
        self.assertIn("| all | 2 | 2 | 0 | 0 | 2 | 2 | 0 | 0 |", out)
        self.assertIn("what is wrong", self.read("drop-in-failures.txt"))
        self.assertNotIn("what is wrong", self.read("native-failures.txt"))

    def test_better_is_no_failure(self):
        status, out, _ = self.run_on({GRAPHS: "\ndef test_better():\n    assert OURS\n"})
        self.assertEqual((status, out.count("DIFFERENT")), (0, 1), out)

    def test_what_does_not_run_is_said(self):
        status, out, _ = self.run_on({GRAPHS: "\ndef test_extension():\n    pytest.skip('no GPU of that kind')\n",
                                      MEMORY: "import no_extension\n"})
        self.assertEqual(status, 0, out)
        for name in (MEMORY, "megatron.core.extension"):
            self.assertIn(f"{name} cannot be imported: ModuleNotFoundError: No module named 'no_extension'\n", out)
        self.assertIn("1 of transformer/test_full_cuda_graph.py are skipped: no GPU of that kind (test_extension)", out)
        self.assertIn(f"{SHARDED} is not in this checkout", out)

    def test_only_some(self):
        status, out, _ = self.run_on({SHARDED: "\ndef test_full_iteration():\n    pass\n"}, "--test", SHARDED, "-k", "word")
        self.assertEqual((status, "native: 1 tests were collected" in out), (0, True), out)
        self.assertIn("'-k', 'word'", self.read("native.txt"))
        self.assertNotIn("not in this checkout", out)

    def test_groups_come_back(self):
        """They are made again for tests of contexts whose class made them, and for no others."""
        self.write(self.checkout, {
            "megatron/core/parallel_state.py": "made = None\ndef model_parallel_is_initialized():\n"
                                               "    return made is not None\n",
            "tests/__init__.py": "", "tests/unit_tests/__init__.py": "",
            "tests/unit_tests/test_utilities.py": "from megatron.core import parallel_state\nclass Utils:\n"
                                                  "    def initialize_model_parallel(*sizes):\n"
                                                  "        parallel_state.made = sizes\n"})
        text = """
from megatron.core import parallel_state

def test_for_more():
    parallel_state.made = None
    raise RuntimeError('world_size (1) is not divisible by 2')

def test_for_one():
    assert parallel_state.made == (1, 1)
"""
        text_of_class = "class OF_CLASS:\n    setup_class = None\n" + text
        status, out, _ = self.run_on({CONTEXTS: text, GRAPHS: text_of_class})
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"test_dynamic_context\.py \| 1 \| 2 \| 0 \| 0 \| 1 \| 2 \|")
        status, out, _ = self.run_on({CONTEXTS: text_of_class, GRAPHS: text_of_class})
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"test_dynamic_context\.py \| 2 \| 1 \| 0 \| 0 \| 2 \| 1 \|")
        self.assertRegex(out, r"test_full_cuda_graph\.py \| 1 \| 2 \| 0 \| 0 \| 1 \| 2 \|")

    def test_ends_early(self):
        half_a_row = "print('{', end='', file=open(os.environ['MEGATRON_RESULTS'], 'a'), flush=True)"
        for deed, said in (("os._exit(7)", "drop-in: pytest ended with 7 before its tests did"),
                           (half_a_row + " or os._exit(8)", "drop-in: pytest ended with 8 before its tests did"),
                           ("time.sleep(60)", "drop-in: it took more than 5 s")):
            with self.subTest(deed=deed):
                status, out, _ = self.run_on({GRAPHS: f"\ndef test_last():\n    {deed} if OURS else None\n"},
                                             "--timeout", "5", "--test", GRAPHS)
                self.assertEqual((status, said in out), (1, True), out)
                self.assertIn(f"DIFFERENT: {GRAPHS}::test_last: natively passed, drop-in not run", out)
                self.assertIn("| all | 2 | 0 | 0 | 0 | 1 | 0 | 0 | 1 |", out)

    def test_nothing_passes(self):
        status, out, _ = self.run_on({GRAPHS: "raise ImportError('nothing here')\n"}, "--test", GRAPHS)
        self.assertEqual((status, "nothing passes natively" in out), (3, True), out)
        self.assertIn(f"{GRAPHS} cannot be imported: ImportError: nothing here", out)

    def test_bad_words(self):
        for words, said in ((("--library", "/no"), "there is no /no"), (("--timeout", "long"), "--timeout"),
                            (("--test", "tests/other.py"), "has none of tests/other.py")):
            with self.subTest(words=words):
                status, _, err = self.run_on({GRAPHS: ""}, *words)
                self.assertEqual(status, 2, err)
                self.assertIn(said, err)
        self.checkout = self.site
        was = dict(CHECKOUT)
        self.addCleanup(CHECKOUT.update, was)
        CHECKOUT.clear()
        self.assertIn("has no megatron/core", self.run_on({GRAPHS: ""})[2])


if __name__ == "__main__":
    unittest.main()
