package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/inabench/inabench/testbed/ssh"
)

// Launch starts this program on a host as one of its hidden verbs and writes the
// configuration, one line of JSON, to its stdin. The process is the caller's: it ends when
// its stdin is closed, and Close makes sure.
func (tb *Testbed) Launch(ctx context.Context, host, verb string, config any) (*ssh.Process, error) {
	client, ok := tb.hosts[host]
	if !ok {
		return nil, fmt.Errorf("%s: no connection to host %q", verb, host)
	}
	line, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("%s on host %s: %w", verb, host, err)
	}
	proc, err := client.Start(context.WithoutCancel(ctx), []string{tb.agentPath[host], verb})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	if _, err := proc.Stdin.Write(append(line, '\n')); err != nil {
		_ = proc.Close()
		return nil, fmt.Errorf("%s on host %s: %w", verb, host, err)
	}
	return proc, nil
}

// MAC is the hardware address of a host's NIC.
func (tb *Testbed) MAC(ctx context.Context, host, device string) (net.HardwareAddr, error) {
	return tb.hostMAC(ctx, host, device)
}

// Reach is the address at which a host reaches this machine.
func (tb *Testbed) Reach(host string) (netip.Addr, error) {
	client, ok := tb.hosts[host]
	if !ok {
		return netip.Addr{}, fmt.Errorf("no connection to host %q", host)
	}
	local, ok := client.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("host %s: connected from %v, which is no address", host, client.LocalAddr())
	}
	return local.AddrPort().Addr().Unmap(), nil
}
