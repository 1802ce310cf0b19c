package collective

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/udp"
)

var _ Collective = (*Group)(nil)

// Config is what one rank of a job has to know.
type Config struct {
	RingConfig // its Timeout is that of trees too; 0: DefaultTimeout

	// The following is about trees.
	Clock  *udp.Clock
	Device string        // the NIC
	Lanes  int           // int32 values per packet, 1..ina.MaxLanes
	RTO    time.Duration // the first resend timeout: a few round trips
	// LineRate is that of the NIC, bit/s: packets leave no faster, so that an operation
	// does not begin with a burst of a window. 0: it may.
	LineRate float64
	// Rest is the least time between two looks at the socket in the midst of an operation;
	// see udp.Socket. 0: that of a few packets at LineRate.
	Rest    time.Duration
	Offload bool // hand over several packets at once; see udp.Open
	// Held is told, by one goroutine at a time, that the switches have granted the tree to an
	// operation, counted from 0, and before this rank gives it back: so no rival's can be
	// told in between. It must not wait. nil: nobody is.
	Held func(index int64, held bool)
}

// DefaultTimeout is longer than ranks of a job are ever apart.
const DefaultTimeout = 30 * time.Second

// Tree is an exclusive tree in the switches, as far as ranks have to know. The zero value
// is none.
type Tree struct {
	Epoch  uint16 `json:"epoch"`  // each of a job's trees has another, not 0
	Window int    `json:"window"` // packets that a rank may be ahead of the oldest result that it lacks
}

// Group is the all-reduce of one rank. One goroutine calls Connect and AllReduce; the
// other methods may be called by any.
//
// # Trees come and go
//
// SetTree is called on all ranks, at no particular time. A rank that has heard of a tree
// says so in every all-reduce of the ring, and when all of them have, all of them use it
// from the next on. A rank that is to leave its tree has the next lock refused, by which
// all ranks learn of it and do without until they all want the same again. So nobody
// waits for a tree to come or go, and no operation is lost or done twice.
type Group struct {
	cfg  Config
	ring *Ring

	index int64  // operations so far
	psn   uint32 // of the ring's reference gradients

	mu      sync.Mutex
	tree    *tree // that all ranks use; nil: none
	wanted  Tree
	agreed  Tree
	voting  bool // an operation is under way in which this rank said what it wants
	last    uint16
	settled func() // to be called when agreed and wanted are the same
	stop    bool
	closed  bool
	total   Traffic
}

// NewGroup opens this rank's ports.
func NewGroup(cfg Config) (*Group, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Lanes < 1 || cfg.Lanes > ina.MaxLanes {
		return nil, fmt.Errorf("%w: %d lanes, want 1..%d", ErrConfig, cfg.Lanes, ina.MaxLanes)
	}
	if cfg.RTO <= 0 {
		return nil, fmt.Errorf("%w: resend timeout %v, want more than 0", ErrConfig, cfg.RTO)
	}
	r, err := NewRing(cfg.RingConfig)
	if err != nil {
		return nil, err
	}
	return &Group{cfg: cfg, ring: r}, nil
}

// Connect finds the neighbours on the ring.
func (g *Group) Connect(ctx context.Context) error { return g.ring.Connect(ctx) }

// Close ends an all-reduce that is under way with an error, and the others learn of it. A
// tree of which the last operation was done is given back first. It may be called again.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.drop()
	g.ring.Close()
}

// drop closes the tree, if there is one.
func (g *Group) drop() {
	g.mu.Lock()
	k := g.tree
	g.mu.Unlock()
	if k == nil {
		return
	}
	k.close()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tree == k {
		g.tree = nil
		g.total.Add(k.traffic())
	}
}

// Traffic is what this rank has sent and received so far.
func (g *Group) Traffic() Traffic {
	t := g.TreeTraffic()
	t.Add(g.ring.Traffic())
	return t
}

// TreeTraffic is what of that went through trees.
func (g *Group) TreeTraffic() Traffic {
	g.mu.Lock()
	t, k := g.total, g.tree
	g.mu.Unlock()
	if k != nil {
		t.Add(k.traffic())
	}
	return t
}

// AllReduce sums so many bytes over all ranks; see Collective. Any error is final: the
// other ranks get one too, within the timeout.
func (g *Group) AllReduce(ctx context.Context, bytes int64, ina bool) (Outcome, error) {
	defer context.AfterFunc(ctx, g.ring.Close)()
	out, err := g.reduce(ctx, bytes, ina)
	if err != nil {
		g.ring.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return Outcome{}, err
	}
	return out, nil
}

func (g *Group) reduce(ctx context.Context, bytes int64, ina bool) (Outcome, error) {
	wanted, agreed, k, stop := g.vote()
	op := Op{Index: g.index, Bytes: bytes, PSN: g.psn, Vote: uint32(wanted.Epoch), Asked: ina && k != nil, Stop: stop}
	g.index++
	refused := false
	if op.Asked {
		packets := (bytes + 4*k.lanes - 1) / (4 * k.lanes)
		a, err := k.reduce(ctx, op.Index, packets, wanted != agreed || stop)
		if err != nil {
			return Outcome{}, fmt.Errorf("tree: operation %d of %d bytes: %w", op.Index, bytes, err)
		}
		if a.granted {
			return Outcome{INA: true, Checked: a.checked, Wrong: a.wrong}, g.agree(agreed)
		}
		refused = a.vetoes == 0
	}
	r, err := g.ring.AllReduce(op)
	if err != nil {
		return Outcome{}, err
	}
	g.psn += uint32(Pieces(bytes))
	if agreed = (Tree{}); r.Least == r.Most {
		agreed = wanted
	}
	return Outcome{Refused: refused, Checked: r.Checked, Wrong: r.Wrong, Stop: r.Stop}, g.agree(agreed)
}

// SetTree says what tree the job is to have, or that it is to have none. When all ranks
// have been told the same, and none of them has anything to do with the tree before any
// more, settled is called, unless something else was wanted meanwhile. It is called by
// SetTree or AllReduce, and must not call either.
//
// What is so already is settled at once, everything else by all-reduces: a job that makes
// none settles nothing.
func (g *Group) SetTree(t Tree, settled func()) error {
	if settled == nil {
		settled = func() {}
	}
	now, err := g.want(t, settled)
	if now {
		settled()
	}
	return err
}

// want reports whether what is wanted is there.
func (g *Group) want(t Tree, settled func()) (now bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.Epoch == 0 {
		t = Tree{}
	} else if t.Window < 1 {
		return false, fmt.Errorf("%w: tree with a window of %d packets", ErrConfig, t.Window)
	}
	if t.Epoch != 0 && t.Epoch == g.last && t != g.agreed {
		return false, fmt.Errorf("%w: tree of epoch %d again: each needs another", ErrConfig, t.Epoch)
	}
	g.wanted, g.settled = t, settled
	if t == g.agreed && !g.voting {
		g.settled = nil
		return true, nil
	}
	return false, nil
}

// Stop tells all ranks, with one of the next operations, that this one wants the job to
// end: see Outcome.
func (g *Group) Stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop = true
}

// Tree is the one that all ranks have agreed to use.
func (g *Group) Tree() Tree {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.agreed
}

// vote begins an operation: this rank wants that tree, or the job to end.
func (g *Group) vote() (wanted, agreed Tree, k *tree, stop bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.voting = true
	return g.wanted, g.agreed, g.tree, g.stop
}

// agree ends an operation: all ranks want that tree, or some of them another.
func (g *Group) agree(t Tree) error {
	var k *tree
	change := t != g.Tree()
	if change {
		g.drop()
		if t.Epoch != 0 {
			var err error
			if k, err = newTree(g.cfg, t, g.ring.Alive); err != nil {
				return err
			}
		}
	}
	g.mu.Lock()
	if g.closed && k != nil {
		g.mu.Unlock()
		k.close()
		return ErrClosed
	}
	if change {
		g.agreed, g.tree = t, k
	}
	if t.Epoch != 0 {
		g.last = t.Epoch
	}
	g.voting = false
	var settled func()
	if g.agreed == g.wanted {
		settled, g.settled = g.settled, nil
	}
	g.mu.Unlock()
	if settled != nil {
		settled()
	}
	return nil
}
