package experiments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// Every problem of every bad file, as a person sees them.
func TestInvalidSpecs(t *testing.T) {
	files, _ := filepath.Glob("testdata/invalid-*.toml")
	if len(files) == 0 {
		t.Fatal("no test data")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s, err := kinds.Load(file)
			var ps tomlfile.Problems
			if s != nil || !errors.As(err, &ps) {
				t.Fatalf("got %v, %v", s, err)
			}
			golden.Compare(t, strings.TrimSuffix(filepath.Base(file), ".toml")+".golden", ps.Error()+"\n")
		})
	}
}

// What a spec comes to: defaults, points, expectations.
func TestValidSpecs(t *testing.T) {
	for _, file := range []string{"testdata/valid-everything.toml", "quickstart.toml"} {
		t.Run(file, func(t *testing.T) {
			s, err := kinds.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if s.File != file || len(s.SHA256) != 64 || s.Inventory() == nil {
				t.Errorf("file %q, sha256 %q, inventory %v", s.File, s.SHA256, s.Inventory())
			}
			var b strings.Builder
			fmt.Fprintf(&b, "name %q, inventory %q\n%+v\n%+v\n%+v\n%+v\n", s.Name, s.InventoryPath, s.Emulation, s.Placement, s.Measure, s.Calibrate)
			for _, l := range s.LinkStates {
				fmt.Fprintf(&b, "%+v\n", l)
			}
			for _, e := range s.Expectations() {
				fmt.Fprintf(&b, "%+v\n", e)
			}
			for _, p := range s.Points() {
				fmt.Fprintf(&b, "\npoint %d %q %v\n%+v\n", p.Index, p.Labels, p.Params, p.Spec.Switch)
				for _, j := range p.Spec.Jobs {
					fmt.Fprintf(&b, "%+v\n", j)
				}
			}
			golden.Compare(t, strings.TrimSuffix(filepath.Base(file), ".toml")+".golden", b.String())
		})
	}
}

// Every inventory that ships can be read.
func TestRacks(t *testing.T) {
	files, _ := filepath.Glob("racks/*.toml")
	if len(files) < 2 {
		t.Fatal("no racks")
	}
	for _, file := range files {
		if _, err := inventory.Load(file); err != nil {
			t.Error(err)
		}
	}
}

// Every experiment that ships can be read.
func TestShippedSpecs(t *testing.T) {
	files, _ := filepath.Glob("*.toml")
	if len(files) == 0 {
		t.Fatal("no experiments")
	}
	for _, file := range files {
		if _, err := kinds.Load(file); err != nil {
			t.Error(err)
		}
	}
}

// TestNarrowed: a comparison knows of which swept keys a run has other values than its experiment.
func TestNarrowed(t *testing.T) {
	for _, c := range []struct{ sets, want []string }{
		{nil, nil},
		{[]string{"measure.repeats=1", "trace.jobs=5"}, nil},
		{[]string{`sweep.0.values=["0bit/s"]`}, []string{"fat_tree.pat"}},
		{[]string{"fat_tree.pat=0bit/s", `sweep.1.values=["netpack", "tetris"]`}, []string{"fat_tree.pat", "placement.policy"}},
	} {
		s, err := kinds.Load("testbed-memory.toml", c.sets...)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Narrowed(); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.sets, got, c.want)
		}
	}
}

func TestLoadSet(t *testing.T) {
	s, err := kinds.Load("quickstart.toml", "job.A.rate=5Gbit/s", "switch.aggregators=128", "measure.repeats=3", "job.B.hosts=h1,h3",
		"expect.sums are exact.gate=false", "inventory=racks/three-hosts.toml")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := s.Job("A")
	b, _ := s.Job("B")
	if a.Rate != 5e9 || s.Switch.Aggregators != 128 || s.Measure.Repeats != 3 || b.Hosts[1] != "h3" || s.Expectations()[2].Gate {
		t.Errorf("%+v", s)
	}
	if len(s.Overrides) != 6 {
		t.Errorf("overrides %q", s.Overrides)
	}
	for _, tt := range []struct{ set, want string }{
		{"switch.agregators=1", `--set switch.agregators=1: unknown key "agregators" in switch: did you mean "aggregators"?`},
		{"scale.factor=4000", `--set scale.factor=4000: unknown key "scale": did you mean "emulation.factor"?`},
		{"job.C.rate=1Gbit/s", `--set job.C.rate=1Gbit/s: no job "C": known: A, B`},
		{"job.A.rate=400Gbit/s", `--set job.A.rate=400Gbit/s: rate 400Gbit/s is above the 100Gbit/s that host h1 is linked with`},
		{"job.A.rate=5", `--set job.A.rate=5: job.rate: "5" lacks a unit: write "5Gbit/s" or another unit`},
		{"measure.repeats=many", `--set measure.repeats=many: measure.repeats is a string, want a whole number`},
		{"switch.mode=sync", `--set switch.mode=sync: unknown mode "sync": one of statistical, synchronous`},
	} {
		s, err := kinds.Load("quickstart.toml", tt.set)
		if s != nil || fmt.Sprint(err) != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
}

// TestNobodyWaits: a run that takes longer than anybody waits, or more memory than there is, is a typing error.
func TestNobodyWaits(t *testing.T) {
	for _, tt := range []struct{ set, want string }{
		{"measure.duration=1000000h", "1000000h0m0s: at most 31 days (744h)"},
		{"measure.warmup=745h", "745h0m0s: at most 31 days"},
		{"job.A.duration=1000000h", "1000000h0m0s: at most 31 days"},
		{"job.A.start=1000000h", "1000000h0m0s: at most 31 days"},
		{"measure.repeats=1000000000", "1000000000 repeats: at most 10000"},
		{"measure.interval=1ns", "readings in"},
	} {
		if _, err := kinds.Load("quickstart.toml", tt.set); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.set, err, tt.want)
		}
	}
}

// An assignment to a swept key takes the sweep's place, and cannot split a zip.
func TestSetOfSweptKey(t *testing.T) {
	s, err := kinds.Load("testdata/valid-everything.toml", "switch.pat_ratio=0.125")
	if err != nil {
		t.Fatal(err)
	}
	points := s.Points()
	if len(points) != 2 || points[1].Spec.Switch.PATRatio != 0.125 || len(points[1].Labels) != 2 {
		t.Errorf("%d points: %+v", len(points), points)
	}
	_, err = kinds.Load("testdata/valid-everything.toml", "job.B.rate=1Gbit/s")
	if want := `--set job.B.rate=1Gbit/s: "job.B.rate" is swept together with others (zip "load")`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A stored run is read again without its files.
func TestParseWithInventory(t *testing.T) {
	s, err := kinds.Load("quickstart.toml")
	if err != nil {
		t.Fatal(err)
	}
	again, err := kinds.Parse("moved/quickstart.toml", []byte(s.Text), s.Inventory())
	if err != nil {
		t.Fatal(err)
	}
	if again.SHA256 != s.SHA256 || again.Inventory() != s.Inventory() {
		t.Error("another spec")
	}
}

// Any text gives a spec or problems; what is accepted has sound points.
func FuzzParseSpec(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.toml")
	shipped, _ := filepath.Glob("*.toml")
	for _, file := range append(files, shipped...) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	inv, err := inventory.Load("racks/two-racks.toml")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := kinds.Parse("f", text, inv)
		var ps tomlfile.Problems
		if (s == nil) != (err != nil) || err != nil && !errors.As(err, &ps) {
			t.Fatalf("spec %v, error %v", s, err)
		}
		if s == nil {
			return
		}
		for i, p := range s.Points() {
			tables := len(p.Spec.Studies)
			if len(p.Spec.Jobs) > 0 {
				tables++
			}
			if p.Index != i || len(p.Labels) != len(p.Params) || tables != 1 || len(p.Spec.Expectations()) != len(s.Expects) {
				t.Fatalf("point %d of %d kinds: %+v", i, tables, p)
			}
		}
	})
}

// Values are read in the unit of their metric, as its example shows.
func TestValuesInUnits(t *testing.T) {
	for _, tt := range []struct {
		unit, text string
		want       float64
	}{
		{"1", "0.5", 0.5}, {"1/s", "1000", 1000}, {"bit/s", "10Gbit/s", 10e9}, {"s", "2s", 2}, {"B", "100MB", 100e6},
	} {
		if got, err := spec.InUnit(tt.unit, tt.text); err != nil || got != tt.want {
			t.Errorf("%q in %s: %v, %v, want %v", tt.text, tt.unit, got, err, tt.want)
		}
	}
	all := []spec.Measurables{spec.JobMetrics}
	for _, k := range kinds.All() {
		st := reflect.Zero(k.Type)
		if st.Kind() == reflect.Pointer {
			st = reflect.New(k.Type.Elem())
		}
		all = append(all, st.Interface().(spec.Study).Metrics())
	}
	for _, ms := range all {
		for name, m := range ms {
			if _, err := spec.InUnit(m.Unit, strings.Trim(m.Example(), `"`)); err != nil || m.Unit == "" {
				t.Errorf("%s in %q: %v", name, m.Unit, err)
			}
		}
	}
}

// TestOneStudy: a file with two studies, of whichever kinds, has one problem that says so and tells where both are.
func TestOneStudy(t *testing.T) {
	tables := map[string]string{
		"job":        "[[job]]\nname = \"A\"\n",
		"trace":      "[trace]\nfrom = \"poisson\"\n",
		"operations": "[operations]\njobs = 10\n",
		"service":    "[service]\nhosts = 2\n", // which cannot be read
		"training":   "[training]\nmodel = \"vgg16\"\n",
		"program":    "[[program]]\nname = \"p\"\n",
	}
	head := "version = 1\ninventory = \"racks/three-hosts.toml\"\n"
	said := func(text string) (out []string) {
		_, err := kinds.Parse("two.toml", []byte(text), nil)
		var ps tomlfile.Problems
		errors.As(err, &ps)
		for _, p := range ps {
			if strings.Contains(p.Hint, "make two experiments") {
				out = append(out, p.Error())
			}
		}
		return out
	}
	all := append(kinds.All(), spec.Named)
	for i := range all {
		for k := range all {
			first, second := &all[i], &all[k]
			if tables[first.Table] == "" {
				t.Fatalf("no table of %v here", first)
			}
			if first == second {
				continue
			}
			what := "make two experiments"
			if second.Table == "job" && first.Jobs != "" {
				what += ", or write " + first.Jobs + " tables"
			}
			col := func(k *spec.Kind) int { return strings.LastIndex(k.String(), "[") + 2 } // of the name
			want := fmt.Sprintf("two.toml:5:%d: %v besides %v: %s: %v is at two.toml:3:%d", col(second), second, first, what, first, col(first))
			if got := said(head + tables[first.Table] + tables[second.Table]); len(got) != 1 || got[0] != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		}
	}
	want := "two.toml:7:2: [trace] besides [[program]] and [training]: make two experiments: [[program]] is at two.toml:3:3, [training] is at two.toml:5:2"
	if got := said(head + tables["program"] + tables["training"] + tables["trace"]); len(got) != 1 || got[0] != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
