package clean

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
	"github.com/inabench/inabench/testbed/supervise"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// TestAway: of each host that cannot be reached it is said why, beside names that are of none.
func TestAway(t *testing.T) {
	down := blame.Host("h2", errors.New("no route"))
	for _, err := range []error{down, errors.Join(nil, down), errors.Join(errors.New("no host or switch"), errors.Join(blame.Host("h1", errors.New("refused")), down))} {
		found := false
		for _, e := range flat(err) {
			if blame.Of(e) == (blame.Part{Kind: blame.KindHost, Node: "h2"}) {
				found = found || strings.Contains(e.Error(), "no route") && !strings.Contains(e.Error(), "refused")
			}
		}
		if !found {
			t.Errorf("%q: nothing of h2 alone", err)
		}
	}
}

// doing is a host whose files all say "ours". It notes what is done there, and as whom.
type doing struct {
	hosts.Host
	did string
}

func (d *doing) note(root bool, what string) {
	as := "user: "
	if root {
		as = "root: "
	}
	d.did += as + what
}

func (d *doing) Run(_ context.Context, argv []string, _ io.Reader) (hosts.Output, error) {
	d.note(false, strings.Join(argv, " "))
	return hosts.Output{}, nil
}

func (d *doing) RunRoot(_ context.Context, argv []string, _ io.Reader) (hosts.Output, error) {
	d.note(true, strings.Join(argv, " "))
	return hosts.Output{}, nil
}

func (d *doing) ReadFile(context.Context, string) ([]byte, error) { return []byte("ours"), nil }

func (d *doing) Remove(_ context.Context, name string, root bool) error {
	d.note(root, "remove "+name)
	return nil
}

func (d *doing) Replace(_ context.Context, name string, _ []byte, _ fs.FileMode, root bool) error {
	d.note(root, "replace "+name)
	return nil
}

// Sudo: the user may become root, which is no reason to.
func (d *doing) Sudo() bool { return true }

// stranger is a host of another architecture than this machine, with files of processes. It notes what is copied there.
type stranger struct {
	doing
	machine string
	copied  []string
}

func (s *stranger) String() string { return "h1" }

func (s *stranger) Run(context.Context, []string, io.Reader) (hosts.Output, error) {
	return hosts.Output{Stdout: []byte(s.machine + "\n")}, nil
}

func (s *stranger) ReadDir(context.Context, string) ([]string, error) { return []string{"file"}, nil }

func (s *stranger) ReadFilesOf(_ context.Context, _ int64, names ...string) []hosts.File {
	return make([]hosts.File, len(names))
}

func (s *stranger) Stat(context.Context, string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }

func (s *stranger) Upload(_ context.Context, local, _ string, _ fs.FileMode) error {
	s.copied = append(s.copied, local)
	return errors.New("no room")
}

// TestSweepStranger: a host gets the program of its own architecture to look for processes, or none where there is none.
func TestSweepStranger(t *testing.T) {
	machine := map[string]string{"amd64": "aarch64", "arm64": "x86_64"}[runtime.GOARCH]
	if machine == "" {
		t.Skipf("no other architecture than %s is known", runtime.GOARCH)
	}
	for _, dry := range []bool{false, true} {
		h := &stranger{machine: machine}
		inv := &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1"}}}
		k := keepers.Beside(t.Context(), inv, []string{"h1"}, map[string]hosts.Host{"h1": h}, reach.Options{})
		_, err := sweepHost(t.Context(), k, "h1", Options{Exe: "/proc/self/exe", Dry: dry})
		if err == nil || !strings.Contains(err.Error(), "no program for ") || len(h.copied) > 0 {
			t.Errorf("dry %v: %q was copied, %v", dry, h.copied, err)
		}
		k.Close()
	}
}

// guest is a host of this machine on which nothing is ended: it notes what a supervisor is asked for, and who has the host
// then.
type guest struct {
	hosts.Host
	place  func() lease.Place
	come   func() // is called when this program is about to be copied there
	asked  []string
	holder lease.State
}

func (g *guest) Run(ctx context.Context, argv []string, stdin io.Reader) (hosts.Output, error) {
	if argv[len(argv)-1] != supervise.Verb {
		if g.come != nil {
			g.come()
		}
		g.come = nil
		return g.Host.Run(ctx, argv, stdin)
	}
	var c supervise.Config
	if err := json.NewDecoder(stdin).Decode(&c); err != nil {
		return hosts.Output{}, err
	}
	g.asked = append(g.asked, c.Do)
	var err error
	g.holder, err = lease.Look(ctx, g.place())
	return hosts.Output{}, err
}

// TestSweepLeased: a host is swept by who has it meanwhile. A lock of one's own is no reason against it, and lies there after
// that; what another has, by now or since, is left alone.
func TestSweepLeased(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, processesDir), 0o777), os.WriteFile(filepath.Join(dir, processesDir, "1"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	client := sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{Dir: dir, Env: append(os.Environ(), "HOME="+dir)}))
	inv := &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1"}}}
	for name, c := range map[string]struct {
		locked, comes string // who has locked it, and who comes while this program is copied there
		dry           bool
		asked, holder string // what is asked for, and who has it then, with the run
		after         string // who has it
	}{
		"free":              {asked: "end", holder: "anna clean"},
		"looked at":         {dry: true, asked: "list", holder: " "},
		"own":               {locked: "anna", asked: "end", holder: "anna clean", after: "anna "},
		"own, looked at":    {locked: "anna", dry: true, asked: "list", holder: "anna ", after: "anna "},
		"another's":         {locked: "bob", after: "bob "},
		"another's since":   {comes: "bob", after: "bob R"},
		"own run since":     {locked: "anna", comes: "anna", after: "anna R"},
		"looked at by then": {comes: "bob", dry: true, after: "bob R"},
	} {
		g := &guest{Host: client}
		k := keepers.Beside(t.Context(), inv, []string{"h1"}, map[string]hosts.Host{"h1": g}, reach.Options{})
		p, err := k.Place(t.Context(), "h1")
		if err != nil {
			t.Fatal(err)
		}
		g.place = func() lease.Place { return p }
		take := func(owner, run string) {
			if _, err := lease.Take(t.Context(), p, lease.Claim{Owner: owner, Run: run, TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}
		if c.locked != "" {
			take(c.locked, "")
		}
		if c.comes != "" {
			g.come = func() { take(c.comes, "R") }
		}
		_, err = sweepHost(t.Context(), k, "h1", Options{Exe: "/proc/self/exe", Dry: c.dry, Owner: "anna"}.whole())
		if busy := errors.Is(err, testbed.ErrBusy); busy != (c.asked == "") || !busy && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		who := func(s lease.State) string {
			if !s.Held {
				return " "
			}
			return s.Owner + " " + s.Run
		}
		if asked := strings.Join(g.asked, " "); asked != c.asked || asked != "" && who(g.holder) != c.holder {
			t.Errorf("%s: %q of %q, want %q of %q", name, asked, who(g.holder), c.asked, c.holder)
		}
		s, err := lease.Look(t.Context(), p)
		if after := cmp.Or(c.after, " "); err != nil || who(s) != after {
			t.Errorf("%s: %q has it, %v; want %q", name, who(s), err, after)
		}
		if s.Held {
			take := lease.Claim{Owner: "next", TTL: time.Minute, Takeover: true}
			l, err := lease.Take(t.Context(), p, take)
			if err == nil {
				err = l.Release(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		k.Close()
	}
}

// sum is the checksum of a text.
func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// TestAsDeclared: what is undone as root is what was declared so, and nothing is done where it is only looked.
func TestAsDeclared(t *testing.T) {
	for _, root := range []bool{false, true} {
		as := "user: "
		if root {
			as = "root: "
		}
		for want, u := range map[string]journal.Inverse{
			"systemctl stop sw": {Script: &journal.Script{Argv: []string{"systemctl", "stop", "sw"}, Root: root}},
			"pkill sw":          {Script: &journal.Script{Argv: []string{"pkill", "sw"}, Root: root, Host: "h1"}}, // of a switch
			"remove trees.cfg":  {Remove: &journal.Remove{Path: "trees.cfg", SHA256: sum("ours"), Sudo: root}},
			"replace am.cfg":    {Restore: &journal.Restore{Path: "am.cfg", SHA256: sum("ours"), Old: []byte("theirs"), Mode: 0o640, Sudo: root}},
		} {
			target := "host h1"
			if u.Script != nil && u.Script.Host != "" {
				target = "switch sw1"
			}
			for _, dry := range []bool{false, true} {
				h := &doing{}
				inv := &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1"}}}
				k := keepers.Beside(t.Context(), inv, []string{"h1"}, map[string]hosts.Host{"h1": h}, reach.Options{})
				c := &cleaning{opt: Options{Dry: dry}, inv: inv, keepers: k}
				what, err := c.undo(t.Context(), target, u)
				if did := map[bool]string{false: as + want}[dry]; err != nil || what == "" || h.did != did {
					t.Errorf("root %v, dry %v: %q was done, want %q; it says %q, %v", root, dry, h.did, did, what, err)
				}
				k.Close()
			}
		}
	}
}

// TestOfRuns: of what is in a switch the jobs are of runs, their groups, the routes to hosts of the inventory, and the groups
// of its cables; other groups and routes are somebody else's.
func TestOfRuns(t *testing.T) {
	nic := func(port uint32, addr string) []inventory.NIC {
		return []inventory.NIC{{Switch: "tor1", Port: port, Address: netip.MustParsePrefix(addr)}}
	}
	inv := &inventory.Inventory{
		Switches: []inventory.Switch{{Name: "tor1"}, {Name: "tor2"}},
		Hosts:    []inventory.Host{{Name: "h1", NICs: nic(1, "10.0.0.1/24")}, {Name: "h2", NICs: nic(2, "10.0.0.2/24")}},
		Links:    []inventory.Link{{A: inventory.Port{Switch: "tor1", Port: 9}, B: inventory.Port{Switch: "tor2", Port: 4}}},
	}
	there := dataplane.Batch{
		Jobs:   []ina.JobEntry{{DownGroup: 7}},
		Groups: []p4.Group{{ID: 7}, {ID: 8}, {ID: p4.FloodGroup(1)}, {ID: p4.FloodGroup(9)}, {ID: p4.FloodGroup(4)}, {ID: p4.FloodGroup(0)}},
		Routes: []p4.Route{{Dst: [4]byte{10, 0, 0, 2}}, {Dst: [4]byte{10, 0, 0, 3}}},
	}
	got := ofRuns(inv, "tor1", there)
	var groups []uint16
	for _, g := range got.Groups {
		groups = append(groups, g.ID)
	}
	if want := []uint16{7, p4.FloodGroup(1), p4.FloodGroup(9)}; !slices.Equal(groups, want) || len(got.Jobs) != 1 || len(got.Routes) != 1 || got.Routes[0].Dst[3] != 2 {
		t.Errorf("%+v, want groups %d", got, want)
	}
}

// TestRestore: a file that is put back has the content, the mode and the owner that it had, and is reached by the same link.
func TestRestore(t *testing.T) {
	for name, owner := range map[string]int{"of the user": os.Getuid(), "of another": 65534} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 && owner != os.Getuid() {
				testbedtest.Require(t, "root", errors.New("only root can give files away"))
			}
			dir := t.TempDir()
			file, link := filepath.Join(dir, "opensm.conf"), filepath.Join(dir, "link")
			if err := errors.Join(os.WriteFile(file, []byte("ours"), 0o600), os.Chown(file, owner, -1), os.Chmod(file, 0o640), os.Symlink("opensm.conf", link)); err != nil {
				t.Fatal(err)
			}
			client := sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{Dir: dir}))
			u := &journal.Restore{Path: link, SHA256: sum("ours"), Old: []byte("theirs"), Mode: 0o640}
			what, err := (&cleaning{}).restore(t.Context(), client, u)
			if err != nil || what != link+" put back" {
				t.Errorf("%q, %v", what, err)
			}
			if to, err := os.Readlink(link); err != nil || to != "opensm.conf" {
				t.Errorf("the link leads to %q, %v", to, err)
			}
			text, err := os.ReadFile(file)
			if err != nil || string(text) != "theirs" {
				t.Errorf("%q, %v", text, err)
			}
			st, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if sys := st.Sys().(*syscall.Stat_t); int(sys.Uid) != owner || st.Mode() != 0o640 {
				t.Errorf("it belongs to %d with mode %v, want %d", sys.Uid, st.Mode(), owner)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
				t.Errorf("there are %v, %v", left, err)
			}
		})
	}
}
