package placement_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/placement/policytest"
)

func place(t testing.TB, inv *inventory.Inventory, jobs ...placement.Job) *placement.Plan {
	t.Helper()
	for i := range jobs {
		jobs[i].ID = uint16(i + 1)
		if jobs[i].Collective == "" {
			jobs[i].Collective = placement.INA
		}
	}
	plan, err := placement.On(baseline.FirstFit()).Place(inv, jobs, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := placement.Validate(plan, inv); err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestBuildTree(t *testing.T) {
	for _, tt := range []struct {
		name string
		job  placement.Job
		want []placement.TreeNode
	}{
		{"one rack", placement.Job{Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3"}, []placement.TreeNode{
			{Switch: "tor1", Aggregate: true, Expect: 0b11, UpPort: 3, Down: []uint32{1, 2}},
		}},
		{"a worker on the host of the PS still goes through the switch", placement.Job{Hosts: []string{"h1-3", "h1-1"}, PS: "h1-1"}, []placement.TreeNode{
			{Switch: "tor1", Aggregate: true, Expect: 0b11, UpPort: 1, Down: []uint32{1, 3}},
		}},
		{"two levels: leaf, spine that forwards, root", placement.Job{Hosts: []string{"h1-1", "h1-2", "h2-1"}, PS: "h2-3"}, []placement.TreeNode{
			{Switch: "tor1", Parent: "spine1", Aggregate: true, Expect: 0b011, UpPort: 100, Down: []uint32{1, 2}},
			{Switch: "spine1", Parent: "tor2", Expect: 0b011, UpPort: 2, Down: []uint32{1}},
			{Switch: "tor2", Aggregate: true, Expect: 0b111, UpPort: 3, Down: []uint32{1, 100}},
		}},
		{"one worker alone in its rack: nothing to sum there", placement.Job{Hosts: []string{"h1-1", "h2-1"}, PS: "h2-3"}, []placement.TreeNode{
			{Switch: "tor1", Parent: "spine1", Expect: 0b01, UpPort: 100, Down: []uint32{1}},
			{Switch: "spine1", Parent: "tor2", Expect: 0b01, UpPort: 2, Down: []uint32{1}},
			{Switch: "tor2", Aggregate: true, Expect: 0b11, UpPort: 3, Down: []uint32{1, 100}},
		}},
		{"plain PS: the same tree without aggregation", placement.Job{Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3", Collective: placement.PS}, []placement.TreeNode{
			{Switch: "tor1", Expect: 0b11, UpPort: 3, Down: []uint32{1, 2}},
		}},
		{"synchronous: no PS, the switch nearest all workers is the root", placement.Job{Hosts: []string{"h1-1", "h2-1", "h2-2"}, NoPS: true}, []placement.TreeNode{
			{Switch: "tor1", Parent: "spine1", Expect: 0b001, UpPort: 100, Down: []uint32{1}},
			{Switch: "spine1", Parent: "tor2", Expect: 0b001, UpPort: 2, Down: []uint32{1}},
			{Switch: "tor2", Aggregate: true, Expect: 0b111, Down: []uint32{1, 2, 100}},
		}},
		{"ring", placement.Job{Hosts: []string{"h1-1", "h2-1"}, Collective: placement.Ring}, nil},
		{"one worker, no PS", placement.Job{Hosts: []string{"h1-1"}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.job.Name = "A"
			plan := place(t, policytest.Racks(2, 3, 2), tt.job)
			if d := cmp.Diff(tt.want, plan.Jobs[0].Tree); d != "" {
				t.Error(d)
			}
			if nic := plan.Jobs[0].Workers[0].NIC; nic != "eth0" {
				t.Errorf("worker 0 has NIC %q", nic)
			}
		})
	}
}

// Under ATP's addressing a switch that gets sums finds aggregators itself, however far
// below they are made.
func TestAddressingOfSums(t *testing.T) {
	plan := place(t, policytest.Racks(2, 3, 2),
		placement.Job{Name: "sums", Hosts: []string{"h1-1", "h1-2", "h2-1"}, PS: "h2-3"},
		placement.Job{Name: "packets", Hosts: []string{"h1-1", "h2-1"}, PS: "h2-3"},
		placement.Job{Name: "rack", Hosts: []string{"h2-1", "h2-2"}, PS: "h2-3"})
	for _, tt := range []struct {
		job        int
		sw         string
		asked, got string
	}{
		{0, "tor1", "atp", "atp"},
		{0, "tor2", "atp", "hash"}, // sums of tor1, through a spine that forwards
		{1, "tor2", "atp", "atp"},  // a packet of a host that tor1 and the spine forward
		{2, "tor2", "atp", "atp"},
		{0, "tor2", "linear", "linear"},
		{0, "tor2", "", ""},
	} {
		j := &plan.Jobs[tt.job]
		if got := j.Addressing(tt.sw, tt.asked); got != tt.got {
			t.Errorf("job %s at %s: %q asked, got %q, want %q", j.Name, tt.sw, tt.asked, got, tt.got)
		}
	}
}

func TestBuildTreeNICs(t *testing.T) {
	// h1-1 has a second cable, to tor2.
	inv := policytest.Racks(2, 2, 1)
	inv.Hosts[0].NICs = append(inv.Hosts[0].NICs, inventory.NIC{Device: "eth1", Switch: "tor2", Port: 50, Rate: 100e9})
	plan := place(t, inv,
		placement.Job{Name: "near", Hosts: []string{"h1-1", "h2-1"}, PS: "h2-2"},
		placement.Job{Name: "far", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-2"})
	for i, want := range []string{"eth1", "eth0"} {
		if got := plan.Jobs[i].Workers[0].NIC; got != want {
			t.Errorf("job %s: worker 0 uses %s, want %s", plan.Jobs[i].Name, got, want)
		}
	}
}

func TestBuildTreeErrors(t *testing.T) {
	inv := policytest.Racks(1, 2, 1)
	for i := range inv.Switches {
		inv.Switches[i].Aggregators = 0
	}
	job := placement.Job{ID: 1, Name: "A", Hosts: []string{"h1-1", "h1-2"}, NoPS: true, Collective: placement.INA}
	if _, err := placement.On(baseline.FirstFit()).Place(inv, []placement.Job{job}, 0); !errors.Is(err, placement.ErrMemory) {
		t.Errorf("synchronous without aggregators: %v", err)
	}
	many := policytest.Racks(1, 65, 1)
	_, err := placement.On(baseline.FirstFit()).Place(many, []placement.Job{{ID: 1, Name: "A", GPUs: 65, Collective: placement.INA}}, 0)
	var e *placement.InfeasibleError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "64 workers") {
		t.Errorf("65 workers: %v", err)
	}
}

func TestValidate(t *testing.T) {
	inv := policytest.Racks(2, 2, 1)
	good := func() *placement.Plan {
		return place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2", "h2-1"}, PS: "h2-2"})
	}
	for want, spoil := range map[string]func(*placement.Plan){
		"two workers on host h1-1":        func(p *placement.Plan) { p.Jobs[0].Workers[1].Host = "h1-1" },
		"jobs take 2 GPUs, it has 1":      func(p *placement.Plan) { p.Jobs[0].Workers[1].GPUs = 2 },
		"worker 1 has rank 2":             func(p *placement.Plan) { p.Jobs[0].Workers[1].Rank = 2 },
		`host "h9" has no cabled NIC`:     func(p *placement.Plan) { p.Jobs[0].PS = "h9" },
		"has no tree":                     func(p *placement.Plan) { p.Jobs[0].Tree = nil },
		"below it are 0x3":                func(p *placement.Plan) { p.Jobs[0].Tree[0].Expect = 1 },
		"port 7 does not lead to spine1":  func(p *placement.Plan) { p.Jobs[0].Tree[0].UpPort = 7 },
		"the inventory lacks":             func(p *placement.Plan) { p.Jobs[0].Tree[0].Switch = "tor9" },
		"only the last of a tree has no ": func(p *placement.Plan) { p.Jobs[0].Tree[0].Parent = "" },
		"spine1 has no aggregators":       func(p *placement.Plan) { p.Jobs[0].Tree[1].Aggregate = true },
		"has id 1, as has job A":          func(p *placement.Plan) { p.Jobs = append(p.Jobs, p.Jobs[0]) },
		"has no workers":                  func(p *placement.Plan) { p.Jobs[0].Workers = nil },
		"host h1-2: jobs take 3 GPUs":     func(p *placement.Plan) { p.Jobs[0].Spare = []placement.HostGPUs{{Host: "h1-2", GPUs: 2}} },
		"host h9, which is not there":     func(p *placement.Plan) { p.Jobs[0].Spare = []placement.HostGPUs{{Host: "h9", GPUs: 1}} },
		"keeps -1 GPUs":                   func(p *placement.Plan) { p.Jobs[0].Spare = []placement.HostGPUs{{Host: "h2-2", GPUs: -1}} },
		"0 ranks on host h2-1, and 1 GPU": func(p *placement.Plan) { p.Jobs[0].Ranks = []string{"h1-1", "h1-2", "h1-2"} },
		"has 4 ranks, and 3 GPUs":         func(p *placement.Plan) { p.Jobs[0].Ranks = []string{"h1-1", "h1-2", "h2-1", "h2-2"} },
	} {
		p := good()
		spoil(p)
		if err := placement.Validate(p, inv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got: %v", want, err)
		}
	}
}

func predict(t testing.TB, inv *inventory.Inventory, plan *placement.Plan, c placement.Conditions) *placement.Prediction {
	t.Helper()
	p, err := placement.Predict(t.Context(), inv, plan, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b), 1e-9) }

// NetPack's Figure 14: two workers and a PS in a rack at a fixed rate; one job's
// share is y = x in the PAT ratio, two jobs' y = x/2, with the memory for one. That is
// so of averages; packets that come at random find a memory of 122 that just fits full
// now and then, and one that is short idle now and then.
func TestFigure14(t *testing.T) {
	inv := policytest.Racks(1, 3, 2)
	const lanes, rate, hold = 240, 10e9, 100e-6
	frame := 8.0 * (placement.INAOverhead + 4*lanes)
	full := rate / frame * hold // aggregators for all of one job
	for _, jobs := range []int{1, 2} {
		names := []string{"A", "B"}[:jobs]
		c := placement.Conditions{Lanes: lanes, Senders: map[string]placement.Sender{}, Holds: map[string]float64{}}
		var ask []placement.Job
		for _, n := range names {
			ask = append(ask, placement.Job{Name: n, Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3"})
			c.Senders[n] = placement.Sender{Rate: rate, Window: 1000}
			c.Holds[n+"@tor1"] = hold
		}
		plan := place(t, inv, ask...)
		step := 0.125
		if !proof.Wanted() {
			step = 0.5
		}
		for x := step; x <= 1; x += step {
			c.Aggregators = int(x*full + 0.5)
			ratio := float64(c.Aggregators) / full // as near to x as whole aggregators allow
			for _, c.Predictor = range []string{placement.Occupancy, placement.WaterFill} {
				p := predict(t, inv, plan, c)
				for _, j := range p.Jobs {
					want, got := min(1, ratio)/float64(jobs), j.Shares[0].Share
					if c.Predictor == placement.WaterFill && !near(got, want) || got < want-0.04 || got > want+0.01 {
						t.Errorf("%s, %d jobs at x = %v: share %v, want %v", c.Predictor, jobs, x, got, want)
					}
					if j.Bottleneck != "rate limit" || j.WireRate != rate || !near(j.Goodput, rate*960/1024) {
						t.Errorf("%s, %d jobs at x = %v: %+v", c.Predictor, jobs, x, j)
					}
				}
			}
		}
	}
}

func TestPredictNames(t *testing.T) {
	inv := policytest.Racks(2, 3, 2)
	for i := range inv.Switches[:2] {
		inv.Switches[i].Aggregators = 1e6
	}
	plan := place(t, inv,
		placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2", "h2-1"}, PS: "h2-3"},
		placement.Job{Name: "B", Hosts: []string{"h1-3", "h2-2"}, PS: "h2-1", Collective: placement.PS})
	c := placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{
		"A": {Window: 100000}, "B": {Window: 100000},
	}}
	load := func(p *placement.Prediction, link string) float64 {
		for _, l := range p.Links {
			if l.Link == link {
				return l.Load
			}
		}
		return 0
	}

	t.Run("occupancy", func(t *testing.T) {
		p := predict(t, inv, plan, c)
		a, b := p.Jobs[0], p.Jobs[1]
		// Into the host of B's PS come B's two copies and A's results; both are
		// backlogged there, and DRR halves it.
		if b.Bottleneck != "tor2->h2-1" || !near(b.WireRate, 25e9) {
			t.Errorf("B: %+v", b)
		}
		if !near(load(p, "tor2->h2-1"), 100e9) {
			t.Errorf("load of tor2->h2-1: %v", load(p, "tor2->h2-1"))
		}
		if a.Shares[0].Switch != "tor1" || a.Shares[1].Switch != "tor2" || len(b.Shares) != 0 {
			t.Errorf("shares %v %v", a.Shares, b.Shares)
		}
		// Results of B: a copy per worker leaves the PS's host.
		if got := load(p, "h2-1->tor2"); !near(got, a.WireRate+2*b.WireRate) {
			t.Errorf("load of h2-1->tor2: %v", got)
		}
	})
	t.Run("waterfill", func(t *testing.T) {
		c := c
		c.Predictor = placement.WaterFill
		p := predict(t, inv, plan, c)
		// One undirected cable: A's worker, and two flows to B's PS.
		if b := p.Jobs[1]; b.Bottleneck != "tor2->h2-1" || !near(b.WireRate, 100e9/3) {
			t.Errorf("B: %+v", b)
		}
		if load(p, "h2-1->tor2") != 0 || !near(load(p, "tor2->h2-1"), 100e9) {
			t.Error("the cable's load is not on its busier direction alone")
		}
	})
	t.Run("active", func(t *testing.T) {
		c := c
		c.Active = []string{"B"}
		p := predict(t, inv, plan, c)
		if len(p.Jobs) != 1 || p.Jobs[0].Name != "B" || !near(p.Jobs[0].WireRate, 50e9) {
			t.Errorf("%+v", p.Jobs)
		}
	})
	t.Run("errors", func(t *testing.T) {
		for _, c := range []placement.Conditions{
			{Predictor: "oracle"}, {Active: []string{"Z"}}, {Addressing: "x"}, {Mode: "x"}, {Lanes: -1},
		} {
			if p, err := placement.Predict(t.Context(), inv, plan, c); err == nil || p != nil {
				t.Errorf("%+v: prediction %v, error %v", c, p, err)
			}
		}
	})
}

func TestPredictDefaultsFromTopology(t *testing.T) {
	inv := policytest.Racks(2, 3, 2)
	plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2", "h2-1", "h2-2"}, PS: "h2-3"})
	c := placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{"A": {Window: 16}}}
	p := predict(t, inv, plan, c)
	hop := 2*1e-6 + 2*8*1024/100e9 // there and back over one cable
	// The root's own workers are two hops nearer than the leaf's: theirs is the first packet.
	if got := p.Jobs[0].Shares[1].Hold; !near(got, 3*hop) {
		t.Errorf("T at the root %v, want %v", got, 3*hop)
	}
	if got := p.Jobs[0].Shares[0].Hold; !near(got, 3*hop) {
		t.Errorf("T at the leaf %v, want %v", got, 3*hop)
	}
	if j := p.Jobs[0]; j.Bottleneck != "window" || !near(j.WireRate, 16*8*1024/(4*hop)) {
		t.Errorf("%+v", j)
	}
	c.RTTs = map[string]float64{"A": 8 * hop}
	if j := predict(t, inv, plan, c).Jobs[0]; !near(j.WireRate, 16*8*1024/(8*hop)) {
		t.Errorf("calibrated: %+v", j)
	}
}

// A rate limit's packets are scattered over blocks of 16, which a window has to cover beside
// the round trip: one that covers the round trip alone is too small.
func TestPredictWindowAtARate(t *testing.T) {
	inv := policytest.Racks(1, 3, 2)
	plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3"})
	const rate, frame = 10e9, 8.0 * 1024
	for _, tt := range []struct {
		window int
		trip   float64 // round trips, in packets at the rate
		least  float64 // of the rate
		most   float64
	}{
		{100, 25, 1, 1},
		{64, 60, 0.78, 0.85}, // -18 %
		{32, 30, 0.62, 0.72}, // -33 %
	} {
		c := placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{"A": {Rate: rate, Window: tt.window}},
			RTTs: map[string]float64{"A": tt.trip * frame / rate}}
		j := predict(t, inv, plan, c).Jobs[0]
		if f := j.WireRate / rate; f < tt.least || f > tt.most {
			t.Errorf("window %d over %v packets: %.3f of the rate, want %v to %v (%s)", tt.window, tt.trip, f, tt.least, tt.most, j.Bottleneck)
		}
	}
}

// Two racks whose memories are short. A hash denies the same PSNs at both switches where
// these are of one size; taken as independent, the levels would send a tenth less to the PS.
func TestPredictLevelsAlike(t *testing.T) {
	inv := policytest.Racks(2, 3, 2)
	plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2", "h2-1", "h2-2"}, PS: "h2-3"})
	const rate, frame, hold = 10e9, 8.0 * 1024, 200e-6
	c := placement.Conditions{Lanes: 240, Addressing: "hash", Aggregators: 244,
		Senders: map[string]placement.Sender{"A": {Rate: rate, Window: 1024}},
		Holds:   map[string]float64{"A@tor1": hold, "A@tor2": hold}, RTTs: map[string]float64{"A": 1.2 * hold}}
	p := predict(t, inv, plan, c)
	u := rate / frame * hold / 244
	a := 1 / (1 + u) // at both, of the same PSNs
	want := rate * (a + (1-a)*4)
	i := slices.IndexFunc(p.Links, func(l placement.LinkPrediction) bool { return l.Link == "tor2->h2-3" })
	if i < 0 || math.Abs(p.Links[i].Load/want-1) > 0.03 {
		t.Errorf("want %.4g bit/s to the PS: %+v", want, p)
	}
	// The PSNs that tor2 denies come as two packets from tor1, the others as one: it takes less
	// out of what comes to it than the part of PSNs that it grants.
	out := 4 - 3*a
	for _, s := range p.Jobs[0].Shares {
		want := a
		if in := 4 - a; s.Switch == "tor2" {
			want = (in - out) / (in - 1)
		}
		if math.Abs(s.Share-want) > 0.02 || math.Abs(s.Granted-a) > 0.02 {
			t.Errorf("%s takes %.3f out and grants %.3f, want %.3f and %.3f", s.Switch, s.Share, s.Granted, want, a)
		}
	}
}

func TestPredictSynchronous(t *testing.T) {
	inv := policytest.Racks(1, 3, 3)
	plan := place(t, inv,
		placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2"}, NoPS: true},
		placement.Job{Name: "B", Hosts: []string{"h1-2", "h1-3"}, NoPS: true})
	c := placement.Conditions{Mode: "synchronous", Lanes: 240, Aggregators: 600, Senders: map[string]placement.Sender{
		"A": {Window: 200}, "B": {Window: 200},
	}}
	for _, c.Predictor = range []string{placement.Occupancy, placement.WaterFill} {
		p := predict(t, inv, plan, c)
		if a := p.Jobs[0]; a.Shares[0].Share != 1 || a.WireRate == 0 {
			t.Errorf("%s: A, which has its 400 of 600 slots: %+v", c.Predictor, a)
		}
		if b := p.Jobs[1]; b.Bottleneck != "tor1 aggregators" || b.WireRate != 0 || b.Shares[0].Share != 0 {
			t.Errorf("%s: B, which has 200 left of the 400 it needs: %+v", c.Predictor, b)
		}
	}
}

func TestPredictRing(t *testing.T) {
	inv := policytest.Racks(1, 4, 1)
	plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2", "h1-3", "h1-4"}, Collective: placement.Ring})
	p := predict(t, inv, plan, placement.Conditions{Lanes: 240})
	if j := p.Jobs[0]; !near(j.WireRate, 100e9) || !near(j.Goodput, 100e9*1448/(1514+66/2)*4/6) {
		t.Errorf("%+v", j)
	}
	if len(p.Links) != 8 {
		t.Errorf("%d links carry the ring, want 8", len(p.Links))
	}
	// To Algorithm 1 a cable is one link, by which a ring goes out while it comes in.
	p = predict(t, inv, plan, placement.Conditions{Lanes: 240, Predictor: placement.WaterFill})
	if j := p.Jobs[0]; !near(j.WireRate, 100e9) || len(p.Links) != 4 {
		t.Errorf("%+v on %d cables", j, len(p.Links))
	}
}

// TestPredictRingFrames: links carry a short message in the frames in which ranks pass it on: of each
// chunk a header of 24 bytes, a block of 3,840 and the rest, 1, 3 and 2 frames, each with 66 bytes
// of headers, and 1, 2 and 1 acknowledgements of as many.
func TestPredictRingFrames(t *testing.T) {
	inv := policytest.Racks(1, 5, 1)
	hosts := []string{"h1-1", "h1-2", "h1-3", "h1-4", "h1-5"}
	plan := place(t, inv, placement.Job{Name: "A", Hosts: hosts, Collective: placement.Ring})
	for _, rate := range []float64{0, 2e9} {
		p := predict(t, inv, plan, placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{
			"A": {Rate: rate, Layers: []placement.Layer{{Bytes: 32 << 10}}},
		}})
		const data, acks = 32<<10 + 5*(24+6*66), 5 * 4 * 66 // of all chunks, once around
		load := p.Jobs[0].Goodput / (32 << 10) * (data + acks) * 2 * 4 / 5
		for _, l := range p.Links {
			if math.Abs(l.Load/load-1) > .002 {
				t.Errorf("limit %v: %s carries %.4g bit/s of a ring of %.4g bit/s, want %.4g", rate, l.Link, l.Load, p.Jobs[0].Goodput, load)
			}
		}
		if paced := p.Jobs[0].Goodput / (32 << 10) * data * 2 * 4 / 5; rate > 0 && math.Abs(paced/rate-1) > .01 {
			t.Errorf("a ring paced at %v sends %.4g bit/s", rate, paced)
		}
	}
}

// A job on one host has no rate, takes nothing from others and loads no link.
func TestPredictLocal(t *testing.T) {
	inv := policytest.Racks(1, 3, 4)
	for _, job := range []placement.Job{
		{GPUs: 2}, {Hosts: []string{"h1-1"}}, {GPUs: 2, NoPS: true},
		{GPUs: 2, Collective: placement.PS}, {Hosts: []string{"h1-1"}, Collective: placement.Ring},
	} {
		job.Name = "A"
		plan := place(t, inv, job, placement.Job{Name: "B", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3"})
		if j := &plan.Jobs[0]; !j.Local() || j.PS != "" || j.Tree != nil || plan.Jobs[1].Local() {
			t.Fatalf("%+v: %+v", job, plan)
		}
		for _, predictor := range []string{placement.Occupancy, placement.WaterFill} {
			p := predict(t, inv, plan, placement.Conditions{Predictor: predictor, Lanes: 240, Senders: map[string]placement.Sender{"A": {Rate: 1e9, Window: 100}}})
			if d := cmp.Diff(placement.JobPrediction{Name: "A", Local: true, Bottleneck: "none"}, p.Jobs[0]); d != "" {
				t.Errorf("%+v, %s: %s", job, predictor, d)
			}
			if b := p.Jobs[1]; b.Name != "B" || !near(b.WireRate, 100e9) {
				t.Errorf("%+v, %s: the other job: %+v", job, predictor, b)
			}
			alone := predict(t, inv, plan, placement.Conditions{Predictor: predictor, Lanes: 240, Active: []string{"A"}})
			if len(alone.Jobs) != 1 || len(alone.Links) != 0 {
				t.Errorf("%+v, %s, alone: %+v", job, predictor, alone)
			}
		}
	}
}

// TestPredictBesidePS: a worker on its PS's host sends gradients to the job's address, over the network, and
// gets results without it: a PS job of three of which one is there sends 3 packets a PSN up its
// host's cable, a gradient and the results of the two others, and 3 gradients come down. Frames that are
// followed, where windows are short, say the same as weights do.
func TestPredictBesidePS(t *testing.T) {
	inv := policytest.Racks(1, 3, 4)
	job := placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2", "h1-3"}, PS: "h1-3", Collective: placement.PS}
	for name, s := range map[string]placement.Sender{"paced": {Rate: 1e9, Window: 1000}, "window of 8": {Window: 8}, "one at a time": {Window: 1}} {
		p := predict(t, inv, place(t, inv, job), placement.Conditions{Predictor: placement.Occupancy, Lanes: 240, Senders: map[string]placement.Sender{"A": s}})
		load := map[string]float64{}
		for _, l := range p.Links {
			load[l.Link] = l.Load / p.Jobs[0].WireRate
		}
		for link, want := range map[string]float64{"h1-1->tor1": 1, "tor1->h1-1": 1, "h1-3->tor1": 3, "tor1->h1-3": 3} {
			if math.Abs(load[link]-want) > 0.01 {
				t.Errorf("%s: %s carries %.3f packets a PSN, want %g", name, link, load[link], want)
			}
		}
		alone := predict(t, inv, place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-3"}, PS: "h1-3", Collective: placement.PS}), placement.Conditions{Predictor: placement.Occupancy, Lanes: 240, Senders: map[string]placement.Sender{"A": s}})
		for _, l := range alone.Links {
			if load := l.Load / alone.Jobs[0].WireRate; math.Abs(load-1) > 0.01 {
				t.Errorf("%s, alone with its PS: %s carries %.3f packets a PSN, want a gradient", name, l.Link, load)
			}
		}
	}
}

// Synchronous jobs own regions of two windows, one behind the other, up to what the
// experiment uses of a switch.
func TestRegions(t *testing.T) {
	tor1, tor2 := &inventory.Switch{Name: "tor1", Aggregators: 1000}, &inventory.Switch{Name: "tor2", Aggregators: 300}
	r := placement.NewRegions(400)
	for _, x := range []struct {
		sw          *inventory.Switch
		job, failed string
		window      int
		base        int
	}{
		{sw: tor1, job: "A", window: 100, base: 0},
		{sw: tor2, job: "A", window: 100, base: 0},
		{sw: tor1, job: "B", window: 101, failed: "switch tor1: jobs up to B need 402 aggregators (two windows each in synchronous mode), it has 400: not enough switch memory"},
		{sw: tor1, job: "C", window: 100, base: 200},
		{sw: tor2, job: "C", window: 100, failed: "switch tor2: jobs up to C need 400 aggregators (two windows each in synchronous mode), it has 300: not enough switch memory"},
		{sw: tor2, job: "D", window: 50, base: 200},
	} {
		base, size, err := r.Take(x.sw, x.job, x.window)
		if x.failed != "" {
			if err == nil || err.Error() != x.failed || !errors.Is(err, placement.ErrMemory) || base != 0 || size != 0 {
				t.Errorf("job %s at %s: %d+%d, %v", x.job, x.sw.Name, base, size, err)
			}
		} else if err != nil || base != x.base || size != 2*x.window {
			t.Errorf("job %s at %s: %d+%d, %v", x.job, x.sw.Name, base, size, err)
		}
	}
	if n := placement.Aggregators(tor2, 0); n != 300 {
		t.Errorf("all of tor2 are %d", n)
	}
}

// TestPredictShortMessages: a ring's all-reduces of short messages take as long as the way round,
// longer where another job fills a link on it, and longer where calibrated round trips say
// that hosts and switches take more than links.
func TestPredictShortMessages(t *testing.T) {
	inv := policytest.Racks(1, 4, 2)
	plan := place(t, inv,
		placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2", "h1-3"}, PS: "h1-4", Collective: placement.INA},
		placement.Job{Name: "R", Hosts: []string{"h1-1", "h1-2"}, Collective: placement.Ring})
	goodput := func(rate float64, rtt float64) float64 {
		t.Helper()
		c := placement.Conditions{Aggregators: 4096, Senders: map[string]placement.Sender{
			"A": {Window: 1024, Rate: rate}, "R": {Layers: []placement.Layer{{Bytes: 64 << 10}}},
		}, RTTs: map[string]float64{}}
		if rtt > 0 {
			c.RTTs["A"] = rtt
		}
		p, err := placement.Predict(t.Context(), inv, plan, c)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Rings {
			t.Fatal("the ring was not followed")
		}
		return p.Jobs[1].Goodput
	}
	beside, late, filled := goodput(1e9, 0), goodput(1e9, 200e-6), goodput(0, 0)
	if !(late < .9*beside) {
		t.Errorf("%v with late round trips, %v without", late, beside)
	}
	if !(filled < .8*beside) {
		t.Errorf("%v beside a job that fills links, %v beside a slow one", filled, beside)
	}
}

// TestPredictDamageBesideRing: packets are not followed while a ring sends over a damaged link, and are while it
// computes. What is told of them then is of no mean, and the prediction says what it leaves out.
func TestPredictDamageBesideRing(t *testing.T) {
	inv := policytest.Racks(1, 3, 4)
	plan := place(t, inv,
		placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3"},
		placement.Job{Name: "R", Hosts: []string{"h1-1", "h1-2"}, Collective: placement.Ring})
	p, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{
		Lanes: 240, Damage: map[string]flow.Damage{"h1-1->tor1": {Loss: 1e-6}}, // so rare that few runs tell
		Senders: map[string]placement.Sender{
			"A": {Window: 64, Timeout: 1e-3}, "R": {Layers: []placement.Layer{{Bytes: 8 << 20, Compute: 1e-3}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Jobs) != 2 || !(p.Jobs[0].WireRate > 0) || p.Beyond == "" {
		t.Errorf("%+v", p)
	}
}
