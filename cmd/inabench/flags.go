package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// Flags that several commands share. Each can come from the environment.

func setFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name:  "set",
		Usage: "override a key of the experiment: `KEY=VALUE`, for example switch.pat_ratio=0.5 or job.A.rate=10Gbit/s; may be repeated",
	}
}

func driverFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "on", Value: "netns", EnvVars: []string{"INABENCH_RUN_ON"},
		Usage: "where to run: `netns` (an emulated rack on this machine), sim (a model in virtual time) or lab",
	}
}

func rootFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "runs", Value: "runs", EnvVars: []string{"INABENCH_RUNS"},
		Usage: "`DIR`ectory of run directories",
	}
}

func outputFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: "text", EnvVars: []string{"INABENCH_OUTPUT"},
		Usage: "`FORMAT` of what is written to stdout: text, json or junit",
	}
}

// oneOf checks a flag that has few values.
func oneOf(c *cli.Context, flag string, values ...string) (string, error) {
	v := c.String(flag)
	for _, x := range values {
		if v == x {
			return v, nil
		}
	}
	return "", usagef("--%s %q is not one of %s", flag, v, strings.Join(values, ", "))
}

// version is that of the module, or of the commit this was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v != "" && v != "(devel)" {
		return v
	}
	var rev, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	if rev == "" {
		return "devel"
	}
	return "devel-" + rev + dirty
}

// terminal describes a stream: whether a person reads it, how wide it is, and
// whether it may be coloured (never without a terminal, nor with NO_COLOR).
func terminal(w any) (tty bool, width int, colour bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return true, width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// isPlan says whether a file is a saved plan rather than an experiment.
func isPlan(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, inputError{err}
	}
	defer f.Close()
	var head [64]byte
	n, _ := f.Read(head[:])
	return strings.HasPrefix(strings.TrimSpace(string(head[:n])), "{"), nil
}

// inputError is a file that cannot be read.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

func (e inputError) Error() string { return fmt.Sprintf("read input: %v", e.error) }

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "\t")
	return enc.Encode(v)
}
