package collectors

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/ssh"
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
// nic_carrier_changes.
type NIC struct {
	host  string
	ports []NICPort
	files *fileReader
}

// NewNIC returns a collector over the devices of a host. Close ends its process there.
func NewNIC(client *ssh.Client, ports []NICPort) (*NIC, error) {
	const proc = "/proc/net/dev"
	files := []string{proc}
	for _, p := range ports {
		if p.Device == "" || strings.ContainsAny(p.Device, "/: \t\n") || strings.HasPrefix(p.Device, ".") {
			return nil, fmt.Errorf("host %s: %q is not the name of a device", client, p.Device)
		}
		for _, x := range append(sysfsExtra, sysfsWitness) {
			files = append(files, sysfsPath(p.Device, x.file))
		}
	}
	return &NIC{host: client.String(), ports: ports, files: newFileReader(client, append(files, proc))}, nil
}

// sysfsFile is a file of /sys/class/net/<device> with one number.
type sysfsFile struct{ file, metric string }

var (
	sysfsExtra = []sysfsFile{
		{"statistics/rx_missed_errors", "nic_rx_missed"},
		{"statistics/rx_crc_errors", "nic_rx_crc_errors"},
		{"carrier_changes", "nic_carrier_changes"},
	}
	// sysfs shows the devices of the network namespace it was mounted from, which need
	// not be the one that this process is in. Its packet count says whether it is: it
	// lies between what /proc/net/dev said before and after.
	sysfsWitness = sysfsFile{"statistics/rx_packets", ""}
)

func sysfsPath(device, file string) string { return "/sys/class/net/" + device + "/" + file }

// Name implements Collector.
func (n *NIC) Name() string { return "nic " + n.host }

// Close ends the process on the host. The connection stays open.
func (n *NIC) Close() error {
	n.files.close()
	return nil
}

// Collect implements Collector.
func (n *NIC) Collect(ctx context.Context) ([]results.Sample, error) {
	lines, err := n.files.read(ctx)
	if err != nil {
		return nil, err
	}
	return n.samples(lines)
}

// samples is Collect without the reading.
func (n *NIC) samples(lines []line) ([]results.Sample, error) {
	var proc [2]strings.Builder // before and after sysfs
	sys := map[string]string{}
	pass := 0
	for _, l := range lines {
		if l.file == "/proc/net/dev" {
			proc[pass].WriteString(l.text + "\n")
			continue
		}
		pass = 1
		sys[l.file] = l.text
	}
	before, err := ParseNetDev(proc[0].String())
	if len(before) == 0 {
		return nil, errors.Join(fmt.Errorf("host %s: /proc/net/dev has no devices", n.host), err)
	}
	errs := []error{err}
	after, _ := ParseNetDev(proc[1].String())

	var out []results.Sample
	for _, p := range n.ports {
		d, ok := before[p.Device]
		if !ok {
			errs = append(errs, fmt.Errorf("host %s: no device %s", n.host, p.Device))
			continue
		}
		add := func(of, metric, unit string, v uint64) {
			out = append(out, results.Sample{Source: "host " + n.host, Metric: metric, Of: of, Unit: unit, Value: float64(v)})
		}
		for _, dir := range []struct {
			of, name string
			c        NetDevCounters
		}{{p.Out, "nic_tx_", d.Tx}, {p.In, "nic_rx_", d.Rx}} {
			add(dir.of, dir.name+"bytes", "B", dir.c.Bytes)
			add(dir.of, dir.name+"packets", "1", dir.c.Packets)
			add(dir.of, dir.name+"errors", "1", dir.c.Errors)
			add(dir.of, dir.name+"drops", "1", dir.c.Drops)
		}
		number := func(file string) (uint64, error) {
			text, ok := sys[sysfsPath(p.Device, file)]
			if !ok {
				return 0, ErrNoData
			}
			return strconv.ParseUint(text, 10, 64)
		}
		seen, err := number(sysfsWitness.file)
		if err != nil || seen < d.Rx.Packets || seen > after[p.Device].Rx.Packets {
			continue // none, or of another namespace
		}
		for _, x := range sysfsExtra {
			if v, err := number(x.file); err == nil {
				add(p.In, x.metric, "1", v)
			} else if !errors.Is(err, ErrNoData) {
				errs = append(errs, fmt.Errorf("host %s: %s: %w", n.host, sysfsPath(p.Device, x.file), err))
			}
		}
	}
	return out, errors.Join(errs...)
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
		err := error(nil)
		if len(fields) < len(n) {
			err = fmt.Errorf("%d numbers instead of %d", len(fields), len(n))
		}
		for j := 0; err == nil && j < len(n); j++ {
			n[j], err = strconv.ParseUint(fields[j], 10, 64)
		}
		if err != nil || name == "" {
			errs = append(errs, fmt.Errorf("/proc/net/dev: device %q: %w", name, errors.Join(err)))
			continue
		}
		devices[name] = NetDev{
			Rx: NetDevCounters{n[0], n[1], n[2], n[3]},
			Tx: NetDevCounters{n[8], n[9], n[10], n[11]},
		}
	}
	return devices, errors.Join(errs...)
}
