package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/placement/trace"
)

// philly is a trace of so many jobs on 2,000 GPUs: a worker has 4, and a server is asked for
// with each, by those that have more than one.
func philly(t testing.TB, jobs int) []TraceJob {
	tr, err := trace.Generate(trace.Generator{Demand: trace.Philly, Jobs: jobs, Seed: 1, MaxGPUs: 128, Load: 0.8, Capacity: 2000})
	if err != nil {
		t.Fatal(err)
	}
	var out []TraceJob
	for i, j := range tr.Jobs {
		w := (j.GPUs + 3) / 4
		p := model("", []string{"alexnet", "vgg19", "awd-lstm", "bert-base"}[i%4], w, w)
		c := Config{Sum: 13e9}
		k := TraceJob{Name: j.ID, Submit: time.Duration(j.Submit * 1e9), Duration: time.Duration(j.Duration * 1e9), GPUs: j.GPUs}
		k.Profile = paramservice.Job{Iteration: p.Compute() * 3, Tasks: c.Tasks(&p), Servers: w}
		for _, t := range p.Tensors {
			k.Bytes = append(k.Bytes, t.Bytes)
		}
		out = append(out, k)
	}
	return out
}

func BenchmarkReplay(b *testing.B) {
	for _, periodic := range []bool{false, true} {
		b.Run(fmt.Sprintf("periodic=%v", periodic), func(b *testing.B) {
			jobs := philly(b, 10_000)
			c := ReplayConfig{Master: paramservice.DefaultMaster(), Period: 10 * time.Minute, Profiling: time.Minute, GPUs: 2000}
			c.Master.Periodic, c.Master.Threshold = periodic, 8
			for b.Loop() {
				r, err := Replay(b.Context(), c, jobs)
				if err != nil {
					b.Fatal(err)
				}
				u := r.Usage(r.End)
				x := r.Ratios(time.Minute, r.End)
				b.ReportMetric(100*u.Saved(), "%saved")
				b.ReportMetric(float64(u.Most), "most")
				b.ReportMetric(u.Worst, "worst")
				b.ReportMetric(u.Above*100, "%above")
				b.ReportMetric(float64(len(x)), "minutes")
			}
		})
	}
}

// traced is a job of one tensor.
func traced(name string, submit, duration, gpus, iteration, exec, servers int) TraceJob {
	return TraceJob{Name: name, Submit: time.Duration(submit) * unit, Duration: time.Duration(duration) * unit, GPUs: gpus, Bytes: []int64{1},
		Profile: paramservice.Job{Iteration: time.Duration(iteration) * unit, Tasks: []time.Duration{time.Duration(exec) * unit}, Servers: servers}}
}

// By hand: a loses a tenth of its speed from when b has left its temporary Aggregator at 100, in
// a cycle of 10, with 800 s left. c waits for GPUs, and d, which asks for fewer, goes first.
func TestReplay(t *testing.T) {
	c := ReplayConfig{Master: paramservice.DefaultMaster(), Profiling: 10 * unit, GPUs: 4}
	r, err := Replay(t.Context(), c, []TraceJob{
		traced("a", 0, 900, 2, 9, 1, 1), traced("b", 90, 1000, 1, 10, 1, 1),
		traced("c", 95, 50, 2, 10, 9, 1), {Name: "d", Submit: 96 * unit, Duration: 20 * unit, GPUs: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	end := 100*unit + time.Duration(math.Ceil(800/0.9*float64(unit)))
	for i, want := range []Outcome{
		{Started: true, Start: 0, End: end, CPU: 100 * unit, Work: 900 * unit, Loss: 0.1},
		{Started: true, Start: 90 * unit, End: 1090 * unit, CPU: 100 * unit, Work: 1000 * unit, Moved: 1},
		{Started: true, Start: end, End: end + 50*unit, CPU: 45 * unit, Work: 50 * unit, Moved: 1},
		{Started: true, Start: 96 * unit, End: 116 * unit, Work: 20 * unit},
	} {
		got := r.Jobs[i]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("job %d: %+v, want %+v", i, got, want)
		}
	}
	for _, tt := range []struct{ at, have, asked int }{{0, 1, 1}, {89, 1, 1}, {90, 2, 2}, {100, 1, 2}, {990, 2, 2}, {1089, 1, 1}, {1090, 0, 0}} {
		if got := r.At(time.Duration(tt.at) * unit); got.Aggregators != tt.have || got.Required != tt.asked {
			t.Errorf("at %d: %+v, want %d of %d", tt.at, got, tt.have, tt.asked)
		}
	}
	// Ratios at 0, 100, ..., 1000: a alone, then a and b on one, then b and c.
	want := append(slices.Repeat([]float64{0.5}, 10), 1)
	if got := r.Ratios(100*unit, r.End); !slices.Equal(got, want) {
		t.Errorf("ratios %v, want %v", got, want)
	}
	u := r.Usage(100 * unit)
	if u != (Usage{Aggregators: 110, Required: 110, Most: 2, Worst: 1}) {
		t.Errorf("%+v", u)
	}
}

// What holds whatever comes: nobody is slower than the limit allows, GPUs are enough, and what was
// asked for and given adds up.
func TestReplayProperties(t *testing.T) {
	r := random(t)
	for range 30 {
		c := ReplayConfig{Master: paramservice.DefaultMaster(), Profiling: time.Duration(r.IntN(100)) * unit, GPUs: 8 * r.IntN(2), Period: time.Duration(1+r.IntN(500)) * unit}
		c.Master.Periodic, c.Master.Threshold, c.Master.Most = r.IntN(2) == 0, r.IntN(4), 2+r.IntN(6)
		var jobs []TraceJob
		for k := range 1 + r.IntN(40) {
			j := traced(fmt.Sprint("job", k), r.IntN(2000), 1+r.IntN(2000), 1+r.IntN(8), 1+r.IntN(20), 0, 1+r.IntN(3))
			j.Profile.Tasks, j.Bytes = nil, nil
			for range r.IntN(5) {
				j.Profile.Tasks = append(j.Profile.Tasks, time.Duration(r.Int64N(int64(j.Profile.Iteration)/3)))
				j.Bytes = append(j.Bytes, r.Int64N(1000))
			}
			jobs = append(jobs, j)
		}
		one, err := Replay(t.Context(), c, jobs)
		if err != nil {
			t.Fatal(err)
		}
		two, err := Replay(t.Context(), c, jobs)
		if err != nil || !reflect.DeepEqual(one, two) {
			t.Fatalf("not deterministic: %v", err)
		}
		asked := 0.0
		for i, o := range one.Jobs {
			j := &jobs[i]
			span := o.End - o.Start
			if !o.Started || o.Start < j.Submit || o.Loss > c.Master.LossLimit || span < j.Duration || float64(span) > float64(j.Duration)/(1-c.Master.LossLimit)+10 {
				t.Fatalf("%+v of %+v", o, j)
			}
			gpus := 0
			for k, p := range one.Jobs {
				if p.Start <= o.Start && o.Start < p.End {
					gpus += jobs[k].GPUs
				}
			}
			if c.GPUs > 0 && gpus > c.GPUs {
				t.Fatalf("%d GPUs of %d at %v", gpus, c.GPUs, o.Start)
			}
			if len(j.Bytes) > 0 {
				asked += float64(j.Profile.Servers) * span.Seconds()
			}
		}
		if u := one.Usage(one.End); math.Abs(u.Required-asked) > 1e-6*(1+asked) {
			t.Fatalf("asked for %v, counted %v", asked, u.Required)
		}
	}
}

func TestReplayErrors(t *testing.T) {
	good := traced("a", 0, 10, 1, 2, 1, 1)
	for name, change := range map[string]func(c *ReplayConfig, j *TraceJob){
		"no period":       func(c *ReplayConfig, j *TraceJob) { c.Master.Periodic = true },
		"no name":         func(c *ReplayConfig, j *TraceJob) { j.Name = "" },
		"no duration":     func(c *ReplayConfig, j *TraceJob) { j.Duration = 0 },
		"too many GPUs":   func(c *ReplayConfig, j *TraceJob) { c.GPUs, j.GPUs = 4, 5 },
		"no servers":      func(c *ReplayConfig, j *TraceJob) { j.Profile.Servers = 0 },
		"a size too many": func(c *ReplayConfig, j *TraceJob) { j.Bytes = []int64{1, 2} },
	} {
		c, j := ReplayConfig{Master: paramservice.DefaultMaster()}, good
		change(&c, &j)
		if _, err := Replay(t.Context(), c, []TraceJob{j}); !errors.Is(err, ErrJob) {
			t.Errorf("%s: %v", name, err)
		}
	}
	j := good
	j.Profile.Iteration = 0
	if _, err := Replay(t.Context(), ReplayConfig{}, []TraceJob{j}); !errors.Is(err, paramservice.ErrJob) {
		t.Error(err)
	}
	if _, err := Replay(t.Context(), ReplayConfig{}, []TraceJob{good, good}); !errors.Is(err, ErrJob) {
		t.Error(err)
	}
	j = traced("a", 0, 10, 1, 2, 1, 3)
	c := ReplayConfig{Master: paramservice.DefaultMaster()}
	c.Master.Aggregators = 2
	if _, err := Replay(t.Context(), c, []TraceJob{j}); !errors.Is(err, ErrStuck) {
		t.Error(err)
	}
	c.Master.Periodic, c.Period = true, unit
	if _, err := Replay(t.Context(), c, []TraceJob{j}); !errors.Is(err, ErrStuck) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Replay(ctx, ReplayConfig{Master: paramservice.DefaultMaster()}, []TraceJob{good}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// BenchmarkRun is two minutes of four jobs of two servers and two workers each.
func BenchmarkRun(b *testing.B) {
	c := Config{Rate: 60e9, Sum: 14.25e9, Profile: 10, Jitter: 0.02, Seed: 1, Latency: 10 * time.Microsecond, Master: paramservice.DefaultMaster(), End: 2 * time.Minute}
	var jobs []Job
	for i, m := range []string{"alexnet", "vgg19", "awd-lstm", "bert-base"} {
		j := model(m, m, 2, 2)
		j.Arrive = time.Duration(3*i) * time.Second
		jobs = append(jobs, j)
	}
	for b.Loop() {
		if _, err := Run(b.Context(), c, jobs); err != nil {
			b.Fatal(err)
		}
	}
}
