package trend

import (
	"math"
	"math/rand/v2"
	"testing"
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
