package history

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/inabench/inabench/results"
)

// quiet is how long a run that has no end must not have been written to, to be taken for one
// that was cut off. Where locks work it is only about the moments of its beginning and end.
const quiet = time.Hour

// Prune removes run directories, all but the newest keep (at least 1) of each experiment in
// each setting, and returns them, the newest first. It never removes baselines, runs that go
// on, runs whose record cannot be read, or what has changed since it looked. With dry
// it only says what it would remove.
func (x *Index) Prune(ctx context.Context, keep int, dry bool) ([]Run, error) {
	if keep < 1 {
		return nil, fmt.Errorf("prune runs: keep %d, at least 1", keep)
	}
	if _, err := x.Update(ctx); err != nil {
		return nil, err
	}
	var removed []Run
	err := x.write(ctx, func(tx *sql.Tx) error {
		all, err := runs(ctx, tx)
		if err != nil {
			return err
		}
		set, err := ReadBaselines(x.root)
		if err != nil {
			return err
		}
		pinned := map[string]bool{}
		for _, b := range set {
			pinned[b.Run] = true
		}
		var dirs []string
		newer := map[[2]string]int{}
		for _, r := range all {
			of := [2]string{r.Experiment, r.Setting}
			newer[of]++
			if newer[of] <= keep || r.Setting == "" || pinned[r.Dir] || x.alive(r) {
				continue
			}
			if now, err := x.look(r.Dir); err != nil || now != r.stamp {
				continue
			}
			if !dry {
				if err := results.PutAside(x.root, r.Dir); err != nil {
					return err
				}
			}
			removed, dirs = append(removed, r), append(dirs, r.Dir)
		}
		if dry {
			return nil
		}
		_, err = x.refresh(ctx, tx, dirs)
		return err
	})
	if err != nil || dry {
		return removed, x.failed("prune runs with", err)
	}
	if err := results.Sweep(x.root); err != nil {
		return removed, fmt.Errorf("prune runs: %w", err)
	}
	return removed, nil
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
