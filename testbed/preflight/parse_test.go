package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Outputs of tools, made up after their documents where no machine had the hardware; the
// source stands beside each.
const (
	// ethtool(8) and kernel Documentation/networking/device_drivers/ethernet/mellanox; the
	// board's PSID follows the firmware.
	driverText = `driver: mlx5_core
version: 23.10-1.1.9
firmware-version: 22.35.1012 (MT_0000000359)
expansion-rom-version: 
bus-info: 0000:17:00.0
supports-statistics: yes
`
	// Mellanox/mlnx-tools, python/mlnx_qos, its show functions.
	qosText = `DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
	prio:0 dscp:07,06,05,04,03,02,01,00,
	prio:3 dscp:31,30,29,28,27,26,25,24,
default priority:
Receive buffer size (bytes): 19872,243072,0,0,0,0,0,0,total_size=262144
Cable len: 7
PFC configuration:
	priority    0   1   2   3   4   5   6   7
	enabled     0   0   0   1   0   0   0   0   
	buffer      0   0   0   1   0   0   0   0   
tc: 0 ratelimit: unlimited, tsa: vendor
	 priority:  1
`
	// dcb-pfc(8) of iproute2, its example.
	dcbText = `pfc-cap 8 macsec-bypass off delay 4096
prio-pfc 0:off 1:off 2:off 3:off 4:off 5:off 6:on 7:on
`
	// ethtool(8) -a.
	pauseText = `Pause parameters for ens1f0:
Autonegotiate:	off
RX:		on
TX:		on
`
	// lldpd's lldpctl(8), -f json; one neighbour is an object, several are a list.
	lldpText = `{"lldp": {"interface": [
  {"ens1f0": {"via": "LLDP", "rid": "1", "age": "0 day, 01:02:03",
    "chassis": {"tor1.lab.example": {"id": {"type": "mac", "value": "90:3c:b3:00:00:01"}, "descr": "SONiC", "mgmt-ip": "10.0.1.1",
      "capability": [{"type": "Bridge", "enabled": true}]}},
    "port": {"id": {"type": "local", "value": "Ethernet3"}, "descr": "etp3", "mfs": "9216", "ttl": "120"}}},
  {"ens1f1": {"via": "LLDP", "chassis": {"id": {"type": "mac", "value": "90:3c:b3:00:00:02"}},
    "port": {"id": {"type": "mac", "value": "90:3c:b3:00:00:09"}, "ttl": "120"}}}]}}`
	// docs.nvidia.com, nvidia-smi topo -m, and the listings in NCCL's issues.
	topoText = "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n" +
		"GPU0\t X \tNV18\tPIX\tSYS\t0-55,112-167\t0\t\tN/A\n" +
		"GPU1\tNV18\t X \tSYS\tNODE\t56-111\t1\t\tN/A\n" +
		"NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t\n" +
		"NIC1\tSYS\tNODE\tSYS\t X \t\t\t\t\n\n" +
		"Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n\n" +
		"NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
	diskText = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n/dev/my disk    264212084 29758392  65742872      32% /home/a b\n"
)

func TestParsers(t *testing.T) {
	d, err := parseDriver(driverText)
	if err != nil || d != (driver{"mlx5_core", "23.10-1.1.9", "22.35.1012 (MT_0000000359)", "0000:17:00.0"}) || d.kind() != "mlx5_core MT_0000000359" {
		t.Errorf("%+v, %v", d, err)
	}
	var f flow
	for _, err := range []error{parseQoS(qosText, &f), parsePause(pauseText, &f), parseECN("roce_np/enable/3 1\nroce_np/enable/4 0\nroce_rp/enable/3 0\n", &f)} {
		if err != nil {
			t.Error(err)
		}
	}
	if got, want := f.String(), "PFC on priority 3, trust dscp, pause rx on tx on, ECN np 3, rp off"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f = flow{}
	if err := parseDCB(dcbText, &f); err != nil || f.String() != "PFC on priority 6,7" {
		t.Errorf("%v, %v", f, err)
	}
	n, err := ParseLLDP(lldpText)
	want := map[string]Neighbour{"ens1f0": {System: "tor1.lab.example", Port: "Ethernet3", Descr: "etp3", MFS: 9216}, "ens1f1": {Port: "90:3c:b3:00:00:09"}}
	if err != nil || !maps.Equal(n, want) {
		t.Errorf("%+v, %v", n, err)
	}
	one, err := ParseLLDP(`{"lldp": {"interface": {"eth0": {"chassis": {"spine1": {}}, "port": {"id": {"value": "7"}}}}}}`)
	if err != nil || one["eth0"] != (Neighbour{System: "spine1", Port: "7"}) {
		t.Errorf("%+v, %v", one, err)
	}
	// A small switch that sends no name for itself.
	const nameless = `{"lldp": {"interface": {"eth0": {"via": "LLDP", "rid": "1", "chassis": {"id": {"type": "mac", "value": "28:80:88:00:00:01"}, "mgmt-ip": "192.168.178.21", "mgmt-iface": "51"},
		"port": {"id": {"type": "local", "value": "g17"}, "ttl": "120"}}}}}`
	one, err = ParseLLDP(nameless)
	if err != nil || one["eth0"] != (Neighbour{Port: "g17"}) {
		t.Errorf("%+v, %v", one, err)
	}
	if none, err := ParseLLDP(`{"lldp": {}}`); err != nil || len(none) != 0 {
		t.Errorf("%+v, %v", none, err)
	}
	m, err := parseTopology(topoText)
	if err != nil || !slices.Equal(m.gpus, []string{"GPU0", "GPU1"}) {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, x := range [][3]string{{"GPU0", "mlx5_0", "PIX"}, {"GPU1", "mlx5_1", "NODE"}} {
		if nic, d := m.nearest(x[0], []string{"mlx5_0", "mlx5_1"}); nic != x[1] || d != x[2] {
			t.Errorf("%s: %s %s", x[0], nic, d)
		}
	}
	if free, err := parseDisk(diskText); err != nil || free != 65742872<<10 {
		t.Errorf("%d, %v", free, err)
	}
	for text, want := range map[string]int{"2: eth0@if3: <BROADCAST,UP> mtu 9000 qdisc mq state UP mode DEFAULT\n    link/ether 02:00:00:00:00:01": 9000, "1500": 1500} {
		if v, err := parseMTU(text); err != nil || v != want {
			t.Errorf("%s: %d, %v", text, v, err)
		}
	}
	if got := parseGovernors("performance\npowersave\nperformance\n"); got["performance"] != 2 || got["powersave"] != 1 {
		t.Error(got)
	}
	for text, want := range map[string]string{"1763759173.250000000": "1.76375917325e+09 true", "1763759173.%N": "1.763759173e+09 false", "1763759173": "1.763759173e+09 false"} {
		v, exact, err := parseTime(text)
		if got := fmt.Sprint(v, exact); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	bad := map[string]error{}
	_, bad["driver"] = parseDriver("Cannot get driver information: Operation not supported")
	_, bad["mtu"] = parseMTU("eth0 mtu")
	_, bad["disk"] = parseDisk("df: no such file")
	_, _, bad["time"] = parseTime("Sat Nov 21")
	_, bad["topology"] = parseTopology("Failed to initialize NVML")
	_, bad["lldp"] = ParseLLDP("[WARN/control] unable to connect")
	bad["qos"], bad["dcb"], bad["pause"] = parseQoS("PFC configuration:\n\tenabled 1 1", &f), parseDCB("prio-pfc 9:on", &f), parsePause("", &f)
	bad["ecn"] = parseECN("roce_np/enable/3", &f)
	for name, err := range bad {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Whatever a host prints: no panic, and no error without a word of whose it is.
func FuzzParsers(f *testing.F) {
	for _, text := range []string{driverText, qosText, dcbText, pauseText, lldpText, topoText, diskText, "roce_np/enable/3 1", "1763759173.250000000"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseDriver(text); (err == nil) != (d.name != "") {
			t.Error(d, err)
		}
		for _, parse := range []func(string, *flow) error{parseQoS, parseDCB, parsePause, parseECN} {
			var x flow
			if err := parse(text, &x); err != nil && (x.pfc != "" || x.rx != "" || x.ecn != "") {
				t.Error(x, err)
			}
			if x.pfc != "" && (len(x.pfc) != 8 || strings.Trim(x.pfc, "01") != "") {
				t.Error(x)
			}
		}
		if n, err := ParseLLDP(text); err != nil && n != nil {
			t.Error(n, err)
		}
		if m, err := parseTopology(text); err == nil {
			m.nearest(m.gpus[0], []string{"mlx5_0"})
		}
		if v, err := parseDisk(text); err == nil && v < 0 {
			t.Error(v)
		}
		if v, _, err := parseTime(text); err == nil && v-v != 0 {
			t.Error(v)
		}
		if v, err := parseMTU(text); err == nil && v < 0 {
			t.Error(v)
		}
		if cpus, _, memory := parseMachine(text); cpus < 0 || memory < 0 {
			t.Error(cpus, memory)
		}
		parseGovernors(text)
		for _, g := range parseGPUs(text) {
			if g.name == "" {
				t.Error(g)
			}
		}
		for at := range parseAnswer(text) {
			if at.name == "" {
				t.Error("a part without a name")
			}
		}
	})
}
