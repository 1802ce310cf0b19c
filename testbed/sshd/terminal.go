package sshd

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal.
type terminal struct{ master, slave *os.File }

// openTerminal answers pty-req (RFC 4254 section 6.2).
func (r *run) openTerminal(payload []byte) error {
	var p struct {
		Term                         string
		Columns, Rows, Width, Height uint32
		Modes                        string
	}
	if err := ssh.Unmarshal(payload, &p); err != nil {
		return err
	}
	if r.tty != nil || r.started {
		return errors.New("too late for a terminal")
	}
	t, err := newTerminal()
	if err != nil {
		r.server.logf("terminal: %v", err)
		return err
	}
	r.tty = t
	r.env = append(r.env, "TERM="+p.Term)
	return t.resize(p.Rows, p.Columns)
}

func newTerminal() (*terminal, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	n, err := control(master, func(fd int) (int, error) {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return 0, err
		}
		return unix.IoctlGetInt(fd, unix.TIOCGPTN)
	})
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, err
	}
	return &terminal{master: master, slave: slave}, nil
}

// control calls f with the descriptor of a file that stays pollable, so that
// closing it ends a Read.
func control(file *os.File, f func(fd int) (int, error)) (n int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := raw.Control(func(fd uintptr) { n, err = f(int(fd)) }); cerr != nil {
		return 0, cerr
	}
	return n, err
}

func (t *terminal) resize(rows, columns uint32) error {
	_, err := control(t.master, func(fd int) (int, error) {
		return 0, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
	})
	return err
}

// resize answers window-change (RFC 4254 section 6.7).
func (r *run) resize(payload []byte) error {
	var p struct{ Columns, Rows, Width, Height uint32 }
	if err := ssh.Unmarshal(payload, &p); err != nil {
		return err
	}
	if r.tty == nil {
		return errors.New("no terminal")
	}
	return r.tty.resize(p.Rows, p.Columns)
}

func (r *run) closeTerminal() {
	if r.tty != nil {
		r.tty.master.Close()
		r.tty.slave.Close()
	}
}
