package collectives

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
)

// sizes are the numbers of workers of the tests: all small ones, and larger ones around
// powers of two.
func sizes() []int {
	var out []int
	for n := 1; n <= 33; n++ {
		out = append(out, n)
	}
	return append(out, 48, 64, 65)
}

// vectors is what every worker has: a distinct value per worker and chunk, as a bitmap of
// the workers in the sum, by chunk. A worker that is added twice shows.
type vectors [][][]int // worker, chunk, how often worker i is in it

func begin(s Schedule) vectors {
	v := make(vectors, s.Workers)
	for w := range v {
		v[w] = make([][]int, s.Chunks)
		for c := range v[w] {
			v[w][c] = make([]int, s.Workers)
			v[w][c][w] = 1
		}
	}
	return v
}

// Sent is what all workers send in all phases, in parts; each direction counts.
func (p *Pattern) Sent() int {
	sum := 0
	for _, ph := range p.Phases {
		for _, f := range ph.Flows {
			sum += ph.Times * f.Volume
		}
	}
	return sum
}

// run does what a schedule says. All that is sent in a phase is what was there before it.
func run(t *testing.T, s Schedule, v vectors) {
	t.Helper()
	for phase := range s.Phases {
		before := make(vectors, len(v))
		for w := range v {
			for _, c := range v[w] {
				before[w] = append(before[w], slices.Clone(c))
			}
		}
		any := false
		for x := range s.Phase(phase) {
			any = true
			if x.From == x.To || x.Lo >= x.Hi || x.Lo < 0 || x.Hi > s.Chunks || min(x.From, x.To) < 0 || max(x.From, x.To) >= s.Workers {
				t.Fatalf("phase %d: transfer %+v of %d workers and %d chunks", phase, x, s.Workers, s.Chunks)
			}
			for c := x.Lo; c < x.Hi; c++ {
				for i, n := range before[x.From][c] {
					if x.Add {
						v[x.To][c][i] += n
					} else {
						v[x.To][c][i] = n
					}
				}
			}
		}
		if !any {
			t.Errorf("nothing is sent in phase %d", phase)
		}
	}
}

// Every worker ends with the full sum, every other operation with what it promises, and
// nobody is in a sum twice.
func TestEndsWithSums(t *testing.T) {
	for _, n := range sizes() {
		ones := slices.Repeat([]int{1}, n)
		all := map[string]Schedule{"parameter servers": ParameterServer(n, (n+1)/2)}
		for _, name := range Names() {
			s, err := New(name, n)
			if err != nil || s.Name != name || s.Workers != n {
				t.Fatalf("%s of %d workers: %s of %d, %v", name, n, s.Name, s.Workers, err)
			}
			all[name] = s
		}
		for name, s := range all {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				v := begin(s)
				run(t, s, v)
				for w := range v {
					for c, got := range v[w] {
						want := ones
						if name == "all-gather" {
							want = make([]int, n)
							want[c] = 1
						}
						if name == "reduce-scatter" && c != w {
							continue
						}
						if !slices.Equal(got, want) {
							t.Fatalf("chunk %d of worker %d ends with %v, want %v", c, w, got, want)
						}
					}
				}
			})
		}
	}
}

// Volumes add up to what textbooks say: of all workers together, and of each one where
// all are alike; and there are as many phases.
func TestTotals(t *testing.T) {
	for _, n := range sizes() {
		f := float64(n)
		log := math.Floor(math.Log2(f))
		p := math.Exp2(log)
		power := f == p
		more := 0.0 // phases of numbers that are no power of two
		if !power {
			more = 2
		}
		for name, want := range map[string]struct{ total, phases float64 }{
			"reduce-scatter":        {f - 1, f - 1},
			"all-gather":            {f - 1, f - 1},
			"ring":                  {2 * (f - 1), 2 * (f - 1)},
			"halving-doubling":      {2 * (f - 1), 2*log + more},
			"halving-doubling-near": {2 * (f - 1), 2*log + more},
			"recursive-doubling":    {p*log + 2*(f-p), log + more},
			"parameter-server":      {2 * (f - 1), 2},
		} {
			s, err := New(name, n)
			if err != nil {
				t.Fatal(err)
			}
			if n == 1 {
				want.phases = 0
			}
			total := 0.0
			sent := make([]float64, n)
			for phase := range s.Phases {
				for x := range s.Phase(phase) {
					v := float64(x.Hi-x.Lo) / float64(s.Chunks)
					total += v
					sent[x.From] += v
				}
			}
			if math.Abs(total-want.total) > 1e-9 || float64(s.Phases) != want.phases {
				t.Errorf("%s of %d workers sends %v K in %d phases, want %v in %v", name, n, total, s.Phases, want.total, want.phases)
			}
			alike := name == "ring" || name == "reduce-scatter" || name == "all-gather" || power && name != "parameter-server"
			for w, v := range sent {
				if alike && math.Abs(v-want.total/f) > 1e-9 {
					t.Errorf("%s of %d: worker %d sends %v K, want %v", name, n, w, v, want.total/f)
				}
			}
			pattern := s.Pattern()
			if got := float64(pattern.Sent()) / float64(pattern.Parts); math.Abs(got-want.total) > 1e-9 {
				t.Errorf("%s of %d: its pattern sends %v K, want %v", name, n, got, want.total)
			}
		}
	}
}

// Figure 1 of Titan: four workers, K/2 with the farther, K/4 with the nearer one and back.
func TestFigure1(t *testing.T) {
	p := HalvingDoubling(4).Pattern()
	far := []Flow{{0, 2, 2}, {1, 3, 2}, {2, 0, 2}, {3, 1, 2}}
	near := []Flow{{0, 1, 1}, {1, 0, 1}, {2, 3, 1}, {3, 2, 1}}
	if want := []Phase{{1, far}, {2, near}, {1, far}}; p.Parts != 4 || !reflect.DeepEqual(p.Phases, want) {
		t.Errorf("of %d parts: %v, want %v", p.Parts, p.Phases, want)
	}
	for name, tt := range map[string]struct {
		at   []int
		want int // quarters of K
	}{
		"ElasticFlow": {[]int{0, 0, 0, 0}, 0},
		"HiveD":       {[]int{1, 1, 1, 3}, 6},
		"Titan":       {[]int{1, 2, 1, 2}, 4},
		"apart":       {[]int{0, 1, 2, 3}, 12},
	} {
		if got := p.Cross(tt.at); got != tt.want {
			t.Errorf("%s: %d/4 K cross between machines, want %d/4", name, got, tt.want)
		}
	}
	// With the nearest first, workers numbered machine by machine cross as little.
	if got := HalvingDoublingNear(4).Pattern().Cross([]int{1, 1, 2, 2}); got != 4 {
		t.Errorf("nearest first: %d/4 K, want 4/4", got)
	}
}

// Six workers are blocks of four and of two: the smaller one's sums go to the larger one
// when that has its own.
func TestBinaryBlocks(t *testing.T) {
	p := HalvingDoubling(6).Pattern()
	want := []Phase{
		{1, []Flow{{0, 2, 2}, {1, 3, 2}, {2, 0, 2}, {3, 1, 2}, {4, 5, 2}, {5, 4, 2}}},
		{1, []Flow{{0, 1, 1}, {1, 0, 1}, {2, 3, 1}, {3, 2, 1}}},
		{1, []Flow{{4, 0, 1}, {4, 1, 1}, {5, 2, 1}, {5, 3, 1}}},
		{1, []Flow{{0, 4, 1}, {1, 4, 1}, {2, 5, 1}, {3, 5, 1}}},
		{1, []Flow{{0, 1, 1}, {1, 0, 1}, {2, 3, 1}, {3, 2, 1}}},
		{1, []Flow{{0, 2, 2}, {1, 3, 2}, {2, 0, 2}, {3, 1, 2}, {4, 5, 2}, {5, 4, 2}}},
	}
	if !reflect.DeepEqual(p.Phases, want) {
		t.Errorf("%v, want %v", p.Phases, want)
	}
}

func TestCross(t *testing.T) {
	for name, tt := range map[string]struct {
		s    Schedule
		at   []int
		want float64 // K
	}{
		"a ring crosses twice":                     {Ring(4), []int{0, 0, 1, 1}, 2 * 2 * 0.75},
		"a ring of two: both ways at once":         {Ring(2), []int{0, 1}, 1},
		"recursive doubling: the last phase":       {RecursiveDoubling(4), []int{0, 0, 1, 1}, 2},
		"a server sums what comes and sends it":    {ParameterServer(4, 1), []int{0, 0, 1, 1}, 4},
		"servers on both sides":                    {ParameterServer(4, 4), []int{0, 0, 1, 1}, 2},
		"on one machine nothing":                   {Ring(4), []int{7, 7, 7, 7}, 0},
		"halves and quarters, interleaved":         {HalvingDoubling(8), []int{0, 1, 0, 1, 0, 1, 0, 1}, 4 * 2 / 8.0},
		"halves and quarters, machine by machine":  {HalvingDoubling(8), []int{0, 0, 0, 0, 1, 1, 1, 1}, 4 * 2 / 2.0},
		"the nearest first, machine by machine":    {HalvingDoublingNear(8), []int{0, 0, 0, 0, 1, 1, 1, 1}, 4 * 2 / 8.0},
		"blocks hand each other all of the vector": {HalvingDoubling(6), []int{0, 0, 0, 0, 1, 1}, 2},
	} {
		p := tt.s.Pattern()
		if got := float64(p.Cross(tt.at)) / float64(p.Parts); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%s: %v K, want %v", name, got, tt.want)
		}
	}
}

// On machines of their own, a ring and halving and doubling use all of each link all the
// time: 2K(n-1)/n over the rate. What else is on a link makes it longer.
func TestSeconds(t *testing.T) {
	const vector, rate = 8e9, 100e9
	link := func(int) float64 { return rate }
	for _, n := range []int{2, 4, 8, 16, 64} {
		at := make([]int, n)
		for w := range at {
			at[w] = w
		}
		want := 2 * vector * float64(n-1) / float64(n) / rate
		for _, name := range []string{"ring", "halving-doubling", "halving-doubling-near"} {
			s, _ := New(name, n)
			if got := s.Pattern().Seconds(at, vector, 0, link); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s of %d: %v s, want %v", name, n, got, want)
			}
		}
	}
	for name, tt := range map[string]struct {
		s    Schedule
		at   []int
		want float64
	}{
		"one machine":                       {Ring(4), []int{0, 0, 0, 0}, 0},
		"HiveD in Figure 1: one pair each":  {HalvingDoubling(4), []int{1, 1, 1, 3}, (0.5 + 0.25) * 2 * 0.08},
		"Titan in Figure 1: two pairs each": {HalvingDoubling(4), []int{1, 2, 1, 2}, 2 * 0.25 * 2 * 0.08},
		"all to one server":                 {ParameterServer(4, 1), []int{0, 1, 2, 3}, 2 * 3 * 0.08},
	} {
		if got := tt.s.Pattern().Seconds(tt.at, vector, 0, link); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v s, want %v", name, got, tt.want)
		}
	}
}

func TestNew(t *testing.T) {
	if _, err := New("butterfly", 4); !errors.Is(err, ErrName) {
		t.Errorf("no such name: %v", err)
	}
	for _, n := range []int{0, -3} {
		if s, err := New("ring", n); !errors.Is(err, ErrWorkers) || s.Workers != 0 {
			t.Errorf("%d workers: %v, %v", n, s, err)
		}
	}
}

func BenchmarkPattern(b *testing.B) {
	for _, name := range []string{"halving-doubling", "ring"} {
		for _, n := range []int{16, 64, 1024} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					s, _ := New(name, n)
					s.Pattern()
				}
			})
		}
	}
}
