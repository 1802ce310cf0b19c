package placement

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/flow"
)

// Layer is a part of what a job reduces in an iteration: Bytes of gradient, that are there
// after Compute seconds, counted from when the layer before was.
type Layer struct{ Bytes, Compute float64 }

// turn is how a job that does not send all the time spends an iteration.
type turn struct {
	job    int // in problem.Jobs
	layers []Layer
	ring   int       // its workers; 0: it is none
	wire   float64   // bits that a worker puts on its link for each bit of gradient
	bits   float64   // that it does in an iteration
	tail   float64   // s from the last of these to the end
	hops   []float64 // s, of a ring: one way from each worker to the next
	links  []int     // and how many links that crosses
}

// newTurn is that of a job of the problem; not ok if it sends all the time.
func (b *problem) newTurn(at int, j *JobPlan) (t turn, ok bool) {
	t = turn{job: at, layers: b.c.Senders[j.Name].Layers}
	var bytes float64
	for _, l := range t.layers {
		bytes += l.Bytes
	}
	if !(bytes > 0) {
		return t, false
	}
	if j.Collective == Ring {
		n := len(j.Workers)
		t.ring, t.wire = n, collectives.Duplex*2*float64(n-1)/float64(n)
		t.bits = 8 * bytes * t.wire
		for i := range j.Workers {
			path, _ := b.topo.PathBy(j.Workers[i].End(), j.Goal(i)) // which is there, or the ring had no links
			t.hops, t.links = append(t.hops, b.way(path)), append(t.links, len(path))
		}
		return t, true
	}
	t.bits = float64(8*b.c.FrameBytes()) * float64(b.c.frames(j.Name).PSNs())
	t.wire = t.bits / (8 * bytes)
	t.tail = b.Jobs[at].RTT
	return t, true
}

// way is how long a full TCP segment takes over a path when its first link has it.
func (b *problem) way(path []int) float64 {
	var t float64
	for k, l := range path {
		link := &b.topo.Links[l]
		t += link.Delay.Seconds()
		if k > 0 && link.Rate > 0 {
			t += 8 * collectives.Segment / float64(link.Rate)
		}
	}
	return t
}

// duty is the part of an iteration in which the job sends, if it then does at a rate.
func (t *turn) duty(rate, packet float64) float64 {
	if !(rate > 0) {
		return 1 // it never ends
	}
	return min(1, t.bits/rate/t.lasts(rate, packet))
}

// lasts is how long an iteration takes in which the job sends at a rate, s.
func (t *turn) lasts(rate, packet float64) float64 {
	ready, end := 0.0, 0.0
	for _, l := range t.layers {
		took := 8 * l.Bytes * t.wire / rate
		ready += l.Compute
		end = max(end, ready) + took
		if t.ring > 0 { // every layer is an operation, and the next one waits for its end
			end += collectives.RingTail(t.ring, l.Bytes, took, t.hops...)
		}
	}
	if t.ring == 0 { // the first frame's transmission is in the round trip
		end += max(0, t.tail-packet/rate)
	}
	return end
}

// sends is the rate at which a job sends that has one in the mean over its iterations.
func (t *turn) sends(mean, packet float64) float64 {
	// It is that with which an iteration takes as long: the faster, the sooner it ends.
	whole, rate, most := t.bits/mean, mean, mean*mostPause
	for range 100 {
		if mid := math.Sqrt(rate * most); t.lasts(mid, packet) > whole {
			rate = mid
		} else {
			most = mid
		}
	}
	return rate
}

// limits says what takes most of an iteration of a job that has a rate in the mean over all of them: Computing, RoundTrip, or
// nothing, which is to send. Of each that is by how much sooner an iteration ends where it alone takes a little less: what
// goes on beside something that takes longer takes none.
func (t *turn) limits(mean, packet float64) string {
	if !(mean > 0) {
		return ""
	}
	rate := t.sends(mean, packet)
	const less = 1 - 1e-6
	sooner := *t
	sooner.layers = slices.Clone(t.layers)
	for i := range sooner.layers {
		sooner.layers[i].Compute *= less
	}
	end := t.lasts(rate, packet)
	sends, computes := (end-t.lasts(rate/less, packet))/(1-less), (end-sooner.lasts(rate, packet))/(1-less)
	switch trips := end - sends - computes; { // twice as long, all of it, and so is the iteration
	case max(trips, computes) <= sends:
		return ""
	case computes > trips:
		return Computing
	}
	return RoundTrip
}

// mostPause is how many times as long as it sends a job may wait: beyond that it hardly sends.
const mostPause = 1e6

// perFrame is how many bytes of gradient one of the job's frames stands for: of a stream, which a ring of long
// messages is, as many as put so many bits on each link.
func (t *turn) perFrame(j *flow.Job, c *Conditions) float64 {
	if t.ring > 0 {
		return packetBits(j) / (8 * t.wire)
	}
	return float64(4 * c.Lanes)
}

// packets are the layers of an iteration in packets of so many bytes. All follow each other and are cut into packets: one
// that two layers share is there with the later one, and the last is padded.
func packets(layers []Layer, size float64) (out []flow.Layer) {
	var bytes, at float64
	before := 0
	for i, l := range layers {
		bytes, at = bytes+l.Bytes, at+l.Compute
		whole := math.Floor(bytes / size * (1 + 1e-12))
		if i == len(layers)-1 {
			whole = max(1, math.Ceil(bytes/size*(1-1e-12)))
		}
		out = append(out, flow.Layer{PSNs: int(whole) - before, Ready: at})
		before = int(whole)
	}
	return out
}

// MostBias is by how much a share may be off for messages that are short (Bias) before it says nothing.
const MostBias = 0.05

// Bias is by how much the share of PSNs that find an aggregator may be off the steady state's, for messages that are
// short. A job that begins to send after a pause finds the aggregators free that it has left: of flight PSNs, as many as it
// has under way in the steady state, as many find one as there are, at once, and then none until the first come back.
// That evens out after several times as many; sooner among others, whose packets come at any time.
// An iteration has psns, which it sends in so many bursts.
func Bias(share, flight, psns float64, bursts int, alone bool) float64 {
	if !(psns > 0) {
		return 0
	}
	off := share * (1 - share) * flight * float64(bursts) / psns
	if !alone {
		off /= 2
	}
	return off
}

// Short says of a job that its messages are too short for a share.
func Short(job string, psns, flight float64) string {
	return fmt.Sprintf("a message of job %s has %.0f PSNs, and up to %.0f may be under way: at its beginning they find aggregators otherwise than in the steady state, which is all that is known; longer messages, a smaller window or more aggregators would do",
		job, math.Ceil(psns), math.Ceil(flight))
}

// MostTurns is how many jobs that do not send all the time are looked at one by one.
const MostTurns = 5

// turns is what jobs get of which some do not send all the time: they compute, and wait for
// what they have sent last to come back. It is occupancy's steady state for each set of these
// jobs that may send at once, weighted by how long it lasts if when each sends has nothing to
// do with the others. Of one such job that is exact. How long depends on the rates, and these
// on that: both are found by repetition. Of more than MostTurns jobs, those that are left take
// their part of links and memory all the time, and are only themselves slower. Rings of short
// messages are followed frame by frame, and need none of this.
func (b *problem) turns(ctx context.Context, turns []turn) (*flow.Result, error) {
	all, err := flow.Occupancy(ctx, &b.Problem)
	if err != nil {
		return nil, err
	}
	if all.Rings {
		turns = slices.DeleteFunc(slices.Clone(turns), func(t turn) bool { return b.Jobs[t.job].Ring != nil })
	}
	if len(turns) == 0 {
		return all, nil
	}
	few := turns[:min(len(turns), MostTurns)]
	states := make([]*flow.Result, 1<<len(few)) // by the set of those that send
	at := make([][]int, len(states))            // job -> its index there; -1: it is silent
	for set := range states {
		p := b.Problem
		p.Jobs = nil
		at[set] = make([]int, len(b.Jobs))
		for i := range b.Jobs {
			at[set][i] = len(p.Jobs)
			p.Jobs = append(p.Jobs, b.Jobs[i])
			for k := range few {
				if few[k].job == i && set>>k&1 == 0 {
					at[set][i], p.Jobs = -1, p.Jobs[:len(p.Jobs)-1]
				}
			}
		}
		if set == len(states)-1 {
			states[set] = all
		} else if states[set], err = flow.Occupancy(ctx, &p); err != nil {
			return nil, err
		}
	}
	duty := make([]float64, len(few))
	for k := range duty {
		duty[k] = 1
	}
	lasts := make([]float64, len(states))
	weigh := func() {
		for set := range lasts {
			lasts[set] = 1
			for k, d := range duty {
				if set>>k&1 == 0 {
					d = 1 - d
				}
				lasts[set] *= d
			}
		}
	}
	sent := make([]float64, len(b.Jobs)) // rates in the mean over time
	for range 200 {
		weigh()
		clear(sent)
		for set, r := range states {
			for i, o := range at[set] {
				if o >= 0 {
					sent[i] += lasts[set] * r.Jobs[o].Rate
				}
			}
		}
		moved := 0.0
		for k := range few {
			next := few[k].duty(sent[few[k].job]/duty[k], packetBits(&b.Jobs[few[k].job]))
			next = (duty[k] + next) / 2
			moved = max(moved, math.Abs(next-duty[k]))
			sent[few[k].job] *= next / duty[k]
			duty[k] = next
		}
		if moved < 1e-12 {
			break
		}
	}
	weigh()
	return b.mean(all, states, at, lasts, turns[len(few):]), nil
}

// brief is the part of what a link carries that it does at most in a state whose load is no peak: of frames, the 99th
// percentile is what counts.
const brief = 0.01

// weighted adds what there is of x to a sum.
func weighted(sum, x []float64, weight float64) {
	for n, v := range x {
		sum[n] += weight * v
	}
}

// perNode are the figures of a job that there is one of for each node; the first three are there of every job.
func perNode(j *flow.JobResult) []*[]float64 {
	return []*[]float64{&j.Share, &j.ShareSpread, &j.Up, &j.UpCame, &j.Down, &j.DownCame}
}

// mean is the mean over time of what happens in states that last so long; rest are jobs that
// send in all of them, and yet not all the time.
func (b *problem) mean(all *flow.Result, states []*flow.Result, at [][]int, lasts []float64, rest []turn) *flow.Result {
	out := &flow.Result{Jobs: make([]flow.JobResult, len(all.Jobs)), Links: make([]flow.LinkResult, len(all.Links)), Lossless: all.Lossless, Rings: all.Rings, Settled: all.Settled, Approximate: all.Approximate}
	for set, r := range states {
		if lasts[set] > 0 {
			out.Settled = max(out.Settled, r.Settled)
			out.Approximate = out.Approximate || r.Approximate
			out.Lossless = out.Lossless || r.Lossless
		}
	}
	for l := range out.Links {
		out.Links[l].Flows = all.Links[l].Flows
		for set, r := range states {
			out.Links[l].Load += lasts[set] * r.Links[l].Load
			out.Links[l].Lost += lasts[set] * r.Links[l].Lost
			out.Links[l].Spread += lasts[set] * r.Links[l].Spread
		}
		for set, r := range states {
			if load, mean := r.Links[l].Load, out.Links[l].Load; load > mean && lasts[set]*load > brief*mean {
				out.Links[l].Peak = max(out.Links[l].Peak, load)
			}
		}
	}
	for i := range out.Jobs {
		j := &out.Jobs[i]
		j.Bottleneck = all.Jobs[i].Bottleneck
		figures := perNode(j)
		for set, r := range states {
			if o := at[set][i]; o >= 0 && r.Jobs[o].UpCame == nil { // there is no mean of what is not told of all
				figures = figures[:3]
			}
		}
		for _, x := range figures {
			*x = make([]float64, len(all.Jobs[i].Share))
		}
		for set, r := range states {
			if o := at[set][i]; o >= 0 {
				rate := lasts[set] * r.Jobs[o].Rate
				j.Rate += rate
				j.RateSpread += lasts[set] * r.Jobs[o].RateSpread
				from := perNode(&r.Jobs[o])
				for k, x := range figures {
					weighted(*x, *from[k], rate)
				}
			}
		}
		if j.Rate == 0 {
			j.Share, j.ShareSpread, j.Up = all.Jobs[i].Share, nil, all.Jobs[i].Up
			j.UpCame, j.Down, j.DownCame = nil, nil, nil
			continue
		}
		for _, x := range figures {
			for n := range *x {
				(*x)[n] /= j.Rate
			}
		}
	}
	for _, t := range rest {
		j := &out.Jobs[t.job]
		j.Rate *= t.duty(j.Rate, packetBits(&b.Jobs[t.job]))
	}
	return out
}

// packetBits is the bits of one of j's frames.
func packetBits(j *flow.Job) float64 { return max(1, j.Packet) }
