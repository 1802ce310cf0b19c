package trace

import "math"

// What is published of Microsoft's Philly cluster (112,956 GPU jobs, August to December
// 2017), as read from the figures cdf_job_gpunum.pdf and cdf_job_duration_util.pdf of
// github.com/InternLM/AcmeTrace (Hu et al., NSDI '24), licence CC BY 4.0; the jobs
// themselves are Microsoft's, github.com/msr-fiddle/philly-traces, CC BY 4.0. Points
// were read from the curves' vector paths. Changed from there: 0.02 % of the jobs have
// more than 32 GPUs, how many the figure does not tell; here they have 32.

// phillySizes are the GPUs of jobs: how many percent have at most so many; how many
// percent of all GPU time these have; and the shift of a job's rank among all durations.
//
// The shifts were fitted, by numeric integration, so that the GPU time comes out as
// published while both other distributions stay what they are: large jobs run longer,
// for 1-GPU jobs are 82 % of the jobs and 16 % of the GPU time.
var phillySizes = []struct {
	gpus             int
	jobs, time, rank float64
}{
	{1, 82.4206, 16.4255, 0},
	{2, 84.4833, 19.3959, 0.591},
	{4, 92.0465, 38.1653, 0.518},
	{7, 92.0509, 38.1653, 0.706},
	{8, 98.9058, 88.0277, 0.706},
	{15, 98.9235, 88.0306, 0.532},
	{16, 99.8052, 97.1955, 0.532},
	{31, 99.8283, 97.4671, 0.368},
	{32, 100, 100, 0.368},
}

// phillyDurations are percents of jobs that ran for at most 2^i seconds. The last point
// is the longest job that Muri's four virtual clusters have (4,628,239 s), for the figure
// ends before.
var (
	phillyDurations = []float64{
		0.0257, 0.0797, 0.1664, 0.8224, 3.6173, 8.4219, 18.8817, 26.9857, 31.5025, 36.2814, 54.9143,
		67.4652, 79.2804, 84.5975, 90.2865, 92.714, 94.8591, 96.9493, 98.3932, 99.3157, 99.8008, 99.9548, 100,
	}
	phillyLongest = math.Log2(4_628_239)
)

// phillyGPUs is the quantile u of the jobs' sizes.
func phillyGPUs(u float64) int {
	for _, s := range phillySizes {
		if 100*u <= s.jobs {
			return s.gpus
		}
	}
	return phillySizes[len(phillySizes)-1].gpus
}

// phillyDuration is the quantile u of durations in seconds. Between the points of the
// figure, whose axis is logarithmic, it is interpolated on that axis.
func phillyDuration(u float64) float64 {
	c := phillyDurations
	for i := 1; i < len(c); i++ {
		if 100*u <= c[i] {
			lower, upper := float64(i-1), float64(i)
			if i == len(c)-1 {
				upper = phillyLongest
			}
			part := math.Max(0, 100*u-c[i-1]) / (c[i] - c[i-1])
			return math.Exp2(lower + part*(upper-lower))
		}
	}
	return math.Exp2(phillyLongest)
}

// phillyRank ties durations to sizes: a job's score is a normal variate z plus the shift
// of its size, and its rank is where that score stands among those of all sizes. Ranks
// of jobs whose sizes are Philly's are uniform in (0, 1), so durations stay Philly's.
func phillyRank(gpus int, z float64) float64 {
	score := z
	for _, s := range phillySizes {
		if gpus <= s.gpus {
			score += s.rank
			break
		}
	}
	rank, below := 0.0, 0.0
	for _, s := range phillySizes {
		rank += (s.jobs - below) / 100 * (1 + math.Erf((score-s.rank)/math.Sqrt2)) / 2
		below = s.jobs
	}
	return rank
}
