package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// A commandLine is what was typed, with every option of a command before its
// arguments: the parser stops at the first argument, people do not.
type commandLine struct {
	args   []string
	output string // what --output or --format, or the environment in its place, says; "" where there is no such option
}

// arrange understands just enough of the arguments to put them in order. What is
// wrong with them is left for the parser to say.
func arrange(app *cli.App, args []string) commandLine {
	line := commandLine{args: args}
	if len(args) > 1 && args[1] == "help" { // "help run" is "run --help"
		args = append(append([]string{args[0]}, args[2:]...), "--help")
		line.args = args
	}
	n := 2 // arguments up to the command's name
	if len(args) < 2 {
		return line
	}
	cmd := app.Command(args[1])
	if cmd == nil {
		return line
	}
	if len(cmd.Subcommands) > 0 {
		if len(args) < 3 || cmd.Command(args[2]) == nil {
			return line
		}
		cmd, n = cmd.Command(args[2]), 3
	}
	format := flagNamed(cmd.Flags, "format") // then --output names a file, or is the same
	if format == nil {
		format = flagNamed(cmd.Flags, "output")
	}
	if doc, ok := format.(cli.DocGenerationFlag); ok {
		for _, key := range doc.GetEnvVars() {
			line.output = os.Getenv(key)
		}
	}
	options, arguments := args[:n:n], []string{}
	for rest := args[n:]; len(rest) > 0; {
		arg := rest[0]
		rest = rest[1:]
		if arg == "--" {
			arguments = append(arguments, rest...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			arguments = append(arguments, arg)
			continue
		}
		if arg == "--help" || arg == "-h" {
			line.args = append(args[:n:n], arg) // the parser takes arguments for topics
			return line
		}
		options = append(options, arg)
		name, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if f := flagNamed(cmd.Flags, name); !given && f != nil && takesValue(f) {
			if len(rest) == 0 {
				line.args = options // ends with what lacks a value: the parser says so
				return line
			}
			options, value, rest = append(options, rest[0]), rest[0], rest[1:]
		}
		if format != nil && slices.Contains(format.Names(), name) {
			line.output = value
		}
	}
	line.args = append(append(options, "--"), arguments...)
	return line
}

// usageError is a command line that cannot be understood.
type usageError hinted

func (u usageError) Unwrap() error { return u.error }
func (u usageError) Hint() string  { return u.hint }

func usagef(hint, format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...), hint}
}

// onUsageError says what the parser found wrong in this program's words.
func onUsageError(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		if name == "v" || name == "verbose" {
			return usagef(verboseHint(c), "%s has no %s", commandName(c), dashed(name))
		}
		var known []string
		for _, f := range c.Command.Flags {
			known = append(known, f.Names()...)
		}
		if near, ok := tomlfile.Nearest(name, known); ok {
			return usagef("did you mean "+dashed(near)+"?", "unknown option %s", dashed(name))
		}
		return usagef(helpHint(c), "unknown option %s", dashed(name))
	}
	// `invalid value "x" for flag -repeat: parse error`, "flag needs an argument: -set"
	for _, f := range c.Command.Flags {
		for _, name := range f.Names() {
			text = strings.Replace(text, "flag -"+name+":", dashed(name)+":", 1)
			if text == "flag needs an argument: -"+name {
				text = dashed(name) + " needs a value"
			}
		}
	}
	text = strings.Replace(text, ": parse error", ": not a number", 1)
	return usagef(helpHint(c), "%s", text)
}

// more are the options by which commands tell more than without. One whose details are a list is called --verbose, too.
var more = map[string]string{
	"compare": "all", "place": "explain", "plan": "explain", "show": "follow",
	"trace fit": "list-skipped", "trace inspect": "list-skipped", "trace import": "list-skipped",
}

// verboseHint is by what a command tells more, for who asks for --verbose.
func verboseHint(c *cli.Context) string {
	if name := more[commandName(c)]; name != "" {
		if f, ok := flagNamed(c.Command.Flags, name).(cli.DocGenerationFlag); ok {
			return dashed(name) + ": " + f.GetUsage()
		}
	}
	if flagNamed(c.Command.Flags, "quiet") != nil {
		return "it tells all that it does, unless --quiet is given; inabench report latest has every figure of a run"
	}
	if f, ok := flagNamed(c.Command.Flags, "output").(choiceFlag); ok && slices.Contains(f.words, "json") {
		return "--output json has all that it finds"
	}
	return helpHint(c)
}

func helpHint(c *cli.Context) string { return c.Command.HelpName + " --help lists the options" }

// commandName is a command as it is typed, without the program.
func commandName(c *cli.Context) string { return strings.TrimPrefix(c.Command.HelpName, "inabench ") }

// dashed is an option's name as it is typed.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// elsewhere are commands that other programs have, and what does the same here.
var elsewhere = map[string]string{
	"validate": "check", "lint": "check", "ls": "show", "list": "show", "logs": "show --follow", "deploy": "up", "destroy": "down",
}

// unknownCommand names the command of a program, or of a group of commands, that was
// probably meant.
func unknownCommand(of string, commands []*cli.Command, name string) error {
	if here, ok := elsewhere[name]; ok && !strings.Contains(of, " ") { // not of a group, whose commands are about one thing
		return usagef("did you mean `"+of+" "+here+"`?", "no command %q", name)
	}
	var known []string
	for _, c := range commands {
		known = append(known, c.Name)
	}
	hint := of + " --help lists the commands"
	if near, ok := tomlfile.Nearest(name, known); ok {
		hint = "did you mean `" + of + " " + near + "`?"
	}
	return usagef(hint, "no command %q", name)
}

// group is the action of a command that has others: help.
func group(c *cli.Context) error {
	if c.Args().Present() {
		return unknownCommand(c.Command.HelpName, c.Command.Subcommands, c.Args().First())
	}
	return cli.ShowSubcommandHelp(c)
}

// instead is what to write in the place of an argument, of commands that take none.
var instead = map[string]string{
	"doctor": "-i FILE names the lab", "gc": "inabench gc --keep N", "place": "-j FILE names the jobs", "preflight": "-i FILE names the lab",
	"sabotage": "inabench run --sabotage NAME EXPERIMENT.toml", "trace generate": "-o FILE names where the trace goes",
}

// checkNoArguments is an error if there are arguments of a command that takes none.
func checkNoArguments(c *cli.Context) error {
	if !c.Args().Present() || c.Command.ArgsUsage != "" || len(c.Command.Subcommands) > 0 {
		return nil
	}
	return usagef(cmp.Or(instead[commandName(c)], helpHint(c)), "%s: no argument expected, got %s", commandName(c),
		strings.Join(c.Args().Slice(), " "))
}

// argument returns the only argument of a command.
func argument(c *cli.Context, what string) (string, error) {
	usage := c.Command.HelpName + " [options] " + c.Command.ArgsUsage
	switch c.Args().Len() {
	case 1:
		return c.Args().First(), nil
	case 0:
		return "", usagef(usage, "%s: which %s?", commandName(c), what)
	}
	return "", usagef(usage, "%s: one %s expected, got %d: %s", commandName(c), what,
		c.Args().Len(), strings.Join(c.Args().Slice(), " "))
}
