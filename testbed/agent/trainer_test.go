package agent

import (
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/udp"
)

// loopTrainers is a training job of n ranks on addresses of lo.
func loopTrainers(n int) Config {
	cfg := Config{
		Role: "trainer", Job: 4010, Epoch: 2, Workers: n, Seed: 5, Interval: 20 * time.Millisecond, Device: "lo",
		Lanes: 240, RTO: 20 * time.Millisecond, Timeout: 10 * time.Second,
		Pattern: &Pattern{Step: 8e-3, Ops: []Op{{2e-3, 40_000}, {4e-3, 200_000}, {6e-3, 4}}},
		Speed:   2,
	}
	for i := range n {
		cfg.Peers = append(cfg.Peers, fmt.Sprintf("127.0.79.%d", i+1))
	}
	return cfg
}

// startTrainers starts the ranks of a job, and returns when all of them train.
func startTrainers(t *testing.T, cfg Config) (ins []io.WriteCloser, events []<-chan Event, ended []<-chan error) {
	t.Helper()
	for cfg.Rank = range cfg.Workers {
		in, ev, e := conversation(t)
		say(t, in, cfg)
		expect(t, ev, "ready")
		ins, events, ended = append(ins, in), append(events, ev), append(ended, e)
	}
	for _, in := range ins {
		say(t, in, Command{Cmd: "start"})
	}
	for _, ev := range events {
		expect(t, ev, "started")
	}
	return ins, events, ended
}

func TestTrainer(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d ranks", n), func(t *testing.T) {
			cfg := loopTrainers(n)
			cfg.Steps = 20
			_, events, _ := startTrainers(t, cfg)
			for rank, ev := range events {
				p := expect(t, ev, "pattern").Pattern
				if len(p.Ops) != 3 {
					t.Fatalf("rank %d: collected %+v", rank, p)
				}
				far := math.Abs(p.Step/4e-3 - 1)
				for i, o := range p.Ops {
					want := cfg.Pattern.Ops[i]
					if o.Bytes != want.Bytes {
						t.Errorf("rank %d: all-reduce %d has %d bytes, want %d", rank, i, o.Bytes, want.Bytes)
					}
					far = max(far, math.Abs(o.Start-want.Start/2)/4e-3)
				}
				t.Logf("rank %d: collected %+v: times are up to %.1f %% of a step from those given", rank, *p, 100*far)
				s := expect(t, ev, "done").Stats
				tr := s.Training
				if tr.Steps != 20 || tr.Ops != 60 || tr.INA != 0 || tr.Refused != 0 || tr.Wrong != 0 {
					t.Errorf("rank %d: %+v", rank, tr)
				}
				if want := int64(20 * (10_000 + 50_000 + 1)); n > 1 && tr.Checked != want {
					t.Errorf("rank %d: %d values checked, want %d", rank, tr.Checked, want)
				}
				if tr.JCT < 20*4e-3 || math.Abs(tr.JCT-tr.Step.Sum) > 1e-6 {
					t.Errorf("rank %d: %v s, in steps %v s", rank, tr.JCT, tr.Step.Sum)
				}
				if l := tr.Late; !(l.Sum > 0) || l.Max > l.Sum {
					t.Errorf("rank %d: late by %+v: nobody wakes up in time every time", rank, l)
				}
				latency, bandwidth, ok := tr.Ring.Fit()
				t.Logf("rank %d: %.3f ms a step; %.0f us + bytes/%.0f MB/s (%v); launch %.1f us, decision %.1f us; %.2f ms of CPU a step", rank,
					1e3*tr.JCT/20, 1e6*latency, bandwidth/1e6, ok, 1e6*tr.Launch.Sum/60, 1e6*tr.Decision.Sum/60, 1e3*tr.CPU/20)
			}
		})
	}
}

// All ranks of a job end after the same step, although they are asked one after the other.
func TestTrainerStops(t *testing.T) {
	for _, n := range []int{1, 2} {
		ins, events, ended := startTrainers(t, loopTrainers(n))
		for _, ev := range events {
			for e := range ev {
				if e.Event == "sample" && e.Stats.Training.Steps > 2 {
					break
				}
			}
		}
		for _, in := range ins {
			say(t, in, Command{Cmd: "stop"})
		}
		var steps []int64
		for i, ev := range events {
			for e := range ev {
				if e.Event == "done" {
					steps = append(steps, e.Stats.Training.Steps)
				}
			}
			if err := wait(t, ended[i]); err != nil {
				t.Error(err)
			}
		}
		if len(steps) != n || steps[0] != steps[n-1] || steps[0] < 3 {
			t.Errorf("steps %v", steps)
		}
	}
}

// A rank that is asked to stop does not wait for others that never came.
func TestTrainerStopsAlone(t *testing.T) {
	in, events, ended := conversation(t)
	cfg := loopTrainers(2)
	cfg.Peers[1] = cfg.Peers[0] // which accepts, and never says who it is
	say(t, in, cfg)
	expect(t, events, "ready")
	say(t, in, Command{Cmd: "start"})
	say(t, in, Command{Cmd: "stop"})
	if s := expect(t, events, "done").Stats; s.Training.Steps != 0 {
		t.Errorf("%+v", s.Training)
	}
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
}

// What a trainer cannot do is said before anything is opened.
func TestTrainerConfig(t *testing.T) {
	for _, c := range []struct {
		want  string
		spoil func(*Config)
	}{
		{"needs a pattern", func(c *Config) { c.Pattern = nil }},
		{"all-reduce 1 of a step begins", func(c *Config) { c.Pattern.Ops[1].Start = 1e-3 }},
		{"all-reduce 2 of a step has -4 bytes", func(c *Config) { c.Pattern.Ops[2].Bytes = -4 }},
		{"steps of -1 s", func(c *Config) { c.Pattern.Step = -1 }},
		{"at -2 times the speed", func(c *Config) { c.Speed = -2 }},
		{`sharing "maybe"`, func(c *Config) { c.Sharing = "maybe" }},
		{"2 peers for 3 workers", func(c *Config) { c.Workers = 3 }},
		{"241 lanes", func(c *Config) { c.Lanes = 241 }},
		{"resend timeout", func(c *Config) { c.RTO = 0 }},
		{"window of 0", func(c *Config) { c.Tree = &collective.Tree{Epoch: 1} }},
	} {
		cfg := loopTrainers(2)
		c.spoil(&cfg)
		clock := udp.NewClock()
		if k, err := newTrainer(cfg, &clock); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", c.want, err)
			if err == nil {
				k.close()
			}
		}
	}
}

// Trees come and go while a job trains: ranks agree, although they are told one after the
// other, and nobody waits.
func TestTrainerTreesInRack(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	cfg := loopTrainers(3)
	cfg.Device, cfg.Peers = "eth0", nil
	r := newRack(t)
	var ranks []*process
	for rank := range cfg.Workers {
		p, addr := r.host(fmt.Sprintf("rank %d", rank))
		ranks, cfg.Peers = append(ranks, p), append(cfg.Peers, addr)
	}
	for rank, p := range ranks {
		cfg.Rank = rank
		p.write(cfg)
		p.until("ready")
	}
	for _, p := range ranks {
		p.write(Command{Cmd: "start"})
	}
	for _, p := range ranks {
		p.until("started")
	}
	id := int64(0)
	tell := func(tree collective.Tree, answer string) {
		t.Helper()
		id++
		for _, p := range ranks {
			p.until("sample") // the ranks before train on meanwhile
			p.write(Command{Cmd: "tree", ID: id, Tree: tree})
		}
		for _, p := range ranks {
			if e := p.until(answer); e.ID != id {
				t.Fatalf("%s: %+v, want the answer to %d", p.name, e, id)
			}
		}
	}
	tell(collective.Tree{}, "released") // there is none
	tell(collective.Tree{Epoch: 7, Window: 8}, "acquired")
	tell(collective.Tree{Epoch: 8, Window: 16}, "acquired")
	tell(collective.Tree{}, "released")
	tell(collective.Tree{Epoch: 8, Window: 16}, "refused") // again
	tell(collective.Tree{Epoch: 9}, "refused")             // without a window
	tell(collective.Tree{Epoch: 9, Window: 4}, "acquired")
	for _, p := range ranks {
		p.write(Command{Cmd: "stop"})
	}
	for _, p := range ranks {
		if tr := p.until("done").Stats.Training; tr.Wrong != 0 || tr.Ops != 3*tr.Steps {
			t.Errorf("%s: %+v", p.name, tr)
		}
	}
}

// A rank that dies takes the job with it, and all say so.
func TestTrainerDies(t *testing.T) {
	ins, events, ended := startTrainers(t, loopTrainers(3))
	ins[1].Close()
	for rank := range 3 {
		go func() {
			for range events[rank] {
			}
		}()
		err := wait(t, ended[rank])
		if (err == nil) != (rank == 1) {
			t.Errorf("rank %d: error %v", rank, err)
		}
		t.Logf("rank %d: %v", rank, err)
	}
}
