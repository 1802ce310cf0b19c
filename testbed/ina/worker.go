package ina

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Startup is how many PSNs a worker sends one at a time before its window opens.
// PSN 0 is a barrier: its result comes when every worker of the job has started.
// PSN 1, sent by all of them on that result, probes the round trip at low load; its
// result, a multicast, is the instant from which all of them count.
const Startup = 2

// The retransmission timeout stays within 1 and maxRTO times the configured one: a
// result also waits for the other workers' recovery, and timeouts that followed
// that would drive each other up without end. The barrier is resent patiently: ATP
// too gives its first packet 50 ms.
const (
	maxRTO     = 16
	barrierRTO = 50 * time.Millisecond
)

// aimdIncrease is the packets per round trip by which a window grows: ATP's 1500
// bytes are about four of its packets (common/CC_manager.h).
const aimdIncrease = 4

// WorkerConfig is what one worker has to know.
type WorkerConfig struct {
	Job     uint16
	Epoch   uint16
	Rank    int // 0..Workers-1
	Workers int // 1..MaxWorkers
	Lanes   int // int32 values per packet, 1..MaxLanes
	// Window is how far, in PSNs, a worker runs ahead of the oldest result it still
	// lacks. It is the same for all workers of a job, and what switches and PS size
	// their memory by: PSN p is sent only when the result of p-Window has come. Resume
	// changes it, up to this.
	Window int
	// AIMD lets ECN marks and timeouts shrink the window (never below one packet)
	// and clean results grow it again up to Window; otherwise it is fixed.
	AIMD bool
	// RTO is the least time after which an unanswered packet is resent; the timeout
	// grows with the measured round trip and backs off while nothing is answered.
	RTO  time.Duration
	Seed uint64
	// Region is how many aggregators a job without a PS has, the same in each of its
	// switches: its PSNs wrap at a multiple of it, as Switch says. 0: they wrap at 2^32, as
	// those of a job with a PS do.
	Region int
	// Addressing and Offset are how packets name their aggregators (see NameSlot). Under atp
	// addressing Slots does, by PSN (see ATPSlots); else it is nil.
	Addressing Addressing
	Offset     uint32
	Slots      []uint16
}

// WorkerStats are totals. Durations and marks are those of results.
type WorkerStats struct {
	Sent      int64 // packets, resends included
	Resends   int64
	Results   int64 // PSNs reduced
	Duplicate int64 // results of PSNs that had been answered before
	Stray     int64 // packets that are no result for this job and epoch, or not of all its workers
	Marks     int64 // results carrying ECN
	Overflows int64 // results carrying overflow
	RTTSum    time.Duration
	RTTCount  int64 // results of PSNs sent once (Karn), the barrier excepted
	RTTMin    time.Duration
	Checked   int64 // int32 values compared with the reference
	Wrong     int64 // of these, different
	Damaged   int64 // results with some that are
}

// Worker is one worker of one job: it decides what may be sent and when it has to
// be sent again, and takes and checks the results. Times are offsets from any fixed
// origin and must not decrease.
type Worker struct {
	cfg  WorkerConfig
	ref  Reference
	full uint64

	// Sequence numbers are PSNs that do not wrap: zero has PSN 0, and so has every wrap-th
	// after it. base <= next, edge; every result
	// below base has come; next is the next to be sent, which it may be below edge.
	base, next, edge uint64
	zero, wrap       uint64
	allowed          uint64 // the application has gradients below this
	limit            uint64 // a pause ends here
	stop             uint64 // the job ends here
	newest           uint64 // sequence number answered so far
	cut              uint64 // results below this saw the window before it was last halved
	window           int    // at most, now
	cwnd             float64

	ring       []psnState
	mask       uint64
	head, tail int32 // outstanding PSNs by last transmission, oldest first; -1: none

	srtt, rttvar time.Duration
	backoff      uint
	backedOff    time.Duration

	startup uint64 // PSNs sent one at a time
	op      *operation

	stats WorkerStats
}

// operation is where the packets of a Reducer that are not gradients are. Sequence
// numbers below first are of earlier operations, and unlock is beyond first.
type operation struct {
	first, unlock uint64
	veto          uint32 // lane 0 of the lock
}

// flags are those of the packet of s, which is of this operation.
func (o *operation) flags(s uint64) Flags {
	switch {
	case o == nil:
	case s == o.first:
		return FlagLock
	case s == o.unlock:
		return FlagUnlock
	}
	return 0
}

// psnState is what a worker knows about one PSN of its window.
type psnState struct {
	opened     time.Duration // when the window came to include it
	sent       time.Duration // last time
	prev, next int32
	resent     bool
	done       bool
}

// NewWorker returns a worker with nothing to send yet: see Allow.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	switch {
	case cfg.Job == 0 || cfg.Job > MaxJob:
		return nil, fmt.Errorf("worker: job %d outside 1..%d", cfg.Job, MaxJob)
	case cfg.Workers < 1 || cfg.Workers > MaxWorkers:
		return nil, fmt.Errorf("worker: %d workers, want 1..%d", cfg.Workers, MaxWorkers)
	case cfg.Rank < 0 || cfg.Rank >= cfg.Workers:
		return nil, fmt.Errorf("worker: rank %d of %d workers", cfg.Rank, cfg.Workers)
	case cfg.Lanes < 1 || cfg.Lanes > MaxLanes:
		return nil, fmt.Errorf("worker: %d lanes, want 1..%d", cfg.Lanes, MaxLanes)
	case cfg.Window < 1 || cfg.Window > 1<<20:
		return nil, fmt.Errorf("worker: window of %d packets, want 1..%d", cfg.Window, 1<<20)
	case cfg.Region != 0 && cfg.Region < 2*cfg.Window || cfg.Region > 2<<20:
		return nil, fmt.Errorf("worker: a region of %d aggregators for a window of %d, want twice the window", cfg.Region, cfg.Window)
	case cfg.RTO <= 0:
		return nil, errors.New("worker: retransmission timeout must be positive")
	}
	size := ringSize(cfg.Window)
	return &Worker{
		cfg:     cfg,
		ref:     NewReference(cfg.Seed, cfg.Job, cfg.Workers).In(cfg.Epoch),
		wrap:    wrapAt(cfg.Region),
		full:    allRanks(cfg.Workers),
		stop:    math.MaxUint64,
		limit:   math.MaxUint64,
		window:  cfg.Window,
		cwnd:    float64(cfg.Window),
		startup: Startup,
		ring:    make([]psnState, size),
		mask:    uint64(size - 1),
		head:    -1, tail: -1,
	}, nil
}

// ringSize is the smallest power of two that is at least n.
func ringSize(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return size
}

// wrapAt is where the PSNs of a job with a region of n aggregators begin again: after the
// last whole turn of the region that 32 bits can count.
func wrapAt(n int) uint64 {
	if n == 0 {
		return 1 << 32
	}
	return 1 << 32 / uint64(n) * uint64(n)
}

// psn is that of a sequence number.
func (w *Worker) psn(s uint64) uint32 { return uint32((s - w.zero) % w.wrap) }

// sequence is the first sequence number from base on with the given PSN; not ok where none
// has it.
func (w *Worker) sequence(psn uint32) (s uint64, ok bool) {
	ahead := uint64(psn) + w.wrap - uint64(w.psn(w.base))
	return w.base + ahead%w.wrap, uint64(psn) < w.wrap
}

// allRanks is the bitmap of n workers.
func allRanks(n int) uint64 { return ^uint64(0) >> (64 - n) }

// Allow lets n further PSNs be sent from t on. Endless is more than any run sends.
func (w *Worker) Allow(n int64, t time.Duration) {
	w.allowed = min(w.allowed+uint64(max(n, 0)), Endless)
	w.open(t)
}

// Endless is the n of Allow for a stream.
const Endless = math.MaxInt64

// open recomputes how far the window reaches, at t.
func (w *Worker) open(t time.Duration) {
	room := uint64(w.cwnd)
	if w.base < w.startup {
		room = 1
	}
	edge := min(w.base+room, w.allowed, w.stop, w.limit)
	for s := w.edge; s < edge; s++ {
		w.ring[s&w.mask].opened = t
	}
	w.edge = edge
}

// Next returns the PSN to be sent next and when the window opened for it. It is not
// ok while the window, or the gradients allowed, are used up.
func (w *Worker) Next() (psn uint32, opened time.Duration, ok bool) {
	if w.next >= w.edge {
		return 0, 0, false
	}
	return w.psn(w.next), w.ring[w.next&w.mask].opened, true
}

// PacketLen is the UDP payload bytes of every packet of gradients.
func (w *Worker) PacketLen() int { return HeaderLen + 4*w.cfg.Lanes }

// Send writes the next PSN's packet to b, to be transmitted at t, and returns its
// length: PacketLen, or 0 when Next is not ok.
func (w *Worker) Send(t time.Duration, b []byte) int {
	if w.next >= w.edge {
		return 0
	}
	s := w.next
	w.next++
	e := &w.ring[s&w.mask]
	e.resent, e.done = false, false
	w.stats.Sent++
	return w.transmit(s, t, 0, b)
}

// Deadline is when the oldest unanswered packet has to be resent; not ok when
// nothing is outstanding.
func (w *Worker) Deadline() (t time.Duration, ok bool) {
	if w.head < 0 {
		return 0, false
	}
	return w.ring[w.head].sent + w.timeout(), true
}

// Resend writes the packet whose deadline passed longest ago, flagged, to b, to be
// transmitted at t, and returns its length, or 0 when none is due.
func (w *Worker) Resend(t time.Duration, b []byte) int {
	d, ok := w.Deadline()
	if !ok || t < d {
		return 0
	}
	i := w.head
	e := &w.ring[i]
	if e.sent >= w.backedOff { // once for all that was sent before the last time
		w.backoff = min(w.backoff+1, 16)
		w.backedOff = t
	}
	s := w.base + (uint64(i)-w.base)&w.mask
	w.shrink(s)
	w.unlink(i)
	e.resent = true
	w.stats.Sent++
	w.stats.Resends++
	return w.transmit(s, t, FlagResend, b)
}

func (w *Worker) timeout() time.Duration {
	least := w.cfg.RTO
	if w.base == 0 && w.startup > 0 {
		least = max(least, barrierRTO)
	}
	return min(max(least, w.srtt+4*w.rttvar)<<w.backoff, maxRTO*least) // RFC 6298, section 2
}

// LongestTimeout is how long a worker with that configured timeout may send nothing while it
// waits for an answer: it has backed off as far as it does.
func LongestTimeout(rto time.Duration) time.Duration { return maxRTO * max(rto, barrierRTO) }

func (w *Worker) transmit(s uint64, t time.Duration, f Flags, b []byte) int {
	i := int32(s & w.mask)
	w.ring[i].sent = t
	w.append(i)
	psn := w.psn(s)
	op := w.op.flags(s)
	h := Header{
		Flags:  f | op,
		Job:    w.cfg.Job,
		PSN:    psn,
		Epoch:  w.cfg.Epoch,
		Rank:   uint8(w.cfg.Rank),
		Slot:   NameSlot(w.cfg.Addressing, w.cfg.Job, psn, w.cfg.Offset),
		Lanes:  uint8(w.cfg.Lanes),
		Bitmap: 1 << w.cfg.Rank,
	}
	if n := uint64(len(w.cfg.Slots)); n > 0 {
		h.Slot = w.cfg.Slots[s%n]
	}
	if op != 0 {
		h.Lanes = OpLanes
		b = b[:HeaderLen+4*OpLanes]
		h.Put(b)
		refusals := uint32(0)
		if op == FlagLock {
			refusals = w.op.veto
		}
		sealOp(b[HeaderLen:], refusals)
		return len(b)
	}
	b = b[:w.PacketLen()]
	h.Put(b)
	w.ref.Fill(b[HeaderLen:], w.cfg.Rank, psn)
	return len(b)
}

// Receive takes a UDP payload that arrived at t. It reports whether it was the
// first result of an outstanding PSN.
func (w *Worker) Receive(b []byte, t time.Duration) bool {
	h, err := ParseHeader(b)
	if err != nil || h.Flags&FlagResult == 0 || h.Job != w.cfg.Job || h.Epoch != w.cfg.Epoch || h.Bitmap != w.full {
		w.stats.Stray++
		return false
	}
	s, ok := w.sequence(h.PSN)
	e := &w.ring[s&w.mask]
	if !ok || s >= w.next || e.done {
		w.stats.Duplicate++
		return false
	}
	op, lanes := w.op.flags(s), w.cfg.Lanes
	if op != 0 {
		lanes = OpLanes
	}
	if h.Flags&(FlagLock|FlagUnlock) != op || int(h.Lanes) != lanes {
		w.stats.Stray++
		return false
	}
	if op != 0 && !sealed(b[HeaderLen:HeaderLen+4*OpLanes], h.Bitmap) {
		w.stats.Checked += OpLanes
		w.stats.Wrong++
		w.stats.Damaged++
		return false // what it says may not be true: the timeout asks again
	}
	w.stats.Results++
	e.done = true
	w.unlink(int32(s & w.mask))
	// A barrier, a lock and an unlock wait for the slowest worker: no round trips.
	if op != 0 {
		w.backoff = 0
	} else if !e.resent && s >= min(w.startup, 1) {
		w.sample(max(t-e.sent, 0), s >= w.newest)
	}
	w.newest = max(w.newest, s)

	if op == 0 {
		w.stats.Checked += int64(w.cfg.Lanes)
		if n := w.ref.Check(b[HeaderLen:w.PacketLen()], h.PSN); n > 0 {
			w.stats.Wrong += int64(n)
			w.stats.Damaged++
		}
	}
	if h.Flags&FlagOverflow != 0 {
		w.stats.Overflows++
	}
	if h.Flags&FlagECN != 0 {
		w.stats.Marks++
		w.shrink(s)
	} else if w.cfg.AIMD {
		w.cwnd = min(w.cwnd+aimdIncrease/w.cwnd, float64(w.window))
	}
	for w.base < w.next && w.ring[w.base&w.mask].done {
		w.base++
	}
	w.open(t)
	return true
}

// shrink halves the window because of s, once per round trip.
func (w *Worker) shrink(s uint64) {
	if w.cfg.AIMD && s >= w.cut {
		w.cwnd = max(w.cwnd/2, 1)
		w.cut = w.next
	}
}

// sample takes a round trip. Only a result in order says something about the network
// and goes into the timeout (RFC 6298, section 2): what others overtook has waited
// for another worker to resend.
func (w *Worker) sample(rtt time.Duration, inOrder bool) {
	if w.stats.RTTCount == 0 || rtt < w.stats.RTTMin {
		w.stats.RTTMin = rtt
	}
	w.stats.RTTSum += rtt
	w.stats.RTTCount++
	switch {
	case !inOrder:
		return
	case w.srtt == 0:
		w.srtt, w.rttvar = rtt, rtt/2
	default:
		w.rttvar += (max(w.srtt-rtt, rtt-w.srtt) - w.rttvar) / 4
		w.srtt += (rtt - w.srtt) / 8
	}
	w.backoff = 0
}

// Hold lets no new PSN be sent, and returns the next one that would have been. It is
// the first step of a pause: the job's workers can all finish what is below the
// largest of what they return, and none has sent anything beyond.
func (w *Worker) Hold() uint64 {
	w.limit = w.next
	w.edge = min(w.edge, w.next)
	return w.next
}

// Pause lets the PSNs below the given one be sent, from t on, and none beyond. All
// workers of a job are given the same, which Hold of one of them returned.
func (w *Worker) Pause(at uint64, t time.Duration) {
	w.limit = at
	w.open(t)
}

// Paused reports whether every result below the pause has come. When that is so of
// all workers of a job, no switch has to remember anything of it.
func (w *Worker) Paused() bool { return w.base >= w.limit }

// Resume ends a pause at t. The window is of that many packets from here on, which is
// at most the configured one and the same for all workers of the job, and the region of a
// job without a PS is twice that.
func (w *Worker) Resume(window int, t time.Duration) {
	w.window = min(max(window, 1), w.cfg.Window)
	if w.cfg.Region > 0 {
		psn, wrap := w.psn(w.base), wrapAt(2*w.window)
		if uint64(psn) >= wrap {
			psn = 0 // the old region had more whole turns
		}
		w.zero, w.wrap = w.base-uint64(psn), wrap
	}
	if w.cwnd = min(w.cwnd, float64(w.window)); !w.cfg.AIMD {
		w.cwnd = float64(w.window)
	}
	w.limit = math.MaxUint64
	w.open(t)
}

// Stop ends the job where the worker is to pause, or where it is if it is not to pause.
// Workers that are to end together pause together before (Hold, Pause): nothing in a
// packet of gradients tells one worker that another wants to end, so no damage can.
func (w *Worker) Stop() {
	if w.limit == math.MaxUint64 {
		w.Hold()
	}
	w.stop = min(w.stop, w.limit)
}

// Stopped reports whether the job has ended by Stop, and every result below its end has
// come.
func (w *Worker) Stopped() bool { return w.base >= w.stop }

// Idle reports whether everything allowed has been reduced.
func (w *Worker) Idle() bool { return w.base >= w.allowed }

// Outstanding is how many PSNs were sent and not answered; Oldest is when the one
// longest without a transmission was last sent, and only valid if there is one.
func (w *Worker) Outstanding() (n int, oldest time.Duration) {
	for i := w.head; i >= 0; i = w.ring[i].next {
		n++
	}
	if w.head >= 0 {
		oldest = w.ring[w.head].sent
	}
	return n, oldest
}

// Spacing is the mean time between results while the window is what limits: the
// smoothed round trip over the window. It is 0 before the first round trip.
func (w *Worker) Spacing() time.Duration { return time.Duration(float64(w.srtt) / w.cwnd) }

// Dither is Reference.Dither of this worker's job.
func (w *Worker) Dither(psn uint32) float64 { return w.ref.Dither(psn) }

// Scatter is Reference.Scatter of this worker's job.
func (w *Worker) Scatter(block uint32) [Block]float64 { return w.ref.Scatter(block) }

// Stats returns the totals so far.
func (w *Worker) Stats() WorkerStats { return w.stats }

func (w *Worker) append(i int32) {
	e := &w.ring[i]
	e.prev, e.next = w.tail, -1
	if w.tail >= 0 {
		w.ring[w.tail].next = i
	} else {
		w.head = i
	}
	w.tail = i
}

func (w *Worker) unlink(i int32) {
	e := &w.ring[i]
	if e.prev >= 0 {
		w.ring[e.prev].next = e.next
	} else {
		w.head = e.next
	}
	if e.next >= 0 {
		w.ring[e.next].prev = e.prev
	} else {
		w.tail = e.prev
	}
}
