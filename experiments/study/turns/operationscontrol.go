package turns

import (
	"context"
	"net/netip"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/remote"
)

// controllerVerb is the hidden verb of MINA's controllers.
const controllerVerb = "mina-controller"

// controller starts the process that gives jobs hosts and trees.
func (o *Operations) controller(ctx context.Context, b *study.Bench, tb *remote.Testbed, seed uint64, sharing string, cost tree.Cost) (*training.Process, error) {
	inv := tb.Inventory()
	at, err := tb.Reach(inv.Hosts[0].Name)
	if err != nil {
		return nil, err
	}
	setup := o.setup(seed, sharing, cost)
	setup.Inventory, setup.MACs, setup.Listen = inv, map[netip.Addr]string{}, netip.AddrPortFrom(at, 0).String()
	setup.AMLog = b.Path("sharp_am.log")
	if setup.Share != nil {
		setup.Share.Listen, setup.Share.Log = setup.Listen, b.Path("sharing.jsonl")
	}
	for _, h := range inv.Hosts {
		for _, nic := range h.NICs {
			mac, err := tb.MAC(ctx, h.Name, nic.Device)
			if err != nil {
				return nil, err
			}
			setup.MACs[nic.Address.Addr()] = mac.String()
		}
	}
	return training.Start(ctx, tb, []string{"/proc/self/exe", controllerVerb}, setup)
}

// setup is what the controller goes by, as the simulation of the same point does.
func (o *Operations) setup(seed uint64, sharing string, cost tree.Cost) controller.Setup {
	s := controller.Setup{Place: o.Placement, Trees: o.Trees, Sharing: o.Groups, Alpha: &o.Alpha, Options: o.options(seed)}
	if sharing != "mina" && sharing != "greedy" {
		s.Sharing = "exclusive"
	}
	if sharing == "mina" {
		s.Share = &controller.Share{Cost: cost, PerHost: o.byHosts()}
	}
	return s
}
