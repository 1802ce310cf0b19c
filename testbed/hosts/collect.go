package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// maxOutput bounds what Collect keeps of each stream, bytes.
const maxOutput = 16 << 20

// errFull is why a program was ended that said more than is kept.
var errFull = fmt.Errorf("more than %d MiB of output", maxOutput>>20)

// Collect is what Commands.Run promises, of a host by its name, by what starts a program there.
func Collect(ctx context.Context, host string, start func(context.Context, []string, io.Writer) (*Process, error), argv []string, stdin io.Reader) (Output, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	full := func() { cancel(errFull) }
	out, said := &limited{full: full}, &limited{full: full}
	p, err := start(ctx, argv, said)
	if err != nil {
		return Output{}, err
	}
	go func() {
		if stdin != nil {
			_, _ = io.Copy(p.Stdin, stdin) // a program need not read all of its input
		}
		p.Stdin.Close()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(out, p.Stdout)
	}()
	select {
	case <-read:
	case <-ctx.Done():
		_ = p.Close() // as the end of ctx does
		select {
		case <-p.Done():
		default: // the host is stuck
			return Output{}, Name(host, fmt.Errorf("%s: %w", Abbreviate(argv), context.Cause(ctx)))
		}
		select {
		case <-read:
		case <-time.After(inherited):
		}
	}
	err = p.Wait()
	if why := context.Cause(ctx); why != nil && (err != nil || why == errFull) { // what was cut off is no output, however it ended
		err = Name(host, fmt.Errorf("%s: %w", Abbreviate(argv), why))
	}
	o := Output{Stdout: out.take(), Stderr: said.take()}
	var failed *RunError
	if errors.As(err, &failed) {
		o.Exit = failed.Exit
	}
	return o, err
}

// limited is a buffer that calls full instead of growing past maxOutput.
type limited struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	full func()
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len()+len(p) > maxOutput {
		l.full()
		return len(p), nil
	}
	return l.buf.Write(p)
}

// take is what has come. Nothing more is kept.
func (l *limited) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.buf.Bytes()
	l.buf = bytes.Buffer{}
	return all
}
