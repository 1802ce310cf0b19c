package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// doctor asks a whole cluster of hosts with OpenSSH's server; one that is off is named,
// and costs no more than its timeout.
func TestDoctorFarm(t *testing.T) {
	n, timeout := 256, "30s" // of 32 at once, on machines that are busy
	if !proof.Wanted() {
		n, timeout = 16, "8s"
	}
	farm := testbedtest.NewFarm(t, n)
	var inv strings.Builder
	fmt.Fprintf(&inv, "version = 1\n[defaults]\nkind = \"soft\"\nrate = \"1Gbit/s\"\nssh_config = \"none\"\nuser = %q\nkey = %q\nknown_hosts = %q\n[[switch]]\nname = \"tor1\"\n", farm.User, farm.Key, farm.KnownHosts)
	for i, address := range append(farm.Addresses, testbedtest.BlackHole(t)) {
		fmt.Fprintf(&inv, "[[host]]\nname = \"h%d\"\nssh = {address = %q}\nnic = {port = \"tor1/%d\"}\n", i+1, address, i+1)
	}
	file := filepath.Join(t.TempDir(), "cluster.toml")
	if err := os.WriteFile(file, []byte(inv.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	cmd := exec.Command("inabench", "doctor", "-i", file, "--timeout", timeout, "-o", "json")
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	t.Logf("%d hosts and one that is off in %v", n, time.Since(begin).Round(time.Millisecond))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitTestbed {
		t.Fatalf("%v: %s", err, diag.String())
	}
	dead := fmt.Sprintf("h%d", n+1)
	if said := diag.String(); !strings.Contains(said, "host "+dead+" (127.77.255.1:") || strings.Count(said, "unreachable") != 1 {
		t.Error(said)
	}
	var report struct {
		Hosts []struct {
			Host, Error string
			Seconds     float64
			Parts       []any
		}
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Hosts) != n+1 {
		t.Fatalf("%d hosts, %v", len(report.Hosts), err)
	}
	for _, h := range report.Hosts {
		if (h.Error == "") != (h.Host != dead) || (len(h.Parts) > 0) != (h.Host != dead) {
			t.Errorf("%+v", h)
		}
	}
}
