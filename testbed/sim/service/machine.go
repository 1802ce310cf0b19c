package service

import (
	"slices"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
)

// machine is an Aggregator, or a static server: a NIC and one core.
type machine struct {
	engine   *engine
	in, out  link
	foreign  foreign
	to       map[*machine]*flow // copies of tensors
	tensors  int                // that it has
	coming   int                // that it has or is to have, and that are to stay
	copying  int                // that have left but are still being copied
	released bool
	closed   bool
	use      Machine

	cycle   time.Duration // as planned; 0: first come first served
	slots   *paramservice.Slots
	origin  time.Duration // of slots
	index   map[request]int
	of      []request // by index
	waiting []*work   // in order of arrival
	running *work
	since   time.Duration
	version int // of the event that ends what runs
}

// request is whose turn it may be.
type request struct {
	job    *job
	tensor int
}

// work is a request that waits or is served.
type work struct {
	request
	left time.Duration
	task int // in slots
}

func (e *engine) open() *machine {
	m := &machine{engine: e, in: link{rate: e.Rate}, out: link{rate: e.Rate}, to: map[*machine]*flow{}, use: Machine{From: e.now}}
	e.all = append(e.all, m)
	e.here++
	return m
}

// drained gives a released machine back when nothing is on it any more.
func (m *machine) drained() {
	if m.closed || !m.released || m.tensors > 0 || m.copying > 0 {
		return
	}
	m.closed, m.use.To = true, m.engine.now
	m.engine.here--
	m.engine.count()
	idle := map[*flow]bool{}
	for _, f := range m.to {
		idle[f] = true
	}
	for _, j := range m.engine.jobs {
		if pair := j.flows[m]; pair != nil {
			idle[pair[0]], idle[pair[1]] = true, true
			delete(j.flows, m)
		}
	}
	m.engine.net.remove(func(f *flow) bool { return idle[f] || f.endless && f.uses[0].link == &m.out })
}

// copies is the flow of tensors to another machine.
func (m *machine) copies(to *machine) *flow {
	if m.to[to] == nil {
		m.to[to] = m.engine.net.add(&flow{uses: []use{{&m.out, 1}, {&to.in, 1}}, foreign: &m.foreign, weight: 1})
	}
	return m.to[to]
}

// plan lays out the cycle anew, with all tensors that are here or are to come. Where they do not
// fit, as some have not left yet, it is first come first served for the time being.
func (m *machine) plan() {
	if m.closed {
		return
	}
	m.settle()
	m.slots, m.index, m.of = nil, nil, nil
	defer m.next()
	if m.cycle == 0 {
		return
	}
	cycle := m.cycle
	var slots []paramservice.Slot
	m.index = map[request]int{}
	for _, j := range m.engine.jobs {
		if j.gone || !j.out.Started || !j.known {
			continue
		}
		d := j.profile / time.Duration(m.engine.Profile-1)
		for i := range j.tensors {
			if t := &j.tensors[i]; t.at == m || t.target == m {
				r := request{j, i}
				m.index[r] = len(slots)
				m.of = append(m.of, r)
				slots = append(slots, paramservice.Slot{Iteration: d, Exec: j.tasks[i]})
				cycle = max(cycle, d)
			}
		}
	}
	s, err := paramservice.NewSlots(cycle, slots)
	if err != nil {
		return
	}
	for _, w := range m.waiting {
		if _, ok := m.index[w.request]; !ok {
			return // somebody who is not profiled yet
		}
	}
	m.slots, m.origin = s, m.engine.now
	for _, w := range m.waiting {
		w.task = m.index[w.request]
		spent := w.job.tasks[w.tensor] - w.left
		m.slots.Arrive(0, w.task)
		m.slots.Ran(0, w.task, spent)
	}
}

// request is a tensor all gradients of which are there.
func (m *machine) request(j *job, i int) {
	m.settle()
	w := &work{request: request{j, i}, left: j.tasks[i]}
	m.waiting = append(m.waiting, w)
	if m.slots != nil {
		task, ok := m.index[w.request]
		if ok {
			w.task = task
			var turn paramservice.Turn
			if turn, _, ok = m.slots.Arrive(m.engine.now-m.origin, task); ok {
				j.out.Turns[turn]++
			}
		}
		if !ok { // it is on its way elsewhere
			m.slots = nil
		}
	}
	m.next()
}

// settle credits what runs with the time until now.
func (m *machine) settle() {
	w := m.running
	if w == nil {
		return
	}
	now := m.engine.now
	spent := now - m.since
	w.left -= spent
	m.use.Busy += spent
	m.use.worked(m.since, now, m.engine.Usage)
	w.job.out.CPU += spent
	m.since = now
	if m.slots != nil {
		m.slots.Ran(now-m.origin, w.task, spent)
	}
	if w.left <= 0 {
		m.running = nil
		m.waiting = slices.DeleteFunc(m.waiting, func(o *work) bool { return o == w })
		m.engine.at(now, func() { w.job.served(w.tensor) })
	}
}

// next gives the core to whose turn it is.
func (m *machine) next() {
	m.version++
	m.running = nil
	if len(m.waiting) == 0 {
		return
	}
	now := m.engine.now
	w, until := m.waiting[0], now+m.waiting[0].left
	if m.slots != nil {
		task, by, ok := m.slots.Next(now - m.origin)
		if i := slices.IndexFunc(m.waiting, func(w *work) bool { return w.task == task }); ok && i >= 0 {
			w, until = m.waiting[i], min(m.origin+by, now+m.waiting[i].left)
		}
	}
	m.running, m.since = w, now
	v := m.version
	m.engine.at(until, func() {
		if m.version == v {
			m.settle()
			m.next()
		}
	})
}
