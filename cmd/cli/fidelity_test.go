package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/fidelity"
	"github.com/inabench/inabench/results/resultstest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// TestFidelityOfRunning: a run that goes on keeps its record; one that has ended has the figures in it.
func TestFidelityOfRunning(t *testing.T) {
	root := t.TempDir()
	rec := resultstest.Quickstart()
	rec.Finished = time.Time{}
	d, err := results.Create(root, rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Save(rec); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path, results.RecordFile)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	if code := Main([]string{"inabench", "fidelity", "--runs", root, "latest"}, nil, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "the run goes on") ||
		stderr.String() != "inabench: not kept with the run: it goes on\n" {
		t.Errorf("exit %d, %s%s", code, &stdout, &stderr)
	}
	for _, name := range []string{results.ReportFile, fidelity.File} {
		if _, err := os.Stat(filepath.Join(d.Path, name)); err == nil {
			t.Errorf("%s was written beside a run that goes on", name)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the record of a run that goes on is another one now (%v)", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	stderr.Reset()
	if code := Main([]string{"inabench", "fidelity", "--runs", root, "latest"}, nil, &stdout, &stderr); code != 0 || stderr.String() != "" || !strings.Contains(stdout.String(), "cut off") {
		t.Errorf("exit %d, %s%s", code, &stdout, &stderr)
	}
	if rec, err := results.ReadRecord(d.Path); err != nil || len(rec.Fidelity) == 0 {
		t.Errorf("figures %v, %v", rec.Fidelity, err)
	}
}

// TestPredictorPage runs every command of docs/PREDICTOR.md, one after the other as a reader would,
// on the model where the page has an emulation.
func TestPredictorPage(t *testing.T) {
	proof.Only(t, "it measures")
	_, err := exec.LookPath("python3")
	testbedtest.Require(t, "python3", err)
	page, err := os.ReadFile("../../docs/PREDICTOR.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for _, folder := range []string{"experiments", "examples"} {
		path, err := filepath.Abs(filepath.Join("../..", folder))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&script, "symlink %s -> %s\n", folder, path)
	}
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1) {
		for line := range strings.Lines(string(block[1])) {
			line = strings.TrimSpace(strings.Replace(line, "--on netns,sim", "--on sim", 1))
			fmt.Fprintf(&script, "code 0 sh -c '%s'\n", strings.ReplaceAll(line, "'", "''"))
			ran++
		}
	}
	if ran < 6 {
		t.Fatalf("only %d commands", ran)
	}
	script.WriteString("exists request.json drawings/fidelity-mine-goodput.svg\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.txtar"), []byte(script.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, params(dir))
}
