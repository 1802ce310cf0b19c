package suite

import (
	"sync"
	"testing"
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
