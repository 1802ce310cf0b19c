package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// Errors of connections.
var (
	// ErrRefused is that of a node that does not want to hear from this one, or not this.
	ErrRefused = errors.New("refused")
	// ErrGone is that of an address at which there is another Aggregator by now.
	ErrGone = errors.New("another Aggregator")
	// ErrSlow is that of a node that does not read what it is sent.
	ErrSlow = errors.New("frames are not read")
)

const (
	greeting  = 5 * time.Second        // for the hello and its answer, and to connect
	lastWords = time.Second            // until a connection is closed that was refused
	pause     = 100 * time.Millisecond // between attempts to connect
	backlog   = 4 * control.MaxTensors // frames that wait to be sent to one node
)

// gone is At in a refusal for ErrGone.
const gone = 1

// Handler is what a Hub's node does with frames. Its methods are called by one goroutine for
// each connection, and must not wait for others.
type Handler interface {
	// Place says where the values of a frame go: a block of as many, or nil, by which they
	// are dropped.
	Place(from *Peer, h *Header) *Block
	// Frame takes a frame, and its block, which is the handler's from then on; nil if it has no
	// values or they were dropped.
	Frame(from *Peer, h *Header, b *Block)
	// Lost says that a connection broke, and why, or why one could not be made. io.EOF is that the
	// other side has closed it.
	Lost(who Node, err error)
}

// Config is what a Hub has to know.
type Config struct {
	Self      Node
	Transport Transport
	Handler   Handler
	// Listener takes connections of others, which only Aggregators do; nil: none. The Hub closes
	// it.
	Listener Listener
}

// Hub has the connections of a node.
type Hub struct {
	cfg  Config
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	addresses map[int32]string // of Aggregators
	peers     map[Node]*Peer   // the latest connection with each
	all       map[*Peer]bool
	retry     map[Node]time.Time // no attempt to connect before then
	garbage   int64
}

// NewHub makes a Hub, which goes on until Close.
func NewHub(cfg Config) *Hub {
	h := &Hub{cfg: cfg, addresses: map[int32]string{}, peers: map[Node]*Peer{}, all: map[*Peer]bool{}, retry: map[Node]time.Time{}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	if cfg.Listener != nil {
		h.wg.Go(h.accept)
	}
	return h
}

// Garbage is how many connections were closed because of what came on them.
func (h *Hub) Garbage() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.garbage
}

// Close breaks all connections, as a crash would, and waits until nothing goes on.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.stop()
	if h.cfg.Listener != nil {
		h.cfg.Listener.Close()
	}
	for p := range h.all {
		p.fail(nil)
	}
	h.mu.Unlock()
	h.wg.Wait()
}

// Know tells the address of an Aggregator.
func (h *Hub) Know(id int32, address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addresses[id] = address
	delete(h.retry, AggregatorNode(id))
}

// Connect makes a connection with an Aggregator if there is none, so that it is there when it is
// needed. It does not wait.
func (h *Hub) Connect(id int32) { h.peer(AggregatorNode(id)) }

// Send sends a frame, and the values of a block if it is not nil, to a node that there is a
// connection with, or to an Aggregator of known address. It does not wait. A frame that cannot be
// sent is lost. pending says that these values have been sent before and are still on their way out,
// so that there can be no answer yet.
func (h *Hub) Send(to Node, head Header, b *Block) (pending bool) {
	if p := h.peer(to); p != nil {
		return p.Send(head, b)
	}
	return false
}

// peer is the connection with a node; a new one if it is an Aggregator; or nil.
func (h *Hub) peer(to Node) *Peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.peers[to]; p != nil || h.closed || to.Role != migrate.Aggregator {
		return p
	}
	address, ok := h.addresses[to.ID]
	if now := time.Now(); !ok || now.Before(h.retry[to]) {
		return nil
	} else {
		h.retry[to] = now.Add(pause)
	}
	p := h.add(to, nil)
	h.wg.Go(func() { h.dial(p, address) })
	return p
}

// add makes a connection the one that is used. The caller has the lock.
func (h *Hub) add(who Node, c Conn) *Peer {
	p := &Peer{hub: h, who: who, conn: c, sent: map[sentKey]sentWhat{}, wake: make(chan struct{}, 1)}
	h.all[p], h.peers[who] = true, p
	return p
}

// lost takes a connection away.
func (h *Hub) lost(p *Peer) {
	h.mu.Lock()
	delete(h.all, p)
	if h.peers[p.who] == p {
		delete(h.peers, p.who)
	}
	closed := h.closed
	h.mu.Unlock()
	p.mu.Lock()
	err := p.err
	p.mu.Unlock()
	p.drain()
	if !closed {
		h.cfg.Handler.Lost(p.who, err)
	}
}

func (h *Hub) dial(p *Peer, address string) {
	defer h.lost(p)
	ctx, cancel := context.WithTimeout(h.ctx, greeting)
	defer cancel()
	c, err := h.cfg.Transport.Dial(ctx, address)
	if err != nil {
		p.fail(err)
		return
	}
	if !p.attach(c) {
		return
	}
	if err := h.greet(c, p.who.ID); err != nil {
		p.fail(err)
		return
	}
	cancel()
	h.serve(p)
}

// greet says hello, and waits to be welcome.
func (h *Hub) greet(c Conn, to int32) error {
	if err := c.Deadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	hi := hello(h.cfg.Self, to)
	if err := c.Send(&hi, nil); err != nil {
		return err
	}
	var why []float32
	answer, err := c.Receive(func(h *Header) []float32 { why = textPlace(h); return why })
	switch {
	case err != nil:
		return err
	case answer.Kind == Refused:
		return refusal(&answer, why)
	case answer.Kind != Welcome:
		return fmt.Errorf("%v instead of a welcome: %w", answer.Kind, ErrFrame)
	}
	return c.Deadline(time.Time{})
}

func (h *Hub) accept() {
	for {
		c, err := h.cfg.Listener.Accept()
		if err != nil {
			if h.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			select { // too many files are open
			case <-time.After(pause):
				continue
			case <-h.ctx.Done():
				return
			}
		}
		h.wg.Go(func() { h.answer(c) })
	}
}

// answer is a connection that another node has made.
func (h *Hub) answer(c Conn) {
	end := context.AfterFunc(h.ctx, func() { c.Close() })
	who, err := h.welcome(c)
	if err != nil {
		if h.ctx.Err() == nil {
			h.count(err)
		}
		end()
		c.Close()
		return
	}
	h.mu.Lock()
	p := h.add(who, c)
	if h.closed {
		p.fail(nil)
	}
	h.mu.Unlock()
	end()
	defer h.lost(p)
	h.serve(p)
}

// count counts connections that had something else than frames on them.
func (h *Hub) count(err error) {
	if errors.Is(err, ErrFrame) || errors.Is(err, ErrProtocol) {
		h.mu.Lock()
		h.garbage++
		h.mu.Unlock()
	}
}

// welcome answers a hello.
func (h *Hub) welcome(c Conn) (Node, error) {
	if err := c.Deadline(time.Now().Add(greeting)); err != nil {
		return Node{}, err
	}
	head, err := c.Receive(func(*Header) []float32 { return nil })
	var who Node
	var to int32
	switch {
	case err != nil:
	case head.Kind != Hello:
		err = fmt.Errorf("%v instead of a hello: %w", head.Kind, ErrFrame)
	default:
		who, to, err = greeted(&head)
	}
	if err == nil && to != h.cfg.Self.ID {
		err = fmt.Errorf("this is %v, not %d: %w", h.cfg.Self, to, ErrGone)
	}
	if err != nil {
		v := text(err.Error())
		no := Header{Kind: Refused, Elements: len(v)}
		if errors.Is(err, ErrGone) {
			no.At = gone
		}
		if c.Send(&no, v) == nil && c.Deadline(time.Now().Add(lastWords)) == nil {
			for err := error(nil); err == nil; { // closed too early, the answer may not arrive
				_, err = c.Receive(func(*Header) []float32 { return nil })
			}
		}
		return Node{}, err
	}
	if err := c.Send(&Header{Kind: Welcome}, nil); err != nil {
		return Node{}, err
	}
	return who, c.Deadline(time.Time{})
}

// serve carries frames until the connection breaks.
func (h *Hub) serve(p *Peer) {
	h.wg.Go(p.write)
	for {
		var b *Block
		var why []float32
		head, err := p.conn.Receive(func(head *Header) []float32 {
			if head.Kind == Refused {
				why = textPlace(head)
				return why
			}
			if b = h.cfg.Handler.Place(p, head); b == nil {
				return nil
			}
			return b.Values
		})
		switch {
		case err != nil:
			h.count(err)
			p.fail(err)
			return
		case head.Kind == Hello || head.Kind == Welcome:
			err := fmt.Errorf("%v in the middle: %w", head.Kind, ErrFrame)
			h.count(err)
			p.fail(err)
			return
		case head.Kind == Refused:
			p.fail(fmt.Errorf("%v: %w", head.Key, refusal(&head, why)))
			return
		case head.Kind == Unknown:
			p.forget(head.Key)
		case !p.ending():
			h.cfg.Handler.Frame(p, &head, b)
		}
	}
}

// Peer is a connection with a node.
type Peer struct {
	hub *Hub
	who Node

	mu    sync.Mutex
	conn  Conn  // nil: not connected yet
	small queue // frames without values, which go first
	large queue
	sent  map[sentKey]sentWhat
	err   error
	done  bool
	last  bool // it is to be closed after the queues
	wake  chan struct{}
}

// queue is first in, first out.
type queue struct {
	all  []outgoing
	next int
}

func (q *queue) len() int { return len(q.all) - q.next }

func (q *queue) put(o outgoing) { q.all = append(q.all, o) }

func (q *queue) get() (o outgoing, ok bool) {
	if q.next == len(q.all) {
		q.all, q.next = q.all[:0], 0
		return o, false
	}
	o, q.all[q.next] = q.all[q.next], o
	q.next++
	return o, true
}

type outgoing struct {
	head  Header
	block *Block
}

type sentKey struct {
	kind Kind
	key  control.Key
}

type sentWhat struct {
	term    migrate.Term
	version uint64
	gone    bool // handed to the transport as a whole
}

// Who is the node.
func (p *Peer) Who() Node { return p.who }

// Send sends a frame over this connection, as Hub.Send does.
func (p *Peer) Send(head Header, b *Block) (pending bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.last {
		return false
	}
	if b != nil {
		k, w := sentKey{head.Kind, head.Key}, sentWhat{term: head.Term, version: head.Version}
		switch was, ok := p.sent[k]; {
		case !ok || was.term != w.term || was.version != w.version:
			p.sent[k] = w
		case !was.gone:
			return true
		case head.Kind == migrate.Push:
			head.Kind, head.Elements, b = Poke, 0, nil
		default:
			return false
		}
	}
	p.put(head, b)
	return false
}

// Refuse says why a frame about a tensor was not taken, and closes the connection.
func (p *Peer) Refuse(k control.Key, why string) {
	b := &Block{Values: text(why)}
	b.Use()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.last {
		return
	}
	p.put(Header{Kind: Refused, Key: k, Elements: len(b.Values)}, b)
	p.last = true
}

// ending says whether a refusal is the last that is sent.
func (p *Peer) ending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// put queues a frame. The caller has the lock.
func (p *Peer) put(head Header, b *Block) {
	if p.small.len()+p.large.len() >= backlog {
		p.failLocked(ErrSlow)
		return
	}
	if b != nil {
		b.Use()
		head.Elements = len(b.Values)
		p.large.put(outgoing{head, b})
	} else {
		p.small.put(outgoing{head: head})
	}
	p.signal()
}

func (p *Peer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// forget makes it send again what it has sent of a tensor.
func (p *Peer) forget(k control.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range []Kind{migrate.Push, migrate.TensorCopy} {
		delete(p.sent, sentKey{kind, k})
	}
}

// Forget does so for all tensors of a job, which is over.
func (h *Hub) Forget(job uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.all {
		p.mu.Lock()
		for k := range p.sent {
			if k.key.Job == job {
				delete(p.sent, k)
			}
		}
		p.mu.Unlock()
	}
}

// attach gives it the connection that was made, unless it has been closed.
func (p *Peer) attach(c Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		c.Close()
		return false
	}
	p.conn = c
	return true
}

// fail breaks the connection.
func (p *Peer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failLocked(err)
}

func (p *Peer) failLocked(err error) {
	if p.done {
		return
	}
	p.done, p.err = true, err
	if p.conn != nil {
		p.conn.Close()
	}
	p.signal()
}

// drain lets go of what will not be sent.
func (p *Peer) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for o, ok := p.large.get(); ok; o, ok = p.large.get() {
		o.block.Done()
	}
	p.small, p.large = queue{}, queue{}
}

// take waits for a frame to send; ok is false when there will be none.
func (p *Peer) take() (o outgoing, ok bool) {
	for {
		p.mu.Lock()
		if p.done {
			p.mu.Unlock()
			return o, false
		}
		if o, ok = p.small.get(); !ok {
			o, ok = p.large.get()
		}
		last, conn := p.last, p.conn
		p.mu.Unlock()
		switch {
		case ok:
			return o, true
		case last: // the other side closes it, or the time runs out
			_ = conn.Deadline(time.Now().Add(lastWords))
			return o, false
		}
		<-p.wake
	}
}

// write sends what is queued.
func (p *Peer) write() {
	for {
		o, ok := p.take()
		if !ok {
			return
		}
		if o.block == nil {
			if err := p.conn.Send(&o.head, nil); err != nil {
				p.fail(err)
				return
			}
			continue
		}
		err := p.conn.Send(&o.head, o.block.Values)
		o.block.Done()
		if err != nil {
			p.fail(err)
			return
		}
		p.mu.Lock()
		k := sentKey{o.head.Kind, o.head.Key}
		if w, ok := p.sent[k]; ok && w.term == o.head.Term && w.version == o.head.Version {
			w.gone = true
			p.sent[k] = w
		}
		p.mu.Unlock()
	}
}

// textPlace is where the text of a refusal goes.
func textPlace(h *Header) []float32 {
	if h.Kind == Refused {
		return make([]float32, h.Elements)
	}
	return nil
}

// refusal is the error that a refusal is.
func refusal(h *Header, why []float32) error {
	what := ErrRefused
	if h.At == gone {
		what = ErrGone
	}
	return fmt.Errorf("%w: %q", what, bytes.TrimRight(bytesOf(why), "\x00"))
}
