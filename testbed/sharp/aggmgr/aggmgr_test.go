package aggmgr_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/testbed/sharp"
	"github.com/inabench/inabench/testbed/sharp/aggmgr"
)

// fabric is two leaves with two hosts each, two spines, and a leaf with one host that has
// no SHARP. Ports of hosts are 1 and 2, those towards spine n are 10+n.
func fabric() aggmgr.Fabric {
	var f aggmgr.Fabric
	for i := range 4 {
		f.Hosts = append(f.Hosts, aggmgr.Host{Name: fmt.Sprintf("h%d", i+1), Switch: fmt.Sprintf("leaf%d", i/2+1), Port: uint32(i%2 + 1)})
	}
	f.Hosts = append(f.Hosts, aggmgr.Host{Name: "h5", Switch: "leaf3", Port: 1})
	for _, name := range []string{"leaf1", "leaf2", "spine1", "spine2"} {
		f.Switches = append(f.Switches, aggmgr.Switch{Name: name, Trees: 2, OSTs: 100})
	}
	f.Switches = append(f.Switches, aggmgr.Switch{Name: "leaf3"})
	for leaf := range 3 {
		for spine := range 2 {
			f.Links = append(f.Links, aggmgr.Link{A: fmt.Sprintf("leaf%d", leaf+1), APort: uint32(11 + spine), B: fmt.Sprintf("spine%d", spine+1), BPort: uint32(leaf + 1)})
		}
	}
	return f
}

// board is what the switches hold; it can be told to refuse.
type board struct {
	mu     sync.Mutex
	held   map[string]map[uint16]aggmgr.Entry
	refuse map[string]error         // by "install leaf1", "remove leaf1"
	stuck  map[string]chan struct{} // by switch: setting up waits for it
}

func newBoard() *board {
	return &board{held: map[string]map[uint16]aggmgr.Entry{}, refuse: map[string]error{}}
}

func (b *board) wait(ctx context.Context, sw string) error {
	b.mu.Lock()
	stuck := b.stuck[sw]
	b.mu.Unlock()
	if stuck == nil {
		return nil
	}
	select {
	case <-stuck:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *board) Install(ctx context.Context, sw string, e aggmgr.Entry) error {
	if err := b.wait(ctx, sw); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse["install "+sw]; err != nil {
		return err
	}
	if b.held[sw] == nil {
		b.held[sw] = map[uint16]aggmgr.Entry{}
	}
	b.held[sw][e.Job] = e
	return nil
}

func (b *board) Remove(ctx context.Context, sw string, e aggmgr.Entry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuse["remove "+sw]; err != nil {
		return err
	}
	delete(b.held[sw], e.Job)
	return nil
}

// state is "leaf1: 7 8" for every switch that holds trees.
func (b *board) state() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for sw, jobs := range b.held {
		if len(jobs) == 0 {
			continue
		}
		var ids []int
		for id := range jobs {
			ids = append(ids, int(id))
		}
		slices.Sort(ids)
		lines = append(lines, fmt.Sprint(sw, ": ", strings.Trim(fmt.Sprint(ids), "[]")))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// rig is a manager, and what is around it.
type rig struct {
	*aggmgr.Manager
	board *board
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{board: newBoard(), log: &lockedBuffer{}}
	var err error
	if r.Manager, err = aggmgr.New(aggmgr.Config{Fabric: fabric(), Switches: r.board, Log: r.log, Timeout: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := r.board.state(); left != "" {
			t.Errorf("left on switches: %s", left)
		}
		for _, u := range r.Usage() {
			if u.Trees != 0 || u.OSTs != 0 {
				t.Errorf("left on the ledger: %+v", u)
			}
		}
	})
	return r
}

func begin(t *testing.T, r *rig, req aggmgr.Request) *aggmgr.Grant {
	t.Helper()
	g, err := r.Begin(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func refused(t *testing.T, r *rig, req aggmgr.Request, want error, text string) {
	t.Helper()
	g, err := r.Begin(t.Context(), req)
	if g != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("begin %+v: %v, %v; want an error that is %q and says %q", req, g, err, want, text)
	}
}

// TestTree: over two leaves, the tree has a spine; over one, it has not. The log says what was
// granted.
func TestTree(t *testing.T) {
	r := newRig(t)
	g := begin(t, r, aggmgr.Request{Job: 7, Hosts: []string{"h3", "h1", "h2"}, OSTs: 30, Root: "spine1"})
	want := []aggmgr.Node{
		{Switch: "leaf2", Parent: "spine1", Up: 11, Down: []uint32{1}, Expect: 1},
		{Switch: "leaf1", Parent: "spine1", Up: 11, Down: []uint32{1, 2}, Expect: 6},
		{Switch: "spine1", Down: []uint32{1, 2}, Expect: 7},
	}
	if diff := cmp.Diff(want, g.Nodes); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	if q := (sharp.Quota{OSTs: 30, UserData: 960, Groups: 30, QPs: 1, GroupChannels: 1}); g.Tree.Quota != q || g.Tree.Type != sharp.SAT || g.Root() != "spine1" || g.Epoch != 1 {
		t.Errorf("granted %+v", g)
	}
	if got := r.board.state(); got != "leaf1: 7, leaf2: 7, spine1: 7" {
		t.Errorf("switches hold %s", got)
	}
	one := begin(t, r, aggmgr.Request{Job: 8, Hosts: []string{"h1", "h2"}, Root: "leaf1"})
	if len(one.Nodes) != 1 || one.Root() != "leaf1" || one.Tree.Quota.OSTs != 3 {
		t.Errorf("two hosts of a leaf: %+v", one)
	}
	if one.Tree.Job == g.Tree.Job || one.Tree.ID == g.Tree.ID {
		t.Errorf("ids %+v and %+v", g.Tree, one.Tree)
	}
	if err := r.End(t.Context(), g.Tree.Job); err != nil {
		t.Error(err)
	}
	if got := r.board.state(); got != "leaf1: 8" {
		t.Errorf("after the end, switches hold %s", got)
	}
	// Where it is built on request, and with another epoch than its last tree.
	via := begin(t, r, aggmgr.Request{Job: 7, Hosts: []string{"h1", "h3"}, Root: "spine2", Via: []string{"leaf1", "leaf2", "spine2"}})
	if via.Root() != "spine2" || via.Epoch != 2 {
		t.Errorf("from spine2: %+v", via)
	}
	log := r.log.String()
	for _, c := range []struct {
		times int
		text  string
	}{
		{3, "Begin Job:"},
		{1, fmt.Sprintf("Begin Job: job_id_external: 7 job_id_sharp: %d quota_percent: 3.00 request_sat: 1\n", g.Tree.Job)},
		{1, fmt.Sprintf("Begin Job: job_id_external: 8 job_id_sharp: %d quota_percent: 3.00 request_sat: 1\n", one.Tree.Job)},
		{1, fmt.Sprintf("Begin Job: job_id_external: 7 job_id_sharp: %d quota_percent: 3.00 request_sat: 1\n", via.Tree.Job)},
		{5, fmt.Sprintf(" tree_id: %d\n", g.Tree.ID)},
		{1, fmt.Sprintf("leaf1 Allocated quota { q:1, ud:960 o:30 g:30 } child_index_per_port: 1 tree_id: %d\n", g.Tree.ID)},
		{1, fmt.Sprintf(" o:3 g:3 } child_index_per_port: 0 tree_id: %d\n", one.Tree.ID)},
		{3, fmt.Sprintf(" o:3 g:3 } child_index_per_port: 0 tree_id: %d\n", via.Tree.ID)},
		{1, "End Job:"},
		{1, fmt.Sprintf("End Job: job_id_sharp: %d reason: finished\n", g.Tree.Job)},
	} {
		if got := strings.Count(log, c.text); got != c.times {
			t.Errorf("the log has %q %d times, not %d:\n%s", c.text, got, c.times, log)
		}
	}
}

// TestRefusals: bad requests, each with what is wrong; a good one goes on.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	h12 := []string{"h1", "h2"}
	g := begin(t, r, aggmgr.Request{Job: 1, Hosts: h12, Root: "leaf1"})
	for _, c := range []struct {
		req  aggmgr.Request
		want error
		text string
	}{
		{aggmgr.Request{Job: 0, Hosts: h12, Root: "leaf1"}, aggmgr.ErrInvalid, "job 0"},
		{aggmgr.Request{Job: 4096, Hosts: h12, Root: "leaf1"}, aggmgr.ErrInvalid, "job 4096"},
		{aggmgr.Request{Job: 2, Root: "leaf1"}, aggmgr.ErrInvalid, "no hosts"},
		{aggmgr.Request{Job: 2, Hosts: []string{"h1", "h9"}, Root: "leaf1"}, aggmgr.ErrUnknown, `"h9"`},
		{aggmgr.Request{Job: 2, Hosts: []string{"h1", "h2", "h3", "h4", "h5", "h6"}, Root: "leaf1"}, aggmgr.ErrInvalid, "6 hosts are asked for, 5 exist"},
		{aggmgr.Request{Job: 2, Hosts: []string{"h1", "h1"}, Root: "leaf1"}, aggmgr.ErrInvalid, "h1 is named twice"},
		{aggmgr.Request{Job: 2, Hosts: h12, Root: "spine9"}, aggmgr.ErrUnknown, `"spine9"`},
		{aggmgr.Request{Job: 2, Hosts: h12, OSTs: -1, Root: "leaf1"}, aggmgr.ErrInvalid, "-1 OSTs"},
		{aggmgr.Request{Job: 2, Hosts: []string{"h1", "h5"}, Root: "spine1"}, aggmgr.ErrNoTree, "leaf3 has no SHARP"},
		{aggmgr.Request{Job: 2, Hosts: []string{"h1", "h3"}, Root: "leaf1"}, aggmgr.ErrNoTree, "from leaf1 there is no way down to h3"},
		{aggmgr.Request{Job: 2, Hosts: []string{"h1", "h3"}, Via: []string{"leaf1", "spine1"}, Root: "spine1"}, aggmgr.ErrNoTree, "h3"},
		{aggmgr.Request{Job: 1, Hosts: []string{"h3", "h4"}, Root: "leaf1"}, aggmgr.ErrExists, "job 1"},
	} {
		refused(t, r, c.req, c.want, c.text)
	}
	for _, id := range []uint64{0, 99} {
		if err := r.End(t.Context(), id); !errors.Is(err, aggmgr.ErrNotFound) {
			t.Errorf("end %d: %v", id, err)
		}
	}
	if got := r.board.state(); got != "leaf1: 1" {
		t.Errorf("switches hold %s", got)
	}
	for i, want := range []error{nil, aggmgr.ErrNotFound} {
		if err := r.End(t.Context(), g.Tree.Job); !errors.Is(err, want) {
			t.Errorf("end for the %d. time: %v", i+1, err)
		}
	}
}

// TestQuota: the third tree of a switch is refused, while other switches have room; what is
// released is granted again. OSTs that are not there are not granted.
func TestQuota(t *testing.T) {
	r := newRig(t)
	first := begin(t, r, aggmgr.Request{Job: 1, Hosts: []string{"h1", "h2"}, OSTs: 60, Root: "leaf1"})
	second := begin(t, r, aggmgr.Request{Job: 2, Hosts: []string{"h1", "h2"}, OSTs: 60, Root: "leaf1"})
	if first.Tree.Quota.OSTs != 60 || second.Tree.Quota.OSTs != 40 {
		t.Errorf("granted %d and %d of 100 OSTs", first.Tree.Quota.OSTs, second.Tree.Quota.OSTs)
	}
	third := aggmgr.Request{Job: 3, Hosts: []string{"h1", "h3"}, Root: "spine1"}
	refused(t, r, third, aggmgr.ErrQuota, "leaf1 has 2 of 2 trees")
	begin(t, r, aggmgr.Request{Job: 4, Hosts: []string{"h3", "h4"}, Root: "leaf2"})
	if err := r.End(t.Context(), first.Tree.Job); err != nil {
		t.Fatal(err)
	}
	begin(t, r, third)
	want := []aggmgr.Usage{
		{Switch: "leaf1", Trees: 2, OSTs: 43, FreeTrees: 0, FreeOSTs: 57},
		{Switch: "leaf2", Trees: 2, OSTs: 6, FreeTrees: 0, FreeOSTs: 94},
		{Switch: "spine1", Trees: 1, OSTs: 3, FreeTrees: 1, FreeOSTs: 97},
		{Switch: "spine2", FreeTrees: 2, FreeOSTs: 100},
		{Switch: "leaf3"},
	}
	if diff := cmp.Diff(want, r.Usage()); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	a, b := r.board.held["leaf1"][2], r.board.held["leaf1"][3]
	if a.Base != 60 || a.OSTs != 40 || b.Base != 0 || b.OSTs != 3 {
		t.Errorf("regions of leaf1: %+v, %+v", a, b)
	}
}

// TestLinks: trees keep off links that are down, and do not go up again to get around one.
func TestLinks(t *testing.T) {
	r := newRig(t)
	both := []string{"h1", "h3"}
	g := begin(t, r, aggmgr.Request{Job: 1, Hosts: both, Root: "spine1"})
	if _, err := r.SetLink("leaf1", "leaf2", false); !errors.Is(err, aggmgr.ErrUnknown) {
		t.Errorf("no such link: %v", err)
	}
	affected, err := r.SetLink("leaf1", "spine1:1", false)
	if err != nil || !slices.Equal(affected, []uint16{1}) {
		t.Errorf("affected %v, %v", affected, err)
	}
	refused(t, r, aggmgr.Request{Job: 2, Hosts: both, Root: "spine1"}, aggmgr.ErrNoTree, "leaf1:11 - spine1:1 is down")
	if g := begin(t, r, aggmgr.Request{Job: 2, Hosts: both, Root: "spine2"}); g.Root() != "spine2" {
		t.Errorf("around the link: %+v", g)
	}
	if _, err := r.SetLink("spine2", "leaf2", false); err != nil {
		t.Fatal(err)
	}
	if err := r.End(t.Context(), g.Tree.Job); err != nil {
		t.Error(err)
	}
	refused(t, r, aggmgr.Request{Job: 3, Hosts: both, Root: "spine2"}, aggmgr.ErrNoTree, "from spine2 there is no way down to h3")
	if _, err := r.SetLink("spine1", "leaf1", true); err != nil {
		t.Fatal(err)
	}
	begin(t, r, aggmgr.Request{Job: 3, Hosts: both, Root: "spine1"})
}

// TestSwitchRefuses: a tree that cannot be set up everywhere is nowhere; one that is not
// released keeps what it has until it is.
func TestSwitchRefuses(t *testing.T) {
	r := newRig(t)
	boom := errors.New("boom")
	fail := func(what string, err error) {
		r.board.mu.Lock()
		defer r.board.mu.Unlock()
		r.board.refuse[what] = err
	}
	both := aggmgr.Request{Job: 1, Hosts: []string{"h1", "h3"}, Root: "spine1"}
	fail("install leaf2", boom)
	refused(t, r, both, aggmgr.ErrSwitch, "set up the tree on leaf2: boom")
	if got := r.board.state(); got != "" {
		t.Errorf("after a refusal, switches hold %s", got)
	}
	begin(t, r, aggmgr.Request{Job: 2, Hosts: []string{"h1", "h2"}, Root: "leaf1"})
	fail("install leaf2", nil)
	g := begin(t, r, both)
	fail("remove leaf2", boom)
	if err := r.End(t.Context(), g.Tree.Job); !errors.Is(err, aggmgr.ErrSwitch) {
		t.Errorf("end: %v", err)
	}
	if got := r.board.state(); got != "leaf1: 2, leaf2: 1" {
		t.Errorf("switches hold %s", got)
	}
	if u := r.Usage()[1]; u.Trees != 1 || u.OSTs != 3 {
		t.Errorf("leaf2 holds a tree, and its ledger says %+v", u)
	}
	refused(t, r, both, aggmgr.ErrSwitch, "still on leaf2")
	fail("remove leaf2", nil)
	begin(t, r, both)
	if got := r.board.state(); got != "leaf1: 1 2, leaf2: 1, spine1: 1" {
		t.Errorf("switches hold %s", got)
	}
}

// TestSwitchStuck: a switch that does not answer stops nobody whose tree is elsewhere, and a
// job that is given up meanwhile leaves nothing.
func TestSwitchStuck(t *testing.T) {
	r := newRig(t)
	stuck := make(chan struct{})
	r.board.mu.Lock()
	r.board.stuck = map[string]chan struct{}{"leaf1": stuck}
	r.board.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := r.Begin(ctx, aggmgr.Request{Job: 1, Hosts: []string{"h1", "h2"}, Root: "leaf1"})
		failed <- err
	}()
	eventually(t, "1", func() string { return fmt.Sprint(r.Usage()[0].Trees) })
	g := begin(t, r, aggmgr.Request{Job: 2, Hosts: []string{"h3", "h4"}, Root: "leaf2"})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	close(stuck)
	eventually(t, "leaf2: 2", r.board.state)
	eventually(t, "0", func() string { return fmt.Sprint(r.Usage()[0].Trees) })
	if err := r.End(t.Context(), g.Tree.Job); err != nil {
		t.Error(err)
	}
}

// eventually waits for what another goroutine or process brings about.
func eventually(t *testing.T, want string, get func() string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for got := get(); got != want; got = get() {
		if time.Now().After(deadline) {
			t.Fatalf("it is %q, and not %q", got, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestBadFabric: everything that is wrong with a fabric, at once.
func TestBadFabric(t *testing.T) {
	f := fabric()
	f.Hosts = append(f.Hosts, aggmgr.Host{Name: "h1", Switch: "leaf9", Port: 1}, aggmgr.Host{Name: "h6", Switch: "leaf1", Port: 1})
	f.Switches = append(f.Switches, aggmgr.Switch{Name: "leaf1"}, aggmgr.Switch{Name: "s", Trees: -1})
	f.Links = append(f.Links, aggmgr.Link{A: "leaf1", B: "leaf1"}, aggmgr.Link{A: "leaf1", APort: 2, B: "leaf2", BPort: 30})
	_, err := aggmgr.New(aggmgr.Config{Fabric: f, Switches: newBoard()})
	for _, want := range []string{`"h1" is there twice`, `"leaf9"`, `"leaf1" is there twice`, "negative", "not between two switches", "port leaf1:2 has", "port leaf1:1 has"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing about %s", err, want)
		}
	}
}
