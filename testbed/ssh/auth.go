package ssh

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/inabench/inabench/internal/bounded"
)

// credentials are the keys that a target is offered, and why others are not.
type credentials struct {
	signers []ssh.Signer
	agent   net.Conn // answers signature requests; nil: none
	skipped []string
	sha1    bool // RSA keys may sign with it
}

func (c *credentials) close() {
	if c.agent != nil {
		c.agent.Close()
	}
}

// identity is what a key file says.
type identity struct {
	file   string
	public ssh.PublicKey // nil: cannot be told
	signer ssh.Signer    // nil: the private key is locked, or not in the file
}

// load collects the keys of t in the order in which they are offered: those that were
// named, each after its certificates, then the agent's, then the usual files.
func load(t Target) (*credentials, error) {
	c := &credentials{}
	files, named := t.Keys, true
	if len(t.Keys) == 0 && len(t.Signers) == 0 {
		files, named = []string{homeFile("id_ed25519"), homeFile("id_ecdsa"), homeFile("id_rsa")}, false
	}
	certs := c.loadCertificates(t.Certificates, true)
	fromAgent := c.loadAgent(t)

	var fromFiles []ssh.Signer
	c.sha1 = t.sha1Keys
	for _, s := range t.Signers {
		fromFiles = c.add(fromFiles, s, certs)
	}
	for _, file := range files {
		id, err := readKey(file)
		if errors.Is(err, fs.ErrNotExist) && !named {
			continue
		}
		beside := c.loadCertificates([]string{strings.TrimSuffix(file, ".pub") + "-cert.pub"}, false)
		// A key with a passphrase is no loss if the agent holds it.
		if id.signer == nil && id.public != nil {
			i := slices.IndexFunc(fromAgent, func(s ssh.Signer) bool { return sameKey(s.PublicKey(), id.public) })
			if i >= 0 {
				id.signer, err = fromAgent[i], nil
			}
		}
		if err != nil {
			c.skipped = append(c.skipped, err.Error())
			continue
		}
		fromFiles = c.add(fromFiles, id.signer, slices.Concat(beside, certs))
	}
	var rest []ssh.Signer
	for _, s := range fromAgent {
		if !t.IdentitiesOnly || slices.ContainsFunc(fromFiles, func(f ssh.Signer) bool { return sameKey(certified(f.PublicKey()), certified(s.PublicKey())) }) {
			rest = c.add(rest, s, certs)
		}
	}
	if named {
		c.signers = unique(slices.Concat(fromFiles, rest))
	} else {
		c.signers = unique(slices.Concat(rest, fromFiles))
	}
	if len(c.signers) == 0 {
		c.close()
		return nil, errors.New(strings.Join(append([]string{"no key to log in with"}, c.skipped...), "; "))
	}
	return c, nil
}

// add appends a key, after the certificates that are for it.
func (c *credentials) add(list []ssh.Signer, s ssh.Signer, certs []*ssh.Certificate) []ssh.Signer {
	if !c.sha1 {
		s = withoutSHA1(s)
	}
	for _, cert := range certs {
		if !sameKey(cert.Key, s.PublicKey()) {
			continue
		}
		if with, err := ssh.NewCertSigner(cert, s); err == nil {
			list = append(list, with)
		}
	}
	return append(list, s)
}

// withoutSHA1 is a key that signs nothing with SHA-1, as RSA keys and their certificates do for servers that do not
// say what else they take.
func withoutSHA1(s ssh.Signer) ssh.Signer {
	all, ok := s.(ssh.AlgorithmSigner)
	if kind := s.PublicKey().Type(); !ok || kind != ssh.KeyAlgoRSA && kind != ssh.CertAlgoRSAv01 {
		return s
	}
	safe, err := ssh.NewSignerWithAlgorithms(all, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
	if err != nil { // not of an RSA key
		return s
	}
	return safe
}

// unique leaves out what is offered already.
func unique(list []ssh.Signer) (out []ssh.Signer) {
	for _, s := range list {
		if !slices.ContainsFunc(out, func(o ssh.Signer) bool { return sameKey(o.PublicKey(), s.PublicKey()) }) {
			out = append(out, s)
		}
	}
	return out
}

func sameKey(a, b ssh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }

// certified is the key that a certificate is for, and a plain key itself.
func certified(k ssh.PublicKey) ssh.PublicKey {
	parsed, err := ssh.ParsePublicKey(k.Marshal()) // the agent's keys are opaque
	if cert, ok := parsed.(*ssh.Certificate); err == nil && ok {
		return cert.Key
	}
	return k
}

// loadCertificates reads certificates; those that were named must be there.
func (c *credentials) loadCertificates(files []string, named bool) (out []*ssh.Certificate) {
	for _, file := range files {
		text, err := bounded.ReadFile(file, bounded.Config)
		if errors.Is(err, fs.ErrNotExist) && !named {
			continue
		}
		var cert *ssh.Certificate
		if err == nil {
			var key ssh.PublicKey
			if key, _, _, _, err = ssh.ParseAuthorizedKey(text); err == nil {
				cert, _ = key.(*ssh.Certificate)
			}
			if cert == nil || cert.CertType != ssh.UserCert {
				err = fmt.Errorf("%s: not a user's certificate", file)
			}
		}
		if err != nil {
			c.skipped = append(c.skipped, err.Error())
			continue
		}
		if why := validity(cert); why != "" {
			c.skipped = append(c.skipped, file+": the certificate "+why)
			continue
		}
		out = append(out, cert)
	}
	return out
}

// validity says what is wrong with a certificate's time, if anything.
func validity(cert *ssh.Certificate) string {
	now, at := uint64(time.Now().Unix()), func(t uint64) string { return time.Unix(int64(t), 0).UTC().Format(time.RFC3339) }
	switch {
	case now < cert.ValidAfter:
		return "is valid only from " + at(cert.ValidAfter)
	case cert.ValidBefore != ssh.CertTimeInfinity && now >= cert.ValidBefore:
		return "expired at " + at(cert.ValidBefore)
	}
	return ""
}

// loadAgent asks the agent for its keys. One that does not answer is noted.
func (c *credentials) loadAgent(t Target) []ssh.Signer {
	socket := cmp.Or(t.Agent, os.Getenv("SSH_AUTH_SOCK"))
	if socket == "" || socket == "none" {
		return nil
	}
	conn, err := net.DialTimeout("unix", socket, t.Timeout)
	if err != nil {
		c.skipped = append(c.skipped, fmt.Sprintf("SSH agent: %v", err))
		return nil
	}
	conn.SetDeadline(time.Now().Add(t.Timeout)) // it may wait for its user's consent, but not for ever
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		conn.Close()
		c.skipped = append(c.skipped, fmt.Sprintf("SSH agent %s: %v", socket, err))
		return nil
	}
	conn.SetDeadline(time.Time{})
	c.agent = conn
	return signers
}

// readKey reads a private key, or of a locked one and of a public one what is public.
// The identity may say something even when there is an error.
func readKey(file string) (identity, error) {
	id := identity{file: file}
	text, err := bounded.ReadFile(file, bounded.Config)
	if err != nil {
		return id, err
	}
	id.signer, err = ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	private := err == nil || errors.As(err, &locked)
	if mode := exposed(file); private && mode != 0 {
		id.signer = nil
		return id, fmt.Errorf("%s can be read by others, mode %#o (chmod 600 it)", file, mode)
	}
	switch {
	case err == nil:
		id.public = id.signer.PublicKey()
		return id, nil
	case errors.As(err, &locked):
		id.signer, id.public = nil, locked.PublicKey // older formats do not tell it
		if beside, err := bounded.ReadFile(file+".pub", bounded.Config); err == nil && id.public == nil {
			id.public, _, _, _, _ = ssh.ParseAuthorizedKey(beside)
		}
		return id, fmt.Errorf("%s has a passphrase (ssh-add it)", file)
	}
	if public, _, _, _, perr := ssh.ParseAuthorizedKey(text); perr == nil {
		id.public = public
		return id, fmt.Errorf("%s is a public key, and no agent has the private one", file)
	}
	return id, fmt.Errorf("%s: %w", file, err)
}

// exposed is the mode of a file of this user that others can read or write; 0 of another. OpenSSH does not
// use a private key of such a file.
func exposed(file string) fs.FileMode {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		return 0 // who owns it can change it anyway
	}
	return info.Mode().Perm()
}

// hostKeys checks the keys that a host shows against known_hosts files.
type hostKeys struct {
	address    string // what they are looked up by
	files      []string
	algorithms []string // in order of preference
	verify     ssh.HostKeyCallback
	verified   bool   // the host has shown the right key
	refused    error  // or the wrong one
	hint       string // and what to do then
}

// readKnownHosts reads known_hosts files; those that are not there know nobody.
func readKnownHosts(files []string) (*knownhosts.HostKeyDB, error) {
	var present []string
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			present = append(present, file)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return knownhosts.NewDB(present...)
}

// readRevoked reads the files of ssh_config's RevokedHostKeys: public keys, one in a line.
func readRevoked(files []string) (keys []xknownhosts.KnownKey, err error) {
	for _, file := range files {
		text, err := bounded.ReadFile(file, bounded.Config)
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(text, []byte("SSHKRL\n\x00")) {
			return nil, fmt.Errorf("%s is a key revocation list, which is not read here: list the keys themselves", file)
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
				continue
			}
			key, _, _, _, err := ssh.ParseAuthorizedKey(line)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, n, err)
			}
			keys = append(keys, xknownhosts.KnownKey{Key: key, Filename: file, Line: n})
		}
	}
	return keys, nil
}

// unlessRevoked is verify of keys that are not revoked: as they are, in a certificate, or as its authority. A certificate that
// is revoked takes its key with it.
func unlessRevoked(verify ssh.HostKeyCallback, revoked []xknownhosts.KnownKey) ssh.HostKeyCallback {
	plain := func(key ssh.PublicKey) ssh.PublicKey {
		if c, ok := key.(*ssh.Certificate); ok {
			return c.Key
		}
		return key
	}
	return func(host string, remote net.Addr, key ssh.PublicKey) error {
		all := []ssh.PublicKey{plain(key)}
		if c, ok := key.(*ssh.Certificate); ok {
			all = append(all, c.SignatureKey)
		}
		for _, r := range revoked {
			for _, key := range all {
				if bytes.Equal(plain(r.Key).Marshal(), key.Marshal()) {
					return &xknownhosts.RevokedError{Revoked: r}
				}
			}
		}
		return verify(host, remote, key)
	}
}

func newHostKeys(t Target, db *knownhosts.HostKeyDB, revoked []xknownhosts.KnownKey) *hostKeys {
	h := &hostKeys{address: t.Address, files: t.KnownHosts, verify: unlessRevoked(db.HostKeyCallback(), revoked)}
	if t.hostKeyAlias != "" {
		h.address = net.JoinHostPort(t.hostKeyAlias, "22")
	}
	known := db.HostKeys(h.address)
	certificates := slices.ContainsFunc(known, func(k knownhosts.PublicKey) bool { return k.Cert })
	// A server has several keys and shows the one whose type the client prefers:
	// ask for types that are known, or a well-known host looks like a changed one.
	// The others follow, so that a host which has lost its old key is reported with
	// the key it has. An authority may have certified keys of any type; where none is
	// known, a host that has certificates must still show its plain key.
	if certificates {
		for _, a := range ssh.SupportedAlgorithms().HostKeys {
			if isCertificate(a) {
				h.algorithms = append(h.algorithms, a)
			}
		}
	}
	for _, a := range slices.Concat(db.HostKeyAlgorithms(h.address), ssh.SupportedAlgorithms().HostKeys) {
		if !isCertificate(a) && !slices.Contains(h.algorithms, a) {
			h.algorithms = append(h.algorithms, a)
		}
	}
	if !t.sha1HostKeys {
		h.algorithms = slices.DeleteFunc(h.algorithms, func(a string) bool { return a == ssh.KeyAlgoRSA || a == ssh.CertAlgoRSAv01 })
	}
	return h
}

func isCertificate(algorithm string) bool { return strings.Contains(algorithm, "-cert-") }

func (h *hostKeys) check(_ string, remote net.Addr, key ssh.PublicKey) error {
	err := h.verify(h.address, remote, key)
	if err == nil {
		h.verified = true
		return nil
	}
	offered := key.Type() + " " + ssh.FingerprintSHA256(key)
	plain := knownhosts.Normalize(h.address)
	var file string
	if len(h.files) > 0 {
		file = h.files[0]
	}
	add := fmt.Sprintf("compare the fingerprint on the host itself (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub), then add to %s the line %q",
		cmp.Or(file, "a known_hosts file"), knownhosts.Line([]string{h.address}, key))
	var keyErr *xknownhosts.KeyError
	var revoked *xknownhosts.RevokedError
	cert, certificate := key.(*ssh.Certificate)
	switch {
	case errors.As(err, &revoked):
		h.refused = fmt.Errorf("it shows %s, which %s:%d revokes", offered, revoked.Revoked.Filename, revoked.Revoked.Line)
		h.hint = "the host must get a new key"
	case certificate:
		why := strings.TrimPrefix(err.Error(), "ssh: ")
		h.refused = fmt.Errorf("its certificate %q, signed by %s for %s, is not good: %s", cert.KeyId,
			ssh.FingerprintSHA256(cert.SignatureKey), cmp.Or(strings.Join(cert.ValidPrincipals, ", "), "any host"), why)
		if when := validity(cert); when != "" {
			h.refused = fmt.Errorf("its certificate %q %s", cert.KeyId, when)
		}
		h.hint = fmt.Sprintf("sign the host's key again, for the name %q (ssh-keygen -s CA -h -n %s)", plain, plain)
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
