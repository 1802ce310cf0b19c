package device_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/gnmi"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
)

// write puts files into a directory and returns its path.
func write(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func infos(t *testing.T) (text, binary []byte) {
	t.Helper()
	text, err := prototext.Marshal(p4.Info())
	if err != nil {
		t.Fatal(err)
	}
	if binary, err = proto.Marshal(p4.Info()); err != nil {
		t.Fatal(err)
	}
	return text, binary
}

// A program becomes what the server of its switch takes, and its files are remembered by
// their sums.
func TestLoadProgram(t *testing.T) {
	text, binary := infos(t)
	stratum := bfrt.Config{Program: "ina_tna", BFRT: []byte("bfrt"), Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("ctx"), Binary: []byte("bin")}}}
	sde := p4rt.SDEConfig{Program: "ina_tna", Binary: []byte("bin"), Context: []byte("ctx")}
	dir := write(t, map[string][]byte{
		"p4info.txtpb": text, "p4info.bin": binary, "tofino.bin": []byte("bin"), "context.json": []byte("ctx"), "bf-rt.json": []byte("bfrt"),
		"stratum.pb": stratum.Marshal(), "sde.bin": sde.Marshal(), "ina.json": []byte("{}"), "broken.txtpb": []byte("tables { what"),
	})
	in := func(name string) string { return filepath.Join(dir, name) }
	parts := inventory.Program{Name: "ina_tna", P4Info: in("p4info.txtpb"), Binary: in("tofino.bin"), Context: in("context.json")}
	whole := parts
	whole.BFRT = in("bf-rt.json")
	custom := whole
	custom.Profile, custom.Pipes = "ingress", []uint32{0, 1}
	customConfig := stratum
	customConfig.Profiles = []bfrt.Profile{{Name: "ingress", Context: []byte("ctx"), Binary: []byte("bin"), Pipes: []uint32{0, 1}}}
	for name, k := range map[string]struct {
		form    string
		program inventory.Program
		want    []byte
		err     string
	}{
		"Stratum":              {inventory.StratumConfig, whole, stratum.Marshal(), ""},
		"Stratum, some pipes":  {inventory.StratumConfig, custom, customConfig.Marshal(), ""},
		"Stratum, ready":       {inventory.StratumConfig, inventory.Program{P4Info: in("p4info.bin"), Blob: in("stratum.pb")}, stratum.Marshal(), ""},
		"SDE":                  {inventory.SDEConfig, parts, sde.Marshal(), ""},
		"SDE, ready":           {inventory.SDEConfig, inventory.Program{P4Info: in("p4info.txtpb"), Blob: in("sde.bin")}, sde.Marshal(), ""},
		"BMv2":                 {inventory.BMv2Config, inventory.Program{P4Info: in("p4info.txtpb"), JSON: in("ina.json")}, []byte("{}"), ""},
		"embedded":             {"", inventory.Program{}, nil, ""},
		"the SDE's to Stratum": {inventory.StratumConfig, inventory.Program{P4Info: in("p4info.txtpb"), Blob: in("sde.bin")}, nil, "sde.bin: not a compiled INA program for Tofino"},
		"Stratum's to the SDE": {inventory.SDEConfig, inventory.Program{P4Info: in("p4info.txtpb"), Blob: in("stratum.pb")}, nil, "stratum.pb: SDE: not such a device config"},
		"no such file":         {inventory.BMv2Config, inventory.Program{P4Info: in("p4info.txtpb"), JSON: in("absent.json")}, nil, "absent.json"},
		"broken p4info":        {inventory.BMv2Config, inventory.Program{P4Info: in("broken.txtpb"), JSON: in("ina.json")}, nil, "broken.txtpb: not a p4info"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := device.LoadProgram(inventory.Switch{Name: "tor1", Server: inventory.Server{DeviceConfig: k.form, Program: k.program}})
			if k.err != "" {
				if err == nil || !strings.Contains(err.Error(), k.err) || !strings.HasPrefix(err.Error(), "switch tor1: program: ") {
					t.Errorf("got %v, want %q", err, k.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(k.want), string(p.DeviceConfig)); diff != "" {
				t.Errorf("device config (-want +got):\n%s", diff)
			}
			if !proto.Equal(p.Info, p4.Info()) {
				t.Error("another p4info")
			}
			for _, sum := range p.Files {
				if len(sum) != 64 {
					t.Errorf("sums %v", p.Files)
				}
			}
			if want := len(k.program.P4Info) > 0; want != (p.Files["p4info.txtpb"]+p.Files["p4info.bin"] != "") {
				t.Errorf("sums %v", p.Files)
			}
		})
	}
}

// BMv2 without a program of the lab's gets the one that comes with inabench.
func TestProgramForBMv2(t *testing.T) {
	p, err := device.LoadProgram(inventory.Switch{Name: "tor1", Kind: inventory.BMv2, Server: inventory.Server{DeviceConfig: inventory.BMv2Config}})
	if err != nil || !bytes.HasPrefix(p.DeviceConfig, []byte("{")) || p.Name != "ina_v1model" || len(p.Files["ina_v1model.p4"]) != 64 {
		t.Fatalf("%v, %v, %q", err, p.Files, p.Name)
	}
	if _, err := p4.NewPipeline(p.Info); err != nil {
		t.Error(err)
	}
}

// one is a switch whose counters have all counted one packet.
type one struct{ softswitchtest.Nowhere }

func (one) Counter(softswitch.Counter, int) (packets, bytes int64) { return 1, 64 }

func certificate(t *testing.T) (pair tls.Certificate, pemText, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stratum.lab"}, DNSNames: []string{"stratum.lab"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	pemText, key = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	if pair, err = tls.X509KeyPair(pemText, key); err != nil {
		t.Fatal(err)
	}
	return pair, pemText, key
}

// stratum is an embedded switch that answers as Stratum does.
func stratum(t *testing.T, c *tls.Config) *personality.Server {
	t.Helper()
	s, err := personality.Start(personality.Stratum(), personality.Options{
		Upstream: softswitchtest.Serve(t, 7, one{}), UpstreamDevice: 7, Device: 1, TLS: c,
		Ports: map[uint32]uint32{1: 132, 2: 140}, Names: map[uint32]string{1: "1/0", 2: "2/0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// A switch with the SDE's BFRuntime server is opened, programmed and looked at like any other.
func TestBFRuntime(t *testing.T) {
	s, err := personality.StartBFRuntime(t.Context(), personality.Options{
		Upstream: softswitchtest.Serve(t, 7, one{}), UpstreamDevice: 7,
		Ports: map[uint32]uint32{1: 132, 2: 140}, Names: map[uint32]string{1: "1/0", 2: "2/0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	text, _ := infos(t)
	dir := write(t, map[string][]byte{"p4info.txtpb": text, "bf-rt.json": personality.BFRTInfo(p4.Info()), "context.json": []byte("{}"), "tofino.bin": {1}})
	in := func(name string) string { return filepath.Join(dir, name) }
	sw := inventory.Switch{Name: "tor1", Kind: inventory.Tofino, Control: s.Addr, Server: inventory.Server{
		DeviceConfig: inventory.BFRTConfig, Ports: map[uint32]string{1: "1/0", 2: "2/0"}, Port: inventory.PortSetup{FEC: "rs"},
		Program: inventory.Program{Name: "ina_tna", P4Info: in("p4info.txtpb"), BFRT: in("bf-rt.json"), Context: in("context.json"), Binary: in("tofino.bin")},
	}}
	inv := &inventory.Inventory{Switches: []inventory.Switch{sw}}
	diagnose := func() device.Diagnosis {
		d := device.Diagnose(t.Context(), inv, sw, 10*time.Second)
		d.Seconds = 0
		return d
	}
	if d, want := diagnose(), (device.Diagnosis{Switch: "tor1", Pipeline: "none yet", PlainText: true}); !cmp.Equal(d, want) {
		t.Errorf("%+v, want %+v", d, want)
	}
	cables := []device.Cable{{Port: 1, Rate: 100e9}, {Port: 2, Rate: 25e9}}
	c, err := device.Dial(t.Context(), sw, cables, dataplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	p, err := device.LoadProgram(sw)
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Push(t.Context(), c, sw, cables, p); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), dataplane.Batch{Groups: []p4.Group{{ID: 1, Ports: []uint32{1, 2}}}}); err != nil {
		t.Error(err)
	}
	if got, want := s.Links(), map[uint32]string{132: "BF_SPEED_100G BF_FEC_TYP_RS PM_AN_DEFAULT 0", 140: "BF_SPEED_25G BF_FEC_TYP_RS PM_AN_DEFAULT 0"}; !cmp.Equal(got, want) {
		t.Errorf("links %v, want %v", got, want)
	}
	if d, want := diagnose(), (device.Diagnosis{Switch: "tor1", Pipeline: "that of the inventory", PlainText: true}); !cmp.Equal(d, want) {
		t.Errorf("%+v, want %+v", d, want)
	}
	if f := device.Facts(sw, p, c.Loaded()); f.Server != "bfrt" || f.Files["bf-rt.json"] == "" || f.DeviceConfig == "" {
		t.Errorf("%+v", f)
	}
	bmv2, _, _, err := p4.BMv2() // has limits, which the server does not tell
	if err != nil {
		t.Fatal(err)
	}
	if text, err = prototext.Marshal(bmv2); err != nil {
		t.Fatal(err)
	}
	limited := sw
	for path, want := range map[string]int{in("p4info.txtpb"): ina.MaxJob, filepath.Join(write(t, map[string][]byte{"p4info": text}), "p4info"): 127, "/no/such": ina.MaxJob} {
		limited.Program.P4Info = path
		o, err := device.Observe(t.Context(), limited, cables, dataplane.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if ours, err := device.Attach(t.Context(), o); !ours || err != nil || o.Jobs() != want {
			t.Errorf("%s: %d jobs, want %d; %v, %v", path, o.Jobs(), want, ours, err)
		}
		if err := o.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	sw.Program.Blob, sw.Program.BFRT = in("p4info.txtpb"), ""
	if _, err := device.LoadProgram(sw); !errors.Is(err, bfrt.ErrInfo) {
		t.Errorf("a blob that is none: %v", err)
	}
}

// A switch is opened over TLS that both sides prove themselves by, and its ports have the
// inventory's numbers. Whoever does not speak TLS, or comes without a certificate, is told.
func TestDial(t *testing.T) {
	pair, cert, key := certificate(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	s := stratum(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	_, other, _ := certificate(t)
	text, _ := infos(t)
	blob := bfrt.Config{Program: "ina_tna", Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte{1}, Binary: []byte{1}}}}.Marshal()
	dir := write(t, map[string][]byte{"ca.pem": cert, "other.pem": other, "me.pem": cert, "me.key": key, "p4info.txtpb": text, "ina.pb": blob})
	in := func(name string) string { return filepath.Join(dir, name) }
	sw := inventory.Switch{Name: "tor1", Kind: inventory.Tofino, Control: s.P4RT, DeviceID: 1, Server: inventory.Server{
		DeviceConfig: inventory.StratumConfig, GNMI: s.GNMI, Ports: map[uint32]string{1: "1/0", 2: "2/0"},
		TLS:     inventory.TLS{CA: in("ca.pem"), Cert: in("me.pem"), Key: in("me.key"), Name: "stratum.lab"},
		Program: inventory.Program{Name: "ina_tna", P4Info: in("p4info.txtpb"), Blob: in("ina.pb")},
	}}
	cables := []device.Cable{{Port: 1, Rate: 100e9}, {Port: 2, Rate: 100e9}}
	c, err := device.Dial(t.Context(), sw, cables, dataplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	p, err := device.LoadProgram(sw)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Push(t.Context(), p.Pipeline); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), dataplane.Batch{Groups: []p4.Group{{ID: 1, Ports: []uint32{1, 2}}}}); err != nil {
		t.Error(err)
	}
	if err := c.Write(t.Context(), dataplane.Batch{Groups: []p4.Group{{ID: 2, Ports: []uint32{3}}}}); !errors.Is(err, p4.ErrRange) {
		t.Errorf("a port that is not cabled: %v", err)
	}
	f := device.Facts(sw, p, c.Loaded())
	if f.PlainText || f.Files["ina.pb"] != f.DeviceConfig || f.Server != "stratum" {
		t.Errorf("%+v", f)
	}
	watcher, err := device.Observe(t.Context(), sw, cables, dataplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close(context.Background())
	if err := watcher.Attach(t.Context()); err != nil {
		t.Error(err)
	}
	if v, err := watcher.ReadCounters(t.Context(), []string{"port_rx"}, []int{2}); err != nil || len(v) != 1 || v[0].Index != 2 || v[0].Packets != 1 {
		t.Errorf("%+v, %v", v, err)
	}

	inv := &inventory.Inventory{Switches: []inventory.Switch{sw}, Hosts: []inventory.Host{{Name: "h1", NICs: []inventory.NIC{{Switch: "tor1", Port: 1}}}, {Name: "h2", NICs: []inventory.NIC{{Switch: "tor1", Port: 2}}}}}
	down := func(port string, own uint32) device.Link {
		return device.Link{Port: port, DevPort: own, Wrong: []string{"is down, should be up"}}
	}
	want := device.Diagnosis{Switch: "tor1", Version: "1.5.0", Pipeline: "that of the inventory", Ports: 2, Links: []device.Link{down("1/0", 132), down("2/0", 140)}}
	d := device.Diagnose(t.Context(), inv, sw, 10*time.Second)
	d.Seconds = 0
	if !cmp.Equal(d, want) {
		t.Errorf("while links come up: %+v, want %+v", d, want)
	}
	for range 4 { // they say that they are down some times after a load
		d = device.Diagnose(t.Context(), inv, sw, 10*time.Second)
	}
	d.Seconds = 0
	want.Links = []device.Link{{Port: "1/0", DevPort: 132, Up: true}, {Port: "2/0", DevPort: 140, Up: true}}
	if !cmp.Equal(d, want) {
		t.Errorf("%+v, want %+v", d, want)
	}
	wrong := sw
	wrong.DeviceID = 5
	if d := device.Diagnose(t.Context(), inv, wrong, 10*time.Second); !strings.Contains(d.Error, "device 5") || !strings.Contains(d.Hint, "device_id") {
		t.Errorf("another device: %+v", d)
	}
	wrong = sw
	wrong.Program.Blob = in("p4info.txtpb")
	if d := device.Diagnose(t.Context(), inv, wrong, 10*time.Second); !strings.Contains(d.Error, "not a compiled INA program") {
		t.Errorf("no program: %+v", d)
	}
	wrong = sw
	wrong.Control, wrong.GNMI = "127.0.0.1:1", ""
	if d := device.Diagnose(t.Context(), inv, wrong, 200*time.Millisecond); !strings.Contains(d.Error, "tor1") || d.Seconds > 5 {
		t.Errorf("nothing there: %+v", d)
	}

	short := dataplane.Options{DialTimeout: 300 * time.Millisecond}
	for name, change := range map[string]func(*inventory.Switch){
		"another CA":          func(s *inventory.Switch) { s.TLS.CA, s.GNMI = in("other.pem"), "" },
		"no certificate":      func(s *inventory.Switch) { s.TLS.Cert, s.TLS.Key, s.GNMI = "", "", "" },
		"another name":        func(s *inventory.Switch) { s.TLS.Name, s.GNMI = "tor2.lab", "" },
		"no such CA":          func(s *inventory.Switch) { s.TLS.CA = in("absent.pem") },
		"a CA without any":    func(s *inventory.Switch) { s.TLS.CA = in("p4info.txtpb") },
		"a port of no name":   func(s *inventory.Switch) { s.Ports = map[uint32]string{1: "1/0"} },
		"nothing at its gNMI": func(s *inventory.Switch) { s.GNMI = s.Control },
	} {
		bad := sw
		change(&bad)
		c, err := device.Dial(t.Context(), bad, cables, short)
		if err == nil {
			c.Close(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), "tor1") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a port of no name" && !errors.Is(err, gnmi.ErrNoPort) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
