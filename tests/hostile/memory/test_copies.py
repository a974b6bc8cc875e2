# Copies of memory that is not pinned, by threads that keep no byte longer than they have to.

import unittest

from hostile import RUNTIME, Case, main, often, program

CREW = {'ALLOGRAFT_COPY': 'auto', 'ALLOGRAFT_COPY_FROM': '1', 'ALLOGRAFT_COPY_THREADS': '3'}
VARIANTS = [{}, {'ALLOGRAFT_GRAPH': 'all'}, CREW, dict(CREW, ALLOGRAFT_GRAPH='all')]
MOST = str(200000)


class Copies(Case):
    def copies(self, *words, variants=VARIANTS):
        return self.same([program('hostile_copies'), *words, MOST], variants, drop='^turns')

    def test_storm(self):
        self.copies('storm', str(often(5)))

    def test_signals(self):
        self.copies('signals', str(often(4)))

    @unittest.skipIf('libtsan' in ' '.join(RUNTIME), 'what a child begins anew looks like a race')
    def test_forks(self):
        self.copies('forks', str(often(4)))

    @unittest.skipIf('libasan' in ' '.join(RUNTIME), 'AddressSanitizer stumbles over a cancelled thread, natively too')
    def test_cancelled(self):
        self.copies('cancelled')

    # A sanitizer has handlers of its own.
    @unittest.skipIf(RUNTIME, 'faults are the sanitizer\'s')
    def test_memory_that_is_not_there(self):
        for what in ('gone', 'shut', 'cut', 'late'):
            with self.subTest(what=what):
                self.copies(what)

    def test_contexts(self):
        self.copies('contexts')

    def test_exit(self):
        for _ in range(often(3)):
            self.copies('exit')


if __name__ == '__main__':
    main()
