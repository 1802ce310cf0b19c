package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/report"
)

func compareCommand() *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "compare run B with run A, or a run with its baseline: what got worse by more than noise",
		ArgsUsage: "[A] B",
		Flags: []cli.Flag{
			rootFlag(),
			&cli.StringFlag{Name: "metric", Usage: "only metrics that match `GLOB`"},
			&cli.BoolFlag{Name: "across", Usage: "compare even if inventory, scale, driver, kernel, machine or experiment differ"},
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
	refs := c.Args().Slice()
	if len(refs) < 1 || len(refs) > 2 {
		return usagef(c.Command.HelpName+" [options] "+c.Command.ArgsUsage, "compare: two runs expected, or one that has a baseline; got %d", len(refs))
	}
	if !(c.Float64("within") > 0 && c.Float64("within") < 100) {
		return usagef("such as 5", "--within %g: a percentage above 0", c.Float64("within"))
	}
	var dirs []string
	for _, ref := range refs {
		dir, _, err := openRun(c, ref)
		if err != nil {
			return err
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
	if errors.Is(err, history.ErrSame) {
		return inputError{err, "name another run; inabench show lists all"}
	}
	if err != nil {
		return err
	}
	if len(pair.Figures) == 0 {
		return inputError{errors.New("neither run has a figure that was asked for"), "leave out --metric, or see inabench report RUN --format csv"}
	}
	v := pairView{pair, c.Bool("all")}
	show := v.text
	if c.String("output") == "md" {
		show = v.markdown
	}
	if err := put(c, v.document(), show); err != nil {
		return err
	}
	if o := v.Outcome(); o != results.Pass {
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
	others, pinned := "", history.Baseline{}
	for _, b := range all {
		if b.Experiment != rec.Name {
			continue
		}
		key := b.Setting
		if key != setting { // which may be that of an older inabench
			if of, err := results.ReadRecord(filepath.Join(rootOf(c), b.Run)); err == nil {
				key = history.SettingOf(of).Key()
			}
		}
		switch {
		case key != setting:
			others = "; in another setting it is " + b.Run
		case pinned.Run == "" || b.Set.After(pinned.Set):
			pinned = b
		}
	}
	if pinned.Run != "" {
		return filepath.Join(rootOf(c), pinned.Run), nil
	}
	return "", inputError{fmt.Errorf("%s has no baseline in the setting of %s%s", rec.Name, filepath.Base(dir), others),
		"inabench baseline set RUN pins one, inabench compare A B takes any two runs"}
}

// pairView shows a pair.
type pairView struct {
	*history.Pair
	all bool
}

func (v pairView) document() any {
	return struct {
		*history.Pair
		Outcome results.Outcome `json:"outcome"`
		Code    string          `json:"code,omitempty"`
	}{v.Pair, v.Outcome(), v.Code()}
}

func (v pairView) text(w io.Writer) error {
	fmt.Fprintf(w, "%s\n", v.Words())
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
	head, rows, left := v.Table(v.all)
	if len(rows) > 0 {
		tw := newTable(w, head...)
		for _, r := range rows {
			fmt.Fprintln(tw, strings.Join(r, "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if left > 0 {
		fmt.Fprintf(w, "%s stayed the same; --all lists them.\n", human.Plural(left, "figure"))
	}
	if n := v.Spoilt(); n > 0 {
		fmt.Fprintf(w, "%s cannot be compared: the testbed limited all repeats of a run (inabench explain %s).\n", human.Plural(n, "figure"), results.CodeLimited)
	}
	if v.Judged {
		for _, m := range v.Summaries() {
			fmt.Fprintln(w, m)
		}
	}
	return nil
}

func (v pairView) markdown(w io.Writer) error {
	mark := map[results.Outcome]string{results.Pass: "✓", results.Fail: "✕", results.Inconclusive: "?"}[v.Outcome()]
	fmt.Fprintf(w, "## %s %s: %s\n\n", mark, report.MarkdownText(v.After.Experiment), report.MarkdownText(v.Words()))
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
	head, rows, left := v.Table(v.all)
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
		fmt.Fprintf(w, "\n%s stayed the same.\n", human.Plural(left, "figure"))
	}
	if n := v.Spoilt(); n > 0 {
		fmt.Fprintf(w, "\n%s cannot be compared: the testbed limited all repeats of a run (`%s`).\n", human.Plural(n, "figure"), results.CodeLimited)
	}
	return nil
}
