package ina

import (
	"testing"
)

// step is a packet to a PS of three workers, and what it must do with it.
type step struct {
	bitmap uint64
	flags  Flags
	sum    bool   // pushed out of a switch: of no rank
	to     uint64 // workers that get a result; 0: none
	result Flags  // beside FlagResult
}

func TestPS(t *testing.T) {
	const all = 0b111
	cases := []struct {
		name    string
		unicast bool
		steps   []step
		want    PSStats
	}{
		{"one by one", false, []step{{bitmap: 1}, {bitmap: 4}, {bitmap: 2, to: all}},
			PSStats{Arrived: 3, Merged: 3, Completed: 1}},
		{"all at once", false, []step{{bitmap: all, sum: true, to: all}},
			PSStats{Arrived: 1, Merged: 1, Completed: 1}},
		{"a duplicate", false, []step{{bitmap: 1}, {bitmap: 1}, {bitmap: 6, sum: true, to: all}},
			PSStats{Arrived: 3, Merged: 2, Duplicate: 1, Completed: 1}},
		{"a larger sum takes the smaller one's place", false, []step{{bitmap: 1}, {bitmap: 3, sum: true}, {bitmap: 4, to: all}},
			PSStats{Arrived: 3, Merged: 3, Completed: 1}},
		{"a conflict is settled one by one", false, []step{
			{bitmap: 3, sum: true}, {bitmap: 6, sum: true}, {bitmap: 2, flags: FlagResend}, {bitmap: 4, flags: FlagResend, to: all}},
			PSStats{Arrived: 4, Merged: 2, Conflicts: 1, Duplicate: 1, Completed: 1}},
		{"flags of all summands", false, []step{
			{bitmap: 1, flags: FlagECN}, {bitmap: 2, flags: FlagOverflow}, {bitmap: 4, flags: FlagCollision, to: all, result: FlagECN | FlagOverflow | FlagCollision}},
			PSStats{Arrived: 3, Merged: 3, Completed: 1}},
		{"flags of a sum replaced go with it", false, []step{{bitmap: 1, flags: FlagECN}, {bitmap: all, sum: true, to: all}},
			PSStats{Arrived: 2, Merged: 2, Completed: 1}},
		{"late packets of a complete PSN are not answered", false, []step{{bitmap: all, sum: true, to: all}, {bitmap: 1}, {bitmap: 3, sum: true, flags: FlagResend}},
			PSStats{Arrived: 3, Merged: 1, Duplicate: 2, Completed: 1}},
		{"a lost multicast: all resend, the first is answered", false, []step{
			{bitmap: all, sum: true, to: all},
			{bitmap: 2, flags: FlagResend, to: all}, {bitmap: 1, flags: FlagResend}, {bitmap: 4, flags: FlagResend},
			{bitmap: 4, flags: FlagResend, to: all}}, // it was lost again on the way to this one
			PSStats{Arrived: 5, Merged: 1, Duplicate: 4, Completed: 1, Answered: 2}},
		{"completed by a resend: the others' are on their way", false, []step{
			{bitmap: 1}, {bitmap: 2}, {bitmap: 1, flags: FlagResend}, {bitmap: 4, flags: FlagResend, to: all},
			{bitmap: 2, flags: FlagResend},          // sent before the result came
			{bitmap: 1, flags: FlagResend, to: all}, // has resent before: the result was lost
		}, PSStats{Arrived: 6, Merged: 3, Duplicate: 3, Completed: 1, Answered: 1}},
		{"unicast answers who asks", true, []step{
			{bitmap: 1}, {bitmap: 2}, {bitmap: 4, to: all}, {bitmap: 2, flags: FlagResend, to: 2}, {bitmap: 2, flags: FlagResend, to: 2}, {bitmap: 1, flags: FlagResend, to: 1}},
			PSStats{Arrived: 6, Merged: 3, Duplicate: 3, Completed: 1, Answered: 3}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			const lanes, psn = 3, 1000
			ps, err := NewPS(PSConfig{Job: 2, Epoch: 4, Workers: 3, Lanes: lanes, Window: 8, Unicast: c.unicast})
			if err != nil {
				t.Fatal(err)
			}
			ref := NewReference(*seed, 2, 3)
			for i, s := range c.steps {
				h := Header{Flags: s.flags, Job: 2, Epoch: 4, PSN: psn, Slot: 77, Rank: NoRank, Lanes: lanes, Bitmap: s.bitmap}
				b, part := make([]byte, HeaderLen+4*lanes), make([]byte, 4*lanes)
				for r := range Ranks(s.bitmap) {
					if !s.sum {
						h.Rank = uint8(r)
					}
					ref.Fill(part, r, psn)
					addLanes(b[HeaderLen:], part)
				}
				h.Put(b)
				result, to := ps.Receive(b)
				if to != s.to {
					t.Fatalf("step %d: result for workers %b, want %b", i, to, s.to)
				}
				if to == 0 {
					continue
				}
				want := Header{Flags: FlagResult | s.result, Job: 2, Epoch: 4, PSN: psn, Slot: 77, Rank: NoRank, Lanes: lanes, Bitmap: all}
				if got, err := ParseHeader(result); err != nil || s.flags&FlagResend == 0 && got != want {
					t.Errorf("step %d: result %+v (%v), want %+v", i, got, err, want)
				}
				if wrong := ref.Check(result[HeaderLen:], psn); wrong != 0 {
					t.Errorf("step %d: %d lanes wrong", i, wrong)
				}
			}
			if got := ps.Stats(); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestNewPSRefuses(t *testing.T) {
	good := PSConfig{Job: 1, Workers: 2, Lanes: 240, Window: 8}
	if _, err := NewPS(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*PSConfig){
		"job":     func(c *PSConfig) { c.Job = 0 },
		"workers": func(c *PSConfig) { c.Workers = 65 },
		"lanes":   func(c *PSConfig) { c.Lanes = 241 },
		"window":  func(c *PSConfig) { c.Window = 0 },
	} {
		c := good
		spoil(&c)
		if p, err := NewPS(c); err == nil || p != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkPS(b *testing.B) {
	const workers = 8
	ps, err := NewPS(PSConfig{Job: 1, Workers: workers, Lanes: MaxLanes, Window: 256})
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, HeaderLen+4*MaxLanes)
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for i := range b.N {
		Header{Job: 1, PSN: uint32(i / workers), Rank: uint8(i % workers), Lanes: MaxLanes, Bitmap: 1 << (i % workers)}.Put(buf)
		ps.Receive(buf)
	}
}
