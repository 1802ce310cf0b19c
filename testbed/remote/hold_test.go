package remote

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// here is this machine.
type here struct{}

func (here) Stat(_ context.Context, name string) (fs.FileInfo, error) { return os.Stat(name) }

// TestShared: leases do not lie where others could have a holder write to a file of the holder's.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"own": 0o755, "all": 0o777 | os.ModeSticky, "group": 0o775 | os.ModeSticky, "loose": 0o777, "loose group": 0o775} {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, mode); err != nil {
			t.Fatal(err)
		}
		if err := shared(t.Context(), here{}, "h1", at); strings.HasPrefix(name, "loose") != (err != nil && strings.HasSuffix(err.Error(), "chmod +t "+at)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := shared(t.Context(), here{}, "h1", filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}

// TestFileName: a host's name for itself makes no other file of a lease's.
func TestFileName(t *testing.T) {
	for of, want := range map[string]string{
		"host-h1.lab":              "host-h1.lab",
		"switch-10.0.1.1:9559-1":   "switch-10.0.1.1:9559-1",
		"switch-[fd00::1]:9559-1":  "switch-[fd00::1]:9559-1",
		"host-../../etc":           "host-.._.._etc",
		"host-a\nb\x1b[2Jc d":      "host-a_b_[2Jc_d",
		strings.Repeat("x", 70000): strings.Repeat("x", 200),
	} {
		if got := fileName(of); got != want {
			t.Errorf("%q: %q", of, got)
		}
	}
}
