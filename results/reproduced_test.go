package results_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestReproduced: order, magnitude and interval of what papers print, by effects with intervals.
func TestReproduced(t *testing.T) {
	e := func(v, half float64) results.Effect { return results.Effect{v, v - half, v + half, true} }
	once := func(v float64) results.Effect { return results.Effect{v, v, v, false} }
	type effects = []results.Effect
	for _, c := range []struct {
		name   string
		lo, hi float64
		bound  string
		all    effects
		want   results.Reproduced
		order  string
		size   string
		meets  string
		ratio  float64
	}{
		// A single figure is a mean.
		{"the same", -.31, -.31, "", effects{e(-.31, .02)}, results.ReproducedYes, "same", "same", "yes", 1},
		{"a little less, intervals apart", -.31, -.31, "", effects{e(-.28, .01)}, results.ReproducedYes, "same", "same", "no", .903},
		{"much less", -.31, -.31, "", effects{e(-.034, .01)}, results.ReproducedOrder, "same", "differs", "no", .11},
		{"much more", -.31, -.31, "", effects{e(-.6, .01)}, results.ReproducedOrder, "same", "differs", "no", 1.935},
		{"the other way round", -.31, -.31, "", effects{e(.1, .02)}, results.ReproducedNo, "reversed", "differs", "no", -.323},
		{"one of two the other way round", -.31, -.31, "", effects{e(-.7, .02), e(.08, .02)}, results.ReproducedNo, "reversed", "same", "yes", 1},
		{"an interval that touches 0", -.31, -.31, "", effects{{-.3, -.6, 0, true}}, results.ReproducedUndecided, "undecided", "undecided", "yes", .968},
		{"an interval that just misses 0", -.31, -.31, "", effects{{-.3, -.59, -.01, true}}, results.ReproducedUndecided, "same", "undecided", "yes", .968},
		{"an interval that touches the paper's", -.31, -.31, "", effects{{-.29, -.305, -.275, true}}, results.ReproducedYes, "same", "same", "yes", .935},
		{"as wide as the factor", -.40, -.40, "", effects{e(-.4, .1)}, results.ReproducedYes, "same", "same", "yes", 1},
		{"wider", -.40, -.40, "", effects{e(-.4, .12)}, results.ReproducedUndecided, "same", "undecided", "yes", 1},
		{"one repeat has no interval", -.31, -.31, "", effects{once(-.31)}, results.ReproducedUndecided, "undecided", "undecided", "", 1},
		{"one of them has none", -.31, -.31, "", effects{e(-.31, .01), once(-.31)}, results.ReproducedUndecided, "undecided", "undecided", "", 1},
		{"more instead of less", .17, .17, "", effects{e(.15, .01)}, results.ReproducedYes, "same", "same", "no", .882},
		{"rounded to whole per cents", .17, .17, "", effects{e(.164, .001)}, results.ReproducedYes, "same", "same", "yes", .965},
		{"within the factor of what is rounded so", .08, .08, "", effects{e(.061, .001)}, results.ReproducedYes, "same", "same", "no", .7625},
		{"beyond it by less than rounding", .078, .078, "", effects{e(.058, .001)}, results.ReproducedOrder, "same", "differs", "no", .744},
		{"beyond it, and the interval is not", .078, .078, "", effects{e(.058, .013)}, results.ReproducedUndecided, "same", "undecided", "no", .744},
		{"more, beyond it by less than rounding", .078, .078, "", effects{e(.1, .001)}, results.ReproducedOrder, "same", "differs", "no", 1.282},
		{"near what is printed with a decimal", .078, .078, "", effects{e(.074, .001)}, results.ReproducedYes, "same", "same", "no", .949},
		{"the paper has none ahead", 0, 0, "", effects{e(.001, .002)}, results.ReproducedYes, "same", "same", "yes", 0},
		{"the paper has none ahead, and here one is", 0, 0, "", effects{e(.447, 0)}, results.ReproducedNo, "reversed", "differs", "no", 0},
		{"the paper has none ahead, and here one may be", 0, 0, "", effects{e(.01, .02)}, results.ReproducedUndecided, "undecided", "undecided", "yes", 0},
		{"the paper has either ahead", -.05, .2, "", effects{e(-.05, .01), e(.19, .01)}, results.ReproducedYes, "same", "same", "yes", .95},
		{"the paper has either ahead, and here one is further", -.05, .2, "", effects{e(-.3, .01), e(.19, .01)}, results.ReproducedNo, "reversed", "differs", "yes", .95},
		{"at least nothing, and more", 0, 0, results.AtLeast, effects{e(.2, .01)}, results.ReproducedYes, "same", "same", "yes", 0},
		{"at least nothing, and that", 0, 0, results.AtLeast, effects{e(0, .001)}, results.ReproducedYes, "same", "same", "yes", 0},

		// "Up to" is the largest of several.
		{"up to 78 %, and 19 % here", -.78, 0, "", effects{e(-.19, .01), e(-.03, .01)}, results.ReproducedOrder, "same", "differs", "no", .244},
		{"up to, and about that", -.78, 0, "", effects{e(-.7, .02), e(-.1, .02)}, results.ReproducedYes, "same", "same", "no", .897},
		{"up to, said in words", -.78, -.78, results.UpTo, effects{e(-.78, .02), e(-.01, .002)}, results.ReproducedYes, "same", "same", "yes", 1},
		{"up to, and far beyond", .3, .3, results.UpTo, effects{e(.9, .02)}, results.ReproducedOrder, "same", "differs", "no", 3},
		{"up to, and one is surely behind", -.78, 0, "", effects{e(-.78, .02), e(.1, .02)}, results.ReproducedNo, "reversed", "same", "yes", 1},
		{"up to, and one is behind by rounding", -.78, 0, "", effects{e(-.78, .02), e(.004, .001)}, results.ReproducedYes, "same", "same", "yes", 1},

		// "At least" is the smallest of several, and more is as well.
		{"at least, and more", .25, .25, results.AtLeast, effects{e(.6, .02), e(.5, .02)}, results.ReproducedYes, "same", "same", "yes", 2},
		{"at least, and that", .25, .75, results.AtLeast, effects{e(.7, .02), e(.25, 0)}, results.ReproducedYes, "same", "same", "yes", 1},
		{"at least, and a little less", .25, .25, results.AtLeast, effects{e(.6, .02), e(.22, .01)}, results.ReproducedYes, "same", "same", "no", .88},
		{"at least, and much less", .25, .25, results.AtLeast, effects{e(.6, .02), e(.05, .01)}, results.ReproducedOrder, "same", "differs", "no", .2},

		{"at least, and less than that with its decimal", .012, .012, results.AtLeast, effects{e(.008, .0005)}, results.ReproducedOrder, "same", "differs", "no", .667},

		// A range is both of its ends.
		{"a range", -.45, -.13, "", effects{e(-.44, .01), e(-.14, .01)}, results.ReproducedYes, "same", "same", "yes", .978},
		{"inside a range, but not as wide", -.45, -.13, "", effects{e(-.22, .01), e(-.2, .01)}, results.ReproducedOrder, "same", "differs", "yes", .489},
		{"beyond a range", -.45, -.13, "", effects{e(-.9, .01), e(-.8, .01)}, results.ReproducedOrder, "same", "differs", "no", 2},
		{"a range, one repeat", -.45, -.13, "", effects{once(-.44), once(-.14)}, results.ReproducedUndecided, "undecided", "undecided", "", .978},
	} {
		var r results.Reproduction
		r.Judge(c.lo, c.hi, results.Published{Lo: c.lo, Hi: c.hi, Bound: c.bound}.BoundText(), c.all)
		if r.Word != c.want || r.Order != c.order || r.Magnitude != c.size || r.Overlap != c.meets || r.Ratio < c.ratio-.001 || r.Ratio > c.ratio+.001 {
			t.Errorf("%s: %q order %s, magnitude %.3f %s, overlap %q (here %+v)", c.name, r.Word, r.Order, r.Ratio, r.Magnitude, r.Overlap, *r.Here)
		}
		if (r.Word == results.ReproducedUndecided) != (r.Why != "") {
			t.Errorf("%s: %s because of %q", c.name, r.Word, r.Why)
		}
	}
}

// TestReproduce finds what a statement is about, and says where it is not there.
func TestReproduce(t *testing.T) {
	var points []results.Point
	for repeat := range 3 {
		load := float64(repeat + 1)
		for policy, jct := range map[string]float64{"netpack": 100, "tetris": 200, "netpack+": 90} {
			points = append(points, resultstest.Trial("", policy, repeat, jct*load))
		}
		sick := resultstest.Trial("", "comb", repeat, 300)
		sick.Health = []results.Trouble{{Where: "host h1", What: "busy", Fatal: true}}
		points = append(points, sick)
	}
	rec := resultstest.Comparison(points...)
	rec.Comparison.Metrics = []string{"avg_jct"}
	rec.Comparison.Published = []results.Published{
		{Metric: "avg_jct", Against: "tetris", Lo: -.5, Hi: -.5, Text: "half as long, Figure 7b"},
		{Metric: "avg_jct", Among: []string{"tetris"}, Lo: -.9, Hi: 0, Text: "section 6.2", Figure: "Figure 7a"},
		{Metric: "avg_jct", Against: "netpack+", Lo: -.1, Hi: -.1, Text: "Figure 7b"},
		{Metric: "avg_jct", Against: "comb", Lo: -.1, Hi: -.1, Text: "Figure 8"},
		{Metric: "avg_jct", Against: "random", Lo: -.1, Hi: -.1, Text: "Table 2"},
		{Metric: "avg_jct", At: "pat=0", Lo: -.1, Hi: -.1, Text: "Figure 11"},
		{Metric: "de", Lo: .1, Hi: .1, Text: "somewhere"},
	}
	rec.Reproduced = rec.Reproduce()
	want := []struct {
		figure string
		word   results.Reproduced
		why    string
	}{
		{"Figure 7b", results.ReproducedYes, ""}, {"Figure 7a", results.ReproducedOrder, ""}, {"Figure 7b", results.ReproducedNo, ""},
		{"Figure 8", results.ReproducedUndecided, "comb: repeat 1 host h1: busy"}, {"Table 2", results.ReproducedNotRun, "no such points"},
		{"Figure 11", results.ReproducedNotRun, "no such points"}, {"The paper", results.ReproducedNotRun, "no such points"},
	}
	for i, w := range want {
		if r := rec.Reproduced[i]; r.Figure != w.figure || r.Word != w.word || !strings.Contains(r.Why, w.why) {
			t.Errorf("%d: %+v, want %+v", i, r, w)
		}
	}
	forms := formsOf(t, rec)
	_, section, _ := strings.Cut(forms["text"], "\nreproduced?")
	for i, line := range strings.Split(section, "\n") {
		if n := utf8.RuneCountInString(line); n > 80 || i == 0 && n > 80-len("reproduced?") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for form, all := range map[string]string{"text": section, "Markdown": forms["Markdown"], "HTML": forms["HTML"]} {
		for _, want := range []string{"Figure 7b", "50.0 % less", "up to 90 % less", "order only", "not run", "undecided"} {
			if !strings.Contains(all, want) {
				t.Errorf("%s lacks %q:\n%.3000s", form, want, all)
			}
		}
	}
	if data, err := json.Marshal(rec); err != nil || !strings.Contains(string(data), `"reproduced":"order only"`) {
		t.Errorf("run.json: %v %s", err, data)
	}
	// It decides nothing.
	if _, o, _ := results.Judge(nil, points); o != results.NotJudged {
		t.Errorf("outcome %s", o)
	}
}

// TestReproducedOfAll: what is said of all settings is not told by a run in which some came to nothing, or which had fewer.
func TestReproducedOfAll(t *testing.T) {
	for _, c := range []struct {
		name     string
		sick     bool
		at       string
		narrowed []string
		among    []string
		want     results.Reproduced
		why      string
	}{
		{name: "all", want: results.ReproducedYes},
		{name: "one came to nothing", sick: true, want: results.ReproducedUndecided, why: "load=2 netpack: repeat 1 host h1: busy"},
		{name: "another one is meant", sick: true, at: "load=1", want: results.ReproducedYes},
		{name: "fewer loads", narrowed: []string{"load"}, want: results.ReproducedUndecided, why: "all values of load, and this run has some"},
		{name: "fewer loads, and one of these is meant", narrowed: []string{"load"}, at: "load=1", want: results.ReproducedYes},
		{name: "fewer policies", narrowed: []string{"placement.policy"}, at: "load=1", want: results.ReproducedUndecided, why: "all values of placement.policy"},
		{name: "those that the paper had", narrowed: []string{"placement.policy"}, at: "load=1", among: []string{"tetris"}, want: results.ReproducedYes},
		{name: "some of those that the paper had", narrowed: []string{"placement.policy"}, at: "load=1", among: []string{"tetris", "comb"}, want: results.ReproducedUndecided, why: "has no comb"},
		{name: "what is meant came to nothing", sick: true, at: "load=2", want: results.ReproducedUndecided, why: "host h1: busy"},
	} {
		var points []results.Point
		for _, load := range []string{"load=1", "load=2"} {
			for repeat := range 3 {
				for policy, jct := range map[string]float64{"netpack": 100, "tetris": 200} {
					p := resultstest.Trial(load, policy, repeat, jct*float64(repeat+1))
					if c.sick && load == "load=2" {
						p.Health = []results.Trouble{{Where: "host h1", What: "busy", Fatal: true}}
					}
					points = append(points, p)
				}
			}
		}
		rec := resultstest.Comparison(points...)
		rec.Comparison.Metrics, rec.Narrowed = []string{"avg_jct"}, c.narrowed
		rec.Comparison.Published = []results.Published{{Metric: "avg_jct", At: c.at, Among: c.among, Lo: -.5, Hi: -.5, Text: "half as long"}}
		if r := rec.Reproduce()[0]; r.Word != c.want || !strings.Contains(r.Why, c.why) {
			t.Errorf("%s: %+v, want %s %q", c.name, r, c.want, c.why)
		}
	}
}

// TestReproducedValue: a single figure that a paper prints, beside the mean of the points that it is
// of. It says nothing of who is ahead.
func TestReproducedValue(t *testing.T) {
	of := func(label string, values ...float64) (points []results.Point) {
		for i, v := range values {
			points = append(points, results.Point{Repeat: i, Labels: []string{label}, Phases: []results.Phase{{Figures: []results.Figure{
				{Metric: "ina_score", Of: results.Cluster, Kind: results.Simulated, Value: v, Lo: v, Hi: v, N: 1, Unit: "1"},
				{Metric: "ina_score", Of: results.Cluster, Kind: results.Predicted, Value: 9, Lo: 9, Hi: 9, N: 1, Unit: "1"},
			}}}})
		}
		return points
	}
	sick := of("a=1", .9)
	sick[0].Health = []results.Trouble{{Where: "host h1", What: "busy", Fatal: true}}
	for _, c := range []struct {
		name   string
		paper  float64
		points []results.Point
		want   results.Reproduced
		ratio  float64
	}{
		{"the same", .98, of("a=1", .979, .98, .981), results.ReproducedYes, 1},
		{"a twentieth less", .98, of("a=1", .93, .931, .932), results.ReproducedYes, .95},
		{"a third less", .98, of("a=1", .65, .651, .652), results.ReproducedNo, .664},
		{"too wide to tell", .98, of("a=1", .6, 1.3), results.ReproducedUndecided, .969},
		{"one repeat", .98, of("a=1", .98), results.ReproducedUndecided, 1},
		{"another point", .98, of("a=2", .98, .98), results.ReproducedNotRun, 0},
		{"a spoilt point", .98, sick, results.ReproducedUndecided, 0},
		{"none here", .02, of("a=1", 0, 0), results.ReproducedNo, 0},
		{"none in the paper, and none here", 0, of("a=1", 0, 0), results.ReproducedYes, 0},
	} {
		rec := &results.Record{Name: "value", Points: c.points, Published: []results.PublishedValue{{Figure: "Table I", Metric: "ina_score", At: []string{"a=1"}, Value: c.paper}}}
		rec.Reproduced = rec.Reproduce()
		r := rec.Reproduced[0]
		if r.Word != c.want || r.Order != "" || r.Ratio < c.ratio-.001 || r.Ratio > c.ratio+.001 {
			t.Errorf("%s: %+v, want %s, ratio %g", c.name, r, c.want, c.ratio)
		}
		if text := formsOf(t, rec)["text"]; !strings.Contains(text, "Table I  "+string(c.want)) || strings.Contains(text, "order ;") {
			t.Errorf("%s:\n%s", c.name, text)
		}
	}
}
