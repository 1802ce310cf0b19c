package trend

import (
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var (
	seed = flag.Uint64("trend.seed", 1, "seed of simulated histories")
	runs = flag.Int("trend.runs", 40, "simulated histories of each kind")
)

// noises are what nights and repeats may differ by, of scale 1.
var noises = []struct {
	name string
	draw func(r *rand.Rand) float64
}{
	{"normal", func(r *rand.Rand) float64 { return r.NormFloat64() }},
	{"Laplace", func(r *rand.Rand) float64 { return math.Copysign(r.ExpFloat64(), r.Float64()-0.5) / math.Sqrt2 }},
	{"heavy tails", func(r *rand.Rand) float64 { // Student's t of 3
		var s float64
		for range 3 {
			x := r.NormFloat64()
			s += x * x
		}
		return r.NormFloat64() / math.Sqrt(s/3) / math.Sqrt(3)
	}},
	{"skewed", func(r *rand.Rand) float64 { return r.ExpFloat64() - 1 }},
	{"two kinds of nights", func(r *rand.Rand) float64 {
		if r.IntN(10) == 0 {
			return 3 + 0.3*r.NormFloat64()
		}
		return 0.3 * r.NormFloat64()
	}},
	{"mostly the same", func(r *rand.Rand) float64 {
		if r.IntN(4) > 0 {
			return 0
		}
		return r.NormFloat64()
	}},
}

// simulate is a history with noise between nights and between the repeats of one.
func simulate(r *rand.Rand, nights, repeats int, between, within func() float64, level func(night int) float64) []Night {
	out := make([]Night, nights)
	for i := range out {
		b := between()
		for range repeats {
			out[i] = append(out[i], level(i)*math.Exp(b+within()))
		}
	}
	return out
}

// Nights without a change raise at most 1 % false alarms, whatever the noise is like.
func TestFalseAlarms(t *testing.T) {
	for _, noise := range noises {
		for _, c := range []struct {
			name            string
			repeats         int
			between, within float64
		}{
			{"one repeat", 1, 0.02, 0},
			{"five repeats, nights alike", 5, 0, 0.02},
			{"five repeats, nights differ", 5, 0.02, 0.005},
		} {
			t.Run(noise.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(*seed, 1))
				alarms, asked := 0, 0
				for range *runs {
					h := simulate(r, 120, c.repeats, func() float64 { return c.between * noise.draw(r) },
						func() float64 { return c.within * noise.draw(r) }, func(int) float64 { return 50 })
					_, found, err := Follow(h, Options{})
					if err != nil {
						t.Fatal(err)
					}
					alarms += len(found)
					asked += len(h) - 10
				}
				rate := float64(alarms) / float64(asked)
				t.Logf("%d alarms in %d nights: %.2f %%", alarms, asked, 100*rate)
				if rate > 0.01 {
					t.Errorf("false alarms in %.2f %% of nights (seed %d)", 100*rate, *seed)
				}
			})
		}
	}
}

// A slowdown of 5 % is found in its first night where nights differ by 0.7 %, and two nights
// later at most where they differ by more.
func TestSlowdown(t *testing.T) {
	const from = 40
	for _, c := range []struct {
		name  string
		noise float64
		late  int
		least float64
	}{
		{"0.7 %", 0.007, 0, 0.9},
		{"1 %, within three nights", 0.01, 2, 0.98},
		{"1.5 %, within three nights", 0.015, 2, 0.9},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(*seed, 2))
			found, n := 0, 5**runs
			for range n {
				h := simulate(r, from+3, 3, func() float64 { return c.noise * r.NormFloat64() },
					func() float64 { return 0.3 * c.noise * r.NormFloat64() }, func(night int) float64 {
						if night >= from {
							return 95
						}
						return 100
					})
				_, all, err := Follow(h, Options{})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range all {
					if f.Night >= from-1 && f.Found <= from+c.late && f.Shift < 0 {
						found++
						break
					}
				}
			}
			t.Logf("%d of %d", found, n)
			if float64(found) < c.least*float64(n) {
				t.Errorf("%d of %d found, want %.0f %% (seed %d)", found, n, 100*c.least, *seed)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	steady := func(more ...Night) []Night {
		var h []Night
		for i := range 12 {
			h = append(h, Night{100 + float64(i%3-1)/10, 100 - float64(i%3-1)/10, 100})
		}
		return append(h, more...)
	}
	half := func(n int) (h []Night) {
		for i := range n {
			h = append(h, Night{50 + float64(i%2)/10, 50, 50})
		}
		return h
	}
	for _, c := range []struct {
		name   string
		nights []Night
		want   State
		since  int
	}{
		{"the first night", []Night{{5}}, Learning, 0},
		{"few nights", steady()[:8], Learning, 7},
		{"as ever", steady(Night{100, 100.1, 99.9}), Same, 12},
		{"half", steady(Night{50, 50.1, 49.9}), Lower, 12},
		{"twice", steady(Night{200, 201, 199}), Higher, 12},
		{"little, though it stands out", steady(Night{100.8, 100.8, 100.8}), Same, 12},
		{"a change is one until it has lasted", steady(Night{50, 50, 50.1}, Night{50, 50, 49.9}), Lower, 12},
		{"an outlier is none of it", steady(Night{50, 50, 50.1}, Night{100, 100.1, 99.9}), Same, 13},
		{"it is one in all nights that it takes to last", steady(half(8)...), Lower, 12},
		{"what has lasted is what things are", steady(half(10)...), Same, 21},
		{"what has lasted is what things are in the night that follows", steady(half(9)...), Same, 20},
		{"another change when one has lasted", steady(append(half(8), Night{25, 25, 25})...), Lower, 20},
		{"what has lasted ends when it has", steady(append(half(8), Night{100, 100.1, 99.9})...), Higher, 20},
		{"zero, ever", []Night{{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}}, Same, 8},
		{"errors where there were none", []Night{{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {3}}, Higher, 8},
		{"negative", []Night{{-10}, {-10.1}, {-9.9}, {-10}, {-10.1}, {-9.9}, {-10}, {-10.1}, {-12}}, Lower, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := Judge(c.nights, Options{Learn: 8})
			if err != nil {
				t.Fatal(err)
			}
			if v.State != c.want || v.Since != c.since {
				t.Errorf("%+v, want %s since night %d", v, c.want, c.since)
			}
			if v.Lo > v.Shift || v.Shift > v.Hi {
				t.Errorf("a shift of %v in [%v, %v]", v.Shift, v.Lo, v.Hi)
			}
		})
	}
	for name, bad := range map[string][]Night{"none": nil, "empty": {{1}, {}}, "not a number": {{1}, {math.NaN()}}} {
		if _, err := Judge(bad, Options{}); !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUntil: a change that went back before it had lasted says when; one that lasted, or may still, says nothing.
func TestUntil(t *testing.T) {
	steady := func(n int, level float64) (h []Night) {
		for i := range n {
			h = append(h, Night{level + level*float64(i%3-1)/1000, level, level})
		}
		return h
	}
	type change struct{ night, until, lasted int }
	for name, c := range map[string]struct {
		nights [][]Night
		want   []change
	}{
		"one night":          {[][]Night{steady(12, 100), steady(1, 50), steady(20, 100)}, []change{{12, 13, 1}}},
		"three nights":       {[][]Night{steady(12, 100), steady(3, 50), steady(20, 100)}, []change{{12, 15, 3}}},
		"two outliers":       {[][]Night{steady(12, 100), steady(1, 50), steady(20, 100), steady(1, 20), steady(5, 100)}, []change{{12, 13, 1}, {33, 34, 1}}},
		"the newest":         {[][]Night{steady(12, 100), steady(1, 50)}, []change{{12, 0, 0}}},
		"what lasts":         {[][]Night{steady(12, 100), steady(20, 50)}, []change{{12, 0, 0}}},
		"what lasted":        {[][]Night{steady(12, 100), steady(20, 50), steady(20, 100)}, []change{{12, 0, 0}, {32, 0, 0}}},
		"to the other side":  {[][]Night{steady(12, 100), steady(2, 50), steady(20, 200)}, []change{{12, 14, 2}, {14, 0, 0}}},
		"none":               {[][]Night{steady(30, 100)}, nil},
		"beyond all numbers": {[][]Night{steady(12, 1e308), steady(1, 5e307), steady(20, 1e308)}, []change{{12, 13, 1}}},
	} {
		v, changes, err := Follow(slices.Concat(c.nights...), Options{})
		var got []change
		for _, ch := range changes {
			got = append(got, change{ch.Night, ch.Until, ch.Lasted()})
		}
		if err != nil || !slices.Equal(got, c.want) || math.IsInf(v.Tonight, 0) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// TestShiftWithZeros: a change is a part of what is held against, of a metric that is 0 somewhere too, however large another
// night was.
func TestShiftWithZeros(t *testing.T) {
	judge := func(nights []Night) (Verdict, error) { return Judge(nights, Options{Learn: 8}) }
	pair := func(nights []Night) (Verdict, error) {
		n := len(nights) - 2
		return Pair{Before: nights[n], After: nights[n+1], Earlier: nights[:n]}.Judge(Options{})
	}
	for _, c := range []struct {
		name   string
		of     func([]Night) (Verdict, error)
		nights []Night
		shift  float64
	}{
		{"a pair, doubled", pair, []Night{{0, 10, 10, 10}, {20, 20, 20, 20}}, 1},
		{"a pair, halved", pair, []Night{{0, 10, 10, 10}, {5, 5, 5, 5}}, -0.5},
		{"a pair, and a large night before", pair, []Night{{100}, {0, 10, 10, 10}, {20, 20, 20, 20}}, 1},
		{"a pair, from 0", pair, []Night{{0, 0, 0, 0}, {20, 20, 20, 20}}, 1},
		{"a pair below 0", pair, []Night{{-10, -10, -10, -10}, {-20, -20, -20, -20}}, -1},
		{"the newest of many", judge, []Night{{100}, {0}, {10}, {10.1}, {9.9}, {10}, {10.1}, {9.9}, {20}}, 1},
	} {
		v, err := c.of(c.nights)
		if err != nil || math.Abs(v.Shift-c.shift) > 1e-9 || v.Lo > v.Shift || v.Shift > v.Hi {
			t.Errorf("%s: %+v (%v), want a shift of %g", c.name, v, err, c.shift)
		}
	}
}

// A metric in other units, or one over it, gets the same answer.
func TestUnits(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 3))
	for range 50 {
		h := simulate(r, 30, 3, func() float64 { return 0.01 * r.NormFloat64() }, func() float64 { return 0.01 * r.NormFloat64() },
			func(night int) float64 { return []float64{1, 0.9}[night/29] })
		scaled, over := make([]Night, len(h)), make([]Night, len(h))
		for i := range h {
			for _, x := range h[i] {
				scaled[i] = append(scaled[i], 8e9*x)
				over[i] = append(over[i], 1/x)
			}
		}
		a, _ := Judge(h, Options{})
		b, _ := Judge(scaled, Options{})
		c, _ := Judge(over, Options{})
		opposite := map[State]State{Lower: Higher, Higher: Lower, Same: Same, Learning: Learning}
		if a.State != b.State || math.Abs(a.Shift-b.Shift) > 1e-9 || a.State != opposite[c.State] {
			t.Errorf("%v, scaled %v, its inverse %v", a, b, c)
		}
	}
}

func TestForChange(t *testing.T) {
	n := Noise{Repeats: 0.01, Nights: 0.01}
	if few, many := n.ForChange(0.02), n.ForChange(0.002); few != 1 || many < 100 || many > 200 {
		t.Errorf("%d repeats for 2 %%, %d for 0.2 %%", few, many)
	}
	if n := (Noise{Repeats: 1}).ForChange(0.0001); n != 0 {
		t.Errorf("%d repeats", n)
	}
}

func BenchmarkJudge(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	h := simulate(r, 300, 5, func() float64 { return 0.01 * r.NormFloat64() }, func() float64 { return 0.01 * r.NormFloat64() }, func(int) float64 { return 1 })
	for b.Loop() {
		if _, err := Judge(h, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
