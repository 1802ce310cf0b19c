// Package tomlfile is the strict front end of every TOML file that a person
// writes: inventories and experiments.
//
// It reports all problems of a file at once, each with the line and column it is
// about and, where there is one, a hint:
//
//	lab.toml:12:8: link to unknown switch "s9": did you mean "s1"?
//
// Values come from github.com/BurntSushi/toml. Positions come from an index of our
// own, because that library finds keys by their dotted name without array index:
// in files made of arrays of tables it names the wrong line.
//
// A caller decodes into a struct and then reports what only it can know:
//
//	f, err := tomlfile.Parse("lab.toml", text)
//	f.Decode(&lab)
//	f.Problemf("link[2].a", hint, "link to unknown switch %q", name)
//	return f.Err()
//
// Paths are written as in "host[2].nic[0].rate".
package tomlfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// Bounds of a file. maxSize keeps a wrong file name (a disk image, a pcap) from being read as TOML. The
// library's memory grows with the square of what is nested and of a key's parts: 10,000 of these are
// 2 GB.
const (
	maxSize  = 8 << 20
	maxDepth = 64
	maxParts = 64
	// maxItems is how many keys, tables and elements of arrays a file has: each costs some kilobytes until it is checked.
	maxItems = 300_000
)

// File is a parsed TOML text together with the problems found in it so far. It is
// not safe for concurrent use.
type File struct {
	Name     string // as given to Parse; it begins every problem
	Text     string
	tree     map[string]any
	index    *index
	tables   []Table
	set      []override
	problems Problems
}

// Table is a table at the top of a file that the struct which the file is decoded into does not know: a field of it,
// tagged `toml:",tables"`, takes all of them by their keys.
type Table struct {
	Key  string
	Type reflect.Type // a pointer to a struct, or a slice of structs
}

// override is a value that replaces the text's, and where it came from.
type override struct {
	path string
	at   Pos
}

// Parse reads a text. The error is Problems, with a single one: TOML's syntax
// errors end the reading. Tables are those that a struct's own fields do not name.
func Parse(name string, text []byte, tables ...Table) (f *File, err error) {
	x := newIndex(string(text))
	fail := func(off int, format string, args ...any) (*File, error) {
		line, col := x.pos(off)
		return nil, Problems{{Pos: Pos{name, line, col}, Msg: fmt.Sprintf(format, args...)}}
	}
	if len(text) > maxSize {
		return nil, Problems{{Pos: Pos{File: name}, Msg: fmt.Sprintf("%d bytes are too many for a TOML file (limit %d)", len(text), maxSize)}}
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return fail(i, "byte 0x%02x is not UTF-8", text[i])
		}
		i += n
	}
	if off, what := excess(x.text); what != "" {
		return fail(off, "%s", what)
	}
	// The library panics where it meets its own bugs; a file must never end us.
	defer func() {
		if r := recover(); r != nil {
			f, err = fail(0, "the TOML parser gave up: %v", r)
		}
	}()
	f = &File{Name: name, Text: x.text, index: x, tables: tables}
	if _, err := toml.Decode(x.text, &f.tree); err != nil {
		var pe toml.ParseError
		if !errors.As(err, &pe) {
			return fail(0, "%v", err)
		}
		off := pe.Position.Start
		if strings.HasPrefix(x.text, "\ufeff") {
			off += len("\ufeff")
		}
		// Where an error is about the end of a line, the library's offset is already
		// that of the next line's start; its line number is right.
		if line, _ := x.pos(off); line != pe.Position.Line && pe.Position.Line >= 1 && pe.Position.Line < len(x.lines) {
			if line > pe.Position.Line {
				off = x.lines[pe.Position.Line] - 1
			} else {
				off = x.lines[pe.Position.Line-1]
			}
		}
		// And sometimes both are those of the next line.
		if strings.Contains(pe.Message, `got '\n'`) && off > 0 && off <= len(x.text) && x.text[off-1] == '\n' {
			off--
		}
		return fail(off, "%s", message(pe.Message))
	}
	x.scan()
	return f, nil
}

// excess finds what is nested too deep or has too many parts, before anybody builds anything of it. It
// need not know what is right: of brackets and dots outside strings and comments there are few.
func excess(text string) (off int, what string) {
	depth, parts, items := 0, 1, 0
	for i, c := range plain(text) {
		if c == '=' || c == '[' || c == ',' {
			if items++; items > maxItems {
				return i, fmt.Sprintf("more than %d keys, tables and elements", maxItems)
			}
		}
		switch c {
		case '[', '{':
			if depth, parts = depth+1, 1; depth > maxDepth {
				return i, fmt.Sprintf("more than %d tables or arrays in each other", maxDepth)
			}
		case ']', '}':
			depth, parts = max(0, depth-1), 1
		case '\n', ',', '=':
			parts = 1
		case '.':
			if parts++; parts > maxParts {
				return i, fmt.Sprintf("a key of more than %d parts", maxParts)
			}
		}
	}
	return 0, ""
}

// message is the library's message in our style: no capital, no full stop.
func message(s string) string {
	s = strings.TrimSuffix(s, ".")
	if len(s) > 1 && s[0] >= 'A' && s[0] <= 'Z' && s[1] >= 'a' {
		s = strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

// Has reports whether the file (or an override) gives a value at path.
func (f *File) Has(path string) bool {
	for _, o := range f.set {
		if within(o.path, path) {
			return true
		}
	}
	_, ok := f.index.spans[path]
	return ok
}

// Pos is where the value at path stands; for a path that the file does not have,
// where the innermost table around it begins.
func (f *File) Pos(path string) Pos {
	return f.find(path, func(s span) int { return s.value })
}

// KeyPos is Pos of the key in place of the value.
func (f *File) KeyPos(path string) Pos {
	return f.find(path, func(s span) int { return s.key })
}

func (f *File) find(path string, offset func(span) int) Pos {
	for {
		// The latest override of this value or of what it is in.
		for i := len(f.set) - 1; i >= 0; i-- {
			if within(path, f.set[i].path) {
				return f.set[i].at
			}
		}
		if s, ok := f.index.spans[path]; ok {
			line, col := f.index.pos(offset(s))
			return Pos{f.Name, line, col}
		}
		for _, o := range f.set {
			if within(o.path, path) { // a table that only an override made
				return o.at
			}
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return Pos{f.Name, 1, 1}
		}
		path = path[:cut]
	}
}

// within reports whether path is outer or something inside it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Problemf records a problem with the value at path. An empty hint is fine.
func (f *File) Problemf(path, hint, format string, args ...any) {
	if !f.Full() {
		f.Report(f.Pos(path), hint, format, args...)
	}
}

// KeyProblemf records a problem with the key at path.
func (f *File) KeyProblemf(path, hint, format string, args ...any) {
	if !f.Full() {
		f.Report(f.KeyPos(path), hint, format, args...)
	}
}

// Reported says whether something at a path has been found wrong already: one problem of it is enough.
func (f *File) Reported(path string) bool {
	at := f.Pos(path)
	return slices.ContainsFunc(f.problems, func(p Problem) bool { return p.Pos == at })
}

// Full says that there are more problems than are recorded: whoever looks for others may stop.
func (f *File) Full() bool { return len(f.problems) > mostProblems }

// mostProblems are how many are recorded of a file: nobody reads more, and one of some megabytes can have a million.
const mostProblems = 1000

// Report records a problem at any place; of those beyond mostProblems only that there are more.
func (f *File) Report(at Pos, hint, format string, args ...any) {
	if f.Full() {
		return
	}
	if len(f.problems) == mostProblems {
		at, hint, format, args = Pos{File: f.Name}, "mend these first", "more than %d problems", []any{mostProblems}
	}
	f.problems = append(f.problems, Problem{at, fmt.Sprintf(format, args...), hint})
}

// Problems are those recorded so far, in the order of their recording.
func (f *File) Problems() Problems { return f.problems }

// Err is everything recorded so far as a Problems error, in file order, or nil.
func (f *File) Err() error { return f.problems.Err() }
