package ssh_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// No string is ever interpreted by a shell on a host, whatever the user's login shell is
// and through whichever method the string comes.
func TestNothingIsInterpreted(t *testing.T) {
	t.Parallel() // it waits
	const sftpServer = "/usr/lib/openssh/sftp-server"
	_, err := os.Stat(sftpServer)
	testbedtest.Require(t, "openssh", err)
	for _, shell := range []string{"bash", "dash", "csh", "fish", "zsh"} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			testbedtest.Require(t, shell, err)
			h := newOpenSSH(t, `ForceCommand mkdir -p DIR/home && cd DIR/home && exec `+path+` -c "$SSH_ORIGINAL_COMMAND"`, "Subsystem sftp "+sftpServer)
			c, err := ssh.Dial(t.Context(), h.Target)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx := t.Context()
			print := []string{"printf", `<%s>`}
			for _, args := range [][]string{nasty, {strings.Join(nasty, "")}, {"\n"}} {
				want := "<" + strings.Join(args, "><") + ">"
				out, err := c.Run(ctx, slices.Concat(print, args), nil)
				if err != nil || string(out.Stdout) != want || len(out.Stderr) > 0 {
					t.Errorf("Run: %q\nbecame %q, %q, %v", want, out.Stdout, out.Stderr, err)
				}
				p, err := c.Start(ctx, slices.Concat(print, args), nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(p.Stdout); err != nil || string(got) != want {
					t.Errorf("Start: %q\nbecame %q, %v", want, got, err)
				}
				var shown, diag bytes.Buffer
				if err := c.Interactive(ctx, slices.Concat(print, args), strings.NewReader(""), &shown, &diag); err != nil || shown.String() != want || diag.Len() > 0 {
					t.Errorf("Interactive: %q\nbecame %q, %q, %v", want, shown.String(), diag.String(), err)
				}
			}
			var failed *hosts.RunError
			for _, program := range []string{"$(touch canary)", "; touch canary", "a b", "'", "A=b", "%s", "\n"} {
				if _, err := c.Run(ctx, []string{"./" + program}, nil); !errors.As(err, &failed) || failed.Exit < 126 {
					t.Errorf("program %q: %v", program, err)
				}
			}
			script := "printf %s \"$0\" \"$@\"; exit 7 # '\"`$(touch canary)\n"
			if out, err := c.Run(ctx, append([]string{"/bin/sh", "-c", script}, nasty...), nil); !errors.As(err, &failed) || failed.Exit != 7 || string(out.Stdout) != strings.Join(nasty, "") {
				t.Errorf("script: %q, %v", out.Stdout, err)
			}
			if _, err := c.Run(ctx, []string{"sh", "-c", "echo $$; cat", "$(touch canary)"}, strings.NewReader("`touch canary`\n; touch canary\n")); err != nil {
				t.Error(err)
			}
			p, err := c.Start(ctx, []string{"sh", "-c", "echo up; exec sleep 1000"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(p.Stdout, make([]byte, len("up\n"))); err != nil { // what has not begun cannot be killed
				t.Fatal(err)
			}
			if err := p.Kill(ctx); err != nil {
				t.Error(err)
			}
			if err := p.Wait(); !errors.As(err, &failed) || failed.Signal != "KILL" {
				t.Errorf("killed: %v", err)
			}

			local := writeFile(t, "$(touch canary) '", "text")
			for i, name := range []string{"'", "\n", "$(touch canary)", "-n", "\xff\xfe", strings.Join(nasty, "")[:200]} {
				name = fmt.Sprintf("files %d/", i) + strings.ReplaceAll(name, "/", "_")
				if err := c.Upload(ctx, local, name, 0o600); err != nil {
					t.Errorf("Upload: %v", err)
				}
				if got, err := c.ReadFile(ctx, name); err != nil || string(got) != "text" {
					t.Errorf("ReadFile: %q, %v", got, err)
				}
				if info, err := c.Stat(ctx, name); err != nil || info.Size() != 4 {
					t.Errorf("Stat: %v, %v", info, err)
				}
				if size, _, err := c.Sum(ctx, name); err != nil || size != 4 {
					t.Errorf("Sum: %d, %v", size, err)
				}
				if err := c.Link(ctx, name, name+"2"); err != nil {
					t.Errorf("Link: %v", err)
				}
				if _, err := c.Create(ctx, name+"3", []byte(name)); err != nil {
					t.Errorf("Create: %v", err)
				}
				if _, err := c.Rewrite(ctx, name+"3", []byte(name)); err != nil {
					t.Errorf("Rewrite: %v", err)
				}
				if err := c.WriteFile(ctx, name+"4", nil, 0o600); err != nil {
					t.Errorf("WriteFile: %v", err)
				}
				if names, err := c.ReadDir(ctx, filepath.Dir(name)); err != nil || len(names) != 4 || !slices.Contains(names, filepath.Base(name)) {
					t.Errorf("ReadDir: %q, %v", names, err)
				}
				for _, suffix := range []string{"", "2", "3", "4"} {
					if err := c.Remove(ctx, name+suffix, false); err != nil {
						t.Errorf("Remove: %v", err)
					}
				}
			}
			if at, err := hosts.EnsureFile(ctx, []hosts.Host{c}, local); err != nil {
				t.Error(err)
			} else if got, err := c.ReadFile(ctx, at); err != nil || string(got) != "text" {
				t.Errorf("EnsureFile: %q, %v", got, err)
			}
			filepath.WalkDir(h.dir, func(path string, _ os.DirEntry, _ error) error {
				if strings.Contains(filepath.Base(path), "canary") && filepath.Base(path) != filepath.Base(local) {
					t.Errorf("a shell made %s", path)
				}
				return nil
			})
		})
	}
}

// What a login shell says before the command, as .bashrc may, is no output of it.
func TestGreeting(t *testing.T) {
	t.Parallel() // it waits
	for _, greeting := range []string{"Welcome", "inabench-outpu", "inabench-group x", strings.Repeat("x", 200_000)} {
		h := newOpenSSH(t, `ForceCommand cat DIR/greeting; cat DIR/greeting >&2; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"`)
		write(t, h.dir+"/greeting", greeting) // without an end of line
		c, err := ssh.Dial(t.Context(), h.Target)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Run(t.Context(), []string{"sh", "-c", "echo out; echo why >&2"}, nil)
		if err != nil || string(out.Stdout) != "out\n" || !strings.HasSuffix(string(out.Stderr), "why\n") {
			t.Errorf("Run: %q, %.50q, %v", out.Stdout, out.Stderr, err)
		}
		p, err := c.Start(t.Context(), []string{"cat"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 3)
		io.WriteString(p.Stdin, "abcdef")
		for _, want := range []string{"abc", "def"} {
			if _, err := io.ReadFull(p.Stdout, line); err != nil || string(line) != want {
				t.Errorf("Start: %q, %v", line, err)
			}
		}
		if err := p.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if rest, err := io.ReadAll(p.Stdout); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		c.Close()
	}
}

// What root shall do goes through sudo where that is allowed, also to be killed.
func TestSudo(t *testing.T) {
	t.Parallel() // it waits
	_, err := exec.LookPath("sudo")
	testbedtest.Require(t, "sudo", err)
	if os.Geteuid() != 0 {
		testbedtest.Require(t, "root", errors.New("only root can be host to another user"))
	}
	for _, defaults := range []string{"use_pty", "!use_pty"} {
		t.Run(defaults, func(t *testing.T) {
			dir := t.TempDir()
			etc := filepath.Join(dir, "etc")
			if err := errors.Join(os.MkdirAll(etc+"/sudoers.d", 0o755), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
				t.Fatal(err)
			}
			passwd := "sshd:*:65534:65534::/:/bin/false\n"
			for i, name := range []string{"root", "free", "asked"} {
				home := filepath.Join(dir, name)
				if err := errors.Join(os.Mkdir(home, 0o700), os.Chown(home, 1000*i, 1000*i)); err != nil {
					t.Fatal(err)
				}
				passwd += fmt.Sprintf("%s:*:%d:%d::%s:/bin/sh\n", name, 1000*i, 1000*i, home)
			}
			write(t, etc+"/passwd", passwd)
			write(t, etc+"/sudoers.d/test", "Defaults "+defaults+"\nfree ALL=(root) NOPASSWD: ALL\nasked ALL=(root) ALL\n")
			if err := errors.Join(os.Chmod(etc+"/passwd", 0o644), os.Chmod(etc+"/sudoers.d/test", 0o440)); err != nil {
				t.Fatal(err)
			}
			h := newOpenSSHIn(t, dir)
			if err := errors.Join(os.Chmod(h.dir, 0o755), os.Chmod(h.dir+"/user.pub", 0o644)); err != nil {
				t.Fatal(err)
			}
			login := func(user string, sudo bool) *ssh.Client {
				t.Helper()
				x := h.Target
				x.User, x.Sudo = user, sudo
				c, err := ssh.Dial(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			}
			ctx := t.Context()
			free := login("free", true)
			for name, c := range map[string]*ssh.Client{"sudo": free, "root": login("root", false)} {
				out, err := c.RunRoot(ctx, append([]string{"sh", "-c", `id -u; cat; printf '<%s>' "$@"; echo why >&2; exit 3`, "sh"}, nasty...), strings.NewReader("in\n"))
				var failed *hosts.RunError
				if want := "0\nin\n<" + strings.Join(nasty, "><") + ">"; string(out.Stdout) != want || !errors.As(err, &failed) || failed.Exit != 3 || failed.Stderr != "why" || failed.Argv[0] != "sh" {
					t.Errorf("%s: %q, %v", name, out.Stdout, err)
				}
			}
			if out, err := free.Run(ctx, []string{"id", "-u"}, nil); err != nil || string(out.Stdout) != "1000\n" {
				t.Errorf("without sudo: %q, %v", out.Stdout, err)
			}

			file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
			write(t, file, "old")
			if err := errors.Join(os.Chown(file, 65534, 65534), os.Chmod(file, 0o640), os.Symlink("file", link)); err != nil {
				t.Fatal(err)
			}
			attributes := unix.Setxattr(file, "user.why", []byte("because"), 0) == nil
			if err := free.Replace(ctx, link, []byte("new\x00'$1"), 0o640, true); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if sys := st.Sys().(*syscall.Stat_t); sys.Uid != 65534 || sys.Gid != 65534 || st.Mode() != 0o640 || read(t, file) != "new\x00'$1" {
				t.Errorf("replaced: %d:%d, %v, %q", sys.Uid, sys.Gid, st.Mode(), read(t, file))
			}
			if to, err := os.Readlink(link); err != nil || to != "file" {
				t.Errorf("the link leads to %q, %v", to, err)
			}
			value := make([]byte, 20)
			if n, err := unix.Getxattr(file, "user.why", value); attributes && (err != nil || string(value[:n]) != "because") {
				t.Errorf("its attribute is %q, %v", value, err)
			}
			kept := filepath.Join(dir, "root's", "file") // which the user could not remove
			if err := os.Mkdir(filepath.Dir(kept), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, kept, "made by root")
			if err := free.Remove(ctx, kept, false); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("removed by the user: %v", err)
			}
			if err := errors.Join(free.Remove(ctx, kept, true), free.Remove(ctx, kept, true)); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("removed by root: %v", err)
			}

			l := newLifeline(t)
			if err := errors.Join(os.Chmod(filepath.Dir(l.path), 0o755), os.Chmod(filepath.Dir(filepath.Dir(l.path)), 0o755)); err != nil {
				t.Fatal(err)
			}
			p, err := free.StartRoot(ctx, l.family(), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			l.up(t)
			if err := p.Kill(ctx); err != nil {
				t.Error(err)
			}
			l.gone(t)
			if err := p.Wait(); err == nil {
				t.Error("ended as if all were well")
			}

			var e *hosts.Error
			asked := login("asked", true)
			if _, err := asked.RunRoot(ctx, []string{"id"}, nil); !errors.Is(err, hosts.ErrNotRoot) || !strings.Contains(err.Error(), "password is required") ||
				!errors.As(err, &e) || !strings.Contains(e.Hint, "asked ALL=(root) NOPASSWD: ALL") {
				t.Errorf("%v; %+v", err, e)
			}
			if _, err := login("free", false).RunRoot(ctx, []string{"id"}, nil); !errors.Is(err, hosts.ErrNotRoot) || !errors.As(err, &e) || !strings.Contains(e.Hint, "sudo = true") {
				t.Errorf("%v; %+v", err, e)
			}
		})
	}
}
