package suite

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/results/human"
)

// Plan is what a night would do: all items, in the order of running, each with why it is
// there and how long it is expected to take. It depends on the suite and on its nights
// (the newest first) alone.
//
// First comes what did not fit into the newest night; then what failed when it last ran, or
// of which a figure had become another one, or whose files changed since; then what has not
// run for most nights; and of those the cheapest.
func (s *Suite) Plan(nights []*Night) []Done {
	type ranked struct {
		Done
		rank
	}
	var all []ranked
	for _, it := range s.Items {
		d := Done{Item: it, Status: Waiting, Expected: expected(it, nights)}
		r := rankOf(it, nights)
		d.Why = r.why
		all = append(all, ranked{d, r})
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(b.ago, a.ago), cmp.Compare(cost(a.Expected), cost(b.Expected)))
	})
	out := make([]Done, len(all))
	for i := range all {
		out[i] = all[i].Done
	}
	return out
}

// cost is what an item is expected to take; of what is not known, more than anything.
func cost(expected float64) float64 {
	if expected == 0 {
		return math.Inf(1)
	}
	return expected
}

// rank is an item's place, and the reason in words.
type rank struct {
	group, ago int
	why        string
}

// The groups, in their order.
const (
	groupLeft = iota
	groupFailed
	groupMoved
	groupChanged
	groupBroken
	groupQuiet
)

func rankOf(it Item, nights []*Night) rank {
	if len(nights) > 0 {
		if d, ok := nights[0].Item(it.Name); ok && !d.ended() {
			return rank{groupLeft, 0, "did not run to its end last night"}
		}
	}
	for ago, n := range nights {
		d, ok := n.Item(it.Name)
		if !ok || !d.ended() {
			continue
		}
		when := "last night"
		if ago > 0 {
			when = fmt.Sprintf("%d nights ago", ago+1)
		}
		moved := slices.IndexFunc(n.Moves, func(m Move) bool { return m.Item == it.Name && m.counts() })
		switch {
		case d.Status == Failed, d.Status == Xpassed:
			return rank{groupFailed, ago, "failed " + when}
		case moved >= 0:
			return rank{groupMoved, ago, fmt.Sprintf("%s was worse %s", n.Moves[moved].subject(), when)}
		case d.Sum != it.Sum:
			return rank{groupChanged, ago, "its files changed since " + when}
		case d.Status == Broken, d.Status == Undecided:
			return rank{groupBroken, ago, "came to no verdict " + when}
		}
		return rank{groupQuiet, ago, "ran " + when}
	}
	return rank{groupQuiet, math.MaxInt, "never ran"}
}

// remembered is of how many nights durations are remembered.
const remembered = 5

// expected is how long an item takes in seconds, as the median of its last nights; 0 where
// there are none.
func expected(it Item, nights []*Night) float64 {
	var took []float64
	for _, n := range nights {
		if d, ok := n.Item(it.Name); ok && d.ended() && d.Sum == it.Sum && d.Repeats == it.Repeats && len(took) < remembered {
			took = append(took, d.last().Seconds)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// elapsed is a number of seconds for people.
func elapsed(s float64) string { return human.Elapsed(seconds(s).Round(time.Millisecond)) }
