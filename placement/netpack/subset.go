package netpack

import (
	"cmp"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// subset is step 1: the jobs of a batch to place on so many free GPUs of a cluster that
// has total, as indices in the batch, the most valuable first, ties in the order of the
// batch.
//
// A job's value is Job.Value (at least 0; 0 is 1) times Options.Ageing to the power of
// Job.Waited. The subset of the largest value is a knapsack of whole numbers: values are
// rounded to 2^-40 of the largest.
//
// Ageing is for two kinds of job. One that fits gets ahead of whatever keeps coming,
// because younger jobs' values fall behind by a factor: any set of them is worth less
// in the end. One that asks for more than is free may never find enough, as younger jobs
// take every GPU that comes free: it waits until it fits by itself. With Options.Reserve, as soon as it is
// worth more than all that could start instead, only jobs that are worth more than it start, until it fits:
// what is free is reserved for it.
func subset(batch []cluster.Job, free, total int, o Options) []int {
	var chosen []int
	asked, oldest := 0, 0 // oldest of those that fit: they are worth nothing beside what has waited for thousands of batches
	for i, j := range batch {
		if j.GPUs >= 1 && j.GPUs <= total {
			chosen = append(chosen, i)
			asked += min(j.GPUs, free+1)
			if j.GPUs <= free {
				oldest = max(oldest, j.Waited)
			}
		}
	}
	aged := make([]float64, len(batch))
	for _, i := range chosen {
		v := batch[i].Value
		if !(v > 0) {
			v = 1
		}
		aged[i] = min(v, 1e15) * math.Pow(o.Ageing, float64(batch[i].Waited-oldest))
	}
	if asked > free {
		first := -1 // the most valuable of those that do not fit
		for _, i := range chosen {
			if batch[i].GPUs > free && (first < 0 || aged[i] > aged[first] || math.IsInf(aged[i], 1) && batch[i].Waited > batch[first].Waited) {
				first = i
			}
		}
		fitting := slices.DeleteFunc(chosen, func(i int) bool { return batch[i].GPUs > free })
		chosen = knapsack(batch, aged, fitting, free, maxSteps)
		if first >= 0 && o.Reserve {
			var worth float64
			for _, i := range chosen {
				worth += aged[i]
			}
			if aged[first] > worth {
				chosen = knapsack(batch, aged, slices.DeleteFunc(fitting, func(i int) bool { return aged[i] <= aged[first] }), free, maxSteps)
			}
		}
	}
	slices.SortStableFunc(chosen, func(a, b int) int { return cmp.Or(cmp.Compare(aged[b], aged[a]), cmp.Compare(a, b)) })
	return chosen
}

// item is some jobs of equal GPUs and value, all or none of which are taken.
type item struct {
	gpus, count int
	value       int64 // of one
	jobs        []int // of the whole class, in the order of the batch
}

// maxSteps bounds a knapsack's items times GPUs: a fraction of a second.
const maxSteps = 1 << 27

// knapsack chooses among jobs the most valuable that fit free GPUs together. Equal jobs
// are a few items with 1, 2, 4, ... of them. Where items times GPUs is more than steps, those
// that the order by value per GPU takes or leaves by far are decided so, and the program
// runs over the ones around the break (Pisinger's core).
func knapsack(batch []cluster.Job, aged []float64, jobs []int, free, steps int) []int {
	var top float64
	for _, i := range jobs {
		top = max(top, aged[i])
	}
	type key struct {
		gpus  int
		value int64
	}
	at := map[key]int{}
	var classes []item
	for _, i := range jobs {
		k := key{batch[i].GPUs, max(1, int64(math.Round(aged[i]/top*(1<<40))))}
		n, ok := at[k]
		if !ok {
			n = len(classes)
			at[k] = n
			classes = append(classes, item{gpus: k.gpus, value: k.value})
		}
		classes[n].jobs = append(classes[n].jobs, i)
	}
	var items []item
	weight := 0
	for _, c := range wanted(classes, free) {
		left := min(len(c.jobs), free/c.gpus)
		for n := 1; left > 0; n *= 2 {
			c.count = min(n, left)
			left -= c.count
			weight += c.count * c.gpus
			items = append(items, c)
		}
	}
	taken := map[key]int{}
	take := func(it item) { taken[key{it.gpus, it.value}] += it.count }
	room := min(free, weight)
	if len(items)*room > steps {
		slices.SortStableFunc(items, func(a, b item) int {
			return cmp.Compare(float64(b.value)/float64(b.gpus), float64(a.value)/float64(a.gpus))
		})
		brk, sum := 0, 0
		for brk < len(items) && sum+items[brk].gpus*items[brk].count <= room {
			sum += items[brk].gpus * items[brk].count
			brk++
		}
		core := max(2, steps/room)
		from := max(0, brk-core/2)
		for _, it := range items[:from] {
			take(it)
			room -= it.gpus * it.count
		}
		items = items[from:min(len(items), from+core)]
	}
	best := make([]int64, room+1)
	words := (room + 64) / 64
	with := make([]uint64, len(items)*words) // item, GPUs -> it is in the best set
	for n, it := range items {
		w, v := it.gpus*it.count, it.value*int64(it.count)
		row := with[n*words:]
		for g := room; g >= w; g-- {
			if t := best[g-w] + v; t > best[g] {
				best[g] = t
				row[g/64] |= 1 << (g % 64)
			}
		}
	}
	g := room
	for n := len(items) - 1; n >= 0; n-- {
		if with[n*words+g/64]&(1<<(g%64)) != 0 {
			take(items[n])
			g -= items[n].gpus * items[n].count
		}
	}
	var out []int
	for _, c := range classes {
		out = append(out, c.jobs[:taken[key{c.gpus, c.value}]]...)
	}
	slices.Sort(out)
	return out
}

// wanted are the classes, in their order, that the most valuable set can have a job of: of those that ask for as many
// GPUs, the most valuable of which no more fit than are in others. Where a long queue has aged, nearly every job is a class
// of its own, and few GPUs are free.
func wanted(classes []item, free int) []item {
	order := make([]int, len(classes))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(classes[b].value, classes[a].value) })
	better := map[int]int{} // GPUs of a job -> jobs that ask for as many, and are worth more
	out := order[:0]
	for _, n := range order {
		c := &classes[n]
		if (better[c.gpus]+1)*c.gpus <= free {
			out = append(out, n)
		}
		better[c.gpus] += len(c.jobs)
	}
	slices.Sort(out)
	kept := make([]item, len(out))
	for k, n := range out {
		kept[k] = classes[n]
	}
	return kept
}
