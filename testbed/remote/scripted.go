package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/gnmi"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/script"
)

// switches are what a testbed has of its switches besides P4Runtime clients.
type switches struct {
	mu     sync.Mutex
	facts  map[string]results.SwitchFacts
	script map[string]*scripted
	gnmi   map[string]*gnmi.Client
}

// scripted is a switch that a script drives.
type scripted struct {
	*script.Switch
	own    hosts.Host // of its own, where it does not run on a host that is connected anyway
	change *journal.Change
}

// SwitchFacts are what switches run, in the order of the inventory.
func (tb *Testbed) SwitchFacts() []results.SwitchFacts {
	tb.others.mu.Lock()
	defer tb.others.mu.Unlock()
	var out []results.SwitchFacts
	for _, sw := range tb.inv.Switches {
		if f, ok := tb.others.facts[sw.Name]; ok {
			out = append(out, f)
		}
	}
	return out
}

func (tb *Testbed) note(f results.SwitchFacts) {
	tb.others.mu.Lock()
	defer tb.others.mu.Unlock()
	if tb.others.facts == nil {
		tb.others.facts = map[string]results.SwitchFacts{}
	}
	tb.others.facts[f.Switch] = f
}

// driven are the switches in use that P4Runtime drives.
func (tb *Testbed) driven() []inventory.Switch {
	_, all := tb.used()
	return slices.DeleteFunc(all, func(sw inventory.Switch) bool { return sw.Kind == inventory.Scripted || sw.Kind == inventory.Quantum })
}

// connectSwitch becomes the primary controller of a switch and makes it run its program.
func (tb *Testbed) connectSwitch(ctx context.Context, sw inventory.Switch) (dataplane.Switch, error) {
	program, err := device.LoadProgram(sw)
	if err != nil {
		return nil, err
	}
	cables := device.Cables(tb.topo, sw.Name)
	c, err := device.Dial(ctx, sw, cables, dataplane.Options{Polite: tb.polite(sw.Name), Mine: tb.mine(sw.Name)})
	if errors.Is(err, dataplane.ErrNotPrimary) {
		return nil, &busyError{sw.Name, err}
	}
	if err != nil {
		return nil, err
	}
	if err := device.Push(ctx, c, sw, cables, program); err != nil {
		return c, err
	}
	tb.note(device.Facts(sw, program, c.Loaded()))
	return c, nil
}

// setUp runs a switch's setup script. That its clear script undoes it is in the journal
// before.
func (tb *Testbed) setUp(ctx context.Context, sw inventory.Switch) error {
	h, err := script.Host(tb.inv, sw)
	if err != nil {
		return err
	}
	x, target := &scripted{}, "host "+h.Name
	var client hosts.Host
	if tb.opt.Shared { // otherwise hosts are being connected at the same time
		client = tb.hosts[h.Name]
	}
	if client == nil {
		if client, err = reach.Dial(ctx, reach.To(tb.inv, h), tb.reaching()); err != nil {
			return blame.Switch(sw.Name, fmt.Errorf("script: %w", err))
		}
		x.own = client
	}
	if sw.Script.Host == "" {
		target = "switch " + sw.Name
	}
	if x.Switch, err = script.New(sw, client); err != nil {
		return err
	}
	tb.others.mu.Lock()
	if tb.others.script == nil {
		tb.others.script = map[string]*scripted{}
	}
	tb.others.script[sw.Name] = x
	tb.others.mu.Unlock()
	f := results.SwitchFacts{Switch: sw.Name, Kind: string(sw.Kind)}
	if tb.opt.Unmanaged {
		tb.note(f)
		return nil
	}
	if len(sw.Script.Clear) > 0 {
		x.change = &journal.Change{Target: target, What: "set up switch " + sw.Name, Undo: journal.Inverse{Script: &journal.Script{Argv: sw.Script.Clear, Root: sw.Script.Root}}}
		if err := tb.opt.Hold.Journal.Begin(x.change); err != nil {
			return err
		}
	}
	f.Script, err = x.Setup(ctx)
	tb.note(f)
	return err
}

// unwell are switches whose status script says that they are not as they should be.
func (tb *Testbed) unwell(ctx context.Context) []results.Trouble {
	tb.others.mu.Lock()
	names, all := slices.Sorted(maps.Keys(tb.others.script)), maps.Clone(tb.others.script)
	tb.others.mu.Unlock()
	found := make([]*results.Trouble, len(names))
	_ = parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		if _, err := all[names[i]].Status(ctx); err != nil && ctx.Err() == nil {
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

// ClearScript runs the clear script of a switch of an inventory.
func ClearScript(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch) error {
	return withScript(ctx, inv, sw, func(x *script.Switch) error { return x.Clear(ctx) })
}

// ScriptStatus runs the status script of a switch of an inventory and returns what it prints.
func ScriptStatus(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch) (out string, err error) {
	err = withScript(ctx, inv, sw, func(x *script.Switch) error {
		out, err = x.Status(ctx)
		return err
	})
	return out, err
}

func withScript(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, do func(*script.Switch) error) error {
	h, err := script.Host(inv, sw)
	if err != nil {
		return err
	}
	client, err := reach.Dial(ctx, reach.To(inv, h), reach.Options{})
	if err != nil {
		return blame.Switch(sw.Name, fmt.Errorf("script: %w", err))
	}
	defer client.Close()
	x, err := script.New(sw, client)
	if err != nil {
		return err
	}
	return do(x)
}

// closeOthers clears switches that scripts drive, and hangs up.
func (tb *Testbed) closeOthers(ctx context.Context) error {
	tb.others.mu.Lock()
	defer tb.others.mu.Unlock()
	names := slices.Sorted(maps.Keys(tb.others.script))
	err := parallel.Every(tb.opt.Fan, len(names), func(i int) (err error) {
		x := tb.others.script[names[i]]
		if !tb.opt.Unmanaged {
			if err = leftover(x.Clear(ctx)); err == nil && x.change != nil {
				err = tb.opt.Hold.Journal.Undone(x.change)
			}
		}
		if x.own != nil {
			x.own.Close()
		}
		return err
	})
	for _, c := range tb.others.gnmi {
		c.Close()
	}
	return err
}

// gnmiOf is a client of a switch's gNMI server, or nil; it is closed with the testbed.
func (tb *Testbed) gnmiOf(sw inventory.Switch) (*gnmi.Client, error) {
	tb.others.mu.Lock()
	defer tb.others.mu.Unlock()
	if c := tb.others.gnmi[sw.Name]; c != nil {
		return c, nil
	}
	c, err := device.GNMI(sw)
	if c == nil || err != nil {
		return nil, err
	}
	if tb.others.gnmi == nil {
		tb.others.gnmi = map[string]*gnmi.Client{}
	}
	tb.others.gnmi[sw.Name] = c
	return c, nil
}
