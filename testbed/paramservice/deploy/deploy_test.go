package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/paramservice/background"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/deploy"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(netnstest.Parts{"node": node.Main, "pmaster": pmaster.Main, "background": background.Main})
	os.Exit(m.Run())
}

// bed is six hosts on one switch.
type bed struct {
	*remote.Testbed
	t testing.TB

	mu   sync.Mutex
	last map[string]*hosts.Process // by host
}

func newBed(t testing.TB) *bed {
	t.Helper()
	testbedtest.Require(t, "netns", noNamespaces)
	inv, err := clos.Spec{Down: []int{6}, Up: []int{1}, Rate: 200e6, Delay: 20 * time.Microsecond, Switch: `kind = "soft"`}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	f, err := netns.Up(t.Context(), inv, netns.Options{Queue: "drr-flow", Seed: 1, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	tb, err := remote.Open(t.Context(), remote.Options{
		Fabric: f, Exe: "/proc/self/exe", Patience: 5 * time.Second,
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
	return &bed{Testbed: tb, t: t, last: map[string]*hosts.Process{}}
}

// Launch remembers what runs where, so that it can be killed.
func (b *bed) Launch(ctx context.Context, host, verb string, config any) (*hosts.Process, error) {
	p, err := b.Testbed.Launch(ctx, host, verb, config)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[host] = p
	return p, err
}

// kill kills what was launched on a host last.
func (b *bed) kill(host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.last[host].Kill(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

// config has workers on h1 to h4 and Aggregators on h5 and h6.
func (b *bed) config(static bool) deploy.Config {
	began := time.Now()
	cfg := deploy.Config{
		Hosts: b, Verb: "node", Workers: []string{"h1", "h2", "h3", "h4"}, Aggregators: []string{"h5", "h6"},
		Report: 100 * time.Millisecond, Now: func() time.Duration { return time.Since(began) },
		Setup: pmaster.Setup{State: filepath.Join(b.t.TempDir(), "epoch"), Profile: 4, Lease: 10 * time.Second, Times: migrate.Times{Resend: 300 * time.Millisecond, Attempts: 6}},
	}
	if !static {
		cfg.Master = []string{"/proc/self/exe", "pmaster"}
	}
	return cfg
}

func newJob(name string, workers, iterations int, sizes ...int) deploy.Job {
	j := deploy.Job{Job: control.Job{Name: name, Workers: workers, Servers: 2, Rate: 0.01}, Iterations: iterations, Seed: 5}
	for _, n := range sizes {
		j.Tensors = append(j.Tensors, control.Tensor{Elements: n, Work: 100 * time.Microsecond})
		j.Backward = append(j.Backward, 2*time.Millisecond)
	}
	return j
}

// Jobs come, train and leave, on the service and on servers of their own. Their models are those
// that nothing went wrong with, although tensors move all the time.
func TestRun(t *testing.T) {
	b := newBed(t)
	for name, static := range map[string]bool{"shared": false, "static": true} {
		t.Run(name, func(t *testing.T) {
			first, second := newJob("first", 2, 60, 3000, 10, 500, 500), newJob("second", 1, 20, 2000, 100)
			first.Migrate, second.Arrive = 15, 100*time.Millisecond
			jobs := []deploy.Job{first, second}
			cfg := b.config(static)
			samples := 0
			cfg.Interval, cfg.Sample = 50*time.Millisecond, func(context.Context) error { samples++; return nil }
			out, err := deploy.Run(t.Context(), cfg, jobs)
			if err != nil {
				t.Fatal(err)
			}
			if samples == 0 || len(out.Jobs) != 2 {
				t.Fatalf("%d samples, %d jobs", samples, len(out.Jobs))
			}
			for i, o := range out.Jobs {
				j, want := jobs[i], deploy.Reference(jobs[i])
				if len(o.On) != j.Workers || o.Start < out.Begin || o.End <= o.Start || o.End > out.End {
					t.Errorf("%s: on %v from %v to %v, of %v to %v", j.Name, o.On, o.Start, o.End, out.Begin, out.End)
				}
				for rank, its := range o.Workers {
					if o.Digests[rank] != want {
						t.Errorf("%s, worker %d: models %s, not %s", j.Name, rank, o.Digests[rank], want)
					}
					if len(its) != j.Iterations {
						t.Fatalf("%s, worker %d: %d iterations", j.Name, rank, len(its))
					}
					for k, it := range its[1:] {
						if took := it.End - its[k].End; it.Spent <= 0 || max(took-it.Spent, it.Spent-took) > time.Microsecond {
							t.Fatalf("%s, worker %d, iteration %d: %v after the one before, took %v", j.Name, rank, k+1, took, it.Spent)
						}
					}
				}
				if moves := i == 0 && !static; (len(o.Told) > 0) != moves || (o.Profiled > 0) == static || moves && o.Moved == 0 {
					t.Errorf("%s: profiled at %v, told to move %d times, %d tensors did", j.Name, o.Profiled, len(o.Told), o.Moved)
				}
			}
			if static && len(out.Aggregators) != 4 || len(out.Aggregators) < 2 {
				t.Errorf("%d Aggregators", len(out.Aggregators))
			}
			var busy, cpu time.Duration
			for _, a := range out.Aggregators {
				busy, cpu = busy+a.Stats.Busy, cpu+a.Stats.CPU
				if !slices.Contains(cfg.Aggregators, a.Host) || a.To <= a.From {
					t.Errorf("Aggregator %d on %s from %v to %v", a.ID, a.Host, a.From, a.To)
				}
			}
			if cpu <= 0 {
				t.Errorf("%v of CPU time", cpu)
			}
			if want := (60*4 + 20*2) * 100 * time.Microsecond; busy != want {
				t.Errorf("%v of aggregation, not %v", busy, want)
			}
		})
	}
}

// Background flows leave the NIC of the server with most bytes, end with it, and change no sum. Iterations that are to take
// longer do.
func TestBackground(t *testing.T) {
	proof.Only(t, "a job that trains for seconds")
	b := newBed(t)
	j := newJob("a", 2, 200, 3000, 10, 500, 500) // in turn: 3,500 values, and 510
	j.Slower = slices.Repeat([]float64{2}, 100)
	cfg := b.config(true)
	cfg.Background = &deploy.Background{Verb: "background", Flows: 4, To: "h4"}
	out, err := deploy.Run(t.Context(), cfg, []deploy.Job{j})
	if err != nil {
		t.Fatal(err)
	}
	if d := out.Aggregators[0].Disturbed; d <= out.Begin || d >= out.End || out.Aggregators[1].Disturbed != 0 {
		t.Errorf("flows from %v on, and on the other from %v, of %v to %v", d, out.Aggregators[1].Disturbed, out.Begin, out.End)
	}
	for rank, its := range out.Jobs[0].Workers {
		if got, want := out.Jobs[0].Digests[rank], deploy.Reference(j); got != want {
			t.Errorf("worker %d: models %s, not %s", rank, got, want)
		}
		for k, it := range its {
			if least := 8 * time.Millisecond; k < 100 && it.Spent < 2*least || it.Spent < least {
				t.Fatalf("worker %d, iteration %d computes for less than it is to: %v", rank, k, it.Spent)
			}
		}
	}
}

// A tensor that moves is copied when it has been got ready, not before.
func TestPacking(t *testing.T) {
	proof.Only(t, "a job whose tensors move")
	b := newBed(t)
	j := newJob("a", 2, 120, 3000, 10, 500, 500)
	j.Migrate = 30
	cfg := b.config(false)
	cfg.Packing = 20 * time.Millisecond
	out, err := deploy.Run(t.Context(), cfg, []deploy.Job{j})
	if err != nil {
		t.Fatal(err)
	}
	moves := 0
	for _, e := range out.Events {
		if e.Event != "migrated" {
			continue
		}
		if moves++; e.Seconds < cfg.Packing.Seconds() {
			t.Errorf("a tensor is moved within %v s: %+v", e.Seconds, e)
		}
	}
	if moves == 0 || len(out.Jobs[0].Told) == 0 {
		t.Errorf("told %d times, %d moves", len(out.Jobs[0].Told), moves)
	}
	for rank, got := range out.Jobs[0].Digests {
		if want := deploy.Reference(j); got != want {
			t.Errorf("worker %d: models %s, not %s", rank, got, want)
		}
	}
}

// What goes wrong ends everything, and is said with the node and its host.
func TestRunFails(t *testing.T) {
	proof.Only(t, "a service for each fault")
	b := newBed(t)
	for name, tt := range map[string]struct {
		static bool
		kill   string
		change func(*deploy.Config, []deploy.Job)
		is     error
		want   []string
	}{
		"an Aggregator is killed":  {kill: "h5", want: []string{"Aggregator ", "host h5"}},
		"a worker is killed":       {kill: "h2", want: []string{"worker a/1", "host h2"}},
		"a server is killed":       {static: true, kill: "h6", want: []string{"server 1 of job a", "host h6"}},
		"too many workers":         {change: func(_ *deploy.Config, j []deploy.Job) { j[0].Workers = 5 }, is: deploy.ErrHosts, want: []string{"job a", "5 workers", "4 of 4"}},
		"no such host":             {change: func(c *deploy.Config, _ []deploy.Job) { c.Workers[1] = "h9" }, want: []string{"worker a/1", "h9"}},
		"a job that cannot be":     {change: func(_ *deploy.Config, j []deploy.Job) { j[0].Tensors = nil }, want: []string{"pMaster", `job "a"`, "0 tensors"}},
		"a pMaster without a file": {change: func(c *deploy.Config, _ []deploy.Job) { c.Setup.State = "/nowhere/epoch" }, want: []string{"pMaster", "epoch"}},
		"a sample that fails": {change: func(c *deploy.Config, _ []deploy.Job) {
			c.Sample = func(context.Context) error { return errors.New("no counters") }
		}, want: []string{"no counters"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, jobs := b.config(tt.static), []deploy.Job{newJob("a", 2, 100_000, 1000, 1000)}
			cfg.Interval = 50 * time.Millisecond
			if tt.kill != "" {
				events := 0
				cfg.Sample = func(context.Context) error {
					if events++; events == 20 {
						b.kill(tt.kill)
					}
					return nil
				}
			}
			if tt.change != nil {
				tt.change(&cfg, jobs)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := deploy.Run(ctx, cfg, jobs)
			if err == nil || out == nil {
				t.Fatalf("%v, %v", out, err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\nsays nothing of %q", err, w)
				}
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("enough")
		cfg := b.config(false)
		cfg.Interval, cfg.Sample = 50*time.Millisecond, func(context.Context) error { cancel(stop); return nil }
		if _, err := deploy.Run(ctx, cfg, []deploy.Job{newJob("a", 2, 100_000, 1000)}); !errors.Is(err, stop) {
			t.Error(err)
		}
	})
}

// alone is hosts that are this machine, and on which nothing is started.
type alone struct{ deploy.Hosts }

func (alone) Reach(string) (netip.Addr, error) { return netip.MustParseAddr("127.0.0.1"), nil }

// local is hosts that are all this machine, on whose loopback nodes talk.
type local struct {
	deploy.Hosts
	inv *inventory.Inventory

	mu   sync.Mutex
	pids map[string]int // by host, of what was launched last
}

func (l *local) Inventory() *inventory.Inventory { return l.inv }

func (l *local) Launch(ctx context.Context, host, verb string, config any) (*hosts.Process, error) {
	cmd := exec.Command("/proc/self/exe", verb)
	p, err := hosts.Exec(context.WithoutCancel(ctx), host, cmd)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.pids[host] = cmd.Process.Pid
	l.mu.Unlock()
	return p, json.NewEncoder(p.Stdin).Encode(config)
}

func (l *local) Silence(_ context.Context, _ *hosts.Talk, job string, quiet time.Duration) error {
	if quiet <= 5*time.Second {
		return nil
	}
	return fmt.Errorf("job %q hears nothing", job)
}

func (l *local) Why(_ context.Context, err error) error { return err }

// A worker that stands still ends a run, and is named, although others wait for it, and there is no pMaster to miss it.
func TestStandsStill(t *testing.T) {
	if lo, err := netlink.LinkByName("lo"); noNamespaces == nil && err == nil {
		_ = netlink.LinkSetUp(lo) // it fails otherwise
	}
	was := deploy.SetEndTimeout(time.Second)
	defer deploy.SetEndTimeout(was)
	l := &local{inv: &inventory.Inventory{}, pids: map[string]int{}}
	for _, name := range []string{"h1", "h2", "h5", "h6"} {
		l.inv.Hosts = append(l.inv.Hosts, inventory.Host{Name: name, NICs: []inventory.NIC{{Address: netip.MustParsePrefix("127.0.0.1/8")}}})
	}
	began, samples := time.Now(), 0
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := deploy.Run(ctx, deploy.Config{
		Hosts: l, Verb: "node", Workers: []string{"h1", "h2"}, Aggregators: []string{"h5", "h6"}, Report: 100 * time.Millisecond,
		Now: func() time.Duration { return time.Since(began) }, Interval: 100 * time.Millisecond,
		Sample: func(context.Context) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			if pid := l.pids["h2"]; pid > 0 {
				if samples++; samples == 10 {
					return syscall.Kill(pid, syscall.SIGSTOP)
				}
			}
			return nil
		},
	}, []deploy.Job{newJob("a", 2, 1_000_000, 1000, 1000)})
	if want := `worker a/1 on host h2: job "a" hears nothing`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if len(out.Jobs) != 1 || out.Jobs[0].Start == 0 {
		t.Errorf("it never trained: %+v", out.Jobs)
	}
}

// What pMaster says and nobody understands ends the run, and not only when pMaster has ended.
func TestMasterSaysNonsense(t *testing.T) {
	began := time.Now()
	_, err := deploy.Run(t.Context(), deploy.Config{
		Hosts: alone{}, Workers: []string{"h1"}, Now: func() time.Duration { return time.Since(began) },
		Master: []string{"sh", "-c", `read -r setup; echo '{"event":"ready","address":"127.0.0.1:1"}'; echo who is this; exec sleep 600`},
	}, []deploy.Job{{Arrive: time.Hour}})
	if err == nil || err.Error() != `pMaster: not an event: "who is this"` || time.Since(began) > time.Minute {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// lateBed is one with a host that answers late, and one that does not.
type lateBed struct {
	*bed
	answers chan struct{}
}

func (b *lateBed) Launch(ctx context.Context, host, verb string, config any) (*hosts.Process, error) {
	switch host {
	case "h5":
		return nil, errors.New("no such host")
	case "h6":
		<-b.answers
	}
	return b.bed.Launch(context.WithoutCancel(ctx), host, verb, config)
}

// What a host starts when all is over is ended, and waited for.
func TestStartsTooLate(t *testing.T) {
	was := deploy.SetEndTimeout(200 * time.Millisecond)
	defer deploy.SetEndTimeout(was)
	b := &lateBed{newBed(t), make(chan struct{})}
	cfg := b.config(true)
	cfg.Hosts = b
	time.AfterFunc(time.Second, func() { close(b.answers) })
	done := make(chan error, 1)
	go func() {
		_, err := deploy.Run(t.Context(), cfg, []deploy.Job{newJob("A", 2, 3, 1000, 1000)})
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "no such host") {
			t.Errorf("%v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}
