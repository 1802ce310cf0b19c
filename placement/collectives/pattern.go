package collectives

import (
	"cmp"
	"slices"
)

// Pattern is the traffic of a schedule: who sends how much to whom in which phase. It
// does not change.
type Pattern struct {
	Workers int
	Parts   int     // volumes are in parts of the vector, of which it has so many
	Phases  []Phase // those in which nothing is sent are left out

	peers [][]Peer // by worker
}

// Phase is a phase, or several alike that follow each other.
type Phase struct {
	Times int
	Flows []Flow // by From, then To; none twice
}

// Flow is what one worker sends another in a phase.
type Flow struct{ From, To, Volume int }

// Peer is a worker that another one exchanges something with.
type Peer struct{ Worker, Volume int }

// Pattern is the traffic of the schedule.
func (s Schedule) Pattern() *Pattern {
	p := &Pattern{Workers: s.Workers, Parts: s.Chunks, peers: make([][]Peer, s.Workers)}
	byEnds := func(a, b Flow) int { return cmp.Or(a.From-b.From, a.To-b.To) }
	for t := range s.Phases {
		var flows []Flow
		for x := range s.Phase(t) {
			flows = append(flows, Flow{x.From, x.To, x.Hi - x.Lo})
		}
		slices.SortFunc(flows, byEnds)
		merged := flows[:0]
		for _, f := range flows {
			if n := len(merged); n > 0 && byEnds(merged[n-1], f) == 0 {
				merged[n-1].Volume += f.Volume
			} else {
				merged = append(merged, f)
			}
		}
		if n := len(p.Phases); n > 0 && slices.Equal(p.Phases[n-1].Flows, merged) {
			p.Phases[n-1].Times++
		} else if len(merged) > 0 {
			p.Phases = append(p.Phases, Phase{1, merged})
		}
	}
	for _, ph := range p.Phases {
		for _, f := range ph.Flows {
			back := 0
			if i, ok := slices.BinarySearchFunc(ph.Flows, Flow{From: f.To, To: f.From}, byEnds); ok {
				back = ph.Flows[i].Volume
			}
			if back > f.Volume || back == f.Volume && f.From > f.To {
				continue // the other direction counts
			}
			p.peer(f.From, f.To, f.Volume*ph.Times)
			p.peer(f.To, f.From, f.Volume*ph.Times)
		}
	}
	return p
}

func (p *Pattern) peer(w, other, volume int) {
	i := slices.IndexFunc(p.peers[w], func(x Peer) bool { return x.Worker == other })
	if i < 0 {
		p.peers[w] = append(p.peers[w], Peer{other, volume})
		return
	}
	p.peers[w][i].Volume += volume
}

// Peers are those that a worker exchanges something with, and how much over all phases,
// in parts. Links are full duplex: what goes one way while as much comes back counts
// once, so of each phase the larger direction counts. Whoever asks must not change them.
func (p *Pattern) Peers(worker int) []Peer { return p.peers[worker] }

// Cross is how much crosses between machines, in parts, if worker w is on machine at[w].
// It counts as Peers does, which is how Titan counts: both ways of an exchange once.
func (p *Pattern) Cross(at []int) int {
	sum := 0
	for w, peers := range p.peers {
		for _, x := range peers {
			if w < x.Worker && at[w] != at[x.Worker] {
				sum += x.Volume
			}
		}
	}
	return sum
}

// Seconds is how long the operation takes for a vector of so many bits, if worker w is on
// machine at[w]: phases wait for each other, and a phase lasts as long as the busiest
// direction of a machine's link needs. Within a machine nothing takes time, and nothing
// else is on the links. The rate of a machine's link is in bit/s. For each bit there are acks
// bits that go back; 0: none.
func (p *Pattern) Seconds(at []int, vector, acks float64, rate func(machine int) float64) float64 {
	out, in := map[int]float64{}, map[int]float64{}
	total := 0.0
	for _, ph := range p.Phases {
		clear(out)
		clear(in)
		for _, f := range ph.Flows {
			if a, b := at[f.From], at[f.To]; a != b {
				v := float64(f.Volume)
				out[a] += v
				in[b] += v
				in[a] += acks * v
				out[b] += acks * v
			}
		}
		longest := 0.0
		for _, direction := range []map[int]float64{out, in} {
			for m, v := range direction {
				longest = max(longest, v/rate(m))
			}
		}
		total += float64(ph.Times) * longest
	}
	return total * vector / float64(p.Parts)
}
