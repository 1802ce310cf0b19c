package netns

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/stall"
)

// TestLayout shows everything that is decided about a small testbed, in both
// scaling modes, as the processes are told it.
func TestLayout(t *testing.T) {
	for _, scale := range []results.Scale{{Mode: "none", Factor: 1}, {Mode: results.SlowMotion, Factor: 100}, {Mode: results.Shrunk, Factor: 100}} {
		t.Run(scale.Mode, func(t *testing.T) {
			inv := rack(1, 2, 1)
			inv.Hosts[0].NICs[0].Address = netip.MustParsePrefix("10.0.7.1/24")
			inv.Hosts[1].NICs = append(inv.Hosts[1].NICs, inventory.NIC{Switch: "tor1", Port: 7, Rate: 25e9, Delay: time.Microsecond})
			inv.Switches[1].Buffer, inv.Switches[1].ECN = 16<<20, 100<<10
			for i := range inv.Switches {
				inv.Switches[i].Aggregators = min(inv.Switches[i].Aggregators, 32)
			}
			untouched := inv.Clone()
			l, err := newLayout(inv, Options{Scale: scale, Queue: "drr", Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(untouched, inv) {
				t.Errorf("the caller's inventory was changed: %+v, was %+v", inv, untouched)
			}
			golden.Compare(t, "layout-"+scale.Mode+".txt", string(render(l)))
		})
	}
}

// TestFrame: lateness is held to the round trip of the packets that are sent.
func TestFrame(t *testing.T) {
	inv := rack(1, 2, 1)
	for i := range inv.Hosts {
		inv.Hosts[i].NICs[0].Rate, inv.Hosts[i].NICs[0].Delay = 8e6, time.Millisecond
	}
	for frame, want := range map[int]time.Duration{0: 4 * (1000 + 1024) * time.Microsecond, 100: 4 * (1000 + 100) * time.Microsecond} {
		l, err := newLayout(inv, Options{Frame: frame})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.beat.Duration; (got - want).Abs() > time.Microsecond {
			t.Errorf("%d bytes: %v, want %v", frame, got, want)
		}
	}
}

// render lists what each process is told, and which of them emulates each link.
func render(l *layout) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "controller %s\nshortest round trip %v\n", l.mgmt, l.beat.Duration)
	link := func(c softswitch.LinkConfig) string {
		return fmt.Sprintf("%g bit/s, %v, buffer %d, ECN %d, %s", c.Rate, c.Delay, c.Buffer, c.ECN, c.Discipline)
	}
	for _, n := range l.nodes {
		fmt.Fprintf(&b, "\n%s %s %s\n", n.Kind, n.Name, n.Mgmt)
		for _, nic := range n.NICs {
			fmt.Fprintf(&b, "  %s %s through %s\n", nic.Device, nic.Address, nic.Gateway)
		}
		if s := n.Switch; s != nil {
			fmt.Fprintf(&b, "  device %d on %s, %d aggregators, seed %#x\n", s.DeviceID, s.Listen, s.Aggregators, s.Seed)
			for _, p := range s.Ports {
				fmt.Fprintf(&b, "  %d %s egress  %s\n", p.Number, p.Device, link(p.Egress))
				if p.Ingress != (softswitch.LinkConfig{}) {
					fmt.Fprintf(&b, "  %d %s ingress %s\n", p.Number, p.Device, link(p.Ingress))
				}
			}
		}
	}
	b.WriteString("\n")
	for _, d := range l.inv.Topology().Links {
		e := l.ports[d.Name]
		fmt.Fprintf(&b, "%s is port %d of %s, ingress %v\n", d.Name, e.port, l.nodes[e.node].Name, e.ingress)
	}
	b.WriteString("\n")
	for _, c := range l.cables {
		fmt.Fprintf(&b, "%s %s %s - %s %s %s\n", l.nodes[c.a].Name, c.aDev, c.aMAC, l.nodes[c.b].Name, c.bDev, c.bMAC)
	}
	return b.Bytes()
}

func TestLayoutErrors(t *testing.T) {
	for _, tt := range []struct {
		name        string
		change      func(*inventory.Inventory)
		want        string
		unsupported bool
	}{
		{"unknown switch", func(i *inventory.Inventory) { i.Hosts[0].NICs[0].Switch = "tor9" }, `host h1: device ens1: no switch "tor9"`, false},
		{"cabled to a host", func(i *inventory.Inventory) { i.Hosts[0].NICs[0].Switch = "h2" }, `no switch "h2"`, false},
		{"port cabled twice", func(i *inventory.Inventory) { i.Hosts[1].NICs[0].Port = 1 }, "host h2: device ens1: port tor1/1 is cabled twice", false},
		{"link to nowhere", func(i *inventory.Inventory) { i.Links[0].B.Switch = "x" }, `link tor1/100 - x/1: no switch "x"`, false},
		{"cable within a switch", func(i *inventory.Inventory) { i.Links[0].B = inventory.Port{Switch: "tor1", Port: 9} }, "both ends are in one switch", false},
		{"same name", func(i *inventory.Inventory) { i.Hosts[1].Name = "h1" }, "h1 is there twice", false},
		{"name with a slash", func(i *inventory.Inventory) { i.Hosts[0].Name = "../h1" }, `host "../h1"`, false},
		{"long device", func(i *inventory.Inventory) { i.Hosts[0].NICs[0].Device = "enp129s0f0np0v16" }, `host h1: device "enp129s0f0np0v16"`, false},
		{"management device", func(i *inventory.Inventory) { i.Hosts[0].NICs[0].Device = "mgmt0" }, `device "mgmt0"`, false},
		{"same address", func(i *inventory.Inventory) {
			i.Hosts[0].NICs[0].Address, i.Hosts[1].NICs[0].Address = netip.MustParsePrefix("10.1.1.1/24"), netip.MustParsePrefix("10.1.1.1/16")
		}, "address 10.1.1.1 is h1's", false},
		{"no network left", func(i *inventory.Inventory) { i.Hosts[0].NICs[0].Address = netip.MustParsePrefix("10.1.1.1/8") }, "narrow their prefixes", false},
		{"IPv6", func(i *inventory.Inventory) { i.Hosts[0].NICs[0].Address = netip.MustParsePrefix("fd00::1/64") }, "host h1: device ens1: address fd00::1/64", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inv := rack(1, 1, 2)
			tt.change(inv)
			_, err := newLayout(inv, Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want it to say %q", err, tt.want)
			}
			if errors.Is(err, errors.ErrUnsupported) != tt.unsupported {
				t.Errorf("%v: is unsupported: %v, want %v", err, !tt.unsupported, tt.unsupported)
			}
		})
	}
}

// TestLayoutReached: whoever reaches a lab's hosts, those of its emulation are logged in to.
func TestLayoutReached(t *testing.T) {
	inv := rack(0, 1, 2)
	inv.Hosts[0].Launcher = "cloud"
	l, err := newLayout(inv, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if h := l.inv.Hosts[0]; h.Launcher != "" || h.SSH.Address == "" || inv.Hosts[0].Launcher != "cloud" {
		t.Errorf("%+v", h)
	}
}

// TestExclusiveTrees: what the inventory says of SHARP is what the embedded switch offers.
func TestExclusiveTrees(t *testing.T) {
	for _, tt := range []struct {
		name        string
		sw          inventory.Switch
		want        *softswitch.Exclusive
		aggregators int
	}{
		{"plain", inventory.Switch{Kind: inventory.Soft}, nil, 0},
		{"aggregators alone", inventory.Switch{Kind: inventory.Tofino, Aggregators: 64}, &softswitch.Exclusive{Capacity: 1, Trees: 126}, 64},
		{"soft", inventory.Switch{Kind: inventory.Soft, Aggregators: 64, SHARP: inventory.SHARP{Trees: 3, Jobs: 2, Resource: "port"}},
			&softswitch.Exclusive{Resource: "port", Capacity: 2, Trees: 3}, 64},
		{"quantum", inventory.Switch{Kind: inventory.Quantum, SHARP: inventory.SHARP{Trees: 5, Jobs: 1, Resource: "switch"}},
			&softswitch.Exclusive{Resource: "switch", Capacity: 1, Trees: 5}, quantumAggregators},
		{"quantum without trees", inventory.Switch{Kind: inventory.Quantum}, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inv := rack(1, 1, 2)
			tt.sw.Name = inv.Switches[0].Name
			inv.Switches[0] = tt.sw
			l, err := newLayout(inv, Options{})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(l.nodes, func(n nodeConfig) bool { return n.Name == tt.sw.Name })
			got := l.nodes[i].Switch
			if diff := cmp.Diff(tt.want, got.Exclusive); diff != "" || got.Aggregators != tt.aggregators {
				t.Errorf("%d aggregators, want %d; exclusive trees (-want +got):\n%s", got.Aggregators, tt.aggregators, diff)
			}
			if s := l.inv.Switches[0]; s.Kind != inventory.Soft || s.SHARP != tt.sw.SHARP {
				t.Errorf("the emulated switch is %+v", s)
			}
		})
	}
}

// TestSummed: the embedded switch sums the packets that the program of the inventory's sums.
func TestSummed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p4info.txtpb")
	for _, tt := range []struct {
		name, p4info string
		want         ina.Program
		bad          bool
	}{
		{"no file", "", ina.Program{}, false},
		{"nothing said", `pkg_info { name: "ina" }`, ina.Program{}, false},
		{"32, and no others", `actions { preamble { name: "aggregate" structured_annotations { name: "inabench" kv_pair_list {
			kv_pairs { key: "lanes" value { int64_value: 32 } } kv_pairs { key: "whole" value { int64_value: 1 } } } } } }`, ina.Program{Lanes: 32, Whole: true}, false},
		{"no p4info", "{", ina.Program{}, true},
	} {
		if tt.p4info != "" {
			if err := os.WriteFile(path, []byte(tt.p4info), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		inv := rack(0, 1, 2)
		inv.Switches[0].Program.P4Info = path
		l, err := newLayout(inv, Options{})
		if tt.bad {
			if err == nil || !strings.Contains(err.Error(), "switch tor1") {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(l.nodes, func(n nodeConfig) bool { return n.Switch != nil })
		if got := l.nodes[i].Switch.Program; got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestJudge walks over the limits of Health.
func TestJudge(t *testing.T) {
	const rtt = 10 * time.Millisecond
	const ms = time.Millisecond
	stalls := stall.Total{Count: 3, Sum: 310 * ms, Longest: 104 * ms}
	for _, tt := range []struct {
		name   string
		health softswitch.Health
		want   string // of the only trouble; empty: none
		fatal  bool
	}{
		// One stop is not a switch that is late. It is told, and left out of the figures.
		{"stood still", softswitch.Health{Elapsed: 10 * time.Second, Sent: 1e6, LateP99: 54 * ms, Stalls: stalls, ClearSent: 969e3},
			"stood still 3 times, 310 ms in all, longest 104 ms, 3.1 % of the time and 3.1 % of the frames (limit 25 %); with these, frames leave 54.0 ms late (p99)", false},
		{"idle, and stood still", softswitch.Health{Elapsed: 10 * time.Second, Stalls: stalls},
			"stood still 3 times, 310 ms in all, longest 104 ms, 3.1 % of the time (limit 25 %)", false},
		// One that is late all the time has no time that could count.
		{"always late", softswitch.Health{Elapsed: time.Second, Sent: 1e6, LateP99: 3 * ms, Stalls: stalls, ClearSent: 969e3},
			"stood still 3 times, 310 ms in all, longest 104 ms, 31.0 % of the time and 3.1 % of the frames (limit 25 %); with these, frames leave 3.00 ms late (p99)", true},
		{"late whenever it has work", softswitch.Health{Elapsed: 10 * time.Second, Sent: 100, LateP99: 3 * ms, Stalls: stalls, ClearSent: 50},
			"stood still 3 times, 310 ms in all, longest 104 ms, 3.1 % of the time and 50.0 % of the frames (limit 25 %); with these, frames leave 3.00 ms late (p99)", true},
		{"idle", softswitch.Health{LateP50: time.Second}, "", false},
		{"on time", softswitch.Health{Sent: 1e6, LateP50: 20 * time.Microsecond, LateP99: 400 * time.Microsecond, Busy: .5}, "", false},
		{"late tail", softswitch.Health{Sent: 1e6, LateP99: time.Millisecond}, "frames leave 1.00 ms late (p99), 10.0 % of the RTT of 10.0 ms", false},
		{"later tail", softswitch.Health{Sent: 1e6, LateP99: 3 * time.Millisecond}, "frames leave 3.00 ms late (p99), 30.0 % of the RTT of 10.0 ms (limit 20 %)", true},
		{"late median", softswitch.Health{Sent: 1e6, LateP50: 600 * time.Microsecond}, "frames leave 600 µs late (median), 6.0 % of the RTT of 10.0 ms (limit 5 %)", true},
		{"few lost", softswitch.Health{Sent: 1e6, RingDrops: 1, Super: true}, "1 frames lost by the emulation (1 unread, 0 without memory, 0 refused by a device)", false},
		{"many lost", softswitch.Health{Sent: 1e6, RingDrops: 100, PoolDrops: 20, Refused: 3, Super: true}, "123 frames lost by the emulation (100 unread, 20 without memory, 3 refused by a device)", true},
		{"busy", softswitch.Health{Sent: 1e6, Busy: .95}, "forwarding takes 95 % of a core (limit 90 %)", true},
		{"the model at work", softswitch.Health{Sent: 1e6, Overflows: 5000}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []results.Trouble
			got := judge("switch tor1", tt.health, beat{rtt, "the RTT"}, true)
			if tt.want != "" {
				want = []results.Trouble{{Where: "switch tor1", What: tt.want, Fatal: tt.fatal}}
			}
			for i := range got {
				notice := strings.HasPrefix(got[i].What, "frames leave") && strings.Contains(got[i].What, "p99")
				if (got[i].Value > got[i].Limit) != (got[i].Fatal || notice) {
					t.Errorf("value %v and limit %v do not say whether it is fatal", got[i].Value, got[i].Limit)
				}
				if h := &got[i]; notice && !h.Fatal && (h.Code != results.CodeLimited || h.Of != rtt.Seconds()) {
					t.Errorf("code %q, of %v s: rates may be off by as much", h.Code, h.Of)
				}
				got[i].Value, got[i].Limit, got[i].Of, got[i].Code = 0, 0, 0, ""
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestJudgeLost: who counts packets is told how many may be in no counter, where that is known: those of ports are.
func TestJudgeLost(t *testing.T) {
	for _, tt := range []struct {
		health softswitch.Health
		code   string
		hidden float64
	}{
		{softswitch.Health{Sent: 90, PoolDrops: 7, Refused: 3}, "", 0},
		{softswitch.Health{Sent: 90, PoolDrops: 7, Refused: 3, Unseen: 1}, results.CodeCounters, 1},
		{softswitch.Health{Sent: 90, RingDrops: 2, PoolDrops: 7, Unseen: 1}, results.CodeCounters, 3},
		{softswitch.Health{Sent: 90, RingDrops: 1, Refused: 3, Super: true}, results.CodeCounters, 0}, // not known: it may have been one of many frames
	} {
		got := judge("switch tor1", tt.health, beat{}, false)
		last := got[len(got)-1]
		if last.Code != tt.code || math.Round(last.Value*last.Of) != tt.hidden {
			t.Errorf("%+v: %+v, want code %q of %v", tt.health, got, tt.code, tt.hidden)
		}
	}
}

// A cable that carries less than its rate while frames wait for it is found, in either direction, and is told from one that
// had nothing to carry and from the part of a frame at either end.
func TestJudgeCables(t *testing.T) {
	l := &layout{
		nodes: []nodeConfig{{}, {Switch: &softswitch.Config{Ports: []softswitch.PortConfig{
			{Number: 1, Egress: softswitch.LinkConfig{Rate: 8e6}, Ingress: softswitch.LinkConfig{Rate: 8e6}},
			{Number: 2, Egress: softswitch.LinkConfig{Rate: 80e6}},
		}}}},
		ports: map[string]linkEnd{"h1->tor1": {1, 1, true}, "tor1->h1": {1, 1, false}, "tor1->tor2": {1, 2, false}, "tor2->tor1": {2, 1, false}},
	}
	for _, tt := range []struct {
		cable softswitch.Cable
		want  string
	}{
		{softswitch.Cable{Port: 1, Ingress: true, Waited: 3 * time.Second, Carried: 2_850_000, Largest: 1024}, "link h1->tor1: while frames waited for it, for 3.00 s in all, it carried 95.0 % of what its cable carries"},
		{softswitch.Cable{Port: 1, Waited: 3 * time.Second, Carried: 2_850_000, Largest: 1024}, "link tor1->h1: while frames waited for it, for 3.00 s in all, it carried 95.0 % of what its cable carries"},
		{softswitch.Cable{Port: 1, Waited: 3 * time.Second, Carried: 2_975_000, Largest: 1024}, ""},
		{softswitch.Cable{Port: 2, Waited: 3 * time.Second, Carried: 2_975_000, Largest: 1024}, "link tor1->tor2: while frames waited for it, for 3.00 s in all, it carried 9.9 % of what its cable carries"},
		{softswitch.Cable{Port: 2, Waited: time.Millisecond, Carried: 9000, Largest: 1024}, ""}, // less than a frame
		{softswitch.Cable{Port: 2}, ""},
		{softswitch.Cable{Port: 2, Ingress: true, Waited: time.Second}, ""}, // it has no rate
		{softswitch.Cable{Port: 9, Waited: time.Second}, ""},
	} {
		var got []string
		for _, x := range l.judgeCables(1, []softswitch.Cable{tt.cable}) {
			got = append(got, x.String())
			if x.Fatal || x.Code != results.CodeLinkSlow || x.Value <= x.Limit {
				t.Errorf("%+v", x)
			}
		}
		if strings.Join(got, "; ") != tt.want {
			t.Errorf("%+v: %q, want %q", tt.cable, got, tt.want)
		}
	}
}

// Stalls take nothing from what is judged unless somebody leaves them out of the figures, and
// never more than the frames that were due in them.
func TestJudgeWithStalls(t *testing.T) {
	const ms = time.Millisecond
	h := softswitch.Health{
		Elapsed: 10 * time.Second, Sent: 1e6, LateP50: 20 * time.Microsecond, LateP99: 54 * ms,
		Stalls: stall.Total{Count: 1, Sum: 104 * ms, Longest: 104 * ms}, ClearSent: 989e3, ClearP50: 20 * time.Microsecond, ClearP99: ms,
	}
	fatal := func(leftOut bool) (what []string) {
		for _, x := range judge("switch tor1", h, beat{200 * ms, "the RTT"}, leftOut) {
			if x.Fatal {
				what = append(what, x.What)
			}
		}
		return what
	}
	if got := fatal(true); got != nil {
		t.Errorf("left out: %q", got)
	}
	if got := fatal(false); len(got) != 1 || got[0] != "frames leave 54.0 ms late (p99), 27.0 % of the RTT of 200 ms (limit 20 %)" {
		t.Errorf("not left out: %q", got)
	}
	h.ClearP50 = 11 * ms
	if got := fatal(true); len(got) != 1 || got[0] != "besides, frames leave 11.0 ms late (median), 5.5 % of the RTT of 200 ms (limit 5 %)" {
		t.Errorf("late besides: %q", got)
	}
}

func TestOffloadSince(t *testing.T) {
	for release, ok := range map[string]bool{
		"6.2.0": true, "6.18.44-fc": true, "7.0": true, "6.1.0-18-amd64": false, "5.15.0": false,
	} {
		if err := offloadSince(release); (err == nil) != ok || !ok && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", release, err)
		}
	}
	if err := offloadSince("unknown"); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("unknown: %v", err)
	}
}
