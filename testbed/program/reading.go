package program

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
)

// Kind names a workload.
type Kind string

// The workloads there are.
const (
	IPerf3   Kind = "iperf3"
	Perftest Kind = "perftest"
	NCCL     Kind = "nccl-tests"
	Torchrun Kind = "torchrun"
	ATP      Kind = "atp"
	SwitchML Kind = "switchml"
	Exec     Kind = "exec"
)

// Kinds are all of them.
func Kinds() []string {
	return []string{string(IPerf3), string(Perftest), string(NCCL), string(Torchrun), string(ATP), string(SwitchML), string(Exec)}
}

// Metrics are those that readers find. Those of Extract are declared with the rule.
var Metrics = strings.Fields("goodput total_goodput wire_rate algbw busbw latency latency_p99 jitter jct loss retransmits sum_errors message_rate")

// ErrFailed is wrapped when a program's own output says that it failed, whatever its exit
// status.
var ErrFailed = errors.New("the program failed")

// ErrOutput is wrapped when output is not what the program is documented to print, or is cut
// off.
var ErrOutput = errors.New("unexpected output")

// Reading is what a program's output says.
type Reading struct {
	// Figures are measured ones in base units. Of is the part of the program that they are
	// about, such as a size; empty: all of it.
	Figures []results.Figure
	Notes   []string // what was converted, or is odd
	// arrived is the counter behind goodput, of one flow; nil: there is none.
	arrived *results.Series
	// Longest is the size of the longest vectors that figures of nccl-tests are of, bytes; 0: of others.
	Longest int64
	// Rows is how many rows a table of nccl-tests has, in place and out of place; of so many of them, Checked, results were
	// compared with what they should be.
	Rows, Checked int
	lines         []tableLine // of such a table, and of perftest's
	// Wrong is what the program found wrong with its own results, empty: nothing.
	Wrong string
	over  bool // there were more figures than are kept
}

// add adds an exact figure, drawn from n repetitions inside the program.
func (r *Reading) add(name, of string, v float64, n int) {
	if len(r.Figures) >= mostFigures {
		r.over = true
		return
	}
	r.Figures = append(r.Figures, results.Figure{
		Metric: name, Of: of, Kind: results.Measured, Value: v, Lo: v, Hi: v, N: n, Unit: metric.Of(name, "").Unit,
	})
}

// addRate adds the rate of a counter, with the interval that its readings allow.
func (r *Reading) addRate(name, of string, factor float64, s results.Series) error {
	n := len(s.T)
	if n < 2 {
		return fmt.Errorf("%w: %s: fewer than two readings", ErrOutput, name)
	}
	f, err := results.Rate(results.Window{Start: s.T[0], End: s.T[n-1]}, s)
	if err != nil {
		return fmt.Errorf("%w: %s: %v", ErrOutput, name, err)
	}
	f = f.Affine(factor, 0)
	f.Metric, f.Of, f.Kind, f.Unit = name, of, results.Measured, metric.Of(name, "").Unit
	r.Figures = append(r.Figures, f)
	return nil
}

// addMean adds the mean of equal repetitions with its 95 % interval.
func (r *Reading) addMean(name, of string, v []float64) {
	f := results.Mean(v)
	f.Metric, f.Of, f.Kind, f.Unit = name, of, results.Measured, metric.Of(name, "").Unit
	r.Figures = append(r.Figures, f)
}

// Bounds of what is kept of what a program says. Of notes they are the first ones; who has more figures is not read.
const (
	mostNotes   = 100
	mostFigures = 10_000  // of a process
	mostInAll   = 100_000 // of all processes of a program
	mostLine    = 1 << 20 // bytes of a line
)

func (r *Reading) note(format string, args ...any) {
	if len(r.Notes) >= mostNotes {
		return
	}
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// About names the program in every figure: what was about "1MiB" is about "A/1MiB".
func (r *Reading) About(name string) {
	for i := range r.Figures {
		r.Figures[i].Of = strings.Trim(name+"/"+r.Figures[i].Of, "/")
	}
}

func finite(v ...float64) bool {
	return !slices.ContainsFunc(v, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
}

// SizeName is a size in bytes as subjects of figures are named: "512MiB".
func SizeName(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}
