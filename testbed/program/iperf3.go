package program

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/inabench/inabench/results"
)

// iperfSum is a sum over streams, of an interval or of the whole test.
type iperfSum struct {
	Start       float64  `json:"start"`
	End         float64  `json:"end"`
	Seconds     float64  `json:"seconds"`
	Bytes       float64  `json:"bytes"`
	Rate        float64  `json:"bits_per_second"`
	Retransmits *float64 `json:"retransmits"`
	JitterMS    *float64 `json:"jitter_ms"`
	Lost        *float64 `json:"lost_packets"`
	Packets     *float64 `json:"packets"`
	Omitted     bool     `json:"omitted"`
}

// iperfOutput is what iperf3 -J writes. Keys that it repeats, one for each stream
// (sock_bufsize and others in "start"), are not read: a JSON reader sees only the last.
type iperfOutput struct {
	Start struct {
		Version   string `json:"version"`
		TestStart struct {
			Protocol string  `json:"protocol"`
			Streams  int     `json:"num_streams"`
			Duration float64 `json:"duration"`
			Bidir    int     `json:"bidir"`
			Reverse  int     `json:"reverse"`
		} `json:"test_start"`
	} `json:"start"`
	Intervals []struct {
		Sum iperfSum `json:"sum"`
	} `json:"intervals"`
	End struct {
		Sum      *iperfSum `json:"sum"` // UDP
		Sent     *iperfSum `json:"sum_sent"`
		Received *iperfSum `json:"sum_received"`
	} `json:"end"`
	Error string `json:"error"`
}

// ReadIPerf3 reads what `iperf3 -J` (or --json-stream) printed: of a client, and of its
// server, if there is one, whose intervals say when bytes arrived. Without them the rate is
// the client's sum_received, and the interval around it that of what was sent.
//
// A test that measured less than 95 % of the time that it was asked for ended early, which is ErrFailed.
//
// A client that could not connect exits with 0; the only sign is the key "error", which
// is ErrFailed. Source: iperf 3.12, run.
func ReadIPerf3(client, server []byte) (*Reading, error) {
	c, err := parseIPerf(client)
	if err != nil {
		return nil, fmt.Errorf("iperf3 client: %w", err)
	}
	var s *iperfOutput
	if len(bytes.TrimSpace(server)) > 0 {
		if s, err = parseIPerf(server); err != nil {
			return nil, fmt.Errorf("iperf3 server: %w", err)
		}
	}
	switch t := c.Start.TestStart; {
	case t.Bidir != 0:
		return nil, fmt.Errorf("iperf3: %w: both directions in one test; start two", ErrOutput)
	case t.Reverse != 0: // the server's intervals say what it sent
		return nil, fmt.Errorf("iperf3: %w: the other direction (-R); name the pair the other way round", ErrOutput)
	}
	r := &Reading{}
	udp := c.Start.TestStart.Protocol == "UDP"
	got := c.End.Received
	if udp && got == nil { // before 3.7 or so
		if got = c.End.Sum; got != nil && got.Lost != nil && got.Packets != nil && *got.Packets > 0 {
			less := *got
			less.Rate *= 1 - *got.Lost / *got.Packets
			got = &less
			r.note("this iperf3 does not say what arrived: what was sent, less what was lost")
		}
	}
	if got == nil || !finite(got.Rate) {
		return nil, fmt.Errorf("iperf3 client: %w: no sum_received at the end", ErrOutput)
	}
	if asked, measured := c.Start.TestStart.Duration, c.measured(got); asked > 0 && !(measured >= 0.95*asked) { // of -n and -k it is 0
		return nil, fmt.Errorf("iperf3 client: %w: it measured %.3g s of %.3g s", ErrFailed, measured, asked)
	}
	if err := r.iperfGoodput(c, s, got); err != nil {
		return nil, fmt.Errorf("iperf3: %w", err)
	}
	if c.End.Sent != nil && c.End.Sent.Retransmits != nil {
		r.add("retransmits", "", *c.End.Sent.Retransmits, 2)
	}
	if sum := c.End.Sum; udp && sum != nil {
		if sum.JitterMS != nil {
			r.add("jitter", "", *sum.JitterMS/1e3, 2)
		}
		if sum.Lost != nil && sum.Packets != nil && *sum.Packets > 0 {
			r.add("loss", "", *sum.Lost / *sum.Packets, 2)
		}
	}
	return r, nil
}

// measured is how long a client measured, seconds, as its sum at the end says and its intervals, if it has any. Neither has
// what was omitted.
func (o *iperfOutput) measured(end *iperfSum) float64 {
	all := 0.0
	for _, i := range o.Intervals {
		if !i.Sum.Omitted {
			all += i.Sum.Seconds
		}
	}
	if s := cmp.Or(end.Seconds, end.End-end.Start); len(o.Intervals) == 0 || s < all {
		return s
	}
	return all
}

// iperfGoodput adds what arrived, over the intervals that were not omitted.
func (r *Reading) iperfGoodput(client, server *iperfOutput, got *iperfSum) error {
	from := client
	if server != nil {
		from = server
	}
	until := client.Start.TestStart.Duration // what comes after is on its way when others have ended
	var total float64
	var s results.Series
	for _, i := range from.Intervals {
		span := i.Sum.End - i.Sum.Start
		switch {
		case i.Sum.Omitted, until > 0 && i.Sum.End > until+0.05:
			continue
		case math.Abs(span-i.Sum.Seconds) > 0.1*i.Sum.Seconds:
			continue // a server's first one after those that are omitted: it counts some of them
		case len(s.T) > 0 && math.Abs(i.Sum.Start-s.T[len(s.T)-1]) > 0.1*span:
			s, total = results.Series{}, 0
		}
		if len(s.T) == 0 {
			s.T, s.V = append(s.T, i.Sum.Start), append(s.V, 0)
		}
		if i.Sum.End <= s.T[len(s.T)-1] {
			continue
		}
		total += i.Sum.Bytes
		s.T, s.V = append(s.T, i.Sum.End), append(s.V, total)
	}
	if len(s.T) < 3 { // one interval
		r.add("goodput", "", got.Rate, 1) // a single reading
		return nil
	}
	if err := r.addRate("goodput", "", 8, s); err != nil {
		return err
	}
	r.arrived = &s
	f := &r.Figures[len(r.Figures)-1]
	if server == nil { // when it was sent says how much it varied, the sum how much arrived
		*f = f.Affine(1, got.Rate-f.Value)
	}
	return nil
}

func parseIPerf(text []byte) (*iperfOutput, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, fmt.Errorf("%w: it printed nothing", ErrOutput)
	}
	out := &iperfOutput{}
	var err error
	if first, _, _ := bytes.Cut(text, []byte("\n")); bytes.HasPrefix(first, []byte(`{"event"`)) {
		err = out.stream(text)
	} else {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %v: %.60q", ErrOutput, err, text)
	}
	if out.Error != "" {
		return nil, fmt.Errorf("%w: %s", ErrFailed, strings.TrimPrefix(out.Error, "error - "))
	}
	return out, nil
}

// stream reads --json-stream: an event a line.
func (o *iperfOutput) stream(text []byte) error {
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e struct {
			Event string          `json:"event"`
			Data  json.RawMessage `json:"data"`
		}
		err := json.Unmarshal(line, &e)
		if err != nil {
			return err
		}
		switch e.Event {
		case "start":
			err = json.Unmarshal(e.Data, &o.Start)
		case "interval":
			o.Intervals = append(o.Intervals, struct {
				Sum iperfSum `json:"sum"`
			}{})
			err = json.Unmarshal(e.Data, &o.Intervals[len(o.Intervals)-1])
		case "end":
			err = json.Unmarshal(e.Data, &o.End)
		case "error":
			err = json.Unmarshal(e.Data, &o.Error)
		}
		if err != nil {
			return fmt.Errorf("event %s: %w", e.Event, err)
		}
	}
	return nil
}
