package collective

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/collectives"
)

// meshes are connected ranks on lo that do what a schedule says.
func meshes(t testing.TB, s collectives.Schedule, timeout time.Duration) []*Mesh {
	t.Helper()
	return meshesOf(t, s, MeshConfig{Timeout: timeout})
}

func meshesOf(t testing.TB, s collectives.Schedule, cfg MeshConfig) []*Mesh {
	t.Helper()
	var ms []*Mesh
	var addrs []string
	cfg.Job, cfg.Epoch, cfg.Schedule, cfg.Seed, cfg.Listen = 5, 1, s, 7, "127.0.0.1"
	for rank := range s.Workers {
		cfg.Rank = rank
		m, err := NewMesh(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		ms, addrs = append(ms, m), append(addrs, m.Addr())
	}
	for rank, err := range together(s.Workers, func(rank int) error { return ms[rank].Connect(t.Context(), addrs) }) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return ms
}

// schedules are all operations of so many workers.
func schedules(t testing.TB, workers int) []collectives.Schedule {
	t.Helper()
	all := []collectives.Schedule{collectives.ParameterServer(workers, workers)}
	for _, name := range collectives.Names() {
		s, err := collectives.New(name, workers)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// Whatever the schedule and the sizes, all values are checked, none is wrong, and all ranks
// learn that one of them wants to stop.
func TestMesh(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 4))
	for _, n := range []int{2, 3, 4, 5, 7, 8, 12} {
		for i, s := range schedules(t, n) {
			t.Run(fmt.Sprintf("%d/%d %s", n, i, s.Name), func(t *testing.T) {
				ms := meshes(t, s, 10*time.Second)
				psn := uint32(0)
				for index := range int64(6) {
					op := Op{Index: index, PSN: psn, Bytes: []int64{0, 1, 40, rng.Int64N(300_000), 3*maxBlock + 4, rng.Int64N(3000)}[index]}
					stopper := rng.IntN(2 * n)
					errs := together(n, func(rank int) error {
						op := op
						op.Stop = rank == stopper
						got, err := ms[rank].AllReduce(op)
						want := Reduced{Stop: stopper < n, Checked: (op.Bytes + 3) / 4}
						if err == nil && got != want {
							err = fmt.Errorf("%+v, want %+v", got, want)
						}
						return err
					})
					if err := errors.Join(errs...); err != nil {
						t.Fatalf("%d bytes: %v", op.Bytes, err)
					}
					psn += uint32(Pieces(op.Bytes))
				}
			})
		}
	}
}

// A gradient that differs in one rank is found by all of them.
func TestMeshFindsWrongSums(t *testing.T) {
	for _, s := range schedules(t, 3) {
		ms := meshes(t, s, 10*time.Second)
		wrong := make([]int64, 3)
		errs := together(3, func(rank int) error {
			op := Op{Bytes: 30_000}
			m := ms[rank]
			m.Fill(op)
			if rank == 1 {
				m.vec[5000]++ // of each third of the vector
				m.vec[15000]++
				m.vec[25000]++
			}
			if _, err := m.Exchange(op); err != nil {
				return err
			}
			_, wrong[rank] = m.Check(op)
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		all := int64(0)
		for rank, n := range wrong {
			all += n
			if everybody := s.Name != "reduce-scatter" && s.Name != "all-gather"; everybody && n != 3 {
				t.Errorf("%s: rank %d finds %d wrong values, want 3", s.Name, rank, n)
			}
		}
		if all < 3 {
			t.Errorf("%s: %v wrong", s.Name, wrong)
		}
	}
}

// Whatever is wrong with a rank, all others say so and none of them hangs.
func TestMeshErrors(t *testing.T) {
	t.Parallel() // it waits
	const timeout = 3 * time.Second
	cases := []struct {
		name string
		odd  func(m *Mesh) error // what rank 1 does instead
		want error               // of all others
		text string
	}{
		{"other size", func(m *Mesh) error { _, err := m.AllReduce(Op{Bytes: 8000}); return err }, ErrMismatch, "rank 1"},
		{"other operation", func(m *Mesh) error { _, err := m.AllReduce(Op{Index: 1, Bytes: 4000}); return err }, ErrMismatch, "rank 1"},
		{"hangs up", func(m *Mesh) error { m.Close(); return nil }, ErrGone, "rank 1"},
		{"silent", func(*Mesh) error { time.Sleep(2 * timeout); return nil }, ErrSilent, "rank 1"},
		{"garbage", func(m *Mesh) error {
			for _, p := range m.peers {
				if p != nil && p.out != nil {
					p.out.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 10)))
				}
			}
			return nil
		}, ErrMismatch, "rank 1 says what makes no sense"},
		{"more than was asked for", func(m *Mesh) error {
			var b [messageLen]byte
			message{kind: transferMessage, bytes: 4000, phase: 3}.put(b[:])
			for _, p := range m.peers {
				if p != nil && p.out != nil {
					p.out.Write(b[:])
				}
			}
			return nil
		}, ErrMismatch, "rank 1 is at operation 0 of 4000 bytes, phase 3"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ms := meshes(t, collectives.HalvingDoubling(5), timeout)
			begin := time.Now()
			errs := together(5, func(rank int) error {
				if rank == 1 {
					return c.odd(ms[1])
				}
				_, err := ms[rank].AllReduce(Op{Bytes: 4000})
				return err
			})
			for rank, err := range errs {
				if rank != 1 && !errors.Is(err, c.want) {
					t.Errorf("rank %d: %v, want %v", rank, err, c.want)
				}
			}
			if err := errors.Join(errs...); !strings.Contains(fmt.Sprint(err), c.text) {
				t.Errorf("errors %v, want one with %q", err, c.text)
			}
			if d := time.Since(begin); d > 20*timeout {
				t.Errorf("that took %v", d)
			}
			for index := range int64(3) { // what was to be sent is taken by nobody any more
				if _, err := ms[0].AllReduce(Op{Index: 1 + index, Bytes: 4000}); err == nil {
					t.Error("a mesh that failed goes on")
				}
			}
		})
	}
}

// Whoever connects to a rank and is no rank of its job and run is not listened to, and does not
// Whoever loses patience first, somebody says which rank is silent: the others wait for it, or
// for one that does.
func TestMeshBlamesTheSilent(t *testing.T) {
	const ranks, silent = 5, 1
	for _, s := range []collectives.Schedule{collectives.HalvingDoubling(ranks), collectives.Ring(ranks)} {
		for impatient := range ranks {
			if impatient == silent {
				continue
			}
			t.Run(fmt.Sprintf("%s/rank %d is impatient", s.Name, impatient), func(t *testing.T) {
				t.Parallel()
				ms := meshes(t, s, time.Minute)
				ms[impatient].cfg.Timeout = 3 * time.Second
				errs := together(ranks, func(rank int) error {
					if rank == silent {
						return nil // and its connections stay
					}
					_, err := ms[rank].AllReduce(Op{Bytes: 4000})
					return err
				})
				for rank, err := range errs {
					if rank != silent && err == nil {
						t.Errorf("rank %d has a sum without rank %d", rank, silent)
					}
				}
				if err, want := errors.Join(errs...), "no answer in time: rank 1"; !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("errors %v, want one with %q", err, want)
				}
			})
		}
	}
}

// keep the ranks from each other.
func TestMeshStrangers(t *testing.T) {
	cfg := MeshConfig{Job: 5, Epoch: 1, Schedule: collectives.Ring(2), Seed: 7, Listen: "127.0.0.1", Timeout: 10 * time.Second}
	open := func(change func(c *MeshConfig)) *Mesh {
		t.Helper()
		c := cfg
		change(&c)
		m, err := NewMesh(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	a, b := open(func(*MeshConfig) {}), open(func(c *MeshConfig) { c.Rank = 1 })
	for _, say := range []string{"", "GET / HTTP/1.1\r\nHost: rank0\r\n\r\n", string(open(func(c *MeshConfig) { c.Epoch, c.Rank = 2, 1 }).helloTo(0))} {
		conn, err := net.Dial("tcp4", a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write([]byte(say))
		if say == "" {
			continue // and stays
		}
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q is answered: %d bytes, %v", say, n, err)
		}
	}
	addrs := []string{a.Addr(), b.Addr()}
	errs := together(2, func(rank int) error { return []*Mesh{a, b}[rank].Connect(t.Context(), addrs) })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	errs = together(2, func(rank int) error { _, err := []*Mesh{a, b}[rank].AllReduce(Op{Bytes: 4000}); return err })
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Ranks that are configured differently find out when they meet; those that are not there are
// named.
func TestMeshConnectFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(c *MeshConfig)
		want   error
		text   string
	}{
		{"another schedule", func(c *MeshConfig) { c.Schedule = collectives.RecursiveDoubling(3) }, ErrMismatch, "another schedule"},
		{"another seed", func(c *MeshConfig) { c.Seed = 8 }, ErrMismatch, "seed"},
		{"another run", func(c *MeshConfig) { c.Epoch = 9 }, ErrMismatch, "not of this run"},
		{"a rank twice", func(c *MeshConfig) { c.Rank = 1 }, ErrMismatch, "rank"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ms []*Mesh
			var addrs []string
			for rank := range 3 {
				cfg := MeshConfig{Job: 5, Epoch: 1, Rank: rank, Schedule: collectives.Ring(3), Seed: 7, Listen: "127.0.0.1", Timeout: 5 * time.Second}
				if rank == 2 {
					c.change(&cfg)
				}
				m, err := NewMesh(cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(m.Close)
				ms, addrs = append(ms, m), append(addrs, m.Addr())
			}
			errs := together(3, func(rank int) error {
				err := ms[rank].Connect(t.Context(), addrs)
				if err == nil {
					_, err = ms[rank].AllReduce(Op{Bytes: 4000})
				}
				ms[rank].Close()
				return err
			})
			if err := errors.Join(errs...); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %v with %q", err, c.want, c.text)
			}
		})
	}
	m, err := NewMesh(MeshConfig{Job: 5, Epoch: 1, Schedule: collectives.Ring(3), Listen: "127.0.0.1", Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Connect(t.Context(), []string{"", m.Addr(), ""}); !errors.Is(err, ErrMismatch) {
		t.Errorf("a rank that is to be another: %v", err)
	}
}

// Who does not come in time is named, with what is missing of it.
func TestMeshLacking(t *testing.T) {
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // as a process that is stopped
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	m, err := NewMesh(MeshConfig{Job: 5, Epoch: 1, Schedule: collectives.Ring(3), Listen: "127.0.0.1", Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	err = m.Connect(t.Context(), []string{m.Addr(), deaf.Addr().String(), "127.0.0.1:1"})
	taken := "rank 1 at " + deaf.Addr().String() + " has taken a connection and not said who it is"
	if awaited := "rank 2 has not connected to this one at " + m.Addr(); !errors.Is(err, ErrSilent) || !strings.HasSuffix(err.Error(), taken+"; "+awaited) {
		t.Errorf("%v, want %s; %s", err, taken, awaited)
	}
}

// A rank that gives up before all are there is noticed at once.
func TestMeshGone(t *testing.T) {
	var ms []*Mesh
	var addrs []string
	for rank := range 3 {
		m, err := NewMesh(MeshConfig{Job: 5, Epoch: 1, Rank: rank, Schedule: collectives.Ring(3), Seed: 7, Listen: "127.0.0.1", Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		ms, addrs = append(ms, m), append(addrs, m.Addr())
	}
	// Rank 1 is told of a rank 2 that is not there; rank 0, which sends to rank 1, waits for rank 2.
	wrong := []string{addrs[0], addrs[1], "127.0.0.1:1"}
	failed := make(chan error, 1)
	go func() {
		err := ms[1].Connect(t.Context(), wrong)
		ms[1].Close()
		failed <- err
	}()
	begin := time.Now()
	err := ms[0].Connect(t.Context(), addrs)
	if took := time.Since(begin); errors.Is(err, ErrSilent) || err == nil || !strings.Contains(err.Error(), "rank 1") || took > 30*time.Second {
		t.Errorf("%v after %v, want what has become of rank 1", err, took) // gone, or it hung up on a greeting
	}
	if err := <-failed; !errors.Is(err, ErrGone) {
		t.Errorf("rank 1: %v", err)
	}
}

// Messages are read as they were written; all other bytes are none.
func TestMessage(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 5))
	messages := 0
	for range 10_000 {
		var b, again [messageLen]byte
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if rng.IntN(2) == 0 { // more like one
			b[0], b[1], b[8], b[16] = b[0]%6, b[1]%3, b[8]>>1, b[16]>>1
		}
		h, ok := parseMessage(b[:])
		h.put(again[:])
		if ok != (again == b) || !ok && h != (message{}) {
			t.Fatalf("%x is %+v (%v), which is %x", b, h, ok, again)
		}
		if ok {
			messages++
		}
	}
	if messages < 100 {
		t.Errorf("only %d messages", messages)
	}
}

// BenchmarkMesh is ranks in one process on lo: processor time, sums checked.
func BenchmarkMesh(b *testing.B) {
	for _, name := range []string{"ring", "halving-doubling"} {
		for _, n := range []int{4, 12} {
			for _, size := range []int64{4, 1 << 20} {
				b.Run(fmt.Sprintf("%s/ranks=%d/bytes=%d", name, n, size), func(b *testing.B) {
					s, err := collectives.New(name, n)
					if err != nil {
						b.Fatal(err)
					}
					ms := meshes(b, s, 0)
					b.SetBytes(size * int64(n))
					b.ReportAllocs()
					index := int64(0)
					for b.Loop() {
						op := Op{Index: index, Bytes: size}
						index++
						if err := errors.Join(together(n, func(rank int) error { _, err := ms[rank].AllReduce(op); return err })...); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// AllReduce sums the reference gradients of the ranks, as Fill, Exchange and Check do. Of op it
// knows neither Asked nor Vote.
func (m *Mesh) AllReduce(op Op) (Reduced, error) {
	m.Fill(op)
	stop, err := m.Exchange(op)
	if err != nil {
		return Reduced{}, err
	}
	r := Reduced{Stop: stop}
	r.Checked, r.Wrong = m.Check(op)
	return r, nil
}
