package inventory

import "testing"

// Names compare by the numbers in them.
func TestNatural(t *testing.T) {
	for _, x := range [][2]string{{"leaf2", "leaf10"}, {"leaf", "leaf1"}, {"a9b", "a10a"}, {"a09", "a10"}, {"1", "a"}} {
		if Natural(x[0], x[1]) >= 0 || Natural(x[1], x[0]) <= 0 || Natural(x[0], x[0]) != 0 {
			t.Errorf("%q and %q", x[0], x[1])
		}
	}
}
