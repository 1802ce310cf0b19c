package results

import "testing"

func TestScaleLab(t *testing.T) {
	slow, shrunk := Scale{"slow-motion", 100}, Scale{"shrunk", 100}
	for _, c := range []struct {
		s    Scale
		unit string
		want float64
	}{{slow, "bit/s", 200}, {slow, "s", 0.02}, {slow, "B", 2}, {slow, "1", 2}, {shrunk, "bit/s", 200}, {shrunk, "s", 2}, {shrunk, "B", 200}, {Scale{"none", 1}, "bit/s", 2}, {Scale{}, "bit/s", 2}} {
		if got := c.s.Lab(2, c.unit); got != c.want {
			t.Errorf("%s: 2 %s is %g in the lab, want %g", c.s, c.unit, got, c.want)
		}
	}
}
