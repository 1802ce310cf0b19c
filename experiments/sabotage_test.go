package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/testbed/sabotage"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// cells are the settings in which every fault is tried, at their small size where they have one.
var cells = []struct {
	name, file string
	sets       []string
}{
	{"quickstart", "quickstart.toml", nil},
	{"two-racks", "two-racks.toml", nil},
	{"waterfill", "waterfill.toml", nil},
	{"addressing", "addressing.toml", nil},
	{"synchronous", "quickstart.toml", []string{"switch.mode=synchronous"}},
	{"trace", "fidelity.toml", nil},
	{"mina-pairs", "mina-pairs.toml", nil},
	{"titan", "titan-testbed.toml", nil},
	{"shared-memory", "addressing-shared.toml", nil}, // less memory than the jobs ask for
	{"atp", "addressing-atp.toml", nil},
}

// loadCell is an experiment's small version, or the experiment, with assignments.
func loadCell(t *testing.T, file string, sets []string) *spec.Spec {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	quick, _ := spec.Quick(file, text)
	spec, err := kinds.Load(file, append(quick, sets...)...)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestNoBaseline: what is not calibrated apart from a run is refused before anything is brought up.
func TestNoBaseline(t *testing.T) {
	for _, file := range []string{"fidelity.toml", "mina-pairs.toml", "titan-testbed.toml", "autops-testbed.toml", "iperf3.toml"} {
		_, err := MeasureBaseline(t.Context(), "netns", loadCell(t, file, nil), drivers.Holding{}, func(s Status) { t.Errorf("%s: %+v", file, s) })
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSabotageParts: who does not say which part gets the first of the largest job, and who names
// one that is not there, or asks for what has no meaning, is told before anything is touched.
func TestSabotageParts(t *testing.T) {
	for _, c := range []struct {
		file, driver, order string
		sets                []string
		part, refused       string
	}{
		{file: "quickstart.toml", order: "flip-sums", part: "tor1"},
		{file: "quickstart.toml", order: "stop", part: "A/0"},
		{file: "quickstart.toml", order: "stop=B/*", part: "B/*"},
		{file: "quickstart.toml", order: "suspend", part: "A/*"},
		{file: "quickstart.toml", order: "ps-drops", part: "A/ps"},
		{file: "quickstart.toml", order: "jump-clock", part: "A/0"},
		{file: "quickstart.toml", order: "slow-up", part: "h1->tor1"},
		{file: "quickstart.toml", order: "slow-down", part: "tor1->h3"},
		{file: "quickstart.toml", order: "slow-down=h2->tor1", part: "h2->tor1"},
		{file: "two-racks.toml", order: "forget-job", part: "tor1"},
		{file: "fidelity.toml", order: "stop", part: "*/0"},
		{file: "mina-pairs.toml", order: "hang", part: "*/0"},
		{file: "quickstart.toml", driver: "sim", order: "slow-up", part: "h1->tor1"},

		{file: "quickstart.toml", driver: "lab", order: "stop", refused: "a lab is not sabotaged"},
		{file: "quickstart.toml", driver: "sim", order: "flip-sums", refused: "no sums"},
		{file: "policies.toml", driver: "sim", order: "stop", refused: "a study in the simulator"},
		{file: "iperf3.toml", order: "slow-up", refused: "programs of others"},
		{file: "autops-testbed.toml", order: "stop", refused: "the processes of a Parameter Service have no faults"},
		{file: "mina-pairs.toml", order: "restart", refused: "lost the connections"},
		{file: "titan-testbed.toml", order: "restart", refused: "lost the connections"},
		{file: "mina-pairs.toml", order: "ps-drops", refused: "no job has a PS"},
		{file: "fidelity.toml", order: "restart", part: "*/0"},
		{file: "quickstart.toml", order: "stop=C/0", refused: `no worker "C/0"`},
		{file: "quickstart.toml", order: "flip-sums=tor9", refused: `no switch "tor9"`},
		{file: "quickstart.toml", order: "slow-up=tor1", refused: `no link "tor1"`},
		{file: "quickstart.toml", order: "ps-drops", sets: []string{"switch.mode=synchronous"}, refused: "ps"},
	} {
		t.Run(c.file+" "+c.driver+" "+c.order, func(t *testing.T) {
			o, err := ParseSabotage(c.order)
			if err != nil {
				t.Fatal(err)
			}
			spec := loadCell(t, c.file, c.sets)
			points, err := plans(t.Context(), spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.driver == "" {
				c.driver = "netns"
			}
			got, err := sabotaged(o, spec, c.driver, points)
			switch {
			case c.refused == "" && (err != nil || got.Part != c.part):
				t.Errorf("%+v, %v, want %s", got, err, c.part)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("refused with %v, want %s", err, c.refused)
			}
		})
	}
	if _, err := ParseSabotage("flip-sum"); !errors.Is(err, spec.ErrInput) {
		t.Errorf("a fault that there is none of: %v", err)
	}
}

// TestRestartOfRing: workers of a ring have nothing to begin again with, as opposed to others.
func TestRestartOfRing(t *testing.T) {
	pair := []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}}
	points := []study.Planned{{Plan: &placement.Plan{Jobs: []placement.JobPlan{
		{Name: "A", Collective: placement.INA, PS: "h3", Workers: pair}, {Name: "R", Collective: placement.Ring, Workers: pair},
	}}}}
	for _, c := range []struct {
		order string
		fine  bool
	}{{"restart=A/0", true}, {"restart=*/0", true}, {"restart=R/0", false}, {"stop=R/0", true}, {"wrong-gradient=R/1", true}} {
		o, err := ParseSabotage(c.order)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkPart(o, &spec.Spec{}, points); (err == nil) != c.fine {
			t.Errorf("%s: %v", c.order, err)
		}
	}
}

// TestSabotageInLab: a lab is not looked at before the fault is refused.
func TestSabotageInLab(t *testing.T) {
	o, err := ParseSabotage("stop")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	_, _, err = Run(t.Context(), loadCell(t, "quickstart.toml", nil), RunOptions{Driver: "lab", Root: root, Sabotage: o})
	var begin *BeginError
	if !errors.As(err, &begin) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(root); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

// TestSabotageRecorded: the record says what was wrong and how often it acted, in the model; of a
// run without a fault it says nothing.
func TestSabotageRecorded(t *testing.T) {
	run := func(order string) *results.Record {
		var o *sabotage.Order
		if order != "" {
			var err error
			if o, err = ParseSabotage(order); err != nil {
				t.Fatal(err)
			}
		}
		rec, _, err := Run(t.Context(), loadCell(t, "quickstart.toml", nil), RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test", Sabotage: o})
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	if rec := run(""); rec.Sabotage != nil || rec.Points[0].Sabotaged != 0 || rec.Outcome != results.Pass {
		t.Errorf("without a fault: %+v, %s", rec.Sabotage, rec.Outcome)
	}
	rec := run("hang")
	if s := rec.Sabotage; s == nil || s.Fault != "hang" || s.Part != "A/0" || s.Acted != 1 || rec.Points[0].Sabotaged != 1 {
		t.Errorf("%+v", rec.Sabotage)
	}
	if rec.Outcome == results.Pass {
		t.Error("a job that hangs passed")
	}
	rec = run("exaggerate") // nothing was denied that it could hide
	if !slices.ContainsFunc(rec.Warnings, func(w string) bool { return strings.HasPrefix(w, results.CodeSabotageIdle) }) {
		t.Errorf("an idle fault is not warned of: %+v, %v", rec.Sabotage, rec.Warnings)
	}
}

// TestSabotage gives the testbed every fault that it can have, and holds the verdict to what is
// right: in two settings in the model, or with INABENCH_SABOTAGE=netns in all of them on the emulated
// rack, which takes hours. INABENCH_SABOTAGE_FAULTS and INABENCH_SABOTAGE_CELLS are lists of names
// that narrow it down, with commas.
func TestSabotage(t *testing.T) {
	driver := "sim"
	if os.Getenv("INABENCH_SABOTAGE") == "netns" {
		driver = "netns"
		testbedtest.Require(t, driver, noNamespaces)
	}
	chosen := func(list, name string) bool {
		return os.Getenv(list) == "" || slices.Contains(strings.Split(os.Getenv(list), ","), name)
	}
	root, sound := t.TempDir(), map[string]*results.Dir{} // by cell: a run without a fault
	for _, f := range sabotage.Catalogue {
		if f.Refused(driver, "") != "" || !chosen("INABENCH_SABOTAGE_FAULTS", f.Name) {
			continue
		}
		var seen tally
		for _, c := range cells {
			if driver == "sim" && c.name != "quickstart" && c.name != "synchronous" || !chosen("INABENCH_SABOTAGE_CELLS", c.name) {
				continue
			}
			t.Run(f.Name+"/"+c.name, func(t *testing.T) {
				spec := loadCell(t, c.file, c.sets)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				rec, dir, err := Run(ctx, spec, RunOptions{Driver: driver, Root: t.TempDir(), Tool: "test", Sabotage: &sabotage.Order{Fault: f}})
				if rec == nil {
					if f.At != sabotage.PS && !errors.Is(err, errors.ErrUnsupported) { // a synchronous job has no PS
						t.Error(err)
					}
					return
				}
				t.Logf("%s: %s; named: %t; %s", rec.Outcome, rec.Sabotage, names(rec, spec.Inventory()), strings.Join(rec.Reasons, "; "))
				seen.add(rec, spec.Inventory())
				if wrong := misjudged(f, rec); wrong != "" {
					t.Error(wrong)
				}
				if rec.Outcome != results.Pass || rec.Sabotage.Acted == 0 {
					return
				}
				if sound[c.name] == nil {
					if rec, sound[c.name], err = Run(ctx, loadCell(t, c.file, c.sets), RunOptions{Driver: driver, Root: root, Tool: "test"}); err != nil {
						t.Fatal(err)
					}
					if rec.Outcome == results.Fail {
						t.Errorf("without a fault: %s: %s", rec.Outcome, strings.Join(rec.Reasons, "; "))
					}
				}
				pair, err := history.Compare(ctx, nil, sound[c.name].Path, dir.Path, history.PairOptions{Across: true})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("without it, and with it: %s", strings.Join(pair.Summaries(), "; "))
				_, rows, _ := pair.Table(true)
				for _, row := range rows {
					t.Log("figure: " + strings.Join(row, " | "))
				}
			})
		}
		t.Logf("%s: ran %d times, acted in %d, not passed in %d, its part named in %d", f.Name, seen.ran, seen.acted, seen.bit, seen.named)
	}
}

// tally is what became of a fault in several settings.
type tally struct{ ran, acted, bit, named int }

func (n *tally) add(rec *results.Record, inv *inventory.Inventory) {
	n.ran++
	if rec.Sabotage.Acted > 0 {
		n.acted++
	}
	if rec.Outcome != results.Pass {
		n.bit++
		if names(rec, inv) {
			n.named++
		}
	}
}

// names says whether what is said of a run that failed names the part that had the fault: a switch,
// either end of a link, or a worker or PS by itself or with its host. What is undecided says why.
func names(rec *results.Record, inv *inventory.Inventory) bool {
	var said []string
	for _, p := range rec.Points {
		said = append(said, p.Error)
	}
	if rec.Outcome == results.ErrorOutcome {
		said = append(said, rec.Reasons...)
	}
	for _, c := range rec.Checks {
		if c.Outcome == results.Fail {
			said = append(said, c.Of+" "+c.Why)
		}
	}
	part := rec.Sabotage.Part
	from, to, link := strings.Cut(part, "->")
	job, worker, _ := strings.Cut(part, "/")
	for _, text := range said {
		switch {
		case strings.Contains(text, part):
			return true
		case link: // a cable is known by the host at its end, or as a port of its switch
			if _, host := inv.Host(from); host && word(text, from) || !host && word(text, to) {
				return true
			}
		case worker == "ps": // "ps A on host h3", or "job A is not told by its PS on host h3"
			if one := glob(job); regexp.MustCompile(`\bps ` + one + ` on host |\bjob ` + one + ` .*its PS on host `).MatchString(text) {
				return true
			}
		case job == "*" || worker == "*":
			if regexp.MustCompile(glob(part)).MatchString(text) {
				return true
			}
		case strings.Contains(text, "rank "+worker+" of job "+job), strings.Contains(text, "rank "+worker+" of "+job):
			return true
		}
	}
	return false
}

// glob is the pattern of a part of which * stands for any name.
func glob(part string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(part), `\*`, `[\w.-]+`)
}

// word says whether a name stands in a text by itself.
func word(text, name string) bool {
	return regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(name) + `($|[^\w-])`).MatchString(text)
}

// TestStopsAreNoticed: a job that ends too early or hangs fails the run also where all figures that
// are judged are right.
func TestStopsAreNoticed(t *testing.T) {
	const (
		stream = "duration = \"4s\""
		finite = "message = \"100MB\"\niterations = 100" // some 4 s
	)
	for _, c := range []struct{ fault, job, mode, code string }{
		{"hang", stream, "statistical", results.CodeJobStopped},
		{"hang", stream, "synchronous", results.CodeJobStopped},
		{"stall", stream, "statistical", results.CodeJobStopped},
		{"stall", stream, "synchronous", results.CodeJobStopped},
		{"stop", stream, "statistical", results.CodeJobEnded},
		{"end-early", stream, "synchronous", results.CodeJobEnded},
		{"end-early", finite, "statistical", results.CodeIterations},
		{"end-early", finite, "synchronous", results.CodeIterations},
		{"", stream, "statistical", ""},
		{"", finite, "synchronous", ""},
	} {
		t.Run(fmt.Sprintf("%s/%s/%.8s", c.fault, c.mode, c.job), func(t *testing.T) {
			spec := pairOn(t, "50us", `
inventory = "pair.toml"
[switch]
mode = %q
[[job]]
name = "A"
hosts = ["h1", "h2"]
rate = "20Gbit/s"
window = 1024
%s
[measure]
warmup = "500ms"
duration = "3s"
[[expect]]
metric = "wire_rate"
value = "99Gbit/s"
bound = "at-most"
reason = "no job has all of a cable"
`, c.mode, c.job)
			o := RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"}
			if c.fault != "" {
				var err error
				if o.Sabotage, err = ParseSabotage(c.fault); err != nil {
					t.Fatal(err)
				}
			}
			rec, _, err := Run(t.Context(), spec, o)
			if err != nil {
				t.Fatal(err)
			}
			named := slices.ContainsFunc(rec.Checks, func(k results.Check) bool { return k.Code == c.code && k.Outcome == results.Fail })
			if want := c.fault != ""; named != want || (rec.Outcome == results.Fail) != want || rec.ExitCode != results.ExitCode(rec.Outcome) {
				t.Errorf("%s, exit code %d, want %s: %q", rec.Outcome, rec.ExitCode, c.code, rec.Reasons)
			}
		})
	}
}

// misjudged says what is wrong about the verdict on a run with a fault; empty: nothing.
func misjudged(f sabotage.Fault, rec *results.Record) string {
	acted, wrong := rec.Sabotage.Acted > 0, int64(0)
	for _, p := range rec.Points {
		for _, j := range p.Jobs {
			wrong += j.SumErrors
		}
	}
	passed := rec.Outcome == results.Pass
	switch {
	case passed && wrong > 0:
		return fmt.Sprintf("passed with %d wrong sums", wrong)
	case !acted && passed, rec.Outcome == results.Inconclusive && f.Want != sabotage.Undecided:
		return "" // nothing to judge, or the machine was in the way
	case f.Want == sabotage.Fail && passed:
		return "passed, and is to fail by: " + f.Sign
	case f.Want == sabotage.Undecided && passed, f.Want == sabotage.Undecided && rec.Outcome == results.Fail:
		return fmt.Sprintf("%s, and is undecided: %s", rec.Outcome, f.Sign)
	case f.Want == sabotage.Harmless && !passed:
		return fmt.Sprintf("%s, and is harmless: %s", rec.Outcome, f.Sign)
	}
	return ""
}

// TestMisjudged is the table of verdicts by what is wanted of a fault.
func TestMisjudged(t *testing.T) {
	for _, c := range []struct {
		want    sabotage.Verdict
		outcome results.Outcome
		acted   int64
		wrong   int64
		right   bool
	}{
		{sabotage.Fail, results.Fail, 3, 0, true},
		{sabotage.Fail, results.ErrorOutcome, 1, 0, true},
		{sabotage.Fail, results.Pass, 3, 0, false},
		{sabotage.Fail, results.Pass, 0, 0, true},
		{sabotage.Fail, results.Inconclusive, 3, 0, true},
		{sabotage.Bound, results.Pass, 3, 0, true},
		{sabotage.Bound, results.Fail, 3, 0, true},
		{sabotage.Bound, results.Pass, 3, 1, false},
		{sabotage.Harmless, results.Pass, 3, 0, true},
		{sabotage.Harmless, results.Fail, 3, 0, false},
		{sabotage.Undecided, results.Inconclusive, 3, 0, true},
		{sabotage.Undecided, results.Pass, 3, 0, false},
		{sabotage.Undecided, results.Fail, 3, 0, false},
	} {
		rec := &results.Record{
			Outcome: c.outcome, Sabotage: &results.Sabotage{Acted: c.acted},
			Points: []results.Point{{Jobs: []results.JobSummary{{SumErrors: c.wrong}}}},
		}
		if got := misjudged(sabotage.Fault{Want: c.want}, rec); (got == "") != c.right {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// emulates says whether the tests are to run inside an emulation's namespaces.
func emulates() bool {
	return os.Getenv("INABENCH_SHIP") == "netns" || os.Getenv("INABENCH_SABOTAGE") == "netns"
}
