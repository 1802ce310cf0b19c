package p4

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/inabench/inabench/internal/bounded"
)

//go:generate just p4

// What p4c made of the programs for BMv2; see compile.sh.
//
//go:embed compiled
var compiled embed.FS

// Build is what a program was compiled from and with.
type Build struct {
	Source   string `json:"source"`   // SHA-256 of the P4 file, hex
	Compiler string `json:"compiler"` // as it calls itself
}

// BMv2 is the program for p4lang's BMv2, ina_v1model.p4, compiled: its p4info, BMv2's JSON,
// and what it was made with. The caller owns all of it.
func BMv2() (info *p4configv1.P4Info, config []byte, build Build, err error) {
	return program("ina_v1model")
}

// Chip is the program for chips, ina_chip.p4, compiled for BMv2, which tests what it decides.
func Chip() (info *p4configv1.P4Info, config []byte, build Build, err error) {
	return program("ina_chip")
}

func program(name string) (info *p4configv1.P4Info, config []byte, build Build, err error) {
	read := func(ending string) []byte {
		var b []byte
		if err == nil {
			b, err = compiled.ReadFile("compiled/" + name + ending)
		}
		return b
	}
	text, zipped, built := read(".p4info.txtpb"), read(".json.gz"), read(".build.json")
	if err == nil {
		info = new(p4configv1.P4Info)
		err = prototext.Unmarshal(text, info)
	}
	if err == nil {
		err = json.Unmarshal(built, &build)
	}
	var z *gzip.Reader
	if err == nil {
		z, err = gzip.NewReader(bytes.NewReader(zipped))
	}
	if err == nil {
		config, err = bounded.ReadAll(z, 64<<20)
	}
	if err != nil {
		return nil, nil, Build{}, fmt.Errorf("program %s for BMv2: %w", name, err)
	}
	return info, config, build, nil
}
