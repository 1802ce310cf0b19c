package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/softswitch"
)

// A request is one netlink message and, for error messages, what it does.
type request struct {
	what string
	*nl.NetlinkRequest
}

// apply makes the requests in order in the network namespace of this process. Every one is tried; the errors of those that
// were refused are joined.
func apply(reqs ...request) error {
	var errs []error
	for _, q := range reqs {
		if _, err := q.Execute(unix.NETLINK_ROUTE, 0); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", q.what, err))
		}
	}
	return errors.Join(errs...)
}

func newRequest(proto, flags int, format string, args ...any) request {
	return request{fmt.Sprintf(format, args...), nl.NewNetlinkRequest(proto, flags|unix.NLM_F_ACK)}
}

// ifinfo is about a device, by its index, or a new one, with 0: its flags in change become what they are in flags.
func ifinfo(index int, flags, change uint32) *nl.IfInfomsg {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Flags, msg.Change = int32(index), flags, change
	return msg
}

// vethEnd is one end of a cable.
type vethEnd struct {
	name   string
	mac    []byte // nil: the kernel chooses
	pid    int    // the process whose network namespace it is put into; 0: this one
	master int    // interface index of a bridge to join
	group  uint32 // 0: the default group
	up     bool
}

func (e vethEnd) flags() uint32 {
	if e.up {
		return unix.IFF_UP
	}
	return 0
}

// attrs gives each to what a veth end is made of.
func (e vethEnd) attrs(add func(attr int, data []byte)) {
	add(unix.IFLA_IFNAME, nl.ZeroTerminated(e.name))
	add(unix.IFLA_TXQLEN, nl.Uint32Attr(1000))
	add(unix.IFLA_NUM_TX_QUEUES, nl.Uint32Attr(1))
	add(unix.IFLA_NUM_RX_QUEUES, nl.Uint32Attr(1))
	if e.mac != nil {
		add(unix.IFLA_ADDRESS, e.mac)
	}
	if e.pid != 0 {
		add(unix.IFLA_NET_NS_PID, nl.Uint32Attr(uint32(e.pid)))
	}
	if e.master != 0 {
		add(unix.IFLA_MASTER, nl.Uint32Attr(uint32(e.master)))
	}
	if e.group != 0 {
		add(unix.IFLA_GROUP, nl.Uint32Attr(e.group))
	}
}

// newVeth makes a cable with each end at once in the namespace it belongs to, so
// that there never is a device which nobody owns.
func newVeth(a, b vethEnd) request {
	q := newRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "create veth %s - %s", a.name, b.name)
	q.AddData(ifinfo(0, a.flags(), a.flags()))
	a.attrs(func(attr int, data []byte) { q.AddData(nl.NewRtAttr(attr, data)) })
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	peer.AddChild(ifinfo(0, b.flags(), b.flags()))
	b.attrs(func(attr int, data []byte) { peer.AddRtAttr(attr, data) })
	q.AddData(info)
	return q
}

// newBridge makes a bridge that is up, forwards at once and does not snoop.
func newBridge(name string, group uint32) request {
	q := newRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "create bridge %s", name)
	q.AddData(ifinfo(0, unix.IFF_UP, unix.IFF_UP))
	q.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	q.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.IFLA_BR_MCAST_SNOOPING, []byte{0})
	q.AddData(info)
	return q
}

// deleteGroup removes every device of a group in one go: the kernel then waits
// once for all of them.
func deleteGroup(group uint32) request {
	q := newRequest(unix.RTM_DELLINK, 0, "delete management network")
	q.AddData(ifinfo(0, 0, 0))
	q.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	return q
}

func linkUp(index int, name string) request {
	q := newRequest(unix.RTM_NEWLINK, 0, "set %s up", name)
	q.AddData(ifinfo(index, unix.IFF_UP, unix.IFF_UP))
	return q
}

func linkDown(index int, name string) request {
	q := newRequest(unix.RTM_NEWLINK, 0, "set %s down", name)
	q.AddData(ifinfo(index, 0, unix.IFF_UP))
	return q
}

// addAddress gives a device an address. With onlink false the prefix is only
// shown: no route to it is made.
func addAddress(index int, a netip.Prefix, onlink bool) request {
	q := newRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add address %s", a)
	msg := nl.NewIfAddrmsg(unix.AF_INET)
	msg.Index = uint32(index)
	msg.Prefixlen = uint8(a.Bits())
	q.AddData(msg)
	ip := a.Addr().AsSlice()
	q.AddData(nl.NewRtAttr(unix.IFA_LOCAL, ip))
	q.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, ip))
	if !onlink {
		q.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NOPREFIXROUTE)))
	}
	return q
}

// addRoute routes dst out of a device, through a gateway when it is valid. The
// lowest metric is taken by sockets that are bound to no device. TCP begins with a window of so
// many segments there; 0: as the kernel has it.
func addRoute(index int, dst netip.Prefix, via netip.Addr, src netip.Addr, metric, window uint32) request {
	q := newRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add route %s", dst)
	msg := nl.NewRtMsg()
	msg.Family = unix.AF_INET
	msg.Dst_len = uint8(dst.Bits())
	msg.Scope = unix.RT_SCOPE_LINK
	if via.IsValid() {
		msg.Scope = unix.RT_SCOPE_UNIVERSE
		msg.Flags = unix.RTNH_F_ONLINK
	}
	q.AddData(msg)
	if dst.Bits() > 0 {
		q.AddData(nl.NewRtAttr(unix.RTA_DST, dst.Addr().AsSlice()))
	}
	if via.IsValid() {
		q.AddData(nl.NewRtAttr(unix.RTA_GATEWAY, via.AsSlice()))
	}
	q.AddData(nl.NewRtAttr(unix.RTA_PREFSRC, src.AsSlice()))
	q.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
	q.AddData(nl.NewRtAttr(unix.RTA_PRIORITY, nl.Uint32Attr(metric)))
	if window > 0 {
		metrics := nl.NewRtAttr(unix.RTA_METRICS, nil)
		metrics.AddRtAttr(unix.RTAX_INITCWND, nl.Uint32Attr(window))
		metrics.AddRtAttr(unix.RTAX_INITRWND, nl.Uint32Attr(window))
		q.AddData(metrics)
	}
	return q
}

// serialise has a device take frames at a rate, bit/s, as a NIC does: what its host has more waits there, where TCP
// sees it. A veth takes all at once, and what a window of TCP has is more than a switch's ring of frames.
func serialise(index int, rate float64, offload bool) error {
	frame := 1514
	if offload {
		frame = 64 << 10
	}
	bytes := rate / 8
	// As much as comes due while a timer is late, at least.
	burst := uint32(max(2*float64(frame), bytes*timerSlack.Seconds()))
	err := netlink.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       max(1, uint64(bytes)), Buffer: netlink.Xmittime(uint64(max(1, bytes)), burst), Limit: hostQueue,
	})
	if err != nil {
		return fmt.Errorf("send at %.0f bit/s (tbf): %w", rate, err)
	}
	return nil
}

// timerSlack is how late the kernel's timers may be, on a machine that is busy.
const timerSlack = time.Millisecond

// openWindow is with how many segments TCP begins. In slow motion a round trip takes a
// thousand times as long, and eight of them, in which a window opens from ten segments, are
// seconds and not a millisecond. It is less than the smallest buffer that a switch has if it is
// not told otherwise.
const openWindow = 512

// addNeighbour states the MAC address of ip for good: no ARP.
func addNeighbour(index int, ip netip.Addr, mac []byte) request {
	q := newRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "add neighbour %s", ip)
	q.AddData(&netlink.Ndmsg{Family: unix.AF_INET, Index: uint32(index), State: unix.NUD_PERMANENT})
	q.AddData(nl.NewRtAttr(unix.NDA_DST, ip.AsSlice()))
	q.AddData(nl.NewRtAttr(unix.NDA_LLADDR, mac))
	return q
}

// ifIndex is the index of a device in this network namespace.
func ifIndex(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("device %q: %w", name, err)
	}
	return link.Attrs().Index, nil
}

// awaitCarrier returns when the cable of a device that is up works. After both
// ends are up the kernel may take another second to let packets through (it
// batches such events), unless somebody asks, as is done here.
func awaitCarrier(ctx context.Context, name string) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("device %s: %w", name, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("device %s has no carrier: %w", name, context.Cause(ctx))
		}
	}
}

// setOffloads makes a new device send and receive frames as they are on a wire: whole
// checksums and no super-frames, which a switch in user space would forward broken;
// unless it is to handle these, of UDP only.
func setOffloads(name string, super bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for _, feature := range []struct {
		name   string
		cmd    uint32
		always bool
	}{
		{"tso", unix.ETHTOOL_STSO, true}, {"gro", unix.ETHTOOL_SGRO, true},
		{"tx", unix.ETHTOOL_STXCSUM, false}, {"sg", unix.ETHTOOL_SSG, false}, {"gso", unix.ETHTOOL_SGSO, false},
	} {
		if super && !feature.always {
			continue
		}
		if _, err := softswitch.Ethtool(fd, name, feature.cmd, 0); err != nil {
			return fmt.Errorf("switch off %s of %s: %w", feature.name, name, err)
		}
	}
	return nil
}

// canOffload reports whether packet sockets of this kernel take super-frames of UDP,
// as they do since Linux 6.2; before, they drop them.
func canOffload() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return os.NewSyscallError("uname", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	return offloadSince(release)
}

func offloadSince(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("linux release %q: %w", release, err)
	}
	if major < 6 || major == 6 && minor < 2 {
		return fmt.Errorf("segmentation offload on Linux %s: %w: it takes 6.2; do without emulation.offload", release, errors.ErrUnsupported)
	}
	return nil
}
