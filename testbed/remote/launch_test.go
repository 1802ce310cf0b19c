package remote

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
)

// starter is a host whose programs are started by a function.
type starter struct {
	hosts.Host
	start func(ctx context.Context) (*hosts.Process, error)
}

func (s starter) Start(ctx context.Context, _ []string, _ io.Writer) (*hosts.Process, error) {
	return s.start(ctx)
}

// TestLaunchInterrupted: who launches a process waits no longer than his context lasts, and has none after that.
func TestLaunchInterrupted(t *testing.T) {
	why := errors.New("interrupted")
	cat := func(ctx context.Context) (*hosts.Process, error) { return hosts.Exec(ctx, "h1", exec.Command("cat")) }
	var late *hosts.Process
	for name, start := range map[string]func(ctx context.Context, interrupt func()) (*hosts.Process, error){
		"before it has started": func(ctx context.Context, interrupt func()) (*hosts.Process, error) {
			interrupt()
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(10 * time.Second):
				return nil, errors.New("it is waited for")
			}
		},
		"when it has": func(ctx context.Context, interrupt func()) (p *hosts.Process, err error) {
			late, err = cat(context.WithoutCancel(ctx))
			interrupt()
			return late, err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		h := starter{start: func(life context.Context) (*hosts.Process, error) { return start(life, func() { cancel(why) }) }}
		tb := &Testbed{opt: Options{Run: "run", Patience: defaultPatience}, hosts: map[string]hosts.Host{"h1": h}, agentPath: map[string]string{"h1": "agent"}}
		if p, err := tb.Launch(ctx, "h1", "verb", struct{}{}); p != nil || !errors.Is(err, why) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if late == nil {
		t.Fatal("it never started")
	}
	select {
	case <-late.Done():
	case <-time.After(10 * time.Second):
		t.Error("a process that nobody has goes on")
		_ = late.Close()
	}
}

// TestLaunchOutlives: a process that was launched goes on after the context with which it was.
func TestLaunchOutlives(t *testing.T) {
	var life context.Context
	h := starter{start: func(ctx context.Context) (*hosts.Process, error) {
		life = ctx
		return hosts.Exec(ctx, "h1", exec.Command("cat"))
	}}
	tb := &Testbed{opt: Options{Run: "run", Patience: defaultPatience}, hosts: map[string]hosts.Host{"h1": h}, agentPath: map[string]string{"h1": "agent"}}
	ctx, cancel := context.WithCancel(t.Context())
	p, err := tb.Launch(ctx, "h1", "verb", struct{}{})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	if life.Err() != nil {
		t.Errorf("it has ended with its launch: %v", context.Cause(life))
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
