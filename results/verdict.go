package results

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// maxMore bounds the number of further repeats that a verdict asks for.
const maxMore = 1000

// Judge holds expectations against the figures of a run's points.
//
// Repeats of a cell of the sweep are combined first (see Combine). A repeat that
// ended early or with fatal health trouble is left out, and so is a phase of one that the
// testbed spoilt; where no sound one is left, figures are shown with the reason and are
// not judged. A check's error is measured -
// predicted, or that over the prediction where the tolerance is relative. Counts
// (sum_errors, iterations) are held however unhealthy the point was. Of an
// idle link, predicted 0, the relative error is taken over the largest prediction
// of the same metric in that phase.
//
// The tolerance makes a band around 0: [-tol, tol], [-tol, inf) for "at-least" and
// (-inf, tol] for "at-most". With [lo, hi] the 95 % interval of the error, a check
//
//   - passes if [lo, hi] lies in the band, or if the error does and half the
//     interval is not longer than the tolerance: what lies outside is then no
//     more than the noise that the tolerance was meant to allow;
//   - fails if [lo, hi] lies outside the band as a whole, or if the figure was counted over
//     the whole phase and is off by more than twice the tolerance, and by 1 %: a stall makes
//     the interval wide and the count none the better;
//   - is inconclusive otherwise, with More the further repeats after which the
//     interval, shrinking as 1/sqrt(n), should decide it.
//
// Where predictions differ from repeat to repeat, each is held against its own, and the interval is that of the errors.
// A measured figure without an interval (N < 2) is inconclusive however good it
// looks; a count that is off by as much as above fails all the same. A statistic
// "correlation" is Pearson's r of all figures of the block and their
// predictions, at least 1 less the tolerance. Statistics "mean" and "max" are over the errors' magnitudes (shortfalls
// for "at-least", excesses for "at-most") of all figures of the block; their
// interval is that of the magnitudes' ends, which assumes that errors go together
// and is so never too narrow. Figures predicted 0 are left out of a mean, which
// they would only dilute; one that is certainly not 0 fails it. What is certain decides a
// mean or maximum also where other figures are not known: see aggregate.
//
// An expectation against other points of the run has their figures in place of
// predictions; half their intervals add to that of the error, in full, and where either has none the error has none. Where
// both have the same repeats, two or more, these are pairs, as in Record.Compare, and the interval is that of what they differ
// by, so that what all points of a repeat share cancels out: of the ratios, on logarithms, where the tolerance is relative, or
// a bound has none, and all figures are positive; else of the differences. It reaches to the error, which is that of the means.
//
// An expectation with a reason to Skip it is skipped, which is shown and decides
// nothing; a run of which every gated expectation is skipped is inconclusive.
//
// What fails is inconclusive where the testbed stood still, or the phase need not be as predicted, in some repeat; unless it
// fails by the others alone, which decide then, or is off by more than what keeps the phase from being as predicted can do.
//
// Findings of the points are checks as well, after those of expectations: they are decided
// already, and a point's health does not excuse them.
//
// An expectation that finds no figure, or no prediction of any, is inconclusive:
// nothing to hold it against. Figures that its model says nothing of, where it does
// of others in that phase, are left out, and so are repeats of which it says nothing; where
// it says nothing there of the whole metric, as one that failed, a pass by the others is
// undecided. Checks that are not gated never decide the outcome. The outcome is error if
// a point ended with one, else fail if a gated check failed, else inconclusive if one is,
// else not judged if no check is gated but those of what must hold of every run, else pass;
// reasons say why, the most important first.
//
// An expectation that is an Event decides also where it is not gated, then as undecided. The whole
// are further checks of the run as a whole, which are decided already.
func Judge(expects []Expect, points []Point, whole ...Check) ([]Check, Outcome, []string) {
	cells := Settings(points)
	var checks []Check
	for _, e := range expects {
		if e.Skip != "" {
			c := e.check()
			c.Of, c.Outcome, c.Why = e.Of, Skipped, e.Skip
			checks = append(checks, c)
			continue
		}
		var each []held
		for i := range cells {
			if !cells[i].has(e.Points) {
				continue
			}
			if ref, ok := cells[i].against(e, cells); ok {
				each = append(each, cells[i].checks(e, ref)...)
				each = append(each, cells[i].uncompared(e)...)
			}
		}
		each = append(each, lacking(e, cells, each)...)
		switch {
		case len(each) == 0:
			c := e.check()
			c.Of = e.Of
			c.inconclusive("nothing to hold it against: no " + e.Metric + " figure" + ofGlob(e.Of))
			checks = append(checks, c)
		case e.Statistic == "mean" || e.Statistic == "max":
			checks = append(checks, aggregated(e, each))
		case e.Statistic == Correlation:
			checks = append(checks, excused(correlate(e, each), each))
		default:
			for _, h := range each {
				checks = append(checks, excused(h.Check, []held{h}))
			}
		}
		if why := e.hollow(cells, each); why != "" {
			c := e.check()
			c.Of, c.Code = e.Of, CodeNotJudged
			c.inconclusive(why)
			checks = append(checks, c)
		}
	}
	decideEvents(expects, checks)
	checks = append(append(checks, foundChecks(points)...), whole...)
	for i := range checks {
		checks[i].Code = cmp.Or(checks[i].Code, checks[i].FailureCode())
	}
	outcome, reasons := decide(checks, points)
	return checks, outcome, reasons
}

// hollow says why figures of an expectation that is gated would pass whatever a job did, in all of its phases: a tolerance that is
// as large as what is predicted lets a job pass that gets nothing. Empty: they would not.
func (e Expect) hollow(cells []Setting, each []held) string {
	least, most := func(*held) float64 { return 0 }, math.Inf(-1)
	switch e.Metric {
	case "goodput", "wire_rate":
	case "share", "granted": // none is what some should have
		most = 1
	case "jain":
		least = func(c *held) float64 {
			for _, s := range cells {
				for _, p := range s.All {
					if s.Index == c.Index && c.Phase < len(p.Phases) && len(p.Phases[c.Phase].Jobs) > 1 {
						return 1 / float64(len(p.Phases[c.Phase].Jobs))
					}
				}
			}
			return 0
		}
	default:
		return ""
	}
	if !e.Gate || e.Relative || e.Bound == "at-most" || e.Predictor == "value" || e.Statistic == Correlation {
		return ""
	}
	some := ""
	for i := range each {
		switch c := &each[i]; {
		case c.Predicted == 0:
		case c.Predicted-e.Tolerance > least(c), c.Predicted+e.Tolerance < most:
			return ""
		case most > 0:
			some = fmt.Sprintf("with a tolerance of %s a %s of 0 would pass, and one of 1, of %s that is predicted, and so everywhere: nothing is judged; write less, or gate = false",
				human.Quantity(e.Tolerance, c.Unit), e.Metric, human.Quantity(c.Predicted, c.Unit))
		default:
			some = fmt.Sprintf("with a tolerance of %s a %s of %s would pass, of %s that is predicted, and so everywhere: nothing is judged; write less, or gate = false",
				human.Quantity(e.Tolerance, c.Unit), e.Metric, human.Quantity(least(c), c.Unit), human.Quantity(c.Predicted, c.Unit))
		}
	}
	return some
}

// lacking are the points that an expectation of a whole Cluster, or against other points, is about and that have no figure
// of it, though others do: what could not be told there is not what was expected.
func lacking(e Expect, cells []Setting, each []held) (out []held) {
	has := func(c *Setting) bool {
		return slices.ContainsFunc(each, func(h held) bool { return h.Index == c.Index })
	}
	whole := slices.ContainsFunc(each, func(h held) bool { return h.Of == Cluster })
	if e.Against == "" && (e.Predictor != "value" || !whole) || len(each) == 0 {
		return nil
	}
	for i := range cells {
		c := &cells[i]
		if _, ok := c.against(e, cells); c.has(e.Points) && ok && !has(c) {
			h := held{Check: e.check()}
			h.Point, h.Index, h.Of, h.Code = c.Labels, c.Index, e.Of, CodeNoFigure
			if whole {
				h.Of = Cluster
			}
			h.inconclusive("there is no " + e.Metric + " here, and at other points there is")
			out = append(out, h)
		}
	}
	return out
}

// ExitCode is the process exit code of a run's outcome: 0 all expectations held, 1
// one failed, 6 the testbed failed, 7 nothing failed but something is undecided, or
// nothing was judged.
func ExitCode(o Outcome) int {
	switch o {
	case Pass:
		return 0
	case Fail:
		return 1
	case ErrorOutcome:
		return 6
	default:
		return 7
	}
}

// Setting is a point of the sweep with its sound repeats.
type Setting struct {
	Index   int
	Labels  string
	Label   []string
	All     []Point // all repeats
	Repeats []Point // the sound ones
	why     string  // of the first one left out
	code    string  // and what that is known by
	Phases  int     // the most that any repeat has, dropped ones included
}

// Settings are the settings of a sweep, each with its repeats, in the order of the points.
func Settings(points []Point) []Setting {
	at := map[int]int{}
	var cells []Setting
	for _, p := range points {
		i, ok := at[p.Index]
		if !ok {
			i = len(cells)
			at[p.Index] = i
			cells = append(cells, Setting{Index: p.Index, Labels: p.Label(), Label: p.Labels})
		}
		c := &cells[i]
		c.Phases = max(c.Phases, len(p.Phases))
		c.All = append(c.All, p)
		if why := p.Unsound(); why != "" {
			if c.why == "" {
				c.why, c.code = why, p.unjudged()
			}
			continue
		}
		c.Repeats = append(c.Repeats, p)
	}
	slices.SortStableFunc(cells, func(a, b Setting) int { return cmp.Compare(a.Index, b.Index) })
	return cells
}

// Place names a phase of the cell; the phase only where there are several.
func (c *Setting) Place(phase int) string {
	if c.Phases < 2 {
		return c.Labels
	}
	return strings.TrimSpace(fmt.Sprintf("%s phase %d", c.Labels, phase+1))
}

// Label is the point's labels as one text; empty without a sweep.
func (p Point) Label() string { return strings.Join(p.Labels, " ") }

// Unsound says why a point's figures must not be judged; empty if they may.
func (p Point) Unsound() string {
	if p.Error != "" {
		return "ended early: " + p.Error
	}
	for _, t := range p.Health {
		if t.Fatal {
			return t.String()
		}
	}
	return ""
}

// String is the trouble in one line: "switch tor1: timer lateness p99 14 ms ...".
func (t Trouble) String() string {
	if t.Where == "" {
		return t.What
	}
	return t.Where + ": " + t.What
}

// check is an empty check of the expectation.
func (e Expect) check() Check {
	return Check{
		Expect: e.Name, Metric: e.Metric, Predictor: e.Predictor, Gate: e.Gate,
		Tolerance: e.Tolerance, Relative: e.Relative, Bound: e.BoundText(), Statistic: e.Statistic,
	}
}

// BoundText is what the expectation bounds, as a condition.
func (e Expect) BoundText() string {
	if e.Bound == "" {
		return "within"
	}
	return e.Bound
}

func (c *Check) inconclusive(why string) {
	c.Outcome, c.Why = Inconclusive, why
}

func ofGlob(of string) string {
	if of == "" {
		return ""
	}
	return fmt.Sprintf(" of %q", of)
}

// held is a check with what aggregation needs of it: the interval of its error,
// and whether there is an error at all.
type held struct {
	Check
	lo, hi float64
	ok     bool
	spread float64 // by how much one run may be off, as the prediction says; half an interval
	alike  bool    // repeats are no independent draws of that
	one    bool    // what is predicted is of each run, on this machine: repeats are neither, however they differ
	late   Trouble // by how much frames were late, as a part of a round trip
	caught float64 // by how much a rate may be more for what waited in times that are left out; see Phase.caughtUp
	stood  string  // why a failure may be the testbed's, or the prediction's; see Phase.Excuse and Phase.Unlike
	unlike Trouble // by what part of what is predicted it may be off; see Phase.UnlikeBy
	most   float64 // the largest that is predicted in the phase, or what it is held to
}

// excused is a check of what is held: one that fails is left open where the testbed stood still.
func excused(c Check, each []held) Check {
	i := slices.IndexFunc(each, func(h held) bool { return h.stood != "" })
	if c.Outcome == Fail && i >= 0 {
		c.inconclusive(each[i].stood)
		c.Code, c.More = CodeLimited, 0
	}
	return c
}

// has says whether the cell has all of the labels.
func (c *Setting) has(labels []string) bool { return Labelled(c.Label, labels) }

// Labelled says whether labels of a point are among them all that are wanted.
func Labelled(labels, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(l string) bool { return !slices.Contains(labels, l) })
}

// against is the cell whose figures this one is held against; nil where e is not about
// other cells. Not ok: e is not about this cell, but about others against it, or it has
// no counterpart.
func (c *Setting) against(e Expect, cells []Setting) (ref *Setting, ok bool) {
	if e.Against == "" {
		return nil, true
	}
	key, _, _ := strings.Cut(e.Against, "=")
	want := slices.Clone(c.Label)
	i := slices.IndexFunc(want, func(l string) bool { return strings.HasPrefix(l, key+"=") })
	if i < 0 || want[i] == e.Against {
		return nil, false
	}
	want[i] = e.Against
	i = slices.IndexFunc(cells, func(o Setting) bool { return slices.Equal(o.Label, want) })
	if i < 0 {
		return nil, false
	}
	return &cells[i], true
}

// unjudged is the code of figures that must not be judged: those of a point that was cut off, or that the testbed limited.
func (p Point) unjudged() string {
	if p.Error != "" {
		return CodeCutOff
	}
	return CodeLimited
}

// Unjudged says whether a check with the code is shown and not judged, for a reason that is its point's.
func Unjudged(code string) bool { return code == CodeLimited || code == CodeCutOff }

// UnsoundIn says why the figures of one phase must not be judged; empty if they may.
func (p Point) UnsoundIn(phase int) string {
	if why := p.Unsound(); why != "" || phase >= len(p.Phases) {
		return why
	}
	return p.Phases[phase].Spoilt
}

// subject is what a phase of a cell has of one thing that an expectation is about.
type subject struct {
	observed  []Figure // of sound repeats
	repeats   []int    // of which repeat each of observed is
	others    []int    // and each of predicted, where that was observed
	heard     []Figure // those of observed in whose repeats something was predicted of it, too
	silent    int      // how many of observed are of repeats in which the predictor said nothing of the metric
	unsound   []Figure // observed in repeats that are not judged
	predicted []Figure // one for each that was heard; or what was observed where it is held against
	void      []Figure // predicted of what nobody has measured, or may judge: each as it ran
	missing   string   // why it has no figure in some repeat
	unseen    bool     // a sound repeat predicts it and has no figure of it
	unfit     string   // why what it is held against has none
}

// evidence is what a phase of a cell has of the metric of an expectation.
type evidence struct {
	of               map[string]*subject
	order            []string // of subjects: those with figures as they came, then those without
	largest          float64  // prediction
	repeats, dropped int      // that have the phase, and of these those that are not judged
	reason, code     string   // why, of the first of these
	stood            string   // see held
	late, unlike     Trouble
	caught           float64
}

// about is what there is of a subject, nothing at first.
func (v *evidence) about(of string) *subject {
	if v.of[of] == nil {
		v.of[of] = &subject{}
		v.order = append(v.order, of)
	}
	return v.of[of]
}

// evidence gathers what a phase of the cell has for and against an expectation, and ref in the place of predictions where it
// is not nil. Surely: of repeats alone whose figures are not excused.
func (c *Setting) evidence(e Expect, ref *Setting, phase int, surely bool) *evidence {
	v := &evidence{of: map[string]*subject{}}
	for i := range c.All {
		p := &c.All[i]
		if phase >= len(p.Phases) {
			continue
		}
		ph := &p.Phases[phase]
		v.repeats++
		why := p.UnsoundIn(phase)
		if counted(e.Metric) && p.Error == "" { // a busy machine makes nothing miscount
			why = ""
		}
		if surely {
			why = cmp.Or(why, ph.excuse(e))
		}
		if why != "" {
			v.dropped++
			v.reason, v.code = cmp.Or(v.reason, why), cmp.Or(v.code, p.unjudged())
		} else {
			v.excuse(e, ph)
			if t := Late(p.Health); t.Value > v.late.Value {
				v.late = t
			}
			v.caught = max(v.caught, ph.caughtUp())
		}
		v.add(e, ph, p.Repeat, why == "")
	}
	figured := len(v.order)
	for _, p := range c.All {
		if phase >= len(p.Phases) {
			continue
		}
		for _, m := range p.Phases[phase].Missing { // nobody has measured it: that is no reason not to be told of it
			if m.Metric == e.Metric && Glob(e.Of, m.Of) {
				s := v.about(m.Of)
				s.missing = cmp.Or(s.missing, m.Why)
			}
		}
	}
	slices.Sort(v.order[figured:])
	if ref != nil {
		v.against(e, ref, phase, surely)
	}
	return v
}

// excuse notes why a failure in the phase may be the testbed's, or the prediction's, and by what part it may be off.
func (v *evidence) excuse(e Expect, ph *Phase) {
	v.stood = cmp.Or(v.stood, ph.excuse(e))
	if e.Predictor != "value" && ph.UnlikeBy > v.unlike.Value {
		v.unlike = Trouble{What: ph.Unlike, Value: ph.UnlikeBy}
	}
}

// add adds the figures of one repeat of the phase, which is sound or not.
func (v *evidence) add(e Expect, ph *Phase, repeat int, sound bool) {
	measured, predicted := map[string]bool{}, map[string]bool{}
	wanted := func(f *Figure) bool {
		return f.Metric == e.Metric && (f.Kind != Predicted || f.Predictor == e.Predictor)
	}
	for i := range ph.Figures {
		switch f := &ph.Figures[i]; {
		case !wanted(f):
		case f.Kind == Predicted:
			predicted[f.Of] = true
			v.largest = max(v.largest, math.Abs(f.Value))
		default:
			measured[f.Of] = true
		}
	}
	for i := range ph.Figures {
		f := &ph.Figures[i]
		if !wanted(f) || !Glob(e.Of, f.Of) {
			continue
		}
		s := v.about(f.Of)
		switch {
		case f.Kind == Predicted && sound && measured[f.Of]:
			s.predicted = append(s.predicted, *f)
		case f.Kind == Predicted:
			s.void = append(s.void, *f)
			s.unseen = s.unseen || sound
		case !sound:
			s.unsound = append(s.unsound, *f)
		default:
			s.observed, s.repeats = append(s.observed, *f), append(s.repeats, repeat)
			switch {
			case predicted[f.Of]:
				s.heard = append(s.heard, *f)
			case len(predicted) == 0:
				s.silent++
			}
		}
	}
}

// against puts what was observed in a phase of another cell in the place of predictions.
func (v *evidence) against(e Expect, ref *Setting, phase int, surely bool) {
	for _, p := range ref.All {
		if phase >= len(p.Phases) {
			continue
		}
		ph := &p.Phases[phase]
		why := p.UnsoundIn(phase)
		if surely {
			why = cmp.Or(why, ph.excuse(e))
		}
		for _, f := range ph.Figures {
			if f.Metric != e.Metric || f.Kind == Predicted || !Glob(e.Of, f.Of) {
				continue
			}
			s := v.of[f.Of]
			if why == "" {
				v.largest = max(v.largest, math.Abs(f.Value))
			}
			switch {
			case s == nil:
			case why == "":
				s.predicted, s.others = append(s.predicted, f), append(s.others, p.Repeat)
			default: // what was measured of it is no reference
				s.unfit = cmp.Or(s.unfit, e.Against+": "+why)
			}
		}
		if why != "" {
			continue
		}
		v.excuse(e, ph)
		for _, m := range ph.Missing {
			if s := v.of[m.Of]; s != nil && m.Metric == e.Metric {
				s.unfit = cmp.Or(s.unfit, e.Against+": "+m.Why)
			}
		}
	}
}

// checks applies e to every figure of the cell that it matches. Figures of unsound
// repeats are shown where there are no sound ones, and not judged. With ref, predictions
// are what was measured there.
func (c *Setting) checks(e Expect, ref *Setting) []held {
	var out []held
	for phase := range c.Phases {
		v := c.evidence(e, ref, phase, false)
		var sure *evidence
		for _, of := range v.order {
			s := v.of[of]
			if len(s.observed) == 0 && len(s.predicted) == 0 {
				s.predicted = s.void
			}
			if len(s.predicted) == 0 && v.largest > 0 && e.Predictor != "value" && s.unfit == "" {
				continue // a model is not held to what it says nothing of
			}
			k := c.weighed(e, v, phase, of)
			if k.Outcome == Fail && k.stood != "" { // others may be enough
				if sure == nil {
					sure = c.evidence(e, ref, phase, true)
				}
				if o := c.weighed(e, sure, phase, of); o.Outcome == Fail {
					k = o
				}
			}
			out = append(out, k)
		}
	}
	if len(out) == 0 && len(c.Repeats) == 0 { // nothing that it could be about was measured
		k := e.check()
		k.Point, k.Index, k.Of, k.Code = c.Labels, c.Index, e.Of, c.code
		k.inconclusive(c.why)
		return []held{{Check: k}}
	}
	return out
}

// weighed is the check of a subject of a phase by what there is of it.
func (c *Setting) weighed(e Expect, v *evidence, phase int, of string) held {
	k := held{Check: e.check()}
	k.Point, k.Index, k.Phase, k.Of = c.Labels, c.Index, phase, of
	if !counted(e.Metric) {
		k.stood, k.unlike = v.stood, v.unlike
	}
	if slices.Contains(rates, e.Metric) {
		k.late, k.caught = v.late, v.caught
	}
	k.weigh(e, v, v.about(of))
	return k
}

// weigh decides the check of a subject by what there is of it.
func (c *held) weigh(e Expect, v *evidence, s *subject) {
	switch {
	case len(s.observed) > 0:
		seen := s.observed
		if len(s.heard) > 0 { // other repeats are none of what was predicted
			seen = s.heard
		}
		c.hold(e, seen, s.predicted, s.pairs(), v.largest)
		if len(s.predicted) == 0 && s.unfit != "" {
			c.Why, c.Code = s.unfit, CodeLimited
		}
		if len(s.heard) > 0 && s.silent > 0 {
			c.lacks(fmt.Sprintf("%d of %d repeats have no prediction by %s", s.silent, v.repeats, e.Predictor))
		}
		if n := v.repeats - v.dropped - len(s.observed); n > 0 && (s.missing != "" || s.unseen) {
			c.lacks(fmt.Sprintf("%d of %d repeats have no figure: %s", n, v.repeats, cmp.Or(s.missing, "it was predicted, and nobody measured it")))
		}
		if v.dropped > 0 {
			note := fmt.Sprintf("%d of %d repeats left out: %s", v.dropped, v.repeats, v.reason)
			c.Why = strings.TrimPrefix(c.Why+"; "+note, "; ")
		}
	case v.dropped > 0: // it is shown, and not judged
		if len(s.unsound) > 0 {
			c.hold(e, s.unsound, s.predicted, nil, v.largest)
		} else if len(s.predicted) > 0 {
			c.foretold(s.predicted[0])
		}
		c.inconclusive(v.reason)
		c.ok, c.More, c.Code = false, 0, v.code
	default:
		c.hold(e, nil, s.predicted, nil, v.largest)
		c.Why = cmp.Or(s.missing, c.Why)
	}
}

// pairs are what is observed and what was where it is held against, repeat by repeat; nil where the repeats are not the same
// two or more.
func (s *subject) pairs() (out [][2]Figure) {
	if len(s.repeats) < 2 || len(s.repeats) != len(s.others) {
		return nil
	}
	for i, r := range s.repeats {
		k := slices.Index(s.others, r)
		if k < 0 || slices.Index(s.repeats, r) != i || s.observed[i].Kind != s.predicted[k].Kind || s.observed[i].Kind != s.observed[0].Kind {
			return nil
		}
		out = append(out, [2]Figure{s.observed[i], s.predicted[k]})
	}
	return out
}

// apart is by how much the first of pairs are more than the second, whose mean is given, with the interval of that. See Judge.
func (e Expect) apart(pairs [][2]Figure, mean float64) Figure {
	ratios := (e.Relative || e.Tolerance == 0 && e.BoundText() != "within") &&
		!slices.ContainsFunc(pairs, func(p [2]Figure) bool { return !(p[0].Value > 0 && p[1].Value > 0) })
	var each []Figure
	for _, p := range pairs {
		d := p[0]
		a, b := p[0].Value, p[1].Value
		half, other := (p[0].Hi-p[0].Lo)/2, (p[1].Hi-p[1].Lo)/2
		if d.Value = a - b; ratios {
			d.Value, half, other = math.Log(a/b), half/a, other/b
		}
		if d.N = min(p[0].N, p[1].N); p[0].single() || p[1].single() {
			d.N, half, other = 1, 0, 0 // that of one of the two is not known
		}
		d.Lo, d.Hi = d.Value-half-other, d.Value+half+other
		each = append(each, d)
	}
	d := Combine(each)
	if ratios {
		d.Lo, d.Hi = mean*math.Expm1(d.Lo), mean*math.Expm1(d.Hi)
	}
	return d
}

// lacks leaves a check open that passes by some repeats, where others have nothing to say.
func (c *held) lacks(why string) {
	if c.Outcome == Pass {
		c.inconclusive(why)
		c.ok, c.Code = false, CodeNoFigure
	}
}

// foretold fills in what was predicted of what nobody has measured.
func (c *held) foretold(p Figure) { c.Predicted, c.Bottleneck, c.Unit = p.Value, p.Bottleneck, p.Unit }

// hold compares the combined observation with the prediction, pair by pair where there are pairs.
func (c *held) hold(e Expect, observed, predicted []Figure, pairs [][2]Figure, largest float64) {
	if len(observed) == 0 {
		why := "not measured"
		if len(predicted) > 0 {
			c.foretold(predicted[0])
			why = "predicted, but not measured"
		} else if e.Predictor == "value" {
			c.Predicted = e.Value
		}
		c.inconclusive(why)
		return
	}
	m := Combine(observed)
	ofRun := false // the prediction is of what was counted
	c.Unit, c.Measured, c.Lo, c.Hi, c.Kind, c.Repeats = m.Unit, m.Value, m.Lo, m.Hi, m.Kind, len(observed)
	switch {
	case e.Predictor == "value" || e.Predictor == "":
		c.Predicted = e.Value
		largest = math.Abs(e.Value)
	case len(predicted) == 0:
		c.Unpredicted = true
		c.inconclusive(fmt.Sprintf("nothing to hold it against: %s predicts no %s of %s", e.Predictor, e.Metric, c.Of))
		return
	case e.Against != "":
		ref := Combine(predicted)
		c.Predicted = ref.Value
		switch {
		case pairs != nil:
			d := e.apart(pairs, ref.Value)
			m.Lo, m.Hi = min(m.Value, ref.Value+d.Lo), max(m.Value, ref.Value+d.Hi)
		case m.single():
		case ref.single(): // by how much they may differ is not known
			m.Lo, m.Hi, m.N = m.Value, m.Value, 1
		default:
			m.Lo, m.Hi = m.Lo-(ref.Hi-ref.Value), m.Hi+(ref.Value-ref.Lo)
		}
		m.Counted, m.Grain, m.Loose = m.Counted && ref.Counted, m.Grain+ref.Grain, m.Loose+ref.Loose
	default:
		for _, p := range predicted {
			c.Predicted += p.Value / float64(len(predicted))
			c.spread = max(c.spread, p.Hi-p.Value, p.Value-p.Lo)
		}
		c.one = !slices.ContainsFunc(predicted, func(p Figure) bool { return !p.OfRun })
		if c.alike = alike(observed, c.spread); !c.alike && !c.one {
			c.spread /= math.Sqrt(float64(len(observed)))
		}
		c.Bottleneck = predicted[0].Bottleneck
		ofRun = c.one && m.Counted
		if ofRun || ownOf(predicted) {
			if errors, ok := missed(observed, predicted); ok {
				for i, p := range predicted {
					if e.Relative && p.Value != 0 { // each as a part of its own
						errors[i] = errors[i].Affine(c.Predicted/p.Value, 0)
					}
				}
				k := Combine(errors)
				m.Lo, m.Hi = m.Value+(k.Lo-k.Value), m.Value+(k.Hi-k.Value)
			}
		}
	}
	if !human.Finite(m.Value, m.Lo, m.Hi, c.Predicted) {
		c.Measured, c.Lo, c.Hi, c.Predicted = 0, 0, 0, 0
		c.inconclusive("not a finite number")
		return
	}
	unit := 1.0
	if e.Relative {
		unit = math.Abs(c.Predicted)
		if unit == 0 {
			unit = largest
		}
		if unit == 0 && m.Value != 0 {
			c.inconclusive("a relative tolerance of a prediction of 0 says nothing; give an absolute one")
			return
		}
		unit = cmp.Or(unit, 1)
	}
	c.Error = (m.Value - c.Predicted) / unit
	c.lo, c.hi = (m.Lo-c.Predicted)/unit, (m.Hi-c.Predicted)/unit
	c.spread /= unit
	c.most = max(largest, math.Abs(c.Predicted))
	defer c.allow()
	switch {
	case ofRun && c.eachHolds(observed, predicted, unit) && c.holds(m.Grain/unit):
		return
	case !m.single() || counted(c.Metric):
		c.ok = true
		c.decide(c.lo, c.hi)
	case m.Counted && c.off((m.Grain+m.Loose)/unit):
		c.certain("counted over the whole phase")
		return
	default:
		c.inconclusive("there is no confidence interval: the readings are too few, or depend too much on each other")
		c.More = 1
		return
	}
	if c.Outcome == Inconclusive && m.Counted && c.off((m.Grain+m.Loose)/unit) {
		c.certain("counted over the whole phase, however much its parts differ")
	}
}

// ownOf says whether predictions differ from repeat to repeat: each is of its own, then, and the interval is that of their errors.
func ownOf(predicted []Figure) bool {
	return slices.ContainsFunc(predicted, func(p Figure) bool { return p.Value != predicted[0].Value })
}

// missed is by how much each repeat missed its own prediction. Not ok: which belong to each other is not known.
func missed(observed, predicted []Figure) (errors []Figure, ok bool) {
	if len(observed) != len(predicted) {
		return nil, false
	}
	for i, f := range observed {
		errors = append(errors, f.Affine(1, -predicted[i].Value))
	}
	return errors, true
}

// single says that the figure was measured and has no interval.
func (f Figure) single() bool { return f.Kind == Measured && f.N < 2 && f.Hi == f.Lo }

// holds makes the check pass by its count, give or take a grain, if that is within the tolerance. What is
// outside is for the interval to decide: it knows how a testbed differs from itself, which no prediction does.
func (c *held) holds(grain float64) bool {
	near := *c
	near.decide(c.Error-grain, c.Error+grain)
	if near.Outcome != Pass {
		return false
	}
	*c = near
	c.ok, c.lo, c.hi = true, c.Error-grain, c.Error+grain
	return true
}

// eachHolds says whether every repeat is within the tolerance of what is predicted of it, give or take its grain: errors
// of opposite signs make no count of their mean.
func (c *held) eachHolds(observed, predicted []Figure, unit float64) bool {
	errors, ok := missed(observed, predicted)
	if !ok {
		return false
	}
	for i, f := range observed {
		one := *c
		one.Error = errors[i].Value / unit
		if one.decide(one.Error-f.Grain/unit, one.Error+f.Grain/unit); one.Outcome != Pass {
			return false
		}
	}
	return true
}

// certain makes the check fail by its count: the error has no interval then.
func (c *held) certain(why string) {
	c.ok, c.lo, c.hi = true, c.Error, c.Error
	c.Outcome, c.Why, c.More = Fail, why, 0
}

// rates are metrics of what windows that wait for answers make less of when these come late, and
// others that share links with them more.
var rates = []string{"goodput", "wire_rate", "link_rate", "step_rate"}

// Late is how late frames were, as a part of a round trip, where that is worth telling and not so much
// that nothing is judged; the zero Trouble: they were not.
func Late(health []Trouble) (worst Trouble) {
	for _, t := range health {
		if t.Code == CodeLimited && !t.Fatal && t.Value > worst.Value {
			worst = t
		}
	}
	return worst
}

// allow leaves open what failed by no more than one run may be off by what the prediction says of
// itself: where jobs keep the phase in which they happened to begin, only many runs have its mean. Where a run was
// followed as it began, that is known: what one may be off by is how late a machine is, which all its runs share.
// So it does with rates that are off by no more than frames were late.
func (c *held) allow() {
	why := "one run may be off by as much: jobs keep the phase in which they began"
	if c.one {
		why = "a run may be off by as much on this machine: the setting has more than one state, and how late the machine is chooses between them"
	}
	c.within(c.spread, why, CodeVaries)
	if c.alike && c.Code == CodeVaries {
		c.Why, c.More = "one run may be off by as much, and these runs are too much alike to be so many draws: all are in the same of several states", 0
	}
	of, most := 1.0, 1.0 // what parts are of, in the unit of the error
	if !c.Relative {
		of, most = math.Abs(c.Predicted), c.most
	}
	if c.within(most*c.unlike.Value, c.unlike.What, CodeLimited) {
		c.More = 0 // they would be as it was
	}
	c.within(of*c.late.Value, c.late.Where+": "+c.late.What+", and a window that waits for answers is slower by as much", CodeLimited)
	if c.Error > 0 {
		c.within(of*c.caught, "times are left out in which the testbed stood still, and what waited then was sent after them", CodeLimited)
	}
}

// caughtUp is by how much a rate in a phase may be more, as a part of what it should be, because all that waited in
// the times that are left out was sent in the others.
func (p *Phase) caughtUp() float64 {
	lost := Total(p.LeftOut)
	if kept := p.End - p.Start - lost; kept > 0 {
		return lost / kept
	}
	return 0
}

// within leaves open what failed by no more than a part, in the unit of the error, more than the tolerance, and reports
// whether it did.
func (c *held) within(part float64, why string, code string) bool {
	if c.Outcome != Fail || part == 0 {
		return false
	}
	near := *c
	near.Check.Outcome = Inconclusive
	near.Check.decide(c.lo-part, c.hi+part)
	if near.Outcome == Fail {
		return false
	}
	c.ok = true
	c.lo, c.hi = c.lo-part, c.hi+part
	c.inconclusive(why)
	c.More, c.Code = max(1, near.More), code
	return true
}

// alike says whether repeats differ from each other by so much less than the prediction says of single runs, half an interval,
// that something chooses their state which the prediction draws: how late this machine is, where a system is on the brink
// between two. However many there are, they count as one then. Three independent ones are so with a probability of .01.
func alike(observed []Figure, spread float64) bool {
	if len(observed) < 2 || spread == 0 {
		return false
	}
	lo, hi := observed[0].Value, observed[0].Value
	for _, f := range observed {
		lo, hi = min(lo, f.Value), max(hi, f.Value)
	}
	return hi-lo < spread/10
}

// steady is the least tolerance, relative to the prediction, that a phase's count holds of rates that are
// right: timers of hosts and where in a round trip a phase begins move it by as much.
const steady = 0.005

// off says whether a count is off by more than twice the tolerance and its grain, looseness included, on the side
// that the bound is about: too much for the noise that the tolerance allows.
func (c *Check) off(grain float64) bool {
	least := steady
	if !c.Relative {
		least *= math.Abs(c.Predicted)
	}
	tolerance := max(c.Tolerance, least)
	over, under := c.Error > 2*tolerance+grain, c.Error < -2*tolerance-grain
	switch {
	case c.Tolerance == 0:
		return false
	case c.Bound == "at-least":
		return under
	case c.Bound == "at-most":
		return over
	}
	return over || under
}

// counted says whether a metric is an exact count. It needs no interval, and holds
// or does not hold however busy the machine was.
func counted(metric string) bool { return metric == "sum_errors" || metric == "iterations" }

// band is what the error may be.
func (c *Check) band() (lo, hi float64) {
	slack := 1e-12 // rounding decides nothing
	if !c.Relative {
		slack *= max(math.Abs(c.Measured), math.Abs(c.Predicted))
	}
	slack = max(slack, 1e-9*max(math.Abs(c.Tolerance), math.Abs(c.Error)))
	lo, hi = -c.Tolerance-slack, c.Tolerance+slack
	switch c.Bound {
	case "at-least":
		hi = math.Inf(1)
	case "at-most":
		lo = math.Inf(-1)
	}
	return lo, hi
}

// decide applies the rule of Judge to the error's interval.
func (c *Check) decide(lo, hi float64) { c.decideBy(lo, hi, (hi-lo)/2) }

// decideBy applies it to an interval of which another half tells how sure it is.
func (c *Check) decideBy(lo, hi, half float64) {
	tol := c.Tolerance
	bandLo, bandHi := c.band()
	inside := bandLo <= c.Error && c.Error <= bandHi
	switch {
	case bandLo <= lo && hi <= bandHi, inside && half <= tol:
		c.Outcome = Pass
	case hi < bandLo || lo > bandHi:
		c.Outcome = Fail
	default:
		want, why := tol, "the interval is wider than the tolerance"
		if !inside || tol == 0 {
			want = min(math.Abs(c.Error-bandLo), math.Abs(c.Error-bandHi))
			why = "the interval reaches across the tolerance"
		}
		c.inconclusive(why)
		n := float64(max(c.Repeats, 1))
		c.More = maxMore
		if r := n * (half / want) * (half / want); r-n < maxMore {
			c.More = max(int(math.Ceil(r-n-1e-6)), 1)
		}
	}
}

// aggregated is aggregate of figures some of which the testbed may have spoilt: one that fails is left open, unless it did
// were all of these exact.
func aggregated(e Expect, each []held) Check {
	c := aggregate(e, each)
	if c.Outcome != Fail {
		return c
	}
	sure := slices.Clone(each)
	for i := range sure {
		if h := &sure[i]; h.stood != "" {
			h.inconclusive(h.stood)
			h.ok = false
		}
	}
	if aggregate(e, sure).Outcome == Fail {
		return c
	}
	return excused(c, each)
}

// aggregate is the check of a mean or max error over all figures of a block. What is certain
// of some of them decides, whatever is not known of others: one that is too far off for a
// maximum, those that make a mean too large if all others were exact, and one that was
// predicted 0 and is not, which is in no mean of relative errors.
func aggregate(e Expect, each []held) Check {
	out := e.check()
	out.Repeats = math.MaxInt
	var value, lo, hi, half, most float64
	n, known, unit, worst := 0, 0, "", ""
	var open, certain, loose *held // the first that is not known, one that fails by itself, and the first that was left open
	model := e.Statistic == "mean" && e.Predictor != "value"
	some := e.Relative || slices.ContainsFunc(each, func(h held) bool { return h.Predicted != 0 })
	for i := range each {
		c := &each[i]
		idle := model && some && c.Predicted == 0
		if c.Outcome == Fail && (idle || e.Statistic == "max") && (certain == nil || math.Abs(c.Error) > math.Abs(certain.Error)) {
			certain = c
		}
		if !c.ok {
			if open == nil {
				open = c
			}
			if !idle {
				n++
			}
			continue
		}
		if idle {
			if c.Outcome == Inconclusive && open == nil { // it may carry what it should not
				open = c
			}
			continue
		}
		a, b := magnitudes(out.Bound, c.lo, c.hi)
		m, _ := magnitudes(out.Bound, c.Error, c.Error)
		n, known, unit = n+1, known+1, c.Unit
		out.Kind = c.Kind
		out.Repeats = min(out.Repeats, c.Repeats)
		if c.Outcome == Inconclusive && c.Code == CodeLimited && loose == nil {
			loose = c
		}
		own := (c.hi - c.lo) / 2 // an error's size has a narrower interval where that is on both sides of 0
		if e.Statistic == "mean" {
			value, lo, hi, half = value+m, lo+a, hi+b, math.Hypot(half, own)
			if m > most {
				most, worst = m, strings.TrimSpace(c.Point+" "+c.Of)
			}
			continue
		}
		if b > out.Tolerance {
			half = max(half, own)
		}
		if m >= value {
			value, out.Bottleneck, out.Worst = m, c.Bottleneck, strings.TrimSpace(c.Point+" "+c.Of)
		}
		lo, hi = max(lo, a), max(hi, b)
	}
	if certain != nil {
		return out.failedBy(e, certain)
	}
	if e.Statistic == "mean" && n > 0 {
		value, lo, hi, half = value/float64(n), lo/float64(n), hi/float64(n), half/float64(n)
	}
	if open != nil && (known == 0 || lo <= out.Tolerance) {
		out.Of, out.Repeats = e.Of, 0
		where := strings.TrimSpace(open.Point + " " + open.Of)
		out.inconclusive(strings.TrimPrefix(where+": "+open.Why, ": "))
		out.More, out.Code = open.More, cmp.Or(open.Code, open.FailureCode())
		return out
	}
	if n == 0 {
		out.Of, out.Repeats = e.Of, 0
		out.inconclusive("nothing to hold it against: every figure is predicted 0")
		return out
	}
	out.Of = fmt.Sprintf("%s of %d", e.Statistic, n)
	out.Unit = unit // what is not known has none
	if e.Relative {
		out.Unit = "1"
	}
	out.Measured, out.Lo, out.Hi, out.Error = value, lo, hi, value
	out.Bound = "within"
	out.decideBy(lo, hi, max(half, (hi-lo)/2))
	out.Bound = e.BoundText()
	if out.Outcome != Pass {
		out.Worst = cmp.Or(out.Worst, worst)
	}
	if out.Outcome == Inconclusive && loose != nil {
		out.Why, out.More, out.Code = loose.Why, loose.More, loose.Code
	}
	return out
}

// failedBy is the check of a mean or a maximum that one figure alone decides.
func (c Check) failedBy(e Expect, h *held) Check {
	c.Of, c.Repeats, c.Kind, c.Bottleneck = e.Statistic, h.Repeats, h.Kind, h.Bottleneck
	c.Worst = strings.TrimSpace(h.Point + " " + h.Of)
	c.Unit = h.Unit
	if e.Relative {
		c.Unit = "1"
	}
	c.Measured, _ = magnitudes(c.Bound, h.Error, h.Error)
	c.Lo, c.Hi = magnitudes(c.Bound, h.lo, h.hi)
	c.Error, c.Outcome = c.Measured, Fail
	c.Why = fmt.Sprintf("%s alone decides it", h.Of)
	if h.Predicted == 0 {
		c.Why = fmt.Sprintf("%s carries %s and should be idle", h.Of, human.Quantity(h.Measured, h.Unit))
	}
	return c
}

// Correlation is the statistic of how well measured and predicted figures of a block go
// together: Pearson's r, which may fall short of 1 by the tolerance.
const Correlation = "correlation"

// correlate is the check of a correlation over all figures of a block, with the interval
// that Fisher's transformation gives it.
func correlate(e Expect, each []held) Check {
	out := e.check()
	out.Bound, out.Relative, out.Unit = "at-least", false, "1"
	out.Repeats = math.MaxInt
	var x, y []float64
	for _, c := range each {
		if !c.ok {
			out.Repeats = 0
			where := strings.TrimSpace(c.Point + " " + c.Of)
			out.inconclusive(strings.TrimPrefix(where+": "+c.Why, ": "))
			out.More, out.Code = c.More, cmp.Or(c.Code, c.FailureCode())
			return out
		}
		x, y = append(x, c.Predicted), append(y, c.Measured)
		out.Kind, out.Repeats = c.Kind, min(out.Repeats, c.Repeats)
	}
	r, lo, hi := PearsonInterval(x, y)
	if !human.Finite(r) {
		out.Repeats = 0
		out.inconclusive(fmt.Sprintf("no correlation of %d figures", len(x)))
		return out
	}
	out.Of = fmt.Sprintf("correlation of %d", len(x))
	out.Measured, out.Lo, out.Hi, out.Predicted, out.Error = r, lo, hi, 1, r-1
	out.decide(lo-1, hi-1)
	return out
}

// PearsonInterval is the correlation of two series with its 95 % interval (Fisher 1915); NaN
// where one does not vary, or there are fewer than four pairs.
func PearsonInterval(x, y []float64) (r, lo, hi float64) {
	if len(x) < 4 {
		return math.NaN(), 0, 0
	}
	r = Pearson(x, y)
	z, half := math.Atanh(r), 1.959964/math.Sqrt(float64(len(x))-3)
	return r, math.Tanh(z - half), math.Tanh(z + half)
}

// Pearson is the correlation of two series of the same length, -1 to 1; NaN where one
// does not vary.
func Pearson(x, y []float64) float64 {
	n := float64(len(x))
	var mx, my float64
	for i := range x {
		mx, my = mx+x[i]/n, my+y[i]/n
	}
	var xx, yy, xy float64
	for i := range x {
		dx, dy := x[i]-mx, y[i]-my
		xx, yy, xy = xx+dx*dx, yy+dy*dy, xy+dx*dy
	}
	return min(1, max(-1, xy/math.Sqrt(xx*yy)))
}

// magnitudes is the range of the part of an error in [lo, hi] that counts
// against the bound.
func magnitudes(bound string, lo, hi float64) (from, to float64) {
	switch bound {
	case "at-least":
		return max(0, -hi), max(0, -lo)
	case "at-most":
		return max(0, lo), max(0, hi)
	}
	if lo <= 0 && 0 <= hi {
		return 0, max(-lo, hi)
	}
	return min(math.Abs(lo), math.Abs(hi)), max(math.Abs(lo), math.Abs(hi))
}

func decide(checks []Check, points []Point) (Outcome, []string) {
	var reasons, failed, open []string
	seen := map[string]bool{}
	for _, p := range points {
		if p.Error != "" && !seen[p.Error] {
			seen[p.Error] = true
			reasons = append(reasons, strings.TrimPrefix(p.Label()+": "+p.Error, ": "))
		}
	}
	gated, skipped := 0, 0
	var limits []string         // what made checks undecided, in order
	limited := map[string]int{} // how many
	for _, c := range checks {
		if !c.Gate {
			continue
		}
		if !c.Implied || c.Outcome != Pass {
			gated++
		}
		switch c.Outcome {
		case Skipped:
			skipped++
		case Fail:
			failed = append(failed, c.Title()+": "+c.Message())
		case Inconclusive:
			if Unjudged(c.Code) {
				if !slices.Contains(limits, c.Why) {
					limits = append(limits, c.Why)
				}
				limited[c.Why]++
				continue
			}
			open = append(open, c.Title()+": "+c.Message())
		}
	}
	for _, why := range limits {
		subject := "1 check is"
		if n := limited[why]; n > 1 {
			subject = fmt.Sprintf("%d checks are", n)
		}
		open = append(open, fmt.Sprintf("%s shown and not judged: %s", subject, why))
	}
	outcome := Pass
	switch {
	case len(reasons) > 0:
		outcome = ErrorOutcome
	case len(failed) > 0:
		outcome = Fail
	case len(open) > 0:
		outcome = Inconclusive
	case gated == 0:
		return NotJudged, []string{NothingJudged}
	case gated == skipped:
		return Inconclusive, []string{"every expectation was skipped: nothing was judged"}
	}
	return outcome, append(append(reasons, failed...), open...)
}

// Title names the check: expectation, point, phase and subject.
func (c Check) Title() string {
	parts := []string{c.Expect}
	if c.Point != "" {
		parts = append(parts, c.Point)
	}
	if c.Phase > 0 {
		parts = append(parts, fmt.Sprintf("phase %d", c.Phase+1))
	}
	if c.Of != "" {
		parts = append(parts, c.Of)
	}
	return strings.Join(parts, " ")
}

// Message says what was compared in one line: "measured 341.2 Gbit/s, predicted
// 389.0 Gbit/s ± 2.0 %, bottleneck leaf2->h7".
func (c Check) Message() string {
	var b strings.Builder
	if c.Repeats > 0 {
		kind := cmp.Or(c.Kind, Measured)
		switch {
		case c.Statistic == Correlation:
			fmt.Fprintf(&b, "correlation %s, at least %s", human.QuantityCI(c.Measured, c.Lo, c.Hi, "1"), human.Quantity(1-c.Tolerance, "1"))
		case c.IsError():
			fmt.Fprintf(&b, "%s error %s, at most %s", c.Statistic, c.MeasuredText(), c.ToleranceText())
			if c.Worst != "" {
				fmt.Fprintf(&b, ", worst %s", c.Worst)
			}
		case c.Unpredicted:
			fmt.Fprintf(&b, "%s %s", kind, c.MeasuredText())
		default:
			fmt.Fprintf(&b, "%s %s, %s", kind, c.MeasuredText(), c.wanted())
		}
		if c.Bottleneck != "" {
			fmt.Fprintf(&b, ", bottleneck %s", c.Bottleneck)
		}
	}
	if c.Why != "" {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(c.Why)
	}
	if c.Outcome == Inconclusive && c.More > 0 {
		fmt.Fprintf(&b, " (%s)", c.MoreText())
	}
	return b.String()
}

// MoreText says how many repeats would decide; empty: none would.
func (c Check) MoreText() string {
	switch {
	case c.More >= maxMore:
		return fmt.Sprintf("%d further repeats or more would decide", maxMore)
	case c.More == 1:
		return "1 further repeat should decide"
	}
	return fmt.Sprintf("%d further repeats should decide", c.More)
}

// IsError says whether Measured is itself an error, as for mean and max.
func (c Check) IsError() bool { return c.Statistic == "mean" || c.Statistic == "max" }

// MeasuredText is the observed value with its interval.
func (c Check) MeasuredText() string {
	if c.IsError() && c.Relative {
		return human.Percent(c.Measured)
	}
	return human.QuantityCI(c.Measured, c.Lo, c.Hi, c.Unit)
}

// PredictedText is the prediction, with its sense where the check is one-sided.
func (c Check) PredictedText() string {
	p := human.Quantity(c.Predicted, c.Unit)
	switch c.Bound {
	case "at-least":
		return "≥ " + p
	case "at-most":
		return "≤ " + p
	}
	return p
}

// wanted is what the check asked for: "predicted 0.500 ± 0.03", "at least 0.99".
func (c Check) wanted() string {
	p := human.Quantity(c.Predicted, c.Unit)
	verb := "predicted"
	if c.Predictor == "value" || c.Predictor == "" {
		verb = "expected"
	}
	switch {
	case c.Bound == "at-least":
		verb += " at least"
	case c.Bound == "at-most":
		verb += " at most"
	}
	if c.Tolerance == 0 {
		return verb + " " + p
	}
	return verb + " " + p + " ± " + c.ToleranceText()
}

// ToleranceText is the tolerance in its unit.
func (c Check) ToleranceText() string {
	if c.Predictor == Evidence {
		return ""
	}
	if c.Relative {
		return human.Typed(c.Tolerance*100) + " %" // as it was written, not as a measurement
	}
	if human.Plain(c.Unit) {
		return human.Typed(c.Tolerance)
	}
	return human.Quantity(c.Tolerance, c.Unit)
}

// ModelError sums up how far one predictor is from what was observed of a metric,
// over all sound points, without judging it.
type ModelError struct {
	Predictor string
	Metric    string
	Unit      string
	Relative  bool    // Mean and Max are fractions of the prediction
	Mean, Max float64 // of the error's magnitude
	Worst     string  // where Max is
	N         int
}

// ModelErrors are the errors of every predictor that the points carry, for every
// metric, of repeats of which it said something. Errors of dimensionless metrics are
// absolute, those of others relative; figures predicted 0 are left out of relative ones.
func ModelErrors(points []Point) []ModelError {
	type key struct{ predictor, metric string }
	type subject struct {
		key
		of string
	}
	all := map[key]*ModelError{}
	for _, c := range Settings(points) {
		for phase := range c.Phases {
			observed, predicted := map[subject][]Figure{}, map[subject][]Figure{}
			var order []subject
			for _, p := range c.Repeats {
				if phase >= len(p.Phases) || p.Phases[phase].Spoilt != "" {
					continue
				}
				figures := p.Phases[phase].Figures
				seen := map[[2]string]Figure{}
				for _, f := range figures {
					if f.Kind != Predicted {
						seen[[2]string{f.Metric, f.Of}] = f
					}
				}
				for _, f := range figures {
					o, ok := seen[[2]string{f.Metric, f.Of}]
					if f.Kind != Predicted || !ok {
						continue
					}
					k := subject{key{f.Predictor, f.Metric}, f.Of}
					if predicted[k] == nil {
						order = append(order, k)
					}
					observed[k], predicted[k] = append(observed[k], o), append(predicted[k], f)
				}
			}
			for _, k := range order {
				unit, want := predicted[k][0].Unit, 0.0
				for _, p := range predicted[k] {
					want += p.Value
				}
				want /= float64(len(predicted[k]))
				m := all[k.key]
				if m == nil {
					m = &ModelError{Predictor: k.predictor, Metric: k.metric, Unit: unit, Relative: !human.Plain(unit)}
					all[k.key] = m
				}
				err := math.Abs(Combine(observed[k]).Value - want)
				if errors, ok := missed(observed[k], predicted[k]); ok && ownOf(predicted[k]) { // opposite ones do not cancel out
					err = 0
					for _, e := range errors {
						err += math.Abs(e.Value) / float64(len(errors))
					}
				}
				if m.Relative {
					if want == 0 {
						continue
					}
					err /= math.Abs(want)
				}
				m.N++
				m.Mean += (err - m.Mean) / float64(m.N)
				if err >= m.Max {
					m.Max = err
					m.Worst = strings.TrimSpace(c.Place(phase) + " " + k.of)
				}
			}
		}
	}
	var out []ModelError
	for _, m := range all {
		if m.N > 0 {
			out = append(out, *m)
		}
	}
	slices.SortFunc(out, func(a, b ModelError) int {
		return cmp.Or(cmp.Compare(a.Predictor, b.Predictor), cmp.Compare(a.Metric, b.Metric))
	})
	return out
}

// Glob reports whether name matches pattern, in which * stands for any text and ?
// for one character. An empty pattern matches everything.
func Glob(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	p, n := []rune(pattern), []rune(name)
	pi, ni, star, mark := 0, 0, -1, 0
	for ni < len(n) {
		switch {
		case pi < len(p) && p[pi] == '*':
			star, mark = pi, ni
			pi++
		case pi < len(p) && (p[pi] == '?' || p[pi] == n[ni]):
			pi++
			ni++
		case star >= 0:
			mark++
			pi, ni = star+1, mark
		default:
			return false
		}
	}
	for pi < len(p) && p[pi] == '*' {
		pi++
	}
	return pi == len(p)
}
