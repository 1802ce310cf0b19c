package collectors

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
)

// What becomes of a counter's readings, one a second, and what is said about them.
func TestAudit(t *testing.T) {
	const word, quad = 1 << 32, 1 << 64
	for name, test := range map[string]struct {
		wrap   float64
		read   []float64 // -1: not read
		want   []float64 // nil: as read
		says   string    // of the trouble; empty: none
		broken bool      // no rate can be drawn from it
	}{
		"grows":                      {read: []float64{5, 6, 100, 100}},
		"falls":                      {read: []float64{100, 200, 3, 50}, says: "counter x of h1->tor1 fell from 200 to 3 at 2.000 s: what counts was restarted, and nothing is computed across that", broken: true},
		"falls, 32 bit":              {wrap: word, read: []float64{100, 200, 3, 50}, says: "fell from 200 to 3", broken: true},
		"wraps, 32 bit":              {wrap: word, read: []float64{word - 200, word - 100, 3, 50}, want: []float64{word - 200, word - 100, word + 3, word + 50}, says: "wrapped around at 2^32 at 2.000 s: it is continued"},
		"wraps twice":                {wrap: word, read: []float64{3.5e9, 4.2e9, 0.5e9, 1.4e9, 2.3e9, 3.2e9, 4.1e9, 0.6e9}, want: []float64{3.5e9, 4.2e9, word + 0.5e9, word + 1.4e9, word + 2.3e9, word + 3.2e9, word + 4.1e9, 2*word + 0.6e9}, says: "wrapped"},
		"wraps, 64 bit":              {wrap: quad, read: []float64{quad - 1<<20, quad - 1<<19, 1 << 18}, want: []float64{quad - 1<<20, quad - 1<<19, quad + 1<<18}, says: "2^64"},
		"restarted near the end":     {wrap: word, read: []float64{word - 2100, word - 2000, 0}, want: []float64{word - 2100, word - 2000, word}, says: "wrapped"}, // cannot be told
		"restarted, out of all rate": {wrap: word, read: []float64{word - 500e6 - 1, word - 500e6, 0}, says: "fell", broken: true},
		"sticks at its largest":      {wrap: word, read: []float64{word - 3, word - 1, word - 1, word - 1}, says: "stands at 4294967295, the largest that it can hold, since 1.000 s: it stopped counting"},
		"one gap":                    {read: []float64{5, -1, -1, 9}, want: []float64{5, 9}, says: "was not read between 0.000 s and 3.000 s, 2 times"},
		"gone":                       {read: []float64{5, 6, -1, -1}, want: []float64{5, 6}, says: "was not read after 1.000 s, 2 times"},
	} {
		t.Run(name, func(t *testing.T) {
			var a Audit
			var out []results.Sample
			for i, v := range test.read {
				round := []results.Sample{{T: float64(i), Source: "host h1", Metric: "other", Of: "h1->tor1", Value: 7, Gauge: true}}
				if v >= 0 {
					round = append(round, results.Sample{T: float64(i), Source: "host h1", Metric: "x", Of: "h1->tor1", Value: v, Wrap: test.wrap})
				}
				out = append(out, a.Check(round)...)
			}
			var r results.Readings
			r.Add(out...)
			s, err := r.Counter("", "x", "h1->tor1")
			if err != nil {
				t.Fatal(err)
			}
			want := test.want
			if want == nil {
				want = test.read
			}
			if fmt.Sprint(s.V) != fmt.Sprint(want) {
				t.Errorf("%v, want %v", s.V, want)
			}
			if _, err := results.Rate(results.Window{End: s.T[len(s.T)-1]}, s); len(s.T) > 1 && (err != nil) != test.broken {
				t.Errorf("rate over all of it: %v", err)
			}
			got := a.Troubles()
			switch {
			case test.says == "" && len(got) == 0:
			case test.says == "" || len(got) != 1 || !strings.Contains(got[0].What, test.says) || got[0].Where != "host h1" || got[0].Fatal:
				t.Errorf("%+v, want %q", got, test.says)
			}
			if again := a.Troubles(); test.says != "" && len(again) > 0 && !strings.Contains(test.says, "after") {
				t.Errorf("said again: %+v", again)
			}
		})
	}
}

// A device that was enumerated again has begun again, although it counted on to a larger
// value: no figure is drawn across that. One restarted source is one trouble.
func TestAuditEnumeratedAgain(t *testing.T) {
	var a Audit
	round := func(at, index, v float64) []results.Sample {
		out := []results.Sample{{T: at, Source: "host h1", Metric: "nic_index", Of: "h1->tor1", Unit: UnitID, Gauge: true, Value: index}}
		for _, m := range []string{"x", "y", "z"} {
			out = append(out, results.Sample{T: at, Source: "host h1", Metric: m, Of: "h1->tor1", Value: v})
		}
		return a.Check(out)
	}
	var out []results.Sample
	for _, r := range [][3]float64{{0, 4, 10}, {1, 4, 20}, {2, 9, 30}, {3, 9, 40}} {
		out = append(out, round(r[0], r[1], r[2])...)
	}
	var read results.Readings
	read.Add(out...)
	s, err := read.Counter("", "y", "h1->tor1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := results.Rate(results.Window{Start: 0, End: 3}, s); err == nil {
		t.Errorf("a rate of %v", s)
	}
	if f, err := results.Rate(results.Window{Start: 2, End: 3}, s); err != nil || f.Value != 10 {
		t.Errorf("after it: %+v, %v", f, err)
	}
	got := a.Troubles()
	if len(got) != 1 || !strings.Contains(got[0].What, "by another device since 2.000 s") || !strings.HasSuffix(got[0].What, "and 2 more counters likewise") {
		t.Errorf("%+v", got)
	}
	a.Forget(func(of string) bool { return of == "h1->tor1" })
	if round(4, 9, 1); len(a.Troubles()) != 0 {
		t.Error("a counter that was forgotten fell")
	}
}

// However counters of 32 bits go on, and however often they are read, unwrapping them
// gives what they counted.
func TestAuditUnwraps(t *testing.T) {
	rng := newRand(t)
	for range 200 {
		var a Audit
		truth := math.Floor(rng.Float64() * (1 << 32))
		start, offset := truth, 0.0
		rate := rng.Float64() * 7e8 // less than a quarter of a turn between readings
		for i := range 50 {
			raw := math.Mod(truth, 1<<32)
			got := a.Check([]results.Sample{{T: float64(i), Source: "s", Metric: "m", Value: raw, Wrap: 1 << 32}})
			if offset = got[0].Value - math.Mod(start, 1<<32); offset != truth-start {
				t.Fatalf("reading %d: %.0f, want %.0f", i, offset, truth-start)
			}
			truth += math.Floor(rate * (0.5 + rng.Float64()))
		}
	}
}

// Where a switch counts at its MACs too, these are held against the host's, less the check
// sequences that they count; a switch and the next one by what both have.
func TestCrossingsOfMACs(t *testing.T) {
	var a Audit
	for at := range 3 {
		n := float64(1000 * min(at, 1))
		var round []results.Sample
		for _, x := range []struct {
			source, metric, of string
			bytes              float64
		}{
			{"host h1", "nic_tx", "h1->tor1", 100}, {"switch tor1", "port_rx", "h1->tor1", 104}, {"switch tor1", "mac_rx", "h1->tor1", 104},
			{"switch tor1", "mac_tx", "tor1->tor2", 104}, {"switch tor2", "port_rx", "tor1->tor2", 100},
		} {
			s := results.Sample{T: float64(at), Source: x.source, Of: x.of}
			p, b := s, s
			p.Metric, p.Value, b.Metric, b.Value = x.metric+"_packets", n, x.metric+"_bytes", n*x.bytes
			round = append(round, p, b)
		}
		a.Check(round)
	}
	got := a.Crossings()
	if len(got) != 2 || got[0].Receiver != "switch tor1 (mac_rx)" || got[1].Sender != "switch tor1 (mac_tx)" {
		t.Fatalf("%+v", got)
	}
	for _, x := range got {
		if trouble, bad := x.Trouble(); bad {
			t.Errorf("%+v", trouble)
		}
	}
}

// TestDamagedCrossings: what the experiment loses or doubles on a cable, and its port counts, is said and
// asked for. What it does not count is no part of that, however little it is.
func TestDamagedCrossings(t *testing.T) {
	for name, test := range map[string]struct {
		heard, lost, doubled float64 // of 100,000 frames
		damaged              bool
		said, asked          bool
	}{
		"a sound cable":                       {100_000, 0, 0, false, false, false},
		"what is lost though nobody asks":     {100_000, 5_000, 0, false, true, false},
		"what is lost":                        {100_000, 5_000, 0, true, true, true},
		"what is doubled":                     {100_000, 0, 2_000, true, true, true},
		"as much is lost as doubled":          {100_000, 2_000, 2_000, true, false, false},
		"0.1 % more, which nobody counts":     {99_900, 5_000, 0, true, true, false},
		"0.1 % more, beside what is doubled":  {99_900, 0, 100, true, true, false},
		"a damage so small that nothing came": {99_900, 0, 0, true, true, false},
	} {
		a := Audit{Damaged: func(link string) bool { return test.damaged && link == "h1->tor1" }}
		for at := range 10 {
			part := float64(min(max(at-1, 0), 5)) / 5
			var round []results.Sample
			for _, x := range []struct {
				source, metric string
				all            float64
			}{
				{"host h1", "nic_tx", 100_000}, {"switch tor1", "port_rx", test.heard},
				{"switch tor1", "port_rx_drop", test.lost}, {"switch tor1", "port_rx_dup", test.doubled},
			} {
				for unit, size := range map[string]float64{"_packets": 1, "_bytes": 1000} {
					round = append(round, results.Sample{T: float64(at), Source: x.source, Of: "h1->tor1", Metric: x.metric + unit, Value: math.Round(part*x.all) * size})
				}
			}
			a.Check(round)
		}
		got := a.Troubles()
		if said := len(got) > 0; said != test.said || said && (len(got) > 1 || got[0].Asked != test.asked || got[0].Asked != strings.Contains(got[0].What, "as the experiment damages this cable")) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestCrossingsOfSuperFrames: where a host counts frames that are handed over together as one, the
// switch has a header more for each frame more, of UDP or of TCP, and what else differs is lost or
// invented. Between switches frames are frames.
func TestCrossingsOfSuperFrames(t *testing.T) {
	for name, test := range map[string]struct {
		link, sender, receiver string
		sent, received         [2]float64 // frames, bytes
		bad                    bool
	}{
		"TCP to a host":                {"tor1->h1", "port_tx", "nic_rx", [2]float64{32000, 32e6}, [2]float64{16000, 32e6 - 16000*66}, false},
		"gradients from a host":        {"h1->tor1", "nic_tx", "port_rx", [2]float64{2000, 20e6 - 18000*42}, [2]float64{20000, 20e6}, false},
		"nothing handed over together": {"h1->tor1", "nic_tx", "port_rx", [2]float64{2000, 2e6}, [2]float64{2000, 2e6}, false},
		"the switch says 5 % less":     {"tor1->h1", "port_tx", "nic_rx", [2]float64{.95 * 32000, .95 * 32e6}, [2]float64{16000, 32e6 - 16000*66}, true},
		"the switch says 5 % more":     {"tor1->h1", "port_tx", "nic_rx", [2]float64{1.05 * 32000, 1.05 * 32e6}, [2]float64{16000, 32e6 - 16000*66}, true},
		"a cable loses 1 %":            {"h1->tor1", "nic_tx", "port_rx", [2]float64{2000, 20e6 - 18000*42}, [2]float64{19800, 19.8e6}, true},
		"the host has more frames":     {"tor1->h1", "port_tx", "nic_rx", [2]float64{10000, 10e6}, [2]float64{20000, 10e6 - 42*10000}, true},
		"switches, all arrives":        {"tor1->tor2", "port_tx", "port_rx", [2]float64{20000, 2e6}, [2]float64{20000, 2e6}, false},
		"switches, a cable loses":      {"tor1->tor2", "port_tx", "port_rx", [2]float64{20000, 2e6}, [2]float64{19000, 1.9e6}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := Audit{SuperFrames: true}
			from, to, _ := strings.Cut(test.link, "->")
			for at := range 10 {
				var round []results.Sample
				add := func(node, metric string, all [2]float64) {
					kind := "switch "
					if strings.HasPrefix(metric, "nic") {
						kind = "host "
					}
					part := float64(min(max(at-1, 0), 5)) / 5 // nothing passes while the first and the last are read
					for i, unit := range []string{"_packets", "_bytes"} {
						round = append(round, results.Sample{T: float64(at), Source: kind + node, Of: test.link, Metric: metric + unit, Value: math.Round(part * all[i])})
					}
				}
				add(from, test.sender, test.sent)
				add(to, test.receiver, test.received)
				a.Check(round)
			}
			got := a.Troubles()
			if bad := len(got) == 1 && got[0].Code == results.CodeLost && got[0].Where == "link "+test.link; bad != test.bad || len(got) > 1 {
				t.Errorf("%+v, want %v", got, test.bad)
			}
		})
	}
}

// TestCrossingsOfBursts: a host hands a burst to its card while a round is read, so that the switch
// has not seen it yet. One such round says nothing, be it the first or the last; what is lost once
// is lost in all rounds after it.
func TestCrossingsOfBursts(t *testing.T) {
	const rounds = 20
	for name, test := range map[string]struct {
		under []int // rounds in which 200 frames are under way
		lost  int   // the round since which 200 are lost; 0: none
		bad   bool
	}{
		"none under way":      {},
		"in the first":        {under: []int{0}},
		"in the last":         {under: []int{rounds - 1}},
		"in some":             {under: []int{0, 2, 7, 16, 19}},
		"lost in the middle":  {lost: 10, bad: true},
		"lost soon":           {lost: 3, bad: true},
		"lost late":           {lost: rounds - 3, bad: true},
		"lost, and under way": {under: []int{0, 19}, lost: 10, bad: true},
	} {
		var a Audit
		for at := range rounds {
			var round []results.Sample
			add := func(source, metric string, frames int) {
				s := results.Sample{T: float64(at), Source: source, Of: "h1->tor1", Metric: metric + "_packets", Value: float64(frames)}
				b := s
				b.Metric, b.Value = metric+"_bytes", 1000*s.Value
				round = append(round, s, b)
			}
			sent := 500 * at
			heard := sent
			if slices.Contains(test.under, at) {
				heard -= 200
			}
			if test.lost > 0 && at >= test.lost {
				heard -= 200
			}
			add("host h1", "nic_tx", 1000+sent)
			add("switch tor1", "port_rx", 1000+heard)
			a.Check(round)
		}
		got := a.Troubles()
		if bad := len(got) > 0; bad != test.bad || bad && got[0].Value != 200 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestCrossingsOfLongCables: where a frame takes half a second from one counter to the other, 250 of 500 a second are on their
// way when the last round is read, and when the first is; what is missing beyond that is lost.
func TestCrossingsOfLongCables(t *testing.T) {
	for name, test := range map[string]struct {
		flight     float64
		from, till int // rounds in which the host sends
		lost       int // on the cable, at the end
		bad        bool
	}{
		"at its end":                 {.5, 5, 30, 0, false},
		"at its beginning":           {.5, -30, 15, 0, false},
		"all the time":               {.5, -30, 30, 0, false},
		"before and after":           {.5, 5, 15, 0, false},
		"nobody knows of the flight": {0, 5, 30, 0, true},
		"more is missing":            {.5, 5, 30, 200, true},
		"all is back and some not":   {.5, 5, 15, 200, true},
	} {
		a := Audit{Flight: map[string]float64{"h1->tor1": test.flight}}
		sent := func(t float64) float64 {
			return math.Round(500 * (min(max(t, float64(test.from)), float64(test.till)) - float64(test.from)))
		}
		for at := range 20 {
			var round []results.Sample
			add := func(source, metric string, frames float64) {
				s := results.Sample{T: float64(at), Source: source, Of: "h1->tor1", Metric: metric + "_packets", Value: 1000 + frames}
				b := s
				b.Metric, b.Value = metric+"_bytes", 1000*s.Value
				round = append(round, s, b)
			}
			heard := sent(float64(at) - .5)
			if at > 12 {
				heard -= float64(test.lost)
			}
			add("host h1", "nic_tx", sent(float64(at)))
			add("switch tor1", "port_rx", heard)
			a.Check(round)
		}
		got := a.Troubles()
		if bad := len(got) > 0; bad != test.bad {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestCrossings(t *testing.T) {
	type amounts struct{ sent, sentBytes, received, receivedBytes, dropped float64 }
	for name, test := range map[string]struct {
		end  amounts // the beginning is 1000 frames of 100 B at both ends
		says string
	}{
		"all arrives":               {end: amounts{sent: 20000, sentBytes: 2e6, received: 20000, receivedBytes: 2e6}},
		"a stray frame or two":      {end: amounts{sent: 20002, sentBytes: 2000200, received: 20000, receivedBytes: 2e6}},
		"the cable loses":           {end: amounts{sent: 20000, sentBytes: 2e6, received: 19000, receivedBytes: 1.9e6}, says: "host h1 (nic_tx) sent 20000 frames, switch tor1 (port_rx) received 19000: 1000 (5.0 %) differ, 7 may; the cable loses them, or one of the two does not count them"},
		"lost on an emulated cable": {end: amounts{sent: 20000, sentBytes: 2e6, received: 20000, receivedBytes: 2e6, dropped: 1000}, says: "switch tor1 (port_rx) received 19000: 1000 (5.0 %)"},
		"FCS counted at one end":    {end: amounts{sent: 20000, sentBytes: 2.08e6, received: 20000, receivedBytes: 2e6}, says: "frames agree and bytes do not (2080000 and 2000000, 4.00 a frame): one of the two counts them differently"},
		"super-frames":              {end: amounts{sent: 10000, sentBytes: 2e6, received: 20000, receivedBytes: 2e6}, says: "bytes agree, so one of the two counts frames wrongly"},
		"comes from nowhere":        {end: amounts{sent: 10000, sentBytes: 1e6, received: 20000, receivedBytes: 2e6}, says: "more arrived than was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			var a Audit
			read := func(at float64, x amounts) {
				add := func(source, metric string, frames, bytes float64) []results.Sample {
					s := results.Sample{T: at, Source: source, Of: "h1->tor1"}
					p, b := s, s
					p.Metric, p.Value = metric+"_packets", 1000+frames
					b.Metric, b.Value = metric+"_bytes", 100000+bytes
					return []results.Sample{p, b}
				}
				round := append(add("host h1", "nic_tx", x.sent, x.sentBytes), add("switch tor1", "port_rx", x.received, x.receivedBytes)...)
				a.Check(append(round, add("switch tor1", "port_rx_drop", x.dropped, x.dropped*100)...))
			}
			read(0, amounts{})
			read(1, test.end)
			read(2, test.end) // nothing is on its way any more
			got := a.Troubles()
			if test.says == "" && len(got) == 0 {
				return
			}
			// At the beginning 20000 frames a second flowed: 10 ms at either end's reading.
			if len(got) != 1 || got[0].Where != "link h1->tor1" || test.says == "" {
				t.Fatalf("%+v, want %q", got, test.says)
			}
			if limit := fmt.Sprintf("%.0f may", got[0].Limit); !strings.Contains(strings.ReplaceAll(got[0].What, limit, "7 may"), test.says) {
				t.Errorf("%s, want %s", got[0].What, test.says)
			}
		})
	}
}

// A host may say what it likes: its counters are kept for as long as a testbed is open.
func TestAuditIsBounded(t *testing.T) {
	a := &Audit{}
	other := results.Sample{T: 1, Source: "host h2", Metric: "nic_tx_bytes", Of: "h2->tor1", Value: 1}
	left := 0
	for round := range 3 {
		in := []results.Sample{}
		for i := range mostCounters {
			in = append(in, results.Sample{T: float64(round), Source: "host h1", Metric: fmt.Sprintf("nic_%d_%d", round, i), Of: "h1->tor1", Value: 1})
		}
		left += len(a.Check(append(in, other)))
	}
	if left != mostCounters+3 || len(a.counters) != mostCounters+1 {
		t.Errorf("%d samples pass and %d counters are kept, of %d that one host may have", left, len(a.counters), mostCounters)
	}
	said := slices.ContainsFunc(a.Troubles(), func(t results.Trouble) bool { return strings.Contains(t.What, "counts more than 16384 things") })
	if !said {
		t.Error("nobody is told")
	}
	a.Forget(func(of string) bool { return of == "h1->tor1" })
	if got := a.Check([]results.Sample{{T: 9, Source: "host h1", Metric: "again", Of: "h1->tor1"}}); len(got) != 1 {
		t.Error("what was forgotten counts")
	}
}
