package deploy

import (
	"context"
	"errors"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/paramservice/background"
	"github.com/inabench/inabench/testbed/paramservice/control"
)

// Background is other traffic on the way out of one Aggregator's NIC: that of the one with most bytes when it begins
// (appendix D). It ends with the Aggregator.
type Background struct {
	Verb  string        // of this program on a host, under which it is background.Main
	Flows int           // from 1 to background.MaxFlows
	From  time.Duration // after the first job; later where no Aggregator has reported a sum by then
	To    string        // the host that flows go to, with nothing of the service on it
}

// again is how long who finds no Aggregator to disturb waits until it looks again.
const again = 100 * time.Millisecond

// disturbance is the background flows of a run.
type disturbance struct {
	r       *runner
	sink    *process
	address string   // of the sink; empty: it is not ready
	on      *server  // whose NIC the flows leave; nil: there are none yet
	source  *process // of the flows
}

// listen starts the sink.
func (d *disturbance) listen(ctx context.Context) {
	d.sink = d.start(ctx, "sink of background flows", d.r.Background.To, background.Config{}, func(e *background.Event, _ time.Duration) {
		if e.Event == "ready" {
			d.address = e.Address
		}
	})
}

// disturb starts the flows as soon as there is somewhere for them to come from, and to go to.
func (d *disturbance) disturb(ctx context.Context) error {
	s := d.r.most()
	if s == nil || d.address == "" {
		d.r.later(again, func() error { return d.disturb(ctx) })
		return nil
	}
	d.on = s
	d.source = d.start(ctx, "source of background flows", s.Host, background.Config{To: d.address, Flows: d.r.Background.Flows}, func(e *background.Event, at time.Duration) {
		if e.Event == "started" {
			s.Disturbed = at
		}
	})
	return nil
}

// start starts one end of the flows on a host. It is to run until it is stopped.
func (d *disturbance) start(ctx context.Context, name, host string, cfg background.Config, take func(e *background.Event, at time.Duration)) *process {
	p := &process{r: d.r, Talk: hosts.NewTalk(name, host)}
	begin(ctx, p, func() (_ *hosts.Process, err error) {
		if cfg.Local, err = p.local(); err != nil {
			return nil, err
		}
		return d.r.Hosts.Launch(ctx, host, d.r.Background.Verb, cfg)
	}, func(e *background.Event) error {
		if e.Event != "error" {
			return nil
		}
		return errors.New(e.Why)
	}, func(e *background.Event, at time.Duration) error {
		take(e, at)
		return nil
	}, func() error {
		if p.closing || p.Err() != nil {
			return nil
		}
		return p.Named(errors.New("it has ended"))
	})
	return p
}

// stop ends all flows. It does not wait.
func (d *disturbance) stop() {
	d.sink.stop()
	if d.source != nil {
		d.source.stop()
	}
}

// most is the Aggregator with most bytes of the jobs that are there, by what Aggregators have last reported; nil: none
// has any.
func (r *runner) most() (most *server) {
	bytes := map[*server]int64{}
	for _, j := range r.jobs {
		for t, spec := range j.Tensors {
			if s := r.holds[control.Key{Job: j.ID, Tensor: uint32(t)}]; s != nil && !s.released && j.out.End == 0 {
				bytes[s] += spec.Bytes() * int64(j.Job.Workers)
			}
		}
	}
	for _, s := range r.aggs {
		if bytes[s] > 0 && (most == nil || bytes[s] > bytes[most]) {
			most = s
		}
	}
	return most
}
