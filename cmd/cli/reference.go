package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/suite"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/inventory/tomlfile/reference"
	"github.com/inabench/inabench/placement/workload"
)

// files are the kinds of file that people write.
var files = []reference.File{
	{Name: "experiment", About: "What runs where, with what settings, what is varied, and what should come out. All quantities are those of the lab.", Lister: kinds.Describe},
	{Name: "inventory", About: "What exists in a lab, or would exist: hosts, their NICs and GPUs, switches, and the cables between them.", Lister: inventory.Describe},
	{Name: "suite", About: "Experiments that run one after the other, such as every night.", Lister: suite.Describe},
	{Name: "catalogue", About: "Models of one's own, which `catalogue` in an experiment names.", Lister: workload.Describe},
	{Name: "patterns", About: "When models reduce their gradients, which `patterns` in an experiment names.", Lister: workload.DescribePatterns},
}

// referenceHead begins docs/REFERENCE.md.
const referenceHead = `# What files may say

Every table and every key of the files that people write, as ` + "`inabench reference`" + ` says it too. It is made from the
program: a key that is not here is unknown.

Quantities carry their unit: rates "25Gbit/s", sizes "64KiB" or "1MB", times "50us". Relative paths are meant from the
file's own folder.

Editors check and complete such files by the schemas in [schema](schema), if the first line of a file is one of

    #:schema https://raw.githubusercontent.com/inabench/inabench/main/docs/schema/experiment.json
    #:schema https://raw.githubusercontent.com/inabench/inabench/main/docs/schema/inventory.json

(taplo, and what builds on it, such as "Even Better TOML" of VS Code).
`

func referenceCommand() *cli.Command {
	return &cli.Command{
		Name:      "reference",
		Usage:     "explain the keys of files: of a table, or one; without KEY, list all tables",
		ArgsUsage: "[KEY]",
		Flags: []cli.Flag{
			choice(cli.StringFlag{Name: "of", Usage: "only this `KIND` of file: " + strings.Join(fileNames(), ", ")}, fileNames()...),
			choice(cli.StringFlag{Name: "format", Value: "text", Usage: "`FORMAT` of stdout: text, markdown, or schema, which is JSON Schema of one kind, for editors"}, "text", "markdown", "schema"),
		},
		Description: `Examples:
  inabench reference switch.mode
  inabench reference --of inventory switch
  inabench reference --of experiment --format schema
`,
		Action: func(c *cli.Context) error {
			format := c.String("format")
			name := c.String("of")
			of := slices.DeleteFunc(slices.Clone(files), func(f reference.File) bool {
				return name != "" && f.Name != name
			})
			switch {
			case format != "text" && c.Args().Present():
				return usagef("leave the key out", "--format %s is of whole files", format)
			case format == "markdown":
				_, err := io.WriteString(c.App.Writer, referenceHead+reference.Markdown(of))
				return err
			case format == "schema" && len(of) != 1:
				return usagef("write --of experiment, or one of "+strings.Join(fileNames()[1:], ", "), "a schema is of one kind of file")
			case format == "schema":
				text, err := reference.Schema(of[0])
				if err == nil {
					_, err = fmt.Fprintln(c.App.Writer, string(text))
				}
				return err
			case !c.Args().Present():
				listTables(c.App.Writer, of)
				return nil
			}
			key, err := argument(c, "key")
			if err != nil {
				return err
			}
			return sayKey(c.App.Writer, of, key)
		},
	}
}

func fileNames() (out []string) {
	for _, f := range files {
		out = append(out, f.Name)
	}
	return out
}

// listTables lists what kinds of file there are, and the tables of each.
func listTables(w io.Writer, of []reference.File) {
	for i, f := range of {
		if i > 0 {
			fmt.Fprintln(w)
		}
		var rows [][2]string
		for e := range f.Lister().All {
			if e.Table() && e.Path != "" {
				rows = append(rows, [2]string{reference.Head(e), unquoted(reference.About(e))})
			}
		}
		writeWrapped(w, "", strings.ToUpper(f.Name)+"  "+unquoted(f.About))
		fmt.Fprintln(w)
		writeRows(w, rows)
	}
}

// unquoted is a text without the quotes of Markdown.
func unquoted(s string) string { return strings.ReplaceAll(s, "`", "") }

// sayKey says what a key, or a table with all its keys, is about, in each kind of file that has it.
func sayKey(w io.Writer, of []reference.File, key string) error {
	key = strings.Trim(key, "[]")
	found := false
	for _, f := range of {
		e, ok := f.Lister().Find(key)
		if !ok {
			continue
		}
		if found {
			fmt.Fprintln(w)
		}
		found = true
		name := e.Path
		if e.Table() {
			name = reference.Head(e)
		}
		fmt.Fprintf(w, "%s, in %s %s\n", name, article(f.Name), f.Name)
		if !e.Table() {
			fact := reference.Value(e)
			if e.Required {
				fact += "; required"
			} else if d := reference.Default(e); d != "" {
				fact += "; default " + d
			}
			writeWrapped(w, "  ", fact)
		}
		writeWrapped(w, "  ", unquoted(reference.About(e)))
		if e.Table() {
			fmt.Fprintln(w)
			writeRows(w, keyRows(e))
		}
	}
	if found {
		return nil
	}
	var known []string
	for _, f := range of {
		for e := range f.Lister().All {
			known = append(known, strings.ReplaceAll(e.Path, "[]", ""))
		}
	}
	return usagef(strings.TrimPrefix(tomlfile.DidYouMean(key, known)+" inabench reference lists all tables", " "), "reference: no key %q", key)
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an"
	}
	return "a"
}

// keyRows are a table's keys, each with what it may be and what it is about.
func keyRows(e tomlfile.Entry) (rows [][2]string) {
	for _, k := range e.Entries {
		text := unquoted(reference.About(k))
		switch {
		case k.Table():
			text = reference.Head(k) + ". " + text
		default:
			fact := reference.Value(k)
			if k.Required {
				fact += ", required"
			} else if d := reference.Default(k); d != "" {
				fact += "; default " + d
			}
			text = strings.TrimSpace(text + " (" + fact + ")")
		}
		rows = append(rows, [2]string{k.Key, text})
	}
	return rows
}
