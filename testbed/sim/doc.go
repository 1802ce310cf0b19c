// Package sim runs experiments in virtual time on a flow model: the same plan, the
// same counters, no packets. It needs nothing but an inventory.
//
// Time goes in steps of about a round trip, cut short where something happens: a
// layer's gradients become ready, a message ends, somebody reads the counters. A
// step moves every job by rate × length PSNs and adds what that means to all
// counters. Between steps three things are worked out anew:
//
//   - Memory. Switch memory is sampled, not solved: a switch has as many aggregators
//     as in the experiment, each taken until some time, and for up to a hold time
//     per step arriving PSNs, dithered and of jobs in random order, are granted or
//     denied one by one, as their addressing says; a hold varies by 3 %. The share that was
//     granted in the last hold stands for the next step. For the rest of a step the
//     switch's clock stands still, so that what is looked at is contiguous; where
//     more is in flight than a step looks at, a hold takes several steps; when jobs begin or
//     end, all of some holds is looked at at once. While
//     all windows are fixed, shares are those of the predictor occupancy
//     instead, of each set of jobs that send at once, as if it went on for ever: it follows packets where it has to; so what a switch does is an
//     independent check of the predictor on netns and in tests, and not here. When each job sends, and who with whom,
//     is this model's own. How a message that has just begun meets memory is left out: where that
//     is most of it, and memory is short, Health says so, and figures are not judged. The loads
//     and rates that follow from shares are this model's own.
//
//   - Links. A job loads every directed link of its tree with packets per PSN that
//     follow from the shares below (a + (1-a)·n at a switch that n packets of a
//     PSN enter), one result down every link, one per worker for unicast results.
//     An overloaded link is shared max-min by fair queues, of jobs or of their flows, and
//     in proportion to what is offered by fifo ones.
//
//   - Queues. What a job's window holds beyond rate × round trip waits at the link
//     that holds the job back, of several the one nearest the PS (Little's law). It
//     lengthens the round trip, and the hold at switches that do not have the queue
//     below them for all of their workers. With aimd the window grows by a few packets
//     a round trip and halves when its queue exceeds the ECN threshold, or the
//     buffer where no threshold is set.
//
//   - Damage. Over links that lose frames, double them or hold them back, rates, shares, resends and what
//     links carry are those of the predictor occupancy, of streams as long as the same jobs send; so
//     here too netns is the check of it, and tests in memory. How long the end of a message waits for
//     timeouts is left out, and what a ring or aimd makes of it, beside which nothing is lost. Health says
//     so, and such figures are not judged.
//
// Assumptions: workers of a job send alike; no queue overflows:
// buffers hold whatever windows allow; the first round trip of a stream counts
// like any other; stopping takes no time; a shared AIMD bottleneck with
// round trips far below 250 µs has coarser teeth than the real one. Sums are not
// carried. A ring's TCP is a fluid that takes what its links give, full segments one
// way and an acknowledgement of two of them the other; what an operation takes beyond
// that is collectives.RingTail.
//
// The same inventory, setup, seed and sequence of calls give the same bytes.
package sim
