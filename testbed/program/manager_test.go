package program_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// ufm is a UFM whose reservations are those of one generation of its API.
type ufm struct {
	mu   sync.Mutex
	apps map[string]json.RawMessage
	log  []string
	gone bool // since April 2026
	part bool // grants less
}

func (u *ufm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	app := strings.Trim(strings.TrimPrefix(r.URL.Path, "/ufmRest/app/sharp/allocate_resources"), "/")
	u.log = append(u.log, r.Method)
	switch {
	case r.Method == http.MethodGet:
		if app != "" && u.apps[app] == nil {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(u.apps)
	case u.gone:
		http.NotFound(w, r)
	case r.Method == http.MethodPost:
		var body struct {
			App   string   `json:"app_id"`
			GUIDs []string `json:"guids"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		code := http.StatusAccepted
		if u.part {
			body.GUIDs, code = body.GUIDs[:1], http.StatusPartialContent
		}
		u.apps[body.App], _ = json.Marshal(map[string]any{"pkey": "0x12", "guids": body.GUIDs})
		w.WriteHeader(code)
	case r.Method == http.MethodDelete:
		delete(u.apps, app)
	}
}

// A run tells the aggregation manager and UFM what its jobs need, and leaves both as they
// were, also where UFM refuses.
func TestManager(t *testing.T) {
	testbedtest.Require(t, "netns", noNamespaces)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		ufm  *ufm
		want string // of an error; empty: none
	}{
		{"granted", &ufm{}, ""},
		{"granted in part", &ufm{part: true}, "not all was granted: without 0x98039b0300200020"},
		{"UFM of April 2026", &ufm{gone: true}, "no longer creates"},
	} {
		if !proof.Wanted() && test.name != "granted" {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			dir, u := t.TempDir(), test.ufm
			u.apps = map[string]json.RawMessage{}
			server := httptest.NewServer(u)
			defer server.Close()
			config, seen := filepath.Join(dir, "sharp_am.cfg"), filepath.Join(dir, "seen")
			const before = "ib_sl 0\nper_prio_default_quota 20\n"
			if err := os.WriteFile(config, []byte(before), 0o644); err != nil {
				t.Fatal(err)
			}
			inv, err := inventory.Parse("rack.toml", fmt.Appendf(nil, `version = 1
[sharp]
host = "head"
config = %q
restart = ["sh", "-c", "cat \"$1\" >>\"$2\"", "sh", %q, %q]
ufm = %q
[[switch]]
name = "tor1"
kind = "soft"
guid = "0xb8599f0300100200"
sharp = {trees = 2}
[[host]]
name = "h[1-2]"
nic = {port = "tor1/[1-2]", rate = "100Mbit/s", address = "10.0.0.[1-2]/24", rdma = "mlx5_0:1", guid = ["0x98039b0300200010", "0x98039b0300200020"]}
[[host]]
name = "head"
nic = {port = "tor1/3", rate = "100Mbit/s", address = "10.0.0.3/24"}
`, config, config, seen, server.URL))
			if err != nil {
				t.Fatal(err)
			}
			s, err := kinds.Parse("test.toml", fmt.Appendf(nil, `version = 1
[emulation]
scale = "none"
[measure]
duration = "20s" # by which lateness is judged
[sharp]
set = ["per_prio_default_quota 50"]
roots = ["tor1"]
reserve = true
[[program]]
name = "A"
kind = "nccl-tests"
command = [%q, "all-reduce-perf", "--peers", "10.0.0.1,10.0.0.2"]
launcher = "each"
hosts = ["h1", "h2"]
sizes = ["64KiB"]
iterations = 2
sharp = {tree = "SAT", devices = ["mlx5_0"]}
[[expect]]
metric = "algbw"
value = "65.6Mbit/s"
tolerance = "1%%"
reason = "it is what the program prints"
`, exe), inv)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			rec, _, err := experiments.Run(ctx, s, experiments.RunOptions{Driver: "netns", Root: t.TempDir(), Tool: "test"})
			if rec == nil || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%v, want %q", err, test.want)
			}
			if err == nil && rec.Outcome != results.Pass {
				t.Errorf("%s: %q", rec.Outcome, rec.Reasons)
			}
			if text, _ := os.ReadFile(config); string(text) != before {
				t.Errorf("left: %s", text)
			}
			saw, _ := os.ReadFile(seen) // by sharp_am, at each restart
			want := "ib_sl 0\nper_prio_default_quota 50\nroot_guids_file " + dir + "/inabench_root_guids.cfg\n" + before
			if string(saw) != want {
				t.Errorf("sharp_am saw:\n%s\nwant:\n%s", saw, want)
			}
			if _, err := os.Stat(filepath.Join(dir, "inabench_root_guids.cfg")); !os.IsNotExist(err) {
				t.Errorf("the file of roots is left: %v", err)
			}
			if len(u.apps) != 0 {
				t.Errorf("reservations left: %v after %q", u.apps, u.log)
			}
		})
	}
}
