package kinds

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/internal/bounded"
)

// Files are those that an experiment and its points name, but for the inventory, with the SHA-256
// of what is in them: what points come to depends on these too. Where the error says why one cannot be read, its sum is "".
// None are nil.
func Files(s *spec.Spec) (out map[string]string, err error) {
	var errs []error
	add := func(path, key string) {
		if path == "" {
			return
		}
		path = s.Beside(path, key)
		if _, ok := out[path]; ok {
			return
		}
		if out == nil {
			out = map[string]string{}
		}
		out[path], err = fileSum(path)
		errs = append(errs, err)
	}
	add(s.Catalogue, "catalogue")
	add(s.PatternsPath, "patterns")
	for _, p := range s.Points() {
		if own := p.Spec.OwnPolicy(p.Spec.Placement.Policy); own != nil {
			for _, file := range own.Files(filepath.Dir(s.File)) {
				add(file, "")
			}
		}
		for _, table := range slices.Sorted(maps.Keys(p.Spec.Studies)) {
			if st, ok := p.Spec.Studies[table].(study.Reader); ok {
				st.Files(add)
			}
		}
	}
	return out, errors.Join(errs...)
}

// fileSum is the SHA-256 of a file, which may be a large trace.
func fileSum(path string) (string, error) {
	f, err := bounded.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
