package bmv2

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestArguments(t *testing.T) {
	c := Config{Name: "s", DeviceID: 3, Listen: "10.0.0.1:9559", Packets: "unix:/p", Ports: map[uint32]string{2: "b2", 1: "b1"}, Thrift: 4000}
	want := strings.Fields("--no-p4 --log-level off --device-id 3 -i 1@b1 -i 2@b2 --thrift-port 4000 -- --grpc-server-addr 10.0.0.1:9559 --dp-grpc-server-addr unix:/p")
	if got := c.args(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A program that ends at once is an error with its last words, not a wait for its server.
func TestStartThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), Program)
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho one\necho 'no such device: b1' >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, err := Start(context.Background(), path, Config{Name: "s", Listen: "unix:" + filepath.Join(t.TempDir(), "p4rt")})
	if err == nil || !strings.Contains(err.Error(), "switch s: simple_switch_grpc: ended: exit status 3: no such device: b1") {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	_, err = Start(context.Background(), filepath.Join(t.TempDir(), "nothing"), Config{Name: "s"})
	if err == nil || !strings.Contains(err.Error(), "switch s: start") {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if path, err := Find(); err == nil {
		t.Errorf("found %s in an empty directory", path)
	}
	want := filepath.Join(dir, Program)
	if err := os.WriteFile(want, []byte("#!/bin/sh\necho 1.15.5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if path, err := Find(); err != nil || path != want {
		t.Errorf("%q, %v", path, err)
	}
	if v, err := Version(t.Context(), want); err != nil || v != "1.15.5" {
		t.Errorf("%q, %v", v, err)
	}
}

// What is sent is read back: the two messages of the stream have the same fields.
func TestPacketCodec(t *testing.T) {
	for _, p := range []packet{{}, {1, 4, []byte{1, 2, 3}}, {1 << 40, 511, bytes.Repeat([]byte{7}, 1500)}} {
		b, err := packetCodec{}.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, 8, 5) // field 1 is skipped
		var q packet
		if err := (packetCodec{}).Unmarshal(b, &q); err != nil || q.port != p.port || !bytes.Equal(q.frame, p.frame) {
			t.Errorf("%+v: got %+v, %v", p, q, err)
		}
		for n := range len(b) - 2 {
			_ = packetCodec{}.Unmarshal(b[:n], &q) // must not panic
		}
	}
	if err := (packetCodec{}).Unmarshal([]byte{0x22, 200}, new(packet)); err == nil {
		t.Error("a frame that is cut off is read")
	}
}
