package sharp

import (
	"fmt"
	"strconv"
	"strings"
)

// TreeType is what an aggregation tree is for.
type TreeType string

// The tree types there are, as logs name them.
const (
	LLT TreeType = "LLT" // low latency: small messages, several operations at a time
	SAT TreeType = "SAT" // streaming: long messages, one job at a time on Quantum HDR
)

// Quota is the part of a tree that a job asks for or is granted. 0 asks for the manager's
// default; of a SAT, quotas are not reported.
type Quota struct {
	OSTs          int `json:"osts,omitempty"`           // outstanding operations
	UserData      int `json:"user_data,omitempty"`      // bytes in each: 128..1024
	Groups        int `json:"groups,omitempty"`         // communicators
	QPs           int `json:"qps,omitempty"`            // queue pairs of a port
	GroupChannels int `json:"group_channels,omitempty"` // of a group
}

// Ask is what a job asks SHARP for, through its environment.
type Ask struct {
	SAT       bool  // streaming trees too
	Exclusive bool  // the lock of the trees for the job alone, from its start
	Quota     Quota // GroupChannels is not for asking
	// Devices are the host ports that NCCL uses, such as "mlx5_1"; empty: all.
	Devices []string
}

// Environment is the variables that make a job that uses NCCL, or HPC-X, ask for SHARP and
// log what it was granted, so that JobLog.Proof has something to go by. Each is "NAME=value".
// It is an error to ask for what the library refuses.
//
// NCCL_NET and NCCL_ALGO are left alone on purpose: the first bypasses the SHARP plugin when
// it is IB, the second makes jobs crash whose other collectives lack the algorithm.
//
// Source: manual of HPC-X 2.x; github.com/Mellanox/nccl-rdma-sharp-plugins, src/sharp_plugin.c.
func (a Ask) Environment() ([]string, error) {
	q := a.Quota
	for _, v := range []struct {
		name string
		n    int
	}{{"osts", q.OSTs}, {"user data", q.UserData}, {"groups", q.Groups}, {"qps", q.QPs}} {
		if v.n < 0 {
			return nil, fmt.Errorf("SHARP quota: %s: %d is negative", v.name, v.n)
		}
	}
	if q.UserData != 0 && (q.UserData < 128 || q.UserData > 1024) {
		return nil, fmt.Errorf("SHARP quota: %d bytes of user data in an OST: must be 128 to 1024, or 0 for the default", q.UserData)
	}
	env := []string{
		"NCCL_COLLNET_ENABLE=1",
		"NCCL_DEBUG=INFO",
		"NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING",
		"SHARP_COLL_LOG_LEVEL=3",
		"SHARP_COLL_ENABLE_SAT=" + oneIf(a.SAT),
	}
	for _, v := range []struct {
		name string
		n    int
	}{
		{"SHARP_COLL_JOB_QUOTA_OSTS", q.OSTs},
		{"SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST", q.UserData},
		{"SHARP_COLL_JOB_QUOTA_MAX_GROUPS", q.Groups},
		{"SHARP_COLL_JOB_QUOTA_MAX_QPS_PER_PORT", q.QPs},
	} {
		if v.n > 0 {
			env = append(env, v.name+"="+strconv.Itoa(v.n))
		}
	}
	if a.Exclusive {
		env = append(env, "SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE=1")
	}
	if len(a.Devices) > 0 {
		for _, d := range a.Devices {
			if d == "" || strings.ContainsAny(d, "=^, \t\n\x00") {
				return nil, fmt.Errorf("NCCL device: %q is not the name of one", d)
			}
		}
		// Names are prefixes unless "=" says otherwise: mlx5_1 would be mlx5_10 too.
		env = append(env, "NCCL_IB_HCA=="+strings.Join(a.Devices, ","))
	}
	return env, nil
}

func oneIf(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
