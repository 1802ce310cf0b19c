package replay

import (
	"math"
	"testing"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
)

// naive says when jobs end that start when and where they did in a replay: at every
// instant it makes a new cluster, enters whoever sends, and looks for whoever is ready
// first. No heap, no reuse, no memory of what changed.
func naive(t *testing.T, cfg Config, jobs []Job, started []JobResult) []float64 {
	type progress struct {
		iterations int     // whole ones to do
		compute    float64 // seconds left of the present one
		bits       float64 // left of it
	}
	now := 0.0
	left := map[int]*progress{}
	end := make([]float64, len(jobs))
	begun := make([]bool, len(jobs))
	for done := 0; done < len(jobs); {
		c := cluster.New(cfg.Cluster)
		for i, p := range left {
			if cfg.Fidelity == Fluid || p.compute == 0 {
				if err := c.Enter(cluster.Job{ID: i, GPUs: jobs[i].GPUs, Traffic: jobs[i].Traffic}, started[i].Placement); err != nil {
					t.Fatal(err)
				}
			}
		}
		next := math.Inf(1)
		for i := range jobs {
			if !begun[i] {
				next = min(next, started[i].Start)
			}
		}
		ready := map[int]float64{} // when a job's next phase, or all of it with Fluid, is over
		for i, p := range left {
			ready[i] = now + p.compute
			switch {
			case cfg.Fidelity == Fluid:
				ready[i] += p.bits / c.Rate(i)
			case p.compute == 0:
				ready[i] = now + p.bits/c.Rate(i)
			}
			next = min(next, ready[i])
		}
		for i, p := range left {
			switch {
			case ready[i] <= next && (cfg.Fidelity == Fluid || p.bits == 0 || p.compute == 0):
				if p.iterations--; p.iterations == 0 || cfg.Fidelity == Fluid {
					end[i] = next
					delete(left, i)
					done++
					continue
				}
				p.compute, p.bits = jobs[i].Compute, wireOf(cfg, &jobs[i], started[i].Placement)
			case ready[i] <= next:
				p.compute = 0
			case cfg.Fidelity == Fluid:
				part := (ready[i] - next) / (ready[i] - now)
				p.compute *= part
				p.bits *= part
			case p.compute > 0:
				p.compute -= next - now
			default:
				p.bits -= c.Rate(i) * (next - now)
			}
		}
		now = next
		for i := range jobs {
			if !begun[i] && started[i].Start <= now {
				begun[i] = true
				p := &progress{jobs[i].Iterations, jobs[i].Compute, wireOf(cfg, &jobs[i], started[i].Placement)}
				if cfg.Fidelity == Fluid {
					p.compute *= float64(jobs[i].Iterations)
					p.bits *= float64(jobs[i].Iterations)
				}
				left[i] = p
			}
		}
	}
	return end
}

func wireOf(cfg Config, j *Job, p cluster.Placement) float64 {
	switch n := float64(len(p.Parts)); {
	case p.Local():
		return 0
	case j.Traffic == cluster.Ring:
		// Full segments, and of 66 bytes an acknowledgement of two that come.
		return 8 * j.Bytes * (1514 + 66/2) / 1448 * 2 * (n - 1) / n
	}
	return math.Ceil(j.Bytes/960) * 8 * 1024 // whole frames
}

// A replay ends its jobs when the plain way of working it out does.
func TestAgainstNaive(t *testing.T) {
	r := rng(t)
	policies := baseline.All()
	for n := range 24 {
		cfg := Config{Cluster: small(r), Policy: policies[n/2%len(policies)], Period: float64(r.IntN(3)), Fidelity: Fidelity(n % 2), Seed: uint64(n)}
		jobs := random(r, 30, 12, true)
		got, err := Run(t.Context(), cfg, jobs)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range naive(t, cfg, jobs, got.Jobs) {
			if j := got.Jobs[i]; math.Abs(j.End-want) > 1e-6*want {
				t.Errorf("case %d, %s, %s: job %d ends at %v, want %v", n, cfg.Fidelity, cfg.Policy.Name(), j.ID, j.End, want)
			}
		}
	}
}

// A series has the mean of each interval, whatever the length of a step.
func TestSeries(t *testing.T) {
	r := rng(t)
	for range 20 {
		rec := recorder{from: 100 * r.Float64()}
		type step struct{ from, to, level float64 }
		var steps []step
		at, scale := rec.from, math.Exp(10*r.NormFloat64())
		for range 1 + r.IntN(300) {
			next := at + scale*math.Exp(2*r.NormFloat64())
			level := r.Float64()
			steps = append(steps, step{at, next, level})
			rec.add(at, next, levels{gpusBusy: level})
			at = next
		}
		s := rec.series()
		if len(s.GPUs) > most || s.To != at {
			t.Fatalf("%d values until %v, want %v", len(s.GPUs), s.To, at)
		}
		for i, got := range s.GPUs {
			from, to := s.From+float64(i)*s.Step, min(s.To, s.From+float64(i+1)*s.Step)
			var want float64
			for _, p := range steps {
				want += p.level * max(0, min(to, p.to)-max(from, p.from)) / (to - from)
			}
			if math.Abs(got-want) > 1e-6 && to-from > 1e-9*to {
				t.Errorf("from %v to %v: %v, want %v", from, to, got, want)
			}
		}
	}
}

// The heap gives segments in the order of their ends, whatever changes in between.
func TestHeap(t *testing.T) {
	r := rng(t)
	jobs := make([]state, 200)
	h := heap{jobs: jobs}
	in := map[int32]bool{}
	for range 5000 {
		i := int32(r.IntN(len(jobs)))
		switch {
		case !in[i]:
			jobs[i].due = float64(r.IntN(50))
			h.push(i)
			in[i] = true
		case r.IntN(2) == 0:
			h.remove(i)
			delete(in, i)
		default:
			jobs[i].due = float64(r.IntN(50))
			h.fix(i)
		}
		first := math.Inf(1)
		for i := range in {
			first = min(first, jobs[i].due)
		}
		if h.next() != first || len(h.at) != len(in) {
			t.Fatalf("first at %v of %d, want %v of %d", h.next(), len(h.at), first, len(in))
		}
	}
}
