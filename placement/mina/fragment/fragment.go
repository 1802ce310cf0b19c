// Package fragment places jobs on the hosts of a tree of pods so that few fragments
// arise. It is the first of MINA's three modules ("MINA: Fine-grained In-network
// Aggregation Resource Scheduling for Machine Learning Service", INFOCOM '24, section
// III-B): jobs in few fragments have small aggregation trees, and small trees seldom
// want the same switches.
//
// Pods that are wholly free, or wholly of one job, are one fragment, whatever is in them;
// a host is the smallest pod. A placement is judged by its score
//
//	A + alpha·B
//
// where A is how many fragments the new job has, and B how many the hosts have that stay
// free. Minimal finds the least score there is, on trees of any height whose pods have
// any number of children, also unequal ones.
//
// # What the listing says, and what is done here
//
// Algorithm 1 of the paper is a dynamic program over the children of a pod, within each
// over theirs. In print, line 16 asks the i-th child for j hosts and lines 17 to 19 add
// that to what the first i-1 children give for j: k, over which line 15 loops, is not
// used, and too many hosts are counted. As the recurrence above the listing has it, the
// i-th child gives k hosts and the first i-1 children j-k. The "pod" of lines 3 and 5 is
// the number of fragments of free hosts in it.
//
// The same minimum is found here with less work, because of what the listing does not
// use: in a pod that is not wholly free nothing can become one fragment, so that its
// score is the sum of its children's. Only the fragments of free hosts are left to decide
// on, and those of equal shape are equal. So
//
//  1. for every shape of pod there is a table of what it costs to take j hosts out of a
//     free one, and out of q free ones. It depends on the tree and alpha alone and is
//     kept from call to call;
//  2. a call convolves the tables of the shapes that are free, of which a regular tree has
//     one per level;
//  3. then it chooses which of the fragments of each shape are used.
//
// The listing itself, corrected, is in the tests, which hold Minimal to it and to
// all sets of hosts, tried one by one.
//
// # What the paper leaves open
//
//   - Ties. Of equal scores, the one with fewer fragments of the job is taken; it has more
//     free ones, by 1/alpha for each. Of fragments of equal shape those are used that are
//     near each other: all in one pod that is as small and as full as possible, else most
//     of them in one. The rest of the ties goes to earlier pods, as all do in the authors'
//     simulator. Nearness is a greedy choice: fewer switches are not guaranteed.
//   - Line 4 looks at the free hosts of a pod, all of which a job may take. Whether they
//     are then one fragment is not said; by the definition in the text, and in the
//     authors' simulator, they are as many as before.
//   - A pod with one child is one fragment whenever that child is.
//   - alpha is a weight, 0.5 by default; here it is rounded to a multiple of 2^-20, and
//     sums are exact. Above 1 it favours taking many small fragments.
//   - Hosts that are broken, or used by somebody else, are taken hosts.
//
// # Baselines
//
// FirstFit is that of the paper's Table I; Random and Consolidate are two more. In 20,000
// jobs of one of the reference's traces on 1,024 hosts, which a queue keeps full
//
//	go test ./placement/mina/fragment -run '^$' -bench Jobs -benchtime 1x -fragment.seed 1
//
// the mean job on several hosts has 10.3 fragments and 5.8 pods below its root with
// Minimal, 11.7 and 6.0 with Consolidate, 13.3 and 10.9 with FirstFit, 13.5 and 20.3 with
// Random. There an alpha of 0, 0.5 or 0.75 gives the same placements: full hosts leave
// little to choose.
package fragment

import (
	"errors"
	"fmt"
)

// DefaultAlpha is the weight that the paper uses.
const DefaultAlpha = 0.5

// Errors of this package.
var (
	ErrRequest  = errors.New("no number of hosts")
	ErrTooLarge = errors.New("too large")
	ErrNoRoom   = errors.New("not enough free hosts")
	ErrTree     = errors.New("not a tree of pods")
	ErrHost     = errors.New("not such a host")
	ErrAlpha    = errors.New("alpha out of range")
)

// Policy chooses hosts for jobs.
type Policy interface {
	Name() string

	// Place returns n free hosts in ascending order, and takes none of them: that is up
	// to the caller. Errors are ErrRequest where n is below 1, ErrTooLarge where the
	// tree has fewer hosts, and ErrNoRoom where fewer are free now.
	Place(o *Occupancy, n int) ([]int, error)
}

// check finds what no policy can place.
func check(o *Occupancy, n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("place a job on %d hosts: %w", n, ErrRequest)
	case n > o.t.Hosts():
		return fmt.Errorf("place a job on %d hosts of %d: %w", n, o.t.Hosts(), ErrTooLarge)
	case n > o.Free():
		return fmt.Errorf("place a job on %d hosts, %d are free: %w", n, o.Free(), ErrNoRoom)
	}
	return nil
}
