package inventory

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory/tomlfile"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the properties under test")

// random is a generator whose seed is printed when the test fails.
func random(t *testing.T) *rand.Rand {
	t.Logf("-seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

func TestParseUnits(t *testing.T) {
	type parsed struct {
		v   any
		str string
		err error
	}
	rate := func(s string) parsed { v, err := ParseBitRate(s); return parsed{float64(v), v.String(), err} }
	size := func(s string) parsed { v, err := ParseBytes(s); return parsed{int64(v), v.String(), err} }
	dur := func(s string) parsed { v, err := ParseDuration(s); return parsed{v.Std(), v.String(), err} }
	tests := []struct {
		parse func(string) parsed
		in    string
		v     any
		str   string
	}{
		{rate, "25Gbit/s", 25e9, "25Gbit/s"},
		{rate, " 100 Mbit/s ", 100e6, "100Mbit/s"},
		{rate, "400Gbps", 400e9, "400Gbit/s"},
		{rate, "1.1Gbit/s", 1.1e9, "1.1Gbit/s"},
		{rate, "0.000001Tbit/s", 1e6, "1Mbit/s"},
		{rate, "0bit/s", 0.0, "0bit/s"},
		{rate, "0.5bps", 0.5, "0.5bit/s"},
		{rate, "33333333.333333332bit/s", 33333333.333333332, "33.333333333333332Mbit/s"},
		{size, "4KiB", int64(4096), "4KiB"},
		{size, "1MB", int64(1e6), "1MB"},
		{size, "1.5kB", int64(1500), "1500B"},
		{size, "1024kB", int64(1024000), "1024kB"},
		{size, "0B", int64(0), "0B"},
		{size, "9223372036854775807B", int64(math.MaxInt64), "9223372036854775807B"},
		{dur, "50us", 50 * time.Microsecond, "50us"},
		{dur, "50µs", 50 * time.Microsecond, "50us"},
		{dur, "90s", 90 * time.Second, "1m30s"},
		{dur, "3600s", time.Hour, "1h"},
		{dur, "10m", 10 * time.Minute, "10m"},
		{dur, "0s", time.Duration(0), "0s"},
		{dur, "3 s", 3 * time.Second, "3s"},
		{dur, " 1.5  ms ", 1500 * time.Microsecond, "1.5ms"},
	}
	for _, tt := range tests {
		got := tt.parse(tt.in)
		if got.err != nil || got.v != tt.v || got.str != tt.str {
			t.Errorf("%q: got %v, %q, %v; want %v, %q", tt.in, got.v, got.str, got.err, tt.v, tt.str)
		}
	}
	bad := []struct {
		parse          func(string) parsed
		in, want, hint string
	}{
		{rate, "25", `"25" lacks a unit`, `write "25Gbit/s" or another unit`},
		{rate, "25GB/s", `"25GB/s" has the unknown unit "GB/s"`, "rates are in bits, eight to a byte: write Gbit/s"},
		{rate, "25Gbits", `"25Gbits" has the unknown unit "Gbits"`, `did you mean "Gbit/s"?`},
		{rate, "-1Gbit/s", `"-1Gbit/s" is negative`, ""},
		{rate, "fast", `"fast" is not a rate`, `write it like "25Gbit/s"`},
		{rate, "1e3bit/s", `"1e3bit/s" has the unknown unit "e3bit/s"`, `did you mean "Tbit/s"?`},
		{rate, "1.2.3bit/s", `"1.2.3bit/s" is not a rate`, `write it like "25Gbit/s"`},
		{rate, "", `"" is not a rate`, `write it like "25Gbit/s"`},
		{size, "64", `"64" lacks a unit`, `write "64KiB" or another unit`},
		{size, "1.5B", `"1.5B" is not a whole number of bytes`, ""},
		{size, "9223372036854775808B", `"9223372036854775808B" is out of range`, ""},
		{dur, "5", `"5" lacks a unit`, `write "5s", "5ms" or "5us"`},
		{dur, "3 0s", `"3 0s" is not a duration`, `write it like "50us", "1.5ms" or "2s"`},
		{dur, "-5s", `"-5s" is negative`, ""},
		{dur, "soon", `"soon" is not a duration`, `write it like "50us", "1.5ms" or "2s"`},
	}
	for _, tt := range bad {
		got := tt.parse(tt.in)
		if got.err == nil || got.err.Error() != tt.want {
			t.Errorf("%q: error %v, want %s", tt.in, got.err, tt.want)
		} else if hint := tomlfile.HintOf(got.err); tt.hint != "" && hint != tt.hint {
			t.Errorf("%q: hint %q, want %q", tt.in, hint, tt.hint)
		}
	}
}

// Whatever String writes, parsing gives back exactly.
func TestUnitsRoundTrip(t *testing.T) {
	rng := random(t)
	for range 20000 {
		r := BitRate(math.Float64frombits(rng.Uint64() &^ (1 << 63)))
		if !math.IsInf(float64(r), 0) && !math.IsNaN(float64(r)) {
			if back, err := ParseBitRate(r.String()); back != r || err != nil {
				t.Fatalf("%v -> %s -> %v, %v", float64(r), r, float64(back), err)
			}
		}
		// Rates as people and scale factors make them.
		r = BitRate(float64(rng.IntN(100000)) * math.Pow10(rng.IntN(10)) / float64(1+rng.IntN(2000)))
		if back, err := ParseBitRate(r.String()); back != r || err != nil {
			t.Fatalf("%v -> %s -> %v, %v", float64(r), r, float64(back), err)
		}
		b := Bytes(rng.Int64() >> rng.IntN(63))
		if back, err := ParseBytes(b.String()); back != b || err != nil {
			t.Fatalf("%d -> %s -> %d, %v", b, b, back, err)
		}
		d := Duration(rng.Int64() >> rng.IntN(63))
		if back, err := ParseDuration(d.String()); back != d || err != nil {
			t.Fatalf("%d -> %s -> %d, %v", d, d, back, err)
		}
	}
}

// Parsing never panics, and a text that is accepted means the same after a round trip.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"25Gbit/s", "1.5KiB", "50us", "-1", "..", "0.1e3bit/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := ParseBitRate(s); err == nil {
			if back, err := ParseBitRate(r.String()); back != r || err != nil {
				t.Errorf("%q: %s: %v", s, r, err)
			}
		} else if r != 0 {
			t.Errorf("%q: %v with an error", s, r)
		}
		if b, err := ParseBytes(s); err == nil {
			if back, err := ParseBytes(b.String()); back != b || err != nil {
				t.Errorf("%q: %s: %v", s, b, err)
			}
		} else if b != 0 {
			t.Errorf("%q: %v with an error", s, b)
		}
		if d, err := ParseDuration(s); err == nil {
			if back, err := ParseDuration(d.String()); back != d || err != nil {
				t.Errorf("%q: %s: %v", s, d, err)
			}
		} else if d != 0 {
			t.Errorf("%q: %v with an error", s, d)
		}
	})
}
