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

// guest is the plane of a switch that ran a program of somebody else before, which can be put back.
type guest struct {
	dataplane.Switch
	site   *Site
	sw     inventory.Switch
	name   string // of that program
	config []byte
	change *journal.Change

	once   sync.Once
	left   chan struct{} // closed by Close, which is before the program is put back
	parted error         // what came of that
}

// displace makes sure that a switch may be given a program: nobody else's runs there, or the inventory says that it may be
// replaced. Then the journal has how it is put back, where the server gives it whole. The guest is nil where nothing is put
// back. The words are what is replaced and what becomes of it, for the record; empty: nothing.
func displace(ctx context.Context, site *Site, sw inventory.Switch, plane dataplane.Switch) (_ *guest, words string, err error) {
	found, err := plane.Foreign(ctx)
	if errors.Is(err, dataplane.ErrUntold) {
		return nil, "whatever it ran, which its server does not tell", nil
	}
	if found == nil || err != nil {
		return nil, "", err
	}
	whole := len(found.Config) > 0
	if !sw.ReplaceProgram {
		err := fmt.Errorf("%w: %s", dataplane.ErrForeign, found.Name)
		if !whole {
			err = fmt.Errorf("%w, which its server does not give whole: a run could not put it back", err)
		}
		return nil, "", blame.Switch(sw.Name, err)
	}
	if !whole {
		return nil, found.Name + ", which its server does not give whole: load it again", nil
	}
	program, err := journal.NewProgram(found.Name, found.Config)
	if err == nil {
		change := &journal.Change{Target: "switch " + sw.Name, What: "replace program " + found.Name, Undo: journal.Inverse{Program: program}}
		if err = site.Journal.Begin(change); err == nil {
			return &guest{Switch: plane, site: site, sw: sw, name: found.Name, config: found.Config, change: change, left: make(chan struct{})},
				found.Name + ", to be put back at the end", nil
		}
	}
	if errors.Is(err, bounded.ErrTooLarge) {
		return nil, found.Name + ", which is too long for the journal: load it again", nil
	}
	return nil, "", blame.Switch(sw.Name, err)
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

// putBack loads the program that was there before, once the plane is closed. Where that went wrong, or the switch is another
// run's by now, the journal remembers to.
func (g *guest) putBack(ctx context.Context) (err error) {
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
