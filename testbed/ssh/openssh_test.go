package ssh_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// A lab's hosts run OpenSSH: what holds for the embedded server holds there.
func TestOpenSSH(t *testing.T) {
	target := newOpenSSH(t).Target
	gate := target
	gate.Name = "gate"
	target.Jump = &gate
	c, err := ssh.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	out, err := c.Run(t.Context(), append([]string{"printf", "<%s>"}, nasty...), nil)
	if err != nil || string(out.Stdout) != "<"+strings.Join(nasty, "><")+">" {
		t.Errorf("%q, %v", out.Stdout, err)
	}
	var failed *hosts.RunError
	if _, err := c.Run(t.Context(), []string{"sh", "-c", "echo why >&2; exit 3"}, nil); !errors.As(err, &failed) || failed.Exit != 3 || failed.Stderr != "why" {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := c.Upload(t.Context(), writeFile(t, "local", "text"), dir+"/a/file", 0o640); err != nil {
		t.Error(err)
	}
	files := c.ReadFilesOf(t.Context(), bounded.Config, dir+"/a/file", "/nonexistent", "/proc/net/dev")
	if string(files[0].Data) != "text" || !errors.Is(files[1].Err, fs.ErrNotExist) || len(files[2].Data) == 0 {
		t.Errorf("%q", files)
	}
	wantTree(t, dir, "a", "a/file")

	if os.Geteuid() == 0 { // the server has mounts of its own
		if _, err := c.Run(t.Context(), []string{"mount", "-t", "tmpfs", "-o", "ro", "none", dir}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(t.Context(), dir+"/file", []byte("text")); err == nil || !strings.Contains(err.Error(), "read-only file system") {
			t.Errorf("on a disk that nobody can write to: %v", err)
		}
	}

	l := newLifeline(t)
	p, err := c.Start(t.Context(), l.family(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l.up(t)
	if err := p.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	l.gone(t)
	if err := p.Wait(); !errors.As(err, &failed) || failed.Signal != "KILL" {
		t.Error(err)
	}

	// It does not kill what runs when the connection goes; the end of stdin must do.
	l = newLifeline(t)
	if _, err = c.Start(t.Context(), []string{"/bin/sh", "-c", `exec 9>"$1"; echo up >&9; cat`, "sh", l.path}, nil); err != nil {
		t.Fatal(err)
	}
	l.up(t)
	c.Close()
	l.gone(t)

	stranger := target
	stranger.Jump, stranger.Keys = nil, []string{writeKey(t)}
	if _, err := ssh.Dial(t.Context(), stranger); !errors.Is(err, ssh.ErrAuth) {
		t.Error(err)
	}
}

// Keys come in all of OpenSSH's types and formats, from files and from its agent, with
// certificates and without.
func TestOpenSSHKeys(t *testing.T) {
	t.Parallel() // it waits
	h := newOpenSSH(t, "TrustedUserCAKeys DIR/ca.pub", "AuthorizedKeysFile DIR/authorized", "MaxAuthTries 6")
	keygen(t, "-t", "ed25519", "-f", h.dir+"/ca")
	keygen(t, "-t", "ecdsa", "-f", h.dir+"/ca2")
	file := func(name string) string { return filepath.Join(h.dir, name) }
	sign := func(key, as string, more ...string) {
		keygen(t, append(append([]string{"-s", file("ca"), "-I", "id of " + key, "-n", as}, more...), file(key)+".pub")...)
	}
	var authorized string
	for name, args := range map[string][]string{
		"k_ed25519": {"-t", "ed25519"}, "k_ecdsa": {"-t", "ecdsa"}, "k_ecdsa521": {"-t", "ecdsa", "-b", "521"}, "k_rsa": {"-t", "rsa", "-b", "2048"},
		"k_pem": {"-t", "rsa", "-b", "2048", "-m", "PEM"}, "k_pkcs8": {"-t", "ecdsa", "-m", "PKCS8"},
	} {
		keygen(t, append(args, "-f", file(name))...)
		authorized += read(t, file(name)+".pub")
	}
	keygen(t, "-t", "ed25519", "-N", "secret", "-f", file("locked"))
	keygen(t, "-t", "rsa", "-N", "secret", "-b", "2048", "-m", "PEM", "-f", file("locked_pem"))
	authorized += read(t, file("locked.pub")) + read(t, file("locked_pem.pub"))
	write(t, file("authorized"), authorized)
	for _, name := range []string{"c_ed25519", "c_ecdsa", "c_rsa"} {
		args := []string{"-t", strings.TrimPrefix(name, "c_"), "-f", file(name)}
		if name == "c_rsa" {
			args = append(args, "-b", "2048") // larger ones take seconds to find
		}
		keygen(t, args...)
		sign(name, h.User)
	}
	for _, name := range []string{"elsewhere", "expired", "stranger", "foreign"} {
		keygen(t, "-t", "ed25519", "-f", file(name))
	}
	sign("elsewhere", h.User)
	if err := os.Rename(file("elsewhere-cert.pub"), file("moved.pub")); err != nil {
		t.Fatal(err)
	}
	sign("expired", h.User, "-V", "20200101:20200102")
	sign("stranger", "somebodyelse")
	keygen(t, "-s", file("ca2"), "-I", "foreign", "-n", h.User, file("foreign.pub"))

	socket := newAgent(t)
	sshAdd(t, socket, file("locked"))
	sshAdd(t, socket, file("locked_pem"))
	sshAdd(t, socket, file("c_rsa")) // with its certificate
	full := newAgent(t)
	for i := range 7 {
		name := fmt.Sprintf("extra%d", i)
		keygen(t, "-t", "ed25519", "-f", file(name))
		sshAdd(t, full, file(name))
	}
	for _, tt := range []struct {
		name   string
		target ssh.Target // Keys and so on
		denied string     // empty: let in
	}{
		{"ed25519", ssh.Target{Keys: []string{"k_ed25519"}}, ""},
		{"ecdsa", ssh.Target{Keys: []string{"k_ecdsa"}}, ""},
		{"ecdsa of 521 bits", ssh.Target{Keys: []string{"k_ecdsa521"}}, ""},
		{"rsa", ssh.Target{Keys: []string{"k_rsa"}}, ""},
		{"the older format", ssh.Target{Keys: []string{"k_pem"}}, ""},
		{"PKCS 8", ssh.Target{Keys: []string{"k_pkcs8"}}, ""},
		{"locked", ssh.Target{Keys: []string{"locked"}}, "locked has a passphrase (ssh-add it)"},
		{"locked, with the agent", ssh.Target{Keys: []string{"locked"}, Agent: socket, IdentitiesOnly: true}, ""},
		{"locked in the older format, with the agent", ssh.Target{Keys: []string{"locked_pem"}, Agent: socket, IdentitiesOnly: true}, ""},
		{"the public half, with the agent", ssh.Target{Keys: []string{"locked.pub"}, Agent: socket, IdentitiesOnly: true}, ""},
		{"the public half alone", ssh.Target{Keys: []string{"k_rsa.pub"}}, "is a public key, and no agent has the private one"},
		{"certificate of ed25519", ssh.Target{Keys: []string{"c_ed25519"}}, ""},
		{"certificate of ecdsa", ssh.Target{Keys: []string{"c_ecdsa"}}, ""},
		{"certificate of rsa", ssh.Target{Keys: []string{"c_rsa"}}, ""},
		{"certificate of the agent", ssh.Target{Agent: socket, Signers: nil, Keys: []string{"extra0"}}, ""},
		{"certificate elsewhere", ssh.Target{Keys: []string{"elsewhere"}, Certificates: []string{"moved.pub"}}, ""},
		{"no certificate", ssh.Target{Keys: []string{"elsewhere"}}, "user " + h.User},
		{"certificate that has expired", ssh.Target{Keys: []string{"expired"}}, "expired-cert.pub: the certificate expired at 2020-01-0"},
		{"certificate for somebody else", ssh.Target{Keys: []string{"stranger"}}, `the certificate "id of stranger" for somebodyelse`},
		{"certificate of a foreign authority", ssh.Target{Keys: []string{"foreign"}}, `the certificate "foreign" for ` + h.User},
		{"a key as a certificate", ssh.Target{Keys: []string{"elsewhere"}, Certificates: []string{"k_rsa.pub"}}, "k_rsa.pub: not a user's certificate"},
		{"too many keys", ssh.Target{Keys: []string{"elsewhere"}, Agent: full}, "MaxAuthTries"},
		{"the right one of many", ssh.Target{Keys: []string{"k_rsa"}, Agent: full}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := h.Target
			x.Keys, x.Certificates, x.Agent, x.IdentitiesOnly = nil, nil, cmp.Or(tt.target.Agent, "none"), tt.target.IdentitiesOnly
			for _, k := range tt.target.Keys {
				x.Keys = append(x.Keys, file(k))
			}
			for _, k := range tt.target.Certificates {
				x.Certificates = append(x.Certificates, file(k))
			}
			c, err := ssh.Dial(t.Context(), x)
			if err == nil {
				c.Close()
			}
			var e *hosts.Error
			switch {
			case tt.denied == "" && err != nil:
				t.Error(err)
			case tt.denied != "" && (!errors.Is(err, ssh.ErrAuth) || !errors.As(err, &e) || !strings.Contains(err.Error()+"; "+e.Hint, tt.denied)):
				t.Errorf("%v\ndoes not say %q", err, tt.denied)
			}
		})
	}
}

// A host is known by a key of its own or by the authority that has signed it.
func TestOpenSSHHostCertificates(t *testing.T) {
	h := newOpenSSH(t, "HostCertificate DIR/ecdsa-cert.pub", "HostCertificate DIR/ed25519-cert.pub")
	// It is read when a connection comes.
	keygen(t, "-t", "ed25519", "-f", h.dir+"/ca")
	certify := func(key, name string, more ...string) {
		t.Helper()
		os.Remove(h.dir + "/" + key + "-cert.pub")
		if name != "" {
			keygen(t, append(append([]string{"-s", h.dir + "/ca", "-h", "-I", "rack 1", "-n", name}, more...), h.dir+"/"+key+".pub")...)
		}
	}
	host, port, _ := net.SplitHostPort(h.Address)
	authority := func(of string) string { return "@cert-authority " + of + " " + read(t, h.dir+"/ca.pub") }
	plain := "[" + host + "]:" + port + " " + read(t, h.dir+"/ed25519.pub")
	for _, tt := range []struct {
		name     string
		ec, ed   string // names that are certified; empty: no certificate
		validity string
		known    string
		want     string // of the refusal; empty: let in
	}{
		{"certified", "", host, "", authority("[" + host + "]:" + port), ""},
		{"by a wildcard", "", host, "", authority("127.*"), ""},
		{"a key of another type than the authority's", host, "", "", authority("*"), ""},
		{"another name", "", "h9", "", authority("*"), `certificate "rack 1", signed by SHA256:`},
		{"expired", "", host, "20200101:20200102", authority("*"), `certificate "rack 1" expired at 2020-01-0`},
		{"not certified", "", "", "", authority("*"), "it shows "},
		{"known by its key, certified by a stranger", "", host, "", plain, ""},
		{"unknown, though certified", "", host, "", "", "it shows "},
		{"authority for others", "", host, "", authority("10.*"), "no key of "},
		{"authority revoked", "", host, "", authority("*") + "@revoked * " + read(t, h.dir+"/ca.pub"), "revoked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var more []string
			if tt.validity != "" {
				more = []string{"-V", tt.validity}
			}
			certify("ecdsa", tt.ec, more...)
			certify("ed25519", tt.ed, more...)
			x := h.Target
			x.KnownHosts = []string{writeFile(t, "known_hosts", tt.known)}
			c, err := ssh.Dial(t.Context(), x)
			if err == nil {
				c.Close()
			}
			if (tt.want == "") != (err == nil) || err != nil && (!errors.Is(err, ssh.ErrHostKey) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// What the user's ssh_config says is enough to go through two jump hosts, and what it
// may not say is told.
func TestOpenSSHConfig(t *testing.T) {
	outer, inner, h := newOpenSSH(t), newOpenSSH(t), newOpenSSH(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("SSH_AUTH_SOCK", "")
	if err := os.Mkdir(home+"/.ssh", 0o700); err != nil {
		t.Fatal(err)
	}
	config := "Host node-*\n ProxyJump outer,inner\nMatch user nobody\n Port 1\n"
	var known string
	for name, x := range map[string]*openSSH{"outer": outer, "inner": inner, "node-1": h} {
		host, port, _ := net.SplitHostPort(x.Address)
		if err := os.Rename(x.dir+"/user", home+"/.ssh/id_"+name); err != nil {
			t.Fatal(err)
		}
		known += read(t, x.dir+"/known_hosts")
		config += fmt.Sprintf("Host %s\n HostName %s\n Port %s\n User %s\n", name, host, port, x.User)
	}
	config += "Host *\n IdentityFile ~/.ssh/id_%n\n StrictHostKeyChecking no\n ConnectTimeout 9\n"
	write(t, home+"/.ssh/config", config)
	write(t, home+"/.ssh/known_hosts", known)

	var said []string
	d := &ssh.Dialer{Warn: func(s string) { said = append(said, s) }}
	for range 2 {
		c, err := d.Dial(t.Context(), ssh.Target{Name: "h1", Address: "node-1"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		out, err := c.Run(t.Context(), []string{"sh", "-c", "echo $SSH_CONNECTION"}, nil)
		if _, port, _ := net.SplitHostPort(h.Address); err != nil || !strings.HasSuffix(strings.TrimSpace(string(out.Stdout)), " "+port) {
			t.Errorf("%q, %v", out.Stdout, err)
		}
		if c.Target().Timeout != 9*time.Second {
			t.Error(c.Target().Timeout)
		}
	}
	if all := strings.Join(said, "\n"); len(said) != 2 || !strings.Contains(all, "config:3: Match is not supported") || !strings.Contains(all, "StrictHostKeyChecking no is not obeyed") {
		t.Errorf("said %q", said)
	}

	// Nothing that the file says lets a host in that is not known.
	write(t, home+"/.ssh/known_hosts", "")
	_, err := ssh.Dial(t.Context(), ssh.Target{Name: "h1", Address: "node-1"})
	var e *hosts.Error
	if !errors.Is(err, ssh.ErrHostKey) || !errors.As(err, &e) || !strings.Contains(e.Hint, "StrictHostKeyChecking no is not obeyed") {
		t.Errorf("%v; %+v", err, e)
	}
	write(t, home+"/.ssh/config", "Host node-1\n ProxyCommand touch "+home+"/canary\n"+config)
	if err := new(ssh.Dialer).Check([]ssh.Target{{Name: "h1", Address: "node-1"}, {Address: "node-2"}}); !errors.Is(err, ssh.ErrConfig) || strings.Contains(err.Error(), "node-2") {
		t.Error(err)
	}
	if _, err := ssh.Dial(t.Context(), ssh.Target{Name: "h1", Address: "node-1"}); !errors.Is(err, ssh.ErrConfig) || !strings.Contains(err.Error(), "config:2: ProxyCommand is not supported") {
		t.Error(err)
	}
	if _, err := os.Stat(home + "/canary"); err == nil {
		t.Error("a command of ssh_config was run")
	}
}

// A server that is busy with logins is asked again; one that stays so is named with
// what it said.
func TestOpenSSHBusy(t *testing.T) {
	proof.Only(t, "many hosts, or a busy machine")
	h := newOpenSSH(t, "MaxStartups 2:100:2", "LoginGraceTime 20")
	const logins = 12
	patient := h.Target
	patient.Timeout = 2 * time.Minute
	clients, err := dialAll(t.Context(), 0, slices.Repeat([]ssh.Target{patient}, logins))
	if err != nil {
		t.Fatal(err)
	}
	hosts.CloseAll(clients)

	for idle := 0; idle < 2; { // that do not log in
		conn, err := net.Dial("tcp", h.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		greeting := make([]byte, 4)
		if _, err := io.ReadFull(conn, greeting); err == nil && string(greeting) == "SSH-" {
			idle++
		}
	}
	x := h.Target
	x.Timeout = 5 * time.Second // for several attempts
	_, err = ssh.Dial(t.Context(), x)
	var e *hosts.Error
	if !errors.Is(err, hosts.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) ||
		!strings.Contains(err.Error(), "logins before the SSH handshake") || !strings.Contains(e.Hint, "MaxStartups") {
		t.Errorf("%v; %+v", err, e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := ssh.Dial(ctx, h.Target); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Behind a jump host that lets in two at a time are as many hosts as one likes: it sees
// one login.
func TestOpenSSHSharedJump(t *testing.T) {
	t.Parallel() // it waits
	gate := newOpenSSH(t, "MaxStartups 1:100:1")
	h := newOpenSSH(t, "MaxStartups 100")
	x := h.Target
	x.Jump = &gate.Target
	const many = 16
	d := new(ssh.Dialer)
	clients := make([]*ssh.Client, many)
	err := hosts.FanOut(t.Context(), 0, slices.Repeat([]ssh.Target{x}, many), func(ctx context.Context, i int, t ssh.Target) (err error) {
		clients[i], err = d.Dial(ctx, t)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// One process for the login, and none for what is forwarded; as root it has a helper.
	if n := len(descendants(t, gate.pid)); n == 0 || n > 2 {
		t.Errorf("the jump host has %d processes", n)
	}
	for i, c := range clients {
		if _, err := c.Run(t.Context(), []string{"true"}, nil); err != nil {
			t.Error(err)
		}
		if i > 0 {
			c.Close()
		}
	}
	if _, err := clients[0].Run(t.Context(), []string{"true"}, nil); err != nil {
		t.Errorf("after the others have left: %v", err)
	}
	// When the jump host's login dies all behind it do, and the next gets a new one.
	for _, pid := range descendants(t, gate.pid) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-clients[0].Done()
	c, err := d.Dial(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	clients[0].Close()

	// One that cannot be reached costs its timeout once, not once a host.
	dead := gate.Target
	dead.Address, dead.Timeout = testbedtest.BlackHole(t), time.Second
	x.Jump = &dead
	begin := time.Now()
	const behind = 400 // 50 s, were they to wait for it four at a time
	_, err = dialAll(t.Context(), 4, slices.Repeat([]ssh.Target{x}, behind))
	if !errors.Is(err, hosts.ErrUnreachable) || strings.Count(err.Error(), "jump: ") != behind {
		t.Error(err)
	}
	if took := time.Since(begin); took > 60*time.Second {
		t.Errorf("%d hosts behind a dead one took %v, its timeout is 1 s", behind, took)
	}
	// So it does where what bounds a host's time ends first.
	d, begin = new(ssh.Dialer), time.Now()
	dead.Timeout = 20 * time.Second
	err = hosts.FanOut(t.Context(), 4, slices.Repeat([]ssh.Target{x}, behind), func(ctx context.Context, _ int, x ssh.Target) error {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		_, err := d.Dial(ctx, x)
		return err
	})
	if err == nil || strings.Count(err.Error(), "jump: ") != behind || time.Since(begin) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

// A host that stops answering in the middle of a session ends the connection, and with
// it all that waits; so does a jump host.
func TestOpenSSHStops(t *testing.T) {
	t.Parallel() // it waits
	gate, h := newOpenSSH(t), newOpenSSH(t)
	for name, stopped := range map[string]*openSSH{"the host": h, "the host behind a jump host": h, "the jump host": gate} {
		t.Run(name, func(t *testing.T) {
			x := h.Target
			x.KeepAlive, x.KeepAliveMax = 200*time.Millisecond, 5
			via := gate.Target
			via.KeepAlive, via.KeepAliveMax = 200*time.Millisecond, 5
			if name != "the host" {
				x.Jump = &via
			}
			c, err := ssh.Dial(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			p, err := c.Start(t.Context(), []string{"cat"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.ReadFile(t.Context(), "/proc/version"); err != nil {
				t.Fatal(err)
			}
			for _, pid := range descendants(t, stopped.pid) {
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				defer syscall.Kill(pid, syscall.SIGKILL)
			}
			pending := make(chan error, 4)
			go func() { _, err := c.Run(t.Context(), []string{"true"}, nil); pending <- err }()
			go func() { _, err := c.ReadFile(t.Context(), "/proc/version"); pending <- err }()
			go func() { _, err := io.Copy(p.Stdin, neverEnding{}); pending <- cmp.Or(err, io.ErrUnexpectedEOF) }() // until no more fits
			go func() { pending <- p.Wait() }()
			for range 4 {
				select {
				case err := <-pending:
					if err == nil {
						t.Error("ended as if all were well")
					}
				case <-time.After(20 * time.Second):
					t.Fatal("something still waits")
				}
			}
			<-c.Done()
			want := "no answer to keepalives for 1s"
			if err := c.Err(); !errors.Is(err, hosts.ErrLost) || !strings.Contains(err.Error(), "host h1") || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
			if _, err := c.Run(t.Context(), []string{"true"}, nil); !errors.Is(err, hosts.ErrLost) {
				t.Error(err)
			}
			c.Close()
		})
	}
}

// neverEnding is an input that does not end.
type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { return len(p), nil }

// TestCreateWideUmask: where the server's umask lets others write to what it makes, what they do to it before its mode is
// changed has no effect on the file that Create leaves.
func TestCreateWideUmask(t *testing.T) {
	c, err := ssh.Dial(t.Context(), newOpenSSH(t, "Subsystem sftp internal-sftp -u 0002").Target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir, beside := t.TempDir(), t.TempDir()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // another user of the same group
		defer close(stopped)
		for n := 0; ; {
			select {
			case <-stop:
				return
			default:
			}
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				info, err := e.Info()
				if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o022 != 0 &&
					os.Link(filepath.Join(dir, e.Name()), filepath.Join(beside, fmt.Sprint(n))) == nil {
					n++
				}
			}
		}
	}()
	for i := range 30 {
		name := filepath.Join(dir, fmt.Sprint("lease.", i))
		if _, err := c.Create(t.Context(), name, []byte("anna's")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil || info.Mode() != 0o644 || info.Sys().(*syscall.Stat_t).Nlink != 1 {
			t.Errorf("%v, %d names, %v", info.Mode(), info.Sys().(*syscall.Stat_t).Nlink, err)
		}
	}
	close(stop)
	<-stopped
	if _, err := c.Create(t.Context(), filepath.Join(dir, "lease.1"), []byte("bob's")); err == nil {
		t.Error("a file was made twice")
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != 30 {
		t.Errorf("%q, %v", names, err)
	}
}
