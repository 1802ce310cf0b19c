package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/journal"
)

// roomy is a switch with room for so many jobs.
type roomy struct {
	dataplane.Switch
	jobs int
}

func (r roomy) Jobs() int { return r.jobs }

// TestJobsOfAllSwitches: ids are those that every switch has room for.
func TestJobsOfAllSwitches(t *testing.T) {
	for _, c := range []struct {
		rooms []int
		want  int
	}{{nil, 0}, {[]int{4095}, 4095}, {[]int{4095, 127}, 127}, {[]int{127, 4095, 63}, 63}} {
		tb := &Testbed{planes: map[string]dataplane.Switch{}}
		for i, n := range c.rooms {
			tb.planes[fmt.Sprint(i)] = roomy{jobs: n}
		}
		if got := tb.Capabilities().Jobs; got != c.want {
			t.Errorf("%v: %d, want %d", c.rooms, got, c.want)
		}
	}
}

// TestJobsNotEntered: jobs that the journal could not take are journalled when they are written once more.
func TestJobsNotEntered(t *testing.T) {
	dir := t.TempDir()
	open := func() *journal.Journal {
		log, err := journal.Open(dir, journal.Header{Run: "run", Owner: "me", Began: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	batches := map[string]*dataplane.Batch{"tor1": {Jobs: []ina.JobEntry{{Job: 1, Epoch: 1, DownGroup: 1}}}}
	full := open()
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	tb := &Testbed{opt: Options{Hold: Hold{Journal: full}}}
	if err := tb.enterJobs(batches); err == nil {
		t.Error("a journal that cannot be written has them")
	}
	log := open()
	defer log.Close()
	tb.opt.Hold.Journal = log
	if err := tb.enterJobs(batches); err != nil {
		t.Fatal(err)
	}
	if left := log.Log().Undone(); len(left) != 1 || left[0].Target != "switch tor1" {
		t.Errorf("to undo: %+v", left)
	}
	if err := tb.leaveJobs("tor1", batches["tor1"]); err != nil {
		t.Error(err)
	}
	if left := log.Log().Undone(); len(left) != 0 {
		t.Errorf("after they were forgotten: %+v", left)
	}
}
