package sharp

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	amLineForm = regexp.MustCompile(`^\[(\w{3} [ \d]\d \d\d:\d\d:\d\d) (\d{6})\]\[(\w+) *\]\[(\d+)\]\[(\w+) *\] - (.*)$`)
	amBegin    = regexp.MustCompile(`^Begin Job:.*?job_id_external: (\d+)\b.*?job_id_sharp: (\d+)\b.*?quota_percent: ([\d.]+)(?:.*?request_sat: ([01])\b)?`)
	amQuota    = regexp.MustCompile(`^(.*?) ?Allocated quota \{ q:(\d+), ud:(\d+) o:(\d+) g:(\d+) \}(?: child_index_per_port: (\d+))?.*?tree_id: (\d+)`)
	amEnd      = regexp.MustCompile(`^End Job: job_id_sharp: (\d+) reason: (.*)$`)
)

// parseAMLine reads one line. ok is false, and the line zero, if it is not one of sharp_am,
// or of one that its numbers do not fit.
func parseAMLine(text string) (line AMLine, ok bool) {
	m := amLineForm.FindStringSubmatch(strings.TrimRight(text, "\r\n"))
	if m == nil {
		return AMLine{}, false
	}
	at, err := time.Parse(amStamp, m[1])
	if err != nil {
		return AMLine{}, false
	}
	ok = true
	line = AMLine{
		Time:      at.Add(time.Duration(parseInt(m[2], &ok)) * time.Microsecond),
		Component: m[3], Process: parseInt(m[4], &ok), Level: m[5], Message: m[6],
	}
	if b := amBegin.FindStringSubmatch(line.Message); b != nil {
		percent, err := strconv.ParseFloat(b[3], 64)
		line.Begin = &AMBegin{External: parseNumber(b[1], &ok), Job: parseNumber(b[2], &ok), QuotaPercent: percent, SAT: b[4] == "1"}
		ok = ok && err == nil
	} else if a := amQuota.FindStringSubmatch(line.Message); a != nil {
		line.Allocated = &AMAllocated{Of: a[1], QPs: parseInt(a[2], &ok), UserData: parseInt(a[3], &ok), OSTs: parseInt(a[4], &ok), Groups: parseInt(a[5], &ok), Tree: parseNumber(a[7], &ok)}
		if a[6] != "" {
			line.Allocated.Child = parseInt(a[6], &ok)
		}
	} else if e := amEnd.FindStringSubmatch(line.Message); e != nil {
		line.End = &AMEnd{Job: parseNumber(e[1], &ok), Reason: e[2]}
	}
	if !ok {
		return AMLine{}, false
	}
	return line, true
}

// TestAMLine reads the lines that were published.
func TestAMLine(t *testing.T) {
	text, err := os.ReadFile("testdata/sharp_am.log")
	if err != nil {
		t.Fatal(err)
	}
	var got []AMLine
	for line := range strings.Lines(string(text)) {
		if l, ok := parseAMLine(line); ok {
			l.Message = ""
			got = append(got, l)
		}
	}
	at := func(us int) time.Time {
		return time.Date(0, time.May, 22, 2, 20, 8, us*1000, time.UTC)
	}
	want := []AMLine{
		{Time: at(752213), Component: "GENERAL", Process: 336070, Level: "info", Begin: &AMBegin{External: 9370583446386220315, Job: 211, QuotaPercent: 3, SAT: true}},
		{Time: at(752240), Component: "JOBS", Process: 336070, Level: "info", Allocated: &AMAllocated{Of: "AN leaf1", QPs: 2, UserData: 1024, OSTs: 23, Groups: 23, Child: 1}},
		{Time: at(752300), Component: "FABRIC", Process: 336070, Level: "warn"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzAMLine: a line that is read is written so that it reads the same.
func FuzzAMLine(f *testing.F) {
	f.Add("[May 22 02:20:08 752213][GENERAL][336070][info ] - Begin Job: job_id_external: 7 job_id_sharp: 211 quota_percent: 3.00 request_sat: 1")
	f.Add("[May  2 02:20:08 752213][JOBS   ][336070][info ] - x Allocated quota { q:2, ud:1024 o:23 g:23 } child_index_per_port: 1 tree_id: 0")
	f.Add("[May  2 02:20:08 752213][JOBS   ][336070][info ] - End Job: job_id_sharp: 3 reason: finished")
	f.Fuzz(func(t *testing.T, text string) {
		l, ok := parseAMLine(text)
		if !ok {
			if l != (AMLine{}) {
				t.Fatalf("not a line, but %+v", l)
			}
			return
		}
		once := l.String()
		m, ok := parseAMLine(once)
		if !ok {
			t.Fatalf("%q is not read again", once)
		}
		if twice := m.String(); twice != once {
			t.Fatalf("%q, then %q", once, twice)
		}
	})
}
