package reader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtool asks drivers by ioctl, as the program of that name does.
type ethtool struct{ fd int }

func newEthtool() (*ethtool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket for ethtool: %w", err)
	}
	return &ethtool{fd}, nil
}

func (e *ethtool) close() { unix.Close(e.fd) }

// index is the number of a device, which another one of the same name does not have.
func (e *ethtool) index(device string) (int, error) {
	req, err := unix.NewIfreq(device)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(e.fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, err
	}
	return int(req.Uint32()), nil
}

// ifreqData is struct ifreq with a pointer, of the size that the kernel copies.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

// ask makes the driver fill in a structure that begins with the command.
func (e *ethtool) ask(device string, cmd uint32, buf []byte) error {
	if len(device) >= unix.IFNAMSIZ {
		return unix.ENODEV
	}
	binary.NativeEndian.PutUint32(buf, cmd)
	var req ifreqData
	copy(req.name[:], device)
	var pin runtime.Pinner
	pin.Pin(&buf[0])
	defer pin.Unpin()
	req.data = unsafe.Pointer(&buf[0])
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}

// statistics is the set of strings that name statistics: enum ethtool_stringset's
// ETH_SS_STATS.
const statistics = 1

// maxStats bounds what a driver is believed to count.
const maxStats = 1 << 16

// strings are the names of a device's statistics, in their order; none is no error.
func (e *ethtool) strings(device string) ([]string, error) {
	// struct ethtool_sset_info: cmd, reserved, sset_mask, and a length for each bit of it.
	info := make([]byte, 4+4+8+4)
	binary.NativeEndian.PutUint64(info[8:], 1<<statistics)
	switch err := e.ask(device, unix.ETHTOOL_GSSET_INFO, info); {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("number of statistics: %w", err)
	case binary.NativeEndian.Uint64(info[8:]) == 0:
		return nil, nil
	}
	n := binary.NativeEndian.Uint32(info[16:])
	if n > maxStats {
		return nil, fmt.Errorf("%d statistics", n)
	}
	// struct ethtool_gstrings: cmd, string_set, len, and strings of 32 bytes. More may
	// have come meanwhile; the kernel writes so many as it has.
	buf := make([]byte, 12+32*(int(n)+maxStats/16))
	binary.NativeEndian.PutUint32(buf[4:], statistics)
	binary.NativeEndian.PutUint32(buf[8:], n)
	if err := e.ask(device, unix.ETHTOOL_GSTRINGS, buf); err != nil {
		return nil, fmt.Errorf("names of statistics: %w", err)
	}
	n = min(binary.NativeEndian.Uint32(buf[8:]), uint32((len(buf)-12)/32))
	out := make([]string, n)
	for i := range out {
		s := buf[12+32*i:][:32]
		if end := bytes.IndexByte(s, 0); end >= 0 {
			s = s[:end]
		}
		out[i] = string(s)
	}
	return out, nil
}

// stats are the values of so many statistics. Another number is an error.
func (e *ethtool) stats(device string, n int) ([]uint64, error) {
	// struct ethtool_stats: cmd, n_stats, and values of 8 bytes.
	buf := make([]byte, 8+8*(n+maxStats/16))
	binary.NativeEndian.PutUint32(buf[4:], uint32(n))
	if err := e.ask(device, unix.ETHTOOL_GSTATS, buf); err != nil {
		return nil, fmt.Errorf("statistics: %w", err)
	}
	if got := int(binary.NativeEndian.Uint32(buf[4:])); got != n {
		return nil, fmt.Errorf("%d statistics instead of %d", got, n)
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.NativeEndian.Uint64(buf[8+8*i:])
	}
	return out, nil
}
