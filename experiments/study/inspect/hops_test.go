package inspect

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
	"github.com/inabench/inabench/testbed"
)

// handedOn is a job of two workers below tor1, which adds up all that they send, as those count who
// hand its packets over: what each has counted at the end.
func handedOn(t *testing.T, counts map[string]float64) *Inspection {
	t.Helper()
	inv, err := inventory.Load("../../racks/three-hosts.toml")
	if err != nil {
		t.Fatal(err)
	}
	in := &Inspection{
		Spec: &spec.Spec{Jobs: []spec.Job{{Name: "A"}}, Switch: spec.Switch{Lanes: 240}}, Inv: inv, Phased: true, Once: true, Readings: &results.Readings{},
		Plan: &placement.Plan{Jobs: []placement.JobPlan{{Name: "A", Collective: placement.INA, PS: "h3",
			Workers: []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}},
			Tree:    []placement.TreeNode{{Switch: "tor1", Aggregate: true, Expect: 3}}}}},
		RTTs: map[string]float64{"A": 0.05}, Caps: testbed.Capabilities{Sums: true, Kind: results.Measured},
	}
	for of, v := range counts {
		metric, of, _ := strings.Cut(of, " ")
		base := 500.0
		if metric == "worker_outstanding" {
			base = 0
		}
		for i := range 81 {
			in.Readings.Add(results.Sample{T: float64(i) / 10, Source: "source of " + of, Metric: metric, Of: of, Value: base + v*float64(i)/80, Gauge: metric == "worker_outstanding"})
		}
	}
	return in
}

// TestHandedOverAnew: a counter that begins again leaves open what was handed over there.
func TestHandedOverAnew(t *testing.T) {
	const n = 10_000
	sound := map[string]float64{
		"worker_tx_packets A/0": n, "worker_tx_packets A/1": n, "job_in_packets A@tor1": 2 * n, "job_out_packets A@tor1": n,
		"worker_rx_packets A/ps": n, "worker_arrived A/ps": n, "port_rx_drop_packets h1->tor1": 0,
		"worker_tx_packets A/ps": n, "job_results_packets A@tor1": n, "worker_rx_packets A/0": n, "worker_rx_packets A/1": n,
	}
	for _, fell := range []string{"job_in_packets A@tor1", "worker_tx_packets A/0", "port_rx_drop_packets h1->tor1"} {
		in := handedOn(t, sound)
		in.Readings = resultstest.Edit(in.Readings, func(s *results.Sample) bool {
			if s.Metric+" "+s.Of == fell && s.T < .5 {
				s.Value += 1e6
			}
			return true
		})
		got := in.Handed()
		if len(got) == 0 || slices.ContainsFunc(got, func(f results.Finding) bool { return f.Outcome != results.Inconclusive }) || !strings.Contains(got[len(got)-1].What, strings.Replace(fell, " ", " of ", 1)+" began again") {
			t.Errorf("%s: %+v", fell, got)
		}
	}
}

// TestHandedOverElsewhere: a counter that begins again excuses what may pass it, and nothing else.
func TestHandedOverElsewhere(t *testing.T) {
	const n, missing = 10_000, 2_000
	counts := map[string]float64{
		"worker_tx_packets A/0": n, "worker_tx_packets A/1": n, "job_in_packets A@tor1": 2*n - missing, "job_out_packets A@tor1": n,
		"worker_rx_packets A/ps": n, "worker_arrived A/ps": n, "port_rx_drop_packets h1->tor1": 0, "port_tx_drop_packets tor1->h3": 0,
		"worker_tx_packets A/ps": n, "job_results_packets A@tor1": n, "worker_rx_packets A/0": n, "worker_rx_packets A/1": n,
	}
	for fell, want := range map[string]results.Outcome{"port_rx_drop_packets h1->tor1": results.Inconclusive, "port_tx_drop_packets tor1->h3": results.Fail} {
		in := handedOn(t, counts)
		in.Readings = resultstest.Edit(in.Readings, func(s *results.Sample) bool {
			if s.Metric+" "+s.Of == fell && s.T < .5 {
				s.Value += 1e6
			}
			return true
		})
		got := in.Handed()
		if i := slices.IndexFunc(got, func(f results.Finding) bool { return f.Of == "A" }); i < 0 || got[i].Outcome != want {
			t.Errorf("%s began again: %+v, want %s", fell, got, want)
		}
	}
}

// TestHandedOverInStudy: processes of a study come again under the same name, which excuses nothing.
func TestHandedOverInStudy(t *testing.T) {
	const n, missing = 10_000, 2_000
	in := handedOn(t, map[string]float64{
		"worker_tx_packets A/0": n, "worker_tx_packets A/1": n, "job_in_packets A@tor1": 2*n - missing, "job_out_packets A@tor1": n,
		"worker_rx_packets A/ps": n, "worker_arrived A/ps": n, "port_rx_drop_packets h1->tor1": 0,
		"worker_tx_packets A/ps": n, "job_results_packets A@tor1": n, "worker_rx_packets A/0": n, "worker_rx_packets A/1": n,
	})
	in.Phased, in.Once, in.From, in.Begun = false, false, math.Inf(1), map[string]float64{"A": 0}
	in.Readings = resultstest.Edit(in.Readings, func(s *results.Sample) bool {
		if s.Metric == "port_rx_drop_packets" && s.T < .5 {
			s.Value += 1e6
		}
		return true
	})
	if got := in.Handed(); len(got) != 1 || got[0].Of != "A" || got[0].Outcome != results.Fail {
		t.Errorf("%+v", got)
	}
}

// TestHandedOver: what one part of a job sends the next one receives, or a port has counted it as lost.
func TestHandedOver(t *testing.T) {
	const n = 10_000
	sound := map[string]float64{
		"worker_tx_packets A/0": n, "worker_tx_packets A/1": n, "job_in_packets A@tor1": 2 * n, "job_out_packets A@tor1": n,
		"job_aggregated_packets A@tor1": 2*n - 100, "job_fallback_packets A@tor1": 60, "job_duplicates_packets A@tor1": 40,
		"worker_rx_packets A/ps": n, "worker_arrived A/ps": n, "worker_stray A/ps": 0, "worker_tx_packets A/ps": n,
		"job_results_packets A@tor1": n, "worker_rx_packets A/0": n, "worker_rx_packets A/1": n,
		"worker_outstanding A/0": 0, "worker_resends A/0": 0, "worker_outstanding A/1": 0, "worker_resends A/1": 0,
		"port_rx_drop_packets h1->tor1": 0, "port_rx_dup_packets h1->tor1": 0,
	}
	for _, c := range []struct {
		name    string
		counts  map[string]float64
		ring    bool    // a second job, whose packets nobody counts at hops
		beside  bool    // packets that no hop counts, of jobs that the plan may not have
		early   string  // who was read last before the end
		ended   string  // who ended a moment before the others, and told of all
		begun   float64 // when the job was told to begin, of a trace
		noPS    bool    // the switch sends results
		inside  float64 // packets that a switch got and did nothing with
		swallow float64 // frames that the testbed says it lost itself
		open    bool    // not known
		stood   float64 // until when the PS stood still, for 0.9 s
		says    string
	}{
		{name: "sound"},
		{name: "one, and nothing was under way at the end", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 1}, says: "1 packet of job A went without a trace: workers A/0, A/1 sent 20000, switch tor1 received 19999"},
		{name: "a PS loses what arrived", counts: map[string]float64{"worker_arrived A/ps": n - 10}, says: "what became of 10 packets of job A is not told by its PS on host h3: 10000 arrived there, and worker_arrived and worker_stray add up to 9990"},
		{name: "a switch does nothing with what arrived", inside: 10, says: "what became of 10 packets of job A is not told by switch tor1: 20000 arrived there, and job_aggregated_packets, job_fallback_packets and job_duplicates_packets add up to 19990"},
		{name: "a switch does nothing with what arrived, and cables lose", inside: 10, counts: map[string]float64{"job_in_packets A@tor1": 2*n - 500, "port_rx_drop_packets h1->tor1": 500}, says: "is not told by switch tor1"},
		{name: "a worker forgets what arrived", counts: map[string]float64{"worker_psns A/0": n - 50, "worker_duplicates A/0": 20, "worker_stray A/0": 20}, says: "is not told by worker A/0"},
		{name: "the testbed says that it lost some", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 3}, swallow: 3},
		{name: "the testbed does not know how many it lost", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 500}, swallow: math.Inf(1),
			says: "500 packets of job A went without a trace: workers A/0, A/1 sent 20000, switch tor1 received 19500, and nothing was counted as lost; but the testbed lost frames itself, and nobody knows how many"},
		{name: "the testbed does not know how many it lost, and nobody lacks any", swallow: math.Inf(1)},
		{name: "the testbed says that it lost fewer", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 5}, swallow: 3, says: "2 packets of job A went without a trace"},
		{name: "resends of the last moment, and a PS loses what arrived", counts: map[string]float64{"worker_resends A/0": 400, "worker_arrived A/ps": n - 5}, says: "what became of 5 packets of job A is not told by its PS on host h3"},
		{name: "what a PS could not read", counts: map[string]float64{"worker_arrived A/ps": n - 10, "worker_stray A/ps": 10}},
		{name: "a switch loses results", counts: map[string]float64{"worker_rx_packets A/0": n - 10, "worker_rx_packets A/1": n - 10}, says: "switch tor1 sent 10000, worker A/0 received 9990"},
		{name: "a switch loses gradients", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 20}, says: "workers A/0, A/1 sent 20000, switch tor1 received 19980"},
		{name: "sent twice", counts: map[string]float64{"worker_rx_packets A/ps": n + 10, "worker_arrived A/ps": n + 10}, says: "10 packets of job A came from nowhere: switch tor1 sent 10000, its PS on host h3 received 10010, and nothing was counted as doubled"},
		{name: "a cable loses", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 500, "port_rx_drop_packets h1->tor1": 500}},
		{name: "a cable loses, and a PS", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 500, "port_rx_drop_packets h1->tor1": 500, "worker_arrived A/ps": n - 10}, says: "is not told by its PS"},
		{name: "a cable loses, and a switch says less", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 500, "port_rx_drop_packets h1->tor1": 500, "job_out_packets A@tor1": n - 100, "port_rx_dup_packets tor1->h3": 200},
			says: "ports say that they lost 500 and doubled 200"},
		{name: "a cable loses, and a switch loses results, which pass others", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 500, "port_rx_drop_packets h1->tor1": 500, "worker_rx_packets A/0": n - 20, "worker_rx_packets A/1": n - 20},
			says: "20 packets of job A went without a trace: switch tor1 sent 10000, worker A/0 received 9980, and nothing was counted as lost"},
		{name: "answers to what was sent again come late, and nobody stood still", counts: map[string]float64{"worker_rx_packets A/0": n - 10, "worker_resends A/1": 80},
			says: "10 packets of job A went without a trace: switch tor1 sent 10000, worker A/0 received 9990"},
		{name: "answers to what was sent again come late, after a queue", counts: map[string]float64{"worker_rx_packets A/0": n - 10, "worker_resends A/1": 80, "worker_rtt_seconds A/1": 4500, "worker_rtt_count A/1": 9500}},
		{name: "no queue is as long", counts: map[string]float64{"worker_rx_packets A/0": n - 11, "worker_resends A/1": 80, "worker_rtt_seconds A/1": 4500, "worker_rtt_count A/1": 9500},
			says: "11 packets of job A went without a trace: switch tor1 sent 10000, worker A/0 received 9989"},
		{name: "answers to what was sent again come late, from a PS that stood still", counts: map[string]float64{"worker_rx_packets A/0": n - 10, "worker_resends A/1": 80}, stood: 7.9},
		{name: "a PS stood still long before", counts: map[string]float64{"worker_rx_packets A/0": n - 10, "worker_resends A/1": 80}, stood: 5,
			says: "10 packets of job A went without a trace: switch tor1 sent 10000, worker A/0 received 9990"},
		{name: "a PS stood still, and more is missing than was sent again", counts: map[string]float64{"worker_rx_packets A/0": n - 40, "worker_resends A/1": 80}, stood: 7.9,
			says: "packets of job A went without a trace: switch tor1 sent 10000, worker A/0 received 9960"},
		{name: "a cable loses results", counts: map[string]float64{"worker_rx_packets A/0": n - 500, "port_tx_drop_packets tor1->h1": 500}},
		{name: "a socket has no room", counts: map[string]float64{"worker_rx_packets A/0": n - 500, "worker_socket_drops A/0": 500}},
		{name: "another's socket has no room", counts: map[string]float64{"worker_rx_packets A/0": n - 500, "worker_socket_drops A/1": 500}, says: "switch tor1 sent 10000, worker A/0 received 9500, and nothing was counted as lost"},
		{name: "beside a ring whose frames are lost", ring: true, counts: map[string]float64{"port_rx_drop_packets h1->tor1": 500}},
		{name: "beside a ring, and a port where none passes counts what nobody lacks", ring: true, counts: map[string]float64{"port_tx_drop_packets tor1->h3": 500},
			says: "from hop to hop 0 packets are missing, and ports say that they lost 500 and doubled 0: somebody counts wrongly"},
		{name: "beside a ring, and so does one where some do", ring: true, counts: map[string]float64{"port_tx_drop_packets tor1->h3": 500, "port_rx_drop_packets h1->tor1": 40},
			says: "ports say that they lost 540 and doubled 0, 40 of these where rings pass too: somebody counts wrongly"},
		{name: "beside a ring, what cables lose is missing", ring: true, counts: map[string]float64{"port_tx_drop_packets tor1->h3": 500, "worker_rx_packets A/ps": n - 500, "worker_arrived A/ps": n - 500, "port_rx_drop_packets h1->tor1": 40}},
		{name: "a ring's losses are counted, a job's beyond that", ring: true, counts: map[string]float64{"port_rx_drop_packets tor1->h1": 5, "worker_rx_packets A/0": n - 20}, says: "15 packets of job A went without a trace"},
		{name: "beside what ranks send each other", beside: true, counts: map[string]float64{"port_rx_drop_packets h1->tor1": 500}},
		{name: "nothing but what hops count", counts: map[string]float64{"port_rx_drop_packets h1->tor1": 500}, says: "from hop to hop 0 packets are missing, and ports say that they lost 500"},
		{name: "resends of the last moment", counts: map[string]float64{"worker_outstanding A/0": 10, "worker_tx_packets A/0": n + 20}},
		{name: "copies of the last moment", counts: map[string]float64{"port_tx_dup_packets tor1->h1": 2000, "worker_rx_packets A/0": n + 1996}},
		{name: "copies, and a switch that loses results", counts: map[string]float64{"port_tx_dup_packets tor1->h1": 2000, "worker_rx_packets A/0": n + 1960}, says: "from hop to hop -1960 packets are missing, and ports say that they lost 0 and doubled 2000"},
		{name: "resends of the last moment, lost on their way", counts: map[string]float64{"worker_resends A/0": 40, "port_tx_drop_packets tor1->h1": 500, "worker_rx_packets A/0": n - 501, "job_in_packets A@tor1": 2*n - 1}},
		{name: "resends of the last moment, and a switch that loses some results more", counts: map[string]float64{"worker_resends A/0": 40, "port_tx_drop_packets tor1->h1": 500, "worker_rx_packets A/0": n - 501, "worker_rx_packets A/1": n - 1, "job_in_packets A@tor1": 2*n - 1},
			says: "from hop to hop 503 packets are missing, and ports say that they lost 500"},
		{name: "answers to who was ended", ended: "worker_resends A/0", counts: map[string]float64{"worker_resends A/1": 8000, "worker_rx_packets A/0": n - 280}},
		{name: "answers to who was not", ended: "worker_resends A/1", counts: map[string]float64{"worker_resends A/1": 8000, "worker_rx_packets A/0": n - 280}, says: "switch tor1 sent 10000, worker A/0 received 9720"},
		{name: "a reading before the end", counts: map[string]float64{"job_out_packets A@tor1": n - 1000}, early: "job_out_packets A@tor1", open: true,
			says: "counter job_out_packets of A@tor1 was read last at 7.50 s, and packets were on their way until 8.00 s"},
		{name: "a counter that only others have", counts: map[string]float64{"job_out_packets A@tor1": -1, "job_out_packets B@tor1": 10}, open: true,
			says: "counter job_out_packets of A@tor1 was never read, and those of others were"},
		{name: "a worker that ended before another", ended: "worker_tx_packets A/0"},
		{name: "a worker that ended before another, and a switch that loses gradients", ended: "worker_tx_packets A/0", counts: map[string]float64{"job_in_packets A@tor1": 2*n - 20}, says: "workers A/0, A/1 sent 20000, switch tor1 received 19980"},
		{name: "a job of a trace", begun: 0.01},
		{name: "a job of a trace, and a switch loses results", begun: 0.01, counts: map[string]float64{"worker_rx_packets A/0": n - 10, "worker_rx_packets A/1": n - 10}, says: "switch tor1 sent 10000, worker A/0 received 9990"},
		{name: "no PS", noPS: true},
		{name: "no PS, and a switch loses results", noPS: true, counts: map[string]float64{"worker_rx_packets A/0": n - 10}, says: "switch tor1 sent 10000, worker A/0 received 9990"},
		{name: "no PS, and some ask too early", noPS: true, counts: map[string]float64{"job_out_packets A@tor1": n + 50, "job_answers_packets A@tor1": 50, "job_duplicates_packets A@tor1": 50,
			"worker_rx_packets A/0": n + 30, "worker_rx_packets A/1": n + 20}},
		{name: "no PS, and who asks lacks what was sent", noPS: true, counts: map[string]float64{"job_out_packets A@tor1": n + 50, "job_answers_packets A@tor1": 50, "job_duplicates_packets A@tor1": 50,
			"worker_rx_packets A/0": n + 10, "worker_rx_packets A/1": n}, says: "40 packets of job A went without a trace: switch tor1 sent 20050, workers A/0, A/1 received 20010"},
		{name: "no PS, and a switch that does not count answers", noPS: true, counts: map[string]float64{"job_out_packets A@tor1": n + 50, "job_answers_packets A@tor1": -1, "job_duplicates_packets A@tor1": 50, "worker_resends A/1": 50,
			"worker_rx_packets A/0": n + 30, "worker_rx_packets A/1": n + 20}},
		{name: "no PS, and a switch that does not count answers, and has more come twice than was sent again", noPS: true, counts: map[string]float64{"job_out_packets A@tor1": n + 50, "job_answers_packets A@tor1": -1, "job_duplicates_packets A@tor1": 50,
			"worker_rx_packets A/0": n + 30, "worker_rx_packets A/1": n + 20}, says: "20 packets of job A went without a trace: switch tor1 sent 10050, worker A/0 received 10030"},
		{name: "counts that are not there", counts: map[string]float64{"job_in_packets A@tor1": -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			counts := maps.Clone(sound)
			if c.noPS {
				maps.DeleteFunc(counts, func(of string, _ float64) bool {
					return strings.HasSuffix(of, "/ps") || of == "job_results_packets A@tor1"
				})
				counts["job_answers_packets A@tor1"], counts["job_duplicates_packets A@tor1"] = 0, 0
			}
			maps.Copy(counts, c.counts)
			if in := counts["job_in_packets A@tor1"]; in > 0 {
				counts["job_aggregated_packets A@tor1"] = in - counts["job_fallback_packets A@tor1"] - counts["job_duplicates_packets A@tor1"] - c.inside
			}
			maps.DeleteFunc(counts, func(_ string, v float64) bool { return v < 0 })
			in := handedOn(t, counts)
			if c.noPS {
				in.Plan.Jobs[0].PS = ""
			}
			in.Readings = resultstest.Edit(in.Readings, func(s *results.Sample) bool {
				of := s.Metric + " " + s.Of
				return !(of == c.early && s.T > 7.5 || of == c.ended && 7.5 < s.T && s.T < 8)
			})
			in.Readings = resultstest.Edit(in.Readings, func(s *results.Sample) bool {
				if s.Metric+" "+s.Of == c.ended && s.T == 8 {
					s.T = 7.9
				}
				return true
			})
			in.Lost = c.swallow
			if c.ring {
				in.Plan.Jobs = append(in.Plan.Jobs, placement.JobPlan{Name: "R", Collective: placement.Ring, Workers: in.Plan.Jobs[0].Workers})
			}
			if in.Beside = c.beside; c.stood > 0 {
				in.Stalls = []study.Standstill{{Span: results.Span{Start: c.stood - .9, End: c.stood}, Where: "ps A on host h3"}}
			}
			if c.begun > 0 {
				in.Phased, in.From, in.Begun = false, math.Inf(1), map[string]float64{"A": c.begun}
			}
			got := in.Handed()
			if held := in.hopsHeld == in.hopsAll; in.hopsAll == 0 || held == (c.open || c.name == "counts that are not there") {
				t.Errorf("looked at %d of %d hops", in.hopsHeld, in.hopsAll)
			}
			if c.says == "" {
				if len(got) > 0 {
					t.Errorf("%+v", got)
				}
				return
			}
			want := results.Fail
			if c.open || math.IsInf(c.swallow, 1) {
				want = results.Inconclusive
			}
			if len(got) == 0 || got[0].Outcome != want || got[0].Code != results.CodeCounters || !strings.Contains(got[0].What, c.says) {
				t.Errorf("%+v, want %q", got, c.says)
			}
		})
	}
}

// TestNoTurn: to a switch that has no memory or no turn for a job only packets come that were sent again before. One that says
// so of others drops what it should add up.
func TestNoTurn(t *testing.T) {
	const n, refused = 10_000, 500
	exclusive, moving := spec.Switch{Mode: "exclusive"}, spec.Switch{Mode: "synchronous", Reallocate: inventory.Duration(time.Second)}
	for _, c := range []struct {
		name  string
		sw    spec.Switch
		count string  // which counts what was refused
		again float64 // below 0: it does not say
		says  string
	}{
		{"sent again before its turn ended", exclusive, "job_inactive_packets", refused, ""},
		{"half of it was", exclusive, "job_inactive_packets", refused / 2, "250 packets of job A went without a trace: workers A/0, A/1 sent 20000, switch tor1 received 19500"},
		{"nothing was", exclusive, "job_inactive_packets", 0, "500 packets of job A went without a trace"},
		{"a worker does not say how many it sent again", exclusive, "job_inactive_packets", -1, ""},
		{"sent again before its memory went", moving, "job_dropped_packets", refused, ""},
		{"nothing was, and its memory went", moving, "job_dropped_packets", 0, "500 packets of job A went without a trace"},
		{"its memory is its own", spec.Switch{Mode: "synchronous"}, "job_dropped_packets", refused, "went without a trace"},
	} {
		counts := map[string]float64{
			"worker_tx_packets A/0": n, "worker_tx_packets A/1": n, "job_in_packets A@tor1": 2*n - refused, "job_out_packets A@tor1": n,
			c.count + " A@tor1": refused, "worker_resends A/0": c.again, "worker_resends A/1": 0,
			"worker_rx_packets A/ps": n, "worker_tx_packets A/ps": n, "job_results_packets A@tor1": n, "worker_rx_packets A/0": n, "worker_rx_packets A/1": n,
		}
		maps.DeleteFunc(counts, func(_ string, v float64) bool { return v < 0 })
		in := handedOn(t, counts)
		in.Spec.Switch = c.sw
		switch got := in.Handed(); {
		case c.says == "" && len(got) > 0, c.says != "" && (len(got) == 0 || got[0].Outcome != results.Fail || !strings.Contains(got[0].What, c.says)):
			t.Errorf("%s: %+v, want %q", c.name, got, c.says)
		}
	}
}

// TestNamesOfTraces: a trace's own names of jobs are those of summaries, and may be the plan's of other jobs.
func TestNamesOfTraces(t *testing.T) {
	in := handedOn(t, map[string]float64{"worker_psns A/0": 1000, "worker_psns A/1": 1000, "worker_resends A/0": 0, "worker_resends A/1": 0, "worker_duplicates A/0": 900, "worker_duplicates A/1": 0})
	in.Names = map[string]string{"A": "B", "B": "A"}
	if got := in.Again(); len(got) != 1 || got[0].Of != "A" {
		t.Errorf("of results that come twice: %+v", got)
	}
	if j := in.planned("B"); j.Name != "A" {
		t.Errorf("B is %q in the plan", j.Name)
	}
	if j := in.planned("C"); j.Name != "" || len(j.Workers) > 0 {
		t.Errorf("no plan has C: %+v", j)
	}
}
