package program_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/heap"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/program"
	"github.com/inabench/inabench/testbed/sshd"
	"github.com/inabench/inabench/testbed/sshd/sshdtest"
)

// one is a host that is all hosts.
type one struct{ client hosts.Host }

func (h one) Client(string) (hosts.Host, error) { return h.client, nil }

func (h one) Spawn(ctx context.Context, _, _ string, argv, env []string, stderr io.Writer) (*hosts.Process, error) {
	return h.client.Start(ctx, append(append([]string{"env"}, env...), argv...), stderr)
}

func newHost(t *testing.T) one {
	t.Helper()
	loopback(t)
	return one{sshdtest.Dial(t, sshdtest.Serve(t, &sshd.Server{Dir: t.TempDir()}))}
}

// loopback brings up the loopback device of the namespaces that tests run in.
func loopback(t *testing.T) {
	t.Helper()
	if noNamespaces != nil {
		return
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err == nil {
		r.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// freePort is a port on which nothing listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func shell(name, script string, args ...string) program.Command {
	return program.Command{Name: name, Host: "h1", Argv: append([]string{"sh", "-c", script, "sh"}, args...)}
}

// Clients start when servers listen, all output is kept, the file that a process writes too,
// and nothing that is running or written stays.
func TestRun(t *testing.T) {
	hosts, port := newHost(t), freePort(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := program.Command{Name: "server", Host: "h1", Server: true, Listen: port, Argv: []string{exe, "listen", strconv.Itoa(port)}}
	asker := program.Command{Name: "asker", Host: "h1", Argv: []string{exe, "ask", strconv.Itoa(port)}}
	writer := shell("writer", `echo "$X" >"$1/out.json"; echo "$1"; echo complaint >&2`, program.Dir)
	writer.File, writer.Env = "out.json", []string{`X=$(a 'b' "c")`}
	out, err := program.Run(t.Context(), hosts, []program.Command{server}, []program.Command{asker, writer}, program.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 3 || out[0].Name != "server" || string(out[0].Stdout) != "asked\n" || string(out[1].Stdout) != "answer\n" {
		t.Errorf("%+v", out)
	}
	w := out[2]
	if string(w.Written) != `$(a 'b' "c")`+"\n" || string(w.Stderr) != "complaint\n" {
		t.Errorf("written %q, stderr %q", w.Written, w.Stderr)
	}
	if dir := strings.TrimSpace(string(w.Stdout)); !strings.HasPrefix(dir, "/tmp/inabench-") {
		t.Errorf("directory %q", dir)
	} else if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

// Programs that say more than there is room for are ended, whatever they have said it on, and errors keep their secrets.
func TestTooMuch(t *testing.T) {
	hosts := newHost(t)
	for _, to := range []string{"1", "2"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		most := heap.Watch()
		outputs, err := program.Run(ctx, hosts, nil, []program.Command{shell("a", "exec yes >&"+to), shell("b", "exec yes >&"+to)}, program.Options{})
		if n := most(); n > 3*64<<20 {
			t.Errorf("on %s: %d MiB of memory", to, n>>20)
		}
		if err == nil || !strings.Contains(err.Error(), "more than 64 MiB of output") {
			t.Errorf("on %s: %v", to, err)
		}
		kept := 0
		for _, o := range outputs {
			kept += len(o.Stdout) + len(o.Stderr)
		}
		if kept > 64<<20 {
			t.Errorf("on %s: %d bytes are kept", to, kept)
		}
	}
	const secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	_, err := program.Run(t.Context(), hosts, nil, []program.Command{shell("a", "echo 'Authorization: Bearer "+secret+"' >&2; exit 3")}, program.Options{})
	if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "[removed]") {
		t.Errorf("%v", err)
	}
	_, err = program.Extract([]byte("token="+secret), []program.Rule{{Metric: "m", Unit: "1", JSON: "a"}})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
	_, err = program.Extract(bytes.Repeat([]byte("x=1\n"), 250_001), []program.Rule{{Metric: "m", Unit: "1", Regexp: `x=(\d)`}})
	if err == nil || !strings.Contains(err.Error(), "more than 250000 numbers") {
		t.Errorf("%v", err)
	}
}

// Whatever does not go as it should ends the run with its name, and soon.
func TestRunFails(t *testing.T) {
	hosts, port := newHost(t), freePort(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	forever := func(name string) program.Command { return shell(name, "exec sleep 1000") }
	listening := func(c program.Command, port int) program.Command {
		c.Server, c.Listen = true, port
		return c
	}
	wrote := shell("w", `: >"$1/out.json.1"`, program.Dir)
	wrote.File = "out.json"
	lacks := shell("w", "true")
	lacks.File = "out.json"
	for _, test := range []struct {
		name    string
		servers []program.Command
		clients []program.Command
		o       program.Options
		want    string
	}{
		{"the port is taken", []program.Command{listening(forever("s"), taken.Addr().(*net.TCPAddr).Port)}, nil, program.Options{}, "s on host h1: port"},
		{"a server that ends", []program.Command{listening(shell("s", "echo no; exit 4"), port)}, nil, program.Options{}, "exit status 4"},
		{"a server that ends well, too early", []program.Command{listening(shell("s", "echo no"), port)}, nil, program.Options{}, "it ended before it listened"},
		{"a server that never listens", []program.Command{listening(forever("s"), port)}, nil, program.Options{Ready: 200 * time.Millisecond}, "does not listen on port"},
		{"a server without a port", []program.Command{shell("s", "echo no device >&2; exit 4")}, []program.Command{forever("a")}, program.Options{Limit: 5 * time.Second}, "exit status 4: no device"},
		{"one client of two", nil, []program.Command{forever("a"), shell("b", "echo 'Failed to open device'; exit 5")}, program.Options{}, "exit status 5: Failed to open device"},
		{"a client without an end", nil, []program.Command{forever("a"), shell("b", "true")}, program.Options{Limit: 2 * time.Second}, "a: not done after 2s"},
		{"a file beside", nil, []program.Command{wrote}, program.Options{}, "it wrote out.json.1 in place of out.json"},
		{"no file", nil, []program.Command{lacks}, program.Options{}, "it wrote no out.json"},
		{"no such program", nil, []program.Command{{Name: "n", Host: "h1", Argv: []string{"/no/such"}}}, program.Options{}, "exit status 127"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err := program.Run(ctx, hosts, test.servers, test.clients, test.o)
			if err == nil || !strings.Contains(err.Error(), test.want) || ctx.Err() != nil {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	left, err := filepath.Glob("/tmp/inabench-????????")
	if err != nil || len(left) > 0 {
		t.Logf("perhaps of somebody else: %q, %v", left, err)
	}
}

// listen answers one question on a port; ask asks it.
func listen(_ context.Context, _ io.Reader, stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = io.WriteString(c, "answer\n")
	_, _ = io.WriteString(stdout, "asked\n")
	return errors.Join(err, c.Close())
}

func ask(_ context.Context, _ io.Reader, stdout io.Writer) error {
	c, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		return err
	}
	_, err = io.Copy(stdout, c)
	return errors.Join(err, c.Close())
}
