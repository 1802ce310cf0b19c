package serve

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/testbedtest"
)

var pictures = flag.String("pictures", "", "write pictures of the pages that are tested into this directory, to look at them")

// patience is how long a page may take for anything: machines that run tests are busy.
const patience = time.Minute

// chromium starts a browser for a test and everything below it.
func chromium(t testing.TB) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	testbedtest.Require(t, "chromium", err)
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.WindowSize(1300, 900), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, // root has none, nor has who may not make user namespaces; all pages are ours
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(patience))
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...) // it is ended below, in order
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("end %s: %v", path, err)
		}
	})
	return ctx
}

// tab is a page of the browser that is watched from its beginning.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	requests []string // that it made, by address
	said     []string // errors and warnings of its console
}

// newTab opens an empty page.
func newTab(t testing.TB, browser context.Context) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	p.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error { return chromedp.Listen(ctx, p.hear) }))
	return p
}

func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.said = append(p.said, "exception: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if slices.Contains([]runtime.ConsoleAPICalledType{runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert}, e.Type) {
			text := "console: " + string(e.Type) + ":"
			for _, a := range e.Args {
				text += " " + string(a.Value) + a.Description
			}
			p.said = append(p.said, text)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.said = append(p.said, fmt.Sprintf("log: %s: %s", e.Entry.Level, e.Entry.Text))
		}
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) open(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
}

// eval is what a JavaScript expression comes to.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to be true.
func (p *tab) until(expression string) {
	p.t.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience))); err != nil {
		p.t.Fatalf("wait for %s: %v; the page says\n%s\n%s", expression, err, eval[string](p, "document.body.innerText"), strings.Join(p.said, "\n"))
	}
}

func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// prefer has the page shown as for who prefers light or dark.
func (p *tab) prefer(scheme string) {
	p.t.Helper()
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// size has the page shown in a window of so many pixels.
func (p *tab) size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
		return err
	}))
}

// trouble is what the page did that it should not: requests beyond those that begin with one of
// the prefixes, and errors.
func (p *tab) trouble(prefixes ...string) []string {
	p.t.Helper()
	eval[int](p, "0") // whatever was said before has been heard by then
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Clone(p.said)
	for _, url := range p.requests {
		if !slices.ContainsFunc(append(prefixes, "data:", "blob:", "about:"), func(prefix string) bool { return strings.HasPrefix(url, prefix) }) {
			out = append(out, "request: "+url)
		}
	}
	return out
}

// sound fails the test if the page did something that it should not.
func (p *tab) sound(prefixes ...string) {
	p.t.Helper()
	for _, what := range p.trouble(prefixes...) {
		p.t.Error(what)
	}
}

// picture keeps what the page looks like, if it is asked for.
func (p *tab) picture(name string) {
	p.t.Helper()
	if *pictures == "" || eval[int](p, "document.documentElement.scrollHeight") > 16000 { // more is too large for the browser
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o666)
	}
	if err != nil {
		p.t.Error(err)
	}
}

// contrast is a function of JavaScript: the least contrast of what is written in a page with what is
// behind it, as WCAG 2.2 defines it, and where that is. Text in drawings is left out.
const contrast = `(function () {
  function parse(c) { var m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? m.concat(1) : m; }
  function light(c) { var l = c.slice(0, 3).map(function (v) { v /= 255; return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); }); return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; }
  function behind(e) { for (; e; e = e.parentElement) { var c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; }
  var worst = {ratio: 21, where: '', texts: 0}, walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (var n; (n = walk.nextNode());) {
    var e = n.parentElement;
    if (!n.textContent.trim() || e.closest('svg,script,style,option') || !e.getClientRects().length) continue;
    worst.texts++;
    var a = light(parse(getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst.ratio) { worst.ratio = ratio; worst.where = e.outerHTML.slice(0, 200); }
  }
  return worst;
})()`

// readable fails the test unless all text stands out from what is behind it, in light and in dark.
func (p *tab) readable(name string) {
	p.t.Helper()
	papers := map[string]string{}
	for _, scheme := range []string{"dark", "light"} {
		p.prefer(scheme)
		worst := eval[struct {
			Ratio float64
			Where string
			Texts int
		}](p, contrast)
		if worst.Ratio < 4.5 || worst.Texts < 5 {
			p.t.Errorf("%s, %s: of %d texts the worst contrast is %.2f, want 4.5: %s", name, scheme, worst.Texts, worst.Ratio, worst.Where)
		}
		papers[scheme] = eval[string](p, "getComputedStyle(document.body).backgroundColor")
		p.picture(name + "-" + scheme)
	}
	if papers["dark"] == papers["light"] {
		p.t.Errorf("%s is %s in light and dark", name, papers["light"])
	}
}

// shown are the texts of the elements that a selector finds and that are seen.
func (p *tab) shown(selector string) []string {
	p.t.Helper()
	s, err := json.Marshal(selector)
	if err != nil {
		p.t.Fatal(err)
	}
	return eval[[]string](p, `Array.from(document.querySelectorAll(`+string(s)+`)).filter(function (e) { return e.getClientRects().length > 0 }).map(function (e) { return e.textContent.trim() })`)
}

func TestBrowser(t *testing.T) {
	proof.Only(t, "a browser takes seconds to start")
	ctx := chromium(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"watched": testWatched, "list": testList, "live": testLive, "run": testRun, "history": testHistory, "report": testReport, "token": testToken, "drawings": testDrawings, "phone": testPhone, "thousand": testThousand,
	} {
		t.Run(name, func(t *testing.T) { test(t, ctx) })
	}
}

// testWatched: what other tests hold against pages would be seen.
func testWatched(t *testing.T, ctx context.Context) {
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	for what, c := range map[string]struct{ html, want string }{
		"request":     {`<img src="` + elsewhere.URL + `/pixel.png">`, "request: " + elsewhere.URL + "/pixel.png"},
		"exception":   {`<script>nothing()</script>`, "exception: "},
		"error":       {`<script>console.error("no")</script>`, "console: error"},
		"policy":      {`<meta http-equiv="Content-Security-Policy" content="script-src 'none'"><script>0</script>`, "log: error"},
		"not found":   {`<script src="/nothing.js"></script>`, "log: error"},
		"nothing bad": {`<p>text</p>`, ""},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,">`+c.html)
		}))
		p := newTab(t, ctx)
		p.open(h.URL)
		got := strings.Join(p.trouble(h.URL+"/"), "\n")
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: heard %q, want %q", what, got, c.want)
		}
		h.Close()
	}
}

// testList: all runs are there as their records say, sorted and filtered, by keyboard too.
func testList(t *testing.T, ctx context.Context) {
	root := t.TempDir()
	var want []string // the newest first
	for n := range 24 {
		rec := night([]string{"two-jobs", "waterfill"}[n%2], n)
		rec.Driver = []string{"netns", "sim", "lab"}[n%3]
		dir := put(t, root, rec)
		want = append([]string{fmt.Sprintf("%s|%s|%s|%s|%s", dir, rec.Outcome, rec.Name, rec.Driver, rec.ID)}, want...)
	}
	_, h := start(t, root, "")
	p := newTab(t, ctx)
	p.open(h.URL)
	p.until("document.body.dataset.live === 'yes'")
	const rows = `Array.from(document.querySelectorAll('#runs tbody tr')).filter(function (r) { return !r.hidden }).map(function (r) {
		return [r.id.slice(2), r.cells[0].querySelector('.verdict').lastChild.textContent.trim(), r.cells[1].textContent, r.cells[2].textContent, r.cells[5].textContent].join('|') })`
	if got := eval[[]string](p, rows); !slices.Equal(got, want) {
		t.Errorf("the page lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	field := func(row string, i int) string { return strings.Split(row, "|")[i] }
	// By keyboard: the link to the content, then the filters.
	p.press(kb.Tab)
	if got := eval[string](p, "document.activeElement.textContent"); got != "Skip to the content" {
		t.Errorf("the first that the keyboard comes to is %q", got)
	}
	p.press(kb.Enter)
	p.until("document.activeElement.id === 'main'")
	p.press(kb.Tab)
	if got := eval[string](p, "document.activeElement.id"); got != "filter-text" {
		t.Errorf("after the content's beginning the keyboard comes to %q", got)
	}
	p.press("WATERfill sim")
	p.until("document.getElementById('count').textContent.indexOf(' of 24') > 0")
	filtered := slices.DeleteFunc(slices.Clone(want), func(r string) bool { return field(r, 2) != "waterfill" || field(r, 3) != "sim" })
	if got := eval[[]string](p, rows); !slices.Equal(got, filtered) || len(filtered) == 0 {
		t.Errorf("by text there are\n%v\nwant\n%v", got, filtered)
	}
	p.open(eval[string](p, "location.href")) // what is asked for is in the address
	p.until("document.body.dataset.live === 'yes'")
	if got := eval[[]string](p, rows); !slices.Equal(got, filtered) {
		t.Errorf("opened again there are\n%v\nwant\n%v", got, filtered)
	}
	eval[chromedp.Void](p, "document.querySelector('#filters button[type=reset]').click()")
	p.until("document.getElementById('count').textContent === '24 runs'")
	choose := func(name, value string) {
		eval[chromedp.Void](p, fmt.Sprintf("(function (s) { s.value = %q; s.dispatchEvent(new Event('input', {bubbles: true})) })(document.getElementById('filter-%s'))", value, name))
	}
	for name, i := range map[string]int{"verdict": 1, "experiment": 2, "driver": 3} {
		value := field(want[5], i)
		choose(name, value)
		filtered := slices.DeleteFunc(slices.Clone(want), func(r string) bool { return field(r, i) != value })
		if got := eval[[]string](p, rows); !slices.Equal(got, filtered) || len(filtered) == 0 || len(filtered) == 24 {
			t.Errorf("of %s %s there are\n%v\nwant\n%v", name, value, got, filtered)
		}
		choose(name, "")
	}
	sorted := func(column int, less func(a, b string) int) {
		t.Helper()
		for _, way := range []string{"ascending", "descending"} {
			// The button is reached by keyboard like every button.
			eval[chromedp.Void](p, fmt.Sprintf("document.querySelectorAll('#runs th button')[%d].focus()", column))
			p.press(kb.Enter)
			p.until(fmt.Sprintf("document.querySelectorAll('#runs th')[%d].getAttribute('aria-sort') === %q", column, way))
			got := eval[[]string](p, rows)
			ok := slices.IsSortedFunc(got, less)
			if way == "descending" {
				ok = slices.IsSortedFunc(got, func(a, b string) int { return less(b, a) })
			}
			if !ok || len(got) != 24 {
				t.Errorf("column %d, %s:\n%s", column, way, strings.Join(got, "\n"))
			}
		}
	}
	attention := []string{"error", "fail", "inconclusive", "pass"}
	sorted(0, func(a, b string) int {
		return slices.Index(attention, field(a, 1)) - slices.Index(attention, field(b, 1))
	})
	sorted(1, func(a, b string) int { return strings.Compare(field(a, 2), field(b, 2)) })
	sorted(2, func(a, b string) int { return strings.Compare(field(a, 3), field(b, 3)) })
	sorted(3, func(a, b string) int { return strings.Compare(field(a, 0), field(b, 0)) })
	p.readable("list")
	p.sound(h.URL + "/")
}

// testLive: runs come, go on, end and go away before the reader's eyes.
func testLive(t *testing.T, ctx context.Context) {
	root := t.TempDir()
	put(t, root, night("two-jobs", 0))
	_, h := start(t, root, "")
	list, one := newTab(t, ctx), newTab(t, ctx)
	list.open(h.URL)
	list.until("document.body.dataset.live === 'yes'")
	eval[chromedp.Void](list, "window.loaded = 'once'")
	rec, run := going(t, root)
	row := "document.getElementById('r-" + filepath.Base(run.Path) + "')"
	list.until(row + " && " + row + ".textContent.indexOf('0 of 2 points') > 0")
	if got := eval[bool](list, row+" === document.querySelector('#runs tbody').rows[0]"); !got {
		t.Error("a new run is not the first")
	}
	one.open(h.URL + "/runs/" + filepath.Base(run.Path) + "/")
	one.until("document.body.dataset.live === 'yes'")
	if got := one.shown("#verdict"); len(got) != 1 || !strings.HasSuffix(got[0], "running") {
		t.Errorf("the page of a run that goes on says %v", got)
	}
	eval[chromedp.Void](one, "window.loaded = 'once'")
	readings(t, run)
	list.until(row + ".textContent.indexOf(' of samples') > 0")
	one.until("document.querySelector('meter') && Math.abs(document.querySelector('meter').value - 0.4) < 1e-6")
	if got := strings.Join(one.shown("#doing"), ""); !strings.HasPrefix(got, "measure 1/2, until about ") || !strings.Contains(got, "B begins at ") {
		t.Errorf("what it does is %q", got)
	}
	if got := eval[[]string](one, "Array.from(document.querySelectorAll('#now svg.ina')).map(function (s) { return s.id })"); !slices.Equal(got, []string{"rates", "topology"}) {
		t.Errorf("drawn are %v", got)
	}
	one.clear("running")
	rec.Points = night("", 0).Points
	if err := run.Save(rec); err != nil {
		t.Fatal(err)
	}
	one.until("document.getElementById('now').textContent.indexOf('1 of 2 points') > 0")
	rec.Outcome, rec.Reasons, rec.Finished = results.Fail, []string{"goodput of A is off"}, time.Now()
	if err := run.Save(rec); err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	list.until(row + ".dataset.verdict === 'fail'")
	one.until("document.getElementById('verdict').textContent.indexOf('fail') > 0 && document.getElementById('now').textContent.indexOf('goodput of A is off') > 0")
	if err := os.RemoveAll(run.Path); err != nil {
		t.Fatal(err)
	}
	list.until("!" + row)
	one.until("document.getElementById('trouble').textContent === 'This run was removed.'")
	for _, p := range []*tab{list, one} {
		if got := eval[string](p, "String(window.loaded)"); got != "once" {
			t.Error("the page was loaded again")
		}
	}
	list.sound(h.URL + "/")
	one.sound(h.URL + "/")
}

// cut are texts of a page, outside of its drawings, of which some cannot be seen: they leave the window, or the box of
// an element that does not show what leaves it. What is folded is unfolded.
const cut = `(function () {
	var out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	document.querySelectorAll('details').forEach(function (d) { d.open = true; });
	if (document.documentElement.scrollWidth > innerWidth) out.push('the page is ' + document.documentElement.scrollWidth + ' pixels wide in a window of ' + innerWidth);
	for (var n; (n = walk.nextNode());) {
		var e = n.parentElement, left = 0, right = innerWidth, range = document.createRange();
		if (!n.textContent.trim() || e.closest('svg,script,style,datalist,select,meter,.skip')) continue;
		for (var c = e; c !== document.body; c = c.parentElement) {
			var box = c.getBoundingClientRect();
			if (getComputedStyle(c).overflowX !== 'visible') { left = Math.max(left, box.left); right = Math.min(right, box.right); }
		}
		range.selectNodeContents(n);
		Array.from(range.getClientRects()).some(function (r) {
			var lost = r.width > 0 && (r.left < left - 1 || r.right > right + 1);
			if (lost) out.push('"' + n.textContent.trim().slice(0, 60) + '" is from ' + r.left.toFixed(0) + ' to ' + r.right.toFixed(0) + ', seen from ' + left.toFixed(0) + ' to ' + right.toFixed(0));
			return lost;
		});
	}
	document.querySelectorAll('input').forEach(function (i) {
		if (i.getClientRects().length && i.scrollWidth > i.clientWidth + 1) out.push('of "' + i.value + '" ' + i.clientWidth + ' pixels are seen of ' + i.scrollWidth);
	});
	return out;
})()`

// testPhone: on a phone, nothing that is written is cut, and no page is wider than the window.
func testPhone(t *testing.T, ctx context.Context) {
	root := t.TempDir()
	first, last := put(t, root, night("two-jobs-in-one-rack-of-three", 0)), put(t, root, night("two-jobs-in-one-rack-of-three", 24))
	_, run := going(t, root)
	readings(t, run)
	suite := Night{ID: "n1", Suite: "nightly", Started: time.Unix(1e9, 0), Verdict: "fail", Title: "1 failed; switch tor1 explains it", Text: func(w io.Writer) error {
		_, err := io.WriteString(w, "FAIL  two-jobs  goodput of A@tor1 is 4.9 % lower than in the 30 nights before, and tor1 is what has changed\n      "+strings.Repeat("0123456789", 12)+"\n")
		return err
	}}
	_, h := startWith(t, root, Options{Interval: 20 * time.Millisecond, Nights: func() ([]Night, error) { return []Night{suite}, nil }})
	p := newTab(t, ctx)
	p.size(420, 900)
	for name, address := range map[string]string{
		"list": "/", "running": "/runs/" + filepath.Base(run.Path) + "/", "ended": "/runs/" + last + "/", "nights": "/nights", "night": "/nights/n1/",
		"metrics": "/history", "history": "/history?metric=goodput", "compare": "/compare?a=" + first + "&b=" + last + "&all=yes",
	} {
		p.open(h.URL + address)
		if got := len(p.shown("main h1")); got != 1 {
			t.Errorf("%s: %d headings", name, got)
		}
		for _, what := range eval[[]string](p, cut) {
			t.Errorf("%s: %s", name, what)
		}
		p.picture("phone-" + name)
	}
	p.sound(h.URL + "/")
	p.open(h.URL + "/nights")
	eval[chromedp.Void](p, `(function (e) {
		e.textContent = 'a text that is longer than its box';
		Object.assign(e.style, {width: '80px', overflowX: 'auto', whiteSpace: 'nowrap'});
		document.getElementById('main').appendChild(e);
	})(document.createElement('p'))`)
	if got := eval[[]string](p, cut); len(got) != 1 {
		t.Errorf("of a text that is cut it is said: %q", got)
	}
}

// going begins a run that goes on, of two points on a switch.
func going(t *testing.T, root string) (*results.Record, *results.Dir) {
	t.Helper()
	rec := &results.Record{Name: "waterfill", Driver: "netns", Planned: 2, Topology: results.Topology{
		Nodes: []results.Node{{Name: "h1", Kind: "host"}, {Name: "tor1", Kind: "soft", Tier: 1}},
		Links: []results.Link{{Name: "h1->tor1", From: "h1", To: "tor1", Rate: 1e6}},
	}}
	run, err := results.Create(root, rec)
	if err != nil {
		t.Fatal(err)
	}
	return rec, run
}

// readings are what a run says that is measured: two jobs, and a link.
func readings(t *testing.T, run *results.Dir) {
	t.Helper()
	now := results.Now{Written: time.Now(), Stage: "measure", Of: 2, Until: time.Now().Add(time.Minute), Next: "B begins", NextAt: time.Now().Add(10 * time.Second), Links: map[string]float64{"h1->tor1": 380e3}}
	for _, job := range []string{"A", "B"} {
		j := results.JobNow{Job: job, Goodput: 390e3, Predicted: 380e3}
		for i := range 20 {
			j.Past = append(j.Past, results.RateNow{T: float64(i), Goodput: 390e3 + 20e3*float64(i%3), Predicted: 380e3 + 100e3*float64(i/10)})
		}
		now.Jobs = append(now.Jobs, j)
	}
	if err := run.WriteNow(now); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := run.Append(results.Sample{T: float64(i), Source: "host h1", Metric: "nic_tx_bytes", Of: "h1->tor1", Value: 50e3 * float64(i), Unit: "B"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := run.Flush(); err != nil {
		t.Fatal(err)
	}
}

// testRun: from the list to a run's page, and to its files.
func testRun(t *testing.T, ctx context.Context) {
	root := t.TempDir()
	rec := night("two-jobs", 2)
	dir := put(t, root, rec)
	_, h := start(t, root, "")
	p := newTab(t, ctx)
	p.open(h.URL + "/runs/" + dir + "/")
	p.until("document.body.dataset.live === 'yes'")
	if got := p.shown("h1"); !slices.Equal(got, []string{rec.Name}) {
		t.Errorf("its name is %q", got)
	}
	if got := p.shown("#now li"); !slices.Equal(got, rec.Reasons) {
		t.Errorf("its reasons are %q, want %q", got, rec.Reasons)
	}
	stored, err := os.ReadFile(filepath.Join(root, dir, results.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`fetch(document.querySelector('#files a').href).then(function (a) { return a.text() })`, chromedp.EvalAwaitPromise))
	if err != nil || got != string(stored) {
		t.Errorf("its record comes as %.100q, %v", got, err)
	}
	p.readable("run")
	p.sound(h.URL + "/")
}

// testHistory: what is drawn is what JSON says.
func testHistory(t *testing.T, ctx context.Context) {
	root := t.TempDir()
	for n := range 30 {
		put(t, root, night("two-jobs", 2*n))
	}
	_, h := start(t, root, "")
	_, text := get(t, h, "/history.json?metric=goodput&experiment=two-jobs", nil)
	var doc struct{ Series []seriesView }
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Series) != 1 || len(doc.Series[0].Nights) != 30 || len(doc.Series[0].Changes) != 1 {
		t.Fatalf("the history is %s", text)
	}
	s := doc.Series[0]
	p := newTab(t, ctx)
	p.open(h.URL + "/history")
	p.open(eval[string](p, "document.querySelector('main li a').href"))
	if got := len(p.shown("figure.series")); got != 1 {
		t.Fatalf("%d series", got)
	}
	if got := eval[int](p, "document.querySelectorAll('#series-0 circle').length"); got != len(s.Nights) {
		t.Errorf("%d marks of %d runs", got, len(s.Nights))
	}
	if got := p.shown("figcaption li"); len(got) != 1 || !strings.HasPrefix(got[0], s.Changes[0].Text+" from ") {
		t.Errorf("changes are %q, want %s", got, s.Changes[0].Text)
	}
	if got := eval[string](p, "new URL(document.querySelector('figcaption li a').href).pathname"); got != "/runs/"+s.Changes[0].Run+"/report.html" {
		t.Errorf("the change leads to %s, want %s", got, s.Changes[0].Run)
	}
	// Marks are where the figures are: their heights are in proportion.
	at := eval[[]float64](p, "Array.from(document.querySelectorAll('#series-0 circle')).map(function (c) { return +c.getAttribute('cy') })")
	v := func(i int) float64 { return s.Nights[i].Figures[0] }
	for i := range at {
		want := at[0] + (at[len(at)-1]-at[0])*(v(i)-v(0))/(v(len(at)-1)-v(0))
		if math.Abs(at[i]-want) > 0.3 { // of a tenth that is drawn
			t.Errorf("run %d is drawn at %g, want %g", i, at[i], want)
		}
	}
	if got := p.shown("figcaption > p"); len(got) != 1 || !strings.Contains(got[0], human.Quantity(s.Verdict.Tonight, s.Unit)) {
		t.Errorf("it says %q of %v", got, s.Verdict)
	}
	p.readable("history")
	p.sound(h.URL + "/")
}

// testToken: the token is asked for once, and then is neither in the address nor told to scripts.
func testToken(t *testing.T, ctx context.Context) {
	root := t.TempDir()
	put(t, root, night("two-jobs", 0))
	token := NewToken()
	_, h := start(t, root, token)
	p := newTab(t, ctx)
	p.open(h.URL + "/?verdict=pass&token=" + token)
	p.until("document.body.dataset.live === 'yes'")
	if got := eval[string](p, "location.search + document.cookie"); got != "?verdict=pass" {
		t.Errorf("the address and the cookies are %q", got)
	}
	if got := len(p.shown("#runs tbody tr")); got != 1 {
		t.Errorf("%d runs", got)
	}
	p.sound(h.URL + "/")
}

// testThousand loads 1,000 runs. How long that takes is BenchmarkLoad's to say.
func testThousand(t *testing.T, ctx context.Context) {
	h := thousand(t)
	took := load(newTab(t, ctx), h)
	t.Logf("1,000 runs are shown, sorted and filtered after %v", took)
	if took > patience/2 {
		t.Errorf("1,000 runs took %v", took)
	}
}

// thousand serves 1,000 runs that have been indexed.
func thousand(t testing.TB) *httptest.Server {
	t.Helper()
	root := t.TempDir()
	for n := range 1000 {
		put(t, root, night([]string{"two-jobs", "waterfill", "pat-sweep"}[n%3], n))
	}
	_, h := start(t, root, "")
	get(t, h, "/", nil)
	return h
}

// load opens the list of 1,000 runs, waits until it can be used, and says how long that took.
func load(p *tab, h *httptest.Server) time.Duration {
	p.t.Helper()
	began := time.Now()
	p.open(h.URL + "/?text=pat-sweep")
	p.until("document.getElementById('count').textContent === '333 of 1,000 runs'")
	took := time.Since(began)
	p.sound(h.URL + "/")
	return took
}

// BenchmarkLoad is how long a browser takes to show 1,000 runs.
func BenchmarkLoad(b *testing.B) {
	ctx := chromium(b)
	h := thousand(b)
	var took []float64
	for b.Loop() {
		took = append(took, load(newTab(b, ctx), h).Seconds())
	}
	b.ReportMetric(slices.Max(took), "worst-s")
}
