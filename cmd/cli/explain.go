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
			if !c.Args().Present() {
				return put(c, results.Explanations(), listCodes)
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
			return put(c, e, func(w io.Writer) error { return explain(w, e) })
		},
	}
}

func listCodes(w io.Writer) error {
	var rows [][2]string
	for _, e := range results.Explanations() {
		rows = append(rows, [2]string{e.Code, e.Means})
	}
	writeRows(w, rows)
	return nil
}

func explain(w io.Writer, e results.Explanation) error {
	fmt.Fprintln(w, e.Code)
	writeWrapped(w, "  ", e.Means)
	list := func(title string, items []string) {
		if len(items) == 0 {
			return
		}
		fmt.Fprintf(w, "\n%s:\n", title)
		for _, item := range items {
			writeWrapped(w, "  - ", item)
		}
	}
	list("Likely causes", e.Causes)
	list("What to do", e.Do)
	return nil
}
