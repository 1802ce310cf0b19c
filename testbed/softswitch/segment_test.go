package softswitch

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/inabench/inabench/testbed/ina"
)

// queued is frames as they wait at a port.
func queued(frames ...[]byte) []*packet {
	o := &pool{size: 1536, left: 1 << 14}
	var ps []*packet
	for _, f := range frames {
		p := o.get()
		p.size = copy(p.buf.b, f)
		copy(p.head[:], f)
		p.job = jobOf(f)
		ps = append(ps, p)
	}
	return ps
}

// super is what a device is given for ps, as one buffer.
func super(ps []*packet) (vnet, frame []byte) {
	if len(ps) == 1 {
		return make([]byte, vnetLen), append([]byte(nil), append(ps[0].head[:min(ps[0].size, headLen)], ps[0].buf.b[min(ps[0].size, headLen):ps[0].size]...)...)
	}
	var b [vnetLen + payloadAt]byte
	superHead(&b, ps)
	frame = append(frame, b[vnetLen:]...)
	for _, p := range ps {
		frame = append(append(frame, p.head[payloadAt:headLen]...), p.buf.b[headLen:p.size]...)
	}
	return b[:vnetLen], frame
}

// Whatever the order of frames, what leaves as super-frames arrives as the frames it was.
func TestSegmentsReturnTheFrames(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	trains := 0
	for round := range 200 {
		var frames [][]byte
		for range 1 + rng.IntN(100) {
			h := ina.Header{Job: uint16(1 + rng.IntN(2)), PSN: rng.Uint32(), Lanes: uint8(30 + rng.IntN(2)*210), Bitmap: 1}
			if rng.IntN(4) == 0 {
				h.Flags |= ina.FlagResult
			}
			n := rng.IntN(50)
			for range 1 + n {
				h.PSN++
				frames = append(frames, inaFrame(h, rng.Int32()))
			}
			if rng.IntN(3) == 0 {
				frames = append(frames, unicast([4]byte{10, 0, 0, 2}, 60+rng.IntN(1400)))
			}
		}
		var got [][]byte
		for ps := queued(frames...); len(ps) > 0; {
			n := run(ps)
			if n > 1 {
				trains++
			}
			vnet, frame := super(ps[:n])
			if !segments(vnet, frame, func(b []byte) { got = append(got, bytes.Clone(b)) }) {
				t.Fatalf("seed %d, round %d: a train of %d is refused", seed, round, n)
			}
			ps = ps[n:]
		}
		if len(got) != len(frames) {
			t.Fatalf("seed %d, round %d: %d frames of %d", seed, round, len(got), len(frames))
		}
		for i := range got {
			if !bytes.Equal(got[i], frames[i]) {
				t.Fatalf("seed %d, round %d: frame %d is\n%x\nwas\n%x", seed, round, i, got[i], frames[i])
			}
		}
	}
	if trains < 1000 {
		t.Errorf("%d super-frames only", trains)
	}
}

func TestRun(t *testing.T) {
	h := ina.Header{Job: 1, Lanes: 240, Bitmap: 1}
	frame := func(edit func(*ina.Header)) []byte {
		g := h
		edit(&g)
		return inaFrame(g, 1)
	}
	same := func(*ina.Header) {}
	marked := frame(same)
	marked[15] |= 3 // in IPv4, by a queue on the way
	setIPChecksum(marked[14:34])
	for name, tt := range map[string]struct {
		second []byte
		want   int
	}{
		"the next PSN":            {frame(func(h *ina.Header) { h.PSN++ }), 3},
		"another job":             {frame(func(h *ina.Header) { h.Job++ }), 1},
		"the other direction":     {frame(func(h *ina.Header) { h.Flags |= ina.FlagResult }), 1},
		"a shorter one ends it":   {frame(func(h *ina.Header) { h.Lanes = 1 }), 2},
		"marked":                  {marked, 1},
		"not INA":                 {unicast([4]byte{10, 0, 0, 2}, 1024), 1},
		"longer than its header":  {append(frame(same), 0), 1},
		"another flag of its own": {frame(func(h *ina.Header) { h.Flags |= ina.FlagECN }), 3},
	} {
		if got := run(queued(frame(same), tt.second, frame(same))); got != tt.want {
			t.Errorf("%s: a run of %d, want %d", name, got, tt.want)
		}
	}
	if got := run(queued(frame(func(h *ina.Header) { h.Lanes = 1 }), frame(same))); got != 1 {
		t.Errorf("a longer one after: a run of %d", got)
	}
	many := make([][]byte, 2*ina.MaxSegments)
	for i := range many {
		many[i] = frame(same)
	}
	if got := run(queued(many...)); got != ina.MaxSegments {
		t.Errorf("a run of %d, want at most %d", got, ina.MaxSegments)
	}
}

// A checksum that a host left to its device is the one it would have written.
func TestFinishChecksum(t *testing.T) {
	for _, size := range []int{0, 1, 2, 999, 1400} {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
		tcp := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 77, Window: 1000, ACK: true}
		if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		payload := bytes.Repeat([]byte{0xFF, 0x01, 0x7E}, 500)[:size]
		out := gopacket.NewSerializeBuffer()
		err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}, ip, tcp, gopacket.Payload(payload))
		if err != nil {
			t.Fatal(err)
		}
		want := out.Bytes()
		got := bytes.Clone(want)
		// The host has written the sum of the pseudo-header: addresses, protocol, length.
		pseudo := append(append([]byte{0, 6}, got[26:34]...), byte((20+size)>>8), byte(20+size))
		sum := uint32(0)
		for i := 0; i < len(pseudo); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(pseudo[i:]))
		}
		binary.BigEndian.PutUint16(got[50:], uint16(sum&0xFFFF+sum>>16))
		vnet := make([]byte, vnetLen)
		vnet[0] = vnetNeedsChecksum
		binary.NativeEndian.PutUint16(vnet[6:], 34)
		binary.NativeEndian.PutUint16(vnet[8:], 16)
		if !segments(vnet, got, func(b []byte) { got = b }) || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got\n%x, want\n%x", size, got, want)
		}
	}
}

// However a super-frame is described, its parts lie within it and none is taken for
// longer than it is.
func FuzzSegments(f *testing.F) {
	vnet, frame := super(queued(inaFrame(ina.Header{Job: 1, Lanes: 2, Bitmap: 1}, 1), inaFrame(ina.Header{Job: 1, Lanes: 2, Bitmap: 1}, 2)))
	f.Add(append(vnet, frame...))
	vnet, frame = super(queued(unicast([4]byte{10, 0, 0, 2}, 99)))
	f.Add(append(vnet, frame...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < vnetLen {
			return
		}
		vnet, frame := b[:vnetLen], b[vnetLen:]
		size, payload := int(binary.NativeEndian.Uint16(vnet[4:])), 0
		parts := 0
		ok := segments(vnet, frame, func(p []byte) {
			parts++
			payload += len(p) - payloadAt
			if vnet[1] == vnetUDPSegments && (len(p) > payloadAt+size || int(binary.BigEndian.Uint16(p[38:])) != len(p)-34) {
				t.Errorf("part of %d bytes says %d, segments are of %d", len(p), binary.BigEndian.Uint16(p[38:]), size)
			}
		})
		if ok != (parts > 0) || ok && payload != len(frame)-payloadAt {
			t.Errorf("%t with %d parts of %d payload bytes out of %d", ok, parts, payload, len(frame)-payloadAt)
		}
	})
}
