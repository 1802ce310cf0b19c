package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/supervise"
)

// Launch starts this program on a host as one of its hidden verbs, with a configuration, one line of JSON, as the first of its
// stdin. People know it by the configuration's Title, or else by its verb. The process is the caller's. It runs under a
// supervisor, see package supervise: it ends when its stdin is closed, and when this program or the connection is gone, at the
// latest after Options.Patience. The end of ctx ends it only while it is being started.
func (tb *Testbed) Launch(ctx context.Context, host, verb string, config any) (*hosts.Process, error) {
	name := verb
	if c, ok := config.(interface{ Title() string }); ok {
		name = c.Title()
	}
	p, err := tb.launch(ctx, host, name, verb, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// launch is Launch of what people know by a name.
func (tb *Testbed) launch(ctx context.Context, host, name, verb string, config any) (*hosts.Process, error) {
	client, err := tb.Client(host)
	if err != nil {
		return nil, err
	}
	config, watch := tb.sab.infect(config)
	line, err := json.Marshal(config)
	if err != nil {
		return nil, blame.Host(host, err)
	}
	p, err := hosts.Outlive(ctx, func(ctx context.Context) (*hosts.Process, error) {
		return supervise.Start(ctx, client, tb.agentPath[host], supervise.Config{
			Run: tb.opt.Run, Name: name, Argv: []string{"", verb, name},
			Stdin: string(line) + "\n", Relay: true, Lease: tb.opt.Patience.Seconds(), Fence: tb.fence(host),
		})
	})
	if err != nil {
		return nil, err
	}
	if watch != nil {
		p.Stdout = watch(p.Stdout)
	}
	return p, nil
}

// MAC is the hardware address of a host's NIC.
func (tb *Testbed) MAC(ctx context.Context, host, device string) (net.HardwareAddr, error) {
	return tb.hostMAC(ctx, host, device)
}

// Reach is the address at which a host reaches this machine.
func (tb *Testbed) Reach(host string) (netip.Addr, error) {
	client, err := tb.Client(host)
	if err != nil {
		return netip.Addr{}, err
	}
	return client.Local()
}
