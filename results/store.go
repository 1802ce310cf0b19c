package results

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results/human"
)

// ErrNotFound is wrapped when a reference names no run.
var ErrNotFound = errors.New("no such run")

// ErrAmbiguous is wrapped when a reference names more than one run.
var ErrAmbiguous = errors.New("ambiguous run")

// The files of a run directory.
const (
	RecordFile     = "run.json"
	SamplesFile    = "samples.jsonl"
	ExperimentFile = "experiment.toml"
	InventoryFile  = "inventory.toml"
	ReportFile     = "report.html"
	JUnitFile      = "junit.xml"
	latestLink     = "latest"
)

// nameTime is the time in a run directory's name.
const nameTime = "2006-01-02T15-04-05Z"

// MaxRecord is how large a run.json may be, bytes: one of 1,000 points is some 10 MB.
const MaxRecord = 256 << 20

// maxValues is how many objects, lists and elements of lists of structs a run.json may have, each of which may be as large
// in memory as a Point: one of 1,000 points has some 100,000.
const maxValues = 3_000_000

// maxDeep is how deep objects and lists of a run.json may be within each other: those of a Record are some ten deep. Each is
// indented by its depth.
const maxDeep = 100

// Schema is the version of the record that this package writes.
const Schema = 1

// unfinished is the reason that a record carries until its run has ended.
const unfinished = "the run was cut off before it ended"

// Dir is the directory of one run: <root>/<UTC time>-<ULID>/.
type Dir struct {
	Path string

	reserved atomic.Int64 // bytes
	lacked   atomic.Int64 // bytes of files that there was no room for
	room     sync.Mutex
	kept     *os.File // that holds them; under room

	mu      sync.Mutex
	file    *os.File // samples, open for appending; nil when the run was opened to be read
	pending []byte   // whole lines for it
	first   float64  // the time of the first sample that there was no room for
	cut     bool     // there is one
	err     error    // the first other error of writing samples; it stays
}

// mostPending is how many bytes of samples are written at once, about.
const mostPending = 1 << 16

// Unfinished makes rec that of a run that was cut off, which is what whoever opens it finds
// until the run is judged.
func (rec *Record) Unfinished() {
	rec.Outcome, rec.ExitCode, rec.Finished = ErrorOutcome, ExitCode(ErrorOutcome), time.Time{}
	rec.Reasons = []string{unfinished}
}

// sharedMode is that of a directory of runs, at most: a group may keep one together, and a umask may take from it. What is in a run is its user's
// alone to write, also where the umask takes nothing.
const sharedMode = 0o775

// Create makes the directory of a new run, writes its inputs and a first record,
// and points root/latest at it. It fills in the record's schema, ID and start if
// they are empty. Until Save is called with another outcome the record on disk says
// that the run was cut off, so that a crash leaves a record that can be opened. A disk that has
// no room for what a run comes to begins none: see Full.
func Create(root string, rec *Record) (*Dir, error) {
	rec.Schema = Schema
	if rec.Started.IsZero() {
		rec.Started = time.Now()
	}
	if rec.ID == "" {
		rec.ID = ulid.MustNew(ulid.Timestamp(rec.Started), ulid.DefaultEntropy()).String()
	}
	path := filepath.Join(root, rec.Started.UTC().Format(nameTime)+"-"+rec.ID)
	if err := os.MkdirAll(root, sharedMode); err != nil {
		return nil, fmt.Errorf("create run directory: %w", err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, fmt.Errorf("create run directory: %w", err)
	}
	d := &Dir{Path: path}
	// Its samples come first, with the lock that says that the run goes on, until Close or the end of the
	// process: a directory without a record is either about to get one, or nobody's.
	file, err := lockedFile(filepath.Join(path, SamplesFile))
	if err != nil {
		return nil, fmt.Errorf("create samples: %w", err)
	}
	d.file = file
	if err := d.begin(rec); err != nil {
		d.Close()
		if Full(err) { // nothing was measured
			err = errors.Join(err, os.RemoveAll(path))
		}
		return nil, err
	}
	d.pointLatest(root)
	return d, nil
}

// begin writes what a run directory has from the beginning.
func (d *Dir) begin(rec *Record) error {
	for name, f := range map[string]File{ExperimentFile: rec.Experiment, InventoryFile: rec.Inventory} {
		if f.Text == "" {
			continue
		}
		if err := d.WriteFile(name, []byte(f.Text)); err != nil {
			return err
		}
	}
	first := *rec
	first.Unfinished()
	if err := d.Save(&first); err != nil {
		return err
	}
	if err := d.reserve(leastReserve / 2); Full(err) {
		return fmt.Errorf("no room for what a run comes to: %d KB are wanted at %s: %w", smallReserve>>10, d.Path, err)
	}
	return nil
}

// lockedFile makes a file and locks it. Whoever asks whether it is locked (Running) holds a lock of
// their own for that moment. Where there are no locks, nobody can be told.
func lockedFile(name string) (*os.File, error) {
	f, err := bounded.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	if err := Lock(f, 2*time.Second); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

// Lock locks a file against others. Who asks whether it is Locked holds a lock of their own for that moment, so it is
// tried again until patience is over; then the error wraps syscall.EWOULDBLOCK. Other errors are those of flock(2).
func Lock(f *os.File, patience time.Duration) error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EWOULDBLOCK) && time.Since(began) < patience {
			continue
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("another process holds it, for longer than %v: %w", patience, err)
		}
		return err
	}
}

// Locked reports whether somebody has locked a file with Lock.
func Locked(path string) bool {
	f, err := bounded.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// pointLatest replaces root/latest. It is a convenience that some file systems
// lack; Open falls back to the newest run, so nothing is lost without it.
func (d *Dir) pointLatest(root string) {
	tmp := filepath.Join(root, ".latest-"+filepath.Base(d.Path))
	if os.Symlink(filepath.Base(d.Path), tmp) != nil {
		return
	}
	if os.Rename(tmp, filepath.Join(root, latestLink)) != nil {
		os.Remove(tmp)
	}
}

// Append adds samples to samples.jsonl, buffered. It may be called from several goroutines. Samples that a full disk has
// no room for, and all after them, are left out, which is no error: Cut says so. After the first other error every call returns
// that error, and what was written before stays.
func (d *Dir) Append(samples ...Sample) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	if d.file == nil {
		return fmt.Errorf("write samples to %s: run is not open for writing", d.Path)
	}
	for _, s := range samples {
		if d.cut {
			return nil
		}
		if !human.Finite(s.Value, s.T) {
			continue // JSON has no word for it, and no rate can be drawn from it
		}
		line, err := json.Marshal(s)
		if err != nil {
			return d.fail(err)
		}
		if d.pending = append(append(d.pending, line...), '\n'); len(d.pending) >= mostPending {
			if err := d.write(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Flush writes buffered samples to the file, so that a reader sees them.
func (d *Dir) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || d.file == nil {
		return d.err
	}
	return d.write()
}

// Cut is the time of the first sample that was left out since the disk was full; false: none was.
func (d *Dir) Cut() (t float64, cut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first, d.cut
}

// Shortened says that the disk was full, and from when on it has no samples; empty: it has all.
func (d *Dir) Shortened() string {
	at, cut := d.Cut()
	if !cut {
		return ""
	}
	return fmt.Sprintf("%s at %s; figures are drawn from all samples", shortened, human.Quantity(at, "s"))
}

// shortened is how Shortened begins.
const shortened = "the disk was full: " + SamplesFile + " ends"

// write writes what is pending. Where there is no room for all of it, whole lines stay.
func (d *Dir) write() error {
	if len(d.pending) == 0 {
		return nil
	}
	n, err := d.file.Write(d.pending)
	switch {
	case Full(err):
		whole := bytes.LastIndexByte(d.pending[:n], '\n') + 1
		if st, err := d.file.Stat(); err == nil {
			_ = d.file.Truncate(st.Size() - int64(n-whole)) // who reads it does without a line that is cut, too
		}
		var lost Sample
		line, _, _ := bytes.Cut(d.pending[whole:], []byte{'\n'})
		_ = json.Unmarshal(line, &lost) // it is Append's
		d.first, d.cut = lost.T, true
	case err != nil:
		return d.fail(err)
	}
	d.pending = d.pending[:0]
	return nil
}

func (d *Dir) fail(err error) error {
	d.err = fmt.Errorf("write samples to %s: %w", filepath.Join(d.Path, SamplesFile), pathless(err))
	return d.err
}

// pathless drops the path that an *fs.PathError repeats.
func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Close flushes and closes the samples. It is idempotent; the error is the first
// that writing samples met.
func (d *Dir) Close() error {
	d.release()
	err := d.Flush()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil {
		return err
	}
	if e := d.file.Close(); err == nil && e != nil {
		err = d.fail(e)
	}
	d.file, d.pending = nil, nil
	return err
}

// reserveFile holds the room on the disk that a run's record is going to need, so that samples that
// fill the disk leave it. leastReserve is how large it is at first, where the disk is not smaller; smallReserve is what a
// run does not begin without.
const (
	reserveFile  = ".reserved"
	leastReserve = 1 << 20
	smallReserve = 64 << 10
)

// reserve holds room for a record of n bytes, twice, since the old one stays until the new one is
// there; less of it on a small disk, but for the error not less than smallReserve. That more of it cannot be had later is for
// Finish, which makes room.
func (d *Dir) reserve(n int64) error {
	if n *= 2; n <= d.reserved.Load() {
		return nil
	}
	d.room.Lock()
	defer d.room.Unlock()
	if d.kept == nil {
		f, err := os.OpenFile(filepath.Join(d.Path, reserveFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		d.kept = f
	}
	f, err := d.kept, error(nil)
	for ; n >= smallReserve && n > d.reserved.Load(); n /= 2 {
		if err = allocate(f, 0, n); errors.Is(err, syscall.EOPNOTSUPP) {
			_, err = f.WriteAt(make([]byte, n), 0)
		}
		if err == nil {
			d.reserved.Store(n)
			return nil
		}
	}
	return err
}

// allocate has the disk keep room for the first n bytes of a file.
func allocate(f *os.File, mode uint32, n int64) error {
	err := error(syscall.EINTR)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Fallocate(int(f.Fd()), mode, 0, n)
	}
	return err
}

// release gives the room back that was reserved; false if there was none.
func (d *Dir) release() bool {
	d.room.Lock()
	defer d.room.Unlock()
	if d.kept == nil {
		return false
	}
	err := os.Remove(filepath.Join(d.Path, reserveFile))
	d.kept.Close() // nobody reads it
	d.kept = nil
	return d.reserved.Swap(0) > 0 && err == nil
}

// Save replaces run.json by rec, atomically. Numbers that JSON cannot carry (NaN,
// infinities) are written as 0 with N 0, and a warning in rec says so, since losing
// the record for one of them would lose everything that was measured.
func (d *Dir) Save(rec *Record) error {
	data, err := d.encoded(rec)
	if err != nil {
		return err
	}
	err = d.WriteFile(RecordFile, data)
	if d.reserved.Load() > 0 { // it goes on: the last one will be larger
		_ = d.reserve(int64(len(data))) // what there is of it stays
	}
	return err
}

// encoded is what is in run.json, which somebody can read.
func (d *Dir) encoded(rec *Record) ([]byte, error) {
	rec.scrub()
	data, err := rec.encode()
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", filepath.Join(d.Path, RecordFile), err)
	}
	if err := oversize(data); err != nil || len(data) >= MaxRecord { // the old one stays
		return nil, fmt.Errorf("write %s: %d MB: %w", filepath.Join(d.Path, RecordFile), len(data)>>20, cmp.Or(err, bounded.ErrTooLarge))
	}
	return append(data, '\n'), nil
}

// encode is the record as indented JSON. Its points, of which there may be thousands, are encoded
// side by side.
func (rec *Record) encode() ([]byte, error) {
	rest := *rec
	if rest.Points != nil {
		rest.Points = []Point{}
	}
	data, err := json.MarshalIndent(&rest, "", "  ")
	if err != nil || len(rec.Points) == 0 {
		return flatLists(data), err
	}
	const at, indent = "\n  \"points\": [", "\n    " // a key of the record itself: others are further in
	before, after, ok := bytes.Cut(data, []byte(at+"]"))
	if !ok {
		return nil, errors.New("a record without points")
	}
	n := min(len(rec.Points), runtime.GOMAXPROCS(0))
	parts, errs := make([][]byte, n), make([]error, n)
	var wg sync.WaitGroup
	for k := range n {
		wg.Go(func() {
			for i := k * len(rec.Points) / n; i < (k+1)*len(rec.Points)/n; i++ {
				point, err := json.MarshalIndent(&rec.Points[i], indent[1:], "  ")
				if errs[k] = err; err != nil {
					return
				}
				if i > 0 {
					parts[k] = append(parts[k], ',')
				}
				parts[k] = append(append(parts[k], indent...), flatLists(point)...)
			}
		})
	}
	wg.Wait()
	out := append(flatLists(before), at...)
	for _, part := range parts {
		out = append(out, part...)
	}
	out = append(out, "\n  ]"...)
	return append(out, flatLists(after)...), errors.Join(errs...)
}

// flatLists puts lists of numbers and texts in indented JSON on one line: curves have
// thousands of numbers.
func flatLists(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		end := i + 1
		switch data[i] {
		case '"':
			end = afterString(data, i)
		case '[':
			if line, after := flatList(data, i); line != nil {
				out, i = append(out, line...), after
				continue
			}
		}
		out, i = append(out, data[i:end]...), end
	}
	return out
}

// flatList is the list that begins at i on one line, and the index after it; nil if there
// is a list or an object in it.
func flatList(data []byte, i int) (line []byte, after int) {
	line = []byte{'['}
	for i++; i < len(data); i++ {
		switch c := data[i]; c {
		case '[', '{':
			return nil, 0
		case ']':
			return append(line, c), i + 1
		case '"':
			after := afterString(data, i)
			line = append(line, data[i:after]...)
			i = after - 1
		case ',':
			line = append(line, ',', ' ')
		case ' ', '\n':
		default:
			line = append(line, c)
		}
	}
	return nil, 0
}

// afterString is the index after the string of a JSON text that begins at i.
func afterString(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(data))
}

// Finish saves the record of a run that has ended, and has its reports written, side by side: of thousands of points
// either takes seconds. report writes what people read from what the directory holds; it is called again where the disk
// had no room.
//
// On a full disk the record comes first: it has the room that was reserved, then that of samples, which are cut from their
// end. Reports have what is left, and the room of samples where that is enough for them; else they are left out. Warnings
// of the record say so, and it is no error.
func (d *Dir) Finish(rec *Record, report func(*Dir, *Record) error) error {
	rec.scrub() // which Save does too, and then there is nothing left to change
	saved := make(chan error, 1)
	go func() {
		err := d.Save(rec)
		if had := d.release(); had && Full(err) {
			err = d.Save(rec)
		}
		saved <- err
	}()
	reported := report(d, rec)
	err := <-saved
	if Full(err) {
		err = d.squeeze(rec)
		reported = syscall.ENOSPC // they made room
	}
	if Full(reported) { // there is the room that was kept for the record
		d.lacked.Store(0)
		reported = report(d, rec)
	}
	if Full(reported) && d.cutFor(d.lacked.Load()) {
		d.remark(rec)
		_ = d.put(rec) // without the remark it is saved already
		reported = report(d, rec)
	}
	if Full(reported) && err == nil {
		rec.Warnings = append(rec.Warnings, fmt.Sprintf("the disk was full: there is no %s; inabench report %s -o FILE.html writes it elsewhere", ReportFile, rec.ID))
		_ = d.put(rec)
		reported = nil
	}
	return errors.Join(err, reported)
}

// squeeze saves a record that there is no room for beside all else: in the place of reports, which can be made of it, then of
// samples, and at last of the record that is there.
func (d *Dir) squeeze(rec *Record) error {
	for _, name := range []string{ReportFile, JUnitFile} {
		_ = os.Remove(filepath.Join(d.Path, name))
	}
	err := d.Save(rec)
	for Full(err) && d.cutSamples(d.lacked.Swap(0)) {
		d.remark(rec)
		err = d.Save(rec)
	}
	if Full(err) {
		err = d.put(rec)
	}
	return err
}

// put is Save, and where there is no room for a second record beside the first one it is written over that, once the disk has
// promised the room for it.
func (d *Dir) put(rec *Record) error {
	err := d.Save(rec)
	if !Full(err) {
		return err
	}
	data, err := d.encoded(rec)
	if err != nil {
		return err
	}
	path := filepath.Join(d.Path, RecordFile)
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE: nobody reads zeros
	if err = allocate(f, keepSize, int64(len(data))); err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = cmp.Or(f.Truncate(int64(len(data))), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, pathless(err))
	}
	return nil
}

// cutFor cuts samples where that makes room for n more bytes, and says whether it did.
func (d *Dir) cutFor(n int64) bool {
	var disk syscall.Statfs_t
	st, err := os.Stat(filepath.Join(d.Path, SamplesFile))
	if err != nil || syscall.Statfs(d.Path, &disk) != nil || int64(disk.Bavail)*disk.Bsize+st.Size() < n+leastCut {
		return false
	}
	return d.cutSamples(n)
}

// leastCut is by how much more than is needed samples are cut: files take whole blocks.
const leastCut = 16 << 10

// cutSamples cuts n bytes, and a little more, off the end of the samples, in whole lines, and says whether there were any.
func (d *Dir) cutSamples(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.file == nil || d.err != nil || d.write() != nil {
		return false
	}
	f, err := bounded.Open(filepath.Join(d.Path, SamplesFile))
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return false
	}
	to := max(0, st.Size()-n-leastCut)
	from := max(0, to-mostPending)
	before := make([]byte, to-from)
	if _, err := f.ReadAt(before, from); err != nil {
		return false
	}
	to = from + int64(bytes.LastIndexByte(before, '\n')+1)
	var lost Sample
	line, _ := bufio.NewReader(io.NewSectionReader(f, to, mostPending)).ReadBytes('\n')
	if d.file.Truncate(to) != nil {
		return false
	}
	_ = json.Unmarshal(line, &lost) // it is Append's
	d.first, d.cut = lost.T, true
	return true
}

// remark has the record say where its samples end, once.
func (d *Dir) remark(rec *Record) {
	rec.Warnings = append(slices.DeleteFunc(rec.Warnings, func(w string) bool { return strings.HasPrefix(w, shortened) }), d.Shortened())
}

// Full says whether an error is that of a disk without room, or of a quota that is used up.
func Full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// WriteFile puts a file into the run directory, atomically: another process sees
// the old one or the new one, whole.
func (d *Dir) WriteFile(name string, data []byte) error {
	path := filepath.Join(d.Path, name)
	if err := WriteAtomically(path, data); err != nil {
		if Full(err) {
			d.lacked.Add(int64(len(data)))
		}
		return fmt.Errorf("write %s: %w", path, pathless(err))
	}
	return nil
}

// aside is what names of directories begin with that are being removed; a ULID follows, which nobody else's directory has.
const aside = ".gone-"

// Remove removes a directory from its parent: out of sight in one step, then what is in it. What is left of
// that when it is killed is for Sweep. The error wraps fs.ErrNotExist where somebody else was faster.
func Remove(parent, name string) error {
	path, err := PutAside(parent, name)
	if err != nil {
		return err
	}
	return removeAll(path)
}

// PutAside is the first step of Remove, and where the directory is then: Sweep does the rest.
func PutAside(parent, name string) (path string, err error) {
	path = filepath.Join(parent, aside+ulid.Make().String())
	return path, os.Rename(filepath.Join(parent, name), path)
}

// isAside says whether a directory is one that was put aside: none of others that is called so, and no link.
func isAside(e fs.DirEntry) bool {
	id, ok := strings.CutPrefix(e.Name(), aside)
	_, err := ulid.ParseStrict(id)
	return ok && err == nil && e.IsDir()
}

// removeAll removes a directory, also beside another who does.
func removeAll(path string) error {
	if err := os.RemoveAll(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Abandoned is how long nothing must have been written to a directory without a record, to be taken for
// that of a run that was killed as it began.
const Abandoned = time.Hour

// Sweep removes from a directory of runs, or of what else has such names, what nobody wants: what was put aside, also
// by one that was killed, directories of what was killed before it had its record, a file of that name, and the room
// that runs reserved which are over.
func Sweep(parent, record string) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		switch {
		case isAside(e):
			errs = append(errs, removeAll(path))
		case !e.IsDir() || !ofRun(e.Name()) || Running(path):
		case isFile(filepath.Join(path, record)):
			if err := os.Remove(filepath.Join(path, reserveFile)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		case abandoned(path):
			if err := Remove(parent, e.Name()); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// ofRun says whether a directory has the name that Create gives.
func ofRun(name string) bool {
	if len(name) != len(nameTime)+1+ulid.EncodedSize {
		return false
	}
	_, err := time.Parse(nameTime, name[:len(nameTime)])
	_, uerr := ulid.ParseStrict(name[len(nameTime)+1:])
	return err == nil && uerr == nil
}

// abandoned says whether nothing in a directory is new.
func abandoned(path string) bool {
	entries, err := os.ReadDir(path)
	st, serr := os.Stat(path)
	if err != nil || serr != nil {
		return false
	}
	last := st.ModTime()
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return false
		}
		if info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return time.Since(last) > Abandoned
}

// WriteAtomically writes a file so that others, also after a crash, see the old one or the new
// one, whole.
func WriteAtomically(path string, data []byte) error { return replace(path, data, true) }

// replace writes a file that others see whole, also after a crash where it is to last.
func replace(path string, data []byte, lasting bool) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close() // the second Close of a file that is closed only errs
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if lasting {
		if err = f.Sync(); err != nil {
			return err
		}
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil || !lasting {
		return err
	}
	dir, err := os.OpenFile(filepath.Dir(path), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync() // the rename itself
}

// scrub replaces what JSON cannot carry.
func (rec *Record) scrub() {
	if n := scrubbed(reflect.ValueOf(rec).Elem()); n > 0 {
		rec.Warnings = append(rec.Warnings, fmt.Sprintf("%d values were not finite numbers; they are stored as 0", n))
	}
}

// scrubbed puts 0 in the place of all numbers in v that are not finite, and counts them. A figure that had one is of nothing.
func scrubbed(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Float64:
		if !human.Finite(v.Float()) {
			v.SetFloat(0)
			return 1
		}
	case reflect.Interface:
		if !v.IsNil() {
			value := reflect.New(v.Elem().Type()).Elem() // which can be set
			value.Set(v.Elem())
			if n = scrubbed(value); n > 0 {
				v.Set(value)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return scrubbed(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			n += scrubbed(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			if k := scrubbed(value); k > 0 {
				n += k
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() { // not what is inside a time
				n += scrubbed(f)
			}
		}
		if f, ok := v.Addr().Interface().(*Figure); ok && n > 0 {
			f.N = 0
		}
	}
	return n
}

// Running says whether some process, or this one, is writing the run in a directory. A run
// that is neither running nor complete was cut off.
func Running(dir string) bool {
	return Locked(filepath.Join(dir, SamplesFile))
}

// Complete says whether the run came to its end: false for one that was cut off.
func (rec *Record) Complete() bool { return !rec.Finished.IsZero() }

// Open finds a run under root and reads its record. ref is "latest", the path of a
// run directory or of its run.json, or the beginning or the end of a run's ULID or
// of its directory's name; or, if it is none of these, the name of an experiment, whose newest
// run it is. The error wraps ErrNotFound or ErrAmbiguous.
func Open(root, ref string) (*Dir, *Record, error) {
	path, err := find(root, ref)
	if err != nil {
		return nil, nil, err
	}
	rec, err := ReadRecord(path)
	if err != nil {
		return nil, nil, err
	}
	return &Dir{Path: path}, rec, nil
}

// ReadRecord reads the record of the run in a directory.
func ReadRecord(dir string) (*Record, error) {
	path := filepath.Join(dir, RecordFile)
	data, err := bounded.ReadFile(path, MaxRecord)
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	if err := oversize(data); err != nil {
		return nil, fmt.Errorf("read run %s: %w", path, err)
	}
	rec := new(Record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("read run %s: %w", path, err)
	}
	if rec.Schema > Schema {
		return nil, fmt.Errorf("read run %s: schema %d is newer than this tool's %d", path, rec.Schema, Schema)
	}
	if rec.Schema < 0 {
		return nil, fmt.Errorf("read run %s: schema %d is none", path, rec.Schema)
	}
	if err := cmp.Or(rec.elsewhere(filepath.Base(dir)), rec.contradiction()); err != nil {
		return nil, fmt.Errorf("read run %s: %w", path, err)
	}
	return rec, nil
}

// oversize is an error, which wraps bounded.ErrTooLarge, of a JSON text that becomes too much in memory, or where it is written
// again: too many objects, lists, and elements of lists that a Record has structs in, whatever they are in the text, or too
// deep within each other.
func oversize(text []byte) error {
	n := 0
	var lists []bool // that are open, and whether their elements are structs; false of an object
	var key []byte   // the last text
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			after := afterString(text, i)
			key, i = text[i+1:max(i+1, after-1)], after-1
		case '{':
			n++
			lists, key = append(lists, false), nil
		case '[':
			n++
			lists, key = append(lists, structLists()[strings.ToLower(string(key))]), nil // keys are matched so
		case '}', ']':
			if len(lists) > 0 {
				lists = lists[:len(lists)-1]
			}
		case ',':
			if len(lists) > 0 && lists[len(lists)-1] {
				n++
			}
		}
		switch {
		case n > maxValues:
			return fmt.Errorf("%d objects: %w", n, bounded.ErrTooLarge)
		case len(lists) > maxDeep:
			return fmt.Errorf("objects %d deep: %w", len(lists), bounded.ErrTooLarge)
		}
	}
	return nil
}

// structLists are the keys of a Record, and of all that is in it, that have lists of something large.
var structLists = sync.OnceValue(func() map[string]bool {
	keys, seen := map[string]bool{}, map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Array {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if of := f.Type; of.Kind() == reflect.Slice && (of.Elem().Kind() == reflect.Struct || of.Elem().Kind() == reflect.Slice) {
				keys[strings.ToLower(cmp.Or(name, f.Name))] = true
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Record]())
	return keys
})

// ErrContradicts is wrapped by the error of a record that was changed after its run: its outcome is not that
// of its checks, or a check's not that of its figures.
var ErrContradicts = errors.New("the record contradicts itself, so it was changed after the run")

// elsewhere is how a record cannot be that of a directory of the name; nil if it can, as any may that has no name of Create's.
func (r *Record) elsewhere(name string) error {
	if !ofRun(name) || r.ID == "" || strings.HasSuffix(name, r.ID) {
		return nil
	}
	return fmt.Errorf("%w: it is of run %s, and the directory's name says another one", ErrContradicts, r.ID)
}

// contradiction is how an outcome cannot be that of the record's checks; nil if it can.
func (r *Record) contradiction() error {
	switch r.Outcome {
	case Fail, ErrorOutcome:
		failed := func(c Check) bool { return c.Gate && c.Outcome == Fail }
		switch {
		case len(r.Args) == 0 || !r.Complete(): // no program ended with a code, or it was not told yet
		case r.ExitCode == 0:
			return fmt.Errorf("%w: it says %s, and that the program ended with 0", ErrContradicts, r.Outcome)
		case r.Outcome == Fail && !slices.ContainsFunc(r.Checks, failed):
			return fmt.Errorf("%w: it says fail, and no check that is gated failed", ErrContradicts)
		}
		return nil
	case "", Inconclusive, NotJudged, Skipped: // without one it is still written
		return nil
	case Pass:
	default:
		return fmt.Errorf("%w: outcome %q is none", ErrContradicts, r.Outcome)
	}
	held := false
	asked := map[string]*Expect{}
	for i := range r.Expect {
		asked[r.Expect[i].Name] = &r.Expect[i]
	}
	judged := map[string]bool{}
	for _, c := range r.Checks {
		var e *Expect
		if c.Predictor != Evidence { // findings have names of their own
			judged[c.Expect], e = true, asked[c.Expect]
		}
		switch {
		case e != nil && e.Gate && !c.Gate:
			return fmt.Errorf("%w: %q decides nothing, and what is expected does", ErrContradicts, c.Title())
		case e != nil && c.Tolerance != e.Tolerance:
			return fmt.Errorf("%w: %q has a tolerance of %g, and what is expected one of %g", ErrContradicts, c.Title(), c.Tolerance, e.Tolerance)
		case c.Gate && c.Outcome == Fail:
			return fmt.Errorf("%w: it says pass, and %q failed", ErrContradicts, c.Title())
		case c.Gate && c.Outcome == Inconclusive:
			return fmt.Errorf("%w: it says pass, and %q is undecided", ErrContradicts, c.Title())
		case c.Gate && !c.Implied && c.Outcome == Pass:
			if err := r.disowned(&c); err != nil {
				return fmt.Errorf("%w: %q passed, and %w", ErrContradicts, c.Title(), err)
			}
		}
		held = held || c.Gate && !c.Implied && c.Outcome == Pass
	}
	switch {
	case !held:
		return fmt.Errorf("%w: it says pass, and no check that is gated held", ErrContradicts)
	case r.Sabotage == nil && slices.ContainsFunc(r.Args, func(a string) bool { return a == "--sabotage" || strings.HasPrefix(a, "--sabotage=") }):
		return fmt.Errorf("%w: it was given a fault, and does not say so", ErrContradicts)
	case len(r.Points) < r.Planned:
		return fmt.Errorf("%w: it says pass, and has %d of %s", ErrContradicts, len(r.Points), human.Plural(r.Planned, "point"))
	case r.ExitCode != 0:
		return fmt.Errorf("%w: it says pass, and that the program ended with %d", ErrContradicts, r.ExitCode)
	}
	seen := map[[2]int]bool{}
	for i := range r.Points {
		p := &r.Points[i]
		if p.Error != "" {
			return fmt.Errorf("%w: it says pass, and ended early: %s", ErrContradicts, p.Error)
		}
		if seen[[2]int{p.Index, p.Repeat}] {
			return fmt.Errorf("%w: it has repeat %d of point %d twice", ErrContradicts, p.Repeat+1, p.Index+1)
		}
		seen[[2]int{p.Index, p.Repeat}] = true
		if err := p.disowned(); err != nil {
			return fmt.Errorf("%w: it says pass, and %w", ErrContradicts, err)
		}
	}
	for _, f := range []File{r.Experiment, r.Inventory} {
		if f.SHA256 != f.Sum() {
			return fmt.Errorf("%w: the text of %s is not the one that was run", ErrContradicts, f.Path)
		}
	}
	for _, e := range r.Expect {
		if e.Gate && !judged[e.Name] {
			return fmt.Errorf("%w: it says pass, and nothing was held against %q", ErrContradicts, e.Name)
		}
	}
	return nil
}

// disowned is how a check that passed is not that of its own figures, or of its phase's; nil if it is.
func (r *Record) disowned(c *Check) error {
	if lo, hi := c.band(); c.Bound != "" && (c.Error < lo || c.Error > hi) {
		return fmt.Errorf("is off by %g with a tolerance of %g", c.Error, c.Tolerance)
	}
	if c.Statistic != "each" {
		return nil
	}
	near := func(a float64) float64 { return 1e-6 * max(1, math.Abs(a)) }
	off, known := c.Measured-c.Predicted, true
	if c.Relative { // of a prediction of 0 it is relative to others', which the check does not have
		off, known = off/math.Abs(c.Predicted), c.Predicted != 0
	}
	if known && math.Abs(off-c.Error) > max(near(off), near(c.Error)) {
		return fmt.Errorf("measured %g of %g is not off by %g", c.Measured, c.Predicted, c.Error)
	}
	var measured, predicted []float64 // in the phase, of the check's point and its repeats, not all of which may be judged
	for _, p := range r.Points {
		if p.Index != c.Index || c.Phase < 0 || c.Phase >= len(p.Phases) {
			continue
		}
		for _, f := range p.Phases[c.Phase].Figures {
			switch {
			case f.Metric != c.Metric || f.Of != c.Of:
			case f.Kind == c.Kind:
				measured = append(measured, f.Value)
			case f.Kind == Predicted && f.Predictor == c.Predictor:
				predicted = append(predicted, f.Value)
			}
		}
	}
	for _, of := range []struct {
		what   string
		says   float64
		phases []float64
	}{{"measured", c.Measured, measured}, {"predicted", c.Predicted, predicted}} {
		if len(of.phases) == 0 {
			continue
		}
		lo, hi := slices.Min(of.phases), slices.Max(of.phases)
		if of.says < lo-near(lo) || of.says > hi+near(hi) { // which no mean of some is
			return fmt.Errorf("says that %g was %s, and the phase that %s was", of.says, of.what, span(lo, hi))
		}
	}
	return nil
}

// span is a number, or those between two.
func span(lo, hi float64) string {
	if lo == hi {
		return fmt.Sprintf("%g", lo)
	}
	return fmt.Sprintf("%g to %g", lo, hi)
}

// disowned is how a point cannot be one of a run that passed; nil if it can.
func (p *Point) disowned() error {
	for _, f := range p.Findings {
		if f.Outcome == Fail || f.Outcome == Inconclusive {
			return fmt.Errorf("%q of %s was found to %s", f.Name, f.Of, map[Outcome]string{Fail: "fail", Inconclusive: "be undecided"}[f.Outcome])
		}
	}
	for _, j := range p.Jobs {
		if j.SumErrors > 0 {
			return fmt.Errorf("%d of %d sums of job %s are wrong", j.SumErrors, j.SumsChecked, j.Job)
		}
		for _, ph := range p.Phases {
			for _, f := range ph.Figures { // see DropUncompared
				if j.SumsChecked == 0 && !j.Program && f.Metric == sumErrors && f.Of == j.Job && f.Kind == Measured {
					return fmt.Errorf("%g sums of job %s are wrong, of none that were compared", f.Value, j.Job)
				}
			}
		}
	}
	return nil
}

func find(root, ref string) (string, error) {
	if ref == "" {
		ref = latestLink
	}
	names, err := Names(root)
	if err != nil {
		return "", err
	}
	if ref == latestLink {
		if to, err := filepath.EvalSymlinks(filepath.Join(root, latestLink)); err == nil && PlainName(filepath.Base(to)) && isRun(to) {
			return to, nil
		}
		if len(names) > 0 {
			return filepath.Join(root, names[0]), nil
		}
		return "", fmt.Errorf("%w: %s holds none", ErrNotFound, root)
	}
	path := strings.TrimSuffix(ref, string(filepath.Separator)+RecordFile)
	if isRun(path) {
		return path, nil
	}
	var hits []string
	want := strings.ToUpper(ref)
	for _, name := range names {
		id := name[strings.LastIndexByte(name, '-')+1:]
		if strings.HasPrefix(id, want) || strings.HasSuffix(strings.ToUpper(name), want) || strings.HasPrefix(strings.ToUpper(name), want) {
			hits = append(hits, name)
		}
	}
	switch len(hits) {
	case 0:
		for _, name := range names {
			if path := filepath.Join(root, name); experimentOf(path) == ref {
				return path, nil
			}
		}
		return "", fmt.Errorf("%w: %q in %s", ErrNotFound, ref, root)
	case 1:
		return filepath.Join(root, hits[0]), nil
	}
	return "", fmt.Errorf("%w: %q fits %s", ErrAmbiguous, ref, strings.Join(hits, ", "))
}

// experimentOf is the name of the experiment of a run, which is at the beginning of its record; "" if it is not there.
func experimentOf(path string) string {
	f, err := bounded.Open(filepath.Join(path, RecordFile))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was read
	d := json.NewDecoder(io.LimitReader(f, bounded.Small))
	for first := true; ; first = false {
		token, err := d.Token()
		key, ok := token.(string)
		switch {
		case err != nil:
			return ""
		case first && token == json.Delim('{'):
			continue
		case !ok:
			return ""
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return ""
		}
		if key == "name" {
			var name string
			_ = json.Unmarshal(value, &name)
			return name
		}
	}
}

func isRun(path string) bool { return isFile(filepath.Join(path, RecordFile)) }

// hasRecord says whether something is called as a run's record is, be it a FIFO: a list says then that it cannot be read.
func hasRecord(path string) bool {
	_, err := os.Lstat(filepath.Join(path, RecordFile))
	return err == nil
}

// Sum is the SHA-256 of the text, whatever the file says that it was; where it says another kind of sum, that.
func (f File) Sum() string {
	sum := sha256.Sum256([]byte(f.Text))
	if len(f.SHA256) != hex.EncodedLen(len(sum)) {
		return f.SHA256
	}
	return hex.EncodeToString(sum[:])
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// PlainName says whether a name has nothing in it but what prints: others may write where runs lie, and names are shown.
func PlainName(name string) bool { return human.Printable(name) == name }

// Names are the names of the run directories under root, newest first, without those
// that begin with a dot or do not print. A root that does not exist holds none.
func Names(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name()[0] != '.' && PlainName(e.Name()) && hasRecord(filepath.Join(root, e.Name())) {
			names = append(names, e.Name())
		}
	}
	// Names begin with the time in UTC, then the ULID, which sorts by time too.
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(b, a) })
	return names, nil
}

// Entry is a run in a list. Record is nil where it could not be read; Err says why.
type Entry struct {
	Path   string
	Record *Record
	Err    error
}

// List reads the records of all runs under root, newest first. A root that does
// not exist holds none; a record that cannot be read is an entry with its error.
func List(root string) ([]Entry, error) {
	names, err := Names(root)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, len(names))
	for i, name := range names {
		path := filepath.Join(root, name)
		rec, err := ReadRecord(path)
		out[i] = Entry{Path: path, Record: rec, Err: err}
	}
	return out, nil
}

// WriteJSON writes the record as one JSON document.
func WriteJSON(w io.Writer, rec *Record) error {
	rec.scrub()
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rec)
}
