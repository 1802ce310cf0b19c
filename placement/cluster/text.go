package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// String is a placement as "0:4 2:1 ps 5 plain 1": GPUs by server, servers with a PS,
// racks without aggregation. "-" is no placement. ParsePlacement reads it.
func (p Placement) String() string {
	if len(p.Parts) == 0 {
		return "-"
	}
	var b strings.Builder
	for i, w := range p.Parts {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d:%d", w.Server, w.GPUs)
	}
	for _, l := range []struct {
		word string
		of   []int
	}{{"ps", p.PS}, {"plain", p.Plain}} {
		if len(l.of) > 0 {
			fmt.Fprintf(&b, " %s %s", l.word, strings.Trim(fmt.Sprint(l.of), "[]"))
		}
	}
	return b.String()
}

// ParsePlacement reads what Placement.String writes. Whether it makes sense in a cluster
// is for Enter to say.
func ParsePlacement(s string) (Placement, error) {
	var p Placement
	if strings.TrimSpace(s) == "-" {
		return p, nil
	}
	var list *[]int // that a number goes to; nil: a part is to come
	for _, word := range strings.Fields(s) {
		switch {
		case word == "ps" && list == nil:
			list = &p.PS
			continue
		case word == "plain" && list != &p.Plain:
			list = &p.Plain
			continue
		}
		server, gpus, part := strings.Cut(word, ":")
		n, err := strconv.Atoi(server)
		if err == nil && part != (list == nil) {
			err = fmt.Errorf("%q out of place", word)
		}
		g := 0
		if err == nil && part {
			g, err = strconv.Atoi(gpus)
		}
		if err == nil && (n < 0 || g < 0) {
			err = fmt.Errorf("%q is negative", word)
		}
		if err != nil {
			return Placement{}, fmt.Errorf("placement %q: %w", s, err)
		}
		if list == nil {
			p.Parts = append(p.Parts, Part{n, g})
		} else {
			*list = append(*list, n)
		}
	}
	if len(p.Parts) == 0 {
		return Placement{}, fmt.Errorf("placement %q: no part", s)
	}
	return p, nil
}
