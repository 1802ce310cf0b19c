package background_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/paramservice/background"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

func TestMain(m *testing.M) {
	noNamespaces = netnstest.Main(netnstest.Parts{"node": node.Main, "background": background.Main})
	if lo, err := netlink.LinkByName("lo"); noNamespaces == nil && err == nil {
		netlink.LinkSetUp(lo) // tests that need it fail otherwise
	}
	os.Exit(m.Run())
}

// rate is 60 Gbit/s, what RDMA gets of the paper's 100, shrunk shrink times, as models are.
const (
	shrink = 1000
	rate   = 60e9 / shrink
)

// lab is an emulation: hosts a1 and so on for Aggregators, w1 and so on for workers, and a sink, on one switch.
type lab struct {
	t     testing.TB
	ctx   context.Context
	inv   *inventory.Inventory
	hosts map[string]hosts.Host
	spare []string // hosts for Aggregators that have none
	wg    sync.WaitGroup
}

func newLab(t testing.TB, aggregators, workers int) *lab {
	t.Helper()
	testbedtest.Require(t, "netns", noNamespaces)
	inv := &inventory.Inventory{Name: "star", Switches: []inventory.Switch{{Name: "sw", Kind: inventory.Soft, Aggregators: 16}}}
	add := func(name string, rate inventory.BitRate) {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: name, NICs: []inventory.NIC{{
			Device: "ens1", Switch: "sw", Port: uint32(len(inv.Hosts) + 1), Rate: rate, Delay: 50 * time.Microsecond,
		}}})
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &lab{t: t, ctx: ctx, hosts: map[string]hosts.Host{}}
	for i := range aggregators {
		l.spare = append(l.spare, fmt.Sprint("a", i+1))
		add(l.spare[i], rate)
	}
	for i := range workers {
		add(fmt.Sprint("w", i+1), rate)
	}
	add("sink", 4*rate)
	f, err := netns.Up(ctx, inv, netns.Options{Queue: "drr-flow", Seed: 1, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	l.inv = f.Inventory()
	t.Cleanup(func() {
		cancel()
		for _, c := range l.hosts {
			c.Close()
		}
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
		l.wg.Wait()
	})
	var routes []p4.Route
	for i, h := range l.inv.Hosts {
		c, err := reach.Dial(ctx, reach.To(l.inv, h), reach.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l.hosts[h.Name] = c
		nic := h.NICs[0]
		routes = append(routes, p4.Route{Dst: nic.Address.Addr().As4(), Port: uint32(i + 1), MAC: [6]byte(f.HostMAC(h.Name, nic.Device))})
	}
	s := l.inv.Switches[0]
	sw, err := p4rt.Dial(ctx, s.Name, s.Control, s.DeviceID, p4rt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sw.Close(context.Background()) })
	if err := sw.Push(ctx, dataplane.Pipeline{Info: p4.Info()}); err != nil {
		t.Fatal(err)
	}
	if err := sw.WriteRoutes(ctx, routes); err != nil {
		t.Fatal(err)
	}
	return l
}

// address is a host's on the data network.
func (l *lab) address(host string) string {
	h, _ := l.inv.Host(host)
	return h.NICs[0].Address.Addr().String()
}

// process is one on a host.
type process struct {
	p    *hosts.Process
	done chan struct{}
}

// start starts a part of this binary on a host; take is told what it says, line by line.
func (l *lab) start(host, part string, cfg any, take func(line []byte)) *process {
	l.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	p, err := l.hosts[host].Start(context.Background(), []string{exe, part}, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := json.NewEncoder(p.Stdin).Encode(cfg); err != nil {
		l.t.Fatal(err)
	}
	c := &process{p: p, done: make(chan struct{})}
	l.wg.Go(func() {
		defer close(c.done)
		in := bufio.NewScanner(p.Stdout)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			take(in.Bytes())
		}
	})
	return c
}

// stop has it end, and waits until it has.
func (p *process) stop() {
	p.p.Stdin.Close()
	<-p.done
}

// news is what is waited for.
type news struct {
	mu      sync.Mutex
	changed chan struct{}
}

func (n *news) tell(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	if n.changed != nil {
		close(n.changed)
	}
	n.changed = make(chan struct{})
}

// until waits until something is true, and fails after two minutes.
func (n *news) until(t testing.TB, what string, f func() bool) {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		n.mu.Lock()
		ok := f()
		if n.changed == nil {
			n.changed = make(chan struct{})
		}
		changed := n.changed
		n.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// load has flows leave a host for the sink, until the function that is returned is called.
func (l *lab) load(host string, flows int) (stop func()) {
	l.t.Helper()
	var n news
	var address string
	started := false
	take := func(line []byte) {
		var e background.Event
		if err := json.Unmarshal(line, &e); err != nil || e.Event == "error" {
			l.t.Errorf("background on %s: %s", host, line)
		}
		n.tell(func() {
			address = cmp.Or(address, e.Address)
			started = started || e.Event == "started"
		})
	}
	sink := l.start("sink", "background", background.Config{Local: l.address("sink")}, take)
	n.until(l.t, "a sink", func() bool { return address != "" })
	source := l.start(host, "background", background.Config{Local: l.address(host), To: address, Flows: flows}, take)
	n.until(l.t, "background flows", func() bool { return started })
	return func() { source.stop(); sink.stop() }
}

// profile is a job as it is trained here.
type profile struct {
	control.Job
	backward []time.Duration
}

// model is a job with a model of the paper, shrunk; times faster, its tensors that much smaller.
func model(t testing.TB, name string, servers, workers int, times float64) profile {
	t.Helper()
	c, err := workload.Load("../../../experiments/models/autops.toml")
	if err != nil {
		t.Fatal(err)
	}
	m, ok := c.Lookup(name)
	if !ok {
		t.Fatalf("no model %q", name)
	}
	p := profile{Job: control.Job{Name: name, Servers: servers, Workers: workers, Rate: 0.01}}
	var step time.Duration
	var bytes int64
	for _, layer := range m.Layers {
		step += layer.Compute
		bytes += layer.Bytes
	}
	const slice = 16 << 20
	for _, layer := range m.Layers {
		n := (layer.Bytes + slice - 1) / slice
		for i := range n {
			b := layer.Bytes / n
			p.Tensors = append(p.Tensors, control.Tensor{
				Elements: max(1, int(float64(b)/4/shrink/times)),
				// VGG19's server is busy for 16 % of the time (Figure 2).
				Work: time.Duration(0.16 * float64(step) / times * float64(b) / float64(bytes)),
			})
			compute := time.Duration(0)
			if i == 0 {
				compute = time.Duration(float64(layer.Compute) / times)
			}
			p.backward = append(p.backward, compute)
		}
	}
	slices.Reverse(p.Tensors) // the last one of a model is ready first
	slices.Reverse(p.backward)
	return p
}

const seed = 5

// training is a job that trains.
type training struct {
	news
	l       *lab
	workers []*process
	its     []client.Iteration // of worker 0
	digests []string
	ending  bool
}

// train starts a job's workers.
func (l *lab) train(p profile, cfg node.Config, servers []control.Peer, iterations int) *training {
	l.t.Helper()
	tr := &training{l: l}
	for rank := range int32(p.Workers) {
		host := fmt.Sprint("w", rank+1)
		cfg := cfg
		cfg.Local = l.address(host)
		cfg.Worker = &node.Worker{Job: p.Job, Rank: rank, Servers: servers, Iterations: iterations, Backward: p.backward, Report: 1, Seed: seed}
		tr.workers = append(tr.workers, l.start(host, "node", cfg, func(line []byte) {
			var e node.Event
			err := json.Unmarshal(line, &e)
			tr.tell(func() {
				switch {
				case err != nil || e.Event == "error" && !tr.ending:
					l.t.Errorf("worker %d: %s", rank, line)
				case e.Event == "iteration" && rank == 0:
					tr.its = append(tr.its, *e.Iteration)
				case e.Event == "done":
					tr.digests = append(tr.digests, e.Digest)
				}
			})
		}))
	}
	return tr
}

// past waits until worker 0 has done so many iterations more, and says how many there are.
func (tr *training) past(more int) (n int) {
	tr.l.t.Helper()
	first := true
	tr.until(tr.l.t, fmt.Sprint(more, " iterations"), func() bool {
		if first {
			n, first = len(tr.its)+more, false
		}
		return len(tr.its) >= n
	})
	return n
}

// speed is iterations per s of the next ones, so many.
func (tr *training) speed(iterations int) float64 {
	tr.l.t.Helper()
	n := tr.past(iterations + 1)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return between(tr.its[n-iterations-1 : n])
}

// between is iterations per s, by the one in the middle: what else this machine does makes some longer.
func between(its []client.Iteration) float64 {
	its = slices.SortedFunc(slices.Values(its), func(a, b client.Iteration) int { return cmp.Compare(a.Spent, b.Spent) })
	return 1 / its[len(its)/2].Spent.Seconds()
}

func (tr *training) stop() {
	tr.tell(func() { tr.ending = true })
	for _, w := range tr.workers {
		w.stop()
	}
}

// service is a pMaster in this process, and Aggregators on hosts.
type service struct {
	news
	l       *lab
	m       *pmaster.Master
	server  interface{ Stop() }
	address string
	events  []pmaster.Event
	seen    []paramservice.Observation
	loaded  int              // of these, before there were background flows
	on      map[int32]string // hosts of Aggregators
}

func (l *lab) serve(plan paramservice.MasterOptions) *service {
	l.t.Helper()
	s := &service{l: l, on: map[int32]string{}}
	ip, err := l.hosts["w1"].Local()
	if err != nil {
		l.t.Fatal(err)
	}
	s.m, err = pmaster.New(pmaster.Config{Plan: plan, Pool: s, State: filepath.Join(l.t.TempDir(), "epoch"), Lease: 10 * time.Second, Times: patience,
		Emit:     func(e pmaster.Event) { s.tell(func() { s.events = append(s.events, e) }) },
		Observed: func(_ string, o paramservice.Observation) { s.tell(func() { s.seen = append(s.seen, o) }) }})
	if err != nil {
		l.t.Fatal(err)
	}
	lis, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
	if err != nil {
		l.t.Fatal(err)
	}
	srv := pmaster.NewServer(s.m)
	s.address, s.server = lis.Addr().String(), srv
	l.wg.Go(func() { _ = srv.Serve(lis) })
	return s
}

// patience is that of nodes with others: this machine may be busy, and links are.
var patience = migrate.Times{Resend: 200 * time.Millisecond, Attempts: 20}

func (s *service) close() {
	s.l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.m.Close(ctx); err != nil {
		s.l.t.Error(err)
	}
	s.server.Stop()
}

// allocated is an Aggregator on a host.
type allocated struct {
	s *service
	*process
	host string
}

// Start implements pmaster.Pool: each on a host of its own.
func (s *service) Start(_ context.Context, id int32) (pmaster.Process, error) {
	a := &allocated{s: s}
	s.tell(func() {
		if len(s.l.spare) > 0 {
			a.host, s.l.spare = s.l.spare[0], s.l.spare[1:]
			s.on[id] = a.host
		}
	})
	if a.host == "" {
		return nil, fmt.Errorf("no host for Aggregator %d", id)
	}
	cfg := node.Config{Master: s.address, Local: s.l.address(a.host), Times: patience, Aggregator: &node.Aggregator{ID: id, Report: 100 * time.Millisecond}}
	a.process = s.l.start(a.host, "node", cfg, func([]byte) {})
	return a, nil
}

// Done implements pmaster.Process.
func (a *allocated) Done() <-chan struct{} { return a.done }

// Stop implements pmaster.Process.
func (a *allocated) Stop(context.Context) error {
	a.stop()
	a.s.tell(func() { a.s.l.spare = append(a.s.l.spare, a.host) })
	return nil
}

// begin registers a job, and has it train until it is where it is to be.
func (s *service) begin(p profile, iterations int) (*training, control.Job) {
	s.l.t.Helper()
	j, err := s.m.Submit(s.l.ctx, p.Job)
	if err != nil {
		s.l.t.Fatal(err)
	}
	p.Job = j
	tr := s.l.train(p, node.Config{Master: s.address, Times: patience}, nil, iterations)
	s.until(s.l.t, "a profile", func() bool { return s.has("profiled", "") > 0 })
	s.settled(tr)
	return tr, j
}

// settled waits until the job's tensors are where they are to be.
func (s *service) settled(tr *training) (at []int32) {
	s.l.t.Helper()
	for {
		st, err := s.m.Statistics()
		if err != nil {
			s.l.t.Fatal(err)
		}
		if len(st.Jobs) == 0 {
			s.l.t.Fatalf("the job has ended: %v", s.log())
		}
		if st.Jobs[0].State == "training" {
			return st.Jobs[0].At
		}
		tr.past(1)
	}
}

// has counts events. The caller has the lock.
func (s *service) has(event, verdict string) (n int) {
	for _, e := range s.events {
		if e.Event == event && (verdict == "" || e.Verdict == verdict) {
			n++
		}
	}
	return n
}

// log is what has happened, for errors.
func (s *service) log() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		out = append(out, fmt.Sprintf("%.2f s %s %s %v (speed %.2f) %s", e.T, e.Event, e.Verdict, e.Interfered, e.Speed, e.Why))
	}
	return out
}

// heaviest is the Aggregator with the most bytes of a job.
func heaviest(p control.Job, at []int32) (most int32) {
	bytes := map[int32]int64{}
	most = at[0]
	for i, id := range at {
		if bytes[id] += p.Tensors[i].Bytes(); bytes[id] > bytes[most] {
			most = id
		}
	}
	return most
}

// A job's Aggregator is interfered with: its tensors go where nobody interferes, and what it has
// learned in the end is right, bit for bit.
func TestInterference(t *testing.T) {
	proof.Only(t, "seven hosts")
	l := newLab(t, 3, 2)
	plan := paramservice.DefaultMaster()
	plan.Aggregators, plan.Iterations, plan.LowPerf = 3, 10, 0.5 // of a busy machine, too
	s := l.serve(plan)
	defer s.close()
	p := profile{Job: control.Job{Name: "small", Servers: 2, Workers: 2, Rate: 0.01}}
	for range 6 {
		p.Tensors = append(p.Tensors, control.Tensor{Elements: 2500, Work: 100 * time.Microsecond})
		p.backward = append(p.backward, 2*time.Millisecond)
	}
	const iterations = 1200
	tr, j := s.begin(p, iterations)
	bad := heaviest(p.Job, s.settled(tr))
	stop := l.load(s.on[bad], 32)
	s.until(t, "tensors leave the Aggregator", func() bool { return s.has("verdict", "evacuated") > 0 })
	if at := s.settled(tr); slices.Contains(at, bad) {
		t.Errorf("tensors at %v, and %d is interfered with", at, bad)
	}
	stop()
	tr.until(t, "the end", func() bool { return len(tr.digests) == p.Workers })
	p.Job = j
	want := node.Digest(client.Models(p.Job, seed, iterations))
	for rank, got := range tr.digests {
		if got != want {
			t.Errorf("worker %d: models %s, not %s", rank, got, want)
		}
	}
	for _, w := range tr.workers {
		w.stop()
	}
}
