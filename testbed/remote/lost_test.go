package remote

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/reach"
)

// mute is a host that was lost, and lets in again without giving any file.
type mute struct{ hosts.Host }

func (mute) Err() error {
	return &hosts.Error{Host: "h1", Kind: hosts.ErrLost, Err: errors.New("no answer to keepalives")}
}

func (mute) Close() error { return nil }

func (mute) ReadFilesOf(_ context.Context, _ int64, names ...string) []hosts.File {
	out := make([]hosts.File, len(names))
	for i := range out {
		out[i].Err = errors.New("its disk hangs")
	}
	return out
}

// toMute is the launcher of such hosts.
type toMute struct{}

func (toMute) Dial(context.Context, reach.Way) (hosts.Host, error) { return mute{}, nil }
func (toMute) Check([]reach.Way) error                             { return nil }

var addMute = sync.OnceFunc(func() { reach.Add("mute", func(reach.Options) reach.Launcher { return toMute{} }) })

// Of a host that lets in and does not answer it is said what it does not answer.
func TestLostHostThatLetsIn(t *testing.T) {
	addMute()
	inv := &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1", Launcher: "mute"}}}
	tb := &Testbed{opt: Options{Run: "run", Fan: 4, Patience: 100 * time.Millisecond}, inv: inv, hosts: map[string]hosts.Host{"h1": mute{}}}
	err := tb.investigate(t.Context(), "h1")
	if !errors.Is(err, hosts.ErrLost) || !strings.Contains(err.Error(), "it has not answered for another") || !strings.HasSuffix(err.Error(), ": its disk hangs") {
		t.Errorf("%v", err)
	}
}
