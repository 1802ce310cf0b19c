package inabench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// elsewhere are documents of which no command can be run here, and what runs them instead.
var elsewhere = map[string]string{
	"docs/LAB.md":      "it needs a lab: cmd/cli's scripts use each verb on hosts and switches of their own",
	"docs/SWITCHES.md": "it needs switches: testbed/deployment has servers that answer as theirs do",
	"CONTRIBUTING.md":  "it is about tests",
}

// apart are commands that tests of their own run.
var apart = map[string]string{
	"inabench serve":                "it goes on until it is interrupted: serve.txtar",
	"--engine slurm":                "it needs a Slurm: TestSlurm starts one",
	"fidelity --random":             "of settings that nobody tuned some may fail, which is what it is for: random.txtar",
	"--sabotage":                    "it is to fail: sabotage.txtar",
	"suite run suites/nightly.toml": "ten minutes: experiments that ship, which TestShip runs",
}

// given is what a reader has who follows the documents.
var given = map[string]string{
	"jobs.csv": "job_id,submit_s,duration_s,gpus\nA,0,10,6\nB,0,10,2\nC,0,10,5\nD,0,10,4\n",
	// As Muri gives Philly's jobs.
	"philly.csv":          "job_id,num_gpu,submit_time,duration\nj1,1,0,60000\nj2,16,5000,120000\nj3,8,9000,30000\n",
	"cluster_job_log.csv": "job_id,num_gpu,submit_time,duration\nj1,1,0,60000\nj2,16,5000,120000\nj3,8,9000,30000\n",
	"bin/make-experiment": "#!/bin/sh\nsed 's#racks/#experiments/racks/#' experiments/quickstart.toml\n",
}

// TestDocuments runs the command lines of the documents, in order and in one directory, as a
// reader does. Those that bring up an emulation are run in the model, unless INABENCH_SHIP=netns.
func TestDocuments(t *testing.T) {
	proof.Only(t, "minutes, of which -race finds nothing: the program is not built with it")
	emulate := os.Getenv("INABENCH_SHIP") == "netns"
	dir := t.TempDir()
	for name, text := range given {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(dir, os.DirFS("placement/trace/testdata/shapes")); err != nil { // of published traces
		t.Fatal(err)
	}
	writeExamples(t, dir)
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "bin/inabench"), "./cmd/inabench").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, folder := range []string{"experiments", "examples", "suites", filepath.Join(dir, "bin/inabench")} {
		from, err := filepath.Abs(folder)
		if err != nil {
			t.Fatal(err)
		}
		folder = filepath.Base(folder)
		if err := os.Symlink(from, filepath.Join(dir, folder)); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	for _, file := range documents {
		if elsewhere[file] != "" {
			continue
		}
		for _, line := range typed(read(t, file)) {
			t.Run(file+"/"+line, func(t *testing.T) {
				for what, why := range apart {
					if strings.Contains(line, what) {
						t.Skip(why)
					}
				}
				if !emulate {
					var ok bool
					if line, ok = inModel(line); !ok {
						t.Skip("it is about the emulation")
					}
				}
				for sign, need := range map[string][2]string{"--switch bmv2": {"bmv2", "simple_switch_grpc"}, "python3": {"python3", "python3"}} {
					if strings.Contains(line, sign) {
						_, err := exec.LookPath(need[1])
						testbedtest.Require(t, need[0], err)
					}
				}
				ran++
				out, err := shell(t, dir, line)
				if emulate && exitCode(err) == 7 { // whoever shares this machine made it undecided: TestShip is about verdicts
					t.Logf("undecided:\n%s", out)
				} else if err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
	if ran < 15 {
		t.Errorf("%d commands were run", ran)
	}
}

// typed are the lines of a document's code blocks that a reader types.
func typed(text string) (lines []string) {
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			if line = strings.TrimSpace(line); strings.Contains(line, "inabench ") && !strings.HasPrefix(line, "CGO_ENABLED=0 go build") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// inModel is a command that does in the model what a line does on an emulation, if there is.
func inModel(line string) (string, bool) {
	for _, only := range []string{"inabench calibrate", "inabench ssh", "--on netns", "--switch bmv2", "inabench fidelity experiments/"} {
		if strings.Contains(line, only) {
			return "", false
		}
	}
	if words := strings.Fields(line); slices.Contains(words, "run") && !slices.Contains(words, "--on") && !slices.Contains(words, "suite") {
		line = strings.Replace(line, "inabench run ", "inabench run --on sim ", 1)
	}
	return line, true
}

func shell(t *testing.T, dir, line string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	c.Dir = dir
	home := filepath.Join(dir, "home")
	c.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "HOME="+home, "XDG_STATE_HOME="+home)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = time.Minute
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w", line, err)
	}
	return out, err
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
