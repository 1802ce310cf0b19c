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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
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
	args := []string{"-test.run=^" + t.Name() + "$", "-test.timeout=90s", "-test.v"}
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
		if strings.Contains(os.Getenv("INABENCH_REQUIRE"), "netns") {
			t.Fatalf("no user and network namespace: %v", err)
		}
		t.Skipf("no user and network namespace: %v", err)
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
}

func startProcess(t testing.TB, name string, newNet bool) *process {
	t.Helper()
	p := &process{t: t, name: name, events: make(chan Event, 1000), err: make(chan error, 1)}
	p.cmd = exec.CommandContext(t.Context(), "/proc/self/exe")
	p.cmd.Env = append(os.Environ(), "AGENT_TEST_MAIN=1")
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
	timeout := time.After(30 * time.Second)
	for {
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
			p.t.Fatalf("%s: no %q after 30 s", p.name, name)
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

// finish stops the workers, then the PS, and returns what they report.
func finish(workers []*process, ps *process) (stats []Stats, psStats Stats) {
	for _, p := range workers {
		p.write(Command{Cmd: "stop"})
	}
	for _, p := range workers {
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

func TestStreamInRack(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, collective := range []string{"ina", "ps"} {
		t.Run(collective, func(t *testing.T) {
			cfg := stream
			cfg.Collective = collective
			cfg.Rate = 20e6
			workers, ps := newRack(t).job(cfg, nil)
			for _, p := range workers {
				for range 4 {
					p.until("sample")
				}
				p.write(Command{Cmd: "ping", ID: 9})
				if e := p.until("pong"); e.ID != 9 || e.T <= 0 {
					t.Errorf("pong %+v", e)
				}
			}
			stats, s := finish(workers, ps)
			for rank, w := range stats {
				t.Logf("worker %d: %+v", rank, w)
				if w.SumErrors != 0 || w.SumsChecked != w.PSNs*240 || w.PSNs < 100 {
					t.Errorf("worker %d: %d PSNs, %d values checked, %d wrong", rank, w.PSNs, w.SumsChecked, w.SumErrors)
				}
				if w.PSNs != stats[0].PSNs || w.PSNs != w.PacketsSent-w.Resends {
					t.Errorf("worker %d sent %d packets, %d of them again, and got %d PSNs; worker 0 got %d",
						rank, w.PacketsSent, w.Resends, w.PSNs, stats[0].PSNs)
				}
				if w.BytesSent != 1024*w.PacketsSent || w.Goodput != 960*w.PSNs {
					t.Errorf("worker %d: %d bytes in %d packets, goodput %d", rank, w.BytesSent, w.PacketsSent, w.Goodput)
				}
			}
			t.Logf("ps: %+v", s)
			if s.Completed != stats[0].PSNs {
				t.Errorf("ps completed %d PSNs, workers %d", s.Completed, stats[0].PSNs)
			}
		})
	}
}
