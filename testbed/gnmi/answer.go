package gnmi

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	gnmipb "github.com/openconfig/gnmi/proto/gnmi"
)

// path makes a path of its elements; "interface[X]" is the element with the key name = X.
func path(elems ...string) *gnmipb.Path {
	p := new(gnmipb.Path)
	for _, e := range elems {
		name, key, keyed := strings.Cut(e, "[")
		pe := &gnmipb.PathElem{Name: name}
		if keyed {
			pe.Key = map[string]string{"name": strings.TrimSuffix(key, "]")}
		}
		p.Elem = append(p.Elem, pe)
	}
	return p
}

// mostElems is how many elements a path may have, and how deep JSON is looked into.
const mostElems = 64

// below is an answer for what is at elements below its place.
func (a answer) below(elems []*gnmipb.PathElem) answer {
	for _, e := range elems[:min(len(elems), mostElems)] {
		name := unqualified(e.GetName())
		if name == "interface" {
			a.port = e.GetKey()["name"]
		}
		a.counter = a.counter || name == "counters"
		a.leaf = name
	}
	return a
}

// flatten makes answers of an update, at a prefix. A server may give a leaf, or a container with several
// as JSON, in which 64-bit numbers are strings (RFC 7951) and names may have a module before
// them.
func flatten(prefix answer, u *gnmipb.Update) []answer {
	if u.GetVal() == nil {
		return nil
	}
	a := prefix.below(u.GetPath().GetElem())
	var raw []byte
	switch v := u.GetVal().GetValue().(type) {
	case *gnmipb.TypedValue_UintVal:
		a.value = strconv.FormatUint(v.UintVal, 10)
	case *gnmipb.TypedValue_IntVal:
		a.value = strconv.FormatInt(v.IntVal, 10)
	case *gnmipb.TypedValue_StringVal:
		a.value = v.StringVal
	case *gnmipb.TypedValue_JsonVal:
		raw = v.JsonVal
	case *gnmipb.TypedValue_JsonIetfVal:
		raw = v.JsonIetfVal
	default:
		return nil
	}
	if raw == nil {
		return []answer{a}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return leaves(nil, a, v, 0)
}

// leaves adds the values in JSON, in the order of their names.
func leaves(out []answer, a answer, v any, depth int) []answer {
	switch v := v.(type) {
	case json.Number:
		a.value = v.String()
		return append(out, a)
	case string:
		a.value = v
		return append(out, a)
	case map[string]any:
		if depth == mostElems {
			return out
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			b := a
			b.leaf = unqualified(key)
			b.counter = b.counter || b.leaf == "counters"
			out = leaves(out, b, v[key], depth+1)
		}
	}
	return out
}

// unqualified is a name without its YANG module: "openconfig-interfaces:interface".
func unqualified(name string) string {
	return name[strings.LastIndexByte(name, ':')+1:]
}
