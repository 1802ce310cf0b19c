// Package softswitchtest gives tests of P4Runtime's clients a server that has no switch behind
// it.
package softswitchtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/softswitch"
)

// Nowhere is a switch that accepts every entry, forwards nothing, and counts
// nothing. Tests embed it for what they want to be otherwise.
type Nowhere struct{}

var _ softswitch.Target = Nowhere{}

func (Nowhere) Reset()                                                 {}
func (Nowhere) SetJob(ina.JobEntry) error                              { return nil }
func (Nowhere) DeleteJob(uint16) error                                 { return nil }
func (Nowhere) SetRoute(softswitch.Route) error                        { return nil }
func (Nowhere) DeleteRoute([4]byte) error                              { return nil }
func (Nowhere) SetGroup(uint16, []uint32) error                        { return nil }
func (Nowhere) DeleteGroup(uint16) error                               { return nil }
func (Nowhere) Counter(softswitch.Counter, int) (packets, bytes int64) { return 0, 0 }
func (Nowhere) ResetCounter(softswitch.Counter, int)                   {}

// Memory is a switch without cables that remembers what it was told.
type Memory struct {
	mu       sync.Mutex
	Resets   int // how often it was made to forget everything
	jobs     map[uint16]ina.JobEntry
	routes   map[[4]byte]p4.Route
	groups   map[uint16][]uint32
	counters map[string]int64
}

// RefusedJob is a job that a Memory has no room for.
const RefusedJob = 4000

// NewMemory is one that was told nothing.
func NewMemory() *Memory {
	m := new(Memory)
	m.Reset()
	return m
}

func (m *Memory) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Resets++
	m.jobs = make(map[uint16]ina.JobEntry)
	m.routes = make(map[[4]byte]p4.Route)
	m.groups = make(map[uint16][]uint32)
	m.counters = make(map[string]int64)
}

func (m *Memory) SetJob(e ina.JobEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Job == RefusedJob {
		return errors.New("no aggregators left")
	}
	m.jobs[e.Job] = e
	return nil
}

func (m *Memory) DeleteJob(job uint16) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, job)
	return nil
}

func (m *Memory) SetRoute(r p4.Route) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.routes[r.Dst] = r
	return nil
}

func (m *Memory) DeleteRoute(dst [4]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.routes, dst)
	return nil
}

func (m *Memory) SetGroup(id uint16, ports []uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups[id] = ports
	return nil
}

func (m *Memory) DeleteGroup(id uint16) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, id)
	return nil
}

func cell(c softswitch.Counter, index int) string { return fmt.Sprintf("%s[%d]", c, index) }

func (m *Memory) Counter(c softswitch.Counter, index int) (packets, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.counters[cell(c, index)]
	return n, 100 * n
}

func (m *Memory) ResetCounter(c softswitch.Counter, index int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.counters, cell(c, index))
}

// Count counts packets of a cell, of 100 bytes each.
func (m *Memory) Count(c softswitch.Counter, index int, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counters[cell(c, index)] += n
}

// State is everything that a switch was told, in an order that can be compared.
func (m *Memory) State() (b dataplane.Batch) {
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

// Serve runs a P4Runtime server for a target until the test ends, and returns its address.
func Serve(t testing.TB, device uint64, target softswitch.Target) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- softswitch.ServeP4(ctx, lis, device, target) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return lis.Addr().String()
}
