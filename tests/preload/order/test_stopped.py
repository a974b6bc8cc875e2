# A capture that begins while a thread is on its way into the driver lives, however long that takes.

from harness import POLICIES, Case, main, program

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


if __name__ == '__main__':
    main()
