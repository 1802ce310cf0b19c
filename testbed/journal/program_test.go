package journal

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/bounded"
)

// TestProgram: a program is read back as it was written, after a kill too; one that no journal could hold is refused.
func TestProgram(t *testing.T) {
	config := bytes.Repeat([]byte("context "), 1<<16)
	p, err := NewProgram("fabric", config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	j, err := Open(dir, Header{Run: "run", Owner: "me", Began: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Begin(&Change{Target: "switch tor1", What: "replace program fabric", Undo: Inverse{Program: p}}), j.Close()); err != nil {
		t.Fatal(err)
	}
	j, err = Resume(dir, "run")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	undone := j.Log().Undone()
	if len(undone) != 1 || undone[0].Undo.Program == nil || undone[0].Undo.String() != "put back program fabric" {
		t.Fatalf("%+v", undone)
	}
	if got, err := undone[0].Undo.Program.Whole(); err != nil || !bytes.Equal(got, config) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(config), err)
	}
	if _, err := NewProgram("fabric", make([]byte, mostProgram+1)); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("more than a server tells: %v", err)
	}
	if _, err := (&Program{Name: "fabric", Config: []byte("no gzip")}).Whole(); err == nil {
		t.Error("what is no gzip is read")
	}
}
