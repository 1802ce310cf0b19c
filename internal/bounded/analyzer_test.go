package bounded_test

import (
	"go/ast"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
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
					if !ok || !unbounded[f.FullName()] || harmless(pass.TypesInfo, f.FullName(), calls[n]) {
						return true
					}
					pass.Reportf(n.Pos(), "%s keeps as much as it is given: package bounded has what does not", f.FullName())
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

func TestFinder(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), finder, "readers")
}

// allowed are files in which a reader is bounded in another way, and how.
var allowed = map[string]string{
	"internal/golden/golden.go": "files of tests",
	"placement/trace/read.go":   "a reader beneath ends after 1 MiB without the end of a row",
}

// TestEveryReaderIsBounded looks at all packages of the module, by types.
func TestEveryReaderIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the whole module")
	}
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
