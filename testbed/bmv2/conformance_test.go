package bmv2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/inabench/inabench/testbed/bmv2"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/ina/vector"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/testbedtest"
)

const (
	device = 3
	ports  = 4 // those that vectors use
)

// program is what is loaded: p4.BMv2 or p4.Chip.
type program func() (*p4configv1.P4Info, []byte, p4.Build, error)

// running is a BMv2 without devices, which frames enter and leave through one stream.
type running struct {
	t       testing.TB
	process *bmv2.Process
	client  *p4rt.Client
	packets *bmv2.Packets
	frames  chan vector.Frame
	program program
}

// start skips a test where there is no BMv2.
func start(t testing.TB, program program) *running {
	t.Helper()
	path, err := bmv2.Find()
	testbedtest.Require(t, "bmv2", err)
	dir := t.TempDir()
	cfg := bmv2.Config{
		Name: "s", DeviceID: device, Dir: dir,
		Listen: "unix:" + filepath.Join(dir, "p4rt"), Packets: "unix:" + filepath.Join(dir, "packets"),
	}
	if help, _ := exec.Command(path, "--help").CombinedOutput(); strings.Contains(string(help), "thrift-port") { // it may be built without
		cfg.Thrift = freePort(t)
	}
	r := &running{t: t, frames: make(chan vector.Frame, 1024), program: program}
	if r.process, err = bmv2.Start(t.Context(), path, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.process.Stop(); err != nil {
			t.Error(err)
		}
	})
	if r.client, err = p4rt.Dial(t.Context(), "s", cfg.Listen, device, p4rt.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.client.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r.load()
	r.open(cfg.Packets)
	return r
}

// open opens the ports, which there are a moment after the first program was loaded.
func (r *running) open(addr string) {
	ctx, cancel := context.WithCancel(context.Background())
	for begin := time.Now(); ; {
		var err error
		if r.packets, err = bmv2.OpenPackets(ctx, addr, device); err != nil {
			r.t.Fatal(err)
		}
		if err = r.packets.Send(1, probe(1)); err == nil {
			_, _, err = r.packets.Receive()
		}
		if err == nil {
			break
		}
		r.packets.Close()
		if time.Since(begin) > 10*time.Second {
			r.t.Fatal(err)
		}
	}
	done := make(chan struct{})
	r.t.Cleanup(func() {
		cancel()
		<-done
		r.packets.Close()
	})
	go func() {
		defer close(done)
		for {
			port, frame, err := r.packets.Receive()
			if err != nil {
				if ctx.Err() == nil {
					r.t.Error(err)
				}
				return
			}
			select {
			case r.frames <- vector.Frame{Port: port, Data: frame}:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// freePort is a TCP port that nobody listens on now.
func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// load makes the switch begin anew: no entries, no counts, no sums. Behind each port it
// routes to an address, for probes.
func (r *running) load() {
	r.t.Helper()
	info, config, _, err := r.program()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.client.Push(r.t.Context(), dataplane.Pipeline{Info: info, DeviceConfig: config}); err != nil {
		r.t.Fatal(err)
	}
	var routes []p4.Route
	for n := range uint32(ports) {
		routes = append(routes, p4.Route{Dst: behindPort(n + 1), Port: n + 1, MAC: [6]byte{2, 1, 0, 0, 0, byte(n + 1)}})
	}
	if err := r.client.WriteRoutes(r.t.Context(), routes); err != nil {
		r.t.Fatal(err)
	}
}

func behindPort(n uint32) [4]byte { return [4]byte{10, 9, 0, byte(n)} }

func (r *running) SetJob(e ina.JobEntry) error {
	return r.client.Write(r.t.Context(), dataplane.Batch{Jobs: []ina.JobEntry{e}})
}

func (r *running) DeleteJob(job uint16) error {
	return r.client.Delete(r.t.Context(), dataplane.Batch{Jobs: []ina.JobEntry{{Job: job}}})
}

func (r *running) SetGroup(id uint16, ports []uint32) error {
	return r.client.WriteGroup(r.t.Context(), id, ports)
}

// Send follows the frame with a probe to each port: what left because of the frame is there
// when these are, because a port's frames leave in order.
func (r *running) Send(port uint32, frame []byte) (out []vector.Frame, err error) {
	if err := r.packets.Send(port, frame); err != nil {
		return nil, err
	}
	for n := range uint32(ports) {
		if err := r.packets.Send(port, probe(n+1)); err != nil {
			return nil, err
		}
	}
	timeout := time.After(10 * time.Second)
	for missing := ports; missing > 0; {
		select {
		case f := <-r.frames:
			if f.Data[30] == 10 && f.Data[31] == 9 {
				missing--
				continue
			}
			out = append(out, f)
		case <-timeout:
			return out, fmt.Errorf("%d of %d probes have not come: %w", missing, ports, io.ErrNoProgress)
		}
	}
	return out, nil
}

// probe is a frame to the address behind a port.
func probe(port uint32) []byte {
	f := vector.Packet{Header: ina.Header{Job: 1}}.Frame()
	dst := behindPort(port)
	copy(f[30:], dst[:])
	return f
}

func (r *running) Counter(name string, job uint16) (packets, bytes int64, err error) {
	if !slices.Contains(r.client.Counters(), "job_"+name) {
		return 0, 0, errors.ErrUnsupported
	}
	v, err := r.client.ReadCounters(r.t.Context(), []string{"job_" + name}, []int{int(job)})
	if err != nil || len(v) != 1 {
		return 0, 0, fmt.Errorf("%v: %w", v, err)
	}
	return v[0].Packets, v[0].Bytes, nil
}

// BMv2 with this project's program does what the vectors say: the packets that the embedded
// switch sends, and its counts.
func TestVectors(t *testing.T) { testVectors(t, "../ina/testdata/vectors", p4.BMv2) }

// So does it with the program for chips, as far as that goes.
func TestChip(t *testing.T) { testVectors(t, "../ina/testdata/chip", p4.Chip) }

func testVectors(t *testing.T, dir string, program program) {
	vs, err := vector.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, program)
	for _, v := range vs {
		t.Run(v.Name, func(t *testing.T) {
			r.load()
			if err := vector.Run(v, r); err != nil {
				t.Error(err)
			}
		})
	}
}

// The time that an aggregator is taken is counted by digits, and read as one number.
func TestHold(t *testing.T) {
	r := start(t, p4.BMv2)
	entry := ina.JobEntry{Job: 5, Mode: ina.Statistical, Addressing: ina.Hash, Size: 64, Expect: 3, Window: 16, UpPort: 4, DownGroup: 1}
	if err := errors.Join(r.SetGroup(1, []uint32{1}), r.SetJob(entry)); err != nil {
		t.Fatal(err)
	}
	send := func(p vector.Packet) time.Time {
		p.Values = []int32{1}
		p.Job, p.Lanes = 5, 1
		if _, err := r.Send(p.Port, p.Frame()); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	const psns = 3
	var least, most time.Duration
	for psn := range uint32(psns) {
		before := time.Now()
		first := send(vector.Packet{Port: 1, Header: ina.Header{PSN: psn, Bitmap: 1}})
		for time.Since(first) < 20*time.Millisecond { // a time with some digits
			time.Sleep(time.Millisecond)
		}
		second := time.Now()
		last := send(vector.Packet{Port: 4, Header: ina.Header{Flags: ina.FlagResult, PSN: psn, Bitmap: 3, Rank: ina.NoRank}})
		least, most = least+second.Sub(first), most+last.Sub(before)
	}
	packets, micros, err := r.Counter("hold", 5)
	if hold := time.Duration(micros) * time.Microsecond; err != nil || packets != psns || hold < least-time.Millisecond || hold > most {
		t.Errorf("job_hold counts %d aggregators and %v, want %d and between %v and %v: %v", packets, hold, psns, least, most, err)
	}
}
