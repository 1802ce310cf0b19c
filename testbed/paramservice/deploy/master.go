package deploy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
)

// startTimeout is how long pMaster may take until it listens.
const startTimeout = 20 * time.Second

// master is pMaster's process, beside this program.
type master struct {
	*hosts.Talk
	r       *runner
	port    string
	ended   bool
	closing bool
}

// startMaster starts pMaster and waits until it listens.
func (r *runner) startMaster(ctx context.Context) error {
	at, err := r.Hosts.Reach(r.Workers[0])
	if err != nil {
		return fmt.Errorf("pMaster: %w", err)
	}
	r.Setup.Listen = netip.AddrPortFrom(at, 0).String()
	proc, err := hosts.Beside(r.Master)
	if err != nil {
		return fmt.Errorf("start pMaster: %w", err)
	}
	m := &master{r: r, Talk: hosts.NewTalk("pMaster", "")}
	m.Start(proc)
	r.master = m
	ready := make(chan string, 1)
	origin := 0.0 // of its clock, on the run's
	r.work.Go(func() {
		hosts.Listen(m.Talk, func(e *pmaster.Event) {
			if origin == 0 {
				origin = r.Now().Seconds() - e.T
			}
			if e.T += origin; e.Event == "ready" {
				ready <- e.Address
				return
			}
			r.post(func() error { return m.take(ctx, e) })
		}, func(err error) {
			close(ready)
			r.post(func() error { return m.over(err) })
		})
	})
	r.work.Go(func() { // what it says and nobody understands is not left for its end
		select {
		case <-m.Failed():
			r.post(func() error {
				r.fail(m.Err(), 2*grace)
				return nil
			})
		case <-m.Over():
		}
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

// over is that it has ended.
func (m *master) over(err error) error {
	m.ended = true
	switch said := m.Err(); {
	case err == nil && m.closing:
		return nil
	case said != nil:
		return said
	case err == nil:
		err = errors.New("it has ended")
	}
	return m.Named(err)
}

// say tells it something. That it has ended is told otherwise.
func (m *master) say(v any) error {
	if err := m.Tell(v); err != nil && !m.closing {
		m.r.fail(err, grace)
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

func (m *master) kill() { _ = m.Process().Kill(context.Background()) }

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
		s.start(ctx, node.Config{Aggregator: &node.Aggregator{ID: s.ID, Report: r.Report, Packing: r.Packing}})
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
			r.fail(s.Named(errors.New(e.Why)), grace)
		}
	case "ended":
		if j == nil {
			break
		}
		if j.out.End = at; e.Why != "" {
			r.fail(fmt.Errorf("job %s on hosts %s: pMaster has ended it: %s", j.Name, strings.Join(j.out.On, ", "), e.Why), 2*grace)
		}
	case "refused", "error":
		if slices.ContainsFunc(r.aggs, func(s *server) bool { return s.Talk.Name() == e.Name && s.released }) {
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
