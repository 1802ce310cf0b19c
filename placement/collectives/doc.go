// Package collectives has collective operations as data: which part of a vector each
// worker sends to whom, phase by phase (Schedule), and what of that matters to whoever
// places workers: how much goes from whom to whom (Pattern).
//
// Workers are numbered from 0. All begin with a vector of the same size K, cut into
// chunks of equal size. In a phase all transfers happen at once: what is sent is what the
// sender had when the phase began. Phases follow each other; a worker that has nothing to
// do in one goes on to the next.
//
// # Who reads schedules
//
// A collective operation is data (placement/collectives): who sends which part of a vector to whom
// in which phase. Four things read it, so they cannot disagree: Titan places workers by its
// pattern, the replay of a trace adds its time with a barrier after each phase, as Titan's paper
// does, ranks walk it over TCP (testbed/collective's mesh), and Schedule.Seconds predicts what they
// do, without barriers, on max-min shares of the links. What a testbed's transfers get (latency,
// rate) is calibrated; nothing else of the prediction is fitted.
//
// A connection of the mesh carries one way only, because acknowledgements behind data of the other
// direction cost 15 % of the time. A sender is in a phase until it has heard that all of it came:
// kernels' buffers take small transfers long before the link has.
package collectives
