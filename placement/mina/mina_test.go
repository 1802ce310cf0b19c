package mina

import (
	"errors"
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
)

var seed = flag.Uint64("seed", 1, "of random jobs")

func cluster(t testing.TB, cfg Config) *Allocator {
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tiny has four hosts, two below each of two leaf switches, and a spine above these: three
// HDR switches.
func tiny(t testing.TB, cfg Config) *Allocator {
	cfg.Down, cfg.Up, cfg.PerSwitch, cfg.PerLink = []int{2, 2}, []int{1, 1}, 1, tree.Unlimited
	return cluster(t, cfg)
}

func trees(t testing.TB, a *Allocator) Change {
	c, err := a.Trees(func(int) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestByHand(t *testing.T) {
	a := tiny(t, Config{})
	hosts, err := a.Place(7, 2, 1, 0)
	if err != nil || !slices.Equal(hosts, []int{0, 1}) || a.Free() != 2 || a.FreeFragments() != 1 {
		t.Fatalf("%v, %v", hosts, err)
	}
	if c := trees(t, a); !reflect.DeepEqual(c, Change{Moves: []Move{{7, tree.None, 0}}, Jobs: 1, Several: 1, With: 1, Alone: 1, Optimal: true}) {
		t.Errorf("%+v", c)
	}
	if tr, ok := a.Tree(7); !ok || !slices.Equal(tr.Switches, []int{0}) || len(tr.Links) != 2 {
		t.Errorf("%+v", tr)
	}
	// Two jobs on both sides of the spine want all three switches, and share them.
	a.Remove(7)
	if err := errors.Join(a.Put(1, []int{2, 0}, 1, 0), a.Put(2, []int{1, 3}, 1, 0)); err != nil {
		t.Fatal(err)
	}
	c := trees(t, a)
	one, _ := a.Job(1)
	two, _ := a.Job(2)
	if c.Alone != 1 || c.With != 2 || one.Group != two.Group || !slices.Equal(one.Rivals, []int{2}) || !slices.Equal(two.Rivals, []int{1}) || !slices.Equal(one.Hosts, []int{0, 2}) {
		t.Errorf("%+v: %+v, %+v", c, one, two)
	}
	if err := a.Remove(2); err != nil {
		t.Fatal(err)
	}
	if one, _ = a.Job(1); len(one.Rivals) != 0 || one.Root != 0 {
		t.Errorf("when 2 has left: %+v", one)
	}
	if _, ok := a.Tree(2); ok {
		t.Error("a tree of a job that has left")
	}
}

// What is down is part of no tree; the others go on.
func TestDown(t *testing.T) {
	a := tiny(t, Config{})
	spine, link := a.Fabric().Switch(2, 0, 0), a.Fabric().Link(1, 3, 0)
	if err := errors.Join(a.Put(1, []int{0, 2}, 1, 0), a.Put(2, []int{1}, 1, 0)); err != nil {
		t.Fatal(err)
	}
	trees(t, a)
	if err := a.SetResource(spine, true); err != nil {
		t.Fatal(err)
	}
	if c := trees(t, a); !reflect.DeepEqual(c.Moves, []Move{{1, 0, tree.None}}) || !slices.Equal(c.Blocked, []int{1}) {
		t.Errorf("without a spine: %+v", c)
	}
	if err := errors.Join(a.SetResource(spine, false), a.SetResource(link, true)); err != nil {
		t.Fatal(err)
	}
	if c := trees(t, a); !reflect.DeepEqual(c.Moves, []Move{{1, tree.None, 0}}) || c.Blocked != nil {
		t.Errorf("with it again: %+v", c)
	}
}

// The baseline of the paper asks once; that of its authors' code lets those share who find
// a tree idle.
func TestFirst(t *testing.T) {
	a := tiny(t, Config{Trees: First})
	if err := errors.Join(a.Put(1, []int{0, 2}, 1, 0), a.Put(2, []int{1, 3}, 1, 0)); err != nil {
		t.Fatal(err)
	}
	if c := trees(t, a); c.With != 1 || c.Alone != 1 {
		t.Errorf("%+v", c)
	}
	a.Remove(1)
	if c := trees(t, a); c.With != 0 {
		t.Errorf("one that was refused has a tree now: %+v", c)
	}

	a = tiny(t, Config{Trees: FirstIdle})
	if err := errors.Join(a.Put(1, []int{0, 2}, 1, 0), a.Put(2, []int{1, 3}, 1, 0)); err != nil {
		t.Fatal(err)
	}
	if c := trees(t, a); c.With != 2 || c.Alone != 0 || len(a.Jobs()[0].Rivals) != 1 {
		t.Errorf("%+v", c)
	}
	a.Remove(2)
	if err := a.Put(3, []int{1, 3}, 1, 0); err != nil {
		t.Fatal(err)
	}
	if c, err := a.Trees(func(id int) bool { return id == 1 }); err != nil || c.With != 1 {
		t.Errorf("beside one that passes data: %+v, %v", c, err)
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want error
	}{
		{Config{PerSwitch: 1}, ErrCapacity},
		{Config{PerSwitch: -1, PerLink: 1}, ErrCapacity},
		{Config{Trees: 7}, nil},
		{Config{Options: tree.Options{K: -1}}, nil},
		{Config{Down: []int{2}}, nil},
		{Config{Down: []int{1 << 22}, Up: []int{1}}, fragment.ErrTooLarge},
	} {
		if a, err := New(tt.cfg); a != nil || err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v", tt.cfg, err)
		}
	}
	a := tiny(t, Config{})
	if err := a.Put(1, []int{0}, 1, 0); err != nil {
		t.Fatal(err)
	}
	place := func(id, n int) error {
		_, err := a.Place(id, n, 1, 0)
		return err
	}
	for _, tt := range []struct{ got, want error }{
		{place(1, 1), ErrTwice},
		{place(2, 0), fragment.ErrRequest},
		{place(2, 5), fragment.ErrTooLarge},
		{place(2, 4), fragment.ErrNoRoom},
		{a.Put(1, []int{2}, 1, 0), ErrTwice},
		{a.Put(2, []int{2, 0}, 1, 0), fragment.ErrHost},
		{a.Put(2, nil, 1, 0), fragment.ErrRequest},
		{a.Remove(2), ErrJob},
		{a.SetResource(100, true), ErrResource},
	} {
		if !errors.Is(tt.got, tt.want) {
			t.Errorf("%v, want %v", tt.got, tt.want)
		}
	}
	if a.Free() != 3 || len(a.Jobs()) != 1 {
		t.Errorf("%d free, %+v", a.Free(), a.Jobs())
	}
}

// Whatever comes, leaves, breaks and is mended: hosts have one job at most, trees lead
// through what works, those who are nobody's rivals never want what is not enough, and the
// same calls give the same trees.
func TestRandomCalls(t *testing.T) {
	t.Logf("-seed %d", *seed)
	for n := range uint64(20) {
		r := rand.New(rand.NewPCG(*seed, n))
		cfg := Config{Down: []int{2, 4, 4}, Up: []int{1, 2, 4}, Trees: Trees(r.IntN(3)),
			PerSwitch: []int{1, 2, tree.Unlimited}[r.IntN(3)], PerLink: 1 + r.IntN(2),
			Options: tree.Options{K: r.IntN(4), Weighted: r.IntN(2) == 0, Sharing: tree.Sharing(r.IntN(4)), Load: float64(r.IntN(2))}}
		a, b := cluster(t, cfg), cluster(t, cfg)
		down := map[int]bool{} // by resource
		both := func(call func(a *Allocator) error) error {
			x, y := call(a), call(b)
			if (x == nil) != (y == nil) {
				t.Fatalf("%v and %v", x, y)
			}
			return x
		}
		moved := 0
		for id := range 150 {
			switch r.IntN(8) {
			default:
				n, gain := 1+r.IntN(8), r.Float64()
				if err := both(func(a *Allocator) error { _, err := a.Place(id, n, gain, gain/2); return err }); err != nil && !errors.Is(err, fragment.ErrNoRoom) {
					t.Fatal(err)
				}
			case 0, 1, 2:
				if len(a.Jobs()) > 0 {
					out := a.Jobs()[r.IntN(len(a.Jobs()))].ID
					if err := both(func(a *Allocator) error { return a.Remove(out) }); err != nil {
						t.Fatal(err)
					}
				}
			case 3:
				u, broken := r.IntN(a.Fabric().Resources()), r.IntN(3) == 0
				down[u] = broken
				if err := both(func(a *Allocator) error { return a.SetResource(u, broken) }); err != nil {
					t.Fatal(err)
				}
			}
			before := map[int]int{}
			for _, j := range a.Jobs() {
				before[j.ID] = j.Root
			}
			busy := func(id int) bool { return id%2 == 0 }
			c, err := a.Trees(busy)
			if err != nil {
				t.Fatal(err)
			}
			again, err := b.Trees(busy)
			if err != nil || !reflect.DeepEqual(c, again) || !reflect.DeepEqual(a.Jobs(), b.Jobs()) {
				t.Fatalf("%+v, and the same calls again %+v, %v", c, again, err)
			}
			moved += c.Migrated
			for _, m := range c.Moves {
				if before[m.ID] != m.From {
					t.Errorf("%+v, it had %d", m, before[m.ID])
				}
				before[m.ID] = m.To
			}
			taken, users := map[int]int{}, map[int32][]int{}
			for i, j := range a.Jobs() {
				if before[j.ID] != j.Root {
					t.Errorf("job %d has %d, which no move says", j.ID, j.Root)
				}
				for _, h := range j.Hosts {
					if _, twice := taken[h]; twice {
						t.Fatalf("host %d has jobs %d and %d", h, taken[h], j.ID)
					}
					taken[h] = j.ID
				}
				tr, ok := a.Tree(j.ID)
				if !ok {
					continue
				}
				for _, u := range append(tr.Switches, tr.Links...) {
					if down[u] {
						t.Errorf("job %d has %s, which is down", j.ID, a.Fabric().Describe(u))
					}
				}
				uses, err := a.Uses(nil, j.Hosts, j.Root)
				if err != nil {
					t.Fatal(err)
				}
				for _, u := range uses {
					users[u] = append(users[u], i)
				}
			}
			capacity := a.Fabric().Capacity(cfg.PerSwitch, cfg.PerLink)
			for u, jobs := range users {
				// However many of them are no rivals, they fit.
				together := 0
				for _, i := range jobs {
					free := true
					for _, k := range jobs {
						free = free && !slices.Contains(a.Jobs()[i].Rivals, a.Jobs()[k].ID)
					}
					if free {
						together++
					}
				}
				if together > int(capacity[u]) {
					t.Fatalf("%d jobs that are no rivals on %s", together, a.Fabric().Describe(int(u)))
				}
			}
		}
		if cfg.Trees != Packed && moved > 0 {
			t.Errorf("the baseline moved %d trees", moved)
		}
	}
}

// BenchmarkAllocator is a job that comes to 1,024 hosts half full, with its tree, and goes.
func BenchmarkAllocator(b *testing.B) {
	a := cluster(b, Config{Options: tree.Options{K: 5}})
	r := rand.New(rand.NewPCG(1, 2))
	for id := 0; a.Free() > 512; id++ {
		if _, err := a.Place(id, 1+r.IntN(16), 1, 0); err != nil {
			b.Fatal(err)
		}
	}
	trees(b, a)
	for b.Loop() {
		if _, err := a.Place(-1, 64, 1, 0); err != nil {
			b.Fatal(err)
		}
		trees(b, a)
		if err := a.Remove(-1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(a.Jobs())), "jobs")
}
