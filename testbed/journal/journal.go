// Package journal remembers on the controller what a run changes on hosts and switches,
// and how to change it back, so that the run can be undone after whatever ended it: kill
// -9, or a power cut.
//
// A journal is a file of lines, one for each thing that happened. Before a change is made
// a line with its inverse is on the disk (fsync, of the directory too when the file is
// new); after it was made, and after it was undone, there is another, for which nothing
// waits: an inverse that is applied to what has not happened, or once more, does nothing.
// Each line carries a checksum. A last line that is torn is what a power cut leaves of a
// change that was not begun; any other line that does not hold is an error.
//
// Inverses are data of a closed set of types, not programs: what undoes them knows how to
// make sure that it touches what this run made, and nothing else.
//
// Whoever writes a journal holds a lock on its file (flock), which ends with the process,
// however that ends: a journal that can be locked is of a run that is over.
package journal

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

var (
	// ErrLive is wrapped when the run that writes the journal still goes on.
	ErrLive = errors.New("the run still goes on")
	// ErrDamaged is wrapped when a journal is not what was written.
	ErrDamaged = errors.New("journal is damaged")
)

// Header says whose journal it is, and how what it names is reached.
type Header struct {
	Version int       `json:"version"`
	Run     string    `json:"run"` // an id without slashes
	Owner   string    `json:"owner"`
	Reason  string    `json:"reason,omitempty"`
	Host    string    `json:"host"` // the controller's
	PID     int       `json:"pid"`
	Began   time.Time `json:"began"`

	// Inventory is the lab's, as the run read it, and File where from: what is relative in
	// it is relative to that.
	File      string `json:"file"`
	Inventory string `json:"inventory"`
}

// Inverse is what undoes a change. Exactly one field is set. Every one of them does
// nothing where nothing is to be undone.
type Inverse struct {
	Processes *Processes `json:"processes,omitempty"`
	Remove    *Remove    `json:"remove,omitempty"`
	Restore   *Restore   `json:"restore,omitempty"`
	Entries   *Entries   `json:"entries,omitempty"`
	Lease     *Lease     `json:"lease,omitempty"`
	Script    *Script    `json:"script,omitempty"`

	Reservation *Reservation `json:"reservation,omitempty"`
	Program     *Program     `json:"program,omitempty"`
}

// Processes ends what runs on a host for a run, known by the files that its supervisors
// keep there: by number, start and boot.
type Processes struct {
	Exe string `json:"exe"` // the copy of this program on the host
	Run string `json:"run"`
}

// Remove removes a file, if it is the one that was written.
type Remove struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // of its content, hex
	Sudo   bool   `json:"sudo,omitempty"`
}

// Restore puts a file back that was replaced, if the file is what it was replaced with.
type Restore struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // of what it was replaced with, hex; what it is otherwise somebody else made
	Old    []byte `json:"old"`    // its content before
	Mode   uint32 `json:"mode"`   // its permissions before
	Sudo   bool   `json:"sudo,omitempty"`
}

// Entries deletes what was written into a switch by P4Runtime: the entries of jobs with
// this epoch and their multicast groups, and routes that lead where these did.
type Entries struct {
	Epoch  uint16   `json:"epoch"`
	Jobs   []uint16 `json:"jobs,omitempty"`
	Groups []uint16 `json:"groups,omitempty"` // those of Jobs that are there no more, too
	Routes []Route  `json:"routes,omitempty"`
}

// Route is the way to an address through a port.
type Route struct {
	To   string `json:"to"`
	Port uint32 `json:"port"`
}

// Lease gives back what a holder has, see package lease.
type Lease struct {
	Host  string `json:"host"` // or switch, on which its files lie
	Dir   string `json:"dir"`
	Key   string `json:"key"`
	Token string `json:"token"`
}

// Manager is the target that is the host of SHARP's aggregation manager, where that is no host of the inventory.
const Manager = "manager sharp_am" // inventory.ManagerName

// Reservation takes back a reservation of host ports in UFM.
type Reservation struct {
	URL string `json:"url"`
	API string `json:"api"` // as an inventory says
	App string `json:"app"` // its id, which the run made up
}

// Script runs a command that the inventory declares as the inverse of another.
type Script struct {
	Argv []string `json:"argv"`
	Root bool     `json:"root,omitempty"`
	Host string   `json:"host,omitempty"` // where it runs, if that is not the target
	// After says that it makes something read files that are put back before: where none is, it does not run.
	After bool `json:"after,omitempty"`
	// Timeout is for how long it may run; 0: a minute, as all that is undone at a target.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
}

// Program loads a program of somebody else into a switch again, if that runs one of INA by then, or none.
type Program struct {
	Name   string `json:"name"`
	Config []byte `json:"config"` // as dataplane.Foreign has it, by gzip
}

// NewProgram remembers a program. One that is too long for a journal is an error wrapping bounded.ErrTooLarge.
func NewProgram(name string, config []byte) (*Program, error) {
	tooLong := fmt.Errorf("program %s of %d bytes: %w", name, len(config), bounded.ErrTooLarge)
	if len(config) > mostProgram {
		return nil, tooLong
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(config); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	if b.Len() > bounded.Config {
		return nil, tooLong
	}
	return &Program{Name: name, Config: b.Bytes()}, nil
}

// mostProgram is how long a program may be, in bytes: as long as servers tell one.
const mostProgram = 64 << 20

// Whole is the program that NewProgram was given.
func (p *Program) Whole() ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(p.Config))
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", p.Name, err)
	}
	b, err := bounded.ReadAll(z, mostProgram)
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", p.Name, err)
	}
	return b, nil
}

func (u Inverse) String() string {
	switch {
	case u.Processes != nil:
		return "end the processes of run " + u.Processes.Run
	case u.Remove != nil:
		return "remove " + u.Remove.Path
	case u.Restore != nil:
		return "put back " + u.Restore.Path
	case u.Entries != nil:
		var parts []string
		for what, n := range map[string]int{"job": len(u.Entries.Jobs), "group": len(u.Entries.Groups), "route": len(u.Entries.Routes)} {
			if n > 1 {
				what += "s"
			}
			if n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, what))
			}
		}
		slices.SortFunc(parts, func(a, b string) int { return strings.Compare(a[strings.Index(a, " "):], b[strings.Index(b, " "):]) })
		return fmt.Sprintf("delete %s of epoch %d", strings.Join(parts, ", "), u.Entries.Epoch)
	case u.Lease != nil:
		return "give back the lease"
	case u.Script != nil:
		return "run " + strings.Join(u.Script.Argv, " ")
	case u.Program != nil:
		return "put back program " + u.Program.Name
	case u.Reservation != nil:
		return "delete reservation " + u.Reservation.App
	}
	return "nothing"
}

func (u Inverse) check() error {
	n := 0
	for _, set := range []bool{u.Processes != nil, u.Remove != nil, u.Restore != nil, u.Entries != nil, u.Lease != nil, u.Script != nil, u.Reservation != nil, u.Program != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%d inverses, want 1", n)
	}
	return nil
}

// Change is something that a run does to a host or a switch.
type Change struct {
	N      int     `json:"n"`      // from 1, in the order in which they were begun
	Target string  `json:"target"` // "host h1", "switch tor1"
	What   string  `json:"what"`   // for people
	Undo   Inverse `json:"undo"`
}

// Step is how far a change has come.
type Step string

// The steps of a change.
const (
	Begun  Step = "begun"  // it may have been made
	Made   Step = "made"   // it was made
	Undone Step = "undone" // its inverse was applied
)

// Entry is a change and how far it has come.
type Entry struct {
	Change
	Step Step
}

// line is one line of the file: a checksum of the text of what happened.
type line struct {
	Sum  string          `json:"crc32c"`
	What json.RawMessage `json:"entry"`
}

// event is one thing that happened; one field is set.
type event struct {
	Open   *Header `json:"open,omitempty"`
	Begin  *Change `json:"begin,omitempty"`
	Made   []int   `json:"made,omitempty"`
	Undone []int   `json:"undone,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode is an event as a line.
func encode(e event) ([]byte, error) {
	what, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(line{fmt.Sprintf("%08x", crc32.Checksum(what, castagnoli)), what})
	return append(text, '\n'), err
}

// errTorn is wrapped when a line is not what was written.
var errTorn = errors.New("not whole")

// decode is encode's inverse.
func decode(text []byte) (event, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return event{}, fmt.Errorf("%w: %w", errTorn, err)
	}
	if sum := fmt.Sprintf("%08x", crc32.Checksum(l.What, castagnoli)); sum != l.Sum {
		return event{}, fmt.Errorf("%w: its checksum is %s, not %s", errTorn, sum, l.Sum)
	}
	var e event
	d := json.NewDecoder(bytes.NewReader(l.What))
	d.DisallowUnknownFields() // an inverse of a newer version must not be taken for none
	if err := d.Decode(&e); err != nil {
		return event{}, err
	}
	return e, nil
}

// Log is what a journal says.
type Log struct {
	Header
	Path    string
	Entries []Entry // in the order in which they were begun
	// Torn says that the last line was not whole.
	Torn bool

	whole int64 // bytes up to there
}

// Undone are the changes whose inverses have not been applied, the last first, as they are
// to be.
func (l *Log) Undone() []Entry {
	var out []Entry
	for _, e := range slices.Backward(l.Entries) {
		if e.Step != Undone {
			out = append(out, e)
		}
	}
	return out
}

// Parse reads a journal's text.
func Parse(text []byte) (*Log, error) {
	l := &Log{}
	r := bufio.NewReader(bytes.NewReader(text))
	for n := 1; ; n++ {
		one, err := bounded.ReadLine(r, mostLine)
		if err == io.EOF {
			l.Torn = len(one) > 0
			break
		}
		e, err := decode(one)
		if err == nil {
			err = l.add(e, n == 1)
		}
		if err != nil {
			if _, perr := r.Peek(1); perr == io.EOF && n > 1 && errors.Is(err, errTorn) {
				l.Torn = true // its end was on the disk before its middle
				break
			}
			return nil, fmt.Errorf("%w: line %d: %w", ErrDamaged, n, err)
		}
		l.whole += int64(len(one))
	}
	if l.Run == "" {
		return nil, fmt.Errorf("%w: no first line", ErrDamaged)
	}
	return l, nil
}

func (l *Log) add(e event, first bool) error {
	switch {
	case first != (e.Open != nil):
		return errors.New("not where it belongs")
	case first:
		if e.Open.Version != 1 {
			return fmt.Errorf("unknown version %d", e.Open.Version)
		}
		if err := checkRun(e.Open.Run); err != nil {
			return err
		}
		l.Header = *e.Open
	case e.Begin != nil:
		if e.Begin.N != len(l.Entries)+1 {
			return fmt.Errorf("change %d after %d", e.Begin.N, len(l.Entries))
		}
		if err := e.Begin.Undo.check(); err != nil {
			return err
		}
		l.Entries = append(l.Entries, Entry{*e.Begin, Begun})
	}
	for step, ns := range map[Step][]int{Made: e.Made, Undone: e.Undone} {
		for _, n := range ns {
			if n < 1 || n > len(l.Entries) {
				return fmt.Errorf("change %d of %d", n, len(l.Entries))
			}
			l.Entries[n-1].Step = step
		}
	}
	return nil
}

func checkRun(run string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) } // it stands in what people read
	if run == "" || run != filepath.Base(run) || strings.HasPrefix(run, ".") || strings.ContainsFunc(run, odd) || !utf8.ValidString(run) {
		return fmt.Errorf("a run cannot be called %q", run)
	}
	return nil
}

// Journal is a journal that is being written. Its methods are safe for concurrent use.
type Journal struct {
	mu   sync.Mutex
	file *os.File
	log  *Log
	err  error // of a line that may be half written: nothing can follow it
}

// Dir is where this user's journals are: inabench/journal in $XDG_STATE_HOME, or in
// ~/.local/state.
func Dir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the specification has others ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("where to keep the journal: %w", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "inabench", "journal"), nil
}

// file is the journal of a run.
func file(dir, run string) string { return filepath.Join(dir, run+".jsonl") }

// Open begins the journal of a run in a directory, which it makes if need be. There must
// be none of that run yet.
func Open(dir string, h Header) (*Journal, error) {
	fail := func(err error) (*Journal, error) { return nil, fmt.Errorf("journal of run %s: %w", h.Run, err) }
	if err := checkRun(h.Run); err != nil {
		return fail(err)
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = trust(dir)
	}
	if err != nil {
		return fail(err)
	}
	h.Version = 1
	path := file(dir, h.Run)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return fail(err)
	}
	j := &Journal{file: f, log: &Log{Header: h, Path: path}}
	if err = lock(f, unix.LOCK_EX, 10); err == nil {
		err = j.write(event{Open: &h})
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return fail(err)
	}
	return j, nil
}

// trust is an error for a directory in which others may put journals: what they say would be done in this user's name.
func trust(dir string) error {
	st, err := os.Stat(dir)
	if err == nil {
		err = bounded.Own(st)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	return err
}

// open opens a journal that this user wrote, and nobody else could.
func open(path string, flags int) (*os.File, error) {
	f, err := bounded.OpenFile(path, flags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		err = bounded.Own(st)
	}
	if err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return f, nil
}

// Resume goes on with the journal of a run that is over, to undo what it did. One that
// still goes on is an error wrapping ErrLive, one that there is not wraps fs.ErrNotExist.
func Resume(dir, run string) (*Journal, error) {
	fail := func(err error) (*Journal, error) { return nil, fmt.Errorf("journal of run %s: %w", run, err) }
	if err := checkRun(run); err != nil {
		return fail(err)
	}
	if err := trust(dir); err != nil {
		return fail(err)
	}
	f, err := open(file(dir, run), os.O_RDWR|os.O_APPEND)
	if err != nil {
		return fail(err)
	}
	j := &Journal{file: f}
	if err = lock(f, unix.LOCK_EX, 10); err == nil {
		if j.log, err = read(f); err == nil {
			err = f.Truncate(j.log.whole)
		}
	}
	if err != nil {
		f.Close()
		return fail(err)
	}
	return j, nil
}

func read(f *os.File) (*Log, error) {
	text, err := bounded.ReadAll(f, mostRead)
	if err != nil {
		return nil, err
	}
	if !bytes.ContainsRune(text, '\n') { // its run ended before it could do anything
		run := strings.TrimSuffix(filepath.Base(f.Name()), ".jsonl")
		return &Log{Header: Header{Run: run}, Path: f.Name(), Torn: len(text) > 0}, nil
	}
	l, err := Parse(text)
	if err != nil {
		return nil, err
	}
	l.Path = f.Name()
	return l, nil
}

// lock makes sure that nobody else writes the file, and that it is still there. Several
// tries get past those who only look.
func lock(f *os.File, how, tries int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			break
		}
		if err != unix.EWOULDBLOCK {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if tries--; tries == 0 {
			return ErrLive
		}
		time.Sleep(10 * time.Millisecond)
	}
	var here, there unix.Stat_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &here), unix.Stat(f.Name(), &there)); err != nil {
		return err
	}
	if here.Ino != there.Ino || here.Dev != there.Dev {
		return fs.ErrNotExist // it has been undone and removed meanwhile
	}
	return nil
}

// Watch is called, where it is set, each time that a journal of this process is about to be written and when that is
// on the disk: between the two calls of a line nothing is changed, and between those of two lines a change may be.
// Tests set it, before they open a journal, to end the process there.
var Watch = func() {}

// syncDir makes the names in a directory last.
func syncDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Bounds of a journal, bytes: it is read up to the first, and nothing is begun beyond the second, so that what was begun can
// be made and undone.
const (
	mostLine  = 2 * bounded.Config // of a file's old content
	mostRead  = 4 * bounded.Config
	mostBegun = mostRead - bounded.Config
)

// write appends events; they are on the disk when it returns.
func (j *Journal) write(events ...event) error {
	if j.err != nil {
		return j.err
	}
	var text []byte
	for _, e := range events {
		one, err := encode(e)
		if err != nil {
			return err
		}
		if len(one) > mostLine {
			return fmt.Errorf("write the journal: a change of %d bytes, which nobody would read: %w", len(one), bounded.ErrTooLarge)
		}
		text = append(text, one...)
	}
	if size := j.log.whole + int64(len(text)); size > mostRead || size > mostBegun && events[0].Begin != nil {
		return fmt.Errorf("write the journal: with this it has %d bytes, which nobody would read: %w", size, bounded.ErrTooLarge)
	}
	Watch()
	if _, err := j.file.Write(text); err != nil {
		// What follows half a line could not be read.
		if terr := j.file.Truncate(j.log.whole); terr != nil {
			j.err = fmt.Errorf("write the journal: %w", errors.Join(err, terr))
		}
		return fmt.Errorf("write the journal: %w", err)
	}
	j.log.whole += int64(len(text))
	if err := j.file.Sync(); err != nil {
		j.err = fmt.Errorf("write the journal: %w", err) // what is on the disk now nobody knows
		return j.err
	}
	Watch()
	return nil
}

// Begin says that changes are about to be made, whose numbers it assigns: they are on the
// disk when it returns without an error, and must not be made after one: none of them has
// begun then, and Made and Undone say nothing of them. A nil Journal remembers nothing:
// what is changed goes with what it is changed on.
func (j *Journal) Begin(changes ...*Change) error {
	if j == nil || len(changes) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range changes {
		if err := c.Undo.check(); err != nil {
			return fmt.Errorf("journal: %s: %s: %w", c.Target, c.What, err)
		}
	}
	events := make([]event, len(changes))
	for i, c := range changes {
		c.N = len(j.log.Entries) + 1 + i
		events[i].Begin = c
	}
	if err := j.write(events...); err != nil {
		for _, c := range changes {
			c.N = 0 // the next that is begun has this number
		}
		return err
	}
	for _, c := range changes {
		j.log.Entries = append(j.log.Entries, Entry{*c, Begun})
	}
	return nil
}

// Made says that changes were made.
func (j *Journal) Made(changes ...*Change) error { return j.step(Made, changes) }

// Undone says that changes were undone, or never made.
func (j *Journal) Undone(changes ...*Change) error { return j.step(Undone, changes) }

func (j *Journal) step(s Step, changes []*Change) error {
	if j == nil || len(changes) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var ns []int
	for _, c := range changes {
		if c.N > 0 { // otherwise it was not begun
			ns = append(ns, c.N)
		}
	}
	if len(ns) == 0 {
		return nil
	}
	e := event{Made: ns}
	if s == Undone {
		e = event{Undone: ns}
	}
	if err := j.write(e); err != nil {
		return err
	}
	return j.log.add(e, false)
}

// Log is what the journal says so far.
func (j *Journal) Log() *Log {
	j.mu.Lock()
	defer j.mu.Unlock()
	l := *j.log
	l.Entries = slices.Clone(l.Entries)
	return &l
}

// Close ends the journal. Its file stays if something is left to undo, and is removed
// otherwise.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if len(j.log.Undone()) == 0 {
		err = os.Remove(j.log.Path)
	}
	return errors.Join(err, j.file.Close())
}

// Found is a journal that was found.
type Found struct {
	Run  string
	Log  *Log  // nil with Err
	Live bool  // its run still goes on
	Err  error // why it cannot be read
}

// List are the journals in a directory, the oldest first.
func List(dir string) ([]Found, error) {
	if err := trust(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []Found
	for _, e := range entries {
		run, ok := strings.CutSuffix(e.Name(), ".jsonl")
		if !ok || checkRun(run) != nil {
			continue
		}
		f, err := open(filepath.Join(dir, e.Name()), os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is over
		}
		found := Found{Run: run, Err: err}
		if err == nil {
			found.Live = errors.Is(lock(f, unix.LOCK_SH, 1), ErrLive)
			found.Log, found.Err = read(f)
			f.Close()
		}
		out = append(out, found)
	}
	slices.SortStableFunc(out, func(a, b Found) int {
		if a.Log == nil || b.Log == nil {
			return strings.Compare(a.Run, b.Run)
		}
		return a.Log.Began.Compare(b.Log.Began)
	})
	return out, nil
}
