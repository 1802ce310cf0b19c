// Package standing keeps an emulation up between commands: a Keeper is the process that holds it and answers on a socket
// of its user, Emulation is what others see of it through that, and All finds those that there are.
//
// The socket is in a directory that nobody else can enter, one for each machine, for home directories are shared. A request
// is one line of JSON, answered by another; after that the connection is the way to a host's SSH server, or waits for the
// end of what was asked for. What a connection brings is bounded: one line, within patience.
package standing

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

// Info is what there is to say about an emulation that stays up.
type Info struct {
	Name       string    `json:"name"`
	File       string    `json:"file"` // that it was made of, an absolute path
	Experiment string    `json:"experiment"`
	Factor     float64   `json:"factor"` // of slow motion
	Hosts      []Host    `json:"hosts"`
	Switches   []string  `json:"switches"`
	Since      time.Time `json:"since"`
	Ends       time.Time `json:"ends"`
	Running    string    `json:"running,omitempty"` // the experiment that runs on it now
	PID        int       `json:"pid"`               // of its keeper, as others see it
	Token      string    `json:"token,omitempty"`   // that the keeper was given to be known by, by whoever started it
}

// Host is a host as SSH's clients know it, beside the files KeyFile and KnownHosts.
type Host struct {
	Name    string `json:"name"`
	Address string `json:"address"` // host:port, inside
	User    string `json:"user"`
}

// Files that a keeper leaves for SSH's clients; see Emulation.Path.
const (
	KeyFile    = "id_ed25519"
	KnownHosts = "known_hosts"
	Config     = "ssh_config" // for ssh -F, scp -F and whoever else reads one
)

// What may be wrong with a name, or with the time.
var (
	ErrNone    = errors.New("no emulation is up")
	ErrSeveral = errors.New("several emulations are up") // and none was named
	ErrTaken   = errors.New("an emulation of this name is up")
	ErrBusy    = errors.New("something runs on it now")
	ErrKilled  = errors.New("its keeper did not answer, and was killed")
)

// refusal is what a keeper answered: it is there, and well.
type refusal struct {
	text string
	busy bool
}

func (r refusal) Error() string { return r.text }

// Is implements errors.Is.
func (r refusal) Is(target error) bool { return r.busy && target == ErrBusy }

// request is the line that a connection begins with; one of its fields is set.
type request struct {
	Info bool   `json:"info,omitempty"`
	Dial string `json:"dial,omitempty"` // a host's name
	Down bool   `json:"down,omitempty"`
	Run  *Run   `json:"run,omitempty"`
}

// answer is the line that comes back.
type answer struct {
	Error string `json:"error,omitempty"`
	Busy  bool   `json:"busy,omitempty"`
	Info  *Info  `json:"info,omitempty"`
	Exit  int    `json:"exit,omitempty"` // of a Run
}

// Run is a command that the keeper does beside what it holds.
type Run struct {
	What    string   `json:"what"`    // for people: the experiment
	Args    []string `json:"args"`    // the first is the program's name
	Dir     string   `json:"dir"`     // that files' names are relative to
	Environ []string `json:"environ"` // KEY=VALUE, as it is to have them besides the keeper's
	// Sees are directories as who asks sees them, and Program is the digest of its program: a keeper may see others, and be
	// of another program.
	Sees    []Place `json:"sees"`
	Program string  `json:"program"`
}

// Place is a directory, and what it is on its file system.
type Place struct {
	Path string `json:"path"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
}

// PlaceOf is what a directory is for this process.
func PlaceOf(path string) (Place, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Place{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return Place{path, st.Dev, st.Ino}, nil
}

const (
	patience = 10 * time.Second // for a request, and for an answer that takes nothing
	most     = 64               // connections to hosts through a keeper at once
	spare    = 16               // connections besides, for all that is not one to a host
	suffix   = ".sock"
)

// dir is the directory of sockets of this machine, which only this user can enter.
func dir() (string, error) {
	d, err := enter()
	if err != nil {
		return "", err
	}
	return d.Name(), d.Close()
}

// enter opens that directory, and makes it if need be.
func enter() (d *os.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("a place for emulations that stay up: %w", err)
		}
	}()
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	machine, err := os.Hostname()
	if err != nil || strings.ContainsAny(machine, "/\x00") || strings.Trim(machine, ".") == "" {
		machine = "machine"
	}
	path := filepath.Join(cache, "inabench", "up", machine)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d = os.NewFile(uintptr(fd), path)
	st, err := d.Stat()
	switch {
	case err != nil:
	case st.Mode().Perm()&0o077 != 0:
		err = errors.New("others may enter it; chmod 700 it")
	default:
		err = bounded.Own(st)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// at calls use with a path of the socket that is short enough for one, whatever the directory's is.
func at[T any](name string, use func(path string) (T, error)) (none T, err error) {
	d, err := enter()
	if err != nil {
		return none, err
	}
	defer d.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s%s", d.Fd(), name, suffix))
}

// CheckName is an error if an emulation cannot be called so.
func CheckName(name string) error {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
	}
	if name == "" || len(name) > 60 || name[0] == '.' || name[0] == '-' || strings.ContainsFunc(name, func(r rune) bool { return !ok(r) }) {
		return fmt.Errorf("%q is no name of an emulation: up to 60 letters, digits and .-_", name)
	}
	return nil
}

// Emulation is one that stays up, as other processes see it.
type Emulation struct{ Name string }

// Find is the emulation of a name, or, if that is empty, the only one.
func Find(ctx context.Context, name string) (Emulation, error) {
	if name != "" {
		if err := CheckName(name); err != nil {
			return Emulation{}, err
		}
		raw, err := Emulation{name}.dial()
		if err == nil {
			raw.Close()
			return Emulation{name}, nil
		}
		if !errors.Is(err, ErrNone) {
			return Emulation{}, err
		}
	}
	all, err := All(ctx)
	var names []string
	for _, e := range all {
		names = append(names, e.Name)
	}
	switch {
	case len(all) == 0 && err != nil:
		return Emulation{}, err
	case len(all) == 0:
		return Emulation{}, ErrNone
	case name != "":
		return Emulation{}, fmt.Errorf("%w that is called %s: there is %s", ErrNone, name, strings.Join(names, ", "))
	case len(all) > 1:
		return Emulation{}, fmt.Errorf("%w: %s", ErrSeveral, strings.Join(names, ", "))
	}
	return Emulation{all[0].Name}, nil
}

// All are the emulations that this user keeps up here, by name, also with an error of one that does not answer. What a
// keeper that was killed left behind is removed.
func All(ctx context.Context) ([]Info, error) {
	path, err := dir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var out []Info
	var errs []error
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || e.Type() != fs.ModeSocket {
			continue
		}
		info, err := Emulation{name}.Info(ctx)
		switch {
		case err == nil:
			info.Token = ""
			out = append(out, info)
		case errors.Is(err, ErrNone):
			forget(name)
		default:
			errs = append(errs, fmt.Errorf("emulation %s: %w", name, err))
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out, errors.Join(errs...)
}

// forget removes the socket of a keeper that is gone; another may be taking its place.
func forget(name string) {
	path, err := dir()
	if err != nil {
		return
	}
	if lock, err := hold(path, name); err == nil {
		remove(path, name)
		_ = lock.Close()
	}
}

// remove removes the socket of a name, and the files beside it.
func remove(path, name string) {
	_ = os.Remove(filepath.Join(path, name+suffix))
	_ = os.RemoveAll(filepath.Join(path, name))
}

// Path is that of a file that the keeper left.
func (e Emulation) Path(file string) (string, error) {
	path, err := dir()
	return filepath.Join(path, e.Name, file), err
}

// Log makes a file for what a keeper says where nobody else listens, which is to be that of the name once it is up.
func (e Emulation) Log() (*os.File, error) {
	path, err := dir()
	if err != nil {
		return nil, err
	}
	return os.CreateTemp(path, e.Name+".*.log")
}

// Logged gives a file that Log made the name under which it is looked for.
func (e Emulation) Logged(f *os.File) error {
	path, err := dir()
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(path, e.Name+".log"))
}

// hold locks a name, until the file is closed.
func hold(path, name string) (*os.File, error) {
	f, err := bounded.OpenFile(filepath.Join(path, name+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w: %s", ErrTaken, name)
		}
		return nil, err
	}
	return f, nil
}

// dial connects to the keeper.
func (e Emulation) dial() (*net.UnixConn, error) {
	raw, err := at(e.Name, func(path string) (*net.UnixConn, error) {
		return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	})
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w that is called %s", ErrNone, e.Name)
	}
	return raw, err
}

// ask sends a request, with files, and returns the connection after the answer has come.
func (e Emulation) ask(ctx context.Context, r request, files ...*os.File) (*conn, answer, error) {
	raw, err := e.dial()
	if err != nil {
		return nil, answer{}, err
	}
	return ask(ctx, raw, r, files, patience)
}

// ask asks on a connection, which it closes if that fails.
func ask(ctx context.Context, raw *net.UnixConn, r request, files []*os.File, within time.Duration) (*conn, answer, error) {
	var a answer
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	fail := func(err error) (*conn, answer, error) {
		raw.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, a, err
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fail(err)
	}
	line = append(line, '\n')
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_ = raw.SetDeadline(time.Now().Add(patience))
	n, _, err := raw.WriteMsgUnix(line, rights, nil)
	if err == nil && n < len(line) {
		_, err = raw.Write(line[n:])
	}
	if err != nil {
		return fail(err)
	}
	_ = raw.SetDeadline(time.Now().Add(within))
	c := &conn{raw, raw, bufio.NewReader(raw)}
	if a, err = c.answer(); err != nil {
		return fail(err)
	}
	_ = raw.SetDeadline(time.Time{})
	return c, a, nil
}

// conn is a connection of which a line was read, and perhaps more. It embeds no socket, only what all connections have: io.Copy
// would take what comes from a socket itself, past what was read.
type conn struct {
	net.Conn
	raw *net.UnixConn
	in  *bufio.Reader
}

func (c *conn) Read(p []byte) (int, error) { return c.in.Read(p) }
func (c *conn) CloseWrite() error          { return c.raw.CloseWrite() }

// RemoteAddr is no address: SSH's library wants one that looks like TCP's, and compares names of hosts if it says nothing.
func (c *conn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero} }

// answer reads one.
func (c *conn) answer() (a answer, err error) {
	line, err := bounded.ReadLine(c.in, bounded.Config)
	if err != nil {
		return a, fmt.Errorf("the keeper does not answer: %w", err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, fmt.Errorf("the keeper's answer: %w", err)
	}
	if a.Error != "" {
		return a, refusal{a.Error, a.Busy}
	}
	return a, nil
}

// Info is what it says of itself.
func (e Emulation) Info(ctx context.Context) (Info, error) {
	c, a, err := e.ask(ctx, request{Info: true})
	if err != nil {
		return Info{}, err
	}
	defer c.Close()
	if a.Info == nil {
		return Info{}, errors.New("the keeper says nothing of itself")
	}
	info := *a.Info
	info.PID, err = peer(c.raw)
	return info, err
}

// peer is the process at the other end.
func peer(c *net.UnixConn) (pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(cerr, err); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// Dial is a connection to a host's SSH server.
func (e Emulation) Dial(ctx context.Context, host string) (net.Conn, error) {
	c, _, err := e.ask(ctx, request{Dial: host})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Run has the keeper do a command, with its own stdout and stderr, and returns the exit code. The end of ctx interrupts
// it; it is waited for.
func (e Emulation) Run(ctx context.Context, r Run, stdout, stderr *os.File) (exit int, err error) {
	c, _, err := e.ask(context.WithoutCancel(ctx), request{Run: &r}, stdout, stderr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.CloseWrite() })() // it is interrupted
	end, err := c.answer()
	return end.Exit, err
}

// Down takes it down, and returns when it is gone: an error that wraps ErrKilled if it had to be killed, or what went wrong
// when it was taken down.
func (e Emulation) Down(ctx context.Context, within time.Duration) error {
	raw, err := e.dial()
	if err != nil {
		return err
	}
	pid, err := peer(raw)
	if err != nil {
		raw.Close()
		return err
	}
	keeper, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		raw.Close()
		return fmt.Errorf("emulation %s: its keeper, process %d: %w", e.Name, pid, err)
	}
	defer unix.Close(keeper)
	c, _, err := ask(ctx, raw, request{Down: true}, nil, within)
	var refused refusal
	switch {
	case err == nil:
		c.Close()
	case ctx.Err() != nil:
		return err
	case errors.As(err, &refused):
		if !gone(keeper, time.Second) { // it is not taken down
			return err
		}
	default:
		if kerr := unix.PidfdSendSignal(keeper, unix.SIGKILL, nil, 0); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			return errors.Join(err, kerr)
		}
		err = fmt.Errorf("emulation %s: %w", e.Name, ErrKilled)
	}
	if !gone(keeper, patience) {
		return errors.Join(err, fmt.Errorf("emulation %s: its keeper, process %d, has not ended", e.Name, pid))
	}
	forget(e.Name)
	return err
}

// gone waits for the end of a process.
func gone(pidfd int, within time.Duration) bool {
	for end := time.Now().Add(within); ; {
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(max(0, time.Until(end))/time.Millisecond))
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, syscall.EINTR) || !time.Now().Before(end) {
			return false
		}
	}
}
