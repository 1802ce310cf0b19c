// Package drivers opens the testbed that an experiment runs on: virtual time, an emulation in namespaces, or a lab that is
// held meanwhile. It is the only place that knows all of them.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/deployment"
	realab "github.com/inabench/inabench/testbed/lab"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/preflight"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/sim"
)

// Check reports what an inventory, or this machine, lacks for a driver.
func Check(s *spec.Spec, driver string) error {
	var err error
	switch {
	case driver == "lab":
		for _, sw := range s.Inventory().Switches {
			if sw.Kind == inventory.Quantum && !s.Kind().Foreign {
				return blame.Switch(sw.Name, fmt.Errorf("a %s switch adds up for programs that use SHARP, [[program]], and for no other: %w", sw.Kind, errors.ErrUnsupported))
			}
		}
		if err := checkScripted(s); err != nil {
			return err
		}
		if _, err = realab.New(s.Inventory()); err == nil {
			err = reach.Known(s.Inventory())
		}
	case driver == "netns" && s.Emulation.SSHD == netns.OpenSSH:
		_, err = netns.FindOpenSSH()
	}
	if driver == "netns" && err == nil {
		err = checkSwitches(s)
	}
	return err
}

// checkScripted reports jobs of ours where a switch has a data plane of its own: it forwards
// unicast at most, and counts nothing of them.
func checkScripted(s *spec.Spec) error {
	i := slices.IndexFunc(s.Inventory().Switches, func(sw inventory.Switch) bool { return sw.Kind == inventory.Scripted })
	ours := slices.IndexFunc(s.Jobs, func(j spec.Job) bool { return j.Collective != "ring" })
	known, _ := s.Study().(study.Switched)
	of, use := "", `use [[program]], or collective = "ring"`
	switch {
	case i < 0:
	case ours >= 0:
		of = "job " + s.Jobs[ours].Name
	case known != nil:
		of, use = known.Switched()
	}
	if of == "" {
		return nil
	}
	return blame.Switch(s.Inventory().Switches[i].Name, fmt.Errorf("it is driven by a script, which knows nothing of the packets of %s; %s: %w", of, use, errors.ErrUnsupported))
}

// checkSwitches reports points that want switches which are not here, or of them what they
// cannot do.
func checkSwitches(s *spec.Spec) error {
	for _, p := range s.Points() {
		if p.Spec.Emulation.Switch != netns.BMv2 {
			continue
		}
		if slices.ContainsFunc(p.Spec.LinkStates, func(l spec.LinkState) bool { return l.Loss > 0 || l.Duplicate > 0 }) {
			return fmt.Errorf("%scables that lose or double packets between switches that are BMv2: %w: none of their counters tells how many; use emulation.switch = \"soft\"", spec.Prefix(p.Labels), errors.ErrUnsupported)
		}
		if p.Spec.Kind().Trees {
			return fmt.Errorf("%sexclusive trees in switches that are BMv2: %w: its program has none; use emulation.switch = \"soft\"", spec.Prefix(p.Labels), errors.ErrUnsupported)
		}
		if _, err := netns.FindBMv2(); err != nil {
			return err
		}
	}
	return nil
}

// Of processes of one machine: how far apart workers begin that are started at once (3 ms were measured with 14 of
// them on two cores, by what each had sent at its first reading), and the median of what it takes until a process
// runs that has something to do. With that, and half of the rest that processes may take, frames of such a switch are as
// late as was measured (.13 ms in the median, 1.4 ms exceeded by one in a hundred), and 83 rates and 121 shares of 28
// random settings were off by .24 % and .0044 in the mean.
const (
	startsWithin = 10 * time.Millisecond
	wakes        = 20 * time.Microsecond
	trips        = .005 // of round trips: by how much calibrated ones differ from one job to another like it
)

// Open brings up a testbed for a spec, with what the key says of its fabric. One that others use is held. Every switch port
// of an emulation is captured into the directory pcap, if there is one; slow is slower there than anybody is told.
func Open(ctx context.Context, driver string, s *spec.Spec, key study.FabricKey, pcap string, held Held, slow *Slow) (testbed.Testbed, error) {
	interval := max(20*time.Millisecond, time.Duration(s.Measure.Interval))
	switch driver {
	case "sim":
		return sim.Open(built(s.Inventory(), key), sim.Options{Seed: s.Measure.Seed})
	case "netns":
		queue := "fifo"
		switch key.Queue {
		case "fair":
			queue = "drr"
		case "flows":
			queue = "drr-flow"
		}
		f, err := netns.Up(ctx, built(s.Inventory(), key), netns.Options{
			Scale: key.Scale, SSHD: s.Emulation.SSHD, Switch: key.Kind, Offload: s.Emulation.Offload, Paced: !s.Kind().Foreign, Serial: s.Kind().Foreign,
			Queue: queue, Seed: s.Measure.Seed, PcapDir: pcap, Beat: key.Beat, Frame: int(study.FrameBits(key.Lanes) / 8), Slow: slow.links(),
		})
		if err != nil {
			return nil, err
		}
		rest := testbed.Rest(f.Beat(), s.Emulation.Offload)
		return deployment.Open(ctx, remote.Options{
			Fabric: f, Exe: "/proc/self/exe", Patience: time.Duration(s.Measure.Patience), Run: held.Run,
			HostMAC: func(host, device string) (net.HardwareAddr, error) { return f.HostMAC(host, device), nil },
			Capabilities: testbed.Capabilities{
				Sums: true, Impairments: true, Calibrates: true, Kind: results.Measured, Switch: switchKinds(f.Inventory()),
				SuperFrames: s.Emulation.Offload, Pace: testbed.Pace{Within: startsWithin, Rest: rest / 2, Wake: wakes, Trip: trips},
			},
			Facts: []results.HostFacts{ThisMachine()}, Unmanaged: key.Trees, Preflight: preflightOf(s, preflight.OnEmulation),
		}, deployment.Options{Interval: interval, Rest: rest, Offload: s.Emulation.Offload})
	case "lab":
		f, err := realab.New(s.Inventory())
		if err != nil {
			return nil, err
		}
		return deployment.Open(ctx, remote.Options{
			Fabric: f, Exe: "/proc/self/exe", Patience: time.Duration(s.Measure.Patience), Readers: true,
			Shared: true, Run: held.Run, Hold: held.Hold, Use: held.Use, Preflight: held.Asked.ceilingOf(s, preflightOf(s, nil)),
			Capabilities: testbed.Capabilities{
				Sums: true, Calibrates: true, Kind: results.Measured, Switch: switchKinds(s.Inventory()),
			},
		}, deployment.Options{Interval: interval})
	}
	return nil, fmt.Errorf("driver %q: %w", driver, errors.ErrUnsupported)
}

// built is the inventory with the queues and rates that the experiment wants.
func built(inv *inventory.Inventory, key study.FabricKey) *inventory.Inventory {
	if key.Buffer == 0 && key.ECN == 0 && !key.Freely && key.Rate == 0 {
		return inv
	}
	c := inv.Clone()
	for i := range c.Hosts {
		for k := range c.Hosts[i].NICs {
			if key.Rate > 0 {
				c.Hosts[i].NICs[k].Rate = key.Rate
			}
		}
	}
	for i := range c.Switches {
		if key.Freely {
			c.Switches[i].SHARP.Jobs = c.Switches[i].SHARP.Trees
		}
		if key.Buffer > 0 {
			c.Switches[i].Buffer = key.Buffer
		}
		if key.ECN > 0 {
			c.Switches[i].ECN = key.ECN
		}
	}
	return c
}

// SwitchKind is the kind of switch that an emulation for the spec has, netns.Soft or netns.BMv2.
func SwitchKind(s *spec.Spec) string {
	if s.Emulation.Switch == netns.BMv2 {
		return netns.BMv2
	}
	return netns.Soft
}

// switchKinds names the kinds of switch in an inventory.
func switchKinds(inv *inventory.Inventory) string {
	var out []string
	for _, sw := range inv.Switches {
		if !slices.Contains(out, string(sw.Kind)) {
			out = append(out, string(sw.Kind))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// ThisMachine describes the machine that an emulation runs on.
func ThisMachine() results.HostFacts {
	f := results.HostFacts{Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	f.Host, _ = os.Hostname()
	f.CPU = cpuModel()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		f.Memory = int64(si.Totalram) * int64(si.Unit)
	}
	return f
}

// cpuModel is the processor's name, "" where the kernel does not tell. Machines that are rented
// for an hour have another name each time, and are the same machine if this is the same.
func cpuModel() string {
	text, err := bounded.ReadFile("/proc/cpuinfo", bounded.Config)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}

// Topology is the inventory's graph as a record keeps it.
func Topology(inv *inventory.Inventory) results.Topology {
	var out results.Topology
	topo := inv.Topology()
	for _, h := range inv.Hosts {
		out.Nodes = append(out.Nodes, results.Node{Name: h.Name, Kind: "host", Rack: h.Rack, GPUs: h.GPUs})
	}
	for _, sw := range inv.Switches {
		out.Nodes = append(out.Nodes, results.Node{Name: sw.Name, Kind: string(sw.Kind), Rack: sw.Rack, Tier: topo.Tier(sw.Name)})
	}
	for _, l := range topo.Links {
		out.Links = append(out.Links, results.Link{Name: l.Name, From: l.From, To: l.To, Rate: float64(l.Rate)})
	}
	return out
}
