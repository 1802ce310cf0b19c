package ibsimtest

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/proof"
)

// Tools see every node of a generated fabric, its links, and what the console did.
func TestSim(t *testing.T) {
	s := Start(t, Small.Net(), Small.First())
	sm := s.OpenSM()
	out := s.Output("ibnetdiscover")
	if cas, switches := strings.Count(out, "\nCa\t"), strings.Count(out, "\nSwitch\t"); cas != 4+5 || switches != 5 {
		t.Errorf("%d adapters, %d switches:\n%s", cas, switches, out)
	}
	if n := strings.Count(out, "4xHDR"); n != 2*(4+6+5) {
		t.Errorf("%d ends of links:\n%.900s", n, out)
	}
	if !strings.Contains(sm.Log(), "tables configured on all switches") {
		t.Error(sm.Log())
	}
	port, _ := Small.Uplink(0, 1, 0)
	s.Console(`Unlink "S-%016x"[%d]`, Small.LeafGUID(0), port)
	if n := strings.Count(s.Output("ibnetdiscover"), "4xHDR"); n != 2*(4+6+5-1) {
		t.Errorf("%d ends of links after one was cut", n)
	}
	sm.Sweep()
}

// The large fabric has what its comment says.
func TestBig(t *testing.T) {
	net := Big.Net()
	if n := strings.Count(net, "HCA-1\""); n != 1024 {
		t.Errorf("%d hosts", n)
	}
	if n := strings.Count(net, "4xHDR\n"); n != 2*(1024+32*16*2+48) {
		t.Errorf("%d ends of links", n)
	}
	if !proof.Wanted() {
		return
	}
	s := Start(t, net, Big.First())
	s.OpenSM()
	if n := strings.Count(s.Output("ibnetdiscover"), "4xHDR\n"); n != 2*(1024+32*16*2+48) {
		t.Errorf("ibnetdiscover: %d ends of links", n)
	}
}
