package inabench_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/proof"
)

// TestModuleOfOthers: a study, a placement policy, a predictor and a launcher can be of another module, which examples/lab is,
// and are then what inabench's own are: known to check, sweeps, --set, place, plan and run; hosts of that launcher, to ssh,
// doctor and a run in a lab.
func TestModuleOfOthers(t *testing.T) {
	proof.Only(t, "it builds another program")
	if _, err := os.Stat("vendor"); err == nil {
		t.Skip("modules are vendored, and another module would have to load its own")
	}
	dir, lab := "examples/lab", filepath.Join(t.TempDir(), "lab")
	run := func(want string, command ...string) {
		t.Helper()
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want %q in\n%s", strings.Join(command, " "), err, want, out)
		}
	}
	run("ok", "go", "test", "./...")
	run("", "go", "build", "-o", lab, ".")
	run("ok", lab, "check", "allreduce.toml")
	run("PASS", lab, "run", "--runs", t.TempDir(), "--set", "allreduce.latency=6us", "allreduce.toml")
	run("the servers with most free GPUs", lab, "place", "--list")
	run("placement (emptiest)", lab, "plan", "--set", "placement.policy=emptiest", "--predictor", "alone="+lab+" predict", "../../experiments/quickstart.toml")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	run("inabench-hosts/h2", lab, "ssh", "-i", "beside.toml", "h2", "--", "pwd")
	run("2 of 2 hosts answer", lab, "doctor", "-i", "beside.toml")
	if _, err := exec.LookPath("iperf3"); err == nil {
		cmd := exec.Command(lab, "run", "--runs", t.TempDir(), "iperf3.toml")
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput() // on a busy machine the rates of two seconds may differ too much to judge
		undecided := cmd.ProcessState.ExitCode() == 7 && strings.Contains(string(out), "the interval reaches across")
		if cmd.ProcessState.ExitCode() != 0 && !undecided || !strings.Contains(string(out), "A/h1->h2") {
			t.Errorf("%s: %v\n%s", cmd, cmd.ProcessState, out)
		}
	}
	run("alone says", lab, "plan", "--predictor", "alone="+lab+" predict", "../../experiments/quickstart.toml")
}
