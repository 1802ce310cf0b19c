// Package handover says where packets of a job pass from who sent them to who counts them next,
// and by which counters of package collectors both ends tell: what one has sent, the other has
// received, or something between them has lost it. Of rings nobody but hosts counts packets.
package handover

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/placement"
)

// Counter is a counter as samples name it.
type Counter struct{ Metric, Of string }

// Role is what an End is to the job.
type Role uint8

const (
	Worker Role = iota
	Switch
	PS
)

// End is who counts.
type End struct {
	Role Role
	Name string // of a worker "A/0", of a switch "tor1", of a PS its host
	Node string // of the topology: its host, or the switch
	Counter
}

// Hop is one place. What ends of a kind send or receive is counted together, but where Each is set.
type Hop struct {
	Sent, Received []End
	// Each says that every end of Received gets every packet that was sent, but for answers.
	Each bool
	// Answers counts those packets of Sent that only one of Received got, who had asked for it
	// again; Repeated counts at least as many. Both are empty where there are none.
	Answers, Repeated Counter
	// Idle counts what arrived and is not in Received: of a job that has no memory, or no turn.
	Idle []Counter
	// Inside says that both ends are one process or switch, so that no cable lies between them:
	// what arrived there, and what it says became of it, as its counters of Received add it up.
	Inside bool
}

// Receivers are the ends of Received that are counted together: all of them, or each by itself.
func (h *Hop) Receivers() (all [][]End) {
	if !h.Each {
		return [][]End{h.Received}
	}
	for _, e := range h.Received {
		all = append(all, []End{e})
	}
	return all
}

// From is who sends, for a message; Inside, the counters of what became of it.
func (h *Hop) From() string {
	if h.Inside {
		return metrics(h.Received)
	}
	return names(h.Sent)
}

// To is who of Received is meant, for a message.
func (h *Hop) To(received []End) string { return names(received) }

// names lists ends, for a message.
func names(ends []End) string {
	var all, workers []string
	for i, e := range ends {
		if slices.ContainsFunc(ends[:i], func(o End) bool { return o.Role == e.Role && o.Name == e.Name }) {
			continue // another counter of it
		}
		switch e.Role {
		case Worker:
			workers = append(workers, e.Name)
		case Switch:
			all = append(all, "switch "+e.Name)
		case PS:
			all = append(all, "its PS on host "+e.Name)
		}
	}
	switch {
	case len(workers) == 1:
		all = slices.Insert(all, 0, "worker "+workers[0])
	case len(workers) > 1:
		all = slices.Insert(all, 0, "workers "+strings.Join(workers, ", "))
	}
	return strings.Join(all, " and ")
}

// metrics lists what ends count, for a message.
func metrics(ends []End) string {
	var all []string
	for _, e := range ends {
		all = append(all, e.Metric)
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " and " + all[last]
}

// Hops are those of a job, leaves first; whole says that every packet of the job passes some. Switches that only forward it count, too:
// an answer that such a one is asked for goes to all below it.
func Hops(j placement.JobPlan) (hops []Hop, whole bool) {
	if j.Local() || j.Collective == placement.Ring {
		return nil, j.Local()
	}
	workers := func(ranks uint64, metric string) (all []End) {
		for _, w := range j.Workers {
			if name := fmt.Sprintf("%s/%d", j.Name, w.Rank); ranks>>w.Rank&1 == 1 {
				all = append(all, End{Worker, name, w.Host, Counter{metric, name}})
			}
		}
		return all
	}
	switches := func(names []string, metric string) (all []End) {
		for _, s := range names {
			all = append(all, End{Switch, s, s, Counter{metric, j.Name + "@" + s}})
		}
		return all
	}
	ps := func(metric string) []End { return []End{{PS, j.PS, j.PS, Counter{metric, j.Name + "/ps"}}} }
	const sent, received = "worker_tx_packets", "worker_rx_packets"
	everyone := uint64(1)<<len(j.Workers) - 1
	// within is what each of these says of all that it got.
	within := func(ends []End, metric string, became ...string) {
		for _, e := range ends {
			h := Hop{Sent: []End{e}, Inside: true}
			h.Sent[0].Metric = metric
			for _, m := range became {
				e.Metric = m
				h.Received = append(h.Received, e)
			}
			hops = append(hops, h)
		}
	}
	within(workers(everyone, received), received, "worker_psns", "worker_duplicates", "worker_stray")
	unicast := j.Collective == placement.PS // its PS sends each worker packets of its own, past all switches
	tree := j.Tree
	if unicast || !slices.ContainsFunc(tree, func(n placement.TreeNode) bool { return n.Aggregate }) {
		tree = nil // nothing hangs on switches
	}
	var roots []string
	free := everyone // workers whose packets no switch looks at
	for _, n := range tree {
		free &^= n.Expect
		direct := n.Expect
		var below []string
		for _, c := range tree {
			if c.Parent == n.Switch {
				below = append(below, c.Switch)
				direct &^= c.Expect
			}
		}
		of := j.Name + "@" + n.Switch
		here := func(metric string) []End { return switches([]string{n.Switch}, metric) }
		hops = append(hops, Hop{
			Sent: append(workers(direct, sent), switches(below, "job_out_packets")...), Received: here("job_in_packets"),
			Idle: []Counter{{"job_dropped_packets", of}, {"job_inactive_packets", of}},
		})
		down := Hop{
			Sent: here("job_results_packets"), Each: true,
			Received: append(workers(direct, received), switches(below, "job_results_packets")...),
		}
		if n.Parent == "" {
			roots = append(roots, n.Switch)
			if j.PS == "" {
				down.Sent = here("job_out_packets")
				down.Answers, down.Repeated = Counter{"job_answers_packets", of}, Counter{"job_duplicates_packets", of}
			}
		}
		hops = append(hops, down)
		within(here(""), "job_in_packets", "job_aggregated_packets", "job_fallback_packets", "job_duplicates_packets")
	}
	if j.PS == "" {
		return hops, true
	}
	within(ps(received), received, "worker_arrived", "worker_stray")
	return append(hops,
		Hop{Sent: append(workers(free, sent), switches(roots, "job_out_packets")...), Received: ps(received)},
		Hop{Sent: ps(sent), Each: !unicast, Received: append(workers(free, received), switches(roots, "job_results_packets")...)},
	), unicast || free != everyone
}
