package resultstest

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/inabench/inabench/results"
)

// Save writes a run that has ended as a run does, and returns its directory's name.
func Save(t testing.TB, root string, rec *results.Record) string {
	t.Helper()
	d, err := results.Create(root, rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), d.Save(rec)); err != nil {
		t.Fatal(err)
	}
	return filepath.Base(d.Path)
}
