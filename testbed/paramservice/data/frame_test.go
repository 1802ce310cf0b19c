package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// The bytes of a frame, once written out by hand: other implementations rely on them.
func TestHeaderBytes(t *testing.T) {
	h := Header{Kind: migrate.Model, Key: control.Key{Job: 1, Tensor: 2}, Term: migrate.Term{Epoch: 3, Seq: 4}, Next: migrate.Term{Epoch: 5, Seq: 6},
		Version: 7, Held: 8, At: -1, Elements: 10}
	want := []byte{
		0x6c, 0, 0, 0, // 68 bytes of header and 40 of values follow
		'P', 'S', 1, 3,
		1, 0, 0, 0, 2, 0, 0, 0,
		3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
		5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0,
		7, 0, 0, 0, 0, 0, 0, 0,
		8, 0, 0, 0, 0, 0, 0, 0,
		0xff, 0xff, 0xff, 0xff, 10, 0, 0, 0,
	}
	got := AppendHeader(nil, &h)
	if !bytes.Equal(got, want) || len(got) != HeaderSize {
		t.Errorf("% x", got)
	}
	if back, err := ParseHeader(want); err != nil || back != h {
		t.Errorf("%+v, %v", back, err)
	}
}

// What is not a frame is told so, and why.
func TestParseHeaderErrors(t *testing.T) {
	good := AppendHeader(nil, &Header{Kind: migrate.Push, Elements: 1})
	change := func(at int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[at:], b)
		return c
	}
	longest := binary.LittleEndian.AppendUint32(nil, control.MaxElements+1)
	for _, c := range []struct {
		name string
		in   []byte
		is   error
		want string
	}{
		{"nothing", nil, ErrFrame, "0 bytes: not a frame"},
		{"a part", good[:HeaderSize-1], ErrFrame, "71 bytes: not a frame"},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: something that is long enough\r\n\r\n"), ErrFrame, "it begins with 0x202f instead of 0x5350: not a frame"},
		{"another version", change(6, 2), ErrProtocol, "version 2, this is 1: another version of the protocol"},
		{"no kind", change(7, 0), ErrFrame, "none: not a frame"},
		{"a control message", change(7, byte(migrate.Fence)), ErrFrame, "fence: not a frame"},
		{"a kind of the future", change(7, 200), ErrFrame, "kind 200: not a frame"},
		{"a push without values", change(68, 0), ErrFrame, "push with 0 values, not 1 to 134217728: not a frame"},
		{"too many values", change(68, longest...), ErrFrame, "push with 134217729 values, not 1 to 134217728: not a frame"},
		{"a pull with values", change(7, byte(migrate.Pull)), ErrFrame, "pull with 1 values, not 0 to 0: not a frame"},
		{"too long", change(0, 0xff), ErrFrame, "push of 1 values in 255 bytes: not a frame"},
		{"held for less than no time", change(63, 0x80), ErrFrame, "push held -2562047h47m16.854775808s: not a frame"},
	} {
		h, err := ParseHeader(c.in)
		if !errors.Is(err, c.is) || err.Error() != c.want || h != (Header{}) {
			t.Errorf("%s: %+v, %v", c.name, h, err)
		}
	}
}

// The parser is strict: what it takes, AppendHeader gives back, and an error comes with nothing.
func FuzzParseHeader(f *testing.F) {
	for _, k := range []Kind{migrate.Pull, migrate.Push, migrate.Model, migrate.Wait, migrate.Moved, migrate.TensorCopy, migrate.CopyAck, Hello, Welcome, Refused, Poke, Unknown} {
		least, _, _ := carries(k)
		f.Add(AppendHeader(nil, &Header{Kind: k, Version: 3, Elements: least}))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ParseHeader(in)
		if err != nil {
			if h != (Header{}) || !errors.Is(err, ErrFrame) && !errors.Is(err, ErrProtocol) {
				t.Fatalf("%+v with %v", h, err)
			}
			return
		}
		if out := AppendHeader(nil, &h); !bytes.Equal(out, in[:HeaderSize]) {
			t.Fatalf("% x\n% x", in[:HeaderSize], out)
		}
	})
}

// A connection takes whatever comes: it ends, or there is a frame of the size that was said.
func FuzzReceive(f *testing.F) {
	push := AppendHeader(nil, &Header{Kind: migrate.Push, Elements: 2})
	f.Add(append(push, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(append(push, 1, 2))
	f.Add(append(AppendHeader(nil, &Header{Kind: Welcome}), push...))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := newTCPConn(&TCP{}, &script{Reader: bytes.NewReader(in)})
		for read := 0; ; {
			var values []float32
			h, err := c.Receive(func(h *Header) []float32 {
				if h.Elements > 1<<16 {
					return nil
				}
				values = make([]float32, h.Elements)
				return values
			})
			if err != nil {
				return
			}
			if read += HeaderSize + 4*h.Elements; read > len(in) {
				t.Fatalf("%d bytes of frames in %d", read, len(in))
			}
		}
	})
}

func TestHello(t *testing.T) {
	for _, n := range []Node{AggregatorNode(0), AggregatorNode(math.MaxInt32), WorkerNode(9, 0), WorkerNode(math.MaxUint32, 4095)} {
		h := hello(n, 12)
		h, err := ParseHeader(AppendHeader(nil, &h))
		if err != nil {
			t.Fatal(err)
		}
		if who, to, err := greeted(&h); who != n || to != 12 || err != nil {
			t.Errorf("%v is %v, to %d, %v", n, who, to, err)
		}
	}
	for _, n := range []Node{{}, WorkerNode(1, -1), AggregatorNode(-1), {Node: migrate.Node{Role: 77}}, {Node: migrate.Node{Role: migrate.Aggregator}, Job: 1}} {
		h := hello(n, 12)
		if _, _, err := greeted(&h); !errors.Is(err, ErrFrame) {
			t.Errorf("%v: %v", n, err)
		}
	}
}

func TestText(t *testing.T) {
	for _, s := range []string{"", "a", "four", strings.Repeat("x", MaxText), strings.Repeat("y", 2*MaxText)} {
		err := refusal(&Header{}, text(s))
		if want := `refused: "` + s[:min(len(s), MaxText)] + `"`; err.Error() != want {
			t.Errorf("%v", err)
		}
	}
}

// A block is used again when all have done with it, and not before.
func TestPool(t *testing.T) {
	var p Pool
	a := p.Get(3)
	a.Use()
	a.Done()
	if b := p.Get(3); b == a {
		t.Fatal("in use twice")
	}
	a.Done()
	if b := p.Get(4); b == a || len(b.Values) != 4 {
		t.Fatal("of another size")
	}
	if b := p.Get(3); b != a {
		t.Error("not used again")
	}
	a.Done()
	p.Empty()
	if b := p.Get(3); b == a {
		t.Error("not let go of")
	}
}

// Bulk waits while others write, and not for ever.
func TestGate(t *testing.T) {
	var g gate
	g.yield(time.Hour) // nobody writes
	g.enter()
	g.enter()
	g.yield(time.Millisecond) // they do not stop
	passed := make(chan struct{})
	go func() {
		g.yield(time.Hour)
		close(passed)
	}()
	g.leave()
	select {
	case <-passed:
		t.Error("bulk goes while somebody writes")
	case <-time.After(5 * time.Millisecond):
	}
	g.leave()
	<-passed
}

// connected are the two ends of a connection, which the far one reads little of at a time.
func connected(t *testing.T, tr *TCP) (near, far *tcpConn) {
	t.Helper()
	l, err := tr.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := tr.Dial(t.Context(), l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	near, far = c.(*tcpConn), d.(*tcpConn)
	if err := far.c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if err := near.c.(*net.TCPConn).SetWriteBuffer(256 << 10); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// Values are on their way until the other side's kernel has taken them, however early the kernel here
// has, and bulk gives way to them until others have written sixteen times as much since.
func TestAhead(t *testing.T) {
	tr := &TCP{}
	c, d := connected(t, tr)
	const bulk = 8 << 10
	turn := tr.turn(bulk)
	if tr.pending(turn) {
		t.Error("before anything was sent")
	}
	send := func(elements int) {
		t.Helper()
		if err := c.Send(&Header{Kind: migrate.Model, Elements: elements}, make([]float32, elements)); err != nil {
			t.Fatal(err)
		}
	}
	const most = bulk / 4 * bulkWeight
	send(most - 1)
	if !tr.pending(turn) {
		t.Error("nobody has read it")
	}
	send(1)
	if tr.pending(turn) {
		t.Error("bulk has no part of a link that is never idle")
	}
	if !tr.pending(tr.turn(bulk)) {
		t.Error("bulk that comes now does not wait")
	}
	for range 2 {
		if _, err := d.Receive(func(h *Header) []float32 { return make([]float32, h.Elements) }); err != nil {
			t.Fatal(err)
		}
	}
	for tr.pending(tr.turn(bulk)) { // until the acknowledgement has come
		if t.Context().Err() != nil {
			t.Fatal("it has been read")
		}
		time.Sleep(time.Millisecond)
	}
}
