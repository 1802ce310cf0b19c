package gnmi

import (
	"slices"
	"strings"
	"testing"
	"time"

	gnmipb "github.com/openconfig/gnmi/proto/gnmi"
)

// Whatever a server sends as JSON, its answers are about the port that was asked for, have
// names without modules, and come in the same order again.
func FuzzFlatten(f *testing.F) {
	f.Add([]byte(`{"openconfig-interfaces:in-octets":"18446744073709551615","counters":{"out-discards":7,"x":[1]}}`))
	f.Add([]byte(`"12"`))
	f.Add([]byte(`{"a":{"counters":{"a":-1e9}},"b":null,"c":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		u := &gnmipb.Update{
			Path: path("interfaces", "interface[1/0]", "state"),
			Val:  &gnmipb.TypedValue{Value: &gnmipb.TypedValue_JsonIetfVal{JsonIetfVal: text}},
		}
		got := flatten(answer{}, u)
		for _, a := range got {
			if a.port != "1/0" || unqualified(a.leaf) != a.leaf {
				t.Fatalf("%+v", a)
			}
		}
		if again := flatten(answer{}, u); !slices.Equal(got, again) {
			t.Fatalf("%+v, then %+v", got, again)
		}
	})
}

// TestLongAnswers: a message of a megabyte is looked at in no time, however its parts multiply: a prefix of many elements
// before as many updates, and values below many names.
func TestLongAnswers(t *testing.T) {
	const n = 1 << 17
	begin := time.Now()
	many := make([]*gnmipb.PathElem, n)
	for i := range many {
		many[i] = &gnmipb.PathElem{}
	}
	prefix := answer{}.below(many)
	for range n {
		flatten(prefix, &gnmipb.Update{Path: &gnmipb.Path{Elem: many}, Val: &gnmipb.TypedValue{Value: &gnmipb.TypedValue_UintVal{UintVal: 1}}})
	}
	deep := strings.Repeat(`{"a":`, 5000) + "{" + strings.Repeat(`"x":1,`, n/8) + `"y":2}` + strings.Repeat("}", 5000)
	flatten(answer{}, &gnmipb.Update{Val: &gnmipb.TypedValue{Value: &gnmipb.TypedValue_JsonVal{JsonVal: []byte(deep)}}})
	if took := time.Since(begin); took > 5*time.Minute { // hours, where each update has the whole prefix before it
		t.Errorf("took %v", took)
	}
}
