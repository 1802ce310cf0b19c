package sharp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/sharp"
)

func guid(host int) string { return inventory.GUID(0xe41d2d0300000000 + uint64(host)).String() }

// ufm answers requests about reservations as UFM does, for a fabric with the ports guid(1) to
// guid(4).
type ufm struct {
	token   string // that requests must have; empty: none
	byPKeys bool   // partitions make reservations: requests are accepted and do nothing
	partial bool   // less than was asked for is granted, also where the request says that it must not be

	mu   sync.Mutex
	held map[string]reservation // by id
}

// reservation is one in answers.
type reservation struct {
	PKey  string   `json:"pkey"`
	GUIDs []string `json:"guids"`
}

// newUFM serves u for the test and returns its address.
func newUFM(t *testing.T, u *ufm) string {
	t.Helper()
	u.held = map[string]reservation{}
	mux := http.NewServeMux()
	for _, path := range []string{sharp.PathAllocate, sharp.PathAllocateV3, sharp.PathReservations} {
		mux.HandleFunc("GET "+path, u.list)
		mux.HandleFunc("GET "+path+"/{app}", u.get)
		mux.HandleFunc("POST "+path, u.put)
		mux.HandleFunc("DELETE "+path+"/{app}", u.delete)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.token != "" && r.Header.Get("Authorization") != "Basic "+u.token {
			http.Error(w, "wrong or no token", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func answer(w http.ResponseWriter, code int, v any) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func (u *ufm) list(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, u.held) }

func (u *ufm) get(w http.ResponseWriter, r *http.Request) {
	app := r.PathValue("app")
	res, ok := u.held[app]
	if !ok {
		http.Error(w, "no such reservation", http.StatusNotFound)
		return
	}
	answer(w, http.StatusOK, map[string]reservation{app: res})
}

func (u *ufm) delete(w http.ResponseWriter, r *http.Request) {
	app := r.PathValue("app")
	if _, ok := u.held[app]; !ok {
		http.Error(w, "no such reservation", http.StatusNotFound)
		return
	}
	delete(u.held, app)
	answer(w, http.StatusOK, struct{}{})
}

// put creates a reservation.
func (u *ufm) put(w http.ResponseWriter, r *http.Request) {
	var in struct {
		App string `json:"app_id"`
		reservation
	}
	refuse := func(code int, format string, args ...any) { http.Error(w, fmt.Sprintf(format, args...), code) }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(http.StatusBadRequest, "body: %v", err)
		return
	}
	if in.App == "" || len(in.GUIDs) == 0 {
		refuse(http.StatusBadRequest, "app_id or guids are missing")
		return
	}
	if u.byPKeys {
		answer(w, http.StatusAccepted, struct{}{})
		return
	}
	if in.PKey == "" {
		in.PKey = "0x7fff" // the management partition
	}
	granted := reservation{PKey: in.PKey}
	missing := 0
	for _, text := range in.GUIDs {
		id, err := inventory.ParseGUID(text)
		port := id.String()
		switch {
		case err != nil || slices.Contains(granted.GUIDs, port):
			refuse(http.StatusBadRequest, "%s is no GUID, or named twice", text)
			return
		case !slices.Contains([]string{guid(1), guid(2), guid(3), guid(4)}, port):
			missing++
		default:
			granted.GUIDs = append(granted.GUIDs, port)
		}
	}
	_, exists := u.held[in.App]
	switch {
	case granted.GUIDs == nil || missing > 0 && !u.partial && r.URL.Query().Get("partially_alloc") == "false":
		refuse(http.StatusBadRequest, "not in the fabric")
		return
	case exists:
		refuse(http.StatusBadRequest, "reservation %s exists already", in.App)
		return
	}
	u.held[in.App] = granted
	if missing > 0 {
		answer(w, http.StatusPartialContent, struct{}{})
		return
	}
	answer(w, http.StatusAccepted, struct{}{})
}

// TestReservations runs UFM's client against the emulated one: every code that UFM has.
func TestReservations(t *testing.T) {
	address := newUFM(t, &ufm{token: "secret"})
	for _, path := range []string{sharp.PathAllocate, sharp.PathAllocateV3, sharp.PathReservations} {
		t.Run(path, func(t *testing.T) {
			ctx := t.Context()
			client, err := sharp.NewReservations(sharp.UFM{URL: address, Path: path, Token: "secret"})
			if err != nil {
				t.Fatal(err)
			}
			want := sharp.Reservation{App: "job 7/x", PKey: "0x12", GUIDs: []string{guid(1), guid(2)}}
			got, err := client.Create(ctx, want)
			if err != nil || !cmp.Equal(got, want) {
				t.Fatalf("create: %+v, %v", got, err)
			}
			if _, err := client.Create(ctx, want); !errors.Is(err, sharp.ErrRefused) || !strings.Contains(err.Error(), "exists already") {
				t.Errorf("create again: %v", err)
			}
			if all, err := client.List(ctx); err != nil || !cmp.Equal(all, []sharp.Reservation{got}) {
				t.Errorf("list: %+v, %v", all, err)
			}
			whole := sharp.Reservation{App: "b", GUIDs: []string{guid(1), "0x99"}}
			if _, err := client.Create(ctx, whole); !errors.Is(err, sharp.ErrRefused) {
				t.Errorf("whole or nothing: %v", err)
			}
			if _, err := client.Get(ctx, "b"); !errors.Is(err, sharp.ErrNotFound) {
				t.Errorf("nothing: %v", err)
			}
			for _, bad := range [][]string{nil, {"zz"}, {guid(1), guid(1)}, {"0"}} {
				if _, err := client.Create(ctx, sharp.Reservation{App: "c", GUIDs: bad}); err == nil {
					t.Errorf("created with %q", bad)
				}
			}
			for i, want := range []error{nil, sharp.ErrNotFound} {
				if err := client.Delete(ctx, "job 7/x"); !errors.Is(err, want) {
					t.Errorf("delete for the %d. time: %v", i+1, err)
				}
			}
			stranger, err := sharp.NewReservations(sharp.UFM{URL: address, Path: path, User: "admin", Password: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stranger.List(ctx); !errors.Is(err, sharp.ErrDenied) {
				t.Errorf("without the token: %v", err)
			}
		})
	}
	resp, err := http.Get(address + "/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("elsewhere: %s", resp.Status)
	}
}

// TestReservationsInPart: a UFM that grants less than was asked for is found out, and what it granted is told.
func TestReservationsInPart(t *testing.T) {
	client, err := sharp.NewReservations(sharp.UFM{URL: newUFM(t, &ufm{partial: true})})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Create(t.Context(), sharp.Reservation{App: "a", GUIDs: []string{guid(3), "0x99", guid(4)}})
	var partial *sharp.PartialError
	if !errors.As(err, &partial) || !slices.Equal(partial.Missing, []string{"0x99"}) || !errors.Is(err, sharp.ErrGranted) {
		t.Errorf("in part: %v", err)
	}
	if !slices.Equal(got.GUIDs, []string{guid(3), guid(4)}) {
		t.Errorf("granted in part: %+v", got)
	}
}

// TestReservationsIgnored: UFM says that it accepted, and does nothing, because partitions
// make the reservations. The client finds out.
func TestReservationsIgnored(t *testing.T) {
	address := newUFM(t, &ufm{byPKeys: true})
	client, err := sharp.NewReservations(sharp.UFM{URL: address, Settle: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Create(t.Context(), sharp.Reservation{App: "a", GUIDs: []string{guid(1)}})
	if err == nil || !strings.Contains(err.Error(), "Accepted, but: not there") {
		t.Errorf("create: %v", err)
	}
}
