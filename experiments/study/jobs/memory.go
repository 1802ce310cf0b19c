package jobs

import (
	"context"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
)

// leastWindow is the smallest window, in packets, that a synchronous job gets when
// memory is reallocated: with less, jobs take turns.
const leastWindow = 4

// divide is the memory of the jobs that are there in one period of reallocation; those
// of the plan that are not have none.
func divide(inv *inventory.Inventory, setup testbed.Setup, active func(job string) bool, round int) map[string]placement.Grant {
	windows := make([]int, len(setup.Workloads))
	for i, w := range setup.Workloads {
		windows[i] = w.Window
	}
	claims := placement.NewClaims(setup.Plan, windows, active)
	grants := placement.Divide(inv, setup.Settings.Aggregators, claims, leastWindow, round)
	for _, j := range setup.Plan.Jobs {
		if _, ok := grants[j.Name]; !ok {
			grants[j.Name] = placement.Grant{}
		}
	}
	return grants
}

// reallocation is the central controller of a synchronous switch, which divides the
// memory anew every period among the jobs that are there then. A job that comes in
// between waits for the next.
type reallocation struct {
	inv     *inventory.Inventory
	setup   testbed.Setup
	dep     testbed.Deployment
	period  time.Duration
	next    time.Duration // on the deployment's clock
	round   int
	running map[string]bool
}

// note tells of a job that starts or stops.
func (m *reallocation) note(e event) { m.running[e.job] = !e.stop }

// due reallocates if it is time to.
func (m *reallocation) due(ctx context.Context) error {
	if m.dep.Now() < m.next {
		return nil
	}
	for m.next <= m.dep.Now() {
		m.next += m.period
		m.round++
	}
	return m.dep.Reallocate(ctx, divide(m.inv, m.setup, func(job string) bool { return m.running[job] }, m.round))
}
