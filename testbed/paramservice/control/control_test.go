package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

func TestJobCheck(t *testing.T) {
	good := func() Job {
		return Job{Name: "j", Workers: 2, Rate: 0.1, Tensors: []Tensor{{Name: "a", Elements: 1}, {Name: "b", Elements: MaxElements}}}
	}
	if j := good(); j.Check() != nil || j.Tensors[1].Bytes() != 512<<20 {
		t.Errorf("%v", j.Check())
	}
	for want, change := range map[string]func(*Job){
		`job "j": 0 workers, not 1 to 4096`:                    func(j *Job) { j.Workers = 0 },
		`job "j": 4097 workers, not 1 to 4096`:                 func(j *Job) { j.Workers = MaxWorkers + 1 },
		`job "j": -1 servers`:                                  func(j *Job) { j.Servers = -1 },
		`job "j": learning rate NaN`:                           func(j *Job) { j.Rate = float32(math.NaN()) },
		`job "j": learning rate +Inf`:                          func(j *Job) { j.Rate = float32(math.Inf(1)) },
		`job "j": 0 tensors, not 1 to 65536`:                   func(j *Job) { j.Tensors = nil },
		`job "j": 65537 tensors, not 1 to 65536`:               func(j *Job) { j.Tensors = make([]Tensor, MaxTensors+1) },
		`job "j": tensor 1, "b": 0 values, 0s of work`:         func(j *Job) { j.Tensors[1].Elements = 0 },
		`job "j": tensor 1, "b": 134217729 values, 0s of work`: func(j *Job) { j.Tensors[1].Elements++ },
		`job "j": tensor 0, "a": 1 values, -1ns of work`:       func(j *Job) { j.Tensors[0].Work = -1 },
	} {
		j := good()
		change(&j)
		if err := j.Check(); !errors.Is(err, ErrJob) || err.Error() != want+": not a job that can be served" {
			t.Errorf("%v instead of %s", err, want)
		}
	}
}

// What one end sends the other one receives, in order, whether anybody waits for it or not; also what
// was sent before the end was closed, and nothing after that.
func TestPipe(t *testing.T) {
	const n = 100
	ctx := context.Background()
	node, master := Pipe()
	for i := range uint32(n) {
		node.Send(Admitted{i})
	}
	for i := range uint32(n) {
		if m, err := master.Receive(ctx); err != nil || m != (Admitted{i}) {
			t.Fatalf("%v, %v", m, err)
		}
	}
	var wg sync.WaitGroup
	sum, mu := uint32(0), sync.Mutex{}
	for range 3 { // who wait at once
		wg.Go(func() {
			for {
				m, err := node.Receive(ctx)
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				sum += m.(Admitted).Job
				mu.Unlock()
			}
		})
	}
	for i := range uint32(n) {
		master.Send(Admitted{i})
	}
	master.Close()
	master.Send(Admitted{1000})
	wg.Wait()
	if sum != n*(n-1)/2 {
		t.Errorf("sum %d", sum)
	}
	node, _ = Pipe()
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := node.Receive(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Without data a message is the same.
func TestStrip(t *testing.T) {
	m := migrate.Message[string]{Kind: migrate.Assign, From: migrate.Node{}, To: migrate.Node{Role: migrate.Worker, ID: 3}, Term: migrate.Term{Epoch: 1, Seq: 2},
		Version: 3, Next: migrate.Term{Epoch: 4, Seq: 5}, At: 6, Seeder: 7, Data: "model"}
	k := Key{Job: 8, Tensor: 9}
	s := Strip(k, m)
	back := With[string](s)
	m.Data = ""
	if back != m || s.Key != k || k.String() != "tensor 9 of job 8" {
		t.Errorf("%v, %v", back, s.Key)
	}
}

// What a node of a job with servers of its own is told, message by message.
func TestStatic(t *testing.T) {
	j := Job{ID: 5, Name: "j", Workers: 2, Tensors: []Tensor{{Elements: 1}, {Elements: 2}, {Elements: 3}}}
	servers := []Peer{{ID: 10, Address: "a:1"}, {ID: 11, Address: "b:2"}}
	ctx := context.Background()
	expect := func(s *Static, want ...string) {
		t.Helper()
		for _, w := range want {
			m, err := s.Receive(ctx)
			text := fmt.Sprintf("%T %v", m, m)
			if g, ok := m.(Migrate); ok {
				text = fmt.Sprint(g.Key, ": ", g.Message)
			}
			if err != nil || text != w {
				t.Errorf("%s, %v\nwant %s", text, err, w)
			}
		}
	}
	w := StaticWorker(j, 1, servers)
	expect(w, "control.Peers {[{10 a:1} {11 b:2}]}",
		"tensor 0 of job 5: fence, pMaster to worker 1, term 1.1",
		"tensor 1 of job 5: fence, pMaster to worker 1, term 1.1",
		"tensor 2 of job 5: fence, pMaster to worker 1, term 1.1")
	say := func(s *Static, tensor uint32, m migrate.Message[None]) { s.Send(Migrate{Key{5, tensor}, m}) }
	for i := range uint32(3) {
		say(w, i, migrate.Message[None]{Kind: migrate.Fenced})
	}
	expect(w, "tensor 0 of job 5: assign, pMaster to worker 1, term 1.1 at 10",
		"tensor 1 of job 5: assign, pMaster to worker 1, term 1.1 at 11",
		"tensor 2 of job 5: assign, pMaster to worker 1, term 1.1 at 10")
	say(w, 2, migrate.Message[None]{Kind: migrate.Assigned})
	say(w, 2, migrate.Message[None]{Kind: migrate.Stuck, At: 10})
	w.Send(Failed{5, "reason"})
	w.Send(WorkerReport{})
	w.Send(Finished{5})
	expect(w, "control.Dismiss {5 server 10 does not answer}", "control.Dismiss {5 reason}", "control.Dismiss {5 }")

	other := StaticWorker(j, 0, servers)
	expect(other, "control.Peers {[{10 a:1} {11 b:2}]}")
	say(other, 1, migrate.Message[None]{Kind: migrate.Fenced})
	for range j.Tensors {
		other.Receive(ctx)
	}
	expect(other, "tensor 1 of job 5: assign, pMaster to worker 0, term 1.1 at 11")
	say(other, 1, migrate.Message[None]{Kind: migrate.CopyDone, From: migrate.Node{Role: migrate.Worker}})
	expect(other, "tensor 1 of job 5: release, pMaster to worker 0, term 1.1")

	s := StaticServer(j)
	s.Send(Admitted{5})
	say(s, 1, migrate.Message[None]{Kind: migrate.WorkerDone, From: migrate.Node{Role: migrate.Aggregator, ID: 11}})
	s.Tell(Reserve{})
	s.Close()
	expect(s, fmt.Sprintf("control.Admit {%v}", j), "tensor 1 of job 5: release, pMaster to aggregator 11, term 1.1", "control.Reserve {0s []}")
	if _, err := s.Receive(ctx); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}
