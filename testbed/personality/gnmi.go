package personality

import (
	"maps"
	"slices"
	"time"

	gnmipb "github.com/openconfig/gnmi/proto/gnmi"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gnmiServer answers subscriptions of mode ONCE to ifindex and counters of interfaces, as
// stratum/docs/gnmi/supported-paths.md lists them.
type gnmiServer struct {
	gnmipb.UnimplementedGNMIServer
	s *Server
}

// Subscribe implements gNMI.
func (g *gnmiServer) Subscribe(stream gnmipb.GNMI_SubscribeServer) error {
	q, err := stream.Recv()
	if err != nil {
		return err
	}
	list := q.GetSubscribe()
	if list.GetMode() != gnmipb.SubscriptionList_ONCE {
		return status.Errorf(codes.Unimplemented, "subscription mode %v", list.GetMode())
	}
	for _, sub := range list.GetSubscription() {
		n := &gnmipb.Notification{Timestamp: time.Now().UnixNano()}
		if n.Update, err = g.answer(stream.Context(), sub.GetPath().GetElem()); err != nil {
			return err
		}
		if err := stream.Send(&gnmipb.SubscribeResponse{Response: &gnmipb.SubscribeResponse_Update{Update: n}}); err != nil {
			return err
		}
	}
	return stream.Send(&gnmipb.SubscribeResponse{Response: &gnmipb.SubscribeResponse_SyncResponse{SyncResponse: true}})
}

func (g *gnmiServer) answer(ctx ctx, elems []*gnmipb.PathElem) (out []*gnmipb.Update, err error) {
	if len(elems) != 4 || elems[0].GetName() != "interfaces" || elems[1].GetName() != "interface" || elems[2].GetName() != "state" {
		return nil, status.Error(codes.InvalidArgument, "unsupported path")
	}
	name, what := elems[1].GetKey()["name"], elems[3].GetName()
	add := func(port string, v uint64, leaf ...string) {
		p := &gnmipb.Path{Elem: []*gnmipb.PathElem{{Name: "interfaces"}, {Name: "interface", Key: map[string]string{"name": port}}, {Name: "state"}}}
		for _, l := range leaf {
			p.Elem = append(p.Elem, &gnmipb.PathElem{Name: l})
		}
		out = append(out, &gnmipb.Update{Path: p, Val: &gnmipb.TypedValue{Value: &gnmipb.TypedValue_UintVal{UintVal: v}}})
	}
	found := false
	for _, port := range slices.Sorted(maps.Keys(g.s.o.Names)) {
		called := g.s.o.Names[port]
		if name != "*" && name != called {
			continue
		}
		found = true
		switch what {
		case "ifindex":
			own := port
			if g.s.o.Ports != nil {
				own = g.s.o.Ports[port]
			}
			add(called, uint64(own), "ifindex")
		case "oper-status":
			state := "UP"
			if g.s.down() {
				state = "DOWN"
			}
			out = append(out, &gnmipb.Update{Path: &gnmipb.Path{Elem: []*gnmipb.PathElem{{Name: "interfaces"},
				{Name: "interface", Key: map[string]string{"name": called}}, {Name: "state"}, {Name: "oper-status"}}},
				Val: &gnmipb.TypedValue{Value: &gnmipb.TypedValue_StringVal{StringVal: state}}})
		case "counters":
			rx, tx := g.count(ctx, "port_rx", port), g.count(ctx, "port_tx", port)
			add(called, uint64(rx.GetByteCount()), "counters", "in-octets")
			add(called, uint64(rx.GetPacketCount()), "counters", "in-unicast-pkts")
			add(called, uint64(tx.GetByteCount()), "counters", "out-octets")
			add(called, uint64(tx.GetPacketCount()), "counters", "out-unicast-pkts")
			for _, zero := range []string{"in-discards", "in-unknown-protos", "out-discards", "in-errors", "out-errors", "in-fcs-errors"} {
				add(called, 0, "counters", zero)
			}
		default:
			return nil, status.Error(codes.InvalidArgument, "unsupported path")
		}
	}
	if !found {
		return nil, status.Errorf(codes.NotFound, "no interface %q", name)
	}
	return out, nil
}

// count is what the embedded switch has counted at a port.
func (g *gnmiServer) count(ctx ctx, counter string, port uint32) *p4v1.CounterData {
	s := &p4runtime{Server: g.s}
	pipe := s.pipeline(ctx)
	if pipe == nil {
		return nil
	}
	info, err := pipe.Counter(counter)
	if err != nil {
		return nil
	}
	stream, err := s.upstream.Read(ctx, &p4v1.ReadRequest{DeviceId: s.o.UpstreamDevice, Entities: []*p4v1.Entity{{
		Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{CounterId: info.ID, Index: &p4v1.Index{Index: int64(port)}}},
	}}})
	if err != nil {
		return nil
	}
	r, err := stream.Recv()
	if err != nil || len(r.GetEntities()) == 0 {
		return nil
	}
	return r.GetEntities()[0].GetCounterEntry().GetData()
}
