// Package softswitchtest gives tests of P4Runtime's clients a server that has no switch behind
// it.
package softswitchtest

import (
	"context"
	"net"
	"testing"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/softswitch"
)

// Nowhere is a switch that accepts every entry, forwards nothing, has no ports, and counts
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
func (Nowhere) Ports() []uint32                                        { return nil }

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
