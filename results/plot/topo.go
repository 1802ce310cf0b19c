package plot

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// LinkLoad is what a directed link carries. A Figure with an empty Kind is not
// known.
type LinkLoad struct {
	Observed  results.Figure // measured or simulated, bit/s
	Predicted results.Figure // bit/s
}

// cable is both directions of a link; down is -1 where the topology has only one.
type cable struct{ up, down int } // indices into Links, up towards the higher tier

// cables pairs the directed links of a topology.
func cables(t results.Topology) []cable {
	tier := map[string]int{}
	for _, n := range t.Nodes {
		tier[n.Name] = n.Tier
	}
	byEnds := map[[2]string][]int{}
	for i, l := range t.Links {
		k := [2]string{l.From, l.To}
		byEnds[k] = append(byEnds[k], i)
	}
	used := make([]bool, len(t.Links))
	var out []cable
	for i, l := range t.Links {
		if used[i] {
			continue
		}
		used[i] = true
		c := cable{i, -1}
		from, to, _ := strings.Cut(l.Name, "->")
		back := byEnds[[2]string{l.To, l.From}]
		pick := -1
		for _, j := range back {
			if used[j] {
				continue
			}
			if t.Links[j].Name == to+"->"+from { // the right one of parallel cables
				pick = j
				break
			}
			if pick < 0 {
				pick = j
			}
		}
		if pick >= 0 {
			used[pick] = true
			c.down = pick
		}
		if tier[l.From] > tier[l.To] && c.down >= 0 {
			c.up, c.down = c.down, c.up
		}
		out = append(out, c)
	}
	return out
}

// TopologySVG draws a topology as a document of its own: spines above, ToRs below
// them, hosts at the bottom, each direction of each cable as wide as it is loaded.
// loads are by link name and may be nil; then capacities are shown.
func TopologySVG(t results.Topology, loads map[string]LinkLoad) string {
	return Alone(DrawTopology("topology", t, loads, nil))
}

// Spot is a place in a drawing, in pixels.
type Spot struct{ X, Y float64 }

// DrawTopology draws the trees over the cables, or loads, one of which is nil.
func DrawTopology(id string, t results.Topology, loads map[string]LinkLoad, trees []Tree) string {
	const w = 960.0
	hosts, rows := layers(t)
	cables := cables(t)

	slot := (w - 32) / float64(max(len(hosts), 1))
	cards := slot >= 84
	cell := min(slot, 150)
	perRow := len(hosts)
	if slot < 11 { // a grid of small squares
		perRow = 84 // of 11 pixels
		cell = 11
	}
	gridRows := 1
	if perRow > 0 {
		gridRows = (len(hosts) + perRow - 1) / perRow
	}
	const top, rowGap = 28.0, 128.0
	hostY := top + rowGap*float64(len(rows))
	at := map[string]Spot{}
	startX := (w - cell*float64(min(perRow, len(hosts)))) / 2
	for i, n := range hosts {
		at[n.Name] = Spot{startX + cell*(float64(i%max(perRow, 1))+0.5), hostY + float64(i/max(perRow, 1))*14}
	}
	// Switches stand above the middle of what is below them, spread where they meet.
	below := neighbours(t)
	wide := map[string]float64{} // switches
	for r := len(rows) - 1; r >= 0; r-- {
		row := rows[r]
		y := top + rowGap*float64(r)
		width := min(104, (w-32)/float64(len(row))-8)
		want := make([]float64, len(row))
		for i, n := range row {
			sum, k := 0.0, 0
			for _, b := range below[n.Name] {
				if p, ok := at[b]; ok && p.Y > y {
					sum += p.X
					k++
				}
			}
			want[i] = (float64(i) + 0.5) * w / float64(len(row))
			if k > 0 {
				want[i] = sum / float64(k)
			}
		}
		order := make([]int, len(row))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(want[a], want[b]) })
		spread(want, order, max(width+24, min(220, w/float64(len(row))-20)), w)
		for i, n := range row {
			at[n.Name], wide[n.Name] = Spot{want[i], y}, width
		}
	}

	hostH := 46.0
	if !cards {
		hostH = 10
	}
	height := hostY + hostH + 46
	if loads == nil && trees == nil {
		height -= 28
	}
	if !cards {
		height = hostY + float64(gridRows)*14 + 62
	}
	unit, div := loadUnit(t, loads)

	var s Canvas
	title, desc := "Topology", topoDesc(t, loads)
	if trees != nil {
		title, desc = "Trees of the jobs", treesDesc(trees)
	}
	s.Begin(id, title, desc, w, height)

	tier := map[string]int{}
	for _, n := range t.Nodes {
		tier[n.Name] = n.Tier
	}
	between := 0 // cables between switches: labelled if few
	for _, c := range cables {
		if tier[t.Links[c.up].From] > 0 {
			between++
		}
	}
	gap := 4.5
	if !cards {
		gap = 2
	}
	half := func(name string) float64 { // lines end under the nodes, which are drawn over them
		if tier[name] == 0 {
			return -6
		}
		return 10
	}
	parallel := map[[2]string]int{}
	type label struct {
		x, y  float64
		lines []string
	}
	var labels []label
	for _, c := range cables {
		up := t.Links[c.up]
		a, b := at[up.From], at[up.To] // a below, b above
		k := [2]string{up.From, up.To}
		shift := float64(parallel[k]) * 6 * gap
		parallel[k]++
		a.X += shift
		b.X += shift * 0.6
		a.Y -= half(up.From)
		b.Y += half(up.To)
		dx, dy := b.X-a.X, b.Y-a.Y
		n := math.Hypot(dx, dy)
		if n == 0 {
			continue
		}
		ox, oy := -dy/n*gap, dx/n*gap
		for _, dir := range []struct {
			i        int
			from, to Spot
			sign     float64
		}{{c.up, a, b, 1}, {c.down, b, a, -1}} {
			if dir.i < 0 {
				continue
			}
			l := t.Links[dir.i]
			from := Spot{dir.from.X + ox*dir.sign, dir.from.Y + oy*dir.sign}
			to := Spot{dir.to.X + ox*dir.sign, dir.to.Y + oy*dir.sign}
			s.drawLink(l, loads, from, to, cards)
		}
		s.drawTrees(trees, up, a, b, Spot{-dy / n, dx / n})
		if tier[up.From] > 0 && between <= 8 {
			l := label{x: (a.X + b.X) / 2, y: (a.Y + b.Y) / 2, lines: []string{loadText(t.Links[c.up], loads, div, "↑ ")}}
			if c.down >= 0 && loads != nil {
				l.lines = append(l.lines, loadText(t.Links[c.down], loads, div, "↓ "))
			}
			labels = append(labels, l)
		}
	}
	for _, l := range labels {
		width, h := 0.0, 15*float64(len(l.lines))
		for _, text := range l.lines {
			width = max(width, TextWidth(text, 11)+10)
		}
		s.Leaf("", "rect", "class", "plate", "x", Num(l.x-width/2), "y", Num(l.y-h/2-1), "width", Num(width), "height", Num(h+2), "rx", "3")
		for i, text := range l.lines {
			s.Text("small", "middle", l.x, l.y-h/2+12+15*float64(i), text)
		}
	}

	for _, n := range t.Nodes {
		p, ok := at[n.Name]
		if !ok {
			continue
		}
		if n.Tier > 0 {
			width := wide[n.Name]
			s.Open("g")
			s.Leaf(n.Name+", "+n.Kind, "rect", "class", "switch", "x", Num(p.X-width/2), "y", Num(p.Y-16), "width", Num(width), "height", "32", "rx", "4")
			s.Text("strong", "middle", p.X, p.Y+1, Clip(n.Name, 12.5, width-8))
			s.Text("muted tiny", "middle", p.X, p.Y+12, Clip(n.Kind, 9.5, width-6))
			s.treeAdds(trees, n.Name, p, width)
			s.Close("g")
			continue
		}
		if cards {
			s.hostCard(t, n, p, cell-8, cables, loads, div)
			continue
		}
		s.Leaf(n.Name, "rect", "class", "node", "x", Num(p.X-cell*0.38), "y", Num(p.Y), "width", Num(cell*0.76), "height", "9", "rx", "1.5")
		if gridRows == 1 {
			s.upright("tiny muted", "end", p.X+3, p.Y+14, Clip(n.Name, 9.5, 40))
		}
	}
	s.topoLegend(loads, unit, height-12, cards)
	s.treeLegend(trees, height-12)
	s.Close("svg")
	return s.b.String()
}

// layers are the hosts in the order of the switches that they hang from, and the
// switches by tier, the highest first.
func layers(t results.Topology) (hosts []results.Node, rows [][]results.Node) {
	home := map[string]int{}
	index := map[string]int{}
	for i, n := range t.Nodes {
		index[n.Name] = i
	}
	for _, l := range t.Links {
		if _, ok := home[l.From]; !ok {
			home[l.From] = index[l.To]
		}
	}
	tiers := map[int][]results.Node{}
	for _, n := range t.Nodes {
		if n.Tier == 0 {
			hosts = append(hosts, n)
		} else {
			tiers[n.Tier] = append(tiers[n.Tier], n)
		}
	}
	slices.SortStableFunc(hosts, func(a, b results.Node) int { return cmp.Compare(home[a.Name], home[b.Name]) })
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(tiers))) {
		rows = append(rows, tiers[k])
	}
	return hosts, rows
}

func neighbours(t results.Topology) map[string][]string {
	out := map[string][]string{}
	for _, l := range t.Links {
		out[l.To] = append(out[l.To], l.From)
	}
	return out
}

// spread moves positions, visited in order, at least gap apart, keeps their mean
// where it was if [0, w] allows, and keeps them in it.
func spread(x []float64, order []int, gap, w float64) {
	n := len(order)
	gap = min(gap, w/float64(max(n, 1)))
	moved := 0.0
	for k := 1; k < n; k++ {
		if d := x[order[k-1]] + gap - x[order[k]]; d > 0 {
			x[order[k]] += d
			moved += d
		}
	}
	for k, i := range order {
		x[i] = max(x[i]-moved/float64(n), gap/2+gap*float64(k))
	}
	for k := n - 1; k >= 0; k-- {
		i := order[k]
		x[i] = min(x[i], w-gap/2-gap*float64(n-1-k))
	}
}

// load is a link's load as far as it is known: what was observed, else predicted.
func (l LinkLoad) load() (v float64, ok bool) {
	if l.Observed.Kind != "" {
		return l.Observed.Value, true
	}
	return l.Predicted.Value, l.Predicted.Kind != ""
}

func (s *Canvas) drawLink(l results.Link, loads map[string]LinkLoad, from, to Spot, wide bool) {
	full := 5.0
	if !wide {
		full = 2.6
	}
	title := l.Name + ": " + human.Quantity(l.Rate, "bit/s")
	at := func(class string, width float64, title string) {
		s.Leaf(title, "line", "class", class, "x1", Num(from.X), "y1", Num(from.Y), "x2", Num(to.X), "y2", Num(to.Y), "stroke-width", Num(width))
	}
	if loads == nil {
		at("cable", full/2, title)
		return
	}
	v, known := loads[l.Name].load()
	title = linkTitle(l, loads[l.Name])
	at("track", full, title)
	if !known || l.Rate <= 0 || v <= 0 {
		return
	}
	u := v / l.Rate
	class, head := "load", "head"
	if u >= saturated {
		class, head = "full", "head hot"
	}
	at(class, max(min(u, 1)*full, 0.8), title)
	if !wide {
		return
	}
	// An arrow head at two thirds of the way.
	n := math.Hypot(to.X-from.X, to.Y-from.Y)
	ux, uy := (to.X-from.X)/n, (to.Y-from.Y)/n
	mx, my := from.X+(to.X-from.X)*0.78, from.Y+(to.Y-from.Y)*0.78
	s.Leaf("", "path", "class", head, "d", Path([]float64{mx + ux*5, my + uy*5, mx - ux*3 - uy*4.4, my - uy*3 + ux*4.4, mx - ux*3 + uy*4.4, my - uy*3 - ux*4.4})+"Z")
}

// saturated is the utilisation from which a link is drawn as full.
const saturated = 0.95

func linkTitle(l results.Link, load LinkLoad) string {
	var parts []string
	if load.Observed.Kind != "" {
		parts = append(parts, string(load.Observed.Kind)+" "+human.QuantityCI(load.Observed.Value, load.Observed.Lo, load.Observed.Hi, "bit/s"))
	}
	if load.Predicted.Kind != "" {
		parts = append(parts, "predicted "+human.Quantity(load.Predicted.Value, "bit/s"))
	}
	parts = append(parts, "capacity "+human.Quantity(l.Rate, "bit/s"))
	return l.Name + ": " + strings.Join(parts, ", ")
}

// loadUnit is the one unit in which all loads of the drawing are written.
func loadUnit(t results.Topology, loads map[string]LinkLoad) (name string, div float64) {
	top := 0.0
	for _, l := range t.Links {
		v, ok := loads[l.Name].load()
		if ok {
			top = max(top, v, loads[l.Name].Predicted.Value)
		}
	}
	if top == 0 {
		for _, l := range t.Links {
			top = max(top, l.Rate)
		}
	}
	div, name = AxisUnit(top, "bit/s")
	return name, div
}

// loadText is "81.3 (83.0)": observed and predicted, or the capacity with its unit.
func loadText(l results.Link, loads map[string]LinkLoad, div float64, arrow string) string {
	if loads == nil {
		return human.Quantity(l.Rate, "bit/s")
	}
	load := loads[l.Name]
	v := func(f results.Figure) string { return human.Fixed(f.Value/div, 3) }
	switch {
	case load.Observed.Kind != "" && load.Predicted.Kind != "":
		return arrow + v(load.Observed) + " (" + v(load.Predicted) + ")"
	case load.Observed.Kind != "":
		return arrow + v(load.Observed)
	case load.Predicted.Kind != "":
		return arrow + "(" + v(load.Predicted) + ")"
	}
	return arrow + "–"
}

func (s *Canvas) hostCard(t results.Topology, n results.Node, p Spot, width float64, cables []cable, loads map[string]LinkLoad, div float64) {
	s.Open("g")
	s.Leaf(n.Name, "rect", "class", "node", "x", Num(p.X-width/2), "y", Num(p.Y), "width", Num(width), "height", "50", "rx", "4")
	s.Text("strong", "middle", p.X, p.Y+15, Clip(n.Name, 12.5, width-8))
	for _, c := range cables {
		if t.Links[c.up].From != n.Name {
			continue
		}
		up := loadText(t.Links[c.up], loads, div, "↑ ")
		s.Text("small", "middle", p.X, p.Y+30, Clip(up, 11, width-4))
		switch {
		case loads != nil && c.down >= 0:
			s.Text("small", "middle", p.X, p.Y+44, Clip(loadText(t.Links[c.down], loads, div, "↓ "), 11, width-4))
		case loads == nil && n.GPUs > 0:
			s.Text("muted small", "middle", p.X, p.Y+44, human.Plural(n.GPUs, "GPU"))
		}
		break // further NICs are in the table and in the lines' tooltips
	}
	s.Close("g")
}

func (s *Canvas) topoLegend(loads map[string]LinkLoad, unit string, y float64, numbers bool) {
	if loads == nil {
		return
	}
	x := 16.0
	put := func(text string) {
		s.Text("muted small", "start", x, y, text)
		x += TextWidth(text, 11) + 16
	}
	observed, predicted := "", false
	for _, l := range loads {
		if l.Observed.Kind != "" {
			observed = string(l.Observed.Kind)
		}
		predicted = predicted || l.Predicted.Kind != ""
	}
	text := unit + ": " + observed
	if predicted {
		text = strings.TrimSpace(text + " (predicted)")
	}
	if numbers {
		put(text)
	}
	s.Leaf("", "line", "class", "track", "x1", Num(x), "y1", Num(y-4), "x2", Num(x+26), "y2", Num(y-4), "stroke-width", "5")
	s.Leaf("", "line", "class", "load", "x1", Num(x), "y1", Num(y-4), "x2", Num(x+26), "y2", Num(y-4), "stroke-width", "2.5")
	x += 34
	put("width: load over capacity, one line a direction")
	s.Leaf("", "line", "class", "full", "x1", Num(x), "y1", Num(y-4), "x2", Num(x+26), "y2", Num(y-4), "stroke-width", "5")
	x += 34
	put("at least 95 % of capacity")
}

func topoDesc(t results.Topology, loads map[string]LinkLoad) string {
	hosts := 0
	for _, n := range t.Nodes {
		if n.Tier == 0 {
			hosts++
		}
	}
	s := fmt.Sprintf("%s, %s.", human.Plural(hosts, "host"), human.Plural(len(t.Nodes)-hosts, "switch node"))
	n := 0
	for _, l := range t.Links {
		if _, ok := loads[l.Name].load(); !ok {
			continue
		}
		if n++; n > 24 {
			return s + " The table below has all links."
		}
		s += " " + linkTitle(l, loads[l.Name]) + "."
	}
	return s
}

// WriteDOT writes the topology for Graphviz: hosts as boxes, switches as rounded
// ones, one edge a cable.
func WriteDOT(w io.Writer, t results.Topology) error {
	q := func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ", "\r", " ").Replace(human.Printable(s)) + `"`
	}
	var b strings.Builder
	b.WriteString("graph topology {\n  rankdir=BT;\n  node [shape=box, fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n")
	tiers := map[int][]string{}
	for _, n := range t.Nodes {
		tiers[n.Tier] = append(tiers[n.Tier], q(n.Name))
		if n.Tier > 0 {
			fmt.Fprintf(&b, "  %s [style=rounded, penwidth=1.5];\n", q(n.Name))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(tiers)) {
		fmt.Fprintf(&b, "  { rank=same; %s; }\n", strings.Join(tiers[k], "; "))
	}
	for _, c := range cables(t) {
		l := t.Links[c.up]
		fmt.Fprintf(&b, "  %s -- %s [label=%s];\n", q(l.From), q(l.To), q(human.Quantity(l.Rate, "bit/s")))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMermaid writes the topology as a Mermaid flowchart, for Markdown that
// renders it.
func WriteMermaid(w io.Writer, t results.Topology) error {
	q := func(s string) string {
		return `"` + strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;").Replace(human.Printable(s)) + `"`
	}
	var b strings.Builder
	b.WriteString("flowchart BT\n")
	id := map[string]string{}
	for i, n := range t.Nodes {
		id[n.Name] = fmt.Sprintf("n%d", i)
		if n.Tier > 0 {
			fmt.Fprintf(&b, "  n%d(%s)\n", i, q(n.Name))
		} else {
			fmt.Fprintf(&b, "  n%d[%s]\n", i, q(n.Name))
		}
	}
	for _, c := range cables(t) {
		l := t.Links[c.up]
		if id[l.From] != "" && id[l.To] != "" {
			fmt.Fprintf(&b, "  %s ---|%s| %s\n", id[l.From], q(human.Quantity(l.Rate, "bit/s")), id[l.To])
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
