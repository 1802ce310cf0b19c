package sshd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// session serves one session channel: first requests that prepare it, then one
// that starts something, then signals and changes of the window.
func (s *Server) session(ctx context.Context, conn *ssh.ServerConn, newCh ssh.NewChannel) {
	ch, reqs, err := newCh.Accept()
	if err != nil {
		return
	}
	// The channel's context ends when the channel does, or what it is part of.
	ctx, cancel := context.WithCancel(ctx)
	r := &run{server: s, ch: ch, env: s.env(conn)}
	defer r.closeTerminal()
	defer r.wg.Wait()
	defer cancel()
	defer ch.Close()
	for req := range reqs {
		ok := false
		switch req.Type {
		case "env":
			var p struct{ Name, Value string }
			// sshd's default AcceptEnv in distributions.
			if ssh.Unmarshal(req.Payload, &p) == nil && (p.Name == "LANG" || strings.HasPrefix(p.Name, "LC_")) {
				r.env = append(r.env, p.Name+"="+p.Value)
				ok = true
			}
		case "pty-req":
			ok = r.openTerminal(req.Payload) == nil
		case "window-change":
			ok = r.resize(req.Payload) == nil
		case "signal":
			var p struct{ Name string }
			ok = ssh.Unmarshal(req.Payload, &p) == nil && r.signal(p.Name)
		case "exec", "shell", "subsystem":
			ok = !r.started && r.prepare(req.Type, req.Payload) == nil
			if ok {
				r.started = true
				// The answer must be first on the channel.
				if req.WantReply {
					req.Reply(true, nil)
				}
				r.wg.Go(func() { r.serve(ctx) })
				continue
			}
		}
		if req.WantReply {
			req.Reply(ok, nil)
		}
	}
}

// env is the environment that every session begins with.
func (s *Server) env(conn *ssh.ServerConn) []string {
	env := s.Env
	if env == nil {
		env = os.Environ()
	}
	env = append([]string{}, env...)
	if s.Dir != "" {
		env = append(env, "HOME="+s.Dir)
	}
	return append(env, fmt.Sprintf("SSH_CONNECTION=%s %s",
		strings.ReplaceAll(conn.RemoteAddr().String(), ":", " "),
		strings.ReplaceAll(conn.LocalAddr().String(), ":", " ")))
}

// run is what a session channel runs.
type run struct {
	server  *Server
	ch      ssh.Channel
	env     []string
	started bool
	command string // for /bin/sh -c
	shell   bool
	files   bool
	tty     *terminal // nil: none asked for
	wg      sync.WaitGroup

	mu    sync.Mutex
	group int // process group; 0: not running
}

func (r *run) prepare(kind string, payload []byte) error {
	if kind == "shell" {
		r.shell = true
		return nil
	}
	var p struct{ Text string }
	if err := ssh.Unmarshal(payload, &p); err != nil {
		return err
	}
	if kind == "exec" {
		r.command = p.Text
		return nil
	}
	r.files = true
	if p.Text != "sftp" {
		return fmt.Errorf("no subsystem %q", p.Text)
	}
	return nil
}

// serve runs to the end and closes the channel.
func (r *run) serve(ctx context.Context) {
	defer r.ch.Close()
	if r.files {
		r.serveFiles(ctx)
		return
	}
	state, err := r.exec(ctx)
	if err != nil {
		r.server.logf("exec: %v", err)
		fmt.Fprintf(r.ch.Stderr(), "%v\r\n", err)
		r.exitStatus(127)
		return
	}
	r.ch.CloseWrite()
	if sig := state.Signal(); state.Signaled() {
		name := strings.TrimPrefix(unix.SignalName(sig), "SIG")
		r.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal     string
			CoreDumped bool
			Message    string
			Language   string
		}{name, state.CoreDump(), "", ""}))
		return
	}
	r.exitStatus(uint32(state.ExitStatus()))
}

func (r *run) exitStatus(code uint32) {
	r.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
}

// exec runs the command in a session and process group of its own, and returns
// when all of the group is dead.
func (r *run) exec(ctx context.Context) (syscall.WaitStatus, error) {
	command := r.command
	if r.server.Greeting != "" {
		command = r.server.Greeting + "\n" + command
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	if r.shell {
		cmd.Args = []string{"-sh"} // a login shell
	}
	cmd.Env, cmd.Dir = r.env, r.server.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}

	var ours, theirs []*os.File // of the pipes
	closeAll := func(files []*os.File) {
		for _, f := range files {
			f.Close()
		}
	}
	var in *os.File
	var out, diag *os.File
	if r.tty != nil {
		in, out = r.tty.master, r.tty.master
		cmd.Stdin, cmd.Stdout, cmd.Stderr = r.tty.slave, r.tty.slave, r.tty.slave
		cmd.SysProcAttr.Setctty = true
		ours, theirs = []*os.File{r.tty.master}, []*os.File{r.tty.slave}
	} else {
		pipe := func() (rd, wr *os.File, err error) {
			if rd, wr, err = os.Pipe(); err == nil {
				ours, theirs = append(ours, rd), append(theirs, wr)
			}
			return rd, wr, err
		}
		cmdIn, stdin, err1 := os.Pipe()
		stdout, cmdOut, err2 := pipe()
		stderr, cmdErr, err3 := pipe()
		if err := errors.Join(err1, err2, err3); err != nil {
			closeAll(append(append(ours, theirs...), cmdIn, stdin))
			return 0, err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = cmdIn, cmdOut, cmdErr
		ours, theirs = append(ours, stdin), append(theirs, cmdIn)
		in, out, diag = stdin, stdout, stderr
	}
	defer func() { closeAll(ours) }()
	err := cmd.Start()
	closeAll(theirs)
	if err != nil {
		return 0, err
	}
	r.setGroup(cmd.Process.Pid)

	var output sync.WaitGroup
	output.Go(func() { io.Copy(r.ch, out) })
	if diag != nil {
		output.Go(func() { io.Copy(r.ch.Stderr(), diag) })
	}
	r.wg.Go(func() { // ends with the channel
		io.Copy(in, r.ch)
		if r.tty == nil {
			in.Close()
		}
	})
	exited := make(chan struct{})
	output.Go(func() {
		defer close(exited)
		// Seen dead but not yet reaped, the leader keeps the group's number from
		// being given to another.
		for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		r.kill(syscall.SIGKILL)
		r.setGroup(0)
		cmd.Wait()
	})

	drained := make(chan struct{})
	go func() { output.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-ctx.Done():
		r.kill(syscall.SIGTERM)
		grace := time.NewTimer(cmp.Or(r.server.Grace, 500*time.Millisecond))
		select {
		case <-exited:
		case <-grace.C:
			r.kill(syscall.SIGKILL)
			<-exited
		}
		grace.Stop()
		// One that left the group may still hold the pipes; nobody reads them now.
		closeAll(ours)
		<-drained
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus), nil
}

func (r *run) setGroup(pid int) {
	r.mu.Lock()
	r.group = pid
	r.mu.Unlock()
}

// kill signals the whole process group, if there is one.
func (r *run) kill(sig syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.group != 0 && unix.Kill(-r.group, sig) == nil
}

// signal delivers a signal by its name in RFC 4254 section 6.10.
func (r *run) signal(name string) bool {
	sig := unix.SignalNum("SIG" + name)
	return sig != 0 && r.kill(sig)
}

// serveFiles is the sftp subsystem.
func (r *run) serveFiles(ctx context.Context) {
	var opts []sftp.ServerOption
	if r.server.Dir != "" {
		opts = append(opts, sftp.WithServerWorkingDirectory(r.server.Dir))
	}
	server, err := sftp.NewServer(alone{r.ch}, opts...)
	if err != nil {
		r.server.logf("sftp: %v", err)
		return
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(); err != nil && err != io.EOF && ctx.Err() == nil {
		r.server.logf("sftp: %v", err)
	}
	server.Close()
	r.exitStatus(0)
}

// alone is a channel on which nothing is written while this process has a child that has not become another program
// yet: until then that holds all files open that this process did, and nobody can run one of them whose writing, a
// reply says, has ended ("text file busy").
type alone struct{ io.ReadWriteCloser }

func (a alone) Write(b []byte) (int, error) {
	syscall.ForkLock.RLock()
	//lint:ignore SA2001 to wait for it is all
	syscall.ForkLock.RUnlock()
	return a.ReadWriteCloser.Write(b)
}
