package sharp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/testbed/sharp"
)

// TestEnvironment: what is asked for is asked for by name, and a default by silence.
func TestEnvironment(t *testing.T) {
	env, err := sharp.Ask{
		SAT: true, Exclusive: true, Devices: []string{"mlx5_1", "mlx5_2"},
		Quota: sharp.Quota{OSTs: 16, UserData: 1024, QPs: 2},
	}.Environment()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"NCCL_COLLNET_ENABLE=1", "SHARP_COLL_LOG_LEVEL=3", "SHARP_COLL_ENABLE_SAT=1", "SHARP_COLL_JOB_QUOTA_OSTS=16",
		"SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST=1024", "SHARP_COLL_JOB_QUOTA_MAX_QPS_PER_PORT=2",
		"SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE=1", "NCCL_IB_HCA==mlx5_1,mlx5_2",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
	least, err := sharp.Ask{}.Environment()
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{"QUOTA", "EXCLUSIVE", "NCCL_IB_HCA", "NCCL_NET=", "NCCL_ALGO", "MAX_GROUPS"} {
		if slices.ContainsFunc(least, func(v string) bool { return strings.Contains(v, absent) }) {
			t.Errorf("%s in %q", absent, least)
		}
	}
	if !slices.Contains(least, "SHARP_COLL_ENABLE_SAT=0") {
		t.Errorf("streaming not refused in %q", least)
	}
}

func TestEnvironmentRefuses(t *testing.T) {
	for _, a := range []sharp.Ask{
		{Quota: sharp.Quota{OSTs: -1}}, {Quota: sharp.Quota{Groups: -1}}, {Quota: sharp.Quota{QPs: -1}},
		{Quota: sharp.Quota{UserData: 127}}, {Quota: sharp.Quota{UserData: 1025}},
		{Devices: []string{""}}, {Devices: []string{"mlx5_1,mlx5_2"}}, {Devices: []string{"^mlx5_1"}},
	} {
		if env, err := a.Environment(); err == nil || env != nil {
			t.Errorf("%+v: %q, %v", a, env, err)
		}
	}
}
