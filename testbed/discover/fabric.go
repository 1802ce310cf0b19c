package discover

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory/ibfabric"
	"github.com/inabench/inabench/testbed/hosts"
)

// FabricOptions say what of an InfiniBand fabric is asked, and through which port.
type FabricOptions struct {
	RDMA   string // device and port of the host, "mlx5_0:2"; "mlx5_0" is its port 1; empty: the tools' own choice
	Routes bool   // also the forwarding tables of all switches
}

// fabricTimeout is how long a tool may take: large fabrics have tens of thousands of
// ports, and each of several attempts at one that does not answer takes a second.
const fabricTimeout = 5 * time.Minute

// Fabric asks the InfiniBand fabric that a host is cabled to: ibnetdiscover and
// iblinkinfo, on the host, as root where that is needed. What they write to stderr is
// among the readings, so that Check sees it.
func Fabric(ctx context.Context, client hosts.Host, o FabricOptions) ([]*ibfabric.Reading, error) {
	return fabric(ctx, o, func(ctx context.Context, argv []string) (hosts.Output, error) {
		argv = hosts.Sbin(argv)
		out, err := client.Run(ctx, argv, nil)
		if err != nil && needsRoot(out) {
			return client.RunRoot(ctx, argv, nil)
		}
		return out, err
	})
}

// needsRoot reports whether a tool could not open the device by which packets of
// management are sent, /dev/infiniband/umad0.
func needsRoot(out hosts.Output) bool {
	return !noDevice(out) && (bytes.Contains(out.Stderr, []byte("Permission denied")) || bytes.Contains(out.Stderr, []byte("can't open UMAD port")))
}

// noDevice reports whether there is none.
func noDevice(out hosts.Output) bool {
	return bytes.Contains(out.Stderr, []byte("can't read ABI version"))
}

func fabric(ctx context.Context, o FabricOptions, run func(context.Context, []string) (hosts.Output, error)) ([]*ibfabric.Reading, error) {
	tools := [][]string{{"ibnetdiscover"}, {"iblinkinfo", "-l"}}
	if o.Routes {
		tools = append(tools, []string{"dump_fts"})
	}
	var readings []*ibfabric.Reading
	for _, argv := range tools {
		if device, port, _ := strings.Cut(o.RDMA, ":"); device != "" {
			argv = append(argv, "-C", device, "-P", cmp.Or(port, "1"))
		}
		ctx, cancel := context.WithTimeoutCause(ctx, fabricTimeout, fmt.Errorf("no end within %v", fabricTimeout))
		out, err := run(ctx, argv)
		cancel()
		switch {
		case out.Exit == 127:
			return nil, fmt.Errorf("%s: the host does not have it: install infiniband-diags: %w", argv[0], err)
		case err != nil && noDevice(out):
			return nil, fmt.Errorf("%s: the host has no InfiniBand device, or the module ib_umad is not loaded: %w", argv[0], err)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", argv[0], err)
		}
		r, err := ibfabric.Parse(argv[0], string(out.Stdout))
		if err != nil {
			return nil, err
		}
		readings = append(readings, r, ibfabric.Stderr(argv[0], string(out.Stderr)))
	}
	return readings, nil
}
