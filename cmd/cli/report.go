package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/fidelity"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/plot/pdf"
	"github.com/inabench/inabench/results/report"
)

// reportFormats are what a run can be reported in, and the endings of files that stand for these.
var reportFormats = []struct{ name, ending string }{
	{"text", ".txt"}, {"html", ".html"}, {"md", ".md"}, {"json", ".json"}, {"junit", ".xml"}, {"csv", ".csv"}, {"prometheus", ".prom"},
}

// formatOf is the format that a file to write asks for by the ending of its name. What is no report is an error that says
// how to have it.
func formatOf(file string) (string, error) {
	if file == "" || file == stdin {
		return "text", nil
	}
	ending := strings.ToLower(filepath.Ext(file))
	flag := map[string]string{".pdf": "pdf", ".svg": "svg"}[ending]
	if flag != "" {
		return "", usagef("--"+flag+" DIR writes each drawing of the report into a folder", "--output %s: a report is no %s", file, strings.ToUpper(flag))
	}
	format := "text"
	for _, f := range reportFormats {
		if ending == f.ending {
			format = f.name
		}
		if file == f.name {
			return "", usagef("--format "+f.name+" writes "+f.name+"; -o name"+f.ending+" does, too", "--output names a file, and %s is a format", file)
		}
	}
	return format, nil
}

func reportCommand() *cli.Command {
	var names []string
	for _, f := range reportFormats {
		names = append(names, f.name)
	}
	return &cli.Command{
		Name:      "report",
		Usage:     "write a report of a stored run, for people, CI, spreadsheets or dashboards; RUN is latest, an experiment's name for its newest, a directory, or part of an id",
		ArgsUsage: "RUN",
		Flags: []cli.Flag{
			rootFlag(),
			choice(cli.StringFlag{Name: "format", Usage: "`FORMAT`: " + strings.Join(names, ", ") + "; else what the ending of --output says, or text"}, names...),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` instead of stdout"},
			&cli.StringFlag{Name: "svg", Usage: "write each drawing of the report into `DIR`, as SVG"},
			&cli.StringFlag{Name: "pdf", Usage: "write each drawing into `DIR` as PDF, for a paper"},
			&cli.StringFlag{Name: "csv", Usage: "write the numbers of each drawing into `DIR`"},
			&cli.StringFlag{Name: "width", Value: "6.5in", Usage: "lay drawings out for `WIDTH`, with a unit: in, cm, mm or pt"},
			&cli.StringFlag{Name: "text", Value: "8pt", Usage: "font `SIZE` of labels in drawings, with a unit: in, cm, mm or pt"},
		},
		Description: `Examples:
  inabench report latest -o report.html
  inabench report latest --format md >> "$GITHUB_STEP_SUMMARY"
  inabench report latest -o /var/lib/node_exporter/textfile/inabench.prom
  inabench report latest --pdf figures --csv figures
  inabench report latest --pdf figures --width 3.4in --text 7pt
`,
		Action: func(c *cli.Context) error {
			file := c.String("output")
			format := c.String("format")
			if format == "" {
				var err error
				if format, err = formatOf(file); err != nil {
					return err
				}
			}
			dir, rec, err := runOf(c)
			if err != nil {
				return err
			}
			drawn := c.String("svg") != "" || c.String("pdf") != ""
			for _, flag := range []string{"width", "text"} {
				if c.IsSet(flag) && !drawn {
					return usagef("add --svg DIR or --pdf DIR", "--%s applies only to drawings", flag)
				}
			}
			if c.String("svg") != "" || c.String("pdf") != "" || c.String("csv") != "" {
				if c.IsSet("output") || c.IsSet("format") {
					return usagef("write the report by another command", "--svg, --pdf and --csv are of drawings, --output and --format of the whole report")
				}
				return writeFigures(c, rec, dir)
			}
			if file == "" || file == stdin {
				return writeReport(c, c.App.Writer, rec, dir, format)
			}
			var b bytes.Buffer
			if err := writeReport(c, &b, rec, dir, format); err != nil {
				return err
			}
			return writeWhole(file, b.Bytes())
		},
	}
}

// writeFigures writes the drawings of a run into the folders that flags name, and lists the files.
func writeFigures(c *cli.Context, rec *results.Record, dir *results.Dir) error {
	width, err := points(c.String("width"), 72, 14400)
	if err != nil {
		return usagef("write --width 6.5in, 3.4in for one of two columns, or cm, mm, pt", "--width %q is no width of a drawing", c.String("width"))
	}
	size, err := points(c.String("text"), 2, 72)
	if err != nil {
		return usagef("write a size from 2pt to 72pt, such as --text 8pt", "--text %q is not a font size", c.String("text"))
	}
	perPixel := size / plot.SmallText
	if width/perPixel < leastWide {
		return usagef("use a wider --width or a smaller --text", "a drawing %s wide has no room for labels of %s", c.String("width"), c.String("text"))
	}
	shown, samples, err := dir.SamplesDrawn(rec)
	if err != nil {
		return err
	}
	if shown != rec {
		fmt.Fprintf(c.App.ErrWriter, "inabench: %s\n", human.Printable(shown.Warnings[len(shown.Warnings)-1]))
	}
	figures := report.Figures(rec, samples, beside(c, dir), width/perPixel)
	if len(figures) == 0 {
		return inputError{errors.New("the report of this run has no drawings"), ""}
	}
	for _, f := range figures {
		for _, form := range []string{"svg", "pdf", "csv"} {
			folder := c.String(form)
			if folder == "" || form == "csv" && f.Rows == nil {
				continue
			}
			var b bytes.Buffer
			switch form {
			case "svg":
				fmt.Fprint(&b, plot.InPoints(f.SVG, perPixel, width))
			case "pdf":
				err = pdf.Write(&b, f.SVG, perPixel, width)
			case "csv":
				fmt.Fprint(&b, f.CSV())
			}
			if err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			path, err := writeInto(folder, f.Name+"."+form, b.Bytes())
			if err != nil {
				return err
			}
			fmt.Fprintln(c.App.Writer, path)
		}
	}
	return nil
}

// leastWide is the least width in pixels that drawings are laid out for.
const leastWide = 300

// points is a length in points, 1/72 inch, from least to most.
func points(text string, least, most float64) (float64, error) {
	for unit, pt := range map[string]float64{"in": 72, "cm": 72 / 2.54, "mm": 7.2 / 2.54, "pt": 1} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err == nil && v*pt >= least && v*pt <= most {
				return v * pt, nil
			}
		}
	}
	return 0, fmt.Errorf("%q is no length", text)
}

// writeReport writes a run in one of reportFormats.
func writeReport(c *cli.Context, w io.Writer, rec *results.Record, dir *results.Dir, format string) error {
	switch format {
	case "md":
		return report.WriteMarkdown(w, rec)
	case "csv":
		return results.WriteCSV(w, rec)
	case "prometheus":
		return report.WritePrometheus(w, rec)
	case "html":
		rec, samples, err := dir.SamplesDrawn(rec)
		if err != nil {
			return err
		}
		return report.WriteReport(w, rec, samples, beside(c, dir))
	}
	return write(w, rec, dir.Path, format)
}

// beside is what is known beside a run's record.
func beside(c *cli.Context, dir *results.Dir) report.Beside {
	b := report.Beside{Past: past(c, dir)}
	var err error
	if b.Fidelity, err = fidelity.Page(dir.Path); err != nil {
		fmt.Fprintf(c.App.ErrWriter, "inabench: left out of the page: %v\n", err)
	}
	return b
}

// past is what is known of a run's past, by an index that is brought up to date: nil where there is none, and none is needed.
func past(c *cli.Context, dir *results.Dir) *report.Past {
	path, err := filepath.EvalSymlinks(dir.Path)
	if err != nil || !within(rootOf(c), path) {
		return nil
	}
	var out *report.Past
	_ = openIndex(c, history.Open, func(x *history.Index) (err error) {
		if _, err := x.Update(c.Context); err != nil {
			return err
		}
		out, err = x.Past(c.Context, filepath.Base(path))
		return err
	})
	return out
}

// retell writes a run's page once more, with what is known beside it: its past only when it is
// indexed. Without that the page is what it was.
func retell(c *cli.Context, rec *results.Record, dir *results.Dir) {
	b := beside(c, dir)
	if b.Past == nil && b.Fidelity == "" {
		return
	}
	rec, samples, err := dir.SamplesDrawn(rec)
	if err != nil {
		return
	}
	var page bytes.Buffer
	if err := report.WriteReport(&page, rec, samples, b); err == nil {
		_ = dir.WriteFile(results.ReportFile, page.Bytes())
	}
}

// within says whether a path is that of something in a directory.
func within(dir, path string) bool {
	a, err := os.Stat(dir)
	if err != nil {
		return false
	}
	b, err := os.Stat(filepath.Dir(path))
	return err == nil && os.SameFile(a, b)
}
