package cli

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/testbed/sabotage"
)

func sabotageCommand() *cli.Command {
	return &cli.Command{
		Name:  "sabotage",
		Usage: "list the faults of run --sabotage, and the honest verdict on each",
		Flags: []cli.Flag{tableFlag()},
		Description: `Example:
  inabench run --sabotage flip-sums experiments/quickstart.toml
`,
		Action: func(c *cli.Context) error { return put(c, sabotage.Catalogue, listFaults) },
	}
}

// listFaults prints the catalogue, at most helpWidth columns wide.
func listFaults(w io.Writer) error {
	for i, f := range sabotage.Catalogue {
		if i == 0 || f.At != sabotage.Catalogue[i-1].At {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "Faults of a %s\n", f.At)
		}
		fmt.Fprintf(w, "  %s: %s\n", f.Name, f.Want)
		text := f.What + " (" + f.Sign + ")"
		if f.NoSim != "" {
			text += "; not on sim: " + f.NoSim
		}
		writeWrapped(w, "      ", text)
	}
	return nil
}
