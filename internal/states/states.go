// Package states explores the states of a protocol: for tests that go through every
// interleaving of what may happen within bounds.
package states

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
)

// ErrStuck is wrapped by Result.Broken when something has not settled and nothing but faults
// could make it.
var ErrStuck = errors.New("nothing leads on")

// State is one of everything: machines, what is under way between them, and how many faults
// there may still be.
type State[W any] interface {
	// Tidy forgets what cannot matter any more, so that states which differ in it are one.
	Tidy()
	// AppendKey appends what tells the state from others.
	AppendKey([]byte) []byte
	// Steps yields all that may happen next, always in one order.
	Steps(yield func(Step[W]))
	// Beyond says that the state lies beyond the bounds: it is not explored.
	Beyond() bool
	// Exempt says that what leads on may lie beyond the bounds: the state need not settle.
	Exempt() bool
	// Settled says that everything that can go on has done so.
	Settled() bool
}

// Step is something that may happen.
type Step[W any] struct {
	Label  func() string
	Fault  bool // it need not happen: nothing may rely on it
	To     W
	Broken error // what must never be, and is in To
}

// Space is what is explored.
type Space[W State[W]] struct {
	Start func() W     // another copy of the same state each time
	Most  int          // states that fit in memory
	Full  func() error // says that states do not hold all that they should
	Free  func(W)      // takes a state that is not needed any more; nil: nobody does
}

// Result is what was found.
type Result struct {
	States, Steps int   // steps are without faults
	Settled       int   // states
	Cut           int   // steps beyond the bounds
	Depth         int   // steps to the farthest state
	Broken        error // with the way there
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Explore visits all states, breadth first, until one is broken. When it has seen them all, it
// asks for progress: from each of them on, everything settles if no more faults come.
func (s *Space[W]) Explore() (r Result) {
	free := s.Free
	if free == nil {
		free = func(W) {}
	}
	type origin struct{ parent, step int32 }
	ids := map[[2]uint64]int32{}
	var origins []origin
	var fine, exempt []bool
	var froms, tos []int32 // steps that are no faults
	var key []byte
	id := func(w W) (n int32, fresh bool) {
		w.Tidy()
		key = w.AppendKey(key[:0])
		k := [2]uint64{maphash.Bytes(seeds[0], key), maphash.Bytes(seeds[1], key)}
		n, ok := ids[k]
		if !ok {
			n = int32(len(ids))
			ids[k] = n
		}
		return n, !ok
	}
	path := func(n int32, last string) string {
		var steps []int32
		for ; n > 0; n = origins[n].parent {
			steps = append(steps, origins[n].step)
		}
		var text strings.Builder
		w := s.Start()
		w.Tidy()
		for _, want := range slices.Backward(steps) {
			k, found := int32(0), w
			w.Steps(func(p Step[W]) {
				if k == want {
					fmt.Fprintf(&text, "\n  %s", p.Label())
					found = p.To
				}
				k++
			})
			w = found
			w.Tidy()
		}
		if last != "" {
			fmt.Fprintf(&text, "\n  %s", last)
		}
		return text.String()
	}
	start := s.Start()
	id(start)
	origins = append(origins, origin{-1, 0})
	layer, names := []W{start}, []int32{0}
	for len(layer) > 0 && r.Broken == nil && s.Full() == nil {
		var next []W
		var nextNames []int32
		for i, w := range layer {
			n := names[i]
			settled := w.Settled()
			fine, exempt = append(fine, settled), append(exempt, w.Exempt())
			if settled {
				r.Settled++
			}
			if len(origins) >= s.Most {
				continue
			}
			k := int32(-1)
			w.Steps(func(p Step[W]) {
				if r.Broken != nil {
					return
				}
				if p.Broken != nil {
					r.Broken = fmt.Errorf("%w, after:%s", p.Broken, path(n, p.Label()))
					return
				}
				k++
				if p.To.Beyond() {
					r.Cut++
					return
				}
				t, fresh := id(p.To)
				if fresh {
					origins = append(origins, origin{n, k})
					next, nextNames = append(next, p.To), append(nextNames, t)
				} else {
					free(p.To)
				}
				if !p.Fault {
					froms, tos = append(froms, n), append(tos, t)
				}
			})
			var none W
			layer[i] = none
			free(w)
		}
		layer, names = next, nextNames
		r.Depth++
	}
	r.States, r.Steps = len(origins), len(froms)
	if err := s.Full(); err != nil {
		r.Broken = err
	}
	if r.Broken == nil && r.States < s.Most {
		lead(fine, froms, tos)
		for i := range fine {
			if !fine[i] && !exempt[i] {
				r.Broken = fmt.Errorf("%w after:%s", ErrStuck, path(int32(i), ""))
				break
			}
		}
	}
	return r
}

// lead makes fine what steps lead from to what is.
func lead(fine []bool, froms, tos []int32) {
	index := make([]int32, len(fine)+1) // of the steps into each state
	for _, t := range tos {
		index[t+1]++
	}
	for i := range fine {
		index[i+1] += index[i]
	}
	into := make([]int32, len(tos))
	fill := slices.Clone(index)
	for i, t := range tos {
		into[fill[t]] = froms[i]
		fill[t]++
	}
	var queue []int32
	for i, f := range fine {
		if f {
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, f := range into[index[n]:index[n+1]] {
			if !fine[f] {
				fine[f] = true
				queue = append(queue, f)
			}
		}
	}
}

// Set is of numbers less than SetSize.
type Set [SetSize / 64]uint64

// SetSize is the room of a Set.
const SetSize = 512

// Add adds a number.
func (s *Set) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Delete takes one away.
func (s *Set) Delete(i int) { s[i/64] &^= 1 << (i % 64) }

// Has says whether a number is in the set.
func (s *Set) Has(i int) bool { return s[i/64]>>(i%64)&1 > 0 }

// All yields what was in the set at the time of the call, in order.
func (s Set) All(yield func(int) bool) {
	for w, b := range s {
		for ; b != 0; b &= b - 1 {
			if !yield(w*64 + bits.TrailingZeros64(b)) {
				return
			}
		}
	}
}

// Flags appends flags to a key.
func Flags(b []byte, flags ...bool) []byte {
	for _, f := range flags {
		if f {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// Numbers appends numbers to a key.
func Numbers(b []byte, n ...uint64) []byte {
	for _, n := range n {
		b = binary.AppendUvarint(b, n)
	}
	return b
}
