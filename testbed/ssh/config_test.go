package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// home gives the test a home directory with files in .ssh.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for name, text := range files {
		path := filepath.Join(dir, ".ssh", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "HOME", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConfig(t *testing.T) {
	t.Setenv("KEYS", "/keys")
	me := currentUser()
	tests := []struct {
		name, config string
		in           Target
		want         string // route: user@address, by way of others
		check        func(t *testing.T, got Target, home string)
	}{
		{name: "nothing said", in: Target{Address: "h1"}, want: me + "@h1:22"},
		{name: "alias", config: "Host h1\n HostName 10.0.0.1\n User lab\n Port 2222", in: Target{Address: "h1"}, want: "lab@10.0.0.1:2222"},
		{name: "the inventory wins", config: "Host *\n HostName 10.0.0.1\n User lab\n Port 2222", in: Target{Address: "h1:22", User: "root"}, want: "root@10.0.0.1:22"},
		{name: "first value wins", config: "Host h1\n User first\nHost h*\n User second\n Port 99", in: Target{Address: "h1"}, want: "first@h1:99"},
		{name: "before the first Host", config: "User all\nHost h1\nUser one", in: Target{Address: "h1"}, want: "all@h1:22"},
		{name: "negation", config: "Host * !h1\n User lab", in: Target{Address: "h1"}, want: me + "@h1:22"},
		{name: "a question mark is one character", config: "Host h?\n User lab", in: Target{Address: "h"}, want: me + "@h:22"},
		{name: "tabs, equals signs and quotes", config: "Host\th1\th2\n\tUser = \"lab\"\r\n\tPort=\t2222\r", in: Target{Address: "h2"}, want: "lab@h2:2222"},
		{name: "comments", config: "# Host h1\n  # User x\nHost h1 \n User la#b", in: Target{Address: "h1"}, want: "la#b@h1:22"},
		{name: "comments behind", config: "Host h1 # the first\n User lab # shared\n ProxyJump gate # the way in\nMatch all # others, too\n Port 2222 #!", in: Target{Address: "h1"},
			want: "lab@h1:2222 via " + me + "@gate:2222"},
		{name: "HostName from the alias", config: "Host h*\n HostName %h.lab", in: Target{Address: "h1"}, want: me + "@h1.lab:22"},
		{name: "no HostName for addresses", config: "Host h1\n User lab", in: Target{Address: "[fd00::1]:2222"}, want: me + "@[fd00::1]:2222"},
		{name: "IPv6 without a port", in: Target{Address: "fd00::1"}, want: me + "@[fd00::1]:22"},
		{name: "ProxyJump", config: "Host h1\n ProxyJump a@gate1:2201,gate2\nHost gate2\n User b\n ProxyJump ignored", in: Target{Address: "h1"},
			want: me + "@h1:22 via b@gate2:22 via a@gate1:2201"},
		{name: "ProxyJump of the jump host", config: "Host h1\n ProxyJump gate1\nHost gate1\n ProxyJump ssh://x@outer:24", in: Target{Address: "h1"},
			want: me + "@h1:22 via " + me + "@gate1:22 via x@outer:24"},
		{name: "ProxyJump none", config: "Host h1\n ProxyJump none\nHost *\n ProxyJump gate", in: Target{Address: "h1"}, want: me + "@h1:22"},
		{name: "everything through a gate", config: "Host *\n ProxyJump gate", in: Target{Address: "h1"}, want: me + "@h1:22 via " + me + "@gate:22"},
		{name: "the gate itself", config: "Host *\n ProxyJump outer,gate", in: Target{Address: "gate"}, want: me + "@gate:22 via " + me + "@outer:22"},
		{name: "the inventory's jump wins", config: "Host *\n ProxyJump gate", in: Target{Address: "h1", Jump: &Target{Address: "door", Direct: true}}, want: me + "@h1:22 via " + me + "@door:22"},
		{name: "the inventory's none wins", config: "Host *\n ProxyJump gate", in: Target{Address: "h1", Direct: true}, want: me + "@h1:22"},
		{name: "Match all", config: "Host x\nMatch all\n User lab", in: Target{Address: "h1"}, want: "lab@h1:22"},
		{name: "no file wanted", config: "User lab", in: Target{Address: "h1", Config: "none"}, want: me + "@h1:22"},
		{name: "another file", config: "User lab", in: Target{Address: "h1", Config: "~/.ssh/other"}, want: "other@h1:22"},
		{name: "Include", config: "Host h1\n Include conf.d/*\nHost *\n User last", in: Target{Address: "h1"}, want: "included@h1:2222"},
		{name: "Include elsewhere", config: "Host h2\n Include conf.d/*\nHost *\n User last", in: Target{Address: "h1"}, want: "last@h1:22"},
		{name: "after an Include", config: "Host h1\n Include conf.d/b\n User lab", in: Target{Address: "h1"}, want: "lab@h1:2222"},
		{name: "keys", config: "Host h1\n IdentityFile ~/.ssh/%h_%r\n IdentityFile ${KEYS}/%n%%\nHost *\n IdentityFile \"%d/a b\"\n CertificateFile c-cert.pub\n IdentitiesOnly yes\n User u",
			in: Target{Address: "h1"}, want: "u@h1:22", check: func(t *testing.T, got Target, home string) {
				if want := []string{home + "/.ssh/h1_u", "/keys/h1%", home + "/a b"}; !slices.Equal(got.Keys, want) || !got.IdentitiesOnly || !slices.Equal(got.Certificates, []string{"c-cert.pub"}) {
					t.Errorf("%q, %q, only %v", got.Keys, got.Certificates, got.IdentitiesOnly)
				}
			}},
		{name: "the inventory's key wins", config: "IdentityFile x\nCertificateFile y", in: Target{Address: "h1", Keys: []string{"~/k"}, Certificates: []string{"z"}}, want: me + "@h1:22",
			check: func(t *testing.T, got Target, home string) {
				if !slices.Equal(got.Keys, []string{home + "/k"}) || !slices.Equal(got.Certificates, []string{"z"}) {
					t.Errorf("%q %q", got.Keys, got.Certificates)
				}
			}},
		{name: "known hosts", config: "UserKnownHostsFile ~/a \"HOME/b c\"\nGlobalKnownHostsFile none\nHostKeyAlias rack", in: Target{Address: "h1"}, want: me + "@h1:22",
			check: func(t *testing.T, got Target, home string) {
				if !slices.Equal(got.KnownHosts, []string{home + "/a", home + "/b c"}) || got.hostKeyAlias != "rack" {
					t.Errorf("%q %q", got.KnownHosts, got.hostKeyAlias)
				}
			}},
		{name: "revoked keys", config: "Host h2\n RevokedHostKeys None\nHost *\n RevokedHostKeys ~/%h.gone /b", in: Target{Address: "h1"}, want: me + "@h1:22",
			check: func(t *testing.T, got Target, home string) {
				if !slices.Equal(got.revoked, []string{home + "/h1.gone", "/b"}) {
					t.Error(got.revoked)
				}
			}},
		{name: "times", config: "ConnectTimeout 3\nServerAliveInterval 1m\nServerAliveCountMax 7", in: Target{Address: "h1"}, want: me + "@h1:22",
			check: func(t *testing.T, got Target, _ string) {
				if got.Timeout != 3*time.Second || got.KeepAlive != time.Minute || got.KeepAliveMax != 7 {
					t.Errorf("%v %v %v", got.Timeout, got.KeepAlive, got.KeepAliveMax)
				}
			}},
		{name: "keepalive cannot be turned off", config: "ServerAliveInterval 0", in: Target{Address: "h1"}, want: me + "@h1:22",
			check: func(t *testing.T, got Target, _ string) {
				if got.KeepAlive != 5*time.Second {
					t.Error(got.KeepAlive)
				}
			}},
		{name: "agent", config: "IdentityAgent ~/agent.sock", in: Target{Address: "h1"}, want: me + "@h1:22",
			check: func(t *testing.T, got Target, home string) {
				if got.Agent != home+"/agent.sock" {
					t.Error(got.Agent)
				}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := home(t, map[string]string{
				"config": tt.config, "other": "User other",
				"conf.d/a": "Host h2\n User wrong\nHost h1\n User included", "conf.d/b": "Port 2222",
			})
			before := tt.in
			var warn []string
			got, err := new(configFiles).resolve(tt.in, maxJumps, &warn)
			if err != nil {
				t.Fatal(err)
			}
			if r := route(got); r != tt.want || len(warn) > 0 {
				t.Errorf("%s, want %s; %q", r, tt.want, warn)
			}
			if tt.check != nil {
				tt.check(t, got, dir)
			}
			if !reflect.DeepEqual(before, tt.in) {
				t.Error("the target was changed")
			}
			// What has been resolved once stays as it is.
			again, err := new(configFiles).resolve(got, maxJumps, &warn)
			if err != nil || route(again) != tt.want || !slices.Equal(again.Keys, got.Keys) || !slices.Equal(again.KnownHosts, got.KnownHosts) {
				t.Errorf("again: %s, %v", route(again), err)
			}
		})
	}
}

// route is how a target is reached.
func route(t Target) string {
	s := t.User + "@" + t.Address
	if t.Jump != nil {
		s += " via " + route(*t.Jump)
	}
	return s
}

// What a file says wrongly, or what would be dangerous to pass over, is an error with its
// place; what is not followed and does no harm is a warning with its place.
func TestConfigSaid(t *testing.T) {
	for _, tt := range []struct{ name, config, want string }{
		{"ProxyCommand", "\nProxyCommand nc %h %p", "config:2: ProxyCommand is not supported: write ProxyJump"},
		{"port", "Port ssh", `config:1: "ssh" is not a port`},
		{"time", "ConnectTimeout soon", `config:1: "soon" is not a number of seconds`},
		{"count", "ServerAliveCountMax 0", `config:1: "0" is not a number of keepalives`},
		{"flag", "IdentitiesOnly perhaps", `config:1: "perhaps" is neither yes nor no`},
		{"token", "IdentityFile %C", "config:1: \"%C\": %C is not supported"},
		{"open token", "IdentityFile x%", "ends in %"},
		{"variable", "IdentityFile ${INABENCH_NOT_SET}", "there is no environment variable INABENCH_NOT_SET"},
		{"open variable", "IdentityFile ${X", "is not closed"},
		{"no value", "Host h1\nUser", "config:2: User has no value"},
		{"a comment for a value", "Host h1\nUser # lab", "config:2: User has no value"},
		{"no keyword", "Host h1\n= x", "config:2: \"=\" is not a keyword"},
		{"quote", `User "lab`, "config:1: User: a quote is not closed"},
		{"pattern", `Host "a b"`, `config:1: "a b" is not a pattern of hosts`},
		{"circle of files", "Include config", "include each other"},
		{"circle of jumps", "Host h1\nProxyJump a\nHost a\nProxyJump b\nHost b\nProxyJump a", "reached through more than 8 hosts, or through itself"},
		{"jump", "ProxyJump a@[", `config:1: ProxyJump: "a@[" is not a host to go through`},
		{"inside an Include", "Include sub", "sub:1: \"no\" is not a port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home(t, map[string]string{"config": tt.config, "sub": "Port no"})
			_, err := new(configFiles).resolve(Target{Address: "h1"}, maxJumps, new([]string))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v\ndoes not say %q", err, tt.want)
			}
		})
	}
	for _, tt := range []struct{ name, config, want string }{
		{"Match", "Host h1\n User a\nMatch exec \"touch canary\"\n User b\n", "config:3: Match is not supported: the lines up to the next Host are ignored"},
		{"Match in an Include", "Include sub", "sub:2: Match is not supported"},
		{"host keys", "Host h1\n StrictHostKeyChecking no", "config:2: StrictHostKeyChecking no is not obeyed: host keys are always checked"},
		{"host keys of new hosts", "StrictHostKeyChecking=accept-new", "StrictHostKeyChecking accept-new is not obeyed"},
		{"host keys of this machine", "NoHostAuthenticationForLocalhost yes", "is not obeyed"},
		{"host keys from a command", "KnownHostsCommand /bin/keys", "KnownHostsCommand /bin/keys is not obeyed"},
		{"algorithms", "HostKeyAlgorithms +ssh-rsa,ssh-dss", "HostKeyAlgorithms +ssh-rsa,ssh-dss is not obeyed"},
		{"algorithms, by the older name", "PubkeyAcceptedKeyTypes ssh-dss", "PubkeyAcceptedAlgorithms ssh-dss is not obeyed"},
		{"canonical names", "CanonicalizeHostname yes", "is not obeyed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home(t, map[string]string{"config": tt.config, "sub": "Host h1\nMatch user x\nUser b"})
			var warn []string
			c := new(configFiles)
			got, err := c.resolve(Target{Address: "h1"}, maxJumps, &warn)
			if err != nil || got.User == "b" {
				t.Errorf("user %s, %v", got.User, err)
			}
			if all := strings.Join(append(c.warn, warn...), "; "); !strings.Contains(all, tt.want) {
				t.Errorf("%q does not say %q", all, tt.want)
			}
		})
	}
	// A file that anybody may write is not believed.
	dir := home(t, map[string]string{"config": "User lab"})
	if err := os.Chmod(filepath.Join(dir, ".ssh", "config"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := new(configFiles).resolve(Target{Address: "h1"}, maxJumps, new([]string)); err == nil || !strings.Contains(err.Error(), "can be written by everybody") {
		t.Error(err)
	}
	// Nor one of the user's own that others may write, or have written.
	if os.Getuid() == 0 {
		for _, c := range []struct {
			mode     fs.FileMode
			uid, gid int
			want     string
		}{
			{0o600, 0, 0, ""}, {0o660, 0, 65534, "can be written by its group"}, {0o640, 0, 65534, ""}, {0o600, 65534, 0, "belongs to somebody else, user 65534"},
			{0o600, 65533, 0, ""}, // whose home it is,
		} {
			at := filepath.Join(home(t, map[string]string{"config": "User lab"}), ".ssh", "config")
			if err := errors.Join(os.Chmod(at, c.mode), os.Chown(at, c.uid, c.gid), os.Chown(filepath.Dir(filepath.Dir(at)), 65533, 0)); err != nil {
				t.Fatal(err)
			}
			_, err := new(configFiles).resolve(Target{Address: "h1"}, maxJumps, new([]string))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
	// Where a file was named it must be there.
	home(t, nil)
	if _, err := new(configFiles).resolve(Target{Address: "h1", Config: "/nonexistent/config"}, maxJumps, new([]string)); err == nil {
		t.Error("a file that is not there")
	}
}

// What OpenSSH's client makes of a file is what is made of it here.
func TestConfigAsOpenSSH(t *testing.T) {
	program, err := exec.LookPath("ssh")
	testbedtest.Require(t, "openssh", err)
	me, err := user.Current() // whose home directory OpenSSH takes, whatever $HOME says
	if err != nil {
		t.Fatal(err)
	}
	rng := newRand(t)
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	pattern := func() string {
		return pick("", "", "!") + pick("h1", "h2", "h*", "h?", "*", "*1", "h*1*", "?", "h", "*.lab", "node-*", "H1")
	}
	dir := home(t, map[string]string{"sub1": "Port 7\nHost h1 h2\n User sub", "sub2": "Host h?\n IdentityFile ~/sub\n ServerAliveInterval 9"})
	option := func() string {
		return pick("HostName %h.lab", "HostName 10.0.0.9", "User lab", "User root", "Port 2222", "Port = 22", "IdentityFile ~/a", "IdentityFile \"/k/%n %p\"", "identityfile=/k/%r",
			"UserKnownHostsFile ~/k1 /k2", "GlobalKnownHostsFile /g", "ProxyJump gate", "ProxyJump u@g1:23,g2", "ProxyJump none", "ConnectTimeout 4", "ServerAliveInterval 8",
			"ServerAliveCountMax 2", "IdentitiesOnly yes", "IdentitiesOnly no", "CertificateFile /c/%h", "Include sub1", "Include sub*", "Compression yes", "# a comment", "", "IdentityAgent none", "HostKeyAlias rack", "RevokedHostKeys /gone", "RevokedHostKeys none", "RevokedHostKeys ~/gone")
	}
	comment := func() string { return pick("", "", " # x", "\t#y z") }
	files := 60
	if !proof.Wanted() {
		files = 20
	}
	for range files {
		var b strings.Builder
		for range rng.IntN(5) {
			fmt.Fprintln(&b, option()+comment())
		}
		for range rng.IntN(4) {
			fmt.Fprintf(&b, "%s %s %s%s\n", pick("Host", "host", "\tHost"), pattern(), pattern(), comment())
			for range rng.IntN(5) {
				fmt.Fprintln(&b, "  "+option()+comment())
			}
		}
		file := filepath.Join(dir, ".ssh", "config")
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		alias := pick("h1", "h2", "h", "h12", "x.lab", "node-7", "gate")
		// The real one finds the home directory by other means than $HOME.
		text := strings.ReplaceAll(strings.ReplaceAll(b.String(), "~", dir), "Include sub", "Include "+dir+"/.ssh/sub")
		if err := os.WriteFile(filepath.Join(dir, "theirs"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"sub1", "sub2"} {
			sub, _ := os.ReadFile(filepath.Join(dir, ".ssh", name))
			if err := os.WriteFile(filepath.Join(dir, ".ssh", name), []byte(strings.ReplaceAll(string(sub), "~", dir)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command(program, "-G", "-F", filepath.Join(dir, "theirs"), alias).CombinedOutput()
		if strings.Contains(string(out), "jumphost loop") {
			continue // of a gate that is to be reached through itself; here it is reached at once
		}
		if err != nil {
			t.Fatalf("%s\n%v: %s", text, err, out)
		}
		theirs := map[string][]string{}
		for line := range strings.Lines(string(out)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			theirs[key] = append(theirs[key], value)
		}
		one := func(key string) string { return strings.Join(theirs[key], " ") }
		got, err := new(configFiles).resolve(Target{Address: alias, Config: file}, maxJumps, new([]string))
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		check := func(what, ours, theirs string) {
			if ours != theirs {
				t.Errorf("%s of %s: %q, OpenSSH has %q\n%s", what, alias, ours, theirs, text)
			}
		}
		host, port, _ := splitAddress(got.Address)
		check("address", host+":"+port, one("hostname")+":"+one("port"))
		check("user", got.User, one("user"))
		if len(got.Keys) > 0 {
			tokens := strings.NewReplacer("%n", alias, "%p", port, "%r", got.User, "%h", host)
			check("keys", strings.Join(got.Keys, " "), tokens.Replace(one("identityfile")))
		}
		check("certificates", strings.Join(got.Certificates, " "), strings.ReplaceAll(one("certificatefile"), "%h", host))
		if one("userknownhostsfile") != "" && strings.Contains(text, "UserKnownHostsFile") {
			check("known hosts", strings.Join(got.KnownHosts[:2], " "), strings.ReplaceAll(one("userknownhostsfile"), me.HomeDir+"/.ssh", dir+"/.ssh"))
		}
		check("only", map[bool]string{true: "yes", false: "no"}[got.IdentitiesOnly], one("identitiesonly"))
		if revoked := one("revokedhostkeys"); revoked != "none" { // of which nothing is said where there are none
			check("revoked keys", strings.Join(got.revoked, " "), revoked)
		}
		if jump := one("proxyjump"); jump != "none" && alias != "gate" {
			var hops []string
			for j := got.Jump; j != nil; j = j.Jump {
				hops = append([]string{j.Name}, hops...)
			}
			if !strings.HasSuffix(strings.Join(hops, ","), jump) { // those in front are the jump host's own
				t.Errorf("%s through %q, OpenSSH has %q\n%s", alias, hops, jump, text)
			}
		}
		if n := one("serveraliveinterval"); n != "0" {
			check("keepalive", fmt.Sprint(int(got.KeepAlive.Seconds())), n)
		}
		if n := one("connecttimeout"); n != "none" {
			check("timeout", fmt.Sprint(int(got.Timeout.Seconds())), n)
		}
		if t.Failed() {
			return
		}
	}
}

// Any text is read or refused, without a panic or an endless loop.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		"Host a b !c\n User x\n", "Match exec x\nUser y\nHost *", "Include ~/x\n", "Host", "=", "\"", "User \"a b\" c\r\nPort=1",
		"IdentityFile %h%%${HOME}", "ProxyJump a,b@c:1", "#\n\n\t# x", "Host a # b\nUser x #", "Host *\n\x00", "é = ü", "Host \"", "user",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToLower(text), "include") {
			return // of whatever lies on this machine
		}
		file, warn, err := parseConfig("f", text)
		if err != nil {
			if file != nil || warn != nil {
				t.Fatalf("%v, but also %v %v", err, file, warn)
			}
			return
		}
		c := &configFiles{files: map[string]*configFile{"f": file}}
		_, _ = c.resolve(Target{Address: "h1", Config: "f"}, maxJumps, new([]string))
	})
}

func FuzzParseJump(f *testing.F) {
	for _, s := range []string{"h", "u@h:22", "ssh://u@[fd00::1]:22/", "a@b@c", "[", ":", "fd00::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		target, err := ParseJump(s)
		if (err != nil) != (target.Address == "") {
			t.Fatalf("%+v, %v", target, err)
		}
	})
}
