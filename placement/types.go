package placement

import (
	"slices"

	"github.com/inabench/inabench/inventory"
)

// Collective is how a job reduces its gradients.
type Collective string

const (
	INA  Collective = "ina"  // in-network aggregation, with a PS in statistical mode
	PS   Collective = "ps"   // parameter server, switches only forward
	Ring Collective = "ring" // ring all-reduce over TCP
)

// Job is a request for placement.
type Job struct {
	ID         uint16 // 1..4095, unique in an experiment
	Name       string
	GPUs       int      // wanted in total; 0 with explicit hosts
	Hosts      []string // explicit workers, one per entry, in rank order
	PS         string   // explicit PS host; empty: the policy chooses
	NoPS       bool     // synchronous aggregation: the root switch returns the results
	Collective Collective
	Model      string // model profile, when the policy weighs it

	// Bytes of gradients and seconds of computing in an iteration, and the part of Bytes
	// that the largest tensor has, for policies that weigh them; 0: unknown.
	Bytes, Compute, Skew float64
}

// Worker is one sender of gradients: a process on a host that stands for all the
// job's GPUs there (they are reduced locally first, as NetPack counts flows).
type Worker struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	NIC  string `json:"nic"`
	GPUs int    `json:"gpus"`
}

// End is where the worker's packets leave.
func (w *Worker) End() inventory.End { return inventory.End{Node: w.Host, NIC: w.NIC} }

// Goal is where the packets of a job's i-th worker go: to its PS, without one to the root of its tree, or to the next
// worker in a ring.
func (p *JobPlan) Goal(i int) inventory.End {
	switch {
	case p.PS != "":
		return inventory.End{Node: p.PS, NIC: p.PSNIC}
	case len(p.Tree) > 0:
		return inventory.End{Node: p.Tree[len(p.Tree)-1].Switch}
	}
	return p.Workers[(i+1)%len(p.Workers)].End()
}

// TreeNode is a switch's part in a job's aggregation tree.
type TreeNode struct {
	Switch    string   `json:"switch"`
	Parent    string   `json:"parent,omitempty"` // next switch towards the PS; empty at the root
	Aggregate bool     `json:"aggregate"`        // false: it only forwards (a spine, or INA off here)
	Expect    uint64   `json:"expect"`           // bitmap of the workers below
	UpPort    uint32   `json:"up_port"`          // towards the PS
	Down      []uint32 `json:"down"`             // ports with workers below, ascending
}

// JobPlan is where one job runs.
type JobPlan struct {
	ID         uint16     `json:"id"`
	Name       string     `json:"name"`
	Collective Collective `json:"collective"`
	Workers    []Worker   `json:"workers"`
	PS         string     `json:"ps,omitempty"` // host; empty for ring, and for synchronous INA
	PSNIC      string     `json:"ps_nic,omitempty"`
	Tree       []TreeNode `json:"tree,omitempty"` // leaves first, the root (nearest the PS) last

	// Ranks has the host of each of the job's GPUs where every GPU is a rank of its own, and
	// ranks are not numbered host by host as Workers are. Empty: they are.
	Ranks []string `json:"ranks,omitempty"`
	// Spare are GPUs that the job keeps from others and has no worker on.
	Spare []HostGPUs `json:"spare,omitempty"`
}

// HostGPUs are some of a host's GPUs.
type HostGPUs struct {
	Host string `json:"host"`
	GPUs int    `json:"gpus"`
}

// Hosts has the host of each of the job's GPUs, by rank.
func (j *JobPlan) Hosts() []string {
	if len(j.Ranks) > 0 {
		return j.Ranks
	}
	var out []string
	for _, w := range j.Workers {
		for range w.GPUs {
			out = append(out, w.Host)
		}
	}
	return out
}

// Local reports whether all of the job is on one host: nothing of it crosses the
// network, it has no tree, and only its computing takes time.
func (j *JobPlan) Local() bool { return len(j.Workers) == 1 && j.PS == "" }

// Beside reports whether a worker of the job gets its results from a PS on its own host, without
// the network: its gradients go to the job's address, and leave the host like those of others.
func (j *JobPlan) Beside(w Worker) bool { return j.Collective == PS && w.Host == j.PS }

// Addressing is how the switch of the given name finds aggregators for the job where those
// of the experiment are found as asked: "pool" (also if empty), "hash", "linear" or "atp".
//
// It is as asked, but for atp where another switch that aggregates for the job is below:
// hosts write slots into their packets, sums have none, and all sums of a job would contend
// for one slot. Such a switch hashes job and PSN itself, as ATP's hosts do when they choose
// a slot first, and then its packets of one job may collide with each other too. Whoever
// programs switches, models them or predicts what they do asks here.
func (j *JobPlan) Addressing(sw, asked string) string {
	if asked == "atp" && j.AboveSums(sw) {
		return "hash"
	}
	return asked
}

// AboveSums reports whether another switch that aggregates for the job is below the switch of the
// given name, so that sums come to it.
func (j *JobPlan) AboveSums(sw string) bool {
	return slices.ContainsFunc(j.Tree, func(n TreeNode) bool {
		return n.Aggregate && n.Switch != sw && j.above(n.Parent, sw)
	})
}

// above reports whether sw is the switch named from, or above it in the tree.
func (j *JobPlan) above(from, sw string) bool {
	for range j.Tree {
		if from == sw || from == "" {
			break
		}
		i := slices.IndexFunc(j.Tree, func(n TreeNode) bool { return n.Switch == from })
		if i < 0 {
			return false
		}
		from = j.Tree[i].Parent
	}
	return from == sw
}

// Plan is a placement of all jobs of an experiment.
type Plan struct {
	Policy string    `json:"policy"`
	Jobs   []JobPlan `json:"jobs"`
}

// Policy places jobs. Implementations are deterministic for a given seed and
// never put more workers on a host than it has free GPUs.
type Policy interface {
	Name() string
	// Place returns a plan for all jobs, in their order, or an *InfeasibleError
	// that says what was asked and what is free where.
	Place(inv *inventory.Inventory, jobs []Job, seed uint64) (*Plan, error)
}
