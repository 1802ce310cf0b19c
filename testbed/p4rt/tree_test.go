package p4rt_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
)

// threeLevels is a tree over four ranks.
func threeLevels() p4rt.Tree {
	return p4rt.Tree{Job: 7, Epoch: 2, Window: 8, Nodes: []p4rt.TreeNode{
		{Switch: "l1", Parent: "m", Up: 9, Down: []uint32{1, 2}, Expect: 3, Base: 16},
		{Switch: "l2", Parent: "m", Up: 9, Down: []uint32{1}, Expect: 4},
		{Switch: "m", Parent: "c", Up: 9, Down: []uint32{1, 2}, Expect: 7},
		{Switch: "c", Down: []uint32{1, 2}, Expect: 15},
	}}
}

func TestTreeBatches(t *testing.T) {
	got, err := threeLevels().Batches()
	if err != nil {
		t.Fatal(err)
	}
	want := &dataplane.Batch{
		Groups: []p4.Group{{ID: 7, Ports: []uint32{1, 2}}},
		Jobs:   []ina.JobEntry{{Job: 7, Epoch: 2, Mode: ina.Exclusive, Base: 16, Size: 16, Window: 8, Expect: 3, UpPort: 9, DownGroup: 7}},
	}
	if diff := cmp.Diff(want, got["l1"]); diff != "" || len(got) != 4 {
		t.Errorf("%d switches, of l1 (-want +got):\n%s", len(got), diff)
	}
	if e := got["c"].Jobs[0]; !e.Root || got["m"].Jobs[0].Root {
		t.Errorf("the root is not c: %+v", e)
	}
}

func TestNotATree(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*p4rt.Tree)
		want string
	}{
		{"empty", func(t *p4rt.Tree) { t.Nodes = nil }, "none of 0 switches is its root"},
		{"no quota", func(t *p4rt.Tree) { t.Window = 0 }, "window is 0"},
		{"twice", func(t *p4rt.Tree) { t.Nodes[1].Switch = "l1" }, `switch "l1" is in it twice`},
		{"two roots", func(t *p4rt.Tree) { t.Nodes[2].Parent = "" }, "switches m and c are both its root"},
		{"a ring", func(t *p4rt.Tree) { t.Nodes[2].Parent = "l1" }, "is below itself"},
		{"hanging in the air", func(t *p4rt.Tree) { t.Nodes[2].Parent = "x" }, "switch m is below x, which is not in it"},
		{"no ports", func(t *p4rt.Tree) { t.Nodes[0].Down = nil }, "switch l1 has no ports"},
		{"no workers", func(t *p4rt.Tree) { t.Nodes[0].Expect = 0 }, "switch l1 has no workers"},
		{"up is down", func(t *p4rt.Tree) { t.Nodes[0].Up = 2 }, "switch l1 goes up and down through port 2"},
		{"a rank twice", func(t *p4rt.Tree) { t.Nodes[1].Expect = 2 }, "ranks in common"},
		{"a rank nobody expects", func(t *p4rt.Tree) { t.Nodes[2].Expect = 3 }, "switch m does not expect all ranks"},
		{"a rank missing", func(t *p4rt.Tree) { t.Nodes[3].Expect = 23 }, "want all from 0 on"},
	} {
		tree := threeLevels()
		tt.edit(&tree)
		err := p4rt.WriteTree(t.Context(), nil, tree)
		if !errors.Is(err, p4rt.ErrTree) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// Every switch has the tree, or none.
func TestWriteTree(t *testing.T) {
	ctx := t.Context()
	clients, servers := map[string]*p4rt.Client{}, map[string]*server{}
	for _, n := range threeLevels().Nodes {
		s := loopback(t)
		c := dial(t, s.addr)
		push(t, c)
		clients[n.Switch], servers[n.Switch] = c, s
	}
	tree := threeLevels()
	batches, err := tree.Batches()
	if err != nil {
		t.Fatal(err)
	}
	has := func(step string, want map[string]*dataplane.Batch) {
		t.Helper()
		for name, s := range servers {
			w := dataplane.Batch{}
			if b := want[name]; b != nil {
				w = *b
			}
			if diff := cmp.Diff(w, s.mem.State()); diff != "" {
				t.Errorf("%s: switch %s (-want +got):\n%s", step, name, diff)
			}
		}
	}
	for range 2 {
		if err := p4rt.WriteTree(ctx, clients, tree); err != nil {
			t.Fatal(err)
		}
		has("written", batches)
	}
	if err := p4rt.DeleteTree(ctx, clients, tree); err != nil {
		t.Fatal(err)
	}
	has("deleted", nil)

	servers["m"].mem.Full = true
	if err := p4rt.WriteTree(ctx, clients, tree); err == nil || !strings.Contains(err.Error(), "no aggregators left") {
		t.Errorf("one switch refused: %v", err)
	}
	has("refused by one", nil)

	delete(clients, "m")
	if err := p4rt.WriteTree(context.Background(), clients, tree); err == nil || !strings.Contains(err.Error(), "switch m, which nobody controls") {
		t.Errorf("without a client of m: %v", err)
	}
	has("without a client", nil)
}
