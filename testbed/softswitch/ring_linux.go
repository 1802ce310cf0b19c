package softswitch

import (
	"fmt"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
)

// device is a network device as a port: a TPACKET_V2 receive ring, which carries
// the kernel's receive timestamps, and sendmmsg past the queueing discipline. With
// offload, both carry super-frames (segment.go).
// (TPACKET_V3 delivers whole blocks and so adds a millisecond; a transmit ring is
// slower than sendmmsg.)
type device struct {
	name  string
	fd    int
	ring  []byte
	slots int
	slot  int // next to read
	step  int // bytes of a slot

	offload bool // frames come and go as super-frames
	msgs    [txBatch]mmsghdr
	iovs    [3 * txBatch]unix.Iovec
	frames  [txBatch]int                       // in each message
	heads   [txBatch][vnetLen + payloadAt]byte // of super-frames

	drops     int64 // frames, or super-frames, the ring had no room for
	refused   int64 // frames the device did not take
	offloaded bool  // frames without checksum, or larger than the MTU, have arrived
}

const txBatch = 64

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// openDevice binds to a network device with a ring of about memory bytes for frames
// of mtu bytes, or for super-frames of such.
func openDevice(name string, mtu, memory int, offload bool) (_ *device, err error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("open device %s: %w", name, err)
	}
	// Protocol 0 receives nothing until bind has the ring in place.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open device %s: packet socket: %w", name, err)
	}
	d := &device{name: name, fd: fd, offload: offload}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	const headroom = unix.SizeofTpacket2Hdr + 80 // sockaddr_ll, virtio_net_hdr and alignment
	if offload {
		mtu = max(mtu, payloadAt+ina.MaxSegments*(ina.HeaderLen+4*ina.MaxLanes))
	}
	d.step = 2048
	for d.step < mtu+headroom {
		d.step *= 2
	}
	const block = 1 << 16
	blocks := max(memory/block, 1)
	d.slots = blocks * (block / d.step)
	set := func(opt, v int) {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_PACKET, opt, v)
		}
	}
	set(unix.PACKET_VERSION, unix.TPACKET_V2)
	set(unix.PACKET_QDISC_BYPASS, 1)
	set(unix.PACKET_IGNORE_OUTGOING, 1)
	if offload {
		set(unix.PACKET_VNET_HDR, 1)
	}
	if err != nil {
		return nil, fmt.Errorf("open device %s: packet socket options: %w", name, err)
	}
	err = unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq{
		Block_size: block, Block_nr: uint32(blocks), Frame_size: uint32(d.step), Frame_nr: uint32(d.slots),
	})
	if err != nil {
		return nil, fmt.Errorf("open device %s: receive ring of %d frames: %w", name, d.slots, err)
	}
	if d.ring, err = unix.Mmap(fd, 0, blocks*block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("open device %s: map receive ring: %w", name, err)
	}
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifi.Index})
	if err != nil {
		return nil, fmt.Errorf("open device %s: bind: %w", name, err)
	}
	return d, nil
}

func (d *device) close() {
	if d.ring != nil {
		unix.Munmap(d.ring)
		d.ring = nil
	}
	unix.Close(d.fd)
}

// receive hands the frames of up to limit slots to do, with the kernel's time of
// arrival in ns of CLOCK_REALTIME, and returns how many slots there were.
func (d *device) receive(limit int, do func(frame []byte, realtime int64)) int {
	for n := range limit {
		s := d.ring[d.slot*d.step:]
		h := (*unix.Tpacket2Hdr)(unsafe.Pointer(&s[0]))
		status := atomic.LoadUint32(&h.Status)
		if status&unix.TP_STATUS_USER == 0 {
			return n
		}
		whole := h.Len == h.Snaplen
		realtime := int64(h.Sec)*1e9 + int64(h.Nsec)
		frame := s[h.Mac : uint32(h.Mac)+h.Snaplen]
		switch {
		case d.offload:
			vnet := s[h.Mac-vnetLen : h.Mac]
			whole = whole && segments(vnet, frame, func(frame []byte) { do(frame, realtime) })
		case whole:
			whole = status&unix.TP_STATUS_CSUMNOTREADY == 0
			do(frame, realtime)
		}
		d.offloaded = d.offloaded || !whole
		atomic.StoreUint32(&h.Status, unix.TP_STATUS_KERNEL)
		if d.slot++; d.slot == d.slots {
			d.slot = 0
		}
	}
	return limit
}

// send writes frames; refused is called with those that the device did not take.
func (d *device) send(ps []*packet, refused func(*packet)) {
	for len(ps) > 0 {
		n := d.fill(ps)
		sent, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(d.fd), uintptr(unsafe.Pointer(&d.msgs[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0: // about the first one
			for _, p := range ps[:d.frames[0]] {
				d.refused++
				refused(p)
			}
			ps = ps[d.frames[0]:]
		default:
			for _, frames := range d.frames[:sent] {
				ps = ps[frames:]
			}
		}
	}
}

// fill describes to sendmmsg as many of ps as it can and returns in how many
// messages.
func (d *device) fill(ps []*packet) int {
	iov := 0
	add := func(b []byte) {
		d.iovs[iov].Base = &b[0]
		d.iovs[iov].SetLen(len(b))
		iov++
	}
	n := 0
	for ; n < len(d.msgs) && len(ps) > 0; n++ {
		first, frames, from := iov, 1, 0
		if d.offload {
			head := &d.heads[n]
			if frames = run(ps); frames > 1 {
				superHead(head, ps[:frames])
				add(head[:])
				from = payloadAt
			} else {
				clear(head[:vnetLen])
				add(head[:vnetLen])
			}
		}
		for _, p := range ps[:frames] {
			end := min(p.size, headLen)
			add(p.head[from:end])
			if p.size > end {
				add(p.buf.b[end:p.size])
			}
		}
		d.msgs[n].hdr.Iov = &d.iovs[first]
		d.msgs[n].hdr.SetIovlen(iov - first)
		d.frames[n] = frames
		ps = ps[frames:]
		if len(d.iovs)-iov < 1+2*min(len(ps), ina.MaxSegments) {
			n++
			break
		}
	}
	return n
}

// lost adds up the frames the ring had no room for; the kernel zeroes its count
// when it is read.
func (d *device) lost() (int64, error) {
	st, err := unix.GetsockoptTpacketStats(d.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return d.drops, fmt.Errorf("device %s: read ring statistics: %w", d.name, err)
	}
	d.drops += int64(st.Drops)
	return d.drops, nil
}

// offloads names the offloads of a device that would break forwarding.
func (d *device) offloads() []string {
	var on []string
	for _, o := range []struct {
		name string
		cmd  uint32
	}{{"tx", unix.ETHTOOL_GTXCSUM}, {"tso", unix.ETHTOOL_GTSO}, {"gso", unix.ETHTOOL_GGSO}, {"gro", unix.ETHTOOL_GGRO}} {
		if v, err := Ethtool(d.fd, d.name, o.cmd, 0); err == nil && v != 0 {
			on = append(on, o.name)
		}
	}
	return on
}

// Ethtool sets a feature of a device, or asks for it, by the ioctl of <linux/ethtool.h> over any socket. It returns what the
// feature is by then.
func Ethtool(fd int, device string, cmd, value uint32) (uint32, error) {
	v := struct{ cmd, data uint32 }{cmd, value}
	var ifr struct { // struct ifreq with ifr_data
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(ifr.name[:unix.IFNAMSIZ-1], device)
	ifr.data = unsafe.Pointer(&v)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	if errno != 0 {
		return 0, errno
	}
	return v.data, nil
}
