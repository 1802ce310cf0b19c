package switches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/script"
)

// scripted are switches that a script drives.
var scripted = kind{open: openScripted, observe: observeScripted, diagnose: diagnoseScripted, foreign: true}

// driven is a switch that a script drives.
type driven struct {
	*script.Switch
	site   *Site
	on     inventory.Host // where its commands run
	own    hosts.Host     // of its own, where it does not run on a host that is connected anyway
	facts  *results.SwitchFacts
	mine   func(context.Context) error // whether it is still leased to this run; nil: nobody leases it
	change *journal.Change             // what Close undoes; nil: nothing
}

// observeScripted makes its counters and its status readable.
func observeScripted(ctx context.Context, site *Site, sw inventory.Switch) (Switch, error) {
	d, err := newDriven(ctx, site, sw)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func newDriven(ctx context.Context, site *Site, sw inventory.Switch) (*driven, error) {
	h, err := script.Host(site.Inventory, sw)
	if err != nil {
		return nil, err
	}
	d := &driven{site: site, on: h, facts: &results.SwitchFacts{Switch: sw.Name, Kind: string(sw.Kind)}}
	client := site.Host(h.Name)
	if client == nil {
		if client, err = reach.Dial(ctx, reach.To(site.Inventory, h), site.Reach); err != nil {
			return nil, blame.Switch(sw.Name, fmt.Errorf("script: %w", err))
		}
		d.own = client
	}
	if d.Switch, err = script.New(sw, client); err != nil {
		d.hangUp()
		return nil, err
	}
	return d, nil
}

// openScripted runs a switch's setup script. That its clear script undoes it is in the journal before.
func openScripted(ctx context.Context, site *Site, sw inventory.Switch) (Switch, error) {
	d, err := newDriven(ctx, site, sw)
	if err != nil {
		return nil, err
	}
	if site.Mine != nil {
		d.mine = site.Mine(sw.Name)
	}
	if len(sw.Script.Clear) > 0 {
		d.change = &journal.Change{Target: "switch " + sw.Name, What: "set it up",
			Undo: journal.Inverse{Script: &journal.Script{Argv: sw.Script.Clear, Root: sw.Script.Root, Host: sw.Script.Host, Timeout: sw.Script.Timeout.Std()}}}
		if err := site.Journal.Begin(d.change); err != nil {
			d.hangUp()
			return nil, err
		}
	}
	d.facts.Script, err = d.Setup(ctx)
	return d, err
}

// Plane implements Switch.
func (d *driven) Plane() dataplane.Switch { return nil }

// Facts implements Switch.
func (d *driven) Facts() *results.SwitchFacts { return d.facts }

// Collectors implements Switch.
func (d *driven) Collectors([]int, map[int]string) ([]collectors.Collector, error) {
	return []collectors.Collector{d.Switch}, nil
}

// Status implements Switch.
func (d *driven) Status(ctx context.Context) error {
	_, err := d.Switch.Status(ctx)
	return err
}

// Close implements Switch: its script clears it. It is left to another run that has leased it meanwhile, and the journal
// remembers to clear it.
func (d *driven) Close(ctx context.Context) (err error) {
	defer d.hangUp()
	if d.change == nil {
		return nil
	}
	if d.mine != nil {
		err = d.mine(ctx)
	}
	if !errors.Is(err, dataplane.ErrNotPrimary) { // ours, or nobody can be asked
		err = d.Clear(ctx)
	}
	if err == nil {
		err = d.site.Journal.Undone(d.change)
	}
	return err
}

func (d *driven) hangUp() {
	if d.own != nil {
		d.own.Close()
	}
}

// diagnoseScripted asks its status script.
func diagnoseScripted(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, timeout time.Duration) device.Diagnosis {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	err := byItself(ctx, inv, sw, func(d *driven) error { return d.Status(ctx) })
	out := device.Diagnosis{Switch: sw.Name, Pipeline: "what its script has set up", Seconds: time.Since(began).Seconds()}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// ClearScript runs the clear script of a switch of an inventory.
func ClearScript(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch) error {
	return byItself(ctx, inv, sw, func(d *driven) error { return d.Clear(ctx) })
}

// byItself does something with a switch outside a testbed.
func byItself(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, do func(*driven) error) error {
	d, err := newDriven(ctx, &Site{Inventory: inv, Host: func(string) hosts.Host { return nil }}, sw)
	if err != nil {
		return err
	}
	defer d.hangUp()
	return do(d)
}
