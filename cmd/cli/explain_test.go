package cli

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory/tomlfile/reference"
	"github.com/inabench/inabench/results"
)

var (
	aCommand = regexp.MustCompile(`\binabench( [a-z]+)( [a-z]+)?((?: [^;:,()]*)?)`)
	aFlag    = regexp.MustCompile(`(?:^| )--([a-z][a-z-]*)`)
	aKey     = regexp.MustCompile(`\b([a-z_]+)\.[a-z_]+(?:\.[a-z_]+)*\b`)
)

// What explain says to do can be done: commands, their options and keys of files are those that there are.
func TestAdvice(t *testing.T) {
	app := newApp(strings.NewReader(""), io.Discard, io.Discard)
	named := func(all []*cli.Command, name string) *cli.Command {
		i := slices.IndexFunc(all, func(c *cli.Command) bool { return c.HasName(name) })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	has := func(c *cli.Command, flag string) bool {
		return flag == "help" || slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), flag) })
	}
	tables := map[string]bool{}
	for _, f := range files {
		for e := range f.Lister().All {
			first, _, _ := strings.Cut(strings.ReplaceAll(e.Path, "[]", ""), ".")
			tables[first] = true
		}
	}
	commands, flags, keys := 0, 0, 0
	for _, e := range results.Explanations() {
		for _, text := range append(slices.Clone(e.Causes), e.Do...) {
			rest := text
			for _, m := range aCommand.FindAllStringSubmatch(text, -1) {
				commands++
				c := named(app.Commands, strings.TrimSpace(m[1]))
				if c == nil {
					t.Errorf("%s: %q: there is no %s", e.Code, text, m[1])
					continue
				}
				if sub := named(c.Subcommands, strings.TrimSpace(m[2])); sub != nil {
					c = sub
				}
				for _, f := range aFlag.FindAllStringSubmatch(m[3], -1) {
					if flags++; !has(c, f[1]) {
						t.Errorf("%s: %q: %s has no --%s", e.Code, text, c.Name, f[1])
					}
				}
				rest = strings.Replace(rest, m[0], "", 1)
			}
			for _, f := range aFlag.FindAllStringSubmatch(rest, -1) { // of run, where it does not say
				if flags++; !slices.ContainsFunc(app.Commands, func(c *cli.Command) bool { return has(c, f[1]) }) {
					t.Errorf("%s: %q: no command has --%s", e.Code, text, f[1])
				}
			}
			for _, m := range aKey.FindAllStringSubmatch(text, -1) {
				if !tables[m[1]] {
					continue // a file, say
				}
				keys++
				if !slices.ContainsFunc(files, func(f reference.File) bool { _, ok := f.Lister().Find(m[0]); return ok }) {
					t.Errorf("%s: %q: there is no key %s", e.Code, text, m[0])
				}
			}
		}
	}
	if commands < 20 || flags < 10 || keys < 3 {
		t.Errorf("only %d commands, %d options and %d keys were found", commands, flags, keys)
	}
}
