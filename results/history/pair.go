package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
	"github.com/inabench/inabench/results/trend"
)

// Pair is two runs held against each other, figure by figure.
type Pair struct {
	Before PairRun `json:"before"`
	After  PairRun `json:"after"`
	// Differences are what makes the settings two, in words. With any, nothing is judged unless
	// that was asked for: figures of different settings are not of the same thing.
	Differences []string     `json:"differences"`
	Judged      bool         `json:"judged"`
	Metrics     []PairMetric `json:"metrics"`
	Figures     []PairFigure `json:"figures"` // by metric, those that got worse first
}

// PairRun is one of the two.
type PairRun struct {
	Run        string          `json:"run"` // its directory
	Experiment string          `json:"experiment"`
	Setting    string          `json:"setting"` // its key
	Started    time.Time       `json:"started"`
	Tool       string          `json:"tool"`
	Outcome    results.Outcome `json:"outcome"`
}

// PairChange is what became of a figure.
type PairChange string

// Changes of figures, those that need attention first.
const (
	Worse     PairChange = "worse"
	Undecided PairChange = "undecided"
	Gone      PairChange = "gone" // no longer measured
	New       PairChange = "new"  // not measured before
	Changed   PairChange = "changed"
	Improved  PairChange = "better"
	Unchanged PairChange = "same"
)

var pairOrder = []PairChange{Worse, Undecided, Gone, Changed, New, Improved, Unchanged}

// PairFigure is one quantity in both runs.
type PairFigure struct {
	Point     string       `json:"point,omitempty"`
	Phase     int          `json:"phase"` // from 0
	Metric    string       `json:"metric"`
	Of        string       `json:"of"`
	Kind      results.Kind `json:"kind"`
	Predictor string       `json:"predictor,omitempty"`
	Unit      string       `json:"unit"`
	Before    []float64    `json:"before"` // of each repeat; empty: not measured, or spoilt
	After     []float64    `json:"after"`
	// Change is empty where nothing is judged.
	Change PairChange `json:"change,omitempty"`
	// Verdict has the medians, Baseline and Tonight, and what is known of the change: Nights is how
	// many other nights its noise was learnt from.
	Verdict trend.Verdict `json:"verdict"`
	Needs   int           `json:"needs,omitempty"` // repeats of each run that should decide it; 0: it takes none, or no number of them would
	// Spoilt: the testbed limited all repeats of one of the runs, so that there is nothing to compare.
	Spoilt bool `json:"spoilt,omitempty"`
}

// PairMetric sums up a metric.
type PairMetric struct {
	Metric   string             `json:"metric"`
	Unit     string             `json:"unit"`
	Counts   map[PairChange]int `json:"counts"`   // of its figures
	Compared int                `json:"compared"` // figures that both runs have
	// Shift is the median of all changes, as a part of what was before, and [Lo, Hi] the range in which
	// the middle half of them is.
	Shift float64 `json:"shift"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
}

// learn is how many nights tell the noise, as by default in package trend.
const learn = 10

// PairOptions say how runs are held against each other.
type PairOptions struct {
	Metric string  // glob over metrics; empty: all
	Across bool    // judge although settings differ
	Within float64 // the largest change that "the same" may hide, relative; 0: 0.05
}

// Count is how many figures changed so.
func (p *Pair) Count(c PairChange) (n int) {
	for _, m := range p.Metrics {
		n += m.Counts[c]
	}
	return n
}

// ErrSame is wrapped where a run is to be compared with itself, or with a copy of it.
var ErrSame = errors.New("a run does not differ from itself")

// Compare holds the run in one directory against that in another. Its noise is learnt from the nights
// of their setting that the index has, which may be nil: then from their repeats alone. Predictions
// are not compared. The error is that of reading a record, or the index; or wraps ErrSame.
func Compare(ctx context.Context, x *Index, before, after string, o PairOptions) (*Pair, error) {
	var a, b entry
	for i, e := range []*entry{&a, &b} {
		real, err := filepath.EvalSymlinks([]string{before, after}[i])
		if err != nil {
			return nil, err
		}
		e.dir = filepath.Base(real)
		if e.read(real); e.err != nil {
			return nil, e.err
		}
	}
	if a.is(b.dir, b.rec.ID) {
		return nil, fmt.Errorf("%w: %s and %s are of %s", ErrSame, a.dir, b.dir, a.rec.ID)
	}
	b.renumber(a.rec)
	run := func(e *entry) PairRun {
		return PairRun{e.dir, e.rec.Name, SettingOf(e.rec).Key(), e.rec.Started, e.rec.Tool, e.rec.Outcome}
	}
	p := &Pair{Before: run(&a), After: run(&b), Differences: SettingOf(b.rec).Differences(SettingOf(a.rec))}
	p.Differences = append([]string{}, p.Differences...)
	if a.rec.Name != b.rec.Name {
		p.Differences = append(p.Differences, "experiment "+b.rec.Name+", was "+a.rec.Name)
	}
	p.Judged = len(p.Differences) == 0 || o.Across

	earlier, upTo := map[key][]trend.Night{}, map[key][]trend.Night{} // the latter up to the first run
	if x != nil {
		found, err := x.Series(ctx, Query{Experiment: b.rec.Name, Setting: p.After.Setting, Kinds: []results.Kind{results.Measured, results.Simulated}})
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if s.Experiment != b.rec.Name || !results.Glob(o.Metric, s.Metric) {
				continue
			}
			k := seriesIdentity(s)
			for _, n := range s.Nights {
				// What followed the later run is no evidence of how noisy things were.
				if !a.is(n.Run, n.ID) && !b.is(n.Run, n.ID) && !n.Started.After(b.rec.Started) {
					earlier[k] = append(earlier[k], n.Figures)
					if !n.Started.After(a.rec.Started) {
						upTo[k] = append(upTo[k], n.Figures)
					}
				}
			}
		}
	}

	for k, nights := range upTo { // between the runs there may be the change itself
		if len(nights) >= learn {
			earlier[k] = nights
		}
	}
	var keys []key
	for _, night := range []map[key]*night{a.night, b.night} {
		for k := range night {
			if k.kind != results.Predicted && results.Glob(o.Metric, k.metric) {
				keys = append(keys, k)
			}
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.metric, b.metric), cmp.Compare(a.unit, b.unit), cmp.Compare(a.point, b.point), cmp.Compare(a.labels, b.labels),
			cmp.Compare(a.phase, b.phase), cmp.Compare(a.of, b.of), cmp.Compare(a.kind, b.kind), cmp.Compare(a.predictor, b.predictor))
	})
	keys = slices.Compact(keys)
	pairs := 0
	for _, k := range keys {
		if len(figuresOf(a.night, k)) > 0 && len(figuresOf(b.night, k)) > 0 {
			pairs++
		}
	}
	for _, k := range keys {
		f := PairFigure{
			Point: k.labels, Phase: k.phase, Metric: k.metric, Of: k.of, Kind: k.kind, Predictor: k.predictor, Unit: k.unit,
			Before: figuresOf(a.night, k), After: figuresOf(b.night, k),
		}
		if err := f.judge(earlier[key{labels: k.labels, phase: k.phase, metric: k.metric, of: k.of, kind: k.kind, predictor: k.predictor, unit: k.unit}], pairs, o); err != nil {
			return nil, err
		}
		if k.metric == "fidelity" && (f.Change == New || f.Change == Gone) {
			continue // whether models were held against a run says nothing of it
		}
		if f.Spoilt = a.night[k] != nil && len(f.Before) == 0 || b.night[k] != nil && len(f.After) == 0; f.Spoilt {
			f.Change = Undecided
		}
		if !p.Judged {
			f.Change = ""
		}
		p.Figures = append(p.Figures, f)
	}
	p.sumUp()
	slices.SortStableFunc(p.Figures, func(a, b PairFigure) int {
		return cmp.Or(cmp.Compare(a.Metric, b.Metric), cmp.Compare(slices.Index(pairOrder, a.Change), slices.Index(pairOrder, b.Change)))
	})
	return p, nil
}

// is says whether a run is of so named a directory, or id.
func (e *entry) is(dir, id string) bool { return e.dir == dir || e.rec.ID == id && id != "" }

// renumber gives points of a run the numbers that they have in another one, by their labels: a sweep of fewer values
// numbers them otherwise. Points that share their labels with others of their run keep theirs.
func (e *entry) renumber(as *results.Record) {
	own, others := numbers(e.rec), numbers(as)
	renumbered := map[key]*night{}
	for k, n := range e.night {
		if other, ok := others[k.labels]; ok && other >= 0 && own[k.labels] >= 0 {
			k.point = other
		}
		renumbered[k] = n
	}
	e.night = renumbered
}

// numbers are those of a run's points by their labels; less than 0 where several have the same.
func numbers(rec *results.Record) map[string]int {
	out := map[string]int{}
	for _, p := range rec.Points {
		label := p.Label()
		if n, ok := out[label]; ok && n != p.Index {
			out[label] = -1
			continue
		}
		out[label] = p.Index
	}
	return out
}

// figuresOf are a run's figures; not nil.
func figuresOf(nights map[key]*night, k key) []float64 {
	if n := nights[k]; n != nil && n.figures != nil {
		return n.figures
	}
	return []float64{}
}

// seriesIdentity is what a series is told from others by, but for its point's number.
func seriesIdentity(s Series) key {
	return key{labels: s.Point, phase: s.Phase, metric: s.Metric, of: s.Of, kind: s.Kind, predictor: s.Predictor, unit: s.Unit}
}

// judge fills in what became of the figure, one of so many.
func (f *PairFigure) judge(earlier []trend.Night, pairs int, o PairOptions) error {
	switch {
	case len(f.Before) == 0 && len(f.After) == 0:
		f.Change = Undecided
		return nil
	case len(f.Before) == 0:
		f.Change = New
		f.Verdict = trend.Verdict{State: trend.Open, Tonight: results.Median(f.After)}
		return nil
	case len(f.After) == 0:
		f.Change = Gone
		f.Verdict = trend.Verdict{State: trend.Open, Baseline: results.Median(f.Before)}
		return nil
	}
	pair := trend.Pair{Before: f.Before, After: f.After, Earlier: earlier, Exact: f.Kind == results.Simulated || exactly(f.Metric), Within: o.Within}
	if pair.Exact { // they do not differ by chance, so that earlier ones tell nothing of these
		pair.Earlier = nil
	}
	// Many figures are looked at: all of them together may be wrong as often as one.
	v, err := pair.Judge(trend.Options{FalseAlarms: 0.05 / float64(max(pairs, 1))})
	if err != nil {
		return err
	}
	f.Verdict = v
	switch better := float64(metric.Of(f.Metric, f.Unit).Better); {
	case v.State == trend.Open:
		f.Change = Undecided
		if len(pair.Earlier) < learn { // from then on it is nights that differ, whatever their repeats
			f.Needs = pair.Needs(v)
		}
	case v.State == trend.Same:
		f.Change = Unchanged
	case better == 0:
		f.Change = Changed
	case better*v.Shift > 0:
		f.Change = Improved
	default:
		f.Change = Worse
	}
	return nil
}

// exactly says whether a metric is a count without noise.
func exactly(metric string) bool { return metric == "sum_errors" }

// Spoilt is how many figures the testbed left nothing of.
func (p *Pair) Spoilt() (n int) {
	for _, f := range p.Figures {
		if f.Spoilt {
			n++
		}
	}
	return n
}

func (p *Pair) sumUp() {
	for _, f := range p.Figures {
		i := slices.IndexFunc(p.Metrics, func(m PairMetric) bool { return m.Metric == f.Metric && m.Unit == f.Unit })
		if i < 0 {
			i = len(p.Metrics)
			p.Metrics = append(p.Metrics, PairMetric{Metric: f.Metric, Unit: f.Unit, Counts: map[PairChange]int{}})
		}
		if f.Change != "" {
			p.Metrics[i].Counts[f.Change]++
		}
	}
	for i := range p.Metrics {
		m := &p.Metrics[i]
		var shifts []float64
		for _, f := range p.Figures {
			if f.Metric == m.Metric && f.Unit == m.Unit && len(f.Before) > 0 && len(f.After) > 0 {
				shifts = append(shifts, f.Verdict.Shift)
			}
		}
		if len(shifts) == 0 {
			continue
		}
		m.Compared = len(shifts)
		slices.Sort(shifts)
		at := func(q float64) float64 { return shifts[int(q*float64(len(shifts)-1)+0.5)] }
		m.Shift, m.Lo, m.Hi = results.Median(shifts), at(0.25), at(0.75)
	}
}
