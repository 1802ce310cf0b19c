package dataplane

import (
	"crypto/tls"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/internal/rpc"
)

const (
	// MinBackoff and MaxBackoff are the pauses between two attempts to reach a switch.
	MinBackoff = 50 * time.Millisecond
	MaxBackoff = time.Second
	// PolitePatience is how long another client may take to leave.
	PolitePatience = time.Second
	// LostPatience is how long Close waits for a switch that is lost.
	LostPatience = 2 * time.Second

	maxHeader = 4 << 20 // bytes; error details of a whole batch travel in a header
)

// Connect is a connection to a switch's gRPC server at addr: "host:port", or "unix:" and a path. Without TLS it is plain
// text. One message from the server has at most maxReply bytes. Nothing is sent before the first call, and a switch that
// does not answer is tried again for as long as the connection is open. An error is that of an address gRPC cannot read.
func Connect(addr string, config *tls.Config, maxReply int) (*grpc.ClientConn, error) {
	target := addr
	if !strings.HasPrefix(addr, "unix:") {
		target = "passthrough:///" + addr
	}
	security := insecure.NewCredentials()
	if config != nil {
		security = credentials.NewTLS(config)
	}
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(security),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply), rpc.EachMessage(rpc.Few)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: MinBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: MaxBackoff},
			MinConnectTimeout: 2 * time.Second,
		}),
	)
}

// Result is how one update of a batch ended, in the message of a protocol.
type Result interface {
	proto.Message
	GetCanonicalCode() int32
}

// Results are how each of n updates of a call that ended with err did: what follows the last failure is left out, and
// is OK, as BMv2 and the SDE's BFRuntime server have it. ok is false when the call failed as a whole.
func Results[R Result](err error, n int) (res []R, ok bool) {
	res = make([]R, n)
	for i := range res {
		res[i] = res[i].ProtoReflect().New().Interface().(R)
	}
	if err == nil {
		return res, true
	}
	details := status.Convert(err).Proto().GetDetails()
	if len(details) == 0 || len(details) > n {
		return nil, false
	}
	failed := false
	for i, d := range details {
		if d.UnmarshalTo(res[i]) != nil {
			return nil, false
		}
		failed = failed || res[i].GetCanonicalCode() != int32(codes.OK)
	}
	return res, failed
}
