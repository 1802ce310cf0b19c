package inabench_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/inabench/inabench"

// goPackage is what `go list -json` says of a package, the part that is asked for.
type goPackage struct {
	ImportPath                         string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

// listPackages returns the packages of this module that have code.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	packages, err := goList()
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// goList asks once: it takes seconds.
var goList = sync.OnceValues(func() ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,TestImports,XTestImports", "./...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
})

// table returns the body of the first table below a heading of a Markdown file, a
// slice of cells for each row.
func table(t *testing.T, file, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut("\n"+string(text), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", file, heading)
	}
	var rows [][]string
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			break
		}
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("%s has no table below %q", file, heading)
	}
	return rows[2:] // header and rule
}

var code = regexp.MustCompile("`([^`]+)`")

// quoted returns what stands in backquotes.
func quoted(s string) []string {
	var out []string
	for _, m := range code.FindAllStringSubmatch(s, -1) {
		out = append(out, m[1])
	}
	return out
}

// TestLayers holds the code to the table of docs/LAYERS.md: every package has
// one row, a row allows only what stands in rows above it, and a package imports
// nothing of ours but what its row allows. Tests may import more.
func TestLayers(t *testing.T) {
	allowed := map[string][]string{}
	for _, row := range table(t, "docs/LAYERS.md", "# Layers") {
		may := quoted(row[1])
		for _, p := range may {
			if _, above := allowed[p]; !above {
				t.Errorf("the row of %s allows %s, which has no row above it", row[0], p)
			}
		}
		for _, p := range quoted(row[0]) {
			if _, twice := allowed[p]; twice {
				t.Errorf("%s has two rows", p)
			}
			allowed[p] = may
		}
	}
	unseen := maps.Clone(allowed)
	for _, p := range listPackages(t) {
		if len(p.GoFiles) == 0 {
			continue // tests only, as in this folder
		}
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		may, ok := allowed[name]
		if !ok {
			t.Errorf("%s has no row in the layer table", name)
			continue
		}
		delete(unseen, name)
		for _, imported := range p.Imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if ok && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s: its row allows %v", name, ours, may)
			}
		}
	}
	for name := range unseen {
		t.Errorf("the layer table has a row for %s, which is not there", name)
	}
}

// lists are the kinds of things that the program has several of, and the one package that lists each kind: who adds one
// writes a package and a line there. Users are packages that need one of them for itself, whatever others there are.
var lists = []struct {
	kind, list string
	things     []string
	users      map[string]string // a thing's user: why
}{
	{"study", "experiments/kinds", []string{"experiments/study/autops", "experiments/study/jobs", "experiments/study/programs", "experiments/study/ranks", "experiments/study/stream", "experiments/study/turns"}, map[string]string{
		"experiments": "jobs: [[job]] tables are what an experiment has without a study", "experiments/study/autops": "stream: its trace of jobs is the same",
	}},
	{"driver", "experiments/drivers", []string{"testbed/lab", "testbed/netns", "testbed/sim"}, map[string]string{
		"cmd/cli": "netns: its processes are verbs of the program", "testbed/carry": "netns: a small one shows what the machine carries", "testbed/netns/netnstest": "netns",
	}},
	{"switch", "testbed/switches", []string{"testbed/script"}, nil},
	{"launcher", "testbed/reach", []string{"testbed/ssh"}, map[string]string{"cmd/cli": "ssh: inabench ssh, and known hosts", "testbed/sshd/sshdtest": "ssh"}},
	{"policy", "experiments/spec", []string{"placement/netpack", "placement/titan", "placement/baseline"}, map[string]string{
		"experiments/why": "netpack, titan: why they placed as they did", "experiments/study/ranks": "titan: its options", "experiments/study/stream": "netpack, titan: their options", "placement/titan": "baseline: it falls back to one",
	}},
}

// TestLists: a thing of a kind is known to the list of its kind, and to nobody else without a reason.
func TestLists(t *testing.T) {
	importers := map[string][]string{}
	for _, p := range listPackages(t) {
		for _, imported := range p.Imports {
			if name, ours := strings.CutPrefix(imported, module+"/"); ours {
				importers[name] = append(importers[name], strings.TrimPrefix(p.ImportPath, module+"/"))
			}
		}
	}
	for _, l := range lists {
		needed := map[string]bool{}
		for _, thing := range l.things {
			listed := false
			for _, by := range importers[thing] {
				_, user := l.users[by]
				listed, needed[by] = listed || by == l.list, true
				if by != l.list && !user {
					t.Errorf("%s knows the %s %s: is that not for the list in %s, or for the %s itself?", by, l.kind, thing, l.list, l.kind)
				}
			}
			if !listed {
				t.Errorf("%s lacks the %s %s", l.list, l.kind, thing)
			}
		}
		for by := range l.users {
			if !needed[by] {
				t.Errorf("%s knows no %s any more", by, l.kind)
			}
		}
	}
}

// mostImports is how many of our packages one may import: more is a package that knows everything. It does not hold for those
// that put the program together, nor yet for these.
const mostImports = 20

var importsMore = map[string]int{"cmd/cli": 100}

// TestFewImports: no package knows more than some of the others, and those that do know no more of them than they did.
func TestFewImports(t *testing.T) {
	for _, p := range listPackages(t) {
		name, n := strings.TrimPrefix(p.ImportPath, module+"/"), 0
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module+"/") {
				n++
			}
		}
		if limit := max(mostImports, importsMore[name]); n > limit {
			t.Errorf("%s imports %d packages of ours, at most %d: what of it is another idea?", name, n, limit)
		}
	}
}

// TestDependencies holds docs/DEPENDENCIES.md to the code:
// every module that some package or test imports has a row with its reason, and
// every row is a module that go.mod requires.
func TestDependencies(t *testing.T) {
	documented := map[string]bool{}
	for _, row := range table(t, "docs/DEPENDENCIES.md", "# Dependencies") {
		for _, m := range quoted(row[0]) {
			documented[m] = true
		}
		if row[1] == "" {
			t.Errorf("%s: no reason", row[0])
		}
	}
	for _, p := range listPackages(t) {
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			host, _, _ := strings.Cut(imported, "/")
			if !strings.Contains(host, ".") || imported == module || strings.HasPrefix(imported, module+"/") {
				continue
			}
			known := false
			for m := range documented {
				if imported == m || strings.HasPrefix(imported, m+"/") {
					known = true
				}
			}
			if !known {
				t.Errorf("%s imports %s: no row in the table of dependencies", p.ImportPath, imported)
			}
		}
	}
	required, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for m := range documented {
		if !strings.Contains(string(required), m+" v") {
			t.Errorf("the table of dependencies has %s, which go.mod does not require", m)
		}
	}
}
