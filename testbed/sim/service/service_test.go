package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/placement/workload"
)

// model is a job that trains a model of the catalogue, its layers cut into tensors of at most
// 16 MiB.
func model(name, of string, servers, workers int) Job {
	p, ok := workload.Lookup(of)
	if !ok {
		panic(of)
	}
	j := Job{Name: name, Servers: servers, Workers: workers}
	var at time.Duration
	for _, l := range p.Layers {
		at += l.Compute
		n := (l.Bytes + 16<<20 - 1) / (16 << 20)
		for k := range n {
			j.Tensors = append(j.Tensors, Tensor{l.Bytes*(k+1)/n - l.Bytes*k/n, at})
		}
	}
	return j
}

var seed = flag.Uint64("service.seed", 0, "of random tests; 0: a new one")

// random is a generator whose seed is printed.
func random(t testing.TB) *rand.Rand {
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("-service.seed %d", n)
	return rand.New(rand.NewPCG(n, 0))
}

const unit = time.Second

// toy is a network so fast that it takes no time, and an Aggregator that adds a byte a second.
func toy() Config {
	return Config{Rate: 1e30, Sum: 1, Profile: 2, Master: paramservice.DefaultMaster()}
}

// single is a job of one tensor and one worker.
func single(name string, compute, exec, iterations int) Job {
	return Job{Name: name, Tensors: []Tensor{{int64(exec), time.Duration(compute) * unit}}, Workers: 1, Servers: 1, Iterations: iterations}
}

func run(t testing.TB, c Config, jobs ...Job) *Result {
	t.Helper()
	r, err := Run(t.Context(), c, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// took are the iterations of a job, in units.
func took(o *Outcome) (out []float64) {
	for _, it := range o.Iterations {
		out = append(out, it.Took.Seconds()/unit.Seconds())
	}
	return out
}

// Figure 5: iterations of 6 and 12 share an Aggregator whose cycle is 12. J2 moves there at 48. Its
// first request there is at 57, in time that is left, and keeps the core until the cycle ends at 60, so
// that J1's request of 58 is postponed to its slot of the next. From then on both are as
// fast as alone.
func TestFigure5(t *testing.T) {
	j1, j2 := single("J1", 4, 2, 18), single("J2", 9, 3, 8)
	j2.Arrive = 12 * unit
	r := run(t, toy(), j1, j2)
	want := slices.Repeat([]float64{6}, 18)
	want[9] = 8
	if got := took(&r.Jobs[0]); !slices.Equal(got, want) {
		t.Errorf("J1 %v, want %v", got, want)
	}
	if got, want := took(&r.Jobs[1]), slices.Repeat([]float64{12}, 8); !slices.Equal(got, want) {
		t.Errorf("J2 %v, want %v", got, want)
	}
	if r.Jobs[0].Turns[paramservice.Postponed] != 1 || r.Jobs[1].Turns[paramservice.Postponed] != 0 {
		t.Errorf("turns %v and %v", r.Jobs[0].Turns, r.Jobs[1].Turns)
	}
	for at, want := range map[time.Duration]int{0: 1, 12: 2, 47: 2, 48: 1, 107: 1, 110: 0} {
		if got := r.At(at * unit).Aggregators; got != want {
			t.Errorf("at %d: %d Aggregators, want %d", at, got, want)
		}
	}
	if r.Jobs[0].Loss != 0 || r.Jobs[0].CPU != 36*unit || r.Jobs[1].CPU != 24*unit || r.Jobs[1].Moved != 1 {
		t.Errorf("%+v, %+v", r.Jobs[0], r.Jobs[1])
	}
	// Static servers: nothing is shared.
	c := toy()
	c.Static = true
	r = run(t, c, j1, j2)
	if got := slices.Max(took(&r.Jobs[0])); got != 6 || len(r.Machines) != 2 {
		t.Errorf("%v on %d servers", got, len(r.Machines))
	}
}

// An iteration alone, by hand: two workers push 1,000 bytes each through a server's NIC, the
// server adds, and both pull.
func TestIteration(t *testing.T) {
	c := Config{Static: true, Rate: 8000, Latency: time.Second / 4, Sum: 1000} // 1,000 bytes/s
	j := Job{Name: "j", Tensors: []Tensor{{1000, 3 * unit}}, Workers: 2, Servers: 1, Iterations: 3}
	r := run(t, c, j)
	// 3 computing, 2 pushing, 0.25, 2 adding, 2 pulling, 0.25
	if got := took(&r.Jobs[0]); !slices.Equal(got, []float64{9.5, 9.5, 9.5}) {
		t.Errorf("%v", got)
	}
	if m := r.Machines[0]; m.Busy != 6*unit || m.To != 28500*time.Millisecond {
		t.Errorf("%+v", m)
	}
	// On two servers the halves go side by side, but for the workers' own NICs, which are no
	// narrower than what two servers take from each.
	j.Tensors = []Tensor{{500, 3 * unit}, {500, 3 * unit}}
	j.Servers = 2
	r = run(t, c, j)
	if got := took(&r.Jobs[0]); !slices.Equal(got, []float64{6.5, 6.5, 6.5}) {
		t.Errorf("on two servers %v", got)
	}
	// One background flow more than workers on the server's way out: 2 of 4 parts are left.
	j.Tensors, j.Servers = []Tensor{{1000, 3 * unit}}, 1
	c.Background = 2
	r = run(t, c, j)
	if got := took(&r.Jobs[0]); !slices.Equal(got, []float64{11.5, 11.5, 11.5}) {
		t.Errorf("beside two flows %v", got)
	}
}

// Background flows that would begin before anybody is there begin with the first job, and end with its server: a job that is
// there longer is alone then.
func TestBackgroundWaits(t *testing.T) {
	c := Config{Static: true, Rate: 8000, Latency: time.Second / 4, Sum: 1000, Background: 2, From: unit}
	j := Job{Name: "j", Tensors: []Tensor{{1000, 3 * unit}}, Workers: 2, Servers: 1, Iterations: 3, Arrive: 5 * unit}
	k := j
	k.Name, k.Arrive, k.Iterations = "k", 6*unit, 5
	r := run(t, c, j, k)
	if got := took(&r.Jobs[0]); !slices.Equal(got, []float64{11.5, 11.5, 11.5}) {
		t.Errorf("the first job beside two flows %v", got)
	}
	if got := took(&r.Jobs[1]); !slices.Equal(got, []float64{9.5, 9.5, 9.5, 9.5, 9.5}) {
		t.Errorf("the other job %v", got)
	}
	if i := slices.IndexFunc(r.Changes, func(c Change) bool { return c.What == Disturbed }); i < 0 || r.Changes[i].At != j.Arrive {
		t.Errorf("%v", r.Changes)
	}
	if !r.Machines[0].Disturbed || r.Machines[1].Disturbed {
		t.Errorf("%+v", r.Machines)
	}
}

// An Aggregator that waits for jobs is not disturbed: the flows come with the job that it gets.
func TestBackgroundBesideNobody(t *testing.T) {
	c := toy()
	c.Master.Periodic, c.Period, c.Background, c.From = true, 1000*time.Hour, 2, 400*time.Hour
	j := Job{Name: "j", Tensors: []Tensor{{1000, 3 * unit}}, Workers: 2, Servers: 1, Iterations: 3}
	k := j
	k.Name, k.Arrive, k.Iterations = "k", 500*time.Hour, 5
	r := run(t, c, j, k)
	if i := slices.IndexFunc(r.Changes, func(c Change) bool { return c.What == Disturbed }); i < 0 || r.Changes[i].At < k.Arrive {
		t.Errorf("%v", r.Changes)
	}
}

// All tensors move after the second iteration. The third one's response says so, and then the tensor is
// copied, 1 s, while the worker computes. Where it computes for less than that, it waits for the rest.
func TestMigration(t *testing.T) {
	for _, tt := range []struct {
		compute time.Duration
		packing time.Duration
		want    []float64
	}{
		{3 * unit, 0, []float64{6, 6, 6, 6, 6}},
		{3 * unit, 2 * unit, []float64{6, 6, 6, 6, 6}}, // copied at 3, the gradient is there at 4
		// The copy leaves at 0.5, when the gradient has a quarter of its way; then they share the new
		// Aggregator's link, and the copy is there at 2.25.
		{unit / 4, unit / 2, []float64{3.25, 3.25, 3.25, 4.25, 3.25}},
		{unit / 4, 4 * unit, []float64{3.25, 3.25, 3.25, 7, 3.25}}, // from 4 to 5
	} {
		c := Config{Static: true, Rate: 8000, Sum: 1000, Packing: tt.packing, Migrate: 2}
		j := Job{Name: "j", Tensors: []Tensor{{1000, tt.compute}}, Workers: 1, Servers: 1, Iterations: 5}
		r := run(t, c, j)
		if got := took(&r.Jobs[0]); !slices.Equal(got, tt.want) {
			t.Errorf("computing %v, packing %v: %v, want %v", tt.compute, tt.packing, got, tt.want)
		}
		if r.Jobs[0].Moved != 2 || r.Jobs[0].CPU != 5*unit {
			t.Errorf("%+v", r.Jobs[0])
		}
	}
}

// TestMigrationOfNothing: an Aggregator that another replaces before a tensor has come to it is given back at once.
func TestMigrationOfNothing(t *testing.T) {
	jobs := []Job{single("j", 6, 1, 8), single("k", 6, 1, 8)}
	jobs[1].Arrive = 1
	for _, every := range []int{1, 2} { // also right after profiling, when both jobs are to go to one Aggregator
		c := toy()
		c.Migrate = every
		for _, m := range run(t, c, jobs...).Machines {
			if m.Busy == 0 && m.To-m.From > 7*unit+1 { // a tensor comes within an iteration
				t.Errorf("migrating every %d iterations: of no use from %v to %v", every, m.From, m.To)
			}
		}
	}
}

// Max-min shares by hand: two flows over one link, one of them also over a narrow one.
func TestShare(t *testing.T) {
	wide, narrow, other := link{rate: 100}, link{rate: 10}, link{rate: 60}
	var n network
	a := n.add(&flow{uses: []use{{&wide, 1}, {&narrow, 1}}})
	b := n.add(&flow{uses: []use{{&wide, 2}}})
	d := n.add(&flow{uses: []use{{&wide, 1}, {&other, 3}}})
	idle := n.add(&flow{uses: []use{{&wide, 1}}})
	for _, f := range []*flow{a, b, d} {
		n.send(f, 1e6, nil)
	}
	n.next()
	// a: 10; d: 60/3; b: what is left, twice 35.
	if a.rate != 10 || d.rate != 20 || b.rate != 35 || idle.rate != 0 {
		t.Errorf("%v %v %v %v", a.rate, b.rate, d.rate, idle.rate)
	}
}

// Figure 10 in small: a job of two servers is alone, another comes, shares its Aggregators, is too slow by their
// links, which the planner does not know, gets a third one, and it is given back when the job leaves.
func TestFigure10(t *testing.T) {
	vgg, alex := model("VGG19", "vgg19", 2, 2), model("AlexNet", "alexnet", 2, 2)
	for i := range vgg.Tensors {
		vgg.Tensors[i].Ready = vgg.Tensors[i].Ready * 503 / 282
	}
	for i := range alex.Tensors {
		alex.Tensors[i].Ready = alex.Tensors[i].Ready * 96 / 23
	}
	vgg.Stay, alex.Arrive, alex.Stay = 50*time.Second, 10*time.Second, 32*time.Second
	c := Config{Rate: 40e9, Sum: 14.25e9, Profile: 10, Jitter: 0.02, Seed: 1, Latency: 10 * time.Microsecond, Master: paramservice.DefaultMaster()}
	c.Master.Aggregators = 8
	r := run(t, c, vgg, alex)
	var b strings.Builder
	for _, x := range r.Changes {
		fmt.Fprintf(&b, "%6.2f s  %-8s %-8s %d Aggregators, %d asked for\n", x.At.Seconds(), x.Job, x.What, r.At(x.At+time.Second).Aggregators, r.At(x.At).Required)
	}
	for i, o := range r.Jobs {
		fmt.Fprintf(&b, "%s: %d iterations, turns %v, %d tensors moved, lost %.4f by the model\n", []string{vgg.Name, alex.Name}[i], len(o.Iterations), o.Turns, o.Moved, o.Loss)
	}
	golden.Compare(t, "figure10.golden", b.String())
}

// What a core does is told interval by interval, over the edges of intervals, and nothing after the last one.
func TestUsage(t *testing.T) {
	c := toy()
	c.Static, c.Usage = true, 2*unit
	r := run(t, c, single("j", 3, 2, 2)) // it adds from 3 to 5 and from 8 to 10
	if got, want := r.Machines[0].Usage, []float64{0, 0.5, 0.5, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	c.Usage = 0
	if r = run(t, c, single("j", 3, 2, 2)); r.Machines[0].Usage != nil {
		t.Errorf("nobody asked for %v", r.Machines[0].Usage)
	}
}

// Iterations are as much longer as the draws say that a testbed has, too: on average they are as long as without.
func TestSlower(t *testing.T) {
	c := toy()
	c.Static, c.Jitter, c.Seed = true, 0.1, 7
	j := single("j", 4, 2, 400)
	r := run(t, c, j)
	slower, sum, squares := c.Slower("j"), 0.0, 0.0
	for k, got := range took(&r.Jobs[0]) {
		by := slower()
		if want := 4*by + 2; math.Abs(got-want) > 1e-6 {
			t.Fatalf("iteration %d takes %v, want %v", k, got, want)
		}
		sum += by
		squares += by * by
	}
	n := float64(j.Iterations)
	mean := sum / n
	if deviation := math.Sqrt(squares/n - mean*mean); math.Abs(mean-1) > 0.02 || math.Abs(deviation-c.Jitter) > 0.02 {
		t.Errorf("draws of mean %v and deviation %v", mean, deviation)
	}
	if a, b := c.Slower("j")(), c.Slower("k")(); a == b {
		t.Errorf("two jobs have the same draws: %v", a)
	}
	c.Jitter = 0
	if by := c.Slower("j")(); by != 1 {
		t.Errorf("without jitter %v", by)
	}
}

// However much draws differ they are 1 on average: what they are cut off at is as far from 1 on both sides.
func TestSlowerMean(t *testing.T) {
	for _, jitter := range []float64{0.02, 0.3, 0.6, 0.99} {
		c := Config{Jitter: jitter, Seed: 11}
		const n = 20000
		slower, sum := c.Slower("j"), 0.0
		for range n {
			sum += slower()
		}
		if mean := sum / n; math.Abs(mean-1) > 0.02 {
			t.Errorf("jitter %v: %v on average", jitter, mean)
		}
	}
}

// What holds whatever comes.
func TestProperties(t *testing.T) {
	r := random(t)
	for range 40 {
		c := Config{
			Static: r.IntN(4) == 0, Rate: 1e6 * (1 + 9*r.Float64()), Sum: 1e5 * (1 + 9*r.Float64()), Latency: time.Duration(r.IntN(3)) * time.Millisecond,
			Profile: 2 + r.IntN(3), Packing: time.Duration(r.IntN(20)) * time.Millisecond, Jitter: 0.1 * float64(r.IntN(2)), Seed: r.Uint64(),
			Master: paramservice.DefaultMaster(), Migrate: 7 * r.IntN(2), Background: 3 * r.IntN(2), From: unit, Period: 5 * unit, Usage: 50 * time.Millisecond,
		}
		c.Master.Periodic, c.Master.Iterations = r.IntN(2) == 0, 10
		if r.IntN(3) == 0 {
			c.Master.Aggregators = 4
		}
		var jobs []Job
		for k := range 1 + r.IntN(5) {
			j := Job{Name: fmt.Sprint("job", k), Workers: 1 + r.IntN(3), Servers: 1 + r.IntN(3), Iterations: 5 + r.IntN(40), Arrive: time.Duration(r.IntN(20)) * unit}
			at := time.Duration(0)
			for range 1 + r.IntN(8) {
				at += time.Duration(1 + r.IntN(100)*int(time.Millisecond))
				j.Tensors = append(j.Tensors, Tensor{4 * r.Int64N(2000), at})
			}
			jobs = append(jobs, j)
		}
		one, err := Run(t.Context(), c, jobs)
		if err != nil {
			t.Fatalf("%v\n%+v\n%+v", err, c, jobs)
		}
		if two := run(t, c, jobs...); !reflect.DeepEqual(one, two) {
			t.Fatal("not deterministic")
		}
		var busy, used time.Duration
		for _, m := range one.Machines {
			busy += m.Busy
			if m.Busy > m.To-m.From {
				t.Fatalf("more work than time: %+v", m)
			}
			sum := 0.0
			for _, u := range m.Usage {
				if u > 1+1e-9 {
					t.Fatalf("more than all of an interval: %v", u)
				}
				sum += u * c.Usage.Seconds()
			}
			if diff := sum - m.Busy.Seconds(); math.Abs(diff) > 1e-6 {
				t.Fatalf("intervals come to %v s, the whole to %v", sum, m.Busy)
			}
		}
		for i, o := range one.Jobs {
			j := &jobs[i]
			var each time.Duration
			for _, e := range c.Tasks(j) {
				each += e
			}
			if used += o.CPU; o.CPU != each*time.Duration(j.Iterations) || len(o.Iterations) != j.Iterations {
				t.Fatalf("%s: %v of CPU time for %d iterations of %v each", j.Name, o.CPU, len(o.Iterations), each)
			}
			end := o.Start
			for k, it := range o.Iterations {
				if it.End-it.Took != end || c.Jitter == 0 && it.Took < j.Compute() {
					t.Fatalf("%s: iteration %d, %+v, after %v", j.Name, k, it, end)
				}
				end = it.End
			}
			if end != o.End || o.Start < j.Arrive || o.Loss > c.Master.LossLimit {
				t.Fatalf("%s: %v to %v, lost %v", j.Name, o.Start, o.End, o.Loss)
			}
		}
		if busy != used {
			t.Fatalf("Aggregators were busy for %v, jobs used %v", busy, used)
		}
		if last := one.At(one.End); last.Required != 0 || c.Static && c.Migrate == 0 && last.Aggregators != 0 {
			t.Fatalf("in the end %+v", last)
		}
	}
}

func TestErrors(t *testing.T) {
	good := single("a", 4, 2, 3)
	with := func(change func(c *Config, j *Job)) func() error {
		return func() error {
			c, j := toy(), good
			j.Tensors = slices.Clone(j.Tensors)
			change(&c, &j)
			_, err := Run(t.Context(), c, []Job{j})
			return err
		}
	}
	for name, do := range map[string]func() error{
		"no rate":           with(func(c *Config, j *Job) { c.Rate = 0 }),
		"nothing is added":  with(func(c *Config, j *Job) { c.Sum = 0 }),
		"no profile":        with(func(c *Config, j *Job) { c.Profile = 1 }),
		"wild jitter":       with(func(c *Config, j *Job) { c.Jitter = 2 }),
		"negative latency":  with(func(c *Config, j *Job) { c.Latency = -1 }),
		"no period":         with(func(c *Config, j *Job) { c.Master.Periodic = true }),
		"no name":           with(func(c *Config, j *Job) { j.Name = "" }),
		"no tensors":        with(func(c *Config, j *Job) { j.Tensors = nil }),
		"no workers":        with(func(c *Config, j *Job) { j.Workers = 0 }),
		"no servers":        with(func(c *Config, j *Job) { j.Servers = 0 }),
		"arrives before":    with(func(c *Config, j *Job) { j.Arrive = -1 }),
		"never ends":        with(func(c *Config, j *Job) { j.Iterations = 0 }),
		"computes nothing":  with(func(c *Config, j *Job) { j.Tensors[0].Ready = 0 }),
		"less than nothing": with(func(c *Config, j *Job) { j.Tensors[0].Bytes = -1 }),
	} {
		if err := do(); !errors.Is(err, ErrJob) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Run(t.Context(), toy(), []Job{good, good}); !errors.Is(err, ErrJob) {
		t.Errorf("twice the same: %v", err)
	}
	// More servers than there may be Aggregators.
	for _, periodic := range []bool{false, true} {
		c, j := toy(), good
		c.Master.Aggregators, c.Master.Periodic, c.Period = 1, periodic, unit
		j.Servers = 2
		if _, err := Run(t.Context(), c, []Job{j}); !errors.Is(err, ErrStuck) {
			t.Errorf("periodic %v: %v", periodic, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, toy(), []Job{good}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
