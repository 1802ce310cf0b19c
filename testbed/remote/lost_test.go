package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/reach"
)

// mute is a host that was lost, and lets in again without giving any file.
type mute struct{ hosts.Host }

func (mute) Err() error {
	return &hosts.Error{Host: "h1", Kind: hosts.ErrLost, Err: errors.New("no answer to keepalives")}
}

func (mute) Close() error { return nil }

func (mute) ReadFilesOf(_ context.Context, _ int64, names ...string) []hosts.File {
	out := make([]hosts.File, len(names))
	for i := range out {
		out[i].Err = errors.New("its disk hangs")
	}
	return out
}

// toMute is the launcher of such hosts.
type toMute struct{}

func (toMute) Dial(context.Context, reach.Way) (hosts.Host, error) { return mute{}, nil }
func (toMute) Check([]reach.Way) error                             { return nil }

var addMute = sync.OnceFunc(func() { reach.Add("mute", func(reach.Options) reach.Launcher { return toMute{} }) })

// Of a host that lets in and does not answer it is said what it does not answer.
func TestLostHostThatLetsIn(t *testing.T) {
	addMute()
	inv := &inventory.Inventory{Hosts: []inventory.Host{{Name: "h1", Launcher: "mute"}}}
	tb := &Testbed{opt: Options{Run: "run", Fan: 4, Patience: 100 * time.Millisecond}, inv: inv, hosts: map[string]hosts.Host{"h1": mute{}}}
	err := tb.investigate(t.Context(), "h1")
	if !errors.Is(err, hosts.ErrLost) || !strings.Contains(err.Error(), "it has not answered for another") || !strings.HasSuffix(err.Error(), ": its disk hangs") {
		t.Errorf("%v", err)
	}
}

// again is a host that was lost, and answers again: which boot it is in by now is its launcher's.
type again struct {
	mute
	id string
}

func (a again) ReadFilesOf(_ context.Context, _ int64, names ...string) []hosts.File {
	out := make([]hosts.File, len(names))
	out[0].Data = []byte(a.id)
	return out
}

// inBoot is the launcher of hosts that answer again in a boot.
type inBoot string

func (b inBoot) Dial(context.Context, reach.Way) (hosts.Host, error) {
	return again{id: string(b)}, nil
}
func (inBoot) Check([]reach.Way) error { return nil }

var addAgain = sync.OnceFunc(func() {
	for _, boot := range []inBoot{"first", "second"} {
		reach.Add(string(boot), func(reach.Options) reach.Launcher { return boot })
	}
})

// All hosts may be lost because of this machine's own network; not if one of them answers.
func TestLostHostsTogether(t *testing.T) {
	addMute()
	addAgain()
	for launchers, want := range map[[2]string]string{
		{"mute", "mute"}:     "so are all 2 hosts",
		{"second", "second"}: "host h2: rebooted after ",
		{"first", "first"}:   "it answers again and was not rebooted",
		{"mute", "second"}:   "it has not answered for another ",
	} {
		tb := &Testbed{opt: Options{Fan: 4, Patience: 100 * time.Millisecond, Fabric: noFabric{}}, inv: &inventory.Inventory{}, hosts: map[string]hosts.Host{}, boots: map[string]boot{}}
		for i, name := range []string{"h1", "h2"} {
			tb.inv.Hosts = append(tb.inv.Hosts, inventory.Host{Name: name, Launcher: launchers[i]})
			tb.hosts[name], tb.boots[name] = mute{}, boot{id: "first"}
		}
		err := tb.lost(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "so are all") != (launchers[1] == "mute") || errors.Is(err, ErrRebooted) != (launchers[1] == "second") {
			t.Errorf("%q: %v", launchers, err)
		}
	}
}

// cut is a switch whose connection broke.
type cut struct{ dataplane.Switch }

func (cut) Explain(context.Context) error { return errors.New("connection lost") }

// deaf is an address of this machine at which connections are neither taken nor refused: the queue there is full.
func deaf(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for range 10 {
		c, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("its queue does not end")
	return ""
}

// Many switches that do not answer are looked at for no longer than one, and not at all where nobody waits for it.
func TestLostSwitchesThatDoNotAnswer(t *testing.T) {
	const switches = 12
	address := deaf(t)
	inv, planes := &inventory.Inventory{}, map[string]dataplane.Switch{}
	for i := range switches {
		name := fmt.Sprintf("tor%d", i)
		inv.Switches = append(inv.Switches, inventory.Switch{Name: name, Control: address})
		planes[name] = cut{}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx      context.Context
		patience time.Duration
		most     time.Duration
		silent   int // of which it is said that they do not answer
	}{
		"waited for":  {t.Context(), 4 * time.Second, 6 * time.Second, switches},
		"interrupted": {over, 40 * time.Second, 8 * time.Second, 0},
	} {
		tb := &Testbed{opt: Options{Fan: 4, Patience: c.patience, Fabric: noFabric{}}, inv: inv, planes: planes}
		began := time.Now()
		err := tb.lost(c.ctx)
		if took := time.Since(began); took > c.most {
			t.Errorf("%s: it took %v", name, took)
		}
		if err == nil {
			t.Fatalf("%s: nothing is lost", name)
		}
		if n := strings.Count(err.Error(), address+" does not answer any more"); n != c.silent || strings.Count(err.Error(), "connection lost") != switches {
			t.Errorf("%s: %d do not answer, want %d: %v", name, n, c.silent, err)
		}
	}
}
