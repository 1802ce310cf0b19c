package suite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
)

// TestContradiction: a night that was changed to say better than its items, or an item than its run, is not believed.
func TestContradiction(t *testing.T) {
	text := "version = 1\n[[experiment]]\npath = \"a.toml\"\n[[experiment]]\npath = \"b.toml\"\n"
	a, b := ran("a", Passed, 1), ran("b", Failed, 1)
	a.Attempts[0].Run = "gone"
	b.Attempts[0].Exit, b.Attempts[0].Class = 1, Verdict
	known := ran("b", Xfailed, 1)
	known.Xfail, known.Attempts[0].Exit, known.Attempts[0].Class = "known", 1, Verdict
	of := func(o results.Outcome, items ...Done) *Night {
		return &Night{Suite: "s", File: results.File{Path: "s.toml", Text: text, SHA256: sumOf(text)}, Started: time.Now(), Finished: time.Now(), Outcome: o, Items: items}
	}
	item := func(d Done, change func(d *Done)) Done {
		d.Attempts = append([]Attempt(nil), d.Attempts...)
		change(&d)
		return d
	}
	status := func(s Status) func(d *Done) { return func(d *Done) { d.Status = s } }
	for name, c := range map[string]struct {
		night *Night
		says  string
	}{
		"as it was":             {of(results.Fail, a, b), ""},
		"passed":                {of(results.Pass, a, known), ""},
		"killed":                {&Night{Outcome: results.ErrorOutcome, Items: []Done{a, {Status: Waiting}}}, ""},
		"one did not fit":       {of(results.Pass, a, Done{Status: Left}), ""},
		"worse than its items":  {of(results.ErrorOutcome, a, known), ""},
		"better than its items": {of(results.Pass, a, b), "it says pass, and of its items it is fail: b: "},
		"not as bad":            {of(results.Inconclusive, a, b), "it says inconclusive, and of its items it is fail"},
		"none":                  {of("fine", a, b), `outcome "fine" is none`},
		"an item passed":        {of(results.Pass, a, item(b, status(Passed))), "b says pass, and its run ended with 1"},
		"an item did not fit":   {of(results.Pass, a, item(b, status(Left))), "b says left, and its run ended with 1"},
		"an item was expected":  {of(results.Pass, a, item(b, status(Xfailed))), "nothing says that it is expected to"},
		"sums were wrong":       {of(results.Pass, a, item(known, func(d *Done) { d.last().Wrong = "sums" })), "does not excuse sums"},
		"broken, not undecided": {of(results.Inconclusive, a, item(b, func(d *Done) { d.Status, d.last().Exit = Undecided, 6 })), "b is undecided, and its run ended with 6"},
		"never run":             {of(results.Pass, a, Done{Status: Passed}), "was never run"},
		"left no run":           {of(results.Pass, a, item(a, func(d *Done) { d.last().Run = "" })), "left no run"},
		"one is gone":           {of(results.Pass, a), "it has 1 item, and s.toml has at least 2"},
		"no items":              {&Night{Finished: time.Now(), Outcome: results.Pass}, "of its items it is inconclusive: nothing was run"},
		"another suite": {func() *Night {
			n := of(results.Pass, a)
			n.File.Text = strings.Replace(text, "[[experiment]]\npath = \"b.toml\"\n", "", 1)
			return n
		}(), "is not the one that was run"},
		"cut off, and passed": {&Night{Outcome: results.Pass, Items: []Done{a}}, "did not come to its end"},
	} {
		err := c.night.contradiction()
		if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, results.ErrContradicts) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestNightOfOtherRun: where an item's run is there, the item is no better than its record.
func TestNightOfOtherRun(t *testing.T) {
	root := t.TempDir()
	n := &Night{Schema: Schema, Suite: "s", Started: time.Now(), Finished: time.Now(), Outcome: results.Pass, Items: []Done{ran("a", Passed, 1)}}
	if err := os.Mkdir(filepath.Join(root, Folder), 0o777); err != nil {
		t.Fatal(err)
	}
	n.Items[0].last().Run = "gone"
	if err := n.create(root); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadNight(root, "s", "latest"); err != nil {
		t.Errorf("a run that was removed: %v", err)
	}
	for says, change := range map[string]func(rec *results.Record){
		"":                              func(*results.Record) {},
		"a says pass, and its run fail": func(rec *results.Record) { rec.Outcome, rec.ExitCode = results.Fail, 1 },
		"that is another one":           func(rec *results.Record) { rec.Night.Item = "b" },
		"no check that is gated held":   func(rec *results.Record) { rec.Checks = nil },
	} {
		rec := &results.Record{Name: "e", Outcome: results.Pass, Night: &results.NightRun{Suite: "s", Night: n.ID, Item: "a", Attempt: 1},
			Checks: []results.Check{{Expect: "e", Metric: "goodput", Gate: true, Outcome: results.Pass}}}
		change(rec)
		dir, err := results.Create(root, rec)
		if err != nil {
			t.Fatal(err)
		}
		n.Items[0].last().Run = filepath.Base(dir.Path)
		if err := errors.Join(dir.Save(rec), dir.Close(), n.save(root)); err != nil {
			t.Fatal(err)
		}
		_, err = ReadNight(root, "s", "latest")
		if (err == nil) != (says == "") || err != nil && (!errors.Is(err, results.ErrContradicts) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestUnreadableNight: a night that is there and cannot be read is an error that names its file, of its suite and no other.
func TestUnreadableNight(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, Folder), 0o777); err != nil {
		t.Fatal(err)
	}
	var nights []*Night
	for i, suite := range []string{"a", "b", "b"} {
		n := &Night{Schema: Schema, Suite: suite, Started: time.Now().Add(time.Duration(i) * time.Minute), Outcome: results.ErrorOutcome}
		if err := n.create(root); err != nil {
			t.Fatal(err)
		}
		nights = append(nights, n)
	}
	cut := filepath.Join(nights[2].Path(root), File)
	text, err := os.ReadFile(cut)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, text[:len(text)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadNight(root, "b", "latest"); err == nil || errors.Is(err, results.ErrNotFound) || !strings.Contains(err.Error(), cut) {
		t.Errorf("a night that is cut: %v, want %s", err, cut)
	}
	if n, err := ReadNight(root, "b", nights[1].ID); err != nil || n.ID != nights[1].ID {
		t.Errorf("the one before it: %v", err)
	}
	if n, err := ReadNight(root, "a", "latest"); err != nil || n.ID != nights[0].ID {
		t.Errorf("another suite's: %v", err)
	}
	if all, err := Nights(root, ""); err != nil || len(all) != 2 {
		t.Errorf("%d nights, %v, want the 2 that can be read", len(all), err)
	}
	if err := os.WriteFile(cut, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadNight(root, "a", "latest"); err == nil || !strings.Contains(err.Error(), cut) {
		t.Errorf("a night of nobody knows what: %v, want %s", err, cut)
	}
}
