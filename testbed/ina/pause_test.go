package ina

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// controller changes the memory of synchronous jobs while they run, the way that an
// agent's commands do it: with delays in which everything goes on.
type controller struct {
	w    *world
	rng  *rand.Rand
	jobs []*pausable
}

// pausable is a synchronous job with the switches that sum for it.
type pausable struct {
	all     []*station
	entries map[*node]JobEntry
	window  int // 0: at a halt
}

// soon does something to each station at a time of its own, and then calls done.
func (c *controller) soon(all []*station, do func(*station), done func()) {
	left := len(all)
	for _, s := range all {
		c.w.at(c.w.now+time.Duration(c.rng.IntN(300))*time.Microsecond, func() {
			do(s)
			s.pump()
			if left--; left == 0 {
				done()
			}
		})
	}
}

// pause has every worker of j finish at the same PSN, and then calls done.
func (c *controller) pause(j *pausable, done func()) {
	var at uint64
	c.soon(j.all, func(s *station) { at = max(at, s.k.Hold()) }, func() {
		c.soon(j.all, func(s *station) { s.k.Pause(at, c.w.now) }, func() { c.await(j, done) })
	})
}

func (c *controller) await(j *pausable, done func()) {
	for _, s := range j.all {
		if !s.k.Paused() {
			c.w.at(c.w.now+50*time.Microsecond, func() { c.await(j, done) })
			return
		}
	}
	done()
}

// set gives j the region of two windows from base on, in all of its switches; window
// 0 takes what it has.
func (j *pausable) set(t *testing.T, base uint32, window int) {
	t.Helper()
	for n, e := range j.entries {
		e.Base, e.Size = base, uint32(2*window)
		if window > 0 {
			e.Window = uint32(window)
		}
		if err := n.SetJob(e); err != nil {
			t.Fatal(err)
		}
	}
	j.window = window
}

// Two synchronous jobs pass one memory to and fro: of different size each time,
// sometimes all of it to one. Every sum stays exact and every job ends.
func TestMemoryChangesHandsWhileJobsRun(t *testing.T) {
	const psns, window, memory = 2000, 16, 48
	for _, levels := range []int{1, 2} {
		for _, d := range []trouble{{}, {.05, .02, .2}, {.2, .1, .5}} {
			t.Run(fmt.Sprintf("levels=%d/%v", levels, d), func(t *testing.T) {
				w := newWorld(10 * time.Microsecond)
				root := w.newSwitch(memory)
				var leaves []*node
				if levels == 2 {
					leaves = []*node{w.newSwitch(memory), w.newSwitch(memory)}
				}
				w.loss, w.dup, w.reorder = d.loss, d.dup, d.reorder
				c := controller{w: w, rng: rand.New(rand.NewPCG(*seed, 2))}
				for id := range uint16(2) {
					e := JobEntry{Job: 8 + id, Epoch: 7, Mode: Synchronous, Base: uint32(id) * 12, Size: 12, Window: 6}
					all, _ := stations(t, w, e, root, leaves, WorkerConfig{Job: e.Job, Epoch: 7, Workers: 4, Lanes: 8, Window: window, Region: 2 * window,
						RTO: 500 * time.Microsecond, Seed: *seed})
					j := &pausable{all: all, entries: map[*node]JobEntry{}, window: 6}
					for _, n := range w.switches {
						j.entries[n], _ = n.Job(e.Job)
					}
					for _, s := range all {
						s.k.Resume(j.window, 0)
						s.k.Allow(psns, 0)
						s.pump()
					}
					c.jobs = append(c.jobs, j)
				}
				changes := 0
				var change func()
				change = func() {
					if c.jobs[0].done(psns) && c.jobs[1].done(psns) {
						return
					}
					changes++
					waiting := len(c.jobs)
					for _, j := range c.jobs {
						c.pause(j, func() {
							if waiting--; waiting > 0 {
								return
							}
							first := c.rng.IntN(4) * memory / 2 / 4 // windows of the first job: 0 to 18
							for _, j := range c.jobs {
								j.set(t, 0, 0)
							}
							c.jobs[0].set(t, 0, min(first, window))
							c.jobs[1].set(t, 2*uint32(min(first, window)), min(memory/2-first, window))
							for _, j := range c.jobs {
								if j.window > 0 {
									c.soon(j.all, func(s *station) { s.k.Resume(j.window, w.now) }, func() {})
								}
							}
							w.at(w.now+500*time.Microsecond, change)
						})
					}
				}
				w.at(time.Millisecond, change)
				w.run(time.Minute)
				for i, j := range c.jobs {
					for r, s := range j.all {
						if st := s.k.Stats(); st.Results != psns || st.Checked != 8*psns || st.Wrong != 0 {
							t.Errorf("seed %d, job %d, rank %d: %d of %d results, %d values checked, %d wrong", *seed, i, r, st.Results, psns, st.Checked, st.Wrong)
						}
					}
				}
				if changes < 3 {
					t.Errorf("memory changed hands %d times", changes)
				}
				t.Logf("memory changed hands %d times", changes)
			})
		}
	}
}

func (j *pausable) done(psns int64) bool {
	for _, s := range j.all {
		if s.k.Stats().Results < psns {
			return false
		}
	}
	return true
}

// Why a synchronous job pauses first: the switch has the only copy of a result, and
// when it is gone a worker that lacks it asks for what the others do not send again.
func TestSetJobForgetsKeptResults(t *testing.T) {
	for _, paused := range []bool{false, true} {
		t.Run(fmt.Sprintf("paused=%t", paused), func(t *testing.T) {
			w := newWorld(10 * time.Microsecond)
			root := w.newSwitch(64)
			e := JobEntry{Job: 9, Epoch: 7, Mode: Synchronous, Size: 16, Window: 8}
			all, _ := stations(t, w, e, root, nil, WorkerConfig{Job: 9, Epoch: 7, Workers: 2, Lanes: 4, Window: 8,
				RTO: 500 * time.Microsecond, Seed: *seed})
			take := w.worker[all[1].port]
			w.worker[all[1].port] = func(b []byte) {
				if h, _ := ParseHeader(b); h.PSN == 50 {
					w.worker[all[1].port] = take // this one is lost, the next is not
					return
				}
				take(b)
			}
			for _, s := range all {
				s.k.Allow(200, 0)
				s.pump()
			}
			for !all[0].has[50] {
				w.run(w.now + time.Microsecond)
			}
			job := &pausable{all: all, entries: map[*node]JobEntry{}}
			job.entries[root], _ = root.Job(9)
			change := func() { job.set(t, 32, 8) }
			if c := (controller{w: w, rng: rand.New(rand.NewPCG(*seed, 3))}); paused {
				c.pause(job, func() {
					change()
					c.soon(all, func(s *station) { s.k.Resume(8, w.now) }, func() {})
				})
			} else {
				change()
			}
			w.run(w.now + 10*time.Second)
			if got := job.done(200); got != paused {
				t.Errorf("job done: %v; rank 1 has the result: %v", got, all[1].has[50])
			}
		})
	}
}

// A worker that is stopped in a pause ends there, like all others.
func TestStopWherePaused(t *testing.T) {
	for _, message := range []int64{0, 37} {
		w := newWorld(10 * time.Microsecond)
		w.loss, w.dup, w.reorder = .1, .05, .3
		e := JobEntry{Job: 9, Epoch: 7, Mode: Statistical, Addressing: Pool, Size: 20, Window: 4096}
		all, _ := stations(t, w, e, w.newSwitch(64), nil, WorkerConfig{Job: 9, Epoch: 7, Workers: 3, Lanes: 4, Window: 4096,
			RTO: 500 * time.Microsecond, Seed: *seed})
		for _, s := range all {
			s.onIdle = func() { s.k.Allow(message, w.now) }
			s.k.Allow(Startup, 0)
			if message == 0 {
				s.k.Allow(Endless, 0)
			}
			s.pump()
		}
		c := controller{w: w, rng: rand.New(rand.NewPCG(*seed, 4))}
		var at uint64
		w.at(5*time.Millisecond, func() {
			c.soon(all, func(s *station) { at = max(at, s.k.Hold()) }, func() {
				c.soon(all, func(s *station) { s.k.Pause(at, w.now); s.k.Stop() }, func() {})
			})
		})
		w.run(10 * time.Second)
		for r, s := range all {
			if n, _ := s.k.Outstanding(); !s.k.Stopped() || n != 0 || s.k.Stats().Results != int64(at) || s.k.Stats().Wrong != 0 {
				t.Errorf("message %d, seed %d: rank %d stopped %v at PSN %d of %d, %d outstanding", message, *seed, r, s.k.Stopped(), s.k.Stats().Results, at, n)
			}
		}
	}
}
