package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/supervise"
)

// ErrStalled is wrapped by the error of an agent that is there and does nothing, and of a job
// that gets nothing through the network.
var ErrStalled = errors.New("stalled")

// stalled is a process that does not go on, and what to do about it.
type stalled struct {
	who, what, hint string
	job             string // whose it is; empty: of several
	blame.Part             // its host
}

func (e *stalled) Error() string { return fmt.Sprintf("%s: %v: %s", e.who, ErrStalled, e.what) }
func (e *stalled) Unwrap() error { return ErrStalled }

// Hint is what to do about it.
func (e *stalled) Hint() string { return e.hint }

// Broken is by which code of package results it is known, and the job.
func (e *stalled) Broken() (code, job string) { return results.CodeJobStopped, e.job }

// Silence is why a process of Launch that reports all the time has not for so long, as far as its
// host can say. It is nil as long as Options.Patience. The job is the one that it works for; empty:
// several.
func (tb *Testbed) Silence(ctx context.Context, t *hosts.Talk, job string, quiet time.Duration) error {
	if quiet <= tb.opt.Patience {
		return nil
	}
	host := t.Host()
	e := &stalled{who: t.Place(), what: fmt.Sprintf("no report for %s", human.Elapsed(quiet)), job: job, Part: blame.Part{Kind: blame.KindHost, Node: host}}
	// Somebody else who gives up meanwhile does not know why.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tb.opt.Patience)
	defer cancel()
	found, err := supervise.Ask(ctx, tb.hosts[host], tb.agentPath[host], "list", tb.opt.Run)
	if err != nil {
		if tb.hosts[host].Err() != nil {
			return tb.lost(ctx)
		}
		e.what += fmt.Sprintf(", and the host does not say why: %v", cause(err))
		e.hint = "it may be out of memory or waiting for a disk: look at dmesg and top there"
		return e
	}
	i := slices.IndexFunc(found, func(f supervise.Found) bool { return f.Name == t.Name() && len(f.Processes) > 1 })
	if i < 0 {
		e.what += ", and its process is gone"
		return e
	}
	p := found[i].Processes[1] // the supervisor is the first
	switch {
	case p.Stopped():
		e.what += fmt.Sprintf("; its process %d is stopped", p.PID)
		e.hint = fmt.Sprintf("somebody sent it SIGSTOP, or debugs it: kill -CONT %d on host %s lets it go on", p.PID, host)
	case p.State == "D":
		e.what += fmt.Sprintf("; its process %d waits for a device", p.PID)
		e.hint = fmt.Sprintf("a disk or driver of host %s hangs: look at dmesg there", host)
	default:
		e.what += fmt.Sprintf("; its process %d runs (state %s)", p.PID, p.State)
		e.hint = fmt.Sprintf("is host %s overloaded, or frozen in a cgroup? Look at top there", host)
	}
	return e
}

// Why is why a process of Launch failed with err: what became of the hosts and switches, if
// any of them is lost, and otherwise how its supervisor says that it ended.
func (tb *Testbed) Why(ctx context.Context, err error) error {
	if errors.Is(err, hosts.ErrLost) {
		if lost := tb.lost(ctx); lost != nil {
			return lost
		}
	}
	return supervise.Why(err)
}
