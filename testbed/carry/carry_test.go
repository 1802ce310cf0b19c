package carry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

func TestMain(m *testing.M) {
	netnstest.Play(netnstest.Parts{
		"agent":    agent.Main,
		Verb:       func(ctx context.Context, _ io.Reader, stdout io.Writer) error { return Main(ctx, stdout) },
		EngineVerb: func(ctx context.Context, _ io.Reader, stdout io.Writer) error { return EngineMain(ctx, stdout) },
	})
	os.Exit(m.Run())
}

// usual is a machine of two cores with costs that are easy to reckon with.
var usual = Machine{CPUs: 2, Frame: 2e-6, Wake: 10e-6, Switch: 3e-6, SwitchWake: 5e-6}

func TestFactor(t *testing.T) {
	late, few := usual, usual
	late.Late = 0.02
	few.CPUs = 1
	for _, tt := range []struct {
		name string
		m    Machine
		l    Load
		want float64
	}{
		{"nothing to carry", usual, Load{}, 1},
		// 1e8/250 frames cost 0.8 s, and 10 threads that wake 1,000 times a second 0.1 s. With 200
		// it is 1.1 s, of the 1 s that two cores have at half load.
		{"frames", usual, Load{Frames: 1e8, Threads: 10}, 250},
		{"frames, one core", few, Load{Frames: 1e8, Threads: 10}, 500},
		{"frames, one core, more of them", few, Load{Frames: 1.1e8, Threads: 10}, 600},
		// 0.495 s in one thread, which has half a core.
		{"one switch", usual, Load{Switch: 1.65e7, Threads: 1}, 100},
		{"one switch, a little more", usual, Load{Switch: 1.7e7, Threads: 1}, 120},
		// A tenth of the round trip is a stall's millisecond from 500 on.
		{"round trip", usual, Load{RTT: 20e-6, Threads: 1}, 500},
		{"round trip on a machine that is late", late, Load{RTT: 20e-6, Threads: 1}, 10000},
	} {
		if got := Factor(tt.m, tt.l); got != tt.want {
			t.Errorf("%s: factor %v, want %v", tt.name, got, tt.want)
		}
		if f := Factor(tt.m, tt.l); f > 1 && tt.m.carries(tt.l, f/1.34) {
			t.Errorf("%s: the step before %v would do", tt.name, f)
		}
	}
}

// TestDemand is a job of two workers, and a ring beside it, on a rack of three hosts.
func TestDemand(t *testing.T) {
	inv, err := inventory.Parse("rack.toml", []byte(`version = 1
[[switch]]
name = "tor1"
kind = "soft"
aggregators = 4096
[[host]]
name = "h[1-3]"
gpus = 2
nic = {port = "tor1/[1-3]", rate = "100Gbit/s", delay = "5us"}
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
	alone, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Active: []string{"A"}, Lanes: 240, Senders: map[string]placement.Sender{"A": {Rate: 8.192e9}}})
	if err != nil {
		t.Fatal(err)
	}
	both, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{"A": {Rate: 8.192e9}, "R": {Rate: 8 * 1514 * 1e6}}})
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6*want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	l, err := Demand(inv, plan, []*placement.Prediction{alone}, 240)
	if err != nil {
		t.Fatal(err)
	}
	// A million PSNs a second, each of them over six cables, three of these into the switch.
	near("frames", l.Frames, 6e6)
	near("frames through the switch", l.Switch, 3e6)
	if want := 2 * (10e-6 + 2*8192/100e9); math.Abs(l.RTT-want) > 2e-9 {
		t.Errorf("round trip: %v, want %v to the nanosecond", l.RTT, want)
	}
	if l.Threads != 1+3+2 {
		t.Errorf("%d threads", l.Threads)
	}
	// The ring sends a million segments a second in both directions, but for the waits between its
	// operations, over two cables each, and half as many frames acknowledge them.
	segments := both.Jobs[1].WireRate / (8 * (1514 + 33))
	if math.Abs(segments/1e6-1) > 1e-3 { // a limit is of segments
		t.Errorf("%v segments a second of each worker", segments)
	}
	if l, err = Demand(inv, plan, []*placement.Prediction{alone, both}, 240); err != nil {
		t.Fatal(err)
	}
	near("frames with a ring", l.Frames, 6e6+6*segments)
	near("frames through the switch with a ring", l.Switch, 3e6+3*segments)
	// A job that computes for nine times as long as it sends needs as much of the machine while it does.
	burst, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Active: []string{"A"}, Lanes: 240, Senders: map[string]placement.Sender{
		"A": {Rate: 8.192e9, Layers: []placement.Layer{{Bytes: 960 * 1e5, Compute: 0.9}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if mean := burst.Jobs[0].WireRate / 8.192e9; mean > 0.11 {
		t.Errorf("the job sends for %v of the time", mean)
	}
	if l, err = Demand(inv, plan, []*placement.Prediction{burst}, 240); err != nil {
		t.Fatal(err)
	}
	near("frames of a job that also computes", l.Frames, 6e6)
	// So does a ring, whose frames are no packets of gradients.
	turns, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Active: []string{"R"}, Lanes: 16, Senders: map[string]placement.Sender{
		"R": {Rate: 8 * 1514 * 1e6, Layers: []placement.Layer{{Bytes: 1e9, Compute: 6}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if l, err = Demand(inv, plan, []*placement.Prediction{turns}, 16); err != nil {
		t.Fatal(err)
	}
	if busy := l.Frames / (6 * segments); busy < 0.9 || busy > 1.1 {
		t.Errorf("a ring that also computes has %v of the frames that it has when it does not", busy)
	}
	if _, err := Demand(inv, &placement.Plan{}, []*placement.Prediction{alone}, 240); err == nil {
		t.Error("no error of a prediction for jobs that are not in the plan")
	}
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct{ alone, together, wakes, frame, wake float64 }{
		{22, 4, 0.2, 2, 10},  // 2 + 2·10, and 2 + 0.2·10
		{4, 4, 0.2, 4, 0},    // waking costs nothing
		{3, 4, 0.2, 4, 0},    // noise
		{100, 4, 0.2, 2, 10}, // waking would be more than all there is
	} {
		frame, wake := split(tt.alone, tt.together, tt.wakes)
		if math.Abs(frame-tt.frame) > 1e-9 || math.Abs(wake-tt.wake) > 1e-9 {
			t.Errorf("split(%v, %v, %v) is %v and %v, want %v and %v", tt.alone, tt.together, tt.wakes, frame, wake, tt.frame, tt.wake)
		}
	}
}

func TestAbout(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.4: "0", 7: "7", 84: "84", 849: "850", 9961: "10,000", 84123: "84,000", 1234567: "1,200,000", math.NaN(): "0", math.Inf(1): "0"} {
		if got := about(v); got != want {
			t.Errorf("about %v is %q, want %q", v, got, want)
		}
	}
}

func TestString(t *testing.T) {
	// 8 threads wake 2,000 times a second each, for 10 us: 0.16 s of the 1 s that two cores have at half load.
	if got, want := usual.String(), "this machine carries about 420,000 packets/s over the cables of an emulated rack"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	disturbed := usual
	disturbed.Others = 0.5
	if got := disturbed.String(); !strings.HasSuffix(got, "; others used 50 % of its cores meanwhile, so that this is not kept: measure it again when it is idle") {
		t.Error(got)
	}
	slow := usual
	slow.Wake = 1e-3 // so that all frames come alone
	if got, want := slow.Frames(), 1/(2e-6+2e-3); math.Abs(got-want) > 1e-6*want {
		t.Errorf("%v frames/s, want %v", got, want)
	}
}

// TestMeasure measures this machine, and then finds what was kept.
func TestMeasure(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	m, err := Measure(t.Context(), "test")
	if errors.Is(err, errors.ErrUnsupported) {
		testbedtest.Require(t, "netns", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !m.valid() || m.Frames() < 0 || m.Kernel == "" || m.Tool != "test" {
		t.Errorf("%+v", m)
	}
	t.Logf("%+v", m)
}

// TestKept: a file of this machine is taken, one of another program's version or a broken one is not.
func TestKept(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	kept := here("v1")
	kept.Frame, kept.Wake, kept.Switch = 1, 2, 3
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(kept.file()), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept.file(), text, 0o666); err != nil {
		t.Fatal(err)
	}
	if got, err := Measure(t.Context(), "v1"); err != nil || got != kept {
		t.Errorf("%+v, %v; want %+v", got, err, kept)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(cancelled, "v2"); !errors.Is(err, context.Canceled) {
		t.Errorf("another version: %v, want a measurement that is cancelled", err)
	}
	if err := os.WriteFile(kept.file(), text[:len(text)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Measure(cancelled, "v1"); !errors.Is(err, context.Canceled) {
		t.Errorf("half a file: %v, want a measurement that is cancelled", err)
	}
}

// TestSpent reads threads of a proc file system that is written here.
func TestSpent(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"1/task/1/schedstat": "2000000000 5 7\n", "1/task/4/schedstat": "500000000 5 7\n", "12/task/12/schedstat": "1000000 1 1\n", "self/task/1/schedstat": "7 7 7\n"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := spent(dir); err != nil || math.Abs(got-2.501) > 1e-9 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := spent(t.TempDir()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without threads: %v", err)
	}
}

// TestMachine reads the line of the one core that there is for a thread, or that of all where it has none.
func TestMachine(t *testing.T) {
	runtime.LockOSThread() // the thread ends with the test
	var own, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !own.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	const all = "cpu  100 200 300 9999 9999 10 20 30 40 50\n"
	line := func(n int, text string) string { return fmt.Sprintf("cpu%d %s\n", n, text) }
	for text, want := range map[string]float64{
		all:                                      6.6,
		all + line(cpu+1, "9 9 9 9 9 9 9 9 9 9"): 6.6,
		all + line(cpu, "1 2 3 9999 9999 4 5 6 7 8") + line(cpu+1, "9 9 9 9") + "intr 5\ncpu1 7": 0.21,
	} {
		stat := filepath.Join(t.TempDir(), "stat")
		if err := os.WriteFile(stat, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if got, err := machine(stat); err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("%q: it used %v, %v; want %v", text, got, err, want)
		}
	}
}
