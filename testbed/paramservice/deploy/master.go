package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
)

// startTimeout is how long pMaster may take until it listens.
const startTimeout = 20 * time.Second

// master is pMaster's process, beside this program.
type master struct {
	r       *runner
	cmd     *exec.Cmd
	port    string
	ended   bool
	closing bool

	mu    sync.Mutex // of stdin
	stdin io.WriteCloser
}

// startMaster starts pMaster and waits until it listens.
func (r *runner) startMaster(ctx context.Context) error {
	at, err := r.Hosts.Reach(r.Workers[0])
	if err != nil {
		return fmt.Errorf("pMaster: %w", err)
	}
	r.Setup.Listen = netip.AddrPortFrom(at, 0).String()
	m := &master{r: r, cmd: exec.Command(r.Master[0], r.Master[1:]...)}
	m.cmd.WaitDelay = time.Second
	var stderr strings.Builder
	m.cmd.Stderr = &stderr
	stdout, err := m.cmd.StdoutPipe()
	if err == nil {
		m.stdin, err = m.cmd.StdinPipe()
	}
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start pMaster: %w", err)
	}
	r.master = m
	ready := make(chan string, 1)
	r.work.Go(func() {
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, maxLine)
		origin := 0.0 // of its clock, on the run's
		for lines.Scan() {
			now := r.Now().Seconds()
			e := &pmaster.Event{}
			if err := json.Unmarshal(lines.Bytes(), e); err != nil {
				e = &pmaster.Event{Event: "error", T: now - origin, Why: fmt.Sprintf("not an event: %.80q", lines.Text())}
			}
			if origin == 0 {
				origin = now - e.T
			}
			if e.T += origin; e.Event == "ready" {
				ready <- e.Address
				continue
			}
			r.post(func() error { return m.take(ctx, e) })
		}
		_, _ = io.Copy(io.Discard, stdout)
		err := m.cmd.Wait()
		if text := strings.TrimSpace(stderr.String()); text != "" && err != nil {
			err = fmt.Errorf("%w: %s", err, text)
		}
		close(ready)
		r.post(func() error {
			m.ended = true
			switch {
			case m.closing && err == nil:
				return nil
			case err == nil:
				err = errors.New("it has ended")
			}
			return fmt.Errorf("pMaster: %w", err)
		})
	})
	if err := m.say(r.Setup); err != nil {
		return err
	}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	for {
		select {
		case address := <-ready:
			if address == "" {
				ready = nil // why is about to be told
				continue
			}
			_, m.port, err = net.SplitHostPort(address)
			return err
		case f := <-r.news:
			if err := f(); err != nil {
				return err
			}
		case <-timeout.C:
			return fmt.Errorf("pMaster does not listen within %v", startTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// say writes a line to it. That it has ended is told otherwise.
func (m *master) say(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.stdin.Write(append(line, '\n')); err != nil && !m.closing {
		m.r.fail(fmt.Errorf("pMaster: %w", err), grace)
	}
	return nil
}

// stop ends it, and with it all Aggregators, if there is time for that.
func (m *master) stop(well bool) {
	m.closing = true
	if well {
		_ = m.say(pmaster.Command{Cmd: "stop"})
		return
	}
	m.kill()
}

func (m *master) kill() { _ = m.cmd.Process.Kill() }

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// take does what an event asks for.
func (m *master) take(ctx context.Context, e *pmaster.Event) error {
	r := m.r
	r.events = append(r.events, *e)
	at := seconds(e.T)
	j := r.find(e)
	switch e.Event {
	case "registered":
		if j == nil {
			return fmt.Errorf("pMaster has registered job %q, which nobody wanted", e.Name)
		}
		j.ID = e.Job
		return j.train(ctx)
	case "profiled":
		j.out.Profiled, j.out.Loss = at, max(j.out.Loss, e.Loss)
	case "verdict":
		j.out.Loss = max(j.out.Loss, e.Loss)
	case "allocate":
		s := r.newServer(*e.Aggregator, nil)
		s.From = at
		s.start(ctx, node.Config{Aggregator: &node.Aggregator{ID: s.ID, Report: r.Report}})
	case "released":
		if s := r.server(*e.Aggregator); s != nil {
			s.gone(at)
		}
	case "stop": // it has been released, or it is lost, and goes on
		if s := r.server(*e.Aggregator); s != nil {
			s.process.stop()
		}
	case "lost":
		if s := r.server(*e.Aggregator); s != nil {
			r.fail(s.named(errors.New(e.Why)), grace)
		}
	case "ended":
		if j == nil {
			break
		}
		if j.out.End = at; e.Why != "" {
			r.fail(fmt.Errorf("job %s on hosts %s: pMaster has ended it: %s", j.Name, strings.Join(j.out.On, ", "), e.Why), 2*grace)
		}
	case "refused", "error":
		if slices.ContainsFunc(r.aggs, func(s *server) bool { return s.name == e.Name && s.released }) {
			break // it has come when it was not wanted any more
		}
		name := e.Name
		if j != nil {
			name = "job " + j.Name
		}
		r.fail(fmt.Errorf("pMaster: %s", strings.TrimPrefix(name+": "+e.Why, ": ")), 2*grace)
	}
	return nil
}

// find is the job that an event is about; nil if there is none.
func (r *runner) find(e *pmaster.Event) *job {
	for _, j := range r.jobs {
		if j.asked && (e.Job != 0 && j.ID == e.Job || e.Event == "registered" && j.Name == e.Name) {
			return j
		}
	}
	return nil
}

// server is an Aggregator by its id.
func (r *runner) server(id int32) *server {
	for _, s := range r.aggs {
		if s.ID == id {
			return s
		}
	}
	return nil
}
