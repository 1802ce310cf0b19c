package ina

import (
	"bytes"
	"errors"
	"testing"
)

// What is accepted encodes to the same bytes; what is not gives the zero header.
func FuzzParseHeader(f *testing.F) {
	b := make([]byte, HeaderLen+8)
	Header{Flags: FlagResend | FlagECN, Job: 77, PSN: 1 << 31, Epoch: 3, Slot: 9, Rank: 63, Lanes: 2, Bitmap: 1 << 63}.Put(b)
	f.Add(b)
	f.Add(b[:HeaderLen])
	f.Add([]byte{Magic})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			if h != (Header{}) || !errors.Is(err, ErrNotINA) {
				t.Fatalf("error %v with header %+v", err, h)
			}
			return
		}
		if len(b) < HeaderLen+4*int(h.Lanes) || h.Job == 0 || h.Job > MaxJob || h.Lanes > MaxLanes {
			t.Fatalf("accepted %+v in %d bytes", h, len(b))
		}
		again := make([]byte, HeaderLen)
		h.Put(again)
		if !bytes.Equal(again, b[:HeaderLen]) {
			t.Fatalf("%x became %x", b[:HeaderLen], again)
		}
	})
}

// A switch must survive any bytes, keep its books, and send only what parses.
func FuzzProcess(f *testing.F) {
	b := make([]byte, HeaderLen+8)
	Header{Job: 1, PSN: 5, Lanes: 2, Bitmap: 1}.Put(b)
	f.Add(b, b, uint8(1))
	f.Add(b, b, uint8(2))
	f.Add(opPacket(1, 0, 0, FlagLock, 0), opPacket(1, 1, 0, FlagLock, 0), uint8(3))
	f.Add(opPacket(1, 0, 0, FlagLock, 0), opPacket(1, 1, 0, FlagUnlock, 0), uint8(131))
	f.Fuzz(func(t *testing.T, a, b []byte, mode uint8) {
		s := exclusiveSwitch(t, Limits{Capacity: 1, Trees: 1})
		if s.SetJob(JobEntry{Job: 1, Mode: Mode(mode % 4), Addressing: Addressing(mode / 4 % 4), Size: 8, Expect: 3, Window: 4, Root: mode&128 != 0}) != nil {
			t.Fatal("entry refused")
		}
		for _, p := range [][]byte{a, b, b, a} {
			v := s.Process(0, p, 0)
			for _, o := range v.Out[:v.N] {
				if _, err := ParseHeader(o.Data); err != nil {
					t.Fatalf("%v sent %x: %v", v.Reason, o.Data, err)
				}
			}
			if c := s.Counters(1); c.In.Packets != c.Aggregated.Packets+c.Fallback.Packets+c.Duplicates.Packets {
				t.Fatalf("counters %+v", *c)
			}
		}
	})
}
