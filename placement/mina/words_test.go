package mina

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/placement/mina/fragment"
	"github.com/inabench/inabench/placement/mina/tree"
)

// Every word is one part, the first of each that of a Config of which nothing is said.
func TestNamed(t *testing.T) {
	places, trees, sharings := Words()
	minimal, err := fragment.NewMinimal(fragment.DefaultAlpha)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range []fragment.Policy{minimal, fragment.FirstFit{}, fragment.Consolidate{}, fragment.NewRandom(1)} {
		var cfg Config
		if err := cfg.Named(places[i], "", "", fragment.DefaultAlpha, 1); err != nil || cfg.Place.Name() != w.Name() {
			t.Errorf("%s: %v, %v", places[i], cfg.Place, err)
		}
		if i == 0 && (cfg.Trees != Packed || cfg.Options.Sharing != tree.Apart) {
			t.Errorf("by default: %+v", cfg)
		}
	}
	for i, w := range []Trees{Packed, First, FirstIdle} {
		var cfg Config
		if err := cfg.Named("", trees[i], "", fragment.DefaultAlpha, 1); err != nil || cfg.Trees != w {
			t.Errorf("%s: %v, %v", trees[i], cfg.Trees, err)
		}
	}
	for i, w := range []tree.Sharing{tree.Apart, tree.Together, tree.Merged, tree.Exclusive} {
		var cfg Config
		if err := cfg.Named("", "", sharings[i], fragment.DefaultAlpha, 1); err != nil || cfg.Options.Sharing != w {
			t.Errorf("%s: %v, %v", sharings[i], cfg.Options.Sharing, err)
		}
	}
	for _, bad := range [][3]string{{"best", "", ""}, {"", "best", ""}, {"", "", "best"}} {
		var cfg Config
		if err := cfg.Named(bad[0], bad[1], bad[2], fragment.DefaultAlpha, 1); err == nil || !strings.Contains(err.Error(), `"best" is none`) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
