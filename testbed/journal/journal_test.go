package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/internal/proof"
)

// TestMain makes this binary a run that is killed while it writes its journal.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "run" {
		j, err := Open(os.Args[2], header("R"))
		for i := 0; err == nil; i++ {
			if err = j.Begin(change(i)); err == nil {
				fmt.Println(i)
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func header(run string) Header {
	return Header{Run: run, Owner: "anna@desk", Host: "desk", PID: 7, Began: time.Unix(1e9, 0).UTC(), File: "/lab.toml", Inventory: "version = 1\n"}
}

// change makes a change that is unlike the others.
func change(i int) *Change {
	c := &Change{Target: fmt.Sprintf("host h%d", i%3), What: fmt.Sprintf("change %d", i)}
	switch i % 6 {
	case 0:
		c.Undo.Processes = &Processes{Exe: ".cache/inabench/agent", Run: "R"}
	case 1:
		c.Undo.Remove = &Remove{Path: "/etc/x", SHA256: "00"}
	case 2:
		c.Undo.Restore = &Restore{Path: "/etc/sharp_am.cfg", SHA256: "00", Old: []byte("a \x00 b\n"), Mode: 0o644, Sudo: true}
	case 3:
		c.Undo.Entries = &Entries{Epoch: 9, Jobs: []uint16{1, 2}, Groups: []uint16{1}, Routes: []Route{{"10.0.0.1", 3}}}
	case 4:
		c.Undo.Lease = &Lease{Host: "h1", Dir: ".inabench", Key: "host-h1", Token: "T"}
	case 5:
		c.Undo.Script = &Script{Argv: []string{"sh", "-c", "echo '$(date)' \"\n\""}}
	}
	return c
}

func ns(entries []Entry) (out []int) {
	for _, e := range entries {
		out = append(out, e.N)
	}
	return out
}

// TestJournal follows a run that ends before it has undone everything, and what cleans up
// after it.
func TestJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	j, err := Open(dir, header("R"))
	if err != nil {
		t.Fatal(err)
	}
	var all []*Change
	for i := range 6 {
		all = append(all, change(i))
	}
	if err := errors.Join(j.Begin(all[:2]...), j.Begin(all[2:]...), j.Made(all[:4]...), j.Undone(all[1], all[3])); err != nil {
		t.Fatal(err)
	}
	if got := ns(j.Log().Undone()); !slices.Equal(got, []int{6, 5, 3, 1}) {
		t.Errorf("to undo: %v", got)
	}
	if _, err := Open(dir, header("R")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := Resume(dir, "R"); !errors.Is(err, ErrLive) {
		t.Errorf("resumed while it goes on: %v", err)
	}
	if found, err := List(dir); err != nil || len(found) != 1 || !found[0].Live || found[0].Log.Owner != "anna@desk" {
		t.Errorf("%+v, %v", found, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	j, err = Resume(dir, "R")
	if err != nil {
		t.Fatal(err)
	}
	l := j.Log()
	for i, e := range l.Entries {
		if want := change(i); e.What != want.What || !reflect.DeepEqual(e.Undo, want.Undo) {
			t.Errorf("change %d is %+v, want %+v", e.N, e.Undo, want.Undo)
		}
	}
	for _, e := range l.Undone() {
		if err := j.Undone(&e.Change); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(dir, "R"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is left to undo, yet: %v", err)
	}
	if found, err := List(dir); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestNoJournal: nothing is remembered where nothing needs to be.
func TestNoJournal(t *testing.T) {
	var j *Journal
	if err := errors.Join(j.Begin(change(0)), j.Made(change(0)), j.Undone(change(0)), j.Close()); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	for _, run := range []string{"", ".", "..", "a/b", ".hidden", "../x"} {
		if _, err := Open(dir, header(run)); err == nil {
			t.Errorf("run %q", run)
		}
		if _, err := Resume(dir, run); err == nil {
			t.Errorf("run %q", run)
		}
	}
	j, err := Open(dir, header("R"))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	both := change(0)
	both.Undo.Lease = &Lease{}
	for _, c := range []*Change{{Target: "host h1"}, both} {
		if err := j.Begin(c); err == nil {
			t.Errorf("%+v", c)
		}
	}
	if _, err := Open("/proc/self/none", header("R")); err == nil {
		t.Error("a directory that cannot be made")
	}
}

// TestTooLong: what could not be read again is not begun, and what was begun can be undone.
func TestTooLong(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, header("R"))
	if err != nil {
		t.Fatal(err)
	}
	old := func(size int) *Change {
		return &Change{Target: "host h1", What: "write f", Undo: Inverse{Restore: &Restore{Path: "f", Old: make([]byte, size)}}}
	}
	if err := j.Begin(old(mostLine)); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("a line: %v", err)
	}
	var begun []*Change
	for {
		c := old(bounded.Config * 2 / 3)
		if err := j.Begin(c); err != nil {
			if !errors.Is(err, bounded.ErrTooLarge) || len(begun) < 2 {
				t.Fatalf("after %d: %v", len(begun), err)
			}
			break
		}
		begun = append(begun, c)
	}
	if err := errors.Join(j.Made(begun...), j.Close()); err != nil {
		t.Fatal(err)
	}
	if j, err = Resume(dir, "R"); err != nil {
		t.Fatal(err)
	}
	if n := len(j.Log().Undone()); n != len(begun) {
		t.Errorf("%d to undo, of %d", n, len(begun))
	}
	if err := errors.Join(j.Undone(begun...), j.Close()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestNotBegun: of changes that could not be begun nothing more is said, whatever is begun after them.
func TestNotBegun(t *testing.T) {
	for name, undo := range map[string]Inverse{
		"too long":   {Restore: &Restore{Path: "f", Old: make([]byte, mostLine)}},
		"no inverse": {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j, err := Open(dir, header("R"))
			if err != nil {
				t.Fatal(err)
			}
			refused := []*Change{change(0), {Target: "host h1", What: "write f", Undo: undo}}
			if err := j.Begin(refused...); err == nil {
				t.Error("they have begun")
			}
			if err := j.Undone(refused...); err != nil {
				t.Errorf("before another: %v", err)
			}
			begun := change(1)
			if err := errors.Join(j.Begin(begun), j.Made(refused...), j.Undone(refused...), j.Close()); err != nil {
				t.Fatal(err)
			}
			if j, err = Resume(dir, "R"); err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			if left := j.Log().Undone(); len(left) != 1 || left[0].What != begun.What || left[0].Step != Begun {
				t.Errorf("to undo: %+v", left)
			}
		})
	}
}

// TestTorn cuts a journal at every byte and turns every bit of it: all changes before the
// damage are there, and damage that is not at the end is found.
func TestTorn(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, header("R"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if err := j.Begin(change(i)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(j.Log().Path)
	if err != nil {
		t.Fatal(err)
	}
	j.Close()
	for n := range len(text) {
		lines := bytes.Count(text[:n], []byte("\n"))
		l, err := Parse(text[:n])
		switch {
		case lines == 0 && !errors.Is(err, ErrDamaged):
			t.Fatalf("%d bytes, no first line: %v", n, err)
		case lines > 0 && (err != nil || len(l.Entries) != lines-1 || l.Torn != (text[n-1] != '\n')):
			t.Fatalf("%d bytes, %d lines: %+v, %v", n, lines, l, err)
		}
	}
	last := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	for i := range text {
		for bit := range 8 {
			bad := bytes.Clone(text)
			bad[i] ^= 1 << bit
			l, err := Parse(bad)
			switch {
			case i >= last && (err != nil || !l.Torn || len(l.Entries) != 5):
				// A turned letter of the envelope's own names may go unnoticed: what is in
				// it is as it was.
				if err != nil || !reflect.DeepEqual(l.Entries[5].Undo, change(5).Undo) {
					t.Fatalf("last line, byte %d: %+v, %v", i, l, err)
				}
			case i < last && err == nil:
				for k, e := range l.Entries {
					if !reflect.DeepEqual(e.Undo, change(k).Undo) {
						t.Fatalf("byte %d (%q): change %d is %+v", i, text[i], e.N, e.Undo)
					}
				}
			}
		}
	}

	// It goes on behind what is whole.
	path := filepath.Join(dir, "R.jsonl")
	if err := os.WriteFile(path, text[:len(text)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err = Resume(dir, "R"); err != nil {
		t.Fatal(err)
	}
	again := change(11)
	if err := errors.Join(j.Begin(again), j.Close()); err != nil || again.N != 6 {
		t.Errorf("change %d, %v", again.N, err)
	}
	text, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := Parse(text); err != nil || l.Torn || len(l.Entries) != 6 || l.Entries[5].What != "change 11" {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestNewerLine: a whole line that cannot be read is not taken for a torn one, wherever it stands: what it
// undoes would be forgotten.
func TestNewerLine(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, header("R"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Begin(change(0)), j.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(j.Log().Path)
	if err != nil {
		t.Fatal(err)
	}
	what := []byte(`{"begin":{"n":2,"target":"h1","what":"move it","undo":{"teleport":{"to":"h2"}}}}`)
	whole := fmt.Sprintf("{\"crc32c\":\"%08x\",\"entry\":%s}\n", crc32.Checksum(what, castagnoli), what)
	if !bytes.Contains(text, []byte(`"entry":{`)) {
		t.Fatalf("lines are otherwise by now: %s", text)
	}
	if _, err := Parse(append(bytes.Clone(text), whole...)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "teleport") {
		t.Errorf("a whole line: %v", err)
	}
	if l, err := Parse(append(bytes.Clone(text), whole[:len(whole)-1]...)); err != nil || !l.Torn || len(l.Entries) != 1 {
		t.Errorf("without its end: %+v, %v", l, err)
	}
	if l, err := Parse(append(bytes.Clone(text), bytes.Replace([]byte(whole), []byte("h2"), []byte("h3"), 1)...)); err != nil || !l.Torn {
		t.Errorf("with another letter: %+v, %v", l, err)
	}
}

// TestNothingBegun: a run that ended before its journal had a first line did nothing.
func TestNothingBegun(t *testing.T) {
	for _, text := range []string{"", `{"crc32c":"0000`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "R.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := List(dir); err != nil || len(found) != 1 || found[0].Err != nil || found[0].Log.Run != "R" {
			t.Errorf("%q: %+v, %v", text, found, err)
		}
		j, err := Resume(dir, "R")
		if err != nil {
			t.Fatal(err)
		}
		if left := j.Log().Undone(); len(left) != 0 || j.Close() != nil {
			t.Errorf("%q: %v", text, left)
		}
		if found, err := List(dir); err != nil || len(found) != 0 {
			t.Errorf("%q: %+v, %v", text, found, err)
		}
	}
}

// TestFIFO: a FIFO in a journal's place is one that cannot be read, and nobody waits for it.
func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "R.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if found, err := List(dir); err != nil || len(found) != 1 || found[0].Live || !errors.Is(found[0].Err, bounded.ErrIrregular) {
			t.Errorf("list: %+v, %v", found, err)
		}
		if _, err := Resume(dir, "R"); !errors.Is(err, bounded.ErrIrregular) {
			t.Errorf("resume: %v", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a writer")
	}
}

// TestOthers: a journal that others may have written, or put there, is not followed.
func TestOthers(t *testing.T) {
	tests := []struct {
		name string
		do   func(dir, path string) error
		dir  bool // nothing in it is looked at
	}{
		{"everybody may write it", func(_, path string) error { return os.Chmod(path, 0o666) }, false},
		{"a link to another", func(dir, path string) error {
			return errors.Join(os.Rename(path, dir+"/other"), os.Symlink("other", path))
		}, false},
		{"everybody may put it there", func(dir, _ string) error { return os.Chmod(dir, 0o777) }, true},
		{"another user's", func(_, path string) error { return os.Chown(path, 4242, -1) }, false},
		{"in another user's directory", func(dir, _ string) error { return os.Chown(dir, 4242, -1) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.name, "another user") && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			dir := filepath.Join(t.TempDir(), "journal")
			j, err := Open(dir, header("R"))
			if err == nil {
				err = errors.Join(j.Begin(change(0)), j.Close(), tt.do(dir, file(dir, "R")))
			}
			if err != nil {
				t.Fatal(err)
			}
			found, err := List(dir)
			if (err != nil) != tt.dir || !tt.dir && (len(found) != 1 || found[0].Err == nil || found[0].Log != nil) {
				t.Errorf("list: %+v, %v", found, err)
			}
			if _, err := Resume(dir, "R"); err == nil {
				t.Error("it is resumed")
			}
			if _, err := Open(dir, header("S")); (err != nil) != tt.dir {
				t.Errorf("open: %v", err)
			}
		})
	}
}

// TestKill kills processes that write journals: each knows of all that it was told is on
// the disk, can be resumed, and is live before and not after.
func TestKill(t *testing.T) {
	n := 20
	if !proof.Wanted() {
		n = 3
	}
	for range n {
		dir := t.TempDir()
		cmd := exec.Command("/proc/self/exe", "run", dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		told, sc := -1, bufio.NewScanner(out)
		for enough := 1 + rand.IntN(20); told+1 < enough && sc.Scan(); told++ {
		}
		if _, err := Resume(dir, "R"); !errors.Is(err, ErrLive) {
			t.Errorf("before: %v", err)
		}
		cmd.Process.Kill()
		for sc.Scan() {
			told++
		}
		cmd.Wait()
		j, err := Resume(dir, "R")
		if err != nil {
			t.Fatal(err)
		}
		l := j.Log()
		// It may have been killed between the two.
		if k := len(l.Entries); k != told+1 && k != told+2 {
			t.Errorf("%d changes, and it was told of %d", k, told+1)
		}
		j.Close()
	}
}

// TestAtOnce: changes that are begun at once all are there, with numbers of their own.
func TestAtOnce(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, header("R"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			c := change(i)
			if err := errors.Join(j.Begin(c), j.Made(c)); err != nil {
				t.Error(err)
			}
			if i%2 == 0 {
				if err := j.Undone(c); err != nil {
					t.Error(err)
				}
			}
			_, _ = List(dir) // who looks does not disturb
		})
	}
	all.Wait()
	j.Close()
	if j, err = Resume(dir, "R"); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	l := j.Log()
	if len(l.Entries) != 20 || len(l.Undone()) != 10 {
		t.Errorf("%d changes, %d to undo", len(l.Entries), len(l.Undone()))
	}
	for _, e := range l.Entries {
		if want := strings.HasSuffix(e.What, "0") || strings.ContainsAny(e.What[len(e.What)-1:], "2468"); (e.Step == Undone) != want {
			t.Errorf("%s is %s", e.What, e.Step)
		}
	}
}

func TestDir(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	if dir, err := Dir(); err != nil || dir != "/state/inabench/journal" {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "/home/anna")
	if dir, err := Dir(); err != nil || dir != "/home/anna/.local/state/inabench/journal" {
		t.Errorf("%s, %v", dir, err)
	}
}

func FuzzParse(f *testing.F) {
	open, _ := encode(event{Open: &Header{Version: 1, Run: "R"}})
	begin, _ := encode(event{Begin: &Change{N: 1, Target: "host h1", Undo: Inverse{Lease: &Lease{Key: "k"}}}})
	undone, _ := encode(event{Undone: []int{1}})
	f.Add(slices.Concat(open, begin, undone))
	f.Add(slices.Concat(open, begin[:20]))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := Parse(text)
		if (l == nil) != (err != nil) {
			t.Fatalf("%+v, %v", l, err)
		}
		if l == nil {
			return
		}
		if l.whole > int64(len(text)) || l.Torn != (l.whole < int64(len(text))) {
			t.Errorf("%d of %d bytes are whole, torn %v", l.whole, len(text), l.Torn)
		}
		if again, err := Parse(text[:l.whole]); err != nil || again.Torn || len(again.Entries) != len(l.Entries) {
			t.Errorf("what is whole is %+v, %v", again, err)
		}
	})
}
