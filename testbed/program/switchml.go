package program

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var switchmlJob = regexp.MustCompile(`Job\(s\) #(\d+)# finished\. Duration: #(\d+)# ns Goodput: #([-+.\deE]+)# Gbps`)

// ReadSwitchML reads what SwitchML's all-reduce benchmark prints: a line for each job, with
// fields between '#'. Goodput is gradients alone, 32 bits a value over the time, in 10^9
// bit/s. Source: github.com/p4lang/p4app-switchML, dev_root/benchmarks/allreduce_benchmark.
func ReadSwitchML(text []byte) (*Reading, error) {
	r := &Reading{}
	var rates, times []float64
	verified := false
	for line := range bytes.Lines(text) {
		l := string(bytes.TrimSpace(line))
		verified = verified || strings.Contains(l, "Data verified successfully")
		m := switchmlJob.FindStringSubmatch(l)
		if m == nil {
			if strings.Contains(l, "Data verification failed") {
				r.Wrong = l
			}
			continue
		}
		ns, err1 := strconv.ParseFloat(m[2], 64)
		gbps, err2 := strconv.ParseFloat(m[3], 64)
		if err1 != nil || err2 != nil || !finite(ns, gbps) || ns <= 0 {
			return nil, fmt.Errorf("SwitchML: %w: %.120q", ErrOutput, l)
		}
		rates, times = append(rates, gbps*1e9), append(times, ns*1e-9)
	}
	if len(rates) == 0 {
		return nil, fmt.Errorf("SwitchML: %w: no \"Job(s) #i# finished\"%s", ErrOutput, complaint(text))
	}
	r.addMean("goodput", "", rates)
	r.addMean("jct", "", times)
	if !verified {
		r.note("it does not say that data was verified (--verify)")
	}
	return r, nil
}

// CheckSwitchML says what is wrong with a configuration of SwitchML's client library, so that
// a run does not end in a FATAL, or measure another window than was asked for. What the file
// does not set has the library's default, and the default of packet_numel is one that its
// backends refuse. Source: client_lib/src/config.cc, and the backends.
//
// workers is how many hosts take part; 0: not known.
func CheckSwitchML(config []byte, workers int) (problems []string) {
	set := map[string]string{
		"general.backend": "", "general.packet_numel": "1024", "general.num_workers": "2",
		"general.num_worker_threads": "4", "general.max_outstanding_packets": "256",
	}
	section := ""
	for text := range strings.Lines(string(config)) {
		line, _, _ := strings.Cut(text, "#")
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = strings.Trim(line, "[]") + "."
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok {
			set[section+strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	number := func(key string) int {
		v, err := strconv.Atoi(set["general."+key])
		if err != nil || v < 1 {
			say("%s = %q is not a number above 0", key, set["general."+key])
			return 0
		}
		return v
	}
	switch b := set["general.backend"]; {
	case b == "dummy":
		say("backend = dummy sends nothing: write backend = dpdk or rdma")
	case !slices.Contains([]string{"dpdk", "rdma"}, b):
		say("backend = %q: write dpdk or rdma", b)
	}
	if n := number("packet_numel"); n != 64 && n != 256 && n != 0 {
		say("packet_numel = %d: the switch takes 64, or 256 with the folded pipeline; the library's default, 1024, is refused", n)
	}
	switch n := number("num_workers"); {
	case n == 1:
		say("num_workers = 1: the switch only works with jobs of 2 workers or more")
	case n != 0 && workers != 0 && n != workers:
		say("num_workers = %d, and there are %d hosts", n, workers)
	}
	if w, t := number("max_outstanding_packets"), number("num_worker_threads"); w > 0 && t > 0 && w%t != 0 {
		say("max_outstanding_packets = %d is not a multiple of num_worker_threads = %d: the library would change it, and the window not be the one asked for", w, t)
	}
	return problems
}
