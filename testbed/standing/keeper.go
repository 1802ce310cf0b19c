package standing

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

// Held is what a Keeper keeps up.
type Held interface {
	// Info is all but the name, the keeper's process and when it ends.
	Info() Info
	// Dial connects to a host's SSH server.
	Dial(ctx context.Context, host string) (net.Conn, error)
	// Run does a command, one at a time. Its streams are somebody else's. It returns the exit code.
	Run(ctx context.Context, r Run, stdout, stderr *os.File) int
}

// Keeper answers for an emulation on the socket of its name.
type Keeper struct {
	name   string
	ends   time.Time // set by Serve
	lock   *os.File
	socket *net.UnixListener

	running sync.Mutex // held while something runs
	mu      sync.Mutex
	now     string // what runs; "": nothing

	downs []*net.UnixConn // who waits for the end
}

// Keep takes a name and its socket; nobody is answered before Serve. An emulation that has the name already is an error
// that wraps ErrTaken.
func Keep(name string) (*Keeper, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	path, err := dir()
	if err != nil {
		return nil, err
	}
	lock, err := hold(path, name)
	if err != nil {
		return nil, err
	}
	remove(path, name) // what a keeper left that was killed
	if err := os.Mkdir(filepath.Join(path, name), 0o700); err != nil {
		lock.Close()
		return nil, err
	}
	socket, err := at(name, func(path string) (*net.UnixListener, error) {
		return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	})
	if err != nil {
		lock.Close()
		return nil, err
	}
	socket.SetUnlinkOnClose(false) // its path is a number of then
	return &Keeper{name: name, lock: lock, socket: socket}, nil
}

// Emulation is what is kept, as others see it.
func (k *Keeper) Emulation() Emulation { return Emulation{k.name} }

// Leave leaves a file for others, until Close.
func (k *Keeper) Leave(file string, text []byte) error {
	path, err := k.Emulation().Path(file)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// Serve answers until somebody wants it down, so much time is over or ctx ends. Time that is over while a command runs waits
// for its end. The socket is closed when it returns; who wanted it down is told by Close.
func (k *Keeper) Serve(ctx context.Context, held Held, lasts time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.ends = time.Now().Add(lasts)
	over := time.AfterFunc(lasts, func() {
		k.running.Lock()
		defer k.running.Unlock()
		cancel()
	})
	defer over.Stop()
	defer context.AfterFunc(ctx, func() { k.socket.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	places, dials := make(chan struct{}, most+spare), make(chan struct{}, most)
	for {
		c, err := k.socket.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			if slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) }) {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			return fmt.Errorf("emulation %s: %w", k.name, err)
		}
		select {
		case places <- struct{}{}:
		default:
			_ = tell(c, answer{Error: full(most + spare).Error()})
			c.Close()
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			down, err := k.answer(ctx, c, held, dials)
			if err != nil {
				_ = tell(c, answer{Error: err.Error(), Busy: errors.Is(err, ErrBusy)})
			}
			if down {
				k.mu.Lock()
				k.downs = append(k.downs, c)
				k.mu.Unlock()
				cancel()
				return
			}
			c.Close()
		})
	}
}

// Close gives the name back, and tells those who wanted the emulation down that it is, or what went wrong.
func (k *Keeper) Close(err error) {
	if path, derr := dir(); derr == nil {
		remove(path, k.name)
	}
	var a answer
	if err != nil {
		a.Error = err.Error()
	}
	for _, c := range k.downs {
		_ = tell(c, a)
		c.Close()
	}
	k.socket.Close()
	k.lock.Close()
}

// tell sends an answer to who has a second to take it.
func tell(c *net.UnixConn, a answer) error {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	return json.NewEncoder(c).Encode(a)
}

// full is why there is no place for one connection more.
func full(n int) error { return fmt.Errorf("%d connections at once are as many as are kept", n) }

// answer does what one connection asks for, one to a host while there is a place of dials. The caller closes it, at once or,
// of one that wants the emulation down, when it is.
func (k *Keeper) answer(ctx context.Context, c *net.UnixConn, held Held, dials chan struct{}) (down bool, err error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	r, rest, files, err := receive(c)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return false, err
	}
	switch {
	case r.Info:
		info := held.Info()
		info.Name, info.Ends = k.name, k.ends
		k.mu.Lock()
		info.Running = k.now
		k.mu.Unlock()
		return false, tell(c, answer{Info: &info})
	case r.Dial != "":
		select {
		case dials <- struct{}{}:
			defer func() { <-dials }()
		default:
			return false, full(most)
		}
		there, err := held.Dial(ctx, r.Dial)
		if err != nil {
			return false, err
		}
		defer there.Close()
		if err := tell(c, answer{}); err != nil {
			return false, nil
		}
		_ = c.SetDeadline(time.Time{})
		pass(ctx, &conn{c, c, rest}, there)
		return false, nil
	case r.Run != nil:
		if len(files) != 2 {
			return false, errors.New("a command wants stdout and stderr")
		}
		if now, ok := k.begin(cmp.Or(r.Run.What, "something")); !ok {
			return false, fmt.Errorf("%w: %s", ErrBusy, now)
		}
		defer k.end()
		if err := tell(c, answer{}); err != nil {
			return false, nil
		}
		_ = c.SetDeadline(time.Time{})
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { // not waited for: it ends when the connection is closed
			_, _ = io.Copy(io.Discard, rest)
			cancel()
		}()
		exit := held.Run(ctx, *r.Run, files[0], files[1])
		return false, tell(c, answer{Exit: exit})
	case r.Down:
		_ = c.SetDeadline(time.Time{})
		return true, nil
	}
	return false, errors.New("a request for nothing")
}

// passing are the errors of a socket that may be over a moment later.
var passing = []error{unix.EMFILE, unix.ENFILE, unix.ECONNABORTED, unix.ENOBUFS, unix.ENOMEM}

// begin says that something runs now; not ok, with what does, if something does.
func (k *Keeper) begin(what string) (now string, ok bool) {
	k.mu.Lock()
	if now = k.now; now == "" {
		k.now = what
	}
	k.mu.Unlock()
	if now != "" {
		return now, false
	}
	k.running.Lock()
	return "", true
}

func (k *Keeper) end() {
	k.running.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = ""
}

// receive reads a connection's request, and the files that came with it.
func receive(c *net.UnixConn) (r request, rest *bufio.Reader, files []*os.File, err error) {
	in := &rights{c: c}
	rest = bufio.NewReader(in)
	line, err := bounded.ReadLine(rest, bounded.Config)
	for _, fd := range in.fds {
		files = append(files, os.NewFile(uintptr(fd), "stream"))
	}
	if err != nil {
		return r, rest, files, fmt.Errorf("read the request: %w", err)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, rest, files, fmt.Errorf("read the request: %w", err)
	}
	return r, rest, files, nil
}

// rights reads a connection and keeps descriptors that come with what is read: two at most, others are closed.
type rights struct {
	c   *net.UnixConn
	fds []int
}

func (r *rights) Read(p []byte) (int, error) {
	if len(r.fds) > 0 {
		return r.c.Read(p) // what comes with that is dropped by the kernel
	}
	oob := make([]byte, unix.CmsgSpace(4*8))
	n, got, _, _, err := r.c.ReadMsgUnix(p, oob)
	n, got = max(n, 0), max(got, 0) // of a connection that was reset they are below 0
	if messages, perr := unix.ParseSocketControlMessage(oob[:got]); perr == nil {
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			for _, fd := range fds {
				if len(r.fds) == 2 {
					unix.Close(fd)
					continue
				}
				unix.CloseOnExec(fd)
				r.fds = append(r.fds, fd)
			}
		}
	}
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// pass passes bytes both ways until both have ended, or ctx.
func pass(ctx context.Context, a *conn, b net.Conn) {
	defer context.AfterFunc(ctx, func() {
		a.Close()
		b.Close()
	})()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(b, a)
		if w, ok := b.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
	})
	both.Go(func() {
		_, _ = io.Copy(a, b)
		_ = a.CloseWrite()
	})
	both.Wait()
}
