package spec

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed/p4"
)

// room is what the program of a switch has room for, as its p4info says.
type room struct {
	*p4.Limits
	sw inventory.Switch
}

// programs are the rooms of the switches whose p4infos say something of it. They are read once. What is wrong with p4infos is
// the error; one that is not there yet says nothing.
func (l *Lab) programs() ([]room, error) {
	if l.read {
		return l.rooms, l.unread
	}
	l.read = true
	var errs []error
	known := map[string]*p4.Limits{} // by file: a rack of switches has one
	for _, sw := range l.Inv.Switches {
		limits, ok := known[sw.Program.P4Info]
		if !ok {
			var err error
			if limits, err = p4.ReadLimits(sw.Program.P4Info); err != nil {
				errs = append(errs, blame.Switch(sw.Name, err))
			}
			known[sw.Program.P4Info] = limits
		}
		if limits != nil {
			l.rooms = append(l.rooms, room{limits, sw})
		}
	}
	l.unread = errors.Join(errs...)
	return l.rooms, l.unread
}

// least is the room with the least of something.
func least(rooms []room, of func(room) int64) room {
	return slices.MinFunc(rooms, func(a, b room) int { return cmp.Compare(of(a), of(b)) })
}

// programs checks what the experiment asks of the programs of its switches. Packets have the lanes that these sum, where the
// file does not say how many.
func (c *Checker) programs() {
	if c.Lab == nil || c.Spec.Kind().Foreign {
		return
	}
	rooms, err := c.Lab.programs()
	if err != nil {
		c.Problemf("inventory", "compile the program again; docs/SWITCHES.md says what its annotation inabench may have", "%v", err)
	}
	if len(rooms) == 0 {
		return
	}
	var aggregating []*Job
	for i := range c.Spec.Jobs {
		if j := &c.Spec.Jobs[i]; aggregates(j) {
			aggregating = append(aggregating, j)
		}
	}
	if rooms = c.crossed(rooms, aggregating); len(rooms) == 0 || len(aggregating) == 0 && len(c.Spec.Jobs) > 0 {
		return
	}
	c.lanes(rooms)
	if len(aggregating) > 0 {
		c.modes(rooms)
		c.memory(rooms)
	}
	c.ids(rooms)
	for _, j := range aggregating {
		c.jobRoom(j, rooms)
	}
}

// crossed are the rooms of the switches that may sum packets of jobs: those with aggregators, on the ways of the fewest hops
// from workers to where their sums go. They are all with aggregators where that is not known before jobs are placed.
func (c *Checker) crossed(rooms []room, jobs []*Job) []room {
	rooms = slices.DeleteFunc(slices.Clone(rooms), func(r room) bool { return r.sw.Aggregators == 0 })
	topo, on := c.Lab.Inv.Topology(), map[string]bool{}
	for _, j := range jobs {
		to := j.PS
		if c.Spec.Switch.Mode == "synchronous" && len(j.Hosts) > 0 {
			to = j.Hosts[0]
		}
		if to == "" || len(j.Hosts) == 0 {
			return rooms
		}
		for _, h := range j.Hosts {
			ways, err := topo.Between(h, to)
			if err != nil {
				return rooms // what is wrong with names is told elsewhere
			}
			for _, l := range ways {
				on[topo.Links[l].To] = true
			}
		}
	}
	if len(jobs) == 0 {
		return rooms
	}
	return slices.DeleteFunc(rooms, func(r room) bool { return !on[r.sw.Name] })
}

// lanes checks how many lanes packets have.
func (c *Checker) lanes(rooms []room) {
	const at = "switch.lanes"
	sw := &c.Spec.Switch
	if c.Reported(at) {
		return
	}
	if !c.Has(at) {
		sw.Lanes = least(rooms, func(r room) int64 { return int64(r.Lanes) }).Lanes
	}
	for _, r := range rooms {
		if r.Sums(sw.Lanes) {
			continue
		}
		takes := fmt.Sprintf("at most %d", r.Lanes)
		if r.Whole {
			takes = fmt.Sprintf("exactly %d", r.Lanes)
		}
		hint := fmt.Sprintf("write lanes = %d, or leave it out: others go to the PS without being summed", r.Lanes)
		if !c.Has(at) { // no number suits all
			hint = "load programs that sum packets of the same lanes"
		}
		c.Problemf(at, hint, "lanes = %d: the program of switch %s sums packets of %s", sw.Lanes, r.sw.Name, takes)
		return
	}
}

// modes checks how switches are to aggregate.
func (c *Checker) modes(rooms []room) {
	sw := &c.Spec.Switch
	for _, r := range rooms {
		known := r.Addresses()
		if len(known) > 0 && !slices.Contains(known, "pool") {
			c.Spec.atRest = sw.Addressing
		}
		switch {
		case sw.Mode == "synchronous" && !r.Synchronous:
			c.Problemf("switch.mode", `write mode = "statistical"`, "the program of switch %s has no synchronous mode", r.sw.Name)
		case sw.Mode == "statistical" && len(known) > 0 && !slices.Contains(known, sw.Addressing):
			c.Problemf("switch.addressing", fmt.Sprintf("write addressing = %q", known[0]),
				"addressing = %q: the program of switch %s addresses by %s", sw.Addressing, r.sw.Name, strings.Join(known, ", "))
		default:
			continue
		}
		return
	}
}

// memory checks how many aggregators jobs are to have.
func (c *Checker) memory(rooms []room) {
	sw := &c.Spec.Switch
	for _, r := range rooms {
		most := int64(r.Aggregators)
		switch {
		case int64(sw.Aggregators) > most:
			c.Problemf("switch.aggregators", fmt.Sprintf("write aggregators = %d", most), "%d aggregators: the program of switch %s has %d", sw.Aggregators, r.sw.Name, most)
			return
		case sw.Aggregators == 0 && int64(r.sw.Aggregators) > most:
			c.Problemf("inventory", fmt.Sprintf("write aggregators = %d there", most), "switch %s has aggregators = %d in %s, its program has %d",
				r.sw.Name, r.sw.Aggregators, c.Lab.Inv.File, most)
		case !r.Powers || sw.Mode != "statistical": // synchronous jobs have windows
		case sw.PATRatio > 0:
			c.Problemf("switch.pat_ratio", "write aggregators = 1024, or another one", "pat_ratio = %g: the program of switch %s wants a power of two of aggregators", sw.PATRatio, r.sw.Name)
			return
		case sw.Aggregators > 0 && sw.Aggregators < r.sw.Aggregators && !power(sw.Aggregators):
			c.Problemf("switch.aggregators", fmt.Sprintf("write aggregators = %d", powerBelow(sw.Aggregators)),
				"%d aggregators: the program of switch %s wants a power of two of them", sw.Aggregators, r.sw.Name)
			return
		case !power(r.sw.Aggregators) && (sw.Aggregators == 0 || c.Spec.Calibrate.Enabled): // calibration takes all
			c.Problemf("inventory", fmt.Sprintf("write aggregators = %d there", powerBelow(r.sw.Aggregators)),
				"switch %s has aggregators = %d in %s, its program wants a power of two of them", r.sw.Name, r.sw.Aggregators, c.Lab.Inv.File)
		}
	}
}

func power(n int) bool { return n > 0 && bits.OnesCount(uint(n)) == 1 }

// powerBelow is the largest power of two that is at most n, or 1.
func powerBelow(n int) int { return 1 << (bits.Len(uint(max(n, 1))) - 1) }

// ids reports the first job that aggregates and whose id is beyond those that are summed. Ids are from 1 on in the order of the
// file, of jobs that do not aggregate, too.
func (c *Checker) ids(rooms []room) {
	r := least(rooms, func(r room) int64 { return int64(r.Jobs) })
	for i := max(0, int(r.Jobs)-1); i < len(c.Spec.Jobs); i++ {
		if j := &c.Spec.Jobs[i]; aggregates(j) {
			c.KeyProblemf(j.At, "leave some out, or make their collective \"ps\" and put them last",
				"job %s is one too many: the program of switch %s sums %d, the first of the file", j.Name, r.sw.Name, int(r.Jobs)-1)
			return
		}
	}
}

// jobRoom checks a job that aggregates.
func (c *Checker) jobRoom(j *Job, rooms []room) {
	if powers := slices.IndexFunc(rooms, func(r room) bool { return r.Powers }); powers >= 0 && c.Spec.Switch.Mode == "synchronous" && !power(j.Window) {
		c.Problemf(j.At+".window", fmt.Sprintf("write window = %d", powerBelow(j.Window)), "window = %d: the program of switch %s wants a power of two of aggregators for a job, which are two windows",
			j.Window, rooms[powers].sw.Name)
	}
	if r := least(rooms, func(r room) int64 { return int64(r.Window) }); c.Spec.Switch.Mode == "statistical" && int64(j.Window) > int64(r.Window) {
		c.Problemf(j.At+".window", fmt.Sprintf("write window = %d", r.Window), "window = %d: the program of switch %s remembers decisions for %d packets", j.Window, r.sw.Name, r.Window)
	}
	if r := least(rooms, func(r room) int64 { return int64(r.Workers) }); len(j.Hosts) > r.Workers {
		c.Problemf(j.At+".hosts", fmt.Sprintf("name %d", r.Workers), "%d workers: the program of switch %s sums those of %d", len(j.Hosts), r.sw.Name, r.Workers)
	}
	r := least(rooms, func(r room) int64 { return cmp.Or(r.Packets, math.MaxInt64) })
	frame := 8 * float64((&placement.Conditions{Lanes: c.Spec.Switch.Lanes}).FrameBytes())
	if sends := float64(j.Rate) / frame; r.Packets > 0 && sends > float64(r.Packets) {
		c.Problemf(j.At+".rate", fmt.Sprintf("write rate = \"%v\"", inventory.BitRate(float64(r.Packets)*frame)),
			"a worker sends %.0f packets/s: the program of switch %s carries %d", sends, r.sw.Name, r.Packets)
	}
}
