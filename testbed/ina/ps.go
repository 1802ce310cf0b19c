package ina

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// PSConfig is what a parameter server has to know about its job.
type PSConfig struct {
	Job     uint16
	Epoch   uint16
	Workers int // 1..MaxWorkers
	Lanes   int // int32 values per packet, 1..MaxLanes
	Window  int // of the workers; results are kept for twice that
	// Unicast says that a result goes to each worker by itself (the plain ps
	// collective), so that one worker's resend is answered to it alone. Otherwise
	// an answer reaches all workers.
	Unicast bool
}

// PSStats are totals.
type PSStats struct {
	Arrived   int64 // gradient packets of this job and epoch
	Completed int64 // PSNs
	Merged    int64 // of Arrived: added to a sum
	Duplicate int64 // of Arrived: nothing new in it
	Conflicts int64 // of Arrived: overlapped the sum in part, so nothing could be done with it
	Answered  int64 // results sent again
	Stray     int64 // packets of another job or epoch, or that make no sense, as a PSN that no worker can have sent
	Late      int64 // of Arrived: older than what is kept
	Evicted   int64 // incomplete PSNs overwritten by newer ones; never, while workers keep to the window
}

// PS is the parameter server of one job in statistical mode, or of the plain ps
// collective: it completes what switches could not.
//
// Sums arrive with the bitmap of the workers in them. One that is disjoint from
// what the PSN has is added; one that contains all of it takes its place; one that
// is contained in it says nothing new. One that overlaps in part is ignored: the
// workers will time out, and what they then resend arrives one by one, so it always
// ends.
//
// A worker sends a PSN when the one a window before is complete. One that is farther ahead
// was damaged on its way, and would take the place of those to come.
type PS struct {
	cfg    PSConfig
	full   uint64
	ring   []psSlot
	frames []byte // one result packet per slot
	size   int    // bytes of one
	newest uint32 // PSN of those completed, valid if there is one
	stats  PSStats
}

type psSlot struct {
	psn     uint32
	used    bool
	done    bool
	flags   Flags
	slot    uint16
	bitmap  uint64
	resent  uint64 // workers whose resend came before the sum was complete
	covered uint64 // workers whose next resend a result on its way will have answered
}

// NewPS returns a PS that has seen nothing.
func NewPS(cfg PSConfig) (*PS, error) {
	switch {
	case cfg.Job == 0 || cfg.Job > MaxJob:
		return nil, fmt.Errorf("ps: job %d outside 1..%d", cfg.Job, MaxJob)
	case cfg.Workers < 1 || cfg.Workers > MaxWorkers:
		return nil, fmt.Errorf("ps: %d workers, want 1..%d", cfg.Workers, MaxWorkers)
	case cfg.Lanes < 1 || cfg.Lanes > MaxLanes:
		return nil, fmt.Errorf("ps: %d lanes, want 1..%d", cfg.Lanes, MaxLanes)
	case cfg.Window < 1 || cfg.Window > 1<<20:
		return nil, fmt.Errorf("ps: window of %d packets, want 1..%d", cfg.Window, 1<<20)
	}
	n, size := ringSize(2*cfg.Window), HeaderLen+4*cfg.Lanes
	return &PS{
		cfg:    cfg,
		full:   allRanks(cfg.Workers),
		ring:   make([]psSlot, n),
		frames: make([]byte, n*size),
		size:   size,
	}, nil
}

// Receive takes a UDP payload from below. When that completes a PSN, or asks again
// for one that is complete, it returns the result packet and the bitmap of the
// workers it is for; otherwise nil. The packet is the PS's own memory, valid until
// PSNs two windows later arrive.
func (p *PS) Receive(b []byte) (result []byte, to uint64) {
	h, err := ParseHeader(b)
	if err != nil || h.Flags&FlagResult != 0 || h.Job != p.cfg.Job || h.Epoch != p.cfg.Epoch ||
		int(h.Lanes) != p.cfg.Lanes || h.Bitmap == 0 || h.Bitmap&^p.full != 0 {
		p.stats.Stray++
		return nil, 0
	}
	if p.beyond(h.PSN) {
		p.stats.Stray++
		return nil, 0
	}
	p.stats.Arrived++
	i := int(h.PSN) & (len(p.ring) - 1)
	e, frame := &p.ring[i], p.frames[i*p.size:(i+1)*p.size]
	if !e.used || e.psn != h.PSN {
		if e.used && int32(h.PSN-e.psn) < 0 && !p.beyond(e.psn) {
			p.stats.Late++
			return nil, 0
		}
		if e.used && !e.done {
			p.stats.Evicted++
		}
		*e = psSlot{psn: h.PSN, used: true}
	}
	// A resend from the worker itself, not a sum that it pushed out of a switch.
	var asks uint64
	if h.Flags&FlagResend != 0 && h.Rank != NoRank {
		asks = h.Bitmap
	}
	if e.done {
		p.stats.Duplicate++
		return p.answer(e, frame, asks)
	}
	e.resent |= asks
	lanes := b[HeaderLen:p.size]
	switch have := e.bitmap; {
	case have&h.Bitmap == 0 && have != 0:
		if addLanes(frame[HeaderLen:], lanes) {
			e.flags |= FlagOverflow
		}
		e.flags |= h.Flags
		e.bitmap |= h.Bitmap
	case have&^h.Bitmap == 0 && have != h.Bitmap: // also the first
		copy(frame[HeaderLen:], lanes)
		e.flags = h.Flags
		e.bitmap = h.Bitmap
	case h.Bitmap&^have == 0:
		p.stats.Duplicate++
		return nil, 0
	default:
		p.stats.Conflicts++
		return nil, 0
	}
	p.stats.Merged++
	e.slot = h.Slot
	if e.bitmap != p.full {
		return nil, 0
	}
	e.done = true
	if h.Flags&FlagResend != 0 {
		// The others timed out as well; their resends are right behind this one.
		e.covered = p.full &^ e.resent
	}
	if p.stats.Completed == 0 || int32(e.psn-p.newest) > 0 {
		p.newest = e.psn
	}
	p.stats.Completed++
	Header{
		Flags:  FlagResult | e.flags&(FlagECN|FlagOverflow|FlagCollision),
		Job:    p.cfg.Job,
		PSN:    e.psn,
		Epoch:  p.cfg.Epoch,
		Slot:   e.slot,
		Rank:   NoRank,
		Lanes:  uint8(p.cfg.Lanes),
		Bitmap: p.full,
	}.Put(frame)
	return frame, p.full
}

// beyond reports whether psn is one that no worker can have sent yet. Before the first PSN is
// completed nothing is known.
func (p *PS) beyond(psn uint32) bool {
	return p.stats.Completed > 0 && int32(psn-p.newest) > int32(p.cfg.Window)
}

// answer decides whether a complete PSN is sent again to the workers that ask. An
// answer to one reaches all unless unicast, so when all of them resend at once only
// the first is answered; whoever asks twice is answered.
func (p *PS) answer(e *psSlot, frame []byte, asks uint64) ([]byte, uint64) {
	if asks == 0 {
		return nil, 0
	}
	if !p.cfg.Unicast {
		if e.covered&asks != 0 {
			e.covered &^= asks
			return nil, 0
		}
		e.covered = p.full &^ asks
		asks = p.full
	}
	p.stats.Answered++
	return frame, asks
}

// Stats returns the totals so far.
func (p *PS) Stats() PSStats { return p.stats }

// addLanes adds src to dst, lanes in wire order, and reports whether one wrapped.
func addLanes(dst, src []byte) bool {
	var wrapped uint64
	for len(dst) >= 8 && len(src) >= 8 {
		s, o := add2(binary.BigEndian.Uint64(dst), binary.BigEndian.Uint64(src))
		binary.BigEndian.PutUint64(dst, s)
		wrapped |= o
		dst, src = dst[8:], src[8:]
	}
	if len(dst) >= 4 && len(src) >= 4 {
		s, o := add2(uint64(binary.BigEndian.Uint32(dst))<<32, uint64(binary.BigEndian.Uint32(src))<<32)
		binary.BigEndian.PutUint32(dst, uint32(s>>32))
		wrapped |= o
	}
	return wrapped&signs != 0
}

// Ranks iterates over the workers in a bitmap, lowest first.
func Ranks(bitmap uint64) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for ; bitmap != 0; bitmap &= bitmap - 1 {
			if !yield(bits.TrailingZeros64(bitmap)) {
				return
			}
		}
	}
}
