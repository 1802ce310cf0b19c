package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/resultstest"
	"github.com/inabench/inabench/results/trend"
	"github.com/inabench/inabench/testbed"
)

// suiteOf is a suite of items that take 1 to n seconds each, in their order.
func suiteOf(names ...string) *Suite {
	s := &Suite{Name: "s"}
	for _, name := range names {
		s.Items = append(s.Items, Item{Name: name, Sum: "v1", Timeout: 60})
	}
	return s
}

func ran(name string, st Status, seconds float64) Done {
	return Done{Item: Item{Name: name, Sum: "v1"}, Status: st, Attempts: []Attempt{{Seconds: seconds}}}
}

func TestPlan(t *testing.T) {
	s := suiteOf("a", "b", "c", "d", "e", "f", "g")
	s.Items[4].Sum = "v2"
	nights := []*Night{ // the newest first
		{Items: []Done{ran("a", Passed, 9), ran("b", Failed, 3), ran("c", Undecided, 1), ran("e", Passed, 1), {Item: s.Items[5], Status: Left}},
			Moves: []Move{{Item: "a", Metric: "goodput", Of: "A", Effect: Worse}, {Item: "c", Metric: "share", Effect: Better}}},
		{Items: []Done{ran("a", Passed, 7), ran("b", Passed, 4), ran("d", Passed, 5), ran("f", Passed, 8)}},
	}
	var got []string
	for _, d := range s.Plan(nights) {
		got = append(got, fmt.Sprintf("%s %g: %s", d.Name, d.Expected, d.Why))
	}
	want := []string{
		"f 8: did not run to its end last night",
		"b 4: failed last night",
		"a 9: goodput of A in a was worse last night",
		"e 0: its files changed since last night",
		"c 1: came to no verdict last night",
		"g 0: never ran",
		"d 5: ran 2 nights ago",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Of those that ran equally long ago the cheapest is first, and what nobody knows last.
	cheap := []*Night{{Items: []Done{ran("a", Passed, 3), ran("b", Passed, 1), ran("c", Xfailed, 2)}}}
	got = nil
	for _, d := range suiteOf("a", "b", "c").Plan(cheap) {
		got = append(got, d.Name)
	}
	if diff := cmp.Diff([]string{"b", "c", "a"}, got); diff != "" {
		t.Errorf("by cost (-want +got):\n%s", diff)
	}
}

// TestRun runs programs that end in every way, and looks at what is tried again.
func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		timeout      time.Duration
		status       Status
		class        Class
		attempts     int
	}{
		{"verdict", "exit 1", time.Minute, Failed, Verdict, 1},
		{"input", "exit 3", time.Minute, Broken, Input, 1},
		{"infeasible", "exit 4", time.Minute, Broken, Infeasible, 1},
		{"unsupported", "exit 5", time.Minute, Broken, Unsupported, 1},
		{"testbed", "exit 6", time.Minute, Broken, Testbed, 2},
		{"inconclusive", "exit 7", time.Minute, Undecided, Inconclusive, 3},
		{"busy", "exit 8", time.Minute, Broken, Busy, 2},
		{"leftovers", "exit 9", time.Minute, Broken, Leftovers, 2},
		{"killed", "kill -9 $$", time.Minute, Broken, Crash, 2},
		{"panic", "echo panic: at the disco >&2; exit 2", time.Minute, Broken, Crash, 2},
		{"other", "exit 77", time.Minute, Broken, Crash, 2},
		{"no run", "exit 0", time.Minute, Broken, Crash, 2},
		{"hangs", "trap 'exit 130' INT; while :; do sleep 0.01; done", 50 * time.Millisecond, Broken, Timeout, 2},
		{"deaf", "trap '' INT; while :; do sleep 0.01; done", 50 * time.Millisecond, Broken, Timeout, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := filepath.Join(dir, "program")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			s := suiteOf("first", "second")
			for i := range s.Items {
				s.Items[i].Timeout = tt.timeout.Seconds()
			}
			s.Retry = Retry{Testbed: 1, Inconclusive: 2, Busy: 1, Leftovers: 1, Timeout: 1, Crash: 1}
			n, err := Run(t.Context(), s, Options{Root: dir, Runner: Program{Path: program, Grace: 100 * time.Millisecond}})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range n.Items { // the first did not end the night
				if d.Status != tt.status || d.last().Class != tt.class || len(d.Attempts) != tt.attempts {
					t.Errorf("%s: %s, %s, %d attempts: %s; want %s, %s, %d", d.Name, d.Status, d.last().Class, len(d.Attempts), d.Message, tt.status, tt.class, tt.attempts)
				}
			}
			again, err := ReadNight(dir, "s", "latest")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(n, again); diff != "" {
				t.Errorf("kept (+) against returned (-):\n%s", diff)
			}
		})
	}
}

// TestNotJudged: a run that nothing could judge is undecided, and not tried again.
func TestNotJudged(t *testing.T) {
	for outcome, want := range map[results.Outcome]Class{results.NotJudged: NotJudged, results.Inconclusive: Inconclusive} {
		a := Attempt{Run: "somewhere"}
		a.classify(Ended{Exit: 7}, &results.Record{Outcome: outcome, Reasons: []string{"why"}})
		d := Done{}
		d.conclude(&a, false)
		if a.Class != want || d.Status != Undecided || d.Message != "why" {
			t.Errorf("%s: class %q, status %s: %s", outcome, a.Class, d.Status, d.Message)
		}
	}
	if n := (Retry{Inconclusive: 2}).more(NotJudged); n != 0 {
		t.Errorf("%d more tries of a run that nothing judges", n)
	}
}

// TestExitCode: a night that the testbed limited has the code of the items that it limited, however many, if they have one.
func TestExitCode(t *testing.T) {
	broken := func(exit int, class Class) Done {
		return Done{Status: Broken, Attempts: []Attempt{{Exit: exit, Class: class}}}
	}
	unsupported, infeasible, busy := broken(5, Unsupported), broken(4, Infeasible), broken(8, Busy)
	leftovers, failed := broken(9, Leftovers), broken(6, Testbed)
	for _, tt := range []struct {
		name  string
		items []Done
		want  int
	}{
		{"one", []Done{unsupported}, 5},
		{"two of one kind", []Done{unsupported, unsupported}, 5},
		{"three of one kind, and one that passed", []Done{busy, busy, {Status: Passed}, busy}, 8},
		{"two kinds", []Done{unsupported, infeasible, unsupported, infeasible}, 6},
		{"one of these, and a testbed that failed", []Done{unsupported, failed}, 6},
		{"leftovers and others", []Done{leftovers, unsupported, leftovers}, 9},
	} {
		n := &Night{Outcome: results.ErrorOutcome, Items: tt.items}
		if got := n.ExitCode(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestFailedBefore: what failed is a verdict, however the run ended; and no xfail is about figures that are untrue.
func TestFailedBefore(t *testing.T) {
	check := func(code string) results.Check {
		return results.Check{Expect: "e", Of: "A", Gate: true, Outcome: results.Fail, Code: code}
	}
	lost := &results.Failure{Kind: "host", Of: "h1"}
	for _, c := range []struct {
		name   string
		exit   int
		xfail  string
		rec    results.Record
		class  Class
		status Status
	}{
		{"a lost host", 6, "", results.Record{Failure: lost}, Host, Broken},
		{"a job that stopped, and then a lost host", 6, "", results.Record{Failure: lost, Checks: []results.Check{check(results.CodeJobStopped)}}, Verdict, Failed},
		{"a lost host, known", 6, "known", results.Record{Failure: lost}, Host, Broken},
		{"a share, known", 1, "known", results.Record{Checks: []results.Check{check("INA-SHARE")}}, Verdict, Xfailed},
		{"a share and sums, known", 1, "known", results.Record{Checks: []results.Check{check("INA-SHARE"), check(results.CodeSums)}}, Verdict, Failed},
		{"counters, known", 1, "known", results.Record{Checks: []results.Check{check(results.CodeCounters)}}, Verdict, Failed},
	} {
		a, d := Attempt{Run: "somewhere"}, Done{Item: Item{Xfail: c.xfail}}
		a.classify(Ended{Exit: c.exit}, &c.rec)
		if d.conclude(&a, false); a.Class != c.class || d.Status != c.status {
			t.Errorf("%s: class %q, status %s: %s; want %q, %s", c.name, a.Class, d.Status, d.Message, c.class, c.status)
		}
	}
}

// stopper stops a night while its second run goes on.
type stopper struct {
	Program
	stop context.CancelFunc
	runs int
}

func (s *stopper) Run(ctx context.Context, r Request) Ended {
	if s.runs++; s.runs == 2 {
		s.stop()
	}
	return s.Program.Run(ctx, r)
}

// TestStop stops a night as Ctrl-C does: it ends with what there is, and says so.
func TestStop(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	script := "#!/bin/sh\ntrap 'exit 130' INT\nwhile [ -e " + dir + "/hang ]; do sleep 0.01; done\nexit 1\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := &stopper{Program: Program{Path: program}, stop: stop}
	n, err := Run(ctx, suiteOf("a", "b", "c"), Options{Root: dir, Runner: r, Progress: func(s Step) {
		if s.Ended != nil {
			_ = os.WriteFile(dir+"/hang", nil, 0o666)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []Status
	for _, d := range n.Items {
		got = append(got, d.Status)
	}
	if diff := cmp.Diff([]Status{Failed, Interrupt, Interrupt}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n.Outcome != results.Fail || !n.Complete() {
		t.Errorf("outcome %s", n.Outcome)
	}
	if plan := suiteOf("a", "b", "c").Plan([]*Night{n}); plan[0].Name != "b" || plan[2].Name != "a" {
		t.Errorf("next night begins with %s: %s", plan[0].Name, plan[0].Why)
	}
}

func TestOneNightAtATime(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), suiteOf("a"), Options{Root: dir}); !errors.Is(err, testbed.ErrBusy) {
		t.Errorf("%v, want that it is in use", err)
	}
	unlock()
	if unlock, err = lock(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
}

// The lock is a file: what others put in its place is neither changed nor waited for.
func TestLockInItsPlace(t *testing.T) {
	for name, put := range map[string]func(at, victim string) error{
		"a link": func(at, victim string) error { return os.Symlink(victim, at) },
		"a FIFO": func(at, _ string) error { return syscall.Mkfifo(at, 0o666) },
	} {
		dir := t.TempDir()
		victim := filepath.Join(dir, "victim")
		err := os.WriteFile(victim, []byte("precious"), 0o644)
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, Folder), 0o755)
		}
		if err == nil {
			err = put(filepath.Join(dir, Folder, ".lock"), victim)
		}
		if err != nil {
			t.Fatal(err)
		}
		if unlock, err := lock(dir); err == nil {
			unlock()
			t.Errorf("%s was taken for the lock", name)
		}
		if st, err := os.Stat(victim); err != nil || st.Mode().Perm() != 0o644 {
			t.Errorf("%s: the victim is %v now, %v", name, st.Mode(), err)
		}
	}
}

func TestEffect(t *testing.T) {
	for _, tt := range []struct {
		metric, unit string
		state        trend.State
		want         Effect
	}{
		{"goodput", "bit/s", trend.Lower, Worse}, {"goodput", "bit/s", trend.Higher, Better}, {"jct", "s", trend.Higher, Worse}, {"rtt", "s", trend.Lower, Better},
		{"queueing", "s", trend.Higher, Worse}, {"queueing_ratio", "1", trend.Higher, Worse}, {"refused", "1", trend.Higher, Worse}, {"min_speed", "1", trend.Lower, Worse},
		{"link_rate", "bit/s", trend.Lower, Another}, {"something of yours", "1", trend.Higher, Another},
	} {
		if got := effect(tt.metric, tt.unit, tt.state); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.metric, tt.state, got, tt.want)
		}
	}
}

// TestJudge: each run of a night is held against the nights before, not against other runs of tonight.
func TestJudge(t *testing.T) {
	root := t.TempDir()
	run := func(at time.Time, goodput float64) string {
		t.Helper()
		rec := &results.Record{Name: "e", Started: at, Finished: at.Add(time.Minute), Driver: "sim", Kind: results.Simulated, Outcome: results.NotJudged}
		for i := range 3 {
			rec.Points = append(rec.Points, results.Point{Repeat: i, Phases: []results.Phase{{Figures: []results.Figure{
				{Metric: "goodput", Of: "A", Kind: results.Simulated, Value: goodput + float64(i), N: 1, Unit: "bit/s"}}}}})
		}
		return resultstest.Save(t, root, rec)
	}
	began := time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)
	for i := range 14 {
		run(began.AddDate(0, 0, i-14), 1000+float64(i%3))
	}
	n := &Night{Started: began}
	for i, goodput := range []float64{900, 1001, 1100} {
		n.Items = append(n.Items, Done{Item: Item{Name: fmt.Sprint(i)}, Attempts: []Attempt{{Run: run(began.Add(time.Duration(i+1)*time.Minute), goodput)}}})
	}
	run(began.Add(time.Hour), 1000) // by hand
	x, err := history.OpenOrRead(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := n.judge(t.Context(), x, root, Judge{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range n.Moves {
		got = append(got, fmt.Sprint(m.Item, " ", m.Effect, " new ", m.New, " after ", m.Verdict.Nights, " nights"))
	}
	if diff := cmp.Diff([]string{"0 worse new true after 14 nights", "2 better new true after 14 nights"}, got); diff != "" || n.Judged.Figures != 3 {
		t.Errorf("%d figures (-want +got):\n%s", n.Judged.Figures, diff)
	}
}

// TestWorsened: a change that was accepted is no leave for the next.
func TestWorsened(t *testing.T) {
	series := func(v ...float64) *history.Series {
		s := &history.Series{Metric: "goodput", Unit: "bit/s", Kind: results.Measured}
		for range 30 { // of another level, long ago
			s.Nights = append(s.Nights, history.Night{Figures: trend.Night{200}})
		}
		for i := range 30 { // with some noise
			s.Nights = append(s.Nights, history.Night{Figures: trend.Night{100 + float64(i%5-2)/4}})
		}
		for _, x := range v {
			s.Nights = append(s.Nights, history.Night{Figures: trend.Night{x}})
		}
		return s
	}
	for _, c := range []struct {
		nights []float64 // after 30 at 100, of which the second is accepted
		want   bool
	}{
		{[]float64{94, 94.1}, false}, {[]float64{94, 94, 94.2}, false}, {[]float64{94, 94, 94, 97}, false}, {[]float64{94, 94, 50}, true}, {[]float64{94, 94, 94, 94, 90}, true},
	} {
		if got := worsened(series(c.nights...), 60, 61, 30, Judge{}); got != c.want {
			t.Errorf("%v: %t", c.nights, got)
		}
	}
}

// TestCulprits has jobs of cables.toml become worse, and asks what explains it.
func TestCulprits(t *testing.T) {
	root := t.TempDir()
	path, err := filepath.Abs("../cables.toml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("s.toml", fmt.Appendf(nil, "version = 1\non = \"sim\"\n[[experiment]]\npath = %q\n", path))
	if err != nil {
		t.Fatal(err)
	}
	n, err := Run(t.Context(), s, Options{Root: root, Runner: here{}})
	if err != nil || n.Outcome != results.Pass {
		t.Fatalf("%v, %v", n, err)
	}
	phases := map[string]int{"A": 0, "B": 0, "C": 1, "D": 1}
	for worse, want := range map[string]string{
		"A D": "link h1-tor1", "A C": "link h2-tor1", "B C": "link h3-tor1", "B D": "link h4-tor1",
		"A": "worker on h1", "B": "worker on h3", "C": "worker on h2", "D": "worker on h4", "A B C D": "switch tor1",
	} {
		var seen []state
		for job, phase := range phases {
			of, slower := unit{item: "cables", phase: phase, of: job}, 0.004 // which is noise
			if slices.Contains(strings.Fields(worse), job) {
				slower = 0.045
			}
			seen = append(seen, state{of, "goodput", slower, 0.01}, state{of, "rtt", -0.5, 0.001}) // the other way
		}
		got := culprits([]evidence{evidenceOf(t.Context(), root, n.Items[0].Attempts[0].Run, n.Items[0].Item, seen)})
		if len(got) == 0 || got[0].Part != want || got[0].Weight < 0.9 {
			t.Errorf("%s: %v, want %s", worse, got, want)
		}
	}
	if got := culprits(nil); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
}

// TestReports writes a night with something of everything; what it says is fit for its format.
func TestReports(t *testing.T) {
	began := time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)
	n := &Night{
		ID: "2026-11-21T02-00-00Z-X", Suite: "nightly", Started: began, Finished: began, Budget: 600, Used: 61, Outcome: results.Fail,
		Items: []Done{
			{Item: Item{Name: "a"}, Status: Failed, Message: "goodput A | too <low>", Attempts: []Attempt{{Seconds: 60, Run: "gone", Exit: 1, Class: Verdict}}},
			{Item: Item{Name: "b"}, Status: Broken, Message: "host h1: unreachable", Attempts: []Attempt{{Seconds: 1, Exit: 6, Class: Host, Of: "h1"}}},
			{Item: Item{Name: "c"}, Status: Left, Message: "4 s of the budget were left"},
		},
		LastGood: "2026-11-20T02-00-00Z-Y", News: []string{"kernel 6.12, was 6.1 @ci"},
		Judged: Judged{Figures: 300, Learning: 10, Expected: 1.45},
		Moves: []Move{
			{Item: "a", Metric: "goodput", Of: "A", Unit: "bit/s", Effect: Worse, New: true, Verdict: trend.Verdict{State: trend.Lower, Baseline: 20e6, Tonight: 19e6, Shift: -0.05}},
			{Item: "a", Metric: "rtt", Of: "B", Unit: "s", Phase: 1, Effect: Better, New: true, Verdict: trend.Verdict{State: trend.Lower, Baseline: 2e-3, Tonight: 1e-3, Shift: -0.5}},
		},
		Culprits: []Culprit{{Part: "link h1-tor1", Kind: "link", Inventory: "x/rack.toml", Jobs: 2, Shift: -0.05, Weight: 0.96}, {Part: "worker on h1", Kind: "worker", Inventory: "x/rack.toml", Jobs: 1, Shift: -0.051, Weight: 0.04}},
	}
	var text, md, junit bytes.Buffer
	if err := errors.Join(WriteText(&text, "runs", n), WriteMarkdown(&md, n), WriteJUnit(&junit, "runs", n)); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string][]string{
		text.String(): {"FAIL  nightly\n      1 failed, 1 broken, 1 did not fit, in 1 min 01 s of 10 min 00 s\n",
			"1 of 290 figures are worse than in the nights before; 10 more are learnt; without any change up to 1 may be\n",
			"  1. link h1-tor1 of rack, 96.0 % of the weight: 2 jobs that it limits are 5.0 % slower\n  2. worker on h1 of rack, 4.0 % of the weight: 1 job that it limits is 5.1 % slower\n",
			"since the last good night, 2026-11-20T02-00-00Z-Y\n  kernel 6.12",
			"better: rtt of B in a, phase 2: 1.00 ms, 2.00 ms before: lower by 50.0 %\n"},
		md.String(): {"## FAIL nightly\n", `| a | fail | 1 min 00 s | goodput A \| too &lt;low&gt; |`, "@\u200bci"},
		junit.String(): {`<failure message="goodput A | too &lt;low&gt;" type="fail">`, `<error message="host h1: unreachable" type="host">`,
			`<failure message="goodput of A in a: 19.0 Mbit/s, 20.0 Mbit/s before: lower by 5.0 %" type="goodput">1. link h1-tor1 of rack`, `name="288 figures as before"`},
	} {
		for _, w := range want {
			if !strings.Contains(what, w) {
				t.Errorf("%s\nlacks %q", what, w)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	path, err := filepath.Abs("../quickstart.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(fmt.Appendf(nil, "version = 1\nbudget = \"1m\"\n[retry]\nhost = 1\nverdict = 2\n[[experiment]]\npath = %q\non = [\"sim\", \"netns\"]\nxfail = \"x\"\n", path))
	f.Add([]byte("version = 1\n[judge]\nrelevant = \"200%\"\nmetrics = \"g*\"\n[[experiment]]\npath = \"\"\n"))
	f.Add([]byte("version = 1\n[[experiment]]\npath = \"\" "))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("/nowhere/s.toml", text)
		if err != nil {
			return
		}
		if len(s.Items) == 0 || s.Judge.Relevant <= 0 || s.Timeout <= inventory.Duration(0) {
			t.Errorf("a suite that makes no sense: %+v", s)
		}
	})
}

// TestPrune removes old nights of two suites, and looks at which are left.
func TestPrune(t *testing.T) {
	root := t.TempDir()
	if got, err := Prune(root, 1, false); len(got) > 0 || err != nil {
		t.Errorf("where no night was: %v, %v", got, err)
	}
	if err := os.MkdirAll(filepath.Join(root, Folder), 0o777); err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)
	names := map[string]string{}
	for i, what := range []string{"a pass", "a pass", "b fail", "a fail", "a -", "b fail", "a fail", "a -"} {
		name, outcome, _ := strings.Cut(what, " ")
		n := &Night{Schema: Schema, Suite: name, Started: began.AddDate(0, 0, i), Outcome: results.Outcome(outcome)}
		if outcome != "-" { // else it goes on, or was killed
			n.Finished = n.Started
			n.Items = []Done{ran("item", Status(outcome), 1)}
			n.Items[0].last().Run = "gone"
		}
		if err := n.create(root); err != nil {
			t.Fatal(err)
		}
		names[n.ID] = fmt.Sprint(i, " ", what)
		dir, old := filepath.Join(root, Folder, n.ID), time.Now().Add(-2*results.Abandoned) // nobody has written to it for long
		if err := errors.Join(os.Chtimes(filepath.Join(dir, File), old, old), os.Chtimes(dir, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	left := filepath.Join(root, Folder, ".gone-01JD4K7Q3ZT9V8B6N2XHFQW5MC")
	for _, dir := range []string{left, filepath.Join(root, Folder, "unreadable")} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	there := func() (out []string) {
		all, err := Nights(root, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			out = append(out, names[n.ID])
		}
		return out
	}
	for _, tt := range []struct {
		keep    int
		dry     bool
		removed []string
		left    int
	}{
		{2, true, []string{"4 a -", "3 a fail", "0 a pass"}, 8},
		{2, false, []string{"4 a -", "3 a fail", "0 a pass"}, 5},
		{2, false, nil, 5},
		{1, false, []string{"6 a fail", "2 b fail"}, 3},
	} {
		got, err := Prune(root, tt.keep, tt.dry)
		if err != nil {
			t.Fatal(err)
		}
		var removed []string
		for _, n := range got {
			removed = append(removed, names[n.ID])
		}
		if diff := cmp.Diff(tt.removed, removed); diff != "" || len(there()) != tt.left {
			t.Errorf("keep %d, dry %v: (-want +got):\n%s\nleft: %q", tt.keep, tt.dry, diff, there())
		}
	}
	if diff := cmp.Diff([]string{"7 a -", "5 b fail", "1 a pass"}, there()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was half removed is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, Folder, "unreadable")); err != nil {
		t.Error(err)
	}
	if _, err := ReadNight(root, "a", "latest"); err != nil {
		t.Error(err)
	}
	if _, err := Prune(root, 0, true); err == nil {
		t.Error("none at all would be left")
	}
}

// TestPrecision: an experiment that goes on until it is precise enough is refused on a testbed before any night begins, unless
// the suite says how many repeats there are.
func TestPrecision(t *testing.T) {
	dir := t.TempDir()
	experiment := `version = 1
on = "sim"
summary = ["avg_jct"]
[fat_tree]
racks = 4
hosts = 8
gpus = 4
rate = "100Gbit/s"
[placement]
policy = "netpack"
[trace]
from = "philly"
jobs = 20
[measure]
precision = "5%"
`
	if err := os.WriteFile(filepath.Join(dir, "e.toml"), []byte(experiment), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ suite, item, want string }{
		{"", "", ""},
		{"", `on = "netns"`, `e.toml has measure.precision, which is of simulations, not of driver netns`},
		{`on = ["sim", "netns"]`, "", "not of driver netns"},
		{"", "on = \"netns\"\nrepeats = 3", ""},
		{"repeats = 3", `on = "netns"`, ""},
		{"repeats = 10000", "", ""},
		{"repeats = 10001", "", "10001 repeats: at most 10000"}, // as a run says
		{"", "repeats = 10001", "10001 repeats: at most 10000"},
	} {
		text := fmt.Sprintf("version = 1\n%s\n[[experiment]]\npath = \"e.toml\"\n%s\n", c.suite, c.item)
		_, err := Parse(filepath.Join(dir, "s.toml"), []byte(text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", text, err, c.want)
		}
	}
}

// TestItemFiles: an item is another one when what is in a file that its experiment names is.
func TestItemFiles(t *testing.T) {
	dir := t.TempDir()
	sum := func(jobs string) string {
		t.Helper()
		const experiment = "version = 1\non = \"sim\"\n[fat_tree]\nracks = 1\nhosts = 2\n[trace]\nfrom = \"jobs.csv\"\n"
		for name, text := range map[string]string{"e.toml": experiment, "jobs.csv": jobs} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Parse(filepath.Join(dir, "s.toml"), []byte("version = 1\n[[experiment]]\npath = \"e.toml\"\n"))
		if err != nil {
			t.Fatal(err)
		}
		return s.Items[0].Sum
	}
	const one, two = "job_id,submit_s,duration_s,gpus\na,0,100,6\n", "job_id,submit_s,duration_s,gpus\na,0,100,2\n"
	if first := sum(one); first == sum(two) || first != sum(one) {
		t.Error("an item is not one of the file that its experiment names")
	}
}

// TestArgs: a run of a suite is that of a command line. One in a lab waits for what the one before could not undo.
func TestArgs(t *testing.T) {
	for want, r := range map[string]Request{
		"run --on sim --runs r a.toml": {Item: Item{Driver: "sim", Path: "a.toml"}, Root: "r"},
		"run --on netns --runs r --repeat 3 --quick --set a=1 --set b=2 a.toml": {
			Item: Item{Driver: "netns", Path: "a.toml", Repeats: 3, Quick: true, Set: []string{"a=1", "b=2"}}, Root: "r"},
		"run --on lab --runs r --wait 2m a.toml": {Item: Item{Driver: "lab", Path: "a.toml"}, Root: "r"},
	} {
		if got := strings.Join(Program{}.args(r), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
