// Command inabench runs experiments on testbeds for in-network aggregation.
//
//	inabench run experiments/quickstart.toml
//
// It reads an inventory of hosts and switches and an experiment, computes where
// jobs go and what they should get, makes it happen on a lab, an emulated rack or
// a model, and holds what was measured against what was predicted.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/urfave/cli/v2"
)

func init() {
	// The processes of an emulation die with the thread that started them
	// (PR_SET_PDEATHSIG), so the main goroutine keeps the main thread.
	runtime.LockOSThread()
}

func main() {
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is main without the process: arguments and streams in, exit code out.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if code, ok := hidden(args, stdin, stdout, stderr); ok {
		return code
	}
	ctx, stop := interruptible(stderr)
	defer stop()
	app := newApp(stdin, stdout, stderr)
	err := app.RunContext(ctx, args)
	return exitCode(ctx, err, stderr)
}

// interruption is the cause of a context that a signal cancelled.
type interruption struct{ sig syscall.Signal }

func (i interruption) Error() string { return "interrupted by " + i.sig.String() }

// interruptible returns a context that the first SIGINT or SIGTERM cancels, which
// starts the teardown. A second one exits at once: nothing of an emulation can
// outlive this process, and `inabench clean` finishes the job in a lab.
func interruptible(stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	var n atomic.Int32
	go func() {
		for sig := range ch {
			s := sig.(syscall.Signal)
			if n.Add(1) > 1 {
				fmt.Fprintln(stderr, "inabench: second signal: leaving at once; `inabench clean` finishes what is left")
				os.Exit(128 + int(s))
			}
			cancel(interruption{s})
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		cancel(nil)
	}
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:  "inabench",
		Usage: "run and judge experiments on testbeds for in-network aggregation",
		Description: "Start with: inabench run experiments/quickstart.toml\n" +
			"Results go to stdout, progress to stderr. Exit codes: 0 all expectations held, 1 one failed, 2 usage, " +
			"3 invalid input, 4 no feasible placement, 5 this machine cannot do that, 6 the testbed failed, " +
			"7 inconclusive, 8 reservation refused, 9 cleanup incomplete, 130/143 interrupted.",
		Version:              version(),
		Reader:               stdin,
		Writer:               stdout,
		ErrWriter:            stderr,
		HideHelpCommand:      true,
		Suggest:              true,
		ExitErrHandler:       func(*cli.Context, error) {}, // exitCode decides
		OnUsageError:         onUsageError,
		EnableBashCompletion: true,
		Commands: []*cli.Command{
			checkCommand(), planCommand(), runCommand(), calibrateCommand(),
			showCommand(), graphCommand(), sshCommand(), doctorCommand(), cleanCommand(),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("no command %q: `inabench help` lists them", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, c := range app.Commands {
		c.OnUsageError = onUsageError
	}
	return app
}

func onUsageError(_ *cli.Context, err error, _ bool) error { return usageError{err} }

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// argument returns the only positional argument.
func argument(c *cli.Context, what string) (string, error) {
	switch c.Args().Len() {
	case 1:
		return c.Args().First(), nil
	case 0:
		return "", usagef("%s: %s is missing: inabench %s [options] %s", c.Command.Name, what, c.Command.Name, strings.ToUpper(what))
	}
	return "", usagef("%s: one %s expected, got %d arguments (options go before it): %q", c.Command.Name, what, c.Args().Len(), c.Args().Slice())
}
