// Package report writes records for people and for other programs: text, HTML, Markdown, JUnit and Prometheus.
package report

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/inabench/inabench/results"
)

// Write writes report.html and junit.xml into a run directory, from the record and the samples on disk.
func Write(d *results.Dir, rec *results.Record) error {
	if err := d.Flush(); err != nil {
		return err
	}
	shown, samples, err := d.SamplesDrawn(rec)
	if err != nil {
		return err
	}
	var html, junit bytes.Buffer
	if err := WriteReport(&html, shown, samples, Beside{}); err != nil {
		return fmt.Errorf("render report: %w", err)
	}
	if err := WriteJUnit(&junit, rec); err != nil {
		return fmt.Errorf("render junit: %w", err)
	}
	return errors.Join(d.WriteFile(results.ReportFile, html.Bytes()), d.WriteFile(results.JUnitFile, junit.Bytes()))
}
