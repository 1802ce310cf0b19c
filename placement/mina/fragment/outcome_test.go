package fragment

import "slices"

// Outcome is what a placement leads to.
type Outcome struct {
	Job  int // A: fragments of the job's hosts
	Free int // B: fragments of the hosts that stay free
}

// Score is A + alpha·B.
func (o Outcome) Score(alpha float64) float64 { return float64(o.Job) + alpha*float64(o.Free) }

// Outcome is what taking hosts would lead to; ErrHost where one is not free.
func (o *Occupancy) Outcome(hosts []int) (Outcome, error) {
	job, err := o.t.Fragments(hosts)
	if err != nil {
		return Outcome{}, err
	}
	if err := o.Take(hosts); err != nil {
		return Outcome{}, err
	}
	free := o.Fragments()
	o.undo(hosts, o.release)
	return Outcome{Job: job, Free: free}, nil
}

// Clone is a copy that changes by itself.
func (o *Occupancy) Clone() *Occupancy {
	return &Occupancy{o.t, slices.Clone(o.free), slices.Clone(o.pieces)}
}

// Pods is how many pods have some of a set of hosts, but not all. If every pod has a
// switch, these are the switches of an aggregation tree over the hosts that are below its
// root. Errors are those of Fragments.
func (t *Topology) Pods(hosts []int) (int, error) {
	in := make([]int32, len(t.nodes))
	if err := t.mark(in, hosts); err != nil {
		return 0, err
	}
	count := 0
	for v, n := range t.nodes {
		if in[v] > 0 && int(in[v]) < len(hosts) && n.span > 1 {
			count++
		}
	}
	return count, nil
}
