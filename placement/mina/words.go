package mina

import (
	"fmt"
	"slices"

	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
)

// What files and processes call the parts of a Config. The first of each is MINA's.
var (
	placeWords   = []string{"minimal", "first-fit", "consolidate", "random"}
	treesWords   = []string{"mina", "first", "first-idle"}              // by Trees
	sharingWords = []string{"apart", "together", "merged", "exclusive"} // by tree.Sharing
)

// Words are all that Named takes for each part.
func Words() (place, trees, sharing []string) {
	return slices.Clone(placeWords), slices.Clone(treesWords), slices.Clone(sharingWords)
}

// Named sets how hosts are chosen, trees built, and who may join groups, by word; an empty one
// is MINA's. Alpha is of minimal placement, and the seed of a random one.
func (cfg *Config) Named(place, trees, sharing string, alpha float64, seed uint64) (err error) {
	index := func(part, word string, words []string) int {
		i := slices.Index(words, word)
		if word == "" {
			i = 0
		}
		if i < 0 && err == nil {
			err = fmt.Errorf("%s: %q is none", part, word)
		}
		return i
	}
	p, t, s := index("place", place, placeWords), index("trees", trees, treesWords), index("sharing", sharing, sharingWords)
	if err != nil {
		return err
	}
	cfg.Trees, cfg.Options.Sharing = Trees(t), tree.Sharing(s)
	switch placeWords[p] {
	case "first-fit":
		cfg.Place = fragment.FirstFit{}
	case "consolidate":
		cfg.Place = fragment.Consolidate{}
	case "random":
		cfg.Place = fragment.NewRandom(seed)
	default:
		cfg.Place, err = fragment.NewMinimal(alpha)
	}
	return err
}
