package policy

import (
	"encoding/json"
	"math"
)

// Version is that of the lines. It changes when a policy that was written for another one would misunderstand them; new
// keys alone do not change it.
const Version = 1

// Opening is the first line that a policy reads, and comes again where the cluster is another from then on. It has no
// answer.
type Opening struct {
	Version int     `json:"version"` // 1
	Cluster Cluster `json:"cluster"`
}

// Cluster is what does not change while jobs come and go.
type Cluster struct {
	Hosts    []Host   `json:"hosts"`
	Switches []Switch `json:"switches"` // ToR switches, one for each rack, under a core that is never full
}

// Host is a server.
type Host struct {
	Name   string `json:"name"`
	Switch string `json:"switch"` // the ToR switch that it is cabled to
	GPUs   int    `json:"gpus"`
	Link   Rate   `json:"link"` // of its cable, each way; 0: it has none, and holds no PS and no part of a job on several hosts
}

// Switch is a ToR switch.
type Switch struct {
	Name   string `json:"name"`
	PAT    Rate   `json:"pat"`    // peak aggregation throughput: its memory over the shortest time that an aggregator is held
	Uplink Rate   `json:"uplink"` // to the core, each way
}

// Rate is in bit/s; null in JSON where it has no limit.
type Rate float64

// MarshalJSON implements json.Marshaler.
func (r Rate) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(r), 1) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(r))
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rate) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*r = Rate(math.Inf(1))
		return nil
	}
	return json.Unmarshal(text, (*float64)(r))
}

// Request is a batch of jobs to be placed, with the state of the cluster.
type Request struct {
	Batch    int           `json:"batch"` // from 0, counted since the policy was started
	Seed     uint64        `json:"seed"`  // of whatever the policy draws; below 2^53
	Hosts    []HostState   `json:"hosts"` // all, in the order of the opening
	Switches []SwitchState `json:"switches"`
	Running  []Running     `json:"running"`
	Waiting  []Job         `json:"waiting"` // the batch
}

// HostState is what the jobs that run leave of a host, in the steady state of the network (NetPack, Algorithm 1).
type HostState struct {
	Name  string `json:"name"`
	Free  int    `json:"free"`  // GPUs
	Left  Rate   `json:"left"`  // of its link
	Flows int    `json:"flows"` // on its link
}

// SwitchState is what the jobs that run leave of a ToR switch.
type SwitchState struct {
	Name  string `json:"name"`
	PAT   Rate   `json:"pat"`   // left
	Flows int    `json:"flows"` // on its uplink
}

// Job is a job that waits.
type Job struct {
	ID      int     `json:"id"`
	GPUs    int     `json:"gpus"`
	Traffic string  `json:"traffic"` // ina, ps, ring or tree
	PS      int     `json:"ps"`      // parameter servers that it has where it is on several hosts
	Bytes   float64 `json:"bytes"`   // of gradients in an iteration; 0: not known
	Compute float64 `json:"compute"` // s of computing in an iteration; 0: not known
	Skew    float64 `json:"skew"`    // the part of bytes that the largest tensor has; 0: not known
	Seconds float64 `json:"seconds"` // that it is estimated to run; 0: not known
	Value   float64 `json:"value"`   // among the jobs that wait; 0: 1
	Waited  int     `json:"waited"`  // batches in which it was passed over
}

// Running is a job that runs. It stays where it is.
type Running struct {
	ID        int      `json:"id"`
	Traffic   string   `json:"traffic"`
	Workers   []Worker `json:"workers"`
	PS        []string `json:"ps"`        // hosts
	Aggregate []string `json:"aggregate"` // switches that add up for it
	Rate      Rate     `json:"rate"`      // that each worker sends; null: it sends nothing
}

// Worker is a job's GPUs on a host.
type Worker struct {
	Host string `json:"host"`
	GPUs int    `json:"gpus"`
}

// Answer is what a policy says to a request.
type Answer struct {
	Batch *int     `json:"batch"` // of the request
	Jobs  []Placed `json:"jobs"`  // every job of the batch once, in the order in which they take their GPUs
	Error string   `json:"error"` // optional: why there is no answer; ends the policy
}

// Placed is where a job goes.
type Placed struct {
	ID      *int     `json:"id"`
	Workers []Worker `json:"workers"` // in the order of ranks; none: the job waits
	PS      []string `json:"ps"`      // hosts; as many as the job's ps says where it has several workers that need one
	// Aggregate are the switches that add up for it, among those of its workers and parameter servers; absent: all.
	Aggregate []string `json:"aggregate"`
}
