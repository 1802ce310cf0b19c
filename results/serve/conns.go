package serve

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of one connection. A request is small, and comes at once; an answer may take long if whoever
// reads it goes on reading.
const (
	requestTime = 15 * time.Second
	stallTime   = 20 * time.Second // without a part of an answer being read
	idleTime    = 2 * time.Minute
	answerPart  = 64 << 10
)

// steady has an answer go on for as long as it is being read, and no longer.
type steady struct {
	http.ResponseWriter
	out   *http.ResponseController
	stall time.Duration
}

func (s steady) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s steady) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		_ = s.out.SetWriteDeadline(time.Now().Add(s.stall))
		var k int
		k, err = s.ResponseWriter.Write(p[:min(answerPart, len(p))])
		n, p = n+k, p[k:]
	}
	return n, err
}

// patient gives each answer the time that it is read in.
func (s *Server) patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(steady{w, http.NewResponseController(w), s.stallTime}, r)
	})
}

// maxConns is how many connections there are. Those that come find the place of the one that has
// been doing nothing for longest, so that nobody keeps others out by holding many.
const maxConns = 512

// conns are the connections that there are.
type conns struct {
	mu sync.Mutex
	of map[net.Conn]connState
}

type connState struct {
	state http.ConnState
	since time.Time
}

// note is for [http.Server.ConnState].
func (c *conns) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(c.of, conn)
		return
	case http.StateNew:
		if len(c.of) >= maxConns {
			if old := c.oldest(); old != nil {
				old.Close() // which is noted then
				delete(c.of, old)
			}
		}
	default:
		if _, is := c.of[conn]; !is {
			return // closed, and about to notice
		}
	}
	if c.of == nil {
		c.of = map[net.Conn]connState{}
	}
	c.of[conn] = connState{state, time.Now()}
}

// oldest is a connection that can best be done without: one that is idle, or has not asked yet, or else
// the one that has been asking or answered for longest.
func (c *conns) oldest() (oldest net.Conn) {
	var is connState
	for conn, s := range c.of {
		busy, than := s.state == http.StateActive, is.state == http.StateActive
		if oldest == nil || than && !busy || than == busy && s.since.Before(is.since) {
			oldest, is = conn, s
		}
	}
	return oldest
}
