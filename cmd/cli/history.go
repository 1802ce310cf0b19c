package cli

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/trend"
)

func historyCommand() *cli.Command {
	return &cli.Command{
		Name:      "history",
		Usage:     "show a metric run after run: its noise, the smallest change that would be seen, and when it changed",
		ArgsUsage: "METRIC",
		Flags: []cli.Flag{
			rootFlag(),
			&cli.StringFlag{Name: "experiment", Aliases: []string{"e"}, Usage: "only experiments whose name matches `GLOB`"},
			&cli.StringFlag{Name: "of", Usage: "only jobs, switches or links that match `GLOB`, such as A@tor*"},
			&cli.StringFlag{Name: "since", Usage: "only runs since `DATE`, such as 2026-11-01, or of the last days, such as 30d"},
			&cli.StringFlag{Name: "setting", Value: newest, Usage: "setting to show: its `KEY` or first characters; all; or newest, that of each experiment's newest run"},
			choice(cli.StringFlag{Name: "kind", Usage: "`KIND` of figures: measured, simulated or predicted; else all but predicted ones"}, string(results.Measured), string(results.Simulated), string(results.Predicted)),
			&cli.BoolFlag{Name: "no-index", Usage: "read the records instead of the index, and write nothing"},
			&cli.BoolFlag{Name: "rebuild", Usage: "rebuild the index first"},
			outputFlag("text", "json", "csv"),
		},
		Description: `Examples:
  inabench history goodput
  inabench history share --experiment pat-sweep --of 'A@*' --since 30d
  inabench history '*' --setting all -o csv
`,
		Action: historyAction,
	}
}

// newest is the word for the setting of the newest run.
const newest = "newest"

func historyAction(c *cli.Context) error {
	metric, err := argument(c, "metric")
	if err != nil {
		return err
	}
	q := history.Query{Metric: metric, Of: c.String("of"), Experiment: c.String("experiment")}
	switch s := c.String("setting"); s {
	case newest, "":
		q.Newest = true
	case "all":
	default:
		q.Setting = s
	}
	if kind := results.Kind(c.String("kind")); kind != "" {
		q.Kinds = []results.Kind{kind}
	}
	if q.Since, err = since(c.String("since"), time.Now()); err != nil {
		return err
	}
	open := history.OpenOrRead
	switch {
	case c.Bool("no-index"):
		open = history.InMemory
	case c.Bool("rebuild"):
		open = history.Open
	}
	return openIndex(c, open, func(x *history.Index) error {
		var err error
		switch { // what OpenOrRead opens is up to date
		case c.Bool("rebuild"):
			_, err = x.Rebuild(c.Context)
		case c.Bool("no-index"):
			_, err = x.Update(c.Context)
		}
		if err != nil {
			return err
		}
		doc, err := readHistory(c, x, q)
		if err != nil {
			return err
		}
		text := doc.write
		if c.String("output") == "csv" {
			text = doc.writeCSV
		}
		return put(c, doc, text)
	})
}

// since reads a date, or a number of days before now.
func since(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, err := strconv.Atoi(strings.TrimSuffix(text, "d")); err == nil && strings.HasSuffix(text, "d") && days > 0 {
		return now.AddDate(0, 0, -days), nil
	}
	t, err := time.ParseInLocation(time.DateOnly, text, now.Location())
	if err != nil {
		return time.Time{}, usagef("a date is written 2026-11-01, and the last 30 days are 30d", "unknown --since %q", text)
	}
	return t, nil
}

// openIndex opens the index of the directory of runs and does something with it. Where there is none to be kept, it says
// so.
func openIndex(c *cli.Context, open func(context.Context, string) (*history.Index, error), do func(*history.Index) error) (err error) {
	root := rootOf(c)
	x, err := open(c.Context, root)
	if err == nil {
		if why := x.Unkept(); why != nil {
			fmt.Fprintf(c.App.ErrWriter, "inabench: all runs were read, without an index: %v\n", why)
		}
		defer func() { err = errors.Join(err, x.Close()) }()
		err = do(x)
	}
	return indexError(root, err)
}

// indexError says what to do about an index that cannot be had.
func indexError(root string, err error) error {
	switch {
	case errors.Is(err, history.ErrFileSystem):
		return hinted{err, "--runs DIR names runs in a directory that you may write, on a local disk"}
	case errors.Is(err, history.ErrCorrupt):
		if aside := history.PutAside(root); aside != nil {
			return hinted{outputError{errors.Join(err, aside)}, "remove " + filepath.Join(root, history.File) + ": it is made anew from the runs"}
		}
		return hinted{outputError{err}, "the index was set aside: run the command again to rebuild it from the runs"}
	case errors.Is(err, history.ErrFull):
		return hinted{outputError{err}, "inabench gc --keep N makes room"}
	case errors.Is(err, history.ErrBusy):
		return hinted{outputError{err}, "another process writes it: try again"}
	case errors.Is(err, results.ErrNotFound), errors.Is(err, results.ErrAmbiguous):
		return inputError{err, "inabench show lists all runs"}
	case errors.Is(err, fs.ErrNotExist):
		return inputError{err, "--runs DIR names where the runs are"}
	}
	return err
}

// metricHistory is what is known of a metric, for people and programs.
type metricHistory struct {
	Metric   string          `json:"metric"`
	Series   []seriesHistory `json:"series"`
	Settings []history.Use   `json:"settings"` // of the series' experiments, also those that are not shown
}

type seriesHistory struct {
	history.Series
	Verdict  trend.Verdict `json:"verdict"` // of the newest night
	Changes  []changed     `json:"changes"`
	Baseline *pinned       `json:"baseline,omitempty"`
}

// changed is a night from which on a series was another one.
type changed struct {
	trend.Change
	Run     string    `json:"run"` // its first
	Started time.Time `json:"started"`
}

// pinned is the newest night against the run that is the baseline.
type pinned struct {
	history.Baseline
	Median float64 `json:"median"` // of the baseline's repeats
	Shift  float64 `json:"shift"`  // from there, as a part of it; of a median of 0, of the newest night
}

// shift is by how much one figure is another one, as package trend says it: above 0 where it is higher.
func shift(was, is float64) float64 {
	return (is - was) / cmp.Or(math.Abs(was), math.Abs(is), 1)
}

func readHistory(c *cli.Context, x *history.Index, q history.Query) (metricHistory, error) {
	ctx := c.Context
	doc := metricHistory{Metric: q.Metric, Series: []seriesHistory{}}
	found, err := x.Series(ctx, q)
	if err != nil {
		return doc, err
	}
	if len(found) == 0 {
		return doc, noSeries(ctx, x, q)
	}
	baselines, err := history.ReadBaselines(rootOf(c))
	if err != nil {
		return doc, err
	}
	uses, err := x.Uses(ctx)
	if err != nil {
		return doc, err
	}
	for _, s := range found {
		one := seriesHistory{Series: s, Changes: []changed{}}
		if len(s.Nights) > 0 {
			var changes []trend.Change
			if one.Verdict, changes, err = trend.Follow(s.Trend(), trend.Options{}); err != nil {
				return doc, err
			}
			for _, ch := range changes {
				one.Changes = append(one.Changes, changed{ch, s.Nights[ch.Night].Run, s.Nights[ch.Night].Started})
			}
		}
		for _, b := range baselines {
			// The run says in which setting; its key may be of an older inabench.
			i := slices.IndexFunc(s.Nights, func(n history.Night) bool { return n.Run == b.Run })
			if i >= 0 && (one.Baseline == nil || b.Set.After(one.Baseline.Set)) {
				p := pinned{Baseline: b, Median: results.Median(s.Nights[i].Figures)}
				p.Shift = shift(p.Median, results.Median(s.Nights[len(s.Nights)-1].Figures))
				one.Baseline = &p
			}
		}
		doc.Series = append(doc.Series, one)
	}
	for _, u := range uses {
		if slices.ContainsFunc(found, func(s history.Series) bool { return s.Experiment == u.Experiment }) {
			doc.Settings = append(doc.Settings, u)
		}
	}
	return doc, nil
}

// noSeries says why there is nothing to show.
func noSeries(ctx context.Context, x *history.Index, q history.Query) error {
	known, err := x.Metrics(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(known, func(m string) bool { return results.Glob(q.Metric, m) }) {
		hint := "run an experiment first"
		if len(known) > 0 {
			hint = human.Printable(tomlfile.DidYouMean(q.Metric, known))
		}
		return inputError{fmt.Errorf("no run has a figure of %q", q.Metric), hint}
	}
	return inputError{fmt.Errorf("no run has a figure of %q that was asked for", q.Metric),
		"leave out some of --experiment, --of, --since, --setting and --kind"}
}

// sparks is how many nights a sparkline shows.
const sparks = 40

// sparkline draws the newest nights, from their smallest to their largest median.
func sparkline(nights []history.Night) string {
	nights = nights[max(0, len(nights)-sparks):]
	var v []float64
	for _, n := range nights {
		v = append(v, results.Median(n.Figures))
	}
	lo, hi := slices.Min(v), slices.Max(v)
	bars := []rune("▁▂▃▄▅▆▇█")
	out := make([]rune, len(v))
	for i, y := range v {
		out[i] = bars[len(bars)/2-1]
		if hi/2 > lo/2 { // halves, since the whole range may be beyond all numbers
			out[i] = bars[min(len(bars)-1, int((y/2-lo/2)/(hi/2-lo/2)*float64(len(bars))))]
		}
	}
	return string(out)
}

// write writes a table for each experiment, setting and metric.
func (doc metricHistory) write(w io.Writer) error {
	same := func(a, b seriesHistory) bool {
		return a.Experiment == b.Experiment && a.Setting == b.Setting && a.Metric == b.Metric
	}
	for from := 0; from < len(doc.Series); {
		to := from + 1
		for to < len(doc.Series) && same(doc.Series[from], doc.Series[to]) {
			to++
		}
		if from > 0 {
			fmt.Fprintln(w)
		}
		if err := doc.writeTable(w, doc.Series[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (doc metricHistory) writeTable(w io.Writer, series []seriesHistory) error {
	s := series[0]
	u := slices.IndexFunc(doc.Settings, func(u history.Use) bool { return u.Experiment == s.Experiment && u.Key == s.Setting })
	fmt.Fprintf(w, "%s of %s, setting %s\n", human.Printable(s.Metric), human.Printable(s.Experiment), s.Setting)
	if u >= 0 { // else its runs have been removed since
		fmt.Fprintf(w, "  %s\n", human.Printable(fmt.Sprint(doc.Settings[u].Setting)))
	}
	// What stands in one column for all series is not worth one.
	points, phases, pins, kinds := false, false, false, false
	for _, s := range series {
		points, phases, pins = points || s.Point != "", phases || s.Phase > 0, pins || s.Baseline != nil
		kinds = kinds || s.Kind != series[0].Kind || s.Predictor != series[0].Predictor
	}
	tw, left := newTable(w), map[int]bool{0: !points, 1: !phases, 3: !kinds, 10: !pins}
	row := func(cells ...string) {
		var shown []string
		for i, text := range cells {
			if !left[i] {
				shown = append(shown, human.Printable(text))
			}
		}
		fmt.Fprintln(tw, "  "+strings.Join(shown, "\t"))
	}
	row("POINT", "PHASE", "OF", "KIND", "RUNS", "BEFORE", "LAST", "NOISE", "VISIBLE", "STATE", "BASELINE", "HISTORY")
	var notes []string
	note := func(s seriesHistory, format string, args ...any) {
		name := s.Of
		if points && s.Point != "" {
			name += " at " + s.Point
		}
		if phases {
			name += fmt.Sprintf(", phase %d", s.Phase+1)
		}
		notes = append(notes, human.Printable(name+": "+fmt.Sprintf(format, args...)))
	}
	for _, s := range series {
		v, before, noise, visible, state, bars := s.Verdict, "-", "-", "-", "-", ""
		last := "-"
		if len(s.Nights) > 0 {
			state, last, bars = string(v.State), human.Quantity(v.Tonight, s.Unit), sparkline(s.Nights)
			if v.Nights > 0 {
				before = human.Quantity(v.Baseline, s.Unit)
			}
			if v.State != trend.Learning {
				noise = human.Percent(v.Noise.Nights)
			}
			if v.Visible > 0 {
				visible = human.Percent(v.Visible)
			}
			if v.State == trend.Lower || v.State == trend.Higher {
				state += " by " + strings.TrimPrefix(human.Percent(v.Shift), "-")
			}
		}
		against := "-"
		if s.Baseline != nil {
			against = human.SignedError(s.Baseline.Shift, true, "")
		}
		row(s.Point, strconv.Itoa(s.Phase+1), s.Of, cmp.Or(s.Predictor, string(s.Kind)), strconv.Itoa(len(s.Nights)),
			before, last, noise, visible, state, against, bars)
		for _, ch := range s.Changes {
			way := "higher"
			if ch.Shift < 0 {
				way = "lower"
			}
			seen := ""
			if ch.Found > ch.Night {
				seen = ", seen " + s.Nights[ch.Found].Started.Local().Format(time.DateOnly)
			}
			note(s, "%s %s from %s %s%s; %s", strings.TrimPrefix(human.Percent(ch.Shift), "-"), way, ch.Started.Local().Format(time.DateOnly), ch.Long(), seen, ch.Run)
		}
		if s.Spoilt > 0 {
			note(s, "%s left out: limited by the testbed, or ended early", human.Plural(s.Spoilt, "run"))
		}
		if s.Copies > 0 {
			note(s, "%s left out: a run counts once", human.Plural(s.Copies, "duplicate"))
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(w, "  "+n)
	}
	if b := series[slices.IndexFunc(series, func(s seriesHistory) bool { return !pins || s.Baseline != nil })].Baseline; b != nil {
		why := ""
		if b.Reason != "" {
			why = ": " + human.Printable(b.Reason)
		}
		fmt.Fprintf(w, "  the baseline is %s%s\n", b.Run, why)
	}
	// The list has the setting that was used last first.
	hidden := func(o history.Use) bool {
		return o.Experiment == s.Experiment && !slices.ContainsFunc(doc.Series, func(s seriesHistory) bool { return s.Experiment == o.Experiment && s.Setting == o.Key })
	}
	if i := slices.IndexFunc(doc.Settings[u+1:], hidden); u >= 0 && i >= 0 {
		older := doc.Settings[u+1+i]
		fmt.Fprintf(w, "  %s before, to %s, left out: setting %s is another one (%s)\n", human.Plural(older.Runs, "run"),
			older.Last.Local().Format(time.DateOnly), older.Key, human.Printable(strings.Join(doc.Settings[u].Setting.Differences(older.Setting), "; ")))
	}
	return nil
}

// writeCSV writes a row for each figure.
func (doc metricHistory) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"experiment", "setting", "point", "phase", "metric", "of", "kind", "predictor", "unit", "run", "started", "outcome", "complete", "tool", "value"})
	for _, s := range doc.Series {
		for _, n := range s.Nights {
			for _, v := range n.Figures {
				_ = out.Write(results.CSVRow([]string{s.Experiment, s.Setting, s.Point, strconv.Itoa(s.Phase), s.Metric, s.Of, string(s.Kind), s.Predictor, s.Unit,
					n.Run, n.Started.Format(time.RFC3339), string(n.Outcome), strconv.FormatBool(n.Complete), n.Tool, strconv.FormatFloat(v, 'g', -1, 64)}))
			}
		}
	}
	out.Flush()
	return out.Error() // the first of all
}
