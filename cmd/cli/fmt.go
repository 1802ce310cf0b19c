package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results/human"
)

func fmtCommand() *cli.Command {
	return &cli.Command{
		Name:      "fmt",
		Usage:     "format TOML files in place; comments and order stay",
		ArgsUsage: "FILE.toml|- ...",
		Flags:     []cli.Flag{&cli.BoolFlag{Name: "check", Usage: "write nothing: list files that would change, and fail if there are any"}},
		Description: `Examples:
  inabench fmt my-lab.toml my-first.toml
  inabench fmt --check experiments/*.toml
`,
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("inabench fmt FILE.toml ...", "fmt: which file?")
			}
			var problems tomlfile.Problems
			var others []error
			other := 0
			for _, path := range c.Args().Slice() {
				src, err := read(c, path)
				if err != nil {
					others = append(others, err)
					continue
				}
				text, err := tomlfile.Format(src.name, src.text)
				var p tomlfile.Problems
				switch same := bytes.Equal(text, src.text); {
				case errors.As(err, &p):
					problems = append(problems, p...)
					continue
				case err != nil:
					others = append(others, err)
					continue
				case path == stdin && !c.Bool("check"):
					if _, err := c.App.Writer.Write(text); err != nil {
						return err
					}
					continue
				case same:
					continue
				}
				other++
				fmt.Fprintln(c.App.Writer, src.name)
				if !c.Bool("check") {
					if err := rewrite(path, text); err != nil {
						others = append(others, err)
					}
				}
			}
			if len(others) > 0 {
				return errors.Join(append(others, problems.Err())...)
			}
			if err := problems.Err(); err != nil {
				return err
			}
			if c.Bool("check") && other > 0 {
				return inputError{fmt.Errorf("%s not formatted", human.Plural(other, "file")), "inabench fmt FILE formats them"}
			}
			return nil
		},
	}
}

// rewrite writes a file anew, where a link leads to, with the permissions that it has.
func rewrite(path string, text []byte) error {
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return outputError{err}
	}
	st, err := os.Stat(to)
	if err != nil {
		return outputError{err}
	}
	if err := writeWhole(to, text); err != nil {
		return err
	}
	if err := os.Chmod(to, st.Mode().Perm()); err != nil {
		return outputError{err}
	}
	return nil
}
