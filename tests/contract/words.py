# Words that only we understood are gone from code, comments and pages: the field has its own for each.

import os
import re
import sys

from contract import finish, lines_with, list_files, read_text

PRODUCT = r'(interpose|policy|graph)/'
ANYWHERE = r''

# Letters that stand in all that is meant (of several, |, one does), what it looks like, where it is meant, and what the
# field says. A word begins and ends where letters do, so that n_lanes and lane_of count and planes does not; (?-i:...)
# goes by its letters' case.
TERMS = [
    ('lane', r'lanes?', ANYWHERE, 'stream, stream state'),
    ('home', r'(?<!cuda_)(?-i:homes?)', PRODUCT, 'context state'),
    ('nap', r'naps?|napping', ANYWHERE, 'back-off'),
    ('tires', r'tires', ANYWHERE, 'backs off'),
    ('look', r'look(?:s|ing)? on(?!ly)', ANYWHERE, 'samples, watches'),
    ('quiet', r'quiet', PRODUCT, 'fast path, silent'),
    ('passage', r'passages?', ANYWHERE, 'trampoline'),
    ('door', r'doors?', ANYWHERE, 'entry point, lookup path'),
    ('still|self|first', r'(?-i:STILL|SELF|FIRST)', r'interpose/core/driver/hooks\.def$', 'NO_FLUSH, MANUAL, FLUSH'),
    ('wish', r'wish(?:es|ed)?', ANYWHERE, 'request parameters'),
    ('shape', r'shapes?', PRODUCT, 'memory descriptor'),
    ('detail', r'ag_details?(?:_\w+)?|detail\.[ch]', ANYWHERE, 'interned attributes'),
    ('params.|record.|leave.|green.', r'(?<![_/\w])(?:params|record|leave|green)\.[ch]', ANYWHERE,
     'kernel_params.c, counters_file.c, exit_hooks.c, green_context.c'),
    ('books', r'books', ANYWHERE, 'metadata, ledger'),
    ('owe|owing|pay|paid', r'owed?|owes|owing|pays?|paid|paying', ANYWHERE, 'pending synchronisation, complete'),
    ('settl', r'settles?|settled|settling', ANYWHERE, 'complete'),
    ('gate', r'gates?', ANYWHERE, 'capture guard'),
    ('equip', r'equip\w*', ANYWHERE, 'init resources'),
    ('understud', r'understud\w+', ANYWHERE, 'candidate anchor'),
    ('round', r'rounds?(?! (?:up|down|to|off|it|them|trips?)\b)', ANYWHERE, 'iteration'),
    ('turn', r'\w+_turns?|turn_\w+|->turns?', PRODUCT, 'sequence number'),
    ('stretch', r'stretch(?:es)?', ANYWHERE, 'epoch'),
    ('patien', r'patien\w+', ANYWHERE, 'timeout'),
    ('tuned', r'ag_tuned\w*|tuned\.[ch]', ANYWHERE, 'func_attrs'),
    ('fences of', r'fences of (?:the )?watched frees', ANYWHERE, 'how work was ordered behind frees'),
    ('the context', r'drain(?:s|ed|ing)? the context', ANYWHERE, 'waited for all work of the context'),
    ('left pending', r'host waits left pending', ANYWHERE, 'when the host waited for ordered frees later'),
    ('spare', r'spares|ag_spare\w*', ANYWHERE, 'free list'),
    ('behind', r'(?<!GUARD_)(?<!written_)behind', r'(interpose|policy|graph|tools)/.*\.(c|h|S|def)$', 'after'),
]

# Where a word stays: path, what stands on the line, why.
EXCEPTIONS = [
    (r'tests/contract/(words|selftest)\.py$', r'', 'names the words'),
    (r'docs/images/.*\.svg$', r'stroke-linejoin', 'a value of SVG'),
    (r'tests/gpu/', r'\bsettled\b', 'the name of a check and of its figures'),
    (r'', r'(?i)"[^"]*\bbehind\b', 'a text that people read'),
    (r'policy/guard/', r'\b(ret_)?behind\b', 'the report says on which side of a block: before or behind'),
    (r'tools/report/web/uPlot\.iife\.min\.js$', r'', 'not ours'),
    (r'tests/', r'\b(go|goes|going|went|all|turn|way) round\b|round (the|a|his|our)\b', 'English: around'),
    (r'', r'round(ed|ing|s)?_?(up|down)|(?<!\w)l{0,2}round[fl]?\(|(is|are|be|been) rounded', 'arithmetic'),
    (r'', r'(it|and|which|that|driver) rounds\b|\brounds (a|the|its|each) (size|number)',
     'arithmetic: what rounds a size up'),
]


def compiled():
    return [(letters.split('|'), re.compile(r'(?<![A-Za-z])(?:%s)(?![A-Za-z])' % pattern, re.I), re.compile(where),
             field)
            for letters, pattern, where, field in TERMS]


def problems_of(path, text, terms):
    lines, lowered, found = text.split('\n'), text.lower(), []
    for letters, pattern, where, field in terms:
        for number in lines_with(letters, lowered) if where.match(path) else ():
            line = lines[number]
            match = pattern.search(line)
            if match and not any(re.match(where, path) and re.search(what, line) for where, what, _ in EXCEPTIONS):
                found.append('%s:%d: "%s": the field says %s' % (path, number + 1, match.group(0), field))
    return found


if __name__ == '__main__':
    root = sys.argv[1]
    problems, n, terms = [], 0, compiled()
    for path in list_files(root):
        with open(os.path.join(root, path), 'rb') as f:
            if b'\0' in f.read(4096):
                continue
        problems += problems_of(path, read_text(os.path.join(root, path)), terms)
        n += 1
    if n == 0:
        problems = ['no file found under ' + root]
    finish(problems, '%d files keep to the words of the field' % n)
