package fidelity

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
)

// worstShown is how many of a model's errors the text lists.
const worstShown = 5

// size writes the magnitude of an error.
func size(v float64, relative bool, unit string) string {
	return strings.TrimPrefix(human.SignedError(math.Abs(v), relative, unit), "+")
}

// between writes an interval of magnitudes: "1.2 % (0.8 to 2.0 %)".
func between(v Interval, relative bool, unit string) string {
	s := size(v.Value, relative, unit)
	if v.Hi > v.Lo {
		s += fmt.Sprintf(" (%s to %s)", strings.TrimSuffix(size(v.Lo, relative, unit), " %"), size(v.Hi, relative, unit))
	}
	return s
}

func signed(v Interval, relative bool, unit string) string {
	s := human.SignedError(v.Value, relative, unit)
	if v.Hi > v.Lo {
		s += " ± " + size((v.Hi-v.Lo)/2, relative, unit)
	}
	return s
}

// plain is an interval of a ratio.
func ratio(v Interval) string {
	if v.Hi > v.Lo {
		return fmt.Sprintf("%.3f (%.3f to %.3f)", v.Value, v.Lo, v.Hi)
	}
	return fmt.Sprintf("%.3f", v.Value)
}

// figures of a model's headline, in words.
func (m *Model) figures() string { return human.Plural(m.Fidelity.N, string(m.Over)+" figure") }

// relative says whether the headline is of relative errors.
func (m *Model) relative() bool {
	return !slices.ContainsFunc(m.Groups, func(g Group) bool { return g.Class == m.Over && !g.Relative })
}

// Write writes the report for the terminal.
func (r *Report) Write(w io.Writer) error {
	ref := r.Runs[0]
	title := r.Experiment
	if r.Title != "" {
		title += ": " + r.Title
	}
	fmt.Fprintf(w, "FIDELITY  %s\n", title)
	for i, run := range r.Runs {
		role := "model    "
		if i == 0 {
			role = "reference"
		}
		fmt.Fprintf(w, "  %s  %s, %s, run %s: %s\n", role, run.Name, run.Kind, tail(run.ID), run.Setting)
	}
	for _, s := range r.Warnings {
		fmt.Fprintf(w, "  ! %s\n", s)
	}
	if len(r.Models) == 0 {
		_, err := fmt.Fprintln(w, "\nNothing to compare: no model has a figure that the reference has, too.")
		return err
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "MODEL\tFIGURES ARE\tMEDIAN ERROR, 95 %\tOVER")
	for i := range r.Models {
		m := &r.Models[i]
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", m.Name, m.Kind, between(m.Fidelity.Interval, m.relative(), "1"), m.figures())
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "  the median of |model - %[1]s| / %[1]s; 0 is perfect, and half of the figures are further off\n", ref.Name)
	for i := range r.Models {
		if err := r.Models[i].write(w, ref); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) write(w io.Writer, ref Run) error {
	fmt.Fprintf(w, "\n%s (%s) against %s (%s)\n", m.Name, m.Kind, ref.Name, ref.Kind)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "  FIGURES\tN\tMEDIAN\tMEAN\tMAX\tBIAS\tPEARSON")
	for _, g := range m.Groups {
		r := "-"
		if g.Pearson != nil {
			r = ratio(*g.Pearson)
		}
		fmt.Fprintf(tw, "  %s %s\t%d\t%s\t%s\t%s\t%s\t%s\n", g.Class, g.Metric, g.N,
			size(g.Median.Value, g.Relative, g.Unit), size(g.Mean, g.Relative, g.Unit), size(g.Max, g.Relative, g.Unit), signed(g.Bias, g.Relative, g.Unit), r)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, g := range m.Groups {
		if g.Line != nil {
			fmt.Fprintf(w, "  %s %s: %s = %s x %s %s\n", g.Class, g.Metric, ref.Name, ratio(g.Line.Slope), m.Name, g.Line.offset(g.Unit))
		}
	}
	if len(m.Regimes) > 0 {
		tw = tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(tw, "  REGIME\tOF\tN\tBIAS\tMEDIAN")
		for _, b := range m.Regimes {
			g := m.group(b.Class, b.Metric)
			fmt.Fprintf(tw, "  %s\t%s %s\t%d\t%s\t%s\n", b.Regime, b.Class, b.Metric, b.N, signed(b.Bias, g.Relative, g.Unit), size(b.Median, g.Relative, g.Unit))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	worst := slices.DeleteFunc(slices.Clone(m.Errors), func(e Error) bool { return math.Abs(e.Error.Value) < 1e-6 })
	slices.SortStableFunc(worst, func(a, b Error) int {
		return cmp.Compare(math.Abs(b.Error.Value), math.Abs(a.Error.Value))
	})
	if len(worst) > worstShown {
		worst = worst[:worstShown]
	}
	tw = tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	if len(worst) > 0 {
		fmt.Fprintf(tw, "  FURTHEST OFF\t\t%s\t%s\tERROR\tREGIME\n", strings.ToUpper(ref.Name), strings.ToUpper(m.Name))
	}
	for _, e := range worst {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\t%s\n", e.Metric, e.Name(), human.QuantityCI(e.Reference.Value, e.Reference.Lo, e.Reference.Hi, e.Unit),
			human.QuantityCI(e.Model.Value, e.Model.Lo, e.Model.Hi, e.Unit), signed(e.Error, e.Relative, e.Unit), e.Regime)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if m.Idle > 0 {
		fmt.Fprintf(w, "  %s left out: idle on both sides\n", human.Plural(m.Idle, "link figure"))
	}
	if len(m.Missing) > 0 {
		fmt.Fprintf(w, "  ! %s says nothing of %s\n", m.Name, m.missing())
	}
	return nil
}

// missing is what a model says nothing of, in words; the first few.
func (m *Model) missing() string {
	n, more := len(m.Missing), ""
	if n > worstShown {
		more = fmt.Sprintf(" and %d more", n-worstShown)
	}
	return strings.Join(m.Missing[:min(n, worstShown)], "; ") + more
}

// offset writes the intercept with its sign.
func (l *Line) offset(unit string) string {
	sign, v := "+", l.Intercept
	if v.Value < 0 {
		sign, v = "-", Interval{-v.Value, -v.Hi, -v.Lo}
	}
	return sign + " " + human.QuantityCI(v.Value, v.Lo, v.Hi, unit)
}

// Drawing is a picture of one metric of a model.
type Drawing struct {
	Name string // of a file, without its ending: "fidelity-sim-goodput"
	SVG  string
}

// Drawings are the reference over each model, metric by metric, coloured by regime.
func (r *Report) Drawings() []Drawing {
	var out []Drawing
	for i := range r.Models {
		m := &r.Models[i]
		for _, g := range m.Groups {
			out = append(out, Drawing{"fidelity-" + fileName(m.Name) + "-" + fileName(g.Metric), plot.Alone(plot.AgreementSVG(r.agreement(m, g)))})
		}
	}
	return out
}

// agreement is the reference over a model, in one metric, coloured by regime.
func (r *Report) agreement(m *Model, g Group) plot.Agreement {
	a := plot.Agreement{
		Title:   fmt.Sprintf("%s: %s of %ss, %s against %s", r.Experiment, g.Metric, g.Class, r.Runs[0].Name, m.Name),
		Measure: g.Metric, Unit: g.Unit, Model: fmt.Sprintf("%s, %s", m.Name, m.Kind), Seen: fmt.Sprintf("%s, %s", r.Runs[0].Name, r.Runs[0].Kind),
		Slope: math.NaN(), Intercept: math.NaN(),
	}
	for _, reg := range regimes {
		a.Groups = append(a.Groups, string(reg))
	}
	for _, e := range m.Errors {
		if e.Class != g.Class || e.Metric != g.Metric {
			continue
		}
		a.Points = append(a.Points, plot.AgreementPoint{
			X: e.Model.Value, XLo: e.Model.Lo, XHi: e.Model.Hi, Y: e.Reference.Value, YLo: e.Reference.Lo, YHi: e.Reference.Hi,
			Group: slices.Index(regimes, e.Regime),
			Title: fmt.Sprintf("%s: %s %s, %s %s, %s", e.Name(), r.Runs[0].Name, human.Quantity(e.Reference.Value, e.Unit),
				m.Name, human.Quantity(e.Model.Value, e.Unit), human.SignedError(e.Error.Value, e.Relative, e.Unit)),
		})
	}
	a.Notes = []string{human.Plural(g.N, "figure"), "median error " + size(g.Median.Value, g.Relative, g.Unit), "bias " + signed(g.Bias, g.Relative, g.Unit)}
	if g.Line != nil {
		a.Slope, a.Intercept = g.Line.Slope.Value, g.Line.Intercept.Value
		a.Notes = append(a.Notes, "slope "+ratio(g.Line.Slope), "intercept "+human.QuantityCI(g.Line.Intercept.Value, g.Line.Intercept.Lo, g.Line.Intercept.Hi, g.Unit))
	}
	if g.Pearson != nil {
		a.Notes = append(a.Notes, "r "+ratio(*g.Pearson))
	}
	return a
}

// fileName keeps letters, digits and a few signs of a name.
func fileName(s string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, s), "-.")
}
