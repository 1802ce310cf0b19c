package drivers

import (
	"slices"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
)

// Slow makes a part of an emulation slower than its inventory says. Nobody is told: no
// prediction, and not the record. It is for tests of what finds such a thing.
type Slow struct {
	Part  float64  // of its rate that is lacking, 0 to 1
	Links []string // directed: "h1->tor1"
	Job   string   // its workers send at no more than the rest of their NIC's rate
}

// links are the parts of their rates that links lack.
func (s *Slow) links() map[string]float64 {
	if s == nil {
		return nil
	}
	out := map[string]float64{}
	for _, l := range s.Links {
		out[l] = s.Part
	}
	return out
}

// Workers is what is deployed in the place of a setup.
func (s *Slow) Workers(setup testbed.Setup, inv *inventory.Inventory) testbed.Setup {
	if s == nil || s.Job == "" {
		return setup
	}
	setup.Workloads = slices.Clone(setup.Workloads)
	for i, j := range setup.Plan.Jobs {
		if j.Name != s.Job {
			continue
		}
		rate := setup.Workloads[i].Rate
		for _, w := range j.Workers {
			if h, ok := inv.Host(w.Host); rate == 0 && ok {
				rate = float64(h.NICs[0].Rate)
			}
		}
		setup.Workloads[i].Rate = rate * (1 - s.Part)
	}
	return setup
}
