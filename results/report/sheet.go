package report

import "github.com/inabench/inabench/results/plot"

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
