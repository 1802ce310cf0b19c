package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
)

// UFM answers, or does not know who asks; a manager's host that is not there is named.
func TestDiagnoseSHARP(t *testing.T) {
	known := true
	ufm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"job1": {"pkey": "0x12", "guids": ["0x248a070300000001"]}}`))
	}))
	defer ufm.Close()
	inv := &inventory.Inventory{Manager: &inventory.Manager{
		SSH: inventory.SSH{Address: "127.0.0.1:1", Config: "none", Jump: "none"}, Config: "/etc/sharp/sharp_am.cfg", UFM: ufm.URL, API: "allocate",
	}}
	got := diagnoseSHARP(t.Context(), inv, 5*time.Second)
	if len(got) != 2 || !strings.HasPrefix(got[0].Error, "host sharp_am ") || got[0].Hint == "" || got[1].Error != "" || got[1].Found != ufm.URL+": 1 reservation" {
		t.Errorf("%+v", got)
	}
	known = false
	inv.Manager.SSH = inventory.SSH{}
	got = diagnoseSHARP(t.Context(), inv, 5*time.Second)
	if len(got) != 1 || got[0].Error == "" || !strings.Contains(got[0].Hint, "INABENCH_UFM_TOKEN") {
		t.Errorf("%+v", got)
	}
	if got := diagnoseSHARP(t.Context(), &inventory.Inventory{}, time.Second); got != nil {
		t.Errorf("of no manager: %+v", got)
	}
}
