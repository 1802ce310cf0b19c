package ssh_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/ssh"
)

// Of the SSH File Transfer Protocol, version 3 (draft-ietf-secsh-filexfer-02).
const (
	fxpInit, fxpVersion, fxpOpen, fxpRead, fxpLstat, fxpFstat, fxpStat = 1, 2, 3, 5, 7, 8, 17
	fxpStatus, fxpHandle, fxpData, fxpAttrs                            = 101, 102, 103, 105
)

// dribbling is a server of files that says something all the time and never comes to an end.
type dribbling struct {
	part  int           // bytes of the answer to each read
	pause time.Duration // before it
	slice bool          // attributes come byte by byte, with the pause between
}

// serve answers requests, until the client goes.
func (d dribbling) serve(ch io.ReadWriter) {
	for {
		var head [5]byte
		if _, err := io.ReadFull(ch, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])-1)
		if _, err := io.ReadFull(ch, body); err != nil {
			return
		}
		kind, answer := byte(fxpStatus), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		switch head[4] {
		case fxpInit:
			kind, answer = fxpVersion, []byte{0, 0, 0, 3}
		case fxpOpen:
			kind, answer = fxpHandle, []byte{0, 0, 0, 1, 'h'}
		case fxpLstat, fxpStat, fxpFstat: // flags: permissions
			kind, answer = fxpAttrs, []byte{0, 0, 0, 4, 0, 0, 0o100644 >> 8, 0o100644 & 0xff}
		case fxpRead:
			time.Sleep(d.pause)
			kind, answer = fxpData, append(binary.BigEndian.AppendUint32(nil, uint32(d.part)), make([]byte, d.part)...)
		}
		if head[4] != fxpInit {
			answer = append(body[:4:4], answer...) // the request's number
		}
		packet := append(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer)+1)), kind), answer...)
		if !d.slice || kind != fxpAttrs {
			if _, err := ch.Write(packet); err != nil {
				return
			}
			continue
		}
		for i := range packet {
			time.Sleep(d.pause)
			if _, err := ch.Write(packet[i : i+1]); err != nil {
				return
			}
		}
	}
}

// dial connects to the server.
func (d dribbling) dial(t *testing.T) *ssh.Client {
	t.Helper()
	return dialTo(t, func(c xssh.NewChannel) {
		ch, requests, err := c.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range requests {
				_ = r.Reply(r.Type == "subsystem", nil)
				if r.Type == "subsystem" {
					go d.serve(ch)
				}
			}
		}()
	}, 50*time.Millisecond, 2)
}

// TestDribbling: a server of files that keeps saying something, and gives nothing or next to nothing, holds nobody for longer
// than what it is asked for may take.
func TestDribbling(t *testing.T) {
	t.Parallel() // it waits
	hostname := func(c *ssh.Client) error {
		return c.ReadFilesOf(context.Background(), bounded.Small, "/proc/sys/kernel/hostname")[0].Err
	}
	for what, tt := range map[string]struct {
		dribbling
		ask  func(*ssh.Client) error
		want error
	}{
		"reads of nothing": {dribbling{}, func(c *ssh.Client) error {
			_, err := c.ReadFile(context.Background(), "/etc/sharp_am.cfg")
			return err
		}, io.ErrNoProgress},
		"a byte for each read": {dribbling{part: 1, pause: 100 * time.Millisecond}, hostname, nil},
		"a byte of an answer": {dribbling{pause: 100 * time.Millisecond, slice: true}, func(c *ssh.Client) error {
			_, _, err := c.ReadSmall(context.Background(), "/lease")
			return err
		}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := tt.dial(t)
			ended := make(chan error, 1)
			go func() { ended <- tt.ask(c) }()
			select {
			case err := <-ended:
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%v, want %v", err, tt.want)
				}
			case <-time.After(20 * time.Second):
				c.Close()
				t.Errorf("it still waits; then: %v", <-ended)
			}
		})
	}
}
