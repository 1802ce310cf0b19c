package experiments

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study/programs"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/agents"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests do not run inside an emulation's namespaces.
var noNamespaces error

// TestMain plays every part of an emulation. Only INABENCH_SHIP=netns and INABENCH_SABOTAGE=netns need one.
func TestMain(m *testing.M) {
	parts := netnstest.Parts{agents.Verb: agent.Main}
	for _, k := range kinds.All() {
		maps.Copy(parts, k.Parts)
	}
	netnstest.Play(parts)
	if emulates() {
		noNamespaces = netnstest.Enter()
	}
	os.Exit(m.Run())
}

// beside are experiments that may run beside each other: whole jobs, which compute (that is,
// wait) for most of their time, and take half a core or less. Those in slow motion time single
// packets, and are undecided more often with another beside them than that saves; in mina-pairs
// whoever is a little late loses turns.
var beside = []string{
	"autops-testbed.toml", "autops-testbed-congestion.toml", "autops-testbed-timeline.toml", "fidelity.toml", "mina-migration.toml",
	"mina-testbed.toml", "testbed-memory.toml", "testbed-policies.toml", "titan-testbed.toml",
}

// needs are what a machine must have for an experiment that few machines can run, and where that is.
var needs = map[string][2]string{"nccl.toml": {"gpu", "nvidia-smi"}}

// tries is how often one may be undecided before that is a failure.
const tries = 5

// TestShip runs every experiment that ships, in its small version where it has one: with proofs in
// the model, or with INABENCH_SHIP=netns those that are for it on the emulated rack, those
// of beside as many at a time as there are cores. No expectation that decides may fail. On a
// machine that others use too a run may stay undecided, which earns it another try, with none
// of them beside it.
func TestShip(t *testing.T) {
	driver := os.Getenv("INABENCH_SHIP")
	all := proof.Wanted() || driver != ""
	switch driver {
	case "":
		driver = "sim"
	case "netns":
		testbedtest.Require(t, "netns", noNamespaces)
	case "sim":
	default:
		t.Fatalf("INABENCH_SHIP=%s: sim or netns", driver)
	}
	files, err := filepath.Glob("*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no experiments: %v", err)
	}
	if !all { // one of each kind: with the race detector all of them take minutes
		files = []string{"quickstart.toml", "policies.toml", "mina-histograms.toml"}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".toml"), func(t *testing.T) {
			if on := loadCell(t, file, nil).On; on != "" && on != driver {
				t.Skipf("it is for %s", on)
			}
			if need, ok := needs[file]; ok {
				_, err := exec.LookPath(need[1])
				testbedtest.Require(t, need[0], err)
			}
			if driver == "netns" && slices.Contains(beside, file) {
				t.Parallel()
				if !netnstest.Apart(t) {
					return
				}
			}
			for try := range tries {
				rec := ship(t, loadCell(t, file, nil), driver, try > 0)
				if rec == nil {
					return
				}
				switch rec.Outcome {
				case results.Pass:
					return
				case results.Inconclusive:
					if unshown(rec) {
						t.Logf("what it is about did not happen: %s", strings.Join(rec.Reasons, "\n"))
						return
					}
					t.Logf("try %d: undecided: %s", try+1, strings.Join(rec.Reasons, "\n"))
					if driver == "netns" && try+1 < tries { // what makes this machine late may last some minutes
						time.Sleep(time.Duration(try) * 30 * time.Second)
					}
				default:
					t.Fatalf("%s: %s", rec.Outcome, strings.Join(rec.Reasons, "\n"))
				}
			}
			t.Errorf("undecided %d times", tries)
		})
	}
}

// unshown says whether all that is undecided about a run is an event that did not happen, and that is
// not gated because it is on the brink in the experiment's setting: no further try need show it.
func unshown(rec *results.Record) bool {
	return !slices.ContainsFunc(rec.Checks, func(c results.Check) bool {
		return c.Gate && c.Outcome != results.Pass && c.Outcome != results.Skipped && (c.Code != results.CodeNoEvent || c.Repeats == 0 ||
			!slices.ContainsFunc(rec.Expect, func(e results.Expect) bool { return e.Name == c.Expect && e.Event && !e.Gate }))
	})
}

// turn waits until an experiment may run: beside others, or alone when none of them runs,
// be they in other processes.
func turn(t *testing.T, alone bool) (over func()) {
	t.Helper()
	f, err := os.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(f.Fd()), how)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// ship runs an experiment once. It returns nil, and skips the test, where the driver
// declares that it cannot do what the experiment is about.
func ship(t *testing.T, spec *spec.Spec, driver string, alone bool) *results.Record {
	t.Helper()
	if driver == "netns" {
		defer turn(t, alone)()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	rec, dir, err := Run(ctx, spec, RunOptions{Driver: driver, Root: t.TempDir(), Tool: "test"})
	if errors.Is(err, errors.ErrUnsupported) && driver == "sim" {
		t.Skipf("the model cannot do this: %v", err)
	}
	var none *programs.Missing
	if errors.As(err, &none) {
		testbedtest.Require(t, none.Name, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"run.json", "report.html", "junit.xml", "samples.jsonl"}
	if kinds.Simulator(spec, driver) != nil {
		files[3] = "jobs.csv.gz"
	}
	for _, name := range files {
		if st, err := os.Stat(filepath.Join(dir.Path, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, p := range rec.Points {
		for _, j := range p.Jobs {
			if j.SumErrors > 0 || driver == "netns" && !j.Local && j.SumsChecked == 0 && !spec.Kind().Foreign {
				t.Errorf("%s job %s: %d of %d sums are wrong", p.Label(), j.Job, j.SumErrors, j.SumsChecked)
			}
		}
	}
	if driver == "sim" {
		freeze(t, rec.Name, rec, dir.Path)
	}
	return rec
}
