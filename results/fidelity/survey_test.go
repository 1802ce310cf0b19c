package fidelity

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
)

// drawn is a run of a setting in which goodput is off by a part of it, a share by so much, and a
// link that should be idle carries a part of the busiest one's rate.
func drawn(id string, outcome results.Outcome, off, share, stray float64) *results.Record {
	rec := record("netns", id, 1000)
	rec.Outcome = outcome
	if outcome != results.Pass {
		rec.Reasons = []string{"goodput of A: off"}
	}
	rec.Points = []results.Point{{Phases: []results.Phase{{Figures: []results.Figure{
		seen(rec, "goodput", "A", 1e7*(1+off), 1e4), said("occupancy", "goodput", "A", 1e7, "rate limit"), said("waterfill", "goodput", "A", 5e7, ""),
		seen(rec, "share", "A@tor1", 0.5+share, 0.01), said("occupancy", "share", "A@tor1", 0.5, ""),
		seen(rec, "link_rate", "h1->tor1", 2e7, 0), said("occupancy", "link_rate", "h1->tor1", 2e7, ""),
		seen(rec, "link_rate", "tor1->h1", 2e7*stray, 0), said("occupancy", "link_rate", "tor1->h1", 0, ""),
		seen(rec, "rtt", "A", 1, 0),
	}}}}}
	return rec
}

var limits = []SurveyLimit{{"goodput", 0.05}, {"link_rate", 0.05}, {"share", 0.04}}

// TestSurveyStates: what is held to a state that was chosen by what was measured counts for no figure's error.
func TestSurveyStates(t *testing.T) {
	s := NewSurvey("netns", "8ff0169", "occupancy", 2, limits)
	s.Add(SurveyCase{Name: "random-1-1"}, drawn("CASE01", results.Pass, 0.04, 0.01, 0), nil)
	tipped := drawn("CASE02", results.Pass, 0.001, 0, 0)
	tipped.Points[0].Phases[0].State = "one of 48 runs"
	s.Add(SurveyCase{Name: "random-1-2"}, tipped, nil)
	if g := s.Groups[0]; g.N != 1 || math.Abs(g.Mean-0.04) > 1e-9 {
		t.Errorf("goodput: %+v", g)
	}
	if g := s.States[0]; g.N != 1 || math.Abs(g.Mean-0.001) > 1e-9 {
		t.Errorf("goodput of a state: %+v", g)
	}
	var text strings.Builder
	if err := s.Write(&text); err != nil || !strings.Contains(text.String(), "goodput, a state") {
		t.Errorf("%v:\n%s", err, text.String())
	}
}

func TestSurvey(t *testing.T) {
	s := NewSurvey("netns", "8ff0169", "occupancy", 8, limits)
	setting := func(i int) SurveyCase {
		return SurveyCase{Name: fmt.Sprintf("random-1-%d", i), Title: "rack of 4 hosts", Factor: 2000, Command: fmt.Sprintf("inabench fidelity --random 1 --case %d", i)}
	}
	s.Add(setting(1), drawn("CASE01", results.Pass, 0.01, 0.01, 0), nil)
	s.Add(setting(2), drawn("CASE02", results.Pass, -0.03, 0, 0.001), nil)
	s.Add(setting(3), drawn("CASE03", results.Fail, 0.2, -0.3, 0.1), nil)
	stopped := drawn("CASE04", results.Fail, -1, 0, 0) // nothing came: an error of all, not no error
	s.Add(setting(4), stopped, nil)
	for i, ms := range []string{"54 ms", "112.5 ms"} {
		late := drawn(fmt.Sprintf("CASE0%d", 5+i), results.Inconclusive, 9, 9, 9)
		late.Points[0].Health = []results.Trouble{{Where: fmt.Sprintf("switch tor%d", i+1), What: "frames leave " + ms + " late", Fatal: true}}
		late.Reasons = []string{late.Points[0].Health[0].String()}
		s.Add(setting(5+i), late, nil)
	}
	s.Add(setting(7), nil, errors.New("the run on netns exited with 6"))

	if s.Passed != 2 || s.Failed != 2 || s.Undecided != 2 || s.Broken != 1 || s.Outcome() != results.Fail {
		t.Errorf("%d passed, %d failed, %d undecided, %d broken: %s", s.Passed, s.Failed, s.Undecided, s.Broken, s.Outcome())
	}
	g := s.Groups[0]
	if g.N != 4 || math.Abs(g.Mean-0.31) > 1e-9 || math.Abs(g.Bias+0.205) > 1e-9 || math.Abs(g.Max-1) > 1e-9 || math.Abs(g.P95-1) > 1e-9 || g.Within != 0.5 || !g.Relative {
		t.Errorf("goodput: %+v", g)
	}
	// Of the idle link one carries a tenth of the busiest; a thousandth is idle, too.
	if g := s.Groups[1]; g.N != 5 || math.Abs(g.Max-0.1) > 1e-9 {
		t.Errorf("links: %+v", g)
	}
	if g := s.Groups[2]; g.N != 4 || g.Relative || math.Abs(g.Max-0.3) > 1e-9 {
		t.Errorf("shares: %+v", g)
	}
	if g := s.Spoilt[0]; g.N != 2 || math.Abs(g.Mean-9) > 1e-9 {
		t.Errorf("goodput of spoilt points: %+v", g)
	}
	if len(s.Why) != 2 || s.Why[0].N != 2 || s.Why[0].Why != "switch …: frames leave N ms late" {
		t.Errorf("why: %+v", s.Why)
	}
	if e := s.Worst[0]; e.Case != "random-1-4" || e.Metric != "goodput" || e.Measured != 0 || e.Predicted != 1e10 {
		t.Errorf("worst: %+v", e)
	}
	var out strings.Builder
	if err := s.Write(&out); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "survey.txt", out.String())
	if text, err := json.Marshal(s); err != nil || !strings.Contains(string(text), `"undecided":2`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestSurveyOutcome(t *testing.T) {
	for _, tt := range []struct {
		s    Survey
		want results.Outcome
	}{
		{Survey{}, results.Inconclusive},
		{Survey{Passed: 3}, results.Pass},
		{Survey{Passed: 3, Undecided: 1}, results.Inconclusive},
		{Survey{Passed: 3, Undecided: 1, Broken: 1}, results.ErrorOutcome},
		{Survey{Passed: 3, Undecided: 1, Broken: 1, Failed: 1}, results.Fail},
	} {
		if got := tt.s.Outcome(); got != tt.want {
			t.Errorf("%d passed, %d failed, %d undecided, %d broken: %s, want %s", tt.s.Passed, tt.s.Failed, tt.s.Undecided, tt.s.Broken, got, tt.want)
		}
	}
	var out strings.Builder
	if err := NewSurvey("sim", "1", "occupancy", 20, limits).Write(&out); err != nil || !strings.Contains(out.String(), "0 of 20 settings: it was cut off") {
		t.Errorf("%s, %v", out.String(), err)
	}
}

func TestGeneral(t *testing.T) {
	for why, want := range map[string]string{
		"switch tor1: frames leave 54 ms late (p99), 27.1 % of the RTT (limit 20 %)": "switch …: frames leave N ms late (pN), N % of the RTT (limit N %)",
		"goodput of A: 16 further repeats should decide":                             "goodput of …: N further repeats should decide",
		"link_rate of h1->tor2, phase 3: predicted, but not measured":                "link_rate of …, phase N: predicted, but not measured",
		"share of A@tor1: one interval gives no confidence interval":                 "share of …: one interval gives no confidence interval",
		"worker A/0 on host h4: paced sends 99th percentile 12 ms late":              "worker … on host …: paced sends Nth percentile N ms late",
	} {
		if got := general(why); got != want {
			t.Errorf("%q becomes %q, want %q", why, got, want)
		}
	}
}
