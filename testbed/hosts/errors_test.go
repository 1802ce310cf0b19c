package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/inabench/inabench/internal/blame"
)

// TestReason: hosts that fail alike have the same reason, whatever their names and addresses are. What another host
// lacks is told with its name.
func TestReason(t *testing.T) {
	refused := func(op, to string) error {
		addr, err := net.ResolveTCPAddr("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		return &net.OpError{Op: op, Net: "tcp", Addr: addr, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	gate := &Error{Host: "gate", Address: "10.0.9.9:22", Kind: ErrUnreachable, Err: errors.New("it is off")}
	for _, tt := range []struct {
		name string
		err  func(host, address string) error
		want string
	}{
		{"refused", func(h, a string) error {
			return &Error{Host: h, Address: a, Kind: ErrUnreachable, Err: refused("dial", a)}
		},
			"unreachable: dial tcp: connect: connection refused"},
		{"refused in the handshake", func(h, a string) error {
			return &Error{Host: h, Address: a, Kind: ErrUnreachable, Err: fmt.Errorf("in the handshake: %w", refused("read", a))}
		}, "unreachable: in the handshake: read tcp: connect: connection refused"},
		{"unknown name", func(h, a string) error {
			none := &net.DNSError{Err: "no such host", Name: h}
			return &Error{Host: h, Address: a, Kind: ErrUnreachable, Err: &net.OpError{Op: "dial", Net: "tcp", Err: none}}
		}, "unreachable: dial tcp: lookup: no such host"},
		{"behind a host that is off", func(h, _ string) error { return blame.Host(h, fmt.Errorf("jump: %w", gate)) },
			"jump: host gate (10.0.9.9:22): unreachable: it is off"},
		{"too late", func(h, _ string) error { return blame.Host(h, context.DeadlineExceeded) }, "context deadline exceeded"},
		{"no shell", func(h, _ string) error { return &RunError{Host: h, Argv: []string{"sh", "-s"}, Exit: 127} }, "sh -s: exit status 127"},
		{"of nobody", func(string, string) error { return context.Canceled }, "context canceled"},
	} {
		for host, address := range map[string]string{"h1": "10.0.0.1:22", "h22": "[fd00::22]:2222"} {
			if got := Reason(host, tt.err(host, address)); got != tt.want {
				t.Errorf("%s: host %s: %q, want %q", tt.name, host, got, tt.want)
			}
		}
	}
}
