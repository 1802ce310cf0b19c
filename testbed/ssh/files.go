package ssh

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

// Paths on hosts are slash separated; relative ones start in the user's home.

// session is an SFTP session.
type session struct {
	*sftp.Client
	channel *ssh.Session
	heard   meter
	users   atomic.Int64 // who wait for it
}

// leave ends the session, also one whose server does not answer any more.
func (s *session) leave() {
	s.channel.Close()
	s.Close()
}

// sftp is the connection's one SFTP session, opened when first needed.
func (c *Client) sftp() (*session, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	if files := c.files.Load(); files != nil {
		return files, nil
	}
	s, err := c.conn.NewSession()
	if err != nil {
		return nil, err
	}
	c.greeting.Store(s)
	defer c.greeting.Store(nil)
	w, err := s.StdinPipe()
	if err == nil {
		var r io.Reader
		if r, err = s.StdoutPipe(); err == nil {
			if err = s.RequestSubsystem("sftp"); err == nil {
				files := &session{channel: s}
				if files.Client, err = sftp.NewClientPipe(&answers{metered: metered{r, &files.heard}}, w, sftp.UseConcurrentWrites(true)); err == nil {
					c.files.Store(files)
					return files, nil
				}
			}
		}
	}
	s.Close()
	return nil, fmt.Errorf("sftp: %w (its server needs the subsystem sftp, and its users shells that say nothing of their own)", err)
}

// withFiles runs f with the SFTP session and says what it was doing if it fails. What ctx ends
// may be waiting for an answer that never comes, with the whole session: the next use opens another. So does
// what the server says nothing to for fileSilence times as long as the connection may be silent, and what is not over after
// twice that, whatever it says.
func (c *Client) withFiles(ctx context.Context, doing string, f func(*session) error) error {
	return c.withFilesOf(ctx, doing, 0, f)
}

// slowestFile is how fast a server must give a file, bytes per second: less is no answer.
const slowestFile = 64 << 10

// unknown is the size of what takes as long as it takes, with a server that says something now and then.
const unknown = -1

// withFilesOf is withFiles of so many bytes at most, which have their time besides.
func (c *Client) withFilesOf(ctx context.Context, doing string, size int64, f func(*session) error) error {
	if size != unknown {
		long := 2*fileSilence*c.patience() + time.Duration(size)*time.Second/slowestFile
		var over context.CancelFunc
		ctx, over = context.WithTimeoutCause(ctx, long, fmt.Errorf("it has not come to an end within %v", long))
		defer over()
	}
	var used atomic.Pointer[session]
	var turn sync.Mutex
	over := false // nobody waits any more
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go c.listen(ctx, &used, cancel)
	err := c.await(ctx, func() error {
		files, err := c.sftp()
		if err == nil {
			turn.Lock()
			if over {
				turn.Unlock()
				return context.Cause(ctx)
			}
			files.users.Add(1)
			used.Store(files)
			turn.Unlock()
			err = f(files)
		}
		var status *sftp.StatusError
		if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.As(err, &status) {
			return err // an answer, so the connection is well
		}
		if files != nil && files.heard.odd.Load() {
			err = errEmpty
		}
		c.forget(files)
		return c.failed(doing, err)
	})
	turn.Lock()
	over = true
	if files := used.Load(); files != nil {
		files.users.Add(-1)
	}
	turn.Unlock()
	if ctx.Err() != nil {
		c.forget(used.Load())
	}
	if err == nil || blame.Of(err) == (blame.Part{Kind: blame.KindHost, Node: c.String()}) {
		return err
	}
	return c.errorf("%s: %w", doing, err)
}

// fileSilence is for how many times a connection's patience a server of files may say nothing while it is asked: disks
// may be slower than networks.
const fileSilence = 4

// listen ends what waits for a server that says nothing any more.
func (c *Client) listen(ctx context.Context, used *atomic.Pointer[session], cancel context.CancelCauseFunc) {
	patience := fileSilence * c.patience()
	heard := int64(0)
	if files := c.files.Load(); files != nil {
		heard = files.heard.total.Load()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(patience):
		}
		now, files := int64(0), used.Load()
		if files != nil {
			now = files.heard.total.Load()
		}
		if now == heard {
			cancel(fmt.Errorf("no answer within %v", patience))
			if s := c.greeting.Load(); s != nil && files == nil { // others wait for it as well
				s.Close()
			}
			return
		}
		heard = now
	}
}

// forget has the next use open another session. Others may be using this one: it ends when nobody waits for it any more, or
// when its server says nothing.
func (c *Client) forget(files *session) {
	if files != nil && c.files.CompareAndSwap(files, nil) {
		c.leave(files)
	}
}

func (c *Client) leave(files *session) {
	heard := files.heard.total.Load()
	c.later(killGrace, func() {
		if files.users.Load() > 0 && files.heard.total.Load() != heard && c.Err() == nil {
			c.leave(files)
			return
		}
		files.leave()
	})
}

// maxListing bounds what an SFTP server says of one directory, bytes: some 30,000 names.
const maxListing = 4 << 20

// meter counts what a server says, for those who set it a limit.
type meter struct {
	total atomic.Int64 // bytes that the server has said
	odd   atomic.Bool  // it has said errEmpty

	mu     sync.Mutex
	limits map[*int64]context.CancelCauseFunc // what is left of each
}

// limit is a context that ends when the server has said n bytes more than what was asked for.
func (m *meter) limit(ctx context.Context, n int64) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limits == nil {
		m.limits = map[*int64]context.CancelCauseFunc{}
	}
	m.limits[&n] = cancel
	return ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.limits, &n)
		cancel(nil)
	}
}

func (m *meter) said(n int) {
	m.total.Add(int64(max(n, 0)))
	m.mu.Lock()
	defer m.mu.Unlock()
	for left, cancel := range m.limits {
		if *left -= int64(n); *left < 0 {
			cancel(bounded.ErrTooLarge)
		}
	}
}

// metered is a reader of all that a server says.
type metered struct {
	io.Reader
	meter *meter
}

func (m metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.meter.said(n)
	return n, err
}

// errEmpty is a server that has neither bytes nor an end for who reads.
var errEmpty = fmt.Errorf("its server has answered a read with no bytes: %w", io.ErrNoProgress)

// answers are all that a server says, as packets: the length of what follows, 4 bytes, its type, and for answers to reads
// the request's number and the length of the bytes, 4 each. One without bytes is the end of the session: package sftp would
// ask again, for ever.
type answers struct {
	metered
	head [13]byte
	at   int64 // within the packet
}

func (a *answers) Read(p []byte) (int, error) {
	n, err := a.metered.Read(p)
	for rest := p[:max(n, 0)]; len(rest) > 0; {
		if a.at < 4 || a.at < min(a.size(), int64(len(a.head))) {
			a.head[a.at], rest = rest[0], rest[1:]
			a.at++
			const data = 103 // SSH_FXP_DATA
			if a.at == int64(len(a.head)) && a.head[4] == data && binary.BigEndian.Uint32(a.head[9:]) == 0 {
				a.meter.odd.Store(true)
				return 0, errEmpty
			}
		} else {
			skip := min(a.size()-a.at, int64(len(rest)))
			a.at, rest = a.at+skip, rest[skip:]
		}
		if a.at >= 4 && a.at == a.size() {
			a.at = 0
		}
	}
	return n, err
}

// size is that of the packet whose length has been read.
func (a *answers) size() int64 { return 4 + int64(binary.BigEndian.Uint32(a.head[:])) }

// asked is a reader of a part of it, which is nobody's limit.
type asked metered

func (a asked) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	a.meter.said(-n)
	return n, err
}

// ReadFile reads a file whole, of at most bounded.Config bytes. Those of /proc, whose size is not known beforehand,
// can be read too. The more there may be, the longer it may take: 64 KiB per second at least.
func (c *Client) ReadFile(ctx context.Context, remote string) ([]byte, error) {
	data, _, err := c.read(ctx, remote, bounded.Config, false)
	return data, err
}

// ReadFilesOf implements hosts.Files. It takes little longer than one file does. For those of /proc bounded.Small is enough mostly.
func (c *Client) ReadFilesOf(ctx context.Context, limit int64, remote ...string) []hosts.File {
	out := make([]hosts.File, len(remote))
	var wg sync.WaitGroup
	for i, name := range remote {
		wg.Go(func() {
			out[i].Data, _, out[i].Err = c.read(ctx, name, limit, false)
		})
	}
	wg.Wait()
	return out
}

// chunk is how much of a file is asked for at a time, bytes: each costs a round trip.
const chunk = 16 << 10

// read is ReadFile of at most limit bytes; with small it is ReadSmall, of which a stamp is known.
func (c *Client) read(ctx context.Context, name string, limit int64, small bool) (data []byte, at hosts.Stamp, err error) {
	type content struct {
		data []byte
		at   hosts.Stamp
	}
	read := make(chan content, 1) // nobody may be waiting for it any more
	err = c.withFilesOf(ctx, "read "+name, limit, func(files *session) error {
		f, err := files.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		var in content
		if small { // what was opened, whatever has the name by now
			info, err := f.Stat()
			if err == nil {
				err = bounded.Regular(info.Mode())
			}
			if err != nil {
				return err
			}
			in.at = stampOf(info)
		}
		// Not io.Copy: it would ask for the size first.
		in.data, err = bounded.ReadAll(bufio.NewReaderSize(bounded.Until(ctx, asked{f, &files.heard}), chunk), limit)
		read <- in
		return err
	})
	if err != nil {
		return nil, hosts.Stamp{}, err
	}
	in := <-read
	return in.data, in.at, nil
}

// ReadSmall reads a file of at most bounded.Small bytes that others may have put there, and says whose it is: it must be a
// regular one, no link to another, or the error wraps bounded.ErrIrregular. Of one that cannot be read the stamp is
// there nevertheless.
func (c *Client) ReadSmall(ctx context.Context, name string) (data []byte, at hosts.Stamp, err error) {
	found := make(chan fs.FileInfo, 1)
	err = c.withFiles(ctx, "stat "+name, func(files *session) error {
		info, err := files.Lstat(name)
		if err == nil {
			err = bounded.Regular(info.Mode())
		}
		found <- info
		return err
	})
	if err != nil {
		return nil, hosts.Stamp{}, err
	}
	// Whoever puts a FIFO in its place between the two makes this wait, for as long as ctx lets it.
	was := stampOf(<-found)
	if data, at, err = c.read(ctx, name, bounded.Small, true); err != nil {
		return data, was, err
	}
	if at.UID != was.UID { // whoever put a link in its place has no file of its owner's
		return nil, was, c.errorf("read %s: %w: another's file was put in its place", name, bounded.ErrIrregular)
	}
	return data, at, nil
}

// Stat describes a file; an error wrapping fs.ErrNotExist says there is none.
func (c *Client) Stat(ctx context.Context, remote string) (fs.FileInfo, error) {
	var info fs.FileInfo
	err := c.withFiles(ctx, "stat "+remote, func(files *session) (err error) {
		info, err = files.Stat(remote)
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

// Remove implements hosts.Files. One that is not there is not an error.
func (c *Client) Remove(ctx context.Context, remote string, root bool) error {
	if root {
		if _, err := c.RunRoot(ctx, []string{"rm", "-f", "--", remote}, nil); err != nil {
			return c.errorf("remove %s: %w", remote, err)
		}
		return nil
	}
	err := c.withFiles(ctx, "remove "+remote, func(files *session) error { return files.Remove(remote) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Rename implements hosts.Files.
func (c *Client) Rename(ctx context.Context, old, name string) error {
	return c.withFiles(ctx, "rename "+old, func(files *session) error { return files.PosixRename(old, name) })
}

// Sum reads a file's size in bytes and its SHA-256 in hex where it lies, which
// costs no transfer; an error wrapping fs.ErrNotExist says there is none.
func (c *Client) Sum(ctx context.Context, remote string) (size int64, sum string, err error) {
	const script = `[ -f "$1" ] || exit 44; wc -c <"$1" && sha256sum <"$1"`
	out, err := c.Run(ctx, []string{"/bin/sh", "-c", script, "sh", remote}, nil)
	if out.Exit == 44 {
		return 0, "", c.errorf("sum %s: %w", remote, fs.ErrNotExist)
	}
	if err != nil {
		return 0, "", err
	}
	f := bytes.Fields(out.Stdout)
	if len(f) < 2 || len(f[1]) != 2*sha256.Size {
		return 0, "", c.errorf("sum %s: unexpected answer %q", remote, out.Stdout)
	}
	size, err = strconv.ParseInt(string(f[0]), 10, 64)
	if err != nil {
		return 0, "", c.errorf("sum %s: %w", remote, err)
	}
	return size, string(f[1]), nil
}

// Upload copies a local file to a host and makes its directory if need be. The
// file appears under its name complete or not at all, and replaces one that was
// there; a program that is running from the old one goes on with it.
func (c *Client) Upload(ctx context.Context, local, remote string, mode fs.FileMode) error {
	doing := fmt.Sprintf("upload %s to %s", local, remote)
	f, err := bounded.Open(local)
	if err != nil {
		return c.errorf("%s: %w", doing, err)
	}
	defer f.Close()
	return c.write(ctx, doing, f, remote, mode)
}

// write is Upload from a reader.
func (c *Client) write(ctx context.Context, doing string, r io.Reader, remote string, mode fs.FileMode) error {
	temp := remote + "." + rand.Text()[:8] + ".tmp"
	return c.withFilesOf(ctx, doing, unknown, func(files *session) (err error) {
		if err := files.MkdirAll(path.Dir(remote)); err != nil {
			return fmt.Errorf("make directory %s: %w", path.Dir(remote), err)
		}
		f, err := files.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				files.Remove(temp)
			}
		}()
		_, err = f.ReadFromWithConcurrency(bounded.Until(ctx, r), 64)
		// Who gave up has said that nothing is there, even if the text has come to its end since.
		if err = errors.Join(err, f.Chmod(mode), f.Close(), context.Cause(ctx)); err != nil {
			return err
		}
		return files.PosixRename(temp, remote)
	})
}
