package ssh

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/proof"
)

var seed = flag.Uint64("seed", 0, "seed of random tests; 0: a new one")

func newRand(t testing.TB) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// An environment that has a locale, or none, arrives as it is.
func TestRemoteEnvironment(t *testing.T) {
	line, err := remote("", []string{"sh", "-c", `echo "${LC_ALL-unset}"`})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ env, want string }{{"X=", "unset"}, {"LC_ALL=", ""}, {"LC_ALL=C.UTF-8", "C.UTF-8"}} {
		cmd := exec.Command("/bin/sh", "-c", line)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), tt.env}
		if out, err := cmd.Output(); err != nil || string(out) != tt.want+"\n" {
			t.Errorf("%s: %q, %v", tt.env, out, err)
		}
	}
}

// Whatever bytes an argument is made of, every login shell that is installed here passes
// them on as they are.
func TestRemote(t *testing.T) {
	rng := newRand(t)
	dir := t.TempDir()
	shells, lines := 0, 15
	if !proof.Wanted() {
		lines = 5
	}
	for _, name := range []string{"sh", "dash", "bash", "csh", "fish", "zsh", "ksh", "mksh", "busybox"} {
		shell, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		shells++
		for range lines {
			argv := []string{"printf", "%s\\0"}
			for range rng.IntN(6) {
				var arg []byte
				for range rng.IntN(12) {
					if rng.IntN(2) == 0 {
						arg = append(arg, byte(rng.IntN(255)+1))
					} else {
						const special = "'\"\\$`!%\n\t *?~#;&|<>(){}[]=-0123"
						arg = append(arg, special[rng.IntN(len(special))])
					}
				}
				argv = append(argv, string(arg))
			}
			line, err := remote("", argv)
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"-c", line}
			if name == "busybox" {
				args = append([]string{"sh"}, args...)
			}
			cmd := exec.Command(shell, args...)
			cmd.Dir = dir
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %q: %v", name, line, err)
			}
			want := strings.Join(argv[2:], "\x00") + "\x00"
			if string(out) != want {
				t.Fatalf("%s: %q\nbecame %q", name, want, out)
			}
		}
	}
	if shells == 0 {
		t.Error("no shell was tried")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("a shell made %v", left)
	}
}

func TestRemoteErrors(t *testing.T) {
	for _, argv := range [][]string{nil, {""}, {"-x"}, {"echo", "a\x00b"}, {"a\x00b"}} {
		if line, err := remote("", argv); err == nil || line != "" {
			t.Errorf("%q: %q, %v", argv, line, err)
		}
	}
}

// Of a command's arguments only plain bytes are in the line that is sent, and they are
// all there.
func FuzzRemote(f *testing.F) {
	for _, s := range []string{"", "plain", "%", "a b", "'", "\\0040", "$(x)", "\n", "\xff", "%b", "é"} {
		f.Add("printf", s)
	}
	f.Fuzz(func(t *testing.T, program, arg string) {
		line, err := remote("", []string{program, arg})
		if (err == nil) != (line != "") {
			t.Fatalf("%q, %v", line, err)
		}
		if err != nil {
			return
		}
		rest, ok := strings.CutPrefix(line, "exec /bin/sh -c '"+unpack+"' sh '")
		rest, end := strings.CutSuffix(rest, "'")
		words := strings.Split(rest, "' '")
		if !ok || !end || len(words) != 2 || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%\\' ") != "" {
			t.Fatalf("%q", line)
		}
		for i, word := range words {
			if packed, ok := strings.CutPrefix(word, "%"); ok {
				var b []byte
				for k := 0; k < len(packed); k++ {
					if packed[k] != '\\' {
						b = append(b, packed[k])
						continue
					}
					b = append(b, (packed[k+2]-'0')<<6|(packed[k+3]-'0')<<3|(packed[k+4]-'0'))
					k += 4
				}
				words[i] = string(b)
			}
		}
		if !slices.Equal(words, []string{program, arg}) {
			t.Fatalf("%q reads as %q", line, words)
		}
	})
}

// TestReplaceShort: the end of what a file is to be is told from the end of a connection, by how long it is to be.
func TestReplaceShort(t *testing.T) {
	for _, c := range []struct{ stdin, size, want string }{
		{"new", "3", "new"}, {"ne", "3", "old"}, {"", "3", "old"}, {"", "0", ""}, {"newer", "3", "old"},
	} {
		at := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(at, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", replaceScript, "sh", at, "600", c.size)
		cmd.Stdin = strings.NewReader(c.stdin)
		out, err := cmd.CombinedOutput()
		if whole := len(c.stdin) == len(c.want) && c.want != "old"; whole != (err == nil) {
			t.Errorf("%q of %s bytes: %v: %s", c.stdin, c.size, err, out)
		}
		if got, err := os.ReadFile(at); string(got) != c.want {
			t.Errorf("%q of %s bytes: %q, %v", c.stdin, c.size, got, err)
		}
		if names, err := os.ReadDir(filepath.Dir(at)); len(names) != 1 {
			t.Errorf("%q of %s bytes leaves %v, %v", c.stdin, c.size, names, err)
		}
	}
}
