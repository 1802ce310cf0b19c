package netns

import (
	"errors"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/softswitch"
)

// A switch that cannot keep up is named as the reason, so that nobody blames the model.
func TestJudgePlane(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plane *softswitch.Plane
		want  string // "": no trouble
		fatal bool
	}{
		{"the embedded switch", nil, "", false},
		{"at ease", &softswitch.Plane{Name: BMv2, Busy: .5, Frames: 1000}, "", false},
		{"busy", &softswitch.Plane{Name: BMv2, Busy: .95, Frames: 1000}, "switch saturated: the busiest thread of bmv2 takes 95 % of a core (limit 90 %)", true},
		{"lost", &softswitch.Plane{Name: BMv2, Frames: 1000, Lost: 10}, "switch saturated: 10 of 1000 frames never arrived in bmv2 (1.000 %, limit 0.01 %)", true},
		{"unsent", &softswitch.Plane{Name: BMv2, Frames: 100000, Unsent: 1}, "1 of 100000 frames never left bmv2", false},
		{"queued", &softswitch.Plane{Name: BMv2, Frames: 1000, Queued: 3}, "3 of 1000 frames met a full queue of bmv2", true},
		{"blind", &softswitch.Plane{Name: BMv2, Error: "gone"}, "counters of bmv2: gone", false},
	} {
		ts := judgePlane("switch s", tc.plane)
		switch {
		case tc.want == "" && len(ts) > 0:
			t.Errorf("%s: %+v", tc.name, ts)
		case tc.want != "" && (len(ts) != 1 || !strings.Contains(ts[0].What, tc.want) || ts[0].Fatal != tc.fatal || ts[0].Where != "switch s"):
			t.Errorf("%s: %+v, want %q, fatal %t", tc.name, ts, tc.want, tc.fatal)
		}
	}
}

func TestBMv2IsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := FindBMv2()
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "simple_switch_grpc is not on PATH") || !strings.Contains(err.Error(), "--switch bmv2") {
		t.Errorf("%v, want an error that says what is missing and how to get it", err)
	}
}

func TestOptionsOfSwitches(t *testing.T) {
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{Switch: Soft}, ""},
		{Options{Switch: BMv2}, ""},
		{Options{Switch: "tofino"}, `switch "tofino": want soft or bmv2`},
		{Options{Switch: BMv2, Offload: true}, "it forwards frames one by one"},
	} {
		if err := tc.o.check(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.o, err, tc.want)
		}
	}
}
