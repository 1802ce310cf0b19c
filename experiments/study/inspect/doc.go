// Package inspect looks at what must hold of every run, whatever its experiment expects: jobs do what they were asked and
// get sums that are right, and who sent and who received tell of the same traffic. A run in which that is not so does not
// pass. Study does so for studies that leave it to the run; studies with phases add what only they know to an Inspection.
//
// # What holds
//
// What must hold of every run of jobs, in the model too, is looked at whatever its experiment
// expects (experiments/study/inspect): every job that is given memory gets results in all of every
// phase, ends when it is to, and does its iterations; sums, where there are any, were compared and
// are right; the two ends of every cable, workers and their PS, and switches and what left them
// tell of the same traffic. Each failure has a code and names who it is about.
//
// # Hops
//
// Packets of a job are counted wherever they are handed over: by workers, by each switch that adds
// up, by the PS, and back (placement/handover lists where, experiments/study/inspect/hops.go
// counts). A job that has ended has none on its way, so that what one part sent the next one
// received, to the packet. Where ports count what is lost and doubled on purpose, the same holds of
// all hops together: 5 % of loss does not hide a switch that is off by 5 %. Cables alone, which
// frames of many jobs pass, could not tell.
package inspect
