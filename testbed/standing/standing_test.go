package standing_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/standing"
)

// rack is what a keeper of these tests keeps: an echo on every host, and commands that say what they are.
type rack struct {
	t       *testing.T
	began   chan struct{}
	echo    string
	stopped chan error
}

func newRack(t *testing.T) *rack {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				fmt.Fprint(c, "banner ") // comes with the keeper's answer, or after it
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return &rack{t: t, began: make(chan struct{}, 9), echo: l.Addr().String(), stopped: make(chan error, 1)}
}

func (r *rack) Info() standing.Info {
	return standing.Info{Experiment: "an experiment", Factor: 1000, Hosts: []standing.Host{{Name: "h1", Address: "10.0.0.1:22"}}}
}

func (r *rack) Dial(ctx context.Context, host string) (net.Conn, error) {
	if host != "h1" {
		return nil, fmt.Errorf("no host %q", host)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", r.echo)
}

func (r *rack) Run(ctx context.Context, run standing.Run, stdout, stderr *os.File) int {
	fmt.Fprintln(stdout, "in", run.Dir, "with", run.Environ)
	fmt.Fprintln(stderr, run.Args)
	r.began <- struct{}{}
	if run.Args[1] == "wait" {
		<-ctx.Done()
		return 130
	}
	return 7
}

// keep keeps a rack until the test ends, or somebody takes it down.
func keep(t *testing.T, name string, lasts time.Duration) *rack {
	t.Helper()
	k, err := standing.Keep(name)
	if err != nil {
		t.Fatal(err)
	}
	r := newRack(t)
	ctx, cancel := context.WithCancel(t.Context())
	if err := k.Leave(standing.Config, []byte("Host h1\n")); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := k.Serve(ctx, r, lasts)
		k.Close(nil)
		r.stopped <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-r.stopped; err != nil {
			t.Error(err)
		}
	})
	return r
}

// home is a cache directory of the test's own.
func home(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "inabench", "up", machine)
}

func TestKept(t *testing.T) {
	dir := home(t)
	if _, err := standing.Find(t.Context(), ""); !errors.Is(err, standing.ErrNone) {
		t.Errorf("none: %v", err)
	}
	keep(t, "one", time.Hour)
	e, err := standing.Find(t.Context(), "")
	if err != nil || e.Name != "one" {
		t.Fatal(e, err)
	}
	info, err := e.Info(t.Context())
	if err != nil || info.Name != "one" || info.Factor != 1000 || info.PID != os.Getpid() || time.Until(info.Ends) < 50*time.Minute {
		t.Errorf("%+v, %v", info, err)
	}
	if path, err := e.Path(standing.Config); err != nil || path != filepath.Join(dir, "one", "ssh_config") {
		t.Error(path, err)
	}
	if _, err := standing.Keep("one"); !errors.Is(err, standing.ErrTaken) {
		t.Errorf("the same name again: %v", err)
	}
	keep(t, "two", time.Hour)
	if _, err := standing.Find(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "one, two") {
		t.Errorf("which of two: %v", err)
	}
	if _, err := standing.Find(t.Context(), "three"); !errors.Is(err, standing.ErrNone) || !strings.Contains(err.Error(), "one, two") {
		t.Errorf("another: %v", err)
	}
}

func TestDial(t *testing.T) {
	home(t)
	keep(t, "rack", time.Hour)
	e := standing.Emulation{Name: "rack"}
	if _, err := e.Dial(t.Context(), "h9"); err == nil || !strings.Contains(err.Error(), `no host "h9"`) {
		t.Errorf("h9: %v", err)
	}
	c, err := e.Dial(t.Context(), "h1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := net.SplitHostPort(c.RemoteAddr().String()); err != nil { // known_hosts want that
		t.Error(err)
	}
	fmt.Fprint(c, strings.Repeat("echo ", 1e5))
	c.(interface{ CloseWrite() error }).CloseWrite()
	out, err := os.Create(filepath.Join(t.TempDir(), "out")) // io.Copy has ways of its own from a socket to a file
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if n, err := io.Copy(out, c); err != nil || n != 5e5+int64(len("banner ")) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestRun(t *testing.T) {
	home(t)
	r := keep(t, "rack", time.Hour)
	e := standing.Emulation{Name: "rack"}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	run := standing.Run{Args: []string{"inabench", "run"}, Dir: "/here", Environ: []string{"A=b"}, What: "exp.toml"}
	if code, err := e.Run(t.Context(), run, out, out); code != 7 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
	if text, _ := os.ReadFile(out.Name()); string(text) != "in /here with [A=b]\n[inabench run]\n" {
		t.Errorf("%q", text)
	}
	<-r.began

	// One at a time, and an interruption is waited for.
	run.Args[1] = "wait"
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		code, err := e.Run(ctx, run, out, out)
		if err != nil {
			t.Error(err)
		}
		ended <- code
	}()
	<-r.began
	if info, err := e.Info(t.Context()); err != nil || info.Running != "exp.toml" {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := e.Run(t.Context(), run, out, out); !errors.Is(err, standing.ErrBusy) || !strings.Contains(err.Error(), "exp.toml") {
		t.Errorf("a second one: %v", err)
	}
	interrupt()
	if code := <-ended; code != 130 {
		t.Errorf("interrupted: %d", code)
	}
}

// As many connections to hosts as are kept are in the way of one more, and of nothing else.
func TestManyDials(t *testing.T) {
	home(t)
	keep(t, "rack", time.Hour)
	e := named("rack")
	n := 0
	for ; n < 1000; n++ {
		c, err := e.Dial(t.Context(), "h1")
		if err != nil {
			if !strings.Contains(err.Error(), "as many as are kept") {
				t.Error(err)
			}
			break
		}
		defer c.Close()
	}
	if n == 0 || n == 1000 {
		t.Fatalf("%d connections at once", n)
	}
	if _, err := e.Info(t.Context()); err != nil {
		t.Errorf("after %d: %v", n, err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if code, err := e.Run(t.Context(), standing.Run{Args: []string{"inabench", "run"}}, null, null); code != 7 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

// Time that is over ends it, but not what runs.
func TestOver(t *testing.T) {
	home(t)
	r := keep(t, "rack", 2*time.Second)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		null, _ := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		defer null.Close()
		if code, err := named("rack").Run(ctx, standing.Run{Args: []string{"inabench", "wait"}}, null, null); code != 130 || err != nil {
			t.Error(code, err)
		}
	}()
	select {
	case <-r.began:
	case <-ended:
		t.Fatal("it did not run")
	}
	select {
	case err := <-r.stopped:
		r.stopped <- err
		t.Error("it ended while a command ran")
	case <-time.After(2500 * time.Millisecond):
	}
	interrupt()
	<-ended
	r.stopped <- <-r.stopped
	if all, err := standing.All(t.Context()); len(all) > 0 || err != nil {
		t.Error(all, err)
	}
}

// One that does not answer is in nobody's way, and is taken down all the same.
func TestHung(t *testing.T) {
	dir := home(t)
	keep(t, "well", time.Hour)
	hung := exec.Command(os.Args[0])
	hung.Env = append(os.Environ(), hangs+"=hung")
	said, err := hung.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := hung.Start(); err != nil {
		t.Fatal(err)
	}
	defer hung.Process.Kill()
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	go hung.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if e, err := standing.Find(ctx, "well"); err != nil || e.Name != "well" {
		t.Error(e, err)
	}
	if _, err := named("well").Info(ctx); err != nil {
		t.Error(err)
	}
	if err := named("hung").Down(t.Context(), 200*time.Millisecond); !errors.Is(err, standing.ErrKilled) {
		t.Errorf("down: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "hung.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func named(name string) standing.Emulation { return standing.Emulation{Name: name} }

// hangs is the environment of a process that keeps a name, and never answers.
const hangs = "STANDING_TEST_HANGS"

func TestMain(m *testing.M) {
	if name := os.Getenv(hangs); name != "" {
		if _, err := standing.Keep(name); err != nil {
			panic(err)
		}
		fmt.Println("kept")
		time.Sleep(time.Minute)
	}
	os.Exit(m.Run())
}

// What a keeper that was killed leaves is cleared away, and is in nobody's way.
func TestKilled(t *testing.T) {
	dir := home(t)
	if err := os.MkdirAll(filepath.Join(dir, "rack"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "rack.sock")})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := os.WriteFile(filepath.Join(dir, "rack", standing.KeyFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := standing.All(t.Context()); len(all) > 0 || err != nil {
		t.Error(all, err)
	}
	for _, left := range []string{"rack.sock", "rack"} {
		if _, err := os.Lstat(filepath.Join(dir, left)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", left, err)
		}
	}
	keep(t, "rack", time.Hour)
}

// Whoever comes with nonsense is answered with an error in time, and nobody else waits for that.
func TestNonsense(t *testing.T) {
	dir := home(t)
	keep(t, "rack", time.Hour)
	for _, text := range []string{"", "\n", "{}\n", "nonsense\n", `{"run": {}}` + "\n", `{"dial": "` + strings.Repeat("h", 1000) + `"}` + "\n", strings.Repeat("x", 64<<20)} {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, "rack.sock"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		go io.WriteString(c, text)
		if text == "" {
			defer c.Close() // says nothing, and waits
			continue
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) || err == nil && !strings.Contains(line, `"error"`) {
			t.Errorf("%.20q: %q, %v", text, line, err)
		}
		c.Close()
	}
	if _, err := (standing.Emulation{Name: "rack"}).Info(t.Context()); err != nil {
		t.Error(err)
	}
}

// A directory that others can enter is none.
func TestPrivate(t *testing.T) {
	dir := home(t)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := standing.Keep("rack"); err == nil || !strings.Contains(err.Error(), "others may enter it") {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"my-rack": true, "a.b_C9": true, "": false, ".x": false, "-x": false, "a/b": false, "a b": false, "ä": false, strings.Repeat("x", 61): false} {
		if err := standing.CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
