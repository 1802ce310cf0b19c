package lp_test

import (
	"testing"

	"github.com/inabench/inabench/placement/exact/lp"
)

// A program with all that there can be: a variable that is twice in a row, one that goes out of it, a row
// of nothing, more terms than a line has, and numbers that Go would write with exponents.
func TestString(t *testing.T) {
	var p lp.Program
	x := p.Whole("x", 0, 1)
	y := p.Add("y", 0.5, 2)
	p.Cost(y, 1e-7)
	p.AtMost("twice", 3, x.Times(1), y.Times(-2.5), x.Times(1))
	p.AtLeast("gone", -1, y.Times(1), x.Times(1), lp.Sum(x.Times(1), y.Times(0)).Times(-1))
	p.Exactly("nothing", 0, x.Times(1), x.Times(-1))
	var all []lp.Expr
	for _, name := range []string{"a", "b", "c", "d", "f", "g", "h", "i", "j"} {
		all = append(all, p.Add(name, 0, 1e21).Times(1))
	}
	p.AtMost("long", 1e-9, all...)
	want := `min
obj: +0.0000001 y
s.t.
twice: +2 x -2.5 y <= 3
gone: +1 y >= -1
nothing: +0 x = 0
long: +1 a +1 b +1 c +1 d +1 f +1 g +1 h +1 i
 +1 j <= 0.000000001
bounds
 0 <= x <= 1
 0.5 <= y <= 2
`
	for _, name := range []string{"a", "b", "c", "d", "f", "g", "h", "i", "j"} {
		want += " 0 <= " + name + " <= 1000000000000000000000\n"
	}
	want += "generals\n x\nend\n"
	if got := p.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if p.Name(y) != "y" {
		t.Errorf("y is %q", p.Name(y))
	}
}
