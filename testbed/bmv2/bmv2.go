// Package bmv2 runs p4lang's BMv2: simple_switch_grpc, a software switch that executes P4
// programs and is controlled through P4Runtime, found on PATH.
//
// What is known of it is in the comments where it matters. In general: its ingress is one
// thread, its egress four; its queues in front of ports hold 64 packets unless SetQueueDepth
// says otherwise, those in front of ingress 1,024; what does not fit is lost without a count.
package bmv2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
)

// Program is the name that is looked for on PATH.
const Program = "simple_switch_grpc"

// ErrMissing is wrapped when simple_switch_grpc is not there.
var ErrMissing = errors.New(Program + " is not on PATH")

// Install is how to get it.
const Install = "install p4lang's behavioral-model with P4Runtime: package p4lang-bmv2 of p4lang's repositories, or from source PI (--with-proto) and behavioral-model (-DWITH_PI=ON)"

// Find is the path of simple_switch_grpc. The error wraps ErrMissing.
func Find() (string, error) {
	path, err := exec.LookPath(Program)
	if err != nil {
		return "", ErrMissing
	}
	return path, nil
}

// Version asks a simple_switch_grpc for its version, such as "1.15.5".
func Version(ctx context.Context, path string) (string, error) {
	out, err := bounded.Output(exec.CommandContext(ctx, path, "--version"), bounded.Small)
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Config is one switch.
type Config struct {
	Name     string
	DeviceID uint64
	Listen   string            // P4Runtime: host:port or unix:path
	Packets  string            // gRPC server through which packets go in and out, in place of devices; empty: none
	Ports    map[uint32]string // devices by port number
	Dir      string            // for its sockets
	Thrift   int               // TCP port of its other control interface, see SetQueueDepth; 0: BMv2's own choice, 9090
	Log      io.Writer         // what it prints; nil: only its last words are kept, for errors
}

// Process is a running switch without a program yet.
type Process struct {
	name   string
	cmd    *exec.Cmd
	last   *tail
	exited chan struct{}
	err    error // of Wait; to be read after exited
}

// startTimeout is far above the time to load its libraries.
const startTimeout = 10 * time.Second

// Start starts path, as found by Find, and returns when its P4Runtime server accepts
// connections. The process ends with this one, or by Stop.
func Start(ctx context.Context, path string, c Config) (*Process, error) {
	p := &Process{name: c.Name, last: &tail{}, exited: make(chan struct{})}
	p.cmd = exec.Command(path, c.args()...)
	p.cmd.Stdout = p.last
	if c.Log != nil {
		p.cmd.Stdout = io.MultiWriter(p.last, c.Log)
	}
	p.cmd.Stderr = p.cmd.Stdout
	p.cmd.Dir = c.Dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, blame.Switch(c.Name, fmt.Errorf("start %s: %w", path, err))
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("no P4Runtime server after %v", startTimeout))
	defer cancel()
	for _, addr := range []string{c.Listen, c.Packets} {
		if addr == "" {
			continue
		}
		if err := p.await(ctx, addr); err != nil {
			return nil, errors.Join(blame.Switch(c.Name, fmt.Errorf("%s: %w", Program, err)), p.Stop())
		}
	}
	return p, nil
}

func (c Config) args() []string {
	// Otherwise it formats a line for each step of each packet and throws it away, which takes
	// most of its time.
	a := []string{"--no-p4", "--log-level", "off", "--device-id", strconv.FormatUint(c.DeviceID, 10)}
	for _, n := range slices.Sorted(maps.Keys(c.Ports)) {
		a = append(a, "-i", fmt.Sprintf("%d@%s", n, c.Ports[n]))
	}
	if c.Thrift != 0 {
		a = append(a, "--thrift-port", strconv.Itoa(c.Thrift))
	}
	a = append(a, "--", "--grpc-server-addr", c.Listen)
	if c.Packets != "" {
		a = append(a, "--dp-grpc-server-addr", c.Packets)
	}
	return a
}

// await waits until addr accepts connections.
func (p *Process) await(ctx context.Context, addr string) error {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return p.died()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// PID is the process's.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended; Err then says how.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err is why the process ended, with its last words. It waits for the end.
func (p *Process) Err() error {
	<-p.exited
	return blame.Switch(p.name, p.died())
}

func (p *Process) died() error {
	how := "ended"
	if p.err != nil {
		how = "ended: " + p.err.Error()
	}
	if words := p.last.String(); words != "" {
		how += ": " + words
	}
	return errors.New(how)
}

// Stop kills the process and waits for it: it has nothing to keep.
func (p *Process) Stop() error {
	select {
	case <-p.exited:
		return nil
	default:
	}
	if err := syscall.Kill(-p.PID(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return blame.Switch(p.name, fmt.Errorf("kill %s: %w", Program, err))
	}
	<-p.exited
	return nil
}

// Busy is the processor time that the busiest thread of the process has used. Forwarding is
// as fast as its slowest thread, which is ingress.
func (p *Process) Busy() (time.Duration, error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.PID()), "task")
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return 0, blame.Switch(p.name, err)
	}
	var most time.Duration
	for _, t := range tasks {
		b, err := bounded.ReadFile(filepath.Join(dir, t.Name(), "schedstat"), bounded.Config)
		if err != nil {
			continue // it has ended
		}
		if f := bytes.Fields(b); len(f) > 0 {
			if ns, err := strconv.ParseInt(string(f[0]), 10, 64); err == nil {
				most = max(most, time.Duration(ns))
			}
		}
	}
	return most, nil
}

// tail keeps the last line that a process printed.
type tail struct {
	mu   sync.Mutex
	line []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range bytes.Split(b, []byte("\n")) {
		if l = bytes.TrimSpace(l); len(l) > 0 {
			t.line = append(t.line[:0], l[:min(len(l), 300)]...)
		}
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.line)
}
