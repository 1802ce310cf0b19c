package tree

import (
	"bufio"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/proof"
)

// model is one of testdata/pairs.txt.
type model struct {
	name   string
	step   float64
	ops    []Op
	scores []float64 // beside each of the models
}

func models(t testing.TB) []model {
	f, err := os.Open("testdata/pairs.txt")
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
	var out []model
	lines, scored := bufio.NewScanner(f), 0
	for lines.Scan() {
		switch w := strings.Fields(lines.Text()); w[0] {
		case "model":
			m := model{name: w[1], step: number(w[2])}
			for _, o := range w[3:] {
				start, bytes, _ := strings.Cut(o, ":")
				m.ops = append(m.ops, Op{number(start), number(bytes)})
			}
			out = append(out, m)
		case "scores":
			for _, s := range w[2:] {
				out[scored].scores = append(out[scored].scores, number(s))
			}
			scored++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// pattern is that of a model on three 1.5 times as fast hosts, INA 1.5 times as fast as none.
func (m *model) pattern(t testing.TB) *Pattern {
	var ops []Op
	for _, o := range m.ops {
		ops = append(ops, Op{o.Start / 1.5, o.Bytes})
	}
	p, err := NewPattern(m.step/1.5, ops, 3, Cost{Latency: 50e-6, Bandwidth: 12.5e9, Ratio: 1.5})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// together runs jobs for some time with what decides on INA for them and returns the INA
// efficiency score of the steps that they finish.
func together(seconds float64, decide func(float64, *State, []*State) bool, patterns ...*Pattern) float64 {
	states := make([]*State, len(patterns))
	others := make([][]*State, len(patterns))
	steps := make([]float64, len(patterns))
	for i, p := range patterns {
		states[i] = &State{Pattern: p}
	}
	for i := range states {
		for k, s := range states {
			if k != i {
				others[i] = append(others[i], s)
			}
		}
	}
	for now := 0.0; now <= seconds; {
		at, job := math.Inf(1), 0
		for i, s := range states {
			event := max(now, s.Began+s.Compute())
			if s.Running {
				event = s.Ends
			} else if s.Op < s.Ops() {
				event = max(now, s.Began+s.Earliest(s.Op))
			}
			if event < at {
				at, job = event, i
			}
		}
		now = at
		switch s := states[job]; {
		case s.Running:
			s.Running = false
			s.Op++
		case s.Op < s.Ops():
			s.INA = decide(now, s, others[job])
			s.Running, s.Ends = true, now+s.Duration(s.Op, s.INA)
		default:
			s.Began, s.Op = now, 0
			steps[job]++
		}
	}
	took, with, without := 0.0, 0.0, 0.0
	for i, s := range states {
		took += s.Began
		with += steps[i] * s.Step(true)
		without += steps[i] * s.Step(false)
	}
	return (took - without) / (with - without)
}

// Two jobs that share score what the authors' simulator prints, for all pairs of models.
// The paper's mean is 0.939.
func TestPairs(t *testing.T) {
	all := models(t)
	sum, worst := 0.0, 0.0
	for i := range all {
		for k := range all {
			if !proof.Wanted() && (i+k)%5 > 0 {
				continue
			}
			got, want := together(1000, Decide, all[i].pattern(t), all[k].pattern(t)), all[i].scores[k]
			if sum += got; math.Abs(got-want) > 1e-9 {
				t.Errorf("%s with %s: %.12f, want %.12f", all[i].name, all[k].name, got, want)
			}
			worst = max(worst, math.Abs(got-want))
		}
	}
	t.Logf("mean of %d: %.6f; largest difference: %.1g", len(all)*len(all), sum/float64(len(all)*len(all)), worst)
}

// One operation of 1 s, or half of it with INA, by hand.
func TestRule(t *testing.T) {
	cost := Cost{Bandwidth: 1, Ratio: 2}
	p := func(step float64, ops ...Op) *Pattern {
		out, err := NewPattern(step, ops, 2, cost)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	bound := p(1, Op{0, 1}, Op{0, 1}) // 2 s without INA, 1 with
	idle := p(10, Op{0, 1})           // gains nothing
	late := p(1, Op{0.5, 1})          // 1.5 s, or 1
	running := func(ina bool) *State { return &State{Pattern: bound, Running: true, INA: ina, Ends: 0.25} }
	for _, tt := range []struct {
		name  string
		job   *State
		other *State
		want  bool
	}{
		{"alone", &State{Pattern: bound}, nil, true},
		{"one that gains nothing, alone", &State{Pattern: idle}, nil, true},
		{"beside one that gains nothing", &State{Pattern: bound}, &State{Pattern: idle}, true},
		{"gains nothing beside one that does", &State{Pattern: idle}, &State{Pattern: bound}, false},
		{"as much as the other", &State{Pattern: bound}, &State{Pattern: bound}, true},
		{"the other has it", &State{Pattern: bound}, running(true), false},
		{"the other runs without", &State{Pattern: bound}, running(false), true},
		{"the other comes after this one's end", &State{Pattern: idle}, &State{Pattern: late}, true},
		{"the other comes before this one's end", &State{Pattern: p(10, Op{0, 2})}, &State{Pattern: late}, false},
		{"the other has finished", &State{Pattern: idle}, &State{Pattern: bound, Op: 2, Last: true}, true},
		{"the other's next step is near", &State{Pattern: idle}, &State{Pattern: bound, Op: 2, Began: -0.8}, false},
		{"nothing comes", &State{Pattern: bound, Op: 2, Last: true}, nil, false},
	} {
		var others []*State
		if tt.other != nil {
			others = []*State{tt.other}
		}
		if got := Decide(0, tt.job, others); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		urgency, _, _ := tt.job.Urgency(0)
		if got, want := Thrifty(0, tt.job, others), tt.want && (tt.other == nil || urgency > 0); got != want {
			t.Errorf("%s: the thrifty rule says %v", tt.name, got)
		}
	}
}

// Figure 4: INA for a part of the operations is enough, and the last ones are that part.
func TestDemand(t *testing.T) {
	cost := Cost{Bandwidth: 1, Ratio: 2}
	p, err := NewPattern(3, []Op{{0, 1}, {1, 1}, {2, 1}, {2, 1}}, 2, cost)
	if err != nil {
		t.Fatal(err)
	}
	// Without: 4 s. With: the last two end at 3 s, and the first two need no INA.
	if a, b, gain, demand := p.Step(true), p.Step(false), p.Gain(), p.Demand(); a != 3 || b != 4 || gain != 0.25 || math.Abs(demand-1.0/3) > 1e-12 {
		t.Errorf("step %v with, %v without, gain %v, demand %v", a, b, gain, demand)
	}
	for _, m := range models(t) {
		p := m.pattern(t)
		// With INA for that part alone, a job that has it whenever it runs late enough is
		// as fast.
		if g, d := p.Gain(), p.Demand(); g < 0 || d < 0 || d > 1 || g > 0 && d == 0 {
			t.Errorf("%s: gain %v, demand %v", m.name, g, d)
		} else {
			t.Logf("%s: gain %.4f, demand %.4f", m.name, g, d)
		}
	}
}

func TestPatternErrors(t *testing.T) {
	good := Cost{Bandwidth: 1, Ratio: 2}
	for _, tt := range []struct {
		step float64
		ops  []Op
		cost Cost
	}{
		{1, []Op{{1, 1}, {0, 1}}, good},
		{1, []Op{{0, -1}}, good},
		{math.NaN(), nil, good},
		{1, []Op{{0, math.Inf(1)}}, good},
		{1, nil, Cost{Bandwidth: 0, Ratio: 2}},
		{1, nil, Cost{Bandwidth: 1, Ratio: 0.5}},
	} {
		if p, err := NewPattern(tt.step, tt.ops, 2, tt.cost); !errors.Is(err, errPattern) || p != nil {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	all := models(b)
	job := &State{Pattern: all[0].pattern(b)}
	others := []*State{{Pattern: all[1].pattern(b)}, {Pattern: all[2].pattern(b), Op: 40}}
	for b.Loop() {
		Decide(0.05, job, others)
	}
}

// TestSpans: all-reduces run one after the other, none before its gradient is there, and end when the step does or before.
// What is not spent between them is spent reducing.
func TestSpans(t *testing.T) {
	for _, m := range models(t) {
		for _, c := range []Cost{{Latency: 50e-6, Bandwidth: 12.5e9, Ratio: 2}, {Latency: 1e-3, Bandwidth: 1e9, Ratio: 1.5}, {Bandwidth: 1e12, Ratio: 1}} {
			p, err := NewPattern(m.step, m.ops, 4, c)
			if err != nil {
				t.Fatal(err)
			}
			for _, ina := range []bool{false, true} {
				spans, end, reducing := p.Spans(ina), 0.0, 0.0
				for i, s := range spans {
					want := m.ops[i].Bytes/c.Bandwidth + c.Latency
					if ina {
						want = m.ops[i].Bytes/c.Bandwidth/c.Ratio + c.Latency
					}
					if s.Begin != max(end, m.ops[i].Start) || math.Abs(s.End-s.Begin-want) > 1e-9 {
						t.Fatalf("%s, %+v, INA %t: all-reduce %d, after one that ends at %v s, is %+v of %v s", m.name, c, ina, i, end, s, want)
					}
					end, reducing = s.End, reducing+want
				}
				if step := p.Step(ina); step != max(end, m.step) {
					t.Errorf("%s, %+v, INA %t: the last one ends at %v s, the step at %v s", m.name, c, ina, end, step)
				}
				if stage, gaps := Stage(spans); gaps < 0 || math.Abs(stage-gaps-reducing) > 1e-9 {
					t.Errorf("%s, %+v, INA %t: a stage of %v s with %v s of gaps, and %v s of reducing", m.name, c, ina, stage, gaps, reducing)
				}
			}
		}
	}
	if stage, gaps := Stage(nil); stage != 0 || gaps != 0 {
		t.Errorf("nothing lasts %v s, with gaps of %v s", stage, gaps)
	}
}
