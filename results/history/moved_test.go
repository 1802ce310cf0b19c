package history

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMoved: an index that another process has put aside, or that somebody has removed, is not written to any more by who
// has it open: the next Update goes on with the one that there is.
func TestMoved(t *testing.T) {
	for name, move := range map[string]func(root string) error{
		"removed": func(root string) error { return os.Remove(filepath.Join(root, File)) },
		"damaged, and put aside by another": func(root string) error {
			if err := os.WriteFile(filepath.Join(root, File), []byte("no database, and long enough to be taken for one"), 0o644); err != nil {
				return err
			}
			other, err := Open(t.Context(), root)
			if err != nil {
				return err
			}
			_, err = other.Update(t.Context())
			if cerr := other.Close(); err == nil {
				err = cerr
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			x, err := Open(t.Context(), root)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}()
			if _, err := x.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := move(root); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := x.Update(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if x.moved() {
				t.Error("it goes on with another file than there is")
			}
		})
	}
}
