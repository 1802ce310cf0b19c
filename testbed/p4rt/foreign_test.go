package p4rt_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
)

// telling is a P4Runtime server that says of its pipeline what a test wants.
type telling struct {
	recorder
	short, whole *p4v1.ForwardingPipelineConfig // without the device config, and all; nil: the answer is empty
	err, denied  error                          // of the two
}

func (s *telling) GetForwardingPipelineConfig(_ context.Context, q *p4v1.GetForwardingPipelineConfigRequest) (*p4v1.GetForwardingPipelineConfigResponse, error) {
	if q.GetResponseType() == p4v1.GetForwardingPipelineConfigRequest_ALL {
		return &p4v1.GetForwardingPipelineConfigResponse{Config: s.whole}, s.denied
	}
	return &p4v1.GetForwardingPipelineConfigResponse{Config: s.short}, s.err
}

// TestForeign: what a server says of somebody else's program is told; what it keeps to itself is not taken for nothing, and
// nobody is fooled by names.
func TestForeign(t *testing.T) {
	program := func(name string, tables ...string) *p4v1.ForwardingPipelineConfig {
		info := &p4configv1.P4Info{PkgInfo: &p4configv1.PkgInfo{Name: name}}
		for i, table := range tables {
			info.Tables = append(info.Tables, &p4configv1.Table{Preamble: &p4configv1.Preamble{Id: 0x02000001 + uint32(i), Name: "FabricIngress." + table}})
		}
		return &p4v1.ForwardingPipelineConfig{P4Info: info}
	}
	with := func(c *p4v1.ForwardingPipelineConfig) *p4v1.ForwardingPipelineConfig {
		c.P4DeviceConfig = []byte{1}
		return c
	}
	old := p4.Info() // one of INA whose tables are not like those of now
	old.Tables[0].MatchFields, old.Actions[0].Params, old.Counters = nil, nil, nil
	cookie := &p4v1.ForwardingPipelineConfig{Cookie: &p4v1.ForwardingPipelineConfig_Cookie{Cookie: 5}}
	for _, tt := range []struct {
		name   string
		server *telling
		want   string // what the program is called; "": there is none
		whole  bool
		err    error
	}{
		{"an empty answer", &telling{}, "", false, nil},
		{"nothing yet", &telling{err: status.Error(codes.FailedPrecondition, "no pipeline")}, "", false, nil},
		{"ours", &telling{short: &p4v1.ForwardingPipelineConfig{P4Info: p4.Info()}}, "", false, nil},
		{"ours of another version", &telling{short: &p4v1.ForwardingPipelineConfig{P4Info: old}}, "", false, nil},
		{"another's", &telling{short: program("fabric", "acl"), whole: with(program("fabric", "acl"))}, "fabric", true, nil},
		{"another's without its device config", &telling{short: program("fabric", "acl"), whole: program("fabric", "acl")}, "fabric", false, nil},
		{"an empty answer the second time", &telling{short: program("fabric", "acl")}, "fabric", false, nil},
		{"too long", &telling{short: program("fabric", "acl"), denied: status.Error(codes.ResourceExhausted, "too long")}, "fabric", false, nil},
		{"loaded in between", &telling{short: program("fabric", "acl"), whole: with(program("router", "lpm"))}, "fabric", false, nil},
		{"without a name", &telling{short: program("", "a", "b", "c", "d")}, "one without a name, with tables a, b, c, 1 more", false, nil},
		{"a name of several lines", &telling{short: program("fab\nok\ttor1\x1b[2K", "acl")}, "fab\uFFFDok\uFFFDtor1\uFFFD[2K", false, nil},
		{"a long name", &telling{short: program(strings.Repeat("é", 1000), "acl")}, strings.Repeat("é", 100) + "…", false, nil},
		{"untold", &telling{err: status.Error(codes.Unimplemented, "")}, "", false, dataplane.ErrUntold},
		{"a cookie alone", &telling{short: cookie}, "", false, dataplane.ErrUntold},
		{"refused", &telling{err: status.Error(codes.PermissionDenied, "no")}, "", false, dataplane.ErrNotPrimary},
		{"no such device", &telling{err: status.Error(codes.NotFound, "device 7")}, "", false, dataplane.ErrDevice},
		{"refused the second time", &telling{short: program("fabric", "acl"), denied: status.Error(codes.PermissionDenied, "no")}, "", false, dataplane.ErrNotPrimary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.server
			s.mute = make(chan struct{})
			close(s.mute)
			found, err := dial(t, s.serve(t, s)).Foreign(t.Context())
			if !errors.Is(err, tt.err) {
				t.Fatalf("%v, want %v", err, tt.err)
			}
			if (found != nil) != (tt.want != "") || found != nil && (found.Name != tt.want || (len(found.Config) > 0) != tt.whole) {
				t.Errorf("%+v, want %q", found, tt.want)
			}
			if tt.whole {
				m := &p4v1.ForwardingPipelineConfig{}
				if err := proto.Unmarshal(found.Config, m); err != nil || !proto.Equal(m, tt.server.whole) {
					t.Errorf("%v, %v", m, err)
				}
			}
		})
	}
}
