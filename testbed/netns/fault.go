package netns

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Faults that a lab has and an emulation has to be given. Cables of the data network are
// damaged with SetLink, and processes by whoever signals them.

// Unplug pulls the management cable of a host or switch, or plugs it in again. What is
// connected over it hears nothing, as of a cable.
func (f *Fabric) Unplug(node string, out bool) error {
	i, err := f.node(node)
	if err != nil {
		return err
	}
	name := mgmtPort(i)
	index, err := ifIndex(name)
	if err != nil {
		return fmt.Errorf("management cable of %s: %w", node, err)
	}
	change := linkUp
	if out {
		change = linkDown
	}
	return apply(change(index, name))
}

// Reboot has a host lose its power and come up again: all its processes end at once, nobody is
// told of the end of a connection, and it has another boot id. It returns when the host's SSH
// server is there again. Its cables and its clock since boot stay as they are.
func (f *Fabric) Reboot(ctx context.Context, host string) error {
	i, err := f.node(host)
	if err != nil {
		return err
	}
	if f.layout.nodes[i].Kind != "host" {
		return fmt.Errorf("reboot %s: not a host", host)
	}
	if err := f.Unplug(host, true); err != nil {
		return err
	}
	var answer nodeReady
	err = f.procs[i].call(ctx, "reboot", &answer)
	return errors.Join(err, f.Unplug(host, false))
}

// PID is the process that is a host or switch; what runs on a host is below it.
func (f *Fabric) PID(node string) (int, error) {
	i, err := f.node(node)
	if err != nil {
		return 0, err
	}
	return f.procs[i].cmd.Process.Pid, nil
}

func (f *Fabric) node(name string) (int, error) {
	i := slices.IndexFunc(f.layout.nodes, func(n nodeConfig) bool { return n.Name == name })
	if i < 0 {
		return 0, fmt.Errorf("no host or switch %q", name)
	}
	return i, nil
}

// powerOff ends everything on this host but this process, which is its power supply.
func (s *sshServer) powerOff() error {
	if os.Getpid() != 1 {
		return errors.New("reboot: this is no host of an emulation")
	}
	if s.cords != nil {
		s.cords.pull()
	}
	if err := killAll(); err != nil {
		return err
	}
	s.stop()
	<-s.served
	if err := killAll(); err != nil { // what the server was about to start
		return err
	}
	for { // the dead are this process's to bury, orphans too
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == syscall.ECHILD {
			return nil
		}
	}
}

// killAll ends all processes of this host but this one.
func killAll() error {
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return fmt.Errorf("reboot: %w", err)
	}
	return nil
}

// cords is a listener whose connections can be made to end without a word.
type cords struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cords) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

// pull ends all connections at once. What was to be sent is not, and the kernel forgets that
// there were any.
func (c *cords) pull() {
	c.Listener.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it may be closed already
		}
		conn.Close()
	}
}

// bootIDFile is the file behind the host's boot id.
func (c nodeConfig) bootIDFile() string {
	return filepath.Join(filepath.Dir(c.SSH.Home), c.Name+".boot_id")
}

// newBootID gives the host a random one.
func (c nodeConfig) newBootID() error {
	var id [16]byte
	rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	if err := os.MkdirAll(filepath.Dir(c.bootIDFile()), 0o700); err != nil {
		return err
	}
	return os.WriteFile(c.bootIDFile(), []byte(text), 0o644)
}

// bootMount puts the host's boot id in place of the machine's.
func (c nodeConfig) bootMount() (notes []string) {
	err := c.newBootID()
	if err == nil {
		err = unix.Mount(c.bootIDFile(), "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, "")
	}
	if err != nil {
		notes = append(notes, fmt.Sprintf("the host's boot id is the machine's: %v", err))
	}
	return notes
}
