package training

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/hosts/hoststest"
	"github.com/inabench/inabench/testbed/stall"
)

// codeOf is by which code an error is known, and the job.
func codeOf(err error) (code, job string) {
	var b *broken
	if errors.As(err, &b) {
		return b.Broken()
	}
	return "", ""
}

// aRank is one that has begun at 100 s of its host's clock, 90 s ahead of the run's, on which it
// is now 20 s.
func aRank(asked int64) *rank {
	p := newRank("A/1", "h2")
	p.asked, p.now = asked, func() time.Duration { return 20 * time.Second }
	p.SetClock(collectors.Clock{Offset: -90})
	p.Take(&agent.Event{Event: "started", T: 100})
	return p
}

// gone is a rank whose process has ended well, after it has said something.
func gone(p *rank, says ...*agent.Event) *rank {
	var text []byte
	for _, e := range says {
		line, _ := json.Marshal(e)
		text = append(append(text, line...), '\n')
	}
	p.Start(hoststest.Said(text))
	p.Listen(func(error) {})
	return p
}

// A rank that ends before its time, or whose reports come from the future, has failed, and says
// who it is.
func TestOdd(t *testing.T) {
	event := func(name string, at float64, iterations int64) *agent.Event {
		return &agent.Event{Event: name, T: at, Stats: &agent.Stats{Iterations: iterations}}
	}
	for _, c := range []struct {
		name  string
		asked int64
		told  bool
		event *agent.Event
		code  string
		want  string
	}{
		{"a sample", 8, false, event("sample", 110, 3), "", ""},
		{"done with all", 8, false, event("done", 110, 8), "", ""},
		{"done with some", 8, false, event("done", 110, 3), results.CodeIterations, "rank A/1 on host h2: ended by itself: it did 3 of 8 iterations"},
		{"done with more", 8, false, event("done", 110, 9), results.CodeIterations, "it did 9 of 8 iterations"},
		{"done when told", 8, true, event("done", 110, 3), "", ""},
		{"a background job that leaves", 0, false, event("done", 110, 3), results.CodeJobEnded, "rank A/1 on host h2: ended by itself, and was to go on"},
		{"a background job that was told", 0, true, event("done", 110, 3), "", ""},
		{"a clock that jumps", 8, false, event("sample", 112, 3), results.CodeCounters, "rank A/1 on host h2: reports from the future: its clock is 2.00 s ahead"},
		{"a clock that drifts", 8, false, event("sample", 110.5, 3), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := aRank(c.asked)
			p.told = c.told
			p.Take(c.event)
			err := p.Err()
			if (err != nil) != (c.code != "") {
				t.Fatal(err)
			}
			if err == nil {
				return
			}
			if code, job := codeOf(err); code != c.code || job != "A" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s of job %s: %v, want %s: %s", code, job, err, c.code, c.want)
			}
		})
	}
}

// Whoever others waited for, and who says nothing itself, stands still.
func TestWhyStandsStill(t *testing.T) {
	said := func(what string) *rank {
		p := newRank("A/0", "h1")
		p.asked = 8
		return gone(p, &agent.Event{Event: "error", Error: what})
	}
	left := gone(aRank(8), &agent.Event{Event: "done", T: 101, Stats: &agent.Stats{Iterations: 1}})
	for _, c := range []struct {
		name  string
		ranks []*rank
		code  string
		says  []string
	}{
		{"hangs", []*rank{said("ring: " + collective.ErrSilent.Error() + ": rank 1"), aRank(8)}, results.CodeJobStopped,
			[]string{"rank A/1 on host h2: stands still: it did 0 of 8 iterations", "rank A/0 on host h1: ring"}},
		{"has left", []*rank{said("rank is gone: rank 1"), left}, results.CodeIterations, []string{"rank A/1 on host h2: ended by itself: it did 1 of 8"}},
		{"something else", []*rank{said("no such device"), aRank(8)}, "", []string{"rank A/0 on host h1: no such device"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			failed := make(chan struct{})
			close(failed)
			err := (&ranks{all: c.ranks, failed: failed}).wait()
			if err == nil {
				t.Fatal("no error")
			}
			if code, _ := codeOf(err); code != c.code {
				t.Errorf("%q, want %q: %v", code, c.code, err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v, want %s", err, s)
				}
			}
		})
	}
}

// patient is hosts on which nothing is silent.
type patient struct{ Hosts }

func (patient) Silence(context.Context, *hosts.Talk, string, time.Duration) error { return nil }

// A rank that reports and does nothing is given up: nobody else may be there to miss it. To keep
// its connections alive is nothing.
func TestStandsStill(t *testing.T) {
	p := aRank(8)
	p.patience = 10 * time.Millisecond
	sample := func(packets, bytes int64) {
		p.Take(&agent.Event{Event: "sample", T: 101, Stats: &agent.Stats{Iterations: 1, PacketsSent: packets, BytesSent: bytes}})
	}
	sample(5, 5000)
	before := p.progress()
	if sample(6, 5000+collective.TCPOverhead); p.progress() != before {
		t.Error("a segment without a byte is progress")
	}
	if sample(7, 5001+2*collective.TCPOverhead); p.progress() == before {
		t.Error("a byte is no progress")
	}
	p.attend(t.Context(), patient{})
	err, silent := p.failure()
	if code, _ := codeOf(err); code != results.CodeJobStopped || !silent || !strings.Contains(err.Error(), "rank A/1 on host h2: stands still: it did 1 of 8 iterations") {
		t.Errorf("%v", err)
	}
}

func TestPatience(t *testing.T) {
	for _, c := range []struct {
		cfg  agent.Config
		want time.Duration
	}{
		{agent.Config{}, 60 * time.Second},
		{agent.Config{Timeout: time.Second, Compute: 10, Speed: .5}, 22 * time.Second},
		{agent.Config{Timeout: time.Second, Pattern: &agent.Pattern{Step: 10}}, 12 * time.Second},
	} {
		if got := patience(&c.cfg); got != c.want {
			t.Errorf("%+v: %v, want %v", c.cfg, got, c.want)
		}
	}
}

// Stalls of ranks are on the run's clock, and those before they began are not theirs.
func TestRankStalls(t *testing.T) {
	spans := func(start, end float64) []stall.Span {
		return []stall.Span{{Start: time.Duration(start * 1e9), End: time.Duration(end * 1e9), Late: time.Duration((end - start) * 1e9)}}
	}
	p := newRank("A/1", "h2")
	p.asked, p.now = 8, func() time.Duration { return 20 * time.Second }
	p.SetClock(collectors.Clock{Offset: -90})
	p.Take(&agent.Event{Event: "sample", T: 101, Stats: &agent.Stats{}, Stalls: spans(99, 99.5)})
	p.Take(&agent.Event{Event: "started", T: 100})
	p.Take(&agent.Event{Event: "sample", T: 104, Stats: &agent.Stats{}, Stalls: spans(102, 103)})
	got := (&ranks{all: []*rank{p}}).stalls()
	if len(got) != 1 || got[0].Start != 12*time.Second || got[0].End != 13*time.Second || got[0].Where != "rank A/1 on host h2" {
		t.Errorf("%+v", got)
	}
}
