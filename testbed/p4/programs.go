package p4

import (
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
	fail := func(err error) (*p4configv1.P4Info, []byte, Build, error) {
		return nil, nil, Build{}, fmt.Errorf("program %s for BMv2: %w", name, err)
	}
	path := "compiled/" + name
	text, err := compiled.ReadFile(path + ".p4info.txtpb")
	if err != nil {
		return fail(err)
	}
	info = new(p4configv1.P4Info)
	if err := prototext.Unmarshal(text, info); err != nil {
		return fail(err)
	}
	built, err := compiled.ReadFile(path + ".build.json")
	if err != nil {
		return fail(err)
	}
	if err := json.Unmarshal(built, &build); err != nil {
		return fail(err)
	}
	zipped, err := compiled.Open(path + ".json.gz")
	if err != nil {
		return fail(err)
	}
	defer zipped.Close()
	z, err := gzip.NewReader(zipped)
	if err != nil {
		return fail(err)
	}
	if config, err = bounded.ReadAll(z, 64<<20); err != nil {
		return fail(err)
	}
	return info, config, build, nil
}
