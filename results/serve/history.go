package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/trend"
)

// maxSeries is how many series one page draws.
const maxSeries = 48

// seriesView is one series, drawn.
type seriesView struct {
	history.Series
	Verdict trend.Verdict `json:"verdict"`
	Changes []changeView  `json:"changes"`

	Name, State string        `json:"-"`
	SVG         template.HTML `json:"-"`
}

// changeView is a run from which on a series was another one.
type changeView struct {
	trend.Change
	Run     string    `json:"run"`
	Started time.Time `json:"started"`
	Text    string    `json:"text"` // "5.0 % lower"
}

// question is what of the history is asked for.
type question struct{ Metric, Experiment, Of, Setting string }

// all is the word for settings of whatever age.
const all = "all"

// longestQuestion is how many bytes of a question make sense.
const longestQuestion = 2 << 10

// short refuses a question that is longer.
func short(r *http.Request) error {
	if n := len(r.URL.RawQuery); n > longestQuestion {
		return badQuery{fmt.Errorf("a question of %d bytes: at most %d", n, longestQuestion)}
	}
	return nil
}

func questionOf(r *http.Request) (question, history.Query, error) {
	if err := short(r); err != nil {
		return question{}, history.Query{}, err
	}
	v := r.URL.Query()
	q := question{v.Get("metric"), v.Get("experiment"), v.Get("of"), v.Get("setting")}
	h := history.Query{Metric: q.Metric, Experiment: q.Experiment, Of: q.Of}
	switch q.Setting {
	case "":
		h.Newest = true
	case all:
	default:
		h.Setting = q.Setting
	}
	return q, h, nil
}

// address is where a question is answered, whatever else stood in the request.
func (q question) address(path string) string {
	v := url.Values{}
	for name, value := range map[string]string{"metric": q.Metric, "experiment": q.Experiment, "of": q.Of, "setting": q.Setting} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return path + "?" + v.Encode()
}

// series answers a question: the first n series, and how many more there are.
func (s *Server) series(ctx context.Context, q history.Query, n int) (out []seriesView, left int, err error) {
	found, err := s.index.Series(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	found = slices.DeleteFunc(found, func(s history.Series) bool { return len(s.Nights) == 0 })
	if n > 0 && len(found) > n {
		found, left = found[:n], len(found)-n
	}
	out = []seriesView{}
	for i, f := range found {
		v := seriesView{Series: f, Changes: []changeView{}}
		var changes []trend.Change
		if v.Verdict, changes, err = trend.Follow(f.Trend(), trend.Options{}); err != nil {
			return nil, 0, err
		}
		drawing := plot.Nights{ID: fmt.Sprintf("series-%d", i), Unit: f.Unit}
		for _, c := range changes {
			way := "higher"
			if c.Shift < 0 {
				way = "lower"
			}
			view := changeView{c, f.Nights[c.Night].Run, f.Nights[c.Night].Started, strings.TrimPrefix(human.Percent(c.Shift), "-") + " " + way}
			v.Changes = append(v.Changes, view)
			drawing.Steps = append(drawing.Steps, plot.NightStep{At: c.Night, Text: view.Text})
		}
		for _, n := range f.Nights {
			drawing.Marks = append(drawing.Marks, plot.NightMark{Name: n.Run, When: n.Started.Local().Format("2006-01-02 15:04"), Figures: n.Figures, Outcome: n.Outcome})
		}
		v.Name = nameOf(f)
		v.State = stateOf(v.Verdict, f.Unit)
		drawing.Title = v.Name
		v.SVG = template.HTML(drawing.SVG())
		out = append(out, v)
	}
	return out, left, nil
}

// nameOf says what a series is of.
func nameOf(s history.Series) string {
	name := s.Metric + " of " + s.Of + " on " + s.Driver
	if s.Point != "" {
		name += " at " + s.Point
	}
	if s.Phase > 0 {
		name += fmt.Sprintf(", phase %d", s.Phase+1)
	}
	return name + ", " + s.Experiment
}

// stateOf says what the newest run of a series is.
func stateOf(v trend.Verdict, unit string) string {
	text := "newest " + human.Quantity(v.Tonight, unit)
	switch v.State {
	case trend.Learning:
		return text + fmt.Sprintf("; too few runs to tell noise from change (%d before)", v.Nights)
	case trend.Same:
		text += ", as before"
	default:
		text += ", " + string(v.State) + " by " + strings.TrimPrefix(human.Percent(v.Shift), "-")
	}
	text += " (" + human.Quantity(v.Baseline, unit) + "); noise " + human.Percent(v.Noise.Nights)
	if v.Visible > 0 {
		text += ", a change of " + human.Percent(v.Visible) + " would be seen at once"
	}
	return text
}

// history is the page of a metric's history; without a metric, of which there are.
func (s *Server) history(w http.ResponseWriter, r *http.Request) error {
	_, version, err := s.look(r.Context())
	if err != nil {
		return err
	}
	q, h, err := questionOf(r)
	if err != nil {
		return err
	}
	return s.show(w, r, &s.histories, q.address("/history"), version, func(w io.Writer, p page) error { return s.historyOf(w, p, q, h, version) })
}

func (s *Server) historyOf(w io.Writer, p page, q question, h history.Query, version string) (err error) {
	p.Title, p.Here, p.Version, p.Watch = "History", "history", version, "-"
	ctx := s.stopping // who asked may be gone, and others wait
	data := struct {
		page
		question
		Metrics     []string
		Experiments []string
		Uses        []history.Use
		Series      []seriesView
		Left        int
		JSON        string
	}{page: p, question: q, JSON: q.address("/history.json")}
	if data.Metrics, err = s.index.Metrics(ctx); err != nil {
		return err
	}
	if data.Uses, err = s.index.Uses(ctx); err != nil {
		return err
	}
	for _, u := range data.Uses {
		if !slices.Contains(data.Experiments, u.Experiment) {
			data.Experiments = append(data.Experiments, u.Experiment)
		}
	}
	if q.Metric != "" {
		data.Title = "History of " + q.Metric
		if data.Series, data.Left, err = s.series(ctx, h, maxSeries); err != nil {
			return err
		}
	}
	data.Uses = slices.DeleteFunc(data.Uses, func(u history.Use) bool {
		return !slices.ContainsFunc(data.Series, func(s seriesView) bool { return s.Experiment == u.Experiment && s.Setting == u.Key })
	})
	return pages.ExecuteTemplate(w, "history", data)
}

// historyJSON is the same for programs: all series.
func (s *Server) historyJSON(w http.ResponseWriter, r *http.Request) error {
	_, version, err := s.look(r.Context())
	if err != nil {
		return err
	}
	q, h, err := questionOf(r)
	if err != nil {
		return err
	}
	if q.Metric == "" {
		return badQuery{fmt.Errorf("which metric? ?metric=goodput")}
	}
	return answer(w, r, &s.histories, jsonText, q.address("/history.json"), version, func(w io.Writer) error {
		series, _, err := s.series(s.stopping, h, 0)
		if err != nil {
			return err
		}
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"metric": q.Metric, "series": series})
	})
}
