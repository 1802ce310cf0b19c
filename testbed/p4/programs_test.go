package p4

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/inabench/inabench/testbed/ina"
)

// The program that is committed was compiled from the source that is.
func TestProgramIsOfItsSource(t *testing.T) {
	for _, name := range []string{"ina_v1model", "ina_chip"} {
		src, err := os.ReadFile(name + ".p4")
		if err != nil {
			t.Fatal(err)
		}
		_, config, build, err := program(name)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.Sum256(src)
		if got := hex.EncodeToString(h[:]); got != build.Source {
			t.Errorf("%s.p4 has SHA-256 %s, its artefacts were made from %s: run `just p4` with p4c installed, and commit what it writes", name, got, build.Source)
		}
		if build.Compiler == "" || len(config) == 0 {
			t.Errorf("%s: compiler %q, %d bytes of program", name, build.Compiler, len(config))
		}
	}
}

// What the program offers is, as far as it goes, what Info describes: the same client
// drives all switches. Ids and widths are the same too, though a client does not need that.
func TestProgramIsAsDescribed(t *testing.T) {
	info, _, _, err := BMv2()
	if err != nil {
		t.Fatal(err)
	}
	all := Info()
	for _, a := range info.GetActions() {
		i := slices.IndexFunc(all.Actions, func(b *p4configv1.Action) bool { return lastName(b.Preamble) == lastName(a.Preamble) })
		if i < 0 {
			if len(a.Params) > 0 && lastName(a.Preamble) != "descend" {
				t.Errorf("Info has no action %q", lastName(a.Preamble))
			}
			continue // a step of the program that no table has
		}
		b := all.Actions[i]
		if a.Preamble.Id != b.Preamble.Id {
			t.Errorf("action %s has id %#x, Info says %#x", lastName(a.Preamble), a.Preamble.Id, b.Preamble.Id)
		}
		var got, want []string
		for _, p := range a.Params {
			got = append(got, p.GetName()+":"+string(rune('0'+p.GetId()))+":"+string(Bytes(uint64(p.GetBitwidth()))))
		}
		for _, p := range b.Params {
			want = append(want, p.GetName()+":"+string(rune('0'+p.GetId()))+":"+string(Bytes(uint64(p.GetBitwidth()))))
		}
		if !slices.Equal(got, want) {
			t.Errorf("action %s has parameters %q, Info says %q", lastName(a.Preamble), got, want)
		}
	}
	for _, a := range info.GetTables() {
		i := slices.IndexFunc(all.Tables, func(b *p4configv1.Table) bool { return lastName(b.Preamble) == lastName(a.Preamble) })
		if i < 0 {
			t.Errorf("Info has no table %q", lastName(a.Preamble))
			continue
		}
		b := all.Tables[i]
		if a.Preamble.Id != b.Preamble.Id || a.Size != b.Size || a.MatchFields[0].GetBitwidth() != b.MatchFields[0].GetBitwidth() {
			t.Errorf("table %s: %v, Info says %v", lastName(a.Preamble), a, b)
		}
	}
	for _, a := range info.GetCounters() {
		name := lastName(a.Preamble)
		if strings.HasSuffix(name, "_bits") || name == "port_full" || name == "port_over" {
			continue // counted otherwise, see Counter.Digits; of queues that only BMv2 has
		}
		i := slices.IndexFunc(all.Counters, func(b *p4configv1.Counter) bool { return lastName(b.Preamble) == name })
		if i < 0 {
			t.Errorf("Info has no counter %q", name)
			continue
		}
		if b := all.Counters[i]; a.Preamble.Id != b.Preamble.Id || a.Size != b.Size {
			t.Errorf("counter %s has id %#x and %d cells, Info says %#x and %d", name, a.Preamble.Id, a.Size, b.Preamble.Id, b.Size)
		}
	}
}

// A data plane cannot refuse an entry that it cannot follow, so its controller does.
func TestProgramLimits(t *testing.T) {
	info, _, _, err := BMv2()
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPipeline(info)
	if err != nil {
		t.Fatal(err)
	}
	fits := ina.JobEntry{Job: 127, Mode: ina.Statistical, Addressing: ina.Pool, Base: 1, Size: 16383, Expect: 3, Window: 2048, UpPort: 4, DownGroup: 1}
	for _, tc := range []struct {
		name string
		edit func(*ina.JobEntry)
		want string
	}{
		{"all that it has", func(*ina.JobEntry) {}, ""},
		{"job", func(e *ina.JobEntry) { e.Job = 128 }, "the program sums jobs 1..127"},
		{"memory", func(e *ina.JobEntry) { e.Size++ }, "aggregators 1+16384, the program has 16384"},
		{"memory that wraps", func(e *ina.JobEntry) { e.Base, e.Size = 1<<31, 1<<31 }, "the program has 16384"},
		{"window", func(e *ina.JobEntry) { e.Window = 2049 }, "remembers decisions for 2048"},
		{"forwarded jobs need no memory", func(e *ina.JobEntry) { e.Job, e.Mode = 4095, ina.Forward }, ""},
		{"synchronous jobs have no ring", func(e *ina.JobEntry) { e.Mode, e.Window = ina.Synchronous, 4096 }, ""},
		{"exclusive trees", func(e *ina.JobEntry) { e.Mode = ina.Exclusive }, "no exclusive trees"},
	} {
		e := fits
		tc.edit(&e)
		_, err := p.EncodeJob(e)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	chip := p.Limits()
	chip.Powers, chip.Synchronous, chip.Workers, chip.Addressing = true, false, 31, []ina.Addressing{ina.Linear, ina.Hash}
	fits.Addressing, fits.Base, fits.Size = ina.Hash, 4096, 4096
	for _, tc := range []struct {
		name string
		edit func(*ina.JobEntry)
		want string
	}{
		{"aligned", func(*ina.JobEntry) {}, ""},
		{"no memory", func(e *ina.JobEntry) { e.Base, e.Size = 3, 0 }, ""},
		{"no power of two", func(e *ina.JobEntry) { e.Size = 4095 }, "a power of two"},
		{"not aligned", func(e *ina.JobEntry) { e.Base = 2048 }, "from a multiple of it on"},
		{"pool", func(e *ina.JobEntry) { e.Addressing = ina.Pool }, "the program addresses by hash, linear"},
		{"synchronous", func(e *ina.JobEntry) { e.Mode = ina.Synchronous }, "no synchronous mode"},
		{"workers", func(e *ina.JobEntry) { e.Expect = 1 << 31 }, "worker 31, the program knows ranks below 31"},
	} {
		e := fits
		tc.edit(&e)
		_, err := p.EncodeJob(e)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	if m := p.EncodeResends(fits, false); m.GetMulticastGroupId() != 0xF80|127 || len(m.GetReplicas()) != 2 ||
		m.Replicas[0].GetEgressPort() != 4 || m.Replicas[0].Instance == m.Replicas[1].Instance {
		t.Errorf("group for resends: %v", m)
	}
}

// A counter by digits is one counter to its reader, under the name without "_bits".
func TestCountersByDigits(t *testing.T) {
	info, _, _, err := BMv2()
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPipeline(info)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Counter("job_hold")
	if err != nil || !c.Digits || c.Size != 128 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := p.Counter("job_hold_bits"); err == nil {
		t.Error("the counter is there by two names")
	}
	if c, err := p.Counter("job_in"); err != nil || c.Digits {
		t.Errorf("%+v, %v", c, err)
	}
}
