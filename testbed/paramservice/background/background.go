// Package background is other traffic on a host's link: TCP flows that send messages without end
// to a sink on another host, as in AutoPS's appendix D, where they compete with a parameter server
// for the way out of its NIC.
//
// A sink and a source are a process each: one line of JSON on standard input says which, lines of
// JSON on standard output what becomes of it, and the end of standard input ends it.
package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/inabench/inabench/internal/bounded"
)

// ErrConfig is that of a first line that says nothing that can be.
var ErrConfig = errors.New("configuration of background flows")

// Config is the first line on standard input.
type Config struct {
	Local string `json:"local,omitempty"` // IP address; empty: the loopback of a sink, the kernel's choice of a source
	To    string `json:"to,omitempty"`    // host:port of the sink; empty: this is one
	Flows int    `json:"flows,omitempty"` // of a source, from 1 to MaxFlows
}

// MaxFlows is how many flows a source may have.
const MaxFlows = 1024

// message is the bytes of one, as in the paper; the next one follows at once.
const message = 1 << 20

// sendBuffer bounds what a flow has under way, bytes: far more than a round trip needs, and little enough that
// many flows do not fill the memory of what emulates their link.
const sendBuffer = 256 << 10

// Event is a line on standard output.
type Event struct {
	Event   string `json:"event"`             // "ready" (a sink), "started" (all flows of a source), "done" or "error"
	Address string `json:"address,omitempty"` // of "ready"
	Bytes   int64  `json:"bytes,omitempty"`   // of "done": received, or handed to the kernel
	Why     string `json:"why,omitempty"`     // of "error"
}

// Main is the process. It returns nil when stdin ends or ctx is done.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := json.NewEncoder(stdout)
	in := json.NewDecoder(io.LimitReader(stdin, bounded.Config))
	in.DisallowUnknownFields()
	var cfg Config
	err := in.Decode(&cfg)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	} else {
		go func() { // ends with the process at the latest: nobody can stop a read
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
		var f flows
		emit := func(e Event) { _ = out.Encode(e) } // whoever reads it is gone: stdin ends then, too
		if err = f.run(ctx, cfg, emit); err == nil {
			emit(Event{Event: "done", Bytes: f.bytes.Load()})
		}
	}
	if err != nil {
		_ = out.Encode(Event{Event: "error", Why: err.Error()})
	}
	return err
}

// flows are those of a process.
type flows struct {
	wg    sync.WaitGroup
	bytes atomic.Int64
}

func (f *flows) run(ctx context.Context, cfg Config, emit func(Event)) error {
	switch {
	case cfg.To == "" && cfg.Flows != 0:
		return fmt.Errorf("%w: %d flows of a sink", ErrConfig, cfg.Flows)
	case cfg.To == "":
		return f.sink(ctx, cfg, emit)
	case cfg.Flows < 1 || cfg.Flows > MaxFlows:
		return fmt.Errorf("%w: %d flows, not 1 to %d", ErrConfig, cfg.Flows, MaxFlows)
	}
	return f.source(ctx, cfg, emit)
}

// sink reads whatever comes.
func (f *flows) sink(ctx context.Context, cfg Config, emit func(Event)) error {
	local := cfg.Local
	if local == "" {
		local = "127.0.0.1"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(local, "0"))
	if err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer f.wg.Wait()
	defer cancel()
	context.AfterFunc(ctx, func() { l.Close() })
	emit(Event{Event: "ready", Address: l.Addr().String()})
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("sink: %w", err)
		}
		f.wg.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			defer c.Close()
			b := make([]byte, message)
			for n, err := 0, error(nil); err == nil; f.bytes.Add(int64(n)) {
				n, err = c.Read(b)
			}
		})
	}
}

// source sends until ctx is done. A flow that breaks before ends all.
func (f *flows) source(ctx context.Context, cfg Config, emit func(Event)) error {
	var d net.Dialer
	if cfg.Local != "" {
		ip := net.ParseIP(cfg.Local)
		if ip == nil {
			return fmt.Errorf("%w: local address %q", ErrConfig, cfg.Local)
		}
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	var all []net.Conn
	defer func() {
		for _, c := range all {
			c.Close()
		}
		f.wg.Wait()
	}()
	for range cfg.Flows {
		c, err := d.DialContext(ctx, "tcp", cfg.To)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		all = append(all, c)
		if t, ok := c.(*net.TCPConn); ok {
			// What it has not sent when it ends is not to be in the way of what comes then.
			if err := errors.Join(t.SetWriteBuffer(sendBuffer), t.SetLinger(0)); err != nil {
				return fmt.Errorf("source: %w", err)
			}
		}
	}
	emit(Event{Event: "started"})
	b := make([]byte, message)
	broken := make(chan error, len(all))
	for _, c := range all {
		f.wg.Go(func() {
			for {
				n, err := c.Write(b)
				f.bytes.Add(int64(n))
				if err != nil {
					broken <- err
					return
				}
			}
		})
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-broken:
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("source: %w", err)
	}
}
