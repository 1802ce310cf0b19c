package suite

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Directories and files of nights, in the directory that holds the runs.
const (
	Folder    = "nights"     // <root>/nights/<UTC time>-<ULID>/
	File      = "suite.json" // the Night
	JUnitFile = "junit.xml"
	Summary   = "summary.md"
	latest    = "latest"
)

// Schema is the version of suite.json that this package writes.
const Schema = 1

// Night is one execution of a suite: suite.json.
type Night struct {
	Schema   int          `json:"schema"`
	ID       string       `json:"id"` // its directory's name
	Suite    string       `json:"suite"`
	Title    string       `json:"title,omitempty"`
	File     results.File `json:"file"`
	Tool     string       `json:"tool"`
	Machine  string       `json:"machine"`
	Started  time.Time    `json:"started"`
	Finished time.Time    `json:"finished"`          // zero: it goes on, or was killed
	Budget   float64      `json:"budget,omitempty"`  // seconds; 0: none
	Used     float64      `json:"used"`              // of it, without the time between a kill and going on
	Resumed  int          `json:"resumed,omitempty"` // how often it was gone on with
	Items    []Done       `json:"items"`             // in the order of running

	Outcome results.Outcome `json:"outcome"` // pass, fail, error or inconclusive
	Reasons []string        `json:"reasons,omitempty"`
	// LastGood is the newest night before this one that passed, and News what is different
	// since: of the tool, the machine, items and figures.
	LastGood string   `json:"last_good,omitempty"`
	News     []string `json:"news,omitempty"`

	Judged   Judged    `json:"judged"`
	Moves    []Move    `json:"moves"`             // figures that are others than they were
	Culprits []Culprit `json:"culprits"`          // what explains those that are worse, the likeliest first
	Spreads  []Spread  `json:"spreads,omitempty"` // where studies became worse
}

// Status is what became of an item.
type Status string

// Statuses. Of these Waiting and Running are of a night that goes on, or was killed.
const (
	Waiting   Status = "waiting"
	Running   Status = "running"
	Passed    Status = "pass"
	Failed    Status = "fail"
	Xfailed   Status = "xfail" // failed, as was expected
	Xpassed   Status = "xpass" // passed, and was expected to fail
	Undecided Status = "inconclusive"
	Broken    Status = "error"
	Left      Status = "left"        // it did not fit into the budget
	Interrupt Status = "interrupted" // whoever runs the suite stopped it
)

// Done is an item and what became of it.
type Done struct {
	Item
	Why      string    `json:"why"`                // of its place in the order
	Expected float64   `json:"expected,omitempty"` // seconds it was expected to take; 0: not known
	Status   Status    `json:"status"`
	Message  string    `json:"message,omitempty"`
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Attempt is one run of an item.
type Attempt struct {
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Run     string    `json:"run,omitempty"` // its directory; "" if it left none
	Exit    int       `json:"exit"`
	Class   Class     `json:"class,omitempty"`
	Of      string    `json:"of,omitempty"` // the host or switch
	Message string    `json:"message,omitempty"`
	Log     string    `json:"log,omitempty"`   // what it printed, in the night's directory
	Wrong   string    `json:"wrong,omitempty"` // sums or counters that are, where it failed
}

// last is the last attempt, nil if there was none.
func (d *Done) last() *Attempt {
	if len(d.Attempts) == 0 {
		return nil
	}
	return &d.Attempts[len(d.Attempts)-1]
}

// took is how many seconds an item took, all attempts together.
func (d *Done) took() (s float64) {
	for _, a := range d.Attempts {
		s += a.Seconds
	}
	return s
}

// ended says whether an item has come to a verdict of any kind.
func (d *Done) ended() bool {
	return slices.Contains([]Status{Passed, Failed, Xfailed, Xpassed, Undecided, Broken}, d.Status)
}

// Item finds an item by its name.
func (n *Night) Item(name string) (*Done, bool) {
	for i := range n.Items {
		if n.Items[i].Name == name {
			return &n.Items[i], true
		}
	}
	return nil, false
}

// Complete says whether the night came to its end, be it early.
func (n *Night) Complete() bool { return !n.Finished.IsZero() }

// Path is the night's directory among the runs in root.
func (n *Night) Path(root string) string { return filepath.Join(root, Folder, n.ID) }

func (n *Night) save(root string) error {
	data, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	return (&results.Dir{Path: n.Path(root)}).WriteFile(File, append(data, '\n'))
}

// create makes the directory of a new night.
func (n *Night) create(root string) error {
	n.ID = n.Started.UTC().Format("2006-01-02T15-04-05Z") + "-" + ulid.MustNew(ulid.Timestamp(n.Started), ulid.DefaultEntropy()).String()
	if err := os.Mkdir(n.Path(root), 0o755); err != nil {
		return fmt.Errorf("create night: %w", err)
	}
	if err := n.save(root); err != nil {
		return err
	}
	// A convenience, as of runs: ReadNight does without.
	tmp := filepath.Join(root, Folder, ".latest-"+n.ID)
	if os.Symlink(n.ID, tmp) == nil && os.Rename(tmp, filepath.Join(root, Folder, latest)) != nil {
		os.Remove(tmp)
	}
	return nil
}

// Nights are the nights of a suite among the runs in root, the newest first; those of all
// suites if it is "". What cannot be read, or contradicts itself, is left out: ReadNight says why.
func Nights(root, suite string) ([]*Night, error) {
	names, err := folders(root)
	if err != nil {
		return nil, err
	}
	var out []*Night
	for _, name := range names {
		if n, err := readNight(root, name); err == nil && (suite == "" || n.Suite == suite) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *Night) int { return cmp.Or(b.Started.Compare(a.Started), strings.Compare(b.ID, a.ID)) })
	return out, nil
}

// folders are the directories of nights among the runs in root, the newest first, which is by name.
func folders(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, Folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list nights: %w", err)
	}
	var names []string
	for _, e := range slices.Backward(entries) {
		if e.IsDir() && e.Name()[0] != '.' && results.PlainName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// readNight reads a night by its directory's name. One that contradicts itself is an error that wraps results.ErrContradicts.
func readNight(root, name string) (*Night, error) {
	path := filepath.Join(root, Folder, name, File)
	data, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return nil, fmt.Errorf("read night: %w", err)
	}
	n := new(Night)
	err = json.Unmarshal(data, n)
	if n.ID = name; err == nil && n.Schema > Schema {
		err = fmt.Errorf("schema %d is newer than this tool's %d", n.Schema, Schema)
	}
	if err == nil {
		err = n.contradiction()
	}
	if err != nil {
		return nil, &nightError{path, cmp.Or(n.Suite, suiteIn(data)), err}
	}
	return n, nil
}

// nightError is why a night cannot be told, and whose it is; "" if that cannot be told either.
type nightError struct {
	path, suite string
	err         error
}

func (e *nightError) Error() string { return fmt.Sprintf("read night %s: %v", e.path, e.err) }
func (e *nightError) Unwrap() error { return e.err }

// suiteIn is the name of the suite in the beginning of a night's text; "" if it is not there.
func suiteIn(text []byte) (name string) {
	if m := suiteKey.FindSubmatch(text); m != nil {
		_ = json.Unmarshal(m[1], &name)
	}
	return name
}

var suiteKey = regexp.MustCompile(`^\s*\{(?:\s*"(?:schema|id)":\s*(?:\d+|"[^"\\]*"),)*\s*"suite":\s*("(?:[^"\\]|\\.)*")`)

// ReadNight finds a night of a suite: "latest", or the beginning or the end of its
// directory's name. The error wraps results.ErrNotFound or results.ErrAmbiguous; of a night that contradicts itself, its items
// or the records of its runs, results.ErrContradicts.
func ReadNight(root, suite, ref string) (*Night, error) {
	names, err := folders(root)
	if err != nil {
		return nil, err
	}
	var found *Night
	for _, name := range names {
		if ref != latest && !strings.HasPrefix(name, ref) && !strings.HasSuffix(name, strings.ToUpper(ref)) {
			continue
		}
		n, err := readNight(root, name)
		whose := suite
		switch bad, ok := errors.AsType[*nightError](err); {
		case errors.Is(err, fs.ErrNotExist): // made, and never written
			continue
		case ok:
			whose = cmp.Or(bad.suite, suite)
		case err == nil:
			whose = n.Suite
		}
		switch {
		case whose != suite:
			continue
		case err != nil:
			return nil, err
		case found != nil:
			return nil, fmt.Errorf("%w: nights %s and %s", results.ErrAmbiguous, found.ID, n.ID)
		}
		if found = n; ref == latest {
			break
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: no night %s of %s in %s", results.ErrNotFound, ref, suite, root)
	}
	if err := found.disowned(root); err != nil {
		return nil, fmt.Errorf("read night %s: %w", filepath.Join(found.Path(root), File), err)
	}
	return found, nil
}

// Occupied reports whether a night is running in root; if so, it is the newest.
func Occupied(root string) bool {
	return results.Locked(filepath.Join(root, Folder, lockFile))
}

// lockFile is held by a night that runs.
const lockFile = ".lock"

// lock lets one night at a time run in root: they would disturb each other.
func lock(root string) (unlock func(), err error) {
	dir := filepath.Join(root, Folder)
	if err := os.MkdirAll(dir, 0o775); err != nil {
		return nil, fmt.Errorf("create nights: %w", err)
	}
	// Who may only read must not hold it, and where others may write it is no link or FIFO of theirs.
	f, err := bounded.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o620)
	if err != nil {
		return nil, fmt.Errorf("lock nights: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock nights: %s: %w", f.Name(), err)
	}
	if own, ok := st.Sys().(*syscall.Stat_t); ok && int(own.Uid) == os.Geteuid() && own.Nlink == 1 {
		_ = f.Chmod(st.Mode().Perm() &^ 0o046) // of an earlier program
	}
	if err := results.Lock(f, 100*time.Millisecond); errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf("%w: another night runs in %s", testbed.ErrBusy, root)
	}
	return func() { f.Close() }, nil
}
