package switches

import (
	"context"
	"io"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
)

// quantum are switches of an InfiniBand fabric: the subnet manager controls them, and SHARP's aggregation manager.
var quantum = kind{open: openQuantum, observe: openQuantum, foreign: true}

func openQuantum(_ context.Context, site *Site, sw inventory.Switch) (Switch, error) {
	return &fabric{site, sw}, nil
}

// fabric is a switch of an InfiniBand fabric.
type fabric struct {
	site *Site
	sw   inventory.Switch
}

// Plane implements Switch.
func (*fabric) Plane() dataplane.Switch { return nil }

// Facts implements Switch.
func (*fabric) Facts() *results.SwitchFacts { return nil }

// Status implements Switch.
func (*fabric) Status(context.Context) error { return nil }

// Close implements Switch.
func (*fabric) Close(context.Context) error { return nil }

// Collectors implements Switch: its ports' counters, where a host can ask for them.
func (f *fabric) Collectors([]int, map[int]string) ([]collectors.Collector, error) {
	if c := f.reader(); c != nil {
		return []collectors.Collector{c}, nil
	}
	return nil, nil
}

// reader reads the switch's ports from the first host in use that is
// cabled to its fabric by a known RDMA port. nil: there is no such host, or nobody
// knows the switch's GUID.
func (f *fabric) reader() collectors.Collector {
	sw := f.sw
	if sw.GUID == 0 {
		return nil
	}
	for _, h := range f.site.Hosts {
		client := f.site.Host(h.Name)
		if client == nil {
			continue
		}
		for _, nic := range h.NICs {
			if nic.RDMA == "" || !joined(f.site, nic.Switch, sw.Name) {
				continue
			}
			c := &collectors.IBSwitch{
				Switch: sw.Name, GUID: uint64(sw.GUID), From: nic.RDMA, Ports: map[int]collectors.P4Port{},
				Run: f.site.inTurn(h.Name, client.Run), RunRoot: f.site.inTurn(h.Name, client.RunRoot),
			}
			for _, li := range f.site.Topology.Out(sw.Name) {
				l := f.site.Topology.Links[li]
				c.Ports[int(l.FromPort)] = collectors.P4Port{Out: l.Name, In: f.site.Topology.Links[l.Reverse].Name}
			}
			return c
		}
	}
	return nil
}

// mostAsking is how many commands at once ask the fabric of a host: each is a session of the host's one connection, of which
// OpenSSH allows 10 (MaxSessions), and what else is done on the host needs some.
const mostAsking = 3

// inTurn runs commands on a host, which wait while it runs mostAsking of them.
func (s *Site) inTurn(host string, run func(context.Context, []string, io.Reader) (hosts.Output, error)) func(context.Context, []string) (hosts.Output, error) {
	v, _ := s.asking.LoadOrStore(host, make(chan struct{}, mostAsking))
	turn := v.(chan struct{})
	return func(ctx context.Context, argv []string) (hosts.Output, error) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			return run(ctx, argv, nil)
		case <-ctx.Done():
			return hosts.Output{}, context.Cause(ctx)
		}
	}
}

// joined reports whether switches alone, of one kind, lead from one to the other.
func joined(site *Site, from, to string) bool {
	seen := map[string]bool{from: true}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == to {
			return true
		}
		for _, li := range site.Topology.Out(queue[0]) {
			next := site.Topology.Links[li].To
			if sw, ok := site.Inventory.Switch(next); ok && sw.Kind == inventory.Quantum && !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return false
}
