package keepers

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/reach"
)

// here is this machine, or one that has a directory of it in the place of another.
type here string

func (h here) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	if h != "" {
		name = string(h)
	}
	return os.Stat(name)
}

// TestShared: leases do not lie where others could have a holder write to a file of the holder's.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		mode os.FileMode
		dir  string // of the user's home; empty: an absolute one
		fits bool
	}{
		"own": {0o755, "", true}, "all": {0o777 | os.ModeSticky, "", true}, "group": {0o775 | os.ModeSticky, "", true},
		"loose": {0o777, "", false}, "loose group": {0o775, "", false},
		"home": {0o755, ".inabench", true}, "umask 002": {0o775, ".inabench", true}, "loose home": {0o777, ".inabench", false},
	} {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, c.mode); err != nil {
			t.Fatal(err)
		}
		files, asked := here(""), at
		if c.dir != "" {
			files, asked = here(at), c.dir
		}
		if err := shared(t.Context(), files, "h1", asked); c.fits != (err == nil) || err != nil && !strings.HasSuffix(err.Error(), "chmod +t "+asked) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := shared(t.Context(), here(""), "h1", filepath.Join(dir, "none")); err != nil {
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
		"host-a\nb\x1b[2Jc":        "host-a_b_[2Jc",
		"switch-[fe80::1%eth0]-1":  "switch-[fe80::1%eth0]-1",
		strings.Repeat("x", 70000): strings.Repeat("x", 200),
	} {
		if got := fileName(of); got != want {
			t.Errorf("%q: %q", of, got)
		}
	}
}

// TestBesideUnknown: one name that nobody has leaves the others their keepers.
func TestBesideUnknown(t *testing.T) {
	inv, err := inventory.Parse("rack", []byte("version = 1\n[[switch]]\nname = \"tor1\"\nkind = \"soft\"\naggregators = 8\n[[host]]\nname = \"h[1-2]\"\nnic = {port = \"tor1/[1-2]\", rate = \"1Gbit/s\", delay = \"1us\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	h1 := struct{ hosts.Host }{}
	k := Beside(t.Context(), inv, []string{"https://ufm.lab", "h1"}, map[string]hosts.Host{"h1": h1}, reach.Options{Fan: 2})
	if k.Client("h1") == nil || k.Err() == nil || !strings.Contains(k.Err().Error(), `no host or switch "https://ufm.lab"`) {
		t.Errorf("%v, %v", k.Client("h1"), k.Err())
	}
}

// named is a host that is asked for its own name, and for nothing else.
type named struct {
	hosts.Host
	file hosts.File
}

func (named) Stat(context.Context, string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }

func (n named) ReadFilesOf(context.Context, int64, ...string) []hosts.File {
	return []hosts.File{n.file}
}

// TestKeyOfHost: a host's lease has the host's own name, or that of the inventory where there is none; not where nobody knows.
func TestKeyOfHost(t *testing.T) {
	inv := &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1"}}}
	broken := errors.New("connection lost")
	for want, file := range map[string]hosts.File{"host-gpu-a17": {Data: []byte("gpu-a17\n")}, "host-h1": {Err: fs.ErrNotExist}, "host-h1 ": {Err: fs.ErrPermission}, "": {Err: broken}} {
		k := Beside(t.Context(), inv, []string{"h1"}, map[string]hosts.Host{"h1": named{file: file}}, reach.Options{})
		p, err := k.Place(t.Context(), "h1")
		if p.Key != strings.TrimSpace(want) || errors.Is(err, broken) != (want == "") || want != "" && err != nil {
			t.Errorf("%v: %q, %v; want %q", file.Err, p.Key, err, want)
		}
	}
}

// TestHints: a hint has only flags of the command.
func TestHints(t *testing.T) {
	held := func() error { return &lease.HeldError{State: lease.State{Record: lease.Record{Owner: "bob"}}} }
	reserved := func() error { return &lease.HeldError{By: &lease.Reservation{Owner: "bob"}} }
	const free = "inabench who says what is reserved; take less time, or come when that is over"
	for _, tt := range []struct {
		err  error
		may  []Way
		want string
	}{
		{held(), []Way{Wait, Takeover}, "--wait 10m waits for it; --takeover --reason WHY takes it away, and says so there"},
		{held(), []Way{Takeover}, "--takeover --reason WHY takes it away, and says so there"},
		{held(), nil, "inabench who says whose it is and until when"},
		{reserved(), []Way{Wait, Takeover}, free + "; --takeover --reason WHY comes nevertheless, and says so there"},
		{reserved(), nil, free},
	} {
		err := Busy(tt.err, tt.may...)
		if h, ok := err.(interface{ Hint() string }); !ok || h.Hint() != tt.want || !errors.Is(err, testbed.ErrBusy) {
			t.Errorf("%v with %q: %v", tt.err, tt.may, err)
		}
	}
}
