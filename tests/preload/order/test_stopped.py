# A capture that begins, or a context that ends, while a thread is on its way into the driver, however long that takes.

from harness import POLICIES, Case, main, preloaded, program

SETTINGS = POLICIES + [
    {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'ordered'},
    {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_FREE': 'sync'},
    {'ALLOGRAFT_POLICY': 'managed', 'ALLOGRAFT_MANAGED_BACKEND': 'plain'},
    {'ALLOGRAFT_GRAPH': 'all'},
    {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '0'},
]


def unordered(settings):
    """What a free that is set aside during a capture does not order: docs/guarantees.md."""
    return '^wrong words' if settings.get('ALLOGRAFT_FREE') == 'ordered' else None


class Stopped(Case):
    def test_a_thread_is_stopped_before_each_call(self):
        self.same(program('preload_stopped'), variants=SETTINGS, drop=unordered)

    def ends(self, part, symbol, settings):
        result = preloaded([program('preload_stopped'), part], settings)
        self.assertEqual((result.out, result.err, result.status),
                         ('stopped in the driver; ended meanwhile: 0\n%s: 0\n' % symbol, '', 0), settings)

    def test_a_context_ends_while_a_thread_orders_it(self):
        self.ends('end', 'cuCtxWaitEvent', {'ALLOGRAFT_FREE': 'ordered', 'ALLOGRAFT_POLICY': 'pool'})

    def test_a_context_ends_while_its_memory_goes_back(self):
        self.ends('end-full', 'cuMemFree_v2', {'ALLOGRAFT_CACHE': '128MiB', 'SIM_MEMORY': '256MiB'})


if __name__ == '__main__':
    main()
