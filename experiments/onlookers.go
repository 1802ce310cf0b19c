package experiments

import (
	"slices"
	"time"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
)

// told is how often who looks on from elsewhere is told something.
const told = time.Second

// onlookers are told in a run's directory how far it is. The run never waits for that, and does not hear whether it went
// well: what it measures matters more.
type onlookers struct {
	dir   *results.Dir
	now   results.Now
	since time.Time        // when the point that is measured began
	pasts map[string]*past // of jobs in it
	last  time.Time        // when something was said
	say   chan results.Now // nil: nothing was said yet
	ended chan struct{}
}

// tell says what the status is, and what happens in the point that is measured; nil: nobody knows.
func (o *onlookers) tell(s Status, scene *study.Scene) {
	if o.since.IsZero() {
		o.since, o.last = time.Now(), time.Now() // what takes no second needs no onlookers
	}
	if s.Done != o.now.Done || s.Point != o.now.Point || s.Stage != o.now.Stage {
		o.now.Jobs, o.pasts, o.since = nil, map[string]*past{}, time.Now()
	}
	o.now = results.Now{Stage: s.Stage, Point: s.Point, Done: s.Done, Of: s.Of, Until: s.Until, Jobs: o.now.Jobs}
	if time.Since(o.last) < told {
		return
	}
	o.last = time.Now()
	o.now.Written = o.last
	if scene != nil {
		o.now.Links, o.now.Next = scene.Links, scene.Next
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
				o.now.Jobs = append(o.now.Jobs, results.JobNow{Job: m.Job})
				o.pasts[m.Job] = new(past)
			}
			o.pasts[m.Job].add(results.RateNow{T: time.Since(o.since).Seconds(), Goodput: m.Goodput, Predicted: m.Predicted})
			o.now.Jobs[i] = results.JobNow{Job: m.Job, Goodput: m.Goodput, Predicted: m.Predicted}
		}
	}
	if o.say == nil {
		o.say, o.ended = make(chan results.Now, 1), make(chan struct{})
		go func() {
			defer close(o.ended)
			for n := range o.say {
				_ = o.dir.WriteNow(n)
			}
			_ = o.dir.EndNow()
		}()
	}
	n := o.now
	n.Jobs = slices.Clone(n.Jobs)
	for i, j := range n.Jobs {
		n.Jobs[i].Past = o.pasts[j.Job].whole()
	}
	select {
	case o.say <- n:
	default: // the disk is slow
	}
}

// end says nothing more.
func (o *onlookers) end() {
	if o.say != nil {
		close(o.say)
		<-o.ended
		o.say = nil
	}
}

// mostPast is how many rates of a job are kept, and some.
const mostPast = 240

// past is a job's rates since the point began: where there would be too many, means of neighbours.
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

// close makes one rate of the readings that have none yet.
func (p *past) close() {
	p.rates, p.open = append(p.rates, meanRate(p.open)), p.open[:0]
	if len(p.rates) < mostPast {
		return
	}
	n := 0
	for pair := range slices.Chunk(p.rates, 2) {
		if pair[0].Predicted != pair[len(pair)-1].Predicted {
			pair = pair[:1]
		}
		p.rates[n], n = meanRate(pair), n+1
	}
	p.rates, p.every = p.rates[:n], 2*max(p.every, 1)
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
