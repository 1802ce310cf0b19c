// Package serve shows a store of runs in a browser, while runs go on: a list of all of them,
// each run's report and files, and the history of each metric.
//
// It only reads. What it knows of runs is from their index (package history), which it brings up
// to date itself, and from their directories; pages hear of what is new by server-sent events.
// Pages need scripts to be sorted, filtered and kept up to date, and are complete without.
//
// # Who may read
//
// Whoever can connect, where only this machine can: then requests must name this machine in their
// Host header, so that no page of others can have a browser read runs for it by a name of its own
// that is this machine's address (DNS rebinding). Elsewhere, only who has the token: in the address
// that is opened first (?token=), which is exchanged for a cookie, or as a bearer token. Without
// Options.Certificate nothing is encrypted: across networks that others can listen to, use one, or a
// tunnel (ssh -L).
//
// # What others cost
//
// Whoever can connect can take time and memory, within bounds: pages are made once for
// all who ask for them, one of a kind at a time; requests must come within seconds, and answers be read; of too
// many connections the one that does least is closed.
package serve

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/inabench/inabench/results/history"
)

// Options are what a Server is asked for.
type Options struct {
	// Token is what requests must have, at least 16 characters; empty: none, which is for
	// addresses of this machine alone.
	Token string
	// Certificate is what the server shows who it is with; nil: it answers without TLS.
	Certificate *tls.Certificate
	// Nights are the nights of suites, the newest first; nil: there are none.
	Nights func() ([]Night, error)
	// Interval is how often the store is looked at while pages are open; 0: every second.
	Interval time.Duration
}

// ErrToken is wrapped when an address that others can connect to is to be served without a token,
// or with one that is too short.
var ErrToken = errors.New("a token is needed")

// shortest is how long a token is at least.
const shortest = 16

// NewToken is a random token of 130 bits.
func NewToken() string { return rand.Text() }

// Server shows the runs of one directory.
type Server struct {
	root     string
	index    *history.Index
	opt      Options
	streams  chan struct{} // a place for each that is open
	handler  http.Handler
	stopping context.Context
	stop     context.CancelFunc
	// Each of these keeps no other waiting.
	pages     rendered // the list, and runs
	histories rendered
	reports   rendered // one may take seconds
	conns     conns

	requestTime, stallTime time.Duration // of each connection

	mu    sync.Mutex
	store store
}

// maxStreams is how many pages may be open and kept up to date.
const maxStreams = 100

// New is a server of the runs in root, of which index is the index. The index is not closed.
func New(root string, index *history.Index, o Options) (*Server, error) {
	if o.Token != "" && len(o.Token) < shortest {
		return nil, fmt.Errorf("%w of at least %d characters, not %d", ErrToken, shortest, len(o.Token))
	}
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	s := &Server{root: root, index: index, opt: o, streams: make(chan struct{}, maxStreams), requestTime: requestTime, stallTime: stallTime}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.store.init()
	s.reports.init(mostReports)
	s.pages.init(mostPages)
	s.histories.init(mostPages)
	s.handler = s.patient(s.guard(s.routes()))
	return s, nil
}

// Local says whether only this machine can connect to an address.
func Local(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// ServeHTTP implements http.Handler, for whoever has a listener of their own.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers requests until ctx is done, and then ends within seconds, pages that are kept up
// to date included: that is no error. The listener is closed. The error wraps ErrToken where
// others can connect and no token is asked for.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer l.Close()
	if s.opt.Token == "" && !Local(l.Addr()) {
		return fmt.Errorf("serve %s: %w, since others can connect", l.Addr(), ErrToken)
	}
	server := &http.Server{
		Handler: s, ReadTimeout: s.requestTime, WriteTimeout: s.stallTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10,
		ConnState: s.conns.note, ErrorLog: log.New(io.Discard, "", 0), // of what clients do wrong
	}
	if s.opt.Certificate != nil {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*s.opt.Certificate}, NextProtos: []string{"http/1.1"}})
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.stop() // streams end by themselves
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil { // a download that nobody reads
		server.Close()
	}
	<-ended
	return nil
}
