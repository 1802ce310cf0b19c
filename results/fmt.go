package results

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Quantity writes a value in base units ("bit/s", "B", "s", "1", ...) with three
// significant digits and an SI prefix: "81.3 Mbit/s", "51.2 ms", "1.02 kB".
// Plain numbers (unit "1" or none) are written without unit: "0.512", "12,345".
func Quantity(v float64, unit string) string {
	if s, ok := notFinite(v); ok {
		return s
	}
	if plain(unit) {
		return number(v)
	}
	div, prefix := prefixOf(v, unit)
	return fixed(v/div, 3) + " " + prefix + unit
}

// QuantityCI writes a value with the half width of its confidence interval, in one
// unit and to the digits that the interval allows: "81.3 ± 0.4 Mbit/s". An empty
// interval (exact figures) writes as Quantity does.
func QuantityCI(v, lo, hi float64, unit string) string {
	h := max(hi-v, v-lo)
	if s, ok := notFinite(v); ok {
		return s
	}
	if !(h > 0) || math.IsInf(h, 0) {
		return Quantity(v, unit)
	}
	if plain(unit) {
		d := digitsFor(h, 4)
		return strconv.FormatFloat(v, 'f', d, 64) + " ± " + strconv.FormatFloat(h, 'f', d, 64)
	}
	div, prefix := prefixOf(v, unit)
	v, h = v/div, h/div
	d := digitsFor(h, 2)
	return strconv.FormatFloat(v, 'f', d, 64) + " ± " + strconv.FormatFloat(h, 'f', d, 64) + " " + prefix + unit
}

// Percent writes a fraction: 0.024 is "2.4 %".
func Percent(f float64) string {
	if s, ok := notFinite(f); ok {
		return s
	}
	return percentDigits(f) + " %"
}

// SignedError writes a check's error with its sign: "+2.4 %" when relative,
// "-0.012" or "+1.2 Mbit/s" when absolute.
func SignedError(e float64, relative bool, unit string) string {
	s := Percent(e)
	switch {
	case !relative && plain(unit) && math.Abs(e) < 10 && finite(e) && e != math.Trunc(e):
		s = strconv.FormatFloat(e, 'f', 3, 64)
	case !relative:
		s = Quantity(e, unit)
	}
	if e > 0 && strings.ContainsAny(s, "123456789") {
		s = "+" + s
	} else if !strings.ContainsAny(s, "123456789") {
		s = strings.TrimPrefix(s, "-") // no "-0.000"
	}
	return s
}

// Elapsed writes a duration for people: "24.1 s", "3 min 20 s", "1 h 02 min".
func Elapsed(d time.Duration) string {
	switch s := d.Seconds(); {
	case s < 60:
		return Quantity(s, "s")
	case s < 3600:
		t := int(s + 0.5)
		return strconv.Itoa(t/60) + " min " + two(t%60) + " s"
	default:
		t := int(s/60 + 0.5)
		return strconv.Itoa(t/60) + " h " + two(t%60) + " min"
	}
}

func two(n int) string {
	if n < 10 {
		return "0" + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}

// Lab translates a figure of the emulation to what it stands for in the lab.
// Slow motion divided rates and multiplied times; a shrunk run divided rates and
// bytes and left time alone. Ratios and counts are the same in both.
func (s Scale) Lab(v float64, unit string) float64 {
	k := s.Factor
	if !s.scales(unit) {
		return v
	}
	if unit == "s" {
		return v / k
	}
	return v * k
}

// ownTimes are metrics of what this program does itself, which no emulation slows down.
var ownTimes = []string{"placement_time", "tree_time"}

// Scales says whether an emulation changes figures of a metric in a unit.
func (s Scale) Scales(metric, unit string) bool {
	return s.scales(unit) && !slices.Contains(ownTimes, metric)
}

// Emulated is the other way round: what something of the lab is in the emulation.
func (s Scale) Emulated(v float64, unit string) float64 {
	if !s.scales(unit) {
		return v
	}
	return v / s.Lab(1, unit)
}

func (s Scale) scales(unit string) bool {
	if s.Factor == 0 || s.Factor == 1 || s.Mode == "none" {
		return false
	}
	switch unit {
	case "bit/s", "B/s":
		return true
	case "1/s", "s":
		return s.Mode == "slow-motion"
	case "B":
		return s.Mode == "shrunk"
	}
	return false
}

// String says what the scale does: "slow motion x100".
func (s Scale) String() string {
	if s.Factor == 0 || s.Factor == 1 || s.Mode == "none" || s.Mode == "" {
		return "1:1"
	}
	return strings.ReplaceAll(s.Mode, "-", " ") + " x" + strconv.FormatFloat(s.Factor, 'g', -1, 64)
}

func plain(unit string) bool { return unit == "1" || unit == "" }

func notFinite(v float64) (string, bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "unknown", true
	}
	return "", false
}

// number writes a dimensionless value: ratios to three decimals, counts grouped.
func number(v float64) string {
	a := math.Abs(v)
	if a == math.Trunc(a) && a < 1e15 && (a >= 2 || a == 0) {
		return grouped(strconv.FormatFloat(v, 'f', 0, 64))
	}
	if a < 10 {
		if a != 0 && a < 0.0005 {
			return strconv.FormatFloat(v, 'g', 2, 64)
		}
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return fixed(v, 3)
}

func grouped(s string) string {
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	if len(s) > 4 { // 1234 reads well enough
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
	}
	if neg {
		s = "-" + s
	}
	return s
}

var prefixes = []struct {
	div  float64
	name string
}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}, {1e-3, "m"}, {1e-6, "µ"}, {1e-9, "n"}}

// prefixOf chooses the SI prefix for v. Only seconds go below one: there is no
// millibit.
func prefixOf(v float64, unit string) (div float64, prefix string) {
	if unit == "h" || strings.HasPrefix(unit, "1/") { // nobody says kh
		return 1, ""
	}
	a := math.Abs(v)
	for _, p := range prefixes {
		if p.div < 1 && (unit != "s" || a == 0) || unit == "s" && p.div > 1 {
			continue
		}
		if a >= p.div*0.9995 { // 999.6 k rounds to 1.00 M
			return p.div, p.name
		}
	}
	if unit == "s" && a > 0 {
		return 1e-9, "n"
	}
	return 1, ""
}

// fixed writes v with n significant digits and no exponent, never dropping
// digits before the point.
func fixed(v float64, n int) string {
	a := math.Abs(v)
	if a == 0 {
		return "0"
	}
	d := n - 1 - int(math.Floor(math.Log10(a)+1e-12))
	// Rounding can carry into one more digit: 9.996 is 10.0.
	if r := math.Pow(10, float64(d)); d > 0 && math.Round(a*r)/r >= math.Pow(10, float64(n-d)) {
		d--
	}
	d = min(max(d, 0), 6)
	return grouped2(strconv.FormatFloat(v, 'f', d, 64))
}

func grouped2(s string) string {
	if !strings.Contains(s, ".") {
		return grouped(s)
	}
	return s
}

// digitsFor is the number of decimals that shows a half width h with one digit,
// two where the first is a 1, and at most limit.
func digitsFor(h float64, limit int) int {
	e := int(math.Floor(math.Log10(h)))
	if h/math.Pow(10, float64(e)) < 2 {
		e--
	}
	return min(max(-e, 0), limit)
}

func percentDigits(f float64) string {
	p := f * 100
	switch a := math.Abs(p); {
	case a == 0:
		return "0"
	case a < 0.095:
		return strconv.FormatFloat(p, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(p, 'f', 1, 64)
	default:
		return grouped(strconv.FormatFloat(p, 'f', 0, 64))
	}
}

// short writes a number as a person would have typed it.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
