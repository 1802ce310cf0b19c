package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// jobsOnLo are the UDP ports of jobs: hosts of all labs have them on one device, lo.
var jobsOnLo sync.Mutex

// cmdJobs makes a script that runs jobs wait until it is the only one.
func cmdJobs(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 0, "jobs")
	jobsOnLo.Lock()
	ts.Defer(jobsOnLo.Unlock)
}

// cmdLab serves a lab on loopback addresses: SSH servers h1 and h2, and a P4Runtime
// server tor1 whose switch has ports and no cables. Faults:
//
//	h1=off           nothing listens there
//	h1=closes        connections are closed at once
//	h1=denies        no key is let in
//	h1=unknown-key   known_hosts lacks it
//	h1=changed-key   known_hosts has another key
//	h1=floods        before each command it writes to stderr, without an end
//	h1=chatters      the same, to stdout
//	h1=dawdles       before each command it sleeps
//	tor1=off         nothing listens there
//	tor1=busy        another controller is primary
//	tor1=dirty       a run that was killed has left a job, a group and a route
//	tor1=stuck       the same, and it refuses to delete them
func cmdLab(ts *testscript.TestScript, neg bool, args []string) {
	faults := map[string]string{}
	for _, a := range args {
		name, fault, ok := strings.Cut(a, "=")
		usage(ts, neg, ok, "lab [NAME=FAULT ...]")
		faults[name] = fault
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	ts.Defer(func() {
		cancel()
		served.Wait()
	})
	listen := func(off bool, serve func(net.Listener) error) string {
		if off {
			address, err := testbedtest.Nobody(ts.Defer)
			ts.Check(err)
			return address
		}
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		ts.Check(err)
		served.Go(func() { _ = serve(l) }) // it ends with ctx
		return l.Addr().String()
	}

	user, keyFile := newKey(ts, "id_ed25519")
	known := ""
	toml := fmt.Sprintf("version = 1\nname = \"lab\"\n\n[defaults]\nkind = \"soft\"\nrate = \"1Gbit/s\"\ndelay = \"1ms\"\ngpus = 1\nkey = %q\nknown_hosts = \"known_hosts\"\n", keyFile)
	for i, name := range []string{"h1", "h2"} {
		home := ts.MkAbs("home-" + name)
		ts.Check(os.Mkdir(home, 0o777))
		hostKey, _ := newKey(ts, "host_key_"+name)
		s := &sshd.Server{HostKey: hostKey, AuthorizedKeys: []ssh.PublicKey{user.PublicKey()}, Dir: home,
			Env: []string{"PATH=/usr/bin:/bin", "HOME=" + home}}
		switch faults[name] {
		case "closes":
			s.Inject(sshd.CloseAtOnce)
		case "denies":
			s.AuthorizedKeys = nil
		case "floods":
			s.Greeting = "cat /dev/zero >&2"
		case "chatters":
			s.Greeting = "yes hello"
		case "dawdles":
			s.Greeting = "sleep 1000"
		case "ignores": // it says that the command has begun, which nothing ends then
			s.Greeting = "echo inabench-group 999999999 >&2; sleep 1000"
		}
		addr := listen(faults[name] == "off", func(l net.Listener) error { return s.Serve(ctx, l) })
		switch faults[name] {
		case "unknown-key":
		case "changed-key":
			known += knownhosts.Line([]string{addr}, sshd.NewKey().PublicKey()) + "\n"
		default:
			known += knownhosts.Line([]string{addr}, hostKey.PublicKey()) + "\n"
		}
		toml += fmt.Sprintf("\n[[host]]\nname = %q\nssh = {address = %q}\nnic = {device = \"lo\", port = \"tor1/%d\", address = \"127.0.0.%d/8\"}\n",
			name, addr, i+1, i+11)
	}
	server := listen(faults["tor1"] == "off", func(l net.Listener) error {
		return softswitch.ServeP4(ctx, l, 1, &cableless{stuck: faults["tor1"] == "stuck"})
	})
	toml += fmt.Sprintf("\n[[switch]]\nname = \"tor1\"\naggregators = 64\ncontrol = %q\n", server)
	ts.Check(os.WriteFile(ts.MkAbs("known_hosts"), []byte(known), 0o666))
	ts.Check(os.WriteFile(ts.MkAbs("lab.toml"), []byte(toml), 0o666))

	switch faults["tor1"] {
	case "busy":
		owner, err := p4rt.Dial(ctx, "tor1", server, 1, p4rt.Options{})
		ts.Check(err)
		ts.Defer(func() { _ = owner.Close(ctx) })
	case "dirty", "stuck":
		ts.Check(leave(ctx, server))
	}
}

// leave writes what a run writes into a switch, and leaves it there as a run does
// that is killed. A client that closes tidies up, unless another has taken over.
func leave(ctx context.Context, server string) error {
	c, err := p4rt.Dial(ctx, "tor1", server, 1, p4rt.Options{})
	if err != nil {
		return err
	}
	if err := c.Push(ctx, dataplane.Pipeline{Info: p4.Info()}); err != nil {
		return err
	}
	err = c.Write(ctx, dataplane.Batch{
		Groups: []p4.Group{{ID: 7, Ports: []uint32{1}}},
		Routes: []p4.Route{{Dst: [4]byte{127, 0, 0, 11}, Port: 1}, {Dst: [4]byte{10, 9, 8, 7}, Port: 2}},
		Jobs:   []ina.JobEntry{{Job: 7, Epoch: 1, UpPort: 2, DownGroup: 7}},
	})
	if err != nil {
		return err
	}
	heir, err := p4rt.Dial(ctx, "tor1", server, 1, p4rt.Options{})
	if err != nil {
		return err
	}
	<-c.Lost()
	return errors.Join(c.Close(ctx), heir.Close(ctx))
}

// newKey makes a key and its private file, with an absolute name.
func newKey(ts *testscript.TestScript, name string) (ssh.Signer, string) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	ts.Check(err)
	block, err := ssh.MarshalPrivateKey(private, "")
	ts.Check(err)
	signer, err := ssh.NewSignerFromKey(private)
	ts.Check(err)
	path := ts.MkAbs(name)
	ts.Check(os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	return signer, path
}

// cableless is a switch that forwards nothing.
type cableless struct {
	softswitchtest.Nowhere
	stuck bool
}

func (c *cableless) DeleteJob(uint16) error {
	if c.stuck {
		return errors.New("the driver does not answer")
	}
	return nil
}
