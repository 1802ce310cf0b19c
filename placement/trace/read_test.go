package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inabench/inabench/internal/heap"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// Rows are those that the traces' own documentation shows.
func TestReadFormats(t *testing.T) {
	first := func(id string, submit, duration float64, gpus int, model, source string) Job {
		return Job{ID: id, Submit: submit, Duration: duration, GPUs: gpus, Model: model, Source: source}
	}
	by := func(user string, j Job) Job {
		j.User = user
		return j
	}
	for _, tt := range []struct {
		name, format, text string
		want               []Job
		ignored            int
		origin             string
	}{
		{
			name: "own, columns in another order, one too many, byte order mark", format: "inabench",
			text: "\ufeffgpus,job_id,Submit_S,user,duration_s,model,source,note\r\n" +
				"8,t1-1,201694.5,x,4472936,vgg16,philly/7f04ca,\r\n1,t1-0,0,y,2868294,,,\r\n",
			want:    []Job{by("y", first("t1-0", 0, 2868294, 1, "", "")), by("x", first("t1-1", 201694.5, 4472936, 8, "vgg16", "philly/7f04ca"))},
			ignored: 1,
		},
		{
			name: "Muri", format: "muri",
			text: "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,priority\n" +
				"0,16,3840000,4378042,vgg16,16,1453510000,3840000,332,83,0\n",
			want: []Job{first("0", 3840, 1453510, 16, "vgg16", "")}, ignored: 6,
		},
		{
			name: "ElasticFlow, raw", format: "elasticflow",
			text: "job_id,submission_time,duration,num_gpu\n965d744f-0445-c1a8-12af-97e4c536c66e,1932025,2429,64\n",
			want: []Job{first("965d744f-0445-c1a8-12af-97e4c536c66e", 1932025, 2429, 64, "", "")},
		},
		{
			name: "ElasticFlow, full", format: "elasticflow",
			text: "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n" +
				"6b2d9ccc-6279-403c-e1a2-cfe7810d5c57,16566,40285,bert,21347,64,4,3890\n",
			want: []Job{first("6b2d9ccc-6279-403c-e1a2-cfe7810d5c57", 16566, 3890, 4, "bert", "")}, ignored: 3,
		},
		{
			name: "Acme, Seren", format: "acme",
			text: "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n" +
				"5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0\n" +
				"5778469,u5907,1,8,128,Other,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,2023-03-01 01:09:04+08:00,2693,13,21544.0\n",
			want: []Job{by("u5907", first("5778432", 0, 117, 8, "", "")), by("u5907", first("5778469", 336, 2693, 8, "", ""))}, ignored: 6,
			origin: "2023-02-28T16:18:22Z",
		},
		{
			// Its duration of 18 s has the 10 s of queueing in it.
			name: "Acme, Kalos", format: "acme",
			text: "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n" +
				"dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0\n",
			want: []Job{by("uf794", first("dlctk696s0jbvitv", 0, 8, 64, "", ""))}, ignored: 10, origin: "2023-05-17T11:00:58Z",
		},
		{
			name: "Helios", format: "acme",
			text: "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n" +
				"1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n",
			want: []Job{by("uVMrF", first("1425512", 0, 249, 4, "", "vchbv"))}, ignored: 4, origin: "2020-06-09T18:41:27Z",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, report, err := Read("x.csv", strings.NewReader(tt.text), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Jobs, cmpopts.IgnoreFields(Job{}, "Line")); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			if report.Format != tt.format || report.Rows != len(tt.want) || len(report.Ignored) != tt.ignored || report.SkippedRows() != 0 {
				t.Errorf("report %+v", report)
			}
			if origin := got.Origin.Format(time.RFC3339); !got.Origin.IsZero() && origin != tt.origin || got.Origin.IsZero() != (tt.origin == "") {
				t.Errorf("origin %s, want %q", origin, tt.origin)
			}
		})
	}
}

// A file may say whose a job is and what it is worth; both are written where some job has one.
func TestUsersAndValues(t *testing.T) {
	const columns, rest = "job_id,submit_s,duration_s,gpus,model,source,user,value\n", "b,1,1,1,,,bob,\n"
	const text = columns + "a,0,1,1,,,alice,2.5\n" + rest
	tr, report, err := Read("x.csv", strings.NewReader(text), Options{})
	if err != nil || len(report.Ignored) > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	want := []Job{{ID: "a", Duration: 1, GPUs: 1, User: "alice", Value: 2.5, Line: 2}, {ID: "b", Submit: 1, Duration: 1, GPUs: 1, User: "bob", Line: 3}}
	if diff := cmp.Diff(want, tr.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	var out strings.Builder
	if err := tr.Write(&out); err != nil || out.String() != text {
		t.Errorf("written: %v\n%s", err, out.String())
	}
	for value, want := range map[string]string{
		"lots": `x.csv:2:17: value "lots" is not a number`,
		"0":    `x.csv:2:17: a value of "0": 1e-06 to 1e+06`,
		"-1":   `x.csv:2:17: a value of "-1": 1e-06 to 1e+06`,
		"1e7":  `x.csv:2:17: a value of "1e7": 1e-06 to 1e+06`,
	} {
		_, _, err := Read("x.csv", strings.NewReader(columns+"a,0,1,1,,,alice,"+value+"\n"+rest), Options{})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", value, err, want)
		}
	}
}

func TestReadColumns(t *testing.T) {
	f, err := ParseColumns("id=Name, submit=when,gpus=n,start=from,end=to,model=net")
	if err != nil {
		t.Fatal(err)
	}
	text := "name,when,from,to,n,net,note\nb,2024-02-29T12:00:01Z,2024-02-29T12:00:00Z,2024-02-29T13:00:00+01:00,2,x,\n" +
		"a,2024-02-29T12:00:00.5Z,2024-02-29 12:00:00,2024-02-29 12:01:40,1,,\n"
	_, _, err = Read("x.csv", strings.NewReader(text), Options{Format: &f})
	if err == nil || !strings.Contains(err.Error(), "x.csv:2:45: duration of 0 s: it must be above 0") {
		t.Errorf("error %v", err)
	}
	got, report, err := Read("x.csv", strings.NewReader(text), Options{Format: &f, Lenient: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Job{{ID: "a", Duration: 100, GPUs: 1, Line: 3}}; !cmp.Equal(got.Jobs, want) {
		t.Errorf("jobs %+v", got.Jobs)
	}
	if want := (&Report{"columns", 2, []string{"note"}, map[Reason]int{BadDuration: 1}}); !cmp.Equal(report, want) {
		t.Errorf("report %+v", report)
	}
	for mapping, want := range map[string]string{
		"submit=b,duration=c":            "no column for gpus",
		"id=a,submit=b,gpus=c,start=d":   "no column for duration, nor for start and end",
		"id=a,submit=b,duration=c,gpu=d": `unknown column key "gpu"`,
		"id=a,id=b":                      `column key "id" is given twice`,
		"id":                             `"id" names no column`,
		"":                               `"" names no column`,
		"id=a,submit=b,duration=c,gpus=d,model=,source": `"model=" names no column`,
	} {
		if _, err := ParseColumns(mapping); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", mapping, err, want)
		}
	}
}

const header = "job_id,submit_s,duration_s,gpus,model,source\n"

// Every kind of bad row, where it is, and under what it is counted.
func TestBadRows(t *testing.T) {
	for _, tt := range []struct {
		row, want string
		why       Reason
	}{
		{"a,0,-3,1,m,s", "x.csv:2:5: duration of -3 s: it must be above 0", BadDuration},
		{"a,0,0,1,m,s", "x.csv:2:5: duration of 0 s: it must be above 0", BadDuration},
		{"a,0,3,0,m,s", `x.csv:2:7: "0" GPUs: at least 1`, BadGPUs},
		{"a,0,3,-8,m,s", `x.csv:2:7: "-8" GPUs: at least 1`, BadGPUs},
		{"a,0,3,1.5,m,s", `x.csv:2:7: "1.5" GPUs is not a whole number up to 1048576`, NotNumber},
		{"a,0,3,99999999999999999999,m,s", `x.csv:2:7: "99999999999999999999" GPUs is not a whole number up to 1048576`, NotNumber},
		{"a,0,NaN,1,m,s", `x.csv:2:5: duration "NaN" is not a number`, NotNumber},
		{"a,0,1e999,1,m,s", `x.csv:2:5: duration "1e999" is not a number`, NotNumber},
		{"a,0,0x10,1,m,s", `x.csv:2:5: duration "0x10" is not a number`, NotNumber},
		{"a,soon,3,1,m,s", `x.csv:2:3: submit "soon" is neither a number nor a date`, NotTime},
		{"a,-1,3,1,m,s", `x.csv:2:3: submit "-1" is negative`, BadSubmit},
		{"a,1969-12-31 23:59:59,3,1,m,s", `x.csv:2:3: submit "1969-12-31 23:59:59" is before 1970`, BadSubmit},
		{"a,2023-02-30 00:00:00,3,1,m,s", `x.csv:2:3: submit "2023-02-30 00:00:00" is neither a number nor a date`, NotTime},
		{",0,3,1,m,s", "x.csv:2:1: no id", MissingField},
		{"a,,3,1,m,s", "x.csv:2:3: no submit", MissingField},
		{"a,0,,1,m,s", "x.csv:2:5: no duration", MissingField},
		{"a,0,3,,m,s", "x.csv:2:7: no gpus", MissingField},
		{"a,0,3,1,m", "x.csv:2:1: 5 fields, the header has 6", WrongWidth},
		{"a,0,3,1,m,s,", "x.csv:2:1: 7 fields, the header has 6", WrongWidth},
		{`a,0,3,1,m"m,s`, `x.csv:2:10: not CSV: bare " in non-quoted-field`, NotCSV},
		{"a\x00b,0,3,1,m,s", `x.csv:2:1: id "a\x00b" is not printable text`, NotText},
		{strings.Repeat("i", 257) + ",0,3,1,m,s", `x.csv:2:1: id "` + strings.Repeat("i", 40) + `"... has 257 bytes, 256 are allowed`, NotText},
		{"good,0,3,1,m,s", `x.csv:3:1: id "good" is that of line 2`, Duplicate},
	} {
		text := header + tt.row + "\ngood,1,2,3,m,s\n"
		tr, _, err := Read("x.csv", strings.NewReader(text), Options{})
		var invalid *InvalidError
		var problems tomlfile.Problems
		if !errors.As(err, &invalid) || !errors.As(err, &problems) || tr != nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.row, err, tt.want)
		}
		var told []string
		tr, report, err := Read("x.csv", strings.NewReader(text), Options{
			Lenient: true, Skipped: func(p tomlfile.Problem) { told = append(told, p.Error()) },
		})
		if err != nil || len(tr.Jobs) != 1 || tr.Jobs[0].ID != "good" || report.Rows != 2 ||
			!cmp.Equal(report.Skipped, map[Reason]int{tt.why: 1}) || !cmp.Equal(told, []string{tt.want}) {
			t.Errorf("%s, lenient: %v %+v told %q", tt.row, err, report, told)
		}
	}
}

// A quote that nothing closes takes the rest of the file: the place is where it opens.
func TestOpenQuote(t *testing.T) {
	_, _, err := Read("x.csv", strings.NewReader(header+"a,0,3,1,m,s\nb,0,3,1,\"m,s\nc,0,3,1,m,s\n"), Options{})
	if want := `x.csv:3:1: not CSV: extraneous or missing " in quoted-field`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Twenty problems are shown, all are counted, and each row once by reason.
func TestManyProblems(t *testing.T) {
	var text strings.Builder
	text.WriteString(header)
	for i := range 40 {
		fmt.Fprintf(&text, "%d,-1,%d,1,m,s\n", i, i%2) // every row once, every other twice
	}
	text.WriteString("last,0,1,1,m,s\n")
	_, _, err := Read("x.csv", strings.NewReader(text.String()), Options{})
	var invalid *InvalidError
	if !errors.As(err, &invalid) || invalid.Total != 60 || len(invalid.Problems) != 20 || !strings.HasSuffix(err.Error(), " and 40 more") {
		t.Fatalf("error %v", err)
	}
	tr, report, err := Read("x.csv", strings.NewReader(text.String()), Options{Lenient: true})
	if err != nil || len(tr.Jobs) != 1 || report.SkippedRows() != 40 || report.Summary() != "submitted before the origin or 1970 (40)" {
		t.Errorf("%v %+v %q", err, report, report.Summary())
	}
}

func TestBadFiles(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "x.csv:1:1: empty file: a header is needed"},
		{"\n\n", "x.csv:1:1: empty file: a header is needed"},
		{header, "x.csv:1:1: a header and no job"},
		{"job_id,submit_s,gpus\n", `x.csv:1:1: no known trace format: nearest is inabench, which lacks "duration_s": there are "job_id", "submit_s", "gpus": ` +
			"inabench needs duration_s; muri needs submit_time, duration, num_gpu; elasticflow needs submission_time, duration, num_gpu; acme needs submit_time, duration, gpu_num; philly needs jobid, submitted_time, start_time, end_time; or name the columns"},
		{"job_id,submit_s,JOB_ID\n", `x.csv:1:17: column "JOB_ID" is there twice`},
		{"job\"id\n", `x.csv:1:4: the header is not CSV: bare " in non-quoted-field`},
	} {
		if tr, report, err := Read("x.csv", strings.NewReader(tt.text), Options{}); err == nil || err.Error() != tt.want || tr != nil || report != nil {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
	if _, _, err := Read("x.csv", strings.NewReader(header+"a,0,0,1,,\n"), Options{Lenient: true}); err == nil {
		t.Error("a file without a good row is a trace")
	}
	if _, _, err := Load(filepath.Join(t.TempDir(), "none.csv"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	boom := errors.New("boom")
	_, _, err := Read("x.csv", io.MultiReader(strings.NewReader(header), errReader{boom}), Options{})
	if !errors.Is(err, boom) || err.Error() != "read trace x.csv: boom" {
		t.Errorf("error %v", err)
	}
}

type errReader struct{ error }

func (e errReader) Read([]byte) (int, error) { return 0, e.error }

// garbage is n bytes that next makes, counting how many were asked for.
type garbage struct {
	n, asked int
	next     func([]byte)
}

func (g *garbage) Read(p []byte) (int, error) {
	if g.asked >= g.n {
		return 0, io.EOF
	}
	p = p[:min(len(p), g.n-g.asked)]
	g.next(p)
	g.asked += len(p)
	return len(p), nil
}

// A hundred megabytes of something else: a clear error, soon, in little memory.
func TestGarbage(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{1})
	random := func(p []byte) { _, _ = rnd.Read(p) }
	fill := func(s string) func([]byte) {
		return func(p []byte) {
			for i := range p {
				p[i] = s[i%len(s)]
			}
		}
	}
	for _, tt := range []struct {
		name, before string
		next         func([]byte)
		want         string
		within       int // bytes read
	}{
		{"random bytes", "", random, "x.csv:1:", 8 << 10},
		{"no newline", "", fill("job_id"), "x.csv:1:1: no row ends within 1 MiB", 2 << 20},
		{"one long line below a header", header, fill("12345678"), "x.csv:2:1: no row ends within 1 MiB", 2 << 20},
		{"an open quote", header + "a,0,1,1,m,s\nb,0,1,1,\"", fill("123456\n"), "x.csv:3:1: no row ends within 1 MiB", 2 << 20},
		{"empty lines", header, fill("\n"), "x.csv:2:1: no row ends within 1 MiB", 2 << 20},
		{"random bytes below a header", header, random, "stopped: not one of 10000 rows is a job", 8 << 20},
		{"short lines", header, fill("a\n"), "stopped: not one of 10000 rows is a job", 1 << 20},
		{"a bad row that never ends", header + `a,"b"c`, fill("x"), "x.csv:2:1: no row ends within 1 MiB", 2 << 20},
		{"bad rows below a good one", header + "a,0,1,1,m,s\n", fill("a,0,x\n1"), "more", 100 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !proof.Wanted() && tt.within > 8<<20 {
				t.Skip("reads 100 MiB")
			}
			g := &garbage{n: 100 << 20, next: tt.next}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			tr, _, err := Read("x.csv", io.MultiReader(strings.NewReader(tt.before), g), Options{})
			runtime.GC()
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tr != nil {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			if g.asked > tt.within {
				t.Errorf("%d bytes read, want at most %d", g.asked, tt.within)
			}
			if err != nil && len(err.Error()) > 8<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			// What is still held; what was taken at once is bounded by the row.
			if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 8<<20 {
				t.Errorf("%d bytes still held", held)
			}
			runtime.KeepAlive(err)
		})
	}
}

func TestCheckGPUs(t *testing.T) {
	tr := New("x.csv", []Job{{ID: "a", GPUs: 4, Duration: 1, Line: 2}, {ID: "b", GPUs: 9, Duration: 1, Line: 3}, {ID: "c", GPUs: 99, Duration: 1}})
	if err := tr.CheckGPUs(99); err != nil {
		t.Error(err)
	}
	want := "x.csv:3:1: job b asks for 9 GPUs, the cluster has 8\nx.csv: job c asks for 99 GPUs, the cluster has 8"
	var invalid *InvalidError
	if err := tr.CheckGPUs(8); !errors.As(err, &invalid) || err.Error() != want {
		t.Errorf("error %v", err)
	}
}

// Whatever is read: no panic, a trace or an error, and what is written reads the same.
func FuzzRead(f *testing.F) {
	f.Add(header+"a,0,3,1,m,s\nb,5.25,1e3,64,\"m,\"\"m\",s\n", false)
	f.Add(header+"a,2023-03-01 00:18:22+08:00,3,1,m,s\n", true)
	f.Add("job_id,gpu_num,submit_time,start_time,end_time,duration\n1,8.0,2023-03-01T00:00:00Z,2,3,\n", true)
	f.Add("job_id,num_gpu,submit_time,duration\n0,16,0,1453510000\n", false)
	f.Add("job_id,submission_time,duration,num_gpu\n\"x", true)
	f.Add(`[{"jobid": "a", "submitted_time": "2017-10-03 10:00:00", "attempts": [{"start_time": "2017-10-03 10:00:10", "end_time": "2017-10-03 10:01", "detail": [{"gpus": ["g"]}]}]}]`, false)
	f.Fuzz(func(t *testing.T, text string, lenient bool) {
		tr, report, err := Read("x", strings.NewReader(text), Options{Lenient: lenient})
		if (err == nil) == (tr == nil) || (err == nil) == (report == nil) {
			t.Fatalf("trace %v, report %v, error %v", tr, report, err)
		}
		if err != nil {
			return
		}
		if len(tr.Jobs)+report.SkippedRows() != report.Rows || !lenient && report.SkippedRows() > 0 {
			t.Fatalf("%d jobs of %+v", len(tr.Jobs), report)
		}
		var b bytes.Buffer
		if err := tr.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, _, err := Read("x", &b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tr.Jobs, again.Jobs, cmpopts.IgnoreFields(Job{}, "Line")); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}

// many is a trace of so many rows, each made when it is read.
type many struct {
	rows, next int
	text       []byte
}

func (m *many) Read(p []byte) (int, error) {
	if len(m.text) == 0 {
		switch {
		case m.next > m.rows:
			return 0, io.EOF
		case m.next == 0:
			m.text = []byte("job_id,submit_s,duration_s,gpus,model,source\n")
		default:
			m.text = fmt.Appendf(m.text, "application_1506638472019_%d,%d,60,8,vgg16,philly/7f04ca\n", m.next, m.next)
		}
		m.next++
	}
	n := copy(p, m.text)
	m.text = m.text[n:]
	return n, nil
}

// TestManyRows: a million rows fit a small machine.
func TestManyRows(t *testing.T) {
	proof.Only(t, "a million rows")
	const rows = 1_000_000
	grown := heap.Watch()
	tr, how, err := Read("many", &many{rows: rows}, Options{})
	if most := grown(); most > 400<<20 {
		t.Errorf("%d MiB for %d rows", most>>20, rows)
	}
	if err != nil || len(tr.Jobs) != rows || how.Rows != rows {
		t.Fatalf("%v, %v", how, err)
	}
	if want := (Job{ID: "application_1506638472019_7", Submit: 7, Duration: 60, GPUs: 8, Model: "vgg16", Source: "philly/7f04ca", Line: 8}); tr.Jobs[6] != want {
		t.Errorf("%+v, want %+v", tr.Jobs[6], want)
	}
}

// TestLimits: what is too much is said, with what is not.
func TestLimits(t *testing.T) {
	defer func(before struct{ jobs, names, rows int }) { limit = before }(limit)
	limit.jobs, limit.names, limit.rows = 1000, 10_000, 2000
	var skipped strings.Builder
	skipped.WriteString("job_id,submit_s,duration_s,gpus\n1,0,60,8\n")
	for i := range 2000 {
		fmt.Fprintf(&skipped, "j%d,%d,60,0\n", i, i)
	}
	var named strings.Builder
	named.WriteString("job_id,submit_s,duration_s,gpus\n")
	for i := range 60 {
		fmt.Fprintf(&named, "%0200d,%d,60,8\n", i, i)
	}
	for _, c := range []struct {
		in         io.Reader
		want, hint string
	}{
		{&many{rows: 1_000_000}, "many:1002:1: more than 1000 jobs", "head -n 1001 FILE has the header and the rows before"},
		{strings.NewReader(skipped.String()), "more than 2000 rows", ""},
		{strings.NewReader(named.String()), "ids, models, sources and users of more than 10000 bytes", ""},
	} {
		if c.hint == "" {
			limit.names = 10_000
		} else {
			limit.names = 1 << 20
		}
		_, _, err := Read("many", c.in, Options{Lenient: true})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(tomlfile.HintOf(err), c.hint) {
			t.Errorf("%v: %q, want %q", err, tomlfile.HintOf(err), c.want)
		}
	}
}

// TestSkippedDates: of a row that is skipped nothing says how the others give their times.
func TestSkippedDates(t *testing.T) {
	const text = "job_id,submit_s,duration_s,gpus\na,0,0,1\nb,2024-01-01 00:00:00,60,1\nc,2024-01-01 00:01:00,60,1\n"
	tr, _, err := Read("x.csv", strings.NewReader(text), Options{Lenient: true})
	if err != nil || len(tr.Jobs) != 2 || tr.Jobs[0].ID != "b" || tr.Jobs[1].Submit-tr.Jobs[0].Submit != 60 {
		t.Errorf("%+v, %v", tr, err)
	}
}
