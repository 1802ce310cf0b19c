package reference

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write comments.json")

const (
	root   = "../../.."
	module = "github.com/inabench/inabench"
)

// TestComments holds comments.json to the source.
func TestComments(t *testing.T) {
	got, err := json.MarshalIndent(sourceComments(t), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile("comments.json", got, 0o666); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(got, commentsJSON) {
		t.Error("comments.json is not what the source says: go test ./inventory/tomlfile/reference -update")
	}
}

// sourceComments reads the comments of all structs with keys of TOML, by package, type and field.
func sourceComments(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "examples" || strings.HasPrefix(name, ".") && path != root):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(`toml:"`)) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				for _, sp := range g.Specs {
					readType(out, module+"/"+filepath.ToSlash(dir)+".", g, sp.(*ast.TypeSpec))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readType(out map[string]string, in string, decl *ast.GenDecl, sp *ast.TypeSpec) {
	st, ok := sp.Type.(*ast.StructType)
	if !ok {
		return
	}
	keys := map[string]string{}
	for _, f := range st.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 {
			continue
		}
		tag, _ := strconv.Unquote(f.Tag.Value)
		if key, _, _ := strings.Cut(reflect.StructTag(tag).Get("toml"), ","); key != "" {
			keys[f.Names[0].Name] = key
		}
	}
	if len(keys) == 0 {
		return
	}
	doc := sp.Doc
	if doc == nil && !decl.Lparen.IsValid() {
		doc = decl.Doc
	}
	if text := said(sp.Name.Name, keys, doc); text != "" {
		out[in+sp.Name.Name] = text
	}
	open := "" // a field that ends with "; or": the next one can stand in its place
	for _, f := range st.Fields.List {
		if len(f.Names) != 1 || keys[f.Names[0].Name] == "" {
			continue
		}
		at := in + sp.Name.Name + "." + f.Names[0].Name
		if open != "" {
			out[open] = strings.TrimSuffix(out[open], ".") + " `" + keys[f.Names[0].Name] + "`."
			open = ""
		}
		if text := said(f.Names[0].Name, keys, f.Doc, f.Comment); text != "" {
			if out[at] = text; strings.HasSuffix(text, "; or.") {
				open = at
			}
		}
	}
}

var (
	word  = regexp.MustCompile(`\b[A-Z]\w*[a-z]\w*\b`)
	nouns = []string{"GPUs", "Aggregators", "Figure"} // which are also names of fields
	plain = regexp.MustCompile(`^[a-z]+([ ,;]|$)`)
)

// said is what comments say of a name, as sentences about keys of a file rather than fields. Of a type it is the
// first paragraph: others are for who writes programs.
func said(name string, keys map[string]string, groups ...*ast.CommentGroup) string {
	var sentences []string
	for _, g := range groups {
		text := g.Text()
		if keys[name] == "" {
			text, _, _ = strings.Cut(text, "\n\n")
		}
		text = strings.Join(strings.Fields(text), " ")
		for _, verb := range []string{" is ", " are ", " "} {
			text = strings.TrimPrefix(text, name+verb)
		}
		if text == "" {
			continue
		}
		text = word.ReplaceAllStringFunc(text, func(w string) string {
			if key := keys[w]; key != "" && !slices.Contains(nouns, w) {
				return "`" + key + "`"
			}
			return w
		})
		if plain.MatchString(text) {
			text = strings.ToUpper(text[:1]) + text[1:]
		}
		if !strings.HasSuffix(text, ".") {
			text += "."
		}
		sentences = append(sentences, text)
	}
	return strings.Join(sentences, " ")
}

// TestSaid is what becomes of comments.
func TestSaid(t *testing.T) {
	keys := map[string]string{"PATRatio": "pat_ratio", "Rate": "rate"}
	for _, tt := range []struct{ name, doc, line, want string }{
		{"Rate", "// Rate is that of a cable.\n", "", "That of a cable."},
		{"PATRatio", "// PATRatio sets Rate.\n", "// 0: unset", "Sets `rate`. 0: unset."},
		{"Rate", "", "// tofino.bin of 8 GPUs", "tofino.bin of 8 GPUs."},
		{"Rack", "// Rack says where.\n//\n// It is for programs.\n", "", "Says where."},
		{"X", "", "", ""},
	} {
		group := func(text string) *ast.CommentGroup {
			if text == "" {
				return nil
			}
			g := &ast.CommentGroup{}
			for line := range strings.Lines(text) {
				g.List = append(g.List, &ast.Comment{Text: strings.TrimSpace(line)})
			}
			return g
		}
		if got := said(tt.name, keys, group(tt.doc), group(tt.line)); got != tt.want {
			t.Errorf("said(%q, %q) = %q, want %q", tt.doc, tt.line, got, tt.want)
		}
	}
	if got := slices.Sorted(maps.Keys(comments())); len(got) == 0 {
		t.Error("no comments")
	}
}
