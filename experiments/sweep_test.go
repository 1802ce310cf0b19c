package experiments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
)

// sweepText is a sweep over two policies: so many points of a 128-GPU cluster.
func sweepText(jobs, points int) []byte {
	return fmt.Appendf(nil, `version = 1
on = "sim"
[fat_tree]
racks = 4
hosts = 8
gpus = 4
rate = "100Gbit/s"
[trace]
from = "philly"
jobs = %d
[[sweep]]
key = "placement.policy"
values = ["netpack", "gpu-balance"]
[measure]
repeats = %d
`, jobs, points/2)
}

// spin is work for a core that touches no memory.
func spin(n int) (x uint64) {
	for range n {
		x = x*6364136223846793005 + 1442695040888963407
		x ^= x >> 29
	}
	return x
}

// jobSweep is a sweep over the memory of a switch: so many points of a job whose packets are simulated.
func jobSweep(points int) []byte {
	ratios := make([]string, points)
	for i := range ratios {
		ratios[i] = fmt.Sprint(0.05 + 0.95*float64(i+1)/float64(points))
	}
	return fmt.Appendf(nil, `version = 1
on = "sim"
inventory = "racks/three-hosts.toml"
[switch]
addressing = "pool"
queue = "fair"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
rate = "40Gbit/s"
[[sweep]]
key = "switch.pat_ratio"
values = [%s]
`, strings.Join(ratios, ", "))
}

// BenchmarkSweep runs 2,000 points (200 of those whose packets are simulated) on one core and then on two, from reading the experiment to the
// reports on disk, and says how much faster two are. A loop in registers, half of it on each core,
// says how much faster they can be on this machine.
//
//	go test ./experiments -run '^$' -bench Sweep -benchtime 5x
func BenchmarkSweep(b *testing.B) {
	for _, c := range []struct {
		name   string
		text   []byte
		points int
	}{{"trace-of-100", sweepText(100, 2000), 2000}, {"trace-of-1000", sweepText(1000, 2000), 2000}, {"job", jobSweep(200), 200}} {
		b.Run(c.name, func(b *testing.B) { benchmarkSweep(b, c.text, float64(c.points)) })
	}
}

func benchmarkSweep(b *testing.B, text []byte, points float64) {
	root := b.TempDir()
	sweep := func() {
		s, err := kinds.Parse("sweep.toml", text, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, dir, err := Run(b.Context(), s, RunOptions{Driver: "sim", Root: root}); err != nil {
			b.Fatal(err)
		} else if err := os.RemoveAll(dir.Path); err != nil {
			b.Fatal(err)
		}
	}
	loop := func() {
		const n = 400_000_000
		var wg sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() { runtime.KeepAlive(spin(n / runtime.GOMAXPROCS(0))) })
		}
		wg.Wait()
	}
	if runtime.NumCPU() < 2 {
		b.Skip("one core")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	runtime.LockOSThread() // as inabench's main goroutine is
	defer runtime.UnlockOSThread()
	timed := func(cores int, what func()) time.Duration {
		runtime.GOMAXPROCS(cores)
		runtime.GC()
		began := time.Now()
		what()
		return time.Since(began)
	}
	var spent, spun [3][]time.Duration // by cores
	for b.Loop() {                     // alternating, so that what else the machine does meets both alike
		for cores := 1; cores <= 2; cores++ {
			spun[cores] = append(spun[cores], timed(cores, loop))
			spent[cores] = append(spent[cores], timed(cores, sweep))
		}
	}
	median := func(of []time.Duration) float64 {
		slices.Sort(of)
		return of[len(of)/2].Seconds()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(points/median(spent[1]), "points/s-1")
	b.ReportMetric(points/median(spent[2]), "points/s-2")
	b.ReportMetric(median(spent[1])/median(spent[2]), "speed-up")
	b.ReportMetric(median(spun[1])/median(spun[2]), "speed-up-of-loop")
}

// What a sweep comes to does not depend on how many points are simulated at a time, or in which
// order they end: the record is the same but for times, and so is what was kept beside it.
func TestSweepInAnyOrder(t *testing.T) {
	sweep := func(text []byte, procs int, b Batch) string {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		s, err := kinds.Parse("sweep.toml", text, nil)
		if err != nil {
			t.Fatal(err)
		}
		rec, dir, err := Run(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir(), Batch: b})
		if err != nil {
			t.Fatal(err)
		}
		rec.ID, rec.Hosts, rec.Timings = "", nil, nil
		rec.Started, rec.Finished = time.Time{}, time.Time{}
		out, err := json.MarshalIndent(rec, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if kinds.Of(s).Columns() == nil {
			samples, err := dir.Samples()
			if err != nil || len(samples) == 0 {
				t.Fatalf("%d samples, %v", len(samples), err)
			}
			return fmt.Sprintf("%s\n%v", out, samples)
		}
		jobs, err := os.ReadFile(filepath.Join(dir.Path, "jobs.csv.gz"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s\n%x", out, jobs)
	}
	points, orders := 24, []int{2, 7}
	if !proof.Wanted() { // a job's packets take a second a point
		points, orders = 2, orders[1:]
	}
	trace, inOrder := sweepText(20, 24), ""
	for name, text := range map[string][]byte{"trace": trace, "job": jobSweep(points)} {
		want := sweep(text, 1, nil)
		if name == "trace" {
			inOrder = want
		}
		for _, procs := range orders {
			if got := sweep(text, procs, nil); got != want {
				t.Errorf("%s with %d at a time: %s", name, procs, difference(got, want))
			}
		}
	}
	if got := sweep(trace, 2, backwards{}); got != inOrder {
		t.Errorf("from the last point to the first: %s", difference(got, inOrder))
	}
}

// difference is where two texts begin to differ.
func difference(got, want string) string {
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	around := func(s string) string { return s[max(0, n-80):min(len(s), n+80)] }
	return fmt.Sprintf("got …%s…, want …%s…", around(got), around(want))
}

// backwards is a Batch that computes the last part first, within this process.
type backwards struct{}

func (b backwards) Start(ctx context.Context, n int, _, _ string, command []string) (Submitted, error) {
	for part := n - 1; part >= 0; part-- {
		if err := CellsMain(ctx, append(command[2:], fmt.Sprint(part))); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (backwards) Active(context.Context) (bool, error) { return false, nil }
func (backwards) Cancel(context.Context) error         { return nil }
func (backwards) String() string                       { return "the last part first" }

// cutOff is a Batch that computes the first part and then ends.
type cutOff struct{ backwards }

var errCutOff = errors.New("cut off")

func (cutOff) Start(ctx context.Context, _ int, _, _ string, command []string) (Submitted, error) {
	return nil, errors.Join(CellsMain(ctx, append(command[2:], "0")), errCutOff)
}

// The points of a run that was cut off are those of another experiment once a file that it names
// has changed, and machines where it is another one do not compute any.
func TestResumeOfOtherFiles(t *testing.T) {
	const (
		jobs  = "job_id,submit_s,duration_s,gpus\na,100,1000,16\nb,5000,2000,8\n"
		model = "[[model]]\nname = \"mine\"\ngradient_bytes = [4000000]\ncompute_us = [%d]\nsource = \"test\"\ncompute = \"measured\"\n"
	)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("jobs.csv", jobs)
	write("mine.toml", fmt.Sprintf(model, 100_000))
	write("sweep.toml", string(bytes.Replace(bytes.Replace(sweepText(1, 24),
		[]byte(`on = "sim"`), []byte("on = \"sim\"\ncatalogue = \"mine.toml\""), 1),
		[]byte("from = \"philly\"\njobs = 1"), []byte("from = \"jobs.csv\"\nmodels = [\"mine\"]"), 1)))
	run := func(o RunOptions) (*results.Record, *results.Dir, error) {
		t.Helper()
		s, err := kinds.Load(filepath.Join(dir, "sweep.toml"))
		if err != nil {
			t.Fatal(err)
		}
		o.Driver, o.Root = "sim", t.TempDir()
		return Run(t.Context(), s, o)
	}
	_, cut, err := run(RunOptions{Batch: cutOff{}})
	if !errors.Is(err, errCutOff) {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"jobs.csv": jobs + "c,6000,10,8\n", "mine.toml": fmt.Sprintf(model, 200_000)} {
		was, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, text)
		if _, _, err := run(RunOptions{Batch: backwards{}, Resume: cut.Path}); !errors.Is(err, spec.ErrInput) {
			t.Errorf("resumed after %s changed: %v", name, err)
		}
		if err := CellsMain(t.Context(), []string{filepath.Join(cut.Path, cellsDir), "1"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("computed where %s is another one: %v", name, err)
		}
		write(name, string(was))
	}
	rec, _, err := run(RunOptions{Batch: backwards{}, Resume: cut.Path})
	if err != nil {
		t.Fatalf("resumed as it was: %v", err)
	}
	for _, name := range []string{"jobs.csv", "mine.toml"} { // and its history is one of these files
		if len(rec.Files) != 2 || rec.Files[filepath.Join(dir, name)] == "" {
			t.Errorf("the record has files %v", rec.Files)
		}
	}
}
