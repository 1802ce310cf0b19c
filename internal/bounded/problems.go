package bounded

import (
	"errors"
	"fmt"
	"strings"
)

// How many problems are listed, and how many bytes of each: nobody reads more.
const (
	mostProblems = 20
	mostOfOne    = 1000
)

// Problems are all that is wrong with something that others produced: the first of them, and how many more there are.
type Problems struct {
	list []string
	more int
}

// Add adds a problem, as fmt.Sprintf makes it.
func (p *Problems) Add(format string, args ...any) {
	if len(p.list) == mostProblems {
		p.more++
		return
	}
	text := fmt.Sprintf(format, args...)
	if len(text) > mostOfOne {
		text = strings.ToValidUTF8(text[:mostOfOne], "") + "..."
	}
	p.list = append(p.list, text)
}

// Err is an error that lists them, or nil where there are none.
func (p *Problems) Err() error {
	switch {
	case len(p.list) == 0:
		return nil
	case p.more > 0:
		return fmt.Errorf("%s; and %d more problems", strings.Join(p.list, "; "), p.more)
	}
	return errors.New(strings.Join(p.list, "; "))
}
