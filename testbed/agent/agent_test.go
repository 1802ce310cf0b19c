package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/stall"
)

// conversation runs Main in this process and returns its stdin, its events and
// what it will return.
func conversation(t *testing.T) (io.WriteCloser, <-chan Event, <-chan error) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Main(t.Context(), inR, outW)
		inR.Close() // ends the read that Main may have left behind
		outW.Close()
		ended <- err
	}()
	events := make(chan Event, 1000)
	go func() {
		defer close(events)
		for in := bufio.NewScanner(outR); in.Scan(); {
			var e Event
			if err := json.Unmarshal(in.Bytes(), &e); err != nil {
				t.Errorf("event %q: %v", in.Text(), err)
			}
			events <- e
		}
	}()
	t.Cleanup(func() { inW.Close() })
	return inW, events, ended
}

func say(t *testing.T, w io.Writer, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	_, err = w.Write(append(b, '\n'))
	must(t, err)
}

// expect returns the next event, which must be of that name; samples are skipped
// unless asked for.
func expect(t *testing.T, events <-chan Event, name string) Event {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e, ok := <-events:
			switch {
			case ok && e.Event == name:
				return e
			case ok && e.Event == "sample":
				continue
			}
			t.Fatalf("event %+v (more: %v), want %q", e, ok, name)
		case <-timeout:
			t.Fatalf("no %q after a minute", name)
		}
	}
}

func wait(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("agent still runs after a minute")
		return nil
	}
}

// loopRing is a ring of n workers on addresses of lo.
func loopRing(n int) Config {
	cfg := Config{Role: "ring", Collective: "ring", Job: 4000, Epoch: 2, Workers: n, Seed: 5, Interval: 20 * time.Millisecond}
	for i := range n {
		cfg.Peers = append(cfg.Peers, fmt.Sprintf("127.0.77.%d", i+1))
	}
	return cfg
}

func TestRing(t *testing.T) {
	cases := []struct {
		name   string
		n      int
		adjust func(*Config)
	}{
		{"two", 2, func(c *Config) { c.Message = 1 << 20 }},
		{"three", 3, func(c *Config) { c.Message = 1<<20 + 4 }},
		{"five, fewer lanes than ranks", 5, func(c *Config) { c.Message = 8 }},
		{"layers", 3, func(c *Config) {
			c.Layers = []Layer{{Bytes: 4000, Compute: 5 * time.Millisecond}, {Bytes: 0}, {Bytes: 100_001, Compute: time.Millisecond}}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			const iterations = 6
			cfg := loopRing(c.n)
			cfg.Iterations = iterations
			c.adjust(&cfg)
			message := cfg.Message
			var compute time.Duration
			for _, l := range cfg.Layers {
				message += l.Bytes
				compute += l.Compute
			}
			message = (message + 3) / 4 * 4
			var ins []io.Writer
			var events []<-chan Event
			for rank := range c.n {
				cfg.Rank = rank
				in, ev, _ := conversation(t)
				say(t, in, cfg)
				expect(t, ev, "ready")
				ins, events = append(ins, in), append(events, ev)
			}
			for _, in := range ins {
				say(t, in, Command{Cmd: "start"})
			}
			for rank, ev := range events {
				expect(t, ev, "started")
				s := expect(t, ev, "done").Stats
				if s.Iterations != iterations || s.Goodput != iterations*message || s.SumsChecked != s.Goodput/4 || s.SumErrors != 0 {
					t.Errorf("rank %d: %+v, want %d iterations of %d bytes", rank, s, iterations, message)
				}
				if s.IterationSum < iterations*compute.Seconds() || s.CommSum <= 0 || s.CommSum > s.IterationSum {
					t.Errorf("rank %d: iterations took %v s, %v s of it communication", rank, s.IterationSum, s.CommSum)
				}
				// Reduce-scatter and all-gather: 2(n-1)/n of the message each way.
				if least := s.Goodput * 2 * int64(c.n-1) / int64(c.n) * 9 / 10; s.BytesSent < least || s.BytesReceived < least {
					t.Errorf("rank %d: %d bytes sent, %d received, want over %d", rank, s.BytesSent, s.BytesReceived, least)
				}
			}
		})
	}
}

// No switch takes a ring for INA, whatever looks only at ports, and no connection that
// goes out may have taken the port on which a ring listens.
func TestRingPorts(t *testing.T) {
	for _, job := range []uint16{1, ina.MaxJob} {
		if port := ina.RingPortBase | job; port&ina.PortMask == ina.PortMatch || port >= 32768 || port-job != ina.RingPortBase {
			t.Errorf("job %d listens on port %d", job, port)
		}
	}
}

// A ring asked to stop does so after the same iteration everywhere, although the
// workers are asked one after the other.
func TestRingStops(t *testing.T) {
	const n = 3
	cfg := loopRing(n)
	cfg.Message = 400_000
	var ins []io.Writer
	var events []<-chan Event
	for rank := range n {
		cfg.Rank = rank
		in, ev, _ := conversation(t)
		say(t, in, cfg)
		expect(t, ev, "ready")
		ins, events = append(ins, in), append(events, ev)
	}
	for _, in := range ins {
		say(t, in, Command{Cmd: "start"})
	}
	for _, ev := range events {
		expect(t, ev, "started")
		for e := range ev {
			if e.Event == "sample" && e.Stats.Iterations > 0 {
				break
			}
		}
	}
	for _, in := range ins {
		say(t, in, Command{Cmd: "stop"})
	}
	var done []int64
	for _, ev := range events {
		s := expect(t, ev, "done").Stats
		if s.SumErrors != 0 || s.SumsChecked != s.Iterations*100_000 {
			t.Errorf("%+v", s)
		}
		done = append(done, s.Iterations)
	}
	if slices.Min(done) != slices.Max(done) {
		t.Errorf("iterations %v differ", done)
	}
}

// The end of stdin ends an agent wherever it is, without a word.
func TestEndOfInput(t *testing.T) {
	for _, state := range []string{"before the config", "ready", "started"} {
		t.Run(state, func(t *testing.T) {
			in, events, ended := conversation(t)
			if state != "before the config" {
				cfg := loopRing(2) // whose other worker never comes
				cfg.Peers[1] = "127.0.77.1"
				say(t, in, cfg)
				expect(t, events, "ready")
			}
			if state == "started" {
				say(t, in, Command{Cmd: "start"})
				say(t, in, Command{Cmd: "ping", ID: 3})
				expect(t, events, "pong")
			}
			in.Close()
			if err := wait(t, ended); err != nil {
				t.Error(err)
			}
			for e := range events {
				t.Errorf("event %+v after the end", e)
			}
		})
	}
}

func TestStopBeforeStart(t *testing.T) {
	in, events, ended := conversation(t)
	say(t, in, loopRing(2))
	expect(t, events, "ready")
	say(t, in, Command{Cmd: "stop"})
	s := expect(t, events, "done").Stats
	if s.Processor = 0; *s != (Stats{}) {
		t.Errorf("stats %+v of an agent that did nothing", s)
	}
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
}

// What is wrong with a config or a command is said in an error event and returned.
func TestErrors(t *testing.T) {
	ring := func(spoil func(*Config)) string {
		cfg := loopRing(2)
		spoil(&cfg)
		b, _ := json.Marshal(cfg)
		return string(b)
	}
	cases := []struct{ name, in, want string }{
		{"no JSON", "hello\n", "invalid character"},
		{"unknown field", `{"role":"ring","haste":3}`, "haste"},
		{"role", ring(func(c *Config) { c.Role = "boss" }), `role "boss"`},
		{"rate", ring(func(c *Config) { c.Rate = -1 }), "rate -1"},
		{"control", ring(func(c *Config) { c.Control = "bbr" }), `control "bbr"`},
		{"layers", ring(func(c *Config) { c.Layers = []Layer{{Bytes: -4}} }), "layer 0"},
		{"peers", ring(func(c *Config) { c.Workers = 3 }), "2 peers for 3 workers"},
		{"peer", ring(func(c *Config) { c.Peers[1] = "h2" }), "address of worker 1"},
		{"rank", ring(func(c *Config) { c.Rank = 2 }), "rank 2 of 2"},
		{"device", ring(func(c *Config) {
			c.Role, c.Device, c.Lanes, c.Window, c.RTO = "worker", "nosuch0", 240, 8, time.Second
		}), "device nosuch0"},
		{"window", ring(func(c *Config) { c.Role, c.Lanes, c.RTO = "worker", 240, time.Second }), "window of 0 packets"},
		{"slots", ring(func(c *Config) { c.Role, c.Slots, c.Aggregators = "worker", 8, 4 }), "8 distinct slots of 4"},
		{"ps peers", ring(func(c *Config) { c.Role, c.Collective, c.Workers = "ps", "ps", 1 }), "2 peers for 1 workers"},
		{"command", ring(func(*Config) {}) + "\n{\"cmd\":\"jump\"}\n", `"jump"`},
		{"command JSON", ring(func(*Config) {}) + "\nstart\n", "command: invalid character"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			err := Main(t.Context(), strings.NewReader(c.in), &out)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			var e Event
			must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &e))
			if e.Event != "error" || e.Error != err.Error() {
				t.Errorf("last event %+v, want the error", e)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	inR, inW := io.Pipe()
	defer inW.Close()
	ended := make(chan error, 1)
	go func() { ended <- Main(ctx, inR, io.Discard) }()
	cfg := loopRing(2)
	cfg.Peers[1] = "127.0.77.1"
	say(t, inW, cfg)
	say(t, inW, Command{Cmd: "start"})
	cancel()
	if err := wait(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// Cutting a message into packets neither loses nor repeats bytes, and no packet is
// ready before the last layer in it.
func TestMessage(t *testing.T) {
	ms := time.Millisecond
	cases := []struct {
		name   string
		cfg    Config
		want   []layer
		values int64 // of gradient in an iteration
	}{
		{"stream", Config{Lanes: 10}, nil, 0},
		{"whole packets", Config{Lanes: 10, Message: 80}, []layer{{2, 0}}, 20},
		{"padded", Config{Lanes: 10, Message: 81}, []layer{{3, 0}}, 21},
		{"tiny", Config{Lanes: 10, Message: 1}, []layer{{1, 0}}, 1},
		{"layers override", Config{Lanes: 10, Message: 1, Layers: []Layer{{80, ms}, {40, ms}}}, []layer{{2, ms}, {1, 2 * ms}}, 30},
		{"shared packet waits", Config{Lanes: 10, Layers: []Layer{{50, ms}, {50, ms}}}, []layer{{1, ms}, {2, 2 * ms}}, 25},
		{"small layers", Config{Lanes: 10, Layers: []Layer{{4, ms}, {4, ms}, {4, ms}}}, []layer{{0, ms}, {0, 2 * ms}, {1, 3 * ms}}, 3},
		{"empty last", Config{Lanes: 10, Layers: []Layer{{50, ms}, {0, ms}}}, []layer{{1, ms}, {1, 2 * ms}}, 13},
		{"compute only", Config{Lanes: 10, Layers: []Layer{{0, ms}}}, []layer{{1, ms}}, 0},
	}
	for _, c := range cases {
		m := newMessage(c.cfg)
		var sum int64
		for _, l := range c.want {
			sum += l.packets
		}
		if !slices.Equal(m.layers, c.want) || m.packets != sum {
			t.Errorf("%s: %d packets in %v, want %v", c.name, m.packets, m.layers, c.want)
		}
		// Padding and the startup are no gradients of iterations; all that a stream sends are its.
		want := 3 * 4 * c.values
		if sum == 0 {
			want = 40 * ina.Startup
		}
		if got := m.gradients(ina.Startup + 3*sum); got != want || m.gradients(0) != 0 {
			t.Errorf("%s: three iterations have %d B of gradient, want %d", c.name, got, want)
		}
	}
}

// TestRingTime: a rank that hears of a stop in its first iteration has time to finish it.
func TestRingTime(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want float64 // s
	}{
		{Config{Workers: 2, Message: 1 << 20, Rate: 8 << 20}, 1},
		{Config{Workers: 4, Message: 1 << 20, LineRate: 8 << 20}, 1.5},
		{Config{Workers: 2, Layers: []Layer{{1 << 19, time.Second}, {1 << 19, time.Second}}, Rate: 8 << 20}, 3},
		{Config{Workers: 2, Message: 1 << 20}, 0},
	} {
		if got := c.cfg.ringTime(); got != c.want {
			t.Errorf("%+v: %v s, want %v", c.cfg, got, c.want)
		}
	}
}

// Stalls that found no room with a sample come with the next one that does.
func TestStallsAreNotLost(t *testing.T) {
	c := &control{events: make(chan Event, 1), stalls: stall.New(200 * time.Millisecond)}
	for i := range 3 {
		at := time.Duration(i) * time.Second
		c.stalls.Woke(at, at+100*time.Millisecond)
		c.report(at+100*time.Millisecond, Stats{}) // nobody reads but the first
	}
	first := <-c.events
	c.report(3*time.Second, Stats{})
	second := <-c.events
	if len(first.Stalls) != 1 || len(second.Stalls) != 2 || second.Stalls[0].Start != time.Second || second.Stalls[1].Late != 100*time.Millisecond {
		t.Errorf("first %+v, then %+v", first.Stalls, second.Stalls)
	}
}

// TestRegionOfWorker: a worker without a PS knows the region that its switches have for it: PSNs wrap at a multiple of that.
func TestRegionOfWorker(t *testing.T) {
	for _, c := range []struct {
		mode, collective string
		want             int
	}{{"synchronous", "ina", 14}, {"statistical", "ina", 0}, {"", "ina", 0}, {"forward", "ps", 0}} {
		wc, err := workerConfig(Config{Job: 9, Workers: 2, Lanes: 4, Window: 7, RTO: time.Second, Mode: c.mode, Collective: c.collective})
		if err != nil || wc.Region != c.want {
			t.Errorf("%+v: region %d, %v", c, wc.Region, err)
		}
	}
}
