package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/paramservice/servicetest"
)

func TestMain(m *testing.M) {
	netnstest.Play(netnstest.Parts{"node": node.Main, "pmaster": pmaster.Main})
	os.Exit(m.Run())
}

// process is a part of a service.
type process struct {
	*servicetest.Process
	t testing.TB
}

func start(t testing.TB, part string, config any) *process {
	t.Helper()
	p := &process{servicetest.Start(t, part), t}
	kill := time.AfterFunc(5*time.Minute, func() { p.Cmd.Process.Kill() })
	t.Cleanup(func() { p.Stdin.Close(); p.Cmd.Wait(); kill.Stop() })
	p.say(config)
	return p
}

func (p *process) say(v any) {
	p.t.Helper()
	if err := json.NewEncoder(p.Stdin).Encode(v); err != nil {
		p.t.Error(err)
	}
}

// next is the next event of a kind, with what came before it.
func (p *process) next(kind string) (e node.Event, before []node.Event) {
	p.t.Helper()
	for p.Out.Scan() {
		var e node.Event
		if err := json.Unmarshal(p.Out.Bytes(), &e); err != nil {
			p.t.Fatalf("%s: %v", p.Out.Bytes(), err)
		}
		if e.Event == kind {
			return e, before
		}
		before = append(before, e)
	}
	p.t.Fatalf("no %q after %+v", kind, before)
	return node.Event{}, nil
}

func job(name string, workers int, sizes ...int) control.Job {
	j := control.Job{ID: 1, Name: name, Workers: workers, Rate: 0.01, Servers: 2}
	for _, n := range sizes {
		j.Tensors = append(j.Tensors, control.Tensor{Elements: n, Work: 100 * time.Microsecond})
	}
	return j
}

const seed, iterations = 3, 12

// work starts the workers of a job and waits until they are done.
func work(t testing.TB, master string, j control.Job, servers []control.Peer) {
	t.Helper()
	var workers []*process
	for r := range int32(j.Workers) {
		workers = append(workers, start(t, "node", node.Config{Master: master, Worker: &node.Worker{Job: j, Rank: r, Servers: servers,
			Iterations: iterations, Forward: []time.Duration{time.Millisecond}, Report: 4, Seed: seed}}))
	}
	for r, w := range workers {
		e, before := w.next("done")
		if want := node.Digest(client.Models(j, seed, iterations)); e.Digest != want {
			t.Errorf("%s, worker %d: models %s, not %s", j.Name, r, e.Digest, want)
		}
		n := 0
		for _, b := range before {
			if b.Event == "iteration" && b.Iteration.Number == n && b.Iteration.Spent > 0 {
				n++
			}
		}
		if n != iterations {
			t.Errorf("%s, worker %d: %d iterations", j.Name, r, n)
		}
		if err := w.Cmd.Wait(); err != nil {
			t.Errorf("%s, worker %d: %v", j.Name, r, err)
		}
	}
}

// A job with servers of its own: all of them processes.
func TestStatic(t *testing.T) {
	j := job("static", 2, 1000, 20, 300)
	var servers []control.Peer
	var processes []*process
	for id := range int32(2) {
		p := start(t, "node", node.Config{Aggregator: &node.Aggregator{ID: id, Jobs: []control.Job{j}}})
		e, _ := p.next("ready")
		servers, processes = append(servers, control.Peer{ID: id, Address: e.Address}), append(processes, p)
	}
	work(t, "", j, servers)
	for id, p := range processes {
		p.Stdin.Close()
		e, _ := p.next("stats")
		want := (2 - id) * iterations * 100 * int(time.Microsecond)
		if st := e.Stats; st.Busy != time.Duration(want) || st.Holding != 2-id || st.CPU <= 0 {
			t.Errorf("server %d: %+v", id, st)
		}
		if err := p.Cmd.Wait(); err != nil {
			t.Errorf("server %d: %v", id, err)
		}
	}
}

// The same job, and another one, with pMaster, which has Aggregators started as it needs them: all of
// them processes.
func TestService(t *testing.T) {
	master := start(t, "pmaster", pmaster.Setup{State: t.TempDir() + "/epoch", Profile: 4})
	events := make(chan pmaster.Event, 1000)
	address := make(chan string, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer close(events)
		at := ""
		for master.Out.Scan() {
			var e pmaster.Event
			if err := json.Unmarshal(master.Out.Bytes(), &e); err != nil {
				t.Errorf("%s: %v", master.Out.Bytes(), err)
			}
			switch e.Event {
			case "ready":
				at = e.Address
				address <- at
			case "allocate":
				id := *e.Aggregator
				p := start(t, "node", node.Config{Master: at, Aggregator: &node.Aggregator{ID: id, Report: 5 * time.Millisecond}})
				go func() {
					for p.Out.Scan() {
					}
					master.say(pmaster.Command{Cmd: "exited", Aggregator: id})
				}()
			}
			events <- e
		}
	}()
	at := <-address
	for _, j := range []control.Job{job("one", 2, 1000, 20, 300), job("two", 3, 50, 5000)} {
		master.say(pmaster.Command{Cmd: "register", Job: j})
		for e := range events {
			if e.Event == "registered" {
				j.ID = e.Job
				break
			}
			if e.Event == "error" || e.Event == "refused" {
				t.Fatalf("%+v", e)
			}
		}
		work(t, at, j, nil)
	}
	master.say(pmaster.Command{Cmd: "stop"})
	<-over
}

// A first line that says nothing that can be, and none.
func TestConfig(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"{}":                            "configuration of a node: it is to be an Aggregator or a worker",
		`{"worker":{},"aggregator":{}}`: "configuration of a node: it is to be an Aggregator or a worker",
		`{"worker":{}}`:                 "configuration of a node: a worker without pMaster and without servers",
		`{"worker":{"iterations":-1},"master":"x"}`: "configuration of a node: -1 iterations",
		`{"worker":{},"master":"x"}`:                `job "": 0 workers, not 1 to 4096: not a job that can be served`,
		`{"what":1}`:                                `configuration of a node: json: unknown field "what"`,
		`{"worker":`:                                "configuration of a node: unexpected EOF",

		`{"aggregator":{"packing":-1}}`:            "configuration of a node: packing for -1ns",
		`{"worker":{"slower":[1,0]},"master":"x"}`: "configuration of a node: an iteration that computes for no time",
	} {
		var out strings.Builder
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := node.Main(ctx, strings.NewReader(in+"\n"), &out)
		cancel()
		var got node.Event
		if want == "" {
			if err != nil || out.Len() > 0 {
				t.Errorf("%q: %v, %s", in, err, out.String())
			}
			continue
		}
		if err == nil || err.Error() != want || json.Unmarshal([]byte(out.String()), &got) != nil || got.Event != "error" || got.Why != want {
			t.Errorf("%q: %v, %s", in, err, out.String())
		}
		if strings.HasPrefix(want, "configuration") != errors.Is(err, node.ErrConfig) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// Digests tell models apart by bits, sizes and order.
func TestDigest(t *testing.T) {
	seen := map[string]string{}
	for _, m := range [][][]float32{nil, {{}}, {{1}}, {{1, 2}}, {{1}, {2}}, {{2}, {1}}, {{0}}, {{float32(1) / 3}}} {
		d := node.Digest(m)
		if other, ok := seen[d]; ok || len(d) != 32 {
			t.Errorf("%v and %s: %s", m, other, d)
		}
		seen[d] = fmt.Sprint(m)
	}
}
