package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/supervise"
)

// ttlOfPatience is how long a run keeps what it holds without a sign of life, in times of
// its patience: by then nothing that it started on a host is there any more.
const ttlOfPatience = 3

// cleanTTL is the same for who cleans up after a run.
const cleanTTL = time.Minute

// Hold says for whom a shared testbed is held besides Options.Run, and how.
type Hold struct {
	Owner  string        // empty: Owner()
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

// Owner is who runs this program, and where: "anna@desk".
func Owner() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// controller is this process.
func controller() lease.Controller {
	host, _ := os.Hostname() // it is for people
	return lease.Controller{Host: host, PID: os.Getpid()}
}

// Keepers are connections to where leases lie.
type Keepers struct {
	inv     *inventory.Inventory
	clients map[string]hosts.Host // by host, or by switch that can be logged in to
	own     []hosts.Host          // those of clients that were made here
	err     error
}

// keeper is the host or switch on which the lease of a host or switch lies: itself, where
// one can log in to it, or else the inventory's first host.
func keeper(inv *inventory.Inventory, name string) (inventory.Host, error) {
	if h, ok := inv.Host(name); ok {
		return *h, nil
	}
	sw, ok := inv.Switch(name)
	if !ok {
		return inventory.Host{}, fmt.Errorf("no host or switch %q", name)
	}
	if sw.SSH.Address != "" {
		return inventory.Host{Name: sw.Name, SSH: sw.SSH}, nil
	}
	if len(inv.Hosts) == 0 {
		return inventory.Host{}, blame.Switch(name, errors.New("there is no host to keep its lease"))
	}
	return inv.Hosts[0], nil
}

// OpenKeepers connects to where the leases of hosts and switches lie, fan of them at a
// time. Err names those that cannot be reached; the others are there all the same. The
// caller must Close the keepers.
func OpenKeepers(ctx context.Context, inv *inventory.Inventory, names []string, fan int) *Keepers {
	return openKeepers(ctx, inv, names, nil, reach.Options{Fan: fan})
}

func openKeepers(ctx context.Context, inv *inventory.Inventory, names []string, have map[string]hosts.Host, o reach.Options) *Keepers {
	k := &Keepers{inv: inv, clients: map[string]hosts.Host{}}
	var todo []inventory.Host
	for _, name := range names {
		h, err := keeper(inv, name)
		if err != nil {
			k.err = err
			return k
		}
		if c := have[h.Name]; c != nil {
			k.clients[h.Name] = c
		} else if !slices.ContainsFunc(todo, func(t inventory.Host) bool { return t.Name == h.Name }) {
			todo = append(todo, h)
		}
	}
	ways := make([]reach.Way, len(todo))
	for i, h := range todo {
		ways[i] = reach.To(inv, h)
	}
	var clients []hosts.Host
	clients, k.err = (&reach.Dialer{Options: o}).DialAll(ctx, ways)
	for i, c := range clients {
		if c != nil {
			k.clients[todo[i].Name] = c
			k.own = append(k.own, c)
		}
	}
	return k
}

// Err is who cannot be reached, nil if everybody is.
func (k *Keepers) Err() error { return k.err }

// Close ends the connections.
func (k *Keepers) Close() {
	if k != nil {
		hosts.CloseAll(k.own)
	}
}

// Reaches says whether there is a connection to a host or switch.
func (k *Keepers) Reaches(name string) bool { return k.clients[name] != nil }

// Place is where the lease of a host or a switch lies.
func (k *Keepers) Place(ctx context.Context, name string) (lease.Place, error) {
	p, _, err := k.place(ctx, name)
	return p, err
}

func (k *Keepers) place(ctx context.Context, name string) (p lease.Place, kept journal.Lease, err error) {
	h, err := keeper(k.inv, name)
	if err != nil {
		return p, kept, err
	}
	client := k.clients[h.Name]
	if client == nil {
		return p, kept, fmt.Errorf("no connection to %s, which keeps the lease of %s", h.Name, name)
	}
	kept = journal.Lease{Host: h.Name, Dir: cmp.Or(h.SSH.Leases, lease.DefaultDir)}
	if err := shared(ctx, client, h.Name, kept.Dir); err != nil {
		return p, kept, err
	}
	what := "host"
	if sw, ok := k.inv.Switch(name); ok {
		// Different people may call it differently.
		what, kept.Key = "switch", fmt.Sprintf("switch-%d", sw.DeviceID)
		if h.Name != name {
			kept.Key = fmt.Sprintf("switch-%s-%d", cmp.Or(sw.Control, name), sw.DeviceID)
		}
	} else {
		// The host's own name: hosts may share homes.
		own := client.ReadFilesOf(ctx, bounded.Small, "/proc/sys/kernel/hostname")[0] // nothing where there is none
		kept.Key = "host-" + cmp.Or(strings.TrimSpace(string(own.Data)), name)
	}
	kept.Key = fileName(kept.Key)
	return lease.Place{Name: what + " " + name, Key: kept.Key, Files: lease.On(client, kept.Dir)}, kept, nil
}

// shared refuses a directory for leases in which others could put a file of theirs in the place of one that a holder
// writes to: a link to one of the holder's own. One in the user's home may be the user's group's, as umasks of 002 make it.
func shared(ctx context.Context, files statter, host, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sharedTime, fmt.Errorf("no answer within %v", sharedTime))
	defer cancel()
	st, err := files.Stat(ctx, dir)
	others := fs.FileMode(0o002)
	if path.IsAbs(dir) {
		others = 0o022
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it will be the user's own
	case err != nil:
		return err
	case st.Mode().Perm()&others != 0 && st.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("leases on %w", blame.Host(host, fmt.Errorf("everybody who may write to %s may replace files of others there: chmod +t %s", dir, dir)))
	}
	return nil
}

// sharedTime is for how long a host may look for a directory.
const sharedTime = 10 * time.Second

// statter describes files: an ssh.Client does.
type statter interface {
	Stat(ctx context.Context, name string) (fs.FileInfo, error)
}

// fileName is a name for files, whatever a host says that it is called.
func fileName(of string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, of[:min(len(of), 200)])
}

// heldError is a host or switch that somebody else has.
type heldError struct {
	*lease.HeldError
	err error // which says so
}

func (e *heldError) Error() string   { return fmt.Sprintf("%v: %v", testbed.ErrBusy, e.err) }
func (e *heldError) Unwrap() []error { return []error{testbed.ErrBusy, e.err} }

// Hint is what to do about it.
func (e *heldError) Hint() string {
	if e.By != nil {
		return "inabench who says what is reserved; take less time, or come when that is over; --takeover --reason WHY comes nevertheless, and says so there"
	}
	hint := "--wait 10m waits for it; --takeover --reason WHY takes it away, and says so there"
	if here := controller().Host; e.Run != "" && e.Controller.Host == here && e.Owner == Owner() {
		hint = fmt.Sprintf("if that run of yours (process %d on %s) is dead, `inabench clean` gives it back at once; ", e.Controller.PID, here) + hint
	}
	return hint
}

// Busy makes what somebody else has an error that wraps testbed.ErrBusy and says what to
// do.
func Busy(err error) error {
	var held *lease.HeldError
	if errors.As(err, &held) && !errors.Is(err, testbed.ErrBusy) {
		return &heldError{held, err}
	}
	return err
}

// take takes the leases of everything in use. What it takes is in the journal before.
func (tb *Testbed) take(ctx context.Context) (err error) {
	var names []string
	for _, h := range tb.inv.Hosts {
		if tb.uses(h.Name) {
			names = append(names, h.Name)
		}
	}
	for _, sw := range tb.inv.Switches {
		if tb.uses(sw.Name) {
			names = append(names, sw.Name)
		}
	}
	tb.keepers = openKeepers(ctx, tb.inv, names, tb.hosts, tb.reaching())
	if err := tb.keepers.Err(); err != nil {
		return err
	}
	hold := tb.opt.Hold
	claim := lease.Claim{
		Owner: cmp.Or(hold.Owner, Owner()), Reason: hold.Reason, Run: tb.opt.Run, TTL: cmp.Or(hold.TTL, max(ttlOfPatience*tb.opt.Patience, 2*time.Second)),
		Controller: controller(), Token: rand.Text(), Takeover: hold.Takeover, Need: hold.Need,
	}
	places := make([]lease.Place, len(names))
	changes := make([]*journal.Change, len(names))
	err = parallel.Limit(ctx, tb.opt.Fan, len(names), func(ctx context.Context, i int) (err error) {
		var kept journal.Lease
		places[i], kept, err = tb.keepers.place(ctx, names[i])
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
		return errors.Join(Busy(err), hold.Journal.Undone(changes...))
	}
	return errors.Join(hold.Journal.Made(changes...), tb.oust(ctx))
}

// oust ends what runs have on hosts that were taken from them, or that they let lapse: they
// would notice only when they renew their leases.
func (tb *Testbed) oust(ctx context.Context) error {
	leases := tb.held.Leases()
	return parallel.Limit(ctx, tb.opt.Fan, len(leases), func(ctx context.Context, i int) error {
		client := tb.hosts[nameOf(leases[i].Place().Name)]
		from := leases[i].From()
		if from == nil || from.Run == "" || client == nil {
			return nil
		}
		exe, err := hosts.EnsureFile(ctx, []hosts.Host{client}, tb.opt.Exe)
		if err == nil {
			err = endProcesses(ctx, client, exe, from.Run)
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

// giveBack gives everything back.
func (tb *Testbed) giveBack(ctx context.Context) error {
	defer tb.keepers.Close()
	if tb.held == nil {
		return nil
	}
	if err := tb.held.Release(ctx); err != nil {
		return err
	}
	return tb.opt.Hold.Journal.Undone(tb.leased...)
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
	if tb.held == nil {
		return nil
	}
	leases := tb.held.Leases()
	i := slices.IndexFunc(leases, func(l *lease.Lease) bool { return l.Place().Name == "switch "+sw })
	if i < 0 {
		return nil
	}
	// Whoever renews it may wait for an answer meanwhile; later numbers of its own are known by their holder.
	place, holder, number := leases[i].Place(), leases[i].Holder(), leases[i].Fencing()
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, dataplane.LostPatience/2)
		defer cancel()
		err := lease.Follows(ctx, place, holder, number)
		if errors.Is(err, lease.ErrLost) {
			err = fmt.Errorf("%w: %w", dataplane.ErrNotPrimary, err)
		}
		return err
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
