package tomlfile

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

// speed is a quantity for these tests: "5m/s".
type speed float64

func (s *speed) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "%gm/s", (*float64)(s))
	if err != nil {
		return WithHint(`write it like "5m/s"`, "%q is not a speed", b)
	}
	return nil
}

func (s *speed) Suggest(n float64) []string { return []string{fmt.Sprintf("%gm/s", n)} }

type lab struct {
	Version int    `toml:"version,required"`
	Name    string `toml:"name"`
	Link    []struct {
		A    string `toml:"a"`
		Rate speed  `toml:"rate"`
	} `toml:"link"`
	Host []struct {
		At   string `toml:",path"`
		Name string `toml:"name,required"`
		NIC  []struct {
			At   string `toml:",path"`
			Port string `toml:"port"`
			Rate *speed `toml:"rate"`
		} `toml:"nic,single"`
	} `toml:"host"`
	Switch struct {
		Lanes int      `toml:"lanes" default:"240"`
		Fair  bool     `toml:"fair" default:"true"`
		Names []string `toml:"names"`
		Share float64  `toml:"share"`
		Any   any      `toml:"any"`
	} `toml:"switch"`
}

// The reason for this package: BurntSushi/toml v1.6.0 knows keys by their dotted
// name only, so of several tables in an array it names the last.
func TestPositionInArrayOfTables(t *testing.T) {
	const text = `version = 1
[[link]]
rate = "fast"
a = "x"
[[link]]
a = "y"
rate = "5m/s"
`
	var viaLibrary lab
	_, err := toml.Decode(text, &viaLibrary)
	var pe toml.ParseError
	if !errors.As(err, &pe) || pe.Position.Line == 3 {
		t.Errorf("the library now says line %d (%v): this package may have lost its reason", pe.Position.Line, err)
	}

	f, err := Parse("lab.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f.Decode(&lab{})
	want := `lab.toml:3:8: link.rate: "fast" is not a speed: write it like "5m/s"`
	if got := fmt.Sprint(f.Err()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestProblems(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"syntax", "version = 1\nname = \n", `f:2:8: expected value but found '\n' instead`},
		{"unterminated", "version = 1\nname = \"x\n[[host]]\n", `f:2:10: strings cannot contain newlines`},
		{"duplicate key", "version = 1\nversion = 2\n", `f:2:1: key 'version' has already been defined`},
		{"utf-8", "version = 1\nname = \"\xff\"", `f:2:9: byte 0xff is not UTF-8`},
		{"empty", "", `f:1:1: missing version`},
		{"all at once, in order", `name = 7
colour = "red"
[switch]
lane = 3
lanes = "x"
fair = 1
names = ["a", 2]
share = nan
[[link]]
rate = 25
a = ""
[[link]]
rate = 1.5
bogus_key_name = 1
`,
			`f:1:1: missing version
f:1:8: name is a number, want a string
f:2:1: unknown key "colour": known: version, name, link, host, switch
f:4:1: unknown key "lane" in switch: did you mean "lanes"?
f:5:9: switch.lanes is a string, want a whole number
f:6:8: switch.fair is a number, want true or false
f:7:15: switch.names is a number, want a string
f:8:9: switch.share must be a finite number
f:10:8: link.rate is a bare number, it needs a unit: write "25m/s"
f:13:8: link.rate is a bare number, it needs a unit: write "1.5m/s"
f:14:1: unknown key "bogus_key_name" in link: known: a, rate`},
		{"inline and nested tables", `version = 1
[[host]]
nic = {port = "a/1", rate = 5}
[[host]]
name = "b"
[[host.nic]]
port = "ü/1" # the next value stands after a wide letter
[[host.nic]]
port = 1
"rate" = "q"
`,
			`f:2:3: missing name in host
f:3:29: host.nic.rate is a bare number, it needs a unit: write "5m/s"
f:9:8: host.nic.port is a number, want a string
f:10:10: host.nic.rate: "q" is not a speed: write it like "5m/s"`},
		{"columns are characters", "version = 1\nswitch = {any = \"üü\", lanes = true}\n", `f:2:31: switch.lanes is a boolean, want a whole number`},
		{"table for array", "version = 1\nlink = {a = \"x\"}\nhost = 1", "f:2:8: link is a table, want an array of tables\nf:3:8: host is a number, want an array of tables"},
		{"byte order mark", "\ufeffversion = \"1\"", `f:1:12: version is a string, want a whole number`},
		{"windows line ends", "version = 1\r\nswitch.lanes = 'a'\r\n", `f:2:16: switch.lanes is a string, want a whole number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse("f", []byte(tt.text))
			if err == nil {
				f.Decode(&lab{})
				err = f.Err()
			}
			if diff := cmp.Diff(tt.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	f, err := Parse("f", []byte(`
version = 1
switch = {names = ["a", "b"], share = 1}
[[host]]
name = "h1"
nic = {port = "t/1", rate = "5m/s"}
[[host]]
name = "h2"
nic = [{port = "t/2"}, {port = "t/3"}]
`))
	if err != nil {
		t.Fatal(err)
	}
	var l lab
	f.Decode(&l)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	if l.Switch.Lanes != 240 || !l.Switch.Fair || l.Switch.Share != 1 || len(l.Switch.Names) != 2 {
		t.Errorf("switch: %+v", l.Switch)
	}
	if at := l.Host[0].NIC[0].At; at != "host[0].nic" || *l.Host[0].NIC[0].Rate != 5 {
		t.Errorf("a single nic lies at %q", at)
	}
	if at := l.Host[1].NIC[1].At; at != "host[1].nic[1]" || l.Host[1].NIC[1].Rate != nil {
		t.Errorf("the second nic lies at %q", at)
	}
}

func TestSet(t *testing.T) {
	base, err := Parse("f", []byte("version = 1\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	set := func(as ...string) (lab, error) {
		var l lab
		f := base
		for _, a := range as {
			if f, err = f.Set(&l, a); err != nil {
				return lab{}, err
			}
		}
		f.Decode(&l)
		return l, f.Err()
	}
	l, err := set("switch.lanes=16", "name = two words", "host.b.name=c", "switch.names=x, y", "switch.any=0.5", "switch.fair=false")
	if err != nil {
		t.Fatal(err)
	}
	if l.Switch.Lanes != 16 || l.Name != "two words" || l.Host[1].Name != "c" || l.Switch.Fair || l.Switch.Any != 0.5 ||
		!slices.Equal(l.Switch.Names, []string{"x", "y"}) {
		t.Errorf("%+v", l)
	}
	if l, err := set(`switch.names="x"`); err != nil || !slices.Equal(l.Switch.Names, []string{"x"}) {
		t.Errorf("a list of one item: %+v, %v", l, err)
	}
	for _, tt := range []struct{ set, want string }{
		{"switch.lane=1", `--set switch.lane=1: unknown key "lane" in switch: did you mean "lanes"?`},
		{"scale.lanes=1", `--set scale.lanes=1: unknown key "scale": did you mean "switch.lanes"?`},
		{"rate=1", `--set rate=1: unknown key "rate": did you mean "link.NAME.rate" or "host.NAME.nic.NAME.rate"?`},
		{"host.a.lanes=1", `--set host.a.lanes=1: unknown key "lanes" in host: did you mean "switch.lanes"?`},
		{"scale.nothing=1", `--set scale.nothing=1: unknown key "scale": known: version, name, link, host, switch`},
		{"switch.lanes=x", `--set switch.lanes=x: switch.lanes is a string, want a whole number`},
		{"host.q.name=x", `--set host.q.name=x: no host "q": known: a, b`},
		{"host.a=x", `--set host.a=x: "host.a" is a table: one of its keys: name, nic`},
		{"host=x", `--set host=x: "host" is an array of tables: name one of them, and its key: host.NAME.KEY`},
		{"version.x=1", `--set version.x=1: "version" has no key "x": it is not a table`},
		{"switch.lanes", `--set switch.lanes: not an assignment: write key=value`},
	} {
		if _, err := set(tt.set); fmt.Sprint(err) != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	if base.Has("switch.lanes") {
		t.Error("an override changed the file it was made from")
	}
}

func TestNearest(t *testing.T) {
	known := []string{"aggregators", "rate", "control", "s1", "s2", "tor1"}
	for name, want := range map[string]string{
		"aggregator": "aggregators", "agregators": "aggregators", "raet": "rate", "Rate": "rate",
		"s9": "s1", "tor2": "tor1", "contrl": "control", "zebra": "", "": "", "x": "",
	} {
		if got, _ := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

// walk visits every table, array and value of a decoded text with its path.
func walk(path string, v any, visit func(path string, v any)) {
	visit(path, v)
	if m, ok := v.(map[string]any); ok {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			walk(joinPath(path, k), m[k], visit)
		}
	}
	if items, ok := array(v); ok {
		for i, it := range items {
			walk(itemPath(path, i), it, visit)
		}
	}
}

// checkIndex holds that every value of an accepted text has a position of its own
// within the text, and that scalars really stand there.
func checkIndex(t *testing.T, f *File) {
	walk("", f.tree, func(path string, v any) {
		if path == "" {
			return
		}
		s, ok := f.index.spans[path]
		if !ok {
			t.Fatalf("no position for %s in %q", path, f.Text)
		}
		if s.key < 0 || s.value < s.key || s.value >= len(f.Text) {
			t.Fatalf("%s: span %v outside the text", path, s)
		}
		rest := f.Text[s.value:]
		switch v := v.(type) {
		case string:
			if rest[0] != '"' && rest[0] != '\'' {
				t.Fatalf("%s is a string but stands at %.20q", path, rest)
			}
		case bool:
			if !strings.HasPrefix(rest, fmt.Sprint(v)) {
				t.Fatalf("%s = %v stands at %.20q", path, v, rest)
			}
		case int64:
			if !strings.ContainsAny(rest[:1], "+-0123456789") {
				t.Fatalf("%s = %v stands at %.20q", path, v, rest)
			}
		}
	})
}

func TestIndex(t *testing.T) {
	const text = `top = 1 # comment = 3
"quoted key" . x.'y z' = [ 1, # one ]
  "two]", [3, {a = 4, b.c = '''
multi '' line ''''}], ]
s = """a \""" # not a comment
""""
[a.b] # header
k = 1979-05-27 07:32:00
[[a.b.list]]
n = 1
  [[a.b.list.deep]]
  m = { x = {}, "\u0041" = true }
  [[a.b.list.deep]]
[[a.b.list]]
[a.b.list.plain]
z = -1.5
`
	f, err := Parse("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	checkIndex(t, f)
	for path, want := range map[string]string{
		"top":                           "f:1:7",
		`"quoted key".x."y z"[1]`:       "f:3:3",
		`"quoted key".x."y z"[2][1].b`:  "f:3:23",
		"s":                             "f:5:5",
		"a.b.k":                         "f:8:5",
		"a.b.list[0]":                   "f:9:7",
		"a.b.list[0].deep[0].m.A":       "f:12:28",
		"a.b.list[0].deep[1]":           "f:13:14",
		"a.b.list[1].plain.z":           "f:16:5",
		"a.b.list[1].plain.missing.too": "f:15:11",
		"nothing":                       "f:1:1",
	} {
		if got := f.Pos(path).String(); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
	if got := f.KeyPos("a.b.list[0].deep[0].m.A").String(); got != "f:12:17" {
		t.Errorf("key position: %s", got)
	}
}

// FuzzParse: no panic; a value or an error but never both; all positions within
// the file; every value that the library saw has been found by the index too.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "a = 1", "[[a]]\nb = {c = [1, 2]}\n[[a]]\n", "a.b.'c' = \"\"\"x\"\"\"\"\"\n", "\"\" = 1",
		"version = 1\n[[link]]\nrate = 5\n", "\ufeffx = 1\r\n", "a = [ # c\n 1,\n]\n", "x = \"\n", "a = {b = 1, # c\n}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("f", text)
		if (file == nil) != (err != nil) {
			t.Fatalf("file %v, error %v", file, err)
		}
		var ps Problems
		if err != nil {
			if !errors.As(err, &ps) || len(ps) != 1 {
				t.Fatalf("not one problem: %v", err)
			}
		} else {
			checkIndex(t, file)
			var l lab
			file.Decode(&l)
			if err := file.Err(); err != nil && (!errors.As(err, &ps) || len(ps) == 0) {
				t.Fatalf("not problems: %v", err)
			} else if err == nil && l.Version == 0 && !reflect.DeepEqual(file.tree["version"], int64(0)) {
				t.Fatal("missing version accepted")
			}
		}
		lines := strings.Split(string(text), "\n")
		for _, p := range ps {
			if p.Line < 1 || p.Line > len(lines) || p.Col < 1 || p.Col > len([]rune(lines[p.Line-1]))+1 {
				t.Fatalf("%v lies outside of %q", p, text)
			}
		}
	})
}

// TestExcess: what would cost the library gigabytes costs nothing, and what only looks so passes.
func TestExcess(t *testing.T) {
	many := func(s string, n int) string { return strings.Repeat(s, n) }
	for name, test := range map[string]struct{ text, want string }{
		"a key of many parts":              {"x = 1\n" + many("a.", 5000) + "a = 1", "f.toml:2:128: a key of more than 64 parts"},
		"a table of many parts":            {"[" + many("a.", 10000) + "a]", "a key of more than 64 parts"},
		"one in an inline table":           {"x = {" + many("a.", 5000) + "a = 1}", "a key of more than 64 parts"},
		"arrays in arrays":                 {"x = " + many("[", 20000) + many("]", 20000), "f.toml:1:69: more than 64 tables or arrays in each other"},
		"arrays over lines":                {"x = " + many("[\n", 20000), "more than 64 tables"},
		"tables in tables":                 {"x = " + many("{a=", 20000), "more than 64 tables"},
		"after a string":                   {"x = \"[\\\"[\"\ny = '[\\'\nz = " + many("[", 100), "more than 64 tables"},
		"after a string that does not end": {"x = \"\ny = " + many("[", 100), "more than 64 tables"},
		"in strings":                       {"x = \"" + many("[.", 100) + "\"\ny = '" + many("{.", 100) + "'", ""},
		"in long strings":                  {"x = \"\"\"\n" + many("[.\"\" \\\"\n", 100) + "\"\"\"\ny = '''" + many("{.\n''", 100) + "'''", ""},
		"in a comment":                     {"# " + many("[.", 100) + "\nx = 1 # " + many("{.", 100), ""},
		"many tables":                      {"version = 1\n" + many("[[host]]\n", 500_000), "f.toml:150001:2: more than 300000 keys, tables and elements"},
		"many keys":                        {many("a=1\n", 400_000), "f.toml:300001:2: more than 300000 keys"},
		"many elements":                    {"a = [" + many("1,", 1_000_000) + "]", "more than 300000 keys"},
		"many of them in strings":          {"a = '" + many("=,[", 120_000) + "' # " + many("=,[", 120_000), ""},
		"many, each of few":                {many("[[a.b]]\nx.y = [[1.5], {z = 2.5}]\n", 1000), ""},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("f.toml", []byte(test.text))
		runtime.ReadMemStats(&after)
		if got := fmt.Sprint(err); (err == nil) != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %.200s, want %q", name, got, test.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
			t.Errorf("%s: %d MiB", name, n>>20)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if v := literal(reflect.TypeFor[[]int](), many("[", 20000)+many("]", 20000)); len(v.(string)) != 40000 {
		t.Errorf("--set: %.100v", v)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
		t.Errorf("--set: %d MiB", n>>20)
	}
}

// TestManyProblems: of a file that is full of them the first are said, and that there are more.
func TestManyProblems(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "[a%d]\n", i)
	}
	f, err := Parse("many.toml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Version int `toml:"version"`
	}
	f.Decode(&v)
	var ps Problems
	if err := f.Err(); !errors.As(err, &ps) || len(ps) != mostProblems+1 || !strings.Contains(err.Error(), "many.toml: more than 1000 problems: mend these first") {
		t.Errorf("%d problems: %.200v", len(ps), err)
	}
	for i, p := range f.Problems()[:mostProblems] {
		if p.Pos.Line != i+1 {
			t.Fatalf("problem %d is of line %d: not the first are told", i+1, p.Pos.Line)
		}
	}
}

// refused is a text that nothing can be, and counts how often it was tried.
type refused struct{}

var tried int

func (*refused) UnmarshalText([]byte) error {
	tried++
	return errors.New("no")
}

// TestStops: nobody looks for more problems than are recorded.
func TestStops(t *testing.T) {
	f, err := Parse("many.toml", []byte("a = ["+strings.Repeat(`"x",`, 50_000)+"]"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		A []refused `toml:"a"`
	}
	tried = 0
	if f.Decode(&v); !f.Full() || tried > mostProblems+1 {
		t.Errorf("full: %v, tried %d times", f.Full(), tried)
	}
}

// TestTables: tables that a struct does not name are decoded, set and found as its own are, and suggested where a key
// is unknown.
func TestTables(t *testing.T) {
	type more struct {
		Rate  int `toml:"rate" default:"7"`
		Lanes int `toml:"lanes,required"`
	}
	type item struct {
		Name string `toml:"name"`
	}
	type doc struct {
		Version int            `toml:"version"`
		Tables  map[string]any `toml:",tables"`
	}
	tables := []Table{{"more", reflect.TypeFor[*more]()}, {"item", reflect.TypeFor[[]item]()}, {"none", reflect.TypeFor[*more]()}}
	f, err := Parse("t.toml", []byte("version = 1\n[more]\nlanes = 3\n[[item]]\nname = \"a\"\n"), tables...)
	if err != nil {
		t.Fatal(err)
	}
	if f, err = f.Set(doc{}, "more.rate=9"); err != nil {
		t.Fatal(err)
	}
	if f, err = f.Set(doc{}, "item.a.name=b"); err != nil {
		t.Fatal(err)
	}
	var d doc
	f.Decode(&d)
	want := doc{1, map[string]any{"more": &more{9, 3}, "item": []item{{"b"}}}}
	if f.Err() != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v, %v, want %+v", d, f.Err(), want)
	}
	f, _ = Parse("t.toml", []byte("[more]\nrate = 1\n[mroe]\n"), tables...)
	d = doc{}
	f.Decode(&d)
	const problems = "t.toml:1:2: missing lanes in more\nt.toml:3:2: unknown key \"mroe\": did you mean \"more\"?"
	if got := f.Err(); got == nil || got.Error() != problems || d.Tables["more"] != nil {
		t.Errorf("got %v, %v", got, d.Tables)
	}
}
