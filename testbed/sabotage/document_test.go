package sabotage

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/SABOTAGE.md anew")

// TestDocument holds the table of docs/SABOTAGE.md to the catalogue; -update writes it.
func TestDocument(t *testing.T) {
	const file, heading = "../../docs/SABOTAGE.md", "| fault | of a |"
	var b strings.Builder
	fmt.Fprintf(&b, "%s what it does | honest verdict | by | on sim |\n| --- | --- | --- | --- | --- | --- |\n", heading)
	for _, f := range Catalogue {
		sim := "yes"
		if f.NoSim != "" {
			sim = "no: " + f.NoSim
		}
		sign := f.Sign
		if strings.HasPrefix(sign, "INA-") {
			sign = "`" + sign + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", f.Name, f.At, f.What, f.Want, sign, sim)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, table, _ := strings.Cut(string(text), heading)
	var after strings.Builder
	ended := false
	for line := range strings.Lines(heading + table) {
		if ended = ended || !strings.HasPrefix(line, "|"); ended {
			after.WriteString(line)
		}
	}
	want := before + b.String() + after.String()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s has another table than the catalogue; go test ./testbed/sabotage -update writes it", file)
	}
}
