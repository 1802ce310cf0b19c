package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// storeOf writes runs that are the same every time.
func storeOf(t *testing.T, root string) {
	t.Helper()
	waterfill, samples := resultstest.Waterfill()
	again := resultstest.Quickstart()
	records := []*results.Record{resultstest.Quickstart(), again, resultstest.FairShare(), waterfill, resultstest.Addressing(), resultstest.Policies([]float64{1, 20}, 3)}
	for i, rec := range records {
		rec.ID = fmt.Sprintf("01JD4K7Q3ZT9V8B6N2XHFQW5%02d", i)
		rec.Started, rec.Finished = rec.Started.AddDate(0, 0, i), rec.Finished.AddDate(0, 0, i)
		d, err := results.Create(root, rec)
		if err != nil {
			t.Fatal(err)
		}
		if rec == waterfill {
			err = d.Append(samples...)
		}
		if err := errors.Join(err, d.Close(), d.Save(rec)); err != nil {
			t.Fatal(err)
		}
	}
}

var painted = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestWidths checks that the output of commands fits terminals of 60, 80 and 120 columns, that NO_COLOR removes colours and
// changes nothing else, and that output into a file has no colours.
func TestWidths(t *testing.T) {
	t.Parallel()
	experiments, err := filepath.Abs("../../experiments")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	storeOf(t, filepath.Join(dir, "runs"))
	for name, to := range map[string]string{"experiments": experiments, "suites": filepath.Join(experiments, "..", "suites")} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	command := func(args []string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "inabench", args...)
		cmd.Dir = dir
		for _, e := range os.Environ() {
			if !strings.HasPrefix(e, "NO_COLOR=") && !strings.HasPrefix(e, "TERM=") {
				cmd.Env = append(cmd.Env, e)
			}
		}
		cmd.Env = append(cmd.Env, "HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_CACHE_HOME="+dir, "TZ=UTC")
		return cmd
	}
	for name, args := range map[string]string{
		"list":           "show",
		"show-quick":     "show 01JD4K7Q3ZT9V8B6N2XHFQW500",
		"show-waterfill": "show waterfill",
		"show-policies":  "show policies",
		"show-sweep":     "show addressing",
		"history":        "history goodput --no-index --setting all",
		"compare":        "compare 01JD4K7Q3ZT9V8B6N2XHFQW500 01JD4K7Q3ZT9V8B6N2XHFQW501 --all",
		"plan":           "plan experiments/two-racks.toml --on sim",
		"check":          "check experiments/quickstart.toml experiments/waterfill.toml",
		"explain":        "explain",
		"explain-code":   "explain INA-LIMITED",
		"models":         "models",
		"faults":         "run --sabotage list",
		"policies":       "place --list",
		"reference":      "reference switch.mode",
		"suite":          "suite check suites/nightly.toml",
		"suite-show":     "suite show suites/nightly.toml",
		"ps":             "ps",
		"error":          "run experiments/nothing.toml",
		"usage":          "run --quick --no-such-option experiments/quickstart.toml",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(args)
			var all strings.Builder
			for _, columns := range []uint16{60, 80, 120} {
				cmd := command(args)
				cmd.Env = append(cmd.Env, "NO_COLOR=1")
				plain, _ := onTerminal(columns, cmd) // some exit with another code than 0
				if columns == 80 || proof.Wanted() { // a process takes long to start
					if painting, _ := onTerminal(columns, command(args)); plain != painted.ReplaceAllString(painting, "") {
						t.Errorf("%d columns: without colours there is\n%s\nwith them\n%s", columns, plain, painting)
					}
				}
				for line := range strings.Lines(plain) {
					line = strings.TrimRight(line, "\n")
					if n := utf8.RuneCountInString(line); n > int(columns) && !typed.MatchString(line) || strings.HasSuffix(line, " ") {
						t.Errorf("%d columns in %d: %q", n, columns, line)
					}
				}
				fmt.Fprintf(&all, "$ inabench %s    # %d columns\n%s\n", strings.Join(args, " "), columns, plain)
			}
			cmd := command(args)
			var piped bytes.Buffer
			cmd.Stdout, cmd.Stderr = &piped, &piped
			_ = cmd.Run()
			if strings.ContainsRune(piped.String(), 0x1b) {
				t.Errorf("there are colours in a file:\n%q", piped.String())
			}
			fmt.Fprintf(&all, "$ inabench %s > file\n%s", strings.Join(args, " "), piped.String())
			golden.Compare(t, filepath.Join("widths", name+".txt"), all.String())
		})
	}
}
