package trace

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// columns is a mapping that is known to be right.
func columns(t *testing.T, mapping string) *Format {
	t.Helper()
	f, err := ParseColumns(mapping)
	if err != nil {
		t.Fatal(err)
	}
	return &f
}

// What a column does not hold is computed, each with a unit of its own; jobs without an id are numbered.
func TestComputed(t *testing.T) {
	const text = "submit_time,iterations,workers,gpus_per_worker,job-id\n" +
		"2500,100,2,4,x\n1500,10,3,0.5,y\n"
	for _, tt := range []struct {
		mapping string
		want    []Job
		ignored int
	}{
		{
			"submit=submit_time * 1ms, duration=iterations * 0.5s, gpus=workers * gpus_per_worker",
			[]Job{{ID: "2", Submit: 1.5, Duration: 5, GPUs: 2, Line: 3}, {ID: "1", Submit: 2.5, Duration: 50, GPUs: 8, Line: 2}}, 1,
		},
		// A column of that name comes before an expression, and a bare number counts the unit.
		{
			"id=Job-ID, submit=0, start=iterations, end=iterations + 1, gpus=8",
			[]Job{{ID: "x", Duration: 60, GPUs: 8, Line: 2}, {ID: "y", Duration: 60, GPUs: 8, Line: 3}}, 3,
		},
		{
			"submit=(submit_time - 1500) / 10, duration=iterations * 1m, gpus=workers",
			[]Job{{ID: "2", Duration: 600, GPUs: 3, Line: 3}, {ID: "1", Submit: 6000, Duration: 6000, GPUs: 2, Line: 2}}, 2,
		},
	} {
		f := columns(t, tt.mapping)
		f.Unit = time.Minute
		got, report, err := Read("x.csv", strings.NewReader(text), Options{Format: f})
		if err != nil {
			t.Errorf("%s: %v", tt.mapping, err)
			continue
		}
		if !cmp.Equal(got.Jobs, tt.want) || len(report.Ignored) != tt.ignored {
			t.Errorf("%s: %+v, ignored %v", tt.mapping, got.Jobs, report.Ignored)
		}
	}
}

// Mistakes in expressions are told at once, each with its place; rows of which nothing can be computed have theirs.
func TestBadExpressions(t *testing.T) {
	for _, tt := range []struct{ mapping, where, rows, want string }{
		{
			"submit=at,duration=steps * 0.5parsec,gpus=n + 1s", "m == 1", "0,1,1",
			"x.csv:1:1: duration \"steps * 0.5parsec\": character 9: unknown unit \"parsec\": us, ms, s, m, h and d are known\n" +
				"x.csv:1:1: gpus \"n + 1s\": character 3: a number + a time: a column counts no unit: multiply it by one, as in duration * 1s\n" +
				"x.csv:1:1: where \"m == 1\": character 1: no column \"m\": known: at, steps, n",
		},
		{"submit=at,duration=steps,gpus=n * 1s", "", "0,1,1", `x.csv:1:1: gpus "n * 1s" is a time, where a number is wanted`},
		{"submit=at,duration=steps,gpus=n", "n", "0,1,1", `x.csv:1:1: where "n" is a number, where true or false is wanted`},
		{"id=at + 1,submit=at,duration=steps,gpus=n", "", "0,1,1", `x.csv:1:1: missing column "at + 1": there are "at", "steps", "n"`},
		{"submit=at,duration=steps,gpus=n", "n > 9 or n < 0", "0,1,1", "x.csv:2:1: no job is left of 1 row: not (n > 9 or n < 0) (1)"},
		{"submit=at,duration=steps / n,gpus=1", "", "0,1,0", "x.csv:2:5: duration: steps / n is not finite: 1 / 0"},
		{"submit=at,duration=steps * 1s,gpus=1", "", "0,,0", "x.csv:2:3: duration: no steps"},
		{"submit=at,duration=steps * 1s,gpus=1", "", "0,x,0", `x.csv:2:3: duration: steps "x" is not a number`},
		{"submit=at,duration=steps,gpus=n - 2", "", "0,1,1", `x.csv:2:5: "-1" GPUs: at least 1`},
		{"submit=at,duration=1 - steps,gpus=n", "", "0,1,1", "x.csv:2:3: duration of 0 s: it must be above 0"},
		{"submit=at,duration=steps,gpus=n", "n > 1", "0,1,many", `x.csv:2:5: where: n "many" is not a number`},
		{"submit=at,duration=steps,gpus=n", "n > 1", "0,1,1\n0,1,", "x.csv:3:1: no job is left of 2 rows: not n > 1 (2)"},
	} {
		_, _, err := Read("x.csv", strings.NewReader("at,steps,n\n"+tt.rows+"\n"), Options{Format: columns(t, tt.mapping), Where: tt.where})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s where %s: %v, want %s", tt.mapping, tt.where, err, tt.want)
		}
	}
}

// Columns may be called anything, in backquotes too, where they may have dates as elsewhere.
func TestOddColumns(t *testing.T) {
	const text = "\"run, s\",Job-ID,8,submit time,net\n60,a,2,2024-02-29 22:30:00,x\n"
	want := []Job{{ID: "a", Duration: 60, GPUs: 2, Model: "x", Line: 2}}
	for _, mapping := range []string{
		"id=job-id,submit=submit time,duration=`run, s`,gpus=8,model=net",
		"id=`Job-ID`,submit=`submit time`,duration=`run, s` * 1s,gpus=`8`,model=`net`",
	} {
		got, _, err := Read("x.csv", strings.NewReader(text), Options{Format: columns(t, mapping)})
		if err != nil || !cmp.Equal(got.Jobs, want) {
			t.Errorf("%s: %+v %v", mapping, got, err)
		}
	}
	// A column that somebody names and that is not there is a mistake, also where a file need not have one.
	const there = "there are \"run, s\", \"job-id\", \"8\", \"submit time\", \"net\""
	for _, tt := range []struct{ mapping, want string }{
		{"submit=8,duration=8,gpus=`9`", "missing column \"`9`\": "},
		{"id=job-idd,submit=8,duration=8,gpus=8", `missing column "job-idd": `},
		{"submit=8,duration=8,start=begin,end=8,gpus=8,model=nett", `missing column "begin", "nett": `},
	} {
		_, _, err := Read("x.csv", strings.NewReader(text), Options{Format: columns(t, tt.mapping)})
		if err == nil || err.Error() != "x.csv:1:1: "+tt.want+there {
			t.Errorf("%s: %v, want %s", tt.mapping, err, tt.want)
		}
	}
}

// A byte-order mark is none of what the file says, whatever comes behind it.
func TestByteOrderMark(t *testing.T) {
	for _, text := range []string{
		"\"job_id\",submit_s,duration_s,gpus\r\na,0,1,1\r\n",
		`{"jobid": "a", "submitted_time": "2017-10-09 07:02:47", "attempts": [{"start_time": "2017-10-09 07:03:00", ` +
			`"end_time": "2017-10-09 07:03:01", "detail": [{"gpus": ["gpu0"]}]}]}`,
	} {
		got, _, err := Read("x", strings.NewReader("\ufeff"+text), Options{})
		if err != nil || len(got.Jobs) != 1 || got.Jobs[0].ID != "a" || got.Jobs[0].Duration != 1 {
			t.Errorf("%.20s: %+v %v", text, got, err)
		}
	}
}

// A row that is skipped does not make another with its id a second one.
func TestSkippedID(t *testing.T) {
	got, report, err := Read("x.csv", strings.NewReader(header+"a,0,0,1,,\na,0,1,1,,\na,0,2,1,,\n"), Options{Lenient: true})
	if err != nil || len(got.Jobs) != 1 || got.Jobs[0].Duration != 1 || !maps.Equal(report.Skipped, map[Reason]int{BadDuration: 1, Duplicate: 1}) {
		t.Errorf("%+v, %+v, %v", got, report, err)
	}
}

// Rows that nobody wants are counted by what refused them, and what is wrong with them does not matter.
func TestWhere(t *testing.T) {
	text := "job_id,submit_s,duration_s,gpus,status\n" +
		"a,0,1,1,Pass\nb,0,1,0,Pass\nc,0,,1,Killed\nd,0,1,x,Failed\na,0,0,4,Killed\ne,0,1,2,Pass\n"
	got, report, err := Read("x.csv", strings.NewReader(text), Options{Where: `status == "Pass" and gpus >= 1`})
	if err != nil {
		t.Fatal(err)
	}
	want := map[Reason]int{`not status == "Pass"`: 3, "not gpus >= 1": 1}
	if len(got.Jobs) != 2 || !maps.Equal(report.Skipped, want) || report.Rows != 6 || len(report.Ignored) != 0 {
		t.Errorf("%d jobs, %+v", len(got.Jobs), report)
	}
	// Ten thousand rows that are not wanted are no reason to stop.
	var many strings.Builder
	many.WriteString("job_id,submit_s,duration_s,gpus\n")
	for range hopeless {
		many.WriteString("x,0,1,0\n")
	}
	many.WriteString("x,0,1,1\n")
	if got, _, err := Read("x.csv", strings.NewReader(many.String()), Options{Where: "gpus > 0"}); err != nil || len(got.Jobs) != 1 {
		t.Error(err)
	}
}

func TestParseModels(t *testing.T) {
	models, err := ParseModels("resnet = resnet50, bert=bert-large, *=vgg16")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, want string }{
		{"resnet", "resnet50"}, {"bert", "bert-large"}, {"gpt", "vgg16"}, {"", "vgg16"},
		{"resnet50", "resnet50"}, {"Resnet", "vgg16"},
	} {
		got, _, err := Read("x.csv", strings.NewReader(header+"a,0,1,1,"+tt.file+",\n"), Options{Models: models})
		if err != nil || got.Jobs[0].Model != tt.want {
			t.Errorf("%q: %+v %v, want %q", tt.file, got, err, tt.want)
		}
	}
	delete(models, "*")
	if got, _, err := Read("x.csv", strings.NewReader(header+"a,0,1,1,gpt,\n"), Options{Models: models}); err != nil || got.Jobs[0].Model != "gpt" {
		t.Errorf("%+v %v", got, err)
	}
	for mapping, want := range map[string]string{
		"":                                 `"" names no model`,
		"a=":                               `"a=" names no model`,
		"a=b,a=c":                          `model "a" is given twice`,
		"a=" + strings.Repeat("x", 257):    `model "` + strings.Repeat("x", 40) + `"... has 257 bytes, 256 are allowed`,
		"a=b," + strings.Repeat("y", 50):   `"` + strings.Repeat("y", 40) + `"... names no model`,
		"=" + strings.Repeat("models", 10): `"=` + strings.Repeat("models", 10)[:39] + `"... names no model`,
	} {
		if _, err := ParseModels(mapping); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", mapping, err, want)
		}
	}
}

// Dates of ISO 8601, with and without a zone, are the same moments: each second row is two hours after its first.
func TestDates(t *testing.T) {
	for _, tt := range []struct{ first, second string }{
		{"2024-02-29T22:30:00Z", "2024-03-01T00:30:00Z"},
		{"2024-02-29T22:30:00", "2024-03-01 00:30:00"},
		{"2024-02-29 22:30", "2024-03-01T00:30"},
		{"2024-02-29T23:30:00+01:00", "2024-02-29T22:30:00-02:00"},
		{"2024-02-29T23:30:00+0100", "2024-02-29 22:30:00-02"},
		{"20240229T223000Z", "20240301T003000"},
		{"2024-02-29T22:30:00.25Z", "2024-03-01T00:30:00,25Z"},
		{"2024-02-29 22:30Z", "2024-03-01 06:00:00.000+05:30"},
		{"2024-03-01", "2024-03-01T02:00:00"},
	} {
		text := "job_id,submit_s,duration_s,gpus\na,\"" + tt.first + "\",1,1\nb,\"" + tt.second + "\",1,1\n"
		got, _, err := Read("x.csv", strings.NewReader(text), Options{})
		if err != nil || got.Jobs[0].ID != "a" || got.Jobs[1].Submit != 7200 {
			t.Errorf("%s and %s: %+v %v", tt.first, tt.second, got, err)
		}
	}
}

// Jobs as Philly has them: over several lines or one a line, in an array or not.
func TestPhilly(t *testing.T) {
	const array = `[
  {"status": "Pass", "vc": "ab12", "jobid": "app_1", "user": "u1", "submitted_time": "2017-10-09 07:02:47", "attempts": [
    {"start_time": "2017-10-09 07:03:00", "end_time": "2017-10-09 07:04:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
    {"start_time": "2017-10-09 07:05:00", "end_time": "2017-10-09 08:03:00",
     "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu7"]}]}
  ]},
  {"status": "Killed", "vc": "cd34", "jobid": "app_2", "user": null, "submitted_time": "2017-10-09 07:02:57", "attempts": []},
  {"status": "Pass", "jobid": 3}
]
`
	got, report, err := Read("x.json", strings.NewReader(array), Options{Where: `status == "Pass"`, Lenient: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{{ID: "app_1", Duration: 3600, GPUs: 3, Source: "ab12", User: "u1", Line: 2}}
	if diff := cmp.Diff(want, got.Jobs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if report.Format != "philly" || report.Rows != 3 || report.Skipped[NotPhilly] != 1 || report.Skipped[`not status == "Pass"`] != 1 {
		t.Errorf("%+v", report)
	}
	const job = `{"jobid": "j", "submitted_time": "2017-10-09 07:02:47", "attempts": [{"start_time": "2017-10-09 07:03:00", ` +
		`"end_time": "2017-10-09 07:04:00", "detail": [{"gpus": ["gpu0"]}]}]}`
	line := func(id string) string { return strings.Replace(job, `"j"`, `"`+id+`"`, 1) }
	got, _, err = Read("x.json", strings.NewReader(line("a")+"\n\n"+line("b")+"\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	two := []Job{{ID: "a", Duration: 60, GPUs: 1, Line: 1}, {ID: "b", Duration: 60, GPUs: 1, Line: 3}}
	if diff := cmp.Diff(two, got.Jobs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, tt := range []struct{ text, want string }{
		{"[", "read trace x.json: after the job in line 1: unexpected EOF"},
		{"[]", "x.json:1:1: a header and no job"},
		{"[]\n[]", "read trace x.json: after the job in line 1: the array of jobs ends, and the file does not"},
		{"[7]", "x.json:1:1: not a job as Philly has it: it is of type number"},
		{"[\n{\"jobid\": 7}]", "x.json:2:1: not a job as Philly has it: jobid is of type number"},
		{"[\n" + job + ",\n{\"jobid\"", "read trace x.json: after the job in line 2: unexpected EOF"},
		{"{\"jobid\": \"" + strings.Repeat("x", 2<<20) + "\"}", "x.json:2:1: no row ends within 1 MiB"},
	} {
		_, _, err := Read("x.json", strings.NewReader(tt.text), Options{})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%.40s: %v, want %s", tt.text, err, tt.want)
		}
	}
}
