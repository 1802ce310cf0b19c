package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/reach"
)

// beside is a launcher: a host is a directory of this machine, its home, and what runs on it are
// processes of this machine. Of a scheduler or a container runtime it would have the same methods.
type beside struct{ o reach.Options }

func besides(o reach.Options) reach.Launcher { return beside{o} }

// Dial makes a host's home, below the cache of the user.
func (b beside) Dial(_ context.Context, w reach.Way) (hosts.Host, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(cache, "inabench-hosts", w.Name)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(context.Background())
	return &host{name: w.Name, home: home, ctx: ctx, end: end}, nil
}

// Check finds nothing: a directory can always be made.
func (beside) Check([]reach.Way) error { return nil }

// host is one. Its context ends with it.
type host struct {
	name, home string
	ctx        context.Context
	end        context.CancelCauseFunc
	running    sync.WaitGroup
}

var errClosed = errors.New("closed here")

func (h *host) String() string             { return h.name }
func (h *host) Local() (netip.Addr, error) { return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil }
func (h *host) Done() <-chan struct{}      { return h.ctx.Done() }
func (h *host) Sudo() bool                 { return false }

func (h *host) Err() error {
	if h.ctx.Err() == nil {
		return nil
	}
	return &hosts.Error{Host: h.name, Kind: hosts.ErrLost, Err: context.Cause(h.ctx)}
}

func (h *host) Close() error {
	h.end(errClosed)
	h.running.Wait()
	return nil
}

// ready is why nothing is to be done on the host any more, or by whom.
func (h *host) ready(ctx context.Context) error {
	if err := h.Err(); err != nil {
		return err
	}
	return hosts.Name(h.name, context.Cause(ctx))
}

// Programs.

func (h *host) Start(ctx context.Context, argv []string, stderr io.Writer) (*hosts.Process, error) {
	if err := h.ready(ctx); err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if filepath.Base(argv[0]) != argv[0] && !filepath.IsAbs(argv[0]) {
		cmd.Path = filepath.Join(h.home, argv[0])
	}
	cmd.Dir, cmd.Stderr = h.home, stderr
	cmd.Env = append(os.Environ(), "HOME="+h.home)
	p, err := hosts.Exec(ctx, h.name, cmd)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(h.ctx, func() { _ = p.Close() })
	h.running.Go(func() {
		<-p.Done()
		stop()
	})
	return p, nil
}

func (h *host) Run(ctx context.Context, argv []string, stdin io.Reader) (hosts.Output, error) {
	return hosts.Collect(ctx, h.name, h.Start, argv, stdin)
}

func (h *host) root() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return &hosts.Error{Host: h.name, Kind: hosts.ErrNotRoot, Err: errors.New("this program is not root's")}
}

func (h *host) StartRoot(ctx context.Context, argv []string, stderr io.Writer) (*hosts.Process, error) {
	if err := h.root(); err != nil {
		return nil, err
	}
	return h.Start(ctx, argv, stderr)
}

func (h *host) RunRoot(ctx context.Context, argv []string, stdin io.Reader) (hosts.Output, error) {
	if err := h.root(); err != nil {
		return hosts.Output{}, err
	}
	return h.Run(ctx, argv, stdin)
}

func (h *host) Interactive(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(argv) == 0 {
		argv = []string{"/bin/sh"}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = h.home, stdin, stdout, stderr
	var exit *exec.ExitError
	err := cmd.Run()
	if errors.As(err, &exit) {
		return &hosts.RunError{Host: h.name, Argv: argv, Exit: exit.ExitCode()}
	}
	return hosts.Name(h.name, err)
}

// Files.

// file does something with a file of the home.
func (h *host) file(ctx context.Context, name string, do func(path string) error) error {
	if err := h.ready(ctx); err != nil {
		return err
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(h.home, name)
	}
	return hosts.Name(h.name, do(name))
}

// Bounds on what is read, bytes.
const (
	small  = 64 << 10
	config = 16 << 20
)

// read reads at most so many bytes of a regular file.
func read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s: not a regular file", path))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", path, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

func (h *host) ReadFile(ctx context.Context, name string) (data []byte, err error) {
	err = h.file(ctx, name, func(path string) (err error) { data, err = read(path, config); return err })
	return data, err
}

func (h *host) ReadFilesOf(ctx context.Context, limit int64, names ...string) []hosts.File {
	out := make([]hosts.File, len(names))
	for i, name := range names {
		out[i].Err = h.file(ctx, name, func(path string) (err error) { out[i].Data, err = read(path, limit); return err })
	}
	return out
}

// stamp is that of a regular file, no link to one.
func stamp(path string) (hosts.Stamp, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return hosts.Stamp{}, err
	}
	if !info.Mode().IsRegular() {
		return hosts.Stamp{}, fmt.Errorf("%s: not a regular file", path)
	}
	return hosts.Stamp{At: info.ModTime(), UID: info.Sys().(*syscall.Stat_t).Uid}, nil
}

func (h *host) ReadSmall(ctx context.Context, name string) (data []byte, at hosts.Stamp, err error) {
	err = h.file(ctx, name, func(path string) (err error) {
		if at, err = stamp(path); err == nil {
			data, err = read(path, small)
		}
		return err
	})
	return data, at, err
}

func (h *host) ReadDir(ctx context.Context, dir string) (names []string, err error) {
	err = h.file(ctx, dir, func(path string) error {
		all, err := os.ReadDir(path)
		for _, e := range all {
			names = append(names, e.Name())
		}
		return err
	})
	return names, err
}

func (h *host) Stat(ctx context.Context, name string) (info fs.FileInfo, err error) {
	err = h.file(ctx, name, func(path string) (err error) { info, err = os.Stat(path); return err })
	return info, err
}

func (h *host) Sum(ctx context.Context, name string) (size int64, sum string, err error) {
	err = h.file(ctx, name, func(path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		digest := sha256.New()
		size, err = io.Copy(digest, f)
		sum = hex.EncodeToString(digest.Sum(nil))
		return err
	})
	return size, sum, err
}

func (h *host) Create(ctx context.Context, name string, data []byte) (at hosts.Stamp, err error) {
	err = h.file(ctx, name, func(path string) error {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
			at, err = stamp(path)
		}
		return err
	})
	return at, err
}

func (h *host) Rewrite(ctx context.Context, name string, data []byte) (at hosts.Stamp, err error) {
	err = h.file(ctx, name, func(path string) error {
		if _, err := stamp(path); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		old, err := io.ReadAll(io.LimitReader(f, int64(len(data))+1))
		if err == nil && !bytes.Equal(old, data) {
			err = hosts.ErrChanged
		}
		if err == nil {
			_, err = f.WriteAt(data, 0)
		}
		if err = errors.Join(err, f.Sync()); err == nil {
			at, err = stamp(path)
		}
		return err
	})
	return at, err
}

// whole gives a file its content, all at once.
func whole(path string, mode fs.FileMode, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func (h *host) WriteFile(ctx context.Context, name string, data []byte, mode fs.FileMode) error {
	return h.file(ctx, name, func(path string) error { return whole(path, mode, bytes.NewReader(data)) })
}

func (h *host) Replace(ctx context.Context, name string, data []byte, mode fs.FileMode, root bool) error {
	if root {
		if err := h.root(); err != nil {
			return err
		}
	}
	return h.WriteFile(ctx, name, data, mode)
}

func (h *host) Upload(ctx context.Context, local, name string, mode fs.FileMode) error {
	f, err := os.Open(local)
	if err != nil {
		return hosts.Name(h.name, err)
	}
	defer f.Close()
	return h.file(ctx, name, func(path string) error { return whole(path, mode, f) })
}

func (h *host) Rename(ctx context.Context, old, name string) error {
	return h.file(ctx, old, func(old string) error {
		return h.file(ctx, name, func(name string) error { return os.Rename(old, name) })
	})
}

func (h *host) Link(ctx context.Context, old, name string) error {
	return h.file(ctx, old, func(old string) error {
		return h.file(ctx, name, func(name string) error { return os.Link(old, name) })
	})
}

func (h *host) Remove(ctx context.Context, name string, root bool) error {
	if root {
		if err := h.root(); err != nil {
			return err
		}
	}
	return h.file(ctx, name, func(path string) error {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
