package clean

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/switches"
)

// Lab undoes what any runs of this program have left in a lab whose journals are elsewhere, or lost: processes on hosts
// that can be logged in to; all jobs in switches, their multicast groups, and the routes to hosts of the inventory; and
// what scripts of switches clear. Each host and switch is leased meanwhile. What somebody else has leased is left alone: the
// error wraps testbed.ErrBusy, or testbed.ErrLeftovers where something could not be undone. With Force nobody is asked
// whether a switch is leased.
func Lab(ctx context.Context, inv *inventory.Inventory, o Options) error {
	o = o.whole()
	var names []string
	for _, h := range inv.Hosts {
		if h.Reachable() {
			names = append(names, h.Name)
		}
	}
	k := keepers.Open(ctx, inv, names, o.Fan)
	defer k.Close()
	found := make([]string, len(names))
	errs := []error{testbed.Leftover(k.Err()), parallel.Every(o.Fan, len(names), func(i int) (err error) {
		if k.Client(names[i]) != nil {
			found[i], err = sweepHost(ctx, k, names[i], o)
		}
		return err
	})}
	for i, what := range found {
		if what != "" {
			o.Say("host "+names[i], strings.TrimSuffix(what, " ended")+o.did(" ended"))
		}
	}
	for _, sw := range inv.Switches {
		what, err := sweepSwitch(ctx, inv, sw, o)
		if what != "" {
			o.Say("switch "+sw.Name, what)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepHost ends what runs have left on a host, unless somebody has it leased. It returns what was found, in words, "" for
// nothing.
func sweepHost(ctx context.Context, k *keepers.Keepers, host string, o Options) (string, error) {
	p, err := k.Place(ctx, host)
	if err != nil {
		return "", err
	}
	client := k.Client(host)
	if names, err := client.ReadDir(ctx, processesDir); errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
		return "", nil
	}
	if err := o.unleased(ctx, p); err != nil {
		return "", err
	}
	at, err := hosts.EnsureProgram(ctx, []hosts.Host{client}, o.Exe)
	if err != nil {
		return "", err
	}
	return o.holding(ctx, p, undoing, func(ctx context.Context) (string, error) { // unless somebody has come meanwhile
		what, err := (&cleaning{opt: o}).processes(ctx, client, &journal.Processes{Exe: at[0]})
		return what, testbed.Leftover(err)
	})
}

// processesDir is where supervisors keep their files in the user's home.
const processesDir = ".cache/inabench/processes"

// sweepSwitch clears a switch, unless somebody has it leased, and says what that did; "" for one that keeps nothing of runs.
func sweepSwitch(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, o Options) (string, error) {
	scripted := sw.Kind == inventory.Scripted
	if scripted && (sw.Script == nil || len(sw.Script.Clear) == 0) || !scripted && (sw.Control == "" || !switches.Programmed(sw.Kind)) {
		return "", nil
	}
	sweep := func(ctx context.Context) (string, error) { return clearSwitch(ctx, inv, sw, o) }
	if o.Force {
		return sweep(ctx)
	}
	k := keepers.Open(ctx, inv, []string{sw.Name}, 1)
	defer k.Close()
	p, err := k.Place(ctx, sw.Name)
	if err != nil { // where nobody can be asked only the switch is left to say so
		return sweep(ctx)
	}
	long := undoing
	if scripted {
		long += sw.Script.Timeout.Std()
	}
	return o.holding(ctx, p, long, sweep)
}

// clearSwitch is sweepSwitch of one that nobody else has.
func clearSwitch(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, o Options) (string, error) {
	if sw.Kind == inventory.Scripted {
		if !o.Dry {
			if err := switches.ClearScript(ctx, inv, sw); err != nil {
				return "", testbed.Leftover(err)
			}
		}
		return strings.Join(sw.Script.Clear, " ") + o.did(" run"), nil
	}
	n, err := deleteFrom(ctx, inv, sw, o, func(there dataplane.Batch) dataplane.Batch { return ofRuns(inv, sw.Name, there) })
	switch {
	case errors.Is(err, testbed.ErrBusy):
		return "", err
	case err != nil:
		return "", testbed.Leftover(err)
	}
	return human.Plural(len(n.Jobs), "job") + ", " + human.Plural(len(n.Routes), "route") + ", " + human.Plural(len(n.Groups), "group") + o.did(" removed"), nil
}

// ofRuns is what runs on an inventory have written into a switch, of all that is there.
func ofRuns(inv *inventory.Inventory, sw string, there dataplane.Batch) dataplane.Batch {
	topo := inv.Topology()
	cabled := map[uint32]bool{}
	for _, l := range topo.Out(sw) {
		cabled[topo.Links[l].FromPort] = true
	}
	there.Groups = slices.DeleteFunc(there.Groups, func(g p4.Group) bool {
		if port, floods := g.Floods(); floods {
			return !cabled[port]
		}
		return !slices.ContainsFunc(there.Jobs, func(j ina.JobEntry) bool { return j.DownGroup == g.ID })
	})
	there.Routes = slices.DeleteFunc(there.Routes, func(r p4.Route) bool {
		return !slices.ContainsFunc(inv.Hosts, func(h inventory.Host) bool {
			return slices.ContainsFunc(h.NICs, func(n inventory.NIC) bool {
				return n.Address.IsValid() && n.Address.Addr() == netip.AddrFrom4(r.Dst)
			})
		})
	})
	return there
}

// holding does something for who cleans up, who has what is leased at a place meanwhile, for so long at most; a lock of
// theirs is there again after that. The error wraps testbed.ErrBusy if somebody else has it. With Dry nothing is taken.
func (o Options) holding(ctx context.Context, p lease.Place, long time.Duration, do func(ctx context.Context) (string, error)) (string, error) {
	if o.Dry {
		if err := o.unleased(ctx, p); err != nil {
			return "", err
		}
		return do(ctx)
	}
	l, err := lease.Take(ctx, p, lease.Claim{Owner: o.Owner, Reason: "clean up", Run: sweeping, TTL: long, Controller: keepers.Controller(), Need: -1})
	if err != nil {
		return "", keepers.Busy(err)
	}
	within, cancel := context.WithTimeoutCause(ctx, long, fmt.Errorf("no end within %v", long))
	defer cancel()
	what, err := do(within)
	return what, errors.Join(err, testbed.Leftover(l.Release(context.WithoutCancel(ctx))))
}

// sweeping is the run in whose name a lab is cleaned up: it lies on a lock of its owner, as runs do.
const sweeping = "clean"

// unleased is an error that wraps testbed.ErrBusy if somebody else has what is leased at a place, or a run has.
func (o Options) unleased(ctx context.Context, p lease.Place) error {
	s, err := lease.Look(ctx, p)
	if err == nil && s.Held && (s.Run != "" || s.Owner != o.Owner) {
		err = keepers.Busy(&lease.HeldError{State: s})
	}
	return err
}
