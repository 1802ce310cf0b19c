// Package spectest writes experiments for tests of several packages.
package spectest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
)

// pair is two servers, and one for a parameter server, on a switch; cables take so long.
const pair = `version = 1
name = "pair"
[defaults]
kind = "soft"
rate = "100Gbit/s"
delay = "%s"
gpus = 1
[[switch]]
name = "tor1"
aggregators = 65536
buffer = "4GiB"
[[host]]
name = "h[1-3]"
nic = {port = "tor1/[1-3]"}
`

// Pair writes an experiment, but for its version, beside pair.toml, two servers and one for a parameter server on a
// switch, and one.csv, a trace of one job of 100 iterations of VGG-16 on two GPUs; and loads it.
func Pair(t *testing.T, kinds spec.Kinds, delay, text string) *spec.Spec {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pair.toml": fmt.Sprintf(pair, delay), "experiment.toml": "version = 1\n" + text,
		"one.csv": "job_id,submit_s,duration_s,gpus\na,0,23.255,2\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s, err := kinds.Load(filepath.Join(dir, "experiment.toml"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
