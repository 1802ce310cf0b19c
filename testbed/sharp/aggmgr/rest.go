package aggmgr

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/sharp"
)

// maxBody bounds the body of a request, bytes.
const maxBody = 1 << 20

// Handler serves reservations as UFM does, under all of the paths that its manuals have had.
// A reservation that is deleted lets its jobs run on and takes no new ones.
func (m *Manager) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{sharp.PathAllocate, sharp.PathAllocateV3, sharp.PathReservations} {
		mux.HandleFunc("GET "+path, m.listReservations)
		mux.HandleFunc("GET "+path+"/{app}", m.getReservation)
		mux.HandleFunc("POST "+path, m.createReservation)
		mux.HandleFunc("PUT "+path+"/{app}", m.updateReservation)
		mux.HandleFunc("DELETE "+path+"/{app}", m.deleteReservation)
	}
	for _, path := range []string{"/app/sharp/resources", "/ufmRest/app/sharp/resources", "/ufmRestV3/app/sharp/resources"} {
		mux.HandleFunc("POST "+path, m.createReservation)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t := m.cfg.Token; t != "" && r.Header.Get("Authorization") != "Basic "+t {
			http.Error(w, "wrong or no token", http.StatusUnauthorized)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
	})
}

// reservationJSON is a reservation in answers.
type reservationJSON struct {
	PKey  string   `json:"pkey"`
	GUIDs []string `json:"guids"`
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // whoever asked is gone otherwise
}

func (m *Manager) listReservations(w http.ResponseWriter, _ *http.Request) {
	all := map[string]reservationJSON{}
	m.mu.Lock()
	for app, r := range m.reservations {
		all[app] = reservationJSON{r.PKey, r.GUIDs}
	}
	m.mu.Unlock()
	answer(w, http.StatusOK, all)
}

func (m *Manager) getReservation(w http.ResponseWriter, r *http.Request) {
	app := r.PathValue("app")
	m.mu.Lock()
	res := m.reservations[app]
	m.mu.Unlock()
	if res == nil {
		http.Error(w, fmt.Sprintf("there is no reservation %q", app), http.StatusNotFound)
		return
	}
	answer(w, http.StatusOK, map[string]reservationJSON{app: {res.PKey, res.GUIDs}})
}

func (m *Manager) createReservation(w http.ResponseWriter, r *http.Request) {
	m.putReservation(w, r, "", r.URL.Query().Get("partially_alloc") != "false")
}

func (m *Manager) updateReservation(w http.ResponseWriter, r *http.Request) {
	m.putReservation(w, r, r.PathValue("app"), true)
}

// putReservation creates a reservation, or replaces that of an id.
func (m *Manager) putReservation(w http.ResponseWriter, r *http.Request, replaces string, partial bool) {
	var in struct {
		App   string   `json:"app_id"`
		PKey  string   `json:"pkey"`
		GUIDs []string `json:"guids"`
	}
	refuse := func(code int, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		m.logf("RESERVE", "warn", "Reservation refused: %s", text)
		http.Error(w, text, code)
	}
	if err := bounded.Decode(r.Body, bounded.Config, &in); err != nil {
		refuse(http.StatusBadRequest, "body: %v", err)
		return
	}
	if in.App == "" {
		in.App = replaces
	}
	switch {
	case in.App == "":
		refuse(http.StatusBadRequest, "app_id is missing")
		return
	case replaces != "" && in.App != replaces:
		refuse(http.StatusBadRequest, "app_id is %q in the body and %q in the path", in.App, replaces)
		return
	case len(in.GUIDs) == 0:
		refuse(http.StatusBadRequest, "reservation %s: guids are missing", in.App)
		return
	}
	if in.PKey == "" {
		in.PKey = "0x7fff" // the management partition
	}
	if m.settings.ByPKeys {
		m.logf("RESERVE", "warn", "Reservation %s ignored: reservation_auto_by_pkeys is TRUE", in.App)
		answer(w, http.StatusAccepted, struct{}{})
		return
	}
	res := &reservation{Reservation: sharp.Reservation{App: in.App, PKey: in.PKey}, hosts: map[int]bool{}}
	var missing []string
	for _, text := range in.GUIDs {
		id, err := sharp.ParseGUID(text)
		if err != nil {
			refuse(http.StatusBadRequest, "reservation %s: %v", in.App, err)
			return
		}
		h, ok := m.g.guid[id] // never changes
		switch {
		case !ok:
			missing = append(missing, text)
		case res.hosts[h]:
			refuse(http.StatusBadRequest, "reservation %s: %s is named twice", in.App, text)
			return
		default:
			res.hosts[h] = true
			res.GUIDs = append(res.GUIDs, sharp.FormatGUID(id))
		}
	}
	if len(res.hosts) == 0 || missing != nil && !partial {
		refuse(http.StatusBadRequest, "reservation %s: not in the fabric: %s", in.App, strings.Join(missing, ", "))
		return
	}
	m.mu.Lock()
	old := m.reservations[in.App]
	wrong := (old == nil) != (replaces == "")
	if !wrong {
		if old != nil {
			// Jobs that run point to it and count in it.
			old.Reservation, old.hosts = res.Reservation, res.hosts
		} else {
			m.reservations[in.App] = res
		}
	}
	m.mu.Unlock()
	switch {
	case wrong && replaces == "":
		refuse(http.StatusBadRequest, "reservation %s exists already", in.App)
	case wrong:
		refuse(http.StatusNotFound, "there is no reservation %q", in.App)
	case missing != nil:
		m.logf("RESERVE", "warn", "Reservation %s without %s, which are not in the fabric", in.App, strings.Join(missing, ", "))
		answer(w, http.StatusPartialContent, struct{}{})
	default:
		m.logf("RESERVE", "info", "Reservation %s: %d host ports", in.App, len(res.hosts))
		answer(w, http.StatusAccepted, struct{}{})
	}
}

func (m *Manager) deleteReservation(w http.ResponseWriter, r *http.Request) {
	app := r.PathValue("app")
	if m.settings.ByPKeys {
		m.logf("RESERVE", "warn", "Deletion of reservation %s ignored: reservation_auto_by_pkeys is TRUE", app)
		answer(w, http.StatusAccepted, struct{}{})
		return
	}
	m.mu.Lock()
	_, ok := m.reservations[app]
	delete(m.reservations, app)
	m.mu.Unlock()
	if !ok {
		http.Error(w, fmt.Sprintf("there is no reservation %q", app), http.StatusNotFound)
		return
	}
	m.logf("RESERVE", "info", "Reservation %s deleted", app)
	answer(w, http.StatusOK, struct{}{})
}
