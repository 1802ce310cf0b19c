package flow

import (
	"cmp"
	"math"
	"slices"
)

// snap is the fraction of a capacity below which a residue counts as nothing, so
// that rounding never decides whether a link or a switch is used up.
const snap = 1e-12

// WaterFill is NetPack's Algorithm 1 ("Training Job Placement in Clusters with
// Statistical In-Network Aggregation", ASPLOS 2024, section 4.2): all jobs grow
// at the same speed; a job on a link that fills up is frozen; a switch whose PAT
// runs out stops aggregating for the jobs that still grow, so that their flows
// above it leap from one to the sum over its children (UpdateFlows, Table 1).
//
// Beyond the paper, a job stops at its Limit, synchronous jobs aggregate without
// drawing on PAT, the streams of a ring count in the busier direction of a cable, and
// a residue of 1e-12 of a capacity is zero: the published comparison with 0 makes the
// outcome depend on rounding. Where PAT equals a
// job's rate exactly, all of it is aggregated (Table 1; the text differs).
//
// The paper's loop visits every job and link in each round. Since all growing
// jobs have the same rate, the water level, this one keeps instead the level at
// which each link and switch will be used up in a heap, and touches only what an
// event changes: O(n log n) in the nodes of all trees.
func WaterFill(p *Problem) (*Result, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	w := newFill(p)
	w.run()
	return w.result(), nil
}

// Markers in fill.sw beside the index of a switch.
const (
	forwards = -1 // no aggregation here
	always   = -2 // memory of the job's own: aggregates everything
)

// fill is the state of one WaterFill. Nodes of all jobs are numbered through;
// links are represented by the first direction of their cable.
type fill struct {
	p     *Problem
	first []int32 // job -> its first node; one more entry than jobs

	// Per node.
	parent, link, sw []int32
	sum, flow        []int32 // flows that enter from below, flows on its way up

	links    resource
	switches resource
	cable    []int32 // link -> first direction of its cable
	jobsOn   csr     // link -> jobs
	nodesAt  csr     // switch -> nodes that aggregate there
	job      []int32 // node -> job

	rate   []float64
	frozen []bool
	active int
}

// resource is a kind of thing that is used up as the level rises, at a speed of
// use per unit of level.
type resource struct {
	capacity, left, base []float64 // left is what remained when the level was base
	use                  []int32
	gone                 []float64 // level at which it was used up; +Inf before
	heap                 minHeap
}

func newResource(n int) resource {
	buf := make([]float64, 5*n)
	r := resource{
		capacity: buf[:n], left: buf[n : 2*n], base: buf[2*n : 3*n], gone: buf[3*n : 4*n],
		use:  make([]int32, n),
		heap: minHeap{key: buf[4*n:]},
	}
	for i := range r.gone {
		r.gone[i] = math.Inf(1)
	}
	return r
}

// due is the level at which i will be used up at its present speed.
func (r *resource) due(i int32) float64 {
	if r.use[i] == 0 || !math.IsInf(r.gone[i], 1) {
		return math.Inf(1)
	}
	return r.base[i] + r.left[i]/float64(r.use[i])
}

// change alters i's speed by d from level t on.
func (r *resource) change(i, d int32, t float64) {
	left := r.left[i] - float64(r.use[i])*(t-r.base[i])
	if left <= snap*r.capacity[i] {
		left = 0
	}
	r.left[i], r.base[i] = left, t
	r.use[i] += d
	if d > 0 { // sooner; later is noticed when its time comes
		r.heap.set(i, r.due(i))
	}
}

// next returns what is used up first and when.
func (r *resource) next() (int32, float64) {
	for {
		i, t := r.heap.min()
		if i < 0 || math.IsInf(t, 1) {
			return -1, math.Inf(1)
		}
		if due := r.due(i); due > t {
			r.heap.set(i, due)
			continue
		}
		return i, t
	}
}

func newFill(p *Problem) *fill {
	nodes := 0
	for i := range p.Jobs {
		nodes += len(p.Jobs[i].Nodes)
	}
	buf := make([]int32, 6*nodes)
	cut := func() []int32 { s := buf[:nodes:nodes]; buf = buf[nodes:]; return s }
	w := &fill{
		p:      p,
		first:  make([]int32, len(p.Jobs)+1),
		parent: cut(), link: cut(), sw: cut(), sum: cut(), flow: cut(), job: cut(),
		links:    newResource(len(p.Links)),
		switches: newResource(len(p.Switches)),
		cable:    cables(p.Links),
		rate:     make([]float64, len(p.Jobs)),
		frozen:   make([]bool, len(p.Jobs)),
	}
	for i, l := range p.Links {
		c := w.cable[i]
		if int(c) == i || l.Capacity < w.links.capacity[c] {
			w.links.capacity[c], w.links.left[c] = l.Capacity, l.Capacity
		}
	}
	for i, s := range p.Switches {
		w.switches.capacity[i], w.switches.left[i] = s.PAT, s.PAT
		if s.PAT <= 0 {
			w.switches.gone[i] = 0
		}
	}
	n := int32(0)
	for ji := range p.Jobs {
		j := &p.Jobs[ji]
		base := n
		w.first[ji] = base
		linked := false
		var back []bool
		if j.streams() {
			back = j.returning(w.cable)
		}
		for k := range j.Nodes {
			nd := &j.Nodes[k]
			w.job[n], w.parent[n], w.link[n], w.sw[n] = int32(ji), -1, -1, forwards
			if nd.Parent != None {
				w.parent[n] = base + int32(nd.Parent)
			}
			if nd.Up != None && (back == nil || !back[k]) {
				w.link[n] = w.cable[nd.Up]
				linked = true
			}
			if j.aggregates(nd) {
				w.sw[n] = int32(nd.Switch)
				if j.Kind == Synchronous {
					w.sw[n] = always
				}
			}
			// Children come first, so the sum is complete here (UpdateFlows).
			w.flow[n] = max(1, w.sum[n])
			if w.sw[n] != forwards && w.aggregating(n) {
				w.flow[n] = 1
			}
			if pn := w.parent[n]; pn >= 0 {
				w.sum[pn] += w.flow[n]
			}
			n++
		}
		if j.starved() != None || !linked && j.Limit == 0 {
			w.frozen[ji] = true
			continue
		}
		w.active++
		for k := base; k < n; k++ {
			if l := w.link[k]; l >= 0 {
				w.links.use[l] += w.flow[k]
			}
			if s := w.sw[k]; s >= 0 && w.switches.gone[s] > 0 {
				w.switches.use[s]++
			}
		}
	}
	w.first[len(p.Jobs)] = n
	w.jobsOn = newCSR(len(p.Links), w.link, w.job)
	w.nodesAt = newCSR(len(p.Switches), w.sw, nil)
	w.links.start()
	w.switches.start()
	return w
}

func (r *resource) start() {
	for i := range r.heap.key {
		r.heap.key[i] = r.due(int32(i))
	}
	r.heap.init()
}

// aggregating reports whether node n, which is to aggregate, still can.
func (w *fill) aggregating(n int32) bool {
	return w.sw[n] == always || w.sw[n] >= 0 && math.IsInf(w.switches.gone[w.sw[n]], 1)
}

func (w *fill) run() {
	var limited []int32 // jobs with a limit, the lowest first
	for i := range w.p.Jobs {
		if w.p.Jobs[i].Limit > 0 && !w.frozen[i] {
			limited = append(limited, int32(i))
		}
	}
	slices.SortFunc(limited, func(a, b int32) int {
		return cmp.Or(cmp.Compare(w.p.Jobs[a].Limit, w.p.Jobs[b].Limit), cmp.Compare(a, b))
	})
	for w.active > 0 {
		for len(limited) > 0 && w.frozen[limited[0]] {
			limited = limited[1:]
		}
		limit := math.Inf(1)
		if len(limited) > 0 {
			limit = w.p.Jobs[limited[0]].Limit
		}
		// At one and the same level a job stops before memory runs out: A = C
		// aggregates.
		l, full := w.links.next()
		s, out := w.switches.next()
		switch tie := 1 + snap; {
		case limit <= full && limit <= out*tie:
			w.freeze(limited[0], limit)
		case l >= 0 && full <= out*tie:
			w.links.gone[l] = full
			w.links.change(l, 0, full)
			for _, j := range w.jobsOn.of(l) {
				if !w.frozen[j] {
					w.freeze(j, full)
				}
			}
			w.links.heap.set(l, math.Inf(1))
		case s >= 0:
			w.exhaust(s, out)
		default:
			return // unreachable: every active job has a limit or a link
		}
	}
}

// freeze stops job j at level t.
func (w *fill) freeze(j int32, t float64) {
	w.frozen[j], w.rate[j] = true, t
	w.active--
	for n := w.first[j]; n < w.first[j+1]; n++ {
		if l := w.link[n]; l >= 0 {
			w.links.change(l, -w.flow[n], t)
		}
		if s := w.sw[n]; s >= 0 && math.IsInf(w.switches.gone[s], 1) {
			w.switches.change(s, -1, t)
		}
	}
}

// exhaust ends aggregation at switch s at level t: for every job still growing,
// the flows that enter s leave it, up to the next switch that aggregates.
func (w *fill) exhaust(s int32, t float64) {
	w.switches.gone[s] = t
	w.switches.left[s] = 0
	w.switches.heap.set(s, math.Inf(1))
	for _, n := range w.nodesAt.of(s) {
		d := w.sum[n] - w.flow[n]
		if w.frozen[w.job[n]] || d <= 0 {
			continue
		}
		for {
			w.flow[n] += d
			if l := w.link[n]; l >= 0 {
				w.links.change(l, d, t)
			}
			if n = w.parent[n]; n < 0 {
				break
			}
			w.sum[n] += d
			if w.aggregating(n) {
				break
			}
		}
	}
}

func (w *fill) result() *Result {
	r := &Result{Jobs: make([]JobResult, len(w.p.Jobs)), Links: make([]LinkResult, len(w.p.Links))}
	share := make([]float64, len(w.link))
	for ji := range r.Jobs {
		j := &w.p.Jobs[ji]
		a, b := w.first[ji], w.first[ji+1]
		out := JobResult{Rate: w.rate[ji], Share: share[a:b:b], Bottleneck: Bottleneck{Unlimited, None}}
		for n := a; n < b; n++ {
			switch s := w.sw[n]; {
			case s == always && j.starved() == None:
				share[n] = 1
			case s >= 0 && w.switches.gone[s] >= out.Rate && w.switches.gone[s] > 0:
				share[n] = 1
			case s >= 0:
				share[n] = w.switches.gone[s] / max(out.Rate, math.SmallestNonzeroFloat64)
				share[n] = min(1, share[n])
			}
			// Of the links that filled up as the job stopped, name the first.
			if l := w.link[n]; l >= 0 && w.links.gone[l] <= out.Rate*(1+1e-9) {
				up := j.Nodes[n-a].Up
				if out.Bottleneck.Kind != ByLink || up < out.Bottleneck.Index {
					out.Bottleneck = Bottleneck{ByLink, up}
				}
			}
		}
		if s := j.starved(); s != None {
			out.Bottleneck = Bottleneck{BySwitch, s}
		} else if j.Limit > 0 && out.Rate >= j.Limit {
			out.Bottleneck = Bottleneck{ByLimit, None}
		}
		r.Jobs[ji] = out
	}
	// A cable's load and flows go to the direction that more of the flows take.
	for ji := range w.p.Jobs {
		for k := range w.p.Jobs[ji].Nodes {
			if n := w.first[ji] + int32(k); w.link[n] >= 0 {
				r.Links[w.p.Jobs[ji].Nodes[k].Up].Flows += float64(w.flow[n])
			}
		}
	}
	busy := make([]int32, len(r.Links)) // first direction of a cable -> the busiest
	for i := range r.Links {
		c := w.cable[i]
		if int(c) == i || r.Links[i].Flows > r.Links[busy[c]].Flows {
			busy[c] = int32(i)
		}
	}
	for i := range r.Links {
		if c := w.cable[i]; int(busy[c]) != i {
			r.Links[busy[c]].Flows += r.Links[i].Flows
			r.Links[i] = LinkResult{}
		}
	}
	for i := range r.Links {
		if r.Links[i].Flows > 0 {
			c := w.cable[i]
			r.Links[i].Load = w.links.capacity[c] - w.links.left[c]
		}
	}
	return r
}

// cables maps every link to the first direction of its cable.
func cables(links []Link) []int32 {
	out := make([]int32, len(links))
	most := 0
	for _, l := range links {
		most = max(most, l.Cable)
	}
	var first []int32
	seen := map[int]int32{}
	if most <= 4*len(links) {
		first = make([]int32, most+1) // 1 + the first direction
	}
	for i, l := range links {
		out[i] = int32(i)
		switch {
		case l.Cable == 0:
		case first != nil && l.Cable > 0:
			if first[l.Cable] == 0 {
				first[l.Cable] = int32(i) + 1
			}
			out[i] = first[l.Cable] - 1
		default:
			if f, ok := seen[l.Cable]; ok {
				out[i] = f
			} else {
				seen[l.Cable] = int32(i)
			}
		}
	}
	return out
}

// csr is a list of values per key, in one piece of memory.
type csr struct{ start, values []int32 }

// newCSR lists value[i] (or i itself) under key[i] for every key in [0,n).
func newCSR(n int, key, value []int32) csr {
	start := make([]int32, n+1)
	for _, k := range key {
		if k >= 0 {
			start[k+1]++
		}
	}
	for k := range n {
		start[k+1] += start[k]
	}
	values := make([]int32, start[n])
	next := slices.Clone(start)
	for i, k := range key {
		if k < 0 {
			continue
		}
		v := int32(i)
		if value != nil {
			v = value[i]
		}
		values[next[k]] = v
		next[k]++
	}
	return csr{start, values}
}

func (c csr) of(k int32) []int32 { return c.values[c.start[k]:c.start[k+1]] }

// minHeap is a binary heap of 0..len(key)-1 by key, then by number, whose keys can
// be changed in place.
type minHeap struct {
	key     []float64
	at, pos []int32 // what is at a position; where a number is
}

func (h *minHeap) init() {
	n := len(h.key)
	h.at, h.pos = make([]int32, n), make([]int32, n)
	for i := range h.at {
		h.at[i], h.pos[i] = int32(i), int32(i)
	}
	for i := n/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *minHeap) min() (int32, float64) {
	if len(h.at) == 0 {
		return -1, math.Inf(1)
	}
	return h.at[0], h.key[h.at[0]]
}

func (h *minHeap) set(i int32, key float64) {
	old := h.key[i]
	h.key[i] = key
	if key < old {
		h.up(int(h.pos[i]))
	} else {
		h.down(int(h.pos[i]))
	}
}

func (h *minHeap) less(a, b int32) bool {
	return h.key[a] < h.key[b] || h.key[a] == h.key[b] && a < b
}

func (h *minHeap) swap(i, j int) {
	h.at[i], h.at[j] = h.at[j], h.at[i]
	h.pos[h.at[i]], h.pos[h.at[j]] = int32(i), int32(j)
}

func (h *minHeap) up(i int) {
	for i > 0 && h.less(h.at[i], h.at[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h *minHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.at) {
			return
		}
		if c+1 < len(h.at) && h.less(h.at[c+1], h.at[c]) {
			c++
		}
		if !h.less(h.at[c], h.at[i]) {
			return
		}
		h.swap(i, c)
		i = c
	}
}
