package titan

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/inabench/inabench/placement/collectives"
)

// Every combination of variants has one policy, and the default is one of them by another name.
func TestReadings(t *testing.T) {
	all := Readings()
	if d := all[0]; d.Name != "titan" || variants(d) != variants(Default) || !slices.Contains(all[1:], Default) {
		t.Errorf("the default is %+v", d)
	}
	names, combinations := map[string]bool{}, map[[3]Variant]bool{}
	for _, r := range all[1:] {
		if names[r.Name] || combinations[variants(r)] || r.Rule == "" {
			t.Errorf("%+v", r)
		}
		names[r.Name], combinations[variants(r)] = true, true
		if p := New(Options{Reading: r}); p.Name() != r.Name {
			t.Errorf("%s is called %s", r.Name, p.Name())
		}
	}
	if len(combinations) != 8 {
		t.Errorf("%d combinations of 8", len(combinations))
	}
}

func variants(r Reading) [3]Variant { return [3]Variant{r.Sets, r.Merge, r.Scheme} }

// halving are workers that halve and double on machines with so many free GPUs of eight. So
// many parts pass between any two in a phase; with 4 workers, farthest ones exchange 2 parts
// (0 with 2, 1 with 3), then nearest ones 1 (0 with 1, 2 with 3), and the same back.
func halving(workers int, passing float64, free ...int) *Problem {
	pattern := collectives.HalvingDoubling(workers).Pattern()
	return &Problem{
		Machines: of8(free...), Pattern: pattern,
		Vector: float64(pattern.Parts), Rate: func(int, int) float64 { return passing },
	}
}

// Algorithm 1 by hand: worker 0 is on machine 0, the set is that of machine 1.
func TestAlgorithm1(t *testing.T) {
	for name, tt := range map[string]struct {
		sets    Variant
		workers int
		passing float64 // parts
		free    int     // of machine 1
		want    []int
	}{
		"all pass":                               {Ours, 4, 2, 8, []int{1, 2, 3}},
		"2 would send 0 two parts":               {Ours, 4, 1, 8, []int{1, 3}},
		"nothing passes: 3 has nothing for 0":    {Ours, 4, 0, 8, []int{3}},
		"1 comes first, 3 exchanges most with 1": {Ours, 4, 2, 2, []int{1, 3}},

		"printed: nothing passes, nobody has something for 0 in every phase": {Printed, 4, 0, 8, []int{1, 2, 3}},
		"printed: in the order of workers, as far as there is room":          {Printed, 4, 2, 2, []int{1, 2}},
		"printed: two exchange something in every phase":                     {Printed, 2, 0, 8, nil},
		"printed: two, and it passes":                                        {Printed, 2, 1, 8, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := halving(tt.workers, tt.passing, 8, tt.free)
			p.Reading.Sets = tt.sets
			x := newSearch(p, seq(2))
			flows, phases := hops(p.Pattern)
			x.limit(flows, phases)
			x.move(0, 0)
			x.feasible(1, seq(tt.workers))
			var got []int
			for w, at := range x.at {
				if at == 1 {
					got = append(got, w)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// Algorithm 2 as printed, by hand. A lone worker is no gain to H: line 18 places it.
func TestAlgorithm2(t *testing.T) {
	for name, tt := range map[string]struct {
		sets    Variant // of Algorithm 1
		workers int
		free    []int
		start   [][]int // by machine: what line 2 has there
		want    []int   // machine by worker
	}{
		"one worker of chance, then in the order of machines":   {Printed, 4, []int{2, 3, 1}, [][]int{{2}, {0, 1}, {3}}, []int{0, 1, 0, 1}},
		"what is left goes where most is free":                  {Printed, 4, []int{1, 4}, [][]int{{}, {0, 1, 2, 3}}, []int{1, 0, 1, 1}},
		"and what that does not hold to the next one":           {Printed, 8, []int{3, 3, 2}, [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7}}, []int{0, 0, 0, 1, 1, 1, 2, 2}},
		"a single machine has all of them":                      {Printed, 4, []int{8}, [][]int{{0, 1, 2, 3}}, []int{0, 0, 0, 0}},
		"a single worker, who is no gain":                       {Printed, 1, []int{1, 3}, [][]int{{0}, {}}, []int{1}},
		"with our Algorithm 1, 2 follows 0: they exchange most": {Ours, 4, []int{2, 2}, [][]int{{0, 1}, {2, 3}}, []int{0, 1, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Problem{Machines: of8(tt.free...), Pattern: collectives.HalvingDoubling(tt.workers).Pattern(), Reading: Reading{Sets: tt.sets}}
			x := newSearch(p, seq(len(tt.free)))
			x.mergePrinted(seq(tt.workers), tt.start)
			if !slices.Equal(x.at, tt.want) {
				t.Errorf("%v, want %v", x.at, tt.want)
			}
		})
	}
}

// Algorithm 3 as printed, by hand, for what is so whatever chance does in line 2 of Algorithm 2.
func TestAlgorithm3(t *testing.T) {
	for name, tt := range map[string]struct {
		free    []int
		workers int
		idle    int
		used    []int // any of them
	}{
		"the idle one, as the other one is too small":    {[]int{8, 3}, 4, 1, []int{1}},
		"the idle one, although the other one is enough": {[]int{8, 5}, 4, 1, []int{1, 2}},
		"no idle one where there is none":                {[]int{4, 2}, 4, 0, []int{1}},
		"an idle one that is not enough, and the other":  {[]int{8, 5}, 10, 1, []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				p := &Problem{
					Machines: of8(tt.free...), Pattern: collectives.HalvingDoubling(tt.workers).Pattern(),
					Reading: Reading{Sets: Printed, Merge: Printed, Scheme: Printed},
				}
				got, err := p.Solve(seed)
				if err != nil {
					t.Fatal(err)
				}
				check(t, p, got)
				if got.Idle != tt.idle || !slices.Contains(tt.used, got.Used) {
					t.Errorf("seed %d: %+v; want %d idle of %v machines", seed, got, tt.idle, tt.used)
				}
			}
		})
	}
}

// algorithm1 is Algorithm 1 as printed, line by line, for the workers of an order.
func algorithm1(p *Problem, order, at []int, s int) (feasible []int) {
	c := func(n, m, t int) (sum int) {
		for _, f := range p.Pattern.Phases[t].Flows {
			if f.From == n && f.To == m {
				sum += f.Volume
			}
		}
		return sum
	}
	on := func(machine int) (workers []int) {
		for w, m := range at {
			if m == machine {
				workers = append(workers, w)
			}
		}
		return workers
	}
	if len(on(s)) == p.Machines[s].Free {
		return nil
	}
	placed := 0
	in := map[int]bool{}      // line 2
	for _, n := range order { // line 6
		if at[n] != none { // line 3
			continue
		}
		for m, other := range at { // line 7
			if other == none {
				continue
			}
			placed++
			for t := range p.Pattern.Phases { // line 8
				existing := 0 // line 5
				for _, a := range on(s) {
					for _, b := range on(other) {
						existing += c(a, b, t)
					}
				}
				if other == s || !p.limited() || c(n, m, t)+existing <= p.room(s, other) { // line 9
					in[n] = true // line 10
				}
			}
		}
	}
	for _, n := range order {
		if at[n] == none && (in[n] || placed == 0) {
			feasible = append(feasible, n)
		}
	}
	return feasible
}

// corrected1 is whom Algorithm 1 as corrected lets a machine have next: who exchanges most with
// it first. What passes is what a search with all its counters says.
func corrected1(p *Problem, order, at []int, s int) (feasible []int) {
	x := newSearch(p, seq(len(p.Machines)))
	if p.limited() {
		flows, phases := hops(p.Pattern)
		x.limit(flows, phases)
	}
	for w, m := range at {
		if m != none {
			x.move(w, m)
		}
	}
	if x.size[s] == p.Machines[s].Free {
		return nil
	}
	with := make([]int, len(at))
	for _, w := range order {
		if at[w] != none {
			continue
		}
		for _, peer := range p.Pattern.Peers(w) {
			if at[peer.Worker] == s {
				with[w] += peer.Volume
			}
		}
		before := x.excess()
		if x.move(w, s); x.excess() <= before {
			feasible = append(feasible, w)
		}
		x.move(w, none)
	}
	slices.SortStableFunc(feasible, func(a, b int) int { return cmp.Compare(with[b], with[a]) })
	return feasible
}

// algorithm2 is Algorithm 2 as printed, line by line, with the sets of Equation 4 and those of
// an Algorithm 1. Whoever is placed is so in at.
func algorithm2(p *Problem, machines, order, at []int, sets [][]int, set func(p *Problem, order, at []int, s int) []int) {
	c := func(set []int) int { return min(1, len(set)) } // Equation 2
	without := func(phi [][]int) (rest []int) {
		for _, n := range order {
			if !slices.ContainsFunc(phi, func(in []int) bool { return slices.Contains(in, n) }) {
				rest = append(rest, n)
			}
		}
		return rest
	}
	h := func(phi [][]int) int { // Equation 4
		sum := c(without(phi)) - c(order)
		for _, in := range phi {
			sum += c(in)
		}
		return sum
	}
	var phi [][]int                   // line 3
	for len(phi) <= len(machines)-1 { // line 5
		opt := 0 // line 6
		var best []int
		machine := none
		for i, s := range machines { // line 7
			for _, n := range sets[i] { // line 8
				if !slices.Contains(without(phi), n) {
					continue
				}
				if tmp := h(append(slices.Clone(phi), []int{n})); tmp > opt { // lines 9 and 10
					opt, best, machine = tmp, append(best, n), s // line 11
				}
			}
		}
		if best == nil {
			break
		}
		phi = append(phi, best) // line 15
		for _, n := range best {
			at[n] = machine
		}
		sets = nil // line 16
		for _, s := range machines {
			sets = append(sets, set(p, order, at, s))
		}
	}
	free := func(s int) int {
		left := p.Machines[s].Free
		for _, m := range at {
			if m == s {
				left--
			}
		}
		return left
	}
	for rest := without(phi); len(rest) > 0; { // line 18
		s := slices.MaxFunc(machines, func(a, b int) int { return free(a) - free(b) }) // of equals the first
		n := min(free(s), len(rest))
		for _, w := range rest[:n] {
			at[w] = s
		}
		rest = rest[n:]
	}
}

// algorithm3 is Algorithm 3 as printed, line by line.
func algorithm3(p *Problem, seed uint64, set func(p *Problem, order, at []int, s int) []int) []int {
	rnd := rand.New(rand.NewPCG(seed, 0))
	nowhere := func() []int { return slices.Repeat([]int{none}, p.Pattern.Workers) }
	var fragments, unused []int // S_f and S_n, without machines that have no free GPU
	holds := 0
	for i, m := range p.Machines {
		switch {
		case m.Free == 0:
		case m.Idle():
			unused = append(unused, i)
			holds += m.Free
		default:
			fragments = append(fragments, i)
		}
	}
	machines := fragments
	if len(unused) > 0 {
		at := nowhere()
		order := seq(min(p.Pattern.Workers, holds))
		algorithm2(p, unused, order, at, newSearch(p, unused).scatter(order, rnd), set) // lines 2 to 4
		for _, s := range unused {
			if slices.Contains(at, s) {
				machines = append(machines, s)
			}
		}
	}
	slices.Sort(machines)
	at, order := nowhere(), seq(p.Pattern.Workers)
	algorithm2(p, machines, order, at, newSearch(p, machines).scatter(order, rnd), set) // lines 6 to 8
	return at
}

// What is done as printed is what the lines say, done one after the other.
func TestPrinted(t *testing.T) {
	rnd := random(t)
	for range 150 {
		p, limit := problem(rnd, 7, 5)
		for _, tt := range []struct {
			sets Variant
			set  func(p *Problem, order, at []int, s int) []int
		}{{Printed, algorithm1}, {Ours, corrected1}} {
			p.Reading = Reading{Sets: tt.sets, Merge: Printed, Scheme: Printed}
			seed := rnd.Uint64()
			got, err := p.Solve(seed)
			var congested *CongestedError
			if errors.As(err, &congested) {
				got = congested.Best
			} else if err != nil {
				t.Fatal(err)
			}
			if want := algorithm3(p, seed, tt.set); !slices.Equal(got.At, want) {
				t.Fatalf("%s, Algorithm 1 %v: %v, want %v\n%+v", limit, tt.sets, got.At, want, p.Machines)
			}
		}
	}
}

// What Algorithm 1 says of each worker, wherever the others are: as printed what its lines
// say, as corrected what a search with all its counters says.
func TestPasses(t *testing.T) {
	rnd := random(t)
	for range 200 {
		p, limit := problem(rnd, 7, 5)
		if !p.limited() {
			continue
		}
		n := p.Pattern.Workers
		x := newSearch(p, seq(len(p.Machines)))
		x.flows, x.phases = hops(p.Pattern)
		for w := range n {
			if slot := rnd.IntN(len(p.Machines)); x.size[slot] < x.cap[slot] && rnd.IntN(3) > 0 {
				x.move(w, slot)
			}
		}
		for s := range p.Machines {
			some, all := algorithm1(p, seq(n), x.at, s), corrected1(p, seq(n), x.at, s)
			for w := range n {
				if x.at[w] != none || x.size[s] == x.cap[s] {
					continue
				}
				if got, want := x.somePasses(w, s), slices.Contains(some, w); got != want {
					t.Fatalf("%s: worker %d on machine %d is feasible as printed: %v, want %v; others on %v", limit, w, s, got, want, x.at)
				}
				if got, want := x.allPass(w, s), slices.Contains(all, w); got != want {
					t.Fatalf("%s: worker %d on machine %d is feasible: %v, want %v; others on %v", limit, w, s, got, want, x.at)
				}
			}
		}
	}
}

// What comes of any reading is a placement: within the free GPUs and, if it is said to be, within
// the bandwidth.
func TestAnyReading(t *testing.T) {
	rnd := random(t)
	for range 20 {
		p, limit := problem(rnd, 8, 6)
		for _, p.Reading = range readings {
			got, err := p.Solve(rnd.Uint64())
			var congested *CongestedError
			if errors.As(err, &congested) {
				free := *p
				free.Rate = nil
				check(t, &free, congested.Best)
				continue
			}
			if err != nil {
				t.Fatalf("%s, %s: %v", p.Reading.Name, limit, err)
			}
			check(t, p, got)
		}
	}
}
