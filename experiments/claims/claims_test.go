package claims_test

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/inabench/inabench/experiments/claims"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/results"
)

// TestLedgers: what shows a claim ships, and has the row or the expectation that the ledger names.
func TestLedgers(t *testing.T) {
	records := map[string]*results.Record{} // as they are before anything has run
	for _, p := range claims.Papers() {
		if len(p.Claims) == 0 {
			t.Errorf("%s claims nothing", p.Name)
		}
		for i := range p.Claims {
			c := &p.Claims[i]
			if n := utf8.RuneCountInString(c.Says); n > 240 || strings.Contains(c.Says, "\n") {
				t.Errorf("%s %s: %d characters", p.Name, c.ID, n)
			}
			s := c.Shown
			if s == nil {
				continue
			}
			rec, ok := records[s.Experiment]
			if !ok {
				spec, err := kinds.Load(filepath.Join("..", s.Experiment))
				if err != nil {
					t.Fatal(err)
				}
				rec = &results.Record{Comparison: spec.Comparison(), Published: spec.PublishedValues(), Expect: spec.Expectations()}
				rec.Reproduced = rec.Reproduce()
				records[s.Experiment] = rec
			}
			switch {
			case s.Figure != "" && len(s.Rows(rec)) == 0:
				t.Errorf("%s %s: no row of %s in %s is about %q against %q at %q", p.Name, c.ID, s.Figure, s.Experiment, s.Metric, s.Against, s.Point)
			case s.Expect != "" && !slices.ContainsFunc(rec.Expect, func(e results.Expect) bool { return e.Name == s.Expect }):
				t.Errorf("%s %s: %s expects no %q", p.Name, c.ID, s.Experiment, s.Expect)
			}
		}
	}
}

const ledger = `version = 1
paper = "p"
title = "A paper"

[[claim]]
id = "fig1"
where = "Figure 1"
says = "A is faster than B"
kind = "comparison"
change = ["-45%", "-13%"]
shown = {experiment = "e.toml", figure = "Figure 1", metric = "avg_jct"}

[[claim]]
id = "fig2"
where = "Figure 2"
says = "A is as fast as the model"
kind = "order"
shown = {experiment = "e.toml", expect = "goodput"}

[[claim]]
id = "fig3"
where = "Figure 3"
says = "A grows"
kind = "trend"
shown = {experiment = "e.toml"}

[[claim]]
id = "fig4"
where = "Figure 4"
says = "A learns"
kind = "value"
value = "0.9"
bound = "up-to"
needs = "GPUs"

[[claim]]
id = "fig5"
where = "Figure 5"
says = "A is fair"
kind = "order"
missing = "measure fairness"
`

// shipped is the experiment of the ledger.
const shipped = `version = 1
inventory = "rack.toml"
catalogue = "models.toml"
quick = ["trace.jobs=9", "sweep.0.values=[1]"]
[trace]
jobs = 90
`

func ships(name string) *results.Record {
	if name != "e.toml" {
		return nil
	}
	return &results.Record{Experiment: results.File{Text: shipped}}
}

// TestSettings: a claim is told by runs of the experiment as it ships, whole, and by no others.
func TestSettings(t *testing.T) {
	p, err := claims.Parse("p.toml", []byte(ledger))
	if err != nil {
		t.Fatal(err)
	}
	rack := results.File{Text: "a rack"}
	of := func(string) *results.Record {
		return &results.Record{Experiment: results.File{Text: shipped}, Inventory: rack, Files: map[string]string{"models.toml": "abc"}}
	}
	for _, c := range []struct {
		name   string
		change func(*results.Record)
		want   results.Reproduced // of the figure, and of the expectation
		expect results.Reproduced // of the latter, where it is another
		why    string
	}{
		{name: "as it ships", want: results.ReproducedYes},
		{name: "elsewhere, with a comment, and another title", change: func(r *results.Record) {
			r.Experiment.Text, r.Files = "# mine\ntitle = 'A'\n"+shipped, map[string]string{"/tmp/models.toml": "abc"}
		}, want: results.ReproducedYes},
		{name: "more repeats", change: func(r *results.Record) { r.Overrides = []string{"measure.repeats=20"} }, want: results.ReproducedYes},
		{name: "the small version", change: func(r *results.Record) { r.Overrides = []string{"trace.jobs=9"} }, want: results.ReproducedYes},
		{name: "the small version, with fewer values", change: func(r *results.Record) {
			r.Overrides, r.Narrowed = []string{"trace.jobs=9", "sweep.0.values=[1]"}, []string{"trace.load"}
		}, want: results.ReproducedYes, expect: results.ReproducedUndecided, why: "all values of trace.load"},
		{name: "a swept key is set", change: func(r *results.Record) {
			r.Overrides, r.Narrowed = []string{"trace.load=2"}, []string{"trace.load"}
		}, want: results.ReproducedYes, expect: results.ReproducedUndecided, why: "all values of trace.load"},
		{name: "another setting", change: func(r *results.Record) { r.Overrides = []string{"trace.jobs=5"} }, want: claims.NotRun, why: "--set trace.jobs=5"},
		{name: "another setting after the small version", change: func(r *results.Record) { r.Overrides = []string{"trace.jobs=9", "trace.jobs=5"} }, want: claims.NotRun, why: "--set trace.jobs=5"},
		{name: "another tolerance", change: func(r *results.Record) { r.Overrides = []string{"expect.0.tolerance='50%'"} }, want: claims.NotRun, why: "--set expect.0.tolerance"},
		{name: "another file of that name", change: func(r *results.Record) { r.Experiment.Text = "version = 1" }, want: claims.NotRun, why: "file is not the one that ships"},
		{name: "another rack", change: func(r *results.Record) { r.Inventory.Text = "another" }, want: claims.NotRun, why: "inventory is not"},
		{name: "other models", change: func(r *results.Record) { r.Files["models.toml"] = "def" }, want: claims.NotRun, why: "a file that the experiment names"},
		{name: "cut off", change: func(r *results.Record) { r.Points = r.Points[:1] }, want: results.ReproducedUndecided, why: "cut off with 1 of 2 points"},
		{name: "a point broke", change: func(r *results.Record) { r.Points[1].Error = "no host" }, want: results.ReproducedUndecided, why: "ended early: no host"},
	} {
		rec := of("")
		rec.ID, rec.Driver, rec.Planned, rec.Points = "01", "sim", 2, make([]results.Point, 2)
		rec.Reproduced = []results.Reproduction{{Figure: "Figure 1", Metric: "avg_jct", Word: results.ReproducedYes}}
		rec.Expect = []results.Expect{{Name: "goodput"}}
		rec.Checks = []results.Check{{Expect: "goodput", Outcome: results.Pass}}
		if c.change != nil {
			c.change(rec)
		}
		got := p.Judge(func(string) *results.Record { return rec }, of)
		want := []results.Reproduced{c.want, cmp.Or(c.expect, c.want)}
		for i, w := range want {
			if j := got[i]; j.Word != w || w != results.ReproducedYes && !strings.Contains(j.Why, c.why) {
				t.Errorf("%s, %s: %q %q, want %q %q", c.name, j.ID, j.Word, j.Why, w, c.why)
			}
		}
	}
	got := p.Judge(func(string) *results.Record { return &results.Record{ID: "01"} }, ships)
	if j := got[0]; j.Word != claims.NotRun || j.Run != "" || !strings.Contains(j.Why, "run 01 is of another setting") {
		t.Errorf("%+v", j)
	}
}

// TestJudge: a claim comes to the worst of the rows that are about it, and to what is said where there are none.
func TestJudge(t *testing.T) {
	p, err := claims.Parse("p.toml", []byte(ledger))
	if err != nil {
		t.Fatal(err)
	}
	row := func(figure, metric string, word results.Reproduced) results.Reproduction {
		return results.Reproduction{Figure: figure, Metric: metric, Word: word, Why: string(word)}
	}
	for _, tt := range []struct {
		name string
		rec  *results.Record
		want []results.Reproduced // of the first three
	}{
		{"no run", nil, []results.Reproduced{claims.NotRun, claims.NotRun, claims.NotRun}},
		{"a run without rows", &results.Record{}, []results.Reproduced{claims.NotRun, claims.NotRun, claims.NotHeld}},
		{"all is as it is printed", &results.Record{
			Reproduced: []results.Reproduction{row("Figure 1", "avg_jct", results.ReproducedYes), row("Figure 2", "avg_jct", results.ReproducedNo), row("Figure 1", "de", results.ReproducedNo)},
			Checks:     []results.Check{{Expect: "goodput", Outcome: results.Pass}, {Expect: "share", Outcome: results.Fail}},
		}, []results.Reproduced{results.ReproducedYes, results.ReproducedYes, claims.NotHeld}},
		{"one row is not", &results.Record{
			Reproduced: []results.Reproduction{row("Figure 1", "avg_jct", results.ReproducedOrder), row("Figure 1", "avg_jct", results.ReproducedYes)},
			Checks:     []results.Check{{Expect: "goodput", Outcome: results.Pass}, {Expect: "goodput", Outcome: results.Fail}},
		}, []results.Reproduced{results.ReproducedOrder, results.ReproducedNo, claims.NotHeld}},
		{"undecided", &results.Record{
			Reproduced: []results.Reproduction{row("Figure 1", "avg_jct", results.ReproducedUndecided)},
			Checks:     []results.Check{{Expect: "goodput", Outcome: results.Inconclusive}, {Expect: "goodput", Outcome: results.Pass}},
		}, []results.Reproduced{results.ReproducedUndecided, results.ReproducedUndecided, claims.NotHeld}},
	} {
		if tt.rec != nil {
			tt.rec.Experiment.Text = shipped
		}
		got := p.Judge(func(string) *results.Record { return tt.rec }, ships)
		var words []results.Reproduced
		for _, j := range got {
			words = append(words, j.Word)
		}
		if want := append(tt.want, claims.Cannot, claims.Missing); !slices.Equal(words, want) {
			t.Errorf("%s: %q, want %q", tt.name, words, want)
		}
	}
	if got := p.Claims[0].Printed() + "; " + p.Claims[3].Printed(); got != "-45% to -13%; up to 0.9" {
		t.Errorf("printed: %s", got)
	}
}

// TestParse: every problem of a ledger is told with its place.
func TestParse(t *testing.T) {
	bad := strings.Replace(ledger, `id = "fig2"`, `id = "fig1"`, 1)
	bad = strings.Replace(bad, `needs = "GPUs"`, ``, 1)
	bad = strings.Replace(bad, `kind = "trend"`, `kind = "guess"`, 1)
	_, err := claims.Parse("p.toml", []byte(bad))
	for _, want := range []string{`p.toml:14:6: another claim is "fig1"`, "claim fig4 says neither what shows it", `"guess"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}
