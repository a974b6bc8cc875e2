# The settings that random programs run under (diff_run.py), by name.

import random
import re

MIB = 1 << 20


def limited(mebibytes, more):
    """A budget that the program is told of, and that may refuse it memory."""
    told = 'ALLOGRAFT_LIMIT=%d|DIFF_TOTAL=%d' % (mebibytes * MIB, mebibytes * MIB)
    return told + '|DIFF_TWIN=1|' + more


def graphs(more, streams='all'):
    """Replay of these streams, as eager as it can be, with little of everything."""
    return ('ALLOGRAFT_GRAPH=%s|ALLOGRAFT_GRAPH_WARMUP=1|ALLOGRAFT_GRAPH_HOLD_US=50|%s'
            % (streams, more))


# Every copy of pageable memory is the crew's, even of one byte.
CREW = 'ALLOGRAFT_COPY=auto|ALLOGRAFT_COPY_FROM=1|ALLOGRAFT_COPY_THREADS=3'


def mixed(*rules):
    return 'ALLOGRAFT_RULES=' + '; '.join(rules)


# What does not fit lies on the host, piece by piece.
PAGE = 'ALLOGRAFT_OOM=page|ALLOGRAFT_PAGE_PIECE=2MiB|ALLOGRAFT_LOG=error|DIFF_SPILL=1'

# Settings separated by '|'. DIFF_*: see batch.c.
POLICIES = {
    'auto': 'ALLOGRAFT_POLICY=auto',
    # Native memory that is kept; little room.
    'await': 'ALLOGRAFT_POLICY=auto|ALLOGRAFT_FREE=sync',
    'atiny': 'ALLOGRAFT_POLICY=auto|ALLOGRAFT_CACHE=20KiB|ALLOGRAFT_PENDING=20KiB',
    # Pieces of slabs go back to them at once, and are cut again.
    'slab': 'ALLOGRAFT_POLICY=auto|ALLOGRAFT_SLAB=256KiB|ALLOGRAFT_CACHE=20KiB',
    'noslab': 'ALLOGRAFT_POLICY=pool|ALLOGRAFT_SLAB=0',
    'pool': 'ALLOGRAFT_POLICY=pool',
    'sync': 'ALLOGRAFT_POLICY=pool|ALLOGRAFT_FREE=sync',
    'ordered': 'ALLOGRAFT_POLICY=pool|ALLOGRAFT_FREE=ordered',
    'managed': 'ALLOGRAFT_POLICY=managed',
    'native': 'ALLOGRAFT_POLICY=native',
    'nocache': 'ALLOGRAFT_POLICY=pool|ALLOGRAFT_CACHE=0',
    'tiny': 'ALLOGRAFT_POLICY=pool|ALLOGRAFT_CACHE=20KiB|ALLOGRAFT_PENDING=20KiB|'
            'ALLOGRAFT_POOL_KEEP=0',
    # Calls that can wait are timed: the hooks go another way.
    'waits': 'ALLOGRAFT_WAITS=1',
    'sleep': 'ALLOGRAFT_WAIT=sleep',
    'sauto': 'ALLOGRAFT_WAIT=auto',
    'nwaits': 'ALLOGRAFT_WAITS=1|ALLOGRAFT_POLICY=native|ALLOGRAFT_FREE=sync',
    # Pinned memory that is kept; with little room, where its frees are watched and where they are not.
    'pinned': 'ALLOGRAFT_HOST=cache',
    'ptiny': 'ALLOGRAFT_HOST=cache|ALLOGRAFT_HOST_CACHE=20KiB|ALLOGRAFT_POLICY=native',
    'pfast': 'ALLOGRAFT_HOST=fast',
    'pmix': mixed('size<2KiB:host=native', 'nth=1..30:host=fast', '*:host=cache'),
    'off': 'ALLOGRAFT_DISABLE=1',
    # Copies: on a device that reaches pageable memory by itself they stay the driver's.
    'ccrew': CREW,
    'pcrew': CREW + '|ALLOGRAFT_POLICY=pool|ALLOGRAFT_FREE=sync',
    'reaches': CREW + '|SIM_ATTRIBUTES=88=1,100=1',
    # Managed memory of every kind.
    'plain': 'ALLOGRAFT_POLICY=managed|ALLOGRAFT_MANAGED_BACKEND=plain|ALLOGRAFT_ACCESS=peers',
    'mpool': 'ALLOGRAFT_POLICY=managed|ALLOGRAFT_MANAGED_BACKEND=pool|ALLOGRAFT_PREFER=none|'
             'ALLOGRAFT_ACCESS=none|ALLOGRAFT_PREFETCH=off',
    'host': 'ALLOGRAFT_POLICY=managed|ALLOGRAFT_PREFER=host|ALLOGRAFT_READ_MOSTLY=1',
    'mtiny': 'ALLOGRAFT_POLICY=managed|ALLOGRAFT_CACHE=20KiB|ALLOGRAFT_PENDING=20KiB',
    'launch': 'ALLOGRAFT_POLICY=managed|ALLOGRAFT_MANAGED_BACKEND=plain|ALLOGRAFT_PREFETCH=launch',
    'async': mixed('size<32KiB:async=managed') + '|ALLOGRAFT_APP_POOL_KEEP=max',
    'mix': mixed('size<=2KiB:pool', 'size=4KiB..16KiB:managed,backend=plain,prefer=host',
                 'nth=1..20:native', 'size>1MiB:managed,prefetch=launch', 'nth=20..60:auto', '*:pool'),
    'mix2': mixed('nth=3:managed,read_mostly', 'nth=7..40:managed,backend=pool,prefetch=off',
                  'device=1:native', 'size>=1MiB:native', 'size<20KiB,size>1KiB:managed,prefer=none',
                  'from=diff-program:pool'),
    # Budgets: what does not fit goes to the host, or is refused.
    'spill': limited(3, 'ALLOGRAFT_POLICY=pool|ALLOGRAFT_OOM=spill|DIFF_SPILL=1'),
    'unspill': limited(6, 'ALLOGRAFT_POLICY=pool|ALLOGRAFT_OOM=spill|ALLOGRAFT_UNSPILL=1|DIFF_SPILL=1'),
    'mspill': limited(4, 'ALLOGRAFT_POLICY=managed|ALLOGRAFT_OOM=spill|ALLOGRAFT_UNSPILL=1|'
                         'DIFF_SPILL=1'),
    # Memory that lies on the device or the host, piece by piece.
    'move': limited(6, PAGE),
    'pmove': limited(4, PAGE + '|ALLOGRAFT_POLICY=pool'),
    'nmove': limited(3, PAGE + '|ALLOGRAFT_POLICY=native|ALLOGRAFT_CACHE=0'),
    'smove': limited(5, PAGE + '|ALLOGRAFT_FREE=sync'),
    # What is on the host stays there.
    'omove': limited(6, PAGE + '|ALLOGRAFT_FREE=ordered'),
    'amove': limited(6, PAGE + '|ALLOGRAFT_RULES=*:async=page'),
    'cmove': limited(6, PAGE + '|' + CREW),
    # With --large: a thread makes memory of the host ahead.
    'hmove': limited(32, PAGE + '|ALLOGRAFT_CACHE=0'),
    'lmove': limited(6, PAGE + '|ALLOGRAFT_PREFETCH=launch|' + mixed('size=64KiB..1MiB:managed,backend=plain')),
    'limit': limited(8, 'ALLOGRAFT_POLICY=pool|ALLOGRAFT_OOM=error|DIFF_ROOM=%d' % (8 * MIB)),
    'aspill': limited(6, 'ALLOGRAFT_OOM=spill|ALLOGRAFT_UNSPILL=1|DIFF_SPILL=1'),
    'alimit': limited(8, 'ALLOGRAFT_OOM=error|DIFF_ROOM=%d' % (8 * MIB)),
    'slimit': limited(24, 'ALLOGRAFT_OOM=error|DIFF_ROOM=%d' % (24 * MIB)),
    'mlimit': limited(8, 'ALLOGRAFT_POLICY=managed|DIFF_ROOM=%d' % (8 * MIB)),
    # Cards that are full, and pools that never have room.
    'poolless': 'ALLOGRAFT_POLICY=pool|SIM_FAIL=cuMemAllocFromPoolAsync:0:2|DIFF_TWIN=1',
    'full': 'ALLOGRAFT_POLICY=pool|DIFF_MEMORY=18MiB|DIFF_TOTAL=%d|DIFF_CARD=%d|DIFF_TWIN=1' % (18 * MIB, 18 * MIB),
    'afull': 'DIFF_MEMORY=18MiB|DIFF_TOTAL=%d|DIFF_CARD=%d|DIFF_TWIN=1' % (18 * MIB, 18 * MIB),
    # All of the card is kept, and launches need some of it.
    'kfull': 'DIFF_MEMORY=18MiB|DIFF_TOTAL=%d|DIFF_CARD=%d|DIFF_TWIN=1|ALLOGRAFT_CACHE=max' % (18 * MIB, 18 * MIB),
    'kpool': 'DIFF_MEMORY=18MiB|DIFF_TOTAL=%d|DIFF_CARD=%d|DIFF_TWIN=1|ALLOGRAFT_CACHE=max|ALLOGRAFT_POLICY=pool|'
             'ALLOGRAFT_POOL_KEEP=max' % (18 * MIB, 18 * MIB),
    'mfull': 'DIFF_MEMORY=18MiB|DIFF_TOTAL=%d|DIFF_TWIN=1|ALLOGRAFT_POLICY=managed|'
             'ALLOGRAFT_OVERSUBSCRIBE=1' % (18 * MIB),
    'fullspill': 'ALLOGRAFT_POLICY=pool|DIFF_MEMORY=18MiB|DIFF_TOTAL=%d|DIFF_TWIN=1|ALLOGRAFT_OOM=spill|'
                 'ALLOGRAFT_UNSPILL=1|DIFF_SPILL=1' % (18 * MIB),
}
# Guards around blocks: right programs, in which nothing may be found.
POLICIES.update({
    'poison': 'ALLOGRAFT_GUARD=poison',
    'ppoison': 'ALLOGRAFT_GUARD=poison|ALLOGRAFT_POLICY=pool',
    'mpoison': 'ALLOGRAFT_GUARD=poison|ALLOGRAFT_POLICY=managed',
    'canary': 'ALLOGRAFT_GUARD=canary',
    'pcanary': 'ALLOGRAFT_GUARD=canary|ALLOGRAFT_POLICY=pool',
    'mcanary': 'ALLOGRAFT_GUARD=canary|ALLOGRAFT_POLICY=managed|ALLOGRAFT_MANAGED_BACKEND=plain',
    'ncanary': 'ALLOGRAFT_GUARD=canary|ALLOGRAFT_POLICY=native',
    'page': 'ALLOGRAFT_GUARD=page',  # a driver keeps no SYNC_MEMOPS of its memory: --without shares
    'gcanary': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GUARD=canary'),
    'gpoison': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GUARD=poison|ALLOGRAFT_POLICY=pool'),
})
# With --iterations: repeated work is launched as graphs.
POLICIES.update({
    'g': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_POLICY=pool'),
    'gauto': graphs('ALLOGRAFT_GRAPH_PROFIT=0'),
    'gdefault': 'ALLOGRAFT_GRAPH=all',
    'gprofit': graphs('ALLOGRAFT_GRAPH_PROFIT=1|ALLOGRAFT_GRAPH_WARMUP=2'),
    'gpinned': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_HOST=cache'),
    'gwaits': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_WAITS=1'),
    'gsleep': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_WAIT=sleep'),
    'g4': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_SEGMENT=4'),
    'g16': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_SEGMENT=16|ALLOGRAFT_POLICY=native'),
    'gwhole': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_SEGMENT=4096|'
                     'ALLOGRAFT_GRAPH_HOLD_US=5000'),
    'gsync': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_ITERATION=sync|'
                    'ALLOGRAFT_GRAPH_WARMUP=2|ALLOGRAFT_GRAPH_HOLD_US=100000'),
    'gfew': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_GRAPHS=2|ALLOGRAFT_GRAPH_STAGING=2|'
                   'ALLOGRAFT_GRAPH_STAGING_SLOT=4KiB'),
    'gslot': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_STAGING=1|'
                    'ALLOGRAFT_GRAPH_STAGING_SLOT=4KiB|ALLOGRAFT_POLICY=native'),
    # Nodes cannot be changed.
    'grefused': graphs('ALLOGRAFT_GRAPH_PROFIT=0|SIM_FAIL=cuGraphExecKernelNodeSetParams_v2:0:1,'
                       'cuGraphExecMemsetNodeSetParams:0:1,cuGraphExecMemcpyNodeSetParams:0:1'),
    'gmove': graphs(limited(6, 'ALLOGRAFT_GRAPH_PROFIT=0|' + PAGE)),
    'gspill': graphs(limited(6, 'ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_POLICY=pool|ALLOGRAFT_OOM=spill|ALLOGRAFT_UNSPILL=1|'
                                'DIFF_SPILL=1')),
    'gcrew': graphs('ALLOGRAFT_GRAPH_PROFIT=0|' + CREW),
    'gmanaged': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_POLICY=managed'),
    'glaunch': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_POLICY=managed|'
                      'ALLOGRAFT_MANAGED_BACKEND=plain|ALLOGRAFT_PREFETCH=launch'),
    'gtiny': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_CACHE=20KiB|ALLOGRAFT_PENDING=20KiB|'
                    'ALLOGRAFT_POOL_KEEP=0|ALLOGRAFT_GRAPH_HOLD_US=5000'),
    'glegacy': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_HOLD_US=5000', 'legacy'),
    'gnonblocking': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_POLICY=native', 'nonblocking'),
    'gverify': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_VERIFY=1|'
                      'ALLOGRAFT_GRAPH_HOLD_US=5000'),
    'gnth': graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_HOLD_US=5000', 'nth:1,per-thread'),
})
# The program against itself under another schedule: what differs, its generator has left open.
POLICIES['eager'] = 'ALLOGRAFT_DISABLE=1|SIM_SCHED=eager'


def any_settings(number):
    """Settings that the number draws: what no policy above combines."""
    draw = random.Random(number).choice
    drawn = [draw(choices) for choices in (
        ('', 'POLICY=pool', 'POLICY=native', 'POOL_KEEP=64KiB'),
        ('', '', 'FREE=sync', 'FREE=ordered'),
        ('', '', 'CACHE=0', 'CACHE=20KiB|ALLOGRAFT_PENDING=20KiB'),
        ('', '', 'SLAB=0', 'SLAB=256KiB'),
        ('', '', '', 'GUARD=poison', 'GUARD=canary'),
        ('', 'HOST=cache', 'HOST=fast', 'HOST=cache|ALLOGRAFT_HOST_CACHE=20KiB'),
        ('', 'WAIT=sleep', 'WAIT=auto'),
        ('', '', 'WAITS=1'),
    )]
    more = [
        draw(('', CREW)),
        draw(('', '', graphs('ALLOGRAFT_GRAPH_PROFIT=0'), graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_HOLD_US=5000'),
              graphs('ALLOGRAFT_GRAPH_PROFIT=0|ALLOGRAFT_GRAPH_SEGMENT=4'))),
        draw(('', '', limited(5, 'ALLOGRAFT_OOM=spill|ALLOGRAFT_UNSPILL=1|DIFF_SPILL=1'),
              limited(6, PAGE), limited(5, PAGE),
              limited(8, 'ALLOGRAFT_OOM=error|DIFF_ROOM=%d' % (8 * MIB)))),
    ]
    if 'OOM=error' in more[-1]:  # what poison keeps is the driver's again only once the device is idle
        drawn[4] = ''
    return '|'.join(['ALLOGRAFT_' + setting for setting in drawn if setting] + [setting for setting in more if setting])


def settings(name):
    """Of a policy above, or of any1, any2, ...; KeyError: there is none of that name."""
    number = re.fullmatch(r'any(\d+)', name)
    return any_settings(int(number[1])) if number else POLICIES[name]


def names(text):
    """Names with commas; any1-9 are nine of them."""
    for name in text.split(','):
        several = re.fullmatch(r'any(\d+)-(\d+)', name)
        yield from ['any%d' % n for n in range(int(several[1]), int(several[2]) + 1)] if several else [name]


def prefers_host(its_settings):
    """Some managed memory, that which was spilled for example, is to lie on the host."""
    return 'spill' in its_settings or 'prefer=host' in its_settings.lower()


def is_soft(its_settings):
    """Managed memory says truthfully that it is managed."""
    return 'managed' in its_settings or 'spill' in its_settings
