package fragment

import (
	"math/rand/v2"
	"slices"
)

// FirstFit takes the first free hosts, as Slurm does by default: the baseline of the
// paper's Table I.
type FirstFit struct{}

// Name implements Policy.
func (FirstFit) Name() string { return "first-fit" }

// Place implements Policy.
func (FirstFit) Place(o *Occupancy, n int) ([]int, error) {
	if err := check(o, n); err != nil {
		return nil, err
	}
	out := make([]int, 0, n)
	for h := 0; len(out) < n; h++ {
		if o.IsFree(h) {
			out = append(out, h)
		}
	}
	return out, nil
}

// Random takes any free hosts, each set with equal probability. Its choices follow from
// the seed and the calls before.
type Random struct{ rng *rand.Rand }

// NewRandom returns a policy with a generator of its own.
func NewRandom(seed uint64) *Random { return &Random{rand.New(rand.NewPCG(seed, 0))} }

// Name implements Policy.
func (*Random) Name() string { return "random" }

// Place implements Policy.
func (r *Random) Place(o *Occupancy, n int) ([]int, error) {
	if err := check(o, n); err != nil {
		return nil, err
	}
	out := make([]int, 0, n)
	left := o.Free()
	for h := 0; len(out) < n; h++ {
		if o.IsFree(h) {
			if r.rng.IntN(left) < n-len(out) {
				out = append(out, h)
			}
			left--
		}
	}
	return out, nil
}

// Consolidate keeps jobs together without counting fragments: it takes hosts in the pod
// with the fewest free ones that has enough, and where none of its children has, all of
// the child's with the most, and the rest in the same way.
type Consolidate struct{}

// Name implements Policy.
func (Consolidate) Name() string { return "consolidate" }

// Place implements Policy.
func (Consolidate) Place(o *Occupancy, n int) ([]int, error) {
	if err := check(o, n); err != nil {
		return nil, err
	}
	out := consolidate(o, make([]int, 0, n), 0, int32(n))
	slices.Sort(out)
	return out, nil
}

// consolidate appends n hosts of a pod that has as many.
func consolidate(o *Occupancy, out []int, v, n int32) []int {
	if o.t.nodes[v].span == 1 {
		return append(out, o.t.hosts[o.t.nodes[v].first])
	}
	var emptied []int32
	for n > 0 {
		best := int32(-1)
		for u := range o.t.children(v) {
			if o.free[u] == 0 || slices.Contains(emptied, u) {
				continue
			}
			fits, bestFits := o.free[u] >= n, best >= 0 && o.free[best] >= n
			if best < 0 || fits && !bestFits ||
				fits && bestFits && o.free[u] < o.free[best] ||
				!fits && !bestFits && o.free[u] > o.free[best] {
				best = u
			}
		}
		k := min(n, o.free[best])
		out = consolidate(o, out, best, k)
		emptied = append(emptied, best)
		n -= k
	}
	return out
}
