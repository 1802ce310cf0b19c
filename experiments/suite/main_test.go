package suite

import (
	"context"
	"os"
	"testing"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/netns/netnstest"
)

// noNamespaces is why the tests do not run inside an emulation's namespaces.
var noNamespaces error

// TestMain plays every part of an emulation. Only TestNights needs one.
func TestMain(m *testing.M) {
	netnstest.Play(netnstest.Parts{"agent": agent.Main})
	if os.Getenv("INABENCH_NIGHTS") != "" {
		noNamespaces = netnstest.Enter()
	}
	os.Exit(m.Run())
}

// here runs items in this process.
type here struct {
	slow *drivers.Slow
}

func (h here) Run(ctx context.Context, r Request) Ended {
	sets := r.Item.Set
	if r.Item.Quick {
		text, err := os.ReadFile(r.Item.Path)
		if err != nil {
			return Ended{Exit: 3, Message: err.Error()}
		}
		quick, err := spec.Quick(r.Item.Path, text)
		if err != nil {
			return Ended{Exit: 3, Message: err.Error()}
		}
		sets = append(quick, sets...)
	}
	spec, err := kinds.Load(r.Item.Path, sets...)
	if err != nil {
		return Ended{Exit: 3, Message: err.Error()}
	}
	rec, _, err := experiments.Run(ctx, spec, experiments.RunOptions{
		Driver: r.Item.Driver, Root: r.Root, Tool: "test", Repeats: r.Item.Repeats, Night: &r.Night, Slow: h.slow,
	})
	if err != nil {
		return Ended{Exit: 6, Message: err.Error()}
	}
	return Ended{Exit: results.ExitCode(rec.Outcome)}
}
