package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Demand is how many GPUs the jobs of a generated trace ask for, and how long they run.
type Demand string

const (
	// Poisson and Normal are the synthetic workloads of NetPack (ASPLOS '24), section
	// 6.1: GPUs follow a Poisson distribution, or a normal one rounded to whole GPUs.
	// Demands below 1 and above MaxGPUs are drawn again. The paper gives no parameters
	// and no durations.
	Poisson Demand = "poisson"
	Normal  Demand = "normal"
	// Philly has the published marginals of Microsoft's Philly: GPUs, durations, and
	// the GPU time by job size, which ties one to the other. See published.go.
	Philly Demand = "philly"
	// Seren has those of a cluster on which language models are developed: mostly short jobs
	// of up to 8 GPUs, and few of hundreds that have nearly all GPU time. Titan's second
	// workload is of that laboratory: "a mixture of short-term and long-term jobs".
	Seren Demand = "seren"
	// ElasticFlow has the sizes and, by size, the durations of jobs on two clusters of
	// Microsoft's, which Titan's first workload has, too.
	ElasticFlow Demand = "elasticflow"
	// Fitted has what FitTo found in a recorded trace; the Generator's Fit says what.
	Fitted Demand = "fitted"
)

// Demands are all there are but for Fitted, which a name does not say enough about.
func Demands() []string {
	return []string{string(Philly), string(Poisson), string(Normal), string(ElasticFlow), string(Seren)}
}

// Shaped says whether the sizes are the Generator's to shape, by Mean.
func (d Demand) Shaped() bool { return d == Poisson || d == Normal }

// Generator makes traces. The same Generator always makes the same trace.
type Generator struct {
	Demand Demand
	Jobs   int    // 1 to 5,000,000
	Seed   uint64 // any

	Mean    float64 // GPUs of Poisson and Normal before demands are drawn again, 1 to 512
	StdDev  float64 // GPUs of Normal, above 0 and at most 512
	MaxGPUs int     // most GPUs of a job; 0: any

	// MeanDuration makes durations exponential, with this mean in seconds. 0: they are
	// the Demand's, or Philly's where it has none.
	MeanDuration float64

	// Jobs arrive as a Poisson process: Rate jobs a second, or as many as make the
	// offered GPU time Load times that of Capacity GPUs over the arrivals' span.
	Rate     float64
	Load     float64
	Capacity int

	// Fit is that of Fitted, of which jobs arrive as often as it says where neither Rate nor Load does, in bursts and by
	// hours of the day.
	Fit *Fit

	// Models are drawn from with equal chances, as the paper does. None: jobs have no model.
	Models []string
}

// NetPackModels are the six models that NetPack's evaluation draws from.
func NetPackModels() []string {
	return []string{"vgg11", "vgg16", "vgg19", "alexnet", "resnet50", "resnet101"}
}

// maxMean is the largest mean of a generated trace: exp(-mean) must not vanish.
const maxMean = 512

func (g *Generator) check() error {
	bad := func(hint, format string, args ...any) error { return tomlfile.WithHint(hint, format, args...) }
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	switch {
	case g.Demand != Fitted && !slices.Contains(Demands(), string(g.Demand)):
		return bad(tomlfile.OneOf(string(g.Demand), Demands()), "unknown demand %q", g.Demand)
	case (g.Demand == Fitted) != (g.Fit != nil):
		return bad("`inabench trace fit` makes one, of which --demand is the file", "demand %s: fitted needs a fit, and no other takes one", g.Demand)
	case g.Fit != nil && len(g.Fit.Sizes) == 0:
		return bad("", "a fit %s without sizes", g.Fit.Name)
	case g.Jobs < 1 || g.Jobs > limit.jobs:
		return bad("", "%d jobs: 1 to %d", g.Jobs, limit.jobs)
	case g.Demand.Shaped() && !(g.Mean >= 1 && g.Mean <= maxMean):
		return bad("", "a mean of %g GPUs: 1 to %d", g.Mean, maxMean)
	case g.Demand == Normal && (!positive(g.StdDev) || g.StdDev > maxMean):
		return bad("", "a standard deviation of %g GPUs: above 0, at most %d", g.StdDev, maxMean)
	case g.MaxGPUs < 0:
		return bad("", "at most %d GPUs: not negative", g.MaxGPUs)
	case g.MaxGPUs > 0 && g.Demand.Shaped() && float64(g.MaxGPUs) < g.Mean:
		return bad("", "at most %d GPUs: below the mean of %g", g.MaxGPUs, g.Mean)
	case g.Fit != nil && g.MaxGPUs > 0 && g.MaxGPUs < g.Fit.Sizes[0].GPUs:
		return bad("", "at most %d GPUs: the smallest jobs of %s have %d", g.MaxGPUs, g.Fit.Name, g.Fit.Sizes[0].GPUs)
	case g.MeanDuration != 0 && (!positive(g.MeanDuration) || g.MeanDuration > maxSeconds):
		return bad("", "a mean duration of %g s: above 0", g.MeanDuration)
	case g.Rate != 0 && g.Load != 0:
		return bad("", "both a rate and a load: one gives the other")
	case g.Rate == 0 && g.Load == 0 && g.Fit == nil:
		return bad("jobs a second, or the offered load with the capacity", "neither a rate nor a load")
	case g.Rate != 0 && !positive(g.Rate):
		return bad("", "%g jobs a second: above 0", g.Rate)
	case g.Load != 0 && (!positive(g.Load) || g.Capacity < 1):
		return bad("", "a load of %g on %d GPUs: both above 0", g.Load, g.Capacity)
	}
	return nil
}

// Generate makes a trace. Submissions and durations are whole seconds; the first job is
// submitted at 0.
func Generate(g Generator) (*Trace, error) {
	if err := g.check(); err != nil {
		return nil, fmt.Errorf("generate trace: %w", err)
	}
	// One stream each, so that other models or arrivals leave the jobs as they are.
	size, length, arrive, pick, whose := g.stream(1), g.stream(2), g.stream(3), g.stream(4), g.stream(5)
	jobs := make([]Job, g.Jobs)
	work := 0.0 // GPU seconds
	for i := range jobs {
		j := &jobs[i]
		j.ID, j.Source = fmt.Sprint(i), g.source(whose)
		j.GPUs = g.gpus(size)
		j.Duration = math.Max(1, math.Round(g.duration(length, j.GPUs)))
		if len(g.Models) > 0 {
			j.Model = g.Models[int(pick.uniform()*float64(len(g.Models)))]
		}
		work += float64(j.GPUs) * j.Duration
	}
	rate := g.rate(work / float64(g.Jobs))
	now, hours := 0.0, g.day()
	for i := range jobs[1:] {
		now += g.gap(arrive) / rate
		jobs[i+1].Submit = math.Round(hours.real(now))
	}
	if !(jobs[g.Jobs-1].Submit <= maxSeconds) {
		return nil, fmt.Errorf("generate trace: %g jobs a second are so few that the last one comes after %.3g s", rate, now)
	}
	return New(string(g.Demand), jobs), nil
}

// rate is how many jobs come in a second, of which one has so many GPU seconds on average.
func (g *Generator) rate(work float64) float64 {
	switch {
	case g.Load > 0:
		return g.Load * float64(g.Capacity) / work
	case g.Rate > 0:
		return g.Rate
	}
	return g.Fit.Rate
}

// gap is the time to the next submission, of mean 1.
func (g *Generator) gap(r stream) float64 {
	if g.Fit == nil {
		return r.exponential()
	}
	return r.bursty(g.Fit.Burstiness)
}

// day is how the rate differs by hour; it does not without a fit.
func (g *Generator) day() day {
	if g.Fit == nil {
		return nil
	}
	return normalised(g.Fit.Day)
}

func (g *Generator) source(r stream) string {
	switch {
	case g.Fit == nil:
		return "generated/" + string(g.Demand)
	case len(g.Fit.Sources) == 0:
		return "generated/" + g.Fit.Name
	}
	return g.Fit.source(r.uniform())
}

func (g *Generator) gpus(r stream) int {
	if g.Fit != nil {
		return g.Fit.size(r.uniform(), g.MaxGPUs)
	}
	for {
		var n float64
		switch g.Demand {
		case Poisson:
			n = r.poisson(g.Mean)
		case Normal:
			n = math.Round(g.Mean + g.StdDev*r.normal())
		default:
			n = float64(populations[g.Demand].gpus(r.uniform()))
		}
		if n >= 1 && (g.MaxGPUs == 0 || n <= float64(g.MaxGPUs)) {
			return int(n)
		}
	}
}

func (g *Generator) duration(r stream, gpus int) float64 {
	if g.MeanDuration > 0 {
		return g.MeanDuration * r.exponential()
	}
	if g.Fit != nil {
		return g.Fit.duration(gpus, r)
	}
	if p := populations[g.Demand]; p != nil {
		return p.duration(gpus, r)
	}
	return philly.lasts(r.uniform())
}

// stream is a source of random numbers. All are made from 64 bits by inversion, so
// that a trace does not depend on how a library draws.
type stream struct{ *rand.PCG }

func (g *Generator) stream(n uint64) stream { return stream{rand.NewPCG(g.Seed, n)} }

// uniform is in (0, 1), both ends excluded.
func (s stream) uniform() float64 { return (float64(s.Uint64()>>12) + 0.5) / (1 << 52) }

// exponential has mean 1.
func (s stream) exponential() float64 { return -math.Log(s.uniform()) }

// normal has mean 0 and standard deviation 1.
func (s stream) normal() float64 { return math.Sqrt2 * math.Erfinv(2*s.uniform()-1) }

// poisson inverts the distribution function.
func (s stream) poisson(mean float64) float64 {
	u := s.uniform()
	p := math.Exp(-mean)
	for n, sum := 0.0, p; ; n++ {
		if u <= sum || p == 0 {
			return n
		}
		p *= mean / (n + 1)
		sum += p
	}
}

// bursty has mean 1 and the squared coefficient of variation c: a hyperexponential distribution of two phases with
// balanced means above 1, and a mixture of two Erlang distributions below, which is close to a gamma distribution
// (Tijms, A First Course in Stochastic Models, appendix B).
func (s stream) bursty(c float64) float64 {
	if c >= 1 {
		p := (1 + math.Sqrt((c-1)/(c+1))) / 2
		if s.uniform() > p {
			p = 1 - p
		}
		return s.exponential() / (2 * p)
	}
	most := math.Ceil(1 / c)
	p := (most*c - math.Sqrt(max(0, most*(1+c)-most*most*c))) / (1 + c)
	phases := int(most)
	if s.uniform() <= p {
		phases--
	}
	sum := 0.0
	for range phases {
		sum += s.exponential()
	}
	return sum / (most - p)
}
