package timetable

import (
	"bufio"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/mina/tree"
)

var seed = flag.Uint64("timetable.seed", 1, "of random groups")

// pairs are the models and the scores of pairs of them that the authors' simulator prints.
func pairs(t testing.TB) (jobs []Job, names []string, scores [][]float64) {
	f, err := os.Open("../tree/testdata/pairs.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	number := func(s string) float64 {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		switch w := strings.Fields(lines.Text()); w[0] {
		case "model":
			j := Job{ID: uint32(len(jobs)), Hosts: 3, Step: number(w[2]) / 1.5}
			for _, o := range w[3:] {
				start, bytes, _ := strings.Cut(o, ":")
				j.Ops = append(j.Ops, tree.Op{Start: number(start) / 1.5, Bytes: number(bytes)})
			}
			jobs, names = append(jobs, j), append(names, w[1])
		case "scores":
			var row []float64
			for _, s := range w[2:] {
				row = append(row, number(s))
			}
			scores = append(scores, row)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return jobs, names, scores
}

var cost = tree.Cost{Latency: 50e-6, Bandwidth: 12.5e9, Ratio: 1.5}

func table(t testing.TB, s *Snapshot, me int) *Timetable {
	tt, err := New(s, me)
	if err != nil {
		t.Fatal(err)
	}
	return tt
}

// together runs jobs for some time, each by what its own timetable says, and returns the
// INA efficiency score of the steps that they finish. (It ends in the middle of a step like
// the simulator whose scores these are, or they would differ in the sixth digit.)
func together(t *testing.T, seconds float64, s *Snapshot) float64 {
	type running struct {
		*tree.Pattern
		*Timetable
		began, ends float64
		op          int
		ops, steps  uint64
		busy        bool
	}
	var jobs []*running
	for me, j := range s.Jobs {
		p, err := tree.NewPattern(j.Step, j.Ops, j.Hosts, s.Cost)
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, &running{Pattern: p, Timetable: table(t, s, me)})
	}
	for now := 0.0; now <= seconds; {
		at, next := math.Inf(1), jobs[0]
		for _, j := range jobs {
			event := max(now, j.began+j.Compute())
			if j.busy {
				event = j.ends
			} else if j.op < j.Ops() {
				event = max(now, j.began+j.Earliest(j.op))
			}
			if event < at {
				at, next = event, j
			}
		}
		now = at
		switch j := next; {
		case j.busy:
			j.busy = false
			j.op++
		case j.op < j.Ops():
			ina, begins, ok := j.Ask(j.ops)
			if !ok || begins != now {
				t.Fatalf("operation %d begins at %v: %v %v", j.ops, now, begins, ok)
			}
			j.busy, j.ends = true, now+j.Duration(j.op, ina)
			j.ops++
		default:
			j.began, j.op = now, 0
			j.steps++
		}
	}
	took, with, without := 0.0, 0.0, 0.0
	for _, j := range jobs {
		took += j.began
		with += float64(j.steps) * j.Step(true)
		without += float64(j.steps) * j.Step(false)
	}
	return (took - without) / (with - without)
}

// Two jobs whose hosts ask their timetables score what they do in a simulator that decides
// by what both are doing at that instant.
func TestPairs(t *testing.T) {
	jobs, names, scores := pairs(t)
	worst := 0.0
	for i := range jobs {
		for k := range jobs {
			if !proof.Wanted() && (i+k)%5 > 0 {
				continue
			}
			got, want := together(t, 1000, &Snapshot{Cost: cost, Jobs: []Job{jobs[i], jobs[k]}}), scores[i][k]
			if math.Abs(got-want) > 1e-9 {
				t.Errorf("%s with %s: %.12f, want %.12f", names[i], names[k], got, want)
			}
			worst = max(worst, math.Abs(got-want))
		}
	}
	t.Logf("largest difference: %.1g", worst)
}

// random is a group in the middle of its work.
func random(rng *rand.Rand) *Snapshot {
	s := &Snapshot{Cost: tree.Cost{Latency: 1e-4, Bandwidth: 1e9, Ratio: 1.2 + 2*rng.Float64()}}
	for i := range 1 + rng.IntN(4) {
		j := Job{ID: uint32(i), Hosts: 2 + rng.IntN(3), Step: rng.Float64() / 10}
		at := 0.0
		for range 1 + rng.IntN(5) {
			at += rng.Float64() * j.Step / 5
			j.Ops = append(j.Ops, tree.Op{Start: at, Bytes: 3e7 * rng.Float64()})
		}
		j.Next = rng.Uint64N(100)
		j.Began = rng.Float64() / 10
		if rng.IntN(2) == 0 {
			j.Steps = 100 + rng.Uint64N(10)
		}
		if j.Running = j.Next > 0 && rng.IntN(2) == 0; j.Running {
			j.Ends = rng.Float64() / 50
		}
		if rng.IntN(9) == 0 {
			j.Ops, j.Running = nil, false
		}
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

// Hosts that ask about all operations and hosts that leave some out are told the same, and
// no two rivals have INA at once, in virtual time.
func TestAgreement(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 0))
	t.Logf("-timetable.seed %d", *seed)
	asked := 0
	for range 200 {
		s := random(rng)
		type span struct {
			job        int
			begin, end float64
		}
		var spans []span
		for me, j := range s.Jobs {
			every, some := table(t, s, me), table(t, s, me)
			p, err := tree.NewPattern(j.Step, j.Ops, j.Hosts, s.Cost)
			if err != nil {
				t.Fatal(err)
			}
			for op := j.Next; op < j.Next+60; op++ {
				ina, at, ok := every.Ask(op)
				if want := len(j.Ops) > 0 && (j.Steps == 0 || op < j.Steps*uint64(len(j.Ops))); ok != want {
					t.Fatalf("%+v: operation %d of job %d: %v, want %v", s, op, me, ok, want)
				}
				if rng.IntN(3) == 0 {
					if a, b, c := some.Ask(op); a != ina || b != at || c != ok {
						t.Fatalf("%+v: operation %d of job %d: %v %v %v, and %v %v %v", s, op, me, ina, at, ok, a, b, c)
					}
				}
				if ina {
					asked++
					spans = append(spans, span{me, at, at + p.Duration(int(op%uint64(len(j.Ops))), true)})
				}
			}
			if _, _, ok := every.Ask(j.Next); ok {
				t.Fatalf("operation %d was answered after 60 later ones", j.Next)
			}
		}
		for i, a := range spans {
			for _, b := range spans[:i] {
				if a.job != b.job && a.begin < b.end && b.begin < a.end {
					t.Fatalf("%+v: jobs %d and %d at once: %v-%v and %v-%v", s, a.job, b.job, a.begin, a.end, b.begin, b.end)
				}
			}
		}
	}
	if asked == 0 {
		t.Error("nobody ever asked")
	}
}

// Rivals that are named may use INA at the same time as others.
func TestRivals(t *testing.T) {
	j := Job{Hosts: 2, Step: 1, Ops: []tree.Op{{Start: 0, Bytes: 1}}}
	a, b, c := j, j, j
	a.Rivals, b.Rivals, c.Rivals = []int{1}, []int{0}, []int{}
	s := &Snapshot{Cost: tree.Cost{Bandwidth: 1, Ratio: 2}, Jobs: []Job{a, b, c}}
	for me, want := range []bool{true, false, true} {
		if ina, at, ok := table(t, s, me).Ask(0); ina != want || at != 0 || !ok {
			t.Errorf("job %d: %v at %v, %v", me, ina, at, ok)
		}
	}
}

// A job that is between two steps begins the next one when its computation is over.
func TestBetweenSteps(t *testing.T) {
	j := Job{Hosts: 2, Step: 3, Ops: []tree.Op{{Start: 1, Bytes: 1}}, Next: 5, Began: 2, Steps: 6}
	tt := table(t, &Snapshot{Cost: tree.Cost{Bandwidth: 1, Ratio: 2}, Jobs: []Job{j}}, 0)
	if ina, at, ok := tt.Ask(5); !ina || at != 2 || !ok { // ends after 1 s, then 1 s until there are gradients
		t.Errorf("%v at %v, %v", ina, at, ok)
	}
	if _, _, ok := tt.Ask(6); ok {
		t.Error("the job has but six operations")
	}
	if _, _, ok := tt.Ask(4); ok {
		t.Error("operation 4 was before the snapshot")
	}
}

// Beside a job whose steps are too short to move the time, it ends.
func TestTooShort(t *testing.T) {
	slow := Job{Hosts: 2, Step: 1e9, Ops: []tree.Op{{Start: 1e8, Bytes: 1}}}
	short := Job{Hosts: 2, Step: 1e-300, Ops: []tree.Op{{Start: 0, Bytes: 0}}}
	tt := table(t, &Snapshot{Cost: tree.Cost{Bandwidth: 1, Ratio: 2}, Jobs: []Job{slow, short}}, 0)
	if ina, _, ok := tt.Ask(0); ina || ok {
		t.Errorf("%v %v", ina, ok)
	}
}

func TestErrors(t *testing.T) {
	good := Job{Hosts: 2, Step: 1, Ops: []tree.Op{{Start: 0, Bytes: 1}}}
	for name, change := range map[string]func(s *Snapshot, me *int){
		"no such job":     func(_ *Snapshot, me *int) { *me = 1 },
		"no such rival":   func(s *Snapshot, _ *int) { s.Jobs[0].Rivals = []int{1} },
		"its own rival":   func(s *Snapshot, _ *int) { s.Jobs[0].Rivals = []int{0} },
		"no bandwidth":    func(s *Snapshot, _ *int) { s.Cost.Bandwidth = 0 },
		"not a number":    func(s *Snapshot, _ *int) { s.Jobs[0].Began = math.NaN() },
		"never ends":      func(s *Snapshot, _ *int) { s.Jobs[0].Ends = math.Inf(1) },
		"takes no time":   func(s *Snapshot, _ *int) { s.Jobs[0].Step, s.Jobs[0].Ops[0].Bytes = 0, 0 },
		"nothing can run": func(s *Snapshot, _ *int) { s.Jobs[0].Running = true },
		"too many steps": func(s *Snapshot, _ *int) {
			s.Jobs[0].Steps = math.MaxUint64
			s.Jobs[0].Ops = append(s.Jobs[0].Ops, s.Jobs[0].Ops...)
		},
	} {
		j := good
		j.Ops = append([]tree.Op(nil), good.Ops...)
		s, me := &Snapshot{Cost: tree.Cost{Bandwidth: 1, Ratio: 2}, Jobs: []Job{j}}, 0
		change(s, &me)
		if tt, err := New(s, me); !errors.Is(err, ErrSnapshot) || tt != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkAsk(b *testing.B) {
	jobs, _, _ := pairs(b)
	for _, n := range []int{1, 2, 7} {
		b.Run(strconv.Itoa(n)+"jobs", func(b *testing.B) {
			tt := table(b, &Snapshot{Cost: cost, Jobs: jobs[:n]}, 0)
			b.ReportAllocs()
			op := uint64(0)
			for b.Loop() {
				tt.Ask(op)
				op++
			}
		})
	}
}

// Of two jobs that want the same at once and gain alike, the one with more hosts has it where a job counts as often as it has.
func TestPerHost(t *testing.T) {
	few, many := Job{Hosts: 2, Step: 1, Ops: []tree.Op{{Bytes: 10}}}, Job{Hosts: 4, Step: 1, Ops: []tree.Op{{Bytes: 10}}}
	for _, perHost := range []bool{false, true} {
		s := &Snapshot{Cost: tree.Cost{Bandwidth: 1, Ratio: 2}, PerHost: perHost, Jobs: []Job{few, many}}
		for me, want := range []bool{!perHost, perHost} {
			if ina, _, ok := table(t, s, me).Ask(0); ina != want || !ok {
				t.Errorf("by hosts %v, job %d: %v, want %v", perHost, me, ina, want)
			}
		}
	}
}
