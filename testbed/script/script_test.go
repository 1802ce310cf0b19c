package script_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/script"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
)

// host is a host with an SSH server, and its working directory.
func host(t *testing.T) (hosts.Host, string) {
	t.Helper()
	dir := t.TempDir()
	target := sshdtest.Serve(t, &sshd.Server{Dir: dir})
	target.Name = "atp1"
	return sshdtest.Dial(t, target), dir
}

func open(t *testing.T, c hosts.Host, s inventory.Script) *script.Switch {
	t.Helper()
	x, err := script.New(inventory.Switch{Name: "atp1", Kind: inventory.Scripted, Server: inventory.Server{Script: &s}}, c)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The whole life of a switch: set up, asked, counted, cleared. Nothing that is written in
// an argument means anything to a shell.
func TestLife(t *testing.T) {
	c, dir := host(t)
	const odd = "$(touch pwned) `touch pwned`; touch pwned 'a\"b\nc"
	x := open(t, c, inventory.Script{
		Setup:  []string{"cp", "/dev/null", "set up"},
		Status: []string{"printf", "%s|ready", odd}, Expect: `\|ready$`,
		Counters: []string{"printf", `{"packets": {"aggregated": 5, "drop": 2}, "pipes": [1, 2], "up": true}`},
		Clear:    []string{"rm", "-f", "set up"},
	})
	printed, err := x.Setup(t.Context())
	if diff := cmp.Diff(map[string]string{"setup": "", "status": odd + "|ready"}, printed); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := os.Stat(filepath.Join(dir, "set up")); err != nil {
		t.Error(err)
	}
	got, err := x.Collect(t.Context())
	sample := func(name string, v float64) results.Sample {
		return results.Sample{Source: "switch atp1", Of: "atp1", Metric: "script_" + name, Value: v, Unit: "1"}
	}
	want := []results.Sample{sample("packets_aggregated", 5), sample("packets_drop", 2), sample("pipes", 3)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for range 2 { // harmless where there is nothing to clear
		if err := x.Clear(t.Context()); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Commands that need root say what is missing where the user is not root and sudo is not
// allowed.
func TestRoot(t *testing.T) {
	c, _ := host(t)
	if err := open(t, c, inventory.Script{Clear: []string{"true"}, Root: true}).Clear(t.Context()); !errors.Is(err, hosts.ErrNotRoot) {
		t.Errorf("got %v", err)
	}
}

// Each failure names the switch, the command, where it ran, and what it said.
func TestFailures(t *testing.T) {
	c, _ := host(t)
	for name, k := range map[string]struct {
		script inventory.Script
		want   []string
		is     error
	}{
		"exit status":   {inventory.Script{Setup: []string{"sh", "-c", "echo no driver >&2; exit 3"}}, []string{"switch atp1: setup (sh on atp1)", "3", "no driver"}, nil},
		"no program":    {inventory.Script{Setup: []string{"run_pd_rpc_is_not_here.py"}}, []string{"setup (run_pd_rpc_is_not_here.py", "exit status 12"}, nil},
		"other output":  {inventory.Script{Setup: []string{"echo", "half way"}, Expect: "^done"}, []string{`it printed "half way"`, "^done"}, script.ErrUnexpected},
		"other status":  {inventory.Script{Setup: []string{"true"}, Status: []string{"echo", "inactive"}, Expect: "^active"}, []string{"status (echo", "inactive"}, script.ErrUnexpected},
		"never ends":    {inventory.Script{Status: []string{"sleep", "60"}, Timeout: inventory.Duration(50 * time.Millisecond)}, []string{"status (sleep", "it did not end within 50ms"}, nil},
		"no counters":   {inventory.Script{Setup: []string{"true"}, Counters: []string{"echo", "nothing"}}, []string{"counters (echo", "nothing"}, script.ErrCounters},
		"counter fails": {inventory.Script{Setup: []string{"true"}, Counters: []string{"false"}}, []string{"counters (false on atp1)", "1"}, nil},
	} {
		x := open(t, c, k.script)
		_, err := x.Setup(t.Context())
		if err == nil {
			_, err = x.Counters(t.Context())
		}
		if err == nil || k.is != nil && !errors.Is(err, k.is) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range k.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v: lacks %q", name, err, part)
			}
		}
	}
}

// Counters in the forms that controllers print.
func TestParseCounters(t *testing.T) {
	colon := regexp.MustCompile(`(?m)^\s*(?P<name>[A-Za-z ]+):\s*(?P<value>\d+)`)
	for name, k := range map[string]struct {
		text    string
		pattern *regexp.Regexp
		want    map[string]float64
	}{
		"JSON":          {`{"broadcast": 12, "Retransmit": 1e3}`, nil, map[string]float64{"broadcast": 12, "retransmit": 1000}},
		"names clash":   {`{"a-b": 1, "a b": 2}`, nil, map[string]float64{"a_b": 3}},
		"pattern":       {"  broadcast: 12 packets\n  drop: 0\nnot this 7\n", colon, map[string]float64{"broadcast": 12, "drop": 0}},
		"twice":         {"drop: 1\ndrop: 2\n", colon, map[string]float64{"drop": 3}},
		"negative":      {`{"a": -1}`, nil, nil},
		"text alone":    {`{"state": "up"}`, nil, nil},
		"an array":      {`[1, 2]`, nil, nil},
		"no number":     {`{"a": [1e308, 1e308]}`, nil, nil},
		"two objects":   {`{"a": 1} {"a": 2}`, nil, nil},
		"none matches":  {"drop 1", colon, nil},
		"without group": {"drop: 1", regexp.MustCompile(`drop: (\d+)`), nil},
	} {
		got, err := script.ParseCounters(k.text, k.pattern)
		if diff := cmp.Diff(k.want, got); diff != "" || (err == nil) != (k.want != nil) || err != nil && !errors.Is(err, script.ErrCounters) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// Counters are counts with names that metrics can have, or there are none.
func FuzzParseCounters(f *testing.F) {
	f.Add(`{"a": {"b": [1, 2.5]}, "c": "7"}`, "")
	f.Add("drop: 3\nmark = 4", `(?P<name>\w+) *[:=] *(?P<value>\S+)`)
	name := regexp.MustCompile(`^[a-z0-9_]+$`)
	f.Fuzz(func(t *testing.T, text, pattern string) {
		var re *regexp.Regexp
		if pattern != "" {
			var err error
			if re, err = regexp.Compile(pattern); err != nil {
				return
			}
		}
		got, err := script.ParseCounters(text, re)
		if (err == nil) != (len(got) > 0) {
			t.Fatalf("%v, %v", got, err)
		}
		for k, v := range got {
			if !name.MatchString(k) || !(v >= 0) || math.IsInf(v, 0) {
				t.Fatalf("%q = %v", k, v)
			}
		}
	})
}

// What the documentation shows is an inventory.
func TestDocumentedExamples(t *testing.T) {
	source, err := os.ReadFile("script.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, _, _ := strings.Cut(string(source), "\npackage script")
	text := "version = 1\n[defaults]\nrate = \"100Gbit/s\"\n"
	for _, line := range strings.Split(doc, "\n") {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			text += code + "\n"
		}
	}
	text += `
[[host]]
name = "node[1-2]"
ssh.address = "10.0.0.[1-2]"
nic = {device = "ens1f0", port = "atp1/[1-2]", address = "10.1.0.[1-2]/24"}

[[link]]
a = "atp1/9"
b = "switchml1/9"
`
	inv, err := inventory.Parse("example.toml", []byte(text))
	if err == nil {
		err = inv.CheckLab()
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.Switches) != 2 || inv.Switches[0].Script.Timeout.Std() != 2*time.Minute || inv.Switches[1].Script.Host != "node1" {
		t.Errorf("%+v", inv.Switches)
	}
}

// The host is the one that the inventory names, or the switch itself.
func TestHost(t *testing.T) {
	inv := &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1", SSH: inventory.SSH{Address: "10.0.0.1"}}}}
	sw := inventory.Switch{Name: "atp1", Server: inventory.Server{SSH: inventory.SSH{Address: "10.0.1.1"}, Script: &inventory.Script{}}}
	for named, want := range map[string]string{"": "10.0.1.1", "h1": "10.0.0.1", "h2": ""} {
		sw.Script.Host = named
		if got, err := script.Host(inv, sw); got.SSH.Address != want || (err == nil) != (want != "") {
			t.Errorf("host %q: %q, %v, want %q", named, got.SSH.Address, err, want)
		}
	}
}
