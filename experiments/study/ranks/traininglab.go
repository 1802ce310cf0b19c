package ranks

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/remote"
)

// message is the job's gradient on a testbed, in whole int32.
func (t *Training) message(s *spec.Spec, scale results.Scale) int64 {
	p, _ := t.profile(s, t.Model)
	_, size := study.Factors(scale)
	return max(4, int64(float64(p.Bytes())*size)/4*4)
}

// beat is how long half of a vector takes, the most that goes from one worker to another
// where they halve: packets are no more than its parts.
func (t *Training) beat(s *spec.Spec, scale results.Scale) time.Duration {
	slowest := inventory.BitRate(math.MaxInt64)
	for _, h := range s.Inventory().Hosts {
		if len(h.NICs) > 0 {
			slowest = min(slowest, h.NICs[0].Rate)
		}
	}
	p, _ := t.profile(s, t.Model)
	times, _ := study.Factors(scale)
	return time.Duration(times * float64(p.Bytes()) / 2 * 8 / float64(slowest) * float64(time.Second))
}

// Run implements study.Study: workers and background jobs are processes, and what they exchange is
// real.
func (t *Training) Run(ctx context.Context, b *study.Bench) (point *results.Point, rows [][]string, err error) {
	point = &results.Point{}
	tb, err := b.Hosts("a job whose workers have a GPU each")
	if err != nil {
		return point, nil, err
	}
	s, seed, scale := b.Spec, b.Seed(), b.Scale()
	o, err := t.occupy(ctx, s, seed)
	if err != nil {
		return point, nil, err
	}
	point.Machines = o.machines
	net, err := t.calibrate(ctx, b, tb)
	if err != nil {
		return point, nil, fmt.Errorf("calibrate: %w", err)
	}
	point.Health = slices.Clone(net.health)
	mend, err := b.Sabotage(ctx)
	if err != nil {
		return point, nil, err
	}
	defer func() { point.Sabotaged = mend() }()
	times, _ := study.Factors(scale)
	message := t.message(s, scale)
	_, compute := t.profile(s, t.Model)
	_, others := t.profile(s, t.BackgroundModel)
	predicted := t.pace(o.at, 8*float64(message), compute*times, net.net)

	each := study.PointOverhead + time.Duration(predicted.ends[len(predicted.ends)-1]*float64(time.Second))
	left := b.Countdown(each)
	b.Status("measure", left())
	began := time.Now()
	counters, err := b.Sampler(ctx, tb, map[int]string{1: trainingJob})
	if err != nil {
		return point, nil, err
	}
	still, err := b.WatchStalls(ctx, tb)
	if err != nil {
		return point, nil, err
	}
	counters.Left, counters.Still = left, still
	if err := counters.Read(ctx); err != nil { // the next is an interval later, when ranks may have sent much
		return point, nil, err
	}
	jobs := []training.Reduction{{
		Name: trainingJob, ID: 1, On: o.hosts, Operation: t.Collective, Message: message, Compute: compute * times, Iterations: t.Iterations,
	}}
	for i, h := range o.others {
		jobs = append(jobs, training.Reduction{
			Name: "background" + strconv.Itoa(i+1), ID: uint16(i + 2), On: []string{h}, Operation: t.Collective, Message: 4, Compute: others * times,
		})
	}
	ph := results.Phase{Jobs: []string{trainingJob}}
	out, err := training.Reduce(ctx, training.Config{
		Hosts: tb, Agent: t.agent(tb.Inventory(), s, seed, scale, b.Beat()), Now: b.Now,
		Ready: func(ctx context.Context) error {
			b.Timing("deploy", began)
			began, ph.Start = time.Now(), b.Now().Seconds()
			return study.Anew(ctx, tb)
		},
		Sample: func(ctx context.Context, reports []results.Sample) error { return counters.Read(ctx, reports...) },
	}, jobs)
	ph.End = b.Now().Seconds()
	b.Timing("measure", began)
	troubles, herr := t.unwell(ctx, tb, out)
	point.Health = append(point.Health, troubles...)
	for i := range out {
		still.Keep(out[i].Stalls)
		still.Jobs = append(still.Jobs, study.Ran{Job: out[i].Name, Start: ph.Start, End: ph.End})
	}
	ph.Stood = still.Judge(point)
	if len(out) > 0 { // the others have nothing to say
		point.Jobs = []results.JobSummary{reduced(&out[0])}
	}
	if err = cmp.Or(err, herr); err != nil {
		return point, nil, err
	}
	measured, rows := t.measured(&out[0])
	if len(measured.ends) < 2 {
		return point, rows, fmt.Errorf("%d iterations were reported of %d", len(measured.ends), t.Iterations)
	}
	curves := progress(measured)
	if n := len(measured.ends); int64(n) < t.Iterations { // those that are not known are anywhere between
		b.Warn(fmt.Sprintf("the times of %d of %d iterations are known, which no curve is drawn of: a rank keeps those of 1,000 between two reports, and a shorter measure.interval would do", n, t.Iterations))
		curves = nil
	}
	kind := b.Kind()
	ph.Figures = t.figures(kind, o, measured, counters.Links.AllSent(tb.Inventory())/float64(t.Iterations), times)
	_, wrong := out[0].Sums()
	ph.Figures = append(ph.Figures, study.Exactly("sum_errors", trainingJob, kind, float64(wrong)))
	wire := collectives.Duplex * t.crossing(o.at, float64(message)) // ports count frames, acknowledgements included
	ph.Figures = append(ph.Figures, t.figures(results.Predicted, o, predicted, wire, times)...)
	ph.Figures = append(ph.Figures, counters.Links.Figures(ph.Start, ph.End)...)
	point.Phases, point.Curves = []results.Phase{ph}, curves
	return point, rows, nil
}

// agent is what all ranks have in common.
func (t *Training) agent(inv *inventory.Inventory, s *spec.Spec, seed uint64, scale results.Scale, beat time.Duration) agent.Config {
	times, size := study.Factors(scale)
	return agent.Config{
		LineRate: float64(study.Fastest(inv)),
		Epoch:    uint16(time.Now().UnixMilli()) | 1, Seed: seed, Interval: s.Measure.Interval.Std(), Speed: 1, Beat: beat,
		LocalRate: float64(t.Local) * size / times,
	}
}

// measured is how the job's iterations went by its ranks' own clocks, which all began at
// one time.
func (t *Training) measured(job *training.Reduced) (out paced, rows [][]string) {
	n := 0 // iterations that all have ended
	for i, own := range job.Times {
		if i == 0 || len(own) < n {
			n = len(own)
		}
	}
	out = paced{ends: make([]float64, n), comm: make([]float64, n)}
	for rank, own := range job.Times {
		if red := job.Ranks[rank].Reducing; red != nil {
			out.all = max(out.all, red.JCT)
		}
		end, compute, comm := 0.0, 0.0, 0.0
		for i, it := range own[:n] {
			end += it.Compute + it.Comm
			compute += it.Compute
			comm += it.Comm
			out.ends[i] = max(out.ends[i], end)
			out.comm[i] += it.Comm / float64(len(job.Times))
		}
		rows = append(rows, []string{
			strconv.Itoa(rank), job.On[rank], strconv.Itoa(n), study.InSeconds(compute), study.InSeconds(comm), strconv.FormatInt(job.Ranks[rank].SumsChecked, 10),
		})
	}
	return out, rows
}

// reduced is what the ranks of a job reported, also of one that was cut short.
func reduced(j *training.Reduced) results.JobSummary {
	sum := results.JobSummary{Job: j.Name, Workers: len(j.On), Local: !slices.ContainsFunc(j.On, func(h string) bool { return h != j.On[0] })}
	sum.SumsChecked, sum.SumErrors = j.Sums()
	comm := 0.0
	for i := range j.Ranks {
		s := &j.Ranks[i]
		if i == 0 || s.Iterations < sum.Iterations {
			sum.Iterations = s.Iterations
		}
		if s.Reducing != nil {
			sum.JCT = max(sum.JCT, s.Reducing.JCT)
		}
		comm += s.CommSum / float64(len(j.Ranks))
	}
	if n := float64(len(j.On)); n > 1 && comm > 0 {
		sum.Ops = sum.Iterations
		sum.AlgBW = 8 * float64(j.Message) * float64(sum.Iterations) / comm
		sum.BusBW = sum.AlgBW * 2 * (n - 1) / n
	}
	return sum
}

// unwell is what limited workers other than the testbed that is emulated.
func (t *Training) unwell(ctx context.Context, tb *remote.Testbed, out []training.Reduced) ([]results.Trouble, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	all, err := tb.Health(ctx)
	for i := range out {
		for k := range out[i].Ranks {
			red := out[i].Ranks[k].Reducing
			if red == nil || !(red.JCT > 0) {
				continue
			}
			where := fmt.Sprintf("rank %s/%d on host %s", out[i].Name, k, out[i].On[k])
			if trouble, bad := study.Overslept(where, red.Late.Sum, red.JCT, out[i].Stalls); bad {
				all = append(all, trouble)
			}
		}
	}
	return all, err
}

// calibratedNetwork is what transfers get on a testbed, and why that may be wrong.
type calibratedNetwork struct {
	net    collectives.Network
	health []results.Trouble
}

// Calibration is by pairs of workers, one of which sends the other a vector and gets the sum
// back: transfers that nothing meets.
const (
	calibratedPart = 8 // the large vector, half of the job's, over the small one
	calibratedBy   = "parameter-server"
)

// calibratedTimes are how often each pair does so with small and with large vectors, the first time apart. Ten hosts that
// begin together have something else to do than packets for some 50 ms, in which eight small vectors would be through.
var calibratedTimes = [2]int64{128, 8}

// calibrate measures what a transfer gets between two hosts, of which all are busy in pairs,
// and what within one.
func (t *Training) calibrate(ctx context.Context, b *study.Bench, tb *remote.Testbed) (calibratedNetwork, error) {
	inv, scale := tb.Inventory(), b.Scale()
	times, size := study.Factors(scale)
	declared := t.declared(inv)
	declared.Worker *= size / times
	if !b.Spec.Calibrate.Enabled {
		return calibratedNetwork{net: declared}, nil
	}
	sizes := [2]int64{0, max(32, t.message(b.Spec, scale)/2/8*8)}
	sizes[0] = max(16, sizes[1]/calibratedPart/8*8)
	return study.Once(b.Known(), t.calibratedFor(b.Spec, sizes), func() (calibratedNetwork, error) {
		return t.transferAlone(ctx, b, tb, sizes, declared)
	})
}

// calibratedFor names what transfers of two sizes depend on.
func (t *Training) calibratedFor(s *spec.Spec, sizes [2]int64) string {
	return fmt.Sprintf("transfers %s bytes %d local %v", study.NetworkOf(s), sizes, t.Local)
}

// transferAlone measures transfers of two sizes.
func (t *Training) transferAlone(ctx context.Context, b *study.Bench, tb *remote.Testbed, sizes [2]int64, declared collectives.Network) (out calibratedNetwork, err error) {
	inv, began := tb.Inventory(), time.Now()
	defer func() { b.Timing("calibrate", began) }()
	var seconds [2][]float64 // of small and large vectors, by pair
	pairs := pairs(inv)
	for k, bytes := range sizes {
		b.Status("calibrate", 0)
		for i := range pairs {
			pairs[i].Message, pairs[i].Iterations = bytes, calibratedTimes[k]
		}
		var got []training.Reduced
		troubles, err := study.Calibrate(func() (_ []results.Trouble, err error) {
			got, err = training.Reduce(ctx, training.Config{
				Hosts: tb, Agent: t.agent(inv, b.Spec, b.Spec.Measure.Seed, b.Scale(), b.Beat()), Ready: func(ctx context.Context) error { return study.Anew(ctx, tb) },
			}, pairs)
			if err != nil {
				return nil, err
			}
			return t.unwell(ctx, tb, got)
		})
		if err != nil {
			return out, err
		}
		out.health = append(out.health, troubles...)
		for i := range got {
			measured, _ := t.measured(&got[i])
			seconds[k] = append(seconds[k], results.Median(measured.comm[1:]))
		}
	}
	net, found, err := fitted(declared, inv, pairs, sizes, seconds)
	b.Calibrated(found...)
	if out.net = net; err != nil {
		out.net, out.health = declared, append(out.health, study.Assumed(err, "what the inventory declares"))
	}
	return out, nil
}

// pairs are jobs of two workers that only communicate: of hosts that are next to each other in
// the inventory, and within the first one with two GPUs.
func pairs(inv *inventory.Inventory) (jobs []training.Reduction) {
	add := func(a, b string) {
		n := len(jobs) + 1
		jobs = append(jobs, training.Reduction{
			Name: "pair" + strconv.Itoa(n), ID: uint16(n), On: []string{a, b}, Operation: calibratedBy,
		})
	}
	for pair := range slices.Chunk(inv.Hosts, 2) {
		if len(pair) == 2 {
			add(pair[0].Name, pair[1].Name)
		}
	}
	if i := slices.IndexFunc(inv.Hosts, func(h inventory.Host) bool { return h.GPUs > 1 }); i >= 0 {
		add(inv.Hosts[i].Name, inv.Hosts[i].Name)
	}
	return jobs
}

// fitted is a network by what pairs took for a small vector and a large one. Of its cable
// every machine gets the part that pairs got in the middle.
func fitted(declared collectives.Network, inv *inventory.Inventory, pairs []training.Reduction, bytes [2]int64, seconds [2][]float64) (net collectives.Network, found []results.Calibration, err error) {
	net = declared
	// What pairs take is a latency times so much, and bits over a rate times so much.
	exchange, err := collectives.New(calibratedBy, 2)
	if err != nil {
		return declared, nil, err
	}
	one := func(int) float64 { return 1 }
	latencies := exchange.Seconds([]int{0, 1}, 0, collectives.Network{Rate: one, Latency: 1})
	perBit := exchange.Seconds([]int{0, 1}, 1, collectives.Network{Rate: one})
	small, large := 8*float64(bytes[0]), 8*float64(bytes[1])
	index := func(name string) int {
		return slices.IndexFunc(inv.Hosts, func(h inventory.Host) bool { return h.Name == name })
	}
	var latency, local, part, rate, worker []float64
	for i, p := range pairs {
		slope := (seconds[1][i] - seconds[0][i]) / (large - small)
		if !(slope > 0) {
			return declared, nil, fmt.Errorf("hosts %s and %s sent each other %s in %s, and %s in %s", p.On[0], p.On[1],
				human.Quantity(small/8, "B"), human.Quantity(seconds[0][i], "s"), human.Quantity(large/8, "B"), human.Quantity(seconds[1][i], "s"))
		}
		fixed := max(0, seconds[0][i]-slope*small) / latencies
		if p.On[0] == p.On[1] {
			local, worker = append(local, fixed), append(worker, perBit/slope)
			continue
		}
		latency, rate = append(latency, fixed), append(rate, perBit/slope)
		part = append(part, perBit/slope/min(declared.Rate(index(p.On[0])), declared.Rate(index(p.On[1]))))
	}
	keep := func(what, of, unit string, x []float64) float64 {
		c := results.Calibration{What: what, Of: of, Value: results.Median(x), Lo: slices.Min(x), Hi: slices.Max(x), N: len(x), Unit: unit}
		found = append(found, c)
		return c.Value
	}
	const between, within = "transfer between hosts", "transfer within a host"
	if len(part) > 0 {
		net.Latency = keep(between, "latency", "s", latency)
		keep(between, "rate", "bit/s", rate)
		share := results.Median(part)
		net.Rate = func(machine int) float64 { return share * declared.Rate(machine) }
	}
	if len(worker) > 0 {
		net.LocalLatency, net.Worker = keep(within, "latency", "s", local), keep(within, "rate", "bit/s", worker)
	}
	return net, found, nil
}
