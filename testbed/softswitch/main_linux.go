package softswitch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/loop"
)

// Main is the switch process. The first line of stdin is its Config; it answers
// with a Reply that is Ready once P4Runtime is served. Each later line is a Command,
// each answered by one Reply. It returns nil after "stop", when stdin ends, or when
// ctx is done.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	return serve(ctx, nil, stdin, stdout)
}

// Cables is Main for the cables of another switch. That is served elsewhere: Reply.Addr is
// empty. When it dies, Cables returns its error.
func Cables(ctx context.Context, behind Behind, stdin io.Reader, stdout io.Writer) error {
	return serve(ctx, behind, stdin, stdout)
}

func serve(ctx context.Context, behind Behind, stdin io.Reader, stdout io.Writer) error {
	loop.Room(1)
	in := bufio.NewReader(stdin)
	out := json.NewEncoder(stdout)
	line, err := bounded.ReadLine(in, bounded.Config)
	if err != nil {
		return fmt.Errorf("read switch config: %w", err)
	}
	var cfg Config
	if err := json.Unmarshal(line, &cfg); err != nil {
		return fmt.Errorf("read switch config: %w", err)
	}
	s, lis, err := open(cfg, behind)
	if err != nil {
		return errors.Join(err, out.Encode(Reply{Error: err.Error()}))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Run(gctx) })
	addr := ""
	if behind == nil {
		addr = address(lis)
		g.Go(func() error { return ServeP4(gctx, lis, cfg.DeviceID, s) })
	} else {
		g.Go(func() error {
			select {
			case <-behind.Exited():
				return behind.Err()
			case <-gctx.Done():
				return nil
			}
		})
	}

	// A read of stdin cannot be cancelled, so its goroutine outlives Main when ctx
	// ends first; the process is about to exit then.
	commands := make(chan Command)
	ended := make(chan error, 1)
	go func() {
		for line, err := range bounded.Lines(in, bounded.Line) {
			var c Command
			if err == nil {
				err = json.Unmarshal(line, &c)
			}
			if err != nil {
				ended <- err
				return
			}
			select {
			case commands <- c:
			case <-gctx.Done():
				return
			}
		}
		ended <- io.EOF
	}()
	g.Go(func() error {
		defer cancel()
		if err := out.Encode(Reply{Ready: true, Addr: addr}); err != nil {
			return blame.Switch(cfg.Name, fmt.Errorf("answer: %w", err))
		}
		for {
			select {
			case c := <-commands:
				if err := out.Encode(s.execute(c, behind)); err != nil {
					return blame.Switch(cfg.Name, fmt.Errorf("answer: %w", err))
				}
				if c.Cmd == "stop" {
					return nil
				}
			case err := <-ended:
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					return nil
				}
				return blame.Switch(cfg.Name, fmt.Errorf("read command: %w", err))
			case <-gctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

func open(cfg Config, behind Behind) (*Switch, net.Listener, error) {
	if cables := len(cfg.Ports) > 0 && cfg.Ports[0].Inner != ""; cables != (behind != nil) {
		return nil, nil, blame.Switch(cfg.Name, fmt.Errorf("ports lead to another switch: %t; there is one: %t", cables, behind != nil))
	}
	s, err := New(cfg)
	if err != nil || behind != nil {
		return s, nil, err
	}
	network, addr := "tcp", cfg.Listen
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	lis, err := net.Listen(network, addr)
	if err != nil {
		return nil, nil, errors.Join(blame.Switch(cfg.Name, fmt.Errorf("listen for P4Runtime: %w", err)), s.Close())
	}
	return s, lis, nil
}

// address is what a client dials, in the form of Config.Listen.
func address(lis net.Listener) string {
	if a := lis.Addr(); a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return lis.Addr().String()
}

func (s *Switch) execute(c Command, behind Behind) Reply {
	switch c.Cmd {
	case "impair":
		if err := s.SetImpair(c.Port, c.Dir, c.Impair); err != nil {
			return Reply{Error: "impair: " + err.Error()}
		}
		return Reply{OK: true}
	case "health":
		h := s.Health()
		if behind != nil {
			p := behind.Health(s.handed())
			h.Plane = &p
		}
		return Reply{OK: true, Health: &h}
	case "stalls":
		return Reply{OK: true, Stalls: s.Stalls()}
	case "sabotage":
		acted, err := s.sabotage(c.Sabotage)
		if err != nil {
			return Reply{Error: "sabotage: " + err.Error()}
		}
		return Reply{OK: true, Sabotaged: acted}
	case "stop":
		return Reply{OK: true}
	}
	return Reply{Error: fmt.Sprintf("unknown command %q", c.Cmd)}
}
