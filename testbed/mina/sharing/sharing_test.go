package sharing

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/mina/commit"
	"github.com/inabench/inabench/testbed/mina/sharing/wire"
)

var (
	updates = flag.Int("sharing.updates", 400, "committed updates in TestKills")
	loss    = flag.Float64("sharing.loss", 0.05, "part of the messages that TestKills loses; 0: nobody is killed either")
	seed    = flag.Uint64("sharing.seed", 1, "of faults and of who is killed")
)

// asHost makes the test binary a host of a job.
const asHost = "INABENCH_SHARING_TEST_HOST"

func TestMain(m *testing.M) {
	if os.Getenv(asHost) != "" {
		if err := train(os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(m.Run())
}

var (
	cost = tree.Cost{Latency: 50e-6, Bandwidth: 1e9, Ratio: 2}
	ops  = []tree.Op{{Start: 0.001, Bytes: 3e6}, {Start: 0.003, Bytes: 3e6}}
	step = 0.006
	// As in the default, for a machine that is slow to answer.
	times = commit.Times{Resend: 15 * time.Millisecond, Attempts: 8, Interval: 5 * time.Millisecond, Lease: 200 * time.Millisecond}
	// Nobody is taken for dead, however slow the machine is.
	patient = commit.Times{Resend: 100 * time.Millisecond, Attempts: 200, Interval: 5 * time.Millisecond, Lease: 30 * time.Second}
)

// network is one that fails: each message is lost, comes twice, or is late, independently of others.
type network struct {
	Seed  uint64
	Loss  float64       // part of the messages that is lost
	Twice float64       // part that comes twice
	Late  float64       // part that is late
	Delay time.Duration // by up to so much
}

func (n network) faults() faults {
	rng := rand.New(rand.NewPCG(n.Seed, 0x6d696e61))
	return func() []time.Duration {
		if rng.Float64() < n.Loss {
			return nil
		}
		copies := make([]time.Duration, 1, 2)
		if rng.Float64() < n.Twice {
			copies = copies[:2]
		}
		for i := range copies {
			if rng.Float64() < n.Late {
				copies[i] = time.Duration(rng.Float64() * float64(n.Delay))
			}
		}
		return copies
	}
}

// trainer is what a host process gets on its stdin, which stays open.
type trainer struct {
	Switches string // where the fabric is
	Log      string
	Config   HostConfig
	Network  network
}

// train is a host of a job: it computes and reduces until its stdin ends, the switches
// turn it away or it is killed.
func train(in io.Reader) error {
	var c trainer
	stdin := bufio.NewReader(in)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &c); err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, stdin)
		os.Exit(0)
	}()
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c.Config.Log, c.Config.faults = NewLog(log), c.Network.faults()
	h, err := Join(c.Config)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Learned(step, ops); err != nil {
		return err
	}
	conn, err := net.Dial("tcp", c.Switches)
	if err != nil {
		return err
	}
	defer conn.Close()
	out, answers := json.NewEncoder(conn), json.NewDecoder(conn)
	pass := packet{Job: c.Config.Job, Rank: c.Config.Rank, Run: c.Config.Run}
	for {
		began := time.Now()
		for _, o := range ops {
			time.Sleep(time.Until(began.Add(seconds(o.Start))))
			op, ina, err := h.Next(context.Background())
			if err != nil {
				return err
			}
			pass.Op, pass.INA, pass.End = op, ina, false
			if out.Encode(pass) != nil || answers.Decode(&pass) != nil {
				return nil // the run is over
			}
			used := pass.INA
			time.Sleep(seconds(cost.Duration(o.Bytes, 2, used)))
			pass.End = true
			if out.Encode(pass) != nil || answers.Decode(&pass) != nil {
				return nil
			}
			h.Done(op, used)
		}
		time.Sleep(time.Until(began.Add(seconds(step))))
	}
}

// packet is what a host sends to the fabric at the begin and the end of an all-reduce,
// and what it gets back when all hosts of its job have: INA says whether it is granted.
type packet struct {
	Job, Rank uint32
	Run, Op   uint64
	INA, End  bool
}

// fabric is the network of the jobs: an all-reduce begins and ends when all hosts do, and
// one job at a time holds the switches.
type fabric struct {
	lis net.Listener
	log *Log
	wg  sync.WaitGroup

	mu     sync.Mutex
	jobs   map[uint32]*traffic
	holder uint32
}

type traffic struct {
	hosts   int
	run     uint64
	waiting []*json.Encoder
	conns   []net.Conn
	asked   int
}

func newFabric(t *testing.T, log *Log) *fabric {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fabric{lis: lis, log: log, jobs: map[uint32]*traffic{}}
	f.wg.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			f.wg.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		lis.Close()
		f.mu.Lock()
		for _, j := range f.jobs {
			j.end()
		}
		f.mu.Unlock()
		f.wg.Wait()
	})
	return f
}

func (j *traffic) end() {
	for _, c := range j.conns {
		c.Close()
	}
	j.conns, j.waiting, j.asked = nil, nil, 0
}

// begin is a run of a job: hosts of earlier ones are cut off.
func (f *fabric) begin(job uint32, hosts int, run uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if j := f.jobs[job]; j != nil {
		j.end()
	}
	f.jobs[job] = &traffic{hosts: hosts, run: run}
}

// delete is what the controller has the switches do with the tree of a job that is out.
func (f *fabric) delete(job uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holder == job {
		f.log.Write(Entry{What: Freed, Job: job})
		f.holder = 0
	}
}

func (f *fabric) serve(conn net.Conn) {
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	known := false
	for {
		var p packet
		if in.Decode(&p) != nil {
			return
		}
		f.mu.Lock()
		j := f.jobs[p.Job]
		if j == nil || j.run != p.Run {
			f.mu.Unlock()
			return
		}
		if !known {
			known = true
			j.conns = append(j.conns, conn)
		}
		j.waiting = append(j.waiting, out)
		if p.INA {
			j.asked++
		}
		if len(j.waiting) == j.hosts {
			answer := p
			if p.End {
				if f.holder == p.Job {
					f.log.Write(Entry{What: Freed, Job: p.Job, Run: p.Run, Index: p.Op})
					f.holder = 0
				}
			} else if answer.INA = j.asked == j.hosts && f.holder == 0; answer.INA {
				f.log.Write(Entry{What: Held, Job: p.Job, Run: p.Run, Index: p.Op})
				f.holder = p.Job
			}
			for _, w := range j.waiting {
				w.Encode(answer)
			}
			j.waiting, j.asked = j.waiting[:0], 0
		}
		f.mu.Unlock()
	}
}

// watch hands over what is written to a log.
type watch struct {
	w  io.Writer
	to func(Entry)
}

func (w *watch) Write(line []byte) (int, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err == nil {
		w.to(e)
	}
	return w.w.Write(line)
}

// cluster is jobs of two hosts each, as processes, and their controller.
type cluster struct {
	t      *testing.T
	dir    string
	fabric *fabric
	ctrl   *Controller
	cfg    ControllerConfig
	groups []Group
	net    network

	procs map[commit.Node]*exec.Cmd
	pipes map[commit.Node]io.Closer
	runs  map[uint32]uint64
}

func (c *cluster) start(job uint32) {
	c.t.Helper()
	const hosts = 2
	for rank := range uint32(hosts) {
		c.kill(commit.Node{Job: job, Rank: rank})
	}
	c.runs[job]++
	run := c.runs[job]
	c.fabric.begin(job, hosts, run)
	for rank := range uint32(hosts) {
		n := commit.Node{Job: job, Rank: rank}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asHost+"=1")
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			c.t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			c.t.Fatal(err)
		}
		lossy := c.net
		lossy.Seed = lossy.Seed<<20 + run<<8 + uint64(job)<<4 + uint64(rank)
		if err := json.NewEncoder(stdin).Encode(trainer{
			Switches: c.fabric.lis.Addr().String(),
			Log:      filepath.Join(c.dir, fmt.Sprintf("host-%d-%d-%d.log", job, rank, run)),
			Config: HostConfig{
				Controller: c.ctrl.Address(), Listen: "127.0.0.1:0", Job: job, Rank: rank, Hosts: hosts, Run: run,
				Times: times, Report: 50 * time.Millisecond,
			},
			Network: lossy,
		}); err != nil {
			c.t.Fatal(err)
		}
		c.procs[n], c.pipes[n] = cmd, stdin
	}
}

// kill ends a process at once, if there is one.
func (c *cluster) kill(n commit.Node) {
	if p := c.procs[n]; p != nil {
		p.Process.Kill()
		p.Wait()
		c.pipes[n].Close()
		delete(c.procs, n)
	}
}

func (c *cluster) file(name string) io.Writer {
	f, err := os.OpenFile(filepath.Join(c.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { f.Close() })
	return f
}

// check reads all logs.
func (c *cluster) check() (Summary, error) {
	names, err := filepath.Glob(filepath.Join(c.dir, "*.log"))
	if err != nil {
		return Summary{}, err
	}
	var logs []io.Reader
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return Summary{}, err
		}
		defer f.Close()
		logs = append(logs, f)
	}
	return Check(logs...)
}

func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "none"
	}
	slices.Sort(d)
	return fmt.Sprintf("median %v, max %v of %d", d[len(d)/2].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond), len(d))
}

// Two jobs of two hosts that share the switches, processes all, while updates are made one
// after the other, a twentieth of all messages is lost and others come twice or late, a host
// is killed every hundred updates and the controller forgets everything now and then. The
// logs tell whether anything went wrong.
func TestKills(t *testing.T) {
	updates, lossy := *updates, network{Seed: *seed, Loss: *loss, Twice: 0.02, Late: 0.02, Delay: 30 * time.Millisecond}
	if !proof.Wanted() {
		updates = min(updates, 120)
	}
	if lossy.Loss == 0 {
		lossy = network{}
	}
	t.Logf("-sharing.seed %d -sharing.updates %d -sharing.loss %v", *seed, updates, *loss)
	rng := rand.New(rand.NewPCG(*seed, 0))
	c := &cluster{
		t: t, dir: t.TempDir(), net: lossy,
		procs: map[commit.Node]*exec.Cmd{}, pipes: map[commit.Node]io.Closer{}, runs: map[uint32]uint64{},
		groups: []Group{{{Job: 1, Hosts: 2}, {Job: 2, Hosts: 2}}},
	}
	c.fabric = newFabric(t, NewLog(c.file("switches.log")))
	events := make(chan Entry, 1024)
	c.cfg = ControllerConfig{
		Listen: "127.0.0.1:0", Cost: cost, Times: times, Silence: 400 * time.Millisecond,
		Out: func(job uint32, _ uint64, _ string) { c.fabric.delete(job) },
		Log: NewLog(&watch{w: c.file("controller.log"), to: func(e Entry) {
			select {
			case events <- e:
			default:
			}
		}}),
	}
	restart := func() {
		if c.ctrl != nil {
			c.cfg.Listen = c.ctrl.Address()
			c.ctrl.Close()
		}
		c.cfg.Epoch++
		lossy.Seed++
		c.cfg.faults = lossy.faults()
		var err error
		if c.ctrl, err = NewController(c.cfg); err != nil {
			t.Fatal(err)
		}
		if err := c.ctrl.Share(c.groups); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	defer func() {
		c.ctrl.Close()
		for n := range c.procs {
			c.kill(n)
		}
	}()
	c.start(1)
	c.start(2)
	began := time.Now()
	deadline := time.After(time.Duration(updates)*500*time.Millisecond + 2*time.Minute)
	var moved, back []time.Duration
	var victim commit.Node // who is dead and has not been replaced
	var killed, replaced time.Time
	kills, commits, together, restarts := 0, 0, 0, 0
	kill := func() {
		if commits < (kills+1)*100 || !killed.IsZero() || !replaced.IsZero() || lossy.Loss == 0 {
			return
		}
		kills++
		victim, killed = commit.Node{Job: 1 + rng.Uint32N(2), Rank: rng.Uint32N(2)}, time.Now()
		if kills%2 == 0 {
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond) // anywhere in the protocol
		}
		c.kill(victim)
	}
	for commits < updates {
		var e Entry
		select {
		case e = <-events:
		case <-deadline:
			t.Fatalf("%d of %d updates in %v; %+v", commits, updates, time.Since(began), c.ctrl.Status())
		}
		switch e.What {
		case commit.Committed.String():
			commits++
			if commits >= 150+restarts*500 && lossy.Loss > 0 && killed.IsZero() && replaced.IsZero() {
				restarts++
				restart() // some hosts have been told, others are in doubt
			}
			if len(e.Jobs) == 2 {
				together++
				if !replaced.IsZero() && killed.IsZero() {
					back = append(back, time.Since(replaced))
					replaced = time.Time{}
				}
			}
			if !killed.IsZero() && !slices.Contains(e.Jobs, victim.Job) && len(e.Jobs) > 0 {
				moved = append(moved, time.Since(killed))
				killed, replaced = time.Time{}, time.Now()
				c.start(victim.Job)
			}
		case commit.Begun.String(): // every other one is killed when it has just locked or is about to
			if kills%2 > 0 {
				kill()
			}
		case commit.Closed.String():
			if kills%2 == 0 {
				kill()
			}
			c.ctrl.Change()
		}
	}
	took := time.Since(began)
	for n := range c.procs {
		c.kill(n)
	}
	c.ctrl.Close()
	s, err := c.check()
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d updates in %.1f s, %d of them with both jobs, %d kills, %d epochs of the controller", commits, took.Seconds(), together, kills, s.Epochs)
	t.Logf("aborted %v; taken out %v", s.Aborted, s.Out)
	t.Logf("the group moved on without the dead: %s; with them again: %s", spread(moved), spread(back))
	t.Logf("%d operations in %d runs of hosts, of which %d ended while locked; %d asked for INA, %d had it; %d states taken over", s.Operations, s.Runs, s.Interrupted, s.Asked, s.Used, s.Applied)
	t.Logf("a message was sent at most %d times, a host in doubt asked at most %d times (%d in all, %d fenced)", s.Sent, s.Asks, s.InDoubt, s.Fenced)
	waited := 0
	for _, w := range s.Waits {
		if w > 0 {
			waited++
		}
	}
	t.Logf("stalls of operations: %d of %d waited; p50 %v, p90 %v, p99 %v, p99.9 %v, max %v; locks: median %v, longest %v",
		waited, len(s.Waits), s.Percentile(0.5), s.Percentile(0.9), s.Percentile(0.99), s.Percentile(0.999), s.Percentile(1), s.Median, s.LongestLock)
	if s.Committed < updates || s.Operations == 0 || s.Asked == 0 || s.Used == 0 || together == 0 {
		t.Errorf("%+v: nothing was shared", s)
	}
	if s.Sent > times.Attempts {
		t.Errorf("a message was sent %d times, want at most %d", s.Sent, times.Attempts)
	}
	if len(moved) == 0 && kills > 1 {
		t.Error("nobody ever moved on")
	}
}

// A checker that finds nothing wrong in wrong logs would be worth nothing.
func TestCheck(t *testing.T) {
	txn := commit.Txn{Epoch: 1, Seq: 1}
	log := func(entries ...Entry) io.Reader {
		var b bytes.Buffer
		l := NewLog(&b)
		for _, e := range entries {
			l.Write(e)
		}
		return &b
	}
	e := func(what string, rank uint32, t commit.Txn, index uint64, ina bool) Entry {
		return Entry{What: what, Job: 1, Rank: rank, Run: 1, Txn: t, Index: index, INA: ina}
	}
	none := commit.Txn{}
	ctrl := []Entry{{What: "committed", Txn: txn, Jobs: []uint32{1}}}
	good := func(rank uint32) []Entry {
		return []Entry{e("operation", rank, none, 0, false), e("locked", rank, txn, 0, false), e("applied", rank, txn, 0, false), e("operation", rank, txn, 1, true), e("ended", rank, none, 1, true)}
	}
	for _, tt := range []struct {
		name string
		logs []io.Reader
		bad  bool
	}{
		{"all is well", []io.Reader{log(ctrl...), log(good(0)...), log(good(1)...)}, false},
		{"a host was killed while it wrote", []io.Reader{log(ctrl...), io.MultiReader(log(good(0)...), bytes.NewReader([]byte(`{"t":12`)))}, false},
		{"hosts differ on asking", []io.Reader{log(e("operation", 0, none, 0, false)), log(e("operation", 1, none, 0, true))}, true},
		{"hosts differ on having had it", []io.Reader{log(e("ended", 0, none, 0, false)), log(e("ended", 1, none, 0, true))}, true},
		{"hosts differ on the state", []io.Reader{log(ctrl...), log(good(0)...), log(e("operation", 1, none, 0, false), e("operation", 1, none, 1, true))}, true},
		{"a locked host goes on", []io.Reader{log(e("locked", 0, txn, 0, false), e("operation", 0, none, 0, false))}, true},
		{"a state from nowhere", []io.Reader{log(e("operation", 0, txn, 0, false))}, true},
		{"a state that was not committed", []io.Reader{log(good(0)...)}, true},
		{"an operation is left out", []io.Reader{log(e("operation", 0, none, 1, false))}, true},
		{"committed and aborted", []io.Reader{log(ctrl...), log(Entry{What: "aborted", Txn: txn})}, true},
		{"two hold the switches", []io.Reader{log(e("operation", 0, none, 0, true), Entry{What: "operation", Job: 2, Run: 1, INA: true}),
			log(Entry{What: "held", Job: 1, Run: 1}, Entry{What: "held", Job: 2, Run: 1})}, true},
		{"held without having asked", []io.Reader{log(Entry{What: "held", Job: 1, Run: 1})}, true},
		{"not a log", []io.Reader{bytes.NewReader([]byte("{}x\n"))}, true},
	} {
		if _, err := Check(tt.logs...); (err != nil) != tt.bad || err != nil && !errors.Is(err, ErrLog) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// member is a host in this process, which reduces as fast as it can until it is closed.
func member(t *testing.T, cfg HostConfig) *Host {
	t.Helper()
	cfg.Listen, cfg.Report = "127.0.0.1:0", 20*time.Millisecond
	if cfg.Times == (commit.Times{}) {
		cfg.Times = patient
	}
	h, err := Join(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// controller is one whose entries come out of a channel.
func controller(t *testing.T, cfg ControllerConfig) (*Controller, <-chan Entry) {
	t.Helper()
	events := make(chan Entry, 4096)
	cfg.Listen, cfg.Cost = "127.0.0.1:0", cost
	if cfg.Times == (commit.Times{}) {
		cfg.Times, cfg.Silence = patient, 20*time.Second
	}
	cfg.Log = NewLog(&watch{w: io.Discard, to: func(e Entry) { events <- e }})
	c, err := NewController(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, events
}

// await is the next entry that is wanted.
func await(t *testing.T, events <-chan Entry, what string, want func(Entry) bool) Entry {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e := <-events:
			if want(e) {
				return e
			}
		case <-timeout:
			t.Fatalf("it never happened: %s", what)
		}
	}
}

func committed(jobs ...uint32) func(Entry) bool {
	return func(e Entry) bool { return e.What == "committed" && slices.Equal(e.Jobs, jobs) }
}

// A host that reports but never answers Prepare: the transaction is aborted, its job is
// taken out, and the others go on.
func TestSilentHost(t *testing.T) {
	outs := make(chan uint32, 64)
	c, events := controller(t, ControllerConfig{Times: times, Out: func(job uint32, _ uint64, why string) { outs <- job }})
	if err := c.Share([]Group{{{Job: 1, Hosts: 1}, {Job: 2, Hosts: 1}}}); err != nil {
		t.Fatal(err)
	}
	member(t, HostConfig{Controller: c.Address(), Job: 1, Hosts: 1, Run: 1})
	mute := commit.NewHost(commit.Node{Job: 2}, 1, 1, times)
	p, err := newPost("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.serve(func(*wire.Message) {})
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			var out commit.Output
			mute.Report(&out)
			m := toWire(&out.Messages[0])
			m.Life, m.Address, m.Body = 1, p.address(), []byte("{}")
			p.send(c.Address(), m)
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	defer func() {
		close(stop)
		done.Wait()
		p.close()
	}()
	for range 2 { // it comes back into the group, as it reports, and is taken out again
		await(t, events, "abort", func(e Entry) bool { return e.What == "aborted" && e.Why == "silent" })
		for job := range outs {
			if job == 2 {
				break
			}
			t.Logf("job %d was slow, and taken out", job)
		}
		await(t, events, "commit without the silent host", committed(1))
	}
}

// Jobs and hosts come and go; who is alone asks each time, who shares asks by the timetable,
// and who has left its group asks by what it was told last.
func TestJoinAndLeave(t *testing.T) {
	c, events := controller(t, ControllerConfig{})
	hosts := map[commit.Node]*Host{}
	join := func(job uint32, run uint64, hostsOf int) {
		for rank := range uint32(hostsOf) {
			h := member(t, HostConfig{Controller: c.Address(), Job: job, Rank: rank, Hosts: hostsOf, Run: run})
			if err := h.Learned(step, ops); err != nil {
				t.Fatal(err)
			}
			hosts[commit.Node{Job: job, Rank: rank}] = h
		}
	}
	next := func(n commit.Node) bool {
		op, ina, err := hosts[n].Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hosts[n].Done(op, ina)
		return ina
	}
	share := func(groups ...Group) {
		if err := c.Share(groups); err != nil {
			t.Fatal(err)
		}
	}
	one, two := Member{Job: 1, Hosts: 2}, Member{Job: 2, Hosts: 1}
	join(1, 1, 2)
	for rank := range uint32(2) {
		if next(commit.Node{Job: 1, Rank: rank}) {
			t.Errorf("rank %d asks for INA before it has been told anything", rank)
		}
	}
	share(Group{one, two})
	e := await(t, events, "job 1 alone", committed(1))
	arrived := func(n commit.Node, txn commit.Txn) {
		t.Helper()
		for end := time.Now().Add(time.Minute); hosts[n].State().Compare(txn) < 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%v never came to %v", txn, n)
			}
		}
	}
	arrived(commit.Node{Job: 1}, e.Txn)
	if !next(commit.Node{Job: 1}) {
		t.Error("a job that is alone does not ask for INA")
	}
	next(commit.Node{Job: 1, Rank: 1})
	join(2, 1, 1)
	await(t, events, "both jobs", committed(1, 2))
	// Job 2 starts again, while somebody pretends that it did not.
	hosts[commit.Node{Job: 2}].Close()
	join(2, 2, 1)
	await(t, events, "the old run is out", func(e Entry) bool {
		return e.What == "out" && e.Job == 2 && e.Run == 1 && (e.Why == "restarted" || e.Why == "silent")
	})
	await(t, events, "both jobs again", committed(1, 2))
	// It goes to a group of its own, and both ask each time.
	share(Group{one}, Group{two})
	for waiting := map[uint32]bool{1: true, 2: true}; len(waiting) > 0; { // in any order
		e := await(t, events, "a group of one", func(e Entry) bool { return e.What == "committed" && len(e.Jobs) == 1 })
		delete(waiting, e.Jobs[0])
		arrived(commit.Node{Job: e.Jobs[0]}, e.Txn)
	}
	if !next(commit.Node{Job: 1}) || !next(commit.Node{Job: 2}) {
		t.Error("a job that has left a group does not ask for INA")
	}
	next(commit.Node{Job: 1, Rank: 1})
	for _, s := range c.Status() {
		if !s.In {
			t.Errorf("%+v: it takes no part", s)
		}
	}
	if err := c.Share([]Group{{one}, {one}}); err == nil {
		t.Error("a job is in two groups")
	}
}

// Groups are made anew again and again, while transactions are under way: hosts never differ,
// no two transactions have one number, and nobody is taken for dead.
func TestRegroup(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 1))
	var mu sync.Mutex
	var text bytes.Buffer
	begun := map[commit.Txn]int{}
	log := NewLog(&watch{w: &text, to: func(e Entry) {
		if e.What == "begun" {
			mu.Lock()
			begun[e.Txn]++
			mu.Unlock()
		}
	}})
	c, err := NewController(ControllerConfig{Listen: "127.0.0.1:0", Cost: cost, Times: patient, Silence: 2 * time.Minute, Log: log,
		Out: func(job uint32, run uint64, why string) { t.Errorf("job %d, run %d is out: %s", job, run, why) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	var hosts []*Host
	for job := range uint32(5) {
		for rank := range uint32(2) {
			h := member(t, HostConfig{Controller: c.Address(), Job: job + 1, Rank: rank, Hosts: 2, Run: 1, Times: patient, Log: log})
			hosts = append(hosts, h)
		}
		pair := hosts[len(hosts)-2:]
		done.Go(func() { // one goroutine for both: they begin and end together
			for {
				for _, h := range pair {
					op, ina, err := h.Next(ctx)
					if err != nil {
						return
					}
					h.Done(op, ina)
				}
				select {
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	for range 60 {
		groups := make([]Group, 3)
		for job := range uint32(5) {
			i := rng.IntN(3)
			groups[i] = append(groups[i], Member{Job: job + 1, Hosts: 2})
		}
		if err := c.Share(groups); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // anywhere in a transaction
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		idle := true
		c.do(func() {
			for _, g := range c.groups {
				idle = idle && g.machine.Idle()
			}
		}, true)
		if idle {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it does not settle: %+v", c.Status())
		}
	}
	cancel()
	done.Wait()
	for _, h := range hosts {
		h.Close()
	}
	c.Close()
	for txn, n := range begun {
		if n > 1 {
			t.Errorf("%v was begun %d times", txn, n)
		}
	}
	s, err := Check(&text)
	if err != nil {
		t.Error(err)
	}
	t.Logf("-sharing.seed %d: %d operations, %d committed, aborted %v", *seed, s.Operations, s.Committed, s.Aborted)
}

// Whoever is slow finds each thing once, and the latest report, however often others repeat
// themselves meanwhile.
func TestRepeats(t *testing.T) {
	r := &route{}
	send := func(k commit.Kind, rank uint32, index uint64) {
		m := toWire(&commit.Message{Kind: k, From: commit.Node{Job: 1, Rank: rank}, Run: 1, Index: index})
		if !r.repeats(m) {
			r.waiting = append(r.waiting, m)
		}
	}
	for i := range uint64(100) {
		send(commit.Prepare, 1, 7)
		send(commit.Report, 1, i)
		send(commit.Report, 2, 2*i)
		send(commit.Prepare, 1, 8)
	}
	var got []uint64
	for _, m := range r.waiting {
		got = append(got, m.Index)
	}
	if want := []uint64{7, 99, 198, 8}; !slices.Equal(got, want) {
		t.Errorf("what waits has indices %v, want %v", got, want)
	}
}

// A process that comes back in the same run, without memory, gets nothing, and its job is
// taken out.
func TestSameRunTwice(t *testing.T) {
	c, events := controller(t, ControllerConfig{})
	if err := c.Share([]Group{{{Job: 1, Hosts: 1}}}); err != nil {
		t.Fatal(err)
	}
	h := member(t, HostConfig{Controller: c.Address(), Job: 1, Hosts: 1, Run: 1})
	await(t, events, "the first", committed(1))
	h.Close()
	again := member(t, HostConfig{Controller: c.Address(), Job: 1, Hosts: 1, Run: 1})
	await(t, events, "the job is out", func(e Entry) bool { return e.What == "out" && e.Job == 1 })
	if again.State() != (commit.Txn{}) {
		t.Error("a host has a state in a run that it began twice")
	}
	member(t, HostConfig{Controller: c.Address(), Job: 1, Hosts: 1, Run: 2})
	await(t, events, "the second run", committed(1))
}

// Jobs that drift apart from their timetables get a new one.
func TestDrift(t *testing.T) {
	c, events := controller(t, ControllerConfig{Drift: 0.005, Settle: time.Millisecond})
	if err := c.Share([]Group{{{Job: 1, Hosts: 1}, {Job: 2, Hosts: 1}}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for job := range uint32(2) {
		h := member(t, HostConfig{Controller: c.Address(), Job: job + 1, Hosts: 1, Run: 1})
		if err := h.Learned(step, ops); err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			for {
				op, ina, err := h.Next(ctx)
				if err != nil {
					return
				}
				h.Done(op, ina)
				select {
				case <-time.After(time.Duration(1+10*job) * time.Millisecond): // one keeps its time, the other does not
				case <-ctx.Done():
				}
			}
		})
	}
	await(t, events, "drift", func(e Entry) bool { return e.What == "drift" })
	await(t, events, "a new state", committed(1, 2))
	cancel()
	done.Wait()
}

// A host waits for the lock no longer than until its job has found out that nobody will
// ever tell it more, and a Next that waits ends with its context or its host.
func TestNextWhileLocked(t *testing.T) {
	h := member(t, HostConfig{Controller: "127.0.0.1:1", Job: 1, Hosts: 1, Run: 1, Times: commit.Times{Resend: 15 * time.Millisecond, Attempts: 8, Interval: 5 * time.Millisecond, Lease: time.Second}})
	prepare := func(seq uint64) {
		h.take(toWire(&commit.Message{Kind: commit.Prepare, To: commit.Node{Job: 1}, Run: 1, Txn: commit.Txn{Epoch: 1, Seq: seq}}))
		for {
			h.mu.Lock()
			locked := h.machine.Locked()
			h.mu.Unlock()
			if locked {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	prepare(1)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, _, err := h.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if op, ina, err := h.Next(t.Context()); op != 0 || ina || err != nil {
		t.Errorf("after the lease: %d %v %v", op, ina, err)
	}
	prepare(2)
	time.AfterFunc(10*time.Millisecond, func() { h.Close() })
	if _, _, err := h.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestFixed(t *testing.T) {
	for _, tt := range []struct {
		Decider
		ina bool
	}{{Always(), true}, {Greedy(), true}, {Never(), false}} {
		for want := range uint64(3) {
			if op, ina, err := tt.Next(t.Context()); op != want || ina != tt.ina || err != nil {
				t.Errorf("%d %v %v", op, ina, err)
			}
		}
		tt.Close()
		if _, _, err := tt.Next(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	}
}

// What an operation costs a host that shares: the mutex, the timetable, the clock.
func BenchmarkNext(b *testing.B) {
	c, err := NewController(ControllerConfig{Listen: "127.0.0.1:0", Cost: cost, Times: times})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := c.Share([]Group{{{Job: 1, Hosts: 1}, {Job: 2, Hosts: 1}}}); err != nil {
		b.Fatal(err)
	}
	var hosts []*Host
	for job := range uint32(2) {
		h, err := Join(HostConfig{Controller: c.Address(), Listen: "127.0.0.1:0", Job: job + 1, Hosts: 1, Run: 1, Times: times, Report: 5 * time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		defer h.Close()
		h.Learned(step, ops)
		hosts = append(hosts, h)
	}
	h := hosts[0]
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		ready := h.plan.table != nil
		h.mu.Unlock()
		if ready {
			break
		}
		if time.Now().After(deadline) {
			b.Fatal("there is no timetable")
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		op, ina, err := h.Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		h.Done(op, ina)
	}
}

// What comes as a state is read or refused, and decides on operations in bounded time.
func FuzzState(f *testing.F) {
	f.Add(`{"Cost":{"Latency":5e-05,"Bandwidth":1e9,"Ratio":2},"Jobs":[{"ID":1,"Hosts":2,"Step":1,"Ops":[{"Start":0,"Bytes":1e6}],"Rivals":[1],"Next":3},{"ID":2,"Hosts":2,"Step":1,"Ops":[{"Start":0,"Bytes":1e6}],"Rivals":[0],"Next":1,"Running":true,"Ends":0.1}]}`)
	f.Add(`{"Jobs":[{"ID":1,"Rivals":[]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		p, err := planOf(body, 1)
		if err != nil && (p.alone || p.table != nil) {
			t.Errorf("%v, and a plan", err)
		}
		for op := range uint64(3) {
			p.ask(op)
		}
	})
}

// Messages are what they were after a way over the wire.
func FuzzWire(f *testing.F) {
	f.Add(uint8(1), uint32(1), uint32(2), uint64(3), uint64(4), uint64(5), uint64(6), true, "x")
	f.Fuzz(func(t *testing.T, kind uint8, job, rank uint32, run, epoch, seq, index uint64, applied bool, body string) {
		m := commit.Message{Kind: commit.Kind(kind), From: commit.Node{Job: job, Rank: rank}, To: commit.Node{Job: rank, Rank: job},
			Run: run, Txn: commit.Txn{Epoch: epoch, Seq: seq}, Index: index, Applied: applied, Body: body}
		text, err := proto.Marshal(toWire(&m))
		if err != nil {
			t.Fatal(err)
		}
		var w wire.Message
		if err := proto.Unmarshal(text, &w); err != nil {
			t.Fatal(err)
		}
		if got := fromWire(&w); got != m {
			t.Errorf("%+v, want %+v", got, m)
		}
	})
}
