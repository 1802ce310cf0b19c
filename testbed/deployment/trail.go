package deployment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/handover"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
)

// trail is what was counted of a job where its packets are handed over, by counter, at one time.
type trail map[handover.Counter]int64

// follow reads a job's trail: what its agents said last, or workers say when they are asked because they have
// said nothing yet, and what switches say now. Who does not answer by then is left out. Nobody else may ask
// the agents of a job that has not started.
func (d *deployment) follow(ctx context.Context, j *runningJob, by time.Time) trail {
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	t := trail{}
	keep := func(got []results.Sample) {
		for _, s := range got {
			t[handover.Counter{Metric: s.Metric, Of: s.Of}] = int64(s.Value)
		}
	}
	for i, a := range j.agents {
		s := a.stats()
		if s == nil && j.configs[i].Role == "worker" { // others do not know the question
			if ev, err := a.Ask(ctx, agent.Command{Cmd: "count"}); err == nil {
				s = ev.Stats
			}
		}
		if s == nil {
			continue
		}
		keep(collectors.WorkerSamples(0, a.Name(), a.of, *s))
	}
	for _, n := range j.plan.Tree {
		c := d.tb.JobCounters(n.Switch, int(j.plan.ID), j.plan.Name)
		if c == nil {
			continue
		}
		if got, err := c.Collect(ctx); err == nil {
			keep(got)
		}
	}
	return t
}

// Of what somebody has sent so many packets have to be missing, and such a part, before that is
// where a job's packets get lost: not all is read at one time. Where nothing arrives, two do.
const (
	lostPackets = 3
	lostPart    = 0.1
)

func astray(sent, got int64) bool {
	return got <= 0 && sent >= 2 || float64(sent-got) >= max(lostPackets, lostPart*float64(sent))
}

// lost says at which hops of a job packets got lost since before, leaves first.
func (t trail) lost(before trail, plan placement.JobPlan) (all []string) {
	since := func(ends ...handover.End) (n int64, ok bool) {
		for _, e := range ends {
			was, before := before[e.Counter]
			is, now := t[e.Counter]
			if !before || !now {
				return 0, false
			}
			n += is - was
		}
		return n, true
	}
	hops, _ := handover.Hops(plan)
	for _, h := range hops {
		sent, ok := since(h.Sent...)
		for _, c := range h.Idle {
			n, _ := since(handover.End{Counter: c})
			sent -= n
		}
		for _, r := range h.Receivers() {
			got, told := since(r...)
			if !ok || !told || !astray(sent, got) {
				continue
			}
			count := fmt.Sprint(got)
			if got <= 0 {
				count = "none"
			}
			if h.Inside {
				all = append(all, fmt.Sprintf("of %d packets that arrived at %s, %s tell of %s", sent, h.To(r), h.From(), count))
				continue
			}
			all = append(all, fmt.Sprintf("of %d packets that %s sent, %s received %s", sent, h.From(), h.To(r), count))
		}
	}
	return all
}

// astray is lost as the end of a message, and where to look; empty: nothing got lost, as far as is known.
func (t trail) astray(before trail, plan placement.JobPlan) (what, hint string) {
	all := t.lost(before, plan)
	if len(all) == 0 {
		return "", ""
	}
	return "; " + strings.Join(all, ", "), "look between those two: what does the switch there have of the job, and does anybody else program it? inabench doctor looks"
}
