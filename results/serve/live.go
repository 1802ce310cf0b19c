package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// alive is how often an open stream hears something, so that both sides notice when the other
// one is gone.
const alive = 15 * time.Second

// change is an event: runs that are new or otherwise than they were, and runs that went away.
type change struct {
	Rows []changedRow `json:"rows"`
	Gone []string     `json:"gone"`
}

type changedRow struct {
	Dir     string `json:"dir"`
	Verdict string `json:"verdict"`
	HTML    string `json:"html"` // its row of the list
}

// events streams what changes in the store. The query names the version that the page was made
// of, and ?run= a run that is all the page is about.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	version := r.URL.Query().Get("since")
	if id := r.Header.Get("Last-Event-ID"); id != "" { // the browser connects again
		version = id
	}
	only := r.URL.Query().Get("run")
	out := http.NewResponseController(w)
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second)) // of a page that hangs
		_, err := fmt.Fprint(w, text)
		return err == nil && out.Flush() == nil
	}
	_ = out.SetReadDeadline(time.Time{}) // which is the request's
	w.Header().Set("Content-Type", "text/event-stream")
	if !send("retry: 1000\n\n") || r.Method == http.MethodHead {
		return
	}
	tick := time.NewTicker(s.opt.Interval)
	defer tick.Stop()
	trouble := ""
	for said := time.Now(); ; {
		n, err := s.news(r.Context(), version)
		text := ""
		switch {
		case err != nil && r.Context().Err() != nil:
			return
		case err != nil:
			// The page shows what it has; the next look may succeed.
			if trouble != err.Error() {
				trouble = err.Error()
				text = event("trouble", version, trouble)
			}
		case n.all:
			send(event("reload", n.version, ""))
			return
		default:
			version = n.version
			text = describe(n, only)
			if trouble != "" {
				trouble, text = "", event("trouble", version, "")+text
			}
		}
		if text == "" && time.Since(said) > alive {
			text = ": here\n\n"
		}
		if text != "" {
			if !send(text) {
				return
			}
			said = time.Now()
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.stopping.Done():
			send(event("bye", version, ""))
			return
		case <-tick.C:
		}
	}
}

// describe is the event of what changed; "" if nothing did.
func describe(n news, only string) string {
	c := change{Rows: []changedRow{}, Gone: []string{}}
	for _, r := range n.rows {
		if only != "" && r.Dir != only {
			continue
		}
		var b bytes.Buffer
		if err := pages.ExecuteTemplate(&b, "row", r); err != nil {
			continue // not of a template that is tested
		}
		c.Rows = append(c.Rows, changedRow{r.Dir, r.Verdict, b.String()})
	}
	for _, dir := range n.gone {
		if only == "" || dir == only {
			c.Gone = append(c.Gone, dir)
		}
	}
	text := ""
	if len(c.Rows)+len(c.Gone) > 0 {
		text = event("runs", n.version, c)
	}
	return text
}

// event is the text of a server-sent event.
func event(name, id string, data any) string {
	text, err := json.Marshal(data) // on one line
	if err != nil {
		text = []byte("null")
	}
	return fmt.Sprintf("event: %s\nid: %s\ndata: %s\n\n", name, id, text)
}
