package experiments

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/results"
)

// study is what an experiment is about when it is not about [[job]] tables: jobs that
// come over time, are placed when they do, and leave.
type study interface {
	// check finds everything that is wrong with it.
	check(c *checker)
	// metrics are what its figures are of, which expectations may be about.
	metrics() map[string]metric
	// headline are those of them that are compared where the experiment names none.
	headline() []string
	// predictor names what predicts the figures that a testbed measured.
	predictor() string
	// supports is an error, wrapping errors.ErrUnsupported, if a driver cannot do it.
	supports(driver string) error
	// ready is an error if the jobs of a point cannot be had.
	ready(s *Spec) error
	// simulate is one repeat of a point in virtual time.
	simulate(ctx context.Context, s *Spec, repeat int) (*repetition, error)
	// run is one repeat of a point on the testbed that is open, with what was measured
	// also with an error. rows are those of a repetition.
	run(ctx context.Context, r *run, p planned, repeat int) (point *results.Point, rows [][]string, err error)
	// finish adds to what testbeds measured what follows from several points.
	finish(rec *results.Record)
	// columns are those of the rows.
	columns() []string
}

// study is nil if the experiment is about [[job]] tables.
func (s *Spec) study() study {
	switch {
	case s.Trace != nil:
		return s.Trace
	case s.Operations != nil:
		return s.Operations
	}
	return nil
}

// repetition is what one repeat of a point came to in virtual time.
type repetition struct {
	end     float64 // s
	figures []results.Figure
	curves  []results.Curve
	rows    [][]string // a job each, for jobs.csv.gz
}

// exactly is a figure without an interval.
func exactly(metric, of string, kind results.Kind, unit string, v float64) results.Figure {
	return results.Figure{Metric: metric, Of: of, Kind: kind, Value: v, Lo: v, Hi: v, N: 1, Unit: unit}
}

// simulate does all points and repeats of a study in virtual time, as many at a time as
// there are processors: but one at a time where the time that placing takes is asked for.
func (r *run) simulate(ctx context.Context) error {
	began := time.Now()
	defer func() { r.timing("measure", began) }()
	r.rec.Kind, r.rec.Switch, r.rec.Hosts = results.Simulated, "model", []results.HostFacts{thisMachine()}
	for i := range r.rec.Expect {
		switch e := &r.rec.Expect[i]; e.Metric {
		case "jct":
			e.Skip = "the simulator is not held to itself"
		case "sum_errors":
			e.Skip = "a model carries no sums"
		}
	}
	limit := runtime.GOMAXPROCS(0)
	if r.spec.timed() {
		limit = 1
	}
	type cell struct {
		*repetition
		done chan struct{}
	}
	cells := make([]cell, len(r.points)*r.opt.Repeats)
	for i := range cells {
		cells[i].done = make(chan struct{})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit + 1)
	g.Go(func() error { // in order, whichever is ready first
		for i := range cells {
			c := &cells[i]
			p := &r.points[i%len(r.points)]
			r.status("simulate", "", 0)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-c.done:
			}
			point := results.Point{
				Index: i % len(r.points), Repeat: i / len(r.points), Params: p.Params, Labels: p.Labels,
				Phases: []results.Phase{{End: c.end, Figures: c.figures}}, Curves: c.curves,
			}
			r.rec.Points = append(r.rec.Points, point)
			if err := r.jobRows(&point, c.rows); err != nil {
				return err
			}
			*c = cell{}
			r.done++
		}
		return nil
	})
	for i := range cells {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			p := &r.points[i%len(r.points)]
			var err error
			if cells[i].repetition, err = p.Spec.study().simulate(ctx, p.Spec, i/len(r.points)); err != nil {
				return fmt.Errorf("%s%w", prefix(p.Labels), err)
			}
			close(cells[i].done)
			return nil
		})
	}
	return g.Wait()
}

// studied is one repeat of a point on a testbed.
func (r *run) studied(ctx context.Context, p planned, repeat int) (*results.Point, error) {
	point, rows, err := p.Spec.study().run(ctx, r, p, repeat)
	point.Repeat, point.Labels = repeat, p.Labels
	return point, errors.Join(err, r.jobRows(point, rows))
}

// endStudy is the end of a run of a study.
func (r *run) endStudy() (err error) {
	if r.table != nil {
		err = r.table.close()
	}
	if r.opt.Driver != "sim" {
		r.spec.study().finish(r.rec)
	}
	r.rec.Comparison = r.spec.comparison()
	if r.rec.Summary = r.spec.Summary; r.rec.Summary == nil && r.rec.Comparison == nil {
		r.rec.Summary = r.spec.study().headline()
	}
	r.ratios()
	return err
}

// cohort is the same for points of one repeat that differ in nothing but a swept key.
func cohort(p *results.Point, key string) string {
	rest := slices.DeleteFunc(slices.Clone(p.Labels), func(l string) bool { return strings.HasPrefix(l, key+"=") })
	return fmt.Sprint(p.Repeat, rest)
}

// ratios adds to each point its figures over those of the reference in the same repeat.
func (r *run) ratios() {
	c := r.rec.Comparison
	if c == nil {
		return
	}
	others := func(p *results.Point) string { return cohort(p, c.Key) }
	reference := map[string]map[string]float64{}
	for i := range r.rec.Points {
		if p := &r.rec.Points[i]; len(p.Phases) > 0 && format(p.Params[c.Key]) == c.Reference {
			of := map[string]float64{}
			for _, f := range p.Phases[0].Figures {
				of[f.Metric] = f.Value
			}
			reference[others(p)] = of
		}
	}
	for i := range r.rec.Points {
		p := &r.rec.Points[i]
		ref := reference[others(p)]
		if len(p.Phases) == 0 {
			continue // it ended early
		}
		for _, f := range p.Phases[0].Figures {
			if v := ref[f.Metric]; f.Of == results.Cluster && v > 0 {
				p.Phases[0].Figures = append(p.Phases[0].Figures, exactly(f.Metric+ratio, format(p.Params[c.Key]), f.Kind, "1", f.Value/v))
			}
		}
	}
}

// jobTable is jobs.csv.gz in the run directory: what became of every job.
type jobTable struct {
	file *os.File
	gz   *gzip.Writer
	csv  *csv.Writer
}

func newJobTable(dir string, columns []string) (*jobTable, error) {
	f, err := os.Create(filepath.Join(dir, "jobs.csv.gz"))
	if err != nil {
		return nil, err
	}
	t := &jobTable{file: f, gz: gzip.NewWriter(f)}
	t.csv = csv.NewWriter(t.gz)
	return t, t.csv.Write(append([]string{"point", "repeat"}, columns...))
}

func (t *jobTable) close() error {
	t.csv.Flush()
	return errors.Join(t.csv.Error(), t.gz.Close(), t.file.Close())
}

// jobRows writes what became of the jobs of a point.
func (r *run) jobRows(p *results.Point, rows [][]string) (err error) {
	if r.table == nil {
		if r.table, err = newJobTable(r.dir.Path, r.spec.study().columns()); err != nil {
			return err
		}
	}
	head := []string{strings.Join(p.Labels, " "), strconv.Itoa(p.Repeat)}
	for _, row := range rows {
		if err := r.table.csv.Write(append(head[:2:2], row...)); err != nil {
			return err
		}
	}
	return nil
}
