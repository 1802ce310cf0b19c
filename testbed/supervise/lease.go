package supervise

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

// Lease is what a lease file says: that a supervisor runs a program for somebody, and until
// when without a beat.
//
// The file is ~/.cache/inabench/processes/HOST-PID-RANDOM.json, beside the copies of this
// program, readable by its user alone. It is one JSON object and spaces, written when the
// supervisor starts, before the program does, overwritten in place with every beat, and
// removed when nothing is left of the program. A file whose process is not there, by number,
// start and boot, was left by a supervisor that was killed or by a host that went down; it
// holds nothing. Several hosts may share the directory: only those files concern a host that
// have its name.
type Lease struct {
	Mark string   `json:"inabench"` // "process": what makes the file one of ours
	Run  string   `json:"run,omitempty"`
	Name string   `json:"name"`
	Host string   `json:"host"`  // its name for itself
	Boot string   `json:"boot"`  // content of BootIDFile
	PID  int      `json:"pid"`   // of the supervisor, and the program's process group
	Born uint64   `json:"start"` // of the supervisor, see Process.Start
	Argv []string `json:"argv"`

	Began   time.Time `json:"began"`
	Renewed time.Time `json:"renewed"` // by the host's clock
	Expires time.Time `json:"expires"` // the same

	File string `json:"file,omitempty"` // where it was read from
}

// mark is Lease.Mark.
const mark = "process"

// Dir is the directory of lease files on this host.
func Dir() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), fmt.Sprintf("inabench-%d", os.Getuid()), "processes")
	}
	return filepath.Join(home, ".cache", "inabench", "processes")
}

// ParseLease reads a lease file. An error says that it is none.
func ParseLease(text []byte) (Lease, error) {
	var l Lease
	if err := json.Unmarshal(text, &l); err != nil {
		return Lease{}, fmt.Errorf("lease file: %w", err)
	}
	if l.Mark != mark || l.PID <= 1 || l.Host == "" {
		return Lease{}, fmt.Errorf("lease file: not one of inabench's: %.40q", text)
	}
	return l, nil
}

// held is a lease file that this process keeps.
type held struct {
	lease Lease
	every time.Duration
	file  *os.File
	size  int
}

// take writes the lease file.
func (c *Config) take() (*held, error) {
	dir := cmp.Or(c.Leases, Dir())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("lease file: %w", err)
	}
	host, _ := os.Hostname() // if it has none it cannot share its directory
	host = cmp.Or(host, "localhost")
	boot, _ := bootID() // the same without
	// Where /proc is another namespace's there is no start, and nobody can be told apart.
	var born uint64
	if p, err := readProcess("self"); err == nil && p.PID == os.Getpid() {
		born = p.Start
	}
	now := time.Now().UTC()
	h := &held{every: seconds(c.Lease), lease: Lease{
		Mark: mark, Run: c.Run, Name: c.Name, Host: host, Boot: boot, PID: os.Getpid(), Born: born, Argv: c.Argv, Began: now,
	}}
	name := fmt.Sprintf("%s-%d-%s.json", strings.ReplaceAll(host, "/", "_"), os.Getpid(), rand.Text()[:8])
	var err error
	if h.file, err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, fmt.Errorf("lease file: %w", err)
	}
	if err := h.write(now); err != nil {
		h.release()
		return nil, fmt.Errorf("lease file: %w", err)
	}
	return h, nil
}

// write puts the lease into its file, in place: that takes no room that it does not have.
func (h *held) write(now time.Time) error {
	h.lease.Renewed, h.lease.Expires = now, now.Add(h.every)
	text, err := json.Marshal(h.lease)
	if err != nil {
		return err
	}
	h.size = max(h.size, len(text)+32) // times vary in length
	_, err = h.file.WriteAt(append(text, append(bytes.Repeat([]byte(" "), h.size-len(text)-1), '\n')...), 0)
	return err
}

// renew says that there was a beat. A disk that does not take it is no reason to end the
// program: what counts is the supervisor's own clock.
func (h *held) renew() { _ = h.write(time.Now().UTC()) }

func (h *held) release() {
	h.file.Close()
	os.Remove(h.file.Name()) // at the worst it stays, and holds nothing
}

// Found is a lease with what there is of it.
type Found struct {
	Lease
	// Stale says that nothing runs for it: its process has ended without removing it, or its
	// host has been started again since.
	Stale bool `json:"stale,omitempty"`
	// Processes are the supervisor and what it runs; after it was killed, what is left of its
	// process group.
	Processes []Process `json:"processes,omitempty"`
	// Ended says that they have been ended and the file removed, by End.
	Ended bool   `json:"ended,omitempty"`
	Error string `json:"error,omitempty"` // why they have not
}

// List returns the leases of this host in a directory (empty: Dir()), those of a run, or of
// all if it is empty. Files that are not ours, or of another host, are passed over.
func List(dir, run string) ([]Found, error) {
	dir = cmp.Or(dir, Dir())
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lease files: %w", err)
	}
	all, err := processes()
	if err != nil {
		return nil, fmt.Errorf("lease files: %w", err)
	}
	host, _ := os.Hostname()
	boot, _ := bootID()
	var out []Found
	for _, n := range names {
		file := filepath.Join(dir, n.Name())
		text, err := bounded.ReadFile(file, bounded.Config)
		if err != nil {
			continue // gone meanwhile
		}
		l, err := ParseLease(text)
		if err != nil || l.Host != cmp.Or(host, "localhost") || run != "" && l.Run != run {
			continue
		}
		l.File = file
		f := Found{Lease: l, Processes: l.processes(all, boot)}
		f.Stale = len(f.Processes) == 0
		out = append(out, f)
	}
	return out, nil
}

// processes are those of all that run for the lease, the supervisor first if it lives; none
// if the host's boot is another meanwhile.
func (l *Lease) processes(all []Process, boot string) (out []Process) {
	if l.Boot != boot {
		return nil
	}
	for _, p := range all {
		if p.PID != l.PID {
			continue
		}
		if p.Start != l.Born {
			return nil // the number is another's, and so would be the group
		}
		if p.State != "Z" {
			out = append(out, p)
		}
		out = append(out, below(all, l.PID)...)
	}
	// After the supervisor was killed its group is what is left. As long as that has members,
	// nothing else gets its number.
	for _, p := range all {
		known := slices.ContainsFunc(out, func(q Process) bool { return q.PID == p.PID })
		if p.group == l.PID && p.Start >= l.Born && p.State != "Z" && !known {
			out = append(out, p)
		}
	}
	return out
}

// End ends what runs on this host for a run, or for all if it is empty, and removes its lease
// files: supervisors are asked to, with SIGTERM, and everything is killed after the grace. The
// result says what there was, and with Error what is still there.
func End(ctx context.Context, dir, run string, grace time.Duration) ([]Found, error) {
	found, err := List(dir, run)
	if err != nil {
		return nil, err
	}
	for i := range found {
		// A supervisor asks the others itself. A stopped process hears of it when it goes on.
		for _, p := range found[i].asked() {
			p.signal(unix.SIGTERM)
			p.signal(unix.SIGCONT)
		}
	}
	asked := time.Now()
	for left := true; left; {
		left = false
		for i := range found {
			f := &found[i]
			still, err := f.still()
			if err != nil {
				return found, err
			}
			if f.Ended = len(still) == 0; f.Ended {
				f.Error = ""
				os.Remove(f.File)
				continue
			}
			left = true
			f.Error = fmt.Sprintf("survives: %v", still)
			if time.Since(asked) > grace {
				for _, p := range still {
					p.signal(unix.SIGKILL)
				}
			}
		}
		if time.Since(asked) > grace+survival {
			break
		}
		if left {
			select {
			case <-ctx.Done():
				return found, context.Cause(ctx)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return found, nil
}

// asked are the processes to ask: the supervisor, or what a dead one left.
func (f *Found) asked() []Process {
	if len(f.Processes) > 0 && f.Processes[0].PID == f.PID {
		return f.Processes[:1]
	}
	return f.Processes
}

// still are those of the lease's processes that have not ended, with what they started since.
func (f *Found) still() ([]Process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	boot, _ := bootID()
	out := f.Lease.processes(all, boot)
	for _, known := range f.Processes { // whatever has become of its parents
		for _, p := range all {
			if p.PID == known.PID && p.Start == known.Start && p.State != "Z" {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// signal sends a signal to the process and to no other that has its number meanwhile.
func (p Process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if now, err := readProcess(strconv.Itoa(p.PID)); err == nil && now.Start == p.Start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// report is List or End as a process.
func (c *Config) report(ctx context.Context, stdout io.Writer) error {
	var found []Found
	var err error
	if c.Do == "list" {
		found, err = List(c.Leases, c.Run)
	} else {
		found, err = End(ctx, c.Leases, c.Run, seconds(max(c.Grace, 1)))
	}
	enc := json.NewEncoder(stdout)
	for _, f := range found {
		if e := enc.Encode(f); e != nil {
			return errors.Join(err, e)
		}
	}
	return err
}
