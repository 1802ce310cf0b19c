package pace

import (
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/carry"
)

const rack = `version = 1
[[switch]]
name = "tor1"
kind = "soft"
aggregators = 4096
[[host]]
name = "h[1-3]"
gpus = 2
nic = {port = "tor1/[1-3]", rate = "100Gbit/s", delay = "5us"}
`

// usual is a machine of two cores with costs that are easy to reckon with.
var usual = carry.Machine{CPUs: 2, Frame: 2e-6, Wake: 10e-6, Switch: 3e-6, SwitchWake: 5e-6}

func parse(t *testing.T, text string, sets ...string) *spec.Spec {
	t.Helper()
	inv, err := inventory.Parse("rack.toml", []byte(rack))
	if err != nil {
		t.Fatal(err)
	}
	s, err := kinds.Parse("x.toml", []byte("version = 1\n"+text), inv, sets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const job = `
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
`

// TestOf: a job with a limit of rate makes a million PSNs a second; one with a window as many as a cable takes. The
// shortest round trip is what the factor follows from, of which a tenth must be longer than a stall's millisecond.
func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Pace
	}{
		{"a limit of rate", job + `rate = "8.192Gbit/s"`, Pace{Factor: 500, Block: 16e-6, PSNs: 1e6, Trip: 4 * (5e-6 + 8192/100e9)}},
		// Two frames at a million a second, the second of which has 4 B of gradient, and then a round trip.
		{"messages, padded", job + `rate = "8.192Gbit/s"
message = "964B"`, Pace{Factor: 500, Block: 16e-6, PSNs: 2 / (20.33e-6 + 1e-6), Trip: 20.33e-6}},
		{"a window", job + "window = 100", Pace{Factor: 500, PSNs: 100 / 20.33e-6, Trip: 20.33e-6, Turn: 20.33e-6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan, err := experiments.NewPlan(t.Context(), parse(t, tt.text), "test")
			if err != nil {
				t.Fatal(err)
			}
			got, err := Of(usual, plan)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", got)
			near := func(what string, got, want float64) {
				if got < want*0.98 || got > want*1.02 {
					t.Errorf("%s %v, want %v", what, got, want)
				}
			}
			near("PSNs", got.PSNs, tt.want.PSNs)
			near("trip", got.Trip, tt.want.Trip)
			near("turn", got.Turn, tt.want.Turn)
			near("factor", got.Factor, tt.want.Factor)
			near("block", got.Block, tt.want.Block)
		})
	}
}

func TestNeeds(t *testing.T) {
	for _, tt := range []struct {
		p            Pace
		warm, length float64 // ms
	}{
		{Pace{Factor: 1000, Trip: 20e-6}, 120, 120},                 // six round trips
		{Pace{Factor: 10, Turn: 6}, 180e3, 180e3},                   // three turns
		{Pace{Factor: 10, Settled: 1}, 10e3, 0},                     // queues
		{Pace{Factor: 100, PSNs: 5000}, 0, 30e3},                    // 1500 PSNs
		{Pace{Factor: 1000, Block: 5e-3, PSNs: 3200}, 10e3, 468750}, // two blocks, and 1500 PSNs
		{Pace{Factor: 100, PSNs: 5000, Rounds: 50}, 0, 40e3},        // 20 all-reduces
		{Pace{Factor: 100, Trip: 1, PSNs: 5000}, 600e3, 600e3},      // the longest of them
		{Pace{Factor: 100, Settled: 0.01, Trip: 0.1}, 60e3, 60e3},   // the longest of them
	} {
		warm, length := tt.p.Needs()
		if int(warm+.5) != int(tt.warm) || int(length+.5) != int(tt.length) {
			t.Errorf("%+v: %v and %v ms, want %v and %v", tt.p, warm, length, tt.warm, tt.length)
		}
	}
}

// TestSets: what a file says is never changed, and what it does not say follows from the pace.
func TestSets(t *testing.T) {
	p := Pace{Factor: 1200, Trip: 1e-3, PSNs: 1e6}
	for _, tt := range []struct {
		name, text string
		sets       []string
		slower     float64
		want       string // "" where it is not open
	}{
		{"nothing is said", job, nil, 1, "emulation.factor=2000 measure.warmup=12s measure.duration=40s"},
		{"once more, slower", job, nil, 2, "emulation.factor=5000 measure.warmup=30s measure.duration=100s"},
		{"times", job + "[measure]\nwarmup = \"2s\"\n", []string{"measure.duration=1s"}, 1, "emulation.factor=2000"},
		{"times of jobs", job + "duration = \"5s\"\n", nil, 1, "emulation.factor=2000"},
		{"a factor", job + "[emulation]\nfactor = 10\n", nil, 1, ""},
		{"a factor on the command line", job, []string{"emulation.factor=10"}, 1, ""},
		{"times that are swept", job + "[[sweep]]\nkey = \"measure.warmup\"\nvalues = [\"1s\", \"2s\"]\n", nil, 1, "emulation.factor=2000 measure.duration=40s"},
		{"shrunk", job + "[emulation]\nscale = \"shrunk\"\n", nil, 1, ""},
		{"BMv2", job + "[emulation]\nswitch = \"bmv2\"\n", nil, 1, ""},
		{"no plan", "[training]\nmodel = \"resnet50\"\nworkers = 2\nbackground = [0, 0, 0]\n[emulation]\nfactor = 5\n", nil, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parse(t, tt.text, tt.sets...)
			if Open(s) != (tt.want != "") {
				t.Fatalf("open: %v", Open(s))
			}
			if tt.want == "" {
				return
			}
			got := p.Sets(s, tt.slower)
			if strings.Join(got, " ") != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
			again := parse(t, tt.text, slices.Concat(tt.sets, got)...)
			if Open(again) {
				t.Error("it is open once more")
			}
		})
	}
}

// TestSparse: an experiment that says a factor at which a job hardly sends is told so, and what would do.
func TestSparse(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{job + `rate = "20Mbit/s"`, "sends 16 packets in 6.55 s, at random times of these, so that figures would not be judged: a smaller factor, a higher rate, or measure.warmup = 14s and measure.duration = 40s would do"},
		{job + "rate = \"20Mbit/s\"\n[measure]\nwarmup = \"14s\"\nduration = \"40s\"", ""},
		{job + "rate = \"20Mbit/s\"\n[measure]\nwarmup = \"14s\"", "measure.duration = 40s"},
		{job + "rate = \"20Mbit/s\"\nduration = \"50s\"\n[measure]\nwarmup = \"14s\"", ""},
		{job + `rate = "10Gbit/s"`, ""},
		{job, ""},
	} {
		s := parse(t, tt.text, "emulation.factor=1000")
		plan, err := experiments.NewPlan(t.Context(), s, "test")
		if err != nil {
			t.Fatal(err)
		}
		p, err := Of(carry.Machine{}, plan)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Sparse(s); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestLadder(t *testing.T) {
	for factor, want := range map[float64]float64{0: 1, 1: 1, 1.1: 2, 2: 2, 3: 5, 5.1: 10, 1200: 2000, 2500: 5000, 8000: 10000} {
		if got := Ladder(factor); got != want {
			t.Errorf("Ladder(%v) is %v, want %v", factor, got, want)
		}
	}
}
