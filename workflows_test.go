package inabench_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	aJob   = regexp.MustCompile(`(?m)^  [a-z]+:\n`)
	used   = regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	pinned = regexp.MustCompile(`^actions/[a-z/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	wide   = regexp.MustCompile(`(?m)^\s+[a-z-]+: write$|write-all`)
)

// TestWorkflows: a workflow uses actions of GitHub alone, each by the hash of a commit, which nobody can move; its
// token may only read, but for jobs that check out nothing and so run nothing of a pull request; and none is
// triggered by one in the name of the repository.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, jobs, ok := strings.Cut(string(text), "\njobs:\n")
		if !ok || !strings.Contains(head, "\npermissions:\n  contents: read\n") || wide.MatchString(head) {
			t.Errorf("%s: its token may do more than read", file)
		}
		if strings.Contains(head, "pull_request_target") || strings.Contains(head, "workflow_run") {
			t.Errorf("%s: is triggered with the rights of the repository", file)
		}
		for _, m := range used.FindAllStringSubmatch(jobs, -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %q is not one of GitHub's actions by hash and version", file, m[1])
			}
		}
		starts := aJob.FindAllStringIndex(jobs, -1)
		if len(starts) == 0 {
			t.Errorf("%s: no jobs", file)
		}
		for i, at := range starts {
			end := len(jobs)
			if i+1 < len(starts) {
				end = starts[i+1][0]
			}
			job, name := jobs[at[0]:end], strings.TrimSpace(jobs[at[0]:at[1]])
			checkout := strings.Contains(job, "actions/checkout@")
			if wide.MatchString(job) && (checkout || strings.Contains(job, "git clone") || strings.Contains(job, "gh repo clone")) {
				t.Errorf("%s: job %s may write and runs what it has checked out", file, name)
			}
			if strings.Count(job, "actions/checkout@") != strings.Count(job, "persist-credentials: false") {
				t.Errorf("%s: job %s leaves the token beside the code", file, name)
			}
		}
	}
}
