package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/fidelity"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/report"
)

// reportFormats are what a run can be reported in, and the endings of files that stand for these.
var reportFormats = []struct{ name, ending string }{
	{"text", ".txt"}, {"html", ".html"}, {"md", ".md"}, {"json", ".json"}, {"junit", ".xml"}, {"csv", ".csv"}, {"prometheus", ".prom"},
}

func reportCommand() *cli.Command {
	var names []string
	for _, f := range reportFormats {
		names = append(names, f.name)
	}
	return &cli.Command{
		Name:      "report",
		Usage:     "report a stored run for people, CI, spreadsheets and dashboards; RUN is latest, an experiment's name for its newest, a directory, or part of an id",
		ArgsUsage: "RUN",
		Flags: []cli.Flag{
			rootFlag(),
			choice(cli.StringFlag{Name: "format", Usage: "`FORMAT`: " + strings.Join(names, ", ") + "; else what the ending of --output says, or text"}, names...),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write, whole or not at all, in the place of stdout"},
		},
		Description: `Examples:
  inabench report latest -o report.html
  inabench report latest --format md >> "$GITHUB_STEP_SUMMARY"
  inabench report latest -o /var/lib/node_exporter/textfile/inabench.prom
`,
		Action: func(c *cli.Context) error {
			file := c.String("output")
			format := c.String("format")
			if format == "" {
				format = "text"
				for _, f := range reportFormats {
					if file != "" && strings.EqualFold(filepath.Ext(file), f.ending) {
						format = f.name
					}
				}
			}
			dir, rec, err := runOf(c)
			if err != nil {
				return err
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
		samples, err := dir.SamplesDrawn(rec)
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

// past is what is known of a run's past: nil where there is no index of it, and none is needed.
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
	samples, err := dir.SamplesDrawn(rec)
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

// writeWhole writes a file so that others see the old one or the new one, whole, as who collects
// files of metrics must.
func writeWhole(file string, data []byte) error {
	if st, err := os.Stat(file); err == nil && !st.Mode().IsRegular() { // a pipe, or a device
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return outputError{err}
		}
		return nil
	}
	if err := results.WriteAtomically(file, data); err != nil {
		return outputError{fmt.Errorf("write %s: %w", file, err)}
	}
	return nil
}
