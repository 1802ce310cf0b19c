package study

import (
	"fmt"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/results"
)

// Machines are an inventory's hosts that have GPUs, and what each of these does by a plan.
// Jobs that were there before are somebody else's: background.
func Machines(inv *inventory.Inventory, plan *placement.Plan, before func(job string) bool) []results.Machine {
	var out []results.Machine
	at := map[string]int{}
	for i := range inv.Hosts {
		h := &inv.Hosts[i]
		if h.GPUs < 1 {
			continue
		}
		m := results.Machine{Name: h.Name, GPUs: make([]results.Cell, 0, h.GPUs)}
		if len(h.NICs) > 0 {
			m.Rack = h.NICs[0].Switch
		}
		at[h.Name] = len(out)
		out = append(out, m)
	}
	put := func(host string, c results.Cell) {
		if i, ok := at[host]; ok && len(out[i].GPUs) < cap(out[i].GPUs) {
			out[i].GPUs = append(out[i].GPUs, c)
		}
	}
	for _, background := range []bool{true, false} {
		for i := range plan.Jobs {
			j := &plan.Jobs[i]
			if before(j.Name) != background {
				continue
			}
			for rank, host := range j.Hosts() {
				if background {
					put(host, results.Cell{Use: results.Background, Job: j.Name})
				} else {
					put(host, results.Cell{Use: results.Worker, Job: j.Name, Rank: rank})
				}
			}
			for _, s := range j.Spare {
				for range s.GPUs {
					put(s.Host, results.Cell{Use: results.Spare, Job: j.Name})
				}
			}
		}
	}
	for i := range out {
		out[i].GPUs = out[i].GPUs[:cap(out[i].GPUs)]
	}
	return out
}

// There says which of the jobs were there before others were placed: those that name their
// hosts, if some do not.
func There(jobs []placement.Job) func(job string) bool {
	named := map[string]bool{}
	for i := range jobs {
		if len(jobs[i].Hosts) > 0 {
			named[jobs[i].Name] = true
		}
	}
	if len(named) == len(jobs) {
		clear(named)
	}
	return func(job string) bool { return named[job] }
}

// Crossing is how much a job's GPUs send each other between machines if they reduce by
// halving and doubling, as Titan counts it: both ways of an exchange once. Text is that
// with K for the size of the gradient, "3/2 K".
func Crossing(j *placement.JobPlan) (gradients float64, text string) {
	hosts := j.Hosts()
	if len(hosts) == 0 {
		return 0, "0"
	}
	number := map[string]int{}
	at := make([]int, len(hosts))
	for rank, h := range hosts {
		if _, ok := number[h]; !ok {
			number[h] = len(number)
		}
		at[rank] = number[h]
	}
	if len(number) == 1 {
		return 0, "0"
	}
	p := collectives.HalvingDoubling(len(hosts)).Pattern()
	cross := p.Cross(at)
	return float64(cross) / float64(p.Parts), InParts(cross, p.Parts)
}

// InParts writes n of so many parts of K.
func InParts(n, of int) string {
	if of < 1 || n == 0 {
		return "0"
	}
	a, b := n, of
	for b != 0 {
		a, b = b, a%b
	}
	n, of = n/a, of/a
	switch {
	case of == 1 && n == 1:
		return "K"
	case of == 1:
		return fmt.Sprintf("%d K", n)
	case of > 16 || n > 99:
		return fmt.Sprintf("%.3g K", float64(n)/float64(of))
	}
	return fmt.Sprintf("%d/%d K", n, of)
}
