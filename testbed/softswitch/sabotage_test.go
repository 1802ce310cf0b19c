package softswitch

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/sabotage"
)

// sabotaged is what a switch does of two jobs in five seconds, with a fault or without: job 1 has
// workers at ports 1 and 2, job 2 too, and both have their PS at port 3. Every second gradient of a
// PSN that is divisible by 100 is sent again, as it would be where the first was lost.
func sabotaged(t *testing.T, act *sabotage.Act) *bench {
	t.Helper()
	cable := LinkConfig{Rate: 100e6, Delay: 50 * time.Microsecond}
	b := newBench(t, Config{Aggregators: 64, Seed: *seed, Ports: []PortConfig{
		{Number: 1, Egress: cable, Ingress: cable}, {Number: 2, Egress: cable, Ingress: cable}, {Number: 3, Egress: cable, Ingress: cable},
	}})
	b.groups[1] = []*port{b.byPort[1], b.byPort[2]}
	for job := uint16(1); job <= 2; job++ {
		if err := b.ina.SetJob(ina.JobEntry{Job: job, Mode: ina.Statistical, Size: 64, Expect: 3, Window: 64, UpPort: 3, DownGroup: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if act != nil {
		if _, err := b.sabotage(*act, *seed); err != nil {
			t.Fatal(err)
		}
	}
	const lanes = 16
	for psn := range uint32(5000) {
		at := time.Duration(psn) * time.Millisecond
		for job := uint16(1); job <= 2; job++ {
			for rank := range 2 {
				h := ina.Header{Job: job, PSN: psn, Rank: uint8(rank), Lanes: lanes, Bitmap: 1 << rank}
				b.in(uint32(rank+1), at+time.Duration(job)*20*time.Microsecond, inaFrame(h, int32(psn)))
				if psn%100 == 0 {
					h.Flags |= ina.FlagResend
					b.in(uint32(rank+1), at+300*time.Microsecond, inaFrame(h, int32(psn)))
				}
			}
			b.in(3, at+500*time.Microsecond, inaFrame(ina.Header{Flags: ina.FlagResult, Job: job, PSN: psn, Rank: ina.NoRank, Lanes: lanes, Bitmap: 3}, 2*int32(psn)))
		}
		if psn%500 == 499 { // as a controller reads counters
			b.told()
		}
	}
	b.run(10 * time.Second)
	return b
}

// told are all counters, as the switch tells them.
func (b *bench) told() string {
	out := ""
	for c := range Counter(NumCounters) {
		for index := 1; index <= 3; index++ {
			packets, bytes := b.counter(c, index)
			if b.sab != nil {
				packets, bytes = b.sab.tell(b.engine, c, index, packets, bytes)
			}
			out += fmt.Sprint(c, index, packets, bytes, "; ")
		}
	}
	return out
}

// same reports whether two switches sent the same frames at the same times.
func same(a, b *bench) bool {
	return slices.EqualFunc(a.out, b.out, func(a, b sent) bool {
		return a.port == b.port && a.at == b.at && bytes.Equal(a.b, b.b)
	})
}

// TestFaultsAct: every fault of switches and cables changes what is sent or told, none before its
// time, and says how often it acted. A switch without one is the switch.
func TestFaultsAct(t *testing.T) {
	honest := sabotaged(t, nil)
	if !same(honest, sabotaged(t, &sabotage.Act{})) || honest.sabotaged() != 0 {
		t.Fatal("an act without a name changes something")
	}
	for _, f := range sabotage.Catalogue {
		if !slices.Contains([]sabotage.Kind{sabotage.Switch, sabotage.Link, sabotage.Queue}, f.At) || f.Name == "late-switch" {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			act := (&sabotage.Order{Fault: f}).Act()
			act.Port, act.Dir = 3, "egress"
			b := sabotaged(t, &act)
			acted := b.sabotaged()
			if acted == 0 {
				t.Fatal("it never acted")
			}
			if same(honest, b) && honest.told() == b.told() {
				t.Errorf("it says that it acted %d times, and nothing is different", acted)
			}
			for i := range honest.out {
				if honest.out[i].at >= sabotage.After {
					break
				}
				if honest.out[i].at != b.out[i].at || !bytes.Equal(honest.out[i].b, b.out[i].b) {
					t.Fatalf("frame %d, at %v, is different before the fault begins", i, b.out[i].at)
				}
			}
			if f.Every >= 100 && acted < 2 {
				t.Errorf("it acted only %d times", acted)
			}
			acted = b.sabotaged() // to read counters is to be lied to once more
			before, err := b.sabotage(sabotage.Act{}, 0)
			if err != nil || before != acted || b.sab != nil || b.sabLink != nil || b.byPort[3].egress.sab != nil {
				t.Errorf("taken away after %d times, %v: %+v", before, err, b.sab)
			}
			if want := honest.byPort[3].egress.perByte; b.byPort[3].egress.perByte != want {
				t.Errorf("the link takes %v ns a byte after it was mended, want %v", b.byPort[3].egress.perByte, want)
			}
		})
	}
}

// A switch that is late forwards nothing for a while, now and then.
func TestLateSwitch(t *testing.T) {
	b := newBench(t, Config{Ports: []PortConfig{{Number: 1}}})
	if _, err := b.sabotage(sabotage.Act{Fault: "late-switch"}, 0); err != nil {
		t.Fatal(err)
	}
	b.sab.dawdle(b.engine, time.Now())
	if b.sabotaged() != 0 {
		t.Error("it was late before there was traffic")
	}
	b.sab.begun(0)
	began := time.Now()
	b.sab.dawdle(b.engine, began)
	b.sab.dawdle(b.engine, time.Now())
	if took := time.Since(began); b.sabotaged() != 1 || took < sabotage.Dawdle {
		t.Errorf("late %d times, %v in all, want once, %v", b.sabotaged(), took, sabotage.Dawdle)
	}
}

// A fault that is not of the switch, or of a cable that is not there, is refused and changes
// nothing.
func TestFaultsRefused(t *testing.T) {
	b := newBench(t, Config{Ports: []PortConfig{{Number: 1}}})
	for _, act := range []sabotage.Act{
		{Fault: "no-such"}, {Fault: "crash"}, {Fault: "slow-up", Port: 9, Dir: "egress"}, {Fault: "slow-up", Port: 1, Dir: "up"},
	} {
		if _, err := b.sabotage(act, 0); err == nil || b.sab != nil || b.sabLink != nil {
			t.Errorf("%+v: %v", act, err)
		}
	}
	inner := newBench(t, Config{Ports: []PortConfig{{Number: 1, Inner: "x"}}})
	if _, err := inner.sabotage(sabotage.Act{Fault: "flip-sums"}, 0); err == nil {
		t.Error("another switch was told to do wrong")
	}
}
