package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sim"
	"github.com/inabench/inabench/testbed/testbedtest"
)

func TestConformance(t *testing.T) {
	testbedtest.Run(t, testbedtest.Config{
		Patience: 2 * time.Minute, // it follows packets before a call returns
		Open: func(_ context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
			return sim.Open(inv, sim.Options{Seed: 1})
		},
	})
}
