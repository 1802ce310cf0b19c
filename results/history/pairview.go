package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Outcome is fail if anything got worse, inconclusive if that cannot be said.
func (p *Pair) Outcome() results.Outcome {
	switch {
	case !p.Judged:
		return results.Inconclusive
	case p.Count(Worse) > 0:
		return results.Fail
	case p.Count(Undecided)+p.Count(Gone) > 0, p.compared() == 0:
		return results.Inconclusive
	}
	return results.Pass
}

// compared counts the figures that both runs have and whose change is decided.
func (p *Pair) compared() int {
	return p.Count(Worse) + p.Count(Changed) + p.Count(Improved) + p.Count(Unchanged)
}

// Code is what inabench explain knows of the outcome; empty for a pass.
func (p *Pair) Code() string {
	switch {
	case !p.Judged:
		return results.CodeSettings
	case p.Outcome() == results.Fail:
		return results.CodeRegression
	case p.Outcome() == results.Inconclusive && p.Spoilt() > 0 && p.Spoilt() == p.Count(Undecided):
		return results.CodeLimited
	case p.Outcome() == results.Inconclusive && p.compared()+p.Count(Undecided) == 0:
		return results.CodeNoFigure
	case p.Outcome() == results.Inconclusive:
		return results.CodeNoise
	}
	return ""
}

// Words are the outcome in words.
func (p *Pair) Words() string {
	if !p.Judged {
		return fmt.Sprintf("not judged (%s): the settings differ", p.Code())
	}
	text := counted(p.Count)
	if text == "" {
		text = "no figure that both have"
	}
	if p.Code() != "" {
		text = p.Code() + ": " + text
	}
	return text
}

// counted says in words how many figures changed how.
func counted(count func(PairChange) int) string {
	var parts []string
	for _, c := range pairOrder {
		if n := count(c); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	return strings.Join(parts, ", ")
}

// listed returns the figures to list, all of them or, of a judged pair, those that changed, and how many unchanged ones are
// left out. Figures that the testbed limited are listed only if all are.
func (p *Pair) listed(all bool) (out []PairFigure, left int) {
	for _, f := range p.Figures {
		if f.Spoilt && !all {
			continue
		}
		if all || !p.Judged || f.Change != Unchanged {
			out = append(out, f)
		} else {
			left++
		}
	}
	return out, left
}

var pairColumns = []string{"METRIC", "POINT", "PHASE", "OF", "BEFORE", "AFTER", "CHANGE", "95 % INTERVAL", "VERDICT"}

// cells are a figure's row.
func (p *Pair) cells(f PairFigure) []string {
	value := func(figures []float64, median float64) string {
		if len(figures) == 0 {
			return "-"
		}
		return human.Quantity(median, f.Unit)
	}
	row := []string{f.Metric, f.Point, fmt.Sprint(f.Phase + 1), f.Of, value(f.Before, f.Verdict.Baseline), value(f.After, f.Verdict.Tonight), "-", "-", string(f.Change)}
	if len(f.Before) > 0 && len(f.After) > 0 {
		row[6] = human.SignedError(f.Verdict.Shift, true, "")
		if p.Judged {
			row[7] = human.SignedError(f.Verdict.Lo, true, "") + " to " + human.SignedError(f.Verdict.Hi, true, "")
		}
	}
	if f.Needs > 0 {
		row[8] += fmt.Sprintf(", %d repeats should tell", f.Needs)
	}
	return row
}

// Table returns the listed figures as rows, all of them or those that changed, and how many unchanged ones are left out.
// Columns without text are omitted.
func (p *Pair) Table(all bool) (head []string, rows [][]string, left int) {
	figures, left := p.listed(all)
	phases := slices.ContainsFunc(p.Figures, func(f PairFigure) bool { return f.Phase > 0 })
	var cells [][]string
	for _, f := range figures {
		cells = append(cells, p.cells(f))
	}
	var keep []int
	for i, name := range pairColumns {
		if slices.ContainsFunc(cells, func(r []string) bool { return r[i] != "" && r[i] != "-" }) && (name != "PHASE" || phases) {
			keep = append(keep, i)
		}
	}
	pick := func(row []string) (out []string) {
		for _, i := range keep {
			out = append(out, row[i])
		}
		return out
	}
	for _, r := range cells {
		rows = append(rows, pick(r))
	}
	return pick(pairColumns), rows, left
}

// Summaries say of each metric what became of its figures, a line each.
func (p *Pair) Summaries() (out []string) {
	for _, m := range p.Metrics {
		text := m.Metric + ": " + counted(func(c PairChange) int { return m.Counts[c] })
		if m.Compared > 0 {
			text += "; median change " + human.SignedError(m.Shift, true, "")
			if m.Lo != m.Hi {
				text += ", half of them " + human.SignedError(m.Lo, true, "") + " to " + human.SignedError(m.Hi, true, "")
			}
		}
		out = append(out, text)
	}
	return out
}
