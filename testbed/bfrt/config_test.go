package bfrt_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/bfrt"
)

// The bytes of a config, worked out by hand from protobuf's encoding of Stratum's BfPipelineConfig, which the SDE's
// ForwardingPipelineConfig shares.
func TestConfigBytes(t *testing.T) {
	cfg := bfrt.Config{Program: "ina", BFRT: []byte("{}"), Profiles: []bfrt.Profile{
		{Name: "pipe", Context: []byte("c"), Binary: []byte{0xb1}, Pipes: []uint32{0, 300}},
	}}
	const want = "0a03696e61" + // 1: "ina"
		"12027b7d" + // 2: "{}"
		"1a11" + // 3: 17 bytes
		"0a0470697065" + "120163" + "1a01b1" + "220300ac02" // 1: "pipe", 2: "c", 3: b1, 4: packed 0, 300
	if got := hex.EncodeToString(cfg.Marshal()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// Pipes need not be packed.
	loose, err := hex.DecodeString(strings.Replace(want, "220300ac02", "200020ac02", 1))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bfrt.ParseConfig(loose); err != nil || !reflect.DeepEqual(got, cfg) {
		t.Errorf("unpacked pipes: %+v, %v", got, err)
	}
}

// Another server's form is none, and half of one is none.
func TestParseConfigRefuses(t *testing.T) {
	whole := bfrt.Config{Program: "ina", Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("c"), Binary: []byte("b")}}}
	noName, noProfile, noBinary := whole, whole, whole
	noName.Program, noProfile.Profiles = "", nil
	noBinary.Profiles = []bfrt.Profile{{Name: "pipe", Context: []byte("c")}}
	for name, b := range map[string][]byte{
		"empty": nil, "the SDE's over P4Runtime": []byte("\x03\x00\x00\x00ina\x01\x00\x00\x00b\x01\x00\x00\x00c"),
		"JSON": []byte(`{"program": "ina.p4"}`), "a field of another message": append(whole.Marshal(), 0x22, 0),
		"without name": noName.Marshal(), "without profile": noProfile.Marshal(), "without binary": noBinary.Marshal(),
		"cut short": whole.Marshal()[:9],
	} {
		if c, err := bfrt.ParseConfig(b); !errors.Is(err, bfrt.ErrInfo) || !reflect.DeepEqual(c, bfrt.Config{}) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// Whatever is accepted means the same after it has been written again, and what is refused is nothing.
func FuzzParseConfig(f *testing.F) {
	f.Add(bfrt.Config{Program: "ina", BFRT: []byte("{}"), Profiles: []bfrt.Profile{
		{Name: "pipe", Context: []byte("c"), Binary: []byte("b"), Pipes: []uint32{0, 1}}, {Name: "b", Context: []byte("c"), Binary: []byte("b")},
	}}.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := bfrt.ParseConfig(b)
		if (err != nil) != reflect.DeepEqual(c, bfrt.Config{}) {
			t.Fatalf("%+v, %v", c, err)
		}
		if err == nil {
			again, err := bfrt.ParseConfig(c.Marshal())
			if err != nil || !bytes.Equal(again.Marshal(), c.Marshal()) {
				t.Fatalf("%+v became %+v, %v", c, again, err)
			}
		}
	})
}
