package carry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/preflight"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
	"github.com/inabench/inabench/testbed/udp"
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
		p, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Active: active, Lanes: 240, Senders: senders})
		if err != nil {
			t.Fatal(err)
		}
		asks, err := Asks(inv, plan, []*placement.Prediction{p}, 240, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(asks) != 3 {
			t.Fatalf("%v: %+v, want one of h1, h2 and h3", active, asks)
		}
		for i, want := range []struct{ host, process string }{{"h1", "worker 0 of job A"}, {"h2", "worker 1 of job A"}, {"h3", "the PS of job A"}} {
			a := asks[i]
			if a.Host != want.host || a.Lanes != 240 || len(a.Processes) != 1 || a.Processes[0].Name != want.process || len(a.Rails) != 1 || a.Window != "" {
				t.Fatalf("%v: %+v, want %s on %s", active, a, want.process, want.host)
			}
			for _, got := range []float64{a.Rails[0].Sent, a.Rails[0].Received, a.Packets() / 2} {
				if math.Abs(got-1e6) > 10 {
					t.Errorf("%v: %+v, want a million each way", active, a)
				}
			}
			if want := len(active) - 1; a.Host != "h3" && a.Rings != want {
				t.Errorf("%v: %d workers of rings on %s, want %d", active, a.Rings, a.Host, want)
			}
		}
	}
	ring, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Active: []string{"R"}, Lanes: 240, Senders: senders})
	if err != nil {
		t.Fatal(err)
	}
	if asks, err := Asks(inv, plan, []*placement.Prediction{ring}, 240, true); err != nil || len(asks) > 0 {
		t.Errorf("%+v, %v of a ring", asks, err)
	}
	if _, err := Asks(inv, &placement.Plan{}, []*placement.Prediction{ring}, 240, true); err == nil {
		t.Error("no error of a prediction for jobs that are not in the plan")
	}
	// A window of 16 limits it, for as long as its round trip is the topology's: only a run that calibrates will know better.
	window, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{
		Active: []string{"A"}, Lanes: 240, Senders: map[string]placement.Sender{"A": {Window: 16}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for calibrates, want := range map[bool]string{true: "A", false: ""} {
		asks, err := Asks(inv, plan, []*placement.Prediction{window}, 240, calibrates)
		if err != nil || len(asks) != 3 || asks[0].Window != want || asks[2].Window != want {
			t.Errorf("calibrates %v: %+v, %v; want window %q", calibrates, asks, err, want)
		}
	}
}

// TestAsksOfProcesses: a host has a worker and two PSes of jobs that switches do not add up for. What each of them handles
// is counted here packet by packet: a PS receives one of each of its workers, and answers each of them.
func TestAsksOfProcesses(t *testing.T) {
	inv, err := inventory.Parse("rack.toml", []byte(`version = 1
[[switch]]
name = "tor1"
kind = "soft"
aggregators = 4096
[[host]]
name = "h[1-5]"
gpus = 2
nic = {port = "tor1/[1-5]", rate = "100Gbit/s", delay = "5us"}
`))
	if err != nil {
		t.Fatal(err)
	}
	workers := func(hosts ...string) (out []placement.Worker) {
		for i, h := range hosts {
			out = append(out, placement.Worker{Rank: i, Host: h})
		}
		return out
	}
	plan := &placement.Plan{Jobs: []placement.JobPlan{
		{ID: 1, Name: "A", Collective: placement.PS, PS: "h5", Workers: workers("h1", "h2", "h3")},
		{ID: 2, Name: "B", Collective: placement.PS, PS: "h5", Workers: workers("h4")},
		{ID: 3, Name: "C", Collective: placement.PS, PS: "h4", Workers: workers("h5")},
	}}
	senders := map[string]placement.Sender{}
	for i := range plan.Jobs {
		if err := placement.BuildTree(inv.Topology(), inv, &plan.Jobs[i]); err != nil {
			t.Fatal(err)
		}
		senders[plan.Jobs[i].Name] = placement.Sender{Rate: 8 * 1024 * 1e5 * float64(i+1)} // 100,000 frames a second, 200,000 and 300,000
	}
	p, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Lanes: 240, Senders: senders})
	if err != nil {
		t.Fatal(err)
	}
	asks, err := Asks(inv, plan, []*placement.Prediction{p}, 240, true)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, a := range asks {
		for _, p := range a.Processes {
			got[a.Host+": "+p.Name] = p.Packets
		}
	}
	want := map[string]float64{
		"h1: worker 0 of job A": 2e5, "h2: worker 1 of job A": 2e5, "h3: worker 2 of job A": 2e5, "h5: the PS of job A": 3e5 + 3e5,
		"h4: worker 0 of job B": 4e5, "h5: the PS of job B": 2e5 + 2e5,
		"h5: worker 0 of job C": 6e5, "h4: the PS of job C": 3e5 + 3e5,
	}
	if len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, packets := range want {
		if math.Abs(got[name]-packets) > 0.01*packets {
			t.Errorf("%s: %.0f packets/s, want %.0f", name, got[name], packets)
		}
	}
}

// asking is what processes ask that send and receive so many packets each.
func asking(lanes int, each ...float64) Ask {
	a := Ask{Host: "h1", Lanes: lanes}
	for i, packets := range each {
		a.Processes = append(a.Processes, Process{Name: fmt.Sprintf("worker %d of job A", i), Packets: packets})
	}
	a.Rails = []Rail{{"eth0", a.Packets() / 4, 3 * a.Packets() / 4}}
	return a
}

func TestJudge(t *testing.T) {
	counted := Engine{CPUs: 4, Packet: 1e-6}      // a million packets a second of each core, however large
	weighed := Engine{CPUs: 4, Byte: 1e-6 / 1024} // as many of 1024 bytes
	loaded := counted
	loaded.Others = 0.5
	two := asking(16, 7e5, 7e5, 7e5, 7e5)
	two.Rails = append(two.Rails, Rail{"eth1", 1e5, 2e5})
	windowed, ringed := asking(240, 9e6), asking(240, 1e5)
	windowed.Window, windowed.Processes[0].Window, ringed.Rings = "A", true, 2
	beside := asking(240, 9e6, 3e6)
	beside.Window, beside.Processes[0].Window = "A", true
	const larger = "lower the rate of jobs, or send larger frames: switch.lanes = 240"
	for _, tt := range []struct {
		name    string
		of      measured
		asks    []Ask
		outcome results.Outcome
		says    []string // in what it says
		hint    string
	}{
		{"less than half", measured{engine: counted}, []Ask{asking(16, 4e5)}, results.Pass,
			[]string{"asked to send and receive 400,000 packets/s of 128 bytes (410 Mbit/s) by worker 0 of job A, able to do 1,000,000 packets/s", "with one thread"}, ""},
		{"more", measured{engine: counted}, []Ask{asking(16, 6e5)}, results.Inconclusive,
			[]string{"wanted at most 500,000 packets/s", ", 83 % of that"}, larger},
		{"too much", measured{engine: counted}, []Ask{asking(16, 1.2e6)}, results.Fail,
			[]string{"limited by a thread and the number of packets", "wanted at most 500,000", ", 41 % of that"}, larger},
		{"of two threads", measured{engine: counted}, []Ask{asking(16, 4e5, 4e5)}, results.Pass, []string{"able to do 1,000,000"}, ""},
		// Four cores are able to do four million, and one thread no more than one.
		{"one thread of many", measured{engine: counted}, []Ask{asking(240, 1e4, 1.2e6, 1e4)}, results.Fail,
			[]string{"1,200,000 packets/s of 1024 bytes", "by worker 1 of job A, able to do 1,000,000"}, "lower the rate of jobs"},
		{"of more threads than cores", measured{engine: counted}, []Ask{asking(240, 8e5, 8e5, 8e5, 8e5, 9e5)}, results.Fail,
			[]string{"by 5 workers and PSes, able to do 4,000,000", "on 4 cores", "limited by cores"}, "lower the rate of jobs, or place fewer workers and PSes on a host"},
		{"bits", measured{engine: weighed}, []Ask{asking(240, 1.2e6)}, results.Fail, []string{"limited by a thread and bits"}, "lower the rate of jobs"},
		{"as many smaller ones", measured{engine: weighed}, []Ask{asking(16, 1.2e6)}, results.Pass, []string{"able to do 8,000,000"}, ""},
		{"the worst phase counts", measured{engine: counted}, []Ask{asking(16, 1e5), asking(16, 1.2e6), asking(16, 3e5, 3e5, 3e5, 4e5)}, results.Fail,
			[]string{"asked to send and receive 1,200,000"}, larger},
		{"two rails", measured{engine: Engine{CPUs: 2, Packet: 1e-6}}, []Ask{two}, results.Fail, []string{"(eth0 2,800,000, eth1 300,000)"},
			larger + ", or place fewer workers and PSes on a host"},
		{"a window that nobody has calibrated", measured{engine: counted}, []Ask{windowed}, results.Inconclusive,
			[]string{"; job A may ask for less"}, "lower the rate of jobs, or lower the window of job A"},
		{"a window, and too much beside it", measured{engine: counted}, []Ask{beside}, results.Fail,
			[]string{"9,000,000"}, "lower the rate of jobs, or lower the window of job A"},
		{"a window, and too much in another phase", measured{engine: counted}, []Ask{windowed, asking(240, 1.2e6)}, results.Fail,
			[]string{"1,200,000"}, "lower the rate of jobs"},
		{"rings", measured{engine: counted}, []Ask{ringed}, results.Pass, []string{"; 2 workers of rings there are not counted"}, ""},
		{"too much, but others were there", measured{engine: loaded}, []Ask{asking(240, 2e6)}, results.Inconclusive,
			[]string{"others used 50 % of its cores while it was measured"}, "lower the rate of jobs"},
		{"too much, whoever was there", measured{engine: loaded}, []Ask{asking(240, 5e6)}, results.Fail, []string{"others used 50 %"}, "lower the rate of jobs"},
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
	if small, large := e.Able(engineLanes), e.Able(240); small <= 0 || large <= 0 || large > small || math.IsInf(small, 0) {
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
	if !first.valid() || !strings.Contains(first.On, "5.1 ") || first.Tool != "v1" || first.At.IsZero() {
		t.Errorf("%+v", first)
	}
	// More than any host is able to do, and next to nothing: what was kept says it.
	for packets, want := range map[float64]results.Outcome{1e15: results.Fail, 1e-3: results.Pass} {
		if p := look(asking(240, packets)); p.Outcome != want {
			t.Errorf("%v packets/s: %+v", packets, p)
		}
		if got := Foresee(inv, []Ask{asking(240, packets)}, "v1"); len(got) != 1 || got[0].Outcome != want {
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
	if p := look(); p.Outcome != results.Pass || !strings.Contains(kept().On, "6.9 ") {
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

		"cores without end":      {change(func(e *Engine) { e.CPUs = math.MaxInt }), false},
		"faster than any":        {change(func(e *Engine) { e.Packet, e.Byte = 1e-300, 0 }), false},
		"slower than any":        {change(func(e *Engine) { e.Packet = 1e300 }), false},
		"bytes beyond a float":   {change(func(e *Engine) { e.Byte = 1e308 }), false},
		"more than all others":   {change(func(e *Engine) { e.Others = 2 }), false},
		"disturbed":              {change(func(e *Engine) { e.Others, e.At = 0.5, e.At.Add(-DisturbedAge/2) }), true},
		"disturbed, an hour ago": {change(func(e *Engine) { e.Others, e.At = 0.5, e.At.Add(-DisturbedAge-time.Minute) }), false},
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

// TestOthers: the machine's 3 s less 1 s of one's own are half of what two cores have in 2 s.
func TestOthers(t *testing.T) {
	since := used{all: 100, own: 7}
	for _, tt := range []struct {
		now  used
		want float64
	}{
		{used{103, 8}, 0.5},
		{used{101, 8}, 0},
		{used{100.9, 8}, 0}, // ticks are coarse
		{used{120, 8}, 1},
	} {
		if got := tt.now.others(since, 2, 2); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v: %v, want %v", tt.now, got, tt.want)
		}
	}
}

// TestLossy: a round counts if all packets arrive; those that were lost are no cost.
func TestLossy(t *testing.T) {
	l, err := newLoopback(240)
	if err != nil {
		t.Fatal(err)
	}
	defer l.sock.Close()
	if err := l.sample(false); err != nil || l.lost > 0 || len(l.costs) > 0 {
		t.Errorf("a round that does not count: %v, %d lost, costs %v", err, l.lost, l.costs)
	}
	if err := l.sample(true); err != nil || len(l.costs) != 1 || l.loss() != nil {
		t.Errorf("a round: %v, %v, costs %v", err, l.loss(), l.costs)
	}
	l.to = udp.Address([4]byte{127, 0, 0, 1}, 9) // discard: nobody is there
	if err := l.sample(true); err != nil || len(l.costs) != 1 || l.lost == 0 || !strings.Contains(l.loss().Error(), "1024 bytes") {
		t.Errorf("a round that is lost: %v, %v, costs %v", err, l.loss(), l.costs)
	}
}

// TestHostileProbe: what a host says of itself is no measurement unless it can be one, and one host that cannot have this
// program keeps no other from being measured.
func TestHostileProbe(t *testing.T) {
	for _, said := range []string{
		``, `null`, `[]`, `{}`, `{"cpus": 1}`, `{"cpus": 2, "packet": 1e999}`, `{"cpus": 2, "packet": NaN}`, `{"cpus": -2, "packet": 1e-6}`,
		`{"cpus": 2, "packet": 1e-6, "byte": -1e-9}`, `{"cpus": 2, "packet": 1e300}`, `{"cpus": 1e12, "packet": 1e-6}`,
		`{"cpus": 2, "packet": 1e-6, "others": -1}`, strings.Repeat("x", 1<<20),
	} {
		e, err := askEngine(t.Context(), saying{said: said}, "inabench")
		if err == nil || len(err.Error()) > 1000 || e != (Engine{}) {
			t.Errorf("%.80q: %+v, %v", said, e, err)
		}
	}
	if e, err := askEngine(t.Context(), saying{said: `{"cpus": 2, "packet": 1e-6}`}, "inabench"); err != nil || e.CPUs != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if is, err := identify(t.Context(), saying{said: strings.Repeat("é\xff\x1b\n", 1<<10)}); err != nil || len(is) > longestIdentity || !utf8.ValidString(is) {
		t.Errorf("%q, %v", is, err)
	}

	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	kernel := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(kernel, []byte("5.1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	other := preflight.Host{Host: inventory.Host{Name: "h2"}, Client: saying{name: "h2", said: "pdp11"}}
	all := Look(t.Context(), []preflight.Host{other, labHost(t, kernel)}, nil, "v1", 0)
	if len(all) != 2 || all[0].Outcome != results.Skipped || !strings.Contains(all[0].Why, "pdp11") || all[1].Outcome != results.Pass {
		t.Errorf("%+v", all)
	}
}

// saying is a host that says the same whatever it is asked.
type saying struct {
	hosts.Host
	name, said string
}

func (s saying) String() string { return s.name }

func (s saying) Run(context.Context, []string, io.Reader) (hosts.Output, error) {
	return hosts.Output{Stdout: []byte(s.said)}, nil
}
