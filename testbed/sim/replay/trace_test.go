package replay

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// models are NetPack's (section 6.1). Traces do not say which a job trains.
var models = []string{"vgg11", "vgg16", "vgg19", "alexnet", "resnet50", "resnet101"}

// train makes a job of a trace train a model drawn at random.
func train(r *rand.Rand, id int, submit, duration float64, gpus int) Job {
	p, ok := workload.Lookup(models[r.IntN(len(models))])
	if !ok {
		panic("no such model")
	}
	compute := p.Compute().Seconds()
	return Job{ID: id, Submit: submit, GPUs: gpus, Iterations: Iterations(duration, compute), Compute: compute, Bytes: float64(p.Bytes())}
}

// generated is a trace of the shape of four virtual clusters of Philly (Jeon et al.,
// ATC '19) that placement papers replay: 10,879 jobs in 125 days, bursts of arrivals,
// 1 to 32 GPUs, median of durations 2 hours, mean 37.
func generated(seed uint64, n int) []Job {
	r := rand.New(rand.NewPCG(seed, 1))
	var jobs []Job
	at := 0.0
	for i := range n {
		if r.IntN(4) == 0 {
			at += r.ExpFloat64() * 4 * 125 * 86400 / 10879
		}
		gpus := 32
		for u, g := r.Float64(), 0; g < 5; g++ {
			if u < []float64{0.431, 0.473, 0.657, 0.939, 0.982}[g] {
				gpus = []int{1, 2, 4, 8, 16}[g]
				break
			}
		}
		duration := min(4.6e6, math.Exp(math.Log(7700)+2.55*r.NormFloat64()))
		jobs = append(jobs, train(r, i, at, duration, gpus))
	}
	return jobs
}

// philly is the recorded trace of that shape, in the folder that INABENCH_TRACES names.
func philly(t testing.TB, seed uint64) []Job {
	t.Helper()
	dir := os.Getenv("INABENCH_TRACES")
	if dir == "" {
		testbedtest.Require(t, "traces", errors.New("INABENCH_TRACES does not name their folder"))
	}
	f, err := os.Open(filepath.Join(dir, "philly_muri4vc.csv"))
	testbedtest.Require(t, "traces", err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var jobs []Job
	for i, row := range rows[1:] {
		var v [3]float64 // submit_s, duration_s, gpus
		for k := range v {
			if v[k], err = strconv.ParseFloat(row[k+1], 64); err != nil {
				t.Fatalf("row %d: %v", i+2, err)
			}
		}
		jobs = append(jobs, train(r, i, v[0], v[1], int(v[2])))
	}
	return jobs
}

// Every job of months of a cluster is accounted for.
func TestTrace(t *testing.T) {
	for _, tt := range []struct {
		name string
		jobs func(testing.TB) []Job
	}{
		{"generated", func(testing.TB) []Job { return generated(1, 2000) }},
		{"philly", func(t testing.TB) []Job { return philly(t, 1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() && tt.name == "philly" {
				t.Skip("takes seconds")
			}
			jobs := tt.jobs(t)
			r, err := Run(t.Context(), Config{Policy: baseline.FirstFit(), Period: 60}, jobs)
			if err != nil {
				t.Fatal(err)
			}
			var want float64
			for _, j := range r.Jobs {
				want += float64(j.GPUs) * j.JCT()
			}
			s := r.Summary
			if got := s.GPUs * s.Makespan * 1024; math.Abs(got-want) > 1e-6*want || len(r.Jobs) != len(jobs) {
				t.Errorf("%d of %d jobs, %v GPU-seconds, want %v", len(r.Jobs), len(jobs), got, want)
			}
			t.Logf("%d batches, %d events, %+v", r.Batches, r.Events, s)
		})
	}
}

// BenchmarkReplay replays 10,879 jobs on the paper's 256 servers, placed every minute.
// sys-MB is all memory that the process ever had from the system.
func BenchmarkReplay(b *testing.B) {
	for _, tt := range []struct {
		name string
		jobs func(testing.TB) []Job
	}{
		{"generated", func(testing.TB) []Job { return generated(1, 10879) }},
		{"philly", func(t testing.TB) []Job { return philly(t, 1) }},
	} {
		for _, p := range baseline.All() {
			b.Run(fmt.Sprintf("%s/%s", tt.name, p.Name()), func(b *testing.B) {
				jobs := tt.jobs(b)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Run(b.Context(), Config{Policy: p, Period: 60}, jobs); err != nil {
						b.Fatal(err)
					}
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(len(jobs)*b.N)/b.Elapsed().Seconds(), "jobs/s")
				b.ReportMetric(float64(m.Sys)/1e6, "sys-MB")
			})
		}
	}
}
