package report

import (
	"html/template"
	"slices"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/plot"
)

// treeRow is a row of the table of trees.
type treeRow struct{ Job, From, To, Adds string }

// viewTrees draws the trees of the first point that has any: those of other points may differ, and
// are in run.json. where is which point that is, if there are several.
func (s *sheet) viewTrees(rec *results.Record) (drawing template.HTML, rows []treeRow, where string) {
	i := slices.IndexFunc(rec.Points, func(p results.Point) bool { return len(p.Trees) > 0 })
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
	return template.HTML(plot.DrawTopology("trees", rec.Topology, nil, s.coloured(trees[:min(len(trees), maxTrees)]))), rows, where
}

// coloured are trees, each in the colour of its job.
func (s *sheet) coloured(trees []results.Tree) (out []plot.Tree) {
	var jobs []string
	for _, t := range trees {
		jobs = append(jobs, t.Job)
	}
	for i, colour := range apart(s.coloursOf(jobs)) {
		out = append(out, plot.Tree{Tree: trees[i], Colour: colour})
	}
	return out
}

// maxTrees is how many trees one drawing shows.
const maxTrees = 6
