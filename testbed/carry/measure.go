package carry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/deployment"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/remote"
)

// Verb is what this program starts itself with to measure, see Main.
const Verb = "carry-measure"

// quiet is the part of all cores that others may use while what is measured is kept.
const quiet = 0.2

// The probe: two workers and a PS on one switch, first so slow that every frame comes alone, then
// so fast that all of its threads wake as often as they may.
const (
	probeRack = `version = 1
[defaults]
kind = "soft"
rate = "1Gbit/s"
delay = "25ms"
[[switch]]
name = "tor1"
aggregators = 4096
[[host]]
name = "h[1-3]"
nic = {port = "tor1/[1-3]"}
`
	probeLanes  = 240
	probeSlow   = 250  // PSNs a second
	probeFast   = 5000 // PSNs a second
	probeSettle = 300 * time.Millisecond
	probeLook   = 100 * time.Millisecond
	probeLooks  = 7 // at lateness: one hiccup of the machine is no property of it
	probeCables = 6 // that a PSN crosses
	probeAgents = 3
)

// Measure is what this machine carries: as it was measured before by this version of the program,
// on this kernel and processor, and kept in the user's cache directory; or measured now, which takes
// about four seconds. A measurement during which others used the machine is not kept. The
// error wraps errors.ErrUnsupported where no emulation can run.
func Measure(ctx context.Context, tool string) (Machine, error) {
	want := here(tool)
	if m, ok := want.known(); ok {
		return m, nil
	}
	path := want.file()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", Verb)
	cmd.Args[0] = os.Args[0]
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return Machine{}, context.Cause(ctx)
		}
		return Machine{}, fmt.Errorf("measure what this machine carries: %w", errors.Join(err, errors.New(strings.TrimSpace(said.String()))))
	}
	var a answer
	err := json.Unmarshal(out.Bytes(), &a)
	m := a.Machine
	switch {
	case err == nil && a.Unsupported != "":
		return Machine{}, fmt.Errorf("measure what this machine carries: %s: %w", a.Unsupported, errors.ErrUnsupported)
	case err != nil, !m.valid():
		return Machine{}, fmt.Errorf("measure what this machine carries: the probe said %q", out.String())
	}
	m.Processor, m.Kernel, m.Tool = want.Processor, want.Kernel, want.Tool
	if m.Others <= quiet {
		keep(path, m)
	}
	return m, nil
}

// keep keeps what was measured in a file, if it can: it is measured again where it cannot be kept.
func keep(path string, v any) {
	text, err := json.MarshalIndent(v, "", "\t")
	if err != nil || path == "" {
		return
	}
	_ = os.MkdirAll(filepath.Dir(path), 0o777)
	_ = results.WriteAtomically(path, append(text, '\n'))
}

// Known is what Measure has kept of this machine, if it has.
func Known(tool string) (m Machine, ok bool) { return here(tool).known() }

// known is what was kept of a machine like this one.
func (want Machine) known() (m Machine, ok bool) {
	text, err := bounded.ReadFile(want.file(), bounded.Config)
	if err != nil || json.Unmarshal(text, &m) != nil {
		return Machine{}, false
	}
	return m, m.valid() && m.same(want)
}

func (m Machine) valid() bool {
	return m.CPUs > 0 && m.Frame > 0 && m.Switch > 0 && m.Wake >= 0 && m.SwitchWake >= 0 && m.Late >= 0
}

// same says whether two are of one machine, kernel and program.
func (m Machine) same(o Machine) bool {
	return m.CPUs == o.CPUs && m.Processor == o.Processor && m.Kernel == o.Kernel && m.Tool == o.Tool
}

// here is this machine, unmeasured.
func here(tool string) Machine {
	m := Machine{CPUs: runtime.NumCPU(), Tool: tool}
	text, _ := bounded.ReadFile("/proc/cpuinfo", bounded.Config)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.Processor = strings.Join(strings.Fields(value), " ")
			break
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// file is where what was measured is kept; "" where the user has no cache directory.
func (m Machine) file() string {
	return cached("carry", strconv.Itoa(m.CPUs), m.Processor, m.Kernel, m.Tool)
}

// cached is the file for something of this kind that these words name; "" where the user has no cache directory.
func cached(kind string, of ...string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(of, "\n")))
	return filepath.Join(dir, "inabench", kind+"-"+hex.EncodeToString(sum[:6])+".json")
}

// answer is what Main writes, in JSON.
type answer struct {
	Machine
	Unsupported string `json:"unsupported,omitempty"` // why no emulation can run
}

// Main is the process that measures: it goes on inside namespaces of its own, and tells the process
// that has started it.
func Main(ctx context.Context, stdout io.Writer) error {
	inside, code, err := netns.Reexec(ctx)
	if err == nil && !inside {
		os.Exit(code)
	}
	var a answer
	if err == nil {
		a.Machine, err = probe(ctx)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		a.Unsupported, err = err.Error(), nil
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(a)
}

// probe runs a job at two rates on an emulation and measures what it costs.
func probe(ctx context.Context) (m Machine, err error) {
	inv, err := inventory.Parse("carry.toml", []byte(probeRack))
	if err != nil {
		return m, err
	}
	f, err := netns.Up(ctx, inv, netns.Options{Queue: "drr", Seed: 1})
	if err != nil {
		return m, err
	}
	rest := testbed.Rest(f.Beat(), false)
	tb, err := deployment.Open(ctx, remote.Options{
		Fabric: f, Exe: "/proc/self/exe",
		HostMAC:      func(host, device string) (net.HardwareAddr, error) { return f.HostMAC(host, device), nil },
		Capabilities: testbed.Capabilities{Sums: true, Calibrates: true, Kind: results.Measured, Switch: "soft"},
	}, deployment.Options{Rest: rest})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, tb.Close(ctx)) }()
	slow, err := load(ctx, tb, f, probeSlow)
	if err != nil {
		return m, err
	}
	fast, err := load(ctx, tb, f, probeFast)
	if err != nil {
		return m, err
	}
	often := 1 / rest.Seconds()
	m = Machine{CPUs: runtime.NumCPU(), Late: max(slow.late, fast.late), Others: (slow.others + fast.others) / 2}
	m.Frame, m.Wake = split(slow.frame, fast.frame, (probeAgents+1)*often/(probeCables*probeFast))
	m.Switch, m.SwitchWake = split(slow.through, fast.through, 2*often/(probeCables*probeFast))
	return m, nil
}

// split makes the cost of a frame and of a wake of what a frame costs alone, which is itself and two
// wakes, and of what it costs with so many wakes a frame. Half of the latter at least is put on
// frames: on a busy machine a thread that wakes finds its caches used by others.
func split(alone, together, wakes float64) (frame, wake float64) {
	wake = max(0, (alone-together)/(2-wakes))
	frame = together - wakes*wake
	if least := together / 2; frame < least {
		frame, wake = least, (together-least)/wakes
	}
	return frame, wake
}

// cost is what was measured at one rate.
type cost struct {
	frame, through float64 // seconds of processor time for a frame over a cable, and in the switch for one through it
	late, others   float64
}

// load measures at so many PSNs a second.
func load(ctx context.Context, tb *deployment.Testbed, f *netns.Fabric, rate float64) (c cost, err error) {
	job := placement.JobPlan{ID: 1, Name: "probe", Collective: placement.INA, PS: "h3", Workers: []placement.Worker{{Host: "h1"}, {Rank: 1, Host: "h2"}}}
	topo := tb.Inventory().Topology()
	if err := placement.BuildTree(topo, tb.Inventory(), &job); err != nil {
		return c, err
	}
	frame := float64((&placement.Conditions{Lanes: probeLanes}).FrameBytes())
	dep, err := tb.Deploy(ctx, testbed.Setup{
		Plan:     &placement.Plan{Jobs: []placement.JobPlan{job}},
		Settings: testbed.Settings{Mode: "statistical", Addressing: "pool", Queue: "fair", Lanes: probeLanes, Seed: 1},
		Workloads: []testbed.Workload{{
			Job: job, Rate: rate * 8 * frame, Window: 2048, Control: "fixed", RTO: testbed.RTO(&job, topo, 2048*8*frame),
		}},
	})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, dep.Close(ctx)) }()
	if err := dep.Start(ctx, job.Name); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, dep.Stop(ctx, job.Name)) }()
	if err := dep.Sleep(ctx, dep.Now()+probeSettle); err != nil {
		return c, err
	}
	if _, err := f.SwitchHealth(ctx); err != nil { // begins a new interval
		return c, err
	}
	before, err := look(ctx, dep)
	if err != nil {
		return c, err
	}
	var late []float64
	var sent int64
	busy := 0.0 // seconds, of the switch
	for range probeLooks {
		if err := dep.Sleep(ctx, dep.Now()+probeLook); err != nil {
			return c, err
		}
		switches, err := f.SwitchHealth(ctx)
		if err != nil {
			return c, err
		}
		if len(switches) != 1 || switches[0].Sent <= 0 {
			continue // it stood still
		}
		late = append(late, switches[0].LateP99.Seconds())
		sent += switches[0].Sent
		busy += switches[0].Busy * switches[0].Elapsed.Seconds()
	}
	after, err := look(ctx, dep)
	if err != nil {
		return c, err
	}
	crossed := (after.bytes - before.bytes) / frame
	if crossed <= 0 || sent == 0 {
		return c, errors.New("the probe carried nothing")
	}
	used, all := after.used-before.used, after.busy-before.busy
	slices.Sort(late)
	return cost{
		frame: used / crossed, through: busy / float64(sent),
		late: late[len(late)/2], others: min(1, max(0, (all-used)/(after.at-before.at)/float64(runtime.NumCPU()))),
	}, nil
}

// reading is what has been used and carried until a moment.
type reading struct {
	at    float64 // seconds
	used  float64 // seconds of processor time, of all processes in these namespaces
	busy  float64 // seconds of processor time, of the cores that there are for it
	bytes float64 // over all cables
}

func look(ctx context.Context, dep testbed.Deployment) (r reading, err error) {
	samples, err := dep.Sample(ctx)
	if err != nil {
		return r, err
	}
	for _, s := range samples {
		switch s.Metric {
		case "port_rx_bytes", "port_tx_bytes":
			r.bytes += s.Value
		}
	}
	r.at = float64(time.Now().UnixNano()) / 1e9
	if r.used, err = spent("/proc"); err != nil {
		return r, err
	}
	r.busy, err = machine("/proc/stat")
	return r, err
}

// spent is the processor time of all processes that a proc file system shows, seconds.
func spent(proc string) (float64, error) {
	threads, err := filepath.Glob(filepath.Join(proc, "[1-9]*", "task", "*", "schedstat"))
	if err != nil {
		return 0, err
	}
	total, read := 0.0, 0
	for _, path := range threads {
		text, err := bounded.ReadFile(path, bounded.Config)
		if err != nil { // it has ended
			continue
		}
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			ns, err := strconv.ParseFloat(fields[0], 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			total += ns / 1e9
			read++
		}
	}
	if read == 0 {
		return 0, fmt.Errorf("this kernel does not tell what threads have used (schedstat): %w", errors.ErrUnsupported)
	}
	return total, nil
}

// machine is the processor time that the cores which this process may use were not idle, together, seconds.
func machine(stat string) (float64, error) {
	all, idle, err := netns.Ticks(stat)
	return float64(all-idle) / 100, err // USER_HZ
}
