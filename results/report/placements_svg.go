package report

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
)

// machinesPicture draws placements side by side: machines as boxes in their racks, GPUs
// as cells in them.
type machinesPicture struct {
	ID, Title, Desc string
	Placements      []Placement

	jobs   []string
	colour map[string]string // of jobs: a class
	shared bool              // there are other jobs
}

// MachinesSVG draws placements side by side as a document of its own.
func MachinesSVG(title string, placements []Placement) string {
	return plot.Alone(new(sheet).machinesPicture("placement", title, placements).SVG())
}

func (s *sheet) machinesPicture(id, title string, placements []Placement) *machinesPicture {
	p := &machinesPicture{ID: id, Title: title, Placements: placements, jobs: jobsOf(placements), colour: map[string]string{}, shared: shared(placements)}
	colours := s.coloursOf(p.jobs)
	if len(p.jobs) <= plot.Colours {
		colours = apart(colours)
	}
	for i, j := range p.jobs {
		p.colour[j] = "c" + strconv.Itoa(colours[i]%plot.Colours)
	}
	var b strings.Builder
	for _, one := range placements {
		if one.Name != "" {
			b.WriteString(one.Name + ": ")
		}
		t := tallyOf(one.Machines)
		fmt.Fprintf(&b, "%d of %d machines in use", t.used, t.all)
		if p.shared {
			fmt.Fprintf(&b, ", workers on %d, %d of them otherwise idle", t.workers, t.idle)
		}
		if t.workers > 0 && t.workers <= 12 {
			var hosts []string
			for _, m := range one.Machines {
				if holdsJob(m, results.Worker) {
					hosts = append(hosts, m.Name+" has "+strings.Join(ranksOf(m), " "))
				}
			}
			b.WriteString("; " + strings.Join(hosts, ", "))
		}
		b.WriteString(". ")
	}
	p.Desc = strings.TrimSpace(b.String())
	return p
}

// ranksOf names the workers on a machine: "A/0 A/3".
func ranksOf(m results.Machine) (names []string) {
	for _, c := range m.GPUs {
		if c.Use == results.Worker {
			names = append(names, c.Job+"/"+strconv.Itoa(c.Rank))
		}
	}
	return names
}

// machineTitle is a machine in words, for its tooltip.
func machineTitle(m results.Machine) string {
	count := map[results.Use]int{}
	for _, c := range m.GPUs {
		count[c.Use]++
	}
	parts := ranksOf(m)
	for _, u := range []struct {
		use  results.Use
		text string
	}{{results.Spare, "kept"}, {results.Background, "of other jobs"}, {results.Free, "free"}} {
		if n := count[u.use]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.text))
		}
	}
	name := m.Name
	if m.Rack != "" {
		name += ", rack " + m.Rack
	}
	return name + ": " + strings.Join(parts, ", ")
}

// rackSpan is a run of machines of one rack.
type rackSpan struct {
	name     string
	from, to int
}

func racksOf(machines []results.Machine) (racks []rackSpan) {
	for i, m := range machines {
		if i == 0 || m.Rack != machines[i-1].Rack {
			racks = append(racks, rackSpan{name: m.Rack, from: i})
		}
		racks[len(racks)-1].to = i + 1
	}
	return racks
}

// machineLayout is where the machines of a panel are, for a size of cells.
type machineLayout struct {
	cell, gap      float64 // of GPUs
	columns        int     // panels beside each other
	panel          float64 // width of one
	gpus           int     // in a row of a machine
	boxW, boxH     float64 // of a machine
	stepW, stepH   float64 // from one to the next
	named, numbers bool
	at             []plot.Spot // of machines, in the panel
	racks          []plot.Spot // of their names, below which their machines are
	height         float64
}

// layoutMachines places the machines of racks in panels of a picture so wide, with cells
// of a size.
func layoutMachines(machines []results.Machine, racks []rackSpan, cell, width float64, columns int) machineLayout {
	l := machineLayout{cell: cell, columns: columns, named: cell >= 12, numbers: cell >= 14}
	l.gap = 1
	pad := 1.0
	if l.named {
		l.gap, pad = 2, 4
	}
	const between = 28
	l.panel = (width - 24 - between*float64(columns-1)) / float64(columns)
	most := 1
	for _, m := range machines {
		most = max(most, len(m.GPUs))
	}
	l.gpus = most // 4 in a row, 8 in two
	if most > 4 {
		l.gpus = min((most+1)/2, 8)
	}
	lines := (most + l.gpus - 1) / l.gpus
	l.boxW = float64(l.gpus)*(cell+l.gap) - l.gap + 2*pad
	l.boxH = float64(lines)*(cell+l.gap) - l.gap + 2*pad
	l.stepW, l.stepH = l.boxW+3, l.boxH+3
	if l.named {
		l.stepW, l.stepH = l.boxW+10, l.boxH+22
	}
	fit := max(int((l.panel+l.stepW-l.boxW)/l.stepW), 1)
	title := 0.0
	if len(racks) > 1 && l.named {
		title = 18
	}
	x, y, tall := 0.0, 0.0, 0.0
	for _, r := range racks {
		n := r.to - r.from
		// Rows of one length, if it needs several.
		rows := (n + fit - 1) / fit
		row := (n + rows - 1) / rows
		w := float64(row) * l.stepW
		if x > 0 && x+w-(l.stepW-l.boxW) > l.panel {
			x, y = 0, y+tall
			tall = 0
		}
		l.racks = append(l.racks, plot.Spot{X: x, Y: y})
		for i := range n {
			l.at = append(l.at, plot.Spot{X: x + float64(i%row)*l.stepW, Y: y + title + float64(i/row)*l.stepH})
		}
		x += w + cell
		tall = max(tall, title+float64(rows)*l.stepH+cell/2)
	}
	l.height = y + tall
	return l
}

// layout is that with the largest cells with which the picture is not too tall.
func (p *machinesPicture) layout(width float64) machineLayout {
	machines := p.Placements[0].Machines
	racks := racksOf(machines)
	const tallest = 860
	best, least := machineLayout{}, math.Inf(1)
	for _, cell := range []float64{20, 16, 12, 9, 6, 4, 3} {
		for columns := min(len(p.Placements), 5); columns > 0; columns-- {
			l := layoutMachines(machines, racks, cell, width, columns)
			if l.boxW > l.panel && (cell > 3 || columns > 1) {
				continue
			}
			tall := float64((len(p.Placements)+columns-1)/columns) * (l.height + 60)
			if tall <= tallest {
				return l
			}
			if tall < least {
				best, least = l, tall
			}
		}
	}
	return best
}

// SVG renders the picture.
func (p *machinesPicture) SVG() string {
	w := 1240.0
	if len(p.Placements) == 1 {
		w = 640
	}
	l := p.layout(w)
	notes := 0
	for _, one := range p.Placements {
		notes = max(notes, len(one.Notes))
	}
	foot := 18 + 15*float64(notes+1)
	head := 0.0
	if slices.ContainsFunc(p.Placements, func(one Placement) bool { return one.Name != "" }) {
		head = 24
	}
	legend := p.legend(l)
	at := legendSpots(legend, w)
	top := 60.0
	if n := len(at); n > 0 {
		top = at[n-1].Y + 20
	}
	lines := (len(p.Placements) + l.columns - 1) / l.columns
	step := head + l.height + foot
	s := new(plot.Canvas)
	s.Begin(p.ID, p.Title, p.Desc, w, top+float64(lines)*step)
	s.Text("strong", "start", 12, 18, plot.Clip(p.Title, 13, w-24))
	drawLegend(s, legend, at, w)
	for i, one := range p.Placements {
		x := 12 + float64(i%l.columns)*(l.panel+28)
		y := top + float64(i/l.columns)*step
		if head > 0 {
			s.Text("strong", "start", x, y+10, plot.Clip(one.Name, 12, l.panel))
		}
		p.machines(s, l, one.Machines, x, y+head)
		y += head + l.height + 12
		t := tallyOf(one.Machines)
		text := fmt.Sprintf("%d of %d in use", t.used, t.all)
		if p.shared {
			text += fmt.Sprintf("; workers on %d, %d otherwise idle", t.workers, t.idle)
		}
		s.Text("muted small", "start", x, y, plot.Clip(text, 11, l.panel))
		for k, n := range one.Notes {
			s.Text("muted small", "start", x, y+15*float64(k+1), plot.Clip(n.Label+" "+n.Text, 11, l.panel))
		}
	}
	s.Close("svg")
	return s.String()
}

// machines draws a panel. Small machines are a few paths rather than thousands of boxes.
func (p *machinesPicture) machines(s *plot.Canvas, l machineLayout, machines []results.Machine, x, y float64) {
	racks := racksOf(machines)
	if l.named && len(racks) > 1 {
		for i, at := range l.racks[:min(len(racks), len(l.racks))] {
			s.Text("muted small", "start", x+at.X, y+at.Y+11, plot.Clip(racks[i].name, 11, l.panel))
		}
	}
	pad := (l.boxW - float64(l.gpus)*(l.cell+l.gap) + l.gap) / 2
	paths := map[string]*strings.Builder{}
	rect := func(class string, x, y, w, h float64) {
		b := paths[class]
		if b == nil {
			b = new(strings.Builder)
			paths[class] = b
		}
		b.WriteString("M" + plot.Num(x) + " " + plot.Num(y) + "h" + plot.Num(w) + "v" + plot.Num(h) + "h" + plot.Num(-w) + "z")
	}
	for i, m := range machines[:min(len(machines), len(l.at))] {
		mx, my := x+l.at[i].X, y+l.at[i].Y
		class := "machine"
		if !m.Used() {
			class += " idle"
		}
		if !l.named {
			rect(class, mx, my, l.boxW, l.boxH)
			for from := 0; from < len(m.GPUs); { // neighbours that look alike are one
				to := from + 1
				for to < len(m.GPUs) && to/l.gpus == from/l.gpus && p.class(m.GPUs[to]) == p.class(m.GPUs[from]) {
					to++
				}
				if m.GPUs[from].Use != results.Free {
					at := l.cellAt(from, mx+pad, my+pad)
					rect(p.class(m.GPUs[from]), at.X, at.Y, float64(to-from)*(l.cell+l.gap)-l.gap, l.cell)
				}
				from = to
			}
			continue
		}
		s.Open("g")
		s.Leaf(machineTitle(m), "rect", "class", class, "x", plot.Num(mx), "y", plot.Num(my), "width", plot.Num(l.boxW), "height", plot.Num(l.boxH), "rx", "3")
		for k, c := range m.GPUs {
			at := l.cellAt(k, mx+pad, my+pad)
			s.Leaf(cellTitle(c), "rect", "class", p.class(c), "x", plot.Num(at.X), "y", plot.Num(at.Y), "width", plot.Num(l.cell), "height", plot.Num(l.cell), "rx", "2")
			if c.Use == results.Worker && l.numbers {
				s.Text("rank", "middle", at.X+l.cell/2, at.Y+l.cell/2+3.8, strconv.Itoa(c.Rank))
			}
		}
		s.Text("muted tiny", "middle", mx+l.boxW/2, my+l.boxH+11, plot.Clip(m.Name, 9.5, l.boxW+6))
		s.Close("g")
	}
	for _, class := range slices.SortedFunc(maps.Keys(paths), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(!strings.HasPrefix(a, "machine")), rank(!strings.HasPrefix(b, "machine"))), cmp.Compare(a, b))
	}) {
		s.Leaf("", "path", "class", class, "d", paths[class].String())
	}
}

func (l machineLayout) cellAt(k int, x, y float64) plot.Spot {
	return plot.Spot{X: x + float64(k%l.gpus)*(l.cell+l.gap), Y: y + float64(k/l.gpus)*(l.cell+l.gap)}
}

// class is how a GPU looks.
func (p *machinesPicture) class(c results.Cell) string {
	switch c.Use {
	case results.Worker:
		return "gpu " + p.colour[c.Job]
	case results.Spare:
		return "gpu spare " + p.colour[c.Job]
	case results.Background:
		return "gpu busy"
	}
	return "gpu free"
}

func cellTitle(c results.Cell) string {
	switch c.Use {
	case results.Worker:
		return c.Job + ", rank " + strconv.Itoa(c.Rank)
	case results.Spare:
		return "kept by " + c.Job
	case results.Background:
		return strings.TrimSpace("another job " + c.Job)
	}
	return ""
}

type legendEntry struct{ class, text string }

// legend is what is to be seen, jobs first.
func (p *machinesPicture) legend(l machineLayout) (out []legendEntry) {
	number := ""
	if l.numbers {
		number = ", by rank"
	}
	for _, j := range p.jobs {
		out = append(out, legendEntry{"gpu " + p.colour[j], j + number})
	}
	if len(p.jobs) > plot.Colours { // more than colours
		out = []legendEntry{{"", fmt.Sprintf("%d jobs, one colour each, which come again", len(p.jobs))}}
	}
	uses := map[results.Use]bool{}
	for _, one := range p.Placements {
		for _, m := range one.Machines {
			for _, c := range m.GPUs {
				uses[c.Use] = true
			}
		}
	}
	if uses[results.Spare] {
		class := "gpu spare b8"
		if len(p.jobs) > 0 {
			class = "gpu spare " + p.colour[p.jobs[0]]
		}
		out = append(out, legendEntry{class, "kept, no worker"})
	}
	if uses[results.Background] {
		out = append(out, legendEntry{"gpu busy", "another job"})
	}
	if uses[results.Free] {
		out = append(out, legendEntry{"gpu free", "free"})
	}
	return out
}

// legendSpots are where entries begin, in rows as wide as the picture.
func legendSpots(entries []legendEntry, w float64) []plot.Spot {
	at := make([]plot.Spot, len(entries))
	x, y := 12.0, 40.0
	for i, e := range entries {
		width := plot.TextWidth(e.text, 11) + 38
		if x > 12 && x+width > w-12 {
			x, y = 12, y+20
		}
		at[i] = plot.Spot{X: x, Y: y}
		if x += width; e.class == "" {
			x -= 18 // it has no box
		}
	}
	return at
}

func drawLegend(s *plot.Canvas, entries []legendEntry, at []plot.Spot, w float64) {
	for i, e := range entries {
		x, y := at[i].X, at[i].Y
		if e.class == "" {
			s.Text("muted small", "start", x, y, plot.Clip(e.text, 11, w-24))
			continue
		}
		s.Leaf("", "rect", "class", e.class, "x", plot.Num(x), "y", plot.Num(y-10), "width", "12", "height", "12", "rx", "2")
		s.Text("muted small", "start", x+18, y, plot.Clip(e.text, 11, w-40))
	}
}

// placementView is a picture of the report, with its placements as a table.
type placementView struct {
	Title string
	SVG   template.HTML
	Names []string // columns of the table
	Rows  []placementLine
	Note  string
	Left  string // out of the table
}

type placementLine struct {
	Machine string
	GPUs    []string // a text for each name
}

// viewPlacements are the placements of the report: pictures with tables.
func (s *sheet) viewPlacements(rec *results.Record) (out []placementView) {
	for i, r := range placementsOf(rec) {
		title := "Placement"
		if r.Title != "" {
			title += ", " + r.Title
		}
		v := placementView{Title: title, Note: r.Note, SVG: template.HTML(s.machinesPicture("place-"+strconv.Itoa(i), title, r.Placements).SVG())}
		for _, p := range r.Placements {
			v.Names = append(v.Names, cmp.Or(p.Name, "GPUs"))
		}
		left := 0
		for k, m := range r.Placements[0].Machines {
			if !slices.ContainsFunc(r.Placements, func(p Placement) bool { return k < len(p.Machines) && holdsJob(p.Machines[k], results.Worker) }) || len(v.Rows) == mostListed {
				left++
				continue
			}
			line := placementLine{Machine: m.Name}
			for _, p := range r.Placements {
				text := ""
				if k < len(p.Machines) {
					_, text, _ = strings.Cut(machineTitle(p.Machines[k]), ": ")
				}
				line.GPUs = append(line.GPUs, text)
			}
			v.Rows = append(v.Rows, line)
		}
		if left > 0 {
			v.Left = human.Plural(left, "machine") + " without workers left out"
			if len(v.Rows) == mostListed {
				v.Left = human.Plural(left, "machine") + " left out"
			}
		}
		out = append(out, v)
	}
	return out
}
