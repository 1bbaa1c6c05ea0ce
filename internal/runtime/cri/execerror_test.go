package cri

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An answer that arrives as the call's time ends is one.
func TestExecErrorOfACallWhoseTimeEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := execError(ctx, nil, time.Second, time.Minute); err != nil {
		t.Errorf("an answer: %v", err)
	}
	if err := execError(ctx, status.Error(codes.DeadlineExceeded, "x"), time.Second, time.Minute); !errors.Is(err, errExecUnanswered) {
		t.Errorf("silence: %v", err)
	}
}
