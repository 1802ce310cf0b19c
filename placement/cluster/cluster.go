// Package cluster is what placement policies decide on: servers with GPUs in racks,
// jobs that run there, and the steady state of the network that they share. It works
// on indices and knows nothing of names; package placement joins it to inventories.
//
// The network is that of NetPack (ASPLOS '24, section 4.1): every server has one
// link to its ToR switch, every rack one link to a core that is never the
// bottleneck, links are undirected, and ToR switches aggregate up to their PAT. A tree
// of INA or of a PS loads a link by what goes to its root: results come back by the other
// direction. A ring sends as much by one direction as it receives by the other, and loads
// a link by one of them.
package cluster

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Config is an empty cluster.
type Config struct {
	Servers []Server
	Racks   []Rack
}

// Server is one machine.
type Server struct {
	Rack int     // index in Config.Racks
	GPUs int     // it has
	Link float64 // capacity of its link to the ToR switch, bit/s
	// Delay is the seconds from a frame's beginning on the link to its end at the other
	// side, which only simulators look at; 0: as good as none.
	Delay float64
}

// NoLink is the capacity of a link that is not there: nothing is to be sent over it.
const NoLink = math.SmallestNonzeroFloat64

// Linked reports whether a server has a link, without which it can be no parameter
// server and no part of a job on several servers.
func (s Server) Linked() bool { return s.Link > NoLink }

// Rack is a ToR switch and its link to the core.
type Rack struct {
	PAT    float64 // peak aggregation throughput of the ToR switch, bit/s; +Inf: never exhausted
	Uplink float64 // bit/s; +Inf: as good as no link
	Delay  float64 // of a frame on that, as for servers
}

// FatTree is a cluster of equal racks. The uplink of a rack has the capacity of all
// its servers' links, divided by the oversubscription (1: full bisection).
func FatTree(racks, serversPerRack, gpus int, link, pat, oversubscription float64) Config {
	var c Config
	for r := range racks {
		c.Racks = append(c.Racks, Rack{PAT: pat, Uplink: link * float64(serversPerRack) / oversubscription})
		for range serversPerRack {
			c.Servers = append(c.Servers, Server{Rack: r, GPUs: gpus, Link: link})
		}
	}
	return c
}

// GPUs is how many there are.
func (c Config) GPUs() int {
	n := 0
	for _, s := range c.Servers {
		n += s.GPUs
	}
	return n
}

// Root is the rack whose ToR switch adds up what a job without a parameter server sends,
// the fewest hops from all of its servers: the one with most of them, of equals the first.
func (c Config) Root(parts []Part) int {
	root, most := 0, 0
	for _, w := range parts {
		rack, n := c.Servers[w.Server].Rack, 0
		for _, o := range parts {
			if c.Servers[o.Server].Rack == rack {
				n++
			}
		}
		if n > most || n == most && rack < root {
			root, most = rack, n
		}
	}
	return root
}

// Check returns everything that is wrong with a cluster's description.
func (c Config) Check() error {
	var errs []error
	for i, s := range c.Servers {
		if s.Rack < 0 || s.Rack >= len(c.Racks) {
			errs = append(errs, fmt.Errorf("server %d is in rack %d of %d", i, s.Rack, len(c.Racks)))
		}
		if s.GPUs < 0 || !(s.Link > 0) {
			errs = append(errs, fmt.Errorf("server %d has %d GPUs and a link of %v bit/s", i, s.GPUs, s.Link))
		}
	}
	for i, r := range c.Racks {
		if !(r.PAT >= 0) || !(r.Uplink > 0) {
			errs = append(errs, fmt.Errorf("rack %d has a PAT of %v and an uplink of %v bit/s", i, r.PAT, r.Uplink))
		}
	}
	return errors.Join(errs...)
}

// Traffic is what a job sends when it runs on several servers.
type Traffic uint8

const (
	INA  Traffic = iota // to a PS, added up on the way where a ToR switch does
	PS                  // to a PS, never added up
	Ring                // around its servers; no PS
	Tree                // added up by switches with memory of the job's own; no PS
)

// Job asks for GPUs.
type Job struct {
	ID      int // unique among the jobs in a cluster
	GPUs    int // at least 1 where a policy is to find them
	Traffic Traffic
	PSes    int // parameter servers wanted, where it needs any; 0: one

	// Bytes of gradients and seconds of computing in an iteration, for policies that
	// weigh them; 0: unknown.
	Bytes, Compute float64

	// Skew is the part of Bytes that the largest tensor has, 0 to 1, for policies that
	// consolidate by it; 0: unknown.
	Skew float64

	// Seconds is how long the job is estimated to run once it starts, for disciplines that reserve GPUs
	// (package queue); 0: unknown.
	Seconds float64

	// Value is how important the job is among those that wait; 0: 1. Waited counts the
	// batches in which it was passed over, from which policies make it age.
	Value  float64
	Waited int
}

// Part is a job's GPUs on one server: one worker, that stands for them all. Servers
// without GPUs can send gradients too.
type Part struct{ Server, GPUs int }

// Placement is where a job runs. Its parts are ordered by rank, and no server is in
// it twice.
type Placement struct {
	Parts []Part
	PS    []int // servers; none where all parts are on one, or the traffic needs none
	// Plain are the racks whose ToR switch does not aggregate for the job (selective
	// INA), ascending. Empty: all do.
	Plain []int

	// Spare are GPUs that the job keeps from others and has no worker on. No server is in
	// it twice.
	Spare []Part
	// Ranks has the server of each GPU, in the order of ranks where every GPU has one of
	// its own. Empty: those of Parts, part by part.
	Ranks []int
}

// Clone is a copy that shares nothing.
func (p Placement) Clone() Placement {
	return Placement{slices.Clone(p.Parts), slices.Clone(p.PS), slices.Clone(p.Plain), slices.Clone(p.Spare), slices.Clone(p.Ranks)}
}

// ServerOf is the server of each of a placement's GPUs, by rank: Ranks, or what it stands
// for.
func (p Placement) ServerOf() []int {
	if len(p.Ranks) > 0 {
		return p.Ranks
	}
	var out []int
	for _, w := range p.Parts {
		for range w.GPUs {
			out = append(out, w.Server)
		}
	}
	return out
}

// Local reports whether the job sends nothing over the network.
func (p Placement) Local() bool { return len(p.Parts) == 1 && len(p.PS) == 0 }

// NeedsPS reports whether a job on so many servers has a parameter server.
func (j Job) NeedsPS(servers int) bool {
	return servers > 1 && (j.Traffic == INA || j.Traffic == PS)
}

// Policy decides where jobs go. It is deterministic: the same cluster, batch and seed
// give the same placements.
type Policy interface {
	Name() string
	// Place enters the jobs of a batch into c, in an order of its own. It returns for
	// every job of the batch where it went; jobs without a Part wait for another batch.
	// Jobs that run already stay where they are.
	Place(c *Cluster, batch []Job, seed uint64) []Placement
}

// Err is why a policy did not place the last batch that it was given, as one in another process may not: such a policy
// has an Err method, and places nothing any more. What wraps a policy has an Unwrap method. Others never fail.
func Err(p Policy) error {
	switch p := p.(type) {
	case interface{ Err() error }:
		return p.Err()
	case interface{ Unwrap() Policy }:
		return Err(p.Unwrap())
	}
	return nil
}

// Sentinels of Enter, Leave and Rate.
var (
	ErrPlacement = errors.New("placement is not possible") // what does not fit, or makes no sense
	ErrNoJob     = errors.New("no such job")
)

// Cluster is a cluster in which jobs run. It is not safe for concurrent use.
type Cluster struct {
	Config
	free    []int // GPUs, by server
	total   int   // free GPUs in all
	jobs    map[int]*running
	servers [][]int // by rack

	net         *network
	slots       []*running // all there ever were at a time
	idle        []*running // those of them that do not run
	subscribers []*Changes
	kept        map[any]any
}

// running is a job that runs, or the memory for one.
type running struct {
	slot  int // in Cluster.slots
	runs  bool
	job   Job
	place Placement
	trees []int // handles in the network
}

// New is a cluster in which nothing runs. It panics on a Config that Check rejects.
func New(cfg Config) *Cluster {
	if err := cfg.Check(); err != nil {
		panic(err)
	}
	c := &Cluster{Config: cfg, jobs: map[int]*running{}, servers: make([][]int, len(cfg.Racks)), net: newNetwork(cfg)}
	for i, s := range cfg.Servers {
		c.free = append(c.free, s.GPUs)
		c.total += s.GPUs
		c.servers[s.Rack] = append(c.servers[s.Rack], i)
	}
	return c
}

// Free is how many GPUs of a server no job has.
func (c *Cluster) Free(server int) int { return c.free[server] }

// TotalFree is how many GPUs no job has.
func (c *Cluster) TotalFree() int { return c.total }

// InRack are the servers of a rack, ascending. The caller must not change them.
func (c *Cluster) InRack(rack int) []int { return c.servers[rack] }

// Jobs is how many jobs run.
func (c *Cluster) Jobs() int { return len(c.jobs) }

// Running are the IDs of the jobs that run, ascending.
func (c *Cluster) Running() []int { return slices.Sorted(maps.Keys(c.jobs)) }

// Placement is where a running job is; not ok if it does not run. The caller must not
// change it.
func (c *Cluster) Placement(id int) (Job, Placement, bool) {
	r := c.jobs[id]
	if r == nil {
		return Job{}, Placement{}, false
	}
	return r.job, r.place, true
}

// Enter starts a job at a place. Errors wrap ErrPlacement, and then nothing changed.
func (c *Cluster) Enter(j Job, p Placement) error {
	if err := c.check(j, p); err != nil {
		return fmt.Errorf("job %d: %w: %w", j.ID, ErrPlacement, err)
	}
	c.take(p, 1)
	r := c.slot()
	r.runs, r.job = true, j
	// Placements that were handed out must not change, so this is new memory.
	r.place = p.Clone()
	c.net.add(r)
	c.jobs[j.ID] = r
	c.occupied(r)
	return nil
}

// take takes the GPUs of a placement (sign 1) or gives them back (-1).
func (c *Cluster) take(p Placement, sign int) {
	for _, parts := range [][]Part{p.Parts, p.Spare} {
		for _, w := range parts {
			c.free[w.Server] -= sign * w.GPUs
			c.total -= sign * w.GPUs
		}
	}
}

// slot is memory for a job.
func (c *Cluster) slot() *running {
	if n := len(c.idle); n > 0 {
		r := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return r
	}
	r := &running{slot: len(c.slots)}
	c.slots = append(c.slots, r)
	return r
}

func (c *Cluster) check(j Job, p Placement) error {
	if _, ok := c.jobs[j.ID]; ok {
		return errors.New("it runs already")
	}
	if j.GPUs < 0 || len(p.Parts) == 0 {
		return fmt.Errorf("%d GPUs on %d servers", j.GPUs, len(p.Parts))
	}
	gpus := 0
	for i, w := range p.Parts {
		switch {
		case w.Server < 0 || w.Server >= len(c.free):
			return fmt.Errorf("server %d of %d", w.Server, len(c.free))
		case w.GPUs < 0 || w.GPUs > c.free[w.Server]:
			return fmt.Errorf("%d GPUs of server %d, where %d are free", w.GPUs, w.Server, c.free[w.Server])
		case slices.ContainsFunc(p.Parts[:i], func(o Part) bool { return o.Server == w.Server }):
			return fmt.Errorf("server %d twice", w.Server)
		}
		gpus += w.GPUs
	}
	if gpus != j.GPUs {
		return fmt.Errorf("%d GPUs where it asked for %d", gpus, j.GPUs)
	}
	if needs := j.NeedsPS(len(p.Parts)); needs != (len(p.PS) > 0) {
		return fmt.Errorf("%d parameter servers for %d servers", len(p.PS), len(p.Parts))
	}
	if err := c.checkSpare(p); err != nil {
		return err
	}
	if err := p.checkRanks(); err != nil {
		return err
	}
	for _, s := range p.PS {
		if s < 0 || s >= len(c.free) {
			return fmt.Errorf("parameter server on server %d of %d", s, len(c.free))
		}
	}
	for _, r := range p.Plain {
		if r < 0 || r >= len(c.Racks) {
			return fmt.Errorf("rack %d of %d", r, len(c.Racks))
		}
	}
	return nil
}

// checkSpare is about the spare GPUs of a placement whose parts are right.
func (c *Cluster) checkSpare(p Placement) error {
	for i, w := range p.Spare {
		if w.Server < 0 || w.Server >= len(c.free) {
			return fmt.Errorf("server %d of %d", w.Server, len(c.free))
		}
		free := c.free[w.Server]
		for _, o := range p.Parts {
			if o.Server == w.Server {
				free -= o.GPUs
			}
		}
		switch {
		case w.GPUs < 0 || w.GPUs > free:
			return fmt.Errorf("%d spare GPUs of server %d, where %d are left", w.GPUs, w.Server, free)
		case slices.ContainsFunc(p.Spare[:i], func(o Part) bool { return o.Server == w.Server }):
			return fmt.Errorf("spare GPUs of server %d twice", w.Server)
		}
	}
	return nil
}

// checkRanks holds Ranks against Parts.
func (p Placement) checkRanks() error {
	if len(p.Ranks) == 0 {
		return nil
	}
	all := 0
	for _, w := range p.Parts {
		n := 0
		for _, s := range p.Ranks {
			if s == w.Server {
				n++
			}
		}
		if n != w.GPUs {
			return fmt.Errorf("%d ranks on server %d, where it has %d GPUs", n, w.Server, w.GPUs)
		}
		all += n
	}
	if len(p.Ranks) != all {
		return fmt.Errorf("%d ranks for %d GPUs", len(p.Ranks), all)
	}
	return nil
}

// Leave ends a job. An error wraps ErrNoJob.
func (c *Cluster) Leave(id int) error {
	r := c.jobs[id]
	if r == nil {
		return fmt.Errorf("%w: %d", ErrNoJob, id)
	}
	c.take(r.place, -1)
	c.net.remove(r)
	delete(c.jobs, id)
	r.runs = false
	c.occupied(r)
	c.idle = append(c.idle, r)
	return nil
}

// SetPlain changes at which racks the ToR switch does not aggregate for a running
// job. An error wraps ErrNoJob.
func (c *Cluster) SetPlain(id int, racks []int) error {
	r := c.jobs[id]
	if r == nil {
		return fmt.Errorf("%w: %d", ErrNoJob, id)
	}
	if slices.Equal(r.place.Plain, racks) {
		return nil
	}
	c.net.remove(r)
	r.place.Plain = slices.Clone(racks)
	c.net.add(r)
	return nil
}

// Rate is what each worker of a running job sends in the steady state of Algorithm 1,
// bit/s: with several parameter servers, to all of them together. +Inf for a job that
// sends nothing over the network, or that does not run.
func (c *Cluster) Rate(id int) float64 {
	r := c.jobs[id]
	if r == nil || len(r.trees) == 0 {
		return math.Inf(1)
	}
	var sum float64
	for _, t := range r.trees {
		sum += c.net.Rate(t)
	}
	return sum
}

// Bandwidth is what the steady state leaves of a server's link, bit/s.
func (c *Cluster) Bandwidth(server int) float64 { return c.net.Left(server) }

// Flows is how many flows are on a server's link in the steady state.
func (c *Cluster) Flows(server int) int { return c.net.Flows(server) }

// UplinkFlows is how many flows are on a rack's link to the core.
func (c *Cluster) UplinkFlows(rack int) int { return c.net.Flows(len(c.Servers) + rack) }

// PAT is what the steady state leaves of a ToR switch's peak aggregation throughput.
func (c *Cluster) PAT(rack int) float64 { return c.net.PATLeft(rack) }

// Keep returns what make returned when Keep was first called with this key: what a policy
// knows of the cluster from one batch to the next. It lives as long as the cluster and is
// not part of clones. As with context keys, a key has a type of its own.
func (c *Cluster) Keep(key any, make func() any) any {
	v, ok := c.kept[key]
	if !ok {
		if c.kept == nil {
			c.kept = map[any]any{}
		}
		v = make()
		c.kept[key] = v
	}
	return v
}

// Clone is a copy of the cluster and of what runs in it that shares nothing that
// changes, without the subscribers and what Keep keeps.
func (c *Cluster) Clone() *Cluster {
	out := &Cluster{
		Config: c.Config, servers: c.servers, total: c.total,
		free: slices.Clone(c.free), jobs: make(map[int]*running, len(c.jobs)),
	}
	out.net = &network{Steady: c.net.Clone(), owner: make([]*running, len(c.net.owner)), plant: newPlanter(c.Config)}
	memory := make([]running, len(c.slots))
	for i, r := range c.slots {
		m := &memory[i]
		*m = running{slot: i, runs: r.runs}
		out.slots = append(out.slots, m)
		if !r.runs {
			continue
		}
		m.job, m.place, m.trees = r.job, r.place, slices.Clone(r.trees)
		out.jobs[r.job.ID] = m
		for _, h := range r.trees {
			out.net.owner[h] = m
		}
	}
	for _, r := range c.idle {
		out.idle = append(out.idle, out.slots[r.slot])
	}
	return out
}
