/* The constants of replay's heuristics, in one place: each with its unit and what it was measured
 * to be good for. None of them decides whether what is computed is right; all decide how fast. How
 * the heuristics work together stands in graph/replayer.h; figures are of an H200, see
 * docs/performance.md. Sizes of tables that only bound memory stay where the tables are.
 *
 * AG_UNWAITED_ITERATION belongs here, too, but the report explains it:
 * interpose/core/report/stats.h. */
#ifndef AG_GRAPH_TUNING_H
#define AG_GRAPH_TUNING_H

/* --- ends of segments: learn/history.c; lengths are operations --- */

/* Without a flush a segment is at least so long; the first one after a flush is shorter, so that
 * the device starts early; the cap: building 128 nodes takes 0.4 ms, launching them 2 us. */
#define AG_LENGTH_SHORTEST 16u
#define AG_LENGTH_FIRST    4u
#define AG_LENGTH_CAP      128u
/* A segment that becomes a graph: three operations are as fast one by one. */
#define AG_LENGTH_WORTH_GRAPH 4u
/* A segment is built once it has come so often that going without has cost what building costs: ns,
 * of an H100. A graph takes 20 us and 1.2 for each node, the first one of a process 70 more, the
 * first pinned slots for copies from pageable memory 450. */
#define AG_BUILD_NS       20000u
#define AG_BUILD_OP_NS    1200u
#define AG_BUILD_FIRST_NS 70000u
#define AG_BUILD_SLOTS_NS 450000u
#define AG_SAVED_OP_NS    2500u
#define AG_LAUNCH_NS      2500u
/* A segment should come together within ALLOGRAFT_GRAPH_HOLD_US times this. */
#define AG_LENGTH_HOLD_SHARE 2u
/* Each segment is so many times as long as the one before: the device, which takes a microsecond
 * for an operation at least, must not run dry while the next segment comes together. SLOW where
 * nodes are updated (an operation then costs the host nearly as much as the device: 0.6 and 0.8
 * us). */
#define AG_GROWTH_SECOND 4u
#define AG_GROWTH_LATER  3u
#define AG_GROWTH_SLOW   2u

/* Flushes in a row before which most nodes of a graph had to be updated, or none: then lengths grow
 * more slowly, or as before. Payloads that come in turns are foreseen before that (variants.c). */
#define AG_UPDATES_VOTES_SOME 24u
#define AG_UPDATES_VOTES_NONE 96u

/* Operations that one rolling hash covers: as many as the usual shortest segment. */
#define AG_ROLLING_OPS 16u
/* The longest iteration that is found. */
#define AG_HISTORY_WINDOW 65536u
/* How long a candidate anchor must stay the smallest hash, at first; it doubles. */
#define AG_ANCHOR_PROBATION 256u
/* Operations without a flush after which anchors end segments: iterations lie between flushes
 * where these come more often. Flushes further apart than the second say nothing of iterations. */
#define AG_ANCHOR_UNFLUSHED 512u
#define AG_ANCHOR_BETWEEN   8192u
/* No segment ends so shortly before a flush that fewer operations than this are left. FIRST beside
 * a first graph that has just been launched: another graph takes the device 2 us more, as long as
 * the host takes to come to the end (iterations of 12 operations: 20.2 us in two graphs, 19.3 in
 * one; of 20 operations: 27.7 in two, 29.0 in one). */
#define AG_TAIL_LEAST 7u
#define AG_TAIL_FIRST 10u

/* --- the pace of the program: learn/history.c --- */

/* Operations of a segment between two looks at the clock; the first look comes early, for
 * iterations that end soon. */
#define AG_PACE_EVERY 32u
#define AG_PACE_FIRST 8u
/* The smallest cap where operations come slowly: graphs of 8 gain a slow program nearly as much as
 * longer ones (2.3 and 2.5 us of 2.7 an operation), and less is left to do when the host waits. */
#define AG_PACE_LEAST_CAP 8u
/* ns that the driver takes for an operation that is not withheld: not the program's pace. */
#define AG_PACE_EAGER_NS 4000u
/* Looks in a row that ask for a shorter cap, for a longer one. */
#define AG_PACE_VOTES_SHORTER 4u
#define AG_PACE_VOTES_LONGER  64u
/* --- which streams are sampled: learn/backoff.c; operations --- */

/* Credit of a new stream, and after a back-off. */
#define AG_BACKOFF_FIRST_CREDIT 2048
#define AG_BACKOFF_LATER_CREDIT 512u
/* Operations before a new stream is sampled the first time: creating what sampling needs takes the
 * host half as long as a launch. The number doubles with every AG_BACKOFF_FRUITLESS streams in a
 * row that gained nothing, AG_BACKOFF_DOUBLED_MOST times at most. */
#define AG_BACKOFF_NEW          32u
#define AG_BACKOFF_FRUITLESS    4u
#define AG_BACKOFF_DOUBLED_MOST 7u
/* Credit that an operation of a segment too short for a graph costs, others cost 1; and what each
 * one launched in a graph earns: that saves several times what sampling costs. */
#define AG_BACKOFF_SHORT_COST 4
#define AG_BACKOFF_GAIN       8
/* Bounds of a back-off, and its part of the operations since the stream last gained. */
#define AG_BACKOFF_LEAST 4096u
#define AG_BACKOFF_MOST  65536u
#define AG_BACKOFF_SHARE 4u
/* Part of the back-off before it that is sampled, where that is more than the later credit; and the
 * part that waiting for the same period once more may take. */
#define AG_BACKOFF_SAMPLED_SHARE 64u
#define AG_BACKOFF_RETRY_SHARE   16u
/* Iterations of a period that are waited for: history.c needs two or three, graphs some more. */
#define AG_BACKOFF_ITERATIONS 4u
/* Credit that is added, four times as much each time, to see how long the iterations are of which
 * parts were met before the back-off. */
#define AG_BACKOFF_FIRST_PROBE 2048u
#define AG_BACKOFF_MOST_PROBE  (AG_HISTORY_WINDOW + 8192u)
/* Rolling hashes remembered: the last ones; and one in 16 of all, for longer periods (less of that
 * table during the first sampling, so that few pages are touched). How many must be met again at
 * one distance. */
#define AG_BACKOFF_NEAR       256u
#define AG_BACKOFF_FAR        4096u
#define AG_BACKOFF_FAR_FIRST  512u
#define AG_BACKOFF_NEAR_MEETS 8u
#define AG_BACKOFF_FAR_MEETS  3u

/* Operations that a thread passes on its fast path before it looks at the stream again. */
#define AG_FAST_PATH_BATCH 64u

/* --- what is kept of segments: learn/matcher.c --- */

/* Nodes of a stream's trie. */
#define AG_MATCHER_NODES (1u << 16)

/* --- which graph of a segment: learn/variants.c --- */

/* Graphs of one segment; operations by which sets of payloads are told apart; sets remembered. */
#define AG_VARIANTS_MOST       32u
#define AG_VARIANTS_PROBES     4u
#define AG_VARIANTS_REMEMBERED 32u
/* A launch that updates more than a fourth of the nodes asks for another graph; one is built when
 * updates, in all, cost what four updates of the whole graph cost. */
#define AG_VARIANTS_WORTH_SHARE 4u
#define AG_VARIANTS_RENT        8u
/* Launches without being picked, after which a graph may be changed for other payloads. */
#define AG_VARIANTS_STALE (8u * AG_VARIANTS_MOST)
/* Nothing is foreseen where that was wrong so many times more often than right. */
#define AG_VARIANTS_TOLERANCE 4u

/* Graphs of one iteration that are updated for the next one while the host waits. */
#define AG_FORESEEN_MOST 16u
/* Bytes of the host's memory that payloads for that may take in all. */
#define AG_FORESEEN_BYTES (32u << 20)
/* Nodes between two looks whether the device is still busy. */
#define AG_FORESEEN_PIECE 16u

/* --- is replay faster: learn/profit.c; iterations --- */

/* Iterations in which graphs are built are not compared, up to so many: building ends some time. */
#define AG_PROFIT_BUILDING 64u
/* Operations between two waits of the host, at most, that make an iteration. */
#define AG_WAITED_MOST 8192u

/* Iterations of each way that one comparison looks at. */
#define AG_PROFIT_SAMPLES 9u
/* Iterations of the way that is kept, the last ones, that are looked at between comparisons. */
#define AG_PROFIT_WATCHED 8u
/* The ways take turns of so many iterations. The first of a turn does not count: in it the host
 * waits for what those of the other way left on the device. */
#define AG_PROFIT_PHASE 4u
/* Iterations of each way that may be clear enough to end a comparison, or to spare it. */
#define AG_PROFIT_CLEAR 3u
/* A time is plainly less than another if even so many tenths of it are less. */
#define AG_PROFIT_PLAIN_TENTHS 13u
/* A way counts as slower if it takes a hundredth more time. */
#define AG_PROFIT_SLOWER_SHARE 100u
/* The share of all the time that the slower way may take on purpose. */
#define AG_PROFIT_COST_SHARE 200u
/* Iterations until the next comparison: the first interval, which doubles while the answer stays,
 * and the last. */
#define AG_PROFIT_FIRST_INTERVAL 64u
#define AG_PROFIT_LAST_INTERVAL  65536u
/* Iterations that could not be compared, after which a comparison is given up. */
#define AG_PROFIT_GIVE_UP (16u * AG_PROFIT_SAMPLES)
/* Operations that a segment must have for its time to be evidence of what an operation takes that
 * passes. */
#define AG_PROFIT_EVIDENCE_OPS 4u

/* --- graphs: replay/segment.c, replay/builder.c --- */

/* Times that building or launching a segment's graph may fail before it stays without. */
#define AG_GRAPH_REFUSALS 3u
/* Bytes of the device's memory for each node of an executable: 12 MiB for 5000 nodes. */
#define AG_GRAPH_NODE_BYTES 2560u

/* --- waits, in ns --- */

/* How long a thread waits for another one that owns a stream, before a call that may itself be what
 * lets that one go on; and at the end of the process, for work that was submitted late. */
#define AG_OWNER_TIMEOUT_NS 100000000u
#define AG_EXIT_TIMEOUT_NS  100000000u
/* How long a copy waits for the oldest pinned slot; then it is left to the driver, which may
 * wait. */
#define AG_STAGING_TIMEOUT_NS 500000u
/* The watchdog looks twice in ALLOGRAFT_GRAPH_HOLD_US. Looks that one epoch of withholding may last
 * while operations come; looks at nothing, before it sleeps. */
#define AG_WATCHDOG_EPOCH_LOOKS 8u
#define AG_WATCHDOG_IDLE_LOOKS  200u

#endif
