package predictor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/supervise"
)

// Versions of the documents. A request has the oldest one that says all that is in it, and its answer has the same. There is
// another one where a predictor that was written for those before would misunderstand a request; new keys alone make none.
const (
	Schema = 1
	// Newest is of requests in which jobs reduce by other collectives than ina, ps and ring, with neither a tree nor hops: each of
	// their workers is a single GPU, a rank; or a host whose job takes turns with others (Operations).
	Newest = 2
)

// Request is what a predictor is asked.
type Request struct {
	Schema     int      `json:"schema"` // Schema or Newest
	Experiment string   `json:"experiment"`
	Point      []string `json:"point"`  // labels of the sweep: "switch.pat_ratio=0.5"
	Repeat     int      `json:"repeat"` // from 0
	Seed       uint64   `json:"seed"`
	Duration   float64  `json:"duration"` // s, of the whole point

	Frame      Frame    `json:"frame"`
	Mode       string   `json:"mode"`       // statistical or synchronous
	Addressing string   `json:"addressing"` // pool, hash, linear or atp
	Queue      string   `json:"queue"`      // fair (per job), flows (per worker) or fifo
	Hosts      []Host   `json:"hosts"`
	Switches   []Switch `json:"switches"`
	Links      []Link   `json:"links"`
	Jobs       []Job    `json:"jobs"`
	// Phases are spans in which the set of jobs that send does not change. None: jobs come
	// and go all the time, and only their completion times are asked for.
	Phases []Phase `json:"phases"`
	// Operations are what jobs that take turns with aggregation trees have in common, in version 2; nil: there are none.
	Operations *Operations `json:"operations"`
}

// Frame is a gradient packet, and a result.
type Frame struct {
	Bytes   int `json:"bytes"`   // on the wire, without preamble and FCS
	Payload int `json:"payload"` // of gradients in it; the last one of an iteration is padded
}

// Host is a server.
type Host struct {
	Name string `json:"name"`
	Rack string `json:"rack"`
	GPUs int    `json:"gpus"`
}

// Switch is a switch.
type Switch struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Tier        int    `json:"tier"`        // 1: hosts are cabled to it
	Aggregators int    `json:"aggregators"` // M, those in use; 0: it only forwards
	Buffer      int64  `json:"buffer"`      // B, of a port; 0: not known
	ECN         int64  `json:"ecn"`         // B, from which on packets are marked; 0: never
}

// Link is one direction of a cable.
type Link struct {
	Name    string  `json:"name"` // "h1->tor1"
	From    string  `json:"from"`
	To      string  `json:"to"`
	Reverse string  `json:"reverse"` // the other direction
	Rate    float64 `json:"rate"`    // bit/s
	Delay   float64 `json:"delay"`   // s
}

// Job is a training job where it ran.
type Job struct {
	Name       string   `json:"name"`
	Collective string   `json:"collective"` // ina, ps or ring; of version 2 also Turns, halving-doubling, halving-doubling-near or recursive-doubling
	Local      bool     `json:"local"`      // on one host: it sends nothing, and no answer is wanted but its JCT
	Workers    []Worker `json:"workers"`
	PS         string   `json:"ps"`   // host; empty of rings, and of synchronous jobs
	Tree       []Node   `json:"tree"` // switches, children before parents; empty of rings
	Hops       []string `json:"hops"` // of a ring: links, one for each time that it is crossed in a turn
	RTT        float64  `json:"rtt"`  // s, without queueing, calibrated where that was done; 0: not known
	Rate       float64  `json:"rate"` // bit/s on the wire that a worker sends at most; 0: no limit
	Window     int      `json:"window"`
	Control    string   `json:"control"`    // fixed or aimd
	Slots      int      `json:"slots"`      // of addressing atp: distinct aggregators of the job; 0: its window
	Message    int64    `json:"message"`    // B of gradients in an iteration; 0: layers, or a stream without end
	Layers     []Layer  `json:"layers"`     // of an iteration: each is computed, then reduced
	Model      string   `json:"model"`      // of operations: whose pattern its iterations have; else empty
	Iterations int64    `json:"iterations"` // 0: until it is stopped
	Submit     float64  `json:"submit"`     // s, from the beginning of the point: since when it waited for its GPUs
	Start      float64  `json:"start"`      // s, from the beginning of the point
}

// Turns is the collective of jobs that take turns with aggregation trees.
const Turns = "turns"

// MostJobs is how many jobs predictors are asked about at once where they are simulated: each has two figures in the record then.
const MostJobs = 10_000

// Operations are jobs whose steps compute and reduce by one all-reduce after the other, each with a tree or by a ring: one of n
// bytes takes latency + 8 n / bandwidth, and with a tree the latter over ratio; on one host, latency alone.
type Operations struct {
	Latency   float64   `json:"latency"`    // s
	Bandwidth float64   `json:"bandwidth"`  // bit/s of gradients
	Ratio     float64   `json:"ratio"`      // at least 1
	PerSwitch int       `json:"per_switch"` // jobs that a switch serves at once; 0: any number
	PerLink   int       `json:"per_link"`   // jobs that a direction of a cable between switches serves at once; 0: any number
	Migration float64   `json:"migration"`  // s that a job is without a tree when it gets another
	Trees     string    `json:"trees"`      // who builds them, as in an experiment's [operations]
	Sharing   string    `json:"sharing"`    // who of those whose trees conflict has one when, as there
	Patterns  []Pattern `json:"patterns"`   // of the jobs' models
}

// Pattern is what a step of a model does.
type Pattern struct {
	Model string  `json:"model"`
	Step  float64 `json:"step"` // s that it computes: it lasts at least as long
	Ops   []Op    `json:"ops"`  // one after the other
}

// Op is an all-reduce of a step.
type Op struct {
	Start float64 `json:"start"` // s since the step began: not earlier
	Bytes int64   `json:"bytes"`
}

// Worker is a sender of gradients.
type Worker struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	GPUs int    `json:"gpus"`
	Up   string `json:"up"` // link that its gradients take; results come back on the reverse. Empty of rings
}

// Node is a switch in a job's tree.
type Node struct {
	Switch    string  `json:"switch"`
	Parent    string  `json:"parent"`    // next switch towards the PS; empty at the root
	Up        string  `json:"up"`        // link towards the parent or the PS; empty at a root without one
	Aggregate bool    `json:"aggregate"` // it adds up packets of this job
	Hold      float64 `json:"hold"`      // s: how long an aggregator stays taken (T) without queueing, calibrated where that was done
}

// Layer is a part of a model.
type Layer struct {
	Bytes   int64   `json:"bytes"`   // of gradients
	Compute float64 `json:"compute"` // s before they are ready
}

// Phase is a span of the point.
type Phase struct {
	Start float64  `json:"start"` // s, from the beginning of the point
	End   float64  `json:"end"`
	Jobs  []string `json:"jobs"` // those that send
}

// Predictor is a command that answers.
type Predictor struct {
	Name    string   // letters, digits, '_' and '-'
	Command []string // a program and its arguments
	Dir     string   // where it runs; empty: the current directory
	Timeout time.Duration
}

// maxAsked bounds a request, which is passed on within another document, and maxAnswer what a predictor may write, whatever
// it was asked; both in bytes. One whose time is up is asked to end, twice, for grace seconds each.
const (
	maxAsked  = 32 << 20
	maxAnswer = 16 << 20
	grace     = 0.2
)

// Predict asks once. An error says what was started and what it wrote to standard error; one
// about the answer wraps ErrAnswer and has everything that is wrong with it.
func (p Predictor) Predict(ctx context.Context, req *Request) (*Answer, error) {
	if len(p.Command) == 0 {
		return nil, fmt.Errorf("predictor %s: no command", p.Name)
	}
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false) // of the arrows of links
	if err := enc.Encode(req); err != nil {
		return nil, fmt.Errorf("predictor %s: %w", p.Name, err)
	}
	if doc.Len() > maxAsked {
		return nil, fmt.Errorf("predictor %s: not asked, as its request would have %d MiB, and may have %d: of fewer jobs it has less",
			p.Name, doc.Len()>>20, maxAsked>>20)
	}
	limit := p.Timeout
	if limit <= 0 {
		limit = time.Minute
	}
	most := req.limit()
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, said, err := supervise.Output(within, supervise.Config{
		Name: "predictor " + p.Name, Argv: p.Command, Dir: p.Dir, Stdin: doc.String(), Grace: grace,
	}, most)
	fail := func(err error) error {
		return supervise.Explain("predictor "+p.Name, p.Command, err, said)
	}
	var exit *supervise.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fail(context.Cause(ctx))
	case within.Err() != nil:
		return nil, fail(fmt.Errorf("no answer within %v", limit))
	case errors.Is(err, bounded.ErrTooLarge):
		return nil, fail(fmt.Errorf("%w: longer than the %d KiB that an answer to this request may take", ErrAnswer, most>>10))
	case errors.As(err, &exit):
		return nil, fail(exit.How())
	case err != nil:
		return nil, fail(err)
	}
	answer, err := ParseAnswer(out, req)
	if err != nil {
		return nil, fail(err)
	}
	return answer, nil
}
