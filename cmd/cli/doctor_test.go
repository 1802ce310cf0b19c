package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/preflight"
)

// refused are hosts at whose addresses nobody listens, and one that answers.
func refused(n int) (all []preflight.Diagnosis) {
	for i := range n {
		all = append(all, preflight.Diagnosis{
			Host: fmt.Sprintf("node%02d", i+1), Reason: "unreachable: dial tcp: connect: connection refused", Hint: "is it on, is its SSH server running, is the address right?",
			Error: fmt.Sprintf("host node%02d (10.0.0.%d:22): unreachable: dial tcp 10.0.0.%d:22: connect: connection refused", i+1, i+1, i+1),
		})
	}
	return append(all, preflight.Diagnosis{Host: "there", Seconds: 0.2, Parts: []preflight.Found{{Part: "iperf3", Host: "there", Present: true, Version: "3.12"}}})
}

// TestDeadHosts: hosts that do not answer for one reason are one error, which names them all; each other reason is its own.
func TestDeadHosts(t *testing.T) {
	for _, tt := range []struct {
		name string
		all  []preflight.Diagnosis
		want []string
	}{
		{"none", refused(0), nil},
		{"one", refused(1), []string{"host node01 (10.0.0.1:22): unreachable: dial tcp 10.0.0.1:22: connect: connection refused"}},
		{"three", refused(3), []string{"3 hosts do not answer, node01, node02, node03; host node01 (10.0.0.1:22): unreachable: dial tcp 10.0.0.1:22: connect: connection refused"}},
		{"of two reasons", append(refused(2), preflight.Diagnosis{Host: "slow", Error: "host slow: no answer within 10s", Reason: "no answer within 10s"}), []string{
			"2 hosts do not answer, node01, node02; host node01 (10.0.0.1:22): unreachable: dial tcp 10.0.0.1:22: connect: connection refused",
			"host slow: no answer within 10s",
		}},
	} {
		var got []string
		for _, err := range flatten(diagnosis{Hosts: tt.all}.err()) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// wrongLink is a port that is not as the inventory has it.
var wrongLink = device.Link{Port: "1/0", DevPort: 132, Up: true, Setup: "100Gbit/s, FEC none, autonegotiation default", Wrong: []string{"FEC is none, should be rs"}}

// TestWrongLinks: a port that is not as the inventory has it is a failure, with its names, what is and what should be; others
// are told alone.
func TestWrongLinks(t *testing.T) {
	d := diagnosis{Hosts: refused(0), Switches: []device.Diagnosis{{Switch: "tor1", Pipeline: "that of the inventory", Links: []device.Link{
		wrongLink, {Port: "2/0", DevPort: 140, Up: true, Setup: "25Gbit/s, FEC none, autonegotiation default"},
	}}}}
	errs := flatten(d.err())
	if want := "switch tor1: port 1/0 (dev_port 132): FEC is none, should be rs"; len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("%q, want %q", errs, want)
	}
	var out strings.Builder
	writeSwitches(&out, d.Switches)
	for _, line := range []string{
		"ok\ttor1\tpipeline: that of the inventory\n",
		"FAIL\ttor1\tport 1/0 (dev_port 132): FEC is none, should be rs\n\t\tto do: ",
		"ok\ttor1\tport 2/0 (dev_port 140): up, 25Gbit/s, FEC none, autonegotiation default, no errors\n",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is not in\n%s", line, out.String())
		}
	}
}

// TestDoctorWidths: what doctor finds fits a terminal, and says nothing of what only tests of inabench lack.
func TestDoctorWidths(t *testing.T) {
	here := diagnosis{
		Report: netns.Report{Checks: []netns.Check{
			{Name: "namespaces of an ordinary user", OK: true, Required: true, Why: "user, network, mount, pid, ipc, uts"},
			{Name: "OpenSSH's server", Why: "no sshd in PATH", Fix: "sudo apt-get install openssh-server, which only runs with emulation.sshd = openssh need"},
		}},
		Parts: []preflight.Found{
			{Part: "p4c", Present: true, Version: "1.2.5.16"},
			{Part: "iperf3", For: "the workload iperf3", Fix: "sudo apt-get install iperf3"},
			{Part: "ibsim", For: "tests against simulated InfiniBand", Fix: "sudo apt-get install ibsim-utils"},
			{Part: "infiniband-diags", Present: true, Problem: "libibmad.so.5: cannot open shared object file: No such file or directory"},
		},
	}
	lab := here
	lab.Hosts = refused(16)
	lab.Switches = []device.Diagnosis{
		{Switch: "tor1", Version: "1.5.0", Pipeline: "none yet", Ports: 32, PlainText: true, Links: []device.Link{wrongLink}},
		{Switch: "tor2", Error: "switch tor2: ask for its version: connection refused", Hint: "does its P4Runtime server run, and listen at the address that is its control?"},
	}
	lab.Services = []service{{Name: "sharp_am", Found: "/opt/ufm/files/conf/sharp/sharp_am.cfg on root@10.0.0.9"}}
	for name, d := range map[string]diagnosis{"here": here, "lab": lab} {
		for _, columns := range []int{60, 80, 120} {
			var out strings.Builder
			terminal := &door{to: &out, tty: true, width: columns}
			if err := d.write(terminal); err != nil {
				t.Fatal(err)
			}
			terminal.close()
			for line := range strings.Lines(out.String()) {
				line = strings.TrimRight(line, "\n")
				if n := utf8.RuneCountInString(line); n > columns && !typed.MatchString(line) || strings.HasSuffix(line, " ") {
					t.Errorf("%s, %d columns in %d: %q", name, columns, n, line)
				}
			}
			if text := out.String(); strings.Contains(text, "ibsim") || !strings.Contains(text, "p4c") || !strings.Contains(text, "iperf3") {
				t.Errorf("%s, %d columns: parts are\n%s", name, columns, text)
			}
			if n := strings.Count(out.String(), "connection refused"); name == "lab" && n > 2 && columns > 60 { // of hosts, and of a switch
				t.Errorf("%d columns: %d reasons in\n%s", columns, n, out.String())
			}
		}
	}
}

// UFM answers, or does not know who asks; a manager's host that is not there is named.
func TestDiagnoseSHARP(t *testing.T) {
	known := true
	ufm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"job1": {"pkey": "0x12", "guids": ["0x248a070300000001"]}}`))
	}))
	defer ufm.Close()
	inv := &inventory.Inventory{Manager: &inventory.Manager{
		SSH: inventory.SSH{Address: "127.0.0.1:1", Config: "none", Jump: "none"}, Config: "/etc/sharp/sharp_am.cfg", UFM: ufm.URL, API: "allocate",
	}}
	got := diagnoseSHARP(t.Context(), inv, 5*time.Second)
	if len(got) != 2 || !strings.HasPrefix(got[0].Error, "host sharp_am ") || got[0].Hint == "" || got[1].Error != "" || got[1].Found != ufm.URL+": 1 reservation" {
		t.Errorf("%+v", got)
	}
	known = false
	inv.Manager.SSH = inventory.SSH{}
	got = diagnoseSHARP(t.Context(), inv, 5*time.Second)
	if len(got) != 1 || got[0].Error == "" || !strings.Contains(got[0].Hint, "INABENCH_UFM_TOKEN") {
		t.Errorf("%+v", got)
	}
	if got := diagnoseSHARP(t.Context(), &inventory.Inventory{}, time.Second); got != nil {
		t.Errorf("of no manager: %+v", got)
	}
}
