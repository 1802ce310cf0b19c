package p4rt_test

import (
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/p4rt"
)

// The bytes of both forms, worked out by hand from their descriptions: protobuf's encoding
// of BfPipelineConfig, and parts after little-endian lengths.
func TestDeviceConfigBytes(t *testing.T) {
	stratum := p4rt.StratumConfig{Program: "ina", BFRT: []byte("{}"), Profiles: []p4rt.Profile{
		{Name: "pipe", Context: []byte("c"), Binary: []byte{0xb1}, Pipes: []uint32{0, 300}},
	}}
	const stratumHex = "0a03696e61" + // 1: "ina"
		"12027b7d" + // 2: "{}"
		"1a11" + // 3: 17 bytes
		"0a0470697065" + "120163" + "1a01b1" + "220300ac02" // 1: "pipe", 2: "c", 3: b1, 4: packed 0, 300
	if got := hex.EncodeToString(stratum.Marshal()); got != stratumHex {
		t.Errorf("Stratum: %s, want %s", got, stratumHex)
	}
	sde := p4rt.SDEConfig{Program: "ina", Binary: []byte{0xb1, 0xb2}, Context: []byte("c")}
	const sdeHex = "03000000" + "696e61" + "02000000" + "b1b2" + "01000000" + "63"
	if got := hex.EncodeToString(sde.Marshal()); got != sdeHex {
		t.Errorf("SDE: %s, want %s", got, sdeHex)
	}
	// Pipes need not be packed.
	loose, err := hex.DecodeString(strings.Replace(stratumHex, "220300ac02", "200020ac02", 1))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p4rt.ParseStratumConfig(loose); err != nil || !reflect.DeepEqual(got, stratum) {
		t.Errorf("unpacked pipes: %+v, %v", got, err)
	}
}

// One server's form is no other's, and half of one is none.
func TestDeviceConfigRefused(t *testing.T) {
	whole := p4rt.StratumConfig{Program: "ina", Profiles: []p4rt.Profile{{Context: []byte("c"), Binary: []byte("b")}}}
	sde := p4rt.SDEConfig{Program: "ina", Binary: []byte("b"), Context: []byte("c")}
	noName, noProfile, noBinary := whole, whole, whole
	noName.Program, noProfile.Profiles = "", nil
	noBinary.Profiles = []p4rt.Profile{{Context: []byte("c")}}
	json := []byte(`{"program": "ina.p4"}`)
	for name, b := range map[string][]byte{
		"empty": nil, "SDE's": sde.Marshal(), "JSON": json, "without name": noName.Marshal(),
		"without profile": noProfile.Marshal(), "without binary": noBinary.Marshal(), "cut short": whole.Marshal()[:9],
	} {
		if c, err := p4rt.ParseStratumConfig(b); !errors.Is(err, p4rt.ErrDeviceConfig) || !reflect.DeepEqual(c, p4rt.StratumConfig{}) {
			t.Errorf("Stratum, %s: %+v, %v", name, c, err)
		}
	}
	for name, b := range map[string][]byte{
		"empty": nil, "Stratum's": whole.Marshal(), "JSON": json, "more": append(sde.Marshal(), 0),
		"without binary": p4rt.SDEConfig{Program: "ina", Context: []byte("c")}.Marshal(), "cut short": sde.Marshal()[:9],
	} {
		if c, err := p4rt.ParseSDEConfig(b); !errors.Is(err, p4rt.ErrDeviceConfig) || !reflect.DeepEqual(c, p4rt.SDEConfig{}) {
			t.Errorf("SDE, %s: %+v, %v", name, c, err)
		}
	}
}

// Whatever is accepted means the same after it has been written again, and what is refused
// is nothing.
func FuzzDeviceConfig(f *testing.F) {
	f.Add(p4rt.StratumConfig{Program: "ina", BFRT: []byte("{}"), Profiles: []p4rt.Profile{
		{Name: "pipe", Context: []byte("c"), Binary: []byte("b"), Pipes: []uint32{0, 1}}, {Context: []byte("c"), Binary: []byte("b")},
	}}.Marshal())
	f.Add(p4rt.SDEConfig{Program: "ina", Binary: []byte("b"), Context: []byte("c")}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := p4rt.ParseStratumConfig(b)
		if (err != nil) != reflect.DeepEqual(c, p4rt.StratumConfig{}) {
			t.Fatalf("%+v, %v", c, err)
		}
		if err == nil {
			again, err := p4rt.ParseStratumConfig(c.Marshal())
			if err != nil || hex.EncodeToString(again.Marshal()) != hex.EncodeToString(c.Marshal()) {
				t.Fatalf("%+v became %+v, %v", c, again, err)
			}
		}
		s, err := p4rt.ParseSDEConfig(b)
		if (err != nil) != reflect.DeepEqual(s, p4rt.SDEConfig{}) {
			t.Fatalf("%+v, %v", s, err)
		}
		if err == nil && hex.EncodeToString(s.Marshal()) != hex.EncodeToString(b) {
			t.Fatalf("%x became %x", b, s.Marshal())
		}
	})
}
