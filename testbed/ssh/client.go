package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/hosts"
)

// Client is a connection to a host. Its methods are safe for concurrent use.
type Client struct {
	target Target
	conn   *ssh.Client
	raw    net.Conn
	gate   *gate // to the jump host; nil: none

	done chan struct{} // closed when the connection is gone

	mu     sync.Mutex
	err    error // why it is gone
	closed bool  // no new goroutines

	opening sync.Mutex              // of files
	files   atomic.Pointer[session] // nil: not open
	// greeting is the session that is being opened, whose server may never say a word.
	greeting atomic.Pointer[ssh.Session]

	wg   sync.WaitGroup
	once sync.Once // leaves the gate
}

// dialTCP connects to the target, through its jump host if it has one.
func (c *Client) dialTCP(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.target.Timeout)
	defer cancel()
	if c.gate != nil {
		return c.gate.client.DialContext(ctx, "tcp", c.target.Address)
	}
	if c.target.Net != nil {
		return c.target.Net(ctx)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", c.target.Address)
}

// denied reports whether a handshake ended because the server turned the user
// down. The library has no types for the two forms it takes: all keys refused,
// or a disconnect (RFC 4253 section 11.1, reasons 2 and 14) after too many.
func denied(err error) bool {
	s := err.Error()
	return strings.Contains(s, "unable to authenticate") ||
		strings.Contains(s, "disconnect, reason 2:") || strings.Contains(s, "disconnect, reason 14:")
}

// refusal says who tried to log in with what.
func refusal(t Target, c *credentials) error {
	keys := make([]string, len(c.signers))
	for i, s := range c.signers {
		keys[i] = ssh.FingerprintSHA256(s.PublicKey())
		if key, err := ssh.ParsePublicKey(s.PublicKey().Marshal()); err == nil {
			if cert, ok := key.(*ssh.Certificate); ok {
				keys[i] = fmt.Sprintf("the certificate %q for %s", cert.KeyId, cmp.Or(strings.Join(cert.ValidPrincipals, ", "), "anybody"))
			}
		}
	}
	msg := fmt.Sprintf("user %s with %s", t.User, strings.Join(keys, ", "))
	if len(c.skipped) > 0 {
		msg += "; not tried: " + strings.Join(c.skipped, ", ")
	}
	return errors.New(msg)
}

// maxAuthTries is how many keys an sshd takes by default before it hangs up.
const maxAuthTries = 6

// authHint is what to do about a refusal.
func authHint(c *credentials) string {
	hint := "add one of the keys to ~/.ssh/authorized_keys there"
	if len(c.signers) >= maxAuthTries {
		hint += fmt.Sprintf("; if the right one is among them, name it (key = ... in the inventory, or IdentityFile and IdentitiesOnly in ssh_config): servers hang up after %d keys (MaxAuthTries)", maxAuthTries)
	}
	return hint
}

// watch records when and why the connection ended.
func (c *Client) watch() {
	err := c.conn.Wait()
	c.mu.Lock()
	known := c.err != nil
	c.mu.Unlock()
	if !known && c.gate.ends() {
		err = fmt.Errorf("jump: %w", c.gate.client.Err())
	}
	c.setErr(err)
	close(c.done)
}

// setErr keeps the first reason for the end.
func (c *Client) setErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// keepAlive asks the server for a sign of life, and ends the connection when none
// comes: TCP by itself notices a dead host after many minutes, or never.
//
// Silence is counted in quarters of a span that this program lived through, not read off a
// clock: one that was stopped goes on with the answers that have been waiting meanwhile.
func (c *Client) keepAlive() {
	tick := time.NewTicker(max(c.target.KeepAlive/4, 1))
	defer tick.Stop()
	answers := make(chan error, 1)
	asked, quarters := false, 0
	for {
		select {
		case <-c.done:
			return
		case err := <-answers:
			if err != nil {
				return
			}
			asked, quarters = false, 0
		case <-tick.C:
			quarters++
			switch {
			case !asked && quarters >= 4:
				asked, quarters = true, 0
				c.wg.Go(func() {
					// The answer is a failure by convention; only its arrival counts.
					_, _, err := c.conn.SendRequest("keepalive@openssh.com", true, nil)
					answers <- err
				})
			case asked && quarters >= 4*c.target.KeepAliveMax:
				c.giveUp(fmt.Errorf("no answer to keepalives for %v", c.patience()))
				return
			}
		}
	}
}

// patience is how long a host may say nothing, or take nothing, before it is given up.
func (c *Client) patience() time.Duration {
	return c.target.KeepAlive * time.Duration(c.target.KeepAliveMax)
}

// giveUp ends the connection to a host that does not do what the protocol asks of it: whoever waits for that hears of it
// by the end of the connection, and by nothing else.
func (c *Client) giveUp(err error) {
	c.setErr(err)
	c.raw.Close()
}

// Target is where the client is connected to, with defaults filled in.
func (c *Client) Target() Target { return c.target }

// String is the host's name.
func (c *Client) String() string { return c.target.String() }

// Sudo says whether root is what the user becomes through sudo.
func (c *Client) Sudo() bool { return c.target.Sudo }

// Local is this end of the connection: where, as a rule, the host reaches this machine.
// Behind a jump host it is the jump host that reaches it.
func (c *Client) Local() (netip.Addr, error) {
	if c.gate != nil {
		return c.gate.client.Local()
	}
	local, ok := c.conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, c.errorf("connected from %v, which is no address", c.conn.LocalAddr())
	}
	return local.AddrPort().Addr().Unmap(), nil
}

// Done is closed when the connection is gone, by Close or by itself.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why the connection is gone, as an *hosts.Error with hosts.ErrLost, and nil while it
// is there.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.lost()
	default:
		return nil
	}
}

func (c *Client) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &hosts.Error{Host: c.String(), Address: c.target.Address, Kind: hosts.ErrLost, Err: c.err}
}

// failed turns an error of the library into one that names the host, and says
// that the connection was lost when that is the reason.
func (c *Client) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	if !c.alive() {
		return c.lost()
	}
	return c.errorf("%s: %w", doing, err)
}

// errorf makes an error that names the host.
func (c *Client) errorf(format string, args ...any) error {
	return blame.Host(c.String(), fmt.Errorf(format, args...))
}

// alive asks the connection itself: when it breaks, sessions hear of it a moment
// before done is closed.
func (c *Client) alive() bool {
	if _, _, err := c.conn.SendRequest("keepalive@openssh.com", true, nil); err != nil {
		c.raw.Close()
		<-c.done
		return false
	}
	return true
}

var errClosed = errors.New("closed here")

// Close ends the connection, and with it every session. Their remote process
// groups are killed by package sshd's server. OpenSSH's leaves them to notice that
// stdin and stdout are gone, so a program that must not stay behind ends when
// its stdin does, as the agent does.
func (c *Client) Close() error {
	c.setErr(errClosed)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	// Not by the library first: it says goodbye, which blocks if the host is stuck.
	c.raw.Close()
	c.conn.Close()
	c.wg.Wait()
	c.leaveGate()
	return nil
}

func (c *Client) leaveGate() {
	if c.gate != nil {
		c.once.Do(c.gate.leave)
	}
}

// DialContext makes a connection from the host to address, such as that of a host
// which is only reachable from there. network is "tcp".
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.conn.DialContext(ctx, network, address)
	if err != nil {
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) {
			return nil, fmt.Errorf("from host %s: %s", c, refused.Message)
		}
		return nil, fmt.Errorf("from host %s: %w", c, err)
	}
	return conn, nil
}

// later runs f after a while, or when the connection ends.
func (c *Client) later(after time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.wg.Go(func() {
		select {
		case <-time.After(after):
		case <-c.done:
		}
		f()
	})
}

// await runs f, which the end of the connection unblocks, and returns early when
// ctx ends. Close waits for an f that is still running then.
func (c *Client) await(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.lost()
	}
	result := make(chan error, 1)
	c.wg.Go(func() { result <- f() })
	c.mu.Unlock()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
