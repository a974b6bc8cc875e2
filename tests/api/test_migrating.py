# docs/migrating.md: every documented name has one row, is where the row says, with the documented arguments, and the
# test that the row names is there. seed_names/ has the names: `# heading of the section`, then a name a line; what is
# in parentheses are arguments and defaults as Python prints them.

import importlib
import inspect
import os
import re
import sys
import unittest

ROOT = os.environ['TEST_ROOT']
PAGE = os.path.join(ROOT, 'docs', 'migrating.md')
NAMES = os.path.join(ROOT, 'tests', 'api', 'seed_names')
HOOKS = os.path.join(ROOT, 'interpose', 'core', 'driver', 'hooks.def')
ROW = re.compile(r'\| `([^`]+)` \| (.+) \| `([^`]+)` `([^`]+)` \|$')

sys.path.insert(0, os.path.join(ROOT, 'tools', 'python'))
sys.dont_write_bytecode = True


def text_of(*path):
    with open(os.path.join(*path), encoding='utf-8') as file:
        return file.read()


def sections():
    """heading -> text, of the page's sections."""
    parts = re.split(r'(?m)^## (.+)$', text_of(PAGE))
    return dict(zip(parts[1::2], parts[2::2]))


def lists():
    """name of the list -> heading and names."""
    found = {}
    for file in sorted(os.listdir(NAMES)):
        heading, *names = text_of(NAMES, file).splitlines()
        found[os.path.splitext(file)[0]] = heading.removeprefix('# '), [name for name in names if name]
    return found


def arguments(thing, bound):
    """The arguments of a function or a class, without types: "(pool=None)"."""
    signature = inspect.signature(thing)
    taken = list(signature.parameters.values())[1 if bound else 0:]
    return str(inspect.Signature([p.replace(annotation=p.empty) for p in taken]))


def python_problem(module, name):
    """What is wrong with a name of a module, or None."""
    path, _, documented = name.partition('(')
    thing, bound = importlib.import_module('allograft.compat.' + module), False
    for part in path.split('.'):
        bound = inspect.isclass(thing) and not isinstance(inspect.getattr_static(thing, part, None), staticmethod)
        if not hasattr(thing, part) and part not in getattr(thing, '__annotations__', {}): # as of a protocol
            return 'there is no ' + path
        thing = getattr(thing, part, None)
    if documented and arguments(thing, bound) != '(' + documented:
        return 'its arguments are ' + arguments(thing, bound)
    return None


def driver_problem(where):
    """A name of CUDA's runtime: the driver's function that the row names is one that the library knows."""
    symbol = where.split('`')[1]
    hooked = re.search(r'(?m)^AG_(?:HOOK|CALL)\(%s,' % symbol, text_of(HOOKS))
    return None if hooked else '%s is not in hooks.def' % symbol


def test_problem(path, word):
    if not os.path.isfile(os.path.join(ROOT, path)):
        return 'there is no ' + path
    return None if re.search(r'\b%s\b' % re.escape(word), text_of(ROOT, path)) else '%s has no %s' % (path, word)


class Migrating(unittest.TestCase):
    def test_every_section_has_its_list(self):
        self.assertEqual(sorted(heading for heading, _ in lists().values()),
                         sorted(heading for heading, text in sections().items() if '\n| ' in text))
        self.assertTrue(lists())

    def test_every_name_has_one_row(self):
        for heading, names in lists().values():
            rows = [line for line in sections()[heading].splitlines() if line.startswith('| `')]
            matches = [ROW.match(row) for row in rows]
            self.assertNotIn(None, matches, rows)
            self.assertEqual([match[1] for match in matches], names)

    def test_every_row_is_true(self):
        wrong = []
        for module, (heading, _) in lists().items():
            for line in sections()[heading].splitlines():
                match = ROW.match(line)
                if match:
                    name, where, *test = match.groups()
                    c = re.match('cuda[A-Z]', name)
                    problems = [driver_problem(where) if c else python_problem(module, name), test_problem(*test)]
                    if not c and where != '`allograft.compat.%s`' % module:
                        problems.append('where: ' + where)
                    wrong += ['%s: %s' % (name, problem) for problem in problems if problem]
        self.assertEqual(wrong, [])

    def test_every_import_line_is_one(self):
        """The lines that a reader copies import what is there."""
        for line in re.findall(r'(?m)^\+(.*)$', text_of(PAGE)):
            exec(line, {})


if __name__ == '__main__':
    unittest.main(verbosity=0)
