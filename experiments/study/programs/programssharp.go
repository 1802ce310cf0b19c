package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/sharp"
)

// SHARPSetup is what the aggregation manager of the inventory's [sharp] is told before
// programs start. It is put back when they have ended.
type SHARPSetup struct {
	Set   []string `toml:"set"`   // lines of sharp_am.cfg: "per_prio_default_quota 50"
	Roots []string `toml:"roots"` // switches that may be roots of trees, by their guid in the inventory; none: any
	Trees string   `toml:"trees"` // file of trees, beside the experiment, for static mode; empty: none
	// Reserve makes a reservation in UFM for the host ports of each program that uses SHARP.
	Reserve bool `toml:"reserve"`
}

// Files implements study.Reader.
func (a *SHARPSetup) Files(add func(path, key string)) { add(a.Trees, "sharp.trees") }

// sharpOf is what the experiment says of SHARP, nil if nothing.
func sharpOf(s *spec.Spec) *SHARPSetup {
	a, _ := s.Studies["sharp"].(*SHARPSetup)
	return a
}

func (ps Programs) checkSHARP(c *spec.Checker) {
	a := sharpOf(c.Spec)
	if a == nil {
		return
	}
	if !slices.ContainsFunc(ps, func(p Program) bool { return p.SHARP != nil }) {
		c.KeyProblemf("sharp", "write sharp = {} in a [[program]]", "[sharp] without a program that uses it")
	}
	for i, line := range a.Set {
		if _, err := sharp.ParseOption(line); err != nil {
			c.Problemf(fmt.Sprintf("sharp.set[%d]", i), tomlfile.HintOf(err), "%v", err)
		}
	}
	if c.Lab == nil {
		return
	}
	m := c.Lab.Inv.Manager
	switch {
	case m == nil || !m.Reachable() && (len(a.Set) > 0 || len(a.Roots) > 0 || a.Trees != ""):
		c.KeyProblemf("sharp", `write [sharp] with ssh = {address = "10.0.0.9"} and restart in the inventory`, "%s does not say where the aggregation manager is", c.Lab.Inv.File)
	case a.Reserve && m.UFM == "":
		c.Problemf("sharp.reserve", `write ufm = "https://ufm1" in [sharp] of the inventory`, "%s does not say where UFM is", c.Lab.Inv.File)
	}
	for i, r := range a.Roots {
		at := fmt.Sprintf("sharp.roots[%d]", i)
		if sw, ok := c.Lab.Inv.Switch(r); !ok {
			c.Problemf(at, tomlfile.DidYouMean(r, c.Lab.Inv.SwitchNames()), "unknown switch %q", r)
		} else if sw.GUID == 0 {
			c.Problemf(at, "`inabench inventory import` finds it", "the inventory has no guid of switch %s", r)
		}
	}
}

// granting is what was changed for the programs of a point.
type granting struct {
	tb      *remote.Testbed
	applied *sharp.Applied
	target  string     // where that is, as the journal calls it
	client  hosts.Host // to be closed; nil: a host's
	ufm     *sharp.Reservations
	apps    []*journal.Change
	log     *journal.Journal
}

// grant tells the aggregation manager and UFM what the experiment says. What it returns undoes
// that, also where it returns an error.
func (ps Programs) grant(ctx context.Context, b *study.Bench, tb *remote.Testbed) (_ *granting, err error) {
	g := &granting{tb: tb, log: b.Journal()}
	a, inv := sharpOf(b.Spec), tb.Inventory()
	if a == nil || inv.Manager == nil {
		return g, nil
	}
	m := inv.Manager
	if len(a.Set) > 0 || len(a.Roots) > 0 || a.Trees != "" {
		change := sharp.Change{}
		for _, line := range a.Set {
			o, err := sharp.ParseOption(line)
			if err != nil {
				return g, err // checked
			}
			change.Set = append(change.Set, o)
		}
		for _, name := range a.Roots {
			if sw, ok := inv.Switch(name); ok {
				change.RootGUIDs = append(change.RootGUIDs, sw.GUID)
			}
		}
		if a.Trees != "" {
			if change.Trees, err = bounded.ReadFile(b.Spec.Beside(a.Trees, "sharp.trees"), bounded.Config); err != nil {
				return g, spec.Invalid(err)
			}
		}
		var client hosts.Host
		target := "host " + m.Host
		if m.Host != "" {
			client, err = tb.Client(m.Host)
		} else {
			client, err = reach.Dial(ctx, reach.ToManager(inv), reach.Options{})
			g.client, target = client, journal.Manager
		}
		if err != nil {
			return g, err
		}
		manager := &sharp.Manager{Client: client, Target: target, Config: m.Config, Restart: m.Restart}
		manager.Taken = func(ctx context.Context) bool { return tb.Taken(ctx, target) }
		g.target = target
		if g.applied, err = manager.Apply(ctx, change, g.log); err != nil {
			if errors.Is(err, sharp.ErrNotPutBack) {
				err = tb.Left(target, err)
			}
			return g, err
		}
		for _, n := range g.applied.Notes {
			b.Warn("sharp_am: " + n)
		}
		if d := g.applied.Diff; len(d) > 0 {
			b.Warn("sharp_am ran with a changed configuration: " + strings.Join(d, ", "))
		}
	}
	if a.Reserve {
		err = ps.reserve(ctx, b, inv, g)
	}
	return g, err
}

// reserve makes a reservation for each program that uses SHARP. What was granted in part is
// an error.
func (ps Programs) reserve(ctx context.Context, b *study.Bench, inv *inventory.Inventory, g *granting) (err error) {
	m := inv.Manager
	if g.ufm, err = sharp.NewReservations(sharp.UFMOf(m.UFM, m.API, os.Getenv)); err != nil {
		return err
	}
	for i := range ps {
		p := &ps[i]
		if p.SHARP == nil {
			continue
		}
		app := "inabench-" + p.Name + "-" + b.ID()
		want := sharp.Reservation{App: app}
		for _, h := range p.on(inv) {
			found, _ := inv.Host(h)
			for _, nic := range found.NICs {
				if nic.GUID != 0 {
					want.GUIDs = append(want.GUIDs, nic.GUID.String())
				}
			}
		}
		if len(want.GUIDs) == 0 {
			return spec.Invalidf("program %s: the inventory has no guid of its hosts' NICs, by which UFM reserves", p.Name)
		}
		c := &journal.Change{Target: "UFM " + m.UFM, What: "reserve host ports", Undo: journal.Inverse{Reservation: &journal.Reservation{URL: m.UFM, API: m.API, App: app}}}
		if err := g.log.Begin(c); err != nil {
			return err
		}
		g.apps = append(g.apps, c)
		if _, err := g.ufm.Create(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

// undo puts everything back.
func (g *granting) undo(ctx context.Context) error {
	ctx, cancel := g.tb.Leaving(ctx, 2*time.Minute)
	defer cancel()
	var errs []error
	for _, c := range g.apps {
		err := g.ufm.Delete(ctx, c.Undo.Reservation.App)
		if err == nil || errors.Is(err, sharp.ErrNotFound) || errors.Is(err, sharp.ErrRemoved) {
			err = g.log.Undone(c)
		}
		errs = append(errs, err)
	}
	if g.applied != nil {
		errs = append(errs, g.tb.Left(g.target, g.applied.Undo(ctx)))
	}
	if g.client != nil {
		_ = g.client.Close()
	}
	return errors.Join(errs...)
}

// on are all hosts that the programs touch.
func (ps Programs) on(s *spec.Spec, inv *inventory.Inventory) (hosts []string) {
	add := func(name string) {
		if name != "" && !slices.Contains(hosts, name) {
			hosts = append(hosts, name)
		}
	}
	for i := range ps {
		w := ps[i].workload(s, inv, results.Scale{})
		servers, clients := w.Commands()
		for _, c := range append(servers, clients...) {
			add(c.Host)
		}
		for _, h := range slices.Concat(w.Hosts, w.Servers) {
			add(h.Name)
		}
	}
	if inv.Manager != nil && sharpOf(s) != nil {
		add(inv.Manager.Host)
	}
	return hosts
}
