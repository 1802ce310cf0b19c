package history

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

// What somebody puts beside an index is no reason to wait for its writer, and no index is there then.
func TestFIFOBesideIndex(t *testing.T) {
	for _, of := range []string{"", "-journal", "-wal", "-shm"} {
		root := t.TempDir()
		if err := unix.Mkfifo(filepath.Join(root, File+of), 0o666); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			x, err := Open(t.Context(), root)
			if err == nil {
				x.Close()
			}
			failed <- err
		}()
		select {
		case err := <-failed:
			if !errors.Is(err, ErrFileSystem) || !errors.Is(err, bounded.ErrIrregular) {
				t.Errorf("%s: %v", of, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits for ever", of)
		}
	}
}
