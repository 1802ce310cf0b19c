package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "explain a code such as INA-LINK-SLOW: meaning, likely causes, what to do; without CODE, list all",
		ArgsUsage: "[CODE]",
		Flags:     []cli.Flag{tableFlag()},
		Description: `Example:
  inabench explain INA-SHARP-FALLBACK
`,
		Action: func(c *cli.Context) error {
			format := c.String("output")
			if !c.Args().Present() {
				return listCodes(c.App.Writer, format)
			}
			code, err := argument(c, "code")
			if err != nil {
				return err
			}
			e, ok := results.Explain(code)
			if !ok {
				hint := strings.TrimPrefix(tomlfile.DidYouMean(strings.ToUpper(code), results.Codes())+" inabench explain lists them all", " ")
				return usagef(hint, "explain: no code %q", code)
			}
			if format == "json" {
				return writeJSON(c.App.Writer, e)
			}
			explain(c.App.Writer, e)
			return nil
		},
	}
}

func listCodes(w io.Writer, format string) error {
	all := results.Explanations()
	if format == "json" {
		return writeJSON(w, all)
	}
	var rows [][2]string
	for _, e := range all {
		rows = append(rows, [2]string{e.Code, e.Means})
	}
	writeRows(w, rows)
	return nil
}

func explain(w io.Writer, e results.Explanation) {
	fmt.Fprintln(w, e.Code)
	for _, line := range wrap(e.Means, helpWidth-2) {
		fmt.Fprintln(w, "  "+line)
	}
	list := func(title string, items []string) {
		if len(items) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s:\n", title)
		for _, item := range items {
			for i, line := range wrap(item, helpWidth-4) {
				fmt.Fprintf(w, "  %s %s\n", []string{"-", " "}[min(i, 1)], line)
			}
		}
	}
	list("Likely causes", e.Causes)
	list("What to do", e.Do)
}
