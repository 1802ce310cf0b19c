package reader

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/testbedtest"
)

// start runs Main, and asks it for readings.
func start(t testing.TB, c Config) (ask func() Reading, end func() error) {
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Main(t.Context(), in, out)
		out.Close()
		done <- err
	}()
	if err := json.NewEncoder(stdin).Encode(c); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(stdout)
	answers.Buffer(nil, 1<<20)
	return func() Reading {
			t.Helper()
			if _, err := io.WriteString(stdin, "\n"); err != nil {
				t.Fatal(err)
			}
			var r Reading
			if !answers.Scan() {
				t.Fatalf("no answer: %v", <-done)
			}
			if err := json.Unmarshal(answers.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			return r
		}, func() error {
			stdin.Close()
			return <-done
		}
}

func TestReader(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"np_cnp_sent": "17\n", "lifespan": "10\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "odd"), 0o700); err != nil { // reading it is an error, as of some counters
		t.Fatal(err)
	}
	ask, end := start(t, Config{Devices: []string{"lo", "nosuch0"}, Stats: []string{"*"}, Files: []string{dir + "/*"}})
	first, second := ask(), ask()
	if first.Time <= 1e9 || second.Time < first.Time {
		t.Errorf("at %v and %v", first.Time, second.Time)
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(first.NetDev, "lo:") || first.Devices["lo"].Index != lo.Index || len(first.Devices) != 1 {
		t.Errorf("%+v", first)
	}
	if first.Files[dir+"/np_cnp_sent"] != "17" || first.Files[dir+"/lifespan"] != "10" || len(first.Files) != 2 {
		t.Errorf("files: %v", first.Files)
	}
	if len(first.Errors) != 2 || !strings.HasPrefix(first.Errors[0], "device nosuch0: ") || !strings.Contains(first.Errors[1], "odd") {
		t.Errorf("errors: %q", first.Errors)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// What a driver says is what `ethtool -S` prints of it.
func TestLikeEthtool(t *testing.T) {
	tool, err := exec.LookPath("ethtool")
	testbedtest.Require(t, "ethtool", err)
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, d := range devices {
		out, err := exec.Command(tool, "-S", d.Name).Output()
		if err != nil { // "no stats available"
			continue
		}
		var want []string
		for line := range strings.Lines(string(out)) {
			if i := strings.LastIndex(line, ": "); i > 0 {
				want = append(want, strings.TrimSpace(line[:i]))
			}
		}
		ask, end := start(t, Config{Devices: []string{d.Name}, Stats: []string{"*"}})
		var got []string
		for name := range ask().Devices[d.Name].Stats {
			got = append(got, name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if want = slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("%s: %q, ethtool says %q", d.Name, got, want)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		compared++
	}
	t.Logf("compared %d devices", compared)
}

func TestBadConfig(t *testing.T) {
	for _, line := range []string{"{", `{"stats":["["]}`, `{"files":["["]}`} {
		if err := Main(t.Context(), strings.NewReader(line+"\n"), io.Discard); err == nil {
			t.Errorf("%s is taken", line)
		}
	}
	if err := Main(t.Context(), strings.NewReader(""), io.Discard); err != nil {
		t.Errorf("nobody asks: %v", err)
	}
}
