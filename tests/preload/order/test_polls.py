# A kernel that waits for what comes later goes on, whatever was freed before it.

from harness import EVERY, SEEDS, Case, main, program

# Streams are not watched there, either.
UNWATCHED = [{'ALLOGRAFT_GRAPH': 'all'}, {'ALLOGRAFT_PREFETCH': 'launch'}]


class Polls(Case):
    def test_streams_made_while_a_kernel_polls(self):
        for way in ('', 'blocking', 'capture'):
            self.same([program('preload_polls'), way], variants=EVERY + UNWATCHED, seeds=SEEDS)


if __name__ == '__main__':
    main()
