package p4

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/inabench/inabench/internal/bounded"
)

//go:generate just p4

// What p4c made of ina_v1model.p4; see compile.sh.
var (
	//go:embed compiled/ina_v1model.p4info.txtpb
	bmv2Info []byte
	//go:embed compiled/ina_v1model.json.gz
	bmv2JSON []byte
	//go:embed compiled/ina_v1model.build.json
	bmv2Build []byte
)

// Build is what a program was compiled from and with.
type Build struct {
	Source   string `json:"source"`   // SHA-256 of the P4 file, hex
	Compiler string `json:"compiler"` // as it calls itself
}

// BMv2 is the program for p4lang's BMv2, ina_v1model.p4, compiled: its p4info, BMv2's JSON,
// and what it was made with. The caller owns all of it.
func BMv2() (info *p4configv1.P4Info, config []byte, build Build, err error) {
	info = new(p4configv1.P4Info)
	if err := prototext.Unmarshal(bmv2Info, info); err != nil {
		return nil, nil, build, fmt.Errorf("p4info of the program for BMv2: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(bmv2JSON))
	if err == nil {
		config, err = bounded.ReadAll(z, 64<<20)
	}
	if err == nil {
		err = json.Unmarshal(bmv2Build, &build)
	}
	if err != nil {
		return nil, nil, build, fmt.Errorf("program for BMv2: %w", err)
	}
	return info, config, build, nil
}
