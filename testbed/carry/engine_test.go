package carry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/preflight"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
)

// TestAsks is a job of two workers with a ring beside it, on a rack of four hosts: the ring's frames are TCP's, and nothing
// is asked of the host without a job.
func TestAsks(t *testing.T) {
	inv, err := inventory.Parse("rack.toml", []byte(`version = 1
[[switch]]
name = "tor1"
kind = "soft"
aggregators = 4096
[[host]]
name = "h[1-4]"
gpus = 2
nic = {port = "tor1/[1-4]", rate = "100Gbit/s", delay = "5us"}
`))
	if err != nil {
		t.Fatal(err)
	}
	plan := &placement.Plan{Jobs: []placement.JobPlan{
		{ID: 1, Name: "A", Collective: placement.INA, PS: "h3", Workers: []placement.Worker{{Host: "h1"}, {Rank: 1, Host: "h2"}}},
		{ID: 2, Name: "R", Collective: placement.Ring, Workers: []placement.Worker{{Host: "h1"}, {Rank: 1, Host: "h2"}}},
	}}
	for i := range plan.Jobs {
		if err := placement.BuildTree(inv.Topology(), inv, &plan.Jobs[i]); err != nil {
			t.Fatal(err)
		}
	}
	// A million frames of 1024 bytes a second of each worker, which the switch adds up.
	senders := map[string]placement.Sender{"A": {Rate: 8.192e9}, "R": {Rate: 8 * 1514 * 1e6}}
	for _, active := range [][]string{{"A"}, {"A", "R"}} {
		p, err := placement.Predict(inv, plan, placement.Conditions{Active: active, Lanes: 240, Senders: senders})
		if err != nil {
			t.Fatal(err)
		}
		asks, err := Asks(inv, plan, []*placement.Prediction{p}, 240)
		if err != nil {
			t.Fatal(err)
		}
		if len(asks) != 3 {
			t.Fatalf("%v: %+v, want one of h1, h2 and h3", active, asks)
		}
		for i, host := range []string{"h1", "h2", "h3"} {
			a := asks[i]
			if a.Host != host || a.Lanes != 240 || a.Processes != 1 || len(a.Rails) != 1 {
				t.Errorf("%v: %+v, want one process on %s", active, a, host)
			}
			for _, got := range []float64{a.Rails[0].Sent, a.Rails[0].Received, a.Packets() / 2} {
				if math.Abs(got-1e6) > 10 {
					t.Errorf("%v: %+v, want a million each way", active, a)
				}
			}
		}
	}
	ring, err := placement.Predict(inv, plan, placement.Conditions{Active: []string{"R"}, Lanes: 240, Senders: senders})
	if err != nil {
		t.Fatal(err)
	}
	if asks, err := Asks(inv, plan, []*placement.Prediction{ring}, 240); err != nil || len(asks) > 0 {
		t.Errorf("%+v, %v of a ring", asks, err)
	}
	if _, err := Asks(inv, &placement.Plan{}, []*placement.Prediction{ring}, 240); err == nil {
		t.Error("no error of a prediction for jobs that are not in the plan")
	}
}

// asking is what so many processes ask that send and receive so many packets in all.
func asking(lanes, processes int, packets float64) Ask {
	return Ask{Host: "h1", Lanes: lanes, Processes: processes, Rails: []Rail{{"eth0", packets / 4, 3 * packets / 4}}}
}

func TestJudge(t *testing.T) {
	counted := Engine{CPUs: 4, Packet: 1e-6}      // a million packets a second of each core, however large
	weighed := Engine{CPUs: 4, Byte: 1e-6 / 1024} // as many of 1024 bytes
	two := asking(16, 1, 4e5)
	two.Rails = append(two.Rails, Rail{"eth1", 1e5, 2e5})
	for _, tt := range []struct {
		name    string
		of      measured
		asks    []Ask
		outcome results.Outcome
		says    []string // in what it says
		hint    string
	}{
		{"less than half", measured{engine: counted}, []Ask{asking(16, 1, 4e5)}, results.Pass,
			[]string{"asked to send and receive 400,000 packets/s of 128 bytes (410 Mbit/s), able to do 1,000,000 packets/s", "with 1 thread on 4 cores"}, ""},
		{"more", measured{engine: counted}, []Ask{asking(16, 1, 6e5)}, results.Inconclusive,
			[]string{"wanted at most 500,000 packets/s"}, "lower the rate of jobs, or send larger frames: switch.lanes = 240"},
		{"too much", measured{engine: counted}, []Ask{asking(16, 1, 1.2e6)}, results.Fail,
			[]string{"limited by threads and the number of packets", "wanted at most 500,000"}, "lower the rate of jobs, or send larger frames: switch.lanes = 240"},
		{"of two threads", measured{engine: counted}, []Ask{asking(16, 2, 8e5)}, results.Pass, []string{"able to do 2,000,000", "2 threads"}, ""},
		{"of more threads than cores", measured{engine: counted}, []Ask{asking(240, 5, 4.1e6)}, results.Fail,
			[]string{"able to do 4,000,000", "limited by cores"}, "lower the rate of jobs, or place fewer workers and PSes on a host"},
		{"bits", measured{engine: weighed}, []Ask{asking(240, 1, 1.2e6)}, results.Fail, []string{"limited by threads and bits"}, "lower the rate of jobs"},
		{"as many smaller ones", measured{engine: weighed}, []Ask{asking(16, 1, 1.2e6)}, results.Pass, []string{"able to do 8,000,000"}, ""},
		{"the worst phase counts", measured{engine: counted}, []Ask{asking(16, 1, 1e5), asking(16, 1, 1.2e6), asking(16, 4, 1.3e6)}, results.Fail,
			[]string{"asked to send and receive 1,200,000"}, "lower the rate of jobs, or send larger frames: switch.lanes = 240"},
		{"two rails", measured{engine: counted}, []Ask{two}, results.Inconclusive, []string{"(eth0 400,000, eth1 300,000)"}, "lower the rate of jobs, or send larger frames: switch.lanes = 240"},
		{"nothing asked", measured{engine: counted}, nil, results.Pass, []string{"able to send and receive 1,000,000 packets/s of 1024 bytes (8.19 Gbit/s) on each of 4 cores"}, ""},
		{"not measured", measured{err: errors.New("no\nprogram")}, []Ask{two}, results.Skipped, []string{"no program"}, ""},
	} {
		got := tt.of.judge("h1", tt.asks)
		if got.Name != preflight.Ceiling || got.Host != "h1" || got.Outcome != tt.outcome || got.Hint != tt.hint {
			t.Errorf("%s: %+v, want %s and hint %q", tt.name, got, tt.outcome, tt.hint)
		}
		for _, want := range tt.says {
			if !strings.Contains(got.String(), want) {
				t.Errorf("%s: %q lacks %q", tt.name, got, want)
			}
		}
	}
}

func TestLine(t *testing.T) {
	for _, tt := range []struct{ small, large, packet, each float64 }{
		{3, 21, 1, 0.02}, // 1 + 0.02·100, and 1 + 0.02·1000
		{2, 2, 2, 0},     // bytes cost nothing
		{3, 2, 3, 0},     // noise
		{1, 19, 0, 0.02}, // a packet cannot cost less than nothing
	} {
		packet, each := line(tt.small, tt.large, 100, 1000)
		if math.Abs(packet-tt.packet) > 1e-9 || math.Abs(each-tt.each) > 1e-9 {
			t.Errorf("line(%v, %v) is %v and %v, want %v and %v", tt.small, tt.large, packet, each, tt.packet, tt.each)
		}
	}
}

// TestEngine measures this machine, as a host does.
func TestEngine(t *testing.T) {
	var out bytes.Buffer
	if err := EngineMain(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	var e Engine
	if err := json.Unmarshal(out.Bytes(), &e); err != nil || !e.valid() {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	if small, large := e.Able(engineLanes, 1), e.Able(240, 1); small <= 0 || large <= 0 || large > small || math.IsInf(small, 0) {
		t.Errorf("%v small packets and %v large ones a second", small, large)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := EngineMain(cancelled, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// labHost is a host of a lab on this machine, with a kernel that it says from a file.
func labHost(t *testing.T, kernel string) preflight.Host {
	t.Helper()
	uname, err := exec.LookPath("uname")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	programs := sshdtest.Programs(t, map[string]string{"uname": `case $1 in -r) cat "` + kernel + `";; *) exec ` + uname + ` "$@";; esac`})
	target := sshdtest.Serve(t, &sshd.Server{Dir: home, Env: append(os.Environ(), "HOME="+home, "PATH="+programs+":"+os.Getenv("PATH"))})
	return preflight.Host{
		Host:   inventory.Host{Name: "h1", SSH: inventory.SSH{Address: target.Address}},
		Client: sshdtest.Dial(t, target),
	}
}

// TestLook measures a host of a lab, over SSH, and again only where what was kept of it does not hold any more.
func TestLook(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	kernel := filepath.Join(t.TempDir(), "kernel")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(kernel, "5.1\n")
	h := labHost(t, kernel)
	look := func(asks ...Ask) results.Preflight {
		t.Helper()
		all := Look(t.Context(), []preflight.Host{h}, asks, "v1", 0)
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	kept := func() Engine {
		t.Helper()
		e, ok := KnownEngine(h.Host, "v1")
		if !ok {
			t.Fatalf("nothing is kept: %+v", e)
		}
		return e
	}

	inv := &inventory.Inventory{Hosts: []inventory.Host{h.Host}}
	if got := Foresee(inv, []Ask{asking(240, 1, 1)}, "v1"); len(got) != 1 || got[0].Outcome != results.Skipped || !strings.HasPrefix(got[0].Why, "not measured") {
		t.Errorf("before it is measured: %+v", got)
	}
	if p := look(); p.Outcome != results.Pass {
		t.Fatal(p)
	}
	first := kept()
	if !first.valid() || first.Kernel != "5.1" || first.Tool != "v1" || first.At.IsZero() {
		t.Errorf("%+v", first)
	}
	// More than any host is able to do, and next to nothing: what was kept says it.
	for packets, want := range map[float64]results.Outcome{1e15: results.Fail, 1e-3: results.Pass} {
		if p := look(asking(240, 1, packets)); p.Outcome != want {
			t.Errorf("%v packets/s: %+v", packets, p)
		}
		if got := Foresee(inv, []Ask{asking(240, 1, packets)}, "v1"); len(got) != 1 || got[0].Outcome != want {
			t.Errorf("%v packets/s are foreseen: %+v", packets, got)
		}
	}
	if kept() != first {
		t.Errorf("it was measured again: %+v, %+v", first, kept())
	}
	if all := Look(t.Context(), []preflight.Host{h}, []Ask{{Host: "h2"}}, "v1", 0); len(all) > 0 {
		t.Errorf("nothing is asked of it: %+v", all)
	}

	write(kernel, "6.9\n")
	if p := look(); p.Outcome != results.Pass || kept().Kernel != "6.9" {
		t.Errorf("another kernel: %+v, %+v", p, kept())
	}
	write(engineFile(h.Host), `{"cpus": 2, "pack`)
	if _, ok := KnownEngine(h.Host, "v1"); ok {
		t.Error("half a file is taken")
	}
	if p := look(); p.Outcome != results.Pass || !kept().valid() {
		t.Errorf("half a file: %+v", p)
	}

	h.Client.Close()
	if p := look(); p.Outcome != results.Skipped || p.Why == "" {
		t.Errorf("a host that is lost: %+v", p)
	}
}

// TestKnownEngine: what was kept is of this version of the program, not too old, and makes sense.
func TestKnownEngine(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	h := inventory.Host{Name: "h1", SSH: inventory.SSH{Address: "h1.example"}}
	good := Engine{CPUs: 2, Packet: 1e-6, Byte: 1e-10, Tool: "v1", At: time.Now().UTC()}
	change := func(f func(*Engine)) Engine {
		e := good
		f(&e)
		return e
	}
	for name, tt := range map[string]struct {
		kept Engine
		want bool
	}{
		"good":        {good, true},
		"old":         {change(func(e *Engine) { e.At = e.At.Add(-EngineAge - time.Hour) }), false},
		"of tomorrow": {change(func(e *Engine) { e.At = e.At.Add(24 * time.Hour) }), false},
		"another":     {change(func(e *Engine) { e.Tool = "v2" }), false},
		"free":        {change(func(e *Engine) { e.Packet, e.Byte = 0, 0 }), false},
		"negative":    {change(func(e *Engine) { e.Byte = -1e-12 }), false},
		"no cores":    {change(func(e *Engine) { e.CPUs = 0 }), false},
	} {
		keep(engineFile(h), tt.kept)
		if e, ok := KnownEngine(h, "v1"); ok != tt.want {
			t.Errorf("%s: %+v, %v", name, e, ok)
		}
	}
	keep(engineFile(h), good)
	others := []inventory.Host{{Name: "h2", SSH: h.SSH}, {Name: "h1", SSH: inventory.SSH{Address: "h2.example"}}, {Name: "h1", SSH: h.SSH, Launcher: "beside"}}
	if i := slices.IndexFunc(others, func(o inventory.Host) bool { _, ok := KnownEngine(o, "v1"); return ok }); i >= 0 {
		t.Errorf("%+v has what was kept of %+v", others[i], h)
	}
}
