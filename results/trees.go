package results

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// treeRow is a row of the table of trees.
type treeRow struct{ Job, From, To, Adds string }

// treesView draws the trees of the first point that has any: those of other points may differ, and
// are in run.json. where is which point that is, if there are several.
func (rec *Record) treesView() (drawing template.HTML, rows []treeRow, where string) {
	i := slices.IndexFunc(rec.Points, func(p Point) bool { return len(p.Trees) > 0 })
	if i < 0 {
		return "", nil, ""
	}
	trees := rec.Points[i].Trees
	if len(rec.Points) > 1 {
		where = rec.Points[i].Label()
	}
	for _, t := range trees {
		for _, h := range t.Hops {
			r := treeRow{Job: t.Job, From: h.From, To: h.To}
			if slices.Contains(t.Adds, h.To) {
				r.Adds = "yes"
			}
			rows = append(rows, r)
		}
	}
	return template.HTML(drawTopology("trees", rec.Topology, nil, trees[:min(len(trees), maxTrees)], false)), rows, where
}

// maxTrees is how many trees colours tell apart.
const maxTrees = seriesColours

// drawTrees draws those trees that use a cable, side by side along it; normal is the unit vector across.
func (s *svg) drawTrees(trees []Tree, up Link, a, b, normal spot) {
	var on []int
	for i, t := range trees {
		if slices.ContainsFunc(t.Hops, func(h TreeHop) bool {
			return h.From == up.From && h.To == up.To || h.From == up.To && h.To == up.From
		}) {
			on = append(on, i)
		}
	}
	for k, i := range on {
		off := (float64(k) - float64(len(on)-1)/2) * 4
		x, y := normal.x*off, normal.y*off
		s.leaf(trees[i].Job+": "+up.Name, "path", "class", "tree c"+strconv.Itoa(i%seriesColours), "d", pathOf([]float64{a.x + x, a.y + y, b.x + x, b.y + y}))
	}
}

// treeAdds marks a switch with those jobs whose gradients it adds up.
func (s *svg) treeAdds(trees []Tree, name string, p spot, width float64) {
	k := 0.0
	for i, t := range trees {
		if slices.Contains(t.Adds, name) {
			s.leaf(name+" adds up for "+t.Job, "circle", "class", "adds c"+strconv.Itoa(i%seriesColours), "cx", num(p.x-width/2+9+k*11), "cy", num(p.y-16), "r", "5")
			k++
		}
	}
}

func (s *svg) treeLegend(trees []Tree, y float64) {
	x := 16.0
	for i, t := range trees {
		class := "c" + strconv.Itoa(i%seriesColours)
		s.line("tree "+class, x, y-4, x+22, y-4)
		name := clip(t.Job, 11, 120)
		s.text("name small "+class, "start", x+28, y, name)
		x += 28 + textWidth(name, 11) + 20
	}
	if len(trees) > 0 {
		s.leaf("", "circle", "class", "adds key", "cx", num(x+5), "cy", num(y-4), "r", "5")
		s.text("muted small", "start", x+15, y, "adds up for the job of that colour")
	}
}

func treesDesc(trees []Tree) string {
	var b strings.Builder
	for i, t := range trees {
		if i == 12 {
			break
		}
		fmt.Fprintf(&b, "%s: %s", t.Job, human.Plural(len(t.Hops), "edge"))
		if len(t.Adds) > 0 {
			fmt.Fprintf(&b, ", added up at %s", strings.Join(t.Adds, ", "))
		}
		b.WriteString(". ")
	}
	return strings.TrimSpace(b.String())
}
