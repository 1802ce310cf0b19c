package p4rt_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

const device = 7

// memory is a switch without ports: it only remembers what it was told.
type memory = softswitchtest.Memory

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
	s := &server{t: t, mem: softswitchtest.NewMemory()}
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
	s.mem = softswitchtest.NewMemory()
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
