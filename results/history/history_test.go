package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
	"github.com/inabench/inabench/results/trend"
)

const spec = `# two jobs
version = 1
title = "Two jobs"
description = "They share a switch."
inventory = "rack.toml"
[[job]]
name = "A"
rate = "10Gbit/s"
[measure]
repeats = 2
[[expect]]
metric = "goodput"
tolerance = "5%"
`

var began = time.Date(2026, 10, 1, 2, 0, 0, 0, time.UTC)

// record is what the n-th night has of goodput and the share of A: one figure for each repeat.
func record(n int, goodput ...float64) *results.Record {
	start := began.AddDate(0, 0, n)
	rec := &results.Record{
		Name: "two-jobs", Started: start, Finished: start.Add(time.Minute), Driver: "netns", Switch: "soft", Kind: results.Measured,
		Scale: results.Scale{Mode: "slow-motion", Factor: 1000}, Tool: "v0.1.0",
		Experiment: results.File{Path: "two-jobs.toml", Text: spec}, Inventory: results.File{Path: "rack.toml", SHA256: "9c01"},
		Hosts:   []results.HostFacts{{Host: "ci", Kernel: "6.1.0", CPUs: 2, CPU: "Xeon"}},
		Outcome: results.Pass,
		Checks:  []results.Check{{Expect: "goodput", Metric: "goodput", Gate: true, Outcome: results.Pass}},
	}
	for i, v := range goodput {
		rec.Points = append(rec.Points, results.Point{Repeat: i, Phases: []results.Phase{{Jobs: []string{"A"}, Figures: []results.Figure{
			{Metric: "goodput", Of: "A", Kind: results.Measured, Value: v, Lo: v - 1, Hi: v + 1, N: 20, Unit: "bit/s"},
			{Metric: "goodput", Of: "A", Kind: results.Predicted, Value: 100, Lo: 100, Hi: 100, N: 1, Unit: "bit/s", Predictor: "occupancy"},
			{Metric: "share", Of: "A@tor1", Kind: results.Measured, Value: 0.5, N: 20, Unit: "1"},
			{Metric: "rtt", Of: "A", Kind: results.Measured, Unit: "s"}, // nothing was measured
		}}}})
	}
	return rec
}

func openIndex(t testing.TB, root string) *Index {
	t.Helper()
	x, err := Open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func update(t testing.TB, x *Index, want int) {
	t.Helper()
	if n, err := x.Update(t.Context()); err != nil || n != want {
		t.Fatalf("update: %d runs, want %d; %v", n, want, err)
	}
}

func series(t testing.TB, x *Index, q Query) []Series {
	t.Helper()
	s, err := x.Series(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dump is all that an index says, row by row. Numbers of rows are nothing that it says.
func dump(t testing.TB, x *Index) []string {
	t.Helper()
	var out []string
	for _, query := range []string{
		`SELECT dir || ' ' || size || ' ' || mtime || ' ' || inode || ' ' || ulid || ' ' || experiment || ' ' || setting || ' ' || started || ' ' || finished || ' ' || outcome || ' ' || tool || ' ' || error FROM run ORDER BY dir`,
		`SELECT key || ' ' || facts FROM setting ORDER BY key`,
		`SELECT coalesce(dir, 'nobody') || ' ' || s.experiment || ' ' || s.setting || ' ' || point || ' ' || labels || ' ' || phase || ' ' || metric || ' ' || subject || ' ' || kind || ' ' || predictor || ' ' || unit || ' ' || figures || ' ' || spoilt
			FROM series s LEFT JOIN night ON night.series = s.id LEFT JOIN run ON run.id = night.run ORDER BY 1`,
		`SELECT 'of no series: ' || run FROM night WHERE series NOT IN (SELECT id FROM series)`,
	} {
		rows, err := x.db.Load().Query(query)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var row string
			if err := rows.Scan(&row); err != nil {
				t.Fatal(err)
			}
			out = append(out, row)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// sameRebuilt holds the index to one that is built anew, on disk and in memory.
func sameRebuilt(t testing.TB, x *Index) {
	t.Helper()
	kept := dump(t, x)
	for _, row := range kept {
		if strings.HasPrefix(row, "nobody") || strings.HasPrefix(row, "of no series") {
			t.Errorf("left over: %s", row)
		}
	}
	m, err := InMemory(t.Context(), x.root)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dump(t, m), kept); diff != "" {
		t.Errorf("kept (+) against one in memory (-):\n%s", diff)
	}
	if _, err := x.Rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dump(t, x), kept); diff != "" {
		t.Errorf("kept (+) against rebuilt (-):\n%s", diff)
	}
}

func TestSeries(t *testing.T) {
	root := t.TempDir()
	x := openIndex(t, root)
	first := resultstest.Save(t, root, record(0, 100, 102))
	cutOff := record(1, 101)
	cutOff.Finished, cutOff.Outcome = time.Time{}, results.ErrorOutcome
	resultstest.Save(t, root, cutOff)
	limited := record(2, 50, 99)
	limited.Points[0].Health = []results.Trouble{{What: "timer lateness", Fatal: true}}
	resultstest.Save(t, root, limited)
	early := record(3, 20)
	early.Points[0].Error = "host h1 is gone"
	early.Outcome = results.ErrorOutcome
	resultstest.Save(t, root, early)
	other := record(4, 80)
	other.Hosts[0].Kernel = "6.2.0"
	resultstest.Save(t, root, other)
	update(t, x, 5)

	got := series(t, x, Query{Metric: "goodput"})
	if len(got) != 2 {
		t.Fatalf("%d series, want one for each kernel", len(got))
	}
	now, then := got[0], got[1]
	if len(now.Nights) != 1 || now.Nights[0].Figures[0] != 80 || now.Setting == then.Setting {
		t.Errorf("the setting that was run last: %+v", now)
	}
	if diff := cmp.Diff([]trend.Night{{100, 102}, {101}, {99}}, then.Trend()); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if then.Spoilt != 1 || then.Nights[2].Spoilt != 1 {
		t.Errorf("spoilt: %d nights and %d repeats, want 1 and 1", then.Spoilt, then.Nights[2].Spoilt)
	}
	want := Night{Run: first, ID: first[len(first)-26:], Started: began, Outcome: results.Pass, Complete: true, Tool: "v0.1.0", Figures: []float64{100, 102}}
	if diff := cmp.Diff(want, then.Nights[0]); diff != "" {
		t.Errorf("the first night (-want +got):\n%s", diff)
	}
	if n := then.Nights[1]; n.Complete || n.Outcome != results.ErrorOutcome {
		t.Errorf("a run that was cut off: %+v", n)
	}
	uses, err := x.Uses(t.Context())
	if err != nil || len(uses) != 2 {
		t.Fatalf("uses: %+v, %v", uses, err)
	}
	if d := uses[0].Setting.Differences(uses[1].Setting); !slices.Equal(d, []string{"kernel 6.2.0, was 6.1.0"}) {
		t.Errorf("differences: %q", d)
	}
	if uses[0].Key != now.Setting || uses[0].Key != uses[0].Setting.Key() || uses[1].Runs != 4 || !uses[1].First.Equal(began) {
		t.Errorf("uses: %+v", uses)
	}

	for name, q := range map[string]struct {
		Query
		series, nights int // nights of all series
	}{
		"everything but predictions": {Query{}, 4, 8},
		"a glob":                     {Query{Metric: "s*"}, 2, 4},
		"predictions":                {Query{Kinds: []results.Kind{results.Predicted}}, 2, 4},
		"of":                         {Query{Of: "A@*"}, 2, 4},
		"another experiment":         {Query{Experiment: "three-*"}, 0, 0},
		"since":                      {Query{Metric: "goodput", Since: began.AddDate(0, 0, 2)}, 2, 2},
		"the newest setting":         {Query{Metric: "goodput", Newest: true}, 1, 1},
		"a setting":                  {Query{Metric: "goodput", Setting: then.Setting[:6]}, 1, 3},
		"what was not measured":      {Query{Metric: "rtt"}, 0, 0},
	} {
		got := series(t, x, q.Query)
		nights := 0
		for _, s := range got {
			nights += len(s.Nights)
		}
		if len(got) != q.series || nights != q.nights {
			t.Errorf("%s: %d series with %d nights, want %d with %d", name, len(got), nights, q.series, q.nights)
		}
	}
	if m, err := x.Metrics(t.Context()); err != nil || !slices.Equal(m, []string{"goodput", "share"}) {
		t.Errorf("metrics: %q, %v", m, err)
	}
	sameRebuilt(t, x)
}

// TestPoints holds series apart that are of one metric and subject.
func TestPoints(t *testing.T) {
	root := t.TempDir()
	x := openIndex(t, root)
	for n := range 3 {
		rec := record(n)
		for i, label := range []string{"rate=20", "rate=100"} {
			var phases []results.Phase
			for phase := range 2 {
				phases = append(phases, results.Phase{Figures: []results.Figure{{Metric: "goodput", Of: "A", Kind: results.Measured, Value: float64(100*i + 10*phase + n), N: 5, Unit: "bit/s"}}})
			}
			rec.Points = append(rec.Points, results.Point{Index: i, Labels: []string{label}, Phases: phases})
		}
		resultstest.Save(t, root, rec)
	}
	update(t, x, 3)
	var got []string
	for _, s := range series(t, x, Query{}) {
		got = append(got, fmt.Sprint(s.Point, " ", s.Phase, s.Trend()))
	}
	want := []string{"rate=20 0 [[0] [1] [2]]", "rate=20 1 [[10] [11] [12]]", "rate=100 0 [[100] [101] [102]]", "rate=100 1 [[110] [111] [112]]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSetting(t *testing.T) {
	of := func(change func(*results.Record)) Setting {
		rec := record(0)
		change(rec)
		return SettingOf(rec)
	}
	base := of(func(*results.Record) {})
	text := func(old, new string) func(*results.Record) {
		return func(rec *results.Record) {
			changed := strings.Replace(rec.Experiment.Text, old, new, 1)
			if changed == rec.Experiment.Text {
				t.Errorf("no %q in the experiment", old)
			}
			rec.Experiment.Text = changed
		}
	}
	for name, c := range map[string]struct {
		change func(*results.Record)
		want   []string
	}{
		"nothing":             {func(*results.Record) {}, nil},
		"the tool":            {func(r *results.Record) { r.Tool = "v0.2.0" }, nil},
		"a comment":           {text("# two", "# three"), nil},
		"the layout":          {text(" = ", "="), nil},
		"a tolerance":         {text("5%", "3%"), nil},
		"a title":             {text("Two jobs", "A and B"), nil},
		"a description":       {text("They share", "Both use"), nil},
		"what a paper prints": {text("[measure]", "[[published]]\nfigure = \"1\"\n[measure]"), nil},
		"a preflight check":   {text("[measure]", "[preflight]\nskip = [\"governor\"]\n[measure]"), nil},
		"repeats":             {text("repeats = 2", "repeats = 9"), nil},
		"more repeats":        {func(r *results.Record) { r.Overrides = []string{"measure.repeats=9", "expect.0.value=3"} }, nil},
		"the name":            {func(r *results.Record) { r.Hosts[0].Host = "ci2" }, nil},
		"a rate":              {text("10Gbit/s", "9Gbit/s"), []string{"the experiment changed"}},
		"no TOML":             {func(r *results.Record) { r.Experiment.Text = "][" }, []string{"the experiment changed"}},
		"an override":         {func(r *results.Record) { r.Overrides = []string{"job.A.rate=9Gbit/s"} }, []string{"--set job.A.rate=9Gbit/s, was none"}},
		"what repeats it": {func(r *results.Record) {
			r.Overrides = []string{"name=two-jobs", "inventory=inventory.toml", "measure.repeats=2"}
		}, nil},
		"overridden twice": {func(r *results.Record) { r.Overrides = []string{"job.A.rate=8Gbit/s", "job.A.rate=9Gbit/s"} },
			[]string{"--set job.A.rate=9Gbit/s, was none"}},
		"the inventory":        {func(r *results.Record) { r.Inventory.SHA256 = "9c02" }, []string{"the inventory changed"}},
		"a file that it names": {func(r *results.Record) { r.Files = map[string]string{"jobs.csv": "01"} }, []string{"what is in the files that the experiment names is known of one run alone"}},
		"the driver":           {func(r *results.Record) { r.Driver = "lab" }, []string{"driver lab, was netns"}},
		"the switch":           {func(r *results.Record) { r.Switch = "bmv2" }, []string{"switch bmv2, was soft"}},
		"the factor":           {func(r *results.Record) { r.Scale.Factor = 2000 }, []string{"scale slow-motion x2000, was slow-motion x1000"}},
		"the processor":        {func(r *results.Record) { r.Hosts[0].CPU = "EPYC" }, []string{"machine 2 x EPYC, was 2 x Xeon"}},
		"no processor":         {func(r *results.Record) { r.Hosts[0].CPU = "" }, []string{"machine 2 x ci, was 2 x Xeon"}},
		"two hosts": {func(r *results.Record) { r.Hosts = append(r.Hosts, r.Hosts[0]); r.Hosts[1].Kernel = "5.15" },
			[]string{"kernel 5.15, 6.1.0, was 6.1.0"}},
	} {
		s := of(c.change)
		if got := s.Differences(base); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if (s.Key() == base.Key()) != (c.want == nil) {
			t.Errorf("%s: keys %s and %s", name, s.Key(), base.Key())
		}
	}
	named := func(files map[string]string) Setting { return of(func(r *results.Record) { r.Files = files }) }
	one := named(map[string]string{"/a/jobs.csv": "01", "/a/mine.toml": "02"})
	if other := named(map[string]string{"b/jobs.csv": "01", "b/mine.toml": "02"}); other.Key() != one.Key() {
		t.Error("the same files elsewhere are others")
	}
	other := named(map[string]string{"/a/jobs.csv": "01", "/a/mine.toml": "03"})
	if got := other.Differences(one); other.Key() == one.Key() || !slices.Equal(got, []string{"a file that the experiment names changed"}) {
		t.Errorf("another file: %q", got)
	}
	if got, want := base.String(), "netns, soft switch, slow-motion x1000, 2 x Xeon, kernel 6.1.0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRebuild changes run directories at random, and holds the index that was kept up to date
// to one that is built anew.
func TestRebuild(t *testing.T) {
	r := resultstest.Random(t)
	root := t.TempDir()
	x := openIndex(t, root)
	var dirs []string
	for step := range 60 {
		if len(dirs) > 0 && r.IntN(3) == 0 {
			dir := filepath.Join(root, dirs[r.IntN(len(dirs))])
			var err error
			switch r.IntN(5) {
			case 0:
				err = os.RemoveAll(dir)
			case 1:
				err = os.Remove(filepath.Join(dir, results.RecordFile))
			case 2: // as a crash of the file system leaves it
				err = os.WriteFile(filepath.Join(dir, results.RecordFile), []byte(`{"schema": 1,`), 0o666)
			case 3:
				err = os.WriteFile(filepath.Join(dir, results.RecordFile), []byte(`{"schema": 99}`), 0o666)
			case 4:
				rec := record(step, r.Float64())
				rec.Switch = "bmv2"
				err = (&results.Dir{Path: dir}).Save(rec)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		} else {
			rec := record(step, r.Float64(), r.Float64())
			if r.IntN(4) == 0 {
				rec.Hosts[0].Kernel = fmt.Sprintf("6.%d", step)
			}
			dirs = append(dirs, resultstest.Save(t, root, rec))
		}
		if r.IntN(2) == 0 {
			if _, err := x.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := x.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := dump(t, x); len(rows) < 50 {
		t.Errorf("only %d rows", len(rows))
	}
	sameRebuilt(t, x)
	update(t, x, 0)
}

// TestReplacedWithinATick replaces a record by one of the same size and time.
func TestReplacedWithinATick(t *testing.T) {
	root := t.TempDir()
	x := openIndex(t, root)
	dir := resultstest.Save(t, root, record(0, 102))
	path := filepath.Join(root, dir, results.RecordFile)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	update(t, x, 1)
	rec := record(0, 202)
	_, old, err := results.Open(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	rec.ID, rec.Schema = old.ID, old.Schema
	if err := (&results.Dir{Path: filepath.Join(root, dir)}).Save(rec); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		t.Fatalf("%v, %v: not the same size and time as %v", after, err, before)
	}
	update(t, x, 1)
	if s := series(t, x, Query{Metric: "goodput"}); s[0].Nights[0].Figures[0] != 202 {
		t.Errorf("the record before was kept: %+v", s)
	}
}

// TestVersions opens indexes that others left.
func TestVersions(t *testing.T) {
	root := t.TempDir()
	dir := resultstest.Save(t, root, record(0, 100))
	path := filepath.Join(root, File)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"CREATE TABLE run (something TEXT)", "INSERT INTO run VALUES ('else')", "PRAGMA user_version = 99"} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	x := openIndex(t, root)
	update(t, x, 1)
	if r, err := x.Runs(t.Context()); err != nil || len(r) != 1 || r[0].Dir != dir {
		t.Errorf("after another version: %+v, %v", r, err)
	}

	other := t.TempDir()
	path = filepath.Join(other, File)
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no index\n", 100)), 0o666); err != nil {
		t.Fatal(err)
	}
	openIndex(t, other)
	if aside, err := os.ReadFile(path + damaged); err != nil || !strings.HasPrefix(string(aside), "this is no index\n") {
		t.Errorf("what was there before is lost: %q, %v", aside, err)
	}
}

// TestDamagedIndex: wherever the index is damaged, whoever brings it up to date has a good one again,
// and goes on with it, as another does who has the damaged one open.
func TestDamagedIndex(t *testing.T) {
	root := t.TempDir()
	for n := range 40 {
		resultstest.Save(t, root, record(n, 100))
	}
	x := openIndex(t, root)
	update(t, x, 40)
	want, err := x.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, File)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	for page := range len(sound) / 4096 {
		bad := slices.Clone(sound)
		for i := range 4096 {
			bad[page*4096+i] ^= 0x5a
		}
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		x, err := Open(t.Context(), root)
		if err != nil {
			t.Errorf("page %d: %v", page, err)
			continue
		}
		beside, err := Open(t.Context(), root)
		if err != nil {
			t.Errorf("page %d, beside another: %v", page, err)
			continue
		}
		for _, x := range []*Index{x, beside, x} {
			if _, err := x.Update(t.Context()); err != nil {
				t.Errorf("page %d: %v", page, err)
			}
		}
		// A page that Update does not read may be found later: then the next command has a sound one.
		got, err := x.Runs(t.Context())
		if errors.Is(err, ErrCorrupt) {
			if err = PutAside(root); err == nil {
				x.Close()
				x = openIndex(t, root)
				update(t, x, 40)
				got, err = x.Runs(t.Context())
			}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Run{}, stamp{})); err != nil || diff != "" {
			t.Errorf("page %d: %v (-want +got):\n%s", page, err, diff)
		}
		x.Close()
		beside.Close()
	}
}

func TestFileSystems(t *testing.T) {
	if err := check(t.TempDir()); err != nil {
		t.Errorf("here: %v", err)
	}
	for magic, local := range map[int64]bool{
		unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
		unix.NFS_SUPER_MAGIC: false, unix.CIFS_SUPER_MAGIC: false, unix.SMB2_SUPER_MAGIC: false, unix.V9FS_MAGIC: false, unix.FUSE_SUPER_MAGIC: false,
		// statfs has 32 bits with a sign on some machines.
		int64(int32(unix.CIFS_SUPER_MAGIC - 1<<32)): false,
	} {
		if err := onNetwork("/x", magic); (err == nil) != local || err != nil && !errors.Is(err, ErrFileSystem) {
			t.Errorf("%#x: %v", magic, err)
		}
	}
	if _, err := Open(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
	if _, err := InMemory(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such directory, in memory: %v", err)
	}
}

// TestReadOnly reads runs where nothing can be written.
func TestReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	root := t.TempDir()
	resultstest.Save(t, root, record(0, 100))
	if err := os.Chmod(root, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(root, 0o755) // else it could not be removed
	if _, err := Open(t.Context(), root); !errors.Is(err, ErrFileSystem) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("open: %v", err)
	}
	x, err := InMemory(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	update(t, x, 1)
	if s := series(t, x, Query{Metric: "goodput"}); len(s) != 1 {
		t.Errorf("%+v", s)
	}
	if names, err := os.ReadDir(root); err != nil || len(names) != 2 { // the run, and latest
		t.Errorf("%v, %v", names, err)
	}
}

// TestBusy: who waits for another process to write, or to read, hears that it is to end.
func TestBusy(t *testing.T) {
	for name, statements := range map[string][]string{"it writes": {"BEGIN IMMEDIATE"}, "it reads": {"BEGIN", "SELECT count(*) FROM run"}} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			resultstest.Save(t, root, record(0, 100))
			x, other := openIndex(t, root), openIndex(t, root)
			for _, s := range statements {
				if _, err := other.db.Load().Exec(s); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			if _, err := x.Update(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > patience/2 {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			if _, err := other.db.Load().Exec("ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			update(t, x, 1)
		})
	}
}

// TestForeignDirectories: a directory that nobody may look into, as lost+found, or whose record leads nowhere, is no run,
// and keeps nobody from the others.
func TestForeignDirectories(t *testing.T) {
	root := t.TempDir()
	resultstest.Save(t, root, record(0, 100))
	if err := errors.Join(os.Mkdir(filepath.Join(root, "x"), 0o777), os.Symlink(results.RecordFile, filepath.Join(root, "x", results.RecordFile)), os.Mkdir(filepath.Join(root, "lost+found"), 0),
		os.Mkdir(filepath.Join(root, "y"), 0o777), os.Symlink(strings.Repeat("n", 300), filepath.Join(root, "y", results.RecordFile))); err != nil {
		t.Fatal(err)
	}
	update(t, openIndex(t, root), 1)
}

func TestCancelled(t *testing.T) {
	root := t.TempDir()
	resultstest.Save(t, root, record(0, 100))
	x := openIndex(t, root)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Update(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("update: %v", err)
	}
	update(t, x, 1)
}
