package tomlfile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Entry is one key that files of a kind may have, as the struct says it that they are decoded into. What a file
// may say is nowhere else: references, schemas and the checks of Decode are made from it.
type Entry struct {
	Key      string       // in its table; "" of the whole file
	Path     string       // "host[].nic[].rate"; "" of the whole file
	Field    string       // of which struct it is, with that one's package: "example.org/lab.nicTable.Rate"; "" of a table that Parse was told of
	Type     reflect.Type // of a value, or of each in an array
	Many     bool         // it is an array,
	Single   bool         // of which one may stand alone
	Required bool
	Default  string   // as it would be written, without quotes; "" if there is none
	Words    []string // all that it may be; nil if that is more than some words
	Entries  []Entry  // of a table, or of each in an array of tables

	tables []Table // of the whole file
}

// Wordy is a struct of a file that has keys whose values are of some words, which are not known before the program
// runs. Words that are known stand in a tag of the field: `words:"ring,ina"`.
type Wordy interface {
	// WordsOf are those of a key, nil if it may be anything. The pointer that it is called of is nil.
	WordsOf(key string) []string
}

// Describe lists what files may say that are decoded into a struct, given as a value or a pointer, with tables as
// Parse takes them: the whole file as one table.
func Describe(schema any, tables ...Table) Entry {
	t := bare(reflect.TypeOf(schema))
	f := &File{tables: tables}
	return Entry{Type: t, Entries: f.describe("", t), tables: tables}
}

// Check finds what a text says that a whole file, as Describe returns it, may not say. What is wrong for other
// reasons than the type of a value it does not find. The error is Problems.
func (e Entry) Check(name string, text []byte) error {
	f, err := Parse(name, text, e.tables...)
	if err != nil {
		return err
	}
	f.Decode(reflect.New(e.Type).Interface())
	return f.Err()
}

func bare(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func (f *File) describe(path string, t reflect.Type) (out []Entry) {
	fs, _ := f.fields(t)
	for _, fd := range fs {
		e := Entry{
			Key: fd.name, Path: joinPath(path, fd.name), Type: bare(fd.typ),
			Single: fd.single, Required: fd.required, Default: fd.def, Words: fd.words,
		}
		if !fd.extra {
			e.Field = t.PkgPath() + "." + t.Name() + "." + t.Field(fd.index).Name
		}
		if e.Type.Kind() == reflect.Slice && !isText(e.Type) {
			e.Type, e.Many = bare(e.Type.Elem()), true
		}
		if e.Type.Kind() == reflect.Struct && !isText(e.Type) {
			sub := e.Path
			if e.Many {
				sub += "[]"
			}
			e.Entries = f.describe(sub, e.Type)
		}
		out = append(out, e)
	}
	return out
}

// wordsOf are the words that a tag names, or the struct itself.
func wordsOf(t reflect.Type, key, tag string) []string {
	if tag != "" {
		return strings.Split(tag, ",")
	}
	if w, ok := reflect.Zero(reflect.PointerTo(t)).Interface().(Wordy); ok {
		return w.WordsOf(key)
	}
	return nil
}

// Table says whether the key is of a table or of an array of them.
func (e Entry) Table() bool { return e.Entries != nil }

// Find is the entry at a path, which may leave out the brackets of arrays.
func (e Entry) Find(path string) (Entry, bool) {
	if path == "" {
		return e, true
	}
	key, rest, _ := strings.Cut(strings.ReplaceAll(path, "[]", ""), ".")
	i := slices.IndexFunc(e.Entries, func(sub Entry) bool { return sub.Key == key })
	if i < 0 {
		return Entry{}, false
	}
	return e.Entries[i].Find(rest)
}

// All yields the entry and all within it, in their order.
func (e Entry) All(yield func(Entry) bool) { e.each(yield) }

func (e Entry) each(yield func(Entry) bool) bool {
	return yield(e) && !slices.ContainsFunc(e.Entries, func(sub Entry) bool { return !sub.each(yield) })
}

// Want says what a value must be: "a whole number", "a string, such as "25Gbit/s"", "tables".
func (e Entry) Want() string {
	what := wanted(e.Type)
	switch {
	case e.Table() && e.Many:
		return "an array of tables"
	case e.Table():
		return "a table"
	case e.Type.Kind() == reflect.Interface:
		what = "any value"
	case isText(e.Type):
		what = "a string"
		if x := e.Example(); x != "" {
			what += fmt.Sprintf(", such as %q", x)
		}
	}
	switch {
	case e.Many && e.Single:
		return what + ", or an array"
	case e.Many && e.Type.Kind() == reflect.Interface:
		return "an array"
	case e.Many:
		return "an array: each " + what
	}
	return what
}

// Example is how a quantity is written, "" of what is none.
func (e Entry) Example() string {
	if x, ok := reflect.New(e.Type).Interface().(interface{ Example() string }); ok {
		return x.Example()
	}
	return ""
}

// Text says whether a value is a text, such as a quantity with its unit.
func (e Entry) Text() bool {
	return e.Type.Kind() == reflect.String || isText(e.Type)
}
