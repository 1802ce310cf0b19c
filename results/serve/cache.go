package serve

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
)

// rendered are pages that cost something to make. Each is made once for all who ask for it, one after
// the other, and kept while there is room: however many ask, memory is that of the pages kept and of
// one that is being made. One whose askers have all gone before its turn came is not made.
type rendered struct {
	turn chan struct{} // whose it is makes a page
	most int           // of kept

	mu    sync.Mutex
	pages map[string]*made // by address
	clock int              // of uses
	kept  int              // bytes
}

// Bounds of the pages that are kept, bytes.
const (
	mostReports = 64 << 20
	mostPages   = 16 << 20
)

// made is a page, or one that is being made.
type made struct {
	of    string        // what it was made of: another is made when that is another
	ready chan struct{} // closed when text and err are
	text  []byte
	err   error
	used  int
	asked int           // by how many who wait for it
	begun bool          // it is being made
	left  chan struct{} // closed when all who waited for it have gone before
}

// size is what a page that is kept takes, about.
func (p *made) size(address string) int { return cap(p.text) + len(address) + len(p.of) + 512 }

func (c *rendered) init(most int) {
	c.most = most
	c.turn = make(chan struct{}, 1)
	c.pages = map[string]*made{}
}

// get is a page, made by do if there is none of what it is to be made of. Nobody may change it.
func (c *rendered) get(ctx context.Context, address, of string, do func(io.Writer) error) ([]byte, error) {
	c.mu.Lock()
	p := c.pages[address]
	if p == nil || p.of != of {
		c.drop(address)
		p = &made{of: of, ready: make(chan struct{}), left: make(chan struct{})}
		c.pages[address] = p
		go c.render(address, p, do)
	}
	c.clock++
	p.used = c.clock
	p.asked++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if p.asked--; p.asked == 0 && !p.begun {
			p.begun = true // by nobody
			close(p.left)
			if c.pages[address] == p {
				c.drop(address)
			}
		}
	}()
	select {
	case <-p.ready:
		return p.text, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *rendered) render(address string, p *made, do func(io.Writer) error) {
	select {
	case c.turn <- struct{}{}:
	case <-p.left:
		return
	}
	defer func() { <-c.turn }()
	if !c.begin(p) {
		return
	}
	var b bytes.Buffer
	err := recovered(func() error { return do(&b) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.err = err; err == nil {
		p.text = b.Bytes()
	}
	close(p.ready)
	switch {
	case c.pages[address] != p: // made of what is no longer
	case err != nil:
		delete(c.pages, address)
	default:
		c.kept += p.size(address)
		for c.kept > c.most && len(c.pages) > 1 {
			c.drop(c.oldest(p))
		}
	}
}

// begin says whether a page is to be made: somebody waits for it.
func (c *rendered) begin(p *made) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := p.begun
	p.begun = true
	return !was
}

// recovered is what do returns; a panic, of a record that nobody thought of, is an error.
func recovered(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("this page cannot be made: %v", p)
		}
	}()
	return do()
}

// oldest is the address of the page that was not asked for for longest, but one.
func (c *rendered) oldest(but *made) (address string) {
	var oldest *made
	for a, p := range c.pages {
		if p != but && (oldest == nil || p.used < oldest.used) {
			address, oldest = a, p
		}
	}
	return address
}

// drop forgets a page. Who is being given it goes on having it.
func (c *rendered) drop(address string) {
	if p := c.pages[address]; p != nil {
		if p.text != nil {
			c.kept -= p.size(address)
		}
		delete(c.pages, address)
	}
}
