package report

import "github.com/inabench/inabench/results/plot"

// sheet is what the drawings of one page have in common: how wide they are, and the colours of names.
type sheet struct {
	width   float64 // in pixels; 0: each as wide as a page has them
	colours map[string]int
}

// colour is that of a name on the whole page: of a policy, a value that is compared, a job. Names that are
// asked for first come first in the palette.
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
