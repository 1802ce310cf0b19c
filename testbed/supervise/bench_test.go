package supervise_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/supervise"
)

// What a supervisor adds to the start and end of a program, and what memory it keeps for
// itself meanwhile.
func BenchmarkStart(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("supervised", func(b *testing.B) {
		line, err := json.Marshal(supervise.Config{Argv: []string{"/bin/true"}, Lease: 60, Leases: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			cmd := exec.Command("/proc/self/exe", supervise.Verb)
			in, err := cmd.StdinPipe() // not at its end: that would end the program
			if err == nil {
				err = cmd.Start()
			}
			if err == nil {
				_, err = in.Write(append(line, '\n'))
			}
			if err == nil {
				err = cmd.Wait()
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkIdle measures nothing but a supervisor's own memory.
func BenchmarkIdle(b *testing.B) {
	line, err := json.Marshal(supervise.Config{Argv: []string{"sh", "-c", "echo up; exec sleep 1000"}, Lease: 60, Leases: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", supervise.Verb)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := in.Write(append(line, '\n')); err != nil {
		b.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", cmd.Process.Pid))
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		var kB float64
		if _, err := fmt.Sscanf(line, "Private_Dirty: %f kB", &kB); err == nil {
			b.ReportMetric(kB/1024, "MiB")
		}
	}
}
