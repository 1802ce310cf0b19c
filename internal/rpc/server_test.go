package rpc

import (
	"io"
	"net"
	"testing"
	"time"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lis.Close() })
	return lis
}

func dial(t *testing.T, lis net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// gRPC gives a connection two minutes to say its first word, and waits for that.
func TestStop(t *testing.T) {
	for name, stop := range map[string]func(*Server){
		"at once": (*Server).Stop,
		"after grace": func(s *Server) {
			graceful := make(chan struct{})
			go func() {
				s.GracefulStop()
				close(graceful)
			}()
			s.Stop()
			<-graceful
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, lis := NewServer(), listen(t)
			served := make(chan error, 1)
			go func() { served <- s.Serve(lis) }()
			silent := dial(t, lis)
			if _, err := io.ReadFull(silent, make([]byte, 9)); err != nil { // the server speaks first: it waits for us now
				t.Fatal(err)
			}
			stopped := make(chan struct{})
			go func() {
				stop(s)
				close(stopped)
			}()
			select {
			case <-stopped:
			case <-time.After(30 * time.Second):
				t.Fatal("it waits for a silent connection")
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			s.Stop() // once more
		})
	}
}

// What is not open any more is not kept, and what comes after Stop is not open.
func TestAccept(t *testing.T) {
	s, lis := NewServer(), listen(t)
	l := &listener{lis, s}
	accept := func() net.Conn {
		t.Helper()
		dial(t, lis)
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := c.(*net.TCPConn); !ok {
			t.Errorf("gRPC sees a %T", c)
		}
		return c
	}
	first := accept()
	second := accept()
	if closed(first) || len(s.conns) != 2 {
		t.Errorf("%d of 2 connections are open", len(s.conns))
	}
	first.Close()
	third := accept()
	if len(s.conns) != 2 || s.conns[0] != second || s.conns[1] != third {
		t.Errorf("%d connections are kept", len(s.conns))
	}
	s.Stop()
	for i, c := range []net.Conn{second, third, accept()} {
		if !closed(c) {
			t.Errorf("connection %d is open after Stop", i)
		}
	}
}
