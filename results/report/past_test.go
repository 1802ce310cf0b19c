package report

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/resultstest"
	"github.com/inabench/inabench/results/trend"
)

// past is what is known before a run of waterfill: 40 nights, of which one link has been slower for
// the last 5, and the last good run 6 nights ago.
func past() *Past {
	p := &Past{
		Good: &PastRun{Run: "2026-11-14T02-00-00Z-01GOOD", Started: time.Date(2026, 11, 14, 2, 0, 0, 0, time.UTC), Tool: "v0.0.9"},
		Note: "Judged by the noise of 38 other runs of this setting.", Same: 81,
		Figures: []PastFigure{
			{Change: "worse", Metric: "goodput", Of: "C", Unit: "bit/s", Phase: 2, Before: 30.4e6, After: 28.1e6, Shift: -0.076, Lo: -0.094, Hi: -0.057},
			{Change: "undecided", Metric: "goodput", Of: "B", Unit: "bit/s", Phase: 1, Before: 45.1e6, After: 44.2e6, Shift: -0.02, Lo: -0.06, Hi: 0.021},
			{Change: "changed", Metric: "link_rate", Of: "tor1->spine1", Unit: "bit/s", Phase: 2, Before: 125e6, After: 108.6e6, Shift: -0.131, Lo: -0.15, Hi: -0.11},
			{Change: "better", Metric: "goodput", Of: "A", Unit: "bit/s", Before: 88e6, After: 91e6, Shift: 0.034, Lo: 0.02, Hi: 0.05},
			{Change: "new", Metric: "rtt", Of: "A", Unit: "s", After: 0.05},
			{Change: "gone", Metric: "jain", Of: "A,B", Unit: "1", Before: 0.999},
		},
	}
	for k, name := range []string{"C", "A"} {
		s := PastSeries{Metric: "goodput", Of: name, Unit: "bit/s", Phase: 2 - 2*k}
		for i := range 41 {
			v := 30.4e6 * float64(1+2*k) * (1 + 0.006*math.Sin(float64(i)*2.4))
			if k == 0 && i >= 36 {
				v *= 0.925
			}
			start := time.Date(2026, 10, 11, 2, 0, 0, 0, time.UTC).AddDate(0, 0, i)
			s.Nights = append(s.Nights, PastNight{PastRun{fmt.Sprintf("run-%d", i), start, "v0.1.0"}, []float64{v * 0.995, v, v * 1.004}})
		}
		if k == 0 {
			s.Changes = []trend.Change{{Night: 36, Found: 36, Shift: -0.075}}
		}
		p.Series = append(p.Series, s)
	}
	return p
}

// holdSamples are the readings of how long aggregators were held, of two jobs.
func holdSamples() (out []results.Sample) {
	var a, b float64
	for i := range 301 {
		t := float64(i) / 10
		out = append(out, results.Sample{T: t, Source: "switch tor1", Metric: "job_hold_seconds", Of: "A@tor1", Value: a, Unit: "s"},
			results.Sample{T: t, Source: "switch tor1", Metric: "job_hold_seconds", Of: "B@tor1", Value: b, Unit: "s"})
		if t > 6 {
			b += 0.1 * (40 + 6*math.Sin(t))
		}
		a += 0.1 * (64 + 3*math.Sin(3*t))
	}
	return out
}

func reportOf(t *testing.T, rec *results.Record, samples []results.Sample, past *Past) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteReport(&b, rec, samples, Beside{Past: past}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportPast(t *testing.T) {
	wf, samples := resultstest.Waterfill()
	page := reportOf(t, wf, append(samples, holdSamples()...), past())
	for i, s := range resultstest.Svgs(page) {
		resultstest.WellFormed(t, fmt.Sprintf("drawing %d", i), s)
	}
	// Verdict, what changed, plots: in this order.
	at := -1
	for _, part := range []string{`class="verdict fail"`, `id="since"`, `id="h-plots"`, `id="topo"`, `id="occupancy-0"`, `id="time-0"`, `id="history-0"`, `id="table-checks"`} {
		i := strings.Index(page, part)
		if i <= at {
			t.Errorf("%s is at %d, what stands before it at %d", part, i, at)
		}
		at = i
	}
	if n := strings.Count(page, `<tr class="fail" data-change="worse" data-metric="goodput" data-of="C"`); n != 1 {
		t.Errorf("what got worse is there %d times", n)
	}
	// What is undecided is not in the way of what is not.
	open := strings.Index(page, `data-change="undecided"`)
	if before := strings.LastIndex(page[:max(open, 0)], "<details>"); before < strings.Index(page, `data-change="better"`) || !strings.Contains(page, "Of 1 figures it is") {
		t.Error("what is undecided is not folded away, after what is not")
	}
	for want, times := range map[string]int{"<circle": 41, `class="mark c0 hollow"`: 40, ">filled: this run<": 1, `class="one step-line"`: 1, ">-7.5 %<": 1} {
		if n := strings.Count(past().Series[0].SVG("history"), want); n != times {
			t.Errorf("%q is in the history %d times, want %d", want, n, times)
		}
	}

	p := past()
	p.Note, p.Good.Run, p.Series[0].Of, p.Figures[0].Of, p.Figures[1].Change = resultstest.Evil, resultstest.Evil, resultstest.Evil, resultstest.Evil, resultstest.Evil
	page = reportOf(t, resultstest.Hostile(), resultstest.HostileSamples(), p)
	if strings.Count(page, "<script") != 1 || strings.Contains(page, "<svg onload") {
		t.Error("a name became markup")
	}
	page = reportOf(t, wf, nil, &Past{Note: "No run of this experiment passed before in this setting."})
	if !strings.Contains(page, "No good run before this one") {
		t.Error("a run without a past does not say so")
	}
}

// TestReportFidelity: what the record says of models, and what package fidelity has to show.
func TestReportFidelity(t *testing.T) {
	wf, _ := resultstest.Waterfill()
	wf.Fidelity = []results.Figure{{Metric: "fidelity", Of: resultstest.Evil, Kind: results.Measured, Unit: "1", Value: 0.034, Lo: 0.018, Hi: 0.05, N: 24}}
	page := reportOf(t, wf, nil, nil)
	if !strings.Contains(page, `data-k="0.034" data-lo="0.018" data-hi="0.05">3.4 %</td>`) || strings.Count(page, "<script") != 1 {
		t.Error("the page lacks the model's median error, or has its name as markup")
	}
	var b bytes.Buffer
	if err := WriteReport(&b, wf, nil, Beside{Fidelity: "<p>of package fidelity</p>"}); err != nil || !strings.Contains(b.String(), "<p>of package fidelity</p>") {
		t.Errorf("%v; what is beside the record is missing", err)
	}
}

// TestOccupancy: what is drawn is the rate at which time is held, to the end of each job.
func TestOccupancy(t *testing.T) {
	rec := &results.Record{}
	plots := new(sheet).drawOccupancy(rec, holdSamples())
	if len(plots) != 1 || plots[0].Title != "Aggregators held at tor1" {
		t.Fatalf("%d plots", len(plots))
	}
	for _, row := range plots[0].CSV[1:] {
		var at, n float64
		fmt.Sscan(row[2], &at)
		fmt.Sscan(row[3], &n)
		want := 64 + 3*math.Sin(3*(at-0.1))
		if row[1] == "B" {
			if want = 0; at > 6.15 {
				want = 40 + 6*math.Sin(at-0.1)
			} else if at > 5.95 {
				continue // it begins
			}
		}
		if math.Abs(n-want) > 1e-6*(1+want) {
			t.Errorf("at %g s job %s held %g, want %g", at, row[1], n, want)
		}
	}
}

// TestReportNumbers: numbers in attributes are exactly those of the record.
func TestReportNumbers(t *testing.T) {
	wf, samples := resultstest.Waterfill()
	page := htmlOf(t, wf, samples)
	for _, c := range wf.Checks {
		row := regexp.MustCompile(fmt.Sprintf(`<tr class="[a-z]+" data-check="%s" data-point="" data-index="0" data-phase="%d" data-of="%s"[^>]*>.*?</tr>`,
			regexp.QuoteMeta(c.Expect), c.Phase+1, regexp.QuoteMeta(strings.ReplaceAll(c.Of, ">", "&gt;")))).FindString(page)
		for _, v := range []float64{c.Measured, c.Lo, c.Hi} {
			if !strings.Contains(row, `="`+human.Exact(v)+`"`) && !strings.Contains(row, `="`+strings.ReplaceAll(human.Exact(v), "+", "&#43;")+`"`) {
				t.Errorf("row of %s lacks %s: %s", c.Title(), human.Exact(v), row)
			}
		}
		if !strings.Contains(row, `data-outcome="`+string(c.Outcome)+`"`) || !strings.Contains(row, `data-code="`+c.FailureCode()+`"`) {
			t.Errorf("row of %s: %s", c.Title(), row)
		}
	}
}

// jobTrees are those of three jobs of waterfill.
func jobTrees() []results.Tree {
	return []results.Tree{
		{Job: "A", Hops: []results.TreeHop{{From: "h1", To: "tor1"}, {From: "h2", To: "tor1"}, {From: "tor1", To: "spine1"}, {From: "spine1", To: "tor2"}, {From: "h5", To: "tor2"}, {From: "tor2", To: "h8"}}, Adds: []string{"tor1", "tor2"}},
		{Job: "B", Hops: []results.TreeHop{{From: "h2", To: "tor1"}, {From: "h3", To: "tor1"}, {From: "tor1", To: "spine1"}, {From: "spine1", To: "tor2"}, {From: "h6", To: "tor2"}, {From: "tor2", To: "h8"}}, Adds: []string{"tor1"}},
		{Job: resultstest.Evil, Hops: []results.TreeHop{{From: "h7", To: "tor2"}, {From: "tor2", To: "h8"}}},
	}
}

func TestReportTrees(t *testing.T) {
	rec, _ := resultstest.Waterfill()
	if page := htmlOf(t, rec, nil); strings.Contains(page, "h-trees") {
		t.Error("trees of a run without any")
	}
	rec.Points[0].Trees = jobTrees()
	page := htmlOf(t, rec, nil)
	i := slices.IndexFunc(resultstest.Svgs(page), func(s string) bool { return strings.Contains(s, `id="trees"`) })
	if i < 0 {
		t.Fatal("no trees")
	}
	drawing := resultstest.Svgs(page)[i]
	resultstest.WellFormed(t, "trees", drawing)
	// One line for each edge, and one in the legend for each job.
	if n, want := strings.Count(drawing, `class="tree c`), 6+6+2+3; n != want {
		t.Errorf("%d lines, want %d", n, want)
	}
	if n := strings.Count(drawing, `class="adds c`); n != 3 {
		t.Errorf("%d switches are said to add up, want 3", n)
	}
}
