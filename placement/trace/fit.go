package trace

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	files "github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory/tomlfile"
)

// Fit is what a generator needs to make jobs like those of a recorded trace. It is written as TOML; see LoadFit.
type Fit struct {
	Name string  `toml:"name,required"` // of the trace that it was fitted to, 1 to 200 bytes
	Rate float64 `toml:"rate,required"` // jobs a second, on average
	// Burstiness is the squared coefficient of variation of the times between submissions, 0.001 to 1,000,000: 1 is that of
	// a Poisson process, above it jobs come in bursts, below it they come regularly.
	Burstiness float64 `toml:"burstiness" default:"1"`
	// Day is how the rate differs by hour of the day: 24 positive numbers, of which only the ratios matter, from the first
	// submission on. None: it does not.
	Day     []float64   `toml:"day"`
	Sizes   []FitSize   `toml:"size,required"` // in ascending order of GPUs
	Sources []FitSource `toml:"source"`        // whose jobs they are, drawn apart from all else, at most 65; none: the fit's name
}

// FitSize is the jobs with one number of GPUs: how many of all, and for how long they run, by a lognormal distribution or
// by quantiles.
type FitSize struct {
	At        string    `toml:",path"`
	GPUs      int       `toml:"gpus,required"`
	Share     float64   `toml:"share,required"` // of all jobs, of which only the ratios matter
	Median    float64   `toml:"median_s"`       // of a lognormal distribution, in seconds
	Sigma     float64   `toml:"sigma"`          // of the durations' logarithms, 0 to 10
	Durations []float64 `toml:"durations_s"`    // instead: the quantiles 0, 1, 5, 10, 15, ..., 90, 95, 99 and 100 %
}

// FitSource is the part of the jobs that one source has.
type FitSource struct {
	At    string  `toml:",path"`
	Name  string  `toml:"name,required"`
	Share float64 `toml:"share,required"`
}

// fitParts are the quantiles of FitSize.Durations.
var fitParts = []float64{
	0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99, 1,
}

// Limits of a fit.
const (
	maxFitFile    = 4 << 20 // bytes
	maxSizes      = 4096
	maxSources    = 64  // the most frequent ones; the others are one
	maxFitName    = 200 // bytes: a source is called generated/NAME
	maxRate       = 1e6 // jobs a second
	minBurstiness = 1e-3
	maxBurstiness = 1e6
	minDuration   = 1e-3 // seconds
	minHour       = 1e-2 // of the mean rate: no hour is without jobs
)

// otherSources is what the sources are called that a fit has no room for.
const otherSources = "others"

// FitTo finds the Fit of a trace. Durations of a size are lognormal where there are at least 50 of them and that is within
// 0.05 of what was recorded (Kolmogorov-Smirnov); otherwise they are quantiles, so that no job is longer than one that was
// recorded. The day is there where it is clear: where days of odd and of even number agree about the hours, with a
// correlation above 0.5 over at least four days. It is an error if all jobs are submitted at once or more than a million a
// second, or if they have more than 4,096 sizes.
func FitTo(t *Trace) (*Fit, error) {
	if len(t.Jobs) < 2 || t.length() == 0 {
		return nil, tomlfile.WithHint("", "fit to trace %s: all its jobs are submitted at once, there is no rate", t.Name)
	}
	f := &Fit{Name: fitName(t.Name), Day: daily(t), Burstiness: 1}
	first := t.Jobs[0].Submit
	gaps := make([]float64, len(t.Jobs)-1)
	for i := range gaps {
		gaps[i] = day(f.Day).even(t.Jobs[i+1].Submit-first) - day(f.Day).even(t.Jobs[i].Submit-first)
	}
	mean, deviation := moments(gaps)
	if mean < 1/maxRate {
		return nil, tomlfile.WithHint("`inabench trace import --scale-submit` stretches it", "fit to trace %s: its jobs are %.3g s apart on average, at least %g s", t.Name, mean, 1/maxRate)
	}
	f.Rate = 1 / mean
	if len(gaps) > 1 { // of a single one nobody knows how it varies
		f.Burstiness = min(max(deviation*deviation/(mean*mean), minBurstiness), maxBurstiness)
	}
	durations, sources := map[int][]float64{}, map[string]int{}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		durations[j.GPUs] = append(durations[j.GPUs], min(max(j.Duration, minDuration), maxSeconds))
		sources[j.Source]++
	}
	if len(durations) > maxSizes {
		return nil, tomlfile.WithHint("`inabench trace import --max-gpus` drops the largest", "fit to trace %s: jobs of %d sizes, at most %d", t.Name, len(durations), maxSizes)
	}
	for _, gpus := range slices.Sorted(maps.Keys(durations)) {
		s := fitDurations(durations[gpus])
		s.GPUs, s.Share = gpus, float64(len(durations[gpus]))/float64(len(t.Jobs))
		f.Sizes = append(f.Sizes, s)
	}
	f.Sources = fitSources(sources, len(t.Jobs))
	return f, nil
}

// fitName is what a fit is called after the path of a trace: a name that its jobs' sources can have.
func fitName(path string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '_'
	}, strings.ToValidUTF8(filepath.Base(path), "_"))
	return cmp.Or(strings.TrimSpace(strings.ToValidUTF8(name[:min(len(name), maxFitName)], "")), "trace")
}

// fitDurations says how long jobs of one size run.
func fitDurations(durations []float64) FitSize {
	slices.Sort(durations)
	logs := make([]float64, len(durations))
	for i, d := range durations {
		logs[i] = math.Log(d)
	}
	mean, sigma := moments(logs)
	const few, near = 50, 0.05
	if len(durations) == 1 || len(durations) >= few && fromNormal(logs, mean, sigma) <= near {
		return FitSize{Median: math.Exp(mean), Sigma: min(sigma, 10)}
	}
	var s FitSize
	for _, p := range fitParts {
		s.Durations = append(s.Durations, durations[int(math.Round(p*float64(len(durations)-1)))])
	}
	return s
}

// fitSources are the most frequent sources, and the others as one; none where no job has any.
func fitSources(jobs map[string]int, all int) []FitSource {
	if jobs[""] == all {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(jobs), func(a, b string) int { return cmp.Or(jobs[b]-jobs[a], strings.Compare(a, b)) })
	var out []FitSource
	rest := 0
	for _, name := range names {
		if name == "" || name == otherSources || len(out) == maxSources {
			rest += jobs[name]
			continue
		}
		out = append(out, FitSource{Name: name, Share: float64(jobs[name]) / float64(all)})
	}
	if rest > 0 {
		out = append(out, FitSource{Name: otherSources, Share: float64(rest) / float64(all)})
	}
	return out
}

// moments are the mean and the standard deviation of a sample; that of a single value is 0.
func moments(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / max(1, float64(len(values)-1)))
}

// fromNormal is the Kolmogorov-Smirnov distance of sorted values from a normal distribution.
func fromNormal(sorted []float64, mean, deviation float64) float64 {
	most, n := 0.0, float64(len(sorted))
	for i, v := range sorted {
		part := 1.0
		if deviation > 0 {
			part = (1 + math.Erf((v-mean)/(deviation*math.Sqrt2))) / 2
		}
		most = max(most, math.Abs(part-float64(i)/n), math.Abs(part-float64(i+1)/n))
	}
	return most
}

// day is the rate of submissions in each hour of a day, of mean 1; none: it is always the same.
type day []float64

const (
	secondsOfHour = 3600.0
	secondsOfDay  = 24 * secondsOfHour
)

// daily is the day of a trace where it is clear.
func daily(t *Trace) []float64 {
	first := t.Jobs[0].Submit
	days := int((t.Jobs[len(t.Jobs)-1].Submit - first) / secondsOfDay)
	days -= days % 2
	if days < 4 {
		return nil
	}
	halves := [2][]float64{make([]float64, 24), make([]float64, 24)}
	total := 0.0
	for i := range t.Jobs {
		at := t.Jobs[i].Submit - first
		if on := int(at / secondsOfDay); on < days {
			halves[on%2][int(math.Mod(at, secondsOfDay)/secondsOfHour)]++
			total++
		}
	}
	const agree = 0.5
	if correlation(halves[0], halves[1]) <= agree {
		return nil
	}
	out := make([]float64, 24)
	for h := range out {
		out[h] = max(minHour, (halves[0][h]+halves[1][h])*24/total)
	}
	return normalised(out)
}

// normalised values have mean 1.
func normalised(values []float64) []float64 {
	mean, _ := moments(values)
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v / mean
	}
	return out
}

// correlation is Pearson's; that with a constant is 0.
func correlation(a, b []float64) float64 {
	ma, da := moments(a)
	mb, db := moments(b)
	if da == 0 || db == 0 {
		return 0
	}
	sum := 0.0
	for i := range a {
		sum += (a[i] - ma) * (b[i] - mb)
	}
	return sum / (da * db * float64(len(a)-1))
}

// even is a moment, in seconds from the beginning of a day, on a clock by which the rate is always the same.
func (d day) even(t float64) float64 {
	if len(d) == 0 {
		return t
	}
	out := math.Floor(t/secondsOfDay) * secondsOfDay
	rest := t - out
	for _, rate := range d {
		part := min(rest, secondsOfHour)
		out += part * rate
		rest -= part
	}
	return out
}

// real is the moment of one on the clock of even.
func (d day) real(t float64) float64 {
	if len(d) == 0 {
		return t
	}
	out := math.Floor(t/secondsOfDay) * secondsOfDay
	rest := t - out
	for _, rate := range d {
		if rest <= rate*secondsOfHour {
			return out + rest/rate
		}
		rest -= rate * secondsOfHour
		out += secondsOfHour
	}
	return out
}

// size is the quantile u of the sizes up to most GPUs, of which there are some; 0 is any.
func (f *Fit) size(u float64, most int) int {
	n := len(f.Sizes)
	for most > 0 && f.Sizes[n-1].GPUs > most {
		n--
	}
	return f.Sizes[quantileOf(u, n, func(i int) float64 { return f.Sizes[i].Share })].GPUs
}

// duration is in seconds, of a job with one of the sizes.
func (f *Fit) duration(gpus int, r stream) float64 {
	i, _ := slices.BinarySearchFunc(f.Sizes, gpus, func(s FitSize, gpus int) int { return cmp.Compare(s.GPUs, gpus) })
	s := &f.Sizes[min(i, len(f.Sizes)-1)]
	if len(s.Durations) > 0 {
		return between(fitParts, s.Durations, r.uniform())
	}
	return min(s.Median*math.Exp(s.Sigma*r.normal()), maxSeconds)
}

// source is the quantile u of the sources.
func (f *Fit) source(u float64) string {
	return f.Sources[quantileOf(u, len(f.Sources), func(i int) float64 { return f.Sources[i].Share })].Name
}

// quantileOf is which of n things, which have such shares, is at the quantile u of all of them.
func quantileOf(u float64, n int, share func(i int) float64) int {
	total := 0.0
	for i := range n {
		total += share(i)
	}
	at := 0
	for u *= total; at < n-1; at++ {
		if u -= share(at); u <= 0 {
			break
		}
	}
	return at
}

// Write writes the fit as LoadFit reads it.
func (f *Fit) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# Fitted to a trace of jobs: `inabench trace generate --demand THIS.toml` and trace.from of experiments take it.\n\n")
	fmt.Fprintf(b, "name = %s\nrate = %s          # jobs a second\nburstiness = %s    # 1: a Poisson process\n", strconv.Quote(f.Name), short(f.Rate), short(f.Burstiness))
	if len(f.Day) > 0 {
		fmt.Fprintf(b, "day = %s\n", list(f.Day))
	}
	for _, s := range f.Sizes {
		fmt.Fprintf(b, "\n[[size]]\ngpus = %d\nshare = %s\n", s.GPUs, short(s.Share))
		if len(s.Durations) > 0 {
			fmt.Fprintf(b, "durations_s = %s\n", list(s.Durations))
		} else {
			fmt.Fprintf(b, "median_s = %s\nsigma = %s\n", short(s.Median), short(s.Sigma))
		}
	}
	for _, s := range f.Sources {
		fmt.Fprintf(b, "\n[[source]]\nname = %s\nshare = %s\n", strconv.Quote(s.Name), short(s.Share))
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write fit %s: %w", f.Name, err)
	}
	return nil
}

// short is a number to six digits.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func list(values []float64) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = short(v)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// LoadFit reads what Write wrote, or somebody else, from a file of 4 MiB at most. The error is the operating system's or
// that of ParseFit.
func LoadFit(path string) (*Fit, error) {
	text, err := files.ReadFile(path, maxFitFile)
	if err != nil {
		return nil, err
	}
	return ParseFit(path, text)
}

// ParseFit reads a fit. The error is tomlfile.Problems, with every problem's place.
func ParseFit(name string, text []byte) (*Fit, error) {
	f, err := tomlfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	out := &Fit{}
	f.Decode(out)
	called(f, "name", out.Name, maxFitName)
	within(f, "rate", out.Rate, 1e-12, maxRate)
	within(f, "burstiness", out.Burstiness, minBurstiness, maxBurstiness)
	if n := len(out.Day); n != 0 && n != 24 {
		f.Problemf("day", "", "%d hours: 24, or none", n)
	}
	for i, rate := range out.Day {
		within(f, fmt.Sprintf("day[%d]", i), rate, 1e-3, 1e3)
	}
	if n := len(out.Sizes); f.Has("size") && (n == 0 || n > maxSizes) {
		f.Problemf("size", "", "%d sizes: 1 to %d", n, maxSizes)
	}
	for i := range out.Sizes {
		out.Sizes[i].check(f)
		if i > 0 && out.Sizes[i].GPUs <= out.Sizes[i-1].GPUs && f.Has(out.Sizes[i].At+".gpus") {
			f.Problemf(out.Sizes[i].At+".gpus", "", "%d GPUs after %d: in ascending order, each once", out.Sizes[i].GPUs, out.Sizes[i-1].GPUs)
		}
	}
	if n := len(out.Sources); n > maxSources+1 {
		f.Problemf("source", "", "%d sources: at most %d", n, maxSources+1)
	}
	for _, s := range out.Sources {
		within(f, s.At+".share", s.Share, 1e-12, 1e12)
		called(f, s.At+".name", s.Name, maxText)
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// within reports a number that the file gives and that is too small or too large.
func within(f *tomlfile.File, path string, v, least, most float64) {
	if f.Has(path) && !(v >= least && v <= most) && !f.Reported(path) {
		f.Problemf(path, "", "%g: it must be %g to %g", v, least, most)
	}
}

// called reports a name that the file gives and that a job's source could not have, as it is read from a trace.
func called(f *tomlfile.File, path, name string, most int) {
	switch {
	case !f.Has(path) || f.Reported(path):
	case name == "" || len(name) > most:
		f.Problemf(path, "", "a name of %d bytes: 1 to %d", len(name), most)
	case !printable(name) || strings.TrimSpace(name) != name:
		f.Problemf(path, "", "the name %s is not printable text, or has blanks around it", quote(name))
	}
}

// check finds what is wrong with a size.
func (s *FitSize) check(f *tomlfile.File) {
	within(f, s.At+".gpus", float64(s.GPUs), 1, maxGPUs)
	within(f, s.At+".share", s.Share, 1e-12, 1e12)
	within(f, s.At+".median_s", s.Median, minDuration, maxSeconds)
	within(f, s.At+".sigma", s.Sigma, 0, 10)
	lognormal, quantiles := f.Has(s.At+".median_s"), f.Has(s.At+".durations_s")
	switch {
	case lognormal == quantiles:
		f.KeyProblemf(s.At, "write median_s and sigma, or durations_s", "how long do jobs with %d GPUs run? In one of two ways", s.GPUs)
	case quantiles && f.Has(s.At+".sigma"):
		f.KeyProblemf(s.At+".sigma", "it is that of a lognormal distribution, about median_s", "sigma beside durations_s")
	case quantiles && len(s.Durations) != len(fitParts):
		f.Problemf(s.At+".durations_s", "0, 1, 5, 10, 15, ..., 90, 95, 99 and 100 %", "%d quantiles: %d", len(s.Durations), len(fitParts))
	}
	for i, d := range s.Durations {
		at := fmt.Sprintf("%s.durations_s[%d]", s.At, i)
		within(f, at, d, minDuration, maxSeconds)
		if i > 0 && d < s.Durations[i-1] {
			f.Problemf(at, "", "%g s after %g s: in ascending order", d, s.Durations[i-1])
		}
	}
}
