package remote

import (
	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/inventory"
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
