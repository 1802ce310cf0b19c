package remote

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/switches"
)

// Counters reads the NICs of every host and the counters of every switch, those of jobs by
// the names that their ids have, on the clock of now. It is for a testbed whose switches
// somebody else controls, who has loaded their pipelines.
func (tb *Testbed) Counters(ctx context.Context, now func() time.Duration, jobs map[int]string) (*collectors.Sampler, error) {
	tb.audit.Restart()
	names := slices.Sorted(maps.Keys(tb.planes))
	if err := parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		return tb.planes[names[i]].Attach(ctx)
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

// unwell are switches that say that they are not as they should be.
func (tb *Testbed) unwell(ctx context.Context) []results.Trouble {
	names := slices.Sorted(maps.Keys(tb.switches))
	found := make([]*results.Trouble, len(names))
	_ = parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		if err := tb.switches[names[i]].Status(ctx); err != nil && ctx.Err() == nil {
			where := "switch " + names[i]
			found[i] = &results.Trouble{Where: where, What: strings.TrimPrefix(err.Error(), where+": "), Value: 1, Fatal: true}
		}
		return nil // the others are as interesting
	})
	var out []results.Trouble
	for _, t := range found {
		if t != nil {
			out = append(out, *t)
		}
	}
	return out
}

// Sampler reads everything that counts, on the clock of now: the NICs of hosts in use and the counters of switches, those of
// jobs by the names that their ids have; at says which jobs a switch knows.
func (tb *Testbed) Sampler(now func() time.Duration, jobs map[int]string, at func(sw string) []int) (*collectors.Sampler, error) {
	s := &collectors.Sampler{Now: now, Audit: &tb.audit}
	hosts, used := tb.used()
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
	for _, sw := range used {
		more, err := tb.switches[sw.Name].Collectors(at(sw.Name), jobs)
		if err != nil {
			return nil, err
		}
		s.Collectors = append(s.Collectors, more...)
	}
	return s, nil
}

// JobCounters reads what a switch counts of one job; nil: it is not in use.
func (tb *Testbed) JobCounters(sw string, id int, job string) collectors.Collector {
	plane := tb.planes[sw]
	if plane == nil {
		return nil
	}
	return switches.JobCounters(sw, plane, id, job)
}

// Stalls are those of the fabric since the last call, on a clock that was 0 at began, for who
// starts processes with Launch.
func (tb *Testbed) Stalls(ctx context.Context, began time.Time) ([]testbed.Stall, error) {
	return tb.opt.Fabric.Stalls(ctx, began)
}
