package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/mina/controller/allocation"
	"github.com/inabench/inabench/testbed/mina/sharing"
)

// attach has the allocation controller give this rank's job its trees; see
// collective.Group.SetTree for how ranks agree on them.
func (k *trainer) attach(ctx context.Context) (*allocation.Host, error) {
	return allocation.Attach(ctx, k.cfg.Controller, k.cfg.Job, k.cfg.Rank, func(t allocation.Tree, settled func()) error {
		if k.group == nil { // the only rank needs no tree
			settled()
			return nil
		}
		return k.group.SetTree(collective.Tree{Epoch: t.Epoch, Window: t.Window}, settled)
	})
}

// newDecider is what decides about each all-reduce.
func newDecider(cfg Config) (sharing.Decider, error) {
	switch cfg.Sharing {
	case "", "none":
		return sharing.Never(), nil
	case "exclusive":
		return sharing.Always(), nil
	case "greedy":
		return sharing.Greedy(), nil
	case "shared":
		return join(cfg)
	}
	return nil, fmt.Errorf("%w: sharing %q, want none, exclusive, greedy or shared", ErrConfig, cfg.Sharing)
}

// member is a host of a sharing group with its log.
type member struct {
	*sharing.Host
	cfg sharing.HostConfig
	log io.Closer // nil: none
}

// held writes down that the job has the switches, or is about to give them back. The
// first all-reduce of the group is no operation of the job.
func (m *member) held(index int64, held bool) {
	e := sharing.Entry{What: sharing.Freed, Job: m.cfg.Job, Rank: m.cfg.Rank, Run: m.cfg.Run, Index: uint64(index) - 1}
	if held {
		e.What = sharing.Held
	}
	m.cfg.Log.Write(e)
}

func (m *member) Close() error {
	err := m.Host.Close()
	if m.log != nil {
		err = errors.Join(err, m.log.Close())
		m.log = nil
	}
	return err
}

// join makes this rank one of its job's sharing group.
func join(cfg Config) (sharing.Decider, error) {
	here, err := towards(cfg.SharingController)
	if err != nil {
		return nil, fmt.Errorf("%w: sharing controller: %w", ErrConfig, err)
	}
	c := sharing.HostConfig{
		Controller: cfg.SharingController, Listen: net.JoinHostPort(here, "0"),
		Job: uint32(cfg.Job), Rank: uint32(cfg.Rank), Hosts: cfg.Workers,
		Run: cmp.Or(cfg.Run, uint64(cfg.Epoch)), Steps: uint64(max(cfg.Steps, 0)),
	}
	m := &member{}
	if cfg.SharingLog != "" {
		f, err := os.OpenFile(cfg.SharingLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, fmt.Errorf("log of sharing: %w", err)
		}
		m.log, c.Log = f, sharing.NewLog(f)
	}
	m.cfg = c
	if m.Host, err = sharing.Join(c); err != nil {
		if m.log != nil {
			m.log.Close()
		}
		return nil, err
	}
	return m, nil
}

// towards is this host's address on the way to another. Nothing is sent.
func towards(addr string) (string, error) {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}
