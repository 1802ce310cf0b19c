package tomlfile

import (
	"bytes"
	"testing"
)

func TestFormat(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"spaces", "a=1\nb   =  \"x = y\"  \n'c=d' =2", "a = 1\nb = \"x = y\"\n'c=d' = 2\n"},
		{"tables", "a = 1\n[t]\nb = 2\n\n\n\n[[u]]\nc = 3\n\n", "a = 1\n\n[t]\nb = 2\n\n[[u]]\nc = 3\n"},
		{"comments above a table", "a = 1\n# of t\n[t]\n", "a = 1\n\n# of t\n[t]\n"},
		{"comments after values", "a = 1 # one\nlong = 2   # two\nc = 3\n", "a = 1    # one\nlong = 2 # two\nc = 3\n"},
		{"a comment alone in its lines", "a = 1\n\nb = 2# x\n", "a = 1\n\nb = 2 # x\n"},
		{"several lines", "a = [ # first\n  1,   # one\n  \"]\",\n]   # last\nb = \"\"\"\n x  \n\"\"\"\n", "a = [ # first\n  1,   # one\n  \"]\",\n] # last\nb = \"\"\"\n x  \n\"\"\"\n"},
		{"a sign within a string", "a = '#' # is no comment\n", "a = '#' # is no comment\n"},
		{"escapes", `a = "\"#" # x` + "\n", `a = "\"#" # x` + "\n"},
		{"carriage returns", "a = 1\r\nb=2\r\n", "a = 1\nb = 2\n"},
		{"empty lines at the end", "a = 1\n\n\n\n", "a = 1\n"},
		{"carriage returns within a string", "a=\"\"\"x\r\ny\"\"\"\r\nb=nan\r\n", "a = \"\"\"x\r\ny\"\"\"\nb = nan\n"},
		{"inline tables", "a = {b=1}\n", "a = {b=1}\n"},
		{"quotes at the end of a string", "a = \"\"\"x\"\"\"\"\" # x\nb=1\n", "a = \"\"\"x\"\"\"\"\" # x\nb = 1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Format("x.toml", []byte(tt.in))
			if err != nil || string(got) != tt.want {
				t.Fatalf("%q, %v; want %q", got, err, tt.want)
			}
			if again, err := Format("x.toml", got); err != nil || !bytes.Equal(again, got) {
				t.Errorf("formatted once more: %q, %v", again, err)
			}
		})
	}
	if _, err := Format("x.toml", []byte("a = \n")); err == nil {
		t.Error("what is not TOML is formatted")
	}
}

// FuzzFormat: whatever is TOML is formatted, means the same, and is left alone the second time.
func FuzzFormat(f *testing.F) {
	f.Add([]byte("a = 1 # x\n[t]\nb = [1, # y\n2]\n"))
	f.Add([]byte("a = \"\"\"\n#\"\"\"\n'b' = '''x'''\n[[c]]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := Parse("x.toml", text); err != nil {
			return
		}
		got, err := Format("x.toml", text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if again, err := Format("x.toml", got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%q becomes %q, and that %q, %v", text, got, again, err)
		}
	})
}
