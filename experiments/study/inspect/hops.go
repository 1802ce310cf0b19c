package inspect

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/handover"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// What one part of a job sends the next one receives, or a port or a host has counted it as lost.
// A run's drained jobs leave nothing on the way, so that this holds to the packet, however many
// are lost on purpose.

// hop is where packets of a job are handed over: from whoever sent them to whoever is next to
// count them.
type hop struct {
	job, from, to  string
	sent, received float64
	spared         float64         // packets that who received them says it could not use, beyond received, or that were for another
	inside         bool            // of a process: no cable is between
	between        map[string]bool // cables, by direction, and who receives; nil: nobody knows
	ends           map[string]bool // of what its counters are
	late           float64         // packets that may still have been on the way when all was read
}

// missing is how many packets went without a trace; negative, how many came from nowhere. Lost
// and doubled are those that ports counted.
func (h hop) missing(lost, doubled float64) float64 {
	gone := h.sent - h.received
	if h.inside {
		lost, doubled = 0, 0
	}
	switch {
	case gone > lost+h.spared+h.late:
		return gone - lost - h.spared
	case -gone > doubled+h.late:
		return gone + doubled
	}
	return 0
}

// grown is by how much a counter has grown from t on, and when it was seen to have done so first; false
// where it has no readings, or began again.
func grown(s results.Series, t float64) (by, when float64, ok bool) {
	if len(s.V) == 0 || !slices.IsSorted(s.V) {
		return 0, 0, false
	}
	base, end := 0.0, s.V[len(s.V)-1]
	for i, at := range s.T {
		if at > t {
			break
		}
		base = s.V[i]
	}
	i, _ := slices.BinarySearch(s.V, end)
	return end - base, s.T[i], true
}

// growth is that of a counter from t on, which must be there, and that of a switch have been read when
// the job's traffic was over. What an agent says last it says when it ends.
func (in *Inspection) growth(t, over float64, c handover.Counter) (n float64, ok bool) {
	s := in.noted(c.Metric, c.Of)
	n, _, ok = grown(s, t)
	if !ok || !strings.HasPrefix(c.Metric, "worker_") && s.T[len(s.T)-1] < over {
		return 0, false
	}
	return n, true
}

// Total returns counters of a job as the whole run counted them, from 0 at time 0 to what they came to at time 1; without
// readings where nobody told of all.
func (in *Inspection) Total(j placement.JobPlan) func(metric, of string) results.Series {
	from, over := in.from(), in.over(j)
	return func(metric, of string) results.Series {
		n, ok := in.growth(from, over, handover.Counter{Metric: metric, Of: of})
		if !ok {
			return results.Series{}
		}
		return results.Series{T: []float64{0, 1}, V: []float64{0, n}}
	}
}

// noted is a counter of what is handed over. One that began again is remembered.
func (in *Inspection) noted(metric, of string) results.Series {
	s := in.Counter(metric, of)
	if !slices.IsSorted(s.V) {
		if in.fell == nil {
			in.fell = map[[2]string]bool{}
		}
		in.fell[[2]string{metric, of}] = true
	}
	return s
}

// over is when the processes of a job were seen to send and receive nothing any more.
func (in *Inspection) over(j placement.JobPlan) (end float64) {
	for _, w := range j.Workers {
		for _, metric := range []string{"worker_tx_packets", "worker_rx_packets"} {
			if _, when, ok := grown(in.Counter(metric, fmt.Sprintf("%s/%d", j.Name, w.Rank)), 0); ok {
				end = max(end, when)
			}
		}
	}
	return end
}

// hops are those of a job whose both ends count, since from; false where some do not.
func (in *Inspection) hops(j placement.JobPlan, from, over, late float64, missed map[string]float64) (out []hop, complete bool) {
	all, complete := handover.Hops(j)
	again := in.resent(j, from)
	sum := func(ends ...handover.End) (n float64, ok bool) {
		ok = true
		for _, e := range ends {
			by, told := in.growth(from, over, e.Counter)
			n, ok = n+by, ok && told
		}
		return n, ok
	}
	for _, h := range all {
		sent, told := sum(h.Sent...)
		spared, receivers := 0.0, h.Receivers()
		for _, c := range h.Idle {
			// It has no memory at times, or no turn: its workers know, and nothing comes then but what was sent again before.
			if n, _ := in.growth(from, over, c); in.Spec.Reallocates() || in.Spec.Switch.Mode == "exclusive" {
				spared += n
			}
		}
		if h.Answers != (handover.Counter{}) {
			switch asked, counted := in.growth(from, over, h.Answers); {
			case !counted: // by this program
				spared, _ = in.growth(from, over, h.Repeated) // only what was sent again comes twice: where none counts answers, no cable makes copies
				complete = complete && spared == 0
			case asked > 0: // by whom is not told, how many were sent to all of them is
				sent, receivers = (sent-asked)*float64(len(h.Received))+asked, [][]handover.End{h.Received}
			}
		}
		spared = min(spared, again)
		for _, ends := range receivers {
			got, ok := sum(ends...)
			if held := ok && told; !held && h.Inside && !in.telling(slices.Concat(h.Sent, ends)) {
				continue // what became of it nobody counts, and nothing passes between
			} else if in.hopsAll++; !held {
				in.unheld(slices.Concat(h.Sent, ends), over)
				complete = complete && h.Inside
				continue
			}
			in.hopsHeld++
			under := late
			for _, e := range ends {
				under += missed[e.Name]
			}
			if h.Inside && ends[0].Role != handover.Switch { // a process tells both at once
				under = 0
			}
			out = append(out, hop{
				job: j.Name, from: h.From(), to: h.To(ends), sent: sent, received: got,
				spared: spared, inside: h.Inside, between: in.Between(h.Sent, ends), ends: counted(h, ends), late: under,
			})
		}
	}
	return out, complete
}

// telling says whether all ends ever told anything.
func (in *Inspection) telling(ends []handover.End) bool {
	return !slices.ContainsFunc(ends, func(e handover.End) bool { return len(in.Counter(e.Metric, e.Of).V) == 0 })
}

// unheld remembers counters without which a hop could not be held though they should be there: those that were told of before and
// not to the end, and those that only others have.
func (in *Inspection) unheld(ends []handover.End, over float64) {
	for _, e := range ends {
		name := e.Metric + " of " + e.Of
		switch s := in.Counter(e.Metric, e.Of); {
		case len(s.V) == 0:
			if in.metrics == nil {
				in.metrics = map[string]bool{}
				for r := range in.Readings.All() {
					in.metrics[r.Metric] = true
				}
			}
			if in.metrics[e.Metric] {
				in.silent = append(in.silent, fmt.Sprintf("counter %s was never read, and those of others were", name))
			}
		case slices.IsSorted(s.V) && s.T[len(s.T)-1] < over:
			in.silent = append(in.silent, fmt.Sprintf("counter %s was read last at %.2f s, and packets were on their way until %.2f s", name, s.T[len(s.T)-1], over))
		}
	}
}

// counted are what the counters of a hop are of.
func counted(h handover.Hop, received []handover.End) map[string]bool {
	of := map[string]bool{}
	for _, ends := range [][]handover.End{h.Sent, received} {
		for _, e := range ends {
			of[e.Of] = true
		}
	}
	for _, c := range h.Idle {
		of[c.Of] = true
	}
	return of
}

// resent is how many packets a job's workers say that they sent again since from: so many at most may come to a switch that has
// no memory or no turn for them, or a second time. Where one of them does not say it, or began again, there is no most.
func (in *Inspection) resent(j placement.JobPlan, from float64) (n float64) {
	for _, w := range j.Workers {
		by, _, ok := grown(in.Counter("worker_resends", fmt.Sprintf("%s/%d", j.Name, w.Rank)), from)
		if !ok {
			return math.Inf(1)
		}
		n += by
	}
	return n
}

// trip is how long an answer to a worker takes in the mean, s: as calibrated, or as it found itself, with all that queues before it.
func (in *Inspection) trip(job, worker string) float64 {
	sum, _ := in.Last("worker_rtt_seconds", worker)
	if n, ok := in.Last("worker_rtt_count", worker); ok && n > 0 {
		return max(in.RTTs[job], sum/n)
	}
	return in.RTTs[job]
}

// packets writes how many there are, whatever the sign.
func packets(n float64) string { return human.Plural(int(math.Round(math.Abs(n))), "packet") }

// tail is how many packets of a job may have been on their way when its processes ended: of what was
// not answered a gradient and a result, and resends of the last round trip, whose answers nobody waits for:
// whoever stood still then answers what came since that began.
func (in *Inspection) tail(j placement.JobPlan) (open, again float64) {
	for _, w := range j.Workers {
		name := fmt.Sprintf("%s/%d", j.Name, w.Rank)
		n, _ := in.Readings.Gauge("worker_outstanding", name)
		open += 2 * n
		s := in.Counter("worker_resends", name)
		if len(s.V) == 0 {
			continue
		}
		// An answer takes a trip, and what was sent by then is known of the first report from since on, which may come a
		// spacing later: of twice the longer of the two, one trip at least is left.
		end, last := len(s.V)-1, 2*max(in.trip(j.Name, name), s.Spacing())
		since := s.T[end] - last
		for _, stood := range in.Stalls {
			if stood.End >= s.T[end]-last && stood.Start <= s.T[end] {
				since = min(since, stood.Start-last)
			}
		}
		before := 0.0 // as it began
		if s.T[0] < since {
			i, _ := slices.BinarySearch(s.T, since)
			before = s.V[i]
		}
		again += s.V[end] - before
	}
	return open, again
}

// missed is how many answers may have come to a worker that had ended, by its name: all get what one has asked for again.
func (in *Inspection) missed(j placement.JobPlan) map[string]float64 {
	again := map[string]results.Series{}
	for _, w := range j.Workers {
		name := fmt.Sprintf("%s/%d", j.Name, w.Rank)
		again[name] = in.Counter("worker_resends", name)
	}
	out := map[string]float64{}
	for name, own := range again {
		for other, s := range again {
			if other != name && len(own.T) > 0 {
				n, _, _ := grown(s, own.T[len(own.T)-1])
				out[name] += n
			}
		}
	}
	return out
}

// copied is how many copies that cables make of packets may have been on their way when processes ended: those of a
// round trip, of so many that were made since from, and three standard deviations of chance.
func (in *Inspection) copied(j placement.JobPlan, doubled, from, over float64) float64 {
	if doubled == 0 || over <= from {
		return 0
	}
	n := doubled * min(1, in.RTTs[j.Name]/(over-from))
	return n + 3*math.Sqrt(n+1)
}

// Between are the cables on any of the shortest ways from who sends to who receives, and the names of who receives.
func (in *Inspection) Between(sent, received []handover.End) map[string]bool {
	if in.Inv == nil {
		return nil
	}
	topo, out := in.Inv.Topology(), map[string]bool{}
	for _, to := range received {
		out[to.Of] = true
		for _, from := range sent {
			links, err := topo.Between(from.Node, to.Node)
			if err != nil {
				return nil
			}
			for _, l := range links {
				out[topo.Links[l].Name] = true
			}
		}
	}
	return out
}

// underway is what became of packets between hops: how many ports say that they lost and doubled, and how
// many hosts lost, which may have been anything, by cable, or by who did. Places are all of these that are known.
type underway struct {
	lost, doubled, other map[string]float64
	places               map[string]bool
}

// lostOnTheWay is what the network's ports and hosts say since from.
func (in *Inspection) lostOnTheWay(from float64) underway {
	seen := map[[2]string]bool{}
	u := underway{map[string]float64{}, map[string]float64{}, map[string]float64{}, in.places()}
	if !in.unknown() {
		u.other[""] = in.Lost // of the testbed itself: nobody knows where
	}
	sums := map[string]map[string]float64{"lost": u.lost, "doubled": u.doubled, "other": u.other}
	for r := range in.Readings.All() {
		id := [2]string{r.Metric, r.Of}
		to := sums[study.OnTheWay[r.Metric]]
		if seen[id] || to == nil {
			continue
		}
		seen[id] = true
		n, _, _ := grown(in.noted(r.Metric, r.Of), from)
		to[r.Of] += n
	}
	return u
}

// at are the sums of what may have been between: of the whole network where that is nil.
func (u underway) at(between map[string]bool) (lost, doubled, other float64) {
	there := func(where string) bool {
		return between == nil || between[where] || !u.places[where] // or nobody knows where
	}
	return within(u.lost, there), within(u.doubled, there), within(u.other, there)
}

// within is the sum of counts of such places.
func within(of map[string]float64, there func(where string) bool) (n float64) {
	for where, v := range of {
		if there(where) {
			n += v
		}
	}
	return n
}

// alone says of a place whether no packets pass there but those that hops count: none of a ring, which the kernel sends and
// acknowledges. Beside one nobody knows of places without a name.
func (in *Inspection) alone(u underway) func(place string) bool {
	rings, everywhere := map[string]bool{}, false
	for _, j := range in.Plan.Jobs {
		if j.Collective != placement.Ring || j.Local() {
			continue
		}
		for i := range j.Workers {
			here := []handover.End{{Node: j.Workers[i].Host}}
			next := []handover.End{{Node: j.Workers[(i+1)%len(j.Workers)].Host}}
			for _, way := range []map[string]bool{in.Between(here, next), in.Between(next, here)} {
				everywhere = everywhere || way == nil
				maps.Copy(rings, way)
			}
		}
	}
	return func(place string) bool {
		return !everywhere && (len(rings) == 0 || u.places[place] && !rings[place])
	}
}

// places are the cables, and the workers and PSes of jobs, by the names that counters have.
func (in *Inspection) places() map[string]bool {
	out := map[string]bool{}
	if in.Inv == nil {
		return out
	}
	for _, l := range in.Inv.Topology().Links {
		out[l.Name] = true
	}
	for _, j := range in.Plan.Jobs {
		out[j.Name+"/ps"] = true
		for _, w := range j.Workers {
			out[fmt.Sprintf("%s/%d", j.Name, w.Rank)] = true
		}
	}
	return out
}

// Swallowed is how many frames an emulation says that it lost itself, wherever that was; infinite where nobody knows how many.
func Swallowed(health []results.Trouble) (n float64) {
	for _, t := range health {
		switch {
		case t.Code != results.CodeCounters:
		case t.Of == 0:
			return math.Inf(1)
		default:
			n += math.Round(t.Value * t.Of)
		}
	}
	return n
}

// unknown says that the testbed lost frames itself that nobody counted: what is missing may be these, and need not.
func (in *Inspection) unknown() bool { return math.IsInf(in.Lost, 1) }

// from is when the first job began, on the run's clock.
func (in *Inspection) from() float64 {
	from := in.From
	for _, at := range in.Begun {
		from = min(from, at)
	}
	return from
}

// Handed finds hops at which packets go without a trace or come from nowhere: more than the cables between
// have lost or doubled, whatever they carried. Where every packet of jobs without a ring is counted at hops, what
// ports lost and doubled where no ring passes must be missing there, to the packet, and no more may be missing than all ports lost.
func (in *Inspection) Handed() (out []results.Finding) {
	if in.Caps.Kind != results.Measured {
		return nil // a model's counts are of its rates
	}
	from := in.from()
	way := in.lostOnTheWay(from)
	lost, doubled, other := way.at(nil)
	complete := !in.Beside // ranks send each other what no hop counts, nobody knows where
	var all []hop
	late := 0.0 // each is missing at one hop; a resend, or its answer at each worker
	for _, j := range in.Plan.Jobs {
		if j.Collective == placement.Ring && !j.Local() {
			continue // the kernel sends its packets: see alone
		}
		over := in.over(j)
		open, again := in.tail(j)
		late += open + again*float64(len(j.Workers)) + in.copied(j, doubled, from, over)
		began := from
		if at, ok := in.Begun[j.Name]; ok {
			began = at
		}
		missed := in.missed(j)
		for _, n := range missed {
			late += n
		}
		hops, ok := in.hops(j, began, over, open+again, missed)
		complete = complete && ok
		all = append(all, hops...)
	}
	once := in.Once
	find := func(h hop, lacks bool, what string) {
		f := results.Finding{Name: study.Agree, Code: results.CodeCounters, Of: h.job, Outcome: results.Fail, What: what}
		switch {
		case once && in.anew(h, way):
			f.Outcome = results.Inconclusive // it may be why
		case lacks && in.unknown():
			f.Outcome = results.Inconclusive
			f.What += "; but the testbed lost frames itself, and nobody knows how many"
		}
		out = append(out, f)
	}
	in.hopsWithin = math.Floor(late)
	var sum hop
	worst := -1
	for i, h := range all {
		gone, more, anything := way.at(h.between)
		gone += anything
		if n := h.missing(gone, more); n != 0 && h.inside {
			find(h, false, fmt.Sprintf("what became of %s of job %s is not told by %s: %.0f arrived there, and %s add up to %.0f", packets(n), h.job, h.to, h.sent, h.from, h.received))
		} else if n > 0 {
			find(h, true, fmt.Sprintf("%s of job %s went without a trace: %s sent %.0f, %s received %.0f, and %s", packets(n), h.job, h.from, h.sent, h.to, h.received, reckoned(gone, "lost")))
		} else if n < 0 {
			find(h, false, fmt.Sprintf("%s of job %s came from nowhere: %s sent %.0f, %s received %.0f, and %s", packets(n), h.job, h.from, h.sent, h.to, h.received, reckoned(more, "doubled")))
		}
		if h.inside {
			continue
		}
		sum.sent, sum.received = sum.sent+h.sent, sum.received+h.received
		sum.spared += h.spared
		if worst < 0 || math.Abs(h.sent-h.received) > math.Abs(all[worst].sent-all[worst].received) {
			worst = i
		}
	}
	if once {
		for _, id := range slices.SortedFunc(maps.Keys(in.fell), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
			name := id[0] + " of " + id[1]
			out = append(out, results.Finding{Name: study.Agree, Code: results.CodeCounters, Of: name, Outcome: results.Inconclusive,
				What: fmt.Sprintf("counter %s began again from less: what was handed over there is not known", name)})
		}
	}
	slices.Sort(in.silent)
	for _, what := range slices.Compact(in.silent) {
		if once {
			out = append(out, results.Finding{Name: study.Agree, Code: results.CodeCounters, Of: "counters", Outcome: results.Inconclusive, What: what + ": what was handed over there is not known"})
		}
	}
	if len(out) > 0 || !complete || worst < 0 {
		return out
	}
	alone := in.alone(way)
	least, most := within(way.lost, alone)-doubled, lost-within(way.doubled, alone) // that may be missing, rings' packets beside or not
	if missing := sum.sent - sum.received; missing > most+late+sum.spared+other || missing < least-late {
		h := all[worst]
		find(h, missing > most, fmt.Sprintf("from hop to hop %.0f packets are missing, and ports say that they lost %.0f and doubled %.0f%s: somebody counts wrongly; the difference is largest where job %s's packets pass from %s (%.0f) to %s (%.0f)",
			missing, lost, doubled, besideRings(lost-within(way.lost, alone)), h.job, h.from, h.sent, h.to, h.received))
	}
	return out
}

// besideRings is, for a message, how many of all packets that were lost may have been of rings.
func besideRings(n float64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %.0f of these where rings pass too", n)
}

// anew says whether a counter of what got lost or doubled between the ends of a hop began again, or another one of these ends:
// where that did which counts what is handed over, the hop is not told of at all.
func (in *Inspection) anew(h hop, way underway) bool {
	for id := range in.fell {
		if study.OnTheWay[id[0]] == "" && h.ends[id[1]] { // of the same process, or job in a switch
			return true
		}
		if study.OnTheWay[id[0]] != "" && (h.between == nil || h.between[id[1]] || !way.places[id[1]]) {
			return true
		}
	}
	return false
}

// reckoned is how many packets were counted as lost or doubled, for a message.
func reckoned(n float64, how string) string {
	if n == 0 {
		return "nothing was counted as " + how
	}
	return fmt.Sprintf("all that was counted as %s on the way is %.0f", how, n)
}
