package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sabotage"
	"github.com/inabench/inabench/testbed/sim"
)

// sampled is a job in the model for four seconds, with a fault or without: what it said, and how
// often the fault acted.
func sampled(t *testing.T, o *sabotage.Order) (said string, acted int64) {
	t.Helper()
	inv := lab(1, 100e6, 64)
	tb, err := sim.Open(inv, sim.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close(t.Context())
	sab := tb.(testbed.Saboteur)
	if _, err := sab.Sabotage(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	dep, err := tb.Deploy(t.Context(), setup(t, inv, testbed.Settings{Addressing: "hash", Aggregators: 64, Lanes: lanes, Queue: "fair", Seed: 1},
		spec{"A", []string{"h1", "h2"}, "h3", placement.INA, testbed.Workload{Window: 256, Message: 4e6, Iterations: 8}}))
	if err != nil {
		t.Fatal(err)
	}
	if err := dep.Start(t.Context(), "A"); err != nil {
		t.Fatal(err)
	}
	for at := time.Duration(0); at < 4*time.Second; at += 500 * time.Millisecond {
		if err := dep.Sleep(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		samples, err := dep.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		said += fmt.Sprintln(samples)
	}
	if acted, err = sab.Sabotage(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return said, acted
}

// TestFaultsAct: every fault that the model carries changes what it says, and the others are
// refused.
func TestFaultsAct(t *testing.T) {
	honest, acted := sampled(t, nil)
	if again, _ := sampled(t, nil); again != honest || acted != 0 {
		t.Fatal("the model without a fault says something else the second time")
	}
	for _, f := range sabotage.Catalogue {
		o := &sabotage.Order{Fault: f, Part: map[sabotage.Kind]string{
			sabotage.Switch: "tor1", sabotage.Worker: "A/0", sabotage.Clock: "A/0", sabotage.Link: "tor1->h3", // which limits
		}[f.At]}
		if f.NoSim != "" {
			tb, err := sim.Open(lab(1, 100e6, 64), sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tb.(testbed.Saboteur).Sabotage(t.Context(), o); err == nil {
				t.Errorf("%s is not refused", f.Name)
			}
			continue
		}
		said, acted := sampled(t, o)
		if acted == 0 || said == honest {
			t.Errorf("%s acted %d times, and what is said is the same: %t", f.Name, acted, said == honest)
		}
		if said[:200] != honest[:200] {
			t.Errorf("%s acts before its time", f.Name)
		}
	}
}
