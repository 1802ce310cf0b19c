package collectives

import "math"

// What TCP makes of gradients on Ethernet with an MTU of 1,500 bytes. Frames are without
// preamble, FCS and gap, as NICs count them and as inventories mean their rates.
const (
	Segment = 14 + 20 + 32 + Payload // bytes of a full frame: Ethernet, IPv4, TCP with timestamps, gradient
	Payload = 1448                   // bytes of gradient in it
	Ack     = 14 + 20 + 32           // bytes of a frame that acknowledges only
	// AcksPerSegment is one for two full segments, as RFC 1122 has it and Linux does.
	AcksPerSegment = 0.5
)

// Acks is what comes back for each bit of full segments.
const Acks = AcksPerSegment * Ack / Segment

// Wire is the bits of full segments for each bit of gradient, and Duplex these with the
// acknowledgements of as much that goes the other way, which cross the same direction of a
// link: what a ring or an exchange takes of it.
const (
	Wire   = float64(Segment) / Payload
	Duplex = Wire * (1 + Acks)
)

// RingMessage is the bytes of an operation of a ring job that was given none.
const RingMessage = 4 << 20

// A rank of a pipelined ring passes a chunk on in eight blocks, of these bytes at least and
// at most (package testbed/collective).
const (
	blocksPerChunk     = 8
	piece              = 960
	minBlock, maxBlock = 4 * piece, MaxBlock
)

// MaxBlock is the most bytes that a rank of a pipelined ring waits for at once.
const MaxBlock = 64 * piece

// RingHeader is the bytes that a rank of a pipelined ring sends before each chunk.
const RingHeader = 24

// RingChunks are the bytes of each chunk into which n ranks of a pipelined ring cut a vector,
// whole pieces but for the last, and the bytes of a block (package testbed/collective).
func RingChunks(n int, bytes int64) (chunks []int64, block int64) {
	size := Values(bytes)
	pieces := (bytes + piece - 1) / piece
	at := int64(0)
	for i := range int64(n) {
		end := min(pieces*(i+1)/int64(n)*piece, size)
		chunks = append(chunks, end-at)
		at = end
	}
	return chunks, min(max(pieces/int64(n)/blocksPerChunk*piece, minBlock), maxBlock)
}

// Values are as many bytes as the int32 values of a vector of so many bytes have.
func Values(bytes int64) int64 { return (bytes + 3) &^ 3 }

// RingTail is how long an all-reduce of a vector of so many bytes around a pipelined ring of
// n workers takes beyond transfer, s, in which all that a worker sends would leave it: hops, s,
// are on its way what each worker sends last to the next one; one stands for all of them.
//
// A worker sends 2(n-1) chunks, and each but the first one block after block as these come
// from the one before. So it sends a chunk when it has sent the one before, and when that
// chunk's first block has come, whichever is later: the last chunk comes after the longest chain
// of such steps, each of which stays at a worker for a chunk or moves on to the next one for a
// hop and a block. A slow hop is passed once in a turn of the ring.
func RingTail(n int, bytes, transfer float64, hops ...float64) float64 {
	steps := 2 * (n - 1)
	if steps <= 0 {
		return 0
	}
	chunk := bytes / float64(n)
	part := 1.0 // of a chunk, in a block
	if chunk > 0 {
		part = min(1, min(max(chunk/blocksPerChunk, minBlock), maxBlock)/chunk)
	}
	each := transfer / float64(steps)
	if len(hops) == 1 {
		return hops[0] + float64(steps-1)*math.Max(0, hops[0]+part*each-each)
	}
	late, next := make([]float64, n), make([]float64, n) // beyond a chunk a step
	for range steps - 1 {
		for w := range next {
			before := (w + n - 1) % n
			next[w] = max(late[w], late[before]+hops[before]+part*each-each)
		}
		late, next = next, late
	}
	worst := 0.0
	for w := range late {
		worst = max(worst, late[w]+hops[w])
	}
	return worst
}
