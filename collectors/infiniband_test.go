package collectors

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ibsimtest"
)

// A real perfquery over a simulated fabric, through an SSH connection: what the switch's
// counters are set to arrives, data four times over.
func TestIBSwitch(t *testing.T) {
	fabric := ibsimtest.Small
	sim := ibsimtest.Start(t, fabric.Net(), fabric.First())
	sim.OpenSM()
	leaf := fabric.LeafGUID(0)
	up, _ := fabric.Uplink(0, 2, 0)
	for name, v := range map[string]uint64{"PortXmitData": 1 << 40, "PortRcvData": 987654321, "PortUnicastXmitPkts": 1 << 33} {
		sim.Console(`PerformanceSet "S-%016x"[%d] PortCountersExtended.%s=%d`, leaf, up, name, v)
	}
	client := connect(t, nil)
	argv := sim.Argv("perfquery")
	c := &IBSwitch{
		Switch: "leaf1", GUID: leaf, Perfquery: argv,
		Ports: map[int]P4Port{1: {In: "h1->leaf1", Out: "leaf1->h1"}, up: {In: "spine3->leaf1", Out: "leaf1->spine3"}},
		Run:   func(ctx context.Context, argv []string) (hosts.Output, error) { return client.Run(ctx, argv, nil) },
	}
	read := func() []results.Sample {
		t.Helper()
		got, err := c.Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := read()
	if v := value(t, got, "port_tx_bytes", "leaf1->spine3"); v.Value != 4<<40 || v.Unit != "B" || v.Source != "switch leaf1" {
		t.Errorf("%+v", v)
	}
	if v := value(t, got, "port_rx_bytes", "spine3->leaf1"); v.Value != 4*987654321 {
		t.Errorf("%+v", v)
	}
	if v := value(t, got, "ib_port_unicast_xmit_pkts", "leaf1->spine3"); v.Value != 1<<33 {
		t.Errorf("%+v", v)
	}
	// Deltas: the tool itself sends at least a packet of 288 bytes each time.
	before, after := value(t, got, "port_rx_packets", "h1->leaf1"), value(t, read(), "port_rx_packets", "h1->leaf1")
	if after.Value <= before.Value {
		t.Errorf("%v and then %v packets", before.Value, after.Value)
	}

	// What goes wrong has a name, and costs only itself.
	for _, x := range []struct {
		name   string
		change func(*IBSwitch)
		want   string
		some   bool
	}{
		{"port", func(c *IBSwitch) { c.Ports = map[int]P4Port{1: c.Ports[1], 60: {}} }, "port 60", true},
		{"guid", func(c *IBSwitch) { c.GUID = 0x99 }, "switch leaf1: perfquery: ", false},
		{"program", func(c *IBSwitch) { c.Perfquery = hosts.Sbin([]string{"inabench-no-such-program"}) }, "install infiniband-diags", false},
	} {
		broken := &IBSwitch{Switch: c.Switch, GUID: c.GUID, Ports: c.Ports, Run: c.Run, Perfquery: c.Perfquery}
		x.change(broken)
		got, err := broken.Collect(t.Context())
		if err == nil || !strings.Contains(err.Error(), x.want) || (len(got) > 0) != x.some {
			t.Errorf("%s: %d samples, %v", x.name, len(got), err)
		}
	}

	// perfquery without -x counts with 32 bits.
	narrow := sim.Output("perfquery", "-G", fmt.Sprintf("%#x", leaf), "1")
	if ports, err := ParsePerfquery(narrow); len(ports) != 0 || err == nil || !strings.Contains(err.Error(), "use perfquery -x") {
		t.Errorf("%v, %v", ports, err)
	}
}

// Root is asked for once, where the management device is root's.
func TestIBSwitchRoot(t *testing.T) {
	var asked []string
	refused := hosts.Output{Stderr: []byte("ibwarn: [7] mad_rpc_open_port: can't open UMAD port (mlx5_0:1)\nperfquery: iberror: failed: Failed to open 'mlx5_0' port '1'\n"), Exit: 255}
	c := &IBSwitch{
		Switch: "s", GUID: 1, From: "mlx5_0:1", Ports: map[int]P4Port{3: {In: "in", Out: "out"}, 12: {}},
		Run: func(_ context.Context, argv []string) (hosts.Output, error) {
			asked = append(asked, "user "+strings.Join(argv[len(hosts.Sbin(nil)):], " "))
			return refused, errors.New("exit status 255")
		},
		RunRoot: func(_ context.Context, argv []string) (hosts.Output, error) {
			asked = append(asked, "root")
			return hosts.Output{Stdout: []byte(perfText(3) + perfText(12))}, nil
		},
	}
	for range 2 {
		if _, err := c.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"user perfquery -x -l -G -C mlx5_0 -P 1 0x0000000000000001 3,12", "root", "root"}; !slices.Equal(asked, want) {
		t.Errorf("%q", asked)
	}
	c.RunRoot, c.root = nil, false
	if _, err := c.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "needs root") {
		t.Error(err)
	}
}

func perfText(port int) string {
	return fmt.Sprintf("# Port extended counters: Lid 1 port %d (CapMask: 0x1300 CapMask2: 0x0000000)\n"+
		"PortSelect:......................%d\nCounterSelect:...................0x0000\nPortXmitData:....................18446744073709551615\n"+
		"PortRcvData:.....................2\nPortUnicastXmitPkts:.............3\nCounterSelect2:..................0x00\nVL15Dropped:.....................4\nPortXmitWait:....................5\n", port, port)
}

func TestParsePerfquery(t *testing.T) {
	for _, x := range []struct {
		name, text string
		ports      []int
		err        string
	}{
		{"two ports", perfText(1) + perfText(37), []int{1, 37}, ""},
		{"older heading", strings.Replace(perfText(35), "extended counters: Lid 1 port 35 (CapMask: 0x1300 CapMask2: 0x0000000)", "counters: Lid 214 port 35", 1), []int{35}, ""},
		{"nothing", "", nil, ""},
		{"half a line", perfText(1) + "PortXmit", []int{1}, "line 10"},
		{"no port", "PortXmitData:....................1\n", nil, "a counter of no port"},
		{"not a number", perfText(1) + "PortX:....N/A\n", []int{1}, "is no counter"},
		{"32 bits", "# Port counters: Lid 1 port 37 (CapMask: 0x1300)\nPortXmitData:....................131112\n", nil, "use perfquery -x"},
	} {
		t.Run(x.name, func(t *testing.T) {
			ports, err := ParsePerfquery(x.text)
			var got []int
			for _, p := range ports {
				got = append(got, p.Port)
			}
			if !slices.Equal(got, x.ports) || (err != nil) != (x.err != "") || err != nil && !strings.Contains(err.Error(), x.err) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	if s := snake("VL15Dropped"); s != "vl15_dropped" {
		t.Error(s)
	}
}

func FuzzParsePerfquery(f *testing.F) {
	f.Add(perfText(1))
	f.Add("# Port counters: Lid 1 port 37 (CapMask: 0x1300)\nPortXmitData:....................131112\n")
	f.Fuzz(func(t *testing.T, text string) {
		ports, _ := ParsePerfquery(text)
		for _, p := range ports {
			for _, s := range must(p.samples("x", P4Port{"in", "out"})) {
				if s.Metric == "" || s.Of == "" || s.Value < 0 {
					t.Fatalf("%+v", s)
				}
			}
		}
	})
}

func must(s []results.Sample, _ error) []results.Sample { return s }

// sysfs is a host's files, relative to the port's folder of mlx5_0.
type sysfs map[string]string

func (s sysfs) read(_ context.Context, names ...string) []hosts.File {
	var out []hosts.File
	for _, name := range names {
		text, ok := s[strings.TrimPrefix(strings.TrimPrefix(name, "/sys/class/infiniband/mlx5_0/"), "ports/1/")]
		switch {
		case !ok:
			out = append(out, hosts.File{Err: fmt.Errorf("open %s: %w", name, fs.ErrNotExist)})
		case text == "EINVAL":
			out = append(out, hosts.File{Err: fmt.Errorf("read %s: %w", name, syscall.EINVAL)})
		default:
			out = append(out, hosts.File{Data: []byte(text)})
		}
	}
	return out
}

// All the shapes that sysfs's counters have.
func TestIB(t *testing.T) {
	whole := sysfs{
		"node_guid": "9803:9b03:0020:0010\n", "counters/port_xmit_data": "1099511627776\n", "counters/port_rcv_data": "25\n",
		"counters/port_xmit_packets": "7\n", "counters/port_rcv_packets": "8\n", "counters/unicast_xmit_packets": "6\n",
		"counters/port_xmit_wait": "4242\n", "counters/VL15_dropped": "1\n", "counters/port_rcv_errors": "2\n",
		"hw_counters/lifespan": "10\n", "hw_counters/out_of_sequence": "3\n",
	}
	with := func(change sysfs) sysfs {
		s := maps.Clone(whole)
		for k, v := range change {
			if v == "" {
				delete(s, k)
			} else {
				s[k] = v
			}
		}
		return s
	}
	const out, in = "h1->leaf1", "leaf1->h1"
	for _, x := range []struct {
		name    string
		files   sysfs
		metrics map[string]float64 // that must be there; -1: must not
		err     string
		noData  bool
	}{
		{"whole", whole, map[string]float64{
			"nic_tx_bytes of " + out: 4 << 40, "nic_rx_bytes of " + in: 100, "nic_tx_packets of " + out: 7, "ib_port_xmit_wait of " + out: 4242,
			"ib_VL15_dropped of " + in: 1, "nic_rx_errors of " + in: 2, "rdma_lifespan of " + in: 0.01, "rdma_out_of_sequence of " + in: 3,
			"nic_index of " + out: 0x39b0300200010, "ib_symbol_error of " + in: -1,
		}, "", false},
		{"one cannot be read", with(sysfs{"counters/VL15_dropped": "EINVAL"}), map[string]float64{"nic_tx_bytes of " + out: 4 << 40, "ib_VL15_dropped of " + in: -1}, "VL15_dropped: read", false},
		{"one is text", with(sysfs{"hw_counters/out_of_sequence": "many"}), map[string]float64{"nic_tx_bytes of " + out: 4 << 40}, `is "many"`, false},
		{"no PMA", with(sysfs{"counters/VL15_dropped": "N/A (no PMA)\n"}), map[string]float64{"nic_tx_bytes of " + out: 4 << 40, "ib_VL15_dropped of " + in: -1}, "", false},
		{"32 bits", with(sysfs{"counters/unicast_xmit_packets": "", "counters/port_xmit_data": "4294967295"}), map[string]float64{"nic_tx_bytes of " + out: -1, "nic_rx_bytes of " + in: -1, "nic_tx_packets of " + out: 7}, "counts data with 32 bits", false},
		{"64 bits without unicast", with(sysfs{"counters/unicast_xmit_packets": ""}), map[string]float64{"nic_tx_bytes of " + out: 4 << 40}, "", false},
		{"another adapter", with(sysfs{"node_guid": "9803:9b03:0020:0020"}), nil, "it is another adapter", false},
		{"no device", sysfs{}, nil, "no RDMA device mlx5_0", false},
		{"no counters", sysfs{"node_guid": "9803:9b03:0020:0010"}, nil, "no data", true},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, err := newIB("h1", []IBPort{{RDMA: "mlx5_0:1", GUID: 0x98039b0300200010, Out: out, In: in}}, x.files.read)
			if err != nil {
				t.Fatal(err)
			}
			samples, err := c.Collect(t.Context())
			if (err != nil) != (x.err != "") || err != nil && !strings.Contains(err.Error(), x.err) || errors.Is(err, ErrNoData) != x.noData {
				t.Errorf("error %v", err)
			}
			got := map[string]float64{}
			for _, s := range samples {
				got[s.Metric+" of "+s.Of] = s.Value
			}
			if x.metrics == nil && len(got) > 0 {
				t.Errorf("%v", got)
			}
			for name, want := range x.metrics {
				if v, ok := got[name]; ok != (want >= 0) || ok && v != want {
					t.Errorf("%s is %v, want %v", name, v, want)
				}
			}
		})
	}
	for _, bad := range []string{"", "mlx5_0", "mlx5_0:0", "../x:1", "mlx5_0:1/..", "a b:1"} {
		if _, err := newIB("h1", []IBPort{{RDMA: bad}}, nil); err == nil {
			t.Errorf("%q", bad)
		}
	}
}
