package pmaster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
)

// sorted are the values of a map by their keys.
func sorted[K cmp.Ordered, V any](all map[K]V) []V {
	out := make([]V, 0, len(all))
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[k])
	}
	return out
}

// restore begins to plan with what has come back, if all that has is known.
func (m *Master) restore() {
	for _, j := range sorted(m.jobs) {
		for _, w := range j.workers {
			if !w.conn.live() {
				m.doom(j, fmt.Sprintf("worker %d has not come back to pMaster of epoch %d", w.rank, m.Epoch()))
			}
		}
	}
	m.endDoomed()
	for _, j := range m.jobs {
		if slices.ContainsFunc(j.tensors, func(t *tensor) bool { return !t.learned }) {
			return // soon
		}
	}
	var kept []paramservice.Kept
	for _, j := range sorted(m.jobs) {
		k := paramservice.Kept{Name: j.Name, Servers: j.servers()}
		for _, t := range j.tensors {
			at, _, _ := t.m.At()
			if m.aggs[at] == nil || t.orphan {
				at = paramservice.None
			}
			k.At = append(k.At, int(at))
		}
		if p := j.measured; p != nil {
			k.Profile = &paramservice.Job{Iteration: p.Iteration, Tasks: p.Tasks}
			k.Reverts = p.Reverts
		}
		kept = append(kept, k)
	}
	var ids []int
	for id := range m.aggs {
		ids = append(ids, int(id))
	}
	change, stranded, err := m.plan.Restore(kept, ids)
	if err != nil {
		m.emit(Event{Event: "error", Why: fmt.Sprintf("take over: %v", err)})
		for _, j := range m.jobs {
			m.doom(j, fmt.Sprintf("pMaster could not take it over: %v", err))
		}
		for _, a := range m.aggs {
			a.released = true
		}
	}
	m.restoring = false
	for _, name := range stranded {
		m.doom(m.names[name], "no room for what it had on Aggregators that are gone")
	}
	m.counted(Event{Event: "restored", Epoch: m.Epoch(), Seconds: time.Since(m.began).Seconds()})
	m.apply(change)
	for _, j := range m.jobs {
		m.dirty[j] = true
		for _, t := range j.tensors {
			at, _, _ := t.m.At()
			for _, id := range append(slices.Clone(t.from), at) {
				if m.aggs[id] == nil {
					m.drive(t, func(o *output) { t.m.Down(id, o) })
				}
			}
		}
	}
	close(m.restored)
}
