package exact

import (
	"fmt"
	"math/bits"

	"github.com/inabench/inabench/placement/cluster"
)

// classes are sets of servers that are alike: of the same rack, with the same link and
// as many free GPUs, and with the same part in every job that runs. Swapping two of
// them changes no rate.
func (s *search) classes() []set {
	at := map[string]int{}
	var out []set
	for i, server := range s.in.Config.Servers {
		key := fmt.Sprint(server.Rack, server.Link, s.c.Free(i))
		for k, r := range s.in.Running {
			for rank, w := range r.Place.Parts {
				if w.Server == i {
					if r.Job.Traffic != cluster.Ring {
						rank = 0 // order matters to rings alone
					}
					key += fmt.Sprint(" worker ", k, rank)
				}
			}
			for _, ps := range r.Place.PS {
				if ps == i {
					key += fmt.Sprint(" ps ", k)
				}
			}
		}
		if _, ok := at[key]; !ok {
			at[key] = len(out)
			out = append(out, 0)
		}
		out[at[key]] |= 1 << i
	}
	return out
}

// canonical reports whether an option takes the first servers of every class, and its
// PS the first of those that play the same part. Every option has its like among these.
func canonical(o *option, classes []set) bool {
	for _, c := range classes {
		in, out := o.servers&c, c&^o.servers
		if in != 0 && out != 0 && bits.Len32(uint32(in)) > bits.TrailingZeros32(uint32(out)) {
			return false
		}
		if o.ps >= 0 && c.has(o.ps) {
			if out.has(o.ps) {
				in = out
			}
			if bits.TrailingZeros32(uint32(in)) != o.ps {
				return false
			}
		}
	}
	return true
}

// refine splits classes by the part of their servers in one more job.
func refine(classes []set, o *option) []set {
	var ps set
	if o.ps >= 0 {
		ps = 1 << o.ps
	}
	out := make([]set, 0, len(classes)+2)
	for _, c := range classes {
		for _, part := range [...]set{c & o.servers & ps, c & o.servers &^ ps, c & ps &^ o.servers, c &^ ps &^ o.servers} {
			if part != 0 {
				out = append(out, part)
			}
		}
	}
	return out
}
