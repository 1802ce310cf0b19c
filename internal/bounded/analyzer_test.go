package bounded_test

import (
	"go/ast"
	"go/constant"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/inabench/inabench/internal/proof"
)

// unbounded are functions that keep as much as they are given, by their full names.
var unbounded = map[string]bool{
	"io.ReadAll": true, "os.ReadFile": true, "io/fs.ReadFile": true, "io/ioutil.ReadAll": true, "io/ioutil.ReadFile": true,
	"(*bytes.Buffer).ReadFrom": true, "(*bufio.Reader).ReadBytes": true, "(*bufio.Reader).ReadString": true,
	"encoding/json.NewDecoder": true, "encoding/xml.NewDecoder": true, "encoding/csv.NewReader": true,
	"(*os/exec.Cmd).Output": true, "(*os/exec.Cmd).CombinedOutput": true, "io.Copy": true,
	"(*golang.org/x/crypto/ssh.Session).Output": true, "(*golang.org/x/crypto/ssh.Session).CombinedOutput": true,
	"(*github.com/pkg/sftp.Client).ReadDir": true,
}

// waiting are functions that wait for the other end of a FIFO that stands in a file's place.
var waiting = map[string]bool{"os.Open": true, "os.OpenFile": true}

// finder finds uses of them, but for readers of what is in memory already, and for what is cut off.
var finder = &analysis.Analyzer{
	Name: "unbounded", Doc: "find readers of what others produce that have no bound",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			calls := map[*ast.Ident]*ast.CallExpr{}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					switch f := ast.Unparen(n.Fun).(type) {
					case *ast.SelectorExpr:
						calls[f.Sel] = n
					case *ast.Ident:
						calls[f] = n
					}
				case *ast.Ident:
					f, ok := pass.TypesInfo.Uses[n].(*types.Func)
					if !ok {
						return true
					}
					switch name := f.FullName(); {
					case unbounded[name] && !harmless(pass.TypesInfo, name, calls[n]):
						pass.Reportf(n.Pos(), "%s keeps as much as it is given: package bounded has what does not", name)
					case waiting[name] && !prompt(pass.TypesInfo, calls[n]):
						pass.Reportf(n.Pos(), "%s may wait for ever: package bounded has what does not", name)
					}
				}
				return true
			})
		}
		return nil, nil
	},
}

// harmless says whether what is read is bounded, as far as types tell.
func harmless(info *types.Info, name string, call *ast.CallExpr) bool {
	if call == nil || len(call.Args) == 0 {
		return false
	}
	if name == "io.Copy" { // into memory
		to := types.TypeString(info.TypeOf(call.Args[0]), nil)
		return to != "*bytes.Buffer" && to != "*strings.Builder"
	}
	from := ast.Unparen(call.Args[0])
	switch types.TypeString(info.TypeOf(from), nil) {
	case "*bytes.Reader", "*strings.Reader", "*bytes.Buffer":
		return true
	}
	if c, ok := from.(*ast.CallExpr); ok {
		if sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr); ok {
			f, ok := info.Uses[sel.Sel].(*types.Func)
			return ok && f.FullName() == "io.LimitReader"
		}
	}
	return false
}

// prompt says whether what is opened is the kernel's, new, or a directory, as far as constants tell.
func prompt(info *types.Info, call *ast.CallExpr) bool {
	if call == nil || len(call.Args) == 0 {
		return false
	}
	first := call.Args[0]
	if sum, ok := first.(*ast.BinaryExpr); ok {
		first = sum.X
	}
	if path := info.Types[first].Value; path != nil && path.Kind() == constant.String {
		of := constant.StringVal(path)
		return strings.HasPrefix(of, "/proc") || strings.HasPrefix(of, "/dev/")
	}
	if len(call.Args) < 3 {
		return false
	}
	flags := info.Types[call.Args[1]].Value
	if flags == nil {
		return false
	}
	how, ok := constant.Int64Val(constant.ToInt(flags))
	const made = int64(os.O_CREATE | os.O_EXCL)
	return ok && (how&made == made || how&unix.O_DIRECTORY != 0)
}

func TestFinder(t *testing.T) {
	proof.Only(t, "it compiles packages")
	analysistest.Run(t, analysistest.TestData(), finder, "readers")
}

// allowed are files in which a reader is bounded in another way, and how, or in which nobody waits.
var allowed = map[string]string{
	"internal/bounded/bounded.go":  "it looks at what it has opened, without waiting",
	"testbed/agent/attach.go":      "a log that whoever starts the agent names",
	"testbed/ina/vector/vector.go": "vectors of this program's own source",
	"internal/golden/golden.go":    "files of tests",
	"placement/trace/table.go":     "a reader beneath ends after 1 MiB without the end of a row",
}

// TestEveryReaderIsBounded looks at all packages of the module, by types.
func TestEveryReaderIsBounded(t *testing.T) {
	proof.Only(t, "it compiles the whole module")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: root}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if packages.PrintErrors(all) > 0 || len(all) < 20 {
		t.Fatalf("%d packages", len(all))
	}
	graph, err := checker.Analyze([]*analysis.Analyzer{finder}, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, action := range graph.Roots {
		if action.Err != nil {
			t.Error(action.Err)
		}
		for _, d := range action.Diagnostics {
			at := action.Package.Fset.Position(d.Pos)
			file, err := filepath.Rel(root, at.Filename)
			if err != nil {
				t.Fatal(err)
			}
			used[file] = true
			if allowed[file] == "" && !strings.Contains(file, "test/") { // packages for tests
				t.Errorf("%s:%d: %s", file, at.Line, d.Message)
			}
		}
	}
	for file := range allowed {
		if !used[file] {
			t.Errorf("%s needs no exception any more", file)
		}
	}
}
