package trend

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/inabench/inabench/results"
)

func TestCut(t *testing.T) {
	// Two-sided 5 %, from the tables of Mann and Whitney (1947) and their extensions.
	for _, c := range []struct{ n, m, want int }{{3, 3, -1}, {3, 4, -1}, {4, 4, 0}, {5, 5, 2}, {6, 6, 5}, {8, 8, 13}, {10, 10, 23}, {5, 10, 8}, {20, 20, 127}} {
		if got := cut(c.n, c.m); got != c.want {
			t.Errorf("cut(%d, %d) = %d, want %d", c.n, c.m, got, c.want)
		}
	}
}

func TestPair(t *testing.T) {
	nights := func(n int, sd float64) (out []Night) {
		for i := range n {
			out = append(out, Night{100 * (1 + sd*math.Sin(float64(i)*2.4)), 100 * (1 + sd*math.Sin(float64(i)*2.4+0.3))})
		}
		return out
	}
	for _, c := range []struct {
		name string
		pair Pair
		want State
	}{
		{"three repeats decide nothing", Pair{Before: Night{100, 101, 102}, After: Night{90, 91, 92}}, Open},
		{"five repeats, clearly lower", Pair{Before: Night{100, 101, 102, 100.5, 101.5}, After: Night{90, 91, 92, 90.5, 91.5}}, Lower},
		{"five repeats, lower by less than nights may differ", Pair{Before: Night{100, 101, 102, 100.5, 101.5}, After: Night{97, 98, 99, 97.5, 98.5}}, Same},
		{"five repeats, the same", Pair{Before: Night{100, 101, 102, 100.5, 101.5}, After: Night{100.2, 101.1, 101.9, 100.4, 101.6}}, Same},
		{"five repeats, too noisy", Pair{Before: Night{80, 90, 100, 110, 120}, After: Night{70, 85, 95, 105, 125}}, Open},
		{"nights that hardly differ make 3 % visible", Pair{Before: Night{100}, After: Night{97}, Earlier: nights(20, 0.002)}, Lower},
		{"nights that differ hide 3 %", Pair{Before: Night{100}, After: Night{97}, Earlier: nights(20, 0.03)}, Open},
		{"a change that does not matter", Pair{Before: Night{100}, After: Night{100.5}, Earlier: nights(20, 0.0001)}, Same},
		{"exact, and another", Pair{Before: Night{100}, After: Night{102}, Exact: true}, Higher},
		{"exact, and the same", Pair{Before: Night{100}, After: Night{100}, Exact: true}, Same},
		{"exact, and more than the same may hide", Pair{Before: Night{100}, After: Night{100.7}, Exact: true, Within: 0.005}, Higher},
		{"exact, and no more than that", Pair{Before: Night{100}, After: Night{100.4}, Exact: true, Within: 0.005}, Same},
		{"repeats, and more than the same may hide", Pair{Before: Night{100, 100, 100, 100.01}, After: Night{99.3, 99.3, 99.3, 99.31}, Within: 0.005}, Lower},
		{"quiet nights, and more than the same may hide", Pair{Before: Night{100}, After: Night{99.3}, Earlier: nights(20, 0.0001), Within: 0.005}, Lower},
		{"counts that stay 0", Pair{Before: Night{0, 0}, After: Night{0, 0}}, Same},
		{"one repeat each says nothing", Pair{Before: Night{0}, After: Night{0}}, Open},
	} {
		v, err := c.pair.Judge(Options{})
		if err != nil || v.State != c.want {
			t.Errorf("%s: %s (%v), %.3f [%.3f, %.3f], want %s", c.name, v.State, err, v.Shift, v.Lo, v.Hi, c.want)
		}
		if !(v.Lo <= v.Shift && v.Shift <= v.Hi) {
			t.Errorf("%s: %g is not in [%g, %g]", c.name, v.Shift, v.Lo, v.Hi)
		}
	}
	if _, err := (Pair{Before: Night{1}}).Judge(Options{}); err == nil {
		t.Error("a night without figures was judged")
	}
}

// TestPairFalseAlarms: of pairs in which nothing changed, few are said to have.
func TestPairFalseAlarms(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 5))
	night := func(n int, sd float64) (out Night) {
		level := 100 * math.Exp(sd*rng.NormFloat64())
		for range n {
			out = append(out, level*math.Exp(sd*rng.NormFloat64()))
		}
		return out
	}
	const runs = 600
	alarms := 0
	for range runs {
		var earlier []Night
		for range 20 {
			earlier = append(earlier, night(3, 0.02))
		}
		v, err := Pair{Before: night(3, 0.02), After: night(3, 0.02), Earlier: earlier}.Judge(Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v.State == Lower || v.State == Higher {
			alarms++
		}
	}
	// 0.5 % are allowed: 3 of 600; more than 10 would come of that once in two thousand.
	if alarms > 10 {
		t.Errorf("%d of %d pairs without a change were said to differ", alarms, runs)
	}
	t.Logf("%d of %d false alarms", alarms, runs)
}

// TestPairStates: of pairs of single runs in which nothing changed, one in twenty at most is said to have, also where runs come
// in two states, and the interval of normal ones is no wider than their noise makes it. A change that is larger than states are apart
// is seen, and a change that lasted makes no states.
func TestPairStates(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 6))
	states := func(part, apart float64) func() float64 {
		return func() float64 {
			x := 100 * math.Exp(0.001*rng.NormFloat64())
			if rng.Float64() < part {
				x *= 1 - apart
			}
			return x
		}
	}
	normal := func() float64 { return 100 * math.Exp(0.02*rng.NormFloat64()) }
	earlier := func(n int, draw func() float64) (out []Night) {
		for range n {
			out = append(out, Night{draw()})
		}
		return out
	}
	for _, c := range []struct {
		name string
		draw func() float64
	}{
		{"normal", normal}, {"70/30", states(.3, .04)}, {"50/50", states(.5, .04)}, {"80/20, near to each other", states(.2, .006)},
		{"two values", func() float64 { return 96 + 4*float64(rng.IntN(2)) }},
	} {
		for n, pairs := range map[int]int{10: 1000, 20: 1000, 118: 100} {
			outside, half, noise := 0, 0., 0.
			for range pairs {
				v, err := Pair{Before: Night{c.draw()}, After: Night{c.draw()}, Earlier: earlier(n, c.draw)}.Judge(Options{FalseAlarms: 0.05})
				if err != nil {
					t.Fatal(err)
				}
				if v.Lo > 0 || v.Hi < 0 {
					outside++
				}
				half += math.Log1p(v.Hi) - math.Log1p(v.Shift)
				noise += results.StudentTail(0.37*float64(v.Nights), 0.025) * math.Sqrt2 * v.Noise.Nights
			}
			p := float64(outside) / float64(pairs)
			t.Logf("%s, %d earlier: %.2f %% miss 0, %.3f of the noise alone", c.name, n, 100*p, half/noise)
			if p > 0.05+3*math.Sqrt(0.05*0.95/float64(pairs)) {
				t.Errorf("%s, %d earlier: %d of %d intervals at 95 %% miss that nothing changed", c.name, n, outside, pairs)
			}
			if c.name == "normal" && half > 1.05*noise {
				t.Errorf("%d normal nights: the interval is %.2f of what their noise makes it", n, half/noise)
			}
		}
	}

	steady, lower := states(0, 0), func(by float64) func() float64 { return states(1, by) }
	for _, c := range []struct {
		name          string
		earlier       []Night
		before, after float64
		want          State
	}{
		{"more than states are apart", earlier(60, states(.3, .04)), 100, 93, Lower},
		{"as far as states are apart", earlier(60, states(.3, .04)), 100, 96, Open},
		{"after a change that lasted", slices.Concat(earlier(30, steady), earlier(20, lower(.1))), 90, 87, Lower},
		{"back to what was before a change that lasted", slices.Concat(earlier(30, steady), earlier(20, lower(.1))), 90, 100, Higher},
		{"soon after a change", slices.Concat(earlier(30, steady), earlier(5, lower(.1))), 90, 87, Lower},
	} {
		v, err := Pair{Before: Night{c.before}, After: Night{c.after}, Earlier: c.earlier}.Judge(Options{FalseAlarms: 0.05})
		if err != nil || v.State != c.want {
			t.Errorf("%s: %s (%v), %.3f [%.3f, %.3f], want %s", c.name, v.State, err, v.Shift, v.Lo, v.Hi, c.want)
		}
	}
}
