package serve

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/heap"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
)

// served is a server as `inabench serve` runs it, changed before it begins, and where it answers.
func served(t testing.TB, root string, o Options, change ...func(*Server)) (s *Server, address string) {
	t.Helper()
	x, err := history.Open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = New(root, x, o); err != nil {
		t.Fatal(err)
	}
	for _, do := range change {
		do(s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		x.Close()
	})
	return s, l.Addr().String()
}

// samplesOf writes samples of a run, of n bytes or a little more.
func samplesOf(t testing.TB, dir string, n int) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, results.SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i, size := 0, 0; size < n; i++ {
		k, _ := fmt.Fprintf(w, `{"t":%d.25,"source":"switch tor1","metric":"port_tx_bytes","of":"tor1->h%d","value":%d,"unit":"B"}`+"\n", i/100, i%100, 1000*i)
		size += k
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSlowClients: whoever asks slowly, never comes to an end, or does not read what was asked for, keeps
// nobody else waiting.
func TestSlowClients(t *testing.T) {
	root := t.TempDir()
	dir := put(t, root, night("two-jobs", 0))
	samplesOf(t, filepath.Join(root, dir), 4<<20)
	s, address := served(t, root, Options{})
	for i := range 400 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = io.WriteString(conn, []string{
			"",
			"GET / HTTP/1.1\r\nHost: localhost\r\nX-",
			"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
			"GET /runs/" + dir + "/report.html HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET /runs/" + dir + "/files/samples.jsonl HTTP/1.1\r\nHost: localhost\r\n\r\n",
		}[i%5])
		if err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	for _, path := range []string{"/", "/runs/" + dir + "/", "/runs/" + dir + "/files/run.json"} {
		a, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, a.Body)
		if a.Body.Close(); err != nil || a.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", path, a.Status, err)
		}
	}
	t.Logf("three pages beside 400 slow clients take %v", time.Since(begin))
	// However many there are, those that do nothing make room.
	for range maxConns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if a, err := http.Get("http://" + address + "/"); err != nil || a.StatusCode != http.StatusOK {
		t.Errorf("beside too many: %v", err)
	} else {
		a.Body.Close()
	}
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	if n := len(s.conns.of); n > maxConns {
		t.Errorf("%d connections", n)
	}
}

// TestStalled: a client that does not come to the end of its request, or of an answer, loses its connection. Others are
// served meanwhile.
func TestStalled(t *testing.T) {
	t.Parallel() // it waits
	request := func(s *Server) { s.requestTime = time.Second }
	stall := func(s *Server) { s.stallTime = time.Second }
	for name, c := range map[string]struct {
		limit      func(*Server)
		asks, more string
	}{
		"says nothing":          {request, "", ""},
		"never ends its header": {request, "GET / HTTP/1.1\r\nHost: localhost\r\nX-", "x"},
		"reads nothing":         {stall, "GET /runs/DIR/files/large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := put(t, root, night("two-jobs", 0))
			large := filepath.Join(root, dir, "large.bin") // more than the kernel keeps for who does not read
			if err := errors.Join(os.WriteFile(large, nil, 0o666), os.Truncate(large, 64<<20)); err != nil {
				t.Fatal(err)
			}
			s, address := served(t, root, Options{}, c.limit)
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			var adding sync.WaitGroup
			defer adding.Wait()
			defer conn.Close()
			if _, err := io.WriteString(conn, strings.ReplaceAll(c.asks, "DIR", dir)); err != nil {
				t.Fatal(err)
			}
			if c.more != "" {
				adding.Go(func() {
					for {
						if _, err := io.WriteString(conn, c.more); err != nil {
							return
						}
						time.Sleep(50 * time.Millisecond)
					}
				})
			}
			others := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			a, err := others.Get("http://" + address + "/style.css")
			if err != nil {
				t.Fatal(err)
			}
			if a.Body.Close(); a.StatusCode != http.StatusOK {
				t.Errorf("others: %s", a.Status)
			}
			open := func() int {
				s.conns.mu.Lock()
				defer s.conns.mu.Unlock()
				return len(s.conns.of)
			}
			for began := time.Now(); open() > 0; time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > requestTime*2/3 {
					t.Fatal("it has its connection still")
				}
			}
		})
	}
}

// TestBodies: a request that announces a body, and sends none, is answered and ended.
func TestBodies(t *testing.T) {
	t.Parallel() // it waits
	_, address := served(t, t.TempDir(), Options{}, func(s *Server) { s.requestTime = time.Second })
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(2 * requestTime)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Errorf("%.40q, %v", answer, err)
	}
}

// TestReportsShared: however many ask for reports at once, memory is that of one being made and of those
// that are kept.
func TestReportsShared(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	for n := range 4 {
		dir := put(t, root, night("two-jobs", n))
		samplesOf(t, filepath.Join(root, dir), 8<<20)
		dirs = append(dirs, dir)
	}
	_, address := served(t, root, Options{})
	most := heap.Watch()
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			a, err := http.Get("http://" + address + "/runs/" + dirs[i%4] + "/report.html")
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Body.Close()
			if text, err := io.ReadAll(a.Body); err != nil || a.StatusCode != http.StatusOK || !strings.Contains(string(text), "two-jobs") {
				t.Errorf("%s, %v", a.Status, err)
			}
		})
	}
	all.Wait()
	if grown := most() >> 20; grown > 250 {
		t.Errorf("%d MiB for 60 reports of 8 MiB of samples", grown)
	}
}

// TestRendered: a page is made once for all who ask, anew when it is of something else, and no more is kept
// than there is room for. One that cannot be made keeps nobody from asking again.
func TestRendered(t *testing.T) {
	var c rendered
	const mostKept = 8 << 20
	c.init(mostKept)
	var times atomic.Int32
	page := func(size int) func(io.Writer) error {
		return func(w io.Writer) error {
			times.Add(1)
			time.Sleep(time.Millisecond)
			_, err := w.Write(make([]byte, size))
			return err
		}
	}
	ask := func(address, of string, size int) {
		t.Helper()
		if text, err := c.get(t.Context(), address, of, page(size)); err != nil || len(text) != size {
			t.Errorf("%s: %d bytes, %v", address, len(text), err)
		}
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { ask("/a", "1", 10) })
	}
	all.Wait()
	if n := times.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
	ask("/a", "2", 20)
	ask("/a", "2", 20)
	if n := times.Load(); n != 2 {
		t.Errorf("of something else: made %d times", n)
	}
	keeps := func(pages, bytes int) {
		t.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		sum := 0
		for address, p := range c.pages {
			sum += p.size(address)
		}
		if len(c.pages) != pages || c.kept != sum || sum < bytes {
			t.Errorf("%d pages of %d bytes, %d are noted, want %d of %d at least", len(c.pages), sum, c.kept, pages, bytes)
		}
	}
	for i := range 10 {
		ask(fmt.Sprint("/large", i), "", mostKept/5)
	}
	keeps(4, mostKept*4/5)
	ask("/larger than all", "", 2*mostKept)
	keeps(1, 2*mostKept)
	ask("/a", "3", 30)
	keeps(1, 30)
	for i := range 3 * mostKept / (20 << 10) { // as much of their addresses as of themselves
		ask(fmt.Sprint("/", strings.Repeat("long", 2500), i), "", 10<<10)
	}
	if c.mu.Lock(); c.kept > mostKept || len(c.pages) > mostKept/(20<<10) {
		t.Errorf("%d pages are kept, %d bytes", len(c.pages), c.kept)
	}
	c.mu.Unlock()
	for _, do := range []func(io.Writer) error{
		func(io.Writer) error { return errors.New("no") },
		func(io.Writer) error { panic("no") },
	} {
		if _, err := c.get(t.Context(), "/bad", "", do); err == nil || !strings.Contains(err.Error(), "no") {
			t.Error(err)
		}
	}
	ask("/bad", "", 5)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.get(ctx, "/later", "", page(5)); !errors.Is(err, context.Canceled) {
		t.Errorf("who has gone waits: %v", err)
	}
	ask("/later", "", 5)
	// What many ask for who then hang up is not made.
	before := times.Load()
	c.turn <- struct{}{} // something else is being made
	for i := range 100 {
		if _, err := c.get(ctx, fmt.Sprint("/left/", i), "", page(5)); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone waits: %v", err)
		}
	}
	c.mu.Lock()
	for address := range c.pages {
		if strings.HasPrefix(address, "/left/") {
			t.Errorf("%s is kept for nobody", address)
		}
	}
	c.mu.Unlock()
	<-c.turn
	ask("/stays", "", 5)
	for len(c.turn) > 0 {
		time.Sleep(time.Millisecond)
	}
	if n := times.Load() - before; n != 1 {
		t.Errorf("%d pages were made, and one was waited for", n)
	}
}

// TestTLS: with a certificate that it made, it is the one of the fingerprint that answers, and nobody in
// the clear.
func TestTLS(t *testing.T) {
	made, err := NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	const token = "0123456789abcdef"
	_, address := served(t, t.TempDir(), Options{Token: token, Certificate: &made})
	seen := ""
	c := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
			seen = strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(s.PeerCertificates[0].Raw)), " ", ":")
			return s.PeerCertificates[0].VerifyHostname("127.0.0.1")
		}}},
	}
	a, err := c.Get("https://" + address + "/?token=" + token)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if len(a.Cookies()) != 1 || !a.Cookies()[0].Secure {
		t.Errorf("cookies %v", a.Cookies())
	}
	if seen != Fingerprint(made) {
		t.Errorf("certificate %s, want %s", seen, Fingerprint(made))
	}
	if a, err := http.Get("http://" + address + "/"); err == nil {
		if a.Body.Close(); a.StatusCode != http.StatusBadRequest {
			t.Errorf("in the clear: %s", a.Status)
		}
	}
}
