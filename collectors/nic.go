package collectors

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
)

// NICPort is a device of a host and the cable in it.
type NICPort struct {
	Device string
	Out    string // name of the link that leaves the host: "h1->tor1"
	In     string // and of the one that arrives: "tor1->h1"
}

// NIC reads the kernel's counters of a host's devices: nic_tx_bytes, _packets, _errors
// and _drops of the link out, and the same with rx of the link in. Bytes count frames
// with their Ethernet header and without preamble and FCS. What bypasses the kernel
// (RDMA, DPDK) is not in them.
// All of a host are read in one go over the connection's one SFTP session, without a process on the host, and of one
// file: each costs the host several round trips, and some tens of system calls.
type NIC struct {
	host  string
	ports []NICPort
	read  func(ctx context.Context, file string) ([]byte, error)
}

// NewNIC returns a collector over devices of a host.
func NewNIC(client hosts.Host, ports []NICPort) (*NIC, error) {
	for _, p := range ports {
		if !validDevice(p.Device) {
			return nil, blame.Host(client.String(), fmt.Errorf("%q is not the name of a device", p.Device))
		}
	}
	return &NIC{host: client.String(), ports: ports, read: client.ReadFile}, nil
}

// validDevice says whether it can be the name of a device, and is safe within a path and
// a pattern.
func validDevice(name string) bool {
	return name != "" && !strings.ContainsAny(name, "/ \t\n*?[\\") && !strings.HasPrefix(name, ".")
}

const netDevFile = "/proc/net/dev"

// Name implements Collector.
func (n *NIC) Name() string { return "nic " + n.host }

// Collect implements Collector.
func (n *NIC) Collect(ctx context.Context) ([]results.Sample, error) {
	text, err := n.read(ctx, netDevFile)
	if err != nil {
		return nil, err
	}
	devices, err := ParseNetDev(string(text))
	if len(devices) == 0 {
		return nil, errors.Join(blame.Host(n.host, fmt.Errorf("%s has no devices", netDevFile)), err)
	}
	errs := []error{err}
	var out []results.Sample
	for _, p := range n.ports {
		d, ok := devices[p.Device]
		if !ok {
			errs = append(errs, blame.Host(n.host, fmt.Errorf("no device %s", p.Device)))
			continue
		}
		d.each(p, func(of, metric, unit string, v uint64) {
			out = append(out, results.Sample{Source: "host " + n.host, Metric: metric, Of: of, Unit: unit, Value: float64(v)})
		})
	}
	return out, errors.Join(errs...)
}

// each gives the counters of a device their names.
func (d NetDev) each(p NICPort, add func(of, metric, unit string, v uint64)) {
	for _, dir := range []struct {
		of, name string
		c        NetDevCounters
	}{{p.Out, "nic_tx_", d.Tx}, {p.In, "nic_rx_", d.Rx}} {
		add(dir.of, dir.name+"bytes", "B", dir.c.Bytes)
		add(dir.of, dir.name+"packets", "1", dir.c.Packets)
		add(dir.of, dir.name+"errors", "1", dir.c.Errors)
		add(dir.of, dir.name+"drops", "1", dir.c.Drops)
	}
}

// NetDev is a line of /proc/net/dev.
type NetDev struct{ Rx, Tx NetDevCounters }

// NetDevCounters are the counters of one direction. Errors include what further
// columns tell apart.
type NetDevCounters struct{ Bytes, Packets, Errors, Drops uint64 }

// ParseNetDev reads /proc/net/dev (proc_pid_net(5)): two lines of headings, then for
// each device its name, a colon, and eight numbers for each direction. It returns the
// devices that could be read, and an error that names the lines that could not.
func ParseNetDev(text string) (map[string]NetDev, error) {
	devices := map[string]NetDev{}
	var errs []error
	for l := range strings.Lines(text) {
		i := strings.LastIndexByte(l, ':')
		if i < 0 { // a heading
			continue
		}
		name, fields := strings.TrimSpace(l[:i]), strings.Fields(l[i+1:])
		var n [16]uint64
		var err error
		if name == "" {
			err = errors.New("no name")
		} else if len(fields) < len(n) {
			err = fmt.Errorf("%d numbers instead of %d", len(fields), len(n))
		}
		for j := 0; err == nil && j < len(n); j++ {
			n[j], err = strconv.ParseUint(fields[j], 10, 64)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("/proc/net/dev: device %q: %w", name, err))
			continue
		}
		devices[name] = NetDev{
			Rx: NetDevCounters{n[0], n[1], n[2], n[3]},
			Tx: NetDevCounters{n[8], n[9], n[10], n[11]},
		}
	}
	return devices, errors.Join(errs...)
}
