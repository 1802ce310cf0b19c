package placement

import (
	"math"
	"reflect"
	"slices"
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

// TestWidenByName: a switch to which whole sums come but for chance is in one of two predictions, and each spread is that of
// the same switch and cable all the same.
func TestWidenByName(t *testing.T) {
	job := func(rate float64, shares ...SharePrediction) JobPrediction {
		return JobPrediction{Name: "A", WireRate: rate, Shares: shares}
	}
	at := func(name string, share float64) SharePrediction { return SharePrediction{Switch: name, Share: share} }
	kept := &Prediction{
		Jobs:  []JobPrediction{job(100, at("tor1", .5), at("spine1", .9), at("tor2", .4))},
		Links: []LinkPrediction{{Link: "up", Load: 10}, {Link: "down", Load: 20}},
	}
	late := &Prediction{
		Jobs:  []JobPrediction{{Name: "B"}, job(90, at("tor1", .4), at("tor2", .1), at("tor3", 0))},
		Links: []LinkPrediction{{Link: "other", Load: 1}, {Link: "down", Load: 19}},
	}
	for range 2 { // either way
		got := kept.Widen(late)
		for i, want := range map[int]float64{0: .1, 1: 0, 2: .3} {
			if s := got.Jobs[0].Shares[i]; math.Abs(s.Spread*Deviations-want) > 1e-12 {
				t.Errorf("%s may be off by %v, want %v", s.Switch, s.Spread*Deviations, want)
			}
		}
		for i, want := range []float64{0, .05} {
			if l := got.Links[i]; math.Abs(l.Spread*Deviations-want) > 1e-12 {
				t.Errorf("%s may be off by %v, want %v", l.Link, l.Spread*Deviations, want)
			}
		}
		slices.Reverse(late.Jobs[1].Shares)
		slices.Reverse(late.Links)
	}
}
