// Package lab is the fabric that needs no bringing up: hosts, switches and cables
// that are there.
package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Fabric is a lab as its inventory describes it.
type Fabric struct{ inv *inventory.Inventory }

var _ testbed.Fabric = (*Fabric)(nil)

// New returns the lab of inv, or every address that its inventory lacks.
func New(inv *inventory.Inventory) (*Fabric, error) {
	if err := inv.CheckLab(); err != nil {
		return nil, err
	}
	return &Fabric{inv}, nil
}

// Inventory implements testbed.Fabric.
func (f *Fabric) Inventory() *inventory.Inventory { return f.inv }

// SetLink implements testbed.Fabric: a lab's cables cannot be damaged from here.
func (f *Fabric) SetLink(context.Context, string, testbed.LinkState) error {
	return fmt.Errorf("the cables of a lab cannot lose packets on request: %w", errors.ErrUnsupported)
}

// Health implements testbed.Fabric: hardware has nothing to confess here; what its
// hosts report of themselves comes from their agents.
func (f *Fabric) Health(context.Context) ([]results.Trouble, error) { return nil, nil }

// Stalls implements testbed.Fabric: hardware does not stand still.
func (f *Fabric) Stalls(context.Context, time.Time) ([]testbed.Stall, error) { return nil, nil }

// Close implements testbed.Fabric.
func (f *Fabric) Close(context.Context) error { return nil }
