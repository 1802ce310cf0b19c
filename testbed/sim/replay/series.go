package replay

// Series are step functions over time, as their exact means over equal intervals: value
// i is the mean over [From+i·Step, From+(i+1)·Step), the last one's up to To. However
// long a replay is, there are at most 512 values; Step is a power of two seconds.
type Series struct {
	From, To, Step float64 // seconds since the trace began

	GPUs       []float64 // that a job has
	Waiting    []float64 // jobs
	Links      []float64 // utilisation, mean over the links of servers; with Fluid of the steady state in which all jobs send
	Aggregated []float64 // bit/s: how much PAT is in use, of all racks together where it is finite

	Machines      []float64 // with a GPU that is taken
	Fragmentation []float64 // of these machines' GPUs, the part that is idle: the mean over them
	Crossing      []float64 // bytes between machines in one iteration of all jobs that run; with a Collective
	Profit        []float64 // per machine and hour; not with Phases
	ProfitTotal   []float64 // Profit as each job arrived, summed so far
}

// MachineHours are the hours of machines that were used, from the beginning to the end of
// each interval.
func (s *Series) MachineHours() []float64 {
	out := make([]float64, len(s.Machines))
	sum := 0.0
	for i, n := range s.Machines {
		start := s.From + float64(i)*s.Step
		sum += n * min(s.Step, s.To-start) / 3600
		out[i] = sum
	}
	return out
}

// levels are the values of the step functions.
type levels [9]float64

const (
	gpusBusy = iota
	jobsWaiting
	linksUsed
	aggregated
	machinesUsed
	fragmentation
	crossing
	profit
	profitTotal
)

const most = 512 // values in a series

// recorder integrates step functions exactly, over all time and over each interval.
type recorder struct {
	from, to, step float64
	total          levels
	bins           []levels
}

// add records that levels were v from a to b, which starts where the last one ended.
func (r *recorder) add(a, b float64, v levels) {
	if r.step == 0 {
		r.step = 1.0 / (1 << 20)
		r.bins = make([]levels, 0, most)
	}
	r.to = b
	for b-r.from > most*r.step {
		for i := range r.bins {
			if i%2 == 0 {
				r.bins[i/2] = r.bins[i]
			} else {
				for k := range v {
					r.bins[i/2][k] += r.bins[i][k]
				}
			}
		}
		r.bins = r.bins[:(len(r.bins)+1)/2]
		r.step *= 2
	}
	for k := range v {
		r.total[k] += v[k] * (b - a)
	}
	for i := int((a - r.from) / r.step); i < most; i++ {
		start := r.from + float64(i)*r.step
		if start >= b {
			break
		}
		for len(r.bins) <= i {
			r.bins = append(r.bins, levels{})
		}
		for d, k := min(b, start+r.step)-max(a, start), 0; k < len(v); k++ {
			r.bins[i][k] += v[k] * d
		}
	}
}

func (r *recorder) series() Series {
	s := Series{From: r.from, To: max(r.from, r.to), Step: r.step}
	for k, out := range []*[]float64{
		&s.GPUs, &s.Waiting, &s.Links, &s.Aggregated,
		&s.Machines, &s.Fragmentation, &s.Crossing, &s.Profit, &s.ProfitTotal,
	} {
		*out = make([]float64, len(r.bins))
		for i := range r.bins {
			start := r.from + float64(i)*r.step
			(*out)[i] = r.bins[i][k] / min(r.step, r.to-start)
		}
	}
	return s
}
