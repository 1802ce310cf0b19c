package results

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// Reproduced says whether a run shows what a paper printed. It is no verdict and decides nothing.
type Reproduced string

// Words of the column "reproduced?".
const (
	ReproducedYes       Reproduced = "yes"        // the same is ahead, by about as much
	ReproducedOrder     Reproduced = "order only" // the same is ahead, by another amount
	ReproducedNo        Reproduced = "no"         // another is ahead
	ReproducedNotRun    Reproduced = "not run"    // the run has no such points
	ReproducedUndecided Reproduced = "undecided"  // intervals are too wide, or there are none
)

// reproducedRank are the words from the best to the worst, of which several statements come to the last.
var reproducedRank = []Reproduced{ReproducedYes, ReproducedNotRun, ReproducedUndecided, ReproducedOrder, ReproducedNo}

// Worse says whether a figure of both statements comes to this one's word.
func (r Reproduced) Worse(than Reproduced) bool {
	return slices.Index(reproducedRank, r) > slices.Index(reproducedRank, than)
}

// Bounds of what is published.
const (
	UpTo    = "up-to"    // the largest effect of several
	AtLeast = "at-least" // the smallest of several
)

// Limits of what counts as the same.
const (
	SameFactor = 1.25  // an effect, in either direction
	rounding   = 0.005 // who is ahead by less is not ahead: papers print whole per cents
)

// printed is by how much an effect may differ from what a paper prints of it: half of the last digit, of whole per cents where
// there are no decimals.
func printed(v float64) float64 {
	half := rounding
	for ; half > 1e-6; half /= 10 {
		if digits := v / (2 * half); math.Abs(digits-math.Round(digits)) < 1e-6 {
			break
		}
	}
	return half
}

// Reproduction is one published statement beside what was found.
type Reproduction struct {
	Figure  string `json:"figure"` // "Figure 9"
	Metric  string `json:"metric"`
	At      string `json:"at,omitempty"`      // label of the points that it is about
	Against string `json:"against,omitempty"` // the value that the reference is against; empty: several
	Paper   string `json:"paper"`             // "up to 78 % less"
	Text    string `json:"text,omitempty"`    // where the paper says so

	// Here is the effect of the reference as a fraction, as in Published, with its 95 % interval: the mean
	// of all, or of "up-to" the largest, of "at-least" the smallest, of a range that of its larger end.
	// It is nil where nothing was found.
	Here *Effect `json:"here,omitempty"`
	// Found is Here in words where it is a figure with a unit, and no change.
	Found string `json:"found,omitempty"`
	Of    int    `json:"of,omitempty"` // effects that it is drawn from

	Order     string     `json:"order,omitempty"`     // "same", "reversed" or "undecided"
	Ratio     float64    `json:"ratio,omitempty"`     // Here over the paper's
	Magnitude string     `json:"magnitude,omitempty"` // "same" (within a factor of 1.25), "differs" or "undecided"
	Overlap   string     `json:"overlap,omitempty"`   // whether the interval meets what the paper prints: "yes" or "no"
	Word      Reproduced `json:"reproduced"`
	Why       string     `json:"why,omitempty"` // of one that is not run or undecided
}

// Effect is by how much one is ahead of another, as a fraction, with its 95 % interval. Without Sure
// there is none: it is of one repeat.
type Effect struct {
	Value float64 `json:"value"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
	Sure  bool    `json:"sure"`
}

// effect is the change of the reference against the value.
func (c Compared) effect() Effect {
	change := func(ratio float64) float64 { return 1/ratio - 1 }
	return Effect{Value: c.Change(), Lo: change(c.Hi), Hi: change(c.Lo), Sure: c.Pairs > 1}
}

func (e Effect) turned() Effect { return Effect{-e.Value, -e.Hi, -e.Lo, e.Sure} }

// BoundText is that of the statement: a range from 0 is "up to" its other end.
func (p Published) BoundText() string {
	if p.Bound == "" && p.Lo != p.Hi && (p.Lo == 0 || p.Hi == 0) {
		return UpTo
	}
	return p.Bound
}

// Reproduce sets what is published beside what the record found: of its comparison, and single
// figures. It is statement by statement, in the order of the experiment; nil where nothing is.
func (rec *Record) Reproduce() (out []Reproduction) {
	if rec.Comparison != nil {
		groups := rec.Compare()
		for _, p := range rec.Comparison.Published {
			out = append(out, p.reproduced(rec.Comparison, groups, rec.Narrowed))
		}
	}
	for _, p := range rec.Published {
		out = append(out, p.reproduced(rec.Points, rec.Scale, rec.Narrowed))
	}
	return out
}

// reproduced finds the effects that p is about, and judges them.
func (p Published) reproduced(compared *Comparison, groups []Group, narrowed []string) Reproduction {
	r := Reproduction{Figure: p.figure(), Metric: p.Metric, At: p.At, Against: p.Against, Paper: p.Claim(), Text: p.Text}
	var all []Effect
	ran, why, bare := false, "", ""
	spoilt := false // something was measured where there is no contrast
	for _, g := range groups {
		if p.At != "" && !slices.Contains(g.Labels, p.At) {
			continue
		}
		c, ok := g.Contrast(p.Metric)
		if !ok {
			bare = cmp.Or(bare, strings.TrimSpace(g.Place()+" "+g.Unsound))
			spoilt = spoilt || g.Unsound != ""
			continue
		}
		for _, v := range p.Among {
			if _, ok := c.Of(v); !ok && v != compared.Reference {
				bare = cmp.Or(bare, strings.TrimSpace(g.Place()+" has no "+v))
			}
		}
		for _, x := range c.Values {
			if x.Value == compared.Reference || p.Against != "" && x.Value != p.Against || len(p.Among) > 0 && !slices.Contains(p.Among, x.Value) {
				continue
			}
			ran = true
			if e := x.effect(); human.Finite(e.Value, e.Lo, e.Hi) {
				all = append(all, e)
			} else if why == "" {
				why = strings.TrimSpace(g.Place()+" "+x.Value) + ": " + cmp.Or(x.Why, "its figure or the reference's is 0")
			}
		}
	}
	switch {
	case !ran && !spoilt:
		r.Word, r.Why = ReproducedNotRun, "the run has no such points"
	case why != "":
		r.Word, r.Why = ReproducedUndecided, why
	case bare != "": // what could not be told there may be against it
		r.Word, r.Why = ReproducedUndecided, bare
	default:
		r.judge(p.Lo, p.Hi, p.BoundText(), all)
		fixed := []string{p.At}
		if p.Against != "" || len(p.Among) > 0 {
			fixed = append(fixed, compared.Key)
		}
		r.narrow(narrowed, fixed)
	}
	return r
}

// narrow leaves a statement undecided that is about all values of a swept key of which the run has others than the experiment,
// but of keys that are fixed by what it is about, or by labels of it.
func (r *Reproduction) narrow(narrowed, fixed []string) {
	if key := left(narrowed, fixed); key != "" && r.Word != ReproducedUndecided {
		r.Word, r.Why = ReproducedUndecided, Some(key)
	}
}

// left is the first of narrowed keys that is not among those, or labels of those, that are fixed.
func left(narrowed, fixed []string) string {
	for _, key := range narrowed {
		if !slices.ContainsFunc(fixed, func(f string) bool { k, _, _ := strings.Cut(f, "="); return k == key }) {
			return key
		}
	}
	return ""
}

// Left is the first swept key of which the run has other values than its experiment, where that matters to a statement
// about all points with some labels; empty: none.
func (rec *Record) Left(labels []string) string { return left(rec.Narrowed, labels) }

// Some says why a statement about all values of a key is undecided by a run of some.
func Some(key string) string {
	return "the paper's is about all values of " + key + ", and this run has some"
}

// Judge holds effects, of which there is one at least, against a statement from lo to hi.
//
// Who is ahead must be the same: on average, and nowhere surely another, or anybody where the paper has none, by more than
// rounding. Where the paper has either ahead, both may be. By how much must be the same within SameFactor of what may have been
// printed so: of a single figure the mean, of "up-to" the largest effect, of "at-least" the smallest, of a range both. An effect
// whose interval is neither inside nor outside of that counts as inside where it is itself, and half its interval is less than what the factor allows.
func (r *Reproduction) judge(lo, hi float64, bound string, all []Effect) {
	all = slices.Clone(all)
	lo, hi = min(lo, hi), max(lo, hi)
	sign := 1.0
	if lo+hi < 0 { // turn it round: the paper's effect is positive
		sign, lo, hi = -1, -hi, -lo
		for i := range all {
			all[i] = all[i].turned()
		}
	}
	mean := Effect{Sure: true}
	n := float64(len(all))
	for _, e := range all {
		mean.Value, mean.Lo, mean.Hi, mean.Sure = mean.Value+e.Value/n, mean.Lo+e.Lo/n, mean.Hi+e.Hi/n, mean.Sure && e.Sure
	}
	by := func(a, b Effect) int { return cmp.Compare(a.Value, b.Value) }
	smallest, largest := slices.MinFunc(all, by), slices.MaxFunc(all, by)

	here, target := mean, hi
	var sizes []string
	switch {
	case bound == UpTo:
		here, sizes = largest, []string{size(largest, hi)}
	case bound == AtLeast:
		here, target = smallest, lo
		sizes = []string{size(smallest, lo)}
		if smallest.Lo >= lo-printed(lo) { // more is as well
			sizes = []string{"same"}
		}
	case lo == hi:
		sizes = []string{size(mean, lo)}
	default:
		here, sizes = largest, []string{size(smallest, lo), size(largest, hi)}
	}
	r.Of = len(all)
	if r.Here = &here; sign < 0 {
		turned := here.turned()
		r.Here = &turned
	}
	if math.Abs(target) > rounding {
		r.Ratio = here.Value / target
	}
	if !mean.Sure {
		r.Order, r.Magnitude, r.Word, r.Why = "undecided", "undecided", ReproducedUndecided, "one repeat has no interval"
		return
	}
	r.Order = order(mean, all, lo, hi, bound)
	r.Magnitude = "same"
	for _, worse := range []string{"undecided", "differs"} {
		if slices.Contains(sizes, worse) {
			r.Magnitude = worse
		}
	}
	r.Overlap = "no"
	meets := func(e Effect, from, to float64) bool { return e.Lo <= to+printed(to) && from-printed(from) <= e.Hi }
	switch {
	case bound == UpTo && meets(largest, hi, hi), bound == AtLeast && smallest.Hi >= lo-printed(lo), bound == "" && lo == hi && meets(mean, lo, hi):
		r.Overlap = "yes"
	case bound == "" && lo != hi && meets(Effect{Lo: smallest.Lo, Hi: largest.Hi}, lo, hi):
		r.Overlap = "yes"
	}
	switch {
	case r.Order == "reversed":
		r.Word = ReproducedNo
	case r.Order == "undecided":
		r.Word, r.Why = ReproducedUndecided, "intervals do not tell who is ahead"
	case r.Magnitude == "same":
		r.Word = ReproducedYes
	case r.Magnitude == "differs":
		r.Word = ReproducedOrder
	default:
		r.Word, r.Why = ReproducedUndecided, "the interval is too wide to tell by how much"
	}
}

// order says whether the one that is ahead in the paper, by effects from lo to hi, of which the sum is not negative, is so here:
// one that is level there is neither ahead nor behind, and of one that is either nobody is surely further than there.
func order(mean Effect, all []Effect, lo, hi float64, bound string) string {
	none := lo < -rounding || hi <= rounding // that is ahead everywhere
	behind, ahead := -rounding, math.Inf(1)
	switch {
	case lo < -rounding:
		behind, ahead = lo*SameFactor-rounding, hi*SameFactor+rounding
	case none && bound != AtLeast:
		ahead = rounding
	}
	surely := func(e Effect) bool { return e.Hi < behind || e.Lo > ahead }
	switch {
	case slices.ContainsFunc(all, surely), !none && mean.Hi < 0:
		return "reversed"
	case !none && mean.Lo > 0, none && mean.Lo >= behind && mean.Hi <= ahead:
		return "same"
	}
	return "undecided"
}

// size compares an effect with what is published.
func size(e Effect, target float64) string { return within(e, target, SameFactor, printed(target)) }

// within compares an estimate with a target that is known give or take slack, from which it may differ by a factor.
func within(e Effect, target, factor, slack float64) string {
	a, b := target-slack, target+slack
	a, b = min(a/factor, a*factor), max(b/factor, b*factor)
	switch half := (e.Hi - e.Lo) / 2; {
	case a <= e.Lo && e.Hi <= b, a <= e.Value && e.Value <= b && half <= max((factor-1)*math.Abs(target), slack):
		return "same"
	case e.Hi < a || e.Lo > b:
		return "differs"
	}
	return "undecided"
}

var figureName = regexp.MustCompile(`(?i)\b(figure|table|section|appendix) [\w.-]*\w`)

// figure is what the statement is of: its Figure, or the first that its Text names.
func (p Published) figure() string {
	if p.Figure != "" {
		return p.Figure
	}
	return human.UpperFirst(cmp.Or(figureName.FindString(p.Text), "the paper"))
}

// Claim is what is printed, without where: "up to 78 % less".
func (p Published) Claim() string {
	lo, hi := min(p.Lo, p.Hi), max(p.Lo, p.Hi)
	end := hi
	if lo+hi < 0 {
		end = lo
	}
	switch p.BoundText() {
	case UpTo:
		return "up to " + human.Change(end, end, human.PercentTyped)
	case AtLeast:
		if end = lo; lo+hi < 0 {
			end = hi
		}
		return "at least " + human.Change(end, end, human.PercentTyped)
	}
	return human.Change(lo, hi, human.PercentTyped)
}

// Contrast is what the statement is against, and at which points: " against tetris at oversubscription=20".
func (r Reproduction) Contrast() (s string) {
	if r.Against != "" {
		s = " against " + r.Against
	}
	if r.At != "" {
		s += " at " + human.ShortLabel(r.At)
	}
	return s
}

// Words is what was found: "19 % less (15 to 23)".
func (r Reproduction) Words() string {
	if r.Here == nil || r.Found != "" {
		return r.Found
	}
	s := human.Change(r.Here.Value, r.Here.Value, human.PercentDigits)
	if r.Here.Sure && r.Here.Lo != r.Here.Hi {
		s += fmt.Sprintf(" (95 %%: %s)", human.Change(r.Here.Lo, r.Here.Hi, human.PercentDigits))
	}
	return s
}
