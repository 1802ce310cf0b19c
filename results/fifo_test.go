package results

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What somebody puts in the place of a run's samples is no reason to wait for its writer.
func TestFIFOForSamples(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, SamplesFile), 0o666); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if Running(dir) {
			t.Error("it is running")
		}
		if _, err := (&Dir{Path: dir}).Samples(); err == nil {
			t.Error("samples of a FIFO")
		}
		if err := os.Remove(filepath.Join(dir, SamplesFile)); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever")
	}
}
