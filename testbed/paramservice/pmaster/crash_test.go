package pmaster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// steps of a migration, as control messages of nodes; those of frames between them are crashed at
// in package client.
var steps = []struct {
	name string
	who  string // the beginning of a node's name
	sent bool
	kind migrate.Kind
}{
	{"MIGRATE_INIT arrives", "aggregator 1", false, migrate.MigrateInit},
	{"the source is about to migrate", "aggregator 1", true, migrate.Migrating},
	{"TENSOR_COPY_DONE is sent", "aggregator 1", true, migrate.CopyDone},
	{"WORKER_DONE is sent", "aggregator 0", true, migrate.WorkerDone},
	{"the source is released", "aggregator 1", false, migrate.Release},
	{"the destination is released", "aggregator 0", false, migrate.Release},
}

// The source, the destination and pMaster crash at each step of a migration: no update is lost, none
// is applied twice, and training goes on, also that of the job that was at the destination before.
func TestCrashesInMigration(t *testing.T) {
	t.Parallel()
	for i, step := range steps {
		if !proof.Wanted() && i%2 == 1 {
			continue
		}
		for _, victim := range []string{"source", "destination", "pMaster"} {
			t.Run(step.name+"/"+victim, func(t *testing.T) {
				t.Parallel()
				iterations := 150
				if victim == "pMaster" {
					iterations = 350 // the next one is to know what there is before they end
				}
				var begun, hit atomic.Bool
				crashed := make(chan struct{})
				crash := func(f *farm) {
					defer close(crashed)
					switch victim {
					case "source":
						f.kill(1)
					case "destination":
						f.kill(0)
					default:
						f.crash()
					}
				}
				f := newFarm(t, func(f *farm) {
					f.hook = func(who string, sent bool, m control.Message) {
						c, ok := m.(control.Migrate)
						if ok && begun.Load() && c.Key.Job == 2 && who == step.who && sent == step.sent && c.Message.Kind == step.kind && hit.CompareAndSwap(false, true) {
							f.wg.Go(func() { crash(f) })
						}
					}
				})
				a, b := f.submit(newJob("a", 1, 300)), f.submit(newJob("b", 2, 1000, 10, 2000))
				a.run(iterations, 5*ms)
				b.run(iterations, 5*ms)
				a.profile(100*ms, 10*ms)
				if x, y := a.settle(), b.settle(); x[0] != 0 || !slices.Equal(y, []int32{1, 1, 1}) {
					t.Fatalf("a on %v, b on %v", x, y)
				}
				begun.Store(true)
				b.profilers(100*ms, 10*ms, 10*ms, 10*ms) // a pMaster that crashes may not come to say that it is profiled
				select {
				case <-crashed:
				case <-f.ctx.Done():
					t.Fatal("this step does not occur")
				}
				a.check(iterations)
				b.check(iterations)
				f.wait("ended", 2, func(e pmaster.Event) bool { return e.Why == "" })
				switch victim {
				case "pMaster":
					f.wait("restored", 1, nil)
					if n := f.count("lost") + f.count("recovered"); n != 0 {
						t.Errorf("%d Aggregators were lost and tensors recovered, and only pMaster has crashed", n)
					}
				case "destination":
					f.wait("lost", 1, nil)
				default: // when the migration is over it ends anyway
					for !slices.ContainsFunc(f.log(), func(e pmaster.Event) bool {
						return (e.Event == "lost" || e.Event == "released") && *e.Aggregator == 1
					}) {
						time.Sleep(ms)
					}
				}
			})
		}
	}
}

// pMaster crashes at each moment of a recovery after an Aggregator has.
func TestCrashesInRecovery(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		sent bool
		kind migrate.Kind
	}{{false, migrate.Fence}, {true, migrate.Fenced}, {false, migrate.Assign}, {true, migrate.Assigned}, {true, migrate.CopyDone}} {
		t.Run(fmt.Sprintf("%v, sent %v", step.kind, step.sent), func(t *testing.T) {
			t.Parallel()
			const iterations = 100
			var begun, hit atomic.Bool
			crashed := make(chan struct{})
			f := newFarm(t, func(f *farm) {
				f.hook = func(who string, sent bool, m control.Message) {
					c, ok := m.(control.Migrate)
					if ok && begun.Load() && strings.HasPrefix(who, "a ") && sent == step.sent && c.Message.Kind == step.kind && hit.CompareAndSwap(false, true) {
						f.wg.Go(func() {
							defer close(crashed)
							f.crash()
						})
					}
				}
			})
			a := f.submit(newJob("a", 3, 1000, 10))
			a.run(iterations, 5*ms)
			a.past(5)
			begun.Store(true)
			f.kill(a.settle()[0])
			select {
			case <-crashed:
			case <-f.ctx.Done():
				t.Fatal("this step does not occur")
			}
			a.check(iterations)
		})
	}
}

// A new pMaster goes on from what nodes tell it: profiles, places and what is shared. What has not come
// back has failed, others are unaffected; ids are not given again.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	const iterations = 600
	a, b, c := f.submit(newJob("a", 1, 300)), f.submit(newJob("b", 2, 1000, 10)), f.submit(newJob("c", 2, 10))
	a.run(iterations, 5*ms)
	b.run(iterations, 5*ms)
	c.run(iterations, 5*ms)
	a.profile(100*ms, 10*ms)
	b.profile(100*ms, 20*ms, 10*ms)
	if x, y := a.settle(), b.settle(); x[0] != y[0] || x[0] != y[1] {
		t.Fatalf("a on %v, b on %v", x, y)
	}
	beforeB, beforeC := b.settle(), c.settle()
	f.mu.Lock()
	m, srv := f.master, f.server
	f.mu.Unlock()
	m.Abandon(srv.Stop)
	c.vanish(1)
	f.start()
	f.wait("restored", 1, nil)
	f.wait("ended", 1, func(e pmaster.Event) bool {
		return e.Name == "c" && strings.Contains(e.Why, "worker 1 has not come back to pMaster of epoch 2")
	})
	<-c.over
	says(t, "the other worker of c", c.errs[0], client.ErrEnded, "worker 1 has not come back")
	if y := b.settle(); !slices.Equal(y, beforeB) {
		t.Errorf("b was on %v, and is on %v", beforeB, y)
	}
	if got := f.count("migrated") + f.count("recovered"); got != 2 {
		t.Errorf("%d moves, and only those of b were needed", got)
	}
	f.wait("released", 2, func(e pmaster.Event) bool { return *e.Aggregator == beforeC[0] || e.Why == "" })
	// It is profiled still: it does not have to be again.
	s, err := a.clients[0].Statistics(f.ctx)
	if err != nil || s.Epoch != 2 || len(s.Jobs) != 2 || s.Jobs[1].Profile.GetIteration() != int64(100*ms) || s.Jobs[1].State != "training" {
		t.Errorf("%v, %v", s, err)
	}
	d := f.submit(newJob("d", 1, 10))
	d.run(10, ms)
	if d.job.ID <= c.job.ID || d.settle()[0] <= beforeC[0] {
		t.Errorf("job %d after %d, Aggregator %d after %d", d.job.ID, c.job.ID, d.settle()[0], beforeC[0])
	}
	d.check(10)
	a.check(iterations)
	b.check(iterations)
}

// A worker that vanishes ends its job, and the others of it say why. Other jobs train on.
func TestWorkerVanishes(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	a, b := f.submit(newJob("a", 2, 1000)), f.submit(newJob("b", 3, 1000))
	const iterations = 300
	a.run(iterations, 5*ms)
	b.run(1e6, 5*ms)
	b.past(3)
	b.vanish(2)
	<-b.over
	for rank := range 2 {
		says(t, "one of the others", b.errs[rank], client.ErrEnded, "worker 2 has vanished: nothing was heard of it for 1s")
	}
	f.wait("ended", 1, of("b"))
	f.wait("released", 1, nil)
	a.check(iterations)
	// Its name is free, and its id is not.
	b2 := f.submit(newJob("b", 1, 5))
	if b2.job.ID <= b.job.ID {
		t.Errorf("id %d again", b2.job.ID)
	}
	c, err := wire.Dial(f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Attach(f.ctx, b.job, 2)
	says(t, "it comes too late", err, wire.ErrRefused, "is over: worker 2 has vanished")
}

// Where no Aggregator can be had, jobs that need one fail and say why; those that do not train on.
func TestNoAggregators(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	f := newFarm(t, func(f *farm) {
		f.broken = func(int32) error {
			if broken.Load() {
				return errors.New("host h9 is down")
			}
			return nil
		}
	})
	const iterations = 300
	a := f.submit(newJob("a", 1, 100))
	a.run(iterations, 5*ms)
	a.settle()
	broken.Store(true)
	b := f.submit(newJob("b", 1, 100))
	b.run(10, ms)
	<-b.over
	says(t, "b", b.errs[0], client.ErrEnded, "no room for what it had on Aggregator 1", "no Aggregator to be had", "host h9 is down")
	f.kill(a.settle()[0])
	<-a.over
	says(t, "a", a.errs[0], client.ErrEnded, "host h9 is down")
	broken.Store(false)
	c := f.submit(newJob("c", 1, 100))
	c.run(10, ms)
	c.check(10)
}

// Aggregators that do not start, or start and do not join, are given up.
func TestNeverJoins(t *testing.T) {
	t.Parallel()
	f := newFarm(t, func(f *farm) {
		f.cfg.Start = 300 * ms
		f.cfg.Pool = idle{}
	})
	j := f.submit(newJob("a", 1, 100))
	j.run(1, ms)
	<-j.over
	says(t, "a", j.errs[0], client.ErrEnded, "has not joined within 300ms")
}

// An Aggregator that is released before it has joined has not heard of it, and is stopped at once: nobody waits for it to end by
// itself.
func TestReleasedBeforeItJoins(t *testing.T) {
	t.Parallel()
	f := newFarm(t, func(f *farm) {
		f.cfg.Pool = idle{}
		f.cfg.Start, f.cfg.Lease = time.Hour, time.Hour
	})
	j := f.submit(newJob("a", 1, 100))
	j.run(1, ms)
	f.wait("allocate", 1, nil)
	f.stop() // fails after a minute
}

type idle struct{}

func (idle) Start(context.Context, int32) (pmaster.Process, error) { return idle{}, nil }
func (idle) Done() <-chan struct{}                                 { return nil }
func (idle) Stop(context.Context) error                            { return nil }

// An Agent whose job is another one, or that is of no use for another reason, is refused with all that
// is wrong; the others of its job and other jobs do not notice.
func TestRefused(t *testing.T) {
	t.Parallel()
	f := newFarm(t, func(f *farm) { f.cfg.Plan.Aggregators = 2 })
	const iterations = 200
	a := f.submit(newJob("a", 2, 1000, 10))
	a.run(iterations, 5*ms)
	f.wait("joined", 1, nil) // who comes first with an Aggregator's number is it
	c, err := wire.Dial(f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	register := func(j control.Job) error { _, err := c.Register(f.ctx, j); return err }
	attach := func(rank int32, change func(*control.Job)) error {
		j := a.job
		j.Tensors = slices.Clone(j.Tensors)
		change(&j)
		_, err := c.Attach(f.ctx, j, rank)
		return err
	}
	join := func(id int32, address string) error { _, err := c.Join(f.ctx, id, address); return err }
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"the same name", register(newJob("a", 1, 1)), []string{`a job "a" is there already, with id 1`}},
		{"no job at all", register(control.Job{Workers: -1}), []string{"no name", "-1 workers", "0 tensors"}},
		{"more servers than tensors", register(control.Job{Name: "b", Workers: 1, Servers: 3, Tensors: a.job.Tensors}), []string{"3 servers for 2 tensors"}},
		{"more servers than there may be", register(control.Job{Name: "b", Workers: 1, Servers: 2, Tensors: a.job.Tensors}), []string{"no room"}},
		{"a job that is not there", attach(0, func(j *control.Job) { j.ID = 99 }), []string{"there is no job 99"}},
		{"another job", attach(1, func(j *control.Job) {
			j.Name, j.Rate, j.Servers, j.Workers = "z", 2, 9, 3
			j.Tensors[1].Elements = 11
			j.Tensors = append(j.Tensors, j.Tensors[0])
		}), []string{`name "z", not "a"`, "3 workers, not 2", "9 servers, not 0", "learning rate 2, not 0.01", "3 tensors, not 2", `tensor 1, "t1", of 11 values`}},
		{"a rank that is there", attach(1, func(*control.Job) {}), []string{"worker 1 of job 1", "is there already"}},
		{"no rank", attach(2, func(*control.Job) {}), []string{"rank 2 of 2 workers"}},
		{"an Aggregator that nobody wants", join(77, "h:1"), []string{"no Aggregator 77 is wanted"}},
		{"an Aggregator that is there", join(0, "h:1"), []string{"Aggregator 0 is another process"}},
		{"an Aggregator without an address", join(-1, "h"), []string{"Aggregator -1", `address "h"`}},
		{"nobody to end", c.Deregister(f.ctx, 5, ""), []string{"there is no job 5"}},
	} {
		says(t, tt.name, tt.err, wire.ErrRefused, tt.want...)
	}
	says(t, "another protocol", foreign(t, f.address), nil, "protocol version 99, and pMaster speaks 1")
	a.check(iterations)
	if f.count("refused") < 12 {
		t.Errorf("%d are in the log", f.count("refused"))
	}
}

// foreign is what an Agent of another version hears.
func foreign(t *testing.T, address string) error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := wire.NewParameterServiceClient(conn).Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&wire.FromNode{What: &wire.FromNode_Hello{Hello: &wire.Hello{Protocol: 99}}}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
	return err
}

// A crash is told of all of an Aggregator's tensors at once: a worker gets their fences together, and
// then their assignments.
func TestCoalesced(t *testing.T) {
	t.Parallel()
	f := newFarm(t, func(f *farm) { f.cfg.Times.Resend = time.Minute }) // nothing is said twice
	const tensors = 200
	c, err := wire.Dial(f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	j, err := c.Register(f.ctx, newJob("a", 1, slices.Repeat([]int{1}, tensors)...))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := wire.NewParameterServiceClient(conn).Attach(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *wire.FromNode) {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&wire.FromNode{What: &wire.FromNode_Hello{Hello: (&wire.Greeting{Life: 1, Job: j}).Encode()}})
	fences, assigns := []int{}, 0 // in each batch with any
	for assigns < tensors {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var answers []*wire.Message
		n := 0
		for _, w := range m.GetBatch().GetMessages() {
			b := w.GetMigrate()
			if b == nil {
				continue
			}
			answer := migrate.Message[control.None]{From: migrate.Node{Role: migrate.Worker}, Version: 1, Term: migrate.Term{Epoch: b.GetTerm().GetEpoch(), Seq: b.GetTerm().GetSeq()}}
			switch migrate.Kind(b.Kind) {
			case migrate.Ask:
				answer.Kind = migrate.Status
			case migrate.Fence:
				n++
				answer.Kind = migrate.Fenced
			case migrate.Assign:
				assigns++
				answer.Kind = migrate.Assigned
			}
			answers = append(answers, wire.Encode(control.Migrate{Key: control.Key{Job: j.ID, Tensor: b.GetKey().GetTensor()}, Message: answer}))
		}
		if n > 0 {
			fences = append(fences, n)
		}
		send(&wire.FromNode{What: &wire.FromNode_Batch{Batch: &wire.Batch{Messages: answers}}})
	}
	if !slices.Equal(fences, []int{tensors}) {
		t.Errorf("%v fences", fences)
	}
}

// With periods a job stays where it was profiled until one ends.
func TestPeriods(t *testing.T) {
	t.Parallel()
	f := newFarm(t, func(f *farm) {
		f.cfg.Plan.Periodic, f.cfg.Plan.Threshold = true, 9
		f.cfg.Period = 2 * time.Second
	})
	j := f.submit(newJob("a", 1, 10, 10))
	j.run(600, 5*ms)
	j.profile(100*ms, 60*ms, 60*ms) // more than its one temporary Aggregator can do
	if got := j.settle(); got[0] != got[1] {
		t.Errorf("at once on %v", got)
	}
	f.wait("migrated", 1, of("a"))
	if got := j.settle(); got[0] == got[1] {
		t.Errorf("then on %v", got)
	}
	j.check(600)
}

// A node that says what is not for it to say is expelled: a worker's job ends, an Aggregator's tensors
// go elsewhere.
func TestExpelled(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	worker := func(id int32) migrate.Node { return migrate.Node{Role: migrate.Worker, ID: id} }
	about := func(j, tensor uint32, k migrate.Kind, from migrate.Node) control.Message {
		return control.Migrate{Key: control.Key{Job: j, Tensor: tensor}, Message: migrate.Message[control.None]{Kind: k, From: from}}
	}
	const iterations = 250
	keep := f.submit(newJob("keep", 1, 10))
	keep.run(iterations, 5*ms)
	keep.past(1)
	bad := func(name string, j *train) map[string]control.Message {
		id := j.job.ID
		return map[string]control.Message{
			"for another": about(id, 0, migrate.Fenced, worker(1)), "of another job": about(keep.job.ID, 0, migrate.Fenced, worker(0)),
			"of no tensor": about(id, 9, migrate.Fenced, worker(0)), "for an Aggregator": about(id, 0, migrate.WorkerDone, worker(0)),
			"for pMaster": control.Dismiss{Job: id}, "a report of another": control.WorkerReport{Job: id, Rank: 1},
			"other failures": control.Failed{Job: keep.job.ID}, "other ends": control.Finished{Job: keep.job.ID},
			"nonsense": control.WorkerReport{Job: id, Spent: -5},
		}
	}
	for _, name := range []string{"for another", "of another job", "of no tensor", "for an Aggregator", "for pMaster", "a report of another", "other failures", "other ends", "nonsense"} {
		j := f.submit(newJob(name, 2, 10))
		j.run(1e6, 5*ms)
		j.links[0].Send(bad(name, j)[name])
		<-j.over
		says(t, name, j.errs[1], client.ErrEnded, "worker 0 of job", name)
		says(t, name, j.errs[0], wire.ErrRefused, "worker 0 of job")
	}
	at := keep.settle()[0]
	f.mu.Lock()
	a := f.running[at]
	f.mu.Unlock()
	a.link.Send(about(keep.job.ID, 0, migrate.CopyDone, migrate.Node{Role: migrate.Aggregator, ID: 99}))
	f.wait("lost", 1, func(e pmaster.Event) bool { return *e.Aggregator == at && strings.Contains(e.Why, "aggregator 99") })
	f.wait("recovered", 1, of("keep"))
	keep.check(iterations)
}

// Values that are no numbers are counted, and whose they are is reported.
func TestNaNs(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	j := f.submit(newJob("a", 2, 10))
	j.run(50, 5*ms)
	at := j.settle()[0]
	f.mu.Lock()
	a := f.running[at]
	f.mu.Unlock()
	for range 2 {
		a.link.Send(control.AggregatorReport{Tensors: []control.TensorReport{{Key: control.Key{Job: j.job.ID}, Runs: 1, NaNs: 3, Ranks: []int32{1}}}})
	}
	e := f.wait("nan", 2, of("a"))
	if e.NaNs != 6 || !slices.Equal(e.Ranks, []int32{1}) || *e.Tensor != 0 || *e.Aggregator != at {
		t.Errorf("%+v", e)
	}
	j.check(50)
}

// Somebody ends a job; workers that never come end it, too.
func TestEnds(t *testing.T) {
	t.Parallel()
	f := newFarm(t, func(f *farm) { f.cfg.Arrival = 300 * ms })
	j := f.submit(newJob("a", 2, 10))
	j.run(1e6, ms)
	j.past(2)
	if err := j.clients[0].Deregister(f.ctx, j.job.ID, "the user has pressed ^C"); err != nil {
		t.Fatal(err)
	}
	<-j.over
	for _, err := range j.errs {
		says(t, "a", err, client.ErrEnded, "the user has pressed ^C")
	}
	c, err := wire.Dial(f.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Register(f.ctx, newJob("b", 2, 10)); err != nil {
		t.Fatal(err)
	}
	f.wait("ended", 1, func(e pmaster.Event) bool {
		return e.Name == "b" && strings.Contains(e.Why, "worker 0 has not come within") || strings.Contains(e.Why, "worker 1 has not come within")
	})
	f.wait("released", 2, nil)
}

// The epoch is one more each time, whatever a crash has left of the file; what is no epoch is
// said, and two pMasters do not have the same.
func TestEpoch(t *testing.T) {
	dir := t.TempDir()
	cfg := pmaster.Config{Pool: idle{}, State: dir + "/epoch"}
	begin := func() *pmaster.Master {
		t.Helper()
		m, err := pmaster.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := begin()
	_, err := pmaster.New(cfg)
	says(t, "the same file", err, pmaster.ErrEpoch, "another pMaster has it")
	m.Abandon(func() {})
	if m = begin(); m.Epoch() != 2 {
		t.Errorf("epoch %d", m.Epoch())
	}
	if err := m.Close(context.Background()); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(cfg.State)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		text  string
		epoch uint64
		want  string
	}{
		"as it was left": {string(text), 3, ""},
		"torn":           {string(text) + `{"epo`, 3, ""},
		"empty":          {"", 1, ""},
		"torn at once":   {"{", 1, ""},
		"backwards":      {"{\"epoch\":9}\n{\"epoch\":8}\n", 0, "after epoch 9"},
		"nonsense":       {"hello\n", 0, `line "hello" after epoch 0`},
		"the last one":   {"{\"epoch\":32768}\n", 0, "the last one"},
		"long":           {strings.Repeat("{\"epoch\":7}\n", 1<<14), 8, ""},
	} {
		if err := os.WriteFile(cfg.State, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := pmaster.New(cfg)
		if tt.want != "" {
			says(t, name, err, pmaster.ErrEpoch, tt.want)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Epoch() != tt.epoch {
			t.Errorf("%s: epoch %d, not %d", name, m.Epoch(), tt.epoch)
		}
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	cfg.State = dir + "/nowhere/epoch"
	_, err = pmaster.New(cfg)
	says(t, "no folder", err, os.ErrNotExist)
}
