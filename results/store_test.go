package results_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/report"
	"github.com/inabench/inabench/results/resultstest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

func TestRunDirectory(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	rec := resultstest.FairShare()
	rec.ID = ""
	d, err := results.Create(root, rec)
	if err != nil {
		t.Fatal(err)
	}
	if !results.Running(d.Path) {
		t.Error("a run that is being written does not run")
	}
	// A run that is cut off here can be opened, and says so.
	_, got, err := results.Open(root, "latest")
	if err != nil || got.Complete() || got.Outcome != results.ErrorOutcome || got.ExitCode != 6 || len(got.Reasons) == 0 {
		t.Fatalf("just created: %+v, %v", got, err)
	}
	if text, err := os.ReadFile(filepath.Join(d.Path, results.ExperimentFile)); err != nil || string(text) != rec.Experiment.Text {
		t.Errorf("experiment: %q, %v", text, err)
	}

	want := []results.Sample{{T: 1.5, Source: "host h1", Metric: "nic_tx_bytes", Of: "h1->tor1", Value: 12345, Unit: "B"}, {T: 2, Source: "worker A/0", Metric: "rtt", Of: "A/0", Value: 0.05, Unit: "s", Gauge: true}}
	if err := d.Append(want...); err != nil {
		t.Fatal(err)
	}
	if err := d.Append(results.Sample{Value: math.NaN()}); err != nil {
		t.Fatal(err)
	}
	if err := report.Write(d, rec); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(rec); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if results.Running(d.Path) || results.Running(root) {
		t.Error("a closed run, or what is none, runs")
	}
	if err := d.Append(want...); err == nil {
		t.Error("append after close")
	}

	d, got, err = results.Open(root, rec.ID[:8])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("record (-saved +read):\n%s", diff)
	}
	samples, err := d.Samples()
	if diff := cmp.Diff(want, samples); err != nil || diff != "" {
		t.Errorf("samples: %v\n%s", err, diff)
	}
	for _, name := range []string{results.RecordFile, results.SamplesFile, results.ExperimentFile, results.InventoryFile, results.ReportFile, results.JUnitFile} {
		if st, err := os.Stat(filepath.Join(d.Path, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(d.Path, ".*"))
	more, _ := filepath.Glob(filepath.Join(root, ".*"))
	if len(left)+len(more) > 0 {
		t.Errorf("temporary files are left: %q %q", left, more)
	}
}

// TestFlatLists: lists of numbers and texts are on a line, and nothing else changes.
func TestFlatLists(t *testing.T) {
	in := map[string]any{
		"a": []float64{1, -2.5e-7, 3}, "b": []string{"x, [y", `quote " and \\ [`, ""}, "c": []any{[]int{1}, map[string]any{"d": []bool{true}}, []int{}},
		"e [1, 2]": "[\n  1,\n  2\n]", "f": nil,
	}
	indented, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := results.FlatLists(indented)
	var a, b bytes.Buffer
	if err := errors.Join(json.Compact(&a, indented), json.Compact(&b, got)); err != nil || a.String() != b.String() {
		t.Errorf("%v: %s\nbecame\n%s", err, indented, got)
	}
	for _, line := range []string{`  "a": [1, -2.5e-7, 3],`, `    [1],`, `      "d": [true]`, `    []`} {
		if !strings.Contains(string(got), "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
}

// FuzzFlatLists: JSON stays what it was.
func FuzzFlatLists(f *testing.F) {
	for _, s := range []string{`[1,[2],"]"]`, `{"a":["\\\"]",1]}`, `[]`, `"["`, `[{}]`, `[[[1,2],3],4]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var indented, a, b bytes.Buffer
		if json.Indent(&indented, []byte(text), "", "  ") != nil {
			return
		}
		got := results.FlatLists(indented.Bytes())
		if err := errors.Join(json.Compact(&a, indented.Bytes()), json.Compact(&b, got)); err != nil || a.String() != b.String() {
			t.Errorf("%v: %s became %s", err, indented.String(), got)
		}
	})
}

// TestEncode: a record's points are encoded side by side, and it is what it would be in one go.
func TestEncode(t *testing.T) {
	long, _ := resultstest.Waterfill()
	for procs := 1; procs <= 3; procs++ {
		was := runtime.GOMAXPROCS(procs)
		for _, rec := range []*results.Record{{}, {Points: []results.Point{}}, {Points: []results.Point{{Error: "\n  \"points\": []"}}}, resultstest.FairShare(), long, resultstest.Policies([]float64{1, 2}, 7), resultstest.Figure8()} {
			whole, err := json.MarshalIndent(rec, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := rec.Encode(); err != nil || !bytes.Equal(got, results.FlatLists(whole)) {
				t.Errorf("%d points, %d at a time: %v, %s\nwant %s", len(rec.Points), procs, err, got, results.FlatLists(whole))
			}
		}
		runtime.GOMAXPROCS(was)
	}
	bad := &results.Record{Points: []results.Point{{}, {Params: map[string]any{"a": math.NaN()}}, {}}}
	if _, err := bad.Encode(); err == nil {
		t.Error("what JSON cannot carry was encoded")
	}
}

func TestOpenReferences(t *testing.T) {
	root := t.TempDir()
	if list, err := results.List(filepath.Join(root, "none")); err != nil || len(list) != 0 {
		t.Errorf("no root: %v, %v", list, err)
	}
	if _, _, err := results.Open(root, "latest"); !errors.Is(err, results.ErrNotFound) {
		t.Errorf("empty root: %v", err)
	}
	start := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	var ids, paths []string
	for i := range 3 {
		rec := &results.Record{Name: []string{"quickstart", "quickstart", "two-racks"}[i], Started: start.Add(time.Duration(i) * time.Minute)}
		d, err := results.Create(root, rec)
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		ids, paths = append(ids, rec.ID), append(paths, d.Path)
	}
	for ref, want := range map[string]string{
		"latest": paths[2], "": paths[2], ids[0]: paths[0], strings.ToLower(ids[1]): paths[1], ids[1][20:]: paths[1],
		paths[0]: paths[0], filepath.Join(paths[1], results.RecordFile): paths[1], "2026-11-20T09-01": paths[1],
		"quickstart": paths[1], "two-racks": paths[2], // the newest run of an experiment
	} {
		if d, _, err := results.Open(root, ref); err != nil || filepath.Base(d.Path) != filepath.Base(want) {
			t.Errorf("Open(%q) = %v, %v; want %s", ref, d, err, want)
		}
	}
	if _, _, err := results.Open(root, "2026-11"); !errors.Is(err, results.ErrAmbiguous) {
		t.Errorf("ambiguous: %v", err)
	}
	if _, _, err := results.Open(root, "zzz"); !errors.Is(err, results.ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	// Without the link, and with a broken record in between.
	os.Remove(filepath.Join(root, "latest"))
	if d, _, err := results.Open(root, "latest"); err != nil || d.Path != paths[2] {
		t.Errorf("latest without link: %v, %v", d, err)
	}
	if err := os.WriteFile(filepath.Join(paths[1], results.RecordFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := results.List(root)
	if err != nil || len(list) != 3 || list[0].Path != paths[2] || list[1].Err == nil || list[2].Err != nil {
		t.Errorf("list: %+v, %v", list, err)
	}
	if _, _, err := results.Open(root, ids[1]); err == nil || !strings.Contains(err.Error(), paths[1]) {
		t.Errorf("broken record: %v", err)
	}
}

// TestFullDisk writes samples to /dev/full: from then on they are left out, which ends nothing.
func TestFullDisk(t *testing.T) {
	disk, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no /dev/full: %v", err)
	}
	d, err := results.Create(t.TempDir(), &results.Record{Name: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Append(results.Sample{T: 0.5, Metric: "m"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if at, cut := d.Cut(); cut {
		t.Errorf("cut at %g s before the disk was full", at)
	}
	d.Kill()
	d.WriteTo(disk)
	for i := range 5000 {
		if err := d.Append(results.Sample{T: float64(i + 1), Metric: "m", Source: "s", Of: "o"}); err != nil {
			t.Fatal(err)
		}
	}
	if at, cut := d.Cut(); !cut || at != 1 {
		t.Errorf("cut %t, at %g s, want at 1 s", cut, at)
	}
	if err := d.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := d.Save(&results.Record{Name: "r", Outcome: results.ErrorOutcome}); err != nil {
		t.Errorf("the record could not be saved although its disk has room: %v", err)
	}
}

// A disk that is full in the middle of a write is a process that may not write more than 64 bytes:
// not this one, of which package testing keeps a log.
func TestSaveKeepsTheOldRecord(t *testing.T) {
	if path := os.Getenv("INABENCH_SAVE_ON_A_FULL_DISK"); path != "" {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
			t.Fatal(err)
		}
		fmt.Print((&results.Dir{Path: path}).Save(&results.Record{Name: "new", Title: strings.Repeat("x", 1000)}))
		os.Exit(0)
	}
	d, err := results.Create(t.TempDir(), &results.Record{Name: "old"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	other := exec.Command(os.Args[0], "-test.run=^TestSaveKeepsTheOldRecord$")
	other.Env = append(os.Environ(), "INABENCH_SAVE_ON_A_FULL_DISK="+d.Path)
	said, err := other.CombinedOutput()
	if err != nil || !strings.Contains(string(said), filepath.Join(d.Path, results.RecordFile)) || !strings.Contains(string(said), syscall.EFBIG.Error()) {
		t.Errorf("save beyond the limit: %s, %v", said, err)
	}
	_, rec, err := results.Open(filepath.Dir(d.Path), d.Path)
	if err != nil || rec.Name != "old" {
		t.Errorf("the old record is gone: %+v, %v", rec, err)
	}
	if left, _ := filepath.Glob(filepath.Join(d.Path, ".*")); len(left) != 1 || filepath.Base(left[0]) != results.ReserveFile {
		t.Errorf("left: %q", left)
	}
}

// judgedOnFullDisk has samples fill the disk of a directory of runs, and looks at what a run of so large a record leaves there:
// its report, "" where there is no room for it, or "refused" of a run that does not begin.
func judgedOnFullDisk(t *testing.T, dir string, size int) string {
	t.Helper()
	d, err := results.Create(dir, &results.Record{Name: "r"})
	if err != nil {
		if left, lerr := os.ReadDir(dir); !results.Full(err) || lerr != nil || len(left) > 0 {
			t.Errorf("a run of %d bytes does not begin: %v, and leaves %v, %v", size, err, left, lerr)
		}
		return "refused"
	}
	for i, cut := 0, false; !cut; i++ {
		if err := d.Append(results.Sample{T: float64(i), Metric: "m", Source: "s", Of: "o"}); err != nil {
			t.Fatal(err)
		}
		_, cut = d.Cut()
	}
	rec := &results.Record{Name: "r", Title: strings.Repeat("x", size), Finished: time.Now(), Outcome: results.ErrorOutcome, Reasons: []string{"why"}}
	rec.Warnings = append(rec.Warnings, d.Shortened())
	err = errors.Join(d.Finish(rec, func(d *results.Dir, _ *results.Record) error {
		return d.WriteFile(results.ReportFile, make([]byte, 100_000))
	}), d.Close())
	if err != nil {
		t.Errorf("a record of %d bytes: %v", size, err)
	}
	got, err := results.ReadRecord(d.Path)
	if err != nil || !got.Complete() || got.Title != rec.Title || len(got.Reasons) != 1 || got.Reasons[0] != rec.Reasons[0] {
		t.Errorf("the record of %d bytes is not what was judged: %v", size, err)
	}
	at, _ := d.Cut()
	samples, err := d.Samples()
	if err != nil || float64(len(samples)) != at || !slices.Contains(rec.Warnings, d.Shortened()) || strings.Count(strings.Join(rec.Warnings, "\n"), results.SamplesFile) != 1 {
		t.Errorf("%d samples, %v, cut at %g: %q", len(samples), err, at, rec.Warnings)
	}
	st, err := os.Stat(filepath.Join(d.Path, results.ReportFile))
	said := strings.Contains(strings.Join(rec.Warnings, "\n"), results.ReportFile)
	switch {
	case err == nil && st.Size() == 100_000 && !said:
		return results.ReportFile
	case errors.Is(err, fs.ErrNotExist) && said:
		return ""
	}
	t.Errorf("the report beside a record of %d bytes: %v, and warnings %q", size, err, rec.Warnings)
	return ""
}

// TestFullDiskIsJudged: samples that fill the disk leave the room for what a run came to, and for its report where it is not too
// small for both; a disk that is too small for a record begins no run. The disks are small ones that another process of this test has
// for itself.
func TestFullDiskIsJudged(t *testing.T) {
	const variable, noDisk = "INABENCH_JUDGE_ON_A_FULL_DISK", 125
	if dir := os.Getenv(variable); dir != "" {
		refused, without, all := 0, 0, 0
		for _, kb := range []int{4, 16, 48, 64, 80, 96, 112, 128, 160, 200, 256, 400, 512, 640, 700, 800, 1024, 2048, 4096} {
			for _, record := range []int{10_000, 300_000} {
				if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kb)); err != nil { // over the one before
					fmt.Println("mount:", err)
					os.Exit(noDisk)
				}
				if record > kb<<10-100_000 && kb > 64 { // it is larger than the disk, or all else there leaves no room for it
					continue
				}
				switch report := judgedOnFullDisk(t, dir, record); {
				case report == "refused":
					refused++
				case report == "":
					without++
				default:
					all++
				}
			}
		}
		if refused < 4 || without == 0 || all < 10 {
			t.Errorf("%d runs are refused, %d have no report, %d have all", refused, without, all)
		}
		return
	}
	other := exec.Command(os.Args[0], "-test.run=^TestFullDiskIsJudged$")
	other.Env = append(os.Environ(), variable+"="+t.TempDir())
	other.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	said, err := other.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == noDisk:
		testbedtest.Require(t, "netns", errors.New(string(said)))
	case errors.As(err, &exit):
		t.Errorf("%s", said)
	default:
		testbedtest.Require(t, "netns", err)
	}
}

// TestLockHeld: who wants a file locked that somebody holds is told so after a while, and has it where it is let go before.
func TestLockHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.jsonl")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	holder, f := open(), open()
	hold := func(how int) {
		if err := syscall.Flock(int(holder.Fd()), how); err != nil {
			t.Fatal(err)
		}
	}
	lock := func(patience time.Duration) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- results.Lock(f, patience) }()
		return ended
	}
	within := func(ended <-chan error) error {
		t.Helper()
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Minute):
			t.Fatal("it waits for ever")
			return nil
		}
	}
	hold(syscall.LOCK_SH)
	if err := within(lock(50 * time.Millisecond)); !errors.Is(err, syscall.EWOULDBLOCK) || !strings.Contains(err.Error(), "another process holds it") {
		t.Errorf("held: %v", err)
	}
	ended := lock(time.Hour)
	select {
	case err := <-ended:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	hold(syscall.LOCK_UN)
	if err := within(ended); err != nil || !results.Locked(path) {
		t.Errorf("let go: %v", err)
	}
}

// TestRunningBeside: a run is locked from its beginning, however often others ask whether it is.
func TestRunningBeside(t *testing.T) {
	root := t.TempDir()
	over := make(chan struct{})
	var askers sync.WaitGroup
	for range 4 {
		askers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				dirs, _ := filepath.Glob(filepath.Join(root, "2*"))
				for _, dir := range dirs[max(0, len(dirs)-2):] {
					results.Running(dir)
				}
			}
		})
	}
	runs := 300
	if !proof.Wanted() {
		runs = 40
	}
	for range runs {
		d, err := results.Create(root, &results.Record{Name: "r"})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if !results.Running(d.Path) {
				t.Fatal("a run that goes on is taken for one that was cut off")
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	askers.Wait()
}

// TestSaveBounded: a record that nobody could read does not take the place of one that everybody can.
func TestSaveBounded(t *testing.T) {
	proof.Only(t, "it writes as much as a record may have")
	d, err := results.Create(t.TempDir(), &results.Record{Name: "r"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Save(&results.Record{Name: "r", Title: strings.Repeat("x", results.MaxRecord)}); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if rec, err := results.ReadRecord(d.Path); err != nil || rec.Title != "" {
		t.Errorf("%v", err)
	}
}

// TestReadBounded: what is little in a file and much in memory is not read.
func TestReadBounded(t *testing.T) {
	for _, c := range []struct {
		name, text string
		err        error
	}{
		{"points without anything", `{"schema":1,"points":[` + strings.Repeat("{},", 3_000_000) + `{}]}`, bounded.ErrTooLarge},
		{"nothing instead of points", `{"schema":1,"points":[` + strings.Repeat("null,", 3_000_000) + `null]}`, bounded.ErrTooLarge},
		{"numbers instead of points", `{"schema":1,"POINTS":[` + strings.Repeat("0,", 3_000_000) + `0]}`, bounded.ErrTooLarge},
		{"lists without anything", `{"schema":1,"curves":[[` + strings.Repeat("[],", 3_000_000) + `[]]]}`, bounded.ErrTooLarge},
		{"lists in lists", `{"schema":1,"points":[{"params":{"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}]}`, bounded.ErrTooLarge},
		{"braces in a text", `{"schema":1,"title":"\"` + strings.Repeat("{n", 2_000_000) + `\\"}`, nil},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, results.RecordFile), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := results.ReadRecord(dir); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestSweep: what a killed start left goes, once it is old and nobody holds it; all else stays.
func TestSweep(t *testing.T) {
	root := t.TempDir()
	old := time.Now().Add(-2 * results.Abandoned)
	create := func(record bool, age time.Time) string {
		d, err := results.Create(root, &results.Record{Name: "r"})
		if err != nil {
			t.Fatal(err)
		}
		d.Kill() // what was reserved stays
		if !record {
			if err := os.Remove(filepath.Join(d.Path, results.RecordFile)); err != nil {
				t.Fatal(err)
			}
		}
		left, err := filepath.Glob(filepath.Join(d.Path, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range append(left, filepath.Join(d.Path, results.ReserveFile), d.Path) {
			if err := os.Chtimes(path, age, age); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Base(d.Path)
	}
	live, err := results.Create(root, &results.Record{Name: "r"})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if err := errors.Join(
		os.Remove(filepath.Join(live.Path, results.RecordFile)),
		os.Chtimes(live.Path, old, old), os.Chtimes(filepath.Join(live.Path, results.SamplesFile), old, old), os.Chtimes(filepath.Join(live.Path, results.ReserveFile), old, old),
		os.Mkdir(filepath.Join(root, "notes"), 0o777), os.Chtimes(filepath.Join(root, "notes"), old, old),
	); err != nil {
		t.Fatal(err)
	}
	stay := map[string]bool{
		create(true, old): true, create(false, time.Now()): true, create(false, old): false,
		filepath.Base(live.Path): true, "notes": true,
	}
	if err := results.Sweep(root, results.RecordFile); err != nil {
		t.Fatal(err)
	}
	for name, want := range stay {
		_, err := os.Stat(filepath.Join(root, name))
		if there := err == nil; there != want {
			t.Errorf("%s is there: %v", name, there)
		}
		_, err = os.Stat(filepath.Join(root, name, results.ReserveFile))
		if there := err == nil; there != (name == filepath.Base(live.Path) || want && name != "notes" && !results.IsRun(filepath.Join(root, name))) {
			t.Errorf("what %s reserved is there: %v", name, there)
		}
	}
}

// TestSweepAside: what Remove left when it was killed goes; what others call so, files and links stay.
func TestSweepAside(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	const ours = ".gone-01JD4K7Q3ZT9V8B6N2XHFQW5M"
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, ours+"A", "raw"), 0o777), os.Mkdir(filepath.Join(root, ".gone-notes"), 0o777),
		os.WriteFile(filepath.Join(root, ours+"B"), nil, 0o666), os.Symlink(elsewhere, filepath.Join(root, ours+"C")),
		os.Mkdir(filepath.Join(root, "run"), 0o777), results.Remove(root, "run"), results.Sweep(root, results.RecordFile),
	); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{ours + "B", ours + "C", ".gone-notes"}; !slices.Equal(left, want) {
		t.Errorf("%q are left, want %q", left, want)
	}
	if err := results.Remove(root, "run"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is gone is removed: %v", err)
	}
}

// TestReserve: the room that a run reserves grows with its record, and is given back.
func TestReserve(t *testing.T) {
	d, err := results.Create(t.TempDir(), &results.Record{Name: "r"})
	if err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		st, err := os.Stat(filepath.Join(d.Path, results.ReserveFile))
		if err != nil {
			return 0
		}
		return st.Size()
	}
	if n := size(); n < results.LeastReserve {
		t.Errorf("%d bytes at first", n)
	}
	rec := &results.Record{Name: "r", Title: strings.Repeat("x", 2*results.LeastReserve), Outcome: results.ErrorOutcome}
	if err := d.Save(rec); err != nil {
		t.Fatal(err)
	}
	if n := size(); n < 4*results.LeastReserve {
		t.Errorf("%d bytes for a record of %d", n, len(rec.Title))
	}
	if err := errors.Join(d.Finish(rec, report.Write), d.Close()); err != nil {
		t.Fatal(err)
	}
	if n := size(); n > 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestModes: what a run writes is its user's alone to write, also where the umask takes nothing, and nothing is written
// through a link that was there before.
func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	root := filepath.Join(t.TempDir(), "runs")
	d, err := results.Create(root, &results.Record{Name: "r", Inventory: results.File{Text: "version = 1"}})
	if err != nil {
		t.Fatal(err)
	}
	modes := func(want map[string]fs.FileMode) {
		t.Helper()
		for name, mode := range want {
			if st, err := os.Stat(filepath.Join(d.Path, name)); err != nil || st.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v, want %v", name, st.Mode().Perm(), err, mode)
			}
		}
	}
	modes(map[string]fs.FileMode{"..": 0o775, ".": 0o755, results.SamplesFile: 0o644, results.RecordFile: 0o644, results.InventoryFile: 0o644, results.ReserveFile: 0o600})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	secret := filepath.Join(root, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, filepath.Join(d.Path, results.ReserveFile))); err != nil {
		t.Fatal(err)
	}
	if err := d.Reserve(1 << 20); err == nil {
		t.Error("room is reserved through a link")
	}
	if st, err := os.Stat(secret); err != nil || st.Size() != 6 {
		t.Errorf("%d bytes in what a link led to, %v", st.Size(), err)
	}
}

func TestAppendFromManyGoroutines(t *testing.T) {
	d, err := results.Create(t.TempDir(), &results.Record{Name: "r"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 {
				if err := d.Append(results.Sample{T: float64(i), Metric: "m"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := d.Samples(); err != nil || len(s) != 4000 {
		t.Errorf("%d samples, %v", len(s), err)
	}
}

func TestCreateUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if d, err := results.Create(filepath.Join(file, "runs"), &results.Record{}); err == nil || d != nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v, %v", d, err)
	}
	if _, _, err := results.Open(file, "x"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open under a file: %v", err)
	}
}

func TestScrub(t *testing.T) {
	rec := &results.Record{Points: []results.Point{{
		Phases: []results.Phase{{Figures: []results.Figure{{Value: math.NaN(), Hi: math.Inf(1), N: 3}, {Value: 1, Grain: math.NaN(), N: 3}}}},
		Params: map[string]any{"rates": []any{1.5, math.Inf(1)}, "mode": "pool"}, Curves: []results.Curve{{Y: []float64{1, math.NaN()}}},
	}}, Checks: []results.Check{{Error: math.Inf(-1)}}, Timings: map[string]float64{"measure": math.Inf(1)}, Reproduced: []results.Reproduction{{Here: &results.Effect{Lo: math.NaN()}}}}
	var b bytes.Buffer
	if err := results.WriteJSON(&b, rec); err != nil {
		t.Fatal(err)
	}
	p := rec.Points[0]
	if f := p.Phases[0].Figures; f[0].N != 0 || f[1].N != 0 || f[1].Value != 1 || p.Curves[0].Y[0] != 1 || p.Params["mode"] != "pool" || !slices.Equal(rec.Warnings, []string{"8 values were not finite numbers; they are stored as 0"}) {
		t.Errorf("%+v", rec)
	}
}

// FuzzReadSamples: no input may panic, and what was read is written and read again
// the same.
func FuzzReadSamples(f *testing.F) {
	f.Add([]byte(`{"t":1,"source":"host h1","metric":"m","of":"o","value":2,"unit":"B"}` + "\n" + `{"t":2,"sour`))
	f.Add([]byte("\n\n{}\n[]\n"))
	f.Add([]byte(`{"t":1e999}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, _ := results.ReadSamples(bytes.NewReader(data))
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		for _, s := range first {
			if err := enc.Encode(s); err != nil {
				t.Fatal(err)
			}
		}
		again, err := results.ReadSamples(&b)
		if diff := cmp.Diff(first, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

func TestReadSamplesCutOff(t *testing.T) {
	whole := `{"t":1,"metric":"a"}` + "\n" + `{"t":2,"metric":"b"}` + "\n"
	for n := range len(whole) + 1 {
		s, err := results.ReadSamples(strings.NewReader(whole[:n]))
		if want := strings.Count(whole[:n], "}"); err != nil || len(s) != want {
			t.Errorf("cut after %d bytes: %d samples, %v; want %d", n, len(s), err, want)
		}
	}
	for text, want := range map[string]string{
		"{\"t\":1}\nrubbish\n{\"t\":2}\n":                               "line 2 is damaged",
		"{\"t\":1}\n\n{\"t\":9,\"sou{\"t\":9}\n[]\n{\"t\":2}\n{\"t\":3": "2 lines are damaged, the first is line 3",
		// Longer than a line may be, and the longest that may be.
		"{\"t\":1}\n" + strings.Repeat("x", 10<<20) + "\n{\"t\":2}\n":                  "line 2 is damaged: it is too large",
		"{\"t\":1}\n{\"t\":9}" + strings.Repeat(" ", bounded.Line-6) + "\n{\"t\":2}\n": "line 2 is damaged: it is too large",
		"{\"t\":1}\n{\"t\":2}" + strings.Repeat(" ", bounded.Line-7) + "\nrubbish\n":   "line 3 is damaged",
		"{\"t\":1}\n{\"t\":2}\n" + strings.Repeat("x", bounded.Line+2):                 "line 3 is damaged: it is too large",
	} {
		s, err := results.ReadSamples(strings.NewReader(text))
		var damaged *results.Damaged
		if !errors.As(err, &damaged) || !strings.HasPrefix(err.Error(), want) || len(s) != 2 || s[1].T != 2 {
			t.Errorf("%.40q: %v, %v; want %s", text, s, err, want)
		}
	}
}

// TestFinish: with -race, that reports change nothing of what is saved beside them.
func TestFinish(t *testing.T) {
	odd := &results.Record{Name: "odd", Points: []results.Point{{Phases: []results.Phase{{Figures: []results.Figure{{Metric: "share", Value: math.NaN(), N: 3}}}}}}}
	for name, rec := range map[string]*results.Record{"quickstart": resultstest.Quickstart(), "policies": resultstest.Policies([]float64{1, 4}, 3), "hostile": resultstest.Hostile(), "not finite": odd} {
		d, err := results.Create(t.TempDir(), rec)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Close(), d.Finish(rec, report.Write)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := results.ReadRecord(d.Path)
		if err != nil {
			t.Fatal(err)
		}
		var saved, want bytes.Buffer
		if err := errors.Join(results.WriteJSON(&saved, got), results.WriteJSON(&want, rec)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), saved.String()); diff != "" {
			t.Errorf("%s is saved otherwise (-want +got):\n%s", name, diff)
		}
		for _, file := range []string{results.ReportFile, results.JUnitFile} {
			if _, err := os.Stat(filepath.Join(d.Path, file)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestContradiction: a record whose outcome is not that of its own checks is not shown as if it were.
func TestContradiction(t *testing.T) {
	failed := []results.Check{{Expect: "goodput", Gate: true, Outcome: results.Fail}}
	share := func(change func(c *results.Check)) results.Record {
		c := results.Check{Expect: "share", Gate: true, Outcome: results.Pass, Metric: "share", Of: "A@tor1", Kind: results.Measured, Predictor: "occupancy",
			Bound: "within", Statistic: "each", Measured: .4, Predicted: .38, Error: .02, Tolerance: .05}
		change(&c)
		return results.Record{Outcome: results.Pass, Checks: []results.Check{c}, Expect: []results.Expect{{Name: "share", Gate: true, Tolerance: .05}}, Points: []results.Point{{Phases: []results.Phase{{Figures: []results.Figure{
			{Metric: "share", Of: "A@tor1", Kind: results.Measured, Value: .4},
			{Metric: "share", Of: "A@tor1", Kind: results.Predicted, Predictor: "occupancy", Value: .38},
		}}}}}}
	}
	with := func(change func(r *results.Record)) results.Record {
		r := share(func(*results.Check) {})
		change(&r)
		return r
	}
	text := func(run, kept string) results.File {
		return results.File{Path: "a.toml", SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(run))), Text: kept}
	}
	ended := func(r results.Record) results.Record { // of the program
		r.Finished, r.Args = time.Unix(1, 0), []string{"run", "a.toml"}
		return r
	}
	sums := func(compared int64) results.Record {
		return with(func(r *results.Record) {
			r.Points[0].Jobs = []results.JobSummary{{Job: "A", SumsChecked: compared}}
			r.Points[0].Phases = append(r.Points[0].Phases, results.Phase{Figures: []results.Figure{{Metric: "sum_errors", Of: "A", Kind: results.Measured}}})
		})
	}
	repeats := func(change func(c *results.Check)) results.Record { // .4 and .42
		r := share(func(c *results.Check) {
			c.Measured, c.Error, c.Repeats = .41, .03, 2
			change(c)
		})
		other := r.Points[0].Phases[0].Figures
		r.Points = append(r.Points, results.Point{Repeat: 1, Phases: []results.Phase{{Figures: []results.Figure{{Metric: "share", Of: "A@tor1", Kind: results.Measured, Value: .42}, other[1]}}}})
		r.Planned = 2
		return r
	}
	fault := share(func(*results.Check) {})
	fault.Args = []string{"run", "--sabotage=slow-up", "x.toml"}
	faulty := fault
	faulty.Sabotage = &results.Sabotage{Fault: "slow-up"}
	for _, c := range []struct {
		name string
		rec  results.Record
		fine bool
	}{
		{"passed", results.Record{Outcome: results.Pass, Checks: []results.Check{{Gate: true, Outcome: results.Pass}, {Outcome: results.Fail}}}, true},
		{"failed", results.Record{Outcome: results.Fail, Checks: failed}, true},
		{"is still written", results.Record{Checks: failed}, true},
		{"passes with nothing judged", results.Record{Outcome: results.Pass}, false},
		{"passes with a check that is undecided", results.Record{Outcome: results.Pass, Checks: []results.Check{{Gate: true, Outcome: results.Pass}, {Gate: true, Outcome: results.Inconclusive}}}, false},
		{"passes with points that are gone", results.Record{Outcome: results.Pass, Planned: 2, Checks: []results.Check{{Gate: true, Outcome: results.Pass}}}, false},
		{"passes with a check that failed", results.Record{Outcome: results.Pass, Checks: failed}, false},
		{"passes with a point that ended early", results.Record{Outcome: results.Pass, Checks: []results.Check{{Gate: true, Outcome: results.Pass}}, Points: []results.Point{{Error: "killed"}}}, false},
		{"passes by its own figures", share(func(*results.Check) {}), true},
		{"passes with a figure that is off", share(func(c *results.Check) { c.Tolerance = .01 }), false},
		{"passes with an error that is none", share(func(c *results.Check) { c.Predicted, c.Error = .5, 0 }), false},
		{"passes with another measurement than its phase's", share(func(c *results.Check) { c.Measured, c.Error = .38, 0 }), false},
		{"passes with another prediction than its phase's", share(func(c *results.Check) { c.Predicted, c.Error = .4, 0 }), false},
		{"passes without what was expected", share(func(c *results.Check) { c.Expect = "rate" }), false},
		{"has a finding of the name of what was expected", with(func(r *results.Record) {
			r.Checks = append(r.Checks, results.Check{Expect: "share", Predictor: results.Evidence, Metric: results.Evidence, Bound: "within", Gate: true, Implied: true, Outcome: results.Pass})
		}), true},
		{"has a finding of the name of what was expected alone", with(func(r *results.Record) {
			r.Expect = append(r.Expect, results.Expect{Name: "sums", Gate: true})
			r.Checks = append(r.Checks, results.Check{Expect: "sums", Predictor: results.Evidence, Metric: results.Evidence, Bound: "within", Gate: true, Implied: true, Outcome: results.Pass})
		}), false},
		{"was given a fault and says so", faulty, true},
		{"was given a fault and does not say so", fault, false},
		{"ended with an error", with(func(r *results.Record) { r.ExitCode = 7 }), false},
		{"lacks a point", with(func(r *results.Record) { r.Planned = 2 }), false},
		{"has a point twice", with(func(r *results.Record) { r.Points = append(r.Points, r.Points[0]) }), false},
		{"has repeats", with(func(r *results.Record) {
			again := r.Points[0]
			again.Repeat = 1
			r.Points, r.Planned = append(r.Points, again), 2
		}), true},
		{"has a check that decides nothing any more", with(func(r *results.Record) {
			r.Checks = append(r.Checks, results.Check{Expect: "share", Outcome: results.Fail, Tolerance: .05})
		}), false},
		{"has another tolerance than it was given", with(func(r *results.Record) { r.Checks[0].Tolerance = .5 }), false},
		{"has the text that was run", with(func(r *results.Record) { r.Experiment = text("a = 1\n", "a = 1\n") }), true},
		{"has another text than was run", with(func(r *results.Record) { r.Experiment = text("a = 1\n", "a = 2\n") }), false},
		{"has another inventory than was run", with(func(r *results.Record) { r.Inventory = text("a = 1\n", "a = 2\n") }), false},
		{"has wrong sums", with(func(r *results.Record) {
			r.Points[0].Jobs = []results.JobSummary{{Job: "A", SumsChecked: 9, SumErrors: 5}}
		}), false},
		{"has right sums", sums(9), true},
		{"has sums that nobody compared", sums(0), false},
		{"has a finding that failed", with(func(r *results.Record) {
			r.Points[0].Findings = []results.Finding{{Name: "sums", Of: "A", Outcome: results.Fail}}
		}), false},
		{"has a finding that is undecided", with(func(r *results.Record) {
			r.Points[0].Findings = []results.Finding{{Name: "sums", Of: "A", Outcome: results.Inconclusive}}
		}), false},
		{"has the mean of its repeats", repeats(func(c *results.Check) {}), true},
		{"has a mean that is in none of its repeats", repeats(func(c *results.Check) { c.Measured, c.Error = .38, 0 }), false},
		{"has a mean that is not off by its error", repeats(func(c *results.Check) { c.Error = .001 }), false},
		{"failed, and no check did", ended(results.Record{Outcome: results.Fail, ExitCode: 1, Checks: []results.Check{{Gate: true, Outcome: results.Pass}, {Outcome: results.Fail}}}), false},
		{"failed with a check", ended(results.Record{Outcome: results.Fail, ExitCode: 1, Checks: failed}), true},
		{"failed, and the program did not", ended(results.Record{Outcome: results.Fail, Checks: failed}), false},
		{"ended early, and the program did not", ended(results.Record{Outcome: results.ErrorOutcome}), false},
		{"ended early", ended(results.Record{Outcome: results.ErrorOutcome, ExitCode: 130}), true},
		{"failed, of no program", results.Record{Outcome: results.Fail, Finished: time.Unix(1, 0)}, true},
		{"goes on", results.Record{Outcome: results.ErrorOutcome, Args: []string{"run"}}, true},
		{"an outcome of its own", results.Record{Outcome: "perfect"}, false},
	} {
		dir := t.TempDir()
		c.rec.Schema = results.Schema
		record, err := json.Marshal(c.rec)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, results.RecordFile), record, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := results.ReadRecord(dir); (err == nil) != c.fine || err != nil && !errors.Is(err, results.ErrContradicts) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestDirectoryOfAnother: a record in the directory of another run is not read as that of either; a copy of a directory is, under any
// name of its own.
func TestDirectoryOfAnother(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	for range 2 {
		d, err := results.Create(root, &results.Record{Name: "r"})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, d.Path)
	}
	for _, name := range []string{"copy", filepath.Base(dirs[0]) + "-copy", "2026-11-30T03-37-12Z-old"} {
		to := filepath.Join(root, name)
		if err := os.CopyFS(to, os.DirFS(dirs[0])); err != nil {
			t.Fatal(err)
		}
		if _, err := results.ReadRecord(to); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dirs[0], results.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dirs[1], results.RecordFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := results.ReadRecord(dirs[1]); !errors.Is(err, results.ErrContradicts) {
		t.Errorf("the record of another run: %v", err)
	}
}

// TestJudgedAgrees: a record of what was judged does not contradict itself, whatever is left out of it, and where a
// prediction of 0 has errors relative to others.
func TestJudgedAgrees(t *testing.T) {
	relative := results.Expect{Name: "e", Metric: "link_rate", Predictor: "occupancy", Statistic: "each", Bound: "within", Tolerance: .05, Relative: true, Gate: true}
	phase := func(rate, model float64) results.Phase {
		got := resultstest.MeasuredFig("link_rate", "a->b", rate, .001*rate, "bit/s")
		got.N = 20
		idle := resultstest.MeasuredFig("link_rate", "b->a", .001, 0, "bit/s")
		idle.N, idle.Lo, idle.Hi = 20, .0009, .0011
		return results.Phase{End: 10, Figures: []results.Figure{got, idle, resultstest.PredictedFig("link_rate", "a->b", model, "bit/s", "occupancy", ""), resultstest.PredictedFig("link_rate", "b->a", 0, "bit/s", "occupancy", "")}}
	}
	spoilt := phase(80, 90)
	spoilt.Spoilt = "the testbed stood still"
	for name, points := range map[string][]results.Point{
		"one run":                    {{Phases: []results.Phase{phase(100, 100)}}},
		"the first of two is spoilt": {{Phases: []results.Phase{spoilt}}, {Repeat: 1, Phases: []results.Phase{phase(98, 100)}}},
		"the last of two is spoilt":  {{Phases: []results.Phase{phase(98, 100)}}, {Repeat: 1, Phases: []results.Phase{spoilt}}},
	} {
		rec := results.Record{Points: points, Expect: []results.Expect{relative}}
		rec.Checks, rec.Outcome, _ = results.Judge(rec.Expect, points)
		if err := rec.Contradiction(); err != nil || rec.Outcome != results.Pass {
			t.Errorf("%s: %s, %v %+v", name, rec.Outcome, err, rec.Checks)
		}
	}
}
