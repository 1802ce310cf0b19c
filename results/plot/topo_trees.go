package plot

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Tree is a job's tree in a colour of the palette.
type Tree struct {
	results.Tree
	Colour int
}

// drawTrees draws those trees that use a cable, side by side along it; normal is the unit vector across.
func (s *Canvas) drawTrees(trees []Tree, up results.Link, a, b, normal Spot) {
	var on []int
	for i, t := range trees {
		if slices.ContainsFunc(t.Hops, func(h results.TreeHop) bool {
			return h.From == up.From && h.To == up.To || h.From == up.To && h.To == up.From
		}) {
			on = append(on, i)
		}
	}
	for k, i := range on {
		off := (float64(k) - float64(len(on)-1)/2) * 4
		x, y := normal.X*off, normal.Y*off
		s.Leaf(trees[i].Job+": "+up.Name, "path", "class", "tree "+colourClass(trees[i].Colour), "d", Path([]float64{a.X + x, a.Y + y, b.X + x, b.Y + y}))
	}
}

// treeAdds marks a switch with those jobs whose gradients it adds up.
func (s *Canvas) treeAdds(trees []Tree, name string, p Spot, width float64) {
	k := 0.0
	for _, t := range trees {
		if slices.Contains(t.Adds, name) {
			s.Leaf(name+" adds up for "+t.Job, "circle", "class", "adds "+colourClass(t.Colour), "cx", Num(p.X-width/2+9+k*11), "cy", Num(p.Y-16), "r", "5")
			k++
		}
	}
}

func (s *Canvas) treeLegend(trees []Tree, y float64) {
	x := 16.0
	for _, t := range trees {
		class := colourClass(t.Colour)
		s.Line("tree "+class, x, y-4, x+22, y-4)
		name := Clip(t.Job, 11, 120)
		s.Text("name small "+class, "start", x+28, y, name)
		x += 28 + TextWidth(name, 11) + 20
	}
	if len(trees) > 0 {
		s.Leaf("", "circle", "class", "adds key", "cx", Num(x+5), "cy", Num(y-4), "r", "5")
		s.Text("muted small", "start", x+15, y, "adds up for the job of that colour")
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
