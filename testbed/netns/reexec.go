package netns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

// marker is the environment variable that tells a process which part it plays:
// "init" for the first process inside, "controller:DIR" for the program proper,
// DIR being a private tmpfs. Nothing inherits it.
const marker = "INABENCH_NETNS"

// Descriptors that the first process inside is given.
const (
	lifelineFD = 3 // a pipe; its end means that the process outside is gone
	statusFD   = 4 // a pipe that takes the reason when the namespaces cannot be set up
)

// Signals that are passed on from the outside to the program inside.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, unix.SIGWINCH}

// caught are signals as they come, of those that are passed on. What is ignored stays so: nohup stays nohup.
func caught() chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	return signals
}

// Reexec runs this program again, with the same arguments, terminal and working
// directory, inside fresh user (unless root), network, mount, pid, ipc and uts
// namespaces, and waits for it.
//
// In the new process the same call returns inside = true: carry on. In the old one
// it returns inside = false and the exit code to end with; err says why there is
// none, and wraps errors.ErrUnsupported where this machine does not let its users
// make namespaces. It must be called early, before anything with a side effect,
// because everything before it happens three times.
//
// The inside has a session of its own, so a Ctrl-C reaches it once: passed on, like
// every signal that ends a program. Cancelling ctx sends SIGTERM. Whichever of the
// processes is killed, all of them end and nothing remains.
func Reexec(ctx context.Context) (inside bool, code int, err error) {
	if os.Getenv(marker) == "init" && os.Getpid() == 1 {
		return false, runInit(), nil
	}
	if Inside() {
		return true, 0, nil
	}
	code, err = reexec(ctx)
	return false, code, err
}

// Inside reports whether this process is the program that Reexec runs inside.
func Inside() bool { return os.Getppid() == 1 && stateDir() != "" }

// stateDir is the private tmpfs of this emulation, "" outside.
func stateDir() string {
	dir, ok := strings.CutPrefix(os.Getenv(marker), "controller:")
	if !ok {
		return ""
	}
	return dir
}

// environ is the environment without the marker, with extra entries.
func environ(extra ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, marker+"=") {
			env = append(env, e)
		}
	}
	return append(env, extra...)
}

// half leaves half of the cores to who forwards packets: whoever controls an emulation and reads its counters, and what it
// starts, has the others at most. With all of them a reading of a rack's hosts held every core for milliseconds at a time, and
// packets left as late. A user who says how many has said so.
func half() []string {
	if os.Getenv("GOMAXPROCS") != "" {
		return nil
	}
	return []string{fmt.Sprintf("GOMAXPROCS=%d", max(1, runtime.GOMAXPROCS(0)/2))}
}

// namespaces makes cmd start in new namespaces of the kinds in flags; without
// CAP_SYS_ADMIN also in a new user namespace, as its root.
func namespaces(flags uintptr) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: flags, Setsid: true, Pdeathsig: syscall.SIGKILL}
	if !sysAdmin() {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// sysAdmin reports whether this process may make namespaces without a user
// namespace of its own.
func sysAdmin() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return os.Geteuid() == 0 && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0 && data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0
}

const allNamespaces = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// reexec is the process outside.
func reexec(ctx context.Context) (code int, err error) {
	// The parent death signal is sent when the thread that made the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	lifelineR, lifelineW, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("start the emulation: %w", err)
	}
	defer lifelineW.Close()
	defer lifelineR.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("start the emulation: %w", err)
	}
	defer statusR.Close()
	defer statusW.Close()

	cmd := exec.Command("/proc/self/exe")
	cmd.Args = os.Args
	cmd.Env = environ(marker + "=init")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{lifelineR, statusW}
	cmd.SysProcAttr = namespaces(allNamespaces)

	signals := caught()
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, unsupported(err, readSmall)
	}
	statusW.Close()
	lifelineR.Close()

	done, forwarding := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(forwarding)
		forward(ctx, signals, done, cmd.Process)
	}()
	why, _ := bounded.ReadAll(statusR, bounded.Small)
	err = cmd.Wait()
	close(done)
	<-forwarding

	if number, text, ok := strings.Cut(string(why), " "); ok {
		n, _ := strconv.Atoi(number)
		return 0, unsupported(fmt.Errorf("%s: %w", text, syscall.Errno(n)), readSmall)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("wait for the emulation: %w", err)
	}
	return exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// overdue is how long what is inside may go on after it was told to end: three times as long as it takes. A process that is
// stopped never ends.
var overdue = 30 * time.Second

// forward passes signals on until done, and kills who does not heed them. The context usually ends because of one
// of them; it counts only when none came with it.
func forward(ctx context.Context, signals <-chan os.Signal, done <-chan struct{}, p *os.Process) {
	cancelled := ctx.Done()
	var late, dead <-chan time.Time
	for {
		select {
		case s := <-signals:
			_ = p.Signal(s)
			if s != unix.SIGWINCH {
				cancelled, late, dead = nil, nil, cmp.Or(dead, time.After(overdue))
			}
		case <-cancelled:
			cancelled, late = nil, time.After(100*time.Millisecond)
		case <-late:
			late, dead = nil, time.After(overdue)
			_ = p.Signal(syscall.SIGTERM)
		case <-dead:
			fmt.Fprintf(os.Stderr, "inabench: what runs inside the emulation has not ended %v after it was told to: it is killed\n", overdue)
			_ = p.Kill()
		case <-done:
			return
		}
	}
}

// exitCode is a wait status as a shell says it.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// runInit is the first process inside: it makes the mounts, starts the program
// proper as its child, buries orphans and passes signals on. When it exits, the
// kernel ends everything inside.
func runInit() int {
	lifeline, status := os.NewFile(lifelineFD, "lifeline"), os.NewFile(statusFD, "status")
	if lifeline == nil || status == nil {
		fmt.Fprintf(os.Stderr, "%s is set by hand: unset it\n", marker)
		return 2
	}
	unix.CloseOnExec(lifelineFD)
	unix.CloseOnExec(statusFD)
	go func() {
		_, _ = io.Copy(io.Discard, lifeline)
		os.Exit(128 + int(unix.SIGKILL))
	}()

	signals := caught()
	dir, err := insideMounts()
	var pid int
	if err == nil {
		pid, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
			Env:   environ(append(half(), marker+"=controller:"+dir)...),
			Files: []uintptr{0, 1, 2},
		})
	}
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		fmt.Fprintf(status, "%d %v", int(errno), err)
		return 1
	}
	status.Close()
	go func() {
		for s := range signals {
			_ = syscall.Kill(pid, s.(syscall.Signal))
		}
	}()
	ws, err := bury(pid)
	if err != nil {
		return 1 // no child left, which cannot be
	}
	return exitCode(ws)
}

// bury waits for children, whoever they are, until that of a number has ended.
func bury(pid int) (syscall.WaitStatus, error) {
	for {
		var ws syscall.WaitStatus
		switch got, err := syscall.Wait4(-1, &ws, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case got == pid:
			return ws, nil
		}
	}
}

// insideMounts makes the view of the file system inside: nothing propagates out,
// /proc is that of the new pid namespace, and there is a private tmpfs, whose
// place it returns.
func insideMounts() (dir string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("make mounts private: %w", err)
	}
	// Where part of /proc is masked (containers) a new one is refused. Then /proc
	// shows other process numbers than ours, which nothing here depends on.
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")

	dir, err = tmpfsPlace()
	if err != nil {
		return "", err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return "", fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	return dir, nil
}

// tmpfsPlace is a directory that nobody will miss inside: none that holds the
// program, what it was told to work on, or where it was started. A directory of
// our own would be left behind after a crash.
func tmpfsPlace() (string, error) {
	used := []string{"runs"} // where runs are if nobody says where
	for _, name := range []string{"HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "INABENCH_RUNS", "INABENCH_INVENTORY"} {
		used = append(used, os.Getenv(name))
	}
	for _, arg := range os.Args {
		_, value, _ := strings.Cut(arg, "=")
		used = append(used, arg, value)
	}
	if exe, err := os.Readlink("/proc/self/exe"); err == nil {
		used = append(used, exe)
	}
	if wd, err := os.Getwd(); err == nil {
		used = append(used, wd)
	}
	return freePlace([]string{"/dev/shm", "/mnt", "/media", "/srv", "/run/lock"}, used)
}

// freePlace is the first of some directories that is, or holds, nothing that is used, nor anything that a link among that leads
// to.
func freePlace(places, used []string) (string, error) {
	for _, u := range slices.Clone(used) {
		used = append(used, resolved(u))
	}
place:
	for _, p := range places {
		if info, err := os.Lstat(p); err != nil || !info.IsDir() {
			continue
		}
		for _, u := range used {
			if strings.Contains(u, p+"/") || filepath.Clean(u) == p {
				continue place
			}
		}
		return p, nil
	}
	return "", fmt.Errorf("none of %s is free for a private tmpfs: %w", strings.Join(places, ", "), unix.ENOENT)
}

// resolved is where the links of a path lead, of which the end need not be there yet.
func resolved(path string) string {
	for rest := ""; ; {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Join(real, rest)
		}
		dir := filepath.Dir(path)
		if dir == path {
			return filepath.Join(path, rest)
		}
		path, rest = dir, filepath.Join(filepath.Base(path), rest)
	}
}
