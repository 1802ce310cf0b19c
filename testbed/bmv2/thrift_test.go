package bmv2

import (
	"bytes"
	"encoding/hex"
	"net"
	"strings"
	"testing"
)

// The call in the binary protocol, byte for byte.
func TestQueueDepthCall(t *testing.T) {
	want := "80010001" + "00000029" + hex.EncodeToString([]byte("simple_switch:set_all_egress_queue_depths")) + "00000000" +
		"08" + "0001" + "00000400" + "00"
	if got := hex.EncodeToString(queueDepthCall(1024)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestQueueDepthReply(t *testing.T) {
	name := "\x00\x00\x00\x04name"
	for _, c := range []struct{ what, reply, want string }{
		{"a reply", "\x80\x01\x00\x02" + name, ""},
		{"an exception", "\x80\x01\x00\x03" + name, `it refuses "name"`},
		{"no Thrift", "HTTP/1.1", "no Thrift"},
		{"half a reply", "\x80\x01\x00\x02\x00\x00\x00\x09x", "unexpected EOF"},
		{"nothing", "", "EOF"},
	} {
		switch err := readQueueDepthReply(strings.NewReader(c.reply)); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

// A BMv2 without Thrift refuses connections; that is an error soon, and one that says where.
func TestSetQueueDepth(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	asked := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			asked <- nil
			return
		}
		defer conn.Close()
		call := make([]byte, len(queueDepthCall(7)))
		n, _ := conn.Read(call)
		_, _ = conn.Write([]byte("\x80\x01\x00\x02\x00\x00\x00\x01n"))
		asked <- call[:n]
	}()
	if err := SetQueueDepth(t.Context(), addr, 7); err != nil {
		t.Error(err)
	}
	if call := <-asked; !bytes.Equal(call, queueDepthCall(7)) {
		t.Errorf("asked %x", call)
	}
	l.Close()
	if err := SetQueueDepth(t.Context(), addr, 7); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("without a server: %v", err)
	}
}
