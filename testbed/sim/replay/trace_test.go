package replay

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/trace"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// jobsOf makes the jobs of a trace train models drawn at random, which traces do not
// record.
func jobsOf(tr *trace.Trace) []Job {
	models := trace.NetPackModels()
	r := rand.New(rand.NewPCG(1, 1))
	var jobs []Job
	for i, j := range tr.Jobs {
		p, ok := workload.Lookup(models[r.IntN(len(models))])
		if !ok {
			panic("a model that is not in the catalogue")
		}
		compute := p.Compute().Seconds()
		jobs = append(jobs, Job{
			ID: i, Submit: j.Submit, GPUs: j.GPUs,
			Iterations: Iterations(j.Duration, compute), Compute: compute, Bytes: float64(p.Bytes()),
		})
	}
	return jobs
}

// generated is a trace with the marginals of Philly that fills 0.8 of 1,024 GPUs if
// the network costs nothing.
func generated(t testing.TB, n int) []Job {
	t.Helper()
	tr, err := trace.Generate(trace.Generator{Demand: trace.Philly, Jobs: n, Seed: 1, MaxGPUs: 32, Load: 0.8, Capacity: 1024})
	if err != nil {
		t.Fatal(err)
	}
	return jobsOf(tr)
}

// philly is a recorded trace, in the folder that INABENCH_TRACES names: four virtual
// clusters of Philly, 125 days, 508 GPUs busy on average.
func philly(t testing.TB) []Job {
	t.Helper()
	dir := os.Getenv("INABENCH_TRACES")
	if dir == "" {
		testbedtest.Require(t, "traces", errors.New("INABENCH_TRACES does not name their folder"))
	}
	tr, _, err := trace.Load(filepath.Join(dir, "philly_muri4vc.csv"), trace.Options{})
	testbedtest.Require(t, "traces", err)
	return jobsOf(tr)
}

// Every job of months of a cluster is accounted for.
func TestTrace(t *testing.T) {
	for _, tt := range []struct {
		name string
		jobs func(testing.TB) []Job
	}{
		{"generated", func(t testing.TB) []Job { return generated(t, 2000) }},
		{"philly", philly},
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
		{"generated", func(t testing.TB) []Job { return generated(t, 10879) }},
		{"philly", philly},
	} {
		for _, p := range append(baseline.All(), netpack.New(netpack.Options{})) {
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
