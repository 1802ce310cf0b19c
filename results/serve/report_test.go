package serve

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/fidelity"
	"github.com/inabench/inabench/results/report"
)

// testReport opens reports of real runs as the files that they are.
func testReport(t *testing.T, ctx context.Context) {
	for name, what := range map[string]string{
		"quickstart":    "topology", // links over time, phases
		"pat-sweep":     "sweep",
		"mina-ablation": "comparison",
	} {
		t.Run(what, func(t *testing.T) { reportOf(t, ctx, name) })
	}
}

// ran is a short run of an experiment on the simulator.
func ran(t *testing.T, name string) (*results.Record, *results.Dir) {
	t.Helper()
	path := filepath.Join("..", "..", "experiments", name+".toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := spec.Quick(path, text)
	if err != nil {
		quick = nil // it is small itself
	}
	spec, err := kinds.Load(path, quick...)
	if err != nil {
		t.Fatal(err)
	}
	rec, dir, err := experiments.Run(t.Context(), spec, experiments.RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "v0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	return rec, dir
}

func reportOf(t *testing.T, ctx context.Context, name string) {
	rec, dir := ran(t, name)
	models, err := fidelity.Compare([]*results.Record{rec}, fidelity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if rec.Fidelity = models.Figures(); len(rec.Fidelity) > 0 {
		against(t, dir, rec, models)
	}
	file := "file://" + filepath.Join(dir.Path, results.ReportFile)
	p := newTab(t, ctx)
	p.open(file)
	if got := strings.Join(p.shown("h1"), ""); !strings.Contains(strings.ToLower(got), string(rec.Outcome)) || !strings.Contains(got, rec.Name) {
		t.Errorf("the heading %q does not say that %s is %s", got, rec.Name, rec.Outcome)
	}
	body := p.data("body")[0]
	if body["run"] != rec.ID || body["experiment"] != rec.Name || body["outcome"] != string(rec.Outcome) || body["exitCode"] != strconv.Itoa(rec.ExitCode) {
		t.Errorf("the page is of %v, want %s, %s, %s, %d", body, rec.ID, rec.Name, rec.Outcome, rec.ExitCode)
	}
	if len(rec.Checks) > 0 {
		checksOf(t, p, rec)
	}
	linksOf(t, p, rec)
	modelsOf(t, p, rec, models)
	savedOf(t, p)
	if got := eval[int](p, "document.querySelectorAll('svg.ina').length"); got == 0 {
		t.Error("nothing is drawn")
	}
	if got := eval[[]string](p, `Array.from(document.querySelectorAll('[id]')).map(function (e) { return e.id }).filter(function (id, i, all) { return all.indexOf(id) !== i })`); len(got) > 0 {
		t.Errorf("ids that are there twice: %v", got)
	}
	// Whatever can be reached by keyboard is seen when it is, and can be left again.
	seen := map[string]bool{}
	for range 8 {
		p.press(kb.Tab)
		at := eval[string](p, "document.activeElement.outerHTML.slice(0, 120)")
		if !eval[bool](p, "document.activeElement.getClientRects().length > 0") {
			t.Errorf("the keyboard comes to what is not seen: %s", at)
		}
		seen[at] = true
	}
	if len(seen) < 3 {
		t.Errorf("the keyboard comes to %v only", seen)
	}
	p.readable("report-" + name)
	if eval[bool](p, "document.documentElement.scrollWidth > innerWidth") {
		t.Error("the page is wider than the window")
	}
	p.sound(file)
}

// collisions are texts of drawings that lie over each other, leave their drawing, are cut, or are too small to be read, by
// the boxes that the browser gives them; and whether the page is wider than the window.
const collisions = `(function () {
	var out = [];
	document.querySelectorAll('details').forEach(function (d) { d.open = true; });
	if (document.documentElement.scrollWidth > innerWidth) out.push('the page is ' + document.documentElement.scrollWidth + ' pixels wide in a window of ' + innerWidth);
	document.querySelectorAll('svg.ina').forEach(function (svg) {
		if (!svg.getClientRects().length) return;
		var frame = svg.getBoundingClientRect();
		var texts = Array.from(svg.querySelectorAll('text')).filter(function (t) { return t.textContent.trim() && t.getClientRects().length; }).map(function (t) {
			var r = t.getBoundingClientRect(), lying = r.width >= r.height, v = lying ? 0.22 * r.height : 0, h = lying ? 0 : 0.22 * r.width; // room for accents
			return {text: t.textContent, l: r.left + h, r: r.right - h, t: r.top + v, b: r.bottom - v, size: parseFloat(getComputedStyle(t).fontSize) * frame.width / svg.viewBox.baseVal.width};
		});
		texts.forEach(function (a, i) {
			var where = svg.id + ': "' + a.text + '"';
			if (/…$/.test(a.text)) out.push(where + ' is cut');
			if (a.size < 9) out.push(where + ' has a size of ' + a.size.toFixed(1) + ' pixels');
			if (a.l < frame.left - 1 || a.r > frame.right + 1 || a.t < frame.top - 1 || a.b > frame.bottom + 1) out.push(where + ' leaves the drawing');
			texts.slice(0, i).forEach(function (b) {
				if (a.l < b.r - 1 && b.l < a.r - 1 && a.t < b.b - 1 && b.t < a.b - 1) out.push(where + ' lies over "' + b.text + '"');
			});
		});
	});
	return out;
})()`

// clear reports what cannot be read of the drawings of a page, on a screen and on a phone.
func (p *tab) clear(name string) {
	p.t.Helper()
	for _, width := range []int64{1400, 420} {
		p.size(width, 900)
		got := eval[[]string](p, collisions)
		for i, c := range got {
			if i == 6 {
				p.t.Errorf("%s at %d pixels: and %d more", name, width, len(got)-i)
				break
			}
			p.t.Errorf("%s at %d pixels: %s", name, width, c)
		}
		for _, scheme := range []string{"light", "dark"} {
			p.prefer(scheme)
			p.picture(fmt.Sprintf("%s-%d-%s", name, width, scheme))
		}
	}
}

// testDrawings: no text in a drawing is cut, too small, or under another one.
func testDrawings(t *testing.T, ctx context.Context) {
	for _, name := range []string{"quickstart", "waterfill", "pat-sweep", "policies", "autops-sharing", "mina-histograms"} {
		t.Run(name, func(t *testing.T) {
			_, dir := ran(t, name)
			p := newTab(t, ctx)
			p.open("file://" + filepath.Join(dir.Path, results.ReportFile))
			p.clear("drawings-" + name)
		})
	}
	t.Run("nights", func(t *testing.T) {
		root := t.TempDir()
		for n := range 30 {
			put(t, root, night("two-jobs", 2*n))
		}
		_, h := start(t, root, "")
		p := newTab(t, ctx)
		p.open(h.URL + historyOf("two-jobs", "goodput"))
		p.clear("drawings-nights")
	})
}

// against writes a run's page with the models that it was held against.
func against(t *testing.T, dir *results.Dir, rec *results.Record, models *fidelity.Report) {
	t.Helper()
	samples, err := dir.Samples()
	if err != nil {
		t.Fatal(err)
	}
	part, err := models.HTML()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := report.WriteReport(&b, rec, samples, report.Beside{Fidelity: part}); err != nil {
		t.Fatal(err)
	}
	if err := dir.WriteFile(results.ReportFile, b.Bytes()); err != nil {
		t.Fatal(err)
	}
}

// modelsOf holds the tables of models to what they say.
func modelsOf(t *testing.T, p *tab, rec *results.Record, models *fidelity.Report) {
	t.Helper()
	shown := p.data("#table-fidelity tbody tr")
	if len(shown) != len(rec.Fidelity) {
		t.Errorf("%d models are shown, want %d", len(shown), len(rec.Fidelity))
		return
	}
	for i, f := range rec.Fidelity {
		if shown[i]["model"] != f.Of || !same(shown[i]["median error"], f.Value) {
			t.Errorf("%s, off by %g, is shown as %v", f.Of, f.Value, shown[i])
		}
	}
	rows := p.data("#fidelity tr[data-class]")
	for _, m := range models.Models {
		for _, g := range m.Groups {
			i := slices.IndexFunc(rows, func(r map[string]string) bool {
				return r["model"] == m.Name && r["class"] == string(g.Class) && r["metric"] == g.Metric
			})
			if i < 0 || !same(rows[i]["median error"], g.Median.Value) || !same(rows[i]["largest"], g.Max) || !same(rows[i]["bias"], g.Bias.Value) {
				t.Errorf("%s of %ss by %s, %+v, is not shown", g.Metric, g.Class, m.Name, g)
			}
		}
	}
}

// linksOf holds the table of links to the record.
func linksOf(t *testing.T, p *tab, rec *results.Record) {
	t.Helper()
	loads, _ := report.LinkLoads(rec)
	shown := p.data("#links tbody tr")
	if len(shown) != len(rec.Topology.Links) {
		t.Errorf("%d links are shown, want %d", len(shown), len(rec.Topology.Links))
	}
	for _, l := range rec.Topology.Links {
		i := slices.IndexFunc(shown, func(r map[string]string) bool { return r["link"] == l.Name })
		if i < 0 || !same(shown[i]["capacity"], l.Rate) {
			t.Errorf("link %s of %g is not shown", l.Name, l.Rate)
			continue
		}
		if f := loads[l.Name].Observed; f.Kind != "" && !same(shown[i][string(rec.Kind)], f.Value) {
			t.Errorf("link %s is shown as %v, want %g", l.Name, shown[i], f.Value)
		}
	}
}

// data are the attributes data-* of the elements that a selector finds, and data-k of the cells of rows.
func (p *tab) data(selector string) []map[string]string {
	p.t.Helper()
	return eval[[]map[string]string](p, fmt.Sprintf(`Array.from(document.querySelectorAll(%q)).map(function (e) {
		var all = Object.assign({}, e.dataset);
		Array.from(e.cells || []).forEach(function (c, i) { if (c.hasAttribute('data-k')) all[e.closest('table').tHead.rows[0].cells[i].textContent.trim()] = c.getAttribute('data-k'); });
		return all;
	})`, selector))
}

// same says whether a number in an attribute is one of the record's; nothing stands for what is not known.
func same(text string, want float64) bool {
	got, err := strconv.ParseFloat(text, 64)
	return err == nil && got == want
}

// checksOf holds the table of checks to the record, sorts and filters it.
func checksOf(t *testing.T, p *tab, rec *results.Record) {
	t.Helper()
	const rows = "#table-checks tbody tr"
	shown := p.data(rows)
	if len(shown) != len(rec.Checks) {
		t.Fatalf("%d checks are shown, want %d", len(shown), len(rec.Checks))
	}
	observed := string(rec.Kind)
	for _, c := range rec.Checks {
		i := slices.IndexFunc(shown, func(r map[string]string) bool {
			return r["check"] == c.Expect && r["index"] == strconv.Itoa(c.Index) && r["phase"] == strconv.Itoa(c.Phase+1) && r["of"] == c.Of && r["metric"] == c.Metric
		})
		if i < 0 {
			t.Errorf("no row of check %s, %s, phase %d, %s", c.Expect, c.Point, c.Phase+1, c.Of)
			continue
		}
		r := shown[i]
		if r["outcome"] != string(c.Outcome) || r["point"] != c.Point || r["gate"] != strconv.FormatBool(c.Gate) {
			t.Errorf("%s of %s at %q is shown as %v, want %s", c.Expect, c.Of, c.Point, r, c.Outcome)
		}
		if c.Repeats == 0 {
			continue // nothing was measured
		}
		want := map[string]float64{observed: c.Measured}
		if c.Statistic == "each" {
			want["predicted"], want["error"] = c.Predicted, c.Error
		}
		for column, v := range want {
			if !same(r[column], v) {
				t.Errorf("%s of %s %s: %s is %q, want %g", c.Expect, c.Of, c.Point, column, r[column], v)
			}
		}
	}
	heads := eval[[]string](p, "Array.from(document.querySelectorAll('#table-checks th')).map(function (c) { return c.textContent.trim() })")
	for _, way := range []string{"ascending", "descending"} {
		column := slices.Index(heads, observed)
		eval[chromedp.Void](p, fmt.Sprintf("document.querySelectorAll('#table-checks th button')[%d].focus()", column))
		p.press(kb.Enter)
		p.until(fmt.Sprintf("document.querySelectorAll('#table-checks th')[%d].getAttribute('aria-sort') === %q", column, way))
		last := math.Inf(-1)
		for _, r := range p.data(rows) {
			v, err := strconv.ParseFloat(r[observed], 64)
			if err != nil {
				continue
			}
			if way == "descending" {
				v = -v
			}
			if v < last {
				t.Errorf("sorted %s, %g comes after %g", way, v, last)
			}
			last = v
		}
	}
	if len(rec.Checks) < 8 { // too few to be filtered
		return
	}
	word := rec.Checks[0].Of
	eval[chromedp.Void](p, `document.querySelector('input[data-filter=table-checks]').focus()`)
	p.press(word)
	for _, r := range p.shown(rows) {
		if !strings.Contains(strings.ToLower(r), strings.ToLower(word)) {
			t.Errorf("filtered by %s there is %s", word, r)
		}
	}
	if got := len(p.shown(rows)); got == 0 || got > len(rec.Checks) {
		t.Errorf("filtered by %s there are %d of %d", word, got, len(rec.Checks))
	}
}

// savedOf saves the first figure in each of its formats, and reads what was saved.
func savedOf(t *testing.T, p *tab) {
	t.Helper()
	dir := t.TempDir()
	p.do(chromedp.Func(func(ctx context.Context, s *chromedp.Target) error {
		_, err := cdp.Call(ctx, s, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir})
		return err
	}))
	for _, kind := range []string{"svg", "png", "csv"} {
		if !eval[bool](p, fmt.Sprintf("(function (b) { if (b) b.click(); return !!b })(document.querySelector('figure.plot button[data-save=%s]'))", kind)) {
			t.Errorf("no figure can be saved as %s", kind)
			continue
		}
		text := saved(t, filepath.Join(dir, "*."+kind))
		var err error
		switch kind {
		case "svg":
			var doc struct {
				XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
				Title   string   `xml:"title"`
			}
			if err = xml.Unmarshal(text, &doc); err == nil && doc.Title == "" {
				err = errors.New("no title")
			}
		case "png":
			_, err = png.Decode(bytes.NewReader(text))
		case "csv":
			var rows [][]string
			if rows, err = csv.NewReader(bytes.NewReader(text)).ReadAll(); err == nil && len(rows) < 2 {
				err = errors.New("no figures")
			}
		}
		if err != nil {
			t.Errorf("saved as %s: %v: %.200s", kind, err, text)
		}
	}
}

// saved waits for a file whose name matches, whole, and reads it.
func saved(t *testing.T, pattern string) []byte {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < patience; <-tick.C {
		if names, _ := filepath.Glob(pattern); len(names) > 0 {
			text, err := os.ReadFile(names[0])
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 0 { // it has its name when it is whole, but not before
				return text
			}
		}
	}
	t.Fatalf("no %s was saved", pattern)
	return nil
}
