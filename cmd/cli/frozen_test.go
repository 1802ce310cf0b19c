package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/internal/proof"
)

// policies are those that place jobs of the experiments that ship.
const policies = "first-fit,random,gpu-balance,flow-balance,least-fragmentation,optimus,tetris,comb,netpack,netpack-published,netpack+," +
	"titan,titan-corrected,titan-published,titan-printed-1,titan-printed-2,titan-printed-12,titan-printed-13,titan-printed-23,titan-printed-123," +
	"elasticflow,elasticflow-power-of-two,elasticflow-closest,elasticflow-idle,elasticflow-idle-power-of-two,hived,tiresias"

// TestFrozen holds what commands that only compute print, byte by byte, against what they printed
// before: for changes that are meant to change nothing. What is meant is written anew by
// -update.
func TestFrozen(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("sums and products are rounded once here")
	}
	experiments, err := filepath.Abs("../../experiments")
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) string { return filepath.Join(experiments, name+".toml") }
	type frozen struct {
		name string
		args [][]string
	}
	plans := frozen{name: "plan"}
	// Those that take seconds are in the records of experiments' runs, which predict the same.
	for _, name := range []string{
		"cables", "lossy", "offload", "quickstart", "titan-progress", "titan-testbed", "two-racks", "two-racks-aimd", "waterfill",
		"waterfill-aimd", "fidelity", "mina-pairs", "autops-testbed", "iperf3",
	} {
		plans.args = append(plans.args, []string{"plan", of(name)})
	}
	plans.args = append(plans.args, []string{"plan", of("quickstart"), "--set", "switch.mode=synchronous"}, []string{"plan", of("quickstart"), "-o", "json"})
	shipped, err := filepath.Glob(filepath.Join(experiments, "*.toml"))
	if err != nil || len(shipped) == 0 {
		t.Fatal("no experiments: ", err)
	}
	racks, err := filepath.Glob(filepath.Join(experiments, "racks", "*.toml"))
	if err != nil || len(racks) == 0 {
		t.Fatal("no racks: ", err)
	}
	check := frozen{name: "check", args: [][]string{append(append([]string{"check"}, shipped...), racks...)}}
	place := frozen{name: "place", args: [][]string{
		{"place", "--list"}, {"trace", "generate", "--jobs", "9", "--gpus", "8", "--max-gpus", "4", "-o", "jobs.csv"},
	}}
	for _, policy := range strings.Split(policies, ",") {
		place.args = append(place.args,
			[]string{"place", "--explain", "-p", policy, "-j", of("two-racks")},
			[]string{"place", "--partial", "--explain", "-p", policy, "-i", filepath.Join(experiments, "racks", "two-racks.toml"), "-j", "jobs.csv"})
	}
	for _, f := range []frozen{check, plans, place, {"explain", [][]string{{"explain"}, {"explain", "-o", "json"}}}} {
		t.Run(f.name, func(t *testing.T) {
			if f.name == "plan" || f.name == "place" {
				proof.Only(t, "all that ships is planned")
			}
			t.Parallel()
			dir := t.TempDir()
			var got bytes.Buffer
			for _, args := range f.args {
				fmt.Fprintf(&got, "$ inabench %s\n%s\n", strings.Join(args, " "), prints(t, dir, args))
			}
			golden.Compare(t, filepath.Join("frozen", f.name+".txt"), strings.ReplaceAll(got.String(), experiments, "experiments"))
		})
	}
}

// prints is what a command prints, and its exit code where that is not 0.
func prints(t *testing.T, dir string, args []string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "inabench", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+dir, "XDG_CACHE_HOME="+dir, "COLUMNS=80")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Sprintf("%s(exit code %d)\n", out, exit.ExitCode())
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
