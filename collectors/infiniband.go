package collectors

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
)

// word is what InfiniBand counts data in, bytes (kernel Documentation/ABI/stable/
// sysfs-class-infiniband: "divided by 4"; InfiniBand Architecture Specification, volume
// 1, PortCountersExtended).
const word = 4

// IBPort is a port of an RDMA device and the cable in it.
type IBPort struct {
	RDMA string // "mlx5_0:1"
	GUID uint64 // node GUID that the device should have; 0: not known
	Out  string // name of the link that leaves the host: "h1->leaf1"
	In   string // and of the one that arrives
}

// IB reads the counters of InfiniBand ports of a host from sysfs: no root, no program.
//
// They count all of a port's traffic, RDMA above all. nic_tx_bytes, nic_rx_bytes and
// _packets are the same figures as those of NIC, from the link layer; nic_rx_errors are
// packets that arrived damaged, nic_tx_drops those that could not be sent. All others
// keep the kernel's names, "ib_" before them: ib_port_xmit_wait is in ticks, of a length
// that only the vendor knows, in which there was something to send and no credit. Those of
// hw_counters are "rdma_", as those of Host; the kernel reads them from the device once
// in rdma_lifespan, 10 ms by default, and gives the same values until then.
//
// Counters are never reset; they are everybody's.
type IB struct {
	host  string
	ports []IBPort
	read  func(ctx context.Context, files ...string) []hosts.File
}

var rdmaPort = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_-]*):([1-9][0-9]{0,2})$`)

// NewIB returns a collector over ports of a host.
func NewIB(client hosts.Host, ports []IBPort) (*IB, error) {
	return newIB(client.String(), ports, func(ctx context.Context, names ...string) []hosts.File {
		return client.ReadFilesOf(ctx, bounded.Config, names...)
	})
}

func newIB(host string, ports []IBPort, read func(context.Context, ...string) []hosts.File) (*IB, error) {
	for _, p := range ports {
		if !rdmaPort.MatchString(p.RDMA) {
			return nil, blame.Host(host, fmt.Errorf("%q is not a port of an RDMA device", p.RDMA))
		}
	}
	return &IB{host: host, ports: ports, read: read}, nil
}

// ibCounter is a file below a port of /sys/class/infiniband. Devices lack some of them.
type ibCounter struct {
	file   string
	metric string // empty: "ib_" and the file's name, or "rdma_" with hw_counters
	out    bool   // it is about what is sent
	data   bool   // in words, and useless with 32 bits
}

var ibCounters = []ibCounter{
	{"counters/port_xmit_data", "nic_tx_bytes", true, true},
	{"counters/port_rcv_data", "nic_rx_bytes", false, true},
	{"counters/port_xmit_packets", "nic_tx_packets", true, false},
	{"counters/port_rcv_packets", "nic_rx_packets", false, false},
	{"counters/port_rcv_errors", "nic_rx_errors", false, false},
	{"counters/port_xmit_discards", "nic_tx_drops", true, false},
	{"counters/port_xmit_wait", "", true, false},
	{unicastFile, "", true, false},
	{"counters/unicast_rcv_packets", "", false, false},
	{"counters/multicast_xmit_packets", "", true, false},
	{"counters/multicast_rcv_packets", "", false, false},
	{"counters/symbol_error", "", false, false},
	{"counters/link_error_recovery", "", false, false},
	{"counters/link_downed", "", false, false},
	{"counters/local_link_integrity_errors", "", false, false},
	{"counters/excessive_buffer_overrun_errors", "", false, false},
	{"counters/port_rcv_remote_physical_errors", "", false, false},
	{"counters/port_rcv_switch_relay_errors", "", false, false},
	{"counters/port_rcv_constraint_errors", "", false, false},
	{"counters/port_xmit_constraint_errors", "", true, false},
	{"counters/VL15_dropped", "", false, false}, // of all names the one with capitals
	{"hw_counters/out_of_buffer", "", false, false},
	{"hw_counters/out_of_sequence", "", false, false},
	{"hw_counters/packet_seq_err", "", true, false},
	{"hw_counters/local_ack_timeout_err", "", true, false},
	{"hw_counters/rnr_nak_retry_err", "", true, false},
	{lifespanFile, "", false, false},
}

const (
	// The kernel shows this file where the device has counters of 64 bits (drivers/
	// infiniband/core/sysfs.c: the group pma_group_ext).
	unicastFile  = "counters/unicast_xmit_packets"
	lifespanFile = "hw_counters/lifespan"
)

func (c *ibCounter) name() string {
	group, file, _ := strings.Cut(c.file, "/")
	return cmp.Or(c.metric, map[string]string{"counters": "ib_", "hw_counters": "rdma_"}[group]+file)
}

// Name implements Collector.
func (c *IB) Name() string { return "infiniband " + c.host }

// Collect implements Collector. A counter that a device does not have, or says that
// it has not, gives no sample; one that cannot be read is an error and costs only
// itself. A device with another GUID than it should have gives none: its counters are
// those of another cable.
func (c *IB) Collect(ctx context.Context) ([]results.Sample, error) {
	var files []string
	for _, p := range c.ports {
		m := rdmaPort.FindStringSubmatch(p.RDMA)
		dir := "/sys/class/infiniband/" + m[1] + "/"
		files = append(files, dir+"node_guid")
		for _, x := range ibCounters {
			files = append(files, dir+"ports/"+m[2]+"/"+x.file)
		}
	}
	got := c.read(ctx, files...)
	var out []results.Sample
	var errs []error
	for i, p := range c.ports {
		k := i * (1 + len(ibCounters))
		some, err := ibSamples(c.host, p, files[k:], got[k:k+1+len(ibCounters)])
		out = append(out, some...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// ibSamples are those of one port, of its files: the GUID, then ibCounters.
func ibSamples(host string, p IBPort, names []string, files []hosts.File) ([]results.Sample, error) {
	if errors.Is(files[0].Err, fs.ErrNotExist) {
		return nil, blame.Host(host, fmt.Errorf("no RDMA device %s", strings.Split(p.RDMA, ":")[0]))
	}
	if files[0].Err != nil {
		return nil, blame.Host(host, fmt.Errorf("%s: %w", names[0], files[0].Err))
	}
	guid, err := strconv.ParseUint(strings.ReplaceAll(strings.TrimSpace(string(files[0].Data)), ":", ""), 16, 64)
	if err != nil {
		return nil, blame.Host(host, fmt.Errorf("%s is %.80q", names[0], files[0].Data))
	}
	if p.GUID != 0 && guid != p.GUID {
		return nil, blame.Host(host, fmt.Errorf("%s has GUID %#016x, and the inventory says %#016x: it is another adapter", p.RDMA, guid, p.GUID))
	}
	var out []results.Sample
	var errs []error
	sample := func(x ibCounter, v float64, unit string) results.Sample {
		s := results.Sample{Source: "host " + host, Metric: x.name(), Of: p.In, Unit: unit, Value: v}
		if x.out {
			s.Of = p.Out
		}
		return s
	}
	wide := false
	values := make([]*uint64, len(ibCounters))
	for i, x := range ibCounters {
		f := files[1+i]
		text := strings.TrimSpace(string(f.Data))
		switch {
		case errors.Is(f.Err, fs.ErrNotExist), strings.HasPrefix(text, "N/A"): // "N/A (no PMA)"
			continue
		case f.Err != nil:
			errs = append(errs, blame.Host(host, fmt.Errorf("%s: %w", names[1+i], f.Err)))
			continue
		}
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			errs = append(errs, blame.Host(host, fmt.Errorf("%s is %.80q", names[1+i], text)))
			continue
		}
		values[i] = &v
		wide = wide || x.file == unicastFile || x.data && v > math.MaxUint32
	}
	narrow := false
	for i, x := range ibCounters {
		v := values[i]
		switch {
		case v == nil:
		case x.data && !wide:
			narrow = true
		case x.data:
			out = append(out, sample(x, float64(*v)*word, "B"))
		case x.file == lifespanFile:
			s := sample(x, float64(*v)/1000, "s")
			s.Gauge = true
			out = append(out, s)
		case strings.HasPrefix(x.file, "hw_counters/"):
			s := sample(x, float64(*v), "1")
			s.Wrap = 1 << 32
			out = append(out, s)
		default:
			out = append(out, sample(x, float64(*v), "1"))
		}
	}
	if narrow {
		errs = append(errs, blame.Host(host, fmt.Errorf("%s counts data with 32 bits, which are full after 16 GiB and then stay so", p.RDMA)))
	}
	if len(out) == 0 && len(errs) == 0 {
		return nil, blame.Host(host, fmt.Errorf("no counters of %s: %w", p.RDMA, ErrNoData))
	}
	for _, of := range []string{p.Out, p.In} {
		// A float64 holds 53 bits exactly; two adapters differ in the low ones.
		out = append(out, results.Sample{Source: "host " + host, Metric: "nic_index", Of: of, Unit: UnitID, Gauge: true, Value: float64(guid & (1<<52 - 1))})
	}
	return out, errors.Join(errs...)
}

// IBSwitch reads the ports of an InfiniBand switch by perfquery from a host of its
// fabric, since the switch itself is asked through the fabric: port_tx_bytes and so on,
// as those of P4, and whatever else perfquery -x prints as "ib_" and its name in the
// kernel's style. Opening the management device needs root on most hosts.
type IBSwitch struct {
	Switch string
	GUID   uint64
	From   string         // RDMA device and port of the host, "mlx5_0:1"; empty: perfquery's own choice
	Ports  map[int]P4Port // by number, from 1

	// Run runs a command on the host; RunRoot does as root and is tried where Run is
	// not allowed to. nil: there is no such way.
	Run, RunRoot func(ctx context.Context, argv []string) (hosts.Output, error)
	Perfquery    []string // the command; nil: perfquery

	mu   sync.Mutex
	root bool
}

// Name implements Collector.
func (c *IBSwitch) Name() string { return "perfquery " + c.Switch }

// argv asks for all ports in one process. perfquery takes lists of ports, and ranges,
// but not both.
func (c *IBSwitch) argv() []string {
	argv := slices.Clone(c.Perfquery)
	if len(argv) == 0 {
		argv = hosts.Sbin([]string{"perfquery"})
	}
	argv = append(argv, "-x", "-l", "-G")
	if m := rdmaPort.FindStringSubmatch(c.From); m != nil {
		argv = append(argv, "-C", m[1], "-P", m[2])
	}
	var ports []string
	for _, n := range slices.Sorted(maps.Keys(c.Ports)) {
		ports = append(ports, strconv.Itoa(n))
	}
	return append(argv, fmt.Sprintf("%#016x", c.GUID), strings.Join(ports, ","))
}

// Collect implements Collector. A switch that does not answer is an error, and so are
// ports that are missing from the answer; they cost only themselves.
func (c *IBSwitch) Collect(ctx context.Context) ([]results.Sample, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := c.ask(ctx)
	fail := func(err error) error { return blame.Switch(c.Switch, err) }
	if bytes.Contains(out.Stderr, []byte("No extended counter support")) {
		return nil, fail(errors.New("it counts data with 32 bits, which are full after 16 GiB and then stay so"))
	}
	ports, perr := ParsePerfquery(string(out.Stdout))
	if err != nil && len(ports) == 0 {
		return nil, fail(perfqueryError(out, err))
	}
	var samples []results.Sample
	errs := []error{perr}
	if err != nil {
		errs = append(errs, perfqueryError(out, err))
	}
	seen := map[int]bool{}
	for _, p := range ports {
		links, ok := c.Ports[p.Port]
		if !ok || seen[p.Port] {
			continue
		}
		seen[p.Port] = true
		some, err := p.samples("switch "+c.Switch, links)
		samples = append(samples, some...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(c.Ports)) {
		if !seen[n] {
			errs = append(errs, fmt.Errorf("no counters of port %d", n))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return samples, fail(err)
	}
	return samples, nil
}

func (c *IBSwitch) ask(ctx context.Context) (out hosts.Output, err error) {
	if !c.root {
		out, err = c.Run(ctx, c.argv())
		if err == nil || c.RunRoot == nil || !notAllowed(out) {
			return out, err
		}
	}
	out, err = c.RunRoot(ctx, c.argv())
	c.root = err == nil
	return out, err
}

// notAllowed reports whether perfquery could not open /dev/infiniband/umad0.
func notAllowed(out hosts.Output) bool {
	return bytes.Contains(out.Stderr, []byte("Permission denied")) || bytes.Contains(out.Stderr, []byte("can't open UMAD port"))
}

// perfqueryError is what perfquery says on stderr, in a sentence.
func perfqueryError(out hosts.Output, err error) error {
	said := strings.Join(strings.Fields(string(out.Stderr)), " ")
	switch {
	case out.Exit == 127 || out.Exit == 126: // 126 where PATH has directories that are closed to us
		return fmt.Errorf("no perfquery on the host that is asked: install infiniband-diags: %w", err)
	case strings.Contains(said, "classportinfo query"):
		return fmt.Errorf("perfquery: the switch does not answer: %w", err)
	case strings.Contains(said, "perfextquery"):
		return fmt.Errorf("perfquery: the switch has no such port: %w", err)
	case strings.Contains(said, "can't resolve"):
		return fmt.Errorf("perfquery: no such GUID in the fabric, or no subnet manager: %w", err)
	case notAllowed(out):
		return fmt.Errorf("perfquery needs root on the host that is asked: %w", err)
	}
	return fmt.Errorf("perfquery: %w", err)
}

// PerfPort is one port's counters, as perfquery -x prints them.
type PerfPort struct {
	LID, Port int
	Values    map[string]uint64 // "PortXmitData" and so on, in the device's units
}

var perfHead = regexp.MustCompile(`^# Port (extended )?counters: (?:\S+ )*?Lid (\d+) port (\d+)`)

// ParsePerfquery reads the output of perfquery -x, for one port or several. Newer ones
// say "extended" in the heading, older ones do not; without -x there are no counters
// of unicast packets, data is counted with 32 bits that are full after 16 GiB, and the
// port is refused. It returns the ports that could be read, and an error that names
// the lines, and the ports, that could not.
func ParsePerfquery(text string) ([]PerfPort, error) {
	var out []PerfPort
	var errs []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if m := perfHead.FindStringSubmatch(line); m != nil {
			lid, err1 := strconv.ParseUint(m[2], 10, 16)
			port, err2 := strconv.ParseUint(m[3], 10, 8)
			if err := errors.Join(err1, err2); err != nil {
				errs = append(errs, fmt.Errorf("perfquery line %d: %w", n, err))
				continue
			}
			out = append(out, PerfPort{LID: int(lid), Port: int(port), Values: map[string]uint64{}})
			continue
		}
		if line == "" || line[0] == '#' || line[0] == '$' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimLeft(value, ".")
		if name == "CounterSelect2" && ok {
			continue // 0x00, without meaning here
		}
		v, err := strconv.ParseUint(value, 0, 64)
		switch {
		case !ok || err != nil:
			errs = append(errs, fmt.Errorf("perfquery line %d: %.80q is no counter", n, line))
		case len(out) == 0:
			errs = append(errs, fmt.Errorf("perfquery line %d: a counter of no port: %.80q", n, line))
		default:
			out[len(out)-1].Values[name] = v
		}
	}
	out = slices.DeleteFunc(out, func(p PerfPort) bool {
		if _, wide := p.Values["PortUnicastXmitPkts"]; !wide {
			errs = append(errs, fmt.Errorf("perfquery: LID %d port %d: data is counted with 32 bits, which are full after 16 GiB: use perfquery -x", p.LID, p.Port))
			return true
		}
		return false
	})
	return out, errors.Join(errs...)
}

// perfMetrics are the metrics of a switch's port that others count too, and which of
// its links they are about.
var perfMetrics = map[string]struct {
	metric string
	data   bool
}{
	"PortXmitData": {"port_tx_bytes", true},
	"PortRcvData":  {"port_rx_bytes", true},
	"PortXmitPkts": {"port_tx_packets", false},
	"PortRcvPkts":  {"port_rx_packets", false},
}

// samples are a port's: those of what is sent of the link that leaves it.
func (p PerfPort) samples(source string, links P4Port) ([]results.Sample, error) {
	var out []results.Sample
	for _, name := range slices.Sorted(maps.Keys(p.Values)) {
		if name == "PortSelect" || name == "CounterSelect" {
			continue
		}
		m, known := perfMetrics[name]
		s := results.Sample{Source: source, Metric: "ib_" + snake(name), Of: links.In, Unit: "1", Value: float64(p.Values[name])}
		if strings.Contains(name, "Xmit") {
			s.Of = links.Out
		}
		if known {
			s.Metric = m.metric
		}
		if m.data {
			s.Unit = "B"
			s.Value *= word
		}
		out = append(out, s)
	}
	for _, name := range []string{"PortXmitData", "PortRcvData"} {
		if _, ok := p.Values[name]; !ok {
			return out, fmt.Errorf("perfquery: LID %d port %d: no %s", p.LID, p.Port, name)
		}
	}
	return out, nil
}

var camel = regexp.MustCompile(`([^A-Z])([A-Z])`)

// snake is "PortXmitWait" as "port_xmit_wait".
func snake(s string) string { return strings.ToLower(camel.ReplaceAllString(s, "${1}_${2}")) }
