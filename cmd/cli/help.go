package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/results/human"
)

// helpWidth is what a terminal has at least.
const helpWidth = 80

// printHelp writes the help of the program or of one command; it is cli.HelpPrinter.
func printHelp(w io.Writer, _ string, data any) {
	switch x := data.(type) {
	case *cli.App:
		fmt.Fprintf(w, "%s: %s\n\nusage: %s COMMAND [options] [arguments]\n", x.Name, x.Usage, x.Name)
		left := 0
		for _, c := range x.Commands {
			left = max(left, len(c.Name))
		}
		kind := ""
		for _, c := range x.Commands {
			if c.Category != kind {
				kind = c.Category
				fmt.Fprintf(w, "\n%s:\n", kind)
			}
			writeRow(w, left, c.Name, c.Usage)
		}
		fmt.Fprintln(w)
		fmt.Fprint(w, x.Description)
	case *cli.Command:
		writeWrapped(w, "", x.HelpName+": "+x.Usage)
		if len(x.Subcommands) > 0 {
			fmt.Fprintf(w, "\nusage: %s COMMAND [options] [arguments]\n\n", x.HelpName)
			var rows [][2]string
			for _, c := range x.Subcommands {
				rows = append(rows, [2]string{c.Name, c.Usage})
			}
			writeRows(w, rows)
			fmt.Fprint(w, x.Description)
			return
		}
		fmt.Fprintf(w, "\nusage: %s\n\n", strings.TrimSpace(x.HelpName+" [options] "+x.ArgsUsage))
		var rows [][2]string
		for _, f := range x.VisibleFlags() {
			rows = append(rows, flagRow(f.(cli.DocGenerationFlag), f.Names()))
		}
		writeRows(w, rows)
		if strings.Contains(x.ArgsUsage, "|-") {
			fmt.Fprintln(w, "A file named - is standard input.")
		}
		fmt.Fprintln(w, "Options may come before or after arguments; -- ends them.")
		if x.Description != "" {
			fmt.Fprint(w, "\n", x.Description)
		}
	}
}

// flagRow is an option's names, and what it does. A word in back quotes in its usage
// is what its value is called.
func flagRow(f cli.DocGenerationFlag, names []string) [2]string {
	usage := f.GetUsage()
	value := ""
	if _, rest, ok := strings.Cut(usage, "`"); ok {
		value, _, _ = strings.Cut(rest, "`")
		usage = strings.ReplaceAll(usage, "`", "")
	}
	var typed []string
	for _, n := range names {
		typed = append(typed, dashed(n))
	}
	if d := f.GetDefaultText(); d != "" && f.TakesValue() && d != "0" {
		usage += "; default " + strings.ReplaceAll(d, `"`, "")
	}
	if env := f.GetEnvVars(); len(env) > 0 {
		usage += " [$" + strings.Join(env, ", $") + "]"
	}
	return [2]string{strings.TrimSpace(strings.Join(typed, ", ") + " " + value), usage}
}

// writeRows writes two columns, the second wrapped.
func writeRows(w io.Writer, rows [][2]string) {
	left := 0
	for _, r := range rows {
		left = max(left, len(r[0]))
	}
	for _, r := range rows {
		writeRow(w, left, r[0], r[1])
	}
	fmt.Fprintln(w)
}

// writeRow writes a row whose first column is so wide.
func writeRow(w io.Writer, left int, first, second string) {
	writeWrapped(w, fmt.Sprintf("  %-*s  ", left, first), second)
}

// writeWrapped writes a text beside its head, in lines of at most helpWidth columns.
func writeWrapped(w io.Writer, head, text string) {
	left := utf8.RuneCountInString(head)
	for _, line := range wrap(text, helpWidth-left) {
		fmt.Fprintln(w, head+line)
		head = strings.Repeat(" ", left)
	}
}

// wrap breaks text at spaces into lines of at most width characters, where its words
// allow.
func wrap(text string, width int) []string {
	lines := human.Fill(strings.Fields(text), func(line string) bool { return utf8.RuneCountInString(line) <= width })
	if len(lines) == 0 {
		return []string{""}
	}
	return lines
}
