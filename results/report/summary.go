package report

import (
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// summary is the record's Summary as a table: a row a point, a column a metric of the
// Cluster, with the mean over the repeats and its interval.
type summary struct {
	Keys    []string // swept keys, their last parts
	Metrics []string
	Rows    []summaryRow
	Repeats int

	Repeating *results.Repeating // that ended the repeats; nil: they were counted
}

type summaryRow struct {
	Labels []string // values of the keys
	Values []string // of the metrics
	Sort   []string // the same to sort by
}

// summarize is nil where there is nothing to list.
func summarize(rec *results.Record) *summary {
	s := &summary{Repeating: rec.Repeating}
	cells := results.Settings(rec.Points)
	var keys, metrics []string
	for _, c := range cells {
		for _, l := range c.Label {
			if k, _, ok := strings.Cut(l, "="); ok && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	of := map[string][]datum{}
	for _, m := range besides(rec.Summary) {
		ds := data(cells, m, func(of string) bool { return of == results.Cluster })
		if ds = slices.DeleteFunc(ds, func(d datum) bool { return !d.seen }); len(ds) > 0 {
			of[m], metrics = ds, append(metrics, m)
		}
	}
	for _, k := range keys {
		s.Keys = append(s.Keys, human.LastKey(k))
	}
	for _, m := range metrics {
		s.Metrics = append(s.Metrics, human.Measure(m))
	}
	for i, c := range cells {
		s.Repeats = max(s.Repeats, len(c.Repeats))
		row := summaryRow{}
		for _, k := range keys {
			row.Labels = append(row.Labels, labelOf(c.Label, k))
		}
		some := false
		for _, m := range metrics {
			j := slices.IndexFunc(of[m], func(d datum) bool { return d.cell == i })
			if j < 0 {
				row.Values, row.Sort = append(row.Values, "–"), append(row.Sort, "")
				continue
			}
			f := of[m][j].observed
			some = true
			row.Values, row.Sort = append(row.Values, human.QuantityCI(f.Value, f.Lo, f.Hi, f.Unit)), append(row.Sort, human.Exact(f.Value))
		}
		if some {
			s.Rows = append(s.Rows, row)
		}
	}
	if len(s.Rows) == 0 || len(metrics) == 0 {
		return nil
	}
	return s
}

// Note says what the intervals are.
func (s *summary) Note() string {
	means := "means of " + human.Plural(s.Repeats, "repeat") + " with 95 % intervals"
	if s.Repeats < 2 {
		means = "one repeat: no intervals"
	}
	switch r := s.Repeating; {
	case r == nil:
		return means
	case r.Repeats == 0: // it was cut off
		return means + "; " + r.String()
	case r.Holds() == "":
		return "means with 95 % intervals of " + r.String()
	default:
		return "means with 95 % intervals of " + r.String() + "; " + r.Holds()
	}
}

// summary writes the table.
func (t *texter) summary() {
	s := summarize(t.rec)
	if s == nil {
		return
	}
	t.b.WriteString("\n")
	t.wrapped("", "  ", human.UpperFirst(string(t.rec.Kind))+" figures, "+s.Note())
	rows := [][]string{append([]string{strings.Join(s.Keys, " ")}, s.Metrics...)}
	for _, r := range s.Rows {
		labels := make([]string, len(r.Labels))
		for i, l := range r.Labels {
			labels[i] = l
			if l == "" {
				labels[i] = "–"
			}
		}
		rows = append(rows, append([]string{strings.Join(labels, " ")}, r.Values...))
	}
	t.grid(rows)
}
