package controller

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/mina/sharing"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/sharp/aggmgr"
)

// Setup is the first line of JSON on the process's stdin.
type Setup struct {
	// Inventory is a fat-tree whose switches have P4Runtime servers at their Control
	// addresses. The process becomes their controller and loads their pipelines.
	Inventory *inventory.Inventory `json:"inventory"`
	// MACs are hardware addresses of hosts' NICs by their data addresses. Switches get routes
	// to these, which is what rings and everything else without INA go by.
	MACs map[netip.Addr]string `json:"macs,omitempty"`

	Listen string `json:"listen,omitempty"` // for hosts (gRPC); empty: any port of the loopback

	AMLog string `json:"am_log,omitempty"` // file that sharp_am's lines are appended to; empty: none

	// Parts of MINA, or what stands in their place: see mina.Config.Named.
	Place   string `json:"place,omitempty"`   // "minimal" (MINA's, and the default), "first-fit", "consolidate" or "random"
	Trees   string `json:"trees,omitempty"`   // "mina" (the default), "first" or "first-idle"
	Sharing string `json:"sharing,omitempty"` // who joins groups: "apart" (default), "together", "merged" or "exclusive"
	// Alpha is of minimal placement; nil: the paper's.
	Alpha *float64 `json:"alpha,omitempty"`
	// Options are of Trees, but for who joins groups, which Sharing says. Random placement has their seed.
	Options tree.Options `json:"options,omitzero"`

	// Share is the sharing controller; nil: none, and jobs ask for INA as they like.
	Share *Share `json:"share,omitempty"`

	Lease time.Duration `json:"lease,omitempty"`
}

// Share is how the sharing controller works: see sharing.ControllerConfig.
type Share struct {
	Listen  string        `json:"listen,omitempty"` // for hosts; empty: any port of the loopback
	Cost    tree.Cost     `json:"cost"`             // of all-reduces
	PerHost bool          `json:"per_host,omitempty"`
	Silence time.Duration `json:"silence,omitempty"`
	Log     string        `json:"log,omitempty"` // file that its log is appended to; empty: none
}

// Addresses are where the process serves.
type Addresses struct {
	Hosts   string `json:"hosts"`             // gRPC, for package allocation
	Sharing string `json:"sharing,omitempty"` // gRPC, for package sharing
}

// Command is any later line on stdin. What becomes of it is told by events.
type Command struct {
	Cmd string `json:"cmd"` // "submit", "end", "link" or "stop"

	Submit Submission `json:"submit"` // of "submit"
	Job    uint16     `json:"job"`    // of "end"
	A      string     `json:"a"`      // of "link": the switches at its ends
	B      string     `json:"b"`
	Up     bool       `json:"up"`
}

// allocation is what the setup says of algorithms.
func (s *Setup) allocation() (mina.Config, error) {
	a, alpha := mina.Config{Options: s.Options}, fragment.DefaultAlpha
	if s.Alpha != nil {
		alpha = *s.Alpha
	}
	return a, a.Named(s.Place, s.Trees, s.Sharing, alpha, s.Options.Seed)
}

// maxLine bounds a line on stdin, bytes: an inventory of a thousand hosts has 300 kB.
const maxLine = 16 << 20

// Main is the controller process: Setup and Commands come as lines of JSON from stdin,
// Events go to stdout. It returns nil after "stop", when stdin ends, or when ctx is done:
// all trees are released then.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, maxLine)
	if !in.Scan() {
		return in.Err()
	}
	p := &process{out: json.NewEncoder(stdout)}
	var s Setup
	err := json.Unmarshal(in.Bytes(), &s)
	if err == nil {
		err = p.run(ctx, &s, in)
	}
	if err != nil {
		err = fmt.Errorf("MINA controller: %w", err)
		p.emit(Event{Event: "error", Error: err.Error(), Part: blame.Of(err)})
	}
	return err
}

type process struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (p *process) emit(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(e) // whoever reads it is gone: stdin ends then too
}

func (p *process) run(ctx context.Context, s *Setup, in *bufio.Scanner) (err error) {
	if s.Inventory == nil {
		return errors.New("no inventory")
	}
	alloc, err := s.allocation()
	if err != nil {
		return err
	}
	var log io.Writer
	if s.AMLog != "" {
		f, err := openLog(s.AMLog)
		if err != nil {
			return err
		}
		defer f.Close()
		log = f
	}
	fabric := aggmgr.FabricOf(s.Inventory)
	switches, err := aggmgr.DialSwitches(ctx, fabric)
	if err != nil {
		return err
	}
	bounded := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	}
	defer func() {
		ctx, cancel := bounded()
		defer cancel()
		err = errors.Join(err, switches.Close(ctx))
	}()
	if err := s.route(ctx, switches); err != nil {
		return err
	}
	manager, err := aggmgr.New(aggmgr.Config{Fabric: fabric, Switches: switches, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := bounded()
		defer cancel()
		err = errors.Join(err, manager.Close(ctx))
	}()
	cfg := Config{
		Inventory: s.Inventory, Manager: manager, Allocation: alloc, Lease: s.Lease, Emit: p.emit,
	}
	at := &Addresses{}
	if s.Share != nil {
		var end func()
		if cfg.Share, at.Sharing, end, err = p.share(*s.Share); err != nil {
			return err
		}
		defer end() // after c, which tells it who shares
	}
	c, err := New(cfg)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := bounded()
		defer cancel()
		err = errors.Join(err, c.Close(ctx))
	}()
	return p.serve(ctx, s, at, c, in)
}

func openLog(path string) (*os.File, error) {
	f, err := bounded.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return f, nil
}

// share starts the sharing controller: what is to tell it who shares, where hosts find it,
// and what ends it.
func (p *process) share(s Share) (tell func([]Group), addr string, end func(), err error) {
	cfg := sharing.ControllerConfig{
		Listen: s.Listen, Cost: s.Cost, PerHost: s.PerHost, Silence: s.Silence,
		Out: func(job uint32, run uint64, why string) {
			p.emit(Event{Event: "out", Job: uint16(job), Error: fmt.Sprintf("run %d: %s", run, why)})
		},
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	closeLog := func() {}
	if s.Log != "" {
		f, err := openLog(s.Log)
		if err != nil {
			return nil, "", nil, err
		}
		cfg.Log, closeLog = sharing.NewLog(f), func() { _ = f.Close() }
	}
	c, err := sharing.NewController(cfg)
	if err != nil {
		closeLog()
		return nil, "", nil, err
	}
	tell = func(groups []Group) {
		var all []sharing.Group
		for _, g := range groups {
			var members sharing.Group
			for i, job := range g.Jobs {
				m := sharing.Member{Job: uint32(job), Hosts: g.Hosts[i], Rivals: []uint32{}}
				for _, r := range g.Rivals[i] {
					m.Rivals = append(m.Rivals, uint32(r))
				}
				members = append(members, m)
			}
			all = append(all, members)
		}
		if err := c.Share(all); err != nil {
			p.emit(Event{Event: "error", Error: err.Error(), Part: blame.Of(err)})
		}
	}
	return tell, c.Address(), func() { _ = c.Close(); closeLog() }, nil
}

// route writes the routes to all hosts whose hardware addresses are known.
func (s *Setup) route(ctx context.Context, switches aggmgr.P4Switches) error {
	topo := s.Inventory.Topology()
	g, ctx := errgroup.WithContext(ctx)
	for name, c := range switches {
		var routes []p4.Route
		for _, h := range s.Inventory.Hosts {
			for _, nic := range h.NICs {
				text, ok := s.MACs[nic.Address.Addr()]
				if !ok {
					continue
				}
				mac, err := net.ParseMAC(text)
				if err != nil || len(mac) != 6 || !nic.Address.Addr().Is4() {
					return fmt.Errorf("route to host %s: %s at %s: not Ethernet and IPv4", h.Name, nic.Address.Addr(), text)
				}
				port := nic.Port
				if nic.Switch != name {
					path, err := topo.Path(name, h.Name)
					if err != nil {
						return blame.Switch(name, fmt.Errorf("route to host %s: %w", h.Name, err))
					}
					port = topo.Links[path[0]].FromPort
				}
				routes = append(routes, p4.Route{Dst: nic.Address.Addr().As4(), Port: port, MAC: [6]byte(mac)})
			}
		}
		g.Go(func() error { return c.WriteRoutes(ctx, routes) })
	}
	return g.Wait()
}

// closeTimeout bounds each step of the end.
const closeTimeout = 15 * time.Second

// serve listens, and obeys stdin until it ends.
func (p *process) serve(ctx context.Context, s *Setup, at *Addresses, c *Controller, in *bufio.Scanner) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	lis, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	at.Hosts = lis.Addr().String()
	srv := NewServer(s.Lease)
	c.Register(srv)
	g.Go(func() error { return serveGRPC(gctx, srv, lis) })
	p.emit(Event{Event: "ready", Ready: at})

	// A read of stdin cannot be cancelled: its goroutine outlives this function when ctx
	// ends first, and the process is about to end then.
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for in.Scan() {
			select {
			case lines <- append([]byte(nil), in.Bytes()...):
			case <-gctx.Done():
				return
			}
		}
	}()
	g.Go(func() error {
		defer cancel()
		for {
			select {
			case line, more := <-lines:
				if !more {
					return in.Err()
				}
				if stop := p.obey(c, line); stop {
					return nil
				}
			case <-gctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// obey carries out one command.
func (p *process) obey(c *Controller, line []byte) (stop bool) {
	var cmd Command
	err := json.Unmarshal(line, &cmd)
	if err == nil {
		switch cmd.Cmd {
		case "submit":
			_, _ = c.Submit(cmd.Submit) // refused or placed: an event says so
		case "end":
			_, err = c.End(cmd.Job)
		case "link":
			err = c.SetLink(cmd.A, cmd.B, cmd.Up)
		case "stop":
			return true
		default:
			err = fmt.Errorf("unknown command %q", cmd.Cmd)
		}
	}
	if err != nil {
		p.emit(Event{Event: "error", Job: cmd.Job, Error: err.Error(), Part: blame.Of(err)})
	}
	return false
}
