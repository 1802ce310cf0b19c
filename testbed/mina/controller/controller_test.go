package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/mina/controller/allocation"
	"github.com/inabench/inabench/testbed/mina/sharing"
	"github.com/inabench/inabench/testbed/sharp"
	"github.com/inabench/inabench/testbed/sharp/aggmgr"
)

// rack is four hosts at two leaves below two spines, each with room for trees.
func rack(t *testing.T, trees int) *inventory.Inventory {
	t.Helper()
	inv, err := clos.Spec{
		Down: []int{2, 2}, Up: []int{1, 2}, Rate: 1e9, Delay: time.Microsecond,
		Switch: fmt.Sprintf("kind = \"soft\"\naggregators = 1024\nsharp = {trees = %d, jobs = 1}", trees),
	}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// board is switches that remember what they hold.
type board struct {
	mu   sync.Mutex
	held map[string]map[uint16]uint16 // epochs by switch and job
	most map[string]int
}

func (b *board) Install(_ context.Context, sw string, e aggmgr.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[sw] == nil {
		b.held[sw] = map[uint16]uint16{}
	}
	b.held[sw][e.Job] = e.Epoch
	b.most[sw] = max(b.most[sw], len(b.held[sw]))
	return nil
}

func (b *board) Remove(_ context.Context, sw string, e aggmgr.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held[sw], e.Job)
	return nil
}

func (b *board) jobs(sw string) (ids []uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.held[sw] {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// rig is a controller that serves.
type rig struct {
	*controller.Controller
	t      *testing.T
	board  *board
	addr   string
	events chan controller.Event
}

func newRig(t *testing.T, inv *inventory.Inventory, edit func(*controller.Config)) *rig {
	t.Helper()
	r := &rig{t: t, board: &board{held: map[string]map[uint16]uint16{}, most: map[string]int{}}, events: make(chan controller.Event, 10_000)}
	m, err := aggmgr.New(aggmgr.Config{Fabric: aggmgr.FabricOf(inv), Switches: r.board, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := controller.Config{
		Inventory: inv, Manager: m, Lease: 50 * time.Millisecond, Retry: time.Hour,
		Emit: func(e controller.Event) { r.events <- e },
	}
	if edit != nil {
		edit(&cfg)
	}
	if r.Controller, err = controller.New(cfg); err != nil {
		t.Fatal(err)
	}
	srv := controller.NewServer(cfg.Lease)
	r.Register(srv)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = lis.Addr().String()
	served := make(chan error, 1)
	go func() {
		if err := srv.Serve(lis); !errors.Is(err, grpc.ErrServerStopped) {
			served <- err
		}
		close(served)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		srv.Stop()
		if err := errors.Join(<-served, r.Close(ctx), m.Close(ctx)); err != nil {
			t.Error(err)
		}
		for _, s := range inv.Switches {
			if ids := r.board.jobs(s.Name); ids != nil {
				t.Errorf("left on %s: %v", s.Name, ids)
			}
		}
	})
	return r
}

// until returns the next event that is one of these, with the job.
func (r *rig) until(job uint16, names ...string) controller.Event {
	r.t.Helper()
	timeout := time.After(20 * time.Second)
	var seen []string
	for {
		select {
		case e := <-r.events:
			if e.Job == job && slices.Contains(names, e.Event) {
				return e
			}
			seen = append(seen, fmt.Sprintf("%s of %d: %s", e.Event, e.Job, e.Error))
		case <-timeout:
			r.t.Fatalf("no %q of job %d; instead: %q", names, job, seen)
		}
	}
}

func (r *rig) submit(s controller.Submission) []string {
	r.t.Helper()
	hosts, err := r.Submit(s)
	if err != nil {
		r.t.Fatal(err)
	}
	return hosts
}

func (r *rig) end(job uint16) {
	r.t.Helper()
	released, err := r.End(job)
	if err != nil {
		r.t.Fatal(err)
	}
	<-released
}

// worker is an attached host that does as it is told, or only when it is let.
type worker struct {
	*allocation.Host
	told chan order
}

type order struct {
	allocation.Tree
	settled func()
}

// attach has a host settle everything at once; with hold, only what is taken from told.
func (r *rig) attach(job uint16, rank int, hold bool) *worker {
	r.t.Helper()
	w := &worker{told: make(chan order, 100)}
	h, err := allocation.Attach(r.t.Context(), r.addr, job, rank, func(tree allocation.Tree, settled func()) error {
		if hold {
			w.told <- order{tree, settled}
		} else {
			settled()
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	w.Host = h
	r.t.Cleanup(func() { h.Close() })
	return w
}

// TestPlaced: a job gets hosts and a tree, its hosts are told, and all is released at its
// end.
func TestPlaced(t *testing.T) {
	r := newRig(t, rack(t, 4), nil)
	hosts := r.submit(controller.Submission{ID: 7, Name: "A", N: 3, Window: 32})
	if len(hosts) != 3 {
		t.Fatalf("hosts %q", hosts)
	}
	e := r.until(7, "tree")
	if e.Name != "A" || e.Tree.Window != 32 || e.Tree.Epoch != 1 || len(e.Tree.Switches) != 3 || !strings.HasPrefix(e.Tree.Root, "spine") || e.Migration.From != "" || e.Migration.To != e.Tree.Root {
		t.Errorf("%+v, %+v, %+v", e, e.Tree, e.Migration)
	}
	var log sharp.JobLog
	for _, line := range e.Tree.Log {
		log.Line(line)
	}
	if err := log.Proof(sharp.SAT); err != nil || log.Trees[0] != e.Tree.Granted {
		t.Errorf("the log says %q: %v", e.Tree.Log, err)
	}
	w := r.attach(7, 0, true)
	o := <-w.told
	if o.Epoch != 1 || o.Window != 32 || len(o.Log) != 1 || !strings.Contains(o.Log[0], "tree_type:SAT") {
		t.Errorf("told %+v", o.Tree)
	}
	o.settled()
	r.end(7)
	if err := w.Err(); err != nil {
		t.Errorf("after the end of the job: %v", err)
	}
	r.until(7, "ended")
	for _, sw := range e.Tree.Switches {
		if ids := r.board.jobs(sw); ids != nil {
			t.Errorf("%s holds %v", sw, ids)
		}
	}
	// One leaf needs no spine, one host no tree.
	r.submit(controller.Submission{ID: 1, Hosts: []string{"h2", "h1"}})
	if e := r.until(1, "tree"); !slices.Equal(e.Tree.Switches, []string{"leaf1"}) {
		t.Errorf("two hosts of a leaf: %+v", e.Tree)
	}
	r.submit(controller.Submission{ID: 2, N: 1})
	r.end(2)
}

// TestRefused: what cannot be is refused, each time saying why, and the others go on.
func TestRefused(t *testing.T) {
	r := newRig(t, rack(t, 4), nil)
	r.submit(controller.Submission{ID: 1, N: 2})
	for _, c := range []struct {
		s    controller.Submission
		want error
	}{
		{controller.Submission{ID: 0, N: 1}, controller.ErrJob},
		{controller.Submission{ID: 4096, N: 1}, controller.ErrJob},
		{controller.Submission{ID: 1, N: 1}, controller.ErrExists},
		{controller.Submission{ID: 2, N: 5}, controller.ErrHost},
		{controller.Submission{ID: 2, N: 3}, fragment.ErrNoRoom},
		{controller.Submission{ID: 2}, fragment.ErrRequest},
		{controller.Submission{ID: 2, Hosts: []string{"h9"}}, controller.ErrHost},
		{controller.Submission{ID: 2, Hosts: []string{"h1", "h3"}}, fragment.ErrHost},
		{controller.Submission{ID: 2, Hosts: []string{"h3"}, N: 2}, controller.ErrHost},
		{controller.Submission{ID: 2, N: 1, Window: -1}, controller.ErrJob},
	} {
		if hosts, err := r.Submit(c.s); hosts != nil || !errors.Is(err, c.want) {
			t.Errorf("%+v: %q, %v; want %v", c.s, hosts, err, c.want)
		} else if e := r.until(c.s.ID, "refused"); e.Error != err.Error() {
			t.Errorf("%+v: told %q, not %q", c.s, e.Error, err)
		}
	}
	if _, err := r.End(3); !errors.Is(err, controller.ErrJob) {
		t.Errorf("end: %v", err)
	}
	if err := r.SetLink("leaf1", "leaf2", false); !errors.Is(err, mina.ErrResource) {
		t.Errorf("no such link: %v", err)
	}
	for _, at := range [][2]int{{1, 2}, {1, -1}, {5, 0}} {
		if a, err := r.Attach(uint16(at[0]), at[1]); a != nil || err == nil {
			t.Errorf("rank %d of job %d is attached", at[1], at[0])
		}
	}
	r.submit(controller.Submission{ID: 2, N: 2})
	r.until(2, "tree")
}

// TestMigration: a link fails under a job. Its hosts leave the tree when they can, others
// are not disturbed, the tree is released before the new one is acquired, and both are told
// with the times they took.
func TestMigration(t *testing.T) {
	r := newRig(t, rack(t, 4), nil)
	r.submit(controller.Submission{ID: 1, Hosts: []string{"h1", "h3"}})
	r.submit(controller.Submission{ID: 2, Hosts: []string{"h2", "h4"}})
	first := r.until(1, "tree").Tree
	a, b := r.attach(1, 0, true), r.attach(1, 1, true)
	for _, w := range []*worker{a, b} {
		(<-w.told).settled()
	}
	other := map[string]string{"spine1": "spine2", "spine2": "spine1"}[first.Root]
	if err := r.SetLink("leaf1", first.Root, false); err != nil {
		t.Fatal(err)
	}
	oa, ob := <-a.told, <-b.told
	if oa.Epoch != 0 || ob.Epoch != 0 {
		t.Errorf("told %+v and %+v, want to leave", oa.Tree, ob.Tree)
	}
	oa.settled()
	if ids := r.board.jobs(first.Root); !slices.Contains(ids, 1) {
		t.Errorf("released before the last host had left: %v", ids)
	}
	ob.settled()
	oa, ob = <-a.told, <-b.told
	if oa.Epoch != 2 || ob.Epoch != 2 {
		t.Errorf("told %+v and %+v, want the second tree", oa.Tree, ob.Tree)
	}
	if ids := r.board.jobs(first.Root); slices.Contains(ids, 1) {
		t.Errorf("acquired before the old one was released: %v", ids)
	}
	oa.settled()
	ob.settled()
	e := r.until(1, "tree")
	m := e.Migration
	if e.Tree.Root != other || m.From != first.Root || m.To != other || m.Hosts != 2 || m.Leave <= 0 || m.Release <= 0 || m.Acquire <= 0 || m.Adopt <= 0 || m.Refused != 0 {
		t.Errorf("%+v, %+v", e.Tree, m)
	}
	if sum := m.Leave + m.Release + m.Wait + m.Acquire + m.Adopt; sum > m.Total || sum < 0.5*m.Total {
		t.Errorf("parts are %g of %g s", sum, m.Total)
	}
	// Both ways are down: there is none, and the job goes on without.
	if err := r.SetLink(other, "leaf2", false); err != nil {
		t.Fatal(err)
	}
	(<-a.told).settled()
	(<-b.told).settled()
	if e := r.until(1, "none"); e.Migration.From != other || e.Migration.To != "" {
		t.Errorf("%+v", e.Migration)
	}
	if err := r.SetLink(other, "leaf2", true); err != nil {
		t.Fatal(err)
	}
	if o := <-a.told; o.Epoch != 3 {
		t.Errorf("told %+v", o.Tree)
	}
	(<-b.told).settled() // the first has not, and the job may end all the same
	r.end(1)
}

// TestExchange: two jobs exchange their spines, which have room for one tree each. The one
// that leaves at once waits for the other to leave, and neither finds its new switches taken.
func TestExchange(t *testing.T) {
	inv, err := clos.Spec{
		Down: []int{1, 4}, Up: []int{1, 2}, Rate: 1e9, Delay: time.Microsecond,
		Switch: "kind = \"soft\"\naggregators = 1024\nsharp = {trees = 1, jobs = 1}",
	}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, inv, nil)
	r.submit(controller.Submission{ID: 1, Hosts: []string{"h1", "h2"}})
	one := r.until(1, "tree").Tree.Root
	r.submit(controller.Submission{ID: 2, Hosts: []string{"h3", "h4"}})
	two := r.until(2, "tree").Tree.Root
	if one == two {
		t.Fatalf("both at %s", one)
	}
	w := r.attach(2, 0, true)
	(<-w.told).settled()
	if err := r.SetLink("leaf1", one, false); err != nil {
		t.Fatal(err)
	}
	leave := <-w.told
	if leave.Epoch != 0 {
		t.Errorf("told %+v", leave.Tree)
	}
	if got := r.board.jobs(two); !slices.Equal(got, []uint16{2}) {
		t.Errorf("before job 2 has left, %s holds %v", two, got)
	}
	leave.settled()
	next := <-w.told
	if next.Epoch != 2 {
		t.Errorf("told %+v", next.Tree)
	}
	next.settled()
	for range 2 {
		e := r.untilAny("tree")
		want := map[uint16]string{1: two, 2: one}[e.Job]
		if e.Tree.Root != want || e.Migration.Refused != 0 || e.Job == 1 && e.Migration.Wait <= 0 {
			t.Errorf("job %d at %s, want %s: %+v", e.Job, e.Tree.Root, want, e.Migration)
		}
	}
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	for sw, n := range r.board.most {
		if n > 1 {
			t.Errorf("%s held %d trees at once", sw, n)
		}
	}
}

func (r *rig) untilAny(name string) controller.Event {
	r.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case e := <-r.events:
			if e.Event == name {
				return e
			}
		case <-timeout:
			r.t.Fatalf("no %q", name)
		}
	}
}

// TestQuota: a third job is refused a tree while two hold all there are, goes on without,
// and gets one when another ends.
func TestQuota(t *testing.T) {
	inv, err := clos.Spec{
		Down: []int{6}, Up: []int{1}, Rate: 1e9, Delay: time.Microsecond,
		Switch: "kind = \"soft\"\naggregators = 1024\nsharp = {trees = 2, jobs = 3}",
	}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, inv, nil)
	for id := range uint16(2) {
		r.submit(controller.Submission{ID: id + 1, N: 2})
		r.until(id+1, "tree")
	}
	r.submit(controller.Submission{ID: 3, N: 2})
	if e := r.until(3, "refused"); !strings.Contains(e.Error, "quota exhausted: leaf1 has 2 of 2 trees") {
		t.Errorf("refused: %s", e.Error)
	}
	w := r.attach(3, 0, true)
	if o := <-w.told; o.Epoch != 0 {
		t.Errorf("told %+v", o.Tree)
	} else {
		o.settled()
	}
	r.end(1)
	if o := <-w.told; o.Epoch != 1 {
		t.Errorf("told %+v", o.Tree)
	} else {
		o.settled()
	}
	if m := r.until(3, "tree").Migration; m.Refused != 1 || m.Hosts != 1 {
		t.Errorf("%+v", m)
	}
}

// TestHostGone: a job that loses a host ends when the lease is over, and its tree is
// released; one whose host comes back does not.
func TestHostGone(t *testing.T) {
	r := newRig(t, rack(t, 4), func(c *controller.Config) { c.Lease = time.Second })
	for id, hosts := range map[uint16][]string{1: {"h1", "h3"}, 2: {"h2", "h4"}} {
		r.submit(controller.Submission{ID: id, Hosts: hosts})
	}
	dead, back := r.attach(1, 1, false), r.attach(2, 0, false)
	for _, w := range []*worker{dead, back} {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	var again *allocation.Host
	for again == nil { // until the controller has seen the first one off
		h, err := allocation.Attach(t.Context(), r.addr, 2, 0, func(_ allocation.Tree, settled func()) error { settled(); return nil })
		if err != nil && !strings.Contains(err.Error(), "there already") {
			t.Fatal(err)
		}
		again = h
	}
	defer again.Close()
	if e := r.until(1, "ended"); e.Error != "host h3 (rank 1) is gone" {
		t.Errorf("ended: %s", e.Error)
	}
	for _, sw := range []string{"leaf1", "leaf2"} {
		if ids := r.board.jobs(sw); !slices.Equal(ids, []uint16{2}) {
			t.Errorf("%s holds %v", sw, ids)
		}
	}
	if _, err := allocation.Attach(t.Context(), r.addr, 1, 0, nil); err == nil {
		t.Error("a host is attached to a job that has ended")
	}
}

// TestGroups: who shares is told when it changes.
func TestGroups(t *testing.T) {
	shared := make(chan []controller.Group, 10)
	r := newRig(t, rack(t, 4), func(c *controller.Config) { c.Share = func(g []controller.Group) { shared <- g } })
	r.submit(controller.Submission{ID: 1, Hosts: []string{"h1", "h3"}})
	if diff := cmp.Diff([]controller.Group{{Jobs: []uint16{1}, Hosts: []int{2}, Rivals: [][]uint16{{}}}}, <-shared); diff != "" {
		t.Errorf("alone (-want +got):\n%s", diff)
	}
	r.submit(controller.Submission{ID: 2, Hosts: []string{"h2", "h4"}})
	if diff := cmp.Diff([]controller.Group{{Jobs: []uint16{1, 2}, Hosts: []int{2, 2}, Rivals: [][]uint16{{2}, {1}}}}, <-shared); diff != "" {
		t.Errorf("two (-want +got):\n%s", diff)
	}
	r.end(1)
	if g := <-shared; len(g) != 1 || !slices.Equal(g[0].Jobs, []uint16{2}) {
		t.Errorf("one again: %+v", g)
	}
}

// TestBadInventory: what no tree can be built on is said at once.
func TestBadInventory(t *testing.T) {
	none := rack(t, 1)
	for i := range none.Switches {
		none.Switches[i].SHARP, none.Switches[i].Aggregators = inventory.SHARP{}, 0
	}
	mixed := rack(t, 1)
	mixed.Switches[0].SHARP.Resource = "port"
	irregular := rack(t, 1)
	irregular.Links = irregular.Links[1:]
	for want, inv := range map[string]*inventory.Inventory{"no switch has SHARP": none, "an allocator needs one rule": mixed, clos.ErrIrregular.Error(): irregular} {
		if c, err := controller.New(controller.Config{Inventory: inv}); c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMainRefuses: a setup that cannot be is an error, and told as an event.
func TestMainRefuses(t *testing.T) {
	inv := rack(t, 1)
	for i := range inv.Switches {
		inv.Switches[i].Control = "" // nobody to call
	}
	line := func(edit func(*controller.Setup)) string {
		s := controller.Setup{Inventory: inv}
		edit(&s)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct{ line, want string }{
		{"hello", "invalid character"},
		{"{}", "no inventory"},
		{line(func(s *controller.Setup) { s.Place = "best" }), `place: "best"`},
		{line(func(s *controller.Setup) { s.Trees = "best" }), `trees: "best"`},
		{line(func(s *controller.Setup) { s.Sharing = "best" }), `sharing: "best"`},
		{line(func(s *controller.Setup) { s.Alpha = new(5.0) }), "alpha 5, not 0 to 4"},
		{line(func(s *controller.Setup) { s.Options.K = -1 }), "k = -1"},
		{line(func(s *controller.Setup) { s.Options.Load = -1 }), "load -1"},
		{line(func(s *controller.Setup) { s.AMLog = t.TempDir() }), "is a directory"},
		{line(func(s *controller.Setup) { s.Listen = "nowhere" }), "listen"},
	} {
		var out bytes.Buffer
		err := controller.Main(t.Context(), strings.NewReader(c.line+"\n"), &out)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: %v, want %s", c.line, err, c.want)
		}
		var e controller.Event
		if json.Unmarshal(out.Bytes(), &e) != nil || e.Event != "error" || e.Error != err.Error() {
			t.Errorf("%.80s: told %s", c.line, out.String())
		}
	}
	// Nothing at all is no error: nobody wants anything.
	if err := controller.Main(t.Context(), strings.NewReader(""), io.Discard); err != nil {
		t.Error(err)
	}
}

// TestMainCommands: commands are carried out, bad ones answered, and the end of stdin is
// the end.
func TestMainCommands(t *testing.T) {
	inv := rack(t, 1)
	for i := range inv.Switches {
		inv.Switches[i].Control = ""
	}
	setup, err := json.Marshal(controller.Setup{Inventory: inv})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	commands := string(setup) + `
{"cmd":"submit","submit":{"id":3,"name":"A","hosts":["h4"]}}
{"cmd":"submit","submit":{"id":4,"n":9}}
{"cmd":"dance"}
nonsense
{"cmd":"end","job":3}
{"cmd":"end","job":9}
{"cmd":"stop"}
{"cmd":"submit","submit":{"id":5,"n":1}}
`
	if err := controller.Main(t.Context(), strings.NewReader(commands), &out); err != nil {
		t.Error(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var e controller.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		got = append(got, fmt.Sprint(e.Event, " ", e.Job))
	}
	want := []string{"ready 0", "placed 3", "refused 4", "error 0", "error 0", "ended 3", "error 9"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestStale: what a host says late, of an order that others have followed, does not count.
func TestStale(t *testing.T) {
	r := newRig(t, rack(t, 4), nil)
	r.submit(controller.Submission{ID: 1, Hosts: []string{"h1", "h3"}})
	root := r.until(1, "tree").Tree.Root
	a, err := r.Attach(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	tree := <-a.Orders()
	if err := r.SetLink("leaf1", root, false); err != nil {
		t.Fatal(err)
	}
	leave := <-a.Orders()
	if tree.Epoch != 1 || leave.Epoch != 0 || leave.Number <= tree.Number {
		t.Errorf("told %+v, then %+v", tree, leave)
	}
	a.Settled(tree.Number)
	a.Settled(tree.Number - 1)
	if ids := r.board.jobs(root); !slices.Equal(ids, []uint16{1}) {
		t.Errorf("%s holds %v while a host may use the tree", root, ids)
	}
	a.Settled(leave.Number)
	if next := <-a.Orders(); next.Epoch != 2 {
		t.Errorf("told %+v", next)
	}
	if ids := r.board.jobs(root); ids != nil {
		t.Errorf("%s holds %v after the host has left", root, ids)
	}
}

// TestShare: who shares is told to the sharing controller in the same process, and the
// hosts of a job that shares with nobody ask for INA each time.
func TestShare(t *testing.T) {
	inv := rack(t, 1)
	for i := range inv.Switches {
		inv.Switches[i].Control = ""
	}
	log := filepath.Join(t.TempDir(), "sharing.log")
	p := start(t, controller.Setup{Inventory: inv, Share: &controller.Share{Cost: tree.Cost{Latency: 1e-4, Bandwidth: 1e8, Ratio: 2}, Log: log}})
	if p.at.Sharing == "" || p.at.Sharing == p.at.Hosts {
		t.Fatalf("it serves at %+v", p.at)
	}
	p.write(controller.Command{Cmd: "submit", Submit: controller.Submission{ID: 1, N: 2}})
	p.until(1, "placed")
	var hosts []*sharing.Host
	for rank := range uint32(2) {
		h, err := sharing.Join(sharing.HostConfig{Controller: p.at.Sharing, Listen: "127.0.0.1:0", Job: 1, Rank: rank, Hosts: 2, Run: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		hosts = append(hosts, h)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for asked := false; !asked; {
		var answers []bool
		for _, h := range hosts {
			op, ina, err := h.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, ina)
			h.Done(op, false)
		}
		if answers[0] != answers[1] {
			t.Fatal("the hosts differ")
		}
		asked = answers[0]
		time.Sleep(time.Millisecond) // an operation
	}
}
