package results

import (
	"cmp"
	"time"
)

// Kind says how a figure came about. Figures of different kinds are never pooled.
type Kind string

const (
	Measured  Kind = "measured"
	Simulated Kind = "simulated"
	Predicted Kind = "predicted"
)

// Sample is one reading of one counter or gauge: a line of samples.jsonl.
type Sample struct {
	T      float64 `json:"t"`      // seconds since the run began, on the run's clock
	Source string  `json:"source"` // who said it: "host h1", "switch tor1", "worker A/0"
	Metric string  `json:"metric"` // e.g. "nic_tx_bytes", "ina_fallback_packets"
	Of     string  `json:"of"`     // what it is about: "h1->tor1", "A@tor1", "A/0"
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`            // base units: "B", "1", "s", "bit/s"
	Gauge  bool    `json:"gauge,omitempty"` // false: a counter that only grows
	// Wrap is what the counter that was read begins again from 0 at, such as 2^32; 0: it does
	// not. Value goes on growing all the same.
	Wrap float64 `json:"wrap,omitempty"`
}

// Figure is one number with the uncertainty that its samples allow.
type Figure struct {
	Metric string  `json:"metric"` // share | goodput | wire_rate | link_rate | jain | rtt | sum_errors | iterations
	Of     string  `json:"of"`     // job "A", job at a switch "A@tor1", directed link "h1->tor1"
	Kind   Kind    `json:"kind"`
	Value  float64 `json:"value"`
	Lo     float64 `json:"lo"` // 95 % confidence interval of the mean; equal to Value where exact
	Hi     float64 `json:"hi"`
	N      int     `json:"n"` // intervals it was drawn from
	Unit   string  `json:"unit"`
	// Counted says that Value is what was counted over the whole phase: whatever the interval
	// says of phases like it, it is certain of this one.
	Counted bool `json:"counted,omitempty"`
	// Grain is by how much Value would differ had the phase begun or ended one batch of readings
	// earlier or later, at most: what comes in bursts is counted to no more than that.
	Grain float64 `json:"grain,omitempty"`
	// Loose is by how much Value may be off besides, at most, because not all of it was counted in one place: what
	// was on its way between places as the phase, or a part of it, began and ended.
	Loose float64 `json:"loose,omitempty"`
	// Predicted figures only.
	Predictor  string `json:"predictor,omitempty"`
	Bottleneck string `json:"bottleneck,omitempty"` // what limits it, as the prediction says: a link or a switch by name, or its own pace
	// OfRun says that it is of this phase of this run, which was followed from its beginning, and not of a steady
	// state: what was counted is what it is about, and no mean of phases like it.
	OfRun bool `json:"of_run,omitempty"`
}

// Phase is a span of a point during which the set of sending jobs did not change.
type Phase struct {
	Start   float64  `json:"start"` // seconds on the run's clock, after the settling time
	End     float64  `json:"end"`
	Jobs    []string `json:"jobs"`
	Figures []Figure `json:"figures"` // measured (or simulated) and predicted ones side by side

	// LeftOut are times in which the testbed, not what is tested, stood still: figures are of
	// the rest. The phase was made longer for them.
	LeftOut []Stall `json:"left_out,omitempty"`
	// Longer is by how many seconds the phase went on, beyond what was planned, until its figures were
	// certain enough to be judged.
	Longer float64 `json:"longer,omitempty"`
	// Spoilt is why none of the phase's figures may be judged; empty if they may.
	Spoilt string `json:"spoilt,omitempty"`
	// Stood is why a figure of the phase that is not what it should be may be the testbed's,
	// which stood still in it and of which nothing is left out; empty: it is not.
	Stood string `json:"stood,omitempty"`
	// StoodOf is the same of single metrics, by name, whose figures are also of other points: ratios, scores.
	StoodOf map[string]string `json:"stood_of,omitempty"`
	// Unlike is why the phase need not be what is predicted of it: expectations of a value are held to it all the same.
	Unlike string `json:"unlike,omitempty"`
	// UnlikeBy is what part of what is predicted figures may be off for Unlike; 0: any.
	UnlikeBy float64 `json:"unlike_by,omitempty"`
	// State says that predictions of a run's figures are those of one of many runs that were followed, chosen because the
	// phase went like it, since these come to more than one state: it need not be near their mean. Empty: they are of the mean.
	State string `json:"state,omitempty"`
	// Missing are figures that there should be and that cannot be drawn from the readings.
	Missing []Missing `json:"missing,omitempty"`
}

// Excuse is why figures of a metric may be off for the testbed's sake: Stood, or StoodOf it; empty: they are not.
func (ph *Phase) Excuse(metric string) string { return cmp.Or(ph.Stood, ph.StoodOf[metric]) }

// excuse is Excuse, or Unlike where figures are held to what is predicted, or to other points, and may be off by any part.
func (ph *Phase) excuse(e Expect) string {
	if e.Predictor == "value" || ph.UnlikeBy > 0 {
		return ph.Excuse(e.Metric)
	}
	return cmp.Or(ph.Excuse(e.Metric), ph.Unlike)
}

// OffAs notes that figures of a metric may be off because those of another point, which they depend on, may be. The first
// reason stays.
func (ph *Phase) OffAs(metric, why string) {
	if why == "" || ph.StoodOf[metric] != "" {
		return
	}
	if ph.StoodOf == nil {
		ph.StoodOf = map[string]string{}
	}
	ph.StoodOf[metric] = why
}

// Stall is a time that is left out of figures, and why.
type Stall struct {
	Span
	Why string `json:"why"` // "switch tor1: frames left up to 104 ms late"
}

// Total is how long times that are apart from each other are together, in seconds.
func Total(times []Stall) (sum float64) {
	for _, t := range times {
		sum += t.End - t.Start
	}
	return sum
}

// Missing is a figure that there is not.
type Missing struct {
	Metric string `json:"metric"`
	Of     string `json:"of"`
	Why    string `json:"why"`
}

// Point is one cell of the sweep in one repeat.
type Point struct {
	Index  int            `json:"index"`
	Repeat int            `json:"repeat"`           // 0 for the first
	Params map[string]any `json:"params,omitempty"` // swept key -> value
	Labels []string       `json:"labels,omitempty"` // "switch.pat_ratio=0.5", in the order of the spec
	Phases []Phase        `json:"phases"`
	// Curves are those of the first repeat; a simulated later one has them only where the X of
	// one of them is that of the first repeat, without which they cannot be averaged.
	Curves []Curve      `json:"curves,omitempty"`
	Health []Trouble    `json:"health,omitempty"`
	Jobs   []JobSummary `json:"jobs,omitempty"`
	// Machines are all machines of the point's testbed in order, and where its jobs were:
	// where jobs come and go, MachinesAt seconds after its beginning.
	Machines   []Machine `json:"machines,omitempty"`
	MachinesAt float64   `json:"machines_at,omitempty"`
	// Trees are where jobs' gradients were added up.
	Trees []Tree `json:"trees,omitempty"`
	// Findings are checks that were decided by other evidence than figures.
	Findings []Finding `json:"findings,omitempty"`
	Error    string    `json:"error,omitempty"` // why the point ended early
	// Sabotaged is how often the run's fault acted in the point.
	Sabotaged int64 `json:"sabotaged,omitempty"`
}

// Curve is how a quantity changed within a point: fragments with the requests that came.
type Curve struct {
	Metric string    `json:"metric"`
	Of     string    `json:"of,omitempty"`
	Unit   string    `json:"unit"`
	Over   string    `json:"over"` // what X is, with its unit: "requests", "time, s"
	X      []float64 `json:"x"`    // ascending
	Y      []float64 `json:"y"`    // one for each X
}

// JobSummary is what a job reported at its end.
type JobSummary struct {
	Job         string  `json:"job"`
	Workers     int     `json:"workers"`
	Local       bool    `json:"local,omitempty"`   // all on one host: it sends nothing, and only computes
	Program     bool    `json:"program,omitempty"` // that others wrote: what it compared, and with what, it says itself
	Iterations  int64   `json:"iterations"`
	Asked       int64   `json:"asked,omitempty"` // iterations that it was to do; 0: until it is stopped
	Packets     int64   `json:"packets"`         // gradient packets sent by all workers, resends included
	Resends     int64   `json:"resends"`
	SumsChecked int64   `json:"sums_checked"` // reduced values compared with the reference, over all workers
	SumErrors   int64   `json:"sum_errors"`
	Damaged     int64   `json:"damaged,omitempty"` // results of which some value is wrong, over all workers; 0: nobody counts them
	Overflows   int64   `json:"overflows"`
	JCT         float64 `json:"jct,omitempty"`   // seconds, for jobs with a number of iterations
	AlgBW       float64 `json:"algbw,omitempty"` // bit/s: message size over iteration's communication time
	BusBW       float64 `json:"busbw,omitempty"` // bit/s: algbw x 2(n-1)/n, as nccl-tests defines it

	// All-reduces of a job that asks switches for each of them, those that were reduced by
	// switches, and those for which it was refused.
	Ops        int64 `json:"ops,omitempty"`
	OpsINA     int64 `json:"ops_ina,omitempty"`
	OpsRefused int64 `json:"ops_refused,omitempty"`
}

// Tree is what carries a job's gradients towards their sums.
type Tree struct {
	Job  string    `json:"job"`
	Hops []TreeHop `json:"hops"` // each edge once
	Adds []string  `json:"adds"` // switches that add up
}

// TreeHop is an edge of a tree, by the names of what it joins.
type TreeHop struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Trouble is a sign that the testbed itself, not what is tested, limited a point:
// with any Fatal trouble, expectations are inconclusive instead of failed or passed.
type Trouble struct {
	Where string  `json:"where"` // "switch tor1", "host h2", "worker A/0"
	What  string  `json:"what"`  // "timer lateness p99 14 ms, 7.0 % of the RTT (limit 5 %)"
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Fatal bool    `json:"fatal"`

	Of    float64 `json:"of,omitempty"`    // what Value is a part of, where it is
	Code  string  `json:"code,omitempty"`  // of a finding that it may be
	Job   string  `json:"job,omitempty"`   // that the finding is of
	Asked bool    `json:"asked,omitempty"` // the experiment itself asks for it
}

// Outcome of an expectation, a point or a run.
type Outcome string

const (
	Pass         Outcome = "pass"
	Fail         Outcome = "fail"
	Inconclusive Outcome = "inconclusive"
	// NotJudged is a run of which nothing could decide whether it passed: no expectation is gated.
	NotJudged    Outcome = "not-judged"
	Skipped      Outcome = "skipped"
	ErrorOutcome Outcome = "error"
)

// Expect is one [[expect]] block as the record keeps it.
type Expect struct {
	Name      string  `json:"name"`
	Metric    string  `json:"metric"`
	Of        string  `json:"of,omitempty"`    // glob over subjects; empty: all
	Predictor string  `json:"predictor"`       // "occupancy", "waterfill", or "value"
	Value     float64 `json:"value,omitempty"` // with predictor "value"
	// Points are labels that a point must have, all of them, for this to be about it:
	// "switch.mode=statistical". None: it is about every point.
	Points []string `json:"points,omitempty"`
	// Against is a label of points, "switch.mode=statistical". Points that have another
	// value of that key are held against what was measured where it has this one and all
	// else is the same, and Predictor is the label too. Empty: against Predictor.
	Against string `json:"against,omitempty"`
	// Statistic that is held against Tolerance: "each" figure's error, or the
	// "mean" or "max" error over all figures of the block, points and phases, or how
	// well they go together: "correlation".
	Statistic string  `json:"statistic"`
	Tolerance float64 `json:"tolerance"`
	Relative  bool    `json:"relative"` // tolerance is a fraction of the predicted value
	// Bound "within" is two-sided; "at-least" and "at-most" compare with Value or Against.
	Bound  string `json:"bound"`
	Reason string `json:"reason"`
	Gate   bool   `json:"gate"` // false: reported, never decides the run
	// Event is what the study is about. A run in which it did not happen is not PASS: it fails
	// where Gate, else it is undecided.
	Event bool `json:"event,omitempty"`
	// Skip is why this testbed cannot produce the metric: the check is then skipped.
	Skip string `json:"skip,omitempty"`
}

// Check is one expectation applied to one figure (or to all, for mean and max).
type Check struct {
	Expect     string  `json:"expect"`
	Point      string  `json:"point,omitempty"` // its labels
	Phase      int     `json:"phase"`
	Metric     string  `json:"metric"`
	Of         string  `json:"of"`
	Unit       string  `json:"unit"`
	Measured   float64 `json:"measured"`
	Lo         float64 `json:"lo"`
	Hi         float64 `json:"hi"`
	Predicted  float64 `json:"predicted"`
	Predictor  string  `json:"predictor"`
	Bottleneck string  `json:"bottleneck,omitempty"`
	Error      float64 `json:"error"` // measured - predicted, or the relative error
	// Unpredicted says that there is nothing to hold Measured against: Predicted and Error are none.
	Unpredicted bool    `json:"unpredicted,omitempty"`
	Tolerance   float64 `json:"tolerance"`
	Relative    bool    `json:"relative"`
	Outcome     Outcome `json:"outcome"`
	Why         string  `json:"why,omitempty"`
	Code        string  `json:"code,omitempty"` // of what did not hold: see FailureCode
	More        int     `json:"more,omitempty"` // further repeats needed to decide
	Gate        bool    `json:"gate"`
	Implied     bool    `json:"implied,omitempty"` // a Finding's

	Index     int    `json:"index"`               // the point's
	Kind      Kind   `json:"kind,omitempty"`      // of Measured: measured or simulated
	Bound     string `json:"bound,omitempty"`     // the expectation's
	Statistic string `json:"statistic,omitempty"` // the expectation's; for mean and max, Measured is an error
	Worst     string `json:"worst,omitempty"`     // where a max is, or what is most off in a mean that does not pass
	Repeats   int    `json:"repeats,omitempty"`   // combined into Measured; 0: nothing was measured
}

// Scale is how the emulation relates to the lab (slow-motion: rates divided and
// times multiplied by Factor; shrunk: rates and bytes divided; none: 1).
type Scale struct {
	Mode   string  `json:"mode"` // "none", "slow-motion", "shrunk"
	Factor float64 `json:"factor"`
}

// File is an input kept whole, so that a run can be run again.
type File struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Text   string `json:"text"`
}

// HostFacts describe the machine that ran an emulation, or one lab host.
type HostFacts struct {
	Host     string `json:"host"`
	Kernel   string `json:"kernel"`
	Arch     string `json:"arch"`
	CPUs     int    `json:"cpus"`
	CPU      string `json:"cpu,omitempty"`
	Memory   int64  `json:"memory,omitempty"` // bytes
	Rootless bool   `json:"rootless,omitempty"`
}

// Record is run.json: all of a run but its raw samples (samples.jsonl beside it).
type Record struct {
	Schema      int                `json:"schema"` // 1
	ID          string             `json:"id"`     // ULID
	Name        string             `json:"name"`   // the experiment's
	Title       string             `json:"title,omitempty"`
	Started     time.Time          `json:"started"`
	Finished    time.Time          `json:"finished"`
	Driver      string             `json:"driver"` // lab | netns | sim
	Switch      string             `json:"switch"` // soft | bmv2 | tofino | quantum | model
	Kind        Kind               `json:"kind"`   // of its figures: measured or simulated
	Scale       Scale              `json:"scale"`
	Seed        uint64             `json:"seed"`
	Tool        string             `json:"tool"` // version of inabench
	Args        []string           `json:"args,omitempty"`
	Overrides   []string           `json:"overrides,omitempty"` // --set key=value
	Narrowed    []string           `json:"narrowed,omitempty"`  // swept keys of which these have other values than the experiment
	Experiment  File               `json:"experiment"`
	Inventory   File               `json:"inventory"`
	Files       map[string]string  `json:"files,omitempty"` // others that the experiment names: SHA-256 of what was in them; "" where it could not be read
	Hosts       []HostFacts        `json:"hosts,omitempty"`
	Switches    []SwitchFacts      `json:"switches,omitempty"`
	Preflight   []Preflight        `json:"preflight,omitempty"` // checks of hosts before the run
	Calibration []Calibration      `json:"calibration,omitempty"`
	Topology    Topology           `json:"topology"`
	Expect      []Expect           `json:"expect"`
	Comparison  *Comparison        `json:"comparison,omitempty"`
	Published   []PublishedValue   `json:"published,omitempty"`
	Reproduced  []Reproduction     `json:"reproduced,omitempty"` // what papers print, beside what was found
	Summary     []string           `json:"summary,omitempty"`    // metrics of the Cluster to list by point
	Planned     int                `json:"planned,omitempty"`    // points, repeats included, that the run sets out to measure
	Points      []Point            `json:"points"`
	Checks      []Check            `json:"checks"`
	Outcome     Outcome            `json:"outcome"`
	ExitCode    int                `json:"exit_code"`
	Reasons     []string           `json:"reasons,omitempty"` // why the outcome is what it is, most important first
	Warnings    []string           `json:"warnings,omitempty"`
	Timings     map[string]float64 `json:"timings,omitempty"` // seconds: bringup, deploy, measure, teardown
	// Fidelity has how far models were from this run when they were last held against it, a figure
	// of metric "fidelity" for each.
	Fidelity []Figure  `json:"fidelity,omitempty"`
	Failure  *Failure  `json:"failure,omitempty"`  // of the testbed; where its errors name a part
	Night    *NightRun `json:"night,omitempty"`    // of a run that a suite started
	Sabotage *Sabotage `json:"sabotage,omitempty"` // a fault that the testbed was given on purpose
	// Repeating is why there are so many repeats, where it was not said beforehand how many.
	Repeating *Repeating `json:"repeating,omitempty"`
}

// Failure is the part of the testbed that ended a run.
type Failure struct {
	Kind string `json:"kind"` // "host" or "switch"
	Of   string `json:"of"`   // its name
}

// NightRun says which run of which night of a suite this is.
type NightRun struct {
	Suite   string `json:"suite"`
	Night   string `json:"night"`   // the directory of the night
	Item    string `json:"item"`    // what of the suite
	Attempt int    `json:"attempt"` // from 1
}

// Calibration is a quantity measured at low load before anything was predicted.
type Calibration struct {
	What  string  `json:"what"` // "T", "link_rate"
	Of    string  `json:"of"`   // job at a switch "A@tor1", link
	Value float64 `json:"value"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
	N     int     `json:"n"`
	Unit  string  `json:"unit"`
}

// Topology is the part of the inventory that a report draws.
type Topology struct {
	Nodes []Node `json:"nodes"`
	Links []Link `json:"links"`
}

// Node is a host or a switch.
type Node struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // "host", or the switch's kind
	Rack string `json:"rack,omitempty"`
	Tier int    `json:"tier"` // 0 host, 1 ToR, 2 spine
	GPUs int    `json:"gpus,omitempty"`
}

// Link is one direction of a cable.
type Link struct {
	Name string  `json:"name"` // "h1->tor1"
	From string  `json:"from"`
	To   string  `json:"to"`
	Rate float64 `json:"rate"` // bit/s
}
