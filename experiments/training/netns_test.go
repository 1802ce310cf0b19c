package training

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(netnstest.Parts{"agent": agent.Main, "mina-controller": controller.Main})
	os.Exit(m.Run())
}

// controllerArgv is how this program becomes a controller.
func controllerArgv() []string { return []string{"/proc/self/exe", "mina-controller"} }

// bed is five hosts on one switch that aggregates for one job at a time.
type bed struct {
	*remote.Testbed
	t testing.TB

	mu    sync.Mutex
	ranks map[string]*hosts.Process // by host, the latest
}

func newBed(t testing.TB) *bed { return newBedOf(t, true) }

// newBedOf is one whose switch a controller is to manage, or that just forwards.
func newBedOf(t testing.TB, unmanaged bool) *bed {
	t.Helper()
	testbedtest.Require(t, "netns", noNamespaces)
	inv, err := clos.Spec{
		Down: []int{5}, Up: []int{1}, Rate: 200e6, Delay: 20 * time.Microsecond,
		Switch: "kind = \"soft\"\naggregators = 1024\nsharp = {trees = 4, jobs = 1}",
	}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	f, err := netns.Up(t.Context(), inv, netns.Options{Queue: "drr", Seed: 1, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	tb, err := remote.Open(t.Context(), remote.Options{
		Fabric: f, Exe: "/proc/self/exe", Unmanaged: unmanaged, Patience: 10 * time.Second, // of programs that the race detector makes slow
		HostMAC:      func(host, device string) (net.HardwareAddr, error) { return f.HostMAC(host, device), nil },
		Capabilities: testbed.Capabilities{Sums: true, Kind: results.Measured, Switch: "soft"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &bed{Testbed: tb, t: t, ranks: map[string]*hosts.Process{}}
}

// Launch remembers what runs where, so that it can be killed.
func (b *bed) Launch(ctx context.Context, host, verb string, config any) (*hosts.Process, error) {
	p, err := b.Testbed.Launch(ctx, host, verb, config)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ranks[host] = p
	return p, err
}

// kill kills the rank that runs on a host.
func (b *bed) kill(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ranks[host].Kill(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

// stop stops the rank that runs on a host.
func (b *bed) stop(host string) {
	client, err := b.Client(host)
	if err == nil {
		_, err = client.Run(b.t.Context(), []string{"sh", "-c", "kill -STOP $(grep -la 'rank [A-Z]/' /proc/[1-9]*/cmdline | cut -d/ -f3)"}, nil)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// vanish kills the process that is a host, with all that runs there.
func (b *bed) vanish(host string) {
	h, _ := b.Inventory().Host(host)
	client, err := reach.Dial(b.t.Context(), reach.To(b.Inventory(), *h), reach.Options{})
	if err != nil {
		b.t.Error(err)
		return
	}
	defer client.Close()
	out, err := client.Run(b.t.Context(), []string{"readlink", "/proc/self/ns/net"}, nil)
	if err != nil {
		b.t.Error(err)
		return
	}
	// It is the first process of a namespace of its own, and its name is known out here.
	all, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range all {
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		if to, err := os.Readlink(link); err == nil && to == strings.TrimSpace(string(out.Stdout)) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				b.t.Error(err)
			}
		}
	}
}

// controller starts one; it ends with the test.
func (b *bed) controller(mode string) *Process {
	b.t.Helper()
	at, err := b.Reach("h1")
	if err != nil {
		b.t.Fatal(err)
	}
	s := controller.Setup{
		Inventory: b.Inventory(), MACs: map[netip.Addr]string{}, Listen: netip.AddrPortFrom(at, 0).String(),
		Place: "first-fit", Lease: 10 * time.Second, // ranks of tests take a second to end with the race detector
	}
	if mode == "shared" {
		s.Share = &controller.Share{Listen: s.Listen, Cost: tree.Cost{Latency: 1e-3, Bandwidth: 10e6, Ratio: 2}, Silence: 20 * time.Second}
	}
	for _, h := range b.Inventory().Hosts {
		mac, err := b.MAC(b.t.Context(), h.Name, h.NICs[0].Device)
		if err != nil {
			b.t.Fatal(err)
		}
		s.MACs[h.NICs[0].Address.Addr()] = mac.String()
	}
	p, err := Start(b.t.Context(), b, controllerArgv(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { p.Close() }) // again, and with an error if it was killed
	return p
}

// config is what a run needs; nothing in it is slow.
func (b *bed) config(mode string, c Controller) Config {
	return Config{Hosts: b, Controller: c, Agent: agent.Config{
		Sharing: mode, Run: uint64(time.Now().UnixNano()), Profiled: true, Epoch: uint16(time.Now().UnixMilli()) | 1, Seed: 7, Lanes: 240,
		RTO: 20 * time.Millisecond, LineRate: 200e6, Interval: 50 * time.Millisecond, Timeout: 10 * time.Second,
	}}
}

// steps are jobs of so many hosts each that train for so many steps, of a few ms.
func steps(n int64, hosts ...int) (jobs []Job) {
	for i, h := range hosts {
		jobs = append(jobs, Job{
			Name: string(rune('A' + i)), ID: uint16(i + 1), Hosts: h, Steps: n, Speed: 2,
			Pattern: agent.Pattern{Step: 16e-3, Ops: []agent.Op{{Start: 4e-3, Bytes: 30_000}, {Start: 8e-3, Bytes: 90_000}, {Start: 12e-3, Bytes: 4}}},
		})
	}
	return jobs
}

// log collects samples.
type log struct {
	mu  sync.Mutex
	all []results.Sample
}

func (l *log) add(s ...results.Sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s...)
}

// last is the latest value of a metric.
func (l *log) last(metric, of string) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slices.Backward(l.all) {
		if s.Metric == metric && s.Of == of {
			return s.Value
		}
	}
	return -1
}

// exact checks what must be so of every job that has ended.
func exact(t *testing.T, o *Outcome, steps int64) {
	t.Helper()
	if o.End == 0 || o.End < o.Start || o.JCT < float64(steps)*8e-3 || len(o.Ranks) != len(o.On) || len(o.On) != o.Hosts {
		t.Errorf("job %s: began at %v, ended at %v, %d reports from %v, JCT %v s", o.Name, o.Start, o.End, len(o.Ranks), o.On, o.JCT)
	}
	first := o.Training()
	for rank := range o.Ranks {
		s := o.Ranks[rank].Training
		if s == nil || s.Steps != steps || s.Ops != 3*steps || s.INA != first.INA || s.Refused != first.Refused {
			t.Errorf("job %s: rank %d: %+v, rank 0: %+v", o.Name, rank, s, first)
		}
	}
	if checked, wrong := o.Sums(); wrong != 0 || checked < steps*30_001*int64(len(o.On)) {
		t.Errorf("job %s: %d of %d sums are wrong", o.Name, wrong, checked)
	}
}

// TestRun is jobs that share a switch in each of the ways that they can: a third one has to
// wait for room. Sums are exact, ranks agree on who had INA, and the switch has counted the
// same as the ranks.
func TestRun(t *testing.T) {
	b := newBed(t)
	n := int64(40)
	if !proof.Wanted() {
		n = 10
	}
	for _, mode := range []string{"none", "greedy", "shared"} {
		t.Run(mode, func(t *testing.T) {
			c := b.controller(mode)
			began := time.Now()
			now := func() time.Duration { return time.Since(began) }
			counters, err := b.Counters(t.Context(), now, map[int]string{1: "A", 2: "B", 3: "C"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Health(t.Context()); err != nil {
				t.Fatal(err)
			}
			var seen log
			cfg := b.config(mode, c)
			cfg.Now = now
			cfg.Sample = func(ctx context.Context, reports []results.Sample) error {
				seen.add(reports...)
				read, err := counters.Sample(ctx)
				seen.add(read...)
				return err
			}
			out, err := Run(t.Context(), cfg, steps(n, 2, 2, 2))
			if err != nil || len(out) != 3 {
				t.Fatalf("%d jobs: %v", len(out), err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if health, err := b.Health(t.Context()); err != nil {
				t.Error(err)
			} else if slices.ContainsFunc(health, func(x results.Trouble) bool { return strings.Contains(x.What, "gone") }) {
				t.Errorf("health %+v", health)
			}
			end := now().Seconds()
			for i := range out {
				o := &out[i]
				exact(t, o, n)
				s := o.Training()
				t.Logf("job %s on %v from %v to %v: JCT %.3f s; of %d operations %d had INA and %d were refused it", o.Name, o.On, o.Start, o.End, o.JCT, s.Ops, s.INA, s.Refused)
				if mode == "none" && s.INA+s.Refused != 0 {
					t.Errorf("job %s never asks: %+v", o.Name, s)
				}
				for what, want := range map[string]int64{"job_locks_packets": s.INA, "job_refused_packets": s.Refused} {
					if got := seen.last(what, o.Name+"@leaf1"); int64(got) != want {
						t.Errorf("job %s: the switch says %s = %v, its ranks %d", o.Name, what, got, want)
					}
				}
				for rank := range o.On {
					of := fmt.Sprintf("%s/%d", o.Name, rank)
					for what, want := range map[string]int64{"worker_iterations": n, "worker_ops": 3 * n, "worker_ops_ina": s.INA, "worker_ops_refused": s.Refused} {
						if got := seen.last(what, of); int64(got) != want {
							t.Errorf("%s of %s is %v in the end, want %d", what, of, got, want)
						}
					}
				}
			}
			if mode != "none" && out[0].Training().INA == 0 {
				t.Errorf("nobody had INA")
			}
			if c := slices.IndexFunc(out, func(o Outcome) bool { return o.Name == "C" }); out[c].Start < min(out[0].End, out[1].End) {
				t.Errorf("job C began at %v, when there was no room", out[c].Start)
			}
			took := int64(0)
			for _, s := range seen.all {
				if s.T < 0 || s.T > end {
					t.Fatalf("%+v is not of this run, which took %v s", s, end)
				}
				if s.Metric == "worker_step_seconds" {
					took++
				}
			}
			if took != 3*2*n {
				t.Errorf("%d steps were told one by one, want %d", took, 3*2*n)
			}
			if got := seen.last("nic_tx_bytes", "h1->leaf1"); !(got > 0) {
				t.Errorf("h1 has sent %v bytes", got)
			}
		})
	}
}

// within fails a test that takes longer than it may: everything ends in bounded time.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took > limit {
		t.Errorf("took %v, which is longer than %v", took, limit)
	}
}

// inquiry notes whether who asks first why a process has failed can still be answered.
type inquiry struct {
	Hosts
	once sync.Once
	over error
}

func (q *inquiry) Why(ctx context.Context, err error) error {
	q.once.Do(func() { q.over = ctx.Err() })
	return q.Hosts.Why(ctx, err)
}

// TestLosses loses one part of a testbed after the other in the midst of two jobs. A third
// one has ended before: what is known of it is kept. The error says who was lost, and the
// testbed is as good as before.
func TestLosses(t *testing.T) {
	b := newBed(t)
	interruption := errors.New("somebody has pressed a key")
	for _, c := range []struct {
		name string
		mode string
		lose func(c *Process, cancel context.CancelCauseFunc)
		want []string
		is   error
	}{
		{"rank", "greedy", func(*Process, context.CancelCauseFunc) { b.kill("h2") }, []string{"job A: rank A/1 on host h2: ", "killed"}, nil},
		{"rank that shares", "shared", func(*Process, context.CancelCauseFunc) { b.kill("h3") }, []string{"job B: rank B/0 on host h3: ", "killed"}, nil},
		{"rank without INA", "none", func(*Process, context.CancelCauseFunc) { b.kill("h1") }, []string{"job A: rank A/0 on host h1: ", "killed"}, nil},
		{"rank that is stopped", "none", func(*Process, context.CancelCauseFunc) { b.stop("h2") }, []string{"job A: rank A/1 on host h2: stalled: no report for ", "is stopped"}, nil},
		{"controller", "shared", func(c *Process, _ context.CancelCauseFunc) { _ = c.talk.Process().Kill(context.Background()) }, []string{"the MINA controller has ended: ", "killed"}, nil},
		{"interruption", "greedy", func(_ *Process, cancel context.CancelCauseFunc) { cancel(interruption) }, nil, interruption},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !proof.Wanted() && strings.HasPrefix(c.name, "rank ") {
				t.Skip("short: another rank is lost all the same")
			}
			control := b.controller(c.mode)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			jobs := steps(1_000_000, 2, 2)
			short := steps(2, 1)[0] // alone on h5
			short.Name, short.ID = "S", 3
			jobs = append(jobs, short)

			cfg := b.config(c.mode, control)
			cfg.Agent.Timeout = 20 * time.Second // twice the patience: who does not report is asked about before others give it up
			asked := &inquiry{Hosts: cfg.Hosts}
			cfg.Hosts = asked
			var seen log
			var lost time.Time
			cfg.Sample = func(_ context.Context, reports []results.Sample) error {
				seen.add(reports...)
				ended := func(e controller.Event) bool { return e.Event == "ended" && e.Job == short.ID } // as it was told
				if lost.IsZero() && slices.ContainsFunc(control.Events(), ended) && seen.last("worker_iterations", "A/0") > 5 && seen.last("worker_iterations", "B/0") > 5 {
					lost = time.Now()
					c.lose(control, cancel)
				}
				return nil
			}
			out, err := Run(ctx, cfg, jobs)
			if err == nil {
				t.Fatal("it was lost, and nobody has said so")
			}
			if took := time.Since(lost); lost.IsZero() || took > 2*time.Minute {
				t.Errorf("it took %v to end", took)
			}
			t.Logf("after %v: %v", time.Since(lost), err)
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q", err, want)
				}
			}
			if c.is != nil && !errors.Is(err, c.is) || strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("error %q, want %v and no more", err, c.is)
			}
			if asked.over != nil && c.is == nil {
				t.Errorf("what befell the rank was asked with a context that was over: %v", asked.over)
			}
			if len(out) != 3 {
				t.Fatalf("%d outcomes", len(out))
			}
			for i := range out {
				o := &out[i]
				if s := o.Training(); (o.End > 0) != (o.Name == "S") || s.Steps < 2 {
					t.Errorf("job %s ended at %v after %d steps", o.Name, o.End, s.Steps)
				}
			}
			within(t, time.Minute, func() { _ = control.Close() })

			next := b.controller(c.mode) // everything is as before
			again, err := Run(t.Context(), b.config(c.mode, next), steps(5, 3, 2))
			if err != nil || len(again) != 2 {
				t.Fatalf("afterwards: %d jobs, %v", len(again), err)
			}
			for i := range again {
				exact(t, &again[i], 5)
			}
			if err := next.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHostVanishes loses a whole host: its connection ends, and so do the jobs.
func TestHostVanishes(t *testing.T) {
	proof.Only(t, "another rank that is lost")
	b := newBed(t)
	control := b.controller("greedy")
	cfg := b.config("greedy", control)
	var seen log
	var lost time.Time
	counters, err := b.Counters(t.Context(), func() time.Duration { return 0 }, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sample = func(ctx context.Context, reports []results.Sample) error {
		seen.add(reports...)
		if lost.IsZero() && seen.last("worker_iterations", "A/1") > 5 {
			lost = time.Now()
			b.vanish("h2")
		}
		_, err := counters.Sample(ctx)
		return err
	}
	out, err := Run(t.Context(), cfg, steps(1_000_000, 3))
	if err == nil || !strings.HasPrefix(err.Error(), "job A: rank A/1 on host h2") {
		t.Errorf("error %v", err)
	}
	t.Logf("after %v: %v", time.Since(lost), err)
	health, err := b.Health(t.Context())
	if err != nil || !slices.ContainsFunc(health, func(x results.Trouble) bool { return x.Where == "host h2" && x.Fatal }) {
		t.Errorf("health %+v, %v", health, err)
	}
	if took := time.Since(lost); lost.IsZero() || took > 2*time.Minute {
		t.Errorf("it took %v to end", took)
	}
	if len(out) != 1 || out[0].End != 0 {
		t.Errorf("%+v", out)
	}
}

// TestSampleFails: who cannot keep samples ends the run.
func TestSampleFails(t *testing.T) {
	proof.Only(t, "another rank that is lost")
	b := newBed(t)
	full := errors.New("the disk is full")
	cfg := b.config("none", b.controller("none"))
	calls := 0
	cfg.Sample = func(_ context.Context, reports []results.Sample) error {
		if calls++; calls > 3 {
			return full
		}
		return nil
	}
	out, err := Run(t.Context(), cfg, steps(1_000_000, 2))
	if !errors.Is(err, full) || len(out) != 1 || out[0].End != 0 {
		t.Errorf("%v, %+v", err, out)
	}
}

// TestNoRoom: a controller that has fewer hosts free than a job wants says so in a way that
// passes, and other refusals in one that does not.
func TestNoRoom(t *testing.T) {
	b := newBed(t)
	c := b.controller("greedy")
	jobs := steps(1, 3, 3, 6)
	if on, err := c.Place(t.Context(), jobs[0]); err != nil || len(on) != 3 {
		t.Fatalf("%v, %v", on, err)
	}
	if on, err := c.Place(t.Context(), jobs[1]); !errors.Is(err, ErrNoRoom) {
		t.Errorf("with two hosts free: %v, %v", on, err)
	}
	if on, err := c.Place(t.Context(), jobs[2]); err == nil || errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "6 hosts are asked for, 5 exist") {
		t.Errorf("with five hosts in all: %v, %v", on, err)
	}
	if err := c.End(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if on, err := c.Place(t.Context(), jobs[1]); err != nil {
		t.Errorf("with all hosts free: %v, %v", on, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	within(t, time.Minute, func() {
		if on, err := c.Place(t.Context(), jobs[0]); err == nil || !strings.Contains(err.Error(), "the MINA controller has ended") {
			t.Errorf("after its end: %v, %v", on, err)
		}
		if err := c.End(t.Context(), 2); err != nil { // with all its jobs
			t.Errorf("job 2 has not ended: %v", err)
		}
	})
}
