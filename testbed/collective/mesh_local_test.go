package collective

import (
	"errors"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/collectives"
)

// What ranks of one host send each other takes no less than it must at the rate they have,
// however many blocks that is and with however many ranks one shares it.
func TestLocalRate(t *testing.T) {
	const (
		bytes = 60_000
		rate  = 4e6
	)
	for _, s := range []collectives.Schedule{collectives.HalvingDoubling(2), collectives.ParameterServer(3, 1)} {
		t.Run(s.Name, func(t *testing.T) {
			ms := meshesOf(t, s, MeshConfig{Timeout: 10 * time.Second, LocalRate: rate})
			for index := range int64(3) {
				began := time.Now()
				errs := together(s.Workers, func(rank int) error {
					got, err := ms[rank].AllReduce(Op{Index: index, Bytes: bytes})
					if err == nil && (got.Wrong != 0 || got.Checked != bytes/4) {
						err = errors.New("wrong sums")
					}
					return err
				})
				took := time.Since(began)
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				at := make([]int, s.Workers)
				least := s.Seconds(at, 8*bytes, collectives.Network{Rate: func(int) float64 { return 1 }, Worker: rate})
				if took.Seconds() < least*(1-1e-6) {
					t.Errorf("%v, and at %g bit/s it takes %.3f s", took, rate, least)
				}
			}
		})
	}
}
