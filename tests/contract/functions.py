# No function of more than 70 lines, no hook entry of more than 12, counted between its braces. Functions that a macro
# defines count where the macro is defined; hooks that are made of a table, as C, where they lie in the build folder.

import collections
import os
import re
import sys

from contract import blank_comments, blank_directives, finish, list_files, read_rows, read_text

MOST_LINES = 70
MOST_ENTRY_LINES = 12

# A hook entry carries the driver symbol's name, alone or behind a prefix, and lies in interpose/. In what is made, those
# with a prefix are beside the entry.
ENTRY = re.compile(r'(^|_)cu[A-Z]\w*$')
MADE = 'interpose/hooks/made/'
MACRO = re.compile(r'(?m)^[ \t]*#[ \t]*define[ \t]+\w+\(([^()]*)\)((?:[^\n\\]|\\\n|\\.)*)')
STATEMENTS = {'if', 'for', 'while', 'switch', 'do', 'else'}


class Function(collections.namedtuple('Function', 'name line lines named_by_macro')):
    """line: of the opening brace; lines: between the braces; named_by_macro: a parameter of a macro is in its name."""

    def is_entry(self, path):
        found = ENTRY.search(self.name)
        return path.startswith('interpose/') and (
            self.named_by_macro or found is not None and not (path.startswith(MADE) and found.group(1)))


def flat_c(text):
    """C text in which comments, strings and characters hold no braces."""
    literal = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(literal, lambda m: '0' * len(m.group(0)), blank_comments(text))


def functions(text):
    """Each function of a C file: those it defines, then those its macros define."""
    flat = flat_c(text)
    for name, line, lines in bodies(blank_directives(flat), 1, ()):
        yield Function(name, line, lines, False)
    for macro in MACRO.finditer(flat):
        parameters = re.findall(r'\w+', macro.group(1))
        body = macro.group(2).replace('\\\n', ' \n')
        for name, line, lines in bodies(body, flat.count('\n', 0, macro.start(2)) + 1, parameters):
            yield Function(name, line, lines, any(part in parameters for part in name.split('##')))


def bodies(text, first_line, parameters):
    """(name, line, lines) of each function in flat text; parameters: those of the macro that the text is of."""
    depth, parentheses, head_start, opened, name = 0, 0, 0, 0, None
    for sign in re.finditer('[(){};]', text):
        at, char = sign.start(), sign.group()
        parentheses += {'(': 1, ')': -1}.get(char, 0)
        if char == '{':
            if depth == 0:
                name = function_name(text[head_start:at], parameters) if parentheses == 0 else None
                opened = text.count('\n', 0, at)
            depth += 1
        elif char == '}':
            depth -= 1
            if depth == 0:
                if name:
                    yield name, first_line + opened, max(text.count('\n', 0, at) - opened - 1, 0)
                head_start = at + 1
        elif char == ';' and depth == 0:
            head_start = at + 1


def function_name(head, parameters=()):
    """The name a file-level `head {` defines as a function, None for a type or an initialiser."""
    head = re.sub(r'__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)', ' ', head).strip()
    # In a macro: `CUresult symbol parameters`, with parameters "(CUmodule module)" or the like.
    given = re.search(r'\w\s+([\w#]+)\s+(\w+)$', head)
    if given and given.group(2) in parameters and '=' not in head:
        return given.group(1)
    if not head.endswith(')') or re.search(r'=\s*$|=[^=]*$', head):
        return None
    # The parameter list is the last balanced pair of parentheses; the name stands before it, or,
    # for a definition through a macro like AG_ENTRY(cuX)(...), inside the pair before that.
    depth, at = 0, len(head)
    while at > 0:
        at -= 1
        depth += {')': 1, '(': -1}.get(head[at], 0)
        if depth == 0:
            break
    before = head[:at].rstrip()
    inner = re.search(r'\(\s*(?:\w+\s*,\s*)*(\w+)[^()]*\)$', before)
    plain = re.search(r'([\w#]+)$', before)
    name = inner.group(1) if inner else plain.group(1) if plain else None
    return None if name in STATEMENTS else name


def problems_of(path, text):
    found = []
    for function in functions(text):
        most = MOST_ENTRY_LINES if function.is_entry(path) else MOST_LINES
        if function.lines > most:
            found.append('%s:%d: %s has %d lines, %d is the limit'
                         % (path, function.line, function.name, function.lines, most))
    return found


def hook_makers(texts):
    """Names of the macros that define a function named by a parameter, themselves or through another of these."""
    macros = [(re.search(r'define\s+(\w+)', macro.group(0)).group(1), re.findall(r'\w+', macro.group(1)),
               macro.group(2).replace('\\\n', ' \n')) for text in texts for macro in MACRO.finditer(text)]
    makers = {name for name, parameters, body in macros
              if any(part in parameters for made, _, _ in bodies(body, 0, parameters) for part in made.split('##'))}
    n = 0
    while n != len(makers):
        n = len(makers)
        makers |= {name for name, _, body in macros if makers & set(re.findall(r'(\w+)\s*\(', body))}
    return makers


def unmeasured_hooks(texts, hooks):
    """Hooks that are neither a function nor made by a macro that was measured: their length nobody would know."""
    measured = {function.name for text in texts for function in functions(text)}
    texts = [flat_c(text) for text in texts]
    for maker in hook_makers(texts):
        for text in texts:
            for use in re.finditer(r'(?m)^%s\s*\(((?:\s*\w+\s*[,)])+)' % maker, text):
                measured |= set(re.findall(r'\w+', use.group(1)))
    return ['%s: no function and no macro that defines it found' % hook for hook in hooks if hook not in measured]


if __name__ == '__main__':
    root, build = sys.argv[1:]
    problems, n = [], 0
    texts = {path: read_text(os.path.join(root, path)) for path in list_files(root) if path.endswith(('.c', '.h', '.cu'))}
    made = [MADE + name for name in sorted(os.listdir(os.path.join(build, MADE))) if name.endswith('.h')]
    texts.update((path, read_text(os.path.join(build, path))) for path in made)
    hook_texts = [text for path, text in texts.items() if path.startswith('interpose/') and not path.endswith('.cu')]
    rows = read_rows(read_text(os.path.join(root, 'interpose', 'core', 'driver', 'hooks.def')))
    problems += unmeasured_hooks(hook_texts, [row.symbol for row in rows if row.kind == 'HOOK'])
    for path, text in texts.items():
        problems += problems_of(path, text)
        n += sum(1 for _ in functions(text))
    if n == 0 or not made:
        problems = ['no function found under %s, or no hooks under %s' % (root, build)]
    finish(problems, '%d functions keep to %d lines, hook entries to %d'
           % (n, MOST_LINES, MOST_ENTRY_LINES))
