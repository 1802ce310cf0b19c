package history

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/report"
	"github.com/inabench/inabench/results/resultstest"
)

// changes are what became of figures, as "worse goodput A", in order.
func changes(figures []report.PastFigure) (out []string) {
	for _, f := range figures {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", f.Change, f.Metric, f.Of, f.Point)))
	}
	return out
}

// TestPast: which run a run is held against, what is said of its figures, and which of them are
// shown run after run.
func TestPast(t *testing.T) {
	// noisy are nights of some repeats near v.
	noisy := func(n int, v float64) *results.Record {
		w := v * (1 + 0.002*float64(n*7%5-2))
		return record(n, w*0.999, w, w*1.001, w)
	}
	nights := func(v ...float64) (out []*results.Record) {
		for n, v := range v {
			out = append(out, noisy(n, v))
		}
		return out
	}
	flat := slices.Repeat([]float64{100}, 12)
	with := func(recs []*results.Record, change func([]*results.Record)) []*results.Record {
		change(recs)
		return recs
	}
	for _, tt := range []struct {
		name   string
		runs   []*results.Record // the last one is looked at, unless of says another
		of     int
		good   int // of the runs; -1: none
		note   string
		same   int
		want   []string
		series []int // nights of each
	}{
		{name: "the first", runs: nights(100), good: -1, note: "It is the first run of this experiment in this setting."},
		{name: "none passed", runs: with(nights(100, 100), func(r []*results.Record) { r[0].Outcome = results.Fail }), good: -1,
			note: "None of the 1 runs before in this setting passed.", series: []int{2, 2}},
		{name: "as it was", runs: nights(append(flat, 100)...), good: 11, note: "Judged by the noise of 11 other runs of this setting.", same: 2, series: []int{13, 13}},
		{name: "slower", runs: nights(append(flat, 90)...), good: 11, note: "Judged by the noise of 11 other runs of this setting.", same: 1,
			want: []string{"worse goodput A"}, series: []int{13, 13}},
		{name: "faster", runs: nights(append(flat, 110)...), good: 11, note: "Judged by the noise of 11 other runs of this setting.", same: 1,
			want: []string{"better goodput A"}, series: []int{13, 13}},
		{name: "few nights", runs: nights(100, 90), good: 0, note: "Judged by repeats alone: noise is known from 10 other runs of this setting on, and there are 0.", same: 1,
			want: []string{"worse goodput A"}, series: []int{2, 2}},
		{name: "the last good one is further back", good: 10, same: 1, want: []string{"worse goodput A"}, series: []int{13, 13},
			note: "Judged by the noise of 10 other runs of this setting.",
			runs: with(nights(append(flat[:11:11], 90, 90)...), func(r []*results.Record) { r[11].Outcome = results.Fail })},
		{name: "not one that was cut off", good: 10, same: 2, series: []int{13, 13}, note: "Judged by the noise of 10 other runs of this setting.",
			runs: with(nights(append(flat, 100)...), func(r []*results.Record) { r[11].Finished = time.Time{} })},
		{name: "what came after is not the past", of: 12, good: 11, same: 2, series: []int{13, 13}, note: "Judged by the noise of 11 other runs of this setting.",
			runs: nights(append(flat, 100, 50, 50)...)},
		{name: "another setting", good: -1, note: "It is the first run of this experiment in this setting.",
			runs: with(nights(100, 100), func(r []*results.Record) { r[0].Hosts[0].Kernel = "5.15.0" })},
		{name: "another experiment", good: -1, note: "It is the first run of this experiment in this setting.",
			runs: with(nights(100, 100), func(r []*results.Record) { r[0].Name = "others" })},
		{name: "gone and new", good: 11, note: "Judged by the noise of 11 other runs of this setting.", same: 1, series: []int{13},
			want: []string{"gone share A@tor1", "new share B@tor1"},
			runs: with(nights(append(flat, 100)...), func(r []*results.Record) {
				for i := range r[12].Points {
					r[12].Points[i].Phases[0].Figures[2].Of = "B@tor1"
				}
			})},
		{name: "models that were held against it", good: 0, same: 2, series: []int{2, 2},
			note: "Judged by repeats alone: noise is known from 10 other runs of this setting on, and there are 0.",
			runs: with([]*results.Record{record(0, 100, 100, 100, 100), record(1, 100, 100, 100, 100)}, func(r []*results.Record) {
				r[1].Fidelity = []results.Figure{{Metric: "fidelity", Of: "sim", Kind: results.Measured, Value: 0.02, Lo: 0.01, Hi: 0.03, N: 9, Unit: "1"}}
			})},
		{name: "spoilt", good: 0, same: 0, note: "2 figures cannot be compared: the testbed limited all repeats of a run.",
			runs: with(nights(100, 100), func(r []*results.Record) {
				for i := range r[1].Points {
					r[1].Points[i].Health = []results.Trouble{{Where: "tor1", What: "switch saturated", Fatal: true}}
				}
			})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			var dirs []string
			for _, rec := range tt.runs {
				dirs = append(dirs, resultstest.Save(t, root, rec))
			}
			of := tt.of
			if of == 0 {
				of = len(dirs) - 1
			}
			x := openIndex(t, root)
			update(t, x, len(dirs))
			p, err := x.Past(t.Context(), dirs[of])
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.good < 0 && p.Good != nil:
				t.Errorf("held against %v", p.Good)
			case tt.good >= 0 && (p.Good == nil || p.Good.Run != dirs[tt.good]):
				t.Errorf("held against %v, want the one of night %d", p.Good, tt.good)
			}
			if !strings.Contains(p.Note, tt.note) || tt.note == "" {
				t.Errorf("note %q, want %q", p.Note, tt.note)
			}
			if diff := cmp.Diff(tt.want, changes(p.Figures)); diff != "" || p.Same != tt.same {
				t.Errorf("%d are the same, want %d; (-want +got):\n%s", p.Same, tt.same, diff)
			}
			var lengths []int
			for _, s := range p.Series {
				lengths = append(lengths, len(s.Nights))
				if s.Nights[len(s.Nights)-1].Run != dirs[of] {
					t.Errorf("%s of %s ends with %s", s.Metric, s.Of, s.Nights[len(s.Nights)-1].Run)
				}
			}
			if diff := cmp.Diff(tt.series, lengths); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
			if len(tt.want) > 0 && len(p.Series) > 0 && !strings.HasPrefix(tt.want[0], "gone") {
				if s := p.Series[0]; s.Metric != p.Figures[0].Metric || s.Of != p.Figures[0].Of {
					t.Errorf("the first that is shown is %s of %s, not what changed", s.Metric, s.Of)
				}
			}
		})
	}
}

// TestPastMarks: a series has the median and the range of each night, and where it changed.
func TestPastMarks(t *testing.T) {
	root := t.TempDir()
	last := ""
	for n := range 24 {
		v := 100 + 0.1*float64(n*7%5-2)
		if n >= 12 {
			v -= 10
		}
		last = resultstest.Save(t, root, record(n, v-0.5, v, v+1))
	}
	x := openIndex(t, root)
	update(t, x, 24)
	p, err := x.Past(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.Series, func(s report.PastSeries) bool { return s.Metric == "goodput" })
	if i < 0 {
		t.Fatalf("no goodput in %v", p.Series)
	}
	s := p.Series[i]
	if n := s.Nights[23].Figures; slices.Max(n)-results.Median(n) != 1 || results.Median(n)-slices.Min(n) != 0.5 {
		t.Errorf("the last night has %v", n)
	}
	if len(s.Changes) != 1 || s.Changes[0].Night != 12 || s.Changes[0].Shift > -0.09 || s.Changes[0].Shift < -0.11 {
		t.Errorf("changes %+v, want 10 %% less from night 12 on", s.Changes)
	}
	if _, err := x.Past(t.Context(), filepath.Join("no", "such")); err == nil {
		t.Error("a past of nothing")
	}
}

// TestPairChange: what a pair of figures comes to, by its direction and by what is known of noise.
func TestPairChange(t *testing.T) {
	around := func(v float64) []float64 { return []float64{v * 0.999, v, v * 1.001, v} }
	for _, tt := range []struct {
		metric, unit  string
		kind          results.Kind
		before, after []float64
		want          PairChange
	}{
		{"goodput", "bit/s", results.Measured, around(100), around(80), Worse},
		{"goodput", "bit/s", results.Measured, around(100), around(120), Improved},
		{"jct", "s", results.Measured, around(100), around(120), Worse},
		{"jct", "s", results.Measured, around(100), around(80), Improved},
		{"link_rate", "bit/s", results.Measured, around(100), around(120), Changed}, // neither is better
		{"goodput", "bit/s", results.Measured, around(100), around(101), Unchanged},
		{"goodput", "bit/s", results.Measured, []float64{100}, []float64{50}, Undecided}, // one repeat says nothing
		{"goodput", "bit/s", results.Measured, []float64{60, 140, 90, 110}, []float64{70, 150, 95, 105}, Undecided},
		{"goodput", "bit/s", results.Simulated, []float64{100}, []float64{50}, Worse}, // a simulator has no noise
		{"goodput", "bit/s", results.Simulated, []float64{100}, []float64{100}, Unchanged},
		{"sum_errors", "1", results.Measured, []float64{0}, []float64{0}, Unchanged}, // nor has a count
		{"goodput", "bit/s", results.Measured, nil, around(100), New},
		{"goodput", "bit/s", results.Measured, around(100), nil, Gone},
		{"goodput", "bit/s", results.Measured, nil, nil, Undecided},
	} {
		f := PairFigure{Metric: tt.metric, Unit: tt.unit, Kind: tt.kind, Before: tt.before, After: tt.after}
		if err := f.judge(nil, 1, PairOptions{}); err != nil {
			t.Fatal(err)
		}
		if f.Change != tt.want {
			t.Errorf("%s, %s: %v to %v is %s, want %s (%+v)", tt.metric, tt.kind, tt.before, tt.after, f.Change, tt.want, f.Verdict)
		}
		if (f.Needs > 0) != (f.Change == Undecided && len(tt.before) > 0) {
			t.Errorf("%s of %v to %v needs %d repeats", f.Change, tt.before, tt.after, f.Needs)
		}
	}
}
