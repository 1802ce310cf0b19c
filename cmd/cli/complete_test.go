package cli

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCandidates: what a command line may go on with. The last word is unfinished.
func TestCandidates(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	inv := filepath.Join(dir, "lab.toml")
	if err := os.WriteFile(inv, []byte("version = 1\n[defaults]\nrate = \"1Gbit/s\"\nkind = \"soft\"\n[[switch]]\nname = \"tor1\"\n[[host]]\nname = \"node[1-2]\"\nnic.port = \"tor1/[1-2]\"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		typed string
		want  []string // all of them, or
		has   string   // one of them
	}{
		{"", nil, "run"},
		{"expl", []string{"explain"}, ""},
		{"run --on ", []string{"netns", "sim", "lab"}, ""},
		{"run --on s", []string{"sim"}, ""},
		{"run --output=j", []string{"--output=json", "--output=junit"}, ""},
		{"run -o j", []string{"json", "junit"}, ""},
		{"run --sab", []string{"--sabotage"}, ""},
		{"run --set switch.mo", []string{"switch.mode="}, ""},
		{"run ", []string{":files .toml"}, ""},
		{"run --quick exp", []string{":files .toml"}, ""},
		{"plan -o ", []string{":files"}, ""},
		{"report --output=x", []string{":files"}, ""},
		{"suite ", nil, "run"},
		{"policy ", []string{"check"}, ""},
		{"policy check ./m", []string{":files"}, ""},
		{"suite run ", []string{":files .toml"}, ""},
		{"explain INA-LINK-S", []string{"INA-LINK-SLOW"}, ""},
		{"history good", []string{"goodput"}, ""},
		{"reference switch.mod", []string{"switch.mode"}, ""},
		{"reference --of ", nil, "inventory"},
		{"ssh -i lab.toml --on netns no", []string{"node1", "node2"}, ""},
		{"lock -i lab.toml node1 t", []string{"tor1"}, ""},
		{"completion ", []string{"bash", "zsh", "fish"}, ""},
		{"show ", []string{}, ""},
		{"no-such-command ", nil, "run"},
		{"run --no-such-flag ", []string{":files .toml"}, ""},
	} {
		app := newApp(nil, io.Discard, io.Discard)
		got := candidates(app, strings.Split(tt.typed, " "))
		if tt.has != "" && !slices.Contains(got, tt.has) || tt.has == "" && !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q%s", tt.typed, got, tt.want, tt.has)
		}
	}
}

// asked are what shells do with their scripts when the key is pressed behind a line, and print what they offer. What a shell
// knows of its line, and how it completes names of files, stands in their place as far as there is no terminal.
var asked = map[string]func(words []string) string{
	"bash": func(words []string) string {
		var apart []string // bash takes lines apart at '='
		for _, w := range words {
			name, value, has := strings.Cut(w, "=")
			if apart = append(apart, name); has {
				apart = append(apart, "=")
			}
			if value != "" {
				apart = append(apart, value)
			}
		}
		return scripts["bash"] + "COMP_WORDS=(" + shellWords(apart) + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); compopt() { :; }\n" +
			"_inabench; printf '%s\\n' \"${COMPREPLY[@]}\"\n"
	},
	"zsh": func(words []string) string {
		return "compdef() { : }\n" +
			"compset() { PREFIX=${PREFIX#*=} }\n" +
			"compadd() { [[ $1 == -S ]] && shift 2; shift; (( $# )) && print -rl -- \"$@\" }\n" +
			"_files() { local f; for f in *; do [[ $f == ${PREFIX}* && $f == ${~2} ]] && print -r -- $f; done }\n" +
			scripts["zsh"] + "words=(" + shellWords(words) + "); CURRENT=$#words; PREFIX=${words[-1]}; _inabench\n"
	},
	"fish": func(words []string) string {
		last := len(words) - 1
		return "function commandline; if test \"$argv[1]\" = -ct; printf '%s\\n' " + shellWords(words[last:]) + "; else; printf '%s\\n' " + shellWords(words[:last]) + "; end; end\n" +
			"function __fish_complete_path; for f in *; string match -e -- \"$argv[1]\" $f; end; end\n" +
			scripts["fish"] + "__inabench_complete\n"
	},
}

// shellWords are words as each shell reads them; none of a test has a quote.
func shellWords(words []string) string { return "'" + strings.Join(words, "' '") + "'" }

// TestShells: each shell that is here reads its script without a complaint, and offers by it what the program says and no
// more, names of files with the ending that is wanted, and what an option's value goes on with.
func TestShells(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "inabench"), []byte("#!/bin/sh\n"+
		"[ \"$*\" = '__complete ru' ] && echo run\n"+
		"[ \"$*\" = '__complete run --on ' ] && printf 'netns\\nsim\\n'\n"+
		"[ \"$*\" = '__complete run x' ] && echo ':files .toml'\n"+
		"[ \"$*\" = '__complete report --output=x' ] && echo ':files'\n"+
		"[ \"$*\" = '__complete run --on=s' ] && echo '--on=sim'\n"+
		"[ \"$*\" = '__complete run --on=' ] && printf '%s\\n' --on=netns --on=sim\n"+
		"[ \"$*\" = '__complete run --set switch.mo' ] && echo 'switch.mode='\n"+
		"[ \"$*\" = '__complete show ' ] && echo '$(touch hurt) `touch hurt` *'\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.toml", "x.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	hostile := "$(touch hurt) `touch hurt` *" // a name of a run that others made
	for shell, text := range scripts {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err)
			}
			run := func(stdin string, args ...string) string {
				t.Helper()
				cmd := exec.Command(shell, args...)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
				cmd.Stdin = strings.NewReader(stdin)
				out, err := cmd.CombinedOutput()
				if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || err != nil && args[0] == "-n" {
					t.Errorf("%v\n%s", err, out)
				}
				return strings.TrimSpace(string(out))
			}
			run(text, "-n")
			for _, tt := range []struct {
				typed string
				want  map[string]string // by shell; "": by all others
			}{
				{"ru", map[string]string{"": "run"}},
				{"run --on ", map[string]string{"": "netns\nsim"}},
				{"run x", map[string]string{"": "x.toml"}},
				{"run --on=s", map[string]string{"bash": "sim", "": "--on=sim"}}, // bash has what stands before the sign
				{"run --on=", map[string]string{"bash": "netns\nsim", "": "--on=netns\n--on=sim"}},
				{"report --output=x", map[string]string{"fish": "--output=x.toml\n--output=x.txt", "": "x.toml\nx.txt"}},
				{"run --set switch.mo", map[string]string{"": "switch.mode="}},
				{"show ", map[string]string{"": hostile}},
				{"nothing ", map[string]string{"": ""}},
			} {
				want, ok := tt.want[shell]
				if !ok {
					want = tt.want[""]
				}
				words := append([]string{"inabench"}, strings.Split(tt.typed, " ")...)
				lines := strings.Split(run("", "-c", asked[shell](words)), "\n")
				slices.Sort(lines)
				if got := strings.Join(lines, "\n"); got != want {
					t.Errorf("%q: offered is %q, want %q", tt.typed, got, want)
				}
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "hurt")); err == nil {
		t.Error("a name was run as a command")
	}
}
