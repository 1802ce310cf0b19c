package cli

import (
	"io"
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
