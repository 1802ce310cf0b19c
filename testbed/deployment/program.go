package deployment

import (
	"errors"
	"fmt"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/switches"
)

// programs turns jobs into the entries of every switch that takes part.
//
// Statistical jobs share the region [0, M) of each aggregating switch. Synchronous
// jobs own a region of two windows each, handed out in the order of the plan, or what
// they are granted.
func programs(inv *inventory.Inventory, s testbed.Setup, epoch uint16, regions *placement.Regions) (map[string]*dataplane.Batch, error) {
	mode, err := modeOf(s.Settings)
	if err != nil {
		return nil, err
	}
	out := map[string]*dataplane.Batch{}
	for i, job := range s.Plan.Jobs {
		if job.Collective == placement.Ring {
			continue
		}
		w := s.Workloads[i]
		for _, node := range job.Tree {
			sw, ok := inv.Switch(node.Switch)
			if !ok {
				return nil, fmt.Errorf("job %s: plan names switch %q, which the inventory lacks", job.Name, node.Switch)
			}
			if !switches.Programmed(sw.Kind) {
				return nil, fmt.Errorf("job %s: switch %s is of kind %s, which knows nothing of inabench's packets: %w", job.Name, sw.Name, sw.Kind, errors.ErrUnsupported)
			}
			p := out[sw.Name]
			if p == nil {
				p = &dataplane.Batch{}
				out[sw.Name] = p
			}
			// A job's multicast group has the job's id.
			p.Groups = append(p.Groups, p4.Group{ID: job.ID, Ports: node.Down})
			e := ina.JobEntry{
				Job: job.ID, Epoch: epoch, Mode: ina.Forward,
				Expect: node.Expect, Root: node.Parent == "", Window: uint32(w.Window),
				UpPort: node.UpPort, DownGroup: job.ID,
			}
			if e.Addressing, err = addressingOf(job.Addressing(node.Switch, s.Settings.Addressing)); err != nil {
				return nil, err
			}
			if node.Aggregate && job.Collective == placement.INA {
				e.Mode = mode
				switch mode {
				case ina.Synchronous:
					if s.Grants != nil {
						grant(&e, s.Grants[job.Name], sw.Name)
						break
					}
					base, size, err := regions.Take(sw, job.Name, w.Window)
					if err != nil {
						return nil, err
					}
					e.Base, e.Size = uint32(base), uint32(size)
				default:
					e.Size = uint32(placement.Aggregators(sw, s.Settings.Aggregators))
					if e.Addressing == ina.Linear {
						e.Offset = offset(s.Settings.Seed, job.ID, int(e.Size))
					}
				}
			}
			p.Jobs = append(p.Jobs, e)
		}
	}
	return out, nil
}

// grant makes the memory of a synchronous job's entry in a switch what it is granted.
func grant(e *ina.JobEntry, g placement.Grant, sw string) {
	e.Base, e.Size = uint32(g.Base[sw]), uint32(2*g.Window)
	if g.Window > 0 {
		e.Window = uint32(g.Window)
	}
}

// offset is where a job's PSN 0 looks in a region under linear addressing.
func offset(seed uint64, job uint16, size int) uint32 {
	return uint32(placement.Offset(seed, job) * float64(size))
}

func modeOf(s testbed.Settings) (ina.Mode, error) {
	m, ok := map[string]ina.Mode{"": ina.Statistical, "statistical": ina.Statistical, "synchronous": ina.Synchronous}[s.Mode]
	if !ok {
		return 0, fmt.Errorf("unknown switch mode %q", s.Mode)
	}
	return m, nil
}

func addressingOf(name string) (ina.Addressing, error) {
	a, ok := map[string]ina.Addressing{"": ina.Pool, "pool": ina.Pool, "hash": ina.Hash, "linear": ina.Linear, "atp": ina.ATP}[name]
	if !ok {
		return 0, fmt.Errorf("unknown addressing %q", name)
	}
	return a, nil
}
