package p4rt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// Tree is a job's exclusive tree (see ina.Limits): switches that sum for the job while it
// has its turn, any number of levels of them.
type Tree struct {
	Job    uint16
	Epoch  uint16 // another one than that of the job's last tree
	Window uint32 // PSNs the job may have outstanding; each switch keeps twice as many aggregators
	Nodes  []TreeNode
}

// TreeNode is one switch of a tree.
type TreeNode struct {
	Switch string
	Parent string   // the switch above; empty: this is the root
	Up     uint32   // port towards the parent
	Down   []uint32 // ports towards workers and switches below
	Expect uint64   // bitmap of the ranks below
	Base   uint32   // first of its 2 x Window aggregators
}

// ErrTree is wrapped when a Tree is none.
var ErrTree = errors.New("not a tree")

// check says why no switch should be given this tree.
func (t Tree) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("job %d: %w: %s", t.Job, ErrTree, fmt.Sprintf(format, args...))
	}
	if t.Window == 0 {
		return bad("its window is 0, and with it its quota of aggregators")
	}
	at := make(map[string]*TreeNode)
	below := make(map[string]uint64) // ranks by parent
	var root *TreeNode
	for i := range t.Nodes {
		n := &t.Nodes[i]
		switch {
		case n.Switch == "" || at[n.Switch] != nil:
			return bad("switch %q is in it twice, or has no name", n.Switch)
		case n.Parent == "" && root != nil:
			return bad("switches %s and %s are both its root", root.Switch, n.Switch)
		case len(n.Down) == 0:
			return bad("switch %s has no ports towards workers", n.Switch)
		case n.Expect == 0:
			return bad("switch %s has no workers below", n.Switch)
		case n.Parent != "" && slices.Contains(n.Down, n.Up):
			return bad("switch %s goes up and down through port %d", n.Switch, n.Up)
		case n.Parent != "" && below[n.Parent]&n.Expect != 0:
			return bad("switch %s and another below %s have ranks in common", n.Switch, n.Parent)
		case n.Parent == "":
			root = n
		}
		at[n.Switch] = n
		if n.Parent != "" {
			below[n.Parent] |= n.Expect
		}
	}
	if root == nil {
		return bad("none of %d switches is its root", len(t.Nodes))
	}
	if root.Expect&(root.Expect+1) != 0 {
		return bad("the root expects the ranks %b, want all from 0 on", root.Expect)
	}
	for _, n := range t.Nodes {
		up := &n
		for steps := 0; up.Parent != ""; steps++ {
			parent := at[up.Parent]
			if parent == nil {
				return bad("switch %s is below %s, which is not in it", up.Switch, up.Parent)
			}
			if steps > len(t.Nodes) {
				return bad("switch %s is below itself", up.Switch)
			}
			up = parent
		}
	}
	for _, n := range t.Nodes {
		if below[n.Switch]&^n.Expect != 0 {
			return bad("switch %s does not expect all ranks of the switches below it", n.Switch)
		}
	}
	return nil
}

// Batches are the entries of the tree by switch. The multicast group of a job has the
// job's id. The error wraps ErrTree.
func (t Tree) Batches() (map[string]*dataplane.Batch, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	out := make(map[string]*dataplane.Batch, len(t.Nodes))
	for _, n := range t.Nodes {
		out[n.Switch] = &dataplane.Batch{
			Groups: []p4.Group{{ID: t.Job, Ports: n.Down}},
			Jobs: []ina.JobEntry{{
				Job: t.Job, Epoch: t.Epoch, Mode: ina.Exclusive, Base: n.Base, Size: 2 * t.Window, Window: t.Window,
				Expect: n.Expect, Root: n.Parent == "", UpPort: n.Up, DownGroup: t.Job,
			}},
		}
	}
	return out, nil
}

// WriteTree gives a tree to its switches, all at once: either every one of them has it in
// the end, or none. Clients are by switch. A switch whose quota of trees is used up answers
// codes.ResourceExhausted (see Error); the job must have none of its packets under way in
// t.Epoch.
func WriteTree(ctx context.Context, clients map[string]*Client, t Tree) error {
	batches, err := t.Batches()
	if err != nil {
		return err
	}
	for name := range batches {
		if clients[name] == nil {
			return fmt.Errorf("job %d: its tree has switch %s, which nobody controls", t.Job, name)
		}
	}
	err = t.each(clients, func(c *Client, name string) error { return c.Write(ctx, *batches[name]) })
	if err != nil {
		err = errors.Join(err, DeleteTree(context.WithoutCancel(ctx), clients, t))
	}
	return err
}

// DeleteTree takes a tree from its switches, which ends the job's turn if it has one.
// Switches that do not have it, or that nobody controls, are no error.
func DeleteTree(ctx context.Context, clients map[string]*Client, t Tree) error {
	b := dataplane.Batch{Groups: []p4.Group{{ID: t.Job}}, Jobs: []ina.JobEntry{{Job: t.Job}}}
	return t.each(clients, func(c *Client, _ string) error { return c.Delete(ctx, b) })
}

// each does something at every switch of the tree that has a client, side by side, and
// joins what went wrong.
func (t Tree) each(clients map[string]*Client, do func(c *Client, name string) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(t.Nodes))
	for i, n := range t.Nodes {
		if c := clients[n.Switch]; c != nil {
			wg.Go(func() { errs[i] = do(c, n.Switch) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}
