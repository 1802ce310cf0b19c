package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/pace"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/report"
	"github.com/inabench/inabench/testbed/carry"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check experiments and inventories: all errors at once; touches nothing",
		ArgsUsage: "FILE.toml|- ...",
		Flags: []cli.Flag{
			setFlag(),
			&cli.BoolFlag{Name: "lab", Usage: "also require every address that a lab needs"},
		},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("inabench check FILE.toml ...", "check: which file?")
			}
			var problems tomlfile.Problems
			var errs []error
			note := ""
			for _, path := range c.Args().Slice() {
				line, s, err := checkFile(c, path)
				var p tomlfile.Problems
				switch {
				case errors.As(err, &p):
					problems = append(problems, p...)
				case err != nil:
					errs = append(errs, err)
				default:
					fmt.Fprintln(c.App.Writer, line)
				}
				if err != nil || s == nil {
					continue
				}
				switch carried := pace.KeepsUp(c.Context, s, version()); carried {
				case "", pace.Unmeasured:
					note = cmp.Or(note, carried)
				default:
					fmt.Fprintln(c.App.Writer, "  "+carried)
				}
			}
			if note != "" {
				fmt.Fprintf(c.App.ErrWriter, "inabench: %s\n", note)
			}
			if len(errs) > 0 {
				if len(problems) > 0 {
					say(c.App.ErrWriter, problems)
				}
				return errors.Join(errs...)
			}
			return problems.Err()
		},
	}
}

// checkFile checks one file and describes what it holds in a line. The experiment is nil of an inventory.
func checkFile(c *cli.Context, path string) (line string, s *spec.Spec, err error) {
	src, err := read(c, path)
	if err != nil {
		return "", nil, err
	}
	inv, s, err := src.lab(sets(c))
	if err != nil {
		return "", nil, err
	}
	if c.Bool("lab") {
		if err := checkLab(inv); err != nil {
			return "", nil, err
		}
	}
	if s == nil {
		return fmt.Sprintf("%s: ok\n%s", src.name, indent(inv.Describe())), nil, nil
	}
	if err := tooMany(s); err != nil {
		return "", nil, fmt.Errorf("%s: %w", src.name, err)
	}
	if err := drawable(s); err != nil {
		return "", nil, fmt.Errorf("%s: %w", src.name, err)
	}
	jobs := "jobs of a file"
	if n := s.Study().Count(); n > 0 {
		jobs = human.Plural(n, "job")
	}
	repeats := ""
	if m := &s.Measure; m.Precision > 0 {
		repeats = fmt.Sprintf(", %d to %d repeats", m.Fewest(), m.UpTo())
	}
	return fmt.Sprintf("%s: ok: %s, %s%s, %s, inventory %s", src.name, jobs, human.Plural(len(s.Points()), "point"), repeats,
		human.Plural(len(s.Expects), "expectation"), inv.File), s, nil
}

// drawable is why what an experiment draws for its repeats cannot be; nil of those that draw nothing, or from a file, or are
// many points. Jobs that are placed are looked at by a plan.
func drawable(s *spec.Spec) error {
	if _, places := kinds.Of(s).(study.Placer); places || len(s.Points()) > pace.MostChecked {
		return nil
	}
	if files, err := kinds.Files(s); err != nil || len(files) > 0 {
		return nil // a run says it
	}
	for _, pt := range s.Points() {
		if err := kinds.Of(pt.Spec).Ready(study.Planned{Point: pt, On: s.On}); errors.Is(err, spec.ErrInput) {
			return fmt.Errorf("%s%w", spec.Prefix(pt.Labels), err)
		}
	}
	return nil
}

// tooMany is of the first job that asks for more GPUs than all hosts have together, which no policy can place; nil
// where there is none.
func tooMany(s *spec.Spec) error {
	for _, pt := range s.Points() {
		inv := pt.Spec.Inventory()
		if inv == nil || len(pt.Spec.Jobs) == 0 {
			continue
		}
		gpus := 0
		var free []placement.HostFree
		for _, h := range inv.Hosts {
			gpus += h.GPUs
			free = append(free, placement.HostFree{Host: h.Name, Free: h.GPUs, GPUs: h.GPUs})
		}
		for _, j := range pt.Spec.Jobs {
			if len(j.Hosts) == 0 && j.GPUs > gpus {
				return &placement.InfeasibleError{Job: j.Name, GPUs: j.GPUs, Free: free}
			}
		}
	}
	return nil
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}

func planCommand() *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "show where jobs go, what switches hold and what is predicted; touches nothing",
		ArgsUsage: "EXPERIMENT.toml|-",
		Flags: []cli.Flag{
			driverFlag(), setFlag(), switchFlag(), explainFlag(), predictorFlag(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the plan to `FILE`, for `inabench run FILE`; json or - writes it to stdout"},
		},
		Action: func(c *cli.Context) error {
			path, err := argument(c, "experiment")
			if err != nil {
				return err
			}
			src, err := read(c, path)
			if err != nil {
				return err
			}
			spec, err := src.spec(sets(c))
			if err != nil {
				return err
			}
			emulated := driverOf(c, spec) == "netns"
			slow := slowly{asked: spec, spec: spec, src: src, sets: sets(c), open: emulated && pace.Open(spec), say: func(what string) {
				fmt.Fprintf(c.App.ErrWriter, "inabench: %s\n", what)
			}}
			// A plan that is kept says how fast it is run. Otherwise nothing is touched, not to measure this machine either.
			if _, known := carry.Known(version()); known || c.IsSet("output") {
				if _, err := slow.choose(c.Context, 1); err != nil {
					return err
				}
			}
			plan, err := experiments.NewPlan(c.Context, slow.spec, version())
			if err != nil {
				return err
			}
			if note := pace.Fits(plan, version()); emulated && note != "" {
				slow.say(note)
			}
			if driverOf(c, spec) == "lab" {
				if err := writeForeseen(c.App.ErrWriter, plan); err != nil {
					return err
				}
			}
			more, err := predictorsOf(c)
			if err != nil {
				return err
			}
			if err := plan.Ask(c.Context, more); err != nil {
				return err
			}
			if c.Bool("explain") {
				if err := plan.Explain(c.Context); err != nil {
					return err
				}
			}
			switch out := c.String("output"); out {
			case "":
				return writePlan(c.App.Writer, plan)
			case "json", stdin:
				return writeJSON(c.App.Writer, plan)
			default:
				if err := plan.Save(out); err != nil {
					return outputError{err}
				}
				words := []string{"inabench", "run"}
				if driver := driverOf(c, spec); driver != cmp.Or(spec.On, defaultDriver) { // which a plan does not keep
					words = append(words, "--on", driver)
				}
				fmt.Fprintf(c.App.ErrWriter, "inabench: plan saved: %s\n", human.ShellLine(append(words, out)...))
				return nil
			}
		},
	}
}

// writePlan shows a plan to a person: placements once where points share them.
func writePlan(w io.Writer, p *experiments.SavedPlan) error {
	tw := newTable(w)
	var last []byte
	for _, pt := range p.Points {
		if pt.Plan == nil {
			if err := writeTraining(w, pt); err != nil {
				return err
			}
			continue
		}
		now, err := json.Marshal(pt.Plan)
		if err != nil {
			return err
		}
		if string(now) != string(last) {
			fmt.Fprintf(tw, "placement (%s)\n", pt.Plan.Policy)
			for _, j := range pt.Plan.Jobs {
				fmt.Fprintf(tw, "  job %s\t%s\tworkers %s\t%s\t%s\n", j.Name, j.Collective, workers(j), ps(j), tree(j))
			}
			if err := tw.Flush(); err != nil {
				return err
			}
			fmt.Fprintln(w)
			if pt.Why != nil {
				if err := writeWhy(w, pt.Why); err != nil {
					return err
				}
			}
		}
		last = now
		if len(pt.Labels) > 0 {
			fmt.Fprintf(tw, "point %s\n", strings.Join(pt.Labels, " "))
		}
		if pt.Aggregators > 0 {
			fmt.Fprintf(tw, "  aggregators\t%d on every switch\n", pt.Aggregators)
		}
		for i, ph := range pt.Phases {
			fmt.Fprintf(tw, "  phase %d, %g s to %g s: %s\n", i+1, ph.Start, ph.End, strings.Join(ph.Jobs, ", "))
			asked := externals(ph)
			fmt.Fprintf(tw, "    job\tgoodput\tper worker on the wire\taggregated\tbottleneck\twaterfill says")
			for _, name := range asked {
				fmt.Fprintf(tw, "\t%s says", name)
			}
			fmt.Fprintln(tw)
			for k, j := range ph.Predictions[0].Jobs {
				if j.Local {
					fmt.Fprintf(tw, "    %s\tlocal\tlocal\t-\t%s\tlocal\n", j.Name, j.Bottleneck)
					continue
				}
				published := ph.Predictions[1].Jobs[k]
				fmt.Fprintf(tw, "    %s\t%s\t%s\t%s\t%s\t%s %s", j.Name,
					human.Quantity(j.Goodput, "bit/s"), human.Quantity(j.WireRate, "bit/s"), shares(j.Shares), j.Bottleneck,
					human.Quantity(published.Goodput, "bit/s"), shares(published.Shares))
				for _, name := range asked {
					fmt.Fprintf(tw, "\t%s", externalSays(ph, name, j.Name))
				}
				fmt.Fprintln(tw)
			}
			for _, c := range ph.Conditions {
				writeWrapped(tw, "    ! ", c)
			}
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// externals are the predictors of one's own that said something of a phase.
func externals(ph study.PlanPhase) (names []string) {
	for _, f := range ph.External {
		if !slices.Contains(names, f.Predictor) {
			names = append(names, f.Predictor)
		}
	}
	return names
}

// externalSays is what one of them says of a job: its goodput and shares.
func externalSays(ph study.PlanPhase, name, job string) string {
	goodput := "-"
	var of []placement.SharePrediction
	for _, f := range ph.External {
		_, sw, _ := strings.Cut(f.Of, job+"@")
		switch {
		case f.Predictor != name:
		case f.Metric == "goodput" && f.Of == job:
			goodput = human.Quantity(f.Value, f.Unit)
		case f.Metric == "share" && f.Of == job+"@"+sw:
			of = append(of, placement.SharePrediction{Switch: sw, Share: f.Value})
		}
	}
	return goodput + " " + shares(of)
}

// writeTraining shows where the workers of one job go, GPU by GPU, and what is predicted.
func writeTraining(w io.Writer, pt study.PlanPoint) error {
	if len(pt.Labels) > 0 {
		fmt.Fprintf(w, "point %s\n", strings.Join(pt.Labels, " "))
	}
	_, width, colour := terminal(w)
	if err := report.WriteMachines(w, []report.Placement{{Machines: pt.Machines}}, report.TextOptions{Width: width, Color: colour}); err != nil {
		return err
	}
	if pt.Why != nil {
		if err := writeWhy(w, pt.Why); err != nil {
			return err
		}
	}
	tw := newTable(w)
	for _, f := range pt.Figures {
		fmt.Fprintf(tw, "  %s\t%s\n", f.Metric, human.Quantity(f.Value, f.Unit))
	}
	fmt.Fprintln(tw)
	return tw.Flush()
}

func workers(j placement.JobPlan) string {
	var out []string
	for _, w := range j.Workers {
		s := w.Host
		if w.GPUs > 1 {
			s += fmt.Sprintf(" (%d GPUs)", w.GPUs)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func ps(j placement.JobPlan) string {
	if j.PS == "" {
		return ""
	}
	return "PS " + j.PS
}

func tree(j placement.JobPlan) string {
	if j.Local() {
		return "local: no traffic"
	}
	var out []string
	for _, n := range j.Tree {
		if n.Aggregate {
			out = append(out, n.Switch)
		}
	}
	if len(out) == 0 {
		return "no aggregation"
	}
	return "aggregates at " + strings.Join(out, ", ")
}

func shares(s []placement.SharePrediction) string {
	if len(s) == 0 {
		return "-"
	}
	var out []string
	for _, x := range s {
		out = append(out, fmt.Sprintf("%.2f at %s", x.Share, x.Switch))
	}
	return strings.Join(out, ", ")
}
