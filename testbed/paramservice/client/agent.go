package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// Errors.
var (
	// ErrEnded is that of an Agent whose job pMaster has ended.
	ErrEnded = errors.New("job ended")
	// ErrFinished is an ErrEnded: all workers have finished.
	ErrFinished = fmt.Errorf("%w: all workers have finished", ErrEnded)
	// ErrTensor is that of a tensor that the job has not got, or of values that are not of its size.
	ErrTensor = errors.New("not a tensor of the job")
)

// Config is what an Agent has to know.
type Config struct {
	Job       control.Job
	Rank      int32
	Link      control.Link
	Transport data.Transport
	Times     migrate.Times // 0: DefaultTimes
	// Initial fills in the model to begin with, which is rank 0's; nil: zeros.
	Initial func(tensor int, values []float32)
}

// Agent is a worker's side of the service. Different tensors may be used by different
// goroutines at once.
type Agent struct {
	cfg     Config
	hub     *data.Hub
	pool    data.Pool
	tensors []*tensor
	stop    context.CancelFunc
	wg      sync.WaitGroup

	ended chan struct{}
	once  sync.Once
	err   error // why; before ended is closed

	mu        sync.Mutex
	transfers map[int32]*control.Transfer
}

// tensor is a row of the table.
type tensor struct {
	agent *Agent
	key   control.Key
	size  int

	mu       sync.Mutex
	machine  *migrate.Agent[*data.Block]
	out      migrate.Output[*data.Block]
	alarm    migrate.Alarm
	closed   bool
	gradient *data.Block
	pushed   time.Time
	to       migrate.Term // it was pushed in
	pulled   time.Time    // when the model that it has came
	term     migrate.Term
	at       int32
	moves    int
	wake     chan struct{}
}

// Model is a tensor's model as it was pulled.
type Model struct {
	Version uint64
	Values  []float32 // not to be written to, and not to be read after the next Push of the tensor
	Pulled  time.Time // it came
	At      int32     // the Aggregator that the tensor is at
	Moves   int       // how often the tensor has changed its Aggregator until then
}

// New makes an Agent, which goes on until Close.
func New(cfg Config) (*Agent, error) {
	if err := cfg.Job.Check(); err != nil {
		return nil, err
	}
	if cfg.Rank < 0 || int(cfg.Rank) >= cfg.Job.Workers {
		return nil, fmt.Errorf("job %q: rank %d of %d workers: %w", cfg.Job.Name, cfg.Rank, cfg.Job.Workers, control.ErrJob)
	}
	cfg.Times = cmp.Or(cfg.Times, migrate.DefaultTimes())
	a := &Agent{cfg: cfg, ended: make(chan struct{}), transfers: map[int32]*control.Transfer{}}
	for i, t := range cfg.Job.Tensors {
		var initial *data.Block
		if cfg.Rank == 0 {
			initial = a.pool.Get(t.Elements)
			if cfg.Initial != nil {
				cfg.Initial(i, initial.Values)
			}
		}
		a.tensors = append(a.tensors, &tensor{agent: a, key: control.Key{Job: cfg.Job.ID, Tensor: uint32(i)}, size: t.Elements,
			machine: migrate.NewAgent(cfg.Rank, initial, cfg.Times), wake: make(chan struct{}, 1)})
	}
	a.hub = data.NewHub(data.Config{Self: data.WorkerNode(cfg.Job.ID, cfg.Rank), Transport: cfg.Transport, Handler: (*handler)(a)})
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	a.wg.Go(func() { a.control(ctx) })
	return a, nil
}

// Close ends it as a crash does, and waits until nothing goes on.
func (a *Agent) Close() {
	a.end(fmt.Errorf("job %q, rank %d: %w: closed", a.cfg.Job.Name, a.cfg.Rank, ErrEnded))
	a.stop()
	a.hub.Close()
	for _, t := range a.tensors {
		t.mu.Lock()
		t.closed = true
		t.alarm.Stop()
		t.mu.Unlock()
	}
	a.wg.Wait()
}

// Ended is closed when pMaster has ended the job, or nothing can be heard of it any more; Err says
// why.
func (a *Agent) Ended() <-chan struct{} { return a.ended }

// Err is why the job has ended: it wraps ErrEnded, or the link's error; nil while it goes on.
func (a *Agent) Err() error {
	select {
	case <-a.ended:
		return a.err
	default:
		return nil
	}
}

func (a *Agent) end(err error) {
	a.once.Do(func() {
		a.err = err
		close(a.ended)
	})
}

// control does what pMaster says.
func (a *Agent) control(ctx context.Context) {
	for {
		m, err := a.cfg.Link.Receive(ctx)
		if err != nil {
			a.end(fmt.Errorf("job %q, rank %d: %w", a.cfg.Job.Name, a.cfg.Rank, err))
			return
		}
		switch m := m.(type) {
		case control.Peers:
			for _, p := range m.Aggregators {
				a.hub.Know(p.ID, p.Address)
			}
		case control.Dismiss:
			if m.Job == a.cfg.Job.ID {
				why := ErrFinished
				if m.Why != "" {
					why = fmt.Errorf("%w: %s", ErrEnded, m.Why)
				}
				a.end(fmt.Errorf("job %q, rank %d: %w", a.cfg.Job.Name, a.cfg.Rank, why))
			}
		case control.Migrate:
			if t := a.tensor(m.Key); t != nil {
				t.handle(control.With[*data.Block](m))
			}
		}
	}
}

func (a *Agent) tensor(k control.Key) *tensor {
	if k.Job == a.cfg.Job.ID && int64(k.Tensor) < int64(len(a.tensors)) {
		return a.tensors[k.Tensor]
	}
	return nil
}

// Block is memory for a gradient of a tensor: any values, to be filled in and pushed.
func (a *Agent) Block(tensor int) *data.Block { return a.pool.Get(a.cfg.Job.Tensors[tensor].Elements) }

// Push sends a tensor's gradient for the model that was pulled last; the next Pull waits for what
// becomes of it. The block is the Agent's from then on. It does not wait. Errors wrap ErrTensor.
func (a *Agent) Push(tensor int, gradient *data.Block) error {
	if tensor < 0 || tensor >= len(a.tensors) {
		return fmt.Errorf("push of tensor %d of %d: %w", tensor, len(a.tensors), ErrTensor)
	}
	t := a.tensors[tensor]
	if len(gradient.Values) != t.size {
		return fmt.Errorf("push of tensor %d: %d values instead of %d: %w", tensor, len(gradient.Values), t.size, ErrTensor)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if version, _ := t.machine.Model(); version == 0 || t.machine.Busy() {
		return fmt.Errorf("push of tensor %d: no model has been pulled: %w", tensor, ErrTensor)
	}
	t.gradient, t.pushed = gradient, time.Now()
	t.to, _ = t.machine.At()
	t.machine.Push(gradient, &t.out)
	t.carryOut()
	return nil
}

// Pull waits for a tensor's model: the first one, or that with the gradient that was pushed. One
// goroutine at a time may call it for a tensor. Its error is the context's or Err.
func (a *Agent) Pull(ctx context.Context, tensor int) (Model, error) {
	if tensor < 0 || tensor >= len(a.tensors) {
		return Model{}, fmt.Errorf("pull of tensor %d of %d: %w", tensor, len(a.tensors), ErrTensor)
	}
	t := a.tensors[tensor]
	for {
		t.mu.Lock()
		version, b := t.machine.Model()
		m := Model{Version: version, Pulled: t.pulled, At: t.at, Moves: t.moves}
		busy := t.machine.Busy()
		t.mu.Unlock()
		if version > 0 && !busy {
			m.Values = b.Values
			return m, nil
		}
		select {
		case <-ctx.Done():
			return Model{}, ctx.Err()
		case <-a.ended:
			return Model{}, a.err
		case <-t.wake:
		}
	}
}

// Where is the table: the Aggregator of each tensor, and the term in which it is there.
func (a *Agent) Where() (at []int32, terms []migrate.Term) {
	for _, t := range a.tensors {
		t.mu.Lock()
		term, id := t.machine.At()
		t.mu.Unlock()
		at, terms = append(at, id), append(terms, term)
	}
	return at, terms
}

// Transfers are those since the last call, in order of Aggregators.
func (a *Agent) Transfers() []control.Transfer {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []control.Transfer
	for _, t := range a.transfers {
		all = append(all, *t)
	}
	clear(a.transfers)
	slices.SortFunc(all, func(x, y control.Transfer) int { return int(x.Aggregator - y.Aggregator) })
	return all
}

// Report tells pMaster of iterations, and of the transfers since the last call.
func (a *Agent) Report(iterations int, spent, stalled time.Duration) {
	a.cfg.Link.Send(control.WorkerReport{Job: a.cfg.Job.ID, Rank: a.cfg.Rank, Iterations: iterations,
		Spent: spent, Stalled: stalled, Transfers: a.Transfers()})
}

// Finish tells pMaster that the worker has all models that it wants, and waits until pMaster ends the
// job: until then others may need this worker's models. It returns nil if all workers have finished.
func (a *Agent) Finish(ctx context.Context) error {
	a.cfg.Link.Send(control.Finished{Job: a.cfg.Job.ID})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-a.ended:
		if errors.Is(a.err, ErrFinished) {
			return nil
		}
		return a.err
	}
}

// handler is the Agent as its hub sees it.
type handler Agent

// Place implements data.Handler.
func (h *handler) Place(_ *data.Peer, head *data.Header) *data.Block {
	a := (*Agent)(h)
	if t := a.tensor(head.Key); t != nil && head.Kind == migrate.Model && head.Elements == t.size {
		return a.pool.Get(head.Elements)
	}
	return nil
}

// Frame implements data.Handler.
func (h *handler) Frame(from *data.Peer, head *data.Header, b *data.Block) {
	a := (*Agent)(h)
	t := a.tensor(head.Key)
	me := data.WorkerNode(a.cfg.Job.ID, a.cfg.Rank)
	wrong := t == nil
	switch head.Kind {
	case migrate.Model, migrate.Wait, migrate.Moved, migrate.CopyAck:
	default:
		wrong = true
	}
	switch {
	case wrong:
		from.Refuse(head.Key, fmt.Sprintf("%v of %v: not for %v", head.Kind, head.Key, me))
		return
	case head.Kind == migrate.Model && b == nil: // another worker says that it is of another size
		why := fmt.Sprintf("%v of %v: %d values instead of %d", head.Kind, head.Key, head.Elements, t.size)
		from.Refuse(head.Key, why)
		a.cfg.Link.Send(control.Failed{Job: a.cfg.Job.ID, Why: fmt.Sprintf("%v: %v", me, why)})
		return
	}
	m := head.Message(from.Who().Node, me.Node, b)
	if b == nil {
		t.handle(m)
	} else if spent, ok := t.answered(m); ok {
		a.count(from.Who().ID, t.size, max(0, spent-head.Held))
	}
}

// count adds a transfer, of a gradient and a model of so many values, to the statistics.
func (a *Agent) count(aggregator int32, size int, spent time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tr := a.transfers[aggregator]
	if tr == nil {
		tr = &control.Transfer{Aggregator: aggregator}
		a.transfers[aggregator] = tr
	}
	tr.Exchanges++
	tr.Bytes += 2 * 4 * int64(size)
	tr.Spent += spent
}

// Lost implements data.Handler. What was asked of a node that is gone is asked again in time; one
// that refuses a frame will do so again.
func (h *handler) Lost(who data.Node, err error) {
	a := (*Agent)(h)
	if errors.Is(err, data.ErrRefused) {
		a.cfg.Link.Send(control.Failed{Job: a.cfg.Job.ID, Why: fmt.Sprintf("%v: %v: %v", data.WorkerNode(a.cfg.Job.ID, a.cfg.Rank), who, err)})
	}
}

func (t *tensor) handle(m migrate.Message[*data.Block]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.machine.Handle(m, &t.out)
	t.carryOut()
}

// answered takes a model. If it answers a gradient that was pushed to the same place from the
// beginning, ok is true, and spent how long ago that was.
func (t *tensor) answered(m migrate.Message[*data.Block]) (spent time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, false
	}
	_, old := t.machine.Model()
	t.machine.Handle(m, &t.out)
	if _, now := t.machine.Model(); now != m.Data {
		m.Data.Done() // it came twice
		t.carryOut()
		return 0, false
	}
	t.pulled = time.Now()
	if old != nil {
		old.Done()
	}
	if t.gradient != nil {
		t.gradient.Done()
		t.gradient = nil
		spent, ok = t.pulled.Sub(t.pushed), t.to == m.Term
	}
	t.carryOut()
	return spent, ok
}

// carryOut does what the machine wants done. The caller has the lock.
func (t *tensor) carryOut() {
	a := t.agent
	var none migrate.Output[*data.Block]
	for _, m := range t.out.Messages {
		head := data.HeaderOf(t.key, &m)
		if m.To.Role == migrate.PMaster {
			a.cfg.Link.Send(control.Strip(t.key, m))
			continue
		}
		if m.Kind == migrate.TensorCopy {
			if m.Data == nil {
				continue // pMaster wants a model of a worker that has none
			}
			m.Data.Use() // for ever: the machine may repeat it
		}
		if a.hub.Send(data.AggregatorNode(m.To.ID), head, m.Data) {
			// It is on its way, however long that takes: no reason to take anybody for dead.
			t.machine.Handle(migrate.Message[*data.Block]{Kind: migrate.Wait, To: m.From, Term: m.Term}, &none)
		}
	}
	if term, at := t.machine.At(); term != t.term {
		if at != t.at && t.term != (migrate.Term{}) {
			t.moves++
		}
		t.term, t.at = term, at
		a.hub.Connect(at) // before there is something to push
	}
	for _, e := range t.out.Events {
		if e.Kind == migrate.Pulled {
			select {
			case t.wake <- struct{}{}:
			default:
			}
		}
	}
	t.alarm.Set(t.out.Alarm, t.timeout)
	clear(t.out.Messages)
	t.out.Reset()
}

func (t *tensor) timeout() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.machine.Timeout(&t.out)
		t.carryOut()
	}
}
