// Package starter writes the first files of a lab: an inventory, an experiment that runs on it, and a workflow, of the
// little that somebody knows by heart. What it writes passes every check, and says in comments what to change.
package starter

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// Lab is what is known of a lab: hosts with one NIC each, in equal parts on ToR switches, which are cabled to each other
// or, three or more, to a spine.
type Lab struct {
	Name        string
	Hosts       []string // 2 or more
	GPUs        int      // of each host
	Rate        inventory.BitRate
	Switches    []string // ToRs, 1 or more
	Kind        inventory.Kind
	Aggregators int               // of each switch
	Uplink      inventory.BitRate // of cables between switches
	Login       bool              // hosts are reached over SSH by their names
}

// Kinds are the kinds of switch that a Lab may have.
var Kinds = []string{string(inventory.Tofino), string(inventory.BMv2), string(inventory.Soft)}

// schemas begins a line that tells editors what a file may say.
const schemas = "#:schema https://raw.githubusercontent.com/inabench/inabench/main/docs/schema/"

// delay is that of a cable of a few metres with its transceivers.
const delay = time.Microsecond

// mostPorts is how many ports a switch may have: hosts take the first ones.
const mostPorts = 4096

// Inventory is the lab as an inventory, and its file.
func (l Lab) Inventory() (*inventory.Inventory, []byte, error) {
	switch each := (len(l.Hosts) + len(l.Switches) - 1) / max(1, len(l.Switches)); {
	case len(l.Hosts) < 2:
		return nil, nil, errors.New("one host alone exchanges nothing: name two or more")
	case len(l.Switches) == 0:
		return nil, nil, errors.New("hosts without a switch")
	case len(l.Hosts) < len(l.Switches):
		return nil, nil, fmt.Errorf("%d hosts on %d ToR switches: some would have none", len(l.Hosts), len(l.Switches))
	case each >= mostPorts:
		return nil, nil, fmt.Errorf("%d hosts on a switch", each)
	case !slices.Contains(Kinds, string(l.Kind)):
		return nil, nil, tomlfile.WithHint(tomlfile.OneOf(string(l.Kind), Kinds), "switches of kind %q", l.Kind)
	}
	inv := &inventory.Inventory{Name: l.Name}
	for _, name := range l.Switches {
		inv.Switches = append(inv.Switches, inventory.Switch{Name: name, Kind: l.Kind, Rack: name, Aggregators: l.Aggregators})
	}
	per := len(l.Hosts) / len(l.Switches)
	more := len(l.Hosts) % len(l.Switches) // racks with one host more
	for i, at := 0, 0; i < len(l.Switches); i++ {
		n := per
		if i < more {
			n++
		}
		for port := 1; port <= n; port++ {
			h := inventory.Host{
				Name: l.Hosts[at], Rack: l.Switches[i], GPUs: l.GPUs,
				NICs: []inventory.NIC{{Switch: l.Switches[i], Port: uint32(port), Rate: l.Rate, Delay: delay}},
			}
			if l.Login {
				h.SSH.Address = h.Name
			}
			inv.Hosts = append(inv.Hosts, h)
			at++
		}
	}
	up := uint32(per + 1) // the first port that no host has
	if more > 0 {
		up++
	}
	port := func(sw string, n uint32) inventory.Port { return inventory.Port{Switch: sw, Port: n} }
	link := func(a, b inventory.Port) {
		inv.Links = append(inv.Links, inventory.Link{A: a, B: b, Rate: l.Uplink, Delay: delay})
	}
	switch len(l.Switches) {
	case 1:
	case 2:
		link(port(l.Switches[0], up), port(l.Switches[1], up))
	default:
		spine := "spine1"
		for n := 2; slices.Contains(l.Switches, spine) || slices.Contains(l.Hosts, spine); n++ {
			spine = fmt.Sprintf("spine%d", n)
		}
		inv.Switches = append(inv.Switches, inventory.Switch{Name: spine, Kind: l.Kind, Rack: spine, Aggregators: l.Aggregators})
		for i, tor := range l.Switches {
			link(port(tor, up), port(spine, uint32(i+1)))
		}
	}
	notes := inventory.Notes{
		Head: []string{
			"What exists in the lab. `inabench reference --of inventory` says what may stand here, and",
			"`inabench check` whether it makes sense. A range such as [1-4] makes one table several; all",
			"ranges of a table step together.",
		},
		Of: map[string]string{},
	}
	for _, tor := range l.Switches {
		notes.Of[tor] = "ToR switches. Emulations need no more; a lab wants control = \"HOST:PORT\", and how the switch\n" +
			"is driven: device_config, ports, ssh."
	}
	for _, h := range l.Hosts {
		notes.Of[h] = "Hosts, each with a cable to its ToR. Emulations need no more; a lab wants the NIC's device\n" +
			"and its address: nic.device = \"ens1f0\", nic.address = \"10.1.0.[1-8]/24\"."
	}
	text := append([]byte(schemas+"inventory.json\n"), inventory.Format(inv, notes)...)
	inv, err := inventory.Parse(l.Name+".toml", text)
	return inv, text, err
}

// Experiment is a first experiment on an inventory, which it names by a path relative to its own folder: one job over as
// many racks as there are, whose sums switches make if one has aggregators.
func Experiment(inv *inventory.Inventory, file string) ([]byte, error) {
	if len(inv.Hosts) < 2 {
		return nil, fmt.Errorf("%s has %d hosts: a job has two workers at least", inv.File, len(inv.Hosts))
	}
	// Hosts of different racks in turn, so that a job spans them.
	var racks []string
	of := map[string][]string{}
	for _, h := range inv.Hosts {
		if of[h.Rack] == nil {
			racks = append(racks, h.Rack)
		}
		of[h.Rack] = append(of[h.Rack], h.Name)
	}
	var names []string
	for i := 0; len(names) < len(inv.Hosts); i++ {
		for _, r := range racks {
			if i < len(of[r]) {
				names = append(names, of[r][i])
			}
		}
	}
	// Two workers in each rack, as far as that goes, and a PS beside them.
	workers := min(2*len(racks), len(names)-1, 16)
	if len(racks) == 1 {
		workers = min(4, len(names)-1)
	}
	slowest := inv.Hosts[0].NICs[0].Rate
	for _, name := range names[:max(workers, 2)] {
		h, _ := inv.Host(name)
		for _, n := range h.NICs {
			slowest = min(slowest, n.Rate)
		}
	}
	aggregates := slices.ContainsFunc(inv.Switches, func(s inventory.Switch) bool { return s.Aggregators > 0 })
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	b.WriteString(schemas + "experiment.json\n")
	line("# A first experiment: one job, and what should come out. `inabench reference` says what may")
	line("# stand here. All rates and times are the lab's: an emulation scales them itself, by as much as")
	line("# this machine carries.")
	line("version = 1")
	line("inventory = %q", file)
	ina := aggregates && workers >= 2
	if ina {
		line("title = \"Do switches sum up all gradients of one job?\"")
	} else {
		line("title = \"Is one job as fast as its cables?\"")
	}
	if ina {
		line("\n[switch]\nmode = \"statistical\"           # or \"synchronous\": aggregators of its own for each job")
		line("addressing = \"pool\"            # or \"hash\", \"linear\", \"atp\"")
	}
	line("\n[[job]]\nname = \"A\"")
	if workers < 2 { // two hosts
		line("collective = \"ring\"            # with a third host for a PS: \"ina\" or \"ps\"")
		line("hosts = [%s]", tomlfile.Strings(names[:2]))
		line("message = %-20s # of gradients in each iteration", fmt.Sprintf("%q", message(slowest)))
	} else {
		if !ina {
			line("collective = \"ps\"              # \"ina\" where a switch has aggregators")
		}
		line("hosts = [%s]", tomlfile.Strings(names[:workers]))
		line("ps = %q", names[len(names)-1])
		line("rate = %-23s # of each worker, on the wire; without it: all that fits", fmt.Sprintf("%q", slowest/5))
	}
	line("\n# What it is judged by: `inabench reference expect`.")
	expect := func(metric, tolerance, reason string) {
		line("[[expect]]\nmetric = %q\n%s\nreason = %q\n", metric, tolerance, reason)
	}
	expect("goodput", `tolerance = "5%"`, "as predicted from cables, windows and aggregators")
	if ina {
		expect("share", `tolerance = "0.05"`, "of packets that switches sum up: as predicted from their memory")
	}
	expect("sum_errors", "value = 0", "no sum may be wrong")
	line("# What to do next: a [[sweep]] varies a key, a second [[job]] shares the switch with the first.")
	return []byte(b.String()), nil
}

// message is what a cable carries in about a millisecond, a power of two.
func message(rate inventory.BitRate) inventory.Bytes {
	b := inventory.Bytes(64 << 10)
	for float64(2*b*8) <= float64(rate)*1e-3 {
		b *= 2
	}
	return b
}

// Workflow is a workflow of GitHub that runs an experiment on an emulated rack with every push, and keeps its report.
func Workflow(experiment string) []byte {
	return fmt.Appendf(nil, `# %[1]s on an emulated rack, with every push: no hardware.
name: inabench
on:
  push:
  pull_request:
permissions:
  contents: read

jobs:
  emulated:
    runs-on: ubuntu-24.04
    timeout-minutes: 15
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          persist-credentials: false
      - uses: actions/setup-go@b7ad1dad31e06c5925ef5d2fc7ad053ef454303e # v7.0.0
        with:
          go-version: stable
      - run: go install github.com/inabench/inabench/cmd/inabench@latest
      # Ubuntu's AppArmor keeps ordinary users from making namespaces.
      - run: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0
      - run: inabench run %[1]s
      - if: always()
        run: inabench report latest --format md >> "$GITHUB_STEP_SUMMARY"
      - uses: actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0
        if: always()
        with:
          name: runs
          path: runs
          if-no-files-found: ignore
`, path.Clean(experiment))
}
