// Package flow predicts steady-state rates of jobs that aggregate in the network:
// capacities, switch memory and aggregation trees in, rates out. It works on
// indices and knows nothing of names, so that everything above can share it.
//
// Two models answer the same Problem:
//
//   - WaterFill is NetPack's Algorithm 1 as published: links are undirected and
//     switch memory is a peak aggregation throughput shared max-min.
//   - Occupancy follows the packets: links have two directions, memory is M
//     aggregators that are held for a time T each, what a job gets of it depends
//     on how the switch addresses them, and links are shared per job (DRR). Where
//     a closed form says that exactly it is used, and elsewhere packets are
//     followed one by one (package packets).
//
// Units are decided once: every rate (link capacity, PAT, job rate, load) is in
// bit/s of frame bytes. A job's rate C is what each of its workers sends, so it
// reduces C/Packet PSNs per second. With Packet = 1 the unit is packets/s.
//
// # Predictions
//
// placement.Predict turns names into a flow.Problem: links with capacities, switches with memory,
// and per job a tree of nodes, each with the hold T at that switch. T comes from calibration, or
// before a run from the topology.
//
// waterfill is NetPack's Algorithm 1 as published (ASPLOS '24, section 4.2). All jobs grow at one
// speed. A full link freezes the jobs on it; a switch whose PAT runs out stops aggregating for jobs
// that still grow, whose flows above it leap from 1 to n. Cables are undirected, and memory is
// shared max-min. It does not ask how memory is addressed. The paper has no rings: what one sends
// and what it receives are in two directions of a cable, so it takes the one link that both are
// here once.
//
// occupancy follows the packets. Links have two directions; the load of a switch on its way up is
// C·(a + (1-a)·n); memory is M aggregators held for T each, and the share follows from the
// addressing:
//
//	addressing                                                     one job                             several
//	pool                                                           min(1, 1/u)                         every job the same fraction, min(1, 1/Σu)
//	hash                                                           1/(1+u)                             1/(1+Σu)
//	linear                                                         1/E[⌈u·h⌉], h = hold over its mean  no closed form
//	atp, at switches that get packets of hosts only; else as hash  1 while C·T ≤ W                     no closed form
//
// Rates and shares follow from each other; the model iterates to a fixed point, from empty queues.
// That is what packets do where memory is never short, and where paced jobs meet a hash at one
// switch each. Everything else is computed by placement/flow/packets, which follows packets one by
// one (some 1 s, or seconds where shares move for long): unequal jobs under linear and atp,
// levels of a tree, which decide alike where they have one hash and one size, memories that are
// short behind a queue (grants and queues take turns), and a rate limit whose window hardly
// suffices. It shares no code with the data plane, and a test runs random settings through both. A
// near worker hears a result first and sends first, so T at a switch above workers that are
// differently far is longer than the way to the PS and back. Where jobs keep one phase for good
// (equal rates under linear and atp), one run differs from another, and a share says by how much:
// as far as 95 % of runs, by Student's distribution of those that were followed.
//
// # A run that is followed
//
// On an emulation it is known when each job began (testbed.Pace), and no steady state is predicted
// but the run itself (flow.Replay): from its first start to its end, with the slots that jobs are
// given: four times over, which go side by side, in up to 96 million events each. Who joins meets memory and queues as those
// before it have left them, and a phase need not be long. Packets are counted where testbeds count
// them: on a host's link when the host hands them over, on a switch's when they come out, and
// results when workers have them. While queues grow these differ: rates by what waits, and shares
// are not what a switch grants. Where the run comes to a steady state that has a closed form, the
// phase has that. A phase of fewer than ten readings, or one that begins before a job can have had
// a result, fails by nothing: its ends are not counted. What packets have in a phase is held
// against what was counted there (results.Figure.OfRun), give or take a batch of readings: it is
// the same phase, and no mean of phases like it, so that nothing has to be told from readings that
// depend on each other before it passes. One that is off fails by its interval, as any other: that
// knows what differs in a testbed that nobody follows, such as a ring's TCP. Of five jobs under
// linear, whose shares beat with a period of 7.5 s, a phase of 41 s had .889, .886, .504, .930 and
// .953, and the run that was followed .892, .888, .502, .920 and .950; the mean over phases is that
// of no run. What nobody knows is drawn anew for each of at least four runs: the 10 ms within which
// jobs begin, where in a block a PSN is sent, and how late processes are that share a machine (a
// look at the ports 1/400 of the shortest round trip after the last one, and 7 to 60 us until it
// comes about, as a draw of the run says; round trips, by .5 % of what was calibrated). Some
// settings have several ways to go on and chance decides. A job of the same rate that joined one
// had all of a memory in one run, none in the next, and a half in another, as followed runs have it
// too: such a phase is held to the one of the runs in which all goodputs, shares and loads came as
// they were measured, within half a tolerance (Result.Each), and where there is none it is undecided
// (INA-VARIES). Others have one way, and leave it when they are
// pushed. Under linear, windows of 969 found each a slot of 726, as most of each waited in its
// worker's own queue, until a worker stood still for a fifth of a round trip; then the others took
// each other's slots for good, and 12.8 Mbit/s became 4.2. Where a followed phase is less than
// predicted, the run is followed again with one process that stands still once, for half a round
// trip (Lag.Hitch, run.tipped); what lies between the two is undecided, and what does not fails.
// And where somebody stood still, jobs that index a memory by PSN are no longer as far apart as they began: windows of 113
// and 301 of two jobs in 452 slots gave .86 of the first's sums in the runs that were followed, and all of them in one of
// 15 minutes in which switches stood still 295 times. Of two windows of 345 in 430 slots the first kept all and the second
// got none, at one rate, or the first had .32 and the second .76, at two, as the second began .3 s earlier or later. What
// lies within what jobs get that begin at any time within a turn of the memory is undecided there, too.
//
// # Damage
//
// Cables that lose, double or delay packets ([[link_state]]) are part of it: packets are followed
// with timeouts and resends, by the protocol's description. A share is then what is seen,
// (in-out)/(in-1) with resends and the sums that they push out; granted stays the part of PSNs that
// found memory. Links are predicted as their counters stand: what a host sends is counted before
// its cable damages it, what a switch sends after. In 100 random settings of .1 to 10 % loss,
// beyond what the few runs of each leave open, all loads of links are within 5 % of testbed/ina,
// 99.6 % of the rates too, and 99.4 % of the shares within .04 (go test ./placement/flow/packets
// -run TestLossAgainstProtocol -v -settings 100 -seed 1 -timeout 1h). A ring on such cables, AIMD,
// and the ends of messages, which wait for timeouts, are not: plan says so
// (placement.Prediction.Beyond), and such a phase is undecided where it would fail. So is one in
// which a job sent fewer than 1,600 packets again: each stops its window for a timeout, and what is
// predicted is the mean over many. Where a prediction leaves out damage, sim loses nothing; such a
// point is not judged there at all, and its health says what is left out.
//
// # Beginnings
//
// Following packets also tells after how long queues are as long as they stay (Prediction.Settled):
// a window of several hundred packets may take dozens of its turns to move from one link's queue to
// the next. A phase whose warm-up is less than half of that is undecided where it would fail. While
// a link is sent more than it carries nothing is steady, and what was counted then is counted
// again. A phase of fewer than 20 round trips of a job, queues included, is undecided where it
// would fail, too.
//
// # Changes
//
// flow.Steady is the state of WaterFill kept up to date while jobs come and go, at the cost of what
// changes. Everything in Algorithm 1 is decided by levels, and a level only by lower ones, so a
// change is carried upwards from where it begins. Policies, the trace simulator and the exact
// reference all ask the same one, through placement/cluster.
package flow
