package cli

import (
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
		{"suite ", nil, "run"},
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

// TestShells: each shell that is here reads its script, and bash completes by it.
func TestShells(t *testing.T) {
	for shell, text := range scripts {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err)
			}
			cmd := exec.Command(shell, "-n")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "inabench"), []byte("#!/bin/sh\n"+
		"[ \"$*\" = '__complete run --on ' ] && printf 'netns\\nsim\\n'\n"+
		"[ \"$*\" = '__complete run x' ] && echo ':files .toml'\n"+
		"[ \"$*\" = '__complete run --on=s' ] && echo '--on=sim'\n"+
		"[ \"$*\" = '__complete show ' ] && echo '$(touch hurt) `touch hurt` *'\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.toml", "x.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for typed, want := range map[string]string{
		"run --on ": "netns sim", "run x": "x.toml",
		"run --on = s": "sim",                          // as bash takes it apart
		"show ":        "$(touch hurt) `touch hurt` *", // a name of a run that others made
	} {
		words := append([]string{"inabench"}, strings.Split(typed, " ")...)
		script := scripts["bash"] + "COMP_WORDS=('" + strings.Join(words, "' '") + "'); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); compopt() { :; }; _inabench; printf '%s\\n' \"${COMPREPLY[*]}\"\n"
		cmd := exec.Command("bash", "-c", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q: bash offers %q, want %q (%v)", typed, got, want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "hurt")); err == nil {
		t.Error("a name was run as a command")
	}
}
