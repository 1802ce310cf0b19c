package agent

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/sabotage"
	"github.com/inabench/inabench/testbed/udp"
)

// TestFaultsActInRack gives the first worker of a job, or its PS, every fault of an agent in turn,
// and looks for what the others see of it.
func TestFaultsActInRack(t *testing.T) {
	proof.Only(t, "every fault for some seconds")
	if !inNamespace(t) {
		return
	}
	for _, f := range sabotage.Catalogue {
		if f.At != sabotage.Worker && f.At != sabotage.PS && f.At != sabotage.Clock {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			r := newRack(t)
			cfg := stream
			cfg.Workers, cfg.Rate = 2, 8e6 // some 1,000 packets a second
			act := &sabotage.Act{Fault: f.Name, After: 200 * time.Millisecond, Every: min(f.Every, 10)}
			if f.At == sabotage.PS {
				cfg.Sabotage = act
			}
			workers, ps := r.job(cfg, func(rank int, c *Config) {
				if c.Sabotage = nil; f.At != sabotage.PS && rank == 0 {
					c.Sabotage = act
				}
			})
			bad, other := workers[0], workers[1]
			if f.At == sabotage.PS {
				bad = ps
			}
			last, ended := seen(bad, func(e Event) bool {
				switch f.Name {
				case "suspend": // it has been stopped, and goes on
					return e.Stats.Sabotaged == 1 && bad.gap() > time.Second
				case "stall":
					return e.Stats.Sabotaged == 1
				}
				return e.Stats.Sabotaged > 0
			})
			if last.Stats == nil || last.Stats.Sabotaged == 0 {
				t.Fatalf("it never acted: %+v", last)
			}
			switch f.Name {
			case "crash":
				if !ended {
					_, ended = seen(bad, func(Event) bool { return false })
				}
				if !ended {
					t.Error("it is alive")
				}
			case "wrong-gradient", "ps-wrong-sums":
				if e, _ := seen(other, func(e Event) bool { return e.Stats.SumErrors > 0 }); e.Stats == nil || e.Stats.SumErrors == 0 {
					t.Error("nobody found a wrong sum")
				}
			case "stop":
				if last.Event != "done" {
					t.Errorf("it is not done: %+v", last)
				}
			case "hang", "ps-hangs", "restart":
				at := int64(0)
				if e, ok := seen(other, func(e Event) bool {
					still := e.Stats.PSNs == at
					at = e.Stats.PSNs
					return still
				}); ok || e.Stats == nil {
					t.Errorf("the other worker ended: %+v", e)
				}
			case "ps-drops":
				if e, _ := seen(other, func(e Event) bool { return e.Stats.Resends > 0 }); e.Stats == nil {
					t.Error("nobody sent anything again")
				}
			}
		})
	}
}

// seen reads the agent's reports until one is what is looked for, or the agent has ended.
func seen(p *process, is func(Event) bool) (last Event, ended bool) {
	timeout := time.After(time.Minute)
	for {
		select {
		case e, ok := <-p.events:
			if !ok {
				return last, true
			}
			if p.heard, p.before = e.T, p.heard; e.Stats == nil {
				continue
			}
			if last = e; is(e) {
				return last, false
			}
		case <-timeout:
			p.t.Errorf("%s: not seen in a minute; last: %+v", p.name, last.Stats)
			return last, false
		}
	}
}

// gap is how long before its newest event the agent said something.
func (p *process) gap() time.Duration { return seconds(p.heard - p.before) }

// TestFaultyReports: a clock that jumps, and reports that come late.
func TestFaultyReports(t *testing.T) {
	at := func(s float64, stats bool) Event {
		e := Event{Event: "sample", T: s}
		if stats {
			e.Stats = &Stats{PSNs: int64(s)}
		}
		return e
	}
	saboteurOf := func(fault string) *saboteur {
		s, _, err := newSaboteur(Config{Sabotage: &sabotage.Act{Fault: fault, After: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		s.begins(10 * time.Second)
		return s
	}

	s := saboteurOf("jump-clock")
	if e := s.tell(at(10.9, true)); e.T != 10.9 || e.Stats.Sabotaged != 0 {
		t.Errorf("before it begins: %+v", e)
	}
	if e := s.tell(at(11, true)); e.T != 13 {
		t.Errorf("after: %+v", e)
	}
	if e := s.tell(at(11.1, true)); e.T != 13.1 || e.Stats.Sabotaged != 1 {
		t.Errorf("and again: %+v", e)
	}

	s = saboteurOf("report-late")
	if got := s.delay(at(10.5, true)); len(got) != 1 {
		t.Errorf("before it begins: %+v", got)
	}
	var got []Event
	for _, t := range []float64{11, 12, 12.5, 13, 14.5} {
		got = append(got, s.delay(at(t, true))...)
	}
	if len(got) != 3 || got[0].T != 11 || got[1].T != 12 || got[2].T != 12.5 {
		t.Errorf("came late: %+v", got)
	}
	if got := s.rest(); len(got) != 2 || got[0].T != 13 || len(s.rest()) != 0 {
		t.Errorf("the rest: %+v", got)
	}

	var none *saboteur
	e := at(11, true)
	if got := none.tell(e); got.T != e.T || got.Stats != e.Stats || len(none.delay(e)) != 1 || none.rest() != nil {
		t.Error("without a fault something is different")
	}
}

// TestFaultyConfig: half of the iterations, and faults that are not of an agent.
func TestFaultyConfig(t *testing.T) {
	s, cfg, err := newSaboteur(Config{Iterations: 9, Steps: 4, Sabotage: &sabotage.Act{Fault: "end-early"}})
	if err != nil || s.acted.Load() != 1 || cfg.Iterations != 5 || cfg.Steps != 2 {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, fault := range []string{"flip-sums", "slow-up", "no-such"} {
		if _, _, err := newSaboteur(Config{Sabotage: &sabotage.Act{Fault: fault}}); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", fault, err)
		}
	}
	clock := udp.NewClock()
	c := &control{clock: &clock}
	if leave, err := c.sabotaged(t.Context(), nil); leave || err != nil {
		t.Error("an agent without a fault leaves")
	}
}

// TestWrongGradients: a rank whose collective sends its gradients makes some wrong, too, and
// all of its job find the sums of these.
func TestWrongGradients(t *testing.T) {
	ring := loopRing(3)
	ring.Message, ring.Iterations = 40_000, 20
	trainer := loopTrainers(3)
	trainer.Steps = 20
	rank := aRank(3, "ring")
	rank.Iterations = 20
	for _, cfg := range []Config{ring, trainer, rank} {
		t.Run(cfg.Role, func(t *testing.T) {
			var ins []io.Writer
			var events []<-chan Event
			peers := Command{Cmd: "peers", ID: 1}
			for cfg.Rank = range cfg.Workers {
				if cfg.Sabotage = nil; cfg.Rank == 1 {
					cfg.Sabotage = &sabotage.Act{Fault: "wrong-gradient", Every: 10}
				}
				in, ev, _ := conversation(t)
				say(t, in, cfg)
				peers.Peers = append(peers.Peers, expect(t, ev, "ready").Listen)
				ins, events = append(ins, in), append(events, ev)
			}
			for _, in := range ins {
				if cfg.Role == "rank" {
					say(t, in, peers)
				}
				say(t, in, Command{Cmd: "start"})
			}
			for i, ev := range events {
				var s *Stats
				for e := range ev {
					if s = e.Stats; e.Event == "done" {
						break
					}
				}
				if s == nil {
					t.Fatalf("rank %d is not done", i)
				}
				if s.SumErrors == 0 || s.SumErrors > s.SumsChecked/10 {
					t.Errorf("rank %d: %d of %d sums are wrong", i, s.SumErrors, s.SumsChecked)
				}
				if (s.Sabotaged > 0) != (i == 1) {
					t.Errorf("rank %d: its fault acted %d times", i, s.Sabotaged)
				}
			}
		})
	}
}
