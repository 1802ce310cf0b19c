package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/trace"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results/human"
)

func traceCommand() *cli.Command {
	return &cli.Command{
		Name:        "trace",
		Usage:       "inspect, import, fit and generate traces of jobs",
		Action:      group,
		Subcommands: []*cli.Command{reading(traceInspectCommand()), reading(traceImportCommand()), reading(traceFitCommand()), reading(traceGenerateCommand())},
	}
}

// lean runs a command that holds a trace, with little garbage beside it: that of a million jobs takes 200 MB.
func lean(do cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		defer debug.SetGCPercent(debug.SetGCPercent(20))
		return do(c)
	}
}

// readFlags say how a trace is to be read.
func readFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "format-of", Usage: "`NAME` of FILE's format: " + strings.Join(formatNames(), ", ") + "; else its header decides"},
		&cli.StringFlag{Name: "columns", Usage: "`MAPPING` of a file of another format, such as submit=arrival * 1ms,duration=run,gpus=n * 8: columns, or expressions of them; " +
			"start and end may take the place of duration; id, model, source, user and value are optional"},
		&cli.StringFlag{Name: "unit", Usage: "unit of numbers without one in --columns, as a `DURATION` such as 1ms or 1h", Value: "1s"},
		&cli.StringFlag{Name: "where", Usage: "only rows of which `CONDITION` is true, such as status == \"Pass\" and gpus >= 1"},
		&cli.StringFlag{Name: "rename-models", Usage: "rename models by `NAMES` such as resnet=resnet50,*=vgg16; * is for those on neither side"},
		&cli.BoolFlag{Name: "lenient", Usage: "skip and count wrong rows instead of refusing the file"},
		&cli.BoolFlag{Name: "list-skipped", Aliases: []string{"v", "verbose"}, Usage: "with --lenient: list on stderr what is wrong with every row that is skipped"},
	}
}

func formatNames() (names []string) {
	for _, f := range trace.Formats() {
		names = append(names, f.Name)
	}
	return names
}

// traceFormat is the format that was asked for; nil: the header decides.
func traceFormat(c *cli.Context) (*trace.Format, error) {
	named, columns := c.String("format-of"), c.String("columns")
	var f trace.Format
	var err error
	switch {
	case named != "" && columns != "":
		return nil, usagef("keep one of them", "--format-of and --columns exclude each other")
	case c.IsSet("unit") && columns == "":
		return nil, usagef("formats that are known have their unit", "--unit without --columns")
	case named != "":
		f, err = trace.FormatNamed(named)
	case columns != "":
		if f, err = trace.ParseColumns(columns); err != nil {
			err = fmt.Errorf("--columns %s: %w", columns, err)
			break
		}
		if f.Unit, err = time.ParseDuration(c.String("unit")); err != nil || f.Unit <= 0 {
			return nil, usagef("such as 1ms, 1s, 1m or 1h", "--unit %s is not a duration above 0", c.String("unit"))
		}
	default:
		return nil, nil
	}
	if err != nil {
		return nil, usageError{err, tomlfile.HintOf(err)}
	}
	return &f, nil
}

// readTrace reads the trace that is the command's argument.
func readTrace(c *cli.Context) (*trace.Trace, *trace.Report, error) {
	path, err := argument(c, "file")
	if err != nil {
		return nil, nil, err
	}
	o := trace.Options{Lenient: c.Bool("lenient"), Where: c.String("where")}
	if c.IsSet("where") && o.Where == "" { // an empty variable of a shell, maybe: all rows are not what was asked for
		return nil, nil, usagef("leave it out for all rows", "--where without a condition")
	}
	if o.Format, err = traceFormat(c); err != nil {
		return nil, nil, err
	}
	if names := c.String("rename-models"); names != "" {
		if o.Models, err = trace.ParseModels(names); err != nil {
			return nil, nil, usageError{fmt.Errorf("--rename-models %s: %w", names, err), tomlfile.HintOf(err)}
		}
	}
	if c.Bool("list-skipped") {
		if !o.Lenient {
			return nil, nil, usagef("add --lenient, which skips wrong rows", "--list-skipped without --lenient")
		}
		o.Skipped = func(p tomlfile.Problem) { fmt.Fprintln(c.App.ErrWriter, p) }
	}
	load := trace.Load
	if path == stdin {
		load = func(_ string, o trace.Options) (*trace.Trace, *trace.Report, error) {
			return trace.Read("stdin", c.App.Reader, o)
		}
	}
	t, how, err := load(path, o)
	if err != nil {
		err = inputError{err, ""}
	}
	var invalid *trace.InvalidError
	switch {
	case !errors.As(err, &invalid):
	case invalid.Jobs > 0:
		err = hinted{err, "--lenient skips such rows; it finds " + human.Plural(invalid.Jobs, "job")}
	case o.Format == nil && o.Where == "" && invalid.Problems[0].Hint != "": // that of each format's columns
		err = hinted{err, "--columns id=COLUMN,submit=COLUMN,duration=COLUMN,gpus=COLUMN reads another format"}
	}
	return t, how, err
}

func traceInspectCommand() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "describe a trace: its jobs, what they ask for, and how the file was read",
		ArgsUsage: "FILE.csv|-",
		Flags:     append(readFlags(), tableFlag()),
		Description: `Examples:
  inabench trace inspect philly.csv
  inabench trace inspect --lenient -v cluster_log.csv
  inabench trace generate --jobs 4000 | inabench trace inspect -o json -
`,
		Action: lean(func(c *cli.Context) error {
			t, how, err := readTrace(c)
			if err != nil {
				return err
			}
			stats := trace.Inspect(t)
			doc := struct {
				trace.Stats
				Read *trace.Report `json:"read"`
			}{stats, how}
			return put(c, doc, func(w io.Writer) error { return writeStats(w, stats, how) })
		}),
	}
}

// writeStats describes a trace to a person.
func writeStats(w io.Writer, s trace.Stats, how *trace.Report) error {
	fmt.Fprintf(w, "%s: %s in %s, format %s\n", s.Name, human.Plural(s.Jobs, "job"), human.Plural(how.Rows, "row"), how.Format)
	if n := how.SkippedRows(); n > 0 {
		writeWords(w, "skipped", human.Plural(n, "row")+": "+how.Summary())
	}
	if len(how.Ignored) > 0 {
		writeWords(w, "ignored", "columns "+strings.Join(printable(how.Ignored), ", "))
	}
	fmt.Fprintln(w)
	tw := newTable(w)
	if s.Origin != nil {
		fmt.Fprintf(tw, "  second 0\t%s\n", s.Origin.Format("2006-01-02 15:04:05 MST"))
	}
	fmt.Fprintf(tw, "  submitted\tthe first after %s, the last %s later\n", span(s.Start), span(s.Span))
	fmt.Fprintf(tw, "  GPU time\t%s GPU hours\n", count(int(s.GPUHours+0.5)))
	if s.Span > 0 {
		fmt.Fprintf(tw, "  load\t%s GPUs over the time of submissions\n", decimal(s.Load))
	}
	fmt.Fprintf(tw, "  peak\t%s GPUs at once, if every job starts when it is submitted\n", count(s.Peak))
	fmt.Fprintf(tw, "  several GPUs\t%s of the jobs\n\n", human.Percent(s.MultiGPU))
	if err := tw.Flush(); err != nil {
		return err
	}
	tw = tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\tmedian\t90 %%\t99 %%\tmost\t\n")
	for _, q := range []struct {
		name string
		of   trace.Quantiles
		text func(float64) string
	}{{"GPUs", s.GPUs, decimal}, {"duration", s.Duration, span}} {
		fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\t\n", q.name, q.text(q.of.P50), q.text(q.of.P90), q.text(q.of.P99), q.text(q.of.Max))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	writeCounts(w, "models", s.Models)
	writeCounts(w, "sources", s.Sources)
	return nil
}

// writeCounts writes the most frequent names, and how many others there are.
func writeCounts(w io.Writer, what string, counts []trace.Count) {
	const most = 12
	var words []string
	for i, n := range counts {
		if i == most {
			words = append(words, fmt.Sprintf("and %s more", count(len(counts)-most)))
			break
		}
		words = append(words, fmt.Sprintf("%s (%s)", n.Name, count(n.Jobs)))
	}
	if len(words) == 0 {
		words = []string{"none named"}
	}
	writeWords(w, what, strings.Join(words, ", "))
}

// writeWords writes text beside what it is, wrapped.
func writeWords(w io.Writer, what, text string) {
	writeRow(w, len("skipped"), what, text)
}

// printable quotes the names that a terminal should not be given as they are.
func printable(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n
		if q := strconv.Quote(n); n == "" || len(q) != len(n)+2 {
			out[i] = q
		}
	}
	return out
}

// span writes seconds for people: "12 s", "3.4 h", "33 days".
func span(s float64) string {
	for _, u := range []struct {
		seconds float64
		name    string
	}{{86400, "days"}, {3600, "h"}, {60, "min"}} {
		if s >= u.seconds*2 {
			return decimal(s/u.seconds) + " " + u.name
		}
	}
	return decimal(s) + " s"
}

// decimal writes a number to three digits, and never with more than it has.
func decimal(v float64) string {
	if v >= 99.5 && v < 1e15 {
		return count(int(v + 0.5))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// count writes a number of things, in groups of digits where there are many.
func count(n int) string { return human.Grouped(strconv.Itoa(n)) }

func traceImportCommand() *cli.Command {
	return &cli.Command{
		Name:      "import",
		Usage:     "convert a trace into inabench's format, cut to size",
		ArgsUsage: "FILE.csv|-",
		Flags: append(readFlags(),
			traceFileFlag(),
			&cli.StringSliceFlag{Name: "source", Usage: "only jobs of `NAME`, such as one virtual cluster; may be repeated"},
			&cli.StringFlag{Name: "from", Usage: "only jobs submitted at `TIME` or later: seconds, or 36h"},
			&cli.StringFlag{Name: "to", Usage: "only jobs submitted before `TIME`"},
			&cli.IntFlag{Name: "max-gpus", Usage: "drop jobs with more than `N` GPUs"},
			&cli.BoolFlag{Name: "clamp", Usage: "with --max-gpus: cut such jobs to so many GPUs instead of dropping them"},
			&cli.IntFlag{Name: "sample", Usage: "keep `N` jobs, drawn at random"},
			&cli.Uint64Flag{Name: "seed", Usage: "random seed `N` of --sample", Value: 1},
			&cli.IntFlag{Name: "first", Usage: "only the first `N` jobs of what is left"},
			&cli.Float64Flag{Name: "scale-submit", Usage: "multiply submissions by `FACTOR`; below 1 the load rises"},
			&cli.Float64Flag{Name: "scale-duration", Usage: "multiply durations by `FACTOR`"},
			&cli.BoolFlag{Name: "rebase", Usage: "submit the first job at 0"},
		),
		Description: `Steps are taken in the order of the options above.

Examples:
  inabench trace import -o philly.csv --format-of muri cluster_job_log.csv
  inabench trace import -o small.csv --max-gpus 8 --clamp --first 200 philly.csv
  inabench trace import -o own.csv --unit 1m \
      --columns id=job,submit=arrival,duration=run,gpus=n log.csv
  inabench trace import -o own.csv --where 'state == "done" and n > 0' \
      --columns 'submit=at * 1ms,duration=steps * 0.5s,gpus=n * 8' log.csv
`,
		Action: lean(traceImportAction),
	}
}

func traceImportAction(c *cli.Context) error {
	x := trace.Transform{
		Sources: words(c, "source"), MaxGPUs: c.Int("max-gpus"), Clamp: c.Bool("clamp"),
		Sample: c.Int("sample"), Seed: c.Uint64("seed"), First: c.Int("first"),
		ScaleSubmit: c.Float64("scale-submit"), ScaleDuration: c.Float64("scale-duration"), Rebase: c.Bool("rebase"),
	}
	var err error
	if x.From, err = secondsOf(c, "from"); err != nil {
		return err
	}
	if x.To, err = secondsOf(c, "to"); err != nil {
		return err
	}
	if x.Clamp && x.MaxGPUs == 0 {
		return usagef("--max-gpus N says to how many", "--clamp without --max-gpus")
	}
	for _, name := range []string{"max-gpus", "sample", "first", "scale-submit", "scale-duration", "to"} {
		if v, _ := secondsOf(c, name); c.IsSet(name) && v == 0 { // for the transform 0 means no limit
			return usagef("leave it out for no limit", "%s 0: above 0", dashed(name))
		}
	}
	if err := x.Check(); err != nil {
		return usageError{err, tomlfile.HintOf(err)}
	}
	t, how, err := readTrace(c)
	if err != nil {
		return err
	}
	writeRead(c.App.ErrWriter, how)
	read := len(t.Jobs)
	var sources []trace.Count
	if len(x.Sources) > 0 {
		sources = trace.Inspect(t).Sources
	}
	changes, err := x.ApplyTo(t)
	if err != nil {
		if len(x.Sources) > 0 && changes.OtherSources == read {
			return inputError{err, unknownSource(sources, x.Sources[0])}
		}
		return inputError{err, ""}
	}
	note := ""
	if s := changes.String(); s != "" {
		note = fmt.Sprintf(" of %s: %s", count(read), s)
	}
	return writeTrace(c, t, note)
}

// writeRead says in a line how a file was read: no row is left out in silence.
func writeRead(w io.Writer, how *trace.Report) {
	fmt.Fprintf(w, "inabench: %s, format %s", human.Plural(how.Rows, "row"), how.Format)
	if n := how.SkippedRows(); n > 0 {
		fmt.Fprintf(w, "; skipped %s: %s", count(n), how.Summary())
	}
	if len(how.Ignored) > 0 {
		fmt.Fprintf(w, "; ignored columns %s", strings.Join(printable(how.Ignored), ", "))
	}
	fmt.Fprintln(w)
}

// unknownSource names the source that was probably meant, or some that there are.
func unknownSource(sources []trace.Count, name string) string {
	var known []string
	for _, s := range sources {
		known = append(known, s.Name)
	}
	if len(known) == 0 {
		return "the trace names no sources"
	}
	return cmp.Or(tomlfile.DidYouMean(name, known), "inabench trace inspect lists the sources")
}

// secondsOf is an option's time: seconds, or a duration with its units.
func secondsOf(c *cli.Context, name string) (float64, error) {
	s := fmt.Sprint(c.Value(name))
	if s == "" {
		return 0, nil
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return v, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, usagef("seconds, or 90m, 36h", "%s %s is not a time", dashed(name), s)
	}
	return d.Seconds(), nil
}

// traceFileFlag is where a trace goes.
func traceFileFlag() cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: stdin, DefaultText: "stdout", Usage: "`FILE` to write the trace to; - is stdout"}
}

// writeTrace writes a trace to where it was asked for, and says so with a note.
func writeTrace(c *cli.Context, t *trace.Trace, note string) error {
	to, err := writeTo(c, t.Write)
	if err == nil {
		fmt.Fprintf(c.App.ErrWriter, "inabench: %s written to %s%s\n", human.Plural(len(t.Jobs), "job"), to, note)
	}
	return err
}

func traceGenerateCommand() *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "generate a trace from a seed: what jobs ask for, and when they come",
		Flags: []cli.Flag{
			traceFileFlag(),
			&cli.StringFlag{Name: "demand", Value: string(trace.Philly), Usage: "`DISTRIBUTION` of the GPUs that jobs ask for: philly, elasticflow " +
				"or seren (as published of those clusters, which ties durations to them), poisson or normal, or a FILE.toml that trace fit made"},
			&cli.IntFlag{Name: "jobs", Value: 1000, Usage: "`N` jobs"},
			&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "random seed `N`"},
			&cli.Float64Flag{Name: "load", Value: 0.8, Usage: "jobs arrive often enough to keep this `PART` of --gpus busy; of a fit only where it is given"},
			&cli.IntFlag{Name: "gpus", Value: 256, Usage: "`N` GPUs of the cluster that --load is of"},
			&cli.Float64Flag{Name: "rate", Usage: "`N` jobs/s, instead of --load and --gpus"},
			&cli.Float64Flag{Name: "mean", Value: 8, Usage: "mean `GPUS` of a job, of poisson and normal, where less than 1 is drawn again"},
			&cli.Float64Flag{Name: "stddev", Value: 4, Usage: "standard deviation in `GPUS`, of normal"},
			&cli.IntFlag{Name: "max-gpus", Usage: "no job asks for more than `N` GPUs; such are drawn again"},
			&cli.StringFlag{Name: "mean-duration", Usage: "mean run `TIME` of jobs, exponentially distributed: seconds, or 2h; else durations are those of --demand, or Philly's"},
			&cli.StringSliceFlag{Name: "models", Usage: "`NAMES` that jobs' models are drawn from with equal chances, separated by commas; none: they have no model",
				Value: cli.NewStringSlice(trace.NetPackModels()...)},
		},
		Description: `The same options make the same trace. NetPack's paper (ASPLOS '24) draws from
the default models; it gives no parameters of its distributions, no durations.

Examples:
  inabench trace generate -o philly.csv --jobs 4000 --load 0.9 --gpus 1024
  inabench trace generate -o poisson.csv --demand poisson --mean-duration 30m
  inabench trace generate --demand normal | inabench trace inspect -
  inabench trace generate -o again.csv --demand fitted.toml --jobs 20000
`,
		Action: lean(traceGenerateAction),
	}
}

func traceGenerateAction(c *cli.Context) error {
	g := trace.Generator{
		Demand: trace.Demand(c.String("demand")), Jobs: c.Int("jobs"), Seed: c.Uint64("seed"),
		Load: c.Float64("load"), Capacity: c.Int("gpus"), Rate: c.Float64("rate"),
		Mean: c.Float64("mean"), StdDev: c.Float64("stddev"), MaxGPUs: c.Int("max-gpus"),
		Models: words(c, "models"),
	}
	if c.IsSet("rate") {
		if c.IsSet("load") || c.IsSet("gpus") {
			return usagef("keep one of them: one gives the other", "--rate and --load or --gpus exclude each other")
		}
		g.Load, g.Capacity = 0, 0
	}
	if err := fromFit(c, &g); err != nil {
		return err
	}
	for name, needs := range map[string]bool{"mean": g.Demand.Shaped(), "stddev": g.Demand == trace.Normal} {
		if c.IsSet(name) && !needs {
			return usagef("leave it out", "--%s has no effect with --demand %s", name, g.Demand)
		}
	}
	var err error
	if g.MeanDuration, err = secondsOf(c, "mean-duration"); err != nil {
		return err
	}
	if c.IsSet("mean-duration") && g.MeanDuration == 0 {
		return usagef("leave it out for Philly's durations", "--mean-duration 0: above 0")
	}
	if len(g.Models) == 1 && g.Models[0] == "none" {
		g.Models = nil
	}
	for _, name := range g.Models {
		if _, ok := workload.Lookup(name); !ok {
			note := "the experiment's own catalogue must have it"
			if near, ok := tomlfile.Nearest(name, workload.Names()); ok {
				note = "did you mean " + near + "?"
			}
			fmt.Fprintf(c.App.ErrWriter, "inabench: model %q is not in the catalogue: %s\n", name, note)
		}
	}
	t, err := trace.Generate(g)
	if err != nil {
		return usageError{err, tomlfile.HintOf(err)}
	}
	return writeTrace(c, t, "")
}

// fromFit makes a generator one of a fit, where --demand names a file. Jobs come as often as it says unless an option
// says otherwise.
func fromFit(c *cli.Context, g *trace.Generator) error {
	path := string(g.Demand)
	if !strings.HasSuffix(path, ".toml") {
		return nil
	}
	fit, err := trace.LoadFit(path)
	if err != nil {
		return inputError{err, ""}
	}
	g.Demand, g.Fit = trace.Fitted, fit
	if !c.IsSet("load") && !c.IsSet("gpus") {
		g.Load, g.Capacity = 0, 0
	}
	return nil
}

func traceFitCommand() *cli.Command {
	return &cli.Command{
		Name:      "fit",
		Usage:     "fit a generator to a trace",
		ArgsUsage: "FILE.csv|-",
		Flags: append(readFlags(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Value: stdin, DefaultText: "stdout", Usage: "`FILE.toml` to write the fit to; - is stdout"},
			&cli.Uint64Flag{Name: "seed", Usage: "random seed `N` of the jobs that the fit is compared with", Value: 1},
		),
		Description: `The fit has how often jobs come, in bursts and by the hour where that is
clear, sizes, how long jobs of each size run, and sources. How alike jobs
are that are generated by it goes to stderr: for each quantity the distance
of Kolmogorov and Smirnov, 0 to 1, and quantiles of both, side by side.

Examples:
  inabench trace fit -o fitted.toml philly.csv
  inabench trace generate -o again.csv --demand fitted.toml
`,
		Action: lean(traceFitAction),
	}
}

func traceFitAction(c *cli.Context) error {
	t, how, err := readTrace(c)
	if err != nil {
		return err
	}
	writeRead(c.App.ErrWriter, how)
	fit, err := trace.FitTo(t)
	if err != nil {
		return inputError{err, tomlfile.HintOf(err)}
	}
	again, err := trace.Generate(trace.Generator{Demand: trace.Fitted, Fit: fit, Jobs: len(t.Jobs), Seed: c.Uint64("seed")})
	if err != nil {
		return inputError{err, ""}
	}
	to, err := writeTo(c, fit.Write)
	if err != nil {
		return err
	}
	if to != "stdout" {
		fmt.Fprintf(c.App.ErrWriter, "inabench: fit written to %s\n", to)
	}
	return writeLikeness(c.App.ErrWriter, t, again)
}

// writeLikeness says how alike a trace and what was generated like it are, quantity by quantity, and by what load.
func writeLikeness(w io.Writer, t, again *trace.Trace) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "\tdistance\t\tmedian\t90 %%\t99 %%\tmost\t\n")
	for _, l := range trace.Compare(t, again) {
		for i, q := range []trace.Quantiles{l.First, l.Second} {
			name, distance := l.Quantity, strconv.FormatFloat(l.Distance, 'f', 3, 64)
			if i > 0 {
				name, distance = "", ""
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, distance, []string{"trace", "generated"}[i],
				decimal(q.P50), decimal(q.P90), decimal(q.P99), decimal(q.Max))
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "load: %s GPUs of the trace, %s generated\n", decimal(trace.Inspect(t).Load), decimal(trace.Inspect(again).Load))
	return err
}
