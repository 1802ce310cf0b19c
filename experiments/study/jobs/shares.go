package jobs

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/handover"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// claimed is by how much the part that a switch claims to have added up may differ from what
// left it towards the PS.
const claimed = 0.04

// says is the share that a switch claims. Where as many packets of each PSN come to it, that is
// the part of PSNs that it granted. Above switches that add up, those that it grants may have
// more or fewer packets than those that it denies, and of some one packet comes, which is complete
// and neither: there it follows from what the switch says that it sent on as it was, of which one
// of each PSN had to be.
func says(w results.Window, counter counter, j placement.JobPlan, node int, seen share) (results.Figure, error) {
	of := spec.AtSwitch(j.Name, j.Tree[node].Switch)
	granted, denied := counter("job_granted_packets", of), counter("job_denied_packets", of)
	if !j.AboveSums(j.Tree[node].Switch) {
		return results.Ratio(w, granted, results.Sum(granted, denied))
	}
	return results.Share(w, results.Sum(seen.in, denied), results.Sum(seen.psns, counter("job_fallback_packets", of)), results.Sum(seen.psns, denied))
}

// copies is how much of a share the copies may be that cables made of packets on their way to the PS.
func copies(w results.Window, counter counter, seen share) float64 {
	var made []results.Series
	for of := range seen.way {
		made = append(made, counter("port_tx_dup_packets", of), counter("port_rx_dup_packets", of))
	}
	doubled, err := results.Rate(w, results.Sum(slices.DeleteFunc(made, func(s results.Series) bool { return len(s.T) < 2 })...))
	if err != nil || doubled.Value == 0 {
		return 0
	}
	sent, err := results.Rate(w, seen.in)
	psns, perr := results.Rate(w, seen.psns)
	if err != nil || perr != nil || sent.Value <= psns.Value {
		return 0
	}
	return doubled.Value / (sent.Value - psns.Value)
}

// A counter is what somebody counted, by metric and of what.
type counter func(metric, of string) results.Series

// claims compares the shares that switches claim with what was seen to leave them: in each span of the timeline, and
// of the whole run. What a stall leaves of a span is little, of which packets on their way are much; the counts of a run
// that is over need no clock.
func (in *inspection) claims() []results.Finding {
	var out []results.Finding
	add := func(findings []results.Finding) {
		for _, f := range findings {
			if !slices.ContainsFunc(out, func(g results.Finding) bool { return g.Of == f.Of && g.Outcome == f.Outcome }) {
				out = append(out, f)
			}
		}
	}
	for _, sp := range in.obs.timeline.spans() {
		start, end := sp.start.Seconds(), sp.end.Seconds()
		w := without(start, end, lostTimes(in.obs.stalls, start, end, in.base))
		for _, j := range in.setup.Plan.Jobs {
			if slices.Contains(sp.jobs, j.Name) {
				add(in.compare(w, in.Counter, j))
			}
		}
	}
	for _, j := range in.setup.Plan.Jobs {
		add(in.compare(results.Window{End: 1}, in.Total(j), j))
	}
	return out
}

// compare holds what switches claim of a job in a window against what was seen. Resends explain a difference, and then the
// share is what was seen.
func (in *inspection) compare(w results.Window, counter counter, j placement.JobPlan) (out []results.Finding) {
	if j.PS == "" || j.Local() {
		return nil
	}
	for i := range j.Tree {
		if !j.Tree[i].Aggregate {
			continue
		}
		sw, of := j.Tree[i].Switch, spec.AtSwitch(j.Name, j.Tree[i].Switch)
		seen, ok := seenShare(counter, j, i)
		if !ok {
			continue
		}
		if seen.way = nil; last(j, i) && in.Inv != nil {
			seen.way = in.Between([]handover.End{{Node: sw}}, []handover.End{{Node: j.PS}})
		}
		granted, denied := counter("job_granted_packets", of), counter("job_denied_packets", of)
		claim, err := says(w, counter, j, i, seen)
		got, gerr := seen.of(w)
		var resends results.Figure
		var rerr error
		if r := counter("job_resends_packets", of); len(r.T) > 0 { // a model has none
			resends, rerr = results.Ratio(w, r, results.Sum(granted, denied))
		}
		// Only what workers say that they sent again explains anything: it comes once to a switch next to them, and
		// each switch on its way may push out a sum before it.
		if asked, err := results.Ratio(w, again(counter, j), results.Sum(granted, denied)); err == nil {
			resends.Value = min(resends.Value, asked.Value*float64(int(1)<<(deepest(&j)-1)))
		}
		if errors.Is(err, results.ErrCounterFell) {
			out = append(out, results.Finding{Name: study.SharesHold, Code: results.CodeCounters, Of: of, Outcome: results.Inconclusive,
				What: fmt.Sprintf("what switch %s says that it added up of job %s's gradients cannot be held against what %s: its count began again, %v", sw, j.Name, seen.by, err)})
		}
		if err != nil || gerr != nil || rerr != nil {
			continue
		}
		gap := math.Abs(claim.Value - got.Value)
		// While queues grow or drain, what passes a switch is not what the PS completes meanwhile. What the
		// switch itself counts as come and sent on decides then, which hops hold to the counts of others.
		if own, err := seen.counted(w, counter, j, i).of(w); err == nil {
			gap = min(gap, math.Abs(claim.Value-own.Value))
		}
		noise := max(got.Hi-got.Lo, claim.Hi-claim.Lo) / 2
		load := in.workload(j.Name)
		if got.N < 2 || len(w.Out) > 0 || load.Control == "aimd" { // nothing says how much there is, there are more ends than two, or queues grow and empty
			noise = max(noise, seen.flying(w, load.Window))
		}
		if gap <= claimed+noise+2*resends.Value+copies(w, counter, seen) {
			continue
		}
		out = append(out, results.Finding{Name: study.SharesHold, Code: results.CodeCounters, Of: of, Outcome: results.Fail,
			What: fmt.Sprintf("switch %s says that it added up %s of job %s's gradients, and by what %s it was %s", sw, human.Quantity(claim.Value, "1"), j.Name, seen.by, human.Quantity(got.Value, "1"))})
	}
	return out
}

// again is how many packets a job's workers sent again.
func again(counter counter, j placement.JobPlan) results.Series {
	var all []results.Series
	for _, w := range j.Workers {
		all = append(all, counter("worker_resends", fmt.Sprintf("%s/%d", j.Name, w.Rank)))
	}
	return results.Sum(all...)
}

// share is what is needed to tell the aggregated share of a job at a switch from what came to
// it and what left it, as others saw that.
type share struct {
	in   results.Series // packets for it: one of each PSN from each worker, and what switches below sent; without resends of workers
	out  results.Series // packets that it sent towards the PS, resends included
	psns results.Series // PSNs that the PS completed
	by   string         // who saw what left it

	way map[string]bool // cables that out has crossed; nil: none

	direct int // packets of each PSN that come from workers, and so are counted by psns

	apart apart
}

// apart is which of a share's counts are not of one place.
type apart uint8

const (
	apartAll  apart = iota // what comes, what leaves and what the PS completes
	apartPSNs              // what the PS completes
	apartNone
)

// of is (in-out)/(in-psns) over a window: 1 where one packet leaves for each PSN, 0 where all
// leave that came, and less where more leave than came. For n workers and p packets of a PSN it
// is (n-p)/(n-1).
func (s share) of(w results.Window) (results.Figure, error) {
	if in, err := results.Ratio(w, s.in, s.psns); err == nil && in.Value < placement.LeastIn {
		return results.Figure{}, fmt.Errorf("%.3f packets of a PSN come: there is next to nothing to add up", in.Value)
	}
	return results.Share(w, s.in, s.out, s.psns)
}

// counted is the share by counts of one place and moment as far as there are any, where nothing was sent
// again or doubled within a window: what waits between a switch and the PS makes a share of few packets
// uncertain. The PS itself counts what came to it and what it completed; of any other switch what came
// and left is taken as that counts both, which hops hold to the counts of others (package inspect).
func (s share) counted(w results.Window, counter counter, j placement.JobPlan, node int) share {
	of, above := spec.AtSwitch(j.Name, j.Tree[node].Switch), j.AboveSums(j.Tree[node].Switch)
	if !above && last(j, node) {
		s.apart = apartNone
		return s
	}
	in, out := counter("job_in_packets", of), counter("job_out_packets", of)
	again, err := results.Rate(w, results.Sum(counter("job_resends_packets", of), counter("job_duplicates_packets", of)))
	if len(in.T) < 2 || len(out.T) < 2 || err != nil || again.Value > 0 {
		return s
	}
	s.in, s.out, s.apart = in, out, apartPSNs
	if !above { // each worker's packets come, and nothing else
		s.apart = apartNone
		s.psns = in.Times(1 / float64(bits.OnesCount64(j.Tree[node].Expect)))
	}
	return s
}

// seenShare is the share of a job at one switch of its tree; false where what passed there was
// not counted, or where packets of one worker alone come to it, which cannot be added to others.
func seenShare(counter counter, j placement.JobPlan, node int) (share, bool) {
	var s share
	s.psns = counter("worker_completed", j.Name+"/ps")
	if len(s.psns.T) < 2 {
		return s, false
	}
	tree := j.Tree
	var into func(k int) (results.Series, int, bool)
	from := func(k int) (results.Series, bool) {
		if !tree[k].Aggregate {
			all, _, ok := into(k)
			return all, ok
		}
		out := counter("job_out_packets", spec.AtSwitch(j.Name, tree[k].Switch))
		return out, len(out.T) >= 2
	}
	into = func(k int) (results.Series, int, bool) {
		direct := tree[k].Expect
		all := []results.Series{{}}
		for c := range tree {
			if tree[c].Parent != tree[k].Switch || c == k {
				continue
			}
			direct &^= tree[c].Expect
			sent, ok := from(c)
			if !ok {
				return results.Series{}, 0, false
			}
			all = append(all, sent)
		}
		n := bits.OnesCount64(direct)
		if all[0] = s.psns.Times(float64(n)); len(all) == 1 {
			return all[0], n, true
		}
		return results.Sum(all...), n, true
	}
	var ok bool
	if s.in, s.direct, ok = into(node); !ok || bits.OnesCount64(tree[node].Expect) < 2 {
		return s, false
	}
	if last(j, node) {
		s.out, s.by = counter("worker_arrived", j.Name+"/ps"), fmt.Sprintf("arrived at its PS on host %s", j.PS)
	} else {
		s.out, s.by = counter("job_out_packets", spec.AtSwitch(j.Name, tree[node].Switch)), "it sent on"
	}
	return s, len(s.out.T) >= 2
}

// flying is how much of a share the packets may be that were on their way at the ends of a window
// and of its parts: those of a window of PSNs, where they are not all counted in one place.
func (s share) flying(w results.Window, window int) float64 {
	if s.apart == apartNone {
		return 0
	}
	in, err := results.Ratio(w, s.in, s.psns)
	out, oerr := results.Ratio(w, s.out, s.psns)
	rate, perr := results.Rate(w, s.psns)
	if err != nil || oerr != nil || perr != nil {
		return 1
	}
	parts, each := float64(1+len(w.Out)), in.Value-float64(s.direct)+out.Value
	if s.apart == apartPSNs { // the share is of what is left of what comes without them
		each = 1
	}
	return min(1, parts*each*float64(window)/((in.Value-1)*rate.Value*w.Length()))
}

// last says whether all that arrives at a job's PS comes from one switch of its tree as that
// sent it.
func last(j placement.JobPlan, node int) bool {
	if bits.OnesCount64(j.Tree[node].Expect) != len(j.Workers) {
		return false
	}
	for up := j.Tree[node].Parent; up != ""; {
		next := ""
		for _, n := range j.Tree {
			if n.Switch == up {
				if n.Aggregate {
					return false
				}
				next = n.Parent
			}
		}
		up = next
	}
	return true
}
