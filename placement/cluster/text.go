package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// String is a placement as "0:4 2:1 ps 5 plain 1": GPUs by server, servers with a PS,
// racks without aggregation; then, where there are any, "spare 2:3" and "ranks 0 2 0 0 0".
// "-" is no placement. ParsePlacement reads it.
func (p Placement) String() string {
	if len(p.Parts) == 0 {
		return "-"
	}
	var b strings.Builder
	for _, s := range p.sections() {
		word := s.word
		next := func(text string) {
			for _, t := range []string{word, text} {
				if t != "" && b.Len() > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(t)
			}
			word = ""
		}
		if s.parts != nil {
			for _, w := range *s.parts {
				next(fmt.Sprintf("%d:%d", w.Server, w.GPUs))
			}
			continue
		}
		for _, n := range *s.numbers {
			next(strconv.Itoa(n))
		}
	}
	return b.String()
}

// section is a word and what stands behind it: parts or numbers.
type section struct {
	word    string
	parts   *[]Part
	numbers *[]int
}

func (p *Placement) sections() []section {
	return []section{
		{"", &p.Parts, nil}, {"ps", nil, &p.PS}, {"plain", nil, &p.Plain}, {"spare", &p.Spare, nil}, {"ranks", nil, &p.Ranks},
	}
}

// ParsePlacement reads what Placement.String writes. Whether it makes sense in a cluster
// is for Enter to say.
func ParsePlacement(s string) (Placement, error) {
	var p Placement
	if strings.TrimSpace(s) == "-" {
		return p, nil
	}
	left := p.sections()
	at := left[0]
	for _, word := range strings.Fields(s) {
		if i := slices.IndexFunc(left[1:], func(s section) bool { return s.word == word }); i >= 0 {
			left = left[i+1:]
			at = left[0]
			continue
		}
		if err := at.add(word); err != nil {
			return Placement{}, fmt.Errorf("placement %q: %w", s, err)
		}
	}
	if len(p.Parts) == 0 {
		return Placement{}, fmt.Errorf("placement %q: no part", s)
	}
	return p, nil
}

// add reads a word of a section.
func (s section) add(word string) error {
	server, gpus, part := strings.Cut(word, ":")
	n, err := strconv.Atoi(server)
	g := 0
	switch {
	case err != nil:
		return err
	case part != (s.parts != nil):
		return fmt.Errorf("%q out of place", word)
	case part:
		if g, err = strconv.Atoi(gpus); err != nil {
			return err
		}
	}
	if n < 0 || g < 0 {
		return fmt.Errorf("%q is negative", word)
	}
	if part {
		*s.parts = append(*s.parts, Part{n, g})
	} else {
		*s.numbers = append(*s.numbers, n)
	}
	return nil
}
