package deployment

import (
	"math"
	"sync"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// localJob is a job that is all on one host. It sends nothing, so it has no agents:
// one iteration after the other, it computes.
type localJob struct {
	compute    time.Duration // of an iteration; 0: there are none, or all are over at once
	iterations int64         // 0: until stopped
	done       chan struct{}

	mu           sync.Mutex
	timer        *time.Timer
	began, ended time.Time // zero: not yet
}

func newLocalJob(w testbed.Workload, done chan struct{}) *localJob {
	l := &localJob{iterations: w.Iterations, done: done}
	for _, layer := range w.Layers {
		l.compute += layer.Compute
	}
	return l
}

// start begins the first iteration.
func (l *localJob) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began.IsZero() || !l.ended.IsZero() {
		return
	}
	l.began = time.Now()
	if l.iterations > 0 && time.Duration(l.iterations) <= math.MaxInt64/max(l.compute, 1) { // otherwise it outlives us
		l.timer = time.AfterFunc(time.Duration(l.iterations)*l.compute, l.stop)
	}
}

// stop ends the job, in the middle of an iteration if there is one.
func (l *localJob) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended.IsZero() {
		return
	}
	l.ended = time.Now()
	if l.timer != nil {
		l.timer.Stop()
	}
	close(l.done)
}

// summarise adds what the job has done until now.
func (l *localJob) summarise(s *results.JobSummary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Local = true
	if l.began.IsZero() {
		return
	}
	end := l.ended
	if end.IsZero() {
		end = time.Now()
	}
	switch {
	case l.compute > 0:
		s.Iterations = int64(end.Sub(l.began) / l.compute)
		if l.iterations > 0 {
			s.Iterations = min(s.Iterations, l.iterations)
		}
	case !l.ended.IsZero():
		s.Iterations = l.iterations
	}
	s.JCT = (time.Duration(s.Iterations) * l.compute).Seconds()
}
