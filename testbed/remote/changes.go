package remote

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/supervise"
)

// changes are what was journalled and not undone yet, by target: of hosts the processes,
// of switches the routes.
type changes struct {
	mu   sync.Mutex
	of   map[string]*journal.Change
	jobs map[jobAt]*journal.Change
	left []string // targets that could not be changed back
}

// Left remembers that something at a target, such as "host h1", could not be changed back because of err, and returns that as
// a leftover: the target stays leased for who cleans up.
func (tb *Testbed) Left(target string, err error) error {
	return tb.changes.leave(target, testbed.Leftover(err))
}

// leave remembers a target that could not be changed back because of err, and returns that.
func (c *changes) leave(target string, err error) error {
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.left = append(c.left, target)
	}
	return err
}

// jobAt is a job's entry in a switch.
type jobAt struct {
	sw  string
	job uint16
}

// enter journals a change that is about to be made to a target.
func (tb *Testbed) enter(c *journal.Change) error {
	if err := tb.opt.Hold.Journal.Begin(c); err != nil {
		return err
	}
	tb.changes.mu.Lock()
	defer tb.changes.mu.Unlock()
	if tb.changes.of == nil {
		tb.changes.of = map[string]*journal.Change{}
	}
	tb.changes.of[c.Target] = c
	return nil
}

// undone journals that what was changed at a target is as it was.
func (tb *Testbed) undone(target string) error {
	tb.changes.mu.Lock()
	defer tb.changes.mu.Unlock()
	c := tb.changes.of[target]
	if c == nil {
		return nil
	}
	delete(tb.changes.of, target)
	return tb.opt.Hold.Journal.Undone(c)
}

// enterHosts journals that processes are about to be started on the hosts, whose
// supervisors know them by their run.
func (tb *Testbed) enterHosts() error {
	for _, name := range slices.Sorted(maps.Keys(tb.hosts)) {
		err := tb.enter(&journal.Change{Target: "host " + name, What: "start agents",
			Undo: journal.Inverse{Processes: &journal.Processes{Exe: tb.agentPath[name], Run: tb.opt.Run}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// enterRoutes journals the routes, and groups for ARP, that are about to be written into a switch.
func (tb *Testbed) enterRoutes(sw string, routes []p4.Route, floods []p4.Group) error {
	entries := &journal.Entries{}
	for _, g := range floods {
		entries.Groups = append(entries.Groups, g.ID)
	}
	for _, r := range routes {
		entries.Routes = append(entries.Routes, journal.Route{To: netip.AddrFrom4(r.Dst).String(), Port: r.Port})
	}
	return tb.enter(&journal.Change{Target: "switch " + sw, What: "write routes", Undo: journal.Inverse{Entries: entries}})
}

// enterJobs journals the jobs that are about to be written into switches and were not
// there. A job's multicast group has its id.
func (tb *Testbed) enterJobs(batches map[string]*dataplane.Batch) error {
	tb.changes.mu.Lock()
	defer tb.changes.mu.Unlock()
	if tb.changes.jobs == nil {
		tb.changes.jobs = map[jobAt]*journal.Change{}
	}
	var begun []*journal.Change
	entered := map[jobAt]*journal.Change{}
	for _, sw := range slices.Sorted(maps.Keys(batches)) {
		for _, e := range batches[sw].Jobs {
			at := jobAt{sw, e.Job}
			if tb.changes.jobs[at] != nil || entered[at] != nil {
				continue
			}
			c := &journal.Change{Target: "switch " + sw, What: "write a job",
				Undo: journal.Inverse{Entries: &journal.Entries{Epoch: e.Epoch, Jobs: []uint16{e.Job}, Groups: []uint16{e.DownGroup}}}}
			entered[at] = c
			begun = append(begun, c)
		}
	}
	if err := tb.opt.Hold.Journal.Begin(begun...); err != nil {
		return err
	}
	maps.Copy(tb.changes.jobs, entered)
	return nil
}

// leaveJobs journals that a switch has forgotten jobs.
func (tb *Testbed) leaveJobs(sw string, b *dataplane.Batch) error {
	tb.changes.mu.Lock()
	defer tb.changes.mu.Unlock()
	var ended []*journal.Change
	for _, e := range b.Jobs {
		at := jobAt{sw, e.Job}
		if c := tb.changes.jobs[at]; c != nil {
			delete(tb.changes.jobs, at)
			ended = append(ended, c)
		}
	}
	return tb.opt.Hold.Journal.Undone(ended...)
}

// leaveHosts makes sure that nothing of the run is left on hosts that others use, too.
// Processes on a host that is out of reach end by themselves, which the journal remembers
// to look for.
func (tb *Testbed) leaveHosts(ctx context.Context) error {
	if !tb.opt.Shared || tb.opt.Run == "" {
		return nil
	}
	names := slices.Sorted(maps.Keys(tb.agentPath))
	return testbed.Leftover(parallel.Every(tb.opt.Fan, len(names), func(i int) error {
		client := tb.hosts[names[i]]
		if client.Err() != nil {
			return nil
		}
		if err := supervise.EndOn(ctx, client, tb.agentPath[names[i]], tb.opt.Run); err != nil {
			return tb.changes.leave("host "+names[i], err)
		}
		return tb.undone("host " + names[i])
	}))
}
