// Package policytest is the suite that every placement policy passes: package policycheck, as tests.
//
// A policy's test file is one call:
//
//	func TestFirstFit(t *testing.T) { policytest.RunCluster(t, baseline.FirstFit()) }
package policytest

import (
	"flag"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/policycheck"
)

var seed = flag.Uint64("policytest.seed", 0, "seed of the random inventories and jobs; 0: from the clock")

// RunCluster checks a policy that decides on clusters, in clusters and, as
// placement.On makes it, in inventories (Run). Jobs come in batches and go over time. It
// checks that no GPU is given twice, that every placed job has exactly what it asked and
// is in the cluster as returned, that jobs that run are not moved, that the same seed
// gives the same placements, that the batch is left alone, that all jobs of a batch that
// fits get a place, and that what does not fit waits.
func RunCluster(t *testing.T, p cluster.Policy) {
	t.Run("cluster", func(t *testing.T) { run(t, policycheck.Cluster(p, p)) })
	t.Run("inventory", func(t *testing.T) { Run(t, placement.On(p)) })
}

// Run checks a policy: that its plans are valid and give every job what it asked,
// that explicit hosts and parameter servers are honoured, that hosts are never
// over-committed, that the same seed gives the same plan, that the inventory and
// the jobs are left alone, and that what does not fit is reported.
func Run(t *testing.T, p placement.Policy) { run(t, policycheck.Inventory(p, p)) }

// run makes a test of each check. The log says how to get its random problems again.
func run(t *testing.T, checks []policycheck.Check) {
	for _, c := range checks {
		t.Run(c.Name, func(t *testing.T) {
			s := *seed
			if s == 0 {
				s = uint64(time.Now().UnixNano())
			}
			t.Logf("repeat with -policytest.seed %d", s)
			if err := c.Run(s); err != nil {
				t.Error(err)
			}
		})
	}
}

// Racks is a lab for tests, that of package policycheck.
func Racks(racks, hosts, gpus int) *inventory.Inventory { return policycheck.Racks(racks, hosts, gpus) }
