package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRetry(t *testing.T) {
	status := func(code int) error {
		return &Error{Server: "https://h", Err: apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{Resource: "nodes"}, "n1", "no", 0, true)}
	}
	for _, c := range []struct {
		err           error
		failures      int
		again         bool
		least, atMost time.Duration
	}{
		{nil, 3, false, 0, 0},
		{context.Canceled, 0, false, firstDelay / 2, firstDelay},
		{errors.New("connection refused"), 0, true, firstDelay / 2, firstDelay},
		{context.DeadlineExceeded, 1, true, firstDelay, 2 * firstDelay},
		{errors.New("x"), 50, true, lastDelay / 2, lastDelay},
		{status(http.StatusUnauthorized), 0, true, firstDelay / 2, firstDelay},
		{status(http.StatusForbidden), 2, true, 2 * firstDelay, 4 * firstDelay},
		{status(http.StatusNotFound), 0, false, firstDelay / 2, firstDelay},
		{status(http.StatusConflict), 0, false, firstDelay / 2, firstDelay},
		{status(http.StatusGone), 0, false, firstDelay / 2, firstDelay},
		{status(http.StatusUnprocessableEntity), 0, false, firstDelay / 2, firstDelay},
		{status(http.StatusBadRequest), 0, false, firstDelay / 2, firstDelay},
		{status(http.StatusInternalServerError), 0, true, firstDelay / 2, firstDelay},
		{status(http.StatusServiceUnavailable), 0, true, firstDelay / 2, firstDelay},
		{status(http.StatusTooManyRequests), 0, true, firstDelay / 2, firstDelay},
		{apierrors.NewTooManyRequests("slow down", 7), 0, true, 7 * time.Second, 9 * time.Second},
		{fmt.Errorf("patch: %w", &Error{Err: errors.New("x"), retryAfter: 20 * time.Second}), 0, true, 20 * time.Second, 25 * time.Second},
		{apierrors.NewTooManyRequests("come back tomorrow", 86400), 0, true, mostRequested, mostRequested * 13 / 10},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Details: &metav1.StatusDetails{RetryAfterSeconds: 30}}}, 0, true, 30 * time.Second, 37 * time.Second},
	} {
		different := map[time.Duration]bool{}
		for range 50 {
			again, after := Retry(c.err, c.failures)
			different[after] = true
			if again != c.again || after < c.least || after > c.atMost {
				t.Fatalf("%v after %d failures: %t, %s; want %t, %s to %s", c.err, c.failures, again, after, c.again, c.least, c.atMost)
			}
		}
		if c.err != nil && len(different) < 10 {
			t.Errorf("%v: only %d different waits of 50", c.err, len(different))
		}
	}
}

func TestRejected(t *testing.T) {
	for code, want := range map[int]bool{http.StatusForbidden: true, http.StatusUnprocessableEntity: true, http.StatusBadRequest: true, http.StatusNotFound: true,
		http.StatusConflict: false, http.StatusUnauthorized: false, http.StatusTooManyRequests: false, http.StatusInternalServerError: false, http.StatusServiceUnavailable: false} {
		err := fmt.Errorf("update: %w", &Error{Server: "https://h", Err: apierrors.NewGenericServerResponse(code, "put", schema.GroupResource{Resource: "nodes"}, "n1", "no", 0, true)})
		if Rejected(err) != want {
			t.Errorf("status %d: %t", code, !want)
		}
	}
	for _, err := range []error{nil, context.DeadlineExceeded, &Error{Err: apierrors.NewForbidden(schema.GroupResource{}, "n1", nil), trouble: notAPI}} {
		if Rejected(err) {
			t.Errorf("%v", err)
		}
	}
}
