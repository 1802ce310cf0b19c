package switches

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/journal"
)

// guest is the plane of a switch that ran a program of somebody else before.
type guest struct {
	dataplane.Switch
	site   *Site
	sw     inventory.Switch
	name   string          // of that program
	config []byte          // empty: it cannot be put back
	change *journal.Change // nil: it cannot be put back

	once   sync.Once
	left   chan struct{} // closed by Close, which is before the program is put back
	parted error         // what came of that
}

// displace makes sure that a switch may be given a program: nobody else's runs there, or the inventory says that it may be
// replaced. Then the journal has how it is put back, where the server gives it whole. It returns nil where none is replaced.
func displace(ctx context.Context, site *Site, sw inventory.Switch, plane dataplane.Switch) (*guest, error) {
	found, err := plane.Foreign(ctx)
	if found == nil || err != nil {
		return nil, err
	}
	if !sw.ReplaceProgram {
		return nil, blame.Switch(sw.Name, fmt.Errorf("%w: %s", dataplane.ErrForeign, found.Name))
	}
	g := &guest{Switch: plane, site: site, sw: sw, name: found.Name, left: make(chan struct{})}
	if len(found.Config) == 0 {
		return g, nil
	}
	program, err := journal.NewProgram(found.Name, found.Config)
	if errors.Is(err, bounded.ErrTooLarge) {
		return g, nil
	}
	if err != nil {
		return nil, blame.Switch(sw.Name, err)
	}
	change := &journal.Change{Target: "switch " + sw.Name, What: "replace program " + found.Name, Undo: journal.Inverse{Program: program}}
	if err := site.Journal.Begin(change); err != nil {
		return nil, err
	}
	g.config, g.change = found.Config, change
	return g, nil
}

// Close implements dataplane.Switch.
func (g *guest) Close(ctx context.Context) error {
	err := g.Switch.Close(ctx)
	g.once.Do(func() {
		g.parted = err
		if lost := g.Err(); err == nil && errors.Is(lost, dataplane.ErrNotPrimary) {
			g.parted = lost // it is another's
		}
		close(g.left)
	})
	return err
}

// becomes is what becomes of the program that was replaced, for the record.
func (g *guest) becomes() string {
	if g.change == nil {
		return g.name + ", which its server does not give whole: load it again"
	}
	return g.name + ", which is put back"
}

// putBack loads the program that was there before, once the plane is closed. Where that went wrong, or the switch is another
// run's by now, the journal remembers to.
func (g *guest) putBack(ctx context.Context) (err error) {
	if g.change == nil {
		return nil
	}
	select {
	case <-g.left:
		err = g.parted
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if mine := g.site.Mine(g.sw.Name); err == nil && mine != nil {
		if lost := mine(ctx); errors.Is(lost, dataplane.ErrNotPrimary) {
			err = lost
		}
	}
	if err == nil {
		_, err = device.PutBack(ctx, g.sw, device.Cables(g.site.Topology, g.sw.Name), g.config, false, dataplane.Options{Polite: true})
	}
	if err != nil {
		return blame.Switch(g.sw.Name, fmt.Errorf("program %s is not put back: %w", g.name, err))
	}
	return g.site.Journal.Undone(g.change)
}
