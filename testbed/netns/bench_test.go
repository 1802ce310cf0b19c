package netns

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"
)

func BenchmarkBringUp(b *testing.B) {
	for _, size := range []struct{ spines, tors, perTor int }{{2, 8, 8}} {
		b.Run(fmt.Sprintf("hosts=%d", size.tors*size.perTor), func(b *testing.B) {
			inv := rack(size.spines, size.tors, size.perTor)
			var upTime, downTime time.Duration
			for b.Loop() {
				start := time.Now()
				f, err := Up(b.Context(), inv, Options{Log: io.Discard})
				if err != nil {
					b.Fatal(err)
				}
				upTime += time.Since(start)
				start = time.Now()
				if err := f.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
				downTime += time.Since(start)
			}
			b.ReportMetric(upTime.Seconds()/float64(b.N), "s/up")
			b.ReportMetric(downTime.Seconds()/float64(b.N), "s/down")
		})
	}
}
