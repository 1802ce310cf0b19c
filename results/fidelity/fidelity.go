// Package fidelity says how far models are from what was seen: it puts runs of one
// experiment on hardware, on an emulation and in a simulator, and what was predicted of
// them, side by side, figure by figure.
//
// # What is held against what
//
// One run is the reference: what is nearest to reality, which is lab before netns before sim
// (Compare). Every other run is a model of it, and so is every predictor whose figures the runs
// carry. Figures are paired by point of the sweep, phase, metric and subject; repeats of a
// run are combined first (results.Combine), and points that the testbed spoilt are left out.
// All figures are those that they stand for in the lab (results.Scale), so that
// runs of different scales can be compared; that they differ is said.
//
// The error of a pair is (model - reference) / reference: above 0 where the model says more than
// there was. (A check within one run is the other way round, measured against predicted.) Of
// shares, which are parts of 1, it is model - reference. Of a link that carries less than
// a hundredth of the busiest one it is over that one's rate; if both sides say that it is idle,
// it is left out, and counted.
//
// # The figure
//
// A model's fidelity is the median of |error| over all figures of jobs (goodput, step rate,
// JCT); of experiments without any, those of the whole cluster, else of trees, else of links. 0 is
// perfect. From six figures on its 95 % interval is between order statistics, with no
// assumption but that figures are drawn independently, and below that between what the
// intervals of the errors allow. Jobs of one point share links, so they are not quite independent.
//
// What it is not: it says nothing of figures in settings that were not run, nor whether errors
// go one way (the bias) or whether an order of two policies would come out
// right (the correlation), and half of the jobs are further off than it says.
package fidelity

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
)

// Schema is the version of the report.
const Schema = 1

// Metric is what a model's fidelity is called in the history of the reference's runs.
const Metric = "fidelity"

// ErrDiffer is wrapped where runs cannot be compared.
var ErrDiffer = errors.New("runs cannot be compared")

// Report is runs side by side.
type Report struct {
	Schema     int    `json:"schema"` // 1
	Experiment string `json:"experiment"`
	Title      string `json:"title,omitempty"`
	Runs       []Run  `json:"runs"` // the reference first
	// Models are all that were held against the reference: other runs, then predictors.
	Models   []Model  `json:"models"`
	Warnings []string `json:"warnings,omitempty"` // in what runs differ that should not, and what is left out
}

// Run is a run that took part.
type Run struct {
	Name    string       `json:"name"` // its driver, with a number where several have the same
	ID      string       `json:"id"`
	Started time.Time    `json:"started"`
	Driver  string       `json:"driver"`
	Kind    results.Kind `json:"kind"`
	Setting string       `json:"setting"` // in words
	Tool    string       `json:"tool"`
}

// Model is what was held against the reference.
type Model struct {
	Name string       `json:"name"` // of a run, or a predictor
	Kind results.Kind `json:"kind"` // of its figures
	Run  string       `json:"run"`  // ID of the run that its figures are from
	// Fidelity is the median of |error| over the figures of Over, nil where there are none.
	Fidelity *Median  `json:"fidelity,omitempty"`
	Over     Class    `json:"over,omitempty"`
	Groups   []Group  `json:"groups"`            // by class and metric
	Regimes  []Bias   `json:"regimes,omitempty"` // of jobs and trees
	Errors   []Error  `json:"errors"`            // every pair
	Idle     int      `json:"idle,omitempty"`    // links without traffic on either side
	Missing  []string `json:"missing,omitempty"` // what the reference has and the model says nothing of, where it does of others of that metric
}

// Class is what a figure is about.
type Class string

// Classes.
const (
	Job     Class = "job"
	Link    Class = "link" // directed
	Tree    Class = "tree" // a job at a switch
	Cluster Class = "cluster"
)

// classes in the order in which the first with figures is what the fidelity is over.
var classes = []Class{Job, Cluster, Tree, Link}

// Regime is what limits a job, by the bottleneck that was predicted of it.
type Regime string

// Regimes. A link's is Congested where it is the bottleneck of a job, else Unknown; a tree's is
// MemoryBound where its switch is predicted to add up less than all, whatever limits the job.
const (
	Congested    Regime = "congested"     // a link
	MemoryBound  Regime = "memory-bound"  // the aggregators of a switch
	ComputeBound Regime = "compute-bound" // its own pace: computing, a rate limit, its window, or a round trip
	Unknown      Regime = "unknown"       // no prediction says
)

var regimes = []Regime{Congested, MemoryBound, ComputeBound, Unknown}

// regimeOf reads a bottleneck as placement.Prediction and the replay of a trace write it.
func regimeOf(bottleneck string) Regime {
	switch {
	case bottleneck == "":
		return Unknown
	case strings.Contains(bottleneck, "->"), bottleneck == "network":
		return Congested
	case strings.HasSuffix(bottleneck, " aggregators"):
		return MemoryBound
	}
	return ComputeBound // "rate limit", "window", "round trip", "computing", "none"
}

// Interval is an estimate and its 95 % interval, which is empty where there is none.
type Interval struct {
	Value float64 `json:"value"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
}

// Median is a median, and what its interval is from.
type Median struct {
	Interval
	N     int    `json:"n"`     // figures
	Basis string `json:"basis"` // "order statistics", or "intervals of the errors" of few figures
}

// Group is the errors of one metric.
type Group struct {
	Class    Class    `json:"class"`
	Metric   string   `json:"metric"`
	Unit     string   `json:"unit"`
	Relative bool     `json:"relative"` // errors are parts of the reference; else they are in Unit
	N        int      `json:"n"`
	Mean     float64  `json:"mean"` // of |error|, as are the next two
	Median   Median   `json:"median"`
	Max      float64  `json:"max"`
	Worst    string   `json:"worst"` // where Max is
	Bias     Interval `json:"bias"`  // mean of the errors with their sign; Student's t over the figures
	// Pearson's r of the reference and the model, with Fisher's interval; from 4 figures on,
	// and where both vary.
	Pearson *Interval `json:"pearson,omitempty"`
	Line    *Line     `json:"line,omitempty"` // from 3 figures on, where the model varies
}

// Line is the regression of the reference on the model by least squares, as in NetPack's
// Figure 6: reference = Slope · model + Intercept. A perfect model has slope 1 and intercept 0.
// The intervals are Student's t, of residuals that are normal and independent.
type Line struct {
	Slope     Interval `json:"slope"`
	Intercept Interval `json:"intercept"` // in the metric's unit
}

// Bias is what errors of a metric of jobs or trees have in common in one regime.
type Bias struct {
	Regime Regime   `json:"regime"`
	Class  Class    `json:"class"`
	Metric string   `json:"metric"`
	N      int      `json:"n"`
	Bias   Interval `json:"bias"`   // mean of the errors
	Median float64  `json:"median"` // of |error|
}

// Error is one pair.
type Error struct {
	Point     string   `json:"point,omitempty"` // its labels
	Phase     int      `json:"phase"`           // of the point, from 0
	Class     Class    `json:"class"`
	Metric    string   `json:"metric"`
	Of        string   `json:"of"`
	Unit      string   `json:"unit"`
	Regime    Regime   `json:"regime"`
	Reference Interval `json:"reference"` // in the lab's units, as is Model
	Model     Interval `json:"model"`
	Repeats   int      `json:"repeats"` // of the reference
	Relative  bool     `json:"relative"`
	Error     Interval `json:"error"`
}

// Name says which figure it is: "A, phase 2, pat_ratio=0.5".
func (e Error) Name() string {
	s := e.Of
	if e.Phase > 0 {
		s += fmt.Sprintf(", phase %d", e.Phase+1)
	}
	if e.Point != "" {
		s += ", " + e.Point
	}
	return s
}

// Options are what Compare can be told.
type Options struct {
	// Anyway compares runs of different experiments or inventories. What is in both is.
	Anyway bool
	// Running are the IDs of runs that go on.
	Running []string
}

// Compare holds runs against the one of them that is nearest to reality, which with one alone is
// itself, held against what predicted it. The error wraps ErrDiffer, with everything that is in
// the way.
func Compare(recs []*results.Record, o Options) (*Report, error) {
	if len(recs) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrDiffer)
	}
	recs = slices.Clone(recs)
	slices.SortStableFunc(recs, func(a, b *results.Record) int { return cmp.Compare(rank(a), rank(b)) })
	ref := recs[0]
	out := &Report{Schema: Schema, Experiment: ref.Name, Title: ref.Title, Models: []Model{}}
	warnings, problems := differences(recs)
	if o.Anyway {
		warnings, problems = append(problems, warnings...), nil
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrDiffer, strings.Join(problems, "; "))
	}
	out.Warnings = warnings
	names := map[string]int{}
	sides := make([]*side, len(recs))
	for i, rec := range recs {
		name := rec.Driver
		if names[rec.Driver]++; names[rec.Driver] > 1 {
			name += fmt.Sprintf(" (%d)", names[rec.Driver])
		}
		out.Runs = append(out.Runs, Run{Name: name, ID: rec.ID, Started: rec.Started, Driver: rec.Driver, Kind: rec.Kind,
			Setting: history.SettingOf(rec).String(), Tool: rec.Tool})
		sides[i] = read(rec)
		for _, s := range sides[i].spoilt {
			out.Warnings = append(out.Warnings, name+": left out: "+s)
		}
		switch {
		case slices.Contains(o.Running, rec.ID):
			out.Warnings = append(out.Warnings, name+": the run goes on; what it has measured until now is compared")
		case !rec.Complete():
			out.Warnings = append(out.Warnings, name+": the run was cut off; what it measured until then is compared")
		}
	}
	if len(sides[0].keys) == 0 {
		out.Warnings = append(out.Warnings, out.Runs[0].Name+": has no sound figure, so that nothing can be held against it")
		return out, nil
	}
	for i := range recs[1:] {
		out.Models = append(out.Models, sides[0].against(out.Runs[i+1].Name, recs[i+1], sides[i+1].observed, nil, sides))
	}
	var seen []string
	for i, rec := range recs {
		for _, p := range sides[i].predictors {
			if slices.Contains(seen, p) {
				continue
			}
			seen = append(seen, p)
			var own map[key]heard
			if i == 0 {
				own = sides[0].heard[p]
			}
			m := sides[0].against(p, rec, sides[i].predicted[p], own, sides)
			m.Kind = results.Predicted
			out.Models = append(out.Models, m)
		}
	}
	out.Models = slices.DeleteFunc(out.Models, func(m Model) bool {
		if len(m.Errors) == 0 {
			out.Warnings = append(out.Warnings, m.Name+": has no figure that "+out.Runs[0].Name+" has, too")
		}
		return len(m.Errors) == 0
	})
	return out, nil
}

// rank orders runs by how near they are to reality.
func rank(rec *results.Record) int {
	i := slices.Index([]string{"lab", "netns", "sim"}, rec.Driver)
	if i < 0 {
		return 3
	}
	return i
}

// differences are what should not differ: what makes runs incomparable, and what has only to
// be known.
func differences(recs []*results.Record) (warnings, problems []string) {
	ref, first := recs[0], history.SettingOf(recs[0])
	for _, rec := range recs[1:] {
		s := history.SettingOf(rec)
		at := func(r *results.Record) string { return r.Driver + " run " + tail(r.ID) }
		if rec.ID == ref.ID {
			problems = append(problems, at(rec)+" is named twice")
			continue
		}
		if rec.Name != ref.Name || s.Experiment != first.Experiment {
			problems = append(problems, fmt.Sprintf("%s is of experiment %s, %s of %s", at(ref), what(ref, s.Experiment != first.Experiment), at(rec), what(rec, s.Experiment != first.Experiment)))
		}
		if a, b := overrides(first), overrides(s); !slices.Equal(a, b) {
			problems = append(problems, fmt.Sprintf("%s has --set %q, %s %q", at(ref), strings.Join(a, " "), at(rec), strings.Join(b, " ")))
		}
		if s.Inventory != first.Inventory {
			problems = append(problems, fmt.Sprintf("inventories of %s and %s differ", at(ref), at(rec)))
		}
		if rec.Scale != ref.Scale {
			warnings = append(warnings, fmt.Sprintf("scales differ: %s %s, %s %s; all figures are what they stand for in the lab", ref.Driver, ref.Scale, rec.Driver, rec.Scale))
		}
		if rec.Kind == results.Measured && ref.Kind == results.Measured {
			for _, d := range []struct{ what, a, b string }{{"kernel", s.Kernel, first.Kernel}, {"machine", s.Machine, first.Machine}} {
				if d.a != d.b {
					warnings = append(warnings, fmt.Sprintf("%s: %s %q, %s %q", d.what, rec.Driver, d.a, ref.Driver, d.b))
				}
			}
		}
		if rec.Tool != ref.Tool {
			warnings = append(warnings, fmt.Sprintf("versions of inabench differ: %s %s, %s %s", ref.Driver, ref.Tool, rec.Driver, rec.Tool))
		}
	}
	return warnings, problems
}

// overrides are those of what is done, and not of how it is emulated: scales are looked at.
func overrides(s history.Setting) []string {
	return slices.DeleteFunc(slices.Clone(s.Overrides), func(o string) bool {
		return strings.HasPrefix(o, "emulation.scale=") || strings.HasPrefix(o, "emulation.factor=")
	})
}

// what names an experiment, with its sum where the name would not tell.
func what(rec *results.Record, sum bool) string {
	if !sum || rec.Experiment.SHA256 == "" {
		return rec.Name
	}
	return fmt.Sprintf("%s (sha256 %.8s)", rec.Name, rec.Experiment.SHA256)
}

// tail is the part of an ID that tells runs of one day apart.
func tail(id string) string { return id[max(0, len(id)-6):] }

// key is what figures are paired by. Points are told apart by their labels: a sweep of fewer values numbers them otherwise.
type key struct {
	labels     string
	phase      int // in the order of the record
	metric, of string
}

// side is a run's figures, repeats combined, in the lab's units.
type side struct {
	rec        *results.Record
	keys       []key // of observed, in order
	observed   map[key]results.Figure
	predicted  map[string]map[key]results.Figure // by predictor
	predictors []string
	repeats    map[key]int
	limits     map[key]string // bottleneck, of a job: Metric is empty
	spoilt     []string

	// heard are what was observed in those repeats in which a predictor said something of it, where that is not all of them:
	// repeats may have other jobs.
	heard map[string]map[key]heard
}

// heard is a figure in some repeats.
type heard struct {
	results.Figure
	repeats int
}

// passed over: counts, times that nobody models, and what follows from other figures.
var passed = []string{"sum_errors", "iterations", "wire_rate", "jain", "rtt", "placement_time", "tree_time"}

func classOf(metric, of string) (Class, bool) {
	switch {
	case slices.Contains(passed, metric), strings.HasSuffix(metric, "_ratio"):
		return "", false
	case of == results.Cluster:
		return Cluster, true
	case strings.Contains(of, "->"):
		return Link, true
	case strings.Contains(of, "@"):
		return Tree, true
	}
	return Job, true
}

func read(rec *results.Record) *side {
	s := &side{rec: rec, observed: map[key]results.Figure{}, predicted: map[string]map[key]results.Figure{}, repeats: map[key]int{}, limits: map[key]string{},
		heard: map[string]map[key]heard{}}
	observed := map[key][]results.Figure{}
	said, of := map[string]map[key][]results.Figure{}, map[string]map[key][]results.Figure{} // by predictors, and observed in the same repeats
	trust := map[key]int{}
	lab := func(f results.Figure) results.Figure {
		f.Value, f.Lo, f.Hi = rec.Scale.Lab(f.Value, f.Unit), rec.Scale.Lab(f.Lo, f.Unit), rec.Scale.Lab(f.Hi, f.Unit)
		return f
	}
	for _, p := range rec.Points {
		if why := p.Unsound(); why != "" {
			s.spoilt = append(s.spoilt, strings.TrimSpace(fmt.Sprintf("%s repeat %d: %s", p.Label(), p.Repeat+1, why)))
			continue
		}
		for i, ph := range p.Phases {
			if ph.Spoilt != "" {
				s.spoilt = append(s.spoilt, strings.TrimSpace(fmt.Sprintf("%s repeat %d phase %d: %s", p.Label(), p.Repeat+1, i+1, ph.Spoilt)))
				continue
			}
			here := map[key]results.Figure{} // observed in this repeat
			for _, f := range ph.Figures {
				k := key{p.Label(), i, f.Metric, f.Of}
				if _, ok := classOf(f.Metric, f.Of); !ok || f.Kind == results.Predicted || f.N == 0 {
					continue
				}
				if observed[k] == nil {
					s.keys = append(s.keys, k)
				}
				here[k] = lab(f)
				observed[k] = append(observed[k], here[k])
			}
			for _, f := range ph.Figures {
				if f.Kind != results.Predicted {
					continue
				}
				// What limits a job is best known to the model that follows packets.
				at, by := key{p.Label(), i, "", f.Of}, 1
				if f.Predictor == "occupancy" {
					by = 2
				}
				if f.Bottleneck != "" && by > trust[at] {
					s.limits[at], trust[at] = f.Bottleneck, by
				}
				k := key{p.Label(), i, f.Metric, f.Of}
				if _, ok := classOf(f.Metric, f.Of); !ok {
					continue
				}
				if said[f.Predictor] == nil {
					said[f.Predictor], of[f.Predictor] = map[key][]results.Figure{}, map[key][]results.Figure{}
					s.predictors = append(s.predictors, f.Predictor)
				}
				said[f.Predictor][k] = append(said[f.Predictor][k], lab(f))
				if o, ok := here[k]; ok {
					of[f.Predictor][k] = append(of[f.Predictor][k], o)
				}
			}
		}
	}
	for k, all := range observed {
		s.observed[k], s.repeats[k] = results.Combine(all), len(all)
	}
	for p, all := range said {
		s.predicted[p], s.heard[p] = map[key]results.Figure{}, map[key]heard{}
		for k, figures := range all {
			s.predicted[p][k] = results.Combine(figures)
			if some := of[p][k]; 0 < len(some) && len(some) < len(observed[k]) {
				s.heard[p][k] = heard{results.Combine(some), len(some)}
			}
		}
	}
	return s
}

// regime is what limits a figure's job, by the first of the runs that says.
func regime(k key, c Class, sides []*side) Regime {
	at := k
	at.metric = ""
	switch c {
	case Cluster:
		return Unknown
	case Tree:
		at.of, _, _ = strings.Cut(k.of, "@")
		for _, s := range sides {
			if f, ok := s.predicted["occupancy"][k]; ok && f.Unit == "1" && f.Value < 0.999 {
				return MemoryBound
			}
		}
	case Link:
		for _, s := range sides {
			for l, b := range s.limits {
				if b == k.of && l.labels == k.labels && l.phase == k.phase {
					return Congested
				}
			}
		}
		return Unknown
	}
	for _, s := range sides {
		if b := s.limits[at]; b != "" {
			return regimeOf(b)
		}
	}
	return Unknown
}

// idle is the part of the busiest link's rate below which a link carries nothing to speak of.
const idle = 0.01

// against holds a model's figures against the reference's, and those of which only some repeats were heard against these.
func (s *side) against(name string, of *results.Record, model map[key]results.Figure, some map[key]heard, sides []*side) Model {
	m := Model{Name: name, Kind: of.Kind, Run: of.ID, Groups: []Group{}, Errors: []Error{}}
	type span struct {
		labels string
		phase  int
		metric string
	}
	busiest := map[span]float64{}
	says := map[string]bool{}
	for k, f := range s.observed {
		if _, ok := model[k]; ok {
			says[k.metric] = true
		}
		if c, _ := classOf(k.metric, k.of); c == Link {
			at := span{k.labels, k.phase, k.metric}
			busiest[at] = max(busiest[at], f.Value)
		}
	}
	for _, k := range s.keys {
		f, repeats := s.observed[k], s.repeats[k]
		if h, ok := some[k]; ok {
			f, repeats = h.Figure, h.repeats
		}
		c, _ := classOf(k.metric, k.of)
		g, ok := model[k]
		if !ok {
			if says[k.metric] {
				m.Missing = append(m.Missing, k.metric+" of "+Error{Of: k.of, Phase: k.phase, Point: k.labels}.Name())
			}
			continue
		}
		e := Error{Point: k.labels, Phase: k.phase, Class: c, Metric: k.metric, Of: k.of, Unit: f.Unit, Regime: regime(k, c, sides),
			Reference: Interval{f.Value, f.Lo, f.Hi}, Model: Interval{g.Value, g.Lo, g.Hi}, Repeats: repeats}
		over := f.Value
		if c == Link {
			top := busiest[span{k.labels, k.phase, k.metric}]
			if max(f.Value, g.Value) <= idle*top {
				m.Idle++
				continue
			}
			if f.Value <= idle*top {
				over = top
			}
		}
		e.Relative = f.Unit != "1" && f.Unit != ""
		hr, hm := (f.Hi-f.Lo)/2, (g.Hi-g.Lo)/2
		switch {
		case !e.Relative:
			e.Error = around(g.Value-f.Value, math.Hypot(hr, hm))
		case over > 0:
			// Of the quotient, to first order; of what is over another link's rate, the difference.
			slope := 1.0
			if over == f.Value {
				slope = g.Value / f.Value
			}
			e.Error = around((g.Value-f.Value)/over, math.Hypot(hm, slope*hr)/over)
		default:
			continue // a rate or a time of 0
		}
		if math.IsNaN(e.Error.Value) || math.IsInf(e.Error.Value, 0) {
			continue
		}
		m.Errors = append(m.Errors, e)
	}
	m.summarise()
	return m
}

func around(v, half float64) Interval { return Interval{v, v - half, v + half} }

// summarise draws groups, regimes and the figure from the errors.
func (m *Model) summarise() {
	of := func(want func(e *Error) bool) (out []*Error) {
		for i := range m.Errors {
			if want(&m.Errors[i]) {
				out = append(out, &m.Errors[i])
			}
		}
		return out
	}
	for _, c := range classes {
		all := of(func(e *Error) bool { return e.Class == c })
		var metrics []string
		for _, e := range all {
			if !slices.Contains(metrics, e.Metric) {
				metrics = append(metrics, e.Metric)
			}
		}
		for _, metric := range metrics {
			some := of(func(e *Error) bool { return e.Class == c && e.Metric == metric })
			m.Groups = append(m.Groups, group(some))
			if c == Job || c == Tree {
				m.regimes(some)
			}
		}
		if m.Fidelity == nil && len(all) > 0 {
			md := medianOf(all)
			m.Fidelity, m.Over = &md, c
		}
	}
}

// regimes adds the biases of a metric, where anything says what limits its jobs.
func (m *Model) regimes(all []*Error) {
	by := map[Regime][]*Error{}
	for _, e := range all {
		by[e.Regime] = append(by[e.Regime], e)
	}
	for _, r := range regimes {
		if some := by[r]; len(some) > 0 && len(by[Unknown]) < len(all) {
			m.Regimes = append(m.Regimes, Bias{Regime: r, Class: all[0].Class, Metric: all[0].Metric, N: len(some), Bias: bias(some), Median: medianOf(some).Value})
		}
	}
}

func group(all []*Error) Group {
	g := Group{Class: all[0].Class, Metric: all[0].Metric, Unit: all[0].Unit, Relative: all[0].Relative, N: len(all), Median: medianOf(all), Bias: bias(all), Max: -1}
	x, y := make([]float64, len(all)), make([]float64, len(all))
	for i, e := range all {
		size := math.Abs(e.Error.Value)
		g.Mean += size / float64(len(all))
		if size > g.Max {
			g.Max, g.Worst = size, e.Name()
		}
		x[i], y[i] = e.Model.Value, e.Reference.Value
	}
	g.Pearson, g.Line = pearson(x, y), regress(x, y)
	return g
}

// Figures are the models' fidelities as the record of the reference's run keeps them, where
// `inabench history fidelity` finds them.
func (r *Report) Figures() []results.Figure {
	var out []results.Figure
	for _, m := range r.Models {
		if m.Fidelity != nil {
			out = append(out, results.Figure{Metric: Metric, Of: m.Name, Kind: r.Runs[0].Kind, Unit: "1",
				Value: m.Fidelity.Value, Lo: m.Fidelity.Lo, Hi: m.Fidelity.Hi, N: m.Fidelity.N})
		}
	}
	return out
}
