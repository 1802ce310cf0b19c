package collectors

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/inabench/inabench/testbed/ssh"
)

// fileReader reads the same small files of a host again and again. It keeps one
// shell there, which answers each line on its stdin with all the files: one round
// trip and one fork a reading, where a session for each would cost a login's worth
// of messages and lines in the host's log.
type fileReader struct {
	client *ssh.Client
	files  []string

	busy chan struct{} // holds a token while a reading is under way
	p    *ssh.Process  // the shell; nil: none yet, or it broke. Owned by who holds the token.
	r    *bufio.Reader
}

func newFileReader(client *ssh.Client, files []string) *fileReader {
	return &fileReader{client: client, files: files, busy: make(chan struct{}, 1)}
}

// answerLoop prints "file:line" for every line of every file that can be read, and an
// empty line after the last.
const answerLoop = `while read -r _; do grep -Hs '' "$@"; echo; done`

// line is one line of a file.
type line struct{ file, text string }

var errStillReading = errors.New("the reading before has not come back yet")

// read reads the files once; those that cannot be read have no lines. When ctx ends
// first, the reading is left to finish by itself and its result is dropped.
func (f *fileReader) read(ctx context.Context) ([]line, error) {
	select {
	case f.busy <- struct{}{}:
	default:
		return nil, errStillReading
	}
	type result struct {
		lines []line
		err   error
	}
	done := make(chan result, 1)
	go func() {
		lines, err := f.exchange(context.WithoutCancel(ctx))
		<-f.busy
		done <- result{lines, err}
	}()
	select {
	case r := <-done:
		return r.lines, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (f *fileReader) exchange(ctx context.Context) (lines []line, err error) {
	if f.p == nil {
		argv := append([]string{"/bin/sh", "-c", answerLoop, "inabench-collector"}, f.files...)
		if f.p, err = f.client.Start(ctx, argv); err != nil {
			return nil, err
		}
		f.r = bufio.NewReader(f.p.Stdout)
	}
	if _, err = f.p.Stdin.Write([]byte("\n")); err == nil {
		for {
			var text string
			if text, err = f.r.ReadString('\n'); err != nil || text == "\n" {
				break
			}
			if file, text, ok := strings.Cut(strings.TrimSuffix(text, "\n"), ":"); ok {
				lines = append(lines, line{file, text})
			}
		}
	}
	if err != nil {
		p := f.p
		f.p = nil
		p.Close()
		if ended := p.Wait(); ended != nil {
			return nil, ended
		}
		return nil, fmt.Errorf("host %s: the reading shell ended", f.client)
	}
	return lines, nil
}

// close ends the shell, after a reading that is under way.
func (f *fileReader) close() {
	f.busy <- struct{}{}
	defer func() { <-f.busy }()
	if f.p != nil {
		f.p.Stdin.Close()
		f.p.Close()
		f.p = nil
	}
}
