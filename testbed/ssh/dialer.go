package ssh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/inabench/inabench/testbed/hosts"
)

// Dialer makes connections that share what they have in common: what the user's files
// say, which is read once, and the connections to jump hosts. A jump host sees one
// login, however many hosts are behind it: an sshd drops logins when some ten are
// being made at once (MaxStartups). The zero value is ready; one is meant for one
// fan-out, for it also remembers which jump host could not be reached.
type Dialer struct {
	// Warn is told, once each, which lines of the user's ssh_config are not followed;
	// nil: nobody is.
	Warn func(string)
	// Limit is how many logins are made at a time; 0: as many as there are calls. A host
	// that does not answer its first packet, because it is off, holds nobody up.
	Limit int

	slotsMu sync.Mutex
	slots   chan struct{} // of Limit; nil: not made yet

	filesMu sync.Mutex // held while files are read
	configs configFiles
	known   map[string]*knownhosts.HostKeyDB
	warned  map[string]bool

	gatesMu sync.Mutex
	gates   map[string]*gate
}

// gate is a connection to a jump host and those who go through it.
type gate struct {
	dialer *Dialer
	users  int           // under gatesMu
	ready  chan struct{} // closed when one of these is set
	client *Client
	err    error
}

// Check says, without connecting, what of ssh_config keeps targets from being reached,
// each time as an *hosts.Error, and tells Warn of what is not followed.
func (d *Dialer) Check(targets []Target) error {
	var errs []error
	for _, t := range targets {
		if _, _, err := d.resolve(t); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// resolve fills in what a target leaves open, and says what of ssh_config is not followed.
func (d *Dialer) resolve(t Target) (resolved Target, notes []string, err error) {
	d.filesMu.Lock()
	defer d.filesMu.Unlock()
	resolved, err = d.configs.resolve(t, maxJumps, &notes)
	notes = append(slices.Clone(d.configs.warn), notes...)
	for _, n := range notes {
		if d.Warn == nil || d.warned[n] {
			continue
		}
		if d.warned == nil {
			d.warned = map[string]bool{}
		}
		d.warned[n] = true
		d.Warn(n)
	}
	if err != nil {
		err = &hosts.Error{Host: t.String(), Address: t.Address, Kind: ErrConfig, Err: err, Hint: "the words of ssh_config are described in ssh_config(5)"}
	}
	return resolved, notes, err
}

// Dial is the Dial of a Dialer that is used once.
func Dial(ctx context.Context, t Target) (*Client, error) { return new(Dialer).Dial(ctx, t) }

// Dial connects to a host and logs in. ctx bounds the dialling, not the connection.
// Errors are *hosts.Error, also those of jump hosts, which are wrapped.
func (d *Dialer) Dial(ctx context.Context, t Target) (*Client, error) {
	resolved, notes, err := d.resolve(t)
	if err != nil {
		return nil, err
	}
	if t.Name == "" {
		resolved.Name = t.Address
	}
	if d.Warn != nil {
		notes = nil // they have been said
	}
	return d.dial(ctx, resolved, notes)
}

// knownHosts reads known_hosts files, each set of them once.
func (d *Dialer) knownHosts(files []string) (*knownhosts.HostKeyDB, error) {
	d.filesMu.Lock()
	defer d.filesMu.Unlock()
	key := strings.Join(files, "\x00")
	if db, ok := d.known[key]; ok {
		return db, nil
	}
	db, err := readKnownHosts(files)
	if err != nil {
		return nil, err
	}
	if d.known == nil {
		d.known = map[string]*knownhosts.HostKeyDB{}
	}
	d.known[key] = db
	return db, nil
}

// dial connects to a host about which everything has been said. Notes go with hints.
func (d *Dialer) dial(ctx context.Context, t Target, notes []string) (*Client, error) {
	fail := func(kind, cause error, hint string) error {
		hints := slices.DeleteFunc(append([]string{hint}, notes...), func(s string) bool { return s == "" })
		return &hosts.Error{Host: t.String(), Address: t.Address, Kind: kind, Err: cause, Hint: strings.Join(hints, "; ")}
	}
	db, err := d.knownHosts(t.KnownHosts)
	if err != nil {
		return nil, fail(ErrHostKey, err, "known_hosts files are described in sshd(8)")
	}
	revoked, err := readRevoked(t.revoked)
	if err != nil {
		return nil, fail(ErrHostKey, err, "RevokedHostKeys is a file of public keys, one in a line; while it cannot be read, no host is who it says")
	}
	creds, err := load(t)
	if err != nil {
		return nil, fail(noKey{}, err, "make one with ssh-keygen, name it in the inventory, or start an SSH agent")
	}
	defer creds.close()

	for again := false; ; again = true {
		c := &Client{target: t, done: make(chan struct{})}
		if t.Jump != nil {
			if c.gate, err = d.enter(ctx, *t.Jump, notes); err != nil {
				return nil, c.errorf("jump: %w", err)
			}
		}
		if err = c.login(ctx, d, newHostKeys(t, db, revoked), creds, fail); err == nil {
			c.wg.Go(c.watch)
			c.wg.Go(c.keepAlive)
			return c, nil
		}
		// A jump host's connection that others have made may have been about to end.
		ended := !again && errors.Is(err, hosts.ErrUnreachable) && !errors.Is(err, context.DeadlineExceeded) && c.gate.ends()
		c.leaveGate()
		if !ended || ctx.Err() != nil {
			return nil, err
		}
	}
}

// login connects and authenticates. A server that drops the connection without a word
// of SSH is busy with the logins of others, and is asked again for as long as one
// handshake may take.
func (c *Client) login(ctx context.Context, d *Dialer, known *hostKeys, creds *credentials, fail func(kind, cause error, hint string) error) error {
	t := c.target
	var giveUp time.Time // asking again
	for attempt := 1; ; attempt++ {
		raw, err := c.dialTCP(ctx)
		if err != nil {
			return fail(hosts.ErrUnreachable, err, "is it on, is its SSH server running, is the address right?")
		}
		heard, late := &preface{Conn: raw}, false
		err = d.limited(ctx, func() error {
			if giveUp.IsZero() {
				giveUp = time.Now().Add(t.Timeout)
			}
			// Neither the library nor a channel through a jump host knows deadlines for the
			// handshake: closing the connection under it is what ends it.
			ctx, cancel := context.WithTimeoutCause(ctx, t.Timeout, fmt.Errorf("no answer within %v: %w", t.Timeout, context.DeadlineExceeded))
			defer cancel()
			err := c.handshake(ctx, heard, known, creds)
			if late = err != nil && ctx.Err() != nil; late {
				err = context.Cause(ctx)
			}
			return err
		})
		if err == nil {
			return nil
		}
		heard.Close()
		switch {
		case known.refused != nil:
			return fail(ErrHostKey, known.refused, known.hint)
		case late:
		case heard.busy():
			if err = pause(ctx, backoff(attempt), giveUp); err == nil {
				continue
			}
			return fail(hosts.ErrUnreachable, fmt.Errorf("it dropped %s before the SSH handshake%s: %w", countLogins(attempt), heard.words(), err),
				"has it too many logins at once? Work on fewer hosts at a time, or raise MaxStartups in its sshd_config. Or does it refuse this machine (hosts.deny, fail2ban, a firewall)?")
		case known.verified && denied(err):
			return fail(ErrAuth, refusal(t, creds), authHint(creds))
		}
		return fail(hosts.ErrUnreachable, fmt.Errorf("connected, then in the SSH handshake%s: %w", heard.words(), err), "")
	}
}

// limited calls f when one more login may be made.
func (d *Dialer) limited(ctx context.Context, f func() error) error {
	if d.Limit > 0 {
		d.slotsMu.Lock()
		if d.slots == nil {
			d.slots = make(chan struct{}, d.Limit)
		}
		slots := d.slots
		d.slotsMu.Unlock()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return f()
}

// pause waits, unless that is longer than until a moment.
func pause(ctx context.Context, d time.Duration, until time.Time) error {
	if time.Now().Add(d).After(until) {
		return context.DeadlineExceeded
	}
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func countLogins(n int) string {
	if n == 1 {
		return "a login"
	}
	return fmt.Sprintf("%d logins", n)
}

// backoff is how long to wait before the next attempt: longer each time up to some
// 2 s, and never as long as others wait who were dropped in the same moment.
func backoff(attempt int) time.Duration {
	d := 50 * time.Millisecond << min(attempt, 5)
	return d/2 + rand.N(d)
}

// handshake makes an SSH connection of a TCP one.
func (c *Client) handshake(ctx context.Context, raw net.Conn, known *hostKeys, creds *credentials) error {
	stop := context.AfterFunc(ctx, func() {
		raw.Close()
		creds.close() // an SSH agent may wait for its user to consent to a signature
	})
	conn, chans, reqs, err := ssh.NewClientConn(raw, c.target.Address, &ssh.ClientConfig{
		User:              c.target.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(creds.signers...)},
		HostKeyCallback:   known.check,
		HostKeyAlgorithms: known.algorithms,
		ClientVersion:     "SSH-2.0-inabench",
	})
	if !stop() && err == nil { // too late by a hair
		conn.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	c.raw, c.conn = raw, ssh.NewClient(conn, chans, reqs)
	return nil
}

// preface is a connection of which the beginning of what the other side says is kept.
type preface struct {
	net.Conn
	mu   sync.Mutex
	said []byte
	over bool // it has closed the connection
}

const prefaceBytes = 255 // of a line before the version, RFC 4253 section 4.2

func (p *preface) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if room := prefaceBytes - len(p.said); room > 0 {
		p.said = append(p.said, b[:min(n, room)]...)
	}
	p.over = p.over || err != nil
	return n, err
}

// busy tells whether the server has hung up, without a greeting or with the line by
// which OpenSSH says that it has too many logins.
func (p *preface) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := string(p.said)
	return p.over && (s == "" || strings.HasPrefix(s, "Exceeded MaxStartups") || strings.HasPrefix(s, "Not allowed at this time"))
}

// words is what was said instead of SSH, for a message.
func (p *preface) words() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	line, _, _ := strings.Cut(string(p.said), "\n")
	if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "SSH-") {
		return ""
	}
	return fmt.Sprintf(" (it said %q)", line)
}

// key tells targets apart that cannot share a connection.
func (t *Target) key() string {
	if t == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q %q %q %q %q %v %p %q %q %v %v", t.User, t.Address, t.Keys, t.Certificates, t.Agent, t.KnownHosts, t.IdentitiesOnly, t.Signers, t.hostKeyAlias, t.revoked, t.sha1HostKeys, t.sha1Keys)
	return b.String() + " via " + t.Jump.key()
}

// enter connects to a jump host, or joins those who have.
func (d *Dialer) enter(ctx context.Context, t Target, notes []string) (*gate, error) {
	key := t.key()
	for {
		d.gatesMu.Lock()
		g := d.gates[key]
		first := g == nil || g.client != nil && g.client.Err() != nil
		if first {
			g = &gate{dialer: d, ready: make(chan struct{})}
			if d.gates == nil {
				d.gates = map[string]*gate{}
			}
			d.gates[key] = g
		}
		g.users++
		d.gatesMu.Unlock()

		if first {
			client, err := d.dial(ctx, t, notes)
			d.gatesMu.Lock()
			g.client, g.err = client, err
			if err != nil && ctx.Err() == context.Canceled && d.gates[key] == g {
				delete(d.gates, key) // no word about the host; that its time is over is one
			}
			d.gatesMu.Unlock()
			close(g.ready)
		}
		select {
		case <-g.ready:
		case <-ctx.Done():
			g.leave()
			return nil, context.Cause(ctx)
		}
		if g.err == nil {
			return g, nil
		}
		g.leave()
		d.gatesMu.Lock()
		again := d.gates[key] != g
		d.gatesMu.Unlock()
		if !again || ctx.Err() != nil {
			return nil, g.err
		}
	}
}

// ends tells whether the connection is ending: those behind it may have heard of that a
// moment before.
func (g *gate) ends() bool {
	if g == nil {
		return false
	}
	select {
	case <-g.client.done:
		return true
	case <-time.After(100 * time.Millisecond):
		return false
	}
}

// leave closes the connection when nobody is left who goes through it.
func (g *gate) leave() {
	d := g.dialer
	d.gatesMu.Lock()
	g.users--
	last := g.users == 0 && g.client != nil
	if last {
		for key, other := range d.gates {
			if other == g {
				delete(d.gates, key)
			}
		}
	}
	d.gatesMu.Unlock()
	if last {
		g.client.Close()
	}
}
