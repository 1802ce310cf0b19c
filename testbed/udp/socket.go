// Package udp is how hosts send and receive aggregation packets: a UDP socket on one
// device that moves packets in batches, with segmentation offload where the device has
// it, and tells when each arrived on the clock that agents report in.
package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/loop"
)

// Batch is how many packets one system call moves at most.
const Batch = 64

// udpOverhead is the bytes of a frame around a UDP payload: Ethernet, IPv4, UDP.
const udpOverhead = ina.Overhead - ina.HeaderLen

// rcvbuf is the receive buffer that is asked for: some 1,800 packets, which the
// kernel charges at over twice their size. Without root it is cut to rmem_max.
const rcvbuf = 4 << 20

type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// segmentSize is the control message that has the kernel cut a datagram up (udp(7),
// UDP_SEGMENT).
type segmentSize struct {
	hdr  unix.Cmsghdr
	size uint16
	_    [6]byte
}

// Socket is a UDP socket on one device. It receives and sends in batches and
// allocates nothing after it was opened. One goroutine uses it, on a locked thread;
// only Interrupt may be called by others.
type Socket struct {
	fd, wake int // wake is an eventfd that ends a wait
	clock    *Clock
	mu       sync.Mutex // closed, for interrupt
	closed   bool

	offload  bool // up to ina.MaxSegments packets are handed over as one
	messages int  // received by one call at most

	// Full: the last Receive left off at the most that it takes, so there may be more.
	Full bool
	// What the last Receive took, and when each of it arrived on the clock.
	Packets [][]byte
	Arrived []time.Duration

	rx    [Batch]mmsghdr
	rxIov [Batch]unix.Iovec
	rxBuf []byte // of all messages
	rxCtl [Batch][128]byte
	last  time.Duration // newest arrival, so that a stepped wall clock cannot turn time back

	tx    [Batch]mmsghdr
	txIov [Batch]unix.Iovec
	txBuf [Batch][2048]byte
	txSeg [Batch]segmentSize
	txN   int

	poll   [2]unix.PollFd
	waiter loop.Waiter

	// Freed is when the last send that had to wait returned, on the clock: the host's own queue was full, as behind a link
	// that is slower than what is to go over it. Whoever was late until then was so by the network.
	Freed time.Duration

	// Rest is the least time of a Wait: what comes within it is handled together.
	Rest time.Duration

	Received, ReceivedBytes int64 // frames and their bytes, as a NIC counts them
	Sent, SentBytes         int64
	Drops                   int64 // by the kernel, for want of receive buffer
}

// Open binds port on all addresses, joins group on device, and sends
// multicasts through it. Nothing it sends is looped back on the host: a worker and
// a PS on one host meet in the switch. With offload the device has to be one on which
// checksums and UDP segmentation are offloaded.
func Open(device string, port uint16, group [4]byte, offload bool, c *Clock) (*Socket, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", device, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("udp socket: %w", err)
	}
	s := &Socket{fd: fd, wake: -1, clock: c, offload: offload}
	if err := s.open(ifi.Index, port, group); err != nil {
		s.Close()
		return nil, fmt.Errorf("udp port %d on %s: %w", port, device, err)
	}
	return s, nil
}

func (s *Socket) open(ifindex int, port uint16, group [4]byte) error {
	set := func(what string, level, opt, value int) error {
		if err := unix.SetsockoptInt(s.fd, level, opt, value); err != nil {
			return fmt.Errorf("set %s: %w", what, err)
		}
		return nil
	}
	mreq := &unix.IPMreqn{Multiaddr: group, Ifindex: int32(ifindex)}
	// The kernel cuts nothing up that has no checksum; switches take it out again.
	var err error
	if s.offload {
		err = set("UDP_GRO", unix.SOL_UDP, unix.UDP_GRO, 1)
	} else {
		err = set("SO_NO_CHECK", unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
	}
	if err := errors.Join(
		err,
		set("SO_TIMESTAMPNS", unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		set("SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1),
		set("IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0),
		set("IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 64),
		set("IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0),
	); err != nil {
		return err
	}
	if set("", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rcvbuf) != nil {
		if err := set("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, rcvbuf); err != nil {
			return err
		}
	}
	if err := unix.SetsockoptIPMreqn(s.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, mreq); err != nil {
		return fmt.Errorf("set IP_MULTICAST_IF: %w", err)
	}
	if err := unix.SetsockoptIPMreqn(s.fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, mreq); err != nil {
		return fmt.Errorf("join %s: %w", netip.AddrFrom4(group), err)
	}
	if err := unix.Bind(s.fd, &unix.SockaddrInet4{Port: int(port)}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	size, segments := 2048, 1
	s.messages = Batch
	if s.offload {
		size, segments, s.messages = 32<<10, ina.MaxSegments, Batch/4
	}
	s.rxBuf = make([]byte, s.messages*size)
	s.Packets = make([][]byte, 0, s.messages*segments)
	s.Arrived = make([]time.Duration, 0, s.messages*segments)
	for i := range s.messages {
		s.rxIov[i].Base, s.rx[i].hdr.Iov, s.rx[i].hdr.Control = &s.rxBuf[i*size], &s.rxIov[i], &s.rxCtl[i][0]
		s.rxIov[i].SetLen(size)
		s.rx[i].hdr.SetIovlen(1)
	}
	s.poll = [2]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}}
	return nil
}

// Port is the port that it is bound to, which the kernel has chosen where Open was told 0.
func (s *Socket) Port() (uint16, error) {
	name, err := unix.Getsockname(s.fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return uint16(name.(*unix.SockaddrInet4).Port), nil // it is a socket of AF_INET
}

// Close may be called again.
func (s *Socket) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	unix.Close(s.fd)
	if s.wake >= 0 {
		unix.Close(s.wake)
	}
}

// Interrupt ends a present or the next wait; any goroutine may call it.
func (s *Socket) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	one := [8]byte{0: 1, 7: 1} // not 0 in either byte order
	unix.Write(s.wake, one[:]) // fails only if it is set already
}

// Wait sleeps until something arrived, Interrupt was called, or the clock says t.
func (s *Socket) Wait(t time.Duration) error {
	if err := s.waiter.Wait(s.poll[:], s.Rest, t-s.clock.Now()); err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	if s.poll[1].Revents != 0 {
		var b [8]byte
		unix.Read(s.wake, b[:]) // only to reset it
	}
	return nil
}

// Receive takes what has arrived, up to a batch: Packets[i] and Arrived[i] for i < n.
// They are valid until the next call.
func (s *Socket) Receive() (n int, err error) {
	s.Packets, s.Arrived, s.Full = s.Packets[:0], s.Arrived[:0], false
	for i := range s.messages {
		s.rx[i].hdr.SetControllen(len(s.rxCtl[i]))
	}
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.rx)), uintptr(s.messages),
		unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR, unix.ECONNREFUSED: // the last: a unicast result found no worker
		return 0, nil
	default:
		return 0, fmt.Errorf("receive: %w", errno)
	}
	s.Full = int(r) == s.messages
	now, wall := s.clock.both()
	for i := range int(r) {
		m := &s.rx[i]
		at, segment := now, 0
		for ctl := s.rxCtl[i][:m.hdr.Controllen]; len(ctl) >= unix.SizeofCmsghdr; {
			c := (*unix.Cmsghdr)(unsafe.Pointer(&ctl[0]))
			if int(c.Len) < unix.SizeofCmsghdr || int(c.Len) > len(ctl) {
				break
			}
			data := unsafe.Pointer(&ctl[unix.CmsgLen(0)])
			switch {
			case c.Level == unix.SOL_UDP && c.Type == unix.UDP_GRO:
				segment = int(*(*int32)(data))
			case c.Level != unix.SOL_SOCKET:
			case c.Type == unix.SO_TIMESTAMPNS:
				at = now - time.Duration(wall-(*unix.Timespec)(data).Nano())
			case c.Type == unix.SO_RXQ_OVFL:
				s.Drops = int64(*(*uint32)(data))
			}
			ctl = ctl[min(unix.CmsgSpace(int(c.Len)-unix.CmsgLen(0)), len(ctl)):]
		}
		s.last = max(s.last, min(at, now))
		b := unsafe.Slice(s.rxIov[i].Base, min(uint64(m.n), s.rxIov[i].Len))
		for {
			p := b
			if segment > 0 {
				p = b[:min(segment, len(b))]
			}
			s.Packets = append(s.Packets, p)
			s.Arrived = append(s.Arrived, s.last)
			s.Received++
			s.ReceivedBytes += int64(len(p)) + udpOverhead
			if b = b[len(p):]; len(b) == 0 {
				break
			}
		}
	}
	return len(s.Packets), nil
}

// Buffer is where the next packet to queue may be written.
func (s *Socket) Buffer() []byte { return s.txBuf[s.txN][:] }

// Queue adds a packet to the batch, flushing it when full. b stays in use until then.
func (s *Socket) Queue(b []byte, to *unix.RawSockaddrInet4) error {
	i := s.txN
	s.txIov[i].Base = &b[0]
	s.txIov[i].SetLen(len(b))
	s.tx[i].hdr.Name = (*byte)(unsafe.Pointer(to))
	s.tx[i].hdr.Namelen = unix.SizeofSockaddrInet4
	s.SentBytes += int64(len(b)) + udpOverhead
	s.Sent++
	if s.txN++; s.txN == Batch {
		return s.Flush()
	}
	return nil
}

// Flush sends the batch, waiting while the socket's buffer is full. A packet that a
// queue behind it refuses is lost, as on a wire, and later resent.
func (s *Socket) Flush() error {
	n := s.join()
	for i := 0; i < n; {
		r, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.tx[i])), uintptr(n-i), unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EAGAIN { // this call may take long, so the runtime has to know of it
			r, _, errno = unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.tx[i])), uintptr(n-i), 0, 0, 0)
			s.Freed = s.clock.Now()
		}
		switch errno {
		case 0:
			i += int(r)
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS, unix.ECONNREFUSED, unix.EHOSTUNREACH:
			for _, iov := range unsafe.Slice(s.tx[i].hdr.Iov, s.tx[i].hdr.Iovlen) {
				s.Sent--
				s.SentBytes -= int64(iov.Len) + udpOverhead
			}
			i++
		default:
			s.txN = 0
			return os.NewSyscallError("sendmmsg", errno)
		}
	}
	s.txN = 0
	return nil
}

// join makes messages of the queued packets, and returns how many: one each, or with
// offload one of as many as are for the same address and of the same size, of which
// the last may be shorter.
func (s *Socket) join() (messages int) {
	for i := 0; i < s.txN; messages++ {
		n, size := 1, s.txIov[i].Len
		for s.offload && n < ina.MaxSegments && i+n < s.txN && s.tx[i+n].hdr.Name == s.tx[i].hdr.Name &&
			s.txIov[i+n-1].Len == size && s.txIov[i+n].Len <= size {
			n++
		}
		m := &s.tx[messages].hdr
		m.Name, m.Namelen = s.tx[i].hdr.Name, s.tx[i].hdr.Namelen
		m.Iov = &s.txIov[i]
		m.SetIovlen(n)
		m.Control = nil
		m.SetControllen(0)
		if n > 1 {
			c := &s.txSeg[messages]
			c.hdr.Level, c.hdr.Type, c.size = unix.SOL_UDP, unix.UDP_SEGMENT, uint16(size)
			c.hdr.SetLen(unix.CmsgLen(2))
			m.Control = (*byte)(unsafe.Pointer(c))
			m.SetControllen(unix.CmsgSpace(2))
		}
		i += n
	}
	return messages
}

// Address is where packets are sent to.
func Address(ip [4]byte, port uint16) *unix.RawSockaddrInet4 {
	wire := []byte{byte(port >> 8), byte(port)}
	return &unix.RawSockaddrInet4{Family: unix.AF_INET, Port: binary.NativeEndian.Uint16(wire), Addr: ip}
}
