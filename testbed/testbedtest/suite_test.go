package testbedtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sim"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// defect is what a driver does wrong, in the functions that it replaces.
type defect struct {
	capabilities func(*testbed.Capabilities)
	deploy       func(b *flawed, ctx context.Context, s testbed.Setup) (testbed.Deployment, error)
	start        func(d *flawedDeployment, ctx context.Context, job string) error
	stop         func(d *flawedDeployment, ctx context.Context, job string) error
	summary      func(*results.JobSummary)
	samples      func([]results.Sample) []results.Sample
	sleep        func(d *flawedDeployment, ctx context.Context, t time.Duration) error
	now          func(time.Duration) time.Duration
	reallocate   func(d *flawedDeployment, ctx context.Context, grants map[string]placement.Grant) error
	setLink      func(d *flawedDeployment, link string) error
	stalls       func(d *flawedDeployment) []testbed.Stall
	done         func(d *flawedDeployment, job string) <-chan struct{}
	close        func(d *flawedDeployment, ctx context.Context) error
	closeTestbed func(b *flawed, ctx context.Context) error
}

// broken are drivers with one defect each, and a part of the suite that must see it.
var broken = map[string]struct {
	seen string
	defect
}{
	"wrong sums":                {"rack/sums", defect{summary: func(s *results.JobSummary) { s.SumErrors = 1 }}},
	"sums that nobody checks":   {"rack/sums", defect{summary: func(s *results.JobSummary) { s.SumsChecked = 0 }}},
	"sums of some packets only": {"rack/sums", defect{summary: func(s *results.JobSummary) { s.SumsChecked -= 64 }}},
	"sums it does not claim":    {"rack/honesty", defect{capabilities: func(c *testbed.Capabilities) { c.Sums = false }}},
	"an iteration too few":      {"rack/sums", defect{summary: func(s *results.JobSummary) { s.Iterations-- }}},
	"traffic of a job on one host": {"rack/local", defect{samples: func(s []results.Sample) []results.Sample {
		for i := range s {
			if s[i].Metric == "nic_tx_packets" {
				s[i].Value += 1000 * s[i].T
			}
		}
		return s
	}}},
	"iterations of nothing": {"rack/local", defect{summary: func(s *results.JobSummary) { s.Iterations++ }}},
	"damage without effect": {"rack/damage", defect{summary: func(s *results.JobSummary) { s.Resends = 0 }}},
	"damage it claims and refuses": {"rack/honesty", defect{setLink: func(*flawedDeployment, string) error {
		return errors.ErrUnsupported
	}}},
	"damage it does not claim": {"rack/honesty", defect{capabilities: func(c *testbed.Capabilities) { c.Impairments = false }}},
	"damage to any name":       {"rack/honesty", defect{setLink: func(*flawedDeployment, string) error { return nil }}},
	"holds it cannot measure": {"rack/honesty", defect{samples: func(s []results.Sample) []results.Sample {
		return slices.DeleteFunc(s, func(s results.Sample) bool { return strings.HasPrefix(s.Metric, "job_hold") })
	}}},
	"real time that is not":             {"rack/honesty", defect{capabilities: func(c *testbed.Capabilities) { c.Virtual = false }}},
	"simulated figures called measured": {"rack/honesty", defect{capabilities: func(c *testbed.Capabilities) { c.Kind = results.Measured }}},
	"cancellation lost in sleep": {"rack/cancellation/in_sleep", defect{sleep: func(d *flawedDeployment, ctx context.Context, t time.Duration) error {
		return d.Deployment.Sleep(context.WithoutCancel(ctx), t)
	}}},
	"cancellation lost in deploy": {"rack/cancellation/before_deploy", defect{deploy: func(b *flawed, ctx context.Context, s testbed.Setup) (testbed.Deployment, error) {
		return b.Testbed.Deploy(context.WithoutCancel(ctx), s)
	}}},
	"cancellation that prevents closing": {"rack/cancellation/in_sleep", defect{close: func(d *flawedDeployment, ctx context.Context) error {
		return errors.Join(ctx.Err(), d.Deployment.Close(ctx))
	}}},
	"oversleeping that does not": {"rack", defect{sleep: func(d *flawedDeployment, ctx context.Context, t time.Duration) error {
		return d.Deployment.Sleep(ctx, t-time.Millisecond)
	}}},
	"two deployments at a time": {"rack/lifecycle/two_at_a_time", defect{deploy: func(b *flawed, ctx context.Context, s testbed.Setup) (testbed.Deployment, error) {
		return another(ctx, b.Inventory(), s)
	}}},
	"refusal without its reason": {"rack/lifecycle/two_at_a_time", defect{deploy: func(b *flawed, ctx context.Context, s testbed.Setup) (testbed.Deployment, error) {
		d, err := b.Testbed.Deploy(ctx, s)
		if err != nil && ctx.Err() == nil {
			err = errors.New(err.Error())
		}
		return d, err
	}}},
	"leftovers of a deployment that failed": {"rack/lifecycle/unknown_host", defect{deploy: func(b *flawed, ctx context.Context, s testbed.Setup) (testbed.Deployment, error) {
		if b.stuck {
			return nil, testbed.ErrBusy
		}
		d, err := b.Testbed.Deploy(ctx, s)
		b.stuck = err != nil && ctx.Err() == nil && !errors.Is(err, testbed.ErrBusy)
		return d, err
	}}},
	"closing that fails the second time": {"rack/lifecycle", defect{close: func(d *flawedDeployment, ctx context.Context) error {
		d.closed++
		return errors.Join(d.Deployment.Close(ctx), map[bool]error{true: errors.New("closed before")}[d.closed > 1])
	}}},
	"a testbed that closes once": {"closing", defect{closeTestbed: func(b *flawed, ctx context.Context) error {
		b.closed++
		return errors.Join(b.Testbed.Close(ctx), map[bool]error{true: errors.New("closed before")}[b.closed > 1])
	}}},
	"jobs it does not know": {"rack/lifecycle/unknown_job", defect{start: func(d *flawedDeployment, ctx context.Context, job string) error {
		if job == "Z" {
			return nil
		}
		return d.Deployment.Start(ctx, job)
	}}},
	"a stop that hangs": {"rack/lifecycle", defect{stop: func(*flawedDeployment, context.Context, string) error {
		select {}
	}}},
	"memory that never changes hands": {"rack/reallocation/to_and_fro", defect{reallocate: func(*flawedDeployment, context.Context, map[string]placement.Grant) error {
		return nil
	}}},
	"memory granted twice": {"rack/reallocation/refused", defect{reallocate: func(d *flawedDeployment, ctx context.Context, grants map[string]placement.Grant) error {
		if err := d.Deployment.Reallocate(ctx, grants); !errors.Is(err, placement.ErrMemory) {
			return err
		}
		return nil
	}}},
	"jobs that stay at a halt": {"rack/reallocation/to_and_fro", defect{reallocate: func(d *flawedDeployment, ctx context.Context, grants map[string]placement.Grant) error {
		none := map[string]placement.Grant{}
		for job := range grants {
			none[job] = placement.Grant{}
		}
		return d.Deployment.Reallocate(ctx, none)
	}}},
	"jobs that never end": {"rack/sums", defect{done: func(*flawedDeployment, string) <-chan struct{} { return nil }}},
	"a model that stands still": {"rack/honesty", defect{stalls: func(d *flawedDeployment) []testbed.Stall {
		return []testbed.Stall{{End: d.Now(), Where: "this machine", What: "late", Late: d.Now()}}
	}}},
	"counters that shrink": {"two_racks/accounting", defect{samples: func(s []results.Sample) []results.Sample {
		for i := range s {
			if s[i].Metric == "worker_tx_bytes" {
				s[i].Value = -s[i].Value
			}
		}
		return s
	}}},
	"packets that vanish": {"two_racks/accounting", defect{samples: func(s []results.Sample) []results.Sample {
		for i := range s {
			if s[i].Metric == "nic_rx_packets" {
				s[i].Value *= 0.99
			}
		}
		return s
	}}},
	"a link without counters": {"two_racks/accounting", defect{samples: func(s []results.Sample) []results.Sample {
		return slices.DeleteFunc(s, func(s results.Sample) bool { return s.Of == "tor1->spine1" })
	}}},
	"gradients that vanish in a switch": {"two_racks/accounting/one_job", defect{samples: func(s []results.Sample) []results.Sample {
		for i := range s {
			if s[i].Metric == "job_in_packets" {
				s[i].Value *= 0.99
			}
		}
		return s
	}}},
	"memory without end": {"rack/competition", defect{samples: func(s []results.Sample) []results.Sample {
		for i := range s {
			if s[i].Metric == "job_denied_packets" {
				s[i].Value = 0
			}
		}
		return s
	}}},
	"a clock that goes back": {"rack/time", defect{now: func(t time.Duration) time.Duration { return time.Second - t/2 }}},
	"samples of another time": {"rack/time", defect{samples: func(s []results.Sample) []results.Sample {
		for i := range s {
			s[i].T += 60
		}
		return s
	}}},
	"chance": {"rack/time", defect{samples: func(s []results.Sample) []results.Sample {
		s[len(s)-1].Value += float64(time.Now().UnixNano() % 1e6)
		return s
	}}},
}

const driverEnv = "TESTBEDTEST_DRIVER"

// TestDriver runs the suite against the driver that the environment names: the
// sound one, or one with a defect.
func TestDriver(t *testing.T) {
	name, ok := os.LookupEnv(driverEnv)
	if !ok {
		name = "sound"
	}
	def, ok := broken[name]
	if !ok && name != "sound" {
		t.Fatalf("no driver %q", name)
	}
	patience := time.Minute // the model follows packets before a call returns: 20 s with the race detector
	if name != "sound" {
		patience = 3 * time.Second
	}
	testbedtest.Run(t, testbedtest.Config{
		Patience: patience,
		Open: func(_ context.Context, inv *inventory.Inventory) (testbed.Testbed, error) {
			tb, err := sim.Open(inv, sim.Options{Seed: 1})
			return &flawed{Testbed: tb, defect: def.defect}, err
		},
	})
}

// TestSuiteSeesDefects runs the suite in processes of its own against one broken
// driver after another; each run must fail where the defect is.
func TestSuiteSeesDefects(t *testing.T) {
	for name, def := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			// The part that must see it is enough, if it is not the whole.
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDriver$/^"+strings.ReplaceAll(def.seen, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), driverEnv+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL: TestDriver/"+def.seen) {
				t.Errorf("the suite passed it (%v)\n%s", err, out)
			}
		})
	}
}

// flawed wraps the model. Without a defect it is a driver that claims everything,
// and makes up what the model does not carry, so that there is something to break.
type flawed struct {
	testbed.Testbed
	defect
	stuck  bool
	closed int
}

func (b *flawed) Capabilities() testbed.Capabilities {
	c := b.Testbed.Capabilities()
	c.Sums, c.Impairments, c.Calibrates = true, true, true
	if b.capabilities != nil {
		b.capabilities(&c)
	}
	return c
}

func (b *flawed) Deploy(ctx context.Context, s testbed.Setup) (testbed.Deployment, error) {
	deploy := b.Testbed.Deploy
	if b.deploy != nil {
		deploy = func(ctx context.Context, s testbed.Setup) (testbed.Deployment, error) {
			return b.defect.deploy(b, ctx, s)
		}
	}
	d, err := deploy(ctx, s)
	if err != nil {
		return nil, err
	}
	return &flawedDeployment{Deployment: d, bed: b, lanes: int64(s.Settings.Lanes)}, nil
}

func (b *flawed) Close(ctx context.Context) error {
	if b.closeTestbed != nil {
		return b.closeTestbed(b, ctx)
	}
	return b.Testbed.Close(ctx)
}

// another deploys on a testbed of its own.
func another(ctx context.Context, inv *inventory.Inventory, s testbed.Setup) (testbed.Deployment, error) {
	tb, err := sim.Open(inv, sim.Options{})
	if err != nil {
		return nil, err
	}
	return tb.Deploy(ctx, s)
}

type flawedDeployment struct {
	testbed.Deployment
	bed    *flawed
	lanes  int64
	closed int

	mu      sync.Mutex
	damaged bool
}

func (d *flawedDeployment) Start(ctx context.Context, job string) error {
	if d.bed.start != nil {
		return d.bed.start(d, ctx, job)
	}
	return d.Deployment.Start(ctx, job)
}

func (d *flawedDeployment) Reallocate(ctx context.Context, grants map[string]placement.Grant) error {
	if d.bed.reallocate != nil {
		return d.bed.reallocate(d, ctx, grants)
	}
	return d.Deployment.Reallocate(ctx, grants)
}

func (d *flawedDeployment) Stop(ctx context.Context, job string) error {
	if d.bed.stop != nil {
		return d.bed.stop(d, ctx, job)
	}
	return d.Deployment.Stop(ctx, job)
}

func (d *flawedDeployment) Done(job string) <-chan struct{} {
	if d.bed.done != nil {
		return d.bed.done(d, job)
	}
	return d.Deployment.Done(job)
}

func (d *flawedDeployment) Summary(job string) (results.JobSummary, error) {
	s, err := d.Deployment.Summary(job)
	if !s.Local {
		s.SumsChecked = max(1, s.Packets) * d.lanes
	}
	d.mu.Lock()
	if d.damaged {
		s.Resends = 1
	}
	d.mu.Unlock()
	if d.bed.summary != nil {
		d.bed.summary(&s)
	}
	return s, err
}

func (d *flawedDeployment) Sample(ctx context.Context) ([]results.Sample, error) {
	s, err := d.Deployment.Sample(ctx)
	if d.bed.samples != nil {
		s = d.bed.samples(s)
	}
	return s, err
}

func (d *flawedDeployment) SetLink(_ context.Context, link string, s testbed.LinkState) error {
	if d.bed.setLink != nil {
		return d.bed.setLink(d, link)
	}
	if !slices.ContainsFunc(d.bed.Inventory().Topology().Links, func(l inventory.DirectedLink) bool { return l.Name == link }) {
		return fmt.Errorf("no link %q", link)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.damaged = d.damaged || s.Loss > 0
	return nil
}

func (d *flawedDeployment) Stalls(ctx context.Context) ([]testbed.Stall, error) {
	if d.bed.stalls != nil {
		return d.bed.stalls(d), nil
	}
	return d.Deployment.Stalls(ctx)
}

func (d *flawedDeployment) Sleep(ctx context.Context, t time.Duration, until ...<-chan struct{}) error {
	if d.bed.sleep != nil {
		return d.bed.sleep(d, ctx, t)
	}
	return d.Deployment.Sleep(ctx, t, until...)
}

func (d *flawedDeployment) Now() time.Duration {
	if d.bed.now != nil {
		return d.bed.now(d.Deployment.Now())
	}
	return d.Deployment.Now()
}

func (d *flawedDeployment) Close(ctx context.Context) error {
	if d.bed.close != nil {
		return d.bed.close(d, ctx)
	}
	return d.Deployment.Close(ctx)
}
