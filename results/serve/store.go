package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/human"
)

// row is a run in the list.
type row struct {
	history.Run
	Verdict  string // an outcome, or "running", "cut off", "unreadable"
	Progress string // of one that is running
	said     int64  // version of its progress report: see said

	// Copy says that it is a run of which there is another directory, where it counts.
	Copy bool

	since int // the version of the store since which it is this
}

// Glyph repeats what colours say.
func (r row) Glyph() string {
	return map[string]string{"pass": "✓", "fail": "✕", "error": "!", "skipped": "–", "not-judged": "–", running: "▶", unreadable: "!"}[r.Verdict] + map[bool]string{true: "?"}[r.Verdict == "inconclusive" || r.Verdict == cutOff]
}

// Class is the CSS class of its verdict.
func (r row) Class() string {
	switch r.Verdict {
	case cutOff, unreadable:
		return "error"
	}
	return r.Verdict
}

// Rank sorts verdicts: what needs attention first.
func (r row) Rank() int {
	return slices.Index([]string{running, "error", unreadable, cutOff, "fail", "inconclusive", "not-judged", "pass", "skipped"}, r.Verdict)
}

func (r row) same(o row) bool {
	o.since = r.since
	return r == o
}

const (
	running    = "running"
	cutOff     = "cut off"
	unreadable = "unreadable"
)

// store is what was seen of the runs when they were looked at last.
type store struct {
	epoch   string // versions of one process say nothing to another
	version int
	looked  time.Time
	rows    []row // the newest first
	at      map[string]int
	gone    map[string]int // runs that went away, and in which version: those since forgot
	forgot  int            // the version until which nobody knows any more
	points  map[string]counted
}

// mostGone is how many runs that went away are told of one by one; pages that have not heard of more are loaded again.
const mostGone = 1000

// counted is how many points a record had that was read at its time.
type counted struct {
	stamp         time.Time
	done, planned int
}

func (st *store) init() {
	st.epoch = rand.Text()[:8]
	st.at, st.gone, st.points = map[string]int{}, map[string]int{}, map[string]counted{}
}

// look brings the store up to date with the runs, unless somebody has done so just now, and
// returns its rows, which are not changed later, and its version.
func (s *Server) look(ctx context.Context) ([]row, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.store
	if time.Since(st.looked) >= s.opt.Interval/2 {
		if err := s.refresh(ctx); err != nil {
			return nil, "", err
		}
		st.looked = time.Now()
	}
	return st.rows, st.name(), nil
}

func (st *store) name() string { return fmt.Sprintf("%s.%d", st.epoch, st.version) }

func (s *Server) refresh(ctx context.Context) error {
	if _, err := s.index.Update(ctx); err != nil {
		return err
	}
	runs, err := s.index.Runs(ctx)
	if err != nil {
		return err
	}
	st := &s.store
	next := st.version + 1
	rows, at := make([]row, len(runs)), make(map[string]int, len(runs))
	changed := false
	seen := map[string]bool{}
	for i, r := range runs {
		now := row{Run: r, Verdict: string(cmp.Or(r.Outcome, results.ErrorOutcome)), Copy: seen[r.ID] && r.ID != "", since: next}
		seen[r.ID] = true
		switch {
		case r.Error != "":
			now.Verdict = unreadable
		case !r.Complete && results.Running(filepath.Join(s.root, r.Dir)):
			now.Verdict = running
			now.Progress = s.progress(r)
			now.said = said(filepath.Join(s.root, r.Dir))
		case !r.Complete:
			now.Verdict = cutOff
		}
		if now.Verdict != running {
			delete(st.points, r.Dir)
		}
		if was, ok := st.at[r.Dir]; ok && st.rows[was].same(now) {
			now.since = st.rows[was].since
		} else {
			changed = true
		}
		rows[i], at[r.Dir] = now, i
		delete(st.gone, r.Dir)
	}
	for dir := range st.at {
		if _, ok := at[dir]; !ok {
			st.gone[dir], changed = next, true
			delete(st.points, dir)
		}
	}
	if len(st.gone) > mostGone {
		st.forgot = next
		clear(st.gone)
	}
	st.rows, st.at = rows, at
	if changed {
		st.version = next
	}
	return nil
}

// said returns a version of a run's progress report: 0 if there is none, -1 if it is older than stalled.
func said(dir string) int64 {
	st, err := os.Stat(filepath.Join(dir, results.NowFile))
	if err != nil {
		return 0
	}
	if time.Since(st.ModTime()) > stalled {
		return -1
	}
	return st.ModTime().UnixNano() / int64(shownTime)
}

// progress is how far a run has come that is running.
func (s *Server) progress(r history.Run) string {
	dir := filepath.Join(s.root, r.Dir)
	text := ""
	if st, err := os.Stat(filepath.Join(dir, results.RecordFile)); err == nil {
		c := s.store.points[r.Dir]
		if !c.stamp.Equal(st.ModTime()) {
			if rec, err := results.ReadRecord(dir); err == nil {
				c = counted{st.ModTime(), len(rec.Points), rec.Planned}
				s.store.points[r.Dir] = c
			}
		}
		text = points(c.done, c.planned)
	}
	if st, err := os.Stat(filepath.Join(dir, results.SamplesFile)); err == nil && st.Size() > 0 {
		text += ", " + human.Quantity(float64(st.Size()), "B") + " of samples"
	}
	return text
}

// points says how many are done, of those that are planned if that is known.
func points(done, planned int) string {
	if planned > 0 {
		return fmt.Sprintf("%d of %d points", done, planned)
	}
	return human.Plural(done, "point")
}

// find is the row of a run directory; the error wraps fs.ErrNotExist where there is none.
func (s *Server) find(ctx context.Context, dir string) (row, error) {
	rows, _, err := s.look(ctx)
	if err != nil {
		return row{}, err
	}
	i := slices.IndexFunc(rows, func(r row) bool { return r.Dir == dir })
	if i < 0 {
		return row{}, fmt.Errorf("run %s: %w", dir, fs.ErrNotExist)
	}
	return rows[i], nil
}

// news is what changed after a version of the store.
type news struct {
	version string
	all     bool // that version is of another process, or too old: everything may have
	rows    []row
	gone    []string
}

func (s *Server) news(ctx context.Context, version string) (n news, err error) {
	if _, n.version, err = s.look(ctx); err != nil {
		return n, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &s.store
	var since int
	if _, err := fmt.Sscanf(version, st.epoch+".%d", &since); err != nil || since < st.forgot {
		n.all = true
		return n, nil
	}
	n.version = st.name()
	for _, r := range st.rows {
		if r.since > since {
			n.rows = append(n.rows, r)
		}
	}
	for dir, v := range st.gone {
		if v > since {
			n.gone = append(n.gone, dir)
		}
	}
	slices.Sort(n.gone)
	return n, nil
}
