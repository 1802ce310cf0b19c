package inventory

import (
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// unit is a name and its power of ten (rates) or number of bytes.
type unit struct {
	name string
	exp  int
	size int64
}

// The first of equal ones is the one that String writes.
var (
	rateUnits = []unit{
		{name: "Tbit/s", exp: 12}, {name: "Gbit/s", exp: 9}, {name: "Mbit/s", exp: 6}, {name: "kbit/s", exp: 3}, {name: "bit/s", exp: 0},
		{name: "Tbps", exp: 12}, {name: "Gbps", exp: 9}, {name: "Mbps", exp: 6}, {name: "kbps", exp: 3}, {name: "bps", exp: 0},
	}
	byteUnits = []unit{
		{name: "TiB", size: 1 << 40}, {name: "TB", size: 1e12}, {name: "GiB", size: 1 << 30}, {name: "GB", size: 1e9},
		{name: "MiB", size: 1 << 20}, {name: "MB", size: 1e6}, {name: "KiB", size: 1 << 10}, {name: "kB", size: 1e3},
		{name: "B", size: 1}, {name: "KB", size: 1e3},
	}
)

// splitUnit takes "25 Gbit/s" apart. The number is plain decimal: digits with at
// most one point, neither sign nor exponent.
func splitUnit(what, s string, units []unit, example string) (number string, u unit, err error) {
	s = strings.TrimSpace(s)
	n := 0
	for n < len(s) && (s[n] >= '0' && s[n] <= '9' || s[n] == '.') {
		n++
	}
	number, name := s[:n], strings.TrimSpace(s[n:])
	hint := `write it like "` + example + `"`
	switch {
	case strings.HasPrefix(s, "-"):
		return "", u, tomlfile.WithHint("", "%q is negative", s)
	case strings.Trim(number, ".") == "" || strings.Count(number, ".") > 1 || number[0] == '.' || number[n-1] == '.':
		return "", u, tomlfile.WithHint(hint, "%q is not a %s", s, what)
	case name == "":
		return "", u, tomlfile.WithHint(`write "`+number+strings.TrimLeft(example, "0123456789")+`" or another unit`, "%q lacks a unit", s)
	}
	for _, u := range units {
		if u.name == name {
			return number, u, nil
		}
	}
	if what == "rate" && strings.HasSuffix(name, "B/s") {
		return "", u, tomlfile.WithHint("rates are in bits, eight to a byte: write Gbit/s", "%q has the unknown unit %q", s, name)
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return "", u, tomlfile.WithHint(tomlfile.DidYouMean(name, names), "%q has the unknown unit %q", s, name)
}

// ParseBitRate reads "25Gbit/s", "100 Mbit/s" or "400Gbps". Prefixes are powers of
// 1000. The result is finite and not negative; the error has a hint for
// tomlfile.HintOf.
func ParseBitRate(s string) (BitRate, error) {
	number, u, err := splitUnit("rate", s, rateUnits, "25Gbit/s")
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(number+"e"+strconv.Itoa(u.exp), 64)
	if err != nil {
		return 0, tomlfile.WithHint("", "%q is out of range", s)
	}
	return BitRate(v), nil
}

// String is the rate in the largest unit that leaves at least 1 before the point,
// with just enough digits that ParseBitRate gives it back exactly. A rate that is
// negative or not finite, which no file can hold, is printed as a plain float.
func (r BitRate) String() string {
	v := float64(r)
	if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64) + "bit/s"
	}
	// Shifting the point of the shortest decimal keeps it exact where a division
	// by the unit would not.
	mantissa, e, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, 64), "e")
	exp, _ := strconv.Atoi(e)
	digits := strings.Replace(mantissa, ".", "", 1)
	u := rateUnits[4]
	for _, c := range rateUnits[:4] {
		if v > 0 && exp >= c.exp {
			u = c
			break
		}
	}
	switch point := exp - u.exp + 1; {
	case point <= 0:
		return "0." + strings.Repeat("0", -point) + digits + u.name
	case point >= len(digits):
		return digits + strings.Repeat("0", point-len(digits)) + u.name
	default:
		return digits[:point] + "." + digits[point:] + u.name
	}
}

// UnmarshalText is ParseBitRate.
func (r *BitRate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseBitRate(string(text))
	return err
}

// MarshalText is String.
func (r BitRate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Example is how one is written.
func (BitRate) Example() string { return "25Gbit/s" }

// Suggest is how a bare number in a file was probably meant: 25 is "25Gbit/s",
// 25000000000 too.
func (r BitRate) Suggest(number float64) []string {
	if number < 1e5 {
		number *= 1e9
	}
	return []string{BitRate(number).String()}
}

// ParseBytes reads "4KiB", "1.5MB" or "100 B". KiB, MiB, GiB and TiB are powers of
// 1024; kB (or KB), MB, GB and TB of 1000. It must be a whole number of bytes.
func ParseBytes(s string) (Bytes, error) {
	number, u, err := splitUnit("size", s, byteUnits, "4KiB")
	if err != nil {
		return 0, err
	}
	if len(number) > 40 {
		return 0, tomlfile.WithHint("", "%q is out of range", s)
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, tomlfile.WithHint("", "%q is not a size", s)
	}
	r.Mul(r, new(big.Rat).SetInt64(u.size))
	if !r.IsInt() {
		return 0, tomlfile.WithHint("", "%q is not a whole number of bytes", s)
	}
	if !r.Num().IsInt64() {
		return 0, tomlfile.WithHint("", "%q is out of range", s)
	}
	return Bytes(r.Num().Int64()), nil
}

// String is the size as a whole number of the unit that makes it shortest;
// ParseBytes gives it back exactly.
func (b Bytes) String() string {
	best := strconv.FormatInt(int64(b), 10) + "B"
	for _, u := range byteUnits {
		if b == 0 || int64(b)%u.size != 0 {
			continue
		}
		if s := strconv.FormatInt(int64(b)/u.size, 10) + u.name; len(s) < len(best) {
			best = s
		}
	}
	return best
}

// UnmarshalText is ParseBytes.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBytes(string(text))
	return err
}

// MarshalText is String.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// Example is how one is written.
func (Bytes) Example() string { return "64KiB" }

// Suggest is how a bare number in a file was probably meant: 4096 is "4KiB".
func (b Bytes) Suggest(number float64) []string { return []string{Bytes(number).String()} }

// apart is a number with a blank before its unit.
var apart = regexp.MustCompile(`^([0-9.]+)\s+([a-zµμ]+)$`)

// ParseDuration reads what time.ParseDuration does, "50us", "1.5ms" or "1m30s",
// unless it is negative; and "3 s".
func ParseDuration(s string) (Duration, error) {
	s = strings.TrimSpace(s)
	d, err := time.ParseDuration(apart.ReplaceAllString(s, "$1$2"))
	if err != nil {
		if _, ferr := strconv.ParseFloat(s, 64); ferr == nil {
			return 0, tomlfile.WithHint("write "+tomlfile.Either(timesOf(s)), "%q lacks a unit", s)
		}
		return 0, tomlfile.WithHint(`write it like "50us", "1.5ms" or "2s"`, "%q is not a duration", s)
	}
	if d < 0 {
		return 0, tomlfile.WithHint("", "%q is negative", s)
	}
	return Duration(d), nil
}

// Std is the duration as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is like that of time.Duration in plain ASCII and without trailing zero
// parts: "50us", "1m30s", "1h".
func (d Duration) String() string {
	s := strings.Replace(time.Duration(d).String(), "µ", "u", 1)
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// UnmarshalText is ParseDuration.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Example is how one is written.
func (Duration) Example() string { return "50us" }

// Suggest is how a bare number in a file may have been meant: 5 is "5s", as of a phase, or "5us", as of a cable.
func (d Duration) Suggest(number float64) []string {
	return timesOf(strconv.FormatFloat(number, 'f', -1, 64))
}

// timesOf are the durations that a number without a unit may stand for.
func timesOf(number string) []string { return []string{number + "s", number + "ms", number + "us"} }

// Percent is a fraction that is written "2%" in files: more than 0 and less than 1.
type Percent float64

// UnmarshalText reads "2%"; more than 0, less than 100 %.
func (p *Percent) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(v > 0 && v < 100) {
		return tomlfile.WithHint(`write "2%"`, "%q is no percentage between 0 and 100", text)
	}
	*p = Percent(v / 100)
	return nil
}

// Example is how one is written.
func (*Percent) Example() string { return "2%" }

// Suggest is how a bare number should have been written: 0.02 as 2 %.
func (p *Percent) Suggest(number float64) []string {
	if number < 1 {
		number *= 100
	}
	return []string{strconv.FormatFloat(number, 'g', 6, 64) + "%"}
}
