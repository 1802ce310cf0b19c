package data

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Block is the values of a tensor, shared by who computes with them and who sends them. When
// all have said Done its memory is used again. Who does not say so costs memory until the
// garbage collector comes, and nothing else; so of blocks that may or may not be needed any
// more nobody has to keep account.
type Block struct {
	Values []float32
	uses   atomic.Int32
	pool   *Pool
}

// Use adds a user.
func (b *Block) Use() { b.uses.Add(1) }

// Done takes one away: who has said so must not touch the values again.
func (b *Block) Done() {
	if b.uses.Add(-1) == 0 && b.pool != nil {
		b.pool.put(b)
	}
}

// Pool has blocks that are not in use. The zero value is ready; it is safe for concurrent use.
type Pool struct {
	mu   sync.Mutex
	free map[int][]*Block
}

// keep is how many blocks of a size a pool has ready at most.
const keep = 64

// Get returns a block of so many values, any values, with one user.
func (p *Pool) Get(n int) *Block {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.free[n]; len(l) > 0 {
		b := l[len(l)-1]
		l[len(l)-1] = nil
		p.free[n] = l[:len(l)-1]
		b.uses.Store(1)
		return b
	}
	b := &Block{Values: make([]float32, n), pool: p}
	b.uses.Store(1)
	return b
}

// Empty lets go of the memory that is not in use, as when a job has ended.
func (p *Pool) Empty() {
	p.mu.Lock()
	clear(p.free)
	p.mu.Unlock()
}

func (p *Pool) put(b *Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == nil {
		p.free = map[int][]*Block{}
	}
	if n := len(b.Values); len(p.free[n]) < keep {
		p.free[n] = append(p.free[n], b)
	}
}

// bytesOf is the memory of values.
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
