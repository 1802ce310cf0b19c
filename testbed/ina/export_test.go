package ina

// What tests ask and nobody else does.

// Taken is the number of aggregators in use.
func (s *Switch) Taken() int {
	n := 0
	for i := range s.aggs {
		if s.aggs[i].job != 0 {
			n++
		}
	}
	return n
}

// Window is the present window in packets.
func (w *Worker) Window() float64 { return w.cwnd }

// Refusals is how many switches, at least, refused the latest operation, as all workers
// were told: 0 unless it is OpRefused.
func (r *Reducer) Refusals() uint32 { return r.refusals % veto }

// PacketLen is the UDP payload bytes of the longest packet.
func (r *Reducer) PacketLen() int { return max(r.w.PacketLen(), HeaderLen+4*OpLanes) }
