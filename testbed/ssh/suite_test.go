package ssh_test

import (
	"flag"
	"os"
	"testing"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/hosts/hoststest"
	"github.com/inabench/inabench/testbed/ssh"
)

// Hosts that are logged in to are hosts, whoever's server it is.
func TestHosts(t *testing.T) {
	t.Parallel() // it waits
	for name, target := range map[string]func(t *testing.T) ssh.Target{
		"sshd":    func(t *testing.T) ssh.Target { return newHost(t, func(h *host) { h.Dir = t.TempDir() }).Target },
		"OpenSSH": func(t *testing.T) ssh.Target { return newOpenSSH(t).Target },
	} {
		t.Run(name, func(t *testing.T) {
			hoststest.Run(t, func(t *testing.T) hosts.Host {
				x := target(t)
				x.Name = "h1"
				c, err := ssh.Dial(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				return c
			})
		})
	}
}

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "6") // whatever the cores: they mostly wait
	os.Exit(m.Run())
}
