package sim_test

import (
	"fmt"
	"slices"
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

// TestFaultBegins: a fault begins a second after the first traffic of its part, whatever had traffic before.
func TestFaultBegins(t *testing.T) {
	const later = 3 * time.Second // B starts
	for _, tt := range []struct {
		fault, part string
		after       time.Duration // the first traffic of the part
	}{
		{"hang", "A/0", 0},
		{"hang", "B/1", later},
		{"hang", "*/0", 0},
		{"stall", "B/0", later},
		{"jump-clock", "B/0", later},
		{"slow-down", "tor2->h8", later},
		{"slow-down", "tor1->h4", 0},
		{"count-less", "tor2", later},
		{"count-less", "tor1", 0},
	} {
		i := slices.IndexFunc(sabotage.Catalogue, func(f sabotage.Fault) bool { return f.Name == tt.fault })
		o := &sabotage.Order{Fault: sabotage.Catalogue[i], Part: tt.part}
		from := tt.after + sabotage.After
		if n := acts(t, o, later, from-100*time.Millisecond); n != 0 {
			t.Errorf("%s of %s acts before %v", tt.fault, tt.part, from)
		}
		if n := acts(t, o, later, from+500*time.Millisecond); n == 0 {
			t.Errorf("%s of %s does not act after %v", tt.fault, tt.part, from)
		}
	}
}

// acts is how often a fault acts until a time, where job B starts later than job A, in another rack.
func acts(t *testing.T, o *sabotage.Order, later, until time.Duration) int64 {
	t.Helper()
	inv := lab(2, 100e6, 64)
	tb, err := sim.Open(inv, sim.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close(t.Context())
	sab := tb.(testbed.Saboteur)
	if _, err := sab.Sabotage(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	w := testbed.Workload{Window: 256}
	dep, err := tb.Deploy(t.Context(), setup(t, inv, testbed.Settings{Queue: "fair"},
		spec{"A", []string{"h1", "h2"}, "h4", placement.INA, w}, spec{"B", []string{"h5", "h6"}, "h8", placement.INA, w}))
	if err != nil {
		t.Fatal(err)
	}
	for at := time.Duration(0); at <= until; at += 100 * time.Millisecond {
		sleep(t, dep, at)
		if job, ok := map[time.Duration]string{0: "A", later: "B"}[at]; ok {
			if err := dep.Start(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := dep.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n, err := sab.Sabotage(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
