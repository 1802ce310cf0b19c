package drivers

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/remote"
)

// Holding says for whom a lab is leased while an experiment runs on it.
type Holding struct {
	remote.Hold        // its Journal is made here; an empty Reason is the experiment's name
	Journals    string // directory of journals; empty: the user's
}

// Held is a Holding for one run; of what nobody holds it has the run alone.
type Held struct {
	Hold remote.Hold
	Run  string
	Use  []string // hosts and switches that are touched; nil: all

	Asked Asked // of hosts, whose software is looked at for it
}

// Begin opens the journal of a run that is about to change a lab.
func (h Holding) Begin(run string, s *spec.Spec, use []string) (Held, error) {
	h.Reason = cmp.Or(h.Reason, s.Name)
	h.Owner = cmp.Or(h.Owner, keepers.Owner())
	dir := h.Journals
	if dir == "" {
		var err error
		if dir, err = journal.Dir(); err != nil {
			return Held{}, err
		}
	}
	file, err := filepath.Abs(s.Inventory().File)
	if err != nil {
		return Held{}, err
	}
	here, _ := os.Hostname() // it is for people
	h.Journal, err = journal.Open(dir, journal.Header{
		Run: run, Owner: h.Owner, Reason: h.Reason, Host: here, PID: os.Getpid(), Began: time.Now().UTC(),
		File: file, Inventory: s.Inventory().Text,
	})
	return Held{Hold: h.Hold, Run: run, Use: use}, err
}

// Ousted puts first what an error on a testbed may have come of: that somebody else has the lab now.
func Ousted(ctx context.Context, on testbed.Testbed, err error) error {
	tb, ok := remote.Of(on)
	if err == nil || !ok || errors.Is(err, lease.ErrLost) || context.Cause(ctx) != nil {
		return err
	}
	held := tb.Held(ctx)
	if !errors.Is(held, lease.ErrTaken) { // it could not be renewed, for reasons of its own
		return errors.Join(err, held)
	}
	return errors.Join(held, err)
}
