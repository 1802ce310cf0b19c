package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/testbedtest"
)

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
