package experiments

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/ina"
)

// What one part of a job sends the next one receives, or a port or a host has counted it as lost.
// A run's drained jobs leave nothing on the way, so that this holds to the packet, however many
// are lost on purpose.

// hop is where packets of a job are handed over: from whoever sent them to whoever is next to
// count them.
type hop struct {
	job, from, to  string
	sent, received float64
	spared         float64 // packets that who received them says it could not use, beyond received, or that were for another
	inside         bool    // of a process: no cable is between
	late           float64 // packets that may still have been on the way when all was read
}

// missing is how many packets went without a trace; negative, how many came from nowhere. Lost
// and doubled are those that ports counted.
func (h hop) missing(lost, doubled float64) float64 {
	gone := h.sent - h.received
	if h.inside {
		lost, doubled = 0, 0
	}
	switch {
	case gone > lost+h.spared+h.slack():
		return gone - lost - h.spared
	case -gone > doubled+h.slack():
		return gone + doubled
	}
	return 0
}

// Packets at a hop that may be lost at the very end of a job: as many, and as a part.
const (
	hopPackets = 1
	hopPart    = 1e-4
)

func (h hop) slack() float64 { return hopPackets + h.late + hopPart*max(h.sent, h.received) }

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

// growth is that of counters of the same things from t on, which all must be there, and those of switches
// have been read when the job's traffic was over. What an agent says last it says when it ends.
func (in *inspection) growth(t, over float64, metric string, of ...string) (sum float64, ok bool) {
	last := strings.HasPrefix(metric, "worker_")
	for _, o := range of {
		s := in.counter(metric, o)
		n, _, ok := grown(s, t)
		if !ok || !last && s.T[len(s.T)-1] < over {
			return 0, false
		}
		sum += n
	}
	return sum, true
}

// over is when the processes of a job were seen to send and receive nothing any more.
func (in *inspection) over(j placement.JobPlan) (end float64) {
	for _, w := range j.Workers {
		for _, metric := range []string{"worker_tx_packets", "worker_rx_packets"} {
			if _, when, ok := grown(in.counter(metric, fmt.Sprintf("%s/%d", j.Name, w.Rank)), 0); ok {
				end = max(end, when)
			}
		}
	}
	return end
}

// hops are those of a job whose both ends count, since from; false where some do not.
func (in *inspection) hops(j placement.JobPlan, from float64) (out []hop, complete bool) {
	complete = true
	tail, over := in.tail(j), in.over(j)
	names := func(ranks uint64) (all []string) {
		for rank := range ina.Ranks(ranks) {
			all = append(all, fmt.Sprintf("%s/%d", j.Name, rank))
		}
		return all
	}
	add := func(what hop, sentOK, receivedOK bool) {
		if in.hopsAll++; !sentOK || !receivedOK {
			complete = false
			return
		}
		in.hopsHeld++
		what.job, what.late = j.Name, tail
		out = append(out, what)
	}
	everyone := uint64(1)<<len(j.Workers) - 1
	ps := j.Name + "/ps"
	// answer adds the hops of results that a sender has sent: each who is below gets every one.
	answer := func(sender string, sent, spared float64, ok bool, leaves, switches []string) {
		for _, leaf := range leaves {
			got, gok := in.growth(from, over, "worker_rx_packets", leaf)
			add(hop{from: sender, to: "worker " + leaf, sent: sent, received: got, spared: spared}, ok, gok)
		}
		for _, s := range switches {
			got, gok := in.growth(from, over, "job_results_packets", s)
			add(hop{from: sender, to: parts(nil, []string{s}), sent: sent, received: got, spared: spared}, ok, gok)
		}
	}
	if j.Collective == placement.PS {
		workers := names(everyone)
		sent, ok := in.growth(from, over, "worker_tx_packets", workers...)
		got, gok := in.growth(from, over, "worker_rx_packets", ps)
		add(hop{from: "its workers", to: "its PS on host " + j.PS, sent: sent, received: got}, ok, gok)
		sent, ok = in.growth(from, over, "worker_tx_packets", ps)
		got, gok = in.growth(from, over, "worker_rx_packets", workers...)
		add(hop{from: "its PS on host " + j.PS, to: "its workers", sent: sent, received: got}, ok, gok)
		return out, complete
	}
	tree := slices.DeleteFunc(slices.Clone(j.Tree), func(n placement.TreeNode) bool { return !n.Aggregate })
	above := func(n placement.TreeNode) string { // the next switch that aggregates
		for up := n.Parent; up != ""; {
			i := slices.IndexFunc(j.Tree, func(n placement.TreeNode) bool { return n.Switch == up })
			if i < 0 || j.Tree[i].Aggregate {
				return up
			}
			up = j.Tree[i].Parent
		}
		return ""
	}
	var roots []string
	free := everyone // workers whose packets no switch looks at
	for _, n := range tree {
		free &^= n.Expect
		direct := n.Expect
		var below []string
		for _, c := range tree {
			if above(c) == n.Switch {
				below = append(below, at(j.Name, c.Switch))
				direct &^= c.Expect
			}
		}
		leaves, here := names(direct), at(j.Name, n.Switch)
		sent, ok := in.growth(from, over, "worker_tx_packets", leaves...)
		sums, sok := in.growth(from, over, "job_out_packets", below...)
		got, gok := in.growth(from, over, "job_in_packets", here)
		var idle float64 // of a job that has no memory at times, or no turn
		if in.spec.reallocates() || in.spec.Switch.Mode == "exclusive" {
			for _, metric := range []string{"job_dropped_packets", "job_inactive_packets"} {
				n, _ := in.growth(from, over, metric, here)
				idle += n
			}
		}
		add(hop{from: parts(leaves, below), to: "switch " + n.Switch, sent: sent + sums, received: got, spared: idle}, ok && sok, gok)

		if above(n) != "" || j.PS != "" {
			if above(n) == "" {
				roots = append(roots, here)
			}
			result, ok := in.growth(from, over, "job_results_packets", here)
			answer("switch "+n.Switch, result, 0, ok, leaves, below)
			continue
		}
		roots = append(roots, here)
		result, ok := in.growth(from, over, "job_out_packets", here)
		switch asked, aok := in.growth(from, over, "job_answers_packets", here); {
		case !aok: // a program that does not count answers, each of which one of those below gets
			asked, _ = in.growth(from, over, "job_duplicates_packets", here)
			complete = complete && asked == 0
			answer("switch "+n.Switch, result, asked, ok, leaves, below)
		case asked == 0:
			answer("switch "+n.Switch, result, 0, ok, leaves, below)
		default: // who asked is not told, how many were sent to all of them is
			got, gok := in.growth(from, over, "worker_rx_packets", leaves...)
			passed, pok := in.growth(from, over, "job_results_packets", below...)
			all := float64(len(leaves) + len(below))
			add(hop{from: "switch " + n.Switch, to: parts(leaves, below), sent: (result-asked)*all + asked, received: got + passed}, ok, gok && pok)
		}
	}
	if j.PS == "" {
		return out, complete
	}
	leaves := names(free)
	sent, ok := in.growth(from, over, "worker_tx_packets", leaves...)
	sums, sok := in.growth(from, over, "job_out_packets", roots...)
	got, gok := in.growth(from, over, "worker_rx_packets", ps)
	add(hop{from: parts(leaves, roots), to: "its PS on host " + j.PS, sent: sent + sums, received: got}, ok && sok, gok)
	stray, _ := in.growth(from, over, "worker_stray", ps)
	taken, tok := in.growth(from, over, "worker_arrived", ps)
	add(hop{from: "the network", to: "the sums of its PS on host " + j.PS, sent: got - stray, received: taken, inside: true}, gok, tok)
	result, ok := in.growth(from, over, "worker_tx_packets", ps)
	answer("its PS on host "+j.PS, result, 0, ok, leaves, roots)
	return out, complete && bits.OnesCount64(free) < len(j.Workers)
}

// parts is who they are, workers and what is of a job at switches, for a message.
func parts(workers, switches []string) string {
	var all []string
	if len(workers) > 0 {
		all = append(all, "workers "+strings.Join(workers, ", "))
	}
	for _, s := range switches {
		_, sw, _ := strings.Cut(s, "@")
		all = append(all, "switch "+sw)
	}
	return strings.Join(all, " and ")
}

// tail is how many packets of a job may have been on their way when its processes ended: what was
// not answered, and resends of the last round trips, whose answers nobody waits for.
func (in *inspection) tail(j placement.JobPlan) (n float64) {
	for _, w := range j.Workers {
		open, _ := in.latest("worker_outstanding", j.Name, w)
		n += 2 * open
		s := in.counter("worker_resends", fmt.Sprintf("%s/%d", j.Name, w.Rank))
		if len(s.V) == 0 {
			continue
		}
		end, last := len(s.V)-1, 2*max(in.base.RTTs[j.Name], s.Spacing())
		before := s.V[end]
		for i := end; i >= 0 && s.T[i] >= s.T[end]-last; i-- {
			before = s.V[i]
		}
		n += s.V[end] - before
	}
	return n
}

// onTheWay are the counters of what became of packets between hops.
var onTheWay = map[string]string{
	"port_rx_drop_packets": "lost", "port_tx_drop_packets": "lost",
	"port_rx_dup_packets": "doubled", "port_tx_dup_packets": "doubled",
	"nic_tx_drops": "other", "nic_rx_drops": "other", "nic_rx_missed": "other", "worker_socket_drops": "other",
}

// lostOnTheWay are the packets that the network's ports and hosts say that they lost and doubled since
// from, and those that hosts lost and that may have been anything.
func (in *inspection) lostOnTheWay(from float64) (lost, doubled, other float64) {
	seen := map[[2]string]bool{}
	sums := map[string]*float64{"lost": &lost, "doubled": &doubled, "other": &other}
	for _, s := range in.obs.samples {
		id := [2]string{s.Metric, s.Of}
		if seen[id] {
			continue
		}
		to := sums[onTheWay[s.Metric]]
		if to == nil {
			continue
		}
		seen[id] = true
		n, _, _ := grown(in.counter(s.Metric, s.Of), from)
		*to += n
	}
	return lost, doubled, other
}

// from is when the first job began, on the run's clock.
func (in *inspection) from() float64 {
	from := math.Inf(1)
	for _, e := range in.obs.timeline.events {
		if !e.stop {
			from = min(from, e.begun.Seconds())
		}
	}
	for _, at := range in.begun {
		from = min(from, at)
	}
	return from
}

// handedOver says whether hops are told by a counter.
func handedOver(metric string) bool {
	return strings.HasPrefix(metric, "job_") || strings.HasPrefix(metric, "worker_") || onTheWay[metric] != ""
}

// handed finds hops at which packets go without a trace or come from nowhere. Where every packet of the
// network is counted at hops, what ports lost and doubled must be what is missing there, to the packet.
func (in *inspection) handed() (out []results.Finding) {
	if in.caps.Kind != results.Measured {
		return nil // a model's counts are of its rates
	}
	from := in.from()
	lost, doubled, other := in.lostOnTheWay(from)
	complete := true
	var all []hop
	for _, j := range in.setup.Plan.Jobs {
		if j.Local() {
			continue
		}
		if j.Collective == placement.Ring {
			complete = false
			continue
		}
		began := from
		if at, ok := in.begun[j.Name]; ok {
			began = at
		}
		hops, ok := in.hops(j, began)
		complete = complete && ok
		all = append(all, hops...)
	}
	find := func(h hop, what string) {
		out = append(out, results.Finding{Name: agree, Code: results.CodeCounters, Of: h.job, Outcome: results.Fail, What: what})
	}
	var sum hop
	worst := 0
	for i, h := range all {
		if n := h.missing(lost+other, doubled); n > 0 {
			find(h, fmt.Sprintf("%.0f packets of job %s went without a trace: %s sent %.0f, %s received %.0f, and %s", n, h.job, h.from, h.sent, h.to, h.received, counted(lost+other, "lost")))
		} else if n < 0 {
			find(h, fmt.Sprintf("%.0f packets of job %s came from nowhere: %s sent %.0f, %s received %.0f, and %s", -n, h.job, h.from, h.sent, h.to, h.received, counted(doubled, "doubled")))
		}
		sum.sent, sum.received = sum.sent+h.sent, sum.received+h.received
		sum.late, sum.spared = sum.late+h.late, sum.spared+h.spared
		if math.Abs(h.sent-h.received) > math.Abs(all[worst].sent-all[worst].received) {
			worst = i
		}
	}
	if len(out) > 0 || !complete || len(all) == 0 {
		return out
	}
	gone, slack := sum.sent-sum.received-(lost-doubled), hopPackets*float64(len(all))+sum.slack()
	if gone > slack+sum.spared+other || -gone > slack {
		h := all[worst]
		find(h, fmt.Sprintf("from hop to hop %.0f packets are missing, and ports say that they lost %.0f and doubled %.0f: somebody counts wrongly; the difference is largest where job %s's packets pass from %s (%.0f) to %s (%.0f)",
			sum.sent-sum.received, lost, doubled, h.job, h.from, h.sent, h.to, h.received))
	}
	return out
}

// counted is how many packets were counted as lost or doubled, for a message.
func counted(n float64, how string) string {
	if n == 0 {
		return "nothing was counted as " + how
	}
	return fmt.Sprintf("all that was counted as %s in the whole network is %.0f", how, n)
}
