package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
)

// completeVerb is what shells start this program with, to ask what a command line may go on with. The words after it are
// those of the line up to the cursor, the last one unfinished.
const completeVerb = "__complete"

// A shell completes names of files itself, where this is the first line that it gets; what follows is an ending.
const completeFiles = ":files"

// scripts are what shells read, by their names.
var scripts = map[string]string{
	// Nothing that the program says is expanded: names of runs come from others. Bash takes lines apart at '=', which is
	// put together again.
	"bash": `_inabench() {
	local -a line got
	local word i program=${COMP_WORDS[0]}
	[[ $program == '~/'* ]] && program=$HOME/${program:2}
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if ((${#line[@]})) && [[ $word == = || ${line[-1]} == *= && ${COMP_WORDS[i-1]} == = ]]; then
			line[-1]+=$word
		else
			line+=("$word")
		fi
	done
	mapfile -t got < <("$program" __complete "${line[@]}" 2>/dev/null)
	word=${COMP_WORDS[COMP_CWORD]}
	[[ $word == = ]] && word= # nothing stands behind it yet
	COMPREPLY=()
	if [[ ${got[0]} == :files* ]]; then
		compopt -o filenames
		local ending=${got[0]#:files}
		mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X "!*${ending# }" -- "$word")
		return
	fi
	for i in "${!got[@]}"; do
		[[ ${got[i]} == *= ]] && compopt -o nospace
		if [[ ${line[-1]} == *=* ]]; then # what stands before the sign is there already
			got[i]=${got[i]#"${line[-1]%%=*}="}
		fi
	done
	COMPREPLY=("${got[@]}")
}
complete -F _inabench inabench
`,
	// What is typed is unquoted and never evaluated. Of a word that goes on behind the cursor, what stands before it counts.
	"zsh": `#compdef inabench
_inabench() {
	local program=${(Q)words[1]} ret=1
	[[ $program == '~/'* ]] && program=$HOME/${program:2}
	local -a line got
	line=("${(@Q)words[2,CURRENT]}")
	line[-1]=${(Q)PREFIX}
	got=("${(@f)$("$program" __complete "${line[@]}" 2>/dev/null)}")
	if [[ ${got[1]} == :files* ]]; then
		[[ $PREFIX == --*=* ]] && compset -P 1 '*='
		local ending=${got[1]#:files}
		_files -g "*${ending# }"
		return
	fi
	compadd -S '' -- ${(M)got:#*=} && ret=0
	compadd -- ${${got:#*=}:#} && ret=0
	return ret
}
if [[ ${funcstack[1]} == _inabench ]]; then
	_inabench "$@"
else
	compdef _inabench inabench
fi
`,
	// The current word comes as it was typed, with quotes; unless it is complete, it cannot be unquoted. Candidates are
	// whole words, with the option that stands before a sign of equality.
	"fish": `function __inabench_complete
	set -l words (commandline -opc)
	set -l last (commandline -ct)
	set -l plain (string unescape -- "$last")
	or set plain "$last"
	set -l program (string replace -r -- '^~/' "$HOME/" "$words[1]")
	set -l got (command $program __complete $words[2..-1] "$plain" 2>/dev/null)
	if not string match -q -- ':files*' "$got[1]"
		set -q got[1]
		and printf '%s\n' $got
		return
	end
	set -l option (string match -r -- '^--[^=]*=' "$last")
	set -l ending (string escape --style=regex -- (string replace -r -- '^:files ?' '' "$got[1]"))
	for path in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' "$last"))
		if string match -q -r -- "(/|$ending)\$" "$path"
			printf '%s\n' "$option$path"
		end
	end
end
complete -c inabench -f -k -a '(__inabench_complete)'
`,
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a shell's completion script: commands, options, files, runs, keys, metrics",
		ArgsUsage: "bash|zsh|fish",
		Description: `Examples:
  source <(inabench completion bash)                 # in ~/.bashrc
  inabench completion zsh > ~/.zfunc/_inabench       # fpath+=~/.zfunc before compinit
  inabench completion fish | source                  # in config.fish
`,
		Action: func(c *cli.Context) error {
			shell, err := argument(c, "shell")
			if err != nil {
				return err
			}
			text, ok := scripts[shell]
			if !ok {
				return usagef("one of bash, zsh, fish", "completion: no shell %q", shell)
			}
			_, err = io.WriteString(c.App.Writer, text)
			return err
		},
	}
}

func manCommand() *cli.Command {
	return &cli.Command{
		Name:  "man",
		Usage: "print the manual page, inabench(1)",
		Description: `Example:
  inabench man | man -l -
`,
		Action: func(c *cli.Context) error {
			text, err := c.App.ToManWithSection(1)
			if err == nil {
				_, err = io.WriteString(c.App.Writer, text)
			}
			return err
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version, its commit, and the compiler",
		Action: func(c *cli.Context) error {
			fmt.Fprintf(c.App.Writer, "%s %s\n", c.App.Name, version())
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return nil
			}
			fmt.Fprintf(c.App.Writer, "built by %s for %s/%s\n", info.GoVersion, runtime.GOOS, runtime.GOARCH)
			for _, s := range info.Settings {
				if what := map[string]string{"vcs.revision": "commit", "vcs.time": "of"}[s.Key]; what != "" {
					fmt.Fprintf(c.App.Writer, "%s %s\n", what, s.Value)
				}
			}
			return nil
		},
	}
}

// complete writes what a command line may go on with, a line each.
func complete(app *cli.App, typed []string, w io.Writer) {
	for _, word := range candidates(app, typed) {
		fmt.Fprintln(w, word)
	}
}

func candidates(app *cli.App, typed []string) []string {
	if len(typed) == 0 {
		typed = []string{""}
	}
	last := typed[len(typed)-1]
	commands, flags := app.Commands, []cli.Flag(nil)
	var cmd *cli.Command
	var arguments []string
	pending := "" // a flag that waits for its value
	given := map[string]string{}
	for i, word := range typed[:len(typed)-1] {
		switch next := named(commands, word); {
		case pending != "":
			given[pending], pending = word, ""
		case strings.HasPrefix(word, "-") && word != "-":
			name, value, has := strings.Cut(strings.TrimLeft(word, "-"), "=")
			if f := flagNamed(flags, name); f != nil && takesValue(f) {
				if given[f.Names()[0]] = value; !has {
					pending = f.Names()[0]
				}
			}
		case next != nil && len(arguments) == 0 && (cmd == nil || len(cmd.Subcommands) > 0):
			cmd, commands, flags = next, next.Subcommands, next.Flags
		case i == 0 && word == "help":
		default:
			arguments = append(arguments, word)
		}
	}
	name, value, has := strings.Cut(strings.TrimLeft(last, "-"), "=")
	switch {
	case pending != "":
		return starting(valuesOfFlag(flagNamed(flags, pending)), last)
	case strings.HasPrefix(last, "--") && has:
		values := starting(valuesOfFlag(flagNamed(flags, name)), value)
		if areFiles(values) {
			return values
		}
		var out []string
		for _, v := range values {
			out = append(out, "--"+name+"="+v)
		}
		return out
	case strings.HasPrefix(last, "-"):
		out := []string{"--help"}
		for _, f := range flags {
			if v, ok := f.(cli.VisibleFlag); !ok || v.IsVisible() {
				out = append(out, dashed(f.Names()[0]))
			}
		}
		return starting(out, last)
	case cmd == nil || len(cmd.Subcommands) > 0:
		var out []string
		for _, c := range commands {
			if !c.Hidden {
				out = append(out, c.Name)
			}
		}
		return starting(out, last)
	}
	return starting(valuesOfArgument(cmd, given, arguments), last)
}

func named(commands []*cli.Command, name string) *cli.Command {
	i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(name) })
	if i < 0 {
		return nil
	}
	return commands[i]
}

func flagNamed(flags []cli.Flag, name string) cli.Flag {
	i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return nil
	}
	return flags[i]
}

func takesValue(f cli.Flag) bool {
	doc, ok := f.(cli.DocGenerationFlag)
	return ok && doc.TakesValue()
}

// areFiles says whether words leave it to the shell to complete names of files.
func areFiles(words []string) bool {
	return len(words) > 0 && strings.HasPrefix(words[0], completeFiles)
}

// starting are those of some words that begin like what has been typed.
func starting(words []string, typed string) []string {
	if areFiles(words) {
		return words
	}
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, typed) })
}

// valuesOfFlag are the values that a flag may have, as far as they can be listed.
func valuesOfFlag(f cli.Flag) []string {
	if f == nil {
		return nil
	}
	if f, ok := f.(choiceFlag); ok {
		return f.words
	}
	doc, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return nil
	}
	_, rest, _ := strings.Cut(doc.GetUsage(), "`")
	what, _, _ := strings.Cut(rest, "`")
	if f.Names()[0] == "set" {
		return keysWith("experiment", "=")
	}
	return valuesNamed(what, nil)
}

// valuesOfArgument are those that a command's next argument may be.
func valuesOfArgument(cmd *cli.Command, given map[string]string, before []string) []string {
	usage := strings.Fields(strings.ReplaceAll(cmd.ArgsUsage, " ...", "..."))
	if len(usage) == 0 {
		return nil
	}
	what := usage[min(len(before), len(usage)-1)]
	what = strings.TrimSuffix(strings.Trim(what, "[]"), "...")
	var out []string
	for alternative := range strings.SplitSeq(what, "|") {
		out = append(out, valuesNamed(strings.TrimSuffix(alternative, "..."), given)...)
	}
	if i := slices.IndexFunc(out, func(w string) bool { return strings.HasPrefix(w, completeFiles) }); i >= 0 {
		return out[i : i+1]
	}
	return out
}

// valuesNamed are what a word in a usage line stands for: RUN, METRIC, FILE.toml.
func valuesNamed(what string, given map[string]string) []string {
	switch what {
	case "RUN", "RUNS", "A", "B":
		return runsNamed(cmp.Or(given["runs"], os.Getenv("INABENCH_RUNS"), "runs"))
	case "METRIC":
		return metric.Names()
	case "CODE":
		return results.Codes()
	case "KEY":
		return keysWith("", "")
	case "HOST", "SWITCH":
		return machinesOf(given["inventory"], what == "SWITCH")
	case "DIR", "FILE":
		return []string{completeFiles}
	case "bash", "zsh", "fish":
		return []string{what}
	}
	if file, ending, ok := strings.Cut(what, "."); ok && file == strings.ToUpper(file) {
		return []string{completeFiles + " ." + ending}
	}
	return nil
}

// mostRuns is how many of the newest runs are offered.
const mostRuns = 200

// runsNamed are ids of runs, the newest first, and "latest".
func runsNamed(root string) []string {
	names, err := results.Names(root)
	if err != nil || len(names) == 0 {
		return nil
	}
	return append([]string{"latest"}, names[:min(len(names), mostRuns)]...)
}

// keysWith are the keys of a kind of file, or of all, each with an ending.
func keysWith(of, ending string) (out []string) {
	for _, f := range files {
		if of != "" && f.Name != of {
			continue
		}
		for e := range f.Lister().All {
			if e.Path != "" && (ending == "" || !e.Table()) {
				out = append(out, strings.ReplaceAll(e.Path, "[]", "")+ending)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// machinesOf are the hosts of an inventory, or its switches.
func machinesOf(file string, switches bool) (out []string) {
	if file == "" {
		return nil
	}
	inv, err := inventory.Load(file)
	if err != nil {
		return nil
	}
	if switches {
		return inv.SwitchNames()
	}
	return inv.HostNames()
}
