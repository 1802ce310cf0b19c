package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/supervise"
)

// ttlOfPatience is how long a run keeps what it holds without a sign of life, in times of
// its patience: by then nothing that it started on a host is there any more.
const ttlOfPatience = 3

// Hold says for whom a shared testbed is held besides Options.Run, and how.
type Hold struct {
	Owner  string        // empty: who runs this program
	Reason string        // for people who want it too
	TTL    time.Duration // 0: three times Options.Patience

	Wait     time.Duration // for others to leave
	Waiting  func(*lease.HeldError)
	Takeover bool // from whoever holds it, or has reserved it

	// Need is how long the run is planned to take: not into a time that others have reserved; 0: that is
	// not known.
	Need time.Duration

	// Journal remembers what is changed, to be undone if this process cannot; nil: nothing
	// is. The caller closes it after the testbed.
	Journal *journal.Journal
}

// take takes the leases of everything in use. What it takes is in the journal before.
func (tb *Testbed) take(ctx context.Context) (err error) {
	names := slices.DeleteFunc(slices.Concat(tb.inv.HostNames(), tb.inv.SwitchNames()), func(name string) bool { return !tb.uses(name) })
	if slices.Contains(tb.opt.Use, inventory.ManagerName) {
		names = append(names, inventory.ManagerName)
	}
	tb.keepers = keepers.Beside(ctx, tb.inv, names, tb.hosts, tb.reaching())
	if err := tb.keepers.Err(); err != nil {
		return err
	}
	hold := tb.opt.Hold
	claim := lease.Claim{
		Owner: cmp.Or(hold.Owner, keepers.Owner()), Reason: hold.Reason, Run: tb.opt.Run, TTL: cmp.Or(hold.TTL, max(ttlOfPatience*tb.opt.Patience, 2*time.Second)),
		Controller: keepers.Controller(), Token: rand.Text(), Takeover: hold.Takeover, Need: hold.Need,
	}
	places := make([]lease.Place, len(names))
	changes := make([]*journal.Change, len(names))
	err = parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) (err error) {
		var kept journal.Lease
		places[i], kept, err = tb.keepers.Lease(ctx, names[i])
		kept.Token = claim.Token
		changes[i] = &journal.Change{Target: places[i].Name, What: "take the lease", Undo: journal.Inverse{Lease: &kept}}
		return err
	})
	if err != nil {
		return err
	}
	if err := hold.Journal.Begin(changes...); err != nil {
		return err
	}
	tb.leased = changes
	if tb.held, err = lease.TakeAll(ctx, places, claim, lease.Options{Wait: hold.Wait, Waiting: hold.Waiting}); err != nil {
		// Nothing of it was kept, unless a connection broke: then time gives it back.
		return errors.Join(keepers.Busy(err, keepers.Wait, keepers.Takeover), hold.Journal.Undone(changes...))
	}
	return errors.Join(hold.Journal.Made(changes...), tb.oust(ctx))
}

// oust ends what runs have on hosts that were taken from them, or that they let lapse: they
// would notice only when they renew their leases.
func (tb *Testbed) oust(ctx context.Context) error {
	leases := tb.held.Leases()
	return parallel.Limit(ctx, tb.opt.Fan, len(leases), func(ctx context.Context, i int) error {
		_, name, _ := strings.Cut(leases[i].Place().Name, " ")
		client := tb.hosts[name]
		from := leases[i].From()
		if from == nil || from.Run == "" || client == nil {
			return nil
		}
		exe, err := hosts.EnsureProgram(ctx, []hosts.Host{client}, tb.opt.Exe)
		if err == nil {
			err = supervise.EndOn(ctx, client, exe[0], from.Run)
		}
		if err != nil {
			return fmt.Errorf("end run %s, which had %s: %w", from.Run, leases[i].Place().Name, err)
		}
		return nil
	})
}

// fence is a host's lease, for those that run programs there; nil where it has none.
func (tb *Testbed) fence(host string) *supervise.Fence {
	if tb.held == nil {
		return nil
	}
	name := "host " + host
	of := slices.IndexFunc(tb.leased, func(c *journal.Change) bool { return c.Target == name })
	for _, l := range tb.held.Leases() {
		if of >= 0 && l.Place().Name == name {
			kept := tb.leased[of].Undo.Lease
			return &supervise.Fence{Name: name, Dir: kept.Dir, Key: kept.Key, Number: l.Fencing(), Holder: l.Holder()}
		}
	}
	return nil
}

// Overruns says into whose reservations this run went on, and for how long.
func (tb *Testbed) Overruns() (out []string) {
	if tb.held == nil {
		return nil
	}
	for _, l := range tb.held.Leases() {
		if o := l.Overrun(); o != nil {
			out = append(out, fmt.Sprintf("%s has been reserved for %s since %s, and this run has kept it for %s of that",
				l.Place().Name, o.Owner, o.From.Local().Format("2006-01-02 15:04 MST"), o.By.Round(time.Second)))
		}
	}
	return out
}

// giveBack gives everything back but what has something of this run still: nobody else comes to that before it was
// cleaned, or the lease has lapsed.
func (tb *Testbed) giveBack(ctx context.Context, left []string) error {
	defer tb.keepers.Close()
	if tb.held == nil {
		return nil
	}
	given, err := tb.held.Release(ctx, left...)
	undone := slices.DeleteFunc(slices.Clone(tb.leased), func(c *journal.Change) bool { return !slices.Contains(given, c.Target) })
	return errors.Join(err, tb.opt.Hold.Journal.Undone(undone...))
}

// polite says whether whoever controls a switch now is left to it: not a run from which
// the switch was taken, or that let its lease lapse and may be stuck.
func (tb *Testbed) polite(sw string) bool {
	if !tb.opt.Shared || tb.opt.Hold.Takeover {
		return false
	}
	return !slices.ContainsFunc(tb.held.Leases(), func(l *lease.Lease) bool {
		return l.Place().Name == "switch "+sw && l.From() != nil && l.From().Run != ""
	})
}

// mine asks, for who has lost a switch and is about to win it back, whether somebody has taken its lease since;
// nil where it has none.
func (tb *Testbed) mine(sw string) func(context.Context) error {
	ask := tb.still("switch " + sw)
	if ask == nil {
		return nil
	}
	return func(ctx context.Context) error {
		err := ask(ctx)
		if errors.Is(err, lease.ErrLost) {
			err = fmt.Errorf("%w: %w", dataplane.ErrNotPrimary, err)
		}
		return err
	}
}

// Taken says whether another run has the lease of a target, such as "host h1", that this one had; not where nobody can be asked.
func (tb *Testbed) Taken(ctx context.Context, target string) bool {
	ask := tb.still(target)
	return ask != nil && errors.Is(ask(ctx), lease.ErrLost)
}

// still asks whether a target is still leased to this run: an error wrapping lease.ErrLost says that it is not; nil where it
// never was.
func (tb *Testbed) still(target string) func(context.Context) error {
	if tb.held == nil {
		return nil
	}
	leases := tb.held.Leases()
	i := slices.IndexFunc(leases, func(l *lease.Lease) bool { return l.Place().Name == target })
	if i < 0 {
		return nil
	}
	// Whoever renews it may wait for an answer meanwhile; later numbers of its own are known by their holder.
	place, holder, number := leases[i].Place(), leases[i].Holder(), leases[i].Fencing()
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, dataplane.LostPatience/2)
		defer cancel()
		return lease.Follows(ctx, place, holder, number)
	}
}

// uses says whether a host or switch is in use.
func (tb *Testbed) uses(name string) bool {
	return tb.opt.Use == nil || slices.Contains(tb.opt.Use, name)
}

// used are the hosts and switches in use.
func (tb *Testbed) used() (hosts []inventory.Host, switches []inventory.Switch) {
	for _, h := range tb.inv.Hosts {
		if tb.uses(h.Name) {
			hosts = append(hosts, h)
		}
	}
	for _, sw := range tb.inv.Switches {
		if tb.uses(sw.Name) {
			switches = append(switches, sw)
		}
	}
	return hosts, switches
}

// Use are the hosts named and the switches on the ways between them: what a run on these
// hosts touches.
func Use(inv *inventory.Inventory, hosts []string) []string {
	topo := inv.Topology()
	use := slices.Clone(hosts)
	for i, a := range hosts {
		for _, b := range hosts[:i] {
			path, err := topo.Path(a, b)
			if err != nil {
				continue
			}
			for _, l := range path {
				use = append(use, topo.Links[l].To)
			}
		}
		if len(hosts) == 1 { // its own switch still gets its routes
			if h, ok := inv.Host(a); ok && len(h.NICs) > 0 {
				use = append(use, h.NICs[0].Switch)
			}
		}
	}
	slices.Sort(use)
	return slices.Compact(use)
}

// Held asks whether everything that was leased is still this run's. If not, the error wraps
// lease.ErrLost and says who has it now: whatever else went wrong may have come of that. It
// is nil where nothing is leased, and where nobody can be asked.
func (tb *Testbed) Held(ctx context.Context) error {
	if tb.held == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(tb.opt.Patience/4, time.Second))
	defer cancel()
	return tb.held.Check(ctx)
}
