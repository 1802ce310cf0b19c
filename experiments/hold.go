package experiments

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/remote"
)

// Holding says for whom a lab is leased while an experiment runs on it.
type Holding struct {
	remote.Hold        // its Journal is made here; an empty Reason is the experiment's name
	Journals    string // directory of journals; empty: the user's
}

// holding is a Holding for one run.
type holding struct {
	hold remote.Hold
	run  string
	use  []string // hosts and switches that are touched; nil: all
}

// begin opens the journal of a run that is about to change a lab.
func (h Holding) begin(run string, s *spec.Spec, use []string) (holding, error) {
	h.Reason = cmp.Or(h.Reason, s.Name)
	h.Owner = cmp.Or(h.Owner, remote.Owner())
	dir := h.Journals
	if dir == "" {
		var err error
		if dir, err = journal.Dir(); err != nil {
			return holding{}, err
		}
	}
	file, err := filepath.Abs(s.Inventory().File)
	if err != nil {
		return holding{}, err
	}
	here, _ := os.Hostname() // it is for people
	h.Journal, err = journal.Open(dir, journal.Header{
		Run: run, Owner: h.Owner, Reason: h.Reason, Host: here, PID: os.Getpid(), Began: time.Now().UTC(),
		File: file, Inventory: s.Inventory().Text,
	})
	return holding{h.Hold, run, use}, err
}

// touched are the hosts and switches that the placements of all points use, nil where they
// are decided while the experiment runs: it may be any then.
func touched(points []study.Planned, inv *inventory.Inventory) []string {
	var use []string
	for _, p := range points {
		st, ok := studyOf(p.Spec).(study.Settled)
		if !ok || p.Spec.Inventory().SHA256 != inv.SHA256 {
			return nil
		}
		hosts, switches := st.Uses(p, inv)
		use = slices.Concat(use, hosts, switches, remote.Use(inv, hosts))
	}
	return use
}

// ousted puts first what an error may have come of: that somebody else has the lab now.
func (r *run) ousted(ctx context.Context, err error) error {
	tb, ok := r.tb.(*remote.Testbed)
	if err == nil || !ok || errors.Is(err, lease.ErrLost) || context.Cause(ctx) != nil {
		return err
	}
	held := tb.Held(ctx)
	if !errors.Is(held, lease.ErrTaken) { // it could not be renewed, for reasons of its own
		return errors.Join(err, held)
	}
	return errors.Join(held, err)
}
