package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/inabench/inabench/inventory"
)

// MaxWorkers is how many workers a job can have: a sum's bitmap has 64 bits.
const MaxWorkers = 64

// ErrMemory is wrapped where switches have too few aggregators for a plan.
var ErrMemory = errors.New("not enough switch memory")

// BuildTree completes a job plan whose workers and PS have hosts: it chooses their
// NICs where none is named, and sets the aggregation tree, the union of shortest
// paths from every worker to the PS (all of them part of one shortest path tree, so
// that they never part again once they have met).
//
// A switch aggregates if it has aggregators, hosts are cabled to it (NetPack,
// section 4.1: INA on ToRs, whose hierarchy is not disturbed by multipath), and two
// workers are below it. Plain PS jobs have the same tree without aggregation; ring
// jobs, and jobs of one worker without a PS, have none.
//
// Without a PS the root is the switch with aggregators that is the fewest hops from
// all workers, the first in the file of several; it returns the results itself.
func BuildTree(t *inventory.Topology, inv *inventory.Inventory, p *JobPlan) error {
	if err := buildTree(t, inv, p); err != nil {
		return fmt.Errorf("job %s: aggregation tree: %w", p.Name, err)
	}
	return nil
}

func buildTree(t *inventory.Topology, inv *inventory.Inventory, p *JobPlan) error {
	p.Tree = nil
	if len(p.Workers) > MaxWorkers && p.Collective != Ring {
		return fmt.Errorf("%d workers, at most %d", len(p.Workers), MaxWorkers)
	}
	root := ""
	var psLink inventory.DirectedLink
	switch {
	case p.Collective == Ring || p.PS == "" && len(p.Workers) == 1:
		for i := range p.Workers {
			l, err := hostLink(t, p.Workers[i].Host, p.Workers[i].NIC, "")
			if err != nil {
				return err
			}
			p.Workers[i].NIC = l.NIC
		}
		return nil
	case p.PS != "":
		l, err := hostLink(t, p.PS, p.PSNIC, "")
		if err != nil {
			return err
		}
		p.PSNIC, psLink, root = l.NIC, l, l.To
	default:
		r, err := syncRoot(t, inv, p)
		if err != nil {
			return err
		}
		root = r
	}

	type node struct {
		TreeNode
		depth int
	}
	nodes := []*node{{TreeNode: TreeNode{Switch: root}}}
	if p.PS != "" {
		nodes[0].UpPort = psLink.ToPort
	}
	at := map[string]*node{root: nodes[0]}
	for i := range p.Workers {
		w := &p.Workers[i]
		l, err := hostLink(t, w.Host, w.NIC, root)
		if err != nil {
			return err
		}
		w.NIC = l.NIC
		// From the root, so that all paths lie in the root's shortest path tree.
		path, err := t.Path(root, l.To)
		if err != nil {
			return err
		}
		n := nodes[0]
		bit := uint64(1) << w.Rank
		n.Expect |= bit
		for _, li := range path {
			down := t.Links[li]
			n.addDown(down.FromPort)
			child := at[down.To]
			if child == nil {
				child = &node{TreeNode: TreeNode{Switch: down.To, Parent: n.Switch, UpPort: down.ToPort}, depth: n.depth + 1}
				at[down.To] = child
				nodes = append(nodes, child)
			}
			n = child
			n.Expect |= bit
		}
		n.addDown(l.ToPort)
	}
	slices.SortStableFunc(nodes, func(a, b *node) int { return cmp.Compare(b.depth, a.depth) })
	for _, n := range nodes {
		slices.Sort(n.Down)
		sw, _ := inv.Switch(n.Switch)
		n.Aggregate = p.Collective == INA && sw != nil && sw.Aggregators > 0 &&
			(t.Tier(n.Switch) == 1 || p.PS == "" && n.Switch == root) &&
			n.Expect&(n.Expect-1) != 0
		p.Tree = append(p.Tree, n.TreeNode)
	}
	return nil
}

func (n *TreeNode) addDown(port uint32) {
	if !slices.Contains(n.Down, port) {
		n.Down = append(n.Down, port)
	}
}

// hostLink is the link from a host's NIC, named or not, to its switch: of several
// the one with the fewest hops to the switch near, then the first in the file.
func hostLink(t *inventory.Topology, host, nic, near string) (inventory.DirectedLink, error) {
	var best inventory.DirectedLink
	found, hops := false, 0
	for _, li := range t.Out(host) {
		l := t.Links[li]
		if nic != "" && l.NIC != nic {
			continue
		}
		n := 0
		if near != "" {
			path, err := t.Path(l.To, near)
			if err != nil {
				continue
			}
			n = len(path)
		}
		if !found || n < hops {
			best, found, hops = l, true, n
		}
	}
	if !found {
		if nic != "" {
			return best, fmt.Errorf("host %q has no cabled NIC %q", host, nic)
		}
		return best, fmt.Errorf("host %q has no cabled NIC", host)
	}
	return best, nil
}

// syncRoot is the switch that sums up a job without PS.
func syncRoot(t *inventory.Topology, inv *inventory.Inventory, p *JobPlan) (string, error) {
	best, least := "", 0
	for i := range inv.Switches {
		sw := &inv.Switches[i]
		if sw.Aggregators == 0 {
			continue
		}
		hops, reached := 0, true
		for _, w := range p.Workers {
			l, err := hostLink(t, w.Host, w.NIC, sw.Name)
			if err != nil {
				reached = false
				break
			}
			path, err := t.Path(l.To, sw.Name)
			if err != nil {
				reached = false
				break
			}
			hops += len(path)
		}
		if reached && (best == "" || hops < least) {
			best, least = sw.Name, hops
		}
	}
	if best == "" {
		return "", fmt.Errorf("no switch with aggregators reaches all workers: %w", ErrMemory)
	}
	return best, nil
}

// Validate reports everything in a plan that its inventory cannot carry: unknown
// or repeated hosts, more GPUs taken than a host has, ranks that do not count up,
// trees that miss a worker or name a switch or port that is not there.
func Validate(plan *Plan, inv *inventory.Inventory) error {
	t := inv.Topology()
	var errs []error
	used := map[string]int{}
	ids := map[uint16]string{}
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("job %s: "+format, append([]any{j.Name}, args...)...))
		}
		if other, dup := ids[j.ID]; dup {
			bad("has id %d, as has job %s", j.ID, other)
		}
		ids[j.ID] = j.Name
		if len(j.Workers) == 0 {
			bad("has no workers")
		}
		seen := map[string]bool{}
		ranked := true // so that a worker is a bit of what a switch expects
		for k, w := range j.Workers {
			if w.Rank != k {
				bad("worker %d has rank %d", k, w.Rank)
				ranked = false
			}
			if seen[w.Host] {
				bad("has two workers on host %s", w.Host)
			}
			seen[w.Host] = true
			if _, err := hostLink(t, w.Host, w.NIC, ""); err != nil {
				bad("worker %d: %w", k, err)
			}
			if w.GPUs < 0 {
				bad("worker %d has %d GPUs", k, w.GPUs)
			}
			used[w.Host] += w.GPUs
		}
		for _, s := range j.Spare {
			if s.GPUs < 0 {
				bad("keeps %d GPUs of host %s", s.GPUs, s.Host)
			}
			if _, ok := inv.Host(s.Host); !ok {
				bad("keeps GPUs of host %s, which is not there", s.Host)
			}
			used[s.Host] += s.GPUs
		}
		if len(j.Ranks) > 0 {
			ranks := map[string]int{}
			all := 0
			for _, h := range j.Ranks {
				ranks[h]++
			}
			for _, w := range j.Workers {
				if ranks[w.Host] != w.GPUs {
					bad("has %d ranks on host %s, and %d GPUs", ranks[w.Host], w.Host, w.GPUs)
				}
				all += w.GPUs
			}
			if all != len(j.Ranks) {
				bad("has %d ranks, and %d GPUs", len(j.Ranks), all)
			}
		}
		if j.PS != "" {
			if _, err := hostLink(t, j.PS, j.PSNIC, ""); err != nil {
				bad("PS: %w", err)
			}
		}
		if ranked && len(j.Tree) > 0 && len(j.Workers) > MaxWorkers {
			bad("has %d workers in a tree, of which switches tell %d apart", len(j.Workers), MaxWorkers)
			ranked = false
		}
		if !ranked {
			continue
		}
		for _, err := range checkTree(t, inv, j) {
			bad("%w", err)
		}
	}
	for i := range inv.Hosts {
		h := &inv.Hosts[i]
		if used[h.Name] > h.GPUs {
			errs = append(errs, fmt.Errorf("host %s: jobs take %d GPUs, it has %d", h.Name, used[h.Name], h.GPUs))
		}
	}
	return errors.Join(errs...)
}

// checkTree rebuilds a job's tree from its ports alone and compares.
func checkTree(t *inventory.Topology, inv *inventory.Inventory, j *JobPlan) (errs []error) {
	if len(j.Tree) == 0 {
		if j.Collective != Ring && (len(j.Workers) > 1 || j.PS != "") {
			errs = append(errs, errors.New("has no tree"))
		}
		return errs
	}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	place := map[string]int{}
	below := map[string]uint64{}
	for _, w := range j.Workers {
		if l, err := hostLink(t, w.Host, w.NIC, j.Tree[len(j.Tree)-1].Switch); err == nil {
			below[l.To] |= 1 << w.Rank
		}
	}
	for i, n := range j.Tree {
		if _, dup := place[n.Switch]; dup {
			bad("tree has switch %s twice", n.Switch)
		}
		place[n.Switch] = i
		sw, ok := inv.Switch(n.Switch)
		if !ok {
			bad("tree names switch %q, which the inventory lacks", n.Switch)
			continue
		}
		if n.Aggregate && sw.Aggregators == 0 {
			bad("switch %s has no aggregators: %w", n.Switch, ErrMemory)
		}
		if n.Expect != below[n.Switch] {
			bad("switch %s expects workers %#x, below it are %#x", n.Switch, n.Expect, below[n.Switch])
		}
		last := i == len(j.Tree)-1
		if last != (n.Parent == "") {
			bad("switch %s: only the last of a tree has no parent", n.Switch)
			continue
		}
		up := n.Parent
		if last {
			up = j.PS
		}
		if up != "" {
			if l, ok := portLink(t, n.Switch, n.UpPort); !ok || l.To != up {
				bad("switch %s: port %d does not lead to %s", n.Switch, n.UpPort, up)
			}
		}
		below[n.Parent] |= n.Expect
	}
	root := j.Tree[len(j.Tree)-1]
	if all := ^uint64(0) >> (MaxWorkers - len(j.Workers)); root.Expect != all {
		bad("switch %s, the root, expects workers %#x of %#x", root.Switch, root.Expect, all)
	}
	return errs
}

// portLink is the link that leaves a switch by a port.
func portLink(t *inventory.Topology, sw string, port uint32) (inventory.DirectedLink, bool) {
	for _, li := range t.Out(sw) {
		if l := t.Links[li]; l.FromPort == port {
			return l, true
		}
	}
	return inventory.DirectedLink{}, false
}
