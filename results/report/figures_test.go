package report

import (
	"encoding/csv"
	"io"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/plot/pdf"
	"github.com/inabench/inabench/results/resultstest"
)

// TestFigures: every drawing of a report is whole by itself, has a name of its own and, but for pictures, numbers; and
// becomes a page.
func TestFigures(t *testing.T) {
	waterfill, samples := resultstest.Waterfill()
	for _, tt := range []struct {
		name    string
		rec     *results.Record
		samples []results.Sample
		rows    int // figures with numbers, at least
	}{
		{"waterfill", waterfill, samples, 2},
		{"quickstart", resultstest.Quickstart(), nil, 1},
		{"policies", resultstest.Policies([]float64{1, 4}, 3), nil, 1},
		{"hostile", resultstest.Hostile(), resultstest.HostileSamples(), 0},
	} {
		figures := map[string][]Figure{
			tt.name:             Figures(tt.rec, tt.samples, Beside{}, 0),
			tt.name + " narrow": Figures(tt.rec, tt.samples, Beside{}, 335),
		}
		for name, figures := range figures {
			t.Run(name, func(t *testing.T) {
				names := map[string]bool{}
				rows := 0
				for _, f := range figures {
					if f.Name == "" || names[f.Name] || strings.ContainsAny(f.Name, "/. ") {
						t.Errorf("name %q", f.Name)
					}
					names[f.Name] = true
					resultstest.WellFormed(t, f.Name, f.SVG)
					if !strings.Contains(f.SVG, "<style>") {
						t.Errorf("%s has no style", f.Name)
					}
					if err := pdf.Write(io.Discard, f.SVG, 0, 0); err != nil {
						t.Errorf("%s: %v", f.Name, err)
					}
					if f.Rows == nil {
						continue
					}
					got, err := csv.NewReader(strings.NewReader(f.CSV())).ReadAll()
					if err != nil || len(got) < 2 {
						t.Errorf("%s: %d rows, %v", f.Name, len(got), err)
					}
					rows++
				}
				if len(names) == 0 || rows < tt.rows {
					t.Errorf("%d figures with numbers, %v", rows, names)
				}
			})
		}
	}
}

func TestSlug(t *testing.T) {
	for title, want := range map[string]string{
		"Rate of link h1->tor1 over time": "rate-of-link-h1-tor1-over-time", "": "figure", "…": "figure",
		strings.Repeat("a b ", 40): strings.TrimSuffix(strings.Repeat("a-b-", 15), "-"),
	} {
		if got := slug(title); got != want {
			t.Errorf("slug(%q) = %q, want %q", title, got, want)
		}
	}
}
