package suite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
)

// TestResumeOwn: a night says what is to be run, commands included, so nobody goes on with one that others may have written.
func TestResumeOwn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string) error
		says   string
	}{
		"own":       {func(string) error { return nil }, ""},
		"everybody": {func(path string) error { return os.Chmod(path, 0o666) }, "everybody may write it"},
		"another's": {func(path string) error { return os.Lchown(path, 65534, -1) }, "it belongs to another user"},
		"a link": {func(path string) error {
			return errors.Join(os.Rename(path, path+"x"), os.Symlink(path+"x", path))
		}, "a link"},
	} {
		if name == "another's" && os.Geteuid() != 0 {
			continue // who cannot give files away
		}
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, Folder), 0o777); err != nil {
			t.Fatal(err)
		}
		r := &runner{suite: &Suite{Name: "s"}, opt: Options{Root: root, Resume: true}}
		n := &Night{Schema: Schema, Suite: "s", Started: time.Now()}
		if err := n.create(root); err != nil {
			t.Fatal(err)
		}
		r.nights = []*Night{n}
		if err := c.change(filepath.Join(root, Folder, n.ID, File)); err != nil {
			t.Fatal(err)
		}
		err := r.begin()
		if (err != nil) != (c.says != "") || err != nil && (!errors.Is(err, spec.ErrInput) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
