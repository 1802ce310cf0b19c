package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/why"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/trace"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/report"
)

// mostJobs is how many jobs there can be at once: they are numbered with 12 bits.
const mostJobs = 4095

func explainFlag() cli.Flag {
	return &cli.BoolFlag{Name: "explain", Usage: "explain: what the policy weighed for each job, and what lost"}
}

func placeCommand() *cli.Command {
	return &cli.Command{
		Name:  "place",
		Usage: "place jobs, and run nothing; needs no experiment",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "`FILE` of jobs: a trace, as one batch, or an experiment; - is standard input"},
			&cli.StringFlag{Name: "inventory", Aliases: []string{"i"}, Usage: "inventory `FILE`; default the experiment's"},
			&cli.StringFlag{Name: "policy", Aliases: []string{"p"}, Usage: "`NAME` of the policy, or several, with commas; default the experiment's, netpack for a trace"},
			&cli.BoolFlag{Name: "list", Usage: "list the policies, and how they choose"},
			&cli.BoolFlag{Name: "partial", Usage: "place the jobs that fit and list the others; without it they are an error"},
			explainFlag(),
			&cli.Uint64Flag{Name: "seed", Usage: "random seed `N` of the policies; default the experiment's, or 1"},
			setFlag(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the plan to `FILE`, a picture if it ends in .svg; json or - writes it to stdout"},
		},
		Description: `Examples:
  inabench place --list
  inabench place --explain -p netpack -j experiments/two-racks.toml
  inabench trace generate --jobs 9 --gpus 8 -o t.csv --max-gpus 4
  inabench place --partial -i experiments/racks/two-racks.toml -j t.csv
  inabench place -j experiments/batches/titan-figure1.toml -p hived,titan
`,
		Action: placeAction,
	}
}

// toPlace is a batch of jobs and where they may go.
type toPlace struct {
	spec       *spec.Spec // that knows policies: the experiment; empty of a trace
	inv        *inventory.Inventory
	jobs       []placement.Job
	at         map[string]tomlfile.Pos // of jobs that a trace has
	file       string
	policy     string
	seed       uint64
	conditions placement.Conditions
}

// placed is what `place` writes for programs.
type placed struct {
	Schema    int          `json:"schema"` // 1
	Tool      string       `json:"tool"`
	Policy    string       `json:"policy"`
	Rule      string       `json:"rule"`
	Seed      uint64       `json:"seed"`
	Inventory string       `json:"inventory"`
	From      string       `json:"jobs_file"`
	Jobs      []placedJob  `json:"jobs"`
	Waiting   []waitingJob `json:"waiting"`
	Free      []hostFree   `json:"free,omitempty"` // where jobs wait: what is left for them
	// Machines are what each GPU does: "" nothing, "A/0" it is rank 0 of job A, "A/spare" A
	// keeps it, "B/background" it is of B, which names its hosts while others do not.
	Machines []results.Machine `json:"machines"`
	Why      *study.Why        `json:"why,omitempty"`
}

type placedJob struct {
	placement.JobPlan
	GPUs  int      `json:"gpus"`
	Racks []string `json:"racks"`
	// Rate is what each worker sends and gets back in the steady state of all these
	// jobs, bit/s of gradients; nil: it sends nothing.
	Rate       *float64 `json:"rate,omitempty"`
	Bottleneck string   `json:"bottleneck"`
	// Cross is what its GPUs send each other between machines if they reduce by halving and
	// doubling, in gradients; both ways of an exchange count once.
	Cross float64 `json:"cross_traffic"`

	crossText string // "3/2 K"
	before    bool   // it was there before the others
}

type waitingJob struct {
	Name   string   `json:"name"`
	Line   int      `json:"line,omitempty"` // of a trace
	GPUs   int      `json:"gpus"`
	Hosts  []string `json:"hosts,omitempty"`
	Reason string   `json:"reason"`
}

type hostFree struct {
	Host string `json:"host"`
	Free int    `json:"free"`
	GPUs int    `json:"gpus"`
}

func placeAction(c *cli.Context) error {
	if c.Bool("list") {
		return writePolicies(c.App.Writer)
	}
	b, err := readBatch(c)
	if err != nil {
		return err
	}
	names := []string{b.policy}
	if list := c.String("policy"); list != "" {
		if names, err = listed(list, "policy", b.spec.PolicyNames()); err != nil {
			return err
		}
	}
	var all []*placed
	for _, name := range names {
		done, err := why.Place(c.Context, b.spec, name, b.inv, b.jobs, b.seed)
		if err != nil {
			return err
		}
		if n := len(done.Waiting); n > 0 && !c.Bool("partial") {
			return b.infeasible(done.Waiting)
		}
		out, err := b.result(c.Context, done)
		if err != nil {
			return err
		}
		if c.Bool("explain") {
			out.Why = &done.Why
		}
		all = append(all, out)
	}
	path := c.String("output")
	if path == "" {
		return writePlaced(c.App.Writer, all)
	}
	var text bytes.Buffer
	switch {
	case strings.HasSuffix(path, ".svg"):
		fmt.Fprintln(&text, report.MachinesSVG("Jobs of "+b.file+" on "+b.inv.File, sideBySide(all)))
	case len(all) == 1:
		err = writeJSON(&text, all[0])
	default:
		err = writeJSON(&text, all)
	}
	if err != nil {
		return err
	}
	if path == "json" || path == stdin {
		_, err := c.App.Writer.Write(text.Bytes())
		return err
	}
	if err := os.WriteFile(path, text.Bytes(), 0o666); err != nil {
		return outputError{err}
	}
	for _, p := range all {
		fmt.Fprintf(c.App.ErrWriter, "inabench: %s\n", p.summary())
	}
	return nil
}

// readBatch reads what is to be placed.
func readBatch(c *cli.Context) (*toPlace, error) {
	path := c.String("jobs")
	if path == "" {
		return nil, usagef("inabench place -i INVENTORY.toml -j JOBS.csv", "place: which jobs?")
	}
	src, err := read(c, path)
	if err != nil {
		return nil, err
	}
	var inv *inventory.Inventory
	if file := c.String("inventory"); file != "" {
		if inv, err = inventoryOf(file); err != nil {
			return nil, err
		}
	}
	b := &toPlace{spec: &spec.Spec{}, inv: inv, file: src.name, seed: 1}
	if isTOML(src) {
		err = b.experiment(c, src)
	} else {
		err = b.trace(c, src)
	}
	if err != nil {
		return nil, err
	}
	if len(b.jobs) > mostJobs {
		return nil, inputError{fmt.Errorf("%s has %s jobs, a batch at most %s", src.name, count(len(b.jobs)), count(mostJobs)),
			"inabench trace import --first N makes a smaller trace"}
	}
	if c.IsSet("seed") {
		b.seed = c.Uint64("seed")
	}
	return b, nil
}

// isTOML says whether a file is TOML rather than CSV, by its name or by its first line
// that says anything.
func isTOML(src source) bool {
	switch {
	case strings.HasSuffix(src.name, ".toml"):
		return true
	case strings.HasSuffix(src.name, ".csv"):
		return false
	}
	for line := range bytes.Lines(src.text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return line[0] == '[' || bytes.ContainsRune(line, '=')
		}
	}
	return false
}

// experiment takes the jobs of an experiment, of its first point.
func (b *toPlace) experiment(c *cli.Context, src source) error {
	sets := sets(c)
	var spec *spec.Spec
	var err error
	if b.inv == nil {
		spec, err = src.spec(sets)
	} else {
		spec, err = kinds.Parse(src.name, src.text, b.inv, append(sets, "inventory="+strconv.Quote(b.inv.File))...)
	}
	if err != nil {
		return err
	}
	points := spec.Points()
	if len(points) > 1 {
		fmt.Fprintf(c.App.ErrWriter, "inabench: the first of %d points: %s; --set chooses others\n", len(points), strings.Join(points[0].Labels, " "))
	}
	spec = points[0].Spec
	b.spec = spec
	if len(spec.Jobs) == 0 {
		hint := "a trace's jobs are placed with -j TRACE.csv -i INVENTORY.toml"
		if spec.Unplanned() == nil {
			hint = "inabench plan " + src.name + " shows where the workers of its job go"
		}
		return inputError{fmt.Errorf("%s has no [[job]]", src.name), hint}
	}
	b.inv, b.jobs, b.policy, b.seed = spec.Inventory(), spec.PlacementJobs(), spec.Placement.Policy, spec.Measure.Seed
	b.conditions = placement.Conditions{
		Mode: spec.Switch.Mode, Addressing: spec.Switch.Addressing, Aggregators: spec.Switch.Aggregators,
		Lanes: spec.Switch.Lanes, Senders: map[string]placement.Sender{},
	}
	for _, j := range spec.Jobs {
		b.conditions.Senders[j.Name] = placement.Sender{Rate: float64(j.Rate), Window: j.Window, Control: j.Control, Slots: spec.Switch.Slots}
	}
	return nil
}

// trace takes the jobs of a trace as one batch, in the order of their submission.
func (b *toPlace) trace(c *cli.Context, src source) error {
	if b.inv == nil {
		return usagef("inabench place -i INVENTORY.toml -j "+src.name, "place: which inventory? A trace names none")
	}
	if c.IsSet("set") {
		return usagef("", "--set changes experiments, %s is a trace", src.name)
	}
	t, _, err := trace.Read(src.name, bytes.NewReader(src.text), trace.Options{})
	if invalid, ok := errors.AsType[*trace.InvalidError](err); ok && invalid.Jobs > 0 {
		return inputError{err, "inabench trace import --lenient makes a trace without such rows"}
	}
	if err != nil {
		return inputError{err, ""}
	}
	b.policy, b.conditions.Lanes, b.at = "netpack", 240, map[string]tomlfile.Pos{}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		b.jobs = append(b.jobs, placement.Job{ID: uint16(i + 1), Name: j.ID, GPUs: j.GPUs, Collective: placement.INA, Model: j.Model})
		b.at[j.ID] = tomlfile.Pos{File: src.name, Line: j.Line, Col: 1}
	}
	return nil
}

// infeasible is the error for jobs that do not fit: all about the first, the others named.
func (b *toPlace) infeasible(waiting []*placement.InfeasibleError) error {
	const most = 10
	first := waiting[0]
	var err error = first
	if pos, ok := b.at[first.Job]; ok {
		err = fmt.Errorf("%v: %w", pos, first)
	}
	var others []string
	for i, e := range waiting[1:] {
		if i == most {
			others = append(others, fmt.Sprintf("and %s more", count(len(waiting)-1-most)))
			break
		}
		others = append(others, fmt.Sprintf("%s (%d GPUs)", e.Job, e.GPUs))
	}
	if len(others) > 0 {
		err = fmt.Errorf("%w; no room either for %s", err, strings.Join(others, ", "))
	}
	return hinted{err, "--partial places the jobs that fit and says which wait"}
}

// result puts a plan together with what its jobs get.
func (b *toPlace) result(ctx context.Context, done *why.Placed) (*placed, error) {
	out := &placed{
		Schema: 1, Tool: version(), Policy: done.Why.Policy, Rule: done.Why.Rule, Seed: b.seed,
		Inventory: b.inv.File, From: b.file, Jobs: []placedJob{}, Waiting: []waitingJob{}, Machines: done.Machines,
	}
	before := map[string]bool{}
	for _, m := range done.Machines {
		for _, c := range m.GPUs {
			if c.Use == results.Background {
				before[c.Job] = true
			}
		}
	}
	p, err := placement.Predict(ctx, b.inv, done.Plan, b.conditions)
	if err != nil {
		return nil, err
	}
	rates := map[string]placement.JobPrediction{}
	for _, j := range p.Jobs {
		rates[j.Name] = j
	}
	for _, j := range done.Plan.Jobs {
		one := placedJob{JobPlan: j, Racks: []string{}, Bottleneck: rates[j.Name].Bottleneck, before: before[j.Name]}
		one.Cross, one.crossText = study.Crossing(&j)
		for _, w := range j.Workers {
			one.GPUs += w.GPUs
			if h, ok := b.inv.Host(w.Host); ok && len(h.NICs) > 0 && !slices.Contains(one.Racks, h.NICs[0].Switch) {
				one.Racks = append(one.Racks, h.NICs[0].Switch)
			}
		}
		if !j.Local() {
			rate := rates[j.Name].Goodput
			one.Rate = &rate
		}
		out.Jobs = append(out.Jobs, one)
	}
	for _, e := range done.Waiting {
		reason := strings.TrimPrefix(e.Error(), "no feasible placement: job "+e.Job+" ")
		out.Waiting = append(out.Waiting, waitingJob{e.Job, b.at[e.Job].Line, e.GPUs, e.Hosts, reason})
	}
	if len(done.Waiting) > 0 {
		for _, f := range done.Waiting[0].Free {
			out.Free = append(out.Free, hostFree(f))
		}
	}
	return out, nil
}

// summary is a placement in a line.
func (p *placed) summary() string {
	s := fmt.Sprintf("%s placed %s on %s", p.Policy, human.Plural(len(p.Jobs), "job"), p.Inventory)
	if n := len(p.Waiting); n > 0 {
		s += fmt.Sprintf(", %s wait%s", count(n), map[bool]string{true: "s"}[n == 1])
	}
	return s
}

// writePlaced shows placements of the same jobs to a person.
func writePlaced(w io.Writer, all []*placed) error {
	for _, p := range all {
		fmt.Fprintln(w, p.summary())
	}
	fmt.Fprintln(w)
	if len(all) == 1 {
		if err := all[0].writeJobs(w); err != nil {
			return err
		}
	}
	if len(all[0].Machines) > 0 {
		_, width, colour := terminal(w)
		placements := sideBySide(all)
		if err := report.WriteMachines(w, placements, report.TextOptions{Width: width, Color: colour}); err != nil {
			return err
		}
		if len(placements[0].Notes) > 0 {
			fmt.Fprintln(w, "  across machines: what is sent by halving and doubling, K is the gradient")
		}
	}
	for i, p := range all {
		p.writeWaiting(w, len(all) > 1)
		if p.Why != nil {
			if i == 0 || len(p.Waiting) > 0 {
				fmt.Fprintln(w)
			}
			if err := writeWhy(w, p.Why); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostCrossing is of how many jobs at most a table of machines says what they send.
const mostCrossing = 6

// sideBySide are placements as tables and pictures have them. Of a few jobs with several
// GPUs they say how much each sends between machines.
func sideBySide(all []*placed) []report.Placement {
	var out []report.Placement
	for _, p := range all {
		one := report.Placement{Machines: p.Machines}
		if len(all) > 1 {
			one.Name = p.Policy
		}
		var crossing []report.Note
		for _, j := range p.Jobs {
			if j.GPUs > 1 && !j.before {
				crossing = append(crossing, report.Note{Label: j.Name + " across machines", Text: j.crossText})
			}
		}
		if len(crossing) <= mostCrossing && len(p.Waiting) == 0 {
			one.Notes = crossing
		}
		out = append(out, one)
	}
	return out
}

// writeJobs is a table of the jobs that are placed.
func (p *placed) writeJobs(w io.Writer) error {
	if len(p.Jobs) == 0 {
		return nil
	}
	tw := newTable(w, "JOB", "GPUS", "RATE", "BOTTLENECK", "RACKS", "PS", "HOSTS")
	for i := range p.Jobs {
		j := &p.Jobs[i]
		rate, bottleneck := "local", "-"
		if j.Rate != nil {
			rate, bottleneck = human.Quantity(*j.Rate, "bit/s"), j.Bottleneck
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", j.Name, j.GPUs, rate, bottleneck,
			strings.Join(j.Racks, ","), cmp.Or(j.PS, "-"), workers(j.JobPlan))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// writeWaiting lists the jobs that wait, and what is free; named, by which policy.
func (p *placed) writeWaiting(w io.Writer, named bool) {
	if len(p.Waiting) == 0 {
		return
	}
	if named {
		fmt.Fprintf(w, "\nwaiting (%s)\n", p.Policy)
	} else {
		fmt.Fprintln(w, "\nwaiting")
	}
	for _, j := range p.Waiting {
		where := ""
		if j.Line > 0 {
			where = fmt.Sprintf(" (%s:%d)", p.From, j.Line)
		}
		fmt.Fprintf(w, "  %s%s %s\n", j.Name, where, j.Reason)
	}
	var free []string
	for _, f := range p.Free {
		if f.Free > 0 {
			free = append(free, fmt.Sprintf("%s %d", f.Host, f.Free))
		}
	}
	if len(free) > 40 {
		free = append(free[:40], fmt.Sprintf("and %d more hosts", len(free)-40))
	}
	writeWords(w, "free", cmp.Or(strings.Join(free, ", "), "no GPU"))
}

// writeWhy shows a person why jobs are where they are.
func writeWhy(w io.Writer, why *study.Why) error {
	writeWrapped(w, "", fmt.Sprintf("why (%s): %s", why.Policy, why.Rule))
	weighed := slices.ContainsFunc(why.Jobs, func(r study.Reason) bool { return r.Chosen != nil })
	if weighed {
		last := "+ min(hot spot, uplinks)"
		if strings.HasSuffix(why.Policy, "-published") {
			last = "- max(hot spot, uplinks)"
		}
		fmt.Fprintf(w, "  value = workers + PS link - PS cost %s, in Gbit/s\n", last)
	}
	for _, r := range why.Jobs {
		for i, l := range wrap(r.Job+": "+r.Text, helpWidth-4) {
			fmt.Fprintf(w, "  %s%s\n", map[bool]string{true: "  "}[i > 0], l)
		}
		if r.Chosen == nil {
			continue
		}
		tw := newTable(w, "    ", "workers", "PS link", "PS cost", "hot spot", "uplinks", "value", "plan")
		for i, c := range append([]study.Choice{*r.Chosen}, r.Others...) {
			mark := "lost"
			if i == 0 {
				mark = "chosen"
			}
			ps, cost := "-", "-"
			if len(c.PS) > 0 {
				ps, cost = gigabits(c.PSBandwidth), gigabits(c.PSDecrement)
			}
			fmt.Fprintf(tw, "    %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", mark, gigabits(c.Workers), ps, cost,
				gigabits(c.HotSpot), gigabits(c.Uplinks), gigabits(c.Total), plan(c))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// gigabits writes a rate without its unit; what is not finite is not there.
func gigabits(r study.Rate) string {
	if math.IsInf(float64(r), 0) {
		return "-"
	}
	return strconv.FormatFloat(float64(r)/1e9, 'f', 2, 64)
}

// plan is what was weighed: hosts with their GPUs, and the PS.
func plan(c study.Choice) string {
	var words []string
	for i, h := range c.Hosts {
		words = append(words, fmt.Sprintf("%s (%d)", h, c.GPUs[i]))
	}
	s := strings.Join(words, " ")
	if len(c.PS) > 0 {
		s += ", PS " + strings.Join(c.PS, " ")
	}
	return s
}

func writePolicies(w io.Writer) error {
	var rows [][2]string
	for _, p := range spec.Policies() {
		rows = append(rows, [2]string{p.Name(), why.Rule(&spec.Spec{}, p.Name())})
	}
	writeRows(w, rows)
	_, err := fmt.Fprintln(w, "Parameter servers go where the fewest flows are, or where Equation 1 says.")
	return err
}
