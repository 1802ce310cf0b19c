package placement

import (
	"fmt"

	"github.com/inabench/inabench/inventory"
)

// Aggregators is how many aggregators of a switch are used when an experiment says
// how many each switch is to use; 0: all it has.
func Aggregators(sw *inventory.Switch, use int) int {
	if use > 0 && use < sw.Aggregators {
		return use
	}
	return sw.Aggregators
}

// Regions hands out the memory of switches to synchronous jobs, which own a region
// each in every switch that aggregates for them, one after the other.
type Regions struct {
	use  int
	next map[string]int // first aggregator of a switch that no job owns
}

// NewRegions is for switches of which nothing is taken. use is as for Aggregators.
func NewRegions(use int) *Regions { return &Regions{use, map[string]int{}} }

// Take gives a job its region of a switch: two windows, because a packet's aggregator
// keeps the result until it is sure that every worker has it (SwitchML's shadow copy).
// The error wraps ErrMemory.
func (r *Regions) Take(sw *inventory.Switch, job string, window int) (base, size int, err error) {
	base, size = r.next[sw.Name], 2*window
	if have := Aggregators(sw, r.use); base+size > have {
		return 0, 0, fmt.Errorf("switch %s: jobs up to %s need %d aggregators (two windows each in synchronous mode), it has %d: %w",
			sw.Name, job, base+size, have, ErrMemory)
	}
	r.next[sw.Name] += size
	return base, size, nil
}
