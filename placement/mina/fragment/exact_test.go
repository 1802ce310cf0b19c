package fragment

import "fmt"

// maxChoices is how many sets of hosts exhaustive looks at.
const maxChoices = 5_000_000

// exhaustive returns hosts with the least score, and the score, by trying all sets of
// free hosts; of equal ones, that with the fewest fragments of the job, then of free ones,
// then the first in lexicographic order. Fragments are counted by their definition, so that it shares
// nothing with Minimal. Errors are those of Place, and ErrTooLarge for more than
// maxChoices sets.
func exhaustive(o *Occupancy, n int, alpha float64) ([]int, float64, error) {
	if err := check(o, n); err != nil {
		return nil, 0, err
	}
	var free []int
	for h := range o.t.Hosts() {
		if o.IsFree(h) {
			free = append(free, h)
		}
	}
	choices := 1
	for i := range min(n, len(free)-n) {
		choices = choices * (len(free) - i) / (i + 1)
		if choices > maxChoices {
			return nil, 0, fmt.Errorf("%d hosts of %d free ones: %w", n, len(free), ErrTooLarge)
		}
	}
	// Of every node: hosts that the job takes, and that stay free.
	job, rest := make([]int32, len(o.t.nodes)), append([]int32(nil), o.free...)
	move := func(h int, k int32) {
		for v := o.t.leaf[h]; v >= 0; v = o.t.nodes[v].parent {
			job[v] += k
			rest[v] -= k
		}
	}
	var best []int
	var least Outcome
	set := make([]int, 0, n)
	var try func(i int)
	try = func(i int) {
		if len(set) == n {
			at := Outcome{o.t.whole(job), o.t.whole(rest)}
			was, is := least.Score(alpha), at.Score(alpha)
			if best == nil || is < was || is == was && (at.Job < least.Job || at.Job == least.Job && at.Free < least.Free) {
				best, least = append(best[:0], set...), at
			}
			return
		}
		for ; len(free)-i >= n-len(set); i++ {
			set = append(set, free[i])
			move(free[i], 1)
			try(i + 1)
			move(free[i], -1)
			set = set[:len(set)-1]
		}
	}
	try(0)
	return best, least.Score(alpha), nil
}
