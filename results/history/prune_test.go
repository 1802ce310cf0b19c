package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

func TestBaselines(t *testing.T) {
	root := t.TempDir()
	x := openIndex(t, root)
	if b, err := ReadBaselines(root); err != nil || len(b) > 0 {
		t.Errorf("none are set: %+v, %v", b, err)
	}
	first, second := resultstest.Save(t, root, record(0, 100)), resultstest.Save(t, root, record(1, 101))
	failed, cutOff, other := record(2, 50), record(3, 60), record(4, 70)
	failed.Outcome = results.Fail
	cutOff.Finished = time.Time{}
	other.Name = "../a b"
	bad := record(5, 80)
	bad.Sabotage = &results.Sabotage{Fault: "stop", Part: "A/0", Acted: 1}
	if own, good := SettingOf(bad), SettingOf(other); own.Key() == good.Key() || len(own.Differences(good)) != 1 {
		t.Errorf("a sabotaged run has the setting of an honest one: %v", own)
	}
	set := func(dir string, force bool) Baseline {
		t.Helper()
		b, err := x.SetBaseline(t.Context(), dir, "v1.0", force)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	set(first, false) // it was not indexed before
	want := []Baseline{set(resultstest.Save(t, root, other), false), set(second, false)}
	for name, c := range map[string]struct {
		dir   string
		force bool
		want  error
	}{
		"no run":        {"2026-10-01T00-00-00Z-01NONE", true, results.ErrNotFound},
		"a failed one":  {resultstest.Save(t, root, failed), false, ErrUnfit},
		"a sabotaged":   {resultstest.Save(t, root, bad), true, ErrUnfit},
		"one cut off":   {resultstest.Save(t, root, cutOff), true, ErrUnfit},
		"no run either": {baselines, true, results.ErrNotFound},
	} {
		if _, err := x.SetBaseline(t.Context(), c.dir, "", c.force); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	got, err := ReadBaselines(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := x.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err = ReadBaselines(root); err != nil || len(got) != 2 {
		t.Errorf("after the index was built anew: %+v, %v", got, err)
	}
	if err := want[0].Unset(root); err != nil {
		t.Fatal(err)
	}
	if got, err = ReadBaselines(root); err != nil || !slices.Equal(got, want[1:]) {
		t.Errorf("after one was unset: %+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(root, baselines, "x.json"), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Prune(t.Context(), 1, false); err == nil {
		t.Error("runs were pruned without knowing which are baselines")
	}
}

func TestPrune(t *testing.T) {
	root := t.TempDir()
	x := openIndex(t, root)
	stay := map[string]string{} // why, by directory
	var leave []string
	keep := func(why string, rec *results.Record) string {
		dir := resultstest.Save(t, root, rec)
		stay[dir] = why
		return dir
	}
	prune := func(rec *results.Record) {
		leave = append([]string{resultstest.Save(t, root, rec)}, leave...)
	}
	if _, err := x.SetBaseline(t.Context(), keep("the baseline", record(0, 100)), "", false); err != nil {
		t.Fatal(err)
	}
	prune(record(1, 100))
	cutOff := func(n int) *results.Record {
		rec := record(n)
		rec.Finished, rec.Outcome = time.Time{}, results.ErrorOutcome
		return rec
	}
	old := time.Now().Add(-2 * quiet)
	age := func(dir string) {
		for _, name := range []string{results.RecordFile, results.SamplesFile} {
			if err := os.Chtimes(filepath.Join(root, dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	prune(cutOff(2))
	age(leave[0])
	keep("cut off just now, or about to begin", cutOff(3))
	live, err := results.Create(root, cutOff(4))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	stay[filepath.Base(live.Path)] = "it goes on, although nothing was written for long"
	age(filepath.Base(live.Path))
	unreadable := keep("nobody knows what it is", record(5))
	if err := os.WriteFile(filepath.Join(root, unreadable, results.RecordFile), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	other := record(6, 1)
	other.Switch = "bmv2"
	keep("the only one of its setting", other)
	prune(record(7, 100))
	keep("the last but one", record(8, 100))
	keep("the last one", record(9, 100))
	for _, dir := range []string{"notes", ".hidden"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
		stay[dir] = "no run"
	}
	if err := os.MkdirAll(filepath.Join(root, ".gone-01JD4K7Q3ZT9V8B6N2XHFQW5MC", "raw"), 0o777); err != nil { // by one that was killed
		t.Fatal(err)
	}
	if _, err := x.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Prune(t.Context(), 0, true); err == nil {
		t.Error("0 can be kept")
	}

	for _, dry := range []bool{true, false} {
		removed, err := x.Prune(t.Context(), 2, dry)
		if err != nil {
			t.Fatal(err)
		}
		var dirs []string
		for _, r := range removed {
			dirs = append(dirs, r.Dir)
		}
		if diff := cmp.Diff(leave, dirs); diff != "" {
			t.Errorf("dry %v (-want +got):\n%s", dry, diff)
		}
		for _, dir := range leave {
			if _, err := os.Stat(filepath.Join(root, dir)); (err == nil) != dry {
				t.Errorf("dry %v, and %s: %v", dry, dir, err)
			}
		}
	}
	stay["latest"], stay[File], stay[baselines] = "no run", "no run", "no run"
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if stay[e.Name()] == "" {
			t.Errorf("%s is still there", e.Name())
		}
		delete(stay, e.Name())
	}
	for dir, why := range stay {
		t.Errorf("%s was removed: %s", dir, why)
	}
	sameRebuilt(t, x)
	update(t, x, 0)
	if again, err := x.Prune(t.Context(), 2, false); err != nil || len(again) > 0 {
		t.Errorf("once more: %+v, %v", again, err)
	}
}

// TestPruneKeepsGoodRuns: runs that were cut off, or failed, take nobody's place who passed.
func TestPruneKeepsGoodRuns(t *testing.T) {
	root := t.TempDir()
	x := openIndex(t, root)
	old := time.Now().Add(-2 * quiet)
	save := func(n int, outcome results.Outcome, complete bool) string {
		rec := record(n, 100)
		rec.Outcome = outcome
		if !complete {
			rec.Finished = time.Time{}
		}
		dir := resultstest.Save(t, root, rec)
		for _, name := range []string{results.RecordFile, results.SamplesFile} {
			if err := os.Chtimes(filepath.Join(root, dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	stay := map[string]bool{}
	save(0, results.Pass, true)
	stay[save(1, results.Pass, true)] = true // the last that passed
	save(2, results.Fail, true)
	stay[save(3, results.Fail, true)] = true // the last that came to its end
	for n := range 5 {
		stay[save(4+n, results.ErrorOutcome, false)] = n == 4
	}
	if _, err := x.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Prune(t.Context(), 1, false); err != nil {
		t.Fatal(err)
	}
	left, err := x.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range left {
		if !stay[r.Dir] {
			t.Errorf("%s, %s, is still there", r.Dir, r.Outcome)
		}
		delete(stay, r.Dir)
	}
	for dir, must := range stay {
		if must {
			t.Errorf("%s was removed", dir)
		}
	}
}

// TestPruneCopies: copies of a run do not count for others, and stay and go with it.
func TestPruneCopies(t *testing.T) {
	root := t.TempDir()
	x := openIndex(t, root)
	var dirs []string
	for n := range 4 {
		dir := resultstest.Save(t, root, record(n, 100))
		dirs = append(dirs, dir)
		for i := range 3 * (n % 2) { // of the second, and of the newest
			name := fmt.Sprintf("copy-%d-of-%s", i, dir)
			if err := os.CopyFS(filepath.Join(root, name), os.DirFS(filepath.Join(root, dir))); err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, name)
		}
	}
	if _, err := x.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Prune(t.Context(), 2, false); err != nil {
		t.Fatal(err)
	}
	for i, dir := range dirs {
		_, err := os.Stat(filepath.Join(root, dir))
		if stays := i >= 5; stays != (err == nil) { // the first and the second with its copies went
			t.Errorf("%s: %v, want it there: %t", dir, err, stays)
		}
	}
}

// TestPruneWithoutIndex: runs that were removed take no room any more, also where the index cannot be written after that.
func TestPruneWithoutIndex(t *testing.T) {
	root := t.TempDir()
	for n := range 3 {
		resultstest.Save(t, root, record(n, 100))
	}
	x := openIndex(t, root)
	update(t, x, 3)
	inject(t, root, "CREATE TRIGGER t BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'no room'); END")
	removed, err := x.Prune(t.Context(), 1, false)
	if err == nil || !strings.Contains(err.Error(), "no room") || len(removed) != 2 {
		t.Errorf("%d runs were removed, %v", len(removed), err)
	}
	left, err := filepath.Glob(filepath.Join(root, "2*"))
	if err != nil || len(left) != 1 {
		t.Errorf("runs %q are left, %v", left, err)
	}
	gone, err := filepath.Glob(filepath.Join(root, ".gone-*"))
	if err != nil || len(gone) != 0 {
		t.Errorf("%q are out of sight, and take room, %v", gone, err)
	}
}
