package experiments

import (
	"fmt"
	"math/bits"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

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
// and left is taken as that counts both, which hops hold to the counts of others (hops.go).
func (s share) counted(w results.Window, counter func(metric, of string) results.Series, j placement.JobPlan, node int) share {
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
func seenShare(counter func(metric, of string) results.Series, j placement.JobPlan, node int) (share, bool) {
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
