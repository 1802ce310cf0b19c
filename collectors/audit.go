package collectors

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Audit follows counters from one reading to the next and says where they cannot be
// believed. A counter that wrapped around goes on growing in the samples that Check
// returns; one that was restarted, sticks, or was not read for a while is a trouble with
// its host and name. Nothing becomes a huge or a negative rate on the way: across a
// restart the counter falls, and package results computes no figure of that.
//
// The zero Audit is ready. It is safe for concurrent use.
type Audit struct {
	// SuperFrames says that hosts count frames that they hand over together as one, with
	// one header: a switch counts more of them, and for each that it has more a header.
	SuperFrames bool
	// Damaged says of which links frames are lost or doubled on purpose; nil: of none. What the
	// receiving port counts of that is no difference between the two ends, and nothing else is.
	Damaged func(link string) bool
	// Flight is how many seconds a frame is on its way from the counter at one end of a link to that at the other, by link; of one
	// that it lacks, no time that matters. As many as the link carries meanwhile are no difference between the two.
	Flight map[string]float64

	mu       sync.Mutex
	rounds   int
	last     float64 // time of the latest round
	counters map[counter]*track
	sources  map[string]int        // how many counters each has
	ids      map[[2]string]float64 // what counts, by source and metric: see UnitID
	found    map[finding]*evidence // since Troubles
}

// UnitID is the unit of gauges that tell which device it is that counts, such as the
// interface's index. When it changes, all counters of that source about the same subject
// have begun again, whatever they say.
const UnitID = "id"

type counter struct{ source, metric, of string }

func (c counter) String() string { return c.metric + " of " + c.of }

// track is what is known of a counter.
type track struct {
	wrap       float64
	turns      float64   // what wrapping around has swallowed
	head, tail []reading // since Troubles, at most edge each: the first ones, and the latest ones, backwards
	peak       float64   // largest growth per second between readings
	readings   int       // since Troubles
	broken     bool      // since Troubles: it began again, so ends do not belong together
	stuck      bool
}

type reading struct {
	t, v  float64
	round int
}

// edge is how many readings are kept of either end of a time: see span.
const edge = 6

// finding is a kind of trouble of a source; evidence is what it is drawn from.
type finding struct{ source, kind string }

type evidence struct {
	first   string // the first case, in words
	value   float64
	limit   float64
	at      float64
	subject map[counter]bool
}

const (
	restarted = "restarted"
	wrapped   = "wrapped"
	stuck     = "stuck"
	missing   = "missing"
	tooMany   = "too many"
)

// mostCounters is how many counters a source may have: a switch with hundreds of ports and jobs has some thousands.
const mostCounters = 1 << 14

// Restart forgets everything: the clock begins anew.
func (a *Audit) Restart() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rounds, a.last = 0, 0
	a.counters, a.sources, a.ids, a.found = nil, nil, nil, nil
}

// Forget forgets counters about a subject, which may begin again: "A@tor1".
func (a *Audit) Forget(about func(of string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.counters {
		if about(c.of) {
			delete(a.counters, c)
			a.sources[c.source]--
		}
	}
}

// Check takes one round of readings and returns it with counters that wrapped around
// continued. Gauges pass as they are.
func (a *Audit) Check(round []results.Sample) []results.Sample {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counters == nil {
		a.counters, a.sources = map[counter]*track{}, map[string]int{}
		a.ids, a.found = map[[2]string]float64{}, map[finding]*evidence{}
	}
	a.rounds++
	renewed := map[[2]string]bool{} // source and subject of another device than before
	for _, s := range round {
		if !s.Gauge || s.Unit != UnitID {
			continue
		}
		key := [2]string{s.Source, s.Metric + " " + s.Of}
		if was, ok := a.ids[key]; ok && was != s.Value {
			renewed[[2]string{s.Source, s.Of}] = true
		}
		a.ids[key] = s.Value
	}
	out := make([]results.Sample, 0, len(round))
	for _, s := range round {
		a.last = max(a.last, s.T)
		if s.Gauge {
			out = append(out, s)
			continue
		}
		c := counter{s.Source, s.Metric, s.Of}
		t := a.counters[c]
		if t == nil {
			if a.sources[s.Source] >= mostCounters {
				a.note(counter{source: s.Source}, tooMany, s.T, fmt.Sprintf("%s counts more than %d things: further ones are left out", s.Source, mostCounters), 1, 0)
				continue
			}
			a.sources[s.Source]++
			t = &track{wrap: s.Wrap}
			a.counters[c] = t
			t.begin(reading{s.T, s.Value, a.rounds})
			out = append(out, s)
			continue
		}
		if gap := a.rounds - t.latest().round; gap > 1 {
			a.note(c, missing, s.T, fmt.Sprintf("%v was not read between %.3f s and %.3f s, %s", c, t.latest().t, s.T, human.Plural(gap-1, "time")), float64(gap-1), 0)
		}
		s.Value += t.turns
		switch grown := s.Value - t.latest().v; {
		case renewed[[2]string{s.Source, s.Of}]:
			a.note(c, restarted, s.T, fmt.Sprintf("%v is counted by another device since %.3f s (it was enumerated again)", c, s.T), s.Value, t.latest().v)
			if grown >= 0 { // it began again between the two readings, and must be seen to
				zero := s
				zero.T, zero.Value = (t.latest().t+s.T)/2, 0
				out = append(out, zero)
			}
			s.Value -= t.turns
			t.restart(reading{s.T, s.Value, a.rounds})
		case grown < 0 && t.wraps(s):
			a.note(c, wrapped, s.T, fmt.Sprintf("%v wrapped around at %s at %.3f s: it is continued", c, power(t.wrap), s.T), s.Value, t.wrap)
			t.turns += t.wrap
			s.Value += t.wrap
			t.read(reading{s.T, s.Value, a.rounds})
		case grown < 0:
			s.Value -= t.turns
			a.note(c, restarted, s.T, fmt.Sprintf("%v fell from %.0f to %.0f at %.3f s: what counts was restarted, and nothing is computed across that", c, t.latest().v, s.Value, s.T), s.Value, t.latest().v)
			t.restart(reading{s.T, s.Value, a.rounds})
		default:
			if s.Wrap > 0 && s.Value-t.turns == s.Wrap-1 && grown == 0 && !t.stuck {
				t.stuck = true
				a.note(c, stuck, s.T, fmt.Sprintf("%v stands at %.0f, the largest that it can hold, since %.3f s: it stopped counting", c, s.Value, t.latest().t), s.Value, s.Wrap)
			}
			t.read(reading{s.T, s.Value, a.rounds})
		}
		out = append(out, s)
	}
	return out
}

func (t *track) begin(r reading) {
	t.head, t.tail, t.readings = []reading{r}, []reading{r}, 1
}

func (t *track) latest() reading { return t.tail[0] }

func (t *track) restart(r reading) {
	t.turns, t.peak, t.broken = 0, 0, true
	t.begin(r)
}

func (t *track) read(r reading) {
	if dt := r.t - t.latest().t; dt > 0 {
		t.peak = max(t.peak, (r.v-t.latest().v)/dt)
	}
	if t.readings++; t.readings <= edge {
		t.head = append(t.head, r)
	}
	t.tail = slices.Insert(t.tail[:min(len(t.tail), edge-1)], 0, r)
}

// wraps says whether a counter that fell is likelier to have wrapped around than to have
// been restarted: the growth that this means is less than a quarter of all it can hold,
// and not out of all proportion to what it has grown by before.
func (t *track) wraps(s results.Sample) bool {
	grown := s.Value + t.wrap - t.latest().v
	return t.wrap > 0 && s.Value-t.turns < t.wrap && t.latest().v-t.turns < t.wrap && grown < t.wrap/4 &&
		(t.peak == 0 || grown <= 100*t.peak*max(s.T-t.latest().t, 0.001))
}

func (a *Audit) note(c counter, kind string, at float64, what string, value, limit float64) {
	f := finding{c.source, kind}
	e := a.found[f]
	if e == nil {
		e = &evidence{first: what, value: value, limit: limit, at: at, subject: map[counter]bool{}}
		a.found[f] = e
	}
	e.subject[c] = true
}

// Troubles are what was found since the last call, one for each source and kind; the
// first case in full. Then come those of cables whose two ends disagree, see Crossings.
func (a *Audit) Troubles() []results.Trouble {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c, t := range a.counters {
		// A job's counters end with it.
		if gap := a.rounds - t.latest().round; gap > 0 && !strings.HasPrefix(c.metric, "job_") {
			a.note(c, missing, t.latest().t, fmt.Sprintf("%v was not read after %.3f s, %s", c, t.latest().t, human.Plural(gap, "time")), float64(gap), 0)
		}
	}
	var out []results.Trouble
	for _, f := range slices.SortedFunc(maps.Keys(a.found), func(x, y finding) int {
		return cmp.Or(cmp.Compare(x.source, y.source), cmp.Compare(x.kind, y.kind))
	}) {
		e := a.found[f]
		what := "counter " + e.first
		if n := len(e.subject) - 1; n > 0 {
			what += "; and " + human.Plural(n, "more counter") + " likewise"
		}
		out = append(out, results.Trouble{Where: f.source, What: what, Value: e.value, Limit: e.limit})
	}
	out = append(out, a.signs()...)
	for _, x := range a.crossings() {
		t, bad := x.Trouble()
		if a.Damaged != nil && a.Damaged(x.Link) {
			whole := x
			whole.Received.Frames += x.Counted.Frames
			whole.Received.Bytes += x.Counted.Bytes
			if w, lost := whole.Trouble(); lost {
				t, bad = w, true
			} else if bad {
				facts, _, _ := strings.Cut(t.What, "; ")
				t.What, t.Asked = facts+"; as the experiment damages this cable, and its port counts it", true
			}
		}
		if bad {
			out = append(out, t)
		}
	}
	for _, t := range a.counters {
		t.begin(t.latest())
		t.broken = false
	}
	clear(a.found)
	return out
}

// signs are losses, pauses and worse that hosts counted: what shaped the traffic besides what the
// experiment asked for. Where nothing is lost, pauses alone can take a fifth of a link.
func (a *Audit) signs() (out []results.Trouble) {
	kinds := []struct {
		stats []string
		what  string
	}{
		{lossStats, "frames were lost in its network card"},
		{pauseStats, "the flow of frames was paused"},
		{[]string{"rx_errors", "tx_errors"}, "frames were damaged, or there was no time for them"},
		{[]string{"carrier_changes"}, "its cable was pulled, or a port of it went down"},
	}
	for _, k := range kinds {
		grown := map[string][]string{} // by source
		most := map[string]float64{}
		for c, t := range a.counters {
			name, ok := strings.CutPrefix(c.metric, "nic_")
			if g := t.latest().v - t.head[0].v; ok && g > 0 && !t.broken && slices.ContainsFunc(k.stats, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
				unit := ""
				if strings.HasSuffix(name, "_duration") {
					unit = " s"
				}
				grown[c.source] = append(grown[c.source], fmt.Sprintf("%s of %s by %.4g%s", c.metric, c.of, g, unit))
				most[c.source] = max(most[c.source], g)
			}
		}
		for _, source := range slices.Sorted(maps.Keys(grown)) {
			slices.Sort(grown[source])
			out = append(out, results.Trouble{Where: source, What: k.what + ": " + strings.Join(grown[source], ", "), Value: most[source]})
		}
	}
	return out
}

// Crossing is what the counters at both ends of a directed link say of it, over the same
// time but for Slack.
type Crossing struct {
	Link             string
	Sender, Receiver string // who counts, and what: "host h1 (nic_tx)"
	Sent, Received   Amount
	Counted          Amount  // what the receiving port itself says that was lost, less what was doubled: neither is in Received
	Slack            float64 // frames that may have passed between the readings of the two ends
	SuperFrames      End     // the end that is a host and counts frames handed over together as one
}

// End is one end of a directed link.
type End uint8

// Ends. Of a Crossing without super-frames it is neither.
const (
	NeitherEnd End = iota
	SendingEnd
	ReceivingEnd
)

// Amount is an amount of traffic. Bytes count frames with their Ethernet header and
// without preamble and FCS, whatever the source counts.
type Amount struct{ Frames, Bytes float64 }

// Crossings are all links that are counted at both ends, since the last call of Troubles.
func (a *Audit) Crossings() []Crossing {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.crossings()
}

// Counters at the two ends of a link, those that are nearest to the cable first. What a
// switch lost or doubled on the cable of a port, as emulations do, counts as the cable's.
var (
	senders   = []string{"nic_tx", "mac_tx", "port_tx"}
	receivers = []string{"nic_rx", "mac_rx", "port_rx"}
)

func (a *Audit) crossings() []Crossing {
	type end struct {
		counter
		frames, bytes *track
		rank          int // 0: nearest to the cable
	}
	ends := map[string][2]end{} // by link: who sends, who receives
	for c, t := range a.counters {
		base, ok := strings.CutSuffix(c.metric, "_packets")
		side, rank := 0, slices.Index(senders, base)
		if rank < 0 {
			side, rank = 1, slices.Index(receivers, base)
		}
		if !ok || rank < 0 || t.readings < 2 || t.broken || a.rounds != t.latest().round {
			continue
		}
		e := ends[c.of]
		if e[side].frames == nil || rank < e[side].rank {
			e[side] = end{counter{c.source, base, c.of}, t, a.counters[counter{c.source, base + "_bytes", c.of}], rank}
		}
		ends[c.of] = e
	}
	var out []Crossing
	for link, e := range ends {
		tx, rx := e[0], e[1]
		if tx.frames == nil || rx.frames == nil {
			continue
		}
		over := typical(tx.frames, rx.frames, a.Flight[link])
		x := Crossing{
			Link:   link,
			Sender: fmt.Sprintf("%s (%s)", tx.source, tx.metric), Receiver: fmt.Sprintf("%s (%s)", rx.source, rx.metric),
			Sent:     over.amount(tx.metric, tx.frames, tx.bytes),
			Received: over.amount(rx.metric, rx.frames, rx.bytes),
			Slack:    over.slack,
		}
		switch sends, receives := tx.metric == "nic_tx", rx.metric == "nic_rx"; {
		case !a.SuperFrames || sends == receives:
		case sends:
			x.SuperFrames = SendingEnd
		default:
			x.SuperFrames = ReceivingEnd
		}
		for metric, sign := range map[string]float64{"port_rx_drop": 1, "port_rx_dup": -1} {
			if rx.metric != "port_rx" {
				break
			}
			x.Counted.Frames += sign * over.growth(a.counters[counter{rx.source, metric + "_packets", link}])
			x.Counted.Bytes += sign * over.growth(a.counters[counter{rx.source, metric + "_bytes", link}])
		}
		x.Received.Frames -= x.Counted.Frames
		x.Received.Bytes -= x.Counted.Bytes
		out = append(out, x)
	}
	slices.SortFunc(out, func(x, y Crossing) int { return cmp.Compare(x.Link, y.Link) })
	return out
}

// span is from one round of readings to another.
type span struct {
	begin, end int
	slack      float64 // frames that can have passed one end and not the other because they were read at different times
}

// typical is the span over which the two ends of a cable are compared. A burst may have passed one
// end and not the other while a round was read, the first and the last too: of some rounds at
// either end of the time, it takes the one whose difference is the median.
// Those that were on their way, for flight seconds each, then and now are more or fewer by no more than the larger of the two.
func typical(tx, rx *track, flight float64) span {
	some := min((min(tx.readings, rx.readings)+1)/3, edge-1)
	some -= 1 - some%2 // one of them is in the middle
	begin, slack, then := median(tx.head, rx.head, some)
	end, more, now := median(tx.tail, rx.tail, some)
	return span{begin, end, slack + more + flight*max(then, now)}
}

// median is the first of some rounds whose difference is the median of theirs, bounds what can have flowed between the two
// readings of it, and says how much flowed at most per second around them.
func median(tx, rx []reading, some int) (round int, slack, flowed float64) {
	var of []int // tx
	var differ []float64
	for i, x := range tx {
		if y := at(rx, x.round); y.round == x.round && len(of) < some {
			of, differ = append(of, i), append(differ, x.v-y.v)
		}
	}
	if len(of) == 0 { // one of the two was not read for long
		of, differ = []int{0}, []float64{tx[0].v - rx[0].v}
	}
	i := of[slices.Index(differ, slices.Sorted(slices.Values(differ))[len(differ)/2])]
	x, y := tx[i], at(rx, tx[i].round)
	flowed = max(growing(tx, x), growing(rx, y))
	return x.round, (math.Abs(x.t-y.t) + 2*readTime) * flowed, flowed
}

// growing is the growth per second around a reading, the larger of what was before it and after.
func growing(r []reading, x reading) float64 {
	i, most := slices.Index(r, x), 0.0
	for j := max(i, 1); j <= min(i+1, len(r)-1); j++ {
		if dt := math.Abs(r[j].t - r[j-1].t); dt > 0 {
			most = max(most, math.Abs(r[j].v-r[j-1].v)/dt)
		}
	}
	return most
}

// readTime bounds how far from its time a reading may have been taken, in seconds.
const readTime = 0.005

// amount is what a pair of counters grew by. MACs of switches count check sequences.
func (s span) amount(metric string, frames, bytes *track) Amount {
	a := Amount{s.growth(frames), s.growth(bytes)}
	if strings.HasPrefix(metric, "mac_") && a.Bytes > 0 {
		a.Bytes -= fcs * a.Frames
	}
	return a
}

// growth is what a counter grew by, 0 where there is none.
func (s span) growth(t *track) float64 {
	if t == nil {
		return 0
	}
	return at(t.tail, s.end).v - at(t.head, s.begin).v
}

// at is the reading of a round, or else the first.
func at(r []reading, round int) reading {
	return r[max(0, slices.IndexFunc(r, func(x reading) bool { return x.round == round }))]
}

// Frames of protocols that are not what is measured may be counted at one end only.
const (
	crossingFrames   = 5
	crossingRelative = 1e-4
)

// Trouble says what is wrong with a crossing, and false where both ends agree.
func (x Crossing) Trouble() (results.Trouble, bool) {
	limit := x.Slack + crossingFrames + crossingRelative*max(x.Sent.Frames, x.Received.Frames)
	gone := x.Sent.Frames - x.Received.Frames
	size := max(x.Sent.Bytes, x.Received.Bytes) / max(x.Sent.Frames, x.Received.Frames, 1)
	if x.SuperFrames != NeitherEnd {
		return x.headers(limit, size)
	}
	goneBytes := x.Sent.Bytes - x.Received.Bytes
	bytesAgree := math.Abs(goneBytes) <= limit*size
	if math.Abs(gone) <= limit && (bytesAgree || x.Sent.Bytes == 0 || x.Received.Bytes == 0) {
		return results.Trouble{}, false
	}
	verdict := "the cable loses them, or one of the two does not count them"
	switch {
	case x.Sent.Frames == 0 || x.Received.Frames == 0:
		verdict = "one of the two counts nothing: is the cable where the inventory says?"
	case math.Abs(gone) <= limit:
		verdict = fmt.Sprintf("frames agree and bytes do not (%.0f and %.0f, %.2f a frame): one of the two counts them differently", x.Sent.Bytes, x.Received.Bytes, goneBytes/max(x.Sent.Frames, 1))
	case bytesAgree && x.Sent.Bytes > 0:
		verdict = "bytes agree, so one of the two counts frames wrongly"
	case gone < 0:
		verdict = "more arrived than was sent: the cable is in another port, frames are doubled, or one of the two counts wrongly"
	}
	return results.Trouble{
		Where: "link " + x.Link,
		What: fmt.Sprintf("%s sent %.0f frames, %s received %.0f: %.0f (%s) differ, %.0f may; %s",
			x.Sender, x.Sent.Frames, x.Receiver, x.Received.Frames, math.Abs(gone), human.Percent(math.Abs(gone)/max(x.Sent.Frames, x.Received.Frames, 1)), limit, verdict),
		Value: math.Abs(gone), Limit: limit, Of: max(x.Sent.Frames, x.Received.Frames), Code: results.CodeLost,
	}, true
}

// Headers that frames have in common which are handed over together: Ethernet, IP and UDP, or
// TCP with all of its options.
const (
	leastHeader = 14 + 20 + 8
	mostHeader  = 14 + 20 + 60
)

// headers is Trouble where one end counts super-frames: the other has more frames, and for each
// that it has more a header of bytes.
func (x Crossing) headers(limit, size float64) (results.Trouble, bool) {
	frames, bytes := x.Sent.Frames-x.Received.Frames, x.Sent.Bytes-x.Received.Bytes
	if x.SuperFrames == SendingEnd {
		frames, bytes = -frames, -bytes
	}
	off := max(leastHeader*frames-bytes, bytes-mostHeader*frames, -frames*size)
	if off <= limit*size {
		return results.Trouble{}, false
	}
	return results.Trouble{
		Where: "link " + x.Link,
		What: fmt.Sprintf("%s sent %.0f frames of %.0f bytes, %s received %.0f of %.0f, as super-frames at one end: %s of the bytes cannot be headers, %.0f frames may; the cable loses them, or one of the two does not count them",
			x.Sender, x.Sent.Frames, x.Sent.Bytes, x.Receiver, x.Received.Frames, x.Received.Bytes, human.Percent(off/max(x.Sent.Bytes, x.Received.Bytes, 1)), limit),
		Value: off / size, Limit: limit, Of: max(x.Sent.Frames, x.Received.Frames), Code: results.CodeLost,
	}, true
}

// power writes 2^32 as that.
func power(v float64) string {
	if f, e := math.Frexp(v); f == 0.5 {
		return fmt.Sprintf("2^%d", e-1)
	}
	return fmt.Sprintf("%.0f", v)
}
