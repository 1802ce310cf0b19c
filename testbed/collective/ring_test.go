package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// seed is INABENCH_SEED, or another each time, and printed.
func seed(t testing.TB) uint64 {
	t.Helper()
	s := rand.Uint64()
	if v, err := strconv.ParseUint(os.Getenv("INABENCH_SEED"), 10, 64); err == nil {
		s = v
	}
	t.Logf("INABENCH_SEED=%d", s)
	return s
}

// rings are n connected ranks on addresses of lo.
func rings(t testing.TB, n int, timeout time.Duration) []*Ring {
	t.Helper()
	cfg := RingConfig{Job: 4001, Epoch: 1, Seed: 7, Timeout: timeout}
	for i := range n {
		cfg.Peers = append(cfg.Peers, fmt.Sprintf("127.0.78.%d", i+1))
	}
	var rs []*Ring
	for cfg.Rank = range n {
		r, err := NewRing(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		rs = append(rs, r)
	}
	for rank, err := range together(n, func(rank int) error { return rs[rank].Connect(t.Context()) }) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return rs
}

// together calls do for all ranks at once.
func together(n int, do func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() { errs[rank] = do(rank) })
	}
	wg.Wait()
	return errs
}

// Whatever the sizes, all values are checked, none is wrong, and all ranks learn the same.
func TestRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 1))
	for _, n := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rs := rings(t, n, 10*time.Second)
			psn := uint32(0)
			for index := range int64(12) {
				op := Op{Index: index, PSN: psn, Bytes: []int64{0, 1, 8, 4 * pieceLen, 1 << 20, 3*maxBlock + 4, rng.Int64N(300_000)}[index%7]}
				votes := make([]uint32, n)
				least, most := ^uint32(0), uint32(0)
				for i := range votes {
					votes[i] = rng.Uint32N(3)
					least, most = min(least, votes[i]), max(most, votes[i])
				}
				stopper := rng.IntN(n)
				errs := together(n, func(rank int) error {
					op := op
					op.Vote = votes[rank]
					op.Stop = rank == stopper && index%2 == 0
					got, err := rs[rank].AllReduce(op)
					want := Reduced{Least: least, Most: most, Stop: index%2 == 0, Checked: (op.Bytes + 3) / 4}
					if err == nil && got != want {
						err = fmt.Errorf("%+v, want %+v", got, want)
					}
					return err
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("%d ranks, %d bytes: %v", n, op.Bytes, err)
				}
				psn += uint32(Pieces(op.Bytes))
			}
		})
	}
}

// A gradient that differs in one rank is found by all of them.
func TestRingFindsWrongSums(t *testing.T) {
	rs := rings(t, 3, 10*time.Second)
	errs := together(3, func(rank int) error {
		op := Op{Bytes: 10_000}
		if rank == 1 {
			op.PSN = 5 // other gradients
		}
		got, err := rs[rank].AllReduce(op)
		if err == nil && (got.Checked != 2500 || got.Wrong < 2000) {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Whatever is wrong with a rank, all others say so and none of them hangs.
func TestRingErrors(t *testing.T) {
	t.Parallel() // it waits
	const timeout = 3 * time.Second
	cases := []struct {
		name string
		odd  func(r *Ring) error // what rank 1 does instead
		want error               // of at least one other
		text string
	}{
		{"other size", func(r *Ring) error { _, err := r.AllReduce(Op{Bytes: 8000}); return err }, ErrMismatch, "operation 0 of 8000 bytes"},
		{"other operation", func(r *Ring) error { _, err := r.AllReduce(Op{Index: 1, Bytes: 4000}); return err }, ErrMismatch, "operation 1"},
		{"asked for the tree", func(r *Ring) error { _, err := r.AllReduce(Op{Bytes: 4000, Asked: true}); return err }, ErrMismatch, "which was refused the tree"},
		{"hangs up", func(r *Ring) error { r.Close(); return nil }, ErrGone, "rank 1"},
		{"silent", func(*Ring) error { time.Sleep(2 * timeout); return nil }, ErrSilent, "rank 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rs := rings(t, 3, timeout)
			begin := time.Now()
			errs := together(3, func(rank int) error {
				if rank == 1 {
					return c.odd(rs[1])
				}
				_, err := rs[rank].AllReduce(Op{Bytes: 4000})
				return err
			})
			if errs[0] == nil || errs[2] == nil {
				t.Errorf("errors %v of the others", errs)
			}
			if err := errors.Join(errs...); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("errors %v, want %v with %q", err, c.want, c.text)
			}
			if d := time.Since(begin); d > 20*timeout {
				t.Errorf("that took %v", d)
			}
			if rs[0].Alive(0) == nil {
				t.Error("a ring that failed is alive")
			}
		})
	}
}

func TestRingConfig(t *testing.T) {
	good := RingConfig{Job: 4002, Peers: []string{"127.0.78.1", "127.0.78.2"}}
	for _, c := range []struct {
		want  string
		spoil func(*RingConfig)
	}{
		{"1 ranks", func(c *RingConfig) { c.Peers = c.Peers[:1] }},
		{"rank 2 of 2", func(c *RingConfig) { c.Rank = 2 }},
		{"job 0", func(c *RingConfig) { c.Job = 0 }},
		{"address of worker 1", func(c *RingConfig) { c.Peers = []string{"127.0.78.1", "h2"} }},
	} {
		cfg := good
		c.spoil(&cfg)
		if _, err := NewRing(cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}

// A rank that waits for the one before it stops when it is told to.
func TestRingConnectEnds(t *testing.T) {
	cfg := RingConfig{Job: 4003, Peers: []string{"127.0.78.1", "127.0.78.1"}}
	r, err := NewRing(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Connect(ctx) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestHead(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 2))
	for range 1000 {
		h := head{rng.Int64(), rng.Int64N(1 << 40), uint8(rng.Uint32()), rng.IntN(2) == 1, rng.IntN(2) == 1, rng.Uint32(), rng.Uint32()}
		var b [headLen]byte
		h.put(b[:])
		if got := parseHead(b[:]); got != h {
			t.Fatalf("%+v read as %+v", h, got)
		}
	}
}

func TestAdd(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 3))
	for n := range 20 {
		a, b, want := make([]byte, 4*n), make([]byte, 4*n), make([]byte, 4*n)
		for i := range n {
			x, y := rng.Uint32(), rng.Uint32()
			binary.BigEndian.PutUint32(a[4*i:], x)
			binary.BigEndian.PutUint32(b[4*i:], y)
			binary.BigEndian.PutUint32(want[4*i:], x+y)
		}
		if add(a, b); string(a) != string(want) {
			t.Fatalf("%d lanes: %x, want %x", n, a, want)
		}
	}
}

// BenchmarkRing is three ranks in one process on lo: processor time, sums checked.
func BenchmarkRing(b *testing.B) {
	for _, size := range []int64{4, 64 << 10, 8 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			rs := rings(b, 3, 0)
			b.SetBytes(size)
			b.ReportAllocs()
			index := int64(0)
			for b.Loop() {
				op := Op{Index: index, Bytes: size}
				index++
				if err := errors.Join(together(3, func(rank int) error { _, err := rs[rank].AllReduce(op); return err })...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A neighbour that takes its time for a chunk is waited for as long as it takes something, and no longer.
func TestSenderWaits(t *testing.T) {
	t.Parallel() // it waits
	const blocks, timeout = 60, 2 * time.Second
	for name, slow := range map[string]bool{"slow": true, "silent": false} {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 78, 9)})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		out, err := net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		in, err := ln.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if err := errors.Join(out.SetWriteBuffer(maxBlock), in.SetReadBuffer(maxBlock)); err != nil {
			t.Fatal(err)
		}
		if slow {
			go func() {
				b := make([]byte, maxBlock)
				for { // twice the timeout in all
					if _, err := io.ReadFull(in, b); err != nil {
						return
					}
					time.Sleep(2 * timeout / blocks)
				}
			}()
		}
		s := newSender(out, timeout)
		n := 0
		for range blocks {
			n = s.put(make([]byte, maxBlock))
		}
		if err := s.wait(n); (err == nil) != slow || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		s.close()
	}
}
