package experiments

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
)

// told is the interval between two progress reports to onlookers.
const told = time.Second

// onlookers writes progress reports into a run's directory, the first a second after the first status. The run does not wait
// for a report and ignores its errors: the measurement matters more.
type onlookers struct {
	every time.Duration // between two reports; 0: told

	mu    sync.Mutex
	now   results.Now
	since time.Time        // when the point that is measured began
	last  time.Time        // when a scene was noted
	pasts map[string]*past // of jobs in it

	stop, ended chan struct{} // nil: nothing was said yet
}

// due says whether it is time for another scene.
func (o *onlookers) due() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.last) >= o.interval()
}

func (o *onlookers) interval() time.Duration { return cmp.Or(o.every, told) }

// tell puts a status and the scene of the point being measured into the report; nil: no scene is known.
func (o *onlookers) tell(dir *results.Dir, s Status, scene *study.Scene) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Done != o.now.Done || s.Point != o.now.Point || s.Stage != o.now.Stage || o.pasts == nil {
		o.now, o.pasts, o.since = results.Now{}, map[string]*past{}, time.Now()
	}
	o.now.Stage, o.now.Point, o.now.Done, o.now.Of, o.now.Until = s.Stage, s.Point, s.Done, s.Of, s.Until
	if scene != nil && time.Since(o.last) >= o.interval() {
		o.note(*scene)
	}
	if o.stop == nil {
		o.stop, o.ended = make(chan struct{}), make(chan struct{})
		go o.write(dir, o.stop, o.ended)
	}
}

// note takes a scene down.
func (o *onlookers) note(scene study.Scene) {
	o.last = time.Now()
	o.now.Links, o.now.Next, o.now.NextAt = scene.Links, scene.Next, time.Time{}
	if scene.Next != "" {
		o.now.NextAt = o.last.Add(scene.In)
	}
	for i := range o.now.Jobs {
		o.now.Jobs[i].Goodput = 0
	}
	for _, m := range scene.Jobs {
		i := slices.IndexFunc(o.now.Jobs, func(j results.JobNow) bool { return j.Job == m.Job })
		if i < 0 {
			i = len(o.now.Jobs)
			o.now.Jobs = append(o.now.Jobs, results.JobNow{})
			o.pasts[m.Job] = new(past)
		}
		o.pasts[m.Job].add(results.RateNow{T: o.last.Sub(o.since).Seconds(), Goodput: m.Goodput, Predicted: m.Predicted})
		o.now.Jobs[i] = results.JobNow{Job: m.Job, Goodput: m.Goodput, Predicted: m.Predicted}
	}
}

// said is what is to be said now.
func (o *onlookers) said() results.Now {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.now
	n.Written, n.Jobs = time.Now(), slices.Clone(n.Jobs)
	for i, j := range n.Jobs {
		n.Jobs[i].Past = o.pasts[j.Job].whole()
	}
	return n
}

// write writes the report every second, even if nothing has changed: a silent run is taken for one that hangs.
func (o *onlookers) write(dir *results.Dir, stop <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	t := time.NewTicker(o.interval())
	defer t.Stop()
	for {
		select {
		case <-stop:
			_ = dir.EndNow()
			return
		case <-t.C:
			_ = dir.WriteNow(o.said())
		}
	}
}

// end stops write, which then removes the report, and waits for it.
func (o *onlookers) end() {
	if o.stop != nil {
		close(o.stop)
		<-o.ended
		o.stop = nil
	}
}

// mostPast is how many rates of a job are kept.
const mostPast = results.MostRates - 1

// past holds a job's rates since the point began, at most mostPast; neighbours are averaged to keep to that.
type past struct {
	rates []results.RateNow
	every int // readings in each of rates; 0: one
	open  []results.RateNow
}

// add puts a reading at the end.
func (p *past) add(r results.RateNow) {
	if len(p.open) > 0 && p.open[0].Predicted != r.Predicted { // another phase
		p.close()
	}
	if p.open = append(p.open, r); len(p.open) >= p.every {
		p.close()
	}
}

// close turns the open readings into one rate, and averages pairs of rates when there are too many.
func (p *past) close() {
	p.rates, p.open = append(p.rates, meanRate(p.open)), p.open[:0]
	if len(p.rates) < mostPast {
		return
	}
	n := 0
	for i := 0; i < len(p.rates); n++ {
		pair := p.rates[i:min(i+2, len(p.rates))]
		if pair[0].Predicted != pair[len(pair)-1].Predicted {
			pair = pair[:1]
		}
		i += len(pair)
		p.rates[n] = meanRate(pair)
	}
	p.rates, p.every = p.rates[max(0, n-mostPast*3/4):n], 2*max(p.every, 1) // of very many phases, the last
}

// whole is all of it, up to the last reading.
func (p *past) whole() []results.RateNow {
	out := slices.Clone(p.rates)
	if len(p.open) > 0 {
		out = append(out, meanRate(p.open))
	}
	return out
}

// meanRate is the mean of rates of one phase.
func meanRate(rates []results.RateNow) results.RateNow {
	var m results.RateNow
	for i, r := range rates {
		m.T += (r.T - m.T) / float64(i+1)
		m.Goodput += (r.Goodput - m.Goodput) / float64(i+1)
		m.Predicted = r.Predicted
	}
	return m
}
