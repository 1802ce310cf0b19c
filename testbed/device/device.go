// Package device opens the switches of an inventory: it makes of their compiled programs
// what their servers take, learns what they call their ports, and connects.
package device

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/gnmi"
	"github.com/inabench/inabench/testbed/p4"
)

// Program is what a switch is to run, and what it was made of.
type Program struct {
	dataplane.Pipeline
	Name  string            // P4 program name; empty: not known
	Files map[string]string // SHA-256 of its files in hex, by their names
}

// LoadProgram reads a switch's compiled program. A switch without one gets what comes with
// inabench: BMv2 its program, others the description, which the embedded switch needs no
// program for.
func LoadProgram(sw inventory.Switch) (Program, error) {
	p := Program{Name: sw.Program.Name, Files: map[string]string{}}
	p.Keep = sw.Push == inventory.PushChanged
	var errs []error
	file := func(path string) []byte {
		if path == "" {
			return nil
		}
		b, err := bounded.ReadFile(path, bounded.Config)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		h := sha256.Sum256(b)
		p.Files[filepath.Base(path)] = hex.EncodeToString(h[:])
		return b
	}
	p.Info = p4.Info()
	if sw.Kind == inventory.BMv2 && sw.Program.P4Info == "" && sw.Program.JSON == "" && sw.Program.Blob == "" {
		var build p4.Build
		var err error
		if p.Info, p.DeviceConfig, build, err = p4.BMv2(); err != nil {
			return Program{}, blame.Switch(sw.Name, err)
		}
		p.Name, p.Files["ina_v1model.p4"] = "ina_v1model", build.Source
		return p, nil
	}
	if info := file(sw.Program.P4Info); info != nil {
		var err error
		if p.Info, err = p4.ParseInfo(info); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", sw.Program.P4Info, err))
		}
	}
	form := servers[sw.DeviceConfig]
	if blob := file(sw.Program.Blob); blob != nil {
		p.DeviceConfig = blob
		if form.check != nil {
			if err := form.check(blob); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", sw.Program.Blob, err))
			}
		}
	} else {
		p.DeviceConfig = form.config(sw.Program, cmp.Or(sw.Program.Profile, "pipe"), file)
	}
	if err := errors.Join(errs...); err != nil {
		return Program{}, blame.Switch(sw.Name, fmt.Errorf("program: %w", err))
	}
	if form.cookie != nil {
		if cookie, err := form.cookie(p.DeviceConfig); err == nil {
			p.Cookie = cookie
		}
	}
	return p, nil
}

// TLS is how an inventory protects connections; nil: plain text.
func TLS(t inventory.TLS) (*tls.Config, error) {
	if t == (inventory.TLS{}) {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.Name, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := bounded.ReadFile(t.CA, bounded.Config)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificates in it", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// GNMI is a client of a switch's gNMI server, or nil if the inventory names none.
func GNMI(sw inventory.Switch) (*gnmi.Client, error) {
	if sw.GNMI == "" {
		return nil, nil
	}
	t, err := TLS(sw.TLS)
	if err != nil {
		return nil, blame.Switch(sw.Name, fmt.Errorf("TLS: %w", err))
	}
	o := gnmi.Options{TLS: t}
	if sw.Kind == inventory.Tofino && sw.DeviceConfig == inventory.StratumConfig {
		o.Uncounted = gnmi.StratumTofino()
	}
	return gnmi.New(sw.Name, sw.GNMI, o)
}

// Cable is one of a switch.
type Cable struct {
	Port uint32  // of the switch, as the inventory has it
	Rate float64 // bit/s
}

// Cables are those of a switch, in the order of the inventory's links.
func Cables(topo *inventory.Topology, sw string) []Cable {
	var out []Cable
	for _, l := range topo.Out(sw) {
		out = append(out, Cable{topo.Links[l].FromPort, float64(topo.Links[l].Rate)})
	}
	return out
}

// numbers are the ports of cables.
func numbers(cables []Cable) []uint32 {
	out := make([]uint32, len(cables))
	for i, c := range cables {
		out[i] = c.Port
	}
	return out
}

// options are o with what an inventory says of a switch. Of a switch with a gNMI server the
// numbers of its ports are asked for.
func options(ctx context.Context, sw inventory.Switch, cables []Cable, o dataplane.Options) (dataplane.Options, error) {
	var err error
	if o.TLS, err = TLS(sw.TLS); err != nil {
		return o, blame.Switch(sw.Name, fmt.Errorf("TLS: %w", err))
	}
	g, err := GNMI(sw)
	if g == nil || err != nil {
		return o, err
	}
	defer g.Close()
	o.Ports, err = g.Ports(ctx, numbers(cables), sw.Ports)
	return o, err
}

// Dial controls a switch of an inventory, of which ports are cabled, by the protocol that its server speaks: its ports
// have the inventory's numbers.
func Dial(ctx context.Context, sw inventory.Switch, cables []Cable, o dataplane.Options) (dataplane.Switch, error) {
	o, err := options(ctx, sw, cables, o)
	if err != nil {
		return nil, err
	}
	return servers[sw.DeviceConfig].dial(ctx, sw, cables, o)
}

// linkTimeout is how long links may take to come up after a pipeline was loaded.
const linkTimeout = 60 * time.Second

// Push is Switch.Push; where it has loaded a pipeline, and a gNMI server tells, it waits
// until ports have their links again.
func Push(ctx context.Context, c dataplane.Switch, sw inventory.Switch, cables []Cable, p Program) error {
	if err := c.Push(ctx, p.Pipeline); err != nil || c.Loaded().Kept {
		return err
	}
	g, err := GNMI(sw)
	if g == nil || err != nil {
		return err
	}
	defer g.Close()
	names := make([]string, len(cables))
	for i, c := range cables {
		names[i] = gnmi.PortName(c.Port, sw.Ports)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, linkTimeout, fmt.Errorf("%v after its pipeline was loaded", linkTimeout))
	defer cancel()
	return g.AwaitUp(ctx, names)
}

// Observe is Dial for who only looks: it reads what somebody else controls.
func Observe(ctx context.Context, sw inventory.Switch, cables []Cable, o dataplane.Options) (dataplane.Switch, error) {
	o, err := options(ctx, sw, cables, o)
	if err != nil {
		return nil, err
	}
	return servers[sw.DeviceConfig].observe(sw, cables, o)
}

// Look is Dial for who would change a switch, and does not: it takes control from nobody. Where Dial is polite it says who
// has it, as Dial does.
func Look(ctx context.Context, sw inventory.Switch, cables []Cable, o dataplane.Options) (dataplane.Switch, error) {
	if o.Polite {
		return Dial(ctx, sw, cables, o)
	}
	return Observe(ctx, sw, cables, o)
}

// Facts are what a run's record keeps of a switch.
func Facts(sw inventory.Switch, p Program, l dataplane.Loaded) results.SwitchFacts {
	return results.SwitchFacts{
		Switch: sw.Name, Kind: string(sw.Kind), Server: sw.DeviceConfig, Program: p.Name, Files: p.Files,
		P4Info: l.P4Info, DeviceConfig: l.DeviceConfig, Kept: l.Kept, PlainText: sw.TLS == (inventory.TLS{}),
	}
}

// Attach is Switch.Attach where the switch runs a program of INA. Otherwise there is nothing of INA in it, and Attach reports
// false.
func Attach(ctx context.Context, c dataplane.Switch) (bool, error) {
	found, err := c.Foreign(ctx)
	if found != nil || err != nil && !errors.Is(err, dataplane.ErrUntold) {
		return false, err
	}
	if err := c.Attach(ctx); !errors.Is(err, dataplane.ErrNoPipeline) { // of one that has been started again
		return err == nil, err
	}
	return false, nil
}

// PutBack loads a program that Switch.Foreign has told of into a switch that runs one of INA, or none, and reports whether it
// did; with dry, whether it would, see Look. It leaves alone what somebody has loaded since.
func PutBack(ctx context.Context, sw inventory.Switch, cables []Cable, config []byte, dry bool, o dataplane.Options) (done bool, err error) {
	dial := Dial
	if dry {
		dial = Look
	}
	c, err := dial(ctx, sw, cables, o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	found, err := c.Foreign(ctx)
	if found != nil || err != nil {
		return false, err
	}
	if dry {
		return true, nil
	}
	err = c.Restore(ctx, config)
	return err == nil, err
}
