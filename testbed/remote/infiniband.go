package remote

import (
	"context"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/hosts"
)

// infiniband takes the NICs that are InfiniBand apart from the others: the kernel's
// network devices see nothing of what passes them. Both are in the order of the host's.
func (tb *Testbed) infiniband(h inventory.Host, ports []collectors.NICPort) (ib []collectors.IBPort, rest []collectors.NICPort) {
	for i, p := range ports { // in the order of the host's NICs, as links are
		if i >= len(h.NICs) {
			return ib, append(rest, ports[i:]...)
		}
		nic := h.NICs[i]
		if sw, ok := tb.inv.Switch(nic.Switch); ok && sw.Kind == inventory.Quantum && nic.RDMA != "" {
			ib = append(ib, collectors.IBPort{RDMA: nic.RDMA, GUID: uint64(nic.GUID), Out: p.Out, In: p.In})
			continue
		}
		rest = append(rest, p)
	}
	return ib, rest
}

// ibSwitch reads an InfiniBand switch's ports from the first host in use that is
// cabled to its fabric by a known RDMA port. nil: there is no such host, or nobody
// knows the switch's GUID.
func (tb *Testbed) ibSwitch(sw inventory.Switch, used []inventory.Host) collectors.Collector {
	if sw.GUID == 0 {
		return nil
	}
	for _, h := range used {
		client := tb.hosts[h.Name]
		if client == nil {
			continue
		}
		for _, nic := range h.NICs {
			if nic.RDMA == "" || !tb.joined(nic.Switch, sw.Name) {
				continue
			}
			c := &collectors.IBSwitch{
				Switch: sw.Name, GUID: uint64(sw.GUID), From: nic.RDMA, Ports: map[int]collectors.P4Port{},
				Run: func(ctx context.Context, argv []string) (hosts.Output, error) { return client.Run(ctx, argv, nil) },
				RunRoot: func(ctx context.Context, argv []string) (hosts.Output, error) {
					return client.RunRoot(ctx, argv, nil)
				},
			}
			for _, li := range tb.topo.Out(sw.Name) {
				l := tb.topo.Links[li]
				c.Ports[int(l.FromPort)] = collectors.P4Port{Out: l.Name, In: tb.topo.Links[l.Reverse].Name}
			}
			return c
		}
	}
	return nil
}

// joined reports whether switches alone, of one kind, lead from one to the other.
func (tb *Testbed) joined(from, to string) bool {
	seen := map[string]bool{from: true}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == to {
			return true
		}
		for _, li := range tb.topo.Out(queue[0]) {
			next := tb.topo.Links[li].To
			if sw, ok := tb.inv.Switch(next); ok && sw.Kind == inventory.Quantum && !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return false
}
