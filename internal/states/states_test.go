package states

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// counter may count up, by a fault also by two, and must come to a number.
type counter struct {
	x    *counters
	n, m int // only n tells states apart
}

type counters struct {
	goal, most, hole, bad int
	freed                 int
}

func (c *counter) Tidy()                     { c.m = 0 }
func (c *counter) AppendKey(b []byte) []byte { return Numbers(b, uint64(c.n), uint64(c.m)) }
func (c *counter) Beyond() bool              { return c.n > c.x.most }
func (c *counter) Exempt() bool              { return c.n == c.x.most }
func (c *counter) Settled() bool             { return c.n == c.x.goal }

func (c *counter) Steps(yield func(Step[*counter])) {
	for by := 1; by <= 2; by++ {
		if c.n == c.x.hole && by == 1 {
			continue
		}
		s := Step[*counter]{Label: func() string { return fmt.Sprintf("%d+%d", c.n, by) }, Fault: by == 2, To: &counter{x: c.x, n: c.n + by, m: by}}
		if s.To.n == c.x.bad {
			s.Broken = errBad
		}
		yield(s)
	}
}

var errBad, errFull = errors.New("bad"), errors.New("full")

func TestExplore(t *testing.T) {
	for _, c := range []struct {
		name  string
		x     counters
		most  int
		full  error
		want  Result
		err   error
		after string
	}{
		{"all is well", counters{goal: 3, most: 3, hole: -1}, 100, nil, Result{States: 4, Steps: 3, Settled: 1, Cut: 3, Depth: 3}, nil, ""},
		{"bad", counters{goal: 9, most: 9, hole: -1, bad: 3}, 100, nil, Result{States: 3, Steps: 2, Depth: 2}, errBad, "\n  0+1\n  1+2"},
		// From 1 only a fault leads on.
		{"stuck", counters{goal: 3, most: 4, hole: 1}, 100, nil, Result{States: 5, Steps: 3, Settled: 1, Cut: 3, Depth: 3}, ErrStuck, ""},
		{"the goal is beyond the bounds", counters{goal: 4, most: 3, hole: -1}, 100, nil, Result{States: 4, Steps: 3, Cut: 3, Depth: 3}, ErrStuck, ""},
		{"too many", counters{goal: 99, most: 200, hole: -1}, 5, nil, Result{States: 5, Steps: 3, Depth: 3}, nil, ""},
		{"full", counters{goal: 3, most: 3, hole: -1}, 100, errFull, Result{States: 1}, errFull, ""},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			r := (&Space[*counter]{Start: func() *counter { return &counter{x: &c.x} }, Most: c.most,
				Full: func() error { return c.full }, Free: func(*counter) { c.x.freed++ }}).Explore()
			err := r.Broken
			r.Broken = nil
			if r != c.want || !errors.Is(err, c.err) || err != nil && !strings.HasSuffix(err.Error(), c.after) {
				t.Errorf("%+v, %v\nwant %+v, %v%s", r, err, c.want, c.err, c.after)
			}
			if c.err == nil && c.x.freed < c.want.States {
				t.Errorf("%d of %d states were given back", c.x.freed, c.want.States)
			}
		})
	}
}

func TestSet(t *testing.T) {
	var s Set
	for _, n := range []int{SetSize - 1, 64, 0, 63, 64} {
		s.Add(n)
	}
	s.Delete(63)
	if got := slices.Collect(s.All); !slices.Equal(got, []int{0, 64, SetSize - 1}) || !s.Has(64) || s.Has(63) {
		t.Error(got)
	}
	for n := range s.All { // what it was is gone through, whatever becomes of it
		s.Delete(n)
	}
	if s != (Set{}) {
		t.Error(slices.Collect(s.All))
	}
}

func TestKey(t *testing.T) {
	if b := Flags(Numbers([]byte("k"), 1, 300), true, false); string(b) != "k\x01\xac\x02\x01\x00" {
		t.Errorf("%x", b)
	}
}
