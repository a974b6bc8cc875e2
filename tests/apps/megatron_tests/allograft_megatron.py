"""A plugin of pytest for Megatron-LM's own tests, which megatron.py loads: nothing in the checkout is changed.

With MEGATRON_WAY=drop-in, the modules of STANDS_IN are those of allograft.compat for all that imports them. The tests of
MEGATRON_TESTS (JSON: path in the checkout -> {"only": a word in the names, "levels": whether to run them with unified
memory as well}) are kept, and what becomes of each is written to MEGATRON_RESULTS as it happens, one JSON a line, so
that a crash loses no more than the test it is in.
"""

import functools
import importlib
import importlib.abc
import importlib.util
import json
import os
import re
import sys
import types

import pytest

STANDS_IN = {"megatron.core.full_cuda_graph": "allograft.compat.full_cuda_graph",
             "megatron.core.inference.unified_memory": "allograft.compat.unified_memory"}
IMPORTS = re.compile(r"^\s*(?:from|import) +(?:%s)\b" % "|".join(map(re.escape, STANDS_IN)), re.M)
DATA = "tests.test_utils.python_scripts.download_unit_tests_dataset"  # conftest.py fetches test data with it

WAY = os.environ.get("MEGATRON_WAY", "native")
TESTS = json.loads(os.environ.get("MEGATRON_TESTS", "{}"))
RESULTS = os.environ.get("MEGATRON_RESULTS", os.devnull)


def write(**row):
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


# ---- other modules in their place ----

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The import system itself puts the module where it is looked for: in sys.modules, and into its package."""

    def __init__(self):
        self.specs = {}

    def find_spec(self, fullname, path=None, target=None):
        return importlib.util.spec_from_loader(fullname, self) if fullname in STANDS_IN else None

    def create_module(self, spec):
        module = importlib.import_module(STANDS_IN[spec.name])
        self.specs[module] = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self.specs[module]  # it has been run already


def no_data(*_, **__):
    raise OSError("no test data is fetched here")


def import_all(root):
    """Imports every module of Megatron that imports one of the two. Returns the reasons of those that cannot be."""
    reasons = {}
    for folder, _, files in os.walk(os.path.join(root, "megatron")):
        for file in sorted(files):
            path = os.path.join(folder, file)
            if not file.endswith(".py"):
                continue
            with open(path, encoding="utf-8") as source:
                if not IMPORTS.search(source.read()):
                    continue
            name = os.path.relpath(path, root)[:-len(".py")].replace(os.sep, ".")
            try:
                importlib.import_module(name)
            except BaseException as reason:  # pylint: disable=broad-exception-caught
                reasons[name] = f"{type(reason).__name__}: {reason}"
    return reasons


def importers():
    """Modules of Megatron and of tests that have one of the two, or something of it: name -> whose."""
    found = {}
    whose = {**{name: name for name in STANDS_IN}, **{ours: ours for ours in STANDS_IN.values()}}
    for name, module in list(sys.modules.items()):
        if name in whose or not isinstance(module, types.ModuleType):
            continue
        if name.partition(".")[0] not in ("megatron", "tests") and not name.startswith("test_"):
            continue
        for thing in list(vars(module).values()):
            home = thing.__name__ if isinstance(thing, types.ModuleType) else getattr(thing, "__module__", None)
            if isinstance(home, str) and home in whose and name not in STANDS_IN.values():
                found.setdefault(name, set()).add(home)
    return {name: sorted(homes) for name, homes in sorted(found.items())}


def prepare():
    """Before any conftest.py is imported, which pytest_configure() would not be."""
    stand_in = types.ModuleType(DATA)
    stand_in.download_and_extract_asset = no_data
    sys.modules[DATA] = stand_in
    if WAY == "drop-in":
        sys.meta_path.insert(0, Finder())


prepare()


# ---- the tests ----

def wanted(path):
    """What MEGATRON_TESTS says of a file."""
    return next((settings for name, settings in TESTS.items() if str(path).endswith(name)), {})


def pytest_collection_modifyitems(config, items):
    kept = [item for item in items if wanted(item.path).get("only", "") in item.name]
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def pytest_generate_tests(metafunc):
    if wanted(metafunc.definition.path).get("levels"):
        metafunc.fixturenames.append("level_of_unified_memory")
        metafunc.parametrize("level_of_unified_memory", [0, 1], ids=["level0", "level1"], indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item):
    """A test for more GPUs than there are fails between taking the groups of processes down and making others, which the
    tests of contexts that come after it would miss: those whose class makes them once for all."""
    state = sys.modules.get("megatron.core.parallel_state")
    needs = wanted(item.path).get("levels") and hasattr(item.cls, "setup_class")
    if needs and state and not state.model_parallel_is_initialized():
        importlib.import_module("tests.unit_tests.test_utilities").Utils.initialize_model_parallel(1, 1)


@pytest.fixture
def level_of_unified_memory(request, monkeypatch):
    """With 1, every context has unified memory, though the test asks for none. Where Megatron's own is not to be had,
    its contexts are given a common pool of PyTorch's instead: then the test says what is to be expected."""
    if request.param == 0:
        return
    contexts = importlib.import_module("megatron.core.inference.contexts.dynamic_context")
    begin, pool = contexts.DynamicInferenceContext.__init__, contexts.create_unified_mempool

    def any_pool():
        try:
            made = pool()
            write(pool="managed")
            return made
        except contexts.UnifiedMemoryUnsupportedError as reason:
            write(pool="refused" if WAY == "drop-in" else "common", why=str(reason))
            if WAY == "drop-in":
                raise
            return contexts.torch.cuda.MemPool()

    @functools.wraps(begin)
    def with_unified_memory(self, model_config, inference_config, *more, **named):
        inference_config.unified_memory_level = 1
        begin(self, model_config, inference_config, *more, **named)
        assert self.unified_memory_level == 1

    monkeypatch.setattr(contexts, "create_unified_mempool", any_pool)
    monkeypatch.setattr(contexts.DynamicInferenceContext, "__init__", with_unified_memory)


# ---- what becomes of them ----

def reason_of(report):
    """The last line that says why."""
    if isinstance(report.longrepr, tuple):  # a skip
        return str(report.longrepr[2])
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    lines = [line for line in (crash or str(report.longrepr)).splitlines() if line.strip()]
    if crash:
        return lines[0] if lines else ""
    return lines[-1].removeprefix("E").strip() if lines else ""


def pytest_collectreport(report):
    if report.outcome != "passed":
        write(file=report.nodeid, outcome=report.outcome, why=reason_of(report), text=str(report.longrepr))


def pytest_collection_finish(session):
    write(collected=[item.nodeid for item in session.items])


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        row = {"test": report.nodeid, "when": report.when, "outcome": report.outcome, "seconds": report.duration}
        if report.outcome != "passed":
            row.update(why=reason_of(report), text=str(report.longrepr))
        write(**row)


def pytest_sessionfinish(session, exitstatus):
    unusable = import_all(str(session.config.rootpath))
    write(end=int(exitstatus), importers=importers(), unusable=unusable)
