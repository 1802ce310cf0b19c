package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/inventory/tomlfile/reference"
)

// TestEveryKeyIsSaid: what files may say is said of each key.
func TestEveryKeyIsSaid(t *testing.T) {
	for _, f := range files {
		for e := range f.Lister().All {
			if e.Path != "" && reference.About(e) == "" {
				t.Errorf("%s: nothing is said of %s: write a comment beside %s", f.Name, e.Path, e.Field)
			}
		}
	}
}

// TestReferencePage holds docs/REFERENCE.md and the schemas in docs/schema to what the program says.
func TestReferencePage(t *testing.T) {
	page := referenceHead + reference.Markdown(files)
	golden.Compare(t, "../../../docs/REFERENCE.md", page)
	for _, f := range files {
		text, err := reference.Schema(f)
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "../../../docs/schema/"+f.Name+".json", string(text)+"\n")
	}
}

// TestSchemas: the schemas refuse what Decode refuses for its type, in each key, and nothing that ships.
func TestSchemas(t *testing.T) {
	shipped := map[string][]string{
		"experiment": glob(t, "../../experiments/*.toml"),
		"inventory":  glob(t, "../../experiments/racks/*.toml", "../../inventory/testdata/valid-*.toml"),
		"suite":      glob(t, "../../suites/*.toml"),
		"catalogue":  glob(t, "../../placement/workload/models.toml"),
		"patterns":   glob(t, "../../placement/workload/patterns.toml"),
	}
	for _, f := range files {
		t.Run(f.Name, func(t *testing.T) {
			schema := compile(t, f)
			for _, path := range shipped[f.Name] {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := schema.Validate(instance(t, text)); err != nil {
					t.Errorf("%s: the schema refuses it: %v", path, err)
				}
			}
			whole := f.Lister()
			for e := range whole.All {
				for _, value := range valuesOf(e) {
					text, err := toml.Marshal(with(whole, strings.Split(e.Path, "."), value))
					if err != nil {
						t.Fatal(err)
					}
					refused, problems := schema.Validate(instance(t, text)), whole.Check(f.Name+".toml", text)
					if (refused == nil) != (problems == nil) {
						t.Errorf("%s = %v\nschema: %v\nDecode: %v", e.Path, value, refused, problems)
					}
				}
			}
		})
	}
}

func glob(t *testing.T, patterns ...string) (out []string) {
	t.Helper()
	for _, p := range patterns {
		paths, err := filepath.Glob(p)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", p, len(paths), err)
		}
		out = append(out, paths...)
	}
	return out
}

func compile(t *testing.T, f reference.File) *jsonschema.Schema {
	t.Helper()
	text, err := reference.Schema(f)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(f.Name, doc); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile(f.Name)
}

// instance is a TOML text as schemas take it.
func instance(t *testing.T, text []byte) any {
	t.Helper()
	var doc map[string]any
	if _, err := toml.Decode(string(text), &doc); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	again, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(again))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// valuesOf are values of all types, right ones and wrong ones. Which quantities there are is not a schema's to say:
// of texts with a form of their own there is only a right one.
func valuesOf(e tomlfile.Entry) []any {
	if e.Path == "" {
		return nil
	}
	text := any("x")
	if e.Words != nil {
		text = e.Words[0]
	} else if x := e.Example(); x != "" {
		text = x
	} else if e.Text() && e.Type.Kind() != reflect.String {
		return nil // it has a form of its own, and no example
	}
	out := []any{text, 1, 1.5, -1, true, []any{}, []any{text}, []any{1}, []any{1.5}, map[string]any{}, []any{map[string]any{}}, map[string]any{"unknown-key": 1}}
	if e.Words != nil {
		out = append(out, "no such word")
	}
	if e.Table() {
		out = append(out, needed(e), []any{needed(e)})
	}
	return out
}

// with is a file that has a value at a path, and whatever else it must have.
func with(e tomlfile.Entry, path []string, value any) map[string]any {
	m := needed(e)
	key := strings.TrimSuffix(path[0], "[]")
	if len(path) == 1 {
		m[key] = value
		return m
	}
	sub, _ := e.Find(key)
	if m[key] = any(with(sub, path[1:], value)); sub.Many {
		m[key] = []any{m[key]}
	}
	return m
}

// needed is a table with the keys that it must have.
func needed(e tomlfile.Entry) map[string]any {
	m := map[string]any{}
	for _, k := range e.Entries {
		if !k.Required {
			continue
		}
		var v any = 1
		switch {
		case k.Table():
			v = needed(k)
		case k.Words != nil:
			v = k.Words[0]
		case k.Example() != "":
			v = k.Example()
		case k.Text():
			v = "x"
		case k.Type.Kind() == reflect.Float64:
			v = 1.5
		}
		if m[k.Key] = v; k.Many {
			m[k.Key] = []any{v}
		}
	}
	return m
}
