package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/trend"
)

// cmdNights writes runs as `inabench run` would have, night by night.
func cmdNights(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: nights DIR N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	for i := range n {
		start := time.Date(2026, 10, 1, 2, 0, 0, 0, time.UTC).AddDate(0, 0, i)
		rec := &results.Record{
			ID: fmt.Sprintf("01M44WM480Q03EQ2QA6HA4G%03d", i), Name: "two-jobs", Started: start, Finished: start.Add(time.Minute),
			Driver: "netns", Switch: "soft", Kind: results.Measured, Scale: results.Scale{Mode: "slow-motion", Factor: 1000}, Tool: "v0.1.0",
			Hosts: []results.HostFacts{{Host: "ci", Kernel: "6.1.0", CPUs: 2, CPU: "Xeon"}}, Outcome: results.Pass,
			Checks: []results.Check{{Expect: "goodput", Metric: "goodput", Gate: true, Outcome: results.Pass}},
		}
		if i < 3 {
			rec.Hosts[0].Kernel = "5.15.0"
		}
		rate := 1.0
		if i >= 20 {
			rate = 0.95
		}
		for repeat := range 2 {
			wobble := 1 + 0.002*float64((i*7+repeat*5)%11-5)/5 // as on a machine that others use
			p := results.Point{Repeat: repeat, Phases: []results.Phase{{Figures: []results.Figure{
				{Metric: "goodput", Of: "A", Kind: results.Measured, Value: 20e6 * rate * wobble, N: 20, Unit: "bit/s"},
				{Metric: "goodput", Of: "B", Kind: results.Measured, Value: 30e6 / wobble, N: 20, Unit: "bit/s"},
				{Metric: "goodput", Of: "A", Kind: results.Predicted, Predictor: "occupancy", Value: 20e6, N: 1, Unit: "bit/s"},
			}}}}
			if i == 12 {
				p.Health = []results.Trouble{{What: "timer lateness", Fatal: true}}
			}
			rec.Points = append(rec.Points, p)
		}
		d, err := results.Create(ts.MkAbs(args[0]), rec)
		ts.Check(err)
		ts.Check(errors.Join(d.Close(), d.Save(rec)))
	}
}

// TestFollow looks on while a run goes on.
func TestFollow(t *testing.T) {
	t.Parallel() // it waits
	root := t.TempDir()
	d, err := results.Create(root, &results.Record{Name: "two-jobs"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteNow(results.Now{Stage: "measure", Done: 1, Of: 3, Jobs: []results.JobNow{{Job: "A", Goodput: 1e9, Predicted: 2e9}}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- follow(ctx, &out, d.Path) }()
	time.Sleep(2 * tick)
	select {
	case err := <-ended:
		t.Fatalf("it ended before the run: %v", err)
	default:
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || out.String() != "inabench: measure 2/3\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	cancel(errors.New("enough"))
	if d, err = results.Create(root, &results.Record{Name: "two-jobs"}); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := follow(ctx, io.Discard, d.Path); err == nil || err.Error() != "enough" {
		t.Errorf("interrupted: %v", err)
	}
}

// TestShowRunning lists a run while it goes on, and after it was cut off.
func TestShowRunning(t *testing.T) {
	root := t.TempDir()
	d, err := results.Create(root, &results.Record{Name: "two-jobs"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"running", "cut off"} {
		var stdout, stderr strings.Builder
		if code := Main([]string{"inabench", "show", "--runs", root}, nil, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "  "+want+"  ") {
			t.Errorf("exit %d, %s%s; want %s", code, &stdout, &stderr, want)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHistoryCSV: nothing that an experiment or a job is called is a formula where somebody opens the file, and numbers stay
// what they are.
func TestHistoryCSV(t *testing.T) {
	for name, want := range map[string]string{"=1+1": "'=1+1", "@x": "'@x", "+A": "'+A", "-A": "'-A", "\t=1": "'\t=1", "+1": "+1", "-1": "-1", "A": "A"} {
		doc := metricHistory{Series: []seriesHistory{{Series: history.Series{Experiment: name, Metric: "goodput", Of: name, Nights: []history.Night{{Run: "run", Tool: name, Figures: []float64{-1}}}}}}}
		var b bytes.Buffer
		if err := doc.writeCSV(&b); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(rows) != 2 {
			t.Fatalf("%q: %q, %v", name, rows, err)
		}
		for column, want := range map[string]string{"experiment": want, "of": want, "tool": want, "value": "-1"} {
			if got := rows[1][slices.Index(rows[0], column)]; got != want {
				t.Errorf("%s %q: %q, want %q", column, name, got, want)
			}
		}
	}
}

// TestLeftOut: below a table is the next setting that no other table is of.
func TestLeftOut(t *testing.T) {
	series := func(key string) seriesHistory {
		return seriesHistory{Series: history.Series{Experiment: "two-jobs", Setting: key, Metric: "goodput", Of: "A", Nights: []history.Night{{Figures: []float64{1}}}}}
	}
	doc := metricHistory{Settings: []history.Use{
		{Experiment: "two-jobs", Key: "aaa", Setting: history.Setting{Driver: "sim"}}, {Experiment: "two-jobs", Key: "bbb", Setting: history.Setting{Driver: "netns"}},
		{Experiment: "two-jobs", Key: "ccc", Setting: history.Setting{Driver: "netns", Kernel: "5.15"}}, {Experiment: "others", Key: "ddd"},
	}}
	for shown, want := range map[string]string{"aaa": "bbb", "bbb": "ccc", "aaa bbb": "ccc", "aaa bbb ccc": "", "ccc": ""} {
		doc.Series = nil
		for key := range strings.FieldsSeq(shown) {
			doc.Series = append(doc.Series, series(key))
		}
		var b strings.Builder
		if err := doc.write(&b); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"aaa", "bbb", "ccc", "ddd"} {
			if said := strings.Contains(b.String(), "left out: setting "+key); said != (key == want) {
				t.Errorf("%s shown, %s left out:\n%s", shown, want, &b)
			}
		}
	}
}

func TestSince(t *testing.T) {
	now := time.Date(2026, 11, 22, 1, 30, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":           {},
		"2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		"30d":        time.Date(2026, 10, 23, 1, 30, 0, 0, time.UTC),
	} {
		if got, err := since(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"30", "d", "-3d", "0d", "2026-13-01", "yesterday"} {
		if got, err := since(text, now); err == nil || !got.IsZero() {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestSparkline(t *testing.T) {
	nights := func(v ...float64) (out []history.Night) {
		for _, x := range v {
			out = append(out, history.Night{Figures: []float64{x}})
		}
		return out
	}
	many := make([]float64, 3*sparks)
	for want, got := range map[string][]history.Night{
		"▄":        nights(5),
		"▄▄▄":      nights(5, 5, 5),
		"▁█":       nights(1, 2),
		"▁▂▃▄▅▆▇█": nights(0, 1.1, 2.1, 3.1, 4.1, 5.1, 6.1, 8),
		"█▁█":      nights(-1, -2, -1),
		"▁█▅":      nights(-math.MaxFloat64, math.MaxFloat64, 0),
		"▄▄":       nights(0, math.SmallestNonzeroFloat64),
	} {
		if s := sparkline(got); s != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
	if n := len([]rune(sparkline(nights(many...)))); n != sparks {
		t.Errorf("%d bars of %d nights, want %d", n, len(many), sparks)
	}
}

// TestWentBack: a change that did not last is not told as one from which on things are another way.
func TestWentBack(t *testing.T) {
	at := time.Date(2026, 7, 11, 2, 0, 0, 0, time.Local)
	for until, want := range map[int]string{0: "A: 50.0 % lower from 2026-07-11 on; r", 3: "A: 50.0 % lower from 2026-07-11 for 1 run, which did not last; r", 4: "A: 50.0 % lower from 2026-07-11 for 2 runs, which did not last; r"} {
		s := seriesHistory{Series: history.Series{Metric: "goodput", Of: "A", Unit: "bit/s"}, Changes: []changed{{trend.Change{Night: 2, Found: 2, Until: until, Shift: -.5}, "r", at}}}
		var b strings.Builder
		if err := (metricHistory{Series: []seriesHistory{s}}).write(&b); err != nil || !strings.Contains(b.String(), "  "+want+"\n") {
			t.Errorf("%v: %s\nwant %q", err, b.String(), want)
		}
	}
}

func TestShift(t *testing.T) {
	for _, c := range []struct{ was, is, want float64 }{
		{20, 19, -0.05}, {20, 22, 0.1}, {0, 0, 0}, {0, 12, 1}, {0, -12, -1}, {12, 0, -1}, {-0.02, -0.01, 0.5}, {-0.02, -0.04, -1}, {-0.02, 0.02, 2},
	} {
		if got := shift(c.was, c.is); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("from %g to %g: %g, want %g", c.was, c.is, got, c.want)
		}
	}
}
