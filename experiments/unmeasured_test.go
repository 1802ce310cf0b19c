package experiments

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
)

// TestUnmeasured: a job that was in no phase is not as expected, for nobody has looked.
func TestUnmeasured(t *testing.T) {
	for _, c := range []struct {
		name string
		sets []string
		job  string // that leaves the run undecided
	}{
		{"both in phases", nil, ""},
		{"one ends within the warm-up", []string{"job.B.duration=1s"}, "B"},
		{"one ends within the warm-up, of a point that is meant", []string{"job.B.duration=1s", "expect.0.at=['switch.lanes=240']", "expect.1.at=['switch.lanes=240']"}, "B"},
		{"one ends within the warm-up, and others are meant", []string{"job.B.duration=1s", "expect.0.of=A@*", "expect.1.of=A"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := os.ReadFile("quickstart.toml")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "exp.toml")
			if err := os.WriteFile(file, append(text, "\n[[sweep]]\nkey = \"switch.lanes\"\nvalues = [240, 120]\n"...), 0o666); err != nil {
				t.Fatal(err)
			}
			rack, err := filepath.Abs("racks/three-hosts.toml")
			if err != nil {
				t.Fatal(err)
			}
			spec, err := kinds.Load(file, append(c.sets, "inventory="+rack)...)
			if err != nil {
				t.Fatal(err)
			}
			rec, _, err := Run(t.Context(), spec, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]results.Outcome{true: results.Pass, false: results.Inconclusive}[c.job == ""]; rec.Outcome != want {
				t.Errorf("%s, want %s: %q", rec.Outcome, want, rec.Reasons)
			}
			if c.job != "" && !strings.Contains(strings.Join(rec.Reasons, "\n"), "job "+c.job+" was in no phase that was measured") {
				t.Errorf("%q", rec.Reasons)
			}
		})
	}
}

// TestLateStart: jobs have their time after the last event, whenever that was. One that has done its iterations within a
// warm-up is judged by what counts over the whole run, and by nothing else.
func TestLateStart(t *testing.T) {
	const text = `
inventory = "pair.toml"
[[job]]
name = "B"
hosts = ["h1", "h2"]
ps = "h3"
rate = "10Gbit/s"
message = "1MiB"
iterations = 2
start = "16m"
[measure]
interval = "1s"
[[expect]]
metric = "iterations"
value = 2
tolerance = "0"
reason = "as asked"
`
	if rec := simulated(t, pairOn(t, "50us", text)); rec.Outcome != results.Pass {
		t.Errorf("%s: %q", rec.Outcome, rec.Reasons)
	}
	rec := simulated(t, pairOn(t, "50us", text+`
[[expect]]
metric = "goodput"
tolerance = "5%%"
reason = "r"
`))
	if rec.Outcome != results.Inconclusive || !strings.Contains(strings.Join(rec.Reasons, "\n"), "job B was in no phase") {
		t.Errorf("%s: %q", rec.Outcome, rec.Reasons)
	}
}

// TestExpectedAtScale: values and absolute tolerances are a lab's, and an emulation's figures are not.
func TestExpectedAtScale(t *testing.T) {
	spec := pairOn(t, "50us", `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
message = "1MiB"
iterations = 2
[[expect]]
metric = "goodput"
value = "20Gbit/s"
tolerance = "1Gbit/s"
reason = "r"
[[expect]]
metric = "wire_rate"
tolerance = "5%%"
reason = "r"
[[expect]]
metric = "jct"
value = "10ms"
bound = "at-most"
reason = "r"
[[expect]]
metric = "step_rate"
value = 500
tolerance = "10"
reason = "r"
[[expect]]
metric = "share"
value = 0.9
tolerance = "0.03"
reason = "r"
`)
	for _, c := range []struct {
		scale results.Scale
		want  [][2]float64 // value and tolerance
	}{
		{results.Scale{Mode: "none", Factor: 1}, [][2]float64{{20e9, 1e9}, {0, .05}, {.01, 0}, {500, 10}, {.9, .03}}},
		{results.Scale{Mode: "slow-motion", Factor: 1000}, [][2]float64{{20e6, 1e6}, {0, .05}, {10, 0}, {.5, .01}, {.9, .03}}},
		{results.Scale{Mode: "shrunk", Factor: 1000}, [][2]float64{{20e6, 1e6}, {0, .05}, {.01, 0}, {500, 10}, {.9, .03}}},
	} {
		for i, e := range spec.ExpectationsAt(c.scale) {
			if got := [2]float64{e.Value, e.Tolerance}; got != c.want[i] {
				t.Errorf("%v: %s: %v, want %v", c.scale, e.Name, got, c.want[i])
			}
		}
	}
}

// TestSimulatedJCT: what a job may take at most is held against a model too, which is held to itself in nothing.
func TestSimulatedJCT(t *testing.T) {
	text, err := os.ReadFile("autops-timeline.toml")
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]results.Outcome{"1ms": results.Fail, "10h": results.Pass} {
		more := "\n[[expect]]\nmetric = \"jct\"\nvalue = \"" + value + "\"\nbound = \"at-most\"\nreason = \"r\"\n"
		spec, err := kinds.Parse("timeline.toml", append(slices.Clone(text), more...), nil)
		if err != nil {
			t.Fatal(err)
		}
		rec := simulated(t, spec)
		if i := len(rec.Checks) - 1; rec.Outcome != want || rec.Checks[i].Metric != "jct" || rec.Checks[i].Outcome != want {
			t.Errorf("at most %s: %s %q", value, rec.Outcome, rec.Reasons)
		}
	}
}

// TestStarved: a service that lets some jobs wait for ever is not fast because the others are.
func TestStarved(t *testing.T) {
	spec, err := kinds.Load("autops-timeline.toml", "service.aggregators=2", "expect.0.gate=false", "expect.0.event=false")
	if err != nil {
		t.Fatal(err)
	}
	rec := simulated(t, spec)
	if rec.Outcome != results.Inconclusive || !strings.Contains(strings.Join(rec.Reasons, "\n"), "job AlexNet never began") {
		t.Errorf("%s: %q", rec.Outcome, rec.Reasons)
	}
}

// TestRatios: a policy's figures are over what was measured of the reference's, never over what was predicted of it, and
// more than nothing is no ratio.
func TestRatios(t *testing.T) {
	point := func(policy string, jct, queueing float64) results.Point {
		return results.Point{Params: map[string]any{"placement.policy": policy}, Labels: []string{"placement.policy=" + policy}, Phases: []results.Phase{{Figures: []results.Figure{
			study.Exactly("avg_jct", results.Cluster, results.Measured, jct), study.Exactly("queueing", results.Cluster, results.Measured, queueing),
			study.Exactly("avg_jct", results.Cluster, results.Predicted, 10),
		}}}}
	}
	r := &run{rec: &results.Record{Comparison: &results.Comparison{Key: "placement.policy", Reference: "a"}, Points: []results.Point{point("a", 20, 0), point("b", 30, 100), point("c", 10, 0), point("d", 10, 0)}}}
	r.rec.Points[3].Phases[0].Figures = r.rec.Points[3].Phases[0].Figures[1:]
	r.ratios()
	got := map[string]float64{}
	for _, p := range r.rec.Points {
		for _, f := range p.Phases[0].Figures {
			if strings.HasSuffix(f.Metric, metric.Ratio) {
				got[f.Metric+" "+f.Of] = f.Value
			}
		}
	}
	if want := map[string]float64{"avg_jct_ratio b": 1.5, "avg_jct_ratio c": .5}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if m := r.rec.Points[3].Phases[0].Missing; len(m) != 1 || m[0].Metric != "avg_jct_ratio" || m[0].Of != "d" {
		t.Errorf("%+v", m)
	}
	if m := r.rec.Points[1].Phases[0].Missing; len(m) != 1 || m[0].Metric != "queueing_ratio" || m[0].Of != "b" {
		t.Errorf("%+v", m)
	}

	// What was measured of a point that is not sound is no reference.
	r.rec.Points = []results.Point{point("a", 20, 0), point("b", 30, 0)}
	r.rec.Points[0].Health = []results.Trouble{{Where: "host h1", What: "busy", Fatal: true}}
	r.ratios()
	ph := r.rec.Points[1].Phases[0]
	if i := slices.IndexFunc(ph.Missing, func(m results.Missing) bool { return m.Metric == "avg_jct_ratio" }); i < 0 || ph.Missing[i].Of != "b" || ph.Missing[i].Why != "the reference: host h1: busy" {
		t.Errorf("%+v", ph.Missing)
	}
	if slices.ContainsFunc(ph.Figures, func(f results.Figure) bool { return f.Metric == "avg_jct_ratio" }) {
		t.Errorf("%+v", ph.Figures)
	}

	// One that stood still excuses what is over it, and nothing else.
	const stood = "job A stood still"
	twice := func(policy string, index int, jct float64) (out []results.Point) {
		for repeat := range 2 {
			p := point(policy, jct, 0)
			p.Index, p.Repeat = index, repeat
			out = append(out, p)
		}
		return out
	}
	r.rec.Points = append(twice("a", 0, 20), twice("b", 1, 30)...)
	r.rec.Points[0].Phases[0].Stood = stood
	r.rec.Points[1].Phases[0].StoodOf = map[string]string{"avg_jct": stood}
	r.ratios()
	for i, p := range r.rec.Points {
		own := p.Phases[0].Excuse("avg_jct")
		if want := map[int]string{0: stood, 1: stood}[i]; own != want {
			t.Errorf("point %d: avg_jct is excused by %q, want %q", i, own, want)
		}
		if got, want := p.Phases[0].Excuse("avg_jct_ratio"), []string{stood, "", "the reference: " + stood, "the reference: " + stood}[i]; got != want {
			t.Errorf("point %d: avg_jct_ratio is excused by %q, want %q", i, got, want)
		}
	}
	for name, want := range map[string]results.Outcome{"avg_jct": results.Fail, "avg_jct_ratio": results.Inconclusive} {
		e := results.Expect{Name: "e", Metric: name, Predictor: "value", Value: 1, Bound: "at-most", Statistic: "each", Gate: true, Points: []string{"placement.policy=b"}}
		if checks, got, _ := results.Judge([]results.Expect{e}, r.rec.Points); got != want {
			t.Errorf("%s: %s, want %s: %+v", name, got, want, checks)
		}
	}
}
