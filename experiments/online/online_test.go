package online

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/queue"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sim"
	"github.com/inabench/inabench/testbed/sim/replay"
)

var seed = flag.Uint64("seed", 1, "of random jobs")

// rack is hosts of two GPUs each at one switch, as in the paper's testbed.
func rack(hosts int, rate inventory.BitRate, delay time.Duration) *inventory.Inventory {
	inv := &inventory.Inventory{Name: "rack", Switches: []inventory.Switch{{Name: "tor1", Kind: inventory.Soft, Aggregators: 1 << 14}}}
	for i := range hosts {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", i+1), GPUs: 2, NICs: []inventory.NIC{{
			Device: "eth0", Switch: "tor1", Port: uint32(i + 1), Rate: rate, Delay: delay,
		}}})
	}
	return inv
}

// mix is random jobs of 1 to 6 GPUs.
func mix(r *rand.Rand, n int) []Job {
	var jobs []Job
	for i := range n {
		jobs = append(jobs, Job{Window: 256, Control: "fixed", Job: replay.Job{
			ID: i, Submit: 3 * r.Float64(), GPUs: 1 + r.IntN(6), Iterations: 5 + r.IntN(20),
			Compute: 0.02 + 0.08*r.Float64(), Bytes: 1e6 * (0.5 + 4*r.Float64()),
		}})
	}
	return jobs
}

// deploy is a deployment of the model without jobs.
func deploy(t testing.TB, inv *inventory.Inventory, s testbed.Settings) testbed.Deployment {
	t.Helper()
	tb, err := sim.Open(inv, sim.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tb.Close(context.Background()) })
	d, err := tb.Deploy(t.Context(), testbed.Setup{Plan: &placement.Plan{}, Settings: s})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func policies() []cluster.Policy {
	return []cluster.Policy{netpack.New(netpack.Options{}), baseline.FirstFit(), baseline.Random()}
}

func plain(jobs []Job) []replay.Job {
	var out []replay.Job
	for _, j := range jobs {
		out = append(out, j.Job)
	}
	return out
}

var settings = testbed.Settings{Queue: "flows", Lanes: 240, Seed: 1}

// TestReplay holds the manager, on the model of packets' rates, against the simulator on
// the flow model: the same jobs at the same places in the same order, and the same times
// but for what two ways of sharing a link are apart.
func TestReplay(t *testing.T) {
	inv := rack(5, 1e9, 50*time.Microsecond)
	for _, p := range policies() {
		t.Run(p.Name(), func(t *testing.T) {
			for s := *seed; s < *seed+10; s++ {
				jobs := mix(rand.New(rand.NewPCG(s, 0)), 12)
				cfg := Config{Policy: p, Inventory: inv, Settings: settings, Period: time.Second, Seed: s, Virtual: true}
				got, err := Run(t.Context(), cfg, deploy(t, inv, settings), jobs)
				if err != nil {
					t.Fatalf("-seed=%d: %v", s, err)
				}
				want, err := replay.Run(t.Context(), replay.Config{
					Cluster: ClusterOf(inv, settings), Policy: p, Period: 1, Seed: s, Fidelity: replay.Phases,
				}, plain(jobs))
				if err != nil {
					t.Fatalf("-seed=%d: %v", s, err)
				}
				compare(t, s, got, want)
			}
		})
	}
}

func compare(t *testing.T, seed uint64, got *Result, want *replay.Result) {
	t.Helper()
	if len(got.Jobs) != len(want.Jobs) {
		t.Fatalf("-seed=%d: %d jobs, want %d", seed, len(got.Jobs), len(want.Jobs))
	}
	var off float64
	for i := range want.Jobs {
		g, w := got.Jobs[i].JobResult, want.Jobs[i]
		if diff := cmp.Diff(w, g, cmpopts.IgnoreFields(w, "End"), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
			t.Errorf("-seed=%d: job %d (-simulated +managed):\n%s", seed, w.ID, diff)
		}
		e := math.Abs(g.JCT()/w.JCT() - 1)
		if off += e; e > 0.02 {
			t.Errorf("-seed=%d: job %d takes %.3f s, simulated %.3f", seed, w.ID, g.JCT(), w.JCT())
		}
	}
	if mean := off / float64(len(want.Jobs)); mean > 0.002 {
		t.Errorf("-seed=%d: times are %.1f %% apart", seed, 100*mean)
	}
	if g, w := got.Summary, want.Summary; math.Abs(g.GPUs/w.GPUs-1) > 0.02 || math.Abs(g.Makespan/w.Makespan-1) > 0.02 {
		t.Errorf("-seed=%d: %+v, simulated %+v", seed, g, w)
	}
}

// TestQueue: first come, first served, on a testbed too.
func TestQueue(t *testing.T) {
	inv := rack(5, 1e9, 50*time.Microsecond)
	for s := *seed; s < *seed+5; s++ {
		jobs := mix(rand.New(rand.NewPCG(s, 0)), 12)
		for i := range jobs {
			jobs[i].Submit = float64(i) / 5
		}
		cfg := Config{Policy: baseline.FirstFit(), Queue: queue.FCFS, Inventory: inv, Settings: settings, Seed: s, Virtual: true}
		got, err := Run(t.Context(), cfg, deploy(t, inv, settings), jobs)
		if err != nil {
			t.Fatalf("-seed=%d: %v", s, err)
		}
		for i := range got.Jobs[1:] {
			if a, b := got.Jobs[i], got.Jobs[i+1]; b.Placed < a.Placed {
				t.Errorf("-seed=%d: job %d is placed at %v, before job %d at %v", s, b.ID, b.Placed, a.ID, a.Placed)
			}
		}
	}
	_, err := Run(t.Context(), Config{Policy: baseline.FirstFit(), Queue: "lifo", Inventory: inv, Settings: settings}, deploy(t, inv, settings), nil)
	if err == nil || !strings.Contains(err.Error(), `unknown queue discipline "lifo"`) {
		t.Errorf("error %v", err)
	}
}

// What was recorded and is simulated again gives itself, with its submissions and without.
func TestRecorded(t *testing.T) {
	inv := rack(5, 1e9, 50*time.Microsecond)
	jobs := plain(mix(rand.New(rand.NewPCG(*seed, 0)), 12))
	simulate := func(p cluster.Policy, period float64, jobs []replay.Job) []replay.JobResult {
		r, err := replay.Run(t.Context(), replay.Config{Cluster: ClusterOf(inv, settings), Policy: p, Period: period, Fidelity: replay.Phases}, jobs)
		if err != nil {
			t.Fatalf("-seed=%d: %v", *seed, err)
		}
		return r.Jobs
	}
	want := simulate(netpack.New(netpack.Options{}), 1, jobs)
	if diff := cmp.Diff(want, simulate(Recorded(want), 1, jobs)); diff != "" {
		t.Errorf("-seed=%d: the same trace (-want +got):\n%s", *seed, diff)
	}
	again := simulate(Recorded(want), 0, Restarted(jobs, want))
	if diff := cmp.Diff(want, again, cmpopts.IgnoreFields(want[0], "Submit", "Waited"), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("-seed=%d: the same starts (-want +got):\n%s", *seed, diff)
	}
	if got := Restarted(jobs, want[1:3]); len(got) != 2 || got[0].ID != want[1].ID {
		t.Errorf("of two jobs that ran: %+v", got)
	}
}

// A job whose GPUs are taken for longer in a simulation holds up nobody who wants none of its servers.
func TestRecordedOverlaps(t *testing.T) {
	cfg := cluster.FatTree(1, 3, 2, 1e9, 1e12, 1)
	var jobs []replay.Job
	var ran []replay.JobResult
	add := func(start, seconds float64, servers ...int) {
		at := cluster.Placement{}
		for _, s := range servers {
			at.Parts = append(at.Parts, cluster.Part{Server: s, GPUs: 2})
		}
		id := len(jobs)
		jobs = append(jobs, replay.Job{ID: id, GPUs: 2 * len(servers), Iterations: 1, Compute: seconds, Traffic: cluster.Tree})
		ran = append(ran, replay.JobResult{ID: id, Start: start, Placement: at})
	}
	add(0, 10.6, 0)    // it ran for 10 s
	add(10.2, 1, 0)    // its server is taken until 10.6
	add(10.4, 1, 1, 2) // this one's are not
	add(10.5, 1, 0)    // it comes after the second
	got, err := replay.Run(t.Context(), replay.Config{Cluster: cfg, Policy: Recorded(ran), Fidelity: replay.Phases}, Restarted(jobs, ran))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, 10.6, 10.4, 11.6} {
		if start := got.Jobs[i].Start; math.Abs(start-want) > 1e-9 {
			t.Errorf("job %d begins at %v s, want %v", i, start, want)
		}
	}
}

func TestAgree(t *testing.T) {
	got := agree([]float64{1, 2, 4}, []float64{1.1, 1.8, 4})
	want := agreement{Jobs: 3, Pearson: 0.9950, MAE: 0.2 / 3, Worst: 0.1, Bias: 0}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-4)); diff != "" {
		t.Error(diff)
	}
}

// Without a period every arrival and every end has its batch.
func TestNoPeriod(t *testing.T) {
	inv := rack(2, 1e9, time.Millisecond)
	job := func(id int, submit float64, gpus int) Job {
		return Job{Window: 64, Job: replay.Job{ID: id, Submit: submit, GPUs: gpus, Iterations: 10, Compute: 0.1, Bytes: 1e3}}
	}
	var progress []replay.Progress
	cfg := Config{Policy: baseline.FirstFit(), Inventory: inv, Settings: settings, Virtual: true, Progress: func(p replay.Progress) { progress = append(progress, p) }}
	// The second fits beside the first, the third does not, and the fourth overtakes it.
	r, err := Run(t.Context(), cfg, deploy(t, inv, settings), []Job{job(5, 0.25, 2), job(6, 0.5, 1), job(7, 0.6, 2), job(8, 0.7, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		start  float64
		waited int
	}{{0.25, 0}, {0.5, 0}, {1.25, 2}, {0.7, 0}} {
		j := &r.Jobs[i]
		overhead := j.Start - j.Placed + j.Seen - j.End // seconds with GPUs and without training
		if math.Abs(j.Start-want.start) > 1e-6 || j.Waited != want.waited || math.Abs(overhead) > 1e-6 {
			t.Errorf("job %d: started at %v, passed over %d times, %v s of overhead; want %+v", j.ID, j.Start, j.Waited, overhead, want)
		}
	}
	last := progress[len(progress)-1]
	if last.Done != 4 || last.Waiting != 0 || last.Running != 0 || len(progress) != 12 {
		t.Errorf("%d calls, the last with %+v", len(progress), last)
	}
}

// Readings come at their interval, as a job begins and when it has ended, and once in the end.
func TestSamples(t *testing.T) {
	inv := rack(3, 1e9, time.Millisecond)
	var at []float64
	cfg := Config{
		Policy: baseline.FirstFit(), Inventory: inv, Settings: settings, Virtual: true, Interval: 100 * time.Millisecond,
		Sample: func(s []results.Sample) error {
			at = append(at, s[0].T)
			return nil
		},
	}
	jobs := []Job{{Window: 64, Job: replay.Job{ID: 1, Submit: 0.15, GPUs: 3, Iterations: 2, Compute: 0.1, Bytes: 1e6}}}
	d := deploy(t, inv, settings)
	if _, err := Run(t.Context(), cfg, d, jobs); err != nil {
		t.Fatal(err)
	}
	if end := d.Now().Seconds(); !slices.Equal(at, []float64{0, 0.1, 0.15, 0.2, 0.3, 0.4, end, end}) {
		t.Errorf("read at %v, ended at %v", at, end)
	}
	full := errors.New("disk full")
	cfg.Sample = func([]results.Sample) error { return full }
	if _, err := Run(t.Context(), cfg, deploy(t, inv, settings), jobs); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}

// What cannot be run is refused before anything runs, all of it at once.
func TestRefusal(t *testing.T) {
	inv := rack(2, 1e9, time.Millisecond)
	ok := replay.Job{ID: 1, GPUs: 3, Iterations: 1, Compute: 1}
	with := func(window int, change func(*replay.Job)) Job {
		j := ok
		change(&j)
		return Job{Job: j, Window: window}
	}
	for name, jobs := range map[string][]Job{
		"job 1: job makes no sense: 2 parameter servers":   {with(1, func(j *replay.Job) { j.PSes = 2 })},
		"job 1: job makes no sense: traffic 3 on switches": {with(1, func(j *replay.Job) { j.Traffic = cluster.Tree })},
		"job 1: job makes no sense: a window of 0":         {with(0, func(*replay.Job) {})},
		"job 1 asks 5 GPUs of 4":                           {with(1, func(j *replay.Job) { j.GPUs = 5 })},
		"job 1: job makes no sense: submitted at 1e+18 s":  {with(1, func(j *replay.Job) { j.Submit = 1e18 })},
		"job 1: job makes no sense: its id is another's":   {with(1, func(*replay.Job) {}), with(1, func(*replay.Job) {})},
	} {
		r, err := Run(t.Context(), Config{Policy: baseline.FirstFit(), Inventory: inv, Settings: settings, Virtual: true}, deploy(t, inv, settings), jobs)
		if err == nil || !strings.Contains(err.Error(), name) || len(r.Jobs) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	never := policyFunc(func(_ *cluster.Cluster, b []cluster.Job) []cluster.Placement {
		return make([]cluster.Placement, len(b))
	})
	_, err := Run(t.Context(), Config{Policy: never, Inventory: inv, Settings: settings, Virtual: true, Period: time.Second}, deploy(t, inv, settings), []Job{{Job: ok, Window: 1}})
	if !errors.Is(err, replay.ErrPolicy) {
		t.Errorf("a policy that never places: %v", err)
	}
}

type policyFunc func(c *cluster.Cluster, batch []cluster.Job) []cluster.Placement

func (policyFunc) Name() string { return "func" }

func (f policyFunc) Place(c *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
	return f(c, batch)
}

// failing is a deployment in which something goes wrong.
type failing struct {
	testbed.Deployment
	add     func(string) error
	summary func(string, results.JobSummary) (results.JobSummary, error)
}

func (f failing) Add(ctx context.Context, p placement.JobPlan, w testbed.Workload) error {
	if f.add != nil {
		if err := f.add(p.Name); err != nil {
			return err
		}
	}
	return f.Deployment.Add(ctx, p, w)
}

func (f failing) Summary(job string) (results.JobSummary, error) {
	s, err := f.Deployment.Summary(job)
	if f.summary != nil && err == nil {
		return f.summary(job, s)
	}
	return s, err
}

// A job that fails ends the run, with what was done until then.
func TestFailure(t *testing.T) {
	inv := rack(5, 1e9, time.Millisecond)
	lost := errors.New("worker job3/1 on host h2: it is gone")
	jobs := mix(rand.New(rand.NewPCG(1, 0)), 6)
	for name, f := range map[string]failing{
		"add": {add: func(job string) error {
			if job == "job3" {
				return lost
			}
			return nil
		}},
		"end": {summary: func(job string, s results.JobSummary) (results.JobSummary, error) {
			if job == "job3" {
				return s, lost
			}
			return s, nil
		}},
		"half": {summary: func(job string, s results.JobSummary) (results.JobSummary, error) {
			if job == "job3" {
				s.Iterations--
			}
			return s, nil
		}},
	} {
		f.Deployment = deploy(t, inv, settings)
		r, err := Run(t.Context(), Config{Policy: baseline.FirstFit(), Inventory: inv, Settings: settings, Virtual: true}, f, jobs)
		if err == nil || name != "half" && !errors.Is(err, lost) || !strings.Contains(err.Error(), "job 3: ") {
			t.Errorf("%s: %v", name, err)
		}
		var s *short
		if errors.As(err, &s) != (name == "half") || s != nil && !strings.Contains(err.Error(), "worker job3/0 on host ") {
			t.Errorf("%s: %v", name, err)
		} else if s != nil {
			if code, job := s.Broken(); code != results.CodeIterations || job != "job3" {
				t.Errorf("%s of %s", code, job)
			}
		}
		if len(r.Jobs) == len(jobs) || slices.ContainsFunc(r.Jobs, func(j JobResult) bool { return j.ID == 3 }) {
			t.Errorf("%s: results of %d jobs", name, len(r.Jobs))
		}
	}
}

// wire is a deployment that keeps book of the ids of its jobs.
type wire struct {
	testbed.Deployment
	t       *testing.T
	jobs    map[string]uint16
	sums    int // jobs with aggregation that are there
	busiest int
	highest [2]uint16 // with aggregation and without
	given   map[uint16]int
}

func (w *wire) Add(ctx context.Context, p placement.JobPlan, work testbed.Workload) error {
	for name, id := range w.jobs {
		if id == p.ID {
			w.t.Errorf("%s has the id %d, which %s has too", p.Name, id, name)
		}
	}
	w.jobs[p.Name] = p.ID
	w.given[p.ID]++
	i := 1
	if p.Collective == placement.INA {
		i = 0
		w.sums++
		w.busiest = max(w.busiest, w.sums)
	}
	w.highest[i] = max(w.highest[i], p.ID)
	return w.Deployment.Add(ctx, p, work)
}

func (w *wire) Remove(ctx context.Context, job string) error {
	if w.jobs[job] <= w.highest[0] {
		w.sums--
	}
	delete(w.jobs, job)
	return w.Deployment.Remove(ctx, job)
}

// A switch has room for so many jobs: ids of jobs that have left are given again and none is
// beyond, jobs for which there is none wait for one, and jobs without aggregation need no room.
func TestIDs(t *testing.T) {
	const n = 300
	for _, c := range []struct {
		ids, busiest int
		ring         bool
	}{{127, 40, false}, {2, 2, false}, {1, 1, true}} {
		t.Run(fmt.Sprintf("ids=%d", c.ids), func(t *testing.T) {
			inv := rack(40, 1e9, 50*time.Microsecond)
			var jobs []Job
			for i := range n {
				j := Job{Window: 64, Control: "fixed", Job: replay.Job{
					ID: i, Submit: float64(i) * 1e-3, GPUs: 3, Iterations: 2, Compute: 0.01, Bytes: 1e5,
				}}
				if c.ring && i%2 == 1 {
					j.Traffic = cluster.Ring
				}
				jobs = append(jobs, j)
			}
			w := &wire{Deployment: deploy(t, inv, settings), t: t, jobs: map[string]uint16{}, given: map[uint16]int{}}
			cfg := Config{Policy: baseline.FirstFit(), Inventory: inv, Settings: settings, Virtual: true, IDs: c.ids}
			r, err := Run(t.Context(), cfg, w, jobs)
			if err != nil || len(r.Jobs) != n {
				t.Fatalf("%d of %d jobs: %v", len(r.Jobs), n, err)
			}
			if int(w.highest[0]) > c.ids || w.busiest > c.busiest || c.ids < 10 && w.busiest < c.ids {
				t.Errorf("%d jobs with aggregation at once, ids up to %d, there is room for %d", w.busiest, w.highest[0], c.ids)
			}
			if c.ring && int(w.highest[1]) <= c.ids {
				t.Errorf("rings have ids up to %d, which others need", w.highest[1])
			}
			if w.given[1] < 2 {
				t.Errorf("id 1 was given %d times", w.given[1])
			}
			for _, j := range r.Jobs {
				if j.Start < j.Placed || j.End <= j.Start {
					t.Errorf("job %d was placed at %v, and ran from %v to %v", j.ID, j.Placed, j.Start, j.End)
				}
			}
		})
	}
}

// Jobs on one host need no room in switches, whatever they would do with it.
func TestLocalJobs(t *testing.T) {
	var jobs []Job
	for i := range 2 {
		jobs = append(jobs, Job{Window: 64, Control: "fixed", Job: replay.Job{ID: i, GPUs: 1, Iterations: 2, Compute: 0.1, Bytes: 1e5}})
	}
	inv := rack(4, 1e9, 50*time.Microsecond)
	cfg := Config{Policy: baseline.FirstFit(), Inventory: inv, Settings: settings, Virtual: true, IDs: 1}
	r, err := Run(t.Context(), cfg, deploy(t, inv, settings), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range r.Jobs {
		if j.Start > 0.05 {
			t.Errorf("job %d began at %v s", j.ID, j.Start)
		}
	}
}

// A run ends with its context.
func TestCancellation(t *testing.T) {
	inv := rack(5, 1e9, time.Millisecond)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cfg := Config{Policy: baseline.FirstFit(), Inventory: inv, Settings: settings, Virtual: true, Progress: func(p replay.Progress) {
		if p.Done == 2 {
			cancel(why)
		}
	}}
	d := deploy(t, inv, settings)
	r, err := Run(ctx, cfg, d, mix(rand.New(rand.NewPCG(1, 0)), 6))
	if !errors.Is(err, why) || len(r.Jobs) < 2 || len(r.Jobs) == 6 {
		t.Errorf("%d jobs done, error %v", len(r.Jobs), err)
	}
	if err := d.Close(ctx); err != nil {
		t.Error(err)
	}
}

// agreement is how well simulated job completion times agree with measured ones.
type agreement struct {
	Jobs    int
	Pearson float64 // correlation; NaN where all of one kind are equal
	MAE     float64 // mean of |simulated - measured| / measured
	Worst   float64 // the largest of these
	Bias    float64 // mean of (simulated - measured) / measured
}

// agree compares times of the same jobs, pair by pair.
func agree(measured, simulated []float64) agreement {
	n := min(len(measured), len(simulated))
	a := agreement{Jobs: n, Pearson: results.Pearson(measured[:n], simulated[:n])}
	for i := range n {
		d := (simulated[i] - measured[i]) / measured[i]
		a.MAE += math.Abs(d) / float64(n)
		a.Bias += d / float64(n)
		a.Worst = max(a.Worst, math.Abs(d))
	}
	return a
}
