package inabench_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/suite"
	"github.com/inabench/inabench/inventory"
)

// What is written for people is held to what there is.
var documents = []string{"README.md", "docs/GUIDE.md", "docs/RESULTS.md", "experiments/README.md", "ARCHITECTURE.md", "docs/GLOSSARY.md", "docs/LAYERS.md", "docs/DEPENDENCIES.md", "CONTRIBUTING.md", "docs/CODES.md", "docs/FAULTS.md", "docs/LAB.md", "docs/SWITCHES.md", "docs/NIGHTS.md", "docs/STUDIES.md", "docs/PREDICTOR.md", "docs/POLICY.md", "docs/SABOTAGE.md"}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// writeExamples writes the TOML files that the documents show, and returns their names: the first line of each
// says its own.
func writeExamples(t *testing.T, dir string) (names []string) {
	t.Helper()
	want := 0
	for _, file := range documents {
		for _, block := range regexp.MustCompile("(?s)```toml\n# (\\S+)\n.*?```").FindAllStringSubmatch(read(t, file), -1) {
			text := strings.TrimSuffix(strings.TrimPrefix(block[0], "```toml\n"), "```")
			if err := os.WriteFile(filepath.Join(dir, block[1]), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			names = append(names, block[1])
		}
		want += strings.Count(read(t, file), "```toml")
	}
	if len(names) != want || want == 0 {
		t.Fatalf("%d of %d TOML examples name their file in the first line", len(names), want)
	}
	return names
}

// TestExamples loads the inventories and experiments that the documents show, and plans
// the latter.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	for _, name := range writeExamples(t, dir) {
		path := filepath.Join(dir, name)
		if strings.Contains(read(t, path), "\n[[experiment]]") {
			if _, err := suite.Parse(path, []byte(read(t, path))); err != nil {
				t.Error(err)
			}
			continue
		}
		isInventory, err := spec.IsInventory(path, []byte(read(t, path)))
		if err != nil {
			t.Fatal(err)
		}
		if isInventory {
			inv, err := inventory.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, sw := range inv.Switches { // what a compiler would have made
				for _, file := range []string{sw.Program.P4Info, sw.Program.Binary, sw.Program.Context, sw.Program.BFRT} {
					if file == "" {
						continue
					}
					if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, nil, 0o666)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !strings.Contains(read(t, path), "ssh = ") { // it is only emulated
				continue
			}
			if err := inv.CheckLab(); err != nil {
				t.Error(err)
			}
			continue
		}
		spec, err := kinds.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Unplanned() != nil {
			continue // their jobs are placed as they come, or are no jobs of ours
		}
		if _, err := experiments.NewPlan(t.Context(), spec, "test"); err != nil {
			t.Errorf("plan %s: %v", name, err)
		}
	}
}

// TestExperimentsTable holds the table of experiments to the files that ship.
func TestExperimentsTable(t *testing.T) {
	var listed []string
	for _, row := range table(t, "experiments/README.md", "## Experiments that ship") {
		listed = append(listed, "experiments/"+quoted(row[0])[0])
	}
	shipped, err := filepath.Glob("experiments/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	if !slices.Equal(listed, shipped) {
		t.Errorf("experiments/README.md lists %v, there are %v", listed, shipped)
	}
}

// TestExitCodes holds the documented table to the constants of the command.
func TestExitCodes(t *testing.T) {
	want := map[string]bool{"130": true, "143": true} // 128 + SIGINT, SIGTERM
	for _, m := range regexp.MustCompile(`\bexit\w+ += (\d+)`).FindAllStringSubmatch(read(t, "cmd/cli/exit.go"), -1) {
		want[m[1]] = true
	}
	got := map[string]bool{}
	for _, row := range table(t, "docs/RESULTS.md", "## Exit codes") {
		for code := range strings.SplitSeq(row[0], ",") {
			got[strings.TrimSpace(code)] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("docs/RESULTS.md has exit codes %v, the command %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinks follows every link between files and to headings, and looks for every path
// of this repository that is named.
func TestLinks(t *testing.T) {
	anchors := map[string]map[string]bool{}
	for _, file := range documents {
		anchors[file] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(read(t, file), ""), -1) {
			slug := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
			anchors[file][strings.ReplaceAll(slug, " ", "-")] = true
		}
	}
	tops, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range documents {
		text := read(t, file)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			if path == "" {
				path = file
			} else {
				path = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: link to %s: %v", file, m[1], err)
			}
			if known, ok := anchors[path]; ok && anchor != "" && !known[anchor] {
				t.Errorf("%s: link to %s: no such heading", file, m[1])
			}
		}
		// Of what is quoted, files of the repository; runs are what its reader has made in it.
		for _, path := range quoted(fence.ReplaceAllString(text, "")) {
			top, rest, _ := strings.Cut(path, "/")
			ours := slices.ContainsFunc(tops, func(e os.DirEntry) bool { return e.IsDir() && e.Name() == top })
			if !ours || top == "runs" || rest == "" || strings.ContainsAny(path, " *<") {
				continue
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s names %s, which is not there", file, path)
			}
		}
	}
}

// commands are the lines of code blocks and the inline code of a document that run the
// program or its tests, without comments.
func commands(text string) []string {
	var out []string
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced || strings.HasPrefix(line, "    ") {
			line = strings.TrimPrefix(strings.TrimSpace(line), "- run: ")
			line, _, _ = strings.Cut(line, " #")
			out = append(out, line)
		}
	}
	out = append(out, quoted(fence.ReplaceAllString(text, ""))...)
	env := regexp.MustCompile(`^([A-Z_]+=\S+ )+`)
	for i := range out {
		out[i] = env.ReplaceAllString(strings.TrimSpace(out[i]), "")
	}
	return slices.DeleteFunc(out, func(s string) bool {
		return !regexp.MustCompile(`^(\./)?inabench [a-z]|^go (run|test) \S`).MatchString(s)
	})
}

// TestCommands checks every command line in the documents: the verb and its flags
// exist, and so do the files, packages and tests that it names.
func TestCommands(t *testing.T) {
	program := filepath.Join(t.TempDir(), "inabench")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/inabench").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	help := map[string]string{}
	seen := 0
	for _, file := range documents {
		for _, line := range commands(read(t, file)) {
			seen++
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))
			var err error
			switch {
			case words[0] == "go" && words[1] == "test":
				err = checkGoTest(words[2:])
			case words[0] == "go" && words[2] != "./cmd/inabench":
				err = fmt.Errorf("%s is not the command", words[2])
			case words[0] == "go" && len(words) > 3:
				err = checkInabench(program, help, words[3:])
			case words[0] != "go":
				if i := slices.Index(words, "--"); i > 0 {
					words = words[:i] // what comes then is another program's
				}
				err = checkInabench(program, help, words[1:])
			}
			if err != nil {
				t.Errorf("%s: %s: %v", file, line, err)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d commands found in %v", seen, documents)
	}
}

func checkInabench(program string, help map[string]string, words []string) error {
	verb := words[0]
	if slices.Contains([]string{"agent", "netns-host"}, verb) { // hidden
		return nil
	}
	if slices.Contains([]string{"trace", "inventory", "baseline", "suite", "policy"}, verb) && len(words) > 1 { // a verb of two words
		words = words[1:]
		verb += " " + words[0]
	}
	if _, ok := help[verb]; !ok {
		out, err := exec.Command(program, append(strings.Fields(verb), "--help")...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("no verb %s: %s", verb, out)
		}
		help[verb] = string(out)
	}
	for _, w := range words[1:] {
		switch {
		case strings.HasPrefix(w, "-"):
			if !regexp.MustCompile(`(?m)(^ +|, )` + w + `\b`).MatchString(help[verb]) {
				return fmt.Errorf("%s has no flag %s", verb, w)
			}
		case strings.HasPrefix(w, "experiments/"):
			if _, err := os.Stat(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkGoTest looks for the packages of a `go test` command, and for the tests,
// benchmarks and fuzz targets that it selects.
func checkGoTest(words []string) error {
	var dirs, selected []string
	for i, w := range words {
		switch {
		case w == "./..." || w == ".":
			dirs = append(dirs, ".")
		case strings.HasPrefix(w, "./"):
			dirs = append(dirs, strings.TrimSuffix(w, "/..."))
		case i > 0 && slices.Contains([]string{"-run", "-bench", "-fuzz"}, words[i-1]) && w != "^$" && w != ".":
			selected = append(selected, strings.Split(strings.Trim(w, "^$"), "|")...)
		}
	}
	var source strings.Builder
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			return err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			source.Write(text)
		}
	}
	for _, name := range selected {
		if !slices.Contains(words, "./...") && !regexp.MustCompile(`func (Test|Benchmark|Fuzz)?`+name).MatchString(source.String()) {
			return fmt.Errorf("no test %s in %v", name, dirs)
		}
	}
	return nil
}
