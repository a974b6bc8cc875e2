# Children that are made while other threads are in the middle of allocating: whatever they hold then, the child
# does not wait for it.

import os

from hostile import Case, main, often, program

LIVES = os.path.join(program('..'), 'preload', 'preload_lives')


class Children(Case):
    def test_children_of_busy_threads(self):
        # 30 children each time.
        for _ in range(often(4)):
            self.same([LIVES, 'fork_busy'],
                      variants=[{}, {'ALLOGRAFT_FREE': 'ordered'}, {'ALLOGRAFT_GRAPH': 'all'}])


if __name__ == '__main__':
    main()
