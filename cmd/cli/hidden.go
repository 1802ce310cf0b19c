package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/collectors/reader"
	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/study/autops"
	"github.com/inabench/inabench/experiments/study/turns"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/carry"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/supervise"
)

// hidden runs the verbs that this program starts itself with: the agent on a host,
// and the processes of an emulation. They bypass the command line parser, so that
// starting dozens of them costs little.
func hidden(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int, ok bool) {
	if len(args) < 2 {
		return 0, false
	}
	var err error
	switch args[1] {
	case "agent":
		err = agent.Main(context.Background(), stdin, stdout)
	case turns.ControllerVerb:
		err = controller.Main(context.Background(), stdin, stdout)
	case autops.MasterVerb:
		err = pmaster.Main(context.Background(), stdin, stdout)
	case experiments.CellsVerb:
		err = experiments.CellsMain(context.Background(), args[2:])
	case autops.NodeVerb:
		err = node.Main(context.Background(), stdin, stdout)
	case "netns-host":
		err = netns.HostMain(context.Background(), stdin, stdout)
	case collectors.ReaderVerb:
		err = reader.Main(context.Background(), stdin, stdout)
	case carry.Verb:
		err = carry.Main(context.Background(), stdout)
	case supervise.Verb:
		return supervise.Play(context.Background(), stdin, stdout, stderr, exitTestbed), true
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(stderr, "inabench %s: %v\n", args[1], err)
		return exitTestbed, true
	}
	return exitOK, true
}

// emulate makes sure that a command which needs the emulated rack runs inside its
// namespaces. Outside, the whole command is run again inside and its exit code
// returned with done = true.
func emulate(ctx context.Context) (done bool, err error) {
	defer delegateSignals(ctx)()
	inside, code, err := netns.Reexec(ctx)
	if err != nil || inside {
		return false, err
	}
	os.Exit(code)
	return true, nil
}
