package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results/human"
)

// emulating is who runs an emulation on this machine, as the file says that it holds locked.
type emulating struct {
	Experiment string    `json:"experiment"`
	Since      time.Time `json:"since"`
}

func (e emulating) String() string {
	s := "another emulation"
	if e.Experiment != "" {
		s += " (" + e.Experiment + ")"
	}
	if !e.Since.IsZero() {
		s += ", for " + human.Elapsed(time.Since(e.Since).Round(time.Second))
	}
	return s
}

// takeTurn marks this machine as one that emulates, until the returned function is called. Where another run of this user
// does already, it waits for that, or says what to expect of two at once. It is a courtesy: where no file can be kept,
// nothing is marked.
func takeTurn(ctx context.Context, experiment string, wait time.Duration, say func(string)) (done func(), err error) {
	done = func() {}
	dir, err := os.UserCacheDir()
	if err != nil {
		return done, nil
	}
	path := filepath.Join(dir, "inabench", "emulating")
	_ = os.MkdirAll(filepath.Dir(path), 0o777)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return done, nil
	}
	busy := func() bool {
		return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	}
	if busy() {
		var other emulating
		if text, err := bounded.ReadAll(f, bounded.Small); err == nil {
			_ = json.Unmarshal(text, &other)
		}
		if wait <= 0 {
			say(fmt.Sprintf("there is %v on this machine: both will be late, and may be undecided; --wait 10m waits for its end", other))
			return done, f.Close()
		}
		say(fmt.Sprintf("waiting for %v", other))
		timeout := time.NewTimer(wait)
		defer timeout.Stop()
		for busy() {
			select {
			case <-ctx.Done():
				return done, errors.Join(context.Cause(ctx), f.Close())
			case <-timeout.C:
				return done, errors.Join(inputError{fmt.Errorf("%v has not ended within %v", other, wait), "wait for longer, or leave --wait out and run beside it"}, f.Close())
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	text, err := json.Marshal(emulating{Experiment: strings.ToValidUTF8(experiment, "?"), Since: time.Now()})
	if err == nil && f.Truncate(0) == nil {
		_, _ = f.WriteAt(text, 0)
	}
	return func() {
		_ = f.Truncate(0)
		_ = f.Close()
	}, nil
}
