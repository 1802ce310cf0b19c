package bfrt

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// TestWire holds what goes over the wire to bytes that our own messages had no part in, and that they read as what they
// were meant to be: the text of each message was encoded with the SDE's bfruntime.proto (open-p4studio 1f97778f),
//
//	protoc --encode=bfrt_proto.WriteRequest bfruntime.proto <job.txtpb | xxd -p
//
// The texts are beside the bytes, in testdata.
func TestWire(t *testing.T) {
	info, err := os.ReadFile("testdata/bf-rt.json")
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := os.ReadFile("testdata/fixed.json")
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := p4.NewPipeline(p4.Info())
	if err != nil {
		t.Fatal(err)
	}
	prog, err := newProgram("ina_tna", pipe, info, fixed)
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{has: newTables()}
	updates := func(ch change, err error) *bfrtpb.WriteRequest {
		if err != nil {
			t.Fatal(err)
		}
		return &bfrtpb.WriteRequest{Target: c.target(), ClientId: 7, Updates: ch.updates}
	}
	job := ina.JobEntry{Job: 300, Epoch: 5, Mode: ina.Statistical, Addressing: ina.Linear, Base: 64, Size: 128, Offset: 3, Expect: 0x8000_0000_0000_0003, Window: 256, UpPort: 132, DownGroup: 300}
	for name, m := range map[string]proto.Message{
		"subscribe": &bfrtpb.StreamMessageRequest{ClientId: 7, Update: &bfrtpb.StreamMessageRequest_Subscribe{
			Subscribe: &bfrtpb.Subscribe{DeviceId: 1, Notifications: &bfrtpb.Subscribe_Notifications{}},
		}},
		"bind": &bfrtpb.SetForwardingPipelineConfigRequest{ClientId: 7, Config: []*bfrtpb.ForwardingPipelineConfig{{P4Name: "ina_tna"}}},
		"load": &bfrtpb.SetForwardingPipelineConfigRequest{
			ClientId: 7, Action: bfrtpb.SetForwardingPipelineConfigRequest_VERIFY_AND_WARM_INIT_BEGIN_AND_END,
			Config: []*bfrtpb.ForwardingPipelineConfig{{P4Name: "ina_tna", BfruntimeInfo: []byte("{}"), Profiles: []*bfrtpb.ForwardingPipelineConfig_Profile{
				{ProfileName: "pipe", Context: []byte("{}"), Binary: []byte{1}, PipeScope: []uint32{0, 1}},
			}}},
		},
		"job":   updates(c.setJob(prog, 300, &job)),
		"route": updates(c.setRoute(prog, [4]byte{10, 0, 0, 1}, &p4.Route{Dst: [4]byte{10, 0, 0, 1}, Port: 132, MAC: [6]byte{2, 0, 0, 0, 0, 1}})),
		"group": updates(c.setGroup(prog, 300, group{{132, 140}})),
		"read": &bfrtpb.ReadRequest{Target: c.target(), ClientId: 7, P4Name: "ina_tna", Entities: []*bfrtpb.Entity{
			entity(&bfrtpb.TableEntry{TableId: prog.jobs.ID, TableFlags: &bfrtpb.TableFlags{FromHw: true}}),
		}},
		"sync": &bfrtpb.WriteRequest{Target: c.target(), ClientId: 7, Updates: []*bfrtpb.Update{{Type: bfrtpb.Update_INSERT, Entity: &bfrtpb.Entity{Entity: &bfrtpb.Entity_TableOperation{
			TableOperation: &bfrtpb.TableOperation{TableId: prog.counters[0].ID, TableOperationsType: "Sync"},
		}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if dir := os.Getenv("INABENCH_TEST_WIRE"); dir != "" { // the text, to be encoded
				if err := os.WriteFile(filepath.Join(dir, name+".txtpb"), []byte(prototext.Format(m)), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := hex.DecodeString(strings.Join(strings.Fields(string(want)), ""))
			if err != nil {
				t.Fatal(err)
			}
			got := m.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(text, got); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(m, got) { // what we do not know in it is a difference, too
				t.Errorf("it is read as\n%swant\n%s", prototext.Format(got), prototext.Format(m))
			}
		})
	}
}
