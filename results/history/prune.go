package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/inabench/inabench/results"
)

// quiet is how long a run that has no end must not have been written to, to be taken for one
// that was cut off. Where locks work it is only about the moments of its beginning and end.
const quiet = time.Hour

// Prune removes run directories, and returns them, the newest first. Of each experiment in each
// setting the newest keep (at least 1) stay, the newest that passed, and as many that were cut off. A run counts once, in
// however many directories it is, and all of these stay or none. It never removes baselines, runs that go on, runs whose record cannot be read, or what has changed since the
// index was brought up to date, as OpenOrRead does. With dry it only says what it would remove.
//
// Where the disk is too full for an index, the one of OpenOrRead will do.
func (x *Index) Prune(ctx context.Context, keep int, dry bool) ([]Run, error) {
	if keep < 1 {
		return nil, fmt.Errorf("prune runs: keep %d, at least 1", keep)
	}
	all, err := x.Runs(ctx)
	if err != nil {
		return nil, fmt.Errorf("prune runs: %w", err)
	}
	var removed []Run
	var left error // why runs stay that are not this user's

	err = write(ctx, x.db.Load(), func(*sql.Conn) error { // nothing is written: whoever sets a baseline by the same index waits
		removed, left, err = x.remove(surplus(all, keep), dry)
		return err
	})
	if err != nil {
		return removed, x.failed("prune runs with", err)
	}
	if dry {
		return removed, nil
	}
	if err := errors.Join(left, results.Sweep(x.root, results.RecordFile)); err != nil {
		return removed, fmt.Errorf("prune runs: %w", err)
	}
	_, err = x.Update(ctx)
	return removed, err
}

// remove removes those of some runs that may go, and returns them; left is why others stay that are not this user's.
func (x *Index) remove(some []Run, dry bool) (removed []Run, left, err error) {
	for _, r := range some {
		// Each time: where no index can be kept, somebody may set one meanwhile.
		set, err := ReadBaselines(x.root)
		if err != nil {
			return removed, left, err
		}
		if x.alive(r) || slices.ContainsFunc(set, func(b Baseline) bool { return b.Run == r.Dir }) {
			continue
		}
		if now, err := x.look(r.Dir); err != nil || now != r.stamp {
			continue
		}
		if !dry {
			switch _, err := results.PutAside(x.root, r.Dir); {
			case errors.Is(err, fs.ErrNotExist):
				continue // somebody else does it
			case errors.Is(err, fs.ErrPermission):
				left = errors.Join(left, err)
				continue
			case err != nil:
				return removed, left, err
			}
		}
		removed = append(removed, r)
	}
	return removed, left, nil
}

// surplus are the runs that are not among those that stay.
func surplus(all []Run, keep int) []Run {
	type kind struct {
		experiment, setting string
		complete            bool
	}
	var out []Run
	type run struct {
		kind
		id string
	}
	newer, passed := map[kind]int{}, map[kind]bool{}
	goes := map[run]bool{} // with each of its directories
	for _, r := range all {
		of := kind{r.Experiment, r.Setting, r.Complete}
		if gone, known := goes[run{of, r.ID}]; known && r.ID != "" {
			if gone {
				out = append(out, r)
			}
			continue
		}
		newer[of]++
		last := r.Outcome == results.Pass && !passed[of]
		passed[of] = passed[of] || last
		gone := newer[of] > keep && !last && r.Setting != ""
		if goes[run{of, r.ID}] = gone; gone {
			out = append(out, r)
		}
	}
	return out
}

// alive says whether a run may go on.
func (x *Index) alive(r Run) bool {
	if r.Complete {
		return false
	}
	path := filepath.Join(x.root, r.Dir)
	if results.Running(path) {
		return true
	}
	last := time.Unix(0, r.stamp.mtime)
	if st, err := os.Stat(filepath.Join(path, results.SamplesFile)); err == nil && st.ModTime().After(last) {
		last = st.ModTime()
	}
	return time.Since(last) < quiet
}
