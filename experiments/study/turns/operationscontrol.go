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
	setup := controller.Setup{
		Inventory: inv, MACs: map[netip.Addr]string{}, Listen: netip.AddrPortFrom(at, 0).String(),
		AMLog: b.Path("sharp_am.log"),
		Place: o.Placement, Trees: o.Trees, Sharing: o.Groups, K: o.Candidates, Seed: seed,
	}
	if sharing != "mina" && sharing != "greedy" {
		setup.Sharing = "exclusive"
	}
	if sharing == "mina" {
		setup.Share = &controller.Share{Listen: setup.Listen, Cost: cost, Log: b.Path("sharing.jsonl")}
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
