package preflight

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/ssh"
)

// What this machine has is what a search on its PATH finds.
func TestPartsHere(t *testing.T) {
	got, err := PartsHere(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(here) {
		t.Errorf("%d parts, want %d", len(got), len(here))
	}
	for _, f := range got {
		t.Logf("%+v", f)
		i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == f.Part })
		if _, err := exec.LookPath(parts[i].program[0]); (err == nil) && !f.Present {
			t.Errorf("%s is there, and not found", f.Part)
		}
		if f.Present != (f.Path != "") || !f.Present && f.Fix == "" || f.For == "" {
			t.Errorf("%+v", f)
		}
	}
}

// What programs print of their version; the first ones are real (Debian 12).
func TestParseParts(t *testing.T) {
	names := []string{"ethtool", "iperf3", "infiniband-diags", "opensm", "nvidia-smi", "PFC tools", "nccl-tests", "dcgmi"}
	text := "\n@@ ethtool.0\n/usr/sbin/ethtool\nethtool version 6.1\nstatus 0\n" +
		"\n@@ iperf3.0\n/usr/bin/iperf3\niperf 3.12 (cJSON 1.7.15)\nLinux h1 6.1.0\nstatus 0\n" +
		"\n@@ infiniband-diags.0\n/usr/sbin/perfquery\nperfquery BUILD VERSION: 44.0\nstatus 255\n" +
		"\n@@ opensm.0\n/usr/sbin/opensm\n-------\nOpenSM 3.3.23\nCommand Line Arguments:\nstatus 0\n" +
		"\n@@ nvidia-smi.0\n/usr/bin/nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\nstatus 9\n" +
		"\n@@ PFC_tools.0\n\n@@ PFC_tools.1\n/usr/sbin/dcb\n" +
		"\n@@ nccl-tests.0\n\n@@ dcgmi.0\n/usr/bin/dcgmi\n\nversion: 3.3.5\nstatus 0\n\n@@ end\n"
	got, err := parseParts("h1", text, names)
	if err != nil {
		t.Fatal(err)
	}
	var short []string
	for _, f := range got {
		short = append(short, fmt.Sprintf("%s %t %s %s%.12s", f.Part, f.Present, f.Version, f.Path, f.Problem))
		if (f.Fix != "") != (!f.Present || f.Problem != "") || f.Host != "h1" {
			t.Errorf("%+v", f)
		}
	}
	want := []string{
		"iperf3 true 3.12 /usr/bin/iperf3", "nccl-tests false  ", "nvidia-smi true  /usr/bin/nvidia-smiNVIDIA-SMI h",
		"dcgmi true 3.3.5 /usr/bin/dcgmi", "infiniband-diags true 44.0 /usr/sbin/perfquery", "opensm true 3.3.23 /usr/sbin/opensm",
		"ethtool true 6.1 /usr/sbin/ethtool", "PFC tools true  /usr/sbin/dcb",
	}
	if !slices.Equal(short, want) {
		t.Errorf("%q\nwant %q", short, want)
	}
	for said, want := range map[string]string{
		"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159\nstatus 18\n": "|Failed to initialize NVML: Driver/library version mismatch",
		"| NVIDIA-SMI 580.159    Driver Version: 580.159    CUDA Version: 13.0 |\nstatus 0\n":                    "580.159|",
	} {
		got, err := parseParts("h1", "\n@@ nvidia-smi.0\n/usr/bin/nvidia-smi\n"+said+"\n@@ end\n", []string{"nvidia-smi"})
		if err != nil || len(got) != 1 || got[0].Version+"|"+got[0].Problem != want || (got[0].Fix != "") != (got[0].Problem != "") {
			t.Errorf("%q: %+v, %v", said, got, err)
		}
	}
	if _, err := parseParts("h1", strings.TrimSuffix(text, "@@ end\n"), names); err == nil {
		t.Error("an answer that was cut off is taken")
	}
}

// wayTo is the way to a host that a client is connected to.
func wayTo(c *ssh.Client) reach.Way {
	t := c.Target()
	s := inventory.SSH{Address: t.Address, User: t.User, Config: "none"}
	if len(t.Keys) > 0 {
		s.Key = t.Keys[0]
	}
	if len(t.KnownHosts) > 0 {
		s.KnownHosts = t.KnownHosts[0]
	}
	return reach.By(&inventory.Inventory{}, t.Name, s)
}

// A host that is not there is named and costs no more than its timeout; the others say
// what they have.
func TestDiagnose(t *testing.T) {
	t.Parallel() // it waits
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "q1", Kind: inventory.Quantum}}}
	var ways []reach.Way
	for _, name := range []string{"h1", "h2", "h3"} {
		h := host(t, name, map[string]string{"iperf3": "echo iperf 3.99", "sharp_hello": "exit 0", "nvidia-smi": "sleep 60"})
		h.GPUs = map[string]int{"h1": 0, "h2": 0, "h3": 1}[name]
		inv.Hosts = append(inv.Hosts, h.Host)
		ways = append(ways, wayTo(h.Client.(*ssh.Client)))
	}
	ways[1].SSH.Address = "127.0.0.1:1" // nobody
	began := time.Now()
	got := Diagnose(t.Context(), inv, ways, 0, 5*time.Second)
	if took := time.Since(began); took > 50*time.Second { // nvidia-smi of h3 takes 60 s
		t.Errorf("it took %v", took)
	}
	if len(got) != 3 || got[0].Error != "" || !strings.Contains(got[1].Error, "host h2") || !strings.Contains(got[2].Error, "no answer within 5s") {
		t.Fatalf("%+v", got)
	}
	i := slices.IndexFunc(got[0].Parts, func(f Found) bool { return f.Part == "iperf3" })
	if f := got[0].Parts[i]; f.Version != "3.99" || !f.Present || f.Host != "h1" {
		t.Errorf("%+v", f)
	}
	for _, f := range got[0].Parts {
		if f.Part == "nvidia-smi" || f.Part == "PFC tools" {
			t.Errorf("asked of a host without GPUs on InfiniBand: %+v", f)
		}
	}
}
