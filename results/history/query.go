package history

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/trend"
)

// Query says which series are wanted. The zero value wants all but predictions.
type Query struct {
	Metric, Of, Experiment string         // globs, as of results.Glob; empty: all
	Since                  time.Time      // nights from then on
	Setting                string         // the beginning of its key; empty: all
	Newest                 bool           // of each experiment and driver, the setting of the newest run only
	Kinds                  []results.Kind // none: measured and simulated
}

func (q Query) wants(s *Series) bool {
	kind := s.Kind != results.Predicted
	if len(q.Kinds) > 0 {
		kind = slices.Contains(q.Kinds, s.Kind)
	}
	return kind && results.Glob(q.Metric, s.Metric) && results.Glob(q.Of, s.Of) && results.Glob(q.Experiment, s.Experiment)
}

// Series is one quantity, night after night, in one setting.
type Series struct {
	Experiment string       `json:"experiment"`
	Setting    string       `json:"setting"` // its key
	Driver     string       `json:"driver"`  // of the setting
	Point      string       `json:"point,omitempty"`
	Phase      int          `json:"phase"` // of the point, from 0
	Metric     string       `json:"metric"`
	Of         string       `json:"of"`
	Kind       results.Kind `json:"kind"`
	Predictor  string       `json:"predictor,omitempty"`
	Unit       string       `json:"unit"`
	Nights     []Night      `json:"nights"` // the oldest first; each has figures
	Spoilt     int          `json:"spoilt"` // nights of which nothing counts, as the testbed limited all of it
	// Copies is how many further directories have a run that is one of the nights, which counts once.
	Copies int `json:"copies,omitempty"`
}

// Night is what one run says of a series.
type Night struct {
	Run      string          `json:"run"` // its directory, the first one of several with the run
	ID       string          `json:"id"`  // the run's
	Started  time.Time       `json:"started"`
	Outcome  results.Outcome `json:"outcome"`
	Complete bool            `json:"complete"` // false: it goes on, or was cut off
	Tool     string          `json:"tool"`
	Figures  []float64       `json:"figures"` // of each repeat
	Spoilt   int             `json:"spoilt"`  // repeats that do not count, as the testbed limited them
}

// Trend is the series as package trend takes it: Nights[i] is its i-th night.
func (s *Series) Trend() []trend.Night {
	out := make([]trend.Night, len(s.Nights))
	for i, n := range s.Nights {
		out[i] = n.Figures
	}
	return out
}

// queryer is a database, or a connection to one.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// scanner reads the columns of a row.
type scanner func(to ...any) error

// each does something with each row that a query finds.
func each(ctx context.Context, db queryer, do func(scan scanner) error, query string, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// ask is what a reading of the index finds, which must come to its end in time.
func ask[T any](ctx context.Context, x *Index, read func(context.Context) (T, error)) (found T, err error) {
	err = x.bounded(ctx, func(ctx context.Context) (err error) {
		found, err = read(ctx)
		return err
	})
	return found, x.failed("read", err)
}

// Series returns the series that a query wants and that have nights, by experiment, setting (the
// one that was run last first), point and phase.
func (x *Index) Series(ctx context.Context, q Query) ([]Series, error) {
	return ask(ctx, x, func(ctx context.Context) ([]Series, error) { return x.query(ctx, q) })
}

func (x *Index) query(ctx context.Context, q Query) ([]Series, error) {
	used, err := x.uses(ctx)
	if err != nil {
		return nil, err
	}
	place := map[[2]string]int{}
	for i, u := range used {
		older := slices.ContainsFunc(used[:i], func(o Use) bool { return o.Experiment == u.Experiment && o.Setting.Driver == u.Setting.Driver })
		if strings.HasPrefix(u.Key, q.Setting) && !(q.Newest && older) {
			place[[2]string{u.Experiment, u.Key}] = i
		}
	}
	type found struct {
		Series
		id, point int64
	}
	var all []found
	err = each(ctx, x.db.Load(), func(scan scanner) error {
		var f found
		err := scan(&f.id, &f.Experiment, &f.Setting, &f.point, &f.Point, &f.Phase, &f.Metric, &f.Of, &f.Kind, &f.Predictor, &f.Unit)
		if i, ok := place[[2]string{f.Experiment, f.Setting}]; ok && q.wants(&f.Series) {
			f.Driver = used[i].Setting.Driver
			all = append(all, f)
		}
		return err
	}, "SELECT id, experiment, setting, point, labels, phase, metric, subject, kind, predictor, unit FROM series")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(place[[2]string{a.Experiment, a.Setting}], place[[2]string{b.Experiment, b.Setting}]),
			cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.point, b.point), cmp.Compare(a.Point, b.Point), cmp.Compare(a.Phase, b.Phase),
			cmp.Compare(a.Of, b.Of), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Predictor, b.Predictor), cmp.Compare(a.Unit, b.Unit))
	})
	var out []Series
	for _, f := range all {
		if err := x.nights(ctx, f.id, q.Since, &f.Series); err != nil {
			return nil, err
		}
		if len(f.Nights)+f.Spoilt > 0 {
			out = append(out, f.Series)
		}
	}
	return out, nil
}

func (x *Index) nights(ctx context.Context, id int64, since time.Time, s *Series) error {
	seen := map[string]bool{}
	return each(ctx, x.db.Load(), func(scan scanner) error {
		var n Night
		var started int64
		var figures []byte
		if err := scan(&n.Run, &n.ID, &started, &n.Outcome, &n.Complete, &n.Tool, &figures, &n.Spoilt); err != nil {
			return err
		}
		if seen[n.ID] && n.ID != "" {
			s.Copies++
			return nil
		}
		seen[n.ID] = true
		n.Started = time.Unix(0, started).UTC()
		if err := json.Unmarshal(figures, &n.Figures); err != nil {
			return fmt.Errorf("%w: figures of %s: %w", ErrCorrupt, n.Run, err)
		}
		if len(n.Figures) == 0 {
			s.Spoilt++
		} else {
			s.Nights = append(s.Nights, n)
		}
		return nil
	}, `SELECT run.dir, run.ulid, run.started, run.outcome, run.finished <> 0, run.tool, night.figures, night.spoilt
		FROM night JOIN run ON run.id = night.run WHERE night.series = ? AND run.started >= ? ORDER BY run.started, run.dir`, id, nanoseconds(since))
}

// Use is a setting in which an experiment was run and had figures.
type Use struct {
	Experiment string    `json:"experiment"`
	Key        string    `json:"key"` // of the setting
	Setting    Setting   `json:"setting"`
	Runs       int       `json:"runs"`
	First      time.Time `json:"first"` // when the first and the last of these began
	Last       time.Time `json:"last"`
}

// Uses are the settings in which each experiment was run, by experiment, the one that was run last first.
func (x *Index) Uses(ctx context.Context) ([]Use, error) { return ask(ctx, x, x.uses) }

func (x *Index) uses(ctx context.Context) (out []Use, err error) {
	err = each(ctx, x.db.Load(), func(scan scanner) error {
		var u Use
		var facts []byte
		var first, last int64
		if err := scan(&u.Experiment, &u.Key, &facts, &u.Runs, &first, &last); err != nil {
			return err
		}
		if err := json.Unmarshal(facts, &u.Setting); err != nil {
			return fmt.Errorf("%w: setting %s: %w", ErrCorrupt, u.Key, err)
		}
		u.First, u.Last = time.Unix(0, first).UTC(), time.Unix(0, last).UTC()
		out = append(out, u)
		return nil
	}, `SELECT run.experiment, setting.key, setting.facts, count(DISTINCT coalesce(nullif(run.ulid, ''), run.dir)), min(run.started), max(run.started)
		FROM run JOIN setting ON setting.key = run.setting
		WHERE EXISTS (SELECT 1 FROM night WHERE night.run = run.id) GROUP BY 1, 2 ORDER BY 1, 6 DESC, 2`)
	return out, err
}

// Metrics are the names of all metrics that there are figures of, sorted.
func (x *Index) Metrics(ctx context.Context) ([]string, error) {
	return ask(ctx, x, func(ctx context.Context) (out []string, err error) {
		err = each(ctx, x.db.Load(), func(scan scanner) error {
			var m string
			err := scan(&m)
			out = append(out, m)
			return err
		}, "SELECT DISTINCT metric FROM series ORDER BY 1")
		return out, err
	})
}

// Run is a run directory as the index knows it.
type Run struct {
	Dir        string          `json:"dir"`
	ID         string          `json:"id"`
	Experiment string          `json:"experiment"`
	Setting    string          `json:"setting"` // its key; empty where the record cannot be read
	Driver     string          `json:"driver"`
	Started    time.Time       `json:"started"`
	Complete   bool            `json:"complete"` // false: it goes on, or was cut off
	Outcome    results.Outcome `json:"outcome"`
	Tool       string          `json:"tool"`
	Error      string          `json:"error,omitempty"` // why the record cannot be read

	stamp stamp
}

// Runs are all runs, the newest first.
func (x *Index) Runs(ctx context.Context) ([]Run, error) { return ask(ctx, x, x.runs) }

func (x *Index) runs(ctx context.Context) (out []Run, err error) {
	err = each(ctx, x.db.Load(), func(scan scanner) error {
		var r Run
		var started int64
		err := scan(&r.Dir, &r.ID, &r.Experiment, &r.Setting, &r.Driver, &started, &r.Complete, &r.Outcome, &r.Tool, &r.Error, &r.stamp.size, &r.stamp.mtime, &r.stamp.inode)
		r.Started = time.Unix(0, started).UTC()
		out = append(out, r)
		return err
	}, `SELECT dir, ulid, experiment, setting, coalesce(setting.facts ->> '$.driver', ''), started, finished <> 0, outcome, tool, error, size, mtime, inode
		FROM run LEFT JOIN setting ON setting.key = run.setting ORDER BY started DESC, dir DESC`)
	return out, err
}
