package pmaster

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// workerReport takes what a worker has seen. What it saw while tensors moved counts for nothing.
func (m *Master) workerReport(w *worker, r *control.WorkerReport) {
	j := w.job
	w.total += int64(r.Iterations)
	w.totalSpent += r.Spent
	j.iterations = w.total
	for _, o := range j.workers {
		j.iterations = min(j.iterations, o.total)
	}
	if !m.calm(j) {
		j.forget()
		return
	}
	if !w.warm { // it began before that
		w.warm = true
		return
	}
	if w.transfers == nil {
		w.transfers = map[int32]control.Transfer{}
	}
	w.iterations += r.Iterations
	w.spent += r.Spent
	for _, t := range r.Transfers {
		sum := w.transfers[t.Aggregator]
		sum.Exchanges += t.Exchanges
		sum.Bytes += t.Bytes
		sum.Spent += t.Spent
		w.transfers[t.Aggregator] = sum
	}
	m.judge(j)
}

// aggregatorReport takes what an Aggregator has done.
func (m *Master) aggregatorReport(a *aggregator, r *control.AggregatorReport) {
	a.span += r.Span
	a.busy += r.Busy
	a.cpu += r.CPU
	judge := map[*job]bool{}
	for _, t := range r.Tensors {
		j := m.jobs[t.Key.Job]
		if j == nil || int64(t.Key.Tensor) >= int64(len(j.tensors)) {
			continue
		}
		mine := j.tensors[t.Key.Tensor]
		if t.NaNs > 0 {
			mine.nans += t.NaNs
			j.nans += t.NaNs
			e := j.ref("nan")
			e.Tensor, e.NaNs, e.Ranks, e.Aggregator = new(int(t.Key.Tensor)), mine.nans, t.Ranks, &a.id
			m.emit(e)
		}
		if j.measured == nil && m.calm(j) {
			mine.runs += t.Runs
			mine.busy += t.Busy
			judge[j] = true
		}
	}
	for j := range judge {
		m.judge(j)
	}
}

// forget throws away what was reported of a job, because something has changed.
func (j *job) forget() {
	for _, w := range j.workers {
		w.warm, w.iterations, w.spent = false, 0, 0
		clear(w.transfers)
	}
	for _, t := range j.tensors {
		t.runs, t.busy = 0, 0
	}
}

// seen is what all workers of a job have reported: over how many iterations, how long one took the
// slowest worker, and the transfers of each.
func (j *job) seen() (iterations int, iteration time.Duration, transfers []map[int32]control.Transfer) {
	iterations = 1 << 30
	for _, w := range j.workers {
		if w.iterations == 0 {
			return 0, 0, nil
		}
		iterations = min(iterations, w.iterations)
		iteration = max(iteration, w.spent/time.Duration(w.iterations))
		transfers = append(transfers, w.transfers)
	}
	return iterations, iteration, transfers
}

// transfer is how long a byte took, to Aggregators and back, in ns; 0: there was none.
func transfer(transfers []map[int32]control.Transfer) float64 {
	var sum control.Transfer
	for _, w := range transfers {
		for _, t := range w {
			sum.Bytes, sum.Spent = sum.Bytes+t.Bytes, sum.Spent+t.Spent
		}
	}
	if sum.Bytes == 0 {
		return 0
	}
	return float64(sum.Spent) / float64(sum.Bytes)
}

// slow is how many times as long as in the profile transfers with Aggregators take, for at least half of
// the workers: what only one of them sees is on its side.
//
// A profile is of all tensors, while an Aggregator may have small ones, of which a byte takes longer, or
// large ones, of which each takes longer. So both a byte and a tensor have to take that long.
//
// Jobs that share an Aggregator share its link, too. By how much they slow each other down there is no
// interference, and taken off: that is for the planner to mend.
func (m *Master) slow(j *job, transfers []map[int32]control.Transfer) map[int]float64 {
	var bytes int64
	for _, t := range j.Tensors {
		bytes += t.Bytes()
	}
	mean := 2 * float64(bytes) / float64(len(j.Tensors)) // there and back
	seen := map[int32][]float64{}
	for _, w := range transfers {
		for id, t := range w {
			if t.Bytes > 0 && t.Exchanges > 0 && j.measured.Transfer > 0 {
				times := float64(t.Spent) / float64(t.Bytes) / j.measured.Transfer
				seen[id] = append(seen[id], times*min(1, float64(t.Bytes)/float64(t.Exchanges)/mean))
			}
		}
	}
	slow := map[int]float64{}
	for id, times := range seen {
		slices.Sort(times)
		slow[int(id)] = times[(len(times)-1)/2] / m.crowd(j, id)
	}
	return slow
}

// crowd is how many workers exchange tensors with an Aggregator that a job is at, over its own.
func (m *Master) crowd(j *job, id int32) float64 {
	workers := j.Workers
	for _, o := range m.jobs {
		if o != j && slices.ContainsFunc(o.tensors, func(t *tensor) bool { return t.placed && t.at == id }) {
			workers += o.Workers
		}
	}
	return float64(workers) / float64(j.Workers)
}

// judge ends a job's profiling, or tells the planner how it is doing, when all have reported.
func (m *Master) judge(j *job) {
	iterations, iteration, transfers := j.seen()
	if iterations == 0 || iteration == 0 {
		return
	}
	if j.measured == nil {
		m.profiled(j, iterations, iteration, transfer(transfers))
		return
	}
	o := paramservice.Observation{
		Now: time.Since(m.began), Iterations: iterations, Spent: time.Duration(iterations) * iteration, Slow: m.slow(j, transfers),
	}
	if m.cfg.Observed != nil {
		m.cfg.Observed(j.Name, o)
	}
	for _, w := range j.workers {
		w.iterations, w.spent = 0, 0
		clear(w.transfers)
	}
	out, err := m.plan.Observe(j.Name, o)
	if err != nil {
		m.emit(Event{Event: "error", Job: j.ID, Name: j.Name, Why: err.Error()})
		return
	}
	if out.Verdict == paramservice.Watching {
		return
	}
	e := j.ref("verdict")
	e.Verdict, e.Loss = out.Verdict.String(), m.loss(j.Name)
	e.Speed, e.Interfered = float64(j.measured.Iteration)/float64(iteration), out.Interfered
	if out.Verdict == paramservice.Reverted {
		e.Other = out.Job
		if o := m.names[out.Job]; o != nil && o.measured != nil {
			o.measured.Reverts++
			o.remember()
		}
	}
	m.emit(e)
	m.apply(out.Change)
}

// profiled ends a job's profiling if there is enough.
func (m *Master) profiled(j *job, iterations int, iteration time.Duration, transfer float64) {
	if iterations < m.cfg.Profile {
		return
	}
	measured := &wire.Measured{Iteration: iteration, Transfer: transfer}
	for _, t := range j.tensors {
		if t.runs == 0 {
			return
		}
		measured.Tasks = append(measured.Tasks, min(t.busy/time.Duration(t.runs), iteration))
	}
	change, err := m.plan.Profiled(j.Name, measured.Iteration, measured.Tasks)
	if err != nil {
		m.doom(j, fmt.Sprintf("profile: %v", err))
		return
	}
	j.measured = measured
	j.remember()
	j.forget()
	p := paramservice.Job{Iteration: measured.Iteration, Tasks: measured.Tasks}
	e := j.ref("profiled")
	e.Seconds, e.Cores, e.Loss = iteration.Seconds(), p.Demand(), m.loss(j.Name)
	m.emit(e)
	m.apply(change)
}

// remember has the workers keep the profile for the next pMaster.
func (j *job) remember() {
	for _, w := range j.workers {
		w.conn.remember(j.measured.Encode())
	}
}

// loss is by the model.
func (m *Master) loss(job string) float64 {
	loss := 0.0
	for _, c := range m.plan.Clusters() {
		loss = max(loss, c.Loss(job))
	}
	return loss
}

// Statistics is what there is. Errors are gRPC's.
func (m *Master) Statistics() (*wire.Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, status.Error(codes.Unavailable, ErrClosed.Error())
	}
	out := &wire.Stats{Epoch: m.Epoch()}
	tensors := map[int32]int64{}
	for _, j := range sorted(m.jobs) {
		s := &wire.JobStats{
			Job: wire.EncodeJob(j.Job), State: j.state(m), Iterations: j.iterations, Migrations: int64(j.migrations),
			Recoveries: int64(j.recoveries), Nans: j.nans, Loss: m.loss(j.Name), Profile: j.measured.Encode(),
		}
		for _, w := range j.workers {
			s.Spent = max(s.Spent, int64(w.totalSpent))
		}
		for _, t := range j.tensors {
			at := int32(paramservice.None)
			if t.placed {
				at = t.at
				tensors[at]++
			}
			s.At = append(s.At, at)
		}
		out.Jobs = append(out.Jobs, s)
	}
	planned := map[int32]paramservice.Aggregator{}
	for _, c := range m.plan.Clusters() {
		for _, a := range c.Aggregators() {
			planned[int32(a.ID)] = a
		}
	}
	for _, a := range sorted(m.aggs) {
		p := planned[a.id]
		out.Aggregators = append(out.Aggregators, &wire.AggregatorStats{
			Id: a.id, Address: a.address, State: a.state(), Span: int64(a.span), Busy: int64(a.busy), Cpu: int64(a.cpu),
			Cycle: int64(p.Cycle), Work: int64(p.Work), Tensors: tensors[a.id],
		})
	}
	return out, nil
}

// state is what a job is doing.
func (j *job) state(m *Master) string {
	switch {
	case !j.started:
		return "waiting for workers"
	case !j.trained:
		return "waiting for Aggregators"
	case !m.calm(j):
		return "moving"
	case j.measured == nil:
		return "being profiled"
	}
	return "training"
}

func (a *aggregator) state() string {
	switch {
	case a.life == 0:
		return "starting"
	case !a.conn.live():
		return "silent"
	case a.released:
		return "leaving"
	}
	return "there"
}
