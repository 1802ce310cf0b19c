package ina

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// The INA header follows UDP. All fields are big-endian.
//
//	 0  magic   u8   0xA1
//	 1  flags   u8   see Flags
//	 2  job     u16  1..4095
//	 4  psn     u32  packet sequence number within the job's run; it wraps, see Switch
//	 8  epoch   u16  run epoch: aggregators of an earlier run never match
//	10  slot    u16  the aggregator the host asks for (atp addressing), else 0
//	12  rank    u8   rank of the sending worker; NoRank when a switch or PS sent it
//	13  lanes   u8   int32 values that follow
//	14  bitmap  u64  workers whose gradients are summed in this packet (bit = rank)
//	22  lanes x int32
//
// With 240 lanes an Ethernet frame (without FCS) is 14+20+8+22+960 = 1,024 bytes.
//
// An operation on an exclusive tree is a run of consecutive PSNs: one packet flagged
// FlagLock, the gradients, one packet flagged FlagUnlock. Each is summed up the tree like
// any other. Lock and unlock have two lanes: lane 0 is 0, and lane 1 is Seal less lane 0.
// Lane 0 of the lock's result is how often the tree was refused on the way up: 0 says that
// all workers may send their gradients, anything else that none of them may, and then the
// operation ends there and the next one begins with the next PSN. Whoever refuses keeps the
// lanes' sum what it was, Seal times the workers in the bitmap. Where it is not, something
// was damaged: a switch drops the packet, and a worker counts a wrong value and asks again.
const (
	Magic      = 0xA1
	HeaderLen  = 22
	MaxLanes   = 240
	MaxWorkers = 64 // bits in the bitmap
	NoRank     = 0xFF

	// MaxSegments is how many packets hosts and switches hand to a device as one where
	// segmentation offload is on; of the longest, that is half of an IPv4 datagram.
	MaxSegments = 32

	// Seal is what the two lanes of one worker's lock or unlock add up to, modulo 2^32.
	// MaxWorkers of them, less any refusals, do not wrap.
	Seal = 0x155AA5

	// OpLanes is how many lanes locks and unlocks have.
	OpLanes = 2

	// Overhead is the bytes of an Ethernet frame (without preamble and FCS) that
	// are not gradient: Ethernet 14, IPv4 20, UDP 8, INA 22.
	Overhead = 14 + 20 + 8 + HeaderLen
)

// INA traffic is UDP to IPv4 multicast groups, so that a worker and a PS on one
// host still talk through their switch, and so that no address is rewritten on
// the way. A switch recognises it by the destination port's top three bits.
const (
	DownPortBase = 0x6000 // + job: results, PS -> workers; also a worker's source port
	UpPortBase   = 0x7000 // + job: gradients, workers -> PS; also the PS's source port
	PortMask     = 0xE000
	PortMatch    = 0x6000
	MaxJob       = 0x0FFF
)

// RingPortBase + job is the TCP port on which a rank of a ring takes the connection of the one
// before it: 20481..24575, below the ports that Linux gives to outgoing connections (32768 and
// up), which could be taken, and none of UDP above. Fair queues know a ring's frames by it.
const RingPortBase = 0x5000

// UpGroup is the group address gradients of job are sent to (239.77.x.y); the
// switches carry it along the job's tree to its PS.
func UpGroup(job uint16) [4]byte { return [4]byte{239, 77, byte(job >> 8), byte(job)} }

// DownGroup is the group address results of job are sent to (239.78.x.y); the
// switches replicate it to every worker.
func DownGroup(job uint16) [4]byte { return [4]byte{239, 78, byte(job >> 8), byte(job)} }

// Flags of a packet.
type Flags uint8

const (
	FlagResult    Flags = 1 << iota // travels down, PS (or root switch) to workers
	FlagResend                      // sent again after a timeout: pushes partial sums out
	FlagCollision                   // was denied an aggregator somewhere on its way up
	FlagECN                         // some packet in this sum met a queue above its ECN threshold
	FlagOverflow                    // a lane's two's-complement sum wrapped
	FlagLock                        // exclusive mode: first packet of an operation, asks for the tree; see Seal
	FlagUnlock                      // exclusive mode: last packet of an operation, gives the tree back
)

// Header is the INA header in host order.
type Header struct {
	Flags  Flags
	Job    uint16
	PSN    uint32
	Epoch  uint16
	Slot   uint16
	Rank   uint8
	Lanes  uint8
	Bitmap uint64
}

// ErrNotINA is wrapped by every error of ParseHeader.
var ErrNotINA = errors.New("not an INA packet")

// ParseHeader reads the header at the start of a UDP payload and checks that the
// lanes it announces are there; b[HeaderLen:HeaderLen+4*Lanes] are the gradients.
// On error the header is zero and the error wraps ErrNotINA.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, fmt.Errorf("%w: %d bytes, a header has %d", ErrNotINA, len(b), HeaderLen)
	}
	if b[0] != Magic {
		return Header{}, fmt.Errorf("%w: magic %#02x, want %#02x", ErrNotINA, b[0], Magic)
	}
	h := Header{
		Flags:  Flags(b[1]),
		Job:    binary.BigEndian.Uint16(b[2:]),
		PSN:    binary.BigEndian.Uint32(b[4:]),
		Epoch:  binary.BigEndian.Uint16(b[8:]),
		Slot:   binary.BigEndian.Uint16(b[10:]),
		Rank:   b[12],
		Lanes:  b[13],
		Bitmap: binary.BigEndian.Uint64(b[14:]),
	}
	switch {
	case h.Lanes > MaxLanes:
		return Header{}, fmt.Errorf("%w: %d lanes, at most %d", ErrNotINA, h.Lanes, MaxLanes)
	case len(b) < HeaderLen+4*int(h.Lanes):
		return Header{}, fmt.Errorf("%w: %d lanes announced, room for %d", ErrNotINA, h.Lanes, (len(b)-HeaderLen)/4)
	case h.Job == 0 || h.Job > MaxJob:
		return Header{}, fmt.Errorf("%w: job %d outside 1..%d", ErrNotINA, h.Job, MaxJob)
	}
	return h, nil
}

// sealOp makes lanes those of one worker's lock or unlock that refuses so often.
func sealOp(lanes []byte, refusals uint32) {
	binary.BigEndian.PutUint32(lanes, refusals)
	binary.BigEndian.PutUint32(lanes[4:], Seal-refusals)
}

// sealed reports whether lanes can be those of the lock or unlock of all workers in bitmap.
func sealed(lanes []byte, bitmap uint64) bool {
	return len(lanes) == 4*OpLanes &&
		binary.BigEndian.Uint32(lanes)+binary.BigEndian.Uint32(lanes[4:]) == Seal*uint32(bits.OnesCount64(bitmap))
}

// Put writes h into the first HeaderLen bytes of b.
func (h Header) Put(b []byte) {
	_ = b[HeaderLen-1]
	b[0] = Magic
	b[1] = byte(h.Flags)
	binary.BigEndian.PutUint16(b[2:], h.Job)
	binary.BigEndian.PutUint32(b[4:], h.PSN)
	binary.BigEndian.PutUint16(b[8:], h.Epoch)
	binary.BigEndian.PutUint16(b[10:], h.Slot)
	b[12] = h.Rank
	b[13] = h.Lanes
	binary.BigEndian.PutUint64(b[14:], h.Bitmap)
}
