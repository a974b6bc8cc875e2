# More of everything than graph replay has places for, and the same things for long: the same bytes in the
# same order, and no more memory after the thousandth time than after the hundredth.

from hostile import Case, main, program

EAGER = {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_WARMUP': '1', 'ALLOGRAFT_GRAPH_PROFIT': '0'}
HELD = dict(EAGER, ALLOGRAFT_GRAPH_HOLD_US='60000000')  # longer than anything here waits
PLAIN = {'ALLOGRAFT_GRAPH': 'all'}


class Crowds(Case):
    def crowd(self, part, many, settings=None):
        # Contexts are memory of the card.
        return self.same([program('hostile_replay_crowd'), part, str(many)], variants=[HELD, EAGER, PLAIN],
                         settings=dict({'SIM_MEMORY': '64GiB', 'SIM_IDLE_MS': '1'}, **(settings or {})))

    def test_streams(self):
        # 512 lanes: all have one, the last of those that look has none, and nobody but the first ones has.
        for part in ('legacy-looks', 'copies', 'blocking-looks'):
            for many in (10, 512, 600):
                self.crowd(part, many)

    def test_stream_without_a_lane_is_not_marked(self):
        for _, result in self.crowd('legacy-looks', 600):
            self.assertEqual(result.report()['replay']['streams_marked'], 512)

    def test_attribute_without_a_lane(self):
        for many, replayed in ((600, False), (10, False)):
            for variant, result in self.crowd('attribute', many):
                if variant == HELD:
                    self.assertEqual(result.report()['replay']['withheld'] > 0, replayed)

    def test_threads(self):
        self.crowd('threads', 600)

    def test_contexts(self):
        self.crowd('contexts', 70)

    def test_captures(self):
        self.crowd('captures', 70)


if __name__ == '__main__':
    main()
