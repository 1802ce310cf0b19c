package ops

import (
	"math"
)

// Outcome is what became of a job.
type Outcome struct {
	ID, Hosts  int
	Start, End float64 // s; what lies between is its completion time: queueing is not in it
	Without    float64 // s that it would take without INA
	With       float64 // with INA for every operation
	INA        float64 // s in which it reduced with INA
	Migrations int     // from a tree to another
	Fragments  int     // of its hosts
}

// JCT is the job completion time, in seconds.
func (o *Outcome) JCT() float64 { return o.End - o.Start }

// Result is what came out.
type Result struct {
	Jobs     []Outcome // in the order of the list
	On       [][]int   // hosts of each, by their index in the fabric
	Makespan float64   // s until the last one ended
	Series   []Sample  // if Config.Series: whenever trees were built

	Requests int // jobs that got hosts
	Builds   int // how often trees were built
	Events   int // that were looked at one by one
	Asked    int // operations of jobs with trees that asked whether they have INA,
	Refused  int // and had not, because somebody else's counted more

	Placing  []float64 // s that each placement took, if Config.Clock
	Building []float64 // s that building trees took each time, if Config.Clock
}

// Sample is how things are after trees were built.
type Sample struct {
	Time     float64 // s
	Requests int     // jobs that have got hosts so far
	Queued   int     // jobs that wait
	Jobs     int     // that run
	Several  int     // of them on several hosts
	With     int     // of those, with trees
	Alone    int     // of those, with trees that do not conflict with each other's
	Moved    int     // jobs that changed from a tree to another one just now

	FreeHosts     int
	FreeFragments int // of hosts that are free
	JobFragments  int // of the running jobs' hosts, each job's by itself
}

// Conflicts is which part of the jobs that want a tree has none of its own, as it would
// conflict with one of those that have. 0 where no job wants one.
func (s *Sample) Conflicts() float64 {
	if s.Several == 0 {
		return 0
	}
	return float64(s.Several-s.Alone) / float64(s.Several)
}

// Score is the INA efficiency score with the range that it is a part of: means of job
// completion times, in seconds.
type Score struct {
	Value     float64 // (Without - Evaluated) / (Without - With); NaN where INA makes no difference
	Without   float64 // without INA
	Evaluated float64 // as simulated
	With      float64 // with INA for every operation
}

// Range is by which part INA for every operation shortens the mean job completion time.
func (s Score) Range() float64 { return 1 - s.With/s.Without }

// Score is the score over all jobs. PerHost: a job counts as often as it has hosts.
func (r *Result) Score(perHost bool) Score {
	var without, evaluated, with, weights float64
	for i := range r.Jobs {
		o := &r.Jobs[i]
		w := 1.0
		if perHost {
			w = float64(o.Hosts)
		}
		without += w * o.Without
		evaluated += w * o.JCT()
		with += w * o.With
		weights += w
	}
	return score(without, evaluated, with, weights)
}

func score(without, evaluated, with, weights float64) Score {
	s := Score{Value: math.NaN(), Without: without / weights, Evaluated: evaluated / weights, With: with / weights}
	if without > with {
		s.Value = (without - evaluated) / (without - with)
	}
	return s
}

// Utilisation is in which part of a job's time it reduced with INA, in the mean of all jobs.
func (r *Result) Utilisation() float64 {
	sum := 0.0
	for i := range r.Jobs {
		sum += r.Jobs[i].INA / r.Jobs[i].JCT()
	}
	return sum / float64(len(r.Jobs))
}

// Migrations is how often the mean job changed from a tree to another one.
func (r *Result) Migrations() float64 {
	sum := 0
	for i := range r.Jobs {
		sum += r.Jobs[i].Migrations
	}
	return float64(sum) / float64(len(r.Jobs))
}
