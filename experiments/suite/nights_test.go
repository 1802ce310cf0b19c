package suite

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/aclements/go-moremath/stats"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// nightly is a short night: every cable of a rack, on an emulation.
const nightly = `version = 1
name = "nights"
on = "netns"
[retry]
inconclusive = 1
testbed = 1
host = 1
switch = 1
[[experiment]]
path = %q
set = ["emulation.factor=20000", "calibrate.enabled=false"]
`

// TestNights holds what is said of nights to what was done in them, on emulations. It runs
// INABENCH_NIGHTS short nights in which nothing changes, and counts for how many of the figures
// judged something was said; then 5 % of a cable, of the switch and of a worker are taken
// away in turn, and nights go on until each is found, three at most. Nights are kept in
// INABENCH_NIGHTS_DIR, if that is set, and later calls add to those that are there.
func TestNights(t *testing.T) {
	wanted, _ := strconv.Atoi(os.Getenv("INABENCH_NIGHTS"))
	if wanted == 0 {
		t.Skip("INABENCH_NIGHTS=N runs N nights; they take some 5 s each")
	}
	testbedtest.Require(t, "netns", noNamespaces)
	root := os.Getenv("INABENCH_NIGHTS_DIR")
	if root == "" {
		root = t.TempDir()
	}
	path, err := filepath.Abs("../cables.toml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("nights.toml", fmt.Appendf(nil, nightly, path))
	if err != nil {
		t.Fatal(err)
	}
	night := func(slow *drivers.Slow) *Night {
		t.Helper()
		n, err := Run(t.Context(), s, Options{Root: root, Tool: "test", Runner: here{slow}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	before, err := Nights(root, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(before); i < wanted; i++ {
		n := night(nil)
		t.Logf("night %d: %s, %d figures judged, %d others than before", i+1, n.Items[0].Status, n.Judged.Figures-n.Judged.Learning, len(n.Moves))
	}
	all, err := Nights(root, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	reportOf(t, all)

	for _, fault := range []struct {
		what string
		slow drivers.Slow
		want string
	}{
		{"cable of h2", drivers.Slow{Part: 0.05, Links: []string{"h2->tor1", "tor1->h2"}}, "link h2-tor1"},
		{"one direction of the cable of h4", drivers.Slow{Part: 0.05, Links: []string{"tor1->h4"}}, "link h4-tor1"},
		{"switch", drivers.Slow{Part: 0.05, Links: []string{"tor1->h1", "tor1->h2", "tor1->h3", "tor1->h4"}}, "switch tor1"},
		{"worker of C", drivers.Slow{Part: 0.05, Job: "C"}, "worker on h2"},
	} {
		t.Run(fault.what, func(t *testing.T) {
			var mine []*Night
			defer func() { // the next fault has the same past
				for _, n := range mine {
					forget(t, root, n)
				}
			}()
			before := map[string]bool{}
			if len(all) > 0 {
				for _, m := range all[0].worse() {
					before[m.subject()] = true
				}
			}
			for found := 1; found <= 3; found++ {
				n := night(&fault.slow)
				mine = append(mine, n)
				said := false
				for _, m := range n.worse() {
					t.Logf("night %d: %v", found, m)
					said = said || !before[m.subject()] // and not a false alarm of before
				}
				for _, c := range n.Culprits {
					t.Logf("  %v", c)
				}
				if !said {
					t.Logf("night %d: %s, nothing is said for sure", found, n.Items[0].Status)
					continue
				}
				if len(n.Culprits) == 0 || n.Culprits[0].Part != fault.want {
					t.Errorf("found in night %d; the culprit is %s", found, fault.want)
				}
				return
			}
			t.Errorf("not found in three nights")
		})
	}
}

// report counts alarms by metric: figures that were said to be others than in the nights
// before, of all that were judged in a night. Of undecided runs nothing is said for sure, and
// they are counted apart.
func reportOf(t *testing.T, nights []*Night) {
	t.Helper()
	judged, alarms, doubtful := map[string]int{}, map[string]int{}, map[string]int{}
	undecided, failed := 0, 0
	for _, n := range nights {
		sure := n.Items[0].Status != Undecided
		if !sure {
			undecided++
		}
		if len(n.worse()) > 0 {
			failed++
		}
		if sure {
			for metric, k := range n.Judged.Metrics {
				judged[metric] += k
			}
		}
		for _, m := range n.Moves {
			switch {
			case m.Doubtful:
				doubtful[m.Metric]++
			case m.New:
				alarms[m.Metric]++
			}
		}
	}
	t.Logf("%d nights, %d undecided; in %d a figure was said to be worse", len(nights), undecided, failed)
	for _, metric := range slices.Sorted(maps.Keys(judged)) {
		lo, hi := clopperPearson(alarms[metric], judged[metric])
		t.Logf("%-10s %d alarms of %d, %.2f %% (95 %%: %.2f to %.2f %%); in undecided nights %d", metric, alarms[metric], judged[metric],
			100*float64(alarms[metric])/float64(judged[metric]), 100*lo, 100*hi, doubtful[metric])
		if lo > 0.01 {
			t.Errorf("%s: more false alarms than 1 %%", metric)
		}
	}
}

// clopperPearson is the exact 95 % interval of a probability of which k of n were seen
// (Biometrika 26, 1934).
func clopperPearson(k, n int) (lo, hi float64) {
	solve := func(k int, tail float64) float64 { // P(X <= k) = tail
		a, b := 0.0, 1.0
		for range 60 {
			if p := (a + b) / 2; (stats.BinomialDist{N: n, P: p}).CDF(float64(k)) > tail {
				a = p
			} else {
				b = p
			}
		}
		return a
	}
	if k > 0 {
		lo = solve(k-1, 0.975)
	}
	if hi = 1; k < n {
		hi = solve(k, 0.025)
	}
	return lo, hi
}

// forget removes a night and its runs.
func forget(t *testing.T, root string, n *Night) {
	t.Helper()
	for _, d := range n.Items {
		for _, a := range d.Attempts {
			if a.Run != "" {
				if err := os.RemoveAll(filepath.Join(root, a.Run)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := os.RemoveAll(n.Path(root)); err != nil {
		t.Fatal(err)
	}
}

func TestClopperPearson(t *testing.T) {
	for _, tt := range []struct {
		k, n   int
		lo, hi float64 // as in tables
	}{{0, 10, 0, 0.3085}, {1, 20, 0.0013, 0.2487}, {10, 10, 0.6915, 1}, {3, 300, 0.0021, 0.0289}} {
		lo, hi := clopperPearson(tt.k, tt.n)
		if d := max(lo-tt.lo, tt.lo-lo, hi-tt.hi, tt.hi-hi); d > 6e-5 {
			t.Errorf("%d of %d: %.4f to %.4f, want %.4f to %.4f", tt.k, tt.n, lo, hi, tt.lo, tt.hi)
		}
	}
}
