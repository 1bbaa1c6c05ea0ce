package observed_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// observerSocket names the runtime of a process that only observes, so that its memory can be measured.
const observerSocket = "DECKHAND_TEST_OBSERVE"

// resultFormat is the line with the results of that process.
const resultFormat = "running %d ended %d MiB %d ms %d cpu %d"

// observe is the process that TestManyDeadContainers measures.
func observe(t *testing.T, socket string) {
	debug.SetGCPercent(20) // as the agent does
	begun := time.Now()
	conn, err := cri.New(cri.Options{Endpoint: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := observed.New(conn, observed.Options{Log: logr.Discard(), Wake: func(types.UID) {}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Synced():
	case <-ctx.Done():
		t.Fatalf("not listed: %v", s.Healthy(time.Now()))
	}
	ready := time.Since(begun)
	running, ended := 0, 0
	for _, o := range s.All() {
		for i := range o.Containers {
			if o.Containers[i].State == pod.ContainerRunning {
				running++
			} else if o.Containers[i].Ended() && !o.Containers[i].FinishedAt.IsZero() {
				ended++
			}
		}
	}
	cancel()
	<-done
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	fmt.Printf(resultFormat+"\n", running, ended, u.Maxrss>>10, ready.Milliseconds(), (u.Utime.Nano()+u.Stime.Nano())/1e6)
}

// fill makes the containers of many pods: each has one sandbox, live running containers and dead ones.
func fill(t *testing.T, s *memcri.Server, pods, live, dead int) {
	t.Helper()
	s.DropEvents(true)
	defer s.DropEvents(false)
	ctx := t.Context()
	for n := range pods {
		uid := fmt.Sprintf("%08x-1c2d-4e3f-8a9b-0123456789ab", n)
		labels := map[string]string{
			kubelettypes.KubernetesPodNameLabel: fmt.Sprintf("frontend-7d4b9c8f6d-%05d", n), kubelettypes.KubernetesPodNamespaceLabel: "production",
			kubelettypes.KubernetesPodUIDLabel: uid, "app.kubernetes.io/name": "frontend", "pod-template-hash": "7d4b9c8f6d",
		}
		config := &runtimeapi.PodSandboxConfig{
			Metadata:     &runtimeapi.PodSandboxMetadata{Name: labels[kubelettypes.KubernetesPodNameLabel], Namespace: "production", Uid: uid},
			Labels:       labels,
			Annotations:  map[string]string{"kubernetes.io/config.source": "api", "note": strings.Repeat("n", 200)},
			LogDirectory: "/var/log/pods/production_frontend_" + uid,
			Linux:        &runtimeapi.LinuxPodSandboxConfig{},
		}
		sb, err := s.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		for i := range live + dead {
			labels := maps.Clone(labels)
			name, attempt := "main", i
			if i >= dead {
				name, attempt = fmt.Sprintf("side-%d", i-dead), 0
			}
			labels[kubelettypes.KubernetesContainerNameLabel] = name
			c, err := s.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: config,
				Config: &runtimeapi.ContainerConfig{
					Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: uint32(attempt)},
					Image:    &runtimeapi.ImageSpec{Image: "app:1"}, Command: []string{"serve"}, Labels: labels, LogPath: fmt.Sprintf("%s/%d.log", name, attempt),
					Annotations: map[string]string{
						translate.AnnotationHash: "5f2a9b1c", translate.AnnotationRestartCount: fmt.Sprint(attempt),
						translate.AnnotationTerminationMessagePath: "/dev/termination-log", translate.AnnotationTerminationMessagePolicy: "File",
						translate.AnnotationTerminationGrace: "30", translate.AnnotationBackoff: "5m0s", translate.AnnotationImage: "registry.example.com/team/app:1",
						translate.AnnotationResources: `{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"256Mi"}}`,
						translate.AnnotationPorts:     `[{"name":"http","containerPort":8080,"protocol":"TCP"}]`,
					},
				}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
				t.Fatal(err)
			}
			if i < dead {
				if err := s.Exit(c.ContainerId, 1, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		if live == 0 {
			if _, err := s.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb.PodSandboxId}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestManyDeadContainers: 33,000 dead containers, which don't fit in one answer, are listed with little memory and few
// calls.
func TestManyDeadContainers(t *testing.T) {
	if socket := os.Getenv(observerSocket); socket != "" {
		observe(t, socket)
		return
	}
	const pods, dead = 100, 330
	s, err := memcri.New(memcri.Options{Images: []string{"app:1"}})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	if err := s.Start(socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	fill(t, s, pods, 1, dead)
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams %v", streams), func(t *testing.T) {
			if !streams {
				none := status.Error(codes.Unimplemented, "no streams")
				s.FailNext("StreamContainers", math.MaxInt, none)
				s.FailNext("StreamPodSandboxes", math.MaxInt, none)
			}
			before := s.Calls("ContainerStatus")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestManyDeadContainers$")
			cmd.Env = append(os.Environ(), observerSocket+"="+socket)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var running, ended, peak, ready, cpu int
			for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
				if _, err := fmt.Sscanf(lines.Text(), resultFormat, &running, &ended, &peak, &ready, &cpu); err == nil {
					break
				}
			}
			t.Logf("listed after %d ms and %d ms of CPU, up to %d MiB; calls: %v", ready, cpu, peak, s.AllCalls())
			if running != pods || ended != pods*dead {
				t.Errorf("%d run and %d have ended, want %d and %d:\n%s", running, ended, pods, pods*dead, out)
			}
			limit := 180 // 145 on two CPUs; on a single one the garbage is collected later
			if !streams {
				limit = 300 // gRPC also receives the beginning of two answers that are too long
			}
			if peak > limit {
				t.Errorf("it takes %d MiB, at most %d are allowed", peak, limit)
			}
			if n := s.Calls("ContainerStatus") - before; n > 4*pods {
				t.Errorf("%d statuses of containers are asked for", n)
			}
		})
	}
}
