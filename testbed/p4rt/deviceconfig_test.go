package p4rt_test

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/p4rt"
)

// The bytes of the SDE's form, worked out by hand from its description: parts after little-endian lengths.
func TestDeviceConfigBytes(t *testing.T) {
	sde := p4rt.SDEConfig{Program: "ina", Binary: []byte{0xb1, 0xb2}, Context: []byte("c")}
	const want = "03000000" + "696e61" + "02000000" + "b1b2" + "01000000" + "63"
	if got := hex.EncodeToString(sde.Marshal()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// One server's form is no other's, and half of one is none.
func TestDeviceConfigRefused(t *testing.T) {
	stratum := bfrt.Config{Program: "ina", Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("c"), Binary: []byte("b")}}}
	sde := p4rt.SDEConfig{Program: "ina", Binary: []byte("b"), Context: []byte("c")}
	for name, b := range map[string][]byte{
		"empty": nil, "Stratum's": stratum.Marshal(), "JSON": []byte(`{"program": "ina.p4"}`), "more": append(sde.Marshal(), 0),
		"without binary": p4rt.SDEConfig{Program: "ina", Context: []byte("c")}.Marshal(), "cut short": sde.Marshal()[:9],
	} {
		if c, err := p4rt.ParseSDEConfig(b); !errors.Is(err, p4rt.ErrDeviceConfig) || !reflect.DeepEqual(c, p4rt.SDEConfig{}) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// Whatever is accepted is written as it was, and what is refused is nothing.
func FuzzDeviceConfig(f *testing.F) {
	f.Add(p4rt.SDEConfig{Program: "ina", Binary: []byte("b"), Context: []byte("c")}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := p4rt.ParseSDEConfig(b)
		if (err != nil) != reflect.DeepEqual(s, p4rt.SDEConfig{}) {
			t.Fatalf("%+v, %v", s, err)
		}
		if err == nil && hex.EncodeToString(s.Marshal()) != hex.EncodeToString(b) {
			t.Fatalf("%x became %x", b, s.Marshal())
		}
	})
}
