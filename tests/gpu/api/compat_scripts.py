"""The scripts of tests/api/seed_scripts with PyTorch itself; that of CUDAGraph says the same of torch.cuda's own."""
import os
import sys
import unittest

from api_common import expect, torch

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "api", "seed_scripts")


def passed(name, change=None):
    """How many tests of a script passed. `change`: what is replaced in its text."""
    with open(os.path.join(SCRIPTS, name), encoding="utf-8") as file:
        text = file.read()
    if change is not None:
        expect(change[0] in text, f"{name} has {change[0]}")
        text = text.replace(*change)
    module = type(sys)(name[:-3])
    exec(compile(text, name, "exec"), module.__dict__)
    result = unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromModule(module))
    expect(result.wasSuccessful() and result.testsRun > 0, f"{name}{' of torch.cuda' if change else ''}")
    torch.cuda.synchronize()
    return result.testsRun - len(result.skipped)


def main():
    names = sorted(name for name in os.listdir(SCRIPTS) if name.endswith(".py"))
    total = sum(passed(name) for name in names)
    passed("cuda_graph.py", ("from allograft.compat.cuda_graph import", "from torch.cuda import"))
    print(f"{total} tests of {len(names)} scripts")


main()
