package serve

import (
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// pageOf returns the page at an address, unescaped.
func pageOf(t *testing.T, h *httptest.Server, address string, status int) string {
	t.Helper()
	a, text := get(t, h, address, nil)
	if a.StatusCode != status {
		t.Errorf("%s: %s: %s", address, a.Status, text)
	}
	return html.UnescapeString(text)
}

// TestCompare checks the page of two runs, and that a run's page links to its comparison with the previous run.
func TestCompare(t *testing.T) {
	root := t.TempDir()
	first, other, last := put(t, root, night("two-jobs", 0)), put(t, root, night("waterfill", 2)), put(t, root, night("two-jobs", 24))
	_, h := start(t, root, "")
	if text := pageOf(t, h, "/compare", http.StatusOK); !strings.Contains(text, `value="`+first+`"`) {
		t.Errorf("what there is to compare: %s", text)
	}
	text := pageOf(t, h, "/compare?a="+first+"&b="+last, http.StatusOK)
	for _, want := range []string{"goodput", "-4.9 %", ">A<", `value="` + first + `"`, "/runs/" + last + "/"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if text := pageOf(t, h, "/compare?a="+first+"&b="+other, http.StatusOK); !strings.Contains(text, "differs: ") || !strings.Contains(text, "not judged") {
		t.Errorf("of two experiments: %s", text)
	}
	pageOf(t, h, "/compare?a="+first+"&b=nothing", http.StatusNotFound)
	pageOf(t, h, "/compare?a=../"+first+"&b="+first, http.StatusNotFound)
	if text := pageOf(t, h, "/runs/"+last+"/", http.StatusOK); !strings.Contains(text, "/compare?a="+first+"&b="+last) {
		t.Errorf("the page of a run leads to none before it: %s", text)
	}
	if text := pageOf(t, h, "/runs/"+first+"/", http.StatusOK); strings.Contains(text, "/compare?") {
		t.Errorf("the first run has one before it: %s", text)
	}
}

// TestNightPages checks that nights are listed with their titles, and that their texts are escaped.
func TestNightPages(t *testing.T) {
	said := Night{ID: "2026-11-01T02-00-00Z-X", Suite: "nightly", Started: time.Unix(1e9, 0), Verdict: "fail", Title: "1 failed; tor1 <explains> it", Text: func(w io.Writer) error {
		_, err := io.WriteString(w, "FAIL  nightly\n<script>alert(1)</script>\n")
		return err
	}}
	broken := errors.New("the disk is gone")
	var failing error
	_, h := startWith(t, t.TempDir(), Options{Interval: time.Millisecond, Nights: func() ([]Night, error) { return []Night{said}, failing }})
	if text := pageOf(t, h, "/nights", http.StatusOK); !strings.Contains(text, "tor1 <explains> it") || !strings.Contains(text, "/nights/"+said.ID+"/") {
		t.Errorf("the list: %s", text)
	}
	a, text := get(t, h, "/nights/"+said.ID+"/", nil)
	if a.StatusCode != http.StatusOK || !strings.Contains(text, "&lt;script&gt;alert(1)") || strings.Contains(text, "<script>alert") {
		t.Errorf("one: %s %s", a.Status, text)
	}
	var alone strings.Builder
	if err := WriteNight(&alone, said); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"&lt;script&gt;alert(1)", "FAIL  nightly", "prefers-color-scheme", ">fail<"} {
		if !strings.Contains(alone.String(), want) {
			t.Errorf("the page without a server has no %s: %s", want, alone.String())
		}
	}
	for _, never := range []string{"<script", "href=", "src="} {
		if strings.Contains(alone.String(), never) {
			t.Errorf("the page without a server has %s: %s", never, alone.String())
		}
	}
	pageOf(t, h, "/nights/other/", http.StatusNotFound)
	failing = broken
	pageOf(t, h, "/nights/another/", http.StatusInternalServerError)
	_, h = start(t, t.TempDir(), "")
	if text := pageOf(t, h, "/nights", http.StatusOK); !strings.Contains(text, "no nights yet") {
		t.Errorf("without any: %s", text)
	}
}
