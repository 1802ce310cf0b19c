package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/results"
)

// batch is how many runs are read before other processes get their turn.
const batch = 64

// stamp tells whether a run.json is the one that was read. It is replaced whole, so another
// one has another inode, even within a tick of the clock.
type stamp struct{ size, mtime, inode int64 }

// Update brings the index up to date with the run directories, and returns how many runs it
// read again or forgot. Where nothing has changed it reads no record, and waits for nobody.
//
// A damaged index is put aside, and one made anew; one that another process has put aside is left for the one
// that it has begun.
func (x *Index) Update(ctx context.Context) (int, error) {
	db := x.db.Load()
	if x.moved() {
		if err := x.replace(ctx, db); err != nil {
			return 0, x.failed("update", err)
		}
		db = x.db.Load()
	}
	n, err := x.update(ctx, db)
	err = x.failed("update", err)
	if x.name != inMemory && (errors.Is(err, ErrCorrupt) || errors.Is(err, errMoved)) {
		if err = x.replace(ctx, db); err == nil {
			n, err = x.update(ctx, x.db.Load())
			err = x.failed("update", err)
		}
	}
	return n, err
}

func (x *Index) update(ctx context.Context, db *sql.DB) (n int, err error) {
	onDisk, err := x.scan()
	if err != nil {
		return 0, err
	}
	var known map[string]stamp
	err = x.bounded(ctx, func(ctx context.Context) error {
		known, err = stamps(ctx, db)
		return err
	})
	if err != nil {
		return 0, err
	}
	var stale []string
	for dir, s := range onDisk {
		if k, ok := known[dir]; !ok || k != s {
			stale = append(stale, dir)
		}
	}
	for dir := range known {
		if _, ok := onDisk[dir]; !ok {
			stale = append(stale, dir)
		}
	}
	slices.Sort(stale)
	for part := range slices.Chunk(stale, batch) {
		err := x.bounded(ctx, func(ctx context.Context) error {
			return write(ctx, db, func(conn *sql.Conn) error {
				k, err := x.refresh(ctx, conn, part)
				n += k
				return err
			})
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Rebuild forgets everything and reads all run directories. Others see the index as it was
// until it is done, and wait if they want to write.
func (x *Index) Rebuild(ctx context.Context) (n int, err error) {
	err = write(ctx, x.db.Load(), func(conn *sql.Conn) error {
		onDisk, err := x.scan() // now: what others have indexed meanwhile is not lost
		if err != nil {
			return err
		}
		if err := empty(ctx, conn); err != nil {
			return err
		}
		for part := range slices.Chunk(slices.Sorted(maps.Keys(onDisk)), batch) {
			err := x.bounded(ctx, func(ctx context.Context) error {
				k, err := x.refresh(ctx, conn, part)
				n += k
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return n, x.failed("rebuild", err)
}

// scan looks at all run directories.
func (x *Index) scan() (map[string]stamp, error) {
	entries, err := os.ReadDir(x.root)
	if err != nil {
		return nil, err
	}
	out := make(map[string]stamp, len(entries))
	for _, e := range entries {
		if !e.IsDir() || e.Name()[0] == '.' || !results.PlainName(e.Name()) {
			continue
		}
		s, err := x.look(e.Name())
		switch {
		case err == nil:
			out[e.Name()] = s
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}

// look is the stamp of a run; the error wraps fs.ErrNotExist where there is none.
func (x *Index) look(dir string) (stamp, error) {
	st, err := os.Stat(filepath.Join(x.root, dir, results.RecordFile))
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, fs.ErrPermission):
		return stamp{}, fs.ErrNotExist // of somebody else, such as lost+found
	case err != nil:
		return stamp{}, err
	case !st.Mode().IsRegular():
		return stamp{}, fs.ErrNotExist
	}
	return stamp{st.Size(), st.ModTime().UnixNano(), int64(st.Sys().(*syscall.Stat_t).Ino)}, nil
}

// stamps are what the index knows.
func stamps(ctx context.Context, db *sql.DB) (map[string]stamp, error) {
	out := map[string]stamp{}
	err := each(ctx, db, func(scan scanner) error {
		var dir string
		var s stamp
		err := scan(&dir, &s.size, &s.mtime, &s.inode)
		out[dir] = s
		return err
	}, "SELECT dir, size, mtime, inode FROM run")
	return out, err
}

// entry is one run, read.
type entry struct {
	dir   string
	there bool // else it is gone
	stamp stamp
	rec   *results.Record
	err   error // why it cannot be read
	night map[key]*night
}

// key is what a series is told from others by, within an experiment and a setting.
type key struct {
	point      int
	labels     string
	phase      int
	metric, of string
	kind       results.Kind
	predictor  string
	unit       string
}

type seriesKey struct {
	experiment, setting string
	key
}

type night struct {
	figures []float64
	spoilt  int
}

type row struct {
	series, run int64
	*night
}

// refresh reads those of the directories that are not what the index knows, and returns how
// many these were. What they are is looked up now, as another process may have read them.
func (x *Index) refresh(ctx context.Context, conn *sql.Conn, dirs []string) (int, error) {
	var stale []*entry
	for _, dir := range dirs {
		var known stamp
		err := conn.QueryRowContext(ctx, "SELECT size, mtime, inode FROM run WHERE dir = ?", dir).Scan(&known.size, &known.mtime, &known.inode)
		indexed := err == nil
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, err
		}
		// The stamp is older than what is read. If that changes meanwhile, the next update sees it.
		now, err := x.look(dir)
		there := err == nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if there && indexed && now == known || !there && !indexed {
			continue
		}
		stale = append(stale, &entry{dir: dir, there: there, stamp: now})
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, e := range stale {
		if e.there {
			g.Go(func() error {
				e.read(filepath.Join(x.root, e.dir))
				return nil
			})
		}
	}
	_ = g.Wait() // each has its own error
	w := writer{ctx: ctx, conn: conn, prepared: map[string]*sql.Stmt{}, series: map[seriesKey]int64{}, touched: map[int64]bool{}}
	for _, e := range stale {
		w.replace(e)
	}
	return len(stale), w.finish()
}

func (e *entry) read(path string) {
	e.rec, e.err = results.ReadRecord(path)
	if errors.Is(e.err, fs.ErrNotExist) { // it went away meanwhile
		e.there = false
		return
	}
	if e.err != nil {
		e.rec = new(results.Record)
		return
	}
	e.night = map[key]*night{}
	for _, p := range e.rec.Points {
		for i, phase := range p.Phases {
			spoilt := p.UnsoundIn(i) != ""
			for _, f := range phase.Figures {
				if f.N == 0 && f.Kind != results.Predicted {
					continue // nothing was measured
				}
				k := key{p.Index, p.Label(), i, f.Metric, f.Of, f.Kind, f.Predictor, f.Unit}
				n := e.night[k]
				if n == nil {
					n = &night{figures: []float64{}}
					e.night[k] = n
				}
				if spoilt {
					n.spoilt++
				} else {
					n.figures = append(n.figures, f.Value)
				}
			}
		}
	}
	for _, f := range e.rec.Fidelity { // of the run as a whole
		e.night[key{metric: f.Metric, of: f.Of, kind: f.Kind, unit: f.Unit}] = &night{figures: []float64{f.Value}}
	}
}

// writer puts runs into the index. After an error it does nothing.
type writer struct {
	ctx      context.Context
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
	series   map[seriesKey]int64 // ids of this transaction
	nights   []row
	touched  map[int64]bool // series that lost a night
	removed  bool           // a run was removed
	err      error
}

// statement is a query, parsed once; nil after an error.
func (w *writer) statement(query string) *sql.Stmt {
	if w.err != nil {
		return nil
	}
	s := w.prepared[query]
	if s == nil {
		if s, w.err = w.conn.PrepareContext(w.ctx, query); w.err != nil {
			return nil
		}
		w.prepared[query] = s
	}
	return s
}

func (w *writer) exec(query string, args ...any) {
	if s := w.statement(query); s != nil {
		_, w.err = s.ExecContext(w.ctx, args...)
	}
}

// get asks for one row. It is false if there is none, or after an error.
func (w *writer) get(to any, query string, args ...any) bool {
	s := w.statement(query)
	if s == nil {
		return false
	}
	err := s.QueryRowContext(w.ctx, args...).Scan(to)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		w.err = err
	}
	return err == nil
}

// replace puts a run in the place of what was known of it.
func (w *writer) replace(e *entry) {
	w.forget(e.dir)
	if !e.there || w.err != nil {
		return
	}
	setting, why := "", ""
	if e.err != nil {
		why = e.err.Error()
	} else {
		s := SettingOf(e.rec)
		facts, err := json.Marshal(s)
		if err != nil {
			w.err = err
			return
		}
		setting = s.Key()
		w.exec("INSERT OR IGNORE INTO setting VALUES (?, ?)", setting, string(facts))
	}
	var run int64
	w.get(&run, `INSERT INTO run (dir, size, mtime, inode, ulid, experiment, setting, started, finished, outcome, tool, error)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`, e.dir, e.stamp.size, e.stamp.mtime, e.stamp.inode,
		e.rec.ID, e.rec.Name, setting, nanoseconds(e.rec.Started), nanoseconds(e.rec.Finished), string(e.rec.Outcome), e.rec.Tool, why)
	if e.rec.Sabotage != nil {
		return // its figures are of no testbed
	}
	for k, n := range e.night {
		w.nights = append(w.nights, row{w.id(e.rec.Name, setting, k), run, n})
	}
}

// finish writes what replace has gathered, in the order in which it lies on disk, and removes series
// and settings that nothing is of any more, so that the index is what it would be had that never been.
func (w *writer) finish() error {
	slices.SortFunc(w.nights, func(a, b row) int { return cmp.Or(cmp.Compare(a.series, b.series), cmp.Compare(a.run, b.run)) })
	for _, n := range w.nights {
		figures, err := json.Marshal(n.figures)
		if err != nil { // not of a record, which is JSON itself
			w.err = errors.Join(w.err, err)
		}
		w.exec("INSERT INTO night VALUES (?, ?, ?, ?)", n.series, n.run, string(figures), n.spoilt)
	}
	for series := range w.touched {
		w.exec("DELETE FROM series WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM night WHERE series = ?1)", series)
	}
	if w.removed {
		w.exec("DELETE FROM setting WHERE key NOT IN (SELECT setting FROM run)")
	}
	errs := []error{w.err}
	for _, s := range w.prepared {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// forget removes a run.
func (w *writer) forget(dir string) {
	if w.err != nil {
		return
	}
	w.err = each(w.ctx, w.conn, func(scan scanner) error {
		var series int64
		err := scan(&series)
		w.touched[series] = true
		return err
	}, "DELETE FROM night WHERE run = (SELECT id FROM run WHERE dir = ?) RETURNING series", dir)
	if w.err != nil {
		return
	}
	var gone sql.Result
	if gone, w.err = w.conn.ExecContext(w.ctx, "DELETE FROM run WHERE dir = ?", dir); w.err == nil {
		n, _ := gone.RowsAffected()
		w.removed = w.removed || n > 0
	}
}

// id is that of a series, which is made where it is new.
func (w *writer) id(experiment, setting string, k key) (id int64) {
	name := seriesKey{experiment, setting, k}
	id, ok := w.series[name]
	if ok {
		return id
	}
	args := []any{experiment, setting, k.point, k.labels, k.phase, k.metric, k.of, string(k.kind), k.predictor, k.unit}
	if !w.get(&id, `SELECT id FROM series WHERE experiment = ? AND setting = ? AND point = ? AND labels = ?
		AND phase = ? AND metric = ? AND subject = ? AND kind = ? AND predictor = ? AND unit = ?`, args...) {
		w.get(&id, `INSERT INTO series (experiment, setting, point, labels, phase, metric, subject, kind, predictor, unit)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`, args...)
	}
	w.series[name] = id
	return id
}

// nanoseconds since 1970; 0 for no time.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
