package serve

import (
	"bytes"
	"cmp"
	"html/template"
	"io"
	"mime"
	"net/http"
	"strings"
)

// saveKey is what a request for a page has in its query where the page is wanted as one file.
const saveKey = "save"

// show answers with the page at an address of this server, which is kept, or made by do of what it is to be made of and
// of what all pages have. Who wants to save it gets a file that needs no server: styles are in it, scripts and forms are
// left out, and its links lead here.
func (s *Server) show(w http.ResponseWriter, r *http.Request, kept *rendered, address, of string, do func(io.Writer, page) error) error {
	sep := "?"
	if strings.Contains(address, "?") {
		sep = "&"
	}
	save := address + sep + saveKey + "=yes"
	if !r.URL.Query().Has(saveKey) {
		return answer(w, r, kept, htmlPage, address, of, func(w io.Writer) error { return do(w, page{Save: save}) })
	}
	here := s.origin(r)
	text, err := kept.get(r.Context(), save+" "+here, of, func(w io.Writer) error {
		p, err := alone()
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := do(&b, p); err != nil {
			return err
		}
		_, err = w.Write(bytes.ReplaceAll(b.Bytes(), []byte(`href="/`), []byte(`href="`+template.HTMLEscapeString(here)+"/")))
		return err
	})
	if err != nil {
		return err
	}
	name := cmp.Or(strings.ReplaceAll(strings.Trim(r.URL.Path, "/"), "/", "-"), "runs") + ".html"
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	write(w, htmlPage, text)
	return nil
}

// origin is how who asks reaches this server.
func (s *Server) origin(r *http.Request) string {
	if s.opt.Certificate != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// alone is what a page has that needs no server.
func alone() (page, error) {
	sheet, err := style()
	return page{Sheet: template.CSS(sheet) + "form{display:none}\n"}, err
}
