package serve

import (
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/inabench/inabench/results/history"
)

// mostChoices is how many runs a page offers to be compared.
const mostChoices = 200

// compare is the page of two runs side by side: ?a= and ?b= are their directories.
func (s *Server) compare(w http.ResponseWriter, r *http.Request) error {
	rows, version, err := s.look(r.Context())
	if err != nil {
		return err
	}
	if err := short(r); err != nil {
		return err
	}
	a, b, all := r.URL.Query().Get("a"), r.URL.Query().Get("b"), r.URL.Query().Get("all") != ""
	for _, dir := range []string{a, b} {
		if dir == "" {
			continue
		}
		if _, err := s.find(r.Context(), dir); err != nil {
			return err
		}
	}
	asked := url.Values{"a": {a}, "b": {b}}
	if all {
		asked.Set("all", "yes")
	}
	return s.show(w, r, &s.histories, "/compare?"+asked.Encode(), version, func(w io.Writer, p page) error {
		return s.compareOf(w, p, rows, version, a, b, all)
	})
}

func (s *Server) compareOf(w io.Writer, p page, rows []row, version, a, b string, all bool) error {
	p.Title, p.Here, p.Version, p.Watch = "Compare", "compare", version, "-"
	data := struct {
		page
		A, B    string
		All     bool
		Choices []row
		Pair    *history.Pair
		Class   string
		Head    []string
		Rows    [][]string
		Left    int
	}{page: p, A: a, B: b, All: all, Choices: rows[:min(len(rows), mostChoices)]}
	if a != "" && b != "" {
		var err error
		if data.Pair, err = history.Compare(s.stopping, s.index, filepath.Join(s.root, a), filepath.Join(s.root, b), history.PairOptions{}); err != nil {
			return err
		}
		data.Class = string(data.Pair.Outcome())
		data.Head, data.Rows, data.Left = data.Pair.Table(all)
		for i, h := range data.Head {
			data.Head[i] = strings.ToLower(h)
		}
	}
	return pages.ExecuteTemplate(w, "compare", data)
}

// before returns the directory of the same experiment's previous run that is readable and not running; empty: none.
func before(rows []row, of row) string {
	seen := false
	for _, r := range rows { // the newest first
		if r.Dir == of.Dir {
			seen = true
		} else if seen && r.Experiment == of.Experiment && r.Verdict != running && r.Verdict != unreadable {
			return r.Dir
		}
	}
	return ""
}
