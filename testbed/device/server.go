package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/gnmi"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
)

// server is a kind of server in a switch: the form in which it takes compiled programs, and the protocol that it speaks.
type server struct {
	// config makes a device config of a program's files, which file reads; a profile's name is set.
	config func(p inventory.Program, profile string, file func(path string) []byte) []byte
	// check finds a ready device config of another server's form before that server does; nil: nobody knows its form.
	check func(config []byte) error
	// cookie is what a device config is known by; nil: the server keeps one.
	cookie func(config []byte) (uint64, error)

	dial    func(ctx context.Context, sw inventory.Switch, cables []Cable, o dataplane.Options) (dataplane.Switch, error)
	observe func(sw inventory.Switch, cables []Cable, o dataplane.Options) (dataplane.Switch, error)
}

// servers are those that an inventory can name as device_config. Without one a server takes anything.
var servers = map[string]server{
	"":                      overP4Runtime(p4rt.Options{}, asIs, nil),
	inventory.BMv2Config:    overP4Runtime(p4rt.Options{}, asIs, nil),
	inventory.StratumConfig: overP4Runtime(p4rt.Options{WholeCounters: true}, tofinoConfig, parsed(bfrt.ParseConfig)),
	inventory.SDEConfig:     overP4Runtime(p4rt.Options{WholeCounters: true, FullWidth: true}, sdeConfig, parsed(p4rt.ParseSDEConfig)),
	inventory.BFRTConfig: {
		config: tofinoConfig, check: parsed(bfrt.ParseConfig),
		cookie: func(config []byte) (uint64, error) {
			c, err := bfrt.ParseConfig(config)
			return c.Cookie(), err
		},
		dial: func(ctx context.Context, sw inventory.Switch, cables []Cable, o dataplane.Options) (dataplane.Switch, error) {
			opt, err := bfrtOptions(sw, cables, o)
			if err != nil {
				return nil, err
			}
			return opened(bfrt.Dial(ctx, sw.Name, sw.Control, sw.DeviceID, opt))
		},
		observe: func(sw inventory.Switch, cables []Cable, o dataplane.Options) (dataplane.Switch, error) {
			opt, err := bfrtOptions(sw, cables, o)
			if err != nil {
				return nil, err
			}
			return opened(bfrt.Observe(sw.Name, sw.Control, sw.DeviceID, opt))
		},
	},
}

// overP4Runtime is a server that speaks P4Runtime, as the options say.
func overP4Runtime(as p4rt.Options, config func(inventory.Program, string, func(string) []byte) []byte, check func([]byte) error) server {
	with := func(o dataplane.Options) p4rt.Options {
		out := as
		out.Options = o
		return out
	}
	return server{
		config: config, check: check,
		dial: func(ctx context.Context, sw inventory.Switch, _ []Cable, o dataplane.Options) (dataplane.Switch, error) {
			return opened(p4rt.Dial(ctx, sw.Name, sw.Control, sw.DeviceID, with(o)))
		},
		observe: func(sw inventory.Switch, _ []Cable, o dataplane.Options) (dataplane.Switch, error) {
			return opened(p4rt.Observe(sw.Name, sw.Control, sw.DeviceID, with(o)))
		},
	}
}

func parsed[C any](parse func([]byte) (C, error)) func([]byte) error {
	return func(config []byte) error {
		_, err := parse(config)
		return err
	}
}

func asIs(p inventory.Program, _ string, file func(string) []byte) []byte { return file(p.JSON) }

func tofinoConfig(p inventory.Program, profile string, file func(string) []byte) []byte {
	return bfrt.Config{Program: p.Name, BFRT: file(p.BFRT), Profiles: []bfrt.Profile{{
		Name: profile, Context: file(p.Context), Binary: file(p.Binary), Pipes: p.Pipes,
	}}}.Marshal()
}

func sdeConfig(p inventory.Program, _ string, file func(string) []byte) []byte {
	return p4rt.SDEConfig{Program: p.Name, Binary: file(p.Binary), Context: file(p.Context)}.Marshal()
}

// bfrtOptions are those of a BFRuntime client, which finds ports by their names, and sets them up. The p4info may be missing,
// as where a lab is cleaned up from a machine that has not its programs.
func bfrtOptions(sw inventory.Switch, cables []Cable, o dataplane.Options) (bfrt.Options, error) {
	out := bfrt.Options{Options: o}
	if path := sw.Program.P4Info; path != "" {
		b, err := bounded.ReadFile(path, bounded.Config)
		if err == nil {
			out.Info, err = p4.ParseInfo(b)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, blame.Switch(sw.Name, fmt.Errorf("program: %s: %w", path, err))
		}
	}
	if sw.Ports != nil && o.Ports == nil {
		out.Names = map[uint32]string{}
	}
	if !sw.Port.Manual {
		out.Links = map[uint32]bfrt.Link{}
	}
	for _, c := range cables {
		if out.Names != nil {
			out.Names[c.Port] = gnmi.PortName(c.Port, sw.Ports)
		}
		if out.Links != nil {
			out.Links[c.Port] = bfrt.Link{Speed: c.Rate, FEC: sw.Port.FEC, Autoneg: sw.Port.Autoneg, Lanes: sw.Port.Lanes}
		}
	}
	return out, nil
}

// opened is a client as a switch; nil, and not a nil client, with an error.
func opened[C dataplane.Switch](c C, err error) (dataplane.Switch, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}
