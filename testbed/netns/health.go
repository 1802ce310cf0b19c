package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/stall"
)

// What an emulation may do wrong before the figures are about this machine and not
// about the testbed. Lateness is of a frame's departure, against the shortest round
// trip; it does not accumulate, so a median within its limit moves a rate by less.
const (
	lateMedianLimit = 0.05              // of the RTT; above: fatal
	lateTailNotice  = 0.05              // of the RTT, 99th percentile; above: reported
	lostLimit       = 1e-4              // of all frames, lost by the emulation uncounted; above: fatal
	busyLimit       = 0.90              // of one core, by a switch's thread; above: fatal
	lateTailLimit   = testbed.LateLimit // of the RTT, 99th percentile; above: fatal
	machineLimit    = 0.97              // of all cores; above: reported, as a reason for the others
	slowLimit       = 0.01              // of its rate, that a cable lacks while frames wait for it; above: no cable of the inventory's
)

var errClosed = errors.New("the emulation is closed")

// SetLink changes the damage to one directed link, in the switch process that
// emulates it. It holds for frames that enter the link from then on.
func (f *Fabric) SetLink(ctx context.Context, link string, s testbed.LinkState) error {
	end, ok := f.layout.ports[link]
	if !ok {
		return fmt.Errorf("no link %q", link)
	}
	c := softswitch.Command{Cmd: "impair", Port: end.port, Dir: end.dir(), Impair: softswitch.Impair(s)}
	if _, err := command(ctx, f.procs[end.node], c); err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	return nil
}

// answerTime is how long a switch's process may take to answer: longer than a machine that is busy stands still.
var answerTime = 30 * time.Second

// command has a switch process do something.
func command(ctx context.Context, p *process, c softswitch.Command) (softswitch.Reply, error) {
	var r softswitch.Reply
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("%s has not answered for %v: is its process %d stopped?", p.name, answerTime, p.cmd.Process.Pid))
	defer cancel()
	if err := p.call(ctx, c, &r); err != nil {
		return r, err
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s: %s", p.name, r.Error)
	}
	return r, nil
}

// Health reports hosts and switches that have died, and what the switches did too
// late or lost since the last call, judged against RTT. If stalls were asked for since then,
// whoever did so leaves them out of what was measured, and lateness is judged of the frames
// that were due outside of them: a switch that stood still once is none that is late. An
// error means that a switch could not be asked; what the others said comes with it.
func (f *Fabric) Health(ctx context.Context) ([]results.Trouble, error) {
	f.health.Lock()
	defer f.health.Unlock()
	replies, err := f.ask(ctx, "health")
	if errors.Is(err, errClosed) {
		return nil, err
	}
	leftOut := f.leftOut
	f.leftOut = false
	var all []results.Trouble
	f.mu.Lock()
	for _, p := range f.dead {
		all = append(all, results.Trouble{Where: p.name, What: p.died().Error(), Fatal: true})
	}
	f.mu.Unlock()
	for i, r := range replies {
		if r.Health == nil {
			continue // it has died
		}
		name := f.switches()[i].name
		all = append(all, judge(name, *r.Health, f.layout.beat, leftOut)...)
		all = append(all, judgePlane(name, r.Health.Plane)...)
		all = append(all, f.layout.judgeCables(len(f.layout.inv.Hosts)+i, r.Health.Cables)...)
	}
	if t, ok := f.machine.busy(); ok {
		all = append(all, t)
	}
	return all, err
}

// Stalls implements testbed.Fabric: those of the switches. A switch that is BMv2 keeps no
// record of itself; its are those of its cables, which are a process of ours. That it lost
// frames, or was too busy, is in Health.
func (f *Fabric) Stalls(ctx context.Context, began time.Time) ([]testbed.Stall, error) {
	f.health.Lock()
	defer f.health.Unlock()
	f.leftOut = true
	replies, err := f.ask(ctx, "stalls")
	zero := stall.Monotonic(began)
	var all []testbed.Stall
	for i, r := range replies {
		for _, s := range r.Stalls {
			what := fmt.Sprintf("it did not run for up to %s", seconds(s.Late))
			if s.Count > 0 {
				what = fmt.Sprintf("frames left up to %s late", seconds(s.Late))
			}
			all = append(all, testbed.Stall{Start: s.Start - zero, End: s.End - zero, Where: f.switches()[i].name, What: what, Late: s.Late, Held: s.Held})
		}
	}
	slices.SortStableFunc(all, func(a, b testbed.Stall) int { return int(a.Start - b.Start) })
	return all, err
}

// switches are their processes.
func (f *Fabric) switches() []*process { return f.procs[len(f.layout.inv.Hosts):] }

// ask has all switches do something. A reply of one that has died, or could not be asked, is
// empty; the latter is an error.
func (f *Fabric) ask(ctx context.Context, cmd string) ([]softswitch.Reply, error) {
	select {
	case <-f.closing:
		return nil, errClosed
	default:
	}
	replies := make([]softswitch.Reply, len(f.switches()))
	errs := make([]error, len(replies))
	var g errgroup.Group
	for i, p := range f.switches() {
		g.Go(func() error {
			if r, err := command(ctx, p, softswitch.Command{Cmd: cmd}); err == nil {
				replies[i] = r
			} else if p.alive() {
				errs[i] = err
			}
			return nil
		})
	}
	_ = g.Wait()
	return replies, errors.Join(errs...)
}

// SwitchHealth is what each switch says of itself since it was last asked, here or by Health, in
// the inventory's order.
func (f *Fabric) SwitchHealth(ctx context.Context) ([]softswitch.Health, error) {
	f.health.Lock()
	defer f.health.Unlock()
	replies, err := f.ask(ctx, "health")
	if err != nil {
		return nil, err
	}
	var out []softswitch.Health
	for i, r := range replies {
		p := f.switches()[i]
		switch {
		case r.Health != nil:
			out = append(out, *r.Health)
		case !p.alive():
			return nil, p.died()
		default:
			return nil, fmt.Errorf("%s: no health in its answer", p.name)
		}
	}
	return out, nil
}

// seconds is a duration as reports write it.
func seconds(d time.Duration) string { return human.Quantity(d.Seconds(), "s") }

// beat is the shortest time that matters, and what it is.
type beat struct {
	time.Duration
	of string // "the RTT"
}

// judge turns a switch's health into troubles; leftOut: its stalls are left out of what was
// measured. With a beat of 0 lateness is not judged.
func judge(where string, h softswitch.Health, b beat, leftOut bool) (ts []results.Trouble) {
	add := func(fatal bool, value, limit float64, format string, args ...any) {
		ts = append(ts, results.Trouble{Where: where, What: fmt.Sprintf(format, args...), Value: value, Limit: limit, Fatal: fatal})
	}
	if b.Duration > 0 && h.Stalls.Count > 0 {
		share := h.Stalls.Sum.Seconds() / max(h.Elapsed, h.Stalls.Sum).Seconds()
		what := fmt.Sprintf("%v, %.1f %% of the time", h.Stalls, 100*share)
		with := ""
		if h.Sent > 0 {
			frames := 1 - float64(h.ClearSent)/float64(h.Sent)
			what += fmt.Sprintf(" and %.1f %% of the frames", 100*frames)
			with = fmt.Sprintf("; with these, frames leave %s late (p99)", seconds(h.LateP99))
			share = max(share, frames)
		}
		add(share > testbed.StallLimit, share, testbed.StallLimit, "%s (limit %.0f %%)%s", what, 100*testbed.StallLimit, with)
	}
	sent, p50, p99, which := h.Sent, h.LateP50, h.LateP99, ""
	if leftOut && h.Stalls.Count > 0 {
		sent, p50, p99, which = h.ClearSent, h.ClearP50, h.ClearP99, "besides, "
	}
	if b.Duration > 0 && sent > 0 {
		median, tail := p50.Seconds()/b.Seconds(), p99.Seconds()/b.Seconds()
		if median > lateMedianLimit {
			add(true, median, lateMedianLimit, "%sframes leave %s late (median), %.1f %% of %s of %s (limit %.0f %%)", which, seconds(p50), 100*median, b.of, seconds(b.Duration), 100*lateMedianLimit)
		}
		if tail > lateTailLimit {
			add(true, tail, lateTailLimit, "%sframes leave %s late (p99), %.1f %% of %s of %s (limit %.0f %%)", which, seconds(p99), 100*tail, b.of, seconds(b.Duration), 100*lateTailLimit)
		} else if tail > lateTailNotice {
			add(false, tail, lateTailNotice, "%sframes leave %s late (p99), %.1f %% of %s of %s", which, seconds(p99), 100*tail, b.of, seconds(b.Duration))
			ts[len(ts)-1].Code, ts[len(ts)-1].Of = results.CodeLimited, b.Seconds() // rates may be off by as much
		}
	}
	if lost := h.RingDrops + h.PoolDrops + h.Refused; lost > 0 {
		share := float64(lost) / float64(h.Sent+lost)
		add(share > lostLimit, share, lostLimit, "%d frames lost by the emulation (%d unread, %d without memory, %d refused by a device)", lost, h.RingDrops, h.PoolDrops, h.Refused)
		switch all := float64(h.Sent + lost); {
		case h.RingDrops > 0 && h.Super: // nobody knows how many: a super-frame is one there
			ts[len(ts)-1].Code = results.CodeCounters // who counts packets may miss these
		case h.Unseen+h.RingDrops > 0: // ports count the others
			hidden := h.Unseen + h.RingDrops
			add(false, float64(hidden)/all, lostLimit, "%d of these are in no counter of a port", hidden)
			ts[len(ts)-1].Code, ts[len(ts)-1].Of = results.CodeCounters, all
		}
	}
	if h.Busy > busyLimit {
		add(true, h.Busy, busyLimit, "forwarding takes %.0f %% of a core (limit %.0f %%)", 100*h.Busy, 100*busyLimit)
	}
	for _, w := range h.Warnings {
		add(false, 0, 0, "%s", w)
	}
	return ts
}

// judgeCables are the links of a switch's node that carried less than their rate while frames waited for them. A switch's own
// lateness does not show in it: frames are carried at the times at which they should be.
func (l *layout) judgeCables(node int, cables []softswitch.Cable) (ts []results.Trouble) {
	names, rates := map[linkEnd]string{}, map[linkEnd]float64{}
	for name, end := range l.ports {
		names[end] = name
	}
	for _, p := range l.nodes[node].Switch.Ports {
		rates[linkEnd{node, p.Number, true}], rates[linkEnd{node, p.Number, false}] = p.Ingress.Rate, p.Egress.Rate
	}
	for _, c := range cables {
		end := linkEnd{node, c.Port, c.Ingress}
		could := rates[end] / 8 * c.Waited.Seconds()
		lacks := could - float64(c.Carried+int64(c.Largest)) // less than a frame is chance: of rounding, or of one that was to be sent just then
		if lacks > slowLimit*could {
			ts = append(ts, results.Trouble{Where: "link " + names[end], Value: lacks / could, Limit: slowLimit, Code: results.CodeLinkSlow,
				What: fmt.Sprintf("while frames waited for it, for %s in all, it carried %.1f %% of what its cable carries", human.Quantity(c.Waited.Seconds(), "s"), 100*float64(c.Carried)/could)})
		}
	}
	return ts
}

// Ticks are what the cores that this process may use have had of time, by the machine's /proc/stat: all of it, and that in
// which they were idle, in hundredths of a second.
func Ticks(stat string) (all, idle uint64, err error) {
	text, err := bounded.ReadFile(stat, bounded.Config)
	if err != nil {
		return 0, 0, err
	}
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil { // there are more than it has room for
		own.Zero()
	}
	if all, idle, err = ticks(text, &own); err != nil {
		err = fmt.Errorf("%s: %w", stat, err)
	}
	return all, idle, err
}

// ticks are Ticks of some cores: of all, unless each of these has a line.
func ticks(stat []byte, of *unix.CPUSet) (all, idle uint64, err error) {
	var whole, some [2]uint64
	found := 0
	for line := range bytes.Lines(stat) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || !bytes.HasPrefix(fields[0], []byte("cpu")) {
			break // these lines come first
		}
		sum := &whole
		if cpu, err := strconv.Atoi(string(fields[0][3:])); err == nil {
			if !of.IsSet(cpu) {
				continue
			}
			sum = &some
			found++
		}
		for i, field := range fields[1:min(len(fields), 9)] { // guest time is in user time already
			n, err := strconv.ParseUint(string(field), 10, 64)
			if err != nil {
				return 0, 0, err
			}
			if sum[0] += n; i == 3 || i == 4 { // idle, iowait
				sum[1] += n
			}
		}
	}
	if found > 0 && found == of.Count() {
		return some[0], some[1], nil
	}
	return whole[0], whole[1], nil
}

// machine measures how busy the cores are between two calls.
type machine struct{ total, idle uint64 }

// busy reports cores that had no time left since the last call.
func (m *machine) busy() (results.Trouble, bool) {
	total, idle, err := Ticks("/proc/stat")
	if err != nil {
		return results.Trouble{}, false
	}
	was, now := *m, machine{total, idle}
	*m = now
	if was.total == 0 || now.total <= was.total {
		return results.Trouble{}, false
	}
	share := 1 - float64(now.idle-was.idle)/float64(now.total-was.total)
	return results.Trouble{
		Where: "this machine", What: fmt.Sprintf("all cores are %.0f %% busy", 100*share), Value: share, Limit: machineLimit,
	}, share > machineLimit
}
