# The first call of the driver, in which the library begins, beside a fork, a cancellation and the loader.

import unittest

from hostile import RUNTIME, Case, main, often, program

VARIANTS = [{}, {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_TRACE': '@FOLDER@/trace.%p'}, {'ALLOGRAFT_DISABLE': '1'}]


class Start(Case):
    @unittest.skipIf('libtsan' in ' '.join(RUNTIME), 'what a child begins anew looks like a race')
    def test_fork_beside_the_first_call(self):
        for _ in range(often(8)):
            self.same([program('hostile_start_forked')], VARIANTS[:1])

    @unittest.skipIf('libasan' in ' '.join(RUNTIME), 'AddressSanitizer stumbles over a cancelled thread, natively too')
    def test_cancelled(self):
        for what in ('first', 'context'):
            self.same([program('hostile_start_cancelled'), what], VARIANTS)

    @unittest.skipIf('libtsan' in ' '.join(RUNTIME), 'its own locks meet those of the loader')
    def test_beside_a_constructor(self):
        """A thread that begins does not keep out another one that has the loader's lock, which it is to wait for."""
        self.same([program('hostile_start_constructed'), program('libhostile_constructed.so')], VARIANTS)


if __name__ == '__main__':
    main()
