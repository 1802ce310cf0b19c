package softswitch

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// tap writes what passes a port, both ways, to a pcap file with nanoseconds. After
// an error it writes no more; close reports it.
type tap struct {
	f       *os.File
	buf     *bufio.Writer
	w       *pcapgo.Writer
	frame   []byte
	flushed time.Time
	err     error
}

// newTap creates dir/SWITCH-PORT.pcap.
func newTap(dir, name string, port uint32) (*tap, error) {
	path := filepath.Join(dir, fmt.Sprintf("%s-%d.pcap", name, port))
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create capture: %w", err)
	}
	t := &tap{f: f, buf: bufio.NewWriterSize(f, 1<<18)}
	t.w = pcapgo.NewWriterNanos(t.buf)
	if err := t.w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		return nil, errors.Join(fmt.Errorf("write capture %s: %w", path, err), f.Close())
	}
	return t, nil
}

// write adds a frame, given in two parts, with its time in ns since 1970.
func (t *tap) write(realtime int64, head, body []byte) {
	if t.err != nil {
		return
	}
	t.frame = append(append(t.frame[:0], head...), body...)
	t.err = t.w.WritePacket(gopacket.CaptureInfo{
		Timestamp: time.Unix(0, realtime), CaptureLength: len(t.frame), Length: len(t.frame),
	}, t.frame)
}

// flush makes the file current, now and then.
func (t *tap) flush() {
	if now := time.Now(); t.err == nil && now.Sub(t.flushed) > 200*time.Millisecond {
		t.flushed = now
		t.err = t.buf.Flush()
	}
}

func (t *tap) close() error {
	if t.err == nil {
		t.err = t.buf.Flush()
	}
	if err := errors.Join(t.err, t.f.Close()); err != nil {
		return fmt.Errorf("capture %s: %w", t.f.Name(), err)
	}
	return nil
}
