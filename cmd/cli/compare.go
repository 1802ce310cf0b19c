package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/report"
)

func compareCommand() *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "hold run B against run A, or a run against its baseline: what got worse by more than noise",
		ArgsUsage: "[A] B",
		Flags: []cli.Flag{
			rootFlag(),
			&cli.StringFlag{Name: "metric", Usage: "metrics that match `GLOB` only"},
			&cli.BoolFlag{Name: "across", Usage: "judge although inventory, scale, driver, kernel, machine or experiment differ"},
			&cli.Float64Flag{Name: "within", Value: 5, Usage: "largest change, in `PERCENT`, that \"the same\" may hide; also the smallest that counts as a change where only repeats show the noise"},
			&cli.BoolFlag{Name: "all", Usage: "list what stayed the same, too"},
			outputFlag("text", "json", "md"),
		},
		Description: `The noise is learnt from the other runs of the same setting, from ten of them on, else
from the runs' repeats, of which it then takes four in each. It exits with 1 if a metric got
worse, and with 7 if that cannot be decided.

Examples:
  inabench compare latest
  inabench compare 01M7YNY5 latest --metric goodput
`,
		Action: compareAction,
	}
}

func compareAction(c *cli.Context) error {
	format := c.String("output")
	refs := c.Args().Slice()
	if len(refs) < 1 || len(refs) > 2 {
		return usagef(c.Command.HelpName+" [options] "+c.Command.ArgsUsage, "compare: two runs expected, or one that has a baseline; got %d", len(refs))
	}
	if !(c.Float64("within") > 0 && c.Float64("within") < 100) {
		return usagef("such as 5", "--within %g: a percentage above 0", c.Float64("within"))
	}
	var dirs []string
	for _, ref := range refs {
		dir, _, err := results.Open(rootOf(c), ref)
		if err != nil {
			return inputError{err, "inabench show lists all runs"}
		}
		dirs = append(dirs, dir.Path)
	}
	if len(dirs) == 1 {
		base, err := baselineOf(c, dirs[0])
		if err != nil {
			return err
		}
		dirs = []string{base, dirs[0]}
	}
	opt := history.PairOptions{Metric: c.String("metric"), Across: c.Bool("across"), Within: c.Float64("within") / 100}
	var pair *history.Pair
	err := openIndex(c, history.OpenOrRead, func(x *history.Index) (err error) {
		pair, err = history.Compare(c.Context, x, dirs[0], dirs[1], opt)
		return err
	})
	if err != nil {
		return err
	}
	if len(pair.Figures) == 0 {
		return inputError{errors.New("neither run has a figure that was asked for"), "leave out --metric, or see inabench report RUN --format csv"}
	}
	v := pairView{pair, c.Bool("all")}
	switch format {
	case "json":
		err = writeJSON(c.App.Writer, v.document())
	case "md":
		err = v.markdown(c.App.Writer)
	default:
		err = v.text(c.App.Writer)
	}
	if err != nil {
		return err
	}
	if o := v.outcome(); o != results.Pass {
		return outcomeError{o}
	}
	return nil
}

// baselineOf is the directory of the run that is the baseline of the run in a directory.
func baselineOf(c *cli.Context, dir string) (string, error) {
	rec, err := results.ReadRecord(dir)
	if err != nil {
		return "", err
	}
	all, err := history.ReadBaselines(rootOf(c))
	if err != nil {
		return "", err
	}
	setting := history.SettingOf(rec).Key()
	others := ""
	for _, b := range all {
		if b.Experiment == rec.Name && b.Setting == setting {
			return filepath.Join(rootOf(c), b.Run), nil
		}
		if b.Experiment == rec.Name {
			others = "; in another setting it is " + b.Run
		}
	}
	return "", inputError{fmt.Errorf("%s has no baseline in the setting of %s%s", rec.Name, filepath.Base(dir), others),
		"inabench baseline set RUN pins one, inabench compare A B takes any two runs"}
}

// pairView shows a pair.
type pairView struct {
	*history.Pair
	all bool
}

// outcome is fail if anything got worse, inconclusive if that cannot be said.
func (v pairView) outcome() results.Outcome {
	switch {
	case !v.Judged:
		return results.Inconclusive
	case v.Count(history.Worse) > 0:
		return results.Fail
	case v.Count(history.Undecided)+v.Count(history.Gone) > 0, v.compared() == 0:
		return results.Inconclusive
	}
	return results.Pass
}

// compared is how many figures both runs have that could be held against each other.
func (v pairView) compared() int {
	return v.Count(history.Worse) + v.Count(history.Changed) + v.Count(history.Improved) + v.Count(history.Unchanged)
}

// code is what inabench explain knows of the outcome; empty for a pass.
func (v pairView) code() string {
	switch {
	case !v.Judged:
		return results.CodeSettings
	case v.outcome() == results.Fail:
		return results.CodeRegression
	case v.outcome() == results.Inconclusive && v.Spoilt() > 0 && v.Spoilt() == v.Count(history.Undecided):
		return results.CodeLimited
	case v.outcome() == results.Inconclusive && v.compared()+v.Count(history.Undecided) == 0:
		return results.CodeNoFigure
	case v.outcome() == results.Inconclusive:
		return results.CodeNoise
	}
	return ""
}

func (v pairView) document() any {
	return struct {
		*history.Pair
		Outcome results.Outcome `json:"outcome"`
		Code    string          `json:"code,omitempty"`
	}{v.Pair, v.outcome(), v.code()}
}

// verdict is the outcome in words.
func (v pairView) verdict() string {
	if !v.Judged {
		return fmt.Sprintf("not judged (%s): the settings differ", v.code())
	}
	var parts []string
	for _, c := range []history.PairChange{history.Worse, history.Undecided, history.Gone, history.Changed, history.New, history.Improved, history.Unchanged} {
		if n := v.Count(c); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	text := strings.Join(parts, ", ")
	if v.code() != "" {
		text = v.code() + ": " + text
	}
	return text
}

// figures are those to list, and how many that stayed the same are left out. What the testbed limited
// is only counted.
func (v pairView) figures() (out []history.PairFigure, left int) {
	for _, f := range v.Figures {
		if f.Spoilt && !v.all {
			continue
		}
		if v.all || !v.Judged || f.Change != history.Unchanged {
			out = append(out, f)
		} else {
			left++
		}
	}
	return out, left
}

var pairColumns = []string{"METRIC", "POINT", "PHASE", "OF", "BEFORE", "AFTER", "CHANGE", "95 % INTERVAL", "VERDICT"}

// cells are a figure's row.
func (v pairView) cells(f history.PairFigure) []string {
	value := func(figures []float64, median float64) string {
		if len(figures) == 0 {
			return "-"
		}
		return human.Quantity(median, f.Unit)
	}
	row := []string{f.Metric, f.Point, fmt.Sprint(f.Phase + 1), f.Of, value(f.Before, f.Verdict.Baseline), value(f.After, f.Verdict.Tonight), "-", "-", string(f.Change)}
	if len(f.Before) > 0 && len(f.After) > 0 {
		row[6] = human.SignedError(f.Verdict.Shift, true, "")
		if v.Judged {
			row[7] = human.SignedError(f.Verdict.Lo, true, "") + " to " + human.SignedError(f.Verdict.Hi, true, "")
		}
	}
	if f.Needs > 0 {
		row[8] += fmt.Sprintf(", %d repeats should tell", f.Needs)
	}
	return row
}

// table is what to show: columns without text are left out.
func (v pairView) table() (head []string, rows [][]string, left int) {
	figures, left := v.figures()
	phases := slices.ContainsFunc(v.Figures, func(f history.PairFigure) bool { return f.Phase > 0 })
	var all [][]string
	for _, f := range figures {
		all = append(all, v.cells(f))
	}
	var keep []int
	for i, name := range pairColumns {
		if slices.ContainsFunc(all, func(r []string) bool { return r[i] != "" && r[i] != "-" }) && (name != "PHASE" || phases) {
			keep = append(keep, i)
		}
	}
	pick := func(row []string) (out []string) {
		for _, i := range keep {
			out = append(out, row[i])
		}
		return out
	}
	for _, r := range all {
		rows = append(rows, pick(r))
	}
	return pick(pairColumns), rows, left
}

func (v pairView) metrics() (out []string) {
	for _, m := range v.Metrics {
		text := m.Metric + ": "
		var parts []string
		for _, c := range []history.PairChange{history.Worse, history.Undecided, history.Gone, history.Changed, history.New, history.Improved, history.Unchanged} {
			if n := m.Counts[c]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, c))
			}
		}
		text += strings.Join(parts, ", ")
		if m.Compared > 0 {
			text += "; median change " + human.SignedError(m.Shift, true, "")
			if m.Lo != m.Hi {
				text += ", half of them " + human.SignedError(m.Lo, true, "") + " to " + human.SignedError(m.Hi, true, "")
			}
		}
		out = append(out, text)
	}
	return out
}

func (v pairView) text(w io.Writer) error {
	fmt.Fprintf(w, "%s\n", v.verdict())
	for _, r := range []struct {
		name string
		history.PairRun
	}{{"A", v.Before}, {"B", v.After}} {
		fmt.Fprintf(w, "  %s  %s: %s, %s, inabench %s\n", r.name, r.Run, r.Experiment, r.Outcome, r.Tool)
	}
	for _, d := range v.Differences {
		fmt.Fprintf(w, "  differs: %s\n", d)
	}
	if !v.Judged {
		fmt.Fprintf(w, "  --across judges anyway; inabench explain %s\n", results.CodeSettings)
	}
	if n := v.Noise(); n != "" {
		fmt.Fprintf(w, "  %s\n", n)
	}
	fmt.Fprintln(w)
	head, rows, left := v.table()
	if len(rows) > 0 {
		tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(tw, strings.Join(head, "\t"))
		for _, r := range rows {
			fmt.Fprintln(tw, strings.Join(r, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if left > 0 {
		fmt.Fprintf(w, "%d figure%s stayed the same; --all lists them.\n", left, plural(left))
	}
	if n := v.Spoilt(); n > 0 {
		fmt.Fprintf(w, "%d figure%s cannot be compared: the testbed limited all repeats of a run (inabench explain %s).\n", n, plural(n), results.CodeLimited)
	}
	if v.Judged {
		for _, m := range v.metrics() {
			fmt.Fprintln(w, m)
		}
	}
	return nil
}

func (v pairView) markdown(w io.Writer) error {
	mark := map[results.Outcome]string{results.Pass: "✓", results.Fail: "✕", results.Inconclusive: "?"}[v.outcome()]
	fmt.Fprintf(w, "## %s %s: %s\n\n", mark, report.MarkdownText(v.After.Experiment), report.MarkdownText(v.verdict()))
	fmt.Fprintf(w, "%s (inabench %s) against %s (inabench %s)\n", report.MarkdownText(v.After.Run), report.MarkdownText(v.After.Tool), report.MarkdownText(v.Before.Run), report.MarkdownText(v.Before.Tool))
	if len(v.Differences) > 0 {
		fmt.Fprintln(w)
	}
	for _, d := range v.Differences {
		fmt.Fprintf(w, "- differs: %s\n", report.MarkdownText(d))
	}
	if n := v.Noise(); n != "" {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	head, rows, left := v.table()
	if len(rows) > 0 {
		for i, h := range head {
			head[i] = strings.ToLower(h)
		}
		fmt.Fprintln(w)
		if err := report.WriteMarkdownTable(w, head, rows); err != nil {
			return err
		}
	}
	if left > 0 {
		fmt.Fprintf(w, "\n%d figure%s stayed the same.\n", left, plural(left))
	}
	if n := v.Spoilt(); n > 0 {
		fmt.Fprintf(w, "\n%d figure%s cannot be compared: the testbed limited all repeats of a run (`%s`).\n", n, plural(n), results.CodeLimited)
	}
	return nil
}
