package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
	"github.com/inabench/inabench/testbed/switches"
)

// noFabric is of a lab that somebody else takes down.
type noFabric struct{ testbed.Fabric }

func (noFabric) Close(context.Context) error { return nil }

// gone is a client of a switch that has a job of it, and then takes connections and says nothing.
func gone(t *testing.T, name string) dataplane.Switch {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "p4")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- softswitch.ServeP4(ctx, lis, 1, softswitchtest.NewMemory()) }()
	c, err := p4rt.Dial(t.Context(), name, "unix:"+socket, 1, p4rt.Options{})
	if err == nil {
		err = c.Push(t.Context(), dataplane.Pipeline{Info: p4.Info()})
	}
	if err == nil {
		job := ina.JobEntry{Job: 1, Epoch: 1, Mode: ina.Statistical, Size: 8, Expect: 3, Window: 8, UpPort: 4, DownGroup: 1}
		err = c.Write(t.Context(), dataplane.Batch{Jobs: []ina.JobEntry{job}})
	}
	stop()
	if err := errors.Join(err, <-served); err != nil {
		t.Fatal(err)
	}
	<-c.Lost()
	silent, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() }) // the kernel takes connections
	return c
}

// Many switches that are out of reach take an interrupted run no longer than one, whatever it has come to before, and each
// is named.
func TestTeardownOfLostSwitches(t *testing.T) {
	const switches = 12
	tb := &Testbed{opt: Options{Shared: true, Fan: 4, Patience: defaultPatience, Fabric: noFabric{}}, planes: map[string]dataplane.Switch{}}
	entries := map[string]*dataplane.Batch{}
	for i := range switches {
		name := fmt.Sprintf("tor%d", i)
		tb.planes[name] = gone(t, name)
		entries[name] = &dataplane.Batch{Jobs: []ina.JobEntry{{Job: 1, Epoch: 1, DownGroup: 1}}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now().Add(-4 * time.Second) // so much of each stage is over
	jobs, done := tb.parting(ctx, began).until(leaveJobs)
	defer done()
	err := errors.Join(tb.Forget(jobs, entries), tb.Close(ctx))
	if took := time.Since(began); took > leaveLeases+10*time.Second { // of a machine that is busy
		t.Errorf("it took %v", took)
	}
	if !errors.Is(err, testbed.ErrLeftovers) {
		t.Errorf("%v", err)
	}
	for name := range entries {
		if !strings.Contains(err.Error(), "switch "+name+":") {
			t.Errorf("no word of %s: %v", name, err)
		}
	}
}

// A switch that somebody took without its lease is not said to be as it was.
func TestTeardownOfTakenSwitch(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "p4")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go softswitch.ServeP4(t.Context(), lis, 1, softswitchtest.NewMemory())
	dial := func() *p4rt.Client {
		c, err := p4rt.Dial(t.Context(), "tor1", "unix:"+socket, 1, p4rt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := dial()
	if err := errors.Join(c.Push(t.Context(), dataplane.Pipeline{Info: p4.Info()}), c.Write(t.Context(), dataplane.Batch{Routes: []p4.Route{{Dst: [4]byte{10, 0, 0, 1}, Port: 1}}})); err != nil {
		t.Fatal(err)
	}
	rival := dial() // bids later, and so with a higher id
	defer rival.Close(t.Context())
	<-c.Lost()
	tb := &Testbed{opt: Options{Shared: true, Fan: 4, Patience: defaultPatience, Fabric: noFabric{}}, planes: map[string]dataplane.Switch{"tor1": c}}
	if err := tb.Close(t.Context()); !errors.Is(err, testbed.ErrLeftovers) || !errors.Is(err, dataplane.ErrNotPrimary) || !strings.Contains(err.Error(), "switch tor1") {
		t.Errorf("%v", err)
	}
}

// plain is a switch that a script drives; stuck is why it cannot be changed back.
type plain struct {
	switches.Switch
	stuck error
}

func (p plain) Close(context.Context) error { return p.stuck }

// What could not be changed back stays leased, for who cleans up, until that lapses.
func TestTeardownKeepsLeases(t *testing.T) {
	dir := t.TempDir()
	place := func(name string) lease.Place {
		return lease.Place{Name: "switch " + name, Key: name, Files: lease.Dir(dir)}
	}
	log, err := journal.Open(t.TempDir(), journal.Header{Run: "run", Owner: "me", Began: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	tb := &Testbed{
		opt:      Options{Shared: true, Fan: 4, Patience: defaultPatience, Fabric: noFabric{}, Hold: Hold{Journal: log}},
		switches: map[string]switches.Switch{"s1": plain{}, "s2": plain{stuck: errors.New("its script fails")}},
	}
	for _, name := range []string{"s1", "s2"} {
		tb.leased = append(tb.leased, &journal.Change{Target: "switch " + name, What: "take the lease", Undo: journal.Inverse{Lease: &journal.Lease{Token: "token"}}})
	}
	tb.held, err = lease.TakeAll(t.Context(), []lease.Place{place("s1"), place("s2")}, lease.Claim{Owner: "me", Run: "run", Token: "token", TTL: time.Minute}, lease.Options{})
	if err := errors.Join(err, log.Begin(tb.leased...)); err != nil {
		t.Fatal(err)
	}
	if err := tb.Close(t.Context()); !errors.Is(err, testbed.ErrLeftovers) || !strings.Contains(err.Error(), "its script fails") {
		t.Errorf("%v", err)
	}
	for name, want := range map[string]bool{"s1": false, "s2": true} {
		if s, err := lease.Look(t.Context(), place(name)); err != nil || s.Held != want {
			t.Errorf("%s is held: %t, %v", name, s.Held, err)
		}
	}
	if left := log.Log().Undone(); len(left) != 1 || left[0].Target != "switch s2" {
		t.Errorf("the journal has %+v", left)
	}
}

// away is where leases lie on a host, which is asked for no longer than somebody waits. A mute one says nothing any more when
// a lease is to be given back.
type away struct {
	lease.Dir
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

// A host that says nothing keeps its own leases, and the others are given back, and known to be.
func TestTeardownBesideMuteHost(t *testing.T) {
	log, err := journal.Open(t.TempDir(), journal.Header{Run: "run", Owner: "me", Began: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	tb := &Testbed{opt: Options{Shared: true, Hold: Hold{Journal: log}}}
	dir := lease.Dir(t.TempDir())
	places := []lease.Place{
		{Name: "host h1", Key: "host-h1", Files: away{dir, false}}, {Name: "host h2", Key: "host-h2", Files: away{dir, false}}, {Name: "switch s1", Key: "switch-1", Files: away{dir, true}},
	}
	for _, p := range places {
		tb.leased = append(tb.leased, &journal.Change{Target: p.Name, What: "take the lease", Undo: journal.Inverse{Lease: &journal.Lease{Token: "token"}}})
	}
	tb.held, err = lease.TakeAll(t.Context(), places, lease.Claim{Owner: "me", Run: "run", Token: "token", TTL: time.Minute}, lease.Options{})
	if err := errors.Join(err, log.Begin(tb.leased...)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := tb.giveBack(ctx, []string{"host h2"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	for i, want := range []bool{false, true, true} {
		if s, err := lease.Look(t.Context(), places[i]); err != nil || s.Held != want {
			t.Errorf("%s is held: %t, %v", places[i].Name, s.Held, err)
		}
	}
	var left []string
	for _, e := range log.Log().Undone() {
		left = append(left, e.Target)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"host h2", "switch s1"}) {
		t.Errorf("the journal has %q", left)
	}
}

// What is torn down is all asked, also when the time is over, and in an emulation nobody minds.
func TestEvery(t *testing.T) {
	var want []string
	err := parallel.Every(3, 20, func(i int) error {
		if i%7 == 0 {
			return fmt.Errorf("%d is stuck", i)
		}
		return nil
	})
	for i := 0; i < 20; i += 7 {
		want = append(want, fmt.Sprintf("%d is stuck", i))
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("%v, want %q", err, want)
	}
}

// A run that was interrupted has one time for everything; another one begins anew with each deployment.
func TestParting(t *testing.T) {
	tb := &Testbed{}
	now := time.Now()
	ends := func(ctx context.Context, now time.Time, stage time.Duration) time.Duration {
		ctx, cancel := tb.parting(ctx, now).until(stage)
		defer cancel()
		end, _ := ctx.Deadline()
		return end.Sub(now)
	}
	if d := ends(t.Context(), now, leaveJobs); d != slowly*leaveJobs {
		t.Errorf("it has %v", d)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, passed := range []time.Duration{0, 4 * time.Second, 30 * time.Second} {
		if d := ends(over, now.Add(passed), leaveSwitches); d != leaveSwitches-passed {
			t.Errorf("after %v it has %v", passed, d)
		}
	}
}

// TestWhole: a script has the time that it says, however short the stage is in which it clears its switch, and what comes after it
// has all of its own. Where somebody waits neither does.
func TestWhole(t *testing.T) {
	now := time.Now()
	stage, cancel := context.WithDeadline(t.Context(), now.Add(time.Minute))
	defer cancel()
	for slow, c := range map[time.Duration]struct {
		script time.Duration // has so long at least, and less than a minute more
		late   time.Duration // later, of five minutes, are the next stages
	}{slowly: {longest, 5 * time.Minute}, 1: {time.Minute, 0}} {
		p := parting{ctx: t.Context(), began: now, slow: slow}
		ctx, cancel := p.whole(stage)
		end, ok := ctx.Deadline()
		cancel()
		if has := end.Sub(now); !ok || has < c.script || has > c.script+time.Minute {
			t.Errorf("%d times as slow: a script has %v, want %v", slow, has, c.script)
		}
		over := now.Add(slow*leaveSwitches + 5*time.Minute)
		if late := p.after(leaveSwitches, over).began.Sub(now); late != c.late {
			t.Errorf("%d times as slow: what comes after it begins %v later, want %v", slow, late, c.late)
		}
		if late := p.after(leaveSwitches, now).began.Sub(now); late != 0 {
			t.Errorf("%d times as slow: after a short one it begins %v later", slow, late)
		}
	}
}
