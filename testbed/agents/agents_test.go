package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts"
)

// player is an agent of a test, which says what it is told to.
type player struct {
	says io.WriteCloser
	over chan struct{}
}

func (p *player) Done() <-chan struct{}      { return p.over }
func (p *player) Wait() error                { return nil }
func (p *player) Kill(context.Context) error { return nil }
func (p *player) Close() error               { return p.says.Close() }

// play starts an agent that answers commands as does tells, and is to be closed.
func play(t *testing.T, a *Agent, does func(cmd agent.Command, say func(agent.Event))) *player {
	t.Helper()
	commands, stdin := io.Pipe()
	stdout, says := io.Pipe()
	p := &player{says: says, over: make(chan struct{})}
	a.Start(&hosts.Process{Stdin: stdin, Stdout: stdout, Running: p})
	go func() {
		for lines := bufio.NewScanner(commands); lines.Scan(); {
			var cmd agent.Command
			if err := json.Unmarshal(lines.Bytes(), &cmd); err != nil {
				t.Error(err)
			}
			does(cmd, func(e agent.Event) {
				line, _ := json.Marshal(e)
				_, _ = says.Write(append(line, '\n'))
			})
		}
	}()
	ended := make(chan struct{})
	go func() {
		a.Listen(func(error) {})
		close(ended)
	}()
	t.Cleanup(func() {
		stdin.Close()
		says.Close()
		<-ended
	})
	return p
}

// Answers find who asked, in whatever order they come, and are no news to anybody else; what comes
// after its time is dropped.
func TestAsk(t *testing.T) {
	var heard []string
	a := New("worker A/0", "h1", func(e *agent.Event) { heard = append(heard, e.Event) })
	var first agent.Command
	asked := make(chan struct{})
	p := play(t, a, func(cmd agent.Command, say func(agent.Event)) {
		switch {
		case cmd.Cmd == "late": // is answered with the next, after it
			first = cmd
			close(asked)
		case first.ID != 0:
			say(agent.Event{Event: "held", ID: cmd.ID, PSN: 2})
			say(agent.Event{Event: "held", ID: first.ID, PSN: 1})
			say(agent.Event{Event: "ready", Listen: "x"})
			say(agent.Event{Event: "started", T: 3})
			say(agent.Event{Event: "started", T: 4})
			say(agent.Event{Event: "sample", T: 5, Stats: &agent.Stats{PacketsSent: 7}})
		}
	})
	late := make(chan agent.Event)
	go func() {
		e, err := a.Ask(t.Context(), agent.Command{Cmd: "late"})
		if err != nil {
			t.Error(err)
		}
		late <- e
	}()
	<-asked // the other one is to be the second
	if e, err := a.Ask(t.Context(), agent.Command{Cmd: "hold"}); err != nil || e.PSN != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if e := <-late; e.PSN != 1 {
		t.Errorf("%+v", e)
	}
	if err := errors.Join(a.Await(t.Context(), "ready", a.Ready()), a.Await(t.Context(), "started", a.Started())); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("too late"))
	defer cancel()
	first = agent.Command{}
	if _, err := a.Ask(ctx, agent.Command{Cmd: "never"}); err == nil || err.Error() != "worker A/0 on host h1: waiting for its answer to never: too late" {
		t.Errorf("%v", err)
	}
	p.says.Close()
	<-a.Over()
	if _, err := a.Ask(t.Context(), agent.Command{Cmd: "hold"}); err == nil || !strings.Contains(err.Error(), "worker A/0 on host h1: ended before it was able to answer") {
		t.Errorf("%v", err)
	}
	if s, at := a.Last(); fmt.Sprint(heard) != "[ready started started sample]" || a.Began() != 3 || s == nil || s.PacketsSent != 7 || at != 5 || a.Done() {
		t.Errorf("%q, began %v, %+v at %v", heard, a.Began(), s, at)
	}
	if len(a.answers) != 0 {
		t.Errorf("%d answers are still waited for", len(a.answers))
	}
}

// An agent is quiet from its start on, and not when it has ended, or was excused.
func TestQuiet(t *testing.T) {
	a := New("rank A/0", "h1", nil)
	now := time.Now()
	if a.Quiet(now.Add(time.Hour)) != 0 {
		t.Error("it has not started")
	}
	a.Take(&agent.Event{Event: "started", T: 1})
	if q := a.Quiet(now.Add(time.Hour)); q < 59*time.Minute {
		t.Errorf("quiet for %v", q)
	}
	a.Excuse(now.Add(time.Hour))
	if q := a.Quiet(now.Add(time.Hour)); q != 0 {
		t.Errorf("excused, and quiet for %v", q)
	}
	a.Take(&agent.Event{Event: "done", T: 2})
	if q := a.Quiet(now.Add(2 * time.Hour)); q != 0 || !a.Done() {
		t.Errorf("it has ended, and is quiet for %v", q)
	}
	a.Take(&agent.Event{Event: "sample", T: 1e300})
	if err := a.Err(); err == nil || !strings.Contains(err.Error(), "not an event") {
		t.Errorf("a clock of the year 1e292: %v", err)
	}
}
