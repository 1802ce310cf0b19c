package softswitch

import (
	"encoding/binary"

	"github.com/inabench/inabench/testbed/ina"
)

// unicast is a UDP frame to dst with size bytes in all.
func unicast(dst [4]byte, size int) []byte {
	b := make([]byte, size)
	copy(b, []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0, 0x45})
	binary.BigEndian.PutUint16(b[16:], uint16(size-14))
	b[22], b[23] = 64, 17
	copy(b[26:], []byte{10, 0, 0, 1})
	copy(b[30:], dst[:])
	binary.BigEndian.PutUint16(b[34:], 1000)
	binary.BigEndian.PutUint16(b[36:], 2000)
	binary.BigEndian.PutUint16(b[38:], uint16(size-34))
	setIPChecksum(b[14:34])
	return b
}

// inaFrame is a frame of h with every lane set to value.
func inaFrame(h ina.Header, value int32) []byte {
	b := make([]byte, ina.Overhead+4*int(h.Lanes))
	group, sport, dport := ina.UpGroup(h.Job), ina.DownPortBase|h.Job, ina.UpPortBase|h.Job
	if h.Flags&ina.FlagResult != 0 {
		group, sport, dport = ina.DownGroup(h.Job), dport, sport
	}
	copy(b, unicast(group, len(b)))
	copy(b, []byte{1, 0, 0x5E, group[1], group[2], group[3]})
	binary.BigEndian.PutUint16(b[34:], sport)
	binary.BigEndian.PutUint16(b[36:], dport)
	h.Put(b[payloadAt:])
	for i := range int(h.Lanes) {
		binary.BigEndian.PutUint32(b[headLen+4*i:], uint32(value))
	}
	return b
}
