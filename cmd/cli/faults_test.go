package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/netns/netnstest"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/supervise"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// The fault table: what breaks in a lab, what the user sees of it, what is left, and what is
// kept. Each row is a run of the program, as a process, on a lab whose hosts and switches are
// others' processes, which outlive it. docs/FAULTS.md is made of what comes out.

var updateFaults = flag.Bool("update-faults", false, "rewrite docs/FAULTS.md")

// faultRows is the directory where the tests of faults leave their rows, since each runs in a
// process of its own.
const faultRows = "INABENCH_TEST_FAULTS"

// TestFaults makes each fault happen, beside others, inside namespaces of its own where its
// lab is.
func TestFaults(t *testing.T) {
	proof.Only(t, "waits for a dozen faults to be noticed")
	testbedtest.Require(t, "netns", namespaces())
	if os.Getenv(faultRows) == "" {
		t.Setenv(faultRows, t.TempDir())
		t.Cleanup(func() { // when all have ended
			var table []byte
			for i := range faults {
				row, err := os.ReadFile(rowOf(i))
				if err != nil {
					return // a part was run, or it has been said
				}
				table = append(table, row...)
			}
			documented(t, string(table))
		})
	}
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			if f.sshd == netns.OpenSSH {
				_, err := netns.FindOpenSSH()
				testbedtest.Require(t, "openssh", err)
			}
			t.Parallel()
			if !netnstest.Apart(t) {
				return
			}
			if row := f.run(t, 3); !t.Failed() {
				if err := os.WriteFile(rowOf(i), []byte(row), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func rowOf(fault int) string { return filepath.Join(os.Getenv(faultRows), strconv.Itoa(fault)) }

// enterLab goes on inside namespaces, if this is a test that runs apart.
func enterLab() {
	if !netnstest.IsApart("") || filepath.Base(os.Args[0]) == "inabench" {
		return
	}
	if err := netnstest.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patienceOfFaults is how long silence is borne in these runs: by programs that are slow and machines that are busy.
var patienceOfFaults = map[bool]time.Duration{false: 4 * time.Second, true: 8 * time.Second}[netnstest.Race]

// faultyLab is a lab of three hosts at a switch, and a run that measures on it.
type faultyLab struct {
	t      *testing.T
	fabric *netns.Fabric
	dir    string
	run    *background
	broke  time.Time
	seen   map[process]bool // what ran on hosts
	env    []string         // of what is started, besides the usual
}

// fault is a row of the table.
type fault struct {
	name   string
	sshd   string             // of hosts
	before func(l *faultyLab) // the run
	do     func(l *faultyLab) // while it measures
	early  bool               // or instead of before
	heal   func(l *faultyLab) // afterwards, what clean needs; nil: nothing
	gone   bool               // something does not come back, for clean to go on with
	args   []string           // of the run
	exit   int
	stderr string // regexp
	silent bool   // the controller is not there to say anything
	second bool   // what a second run says, while the first goes on
	how    string // how it is done here, where that is not what a lab would see
}

var faults = []fault{
	{
		name: "kill -9 of the controller, hosts with the embedded SSH server",
		do:   func(l *faultyLab) { l.kill(l.run.cmd.Process.Pid, unix.SIGKILL) },
		exit: 128 + 9, silent: true,
		how: "whatever kills it while it holds an emulation, the kernel takes that down",
	},
	{
		name: "kill -9 of the controller, hosts with OpenSSH", sshd: netns.OpenSSH,
		do:   func(l *faultyLab) { l.kill(l.run.cmd.Process.Pid, unix.SIGKILL) },
		exit: 128 + 9, silent: true,
	},
	{
		name: "SIGSTOP of the controller, and SIGCONT when nothing is left",
		do: func(l *faultyLab) {
			l.kill(l.run.cmd.Process.Pid, unix.SIGSTOP)
			l.gone()
			l.kill(l.run.cmd.Process.Pid, unix.SIGCONT)
		},
		exit: 6, stderr: `(ps|worker) A\S* on host h.: no beat for \d+ s`,
	},
	{
		name: "kill -9 of an agent",
		do:   func(l *faultyLab) { l.kill(l.agent("worker A/0"), unix.SIGKILL) },
		exit: 6, stderr: `worker A/0 on host h1: killed by SIGKILL`,
	},
	{
		name: "kill -9 of an agent's supervisor",
		do:   func(l *faultyLab) { l.kill(l.supervisor("worker A/0"), unix.SIGKILL) },
		exit: 6, stderr: `worker A/0 on host h1: killed by SIGKILL`,
	},
	{
		name: "kill -9 of a switch",
		do:   func(l *faultyLab) { l.kill(l.node("tor1"), unix.SIGKILL) },
		gone: true,
		exit: 9, stderr: `switch tor1: .*nothing listens at|switch tor1: .*does not answer`,
	},
	{
		name: "kill -9 of sshd", sshd: netns.OpenSSH,
		do: func(l *faultyLab) {
			for _, p := range l.below("h1") {
				// Not the one that listens: what starts services would start it again.
				if argv := p.argv(); strings.HasPrefix(argv, "sshd") && !strings.Contains(argv, "listener") {
					l.kill(p.pid, unix.SIGKILL)
				}
			}
		},
		exit: 9, stderr: `host h1 .*connection lost.*; it answers again and was not rebooted`,
	},
	{
		name: "network cut between controller and a host",
		do:   func(l *faultyLab) { l.unplug(true, "h1") },
		heal: func(l *faultyLab) { l.unplug(false, "h1") },
		exit: 9, stderr: `host h1 .*connection lost.*; it has not answered for another`,
	},
	{
		name: "network cut between controller and everything",
		do:   func(l *faultyLab) { l.unplug(true, "h1", "h2", "h3", "tor1") },
		heal: func(l *faultyLab) { l.unplug(false, "h1", "h2", "h3", "tor1") },
		exit: 9, stderr: `so are all 3 hosts`,
	},
	{
		name: "network cut between a host and its switch",
		do: func(l *faultyLab) {
			for _, link := range []string{"h1->tor1", "tor1->h1"} {
				l.check(l.fabric.SetLink(l.t.Context(), link, testbed.LinkState{Loss: 1}))
			}
		},
		exit: 6, stderr: `job A: stalled: no result for .* none arrived`,
	},
	{
		name: "SIGSTOP of a worker",
		do:   func(l *faultyLab) { l.kill(l.agent("worker A/0"), unix.SIGSTOP) },
		exit: 6, stderr: `worker A/0 on host h1: stalled: no report for .* is stopped`,
	},
	{
		name: "a host reboots",
		do:   func(l *faultyLab) { l.check(l.fabric.Reboot(l.t.Context(), "h1")) },
		exit: 9, stderr: `host h1: rebooted`,
		how: "its processes and connections end without a word, and it comes back with another boot id",
	},
	{
		name: "disk full on a host, before", early: true,
		do:   func(l *faultyLab) { l.small("h1"); l.fill("h1") },
		exit: 6, stderr: `no space left`,
		how: "the directory of lease files is on a tmpfs without room",
	},
	{
		name: "disk full on a host, while it measures", args: []string{"--set", "measure.duration=1500ms"},
		before: func(l *faultyLab) { l.small("h1") },
		do:     func(l *faultyLab) { l.fill("h1") },
		exit:   0,
		how:    "the same, filled then",
	},
	{
		name: "clock 30 s off on a host", early: true,
		do:   func(l *faultyLab) { l.shift("h1", "30") },
		exit: 6, stderr: `clock of host h1: 30`,
		how: "its date says so; clocks of namespaces cannot be set apart",
	},
	{
		name: "clock 30 s off on a host, and the check left out", args: []string{"--set", "measure.duration=1500ms", "--skip-preflight", "clock"},
		before: func(l *faultyLab) { l.shift("h1", "30") },
		do:     func(*faultyLab) {},
		exit:   0,
	},
	{
		name: "two controllers want one host", second: true, args: []string{"--set", "measure.duration=10s"},
		do:   func(l *faultyLab) {},
		exit: 8, stderr: `h1`,
	},
}

// documented holds docs/FAULTS.md to the table.
func documented(t *testing.T, table string) {
	const file = "../../docs/FAULTS.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| fault | what the user sees | what is left | what is kept |\n| --- | --- | --- | --- |\n"
	before, rest, ok := strings.Cut(string(text), head)
	if !ok {
		t.Fatalf("%s has no table", file)
	}
	_, after, _ := strings.Cut("\n"+rest, "\n\n")
	want := before + head + table + "\n" + after
	if want == string(text) {
		return
	}
	if *updateFaults {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s (-want +got), rewrite with -update-faults:\n%s", file, cmp.Diff(string(text), want))
}

// run makes the fault happen and returns its row. A run that is to pass and is undecided, as others used the
// machine, has another try.
func (f *fault) run(t *testing.T, tries int) string {
	l := newFaultyLab(t, f)
	if f.before != nil {
		f.before(l)
	}
	if l.broke = time.Now(); f.early {
		f.do(l)
	}
	l.run = l.start(append([]string{"run", "exp.toml", "--on", "lab", "--runs", "runs", "--set", "measure.patience=" + patienceOfFaults.String()}, f.args...)...)
	if !f.early {
		l.await(`"worker A/0"`)
		l.look()
		l.broke = time.Now() // before: what it takes to break something is not lost
		f.do(l)
	}
	shown := l.run
	if f.second {
		shown = l.start("run", "exp.toml", "--on", "lab", "--runs", "second")
		l.finish(shown)
	}
	l.gone() // whatever has become of the program
	t.Logf("nothing is left on hosts after %v", time.Since(l.broke).Round(10*time.Millisecond))
	exit := l.finish(l.run)
	l.gone()
	if f.second {
		if exit != 0 {
			t.Errorf("the first run: exit code %d:\n%s", exit, l.run.stderr.String())
		}
		exit = l.finish(shown)
	}
	stderr := shown.stderr.String()
	t.Logf("after %v: exit %d\n%s", time.Since(l.broke).Round(10*time.Millisecond), exit, stderr)
	if exit == exitInconclusive && f.exit == exitOK && tries > 1 {
		l.check(l.fabric.Close(context.Background()))
		return f.run(t, tries-1)
	}
	if exit != f.exit {
		t.Errorf("exit code %d, want %d", exit, f.exit)
	}
	first, hint := said(stderr)
	if f.stderr != "" && !regexp.MustCompile(f.stderr).MatchString(first) {
		t.Errorf("it says %q, want %q", first, f.stderr)
	}
	if !f.gone {
		l.clean(f)
	}
	kept := "nothing was measured"
	if !f.early {
		kept = l.kept(f.exit)
	}
	return f.row(first, hint, stderr, kept)
}

// varying is what differs from run to run in what is said, and what stands for it.
var varying = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`[0-9.]+ ?(ms|s)\b`), "… $1"},
	{regexp.MustCompile(`process [0-9]+ on [-\w]+`), "process … on …"},
	{regexp.MustCompile(`process [0-9]+`), "process …"},
	{regexp.MustCompile(`-CONT [0-9]+`), "-CONT …"},
	{regexp.MustCompile(`[0-9]+ packets`), "… packets"},
	{regexp.MustCompile(`after [0-9:]+`), "after …"},
	{regexp.MustCompile(`/dev/shm/\S+:`), "…:"},
	{regexp.MustCompile(`(ps A|worker A/[01]) on host h[123]: no beat`), "… on host …: no beat"},
	{regexp.MustCompile(`(read tcp \S+->\S+: read: )?connection reset by peer`), "EOF"}, // as the kernel has it when a process is killed
	{regexp.MustCompile(`held by \S+ \(run \w+\)`), "held by … (run …)"},
}

// row is the fault's in the table.
func (f *fault) row(first, hint, stderr, kept string) string {
	sees := fmt.Sprintf("exit code %d", f.exit)
	switch {
	case f.silent:
		sees = "nothing: the program is gone"
	case f.exit == 0:
		sees += ": it goes on, and the run is judged"
	}
	plain := func(s string) string {
		for _, v := range varying {
			s = v.what.ReplaceAllString(s, v.by)
		}
		return strings.ReplaceAll(s, "`", "'")
	}
	if first != "" {
		sees += ": `" + plain(first) + "`"
	}
	if hint != "" {
		sees += "; hint: `" + plain(hint) + "`"
	}
	left := "nothing"
	if f.silent {
		left = "no process; `inabench clean` undoes the rest"
	}
	var named []string
	for _, m := range regexp.MustCompile(`(?m)(?:cleanup incomplete: |^ +)((?:switch|host) \w+): (delete|undo|give)`).FindAllStringSubmatch(stderr, -1) {
		if !slices.Contains(named, m[1]) {
			named = append(named, m[1])
		}
	}
	if len(named) > 0 {
		slices.Sort(named)
		left = "no process; what could not be undone or given back on " + strings.Join(named, ", ") + " is listed"
		if !f.gone {
			left += ", and `inabench clean` does it then"
		}
	}
	if f.how != "" {
		kept += " (" + f.how + ")"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", f.name, strings.ReplaceAll(sees, "|", "\\|"), left, kept)
}

// said is the first line of an error and its hints.
func said(stderr string) (first, hint string) {
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if e, ok := strings.CutPrefix(line, "inabench: error: "); ok && first == "" {
			first = e
		}
		if h, ok := strings.CutPrefix(line, "inabench: hint: "); ok && hint == "" {
			hint = h
		}
	}
	return first, hint
}

func newFaultyLab(t *testing.T, f *fault) *faultyLab {
	l := &faultyLab{t: t, dir: t.TempDir(), seen: map[process]bool{}}
	inv := &inventory.Inventory{Name: "lab", Switches: []inventory.Switch{{Name: "tor1", Kind: inventory.Soft, Aggregators: 4096}}}
	for i := range 3 {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", i+1), GPUs: 1, NICs: []inventory.NIC{{
			Device: "eth0", Switch: "tor1", Port: uint32(i + 1), Rate: 20e6, Delay: 10 * time.Millisecond,
		}}})
	}
	var err error
	l.fabric, err = netns.Up(t.Context(), inv, netns.Options{SSHD: f.sshd, Exe: "/proc/self/exe"})
	l.check(err)
	t.Cleanup(func() {
		if err := l.fabric.Close(context.Background()); err != nil && l.fabric.Err() == nil {
			t.Error(err)
		}
	})
	l.write("lab.toml", l.inventory())
	l.write("exp.toml", experimentOfFaults)
	return l
}

const experimentOfFaults = `version = 1
inventory = "lab.toml"

[calibrate]
enabled = false

[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
rate = "4Mbit/s"
window = 64

[measure]
warmup = "100ms"
duration = "60s"
interval = "50ms"

[[expect]]
metric = "sum_errors"
value = 0
reason = "a sum is a sum"
`

// inventory is the lab as its users write it down.
func (l *faultyLab) inventory() string {
	inv := l.fabric.Inventory()
	var b strings.Builder
	h := inv.Hosts[0].SSH
	fmt.Fprintf(&b, "version = 1\nname = \"lab\"\n\n[defaults]\nkind = \"soft\"\nrate = \"20Mbit/s\"\ndelay = \"10ms\"\ngpus = 1\nkey = %q\nknown_hosts = %q\n", h.Key, h.KnownHosts)
	for _, h := range inv.Hosts {
		n := h.NICs[0]
		fmt.Fprintf(&b, "\n[[host]]\nname = %q\nssh = {address = %q, user = %q}\nnic = {device = %q, port = \"tor1/%d\", address = %q}\n",
			h.Name, h.SSH.Address, h.SSH.User, n.Device, n.Port, n.Address)
	}
	s := inv.Switches[0]
	fmt.Fprintf(&b, "\n[[switch]]\nname = %q\naggregators = %d\ncontrol = %q\n", s.Name, s.Aggregators, s.Control)
	return b.String()
}

func (l *faultyLab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *faultyLab) write(name, text string) {
	l.t.Helper()
	l.check(os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600))
}

// start starts the program.
func (l *faultyLab) start(args ...string) *background {
	l.t.Helper()
	b := newBackground("/proc/self/exe", args...)
	b.cmd.Args[0] = "inabench"
	b.cmd.Dir = l.dir
	b.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "GORACE=" + os.Getenv("GORACE")}, l.env...)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	l.check(b.start())
	l.t.Cleanup(b.kill)
	return b
}

// await waits until the run's samples match.
func (l *faultyLab) await(want string) {
	l.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(l.dir, "runs/latest", results.SamplesFile)) // it may not be there yet
		if regexp.MustCompile(want).Match(text) {
			return
		}
		select {
		case <-l.run.ended:
			l.t.Fatalf("it ended without %q:\n%s", want, l.run.stderr.String())
		default:
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("no %q:\n%s", want, l.run.stderr.String())
		}
	}
}

// finish waits for a program's end.
func (l *faultyLab) finish(b *background) int {
	l.t.Helper()
	select {
	case <-b.ended:
	case <-time.After(patience):
		l.t.Fatalf("it does not end:\n%s", b.stderr.String())
	}
	return b.code()
}

func (l *faultyLab) kill(pid int, sig syscall.Signal) {
	l.t.Helper()
	l.check(unix.Kill(pid, sig))
}

// unplug pulls management cables, or plugs them in again and waits until the hosts behind
// them answer: whoever asked for a host's link-layer address while its cable was out, and
// joins that question now, is still told "no route to host" when it runs out.
func (l *faultyLab) unplug(out bool, nodes ...string) {
	l.t.Helper()
	for _, n := range nodes {
		l.check(l.fabric.Unplug(n, out))
	}
	if out {
		return
	}
	inv := l.fabric.Inventory()
	for _, n := range nodes {
		h, ok := inv.Host(n)
		for deadline := time.Now().Add(time.Minute); ok; time.Sleep(20 * time.Millisecond) {
			c, err := net.DialTimeout("tcp", h.SSH.Address, time.Second)
			if err == nil {
				c.Close()
				break
			}
			if time.Now().After(deadline) {
				l.t.Fatalf("host %s does not answer with its cable in: %v", n, err)
			}
		}
	}
}

// clean has the program clean up, and checks that it then finds nothing.
func (l *faultyLab) clean(f *fault) {
	l.t.Helper()
	if f.heal != nil {
		f.heal(l)
	}
	if f.exit == exitLeftovers || f.silent {
		l.t.Logf("clean:\n%s", l.cleaned())
	}
	l.unchanged()
}

// cleaned is what clean says, which must come to its end.
func (l *faultyLab) cleaned(args ...string) string {
	l.t.Helper()
	b := l.start(append([]string{"clean"}, args...)...)
	if exit := l.finish(b); exit != 0 {
		l.t.Errorf("clean %s: exit code %d: %s", args, exit, b.stderr.String())
	}
	return b.stdout.String() + b.stderr.String()
}

// unchanged checks that clean finds nothing to do.
func (l *faultyLab) unchanged() {
	l.t.Helper()
	out := l.cleaned("--dry-run", "-i", "lab.toml")
	if m := regexp.MustCompile(`(?m)^.*\b[1-9][0-9]* (job|route|group|process|lease).*$`).FindString(out); m != "" {
		l.t.Errorf("left: %s", m)
	}
}

// on runs a script on a host.
func (l *faultyLab) on(host, script string) {
	l.t.Helper()
	h, _ := l.fabric.Inventory().Host(host)
	c, err := ssh.Dial(l.t.Context(), ssh.Target{
		Name: host, Address: h.SSH.Address, User: h.SSH.User, Keys: []string{h.SSH.Key}, KnownHosts: []string{h.SSH.KnownHosts},
	})
	l.check(err)
	defer c.Close()
	_, err = c.Run(l.t.Context(), []string{"/bin/sh", "-ec", script}, nil)
	l.check(err)
}

// small gives a host little room for what it writes.
func (l *faultyLab) small(host string) {
	l.on(host, "mkdir -p .cache/inabench/processes && mount -t tmpfs -o size=64k tmpfs .cache/inabench/processes")
}

// fill takes it.
func (l *faultyLab) fill(host string) {
	l.on(host, "! cat /dev/zero >.cache/inabench/processes/fill 2>/dev/null")
}

// shift has a host's date say another time.
func (l *faultyLab) shift(host, seconds string) {
	l.on(host, `date=$(command -v date); cp $date real-date
printf '#!/bin/sh\nexec %s/real-date -d "'`+seconds+`' seconds" "$@"\n' "$PWD" >fake-date
chmod +x fake-date; mount --bind fake-date $(readlink -f $date)`)
}

// node is the process of a host or switch.
func (l *faultyLab) node(name string) int {
	l.t.Helper()
	pid, err := l.fabric.PID(name)
	l.check(err)
	return pid
}

// below are the processes on a host.
func (l *faultyLab) below(host string) []process {
	b := &background{cmd: &exec.Cmd{Process: &os.Process{Pid: l.node(host)}}, seen: map[process]bool{}}
	b.look()
	var out []process
	for p := range b.seen {
		out = append(out, p)
	}
	return out
}

// leases are the lease files of all hosts.
func (l *faultyLab) leases() (out []supervise.Lease) {
	_, dir, _ := strings.Cut(os.Getenv("INABENCH_NETNS"), ":")
	names, _ := filepath.Glob(filepath.Join(dir, "fabric-*", "cache", "inabench", "processes", "*.json"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // gone meanwhile
		}
		lease, err := supervise.ParseLease(text)
		l.check(err)
		out = append(out, lease)
	}
	return out
}

// agent is the process of an agent, by its title.
func (l *faultyLab) agent(title string) int {
	return l.find("inabench agent " + title)
}

// supervisor is that of its supervisor.
func (l *faultyLab) supervisor(title string) int {
	parent, _, _ := stat(l.agent(title))
	return parent
}

func (l *faultyLab) find(argv string) int {
	l.t.Helper()
	for _, h := range l.fabric.Inventory().Hosts {
		for _, p := range l.below(h.Name) {
			if p.argv() == argv {
				return p.pid
			}
		}
	}
	l.t.Fatalf("no process %q", argv)
	return 0
}

// look remembers what of ours runs on hosts.
func (l *faultyLab) look() {
	for _, h := range l.fabric.Inventory().Hosts {
		for _, p := range l.below(h.Name) {
			if argv := p.argv(); strings.Contains(argv, "agent") || strings.Contains(argv, supervise.Verb) {
				l.seen[p] = true
			}
		}
	}
	if len(l.seen) < 6 || len(l.leases()) < 3 {
		l.t.Errorf("only %d processes and %d leases before the fault", len(l.seen), len(l.leases()))
	}
}

// gone waits until nothing of what ran on hosts is there, nor a lease of it.
func (l *faultyLab) gone() {
	l.t.Helper()
	for deadline := time.Now().Add(patience + patienceOfFaults); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for p := range l.seen {
			if p.exists() {
				left = append(left, strconv.Itoa(p.pid)+" "+p.argv())
			}
		}
		for _, lease := range l.leases() {
			left = append(left, "lease of "+lease.Name)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.t.Errorf("left: %s", strings.Join(left, ", "))
			return
		}
	}
}

// kept checks the run's files, and says what is in them.
func (l *faultyLab) kept(exit int) string {
	l.t.Helper()
	var rec results.Record
	text, err := os.ReadFile(filepath.Join(l.dir, "runs/latest", results.RecordFile))
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err != nil {
		l.t.Errorf("run record: %v", err)
	}
	want := results.ErrorOutcome
	if exit == 0 || exit == 8 { // another run's
		want = results.Pass
	}
	if rec.Outcome != want || want == results.ErrorOutcome && len(rec.Reasons) == 0 {
		l.t.Errorf("run record: outcome %q, reasons %q, want %q", rec.Outcome, rec.Reasons, want)
	}
	text, err = os.ReadFile(filepath.Join(l.dir, "runs/latest", results.SamplesFile))
	l.check(err)
	text = bytes.TrimSuffix(text, []byte("\n"))
	last, n := 0.0, 0
	for line := range bytes.Lines(text) {
		var s results.Sample
		if err := json.Unmarshal(line, &s); err != nil {
			l.t.Errorf("sample %d: %v", n, err)
			continue
		}
		last = max(last, s.T)
		n++
	}
	if at := l.broke.Sub(rec.Started).Seconds(); last < at-1 {
		l.t.Errorf("the last sample is of %.2f s, and the fault was %.2f s after the start", last, at)
	}
	l.t.Logf("%d samples until %.2f s", n, last)
	if want == results.Pass {
		return "everything"
	}
	return "all samples until then, and the record"
}
