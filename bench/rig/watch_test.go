package rig_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/rig"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The floor and the watch, on the in-memory runtime.
func TestFloorIsWatched(t *testing.T) {
	const pods = 50
	s, err := memcri.New(memcri.Options{Images: []string{"example.com/app:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(""); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, err := rig.StartWatcher(ctx, cri)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()

	f := rig.Floor{Runtime: cri, Image: "example.com/app:1", Args: []string{"serve"}, Grace: 5 * time.Second}
	made, took, err := f.Start(ctx, pods, 4)
	if err != nil || took <= 0 {
		t.Fatalf("start: %v after %s", err, took)
	}
	if _, err := w.Await(ctx, func(st rig.State) bool { return st.Running() == pods }); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Restart(ctx, &made[0], 1); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Await(ctx, func(st rig.State) bool { return st.Find("main", 1) != nil }); err != nil {
		t.Fatal(err)
	}
	if v := s.Violations(); len(v) > 0 {
		t.Error(v)
	}
	if _, err := f.Remove(ctx, made, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Await(ctx, rig.State.Empty); err != nil {
		t.Fatal(err)
	}

	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := w.Await(short, func(st rig.State) bool { return st.Running() > 0 }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting in vain: %v", err)
	}
	s.Crash()
	if _, err := w.Await(ctx, func(st rig.State) bool { return st.Running() > 0 }); err == nil || ctx.Err() != nil {
		t.Errorf("waiting on a broken stream: %v", err)
	}
}
