package remote

import (
	"context"
	"io"
	"sync"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/collectors/reader"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/hosts"
)

// readers are the collectors that keep a process on their hosts: for as long as the testbed
// is open, whichever jobs come and go.
type readers struct {
	mu   sync.Mutex
	host map[string][]closer
}

type closer interface {
	collectors.Collector
	io.Closer
}

// of are the collectors of a host.
func (r *readers) of(tb *Testbed, h inventory.Host, ports []collectors.NICPort) (out []collectors.Collector, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.host == nil {
		r.host = map[string][]closer{}
	}
	if _, ok := r.host[h.Name]; !ok {
		c, err := collectors.NewHost(h.Name, ports, func(ctx context.Context, c reader.Config) (collectors.Process, error) {
			p, err := tb.Launch(ctx, h.Name, collectors.ReaderVerb, c)
			if err != nil {
				return nil, err
			}
			return readerProcess{p}, nil
		})
		if err != nil {
			return nil, err
		}
		r.host[h.Name] = []closer{c}
		if h.GPUs > 0 {
			client := tb.hosts[h.Name]
			r.host[h.Name] = append(r.host[h.Name], collectors.NewGPU(client), collectors.NewDCGM(client))
		}
	}
	for _, c := range r.host[h.Name] {
		out = append(out, c)
	}
	return out, nil
}

// close ends them on all hosts at once. One that cannot be ended ends with its connection.
func (r *readers) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var wg sync.WaitGroup
	for _, all := range r.host {
		for _, c := range all {
			wg.Go(func() { _ = c.Close() })
		}
	}
	wg.Wait()
	r.host = nil
}

// readerProcess is a process on a host as collectors want it.
type readerProcess struct{ *hosts.Process }

func (p readerProcess) Write(b []byte) (int, error) { return p.Stdin.Write(b) }
func (p readerProcess) Read(b []byte) (int, error)  { return p.Stdout.Read(b) }
