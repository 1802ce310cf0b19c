package collectors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
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
//
// Where sysfs shows the same devices it adds nic_rx_missed, nic_rx_crc_errors and
// nic_carrier_changes, which say why traffic is not what it should be, at most every second: each file costs its host
// several round trips of SFTP, and some tens of system calls. Everything is read in one go over the connection's one
// SFTP session, without a process on the host.
type NIC struct {
	host  string
	ports []NICPort
	read  func(ctx context.Context, files ...string) []hosts.File

	mu    sync.Mutex
	sysfs map[string]bool // device -> sysfs shows it, once that is known
	extra time.Time       // when these files were read
}

// NewNIC returns a collector over devices of a host.
func NewNIC(client hosts.Host, ports []NICPort) (*NIC, error) {
	for _, p := range ports {
		if !validDevice(p.Device) {
			return nil, blame.Host(client.String(), fmt.Errorf("%q is not the name of a device", p.Device))
		}
	}
	return &NIC{host: client.String(), ports: ports, read: readFiles(client), sysfs: map[string]bool{}}, nil
}

// readFiles reads files of a host that are not large.
func readFiles(h hosts.Host) func(ctx context.Context, names ...string) []hosts.File {
	return func(ctx context.Context, names ...string) []hosts.File {
		return h.ReadFilesOf(ctx, bounded.Config, names...)
	}
}

// validDevice says whether it can be the name of a device, and is safe within a path and
// a pattern.
func validDevice(name string) bool {
	return name != "" && !strings.ContainsAny(name, "/ \t\n*?[\\") && !strings.HasPrefix(name, ".")
}

const netDevFile = "/proc/net/dev"

// sysfsExtra are files of /sys/class/net/<device> with one number, and their metrics.
var sysfsExtra = []struct{ file, metric string }{
	{"statistics/rx_missed_errors", "nic_rx_missed"},
	{"statistics/rx_crc_errors", "nic_rx_crc_errors"},
	{"carrier_changes", "nic_carrier_changes"},
}

// seldom is how often they are read at most.
const seldom = time.Second

func sysfsPath(device, file string) string { return "/sys/class/net/" + device + "/" + file }

// Name implements Collector.
func (n *NIC) Name() string { return "nic " + n.host }

// Collect implements Collector.
func (n *NIC) Collect(ctx context.Context) ([]results.Sample, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trustSysfs(ctx)

	files := []string{netDevFile}
	extras := time.Since(n.extra) >= seldom
	if extras {
		n.extra = time.Now()
	}
	for _, p := range n.ports {
		if extras && n.sysfs[p.Device] {
			for _, x := range sysfsExtra {
				files = append(files, sysfsPath(p.Device, x.file))
			}
		}
	}
	got := n.read(ctx, files...)
	if err := got[0].Err; err != nil {
		return nil, err
	}
	devices, err := ParseNetDev(string(got[0].Data))
	if len(devices) == 0 {
		return nil, errors.Join(blame.Host(n.host, fmt.Errorf("%s has no devices", netDevFile)), err)
	}
	errs := []error{err}
	var out []results.Sample
	extra := got[1:]
	for _, p := range n.ports {
		add := func(of, metric, unit string, v uint64) {
			out = append(out, results.Sample{Source: "host " + n.host, Metric: metric, Of: of, Unit: unit, Value: float64(v)})
		}
		if extras && n.sysfs[p.Device] {
			for i, x := range sysfsExtra {
				v, err := number(extra[i])
				if err == nil {
					add(p.In, x.metric, "1", v)
				} else if !errors.Is(err, fs.ErrNotExist) { // not every device has every counter
					errs = append(errs, blame.Host(n.host, fmt.Errorf("%s: %w", sysfsPath(p.Device, x.file), err)))
				}
			}
			extra = extra[len(sysfsExtra):]
		}
		d, ok := devices[p.Device]
		if !ok {
			errs = append(errs, blame.Host(n.host, fmt.Errorf("no device %s", p.Device)))
			continue
		}
		d.each(p, add)
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

// trustSysfs finds out, once, which devices sysfs shows as they are: it shows those of
// the network namespace that it was mounted from, which need not be the one that
// /proc/net/dev speaks of. If it is, a packet count there lies between what
// /proc/net/dev says before and after.
func (n *NIC) trustSysfs(ctx context.Context) {
	if len(n.sysfs) == len(n.ports) {
		return
	}
	var witnesses []string
	for _, p := range n.ports {
		witnesses = append(witnesses, sysfsPath(p.Device, "statistics/rx_packets"))
	}
	netDev := func() map[string]NetDev {
		devices, _ := ParseNetDev(string(n.read(ctx, netDevFile)[0].Data))
		return devices
	}
	before, seen, after := netDev(), n.read(ctx, witnesses...), netDev()
	if len(before) == 0 || len(after) == 0 {
		return // next time
	}
	for i, p := range n.ports {
		v, err := number(seen[i])
		n.sysfs[p.Device] = err == nil && before[p.Device].Rx.Packets <= v && v <= after[p.Device].Rx.Packets
	}
}

func number(f hosts.File) (uint64, error) {
	if f.Err != nil {
		return 0, f.Err
	}
	return strconv.ParseUint(strings.TrimSpace(string(f.Data)), 10, 64)
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
