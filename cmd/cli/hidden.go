package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/collectors/reader"
	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/agents"
	"github.com/inabench/inabench/testbed/carry"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/supervise"
)

// parts are the processes that this program plays besides those of studies, by hidden verbs.
var parts = map[string]spec.Part{
	agents.Verb:           agent.Main,
	netns.HostVerb:        netns.HostMain,
	collectors.ReaderVerb: reader.Main,
	carry.Verb:            func(ctx context.Context, _ io.Reader, stdout io.Writer) error { return carry.Main(ctx, stdout) },
	carry.EngineVerb:      func(ctx context.Context, _ io.Reader, stdout io.Writer) error { return carry.EngineMain(ctx, stdout) },
}

// hidden runs the verbs that this program starts itself with: the agent on a host,
// and the processes of an emulation. They bypass the command line parser, so that
// starting dozens of them costs little.
func hidden(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	part := parts[args[1]]
	switch {
	case args[1] == supervise.Verb: // which has exit codes of its own
		return supervise.Play(context.Background(), stdin, stdout, stderr, exitTestbed), true
	case args[1] == connectVerb:
		part = func(ctx context.Context, in io.Reader, out io.Writer) error { return connect(ctx, args[2:], in, out) }
	case args[1] == experiments.CellsVerb:
		part = func(ctx context.Context, _ io.Reader, _ io.Writer) error { return experiments.CellsMain(ctx, args[2:]) }
	case part == nil:
		if part = kinds.Part(args[1]); part == nil {
			return 0, false
		}
	}
	if err := part(context.Background(), stdin, stdout); err != nil {
		fmt.Fprintf(stderr, "inabench %s: %v\n", args[1], err)
		return exitTestbed, true
	}
	return exitOK, true
}

// emulate makes sure that a command which needs the emulated rack runs inside its
// namespaces. Outside, the whole command is run again inside, which gets signals too, and
// this process ends with its exit code.
func emulate(ctx context.Context) error {
	if in, ok := ctx.Value(interruptsKey{}).(*interrupts); ok {
		in.delegated.Store(true)
		defer in.delegated.Store(false)
	}
	inside, code, err := netns.Reexec(ctx)
	if err == nil && !inside {
		os.Exit(code)
	}
	return err
}
