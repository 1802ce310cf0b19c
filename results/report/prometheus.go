package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// WritePrometheus writes the run in Prometheus' text format, for the textfile collector of
// node_exporter: one file for each experiment, in the place of the one before. Names and labels do
// not change. Everything is a gauge, in the base units of Prometheus: bytes per second for bit/s. Of a
// sweep's repeats it has the means; points that the testbed limited are left out.
func WritePrometheus(w io.Writer, rec *results.Record) error {
	p := exposition{families: map[string]*family{}}
	run := labels{{"experiment", rec.Name}}
	p.add("inabench_run_info", "What ran, where and with which version; always 1.", append(run[:1:1],
		label{"run", rec.ID}, label{"driver", rec.Driver}, label{"switch", rec.Switch}, label{"kind", string(rec.Kind)},
		label{"scale", rec.Scale.String()}, label{"tool", rec.Tool}), 1)
	for _, o := range []results.Outcome{results.Pass, results.Fail, results.Inconclusive, results.NotJudged, results.ErrorOutcome} {
		p.add("inabench_run_outcome", "1 for what the run's outcome is, 0 for what it is not.", append(run[:1:1], label{"outcome", string(o)}), float64(rank(rec.Outcome == o)))
	}
	p.add("inabench_run_exit_code", "Exit code of the run.", run, float64(rec.ExitCode))
	if !rec.Started.IsZero() {
		p.add("inabench_run_start_time_seconds", "When the run began, in Unix time.", run, float64(rec.Started.UnixMilli())/1e3)
	}
	if rec.Complete() {
		p.add("inabench_run_duration_seconds", "How long the run took.", run, rec.Finished.Sub(rec.Started).Seconds())
	}
	pass, fail, open, skipped, _ := countOutcomes(rec)
	for _, c := range []struct {
		outcome results.Outcome
		n       int
	}{{results.Pass, pass}, {results.Fail, fail}, {results.Inconclusive, open}, {results.Skipped, skipped}} {
		p.add("inabench_run_checks", "Checks that decide the run, by outcome.", append(run[:1:1], label{"outcome", string(c.outcome)}), float64(c.n))
	}
	checked, wrong, _ := sumsOf(rec)
	p.add("inabench_run_sums_checked", "Reduced values that were compared with the reference.", run, float64(checked))
	p.add("inabench_run_sums_wrong", "Reduced values that were not what they should be.", run, float64(wrong))
	problems := 0
	for _, t := range troublesOf(rec) {
		problems += rank(t.Fatal)
	}
	p.add("inabench_run_testbed_problems", "Signs that the testbed itself limited a point.", run, float64(problems))

	for _, c := range rec.Checks {
		who := append(run[:1:1], label{"check", c.Expect}, label{"point", c.Point}, label{"phase", strconv.Itoa(c.Phase + 1)},
			label{"of", c.Of}, label{"metric", c.Metric}, label{"predictor", c.Predictor})
		p.add("inabench_check_failed", "1 if the check failed, with the code that inabench explain knows; 0 if it held. Undecided and skipped ones are left out.",
			append(who[:len(who):len(who)], label{"code", c.FailureCode()}, label{"gate", strconv.FormatBool(c.Gate)}), float64(rank(c.Outcome == results.Fail)), c.Outcome == results.Fail || c.Outcome == results.Pass)
		decided := c.Repeats > 0 && c.Predictor != results.Evidence && !c.IsError() && c.Statistic != results.Correlation
		p.add("inabench_check_error_ratio", "Measured less predicted, as a part of what is predicted.", who, c.Error, decided && c.Relative)
		p.add("inabench_check_tolerance_ratio", "What of that the check allows.", who, c.Tolerance, decided && c.Relative)
	}

	cells := results.Settings(rec.Points)
	seen := map[string]bool{}
	for _, point := range rec.Points {
		for _, phase := range point.Phases {
			for _, f := range phase.Figures {
				seen[f.Metric] = true
			}
		}
	}
	for _, metric := range slices.Sorted(maps.Keys(seen)) {
		for _, d := range data(cells, metric, func(string) bool { return true }) {
			unit, div := d.unit, 1.0
			who := append(run[:1:1], label{"point", cells[d.cell].Labels}, label{"phase", strconv.Itoa(d.phase + 1)}, label{"of", d.of}, label{"metric", metric})
			suffix := "value"
			switch unit {
			case "bit/s":
				suffix, div = "bytes_per_second", 8
			case "B":
				suffix = "bytes"
			case "s":
				suffix = "seconds"
			case "1/s":
				suffix = "per_second"
			case "", "1":
			default: // no unit of Prometheus
				who = append(who, label{"unit", unit})
			}
			if d.seen {
				of := append(who[:len(who):len(who)], label{"kind", string(d.observed.Kind)})
				p.add("inabench_measured_"+suffix, "What was measured, or simulated (kind).", of, d.observed.Value/div)
				p.add("inabench_measured_low_"+suffix, "Lower end of the 95 % interval of what was measured.", of, d.observed.Lo/div)
				p.add("inabench_measured_high_"+suffix, "Upper end of the 95 % interval of what was measured.", of, d.observed.Hi/div)
			}
			for _, predictor := range slices.Sorted(maps.Keys(d.predicted)) {
				p.add("inabench_predicted_"+suffix, "What a model predicted.", append(who[:len(who):len(who)], label{"predictor", predictor}), d.predicted[predictor]/div)
			}
		}
	}
	return p.write(w)
}

type label struct{ name, value string }

type labels []label

// String is the labels as they are written; those without a value are left out, which means
// the same.
func (l labels) String() string {
	var parts []string
	for _, x := range l {
		if x.value != "" {
			parts = append(parts, x.name+`="`+promEscape.Replace(strings.ToValidUTF8(x.value, "\uFFFD"))+`"`)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

var promEscape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// exposition is a document of the text format.
type exposition struct {
	order    []string
	families map[string]*family
}

type family struct {
	help  string
	lines []string
	seen  map[string]bool
}

// add adds a sample, unless one of the conditions does not hold. Of samples with the same labels
// the first stays: there must be no two.
func (p *exposition) add(name, help string, l labels, v float64, wanted ...bool) {
	for _, w := range wanted {
		if !w {
			return
		}
	}
	f := p.families[name]
	if f == nil {
		f = &family{help: help, seen: map[string]bool{}}
		p.families[name], p.order = f, append(p.order, name)
	}
	key := l.String()
	if f.seen[key] || !human.Finite(v) {
		return
	}
	f.seen[key] = true
	f.lines = append(f.lines, name+key+" "+human.Exact(v))
}

func (p *exposition) write(w io.Writer) error {
	var b strings.Builder
	for _, name := range p.order {
		f := p.families[name]
		if len(f.lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, f.help, name)
		for _, l := range f.lines {
			b.WriteString(l + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
