// Package clean undoes what runs left: what the journal of one says that it has changed, or, without a journal, everything of
// this program that is on the hosts and in the switches of a lab.
package clean

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/sharp"
	"github.com/inabench/inabench/testbed/supervise"
)

// Options say how to undo what a run left.
type Options struct {
	Exe   string // this program: hosts run it to end processes
	Dry   bool   // only look
	Force bool   // take switches over from a controller that holds no lease
	Fan   int    // hosts and switches worked on at once; 0: 32
	Owner string // who cleans up a lab, and may have locked it to that end; empty: keepers.Owner()

	// Say is told what was done, or with Dry would be, in the end, a line at a time. May be
	// nil.
	Say func(target, what string)
}

// whole are the options with their defaults.
func (o Options) whole() Options {
	o.Fan, o.Owner = cmp.Or(o.Fan, 32), cmp.Or(o.Owner, keepers.Owner())
	if o.Say == nil {
		o.Say = func(string, string) {}
	}
	return o
}

// did is what was done, such as " removed", or would be.
func (o Options) did(verb string) string {
	if o.Dry {
		return " would be" + verb
	}
	return verb
}

// Run undoes what the journal of a run that is over says that it has changed, the last
// change first, and writes down what was undone. It touches only what the run made: its
// processes, known by number, start and boot; entries of its epochs; files with its
// content. Each host and switch is leased meanwhile, as the run had it. One that somebody
// else has by now is left alone, and so is one that does not answer: the error wraps
// testbed.ErrLeftovers and lists them. It may be called again, at any time.
func Run(ctx context.Context, j *journal.Journal, o Options) error {
	log := j.Log()
	if len(log.Undone()) == 0 {
		return nil
	}
	inv, err := inventory.Parse(log.File, []byte(log.Inventory))
	if err != nil {
		return testbed.Leftover(fmt.Errorf("run %s: the inventory in its journal: %w", log.Run, err))
	}
	o = o.whole()
	c := &cleaning{opt: o, log: log, inv: inv, journal: j}
	order, of := []string{}, map[string][]journal.Entry{}
	for _, e := range log.Undone() {
		if of[e.Target] == nil {
			order = append(order, e.Target)
		}
		of[e.Target] = append(of[e.Target], e)
	}
	slices.Sort(order)
	var names []string
	for _, target := range order {
		names = append(names, nameOf(target)) // UFM has no lease, and none is missed
		for _, e := range of[target] {
			if e.Undo.Script != nil && e.Undo.Script.Host != "" {
				names = append(names, e.Undo.Script.Host)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	// What is out of reach is said of each change.
	c.keepers = keepers.Open(ctx, inv, names, o.Fan)
	defer c.keepers.Close()
	errs, done := make([]error, len(order)), make([][]string, len(order))
	_ = parallel.Limit(ctx, o.Fan, len(order), func(ctx context.Context, i int) error {
		errs[i] = c.target(ctx, order[i], of[order[i]], func(what string) { done[i] = append(done[i], what) })
		return nil
	})
	for i, target := range order {
		for _, what := range done[i] {
			o.Say(target, what)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return testbed.Leftover(fmt.Errorf("run %s: %w", log.Run, err))
	}
	return ctx.Err()
}

// nameOf is the name in a target, such as "host h1".
func nameOf(target string) string {
	_, name, _ := strings.Cut(target, " ")
	return name
}

// undoing is how long what is undone at a target may take, besides scripts that say so themselves, and so how long who cleans
// up keeps it without a sign of life.
const undoing = time.Minute

// cleaning is Run at work.
type cleaning struct {
	opt     Options
	log     *journal.Log
	inv     *inventory.Inventory
	journal *journal.Journal
	keepers *keepers.Keepers
}

// target undoes what was changed at one host or switch.
func (c *cleaning) target(ctx context.Context, target string, entries []journal.Entry, say func(what string)) error {
	long := undoing
	for _, e := range entries {
		if s := e.Undo.Script; s != nil && s.Timeout > 0 {
			long += s.Timeout
		}
		if e.Undo.Program != nil {
			long += undoing // to load it
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, long, fmt.Errorf("no end within %v", long))
	defer cancel()
	held, err := c.hold(ctx, target, entries, long)
	var others *lease.HeldError
	if errors.As(err, &others) && !slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.Undo.Lease == nil }) {
		// Nothing but a lease was had, and it is another's by now.
		for _, e := range entries {
			if err := c.forget(&e.Change); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	// The leases come last: they were taken first. What could not be undone before keeps
	// them, for a while.
	leased := slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.Undo.Lease != nil })
	files, back := false, false // there are some to be put back, and some are
	for _, e := range entries {
		var what string
		if files && !back && e.Undo.Script != nil && e.Undo.Script.After {
			what, err = "", nil // nothing was put back that it should read
		} else if e.Undo.Lease != nil {
			what, err = "lease given back", nil
			if held != nil {
				err = held.Release(ctx)
			} else if !c.opt.Dry {
				what = ""
			}
		} else {
			what, err = c.undo(ctx, target, e.Undo)
		}
		if e.Undo.Restore != nil || e.Undo.Remove != nil {
			files, back = true, back || what != ""
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", target, e.Undo, err)
		}
		if c.opt.Dry {
			what = strings.NewReplacer("ended", "would be ended", "removed", "would be removed", "given back", "would be given back",
				"put back", "would be put back", "deleted", "would be deleted", "run:", "would be run:").Replace(what)
		}
		if what != "" {
			say(what)
		}
		if err := c.forget(&e.Change); err != nil {
			return err
		}
	}
	if held != nil && !leased {
		return held.Release(ctx)
	}
	return nil
}

// forget writes down that a change was undone.
func (c *cleaning) forget(change *journal.Change) error {
	if c.opt.Dry {
		return nil
	}
	return c.journal.Undone(change)
}

// hold takes the lease of a target in the name of the run, or says who has it.
func (c *cleaning) hold(ctx context.Context, target string, entries []journal.Entry, long time.Duration) (*lease.Lease, error) {
	i := slices.IndexFunc(entries, func(e journal.Entry) bool { return e.Undo.Lease != nil })
	var kept *journal.Lease
	var place lease.Place
	if i < 0 { // it was given back, or there was none
		p, l, err := c.keepers.Lease(ctx, nameOf(target))
		if err != nil {
			return nil, nil // of UFM; and what is out of reach is said of each change
		}
		kept, place = &l, p
		kept.Token = rand.Text()
	} else {
		kept = entries[i].Undo.Lease
		client := c.keepers.Client(kept.Host)
		if client == nil {
			return nil, c.away(target, kept.Host)
		}
		place = lease.Place{Name: target, Key: kept.Key, Files: lease.On(client, kept.Dir)}
	}
	s, err := lease.Look(ctx, place)
	if err != nil {
		return nil, err
	}
	own := s.Own && s.Token == kept.Token
	if s.Held && !own && s.Run == "" && s.Owner == c.log.Owner {
		// The person whose run it was has it locked: that is no reason.
		s.Held = false
	}
	if s.Held && !own {
		return nil, fmt.Errorf("left alone: %w", &lease.HeldError{State: s})
	}
	if c.opt.Dry {
		return nil, nil
	}
	return lease.Take(ctx, place, lease.Claim{
		Owner: c.log.Owner, Reason: "clean up", Run: c.log.Run, TTL: long, Controller: keepers.Controller(), Token: kept.Token, Need: -1,
	})
}

// away is why there is no connection to a host.
func (c *cleaning) away(target, host string) error {
	for _, err := range flat(c.keepers.Err()) {
		if blame.Of(err) == (blame.Part{Kind: blame.KindHost, Node: host}) {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return fmt.Errorf("%s: no connection to %s", target, host)
}

// flat is what errors.Join joined, joined ones included.
func flat(err error) (out []error) {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, err := range many.Unwrap() {
		out = append(out, flat(err)...)
	}
	return out
}

// undo applies an inverse and says what that did, "" for nothing.
func (c *cleaning) undo(ctx context.Context, target string, u journal.Inverse) (string, error) {
	name := nameOf(target)
	if u.Entries != nil {
		return c.entries(ctx, name, u.Entries)
	}
	if u.Program != nil {
		return c.program(ctx, name, u.Program)
	}
	if u.Reservation != nil {
		return c.reservation(ctx, u.Reservation, os.Getenv)
	}
	if u.Script != nil && u.Script.Host != "" {
		name = u.Script.Host
	}
	client := c.keepers.Client(name)
	if client == nil {
		return "", c.away(target, name)
	}
	switch {
	case u.Processes != nil:
		return c.processes(ctx, client, u.Processes)
	case u.Remove != nil:
		sum, err := fileSum(ctx, client, u.Remove.Path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && sum != u.Remove.SHA256 {
			return "", nil // it is gone, or another's
		}
		if err == nil && !c.opt.Dry {
			err = client.Remove(ctx, u.Remove.Path, u.Remove.Sudo)
		}
		return u.Remove.Path + " removed", err
	case u.Restore != nil:
		return c.restore(ctx, client, u.Restore)
	case u.Script != nil:
		if c.opt.Dry {
			return "run: " + strings.Join(u.Script.Argv, " "), nil
		}
		run := client.Run
		if u.Script.Root {
			run = client.RunRoot
		}
		_, err := run(ctx, u.Script.Argv, nil)
		return "run: " + strings.Join(u.Script.Argv, " "), err
	}
	return "", errors.New("no inverse")
}

// processes ends those of the run on a host.
func (c *cleaning) processes(ctx context.Context, client hosts.Host, u *journal.Processes) (string, error) {
	exe, do := u.Exe, "list"
	if !c.opt.Dry {
		do = "end"
		paths, err := hosts.EnsureProgram(ctx, []hosts.Host{client}, c.opt.Exe)
		if err != nil {
			return "", err
		}
		exe = paths[0]
	}
	found, err := supervise.Ask(ctx, client, exe, do, u.Run)
	if err != nil {
		return "", err
	}
	var names []string
	for _, f := range found {
		if f.Stale {
			names = append(names, "what "+f.Name+" left")
		} else {
			names = append(names, f.Name)
		}
		if !c.opt.Dry && !f.Ended {
			err = errors.Join(err, fmt.Errorf("%s: process group %d: %s", f.Name, f.PID, f.Error))
		}
	}
	if len(names) == 0 {
		return "", err
	}
	return strings.Join(names, ", ") + " ended", err
}

// restore puts a file back.
func (c *cleaning) restore(ctx context.Context, client hosts.Host, u *journal.Restore) (string, error) {
	sum, err := fileSum(ctx, client, u.Path)
	if old := sha256.Sum256(u.Old); err == nil && sum == hex.EncodeToString(old[:]) {
		return u.Path + " is as it was", nil
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && sum != u.SHA256 {
		return "", nil // not what the run made of it
	}
	if err == nil && !c.opt.Dry {
		err = client.Replace(ctx, u.Path, u.Old, fs.FileMode(u.Mode), u.Sudo)
	}
	return u.Path + " put back", err
}

func fileSum(ctx context.Context, client hosts.Host, path string) (string, error) {
	data, err := client.ReadFile(ctx, path)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// entries deletes from a switch what the run wrote, if it is there still.
func (c *cleaning) entries(ctx context.Context, name string, u *journal.Entries) (what string, err error) {
	sw, ok := c.inv.Switch(name)
	if !ok {
		return "", fmt.Errorf("the inventory has no switch %q", name)
	}
	found, err := deleteFrom(ctx, c.inv, *sw, c.opt, func(there dataplane.Batch) (ours dataplane.Batch) {
		for _, j := range there.Jobs {
			if j.Epoch == u.Epoch && slices.Contains(u.Jobs, j.Job) {
				ours.Jobs = append(ours.Jobs, j)
			}
		}
		for _, g := range there.Groups {
			// One that a job of somebody else uses by now is that one's.
			if slices.Contains(u.Groups, g.ID) && !slices.ContainsFunc(there.Jobs, func(j ina.JobEntry) bool {
				return j.DownGroup == g.ID && !slices.Contains(ours.Jobs, j)
			}) {
				ours.Groups = append(ours.Groups, g)
			}
		}
		for _, r := range there.Routes {
			if slices.Contains(u.Routes, journal.Route{To: netip.AddrFrom4(r.Dst).String(), Port: r.Port}) {
				ours.Routes = append(ours.Routes, r)
			}
		}
		return ours
	})
	var parts []string
	for _, n := range []struct {
		n    int
		what string
	}{{len(found.Jobs), "job"}, {len(found.Routes), "route"}, {len(found.Groups), "group"}} {
		if n.n > 0 {
			parts = append(parts, human.Plural(n.n, n.what))
		}
	}
	if len(parts) == 0 {
		return "", err
	}
	return strings.Join(parts, ", ") + " deleted", err
}

// deleteFrom deletes from a switch what pick takes of all that is there, and returns it: nothing of a switch that runs
// somebody else's program.
func deleteFrom(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, o Options, pick func(there dataplane.Batch) dataplane.Batch) (found dataplane.Batch, err error) {
	dial := device.Dial
	if o.Dry {
		dial = device.Look
	}
	client, err := dial(ctx, sw, device.Cables(inv.Topology(), sw.Name), dataplane.Options{DialTimeout: 5 * time.Second, Polite: !o.Force})
	if errors.Is(err, dataplane.ErrNotPrimary) {
		err = testbed.Controlled(sw.Name, err)
	}
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, client.Close(ctx)) }()
	if ours, err := device.Attach(ctx, client); !ours || err != nil {
		return found, err
	}
	var there dataplane.Batch
	if there.Jobs, err = client.ReadJobs(ctx); err != nil {
		return found, err
	}
	if there.Groups, err = client.ReadGroups(ctx); err != nil {
		return found, err
	}
	if there.Routes, err = client.ReadRoutes(ctx); err != nil {
		return found, err
	}
	if found = pick(there); !o.Dry && len(found.Jobs)+len(found.Groups)+len(found.Routes) > 0 {
		err = client.Delete(ctx, found)
	}
	return found, err
}

// program loads a program of somebody else again that the run has replaced, unless it is there, or another one is.
func (c *cleaning) program(ctx context.Context, name string, u *journal.Program) (string, error) {
	sw, ok := c.inv.Switch(name)
	if !ok {
		return "", fmt.Errorf("the inventory has no switch %q", name)
	}
	config, err := u.Whole()
	if err != nil {
		return "", err
	}
	o := dataplane.Options{DialTimeout: 5 * time.Second, Polite: !c.opt.Force}
	done, err := device.PutBack(ctx, *sw, device.Cables(c.inv.Topology(), name), config, c.opt.Dry, o)
	if errors.Is(err, dataplane.ErrNotPrimary) {
		err = testbed.Controlled(name, err)
	}
	if !done || err != nil {
		return "", err
	}
	return "program " + u.Name + " put back", nil
}

// reservation takes back a reservation in UFM, if it is there.
func (c *cleaning) reservation(ctx context.Context, u *journal.Reservation, getenv func(string) string) (string, error) {
	ufm, err := sharp.NewReservations(sharp.UFMOf(u.URL, u.API, getenv))
	if err != nil {
		return "", err
	}
	_, err = ufm.Get(ctx, u.App)
	if err == nil && !c.opt.Dry {
		err = ufm.Delete(ctx, u.App)
	}
	if errors.Is(err, sharp.ErrNotFound) {
		return "", nil // it was never made, or is gone
	}
	return "reservation " + u.App + " deleted", err
}
