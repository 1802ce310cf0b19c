package starter_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/starter"
	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/inventory"
)

func names(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%02d", prefix, i+1))
	}
	return out
}

// TestLabs: whatever the lab, its files pass every check and have a plan, every host has its cable, and the job spans
// all racks that it can.
func TestLabs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 25 {
		hosts := 2 + r.IntN(63)
		l := starter.Lab{
			Name: "lab", Hosts: names("node", hosts), GPUs: r.IntN(9), Rate: inventory.BitRate([]float64{1e9, 10e9, 25e9, 100e9, 400e9}[r.IntN(5)]),
			Switches: names("tor", 1+r.IntN(min(hosts, 8))), Kind: inventory.Kind(starter.Kinds[r.IntN(len(starter.Kinds))]),
			Aggregators: []int{0, 64, 4096}[r.IntN(3)], Uplink: inventory.BitRate([]float64{100e9, 400e9}[r.IntN(2)]), Login: r.IntN(2) == 0,
		}
		inv, text, err := l.Inventory()
		if err != nil {
			t.Fatalf("%+v: %v", l, err)
		}
		again, err := inventory.Parse("lab.toml", text)
		if err != nil {
			t.Fatalf("%+v: %v\n%s", l, err, text)
		}
		var got []string
		for _, h := range again.Hosts {
			got = append(got, h.Name)
			if n := h.NICs[0]; n.Rate != l.Rate || n.Delay == 0 || h.GPUs != l.GPUs || (h.SSH.Address == h.Name) != l.Login {
				t.Errorf("%+v: host %+v", l, h)
			}
		}
		if !slices.Equal(got, l.Hosts) {
			t.Errorf("%+v: hosts %v", l, got)
		}
		experiment, err := starter.Experiment(inv, "lab.toml")
		if err != nil {
			t.Fatalf("%+v: %v", l, err)
		}
		s, err := kinds.Parse("first.toml", experiment, again)
		if err != nil {
			t.Fatalf("%+v: %v\n%s", l, err, experiment)
		}
		if _, err := experiments.NewPlan(t.Context(), s, "test"); err != nil {
			t.Errorf("%+v: %v\n%s\n%s", l, err, text, experiment)
		}
		racks := map[string]bool{}
		for _, name := range s.Jobs[0].Hosts {
			h, _ := again.Host(name)
			racks[h.Rack] = true
		}
		if want := min(len(l.Switches), len(s.Jobs[0].Hosts)); len(racks) != want {
			t.Errorf("%+v: the job has hosts of %d racks", l, len(racks))
		}
	}
}

// TestSlowWorker: what a job may send is told by its slowest worker.
func TestSlowWorker(t *testing.T) {
	inv, err := inventory.Parse("lab.toml", []byte(`version = 1
[[switch]]
name = "tor1"
kind = "soft"
aggregators = 64
[[host]]
name = "h1"
nic = {port = "tor1/1", rate = "100Gbit/s", delay = "1us"}
[[host]]
name = "h[2-3]"
nic = {port = "tor1/[2-3]", rate = "10Gbit/s", delay = "1us"}
`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := starter.Experiment(inv, "lab.toml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kinds.Parse("first.toml", text, inv); err != nil || !strings.Contains(string(text), `"2Gbit/s"`) {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestFiles(t *testing.T) {
	l := starter.Lab{Name: "lab", Hosts: names("node", 16), GPUs: 8, Rate: 100e9, Switches: []string{"tor1", "tor2"}, Kind: inventory.Tofino, Aggregators: 4096, Uplink: 400e9}
	inv, text, err := l.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "lab.toml", string(text))
	experiment, err := starter.Experiment(inv, "lab.toml")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "first.toml", string(experiment))
	golden.Compare(t, "inabench.yml", string(starter.Workflow("first.toml")))
}

func TestBadLabs(t *testing.T) {
	for _, tt := range []struct {
		l    starter.Lab
		want string
	}{
		{starter.Lab{Hosts: names("h", 1), Switches: names("tor", 1)}, "one host alone"},
		{starter.Lab{Hosts: names("h", 2)}, "without a switch"},
		{starter.Lab{Hosts: names("h", 2), Switches: names("tor", 3)}, "2 hosts on 3 ToR switches"},
		{starter.Lab{Hosts: names("h", 2), Switches: names("tor", 1), Kind: "router"}, `kind "router"`},
		{starter.Lab{Name: "x", Hosts: []string{"h1", "tor1"}, Switches: []string{"tor1"}, Kind: inventory.Soft, Rate: 1e9}, "tor1"},
	} {
		if _, _, err := tt.l.Inventory(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %s", tt.l, err, tt.want)
		}
	}
}
