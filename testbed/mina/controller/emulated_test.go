package controller_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/mina/sharing"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(netnstest.Parts{"agent": agent.Main})
	if lo, err := netlink.LinkByName("lo"); noNamespaces == nil && err == nil {
		netlink.LinkSetUp(lo) // tests that need it fail otherwise
	}
	os.Exit(m.Run())
}

// process is a controller process.
type process struct {
	t      testing.TB
	stdin  io.Writer
	events chan controller.Event
	at     controller.Addresses
}

// start starts one and waits until it is ready. Jobs and their trees end with the test.
func start(t testing.TB, s controller.Setup) *process {
	t.Helper()
	p := &process{t: t, events: make(chan controller.Event, 10_000)}
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- controller.Main(context.Background(), stdin, stdout)
		stdout.Close()
	}()
	go func() {
		defer close(p.events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e controller.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("%q: %v", lines.Text(), err)
			}
			p.events <- e
		}
	}()
	t.Cleanup(func() {
		in.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p.stdin = in
	p.write(s)
	p.at = *p.until(0, "ready").Ready
	return p
}

// cluster is an emulated one with a controller process.
type cluster struct {
	*process
	inv   *inventory.Inventory
	hosts map[string]hosts.Host
}

func newCluster(t testing.TB, inv *inventory.Inventory, edit func(*controller.Setup)) *cluster {
	t.Helper()
	testbedtest.Require(t, "netns", noNamespaces)
	f, err := netns.Up(t.Context(), inv, netns.Options{Queue: "drr", Seed: 1, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{inv: f.Inventory(), hosts: map[string]hosts.Host{}}
	setup := controller.Setup{Inventory: c.inv, MACs: map[netip.Addr]string{}, Listen: ":0"}
	for _, h := range c.inv.Hosts {
		client, err := reach.Dial(t.Context(), reach.To(c.inv, h), reach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		c.hosts[h.Name] = client
		for _, nic := range h.NICs {
			setup.MACs[nic.Address.Addr()] = f.HostMAC(h.Name, nic.Device).String()
		}
	}
	if edit != nil {
		edit(&setup)
	}
	c.process = start(t, setup)
	return c
}

func (c *process) write(v any) {
	c.t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		c.t.Fatal(err)
	}
}

// until returns the next event that is one of these, of a job.
func (c *process) until(job uint16, names ...string) controller.Event {
	c.t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		select {
		case e, ok := <-c.events:
			switch {
			case !ok:
				c.t.Fatalf("the controller ended before %q", names)
			case slices.Contains(names, e.Event) && e.Job == job:
				return e
			case e.Event == "error":
				c.t.Fatalf("before %q: error: %s", names, e.Error)
			}
		case <-timeout:
			c.t.Fatalf("no %q after a minute", names)
		}
	}
}

// reach is where a host finds what the controller process serves at an address.
func (c *cluster) reach(host, addr string) string {
	c.t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		c.t.Fatal(err)
	}
	local, err := c.hosts[host].Local()
	if err != nil {
		c.t.Fatal(err)
	}
	return net.JoinHostPort(local.String(), port)
}

// trainers are the ranks of a job.
type trainers struct {
	c     *cluster
	procs []*hosts.Process
	done  []chan agent.Training // what each did; closed without, if it failed
	first chan bool             // closed when rank 0 has had INA for an operation: all ranks are attached then
	ina   chan bool             // and has not for another
	// doomed is set before one of them is killed: the others then say so.
	doomed atomic.Bool
}

// train starts a job's ranks on its hosts; they train until they are stopped.
func (c *cluster) train(id uint16, hosts []string, edit func(rank int, c *agent.Config)) *trainers {
	c.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := agent.Config{
		Role: "trainer", Job: id, Epoch: 1, Seed: 3, Workers: len(hosts), Lanes: 240, RTO: 20 * time.Millisecond, Device: "ens1",
		Interval: 100 * time.Millisecond, Sharing: "greedy", Timeout: 20 * time.Second,
		Pattern: &agent.Pattern{Step: 4e-3, Ops: []agent.Op{{Start: 1e-3, Bytes: 30_000}, {Start: 2e-3, Bytes: 90_000}, {Start: 3e-3, Bytes: 4}}},
	}
	for _, name := range hosts {
		h, _ := c.inv.Host(name)
		cfg.Device = h.NICs[0].Device
		cfg.Peers = append(cfg.Peers, h.NICs[0].Address.Addr().String())
		cfg.LineRate = float64(h.NICs[0].Rate)
	}
	j := &trainers{c: c, first: make(chan bool), ina: make(chan bool)}
	ready := make(chan bool, len(hosts))
	for rank, name := range hosts {
		p, err := c.hosts[name].Start(context.Background(), []string{exe, "agent"}, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { p.Stdin.Close() })
		mine := cfg
		mine.Rank = rank
		mine.Controller = c.reach(name, c.at.Hosts)
		if edit != nil {
			edit(rank, &mine)
		}
		done := make(chan agent.Training, 1)
		go func() {
			defer close(done)
			one, both := false, false
			for lines := bufio.NewScanner(p.Stdout); lines.Scan(); {
				var e agent.Event
				if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Error != "" && !j.doomed.Load() {
					c.t.Errorf("rank %d of job %d: %s", rank, id, lines.Text())
				}
				switch e.Event {
				case "ready":
					ready <- true
				case "sample":
					s := e.Stats.Training
					if rank == 0 && !one && s.INA > 0 {
						one = true
						close(j.first)
					}
					if rank == 0 && !both && s.INA > 0 && s.Ops > s.INA {
						both = true
						close(j.ina)
					}
				case "done":
					done <- *e.Stats.Training
				}
			}
		}()
		j.procs, j.done = append(j.procs, p), append(j.done, done)
		j.tell(rank, mine)
	}
	for range hosts {
		select {
		case <-ready:
		case <-time.After(30 * time.Second):
			c.t.Fatalf("job %d is not ready", id)
		}
	}
	for rank := range hosts {
		j.tell(rank, agent.Command{Cmd: "start"})
	}
	return j
}

func (j *trainers) tell(rank int, v any) {
	j.c.t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		j.c.t.Fatal(err)
	}
	if _, err := j.procs[rank].Stdin.Write(append(line, '\n')); err != nil {
		j.c.t.Fatal(err)
	}
}

// stop ends the job and checks that no sum was wrong and that its ranks did the same.
func (j *trainers) stop() agent.Training {
	j.c.t.Helper()
	for rank := range j.procs {
		j.tell(rank, agent.Command{Cmd: "stop"})
	}
	var first agent.Training
	for rank, done := range j.done {
		select {
		case s, ok := <-done:
			if !ok {
				j.c.t.Fatalf("rank %d ended without a report", rank)
			}
			if rank == 0 {
				first = s
			}
			if s.Wrong != 0 || s.Checked < s.Ops || s.Ops != first.Ops || s.INA != first.INA {
				j.c.t.Errorf("rank %d: %d operations (rank 0: %d), %d with INA (%d), %d of %d values wrong", rank, s.Ops, first.Ops, s.INA, first.INA, s.Wrong, s.Checked)
			}
		case <-time.After(30 * time.Second):
			j.c.t.Fatalf("rank %d does not end", rank)
		}
	}
	return first
}

// moves is two jobs that share a rack's switches, and how long migrations took.
type moves struct {
	*cluster
	jobs map[uint16]*trainers
	root map[uint16]string
	took []controller.Migration
}

func newMoves(t testing.TB, edit func(*controller.Setup), worker func(m *moves, job uint16, host string, rank int, c *agent.Config)) *moves {
	t.Helper()
	inv, err := clos.Spec{
		Down: []int{2, 2}, Up: []int{1, 2}, Rate: 200e6, Delay: 20 * time.Microsecond,
		Switch: "kind = \"soft\"\naggregators = 1024\nsharp = {trees = 2, jobs = 1}",
	}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	m := &moves{cluster: newCluster(t, inv, edit), jobs: map[uint16]*trainers{}, root: map[uint16]string{}}
	for id, on := range [][]string{1: {"h1", "h3"}, 2: {"h2", "h4"}} {
		if id := uint16(id); id > 0 {
			m.write(controller.Command{Cmd: "submit", Submit: controller.Submission{ID: id, Hosts: on, Window: 64}})
			e := m.until(id, "tree")
			if m.root[id] = e.Tree.Root; e.Tree.Window != 64 {
				t.Errorf("granted %+v", e.Tree)
			}
			m.jobs[id] = m.train(id, on, func(rank int, c *agent.Config) {
				if worker != nil {
					worker(m, id, on[rank], rank, c)
				}
			})
		}
	}
	for id, j := range m.jobs {
		select {
		case <-j.first:
		case <-time.After(60 * time.Second):
			t.Errorf("job %d has no tree after a minute", id)
		}
	}
	return m
}

// flap takes a link of job 1's tree down, waits until no tree leads through it, and brings
// it up again.
func (m *moves) flap() {
	m.t.Helper()
	down := m.root[1]
	m.write(controller.Command{Cmd: "link", A: "leaf1", B: down, Up: false})
	for m.root[1] == down || m.root[2] == down {
		e := m.next("tree")
		if e.Tree.Root == down || e.Migration.From != down || e.Migration.Hosts != 2 {
			m.t.Errorf("job %d with a link to %s down: %+v", e.Job, down, e.Migration)
		}
		m.root[e.Job] = e.Tree.Root
		m.took = append(m.took, *e.Migration)
	}
	m.write(controller.Command{Cmd: "link", A: "leaf1", B: down, Up: true})
}

// median is that of a part of the migrations, in ms.
func (m *moves) median(part func(controller.Migration) float64) float64 {
	var v []float64
	for _, x := range m.took {
		v = append(v, 1e3*part(x))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// TestMigrationUnderLoad: links go down and come up under two jobs that train. Trees
// migrate, no operation is lost, no sum is wrong, and the log is that of a manager that
// granted and released every one of them. A job whose host is killed ends.
func TestMigrationUnderLoad(t *testing.T) {
	log := filepath.Join(t.TempDir(), "sharp_am.log")
	c := newMoves(t, func(s *controller.Setup) { s.AMLog, s.Lease = log, 500*time.Millisecond }, nil)
	rounds := 20
	if !proof.Wanted() {
		rounds = 4
	}
	for range rounds {
		c.flap()
	}
	select {
	case <-c.jobs[1].ina: // on a slow machine few operations fit between the rounds
	case <-time.After(60 * time.Second):
	}
	s := c.jobs[1].stop()
	if s.INA == 0 || s.Ops == s.INA {
		t.Errorf("of %d operations %d had INA", s.Ops, s.INA)
	}
	t.Logf("%d migrations; job 1: %d operations, %d with INA, %d refused", len(c.took), s.Ops, s.INA, s.Refused)
	c.write(controller.Command{Cmd: "end", Job: 1})
	c.until(1, "ended")

	c.jobs[2].doomed.Store(true)
	if err := c.jobs[2].procs[1].Close(); err != nil { // killed
		t.Log(err)
	}
	if e := c.until(2, "ended"); e.Error == "finished" {
		t.Errorf("ended: %s", e.Error)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	begun, ended := strings.Count(string(text), "Begin Job:"), strings.Count(string(text), "End Job:")
	if begun != ended || begun != 2+len(c.took) {
		t.Errorf("%d trees were granted and %d released, in %d migrations", begun, ended, len(c.took))
	}
}

// TestSharedUnderLoad is all of MINA at once: two jobs share the switches of their trees as
// their hosts have agreed with the sharing controller, and trees migrate meanwhile. The logs
// of all hosts and of the controller say that no two hosts of a job ever differed.
func TestSharedUnderLoad(t *testing.T) {
	dir := t.TempDir()
	c := newMoves(t, func(s *controller.Setup) {
		s.Share = &controller.Share{
			Listen: ":0", Cost: tree.Cost{Latency: 1e-3, Bandwidth: 10e6, Ratio: 2}, Silence: 20 * time.Second, Log: dir + "/controller",
		}
	}, func(m *moves, job uint16, host string, rank int, c *agent.Config) {
		c.Sharing, c.SharingController, c.Run = "shared", m.reach(host, m.at.Sharing), 1
		c.SharingLog = fmt.Sprintf("%s/%d-%d", dir, job, rank)
	})
	rounds := 10
	if !proof.Wanted() {
		rounds = 3
	}
	for range rounds {
		c.flap()
		time.Sleep(100 * time.Millisecond) // of training as they agreed
	}
	select {
	case <-c.jobs[1].ina:
	case <-c.jobs[2].ina:
	case <-time.After(60 * time.Second):
	}
	for id := uint16(1); id <= 2; id++ {
		s := c.jobs[id].stop()
		t.Logf("job %d: %d operations, %d with INA, %d refused", id, s.Ops, s.INA, s.Refused)
		c.write(controller.Command{Cmd: "end", Job: id})
		c.until(id, "ended")
	}
	files, err := filepath.Glob(dir + "/*")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	var logs []io.Reader
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		logs = append(logs, f)
	}
	sum, err := sharing.Check(logs...)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d migrations; %d operations on hosts, %d asked, %d used; %d transactions committed, aborted %v",
		len(c.took), sum.Operations, sum.Asked, sum.Used, sum.Committed, sum.Aborted)
	if sum.Used == 0 || sum.Committed == 0 {
		t.Error("nothing was shared")
	}
}

// BenchmarkMigration is that of section V-D: medians of the parts of a migration under
// load. Hosts leave a tree and adopt another at the end of an operation, so these parts are
// as long as operations are.
func BenchmarkMigration(b *testing.B) {
	c := newMoves(b, nil, nil)
	for b.Loop() {
		c.flap()
	}
	for unit, part := range map[string]func(controller.Migration) float64{
		"ms-total":   func(m controller.Migration) float64 { return m.Total },
		"ms-leave":   func(m controller.Migration) float64 { return m.Leave },
		"ms-release": func(m controller.Migration) float64 { return m.Release },
		"ms-wait":    func(m controller.Migration) float64 { return m.Wait },
		"ms-acquire": func(m controller.Migration) float64 { return m.Acquire },
		"ms-adopt":   func(m controller.Migration) float64 { return m.Adopt },
	} {
		b.ReportMetric(c.median(part), unit)
	}
	b.ReportMetric(float64(len(c.took)), "migrations")
	for _, j := range c.jobs {
		j.stop()
	}
}

// next returns the next event of a name, of any job.
func (c *process) next(name string) controller.Event {
	c.t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		select {
		case e, ok := <-c.events:
			switch {
			case !ok:
				c.t.Fatalf("the controller ended before %q", name)
			case e.Event == name:
				return e
			case e.Event == "error" || e.Event == "refused" || e.Event == "ended":
				c.t.Fatalf("before %q: %s of job %d: %s", name, e.Event, e.Job, e.Error)
			}
		case <-timeout:
			c.t.Fatalf("no %q after a minute", name)
		}
	}
}
