package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// patience bounds everything that a script waits for.
const patience = 2 * time.Minute

func timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

type valueKey string

const backgroundKey valueKey = "background"

// background is a command that runs while the script goes on.
type background struct {
	cmd            *exec.Cmd
	stdout, stderr buffer
	ended          chan struct{}
	seen           map[process]bool // processes that were below it at some time
}

func newBackground(exe string, args ...string) *background {
	b := &background{cmd: exec.Command(exe, args...), ended: make(chan struct{}), seen: map[process]bool{}}
	b.cmd.Stdout, b.cmd.Stderr = &b.stdout, &b.stderr
	return b
}

// start starts the command, which closes ended.
func (b *background) start() error {
	if err := b.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(b.ended)
		_ = b.cmd.Wait()
	}()
	return nil
}

// kill ends the command, if it has not ended.
func (b *background) kill() {
	_ = b.cmd.Process.Kill()
	<-b.ended
}

// code is the exit status of a command that has ended, as a shell says it.
func (b *background) code() int {
	if ws := b.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return b.cmd.ProcessState.ExitCode()
}

// buffer is written by a process and read by a script at the same time.
type buffer struct {
	mu sync.Mutex
	b  []byte
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}

func find(ts *testscript.TestScript, name string) *background {
	b := ts.Value(backgroundKey).(map[string]*background)[name]
	if b == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	return b
}

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "start NAME COMMAND ...")
	path := args[1]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, args[1])); err == nil {
			path = filepath.Join(dir, args[1])
			break
		}
	}
	b := newBackground(path, args[2:]...)
	b.cmd.Dir = ts.MkAbs(".")
	for _, key := range []string{"PATH", "HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR", "WORK", "GORACE"} {
		if v := ts.Getenv(key); v != "" {
			b.cmd.Env = append(b.cmd.Env, key+"="+v)
		}
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup, and what is ignored stays so in children
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Ignore(syscall.SIGHUP)
	}
	ts.Check(b.start())
	ts.Defer(b.kill)
	ts.Value(backgroundKey).(map[string]*background)[args[0]] = b
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2 || len(args) == 3, "await NAME REGEXP [FILE]")
	b, want := find(ts, args[0]), regexp.MustCompile("(?m)"+args[1])
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		b.look()
		out := b.stdout.String() + b.stderr.String()
		if len(args) == 3 {
			text, _ := os.ReadFile(ts.MkAbs(args[2])) // it may not be there yet
			out = string(text)
		}
		if want.MatchString(out) {
			return
		}
		select {
		case <-b.ended:
			ts.Fatalf("%s ended without %q:\n%s", args[0], args[1], b.stdout.String()+b.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not say %q:\n%s", args[0], args[1], out)
		}
	}
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2 || len(args) == 3, "signal NAME SIGNAL [ARGV]")
	b, sig := find(ts, args[0]), unix.SignalNum("SIG"+args[1])
	b.look()
	pid := b.cmd.Process.Pid
	if len(args) == 3 {
		pid = 0
		for p := range b.seen {
			if strings.Contains(p.argv(), args[2]) {
				pid = p.pid
			}
		}
		if pid == 0 {
			ts.Fatalf("no process %q below %s", args[2], args[0])
		}
	}
	ts.Check(syscall.Kill(pid, sig))
}

func cmdFinish(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "finish NAME N")
	b := find(ts, args[0])
	deadline := time.Now().Add(patience)
	for ended := false; !ended; {
		select {
		case <-b.ended:
			ended = true
		case <-time.After(20 * time.Millisecond):
			b.look()
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not end:\n%s", args[0], b.stderr.String())
		}
	}
	fmt.Fprint(ts.Stdout(), b.stdout.String())
	fmt.Fprint(ts.Stderr(), b.stderr.String())
	code := b.code()
	if code != number(ts, args[1]) {
		ts.Fatalf("%s: exit code %d, want %s", args[0], code, args[1])
	}
	for { // the kernel ends a namespace's processes a moment after its first
		var left []string
		for p := range b.seen {
			if p.exists() {
				left = append(left, fmt.Sprintf("%d %s", p.pid, p.argv()))
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s left behind: %s", args[0], strings.Join(left, ", "))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// process is a process for all times: a number may come again, with another start.
type process struct {
	pid   int
	start string // in clock ticks after boot
}

// stat is a process's parent and start; ok is false when there is none, or nothing
// left of it but its exit status.
func stat(pid int) (parent int, start string, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", false
	}
	// The name in parentheses may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, "", false
	}
	parent, _ = strconv.Atoi(fields[1])
	return parent, fields[19], true
}

func (p process) exists() bool {
	_, start, ok := stat(p.pid)
	return ok && start == p.start
}

func (p process) argv() string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)) // empty once it has ended
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}

// look notes the processes that are below b now.
func (b *background) look() {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // only a malformed pattern is an error
	children := map[int][]process{}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if parent, start, ok := stat(pid); ok {
			children[parent] = append(children[parent], process{pid, start})
		}
	}
	for todo := []int{b.cmd.Process.Pid}; len(todo) > 0; todo = todo[1:] {
		for _, c := range children[todo[0]] {
			b.seen[c] = true
			if !slices.Contains(todo, c.pid) {
				todo = append(todo, c.pid)
			}
		}
	}
}
