// Package study is the seam between a run and what an experiment is about. A Study does one repeat of a point: on a
// testbed with a Bench, which has all that it needs of the run, and where it is a Simulator in virtual time by
// itself. What it measured comes back as a results.Point, and the run repeats, judges, records and reports it.
//
// The rest is what several studies need: Sampler and LinkLoads read a testbed's counters, Stillness finds what
// stood still meanwhile, Measurer draws figures from samples, Once keeps what was calibrated.
package study

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/remote"
)

// Study is what an experiment is about: jobs that begin and end when it says, jobs that come over time,
// are placed when they do, and leave, or programs that others wrote.
type Study interface {
	spec.Study
	// Supports is an error, wrapping errors.ErrUnsupported, if a driver cannot do it.
	Supports(driver string) error
	// Ready is an error if the jobs of a point, in all of its repeats, cannot be had.
	Ready(p Planned) error
	// Run is one repeat of a point on a testbed, with what was measured also with an error. rows are
	// those of a repetition.
	Run(ctx context.Context, b *Bench) (point *results.Point, rows [][]string, err error)
	// Columns are those of the rows, nil if there are none.
	Columns() []string
}

// What only some studies do, each asked for where it is used.
type (
	// Placer decides where the jobs of a point are before any of them runs.
	Placer interface {
		Place(ctx context.Context, s *spec.Spec) (*placement.Plan, error)
	}
	// Planner says what a point should bring before it runs.
	Planner interface {
		Plan(ctx context.Context, p Planned) (PlanPoint, error)
	}
	// Predicted is what predictors of others are asked of a point before it runs, in the lab's units.
	Predicted interface {
		Request(p Planned) (*predictor.Request, error)
	}
	// Scheduled knows how long a point takes on a testbed in real time, by its own times.
	Scheduled interface {
		Lasts(s *spec.Spec) time.Duration
	}
	// Settled knows before it runs which hosts and switches it uses.
	Settled interface {
		Uses(p Planned, inv *inventory.Inventory) (hosts, switches []string)
	}
	// Switched says whose packets switches have to know, and what to write so that they need not; "": nobody's.
	Switched interface {
		Switched() (of, use string)
	}
	// Simulator does one repeat of a point in virtual time by itself, without a testbed.
	Simulator interface {
		Simulate(ctx context.Context, s *spec.Spec, repeat int) (*Repetition, error)
	}
	// Builder wants something of the fabric that an emulation builds.
	Builder interface {
		Build(k *FabricKey, s *spec.Spec, driver string)
	}
	// Reader, which other tables of the study may be too, hands over the paths of files that it reads, with the keys that name them.
	Reader interface {
		Files(add func(path, key string))
	}
	// Finisher adds to what testbeds measured what follows from several points.
	Finisher interface {
		Finish(rec *results.Record)
	}
)

// Repetition is what one repeat of a point came to in virtual time.
type Repetition struct {
	End     float64 // s
	Figures []results.Figure
	Missing []results.Missing
	Curves  []results.Curve
	Rows    [][]string // a job each, for jobs.csv.gz

	// Request is what predictors of others are told of it, with the figures that what they answer stands beside, and that the
	// record has where they are asked. nil: they are told nothing. It is lost where a batch system simulates.
	Request func(p Planned) (*predictor.Request, []results.Figure, error)

	Machines   []results.Machine
	MachinesAt float64 // s; see results.Point
}

// Exactly is a figure without an interval, in its metric's unit.
func Exactly(name, of string, kind results.Kind, v float64) results.Figure {
	return results.Figure{Metric: name, Of: of, Kind: kind, Value: v, Lo: v, Hi: v, N: 1, Unit: metric.Of(name, "").Unit}
}

// Foretold is a figure of a predictor, and what limits it, as far as it says.
func Foretold(by, name, of string, v float64, bottleneck string) results.Figure {
	f := Exactly(name, of, results.Predicted, v)
	f.Predictor, f.Bottleneck = by, bottleneck
	return f
}

// Cohort is the same for points of one repeat that differ in nothing but a swept key.
func Cohort(p *results.Point, key string) string {
	rest := slices.DeleteFunc(slices.Clone(p.Labels), func(l string) bool { return strings.HasPrefix(l, key+"=") })
	return fmt.Sprint(p.Repeat, rest)
}

// PointOverhead is what a point takes besides its jobs: a controller, ranks, and their end.
const PointOverhead = 2 * time.Second

// InSeconds is a time in seconds as rows have it.
func InSeconds(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Placed is what became of the jobs of a study that places them as they come: as they ran, when they were told to begin, in seconds on
// the run's clock, and what was counted of what they handed over.
type Placed struct {
	Plan   placement.Plan
	Names  map[string]string // of the plan, by those that summaries have
	Begun  map[string]float64
	Beside bool // others' packets pass the same ports
	Once   bool // no job comes again under its name
	// Iteration is of how many PSNs one of a job is, by its name in the plan, as far as that is known.
	Iteration map[string]float64
	// Readings are what was counted of what is handed over, under the names of the study's counters.
	Readings results.Readings
}

// Keep keeps what is counted of what is handed over, under other names where a counter has one; those whose
// other name is empty are left out.
func (p *Placed) Keep(names map[string]string, got []results.Sample) {
	for _, s := range got {
		if name, other := names[s.Metric]; other {
			s.Metric = name
		}
		if handedOver(s.Metric) {
			p.Readings.Add(s)
		}
	}
}

// Planned is a point with its placement.
type Planned struct {
	spec.Point
	Plan  *placement.Plan
	Times int    // how often it is done; 0: as often as its spec says
	On    string // the driver; "": nobody has said yet
}

// EachSeed asks something of the seed of each repeat of the point, or where nothing is drawn of the first alone. The error is the
// first, and names the repeat.
func (p *Planned) EachSeed(drawn bool, ask func(seed uint64) error) error {
	repeats := 1
	if drawn {
		repeats = cmp.Or(p.Times, p.Spec.Measure.UpTo())
	}
	for i := range repeats {
		err := ask(p.Spec.Measure.Seed + uint64(i))
		switch {
		case err != nil && i > 0:
			return fmt.Errorf("repeat %d: %w", i+1, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// Has says whether the point has all of the labels.
func (p *Planned) Has(labels []string) bool { return results.Labelled(p.Labels, labels) }

// FabricKey is the part of a spec that is built into an emulated fabric: points
// that differ in it need another one.
type FabricKey struct {
	Inventory   string // its text's hash
	Kind        string // of its switches
	Queue       string
	Buffer, ECN inventory.Bytes
	Scale       results.Scale
	Trees       bool // jobs take turns with trees, which somebody else puts into the switches
	Freely      bool // and need not take turns
	Beat        time.Duration
	Lanes       int               // of packets, by whose round trip lateness is judged; 0: by Beat
	Rate        inventory.BitRate // of hosts' NICs; 0: as the inventory says
}

// NetworkOf names what packets find between hosts, as points of a run may differ in it: the part of a key of Once whose value
// was measured of transfers.
func NetworkOf(s *spec.Spec) string {
	sw := &s.Switch
	return fmt.Sprintf("%s queue %s buffer %d ecn %d", s.Inventory().SHA256, sw.Queue, int64(sw.Buffer), int64(sw.ECN))
}

// JobTimeout is how long after the last planned event jobs may take for their
// iterations.
const JobTimeout = 15 * time.Minute

// OnTheWay are the counters of what became of packets between hops.
var OnTheWay = map[string]string{
	"port_rx_drop_packets": "lost", "port_tx_drop_packets": "lost",
	"port_rx_dup_packets": "doubled", "port_tx_dup_packets": "doubled",
	"nic_tx_drops": "other", "nic_rx_drops": "other", "worker_socket_drops": "other",
	// Of labs; what two of them count of the same only loosens.
	"mac_tx_discards": "other", "mac_rx_discards": "other", "mac_tx_errors": "other", "mac_rx_errors": "other",
	"nic_rx_discards_phy": "other", "nic_tx_discards_phy": "other", "nic_rx_crc_errors_phy": "other", "nic_rx_symbol_err_phy": "other",
}

// handedOver says whether hops are told by a counter.
func handedOver(metric string) bool {
	return strings.HasPrefix(metric, "job_") || strings.HasPrefix(metric, "worker_") || OnTheWay[metric] != ""
}

// FrameBits is the size of a packet of gradients with so many lanes on the wire in bits, Ethernet header
// in, preamble and FCS out.
func FrameBits(lanes int) float64 { return 8 * float64(placement.INAOverhead+4*lanes) }

// Factors are what computing times and gradients are multiplied by on a testbed.
func Factors(scale results.Scale) (times, bytes float64) {
	switch scale.Mode {
	case results.SlowMotion:
		return scale.Factor, 1
	case results.Shrunk:
		return 1, 1 / scale.Factor
	}
	return 1, 1
}

// Fastest is the rate of the hosts' fastest cable.
func Fastest(inv *inventory.Inventory) (rate inventory.BitRate) {
	for _, h := range inv.Hosts {
		rate = max(rate, h.NICs[0].Rate)
	}
	return rate
}

// Anew begins a new interval of health: how late frames were while processes started is of
// no interest.
func Anew(ctx context.Context, tb *remote.Testbed) error {
	_, err := tb.Health(ctx)
	return err
}

// SettingsOf are what the spec says of all switches and senders, which use so many
// aggregators.
func SettingsOf(s *spec.Spec, aggregators int) testbed.Settings {
	return testbed.Settings{
		Mode: s.Switch.Mode, Addressing: s.Switch.Addressing, Aggregators: aggregators,
		Queue: s.Switch.Queue, Lanes: s.Switch.Lanes, Seed: s.Measure.Seed,
	}
}

// Mean is the mean of numbers, NaN of none.
func Mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
