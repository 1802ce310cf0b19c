package sharp_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/testbed/sharp"
)

const sample = `# written by hand

dynamic_tree_allocation TRUE   # per job
per_prio_default_quota = 25
  max_trees_to_build=64
log_verbosity	3
some_option_of_a_later_version a b # c`

// TestAMConfig reads both spellings of a line, changes some, and finds everything else as
// it was.
func TestAMConfig(t *testing.T) {
	c, err := sharp.ParseAMConfig("sharp_am.cfg", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(c.Bytes()); got != sample {
		t.Errorf("unchanged, it is written as\n%s", got)
	}
	for key, want := range map[string]string{"log_verbosity": "3", "some_option_of_a_later_version": "a b", "per_prio_default_quota": "25"} {
		if got, ok := c.Get(key); !ok || got != want {
			t.Errorf("%s is %q, %v; want %q", key, got, ok, want)
		}
	}
	if _, ok := c.Get("reservation_mode"); ok {
		t.Error("reservation_mode is not in the file")
	}
	for _, set := range [][2]string{{"per_prio_default_quota", "10"}, {"reservation_mode", "TRUE"}, {"dynamic_tree_allocation", "FALSE"}} {
		if err := c.Set(set[0], set[1]); err != nil {
			t.Error(err)
		}
	}
	changed := `# written by hand

dynamic_tree_allocation FALSE   # per job
per_prio_default_quota = 10
  max_trees_to_build=64
log_verbosity	3
some_option_of_a_later_version a b # c
reservation_mode TRUE
`
	if diff := cmp.Diff(changed, string(c.Bytes())); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

// TestAMConfigProblems finds all problems of a file at once, each at its place.
func TestAMConfigProblems(t *testing.T) {
	_, err := sharp.ParseAMConfig("sharp_am.cfg", []byte(`log_verbosity 3
enable_exclusive_lock maybe
  max_trees_to_build = 0
= 7
ib_sl
per_prio_default_quota 120
reservation_max_jobs_per_hca 512
log_verbosity 4
am:key 1
`))
	want := `sharp_am.cfg:2:23: enable_exclusive_lock: "maybe" is neither true nor false: write TRUE or FALSE
sharp_am.cfg:3:24: max_trees_to_build: "0" is not a whole number, 1 or more
sharp_am.cfg:4:1: a value without a key: write "key value"
sharp_am.cfg:5:1: ib_sl has no value: write "key value", or comment the line out with #
sharp_am.cfg:6:24: per_prio_default_quota: "120" is not a percentage from 0 to 100
sharp_am.cfg:7:30: reservation_max_jobs_per_hca: "512" is not a whole number from 0 to 511
sharp_am.cfg:8:1: log_verbosity is set already, on line 1: delete one of the two
sharp_am.cfg:9:1: "am:key" is not the name of an option: names have letters, digits and _`
	var problems tomlfile.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("not problems: %v", err)
	}
	if diff := cmp.Diff(want, strings.TrimSpace(err.Error())); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestAMConfigNotes says what looks right and does nothing.
func TestAMConfigNotes(t *testing.T) {
	c, err := sharp.ParseAMConfig("c", []byte("enable_sat TRUE\ntopology_api TRUE\nlog_verbosity 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "c:1:1: enable_sat is ignored since SHARP 3.2: streaming trees are always on\nc:2:1: topology_api is not an option of sharp_am: use enable_topology_api"
	if got := strings.TrimSpace(c.Notes().Error()); got != want {
		t.Errorf("notes:\n%s", got)
	}
}

func TestAMConfigSetRefuses(t *testing.T) {
	c := &sharp.AMConfig{Name: "c"}
	for _, set := range [][2]string{
		{"", "1"}, {"a b", "1"}, {"a=", "1"}, {"a", ""}, {"a", " 1"}, {"a", "1\n2"}, {"a", "= 1"}, {"a", "1 # 2"}, {"a", "# 1"},
		{"max_trees_to_build", "many"}, {"reservation_mode", "2"},
	} {
		if err := c.Set(set[0], set[1]); err == nil {
			t.Errorf("%q may be set to %q", set[0], set[1])
		}
	}
	if got := c.Bytes(); len(got) != 0 {
		t.Errorf("after refusals: %q", got)
	}
}

// FuzzParseAMConfig: what is read is written as it was; what is set is read back, on one
// line, and the others stay.
func FuzzParseAMConfig(f *testing.F) {
	f.Add([]byte(sample), "log_verbosity", "5")
	f.Add([]byte("a=b#c\r\n\n# d\ne = \tf #g"), "e", "x#y")
	f.Fuzz(func(t *testing.T, text []byte, key, value string) {
		c, err := sharp.ParseAMConfig("c", text)
		if err != nil {
			if c != nil {
				t.Fatal("an error and a configuration")
			}
			return
		}
		if !bytes.Equal(c.Bytes(), text) {
			t.Fatalf("read %q, written %q", text, c.Bytes())
		}
		before := map[string]string{}
		for _, k := range c.Keys() {
			before[k], _ = c.Get(k)
		}
		if c.Set(key, value) != nil {
			if !bytes.Equal(c.Bytes(), text) {
				t.Fatalf("refused to set %q to %q, and changed the file", key, value)
			}
			return
		}
		before[key] = value
		again, err := sharp.ParseAMConfig("c", c.Bytes())
		if err != nil {
			t.Fatalf("after setting %q to %q: %v", key, value, err)
		}
		after := map[string]string{}
		for _, k := range again.Keys() {
			after[k], _ = again.Get(k)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("after setting %q to %q (-want +got):\n%s", key, value, diff)
		}
	})
}
