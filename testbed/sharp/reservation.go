package sharp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory"
)

// Paths of the reservations in UFM's REST API, by version.
const (
	PathAllocate     = "/ufmRest/app/sharp/allocate_resources" // 6.10 and later, and the default
	PathAllocateV3   = "/ufmRestV3/app/sharp/allocate_resources"
	PathReservations = "/ufmRest/resources/sharp/reservations" // 6.9
)

var (
	// ErrRefused is wrapped when UFM says 400: the request is not one, or SHARP does not
	// want it.
	ErrRefused = errors.New("refused")
	// ErrNotFound is wrapped when UFM says 404: there is no such reservation, or another
	// version has another path.
	ErrNotFound = errors.New("no such reservation")
	// ErrDenied is wrapped when UFM says 401 or 403: token, user or password are wrong.
	ErrDenied = errors.New("not allowed")
	// ErrRemoved is wrapped when UFM lists reservations and has no way to change them, as
	// since its release of April 2026: partitions make them.
	ErrRemoved = errors.New("this UFM no longer creates, changes or deletes reservations")
	// ErrGranted is wrapped when less was granted than asked for; see PartialError.
	ErrGranted = errors.New("not all was granted")
)

// Reservation is a set of host ports whose jobs may use SHARP.
type Reservation struct {
	App   string   // its id; jobs name it as their reservation key
	PKey  string   // partition, such as "0x12"; empty: UFM's default
	GUIDs []string // host ports, such as "0x248a0703008a850a"
}

// StatusError is an answer that is not a success.
type StatusError struct {
	Op     string // such as "create reservation job7"
	Code   int    // of HTTP
	Answer string // the first kilobyte of it
}

// Error says what was being done, the code, and UFM's own words.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.Op, e.Code, http.StatusText(e.Code))
	if e.Answer != "" {
		text += ": " + e.Answer
	}
	return text
}

// Is makes errors.Is find ErrRefused, ErrNotFound and ErrDenied.
func (e *StatusError) Is(target error) bool {
	switch target {
	case ErrRefused:
		return e.Code == http.StatusBadRequest
	case ErrNotFound:
		return e.Code == http.StatusNotFound
	case ErrDenied:
		return e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden
	}
	return false
}

// PartialError says that a reservation exists, but not with all that was asked for.
type PartialError struct {
	App     string
	Missing []string // host ports that were asked for and not granted, as asked
}

// Error names the host ports.
func (e *PartialError) Error() string {
	return fmt.Sprintf("reservation %s: %v: without %s", e.App, ErrGranted, strings.Join(e.Missing, ", "))
}

// Unwrap is ErrGranted.
func (e *PartialError) Unwrap() error { return ErrGranted }

// UFM says where reservations are and who asks.
type UFM struct {
	URL  string // of the server, such as "https://ufm1"
	Path string // empty: PathAllocate
	// Token is sent as "Authorization: Basic <token>", which goes with PathAllocateV3. User
	// and Password are those of HTTP, in its place.
	Token, User, Password string
	// Client carries the requests; nil: http.DefaultClient. UFM's certificate often is its own.
	Client *http.Client
	// Settle is for how long what was accepted may take to be there; 0: 10 s.
	Settle time.Duration
}

// Reservations is a client of UFM's reservations. It is safe for concurrent use.
//
// Source: UFM Enterprise REST API guide 6.9 to 6.24, "NVIDIA SHARP REST API" and "Access
// Tokens API".
type Reservations struct {
	ufm  UFM
	base *url.URL
}

// NewReservations returns a client; nothing is asked yet.
func NewReservations(u UFM) (*Reservations, error) {
	base, err := url.Parse(u.URL)
	if err != nil {
		return nil, fmt.Errorf("address of UFM: %w", err)
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("address of UFM: %q is not like https://ufm1", u.URL)
	}
	if u.Path == "" {
		u.Path = PathAllocate
	}
	if u.Client == nil {
		u.Client = http.DefaultClient
	}
	if u.Settle == 0 {
		u.Settle = 10 * time.Second
	}
	return &Reservations{ufm: u, base: base}, nil
}

// wire is a reservation as UFM writes it, by its id.
type wire map[string]struct {
	PKey  string   `json:"pkey"`
	GUIDs []string `json:"guids"`
}

func (w wire) list() (out []Reservation) {
	for _, app := range slices.Sorted(maps.Keys(w)) {
		out = append(out, Reservation{App: app, PKey: w[app].PKey, GUIDs: w[app].GUIDs})
	}
	return out
}

// List is all reservations, by their ids.
func (r *Reservations) List(ctx context.Context) ([]Reservation, error) {
	var w wire
	if _, err := r.do(ctx, "list reservations", http.MethodGet, r.ufm.Path, nil, &w); err != nil {
		return nil, err
	}
	return w.list(), nil
}

// Get is the reservation of an id; the error wraps ErrNotFound if there is none.
func (r *Reservations) Get(ctx context.Context, app string) (Reservation, error) {
	op := "get reservation " + app
	if app == "" {
		return Reservation{}, fmt.Errorf("%s: no id", op)
	}
	var w wire
	if _, err := r.do(ctx, op, http.MethodGet, r.ufm.Path+"/"+url.PathEscape(app), nil, &w); err != nil {
		return Reservation{}, err
	}
	got, ok := w[app]
	if !ok {
		return Reservation{}, fmt.Errorf("%s: the answer is about %v: %w", op, slices.Sorted(maps.Keys(w)), ErrNotFound)
	}
	return Reservation{App: app, PKey: got.PKey, GUIDs: got.GUIDs}, nil
}

// body is what POST and PUT send.
type body struct {
	App   string   `json:"app_id"`
	PKey  string   `json:"pkey,omitempty"`
	GUIDs []string `json:"guids"`
}

// Create makes a reservation and returns what UFM says that it is then, which is what was
// granted. UFM is asked to refuse rather than to grant less than that; if it does grant less, the
// error is a *PartialError, and the reservation is there all the same.
func (r *Reservations) Create(ctx context.Context, want Reservation) (Reservation, error) {
	op := "create reservation " + want.App
	if want.App == "" {
		return Reservation{}, fmt.Errorf("%s: no id", op)
	}
	asked := map[inventory.GUID]bool{}
	for _, g := range want.GUIDs {
		id, err := inventory.ParseGUID(g)
		if err != nil {
			return Reservation{}, fmt.Errorf("%s: %w", op, err)
		}
		if asked[id] {
			return Reservation{}, fmt.Errorf("%s: %s is named twice", op, g)
		}
		asked[id] = true
	}
	if len(asked) == 0 {
		return Reservation{}, fmt.Errorf("%s: no host ports", op)
	}
	code, err := r.do(ctx, op, http.MethodPost, r.ufm.Path+"?partially_alloc=false", body(want), nil)
	if err != nil {
		return Reservation{}, r.removed(ctx, want.App, http.MethodPost, err)
	}
	got, err := r.settled(ctx, want.App, asked, code != http.StatusPartialContent)
	if err != nil {
		return Reservation{}, fmt.Errorf("%s: %s, but: %w", op, http.StatusText(code), err)
	}
	partial := &PartialError{App: want.App}
	for _, g := range want.GUIDs {
		id, _ := inventory.ParseGUID(g)
		if asked[id] {
			partial.Missing = append(partial.Missing, g)
		}
	}
	if partial.Missing != nil {
		return got, fmt.Errorf("%s: %w", op, partial)
	}
	return got, nil
}

// settled asks until a reservation that was accepted is there, and whole if it shall be,
// or for as long as that may take. What is granted is taken out of asked.
func (r *Reservations) settled(ctx context.Context, app string, asked map[inventory.GUID]bool, whole bool) (Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, r.ufm.Settle)
	defer cancel()
	var last Reservation
	seen := false
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		got, err := r.Get(ctx, app)
		switch {
		case err == nil:
			last, seen = got, true
			for _, g := range got.GUIDs {
				if id, err := inventory.ParseGUID(g); err == nil {
					delete(asked, id)
				}
			}
			if len(asked) == 0 || !whole {
				return got, nil
			}
		case !errors.Is(err, ErrNotFound) && ctx.Err() == nil:
			return Reservation{}, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if seen {
				return last, nil
			}
			return Reservation{}, fmt.Errorf("not there after %s: %w", r.ufm.Settle, context.Cause(ctx))
		}
	}
}

// Delete removes a reservation. The error wraps ErrNotFound if there is none.
func (r *Reservations) Delete(ctx context.Context, app string) error {
	op := "delete reservation " + app
	if app == "" {
		return fmt.Errorf("%s: no id", op)
	}
	_, err := r.do(ctx, op, http.MethodDelete, r.ufm.Path+"/"+url.PathEscape(app), nil, nil)
	return r.removed(ctx, app, http.MethodDelete, err)
}

// removed says that an API is gone where that is why a request failed: what is there can be
// listed, and the request is one that nobody knows.
func (r *Reservations) removed(ctx context.Context, app, method string, err error) error {
	var status *StatusError
	if !errors.As(err, &status) {
		return err
	}
	switch status.Code {
	case http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented:
	case http.StatusNotFound:
		if method != http.MethodPost { // is it this reservation that is not there?
			if _, gerr := r.Get(ctx, app); gerr != nil {
				return err
			}
		}
	default:
		return err
	}
	if _, lerr := r.List(ctx); lerr != nil {
		return err
	}
	return withHint(fmt.Errorf("%w: %w", ErrRemoved, err),
		"add the host ports to a partition in UFM (/ufmRest/resources/pkeys): with reservation_auto_by_pkeys, which is the default, that makes the reservation")
}

// UFMOf is the UFM of an inventory: api is its generation ("allocate", "v3" or "reservations"),
// and who asks is in INABENCH_UFM_TOKEN, or INABENCH_UFM_USER and INABENCH_UFM_PASSWORD, so
// that no file has it.
func UFMOf(address, api string, getenv func(string) string) UFM {
	return UFM{
		URL: address, Path: map[string]string{"v3": PathAllocateV3, "reservations": PathReservations}[api],
		Token: getenv("INABENCH_UFM_TOKEN"), User: getenv("INABENCH_UFM_USER"), Password: getenv("INABENCH_UFM_PASSWORD"),
	}
}

// maxAnswer bounds what is read of an answer, bytes.
const maxAnswer = 16 << 20

// do sends one request. An answer of 2xx is a success, and goes to out if that is not nil.
func (r *Reservations) do(ctx context.Context, op, method, path string, in, out any) (code int, err error) {
	var send io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", op, err)
		}
		send = bytes.NewReader(text)
	}
	ref, err := url.Parse(path)
	if err != nil {
		return 0, fmt.Errorf("%s: path %q: %w", op, path, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base.ResolveReference(ref).String(), send)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case r.ufm.Token != "":
		req.Header.Set("Authorization", "Basic "+r.ufm.Token)
	case r.ufm.User != "":
		req.SetBasicAuth(r.ufm.User, r.ufm.Password)
	}
	resp, err := r.ufm.Client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	defer resp.Body.Close()
	text, err := bounded.ReadAll(resp.Body, maxAnswer)
	if err != nil {
		return resp.StatusCode, fmt.Errorf("%s: read the answer: %w", op, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, &StatusError{Op: op, Code: resp.StatusCode, Answer: strings.TrimSpace(string(text[:min(len(text), 1<<10)]))}
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			return resp.StatusCode, fmt.Errorf("%s: answer: %w", op, err)
		}
	}
	return resp.StatusCode, nil
}
