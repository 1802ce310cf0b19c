package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/inabench/inabench/testbed/testbedtest"
)

// The test binary is the agent when told so, as inabench is under its hidden verb.
func TestMain(m *testing.M) {
	if os.Getenv("AGENT_TEST_MAIN") != "" {
		if err := Main(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// inNamespace runs the calling test again, in a user and network namespace of its
// own, and reports whether this is that second time.
func inNamespace(t testing.TB) bool {
	t.Helper()
	if os.Getenv("AGENT_TEST_NETNS") != "" {
		return true
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.timeout=15m", "-test.v"}
	if _, ok := t.(*testing.B); ok {
		args = []string{"-test.run=^$", "-test.bench=^" + t.Name() + "$", "-test.benchtime=1s"}
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "AGENT_TEST_NETNS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if cmd.Process == nil {
		testbedtest.Require(t, "netns", fmt.Errorf("user and network namespace: %w", err))
	}
	t.Logf("in a namespace:\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// process is an agent in a process and, when asked for, a network namespace of its own.
type process struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events chan Event
	err    chan error

	heard, before float64 // when it said something, of seen
}

func startProcess(t testing.TB, name string, newNet bool) *process {
	t.Helper()
	p := &process{t: t, name: name, events: make(chan Event, 1000), err: make(chan error, 1)}
	p.cmd = exec.CommandContext(t.Context(), "/proc/self/exe")
	p.cmd.Env = append(os.Environ(), "AGENT_TEST_MAIN=1", "GOTRACEBACK=crash")
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	if newNet {
		p.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.events)
		for in := bufio.NewScanner(out); in.Scan(); {
			var e Event
			if err := json.Unmarshal(in.Bytes(), &e); err != nil {
				t.Errorf("%s: event %q: %v", name, in.Text(), err)
				return
			}
			p.events <- e
		}
	}()
	t.Cleanup(func() {
		p.stdin.Close()
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

func (p *process) write(v any) {
	p.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.stdin.Write(append(b, '\n')); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// until returns the next event of that name; samples on the way are skipped.
func (p *process) until(name string) Event {
	p.t.Helper()
	timeout := time.After(2 * time.Minute)
	for others := 0; ; others++ {
		select {
		case e, ok := <-p.events:
			switch {
			case !ok:
				p.t.Fatalf("%s: ended before %q", p.name, name)
			case e.Event == name:
				return e
			case e.Event == "error":
				p.t.Fatalf("%s: %s", p.name, e.Error)
			case e.Event == "done":
				p.t.Fatalf("%s: done before %q: %+v", p.name, name, e.Stats)
			}
		case <-timeout:
			state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
			p.cmd.Process.Signal(syscall.SIGQUIT) // for the stacks of all its threads, on stderr
			time.Sleep(time.Second)
			p.t.Fatalf("%s: no %q after 2 minutes, and %d other events\n%s", p.name, name, others, state)
		}
	}
}

// rack is agents in namespaces of their own, their devices on one bridge: every
// gradient reaches the PS by itself, and the PS's multicasts reach everybody.
type rack struct {
	t      testing.TB
	bridge *netlink.Bridge
	n      int
}

func newRack(t testing.TB) *rack {
	t.Helper()
	runtime.LockOSThread()
	snoop := false
	r := &rack{t: t, bridge: &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}, MulticastSnooping: &snoop}}
	must(t, netlink.LinkAdd(r.bridge))
	must(t, netlink.LinkSetUp(r.bridge))
	t.Cleanup(func() { must(t, netlink.LinkDel(r.bridge)) })
	return r
}

// host starts an agent at 10.0.0.n, on device eth0.
func (r *rack) host(name string) (*process, string) {
	r.t.Helper()
	r.n++
	p := startProcess(r.t, name, true)
	port := fmt.Sprintf("port%d", r.n)
	must(r.t, netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: r.bridge.Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsPid(p.cmd.Process.Pid),
	}))
	l, err := netlink.LinkByName(port)
	must(r.t, err)
	must(r.t, netlink.LinkSetUp(l))
	ns, err := netns.GetFromPid(p.cmd.Process.Pid)
	must(r.t, err)
	defer ns.Close()
	r.t.Cleanup(func() {
		if l, err := netlink.LinkByName(port); err == nil { // unless it went with its namespace
			netlink.LinkDel(l)
		}
	})
	h, err := netlink.NewHandleAt(ns)
	must(r.t, err)
	defer h.Close()
	addr := fmt.Sprintf("10.0.0.%d", r.n)
	l, err = h.LinkByName("eth0")
	must(r.t, err)
	a, err := netlink.ParseAddr(addr + "/24")
	must(r.t, err)
	must(r.t, h.AddrAdd(l, a))
	must(r.t, h.LinkSetUp(l))
	return p, addr
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// job starts workers and a PS of one job in a rack.
func (r *rack) job(cfg Config, adjust func(rank int, c *Config)) (workers []*process, ps *process) {
	r.t.Helper()
	cfg.Device = "eth0"
	for rank := range cfg.Workers {
		p, addr := r.host(fmt.Sprintf("worker %d", rank))
		workers = append(workers, p)
		cfg.Peers = append(cfg.Peers, addr)
	}
	ps, cfg.PS = r.host("ps")
	cfg.Role = "ps"
	ps.write(cfg)
	cfg.Role = "worker"
	for rank, p := range workers {
		c := cfg
		c.Rank = rank
		if adjust != nil {
			adjust(rank, &c)
		}
		p.write(c)
	}
	for _, p := range append(workers, ps) {
		p.until("ready")
	}
	ps.write(Command{Cmd: "start"})
	ps.until("started")
	for _, p := range workers {
		p.write(Command{Cmd: "start"})
	}
	for _, p := range workers {
		p.until("started")
	}
	return workers, ps
}

// finish stops the workers where they are all to pause, then the PS, and returns what they
// report.
func finish(workers []*process, ps *process) (stats []Stats, psStats Stats) {
	at := held(workers)
	for _, p := range workers {
		p.write(Command{Cmd: "pause", ID: 100, PSN: at})
		p.write(Command{Cmd: "stop"})
	}
	for _, p := range workers {
		if p.until("paused").ID != 100 {
			p.t.Errorf("%s answers another command", p.name)
		}
		stats = append(stats, *p.until("done").Stats)
	}
	ps.write(Command{Cmd: "stop"})
	return stats, *ps.until("done").Stats
}

var stream = Config{
	Collective: "ina", Job: 7, Name: "A", Epoch: 3, Workers: 3, Mode: "forward",
	Lanes: 240, Window: 64, Control: "fixed", Seed: 1,
	RTO: 20 * time.Millisecond, Interval: 50 * time.Millisecond,
}

// all checks what must hold of any finished job whose packets were not damaged.
func all(t *testing.T, cfg Config, stats []Stats, ps Stats) {
	t.Helper()
	for rank, w := range stats {
		t.Logf("worker %d: %+v", rank, w)
		lanes := int64(cfg.Lanes)
		if w.SumErrors != 0 || w.SumsChecked != w.PSNs*lanes || w.PSNs < 100 {
			t.Errorf("worker %d: %d PSNs, %d values checked, %d wrong", rank, w.PSNs, w.SumsChecked, w.SumErrors)
		}
		if w.PSNs != stats[0].PSNs || w.PSNs != w.PSNsSent || w.PSNsSent != w.PacketsSent-w.Resends {
			t.Errorf("worker %d sent %d packets, %d of them again, and got %d PSNs; worker 0 got %d",
				rank, w.PacketsSent, w.Resends, w.PSNs, stats[0].PSNs)
		}
		if w.Outstanding != 0 {
			t.Errorf("worker %d ended with %d PSNs outstanding", rank, w.Outstanding)
		}
		m := newMessage(cfg)
		if w.BytesSent != (64+4*lanes)*w.PacketsSent || w.Goodput != m.gradients(w.PSNs) {
			t.Errorf("worker %d: %d bytes in %d packets, goodput %d", rank, w.BytesSent, w.PacketsSent, w.Goodput)
		}
		if w.RTTCount == 0 || w.RTTMin <= 0 || w.RTTSum < w.RTTMin*float64(w.RTTCount) {
			t.Errorf("worker %d: round trips %v, least %v, %d of them", rank, w.RTTSum, w.RTTMin, w.RTTCount)
		}
	}
	t.Logf("ps: %+v", ps)
	if sum := ps.Merged + ps.Duplicates + ps.Conflicts + ps.Outdated; ps.Arrived != sum || ps.Stray != 0 || ps.Evicted != 0 {
		t.Errorf("ps: %d packets arrived, %d are accounted for, %d stray, %d PSNs evicted", ps.Arrived, sum, ps.Stray, ps.Evicted)
	}
	if !(ps.LateP99 > 0 && ps.LateMax >= ps.LateP99) {
		t.Errorf("ps: results %v s late (p99), %v s at most", ps.LateP99, ps.LateMax)
	}
	if ps.Completed != stats[0].PSNs || ps.Arrived < ps.Completed*int64(cfg.Workers) {
		t.Errorf("ps completed %d PSNs of %d packets, workers %d", ps.Completed, ps.Arrived, stats[0].PSNs)
	}
}

func TestStreamInRack(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	cases := []struct {
		name   string
		adjust func(*Config)
	}{
		{"ina", func(c *Config) { c.Rate = 20e6 }},
		{"ps", func(c *Config) { c.Collective, c.Rate = "ps", 20e6 }},
		{"window clocked", func(c *Config) { c.Window = 16 }},
		{"aimd, few lanes", func(c *Config) { c.Control, c.Lanes, c.Window = "aimd", 16, 16 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := stream
			c.adjust(&cfg)
			workers, ps := newRack(t).job(cfg, nil)
			for _, p := range workers {
				var last Event
				for n := 0; n < 4 || last.Stats.PSNs < 150; n++ { // all wants 100 of them
					e := p.until("sample")
					if last.Stats != nil && (e.T <= last.T || e.Stats.PSNs < last.Stats.PSNs) {
						t.Errorf("%s: sample %+v after %+v", p.name, e, last)
					}
					last = e
				}
				p.write(Command{Cmd: "ping", ID: 9})
				if e := p.until("pong"); e.ID != 9 || e.T < last.T {
					t.Errorf("pong %+v after a sample at %v", e, last.T)
				}
			}
			stats, s := finish(workers, ps)
			all(t, cfg, stats, s)
		})
	}
}

func TestIterationsInRack(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	cfg := stream
	cfg.Iterations = 5
	cfg.Layers = []Layer{{Bytes: 100_000, Compute: 4 * time.Millisecond}, {Bytes: 20_000, Compute: 2 * time.Millisecond}}
	workers, ps := newRack(t).job(cfg, nil)
	var stats []Stats
	for _, p := range workers {
		stats = append(stats, *p.until("done").Stats)
	}
	_, s := finish(nil, ps)
	all(t, cfg, stats, s)
	for rank, w := range stats {
		if w.Iterations != 5 || w.PSNs != 2+5*125 {
			t.Errorf("worker %d: %d iterations, %d PSNs", rank, w.Iterations, w.PSNs)
		}
		if w.IterationSum < 5*.006 || w.CommSum < 5*.002 || w.CommSum > w.IterationSum-5*.004+1e-9 {
			t.Errorf("worker %d: iterations took %v s, %v s of it communication", rank, w.IterationSum, w.CommSum)
		}
	}
}

// A stop in the middle of iterations ends all workers at the same PSN.
func TestStopIterationsInRack(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	cfg := stream
	cfg.Message = 500_000
	workers, ps := newRack(t).job(cfg, nil)
	for workers[0].until("sample").Stats.Iterations == 0 {
	}
	stats, s := finish(workers, ps)
	all(t, cfg, stats, s)
	for rank, w := range stats {
		if w.PSNs < 2+521 || w.PSNs != stats[0].PSNs || w.Iterations != (w.PSNs-2)/521 {
			t.Errorf("worker %d: %d iterations, %d PSNs; worker 0 got %d", rank, w.Iterations, w.PSNs, stats[0].PSNs)
		}
	}
}

// held has workers send nothing new, and returns where they can all end.
func held(workers []*process) (at uint64) {
	for i, p := range workers {
		p.write(Command{Cmd: "hold", ID: int64(i + 1)})
	}
	for i, p := range workers {
		e := p.until("held")
		if e.ID != int64(i+1) {
			p.t.Errorf("%s answers command %d, not %d", p.name, e.ID, i+1)
		}
		at = max(at, e.PSN)
	}
	return at
}

// pauseJob has workers pause together, and returns where.
func pauseJob(t *testing.T, workers []*process) uint64 {
	t.Helper()
	at := held(workers)
	for _, p := range workers {
		p.write(Command{Cmd: "pause", ID: 9, PSN: at})
	}
	for _, p := range workers {
		if e := p.until("paused"); e.ID != 9 {
			t.Errorf("%s answers command %d, not 9", p.name, e.ID)
		}
	}
	return at
}

// Workers that begin at a halt go on with the window that they are given, pause
// together in the middle of an iteration, and end where they pause.
func TestPauseInRack(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	cases := []struct {
		name   string
		adjust func(*Config)
	}{
		{"stream", func(c *Config) { c.Rate = 5e6 }},
		{"iterations", func(c *Config) { c.Rate, c.Message = 5e6, 100_000_000 }},
		{"computing", func(c *Config) {
			c.Layers = []Layer{{100_000, time.Millisecond}, {100_000, time.Hour}}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := stream
			cfg.Window, cfg.Halted = 4096, true
			c.adjust(&cfg)
			workers, ps := newRack(t).job(cfg, nil)
			for _, p := range workers {
				if s := p.until("sample").Stats; s.PacketsSent != 0 {
					t.Errorf("%s at a halt sent %d packets", p.name, s.PacketsSent)
				}
			}
			last := uint64(0)
			for _, window := range []int{8, 64} {
				for _, p := range workers {
					p.write(Command{Cmd: "resume", Window: window})
				}
				for _, p := range workers {
					for p.until("sample").Stats.PSNs < int64(min(last+60, 106)) {
					}
				}
				at := pauseJob(t, workers)
				if at < last {
					t.Errorf("paused at PSN %d, after %d", at, last)
				}
				last = at
			}
			for _, p := range workers {
				p.until("sample")
				if s := p.until("sample").Stats; s.PSNs != int64(last) {
					t.Errorf("%s goes on after its pause at %d: %d", p.name, last, s.PSNs)
				}
			}
			stats, s := finish(workers, ps)
			all(t, cfg, stats, s)
			if stats[0].PSNs != int64(last) || stats[0].Iterations != 0 {
				t.Errorf("paused at PSN %d, ended at %d after %d iterations", last, stats[0].PSNs, stats[0].Iterations)
			}
		})
	}
}

// Workers whose peers and PS have died still stop, and one whose stdin ends dies.
func TestStopAloneInRack(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	cfg := stream
	cfg.Rate = 5e6
	workers, ps := newRack(t).job(cfg, nil)
	ps.stdin.Close()
	workers[2].stdin.Close()
	for _, p := range []*process{ps, workers[2]} {
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	for _, p := range workers[:2] {
		for p.until("sample").Stats.Resends == 0 { // then it has something outstanding
		}
		p.write(Command{Cmd: "stop"})
		s := p.until("done").Stats
		if s.Resends == 0 || s.SumErrors != 0 || s.Outstanding == 0 {
			t.Errorf("%s, which gave up: %+v", p.name, s)
		}
	}
}

// BenchmarkPacing has one worker send at a rate limit and reports how exact that
// was: the error of the rate, and how late packets left.
func BenchmarkPacing(b *testing.B) {
	if !inNamespace(b) {
		return
	}
	for _, rate := range []float64{10e6, 100e6} {
		b.Run(fmt.Sprintf("Mbit=%.0f", rate/1e6), func(b *testing.B) {
			cfg := stream
			cfg.Workers, cfg.Rate, cfg.Window, cfg.Interval = 1, rate, 256, 100*time.Millisecond
			workers, ps := newRack(b).job(cfg, nil)
			first := workers[0].until("sample")
			b.ResetTimer()
			last := first
			for last.T-first.T < 2 {
				last = workers[0].until("sample")
			}
			b.StopTimer()
			stats, _ := finish(workers, ps)
			sent := float64(last.Stats.BytesSent-first.Stats.BytesSent) * 8 / (last.T - first.T)
			b.ReportMetric((sent/rate-1)*100, "%rate-error")
			b.ReportMetric(stats[0].LateP99*1e6, "us-late-p99")
			b.ReportMetric(stats[0].LateMax*1e6, "us-late-max")
			b.ReportMetric(stats[0].RTTSum/float64(stats[0].RTTCount)*1e6, "us-rtt")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkLoop is worker, PS and kernel together, as fast as a window of 64 goes.
func BenchmarkLoop(b *testing.B) {
	if !inNamespace(b) {
		return
	}
	for _, lanes := range []int{16, 240} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			cfg := stream
			cfg.Workers, cfg.Lanes, cfg.Interval = 1, lanes, 100*time.Millisecond
			workers, ps := newRack(b).job(cfg, nil)
			first := workers[0].until("sample")
			last := first
			for last.T-first.T < 2 {
				last = workers[0].until("sample")
			}
			finish(workers, ps)
			n := float64(last.Stats.PSNs - first.Stats.PSNs)
			cpu := workers[0].cpu()
			b.ReportMetric(n/(last.T-first.T), "PSN/s")
			b.ReportMetric(cpu.Seconds()*1e6/float64(last.Stats.PSNs), "worker-cpu-us/PSN")
			b.ReportMetric(float64(last.Stats.Resends), "resends")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpu is what a process that has ended used.
func (p *process) cpu() time.Duration {
	p.cmd.Wait()
	s := p.cmd.ProcessState
	return s.UserTime() + s.SystemTime()
}
