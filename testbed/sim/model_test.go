package sim_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sim"
)

var seed = flag.Uint64("seed", 0, "seed of random tests; 0: a new one")

const (
	lanes = 240                    // frames of 1024 bytes
	delay = 500 * time.Microsecond // of every cable
)

// lab is racks of four hosts: h1.. at tor1, h5.. at tor2; several racks have a spine.
func lab(racks int, rate inventory.BitRate, aggregators int) *inventory.Inventory {
	inv := &inventory.Inventory{Name: "lab"}
	if racks > 1 {
		inv.Switches = append(inv.Switches, inventory.Switch{Name: "spine", Kind: inventory.Soft})
	}
	for r := range racks {
		tor := fmt.Sprintf("tor%d", r+1)
		inv.Switches = append(inv.Switches, inventory.Switch{Name: tor, Kind: inventory.Soft, Aggregators: aggregators, ECN: 64 << 10})
		if racks > 1 {
			inv.Links = append(inv.Links, inventory.Link{
				A: inventory.Port{Switch: tor, Port: 9}, B: inventory.Port{Switch: "spine", Port: uint32(r + 1)},
				Rate: rate, Delay: delay,
			})
		}
		for h := range 4 {
			inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", 4*r+h+1), GPUs: 8, NICs: []inventory.NIC{{
				Device: "eth0", Switch: tor, Port: uint32(h + 1), Rate: rate, Delay: delay,
			}}})
		}
	}
	return inv
}

// spec is a job of a test.
type spec struct {
	name       string
	hosts      []string
	ps         string
	collective placement.Collective
	w          testbed.Workload
}

func setup(t testing.TB, inv *inventory.Inventory, s testbed.Settings, jobs ...spec) testbed.Setup {
	t.Helper()
	s.Lanes, s.Seed = lanes, 7
	out := testbed.Setup{Plan: &placement.Plan{}, Settings: s}
	for i, j := range jobs {
		p := placement.JobPlan{ID: uint16(i + 1), Name: j.name, PS: j.ps, Collective: j.collective}
		if p.Collective == "" {
			p.Collective = placement.INA
		}
		for r, h := range j.hosts {
			p.Workers = append(p.Workers, placement.Worker{Rank: r, Host: h, GPUs: 1})
		}
		if err := placement.BuildTree(inv.Topology(), inv, &p); err != nil {
			t.Fatal(err)
		}
		out.Plan.Jobs = append(out.Plan.Jobs, p)
		w := j.w
		w.Job = p
		if w.Control == "" {
			w.Control = "fixed"
		}
		if w.Window == 0 {
			w.Window = 4096
		}
		out.Workloads = append(out.Workloads, w)
	}
	return out
}

func deploy(t testing.TB, inv *inventory.Inventory, s testbed.Setup) testbed.Deployment {
	t.Helper()
	tb, err := sim.Open(inv, sim.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	d, err := tb.Deploy(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(context.Background()), tb.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return d
}

// readings are counters by metric and subject.
type readings map[string]float64

func sample(t testing.TB, d testbed.Deployment) readings {
	t.Helper()
	all, err := d.Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := readings{}
	for _, s := range all {
		key := s.Metric + " " + s.Of
		if _, dup := out[key]; dup {
			t.Fatalf("%s is read twice", key)
		}
		out[key] = s.Value
	}
	return out
}

// steady starts all jobs and returns what the counters grow by in a second, after a
// warm-up.
func steady(t testing.TB, d testbed.Deployment, s testbed.Setup) readings {
	t.Helper()
	for _, j := range s.Plan.Jobs {
		if err := d.Start(t.Context(), j.Name); err != nil {
			t.Fatal(err)
		}
	}
	sleep(t, d, time.Second)
	before := sample(t, d)
	sleep(t, d, 2*time.Second)
	after := sample(t, d)
	for k, v := range before {
		after[k] -= v
	}
	return after
}

func sleep(t testing.TB, d testbed.Deployment, until time.Duration) {
	t.Helper()
	if err := d.Sleep(t.Context(), until); err != nil {
		t.Fatal(err)
	}
}

// share is a job's aggregated share at a switch as an experiment draws it.
func (r readings) share(of string) float64 {
	granted := r["job_granted_packets "+of]
	return granted / (granted + r["job_denied_packets "+of])
}

func predict(t testing.TB, inv *inventory.Inventory, s testbed.Setup) *placement.Prediction {
	t.Helper()
	c := placement.Conditions{Addressing: s.Settings.Addressing, Mode: s.Settings.Mode, Aggregators: s.Settings.Aggregators,
		Lanes: lanes, Senders: map[string]placement.Sender{}}
	for i, j := range s.Plan.Jobs {
		w := s.Workloads[i]
		s := placement.Sender{Rate: w.Rate, Window: w.Window, Control: w.Control, Slots: w.Slots}
		if w.Message > 0 {
			s.Layers = []placement.Layer{{Bytes: float64(w.Message)}}
		}
		c.Senders[j.Name] = s
	}
	p, err := placement.Predict(t.Context(), inv, s.Plan, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAgainstOccupancy holds the model's steady states against the predictor's.
func TestAgainstOccupancy(t *testing.T) {
	const (
		line = 10e9
		// T of a job at its one switch: there and back, a cable and a frame each.
		hold = 1e-3 + 2*8*1024/line
		m    = 128
	)
	// rate for u = C·T/M.
	load := func(u float64, m int) testbed.Workload {
		return testbed.Workload{Rate: u * float64(m) / hold * 8 * 1024}
	}
	ab := []string{"h1", "h2"}
	one := func(w testbed.Workload) []spec { return []spec{{name: "A", hosts: ab, ps: "h4", w: w}} }
	two := func(a, b testbed.Workload) []spec {
		return []spec{{name: "A", hosts: ab, ps: "h4", w: a}, {name: "B", hosts: []string{"h1", "h2", "h3"}, ps: "h4", w: b}}
	}
	atp := func(r float64, slots, m int) testbed.Workload {
		w := load(r*float64(slots)/float64(m), m)
		w.Slots = slots
		return w
	}
	far := spec{name: "A", hosts: []string{"h1", "h2", "h5", "h6"}, ps: "h8"}
	type table struct {
		name  string
		racks int
		s     testbed.Settings
		jobs  []spec
		share float64 // tolerance, absolute
		rate  float64 // tolerance, relative
	}
	var tests []table
	loads := []float64{0.75, 1.5, 2.5, 3.5}
	if !proof.Wanted() {
		loads = []float64{1.5}
	}
	for _, u := range loads {
		for _, addressing := range []string{"pool", "hash", "linear"} {
			tests = append(tests, table{fmt.Sprintf("%s u=%v", addressing, u), 1, testbed.Settings{Addressing: addressing, Aggregators: m}, one(load(u, m)), 0.03, 0.01})
		}
	}
	for _, addressing := range []string{"pool", "hash"} {
		s := testbed.Settings{Addressing: addressing, Aggregators: m, Queue: "fair"}
		tests = append(tests,
			table{addressing + " two jobs", 1, s, two(load(0.5, m), load(1.5, m)), 0.03, 0.01},
			table{addressing + " two jobs that fit", 1, s, two(load(0.2, m), load(0.3, m)), 0.03, 0.01})
	}
	tests = append(tests,
		table{"atp", 1, testbed.Settings{Addressing: "atp", Aggregators: m}, one(atp(0.9, 64, m)), 0.01, 0.01},
		table{"a link for two", 1, testbed.Settings{Queue: "fair"}, two(testbed.Workload{Rate: 8e9}, testbed.Workload{Rate: 3e9}), 0.01, 0.01},
		table{"a link for two, equal parts", 1, testbed.Settings{Queue: "fair"}, two(testbed.Workload{Rate: 8e9}, testbed.Workload{}), 0.01, 0.01},
		table{"too little memory at full speed", 1, testbed.Settings{Queue: "fair", Aggregators: 512}, one(testbed.Workload{Window: 2048}), 0.02, 0.02},
		table{"window", 1, testbed.Settings{Queue: "fair"}, one(testbed.Workload{Window: 640}), 0.01, 0.01},
		table{"no aggregation", 1, testbed.Settings{Queue: "fair"}, []spec{{name: "A", hosts: ab, ps: "h4", collective: placement.PS}}, 1, 0.01},
		table{"no aggregation, a worker on the PS's host", 1, testbed.Settings{Queue: "fair"}, []spec{{name: "A", hosts: []string{"h1", "h2", "h4"}, ps: "h4", collective: placement.PS}}, 1, 0.01},
		table{"two racks", 2, testbed.Settings{Queue: "fair"}, []spec{far, {name: "B", hosts: []string{"h1", "h5"}, ps: "h7"}}, 0.01, 0.01},
		table{"two racks, little memory", 2, testbed.Settings{Queue: "fair", Aggregators: m, Addressing: "hash"}, []spec{
			{name: "A", hosts: far.hosts, ps: far.ps, w: testbed.Workload{Rate: 1.5e9}}, {name: "B", hosts: []string{"h1", "h5"}, ps: "h7", w: testbed.Workload{Rate: 1e9}},
		}, 0.02, 0.01},
		table{"synchronous", 2, testbed.Settings{Mode: "synchronous", Queue: "fair"}, []spec{{name: "A", hosts: []string{"h1", "h2", "h5"}, w: testbed.Workload{Window: 512}}}, 0.01, 0.01},
		table{"ring", 2, testbed.Settings{Queue: "fair"}, []spec{{name: "A", hosts: []string{"h1", "h2", "h5"}, collective: placement.Ring, w: testbed.Workload{Message: 1 << 30}}}, 0.01, 0.02},
		// Jobs that do not send all the time: alone, and where others have the links meanwhile.
		table{"ring with pauses", 2, testbed.Settings{Queue: "fair"}, []spec{{name: "A", hosts: []string{"h1", "h2", "h5"}, collective: placement.Ring, w: testbed.Workload{Message: 10e6}}}, 0.01, 0.01},
		table{"INA with pauses", 1, testbed.Settings{Queue: "fair"}, one(testbed.Workload{Message: 5e6}), 0.01, 0.01},
		table{"PS with pauses", 1, testbed.Settings{Queue: "fair"}, []spec{{name: "A", hosts: ab, ps: "h4", collective: placement.PS, w: testbed.Workload{Message: 5e6}}}, 0.01, 0.01},
		table{"a ring, and INA with and without pauses", 1, testbed.Settings{Queue: "fair"}, []spec{
			{name: "A", hosts: ab, collective: placement.Ring, w: testbed.Workload{Message: 10e6}},
			{name: "B", hosts: ab, ps: "h4", w: testbed.Workload{Message: 5e6}}, {name: "C", hosts: ab, ps: "h4"},
		}, 0.02, 0.03},
	)
	tests = append(tests, table{"hash, no aggregation, window 1", 1, testbed.Settings{Addressing: "hash", Aggregators: m, Queue: "fair"},
		[]spec{{name: "A", hosts: ab, ps: "h4", collective: placement.PS, w: testbed.Workload{Window: 1}}}, 1, 0.01})
	for _, queue := range []string{"fair", "flows", "fifo"} {
		for _, window := range []int{1, 4, 32} {
			tests = append(tests, table{fmt.Sprintf("%s, no aggregation, window %d", queue, window), 1, testbed.Settings{Queue: queue},
				[]spec{{name: "A", hosts: []string{"h1", "h2", "h4"}, ps: "h4", collective: placement.PS, w: testbed.Workload{Window: window}}}, 1, 0.02})
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "pool two jobs" || tt.name == "two racks, little memory" {
				proof.Only(t, "seconds of packets")
			}
			inv := lab(tt.racks, line, 1<<16)
			s := setup(t, inv, tt.s, tt.jobs...)
			got := steady(t, deploy(t, inv, s), s)
			want := predict(t, inv, s)
			for _, j := range want.Jobs {
				if g := 8 * got["worker_goodput_bytes "+j.Name+"/0"]; math.Abs(g/j.Goodput-1) > tt.rate {
					t.Errorf("job %s: goodput %.4g, predicted %.4g (%s)", j.Name, g, j.Goodput, j.Bottleneck)
				}
				for _, sh := range j.Shares {
					if g := got.share(j.Name + "@" + sh.Switch); !(math.Abs(g-sh.Share) <= tt.share) {
						t.Errorf("job %s: share %.3f at %s, predicted %.3f", j.Name, g, sh.Switch, sh.Share)
					}
				}
			}
			for _, l := range want.Links {
				if g := 8 * got["link_bytes "+l.Link]; math.Abs(g-l.Load) > (tt.rate+0.02)*l.Load {
					t.Errorf("link %s: %.4g bit/s, predicted %.4g", l.Link, g, l.Load)
				}
			}
		})
	}
}

// TestJCT holds the time of iterations against what its parts take.
func TestJCT(t *testing.T) {
	const (
		line    = 10e9
		packet  = 8 * 1024 / line
		rtt     = 4*0.5e-3 + 4*packet
		packets = 1000
	)
	inv := lab(1, line, 1<<12)
	for _, tt := range []struct {
		name string
		w    testbed.Workload
		want float64 // of an iteration, seconds
	}{
		{"one packet", testbed.Workload{Message: 1}, rtt},
		{"message at line rate", testbed.Workload{Message: packets * 4 * lanes}, rtt + (packets-1)*packet},
		{"message at its rate", testbed.Workload{Message: packets * 4 * lanes, Rate: 1e9}, rtt + (packets-1)*10*packet},
		{"message in small windows", testbed.Workload{Message: packets * 4 * lanes, Window: 100}, rtt + rtt*(packets-1)/100},
		{"compute hides all but the last layer", testbed.Workload{Layers: []testbed.Layer{
			{Bytes: packets * 4 * lanes, Compute: 3 * time.Millisecond}, {Bytes: 4 * lanes, Compute: 7 * time.Millisecond},
		}}, 0.010 + rtt},
		{"layers that queue up", testbed.Workload{Layers: []testbed.Layer{
			{Bytes: packets * 4 * lanes, Compute: time.Millisecond}, {Bytes: packets * 4 * lanes},
		}}, 0.001 + rtt + (2*packets-1)*packet},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.w.Iterations = 5
			s := setup(t, inv, testbed.Settings{}, spec{name: "A", hosts: []string{"h1", "h2"}, ps: "h4", w: tt.w})
			d := deploy(t, inv, s)
			if err := d.Start(t.Context(), "A"); err != nil {
				t.Fatal(err)
			}
			sleep(t, d, time.Second)
			select {
			case <-d.Done("A"):
			default:
				t.Fatal("not done")
			}
			sum, err := d.Summary("A")
			if err != nil {
				t.Fatal(err)
			}
			if want := 5 * tt.want; sum.Iterations != 5 || math.Abs(sum.JCT/want-1) > 0.02 {
				t.Errorf("%d iterations in %.6f s, want %.6f", sum.Iterations, sum.JCT, want)
			}
			if n := sum.Packets; tt.w.Message > 1 && n != 2*5*packets {
				t.Errorf("%d packets", n)
			}
		})
	}
}

// TestSharing is how one link is shared where the predictor has nothing to say.
func TestSharing(t *testing.T) {
	const line = 10e9
	inv := lab(1, line, 1<<16)
	rate := func(r readings, job string) float64 { return 8 * r["worker_tx_bytes "+job+"/0"] / line }
	run := func(queue string, a, b testbed.Workload) (float64, float64, readings) {
		s := setup(t, inv, testbed.Settings{Queue: queue},
			spec{name: "A", hosts: []string{"h1", "h2"}, ps: "h4", w: a}, spec{name: "B", hosts: []string{"h1", "h2"}, ps: "h4", w: b})
		r := steady(t, deploy(t, inv, s), s)
		return rate(r, "A"), rate(r, "B"), r
	}
	t.Run("fifo: as offered", func(t *testing.T) {
		a, b, _ := run("fifo", testbed.Workload{Window: 6000}, testbed.Workload{Window: 3000})
		if math.Abs(a-2.0/3) > 0.01 || math.Abs(b-1.0/3) > 0.01 {
			t.Errorf("windows 2:1 get %.3f and %.3f", a, b)
		}
	})
	t.Run("aimd", func(t *testing.T) {
		w := testbed.Workload{Window: 10000, Control: "aimd"}
		a, b, r := run("fair", w, w)
		// Thresholds far below bandwidth times delay: teeth between half and all of it.
		if sum := a + b; sum < 0.7 || sum > 0.85 || math.Abs(a-b) > 0.1 {
			t.Errorf("they get %.3f and %.3f", a, b)
		}
		if r["worker_marks A/0"] == 0 {
			t.Error("no mark")
		}
		// Without marks the windows' 20 000 packets would wait.
		if rtt := r["worker_rtt_seconds A/0"] / r["worker_rtt_count A/0"]; rtt > 2*2e-3 {
			t.Errorf("round trip %.2g s", rtt)
		}
	})
	t.Run("a queue lengthens the round trip", func(t *testing.T) {
		_, _, r := run("fair", testbed.Workload{Window: 6000}, testbed.Workload{Rate: 2e9})
		// Little: a window of 6000 packets at what B leaves.
		if rtt, want := r["worker_rtt_seconds A/0"]/r["worker_rtt_count A/0"], 6000*8*1024/(0.8*line); math.Abs(rtt/want-1) > 0.02 {
			t.Errorf("round trip %.4g s, want %.4g", rtt, want)
		}
	})
}

// TestBeginning: a stream has its share of M aggregators after some round trips, however many packets are under way. One
// worker is ahead of the other, so that all that it has sent ask for memory before any is there from both: of H packets
// between a switch's looking for an aggregator and the result, which are the window but for those on the worker's cable,
// g·H hold a place, and of those that come next g = 1 - g·H/M find one. A simulation packet by packet that shares
// nothing with this model has that, within .02, from the second window's time on.
func TestBeginning(t *testing.T) {
	const slow, line = 10e9, 100e9
	inv := lab(1, line, 1<<16)
	inv.Hosts[0].NICs[0].Rate = slow
	cable := 2 * delay.Seconds() * slow / (8 * 1024) // packets on it, at the rate of the slower worker
	for _, tt := range []struct{ window, m int }{{4096, 2048}, {8192, 4096}, {8192, 8192}, {8192, 16384}, {60000, 30000}} {
		s := setup(t, inv, testbed.Settings{Addressing: "hash", Aggregators: tt.m, Queue: "fair"},
			spec{name: "A", hosts: []string{"h1", "h2"}, ps: "h3", w: testbed.Workload{Window: tt.window}})
		got := steady(t, deploy(t, inv, s), s)
		if g, want := got.share("A@tor1"), 1/(1+(float64(tt.window)-cable)/float64(tt.m)); math.Abs(g-want) > .01 {
			t.Errorf("%d in %d: %.3f, want %.3f", tt.window, tt.m, g, want)
		}
	}
}

// TestCapacity: whatever jobs do, no link carries more than it can.
func TestCapacity(t *testing.T) {
	seed := *seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	settings := 30
	if !proof.Wanted() { // the race detector makes a minute of a few seconds
		settings = 2
	}
	for range settings {
		inv := lab(2, 1e9, 16+rng.IntN(500))
		var jobs []spec
		for i := range 1 + rng.IntN(5) {
			j := spec{name: string(rune('A' + i)), ps: inv.Hosts[rng.IntN(8)].Name}
			j.collective = []placement.Collective{placement.INA, placement.INA, placement.PS, placement.Ring}[rng.IntN(4)]
			if j.collective == placement.Ring {
				j.ps = ""
			}
			for _, h := range rng.Perm(8)[:2+rng.IntN(6)] {
				j.hosts = append(j.hosts, inv.Hosts[h].Name)
			}
			j.w = testbed.Workload{Window: 1 + rng.IntN(3000), Control: []string{"fixed", "aimd"}[rng.IntN(2)]}
			if rng.IntN(2) == 0 {
				j.w.Rate = 1e9 * rng.Float64()
			}
			if rng.IntN(3) == 0 {
				j.w.Message = rng.Int64N(1 << 20)
			}
			jobs = append(jobs, j)
		}
		s := setup(t, inv, testbed.Settings{
			Queue:      []string{"fifo", "fair"}[rng.IntN(2)],
			Addressing: []string{"pool", "hash", "linear"}[rng.IntN(3)],
		}, jobs...)
		r := steady(t, deploy(t, inv, s), s)
		for _, l := range inv.Topology().Links {
			if bits := 8 * r["link_bytes "+l.Name]; bits > 1e9*(1+1e-6) {
				t.Errorf("link %s carries %v bit in a second (%d jobs, %+v)", l.Name, bits, len(jobs), s.Settings)
			}
		}
		for _, j := range jobs {
			if r["worker_goodput_bytes "+j.name+"/0"] <= 0 {
				t.Errorf("job %+v stands still (%+v)", j, s.Settings)
			}
		}
	}
}

// TestSeed: another seed is another run of the same experiment.
func TestSeed(t *testing.T) {
	inv := lab(1, 10e9, 64)
	s := setup(t, inv, testbed.Settings{Addressing: "hash"}, spec{name: "A", hosts: []string{"h1", "h2"}, ps: "h4", w: testbed.Workload{Window: 100}})
	denied := func(seed uint64) float64 {
		s.Settings.Seed = seed
		return steady(t, deploy(t, inv, s), s)["job_denied_packets A@tor1"]
	}
	one, other := denied(1), denied(2)
	if one == other {
		t.Errorf("both deny %v", one)
	}
	if math.Abs(one/other-1) > 0.02 {
		t.Errorf("they deny %v and %v", one, other)
	}
}

// ending is a context that ends when it has been looked at so often.
type ending struct {
	context.Context
	after, looks int
}

func (e *ending) Err() error {
	if e.looks++; e.looks > e.after {
		return context.Canceled
	}
	return nil
}

// TestSleepEnds: a sleep ends with its context also while packets are followed, and leaves nothing behind: who sleeps
// again has what one has who slept at once.
func TestSleepEnds(t *testing.T) {
	inv := lab(1, 10e9, 128)
	s := setup(t, inv, testbed.Settings{Addressing: "linear", Aggregators: 128, Queue: "fair"},
		spec{name: "A", hosts: []string{"h1", "h2"}, ps: "h4", w: testbed.Workload{Rate: 1e9}},
		spec{name: "B", hosts: []string{"h1", "h2", "h3"}, ps: "h4", w: testbed.Workload{Rate: 4e8}})
	const whole = 1 << 30
	counted := func(afters ...int) readings {
		d := deploy(t, inv, s)
		for _, j := range s.Plan.Jobs {
			if err := d.Start(t.Context(), j.Name); err != nil {
				t.Fatal(err)
			}
		}
		for _, after := range afters {
			ctx := &ending{Context: t.Context(), after: after}
			err := d.Sleep(ctx, time.Second)
			if ended := after < whole; errors.Is(err, context.Canceled) != ended {
				t.Fatalf("a sleep that ends at look %d: %v", after, err)
			}
			if more := ctx.looks - after; more > 12 {
				t.Errorf("a sleep that ends at look %d: %d more", after, more)
			} else if after == whole && ctx.looks < 200 {
				t.Errorf("the whole sleep looks %d times: its packets are not followed", ctx.looks)
			}
		}
		return sample(t, d)
	}
	want := counted(whole)
	if got := counted(3, 40, whole); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// BenchmarkSecond is one second of two jobs at the speed of a lab.
func BenchmarkSecond(b *testing.B) {
	for _, addressing := range []string{"pool", "hash"} {
		b.Run(addressing, func(b *testing.B) {
			inv := lab(1, 25e9, 1<<12)
			for i := range inv.Hosts {
				inv.Hosts[i].NICs[0].Delay = 50 * time.Microsecond
			}
			s := setup(b, inv, testbed.Settings{Queue: "fair", Addressing: addressing, Aggregators: 256},
				spec{name: "A", hosts: []string{"h1", "h2"}, ps: "h4", w: testbed.Workload{Rate: 10e9, Window: 1024}},
				spec{name: "B", hosts: []string{"h1", "h2"}, ps: "h4", w: testbed.Workload{Rate: 20e9, Window: 1024}})
			d := deploy(b, inv, s)
			for _, j := range s.Plan.Jobs {
				if err := d.Start(b.Context(), j.Name); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				sleep(b, d, d.Now()+time.Second)
			}
		})
	}
}
