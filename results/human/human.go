// Package human writes values as people read them: quantities with their units, intervals, changes, counts of things,
// and names of others without what would move a terminal's cursor.
package human

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/inabench/inabench/results/metric"
)

// Quantity writes a value in base units ("bit/s", "B", "s", "1", ...) with three
// significant digits and an SI prefix: "81.3 Mbit/s", "51.2 ms", "1.02 kB".
// Plain numbers (unit "1" or none) are written without unit: "0.512", "12,345".
func Quantity(v float64, unit string) string {
	if s, ok := notFinite(v); ok {
		return s
	}
	if Plain(unit) {
		return number(v)
	}
	div, prefix := Prefix(v, unit)
	return Fixed(v/div, 3) + " " + prefix + unit
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
	div, prefix := 1.0, ""
	if !Plain(unit) {
		div, prefix = Prefix(v, unit)
	}
	if max(math.Abs(v), h)/div >= mostDigits {
		return strings.TrimSpace(Fixed(v/div, 3) + " ± " + Fixed(h/div, 3) + " " + prefix + strings.TrimPrefix(unit, "1"))
	}
	if Plain(unit) {
		d := Digits(h, 4)
		return strconv.FormatFloat(v, 'f', d, 64) + " ± " + strconv.FormatFloat(h, 'f', d, 64)
	}
	v, h = v/div, h/div
	d := Digits(h, 2)
	return strconv.FormatFloat(v, 'f', d, 64) + " ± " + strconv.FormatFloat(h, 'f', d, 64) + " " + prefix + unit
}

// Percent writes a fraction: 0.024 is "2.4 %".
func Percent(f float64) string {
	if s, ok := notFinite(f); ok {
		return s
	}
	return PercentDigits(f) + " %"
}

// SignedError writes a check's error with its sign: "+2.4 %" when relative,
// "-0.012" or "+1.2 Mbit/s" when absolute.
func SignedError(e float64, relative bool, unit string) string {
	s := Percent(e)
	switch {
	case !relative && Plain(unit) && math.Abs(e) < 10 && e != math.Trunc(e):
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
		return fmt.Sprintf("%d min %02d s", t/60, t%60)
	default:
		t := int(s/60 + 0.5)
		return fmt.Sprintf("%d h %02d min", t/60, t%60)
	}
}

// Plain says that a unit is none: that of a ratio or a count.
func Plain(unit string) bool { return unit == "1" || unit == "" }

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
		return Grouped(strconv.FormatFloat(v, 'f', 0, 64))
	}
	if a < 10 {
		if a != 0 && a < 0.0005 {
			return strconv.FormatFloat(v, 'g', 2, 64)
		}
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return Fixed(v, 3)
}

// Grouped writes a number without decimals with commas: "12,345".
func Grouped(s string) string {
	if strings.Contains(s, ".") {
		return s
	}
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

// Prefix chooses the SI prefix for v. Only seconds go below one: there is no
// millibit.
func Prefix(v float64, unit string) (div float64, prefix string) {
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

// mostDigits is the least number that is written with an exponent: nobody counts so many digits.
const mostDigits = 1e15

// Fixed writes v with n significant digits, without dropping digits before the point or an exponent up to mostDigits.
func Fixed(v float64, n int) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a >= mostDigits:
		return strconv.FormatFloat(v, 'e', n-1, 64)
	}
	d := n - 1 - int(math.Floor(math.Log10(a)+1e-12))
	// Rounding can carry into one more digit: 9.996 is 10.0.
	if r := math.Pow(10, float64(d)); d > 0 && math.Round(a*r)/r >= math.Pow(10, float64(n-d)) {
		d--
	}
	d = min(max(d, 0), 6)
	return Grouped(strconv.FormatFloat(v, 'f', d, 64))
}

// Digits is the number of decimals that shows a half width h with one digit,
// two where the first is a 1, and at most limit.
func Digits(h float64, limit int) int {
	e := int(math.Floor(math.Log10(h)))
	if h/math.Pow(10, float64(e)) < 2 {
		e--
	}
	return min(max(-e, 0), limit)
}

// PercentDigits are those of a fraction in percent, without the sign.
func PercentDigits(f float64) string {
	p := f * 100
	switch a := math.Abs(p); {
	case a == 0:
		return "0"
	case a >= mostDigits && Finite(f): // it may be beyond all numbers itself
		digits, power, _ := strings.Cut(strconv.FormatFloat(f, 'e', 2, 64), "e")
		n, _ := strconv.Atoi(power)
		return fmt.Sprintf("%se+%d", digits, n+2)
	case a < 0.095:
		return strconv.FormatFloat(p, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(p, 'f', 1, 64)
	default:
		return Grouped(strconv.FormatFloat(p, 'f', 0, 64))
	}
}

// Typed writes a number as a person would have typed it.
func Typed(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// Plural writes a number of things: "1 host", "2 hosts".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Grouped(fmt.Sprint(n)) + " " + noun + "s"
}

// Printable replaces what could move a terminal's cursor: names come from files.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// mostCell is how many letters of a name a list has room for.
const mostCell = 60

// Cell is Printable of a name in a list, which is cut where it is longer than anybody reads: every row is padded to it.
func Cell(s string) string {
	n := 0
	for i := range s {
		if n++; n > mostCell {
			return Printable(s[:i]) + "..."
		}
	}
	return Printable(s)
}

// ShortLabel keeps the last part of each dotted key: "switch.pat_ratio=0.5" is
// "pat_ratio=0.5".
func ShortLabel(label string) string {
	parts := strings.Split(label, " ")
	for i, p := range parts {
		if k, v, ok := strings.Cut(p, "="); ok {
			parts[i] = LastKey(k) + "=" + v
		}
	}
	return strings.Join(parts, " ")
}

// UpperFirst has a capital first.
func UpperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// Measure is what people call a metric.
func Measure(name string) string { return metric.Of(name, "").Title }

// Change writes a range of changes: "9.1 to 31 % less", "3 % less to 4 % more".
func Change(lo, hi float64, digits func(float64) string) string {
	side := func(f float64) string {
		if f < 0 {
			return "less"
		}
		return "more"
	}
	a, b := digits(math.Abs(lo)), digits(math.Abs(hi))
	switch {
	case lo < 0 && hi > 0:
		return a + " % less to " + b + " % more"
	case lo == 0 && hi == 0:
		return "the same"
	case lo == 0:
		return "up to " + b + " % more"
	case hi == 0:
		return "up to " + a + " % less"
	case a == b:
		return a + " % " + side(lo)
	case lo < 0: // the smaller change first
		return b + " to " + a + " % less"
	}
	return a + " to " + b + " % more"
}

// PercentTyped writes a fraction in percent as somebody typed it.
func PercentTyped(f float64) string { return Typed(f * 100) }

// LastKey is the last part of a dotted key: "addressing" of "switch.addressing".
func LastKey(k string) string { return k[strings.LastIndexByte(k, '.')+1:] }

// Finite says that values are numbers.
func Finite(v ...float64) bool {
	for _, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// Exact writes a number so that reading it gives the same one.
func Exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Fill joins words with blanks into lines for which fits holds. A word that does not fit by itself is a line.
func Fill(words []string, fits func(line string) bool) (lines []string) {
	for _, word := range words {
		if n := len(lines); n > 0 {
			if longer := lines[n-1] + " " + word; fits(longer) {
				lines[n-1] = longer
				continue
			}
		}
		lines = append(lines, word)
	}
	return lines
}
