package bounded

import (
	"strings"
	"testing"
)

// However many problems there are and however long they are, what is said of them fits a screen or two.
func TestProblems(t *testing.T) {
	var p Problems
	if err := p.Err(); err != nil {
		t.Errorf("error %v of none", err)
	}
	p.Add("job %d: no workers", 7)
	if err := p.Err(); err == nil || err.Error() != "job 7: no workers" {
		t.Errorf("error %v", err)
	}
	p.Add("unknown host %s", strings.Repeat("ä", 1<<20))
	err := p.Err()
	if err == nil || !strings.HasPrefix(err.Error(), "job 7: no workers; unknown host ää") || !strings.HasSuffix(err.Error(), "ä...") {
		t.Errorf("error %.2000v", err)
	}
	for range 100 {
		p.Add("another")
	}
	if err := p.Err(); len(err.Error()) > 2000 || strings.Count(err.Error(), "another") != mostProblems-2 || !strings.HasSuffix(err.Error(), "; and 82 more problems") {
		t.Errorf("error %.2000v", err)
	}
}
