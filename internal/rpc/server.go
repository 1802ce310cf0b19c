// Package rpc has what gRPC servers here have in common, and what clients of the servers of others have.
package rpc

import (
	"net"
	"slices"
	"sync"
	"syscall"

	"google.golang.org/grpc"
)

// Server is a gRPC server whose Stop does not wait for its clients. That of gRPC waits two
// minutes for a connection that has not said a word yet; so does GracefulStop, until Stop is
// called beside it.
type Server struct {
	*grpc.Server

	mu    sync.Mutex
	conns []net.Conn // open ones, and perhaps some that have been closed
	over  bool
}

// NewServer makes a server that nothing is registered at.
func NewServer(opts ...grpc.ServerOption) *Server { return &Server{Server: grpc.NewServer(opts...)} }

// Serve serves until Stop, and closes lis. Its error is that of [grpc.Server.Serve].
func (s *Server) Serve(lis net.Listener) error { return s.Server.Serve(&listener{lis, s}) }

// Stop breaks all connections, and waits until nothing is served any more.
func (s *Server) Stop() {
	s.mu.Lock()
	s.over = true
	for _, c := range s.conns {
		_ = c.Close() // whoever has it closes it again
	}
	s.conns = nil
	s.mu.Unlock()
	s.Server.Stop()
}

// listener notes connections. It hands on the connections themselves, and nothing around them:
// there is more that gRPC does for those whose type it knows.
type listener struct {
	net.Listener
	s *Server
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		_ = c.Close()
		return c, nil
	}
	s.conns = append(slices.DeleteFunc(s.conns, closed), c)
	return c, nil
}

// closed says whether a connection has been closed on this side.
func closed(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}
