package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// credentials are the keys that a target is offered, and why others are not.
type credentials struct {
	signers []ssh.Signer
	agent   net.Conn // answers signature requests; nil: none
	skipped []string
}

func (c *credentials) close() {
	if c.agent != nil {
		c.agent.Close()
	}
}

// load collects the keys of t. Keys that were asked for by name must be usable.
func load(t Target) (*credentials, error) {
	c := &credentials{signers: slices.Clone(t.Signers)}
	files, named := t.Keys, true
	if len(t.Keys) == 0 && len(t.Signers) == 0 {
		files, named = []string{homeFile("id_ed25519"), homeFile("id_ecdsa"), homeFile("id_rsa")}, false
	}
	var fromFiles []ssh.Signer
	for _, file := range files {
		signer, err := readKey(file)
		switch {
		case err == nil:
			fromFiles = append(fromFiles, signer)
		case errors.Is(err, fs.ErrNotExist) && !named:
		default:
			// A key with a passphrase is no loss if the agent holds it.
			c.skipped = append(c.skipped, err.Error())
		}
	}
	fromAgent := c.loadAgent(t)
	if named {
		c.signers = slices.Concat(c.signers, fromFiles, fromAgent)
	} else {
		c.signers = slices.Concat(c.signers, fromAgent, fromFiles)
	}
	if len(c.signers) == 0 {
		c.close()
		return nil, errors.New(strings.Join(append([]string{"no key to log in with"}, c.skipped...), "; "))
	}
	return c, nil
}

// loadAgent asks the agent for its keys. One that does not answer is noted.
func (c *credentials) loadAgent(t Target) []ssh.Signer {
	socket := t.Agent
	if socket == "" {
		socket = os.Getenv("SSH_AUTH_SOCK")
	}
	if socket == "" || socket == "none" {
		return nil
	}
	conn, err := net.DialTimeout("unix", socket, t.Timeout)
	if err != nil {
		c.skipped = append(c.skipped, fmt.Sprintf("SSH agent: %v", err))
		return nil
	}
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		conn.Close()
		c.skipped = append(c.skipped, fmt.Sprintf("SSH agent %s: %v", socket, err))
		return nil
	}
	c.agent = conn
	return signers
}

func readKey(file string) (ssh.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%s has a passphrase (ssh-add it)", file)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return signer, nil
}

// hostKeys checks the keys that a host shows against known_hosts files.
type hostKeys struct {
	files      []string
	algorithms []string // in order of preference
	verify     ssh.HostKeyCallback
	verified   bool   // the host has shown the right key
	refused    error  // or the wrong one
	hint       string // and what to do then
}

func loadHostKeys(t Target) (*hostKeys, error) {
	h := &hostKeys{files: t.KnownHosts}
	var present []string
	for _, file := range h.files {
		if _, err := os.Stat(file); err == nil {
			present = append(present, file)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	db, err := knownhosts.NewDB(present...)
	if err != nil {
		return nil, err
	}
	h.verify = db.HostKeyCallback()
	// A server has several keys and shows the one whose type the client prefers:
	// ask for types that are known, or a well-known host looks like a changed one.
	// The others follow, so that a host which has lost its old key is reported with
	// the key it has.
	h.algorithms = db.HostKeyAlgorithms(t.Address)
	for _, a := range ssh.SupportedAlgorithms().HostKeys {
		if !slices.Contains(h.algorithms, a) {
			h.algorithms = append(h.algorithms, a)
		}
	}
	return h, nil
}

func (h *hostKeys) check(address string, remote net.Addr, key ssh.PublicKey) error {
	err := h.verify(address, remote, key)
	if err == nil {
		h.verified = true
		return nil
	}
	offered := key.Type() + " " + ssh.FingerprintSHA256(key)
	plain := knownhosts.Normalize(address)
	add := fmt.Sprintf("compare the fingerprint on the host itself (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), then add to %s the line %q",
		h.files[0], knownhosts.Line([]string{address}, key))
	var keyErr *xknownhosts.KeyError
	var revoked *xknownhosts.RevokedError
	switch {
	case errors.As(err, &revoked):
		h.refused = fmt.Errorf("it shows %s, which %s:%d revokes", offered, revoked.Revoked.Filename, revoked.Revoked.Line)
		h.hint = "the host must get a new key"
	case errors.As(err, &keyErr) && len(keyErr.Want) > 0:
		known := make([]string, len(keyErr.Want))
		for i, k := range keyErr.Want {
			known[i] = fmt.Sprintf("%s:%d has %s %s", k.Filename, k.Line, k.Key.Type(), ssh.FingerprintSHA256(k.Key))
		}
		slices.Sort(known)
		h.refused = fmt.Errorf("it shows %s, but %s", offered, strings.Join(known, ", "))
		h.hint = fmt.Sprintf("if the host was reinstalled, remove the old key (ssh-keygen -f %s -R %q) and %s",
			keyErr.Want[0].Filename, plain, add)
	case errors.As(err, &keyErr):
		h.refused = fmt.Errorf("it shows %s, and no key of %s is in %s", offered, plain, strings.Join(h.files, ", "))
		h.hint = add
	default:
		h.refused = err
		h.hint = add
	}
	return h.refused
}
