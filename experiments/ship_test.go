package experiments

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests do not run inside an emulation's namespaces.
var noNamespaces error

// TestMain plays every part of an emulation. Only INABENCH_SHIP=netns needs one.
func TestMain(m *testing.M) {
	netnstest.Play(netnstest.Parts{"agent": agent.Main, ControllerVerb: controller.Main})
	if os.Getenv("INABENCH_SHIP") == "netns" {
		noNamespaces = netnstest.Enter()
	}
	os.Exit(m.Run())
}

// TestShip runs every experiment that ships, in its small version where it has one: in
// the model, or with INABENCH_SHIP=netns those that are for it on the emulated rack. No expectation that decides may fail. On a
// machine that others use too a run may stay undecided, which earns it another try.
func TestShip(t *testing.T) {
	driver := os.Getenv("INABENCH_SHIP")
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
	if testing.Short() { // one of each kind: with the race detector all of them take minutes
		files = []string{"quickstart.toml", "policies.toml", "mina-ablation.toml"}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".toml"), func(t *testing.T) {
			for try := range 3 {
				rec := ship(t, file, driver)
				if rec == nil {
					return
				}
				switch rec.Outcome {
				case results.Pass:
					return
				case results.Inconclusive:
					t.Logf("try %d: undecided: %s", try+1, strings.Join(rec.Reasons, "\n"))
				default:
					t.Fatalf("%s: %s", rec.Outcome, strings.Join(rec.Reasons, "\n"))
				}
			}
			t.Error("undecided three times")
		})
	}
}

// ship runs an experiment once. It returns nil, and skips the test, where the driver
// declares that it cannot do what the experiment is about.
func ship(t *testing.T, file, driver string) *results.Record {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	quick, _ := Quick(file, text)
	spec, err := Load(file, quick...)
	if err != nil {
		t.Fatal(err)
	}
	if spec.On != "" && spec.On != driver {
		t.Skipf("it is for %s", spec.On)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	rec, dir, err := Run(ctx, spec, RunOptions{Driver: driver, Root: t.TempDir(), Tool: "test"})
	if errors.Is(err, errors.ErrUnsupported) && driver == "sim" {
		t.Skipf("the model cannot do this: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"run.json", "report.html", "junit.xml", "samples.jsonl"}
	if spec.study() != nil && driver == "sim" {
		files[3] = "jobs.csv.gz"
	}
	for _, name := range files {
		if st, err := os.Stat(filepath.Join(dir.Path, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, p := range rec.Points {
		for _, j := range p.Jobs {
			if j.SumErrors > 0 || driver == "netns" && !j.Local && j.SumsChecked == 0 {
				t.Errorf("%s job %s: %d of %d sums are wrong", p.Label(), j.Job, j.SumErrors, j.SumsChecked)
			}
		}
	}
	return rec
}
