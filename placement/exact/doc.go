// Package exact has small batches of jobs to be placed, as data and as text (Instance). Its tests place them as well as it
// can be done, so that the policies that place large ones can be held against it: what solves them ships in no program,
// and is in files of tests.
//
// The problem is that of Table 3 (NetPack, ASPLOS '24, section 5.1): minimise the sum
// over jobs of d/v, the time that each communicates, where d is a job's size and v its
// rate. Jobs on one server cost nothing. All jobs of the cluster count, also those that
// run already: they stay where they are, but the batch can slow them down.
//
// Table 3 is called a mixed integer program there, but as printed it is none that a
// solver for linear programs takes. It is bilinear: constraint 3 multiplies placements
// with rates (x·v, y·x·b), constraints 7 and 8 rates with choices, and the objective
// divides by rates. And it lets the solver choose the rates freely within the
// capacities, while jobs in a network with statistical INA get what max-min fairness
// gives them: Table 3 would starve a job to speed up three others, and no placement
// makes that happen. Here the rates are those of Algorithm 1, which the policies use as
// well (cluster.Rate); what Table 3 would choose freely serves as the bound of the search.
//
// There are two ways to the optimum, of the same cost. Solve enumerates placements, with
// a bound from below (bound_test.go); that nothing is missed is checked by trying everything
// (TestSolveMissesNothing). With Options.Solver it has a solver prove the optimum of a
// mixed integer linear program instead, and counts what that placed by the same rates: tests
// hold the two against each other (TestProgramAgrees).
//
// # The program
//
// Variables are the paper's, in units of the fastest link: x, w and y of each job and
// server, z of each job and rack, v of each job. a is Table 3's aggregated throughput, but by
// rack, as a job can be aggregated in one and no longer in another, and the unaggregated b is
// v-a. To each of the paper's constraints:
//
//	(1) GPUs of a server      as printed, of those that are free
//	(2) GPUs of a job         as printed
//	(3) link of a server      x·v is f, and y times what the PS gets is g. The PS gets the root
//	                          rack's a; above it, from each rack one stream as far as that rack
//	                          aggregates; beyond, v from each worker. Table 3 has one rack
//	(4) PAT                   as printed, for the a of the rack, which is the lesser of v and
//	                          theta, the rate at which the PAT runs out, where z is 1
//	(5) workers have GPUs     x <= w <= n·x, n what the job could have there
//	(6) a PS for many workers Σx - 1 <= (n-1)·Σy, and also Σy <= Σx - 1: no PS for one server
//	(7) no PS, no rate        v <= Σy
//	(8) no INA, nothing added a <= z, rack by rack
//	(9), (10)                 as printed
//
// The text of the paper swaps (1) and (2). What Table 3 lacks: links of racks (uplinks), as in
// Algorithm 1; z is 1 wherever a job passes, unless Options.SelectINA; and rates are max-min
// fair. For these, every job that sends has a link that is full, on which no job is faster, and a
// PAT that ran out is used up. That holds for the rates of Algorithm 1 and for no others: of two
// such sets of rates take the lowest rate at which they differ. There a link is full in one that
// carries as much in the other, where some job on it goes on.
//
// Products of a choice b with something e of at most m are variables p with p <= m·b, p <= e and
// p >= e - m·(1-b), which is exact. The lesser of two is a variable with a choice of which. d/v
// is linear nowhere: c is at least some tangents of 1/v (2/t - v/t², the 2 times Σy, so that a
// job without PS costs nothing), at v of 2/2, 2/3, 2/4 and so on, and the program costs d·c. That
// is never more than d/v, so that a solver's bound holds for placements too. Where the placement
// that it found costs more than Tolerance above it, tangents at that placement's rates are added, and the
// program is solved again.
//
// # Gaps
//
// How far policies are from the optimum, in 200 random batches for each PAT:
//
//	go test ./placement/exact -run '^$' -bench Gap -exact.gap 200 -exact.seed 1 -timeout 30m
//
// A gap is the cost with a policy over the least. Clusters have six servers of four GPUs in
// one to three racks, some of them oversubscribed 4:1; up to three jobs run, and two to
// four arrive that fit together (Random). The least cost is that with aggregation wherever
// a job passes, as baselines have it; NetPack, which chooses, can be below it, which counts
// as a gap of 1 and is listed. With -exact.select the optimum chooses as well, which takes
// many times longer. With -exact.solve milp it is cbc's (package cbc), in -exact.limit for each
// batch. Batches that are not solved within ten million placements, or in time, are left
// out and counted.
package exact
