package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
)

// Process is one of the processes of a host.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks from boot to its start: a number may come again, with another start
	// State is the letter of proc(5): R running, S sleeping, D waiting for a device, T stopped,
	// t stopped by a debugger, Z dead and not yet buried.
	State string `json:"state"`
	Name  string `json:"name"` // its program's, 15 bytes at most

	parent, group int
}

func (p Process) String() string { return fmt.Sprintf("%d (%s, state %s)", p.PID, p.Name, p.State) }

// Stopped reports whether somebody has stopped the process, with SIGSTOP or a debugger.
func (p Process) Stopped() bool { return p.State == "T" || p.State == "t" }

// errNoProc is that /proc shows the processes of another pid namespace.
var errNoProc = errors.New("/proc is not of this pid namespace")

// readProcess is a process that is there, by its number or as "self".
func readProcess(pid string) (Process, error) {
	text, err := bounded.ReadFile("/proc/"+pid+"/stat", bounded.Config)
	if err != nil {
		return Process{}, err
	}
	return parseStat(text)
}

// parseStat reads a /proc/PID/stat.
func parseStat(text []byte) (Process, error) {
	// The name in parentheses may hold anything, parentheses too.
	open, last := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || last < open {
		return Process{}, fmt.Errorf("not a process's stat: %.40q", text)
	}
	fields := strings.Fields(string(text[last+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return Process{}, fmt.Errorf("not a process's stat: %.40q", text)
	}
	p := Process{Name: strings.ToValidUTF8(string(text[open+1:last]), "?"), State: fields[0]}
	var errs [4]error
	p.PID, errs[0] = strconv.Atoi(strings.TrimSpace(string(text[:open])))
	p.parent, errs[1] = strconv.Atoi(fields[1])
	p.group, errs[2] = strconv.Atoi(fields[2])
	p.Start, errs[3] = strconv.ParseUint(fields[19], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return Process{}, fmt.Errorf("not a process's stat: %w", err)
	}
	return p, nil
}

// processes are all of this pid namespace.
func processes() ([]Process, error) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, errNoProc
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			if p, err := readProcess(name); err == nil { // otherwise it has ended
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// descendants are the processes below one, its children first.
func descendants(pid int) ([]Process, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	return below(all, pid), nil
}

func below(all []Process, pid int) (out []Process) {
	children := map[int][]Process{}
	for _, p := range all {
		if p.State != "Z" && p.State != "X" {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	seen := map[int]bool{pid: true}
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, c := range children[todo[0]] {
			if !seen[c.PID] {
				seen[c.PID] = true
				out = append(out, c)
				todo = append(todo, c.PID)
			}
		}
	}
	return out
}

// BootIDFile holds what is different after each start of a host.
const BootIDFile = "/proc/sys/kernel/random/boot_id"

func bootID() (string, error) {
	b, err := bounded.ReadFile(BootIDFile, bounded.Config)
	return strings.TrimSpace(string(b)), err
}

// BootTime is when a host was started, from the content of its /proc/stat.
func BootTime(stat []byte) (time.Time, error) {
	for line := range strings.Lines(string(stat)) {
		if text, ok := strings.CutPrefix(line, "btime "); ok {
			s, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("time of boot: %w", err)
			}
			return time.Unix(s, 0), nil
		}
	}
	return time.Time{}, errors.New("time of boot: no line btime")
}
