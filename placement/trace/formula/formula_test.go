package formula

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
)

var columns = []string{"iterations", "workers", "gpus", "status", "run time", "attempts.first"}

func TestNumber(t *testing.T) {
	row := []string{"100", " 4 ", "2", "Pass", "60", "7"}
	for _, tt := range []struct {
		text string
		kind Kind
		want float64
	}{
		{"iterations * 0.5s", Time, 50},
		{"workers * gpus", Number, 8},
		{"Workers*GPUS", Number, 8},
		{"`run time` * 1m", Time, 3600},
		{"attempts.first - 1", Number, 6},
		{"1 + 2 * 3 - 4 / 2", Number, 5},
		{"(1 + 2) * 3", Number, 9},
		{"8 - 3 - 2", Number, 3},
		{"64 / 4 / 2", Number, 8},
		{"--1 - -gpus", Number, 3},
		{"-2 * 3", Number, -6},
		{"1.5e3ms", Time, 1.5},
		{"1h + 1m + 1s + 1ms + 1us", Time, 3661.001001},
		{"2d / 12h", Number, 4},
		{"3s * 2 / 4", Time, 1.5},
		{".5 * 2.", Number, 1},
	} {
		f, err := Parse(tt.text, columns)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if got, err := f.Number(row); err != nil || math.Abs(got-tt.want) > 1e-9 || f.Kind != tt.kind {
			t.Errorf("%s: %g %s %v, want %g %s", tt.text, got, f.Kind, err, tt.want, tt.kind)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		text, row, want string // the row's iterations, workers, gpus and status
	}{
		{`status == "Pass"`, "1,1,1,Pass", ""},
		{`status == "Pass"`, "1,1,1,Killed", `status == "Pass"`},
		{`"Pass" != status`, "1,1,1, Pass ", `"Pass" != status`},
		{`status == "pass"`, "1,1,1,Pass", `status == "pass"`},
		{`status == ""`, "1,1,1,", ""},
		{`status == " Pass "`, "1,1,1,Pass", ""}, // blanks around either do not count
		{`status != " Pass"`, "1,1,1,Pass", `status != " Pass"`},
		{`status == "Pass" and gpus >= 1`, "1,1,0,Pass", "gpus >= 1"},
		{`(status == "Pass" and gpus >= 1) and (workers < 9)`, "1,9,1,Pass", "workers < 9"},
		{`status == "Pass" or gpus >= 1 and workers > 1`, "1,1,1,Killed", `(status == "Pass" or gpus >= 1 and workers > 1)`},
		{`gpus == 1 and (gpus == 2 or gpus == 3)`, "1,1,1,x", `(gpus == 2 or gpus == 3)`},
		{`status == "Pass" or gpus >= 1 and workers > 1`, "1,2,1,Killed", ""},
		{`not status == "Killed" and gpus != 3`, "1,1,2,Pass", ""},
		{`not (gpus > 1 or workers > 1)`, "1,1,1,x", ""},
		{`not not gpus == 1`, "1,1,1,x", ""},
		{`iterations * 1s <= 1m`, "60,1,1,x", ""},
		{`iterations * 1s <= 1m`, "61,1,1,x", "iterations * 1s <= 1m"},
		// Of a field with nothing in it nothing is true.
		{`gpus != 3`, "1,1,,x", "gpus != 3"},
		{`gpus == gpus`, "1,1,,x", "gpus == gpus"},
		{`not gpus >= 1`, "1,1,,x", ""},
		{`not (gpus < 1)`, "1,1,,x", ""},
		{`gpus > 0 and workers / gpus > 1`, "1,4,0,x", "gpus > 0"}, // what comes after is not computed
	} {
		f, err := Parse(tt.text, columns)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		row := append(strings.Split(tt.row, ","), "", "")
		if got, err := f.Refused(row); err != nil || got != tt.want || f.Kind != Truth {
			t.Errorf("%s of %s: %q %v, want %q", tt.text, tt.row, got, err, tt.want)
		}
	}
}

// Every mistake with the character at which it is.
func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "character 1: the end stands where a number or a column is wanted"},
		{"iterations *", "character 13: the end stands where a number or a column is wanted"},
		{"iterations workers", `character 12: "workers" follows, where an operator or the end is wanted`},
		{"iteration * 2", `character 1: no column "iteration"`},
		{"2 * `run`", "character 5: no column \"run\""},
		{"iterations * 0.5parsec", `character 14: unknown unit "parsec"`},
		{"1 +", "character 4: the end stands where a number or a column is wanted"},
		{"(1 + 2", "character 7: the end stands where ) is wanted"},
		{"1 + 2)", `character 6: ")" follows, where an operator or the end is wanted`},
		{"1s + 2", "character 4: a time + a number"},
		{"gpus > 1s", "character 6: a number is compared with a time"},
		{"1s * 1s", "character 4: a time * a time is neither a time nor a number"},
		{"1 / 1s", "character 3: a number / a time is neither a time nor a number"},
		{"gpus and workers", "character 6: a number and a number"},
		{"not gpus", "character 1: not of a number"},
		{"1 < gpus < 3", "character 10: true or false < a number"},
		{"-(1 < 2)", "character 1: - of true or false"},
		{`status > "a"`, "character 8: > of a text: == and != compare it"},
		{`"a" == "b"`, "character 5: a text is compared with a column"},
		{`"a"`, "character 1: a text alone says nothing"},
		{`status == "Pass`, `character 11: nothing closes the "`},
		{"gpus = 1", `character 6: unknown operator "="`},
		{"gpus == 1 && gpus == 2", `character 11: unknown operator "&&"`},
		{"gpus % 2", "character 6: unknown character '%'"},
		{"status == 'Pass'", "character 11: unknown character '\\''"},
		{"größe + 1", `character 1: no column "größe"`},
		{"`é` + §", "character 7: unknown character '§'"},
		{"1e999", `character 1: "1e999" is not a number`},
		{strings.Repeat("(", 51) + "1", "character 51: nested more than 50 levels deep"},
		{strings.Repeat("-", 51) + "1", "character 51: nested more than 50 levels deep"},
		{strings.Repeat("1+", 500) + "1", "character 1: 1001 bytes: at most 1000"},
	} {
		_, err := Parse(tt.text, columns)
		var e *Error
		if !errors.As(err, &e) || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.text, err, tt.want)
		}
	}
}

// A row that has no value says why, and of which column.
func TestFieldErrors(t *testing.T) {
	for _, tt := range []struct {
		text, field, want string
		missing           bool
		column            int
	}{
		{"iterations * 2", "", "no iterations", true, 0},
		{"2 * iterations", "many", `iterations "many" is not a number`, false, 0},
		{"iterations * 2", "0x10", `iterations "0x10" is not a number`, false, 0},
		{"1 / iterations", "0", "1 / iterations is not finite: 1 / 0", false, 0},
		{"1e300 * 1e300", "1", "1e300 * 1e300 is not finite: 1e+300 * 1e+300", false, -1},
	} {
		f, err := Parse(tt.text, columns)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Number([]string{tt.field, "", "", "", "", ""})
		var e *FieldError
		if !errors.As(err, &e) || e.Msg != tt.want || e.Missing != tt.missing || e.Column != tt.column {
			t.Errorf("%s of %q: %+v, want %s", tt.text, tt.field, err, tt.want)
		}
	}
	f, err := Parse("iterations > 2", columns)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Refused([]string{"many", "", "", "", "", ""}); err == nil {
		t.Error("text is compared with a number")
	}
}

// Whatever the text: an error that says where, or a formula whose results are finite and whose kind is kept.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"iterations * 0.5s", `status == "Pass" and not (gpus >= 1 or workers < 2)`, "-(`run time` / 3m) + 1e-3",
		`"x" != status`, "((((1))))", "1..2", "a = b", "\xff", "not not not 1 < 2", "1 - - 2",
	} {
		f.Add(text, "3")
	}
	f.Fuzz(func(t *testing.T, text, field string) {
		got, err := Parse(text, columns)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.At < 1 || e.At > len(text)+1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		row := []string{field, field, field, field, field, field}
		if got.Kind == Truth {
			_, _ = got.Refused(row)
			return
		}
		if v, err := got.Number(row); err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			t.Fatalf("%q of %q is %g", text, field, v)
		}
		// In parentheses it is the same.
		again, err := Parse("("+text+")", columns)
		if err != nil && len(text)+2 <= maxLength && !strings.Contains(err.Error(), strconv.Itoa(maxDepth)) {
			t.Fatalf("%q in parentheses: %v", text, err)
		}
		if err == nil && again.Kind != got.Kind {
			t.Fatalf("%q in parentheses is %s, not %s", text, again.Kind, got.Kind)
		}
	})
}
