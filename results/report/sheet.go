package report

import (
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/plot"
)

// sheet is what the drawings of one page have in common: how wide they are, and the colours of names.
type sheet struct {
	width   float64 // in pixels; 0: each as wide as a page has them
	colours map[string]int
}

// colour returns the palette index of a name (a policy, a compared value or a job) on the whole page. Names get
// colours in the order in which they are first asked for; after plot.Colours names the colours repeat.
func (s *sheet) colour(name string) int {
	if c, ok := s.colours[name]; ok {
		return c
	}
	if s.colours == nil {
		s.colours = map[string]int{}
	}
	s.colours[name] = len(s.colours) % plot.Colours
	return s.colours[name]
}

// jobs gives the jobs of a run their colours, in the order of the experiment: wherever a page draws a job, it has the
// same one.
func (s *sheet) jobs(rec *results.Record) {
	for _, p := range rec.Points {
		for _, j := range p.Jobs {
			s.colour(j.Job)
		}
		for _, t := range p.Trees {
			s.colour(t.Job)
		}
		for _, ph := range p.Phases {
			for _, j := range ph.Jobs {
				s.colour(j)
			}
		}
	}
}

// coloursOf are those of names.
func (s *sheet) coloursOf(names []string) []int {
	out := make([]int, len(names))
	for i, name := range names {
		out[i] = s.colour(name)
	}
	return out
}

// apart are the colours of what one drawing shows: those that it has on the page; where two would be the same, as many as
// there are, in order.
func apart(colours []int) []int {
	seen := map[int]bool{}
	for _, c := range colours {
		seen[c%plot.Colours] = true
	}
	if len(seen) == len(colours) {
		return colours
	}
	out := make([]int, len(colours))
	for i := range out {
		out[i] = i
	}
	return out
}
