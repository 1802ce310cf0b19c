package gnmi

import (
	"slices"
	"testing"

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
		got := flatten(nil, u)
		for _, a := range got {
			if a.port != "1/0" || unqualified(a.leaf) != a.leaf {
				t.Fatalf("%+v", a)
			}
		}
		if again := flatten(nil, u); !slices.Equal(got, again) {
			t.Fatalf("%+v, then %+v", got, again)
		}
	})
}
