package suite

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
// suites if it is "". What cannot be read is left out.
func Nights(root, suite string) ([]*Night, error) {
	entries, err := os.ReadDir(filepath.Join(root, Folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list nights: %w", err)
	}
	var out []*Night
	for _, e := range entries {
		if !e.IsDir() || e.Name()[0] == '.' || !results.PlainName(e.Name()) {
			continue
		}
		data, err := bounded.ReadFile(filepath.Join(root, Folder, e.Name(), File), bounded.Config)
		n := new(Night)
		if err != nil || json.Unmarshal(data, n) != nil || n.Schema > Schema || suite != "" && n.Suite != suite {
			continue
		}
		n.ID = e.Name()
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *Night) int { return cmp.Or(b.Started.Compare(a.Started), strings.Compare(b.ID, a.ID)) })
	return out, nil
}

// ReadNight finds a night of a suite: "latest", or the beginning or the end of its
// directory's name. The error wraps results.ErrNotFound or results.ErrAmbiguous.
func ReadNight(root, suite, ref string) (*Night, error) {
	all, err := Nights(root, suite)
	if err != nil {
		return nil, err
	}
	if ref == latest && len(all) > 0 {
		return all[0], nil
	}
	var found *Night
	for _, n := range all {
		if !strings.HasPrefix(n.ID, ref) && !strings.HasSuffix(n.ID, strings.ToUpper(ref)) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: nights %s and %s", results.ErrAmbiguous, n.ID, found.ID)
		}
		found = n
	}
	if found == nil {
		return nil, fmt.Errorf("%w: no night %s of %s in %s", results.ErrNotFound, ref, suite, root)
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
