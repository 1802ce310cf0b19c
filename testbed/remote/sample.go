package remote

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/gnmi"
)

// Counters reads the NICs of every host and the counters of every switch, those of jobs by
// the names that their ids have, on the clock of now. It is for a testbed whose switches
// somebody else controls, who has loaded their pipelines.
func (tb *Testbed) Counters(ctx context.Context, now func() time.Duration, jobs map[int]string) (*collectors.Sampler, error) {
	tb.audit.Restart()
	names := slices.Sorted(maps.Keys(tb.switches))
	if err := parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		return tb.switches[names[i]].Attach(ctx)
	}); err != nil {
		return nil, err
	}
	ids := slices.Sorted(maps.Keys(jobs))
	return tb.Sampler(now, jobs, func(string) []int { return ids })
}

// Health is what the fabric itself did too late or lost since the last call, and where
// counters that were read since then cannot be believed or contradict each other.
func (tb *Testbed) Health(ctx context.Context) ([]results.Trouble, error) {
	all, err := tb.opt.Fabric.Health(ctx)
	all = append(all, tb.audit.Troubles()...)
	return append(all, tb.unwell(ctx)...), err
}

// Sampler reads everything that counts, on the clock of now: the NICs of hosts in use and the counters of switches, those of
// jobs by the names that their ids have; at says which jobs a switch knows.
func (tb *Testbed) Sampler(now func() time.Duration, jobs map[int]string, at func(sw string) []int) (*collectors.Sampler, error) {
	s := &collectors.Sampler{Now: now, Audit: &tb.audit}
	hosts, switches := tb.used()
	for _, h := range hosts {
		var ports []collectors.NICPort
		for _, li := range tb.topo.Out(h.Name) {
			l := tb.topo.Links[li]
			ports = append(ports, collectors.NICPort{Device: l.NIC, Out: l.Name, In: tb.topo.Links[l.Reverse].Name})
		}
		ib, ports := tb.infiniband(h, ports)
		if len(ib) > 0 {
			c, err := collectors.NewIB(tb.hosts[h.Name], ib)
			if err != nil {
				return nil, err
			}
			s.Collectors = append(s.Collectors, c)
		}
		if len(ports) == 0 && !tb.opt.Readers { // they read its GPUs too
			continue
		}
		if tb.opt.Readers {
			all, err := tb.readers.of(tb, h, ports)
			if err != nil {
				return nil, err
			}
			s.Collectors = append(s.Collectors, all...)
			continue
		}
		c, err := collectors.NewNIC(tb.hosts[h.Name], ports)
		if err != nil {
			return nil, err
		}
		s.Collectors = append(s.Collectors, c)
	}
	for _, sw := range switches {
		more, err := tb.switchCollectors(sw)
		if err != nil {
			return nil, err
		}
		s.Collectors = append(s.Collectors, more...)
		if sw.Kind == inventory.Quantum {
			if c := tb.ibSwitch(sw, hosts); c != nil {
				s.Collectors = append(s.Collectors, c)
			}
		}
		if sw.Kind == inventory.Scripted || sw.Kind == inventory.Quantum {
			continue
		}
		c := &collectors.P4{Switch: sw.Name, Ports: map[int]collectors.P4Port{}, Jobs: jobs}
		r := &counterReader{client: tb.switches[sw.Name], jobs: at(sw.Name)}
		for _, li := range tb.topo.Out(sw.Name) {
			l := tb.topo.Links[li]
			c.Ports[int(l.FromPort)] = collectors.P4Port{Out: l.Name, In: tb.topo.Links[l.Reverse].Name}
			r.ports = append(r.ports, int(l.FromPort))
		}
		c.Reader = r
		s.Collectors = append(s.Collectors, c)
	}
	return s, nil
}

// JobCounters reads what a switch counts of one job; nil: it is not in use.
func (tb *Testbed) JobCounters(sw string, id int, job string) collectors.Collector {
	client := tb.switches[sw]
	if client == nil {
		return nil
	}
	return &collectors.P4{Switch: sw, Reader: &counterReader{client: client, jobs: []int{id}}, Jobs: map[int]string{id: job}}
}

// switchCollectors read what a switch counts besides what its P4 program does.
func (tb *Testbed) switchCollectors(sw inventory.Switch) (out []collectors.Collector, err error) {
	tb.others.mu.Lock()
	x := tb.others.script[sw.Name]
	tb.others.mu.Unlock()
	if x != nil {
		out = append(out, x)
	}
	g, err := tb.gnmiOf(sw)
	if g == nil || err != nil {
		return out, err
	}
	c := &collectors.GNMI{Switch: sw.Name, Reader: g, Ports: map[string]collectors.P4Port{}}
	for _, li := range tb.topo.Out(sw.Name) {
		l := tb.topo.Links[li]
		c.Ports[gnmi.PortName(l.FromPort, sw.Ports)] = collectors.P4Port{Out: l.Name, In: tb.topo.Links[l.Reverse].Name}
	}
	return append(out, c), nil
}

// counterReader reads the cells of a switch's counters that a deployment uses.
type counterReader struct {
	client      dataplane.Switch
	ports, jobs []int
}

// ReadCounters implements collectors.CounterReader.
func (r *counterReader) ReadCounters(ctx context.Context) ([]collectors.CounterValue, error) {
	var port, job []string
	for _, name := range r.client.Counters() {
		switch {
		case strings.HasPrefix(name, "port_"):
			port = append(port, name)
		case strings.HasPrefix(name, "job_"):
			job = append(job, name)
		}
	}
	var out []collectors.CounterValue
	for _, q := range []struct {
		names   []string
		indices []int
	}{{port, r.ports}, {job, r.jobs}} {
		if len(q.names) == 0 || len(q.indices) == 0 {
			continue
		}
		got, err := r.client.ReadCounters(ctx, q.names, q.indices)
		if err != nil {
			return out, err
		}
		for _, v := range got {
			out = append(out, collectors.CounterValue(v))
		}
	}
	return out, nil
}

// Stalls are those of the fabric since the last call, on a clock that was 0 at began, for who
// starts processes with Launch.
func (tb *Testbed) Stalls(ctx context.Context, began time.Time) ([]testbed.Stall, error) {
	return tb.opt.Fabric.Stalls(ctx, began)
}
