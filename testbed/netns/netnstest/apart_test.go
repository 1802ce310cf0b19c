package netnstest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(nil)
	os.Exit(m.Run())
}

// asVictim says how TestVictim ends, in the process that Apart starts.
const asVictim = "INABENCH_TEST_VICTIM"

func TestVictim(t *testing.T) {
	how := os.Getenv(asVictim)
	if how == "" {
		t.Skip("TestApart runs it")
	}
	t.Run("a b", func(t *testing.T) {
		outside, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		const outer = "INABENCH_TEST_OUTER"
		if !netnstest.IsApart("") {
			t.Setenv(outer, outside)
		}
		if !netnstest.Apart(t) {
			return
		}
		if os.Getenv(outer) == outside {
			t.Error("in the same network namespace")
		}
		switch how {
		case "fail":
			t.Error("because")
		case "skip":
			t.Skip("because")
		case "exit":
			os.Exit(0)
		}
	})
}

// A test that runs apart ends as it does there, and says what was said there.
func TestApart(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	for how, want := range map[string]string{
		"pass": "    --- PASS: TestVictim/a_b ", "fail": "    --- FAIL: TestVictim/a_b ", "skip": "    --- SKIP: TestVictim/a_b ", "exit": "apart it did not run",
	} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestVictim$", "-test.v")
		cmd.Env = append(os.Environ(), asVictim+"="+how)
		out, err := cmd.CombinedOutput()
		if good := how == "pass" || how == "skip"; (err == nil) != good || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, without %q\n%s", how, err, want, out)
		}
		if because := how == "fail" || how == "skip"; strings.Contains(string(out), "because") != because {
			t.Errorf("%s:\n%s", how, out)
		}
	}
}
