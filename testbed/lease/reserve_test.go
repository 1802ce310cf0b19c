package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ahead is a reservation of an owner, so many minutes from now.
func ahead(owner string, from, until int) Reservation {
	at := func(minutes int) time.Time { return time.Now().Add(time.Duration(minutes) * time.Minute) }
	return Reservation{Owner: owner, Reason: "demo", From: at(from), Until: at(until)}
}

func reserveAt(t *testing.T, p Place, r Reservation) Reservation {
	t.Helper()
	r, err := Reserve(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestReserve: a time is one person's, and one that can be.
func TestReserve(t *testing.T) {
	p := place(t.TempDir())
	reserveAt(t, p, ahead("anna", 60, 120))
	for _, tt := range []struct {
		name string
		r    Reservation
		want string // of the error; empty: none
	}{
		{"before", ahead("bob", 10, 60), ""},
		{"after", ahead("bob", 120, 180), ""},
		{"its end", ahead("bob", 119, 130), "is reserved for anna"},
		{"its beginning", ahead("bob", 50, 61), `is reserved for anna for "demo" from 20`},
		{"all of it", ahead("carol", 1, 1000), "is reserved for bob"},
		{"inside", ahead("bob", 80, 90), "is reserved for anna"},
		{"her own", ahead("anna", 80, 150), "is reserved for bob"},
		{"her own, once more", ahead("anna", 80, 110), ""},
		{"yesterday", ahead("dave", -1440, -1400), "cannot be reserved: it is 20"},
		{"the other way round", ahead("dave", 500, 400), "cannot be reserved"},
		{"no time", ahead("dave", 500, 500), "cannot be reserved"},
		{"in two years", ahead("dave", 2*366*1440, 2*366*1440+1), "more than a year ahead"},
	} {
		_, err := Reserve(t.Context(), p, tt.r)
		switch {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		case strings.HasPrefix(tt.want, "is reserved") != errors.Is(err, ErrHeld):
			t.Errorf("%s: %v, which is another kind of error", tt.name, err)
		}
	}
	if s := look(t, p); s.Held || len(s.Reserved) != 4 || !s.Reserved[0].From.Before(s.Reserved[1].From) {
		t.Errorf("%+v", s)
	}
	gone, err := Cancel(t.Context(), p, "bob")
	if err != nil || len(gone) != 2 || len(look(t, p).Reserved) != 2 {
		t.Errorf("%v, %v", gone, err)
	}

	// A lock that lasts for so long is as good; a run renews its lease, and says how long it takes.
	l := take(t, p, Claim{Owner: "erin", TTL: 50 * time.Minute})
	if _, err := Reserve(t.Context(), p, ahead("dave", 45, 55)); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "held by erin") {
		t.Errorf("into a lock: %v", err)
	}
	if _, err := Reserve(t.Context(), p, ahead("dave", 51, 55)); err != nil {
		t.Error(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReserveLocked: a lock keeps others out also while a run of the same person lies on it.
func TestReserveLocked(t *testing.T) {
	p := place(t.TempDir())
	take(t, p, Claim{Owner: "erin", TTL: 50 * time.Minute})
	take(t, p, Claim{Owner: "erin", Run: "R", TTL: time.Minute})
	_, err := Reserve(t.Context(), p, ahead("dave", 45, 55))
	if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "held by erin since") || !strings.HasSuffix(err.Error(), "for 50m more") {
		t.Errorf("into the lock: %v", err)
	}
	for _, r := range []Reservation{ahead("dave", 51, 55), ahead("erin", 45, 50)} {
		if _, err := Reserve(t.Context(), p, r); err != nil {
			t.Errorf("%s: %v", r.Owner, err)
		}
	}
	if s := look(t, p); s.Run != "R" || len(s.Reserved) != 2 {
		t.Errorf("%+v", s)
	}
}

// unheard is a directory whose answers to links do not come.
type unheard struct{ Files }

func (u unheard) Link(ctx context.Context, old, name string) error {
	return errors.Join(u.Files.Link(ctx, old, name), errors.New("no answer"))
}

// TestReserveUnheard: a reservation that nobody heard of is not there.
func TestReserveUnheard(t *testing.T) {
	p := place(t.TempDir())
	deaf := p
	deaf.Files = unheard{p.Files}
	if _, err := Reserve(t.Context(), deaf, ahead("anna", 60, 120)); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("%v", err)
	}
	if s := look(t, p); len(s.Reserved) != 0 {
		t.Errorf("%+v", s.Reserved)
	}
}

// TestReserved: who comes must have done by then.
func TestReserved(t *testing.T) {
	ctx := t.Context()
	p := place(t.TempDir())
	reserveAt(t, p, ahead("anna", 30, 60))
	now := place(t.TempDir())
	reserveAt(t, now, ahead("anna", -1, 60))
	for _, tt := range []struct {
		name string
		p    Place
		c    Claim
		want string
	}{
		{"short", p, Claim{Owner: "bob", Run: "R", Need: 20 * time.Minute}, ""},
		{"long", p, Claim{Owner: "bob", Run: "R", Need: 40 * time.Minute}, "is reserved for anna for \"demo\" from 20"},
		{"by how much", p, Claim{Owner: "bob", Run: "R", Need: 40 * time.Minute}, ": that is in 30m, and it would be needed for 40m"},
		{"nobody knows how long", p, Claim{Owner: "bob", Run: "R"}, ""},
		{"taken nevertheless", p, Claim{Owner: "bob", Run: "R", Need: 40 * time.Minute, Takeover: true}, ""},
		{"her own run", p, Claim{Owner: "anna", Run: "R", Need: 40 * time.Minute}, ""},
		{"after it has begun", now, Claim{Owner: "bob", Run: "R"}, "is reserved for anna"},
		{"who tidies up", now, Claim{Owner: "bob", Run: "R", Need: -1}, ""},
		{"she herself", now, Claim{Owner: "anna"}, ""},
	} {
		tt.c.TTL = time.Minute
		l, err := Take(ctx, tt.p, tt.c)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if l != nil {
			if err := l.Release(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	l := take(t, p, Claim{Owner: "bob", TTL: time.Minute})
	if _, err := Extend(ctx, p, "bob", time.Hour); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "reserved for anna") {
		t.Errorf("extended into it: %v", err)
	}
	if _, err := Extend(ctx, p, "bob", 10*time.Minute); err != nil {
		t.Error(err)
	}
	if err := l.Renew(ctx); err != nil || l.Overrun() != nil {
		t.Errorf("%v, %v", err, l.Overrun())
	}

	// Of a set, all or none.
	_, err := TakeAll(ctx, []Place{place(t.TempDir()), now}, Claim{Owner: "bob", Run: "R", TTL: time.Minute}, Options{Wait: 10 * time.Millisecond, Poll: time.Millisecond})
	if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "waited for") {
		t.Errorf("%v", err)
	}
}

// TestOverrun: who stays for longer keeps what he has, and is told whose time that is.
func TestOverrun(t *testing.T) {
	p := place(t.TempDir())
	l := take(t, p, claim("bob", "R1"))
	r := ahead("anna", 0, 60)
	r.From = time.Now().Add(1200 * time.Millisecond)
	r = reserveAt(t, p, r)
	own := ahead("bob", 60, 70)
	reserveAt(t, p, own)
	if err := l.Renew(t.Context()); err != nil || l.Overrun() != nil {
		t.Errorf("%v, %+v", err, l.Overrun())
	}
	time.Sleep(time.Until(r.From) + 50*time.Millisecond)
	if err := l.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if o := l.Overrun(); o == nil || o.Owner != "anna" || o.By <= 0 || o.By > time.Minute {
		t.Errorf("%+v", o)
	}
}

// TestReserveRace: of any number who reserve at the same moment, no two have the same time.
func TestReserveRace(t *testing.T) {
	dir := t.TempDir()
	for round := range 20 {
		p := place(filepath.Join(dir, fmt.Sprint(round)))
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				_, err := Reserve(context.Background(), p, ahead(fmt.Sprint("owner", i), 10+5*i, 30+5*i))
				if err != nil && !errors.Is(err, ErrHeld) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		s := look(t, p)
		for i, a := range s.Reserved {
			for _, b := range s.Reserved[:i] {
				if meet(a.From, a.Until, b.From, b.Until) {
					t.Errorf("%+v and %+v", a, b)
				}
			}
		}
		if len(s.Reserved) == 0 {
			t.Error("everybody made way")
		}
	}
}

// TestReservedForeign: what others put beside reservations keeps nobody out.
func TestReservedForeign(t *testing.T) {
	dir := t.TempDir()
	p := place(dir)
	until := time.Now().Add(time.Hour).Unix()
	for name, put := range map[string]func(string) error{
		"a": func(f string) error { return os.Symlink("/dev/zero", f) },
		"b": func(f string) error { return syscall.Mkfifo(f, 0o644) },
		"c": func(f string) error { return os.Mkdir(f, 0o755) },
		"d": func(f string) error { return os.WriteFile(f, []byte("{}"), 0o644) },
		"e": func(f string) error { return os.WriteFile(f, []byte(`{"owner":"eve","token":"e"}`), 0o644) }, // other times
		"f": func(f string) error { return os.WriteFile(f, make([]byte, 1<<20), 0o644) },
		"":  func(f string) error { return os.WriteFile(f, nil, 0o644) },
	} {
		if err := put(filepath.Join(dir, fmt.Sprintf("%s.at-%d-%d-%s", p.Key, until-7200, until, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"at-", "at-1", "at-1-", "at-x-9-z", "at-9-1-z", "at--5-9-z", "at-1-99999999999999999999-z"} {
		if err := os.WriteFile(filepath.Join(dir, p.Key+"."+name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Take(t.Context(), p, claim("bob", "R1"))
	if err != nil {
		t.Fatal(err)
	}
	if s := look(t, p); !s.Held || len(s.Reserved) != 0 {
		t.Errorf("%+v", s.Reserved)
	}
	if err := l.Renew(t.Context()); err != nil || l.Overrun() != nil {
		t.Errorf("%v, %+v", err, l.Overrun())
	}
	// Ever so many are an error that says so, and no holder's loss.
	for i := range mostReserved + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.at-1-%d-%d", p.Key, until, i)), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Look(t.Context(), p); err == nil || !strings.Contains(err.Error(), "somebody put them there, remove them") {
		t.Errorf("%v", err)
	}
	if err := l.Renew(t.Context()); err != nil {
		t.Error(err)
	}
}

func FuzzReserved(f *testing.F) {
	f.Add("at-1764590400-1764597600-TOKEN")
	f.Add("at-1-2-x-y")
	f.Fuzz(func(t *testing.T, rest string) {
		at, ok := parseReserved("key."+rest, rest)
		if !ok || !strings.HasPrefix(rest, reservedMark) {
			return
		}
		if !at.from.Before(at.until) {
			t.Fatalf("%q is from %v until %v", rest, at.from, at.until)
		}
	})
}

// TestReservedNames: what stands in a name is no more than a token, whatever others call their files.
func TestReservedNames(t *testing.T) {
	for rest, want := range map[string]bool{
		"at-1764590400-1764597600-ABCDEF":                     true,
		"at-1764590400-1764597600-ABC\nfree for all":          false,
		"at-1764590400-1764597600-\x1b[2J":                    false,
		"at-1764590400-1764597600-":                           false,
		"at-1764590400-1764597600-a-b":                        false,
		"at-1764590400-1764597600-" + strings.Repeat("A", 65): false,
	} {
		if _, ok := parseReserved("host-h1."+rest, rest); ok != want {
			t.Errorf("%q: %v", rest, ok)
		}
	}
}
