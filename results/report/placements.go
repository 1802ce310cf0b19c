package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Placement is one way to place jobs on the machines of a cluster: a column of a table,
// a panel of a picture. Placements that are shown together have the same machines.
type Placement struct {
	Name     string // "titan"
	Machines []results.Machine
	Notes    []Note // beneath what can be seen
}

// Note says something of a placement: "cross traffic", "3/2 K".
type Note struct{ Label, Text string }

const (
	mostListed  = 40 // machines that a table lists; of more it counts GPUs in use
	mostShown   = 16 // machines of which all are listed; of more those with workers
	mostTables  = 12 // tables of a run in the terminal
	mostLetters = 52 // jobs that letters tell apart
)

// machineTally counts machines: all, those in use, those with workers, and those of the
// latter where nothing else runs.
type machineTally struct{ all, used, workers, idle int }

func tallyOf(machines []results.Machine) machineTally {
	t := machineTally{all: len(machines)}
	for _, m := range machines {
		if m.Used() {
			t.used++
		}
		if holdsJob(m, results.Worker) {
			t.workers++
			if !holdsJob(m, results.Background) {
				t.idle++
			}
		}
	}
	return t
}

func holdsJob(m results.Machine, u results.Use) bool {
	return slices.ContainsFunc(m.GPUs, func(c results.Cell) bool { return c.Use == u })
}

// shared says whether other jobs are in any of the placements: otherwise all machines with
// workers are otherwise idle.
func shared(placements []Placement) bool {
	return slices.ContainsFunc(placements, func(p Placement) bool {
		return slices.ContainsFunc(p.Machines, func(m results.Machine) bool { return holdsJob(m, results.Background) })
	})
}

// notes are what is said beneath a placement, of those that are shared or not.
func (p Placement) notes(shared bool) []Note {
	t := tallyOf(p.Machines)
	notes := []Note{{"in use", fmt.Sprintf("%d of %d", t.used, t.all)}}
	if shared {
		notes = append(notes, Note{"with workers", strconv.Itoa(t.workers)}, Note{"otherwise idle", strconv.Itoa(t.idle)})
	}
	return append(notes, p.Notes...)
}

// jobsOf names the jobs that have workers or keep GPUs.
func jobsOf(placements []Placement) (jobs []string) {
	seen := map[string]bool{}
	for _, p := range placements {
		for _, m := range p.Machines {
			for _, c := range m.GPUs {
				if (c.Use == results.Worker || c.Use == results.Spare) && !seen[c.Job] {
					seen[c.Job] = true
					jobs = append(jobs, c.Job)
				}
			}
		}
	}
	slices.Sort(jobs)
	return jobs
}

// placementRow is placements side by side, of points that differ in one key.
type placementRow struct {
	Title      string
	Placements []Placement
	Note       string // what of the points is not shown
}

// placementsOf are the machines of the run's points: a row for each combination of the
// other swept keys, a column for each policy, or for each value of the compared key.
func placementsOf(rec *results.Record) []placementRow {
	cells := slices.DeleteFunc(results.Settings(rec.Points), func(c results.Setting) bool { return len(placedOf(c)) == 0 })
	key := columnKey(rec)
	var rows []placementRow
	at := map[string]int{}
	for _, c := range cells {
		name, title := splitLabels(c, key)
		i, ok := at[title]
		if !ok || name == "" {
			i = len(rows)
			at[title] = i
			rows = append(rows, placementRow{Title: title})
		}
		row := &rows[i]
		points := placedOf(c)
		p := Placement{Name: name, Machines: points[0].Machines}
		if t := points[0].MachinesAt; t > 0 {
			p.Notes = append(p.Notes, Note{"after", human.Elapsed(time.Duration(t * float64(time.Second)))})
		}
		row.Placements = append(row.Placements, p)
		if slices.ContainsFunc(points, func(p results.Point) bool { return !sameMachines(p.Machines, points[0].Machines) }) {
			row.Note = "the first repeat; others have other placements"
		}
	}
	return rows
}

// placedOf are the repeats of a cell that say where jobs were.
func placedOf(c results.Setting) []results.Point {
	points := c.Repeats
	if len(points) == 0 {
		points = slices.DeleteFunc(slices.Clone(c.All), func(p results.Point) bool { return p.Error != "" })
	}
	return slices.DeleteFunc(slices.Clone(points), func(p results.Point) bool { return len(p.Machines) == 0 })
}

func sameMachines(a, b []results.Machine) bool {
	return slices.EqualFunc(a, b, func(a, b results.Machine) bool { return a.Name == b.Name && slices.Equal(a.GPUs, b.GPUs) })
}

// placements writes the tables of the run.
func (t *texter) placements() {
	rows := placementsOf(t.rec)
	for i, r := range rows {
		if i == mostTables {
			fmt.Fprintf(&t.b, "\n… and %s more: see %s\n", human.Plural(len(rows)-i, "placement"), results.ReportFile)
			return
		}
		t.b.WriteString("\n")
		title := "Placement"
		if r.Title != "" {
			title += ", " + r.Title
		}
		if r.Note != "" {
			title += " (" + r.Note + ")"
		}
		t.wrapped("", "  ", title)
		t.machines(r.Placements)
	}
}

// WriteMachines writes placements side by side for the terminal: machines downwards, one
// sign for each GPU, and what is to be seen in words. Of a large cluster it shows the
// machines with workers or, where these are many too, of how many GPUs of each are in use.
func WriteMachines(w io.Writer, placements []Placement, opt TextOptions) error {
	t := texter{opt: opt}
	t.opt.Width = cmp.Or(opt.Width, 100)
	t.machines(placements)
	_, err := io.WriteString(w, t.b.String())
	return err
}

func (t *texter) machines(placements []Placement) {
	if len(placements) == 0 {
		return
	}
	all := placements[0].Machines
	var listed []int
	for i := range all {
		if len(all) <= mostShown || slices.ContainsFunc(placements, func(p Placement) bool {
			return i < len(p.Machines) && holdsJob(p.Machines[i], results.Worker)
		}) {
			listed = append(listed, i)
		}
	}
	g := newGrid(placements)
	switch {
	case len(listed) <= mostListed:
		g.list(listed)
	case t.rec == nil:
		g.racks()
	default: // a run's report has a picture
		g.pictured = true
	}
	others := shared(placements)
	for k, n := range placements[0].notes(others) {
		row := gridRow{head: n.Label}
		for _, p := range placements {
			text := ""
			if notes := p.notes(others); k < len(notes) {
				text = notes[k].Text
			}
			row.cells = append(row.cells, text)
		}
		g.rows = append(g.rows, row)
	}
	for _, l := range g.legend() {
		t.wrapped("  ", "    ", l)
	}
	g.write(t)
}

// machineGrid is a table of placements for the terminal.
type machineGrid struct {
	placements []Placement
	jobs       []string
	letters    []string // of jobs; none where there is only one
	counts     bool     // it counts GPUs
	pictured   bool     // it has no machines
	omitted    machineTally
	uses       map[results.Use]bool
	wide       int // columns of a GPU
	rows       []gridRow
}

type gridRow struct {
	head  string
	cells []string
	gpus  [][]results.Cell // what the signs of a cell are, where they are GPUs
}

func newGrid(placements []Placement) *machineGrid {
	g := &machineGrid{placements: placements, jobs: jobsOf(placements), uses: map[results.Use]bool{}, wide: 1}
	if len(g.jobs) > 1 {
		own := !slices.ContainsFunc(g.jobs, func(j string) bool { return len(j) != 1 || !('A' <= j[0] && j[0] <= 'Z' || 'a' <= j[0] && j[0] <= 'z') })
		for i, j := range g.jobs {
			switch {
			case own:
				g.letters = append(g.letters, j)
			case i >= mostLetters:
				g.letters = append(g.letters, "*")
			default:
				g.letters = append(g.letters, string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[i]))
			}
		}
	}
	return g
}

// sign is what stands for a GPU.
func (g *machineGrid) sign(c results.Cell) string {
	letter := ""
	if i := slices.Index(g.jobs, c.Job); i >= 0 && g.letters != nil {
		letter = g.letters[i]
	}
	switch c.Use {
	case results.Worker:
		return letter + strconv.Itoa(c.Rank)
	case results.Spare:
		return letter + "-"
	case results.Background:
		return strings.Repeat("#", g.wide)
	}
	return "."
}

// list makes a row of each of these machines.
func (g *machineGrid) list(listed []int) {
	for _, p := range g.placements {
		for i, m := range p.Machines {
			if !slices.Contains(listed, i) {
				continue
			}
			for _, c := range m.GPUs {
				g.uses[c.Use] = true
				g.wide = max(g.wide, len(g.sign(c)))
			}
		}
	}
	racks := map[string]bool{}
	for _, m := range g.placements[0].Machines {
		racks[m.Rack] = true
	}
	rack := ""
	for _, i := range listed {
		m := g.placements[0].Machines[i]
		if len(racks) > 1 && m.Rack != rack {
			rack = m.Rack
			g.rows = append(g.rows, gridRow{head: rack, cells: make([]string, len(g.placements))})
		}
		row := gridRow{head: m.Name}
		if len(racks) > 1 {
			row.head = "  " + m.Name
		}
		for _, p := range g.placements {
			var gpus []results.Cell
			if i < len(p.Machines) {
				gpus = p.Machines[i].GPUs
			}
			signs := make([]string, len(gpus))
			for k, c := range gpus {
				signs[k] = fmt.Sprintf("%-*s", g.wide, g.sign(c))
			}
			row.cells = append(row.cells, strings.Join(signs, " "))
			row.gpus = append(row.gpus, gpus)
		}
		g.rows = append(g.rows, row)
	}
	var rest []results.Machine
	for i, m := range g.placements[0].Machines {
		if !slices.Contains(listed, i) {
			rest = append(rest, m)
		}
	}
	g.omitted = tallyOf(rest)
}

// racks makes a row of each rack, a digit of each machine: how many GPUs are in use. Racks
// that follow each other and look alike share a row.
func (g *machineGrid) racks() {
	g.counts = true
	const most = 32 // machines in a row
	all := g.placements[0].Machines
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && to-from < most && all[to].Rack == all[from].Rack {
			to++
		}
		row := gridRow{head: cmp.Or(all[from].Rack, all[from].Name)}
		for _, p := range g.placements {
			var b strings.Builder
			for i := from; i < min(to, len(p.Machines)); i++ {
				used := 0
				for _, c := range p.Machines[i].GPUs {
					if c.Use != results.Free {
						used++
					}
				}
				switch {
				case used == 0:
					b.WriteByte('.')
				case used > 9:
					b.WriteByte('+')
				default:
					b.WriteByte(byte('0' + used))
				}
			}
			row.cells = append(row.cells, b.String())
		}
		from = to
		if n := len(g.rows); n > 0 && slices.Equal(g.rows[n-1].cells, row.cells) {
			first, _, _ := strings.Cut(g.rows[n-1].head, " to ")
			g.rows[n-1].head = first + " to " + row.head
			continue
		}
		g.rows = append(g.rows, row)
	}
}

// legend says what the signs mean.
func (g *machineGrid) legend() []string {
	if g.pictured {
		return []string{"machines: see " + results.ReportFile}
	}
	if g.counts {
		return []string{"a sign is a machine: how many of its GPUs are in use, . none, + more than 9"}
	}
	var parts, lines []string
	what := "its rank"
	switch {
	case len(g.letters) > 0:
		var names []string
		for i, j := range g.jobs[:min(len(g.jobs), mostLetters)] {
			if g.letters[i] != j {
				names = append(names, g.letters[i]+" "+j)
			}
		}
		if len(g.jobs) > mostLetters {
			names = append(names, "* other jobs")
		}
		if len(names) > 0 {
			lines = append(lines, strings.Join(names, ", "))
		}
		what = "a job and its rank"
	case len(g.jobs) == 1:
		what = "a rank of " + g.jobs[0]
	}
	for _, u := range []struct {
		use  results.Use
		text string
	}{{results.Worker, what}, {results.Spare, "- kept, no worker"}, {results.Background, "# another job"}, {results.Free, ". free"}} {
		if g.uses[u.use] {
			parts = append(parts, u.text)
		}
	}
	lines = append([]string{"a sign is a GPU: " + strings.Join(parts, ", ")}, lines...)
	if o := g.omitted; o.all > 0 {
		lines = append(lines, fmt.Sprintf("%s without workers left out: %d in use, %d idle", human.Plural(o.all, "machine"), o.used, o.all-o.used))
	}
	return lines
}

// mostHead is how many letters of a row's head are shown.
const mostHead = 24

// write writes the table.
func (g *machineGrid) write(t *texter) {
	names := []string{""}
	for _, p := range g.placements {
		names = append(names, p.Name)
	}
	var rows [][]string
	var gpus [][][]results.Cell // of each row
	if slices.ContainsFunc(names, func(name string) bool { return name != "" }) {
		rows, gpus = [][]string{names}, [][][]results.Cell{nil}
	}
	for _, r := range g.rows {
		head := []rune(r.head)
		if len(head) > mostHead {
			head = append(head[:mostHead-1], '…')
		}
		rows, gpus = append(rows, append([]string{string(head)}, r.cells...)), append(gpus, r.gpus)
	}
	t.columns(rows, "   ", t.opt.Width, func(int) bool { return false }, func(row, col int, text string) string {
		if !t.opt.Color || col == 0 || gpus[row] == nil {
			return text
		}
		return g.painted(gpus[row][col-1])
	})
}

// painted are the signs of GPUs in the colours of their jobs.
func (g *machineGrid) painted(gpus []results.Cell) string {
	signs := make([]string, len(gpus))
	for k, c := range gpus {
		code := "2"
		if i := slices.Index(g.jobs, c.Job); i >= 0 && (c.Use == results.Worker || c.Use == results.Spare) {
			code = []string{"36", "33", "32", "35", "34", "31"}[i%6]
		}
		signs[k] = fmt.Sprintf("\x1b[%sm%-*s\x1b[0m", code, g.wide, g.sign(c))
	}
	return strings.Join(signs, " ")
}
