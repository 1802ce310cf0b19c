package collectives

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

// Transfer is a part of the vector that one worker sends another.
type Transfer struct {
	From, To int  // workers
	Lo, Hi   int  // the chunks Lo to Hi-1
	Add      bool // the receiver adds them to its own; otherwise it replaces its own
}

// Schedule is one operation of so many workers. Make one with a function of this package: less than one
// worker is one, which has nothing to send.
type Schedule struct {
	Name    string // as New knows it
	Workers int
	Chunks  int // that the vector is cut into
	Phases  int
	phase   func(t int, yield func(Transfer) bool)
}

// Phase are the transfers of a phase, counted from 0.
func (s Schedule) Phase(t int) iter.Seq[Transfer] {
	return func(yield func(Transfer) bool) { s.phase(t, yield) }
}

// Sentinels of New.
var (
	ErrName    = errors.New("no such collective")
	ErrWorkers = errors.New("no such number of workers")
)

// makers are the operations by name; those that need a choice have a fixed one.
var makers = []struct {
	name string
	make func(workers int) Schedule
}{
	{"ring", Ring},
	{"halving-doubling", HalvingDoubling},
	{"halving-doubling-near", HalvingDoublingNear},
	{"recursive-doubling", RecursiveDoubling},
	{"reduce-scatter", ReduceScatter},
	{"all-gather", AllGather},
	{"parameter-server", func(n int) Schedule { return ParameterServer(n, 1) }},
}

// Names are the operations that New makes.
func Names() []string {
	var out []string
	for _, m := range makers {
		out = append(out, m.name)
	}
	return out
}

// New makes an operation by its name. Errors wrap ErrName or ErrWorkers.
func New(name string, workers int) (Schedule, error) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return Schedule{}, fmt.Errorf("%w: %q", ErrName, name)
	}
	if workers < 1 {
		return Schedule{}, fmt.Errorf("%s: %w: %d", name, ErrWorkers, workers)
	}
	return makers[i].make(workers), nil
}

// ReduceScatter sums around a ring: worker i ends with the sum of chunk i, and parts of sums in
// the others. In each of n-1 phases every worker sends K/n to the next one.
func ReduceScatter(workers int) Schedule {
	return ring("reduce-scatter", max(1, workers), true, false)
}

// AllGather distributes around a ring: worker i begins with chunk i, and all end with all
// chunks. In each of n-1 phases every worker sends K/n to the next one.
func AllGather(workers int) Schedule { return ring("all-gather", max(1, workers), false, true) }

// Ring is the ring all-reduce: ReduceScatter, then AllGather. Every worker sends
// 2K(n-1)/n in 2(n-1) phases.
func Ring(workers int) Schedule { return ring("ring", max(1, workers), true, true) }

func ring(name string, n int, reduce, gather bool) Schedule {
	phases := 0
	if reduce {
		phases += n - 1
	}
	if gather {
		phases += n - 1
	}
	return Schedule{name, n, n, phases, func(t int, yield func(Transfer) bool) {
		add := reduce && t < n-1
		lag := t % (n - 1) // chunk i, i-1, … is passed on
		if add {
			lag++ // so that worker i ends with chunk i
		}
		for i := range n {
			c := (i + n - lag) % n
			if !yield(Transfer{i, (i + 1) % n, c, c + 1, add}) {
				return
			}
		}
	}}
}

// ParameterServer is an all-reduce by parameter servers that run beside the first
// workers, at least one and at most one beside each; each sums K/servers. In the first
// phase every worker sends every server its part, in the second every server sends it
// back to every worker. A server and the worker beside it need no transfer.
func ParameterServer(workers, servers int) Schedule {
	n := max(1, workers)
	m := min(max(1, servers), n)
	phases := 2
	if n == 1 {
		phases = 0
	}
	return Schedule{"parameter-server", n, m, phases, func(t int, yield func(Transfer) bool) {
		for s := range m {
			for w := range n {
				x := Transfer{w, s, s, s + 1, true}
				if t == 1 {
					x.From, x.To, x.Add = s, w, false
				}
				if w != s && !yield(x) {
					return
				}
			}
		}
	}}
}

// RecursiveDoubling is an all-reduce in which workers at distance 1, 2, 4, … exchange all
// they have: K each way in each of log2 n phases. Workers beyond the largest power of two
// p ≤ n hand theirs to worker i-p before, and get the sum back after (Thakur, Rabenseifner
// and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005).
func RecursiveDoubling(workers int) Schedule {
	n := max(1, workers)
	k := bits.Len(uint(n)) - 1
	p := 1 << k
	fold := 0 // phases before and after
	if n > p {
		fold = 1
	}
	return Schedule{"recursive-doubling", n, 1, k + 2*fold, func(t int, yield func(Transfer) bool) {
		for i := range p {
			switch other := i + p; {
			case t >= fold && t < fold+k:
				if !yield(Transfer{i, i ^ 1<<(t-fold), 0, 1, true}) {
					return
				}
			case other >= n:
				return
			case t == 0:
				if !yield(Transfer{other, i, 0, 1, true}) {
					return
				}
			default:
				if !yield(Transfer{i, other, 0, 1, false}) {
					return
				}
			}
		}
	}}
}

// HalvingDoubling is an all-reduce in which workers at distance n/2, n/4, … 1 exchange and
// sum a half, a quarter, … of the vector, and then go back the same way to distribute the
// sums: every worker sends 2K(n-1)/n in 2·log2 n phases. This is the order of Figure 1 of
// Titan: of four workers K/2 with the farther, K/4 with the nearer, K/4, K/2.
//
// Other numbers of workers are blocks of powers of two, the largest first ("binary
// blocks": Rabenseifner, "Optimization of Collective Reduction Operations", ICCS '04; Goyal
// et al., arXiv:1706.02677, section 4). Each block sums by halving; then, from the smallest to the largest, a
// block hands its sums to the next larger one, and gets them back before it doubles. That
// takes two phases more than the largest block alone, and sends 2K(n-1) in all as well.
func HalvingDoubling(workers int) Schedule {
	return halvingDoubling("halving-doubling", max(1, workers), func(i, _ int) int { return i })
}

// HalvingDoublingNear is HalvingDoubling with the nearest worker first, as Goyal et al.
// and Gloo have it: K/2 goes to the worker at distance 1, K/4 to that at distance 2. It
// suits workers that are numbered machine by machine. The traffic is that of
// HalvingDoubling with the workers of each block renumbered.
func HalvingDoublingNear(workers int) Schedule {
	return halvingDoubling("halving-doubling-near", max(1, workers), func(i, k int) int {
		return int(bits.Reverse64(uint64(i)) >> (64 - k))
	})
}

// halvingDoubling has the worker number(i, k) of a block of 2^k workers in the place of i.
func halvingDoubling(name string, n int, number func(i, k int) int) Schedule {
	type block struct{ first, k int } // workers first to first+2^k-1
	var blocks []block
	for first := 0; first < n; {
		k := bits.Len(uint(n-first)) - 1
		blocks = append(blocks, block{first, k})
		first += 1 << k
	}
	at := func(b block, i int) int { return b.first + number(i, b.k) }
	top := blocks[0].k
	half := top // phases until all sums are there
	if len(blocks) > 1 {
		half++
	}
	chunks := 1 << top
	// Until half, phase t is halving step t of a block with more steps than that; in phase
	// k of a block it gets the sums of the next smaller one. Then all goes backwards.
	phase := func(t int, yield func(Transfer) bool) {
		add := t < half
		if !add {
			t = 2*half - 1 - t
		}
		for which, b := range blocks {
			switch {
			case t < b.k:
				dist := 1 << (b.k - 1 - t)
				part := chunks >> (t + 1)
				for i := range 1 << b.k {
					// The half of its range that i keeps is the one that the bits of i say;
					// the other is its partner's.
					owner := i ^ dist
					if !add {
						owner = i
					}
					lo := owner / dist * part
					if !yield(Transfer{at(b, i), at(b, i^dist), lo, lo + part, add}) {
						return
					}
				}
			case t == b.k && which+1 < len(blocks):
				small := blocks[which+1]
				part := chunks >> b.k
				for i := range 1 << b.k {
					x := Transfer{at(small, i>>(b.k-small.k)), at(b, i), i * part, (i + 1) * part, add}
					if !add {
						x.From, x.To = x.To, x.From
					}
					if !yield(x) {
						return
					}
				}
			}
		}
	}
	return Schedule{name, n, chunks, 2 * half, phase}
}
