package study

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
)

func TestCrossing(t *testing.T) {
	for _, c := range []struct {
		ranks string
		want  float64
		text  string
	}{{"a a a a", 0, "0"}, {"b b b d", 1.5, "3/2 K"}, {"b c b c", 1, "K"}, {"a b", 1, "K"}, {"a b c d", 3, "3 K"}, {"", 0, "0"}} {
		if got, text := Crossing(&placement.JobPlan{Ranks: strings.Fields(c.ranks)}); got != c.want || text != c.text {
			t.Errorf("%s: %g, %s; want %g, %s", c.ranks, got, text, c.want, c.text)
		}
	}
	for _, c := range []struct {
		n, of int
		want  string
	}{{3, 1000, "0.003 K"}, {15, 16, "15/16 K"}, {517, 16, "32.3 K"}, {84, 1, "84 K"}, {1000, 1, "1000 K"}} {
		if got := InParts(c.n, c.of); got != c.want {
			t.Errorf("%d of %d parts: %s, want %s", c.n, c.of, got, c.want)
		}
	}
}

func TestRateJSON(t *testing.T) {
	got, err := json.Marshal([]Rate{1e9, 0, Rate(math.Inf(1)), Rate(math.Inf(-1)), Rate(math.NaN())})
	if want := "[1000000000,0,null,null,null]"; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
