package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// reproducedFigure are the statements of one figure, and what they come to: the worst of them.
type reproducedFigure struct {
	Name string
	Word results.Reproduced
	All  []results.Reproduction
}

// figures groups the record's statements by figure, in the order of the first of each.
func reproducedFiguresOf(rec *results.Record) (out []reproducedFigure) {
	for _, r := range rec.Reproduced {
		i := slices.IndexFunc(out, func(f reproducedFigure) bool { return f.Name == r.Figure })
		if i < 0 {
			i, out = len(out), append(out, reproducedFigure{Name: r.Figure, Word: r.Word})
		}
		f := &out[i]
		f.All = append(f.All, r)
		if r.Word.Worse(f.Word) {
			f.Word = r.Word
		}
	}
	return out
}

// ofReproduction is what a statement is about: "average JCT against tetris at oversubscription=20".
func ofReproduction(r results.Reproduction) string {
	return human.Measure(r.Metric) + r.Contrast()
}

// sizeOfReproduction is the ratio in words: "0.24 of the paper's, differs".
func sizeOfReproduction(r results.Reproduction) string {
	if r.Ratio == 0 {
		return r.Magnitude
	}
	return fmt.Sprintf("%.2f, %s", r.Ratio, r.Magnitude)
}

// reproducedNote says what the column is.
const reproducedNote = "of what papers print, beside the verdict, which it does not change: yes is the same one ahead, by as much within a factor of 1.25"

// reproduced writes the column: figure by figure, and statement by statement.
func (t *texter) reproduced() {
	for i, f := range reproducedFiguresOf(t.rec) {
		if i == 0 {
			t.b.WriteString("\n")
			t.wrapped("reproduced?  ", "  ", reproducedNote)
		}
		for k, r := range f.All {
			name := f.Name
			if k > 0 {
				name = strings.Repeat(" ", len([]rune(name)))
			}
			t.wrapped(fmt.Sprintf("  %s  %-10s  ", name, r.Word), "    ", ofReproduction(r))
			line := "paper " + r.Paper
			if here := hereOf(t.rec, r); here != "" {
				line += "; here " + here
			}
			if r.Order != "" {
				line += "; order " + r.Order
			}
			if r.Magnitude != "" {
				line += "; magnitude " + sizeOfReproduction(r)
			}
			if r.Overlap != "" {
				line += ", intervals overlap: " + r.Overlap
			}
			if r.Why != "" {
				line += "; " + r.Why
			}
			t.wrapped("    ", "    ", line)
		}
	}
}

// reproduced writes the same as a table.
func (m *markdown) reproduced(rec *results.Record) {
	figures := reproducedFiguresOf(rec)
	if len(figures) == 0 {
		return
	}
	m.printf("\n### Reproduced?\n\n%s\n", human.UpperFirst(reproducedNote))
	var rows [][]string
	for _, f := range figures {
		for _, r := range f.All {
			rows = append(rows, append([]string{f.Name}, cellsOfReproduction(rec, r)...))
		}
	}
	m.table(append([]string{"figure"}, reproducedHead...), rows)
}

// reproducedHead are the columns of a statement.
var reproducedHead = []string{"of", "paper", "here", "order", "magnitude", "intervals overlap", "reproduced?", "why"}

func cellsOfReproduction(rec *results.Record, r results.Reproduction) []string {
	return []string{ofReproduction(r), r.Paper, hereOf(rec, r), r.Order, sizeOfReproduction(r), r.Overlap, string(r.Word), r.Why}
}

// reproducedView is the column in the HTML report.
type reproducedView struct {
	Note string
	Head []string
	Rows []reproducedRow
}

type reproducedRow struct {
	Figure, Word string
	Cells        []string
}

func viewReproduced(rec *results.Record) *reproducedView {
	v := &reproducedView{Note: human.UpperFirst(reproducedNote) + ".", Head: reproducedHead}
	for _, f := range reproducedFiguresOf(rec) {
		for _, r := range f.All {
			v.Rows = append(v.Rows, reproducedRow{f.Name, string(f.Word), cellsOfReproduction(rec, r)})
		}
	}
	if len(v.Rows) == 0 {
		return nil
	}
	return v
}
