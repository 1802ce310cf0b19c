package netns

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// noNamespaces is why the tests are not running inside an emulation's namespaces.
var noNamespaces error

// TestMain plays every part of an emulation: the test binary runs itself again
// inside, and its hosts and switches are the test binary too.
func TestMain(m *testing.M) {
	ctx := context.Background()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "netns-host":
			if err := HostMain(ctx, os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "victim":
			os.Exit(victim(ctx))
		}
	}
	inside, code, err := Reexec(ctx)
	if err == nil && !inside {
		os.Exit(code)
	}
	noNamespaces = err
	os.Exit(m.Run())
}

// victim is a whole emulation to be killed: netns.test victim UNIQUE.
func victim(ctx context.Context) int {
	inside, code, err := Reexec(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 70
	}
	if !inside {
		return code
	}
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	f, err := Up(ctx, rack(1, 2, 2), Options{Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 71
	}
	fmt.Println("up")
	<-ctx.Done()
	if err := f.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 72
	}
	fmt.Println("down")
	return 42
}

// rack is an inventory of spines, ToRs and hosts per ToR: tor1, spine1, h1, ...
func rack(spines, tors, perTor int) *inventory.Inventory {
	inv := &inventory.Inventory{Name: "rack"}
	for s := range spines {
		inv.Switches = append(inv.Switches, inventory.Switch{Name: fmt.Sprintf("spine%d", s+1), Kind: inventory.Soft})
	}
	for t := range tors {
		tor := fmt.Sprintf("tor%d", t+1)
		inv.Switches = append(inv.Switches, inventory.Switch{Name: tor, Kind: inventory.Soft, Rack: tor, Aggregators: 64})
		for s := range spines {
			inv.Links = append(inv.Links, inventory.Link{
				A: inventory.Port{Switch: tor, Port: uint32(100 + s)}, B: inventory.Port{Switch: fmt.Sprintf("spine%d", s+1), Port: uint32(t + 1)},
				Rate: 1e9, Delay: 20 * time.Microsecond,
			})
		}
		for h := range perTor {
			inv.Hosts = append(inv.Hosts, inventory.Host{Name: fmt.Sprintf("h%d", t*perTor+h+1), GPUs: 1, NICs: []inventory.NIC{{
				Device: "ens1", Switch: tor, Port: uint32(h + 1), Rate: 1e9, Delay: 10 * time.Microsecond,
			}}})
		}
	}
	return inv
}

// up brings an inventory up for one test.
func up(t testing.TB, inv *inventory.Inventory, opts Options) *Fabric {
	t.Helper()
	testbedtest.Require(t, "netns", noNamespaces)
	if opts.Log == nil {
		opts.Log = t.Output()
	}
	f, err := Up(t.Context(), inv, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}
