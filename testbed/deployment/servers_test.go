package deployment_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/clean"
	"github.com/inabench/inabench/testbed/deployment"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// labelled is an emulation whose switches answer as those of a lab do.
type labelled struct {
	*netns.Fabric
	inv     *inventory.Inventory
	servers map[string]interface{ Close() }
}

func (f *labelled) Inventory() *inventory.Inventory { return f.inv }

func (f *labelled) Close(ctx context.Context) error {
	for _, s := range f.servers {
		s.Close()
	}
	return f.Fabric.Close(ctx)
}

// lab emulates inv, puts a personality before every switch, and describes them as the
// inventory of such a lab would.
func lab(t *testing.T, p personality.Personality, inv *inventory.Inventory) *labelled {
	t.Helper()
	fabric, err := netns.Up(t.Context(), inv, netns.Options{Queue: "drr", Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	f := &labelled{fabric, fabric.Inventory().Clone(), map[string]interface{ Close() }{}}
	files := artefacts(t)
	topo := f.inv.Topology()
	for i := range f.inv.Switches {
		sw := &f.inv.Switches[i]
		o := personality.Options{Upstream: sw.Control, UpstreamDevice: sw.DeviceID, Device: 1, Ports: map[uint32]uint32{}, Names: map[uint32]string{}}
		sw.Kind, sw.DeviceConfig, sw.Push = inventory.Tofino, p.Name, inventory.PushChanged
		sw.Program = inventory.Program{Name: "ina_tna", P4Info: files["p4info.txtpb"], Binary: files["tofino.bin"], Context: files["context.json"], BFRT: files["bf-rt.json"]}
		switch p.Name {
		case inventory.StratumConfig, inventory.BFRTConfig:
			for _, l := range topo.Out(sw.Name) { // the chip's numbers are not those at the front
				port := topo.Links[l].FromPort
				o.Ports[port], o.Names[port] = 500-4*port, fmt.Sprintf("%d/0", port)
			}
			sw.Ports = o.Names
			sw.Port.Manual = true // no port of a Tofino is as slow
		case inventory.SDEConfig:
			o.Device, o.Ports = 0, nil
		case inventory.BMv2Config:
			o.Ports, sw.Kind = nil, inventory.BMv2
			sw.Program = inventory.Program{P4Info: files["p4info.txtpb"], JSON: files["ina.json"]}
		}
		if p.Name == inventory.BFRTConfig {
			o.Device = 0
			s, err := personality.StartBFRuntime(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			f.servers[sw.Name] = s
			sw.Control, sw.DeviceID = s.Addr, 0
			continue
		}
		s, err := personality.Start(p, o)
		if err != nil {
			t.Fatal(err)
		}
		f.servers[sw.Name] = s
		sw.Control, sw.GNMI, sw.DeviceID = s.P4RT, s.GNMI, o.Device
	}
	return f
}

// artefacts are the files of a compiled program, with ids of its own.
func artefacts(t *testing.T) map[string]string {
	t.Helper()
	info := p4.Info()
	for _, c := range info.Counters {
		c.Preamble.Id += 0x77
	}
	text, err := prototext.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	dir, out := t.TempDir(), map[string]string{}
	for name, b := range map[string][]byte{
		"p4info.txtpb": text, "tofino.bin": {1, 2, 3}, "context.json": []byte("{}"), "bf-rt.json": personality.BFRTInfo(info), "ina.json": []byte("{}"),
	} {
		out[name] = filepath.Join(dir, name)
		if err := os.WriteFile(out[name], b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func (f *labelled) open(ctx context.Context, more ...func(*remote.Options)) (*deployment.Testbed, error) {
	o := remote.Options{
		Fabric: f, Exe: "/proc/self/exe", Shared: true, Run: "servers-test",
		HostMAC:      func(host, device string) (net.HardwareAddr, error) { return f.HostMAC(host, device), nil },
		Capabilities: testbed.Capabilities{Sums: true, Calibrates: true, Kind: results.Measured, Switch: "tofino"},
	}
	for _, set := range more {
		set(&o)
	}
	return deployment.Open(ctx, o, deployment.Options{Interval: 20 * time.Millisecond})
}

// The code that drives a lab aggregates gradients through every kind of server: programs
// are built and pushed in their form, SDK ports learnt, jobs written, counters read, and
// nothing is left. A switch that a script drives stands beside.
func TestServers(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	for _, p := range []personality.Personality{personality.Stratum(), personality.SDE(), personality.PI(), {Name: inventory.BFRTConfig}} {
		t.Run(p.Name, func(t *testing.T) {
			inv := &inventory.Inventory{Name: "lab"}
			for s := range 2 {
				tor := fmt.Sprintf("tor%d", s+1)
				inv.Switches = append(inv.Switches, inventory.Switch{Name: tor, Kind: inventory.Soft, Aggregators: 256})
				for h := range 2 {
					inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", 2*s+h+1), GPUs: 1, NICs: []inventory.NIC{{
						Device: "eth0", Switch: tor, Port: uint32(h + 1), Rate: 8e6, Delay: time.Millisecond}}})
				}
			}
			inv.Links = []inventory.Link{{A: inventory.Port{Switch: "tor1", Port: 9}, B: inventory.Port{Switch: "tor2", Port: 9}, Rate: 8e6, Delay: time.Millisecond}}
			f := lab(t, p, inv)
			marker := filepath.Join(t.TempDir(), "set up")
			f.inv.Switches = append(f.inv.Switches, inventory.Switch{Name: "atp1", Kind: inventory.Scripted, Server: inventory.Server{Script: &inventory.Script{
				Host: "h1", Setup: []string{"cp", "/dev/null", marker}, Status: []string{"ls", marker}, Expect: "set up$",
				Counters: []string{"printf", `{"collisions": 3}`}, Clear: []string{"rm", marker},
			}}})
			tb, err := f.open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tb.Close(context.Background())
			if _, err := os.Stat(marker); err != nil {
				t.Errorf("the script was not run: %v", err)
			}

			job := placement.JobPlan{ID: 1, Name: "A", Collective: placement.INA, PS: "h4"}
			for rank, h := range []string{"h1", "h2", "h3"} {
				job.Workers = append(job.Workers, placement.Worker{Host: h, Rank: rank})
			}
			if err := placement.BuildTree(tb.Inventory().Topology(), tb.Inventory(), &job); err != nil {
				t.Fatal(err)
			}
			d, err := tb.Deploy(t.Context(), testbed.Setup{
				Plan: &placement.Plan{Jobs: []placement.JobPlan{job}}, Settings: testbed.Settings{Lanes: 64},
				Workloads: []testbed.Workload{{Job: job, Window: 32, RTO: 2 * time.Second, Message: 64 * 4 * 50, Iterations: 3}}, // nothing is lost
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Start(t.Context(), "A"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-d.Done("A"):
			case <-time.After(2 * time.Minute):
				t.Error("the job does not end")
			}
			sum, err := d.Summary("A")
			if err != nil || sum.Iterations != 3 || sum.SumsChecked == 0 || sum.SumErrors != 0 {
				t.Errorf("%+v, %v", sum, err)
			}
			samples, err := d.Sample(t.Context())
			for tries := 0; err != nil && tries < 10; tries++ { // on a busy machine a switch may be too slow for one
				samples, err = d.Sample(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			last := map[string]float64{}
			for _, s := range samples {
				last[s.Metric+" "+s.Of] = s.Value
			}
			in, up := last["job_in_packets A@tor1"], last["job_out_packets A@tor1"]
			t.Logf("%v gradient packets entered tor1 and %v left it upwards; %d sums checked", in, up, sum.SumsChecked)
			if in < 300 || up <= 0 || up > in/2+20 {
				t.Errorf("%v packets entered tor1 and %v left it upwards: no aggregation", in, up)
			}
			if last["port_rx_packets h1->tor1"] < 150 || last["script_collisions atp1"] != 3 {
				t.Errorf("port_rx of h1 %v, collisions %v", last["port_rx_packets h1->tor1"], last["script_collisions atp1"])
			}
			_, discards := last["mac_tx_discards tor1->h1"]
			// They are not read at the same moment.
			mac, pipeline := last["mac_rx_bytes h1->tor1"], last["port_rx_bytes h1->tor1"]
			if p.GNMI && (mac == 0 || mac < 0.9*pipeline || mac > 1.1*pipeline || discards) {
				t.Errorf("the MAC counted %v bytes, the pipeline %v; out-discards are there: %v", mac, pipeline, discards)
			}
			facts := tb.SwitchFacts()
			if len(facts) != 3 || facts[0].Server != p.Name || facts[0].DeviceConfig == "" || facts[0].Kept || facts[2].Script["status"] == "" {
				t.Errorf("facts %+v", facts)
			}

			if troubles, err := d.Health(t.Context()); err != nil || slices.ContainsFunc(troubles, aboutATP) {
				t.Errorf("health %v, %v", troubles, err)
			}
			if err := os.Rename(marker, marker+" not"); err != nil {
				t.Fatal(err)
			}
			if troubles, _ := d.Health(t.Context()); !slices.ContainsFunc(troubles, aboutATP) {
				t.Errorf("a switch whose status fails is well: %v", troubles)
			}
			if err := os.Rename(marker+" not", marker); err != nil {
				t.Fatal(err)
			}

			if err := errors.Join(d.Close(t.Context()), tb.Close(t.Context())); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the script was not cleared: %v", err)
			}
		})
	}
}

func aboutATP(t results.Trouble) bool {
	return t.Where == "switch atp1" && t.Fatal && strings.HasPrefix(t.What, "status (ls on h1): ")
}

// Jobs of ours do not go through a switch whose data plane is another's.
func TestScriptedSwitchRefusesJobs(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	f := lab(t, personality.PI(), twoHosts())
	f.inv.Switches[0].Kind = inventory.Scripted
	f.inv.Switches[0].Server = inventory.Server{Script: &inventory.Script{Host: "h1", Setup: []string{"true"}}}
	tb, err := f.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close(context.Background())
	_, err = tb.Deploy(t.Context(), jobA(t, tb.Inventory(), testbed.Workload{Window: 8}))
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "tor1 is of kind script") {
		t.Errorf("got %v", err)
	}
	if slices.ContainsFunc(tb.SwitchFacts(), func(f results.SwitchFacts) bool { return f.DeviceConfig != "" }) {
		t.Error("a script has no device config")
	}
}

// What a script has set up is cleared after the run that did it was killed: its journal
// says how.
func TestScriptCleanedAfterCrash(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Kind: inventory.Soft}}, Hosts: []inventory.Host{{
		Name: "h1", GPUs: 1, NICs: []inventory.NIC{{Device: "eth0", Switch: "tor1", Port: 1, Rate: 8e6, Delay: time.Millisecond}},
	}}}
	f := lab(t, personality.PI(), inv)
	marker := filepath.Join(t.TempDir(), "set up")
	sw := inventory.Switch{Name: "atp1", Kind: inventory.Scripted, Server: inventory.Server{Script: &inventory.Script{
		Host: "h1", Setup: []string{"cp", "/dev/null", marker}, Clear: []string{"rm", "-f", marker},
	}}}
	f.inv.Switches = append(f.inv.Switches, sw)
	h, dir := f.inv.Hosts[0], t.TempDir()
	text := fmt.Sprintf("version = 1\n[[switch]]\nname = \"tor1\"\nkind = \"bmv2\"\ncontrol = %q\ndevice_id = 1\n"+
		"[[switch]]\nname = \"atp1\"\nkind = \"script\"\nscript = {host = \"h1\", setup = [\"true\"]}\n"+
		"[[host]]\nname = \"h1\"\nssh = {address = %q, user = %q, key = %q, known_hosts = %q, config = \"none\"}\nnic = {port = \"tor1/1\", rate = \"1Gbit/s\"}\n",
		f.inv.Switches[0].Control, h.SSH.Address, h.SSH.User, h.SSH.Key, h.SSH.KnownHosts)
	j, err := journal.Open(dir, journal.Header{Run: "crashed", Owner: keepers.Owner(), File: filepath.Join(dir, "lab.toml"), Inventory: text})
	if err != nil {
		t.Fatal(err)
	}
	tb, err := f.open(t.Context(), func(o *remote.Options) { o.Run, o.Hold.Journal = "crashed", j })
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close(context.Background()) // it fails, since its journal is gone
	if _, err := os.Stat(marker); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil { // as the end of the process does
		t.Fatal(err)
	}
	if j, err = journal.Resume(dir, "crashed"); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var said []string
	err = clean.Run(t.Context(), j, clean.Options{Exe: "/proc/self/exe", Force: true, Say: func(target, what string) { said = append(said, target+": "+what) }})
	if err != nil || !slices.Contains(said, "switch atp1: run: rm -f "+marker) {
		t.Errorf("%v; it said %q", err, said)
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not cleared: %v", err)
	}
}
