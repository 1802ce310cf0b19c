package trace

import "math"

// population is what is published of a cluster's jobs, as far as it goes: how many GPUs
// they ask for, and how long they run.
type population interface {
	gpus(u float64) int // the quantile u of the jobs' sizes
	duration(gpus int, r stream) float64
}

// populations are those of the demands that have one.
var populations = map[Demand]population{Philly: &philly, Seren: &seren, ElasticFlow: elasticflow{}}

// marginals are what is published of a cluster whose jobs are not: how many GPUs jobs ask
// for, how long they run, and how much of all GPU time has which size.
//
// The shifts of ranks were fitted, by numeric integration, so that the GPU time comes out
// as published while both other distributions stay what they are: large jobs run longer,
// for 1-GPU jobs are 82 % of Philly's jobs and 16 % of its GPU time.
type marginals struct {
	// Of jobs by size: how many percent have at most so many GPUs; how many percent of all
	// GPU time these have; and the shift of a job's rank among all durations.
	sizes []sized
	// durations are percents of jobs that ran for at most 2^i seconds, and longest is the
	// logarithm of the last of those points, which need not be a power of two.
	durations []float64
	longest   float64
}

type sized struct {
	gpus             int
	jobs, time, rank float64
}

// philly is what is published of Microsoft's Philly cluster (112,956 GPU jobs, August to
// December 2017), as read from the figures cdf_job_gpunum.pdf and cdf_job_duration_util.pdf
// of github.com/InternLM/AcmeTrace (Hu et al., NSDI '24), licence CC BY 4.0; the jobs
// themselves are Microsoft's, github.com/msr-fiddle/philly-traces, CC BY 4.0. Points were
// read from the curves' vector paths. Changed from there: 0.02 % of the jobs have more than
// 32 GPUs, how many the figure does not tell; here they have 32.
//
// The last duration is the longest job that Muri's four virtual clusters have (4,628,239
// s), for the figure ends before.
var philly = marginals{
	sizes: []sized{
		{1, 82.4206, 16.4255, 0},
		{2, 84.4833, 19.3959, 0.591},
		{4, 92.0465, 38.1653, 0.518},
		{7, 92.0509, 38.1653, 0.706},
		{8, 98.9058, 88.0277, 0.706},
		{15, 98.9235, 88.0306, 0.532},
		{16, 99.8052, 97.1955, 0.532},
		{31, 99.8283, 97.4671, 0.368},
		{32, 100, 100, 0.368},
	},
	durations: []float64{
		0.0257, 0.0797, 0.1664, 0.8224, 3.6173, 8.4219, 18.8817, 26.9857, 31.5025, 36.2814, 54.9143,
		67.4652, 79.2804, 84.5975, 90.2865, 92.714, 94.8591, 96.9493, 98.3932, 99.3157, 99.8008, 99.9548, 100,
	},
	longest: math.Log2(4_628_239),
}

// seren is what those figures have of Seren, the larger cluster of the Shanghai AI
// Laboratory (663,813 GPU jobs, March to August 2023). Changed from there: sizes between
// those below, 0.9 % of the jobs, have the next one's.
var seren = marginals{
	sizes: []sized{
		{1, 54.038, 1.3494, 0},
		{2, 65.4256, 1.7919, -0.096},
		{4, 67.9454, 2.3665, 0.334},
		{8, 96.7476, 11.9217, 0.209},
		{16, 97.8608, 13.1532, 0.413},
		{32, 98.8184, 19.1151, 0.854},
		{64, 99.3156, 27.5899, 0.997},
		{128, 99.551, 41.6899, 1.258},
		{256, 99.733, 56.3031, 1.07},
		{512, 99.8622, 69.6912, 0.872},
		{768, 99.9374, 85.5002, 1.01},
		{1024, 100, 100, 0.924},
	},
	durations: []float64{
		2.1796, 2.7843, 5.622, 11.7595, 23.3762, 31.7144, 37.1222, 48.9094, 65.6324, 79.2093, 88.0317,
		92.9393, 95.9935, 97.5335, 98.4443, 99.1866, 99.6416, 99.8309, 99.9308, 99.978, 99.9967, 100,
	},
	longest: 21,
}

func (m *marginals) gpus(u float64) int {
	for _, s := range m.sizes {
		if 100*u <= s.jobs {
			return s.gpus
		}
	}
	return m.sizes[len(m.sizes)-1].gpus
}

func (m *marginals) duration(gpus int, r stream) float64 { return m.lasts(m.rank(gpus, r.normal())) }

// lasts is the quantile u of durations in seconds. Between the points of the figure, whose
// axis is logarithmic, it is interpolated on that axis.
func (m *marginals) lasts(u float64) float64 {
	c := m.durations
	for i := 1; i < len(c); i++ {
		if 100*u <= c[i] {
			lower, upper := float64(i-1), float64(i)
			if i == len(c)-1 {
				upper = m.longest
			}
			part := math.Max(0, 100*u-c[i-1]) / (c[i] - c[i-1])
			return math.Exp2(lower + part*(upper-lower))
		}
	}
	return math.Exp2(m.longest)
}

// rank ties durations to sizes: a job's score is a normal variate z plus the shift of its
// size, and its rank is where that score stands among those of all sizes. Ranks of jobs
// whose sizes are the cluster's are uniform in (0, 1), so durations stay the cluster's.
func (m *marginals) rank(gpus int, z float64) float64 {
	score := z
	for _, s := range m.sizes {
		if gpus <= s.gpus {
			score += s.rank
			break
		}
	}
	rank, below := 0.0, 0.0
	for _, s := range m.sizes {
		rank += (s.jobs - below) / 100 * (1 + math.Erf((score-s.rank)/math.Sqrt2)) / 2
		below = s.jobs
	}
	return rank
}

// elasticflow has what was computed from the 18,813 jobs of two of the ten clusters of
// github.com/microsoft/elasticflow-traces (277ed24d, MIT; Gu et al., ASPLOS '23), March to
// May 2021: the third, which has most jobs with several GPUs, and the fourth, which has
// most jobs of all. Jobs shorter than ten minutes were left out there.
type elasticflow struct{}

// elasticflowParts are the quantiles of the durations of jobs of one size.
var elasticflowParts = []float64{0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1}

// elasticflowSizes are how many percent of the jobs have at most so many GPUs, and in
// seconds the quantiles of their durations.
var elasticflowSizes = []struct {
	gpus      int
	jobs      float64
	durations []float64
}{
	{1, 68.7716, []float64{600, 850, 1001, 1341, 5758, 7614, 10889, 18856, 25102, 56560, 135119}},
	{2, 69.8878, []float64{601, 606, 654, 713, 742, 1161, 3036, 3162, 13340, 55295, 195641}},
	{4, 72.7157, []float64{640, 844, 1633, 2572, 3796, 6446, 8897, 14827, 60718, 69381, 1079960}},
	{8, 96.933, []float64{600, 721, 1048, 1854, 7254, 15126, 38271, 85895, 145303, 510742, 1237189}},
	{16, 98.4, []float64{607, 613, 667, 836, 2457, 46914, 90419, 250135, 314625, 597733, 602150}},
	{32, 99.8777, []float64{602, 705, 1541, 2148, 23586, 85684, 136827, 218217, 298626, 662667, 1022894}},
	{64, 100, []float64{3755, 3755, 3800, 3806, 4474, 32767, 161182, 264133, 544612, 548801, 548801}},
}

func (elasticflow) gpus(u float64) int {
	for _, s := range elasticflowSizes {
		if 100*u <= s.jobs {
			return s.gpus
		}
	}
	return elasticflowSizes[len(elasticflowSizes)-1].gpus
}

// duration interpolates between the quantiles.
func (elasticflow) duration(gpus int, r stream) float64 {
	u := r.uniform()
	for _, s := range elasticflowSizes {
		if s.gpus < gpus {
			continue
		}
		return between(elasticflowParts, s.durations, u)
	}
	return elasticflowSizes[len(elasticflowSizes)-1].durations[len(elasticflowParts)-1]
}

// between is the quantile u of a distribution of which some are known, interpolated on a logarithmic axis.
func between(parts, values []float64, u float64) float64 {
	for i, p := range parts[1:] {
		if u <= p {
			part := (u - parts[i]) / (p - parts[i])
			return values[i] * math.Pow(values[i+1]/values[i], part)
		}
	}
	return values[len(values)-1]
}
