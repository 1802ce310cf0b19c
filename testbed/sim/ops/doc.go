// Package ops simulates training jobs operation by operation: when each computes, when it
// reduces gradients and whether the switches help, on a fat-tree whose switches or links
// serve few jobs at once. It is the simulator of MINA (INFOCOM '24, section V), in virtual
// time and on the cost model of its authors' (github.com/ClubieDong/MinaSimulator).
//
// # The model
//
// A step of a job computes for Pattern.Step seconds. Its all-reduces run one after the
// other, each not before its Start, and take tree.Cost: a latency, and the bytes at a
// bandwidth that INA multiplies. The step ends with the last of them or with its
// computation, whatever is later. Links are not shared: other jobs slow nobody down but by
// having INA when somebody else wants it.
//
// Jobs come at Job.Submit and wait in a queue in the order of the list; the first of them
// holds up all others until its hosts are free. When jobs have come, hosts are chosen and
// trees built (package mina), and where several jobs share a tree, Config.Sharing says
// before each operation whether it has INA. A job that gets another tree ends the
// operation that runs on the old one first, and nobody uses what that has until then.
// Config.Migration is what it takes besides; operations go without INA meanwhile.
//
// # How it is so fast
//
// Only jobs whose trees conflict with each other's depend on each other. All others are
// not looked at until they finish or trees are built again: their steps are all alike, and
// so are counted instead of run.
//
// # What comes out
//
// The INA efficiency score says where the mean job completion time lies between that
// without INA, 0, and that with INA for every operation, 1. The models' steps may be bound
// by computing, and then that range is small: Score always has both ends of it.
//
// On the paper's fat-tree of NDR switches, with lists of 2,000 jobs from its ten histograms,
// k = 5 and the rule of its authors, the mean score is 0.993 ± 0.001 (their code: 0.976);
//
//	go test ./testbed/sim/ops -run Figure -v -args -seeds 10
//
// says so, and what comes of oversubscription and other k. It is above theirs because
// jobs are placed with more regard for each other's switches and because more trees that
// do not conflict are found; little is left to share. With HDR switches much is, and there
// Thrifty is the better rule: 0.999 where Mina has 0.98 (1,000 jobs, by hosts, trees by
// what jobs gain, groups merged). Where the network is the bottleneck, HDR's leaf switches
// are the limit: jobs that have one together need it for more time than there is.
//
// The score of the baseline depends much on what is taken for it. First trees with Greedy
// sharing have 0.84 in the paper's words, mina.First, since a job keeps a tree that it got;
// 0.61 with mina.FirstIdle; and 0.28 if besides one job of a group has INA at a time,
// WholeGroup, as in the authors' code, whose own figure is 0.23. It is a reading of that code
// and not a copy: on other lists it is below theirs or above, by up to 0.06.
package ops
