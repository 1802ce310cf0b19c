package human

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestQuantity(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{81.3e6, "bit/s", "81.3 Mbit/s"}, {999.6e3, "bit/s", "1.00 Mbit/s"}, {999.4e3, "bit/s", "999 kbit/s"}, {0, "bit/s", "0 bit/s"}, {0.4, "bit/s", "0.400 bit/s"},
		{25e9, "bit/s", "25.0 Gbit/s"}, {-3.2e6, "bit/s", "-3.20 Mbit/s"}, {1024, "B", "1.02 kB"},
		{0.0512, "s", "51.2 ms"}, {50e-6, "s", "50.0 µs"}, {24.1, "s", "24.1 s"}, {3e-10, "s", "0.300 ns"}, {4000, "s", "4000 s"},
		{0.512, "1", "0.512"}, {1, "1", "1.000"}, {0, "1", "0"}, {12345, "1", "12,345"}, {1234567, "", "1,234,567"}, {42, "", "42"}, {12.34, "1", "12.3"}, {9.9996, "1", "10.000"},
		{1e308, "bit/s", "1.00e+293 Pbit/s"}, {-2e15, "s", "-2.00e+15 s"}, {3e20, "1", "3.00e+20"},
		{math.NaN(), "s", "unknown"}, {math.Inf(1), "1", "unknown"},
	} {
		if got := Quantity(c.v, c.unit); got != c.want {
			t.Errorf("Quantity(%g, %q) = %q, want %q", c.v, c.unit, got, c.want)
		}
	}
	for _, c := range []struct {
		v, half float64
		unit    string
		want    string
	}{
		{81.3e6, 0.42e6, "bit/s", "81.3 ± 0.4 Mbit/s"}, {81.3e6, 0.14e6, "bit/s", "81.30 ± 0.14 Mbit/s"}, {81.3e6, 0, "bit/s", "81.3 Mbit/s"},
		{0.5123, 0.0042, "1", "0.512 ± 0.004"}, {0.9994, 0.0003, "1", "0.9994 ± 0.0003"}, {12000, 340, "1", "12000 ± 340"},
		{1e300, 2e299, "s", "1.00e+300 ± 2.00e+299 s"}, {1, 1e300, "1", "1.00 ± 1.00e+300"},
	} {
		if got := QuantityCI(c.v, c.v-c.half, c.v+c.half, c.unit); got != c.want {
			t.Errorf("QuantityCI(%g ± %g, %q) = %q, want %q", c.v, c.half, c.unit, got, c.want)
		}
	}
	for f, want := range map[float64]string{0: "0 %", 0.024: "2.4 %", 0.0004: "0.04 %", 0.13: "13.0 %", 12: "1200 %", -0.05: "-5.0 %", 1e12: "100,000,000,000,000 %", 1e13: "1.00e+15 %", 1.7e308: "1.70e+310 %", -1e306: "-1.00e+308 %"} {
		if got := Percent(f); got != want {
			t.Errorf("Percent(%g) = %q, want %q", f, got, want)
		}
	}
	for _, c := range []struct {
		e        float64
		relative bool
		unit     string
		want     string
	}{{0.024, true, "", "+2.4 %"}, {-0.0121, false, "1", "-0.012"}, {-1e-5, false, "1", "0.000"}, {1.2e6, false, "bit/s", "+1.20 Mbit/s"}, {0, true, "", "0 %"}, {3, false, "1", "+3"}} {
		if got := SignedError(c.e, c.relative, c.unit); got != c.want {
			t.Errorf("SignedError(%g) = %q, want %q", c.e, got, c.want)
		}
	}
	for d, want := range map[time.Duration]string{24100 * time.Millisecond: "24.1 s", 200 * time.Second: "3 min 20 s", 62 * time.Minute: "1 h 02 min"} {
		if got := Elapsed(d); got != want {
			t.Errorf("Elapsed(%s) = %q, want %q", d, got, want)
		}
	}
}

func TestChange(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		digits func(float64) string
		want   string
	}{
		{0, 0, PercentDigits, "the same"},
		{0, .005, PercentDigits, "up to 0.5 % more"},
		{0, .45, PercentDigits, "up to 45.0 % more"},
		{-.005, 0, PercentDigits, "up to 0.5 % less"},
		{-.78, 0, PercentTyped, "up to 78 % less"},
		{-.03, .04, PercentTyped, "3 % less to 4 % more"},
		{-.2, -.2, PercentDigits, "20.0 % less"},
		{-.31, -.091, PercentDigits, "9.1 to 31.0 % less"},
		{.13, .46, PercentTyped, "13 to 46 % more"},
	} {
		if got := Change(c.lo, c.hi, c.digits); got != c.want {
			t.Errorf("Change(%g, %g) = %q, want %q", c.lo, c.hi, got, c.want)
		}
	}
}

// TestCell: a name in a list is as long as a row has room for.
func TestCell(t *testing.T) {
	for name, want := range map[string]string{
		"quickstart":                          "quickstart",
		strings.Repeat("ä", mostCell):         strings.Repeat("ä", mostCell),
		strings.Repeat("ä", 5<<20):            strings.Repeat("ä", mostCell) + "...",
		"a\x1b[31m" + strings.Repeat("x", 99): "a\uFFFD[31m" + strings.Repeat("x", mostCell-6) + "...",
	} {
		if got := Cell(name); got != want {
			t.Errorf("%.80q, want %q", got, want)
		}
	}
}
