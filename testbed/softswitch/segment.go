package softswitch

import (
	"bytes"
	"encoding/binary"

	"github.com/inabench/inabench/testbed/ina"
)

// Segmentation offload: devices hand each other up to ina.MaxSegments frames of one
// flow as a single super-frame, the headers once and then the payloads, with a
// virtio_net_hdr in front that says how to take it apart (packet(7),
// PACKET_VNET_HDR; Virtual I/O Device 1.2, section 5.1.6). The cost per frame is
// then that of the copy; a cable still carries the frames one by one, because the
// switch takes super-frames apart before they enter its virtual time.

// vnetLen is the length of a virtio_net_hdr, which is in the machine's byte order:
// flags u8, gso_type u8, hdr_len u16, gso_size u16, csum_start u16, csum_offset u16.
const vnetLen = 10

const (
	vnetNeedsChecksum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	vnetNoSegments    = 0 // VIRTIO_NET_HDR_GSO_NONE
	vnetUDPSegments   = 5 // VIRTIO_NET_HDR_GSO_UDP_L4, Linux 6.2
)

// segments hands the frames of a super-frame to do and reports whether it was one it
// understands: a plain frame, or UDP over IPv4 without options. It writes each
// frame's headers over the end of the one before.
func segments(vnet, b []byte, do func([]byte)) bool {
	switch vnet[1] {
	case vnetNoSegments:
		if vnet[0]&vnetNeedsChecksum != 0 && !finishChecksum(b, int(binary.NativeEndian.Uint16(vnet[6:])), int(binary.NativeEndian.Uint16(vnet[8:]))) {
			return false
		}
		do(b)
		return true
	case vnetUDPSegments:
	default:
		return false
	}
	size := int(binary.NativeEndian.Uint16(vnet[4:]))
	if size == 0 || len(b) < payloadAt+1 || binary.BigEndian.Uint16(b[12:]) != etherIPv4 || b[14] != 0x45 || b[23] != 17 {
		return false
	}
	var head [payloadAt]byte
	copy(head[:], b)
	resize(head[:], size)
	for len(b) >= payloadAt+size {
		copy(b, head[:])
		do(b[:payloadAt+size])
		b = b[size:]
	}
	if rest := len(b) - payloadAt; rest > 0 {
		resize(head[:], rest)
		copy(b, head[:])
		do(b)
	}
	return true
}

// resize makes the headers of a UDP frame those of a frame with a payload of size
// bytes and without UDP checksum.
func resize(head []byte, size int) {
	binary.BigEndian.PutUint16(head[16:], uint16(payloadAt-14+size))
	binary.BigEndian.PutUint16(head[38:], uint16(8+size))
	binary.BigEndian.PutUint16(head[40:], 0)
	setIPChecksum(head[14:34])
}

// finishChecksum does what a device with checksum offload would: it replaces the
// part of a checksum at start+offset by that of all bytes from start.
func finishChecksum(b []byte, start, offset int) bool {
	at := start + offset
	if at+2 > len(b) {
		return false
	}
	if start == 34 && len(b) > 23 && b[23] == 17 && binary.BigEndian.Uint16(b[12:]) == etherIPv4 {
		binary.BigEndian.PutUint16(b[at:], 0) // UDP need not have one
		return true
	}
	var sum uint64
	rest := b[start:]
	for ; len(rest) >= 2; rest = rest[2:] {
		sum += uint64(binary.BigEndian.Uint16(rest))
	}
	if len(rest) == 1 {
		sum += uint64(rest[0]) << 8
	}
	for sum > 0xFFFF {
		sum = sum&0xFFFF + sum>>16
	}
	binary.BigEndian.PutUint16(b[at:], ^uint16(sum))
	return true
}

// run is how many packets at the head of ps may leave as one super-frame: INA
// packets of one flow and size, of which the last may be shorter.
func run(ps []*packet) int {
	first := ps[0]
	if first.job == 0 || int(binary.BigEndian.Uint16(first.head[16:])) != first.size-14 {
		return 1
	}
	n := 1
	for n < min(len(ps), ina.MaxSegments) {
		p := ps[n]
		if p.job != first.job || p.size > first.size || int(binary.BigEndian.Uint16(p.head[16:])) != p.size-14 ||
			!bytes.Equal(p.head[:16], first.head[:16]) || !bytes.Equal(p.head[26:38], first.head[26:38]) {
			break
		}
		n++
		if p.size < first.size {
			break
		}
	}
	return n
}

// superHead writes the virtio_net_hdr and the headers of a super-frame of the given
// packets.
func superHead(b *[vnetLen + payloadAt]byte, ps []*packet) {
	size := -payloadAt * len(ps)
	for _, p := range ps {
		size += p.size
	}
	vnet, head := b[:vnetLen], b[vnetLen:]
	vnet[0], vnet[1] = vnetNeedsChecksum, vnetUDPSegments
	binary.NativeEndian.PutUint16(vnet[2:], payloadAt)
	binary.NativeEndian.PutUint16(vnet[4:], uint16(ps[0].size-payloadAt))
	binary.NativeEndian.PutUint16(vnet[6:], 34) // of UDP
	binary.NativeEndian.PutUint16(vnet[8:], 6)
	copy(head, ps[0].head[:payloadAt])
	resize(head, size)
	// What is left to do is to add the sum from UDP on: that of the pseudo-header.
	sum := uint32(17) + uint32(8+size)
	for i := 26; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(head[i:]))
	}
	sum = sum&0xFFFF + sum>>16
	sum = sum&0xFFFF + sum>>16
	binary.BigEndian.PutUint16(head[40:], uint16(sum))
}
