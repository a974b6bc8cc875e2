# The first call of the driver, in which the library begins, beside a fork and a cancellation.

from hostile import Case, main, often, program

VARIANTS = [{}, {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_TRACE': '@FOLDER@/trace.%p'}, {'ALLOGRAFT_DISABLE': '1'}]


class Start(Case):
    def test_fork_beside_the_first_call(self):
        for _ in range(often(8)):
            self.same([program('hostile_start_forked')], VARIANTS[:1])

    def test_cancelled(self):
        for what in ('first', 'context'):
            self.same([program('hostile_start_cancelled'), what], VARIANTS)


if __name__ == '__main__':
    main()
