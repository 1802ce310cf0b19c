package trace

import (
	"fmt"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// maxShown is how many problems an error lists; the others are counted.
const maxShown = 20

// InvalidError is what is wrong with a trace: the first problems, and how many there
// are. It unwraps to the problems shown.
type InvalidError struct {
	Problems tomlfile.Problems // in file order, 20 at most, and what ended the reading
	Total    int               // of all problems, shown or not
	Jobs     int               // how many Lenient would have found; 0: it does not help
	hint     string
}

// Error is the problems shown, one a line, and how many more there are.
func (e *InvalidError) Error() string {
	s := e.Problems.Error()
	if n := e.Total - len(e.Problems); n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}

// Hint is what can be done about all of them; it may be empty.
func (e *InvalidError) Hint() string { return e.hint }

// Unwrap returns the problems shown.
func (e *InvalidError) Unwrap() error { return e.Problems }

// collector keeps the first problems and counts them all.
type collector struct {
	shown tomlfile.Problems
	total int
}

func (c *collector) add(p tomlfile.Problem) {
	if c.total++; len(c.shown) < maxShown {
		c.shown = append(c.shown, p)
	}
}

func (c *collector) err(hint string) error {
	if c.total == 0 {
		return nil
	}
	return &InvalidError{Problems: c.shown, Total: c.total, hint: hint}
}
