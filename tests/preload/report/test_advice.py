# What a report says to try is tried, and what it counted gets better; where it would not, nothing is advised.

import re

from harness import Case, but_under_tsan, main, preloaded, program

ADVICE = program('preload_advice')
NONE = 'nothing that these counts tell'


def waited(report):
    return report['frees']['waited']


def failed(report):
    return sum(place['failed'] for place in report['devices'][0]['placements'].values())


def spilled_at_the_end(report):
    return report['devices'][0]['placements']['spilled']['current_bytes']


def missed(report):
    return report['cache']['misses']


def awaited(report):
    return report['frees']['late_waits']['pending_bound']


def left(report):
    return report['coverage']['passed']


def not_replayed(report):
    return -report['replay']['replayed']


# The part of the program, its settings, what is to be advised, and what is to be less with that.
APPLIED = (
    ('turns', {'ALLOGRAFT_POLICY': 'native'}, 'ALLOGRAFT_POLICY=auto', waited),
    ('turns', {'ALLOGRAFT_FREE': 'sync'}, 'ALLOGRAFT_FREE=auto', waited),
    ('visible pinned', {}, 'ALLOGRAFT_FREE=ordered', waited),
    ('visible managed', {}, 'ALLOGRAFT_FREE=ordered', waited),
    ('visible contexts', {}, 'ALLOGRAFT_FREE=ordered', waited),
    ('fill 1280', {'SIM_MEMORY': '1GiB'}, 'ALLOGRAFT_OOM=spill', failed),
    ('fill 1280', {'ALLOGRAFT_LIMIT': '512MiB'}, 'ALLOGRAFT_OOM=spill', failed),
    ('fill 1280', {'SIM_MEMORY': '1GiB', 'ALLOGRAFT_OOM': 'spill'}, 'ALLOGRAFT_UNSPILL=1', spilled_at_the_end),
    ('at_once 100', {'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_CACHE': '0', 'SIM_MEMORY': '2GiB'},
     'ALLOGRAFT_PENDING=50%', awaited),
    ('at_once 48', {'SIM_MEMORY': '1GiB'}, 'ALLOGRAFT_CACHE=50%', missed),
    ('at_once 48', {'SIM_MEMORY': '1GiB', 'ALLOGRAFT_POLICY': 'pool'}, 'ALLOGRAFT_PENDING=50%', awaited),
    ('at_once 48', {'SIM_MEMORY': '1GiB', 'ALLOGRAFT_POLICY': 'pool', 'ALLOGRAFT_PENDING': 'max'},
     'ALLOGRAFT_CACHE=50%', missed),
    ('exported', {'ALLOGRAFT_POLICY': 'pool'}, 'ALLOGRAFT_RULES=from=libnccl*:pool', left),
    ('iterations', {'ALLOGRAFT_GRAPH': 'legacy', 'ALLOGRAFT_GRAPH_PROFIT': '0'}, 'ALLOGRAFT_GRAPH=all', not_replayed),
    ('ends', {'ALLOGRAFT_GRAPH': 'all', 'ALLOGRAFT_GRAPH_PROFIT': '0', 'ALLOGRAFT_GRAPH_HOLD_US': '60000000'},
     'ALLOGRAFT_GRAPH_SEGMENT=16', not_replayed),
)

# Where what is counted would stay as it is.
NOT_ADVISED = (
    ('turns', {'ALLOGRAFT_GUARD': 'canary'}),
    ('turns', {'ALLOGRAFT_GUARD': 'canary', 'ALLOGRAFT_FREE': 'sync'}),
    ('turns', {}),
    ('end', {'ALLOGRAFT_POLICY': 'native'}),
    ('growing', {'SIM_MEMORY': '8GiB'}),
    ('growing', {'SIM_MEMORY': '8GiB', 'ALLOGRAFT_POLICY': 'pool'}),
)


def report_of(part, settings):
    return preloaded([ADVICE, *part.split()], dict(settings)).report()


def applied(advice):
    """The advice as a variable. What follows a comma or a colon is a condition, or a reason; a rule names a library."""
    if advice.startswith('a rule such as from='):
        return {'ALLOGRAFT_RULES': advice.split()[4].rstrip(',').replace('LIBRARY', 'libnccl')}
    name, value = re.match(r'(ALLOGRAFT_\w+)=([^\s,:]+)', advice).groups()
    return {name: value}


class Advice(Case):
    @but_under_tsan
    def test_each_helps(self):
        for part, settings, advised, count in APPLIED:
            with self.subTest(part=part, advised=advised, **settings):
                before = report_of(part, settings)
                variables = applied(before['verdict']['try'])
                self.assertEqual([f'{name}={value}' for name, value in variables.items()], [advised], before['verdict'])
                after = report_of(part, dict(settings, **variables))
                self.assertLess(count(after), count(before), after['verdict'])
                self.assertNotIn(advised, after['verdict']['try'])

    def test_nothing_is_advised_that_does_not_help(self):
        for part, settings in NOT_ADVISED:
            with self.subTest(part=part, **settings):
                verdict = report_of(part, settings)['verdict']
                self.assertTrue(verdict['try'].startswith(NONE), verdict)

    def test_guards_say_what_they_checked(self):
        report = report_of('turns', {'ALLOGRAFT_GUARD': 'canary'})
        guard, verdict = report['guard'], report['verdict']
        self.assertTrue(verdict['gained'].startswith(
            f"{guard['checked']} checks of {guard['guarded']} guarded blocks found nothing"), verdict)
        self.assertIn('ALLOGRAFT_GUARD checks blocks', verdict['held_back'])
        self.assertEqual(report['frees']['drain_reasons']['guard'], 100)
        # Each free is counted once, whoever made it wait.
        ways = [key for key, value in report['frees'].items() if isinstance(value, int)]
        self.assertEqual(sum(report['frees'][key] for key in ways if key not in ('waited', 'pending_peak_bytes')), 100)


if __name__ == '__main__':
    main()
