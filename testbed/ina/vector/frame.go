package vector

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/inabench/inabench/testbed/ina"
)

// headers before INA's: Ethernet, IPv4, UDP.
const headers = ina.Overhead - ina.HeaderLen

// Source is the address that the packets of a rank come from.
func Source(rank uint8) [4]byte { return [4]byte{10, 0, 0, rank + 1} }

// Frame is the Ethernet frame of a packet as its sender makes it. The UDP checksum is not 0,
// so that a switch that changes what it covers must have cleared it.
func (p Packet) Frame() []byte {
	f := make([]byte, headers+ina.HeaderLen+4*len(p.Values))
	p.Header.Put(f[headers:])
	for i, v := range p.Values {
		binary.BigEndian.PutUint32(f[headers+ina.HeaderLen+4*i:], uint32(v))
	}
	group, from, to := ina.UpGroup(p.Job), ina.DownPortBase, ina.UpPortBase
	if p.Flags&ina.FlagResult != 0 {
		group, from, to = ina.DownGroup(p.Job), ina.UpPortBase, ina.DownPortBase
	}
	src := Source(p.Rank)
	copy(f, []byte{0x01, 0x00, 0x5E, group[1] & 0x7F, group[2], group[3], 0x02, 0, 0, 0, 0, p.Rank, 0x08, 0x00})
	copy(f[14:], []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 16, 17, 0, 0})
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	copy(f[26:], src[:])
	copy(f[30:], group[:])
	binary.BigEndian.PutUint16(f[34:], uint16(from)|p.Job)
	binary.BigEndian.PutUint16(f[36:], uint16(to)|p.Job)
	binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
	binary.BigEndian.PutUint16(f[40:], 0x1234)
	seal(f)
	return f
}

// resultSource is where results come from that a switch makes; see testbed/softswitch.
var resultSource = [4]byte{192, 0, 0, 8}

// Derived is the frame of a packet that a switch sends because cause arrived: with the
// headers of the cause, except where it is a result that the switch itself makes. That is so
// where the cause is no result.
func (p Packet) Derived(cause Packet) []byte {
	q := cause
	q.Header, q.Values = p.Header, p.Values
	f := q.Frame()
	src := Source(cause.Rank)
	if p.Flags&ina.FlagResult != 0 && cause.Flags&ina.FlagResult == 0 {
		src = resultSource
	}
	f[11] = cause.Rank
	copy(f[26:], src[:])
	binary.BigEndian.PutUint16(f[40:], 0)
	seal(f)
	return f
}

// seal computes the IPv4 checksum.
func seal(f []byte) {
	binary.BigEndian.PutUint16(f[24:], 0)
	var s uint32
	for i := 14; i < 34; i += 2 {
		s += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	s = s&0xFFFF + s>>16
	s = s&0xFFFF + s>>16
	binary.BigEndian.PutUint16(f[24:], ^uint16(s))
}

// Describe is a frame for a person: its packet if it is one of INA, and the addresses.
func Describe(f []byte) string {
	if len(f) < headers {
		return fmt.Sprintf("%x", f)
	}
	h, err := ina.ParseHeader(f[headers:])
	if err != nil {
		return fmt.Sprintf("%x", f)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "job=%d psn=%d epoch=%d slot=%d rank=%d flags=%#02x bitmap=%#x lanes=", h.Job, h.PSN, h.Epoch, h.Slot, h.Rank, uint8(h.Flags), h.Bitmap)
	for i := range min(int(h.Lanes), 8) {
		fmt.Fprintf(&b, "%d,", int32(binary.BigEndian.Uint32(f[headers+ina.HeaderLen+4*i:])))
	}
	fmt.Fprintf(&b, " (%d) %s -> %s, headers %x", h.Lanes, netip.AddrFrom4([4]byte(f[26:])), netip.AddrFrom4([4]byte(f[30:])), f[:headers])
	return b.String()
}
