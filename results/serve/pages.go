package serve

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/fidelity"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/report"
)

//go:embed pages.html.tmpl style.css app.js icon.svg
var assets embed.FS

var pages = template.Must(template.New("pages").Funcs(template.FuncMap{
	"local":   func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") },
	"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"key":     func(t time.Time) int64 { return t.UnixNano() },
	"percent": human.Percent,
	"of":      human.Quantity,
	"size":    func(bytes int64) string { return human.Quantity(float64(bytes), "B") },
	"metric":  historyOf,
	"runs":    func(n int) string { return human.Plural(n, "run") },
	"measure": human.Measure,
}).ParseFS(assets, "pages.html.tmpl"))

// historyOf is the address of a metric's history.
func historyOf(experiment, metric string) string {
	return "/history?" + url.Values{"experiment": {experiment}, "metric": {metric}}.Encode()
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, name := range []string{"style.css", "app.js", "icon.svg"} {
		mux.HandleFunc("GET /"+name, asset(name))
	}
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /{$}", s.page(s.list))
	mux.HandleFunc("GET /runs/{dir}/{$}", s.page(s.run))
	mux.HandleFunc("GET /runs/{dir}/report.html", s.page(s.report))
	mux.HandleFunc("GET /runs/{dir}/files/{name...}", s.page(s.file))
	mux.HandleFunc("GET /compare", s.page(s.compare))
	mux.HandleFunc("GET /nights", s.page(s.nights))
	mux.HandleFunc("GET /nights/{id}/{$}", s.page(s.night))
	mux.HandleFunc("GET /history", s.page(s.history))
	mux.HandleFunc("GET /history.json", s.page(s.historyJSON))
	return mux
}

// style is the style sheet of all pages.
func style() ([]byte, error) {
	text, err := assets.ReadFile("style.css")
	return slices.Concat([]byte(plot.Style), text), err
}

func asset(name string) http.HandlerFunc {
	text, err := assets.ReadFile(name)
	if name == "style.css" {
		text, err = style()
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if err != nil { // not of what is embedded
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
	}
}

// badQuery is a request that makes no sense.
type badQuery struct{ error }

// page answers with what do writes, or says why it cannot.
func (s *Server) page(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := do(w, r)
		var bad badQuery
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			http.Error(w, "not found: "+r.URL.Path, http.StatusNotFound)
		case errors.As(err, &bad):
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// Kinds of what is answered.
const (
	htmlPage = "text/html; charset=utf-8"
	jsonText = "application/json"
)

// answer is with a page that is kept, or made by do of what it is to be made of.
func answer(w http.ResponseWriter, r *http.Request, kept *rendered, kind, address, of string, do func(io.Writer) error) error {
	text, err := kept.get(r.Context(), address, of, do)
	if err == nil {
		write(w, kind, text)
	}
	return err
}

// write answers with a text. Who asked may be gone.
func write(w http.ResponseWriter, kind string, text []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text)
}

// page is what all pages have.
type page struct {
	Title   string
	Here    string // "runs", "history", "compare" or "nights"; empty: elsewhere
	Version string // of the store, for events
	Watch   string // the run that events are wanted of; empty: all

	Save  string       // the address of the page as one file
	Sheet template.CSS // the style sheet of a page that is one file; empty: it is had of the server, as are scripts
}

// list is all runs.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	rows, version, err := s.look(r.Context())
	if err != nil {
		return err
	}
	return s.show(w, r, &s.pages, "/", version, func(w io.Writer, p page) error { return s.listOf(w, p, rows, version) })
}

func (s *Server) listOf(w io.Writer, p page, rows []row, version string) error {
	p.Title, p.Here, p.Version = "Runs", "runs", version
	root, err := filepath.Abs(s.root)
	if err != nil {
		root = s.root
	}
	if p.Sheet != "" { // who has the file need not know where the store is
		root = filepath.Base(root)
	}
	data := struct {
		page
		Root, Count                    string
		Rows                           []row
		Experiments, Drivers, Verdicts []string
	}{page: p, Root: root, Rows: rows}
	copies := 0
	add := func(to *[]string, v string) {
		if v != "" && !slices.Contains(*to, v) {
			*to = append(*to, v)
		}
	}
	for _, row := range rows {
		add(&data.Experiments, row.Experiment)
		add(&data.Drivers, row.Driver)
		add(&data.Verdicts, row.Verdict)
		if row.Copy {
			copies++
		}
	}
	if data.Count = human.Plural(len(rows)-copies, "run"); copies > 0 { // as app.js writes it
		data.Count += ", " + human.Plural(copies, "duplicate")
	}
	slices.Sort(data.Experiments)
	slices.Sort(data.Drivers)
	slices.Sort(data.Verdicts)
	return pages.ExecuteTemplate(w, "list", data)
}

// runFile is a file of a run directory.
type runFile struct {
	Name string
	Size int64
}

// run is one run: what it came to or how far it is, and its files.
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	which, err := s.find(r.Context(), r.PathValue("dir"))
	if err != nil {
		return err
	}
	rows, version, err := s.look(r.Context())
	if err != nil {
		return err
	}
	return s.show(w, r, &s.pages, "/runs/"+url.PathEscape(which.Dir)+"/", version+" "+now(), func(w io.Writer, p page) error {
		return s.runOf(w, p, which, before(rows, which), version)
	})
}

// now tells what is made now from what was made more than shownTime before: files come and go that nobody is told of, and a
// run that goes on is another with each reading.
func now() string { return strconv.FormatInt(time.Now().UnixNano()/int64(shownTime), 10) }

// shownTime is for how long such pages are good.
const shownTime = 2 * time.Second

func (s *Server) runOf(w io.Writer, p page, which row, before, version string) (err error) {
	p.Title, p.Version, p.Watch = cmp.Or(which.Experiment, which.Dir), version, which.Dir
	data := struct {
		page
		Row     row
		Rec     *results.Record
		Error   string
		Took    string
		Live    *live
		Before  string // the run of the experiment before it; empty: none
		Files   []runFile
		Metrics []string
	}{page: p, Row: which, Before: before}
	if data.Files, err = s.files(which.Dir); err != nil {
		return err
	}
	dir := filepath.Join(s.root, which.Dir)
	if data.Rec, err = results.ReadRecord(dir); err != nil {
		data.Rec, data.Error = &results.Record{}, err.Error()
		if p.Sheet != "" {
			data.Error = strings.ReplaceAll(data.Error, dir, which.Dir)
		}
	}
	if data.Rec.Complete() {
		data.Took = human.Elapsed(data.Rec.Finished.Sub(data.Rec.Started))
	}
	for _, p := range data.Rec.Points {
		for _, ph := range p.Phases {
			for _, f := range ph.Figures {
				if f.Kind != results.Predicted && !slices.Contains(data.Metrics, f.Metric) {
					data.Metrics = append(data.Metrics, f.Metric)
				}
			}
		}
	}
	slices.Sort(data.Metrics)
	if which.Verdict == running {
		data.Live = liveOf(dir, data.Rec)
	}
	return pages.ExecuteTemplate(w, "run", data)
}

// report is the page that a run leaves behind, made anew of its record and samples.
func (s *Server) report(w http.ResponseWriter, r *http.Request) error {
	which, err := s.find(r.Context(), r.PathValue("dir"))
	if err != nil {
		return err
	}
	version := strconv.Itoa(which.since)
	if which.Verdict == running {
		version = now()
	}
	text, err := s.reports.get(r.Context(), r.URL.Path, version, func(w io.Writer) error { return s.reportOf(w, which) })
	if err != nil {
		return err
	}
	w.Header().Set("Content-Security-Policy", reportPolicy)
	write(w, htmlPage, text)
	return nil
}

func (s *Server) reportOf(w io.Writer, which row) error {
	dir := &results.Dir{Path: filepath.Join(s.root, which.Dir)}
	rec, err := results.ReadRecord(dir.Path)
	if err != nil {
		return err
	}
	rec, samples, err := dir.SamplesDrawn(rec)
	if err != nil {
		return err
	}
	return report.WriteReport(w, rec, samples, s.beside(s.stopping, which))
}

// beside is what is known beside a run's record; what cannot be had is not shown.
func (s *Server) beside(ctx context.Context, r row) (b report.Beside) {
	if r.Verdict == running {
		return b
	}
	b.Past, _ = s.index.Past(ctx, r.Dir)
	b.Fidelity, _ = fidelity.Page(filepath.Join(s.root, r.Dir))
	return b
}

// open opens a run's directory: one, and nothing that somebody has put in its place since it was found.
func (s *Server) open(dir string) (*os.Root, error) {
	path := filepath.Join(s.root, dir)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// unwaited are the files of a directory, the opening of which waits for nobody: a FIFO in the place of a directory that was
// there a moment ago has nothing to read.
type unwaited struct{ *os.Root }

func (r unwaited) open(name string) (*os.File, error) {
	return r.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// Open implements fs.FS.
func (r unwaited) Open(name string) (fs.File, error) { return r.open(name) }

// ReadDir implements fs.ReadDirFS, for as many as are looked at.
func (r unwaited) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := r.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.ReadDir(maxLooked)
	if err == io.EOF {
		err = nil
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, err
}

// maxFiles is how many files of a run are listed, of as many names as are looked at, in directories as deep.
const (
	maxFiles  = 1000
	maxLooked = 10_000
	maxDeep   = 16
)

// files are those of a run directory, those of its directories included.
func (s *Server) files(dir string) ([]runFile, error) {
	root, err := s.open(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out []runFile
	looked := 0
	err = fs.WalkDir(unwaited{root}, ".", func(name string, e fs.DirEntry, err error) error {
		switch looked++; {
		case looked > maxLooked:
			return fs.SkipAll
		case err == nil && e.IsDir() && strings.Count(name, "/") >= maxDeep:
			return fs.SkipDir
		case err != nil && name != ".":
			return nil // it went away, or is not for us
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(e.Name(), "."): // being written
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.Type().IsRegular():
			if info, err := e.Info(); err == nil {
				out = append(out, runFile{name, info.Size()})
			}
			if len(out) == maxFiles {
				return fs.SkipAll
			}
		}
		return nil
	})
	return out, err
}

// file is one of a run's files, to be kept. A link that leads out of the run directory leads nowhere.
func (s *Server) file(w http.ResponseWriter, r *http.Request) error {
	which, err := s.find(r.Context(), r.PathValue("dir"))
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	if !fs.ValidPath(name) || slices.ContainsFunc(strings.Split(name, "/"), func(p string) bool { return strings.HasPrefix(p, ".") }) {
		return fs.ErrNotExist
	}
	root, err := s.open(which.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if st, err := root.Lstat(name); err != nil || !st.Mode().IsRegular() {
		return fs.ErrNotExist
	}
	f, err := unwaited{root}.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return fs.ErrNotExist
	}
	h := w.Header()
	h.Set("Content-Type", contentType(name))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": which.Dir + "-" + path.Base(name)}))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	if which.Verdict == running { // it grows
		h.Set("Content-Length", strconv.FormatInt(st.Size(), 10))
		if r.Method == http.MethodGet {
			_, _ = io.CopyN(w, f, st.Size())
		}
		return nil
	}
	http.ServeContent(w, r, "", st.ModTime(), f)
	return nil
}

// contentType is by the name alone: nothing that a run wrote is a page of this server.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".json":
		return "application/json"
	case ".csv":
		return "text/csv; charset=utf-8"
	case ".gz":
		return "application/gzip"
	}
	return "application/octet-stream"
}
