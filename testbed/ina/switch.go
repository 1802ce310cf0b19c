package ina

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// Switch is the aggregation part of a switch: an array of aggregators, the job
// table, and for every job the memory of what was decided about each PSN. It does
// no I/O and reads no clock; it is not safe for concurrent use; Process does not
// allocate.
//
// # Statistical mode
//
// A PSN of n workers is n arrivals, so what is decided for the first must bind the
// others: an aggregator that became free half-way would catch a partial sum that
// nobody completes. The rule, per (job, epoch, PSN):
//
//  1. The first packet decides. The aggregator that the job's addressing names is
//     free: the PSN is granted it. It is taken: the PSN is denied. A packet that
//     carries all of Expect already needs no aggregator and passes.
//  2. Packets of a granted PSN are summed. The one that completes Expect leaves for
//     the PS as the sum; the aggregator keeps the sum and stays taken. A packet with
//     a worker that is in the sum already is dropped.
//  3. Packets of a denied PSN go up as they are, flagged FlagCollision.
//  4. A result releases the PSN's aggregator on its way down. Later packets of that
//     PSN go up as they are: the PS answers them.
//  5. A packet flagged FlagResend pushes the aggregator's sum up, complete or not,
//     flagged FlagResend too, frees the aggregator, and goes up itself. The PSN is
//     denied from then on.
//
// Decisions are kept in a ring of at least 2 x Window entries, and a packet whose
// PSN has left the ring goes up as it is. A worker sends PSN p + 2·Window only when
// every worker has the result of p, so no decision that still matters is lost.
//
// # Synchronous mode
//
// A job owns slot = Base + PSN mod Size with Size >= 2·Window, and has no PS
// (SwitchML, section 3.5). The switch with Root set turns the complete sum into a
// result, keeps it, and answers resends from it, towards where they came from; a
// switch below sends its part of the sum up, again when a resend asks for it. PSN
// p + Size takes the slot over. A job whose Size is 0 is at a halt.
//
// PSNs have 32 bits, and 2^32 is a multiple of Size for powers of two only. So that the
// slots go on in their order, the job's workers count to the last multiple of Size that is
// at most 2^32 and begin again at 0 (WorkerConfig.Region): the PSNs that are left out, less
// than Size of them, look to a switch like a short gap.
//
// # Exclusive mode
//
// Sums as in synchronous mode, on trees that jobs take turns with: see Limits.
//
// # All
//
// FlagECN, FlagOverflow and FlagCollision of the summands are in the sum. Packets of
// another epoch are dropped.
//
// # Damage
//
// A switch cannot tell a damaged gradient from a sound one: workers do, from the sum.
// Damaged headers cost aggregation, and where there is no PS they can cost more: one whose
// PSN says that it is far ahead takes a slot for itself, which those that come later do not
// get back, and the job stalls. Nothing that is damaged ends a job, or gives it a turn.
type Switch struct {
	jobs  [MaxJob + 1]*job
	count [MaxJob + 1]*Counters // outlives the job's entry
	aggs  []aggregator
	sums  []sum
	pools map[region]*pool
	out   [HeaderLen + 4*MaxLanes]byte

	limits    Limits
	resources map[uint32]*resource // by port; those of jobs with exclusive trees
	program   Program
}

// A Program is what a data plane does otherwise with statistical and synchronous jobs than the rules above say, since its
// chip allows no more. The zero value is one that does nothing otherwise.
type Program struct {
	// Lanes are those that packets may have to be summed, at most: 1..MaxLanes, 0 is MaxLanes. Others go up as they are, and
	// so do those with fewer where its parser knows Whole packets alone.
	Lanes int  `json:"lanes,omitempty"`
	Whole bool `json:"whole,omitempty"`
	// Named says that packets name their aggregators under hash and linear addressing and in synchronous mode, too, as
	// NameSlot has it, and that sums keep the name.
	Named bool `json:"named,omitempty"`
	// Merges says that a resend joins the sum that it pushes out: one packet leaves where rule 5 has two. A sum that has some
	// of the resend's workers already leaves without it.
	Merges bool `json:"merges,omitempty"`
}

// Sums reports whether packets of so many lanes are summed.
func (p Program) Sums(lanes int) bool {
	return p.Lanes == 0 || lanes == p.Lanes || lanes < p.Lanes && !p.Whole
}

// Load makes the switch one that runs a program. It is for a switch without jobs.
func (s *Switch) Load(p Program) error {
	if p.Lanes < 0 || p.Lanes > MaxLanes || p.Lanes == 0 && p.Whole {
		return fmt.Errorf("packets of %d lanes are summed: outside 1..%d", p.Lanes, MaxLanes)
	}
	s.program = p
	return nil
}

// An aggregator is taken when job is not 0. It belongs to a PSN of the job's
// present epoch, because SetJob frees what the previous epoch left.
type aggregator struct {
	since  time.Duration
	bitmap uint64
	psn    uint32
	job    uint16
	flags  Flags
	lanes  uint8
}

// fate is what was decided for a PSN.
type fate uint8

const (
	unknown fate = iota
	granted      // has aggregator slot
	denied       // found it taken, or was pushed out
	passed       // arrived complete, or its result went by
)

type decision struct {
	psn  uint32
	slot uint32
	fate fate
}

type job struct {
	JobEntry
	ring     []decision // power of two
	pool     *pool
	counters *Counters
	needs    []*resource // of an exclusive tree
	turn     turn
}

type region struct{ base, size uint32 }

// pool is the free list of a region that jobs with pool addressing share.
type pool struct {
	free []uint32
	jobs int
}

// Count is a number of packets and their bytes, as frames (Ethernet header in,
// preamble and FCS out).
type Count struct{ Packets, Bytes int64 }

// Counters are one job's totals at one switch since Reset. Of the gradient packets
// that arrived, In = Aggregated + Fallback + Duplicates.
type Counters struct {
	In         Count // gradient packets of the right epoch
	Aggregated Count // of these: absorbed into a sum or completing it
	Fallback   Count // of these: sent up as they were
	Duplicates Count // of these: their workers were in the sum already
	Resends    Count // of In: carried FlagResend
	Marked     Count // of In: arrived with FlagECN
	Granted    Count // PSNs whose first packet was granted an aggregator
	Denied     Count // PSNs whose first packet found the aggregator taken
	Out        Count // sums and fallbacks sent up; at a synchronous root, results sent down
	Results    Count // results from above, passed down
	Answers    Count // synchronous resends answered from a kept sum: in Duplicates, and what was sent for them in Out
	Dropped    Count // wrong epoch, workers not expected here, other lanes than the sum has, or a halt

	// Of exclusive trees. In does not include what was refused.
	Locks     Count // operations that got the whole tree, as their answer tells
	Refused   Count // operations that did not
	Conflicts Count // of these, refused by this switch
	Inactive  Count // gradient packets dropped because the job had no turn

	Releases int64         // aggregators released by a result; turns that ended
	Hold     time.Duration // how long those were taken, first packet in until result; how long the turns were
}

// Reason says what became of a packet given to Process.
type Reason uint8

const (
	Forwarded  Reason = iota // sent up as it was
	Absorbed                 // summed; nothing to send
	Completed                // completed a sum, which is sent
	Pushed                   // resend: the sum is sent up, then the packet
	Result                   // sent down; released its aggregator if it had one
	Answered                 // synchronous resend: answered from the kept sum
	Duplicate                // dropped: its workers are in the sum already
	WrongEpoch               // dropped
	Malformed                // dropped: no INA header, workers not expected here, other lanes or operation flags than the sum has, or a broken seal
	NoJob                    // dropped: the switch has no entry for its job
	NoMemory                 // dropped: its job is synchronous and at a halt
	NoTurn                   // dropped: its job's tree is exclusive, and the job has not locked it
)

var reasonNames = [...]string{"forwarded", "absorbed", "completed", "pushed", "result", "answered",
	"duplicate", "wrong epoch", "malformed", "no job", "no memory", "no turn"}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Direction is where an output of the switch goes.
type Direction uint8

const (
	Up   Direction = iota // to Output.Port, with the job's up group and port as addresses
	Down                  // to multicast group Output.Group, with the job's down group and port
	Back                  // to Output.Port, where the packet came from, with the job's down group and port
)

// Output is a packet to send. Data is either the bytes given to Process or the
// switch's own buffer; both are good until the next call.
type Output struct {
	Data  []byte
	Dir   Direction
	Port  uint32 // Up and Back
	Group uint16 // Down
}

// Verdict is what to do with a packet: send Out[0:N], in that order.
type Verdict struct {
	Out    [2]Output
	N      int
	Reason Reason
}

var (
	// ErrEntry is wrapped by every error of SetJob.
	ErrEntry = errors.New("job entry refused")
	// ErrQuota is wrapped too where the switch has as many exclusive trees as it may.
	ErrQuota = errors.New("quota used up")
)

// maxWindow bounds the memory a job entry can ask for.
const maxWindow = 1 << 20

// NewSwitch returns a switch with n aggregators, all free, and no jobs.
func NewSwitch(n int) *Switch {
	s := &Switch{aggs: make([]aggregator, n), sums: make([]sum, n)}
	s.Reset()
	return s
}

// Reset forgets all jobs and their counters and frees every aggregator.
func (s *Switch) Reset() {
	clear(s.jobs[:])
	clear(s.count[:])
	clear(s.aggs)
	s.pools = make(map[region]*pool)
	s.resources = make(map[uint32]*resource)
}

// SetJob installs e in place of any earlier entry of e.Job, whose aggregators are
// freed and decisions forgotten; counters go on. A job changed while its packets are
// under way recovers by resends in statistical mode. In synchronous mode it may hang:
// the kept result is the only copy, and a worker that still lacks it asks for what the
// others will never send again. There, all workers of the job pause first
// (Worker.Paused): then nobody needs what is kept.
//
// A region must lie within the array. Jobs may share one, but a synchronous job's
// is its own, and a pool is shared only by pool jobs with the same region. A
// synchronous job without memory is at a halt: its packets are dropped. Ports are those
// of an exclusive tree on this switch, towards workers and root; they matter where the
// switch's resource is PerPort. Errors wrap ErrEntry and leave the switch as it was.
func (s *Switch) SetJob(e JobEntry, ports ...uint32) error {
	err := s.check(e)
	if err == nil && e.Mode == Exclusive {
		err = s.checkTree(e, ports)
	}
	if err != nil {
		return fmt.Errorf("%w: job %d: %w", ErrEntry, e.Job, err)
	}
	s.DeleteJob(e.Job)
	if s.count[e.Job] == nil {
		s.count[e.Job] = new(Counters)
	}
	j := &job{JobEntry: e, counters: s.count[e.Job]}
	if e.Mode == Statistical {
		j.ring = make([]decision, 1<<bits.Len32(2*e.Window-1))
		if e.Addressing == Pool && e.Size > 0 {
			r := region{e.Base, e.Size}
			p := s.pools[r]
			if p == nil {
				p = &pool{free: make([]uint32, 0, e.Size)}
				for i := r.size; i > 0; i-- {
					p.free = append(p.free, r.base+i-1)
				}
				s.pools[r] = p
			}
			p.jobs++
			j.pool = p
		}
	}
	if e.Mode == Exclusive {
		j.needs = s.share(ports)
	}
	s.jobs[e.Job] = j
	return nil
}

func (s *Switch) check(e JobEntry) error {
	switch {
	case e.Job == 0 || e.Job > MaxJob:
		return fmt.Errorf("id outside 1..%d", MaxJob)
	case e.Mode > Exclusive:
		return fmt.Errorf("unknown mode %d", e.Mode)
	case e.Mode == Forward:
		return nil
	case e.Mode == Statistical && e.Addressing > ATP:
		return fmt.Errorf("unknown addressing %d", e.Addressing)
	case uint64(e.Base)+uint64(e.Size) > uint64(len(s.aggs)):
		return fmt.Errorf("aggregators %d+%d, the switch has %d", e.Base, e.Size, len(s.aggs))
	case e.Expect == 0:
		return errors.New("expects no worker")
	case e.Window == 0 || e.Window > maxWindow:
		return fmt.Errorf("window %d outside 1..%d", e.Window, maxWindow)
	case e.Mode == Exclusive && e.Size == 0:
		return fmt.Errorf("no aggregators: an exclusive tree needs twice its window, %d", 2*uint64(e.Window))
	case e.owns() && e.Size > 0 && uint64(e.Size) < 2*uint64(e.Window):
		return fmt.Errorf("%d slots for window %d, without a PS it needs twice the window", e.Size, e.Window)
	}
	for _, o := range s.jobs {
		if o == nil || o.Job == e.Job || o.Mode == Forward || e.Size == 0 || o.Size == 0 ||
			e.Base >= o.Base+o.Size || o.Base >= e.Base+e.Size {
			continue
		}
		ePool, oPool := e.pooled(), o.pooled()
		switch {
		case e.owns() || o.owns():
			return fmt.Errorf("aggregators %d+%d overlap those of job %d, and a job without a PS shares none", e.Base, e.Size, o.Job)
		case (ePool || oPool) && !(ePool && oPool && e.Base == o.Base && e.Size == o.Size):
			return fmt.Errorf("aggregators %d+%d overlap those of job %d, and a pool is shared whole", e.Base, e.Size, o.Job)
		}
	}
	return nil
}

func (e JobEntry) pooled() bool { return e.Mode == Statistical && e.Addressing == Pool }

// owns says that the job has its aggregators to itself, because sums are kept in them.
func (e JobEntry) owns() bool { return e.Mode == Synchronous || e.Mode == Exclusive }

// DeleteJob removes the entry of id and frees its aggregators, and the tree if it has
// its turn. An unknown id is no error.
func (s *Switch) DeleteJob(id uint16) {
	if id > MaxJob || s.jobs[id] == nil {
		return
	}
	j := s.jobs[id]
	for i := range s.aggs {
		if s.aggs[i].job == id {
			s.free(j, uint32(i))
		}
	}
	if j.pool != nil {
		if j.pool.jobs--; j.pool.jobs == 0 {
			delete(s.pools, region{j.Base, j.Size})
		}
	}
	s.yield(j)
	s.unshare(j)
	s.jobs[id] = nil
}

// Job is the entry of id.
func (s *Switch) Job(id uint16) (JobEntry, bool) {
	if id > MaxJob || s.jobs[id] == nil {
		return JobEntry{}, false
	}
	return s.jobs[id].JobEntry, true
}

// Counters are the counters of job id, for reading and resetting; nil when it never
// had an entry since Reset.
func (s *Switch) Counters(id uint16) *Counters {
	if id > MaxJob {
		return nil
	}
	return s.count[id]
}

// Process takes one packet that came in at port: b is its UDP payload, INA header
// and lanes, and may be changed in place; now is when it arrived, on a clock that
// does not go back.
func (s *Switch) Process(port uint32, b []byte, now time.Duration) Verdict {
	h, err := ParseHeader(b)
	if err != nil {
		return Verdict{Reason: Malformed}
	}
	b = b[:HeaderLen+4*int(h.Lanes)]
	j := s.jobs[h.Job]
	if j == nil {
		return Verdict{Reason: NoJob}
	}
	c := j.counters
	if h.Epoch != j.Epoch {
		c.Dropped.add(b)
		return Verdict{Reason: WrongEpoch}
	}
	if h.Flags&FlagResult != 0 {
		return s.result(j, &h, b, port, now)
	}
	if j.Mode != Forward && (h.Bitmap == 0 || h.Bitmap&^j.Expect != 0) {
		c.Dropped.add(b)
		return Verdict{Reason: Malformed}
	}
	c.In.add(b)
	if h.Flags&FlagResend != 0 {
		c.Resends.add(b)
	}
	if h.Flags&FlagECN != 0 {
		c.Marked.add(b)
	}
	if (j.Mode == Statistical || j.Mode == Synchronous) && !s.program.Sums(int(h.Lanes)) {
		return j.forward(b)
	}
	switch j.Mode {
	case Statistical:
		return s.statistical(j, &h, b, now)
	case Synchronous:
		return s.synchronous(j, &h, b, port, now)
	case Exclusive:
		return s.exclusive(j, &h, b, port, now)
	}
	return j.forward(b)
}

func (s *Switch) result(j *job, h *Header, b []byte, port uint32, now time.Duration) Verdict {
	switch j.Mode {
	case Exclusive:
		if j.Root || port != j.UpPort || h.Flags&(FlagLock|FlagUnlock) != 0 && !sealed(b[HeaderLen:], h.Bitmap) {
			j.counters.Dropped.add(b)
			return Verdict{Reason: Malformed}
		}
		if h.Flags&(FlagLock|FlagUnlock) != 0 {
			s.answer(j, b, now)
		}
	case Statistical:
		d := &j.ring[h.PSN&uint32(len(j.ring)-1)]
		switch age := int32(h.PSN - d.psn); {
		case d.fate != unknown && age < 0: // the ring has moved on
		case d.fate == granted && age == 0:
			j.counters.Releases++
			j.counters.Hold += now - s.aggs[d.slot].since
			s.free(j, d.slot)
			d.fate = passed
		default:
			s.evict(j, d)
			*d = decision{psn: h.PSN, fate: passed}
		}
	}
	j.counters.Results.add(b)
	return Verdict{N: 1, Out: [2]Output{{Data: b, Dir: Down, Group: j.DownGroup}}, Reason: Result}
}

func (s *Switch) statistical(j *job, h *Header, b []byte, now time.Duration) Verdict {
	d := &j.ring[h.PSN&uint32(len(j.ring)-1)]
	if d.fate == unknown || d.psn != h.PSN {
		if d.fate != unknown && int32(h.PSN-d.psn) < 0 {
			return j.forward(b) // older than the ring
		}
		s.evict(j, d)
		*d = s.decide(j, h, now)
		switch d.fate {
		case granted:
			j.counters.Granted.add(b)
		case denied:
			if h.Flags&FlagResend == 0 {
				j.counters.Denied.add(b)
			}
		case passed:
			j.counters.Aggregated.add(b)
			j.counters.Out.add(b)
			return Verdict{N: 1, Out: [2]Output{{Data: b, Dir: Up, Port: j.UpPort}}, Reason: Completed}
		}
	}
	switch d.fate {
	case denied:
		b[1] |= byte(FlagCollision)
		fallthrough
	case passed:
		return j.forward(b)
	}
	a := &s.aggs[d.slot]
	if h.Flags&FlagResend != 0 {
		d.fate = denied
		if s.program.Merges {
			return s.merge(j, d.slot, h, b)
		}
		sum := s.emit(j, d.slot, h, FlagResend)
		s.free(j, d.slot)
		b[1] |= byte(FlagCollision)
		v := j.forward(b)
		v.Reason, v.N = Pushed, 2
		v.Out[1] = v.Out[0]
		v.Out[0] = Output{Data: sum, Dir: Up, Port: j.UpPort}
		return v
	}
	if v, ok := s.sum(j, a, d.slot, h, b); !ok {
		return v
	}
	return Verdict{N: 1, Out: [2]Output{{Data: s.emit(j, d.slot, h, 0), Dir: Up, Port: j.UpPort}}, Reason: Completed}
}

// merge sends a sum that a resend pushes out in one packet with it.
func (s *Switch) merge(j *job, slot uint32, h *Header, b []byte) Verdict {
	if v, _ := s.sum(j, &s.aggs[slot], slot, h, b); v.Reason == Malformed {
		return v
	}
	sum := s.emit(j, slot, h, FlagResend)
	s.free(j, slot)
	return Verdict{N: 1, Out: [2]Output{{Data: sum, Dir: Up, Port: j.UpPort}}, Reason: Pushed}
}

// decide binds a PSN by its first packet.
func (s *Switch) decide(j *job, h *Header, now time.Duration) decision {
	d := decision{psn: h.PSN, fate: denied}
	switch {
	case h.Flags&FlagResend != 0:
		return d
	case h.Bitmap&j.Expect == j.Expect:
		d.fate = passed
		return d
	case j.Size == 0:
		return d
	}
	by := j.Addressing
	if s.program.Named && by != Pool {
		by = ATP
	}
	switch by {
	case Pool:
		n := len(j.pool.free)
		if n == 0 {
			return d
		}
		d.slot = j.pool.free[n-1]
		j.pool.free = j.pool.free[:n-1]
	case Hash:
		d.slot = j.Base + hashSlot(h.Job, h.PSN, j.Size)
	case Linear:
		d.slot = j.Base + (j.Offset+h.PSN)%j.Size
	case ATP:
		d.slot = j.Base + uint32(h.Slot)%j.Size
	}
	a := &s.aggs[d.slot]
	if a.job != 0 {
		return d
	}
	d.fate = granted
	*a = aggregator{job: h.Job, psn: h.PSN, lanes: h.Lanes, since: now}
	return d
}

// hashSlot spreads the PSNs of a job over n slots like independent uniform draws.
// A CRC would not do: CRC32 of consecutive numbers mod 2^k is a permutation of
// them, so a window of PSNs would never collide with itself. This is the finaliser
// of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), reduced to n by multiplication
// (Lemire, arXiv 1805.10941).
func hashSlot(job uint16, psn, n uint32) uint32 {
	hi, _ := bits.Mul64(hash(job, psn), uint64(n))
	return uint32(hi)
}

func hash(job uint16, psn uint32) uint64 {
	x := uint64(job)<<32 | uint64(psn)
	x += 0x9E37_79B9_7F4A_7C15
	x = (x ^ x>>30) * 0xBF58_476D_1CE4_E5B9
	x = (x ^ x>>27) * 0x94D0_49BB_1331_11EB
	return x ^ x>>31
}

// NameSlot is the aggregator that a packet asks a program for whose packets name theirs: its place in the region of a job is
// that modulo the region's size, a power of two. offset is where PSN 0 looks under linear addressing; a synchronous job's
// addressing is linear, from 0 on. It is 0 under pool addressing, and under atp, which chooses otherwise (ATPSlots).
func NameSlot(a Addressing, job uint16, psn, offset uint32) uint16 {
	switch a {
	case Hash:
		return uint16(hash(job, psn))
	case Linear:
		return uint16(offset + psn)
	}
	return 0
}

func (s *Switch) synchronous(j *job, h *Header, b []byte, port uint32, now time.Duration) Verdict {
	if j.Size == 0 {
		j.counters.In.sub(b)
		j.counters.Dropped.add(b)
		return Verdict{Reason: NoMemory}
	}
	place := h.PSN
	if s.program.Named {
		place = uint32(h.Slot)
	}
	slot := j.Base + place%j.Size
	a := &s.aggs[slot]
	if a.job != 0 && a.psn != h.PSN {
		if int32(h.PSN-a.psn) < 0 {
			j.counters.Duplicates.add(b) // its slot went to a PSN that needs everybody to have this one's result
			return Verdict{Reason: Duplicate}
		}
		s.free(j, slot)
	}
	if a.job == 0 {
		*a = aggregator{job: h.Job, psn: h.PSN, lanes: h.Lanes}
		j.counters.Granted.add(b)
	}
	complete := a.bitmap&j.Expect == j.Expect
	if complete && h.Flags&FlagResend != 0 {
		j.counters.Duplicates.add(b)
		j.counters.Answers.add(b)
		if j.Root {
			return Verdict{N: 1, Out: [2]Output{{Data: s.emit(j, slot, h, FlagResult), Dir: Back, Port: port}}, Reason: Answered}
		}
		return Verdict{N: 1, Out: [2]Output{{Data: s.emit(j, slot, h, FlagResend), Dir: Up, Port: j.UpPort}}, Reason: Answered}
	}
	if v, ok := s.sum(j, a, slot, h, b); !ok {
		return v
	}
	if h.Flags&FlagLock != 0 && j.Mode == Exclusive {
		s.ask(j, slot)
	}
	if j.Root {
		sum := s.emit(j, slot, h, FlagResult)
		if h.Flags&(FlagLock|FlagUnlock) != 0 && j.Mode == Exclusive {
			s.answer(j, sum, now)
		}
		return Verdict{N: 1, Out: [2]Output{{Data: sum, Dir: Down, Group: j.DownGroup}}, Reason: Completed}
	}
	return Verdict{N: 1, Out: [2]Output{{Data: s.emit(j, slot, h, 0), Dir: Up, Port: j.UpPort}}, Reason: Completed}
}

// sum adds a packet to its aggregator; ok says that this completed the sum,
// otherwise the verdict is final.
func (s *Switch) sum(j *job, a *aggregator, slot uint32, h *Header, b []byte) (v Verdict, ok bool) {
	switch {
	case a.lanes != h.Lanes || a.bitmap != 0 && (a.flags^h.Flags)&(FlagLock|FlagUnlock) != 0:
		j.counters.In.sub(b)
		j.counters.Dropped.add(b)
		return Verdict{Reason: Malformed}, false
	case a.bitmap&h.Bitmap != 0:
		j.counters.Duplicates.add(b)
		return Verdict{Reason: Duplicate}, false
	}
	lanes := b[HeaderLen:]
	if a.bitmap == 0 {
		s.sums[slot].load(lanes)
	} else if s.sums[slot].add(lanes) {
		a.flags |= FlagOverflow
	}
	a.bitmap |= h.Bitmap
	a.flags |= h.Flags & (FlagECN | FlagOverflow | FlagCollision | FlagLock | FlagUnlock)
	j.counters.Aggregated.add(b)
	if a.bitmap&j.Expect != j.Expect {
		return Verdict{Reason: Absorbed}, false
	}
	return Verdict{}, true
}

// emit writes an aggregator's sum as a packet into the switch's buffer, because of one with
// header h, and counts it as sent.
func (s *Switch) emit(j *job, slot uint32, h *Header, extra Flags) []byte {
	a := &s.aggs[slot]
	b := s.out[:HeaderLen+4*int(a.lanes)]
	sum := Header{
		Flags: a.flags | extra, Job: j.Job, PSN: a.psn, Epoch: j.Epoch,
		Rank: NoRank, Lanes: a.lanes, Bitmap: a.bitmap,
	}
	if s.program.Named {
		sum.Slot = h.Slot
	}
	sum.Put(b)
	s.sums[slot].store(b[HeaderLen:])
	j.counters.Out.add(b)
	return b
}

// evict frees the aggregator of a decision about to be forgotten. Senders that
// keep to their window never make it happen.
func (s *Switch) evict(j *job, d *decision) {
	if d.fate == granted {
		s.free(j, d.slot)
	}
}

func (s *Switch) free(j *job, slot uint32) {
	s.aggs[slot] = aggregator{}
	if j.pool != nil {
		j.pool.free = append(j.pool.free, slot)
	}
}

func (j *job) forward(b []byte) Verdict {
	j.counters.Fallback.add(b)
	j.counters.Out.add(b)
	return Verdict{N: 1, Out: [2]Output{{Data: b, Dir: Up, Port: j.UpPort}}, Reason: Forwarded}
}

const frameOverhead = Overhead - HeaderLen // Ethernet, IPv4, UDP

func (c *Count) add(b []byte) { c.Packets++; c.Bytes += int64(len(b) + frameOverhead) }
func (c *Count) sub(b []byte) { c.Packets--; c.Bytes -= int64(len(b) + frameOverhead) }
