package experiments

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/inspect"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
	"github.com/inabench/inabench/results/report"
)

// simulate does all points and repeats of a study in virtual time, as many at a time as
// there are processors: but one at a time where the time that placing takes is asked for.
func (r *run) simulate(ctx context.Context) error {
	began := time.Now()
	defer func() { r.Timing("measure", began) }()
	r.rec.Kind, r.rec.Switch, r.rec.Hosts = results.Simulated, "model", []results.HostFacts{drivers.ThisMachine()}
	for i := range r.rec.Expect {
		switch e := &r.rec.Expect[i]; {
		case r.foreign(e): // which is asked, or skipped already
		case slices.Contains(kinds.Of(r.spec).Predictors(), e.Predictor), e.Metric == "jct" && e.Predictor != "value":
			e.Skip = "the simulator is not held to itself"
		case e.Metric == "jct" && !r.spec.Kind().Single:
			e.Skip = "this simulation has no jct of single jobs"
		case e.Metric == "sum_errors":
			e.Skip = "a model carries no sums"
		case e.Metric == "pattern_error":
			e.Skip = "a model is told the patterns"
		}
	}
	for {
		if err := r.simulateRepeats(ctx); err != nil {
			r.until.CutOff()
			return err
		}
		more := r.until.More(r.rec.Points)
		if more == 0 {
			return nil
		}
		r.opt.Repeats += more
		r.rec.Planned = len(r.points) * r.opt.Repeats
	}
}

// simulateRepeats does the repeats that are wanted and not done yet, of all points.
func (r *run) simulateRepeats(ctx context.Context) error {
	limit := runtime.GOMAXPROCS(0)
	if r.spec.Timed() {
		limit = 1
	}
	type cell struct {
		*study.Repetition
		jobs []byte
	}
	first, points := r.done, len(r.points)
	n := points*r.opt.Repeats - first
	r.Progress("simulate", "", 0)
	return inOrder(ctx, n, func(ctx context.Context, put func(int, cell)) error {
		finish := func(i int, c *study.Repetition) {
			at := first + i
			jobs := zipped(c.Rows, spec.Labels(r.points[at%points].Labels), strconv.Itoa(at/points))
			c.Rows = nil
			if !r.Asks() {
				c.Request = nil // and all that it holds
			}
			put(i, cell{c, jobs})
		}
		if r.opt.Batch != nil {
			return r.elsewhere(ctx, n, finish)
		}
		return sideBySide(ctx, n, limit, func(ctx context.Context, i int) error {
			at := first + i
			p := &r.points[at%points]
			c, err := kinds.Simulator(p.Spec, "sim").Simulate(ctx, p.Spec, at/points)
			if err != nil {
				return fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
			}
			finish(i, c)
			return nil
		})
	}, func(i int, c cell) error {
		at := first + i
		p := &r.points[at%points]
		point := results.Point{
			Index: at % points, Repeat: at / points, Params: p.Params, Labels: p.Labels,
			Phases: []results.Phase{{End: c.End, Figures: c.Figures, Missing: c.Missing}}, Curves: c.Curves, Machines: c.Machines, MachinesAt: c.MachinesAt,
		}
		r.askSimulated(ctx, *p, c.Repetition, &point.Phases[0])
		if point.Repeat > 0 && !report.SameX(c.Curves, r.rec.Points[point.Index].Curves) {
			point.Curves = nil
		}
		r.rec.Points = append(r.rec.Points, point)
		r.done++
		if r.done < first+n {
			r.Progress("simulate", "", 0)
		}
		return r.addJobs(c.jobs)
	})
}

// studied is one repeat of a point on a testbed.
func (r *run) studied(ctx context.Context, p study.Planned, repeat int) (*results.Point, error) {
	b := &study.Bench{Runner: r, Planned: p, Repeat: repeat}
	point, rows, err := kinds.Of(p.Spec).Run(ctx, b)
	point.Repeat, point.Labels = repeat, p.Labels
	if err == nil && !p.Spec.Kind().Looks {
		point.Findings = inspect.Study(b, point)
	}
	if rows == nil {
		return point, err
	}
	return point, errors.Join(err, r.addJobs(zipped(rows, spec.Labels(p.Labels), strconv.Itoa(repeat))))
}

// endStudy is the end of a run.
func (r *run) endStudy() (err error) {
	if r.table != nil {
		err = r.table.Close()
	}
	if st, ok := kinds.Of(r.spec).(study.Finisher); ok && r.opt.Driver != "sim" {
		st.Finish(r.rec)
	}
	r.rec.Comparison, r.rec.Narrowed = r.spec.Comparison(), r.spec.Narrowed()
	if r.rec.Summary = r.spec.Summary; r.rec.Summary == nil && !r.spec.Swept() {
		r.rec.Summary = kinds.Of(r.spec).Headline()
	}
	r.ratios()
	r.rec.Published = r.spec.PublishedValues()
	r.rec.Reproduced = r.rec.Reproduce()
	return err
}

// ratios adds to each other point its figures over those of the reference in the same repeat: the reference's own would be 1
// whatever happens.
func (r *run) ratios() {
	c := r.rec.Comparison
	if c == nil {
		return
	}
	others := func(p *results.Point) string { return study.Cohort(p, c.Key) }
	type base struct {
		figures map[string]float64
		unfit   string         // why it is no reference
		phase   *results.Phase // which knows why figures may be off
	}
	reference := map[string]base{}
	measured := func(p *results.Point) map[string]float64 { // of the Cluster, by metric
		of := map[string]float64{}
		for _, f := range p.Phases[0].Figures {
			if f.Of == results.Cluster && f.Kind != results.Predicted {
				of[f.Metric] = f.Value
			}
		}
		return of
	}
	for i := range r.rec.Points {
		if p := &r.rec.Points[i]; len(p.Phases) > 0 && spec.Format(p.Params[c.Key]) == c.Reference {
			reference[others(p)] = base{measured(p), p.UnsoundIn(0), &p.Phases[0]}
		}
	}
	for i := range r.rec.Points {
		p := &r.rec.Points[i]
		ref := reference[others(p)]
		if _, ok := p.Params[c.Key]; !ok || len(p.Phases) == 0 {
			continue // nothing is swept, or it ended early
		}
		ph, of := &p.Phases[0], spec.Format(p.Params[c.Key])
		if of == c.Reference {
			continue
		}
		lacks := func(name, why string) {
			ph.Missing = append(ph.Missing, results.Missing{Metric: name + metric.Ratio, Of: of, Why: why})
		}
		own := measured(p)
		for _, name := range slices.Sorted(maps.Keys(ref.figures)) {
			if _, ok := own[name]; !ok {
				lacks(name, "there is no "+name+" here, and of the reference there is")
			}
		}
		for _, f := range ph.Figures {
			v := ref.figures[f.Metric]
			switch {
			case f.Of != results.Cluster || f.Kind == results.Predicted:
			case ref.unfit != "": // what was measured of it is no reference
				lacks(f.Metric, "the reference: "+ref.unfit)
			case v > 0:
				ph.Figures = append(ph.Figures, study.Exactly(f.Metric+metric.Ratio, of, f.Kind, f.Value/v))
				ph.OffAs(f.Metric+metric.Ratio, ph.StoodOf[f.Metric])
				if why := ref.phase.Excuse(f.Metric); why != "" {
					ph.OffAs(f.Metric+metric.Ratio, "the reference: "+why)
				}
			case f.Value != 0: // what is more than nothing is no ratio, and no reason to leave it out
				lacks(f.Metric, "the reference's is 0, or there is none")
			}
		}
	}
}

// compressors are reused, since each has tables of a megabyte. The fastest level makes files a
// tenth larger than the default, which takes longer than simulating some points does.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that there is
	return z
}}

// zipped are rows with the same head as a part of jobs.csv.gz that stands for itself, a gzip
// member: whoever computed a point compresses it, and the file is its parts one after the other.
func zipped(rows [][]string, head ...string) []byte {
	var b bytes.Buffer // which takes all that is written
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&b)
	w := csv.NewWriter(z)
	line := slices.Clone(head)
	for _, row := range rows {
		line = append(line[:len(head)], row...)
		w.Write(results.CSVRow(line))
	}
	w.Flush()
	z.Close()
	return b.Bytes()
}

// addJobs adds a part to jobs.csv.gz in the run directory: what became of every job.
func (r *run) addJobs(part []byte) (err error) {
	if r.table == nil {
		if r.table, err = os.Create(filepath.Join(r.dir.Path, "jobs.csv.gz")); err != nil {
			return err
		}
		part = append(zipped([][]string{kinds.Of(r.spec).Columns()}, "point", "repeat"), part...)
	}
	_, err = r.table.Write(part)
	return err
}
