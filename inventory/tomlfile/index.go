package tomlfile

import (
	"iter"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// span is where a key and its value begin, as byte offsets. A table has the
// offset of its name in the header for both.
type span struct{ key, value int }

// index finds the place of every key, value and table of a TOML text by its path:
// "host[2].nic[0].rate". It assumes a text that a TOML parser has accepted, and on
// any other it is merely wrong: every step moves forward, so it always ends.
type index struct {
	text  string
	lines []int // offset of each line's first byte
	spans map[string]span
}

func newIndex(text string) *index {
	x := &index{text: text, lines: []int{0}, spans: map[string]span{}}
	for i := 0; i < len(text); i++ {
		if text[i] == '\n' {
			x.lines = append(x.lines, i+1)
		}
	}
	return x
}

// pos is the line and column (both from 1, columns in characters) of a byte offset.
func (x *index) pos(off int) (line, col int) {
	off = min(max(off, 0), len(x.text))
	for off > 0 && off < len(x.text) && !utf8.RuneStart(x.text[off]) {
		off--
	}
	line = sort.SearchInts(x.lines, off+1)
	return line, utf8.RuneCountInString(x.text[x.lines[line-1]:off]) + 1
}

// joinPath appends a key to a path, quoted where it is not a bare TOML key.
func joinPath(path, key string) string {
	if !isBare(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// itemPath appends an array index to a path.
func itemPath(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func isBare(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isBareByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isBareByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// scanner walks a text and fills an index.
type scanner struct {
	*index
	i      int
	tables map[string]int // number of [[...]] headers seen, by path of the array
}

// part is one component of a dotted key.
type part struct {
	name string
	off  int
}

func (x *index) scan() {
	s := &scanner{index: x, tables: map[string]int{}}
	if strings.HasPrefix(x.text, "\ufeff") {
		s.i = len("\ufeff")
	}
	table := ""
	for {
		s.skip(" \t\r\n")
		if s.i >= len(s.text) {
			return
		}
		if s.text[s.i] == '[' {
			table = s.header()
		} else {
			s.keyValue(table)
		}
		s.skip(" \t\r")
		if s.i < len(s.text) && s.text[s.i] != '\n' {
			s.i++ // not TOML: move on
		}
	}
}

// skip moves over the given bytes and over comments.
func (s *scanner) skip(set string) {
	for s.i < len(s.text) {
		switch c := s.text[s.i]; {
		case strings.IndexByte(set, c) >= 0:
			s.i++
		case c == '#':
			if n := strings.IndexByte(s.text[s.i:], '\n'); n >= 0 {
				s.i += n
			} else {
				s.i = len(s.text)
			}
		default:
			return
		}
	}
}

func (s *scanner) accept(c byte) bool {
	if s.i < len(s.text) && s.text[s.i] == c {
		s.i++
		return true
	}
	return false
}

// header reads [a.b] or [[a.b]] and returns the path of the table it opens.
func (s *scanner) header() string {
	s.accept('[')
	array := s.accept('[')
	key := s.key()
	s.accept(']')
	if array {
		s.accept(']')
	}
	path := ""
	for i, p := range key {
		path = joinPath(path, p.name)
		last := i == len(key)-1
		if !last || !array {
			// A table, or the latest one of an array of tables.
			if last {
				s.spans[path] = span{p.off, p.off}
			} else {
				s.note(path, p.off)
			}
			if n := s.tables[path]; n > 0 {
				path = itemPath(path, n-1)
			}
			continue
		}
		s.note(path, p.off)
		n := s.tables[path]
		s.tables[path]++
		path = itemPath(path, n)
		s.spans[path] = span{p.off, p.off}
	}
	return path
}

// note records a table that is only implied, at its first mention.
func (s *scanner) note(path string, off int) {
	if _, ok := s.spans[path]; !ok {
		s.spans[path] = span{off, off}
	}
}

// keyValue reads "a.b = value" in the table with the given path.
func (s *scanner) keyValue(path string) {
	key := s.key()
	s.skip(" \t")
	s.accept('=')
	s.skip(" \t")
	off := s.i
	for i, p := range key {
		path = joinPath(path, p.name)
		if i < len(key)-1 {
			s.note(path, p.off)
		} else {
			off = p.off
		}
	}
	s.value(path, off)
}

// key reads a dotted key.
func (s *scanner) key() []part {
	var parts []part
	for {
		s.skip(" \t")
		p := part{off: s.i}
		if s.i < len(s.text) && (s.text[s.i] == '"' || s.text[s.i] == '\'') {
			p.name = unquote(s.quoted())
		} else {
			for s.i < len(s.text) && strings.IndexByte(" \t\r\n.=]#", s.text[s.i]) < 0 {
				s.i++
			}
			p.name = s.text[p.off:s.i]
		}
		parts = append(parts, p)
		s.skip(" \t")
		if !s.accept('.') {
			return parts
		}
	}
}

// value reads any value. keyOff is where its key begins; an element of an array
// has none and begins at itself.
func (s *scanner) value(path string, keyOff int) {
	s.spans[path] = span{keyOff, s.i}
	if s.i >= len(s.text) {
		return
	}
	switch s.text[s.i] {
	case '"', '\'':
		s.quoted()
	case '[':
		s.i++
		for n := 0; ; n++ {
			s.skip(" \t\r\n")
			if s.i >= len(s.text) || s.accept(']') {
				return
			}
			start := s.i
			s.value(itemPath(path, n), s.i)
			s.skip(" \t\r\n")
			s.accept(',')
			if s.i == start {
				s.i++ // not TOML: move on
			}
		}
	case '{':
		s.i++
		for {
			s.skip(" \t\r\n")
			if s.i >= len(s.text) || s.accept('}') {
				return
			}
			start := s.i
			s.keyValue(path)
			s.skip(" \t\r\n")
			s.accept(',')
			if s.i == start {
				s.i++ // not TOML: move on
			}
		}
	default: // number, boolean, date
		for s.i < len(s.text) && strings.IndexByte(",]}#\n", s.text[s.i]) < 0 {
			s.i++
		}
	}
}

// quoted moves over a string of any of the four kinds and returns it with its quotes.
func (s *scanner) quoted() string {
	start := s.i
	q := s.text[s.i]
	if triple := strings.Repeat(string(q), 3); strings.HasPrefix(s.text[s.i:], triple) {
		for s.i += 3; s.i < len(s.text); s.i++ {
			if q == '"' && s.text[s.i] == '\\' {
				s.i++
			} else if strings.HasPrefix(s.text[s.i:], triple) {
				s.i += 3
				// One or two more quotes belong to the string's end.
				for n := 0; n < 2 && s.accept(q); n++ {
				}
				return s.text[start:s.i]
			}
		}
		s.i = len(s.text)
		return s.text[start:]
	}
	for s.i++; s.i < len(s.text); s.i++ {
		switch c := s.text[s.i]; {
		case q == '"' && c == '\\':
			s.i++
		case c == q:
			s.i++
			return s.text[start:s.i]
		case c == '\n':
			return s.text[start:s.i]
		}
	}
	s.i = len(s.text)
	return s.text[start:]
}

// plain yields the bytes of a text that are in no string and in no comment, with their offsets, and of a comment its '#'.
func plain(text string) iter.Seq2[int, byte] {
	return func(yield func(int, byte) bool) {
		s := &scanner{index: &index{text: text}}
		for s.i < len(text) {
			c := text[s.i]
			if c == '"' || c == '\'' {
				s.quoted()
				continue
			}
			if !yield(s.i, c) {
				return
			}
			if c != '#' {
				s.i++
			} else if n := strings.IndexByte(text[s.i:], '\n'); n >= 0 {
				s.i += n
			} else {
				return
			}
		}
	}
}

// unquote is the value of a quoted key, as the library reads it, which has accepted it.
func unquote(q string) string {
	var doc map[string]any
	md, err := toml.Decode(q+" = 0", &doc)
	if err != nil || len(md.Keys()) != 1 {
		return q // not TOML
	}
	return md.Keys()[0][0]
}
