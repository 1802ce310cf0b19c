package training

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/stall"
)

// broken is the error of a rank that did not do what it was asked, though it and its host are
// there.
type broken struct {
	code, job string
	error
}

func (e *broken) Unwrap() error { return e.error }

// Broken is by which code of package results it is known, and the job.
func (e *broken) Broken() (code, job string) { return e.code, e.job }

func (p *rank) broken(code, what string) error {
	return &broken{code, p.job(), p.Named(errors.New(what))}
}

// iterations says how far the rank has come.
func (p *rank) iterations() string {
	n := int64(0)
	if last, _ := p.Last(); last != nil {
		n = last.Iterations
	}
	if p.asked > 0 {
		return fmt.Sprintf("it did %d of %d iterations", n, p.asked)
	}
	return fmt.Sprintf("it did %d iterations", n)
}

// odd is an error if an event cannot be: an end that nobody asked for, or a time that has not
// come.
func (p *rank) odd(e *agent.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	early := e.Event == "done" && !p.told
	switch {
	case early && p.asked == 0:
		return p.broken(results.CodeJobEnded, "ended by itself, and was to go on until it is told: "+p.iterations())
	case early && e.Stats != nil && e.Stats.Iterations != p.asked:
		return p.broken(results.CodeIterations, "ended by itself: "+p.iterations())
	case p.Began() > 0:
		if _, why := collectors.Future(p.RunTime(e.T), p.now().Seconds()); why != "" {
			return p.broken(results.CodeCounters, why)
		}
	}
	return nil
}

// standing is the error of a rank that is there and stands still.
func (p *rank) standing(does string) error {
	return p.broken(results.CodeJobStopped, "stands still: "+p.iterations()+", and then "+does)
}

// patience is how long a rank may neither come to the end of an iteration nor send or receive
// anything. Ranks whose others do not answer say so earlier, unless all of them stand still.
func patience(cfg *agent.Config) time.Duration {
	compute := cfg.Compute
	if cfg.Pattern != nil {
		compute += cfg.Pattern.Step
	}
	compute /= cmp.Or(cfg.Speed, 1)
	return 2*cmp.Or(cfg.Timeout, collective.DefaultTimeout) + time.Duration(compute*float64(time.Second))
}

// progress is how much the rank has done; any change is progress. Connections that nothing comes
// through are kept alive by segments without a byte.
func (p *rank) progress() int64 {
	s, _ := p.Last()
	if s == nil {
		return 0
	}
	return s.Iterations + s.BytesSent + s.BytesReceived - collective.TCPOverhead*(s.PacketsSent+s.PacketsReceived)
}

// waited reports whether a rank ended because another did not answer.
func waited(err error) bool { return strings.Contains(err.Error(), collective.ErrSilent.Error()) }

// stood keeps what the rank tells of its stalls.
func (p *rank) stood(spans []stall.Span) {
	onRun := func(t time.Duration) time.Duration {
		return time.Duration(p.RunTime(t.Seconds()) * float64(time.Second))
	}
	for _, s := range spans {
		p.stalls = append(p.stalls, testbed.Stall{
			Start: onRun(s.Start), End: onRun(s.End), Late: s.Late, Held: s.Held, Waited: s.Waited, Job: p.job(), Where: p.Place(),
			What: "it did not run for up to " + human.Quantity(s.Late.Seconds(), "s"),
		})
	}
}
