// Package spec is what an experiment says: one TOML file, with the inventory that it names, as a Spec whose
// Points are the cells of its sweeps. Kinds.Load and Kinds.Parse find everything that is wrong with both before
// anything runs, and fill in what follows from several keys.
//
// What an experiment is about is a Study: [[job]] tables, which this package knows, or the table of one of the
// Kinds that a program has. A study checks its own table with a Checker, and names its metrics as Measurables.
package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
)

// Spec is one experiment: which jobs run where, with what settings, what is varied,
// and what should come out. All quantities are those of the lab; an emulation
// scales them itself. Times on the wall clock (start, duration, warm-up) are never
// scaled.
//
// Load returns only specs that make sense, so what runs them need not check again
// what the comments say here.
type Spec struct {
	Version       int      `toml:"version,required"` // 1
	Name          string   `toml:"name"`             // default: the file's name without ".toml"
	Title         string   `toml:"title"`            // one line for reports
	Description   string   `toml:"description"`      // for reports; may have several lines
	InventoryPath string   `toml:"inventory"`        // a file, relative to this one; in its place, [fat_tree] or [clos]
	FatTree       *FatTree `toml:"fat_tree"`
	Clos          *Clos    `toml:"clos"`
	On            string   `toml:"on"`        // where it runs, if the command line does not say; default: netns
	Catalogue     string   `toml:"catalogue"` // a file with models of one's own, relative to this one
	PatternsPath  string   `toml:"patterns"`  // a file with patterns of one's own, relative to this one
	// Quick are assignments that make a small version of the experiment, for CI and for
	// a first look: those of `run --quick`.
	Quick []string `toml:"quick"`
	// Summary are the figures that reports list by point; none: the study's headline.
	Summary []string `toml:"summary"`

	Emulation  Emulation      `toml:"emulation"`
	Placement  Placement      `toml:"placement"`
	Switch     Switch         `toml:"switch"`
	Jobs       Jobs           `toml:"job"`
	Studies    map[string]any `toml:",tables"` // of what else it is about, by their keys
	Preflight  Preflight      `toml:"preflight"`
	Measure    Measure        `toml:"measure"`
	Calibrate  Calibrate      `toml:"calibrate"`
	LinkStates []LinkState    `toml:"link_state"`
	Sweeps     []Sweep        `toml:"sweep"` // none in a point's spec
	Expects    []Expect       `toml:"expect"`
	Compare    *Compare       `toml:"compare"`
	Predictor  *Predictor     `toml:"predictor"`
	Policies   []OwnPolicy    `toml:"policy"`

	// Published are figures that a paper prints, which decide nothing.
	Published []PublishedValue `toml:"published"`

	File      string   // path it was read from
	SHA256    string   // of the file's bytes, hex
	Text      string   // the file itself
	Overrides []string // the assignments of --set, in order
	narrowed  []string // swept keys whose values they give

	file      *tomlfile.File // with assignments
	inv       *inventory.Inventory
	catalogue *workload.Catalogue
	patterns  *workload.Patterns
	points    []Point
	kinds     Kinds
	atRest    string // how jobs address memory when they are calibrated; "": any that is free
}

// WordsOf implements tomlfile.Wordy.
func (*Spec) WordsOf(key string) []string {
	if key == "on" {
		return Drivers
	}
	return nil
}

// CalibratedBy is how jobs address switch memory when they are calibrated: "pool", so that nothing is in their way, or
// as the experiment says where a program of its switches knows no pool.
func (s *Spec) CalibratedBy() string { return cmp.Or(s.atRest, "pool") }

// Says says whether the text, an assignment or a sweep gives a key such as "measure.warmup" a value.
func (s *Spec) Says(key string) bool {
	return s.file.Has(key) || slices.ContainsFunc(s.Sweeps, func(w Sweep) bool { return w.Key == key })
}

// Inventory is the inventory as loaded, or made from the fat tree, unscaled. It must not
// be changed; points share it unless they sweep the fat tree.
func (s *Spec) Inventory() *inventory.Inventory { return s.inv }

// Models are the models whose gradients are known, those of the experiment's own file among them.
func (s *Spec) Models() *workload.Catalogue { return s.catalogue }

// Patterns say when models reduce their gradients, those of the experiment's own file among them.
func (s *Spec) Patterns() *workload.Patterns { return s.patterns }

// Emulation is how an emulated testbed relates to the lab.
type Emulation struct {
	Scale  string  `toml:"scale" default:"slow-motion" words:"slow-motion,shrunk,none"` // "slow-motion": rates divided by factor, delays multiplied; "shrunk": rates and bytes divided; "none"
	Factor float64 `toml:"factor" default:"1000"`                                       // at least 1; with scale "none": 1. On netns, an experiment that does not say it gets what the machine carries
	SSHD   string  `toml:"sshd" default:"embedded" words:"embedded,openssh"`            // every host's SSH server; "openssh" must be installed
	// Switch is what every switch is: "soft", the embedded one, or "bmv2", p4lang's
	// simple_switch_grpc with this project's P4 program, which must be on PATH. It forwards
	// some thousand packets a second, so Factor must be greater.
	Switch string `toml:"switch" default:"soft" words:"soft,bmv2"`
	// Offload has hosts and switches hand each other up to 32 packets at once, for
	// several times the packets a second and so a smaller Factor. Packets that go
	// together leave a worker at one instant; cables still carry them one by one.
	Offload bool `toml:"offload"`
}

// Placement is who decides on hosts for jobs that name none.
type Placement struct {
	Policy string `toml:"policy" default:"first-fit"` // who decides: one of `inabench place --list`, or of [[policy]] tables
}

// Switch is how all switches aggregate and queue.
type Switch struct {
	Mode       string `toml:"mode" default:"statistical" words:"statistical,synchronous"` // "statistical": a packet takes an aggregator if one is free, and goes on to the PS otherwise; "synchronous": each job has aggregators of its own
	Addressing string `toml:"addressing" default:"pool" words:"pool,hash,linear,atp"`     // which aggregator a packet may take, in statistical mode: "pool": any that is free; "hash": by job and PSN; "linear": by PSN, one after the other; "atp": one of the slots that the job has picked
	// Aggregators is how many each switch uses. 0: all it has, or what PATRatio says.
	Aggregators int `toml:"aggregators"`
	// PATRatio sets the number of aggregators to this part of what the job PATJob
	// would hold: M = PATRatio·C·T, where C is its rate in packets/s and T how long
	// an aggregator stays taken, as calibrated (NetPack section 6.4). 0: unset.
	PATRatio   float64 `toml:"pat_ratio"`
	PATJob     string  `toml:"pat_job"`     // the job that pat_ratio is of, which has a rate; default: the first
	Slots      int     `toml:"slots"`       // W, those that each job picks among all under atp addressing; or
	SlotsRatio float64 `toml:"slots_ratio"` // the same as a part of the aggregators; one of them is there with atp
	// Reallocate is the period, wall clock, in which the memory of synchronous jobs is
	// divided anew among those that are there (placement.Divide), as INAlloc does. 0: a
	// job owns two of its windows from beginning to end. Statistical mode needs neither.
	Reallocate inventory.Duration `toml:"reallocate"`
	Queue      string             `toml:"queue" default:"fair" words:"fair,flows,fifo"` // "fair": a queue for each job, which is what is predicted; "flows": for each worker; "fifo"
	Lanes      int                `toml:"lanes" default:"240"`                          // int32 values per packet, 1..240; left out: those that the programs of the switches sum, where their p4infos say it
	Buffer     inventory.Bytes    `toml:"buffer"`                                       // of each egress port; 0: as the inventory says
	ECN        inventory.Bytes    `toml:"ecn"`                                          // egress queue length above which packets are marked; 0: as the inventory says
}

// Job is one training job. It has either GPUs or Hosts.
type Job struct {
	At         string             `toml:",path"`                                        // of the table in the file: "job[0]"
	Name       string             `toml:"name,required"`                                // letters, digits, '_' and '-'
	GPUs       int                `toml:"gpus"`                                         // so many are placed by the policy; with hosts: on these together
	Hosts      []string           `toml:"hosts"`                                        // workers in the order of ranks, 64 at most; each stands for all of the job's GPUs on it
	PS         string             `toml:"ps"`                                           // host of the parameter server; default: the policy chooses; of no use in synchronous mode
	Collective string             `toml:"collective" default:"ina" words:"ina,ps,ring"` // "ina": summed up in switches, and by the PS what is not; "ps": by the PS alone; "ring": by none
	Model      string             `toml:"model"`                                        // whose gradients they are: a model of the catalogue; or
	Message    inventory.Bytes    `toml:"message"`                                      // gradient bytes per iteration; without both: a stream without iterations
	Rate       inventory.BitRate  `toml:"rate"`                                         // most that a worker sends, as on the wire, acknowledgements for what it gets on top; 0: no limit
	Window     int                `toml:"window" default:"1024"`                        // packets of a worker on their way, 1 to 65536; workers scatter each 16 PSNs over their time at the rate, so that smaller windows wait for places
	Control    string             `toml:"control" default:"fixed" words:"fixed,aimd"`   // "aimd": the window follows ECN marks
	Start      inventory.Duration `toml:"start"`                                        // wall clock, from the beginning of the point
	Duration   inventory.Duration `toml:"duration"`                                     // wall clock; 0: as iterations say, or until the measurement ends
	Iterations int64              `toml:"iterations"`                                   // after which it ends; 0: it does not; only with model or message
}

// Measure is when and how often to look. Times are wall clock.
type Measure struct {
	Warmup   inventory.Duration `toml:"warmup" default:"1s"`      // after every start and stop of a job, before figures count
	Duration inventory.Duration `toml:"duration" default:"3s"`    // of each phase, where jobs do not end it themselves
	Interval inventory.Duration `toml:"interval" default:"100ms"` // between readings of counters
	Repeats  int                `toml:"repeats" default:"1"`      // of every point, each with another seed; with precision the fewest, and without a number 10
	Stretch  float64            `toml:"stretch" default:"3"`      // times as long as planned that a phase may become, for stalls of the testbed and figures that are not certain yet; 1: never longer
	Seed     uint64             `toml:"seed" default:"1"`         // of everything that is drawn

	// Precision is by which part of its mean the summary's first metric may differ from it, as its 95 % interval says:
	// repeats go on until it is so at each point, or until there are most of them. All points have as many. Only in
	// simulations, where repeats are cheap. Intervals that end repeats hold a little less often: 90 % of them at least.
	Precision inventory.Percent `toml:"precision"`
	Most      int               `toml:"most" default:"50"` // repeats, with precision

	// Patience is how long a host or an agent may be silent, or a job without results, until
	// the run is given up, and how long what runs on hosts goes on without the controller.
	Patience inventory.Duration `toml:"patience" default:"20s"`
}

// Fewest is how many repeats of every point there are at least, 1 or more.
func (m *Measure) Fewest() int {
	if m.Precision > 0 && m.Repeats < results.LeastRepeats {
		return results.LeastRepeats
	}
	return max(1, m.Repeats)
}

// UpTo is how many repeats of every point there may be.
func (m *Measure) UpTo() int {
	if m.Precision > 0 {
		return max(m.Most, m.Fewest())
	}
	return m.Fewest()
}

// Calibrate says whether T and the real link rates are measured at low load before
// anything is predicted.
type Calibrate struct {
	Enabled bool `toml:"enabled" default:"true"` // otherwise they are taken as the inventory says
}

// LinkState is deliberate damage to the directed links that match a glob.
type LinkState struct {
	At        string             `toml:",path"`
	Of        string             `toml:"of,required"` // a glob: "h1->tor1", "*->tor1"
	Loss      float64            `toml:"loss"`        // of a packet to be lost: a probability, 0 to 1
	Duplicate float64            `toml:"duplicate"`   // to come twice
	Reorder   float64            `toml:"reorder"`     // to be held back
	ReorderBy inventory.Duration `toml:"reorder_by"`  // how long a reordered packet is held back, in the lab's time
}

// Sweep varies one key.
type Sweep struct {
	At     string `toml:",path"`
	Key    string `toml:"key,required"`    // as of --set: "switch.pat_ratio", "job.A.rate"
	Values []any  `toml:"values,required"` // that the key has, one point for each
	// Zip is a name that sweeps share which advance together. All others form the
	// cross product, the first sweep of the file varying slowest.
	Zip string `toml:"zip"`
}

// Expect is one thing that should come out.
//
// It is as written; Expectations gives it resolved.
type Expect struct {
	At        string    `toml:",path"`
	Name      string    `toml:"name"`                                                       // default: metric and of
	Metric    string    `toml:"metric,required"`                                            // what is judged: "goodput", "share", ...
	Of        string    `toml:"of"`                                                         // glob over jobs, "job@switch" or links; default: all
	Where     []string  `toml:"at"`                                                         // labels of sweeps, all of which a point must have: ["switch.pat_ratio=0.5"]; default: all points
	Predictor string    `toml:"predictor"`                                                  // "occupancy", "waterfill" or an external one; "value" where there is a value
	Value     any       `toml:"value"`                                                      // a number; a rate or duration where the metric is one
	Against   string    `toml:"against"`                                                    // other points of the sweep, "switch.mode=statistical", instead of a predictor
	Statistic string    `toml:"statistic" default:"each" words:"each,mean,max,correlation"` // "each" figure is judged, or their "mean", the "max" of their errors, or the "correlation" of what was measured with what was predicted
	Tolerance Tolerance `toml:"tolerance"`                                                  // "0.03" in the metric's unit ("1Gbit/s" of a rate), or "3%" of what is expected
	Bound     string    `toml:"bound" default:"within" words:"within,at-least,at-most"`     // of a value, or of what it is against
	Reason    string    `toml:"reason,required"`                                            // why it should be so: for who reads the report
	Gate      bool      `toml:"gate" default:"true"`                                        // false: it is reported, and decides nothing
	Event     bool      `toml:"event"`                                                      // the study is about it: without it a run is no PASS

	resolved results.Expect
	unit     string // of its metric
}

// Tolerance is "0.03" (absolute, in the metric's unit; "1Gbit/s" for rates) or "3%"
// (of what is expected).
type Tolerance string

// UnmarshalText takes any text; what it means depends on the metric.
func (t *Tolerance) UnmarshalText(text []byte) error {
	*t = Tolerance(text)
	return nil
}

// Example is how one is written.
func (*Tolerance) Example() string { return "3%" }

// Suggest is how a bare number should have been written: 5 as 5 % of what is expected; 0.03 as 3 % of it, or in the metric's
// unit.
func (t *Tolerance) Suggest(number float64) []string {
	if number < 1 {
		return []string{fmt.Sprintf("%.6g%%", 100*number), fmt.Sprint(number)}
	}
	return []string{fmt.Sprintf("%.6g%%", number)}
}

// Load reads an experiment and the inventory it names, and applies assignments
// ("switch.pat_ratio=0.5") before anything is checked. A file that breaks rules gives
// tomlfile.Problems: all of both files, each with its position.
//
// An assignment to a swept key takes the place of the sweep.
func (ks Kinds) Load(path string, sets ...string) (*Spec, error) {
	text, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return nil, fmt.Errorf("read experiment: %w", err)
	}
	return ks.Parse(path, text, nil, sets...)
}

// Parse is Load for a text at hand. name is the path for messages, and its folder is
// where a relative inventory path begins. An inventory that is given is used
// instead of the one that the text names.
func (ks Kinds) Parse(name string, text []byte, inv *inventory.Inventory, sets ...string) (*Spec, error) {
	s, f, problems, err := ks.Decode(name, text, sets)
	if err != nil {
		return nil, err
	}
	s.inv = inv
	if s.Version != 1 && f.Has("version") {
		f.Problemf("version", "this inabench reads version = 1", "unknown version %d", s.Version)
	}
	if s.Name == "" {
		s.Name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	}
	if inv == nil && s.InventoryPath != "" {
		at := s.Beside(s.InventoryPath, "inventory")
		s.inv, err = inventory.Load(at)
		switch ps := asProblems(err); {
		case len(ps) > 0:
			f.Problemf("inventory", "", "inventory %s has problems", at)
			problems = append(problems, ps...)
		case err != nil:
			f.Problemf("inventory", "", "%v", err)
		}
	}
	if inv == nil && s.Topology() == nil && !slices.ContainsFunc([]string{"inventory", "fat_tree", "clos"}, f.Has) {
		f.KeyProblemf("", `write inventory = "rack.toml", or a [fat_tree] table`, "missing inventory")
	}
	problems = append(problems, s.loadModels(f)...)
	problems = append(problems, s.expand(f)...)
	problems = append(problems, f.Problems()...)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Decode reads what a text says, with assignments, and checks nothing.
func (ks Kinds) Decode(name string, text []byte, sets []string) (*Spec, *tomlfile.File, tomlfile.Problems, error) {
	f, err := tomlfile.Parse(name, text, ks.tables()...)
	if err != nil {
		return nil, nil, nil, err
	}
	var problems tomlfile.Problems
	for _, set := range sets {
		g, err := f.Set(Spec{}, set)
		if err != nil {
			problems = append(problems, asProblems(err)...)
			continue
		}
		f = g
	}
	sum := sha256.Sum256(text)
	s := &Spec{kinds: ks, File: name, SHA256: hex.EncodeToString(sum[:]), Text: string(text), Overrides: sets}
	f.Decode(s)
	s.file = f
	return s, f, problems, nil
}

// Quick are the assignments that a text has for its small version: as Load and Parse
// take them. It is tomlfile.Problems if there are none.
func Quick(name string, text []byte) ([]string, error) {
	f, err := tomlfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	var head struct {
		Quick []string `toml:"quick"`
	}
	f.Decode(&head) // its complaints about other keys are not for here
	if len(head.Quick) == 0 {
		g, _ := tomlfile.Parse(name, text)
		g.Report(g.Pos("quick"), `write quick = ["measure.repeats=1"]`, "the experiment has no small version")
		return nil, g.Err()
	}
	return head.Quick, nil
}

func asProblems(err error) tomlfile.Problems {
	var ps tomlfile.Problems
	errors.As(err, &ps)
	return ps
}

// Expectations are the [[expect]] blocks with everything filled in.
func (s *Spec) Expectations() []results.Expect {
	out := make([]results.Expect, len(s.Expects))
	for i, e := range s.Expects {
		out[i] = e.resolved
	}
	return out
}

// ExpectationsAt are the [[expect]] blocks in the units of an emulation, which figures have there.
func (s *Spec) ExpectationsAt(scale results.Scale) []results.Expect {
	out := s.Expectations()
	for i, e := range s.Expects {
		if !scale.Scales(e.Metric, e.unit) {
			continue
		}
		out[i].Value = scale.Emulated(out[i].Value, e.unit)
		if !out[i].Relative && out[i].Statistic != results.Correlation {
			out[i].Tolerance = scale.Emulated(out[i].Tolerance, e.unit)
		}
	}
	return out
}

// Job finds a job by name.
func (s *Spec) Job(name string) (*Job, bool) {
	for i := range s.Jobs {
		if s.Jobs[i].Name == name {
			return &s.Jobs[i], true
		}
	}
	return nil, false
}

// Beside is the path of a file that the experiment names: relative to its folder, or to the
// current one where a flag says so.
func (s *Spec) Beside(path, key string) string {
	flag := slices.ContainsFunc(s.Overrides, func(set string) bool {
		of, _, _ := strings.Cut(set, "=")
		return strings.TrimSpace(of) == key
	})
	if flag || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(s.File), path)
}
