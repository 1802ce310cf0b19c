package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/gnmi"
)

// Link is a cabled port of a switch, as the switch tells it.
type Link struct {
	Port    string            `json:"port"`     // on the front panel; its number where the inventory has no name for it
	DevPort uint32            `json:"dev_port"` // the chip's number
	Up      bool              `json:"up"`
	Setup   string            `json:"setup,omitempty"`  // speed, FEC and autonegotiation, in words; empty: the server does not say
	Errors  map[string]uint64 `json:"errors,omitempty"` // frames that went wrong, by the server's words
	Wrong   []string          `json:"wrong,omitempty"`  // what is, and what should be by the inventory; none: all is as it says
}

// String is the link in words.
func (l Link) String() string {
	parts := slices.Clone(l.Wrong)
	if len(parts) == 0 {
		parts = []string{"up"}
		if l.Setup != "" {
			parts = append(parts, l.Setup)
		}
	}
	if len(l.Wrong) == 0 && len(l.Errors) == 0 {
		parts = append(parts, "no errors")
	}
	for _, what := range slices.Sorted(maps.Keys(l.Errors)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, l.Errors[what]))
	}
	return fmt.Sprintf("port %s (dev_port %d): %s", l.Port, l.DevPort, strings.Join(parts, ", "))
}

// Hint is what to do about a link that is wrong.
func (l Link) Hint() string {
	switch {
	case l.Setup == "" && !l.Up && len(l.Errors) == 0:
		return "look at the cable and its other end; with device_config \"bfrt\" a run sets ports up when it loads its program, unless port.manual is true"
	case !l.Up && l.Setup != "" && len(l.Wrong) == 1:
		return "look at the cable and its other end, which must have the speed, FEC and autonegotiation of this one: " + l.Setup
	}
	return "give both ends of the cable one speed, FEC and autonegotiation, and say in the inventory which: rate of the cable, port = {fec = \"rs\", autoneg = \"off\"}"
}

// links are the cabled ports of a switch as its servers tell them; none where these say nothing of ports.
func links(ctx context.Context, c dataplane.Switch, sw inventory.Switch, cables []Cable) ([]Link, error) {
	b, ok := c.(*bfrt.Client)
	switch {
	case len(cables) == 0:
		return nil, nil
	case ok:
		states, err := b.PortStates(ctx, numbers(cables))
		if errors.Is(err, dataplane.ErrNoPipeline) { // a Tofino without a program has no ports
			return nil, nil
		}
		var out []Link
		for i, s := range states {
			out = append(out, linkOf(s, sw, cables[i]))
		}
		return out, err
	case sw.GNMI != "":
		return linksByGNMI(ctx, sw, cables)
	}
	return nil, nil
}

// linkOf holds a port against what the inventory says of its cable. What somebody else sets up is held to its speed alone.
func linkOf(s bfrt.PortState, sw inventory.Switch, cable Cable) Link {
	out := Link{Port: gnmi.PortName(cable.Port, sw.Ports), DevPort: s.Own, Up: s.Up, Errors: s.Errors}
	want := bfrt.Link{Speed: cable.Rate, FEC: cmp.Or(sw.Port.FEC, "none"), Autoneg: cmp.Or(sw.Port.Autoneg, "default"), Lanes: sw.Port.Lanes}
	setup := inWords(want.Speed, want.FEC, want.Autoneg)
	if sw.Port.Manual {
		setup = speed(want.Speed)
	}
	if !s.There {
		out.Wrong = []string{"is not set up, should be up with " + setup}
		return out
	}
	out.Setup = inWords(s.Speed, s.FEC, s.Autoneg)
	differ := func(what string, is, should any) {
		if is != should {
			out.Wrong = append(out.Wrong, fmt.Sprintf("%s is %v, should be %v", what, is, should))
		}
	}
	if !s.Up {
		out.Wrong = append(out.Wrong, "is down, should be up")
	}
	differ("speed", speed(s.Speed), speed(want.Speed))
	if sw.Port.Manual {
		return out
	}
	differ("FEC", s.FEC, want.FEC)
	differ("autonegotiation", s.Autoneg, want.Autoneg)
	if want.Lanes > 0 {
		differ("lanes", s.Lanes, want.Lanes)
	}
	return out
}

// inWords is how a port is set up.
func inWords(rate float64, fec, autoneg string) string {
	return fmt.Sprintf("%s, FEC %s, autonegotiation %s", speed(rate), fec, autoneg)
}

// speed is that of a port in words; 0: the server has a word for it that is not known here.
func speed(rate float64) string {
	if rate == 0 {
		return "a speed that is not known"
	}
	return inventory.BitRate(rate).String()
}

// linksByGNMI are ports as a gNMI server tells them: whether they are up, and what went wrong there. It is asked for no more,
// since servers differ in what they call the rest.
func linksByGNMI(ctx context.Context, sw inventory.Switch, cables []Cable) ([]Link, error) {
	g, err := GNMI(sw)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	own, err := g.Ports(ctx, numbers(cables), sw.Ports)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range cables {
		names = append(names, gnmi.PortName(c.Port, sw.Ports))
	}
	down, err := g.Down(ctx, names)
	if err != nil {
		return nil, err
	}
	counted, err := g.Counters(ctx, names)
	if err != nil {
		return nil, err
	}
	var out []Link
	for i, c := range cables {
		l := Link{Port: names[i], DevPort: own[c.Port], Up: !slices.Contains(down, names[i])}
		for what, n := range counted[names[i]] {
			if n == 0 || !strings.HasSuffix(what, "errors") {
				continue
			}
			if l.Errors == nil {
				l.Errors = map[string]uint64{}
			}
			l.Errors[what] = n
		}
		if !l.Up {
			l.Wrong = []string{"is down, should be up"}
		}
		out = append(out, l)
	}
	return out, nil
}
