package experiments

import (
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
)

// failure is the part of the testbed that an error names first, nil where it names none of the inventory.
func failure(err error, inv *inventory.Inventory) *results.Failure {
	p := blame.Of(err)
	known := false
	switch p.Kind {
	case blame.KindHost:
		_, known = inv.Host(p.Node)
	case blame.KindSwitch:
		_, known = inv.Switch(p.Node)
	}
	if !known {
		return nil
	}
	return &results.Failure{Kind: p.Kind, Of: p.Node}
}
