package query

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestBackoffGrowsToALimit(t *testing.T) {
	refused := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("x").GroupResource(), "", errors.New("no"))
	p := Backoff{}
	within := func(what string, err error, least, most time.Duration) {
		t.Helper()
		if d := p.Next(err); d < least || d > most*6/5 {
			t.Errorf("%s: after %s, want %s to %s", what, d, least, most)
		}
	}
	within("the first time", refused, 250*time.Millisecond, 250*time.Millisecond)
	for range 20 {
		p.Next(refused)
	}
	within("nobody answers", refused, longestUnanswered, longestUnanswered)
	within("it has just started", forbidden, 250*time.Millisecond, 250*time.Millisecond)
	for range 20 {
		p.Next(forbidden)
	}
	within("it goes on refusing", forbidden, longestRefused, longestRefused)
	p = Backoff{}
	within("it says when", apierrors.NewTooManyRequests("busy", 3), 3*time.Second, 3*time.Second)
	within("it says in an hour", apierrors.NewTooManyRequests("busy", 3600), longestRefused, longestRefused)
}
