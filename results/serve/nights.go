package serve

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
)

// Night is one night of a suite, as pages show it.
type Night struct {
	ID      string // its directory
	Suite   string
	Started time.Time
	Verdict string // "pass", "fail"; "running" of one that goes on, "cut off" of one that was killed
	Title   string // a line
	// Text writes what the night came to, line by line: its items, what became worse, and what explains it.
	Text func(io.Writer) error
}

// Class is the CSS class of its verdict.
func (n Night) Class() string { return row{Verdict: n.Verdict}.Class() }

// mostNight bounds the text of a night.
const mostNight = 4 << 20

// nightsOf are the nights that there are.
func (s *Server) nightsOf() ([]Night, error) {
	if s.opt.Nights == nil {
		return nil, nil
	}
	return s.opt.Nights()
}

// nights is the list of nights.
func (s *Server) nights(w http.ResponseWriter, r *http.Request) error {
	return s.show(w, r, &s.pages, "/nights", now(), func(w io.Writer, p page) error {
		p.Title, p.Here, p.Watch = "Nights", "nights", "-"
		all, err := s.nightsOf()
		if err != nil {
			return err
		}
		return pages.ExecuteTemplate(w, "nights", struct {
			page
			Nights []Night
		}{p, all})
	})
}

// night is one of them.
func (s *Server) night(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	return s.show(w, r, &s.pages, "/nights/"+url.PathEscape(id)+"/", now(), func(w io.Writer, p page) error {
		all, err := s.nightsOf()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(n Night) bool { return n.ID == id })
		if i < 0 {
			return fmt.Errorf("night %s: %w", id, fs.ErrNotExist)
		}
		p.Title, p.Here, p.Watch = all[i].Suite, "nights", "-"
		return all[i].write(w, p)
	})
}

// write writes the page of a night.
func (n Night) write(w io.Writer, p page) error {
	said, err := n.said()
	if err != nil {
		return err
	}
	return pages.ExecuteTemplate(w, "night", struct {
		page
		Night Night
		Said  string
	}{p, n, said})
}

// said is what a night came to, or the beginning of it.
func (n Night) said() (string, error) {
	text := bounded.NewPrefix(mostNight)
	if err := n.Text(text); err != nil && !text.Over() {
		return "", err
	}
	return strings.ToValidUTF8(string(text.Bytes()), ""), nil
}

// WriteNight writes the page of a night as one file, which needs no server.
func WriteNight(w io.Writer, n Night) error {
	p, err := alone()
	if err != nil {
		return err
	}
	p.Title = n.Suite
	return n.write(w, p)
}
