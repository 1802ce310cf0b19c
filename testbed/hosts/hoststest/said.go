package hoststest

import (
	"bytes"
	"context"

	"github.com/inabench/inabench/testbed/hosts"
)

// Said is a process that has said a text, and has ended well.
func Said(text []byte) *hosts.Process {
	return &hosts.Process{Stdout: bytes.NewReader(text), Running: over{}}
}

// over is the end of a process that has ended well.
type over struct{}

func (over) Done() <-chan struct{}      { return nil }
func (over) Wait() error                { return nil }
func (over) Kill(context.Context) error { return nil }
func (over) Close() error               { return nil }
