package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

// DefaultDir is where leases lie on a host, in the user's home. Where people log in as
// different users, an inventory names one directory for all, with mode 1777.
const DefaultDir = ".inabench"

// On is a directory on a host; a relative one is in the user's home.
func On(c hosts.Host, dir string) Files { return remote{c, dir} }

type remote struct {
	client hosts.Host
	dir    string
}

// answerTime bounds one use of the directory: who may write there may put a file there that makes
// the host's server wait for ever.
const answerTime = 10 * time.Second

func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %v", answerTime))
}

func (r remote) List(ctx context.Context) ([]string, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	names, err := r.client.ReadDir(ctx, r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

func (r remote) Read(ctx context.Context, name string) ([]byte, Stamp, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	return r.client.ReadSmall(ctx, path.Join(r.dir, name))
}

func (r remote) Create(ctx context.Context, name string, data []byte) (Stamp, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	return r.client.Create(ctx, path.Join(r.dir, name), data)
}

func (r remote) Rewrite(ctx context.Context, name string, data []byte) (Stamp, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	return r.client.Rewrite(ctx, path.Join(r.dir, name), data)
}

func (r remote) Link(ctx context.Context, old, name string) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return r.client.Link(ctx, path.Join(r.dir, old), path.Join(r.dir, name))
}

func (r remote) Remove(ctx context.Context, name string) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return r.client.Remove(ctx, path.Join(r.dir, name), false)
}

// Dir is a directory of this machine.
type Dir string

func (d Dir) file(name string) string { return filepath.Join(string(d), name) }

// List implements Files.
func (d Dir) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// Read implements Files.
func (d Dir) Read(_ context.Context, name string) ([]byte, Stamp, error) {
	f, err := bounded.OpenOwn(d.file(name))
	if errors.Is(err, fs.ErrPermission) {
		if info, lerr := os.Lstat(d.file(name)); lerr == nil {
			return nil, stampOf(info), err
		}
	}
	if err != nil {
		return nil, Stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, Stamp{}, err
	}
	data, err := bounded.ReadAll(f, bounded.Small)
	return data, stampOf(info), err
}

func stampOf(info fs.FileInfo) Stamp {
	s := Stamp{At: info.ModTime()}
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		s.UID = of.Uid
	}
	return s
}

// Create implements Files.
func (d Dir) Create(_ context.Context, name string, data []byte) (Stamp, error) {
	f, err := os.OpenFile(d.file(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(string(d), 0o755); err == nil {
			f, err = os.OpenFile(d.file(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		}
	}
	if err != nil {
		return Stamp{}, err
	}
	return fill(f, data)
}

// Rewrite implements Files.
func (d Dir) Rewrite(_ context.Context, name string, data []byte) (Stamp, error) {
	f, err := bounded.OpenFile(d.file(name), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return Stamp{}, err
	}
	there, err := bounded.ReadAll(f, int64(len(data)))
	if errors.Is(err, bounded.ErrTooLarge) || err == nil && !bytes.Equal(there, data) {
		err = fmt.Errorf("rewrite %s: %w", d.file(name), hosts.ErrChanged)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return Stamp{}, errors.Join(err, f.Close())
	}
	return fill(f, data)
}

func fill(f *os.File, data []byte) (at Stamp, err error) {
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil {
			at = stampOf(info)
		}
	}
	return at, errors.Join(err, f.Close())
}

// Link implements Files.
func (d Dir) Link(_ context.Context, old, name string) error {
	return os.Link(d.file(old), d.file(name))
}

// Remove implements Files.
func (d Dir) Remove(_ context.Context, name string) error {
	if err := os.Remove(d.file(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
