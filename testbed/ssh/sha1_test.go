package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// TestSHA1: an RSA key, with a certificate or without, neither proves who a host is nor logs in with a signature of SHA-1, unless
// ssh_config says so, each by a line of its own.
func TestSHA1(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := &ssh.Certificate{Key: signer.PublicKey(), CertType: ssh.UserCert, ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, signer); err != nil {
		t.Fatal(err)
	}
	withCert, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		t.Fatal(err)
	}
	known := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(known, []byte(xknownhosts.Line([]string{"h1:22"}, signer.PublicKey())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := knownhosts.NewDB(known)
	if err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]struct{ host, user bool }{
		"":                                  {false, false},
		"HostKeyAlgorithms +ssh-rsa":        {true, false},
		"PubkeyAcceptedAlgorithms +ssh-rsa": {false, true},
		"PubkeyAcceptedKeyTypes +ssh-rsa":   {false, true},
		"PubkeyAcceptedKeyTypes +ssh-rsa\nPubkeyAcceptedAlgorithms x":        {false, true},
		"HostKeyAlgorithms +ssh-rsa # tor1\nPubkeyAcceptedAlgorithms x":      {true, false},
		"HostKeyAlgorithms +ssh-rsa\nPubkeyAcceptedAlgorithms +ssh-rsa":      {true, true},
		"HostKeyAlgorithms ssh-rsa\nPubkeyAcceptedAlgorithms ^ssh-rsa,x":     {false, false},
		"Host other\nHostKeyAlgorithms +ssh-rsa\nPubkeyAcceptedAlgorithms x": {false, false},
	} {
		home(t, map[string]string{"config": config})
		target, err := new(configFiles).resolve(Target{Address: "h1", Signers: []ssh.Signer{signer, withCert}, Agent: "none"}, maxJumps, new([]string))
		if err != nil {
			t.Fatal(err)
		}
		algorithms := newHostKeys(target, db, nil).algorithms
		if algorithms[0] != ssh.KeyAlgoRSASHA512 || slices.Contains(algorithms, ssh.KeyAlgoRSA) != want.host {
			t.Errorf("%q: hosts are asked for %q", config, algorithms)
		}
		c, err := load(target)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.signers) != 2 {
			t.Fatalf("%q: %d keys, not the plain one and the certificate", config, len(c.signers))
		}
		for _, s := range c.signers {
			with, ok := s.(ssh.MultiAlgorithmSigner)
			if all := !ok || slices.Contains(with.Algorithms(), ssh.KeyAlgoRSA); all != want.user {
				t.Errorf("%q: it logs in with SHA-1 by %s: %v", config, s.PublicKey().Type(), all)
			}
		}
	}
}

// TestExposedKey: a private key that others can read is not used, and said so; what is public may be read.
func TestExposedKey(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o644: false, 0o602: false} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		_, err := load(Target{Keys: []string{file}, Agent: "none"})
		if (err == nil) != good || !good && !strings.Contains(err.Error(), "can be read by others, mode") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}
