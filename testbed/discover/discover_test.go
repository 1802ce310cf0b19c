package discover

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/preflight"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// machine is what the script prints of one, with what lldpctl printed in testdata.
func machine(t testing.TB, name, lldp, rest string) *Machine {
	t.Helper()
	text := ""
	if lldp != "" {
		b, err := os.ReadFile("testdata/" + lldp)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	m, err := Parse("\n@@ name\n" + name + "\n\n@@ lldp\n" + text + "\n" + rest + "\n@@ end\n")
	if err != nil {
		t.Fatal(err)
	}
	m.Address = name + ":22"
	return m
}

const node1 = `
@@ gpu
NVIDIA H200
NVIDIA H200
@@ addr
1: lo    inet 127.0.0.1/8 scope host lo\       valid_lft forever preferred_lft forever
2: ens1f0    inet6 fe80::1/64 scope link \       valid_lft forever preferred_lft forever
2: ens1f0    inet6 2001:db8::1/64 scope global \       valid_lft forever preferred_lft forever
2: ens1f0    inet 10.1.0.1/24 brd 10.1.0.255 scope global ens1f0\       valid_lft forever preferred_lft forever
@@ net
ens1f0 type 1
ens1f0 operstate up
ens1f0 speed 100000
ens1f0 device/numa_node 0
ens1f0 rdma mlx5_0 0
ens1f1 type 1
ens1f1 operstate up
ens1f1 speed 25000
ens1f1 device/numa_node 1
eno1 type 1
eno1 operstate up
eno1 speed 1000
ib0 type 32
ib0 operstate down
ib0 speed
@@ rdma
mlx5_0:1 guid 0c42:a103:0000:0010
mlx5_0:1 link_layer Ethernet
mlx5_0:1 state 4: ACTIVE
mlx5_0:1 rate 100 Gb/sec (4X EDR)
mlx5_2:1 guid 0c42:a103:0000:0020
mlx5_2:1 link_layer InfiniBand
mlx5_2:1 state 4: ACTIVE
mlx5_2:1 rate 200 Gb/sec (4X HDR)
`

const tor1 = `
@@ net
Ethernet12 operstate up
Ethernet12 speed 100000
Ethernet48 operstate up
Ethernet48 speed 400000
`

// neighbour is one entry of lldpctl.
func neighbours(entries ...[3]string) string {
	var list []string
	for _, e := range entries {
		list = append(list, `{"`+e[0]+`": {"chassis": {"`+e[1]+`": {}}, "port": {"id": {"type": "ifname", "value": "`+e[2]+`"}}}}`)
	}
	return "@@ lldp\n" + `{"lldp": {"interface": [` + strings.Join(list, ",") + `]}}` + "\n"
}

// Two hosts of which one has what lldpd really said, with a switch that says what it is
// cabled to, and what was guessed.
func TestDraft(t *testing.T) {
	one := machine(t, "node1.lab", "lldpctl.json", node1)
	two := machine(t, "node2", "", neighbours([3]string{"eth0", "tor1.lab", "etp4"}, [3]string{"eth1", "node1", "ens9"})+"@@ net\neth0 operstate up\n")
	sw := machine(t, "tor1", "", neighbours([3]string{"Ethernet48", "spine1", "Ethernet4"}, [3]string{"Ethernet12", "node1", "ens1f0"})+tor1)
	sw.Switch = true
	dumb := machine(t, "node3", "", "@@ rdma\nmlx5_0:1 link_layer InfiniBand\nmlx5_0:1 state 4: ACTIVE\n")
	inv, notes := Draft([]*Machine{two, one, sw, dumb}, Options{Name: "lab"})
	text := inventory.Format(inv, notes)
	golden.Compare(t, "draft.toml", string(text))
	back, err := inventory.Parse("draft.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	if d := inventory.Diff(inv, back); len(d) > 0 {
		t.Error(d)
	}
}

// TestBlanks checks that hosts without lldpd are drafted with their fastest devices and ports to fill in.
func TestBlanks(t *testing.T) {
	const net = "@@ addr\n2: ens1f0 inet 10.1.0.%s/24\n@@ net\neno1 operstate up\neno1 speed 1000\nens1f0 operstate up\nens1f0 speed 100000\nens1f1 operstate down\nens1f1 speed 100000\n"
	var machines []*Machine
	for _, n := range []string{"1", "2", "3"} {
		machines = append(machines, machine(t, "node"+n, "", strings.ReplaceAll(net, "%s", n)))
	}
	machines = append(machines, machine(t, "vm", "", ""))
	inv, notes := Draft(machines, Options{Name: "lab"})
	text := string(inventory.Format(inv, notes))
	golden.Compare(t, "blanks.toml", text)
	_, err := inventory.Parse("blanks.toml", []byte(text))
	if err == nil || strings.Count(err.Error(), "which port of which switch") != 2 || !strings.Contains(err.Error(), `write it like "tor1/3"`) {
		t.Errorf("of what is blank: %v", err)
	}
	const blank = `nic.port = "?"`
	filled := strings.Replace(strings.Replace(text, blank, `nic.port = "tor1/[1-3]"`, 1), blank, `nic.port = "tor1/4"`, 1)
	back, err := inventory.Parse("blanks.toml", []byte(filled))
	if err != nil || len(back.Hosts) != 4 || back.Hosts[2].NICs[0].Port != 3 {
		t.Errorf("filled in: %v\n%s", err, filled)
	}
}

// connect logs in to this machine, where programs come before all others.
func connect(t *testing.T, programs map[string]string) hosts.Host {
	t.Helper()
	path := "PATH=" + sshdtest.Programs(t, programs) + ":/usr/bin:/bin"
	return sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{Env: []string{path}}))
}

// The script on this machine, over SSH.
func TestAsk(t *testing.T) {
	sample, err := filepath.Abs("testdata/lldpctl.json")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Ask(t.Context(), connect(t, map[string]string{
		"lldpctl":    "[ \"$*\" = '-f json' ] && cat '" + sample + "'",
		"nvidia-smi": "echo NVIDIA H100 80GB HBM3",
	}))
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	if host, _, _ = strings.Cut(host, "."); m.Name != host || m.GPUs != 1 || m.GPUModel != "H100 80GB HBM3" || len(m.Neighbours) != 2 {
		t.Errorf("%+v", m)
	}
}

// TestAskWithoutGPUs: what nvidia-smi says that does not work is no GPU.
func TestAskWithoutGPUs(t *testing.T) {
	const mismatch = "Failed to initialize NVML: Driver/library version mismatch"
	for smi, fault := range map[string]string{
		"":                                   "",
		"echo No devices were found; exit 6": "",
		"echo '" + mismatch + "'; echo NVML library version: 580.159; exit 18":                                     mismatch,
		"echo NVIDIA H200; echo 'Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost'; exit 15": "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost",
		"exit 1": "it says nothing",
	} {
		programs := map[string]string{}
		if smi != "" {
			programs["nvidia-smi"] = smi
		}
		m, err := Ask(t.Context(), connect(t, programs))
		if err != nil {
			t.Fatal(err)
		}
		if m.GPUs != 0 || m.GPUModel != "" || m.GPUFault != fault {
			t.Errorf("%s: %d GPUs, %q, %q; want %q", smi, m.GPUs, m.GPUModel, m.GPUFault, fault)
		}
		_, notes := Draft([]*Machine{m}, Options{Name: "lab"})
		if said := strings.Contains(strings.Join(notes.Head, "\n"), "nvidia-smi does not work there: "+fault); said != (fault != "") {
			t.Errorf("%s: %q", smi, notes.Head)
		}
	}
}

// TestVLAN: a VLAN is no device of its own, and its address is told.
func TestVLAN(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ens1f0/device/numa_node": "0", "ens1f0/speed": "100000", "ens1f0/operstate": "up", "ens1f0.100/speed": "100000", "ens1f0.100/operstate": "up",
		"eth0/speed": "10000", "eth0/operstate": "up", "eth0.7/speed": "10000", "vlan8/speed": "10000", "bond0/speed": "10000",
	} {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text+"\n"), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	ip := sshdtest.Programs(t, map[string]string{"ip": "echo '5: ens1f0.100    inet 10.1.0.1/24 brd 10.1.0.255 scope global ens1f0.100'"})
	cmd := exec.Command("sh", "-s")
	cmd.Env, cmd.Stdin = []string{"PATH=" + ip + ":/usr/bin:/bin"}, strings.NewReader(strings.ReplaceAll(script, "/sys/class/net", dir))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(string(out))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Devices) != 2 || m.Devices[0].Name != "ens1f0" || m.Devices[1].Name != "eth0" || len(m.VLANs) != 1 || m.VLANs[0] != "ens1f0.100 has 10.1.0.1/24" {
		t.Errorf("%+v, %q", m.Devices, m.VLANs)
	}
	inv, notes := Draft([]*Machine{m}, Options{Name: "lab"})
	if len(inv.Hosts[0].NICs) != 1 || !strings.Contains(strings.Join(notes.Head, "\n"), ": ens1f0.100 has 10.1.0.1/24: of a VLAN") {
		t.Errorf("%+v, %q", inv.Hosts, notes.Head)
	}
}

// The GPUs of this machine, where it has some.
func TestAskGPUs(t *testing.T) {
	smi, err := exec.LookPath("nvidia-smi")
	testbedtest.Require(t, "gpu", err)
	list, err := exec.Command(smi, "-L").Output()
	if err != nil {
		t.Fatal(err)
	}
	m, err := Ask(t.Context(), connect(t, map[string]string{"nvidia-smi": "exec " + smi + ` "$@"`}))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(list), "GPU "); m.GPUs != n || m.GPUModel == "" || !strings.Contains(string(list), m.GPUModel) {
		t.Errorf("%d GPUs, %q, of\n%s", m.GPUs, m.GPUModel, list)
	}
	t.Logf("%+v", m)
}

// Facts, one by one.
func TestParse(t *testing.T) {
	m := machine(t, "node1.lab", "lldpctl.json", node1)
	if m.Name != "node1" || m.GPUs != 2 || m.GPUModel != "H200" || len(m.Devices) != 4 || len(m.RDMA) != 2 {
		t.Errorf("%+v", m)
	}
	if d := m.Devices[0]; d.Rate != 100e9 || d.Address.String() != "10.1.0.1/24" || d.RDMA != "mlx5_0:1" || d.NUMA != 0 || !d.Up || d.IB {
		t.Errorf("%+v", d)
	}
	if d := m.Devices[3]; !d.IB || d.Up || d.Rate != 0 {
		t.Errorf("%+v", d)
	}
	if r := m.RDMA[1]; !r.InfiniBand || !r.Active || r.Rate != 200e9 || r.GUID != 0x0c42a10300000020 {
		t.Errorf("%+v", r)
	}
	if n := m.Neighbours["ens1f1"]; n.System != "tor1" || portName(n) != "Ethernet16" {
		t.Errorf("%+v", n)
	}
	if _, err := Parse("@@ name\nx\n"); err == nil {
		t.Error("a script that was cut short")
	}
}

// What is written by others stays in its place: in names, comments and strings.
func TestHostile(t *testing.T) {
	bad := "tor1\u202e]\\\"\\n[[host]]\\nname = \\\"x\\\""
	m := machine(t, "$(reboot)'\"", "", neighbours([3]string{"eth0", bad, "a;b\\n1"}, [3]string{"eth1", bad, "a;b\\n1/1"})+"@@ net\neth0 operstate up\neth0 speed 1000\neth1 speed 1000\n")
	inv, notes := Draft([]*Machine{m}, Options{Name: "x\"\n[[link]]"})
	text := inventory.Format(inv, notes)
	back, err := inventory.Parse("x", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(back.Hosts) != 1 || len(back.Hosts[0].NICs) != 2 || len(back.Links) != 0 || back.Hosts[0].Name != "reboot" {
		t.Errorf("%s", text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(node1 + "@@ end\n")
	f.Add(neighbours([3]string{"eth0", "tor1", "1"}) + "@@ name\nx\n@@ net\neth0 speed 1000\n@@ end\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if (m == nil) != (err != nil) {
			t.Fatal(m, err)
		}
		if m == nil {
			return
		}
		inv, notes := Draft([]*Machine{m}, Options{Name: "x"})
		if len(inv.Hosts) == 0 {
			return
		}
		// Addresses may be twice or strange, and hosts cut off; what is written is TOML of ours.
		if _, err := inventory.Parse("x", inventory.Format(inv, notes)); err != nil && strings.Contains(err.Error(), "unknown key") {
			t.Fatal(err)
		}
	})
}

// TestDraftFits: cables that are drafted by LLDP are those that preflight looks for, whatever switches call their ports.
func TestDraftFits(t *testing.T) {
	for _, ports := range [][2]string{
		{"Ethernet3", "Ethernet4"}, {"Ethernet1/7", "Ethernet1/8"}, {"Ethernet1/1", "Ethernet7/1"}, {"Eth1/2/1", "Eth1/3/1"},
		{"swp3", "90:3c:b3:00:00:01"}, {"swp0", "aa:bb:cc:dd:ee:f1"}, {"Ethernet1/9", "Management9"},
	} {
		lldp := neighbours([3]string{"eth0", "tor1", ports[0]}, [3]string{"eth1", "tor1", ports[1]})
		inv, _ := Draft([]*Machine{machine(t, "node1", "", lldp+"@@ net\neth0 speed 1000\neth1 speed 1000\n")}, Options{Name: "lab"})
		if len(inv.Hosts) != 1 || len(inv.Hosts[0].NICs) != 2 || inv.Hosts[0].NICs[0].Port == inv.Hosts[0].NICs[1].Port {
			t.Fatalf("%q: %+v", ports, inv.Hosts)
		}
		client := connect(t, map[string]string{"lldpctl": "cat <<'EOF'\n" + strings.TrimPrefix(lldp, "@@ lldp\n") + "EOF"})
		all, _ := preflight.Run(t.Context(), []preflight.Host{{Host: inv.Hosts[0], Client: client, Lab: inv}}, []string{preflight.Cabling}, nil, 0)
		if len(all) != 1 || all[0].Outcome != results.Pass {
			t.Errorf("%q: %+v", ports, all)
		}
	}
}
