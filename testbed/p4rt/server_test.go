package p4rt_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/testbedtest"
)

const device = 7

// memory is a switch without ports: it only remembers what it was told.
type memory struct {
	mu       sync.Mutex
	resets   int
	jobs     map[uint16]ina.JobEntry
	routes   map[[4]byte]p4.Route
	groups   map[uint16][]uint32
	counters map[string]int64
	full     bool // there is room for no job
}

// refusedJob is a job that memory has no room for.
const refusedJob = 4000

func newMemory() *memory {
	m := new(memory)
	m.Reset()
	return m
}

func (m *memory) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resets++
	m.jobs = make(map[uint16]ina.JobEntry)
	m.routes = make(map[[4]byte]p4.Route)
	m.groups = make(map[uint16][]uint32)
	m.counters = make(map[string]int64)
}

func (m *memory) SetJob(e ina.JobEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Job == refusedJob || m.full {
		return errors.New("no aggregators left")
	}
	m.jobs[e.Job] = e
	return nil
}

func (m *memory) DeleteJob(job uint16) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, job)
	return nil
}

func (m *memory) SetRoute(r p4.Route) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.routes[r.Dst] = r
	return nil
}

func (m *memory) DeleteRoute(dst [4]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.routes, dst)
	return nil
}

func (m *memory) SetGroup(id uint16, ports []uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups[id] = ports
	return nil
}

func (m *memory) DeleteGroup(id uint16) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, id)
	return nil
}

func cell(c softswitch.Counter, index int) string { return fmt.Sprintf("%s[%d]", c, index) }

func (m *memory) Counter(c softswitch.Counter, index int) (packets, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.counters[cell(c, index)]
	return n, 100 * n
}

func (m *memory) ResetCounter(c softswitch.Counter, index int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.counters, cell(c, index))
}

func (m *memory) count(c softswitch.Counter, index int, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counters[cell(c, index)] += n
}

func (m *memory) Ports() []uint32 { return []uint32{1, 2, 3, 4} }

// state is everything memory was told, in an order that can be compared.
func (m *memory) state() (b dataplane.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		b.Groups = append(b.Groups, p4.Group{ID: id, Ports: m.groups[id]})
	}
	for _, dst := range slices.SortedFunc(maps.Keys(m.routes), func(a, b [4]byte) int { return slices.Compare(a[:], b[:]) }) {
		b.Routes = append(b.Routes, m.routes[dst])
	}
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		b.Jobs = append(b.Jobs, m.jobs[id])
	}
	return b
}

// server is the soft switch's P4Runtime server around a memory. It can be stopped
// and started again at the same address.
type server struct {
	t    testing.TB
	addr string
	mem  *memory
	stop func()
}

func startServer(t testing.TB, network, addr string) *server {
	t.Helper()
	s := &server{t: t, mem: newMemory()}
	s.start(network, addr)
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) start(network, addr string) {
	s.t.Helper()
	lis, err := net.Listen(network, addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = lis.Addr().String()
	if network == "unix" {
		s.addr = "unix:" + addr
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	mem := s.mem
	go func() { served <- softswitch.ServeP4(ctx, lis, device, mem) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			s.t.Errorf("serve: %v", err)
		}
	})
}

// restart is what a crash of the switch process looks like: all state is gone.
func (s *server) restart() {
	s.t.Helper()
	s.stop()
	s.mem = newMemory()
	s.start("tcp", s.addr)
}

func loopback(t testing.TB) *server { return startServer(t, "tcp", "127.0.0.1:0") }

func unixSocket(t testing.TB) *server {
	dir, err := os.MkdirTemp("", "p4rt") // t.TempDir is too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startServer(t, "unix", filepath.Join(dir, "s"))
}

// A subject is a server that the conformance tests run against.
type subject struct {
	embedded bool // held to the first code of each row
	addr     string
	device   uint64
	pipeline dataplane.Pipeline
}

// subjects are the embedded server and, where the environment names one, another:
//
//	INABENCH_P4RT_ADDR    its P4Runtime address, such as 127.0.0.1:9559
//	INABENCH_P4RT_DEVICE  its device id, 0 if unset
//	INABENCH_P4RT_INFO    file with the p4info of the INA pipeline compiled for it
//	INABENCH_P4RT_CONFIG  file with the device config (BMv2: the compiler's JSON)
func subjects(t *testing.T, run func(*testing.T, subject)) {
	t.Run("soft", func(t *testing.T) {
		run(t, subject{embedded: true, addr: loopback(t).addr, device: device, pipeline: dataplane.Pipeline{Info: p4.Info()}})
	})
	t.Run("external", func(t *testing.T) {
		s := subject{addr: os.Getenv("INABENCH_P4RT_ADDR"), pipeline: dataplane.Pipeline{Info: p4.Info()}}
		if s.addr == "" {
			testbedtest.Require(t, "p4runtime", errors.New("INABENCH_P4RT_ADDR is unset: no other P4Runtime server to hold to the same table"))
		}
		var err error
		if v := os.Getenv("INABENCH_P4RT_DEVICE"); v != "" {
			if s.device, err = strconv.ParseUint(v, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if file := os.Getenv("INABENCH_P4RT_INFO"); file != "" {
			b, err := os.ReadFile(file)
			if err == nil {
				err = prototext.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, s.pipeline.Info)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if file := os.Getenv("INABENCH_P4RT_CONFIG"); file != "" {
			if s.pipeline.DeviceConfig, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		run(t, s)
	})
}
