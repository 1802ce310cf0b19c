// Package cli is the program inabench, for its main and for those of programs that add studies, policies or predictors of
// their own; examples/lab is one.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

func init() {
	// The processes of an emulation die with the thread that started them
	// (PR_SET_PDEATHSIG), so the main goroutine keeps the main thread.
	runtime.LockOSThread()
}

// Main is the program: arguments, of which the first is its name, and streams in, exit code out. It starts its own
// executable on hosts and inside namespaces, so that a program does nothing before it but add to what it knows.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if code, ok := hidden(args, stdin, stdout, stderr); ok {
		return code
	}
	diag := newDoor(stderr)
	defer diag.close()
	ctx, stop := interruptible(diag)
	defer stop()
	return mainIn(ctx, args, stdin, stdout, diag)
}

// mainIn is the program but for the verbs that it starts itself with, and for signals.
func mainIn(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer, diag *door) int {
	screen := newDoor(stdout)
	defer screen.close()
	app := newApp(stdin, screen, diag)
	if len(args) > 1 && args[1] == completeVerb {
		complete(app, args[2:], screen)
		return exitOK
	}
	line := arrange(app, args)
	err := screen.unwritten(app.RunContext(ctx, line.args))
	code := exitCode(ctx, err, diag)
	if err != nil && line.output == "json" && !screen.used && !isA[saidError](err) {
		forPrograms(screen)
		_ = writeJSON(screen, failure(err, code)) // stderr has said it already
	}
	return code
}

// interruption is the cause of a context that a signal cancelled.
type interruption struct{ sig syscall.Signal }

func (i interruption) Error() string { return "interrupted by " + unix.SignalName(i.sig) }

// interrupts is what this program does about signals. While it only waits for itself
// inside the namespaces of an emulation, it leaves them to that.
type interrupts struct {
	delegated atomic.Bool
	harmless  atomic.Bool // the command changes nothing, so that nothing is to be undone: see reading
}

type interruptsKey struct{}

// briefly is how long a command that changes nothing may go on after a signal: it may be in the midst of gigabytes.
const briefly = time.Second

// reading is a command that changes nothing: it is left a moment after a signal.
func reading(c *cli.Command) *cli.Command {
	do := c.Action
	c.Action = func(x *cli.Context) error {
		if in, ok := x.Context.Value(interruptsKey{}).(*interrupts); ok {
			in.harmless.Store(true)
		}
		return do(x)
	}
	return c
}

// interruptible returns a context that the first SIGINT or SIGTERM cancels, or the
// end of the terminal (not under nohup), which starts the teardown. A second one
// exits at once: nothing of an emulation can outlive this process, and
// `inabench clean` finishes the job in a lab.
func interruptible(stderr io.Writer) (context.Context, func()) {
	var in interrupts
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), interruptsKey{}, &in))
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(ch, syscall.SIGHUP)
	}
	go func() {
		n := 0
		for sig := range ch {
			cause := interruption{sig.(syscall.Signal)}
			n++
			switch {
			case n == 1:
				cancel(cause)
				if in.harmless.Load() {
					time.AfterFunc(briefly, func() {
						fmt.Fprintf(stderr, "inabench: error: %v\n", cause)
						os.Exit(128 + int(cause.sig))
					})
					continue
				}
				if !in.delegated.Load() {
					fmt.Fprintf(stderr, "inabench: %v: taking everything down; once more leaves at once\n", cause)
				}
			case n > 2 || !in.delegated.Load():
				fmt.Fprintf(stderr, "inabench: %v again: left at once; `inabench clean` finishes what is left in a lab\n", cause)
				os.Exit(128 + int(cause.sig))
			}
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		cancel(nil)
	}
}

// description is what help says besides commands and options.
const description = `Start with: inabench run experiments/quickstart.toml, or inabench init

Results go to stdout, progress and errors to stderr. Exit codes:
  0  every expectation held           6  the testbed failed during the run
  1  an expectation failed            7  inconclusive, or not judged at all
  2  usage                            8  the testbed is in use by someone else
  3  invalid input                    9  cleanup incomplete: it lists the rest
  4  no feasible placement            130, 143, 129  interrupted, after teardown
  5  this machine cannot do that
`

// verbs are commands of one kind.
func verbs(kind string, commands ...*cli.Command) []*cli.Command {
	for _, c := range commands {
		c.Category = kind
	}
	return commands
}

// writers are the commands whose output is for programs or files and is not folded.
var writers = []string{"fmt", "init", "completion", "man", "graph", "import", "fit", "discover", "generate", "exec", "ssh"}

// before runs before every command: it turns folding off where the output is for programs, and checks what was typed.
func before(c *cli.Context) error {
	kept := slices.Contains(writers, c.Command.Name)
	for _, flag := range []string{"output", "format"} {
		kept = kept || c.String(flag) != "" && c.String(flag) != "text" && !c.Bool("list")
	}
	if kept {
		forPrograms(c.App.Writer)
	}
	if err := checkNoArguments(c); err != nil {
		return err
	}
	return checkChoices(c)
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	cli.HelpPrinter = printHelp
	app := &cli.App{
		Name:            "inabench",
		Usage:           "run and judge experiments on testbeds for in-network aggregation",
		Description:     description,
		Version:         version(),
		Reader:          stdin,
		Writer:          stdout,
		ErrWriter:       stderr,
		HideHelpCommand: true,
		ExitErrHandler:  func(*cli.Context, error) {}, // exitCode decides
		OnUsageError:    onUsageError,
		// A value of --set may be a list; see words.
		DisableSliceFlagSeparator: true,
		Commands: slices.Concat(
			verbs("experiments", initCommand(), reading(checkCommand()), fmtCommand(), planCommand(), placeCommand(), policyCommand(), runCommand(), suiteCommand(), calibrateCommand(), sabotageCommand()),
			verbs("results", reading(showCommand()), reading(reportCommand()), reading(compareCommand()), historyCommand(), fidelityCommand(), reproduceCommand(), serveCommand(), baselineCommand(), gcCommand()),
			verbs("reference, traces, inventories", reading(explainCommand()), reading(referenceCommand()), modelsCommand(), traceCommand(), graphCommand(), inventoryCommand()),
			verbs("this machine and labs", doctorCommand(), preflightCommand(), sshCommand(), lockCommand(), unlockCommand(), whoCommand(), extendCommand(), cleanCommand()),
			verbs("an emulation that stays up", upCommand(), reading(psCommand()), execCommand(), downCommand()),
			verbs("this program", completionCommand(), manCommand(), versionCommand()),
		),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c.App.Name, c.App.Commands, c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, c := range app.Commands {
		for _, c := range append(c.Subcommands, c) {
			c.OnUsageError, c.HideHelpCommand, c.Before = onUsageError, true, before
		}
	}
	return app
}
