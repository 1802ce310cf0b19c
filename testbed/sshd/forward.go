package sshd

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// forward serves one direct-tcpip channel (RFC 4254 section 7.2): a connection
// from here to a place that the client names, which makes this a jump host.
func (s *Server) forward(ctx context.Context, newCh ssh.NewChannel) {
	var p struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(newCh.ExtraData(), &p); err != nil {
		newCh.Reject(ssh.ConnectionFailed, "malformed request")
		return
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(p.Host, strconv.FormatUint(uint64(p.Port), 10)))
	if err != nil {
		newCh.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer conn.Close()
	ch, reqs, err := newCh.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	defer context.AfterFunc(ctx, func() { conn.Close(); ch.Close() })()
	var wg sync.WaitGroup
	wg.Go(func() { // ends with the channel
		ssh.DiscardRequests(reqs)
		conn.Close()
	})
	wg.Go(func() {
		io.Copy(conn, ch)
		conn.(*net.TCPConn).CloseWrite()
	})
	io.Copy(ch, conn)
	ch.CloseWrite()
	ch.Close()
	wg.Wait()
}
