package p4rt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrDeviceConfig is wrapped when bytes are not a device config of the form they should be.
var ErrDeviceConfig = errors.New("not such a device config")

// StratumConfig is the device config that Stratum takes for Tofino: the message
// BfPipelineConfig of its stratum/hal/lib/barefoot/bf.proto, as bf_pipeline_builder makes it.
type StratumConfig struct {
	Program  string // P4 program name
	BFRT     []byte // bf-rt.json
	Profiles []Profile
}

// Profile is one P4 pipe of a program for Tofino.
type Profile struct {
	Name    string   // of the P4 pipe, "pipe" unless the program says otherwise
	Context []byte   // context.json
	Binary  []byte   // tofino.bin
	Pipes   []uint32 // of the chip that run it; none: all
}

// Fields of BfPipelineConfig and of its Profile.
const (
	configProgram, configBFRT, configProfile                   = 1, 2, 3
	profileName, profileContext, profileBinary, profilePipeSet = 1, 2, 3, 4
)

// Marshal is the message in protobuf's encoding, fields in ascending order.
func (c StratumConfig) Marshal() []byte {
	b := appendField(nil, configProgram, []byte(c.Program))
	b = appendField(b, configBFRT, c.BFRT)
	for _, p := range c.Profiles {
		m := appendField(nil, profileName, []byte(p.Name))
		m = appendField(m, profileContext, p.Context)
		m = appendField(m, profileBinary, p.Binary)
		var pipes []byte
		for _, n := range p.Pipes {
			pipes = protowire.AppendVarint(pipes, uint64(n))
		}
		m = appendField(m, profilePipeSet, pipes)
		b = protowire.AppendTag(b, configProfile, protowire.BytesType)
		b = protowire.AppendBytes(b, m)
	}
	return b
}

// appendField appends a field of bytes, which proto3 leaves out when it is empty.
func appendField(b []byte, n protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// ParseStratumConfig reads a BfPipelineConfig. One that lacks a name, a profile, or a
// profile's context or binary is refused, as by Stratum; so are fields that it does not
// have, which other messages would show up as. Errors wrap ErrDeviceConfig.
func ParseStratumConfig(b []byte) (StratumConfig, error) {
	var c StratumConfig
	err := eachField(b, func(n protowire.Number, v []byte, packed bool) error {
		switch {
		case packed:
			return fmt.Errorf("field %d is a number", n)
		case n == configProgram:
			c.Program = string(v)
		case n == configBFRT:
			c.BFRT = v
		case n == configProfile:
			p, err := parseProfile(v)
			if err != nil {
				return fmt.Errorf("profile %d: %w", len(c.Profiles), err)
			}
			c.Profiles = append(c.Profiles, p)
		default:
			return fmt.Errorf("unknown field %d", n)
		}
		return nil
	})
	switch {
	case err != nil:
	case c.Program == "":
		err = errors.New("no program name")
	case len(c.Profiles) == 0:
		err = errors.New("no profiles")
	}
	if err != nil {
		return StratumConfig{}, fmt.Errorf("BfPipelineConfig: %w: %w", ErrDeviceConfig, err)
	}
	return c, nil
}

func parseProfile(b []byte) (Profile, error) {
	var p Profile
	err := eachField(b, func(n protowire.Number, v []byte, number bool) error {
		switch {
		case n == profilePipeSet:
			for len(v) > 0 { // one number, or several packed into one field
				pipe, m := protowire.ConsumeVarint(v)
				if m < 0 || pipe > math.MaxUint32 {
					return errors.New("broken list of pipes")
				}
				p.Pipes, v = append(p.Pipes, uint32(pipe)), v[m:]
			}
		case number:
			return fmt.Errorf("field %d is a number", n)
		case n == profileName:
			p.Name = string(v)
		case n == profileContext:
			p.Context = v
		case n == profileBinary:
			p.Binary = v
		default:
			return fmt.Errorf("unknown field %d", n)
		}
		return nil
	})
	if err == nil && (len(p.Context) == 0 || len(p.Binary) == 0) {
		err = errors.New("no context or no binary")
	}
	return p, err
}

// eachField calls f for every field of a message; number says that v is a varint.
func eachField(b []byte, f func(n protowire.Number, v []byte, number bool) error) error {
	for len(b) > 0 {
		n, typ, m := protowire.ConsumeTag(b)
		if m < 0 {
			return protowire.ParseError(m)
		}
		b = b[m:]
		var v []byte
		switch typ {
		case protowire.BytesType:
			v, m = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			if _, m = protowire.ConsumeVarint(b); m > 0 {
				v = b[:m]
			}
		default:
			return fmt.Errorf("field %d has wire type %d", n, typ)
		}
		if m < 0 {
			return protowire.ParseError(m)
		}
		if err := f(n, v, typ == protowire.VarintType); err != nil {
			return err
		}
		b = b[m:]
	}
	return nil
}

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
