package fidelity

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
)

// File is the report in the directory of the reference's run.
const File = "fidelity.json"

// Read returns the report in a run directory; nil where there is none.
func Read(dir string) (*Report, error) {
	text, err := bounded.ReadFile(filepath.Join(dir, File), bounded.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, File), err)
	}
	if r.Schema != Schema || len(r.Runs) == 0 {
		return nil, fmt.Errorf("%s: schema %d of %d runs, want %d: hold the runs against each other again", filepath.Join(dir, File), r.Schema, len(r.Runs), Schema)
	}
	return &r, nil
}

// Page is the report in a run directory as Report.HTML has it; empty where there is none.
func Page(dir string) (template.HTML, error) {
	r, err := Read(dir)
	if err != nil || r == nil {
		return "", err
	}
	return r.HTML()
}

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// number is what a cell shows, and by what it is sorted.
type number struct{ Text, Key, Lo, Hi string }

func numberOf(text string, v Interval) number {
	return number{text, human.Exact(v.Value), human.Exact(v.Lo), human.Exact(v.Hi)}
}

// sizeOf is the magnitude of an error of a metric.
func sizeOf(v float64, g Group) number {
	return numberOf(size(v, g.Relative, g.Unit), Interval{v, v, v})
}

type (
	modelPart struct {
		Name, Says, OthersAre string
		Kind                  results.Kind
		Groups                []groupRow
		Regimes               []regimeRow
		Over, Others          []figurePart // what the model's fidelity is over, and the rest
	}
	groupRow struct {
		Model                       string
		Class                       Class
		Metric                      string
		N                           int
		Median, Mean, Largest, Bias number
		Worst, R, Slope, Intercept  string
	}
	regimeRow struct {
		Regime       Regime
		Class        Class
		Metric       string
		N            int
		Bias, Median number
	}
	figurePart struct {
		ID, Title, Metric, Unit, Seen, Model string
		SVG                                  template.HTML
		Rows                                 []errorRow
	}
	errorRow struct {
		Of      string
		Figures []number // reference, model, error
		Regime  Regime
	}
)

// HTML is the report for the page of the reference's run (report.Beside): of each model the errors
// of each metric, their bias by regime, and the reference over the model with the regression, as in
// NetPack's Figure 6.
func (r *Report) HTML() (template.HTML, error) {
	ref := r.Runs[0]
	page := struct {
		Reference string
		Models    []modelPart
		Warnings  []string
	}{Reference: fmt.Sprintf("%s, %s", ref.Name, ref.Kind), Warnings: r.Warnings}
	drawn := 0
	for i := range r.Models {
		m := &r.Models[i]
		p := modelPart{Name: m.Name, Kind: m.Kind}
		var says []string
		if m.Fidelity != nil {
			says = append(says, fmt.Sprintf("Median error %s over %s.", between(m.Fidelity.Interval, m.relative(), "1"), m.figures()))
		}
		if m.Idle > 0 {
			says = append(says, fmt.Sprintf("%s left out: idle on both sides.", human.Plural(m.Idle, "link figure")))
		}
		if len(m.Missing) > 0 {
			says = append(says, fmt.Sprintf("It says nothing of %s.", m.missing()))
		}
		p.Says = strings.Join(says, " ")
		var others []string
		for _, g := range m.Groups {
			row := groupRow{
				Model: m.Name, Class: g.Class, Metric: g.Metric, N: g.N, Median: sizeOf(g.Median.Value, g), Mean: sizeOf(g.Mean, g), Largest: sizeOf(g.Max, g),
				Bias: numberOf(signed(g.Bias, g.Relative, g.Unit), g.Bias), Worst: g.Worst, R: "–", Slope: "–", Intercept: "–",
			}
			if g.Pearson != nil {
				row.R = ratio(*g.Pearson)
			}
			if g.Line != nil {
				row.Slope, row.Intercept = ratio(g.Line.Slope), g.Line.offset(g.Unit)
			}
			p.Groups = append(p.Groups, row)
			f := r.figure(m, g, "fidelity-"+strconv.Itoa(drawn))
			drawn++
			if g.Class == m.Over {
				p.Over = append(p.Over, f)
			} else {
				p.Others = append(p.Others, f)
				others = append(others, fmt.Sprintf("%s of %ss", g.Metric, g.Class))
			}
		}
		p.OthersAre = strings.Join(others, ", ")
		for _, b := range m.Regimes {
			g := m.group(b.Class, b.Metric)
			p.Regimes = append(p.Regimes, regimeRow{b.Regime, b.Class, b.Metric, b.N, numberOf(signed(b.Bias, g.Relative, g.Unit), b.Bias), sizeOf(b.Median, g)})
		}
		page.Models = append(page.Models, p)
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, page); err != nil {
		return "", fmt.Errorf("render fidelity: %w", err)
	}
	return template.HTML(b.String()), nil
}

// figure is the drawing of a metric of a model, and all of its errors.
func (r *Report) figure(m *Model, g Group, id string) figurePart {
	a := r.agreement(m, g)
	a.ID = id
	f := figurePart{ID: id, Title: a.Title, Metric: g.Metric, Unit: g.Unit, Seen: r.Runs[0].Name, Model: m.Name, SVG: template.HTML(plot.AgreementSVG(a))}
	for _, e := range m.Errors {
		if e.Class != g.Class || e.Metric != g.Metric {
			continue
		}
		row := errorRow{Of: e.Name(), Regime: e.Regime}
		for _, v := range []Interval{e.Reference, e.Model} {
			row.Figures = append(row.Figures, numberOf(human.QuantityCI(v.Value, v.Lo, v.Hi, e.Unit), v))
		}
		row.Figures = append(row.Figures, numberOf(signed(e.Error, e.Relative, e.Unit), e.Error))
		f.Rows = append(f.Rows, row)
	}
	return f
}

// group is what a model has of a metric; a report that was read may lack it.
func (m *Model) group(c Class, metric string) Group {
	if i := slices.IndexFunc(m.Groups, func(g Group) bool { return g.Class == c && g.Metric == metric }); i >= 0 {
		return m.Groups[i]
	}
	return Group{}
}
