package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/softswitch"
)

// A request is something to have of the kernel, asked for over a socket, and, for error messages, what it is.
type request struct {
	what string
	do   func(*netlink.Handle) error
}

// apply makes the requests in order in the network namespace of this process, all over one socket: bringing a rack up is
// hundreds of them. Every one is tried; the errors of those that were refused are joined.
func apply(reqs ...request) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("netlink socket", err)
	}
	defer h.Close()
	var errs []error
	for _, q := range reqs {
		if err := q.do(h); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", q.what, err))
		}
	}
	return errors.Join(errs...)
}

// A vethEnd is one end of a cable.
type vethEnd struct {
	name string
	mac  net.HardwareAddr // nil: the kernel chooses
	pid  int              // the process whose network namespace it is put into; 0: this one
}

func (e vethEnd) namespace() any {
	if e.pid == 0 {
		return nil
	}
	return netlink.NsPid(e.pid)
}

// newVeth makes a cable with each end at once in the namespace it belongs to, so
// that there never is a device which nobody owns. With the index of the management network's bridge the first end
// is a port of it, and up; 0: no port.
func newVeth(bridge int, a, b vethEnd) request {
	attrs := netlink.LinkAttrs{
		Name: a.name, HardwareAddr: a.mac, Namespace: a.namespace(),
		TxQLen: 1000, NumTxQueues: 1, NumRxQueues: 1, // of both ends
	}
	if bridge != 0 {
		attrs.MasterIndex, attrs.Group, attrs.Flags = bridge, mgmtGroup, net.FlagUp
	}
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = b.name, b.mac, b.namespace()
	return request{fmt.Sprintf("create veth %s - %s", a.name, b.name), func(h *netlink.Handle) error { return h.LinkAdd(veth) }}
}

// newBridge makes a bridge that is up, forwards at once and does not snoop.
func newBridge(name string, group uint32) request {
	bridge := &netlink.Bridge{
		LinkAttrs:         netlink.LinkAttrs{Name: name, Group: group, Flags: net.FlagUp, TxQLen: -1},
		MulticastSnooping: new(bool),
	}
	return request{"create bridge " + name, func(h *netlink.Handle) error { return h.LinkAdd(bridge) }}
}

// deleteGroup removes every device of a group in one go: the kernel then waits
// once for all of them.
func deleteGroup(group uint32) request {
	q := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
	q.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	q.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(group)))
	return request{"delete management network", func(*netlink.Handle) error { // which has no call for it
		_, err := q.Execute(unix.NETLINK_ROUTE, 0)
		return err
	}}
}

func linkUp(index int, name string) request {
	return request{fmt.Sprintf("set %s up", name), func(h *netlink.Handle) error { return h.LinkSetUp(device(index)) }}
}

func linkDown(index int, name string) request {
	return request{fmt.Sprintf("set %s down", name), func(h *netlink.Handle) error { return h.LinkSetDown(device(index)) }}
}

func device(index int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// addAddress gives a device an address. With onlink false the prefix is only
// shown: no route to it is made.
func addAddress(index int, a netip.Prefix, onlink bool) request {
	addr := &netlink.Addr{LinkIndex: index, IPNet: ipNet(a), Broadcast: net.IPv4zero} // none
	if !onlink {
		addr.Flags = unix.IFA_F_NOPREFIXROUTE
	}
	return request{fmt.Sprintf("add address %s", a), func(h *netlink.Handle) error { return h.AddrAdd(nil, addr) }}
}

// ipNet is an IPv4 prefix with the address in it, as package net has it.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// addRoute routes dst out of a device, through a gateway when it is valid. The
// lowest metric is taken by sockets that are bound to no device. TCP begins with a window of so
// many segments there; 0: as the kernel has it.
func addRoute(index int, dst netip.Prefix, via netip.Addr, src netip.Addr, metric, window int) request {
	route := &netlink.Route{
		LinkIndex: index, Dst: ipNet(dst), Src: src.AsSlice(), Scope: netlink.SCOPE_LINK,
		Priority: metric, InitCwnd: window, InitRwnd: window,
	}
	if via.IsValid() {
		route.Gw, route.Scope, route.Flags = via.AsSlice(), netlink.SCOPE_UNIVERSE, int(netlink.FLAG_ONLINK)
	}
	return request{fmt.Sprintf("add route %s", dst), func(h *netlink.Handle) error { return h.RouteAdd(route) }}
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
func addNeighbour(index int, ip netip.Addr, mac net.HardwareAddr) request {
	neigh := &netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: ip.AsSlice(), HardwareAddr: mac}
	return request{fmt.Sprintf("add neighbour %s", ip), func(h *netlink.Handle) error { return h.NeighSet(neigh) }}
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
