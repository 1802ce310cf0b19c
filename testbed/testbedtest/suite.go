// Package testbedtest holds every driver to what package testbed promises: one
// suite, Run, which each driver's test file calls with its constructor.
package testbedtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Config is a driver to test.
type Config struct {
	// Open brings up a testbed of inv, whose addresses and devices are left out:
	// a fabric that is brought up fills them in. The suite closes it, and never has
	// two open at a time in one process.
	Open func(ctx context.Context, inv *inventory.Inventory) (testbed.Testbed, error)

	// Patience is how long one call may take before it counts as hanging; 0: 2 min.
	Patience time.Duration

	// Apart, if there is one, has the suite's parts run beside each other, each in a process of
	// its own: netnstest.Apart.
	Apart func(t *testing.T) bool
}

// Run tests a driver.
//
// It checks the life of deployments, cancellation, sums (under loss, duplication
// and reordering where the driver can damage links), competition for aggregators,
// memory that changes hands, counters, clocks, and that a driver can do exactly what it says it can. Links are
// slow (8 Mbit/s, 1 ms), so that an emulation on a busy machine carries it.
func Run(t *testing.T, c Config) {
	if c.Patience == 0 {
		c.Patience = 2 * time.Minute
	}
	part := func(name string, run func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			if c.Apart != nil {
				t.Parallel()
				if !c.Apart(t) {
					return
				}
			}
			run(t)
		})
	}
	part("rack", func(t *testing.T) {
		b := c.open(t, oneRack())
		t.Run("lifecycle", b.lifecycle)
		t.Run("cancellation", b.cancellation)
		t.Run("honesty", b.honesty)
		t.Run("time", b.time)
		t.Run("sums", b.sums)
		t.Run("local", b.local)
		t.Run("online", b.online)
		t.Run("reallocation", b.reallocation)
		t.Run("competition", b.competition)
		t.Run("damage", b.damage) // last: nothing else should meet it
	})
	part("two racks", func(t *testing.T) {
		b := c.open(t, twoRacks())
		t.Run("sums", b.sumsAcross)
		t.Run("reallocation", b.reallocationAcross)
		t.Run("accounting", b.accounting)
	})
	part("closing", c.closing)
}

const (
	lanes     = 64
	frame     = 64 + 4*lanes // bytes
	linkRate  = 8e6
	linkDelay = time.Millisecond
	window    = 64
	rto       = 100 * time.Millisecond
	far       = 10000 * time.Hour // a time that no test reaches, also not in virtual time
)

// oneRack is hosts h1, h2 and h3 at tor1.
func oneRack() *inventory.Inventory {
	inv := &inventory.Inventory{Name: "one rack"}
	inv.Switches = []inventory.Switch{{Name: "tor1", Kind: inventory.Soft, Aggregators: 1024}}
	addHosts(inv, "tor1", 3)
	return inv
}

// twoRacks is h1 and h2 at tor1, h3 and h4 at tor2, and a spine between them.
func twoRacks() *inventory.Inventory {
	inv := &inventory.Inventory{Name: "two racks"}
	inv.Switches = []inventory.Switch{{Name: "tor1", Kind: inventory.Soft, Aggregators: 1024},
		{Name: "tor2", Kind: inventory.Soft, Aggregators: 1024}, {Name: "spine1", Kind: inventory.Soft}}
	for i, tor := range []string{"tor1", "tor2"} {
		addHosts(inv, tor, 2)
		inv.Links = append(inv.Links, inventory.Link{
			A: inventory.Port{Switch: tor, Port: 9}, B: inventory.Port{Switch: "spine1", Port: uint32(i + 1)},
			Rate: 2 * linkRate, Delay: linkDelay,
		})
	}
	return inv
}

func addHosts(inv *inventory.Inventory, tor string, n int) {
	for i := range n {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", len(inv.Hosts)+1), GPUs: 4, NICs: []inventory.NIC{{
			Device: "eth0", Switch: tor, Port: uint32(i + 1), Rate: linkRate, Delay: linkDelay,
		}}})
	}
}

// bed is a testbed under test.
type bed struct {
	Config
	tb testbed.Testbed
}

func (c Config) open(t *testing.T, inv *inventory.Inventory) bed {
	t.Helper()
	var tb testbed.Testbed
	var err error
	c.within(t, "open", func() { tb, err = c.Open(t.Context(), inv) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(context.Background()); err != nil {
			t.Errorf("close the testbed: %v", err)
		}
	})
	return bed{c, tb}
}

// within fails the test when f takes longer than patience allows.
func (c Config) within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(c.Patience):
		t.Fatalf("%s: not back after %v", what, c.Patience)
	}
}

// job is what a test wants to run.
type job struct {
	name       string
	workers    int      // on h1, h2, ...; or
	hosts      []string // there
	ps         string
	collective placement.Collective // empty: ina
	message    int64
	layers     []testbed.Layer
	iterations int64
}

// short reports whether what repeats a proof is left out: real time passes meanwhile.
func (b bed) short() bool { return !proof.Wanted() && !b.tb.Capabilities().Virtual }

// setup places jobs on the testbed's inventory.
func (b bed) setup(t *testing.T, s testbed.Settings, jobs ...job) testbed.Setup {
	t.Helper()
	inv := b.tb.Inventory()
	s.Lanes, s.Seed = lanes, 1
	out := testbed.Setup{Plan: &placement.Plan{}, Settings: s}
	for i, j := range jobs {
		p := placement.JobPlan{ID: uint16(i + 1), Name: j.name, Collective: placement.INA, PS: j.ps}
		if j.collective != "" {
			p.Collective = j.collective
		}
		if s.Mode == "synchronous" {
			p.PS = ""
		}
		for r := range j.workers {
			j.hosts = append(j.hosts, fmt.Sprintf("h%d", r+1))
		}
		for r, h := range j.hosts {
			p.Workers = append(p.Workers, placement.Worker{Rank: r, Host: h, GPUs: 1})
		}
		if err := placement.BuildTree(inv.Topology(), inv, &p); err != nil {
			t.Fatal(err)
		}
		out.Plan.Jobs = append(out.Plan.Jobs, p)
		out.Workloads = append(out.Workloads, testbed.Workload{
			Job: p, Window: window, Control: "fixed", Message: j.message, Layers: j.layers, Iterations: j.iterations, RTO: rto,
		})
	}
	return out
}

// stream is a setup of one job that sends until it is stopped.
func (b bed) stream(t *testing.T) testbed.Setup {
	t.Helper()
	return b.setup(t, testbed.Settings{}, job{name: "A", workers: 2, ps: "h3"})
}

// deployed is a deployment under test. Its helpers fail the test.
type deployed struct {
	testbed.Deployment
	*testing.T
	bed  bed
	jobs []placement.JobPlan
}

func (b bed) deploy(t *testing.T, s testbed.Setup) deployed {
	t.Helper()
	var d testbed.Deployment
	var err error
	b.within(t, "deploy", func() { d, err = b.tb.Deploy(t.Context(), s) })
	if err != nil {
		t.Fatalf("deploy: %v", err)
	}
	t.Cleanup(func() {
		b.within(t, "close", func() { err = d.Close(context.Background()) })
		if err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return deployed{d, t, b, s.Plan.Jobs}
}

func (d deployed) start() {
	d.Helper()
	for _, j := range d.jobs {
		d.must("start "+j.Name, func() error { return d.Start(d.Context(), j.Name) })
	}
}

func (d deployed) stop() {
	d.Helper()
	for _, j := range d.jobs {
		d.must("stop "+j.Name, func() error { return d.Stop(d.Context(), j.Name) })
		select {
		case <-d.Done(j.Name):
		case <-time.After(d.bed.Patience):
			d.Errorf("job %s was stopped and is not done", j.Name)
		}
	}
}

func (d deployed) must(what string, f func() error) {
	d.Helper()
	var err error
	d.bed.within(d.T, what, func() { err = f() })
	if err != nil {
		d.Fatalf("%s: %v", what, err)
	}
}

func (d deployed) sleep(by time.Duration) {
	d.Helper()
	until := d.Now() + by
	d.must("sleep", func() error { return d.Sleep(d.Context(), until) })
	if now := d.Now(); now < until {
		d.Errorf("slept until %v, it is %v", until, now)
	}
}

func (d deployed) sample() []results.Sample {
	d.Helper()
	var s []results.Sample
	d.must("sample", func() (err error) {
		s, err = d.Deployment.Sample(d.Context())
		return err
	})
	return s
}

// finish waits until every job has done its iterations, and returns how they ended.
func (d deployed) finish(limit time.Duration) []results.JobSummary {
	d.Helper()
	limit += d.Now()
	for _, j := range d.jobs {
		for over := false; !over; {
			select {
			case <-d.Done(j.Name):
				over = true
			default:
				if d.Now() > limit {
					d.Fatalf("job %s is not done at %v", j.Name, d.Now())
				}
				d.sleep(20 * time.Millisecond)
			}
		}
	}
	return d.summaries()
}

func (d deployed) summaries() []results.JobSummary {
	d.Helper()
	var out []results.JobSummary
	for _, j := range d.jobs {
		s, err := d.Summary(j.Name)
		if err != nil {
			d.Fatalf("job %s: %v", j.Name, err)
		}
		if s.Job != j.Name || s.Workers != len(j.Workers) {
			d.Errorf("summary of job %s with %d workers: %+v", j.Name, len(j.Workers), s)
		}
		out = append(out, s)
	}
	return out
}

// exact fails the test if sums were not checked, or were wrong. least is how many
// values must have been compared where the driver carries sums.
func (d deployed) exact(s results.JobSummary, least int64) {
	d.Helper()
	if !d.bed.tb.Capabilities().Sums {
		least = 0
		if s.SumsChecked != 0 {
			d.Errorf("job %s: %d sums checked by a driver that carries none", s.Job, s.SumsChecked)
		}
	}
	if s.SumsChecked < least || s.SumErrors != 0 || s.Overflows != 0 {
		d.Errorf("job %s: %d sums checked (want %d), %d wrong, %d overflows", s.Job, s.SumsChecked, least, s.SumErrors, s.Overflows)
	}
}

// lifecycle: a deployment comes and goes and leaves room for the next, also when it
// fails half-way.
func (b bed) lifecycle(t *testing.T) {
	t.Run("again and again", func(t *testing.T) {
		for range 2 {
			t.Run("", func(t *testing.T) {
				d := b.deploy(t, b.stream(t))
				d.start()
				d.sleep(100 * time.Millisecond)
				d.stop()
				for range 2 {
					d.must("close", func() error { return d.Close(t.Context()) })
				}
			})
		}
	})
	t.Run("never started", func(t *testing.T) { b.deploy(t, b.stream(t)) })
	t.Run("two at a time", func(t *testing.T) {
		b.deploy(t, b.stream(t))
		b.refuse(t, "a second deployment", b.stream(t), testbed.ErrBusy)
	})
	t.Run("unknown host", func(t *testing.T) {
		s := b.stream(t)
		s.Plan.Jobs[0].Workers[1].Host = "nowhere"
		s.Workloads[0].Job = s.Plan.Jobs[0]
		b.refuse(t, "a worker on an unknown host", s, nil)
		b.deploy(t, b.stream(t))
	})
	t.Run("too few workloads", func(t *testing.T) {
		s := b.stream(t)
		s.Workloads = nil
		b.refuse(t, "a job without workload", s, nil)
		b.deploy(t, b.stream(t))
	})
	t.Run("unknown job", func(t *testing.T) {
		d := b.deploy(t, b.stream(t))
		b.within(t, "start, stop and summary", func() {
			if d.Start(t.Context(), "Z") == nil || d.Stop(t.Context(), "Z") == nil {
				t.Error("a job that is not there was started or stopped")
			}
			if _, err := d.Summary("Z"); err == nil {
				t.Error("a job that is not there has a summary")
			}
		})
	})
	if !proof.Wanted() {
		return
	}
	t.Run("memory", func(t *testing.T) {
		s := b.setup(t, testbed.Settings{Mode: "synchronous", Aggregators: window}, job{name: "A", workers: 2})
		b.refuse(t, "a synchronous job with one window of aggregators", s, placement.ErrMemory)
		b.deploy(t, b.stream(t))
	})
}

// refuse deploys what must not be, for the given reason if there is one.
func (b bed) refuse(t *testing.T, what string, s testbed.Setup, reason error) {
	t.Helper()
	var d testbed.Deployment
	var err error
	b.within(t, "deploy", func() { d, err = b.tb.Deploy(t.Context(), s) })
	if err == nil {
		t.Errorf("%s was deployed", what)
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	} else if reason != nil && !errors.Is(err, reason) {
		t.Errorf("%s: %v, want %v", what, err, reason)
	}
}

// cancellation: calls end soon after their context, with its error, and what was
// cancelled can be closed and the testbed used again.
func (b bed) cancellation(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	usable := func(t *testing.T) {
		t.Run("usable", func(t *testing.T) { b.deploy(t, b.stream(t)) })
	}
	t.Run("before deploy", func(t *testing.T) {
		var err error
		b.within(t, "deploy", func() {
			var d testbed.Deployment
			if d, err = b.tb.Deploy(cancelled, b.stream(t)); err == nil {
				d.Close(context.Background())
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		usable(t)
	})
	moments := []time.Duration{10 * time.Millisecond, time.Millisecond, 50 * time.Millisecond}
	if b.short() {
		moments = moments[:1]
	}
	for _, after := range moments {
		t.Run(fmt.Sprintf("%v into deploy", after), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer time.AfterFunc(after, cancel).Stop()
			var err, closed error
			s := b.stream(t)
			b.within(t, "deploy", func() {
				var d testbed.Deployment
				if d, err = b.tb.Deploy(ctx, s); err == nil { // it was faster
					closed = d.Close(ctx)
				}
			})
			if err != nil && !errors.Is(err, context.Canceled) || closed != nil {
				t.Errorf("error %v, then %v", err, closed)
			}
			usable(t)
		})
	}
	t.Run("in sleep", func(t *testing.T) {
		d := b.deploy(t, b.stream(t))
		d.start()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		defer time.AfterFunc(50*time.Millisecond, cancel).Stop()
		var err error
		b.within(t, "sleep", func() { err = d.Sleep(ctx, far) })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("sleep: %v", err)
		}
		d.must("close after cancellation", func() error { return d.Close(ctx) })
		usable(t)
	})
}

// honesty: a driver can do what it claims and refuses what it does not.
func (b bed) honesty(t *testing.T) {
	c := b.tb.Capabilities()
	if c.Kind != results.Measured && c.Kind != results.Simulated || c.Switch == "" {
		t.Errorf("kind %q, switch %q", c.Kind, c.Switch)
	}
	if c.Virtual && c.Kind != results.Simulated {
		t.Errorf("figures in virtual time are called %s", c.Kind)
	}
	d := b.deploy(t, b.stream(t))
	for _, l := range b.tb.Inventory().Topology().Links {
		err := d.SetLink(t.Context(), l.Name, testbed.LinkState{})
		if c.Impairments && err != nil {
			t.Errorf("links can be damaged, but: %v", err)
		}
		if !c.Impairments && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("links cannot be damaged, but %s gave %v", l.Name, err)
		}
	}
	if d.SetLink(t.Context(), "h1->nowhere", testbed.LinkState{}) == nil {
		t.Error("a link that is not there was damaged")
	}
	d.start()
	began := time.Now()
	d.sleep(300 * time.Millisecond)
	if passed := time.Since(began); !c.Virtual && passed < 300*time.Millisecond {
		t.Errorf("time is real, but 300 ms took %v", passed)
	}
	d.stop()
	r := newReadings(d.sample())
	d.exact(d.summaries()[0], 1)
	if c.Calibrates {
		for _, of := range []string{"job_hold_packets A@tor1", "job_hold_seconds A@tor1", "worker_rtt_count A/0", "worker_rtt_seconds A/0"} {
			if r.value[of] <= 0 {
				t.Errorf("hold times and round trips can be measured, but %s is %v", of, r.value[of])
			}
		}
	}
	if _, err := d.Health(t.Context()); err != nil {
		t.Errorf("health: %v", err)
	}
	d.stalls()
}

// stalls fails the test if what stood still is told out of order, of no place or another
// time, twice, or by a model.
func (d deployed) stalls() {
	d.Helper()
	told := map[testbed.Stall]bool{}
	for range 2 {
		all, err := d.Stalls(d.Context())
		if err != nil {
			d.Errorf("stalls: %v", err)
		}
		if len(all) > 0 && d.bed.tb.Capabilities().Virtual {
			d.Errorf("time is virtual and stood still: %+v", all)
		}
		if !slices.IsSortedFunc(all, func(a, b testbed.Stall) int { return int(a.Start - b.Start) }) {
			d.Errorf("stalls out of order: %+v", all)
		}
		for _, s := range all {
			// Clocks of hosts are known to less than a second.
			if s.Start > s.End || s.End > d.Now()+time.Second || s.Late <= 0 || s.Where == "" || s.What == "" || told[s] {
				d.Errorf("at %v: stall %+v", d.Now(), s)
			}
			told[s] = true
		}
	}
}

// time: clocks do not go back, and virtual ones say the same every time.
func (b bed) time(t *testing.T) {
	var first []results.Sample
	rounds := 2
	if b.short() {
		rounds = 1
	}
	for round := range rounds {
		t.Run("", func(t *testing.T) {
			d := b.deploy(t, b.setup(t, testbed.Settings{Addressing: "hash", Aggregators: 8},
				job{name: "A", workers: 2, ps: "h3"}, job{name: "B", workers: 3, ps: "h3", message: 9 * 4 * lanes, iterations: 5}))
			last := d.Now()
			if last < 0 {
				t.Errorf("the deployment begins at %v", last)
			}
			d.start()
			var all []results.Sample
			for range 4 {
				d.sleep(60 * time.Millisecond)
				all = append(all, d.sample()...)
				now := d.Now()
				if now < last {
					t.Errorf("it was %v and is %v", last, now)
				}
				last = now
			}
			for _, s := range all {
				if s.T < -1 || s.T > last.Seconds()+1 { // clocks of hosts are known to less than that
					t.Errorf("at %v: sample of time %v", last, s)
					break
				}
			}
			if !b.tb.Capabilities().Virtual {
				return
			}
			if round == 0 {
				first = all
			} else if diff := cmp.Diff(first, all); diff != "" {
				t.Errorf("the same seed gave other samples:\n%s", diff)
			}
		})
	}
}

// closing: a testbed closes once and for all, whatever is deployed on it.
func (c Config) closing(t *testing.T) {
	b := c.open(t, oneRack())
	s := b.stream(t)
	d := b.deploy(t, s)
	d.start()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		d.must("close deployment", func() error { return d.Close(cancelled) })
		d.must("close testbed", func() error { return b.tb.Close(cancelled) })
	}
	b.refuse(t, "a job on a closed testbed", s, nil)
}
