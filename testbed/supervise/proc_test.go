package supervise

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194560 100 0 0 0 1 2 3 4 20 0 1 0 98765 1000 50 18446744073709551615\n"
	p, err := parseStat([]byte("42 (a (b) ) R c) T" + rest))
	if err != nil || p.PID != 42 || p.Name != "a (b) ) R c" || p.State != "T" || !p.Stopped() || p.parent != 1 || p.group != 7 || p.Start != 98765 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "42", "42 (x", "42 (x) S 1", "x (x) S" + rest, "42 )x( S" + rest} {
		if p, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, p)
		}
	}
	self, err := readProcess("self")
	if err != nil || self.PID != os.Getpid() || self.parent != os.Getppid() || self.State == "" {
		t.Errorf("this process: %+v, %v", self, err)
	}
}

func TestBootTime(t *testing.T) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	if at, err := BootTime(stat); err != nil || at.After(time.Now()) || at.Year() < 2000 {
		t.Errorf("this machine was started at %v, %v", at, err)
	}
	if _, err := BootTime([]byte("cpu 1 2\nbtime x\n")); err == nil {
		t.Error("btime x")
	}
	if _, err := BootTime(nil); err == nil {
		t.Error("no btime")
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a b) S 1 7 7 0 -1 4194560 100 0 0 0 1 2 3 4 20 0 1 0 98765 1000 50"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parseStat(text)
		if (err != nil) != (p == Process{}) {
			t.Errorf("%+v, %v", p, err)
		}
		if err == nil && len(p.State) != 1 {
			t.Errorf("state %q", p.State)
		}
		if all := below([]Process{p}, p.PID); len(all) > 0 && all[0].PID == p.PID {
			t.Errorf("%d is below itself", p.PID)
		}
	})
}

func FuzzParseLease(f *testing.F) {
	f.Add([]byte(`{"inabench":"process","run":"R","name":"worker A/0","host":"h1","boot":"b","pid":42,"start":7,"argv":["agent"],"began":"2026-11-21T21:00:00Z","renewed":"2026-11-21T21:00:00.5Z","expires":"2026-11-21T21:00:10Z"}   ` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := ParseLease(text)
		if err != nil {
			if l.PID != 0 || l.Mark != "" {
				t.Errorf("%+v, %v", l, err)
			}
			return
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if l2, err := ParseLease(again); err != nil || l2.PID != l.PID || l2.Born != l.Born || l2.Host != l.Host {
			t.Errorf("%+v became %+v, %v, by way of %s", l, l2, err, strconv.Quote(string(again)))
		}
	})
}
