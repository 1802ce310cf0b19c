package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

// Check is one thing an emulation uses.
type Check struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"`      // without it there is no emulation
	Why      string `json:"why,omitempty"` // what was found
	Fix      string `json:"fix,omitempty"` // when not OK
}

// Report is what this machine can do for an emulation, in the order of need.
type Report struct {
	Checks []Check `json:"checks"`
}

// Err is nil when an emulation can run here, or an error wrapping
// errors.ErrUnsupported that names what is missing.
func (r Report) Err() error {
	var errs []error
	for _, c := range r.Checks {
		if c.Required && !c.OK {
			errs = append(errs, missingError{c})
		}
	}
	return errors.Join(errs...)
}

// missingError is a check that failed and is required.
type missingError struct{ Check }

func (e missingError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Name, e.Why, e.Fix) }
func (e missingError) Unwrap() error { return errors.ErrUnsupported }

// Hint is what to do about it.
func (e missingError) Hint() string { return e.Fix }

// Probe finds out what this machine can do, by trying it in namespaces that are
// gone when it returns. An error means that the finding out went wrong; what the
// machine cannot do is in the report.
func Probe(ctx context.Context) (Report, error) {
	var r Report
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", HostVerb, "probe")
	cmd.Env = environ()
	cmd.SysProcAttr = namespaces(allNamespaces)
	cmd.Stdin = strings.NewReader(`{"kind":"probe"}` + "\n")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	kind := "namespaces of an ordinary user"
	if sysAdmin() {
		kind = "namespaces of root"
	}
	c := Check{Name: kind, Required: true, OK: true, Why: "user, network, mount, pid, ipc, uts"}
	if sysAdmin() {
		c.Why = "network, mount, pid, ipc, uts"
	}
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return Report{}, fmt.Errorf("probe this machine: %w", ctx.Err())
	case err != nil && cmd.ProcessState == nil: // it never ran
		c.OK, c.Why, c.Fix = false, err.Error(), ""
		var restricted *restrictedError
		if errors.As(unsupported(err, readSmall), &restricted) {
			c.Why, c.Fix = restricted.why, restricted.fix
		}
		r.Checks = append(r.Checks, c)
	case err != nil:
		return Report{}, fmt.Errorf("probe this machine: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	default:
		var inside Report
		if err := json.Unmarshal(out.Bytes(), &inside); err != nil {
			return Report{}, fmt.Errorf("probe this machine: %w", err)
		}
		r.Checks = append(append(r.Checks, c), inside.Checks...)
	}
	r.Checks = append(r.Checks, probeHere()...)
	return r, nil
}

// probeInside tries what a node does, in a node's namespaces.
func probeInside() Report {
	var r Report
	try := func(name string, required bool, fix string, f func() (string, error)) {
		c := Check{Name: name, Required: required}
		why, err := f()
		c.OK, c.Why = err == nil, why
		if err != nil {
			c.Why, c.Fix = err.Error(), fix
			if restricted := (*restrictedError)(nil); errors.As(unsupported(err, readSmall), &restricted) {
				c.Fix = restricted.fix
			}
		}
		r.Checks = append(r.Checks, c)
	}
	ask := func(q request) func() (string, error) {
		return func() (string, error) { return "", apply(q) }
	}
	try("private mounts", true, sudoFix, func() (string, error) {
		return "", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	})
	try("veth pairs", true, `load the module: "sudo modprobe veth"`, ask(newVeth(0, vethEnd{name: "probe0"}, vethEnd{name: "probe1"})))
	try("bridge", true, `load the module: "sudo modprobe bridge"`, ask(newBridge("probebr", 1)))
	try("offloads off (ethtool)", true, sudoFix, func() (string, error) { return "", setOffloads("probe0", false) })
	try("packet ring (AF_PACKET, TPACKET_V2)", true, "use a kernel with CONFIG_PACKET", packetRing)
	try("tmpfs", true, sudoFix, func() (string, error) {
		dir, err := tmpfsPlace()
		if err != nil {
			return "", err
		}
		return "on " + dir, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755")
	})
	const masked = "run outside of a container that masks parts of it; hosts then show the machine's own"
	try("/proc of each host", false, masked, func() (string, error) {
		return "", unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	})
	try("/sys of each host", false, masked, func() (string, error) {
		return "", unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	})
	return r
}

// packetRing makes the ring that a switch reads its ports with.
func packetRing() (string, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return "", os.NewSyscallError("PACKET_VERSION", err)
	}
	req := unix.TpacketReq{Block_size: 1 << 16, Block_nr: 4, Frame_size: 2048, Frame_nr: 4 * (1 << 16) / 2048}
	return "", os.NewSyscallError("PACKET_RX_RING", unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req))
}

// probeHere is what only changes how much an emulation can carry.
func probeHere() []Check {
	cores := Check{Name: "cores", Why: fmt.Sprint(runtime.NumCPU()), OK: runtime.NumCPU() >= 2}
	if !cores.OK {
		cores.Fix = "an emulation on one core carries about half of the packets; runs it cannot carry end as inconclusive"
	}
	checks := []Check{cores}

	const want = 1 << 20
	rmem := Check{Name: "socket buffers (net.core.rmem_max)"}
	b, err := bounded.ReadFile("/proc/sys/net/core/rmem_max", bounded.Config)
	if n, _ := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
		rmem.OK, rmem.Why = n >= want, fmt.Sprintf("%d bytes", n)
	} else {
		rmem.Why = err.Error()
	}
	if !rmem.OK {
		rmem.Fix = fmt.Sprintf(`for windows above 64 packets: "sudo sysctl -w net.core.rmem_max=%d"`, want)
	}
	return append(checks, rmem, probeTimer(), probeOpenSSH(), probeBMv2())
}

// probeTimer measures how late a sleeping thread wakes, which bounds how exactly
// packets can be delayed.
func probeTimer() Check {
	c := Check{Name: "timer slack"}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	}
	if err != nil {
		c.Why, c.Fix = err.Error(), "delays will be about 50 us late"
		return c
	}
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0)
	const rounds = 50
	var late time.Duration
	for range rounds {
		ts := unix.NsecToTimespec(int64(100 * time.Microsecond))
		start := time.Now()
		_ = unix.Nanosleep(&ts, nil)
		late += time.Since(start) - 100*time.Microsecond
	}
	late /= rounds
	c.OK = late < 500*time.Microsecond
	c.Why = fmt.Sprintf("a sleep of 100 us is %d us late on average", late.Microseconds())
	if !c.OK {
		c.Fix = "the machine is busy, or a virtual one with coarse timers: use slow motion with a larger factor"
	}
	return c
}
