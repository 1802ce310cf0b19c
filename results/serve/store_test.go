package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
)

// night is the record of the n-th run of an experiment. From its 20th on, A is 5 % slower.
func night(experiment string, n int) *results.Record {
	start := time.Date(2026, 1, 1, 2, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Hour)
	rate := 20e6 * (1 + 0.001*float64(n*7%11-5)/5)
	if n >= 20 {
		rate *= 0.95
	}
	figure := func(kind results.Kind, predictor string, v float64) results.Figure {
		return results.Figure{Metric: "goodput", Of: "A", Kind: kind, Predictor: predictor, Value: v, Lo: v, Hi: v, N: 20, Unit: "bit/s"}
	}
	return &results.Record{
		Schema: results.Schema, ID: fmt.Sprintf("01M44WM480Q03EQ2QA6HA%05d", n), Name: experiment, Title: "Two jobs <one> switch",
		Started: start, Finished: start.Add(time.Minute), Driver: []string{"netns", "sim"}[n%2], Switch: "soft", Kind: results.Measured,
		Scale: results.Scale{Mode: "none", Factor: 1}, Tool: "v0.1.0", Hosts: []results.HostFacts{{Host: "ci", Kernel: "6.1.0", CPUs: 2, CPU: "Xeon"}},
		Points: []results.Point{{Phases: []results.Phase{{Jobs: []string{"A"}, Figures: []results.Figure{
			figure(results.Measured, "", rate), figure(results.Predicted, "occupancy", 20e6),
		}}}}},
		Outcome: []results.Outcome{results.Pass, results.Pass, results.Fail, results.Inconclusive}[n%4],
		Reasons: []string{"a reason"},
		Checks:  []results.Check{{Expect: "goodput", Metric: "goodput", Gate: true, Outcome: results.Pass}},
	}
}

// put writes a run that has ended, as quickly as files can be written.
func put(t testing.TB, root string, rec *results.Record) (dir string) {
	t.Helper()
	dir = rec.Started.UTC().Format("2006-01-02T15-04-05Z") + "-" + rec.ID
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, dir, results.RecordFile), text, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// start serves the runs in root, as quickly up to date as can be.
func start(t testing.TB, root, token string) (*Server, *httptest.Server) {
	t.Helper()
	return startWith(t, root, Options{Token: token, Interval: 20 * time.Millisecond})
}

// startWith serves the runs in root.
func startWith(t testing.TB, root string, o Options) (*Server, *httptest.Server) {
	t.Helper()
	x, err := history.Open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(root, x, o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		s.stop()
		h.Close()
		x.Close()
	})
	return s, h
}

// get is what a request is answered with.
func get(t testing.TB, h *httptest.Server, path string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a, string(text)
}

func TestPages(t *testing.T) {
	root := t.TempDir()
	dir := put(t, root, night("two-jobs", 0))
	last := ""
	for n := 1; n < 30; n++ {
		last = put(t, root, night("two-jobs", 2*n)) // of one driver
	}
	if err := os.WriteFile(filepath.Join(root, dir, "jobs.csv.gz"), []byte("\x1f\x8b"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, dir, "pcap"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"pcap/tor1.pcap": "packets", ".hidden": "no", "page.html": "<script>alert(1)</script>"} {
		if err := os.WriteFile(filepath.Join(root, dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(root, dir, "link")); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(root, "2026-11-20T00-00-00Z-BROKEN")
	if err := os.MkdirAll(broken, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, results.RecordFile), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(root, "kept"), os.DirFS(filepath.Join(root, last))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, dir, results.SamplesFile), []byte("{\"t\":1,\"sou\n{\"t\":1}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, h := start(t, root, "")
	for _, c := range []struct {
		path string
		code int
		want string // in the answer
	}{
		{"/", 200, ">31 runs, 1 duplicate<"},
		{"/", 200, "unreadable"},
		{"/runs/" + dir + "/", 200, "Two jobs &lt;one&gt; switch"},
		{"/runs/" + dir + "/", 200, "pcap/tor1.pcap"},
		{"/runs/" + dir + "/", 200, "/history?experiment=two-jobs&amp;metric=goodput"},
		{"/runs/2026-11-20T00-00-00Z-BROKEN/", 200, "unreadable"},
		{"/runs/" + dir + "/report.html", 200, "two-jobs"},
		{"/runs/" + dir + "/report.html", 200, "samples.jsonl: line 1 is damaged"},
		{"/runs/" + dir + "/files/run.json", 200, `"goodput"`},
		{"/runs/" + dir + "/files/jobs.csv.gz", 200, "\x1f\x8b"},
		{"/runs/" + dir + "/files/pcap/tor1.pcap", 200, "packets"},
		{"/history", 200, ">goodput<"},
		{"/history?metric=goodput", 200, "lower from"},
		{"/history?metric=goodput", 200, "goodput of A on netns, two-jobs"},
		{"/history?metric=nothing", 200, "No run has such a figure"},
		{"/history.json?metric=goodput", 200, `"text": "5.0 % lower"`},
		{"/history.json", 400, "which metric"},
		{"/style.css", 200, "prefers-color-scheme"},
		{"/app.js", 200, "EventSource"},
		{"/icon.svg", 200, "<svg"},
		{"/favicon.ico", 204, ""},
		{"/runs/" + dir + "/files/link", 404, "not found"},
		{"/runs/" + dir + "/files/.hidden", 404, "not found"},
		{"/runs/" + dir + "/files/pcap", 404, "not found"},
		{"/runs/" + dir + "/files/nothing", 404, "not found"},
		{"/runs/" + dir + "/files/..%2f.history.db", 404, "not found"},
		{"/runs/nothing/", 404, "not found"},
		{"/runs/..%2f/", 404, "not found"},
		{"/runs/.history.db/files/x", 404, "not found"},
		{"/elsewhere", 404, "not found"},
	} {
		a, text := get(t, h, c.path, nil)
		if a.StatusCode != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d, want %d with %q:\n%.600s", c.path, a.StatusCode, c.code, c.want, text)
		}
	}
	a, _ := get(t, h, "/runs/"+dir+"/files/page.html", nil)
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename=" + dir + "-page.html",
		"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("a page that a run wrote: %s is %q, want %q", name, got, want)
		}
	}
}

func TestGuard(t *testing.T) {
	root := t.TempDir()
	dir := put(t, root, night("two-jobs", 0))
	const token = "0123456789abcdef"
	_, open := start(t, root, "")
	s, closed := start(t, root, token)
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	bearer := func(word string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+word) }
	}
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: name, Value: value}) }
	}
	for _, c := range []struct {
		what   string
		h      *httptest.Server
		path   string
		change func(*http.Request)
		code   int
	}{
		{"itself", open, "/", nil, 200},
		{"localhost", open, "/", host("localhost"), 200},
		{"localhost by another port", open, "/", host("LocalHost:9000"), 200},
		{"IPv6", open, "/", host("[::1]:8080"), 200},
		{"another name for this machine", open, "/", host("127.0.0.2"), 200},
		{"a name that was bound anew", open, "/", host("evil.example"), 403},
		{"one that begins well", open, "/", host("localhost.evil.example:8080"), 403},
		{"one that looks like an address", open, "/", host("127.0.0.1.evil.example"), 403},
		{"no name", open, "/", host(" "), 403},
		{"an address of elsewhere", open, "/", host("192.0.2.1"), 403},
		{"events for others", open, "/events", host("evil.example"), 403},
		{"files for others", open, "/runs/" + dir + "/files/run.json", host("evil.example"), 403},
		{"writing", open, "/", func(r *http.Request) { r.Method = http.MethodPost }, 405},
		{"removing", open, "/runs/" + dir + "/", func(r *http.Request) { r.Method = http.MethodDelete }, 405},
		{"a head", open, "/", func(r *http.Request) { r.Method = http.MethodHead }, 200},
		{"no token", closed, "/", nil, 401},
		{"no token for what is the same for all", closed, "/style.css", nil, 401},
		{"no token for files", closed, "/runs/" + dir + "/files/run.json", nil, 401},
		{"no token for events", closed, "/events", nil, 401},
		{"another token", closed, "/?token=0123456789abcdee", nil, 401},
		{"a part of it", closed, "/?token=0123456789abcde", nil, 401},
		{"the token", closed, "/?token=" + token, nil, 303},
		{"the token, for writing", closed, "/?token=" + token, func(r *http.Request) { r.Method = http.MethodPut }, 405},
		{"bearer", closed, "/", bearer(token), 200},
		{"another bearer", closed, "/", bearer(token + "x"), 401},
		{"cookie", closed, "/", with(s.cookie(), s.ticket()), 200},
		{"the token as cookie", closed, "/", with(s.cookie(), token), 401},
		{"an empty cookie", closed, "/", with(s.cookie(), ""), 401},
		{"by whatever name, with it", closed, "/", func(r *http.Request) { host("lab.example:8080")(r); bearer(token)(r) }, 200},
	} {
		a, text := get(t, c.h, c.path, c.change)
		if a.StatusCode != c.code {
			t.Errorf("%s: %d, want %d: %.100s", c.what, a.StatusCode, c.code, text)
		}
		if !strings.Contains(a.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: no policy", c.what)
		}
	}
	a, _ := get(t, closed, "//evil.example/history?metric=x&token="+token, nil)
	if to := a.Header.Get("Location"); to != "/evil.example/history?metric=x" {
		t.Errorf("the token leads to %q", to)
	}
	if again, _ := get(t, closed, "/?token="+token, with(s.cookie(), s.ticket())); again.StatusCode != 303 || again.Header.Get("Location") != "/" {
		t.Errorf("with the cookie too, the token stays in the address: %s", again.Status)
	}
	c := a.Cookies()
	if len(c) != 1 || !c[0].HttpOnly || strings.Contains(c[0].Value, token) {
		t.Errorf("cookies %v", c)
	}
	if _, err := New(root, nil, Options{Token: "short"}); err == nil {
		t.Error("a short token is taken")
	}
}

// stream reads events of a page.
type stream struct {
	t    testing.TB
	body io.ReadCloser
	in   *bufio.Scanner
	id   string
}

func listen(t testing.TB, h *httptest.Server, query string) *stream {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/events?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Body.Close() })
	if got := a.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("events are %s, %s", got, a.Status)
	}
	return &stream{t: t, body: a.Body, in: bufio.NewScanner(a.Body)}
}

// next is the next event; its name is empty at the end of the stream.
func (s *stream) next() (name string, c change) {
	s.t.Helper()
	for s.in.Scan() {
		key, value, _ := strings.Cut(s.in.Text(), ": ")
		switch key {
		case "event":
			name = value
		case "id":
			s.id = value
		case "data":
			if name == "runs" {
				if err := json.Unmarshal([]byte(value), &c); err != nil {
					s.t.Fatalf("event %s: %v", value, err)
				}
			}
		case "":
			if name != "" {
				return name, c
			}
		}
	}
	return "", c
}

// until waits for a run's row that has a text.
func (s *stream) until(dir, text string) changedRow {
	s.t.Helper()
	for {
		name, c := s.next()
		if name != "runs" {
			s.t.Fatalf("%q in place of %q of %s", name, text, dir)
		}
		for _, r := range c.Rows {
			if r.Dir == dir && strings.Contains(r.HTML, text) {
				return r
			}
		}
	}
}

func versionOf(t testing.TB, h *httptest.Server) string {
	t.Helper()
	_, text := get(t, h, "/", nil)
	_, rest, _ := strings.Cut(text, `data-version="`)
	version, _, _ := strings.Cut(rest, `"`)
	return version
}

// TestEvents follows a run from its beginning to its end, and until it is removed.
func TestEvents(t *testing.T) {
	root := t.TempDir()
	old := put(t, root, night("two-jobs", 0))
	_, h := start(t, root, "")
	version := versionOf(t, h)
	events := listen(t, h, "since="+version)
	rec := &results.Record{Name: "waterfill", Driver: "netns", Planned: 3, Topology: results.Topology{Links: []results.Link{{Name: "h1->tor1", Rate: 1e6}}}}
	run, err := results.Create(root, rec)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Base(run.Path)
	if r := events.until(dir, "0 of 3 points"); r.Verdict != running || !strings.Contains(r.HTML, `data-driver="netns"`) {
		t.Errorf("began as %+v", r)
	}
	for i := range 3 {
		if err := run.Append(results.Sample{T: float64(i), Source: "host h1", Metric: "nic_tx_bytes", Of: "h1->tor1", Value: 50e3 * float64(i), Unit: "B"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := run.Flush(); err != nil {
		t.Fatal(err)
	}
	events.until(dir, " of samples")
	_, page := get(t, h, "/runs/"+dir+"/", nil)
	for _, want := range []string{"running", "0 of 3 points", "400 kbit/s", "40.0 %", "2.00 s after"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of a run that goes on has no %q:\n%s", want, page)
		}
	}
	rec.Points = night("", 0).Points
	if err := run.Save(rec); err != nil {
		t.Fatal(err)
	}
	events.until(dir, "1 of 3 points")
	only := listen(t, h, "since="+version+"&run="+old) // nothing has become of that one
	rec.Outcome, rec.Finished = results.Fail, time.Now()
	if err := run.Save(rec); err != nil {
		t.Fatal(err)
	}
	if r := events.until(dir, "fail"); r.Verdict != "fail" {
		t.Errorf("ended as %+v", r)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	again := listen(t, h, "since="+version) // a page that was away
	again.until(dir, "fail")
	if err := os.RemoveAll(run.Path); err != nil {
		t.Fatal(err)
	}
	for name, c := events.next(); len(c.Gone) == 0; name, c = events.next() {
		if name == "" {
			t.Fatal("nobody said that the run is gone")
		}
	}
	if err := os.RemoveAll(filepath.Join(root, old)); err != nil {
		t.Fatal(err)
	}
	if _, c := only.next(); len(c.Rows) != 0 || len(c.Gone) != 1 || c.Gone[0] != old {
		t.Errorf("a page of one run hears of %+v", c)
	}
	if name, _ := listen(t, h, "since=another.3").next(); name != "reload" {
		t.Errorf("a page of another server: %q", name)
	}
}

// TestCutOff: a run whose process is gone without an end.
func TestCutOff(t *testing.T) {
	root := t.TempDir()
	run, err := results.Create(root, &results.Record{Name: "waterfill", Driver: "netns"})
	if err != nil {
		t.Fatal(err)
	}
	_, h := start(t, root, "")
	events := listen(t, h, "since="+versionOf(t, h))
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if r := events.until(filepath.Base(run.Path), "cut off"); r.Verdict != cutOff {
		t.Errorf("it is %+v", r)
	}
}

// TestEnd: pages that are open do not keep the server from ending.
func TestEnd(t *testing.T) {
	root := t.TempDir()
	x, err := history.Open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	s, err := New(root, x, Options{Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(nil) // for its listener
	defer h.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, h.Listener) }()
	h.URL = "http://" + h.Listener.Addr().String()
	events := listen(t, h, "since="+versionOf(t, h))
	cancel()
	if name, _ := events.next(); name != "bye" {
		t.Errorf("the page heard %q", name)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.Serve(t.Context(), everywhere{h.Listener}); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("served to everybody without a token: %v", err)
	}
}

// everywhere is a listener that others can connect to.
type everywhere struct{ net.Listener }

func (everywhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 8080} }

// TestPlaced: nothing is sent of what somebody has put in the place of a run's directory since that was listed.
func TestPlaced(t *testing.T) {
	root := t.TempDir()
	dirs := []string{put(t, root, night("two-jobs", 1)), put(t, root, night("two-jobs", 2))}
	_, h := startWith(t, root, Options{Interval: time.Hour}) // it looks at what there is once
	if a, _ := get(t, h, "/", nil); a.StatusCode != 200 {
		t.Fatal(a.Status)
	}
	private := t.TempDir()
	if err := os.WriteFile(filepath.Join(private, "id_ed25519"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.Rename(filepath.Join(root, dir), filepath.Join(root, "."+dir)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(private, filepath.Join(root, dirs[0])), unix.Mkfifo(filepath.Join(root, dirs[1]), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		for _, path := range []string{"/runs/" + dir + "/files/id_ed25519", "/runs/" + dir + "/files/run.json", "/runs/" + dir + "/"} {
			if a, text := get(t, h, path, nil); strings.Contains(text, "secret") || strings.Contains(text, "id_ed25519") || a.StatusCode == 200 && strings.Contains(path, "/files/") {
				t.Errorf("%s: %s: %q", path, a.Status, text)
			}
		}
	}
}

// TestUnwaited: nobody waits for a FIFO in the place of a directory whose files are listed.
func TestUnwaited(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(unix.Mkfifo(filepath.Join(dir, "captures"), 0o600), os.WriteFile(filepath.Join(dir, "run.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := fs.ReadDir(unwaited{root}, "captures"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("%v", err)
	}
	if all, err := fs.ReadDir(unwaited{root}, "."); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestForgets: runs that went away are not kept for ever. A page that has not heard of all of them is loaded again.
func TestForgets(t *testing.T) {
	s, _ := start(t, t.TempDir(), "")
	_, before, err := s.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	for i := range mostGone + 1 {
		s.store.at[fmt.Sprint("run ", i)] = 0
	}
	err = s.refresh(t.Context())
	kept, after := len(s.store.gone), s.store.name()
	s.mu.Unlock()
	if err != nil || kept > mostGone {
		t.Errorf("%d names are kept, %v", kept, err)
	}
	for version, all := range map[string]bool{before: true, after: false} {
		if n, err := s.news(t.Context(), version); err != nil || n.all != all {
			t.Errorf("since %s: %+v, %v; want to load it again: %v", version, n, err, all)
		}
	}
}
