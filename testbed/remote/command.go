package remote

import (
	"context"
	"fmt"
	"io"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/supervise"
)

// Client is the connection to a host. It is closed with the testbed.
func (tb *Testbed) Client(host string) (hosts.Host, error) {
	client, ok := tb.hosts[host]
	if !ok {
		return nil, fmt.Errorf("no connection to host %q", host)
	}
	return client, nil
}

// Spawn starts a program that is not ours on a host, with variables ("NAME=value") besides
// those that the host gives it. The process is the caller's. It runs under a supervisor, as
// those of Launch do.
func (tb *Testbed) Spawn(ctx context.Context, host, name string, argv, env []string, stderr io.Writer) (*hosts.Process, error) {
	client, err := tb.Client(host)
	if err != nil {
		return nil, err
	}
	return supervise.Start(ctx, client, tb.agentPath[host], supervise.Config{
		Run: tb.opt.Run, Name: name, Argv: argv, Env: env, Lease: tb.opt.Patience.Seconds(), Fence: tb.fence(host), Stderr: stderr,
	})
}
