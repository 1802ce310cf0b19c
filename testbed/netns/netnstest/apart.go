package netnstest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// apart is set, to a test's name, in the process that Apart has started for it.
const apart = "INABENCH_TEST_APART"

// Apart runs a test in a process of its own, whose TestMain goes on inside namespaces of its
// own, so that tests which bring up emulations can run in parallel. It reports whether this is
// that process, where the caller goes on. Elsewhere it has waited for it and the test has
// ended as it did there: the caller returns.
//
//	func TestLab(t *testing.T) {
//		t.Parallel()
//		if !netnstest.Apart(t) {
//			return
//		}
//
// The other process has this one's flags, and what is left of its time.
func Apart(t *testing.T) bool {
	t.Helper()
	if IsApart(t.Name()) {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", arguments(t)...)
	cmd.Env = append(os.Environ(), apart+"="+t.Name())
	out, err := cmd.CombinedOutput()
	skipped := strings.Contains(string(out), "--- SKIP: "+t.Name()+" ")
	if err != nil || skipped || testing.Verbose() {
		t.Logf("%s", out)
	}
	switch {
	case err != nil:
		t.Errorf("apart: %v", err)
	case skipped:
		t.SkipNow()
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Errorf("apart it did not run:\n%s", out)
	}
	return false
}

// IsApart reports whether this process is one that Apart has started for a test of this
// name, or for any if the name is empty.
func IsApart(name string) bool {
	is := os.Getenv(apart)
	return is != "" && (name == "" || name == is)
}

// arguments make the test binary run this test and no other.
func arguments(t *testing.T) []string {
	steps := strings.Split(t.Name(), "/")
	for i, s := range steps {
		steps[i] = "^" + regexp.QuoteMeta(s) + "$"
	}
	args := []string{"-test.run=" + strings.Join(steps, "/"), "-test.v"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, fmt.Sprint("-test.timeout=", max(time.Second, time.Until(deadline)-time.Second)))
	}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}
