package experiments

import (
	"errors"
	"io/fs"
	"math"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
)

// TestPast: a job's past stays short and in order, reaches from its beginning to now, and mixes no phases.
func TestPast(t *testing.T) {
	var p past
	const n = 5000
	for i := range n {
		p.add(results.RateNow{T: float64(i), Goodput: float64(i % 1000), Predicted: float64(1 + i/1000)})
		all := p.whole()
		if len(all) > mostPast || all[0].T > float64(i)/60 || all[len(all)-1].T < float64(i)*(1-1./60) {
			t.Fatalf("after %d: %d rates, from %v to %v", i, len(all), all[0].T, all[len(all)-1].T)
		}
	}
	all := p.whole()
	for i, r := range all {
		if i > 0 && r.T <= all[i-1].T || int(r.T)/1000+1 != int(r.Predicted) || math.Abs(r.Goodput-math.Mod(r.T, 1000)) > 1e-9 {
			t.Errorf("rate %d: %+v", i, r)
		}
	}
}

// TestOnlookers checks that the report is renewed even if nothing happens, starts a new past with each point, and is removed
// at the end.
func TestOnlookers(t *testing.T) {
	t.Parallel()
	dir := &results.Dir{Path: t.TempDir()}
	var o onlookers
	scene := &study.Scene{Jobs: []study.Moving{{Job: "A", Goodput: 5, Predicted: 6}}, Links: map[string]float64{"h1->tor1": 7}, Next: "B begins", In: time.Minute}
	o.tell(dir, Status{Stage: "measure", Of: 2}, scene)
	o.end()
	if _, err := results.ReadNow(dir.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of what takes no second: %v", err)
	}
	o = onlookers{every: 250 * time.Millisecond}
	var last results.Now
	said := func(want func(results.Now) bool) {
		t.Helper()
		began := last.Written
		for range 1000 {
			n, err := results.ReadNow(dir.Path)
			if last = n; err == nil && n.Written.After(began) && want(n) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%+v", last)
	}
	o.tell(dir, Status{Stage: "bring up", Of: 2}, nil)
	for range 2 { // twice, though nothing happens
		said(func(n results.Now) bool { return n.Stage == "bring up" })
	}
	o.tell(dir, Status{Stage: "measure", Of: 2}, scene)
	if o.due() {
		t.Error("a scene is due at once")
	}
	said(func(n results.Now) bool {
		return n.Stage == "measure" && n.Next == "B begins" && time.Until(n.NextAt) > 50*time.Second && n.Links["h1->tor1"] == 7 &&
			len(n.Jobs) == 1 && n.Jobs[0].Predicted == 6 && len(n.Jobs[0].Past) > 0
	})
	for began := time.Now(); !o.due(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 2*told {
			t.Fatal("no scene is due after two seconds")
		}
	}
	o.tell(dir, Status{Stage: "measure", Of: 2, Done: 1}, &study.Scene{Jobs: []study.Moving{{Job: "B", Goodput: 1}}})
	said(func(n results.Now) bool {
		return n.Done == 1 && n.Next == "" && len(n.Jobs) == 1 && n.Jobs[0].Job == "B" && len(n.Jobs[0].Past) == 1
	})
	o.tell(dir, Status{Stage: "tear down", Of: 2, Done: 2}, nil)
	said(func(n results.Now) bool { return n.Stage == "tear down" && n.Jobs == nil })
	o.end()
	if _, err := results.ReadNow(dir.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of what has ended: %v", err)
	}
}
