package experiments

import (
	"context"
	"errors"
	"testing"
	"time"
)

// answering is a batch system that answers a number of times, and then no more.
type answering struct {
	backwards
	answers []bool
}

var errNoAnswer = errors.New("socket timed out")

func (a *answering) Active(context.Context) (bool, error) {
	if len(a.answers) == 0 {
		return false, errNoAnswer
	}
	active := a.answers[0]
	a.answers = a.answers[1:]
	return active, nil
}

// A batch system that does not answer for some time does not end a sweep whose parts go on; one that does not come back does.
func TestInquiry(t *testing.T) {
	began := time.Now()
	for _, c := range []struct {
		name    string
		answers []bool
		at      time.Duration // of the last answer or cell
		now     time.Duration
		active  bool
		err     error
	}{
		{"asked a moment ago", nil, 0, askEvery / 2, true, nil},
		{"parts go on", []bool{true}, 0, askEvery, true, nil},
		{"all have ended", []bool{false}, 0, askEvery, false, nil},
		{"no answer", nil, 0, askEvery, true, nil},
		{"no answer for long", nil, 0, askPatience, false, errNoAnswer},
		{"no answer for long, and cells come", nil, askPatience - askEvery, askPatience, true, nil},
	} {
		q := inquiry{batch: &answering{answers: c.answers}, asked: began, heard: began.Add(c.at)}
		if active, err := q.active(t.Context(), began.Add(c.now)); active != c.active || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.name, active, err)
		}
	}
	q := inquiry{batch: &answering{answers: []bool{true}}, asked: began, heard: began}
	for now := askEvery; now < askPatience; now += askEvery { // the first time it answers
		if active, err := q.active(t.Context(), began.Add(now)); !active || err != nil {
			t.Fatalf("after %v: %v, %v", now, active, err)
		}
	}
	if _, err := q.active(t.Context(), began.Add(askEvery+askPatience)); !errors.Is(err, errNoAnswer) {
		t.Errorf("it never answered again: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	cancel(why)
	q = inquiry{batch: &answering{}, asked: began, heard: began}
	if _, err := q.active(ctx, began.Add(askEvery)); !errors.Is(err, why) {
		t.Errorf("interrupted while it was asked: %v", err)
	}
}
