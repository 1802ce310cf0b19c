package preflight

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// host is a server on this machine with programs of the test's before all others.
func host(t testing.TB, name string, programs map[string]string) Host {
	t.Helper()
	path := "PATH=" + sshdtest.Programs(t, programs) + ":" + os.Getenv("PATH")
	target := sshdtest.Serve(t, &sshd.Server{Env: append(os.Environ(), path)})
	target.Name = name
	c := sshdtest.Dial(t, target)
	return Host{Host: inventory.Host{Name: name, NICs: []inventory.NIC{{Device: "lo", Switch: "tor1", Port: 3}}}, Client: c}
}

// cat prints a text.
func cat(text string) string { return "cat <<'EOF'\n" + text + "\nEOF\n" }

// find is the outcome of a check of a host.
func find(t *testing.T, all []results.Preflight, name, host string) results.Preflight {
	t.Helper()
	i := slices.IndexFunc(all, func(p results.Preflight) bool { return p.Name == name && p.Host == host })
	if i < 0 {
		t.Fatalf("no check %s of %q: %+v", name, host, all)
	}
	return all[i]
}

// Two hosts on this machine, asked for real: the same in all that they say.
func TestSoundHosts(t *testing.T) {
	hosts := []Host{host(t, "h1", nil), host(t, "h2", nil)}
	all, facts := Run(t.Context(), hosts, nil, nil, 0)
	if len(facts) != 2 || facts[0].Host != "h1" || facts[0].CPUs < 1 || facts[0].Memory < 1<<20 || facts[0].Kernel == "" || facts[0].Arch != runtime.GOARCH {
		t.Errorf("%+v", facts)
	}
	for _, c := range Checks() {
		for _, h := range hosts {
			p := find(t, all, c.Name, h.Name)
			t.Log(p)
			if p.Outcome == results.Fail && c.Name != Governor && c.Name != Disk {
				t.Errorf("%s: %+v", c.Name, p)
			}
			if p.Outcome == results.Skipped && p.Why == "" || p.Outcome == results.Pass && p.Found == "" {
				t.Errorf("says nothing: %+v", p)
			}
		}
	}
	for _, name := range []string{Clock, Leftover, Kernel, MTU} { // what every Linux says
		if p := find(t, all, name, "h1"); p.Outcome != results.Pass {
			t.Errorf("%+v", p)
		}
	}
}

// One of three hosts differs in everything that can be looked at, and each difference is
// found, with what was wanted instead.
func TestOddHost(t *testing.T) {
	common := map[string]string{
		"mlnx_qos": cat(qosText), "ethtool": `case $1 in -i) ` + cat(driverText) + `;; esac`,
		"lldpctl": cat(strings.ReplaceAll(lldpText, "ens1f0", "lo")), "uname": "echo Linux 6.1.0 x86_64", "df": cat(diskText),
	}
	odd := map[string]string{
		"date":     `echo $(($(/bin/date +%s) + 30)).$(/bin/date +%N)`,
		"mlnx_qos": cat(strings.ReplaceAll(qosText, "0   0   0   1", "0   0   0   0")),
		"ethtool":  `case $1 in -i) ` + cat(strings.ReplaceAll(driverText, "22.35.1012", "22.31.1014")) + `;; esac`,
		"lldpctl":  cat(strings.ReplaceAll(strings.ReplaceAll(lldpText, "ens1f0", "lo"), "Ethernet3", "Ethernet4")),
		"uname":    "echo Linux 5.15.0 x86_64",
		"ip":       "echo '1: lo: <LOOPBACK,UP,LOWER_UP> mtu 1400 qdisc noqueue state UNKNOWN'",
		"df":       cat(strings.ReplaceAll(diskText, "65742872", "1000")),
		"ls": `for path in "$(cd && pwd -P)" /home/of/another; do
	echo "lrwxrwxrwx 1 lab lab 0 Nov 21 21:00 /proc/4711/exe -> $path/.cache/inabench/agent-0123456789ab (deleted)"; done`,
		"cat": `case $1 in */scaling_governor) echo powersave;; *) exec /bin/cat "$@";; esac`,
	}
	hosts := []Host{host(t, "h1", common), host(t, "h2", odd), host(t, "h3", common)}
	all, _ := Run(t.Context(), hosts, nil, []Skip{{NUMA, "--skip-preflight"}}, 0)
	for _, want := range []results.Preflight{
		{Name: Clock, Found: "", Wanted: "within 1s", Hint: "chronyc"},
		{Name: Leftover, Found: "1 agent of ours still running: pid 4711", Wanted: "none", Hint: "inabench clean"},
		{Name: Disk, Found: "0 MiB free", Wanted: "256 MiB", Hint: "agent-"},
		{Name: Kernel, Found: "Linux 5.15.0 x86_64", Wanted: "Linux 6.1.0 x86_64, as 2 of 3 have", Hint: "kernel"},
		{Name: MTU, Found: "lo 1400", Wanted: "at least 1500", Hint: "ip link set"},
		{Name: PFC, Found: "lo PFC off, trust dscp", Wanted: "lo PFC on priority 3, trust dscp, as 2 of 3 have", Hint: "mlnx_qos"},
		{Name: Cabling, Found: "lo in tor1.lab.example/Ethernet4", Wanted: "lo in tor1/3", Hint: "move the cable"},
		{Name: Drift, Found: "lo mlx5_core 23.10-1.1.9 firmware 22.31.1014 (MT_0000000359)", Wanted: "firmware 22.35.1012", Hint: "firmware"},
		{Name: Governor, Found: "powersave on 1 CPU", Wanted: "performance", Hint: "cpupower"},
	} {
		got := find(t, all, want.Name, "h2")
		if got.Outcome != results.Fail || !strings.HasPrefix(got.Found, want.Found) || !strings.Contains(got.Wanted, want.Wanted) || !strings.Contains(got.Hint, want.Hint) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	}
	if found := find(t, all, Clock, "h2").Found; !regexp.MustCompile(`^(29|30|31)\.\d s ahead of this machine, ± `).MatchString(found) {
		t.Error(found)
	}
	for _, p := range all {
		if p.Outcome == results.Fail && p.Host != "h2" && p.Name != MTU { // lo's own 65536 exceeds what the switch takes
			t.Errorf("%+v", p)
		}
	}
	if p := find(t, all, MTU, "h1"); p.Outcome != results.Fail || !strings.Contains(p.Found, "port Ethernet3 of tor1.lab.example takes frames of 9216 bytes") {
		t.Errorf("%+v", p)
	}
	if p := find(t, all, NUMA, ""); p.Outcome != results.Skipped || p.Why != "--skip-preflight" {
		t.Errorf("%+v", p)
	}
	err := Err(all)
	if err == nil || !strings.Contains(err.Error(), "preflight: clock of host h2: ") || !strings.Contains(err.(*Error).Hint(), "--skip-preflight clock,leftover,disk,kernel,mtu,pfc,cabling,drift,governor") {
		t.Errorf("%v; %v", err, err.(*Error).Hint())
	}
}

// A host that is gone is named, once, and the others are looked at; one that hangs costs
// what it is given.
func TestDeadHost(t *testing.T) {
	t.Parallel() // it waits
	hosts := []Host{host(t, "h1", nil), host(t, "h2", nil), host(t, "h3", map[string]string{"date": "exec sleep 60"})}
	hosts[1].Client.Close()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("too long"))
	defer cancel()
	all, facts := Run(ctx, hosts, []string{Clock}, nil, 0)
	if len(all) != 3 || len(facts) != 1 || find(t, all, Clock, "h1").Outcome != results.Pass {
		t.Errorf("%+v", all)
	}
	for host, says := range map[string]string{"h2": "h2", "h3": "too long"} {
		if p := find(t, all, Reachable, host); p.Outcome != results.Fail || !strings.Contains(p.Found, says) {
			t.Errorf("%+v", p)
		}
	}
}

// TestUnreachable: each host that cannot be asked has an outcome of its own; the error of them all is told once for
// each reason, before what other checks say.
func TestUnreachable(t *testing.T) {
	off := func(name string) results.Preflight {
		return Unreachable(name, &hosts.Error{Host: name, Address: "addr-of-" + name, Kind: hosts.ErrUnreachable, Err: errors.New("off"), Hint: "is it on?"})
	}
	all := []results.Preflight{
		off("h1"), off("h2"), Unreachable("h3", context.Canceled), off("h4"),
		{Name: MTU, Host: "h5", Outcome: results.Fail, Found: "eth0 1500", Wanted: "eth0 9000"},
		{Name: Clock, Host: "h5", Outcome: results.Pass},
	}
	for i, host := range []string{"h1", "h2", "h3", "h4"} {
		if p := all[i]; p.Name != Reachable || p.Host != host || p.Outcome != results.Fail || !strings.HasPrefix(p.Found, "host "+host) || strings.Contains(p.Why, host) {
			t.Errorf("%+v", p)
		}
	}
	want := "preflight: 3 hosts do not answer, h1, h2, h4; host h1 (addr-of-h1): unreachable: off\n" +
		"preflight: host h3: context canceled\n" +
		"preflight: mtu of host h5: eth0 1500, wanted eth0 9000"
	if err := Err(all); err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	if err := Err(all[5:]); err != nil {
		t.Error(err)
	}
}

func TestLink(t *testing.T) {
	a := &answer{host: inventory.Host{Name: "h1", NICs: []inventory.NIC{{Device: "e0", Rate: 100e9}, {Device: "e1", Rate: 25e9}}}}
	for _, test := range []struct {
		state0, speed0, speed1 string
		outcome                results.Outcome
		found, wanted          string
	}{
		{"up", "100000", "25000", results.Pass, "e0 100 Gbit/s, e1 25.0 Gbit/s", ""},
		{"up", "100000", "100000", results.Pass, "e0 100 Gbit/s, e1 100 Gbit/s", ""}, // the inventory may say less
		{"up", "50000", "25000", results.Fail, "e0 50.0 Gbit/s", "e0 100 Gbit/s"},
		{"down", "-1", "25000", results.Fail, "e0 is down", "e0 up"},
		{"unknown", "", "-1", results.Skipped, "", ""},
	} {
		a.parts = map[section]string{{"state", "e0"}: test.state0, {"speed", "e0"}: test.speed0, {"state", "e1"}: "up", {"speed", "e1"}: test.speed1}
		if p := link(a); p.Outcome != test.outcome || p.Found != test.found || p.Wanted != test.wanted {
			t.Errorf("%+v: %+v", test, p)
		}
	}
}

// The GPUs of this machine, where it has some: what is said of them is understood.
func TestGPUsHere(t *testing.T) {
	smi, err := exec.LookPath("nvidia-smi")
	testbedtest.Require(t, "gpu", err)
	ask := func(args ...string) string {
		out, err := exec.Command(smi, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", out)
		return string(out)
	}
	n := strings.Count(ask("-L"), "\nGPU ") + 1
	gpus := parseGPUs(ask("--query-gpu=name,driver_version,vbios_version", "--format=csv,noheader"))
	if len(gpus) == 0 || !regexp.MustCompile(`^\d+\.`).MatchString(gpus[0].driver) || !regexp.MustCompile(`^[0-9A-F]{2}\.`).MatchString(gpus[0].vbios) {
		t.Errorf("%+v", gpus)
	}
	m, err := parseTopology(ask("topo", "-m"))
	if err != nil || len(m.gpus) != n || m.far[[2]string{"GPU0", "GPU0"}] != "X" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestNUMA(t *testing.T) {
	a := &answer{host: inventory.Host{Name: "h1", GPUs: 2, NICs: []inventory.NIC{{Device: "ens1f0"}, {Device: "ens2f0"}}}, parts: map[section]string{
		{"topology", ""}: topoText, {"numa", "ens1f0"}: "0", {"numa", "ens2f0"}: "-1", {"rdma", "ens1f0"}: "mlx5_0", {"rdma", "ens2f0"}: "mlx5_1",
	}}
	if p := numa(a); p.Outcome != results.Fail || p.Found != "the nearest NIC is across the CPU: GPU1 NODE mlx5_1" {
		t.Errorf("%+v", p)
	}
	a.parts[section{"topology", ""}] = strings.ReplaceAll(topoText, "NODE", "PXB")
	if p := numa(a); p.Outcome != results.Pass || p.Found != "ens1f0 on NUMA node 0, GPU0 PIX mlx5_0, GPU1 PXB mlx5_1" {
		t.Errorf("%+v", p)
	}
	a.host.NICs, a.ib = nil, []inventory.NIC{{RDMA: "mlx5_0:1"}, {RDMA: "mlx5_1:1"}} // InfiniBand
	if p := numa(a); p.Outcome != results.Pass || p.Found != "GPU0 PIX mlx5_0, GPU1 PXB mlx5_1" {
		t.Errorf("%+v", p)
	}
	delete(a.parts, section{"topology", ""})
	if p := numa(a); p.Outcome != results.Skipped {
		t.Errorf("%+v", p)
	}
}

// Both kinds of pause at once are a fault of one host, whatever the others have. Two kinds
// of boards may have two kinds of firmware.
func TestFlowAndKinds(t *testing.T) {
	all := []*answer{}
	for i, fw := range []string{"22.35.1012 (MT_0000000359)", "22.35.1012 (MT_0000000359)", "28.1.1 (MT_0000000838)"} {
		all = append(all, &answer{host: inventory.Host{Name: []string{"h1", "h2", "h3"}[i], NICs: []inventory.NIC{{Device: "e0"}}}, parts: map[section]string{
			{"qos", "e0"}: qosText, {"driver", "e0"}: "driver: mlx5_core\nfirmware-version: " + fw,
		}})
	}
	for _, p := range drift(all) {
		if p.Outcome != results.Pass {
			t.Errorf("%+v", p)
		}
	}
	for i, version := range []string{"535.54.03", "535.54.03", "550.90.07"} {
		all[i].host.GPUs = 8
		all[i].parts[section{"gpus", ""}] = strings.Repeat("NVIDIA H100 80GB HBM3, "+version+", 96.00.61.00.01\n", 8)
	}
	if p := drift(all)[4]; p.Outcome != results.Fail || p.Host != "h3" || p.Found != "NVIDIA H100 80GB HBM3 driver 550.90.07 VBIOS 96.00.61.00.01" || !strings.Contains(p.Wanted, "535.54.03") {
		t.Errorf("%+v", p)
	}
	all[1].parts[section{"pause", "e0"}] = pauseText
	got := pfc(all)
	if p := find(t, got, PFC, "h2"); p.Outcome != results.Fail || p.Wanted != "PFC or pauses, not both" || !strings.Contains(p.Hint, "ethtool -A e0") {
		t.Errorf("%+v", p)
	}
	if p := find(t, got, PFC, "h1"); p.Outcome != results.Pass {
		t.Errorf("%+v", p)
	}
}

func BenchmarkRun(b *testing.B) {
	hosts := []Host{host(b, "h1", nil), host(b, "h2", nil), host(b, "h3", nil)}
	for name, checks := range map[string][]string{"all": nil, "emulation": OnEmulation} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Run(b.Context(), hosts, checks, nil, 0)
			}
		})
	}
}

// TestCabling: what a switch calls its port is held against the inventory only where it tells the port.
func TestCabling(t *testing.T) {
	for _, test := range []struct {
		port, descr string // as the neighbour says
		wanted      uint32
		named       map[uint32]string // by the inventory
		outcome     results.Outcome
	}{
		{"Ethernet3", "etp3", 3, nil, results.Pass},
		{"Ethernet4", "etp3", 3, nil, results.Fail},
		{"90:3c:b3:00:00:09", "", 3, nil, results.Pass},
		{"90:3c:b3:00:00:09", "swp4", 3, nil, results.Fail},
		{"Ethernet7/1", "to node 4", 2, nil, results.Pass}, // nothing tells
		{"Eth1/2/1", "", 2, nil, results.Pass},
		{"Ethernet5/1", "", 2, map[uint32]string{2: "Ethernet5/1"}, results.Pass},
		{"1/0", "", 1, map[uint32]string{1: "1/0"}, results.Pass},
		{"90:3c:b3:00:00:09", "1/0", 1, map[uint32]string{1: "1/0"}, results.Pass},
		{"Ethernet0", "", 1, map[uint32]string{1: "Ethernet0", 2: "Ethernet4"}, results.Pass},
		{"2/0", "", 1, map[uint32]string{1: "1/0"}, results.Fail},
		{"Ethernet3", "", 3, map[uint32]string{3: "3/0"}, results.Pass}, // a name of another server's
	} {
		a := &answer{
			host:  inventory.Host{Name: "h1", NICs: []inventory.NIC{{Device: "e0", Switch: "tor1", Port: test.wanted}}},
			lab:   &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Server: inventory.Server{Ports: test.named}}}},
			parts: map[section]string{{"lldp", ""}: `{"lldp": {"interface": {"e0": {"chassis": {"tor1.lab": {}}, "port": {"id": {"value": "` + test.port + `"}, "descr": "` + test.descr + `"}}}}}`},
		}
		if p := cabling(a); p.Outcome != test.outcome {
			t.Errorf("%+v: %+v", test, p)
		}
	}
}
