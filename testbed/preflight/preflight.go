// Package preflight looks whether a testbed is fit for a run before anything is measured:
// cables, settings, drivers, clocks and what earlier runs have left. Each check can be
// skipped by its name, and says of each host what was found and what was wanted.
//
// A host is asked everything in one go, by a script that its shell reads; all hosts are
// asked at once. What a host cannot say, because it lacks a program, is a skipped check
// with that reason and never a passed one.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/hosts"
)

// The checks, by name.
const (
	MTU      = "mtu"
	PFC      = "pfc"
	Link     = "link"
	Cabling  = "cabling"
	Drift    = "drift"
	Kernel   = "kernel"
	Clock    = "clock"
	Governor = "governor"
	NUMA     = "numa"
	Leftover = "leftover"
	Disk     = "disk"
)

// Ceiling is the name of the check whether a host's software is able to send and receive what a run asks of it. Run does not
// make it, since it needs a plan, and a program on the host: package carry does.
const Ceiling = "ceiling"

// Reachable is the name of the check that everything else needs. It cannot be skipped.
const Reachable = "reachable"

// Check is one check, and what it asks.
type Check struct{ Name, About string }

// Checks are all checks that Run makes, in the order in which they are reported.
func Checks() []Check {
	return []Check{
		{Clock, "the host's clock agrees with this machine's to within " + clockLimit.String()},
		{Leftover, "no agent of an earlier run of this user is left on the host"},
		{Disk, "the agent's directory has room for " + strconv.Itoa(diskLimit>>20) + " MiB"},
		{Kernel, "the host runs what this program was built for, and the kernel that the other hosts run"},
		{MTU, "every cable takes frames as large as the others', by both of its ends"},
		{Link, "network devices are up, and as fast as the inventory says"},
		{PFC, "pauses, priorities and congestion marks are set as on the other hosts"},
		{Cabling, "cables end where the inventory says, by LLDP"},
		{Drift, "network devices and GPUs have the driver and firmware that the other hosts have"},
		{Governor, "CPUs do not change their frequency"},
		{NUMA, "every GPU of a host with several NICs has one of them near"},
	}
}

// OnEmulation are the checks that mean something where hosts are namespaces, which are new:
// nothing can be left there, and all else is this machine's.
var OnEmulation = []string{Clock, MTU}

const (
	clockLimit = time.Second
	diskLimit  = 256 << 20 // bytes: two agents, their logs and samples
	minMTU     = 1500
)

// Names are the names of all checks that can be skipped: those of Checks, and Ceiling.
func Names() []string {
	var out []string
	for _, c := range Checks() {
		out = append(out, c.Name)
	}
	return append(out, Ceiling)
}

// Skip is a check that is not to be made, and who said so.
type Skip struct{ Name, Why string }

// Host is a host to look at.
type Host struct {
	inventory.Host
	Client hosts.Host
	// Lab is the inventory that the host is of, which may say what its switches call their ports; nil: nothing does.
	Lab *inventory.Inventory
}

func (h Host) String() string { return h.Name }

// Run makes the checks that are wanted, by their names (none: all), except those that are
// skipped, on all hosts at once, limit of them at a time (0: 32). Every host has one
// outcome for every check, in the order of Checks and then of hosts; a host that does not
// answer fails Reachable alone. A check that is skipped has one outcome without a host.
// facts describe the hosts that answered.
func Run(ctx context.Context, all []Host, wanted []string, skip []Skip, limit int) (out []results.Preflight, facts []results.HostFacts) {
	if limit == 0 {
		limit = 32
	}
	var todo []string
	for _, c := range Checks() {
		if len(wanted) > 0 && !slices.Contains(wanted, c.Name) {
			continue
		}
		if i := slices.IndexFunc(skip, func(s Skip) bool { return s.Name == c.Name }); i >= 0 {
			out = append(out, results.Preflight{Name: c.Name, Outcome: results.Skipped, Why: skip[i].Why})
			continue
		}
		todo = append(todo, c.Name)
	}
	answers := make([]*answer, len(all))
	_ = hosts.FanOut(ctx, limit, all, func(ctx context.Context, i int, h Host) error {
		answers[i] = ask(ctx, h, script(todo))
		return answers[i].err
	})
	var there []*answer
	for i, a := range answers {
		switch {
		case a == nil: // never asked
			a = &answer{host: all[i].Host, err: context.Cause(ctx)}
			fallthrough
		case a.err != nil:
			out = append(out, Unreachable(all[i].Name, a.err))
		default:
			there = append(there, a)
			facts = append(facts, a.facts())
		}
	}
	for _, name := range todo {
		out = append(out, judges[name](there)...)
	}
	return out, facts
}

// facts are what a record keeps of the host.
func (a *answer) facts() results.HostFacts {
	f := results.HostFacts{Host: a.host.Name}
	f.CPUs, f.CPU, f.Memory = parseMachine(a.parts[section{name: "machine"}])
	uname, _ := a.of("uname", "")
	if u := strings.Fields(uname); len(u) > 2 {
		f.Kernel, f.Arch = u[1], cmp.Or(hosts.Architecture(u[len(u)-1]), u[len(u)-1])
	}
	return f
}

// Unreachable is the outcome of a host that cannot be asked.
func Unreachable(host string, err error) results.Preflight {
	err = hosts.Name(host, err)
	p := results.Preflight{Name: Reachable, Host: host, Outcome: results.Fail, Found: oneLine(err.Error()), Why: oneLine(hosts.Reason(host, err))}
	if e := (*hosts.Error)(nil); errors.As(err, &e) {
		p.Hint = e.Hint
	}
	return p
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Dead are hosts that cannot be asked, all for one reason.
type Dead struct {
	Hosts       []string
	Found, Hint string // of the first
}

// String names them all, and says what is wrong with the first.
func (d Dead) String() string {
	if len(d.Hosts) == 1 {
		return d.Found
	}
	return fmt.Sprintf("%d hosts do not answer, %s; %s", len(d.Hosts), strings.Join(d.Hosts, ", "), d.Found)
}

// DeadHosts are the hosts that cannot be asked, in the order of all: those together that cannot for one reason.
func DeadHosts(all []results.Preflight) (out []Dead) {
	at := map[[2]string]int{}
	for _, p := range all {
		if p.Name != Reachable || p.Outcome != results.Fail {
			continue
		}
		key := [2]string{p.Why, p.Hint}
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, Dead{Found: p.Found, Hint: p.Hint})
		}
		out[i].Hosts = append(out[i].Hosts, p.Host)
	}
	return out
}

// Err is nil when no check failed. Otherwise it names the first ones and what to do.
func Err(all []results.Preflight) error {
	var failed []results.Preflight
	for _, p := range all {
		if p.Outcome == results.Fail {
			failed = append(failed, p)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &Error{all, failed}
}

// Error is a testbed that is not fit for a run.
type Error struct{ All, Failed []results.Preflight }

func (e *Error) Error() string {
	var lines []string
	for _, d := range DeadHosts(e.Failed) {
		lines = append(lines, "preflight: "+d.String())
	}
	for _, p := range e.Failed {
		if p.Name != Reachable {
			lines = append(lines, "preflight: "+p.String())
		}
	}
	return strings.Join(lines, "\n")
}

// Hint is what to do about it.
func (e *Error) Hint() string {
	var hints, names []string
	for _, p := range e.Failed {
		if p.Hint != "" && !slices.Contains(hints, p.Hint) {
			hints = append(hints, p.Hint)
		}
		if p.Name != Reachable && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	if len(names) > 0 {
		hints = append(hints, "to run all the same: --skip-preflight "+strings.Join(names, ","))
	}
	return strings.Join(hints, "; ")
}

// answer is what a host said.
type answer struct {
	host           inventory.Host  // with the NICs that are network devices
	ib             []inventory.NIC // those that are known as RDMA ports only
	lab            *inventory.Inventory
	err            error
	parts          map[section]string
	sent, received time.Time
}

// hostTimeout bounds how long a host is waited for: nvidia-smi can take seconds.
const hostTimeout = 30 * time.Second

func ask(ctx context.Context, h Host, script string) *answer {
	ctx, cancel := context.WithTimeoutCause(ctx, hostTimeout, fmt.Errorf("no answer within %v", hostTimeout))
	defer cancel()
	a := &answer{host: h.Host, lab: h.Lab, sent: time.Now()}
	a.host.NICs = nil
	argv := []string{"sh", "-s", "--"}
	for _, n := range h.NICs {
		if n.Device == "" && n.RDMA != "" {
			a.ib = append(a.ib, n)
			continue
		}
		a.host.NICs = append(a.host.NICs, n)
		argv = append(argv, n.Device)
	}
	out, err := h.Client.Run(ctx, argv, strings.NewReader(script))
	a.received = time.Now()
	a.parts = parseAnswer(string(out.Stdout))
	if _, ended := a.parts[section{name: "end"}]; !ended {
		a.err = cmp.Or(err, errors.New("its shell did not come to the end of the script"))
	}
	return a
}

// of is a part of the answer, and whether it says anything.
func (a *answer) of(name, device string) (string, bool) {
	s := a.parts[section{name, device}]
	return s, s != ""
}

func (a *answer) pass(name, found string) results.Preflight {
	return results.Preflight{Name: name, Host: a.host.Name, Outcome: results.Pass, Found: found}
}

func (a *answer) skip(name, why string) results.Preflight {
	return results.Preflight{Name: name, Host: a.host.Name, Outcome: results.Skipped, Why: why}
}

func (a *answer) fail(name, found, wanted, hint string) results.Preflight {
	return results.Preflight{Name: name, Host: a.host.Name, Outcome: results.Fail, Found: found, Wanted: wanted, Hint: hint}
}

// judges decide the checks.
var judges = map[string]func([]*answer) []results.Preflight{
	Clock: each(clock), Leftover: each(leftover), Disk: each(disk), Governor: each(governor), NUMA: each(numa),
	Cabling: each(cabling), Link: each(link), Kernel: kernel, MTU: mtu, PFC: pfc, Drift: drift,
}

func each(f func(*answer) results.Preflight) func([]*answer) []results.Preflight {
	return func(all []*answer) (out []results.Preflight) {
		for _, a := range all {
			out = append(out, f(a))
		}
		return out
	}
}

// clock bounds how far the host's clock is ahead. Its first time was read after the script
// was sent, its last one before the answer came; so what the script itself took cancels
// out, and the bounds are as far apart as the connection takes to and fro.
func clock(a *answer) results.Preflight {
	begin, exact, err := parseTime(a.parts[section{name: "begin"}])
	end, _, err2 := parseTime(a.parts[section{name: "end"}])
	if err = errors.Join(err, err2); err != nil {
		return a.skip(Clock, "the host does not say its time: "+err.Error())
	}
	unix := func(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
	most, least := begin-unix(a.sent), end-unix(a.received)
	if !exact {
		most++ // cut off
	}
	off := (most + least) / 2
	within := max((most-least)/2, 0)
	ahead := "ahead of"
	if off < 0 {
		ahead = "behind"
	}
	found := fmt.Sprintf("%s %s this machine, ± %s", human.Quantity(math.Abs(off), "s"), ahead, human.Quantity(within, "s"))
	if math.Abs(off) <= within { // nothing more can be told
		found = "agrees to within " + human.Quantity(2*within, "s")
	}
	if math.Abs(off)-within > clockLimit.Seconds() {
		return a.fail(Clock, found, "within "+clockLimit.String(), `set it: "sudo chronyc makestep", or "sudo systemctl restart systemd-timesyncd"`)
	}
	return a.pass(Clock, found)
}

// leftover reads `ls -l /proc/*/exe`: lines that end in "/proc/17/exe -> PATH".
func leftover(a *answer) results.Preflight {
	text, _ := a.of("leftover", "")
	var found []string
	for line := range strings.Lines(text) {
		left, _, ok := strings.Cut(line, " -> ")
		f := strings.Fields(left)
		if !ok || len(f) == 0 {
			continue
		}
		if p := strings.Split(f[len(f)-1], "/"); len(p) == 4 && p[1] == "proc" {
			found = append(found, p[2])
		}
	}
	if len(found) > 0 {
		return a.fail(Leftover, fmt.Sprintf("%s of ours still running: pid %s", human.Plural(len(found), "agent"), strings.Join(found, ", ")),
			"none", "inabench clean -i LAB.toml ends them, unless they are of a run that goes on")
	}
	return a.pass(Leftover, "none")
}

func disk(a *answer) results.Preflight {
	text, ok := a.of("disk", "")
	if !ok {
		return a.skip(Disk, "the host has no df")
	}
	free, err := parseDisk(text)
	if err != nil {
		return a.skip(Disk, err.Error())
	}
	found := fmt.Sprintf("%d MiB free in the home directory", free>>20)
	if free < diskLimit {
		return a.fail(Disk, found, fmt.Sprintf("%d MiB", diskLimit>>20), "old agents may go: rm ~/.cache/inabench/agent-*")
	}
	return a.pass(Disk, found)
}

func governor(a *answer) results.Preflight {
	text, _ := a.of("governor", "")
	all := parseGovernors(text)
	if len(all) == 0 {
		return a.skip(Governor, "the host does not say how it sets CPU frequencies, as virtual machines do not")
	}
	var found []string
	for g, n := range all {
		found = append(found, fmt.Sprintf("%s on %s", g, human.Plural(n, "CPU")))
	}
	slices.Sort(found)
	if len(all) > 1 || all["performance"] == 0 {
		return a.fail(Governor, strings.Join(found, ", "), "performance on all", `"sudo cpupower frequency-set -g performance"`)
	}
	return a.pass(Governor, found[0])
}

// numa looks at GPUs and NICs of hosts that have several NICs.
func numa(a *answer) results.Preflight {
	if len(a.host.NICs)+len(a.ib) < 2 || a.host.GPUs == 0 {
		return a.pass(NUMA, "one NIC, or no GPU")
	}
	text, ok := a.of("topology", "")
	if !ok {
		return a.skip(NUMA, "no nvidia-smi on the host")
	}
	m, err := parseTopology(text)
	if err != nil {
		return a.skip(NUMA, err.Error())
	}
	var far, near []string
	var rails []string // RDMA devices
	for _, n := range a.host.NICs {
		text, _ := a.of("rdma", n.Device)
		rails = append(rails, strings.Fields(text)...)
	}
	for _, n := range a.ib {
		device, _, _ := strings.Cut(n.RDMA, ":")
		rails = append(rails, device)
	}
	if len(rails) == 0 {
		return a.skip(NUMA, "the host does not say which RDMA devices its NICs are")
	}
	for _, n := range a.host.NICs {
		if node, ok := a.of("numa", n.Device); ok && node != "-1" {
			near = append(near, n.Device+" on NUMA node "+node)
		}
	}
	for _, gpu := range m.gpus {
		nic, d := m.nearest(gpu, rails)
		s := fmt.Sprintf("%s %s %s", gpu, cmp.Or(d, "?"), cmp.Or(nic, "no NIC"))
		if i := slices.Index(distances, d); i < 0 || i > slices.Index(distances, "PHB") {
			far = append(far, s)
		} else {
			near = append(near, s)
		}
	}
	if len(far) > 0 {
		return a.fail(NUMA, "the nearest NIC is across the CPU: "+strings.Join(far, ", "), "at most PHB (below the same host bridge)", "put NICs into slots beside their GPUs, or name the near ones in the inventory")
	}
	return a.pass(NUMA, strings.Join(near, ", "))
}

func mtu(all []*answer) (out []results.Preflight) {
	var o others
	for _, a := range all {
		neighbours, _ := ParseLLDP(a.parts[section{name: "lldp"}])
		for _, n := range a.host.NICs {
			text, _ := a.of("mtu", n.Device)
			v, err := parseMTU(text)
			switch far := neighbours[n.Device]; {
			case err != nil:
				out = append(out, a.skip(MTU, "the host does not say the MTU of "+n.Device))
			case v < minMTU:
				out = append(out, a.fail(MTU, fmt.Sprintf("%s %d", n.Device, v), fmt.Sprintf("at least %d", minMTU), fmt.Sprintf(`"sudo ip link set %s mtu %d"`, n.Device, minMTU)))
			case far.MFS > 0 && far.MFS < v+18: // Ethernet header and FCS
				out = append(out, a.fail(MTU, fmt.Sprintf("%s %d, port %s of %s takes frames of %d bytes", n.Device, v, far.Port, far.System, far.MFS), fmt.Sprintf("%d", v+18), "give both ends of the cable the same MTU"))
			default:
				o.add(a, "", n.Device, strconv.Itoa(v))
			}
		}
	}
	return append(out, o.judge(MTU, "give all NICs of the data network the same MTU")...)
}

func pfc(all []*answer) (out []results.Preflight) {
	var o others
	for _, a := range all {
		for _, n := range a.host.NICs {
			var f flow
			var why []string
			read := func(name string, parse func(string, *flow) error) bool {
				text, ok := a.of(name, n.Device)
				if !ok {
					return false
				}
				if err := parse(text, &f); err != nil {
					why = append(why, err.Error())
					return false
				}
				return true
			}
			if !read("qos", parseQoS) {
				read("dcb", parseDCB)
			}
			read("pause", parsePause)
			read("ecn", parseECN)
			switch {
			case f.String() == "":
				out = append(out, a.skip(PFC, strings.Join(append([]string{"neither mlnx_qos, dcb nor ethtool says anything of " + n.Device}, why...), "; ")))
			case strings.Contains(f.pfc, "1") && (f.rx == "on" || f.tx == "on"):
				out = append(out, a.fail(PFC, n.Device+" "+f.String(), "PFC or pauses, not both", fmt.Sprintf(`"sudo ethtool -A %s rx off tx off"`, n.Device)))
			default:
				o.add(a, "", n.Device, f.String())
			}
		}
	}
	return append(out, o.judge(PFC, "set all hosts alike: mlnx_qos -i DEVICE --pfc … --trust dscp, ethtool -A")...)
}

// link looks whether cables are in and carry what the inventory says, and that InfiniBand
// ports are those of the adapters that it names. A virtual device may have no speed.
func link(a *answer) results.Preflight {
	var found, wrong, wanted []string
	ports := parseRDMA(a.parts[section{name: "ib"}])
	for _, n := range a.ib {
		p, ok := ports[n.RDMA]
		switch {
		case !ok:
			wrong, wanted = append(wrong, "no "+n.RDMA), append(wanted, n.RDMA)
		case n.GUID != 0 && p.guid != n.GUID:
			wrong, wanted = append(wrong, fmt.Sprintf("%s has GUID %v", n.RDMA, p.guid)), append(wanted, fmt.Sprintf("%s with %v", n.RDMA, n.GUID))
		case p.state != "ACTIVE":
			wrong, wanted = append(wrong, n.RDMA+" is "+p.state), append(wanted, n.RDMA+" ACTIVE")
		case p.rate < 0.95*float64(n.Rate): // names of speeds are rounded: FDR's 54.5 Gbit/s are 56
			wrong = append(wrong, n.RDMA+" "+human.Quantity(p.rate, "bit/s"))
			wanted = append(wanted, n.RDMA+" "+human.Quantity(float64(n.Rate), "bit/s"))
		default:
			found = append(found, n.RDMA+" "+human.Quantity(p.rate, "bit/s"))
		}
	}
	for _, n := range a.host.NICs {
		state, _ := a.of("state", n.Device)
		text, _ := a.of("speed", n.Device)
		mbits, err := strconv.ParseFloat(text, 64)
		rate := human.Quantity(float64(n.Rate), "bit/s")
		switch {
		case state == "down" || state == "lowerlayerdown":
			wrong, wanted = append(wrong, n.Device+" is down"), append(wanted, n.Device+" up")
		case err != nil || mbits <= 0:
		case mbits*1e6 < 0.99*float64(n.Rate):
			wrong = append(wrong, n.Device+" "+human.Quantity(mbits*1e6, "bit/s"))
			wanted = append(wanted, n.Device+" "+rate)
		default:
			found = append(found, n.Device+" "+human.Quantity(mbits*1e6, "bit/s"))
		}
	}
	switch {
	case len(wrong) > 0:
		return a.fail(Link, strings.Join(wrong, ", "), strings.Join(wanted, ", "), "look at cable, transceiver, FEC and autonegotiation at both ends, or correct the inventory")
	case len(found) == 0:
		return a.skip(Link, "its network devices do not say how fast they are")
	}
	return a.pass(Link, strings.Join(found, ", "))
}

var digits = regexp.MustCompile(`\d+`)

// PortNumber is the number of a port by a name with one number, such as "Ethernet3", that is no MAC address. Which one it is
// of several, as in "Ethernet1/3", nothing tells.
func PortNumber(name string) (uint32, bool) {
	all := digits.FindAllString(name, 2)
	if len(all) != 1 || strings.Contains(name, ":") {
		return 0, false
	}
	n, err := strconv.ParseUint(all[0], 10, 32)
	return uint32(n), err == nil
}

// fits reports whether a neighbour's port may be that of the inventory. It is if it is called as the inventory says that
// the switch calls it; else the last number of its name counts, but not of several where the inventory names none. A name
// without one, such as a MAC address, says nothing.
func (a *answer) fits(n inventory.NIC, far Neighbour) bool {
	named := ""
	if a.lab != nil {
		if sw, ok := a.lab.Switch(n.Switch); ok {
			named = sw.Ports[n.Port]
		}
	}
	if named != "" && (named == far.Port || named == far.Descr) {
		return true
	}
	for _, name := range []string{far.Port, far.Descr} {
		all := digits.FindAllString(name, -1)
		if len(all) == 0 || strings.Contains(name, ":") {
			continue
		}
		last, err := strconv.ParseUint(all[len(all)-1], 10, 32)
		return err != nil || last == uint64(n.Port) || len(all) > 1 && named == ""
	}
	return true
}

func cabling(a *answer) results.Preflight {
	if len(a.host.NICs) == 0 && len(a.ib) > 0 {
		return a.skip(Cabling, "its cables are InfiniBand, which inabench inventory diff --from looks at")
	}
	text, ok := a.of("lldp", "")
	if !ok {
		return a.skip(Cabling, "the host has no lldpd, or the user may not ask it")
	}
	all, err := ParseLLDP(text)
	if err != nil {
		return a.skip(Cabling, err.Error())
	}
	var found, wrong, wanted, silent []string
	for _, n := range a.host.NICs {
		far, ok := all[n.Device]
		if !ok || far.System == "" {
			silent = append(silent, n.Device)
			continue
		}
		short, _, _ := strings.Cut(far.System, ".")
		s := fmt.Sprintf("%s in %s/%s", n.Device, far.System, far.Port)
		found = append(found, s)
		if !strings.EqualFold(short, n.Switch) && !strings.EqualFold(far.System, n.Switch) || !a.fits(n, far) {
			wrong = append(wrong, s)
			wanted = append(wanted, fmt.Sprintf("%s in %s/%d", n.Device, n.Switch, n.Port))
		}
	}
	switch {
	case len(wrong) > 0:
		return a.fail(Cabling, strings.Join(wrong, ", "), strings.Join(wanted, ", "), "move the cable, or correct the inventory: inabench inventory discover")
	case len(found) == 0:
		return a.skip(Cabling, "no switch speaks LLDP to "+strings.Join(silent, ", "))
	}
	return a.pass(Cabling, strings.Join(found, ", "))
}

func drift(all []*answer) (out []results.Preflight) {
	var o others
	for _, a := range all {
		if text, ok := a.of("gpus", ""); ok && a.host.GPUs > 0 {
			for _, g := range parseGPUs(text) {
				o.add(a, "GPU "+g.name, g.name, g.String())
			}
		}
		for _, n := range a.host.NICs {
			text, ok := a.of("driver", n.Device)
			if !ok {
				out = append(out, a.skip(Drift, "no ethtool on the host, or no device "+n.Device))
				continue
			}
			d, err := parseDriver(text)
			if err != nil {
				out = append(out, a.skip(Drift, err.Error()))
				continue
			}
			// A virtual device's driver has the version of its kernel, which is checked by itself.
			uname, _ := a.of("uname", "")
			if f := strings.Fields(uname); len(f) > 1 && d.version == f[1] {
				d.version = ""
			}
			o.add(a, d.kind(), n.Device, d.String())
		}
	}
	return append(out, o.judge(Drift, "install the same driver and firmware on all hosts")...)
}

func kernel(all []*answer) (out []results.Preflight) {
	var o others
	for _, a := range all {
		text, _ := a.of("uname", "")
		f := strings.Fields(text)
		if len(f) < 3 {
			out = append(out, a.skip(Kernel, "the host does not say what it runs"))
			continue
		}
		machine := f[len(f)-1]
		if f[0] != "Linux" {
			out = append(out, a.fail(Kernel, f[0], "Linux", "the agent is this program, and runs there only"))
			continue
		}
		if _, err := hosts.ProgramFor("/proc/self/exe", cmp.Or(hosts.Architecture(machine), machine)); err != nil {
			out = append(out, a.fail(Kernel, f[0]+" on "+machine, "Linux on "+runtime.GOARCH, err.Error()))
			continue
		}
		o.add(a, machine, "", text)
	}
	return append(out, o.judge(Kernel, "run the same kernel on all hosts")...)
}

// others holds what hosts have against what most of their kind have.
type others struct{ all []theirs }

type theirs struct {
	a                   *answer
	kind, device, value string
}

func (o *others) add(a *answer, kind, device, value string) {
	o.all = append(o.all, theirs{a, kind, device, value})
}

// judge fails what differs from the most frequent value of its kind; from the first of
// these, where several are as frequent.
func (o *others) judge(name, hint string) (out []results.Preflight) {
	count := map[theirs]int{}
	of := map[string]int{}
	most := map[string]string{}
	for _, t := range o.all {
		t.a, t.device = nil, ""
		count[t]++
		of[t.kind]++
	}
	for _, t := range o.all {
		if best, ok := most[t.kind]; !ok || count[theirs{kind: t.kind, value: t.value}] > count[theirs{kind: t.kind, value: best}] {
			most[t.kind] = t.value
		}
	}
	for _, t := range o.all {
		best := most[t.kind]
		found, wanted := strings.TrimSpace(t.device+" "+t.value), strings.TrimSpace(t.device+" "+best)
		if t.value == best {
			out = append(out, t.a.pass(name, found))
			continue
		}
		out = append(out, t.a.fail(name, found, fmt.Sprintf("%s, as %d of %d have", wanted, count[theirs{kind: t.kind, value: best}], of[t.kind]), hint))
	}
	return out
}
