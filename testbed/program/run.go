package program

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

// Hosts is where programs run: testbed/remote.Testbed.
type Hosts interface {
	Client(host string) (hosts.Host, error)
	// Spawn starts a program that ends when its stdin is closed or whoever started it is gone.
	Spawn(ctx context.Context, host, name string, argv, env []string, stderr io.Writer) (*hosts.Process, error)
}

// Command is one process of a program.
type Command struct {
	Name   string // which its output is kept as: "A.h1-h5.client"
	Host   string
	Server bool   // started first, and ended when the clients have
	Part   string // what its figures are about, such as "h1->h5"; empty: all of the program
	Argv   []string
	Env    []string // "NAME=value", over what the host gives
	// Listen is the TCP port of a server: it is ready once something listens there. 0: it is
	// ready when it runs.
	Listen int
	// File is the name of a file that the program writes into Dir, which stands in Argv for a
	// directory made for this process alone.
	File string
}

// Dir stands in arguments for a directory on the host that is the process's own.
const Dir = "{dir}"

// Output is what a process left behind.
type Output struct {
	Command
	Stdout, Stderr []byte
	Written        []byte // of Command.File
	Err            error  // how it ended, if not well
}

// maxOutput is how much is kept of what all processes of a Run say, bytes.
const maxOutput = 64 << 20

// errOutput is that they say more, which ends the Run.
var errOutput = fmt.Errorf("more than %d MiB of output, of all processes together", maxOutput>>20)

// buffer keeps what a stream says while there is room. It grows by parts, and moves nothing of what it has.
type buffer struct {
	room *atomic.Int64 // bytes, for all processes
	full func()        // there is none

	mu   sync.Mutex
	said [][]byte
	size int
}

// The first part of a buffer and its largest ones, bytes. In between each one is as long as all before it.
const (
	leastPart = 4 << 10
	mostPart  = 1 << 20
)

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.room.Add(-int64(len(p))) < 0 {
		b.full()
		return len(p), nil
	}
	for rest := p; len(rest) > 0; {
		last := len(b.said) - 1
		if last < 0 || len(b.said[last]) == cap(b.said[last]) {
			b.said = append(b.said, make([]byte, 0, min(max(b.size, leastPart), mostPart)))
			last++
		}
		n := min(len(rest), cap(b.said[last])-len(b.said[last]))
		b.said[last] = append(b.said[last], rest[:n]...)
		b.size, rest = b.size+n, rest[n:]
	}
	return len(p), nil
}

// bytes is what was said until now. What is said later goes behind it, and changes nothing of it. The parts become one.
func (b *buffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch len(b.said) {
	case 0:
		return nil
	case 1:
		return slices.Clip(b.said[0])
	}
	all := make([]byte, 0, b.size)
	for i, part := range b.said {
		all = append(all, part...)
		b.said[i] = nil
	}
	b.said = [][]byte{all}
	return all
}

// linger is how long servers may take to end after their clients.
const linger = 5 * time.Second

// Options bound a Run.
type Options struct {
	Ready time.Duration // for servers to listen; 0: 10 s
	Limit time.Duration // for clients to end; 0: no limit
}

// Run starts servers, waits until they listen, starts all clients together, waits for their
// end, and ends what is left. Outputs are in the order of servers, then clients, also with an
// error: the first client or server that did not end well ends all others.
//
// A port on which something listens already is an error: it would be another server that
// answers.
func Run(ctx context.Context, hosts Hosts, servers, clients []Command, o Options) (_ []Output, err error) {
	o.Ready = cmp.Or(o.Ready, 10*time.Second)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	procs := make([]*process, 0, len(servers)+len(clients))
	defer func() {
		var ending sync.WaitGroup
		for _, p := range procs { // side by side: a host that is stuck takes its time
			ending.Go(p.close)
		}
		ending.Wait()
	}()
	outputs := func() []Output {
		out := make([]Output, len(procs))
		size := 0
		for i, p := range procs {
			out[i] = p.output()
			size += len(out[i].Stdout) + len(out[i].Stderr)
		}
		if size > maxOutput/4 { // the parts of it, which would otherwise stay until there is as much again of other garbage
			runtime.GC()
		}
		return out
	}
	var room atomic.Int64
	room.Store(maxOutput)
	start := func(ctx context.Context, cmds []Command) error {
		first := len(procs)
		procs = append(procs, make([]*process, len(cmds))...)
		for i := range cmds {
			p := &process{cmd: cmds[i]}
			full := func() { cancel(p.errorf("%w", errOutput)) }
			p.out.room, p.diag.room, p.out.full, p.diag.full = &room, &room, full, full
			procs[first+i] = p
		}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(64)
		for _, p := range procs[first:] {
			g.Go(func() error { return p.prepare(ctx, hosts) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		// Directories are made and ports looked at before: here only starting takes time.
		g, _ = errgroup.WithContext(ctx)
		for _, p := range procs[first:] {
			g.Go(func() error { return p.start(hosts) })
		}
		return g.Wait()
	}
	if err := start(ctx, servers); err != nil {
		return outputs(), err
	}
	g, rctx := errgroup.WithContext(ctx)
	for _, p := range procs {
		g.Go(func() error { return p.ready(rctx, o.Ready) })
	}
	if err := g.Wait(); err != nil {
		return outputs(), err
	}
	if err := start(ctx, clients); err != nil {
		return outputs(), err
	}
	if o.Limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("not done after %v", o.Limit))
		defer stop()
	}
	failed := make(chan error, len(servers)) // of servers: a client may wait for one for ever
	for _, p := range procs[:len(servers)] {
		go func() {
			if <-p.over; p.err != nil {
				failed <- p.err
			}
		}()
	}
	ended := make(chan *process)
	for _, p := range procs[len(servers):] {
		go func() {
			<-p.over
			select {
			case ended <- p:
			case <-ctx.Done():
			}
		}()
	}
	for range clients {
		select {
		case p := <-ended:
			if p.err != nil {
				err = errors.Join(err, p.err)
				return outputs(), err
			}
		case err := <-failed:
			return outputs(), err
		case <-ctx.Done():
			return outputs(), fmt.Errorf("%s: %w", waitingFor(procs[len(servers):]), context.Cause(ctx))
		}
	}
	wctx, stop := context.WithTimeout(ctx, linger)
	defer stop()
	for _, p := range procs[:len(servers)] {
		select { // a one-off server ends with its client
		case <-p.over:
			err = errors.Join(err, p.err)
		case <-wctx.Done():
		}
	}
	for _, p := range procs {
		if ferr := p.fetch(ctx); err == nil {
			err = ferr
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, errOutput) { // with the last of what one said
		err = cause
	}
	return outputs(), err
}

// waitingFor names processes that have not ended.
func waitingFor(procs []*process) string {
	var names []string
	for _, p := range procs {
		select {
		case <-p.over:
		default:
			names = append(names, p.cmd.Name)
		}
	}
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("%d more", len(names)-3))
	}
	return strings.Join(names, ", ")
}

// process is a command that runs.
type process struct {
	cmd    Command
	client hosts.Host
	dir    string
	proc   *hosts.Process
	out    buffer
	diag   buffer
	file   []byte
	over   chan struct{} // closed when it has ended and err says how
	err    error
}

// redacted is an error with words of a program's.
type redacted struct{ error }

func (e redacted) Error() string { return string(Redact([]byte(e.error.Error()))) }
func (e redacted) Unwrap() error { return e.error }

func (p *process) errorf(format string, args ...any) error {
	return blame.OnHost(p.cmd.Name, p.cmd.Host, fmt.Errorf(format, args...))
}

// prepare does what takes time before the start.
func (p *process) prepare(ctx context.Context, hosts Hosts) (err error) {
	if p.client, err = hosts.Client(p.cmd.Host); err != nil {
		return err
	}
	if p.cmd.Listen != 0 {
		taken, err := listens(ctx, p.client, p.cmd.Listen)
		if err != nil {
			return p.errorf("look whether port %d is free: %w", p.cmd.Listen, err)
		}
		if taken {
			return p.errorf("port %d is taken: something listens on it already", p.cmd.Listen)
		}
	}
	if p.cmd.File == "" {
		return nil
	}
	out, err := p.client.Run(ctx, []string{"mktemp", "-d", "/tmp/inabench-XXXXXXXX"}, nil)
	if err != nil {
		return p.errorf("%w", err)
	}
	p.dir = strings.TrimSpace(string(out.Stdout))
	if !strings.HasPrefix(p.dir, "/tmp/inabench-") {
		return p.errorf("mktemp made %q", p.dir)
	}
	return nil
}

func (p *process) start(hosts Hosts) (err error) {
	argv := make([]string, len(p.cmd.Argv))
	for i, a := range p.cmd.Argv {
		argv[i] = strings.ReplaceAll(a, Dir, p.dir)
	}
	// It ends by close, which gives it time; a context would not.
	p.proc, err = hosts.Spawn(context.Background(), p.cmd.Host, p.cmd.Name, argv, p.cmd.Env, &p.diag)
	if err != nil {
		return p.errorf("%w", err)
	}
	p.over = make(chan struct{})
	go func() {
		defer close(p.over)
		_, _ = io.Copy(&p.out, p.proc.Stdout)
		if err := p.proc.Wait(); err != nil {
			p.err = redacted{fmt.Errorf("%s: %w%s", p.cmd.Name, err, complaint(p.out.bytes()))}
		}
	}()
	return nil
}

// ready returns when a server listens, or has ended, or does neither for too long.
func (p *process) ready(ctx context.Context, limit time.Duration) error {
	if p.cmd.Listen == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it does not listen on port %d after %v", p.cmd.Listen, limit))
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		up, err := listens(ctx, p.client, p.cmd.Listen)
		switch {
		case ctx.Err() != nil:
			return p.errorf("%w", context.Cause(ctx))
		case err != nil:
			return p.errorf("%w", err)
		case up:
			return nil
		}
		select {
		case <-p.over:
			if p.err != nil {
				return p.err
			}
			return p.errorf("%w: it ended before it listened on port %d: %.200s", ErrFailed, p.cmd.Listen, p.out.bytes())
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// listens reports whether something on a host listens on a TCP port, by what the kernel says.
func listens(ctx context.Context, c hosts.Host, port int) (bool, error) {
	files := c.ReadFilesOf(ctx, bounded.Config, "/proc/net/tcp", "/proc/net/tcp6")
	for i, f := range files {
		if f.Err != nil && (i == 0 || !errors.Is(f.Err, fs.ErrNotExist)) {
			return false, f.Err
		}
		if listening(f.Data, port) {
			return true, nil
		}
	}
	return false, nil
}

// listening looks for a listening socket (state 0A) in a /proc/net/tcp.
func listening(table []byte, port int) bool {
	for line := range bytes.Lines(table) {
		f := bytes.Fields(line)
		if len(f) < 4 || string(f[3]) != "0A" {
			continue
		}
		_, hex, ok := bytes.Cut(f[1], []byte(":"))
		if n, err := strconv.ParseUint(string(hex), 16, 16); ok && err == nil && int(n) == port {
			return true
		}
	}
	return false
}

// fetch reads the file that the process wrote.
func (p *process) fetch(ctx context.Context) error {
	if p.dir == "" {
		return nil
	}
	name := path.Join(p.dir, p.cmd.File)
	got := p.client.ReadFilesOf(ctx, bounded.Config, name, name+".1")
	if got[0].Err != nil {
		if got[1].Err == nil { // nccl-tests does not overwrite
			return p.errorf("%w: it wrote %s.1 in place of %s, which was there", ErrOutput, p.cmd.File, p.cmd.File)
		}
		return p.errorf("%w: it wrote no %s: %w", ErrOutput, p.cmd.File, got[0].Err)
	}
	p.file = got[0].Data
	return nil
}

func (p *process) output() Output {
	o := Output{Command: p.cmd, Stdout: p.out.bytes(), Stderr: p.diag.bytes(), Written: p.file}
	if p.over != nil {
		select {
		case <-p.over:
			o.Err = p.err
		default:
			o.Err = p.errorf("it was ended")
		}
	}
	return o
}

// close ends the process and removes its directory.
func (p *process) close() {
	if p.over != nil {
		_ = p.proc.Stdin.Close()
		_ = p.proc.Close()
		<-p.over
	}
	if p.dir != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = p.client.Run(ctx, []string{"rm", "-r", "-f", "--", p.dir}, nil)
	}
}
