package lease

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
)

// inMemory are files of which somebody else has written the newest.
type inMemory struct {
	files map[string]string
	at    time.Time
}

func (m *inMemory) List(context.Context) (names []string, err error) {
	for name := range m.files {
		names = append(names, name)
	}
	return names, nil
}

func (m *inMemory) Read(_ context.Context, name string) ([]byte, Stamp, error) {
	text, ok := m.files[name]
	if !ok {
		return nil, Stamp{}, fs.ErrNotExist
	}
	return []byte(text), Stamp{At: m.at}, nil
}

func (m *inMemory) Create(_ context.Context, name string, data []byte) (Stamp, error) {
	m.files[name] = string(data)
	return Stamp{At: m.at}, nil
}

func (m *inMemory) Rewrite(_ context.Context, name string, data []byte) (Stamp, error) {
	if text, ok := m.files[name]; !ok {
		return Stamp{}, fs.ErrNotExist
	} else if text != string(data) {
		return Stamp{}, hosts.ErrChanged
	}
	return Stamp{At: m.at}, nil
}

func (m *inMemory) Link(_ context.Context, old, name string) error {
	text, ok := m.files[old]
	if !ok {
		return fs.ErrNotExist
	}
	if _, ok := m.files[name]; ok {
		return fs.ErrExist
	}
	m.files[name] = text
	return nil
}

func (m *inMemory) Remove(_ context.Context, name string) error {
	delete(m.files, name)
	return nil
}

// FuzzRecord: whatever stands in files of leases and reservations, who looks is told something, and who may take it
// has it with a higher number.
func FuzzRecord(f *testing.F) {
	f.Add(`{"owner":"anna","token":"t","ttl":60,"since":"2026-01-01T00:00:00Z"}`, `{"owner":"bob","token":"r"}`, "host-h1.7", "host-h1.at-1-99999999999-r")
	f.Add(`{"ttl":-1}`, `null`, "host-h1.281474976710656", "host-h1.at-0-1-")
	f.Add(`{"ttl":9223372036854775807,"beneath":{"until":"9999-12-31T00:00:00Z"}}`, `{}`, "host-h1.007", "host-h1.1.free")
	f.Fuzz(func(t *testing.T, lease, reservation, name, other string) {
		m := &inMemory{files: map[string]string{name: lease, other: reservation}, at: time.Unix(1_800_000_000, 0)}
		p := Place{Name: "host h1", Key: "host-h1", Files: m}
		s, err := Look(t.Context(), p)
		if err != nil {
			return
		}
		if s.Held && s.Left() <= 0 && !s.Expires.Equal(s.Now) {
			t.Fatalf("held, until %v, and it is %v", s.Expires, s.Now)
		}
		if text := (&HeldError{State: s}).Error(); !strings.HasPrefix(text, "host h1 is held by ") {
			t.Fatal(text)
		}
		for i := range s.Reserved {
			if r := &s.Reserved[i]; !r.From.Before(r.Until) || r.Owner == "" || !r.Until.After(s.Now) {
				t.Fatalf("%+v", r)
			}
		}
		l, err := Take(t.Context(), p, Claim{Owner: "carol", TTL: time.Minute, Takeover: true})
		if err != nil {
			return
		}
		if l.Fencing() <= s.Fencing {
			t.Fatalf("number %d after %d", l.Fencing(), s.Fencing)
		}
		if err := l.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
