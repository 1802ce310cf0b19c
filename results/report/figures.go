package report

import (
	"html/template"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/plot"
)

// Figure is a drawing of a report by itself, as a paper takes it.
type Figure struct {
	Name  string // of a file, without its ending; unique among those of a run
	Title string
	SVG   string     // whole: it needs nothing of a page
	Rows  [][]string // what is drawn, the first row names the columns; nil of what is no diagram, such as a topology
}

// Figures are the drawings of a run's report, in their order there, laid out so many pixels wide; 0: each as the
// report has it. Topologies, trees, placements and pasts have sizes of their own.
func Figures(rec *results.Record, samples []results.Sample, beside Beside, width float64) []Figure {
	p := newPage(rec, samples, beside, width)
	var out []Figure
	names := map[string]bool{}
	add := func(name, title string, svg template.HTML, rows [][]string) {
		if svg == "" {
			return
		}
		base := slug(name)
		name = base
		for n := 2; names[name]; n++ {
			name = base + "-" + strconv.Itoa(n)
		}
		names[name] = true
		out = append(out, Figure{Name: name, Title: title, SVG: plot.Alone(string(svg)), Rows: rows})
	}
	if p.Compare != nil {
		for _, c := range p.Compare.Plots {
			for i, svg := range c.SVGs {
				rows := c.rows(p.Compare.Keys)
				if i > 0 {
					rows = nil // they are those of the first
				}
				add(c.Title, c.Title, svg, rows)
			}
		}
	}
	for _, panels := range [][]panel{p.Plots, p.Occupancy, p.Times} {
		for _, x := range panels {
			add(x.Title, x.Title, x.SVG, x.rows())
		}
	}
	for _, x := range p.Placements {
		add("placement "+x.Title, x.Title, x.SVG, nil)
	}
	if p.Past != nil {
		for _, x := range p.Past.Plots {
			add("past "+x.Title, x.Title, x.SVG, nil)
		}
	}
	add("topology", "Topology", p.Topology, nil)
	add("trees", "Trees", p.Trees, nil)
	return out
}

// rows are what a panel draws.
func (p panel) rows() [][]string {
	if p.CSV != nil || len(p.Table) == 0 {
		return p.CSV
	}
	head := []string{"point", "of", strings.TrimSpace(p.Metric + " [" + p.Unit + "]"), "lo", "hi"}
	for _, m := range p.Table[0].Predictors {
		head = append(head, "predicted by "+m)
	}
	out := [][]string{head}
	for _, r := range p.Table {
		out = append(out, append([]string{r.Where, r.Of, r.Key, r.Lo, r.Hi}, r.Keys...))
	}
	return out
}

// rows are what a comparison of a metric draws; keys are the swept keys that its groups differ in.
func (c comparePlot) rows(keys []string) [][]string {
	out := [][]string{append(append([]string{}, keys...), "value", "mean", "ratio", "interval", "change")}
	for _, r := range c.Rows {
		out = append(out, append(append([]string{}, r.Group...), r.Value, r.MeanKey, r.RatioKey, r.Interval, r.ChangeKey))
	}
	return out
}

// mostSlug bounds names of files.
const mostSlug = 60

// slug is a title as the name of a file: words of small letters and digits with '-' between them.
func slug(title string) string {
	words := strings.FieldsFunc(strings.ToLower(title), func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') })
	s := strings.Join(words, "-")
	if len(s) > mostSlug {
		s = strings.Trim(s[:mostSlug], "-")
	}
	if s == "" {
		return "figure"
	}
	return s
}

// CSV is a figure's rows as a file for spreadsheets.
func (f Figure) CSV() string { return csvText(f.Rows) }
