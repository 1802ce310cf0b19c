package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
)

func place(dir string) Place { return Place{Name: "host h1", Key: "host-h1", Files: Dir(dir)} }

func claim(owner, run string) Claim {
	return Claim{Owner: owner, Reason: "because", Run: run, TTL: time.Minute}
}

// take takes what must be there to take.
func take(t *testing.T, p Place, c Claim) *Lease {
	t.Helper()
	l, err := Take(t.Context(), p, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func look(t *testing.T, p Place) State {
	t.Helper()
	s, err := Look(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFollows: whoever runs something for the holder of a lease can tell, with the lease's files alone, that another
// has followed.
func TestFollows(t *testing.T) {
	ctx := t.Context()
	p := place(t.TempDir())
	lost := func(l *Lease, number uint64, want string) {
		t.Helper()
		err := Follows(ctx, p, l.Holder(), number)
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrLost) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	anna := take(t, p, claim("anna", "R1"))
	lost(anna, 1, "")
	// Its own is anna's again, with another number.
	c := claim("anna", "R1")
	c.Token = anna.Holder().Token
	take(t, p, c)
	lost(anna, 1, "")
	// What somebody puts there is no lease.
	if err := os.Symlink("/dev/zero", filepath.Join(string(p.Files.(Dir)), p.file(9))); err != nil {
		t.Fatal(err)
	}
	lost(anna, 1, "")
	c = claim("bob", "R2")
	c.Takeover = true
	bob := take(t, p, c)
	lost(anna, 1, `bob took it over for "because" (fencing number 10 after 1)`)
	lost(bob, 10, "")
	if err := bob.Release(ctx); err != nil {
		t.Fatal(err)
	}
	lost(anna, 1, "bob took it over")
	lost(bob, 10, "")
	if err := Follows(ctx, place(filepath.Join(t.TempDir(), "gone")), anna.Holder(), 1); err != nil {
		t.Errorf("without files: %v", err)
	}
}

func TestTake(t *testing.T) {
	ctx := t.Context()
	p := place(filepath.Join(t.TempDir(), "not", "there"))
	if s := look(t, p); s.Held || s.Fencing != 0 {
		t.Errorf("nobody ever had it: %+v", s)
	}
	l := take(t, p, claim("anna", "R1"))
	_, err := Take(ctx, p, claim("bob", "R2"))
	var held *HeldError
	if !errors.Is(err, ErrHeld) || !errors.As(err, &held) || held.Owner != "anna" || held.Fencing != 1 || held.Left() < 50*time.Second {
		t.Errorf("%v", err)
	}
	if want := `host h1 is held by anna (run R1) for "because" since 0s ago, renewed 0s ago`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := l.Renew(ctx); err != nil {
		t.Error(err)
	}
	if err := errors.Join(l.Release(ctx), l.Release(ctx)); err != nil {
		t.Error(err)
	}
	if err := l.Renew(ctx); !errors.Is(err, ErrLost) {
		t.Errorf("renewed after it was given back: %v", err)
	}
	if s := look(t, p); s.Held || s.Fencing != 1 {
		t.Errorf("%+v", s)
	}
	l = take(t, p, claim("bob", "R2"))
	if l.Fencing() != 2 || l.From() != nil {
		t.Errorf("fencing number %d, took %v", l.Fencing(), l.From())
	}
	c := claim("carol", "R3")
	c.Takeover, c.Reason = true, "deadline"
	l3 := take(t, p, c)
	if took := l3.From(); l3.Fencing() != 3 || took == nil || took.Owner != "bob" || took.Run != "R2" {
		t.Errorf("fencing number %d, took %+v", l3.Fencing(), took)
	}
	if err := l.Renew(ctx); !errors.Is(err, ErrLost) || !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), `carol took it over for "deadline" (fencing number 3 after 2)`) {
		t.Errorf("%v", err)
	}
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
	if s := look(t, p); !s.Held || s.Owner != "carol" {
		t.Errorf("the one who lost it gave it back: %+v", s)
	}
	if _, err := Take(ctx, p, Claim{Owner: "x", TTL: time.Second}); err == nil {
		t.Error("a time to live that the host cannot measure")
	}
	if _, err := Take(ctx, p, Claim{Owner: "x", TTL: MaxTTL + time.Second, Takeover: true}); err == nil {
		t.Error("a time to live that nobody believes")
	}
}

// TestReturn gives back what somebody had who is gone, and nothing else.
func TestReturn(t *testing.T) {
	ctx, p := t.Context(), place(t.TempDir())
	if err := Return(ctx, p, "T"); err != nil {
		t.Error(err)
	}
	l := take(t, p, claim("anna", "R1"))
	if err := Return(ctx, p, "another"); err != nil || !look(t, p).Held {
		t.Errorf("another's: %v", err)
	}
	if err := Return(ctx, p, l.Holder().Token); err != nil || look(t, p).Held {
		t.Errorf("its own: %v", err)
	}
}

// TestPeople: a person locks a host, whose own runs lie on that.
func TestPeople(t *testing.T) {
	ctx, p := t.Context(), place(t.TempDir())
	lock := Claim{Owner: "anna", Reason: "debugging", TTL: 4 * time.Hour}
	take(t, p, lock)
	if _, err := Take(ctx, p, claim("bob", "R1")); !errors.Is(err, ErrHeld) || !strings.HasSuffix(err.Error(), "for 4h0m more") {
		t.Errorf("%v", err)
	}
	if _, err := Take(ctx, p, lock); !errors.Is(err, ErrHeld) {
		t.Errorf("locked twice: %v", err)
	}
	run := take(t, p, claim("anna", "R2"))
	if s := look(t, p); s.Run != "R2" || s.Beneath == nil || s.Beneath.Reason != "debugging" {
		t.Errorf("%+v", s)
	}
	if _, err := Take(ctx, p, claim("anna", "R3")); !errors.Is(err, ErrHeld) {
		t.Errorf("two runs of one person: %v", err)
	}
	if err := Unlock(ctx, p, "anna", false, ""); !errors.Is(err, ErrHeld) {
		t.Errorf("unlocked below a run: %v", err)
	}
	if s, err := Extend(ctx, p, "anna", 8*time.Hour); err != nil || s.Run != "R2" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := run.Renew(ctx); err != nil || run.Fencing() != 3 {
		t.Errorf("extended while it runs: %v, number %d", err, run.Fencing())
	}
	if err := run.Release(ctx); err != nil {
		t.Error(err)
	}
	s := look(t, p)
	if !s.Held || s.Run != "" || s.Reason != "debugging" || s.Left() < 7*time.Hour {
		t.Errorf("after the run: %+v", s)
	}
	if _, err := Extend(ctx, p, "bob", time.Hour); !errors.Is(err, ErrHeld) {
		t.Errorf("another's: %v", err)
	}
	if err := Unlock(ctx, p, "bob", false, ""); !errors.Is(err, ErrHeld) {
		t.Errorf("another's: %v", err)
	}
	if err := errors.Join(Unlock(ctx, p, "anna", false, ""), Unlock(ctx, p, "anna", false, "")); err != nil || look(t, p).Held {
		t.Errorf("%v, %+v", err, look(t, p))
	}
	if _, err := Extend(ctx, p, "anna", time.Hour); !errors.Is(err, ErrLost) {
		t.Errorf("what nobody has: %v", err)
	}
	take(t, p, lock)
	if err := Unlock(ctx, p, "bob", true, "she is on holiday"); err != nil || look(t, p).Held {
		t.Error(err)
	}
	h, err := History(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	last := h[len(h)-1]
	if last.Owner != "bob" || last.Reason != "she is on holiday" || last.Took == nil || last.Took.Owner != "anna" {
		t.Errorf("the audit says %+v", last.Record)
	}
	for i, s := range h {
		if s.Fencing != uint64(i+1) {
			t.Errorf("number %d at %d", s.Fencing, i)
		}
	}
}

// TestDamaged: a file that a disk has lost holds, until somebody must have noticed.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	take(t, p, claim("anna", "R1"))
	file := filepath.Join(dir, p.file(1))
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(t.Context(), p, claim("bob", "R2")); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "its file cannot be read") {
		t.Errorf("%v", err)
	}
	then := time.Now().Add(-2 * time.Minute)
	if err := os.Chtimes(file, then, then); err != nil {
		t.Fatal(err)
	}
	if l := take(t, p, claim("bob", "R2")); l.Fencing() != 2 || l.From() == nil {
		t.Errorf("fencing number %d, after %v", l.Fencing(), l.From())
	}
}

// TestForeign: in a directory where everybody may write, files that are no leases neither give nor take
// the resource, cost no memory, and make nobody wait.
func TestForeign(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, put := range map[string]func(file string) error{
		"a link to a device": func(file string) error { return os.Symlink("/dev/zero", file) },
		"a link to a lease":  func(file string) error { return os.Symlink(filepath.Join(filepath.Dir(file), "host-h1.1"), file) },
		"a FIFO":             func(file string) error { return syscall.Mkfifo(file, 0o600) },
		"a directory":        func(file string) error { return os.Mkdir(file, 0o755) },
		"a large file":       func(file string) error { return os.WriteFile(file, []byte(large), 0o600) },
	} {
		for where, files := range map[string]func(dir string) Files{
			"here":      func(dir string) Files { return Dir(dir) },
			"on a host": func(dir string) Files { return On(sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{})), dir) },
		} {
			t.Run(name+", "+where, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				dir := t.TempDir()
				p := Place{Name: "host h1", Key: "host-h1", Files: files(dir)}
				if err := put(filepath.Join(dir, p.file(7))); err != nil {
					t.Fatal(err)
				}
				if s, err := Look(ctx, p); err != nil || s.Held {
					t.Errorf("%+v, %v", s, err)
				}
				l, err := Take(ctx, p, claim("anna", "R1"))
				if err != nil || l.Fencing() != 8 {
					t.Fatalf("after number 7: %+v, %v", l, err)
				}
				if err := put(filepath.Join(dir, p.file(9))); err != nil {
					t.Fatal(err)
				}
				if err := l.Renew(ctx); err != nil {
					t.Error(err)
				}
				if _, err := Take(ctx, p, claim("bob", "R2")); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "anna") {
					t.Errorf("it is anna's: %v", err)
				}
				if past, err := History(ctx, p); err != nil || len(past) != 1 {
					t.Errorf("%+v, %v", past, err)
				}
				takeover := claim("bob", "R2")
				takeover.Takeover = true
				if l, err := Take(ctx, p, takeover); err != nil || l.Fencing() != 10 {
					t.Errorf("%+v, %v", l, err)
				}
				if err := l.Renew(ctx); !errors.Is(err, ErrTaken) {
					t.Errorf("it is bob's: %v", err)
				}
			})
		}
	}
}

// planted is a directory in which some files are of another account.
type planted struct {
	Files
	by map[string]uint32
}

func (p planted) Read(ctx context.Context, name string) ([]byte, Stamp, error) {
	data, at, err := p.Files.Read(ctx, name)
	if uid, ok := p.by[name]; ok {
		at.UID = uid
	}
	return data, at, err
}

// TestPlanted: the token of a lease, which everybody can read, makes nobody its holder: what another account writes with it
// is followed neither by the holder, nor by who runs something for it, nor by who comes back for it.
func TestPlanted(t *testing.T) {
	for where, files := range map[string]func(dir string) Files{
		"here":      func(dir string) Files { return Dir(dir) },
		"on a host": func(dir string) Files { return On(sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{})), dir) },
	} {
		t.Run(where, func(t *testing.T) {
			ctx, dir := t.Context(), t.TempDir()
			of := planted{files(dir), map[string]uint32{}}
			p := Place{Name: "host h1", Key: "host-h1", Files: of}
			l := take(t, p, claim("anna", "R1"))
			if l.Holder().UID != uint32(os.Getuid()) {
				t.Errorf("it is held by %+v", l.Holder())
			}
			plant := func(text string, uid int) {
				t.Helper()
				at := filepath.Join(dir, p.file(2))
				if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				if os.Getuid() == 0 {
					if err := os.Chown(at, uid, -1); err != nil {
						t.Fatal(err)
					}
				}
				of.by[p.file(2)] = uint32(uid)
			}
			// Its own account may extend it, but not for ever, nor for no time.
			for _, ttl := range []string{"0", "1", "-60", "9223372036854775807"} {
				text := `{"owner":"anna","run":"R1","token":"` + l.Holder().Token + `","ttl":` + ttl + `}`
				if r, own := l.Holder().wrote([]byte(text), Stamp{UID: l.Holder().UID}); own {
					t.Errorf("it has %+v", r)
				}
			}
			plant(`{"owner":"mallory","token":"`+l.Holder().Token+`","ttl":60}`, os.Getuid()+1)
			if err := Follows(ctx, p, l.Holder(), 1); !errors.Is(err, ErrLost) {
				t.Errorf("a supervisor follows: %v", err)
			}
			c := claim("anna", "R1")
			c.Token = l.Holder().Token
			if _, err := Take(ctx, p, c); !errors.Is(err, ErrHeld) {
				t.Errorf("it is taken once more: %v", err)
			}
			if err := l.Renew(ctx); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "mallory") || l.Fencing() != 1 {
				t.Errorf("number %d, %v", l.Fencing(), err)
			}
		})
	}
}

// TestMarked: in a directory where everybody may write, a lease was given back only by a second name of its own file. Any
// other file of that name ends nothing for nobody, and keeps who wants to give it back from that, who is told why.
func TestMarked(t *testing.T) {
	const own, other = 0, 1 // accounts: whose the file is
	type put = func(dir, file string) error
	write := func(text string) put {
		return func(_, file string) error { return os.WriteFile(file, []byte(text), 0o644) }
	}
	copied := func(name string) put {
		return func(dir, file string) error {
			return os.WriteFile(file, must(os.ReadFile(filepath.Join(dir, name))), 0o644)
		}
	}
	for name, test := range map[string]struct {
		put put
		by  int
	}{
		"a directory":                {func(_, file string) error { return os.Mkdir(file, 0o755) }, other},
		"a link to the lease":        {func(dir, file string) error { return os.Symlink(filepath.Join(dir, "host-h1.1"), file) }, other},
		"a link to nothing":          {func(dir, file string) error { return os.Symlink(filepath.Join(dir, "none"), file) }, other},
		"a FIFO":                     {func(_, file string) error { return syscall.Mkfifo(file, 0o644) }, other},
		"a large file":               {write(strings.Repeat("x", 1<<20)), other},
		"an empty file":              {write(""), other},
		"an empty file of its own":   {write(""), own},
		"a copy":                     {copied("host-h1.1"), other},
		"a copy of another lease":    {copied("host-h2.1"), other},
		"another lease of its owner": {func(dir, file string) error { return os.Link(filepath.Join(dir, "host-h2.1"), file) }, own},
	} {
		for where, files := range map[string]func(dir string) Files{
			"here":      func(dir string) Files { return Dir(dir) },
			"on a host": func(dir string) Files { return On(sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{})), dir) },
		} {
			t.Run(name+", "+where, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				dir := t.TempDir()
				of := planted{files(dir), map[string]uint32{}}
				p := Place{Name: "host h1", Key: "host-h1", Files: of}
				beside := take(t, Place{Name: "host h2", Key: "host-h2", Files: of}, claim("anna", "R1"))
				l := take(t, p, claim("anna", "R1"))
				for _, n := range []uint64{1, 7} { // of the lease, and of none
					of.by[p.free(n)] = uint32(os.Getuid() + test.by)
					if err := test.put(dir, filepath.Join(dir, p.free(n))); err != nil {
						t.Fatal(err)
					}
				}
				check := func(when string) {
					t.Helper()
					if s, err := Look(ctx, p); err != nil || !s.Held || s.Owner != "anna" || s.Fencing != 1 {
						t.Errorf("%s it is anna's: %+v, %v", when, s, err)
					}
					if _, err := Take(ctx, p, claim("bob", "R2")); !errors.Is(err, ErrHeld) {
						t.Errorf("%s it is taken: %v", when, err)
					}
					if err := errors.Join(l.Renew(ctx), Follows(ctx, p, l.Holder(), 1)); err != nil {
						t.Errorf("%s its holder has lost it: %v", when, err)
					}
				}
				check("at first")
				for what, err := range map[string]error{"release": l.Release(ctx), "return": Return(ctx, p, l.Holder().Token)} {
					if err == nil || !strings.HasSuffix(err.Error(), "host-h1.1.free is no second name of host-h1.1: somebody put that file there, remove it") {
						t.Errorf("%s: %v", what, err)
					}
				}
				check("after that")
				if past, err := History(ctx, p); err != nil || len(past) != 1 {
					t.Errorf("%+v, %v", past, err)
				}
				for _, n := range []uint64{1, 7} {
					if err := os.Remove(filepath.Join(dir, p.free(n))); err != nil {
						t.Fatal(err)
					}
					delete(of.by, p.free(n))
				}
				if err := errors.Join(l.Release(ctx), l.Release(ctx), beside.Release(ctx)); err != nil {
					t.Error(err)
				}
				if s, err := Look(ctx, p); err != nil || s.Held {
					t.Errorf("given back: %+v, %v", s, err)
				}
			})
		}
	}
}

// TestMarkedFollowed: who has lost a resource has nothing to give back, whatever stands in the way of that.
func TestMarkedFollowed(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	l := take(t, p, claim("anna", "R1"))
	if err := errors.Join(os.Mkdir(filepath.Join(dir, p.free(1)), 0o755), os.Mkdir(filepath.Join(dir, p.file(2)), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err == nil {
		t.Error("number 2 is no lease, so nobody has followed")
	}
	c := claim("bob", "R2")
	c.Takeover = true
	take(t, p, c)
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	// A number of which somebody has removed the first name is used, and says nothing.
	if err := os.Remove(filepath.Join(dir, p.file(3))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, p.free(3)), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if s := look(t, p); !s.Held || s.Owner != "anna" {
		t.Errorf("%+v", s)
	}
	c = claim("carol", "R3")
	c.Takeover = true
	if l := take(t, p, c); l.Fencing() != 4 {
		t.Errorf("number %d", l.Fencing())
	}
}

// TestMarkedUnreadable: of a lease whose owner keeps it from others its two names show that it was given back.
func TestMarkedUnreadable(t *testing.T) {
	for name, test := range map[string]struct {
		put  func(lease, mark string) error
		by   int
		back bool
	}{
		"its own":                  {os.Link, 0, true},
		"another's":                {os.Link, 1, false},
		"another file":             {func(_, mark string) error { return os.WriteFile(mark, []byte("{}"), 0o600) }, 0, false},
		"one that all can read":    {func(_, mark string) error { return os.WriteFile(mark, []byte("{}"), 0o644) }, 0, false},
		"a directory of anybody's": {func(_, mark string) error { return os.Mkdir(mark, 0o700) }, 1, false},
	} {
		dir := t.TempDir()
		p := place(dir)
		take(t, p, claim("anna", "R1"))
		at := filepath.Join(dir, p.file(1))
		before := time.Now().Add(-30 * time.Second)
		if err := errors.Join(os.Chtimes(at, before, before), test.put(at, filepath.Join(dir, p.free(1)))); err != nil {
			t.Fatal(err)
		}
		hidden := &counted{Files: p.Files, unreadable: p.file(1)}
		p.Files = planted{hidden, map[string]uint32{p.free(1): uint32(os.Getuid() + test.by)}}
		if name != "one that all can read" {
			p.Files = planted{&counted{Files: hidden, unreadable: p.free(1)}, p.Files.(planted).by}
		}
		if s := look(t, p); s.Held == test.back {
			t.Errorf("%s: held %t", name, s.Held)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestLinked: whatever is put in the place of a holder's file, renewing the lease writes into no other.
func TestLinked(t *testing.T) {
	for where, files := range map[string]func(dir string) Files{
		"here":      func(dir string) Files { return Dir(dir) },
		"on a host": func(dir string) Files { return On(sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{})), dir) },
	} {
		t.Run(where, func(t *testing.T) {
			dir := t.TempDir()
			p := Place{Name: "host h1", Key: "host-h1", Files: files(dir)}
			l := take(t, p, claim("anna", "R1"))
			at, secret := filepath.Join(dir, p.file(1)), filepath.Join(t.TempDir(), "authorized_keys")
			own := must(os.ReadFile(at))
			for what, put := range map[string]func() error{
				"a link":            func() error { return os.Symlink(secret, at) },
				"a link to the own": func() error { return errors.Join(os.WriteFile(at+"x", own, 0o600), os.Symlink(at+"x", at)) },
				"a name":            func() error { return os.Link(secret, at) },
				"a longer file":     func() error { return os.WriteFile(at, append(own, ' '), 0o600) },
				"an empty file":     func() error { return os.WriteFile(at, nil, 0o600) },
				"a FIFO":            func() error { return syscall.Mkfifo(at, 0o600) },
			} {
				if err := errors.Join(os.WriteFile(secret, []byte("ssh-ed25519 root"), 0o600), os.Remove(at), put()); err != nil {
					t.Fatal(err)
				}
				if err := l.Renew(t.Context()); err == nil || errors.Is(err, ErrLost) {
					t.Errorf("%s: %v", what, err)
				}
				if got := must(os.ReadFile(secret)); string(got) != "ssh-ed25519 root" {
					t.Fatalf("%s: %q was written", what, got)
				}
			}
			if err := errors.Join(os.Remove(at), os.WriteFile(at, own, 0o600), l.Renew(t.Context())); err != nil {
				t.Errorf("its own: %v", err)
			}
		})
	}
}

// TestForeignWords: names that others write are no lines of ours.
func TestForeignWords(t *testing.T) {
	dir := t.TempDir()
	p := Place{Name: "host h1", Key: "host-h1", Files: Dir(dir)}
	c := claim("bob\nhost h2\tfree", "R\x1b[2J")
	c.Reason = "x\ninabench: error: everything is lost"
	if _, err := Take(t.Context(), p, c); err != nil {
		t.Fatal(err)
	}
	s, err := Look(t.Context(), p)
	if err != nil || s.Owner != "bob host h2 free" || s.Run != "R [2J" || strings.Contains(s.Reason, "\n") {
		t.Errorf("%v: %+v", err, s)
	}
	past, err := History(t.Context(), p)
	if err != nil || len(past) != 1 || past[0].Owner != s.Owner {
		t.Errorf("%v: %+v", err, past)
	}
}

// TestManyForeign: however many files others put there, nobody who has the resource loses it to somebody else.
func TestManyForeign(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	l := take(t, p, claim("anna", "R1"))
	for n := range uint64(mostForeign + 1) {
		if err := os.Symlink("/dev/zero", filepath.Join(dir, p.file(2+n))); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"look":  func() error { _, err := Look(t.Context(), p); return err }(),
		"take":  func() error { _, err := Take(t.Context(), p, claim("bob", "R2")); return err }(),
		"renew": l.Renew(t.Context()),
	} {
		if err == nil || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "64 files like host-h1.66 are no leases: somebody put them there, remove them") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNumbersEnd: nobody comes to a number that cannot be followed, or is told what to do.
func TestNumbersEnd(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	put := func(n uint64, text string) {
		if err := os.WriteFile(filepath.Join(dir, p.file(n)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(math.MaxUint64, `{"owner":"mallory","ttl":1000000000}`)
	takes := func(want uint64) {
		t.Helper()
		l := take(t, p, claim("anna", "R1"))
		if l.Fencing() != want {
			t.Errorf("number %d, want %d", l.Fencing(), want)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	takes(1)
	past := func(n uint64) {
		put(n, `{"owner":"mallory","ttl":1}`)
		if err := os.Chtimes(filepath.Join(dir, p.file(n)), time.Unix(0, 0), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	// Nobody has taken so many: numbers go on below.
	past(lastNumber)
	past(3 + farthest)
	takes(2)
	past(2 + farthest)
	takes(4 + farthest)
	// A time to live that nobody means ends as that of a file that cannot be read.
	dir = t.TempDir()
	p = place(dir)
	put(1, `{"owner":"mallory","ttl":9223372036854775807}`)
	if s := look(t, p); !s.Held || s.Owner != "unknown" || s.Left() > time.Hour {
		t.Errorf("%+v", s)
	}
}

// TestLapsed: who follows a holder that let its lease lapse knows.
func TestLapsed(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	dead := take(t, p, claim("anna", "R1"))
	then := time.Now().Add(-2 * time.Minute)
	if err := os.Chtimes(filepath.Join(dir, p.file(1)), then, then); err != nil {
		t.Fatal(err)
	}
	l := take(t, p, claim("bob", "R2"))
	if from := l.From(); from == nil || from.Run != "R1" || from.Owner != "anna" {
		t.Errorf("after %+v", from)
	}
	if err := dead.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("it wakes up, and has it: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if from := take(t, p, claim("carol", "R3")).From(); from != nil {
		t.Errorf("after %+v, who gave it back", from)
	}
}

// TestTidy: the past is kept for an hour and for 32 numbers.
func TestTidy(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.WriteFile(filepath.Join(dir, "host-h10.1"), nil, 0o600); err != nil { // another's
		t.Fatal(err)
	}
	for i := range 100 {
		l := take(t, p, claim("anna", "R"))
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i < 90 {
			if err := os.Chtimes(filepath.Join(dir, p.file(uint64(i+1))), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	h, err := History(t.Context(), p)
	if err != nil || len(h) != keepNumbers || h[len(h)-1].Fencing != 100 {
		t.Errorf("%d are kept, %v", len(h), err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2*keepNumbers+1 {
		t.Errorf("%d files, %v", len(names), err)
	}
}

// slow is a host that answers when it is told.
type slow struct {
	Files
	err atomic.Pointer[error]
}

func (s *slow) Rewrite(ctx context.Context, name string, data []byte) (Stamp, error) {
	if err := s.err.Load(); err != nil {
		return Stamp{}, *err
	}
	return s.Files.Rewrite(ctx, name, data)
}

// TestPatience: who could not renew for as long as the host may wait has lost, whatever the
// host says afterwards; who could in time has not.
func TestPatience(t *testing.T) {
	for _, tt := range []struct {
		silence time.Duration
		lost    bool
	}{{57 * time.Second, false}, {59 * time.Second, true}, {time.Hour, true}} {
		synctest.Test(t, func(t *testing.T) {
			files := &slow{Files: Dir(t.TempDir())}
			p := Place{Name: "host h1", Key: "host", Files: files}
			l := take(t, p, claim("anna", "R1"))
			full := error(syscall.ENOSPC)
			files.err.Store(&full)
			time.Sleep(tt.silence / 2)
			if err := l.Renew(t.Context()); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrLost) != (tt.silence > 2*time.Minute) {
				t.Errorf("after %v: %v", tt.silence/2, err)
			}
			files.err.Store(nil)
			time.Sleep(tt.silence / 2)
			if err := l.Renew(t.Context()); errors.Is(err, ErrLost) != tt.lost || errors.Is(err, ErrTaken) {
				t.Errorf("after %v: %v", tt.silence, err)
			}
		})
	}
}

// hammer has controllers take a lease again and again, each through files of its own, and
// checks that one at a time has it and that numbers grow.
func hammer(t *testing.T, files []Files, times int) {
	var holders atomic.Int32
	var mu sync.Mutex
	var numbers []uint64
	var all sync.WaitGroup
	for i, f := range files {
		all.Go(func() {
			p := Place{Name: "host h1", Key: "host", Files: f}
			for range times {
				set, err := TakeAll(t.Context(), []Place{p}, claim(fmt.Sprint("controller ", i), "R"), Options{Wait: time.Minute, Poll: time.Millisecond})
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d at once", n)
				}
				mu.Lock()
				numbers = append(numbers, set.Leases()[0].Fencing())
				mu.Unlock()
				if err := set.Check(t.Context()); err != nil {
					t.Error(err)
				}
				holders.Add(-1)
				if _, err := set.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if len(numbers) != len(files)*times || !slices.IsSorted(numbers) || len(slices.Compact(numbers)) != len(files)*times {
		t.Errorf("fencing numbers %v", numbers)
	}
}

func TestManyControllers(t *testing.T) {
	dir := Dir(t.TempDir())
	hammer(t, slices.Repeat([]Files{dir}, 8), 10)
}

// TestManyControllersOverSSH is the same through a connection each.
func TestManyControllersOverSSH(t *testing.T) {
	home := t.TempDir()
	clients := dial(t, home, 5)
	var files []Files
	for _, c := range clients {
		files = append(files, On(c, DefaultDir))
	}
	hammer(t, files, 4)
	// What is on the host is what Dir reads.
	s := look(t, Place{Name: "host h1", Key: "host", Files: Dir(filepath.Join(home, DefaultDir))})
	if s.Held || s.Fencing != 20 {
		t.Errorf("%+v", s)
	}
}

// dial connects several times to an SSH server of this machine.
func dial(t testing.TB, home string, n int) (out []hosts.Host) {
	t.Helper()
	target := sshdtest.Serve(t, &sshd.Server{Dir: home})
	for range n {
		out = append(out, sshdtest.Dial(t, target))
	}
	return out
}

// TestAllOrNone: of two that want overlapping places one gets all of them, and the other
// keeps none, in whatever order they name them.
func TestAllOrNone(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	at := func(key string) Place { return Place{Name: "host " + key, Key: key, Files: Dir(dir)} }
	a, err := TakeAll(ctx, []Place{at("h2"), at("h1"), at("h3")}, claim("anna", "R1"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	_, err = TakeAll(ctx, []Place{at("h0"), at("h3"), at("h9")}, claim("bob", "R2"), Options{
		Wait: 50 * time.Millisecond, Poll: 5 * time.Millisecond, Waiting: func(e *HeldError) { told++ }})
	if !errors.Is(err, ErrHeld) || !strings.HasPrefix(err.Error(), "host h3 is held by anna (run R1)") || told != 1 {
		t.Errorf("%v; told %d times", err, told)
	}
	for _, key := range []string{"h0", "h9"} {
		if s := look(t, at(key)); s.Held {
			t.Errorf("it keeps %s", key)
		}
	}
	waited := make(chan error)
	go func() {
		b, err := TakeAll(ctx, []Place{at("h3"), at("h1")}, claim("bob", "R2"), Options{Wait: time.Minute, Poll: 5 * time.Millisecond})
		if err == nil {
			_, err = b.Release(ctx)
		}
		waited <- err
	}()
	if _, err := a.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	// Two names of one host are one lease.
	both, err := TakeAll(ctx, []Place{at("h1"), at("h1")}, claim("anna", "R3"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	checked := both.Check(ctx)
	_, rerr := both.Release(ctx)
	if err := errors.Join(checked, rerr); err != nil || look(t, at("h1")).Held {
		t.Errorf("%v", err)
	}
}

// TestReleaseBut: what is not given back lapses, and whoever has its token can have it until then.
func TestReleaseBut(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	at := func(key string) Place { return Place{Name: "host " + key, Key: key, Files: Dir(dir)} }
	c := claim("anna", "R1")
	c.Token = "token"
	s, err := TakeAll(ctx, []Place{at("h1"), at("h2")}, c, Options{})
	var given []string
	if err == nil {
		given, err = s.Release(ctx, "host h2")
	}
	if err != nil || !slices.Equal(given, []string{"host h1"}) || look(t, at("h1")).Held || !look(t, at("h2")).Held {
		t.Errorf("%v, %q given back, h1 held %t, h2 held %t", err, given, look(t, at("h1")).Held, look(t, at("h2")).Held)
	}
	if err := Return(ctx, at("h2"), "token"); err != nil || look(t, at("h2")).Held {
		t.Errorf("%v, h2 held %t", err, look(t, at("h2")).Held)
	}
}

// away is a directory on a host, which is asked for no longer than somebody waits. A mute one says nothing any more when
// something is to be given back.
type away struct {
	Dir
	mute bool
}

func (a away) Link(ctx context.Context, old, name string) error {
	if a.mute && strings.HasSuffix(name, ".free") {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.Dir.Link(ctx, old, name)
}

// TestReleaseMute: a host that says nothing keeps the leases that lie on others from nobody, wherever it is in the order.
func TestReleaseMute(t *testing.T) {
	dir := Dir(t.TempDir())
	var places []Place
	for _, key := range []string{"a", "b", "c", "d"} {
		places = append(places, Place{Name: "host " + key, Key: key, Files: away{dir, key == "b" || key == "d"}})
	}
	s, err := TakeAll(t.Context(), places, claim("anna", "R1"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("it was waited for")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
	defer cancel()
	given, err := s.Release(ctx)
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "host b: ") || !strings.Contains(err.Error(), "host d: ") || !slices.Equal(given, []string{"host a", "host c"}) {
		t.Errorf("%q given back, %v", given, err)
	}
	for _, p := range places {
		p.Files = dir
		if held := look(t, p).Held; held == slices.Contains(given, p.Name) {
			t.Errorf("%s is held: %t", p.Name, held)
		}
	}
}

// noted is a directory that notes what is linked.
type noted struct {
	Dir
	log *[]string
}

func (n noted) Link(ctx context.Context, old, name string) error {
	if !strings.HasSuffix(name, ".free") {
		*n.log = append(*n.log, name)
	}
	return n.Dir.Link(ctx, old, name)
}

// TestOrder: everybody takes places in the order of their keys.
func TestOrder(t *testing.T) {
	var log []string
	var places []Place
	for _, key := range []string{"c", "a", "b"} {
		places = append(places, Place{Name: "host " + key, Key: key, Files: noted{Dir(t.TempDir()), &log}})
	}
	s, err := TakeAll(t.Context(), places, claim("anna", "R1"), Options{})
	if err == nil {
		_, err = s.Release(t.Context())
	}
	if want := []string{"a.1", "b.1", "c.1"}; err != nil || !slices.Equal(log, want) {
		t.Errorf("%v, %v", log, err)
	}
}

// TestSetLost: a set whose lease is taken over says so, without being asked.
func TestSetLost(t *testing.T) {
	p := place(t.TempDir())
	c := claim("anna", "R1")
	c.TTL = 2 * time.Second
	s, err := TakeAll(t.Context(), []Place{p}, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release(context.Background())
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	c = claim("bob", "R2")
	c.Takeover = true
	take(t, p, c)
	select {
	case <-s.Lost():
	case <-time.After(10 * time.Second):
		t.Fatal("it does not notice")
	}
	if err := s.Err(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "bob took it over") {
		t.Errorf("%v", err)
	}
}

// TestCancelled: who gives up waiting holds nothing.
func TestCancelled(t *testing.T) {
	p := place(t.TempDir())
	take(t, p, claim("anna", "R1"))
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	_, err := TakeAll(ctx, []Place{p}, claim("bob", "R2"), Options{Wait: time.Hour, Waiting: func(*HeldError) { cancel(why) }})
	if !errors.Is(err, why) {
		t.Error(err)
	}
}

// BenchmarkTakeAll takes and gives back the leases of 64 hosts, over SSH connections of this
// machine.
func BenchmarkTakeAll(b *testing.B) {
	clients := dial(b, b.TempDir(), 8)
	var places []Place
	for i := range 64 {
		places = append(places, Place{Name: fmt.Sprint("host h", i), Key: fmt.Sprintf("host-h%02d", i), Files: On(clients[i%8], DefaultDir)})
	}
	for b.Loop() {
		s, err := TakeAll(b.Context(), places, claim("anna", "R1"), Options{})
		if err == nil {
			_, err = s.Release(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// counted is a directory in which a file cannot be read, and whose reads are counted.
type counted struct {
	Files
	unreadable string
	reads      atomic.Int64
}

func (c *counted) Read(ctx context.Context, name string) ([]byte, Stamp, error) {
	c.reads.Add(1)
	data, at, err := c.Files.Read(ctx, name)
	if name == c.unreadable && err == nil {
		return nil, at, fs.ErrPermission
	}
	return data, at, err
}

// TestHistoryUnreadable: whoever keeps one file from the others does not keep the rest of the history from them.
func TestHistoryUnreadable(t *testing.T) {
	p := place(t.TempDir())
	for range 3 {
		if err := take(t, p, claim("anna", "R")).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.Files = &counted{Files: p.Files, unreadable: p.file(2)}
	h, err := History(t.Context(), p)
	if err != nil || len(h) != 3 || h[0].Owner != "anna" || h[1].Owner != "unknown" || h[2].Owner != "anna" {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestUnreadable: a file that cannot be read holds a resource for a minute after it was touched, and no reservation at all.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	write := func(name string, age time.Duration) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(at, []byte("{}"), 0o600), os.Chtimes(at, time.Now().Add(-age), time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	reserved := Reservation{From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour), Token: "ABC"}
	write(p.reservation(reserved), 0)
	p.Files = &counted{Files: p.Files, unreadable: p.reservation(reserved)}
	if err := take(t, p, claim("anna", "R")).Release(t.Context()); err != nil {
		t.Error(err)
	}
	write(p.file(7), 0)
	p.Files = &counted{Files: Dir(dir), unreadable: p.file(7)}
	if _, err := Take(t.Context(), p, claim("bob", "S")); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("just now: %v", err)
	}
	write(p.file(7), 2*time.Minute)
	if l := take(t, p, claim("bob", "S")); l.Fencing() != 8 {
		t.Errorf("number %d", l.Fencing())
	}
	if h, err := History(t.Context(), p); err != nil || len(h) != 3 || h[1].Owner != "unknown" {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestTidyMany: files that look like those of writers cost who takes a lease no more than a few reads, and go in the end.
func TestTidyMany(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	old := time.Now().Add(-2 * time.Hour)
	for i := range 3 * mostTidied {
		name := filepath.Join(dir, fmt.Sprintf("%s.tmp-%d", p.Key, i))
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chtimes(name, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	files := &counted{Files: p.Files}
	p.Files = files
	for range 3 {
		before := files.reads.Load()
		if err := take(t, p, claim("anna", "R")).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := files.reads.Load() - before; n > mostTidied+8 {
			t.Errorf("%d files were read", n)
		}
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*.tmp-*")); err != nil || len(names) > 0 {
		t.Errorf("%d are left, %v", len(names), err)
	}
}

// TestTidyGaps: neither a number of which only the second name is left, as of who was killed in between, nor one whose file
// is no lease, nor one that cannot be read, keeps those after it.
func TestTidyGaps(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	old := time.Now().Add(-2 * time.Hour)
	for range keepNumbers + 8 {
		if err := take(t, p, claim("anna", "R")).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(keepNumbers + 8) {
		if err := os.Chtimes(at(p.file(n+1)), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Remove(at(p.file(1))), os.Remove(at(p.file(2))), os.Mkdir(at(p.file(2)), 0o755)); err != nil {
		t.Fatal(err)
	}
	p.Files = &counted{Files: p.Files, unreadable: p.file(3)}
	take(t, p, claim("anna", "R"))
	var left []string
	for n := range uint64(9) {
		for _, name := range []string{p.file(n + 1), p.free(n + 1)} {
			if _, err := os.Lstat(at(name)); err == nil {
				left = append(left, name)
			}
		}
	}
	if want := []string{p.file(2), p.free(2), p.file(3), p.free(3)}; !slices.Equal(left, want) {
		t.Errorf("of the first nine %q are left, want %q", left, want)
	}
}

// severed is a directory whose connection breaks when it has removed so many files.
type severed struct {
	Files
	removals int
}

func (s *severed) Remove(ctx context.Context, name string) error {
	if s.removals == 0 {
		return errors.New("connection lost")
	}
	s.removals--
	return s.Files.Remove(ctx, name)
}

// TestTidyInterrupted: who is interrupted while he tidies leaves nothing that nobody else would tidy.
func TestTidyInterrupted(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	for range keepNumbers + 1 {
		if err := take(t, p, claim("anna", "R")).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, p.file(1)), old, old); err != nil {
		t.Fatal(err)
	}
	l, err := p.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	half := p
	half.Files = &severed{Files: p.Files, removals: 1}
	half.tidy(t.Context(), l, time.Now())
	_, ferr := os.Lstat(filepath.Join(dir, p.file(1)))
	_, err = os.Lstat(filepath.Join(dir, p.free(1)))
	if ferr != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its first name: %v, its second: %v", ferr, err)
	}
}
