package reach

import (
	"context"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
)

// login is the launcher "ssh".
type login struct {
	o      Options
	dialer ssh.Dialer
}

func byLogin(o Options) Launcher {
	return &login{o: o, dialer: ssh.Dialer{Limit: o.Fan, Warn: o.Warn}}
}

func (l *login) Dial(ctx context.Context, w Way) (hosts.Host, error) {
	c, err := l.dialer.Dial(ctx, w.target(l.o))
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (l *login) Check(ways []Way) error {
	targets := make([]ssh.Target, len(ways))
	for i, w := range ways {
		targets[i] = w.target(l.o)
	}
	return l.dialer.Check(targets)
}

// target is how to log in. What the inventory leaves open the user's ssh_config may say.
func (w Way) target(o Options) ssh.Target {
	t := Target(w)
	t.Timeout = o.Timeout
	if o.Patience > 0 { // asked at the beginning of an interval, it may be silent for three more
		t.KeepAlive, t.KeepAliveMax = o.Patience/4, 3
	}
	return t
}

// Target is how to log in at the end of a way, as the inventory says.
func Target(w Way) ssh.Target {
	s := w.SSH
	t := ssh.Target{Name: w.Name, Address: s.Address, User: s.User, Config: s.Config, Sudo: s.Sudo, Direct: s.Jump == "none"}
	if s.Key != "" {
		t.Keys = []string{s.Key}
	}
	if s.Certificate != "" {
		t.Certificates = []string{s.Certificate}
	}
	if s.KnownHosts != "" {
		t.KnownHosts = []string{s.KnownHosts}
	}
	for _, hop := range s.Jumps() {
		var jump ssh.Target
		if via, ok := w.inv.Host(hop); ok {
			jump = Target(To(w.inv, *via))
		} else {
			var err error
			if jump, err = ssh.ParseJump(hop); err != nil {
				jump = ssh.Target{Name: hop, Address: hop} // which cannot be dialled, and is said then
			}
			jump.Keys, jump.Certificates, jump.KnownHosts, jump.Config = t.Keys, t.Certificates, t.KnownHosts, t.Config
		}
		if t.Jump != nil {
			jump.Jump, jump.Direct = t.Jump, false
		}
		t.Jump = &jump
	}
	return t
}
