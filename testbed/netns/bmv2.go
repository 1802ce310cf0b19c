package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/bmv2"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/softswitch"
)

const bmv2Check = "BMv2"

// FindBMv2 is the path of p4lang's simple_switch_grpc. The error says how to get it and
// wraps errors.ErrUnsupported.
func FindBMv2() (string, error) {
	path, err := bmv2.Find()
	if err != nil {
		return "", missingError{Check{Name: bmv2Check, Why: err.Error(), Fix: `for "--switch bmv2": ` + bmv2.Install + "; the embedded switch needs nothing"}}
	}
	return path, nil
}

// probeBMv2 is FindBMv2 as a check.
func probeBMv2() Check {
	path, err := FindBMv2()
	if missing := (missingError{}); errors.As(err, &missing) {
		return missing.Check
	}
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	version, err := bmv2.Version(ctx, path)
	if err != nil {
		return Check{Name: bmv2Check, Why: err.Error(), Fix: "install it again: " + bmv2.Install}
	}
	return Check{Name: bmv2Check, OK: true, Why: path + ", version " + version}
}

// What switches an emulation has.
const (
	Soft = "soft" // the embedded one
	BMv2 = "bmv2" // p4lang's, which must be on PATH
)

// A switch that is BMv2 has two processes: simple_switch_grpc, which forwards, and ours,
// which is its cables. Port N of BMv2 is device bN, whose other end iN is in our process, as
// is pN, the cable to the host or switch there.
func innerDevice(port uint32) string { return fmt.Sprintf("i%d", port) }
func bmv2Device(port uint32) string  { return fmt.Sprintf("b%d", port) }

// bmv2Main is a switch whose forwarding is BMv2's.
func bmv2Main(ctx context.Context, c nodeConfig, in io.Reader, out io.Writer) (err error) {
	fail := func(err error) error {
		return errors.Join(err, json.NewEncoder(out).Encode(softswitch.Reply{Error: err.Error()}))
	}
	ports := map[uint32]string{}
	var reqs []request
	for i := range c.Switch.Ports {
		p := &c.Switch.Ports[i]
		p.Inner, ports[p.Number] = innerDevice(p.Number), bmv2Device(p.Number)
		reqs = append(reqs, newVeth(0, vethEnd{name: p.Inner}, vethEnd{name: ports[p.Number]}))
	}
	err = apply(reqs...)
	reqs = nil
	for _, p := range c.Switch.Ports {
		for _, name := range []string{p.Inner, ports[p.Number]} {
			if err == nil {
				err = setOffloads(name, false)
			}
			var index int
			if err == nil {
				index, err = ifIndex(name)
			}
			reqs = append(reqs, linkUp(index, name))
		}
	}
	if err == nil {
		err = apply(reqs...)
	}
	if err != nil {
		return fail(err)
	}
	p, err := bmv2.Start(ctx, c.BMv2, bmv2.Config{Name: c.Name, DeviceID: c.Switch.DeviceID, Listen: c.Switch.Listen, Ports: ports})
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	b := &behind{Process: p, since: time.Now(), full: "port_full"}
	// Our cables have the queues that are meant: BMv2's own are there for the moments in which
	// it is not let run, which 64 frames do not always bridge.
	if bmv2.SetQueueDepth(ctx, thriftAddr(c.Switch.Listen), deepQueue) == nil {
		b.full = "port_over"
	}
	for n := range ports {
		b.ports = append(b.ports, int(n))
	}
	if b.client, err = p4rt.Observe(c.Name, c.Switch.Listen, c.Switch.DeviceID, p4rt.Options{}); err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, b.client.Close(context.WithoutCancel(ctx))) }()
	line, err := json.Marshal(c.Switch)
	if err != nil {
		return fail(err)
	}
	return softswitch.Cables(ctx, b, io.MultiReader(bytes.NewReader(append(line, '\n')), in), out)
}

// behind watches BMv2 from the cables' side. What it loses it does not count, so frames that
// it was handed are held against those that its program counts.
type behind struct {
	*bmv2.Process
	client   *p4rt.Client
	ports    []int
	full     string // counter of frames that found their queue full
	attached bool

	since time.Time // of the last look, and what was seen then
	busy  time.Duration
	last  struct{ handed, lost, unsent, queued int64 }
}

var _ softswitch.Behind = (*behind)(nil)

// deepQueue is a depth of BMv2's queues of which its program counts what goes beyond.
const deepQueue = 1024

// thriftAddr is where BMv2 listens for Thrift, unless it was built without: in the same
// namespace as its P4Runtime server.
func thriftAddr(listen string) string {
	host, _, _ := net.SplitHostPort(listen)
	return net.JoinHostPort(host, "9090")
}

// healthTime bounds the reading of counters.
const healthTime = 2 * time.Second

// Health implements softswitch.Behind.
func (b *behind) Health(handed, returned int64) softswitch.Plane {
	h := softswitch.Plane{Name: BMv2, Frames: handed - b.last.handed}
	now := time.Now()
	busy, err := b.Busy()
	if err == nil {
		h.Busy = float64(busy-b.busy) / float64(max(now.Sub(b.since), 1))
		b.busy, b.since = busy, now
	}
	b.last.handed = handed
	ctx, cancel := context.WithTimeout(context.Background(), healthTime)
	defer cancel()
	if !b.attached {
		switch err := b.client.Attach(ctx); {
		case errors.Is(err, dataplane.ErrNoPipeline):
			return h // nothing runs on it yet
		case err != nil:
			h.Error = err.Error()
			return h
		}
	}
	cells, err := b.client.ReadCounters(ctx, []string{"port_rx", "port_tx", b.full}, b.ports)
	if err != nil {
		h.Error = err.Error()
		return h
	}
	n := map[string]int64{}
	for _, c := range cells {
		n[c.Name] += c.Packets
	}
	// Frames on their way at this moment are in handed and not yet in port_rx, or in port_tx
	// and not in returned: what matters is how the differences grow. They fall when the
	// counters begin anew with a pipeline, and then growth is not known.
	lost, unsent, queued := handed-n["port_rx"], n["port_tx"]-returned, n[b.full]
	if b.attached {
		h.Lost, h.Unsent, h.Queued = max(0, lost-b.last.lost), max(0, unsent-b.last.unsent), max(0, queued-b.last.queued)
	}
	b.attached = true
	b.last.lost, b.last.unsent, b.last.queued = lost, unsent, queued
	return h
}

// judgePlane turns what a switch behind the cables did not keep up with into troubles.
func judgePlane(where string, h *softswitch.Plane) (ts []results.Trouble) {
	add := func(fatal bool, value, limit float64, format string, args ...any) {
		ts = append(ts, results.Trouble{Where: where, What: fmt.Sprintf(format, args...), Value: value, Limit: limit, Fatal: fatal})
	}
	if h == nil {
		return nil
	}
	if h.Busy > busyLimit {
		add(true, h.Busy, busyLimit, "switch saturated: the busiest thread of %s takes %.0f %% of a core (limit %.0f %%)", h.Name, 100*h.Busy, 100*busyLimit)
	}
	for _, l := range []struct {
		n    int64
		what string
	}{{h.Lost, "never arrived in %s"}, {h.Unsent, "never left %s"}, {h.Queued, "met a full queue of %s, as those did that it lost"}} {
		if l.n > 0 && h.Frames > 0 {
			share := float64(l.n) / float64(h.Frames)
			what := ""
			if share > lostLimit {
				what = "switch saturated: "
			}
			add(share > lostLimit, share, lostLimit, what+"%d of %d frames "+l.what+" (%.3f %%, limit %.2f %%)", l.n, h.Frames, h.Name, 100*share, 100*lostLimit)
			ts[len(ts)-1].Code = results.CodeCounters // who counts packets may miss these
			if h.Queued == 0 {
				ts[len(ts)-1].Of = float64(h.Frames) // otherwise nobody knows how many: those that found no room are in no counter
			}
		}
	}
	if h.Error != "" {
		add(false, 0, 0, "counters of %s: %s", h.Name, h.Error)
	}
	return ts
}
