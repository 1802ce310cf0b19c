package tomlfile

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// Key is a dotted key, as --set and [[sweep]] take it, found in a schema.
// "job.A.rate" is the rate of the job whose name is A; "job.0.rate" that of the first.
type Key struct {
	Path  string       // "job[0].rate"
	Type  reflect.Type // of the field it sets
	steps []any        // string or int
}

// Key finds a dotted key in the type of schema, a struct as Decode takes it or a
// pointer to one, and tables that it selects by name in the file. The error has a
// hint (HintOf) with the nearest name.
func (f *File) Key(schema any, dotted string) (Key, error) {
	t := reflect.TypeOf(schema)
	var node any = f.tree
	k := Key{}
	where := ""
	for _, name := range strings.Split(dotted, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			items, _ := array(node)
			i := pick(items, name)
			if i < 0 {
				return Key{}, WithHint(DidYouMean(name, itemNames(items)), "no %s %q", where, name)
			}
			node, t = items[i], t.Elem()
			k.Path = itemPath(k.Path, i)
			k.steps = append(k.steps, i)
		case t.Kind() == reflect.Struct && !isText(t):
			fs, _ := f.fields(t)
			i := slices.IndexFunc(fs, func(fd field) bool { return fd.name == name })
			if i < 0 {
				return Key{}, WithHint(f.meant(schema, dotted, name, names(fs)), "unknown key %q%s", name, in(k.Path))
			}
			t = fs[i].typ
			m, _ := node.(map[string]any)
			node, where = m[name], name
			k.Path = joinPath(k.Path, name)
			k.steps = append(k.steps, name)
		default:
			return Key{}, WithHint("", "%q has no key %q: it is not a table", where, name)
		}
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct && !isText(t) {
		fs, _ := f.fields(t)
		return Key{}, WithHint("one of its keys: "+strings.Join(names(fs), ", "), "%q is a table", dotted)
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		return Key{}, WithHint("name one of them, and its key: "+dotted+".NAME.KEY", "%q is an array of tables", dotted)
	}
	k.Type = t
	return k, nil
}

// mostMeant is how many keys of other tables a hint names at most.
const mostMeant = 3

// meant is the hint for a name of a dotted key that is none of those known in its table: the nearest of them, else the
// keys of other tables that end as the dotted one does, where these are few.
func (f *File) meant(schema any, dotted, name string, known []string) string {
	if _, ok := Nearest(name, known); ok {
		return DidYouMean(name, known)
	}
	last := dotted[strings.LastIndexByte(dotted, '.')+1:]
	var same []string
	for e := range Describe(schema, f.tables...).All {
		if e.Key == last && last != "" && !e.Table() {
			same = append(same, strings.ReplaceAll(e.Path, "[]", ".NAME"))
		}
	}
	if len(same) == 0 || len(same) > mostMeant {
		return DidYouMean(name, known)
	}
	return "did you mean " + Either(same) + "?"
}

// pick is the table of an array with the given name, or number, or -1.
func pick(items []any, name string) int {
	if i := slices.Index(itemNames(items), name); i >= 0 && name != "" {
		return i
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(items) {
		return i
	}
	return -1
}

func itemNames(items []any) []string {
	out := make([]string, len(items))
	for i, it := range items {
		m, _ := it.(map[string]any)
		out[i], _ = m["name"].(string)
	}
	return out
}

// With is the file with another value at a key, as TOML would give it (string,
// int64, float64, bool, []any). Problems with that value are reported at the given
// place. The receiver is unchanged; the problems recorded in it are not carried over.
func (f *File) With(k Key, v any, at Pos) *File {
	g := *f
	g.problems = nil
	g.tree = replace(f.tree, k.steps, v).(map[string]any)
	g.set = append(slices.Clone(f.set), override{k.Path, at})
	return &g
}

// replace copies what it changes and shares the rest.
func replace(node any, steps []any, v any) any {
	if len(steps) == 0 {
		return v
	}
	switch s := steps[0].(type) {
	case string:
		m, _ := node.(map[string]any)
		if m = maps.Clone(m); m == nil {
			m = map[string]any{}
		}
		m[s] = replace(m[s], steps[1:], v)
		return m
	case int:
		items, _ := array(node)
		items = slices.Clone(items)
		items[s] = replace(items[s], steps[1:], v)
		return items
	}
	return node
}

// Set applies an assignment from the command line: "switch.pat_ratio=0.5",
// "job.A.rate=20Gbit/s" (strings need no quotes), "job.A.hosts=h1,h2". Problems with
// its value are later reported as of the file "--set switch.pat_ratio=0.5". The error
// is Problems.
func (f *File) Set(schema any, assignment string) (*File, error) {
	at := Pos{File: "--set " + assignment}
	key, text, ok := strings.Cut(assignment, "=")
	if !ok {
		return nil, Problems{{at, "not an assignment", "write key=value"}}
	}
	k, err := f.Key(schema, strings.TrimSpace(key))
	if err != nil {
		return nil, Problems{{at, err.Error(), HintOf(err)}}
	}
	return f.With(k, literal(k.Type, strings.TrimSpace(text)), at), nil
}

// literal reads a value from a text without needing quotes around strings. A text
// that does not fit the type stays a string, which Decode then refuses.
func literal(t reflect.Type, text string) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	isString := t.Kind() == reflect.String || isText(t)
	if isString && !strings.HasPrefix(text, `"`) && !strings.HasPrefix(text, `'`) {
		return text
	}
	var doc map[string]any
	if _, much := excess(text); much != "" {
		return text
	} else if md, err := toml.Decode("v = "+text, &doc); err == nil && len(md.Keys()) == 1 {
		v := doc["v"]
		_, many := array(v)
		if _, table := v.(map[string]any); t.Kind() == reflect.Slice && !isText(t) && !many && !table {
			return []any{v} // of one item
		}
		return v
	}
	if t.Kind() == reflect.Slice {
		var items []any
		for _, s := range strings.Split(text, ",") {
			items = append(items, literal(t.Elem(), strings.TrimSpace(s)))
		}
		return items
	}
	return text
}
