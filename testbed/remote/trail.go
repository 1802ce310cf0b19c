package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/handover"
	"github.com/inabench/inabench/testbed/agent"
)

// trail is what was counted of a job where its packets are handed over, by counter, at one time.
type trail map[handover.Counter]int64

// follow reads a job's trail: what its agents said last, or say when they are asked because they have
// said nothing yet, and what switches say now. Who does not answer by then is left out. Nobody else may ask
// the agents of a job that has not started.
func (d *deployment) follow(ctx context.Context, j *runningJob, by time.Time) trail {
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	t := trail{}
	for _, a := range j.agents {
		s := a.stats()
		if s == nil {
			if ev, err := a.ask(ctx, agent.Command{Cmd: "count"}); err == nil {
				s = ev.Stats
			}
		}
		if s == nil {
			continue
		}
		t[handover.Counter{Metric: "worker_tx_packets", Of: a.of}] = s.PacketsSent
		t[handover.Counter{Metric: "worker_rx_packets", Of: a.of}] = s.PacketsReceived
		t[handover.Counter{Metric: "worker_arrived", Of: a.of}] = s.Arrived
		t[handover.Counter{Metric: "worker_stray", Of: a.of}] = s.Stray
	}
	for _, n := range j.plan.Tree {
		sw := d.tb.switches[n.Switch]
		if !n.Aggregate || sw == nil {
			continue
		}
		names := slices.DeleteFunc([]string{"job_in", "job_out", "job_results", "job_dropped", "job_inactive"}, func(name string) bool {
			return !slices.Contains(sw.Counters(), name)
		})
		got, err := sw.ReadCounters(ctx, names, []int{int(j.plan.ID)})
		if err != nil {
			continue
		}
		for _, v := range got {
			t[handover.Counter{Metric: v.Name + "_packets", Of: j.plan.Name + "@" + n.Switch}] = v.Packets
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
		receivers := [][]handover.End{h.Received}
		if h.Each {
			receivers = nil
			for _, e := range h.Received {
				receivers = append(receivers, []handover.End{e})
			}
		}
		for _, r := range receivers {
			got, told := since(r...)
			if !ok || !told || !astray(sent, got) {
				continue
			}
			to := handover.Names(r)
			if h.Inside {
				to = h.To()
			}
			count := fmt.Sprint(got)
			if got <= 0 {
				count = "none"
			}
			all = append(all, fmt.Sprintf("of %d packets that %s sent, %s received %s", sent, h.From(), to, count))
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
