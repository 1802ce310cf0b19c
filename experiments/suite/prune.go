package suite

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/inabench/inabench/results"
)

// Prune removes nights among the runs in root, all but the newest keep (at least 1) of each
// suite and the newest that was good, which the next one tells its news against, and returns them,
// the newest first. Their runs stay: results/history has those. A night that goes on is the newest
// of its suite. With dry it only says what it would remove.
func Prune(root string, keep int, dry bool) ([]*Night, error) {
	if keep < 1 {
		return nil, fmt.Errorf("prune nights: keep %d, at least 1", keep)
	}
	all, err := Nights(root, "")
	if err != nil {
		return nil, err
	}
	var removed []*Night
	newer, good := map[string]int{}, map[string]bool{}
	for _, n := range all {
		newer[n.Suite]++
		first := n.Outcome == results.Pass && n.Complete() && !good[n.Suite]
		good[n.Suite] = good[n.Suite] || first
		if first || newer[n.Suite] <= keep {
			continue
		}
		if !dry {
			if err := results.Remove(filepath.Join(root, Folder), n.ID); errors.Is(err, fs.ErrNotExist) {
				continue // somebody else removes it
			} else if err != nil {
				return removed, fmt.Errorf("prune nights: %w", err)
			}
		}
		removed = append(removed, n)
	}
	if dry {
		return removed, nil
	}
	if err := results.Sweep(filepath.Join(root, Folder), File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return removed, fmt.Errorf("prune nights: %w", err)
	}
	return removed, nil
}
