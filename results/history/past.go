package history

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/report"
	"github.com/inabench/inabench/results/trend"
)

// maxSeries is how many figures are shown run after run, and maxFigures how many that changed.
const (
	maxSeries  = 8
	maxFigures = 100
)

// Past is what is known of the past of a run, of which dir is the directory's name: how it compares
// with the last run before that passed in the same setting, and its most telling figures run after
// run: those that changed, then those with gated expectations. The error is that of the index, which
// may not know the run, or of its record.
func (x *Index) Past(ctx context.Context, dir string) (*report.Past, error) {
	all, err := x.Runs(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(r Run) bool { return r.Dir == dir })
	if i < 0 {
		return nil, fmt.Errorf("run %s: %w in the index", dir, fs.ErrNotExist)
	}
	of := all[i]
	past := &report.Past{}
	earlier := 0
	for _, r := range all { // the newest first
		if r.Dir == dir || r.ID == of.ID && r.ID != "" || r.Experiment != of.Experiment || r.Setting != of.Setting || !r.Started.Before(of.Started) {
			continue
		}
		earlier++
		if past.Good == nil && r.Complete && r.Outcome == results.Pass {
			past.Good = &report.PastRun{Run: r.Dir, Started: r.Started, Tool: r.Tool}
		}
	}
	var pair *Pair
	switch {
	case past.Good != nil:
		if pair, err = Compare(ctx, x, filepath.Join(x.root, past.Good.Run), filepath.Join(x.root, dir), PairOptions{}); err != nil {
			return nil, err
		}
		past.Note = pair.Noise()
		for _, f := range pair.Figures {
			if f.Change == Unchanged {
				past.Same++
				continue
			}
			if f.Spoilt {
				continue
			}
			past.Figures = append(past.Figures, report.PastFigure{
				Change: string(f.Change), Metric: f.Metric, Of: f.Of, Point: f.Point, Unit: f.Unit, Phase: f.Phase,
				Before: f.Verdict.Baseline, After: f.Verdict.Tonight, Shift: f.Verdict.Shift, Lo: f.Verdict.Lo, Hi: f.Verdict.Hi,
			})
		}
		if n := pair.Spoilt(); n > 0 {
			past.Note += fmt.Sprintf(" %d figures cannot be compared: the testbed limited all repeats of a run.", n)
		}
		slices.SortStableFunc(past.Figures, func(a, b report.PastFigure) int {
			return cmp.Compare(slices.Index(pairOrder, PairChange(a.Change)), slices.Index(pairOrder, PairChange(b.Change)))
		})
		if left := len(past.Figures) - maxFigures; left > 0 {
			past.Figures = past.Figures[:maxFigures]
			past.Note += fmt.Sprintf(" %d further figures that are not the same are left out: inabench compare lists them.", left)
		}
	case earlier > 0:
		past.Note = fmt.Sprintf("None of the %d runs before in this setting passed.", earlier)
	default:
		past.Note = "It is the first run of this experiment in this setting."
	}
	if earlier == 0 {
		return past, nil
	}
	rec, err := results.ReadRecord(filepath.Join(x.root, dir))
	if err != nil {
		return nil, err
	}
	past.Series, err = x.pastSeries(ctx, rec, dir, of.Setting, past.Figures)
	return past, err
}

func (x *Index) pastSeries(ctx context.Context, rec *results.Record, dir, setting string, changed []report.PastFigure) ([]report.PastSeries, error) {
	found, err := x.Series(ctx, Query{Experiment: rec.Name, Setting: setting, Kinds: []results.Kind{results.Measured, results.Simulated}})
	if err != nil {
		return nil, err
	}
	// Smaller is more telling.
	rank := func(s Series) int {
		for i, f := range changed {
			if f.Metric == s.Metric && f.Of == s.Of && f.Point == s.Point && f.Phase == s.Phase && f.Unit == s.Unit {
				return i
			}
		}
		for k, gate := range []bool{true, false} {
			for i, e := range rec.Expect {
				if e.Metric == s.Metric && results.Glob(e.Of, s.Of) && e.Gate == gate {
					return maxFigures + 1000*k + i
				}
			}
		}
		return math.MaxInt
	}
	slices.SortStableFunc(found, func(a, b Series) int { return cmp.Compare(rank(a), rank(b)) })
	var out []report.PastSeries
	for _, s := range found {
		if s.Experiment != rec.Name || s.Metric == "sum_errors" || len(out) == maxSeries {
			continue
		}
		// What came after the run is not its past.
		if n := slices.IndexFunc(s.Nights, func(n Night) bool { return n.Started.After(rec.Started) }); n >= 0 {
			s.Nights = s.Nights[:n]
		}
		if len(s.Nights) < 2 || s.Nights[len(s.Nights)-1].ID != rec.ID || rec.ID == "" {
			continue
		}
		one := report.PastSeries{Metric: s.Metric, Of: s.Of, Point: s.Point, Unit: s.Unit, Phase: s.Phase}
		for _, n := range s.Nights {
			one.Nights = append(one.Nights, report.PastNight{PastRun: report.PastRun{Run: n.Run, Started: n.Started, Tool: n.Tool}, Figures: n.Figures})
		}
		if _, one.Changes, err = trend.Follow(s.Trend(), trend.Options{}); err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// Noise says what the judgement of a pair rests on; empty where nothing is judged.
func (p *Pair) Noise() string {
	most, least := 0, -1
	for _, f := range p.Figures {
		if f.Kind == results.Measured && len(f.Before) > 0 && len(f.After) > 0 {
			most = max(most, f.Verdict.Nights)
			if least < 0 || f.Verdict.Nights < least {
				least = f.Verdict.Nights
			}
		}
	}
	others := fmt.Sprintf("%d other runs of this setting", most)
	switch {
	case !p.Judged || least < 0:
		return ""
	case most < learn:
		return fmt.Sprintf("Judged by repeats alone: noise is known from %d other runs of this setting on, and there are %d.", learn, most)
	case least < learn:
		return fmt.Sprintf("Judged by the noise of up to %s; figures of fewer than %d by repeats alone.", others, learn)
	}
	return fmt.Sprintf("Judged by the noise of %s.", others)
}
