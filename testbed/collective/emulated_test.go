package collective_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/mina/sharing"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/sharp/aggmgr"
	"github.com/inabench/inabench/testbed/testbedtest"
	"github.com/inabench/inabench/testbed/udp"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(netnstest.Parts{"agent": agent.Main})
	if lo, err := netlink.LinkByName("lo"); noNamespaces == nil && err == nil {
		netlink.LinkSetUp(lo) // tests that need it fail otherwise
	}
	flag.Set("test.parallel", "4") // whatever the cores: they mostly wait
	os.Exit(m.Run())
}

// lab is an emulation: hosts h1 and h2 at leaf1, h3 and h4 at leaf2, and a root above both.
type lab struct {
	t        testing.TB
	f        *netns.Fabric
	switches aggmgr.P4Switches
	hosts    map[string]hosts.Host
	inv      *inventory.Inventory
	offload  bool
}

const window = 64

func newLab(t testing.TB, rate inventory.BitRate, delay time.Duration, offload bool) *lab {
	t.Helper()
	inv := &inventory.Inventory{Name: "turns"}
	for _, name := range []string{"leaf1", "leaf2", "root"} {
		inv.Switches = append(inv.Switches, inventory.Switch{
			Name: name, Kind: inventory.Soft, Aggregators: 1024, SHARP: inventory.SHARP{Trees: 2, Jobs: 1, Resource: "switch"},
		})
	}
	for i := range 2 {
		inv.Links = append(inv.Links, inventory.Link{
			A: inventory.Port{Switch: fmt.Sprintf("leaf%d", i+1), Port: 9}, B: inventory.Port{Switch: "root", Port: uint32(i + 1)},
			Rate: 2 * rate, Delay: delay,
		})
	}
	for i := range 4 {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", i+1), NICs: []inventory.NIC{{
			Device: "ens1", Switch: fmt.Sprintf("leaf%d", i/2+1), Port: uint32(i%2 + 1), Rate: rate, Delay: delay,
		}}})
	}
	return emulate(t, inv, "drr", offload)
}

// emulate brings up what an inventory describes, with routes to all hosts.
func emulate(t testing.TB, inv *inventory.Inventory, queue string, offload bool) *lab {
	t.Helper()
	testbedtest.Require(t, "netns", noNamespaces)
	f, err := netns.Up(t.Context(), inv, netns.Options{Queue: queue, Seed: 1, Log: t.Output(), Offload: offload})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l := &lab{t: t, f: f, switches: aggmgr.P4Switches{}, hosts: map[string]hosts.Host{}, inv: f.Inventory(), offload: offload}
	for _, h := range l.inv.Hosts {
		c, err := reach.Dial(t.Context(), reach.To(l.inv, h), reach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		l.hosts[h.Name] = c
	}
	topo := l.inv.Topology()
	for _, s := range l.inv.Switches {
		c, err := p4rt.Dial(t.Context(), s.Name, s.Control, s.DeviceID, p4rt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(context.Background()) })
		if err := c.Push(t.Context(), dataplane.Pipeline{Info: p4.Info()}); err != nil {
			t.Fatal(err)
		}
		var routes []p4.Route
		for _, h := range l.inv.Hosts {
			path, err := topo.Path(s.Name, h.Name)
			if err != nil {
				t.Fatal(err)
			}
			nic := h.NICs[0]
			routes = append(routes, p4.Route{
				Dst: nic.Address.Addr().As4(), Port: topo.Links[path[0]].FromPort, MAC: [6]byte(f.HostMAC(h.Name, nic.Device)),
			})
		}
		if err := c.WriteRoutes(t.Context(), routes); err != nil {
			t.Fatal(err)
		}
		l.switches[s.Name] = c
	}
	return l
}

// tree is one for a job on the given hosts, of which some are at each leaf.
func (l *lab) tree(job, epoch uint16, at []string) (t []aggmgr.Entry) {
	entry := aggmgr.Entry{Job: job, Epoch: epoch, Base: int(job) * window, OSTs: window}
	root := entry
	root.Switch = "root"
	for i := range 2 {
		leaf := entry
		leaf.Node = aggmgr.Node{Switch: fmt.Sprintf("leaf%d", i+1), Parent: "root", Up: 9}
		for rank, host := range at {
			if n := host[1] - '1'; int(n/2) == i {
				leaf.Expect |= 1 << rank
				leaf.Down = append(leaf.Down, uint32(n%2+1))
			}
		}
		root.Expect |= leaf.Expect
		root.Down = append(root.Down, uint32(i+1))
		t = append(t, leaf)
	}
	return append(t, root)
}

func (l *lab) write(tree []aggmgr.Entry) {
	l.t.Helper()
	for _, e := range tree {
		if err := l.switches.Install(l.t.Context(), e.Switch, e); err != nil {
			l.t.Fatal(err)
		}
	}
}

// job is a training job that runs.
type job struct {
	l     *lab
	ranks []*rank
}

type rank struct {
	l      *lab
	name   string
	p      *hosts.Process
	events chan agent.Event
}

// job starts a trainer on each host, and returns when all are ready.
func (l *lab) job(cfg agent.Config, adjust func(rank int, c *agent.Config), at ...string) *job {
	l.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	cfg.Role, cfg.Epoch, cfg.Seed, cfg.Workers = "trainer", 1, 3, len(at)
	cfg.Lanes, cfg.RTO, cfg.Interval, cfg.Device, cfg.Offload = 240, 20*time.Millisecond, 50*time.Millisecond, "ens1", l.offload
	for _, name := range at {
		h, _ := l.inv.Host(name)
		cfg.Peers = append(cfg.Peers, h.NICs[0].Address.Addr().String())
		cfg.LineRate = float64(h.NICs[0].Rate)
	}
	j := &job{l: l}
	for i, name := range at {
		p, err := l.hosts[name].Start(context.Background(), []string{exe, "agent"}, nil)
		if err != nil {
			l.t.Fatal(err)
		}
		r := l.follow(fmt.Sprintf("rank %d of job %d on %s", i, cfg.Job, name), p)
		c := cfg
		c.Rank = i
		if adjust != nil {
			adjust(i, &c)
		}
		r.write(c)
		j.ranks = append(j.ranks, r)
	}
	for _, r := range j.ranks {
		r.until("ready")
	}
	return j
}

// follow reads what a rank says. It ends with the test.
func (l *lab) follow(name string, p *hosts.Process) *rank {
	r := &rank{l: l, name: name, p: p, events: make(chan agent.Event, 10_000)}
	go func() {
		defer close(r.events)
		in := bufio.NewScanner(p.Stdout)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			var e agent.Event
			if err := json.Unmarshal(in.Bytes(), &e); err != nil {
				l.t.Errorf("%s: %q: %v", r.name, in.Text(), err)
			}
			r.events <- e
		}
	}()
	l.t.Cleanup(func() { p.Stdin.Close() })
	return r
}

func (r *rank) write(v any) {
	r.l.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		r.l.t.Fatal(err)
	}
	if _, err := r.p.Stdin.Write(append(b, '\n')); err != nil {
		r.l.t.Fatalf("%s: %v", r.name, err)
	}
}

// until returns the next event that is one of these.
func (r *rank) until(names ...string) agent.Event {
	r.l.t.Helper()
	e, err := r.next(names...)
	if err != nil {
		r.l.t.Fatal(err)
	}
	return e
}

func (r *rank) next(names ...string) (agent.Event, error) {
	timeout := time.After(60 * time.Second)
	for {
		select {
		case e, ok := <-r.events:
			switch {
			case !ok:
				return e, fmt.Errorf("%s ended before %q", r.name, names)
			case slices.Contains(names, e.Event):
				return e, nil
			case e.Event == "error" || e.Event == "done":
				return e, fmt.Errorf("%s: %s %s before %q", r.name, e.Event, e.Error, names)
			}
		case <-timeout:
			return agent.Event{}, fmt.Errorf("%s: no %q after a minute", r.name, names)
		}
	}
}

func (j *job) write(v any) {
	j.l.t.Helper()
	for _, r := range j.ranks {
		r.write(v)
	}
}

// start has all ranks begin their first step at the same time.
func (j *job) start() {
	j.l.t.Helper()
	clock := udp.NewClock() // emulated hosts have one clock
	j.write(agent.Command{Cmd: "start", At: (clock.Now() + 200*time.Millisecond).Seconds()})
}

// until returns the next such event of each rank.
func (j *job) until(names ...string) (events []agent.Event) {
	j.l.t.Helper()
	var errs []error
	for _, r := range j.ranks {
		e, err := r.next(names...)
		events, errs = append(events, e), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		for _, h := range j.l.inv.Hosts { // what each host's kernel has of connections
			out, _ := j.l.hosts[h.Name].Run(j.l.t.Context(), []string{"cat", "/proc/net/tcp", "/proc/net/snmp", "/proc/net/dev"}, nil)
			j.l.t.Logf("host %s:\n%s", h.Name, out.Stdout)
		}
		j.l.t.Fatal(err)
	}
	return events
}

// done waits for the end, and checks what holds of all jobs.
func (j *job) done() agent.Training {
	j.l.t.Helper()
	var first agent.Training
	resends := int64(0)
	for i, e := range j.until("done") {
		s := *e.Stats.Training
		if i == 0 {
			first = s
		}
		resends += e.Stats.Resends
		if s.Wrong != 0 || s.Checked < s.Ops || s.Ops == 0 {
			j.l.t.Errorf("%s: of %d values %d are wrong", j.ranks[i].name, s.Checked, s.Wrong)
		}
		if s.Ops != first.Ops || s.INA != first.INA || s.Refused != first.Refused || s.Steps != first.Steps {
			j.l.t.Errorf("%s: %d steps, %d operations, %d with INA, %d refused: rank 0 had %d, %d, %d, %d", j.ranks[i].name,
				s.Steps, s.Ops, s.INA, s.Refused, first.Steps, first.Ops, first.INA, first.Refused)
		}
	}
	j.l.t.Logf("%s: %s; %d packets sent again", j.ranks[0].name, describe(first), resends)
	return first
}

func describe(s agent.Training) string {
	line := func(l collective.Line) string {
		latency, bandwidth, ok := l.Fit()
		if !ok {
			return fmt.Sprintf("%d of %.0f us", l.N, l.Seconds/max(float64(l.N), 1)*1e6)
		}
		return fmt.Sprintf("%d of %.0f us + bytes / %.1f MB/s", l.N, latency*1e6, bandwidth/1e6)
	}
	n := max(float64(s.Ops), 1)
	return fmt.Sprintf("%d steps of %.2f ms, %d operations; with INA %s, by ring %s, %d refused; launch %.0f us, decision %.1f us, %.1f ms CPU/MB",
		s.Steps, 1e3*s.Step.Sum/max(float64(s.Steps), 1), s.Ops, line(s.Tree), line(s.Ring), s.Refused,
		s.Launch.Sum/n*1e6, s.Decision.Sum/n*1e6, 1e9*s.CPU/(s.Tree.Bytes+s.Ring.Bytes+1))
}

// small is steps that communicate more than they compute.
var small = &agent.Pattern{Step: 4e-3, Ops: []agent.Op{{Start: 1e-3, Bytes: 30_000}, {Start: 2e-3, Bytes: 90_000}, {Start: 3e-3, Bytes: 4}}}

// Two jobs share the switches of their trees greedily: both have them now and then, both
// are refused, no sum is wrong, and all ranks of a job have the same story.
func TestGreedy(t *testing.T) {
	t.Parallel()
	if !netnstest.Apart(t) {
		return
	}
	l := newLab(t, 200e6, 20*time.Microsecond, false)
	var jobs []*job
	for id, at := range map[uint16][]string{1: {"h1", "h3"}, 2: {"h2", "h4"}} {
		l.write(l.tree(id, 5, at))
		jobs = append(jobs, l.job(agent.Config{
			Job: id, Sharing: "greedy", Pattern: small, Steps: 60, Tree: &collective.Tree{Epoch: 5, Window: window},
		}, nil, at...))
	}
	for _, j := range jobs {
		j.start()
	}
	for _, j := range jobs {
		if s := j.done(); s.Steps != 60 || s.Ops != 180 || s.INA == 0 || s.Refused == 0 {
			t.Errorf("%+v", s)
		}
	}
}

// Two jobs share the switches as MINA's sharing controller has their hosts agree: it learns
// their patterns from their queues, hosts of a job never differ, and no sum is wrong.
func TestShared(t *testing.T) {
	t.Parallel()
	if !netnstest.Apart(t) {
		return
	}
	l := newLab(t, 200e6, 20*time.Microsecond, false)
	conn, err := net.Dial("udp", l.inv.Hosts[0].SSH.Address) // sends nothing
	if err != nil {
		t.Fatal(err)
	}
	here := conn.LocalAddr().(*net.UDPAddr).IP.String()
	conn.Close()
	var logs []io.Reader
	var decided, all bytes.Buffer
	c, err := sharing.NewController(sharing.ControllerConfig{
		Listen: net.JoinHostPort(here, "0"), Cost: tree.Cost{Latency: 1e-3, Bandwidth: 10e6, Ratio: 2}, Log: sharing.NewLog(&decided),
		Silence: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Share([]sharing.Group{{{Job: 1, Hosts: 2}, {Job: 2, Hosts: 2}}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var jobs []*job
	for id, at := range map[uint16][]string{1: {"h1", "h3"}, 2: {"h2", "h4"}} {
		l.write(l.tree(id, 5, at))
		jobs = append(jobs, l.job(agent.Config{
			Job: id, Sharing: "shared", SharingController: c.Address(), Pattern: small, Steps: 150,
			Tree: &collective.Tree{Epoch: 5, Window: window},
		}, func(rank int, c *agent.Config) { c.SharingLog = fmt.Sprintf("%s/%d-%d", dir, id, rank) }, at...))
	}
	for _, j := range jobs {
		j.start()
	}
	for _, j := range jobs {
		if s := j.done(); s.Steps != 150 || s.Ops != 450 || s.INA == 0 || s.Ring.N == 0 {
			t.Errorf("%+v", s)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for id := range 2 {
		for rank := range 2 {
			b, err := os.ReadFile(fmt.Sprintf("%s/%d-%d", dir, id+1, rank))
			if err != nil {
				t.Fatal(err)
			}
			logs = append(logs, bytes.NewReader(b))
			all.Write(b)
		}
	}
	sum, err := sharing.Check(append(logs, &decided)...)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d operations on hosts, %d asked, %d used; %d transactions committed, aborted %v; Next waited %v at most", sum.Operations,
		sum.Asked, sum.Used, sum.Committed, sum.Aborted, sum.Percentile(1))
	if held := bytes.Count(all.Bytes(), []byte(`"held"`)); held != sum.Used/2 {
		t.Errorf("the switches were held %d times for %d operations", held, sum.Used/2)
	}
	if sum.Operations != 4*450 {
		t.Errorf("%d operations in the logs", sum.Operations)
	}
}

// A job's trees change while it trains on all four hosts, and nothing of it is lost.
func TestMigration(t *testing.T) {
	t.Parallel()
	if !netnstest.Apart(t) {
		return
	}
	l := newLab(t, 200e6, 20*time.Microsecond, false)
	at := []string{"h1", "h3", "h2", "h4"}
	j := l.job(agent.Config{Job: 1, Sharing: "exclusive", Pattern: small}, nil, at...)
	j.start()
	j.until("started")
	for epoch := range uint16(3) {
		tree := l.tree(1, 10+epoch, at)
		l.write(tree)
		j.write(agent.Command{Cmd: "tree", ID: int64(epoch), Tree: collective.Tree{Epoch: 10 + epoch, Window: window}})
		j.until("acquired")
		for _, r := range j.ranks {
			for before := int64(-1); ; {
				s := r.until("sample").Stats.Training
				if before < 0 {
					before = s.INA
				} else if s.INA > before+3 {
					break
				}
			}
		}
		j.write(agent.Command{Cmd: "tree", ID: int64(epoch)})
		j.until("released")
		for _, e := range tree {
			if err := l.switches.Remove(t.Context(), e.Switch, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	j.write(agent.Command{Cmd: "stop"})
	if s := j.done(); s.Ops != 3*s.Steps || s.INA == 0 || s.Ring.N == 0 {
		t.Errorf("%+v", s)
	}
}

// What only some ranks ask for, a rank that dies, and a tree that no switch knows: each
// ends in an error on all ranks, in time, that says what is wrong.
func TestRanksThatDisagree(t *testing.T) {
	t.Parallel()
	if !netnstest.Apart(t) {
		return
	}
	l := newLab(t, 200e6, 20*time.Microsecond, false)
	at := []string{"h1", "h3", "h2"}
	for i, c := range []struct {
		name   string
		adjust func(rank int, c *agent.Config)
		kill   bool
		want   string // of some rank
	}{
		{"one asks for nothing", func(rank int, c *agent.Config) {
			if rank == 1 {
				c.Sharing = "none"
			}
		}, false, "rank 1 is at operation 1 of 30000 bytes, step 0, which did not ask for the tree"},
		{"one dies", nil, true, "rank is gone: rank 1"},
		{"no such tree", func(_ int, c *agent.Config) { c.Tree = &collective.Tree{Epoch: 100, Window: window} }, false,
			"the switches have none of this job in epoch 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := *l
			l.t = t
			epoch := uint16(i + 1) // what a job left behind is not for the next
			l.write(l.tree(1, epoch, at))
			j := l.job(agent.Config{
				Job: 1, Sharing: "greedy", Pattern: small, Tree: &collective.Tree{Epoch: epoch, Window: window}, Timeout: 8 * time.Second,
			}, c.adjust, at...)
			j.start()
			left := j.ranks
			if c.kill {
				j.until("started")
				j.ranks[1].until("sample")
				j.ranks[1].p.Stdin.Close()
				left = []*rank{j.ranks[0], j.ranks[2]}
			}
			var all string
			for _, r := range left {
				e := r.until("error")
				t.Logf("%s: %s", r.name, e.Error)
				all += e.Error + "\n"
			}
			if !strings.Contains(all, c.want) {
				t.Errorf("no rank says %q", c.want)
			}
		})
	}
}

// benchRate is in bit/s. Frames have 24 bytes more on the wire.
const benchRate = 20e6

// BenchmarkAllReduce is one job on four hosts: how long its operations take, with and
// without INA, as a latency and a bandwidth, and the most that the cables allow. A ring of
// four sends 1.5 times the bytes.
func BenchmarkAllReduce(b *testing.B) {
	for _, sharing := range []string{"exclusive", "none"} {
		for _, offload := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/offload=%v", sharing, offload), func(b *testing.B) {
				most := benchRate / 8 * 960 / (1024 + 24.)
				if sharing == "none" {
					most = benchRate / 8 * 1448 / (1514 + 24.) / 1.5
				}
				l := newLab(b, benchRate, 5000e6/benchRate*time.Microsecond, offload)
				at := []string{"h1", "h2", "h3", "h4"}
				l.write(l.tree(1, 5, at))
				p := &agent.Pattern{Step: 10e-3, Ops: []agent.Op{{Start: 0, Bytes: 4}, {Start: 5e-3, Bytes: benchRate / 1000}, {Start: 10e-3, Bytes: benchRate / 250}, {Start: 10e-3, Bytes: benchRate / 100}}}
				j := l.job(agent.Config{Job: 1, Sharing: sharing, Pattern: p, Tree: &collective.Tree{Epoch: 5, Window: window}}, nil, at...)
				j.start()
				j.until("started")
				for range b.N {
					time.Sleep(2 * time.Second)
				}
				j.write(agent.Command{Cmd: "stop"})
				s := j.done()
				line := s.Tree
				if sharing == "none" {
					line = s.Ring
				}
				latency, bandwidth, _ := line.Fit()
				b.ReportMetric(latency*1e6, "us-latency")
				b.ReportMetric(bandwidth/1e6, "MB/s")
				b.ReportMetric(most/1e6, "MB/s-most")
				b.ReportMetric(1e9*s.CPU/line.Bytes, "ms-CPU/MB")
				b.ReportMetric(s.Launch.Sum/float64(s.Ops)*1e6, "us-launch")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
