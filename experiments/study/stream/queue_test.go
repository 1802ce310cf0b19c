package stream_test

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/study/stream"
	"github.com/inabench/inabench/placement/netpack"
)

// Four GPUs, which job a has for 100 s. Then b and d fit side by side, or c alone.
const queued = `job_id,submit_s,duration_s,gpus,user,value
a,0,100,4,ann,
b,1,100,3,ann,
c,2,100,4,bob,
d,3,50,1,ann,
`

// TestQueue: who waits for whom, by what [trace] says of it.
func TestQueue(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"jobs.csv":   queued,
		"valued.csv": strings.Replace(queued, "bob,", "bob,4", 1),
		"x.toml": `version = 1
on = "sim"
[fat_tree]
racks = 1
hosts = 1
gpus = 4
[placement]
policy = "netpack"
[trace]
from = "jobs.csv"
models = ["resnet50"]
period = "0s"
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		sets []string
		want string // jobs in the order in which they start, those that start together in that of the file
	}{
		{nil, "abdc"},
		{[]string{"trace.queue=fcfs"}, "abcd"},
		{[]string{"trace.queue=backfill"}, "abdc"},
		{[]string{"trace.user_values=bob=4"}, "acbd"},
		{[]string{"trace.from=" + filepath.Join(dir, "valued.csv")}, "acbd"},
		{[]string{"trace.user_values=bob=4,ann=4"}, "abdc"},
		{[]string{"trace.user_values=bob=4", "trace.queue=fcfs"}, "abcd"},
		{[]string{"trace.user_values=bob=4", "trace.resample=windows", "trace.block=2s"}, "ab"}, // none is bob's
	} {
		s, err := kinds.Load(filepath.Join(dir, "x.toml"), tt.sets...)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := kinds.Simulator(s, "sim").Simulate(t.Context(), s, 0)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(rep.Rows, func(a, b []string) int { return cmp.Compare(start(t, a), start(t, b)) })
		var got string
		for _, row := range rep.Rows {
			got += row[0]
		}
		if got != tt.want {
			t.Errorf("%v: jobs start as %s, want %s", tt.sets, got, tt.want)
		}
	}
	s, err := kinds.Load(filepath.Join(dir, "x.toml"), "trace.user_values=bop=4")
	if err == nil {
		_, err = kinds.Simulator(s, "sim").Simulate(t.Context(), s, 0)
	}
	if err == nil || !strings.Contains(err.Error(), `jobs.csv has no job of user "bop", to whom user_values gives a value`) {
		t.Errorf("error %v", err)
	}
}

// start is when the job of a row did, s.
func start(t *testing.T, row []string) float64 {
	t.Helper()
	at, err := strconv.ParseFloat(row[3], 64)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestAgeing: what a trace does not say of ageing is what NetPack has.
func TestAgeing(t *testing.T) {
	f, _ := reflect.TypeFor[stream.Trace]().FieldByName("Ageing")
	if got, err := strconv.ParseFloat(f.Tag.Get("default"), 64); err != nil || got != netpack.DefaultAgeing {
		t.Errorf("trace.ageing is %v by default, netpack.DefaultAgeing %v: %v", got, netpack.DefaultAgeing, err)
	}
}
