package program_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/clean"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/preflight"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/sharp"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
)

// labHost is an SSH server on the loopback device, as a table of an inventory has it.
func labHost(t *testing.T) (table, home string) {
	t.Helper()
	home = t.TempDir()
	target := sshdtest.Serve(t, &sshd.Server{Dir: home, Env: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}})
	return fmt.Sprintf(`{address = %q, user = %q, key = %q, known_hosts = %q, config = "none"}`,
		target.Address, target.User, target.Keys[0], target.KnownHosts[0]), home
}

// A lab of quantum switches: hosts are leased, the aggregation manager, which is none of them,
// is told what the jobs need, programs run under supervisors, and everything is as it was. No
// switch is spoken to.
func TestQuantum(t *testing.T) {
	loopback(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var hosts strings.Builder
	for i := range 3 {
		table, _ := labHost(t)
		fmt.Fprintf(&hosts, "[[host]]\nname = \"h%d\"\nssh = %s\nnic = {port = \"leaf1/%d\", rdma = \"mlx5_0:1\"}\n", i+1, table, i+1)
	}
	manager, home := labHost(t)
	config := filepath.Join(home, "sharp_am.cfg")
	const before = "per_prio_default_quota 20\n"
	if err := os.WriteFile(config, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	inv, err := inventory.Parse(filepath.Join(t.TempDir(), "lab.toml"), fmt.Appendf(nil, `version = 1
[defaults]
rate = "200Gbit/s"
[sharp]
ssh = %s
config = %q
restart = ["sh", "-c", "cat \"$1\" >>\"$1.seen\"", "sh", %q]
[[switch]]
name = "leaf1"
kind = "quantum"
sharp = {trees = 2}
%s`, manager, config, config, hosts.String()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := kinds.Parse("test.toml", fmt.Appendf(nil, `version = 1
on = "lab"
[sharp]
set = ["per_prio_default_quota 50"]
[[program]]
name = "A"
kind = "nccl-tests"
command = [%q, "all-reduce-perf", "--peers", "127.0.0.1,127.0.0.1,127.0.0.1"]
launcher = "each"
hosts = ["h1", "h2", "h3"]
sizes = ["64KiB"]
iterations = 2
sharp = {tree = "SAT"}
[[expect]]
metric = "algbw"
value = "65.6Mbit/s"
tolerance = "1%%"
reason = "it is what the program prints"
`, exe), inv)
	if err != nil {
		t.Fatal(err)
	}
	s.SkipPreflight(preflight.Names()...) // these hosts have no InfiniBand
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	rec, _, err := experiments.Run(ctx, s, experiments.RunOptions{
		Driver: "lab", Root: t.TempDir(), Tool: "test", Hold: drivers.Holding{Journals: t.TempDir()},
	})
	if err != nil || rec.Outcome != results.Pass {
		t.Fatalf("%v: %q", err, rec.Reasons)
	}
	for _, f := range rec.Points[0].Phases[0].Figures {
		// 200 Gbit/s, of which 4096 of each 4122 bytes are payload, for a vector sent once.
		if want := 200e9 * 4096 / 4122; f.Kind == results.Predicted && f.Metric == "algbw" && (f.Value < want*0.999 || f.Value > want*1.001) {
			t.Errorf("predicted %v, want %v", f.Value, want)
		}
	}
	if text, _ := os.ReadFile(config); string(text) != before {
		t.Errorf("left: %s", text)
	}
	if seen, _ := os.ReadFile(config + ".seen"); string(seen) != "per_prio_default_quota 50\n"+before {
		t.Errorf("sharp_am saw: %s", seen)
	}
}

// A run that was killed after it changed sharp_am.cfg and made a reservation: clean puts both
// back by the journal, on a host that is none of the inventory's, and a second time does
// nothing.
func TestClean(t *testing.T) {
	loopback(t)
	table, home := labHost(t)
	config := filepath.Join(home, "sharp_am.cfg")
	const before = "per_prio_default_quota 20\n"
	if err := os.WriteFile(config, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	u := &ufm{apps: map[string]json.RawMessage{}}
	server := httptest.NewServer(u)
	defer server.Close()
	text := fmt.Sprintf(`version = 1
[defaults]
rate = "200Gbit/s"
[sharp]
ssh = %s
config = %q
restart = ["sh", "-c", "cat \"$1\" >>\"$1.seen\"", "sh", %q]
ufm = %q
[[switch]]
name = "leaf1"
kind = "quantum"
sharp = {trees = 2}
[[host]]
name = "h1"
nic = {port = "leaf1/1"}
`, table, config, config, server.URL)
	inv, err := inventory.Parse(filepath.Join(home, "lab.toml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	header := journal.Header{Version: 1, Run: "killed", Owner: keepers.Owner(), Began: time.Now(), File: inv.File, Inventory: text}
	log, err := journal.Open(t.TempDir(), header)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	client, err := reach.Dial(t.Context(), reach.ToManager(inv), reach.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	m := &sharp.Manager{Client: client, Target: journal.Manager, Config: inv.Manager.Config, Restart: inv.Manager.Restart}
	if _, err := m.Apply(t.Context(), sharp.Change{Set: []sharp.Option{{Key: "per_prio_default_quota", Value: "50"}}, RootGUIDs: []inventory.GUID{1}}, log); err != nil {
		t.Fatal(err)
	}
	reserve := &journal.Change{Target: "UFM " + server.URL, What: "reserve", Undo: journal.Inverse{Reservation: &journal.Reservation{URL: server.URL, API: "allocate", App: "inabench-A"}}}
	if err := log.Begin(reserve); err != nil {
		t.Fatal(err)
	}
	u.apps["inabench-A"] = json.RawMessage(`{"pkey": "0x12", "guids": ["0x1"]}`)
	for round := range 2 {
		var said []string
		err := clean.Run(t.Context(), log, clean.Options{Exe: "/proc/self/exe", Say: func(target, what string) { said = append(said, target+": "+what) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%q", said)
		if (len(said) == 4) != (round == 0) || round == 1 && len(said) != 0 {
			t.Errorf("round %d did %q", round, said)
		}
		if text, _ := os.ReadFile(config); string(text) != before || len(u.apps) != 0 {
			t.Errorf("left: %s, %v", text, u.apps)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "inabench_root_guids.cfg")); !os.IsNotExist(err) {
		t.Errorf("the file of roots: %v", err)
	}
	if seen, _ := os.ReadFile(config + ".seen"); !strings.HasSuffix(string(seen), before) {
		t.Errorf("sharp_am saw in the end: %s", seen)
	}
}
