package sabotage

import (
	"regexp"
	"strings"
	"testing"
)

// TestCatalogue holds entries to what a table and a terminal need of them.
func TestCatalogue(t *testing.T) {
	if len(Catalogue) < 25 {
		t.Errorf("%d faults, want at least 25", len(Catalogue))
	}
	seen := map[string]bool{}
	plain := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, f := range Catalogue {
		if !plain.MatchString(f.Name) || seen[f.Name] {
			t.Errorf("name %q: not plain, or there twice", f.Name)
		}
		seen[f.Name] = true
		if f.What == "" || f.Sign == "" || f.At == "" || f.Want == "" || strings.HasSuffix(f.What, ".") {
			t.Errorf("%s is incomplete: %+v", f.Name, f)
		}
		if f.Every < 0 {
			t.Errorf("%s acts on one of %d", f.Name, f.Every)
		}
	}
}

// TestParse: what the command line says becomes an order.
func TestParse(t *testing.T) {
	for _, c := range []struct{ text, name, part string }{
		{"flip-sums", "flip-sums", ""},
		{"flip-sums=tor1", "flip-sums", "tor1"},
		{"slow-up=h1->tor1", "slow-up", "h1->tor1"},
		{"stop=A/0", "stop", "A/0"},
		{"no-such", "", ""},
		{"flip-sums=", "", ""},
		{"", "", ""},
	} {
		o, err := Parse(c.text)
		if c.name == "" {
			if err == nil {
				t.Errorf("%q: accepted as %+v", c.text, o)
			}
			continue
		}
		if err != nil || o.Name != c.name || o.Part != c.part {
			t.Errorf("%q: %+v, %v", c.text, o, err)
		}
	}
}

// TestRefused: no fault in a lab, switch faults only in the embedded switch, and in the model
// what it can carry.
func TestRefused(t *testing.T) {
	simulated := 0
	for _, f := range Catalogue {
		if f.Refused("lab", "") == "" {
			t.Errorf("%s is not refused in a lab", f.Name)
		}
		if why := f.Refused("netns", ""); why != "" {
			t.Errorf("%s is refused on netns: %s", f.Name, why)
		}
		if refused := f.Refused("netns", "bmv2") != ""; refused != (f.At == Switch) {
			t.Errorf("%s on BMv2: refused %t", f.Name, refused)
		}
		if f.Refused("sim", "") == "" {
			simulated++
		}
	}
	if simulated < 5 {
		t.Errorf("the simulator carries %d faults", simulated)
	}
}

// TestCounter: a fault acts at once, and then regularly.
func TestCounter(t *testing.T) {
	var c Counter
	var acted []int
	for i := range 25 {
		if c.Next(10) {
			acted = append(acted, i)
		}
	}
	if len(acted) != 3 || acted[0] != 0 || acted[1] != 10 || acted[2] != 20 {
		t.Errorf("acted on %v", acted)
	}
	if c = (Counter{}); !c.Next(0) || !c.Next(1) {
		t.Error("a fault that acts on everything does not")
	}
}
