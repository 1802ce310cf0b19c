package placement

import (
	"math"
	"reflect"
	"testing"
)

// TestWiden: two racks whose link of 100 Gbit/s was full were to have 8 % less, by a prediction that took every frame of a busy
// machine to be late by itself. What was measured was the link's rate, which the other prediction says.
func TestWiden(t *testing.T) {
	of := func(rate, share, load, spread float64) *Prediction {
		return &Prediction{
			Jobs:  []JobPrediction{{Name: "A", WireRate: rate, Spread: spread, Shares: []SharePrediction{{Share: share, Spread: spread}}}, {Name: "B", Local: true}},
			Links: []LinkPrediction{{Link: "h1->tor1", Load: load, Spread: spread}, {Link: "tor1->h2"}},
		}
	}
	kept, late := of(100, .5, 100, 0), of(92, .3, 92, .01)
	got := kept.Widen(late)
	want := of(100, .5, 100, .08/Deviations)
	want.Jobs[0].Shares[0].Spread = .2 / Deviations
	near := func(a, b *float64) {
		if math.Abs(*a-*b) < 1e-12 {
			*a = *b
		}
	}
	near(&got.Jobs[0].Spread, &want.Jobs[0].Spread)
	near(&got.Jobs[0].Shares[0].Spread, &want.Jobs[0].Shares[0].Spread)
	near(&got.Links[0].Spread, &want.Links[0].Spread)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if !reflect.DeepEqual(kept, of(100, .5, 100, 0)) || !reflect.DeepEqual(late, of(92, .3, 92, .01)) {
		t.Error("a prediction was changed by widening another")
	}
	if got := of(100, .5, 100, .2).Widen(late); !reflect.DeepEqual(got.Links, of(100, .5, 100, .2).Links) || got.Jobs[0].Spread != .2 {
		t.Errorf("%+v: a spread became less", got)
	}
}
