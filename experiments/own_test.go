package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/policy"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// ownPolicy is an experiment whose job goes where a command says; %s is a policy, %q its program.
const ownPolicy = `version = 1
[fat_tree]
racks = 2
hosts = 2
gpus = 2
[[job]]
name = "A"
gpus = 3
[placement]
policy = "%s"
[[policy]]
name = "mine"
command = ["/bin/sh", "-c", %q]
`

// What is wrong with [[policy]] tables is said before anything is started.
func TestOwnPolicyChecks(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[[policy]]\nname = \"b\"\n", "command"},
		{"[[policy]]\ncommand = [\"x\"]\n", "name"},
		{"[[policy]]\nname = \"b\"\ncommand = []\n", "empty command"},
		{"[[policy]]\nname = \"a b\"\ncommand = [\"x\"]\n", `"a b" is not a policy name`},
		{"[[policy]]\nname = \"mine\"\ncommand = [\"x\"]\n", `duplicate policy "mine"`},
		{"[[policy]]\nname = \"netpack\"\ncommand = [\"x\"]\n", `inabench has a policy "netpack" already`},
		{"[[policy]]\nname = \"b\"\ncommand = [\"x\"]\ntimeout = \"0s\"\n", "timeout must be above zero"},
		{"[[policy]]\nname = \"b\"\ncommand = [\"x\"]\nother = 1\n", "other"},
	} {
		_, err := kinds.Parse(filepath.Join(t.TempDir(), "exp.toml"), []byte(fmt.Sprintf(ownPolicy, "mine", "")+c.text), nil)
		var problems tomlfile.Problems
		if !errors.As(err, &problems) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	_, err := kinds.Parse("exp.toml", fmt.Appendf(nil, ownPolicy, "mien", ""), nil)
	if err == nil || !strings.Contains(err.Error(), `unknown placement policy "mien"`) || !strings.Contains(err.Error(), `did you mean "mine"?`) {
		t.Errorf("error %v", err)
	}
}

// A job goes where one's own policy says, by the names of the inventory, and an answer that is wrong is invalid input.
func TestOwnPolicy(t *testing.T) {
	place := func(answer string) (string, error) {
		t.Helper()
		script := fmt.Sprintf("read opening; read request; echo '%s'; cat > /dev/null", answer)
		s, err := kinds.Parse(filepath.Join(t.TempDir(), "exp.toml"), fmt.Appendf(nil, ownPolicy, "mine", script), nil)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := s.Points()[0].Spec.Place(t.Context())
		if err != nil {
			return "", err
		}
		return fmt.Sprint(plan.Policy, " ", plan.Jobs[0].Hosts(), " ", plan.Jobs[0].PS), nil
	}
	got, err := place(`{"batch": 0, "jobs": [{"id": 0, "workers": [{"host": "r2h2", "gpus": 1}, {"host": "r1h1", "gpus": 2}], "ps": ["r1h2"]}]}`)
	if want := "mine [r2h2 r1h1 r1h1] r1h2"; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	_, err = place(`{"batch": 0, "jobs": [{"id": 0, "workers": [{"host": "r2h2", "gpus": 3}]}]}`)
	if !errors.Is(err, spec.ErrInput) || !strings.Contains(err.Error(), "job 0: 3 GPUs on host r2h2, where 2 of 2 are left") {
		t.Errorf("error %v", err)
	}
}

// A policy that is silent ends with the context, long before its timeout, and the context's cause is said.
func TestOwnPolicyInterrupted(t *testing.T) {
	dir := t.TempDir()
	begun := filepath.Join(dir, "begun")
	text := fmt.Sprintf(ownPolicy, "mine", "touch begun; sleep 600") + "timeout = \"10m\"\n"
	s, err := kinds.Parse(filepath.Join(dir, "exp.toml"), []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("interrupted")
	ctx, interrupt := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := NewPlan(ctx, s, "test")
		done <- err
	}()
	for _, err := os.Stat(begun); err != nil; _, err = os.Stat(begun) {
		time.Sleep(time.Millisecond)
	}
	interrupt(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("error %v, want %v", err, cause)
	}
}

// TestOwnPolicyTrace: one's own policy places the jobs of a trace beside built-in ones, and ends the run where it does not.
func TestOwnPolicyTrace(t *testing.T) {
	python, err := exec.LookPath("python3")
	testbedtest.Require(t, "python3", err)
	simulate := func(command string) error {
		text := fmt.Sprintf(`version = 1
[fat_tree]
racks = 2
hosts = 2
gpus = 2
[trace]
from = "poisson"
jobs = 20
[[policy]]
name = "mine"
command = %s
[[sweep]]
key = "placement.policy"
values = ["netpack", "mine"]
`, command)
		s, err := kinds.Parse("../examples/policy/exp.toml", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		rec, _, err := Run(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
		if err == nil && len(rec.Points) != 2 {
			t.Errorf("%d points", len(rec.Points))
		}
		return err
	}
	if err := simulate(fmt.Sprintf(`[%q, "fewest.py"]`, python)); err != nil {
		t.Error(err)
	}
	if err := simulate(`["/bin/sh", "-c", "echo no idea >&2; exit 1"]`); !errors.Is(err, spec.ErrInput) || !strings.Contains(err.Error(), "it said: no idea") {
		t.Errorf("error %v", err)
	}
	lazy := `import json, sys
for line in sys.stdin:
    r = json.loads(line)
    if "batch" in r:
        print(json.dumps({"batch": r["batch"], "jobs": [{"id": j["id"]} for j in r["waiting"]]}), flush=True)
`
	if err := simulate(fmt.Sprintf("[%q, \"-c\", %q]", python, lazy)); !errors.Is(err, spec.ErrInput) || !strings.Contains(err.Error(), "mine does not place job ") {
		t.Errorf("error %v", err)
	}
}

// TestOwnPolicyFiles: a sweep elsewhere is not resumed with another policy than it was begun with: its program is one of the
// files of the experiment, where it is beside that.
func TestOwnPolicyFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"mine.py": "first", "other.py": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.Replace(ownPolicy, `["/bin/sh", "-c", %q]`, `["python3", "mine.py", "/dev/null"]`, 1) + "[[policy]]\nname = \"other\"\ncommand = [\"./other.py\"]\n"
	s, err := kinds.Parse(filepath.Join(dir, "exp.toml"), fmt.Appendf(nil, text, "mine"), nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := kinds.Files(s)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "mine.py")
	if len(files) != 1 || files[path] == "" {
		t.Errorf("files %v, want %s alone", files, path)
	}
}

// TestOwnPolicyTimeout: an experiment that says nothing gives a policy as long as `inabench policy check` does.
func TestOwnPolicyTimeout(t *testing.T) {
	f, _ := reflect.TypeFor[spec.OwnPolicy]().FieldByName("Timeout")
	if got, err := time.ParseDuration(f.Tag.Get("default")); err != nil || got != policy.DefaultTimeout {
		t.Errorf("timeout is %v by default, policy.DefaultTimeout %v: %v", got, policy.DefaultTimeout, err)
	}
}
