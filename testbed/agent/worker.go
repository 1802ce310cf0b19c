package agent

import (
	"cmp"
	"context"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/loop"
	"github.com/inabench/inabench/testbed/udp"
)

// worker sends a job's gradients and checks what comes back.
type worker struct {
	cfg  Config
	sock *udp.Socket
	w    *ina.Worker
	pace pacer
	to   *unix.RawSockaddrInet4
	late lateness // of paced sends

	msg  message
	last time.Duration // arrival of the newest result

	pausing   int64 // the command that a pause will answer; 0: none
	announced bool  // that it has started

	sab   *saboteur // nil: nothing is wrong with it on purpose
	again func() (*ina.Worker, error)
}

// workerConfig is what a worker's protocol is told.
func workerConfig(cfg Config) (wc ina.WorkerConfig, err error) {
	wc = ina.WorkerConfig{
		Job: cfg.Job, Epoch: cfg.Epoch, Rank: cfg.Rank, Workers: cfg.Workers,
		Lanes: cfg.Lanes, Window: cfg.Window, AIMD: cfg.Control == "aimd",
		RTO: cfg.RTO, Seed: cfg.Seed, Addressing: cfg.Addressing, Offset: cfg.Offset,
	}
	if cfg.Mode == "synchronous" && cfg.Collective == "ina" {
		wc.Region = 2 * cfg.Window // what a job without a PS has, in each of its switches
	}
	if cfg.Slots > 0 {
		wc.Slots, err = ina.ATPSlots(cfg.Job, cfg.Slots, cfg.Aggregators)
	}
	return wc, err
}

func newWorker(cfg Config, c *udp.Clock) (*worker, error) {
	msg := newMessage(cfg)
	wc, err := workerConfig(cfg)
	if err != nil {
		return nil, err
	}
	k := &worker{
		cfg: cfg,
		msg: msg,
		to:  udp.Address(ina.UpGroup(cfg.Job), ina.UpPortBase|cfg.Job),
	}
	k.again = func() (*ina.Worker, error) { return ina.NewWorker(wc) }
	if k.w, err = k.again(); err != nil {
		return nil, err
	}
	if rate := cmp.Or(cfg.Rate, cfg.LineRate); rate > 0 {
		k.pace.gap = float64(8*(ina.Overhead+4*cfg.Lanes)) / rate * 1e9
		k.pace.scatter = cfg.Rate > 0
	}
	if cfg.Halted {
		k.w.Hold()
	}
	if k.sock, err = openFor(cfg, ina.DownPortBase, ina.DownGroup(cfg.Job), c); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *worker) interrupt() { k.sock.Interrupt() }
func (k *worker) close()     { k.sock.Close() }

// giveUp is how long a worker that was asked to stop waits without progress for the
// others, which may have died.
func (k *worker) giveUp() time.Duration { return max(time.Second, 4*k.cfg.RTO, 2*k.cfg.Step) }

func (k *worker) run(ctx context.Context, c *control) error {
	defer loop.Own()()
	defer context.AfterFunc(ctx, k.sock.Interrupt)()
	k.sab = c.sab
	var stopped time.Duration // when a stop was first seen
	now := c.clock.Now()
	k.w.Allow(ina.Startup, now)
	k.obey(c, now)
	if k.w.Paused() {
		c.started(now)
		k.announced = true
	}
	for back := now; ctx.Err() == nil; { // when to look again
		c.stalls.Woke(back, c.clock.Now())
		if leave, err := c.sabotaged(ctx, k.stats); leave || err != nil {
			return err
		}
		if k.sab != nil && k.sab.restarts(c.clock.Now()) {
			if err := k.restart(c.clock.Now()); err != nil {
				return err
			}
		}
		before := c.clock.Now() // what arrived until now is looked at before a timeout is believed
		n, err := k.sock.Receive()
		if err != nil {
			return err
		}
		for i := range n {
			if k.w.Receive(k.sock.Packets[i], k.sock.Arrived[i]) {
				k.last = k.sock.Arrived[i]
				k.step(c, k.last)
			}
		}
		now = c.clock.Now()
		stop := c.stop.Load() // before the orders: where to pause was one of them
		k.obey(c, now)
		if stop && stopped == 0 {
			stopped = now
			k.w.Stop()
		}
		k.step(c, now)
		if k.msg.finished || stop && k.abandon(now, stopped) {
			return nil
		}
		wake := now + c.idle()
		if !k.sock.Full { // otherwise a result may be waiting
			wake, err = k.resend(before, wake)
			if err != nil {
				return err
			}
		}
		wake, err = k.send(c, now, wake)
		if err != nil {
			return err
		}
		if err := k.sock.Flush(); err != nil {
			return err
		}
		if c.due(now) {
			c.sample(now, k.stats())
		}
		if at, ok := k.msg.ready(); ok {
			wake = min(wake, at)
		}
		if back = max(now, k.sock.Freed); !k.sock.Full && wake > now {
			wake = c.wake(wake)
			back = max(wake, now+k.sock.Rest, k.sock.Freed)
			if err := k.sock.Wait(wake); err != nil {
				return err
			}
		}
	}
	return nil
}

// obey does what the job's controller orders at now, and answers.
func (k *worker) obey(c *control, now time.Duration) {
	for _, cmd := range c.take() {
		if cmd.Cmd == "count" {
			s := k.stats()
			c.events <- Event{Event: "counted", T: now.Seconds(), ID: cmd.ID, Stats: &s}
			continue
		}
		k.pausing = 0
		switch cmd.Cmd {
		case "hold":
			c.events <- Event{Event: "held", T: now.Seconds(), ID: cmd.ID, PSN: k.w.Hold()}
		case "pause":
			k.w.Pause(cmd.PSN, now)
			k.pausing = cmd.ID
		case "resume":
			k.w.Resume(cmd.Window, now)
		}
	}
	if k.pausing != 0 && k.w.Paused() {
		c.events <- Event{Event: "paused", T: now.Seconds(), ID: k.pausing}
		k.pausing = 0
	}
}

// send queues the new packets that are due at now, at most a batch, and returns
// when it has to be called again.
func (k *worker) send(c *control, now, wake time.Duration) (time.Duration, error) {
	for range udp.Batch {
		due, ok := k.pace.due(k.w)
		if !ok {
			return wake, nil
		}
		if due > now {
			return min(wake, due), nil
		}
		k.late.add(c, due, k.sock.Freed, now)
		k.pace.sent()
		b := k.sock.Buffer()
		b = b[:k.w.Send(now, b)]
		if k.sab != nil {
			k.sab.gradient(b, now)
		}
		if err := k.sock.Queue(b, k.to); err != nil {
			return 0, err
		}
	}
	return now, nil
}

// resend queues the packets whose timeout has passed at now. They are outside the
// schedule, which has to stay the same on all workers, but never come faster.
func (k *worker) resend(now, wake time.Duration) (time.Duration, error) {
	for range udp.Batch {
		due, ok := k.w.Deadline()
		if !ok {
			return wake, nil
		}
		if due = max(due, k.pace.resend); due > now {
			return min(wake, due), nil
		}
		k.pace.resent(now)
		b := k.sock.Buffer()
		if err := k.sock.Queue(b[:k.w.Resend(now, b)], k.to); err != nil {
			return 0, err
		}
	}
	return now, nil
}

// step moves the job on at time t: from the startup to its stream, from one layer or
// iteration to the next.
func (k *worker) step(c *control, t time.Duration) {
	m := &k.msg
	if !m.started {
		if !k.w.Idle() {
			m.finished = k.w.Stopped()
			return
		}
		m.started = true
		if !k.announced {
			c.started(t)
		}
		m.begin(t)
		if m.packets == 0 {
			k.w.Allow(ina.Endless, t)
		}
	}
	if m.packets == 0 || m.next == 0 && m.done == 0 { // the pause may have been within the startup
		m.finished = k.w.Stopped()
	}
	for m.packets > 0 && !m.finished {
		at, ok := m.ready()
		switch {
		case ok && at <= t:
			k.w.Allow(m.layers[m.next].packets, at)
			m.next++
		case !ok && k.w.Idle():
			m.end(max(k.last, m.lastReady()))
			m.finished = m.finished || k.w.Stopped()
		case k.w.Stopped(): // in the middle of an iteration
			m.finished = true
		default:
			return
		}
	}
}

// abandon reports whether a worker asked to stop has nothing more to wait for: the others
// are gone and what it had outstanding was resent since, so that no switch keeps
// aggregators for it.
func (k *worker) abandon(now, stopped time.Duration) bool {
	n, oldest := k.w.Outstanding()
	return now > max(stopped, k.last)+k.giveUp() && (n == 0 || oldest >= stopped)
}

func (k *worker) stats() Stats {
	s := k.w.Stats()
	outstanding, _ := k.w.Outstanding()
	out := Stats{
		Outstanding:     int64(outstanding),
		PacketsSent:     k.sock.Sent,
		BytesSent:       k.sock.SentBytes,
		PacketsReceived: k.sock.Received,
		BytesReceived:   k.sock.ReceivedBytes,
		Resends:         s.Resends,
		PSNs:            s.Results,
		PSNsSent:        s.Sent - s.Resends,
		Duplicates:      s.Duplicate,
		Stray:           s.Stray,
		Goodput:         k.msg.gradients(s.Results),
		RTTSum:          s.RTTSum.Seconds(),
		RTTCount:        s.RTTCount,
		RTTMin:          s.RTTMin.Seconds(),
		Iterations:      k.msg.done,
		IterationSum:    k.msg.sum.Seconds(),
		CommSum:         k.msg.comm.Seconds(),
		Marks:           s.Marks,
		Overflows:       s.Overflows,
		SumsChecked:     s.Checked,
		SumErrors:       s.Wrong,
		Damaged:         s.Damaged,
		SocketDrops:     k.sock.Drops,
	}
	k.late.tell(&out)
	return out
}

// message is what a worker sends in one iteration, and where it is in it. All
// layers' bytes follow each other and are cut into packets; a packet that two
// layers share is ready with the later one, and the last is padded.
type message struct {
	frames     collectives.Frames
	packets    int64 // of an iteration; 0: a stream
	layers     []layer
	iterations int64 // 0: no end

	started, finished bool
	start             time.Duration // of this iteration
	next              int           // layer
	done              int64         // iterations
	sum, comm         time.Duration // over iterations: whole, and from first gradient to last result
}

type layer struct {
	packets int64
	ready   time.Duration // after the start of the iteration
}

func newMessage(cfg Config) message {
	m := message{iterations: cfg.Iterations}
	in := cfg.Layers
	if len(in) == 0 && cfg.Message > 0 {
		in = []Layer{{Bytes: cfg.Message}}
	}
	size := int64(4 * max(cfg.Lanes, 1))
	m.frames.Payload = size
	var bytes int64
	var at time.Duration
	for i, l := range in {
		bytes += l.Bytes
		at += l.Compute
		whole := bytes / size
		if i == len(in)-1 {
			whole = max((bytes+size-1)/size, 1)
		}
		m.layers = append(m.layers, layer{packets: whole - m.packets, ready: at})
		m.packets = whole
	}
	m.frames.Message = bytes
	return m
}

// gradients are the bytes of gradient in the results of so many PSNs. Those of the startup are in no iteration.
func (m *message) gradients(psns int64) int64 {
	switch {
	case m.packets == 0: // a stream
	case m.frames.Message == 0: // its iterations compute
		return 0
	default:
		psns = max(0, psns-ina.Startup)
	}
	return m.frames.Gradients(psns)
}

func (m *message) begin(t time.Duration) { m.start, m.next = t, 0 }

// ready is when the next layer is; not ok when all of this iteration's are, or in a
// stream.
func (m *message) ready() (time.Duration, bool) {
	if !m.started || m.next >= len(m.layers) {
		return 0, false
	}
	return m.start + m.layers[m.next].ready, true
}

func (m *message) lastReady() time.Duration { return m.start + m.layers[len(m.layers)-1].ready }

// end accounts for an iteration whose last result came at t, and begins the next.
func (m *message) end(t time.Duration) {
	m.done++
	m.sum += t - m.start
	for _, l := range m.layers {
		if l.packets > 0 {
			m.comm += t - m.start - l.ready
			break
		}
	}
	if m.done == m.iterations {
		m.finished = true
		return
	}
	m.begin(t)
}

// pacer decides when a packet goes. It keeps a schedule u that steps by the gap of
// the rate limit, or by half of what the window sustains where that is longer, and
// never runs ahead of the window. Each packet leaves at u plus a dither of up to
// half a gap, or with a rate limit at a random place among its neighbours, which
// depends on job and PSN only: workers of one job stay aligned, jobs do not lock into
// each other's phase. Lateness of the process does not move the schedule.
type pacer struct {
	gap     float64 // ns between packets at the rate limit, or at the NIC's; 0: none
	scatter bool    // the gap is the rate limit's
	block   uint32  // of places
	places  [ina.Block]float64
	u       float64 // ns, of the packet that was scheduled last
	at      time.Duration
	waits   bool          // the packet scheduled last was not sent yet
	opened  time.Duration // when the window did for that packet
	resend  time.Duration
}

// due is when w's next packet goes; not ok while there is none.
func (p *pacer) due(w *ina.Worker) (time.Duration, bool) {
	psn, opened, ok := w.Next()
	if !ok || p.waits && opened == p.opened {
		return p.at, ok
	}
	spacing := float64(w.Spacing())
	gap := max(p.gap, spacing/2)
	if !p.waits { // otherwise the window was shut before it and has opened again
		p.u += gap
	}
	if o := float64(opened); o > p.u {
		p.u = o
		gap = max(p.gap, spacing)
	}
	delay := w.Dither(psn) * gap / 2
	if p.scatter {
		if b := psn / ina.Block; b != p.block || p.places == ([ina.Block]float64{}) {
			p.block, p.places = b, w.Scatter(b)
		}
		// From its place on the even schedule to its place in the block, and as far
		// again, so that it is never before its time.
		i := psn % ina.Block
		delay = (p.places[i]*ina.Block - float64(i) + ina.Block) * p.gap
	}
	p.at = max(p.at, time.Duration(math.Round(p.u+delay)))
	p.waits, p.opened = true, opened
	return p.at, true
}

func (p *pacer) sent() { p.waits = false }

// resent notes a resend at now: the next may follow after one gap, up to a few at
// once when late.
func (p *pacer) resent(now time.Duration) {
	const burst = 8
	p.resend = max(p.resend, now-time.Duration(burst*p.gap)) + time.Duration(p.gap)
}
