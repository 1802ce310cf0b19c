package program

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// What ATP's client sends, by its packet.h: a tensor of 1,024,000 values is 16,517 packets of
// 62 values; each is 308 bytes with its Ethernet and IP headers, of which 248 are gradients.
const (
	atpPackets = 16517
	atpWire    = 308
	atpPayload = 248
)

var (
	atpLoss   = regexp.MustCompile(`^Loss Rate: ?([-+.\deE]+)`)
	atpFinish = regexp.MustCompile(`^Finish all (\d+) Tensors`)
	atpTime   = regexp.MustCompile(`^Time = ([-+.\deE]+) s`)
	atpSays   = regexp.MustCompile(`^Throughput: ([-+.\deE]+) Gbps`)
)

// ReadATP reads what ATP's client prints: a number a second, then the end.
//
// Its "Gbps" are 2^30 bits a second of packets with their headers; wire_rate is in bit/s, and
// goodput the part of it that is gradients. The number of a second in which no whole tensor
// came to its end is 0; the rate over the whole is from the number of tensors and the time.
//
// Source: github.com/in-ATP/ATP, client/main.cc and common/packet.h.
func ReadATP(text []byte) (*Reading, error) {
	r := &Reading{}
	var seconds []float64
	tensors, duration, says := 0.0, 0.0, 0.0
	for line := range bytes.Lines(text) {
		l := strings.TrimSpace(string(line))
		number := func(m []string) (v float64) {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil || !finite(v) || v < 0 {
				r.note("not a number: %.60q", l)
				return 0
			}
			return v
		}
		if v, err := strconv.ParseFloat(l, 64); err == nil && finite(v) && v >= 0 {
			if v > 0 || len(seconds) > 0 { // until the first tensor is through
				seconds = append(seconds, v*(1<<30))
			}
			continue
		}
		if m := atpLoss.FindStringSubmatch(l); m != nil {
			r.add("loss", "", number(m), 2)
		} else if m := atpFinish.FindStringSubmatch(l); m != nil {
			tensors = number(m)
		} else if m := atpTime.FindStringSubmatch(l); m != nil {
			duration = number(m)
		} else if m := atpSays.FindStringSubmatch(l); m != nil {
			says = number(m)
		}
	}
	if tensors == 0 || duration == 0 {
		return nil, fmt.Errorf("ATP client: %w: no \"Finish all N Tensors\" with a time: it was cut off", ErrOutput)
	}
	wire := tensors * atpPackets * atpWire * 8 / duration
	r.add("wire_rate", "", wire, max(2, len(seconds)))
	if len(seconds) > 2 { // each second's number says how much the rate varied
		varied := &Reading{}
		varied.addMean("wire_rate", "", seconds)
		f := &r.Figures[len(r.Figures)-1]
		*f = varied.Figures[0].Affine(1, wire-varied.Figures[0].Value)
	}
	r.Figures = append(r.Figures, r.Figures[len(r.Figures)-1].Affine(float64(atpPayload)/atpWire, 0))
	r.Figures[len(r.Figures)-1].Metric = "goodput"
	r.add("jct", "", duration, 2)
	r.note("ATP's Gbps are 2^30 bits of whole packets: it says %v; goodput is the %d of %d bytes that are gradients", says, atpPayload, atpWire)
	r.note("tensors are taken to have 1,024,000 values, as published; as published, too, the client keeps a fixed window (CC_ENABLE is false) and sends what its buffer holds, so that sums cannot be checked")
	return r, nil
}
