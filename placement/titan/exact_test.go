package titan

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/collectives"
)

var (
	seed  = flag.Uint64("titan.seed", 0, "seed of the random problems; 0: from the clock")
	cases = flag.Int("titan.cases", 1000, "random problems that are held against the exact optimum")
	most  = flag.Int("titan.workers", 9, "that such a problem has at most; the exact optimum takes long for more than 12")
)

func random(t testing.TB) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -titan.seed %d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// exact is the best placement there is: branch and bound over the machine of each worker
// in turn. Only what is better than the bound is looked for; not ok if there is nothing.
func exact(p *Problem, bound Solution) (best Solution, ok bool) {
	n := p.Pattern.Workers
	best = bound
	at := make([]int, n)
	used := make([]int, len(p.Machines))
	// What a phase sends from one machine to another.
	m := len(p.Machines)
	sent := make([][]int, len(p.Pattern.Phases))
	for i := range sent {
		sent[i] = make([]int, m*m)
	}
	type hop struct{ phase, other, volume, out int }
	earlier := make([][]hop, n) // flows with workers that are placed before
	for i, ph := range p.Pattern.Phases {
		for _, f := range ph.Flows {
			if f.From > f.To {
				earlier[f.From] = append(earlier[f.From], hop{i, f.To, f.Volume, 1})
			} else {
				earlier[f.To] = append(earlier[f.To], hop{i, f.From, f.Volume, 0})
			}
		}
	}
	room := make([]int, m*m)
	for a := range m {
		for b := range m {
			if room[a*m+b] = math.MaxInt; a != b && p.limited() {
				room[a*m+b] = p.room(a, b)
			}
		}
	}
	// alike machines that are not used yet are tried once; only without a limit, which
	// tells machines apart.
	alike := func(a, b int) bool { return !p.limited() && p.Machines[a] == p.Machines[b] }
	var place func(w int, s Solution)
	place = func(w int, s Solution) {
		if w == n {
			if s.Less(best) {
				best, ok = s, true
				best.At = slices.Clone(at)
			}
			return
		}
		// The rest needs more machines where the used ones do not hold it.
		low, left := s, n-w
		for i, k := range used {
			if k > 0 {
				left -= p.Machines[i].Free - k
			}
		}
		if left > 0 {
			more := 0
			var rest []int
			for i, k := range used {
				if k == 0 {
					rest = append(rest, p.Machines[i].Free)
					if !p.Machines[i].Idle() {
						more += p.Machines[i].Free
					}
				}
			}
			if more < left {
				low.Idle++
			}
			slices.Sort(rest)
			for i := len(rest) - 1; i >= 0 && left > 0; i-- {
				left -= rest[i]
				low.Used++
			}
			if left > 0 {
				return
			}
		}
		if !low.Less(best) {
			return
		}
		for i := range p.Machines {
			if used[i] == p.Machines[i].Free || used[i] == 0 && slices.ContainsFunc(seq(i), func(j int) bool { return used[j] == 0 && alike(i, j) }) {
				continue
			}
			next := s
			if used[i] == 0 {
				next.Used++
				if p.Machines[i].Idle() {
					next.Idle++
				}
			}
			for _, x := range p.Pattern.Peers(w) {
				if x.Worker < w && at[x.Worker] != i {
					next.Cross += x.Volume
				}
			}
			fits := true
			step := func(sign int) {
				for _, h := range earlier[w] {
					o := at[h.other]
					pair := i*m + o
					if h.out == 0 {
						pair = o*m + i
					}
					sent[h.phase][pair] += sign * h.volume
					fits = fits && sent[h.phase][pair] <= room[pair]
				}
			}
			at[w] = i
			used[i]++
			if step(1); fits {
				place(w+1, next)
			}
			step(-1)
			used[i]--
		}
	}
	place(0, Solution{})
	return best, ok
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

var nothing = Solution{Idle: math.MaxInt, Used: math.MaxInt, Cross: math.MaxInt}

// everything is the best placement by trying all.
func everything(p *Problem) (best Solution, ok bool) {
	best = nothing
	n := p.Pattern.Workers
	at := make([]int, n)
	for {
		free := make([]int, len(p.Machines))
		fits := true
		for _, m := range at {
			free[m]++
			fits = fits && free[m] <= p.Machines[m].Free
		}
		if fits && p.Check(at) == nil {
			if s := p.solution(slices.Clone(at)); s.Less(best) {
				best, ok = s, true
			}
		}
		i := 0
		for ; i < n; i++ {
			if at[i]++; at[i] < len(p.Machines) {
				break
			}
			at[i] = 0
		}
		if i == n {
			return best, ok
		}
	}
}

// problem is a random one that has room for all workers. The bandwidth is no limit, the
// same limit everywhere, one by the machine, or one by the pair.
func problem(rnd *rand.Rand, workers, machines int) (p *Problem, limit string) {
	for {
		gpus := []int{2, 3, 4, 4, 8}[rnd.IntN(5)]
		p = &Problem{}
		free := 0
		for range 2 + rnd.IntN(machines-1) {
			m := Machine{gpus, rnd.IntN(gpus + 1)}
			if rnd.IntN(3) == 0 {
				m.Free = gpus
			}
			free += m.Free
			p.Machines = append(p.Machines, m)
		}
		n := 2 + rnd.IntN(workers-1)
		if n > free {
			continue
		}
		names := []string{"halving-doubling", "halving-doubling", "halving-doubling-near", "ring", "recursive-doubling", "parameter-server"}
		s, err := collectives.New(names[rnd.IntN(len(names))], n)
		if err != nil {
			panic(err)
		}
		p.Pattern = s.Pattern()
		break
	}
	m := len(p.Machines)
	p.Vector, p.Phase = 1, 0.5
	some := func() float64 { return float64(rnd.IntN(9)) / 4 } // vectors in a second: up to one in a phase
	switch rnd.IntN(5) {
	case 0:
		return p, "none"
	case 1:
		all := some()
		p.Rate = func(int, int) float64 { return all }
		return p, "equal"
	case 2, 3:
		by := make([]float64, m)
		for i := range by {
			by[i] = some()
		}
		p.Rate = func(a, b int) float64 { return min(by[a], by[b]) }
		return p, "machine"
	}
	by := make([]float64, m*m)
	for i := range by {
		by[i] = some()
	}
	p.Rate = func(a, b int) float64 { return by[a*m+b] }
	return p, "pair"
}

// Branch and bound leaves nothing out.
func TestExact(t *testing.T) {
	rnd := random(t)
	for range 300 {
		p, limit := problem(rnd, 5, 4)
		want, some := everything(p)
		got, ok := exact(p, nothing)
		if ok != some || ok && (got.Less(want) || want.Less(got)) {
			t.Fatalf("%s: %+v, %v, want %+v, %v\n%+v", limit, got, ok, want, some, p.Machines)
		}
	}
}

// gaps counts how far a figure is over the optimum.
type gaps struct {
	equal, above int
	worst        float64
	by           map[string]int
}

func (g *gaps) add(over float64, words string) {
	if over == 0 {
		g.equal++
		return
	}
	g.above++
	g.worst = max(g.worst, over)
	if g.by == nil {
		g.by = map[string]int{}
	}
	g.by[words]++
}

func (g *gaps) share() float64 {
	if g.equal+g.above == 0 {
		return 1
	}
	return float64(g.equal) / float64(g.equal+g.above)
}

func (g *gaps) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "optimal %d of %d (%.1f %%), worst +%.3g", g.equal, g.equal+g.above, 100*g.share(), g.worst)
	var words []string
	for w, n := range g.by {
		words = append(words, fmt.Sprintf("%s: %d", w, n))
	}
	slices.Sort(words)
	if len(words) > 0 {
		fmt.Fprintf(&b, "; %s", strings.Join(words, ", "))
	}
	return b.String()
}

// Against the exact optimum: idle machines used, then machines among those with equal idle
// ones, then traffic among those with equal machines.
func TestGap(t *testing.T) {
	t.Run("any", func(t *testing.T) { gap(t, random(t), false) })
	t.Run("tight", func(t *testing.T) { gap(t, random(t), true) })
	// Here the searches end without a placement where there is one.
	t.Run("missed", func(t *testing.T) { gap(t, rand.New(rand.NewPCG(8, 0)), true) })
}

// gap prints the distribution. Tight problems are those in which what would be best
// without the bandwidth constraint breaks it.
func gap(t *testing.T, rnd *rand.Rand, tight bool) {
	n := *cases
	if !proof.Wanted() {
		n = min(n, 100)
	}
	var idle, used, cross gaps
	missed, none := 0, 0
	for i := 0; i < n; {
		p, limit := problem(rnd, *most, 7)
		if tight {
			free := *p
			free.Rate = nil
			if s, err := free.Solve(0); err != nil || p.Check(s.At) == nil {
				continue
			}
		}
		got, err := p.Solve(uint64(i))
		bound := got
		if err != nil {
			var congested *CongestedError
			if !errors.As(err, &congested) {
				t.Fatal(err)
			}
			bound = nothing
		} else {
			check(t, p, got)
		}
		best, better := exact(p, bound)
		if err != nil && !better {
			none++
			continue
		}
		i++
		if err != nil {
			missed++
			idle.add(2, limit+": missed")
			t.Logf("%s of %d missed: %+v on %v, room for\n%s", limit, p.Pattern.Workers, best, p.Machines, rooms(p))
			continue
		}
		if !better {
			best = got
		}
		idle.add(float64(got.Idle-best.Idle), fmt.Sprintf("%s +%d", limit, got.Idle-best.Idle))
		if got.Idle != best.Idle {
			continue
		}
		used.add(float64(got.Used-best.Used), fmt.Sprintf("%s +%d", limit, got.Used-best.Used))
		if got.Used != best.Used {
			continue
		}
		over := 0.0
		if got.Cross > best.Cross {
			over = float64(got.Cross)/float64(best.Cross) - 1
		}
		cross.add(over, limit)
	}
	t.Logf("%d problems with a solution, %d missed; %d without\nidle machines: %v\nmachines, of equal idle: %v\ntraffic, of equal machines: %v",
		n, missed, none, &idle, &used, &cross)
	for what, g := range map[string]*gaps{"idle machines": &idle, "traffic": &cross} {
		if g.share() < 0.95 || g.worst >= 2 {
			t.Errorf("%s: %v", what, g)
		}
	}
}

// rooms are the parts that pass from each machine to each.
func rooms(p *Problem) string {
	var b strings.Builder
	for from := range p.Machines {
		for to := range p.Machines {
			if from != to {
				fmt.Fprintf(&b, "%4d", p.room(from, to))
			} else {
				b.WriteString("   -")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// check holds a solution against its problem.
func check(t testing.TB, p *Problem, s Solution) {
	t.Helper()
	free := make([]int, len(p.Machines))
	for _, m := range s.At {
		if free[m]++; free[m] > p.Machines[m].Free {
			t.Fatalf("machine %d has %d free GPUs: %v", m, p.Machines[m].Free, s.At)
		}
	}
	if want := p.solution(s.At); len(s.At) != p.Pattern.Workers || want.Less(s) || s.Less(want) {
		t.Fatalf("%+v, its figures are %+v", s, want)
	}
	if err := p.Check(s.At); err != nil {
		t.Fatal(err)
	}
}
