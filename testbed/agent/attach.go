package agent

import (
	"context"

	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/mina/controller/allocation"
)

// attach has the allocation controller give this rank's job its trees; see
// collective.Group.SetTree for how ranks agree on them.
func (k *trainer) attach(ctx context.Context) (*allocation.Host, error) {
	return allocation.Attach(ctx, k.cfg.Controller, k.cfg.Job, k.cfg.Rank, func(t allocation.Tree, settled func()) error {
		if k.group == nil { // the only rank needs no tree
			settled()
			return nil
		}
		return k.group.SetTree(collective.Tree{Epoch: t.Epoch, Window: t.Window}, settled)
	})
}
