package vector_test

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/ina/vector"
)

// load are the vectors of all programs.
func load(t *testing.T) (all []vector.Vector) {
	for _, dir := range []string{"../testdata/vectors", "../testdata/chip"} {
		vs, err := vector.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, vs...)
	}
	return all
}

// The state machine does what the vectors say.
func TestModel(t *testing.T) {
	for _, v := range load(t) {
		t.Run(v.Name, func(t *testing.T) {
			if err := vector.Run(v, vector.NewModel(v.Program)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A switch that does otherwise is found out: one that forgets to aggregate, of all vectors
// in which something is summed.
func TestRunFindsFaults(t *testing.T) {
	for _, v := range load(t) {
		sums := false
		for i := range v.Steps {
			if c := v.Steps[i].Count; c != nil && c.Packets["aggregated"] > 0 {
				sums = true
			}
		}
		if err := vector.Run(v, forgetful{vector.NewModel(v.Program)}); sums && err == nil {
			t.Errorf("%s: a switch without an aggregator passes", v.Name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"job 1", "before the first vector"},
		{"vector v\nout 1 psn=0", "must follow what arrives"},
		{"vector v\njob 1 color=3", "a job has no \"color\""},
		{"vector v\njob", "a number is missing"},
		{"vector v\nin 1 lanes=1x241", "241 lanes"},
		{"vector v\nin 1 flags=loud", "there is no \"loud\""},
		{"vector v\ncount 1 hold=3", "there is no counter \"hold\""},
		{"vector v\nin 1 rank", "not of the form key=value"},
		{"vector v\nwait", "there is no step"},
		{"program lanes=241\nvector v", "241 lanes are summed"},
		{"program colour=3\nvector v", "a program has no \"colour\""},
		{"vector v\nprogram named=true", "there is no step"},
	} {
		if _, err := vector.Parse("f", strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.text, err, tc.want)
		}
	}
}

// forgetful has no memory for any job.
type forgetful struct{ *vector.Model }

func (f forgetful) SetJob(e ina.JobEntry) error {
	e.Size = 0
	return f.Model.SetJob(e)
}

// Whatever a file says, reading it is an error or vectors that can be run; a switch that is
// asked for what it refuses says so and does not panic.
func FuzzParse(f *testing.F) {
	f.Add("vector v\njob 1 epoch=7 mode=statistical size=4 expect=0,1 window=4 up=4 down=1\nin 1 psn=0 rank=0 lanes=1+2x240\nout 4 psn=0\ncount 1 in=1")
	f.Add("program lanes=32 whole=true named=true merges=true\nvector v\njob 1 mode=synchronous size=4 expect=0 window=2\nin 1 slot=3 rank=0 lanes=1x32")
	f.Add("vector v\ngroup 1 1 2\ndelete 1\nin 511 job=65535 flags=result,lock lanes=-0x80000000")
	f.Fuzz(func(t *testing.T, text string) {
		vs, err := vector.Parse("f", strings.NewReader(text))
		if err != nil {
			if vs != nil {
				t.Errorf("an error and %d vectors", len(vs))
			}
			return
		}
		for _, v := range vs {
			_ = vector.Run(v, vector.NewModel(v.Program))
		}
	})
}
