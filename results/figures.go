package results

import (
	"encoding/csv"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// A figureRow is an observed figure of one repeat beside one thing that it was held against: a
// prediction, a value, or nothing.
type figureRow struct {
	point     *Point
	phase     int
	metric    string
	of, unit  string
	observed  *Figure // nil where it was only predicted
	predictor string  // empty: nothing
	predicted float64
	neck      string
	check     *Check // the verdict on its cell; nil without one
}

// figureRows are all figures of the run, in the order of the record.
func (rec *Record) figureRows() (out []figureRow) {
	type cell struct {
		index, phase int
		metric, of   string
	}
	checks := map[cell][]*Check{}
	for i := range rec.Checks {
		if c := &rec.Checks[i]; !c.IsError() && c.Statistic != Correlation && c.Predictor != Evidence {
			k := cell{c.Index, c.Phase, c.Metric, c.Of}
			checks[k] = append(checks[k], c)
		}
	}
	for i := range rec.Points {
		p := &rec.Points[i]
		for phase := range p.Phases {
			figures := p.Phases[phase].Figures
			var order []cell
			rows, observed := map[cell][]figureRow{}, map[cell]*Figure{}
			for j := range figures {
				f := &figures[j]
				k := cell{p.Index, phase, f.Metric, f.Of}
				if observed[k] == nil && rows[k] == nil {
					order = append(order, k)
				}
				if f.Kind != Predicted {
					observed[k] = f
				} else {
					rows[k] = append(rows[k], figureRow{unit: f.Unit, predictor: f.Predictor, predicted: f.Value, neck: f.Bottleneck})
				}
			}
			for _, k := range order {
				all := rows[k]
				for _, c := range checks[k] {
					r := figureRow{unit: c.Unit, predictor: c.Predictor, predicted: c.Predicted} // by no model: a value, or other points
					i := slices.IndexFunc(rows[k], func(r figureRow) bool { return r.predictor == c.Predictor })
					switch {
					case i >= 0 && all[i].check == nil:
						all[i].check = c
						continue
					case i >= 0: // by another tolerance
						r = rows[k][i]
					case c.Repeats == 0:
						continue
					}
					r.check = c
					all = append(all, r)
				}
				if len(all) == 0 {
					all = []figureRow{{unit: observed[k].Unit}}
				}
				for _, r := range all {
					r.point, r.phase, r.metric, r.of, r.observed = p, phase, k.metric, k.of, observed[k]
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// CSVRow is a row of texts for who opens the file in a spreadsheet: a cell that this would take for a
// formula, and is no number, begins with a quotation mark. It changes row.
func CSVRow(row []string) []string {
	for i, cell := range row {
		if len(cell) < 2 || !strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			continue
		}
		if _, err := strconv.ParseFloat(cell, 64); err != nil {
			row[i] = "'" + cell
		}
	}
	return row
}

// WriteCSV writes every figure of every repeat: a row for each figure and each thing that it is
// held against, and by each expectation of that, in base units. Swept keys are columns, whose names are those of the experiment.
// The column verdict is that of the check of the row's cell, in which repeats are combined. The column
// error is the row's own: measured - predicted, or that over the prediction where the check's tolerance is
// relative, as the column relative says. Without a check it is measured - predicted, and verdict is empty.
// Cells that are not known are empty.
func WriteCSV(w io.Writer, rec *Record) error {
	var keys []string
	for _, p := range rec.Points {
		for _, k := range SweptKeys(p) {
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	out := csv.NewWriter(w)
	head := []string{"run", "experiment", "point", "repeat", "phase"}
	head = append(head, keys...)
	_ = out.Write(append(CSVRow(head), "sound", "metric", "of", "unit", "kind", "measured", "low", "high", "n",
		"predictor", "predicted", "bottleneck", "error", "relative", "verdict", "gate", "code"))
	for _, r := range rec.figureRows() {
		row := []string{rec.ID, rec.Name, strconv.Itoa(r.point.Index), strconv.Itoa(r.point.Repeat), strconv.Itoa(r.phase)}
		for _, k := range keys {
			value, _, _ := r.point.Split(k) // empty where the point has none
			row = append(row, value)
		}
		row = append(row, strconv.FormatBool(r.point.UnsoundIn(r.phase) == ""), r.metric, r.of, r.unit)
		if f := r.observed; f != nil {
			row = append(row, string(f.Kind), human.Exact(f.Value), human.Exact(f.Lo), human.Exact(f.Hi), strconv.Itoa(f.N))
		} else {
			row = append(row, "", "", "", "", "")
		}
		if r.check != nil && r.check.Unpredicted {
			row = append(row, r.predictor, "", "")
		} else if r.predictor != "" {
			row = append(row, r.predictor, human.Exact(r.predicted), r.neck)
		} else {
			row = append(row, "", "", "")
		}
		switch c := r.check; {
		case c != nil:
			row = append(row, r.error(), strconv.FormatBool(c.Relative), string(c.Outcome), strconv.FormatBool(c.Gate), c.FailureCode())
		case r.observed != nil && r.predictor != "":
			row = append(row, human.Exact(r.observed.Value-r.predicted), "false", "", "", "")
		default:
			row = append(row, "", "", "", "", "")
		}
		_ = out.Write(CSVRow(row))
	}
	out.Flush()
	return out.Error() // the first of all
}

// error is the row's own in the unit of its check, as the file has it; empty where there is none.
func (r *figureRow) error() string {
	c := r.check
	if r.observed == nil || c.Repeats == 0 || c.Unpredicted {
		return ""
	}
	err := r.observed.Value - r.predicted
	if c.Relative && err != 0 {
		unit := math.Abs(r.predicted)
		if unit == 0 { // of an idle link: see Judge
			for _, f := range r.point.Phases[r.phase].Figures {
				if f.Kind == Predicted && f.Metric == r.metric && f.Predictor == r.predictor {
					unit = max(unit, math.Abs(f.Value))
				}
			}
		}
		err /= unit
	}
	if !human.Finite(err) {
		return ""
	}
	return human.Exact(err)
}

// SweptKeys are a point's swept keys in the order of its labels.
func SweptKeys(p Point) []string {
	var keys []string
	for _, l := range p.Labels {
		k, _, _ := strings.Cut(l, "=")
		if _, ok := p.Params[k]; ok && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(p.Params)) {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}
