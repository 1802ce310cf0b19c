package p4

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/ina"
)

// annotated is a p4info whose program says so of itself: pairs of the annotation, in protobuf's text format.
func annotated(pairs string) []byte {
	return fmt.Appendf(nil, `actions { preamble { id: 1 name: "ingress.aggregate" structured_annotations { name: "inabench" kv_pair_list { %s } } } }`, pairs)
}

// number is a pair whose value is a number.
func number(key string, n int) string {
	return fmt.Sprintf(`kv_pairs { key: %q value { int64_value: %d } } `, key, n)
}

// TestLimitsOf: what a program has room for is what its p4info says. What that leaves out has no limit; what it says wrongly,
// or in a word that nobody knows here, is an error.
func TestLimitsOf(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		want       func(*Limits)
		err        error
	}{
		{"nothing", "", func(*Limits) {}, nil},
		{"lanes", number("lanes", 32), func(l *Limits) { l.Lanes = 32 }, nil},
		{"a parser of one form", number("lanes", 32) + number("whole", 1), func(l *Limits) { l.Lanes, l.Whole = 32, true }, nil},
		{"a rate", number("packets", 14_000), func(l *Limits) { l.Packets = 14_000 }, nil},
		{"names and merging", number("named", 1) + number("merges", 1), func(l *Limits) { l.Named, l.Merges = true, true }, nil},
		{"memory", number("aggregators", 16_384) + number("jobs", 128), func(l *Limits) { l.Aggregators, l.Jobs = 16_384, 128 }, nil},
		{"more lanes than a frame has", number("lanes", 241), nil, ErrRange},
		{"no lanes", number("lanes", 0), nil, ErrRange},
		{"no packets", number("packets", -1), nil, ErrRange},
		{"what a later version says", number("stages", 12), nil, ErrInvalid},
	} {
		info, err := ParseInfo(annotated(tt.says))
		if err != nil {
			t.Fatal(err)
		}
		got, err := LimitsOf(info)
		var want *Limits
		if tt.want != nil {
			want = &Limits{Aggregators: math.MaxUint32, Jobs: ina.MaxJob + 1, Window: math.MaxUint32, Workers: ina.MaxWorkers, Synchronous: true, Program: ina.Program{Lanes: ina.MaxLanes}}
			tt.want(want)
		}
		if !errors.Is(err, tt.err) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v, %v", tt.name, got, err, want, tt.err)
		}
	}
	if l, err := LimitsOf(Info()); l != nil || err != nil {
		t.Errorf("of the embedded switch: %+v, %v", l, err)
	}
}

// TestSums: a program whose parser knows one form sums packets of just so many lanes, another those of fewer, too.
func TestSums(t *testing.T) {
	for _, tt := range []struct {
		limits Limits
		lanes  int
		want   bool
	}{
		{Limits{Program: ina.Program{Lanes: 32}}, 32, true},
		{Limits{Program: ina.Program{Lanes: 32}}, 31, true},
		{Limits{Program: ina.Program{Lanes: 32}}, 33, false},
		{Limits{Program: ina.Program{Lanes: 32, Whole: true}}, 32, true},
		{Limits{Program: ina.Program{Lanes: 32, Whole: true}}, 31, false},
		{Limits{Program: ina.Program{Lanes: 32, Whole: true}}, 33, false},
	} {
		if got := tt.limits.Sums(tt.lanes); got != tt.want {
			t.Errorf("%+v, packets of %d lanes: %v", tt.limits, tt.lanes, got)
		}
	}
}

// TestReadLimits: an inventory can be planned with before its programs are compiled; a file that is no p4info is an error that
// names it.
func TestReadLimits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p4info.txtpb")
	for _, none := range []string{"", path} {
		if l, err := ReadLimits(none); l != nil || err != nil {
			t.Errorf("%q: %+v, %v", none, l, err)
		}
	}
	for _, tt := range []struct {
		text []byte
		ok   bool
	}{{annotated(number("lanes", 64)), true}, {annotated(number("lanes", 999)), false}, {[]byte("{"), false}} {
		if err := os.WriteFile(path, tt.text, 0o666); err != nil {
			t.Fatal(err)
		}
		l, err := ReadLimits(path)
		if tt.ok && (err != nil || l == nil || l.Lanes != 64) || !tt.ok && (err == nil || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %+v, %v", tt.text, l, err)
		}
	}
}
