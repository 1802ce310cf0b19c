package serve

import (
	"errors"
	"html"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
)

// saveLink is where a page is to be had as one file.
var saveLink = regexp.MustCompile(`<a id="save" href="([^"]*)" download>`)

// TestSave: each page leads to itself as one file, which asks no server for anything: it has its styles, no scripts, no
// forms that are seen, no paths of this machine, and links that say which server they lead to.
func TestSave(t *testing.T) {
	root := t.TempDir()
	first, last := put(t, root, night("two-jobs", 0)), put(t, root, night("two-jobs", 24))
	going, err := results.Create(root, &results.Record{Name: "waterfill", Driver: "netns", Planned: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer going.Close()
	running := filepath.Base(going.Path)
	broken := "2001-01-01T00-00-00Z-broken"
	if err := errors.Join(os.Mkdir(filepath.Join(root, broken), 0o777), os.WriteFile(filepath.Join(root, broken, results.RecordFile), []byte("{"), 0o666)); err != nil {
		t.Fatal(err)
	}
	suite := Night{ID: "n1", Suite: "nightly", Started: time.Unix(1e9, 0), Verdict: "fail", Text: func(w io.Writer) error {
		_, err := io.WriteString(w, `FAIL <a href="/runs/">`)
		return err
	}}
	_, h := startWith(t, root, Options{Interval: time.Millisecond, Nights: func() ([]Night, error) { return []Night{suite}, nil }})
	for _, tt := range []struct{ address, file, has string }{
		{"/", "runs.html", h.URL + "/runs/" + last + "/"},
		{"/?verdict=pass", "runs.html", h.URL + "/runs/" + last + "/"},
		{"/runs/" + last + "/", "runs-" + last + ".html", h.URL + "/runs/" + last + "/report.html"},
		{"/runs/" + running + "/", "runs-" + running + ".html", "</span> running</span>"},
		{"/runs/" + broken + "/", "runs-" + broken + ".html", broken},
		{"/nights", "nights.html", h.URL + "/nights/n1/"},
		{"/nights/n1/", "nights-n1.html", "FAIL &lt;a href=&#34;/runs/&#34;&gt;"},
		{"/history?metric=goodput&experiment=two-jobs", "history.html", `id="series-0"`},
		{"/compare?a=" + first + "&b=" + last + "&all=yes", "compare.html", ">A<"},
	} {
		a, text := get(t, h, tt.address, nil)
		link := saveLink.FindStringSubmatch(text)
		if a.StatusCode != http.StatusOK || link == nil || a.Header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %s, %s, it leads to %q", tt.address, a.Status, a.Header.Get("Content-Disposition"), link)
			continue
		}
		a, text = get(t, h, html.UnescapeString(link[1]), nil)
		kind, how, err := mime.ParseMediaType(a.Header.Get("Content-Disposition"))
		if a.StatusCode != http.StatusOK || err != nil || kind != "attachment" || how["filename"] != tt.file {
			t.Errorf("%s: %s, to be kept as %q, want %s (%v)", link[1], a.Status, how["filename"], tt.file, err)
		}
		if !strings.Contains(text, tt.has) {
			t.Errorf("%s as a file has no %s: %s", tt.address, tt.has, text)
		}
		for _, want := range []string{"<!doctype html>", "<style>", "\nform{display:none}\n</style>", "</html>"} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s as a file has %s %d times", tt.address, want, strings.Count(text, want))
			}
		}
		for _, never := range []string{"<script", "<link", "<nav", `href="/`, `src="`, root} { // not even where the store is
			if strings.Contains(text, never) {
				t.Errorf("%s as a file has %s", tt.address, never)
			}
		}
	}
}

// TestSaveHost: what a client says of itself in its request is text in the file that it gets, and in nobody else's.
func TestSaveHost(t *testing.T) {
	root := t.TempDir()
	put(t, root, night("two-jobs", 0))
	token := NewToken()
	_, h := start(t, root, token)
	as := func(host string) string {
		_, text := get(t, h, "/?save=yes", func(r *http.Request) {
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+token)
		})
		return text
	}
	if text := as("lab&x"); !strings.Contains(text, `href="http://lab&amp;x/runs/`) {
		t.Errorf("a host is not escaped: %s", text)
	}
	if text := as("lab:8080"); !strings.Contains(text, `href="http://lab:8080/runs/`) || strings.Contains(text, "lab&amp;x") {
		t.Errorf("the file is somebody else's: %s", text)
	}
}
