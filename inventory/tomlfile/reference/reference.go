// Package reference says what files of people may say: for people as Markdown, for editors as JSON Schema (draft 7,
// json-schema.org/draft-07). Both are made from the structs that the files are decoded into, and the comments beside
// the fields of those.
package reference

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// File is a kind of file.
type File struct {
	Name   string // "experiment"
	About  string // one sentence
	Lister func() tomlfile.Entry
}

// The comments of fields and types, by package, type and field. `go test -update` reads them from the source.
//
//go:embed comments.json
var commentsJSON []byte

var comments = sync.OnceValue(func() (out map[string]string) {
	if err := json.Unmarshal(commentsJSON, &out); err != nil {
		panic(err) // a mistake in what was embedded
	}
	return out
})

// About is what is said of a key and, where it is a table, of that; "" of one of another module.
func About(e tomlfile.Entry) string {
	of := comments()[e.Field]
	if e.Table() && e.Type.Name() != "" {
		of = strings.TrimSpace(of + " " + comments()[e.Type.PkgPath()+"."+e.Type.Name()])
	}
	return of
}

// Value is what a key's value may be: `"fair", "flows" or "fifo"`, `a string, such as "25Gbit/s"`.
func Value(e tomlfile.Entry) string {
	if e.Words == nil {
		return e.Want()
	}
	return tomlfile.Either(e.Words)
}

// Default is a key's default as a file would have it; "" if there is none.
func Default(e tomlfile.Entry) string {
	if e.Default != "" && e.Text() {
		return fmt.Sprintf("%q", e.Default)
	}
	return e.Default
}

// Head is the head of a table: "[switch]", "[[job]]".
func Head(e tomlfile.Entry) string {
	path := strings.ReplaceAll(e.Path, "[]", "")
	if e.Many {
		return "[[" + path + "]]"
	}
	return "[" + path + "]"
}

// Markdown is a page about kinds of files.
func Markdown(files []File) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", f.Name, f.About)
		for e := range f.Lister().All {
			if !e.Table() {
				continue
			}
			if e.Path != "" {
				fmt.Fprintf(&b, "\n### `%s`\n\n%s\n", Head(e), About(e))
			}
			b.WriteString("\n| Key | Value | Default | |\n| --- | --- | --- | --- |\n")
			for _, k := range e.Entries {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Key, cell(Value(k)), cell(code(need(k))), cell(short(k)))
			}
		}
	}
	return b.String()
}

// need is a key's default, or that it must be there.
func need(e tomlfile.Entry) string {
	if e.Required {
		return "required"
	}
	return Default(e)
}

func code(s string) string {
	if s == "" || s == "required" {
		return s
	}
	return "`" + s + "`"
}

// short is About of a key in its table's row: of a table, which has a section of its own, where that is.
func short(e tomlfile.Entry) string {
	if e.Table() {
		return strings.TrimSpace(comments()[e.Field] + " See `" + Head(e) + "`.")
	}
	return About(e)
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// Schema is a kind of file as JSON Schema.
func Schema(f File) ([]byte, error) {
	s := schemaOf(f.Lister())
	s.Schema, s.Title, s.Description = "http://json-schema.org/draft-07/schema#", "inabench "+f.Name, f.About
	return json.MarshalIndent(s, "", "  ")
}

// schema is a JSON Schema, those words of it that files of ours need.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        string             `json:"type,omitempty"`
	Minimum     *int               `json:"minimum,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Examples    []string           `json:"examples,omitempty"`
	Default     json.RawMessage    `json:"default,omitempty"`
	AnyOf       []*schema          `json:"anyOf,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
}

func schemaOf(e tomlfile.Entry) *schema {
	s := one(e)
	if e.Many {
		many := &schema{Type: "array", Items: s}
		if s = many; e.Single {
			s = &schema{AnyOf: []*schema{many.Items, many}}
		}
	}
	s.Description = About(e)
	if d := Default(e); d != "" {
		s.Default = json.RawMessage(d)
	}
	return s
}

// one is a value, or each of an array.
func one(e tomlfile.Entry) *schema {
	zero, no := 0, false
	switch t := e.Type; {
	case e.Table():
		s := &schema{Type: "object", Properties: map[string]*schema{}, Additional: &no}
		for _, sub := range e.Entries {
			s.Properties[sub.Key] = schemaOf(sub)
			if sub.Required {
				s.Required = append(s.Required, sub.Key)
			}
		}
		return s
	case e.Text():
		s := &schema{Type: "string", Enum: e.Words}
		if x := e.Example(); x != "" {
			s.Examples = []string{x}
		}
		return s
	case t.Kind() == reflect.Bool:
		return &schema{Type: "boolean"}
	case t.Kind() == reflect.Float64:
		return &schema{Type: "number"}
	case t.Kind() == reflect.Interface:
		return &schema{}
	case slices.Contains([]reflect.Kind{reflect.Uint, reflect.Uint32, reflect.Uint64}, t.Kind()):
		return &schema{Type: "integer", Minimum: &zero}
	default:
		return &schema{Type: "integer"}
	}
}
