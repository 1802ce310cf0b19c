package cluster

import (
	"reflect"
	"testing"
)

func TestPlacementText(t *testing.T) {
	for text, want := range map[string]Placement{
		"-":                      {},
		"3:4":                    {Parts: []Part{{3, 4}}},
		"5:4 7:0 ps 6":           {Parts: []Part{{5, 4}, {7, 0}}, PS: []int{6}},
		"5:4 7:4 ps 6 7 plain 1": {Parts: []Part{{5, 4}, {7, 4}}, PS: []int{6, 7}, Plain: []int{1}},
		"1:2 plain 0 1":          {Parts: []Part{{1, 2}}, Plain: []int{0, 1}},
		"1:2 3:1 spare 3:1 2:4 ranks 1 3 1": {
			Parts: []Part{{1, 2}, {3, 1}}, Spare: []Part{{3, 1}, {2, 4}}, Ranks: []int{1, 3, 1},
		},
	} {
		got, err := ParsePlacement(text)
		if err != nil || !reflect.DeepEqual(got, want) || got.String() != text {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "ps 1", "1", "1:", ":1", "1:2 3", "1:2 ps 3:1", "1:2 ps x", "-1:2", "1:-2", "1:2 ps -1", "1:2 plain 1 ps 2", "1:2 ps 1 ps 2", "- 1:2", "1:2 spare 3", "1:2 ranks 1:2", "1:2 ranks 1 spare 2:1"} {
		if p, err := ParsePlacement(text); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
}

// What is read comes out the same.
func FuzzParsePlacement(f *testing.F) {
	f.Add("5:4 7:0 ps 6 plain 1")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePlacement(text)
		if err != nil {
			if !reflect.DeepEqual(p, Placement{}) {
				t.Errorf("%q: %v beside %v", text, p, err)
			}
			return
		}
		again, err := ParsePlacement(p.String())
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%q: %v, then %v (%v)", text, p, again, err)
		}
	})
}
