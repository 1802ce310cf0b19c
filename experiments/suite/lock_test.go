package suite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/inabench/inabench/testbed"
)

// TestLockDespiteLookers: who asks whether a night runs does not keep one from beginning.
func TestLockDespiteLookers(t *testing.T) {
	root := t.TempDir()
	stop := make(chan struct{})
	var looking sync.WaitGroup
	for range 2 {
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					Occupied(root)
				}
			}
		})
	}
	for range 300 {
		unlock, err := lock(root)
		if err != nil {
			t.Error(err)
			break
		}
		if !Occupied(root) {
			t.Error("nobody sees that a night runs")
		}
		unlock()
	}
	close(stop)
	looking.Wait()
	if Occupied(root) {
		t.Error("a night that has ended runs")
	}
}

// TestLockHeld: a night does not begin, and does not wait for ever, where somebody holds the lock, and it is said where.
func TestLockHeld(t *testing.T) {
	root := t.TempDir()
	unlock, err := lock(root)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	f, err := os.Open(filepath.Join(root, Folder, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if _, err := lock(root); !errors.Is(err, testbed.ErrBusy) || !strings.Contains(err.Error(), "another night runs in "+root) {
		t.Errorf("held: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = lock(root); err != nil {
		t.Fatal(err)
	}
	unlock()
}
