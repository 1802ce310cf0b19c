package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
)

// Program does runs with `inabench run`, each in a process of its own: whatever happens to
// it, the night goes on.
type Program struct {
	Path  string        // of the program; empty: this one
	Grace time.Duration // for the teardown of a run that is stopped; 0: 2 minutes
}

// nightVariable tells `inabench run` of which night it is.
const nightVariable = "INABENCH_NIGHT"

// NightOfEnvironment is the night that a suite started this process for; nil: none.
func NightOfEnvironment() *results.NightRun {
	n := new(results.NightRun)
	if json.Unmarshal([]byte(os.Getenv(nightVariable)), n) != nil || n.Night == "" {
		return nil
	}
	return n
}

// args are what it is called with for a request.
func (p Program) args(r Request) []string {
	args := []string{"run", "--on", r.Item.Driver, "--runs", r.Root}
	if r.Item.Driver == "lab" { // what the item before could not undo stays leased for a while
		args = append(args, "--wait", "2m")
	}
	if r.Item.Repeats > 0 {
		args = append(args, "--repeat", fmt.Sprint(r.Item.Repeats))
	}
	if r.Item.Quick {
		args = append(args, "--quick")
	}
	for _, set := range r.Item.Set {
		args = append(args, "--set", set)
	}
	return append(args, r.Item.Path)
}

// Run implements Runner. When ctx is done the process is interrupted, so that it takes its
// testbed down, and killed after Grace. It does not outlive this one.
func (p Program) Run(ctx context.Context, r Request) Ended {
	log, err := os.Create(r.Log)
	if err != nil {
		return Ended{Crashed: true, Message: err.Error()}
	}
	defer log.Close()
	night, err := json.Marshal(r.Night)
	if err != nil {
		return Ended{Crashed: true, Message: err.Error()}
	}
	path, name := p.Path, p.Path
	if path == "" { // under its own name, by which it knows what it is
		path, name = "/proc/self/exe", os.Args[0]
	}
	cmd := exec.CommandContext(ctx, path, p.args(r)...)
	cmd.Args[0] = name
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), nightVariable+"="+string(night), "INABENCH_OUTPUT=text", "INABENCH_RUN_ON=", "INABENCH_SWITCH=")
	// A group of its own: what a terminal sends goes to this process alone, and from here on
	// once, since the second signal would leave without taking down.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	if cmd.WaitDelay = p.Grace; cmd.WaitDelay == 0 {
		cmd.WaitDelay = 2 * time.Minute
	}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return Ended{}
	case ctx.Err() != nil && cmd.ProcessState == nil: // it was not even started
		return Ended{Exit: 130}
	case errors.As(err, &exit) && exit.Exited():
		said := said(r.Log)
		if exit.ExitCode() == 2 { // as the runtime does when it gives up; the line was not wrong
			return Ended{Exit: 2, Crashed: true, Message: said}
		}
		return Ended{Exit: exit.ExitCode(), Message: said}
	case errors.As(err, &exit):
		return Ended{Exit: -1, Crashed: true, Message: "the run died: " + exit.String()}
	case cmd.ProcessState != nil: // it ended well after it was told to stop
		return Ended{Exit: cmd.ProcessState.ExitCode()}
	}
	return Ended{Exit: -1, Crashed: true, Message: err.Error()}
}

// said is the last error that a program printed.
func said(log string) string {
	text, err := bounded.ReadFile(log, bounded.Config)
	if err != nil {
		return ""
	}
	for _, mark := range []string{"inabench: error: ", "panic: ", "fatal error: "} {
		if i := bytes.LastIndex(text, []byte(mark)); i >= 0 {
			line, _, _ := strings.Cut(string(text[i+len(mark):]), "\n")
			return line
		}
	}
	return ""
}
