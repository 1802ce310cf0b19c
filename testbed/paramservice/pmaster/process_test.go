package pmaster_test

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/paramservice/servicetest"
)

func TestMain(m *testing.M) {
	netnstest.Play(netnstest.Parts{"pmaster": pmaster.Main, "node": node.Main})
	_ = flag.Set("test.parallel", "6") // unless the command line says something else: they wait most of the time
	os.Exit(m.Run())
}

// child is a process of this test binary.
type child struct {
	*servicetest.Process
	done chan struct{}
}

func spawn(t testing.TB, part string) *child {
	t.Helper()
	return &child{servicetest.Start(t, part), make(chan struct{})}
}

// kill is kill -9.
func (c *child) kill() { _ = c.Cmd.Process.Kill() }

// host is what starts processes: pMaster, and Aggregators when it asks for them.
type host struct {
	*farm // its events and waiting; it has no pMaster of its own
	setup pmaster.Setup

	mu     sync.Mutex
	master *child
	aggs   map[int32]*child
}

func newHost(t *testing.T) *host {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	f := &farm{t: t, ctx: ctx, changed: make(chan struct{}), running: map[int32]*running{}}
	h := &host{farm: f, aggs: map[int32]*child{}}
	plan := paramservice.DefaultMaster()
	plan.LossLimit, plan.LowPerf = 0.5, 0.01 // speeds are not what is tested
	dir := t.TempDir()
	h.setup = pmaster.Setup{State: filepath.Join(dir, "epoch"), Plan: &plan, Times: times, Lease: lease, Profile: 3}
	h.start()
	t.Cleanup(func() {
		if t.Failed() {
			for _, e := range f.log() {
				t.Log(describe(e))
			}
		}
		cancel()
		h.mu.Lock()
		h.master.kill()
		for _, a := range h.aggs {
			a.kill()
		}
		h.mu.Unlock()
		f.wg.Wait()
	})
	return h
}

// start starts pMaster, where it was before.
func (h *host) start() {
	h.t.Helper()
	c := spawn(h.t, "pmaster")
	h.mu.Lock()
	h.master = c
	h.mu.Unlock()
	h.say(h.setup)
	ready := h.count("ready") + 1
	h.wg.Go(func() {
		for c.Out.Scan() {
			var e pmaster.Event
			if err := json.Unmarshal(c.Out.Bytes(), &e); err != nil {
				h.t.Errorf("%s: %v", c.Out.Bytes(), err)
				continue
			}
			switch e.Event {
			case "allocate":
				h.launch(*e.Aggregator)
			case "stop":
				h.killAggregator(*e.Aggregator)
			case "ready":
				h.farm.mu.Lock()
				h.farm.address = e.Address
				h.farm.mu.Unlock()
				h.setup.Listen = e.Address
			}
			h.emit(e)
		}
		_ = c.Cmd.Wait()
		close(c.done)
	})
	h.wait("ready", ready, nil)
}

// say writes a line to pMaster's standard input.
func (h *host) say(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = h.master.Stdin.Write(append(text, '\n')) // it may have been killed
}

func (h *host) launch(id int32) {
	h.farm.mu.Lock()
	address := h.farm.address
	h.farm.mu.Unlock()
	c := spawn(h.t, "node")
	setup, err := json.Marshal(node.Config{Master: address, Times: times, Aggregator: &node.Aggregator{ID: id, Report: 50 * ms}})
	if err != nil {
		h.t.Error(err)
	}
	_, _ = c.Stdin.Write(append(setup, '\n')) // it may have ended
	h.mu.Lock()
	h.aggs[id] = c
	h.mu.Unlock()
	h.wg.Go(func() {
		for c.Out.Scan() {
		}
		_ = c.Cmd.Wait()
		close(c.done)
		h.say(pmaster.Command{Cmd: "exited", Aggregator: id})
	})
}

func (h *host) killAggregator(id int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.aggs[id]; c != nil {
		c.kill()
	}
}

// Everything is a process, and killed with SIGKILL: Aggregators, and pMaster in the midst of it. Jobs
// are profiled by what they and Aggregators report of themselves.
func TestKill9(t *testing.T) {
	proof.Only(t, "a dozen processes")
	t.Parallel()
	h := newHost(t)
	const iterations = 700
	spec := newJob("a", 2, 20_000, 50)
	h.say(pmaster.Command{Cmd: "register", Job: newJob("left alone", 1, 10)})
	e := h.wait("registered", 1, of("left alone"))
	h.say(pmaster.Command{Cmd: "end", ID: e.Job, Why: "nobody came"})
	h.wait("ended", 1, func(e pmaster.Event) bool { return e.Why == "nobody came" })
	a := h.submit(spec)
	b := h.submit(newJob("b", 1, 3000))
	for _, j := range []*train{a, b} {
		j.reportEvery = 2
		j.run(iterations, 8*ms)
	}
	h.wait("profiled", 1, of("a"))
	h.wait("profiled", 1, of("b"))

	kill := func(id int32) {
		t.Helper()
		h.killAggregator(id)
		h.wait("lost", 1, func(e pmaster.Event) bool { return *e.Aggregator == id })
	}
	kill(a.settle()[0])
	at := a.settle()[0]

	h.mu.Lock()
	master := h.master
	h.mu.Unlock()
	master.kill()
	<-master.done
	iteration := <-a.reached
	a.past(iteration + 20) // nobody needs pMaster to train
	h.start()
	h.wait("restored", 1, func(e pmaster.Event) bool { return e.Epoch == 2 })
	if got := a.settle()[0]; got != at {
		t.Errorf("a was at %d, and is at %d", at, got)
	}

	// Both at once.
	h.killAggregator(at)
	h.mu.Lock()
	master = h.master
	h.mu.Unlock()
	master.kill()
	<-master.done
	h.start()
	h.wait("restored", 1, func(e pmaster.Event) bool { return e.Epoch == 3 })
	a.check(iterations)
	b.check(iterations)

	h.say(pmaster.Command{Cmd: "dance"})
	h.wait("error", 1, func(e pmaster.Event) bool { return strings.Contains(e.Why, `unknown command "dance"`) })
	h.say(pmaster.Command{Cmd: "stop"})
	h.mu.Lock()
	master = h.master
	h.mu.Unlock()
	select {
	case <-master.done:
	case <-h.ctx.Done():
		t.Fatal("it does not stop")
	}
	if code := master.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, c := range h.aggs {
		select {
		case <-c.done:
		case <-h.ctx.Done():
			t.Errorf("Aggregator %d goes on", id)
		}
	}
}

// What is wrong with a setup is said as an event, and Main's error.
func TestMainErrors(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"no JSON":     {"{", "unexpected end"},
		"no state":    {"{}", "no file for the epoch"},
		"bad address": {`{"state":"` + t.TempDir() + `/e","listen":"nowhere"}`, "nowhere"},
		"bad state":   {`{"state":"/nowhere/e"}`, "epoch of pMaster is not known"},
	} {
		var out strings.Builder
		err := pmaster.Main(t.Context(), strings.NewReader(tt.in+"\n"), &out)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(out.String(), `"event":"error"`) {
			t.Errorf("%s: %v; %s", name, err, out.String())
		}
	}
	if err := pmaster.Main(t.Context(), strings.NewReader(""), io.Discard); err != nil {
		t.Error(err)
	}
}
