package report

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestMachinesJSON is what run.json says of machines.
func TestMachinesJSON(t *testing.T) {
	want := results.Point{Machines: []results.Machine{
		{Name: "h1", Rack: "r1", GPUs: []results.Cell{{Use: results.Worker, Job: "A"}, {Use: results.Worker, Job: "A", Rank: 11}, {Use: results.Spare, Job: "A"}, {}}},
		{Name: "h2", Rack: "r1", GPUs: []results.Cell{{Use: results.Background}, {Use: results.Background, Job: "B/1"}, {Use: results.Worker, Job: "a/b", Rank: 2}}},
	}}
	text, err := json.MarshalIndent(want, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "machines.json", string(text)+"\n")
	var got results.Point
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-written +read\n%s", diff)
	}
}

// TestCellNonsense: what no GPU can be is not written.
func TestCellNonsense(t *testing.T) {
	for _, c := range []results.Cell{{Use: results.Worker}, {Use: results.Spare}, {Use: results.Worker, Job: "A", Rank: -1}, {Use: results.Spare, Job: "A", Rank: 1}, {Use: results.Background, Rank: 1}, {Job: "A"}, {Rank: 1}, {Use: 9, Job: "A"}} {
		if text, err := c.MarshalText(); err == nil {
			t.Errorf("%+v is %q", c, text)
		}
	}
}

// FuzzCell: what is read is written again as it was, and what is refused leaves nothing.
func FuzzCell(f *testing.F) {
	for _, s := range []string{"", "A/0", "A/spare", "background", "B/background", "a/b/12", "A", "/0", "A/", "A/-1", "A/01", "A/4294967296", "spare"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var c results.Cell
		if err := c.UnmarshalText([]byte(text)); err != nil {
			if (c != results.Cell{}) {
				t.Fatalf("%q: %+v and %v", text, c, err)
			}
			return
		}
		if again, err := c.MarshalText(); err != nil || string(again) != text {
			t.Fatalf("%q is %+v is %q, %v", text, c, again, err)
		}
	})
}

func TestPlacementsGolden(t *testing.T) {
	text := func(placements []Placement, opt TextOptions) string {
		var b strings.Builder
		if err := WriteMachines(&b, placements, opt); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	rows := placementsOf(resultstest.Figure8())
	golden.Compare(t, "placements.txt", text(rows[1].Placements, TextOptions{}))
	golden.Compare(t, "placements-narrow.txt", text(rows[2].Placements, TextOptions{Width: 60}))
	golden.Compare(t, "placements.svg", MachinesSVG("Placement, workers=6", rows[1].Placements))
	large := largePlacements()
	golden.Compare(t, "placements-large.txt", text(large, TextOptions{}))
}

// TestPlacements: policies side by side, a row for each of the rest; the first repeat.
func TestPlacements(t *testing.T) {
	one, other := resultstest.Machines(1, 2, 1, func(int) int { return 0 }), resultstest.Machines(1, 2, 1, func(int) int { return 1 })
	point := func(index int, all []results.Machine, labels ...string) results.Point {
		return results.Point{Index: index, Labels: labels, Machines: all}
	}
	for _, c := range []struct {
		name   string
		rec    results.Record
		titles []string
		names  string
		note   string
	}{
		{"nothing", results.Record{Points: []results.Point{{}}}, nil, "", ""},
		{"no sweep", results.Record{Points: []results.Point{point(0, one)}}, []string{""}, "[]", ""},
		{"policies", results.Record{Points: []results.Point{point(0, one, "placement.policy=a"), point(1, other, "placement.policy=b")}}, []string{""}, "[a b]", ""},
		{"rows", results.Record{Points: []results.Point{point(0, one, "x.n=1", "placement.policy=a"), point(1, other, "x.n=1", "placement.policy=b"), point(2, one, "x.n=2", "placement.policy=a")}}, []string{"n=1", "n=2"}, "[a b]", ""},
		{"another key", results.Record{Comparison: &results.Comparison{Key: "x.n"}, Points: []results.Point{point(0, one, "x.n=1"), point(1, one, "x.n=2")}}, []string{""}, "[1 2]", ""},
		{"a moment", results.Record{Points: []results.Point{{Machines: one, MachinesAt: 90}}}, []string{""}, "[after 1 min 30 s]", ""},
		{"repeats", results.Record{Points: []results.Point{point(0, one), point(0, other)}}, []string{""}, "[]", "the first repeat; others have other placements"},
		{"equal repeats", results.Record{Points: []results.Point{point(0, one), point(0, one)}}, []string{""}, "[]", ""},
	} {
		rows := placementsOf(&c.rec)
		var titles []string
		for _, r := range rows {
			titles = append(titles, r.Title)
		}
		if !slices.Equal(titles, c.titles) {
			t.Errorf("%s: %q, want %q", c.name, titles, c.titles)
		}
		if len(rows) == 0 {
			continue
		}
		names := []string{}
		for _, p := range rows[0].Placements {
			if p.Name != "" {
				names = append(names, p.Name)
			}
			for _, n := range p.Notes {
				names = append(names, n.Label, n.Text)
			}
		}
		if fmt.Sprint(names) != c.names || rows[0].Note != c.note {
			t.Errorf("%s: %s, %q", c.name, names, rows[0].Note)
		}
	}
}

// TestMachinesPicture: every worker is drawn, in a size that the cluster leaves, and
// nothing lies outside the picture.
func TestMachinesPicture(t *testing.T) {
	for _, c := range []struct {
		racks, perRack, gpus, panels int
		numbers                      bool
	}{{1, 8, 4, 1, true}, {1, 8, 4, 5, true}, {1, 4, 1, 2, true}, {2, 4, 8, 4, true}, {64, 8, 8, 1, false}, {64, 8, 8, 4, false}, {1, 1, 16, 1, true}, {1, 2000, 8, 3, false}, {3, 1, 0, 1, false}} {
		all := resultstest.Machines(c.racks, c.perRack, c.gpus, func(int) int { return 0 })
		if c.gpus > 0 {
			resultstest.Occupy(all, "A", 0)
		}
		var placements []Placement
		for range c.panels {
			placements = append(placements, Placement{Name: "p", Machines: all})
		}
		svg := MachinesSVG("x", placements)
		resultstest.WellFormed(t, "picture", svg)
		if got := strings.Contains(svg, `class="rank"`); got != c.numbers {
			t.Errorf("%+v: ranks are drawn: %v", c, got)
		}
		if n := strings.Count(svg, "gpu c0"); n < c.panels && c.gpus > 0 {
			t.Errorf("%+v: %d workers", c, n)
		}
		var w, h float64
		if _, err := fmt.Sscanf(svg[strings.Index(svg, "viewBox"):], `viewBox="0 0 %g %g"`, &w, &h); err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`x="([0-9.]+)" y="([0-9.]+)" width="([0-9.]+)" height="([0-9.]+)"|M([0-9.]+) ([0-9.]+)h([0-9.]+)v([0-9.]+)`).FindAllStringSubmatch(svg, -1) {
			var v [4]float64
			for i := range v {
				fmt.Sscan(m[1+i]+m[5+i], &v[i])
			}
			if v[0]+v[2] > w || v[1]+v[3] > h {
				t.Errorf("%+v: %s is outside %g by %g", c, m[0], w, h)
				break
			}
		}
	}
}

// TestMachinesColour: without colours the text is the same.
func TestMachinesColour(t *testing.T) {
	for _, r := range placementsOf(resultstest.Figure8()) {
		var plain, coloured strings.Builder
		for b, opt := range map[*strings.Builder]TextOptions{&plain: {}, &coloured: {Color: true}} {
			if err := WriteMachines(b, r.Placements, opt); err != nil {
				t.Fatal(err)
			}
		}
		bare := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(coloured.String(), "")
		if strip := regexp.MustCompile(` +\n`); strip.ReplaceAllString(bare, "\n") != strip.ReplaceAllString(plain.String(), "\n") || bare == coloured.String() {
			t.Errorf("%s\n%s", plain.String(), bare)
		}
	}
}

// TestManyJobs: letters tell jobs apart, their own where they are letters.
func TestManyJobs(t *testing.T) {
	for _, c := range []struct{ jobs, sign, legend string }{
		{"A B", "A0 B0", ""}, {"resnet vgg", "a0 b0", "a resnet, b vgg"}, {"A vgg", "a0 b0", "a A, b vgg"},
	} {
		names := strings.Fields(c.jobs)
		all := resultstest.Machines(1, 1, 2, func(int) int { return 0 })
		for _, j := range names {
			resultstest.Occupy(all, j, 0)
		}
		var b strings.Builder
		if err := WriteMachines(&b, []Placement{{Machines: all}}, TextOptions{}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), c.sign+"\n") || !strings.Contains(b.String(), c.legend) {
			t.Errorf("%s:\n%s", c.jobs, b.String())
		}
	}
}

// Of a large cluster the terminal has what a run's report shows in a picture in words.
func TestPlacementsOfRuns(t *testing.T) {
	rec := resultstest.Quickstart()
	for i, p := range largePlacements() {
		rec.Points = append(rec.Points, results.Point{Index: i + 1, Labels: []string{"placement.policy=" + p.Name}, Machines: p.Machines, MachinesAt: 7200})
	}
	var b strings.Builder
	if err := WriteText(&b, rec, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	want := `
Placement
  machines: see report.html
           titan        elasticflow   tiresias     hived
  in use   91 of 512    127 of 512    109 of 512   91 of 512
  after    2 h 00 min   2 h 00 min    2 h 00 min   2 h 00 min
`
	if !strings.Contains(b.String(), want) {
		t.Errorf("no %s in %s", want, b.String())
	}
}
