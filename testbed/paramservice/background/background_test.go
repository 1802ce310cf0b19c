package background_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/background"
)

// part is a sink or a source in this process.
type part struct {
	t     *testing.T
	stdin *io.PipeWriter
	out   *json.Decoder
	done  chan error
}

func play(t *testing.T, cfg background.Config) *part {
	t.Helper()
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	p := &part{t: t, stdin: stdin, out: json.NewDecoder(out), done: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	go func() {
		defer cancel()
		err := background.Main(ctx, in, stdout)
		stdout.Close()
		p.done <- err
	}()
	t.Cleanup(func() { stdin.Close(); out.Close() })
	if err := json.NewEncoder(stdin).Encode(cfg); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *part) next(kind string) background.Event {
	p.t.Helper()
	var e background.Event
	if err := p.out.Decode(&e); err != nil || e.Event != kind {
		p.t.Fatalf("%+v (%v) and not %q", e, err, kind)
	}
	return e
}

// A sink reads all that comes, and counts it.
func TestSink(t *testing.T) {
	sink := play(t, background.Config{})
	to := sink.next("ready").Address
	const n = 3 << 20
	for range 2 {
		c, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil { // it closes a flow when it has read all of it
			t.Fatal(err)
		}
	}
	sink.stdin.Close()
	if got := sink.next("done").Bytes; got != 2*n {
		t.Errorf("%d bytes of %d", got, 2*n)
	}
	if err := <-sink.done; err != nil {
		t.Error(err)
	}
}

// All flows of a source send, until standard input ends; one whose sink goes away ends with an
// error.
func TestSource(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const flows, n = 3, 5 << 20
	for _, vanish := range []bool{false, true} {
		source := play(t, background.Config{To: l.Addr().String(), Flows: flows, Local: "127.0.0.1"})
		source.next("started")
		var last net.Conn
		for range flows {
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			last = c
		}
		if vanish {
			last.Close()
			if e := source.next("error"); !strings.HasPrefix(e.Why, "source: ") {
				t.Errorf("%+v", e)
			}
			if err := <-source.done; err == nil {
				t.Error("its sink is gone, and it does not say so")
			}
			continue
		}
		source.stdin.Close()
		if sent := source.next("done").Bytes; sent < flows*n {
			t.Errorf("%d bytes sent, and at least %d received", sent, flows*n)
		}
		if err := <-source.done; err != nil {
			t.Error(err)
		}
	}
}

func TestConfig(t *testing.T) {
	for in, want := range map[string]string{
		"":                                      "",
		"{":                                     "configuration of background flows: unexpected EOF",
		`{"what":1}`:                            `configuration of background flows: json: unknown field "what"`,
		`{"flows":2}`:                           "configuration of background flows: 2 flows of a sink",
		`{"to":"x:1"}`:                          "configuration of background flows: 0 flows, not 1 to 1024",
		`{"to":"x:1","flows":1025}`:             "configuration of background flows: 1025 flows, not 1 to 1024",
		`{"to":"x:1","flows":1,"local":"here"}`: `configuration of background flows: local address "here"`,
	} {
		var out strings.Builder
		err := background.Main(t.Context(), strings.NewReader(in), &out)
		if want == "" {
			if err != nil || out.Len() > 0 {
				t.Errorf("%q: %v, %s", in, err, out.String())
			}
			continue
		}
		var e background.Event
		if err == nil || err.Error() != want || !errors.Is(err, background.ErrConfig) {
			t.Errorf("%q: %v", in, err)
		}
		if json.Unmarshal([]byte(out.String()), &e) != nil || e.Event != "error" || e.Why != want {
			t.Errorf("%q: %s", in, out.String())
		}
	}
}
