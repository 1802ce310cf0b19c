package history

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
	"github.com/inabench/inabench/results/trend"
)

// compared holds the second of two runs against the first, with noise learnt from nothing else.
func compared(t *testing.T, before, after *results.Record, o PairOptions) *Pair {
	t.Helper()
	root := t.TempDir()
	p, err := Compare(t.Context(), nil, filepath.Join(root, resultstest.Save(t, root, before)), filepath.Join(root, resultstest.Save(t, root, after)), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCompareHeldAgainst: whether models were held against one of two runs says nothing of what became of its figures.
func TestCompareHeldAgainst(t *testing.T) {
	for _, c := range []struct {
		name   string
		models [2]int // held against each
	}{
		{"neither", [2]int{0, 0}},
		{"the first", [2]int{1, 0}},
		{"the second", [2]int{0, 1}},
	} {
		recs := [2]*results.Record{record(0, 100, 100, 100, 100), record(1, 100, 100, 100, 100)}
		for i, rec := range recs {
			for range c.models[i] {
				rec.Fidelity = append(rec.Fidelity, results.Figure{Metric: "fidelity", Of: "sim", Kind: results.Measured, Value: 0.02, Lo: 0.01, Hi: 0.03, N: 9, Unit: "1"})
			}
		}
		p := compared(t, recs[0], recs[1], PairOptions{})
		if p.Outcome() != results.Pass || len(p.Figures) != 2 {
			t.Errorf("%s: %s, %s: %+v", c.name, p.Outcome(), p.Words(), p.Figures)
		}
	}
}

// TestPairNeeds: more repeats are asked for where they would tell, and not where nights differ by as much.
func TestPairNeeds(t *testing.T) {
	for _, c := range []struct {
		name   string
		nights int // earlier ones, which differ by 3 %
		needs  bool
	}{
		{"repeats alone", 0, true},
		{"too few nights", learn - 1, true},
		{"noise of nights", learn, false},
		{"noise of many nights", 2 * learn, false},
	} {
		var earlier []trend.Night
		for i := range c.nights {
			earlier = append(earlier, trend.Night{100 * (1 + 0.03*math.Sin(2.4*float64(i)))})
		}
		f := PairFigure{Metric: "goodput", Unit: "bit/s", Kind: results.Measured, Before: []float64{100}, After: []float64{97}}
		if err := f.judge(earlier, 1, PairOptions{}); err != nil {
			t.Fatal(err)
		}
		if f.Change != Undecided || (f.Needs > 0) != c.needs {
			t.Errorf("%s: %s, %d repeats should tell: %+v", c.name, f.Change, f.Needs, f.Verdict)
		}
	}
}

// TestCompareNarrowed: points of a sweep of fewer values are held against those with the same labels, whatever their numbers.
func TestCompareNarrowed(t *testing.T) {
	sweep := func(n int, labels ...string) *results.Record {
		rec := record(n)
		for i, label := range labels {
			for repeat := range 4 {
				v := 100 + 10*float64(label[len(label)-1]-'0')
				rec.Points = append(rec.Points, results.Point{Index: i, Repeat: repeat, Labels: []string{label}, Phases: []results.Phase{{Jobs: []string{"A"}, Figures: []results.Figure{
					{Metric: "goodput", Of: "A", Kind: results.Measured, Value: v, Lo: v, Hi: v, N: 20, Unit: "bit/s"},
				}}}})
			}
		}
		return rec
	}
	for _, c := range []struct {
		name          string
		before, after []string
		want          map[PairChange]int
	}{
		{"all", []string{"x=1", "x=2", "x=3"}, []string{"x=1", "x=2", "x=3"}, map[PairChange]int{Unchanged: 3}},
		{"one of them", []string{"x=1", "x=2", "x=3"}, []string{"x=2"}, map[PairChange]int{Unchanged: 1, Gone: 2}},
		{"more of them", []string{"x=3"}, []string{"x=1", "x=2", "x=3"}, map[PairChange]int{Unchanged: 1, New: 2}},
		{"in another order", []string{"x=1", "x=2"}, []string{"x=2", "x=1"}, map[PairChange]int{Unchanged: 2}},
		{"one of them twice", []string{"x=1", "x=1"}, []string{"x=1", "x=1"}, map[PairChange]int{Unchanged: 2}},
	} {
		before, after := sweep(0, c.before...), sweep(1, c.after...)
		after.Overrides = []string{"sweep.0.values=" + c.name}
		p := compared(t, before, after, PairOptions{Across: true})
		if len(p.Metrics) != 1 {
			t.Errorf("%s: %+v", c.name, p.Metrics)
			continue
		}
		if got := p.Metrics[0].Counts; !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestCopies: a run counts once, in however many directories it is, and is not compared with itself.
func TestCopies(t *testing.T) {
	root := t.TempDir()
	var runs []string
	for day := range 14 {
		runs = append(runs, resultstest.Save(t, root, record(day, 100+math.Sin(2.4*float64(day)))))
	}
	for i, of := range []int{3, 3, 3, 13} {
		if err := os.CopyFS(filepath.Join(root, fmt.Sprintf("copy-%d", i)), os.DirFS(filepath.Join(root, runs[of]))); err != nil {
			t.Fatal(err)
		}
	}
	x := openIndex(t, root)
	update(t, x, 18)
	s := series(t, x, Query{Metric: "goodput"})
	if len(s) != 1 || len(s[0].Nights) != 14 || s[0].Copies != 4 {
		t.Fatalf("%+v", s)
	}
	uses, err := x.Uses(t.Context())
	if err != nil || len(uses) != 1 || uses[0].Runs != 14 {
		t.Errorf("%+v, %v", uses, err)
	}
	for _, other := range []string{runs[13], "copy-3"} {
		if _, err := Compare(t.Context(), x, filepath.Join(root, runs[13]), filepath.Join(root, other), PairOptions{}); !errors.Is(err, ErrSame) {
			t.Errorf("a run and %s: %v", other, err)
		}
	}
	pair, err := Compare(t.Context(), x, filepath.Join(root, "copy-0"), filepath.Join(root, "copy-3"), PairOptions{Metric: "goodput"})
	if err != nil || len(pair.Figures) != 1 || pair.Figures[0].Verdict.Nights != 12 {
		t.Errorf("two copies: %+v, %v", pair, err)
	}
	for _, dir := range []string{runs[13], "copy-3"} {
		past, err := x.Past(t.Context(), dir)
		if err != nil || past.Good == nil || past.Good.Run != runs[12] || len(past.Series) != 2 || len(past.Series[0].Nights) != 14 {
			t.Errorf("the past of %s: %+v, %v", dir, past, err)
		}
	}
}
