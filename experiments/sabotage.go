package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sabotage"
)

// ParseSabotage reads NAME or NAME=PART.
func ParseSabotage(text string) (*sabotage.Order, error) {
	o, err := sabotage.Parse(text)
	if err != nil {
		name, _, _ := strings.Cut(text, "=")
		return nil, spec.Invalid(tomlfile.WithHint(strings.TrimSpace(tomlfile.DidYouMean(name, sabotage.Names())+" inabench sabotage lists them all"), "sabotage: %v", err))
	}
	return o, nil
}

// sabotaged is the order as a run carries it out, with its part found. It refuses what has no
// meaning there, before anything is touched.
func sabotaged(o *sabotage.Order, s *spec.Spec, driver string, points []study.Planned) (*sabotage.Order, error) {
	if o == nil {
		return nil, nil
	}
	refuse := func(why string) error {
		return fmt.Errorf("sabotage %s on %s: %s: %w", o.Name, driver, why, errors.ErrUnsupported)
	}
	for _, p := range points {
		if why := o.Refused(driver, drivers.SwitchKind(p.Spec)); why != "" {
			return nil, refuse(why)
		}
		switch k := p.Spec.Kind(); {
		case k.Faultless != "":
			return nil, refuse(k.Faultless)
		case kinds.Simulator(p.Spec, driver) != nil:
			return nil, refuse("a study in the simulator has no parts that could fail")
		case o.At == sabotage.PS && k.Ranks:
			return nil, refuse("no job has a PS")
		case o.Name == "restart" && k.Ranks:
			return nil, refuse("ranks that begin again have lost the connections of their job: that is what crash does")
		}
	}
	out := *o
	if out.Part == "" {
		out.Part = anyPart(o, s, points)
	}
	return &out, checkPart(&out, s, points)
}

// checkPart reports a part that is not there.
func checkPart(o *sabotage.Order, s *spec.Spec, points []study.Planned) error {
	var there []string
	switch o.At {
	case sabotage.Switch:
		there = s.Inventory().SwitchNames()
	case sabotage.Link, sabotage.Queue:
		for _, l := range s.Inventory().Topology().Links {
			there = append(there, l.Name)
		}
	default:
		if points[0].Plan == nil {
			return nil // nobody knows yet what jobs there will be
		}
		for _, p := range points {
			for _, j := range p.Plan.Jobs {
				switch {
				case o.At == sabotage.PS && j.PS != "":
					there = append(there, j.Name+"/ps")
				case o.At == sabotage.PS || j.Local():
				case o.Name == "restart" && j.Collective == placement.Ring: // its connections would be gone
				default:
					for _, w := range j.Workers {
						there = append(there, fmt.Sprintf("%s/%d", j.Name, w.Rank))
					}
				}
			}
		}
		if slices.ContainsFunc(there, func(name string) bool { return results.Glob(o.Part, name) }) {
			return nil
		}
	}
	if o.Part != "" && slices.Contains(there, o.Part) {
		return nil
	}
	slices.Sort(there)
	if there = slices.Compact(there); len(there) == 0 {
		return spec.Invalidf("sabotage %s: no %s is there that could have it", o.Name, o.At)
	}
	return spec.Invalid(tomlfile.WithHint(tomlfile.OneOf(o.Part, there), "sabotage %s: no %s %q", o.Name, o.At, o.Part))
}

// anyPart is the part that has a fault if nobody says which: the first of the largest job. Where
// jobs are placed as they come, that is the first worker, or the PS, of every job, and the first
// host's switch or cable.
func anyPart(o *sabotage.Order, s *spec.Spec, points []study.Planned) string {
	job, host := "*", s.Inventory().Hosts[0].Name
	ps := host
	if plan := points[0].Plan; plan != nil {
		j := largest(plan)
		if j == nil {
			return ""
		}
		job, host, ps = j.Name, j.Workers[0].Host, j.PS
		if ps == "" {
			ps = host
		}
	}
	at := func(name string) inventory.NIC {
		h, _ := s.Inventory().Host(name)
		return h.NICs[0]
	}
	cable := func(match func(l inventory.DirectedLink) bool) string {
		links := s.Inventory().Topology().Links
		return links[slices.IndexFunc(links, match)].Name // a NIC has a cable
	}
	switch {
	case o.At == sabotage.Switch:
		return at(host).Switch
	case o.At == sabotage.PS:
		return job + "/ps"
	case o.Name == "suspend": // the whole job hangs, which nobody can see at one worker alone
		return job + "/*"
	case o.At == sabotage.Worker, o.At == sabotage.Clock:
		return job + "/0"
	case o.Name == "slow-up", o.Name == "deaf-link":
		return cable(func(l inventory.DirectedLink) bool { return l.From == host && l.NIC == at(host).Device })
	}
	return cable(func(l inventory.DirectedLink) bool { return l.To == ps && l.NIC == at(ps).Device })
}

// largest is the first of the jobs with most workers that have traffic, those that switches add
// up for before others.
func largest(plan *placement.Plan) (most *placement.JobPlan) {
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		switch {
		case j.Local():
		case most == nil, j.Collective == placement.INA && most.Collective != placement.INA,
			j.Collective == most.Collective && len(j.Workers) > len(most.Workers):
			most = j
		}
	}
	return most
}

// Sabotage gives the testbed the run's fault, which it has until end; that tells how often it
// acted. What was calibrated was calibrated without it.
func (r *run) Sabotage(ctx context.Context) (end func() int64, err error) {
	if r.sabotaged == nil {
		return func() int64 { return 0 }, nil
	}
	tb, ok := r.tb.(testbed.Saboteur)
	if !ok {
		return nil, fmt.Errorf("sabotage %s: this testbed has no faults: %w", r.sabotaged.Name, errors.ErrUnsupported)
	}
	if _, err := tb.Sabotage(ctx, r.sabotaged); err != nil {
		return nil, err
	}
	return func() int64 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		acted, _ := tb.Sabotage(ctx, nil) // of a part that is gone nothing more can be known
		return acted
	}, nil
}

// recordOf is what the record says of an order.
func recordOf(o *sabotage.Order) *results.Sabotage {
	if o == nil {
		return nil
	}
	return &results.Sabotage{Fault: o.Name, What: o.What, Part: o.Part, Want: string(o.Want)}
}
