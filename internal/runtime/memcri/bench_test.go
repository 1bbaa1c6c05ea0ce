package memcri_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

// BenchmarkPods takes 2,000 pods from nothing to nothing, with every call an
// agent makes for them, an event reader, and lists. CPU-seconds are those of
// server and client together.
func BenchmarkPods(b *testing.B) {
	const pods = 2000
	for b.Loop() {
		before := cpuSeconds(b)
		s, cri := serve(b, memcri.Options{})
		var g errgroup.Group
		g.SetLimit(16)
		// Two events for a sandbox's start, two for its end; a container has four.
		seen := countEvents(b, cri, pods*8)
		for n := range pods {
			g.Go(func() error { return lifeOfAPod(b, cri, fmt.Sprintf("pod-%d", n)) })
		}
		if err := errors.Join(g.Wait(), <-seen); err != nil {
			b.Fatalf("%v; events missed: %d", err, s.EventsMissed())
		}
		if v := s.Violations(); len(v) != 0 {
			b.Fatal(v)
		}
		b.ReportMetric(cpuSeconds(b)-before, "cpu-s/op")
	}
}

func lifeOfAPod(b *testing.B, cri runtimeapi.RuntimeServiceClient, name string) error {
	sb, config := runSandbox(b, cri, name)
	if _, err := cri.PodSandboxStatus(b.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sb}); err != nil {
		return err
	}
	id := create(b, cri, sb, config, "main", 0)
	start(b, cri, id)
	containerStatus(b, cri, id)
	if _, err := cri.StopContainer(b.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 5}); err != nil {
		return err
	}
	if _, err := cri.StopPodSandbox(b.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb}); err != nil {
		return err
	}
	_, err := cri.RemovePodSandbox(b.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb})
	return err
}

// countEvents reads n events and gives the error that kept it from doing so.
func countEvents(b *testing.B, cri runtimeapi.RuntimeServiceClient, n int) <-chan error {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	stream, err := cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		cancel()
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		defer cancel()
		for range n {
			if _, err := stream.Recv(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return done
}

func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
