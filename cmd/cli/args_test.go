package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestVerbose: a command either has --verbose, or says by which of its options it tells more.
func TestVerbose(t *testing.T) {
	app := newApp(nil, io.Discard, io.Discard)
	commands := map[string]*cli.Command{}
	for _, c := range app.Commands {
		commands[c.Name] = c
		for _, sub := range c.Subcommands {
			commands[c.Name+" "+sub.Name] = sub
		}
	}
	for name, flag := range more {
		if commands[name] == nil || flagNamed(commands[name].Flags, flag) == nil {
			t.Errorf("%s has no --%s", name, flag)
		}
	}
	for name, c := range commands {
		if flagNamed(c.Flags, "verbose") != nil {
			if more[name] != "list-skipped" {
				t.Errorf("%s: more has no word of its --verbose", name)
			}
			continue
		}
		for _, option := range []string{"-v", "--verbose"} {
			var stdout, stderr strings.Builder
			code := Main(append(append([]string{"inabench"}, strings.Fields(name)...), option), nil, &stdout, &stderr)
			said := stderr.String()
			if code != exitUsage || !strings.Contains(said, name+" has no "+option+"\n") || !strings.Contains(said, "hint: ") {
				t.Errorf("%s %s: exit code %d: %s", name, option, code, said)
			}
			if flag := more[name]; flag != "" && !strings.Contains(said, "hint: --"+flag+": ") {
				t.Errorf("%s %s does not name --%s: %s", name, option, flag, said)
			}
		}
	}
}

// TestNoArguments: a command that takes no argument refuses one, and says what to write in its place.
func TestNoArguments(t *testing.T) {
	var none []string
	for _, c := range newApp(nil, io.Discard, io.Discard).Commands {
		if len(c.Subcommands) == 0 && c.ArgsUsage == "" {
			none = append(none, c.Name)
		}
		for _, sub := range c.Subcommands {
			if sub.ArgsUsage == "" {
				none = append(none, c.Name+" "+sub.Name)
			}
		}
	}
	for name := range instead {
		if !slices.Contains(none, name) {
			t.Errorf("%s takes arguments", name)
		}
	}
	for _, name := range none {
		var stdout, stderr strings.Builder
		code := Main(slices.Concat([]string{"inabench"}, strings.Fields(name), []string{"extra"}), nil, &stdout, &stderr)
		said := stderr.String()
		if code != exitUsage || !strings.Contains(said, name+": no argument expected, got extra\n") || !strings.Contains(said, "hint: ") {
			t.Errorf("%s: exit code %d: %s", name, code, said)
		}
	}
}
