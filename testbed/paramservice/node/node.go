// Package node is an Aggregator or a worker of a Parameter Service as a process on a host: one
// line of JSON on standard input says what it is, lines of JSON on standard output what
// becomes of it, and the end of standard input ends it, whatever it is doing.
//
// With a pMaster, an Aggregator joins under the id that pMaster's "allocate" told, and a worker
// attaches to a job that has been registered. Without one, an Aggregator is a server of the jobs
// that it is given, and tensors take turns on the servers that workers are given: the way
// of ps-lite, on the same data plane.
package node

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// ErrConfig is that of a first line that says nothing that can be.
var ErrConfig = errors.New("configuration of a node")

// Config is the first line on standard input. One of Aggregator and Worker is there.
type Config struct {
	Master string `json:"master,omitempty"` // host:port of pMaster; empty: there is none
	Local  string `json:"local,omitempty"`  // IP address of the data plane; empty: the loopback
	// Times of migrate's machines; 0: its defaults.
	Times migrate.Times `json:"times,omitzero"`

	Aggregator *Aggregator `json:"aggregator,omitempty"`
	Worker     *Worker     `json:"worker,omitempty"`
}

// Aggregator is what an Aggregator is told.
type Aggregator struct {
	ID      int32         `json:"id"`
	Report  time.Duration `json:"report,omitempty"`  // between reports to pMaster and events; 0: only at the end
	Jobs    []control.Job `json:"jobs,omitempty"`    // without pMaster: those that it is a server of
	Packing time.Duration `json:"packing,omitempty"` // until a tensor is ready to be copied to another Aggregator
}

// Worker is what a worker is told.
type Worker struct {
	Job     control.Job    `json:"job"`
	Rank    int32          `json:"rank"`
	Servers []control.Peer `json:"servers,omitempty"` // without pMaster

	Iterations int             `json:"iterations"`
	Forward    []time.Duration `json:"forward,omitempty"`  // by tensor, as in client.Loop
	Backward   []time.Duration `json:"backward,omitempty"` // by tensor
	Slower     []float64       `json:"slower,omitempty"`   // by iteration, as in client.Loop
	Report     int             `json:"report,omitempty"`   // iterations between reports to pMaster
	Beat       time.Duration   `json:"beat,omitempty"`     // between events that say only that it is there; 0: none
	// Seed is that of gradients, which are client.Synthetic; 0: they are zeros, which takes less time.
	Seed uint64 `json:"seed,omitempty"`
}

// Event is a line on standard output.
type Event struct {
	Event string `json:"event"` // "ready", "iteration", "stats", "beat", "done" or "error"

	Address   string             `json:"address,omitempty"`   // of "ready": an Aggregator's data plane
	Iteration *client.Iteration  `json:"iteration,omitempty"` // of "iteration"
	Transfers []control.Transfer `json:"transfers,omitempty"` // of "done": the worker's, since its last report
	Digest    string             `json:"digest,omitempty"`    // of "done": of the worker's last models; see Digest
	Stats     *aggregator.Stats  `json:"stats,omitempty"`     // of "stats": an Aggregator's since it started
	Why       string             `json:"why,omitempty"`       // of "error"
}

// Digest is a fingerprint of models: that of others with the same bits is the same.
func Digest(models [][]float32) string {
	h := sha256.New()
	var b []byte
	for _, m := range models {
		b = binary.LittleEndian.AppendUint64(b[:0], uint64(len(m)))
		for _, v := range m {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// maxLine bounds the first line, bytes.
const maxLine = 16 << 20

// Main is the process. It returns nil when a worker is done, when pMaster has released an
// Aggregator, and when stdin ends or ctx is done.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	n := &node{out: json.NewEncoder(stdout)}
	in := bufio.NewReaderSize(stdin, 64<<10)
	cfg, err := read(in)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() { // ends with the process at the latest: nobody can stop a read
			_, _ = io.Copy(io.Discard, in)
			cancel()
		}()
		err = n.run(ctx, cfg)
	}
	if err != nil {
		n.emit(Event{Event: "error", Why: err.Error()})
	}
	return err
}

// read reads the first line.
func read(in *bufio.Reader) (*Config, error) {
	d := json.NewDecoder(io.LimitReader(in, maxLine))
	d.DisallowUnknownFields()
	var cfg Config
	if err := d.Decode(&cfg); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	switch {
	case (cfg.Aggregator == nil) == (cfg.Worker == nil):
		return nil, fmt.Errorf("%w: it is to be an Aggregator or a worker", ErrConfig)
	case cfg.Worker != nil && cfg.Master == "" && len(cfg.Worker.Servers) == 0:
		return nil, fmt.Errorf("%w: a worker without pMaster and without servers", ErrConfig)
	case cfg.Aggregator != nil && cfg.Aggregator.Packing < 0:
		return nil, fmt.Errorf("%w: packing for %v", ErrConfig, cfg.Aggregator.Packing)
	case cfg.Worker != nil && slices.ContainsFunc(cfg.Worker.Slower, func(by float64) bool { return !(by > 0) }):
		return nil, fmt.Errorf("%w: an iteration that computes for no time", ErrConfig)
	case cfg.Worker != nil && cfg.Worker.Iterations < 0:
		return nil, fmt.Errorf("%w: %d iterations", ErrConfig, cfg.Worker.Iterations)
	}
	return &cfg, nil
}

type node struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (n *node) emit(e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.out.Encode(e) // whoever reads it is gone: stdin ends then, too
}

func (n *node) run(ctx context.Context, cfg *Config) error {
	if cfg.Aggregator != nil {
		return n.aggregate(ctx, cfg, cfg.Aggregator)
	}
	return n.work(ctx, cfg, cfg.Worker)
}

// aggregate is an Aggregator's life.
func (n *node) aggregate(ctx context.Context, cfg *Config, a *Aggregator) error {
	local := cmp.Or(cfg.Local, "127.0.0.1")
	tr := &data.TCP{Local: local}
	lis, err := tr.Listen(ctx, net.JoinHostPort(local, "0"))
	if err != nil {
		return err
	}
	var link control.Link
	if cfg.Master == "" {
		link = control.StaticServer(a.Jobs...)
	} else {
		c, err := wire.Dial(cfg.Master)
		if err != nil {
			lis.Close()
			return err
		}
		defer c.Close()
		l, err := c.Join(ctx, a.ID, lis.Address())
		if err != nil {
			lis.Close()
			return err
		}
		defer l.Close()
		link = l
	}
	s := aggregator.Listen(aggregator.Config{ID: a.ID, Listener: lis, Transport: tr, Link: link, Times: cfg.Times, Report: a.Report, Packing: a.Packing})
	defer s.Close()
	n.emit(Event{Event: "ready", Address: lis.Address()})
	stats := func() {
		st := s.Stats()
		n.emit(Event{Event: "stats", Stats: &st})
	}
	defer stats()
	defer every(ctx, a.Report, stats)()
	if err := s.Run(ctx); !errors.Is(err, control.ErrClosed) {
		return err
	}
	return nil
}

// every does something after each time of so long, unless that is 0, until what it returns is called, which waits for it.
func every(ctx context.Context, d time.Duration, do func()) (end func()) {
	if d <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				do()
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// work is a worker's life.
func (n *node) work(ctx context.Context, cfg *Config, w *Worker) error {
	defer every(ctx, w.Beat, func() { n.emit(Event{Event: "beat"}) })()
	link, end, err := attach(ctx, cfg, w)
	if err != nil {
		return err
	}
	defer end()
	a, err := client.New(client.Config{Job: w.Job, Rank: w.Rank, Link: link, Transport: &data.TCP{Local: cfg.Local}, Times: cfg.Times, Initial: client.Initial})
	if err != nil {
		return err
	}
	defer a.Close()
	n.emit(Event{Event: "ready"})
	l := client.Loop{Iterations: w.Iterations, Forward: w.Forward, Backward: w.Backward, Slower: w.Slower, Report: w.Report,
		Done: func(it client.Iteration) { n.emit(Event{Event: "iteration", Iteration: &it}) }}
	if w.Seed != 0 {
		l.Gradient = client.Synthetic(w.Seed, w.Rank)
	}
	err = a.Run(ctx, l)
	var models [][]float32
	for t := range w.Job.Tensors {
		var m client.Model
		if err == nil {
			m, err = a.Pull(ctx, t)
			models = append(models, m.Values)
		}
	}
	if err == nil {
		n.emit(Event{Event: "done", Digest: Digest(models), Transfers: a.Transfers()})
		err = a.Finish(ctx)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// attach is a worker's link.
func attach(ctx context.Context, cfg *Config, w *Worker) (link control.Link, end func(), err error) {
	if err := w.Job.Check(); err != nil {
		return nil, nil, err
	}
	if cfg.Master == "" {
		l := control.StaticWorker(w.Job, w.Rank, w.Servers)
		return l, l.Close, nil
	}
	c, err := wire.Dial(cfg.Master)
	if err != nil {
		return nil, nil, err
	}
	l, err := c.Attach(ctx, w.Job, w.Rank)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return l, func() { l.Close(); c.Close() }, nil
}
