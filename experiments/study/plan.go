package study

import (
	"encoding/json"
	"math"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// PlanPoint is one cell of the sweep: where its jobs run, and what each phase
// should bring, in the lab's units.
type PlanPoint struct {
	Labels      []string        `json:"labels,omitempty"`
	Plan        *placement.Plan `json:"plan"`
	Aggregators int             `json:"aggregators,omitempty"` // per switch; 0: all it has
	Phases      []PlanPhase     `json:"phases"`
	Why         *Why            `json:"why,omitempty"` // see SavedPlan.Explain

	// Of [training], which has neither Plan nor Phases: who has which GPU, and what the
	// schedule of the collective predicts from what the inventory declares.
	Machines []results.Machine `json:"machines,omitempty"`
	Figures  []results.Figure  `json:"figures,omitempty"`
}

// Occupied is what placement.Occupancy predicts of the point's phases.
func (p PlanPoint) Occupied() (out []*placement.Prediction) {
	for _, ph := range p.Phases {
		for _, pr := range ph.Predictions {
			if pr.Predictor == placement.Occupancy {
				out = append(out, pr)
			}
		}
	}
	return out
}

// PlanPhase is what is predicted for a set of jobs that send together.
type PlanPhase struct {
	Start       float64                 `json:"start"` // seconds of wall clock, settled
	End         float64                 `json:"end"`
	Jobs        []string                `json:"jobs"`
	Predictions []*placement.Prediction `json:"predictions"`
	Conditions  []string                `json:"conditions,omitempty"` // why what runs need not be what is predicted, and what would do
	External    []results.Figure        `json:"external,omitempty"`   // of predictors of one's own; see SavedPlan.Ask
}

// Why is why jobs are where they are.
type Why struct {
	Policy string `json:"policy"`
	Rule   string `json:"rule"` // by what the policy chooses servers
	// Jobs are in the order in which the policy placed them, those that wait last. Only
	// policies that weigh plans say more than their rule: none for the others.
	Jobs []Reason `json:"jobs,omitempty"`
}

// Reason is why a job is where it is, or waits.
type Reason struct {
	Job    string   `json:"job"`
	Text   string   `json:"text"`
	Chosen *Choice  `json:"chosen,omitempty"` // where plans were weighed
	Others []Choice `json:"others,omitempty"` // that lost: the best of them, the best first
	Spread *Spread  `json:"spread,omitempty"` // by Titan
}

// Spread is a placement by what Titan makes small, in this order.
type Spread struct {
	Idle     int `json:"idle_machines"` // it takes, on which nothing ran: objective O1
	Machines int `json:"machines"`      // it takes: objective O2
	// Cross is what its workers send each other between machines by halving and doubling,
	// in gradients; both ways of an exchange count once.
	Cross float64 `json:"cross_traffic"`
	// Congested is where its traffic exceeds the bandwidth most; nil: nowhere, or nobody
	// knows how large its gradient is.
	Congested *Congested `json:"congested,omitempty"`
}

// Congested is a pair of machines between which too much is sent.
type Congested struct {
	Phase   int     `json:"phase"` // of the operation, from 1
	From    string  `json:"from"`
	To      string  `json:"to"`
	Bits    float64 `json:"bits"`    // sent
	Passing float64 `json:"passing"` // bits that pass in Seconds
	Seconds float64 `json:"seconds"` // that a phase may last
}

// Choice is a plan that was weighed by Equation 1 of NetPack:
//
//	Workers + PSBandwidth - PSDecrement + min(HotSpot, Uplinks)
//
// and as published Workers + PSBandwidth - PSDecrement - max(HotSpot, Uplinks).
type Choice struct {
	Hosts       []string `json:"hosts"`
	GPUs        []int    `json:"gpus"` // on each; those of a plan that lost are all that are free
	PS          []string `json:"ps"`
	Flows       int      `json:"flows"`        // on the busiest of its links
	Workers     Rate     `json:"workers"`      // sum of the servers' values
	PSBandwidth Rate     `json:"ps_bandwidth"` // left on the PS's link
	PSDecrement Rate     `json:"ps_decrement"` // what the PS costs the jobs there
	HotSpot     Rate     `json:"hot_spot"`     // to expect on the busiest link
	Uplinks     Rate     `json:"uplinks"`      // to expect between racks; infinite where it uses no such link
	Total       Rate     `json:"total"`
}

// Rate is in bit/s. In JSON one that is not finite is null.
type Rate float64

// MarshalJSON implements json.Marshaler.
func (r Rate) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(r), 0) || math.IsNaN(float64(r)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(r))
}
