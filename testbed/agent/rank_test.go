package agent

import (
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// aRank is a rank of a job on lo.
func aRank(workers int, operation string) Config {
	return Config{
		Role: "rank", Job: 4020, Name: "A", Epoch: 3, Workers: workers, Seed: 5, Interval: 20 * time.Millisecond, Device: "lo",
		Timeout: 10 * time.Second, Operation: operation, Message: 200_000, Compute: 4e-3,
	}
}

// readyRanks are agents that have been told of each other and are connected.
func readyRanks(t *testing.T, cfg Config) (ins []io.WriteCloser, events []<-chan Event, ended []<-chan error) {
	t.Helper()
	peers := Command{Cmd: "peers", ID: 9}
	for cfg.Rank = range cfg.Workers {
		in, ev, e := conversation(t)
		say(t, in, cfg)
		peers.Peers = append(peers.Peers, expect(t, ev, "ready").Listen)
		ins, events, ended = append(ins, in), append(events, ev), append(ended, e)
	}
	for _, in := range ins {
		say(t, in, peers)
	}
	for _, ev := range events {
		if e := expect(t, ev, "connected"); e.ID != 9 {
			t.Errorf("%+v", e)
		}
	}
	return ins, events, ended
}

func TestRank(t *testing.T) {
	for _, c := range []struct {
		workers   int
		operation string
	}{{2, "ring"}, {3, "recursive-doubling"}, {5, "halving-doubling"}, {6, "halving-doubling-near"}, {4, "parameter-server"}} {
		t.Run(fmt.Sprintf("%s of %d", c.operation, c.workers), func(t *testing.T) {
			cfg := aRank(c.workers, c.operation)
			cfg.Iterations = 10
			cfg.Speed = 2
			ins, events, ended := readyRanks(t, cfg)
			for _, in := range ins {
				say(t, in, Command{Cmd: "start"})
			}
			for i, ev := range events {
				expect(t, ev, "started")
				s := expect(t, ev, "done").Stats
				r := s.Reducing
				if s.Iterations != 10 || s.SumErrors != 0 || s.SumsChecked != 10*50_000 || s.Goodput != 10*200_000 || s.BytesSent == 0 || s.BytesReceived == 0 {
					t.Errorf("rank %d: %+v", i, s)
				}
				if r.Compute.Sum < 10*2e-3 || math.Abs(r.Compute.Sum+r.Comm.Sum-r.JCT) > 1e-6 || r.Comm.Sum != s.CommSum || math.Abs(r.JCT-s.IterationSum) > 1e-6 || r.CPU <= 0 {
					t.Errorf("rank %d: %+v of %+v", i, r, s)
				}
				if l := r.Late; !(l.Sum > 0) || l.Max > l.Sum {
					t.Errorf("rank %d: late by %+v: nobody wakes up in time every time", i, l)
				}
				if err := wait(t, ended[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Samples have each iteration once.
func TestRankSamples(t *testing.T) {
	cfg := aRank(2, "ring")
	cfg.Iterations = 30
	ins, events, _ := readyRanks(t, cfg)
	for _, in := range ins {
		say(t, in, Command{Cmd: "start"})
	}
	var comm, sum float64
	n, samples := 0, 0
	for e := range events[0] {
		if e.Stats == nil {
			continue
		}
		samples++
		for _, i := range e.Stats.Reducing.Times {
			n++
			comm += i.Comm
		}
		sum = e.Stats.CommSum
	}
	if n != 30 || math.Abs(comm-sum) > 1e-9 || samples < 2 {
		t.Errorf("%d samples of %d iterations of %v s, want 30 of %v s", samples, n, comm, sum)
	}
}

// A background job computes until it is told to stop.
func TestRankAlone(t *testing.T) {
	in, events, ended := conversation(t)
	say(t, in, aRank(1, ""))
	if e := expect(t, events, "ready"); e.Listen != "" {
		t.Errorf("the only rank listens at %s", e.Listen)
	}
	say(t, in, Command{Cmd: "start"})
	expect(t, events, "started")
	expect(t, events, "sample")
	say(t, in, Command{Cmd: "stop"})
	if s := expect(t, events, "done").Stats; s.Iterations < 2 || s.SumsChecked != 0 || s.CommSum != 0 || s.Goodput != 0 || s.Reducing.JCT < 8e-3 {
		t.Errorf("%+v %+v", s, s.Reducing)
	}
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
}

// All ranks end after the same iteration, although they are asked one after the other.
func TestRankStops(t *testing.T) {
	ins, events, ended := readyRanks(t, aRank(5, "halving-doubling"))
	for _, in := range ins {
		say(t, in, Command{Cmd: "start"})
	}
	for _, ev := range events {
		expect(t, ev, "started")
		expect(t, ev, "sample")
	}
	for _, in := range ins {
		say(t, in, Command{Cmd: "stop"})
	}
	var iterations []int64
	for i, ev := range events {
		iterations = append(iterations, expect(t, ev, "done").Stats.Iterations)
		if err := wait(t, ended[i]); err != nil {
			t.Error(err)
		}
	}
	for _, n := range iterations {
		if n != iterations[0] || n == 0 {
			t.Errorf("iterations %v", iterations)
			break
		}
	}
}

// A rank that is asked to stop does not wait for others that never came, and one whose
// controller is gone ends.
func TestRankDoesNotWait(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, in io.WriteCloser){
		"told to stop":  func(t *testing.T, in io.WriteCloser) { say(t, in, Command{Cmd: "stop"}) },
		"end of stdin ": func(t *testing.T, in io.WriteCloser) { in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			in, events, ended := conversation(t)
			say(t, in, aRank(2, "ring"))
			at := expect(t, events, "ready").Listen
			say(t, in, Command{Cmd: "peers", Peers: []string{at, silent(t)}})
			say(t, in, Command{Cmd: "ping", ID: 1})
			expect(t, events, "pong")
			end(t, in)
			if err := wait(t, ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// silent is where somebody listens who says nothing.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// What a rank cannot do is said before anything is opened, and commands that make no sense end it.
func TestRankConfig(t *testing.T) {
	for _, c := range []struct {
		want  string
		spoil func(*Config)
	}{
		{`no such collective: "butterfly"`, func(c *Config) { c.Operation = "butterfly" }},
		{"compute -1 s", func(c *Config) { c.Compute = -1 }},
		{"at -2 times the speed", func(c *Config) { c.Speed = -2 }},
		{"bytes of gradients", func(c *Config) { c.Message = 1 << 40 }},
		{"exchange -1 bit/s", func(c *Config) { c.LocalRate = -1 }},
		{"rank 3 of 3", func(c *Config) { c.Rank = 3 }},
		{"65 ranks", func(c *Config) { c.Workers = 65 }},
		{"no such number of workers: 0", func(c *Config) { c.Workers = 0 }},
		{"job 0", func(c *Config) { c.Job = 0 }},
		{"NIC nowhere0", func(c *Config) { c.Device = "nowhere0" }},
		{"computes nothing", func(c *Config) { c.Workers, c.Compute = 1, 0 }},
	} {
		t.Run(c.want, func(t *testing.T) {
			in, _, ended := conversation(t)
			cfg := aRank(3, "ring")
			c.spoil(&cfg)
			say(t, in, cfg)
			if err := wait(t, ended); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	for _, c := range []struct {
		want     string
		commands []Command
	}{
		{"start: without peers", []Command{{Cmd: "start"}}},
		{"addresses of 1 ranks, want 3", []Command{{Cmd: "peers", Peers: []string{"127.0.0.1:1"}}}},
		{"already told", []Command{{Cmd: "peers", Peers: slices.Repeat([]string{silent(t)}, 3)}, {Cmd: "peers"}}},
		{"tree: for trainers only", []Command{{Cmd: "tree"}}},
	} {
		t.Run(c.want, func(t *testing.T) {
			in, events, ended := conversation(t)
			say(t, in, aRank(3, "ring"))
			expect(t, events, "ready")
			for _, cmd := range c.commands {
				say(t, in, cmd)
			}
			if err := wait(t, ended); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
