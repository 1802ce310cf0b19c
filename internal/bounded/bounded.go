// Package bounded reads bytes that others produce: what hosts, switches, programs and files of
// other users say is never kept beyond a size, and never waited for beyond a time.
//
// Whoever reads such bytes uses these functions instead of io.ReadAll, os.ReadFile, bufio.Scanner
// and the like, which grow with what they are given, and of os.Open and os.OpenFile, which wait for the other
// end of a FIFO. A test of this package looks through the whole module, by types, for readers and openers that
// do not.
package bounded

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sizes for what is read, bytes.
const (
	Line   = 1 << 20  // of a protocol of lines
	Small  = 64 << 10 // a file of facts: a lease, a file of /proc, a pid
	Config = 16 << 20 // a file that people or programs write: a configuration, a specification, a log's end
)

// ErrTooLarge is wrapped where there is more than may be.
var ErrTooLarge = errors.New("too large")

// ErrIrregular is wrapped where a file is none of bytes: a FIFO, a device, a directory, a socket.
var ErrIrregular = errors.New("not a regular file")

// Regular is nil for the mode of a regular file, and otherwise an ErrIrregular that says what there is in
// place of one.
func Regular(mode fs.FileMode) error {
	if mode.IsRegular() {
		return nil
	}
	return irregular(mode.Type())
}

// Own is an error, which wraps fs.ErrPermission, for a file of another user, or one that everybody may write.
func Own(st fs.FileInfo) error {
	switch of, ok := st.Sys().(*syscall.Stat_t); {
	case ok && int(of.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to another user (%d): %w", of.Uid, fs.ErrPermission)
	case st.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("everybody may write it: %w", fs.ErrPermission)
	}
	return nil
}

type irregular fs.FileMode

func (m irregular) Error() string {
	switch fs.FileMode(m) {
	case fs.ModeDir:
		return "is a directory"
	case fs.ModeNamedPipe:
		return "is a FIFO, " + ErrIrregular.Error()
	case fs.ModeSymlink:
		return "is a link, " + ErrIrregular.Error()
	}
	return ErrIrregular.Error()
}

func (m irregular) Is(target error) bool { return target == ErrIrregular }

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: more than %s", ErrTooLarge, size(limit))
}

func size(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// ReadAll reads a reader to its end, which must come within limit bytes. Of one that goes on the
// first limit bytes are returned, with an error that wraps ErrTooLarge.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(b)) > limit {
		return b[:limit], tooLarge(limit)
	}
	return b, err
}

// ReadFile reads a file of at most limit bytes. It never waits for a FIFO's writer, and reads no
// device: the error wraps ErrIrregular.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: tooLarge(limit)}
	}
	b, err := ReadAll(f, limit)
	if errors.Is(err, ErrTooLarge) {
		err = &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return b, err
}

// Open opens a regular file for reading. What it is is looked at after it was opened, without
// waiting for anybody, so that nobody can put another in its place between the two.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenOwn is Open without following a link: for a directory where others may put one.
func OpenOwn(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0) }

// OpenFile is os.OpenFile for a regular file, or one that is made. It waits for nobody at the other end of a FIFO: the error
// wraps ErrIrregular, as that of a link does where flags have unix.O_NOFOLLOW.
func OpenFile(path string, flags int, perm fs.FileMode) (*os.File, error) {
	op := "open"
	if flags&unix.O_ACCMODE == os.O_RDONLY {
		op = "read"
	}
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, perm)
	if errors.Is(err, unix.ENXIO) { // a FIFO that nobody reads, or a socket
		return nil, &fs.PathError{Op: op, Path: path, Err: ErrIrregular}
	}
	if errors.Is(err, unix.ELOOP) && flags&unix.O_NOFOLLOW != 0 {
		err = &fs.PathError{Op: "open", Path: path, Err: Regular(fs.ModeSymlink)}
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		if irregular := Regular(st.Mode()); irregular != nil {
			err = &fs.PathError{Op: op, Path: path, Err: irregular}
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Lines are the lines of a reader, without their ends, each of at most limit bytes. The last pair
// has the error that ended them, if one did; a line that is longer is one that wraps ErrTooLarge. A
// line is good until the next.
func Lines(r io.Reader, limit int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in := bufio.NewScanner(r)
		in.Buffer(make([]byte, 0, min(limit+2, 64<<10)), limit+2) // with its end
		var err error
		for err == nil && in.Scan() {
			if len(in.Bytes()) > limit {
				err = bufio.ErrTooLong
			} else if !yield(in.Bytes(), nil) {
				return
			}
		}
		if err = cmp.Or(err, in.Err()); errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is %w", tooLarge(int64(limit)))
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// DecodeOnly reads the JSON document at the beginning of text, of v's keys and no others, as they are written, each once. The
// rest is what follows it; empty: nothing but blanks.
func DecodeOnly(text []byte, v any) (rest []byte, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return nil, err
	}
	// The decoder takes keys in any case, and the last of several.
	if err := keysOnce(json.NewDecoder(bytes.NewReader(text)), reflect.TypeOf(v)); err != nil {
		return nil, err
	}
	if rest = text[dec.InputOffset():]; len(bytes.TrimSpace(rest)) == 0 {
		return nil, nil
	}
	return rest, nil
}

// keysOnce reads a value that was decoded into one of type t, and is an error of a key of an object that is there twice, or that
// t has in another case. Without a type, of which no value was made, keys may be any.
func keysOnce(dec *json.Decoder, t reflect.Type) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	token, err := dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('['):
		var of reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			of = t.Elem()
		}
		for dec.More() {
			if err := keysOnce(dec, of); err != nil {
				return err
			}
		}
	case json.Delim('{'):
		seen := map[string]bool{}
		for dec.More() {
			token, err := dec.Token()
			if err != nil {
				return err
			}
			key := token.(string)
			if seen[key] {
				return fmt.Errorf("json: key %q twice in an object", key)
			}
			seen[key] = true
			of, err := typeOfKey(t, key)
			if err != nil {
				return err
			}
			if err := keysOnce(dec, of); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = dec.Token() // the end of it
	return err
}

// typeOfKey is the type of a key's values in objects that t is of.
func typeOfKey(t reflect.Type, key string) (reflect.Type, error) {
	switch {
	case t == nil:
		return nil, nil
	case t.Kind() == reflect.Map:
		return t.Elem(), nil
	case t.Kind() != reflect.Struct:
		return nil, nil
	}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); key == cmp.Or(name, f.Name) {
			return f.Type, nil
		}
	}
	return nil, fmt.Errorf("json: unknown field %q", key)
}

// Until is a reader that ctx ends: its next Read fails with ctx's cause. A Read that waits goes on
// waiting, so this is for readers that give a part at a time.
func Until(ctx context.Context, r io.Reader) io.Reader { return until{ctx, r} }

type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// ReadLine is r.ReadBytes('\n') of a line of at most limit bytes, without its end; of a longer one the
// error wraps ErrTooLarge, and some of it may still be to be read.
func ReadLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit+1 || len(line)+len(part) > limit && err != nil {
			return line, fmt.Errorf("a line is %w", tooLarge(int64(limit)))
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Output runs a command and returns what it writes to stdout, at most limit bytes: one that writes
// more is ended, and the error wraps ErrTooLarge. As with Cmd.Output, an *exec.ExitError has what it
// wrote to stderr, the beginning of it, unless cmd.Stderr is somebody's.
func Output(cmd *exec.Cmd, limit int64) ([]byte, error) {
	out, diag := NewPrefix(limit), &Prefix{limit: Small}
	cmd.Stdout = out
	if cmd.Stderr == nil {
		cmd.Stderr = diag
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case out.over:
		err = out.full
	case errors.As(err, &exit):
		exit.Stderr = diag.b
	}
	return out.b, err
}

// Prefix keeps the beginning of what is written to it. With full it takes no more then, and otherwise
// forgets it.
type Prefix struct {
	b     []byte
	limit int64
	full  error
	over  bool
}

// NewPrefix keeps at most limit bytes; a Write of more fails with an error that wraps ErrTooLarge.
func NewPrefix(limit int64) *Prefix { return &Prefix{limit: limit, full: tooLarge(limit)} }

// Bytes are what is kept.
func (p *Prefix) Bytes() []byte { return p.b }

// Over reports whether more was written than is kept.
func (p *Prefix) Over() bool { return p.over }

// Write implements io.Writer.
func (p *Prefix) Write(b []byte) (int, error) {
	room := int(p.limit) - len(p.b)
	if len(b) <= room {
		p.b = append(p.b, b...)
		return len(b), nil
	}
	p.over = true
	p.b = append(p.b, b[:room]...)
	return len(b), p.full
}
