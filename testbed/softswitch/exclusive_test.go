//go:build linux

package softswitch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/sharp/aggmgr"
)

// fabric is three levels of running switches, controlled through P4Runtime: leaves l1 to
// l4 with four hosts each, of two in a pod below m1 or m2, below the core c. Port 1 of a
// switch goes up.
type fabric struct {
	t        testing.TB
	switches map[string]*Switch
	clients  aggmgr.P4Switches
	hosts    map[string]*host // "l1:2" is the one at port 2 of l1
	jobs     []*treeJob
	start    time.Time
}

// above is where a switch is cabled to the next level.
var above = map[string]struct {
	parent string
	port   uint32
}{"l1": {"m1", 2}, "l2": {"m1", 3}, "l3": {"m2", 2}, "l4": {"m2", 3}, "m1": {"c", 2}, "m2": {"c", 3}}

// treeJob is a job with a worker at each of some hosts.
type treeJob struct {
	id     uint16
	tree   []aggmgr.Entry
	at     []string // hosts by rank
	ws     []*ina.Reducer
	paused bool // its workers send nothing
}

func newFabric(t testing.TB, x *Exclusive, offload bool) *fabric {
	t.Helper()
	needNamespace(t)
	f := &fabric{t: t, switches: map[string]*Switch{}, clients: aggmgr.P4Switches{}, hosts: map[string]*host{}, start: time.Now()}
	ports := map[string][]uint32{"c": {2, 3}, "m1": {1, 2, 3}, "m2": {1, 2, 3}}
	device := func(sw string, port uint32) string { return fmt.Sprintf("%sp%d", sw, port) }
	cable := func(a, b string) {
		v := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: b}
		v.Name, v.TxQLen = a, 1000
		if err := netlink.LinkAdd(v); err != nil {
			t.Fatalf("add veth pair %s: %v", a, err)
		}
		t.Cleanup(func() { netlink.LinkDel(v) })
		for _, name := range []string{a, b} {
			l, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				t.Fatalf("set %s up: %v", name, err)
			}
			switchOffOffloads(t, name, offload)
		}
	}
	for sw, up := range above {
		cable(device(sw, 1), device(up.parent, up.port))
	}
	for i := range 4 {
		leaf := fmt.Sprintf("l%d", i+1)
		ports[leaf] = []uint32{1, 2, 3, 4, 5}
		for _, port := range ports[leaf][1:] {
			name := device(leaf, port)
			cable(name, name+"h")
			d, err := openDevice(name+"h", 1514, 1<<20, offload)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.close)
			f.hosts[fmt.Sprintf("%s:%d", leaf, port)] = &host{dev: d, pool: &pool{size: 1536, left: 1 << 12}}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	t.Cleanup(func() {
		cancel()
		if err := running.Wait(); err != nil {
			t.Error(err)
		}
	})
	for name, numbers := range ports {
		cfg := Config{Name: name, DeviceID: 1, Aggregators: 256, Seed: 1, Exclusive: x, Offload: offload}
		for _, n := range numbers {
			cfg.Ports = append(cfg.Ports, PortConfig{Number: n, Device: device(name, n)})
		}
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() error { return s.Run(ctx) })
		sock := filepath.Join(t.TempDir(), name)
		lis, err := net.Listen("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() error { return ServeP4(ctx, lis, cfg.DeviceID, s) })
		c, err := p4rt.Dial(ctx, name, "unix:"+sock, cfg.DeviceID, p4rt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(context.Background()) })
		if err := c.Push(ctx, dataplane.Pipeline{Info: p4.Info()}); err != nil {
			t.Fatal(err)
		}
		f.switches[name], f.clients[name] = s, c
	}
	return f
}

// job is one with workers at the hosts, and its tree up to the lowest switch above all. base is the first OST.
func (f *fabric) job(id uint16, base int, at ...string) *treeJob {
	f.t.Helper()
	const window, lanes = 8, 21
	j := &treeJob{id: id, at: at}
	nodes := map[string]*aggmgr.Node{}
	for rank, h := range at {
		w, err := ina.NewReducer(ina.WorkerConfig{
			Job: id, Epoch: 1, Rank: rank, Workers: len(at), Lanes: lanes, Window: window, Region: 2 * window, RTO: 10 * time.Millisecond, Seed: 1,
		})
		if err != nil {
			f.t.Fatal(err)
		}
		j.ws = append(j.ws, w)
		sw, port := h[:2], uint32(h[3]-'0')
		for sw != "" {
			n := nodes[sw]
			if n == nil {
				n = &aggmgr.Node{Switch: sw, Parent: above[sw].parent, Up: 1}
				nodes[sw] = n
			}
			if !slices.Contains(n.Down, port) {
				n.Down = append(n.Down, port)
			}
			n.Expect |= 1 << rank
			sw, port = above[sw].parent, above[sw].port
		}
	}
	root := at[0][:2] // the lowest switch with all ranks below
	for nodes[root].Expect != uint64(1)<<len(at)-1 {
		root = above[root].parent
	}
	nodes[root].Parent = ""
	for up := above[root].parent; up != ""; up = above[up].parent {
		delete(nodes, up)
	}
	for _, sw := range slices.Sorted(maps.Keys(nodes)) {
		j.tree = append(j.tree, aggmgr.Entry{Job: id, Epoch: 1, Node: *nodes[sw], Base: base, OSTs: window})
	}
	f.jobs = append(f.jobs, j)
	return j
}

// install gives a job its tree, on all of its switches or on none.
func (f *fabric) install(ctx context.Context, j *treeJob) error {
	var errs []error
	for _, e := range j.tree {
		errs = append(errs, f.clients.Install(ctx, e.Switch, e))
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, f.remove(ctx, j))
	}
	return nil
}

func (f *fabric) remove(ctx context.Context, j *treeJob) error {
	var errs []error
	for _, e := range j.tree {
		errs = append(errs, f.clients.Remove(ctx, e.Switch, e))
	}
	return errors.Join(errs...)
}

// write gives a job its tree.
func (f *fabric) write(j *treeJob) {
	f.t.Helper()
	if err := f.install(f.t.Context(), j); err != nil {
		f.t.Fatal(err)
	}
}

// begin starts an operation on all workers of jobs.
func (f *fabric) begin(packets int64, jobs ...*treeJob) {
	for _, j := range jobs {
		for _, w := range j.ws {
			if err := w.Start(packets, time.Since(f.start)); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// all reports whether all workers of j are in a state.
func (j *treeJob) all(is func(ina.OpState) bool) bool {
	return !slices.ContainsFunc(j.ws, func(w *ina.Reducer) bool { return !is(w.State()) })
}

func (j *treeJob) state(t testing.TB) ina.OpState {
	t.Helper()
	s := j.ws[0].State()
	if !j.all(func(o ina.OpState) bool { return o == s }) {
		t.Errorf("job %d: workers do not agree", j.id)
	}
	return s
}

// drive lets hosts send and receive until something is so.
func (f *fabric) drive(what string, until func() bool) {
	f.t.Helper()
	var fds []unix.PollFd
	for _, h := range f.hosts {
		fds = append(fds, unix.PollFd{Fd: int32(h.dev.fd), Events: unix.POLLIN})
	}
	b := make([]byte, ina.HeaderLen+4*ina.MaxLanes)
	now := func() time.Duration { return time.Since(f.start) }
	for deadline := now() + 60*time.Second; !until(); {
		for _, j := range f.jobs {
			for rank, w := range j.ws {
				for !j.paused {
					n := w.Resend(now(), b)
					if n == 0 {
						n = w.Send(now(), b)
					}
					if n == 0 {
						break
					}
					h, err := ina.ParseHeader(b[:n])
					if err != nil {
						f.t.Fatal(err)
					}
					frame := inaFrame(h, 0)
					copy(frame[payloadAt:], b[:n])
					f.hosts[j.at[rank]].frame(frame)
				}
			}
		}
		for name, h := range f.hosts {
			h.flush(f.t)
			h.dev.receive(256, func(frame []byte, _ int64) {
				id := jobOf(frame)
				for _, j := range f.jobs {
					if rank := slices.Index(j.at, name); j.id == id && rank >= 0 {
						j.ws[rank].Receive(frame[payloadAt:], now())
					}
				}
			})
		}
		if now() > deadline {
			for _, j := range f.jobs {
				for rank, w := range j.ws {
					f.t.Logf("job %d rank %d: %v at PSN %d, %+v", j.id, rank, w.State(), w.Lock(), w.Stats())
				}
			}
			f.t.Fatalf("not in 60 s: %s", what)
		}
		unix.Poll(fds, 1)
	}
}

// finish drives jobs to the end of their operations.
func (f *fabric) finish(jobs ...*treeJob) {
	f.t.Helper()
	f.drive("operations end", func() bool {
		return !slices.ContainsFunc(jobs, func(j *treeJob) bool { return !j.all(ina.OpState.Over) })
	})
}

// hold begins an operation of j and stops its workers where they have the tree.
func (f *fabric) hold(j *treeJob) {
	f.t.Helper()
	f.begin(100, j)
	f.drive("a job has its turn", func() bool { return j.all(func(s ina.OpState) bool { return s >= ina.OpReducing }) })
	j.paused = true
}

func (f *fabric) held() (ids []uint16) {
	for _, s := range f.switches {
		s.lock()
		ids = append(ids, s.engine.ina.Active()...)
		s.mu.Unlock()
	}
	return ids
}

func (f *fabric) counter(sw, name string, job uint16) int64 {
	f.t.Helper()
	v, err := f.clients[sw].ReadCounters(f.t.Context(), []string{name}, []int{int(job)})
	if err != nil || len(v) != 1 {
		f.t.Fatalf("counter %s of %s: %v, %v", name, sw, v, err)
	}
	return v[0].Packets
}

// Jobs take turns with trees of one to three levels that have switches, or only ports, in
// common: who comes while another has its turn is refused, whole, and gets the tree when
// it is given back, or its holder's entries are deleted.
func TestJobsTakeTurns(t *testing.T) {
	for _, resource := range []string{"switch", "port"} {
		t.Run(resource, func(t *testing.T) {
			f := newFabric(t, &Exclusive{Resource: resource, Capacity: 1, Trees: 3}, resource == "port")
			wide := f.job(1, 0, "l1:2", "l2:2", "l3:2", "l4:2") // three levels
			left := f.job(2, 8, "l1:3", "l2:3", "l2:4")         // two, below wide's
			right := f.job(3, 16, "l3:3", "l4:3")               // two, beside left's
			local := f.job(4, 24, "l1:4", "l1:5")               // one switch, its own ports
			for _, j := range f.jobs {
				f.write(j)
			}
			if n := len(wide.tree); n != 7 || len(left.tree) != 3 || len(local.tree) != 1 {
				t.Fatalf("trees of %d, %d and %d switches", n, len(left.tree), len(local.tree))
			}

			f.hold(wide)
			f.begin(50, left, right, local)
			f.finish(left, right, local)
			alone := ina.OpRefused
			if resource == "port" {
				alone = ina.OpDone // no port in common with wide
			}
			for j, want := range map[*treeJob]ina.OpState{left: ina.OpRefused, right: ina.OpRefused, local: alone} {
				if got := j.state(t); got != want {
					t.Errorf("job %d beside job 1 is %v, want %v", j.id, got, want)
				}
			}
			if n := f.counter("l1", "job_conflicts", 2); n != 1 {
				t.Errorf("l1 refused job 2 %d times, want once", n)
			}
			wide.paused = false
			f.finish(wide)

			f.hold(left) // trees of one level of the pods at once
			f.begin(50, right)
			f.finish(right)
			f.begin(50, wide)
			f.finish(wide)
			if left.paused = false; right.state(t) != ina.OpDone || wide.state(t) != ina.OpRefused {
				t.Errorf("beside job 2, job 3 is %v and job 1 %v", right.state(t), wide.state(t))
			}
			f.finish(left)

			f.hold(wide) // and is gone
			if err := f.remove(t.Context(), wide); err != nil {
				t.Fatal(err)
			}
			f.begin(50, left, right)
			f.finish(left, right)
			if left.state(t) != ina.OpDone || right.state(t) != ina.OpDone {
				t.Errorf("after job 1 is gone, job 2 is %v and job 3 %v", left.state(t), right.state(t))
			}
			if ids := f.held(); len(ids) != 0 {
				t.Errorf("jobs %v still have switches", ids)
			}
			f.checkSums(map[*treeJob]int64{left: 150, right: 100})
			for _, name := range []string{"job_locks", "job_refused", "job_inactive"} {
				want := map[string]int64{"job_locks": 2, "job_refused": 1}[name]
				if got := f.counter("m1", name, 2); got != want {
					t.Errorf("%s of job 2 at m1 is %d, want %d", name, got, want)
				}
			}
		})
	}
}

// checkSums wants every value of so many packets checked and right, less of the job
// that is not named.
func (f *fabric) checkSums(packets map[*treeJob]int64) {
	f.t.Helper()
	for j, n := range packets {
		for rank, w := range j.ws {
			if s := w.Stats(); s.Wrong != 0 || s.Checked != 21*n {
				f.t.Errorf("job %d rank %d: %d values checked, %d wrong; want %d", j.id, rank, s.Checked, s.Wrong, 21*n)
			}
		}
	}
}

// Three jobs ask again and again, over cables that lose, duplicate and reorder: each
// reduces all it has, in turns, and every sum is right.
func TestTimeSharingOverDamagedCables(t *testing.T) {
	proof.Only(t, "cables that lose, in every mode")
	f := newFabric(t, &Exclusive{Capacity: 1, Trees: 3}, false)
	jobs := []*treeJob{
		f.job(1, 0, "l1:2", "l2:2", "l3:2", "l4:2"),
		f.job(2, 8, "l1:3", "l2:3"),
		f.job(3, 16, "l4:3", "l2:4", "l3:3"),
	}
	for _, j := range jobs {
		f.write(j)
	}
	for name, s := range f.switches {
		for _, p := range s.engine.ports {
			if err := s.SetImpair(p.number, "egress", Impair{Loss: .02, Duplicate: .02, Reorder: .1, ReorderBy: 300 * time.Microsecond}); err != nil {
				t.Fatalf("switch %s: %v", name, err)
			}
		}
	}
	const ops, packets = 12, 30
	done, refused := map[*treeJob]int64{}, int64(0)
	f.begin(packets, jobs...)
	f.drive("all jobs reduce all they have", func() bool {
		left := 0
		for _, j := range jobs {
			if done[j] == ops {
				continue
			}
			left++
			if !j.all(ina.OpState.Over) {
				continue
			}
			if j.state(t) == ina.OpDone {
				done[j]++
			} else {
				refused++
			}
			if done[j] < ops {
				f.begin(packets, j)
			}
		}
		return left == 0
	})
	if ids := f.held(); len(ids) != 0 {
		// An unlock is on its way down; the workers that have it are done.
		f.drive("unlocks have come down", func() bool { return len(f.held()) == 0 })
	}
	if refused == 0 {
		t.Error("no operation was refused: the jobs did not meet")
	}
	t.Logf("%d operations granted, %d refused", 3*ops, refused)
	f.checkSums(map[*treeJob]int64{jobs[0]: ops * packets, jobs[1]: ops * packets, jobs[2]: ops * packets})
	for _, j := range jobs {
		for _, n := range j.tree {
			if got := f.counter(n.Switch, "job_locks", j.id); got != ops {
				t.Errorf("switch %s gave job %d %d turns, want %d", n.Switch, j.id, got, ops)
			}
		}
	}
}

// What a switch refuses leaves nothing behind, and says what to do.
func TestTreesRefused(t *testing.T) {
	ctx := t.Context()
	f := newFabric(t, &Exclusive{Capacity: 1, Trees: 1}, false)
	first := f.job(1, 0, "l1:2", "l2:2")
	f.write(first)
	for _, tt := range []struct {
		name string
		at   [2]string
		edit func(*aggmgr.Entry)
		code codes.Code
		want string
	}{
		{"over quota", [2]string{"l1:3", "l3:3"}, func(*aggmgr.Entry) {}, codes.ResourceExhausted, "has its 1 exclusive trees, delete one first"},
		{"more than there is", [2]string{"l3:3", "l4:3"}, func(e *aggmgr.Entry) { e.Base = 125 }, codes.InvalidArgument, "aggregators 250+16, the switch has 256"},
		{"through nowhere", [2]string{"l3:3", "l4:3"}, func(e *aggmgr.Entry) { e.Up = 99 }, codes.InvalidArgument, "goes up through port 99"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			second := f.job(2, 8, tt.at[:]...)
			tt.edit(&second.tree[0])
			err := f.install(ctx, second)
			var refused *dataplane.Error
			if !errors.As(err, &refused) || refused.Code != tt.code || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %v that says %q", err, tt.code, tt.want)
			}
			for _, n := range second.tree {
				c := f.clients[n.Switch]
				jobs, err := c.ReadJobs(ctx)
				groups, err2 := c.ReadGroups(ctx)
				if err := errors.Join(err, err2); err != nil {
					t.Fatal(err)
				}
				if slices.ContainsFunc(jobs, func(e ina.JobEntry) bool { return e.Job == 2 }) ||
					slices.ContainsFunc(groups, func(g p4.Group) bool { return g.ID == 2 }) {
					t.Errorf("switch %s keeps %+v and %+v", n.Switch, jobs, groups)
				}
			}
		})
	}
	e := ina.JobEntry{Job: 9, Mode: ina.Exclusive, Base: 32, Size: 16, Window: 8, Expect: 1, Root: true, DownGroup: 9}
	group := []p4.Group{{ID: 9, Ports: []uint32{2}}}
	nothing := e
	nothing.Size = 0
	for _, tt := range []struct { // in this order: the second writes the group
		batch dataplane.Batch
		want  string
	}{
		{dataplane.Batch{Jobs: []ina.JobEntry{e}}, "multicast group 9 is not there or empty: first write"},
		{dataplane.Batch{Groups: group, Jobs: []ina.JobEntry{nothing}}, "no aggregators: an exclusive tree needs twice"},
	} {
		var refused *dataplane.Error
		if err := f.clients["l4"].Write(ctx, tt.batch); !errors.As(err, &refused) || refused.Code != codes.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want it to say %q", err, tt.want)
		}
	}
	if err := f.remove(ctx, first); err != nil {
		t.Fatal(err)
	}
	f.write(f.job(2, 8, "l1:3", "l3:3")) // there is room now

	for _, x := range []*Exclusive{{Resource: "cable", Capacity: 1, Trees: 1}, {Trees: 1}, {Capacity: 1}} {
		if e, err := newEngine(Config{Exclusive: x}); err == nil || e != nil {
			t.Errorf("%+v is accepted", x)
		}
	}
	none := newBench(t, Config{Aggregators: 64, Ports: []PortConfig{{Number: 1}}})
	none.groups[9] = none.ports
	if err := none.setJob(e); !errors.Is(err, ina.ErrEntry) || !strings.Contains(err.Error(), "quota of trees is 0") {
		t.Errorf("a switch without exclusive trees: %v", err)
	}
}
