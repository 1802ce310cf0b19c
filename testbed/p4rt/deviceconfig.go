package p4rt

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDeviceConfig is wrapped when bytes are not a device config of the form they should be.
var ErrDeviceConfig = errors.New("not such a device config")

// SDEConfig is the device config that the P4Runtime server of Intel's SDE takes: three
// parts, each after its length in four bytes, little-endian.
type SDEConfig struct {
	Program string // P4 program name
	Binary  []byte // tofino.bin
	Context []byte // context.json
}

// Marshal is the parts with their lengths.
func (c SDEConfig) Marshal() []byte {
	var b []byte
	for _, part := range [][]byte{[]byte(c.Program), c.Binary, c.Context} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return b
}

// ParseSDEConfig reverses Marshal. Parts that are empty, and bytes that are left over, are
// refused. Errors wrap ErrDeviceConfig.
func ParseSDEConfig(b []byte) (SDEConfig, error) {
	var parts [3][]byte
	for i, what := range []string{"program name", "binary", "context"} {
		if len(b) < 4 {
			return SDEConfig{}, fmt.Errorf("SDE: %w: it ends before the length of the %s", ErrDeviceConfig, what)
		}
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if n == 0 || uint64(n) > uint64(len(b)) {
			return SDEConfig{}, fmt.Errorf("SDE: %w: %s of %d bytes, %d are there", ErrDeviceConfig, what, n, len(b))
		}
		parts[i], b = b[:n], b[n:]
	}
	if len(b) > 0 {
		return SDEConfig{}, fmt.Errorf("SDE: %w: %d bytes after the context", ErrDeviceConfig, len(b))
	}
	return SDEConfig{string(parts[0]), parts[1], parts[2]}, nil
}
