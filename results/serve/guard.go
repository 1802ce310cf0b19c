package serve

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// policy allows pages what is served here, and nothing from elsewhere.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// reportPolicy is that of reports, which have their styles and scripts in them and need nothing
// else. Drawings are saved by way of images and files that they make themselves.
const reportPolicy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// guard lets only those requests through that may read.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "runs are only read here", http.StatusMethodNotAllowed)
		case r.ContentLength != 0: // nobody waits for what is of no use
			h.Set("Connection", "close")
			http.Error(w, "a request to read something has no body", http.StatusBadRequest)
		case s.opt.Token == "":
			if !thisMachine(r.Host) {
				http.Error(w, "runs are served to this machine by its own names: localhost, 127.0.0.1, [::1]", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		case s.admitted(r) && !r.URL.Query().Has("token"):
			next.ServeHTTP(w, r)
		case s.admitted(r), equal(r.URL.Query().Get("token"), s.opt.Token): // an address with it must not be passed on
			http.SetCookie(w, &http.Cookie{
				Name: s.cookie(), Value: s.ticket(), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.opt.Certificate != nil,
			})
			to := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/")} // never another host
			q := r.URL.Query()
			q.Del("token")
			to.RawQuery = q.Encode()
			http.Redirect(w, r, to.String(), http.StatusSeeOther)
		default:
			h.Set("WWW-Authenticate", "Bearer")
			http.Error(w, "open the address with ?token=, which `inabench serve` printed", http.StatusUnauthorized)
		}
	})
}

// cookie is its name: another one for another token, since cookies do not tell ports apart.
func (s *Server) cookie() string { return "inabench-" + s.ticket()[:8] }

// ticket is what a browser has in place of the token after it has shown that. It is of this token
// alone, and tells nobody the token.
func (s *Server) ticket() string {
	m := hmac.New(sha256.New, []byte(s.opt.Token))
	m.Write([]byte("inabench serve"))
	return hex.EncodeToString(m.Sum(nil))
}

// admitted says whether a request has the token, or what it was exchanged for.
func (s *Server) admitted(r *http.Request) bool {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return equal(bearer, s.opt.Token)
	}
	c, err := r.Cookie(s.cookie())
	return err == nil && equal(c.Value, s.ticket())
}

// equal compares in a time that says nothing about want, not even its length.
func equal(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// thisMachine says whether a Host header is a name that only ever means this machine. The port
// may be another one: that of a tunnel.
func thisMachine(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}
