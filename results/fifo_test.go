package results

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
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

// A run whose record is none of bytes is listed, with why it cannot be read.
func TestIrregularRecord(t *testing.T) {
	root := t.TempDir()
	for name, put := range map[string]func(path string) error{
		"2026-11-29T19-00-00Z-01M8MB5C7RKWFQ5TYQX7J8F16G": func(path string) error { return unix.Mkfifo(path, 0o666) },
		"2026-11-29T19-00-01Z-01M8MB5DM692P9CQSD97PYDKZG": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := put(filepath.Join(dir, RecordFile)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := List(root)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d runs, %v", len(all), err)
	}
	for _, e := range all {
		if e.Record != nil || !errors.Is(e.Err, bounded.ErrIrregular) {
			t.Errorf("%s: %v", e.Path, e.Err)
		}
	}
}

// An input is known by its text, whatever sum stands beside it.
func TestFileSum(t *testing.T) {
	f := File{Text: "a", SHA256: "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}
	if f.Sum() != f.SHA256 {
		t.Errorf("%s", f.Sum())
	}
	if f.Text = "b"; f.Sum() == f.SHA256 {
		t.Error("another text has the same sum")
	}
	if f.SHA256 = "9c01"; f.Sum() != "9c01" {
		t.Errorf("%s", f.Sum())
	}
}
