package results

// Comparison says which points of a run are put side by side: those that differ in
// nothing but one swept key, such as the placement policy.
type Comparison struct {
	Key       string      `json:"key"`       // "placement.policy"
	Reference string      `json:"reference"` // the value of it that others are divided by: "netpack"
	Metrics   []string    `json:"metrics"`   // of figures about the Cluster, in the order to show: "avg_jct", "de"
	Published []Published `json:"published,omitempty"`
}

// Cluster is what figures about a whole trace of jobs are of.
const Cluster = "cluster"

// Published is what a paper says of a comparison, to stand beside what was found.
type Published struct {
	Metric string `json:"metric"`
	At     string `json:"at,omitempty"` // label of the points that it is about: "fat_tree.oversubscription=20"; empty: all
	// Lo and Hi are the change of the reference against the others, as a fraction of
	// what those have: -0.45 and -0.13 for a JCT that is 13 to 45 % shorter.
	Lo   float64 `json:"lo"`
	Hi   float64 `json:"hi"`
	Text string  `json:"text"` // where it says so, and what it is about
}
