package plot

import (
	"math"
	"regexp"
	"strconv"
	"testing"
)

// TestContrast: text can be read on paper and on what is raised, in light, dark and print: at
// least 4.5 to 1 (WCAG 2.2, 1.4.3, AA).
func TestContrast(t *testing.T) {
	for name, css := range map[string]string{"light": lightCSS, "dark": darkCSS, "print": PaperCSS} {
		colours := map[string]float64{} // relative luminance
		for _, m := range regexp.MustCompile(`--(\w+):#([0-9a-f]+)`).FindAllStringSubmatch(css, -1) {
			hex := m[2]
			if len(hex) == 3 {
				hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
			}
			for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
				v, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
				if err != nil {
					t.Fatal(err)
				}
				c := float64(v) / 255
				if c <= 0.04045 {
					c /= 12.92
				} else {
					c = math.Pow((c+0.055)/1.055, 2.4)
				}
				colours[m[1]] += weight * c
			}
		}
		for _, text := range []string{"ink", "muted", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "pass", "fail", "open"} {
			for _, paper := range []string{"paper", "raised"} {
				a, b := colours[text]+0.05, colours[paper]+0.05
				if _, ok := colours[text]; !ok || max(a, b)/min(a, b) < 4.5 {
					t.Errorf("%s: %s on %s has a contrast of %.2f", name, text, paper, max(a, b)/min(a, b))
				}
			}
		}
	}
}
