package study

import (
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// jobOf is whose process a place is: "A" of "worker A/0 on host h1".
func jobOf(where string) string {
	role, of, _ := strings.Cut(where, " ")
	if role != "worker" && role != "rank" && role != "ps" {
		return ""
	}
	of, _, _ = strings.Cut(of, " ")
	of, _, _ = strings.Cut(of, "/")
	return of
}

// A job of a study whose process stood still fails, unless the testbed did, too; stalls that
// take too much of its time make its figures those of the machine.
func TestStood(t *testing.T) {
	at := func(where string, start, end float64) Standstill {
		return Standstill{Span: results.Span{Start: start, End: end}, Where: where, Job: jobOf(where), What: "it did not run", Late: end - start}
	}
	often := func(where string, each float64, n int) (out []Standstill) {
		for i := range n {
			out = append(out, at(where, 10+float64(i)/2, 10+float64(i)/2+each))
		}
		return out
	}
	const mine, other, tor = "rank A/0 on host h1", "rank B/0 on host h2", "switch tor1"
	for _, c := range []struct {
		name    string
		stalls  []Standstill
		outcome results.Outcome // of the finding; empty: there is none
		told    bool            // there is a trouble
		excused bool            // what fails is excused by it
		says    string
	}{
		{name: "nothing"},
		{name: "suspended", stalls: []Standstill{at(mine, 12, 14.2)}, outcome: results.Fail, says: "rank A/0 on host h1 from 12.00 s to 14.20 s, of its time from 10.00 s to 30.00 s: it did not run"},
		{name: "suspended beyond its end", stalls: []Standstill{at(mine, 29, 40)}, outcome: results.Fail, says: "to 30.00 s"},
		{name: "suspended before it began", stalls: []Standstill{at(mine, 5, 10.3)}, told: true},
		{name: "many that are close together", stalls: []Standstill{{Span: results.Span{Start: 12, End: 12.9}, Where: mine, Job: "A", What: "it did not run", Late: .05}}, told: true},
		{name: "many in much of its time, which are short together", stalls: []Standstill{{Span: results.Span{Start: 12, End: 13.2}, Where: mine, Job: "A", What: "late", Late: .02, Held: .25}}, told: true},
		{name: "many in much of its time", stalls: []Standstill{{Span: results.Span{Start: 12, End: 13.2}, Where: mine, Job: "A", What: "late", Late: .02, Held: 1.1}}, told: true, excused: true},
		{name: "for want of a processor", stalls: []Standstill{{Span: results.Span{Start: 12, End: 14.2}, Where: mine, Job: "A", What: "it did not run", Late: 2.2, Waited: 1.9}}, told: true, excused: true},
		{name: "for want of a processor for some of it", stalls: []Standstill{{Span: results.Span{Start: 12, End: 14.2}, Where: mine, Job: "A", What: "it did not run", Late: 2.2, Waited: 1.5}}, outcome: results.Fail},
		{name: "another's", stalls: []Standstill{at(other, 12, 14.2)}},
		{name: "with its switch", stalls: []Standstill{at(mine, 12, 14.2), at(tor, 11.9, 14)}, outcome: results.Inconclusive, told: true, excused: true, says: "the testbed stood still meanwhile: switch tor1"},
		{name: "the switch long before", stalls: []Standstill{at(mine, 12, 14.2), at(tor, 11, 11.1)}, outcome: results.Fail, told: true},
		{name: "now and then", stalls: often(mine, .02, 20), told: true},
		{name: "too often", stalls: often(mine, .1, 20), told: true, excused: true},
		{name: "the switch too often", stalls: often(tor, .1, 20), told: true, excused: true},
		{name: "both at once", stalls: append(often(tor, .04, 20), often(mine, .04, 20)...), told: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, most, excused := stood([]Ran{{"A", 10, 30}, {"C", 100, 101}}, c.stalls)
			if (len(found) == 1) != (c.outcome != "") || (most != nil) != c.told || excused != c.excused {
				t.Fatalf("%+v, %+v, excused: %t", found, most, excused)
			}
			if c.outcome == "" {
				return
			}
			if f := found[0]; f.Outcome != c.outcome || f.Code != results.CodeJobStopped || f.Of != "A" || !strings.Contains(f.What, c.says) {
				t.Errorf("%+v, want %s: %s", f, c.outcome, c.says)
			}
		})
	}
}

// What a rank was late by while it stood still for long is not counted twice.
func TestBesides(t *testing.T) {
	const s = time.Second
	stalls := []testbed.Stall{{Where: "rank A/0", Late: 2 * s}, {Where: "rank A/0", Late: s / 10}, {Where: "rank A/1", Late: 6 * s}}
	for _, c := range []struct{ late, want float64 }{{2.5, .5}, {1, 0}, {0, 0}} {
		if got := besides(c.late, "rank A/0", stalls); got != c.want {
			t.Errorf("%v s late: %v, want %v", c.late, got, c.want)
		}
	}
}

// TestTestbedStoodStill: jobs whose testbed stood still for much of their time are undecided, whatever
// their figures are; a short job that happened to have one stall does not decide for all others.
func TestTestbedStoodStill(t *testing.T) {
	every := func(gap, long float64, where string) (out []Standstill) {
		for at := 0.0; at < 20; at += gap {
			out = append(out, Standstill{Span: results.Span{Start: at, End: at + long}, Where: where, Job: jobOf(where), What: "frames left late", Late: long})
		}
		return out
	}
	for _, c := range []struct {
		name   string
		stalls []Standstill
		fatal  bool
	}{
		{"nothing", nil, false},
		{"a switch that dawdles", every(.2, .06, "switch tor1"), true},
		{"a stall now and then", every(2, .08, "switch tor1"), false},
		{"one that the short job had", every(30, .1, "switch tor1"), false},
		{"a worker that pauses, which is no excuse", every(.2, .06, "worker A/1 on host h2"), false},
	} {
		got := late([]Ran{{"A", 0, 20}, {"B", 0, .5}}, c.stalls)
		if (got != nil) != c.fatal || got != nil && !got.Fatal {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
