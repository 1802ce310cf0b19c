package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestShapes imports files with the shapes of published traces by the lines that docs/STUDIES.md has for them.
func TestShapes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/STUDIES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n### Published traces\n")
	if !ok {
		t.Fatal("no section about published traces")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	lines := map[string]string{} // by what they write
	for _, m := range regexp.MustCompile(`(?m)^(?:cat .* \| )?inabench trace import -o (\S+) .*$`).FindAllStringSubmatch(section, -1) {
		lines[m[1]] = m[0]
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../placement/trace/testdata/shapes")); err != nil {
		t.Fatal(err)
	}
	const header, users = "job_id,submit_s,duration_s,gpus,model,source", ",user,value"
	for _, tt := range []struct{ writes, want, said string }{
		{
			"pai.csv", "\n1,1000,3600,8,,V100\n3,1060,300,1,,T4\n",
			`skipped 3: not status == "Terminated" (2), not plan_gpu > 0 (1)`,
		},
		{
			"helios.csv", users + "\n11,0,3600,8,,vca,u1,\n14,600,600,16,,vcb,u3,\n",
			`skipped 2: not gpu_num >= 1 (1), not state == "COMPLETED" (1)`,
		},
		{
			"acme.csv", users + "\n501,0,600,8,,,u1,\n504,300,7200,128,,,u3,\n",
			`skipped 2: not gpu_num >= 1 (1), not state == "COMPLETED" (1)`,
		},
		{
			"microsoft.csv", users + "\napplication_1_0001,0,1200,2,,6214e9,a1,\napplication_1_0003,600,300,8,,11cb48,b2,\n",
			`format philly; skipped 1: not status == "Pass" (1)`,
		},
		{"elasticflow.csv", "\n6b2d,1000,3890,4,bert-base,\n7c3e,1600,700,8,vgg16,\n8d4f,2000,610,1,resnet50,\n", "format elasticflow"},
		{
			"mlperf.csv", "\n1,0,60,64,resnet50,\n2,600,200,16,bert-large,\n4,1800,700,128,opt-1.3b,\n",
			`skipped 1: not result == "success" (1)`,
		},
	} {
		line, ok := lines[tt.writes]
		if !ok {
			t.Errorf("no line writes %s", tt.writes)
			continue
		}
		delete(lines, tt.writes)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
		cmd.Dir = dir
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, said)
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, tt.writes))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != header+tt.want || !strings.Contains(string(said), tt.said) {
			t.Errorf("%s: got\n%s\nwant\n%s\nit said %s", line, got, header+tt.want, said)
		}
	}
	for writes := range lines {
		t.Errorf("no file of this test has the shape of %s", writes)
	}
}
