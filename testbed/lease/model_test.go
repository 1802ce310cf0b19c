package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
)

// The tests of this file run the protocol with every order in which the operations of
// several controllers on one host can come, and with a controller dying before any of
// them, on a directory in memory whose clock moves when it is told.

// world is a host: its files and its clock.
type world struct {
	files map[string]*inode
	now   int64 // s
	full  bool  // nothing more can be written
	fails []string
}

type inode struct {
	data  []byte
	mtime int64
}

func (w *world) failf(format string, args ...any) {
	w.fails = append(w.fails, fmt.Sprintf(format, args...))
}

// whole checks that no lease's file is half written.
func (w *world) whole() {
	for name, f := range w.files {
		var r Record
		if !strings.Contains(name, ".tmp-") && (json.Unmarshal(f.data, &r) != nil || r.TTL <= 0) {
			w.failf("%s says %q", name, f.data)
		}
	}
}

// actor is a controller: a goroutine that stops before each operation until the explorer
// lets it go on.
type actor struct {
	name    string
	w       *world
	turn    chan bool // true: do it; false: the controller has died
	waits   chan string
	dead    bool
	log     hash.Hash64 // of what it did and saw: with the files, all that its future depends on
	seen    int
	temps   []string // its temporary files, in order: their names are random
	claims  int
	fencing uint64 // of the lease that it believes to have; 0: none
	sure    int64  // host's time of its last renewal
	written int64  // of its last write
}

var errDead = errors.New("the controller has died")

// step waits for the turn and notes the operation.
func (a *actor) step(what string) error {
	if a.dead {
		return errDead
	}
	a.waits <- what
	if !<-a.turn {
		a.dead = true
		return errDead
	}
	return nil
}

func (a *actor) saw(what string, args ...any) {
	text := fmt.Sprintf(what, args...)
	for i, t := range a.temps {
		text = strings.ReplaceAll(text, t, "temp"+strconv.Itoa(i))
	}
	a.seen++
	io.WriteString(a.log, text)
}

func (a *actor) List(context.Context) ([]string, error) {
	if err := a.step("list"); err != nil {
		return nil, err
	}
	var out []string
	for name := range a.w.files {
		if !strings.Contains(name, ".tmp-") { // others' are of no interest to anybody
			out = append(out, name)
		}
	}
	slices.Sort(out)
	a.saw("list %v", out)
	return out, nil
}

func (a *actor) Read(_ context.Context, name string) ([]byte, Stamp, error) {
	if err := a.step("read " + name); err != nil {
		return nil, Stamp{}, err
	}
	f := a.w.files[name]
	if f == nil {
		a.saw("read %s: none", name)
		return nil, Stamp{}, fs.ErrNotExist
	}
	a.saw("read %s: %s %d", name, f.data, f.mtime)
	return f.data, Stamp{At: time.Unix(f.mtime, 0)}, nil
}

func (a *actor) Create(_ context.Context, name string, data []byte) (Stamp, error) {
	if err := a.step("create"); err != nil {
		return Stamp{}, err
	}
	if a.w.files[name] != nil {
		return Stamp{}, fs.ErrExist
	}
	if a.w.full && len(data) > 0 {
		return Stamp{}, syscall.ENOSPC
	}
	a.temps = append(a.temps, name)
	a.w.files[name] = &inode{data, a.w.now}
	if len(data) > 0 {
		a.written = a.w.now
	}
	a.saw("create %s %d", name, a.w.now)
	return Stamp{At: time.Unix(a.w.now, 0)}, nil
}

func (a *actor) Rewrite(_ context.Context, name string, data []byte) (Stamp, error) {
	if err := a.step("rewrite " + name); err != nil {
		return Stamp{}, err
	}
	f := a.w.files[name]
	if f == nil {
		a.saw("rewrite %s: none", name)
		return Stamp{}, fs.ErrNotExist
	}
	if a.w.full && len(data) > len(f.data) {
		return Stamp{}, syscall.ENOSPC
	}
	if string(f.data) != string(data) {
		a.w.failf("%s writes over %s", a.name, name)
	}
	f.data, f.mtime = data, a.w.now
	a.written = a.w.now
	a.saw("rewrite %s %d", name, a.w.now)
	return Stamp{At: time.Unix(a.w.now, 0)}, nil
}

func (a *actor) Link(_ context.Context, old, name string) error {
	if err := a.step("link " + name); err != nil {
		return err
	}
	f := a.w.files[old]
	switch {
	case f == nil:
		a.saw("link %s: none", name)
		return fs.ErrNotExist
	case a.w.files[name] != nil:
		a.saw("link %s: there", name)
		return fs.ErrExist
	}
	a.w.files[name] = f
	a.saw("link %s", name)
	return nil
}

func (a *actor) Remove(_ context.Context, name string) error {
	if err := a.step("remove " + name); err != nil {
		return err
	}
	delete(a.w.files, name)
	a.saw("remove %s", name)
	return nil
}

const modelTTL = 10 // s

// took is a lease that somebody got: between which steps of the world.
type took struct {
	by       string
	from, to int
	fencing  uint64
}

// scene is one run of the actors.
type scene struct {
	w      *world
	actors []*actor
	steps  int
	took   []took
}

func (s *scene) place(a *actor) Place { return Place{Name: "host h1", Key: "host", Files: a} }

// take takes the lease, once.
func (s *scene) take(a *actor, takeover bool) *Lease {
	from := s.steps
	a.claims++
	l, err := Take(context.Background(), s.place(a), Claim{
		Owner: a.name, Run: "run of " + a.name, TTL: modelTTL * time.Second, Token: fmt.Sprintf("%s%d", a.name, a.claims), Takeover: takeover,
	})
	var held *HeldError
	if err != nil && !errors.As(err, &held) && !errors.Is(err, errDead) && !errors.Is(err, syscall.ENOSPC) {
		s.w.failf("%s: %v", a.name, err)
	}
	if l == nil {
		return nil
	}
	if !a.dead { // it may have died in the tidying, and never know
		a.fencing, a.sure = l.Fencing(), a.written
		s.took = append(s.took, took{a.name, from, s.steps, a.fencing})
	}
	return l
}

func (s *scene) renew(a *actor, l *Lease) {
	from := s.steps
	err := l.Renew(context.Background())
	for _, x := range s.took {
		if err == nil && x.fencing > l.Fencing() && x.to <= from {
			s.w.failf("%s has renewed %d, which %s has followed with %d", a.name, l.Fencing(), x.by, x.fencing)
		}
	}
	switch {
	case errors.Is(err, ErrLost):
		a.fencing = 0
	case err == nil:
		a.sure = a.written
	}
}

func (s *scene) release(a *actor, l *Lease) {
	a.fencing = 0
	if err := l.Release(context.Background()); err != nil && !errors.Is(err, errDead) {
		s.w.failf("%s: %v", a.name, err)
	}
}

// believers are the actors that use the resource now.
func (s *scene) believers() (out []string) {
	for _, a := range s.actors {
		if !a.dead && a.fencing > 0 && s.w.now <= a.sure+modelTTL {
			out = append(out, fmt.Sprintf("%s with %d", a.name, a.fencing))
		}
	}
	return out
}

// model is a world to explore.
type model struct {
	scripts  []func(*scene, *actor)
	deaths   int  // controllers that may die
	jumps    int  // times that the clock may go on by more than a time to live
	takeover bool // more than one may believe, for as long as one has not asked
	full     bool // the disk may become full, at any time
	large    bool // not for short mode
}

// run runs the scripts in the order that choices say and then in the first that there is.
// It returns how many choices there were at each step, and stops at a state that seen
// has.
func (m model) run(t *testing.T, choices []int, seen map[uint64]bool) (counts []int) {
	s := &scene{w: &world{files: map[string]*inode{}, now: 1000}}
	for i, script := range m.scripts {
		a := &actor{name: string(rune('A' + i)), w: s.w, turn: make(chan bool), waits: make(chan string), log: fnv.New64a()}
		s.actors = append(s.actors, a)
		go func() {
			script(s, a)
			close(a.waits)
		}()
	}
	at := make([]string, len(s.actors)) // what each waits to do; "": it has ended
	for i, a := range s.actors {
		at[i] = <-a.waits
	}
	deaths, jumps, full := m.deaths, m.jumps, m.full
	var trace []string
	for {
		var options []string
		for i := range s.actors {
			if at[i] != "" {
				options = append(options, fmt.Sprintf("go %d", i))
				if deaths > 0 {
					options = append(options, fmt.Sprintf("die %d", i))
				}
			}
		}
		if len(options) > 0 && jumps > 0 {
			options = append(options, "jump")
		}
		if len(options) > 0 && full {
			options = append(options, "full")
		}
		if len(options) == 0 {
			break
		}
		choice := 0
		if s.steps < len(choices) {
			choice = choices[s.steps]
		} else {
			if h := s.hash(at, deaths, jumps, full); seen[h] {
				s.abandon(at)
				return counts
			} else {
				seen[h] = true
			}
		}
		counts = append(counts, len(options))
		var what string
		i := 0
		fmt.Sscanf(options[choice], "%s %d", &what, &i)
		switch what {
		case "go", "die":
			trace = append(trace, fmt.Sprintf("%s %ss: %s", s.actors[i].name, what, at[i]))
			if what == "die" {
				deaths--
			}
			s.actors[i].turn <- what == "go"
			at[i] = <-s.actors[i].waits
		case "jump":
			trace = append(trace, "time passes")
			jumps--
			s.w.now += modelTTL + 1
		case "full":
			trace = append(trace, "the disk is full")
			full, s.w.full = false, true
		}
		s.steps++
		s.w.whole()
		if b := s.believers(); len(b) > 1 && !m.takeover {
			s.w.failf("%s at once", strings.Join(b, " and "))
		}
		if len(s.w.fails) > 0 {
			break
		}
	}
	s.abandon(at)
	for i, x := range s.took {
		for _, y := range s.took[i+1:] {
			if x.fencing == y.fencing || x.to <= y.from && x.fencing > y.fencing {
				s.w.failf("fencing number %d of %s, then %d of %s", x.fencing, x.by, y.fencing, y.by)
			}
		}
	}
	if len(s.w.fails) == 0 {
		s.afterwards(m)
	}
	if len(s.w.fails) > 0 {
		t.Fatalf("%s\n%s", strings.Join(s.w.fails, "\n"), strings.Join(trace, "\n"))
	}
	return counts
}

// afterwards: whatever has happened, once the time of all is over somebody else gets the
// resource, with a number that nobody had.
func (s *scene) afterwards(m model) {
	s.w.now += modelTTL + 1
	s.w.full = false
	a := &actor{name: "Z", w: s.w, turn: make(chan bool), waits: make(chan string, 1), log: fnv.New64a()}
	go func() {
		for range a.waits {
			a.turn <- true
		}
	}()
	s.actors = append(s.actors, a)
	l := s.take(a, false)
	close(a.waits)
	if l == nil {
		s.w.failf("nobody can have it any more")
		return
	}
	for _, x := range s.took[:len(s.took)-1] {
		if x.fencing >= l.Fencing() {
			s.w.failf("fencing number %d after %d", l.Fencing(), x.fencing)
		}
	}
}

// abandon ends the actors that have not ended.
func (s *scene) abandon(at []string) {
	for i, a := range s.actors {
		for at[i] != "" {
			a.turn <- false
			at[i] = <-a.waits
		}
	}
}

// hash is the state of everything that the future depends on.
func (s *scene) hash(at []string, deaths, jumps int, full bool) uint64 {
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(s.w.files)) {
		if !strings.Contains(name, ".tmp-") {
			fmt.Fprintln(h, name, string(s.w.files[name].data), s.w.files[name].mtime)
		}
	}
	fmt.Fprintln(h, s.w.now, s.w.full, deaths, jumps, full)
	for i, a := range s.actors {
		fmt.Fprintln(h, a.dead, at[i] == "", a.seen, a.log.Sum64())
	}
	for _, x := range s.took {
		fmt.Fprintln(h, x.by, x.fencing)
	}
	return h.Sum64()
}

// explore runs everything that can happen.
func (m model) explore(t *testing.T, limit int) {
	seen := map[uint64]bool{}
	var choices []int
	runs := 0
	for ; ; runs++ {
		if runs > limit {
			t.Fatalf("more than %d runs: the model has become too large to explore", limit)
		}
		counts := m.run(t, choices, seen)
		for len(choices) < len(counts) {
			choices = append(choices, 0)
		}
		choices = choices[:len(counts)]
		i := len(counts) - 1
		for i >= 0 && choices[i]+1 >= counts[i] {
			i--
		}
		if i < 0 {
			break
		}
		choices = append(choices[:i:i], choices[i]+1)
	}
	t.Logf("%d states in %d runs", len(seen), runs)
}

func TestEverything(t *testing.T) {
	once := func(s *scene, a *actor) {
		if l := s.take(a, false); l != nil {
			s.release(a, l)
		}
	}
	hold := func(s *scene, a *actor) {
		if l := s.take(a, false); l != nil {
			s.renew(a, l)
			s.release(a, l)
		}
	}
	twice := func(s *scene, a *actor) { once(s, a); once(s, a) }
	over := func(s *scene, a *actor) {
		if l := s.take(a, true); l != nil && !a.dead {
			s.renew(a, l)
		}
	}
	// janitor removes every number but the highest at once, as tidy does late.
	janitor := func(s *scene, a *actor) {
		l, err := s.place(a).list(context.Background())
		if err != nil {
			return
		}
		for _, n := range l.numbers {
			if n < l.top() {
				_ = a.Remove(context.Background(), s.place(a).file(n))
				_ = a.Remove(context.Background(), s.place(a).free(n))
			}
		}
	}
	type scripts = []func(*scene, *actor)
	for name, m := range map[string]model{
		"two controllers":              {scripts: scripts{twice, twice}, large: true},
		"time passes":                  {scripts: scripts{hold, once}, jumps: 2},
		"a controller dies":            {scripts: scripts{once, once}, deaths: 1, jumps: 1, large: true},
		"both die":                     {scripts: scripts{once, once}, deaths: 2},
		"takeover":                     {scripts: scripts{hold, over}, takeover: true},
		"takeover and death":           {scripts: scripts{hold, over}, takeover: true, deaths: 1},
		"full disk":                    {scripts: scripts{hold, once}, full: true},
		"old numbers are tidied away":  {scripts: scripts{once, twice, janitor}, large: true},
		"three controllers, one dying": {scripts: scripts{once, once, once}, deaths: 1, large: true},
	} {
		t.Run(name, func(t *testing.T) {
			if !proof.Wanted() {
				if m.large {
					t.Skip("short: the smaller models run the same code")
				}
				m.jumps = min(m.jumps, 1)
			}
			t.Parallel()
			m.explore(t, 400_000)
		})
	}
}

// TestModelNoticesFaults checks that the explorer can fail at all: with a link that writes
// over what is there, two controllers have the lease at once.
func TestModelNoticesFaults(t *testing.T) {
	s := &scene{w: &world{files: map[string]*inode{}, now: 1000}}
	for _, name := range []string{"A", "B"} {
		s.actors = append(s.actors, &actor{name: name, w: s.w, fencing: 1, sure: 1000})
	}
	if got := s.believers(); len(got) != 2 {
		t.Errorf("%v", got)
	}
	s.w.now += modelTTL + 1
	if got := s.believers(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	s.w.files["host.1"] = &inode{data: []byte(`{"owner":`)}
	if s.w.whole(); len(s.w.fails) != 1 {
		t.Errorf("half a file: %q", s.w.fails)
	}
}
