package experiments

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// TestManyLinks: of a cluster that has more links than anybody reads, the record tells those that jobs use, and is no larger
// for the others.
func TestManyLinks(t *testing.T) {
	dir := t.TempDir()
	hosts := "[1-2100]" // each with a cable in both directions
	for name, change := range map[string]*strings.Replacer{
		"racks/three-hosts.toml": strings.NewReplacer("h[1-3]", "h"+hosts, "tor1/[1-3]", "tor1/"+hosts),
		"quickstart.toml":        strings.NewReplacer("racks/", "", `tolerance = "5%"`, `tolerance = "20%"`),
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(change.Replace(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := kinds.Load(filepath.Join(dir, "quickstart.toml"))
	if err != nil {
		t.Fatal(err)
	}
	rec, _, err := Run(t.Context(), s, RunOptions{Driver: "sim", Root: dir, Tool: "test"})
	if err != nil || rec.Outcome != results.Pass {
		t.Fatalf("%s, %v: %q", rec.Outcome, err, rec.Reasons)
	}
	var said []string
	for _, f := range rec.Points[0].Phases[0].Figures {
		if f.Metric == "link_rate" && f.Kind == results.Simulated {
			said = append(said, f.Of)
		}
	}
	if n := len(rec.Points[0].Phases[0].Figures) + len(rec.Points[0].Phases[0].Missing); n > testbed.ManyLinks/10 || !slices.Contains(said, "h1->tor1") {
		t.Errorf("%d figures, %q", n, said)
	}
}

// TestTooMuchMemory: a part of a job's packets that no switch has aggregators for is said to be too much, however much it is.
func TestTooMuchMemory(t *testing.T) {
	for _, ratio := range []string{"1e6", "1e308"} {
		s, err := kinds.Load("quickstart.toml", "switch.pat_ratio="+ratio)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = Run(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
		if err == nil || !strings.Contains(err.Error(), "aggregators, switch tor1 has 4096: give it a lower one") {
			t.Errorf("%s: %v", ratio, err)
		}
	}
}

// TestTooManyHosts: jobs among more hosts than one waits for are refused where the experiment is read.
func TestTooManyHosts(t *testing.T) {
	dir := t.TempDir()
	for name, change := range map[string]*strings.Replacer{
		"racks/three-hosts.toml": strings.NewReplacer("h[1-3]", "h[1-9000]", "tor1/[1-3]", "tor1/[1-9000]"),
		"quickstart.toml":        strings.NewReplacer("racks/", ""),
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(change.Replace(string(text))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kinds.Load(filepath.Join(dir, "quickstart.toml")); err == nil || !strings.Contains(err.Error(), "9000 hosts: jobs run among at most 8192") {
		t.Error(err)
	}
}

// TestKilledSimulation: what a simulated run leaves that is killed at once is not called measured.
func TestKilledSimulation(t *testing.T) {
	s, err := kinds.Load("quickstart.toml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRun(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.dir.Close()
	rec, err := results.ReadRecord(r.dir.Path)
	if err != nil || rec.Kind != results.Simulated {
		t.Errorf("%v: %q", err, rec.Kind)
	}
}
