package tomlfile

import (
	"cmp"
	"encoding"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Suggester is a quantity that can say how a bare number should have been
// written, the likeliest way first: BitRate turns 25 into "25Gbit/s".
type Suggester interface {
	Suggest(number float64) []string
}

// Decode fills the struct that dst points to, and records every problem: unknown
// keys, values of a wrong type, missing keys, texts that an UnmarshalText method
// refuses, bare numbers where a unit is needed. Where there was a problem, the
// field keeps its zero value.
//
// Only fields with a tag take part:
//
//	Rate  BitRate `toml:"rate,required"`               // absent is a problem
//	Lanes int     `toml:"lanes" default:"240"`         // absent is 240
//	NICs  []nic   `toml:"nic,single"`                  // nic = {...} is an array of one; so is a string
//	Queue string  `toml:"queue" words:"fair,fifo"`     // any other word is a problem; see also Wordy
//	At    string  `toml:",path"`                       // receives the table's own path
//	More  map[string]any `toml:",tables"`              // receives the tables that Parse was told of
func (f *File) Decode(dst any) {
	d := decoder{f: f}
	d.table("", f.tree, reflect.ValueOf(dst).Elem())
	for _, unknown := range d.words {
		unknown()
	}
}

type decoder struct {
	f     *File
	words []func() // report unknown ones: what has them is a table all the same, and looked at further
}

// field is a struct field's tag, taken apart.
type field struct {
	index            int          // of a table that Parse was told of: that of the map for it
	typ              reflect.Type // of what it is decoded into
	extra            bool         // it is one of those tables
	name             string
	required, single bool
	def              string
	hasDefault       bool
	words            []string
}

// fields lists the tagged fields of a struct; at is the index of the one that
// receives the path, or -1.
func (f *File) fields(t reflect.Type) (fs []field, at int) {
	at = -1
	for i := range t.NumField() {
		tag, ok := t.Field(i).Tag.Lookup("toml")
		if !ok {
			continue
		}
		name, opts, _ := strings.Cut(tag, ",")
		if name == "" && opts == "path" {
			at = i
			continue
		}
		if name == "" && opts == "tables" {
			for _, x := range f.tables {
				fs = append(fs, field{index: i, typ: x.Type, extra: true, name: x.Key})
			}
			continue
		}
		fd := field{index: i, typ: t.Field(i).Type, name: name, required: opts == "required", single: opts == "single"}
		fd.def, fd.hasDefault = t.Field(i).Tag.Lookup("default")
		fd.words = wordsOf(t, name, t.Field(i).Tag.Get("words"))
		fs = append(fs, fd)
	}
	return fs, at
}

func names(fs []field) []string {
	out := make([]string, len(fs))
	for i, fd := range fs {
		out[i] = fd.name
	}
	return out
}

func (d *decoder) table(path string, m map[string]any, dst reflect.Value) {
	if d.f.Full() {
		return
	}
	fs, at := d.f.fields(dst.Type())
	if at >= 0 {
		dst.Field(at).SetString(path)
	}
	known := 0
	for _, fd := range fs {
		v, ok := m[fd.name]
		sub := joinPath(path, fd.name)
		to := dst.Field(fd.index)
		switch {
		case ok && fd.extra:
			known++
			if to.IsNil() {
				to.Set(reflect.MakeMap(to.Type()))
			}
			fresh := reflect.New(fd.typ).Elem()
			if d.value(sub, v, fresh, false); !fresh.IsZero() {
				to.SetMapIndex(reflect.ValueOf(fd.name), fresh)
			}
		case fd.extra:
		case ok:
			known++
			d.value(sub, v, to, fd.single)
			d.word(sub, fd, to)
		case fd.required:
			d.f.KeyProblemf(path, "", "missing %s", describe(path, fd.name))
		case fd.hasDefault:
			d.value(sub, literal(to.Type(), fd.def), to, false)
		case to.Kind() == reflect.Struct && !isText(to.Type()):
			d.table(sub, nil, to) // for its defaults
		}
	}
	if known == len(m) {
		return
	}
	var unknown []string
	place := map[string]Pos{}
	for key := range m {
		if !slices.ContainsFunc(fs, func(fd field) bool { return fd.name == key }) {
			unknown, place[key] = append(unknown, key), d.f.KeyPos(joinPath(path, key))
		}
	}
	slices.SortFunc(unknown, func(a, b string) int { // the first of a file are those that are told
		return cmp.Or(cmp.Compare(place[a].Line, place[b].Line), cmp.Compare(place[a].Col, place[b].Col), cmp.Compare(a, b))
	})
	for _, key := range unknown {
		if d.f.Full() {
			return
		}
		d.f.Report(place[key], DidYouMean(key, names(fs)), "unknown key %q%s", key, in(path))
	}
}

// word reports a text that is not one of the words that there are for its key.
func (d *decoder) word(path string, fd field, v reflect.Value) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return // reported
		}
		v = v.Elem()
	}
	if fd.words == nil || v.Kind() != reflect.String {
		return
	}
	word := v.String()
	if word == "" && !fd.required && !fd.hasDefault {
		return // as if it were not there
	}
	if !slices.Contains(fd.words, word) {
		d.words = append(d.words, func() {
			if !d.f.Reported(path) {
				d.f.Problemf(path, OneOf(word, fd.words), "unknown %s %q", fd.name, word)
			}
		})
	}
}

// tableName is a path as its header shows it: "host[2].nic[0]" is "host.nic".
func tableName(path string) string {
	var b strings.Builder
	depth := 0
	for _, r := range path {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func in(path string) string {
	if path == "" {
		return ""
	}
	return " in " + tableName(path)
}

func describe(path, key string) string { return key + in(path) }

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textUnmarshaler) }

func (d *decoder) value(path string, v any, dst reflect.Value, single bool) {
	if d.f.Full() {
		return
	}
	t := dst.Type()
	if t.Kind() == reflect.Pointer {
		p := reflect.New(t.Elem())
		n := len(d.f.problems)
		d.value(path, v, p.Elem(), single)
		if len(d.f.problems) == n {
			dst.Set(p)
		}
		return
	}
	name := tableName(path)
	if isText(t) {
		d.text(path, name, v, dst)
		return
	}
	switch t.Kind() {
	case reflect.Interface:
		dst.Set(reflect.ValueOf(v))
		return
	case reflect.Struct:
		if m, ok := v.(map[string]any); ok {
			d.table(path, m, dst)
			return
		}
	case reflect.Slice:
		switch v.(type) {
		case map[string]any, string:
			if single {
				dst.Set(reflect.MakeSlice(t, 1, 1))
				d.value(path, v, dst.Index(0), false)
				return
			}
		}
		if items, ok := array(v); ok {
			dst.Set(reflect.MakeSlice(t, len(items), len(items)))
			for i, it := range items {
				d.value(itemPath(path, i), it, dst.Index(i), false)
			}
			return
		}
	case reflect.String:
		if s, ok := v.(string); ok {
			dst.SetString(s)
			return
		}
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			dst.SetBool(b)
			return
		}
	case reflect.Int, reflect.Int64, reflect.Int32:
		if n, ok := v.(int64); ok {
			if dst.OverflowInt(n) {
				d.f.Problemf(path, "", "%s is out of range: %d", name, n)
			} else {
				dst.SetInt(n)
			}
			return
		}
	case reflect.Uint, reflect.Uint64, reflect.Uint32:
		if n, ok := v.(int64); ok {
			if n < 0 || dst.OverflowUint(uint64(n)) {
				d.f.Problemf(path, "", "%s is out of range: %d", name, n)
			} else {
				dst.SetUint(uint64(n))
			}
			return
		}
	case reflect.Float64:
		switch n := v.(type) {
		case int64:
			dst.SetFloat(float64(n))
			return
		case float64:
			if math.IsNaN(n) || math.IsInf(n, 0) {
				d.f.Problemf(path, "", "%s must be a finite number", name)
			} else {
				dst.SetFloat(n)
			}
			return
		}
	default:
		panic("tomlfile: no way to decode into " + t.String()) // a mistake in our own types
	}
	d.f.Problemf(path, "", "%s is %s, want %s", name, tomlType(v), wanted(t))
}

// text decodes into a type with an UnmarshalText method.
func (d *decoder) text(path, name string, v any, dst reflect.Value) {
	var number float64
	switch v := v.(type) {
	case string:
		fresh := reflect.New(dst.Type())
		if err := fresh.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(v)); err != nil {
			d.f.Problemf(path, HintOf(err), "%s: %v", name, err)
			return
		}
		dst.Set(fresh.Elem())
		return
	case int64:
		number = float64(v)
	case float64:
		number = v
	default:
		d.f.Problemf(path, "", "%s is %s, want a string", name, tomlType(v))
		return
	}
	hint := ""
	if s, ok := dst.Addr().Interface().(Suggester); ok && number >= 0 {
		hint = "write " + Either(s.Suggest(number))
	}
	d.f.Problemf(path, hint, "%s is a bare number, it needs a unit", name)
}

// Either is texts of which one is to be chosen: "5s", "5ms" or "5us".
func Either(texts []string) string {
	if last := len(texts) - 1; last > 0 {
		return Strings(texts[:last]) + " or " + Strings(texts[last:])
	}
	return Strings(texts)
}

// Strings are texts without control characters as the elements of an array: "h1", "h2".
func Strings(texts []string) string {
	quoted := make([]string, len(texts))
	for i, s := range texts {
		quoted[i] = strconv.Quote(s)
	}
	return strings.Join(quoted, ", ")
}

// array is a TOML array, of tables or of anything, as []any.
func array(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case []map[string]any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = v[i]
		}
		return out, true
	}
	return nil, false
}

func tomlType(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case time.Time:
		return "a date"
	case map[string]any:
		return "a table"
	}
	return "an array"
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		return "a table"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return "an array of tables"
		}
		return "an array"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	}
	return "a whole number"
}
