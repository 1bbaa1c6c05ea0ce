package critest

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testContainerLifecycle(t *testing.T, f *fixture) {
	p := f.runPod(t)
	config := p.containerConfig("main", "exit", "0", "300ms")
	config.Metadata.Attempt = 3
	id := p.create(t, config)
	st := f.containerStatus(t, id)
	wantState(t, st, runtimeapi.ContainerState_CONTAINER_CREATED)
	wantRecent(t, "CreatedAt", st.GetCreatedAt())
	if st.GetStartedAt() != 0 || st.GetFinishedAt() != 0 {
		t.Errorf("a created container was started at %d and finished at %d, want 0", st.GetStartedAt(),
			st.GetFinishedAt())
	}
	if !proto.Equal(st.GetMetadata(), config.GetMetadata()) || !maps.Equal(st.GetLabels(), config.GetLabels()) ||
		!maps.Equal(st.GetAnnotations(), config.GetAnnotations()) {
		t.Errorf("metadata %v, labels %v or annotations %v aren't those given", st.GetMetadata(), st.GetLabels(),
			st.GetAnnotations())
	}
	if want := filepath.Join(p.config.GetLogDirectory(), config.GetLogPath()); st.GetLogPath() != want {
		t.Errorf("log path is %q, want %q", st.GetLogPath(), want)
	}
	if st.GetImage().GetImage() == "" || st.GetImageRef() == "" || st.GetImageId() == "" {
		t.Errorf("image %v, image ref %q or image ID %q is empty", st.GetImage(), st.GetImageRef(), st.GetImageId())
	}

	f.startContainer(t, id)
	st = f.containerStatus(t, id)
	wantState(t, st, runtimeapi.ContainerState_CONTAINER_RUNNING)
	if st.GetStartedAt() < st.GetCreatedAt() || st.GetFinishedAt() != 0 {
		t.Errorf("a running container was started at %d (created at %d) and finished at %d", st.GetStartedAt(),
			st.GetCreatedAt(), st.GetFinishedAt())
	}

	st = f.awaitExit(t, id)
	if st.GetFinishedAt() < st.GetStartedAt() {
		t.Errorf("finished at %d, before its start at %d", st.GetFinishedAt(), st.GetStartedAt())
	}
	wantRecent(t, "FinishedAt", st.GetFinishedAt())
	f.stopContainer(t, id, 1) // stopping an exited container isn't an error
	for range 2 {
		f.removeContainer(t, id)
		_, err := f.runtime.ContainerStatus(f.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		wantCode(t, "status of a removed container", err, codes.NotFound)
	}
	f.stopContainer(t, id, 1)
}

func testExitCodes(t *testing.T, f *fixture) {
	p := f.runPod(t)
	for _, c := range []struct {
		word   string
		code   int32
		reason string
	}{{"0", 0, "Completed"}, {"1", 1, "Error"}, {"42", 42, "Error"}} {
		st := f.awaitExit(t, p.start(t, "exit-"+c.word, "exit", c.word))
		if st.GetExitCode() != c.code || st.GetReason() != c.reason {
			t.Errorf("exit %s ended with code %d and reason %q, want %d and %q", c.word, st.GetExitCode(),
				st.GetReason(), c.code, c.reason)
		}
	}
}

// missing is a program that no image has.
const missing = "/critest-no-such-program"

func testStartFailure(t *testing.T, f *fixture) {
	p := f.runPod(t)
	config := p.containerConfig("main")
	config.Command, config.Args = []string{missing}, nil
	id := p.create(t, config)
	_, err := f.runtime.StartContainer(f.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	wantError(t, "starting a program that is missing", err)
	st := f.containerStatus(t, id)
	wantState(t, st, runtimeapi.ContainerState_CONTAINER_EXITED)
	if st.GetExitCode() != 128 || st.GetReason() != "StartError" || st.GetMessage() == "" {
		t.Errorf("it ended with code %d, reason %q and message %q, want 128, StartError and some message",
			st.GetExitCode(), st.GetReason(), st.GetMessage())
	}
	if st.GetStartedAt() != 0 || st.GetFinishedAt() == 0 {
		t.Errorf("it was started at %d and finished at %d, want 0 and a time", st.GetStartedAt(), st.GetFinishedAt())
	}
}

func testStartOnce(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "sleep", "1h")
	start := func() error {
		_, err := f.runtime.StartContainer(f.ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		return err
	}
	wantError(t, "starting a running container", start())
	wantState(t, f.containerStatus(t, id), runtimeapi.ContainerState_CONTAINER_RUNNING)
	f.stopContainer(t, id, 0)
	wantError(t, "starting an exited container", start())
}

func testCreateNeeds(t *testing.T, f *fixture) {
	p := f.runPod(t)
	config := p.containerConfig("main", "sleep", "1h")
	nowhere := &pod{f: f, config: p.config, id: "no-such-sandbox"}
	_, err := nowhere.tryCreate(config)
	wantCode(t, "creating a container in no sandbox", err, codes.NotFound)

	noImage := p.containerConfig("main", "sleep", "1h")
	noImage.Image = &runtimeapi.ImageSpec{Image: "critest.invalid/none:1"}
	_, err = p.tryCreate(noImage)
	wantCode(t, "creating a container of a missing image", err, codes.NotFound)

	p.create(t, config) // the failures above don't reserve the name
	_, err = p.tryCreate(config)
	wantCode(t, "creating a container with a name in use", err, codes.FailedPrecondition)

	p.stop(t)
	_, err = p.tryCreate(p.containerConfig("late", "sleep", "1h"))
	wantError(t, "creating a container in a stopped sandbox", err)
}

// A restart is a new container with the next attempt, beside the old one.
func testRestartAttempts(t *testing.T, f *fixture) {
	p := f.runPod(t)
	var ids []string
	for attempt := range uint32(3) {
		config := p.containerConfig("main", "exit", "1")
		config.Metadata.Attempt = attempt
		id := p.create(t, config)
		f.startContainer(t, id)
		f.awaitExit(t, id)
		ids = append(ids, id)
	}
	r, err := f.runtime.ListContainers(f.ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}})
	if err != nil {
		t.Fatal(err)
	}
	items := byID(r.GetContainers())
	for attempt, id := range ids {
		if got := items[id].GetMetadata().GetAttempt(); int(got) != attempt ||
			items[id].GetMetadata().GetName() != "main" {
			t.Errorf("instance %d is listed as %v", attempt, items[id].GetMetadata())
		}
	}
	f.removeContainer(t, ids[0])
	config := p.containerConfig("main", "sleep", "1h")
	p.create(t, config) // attempt 0 is free again
}

// Stopping and removing missing objects isn't an error; all other calls return NotFound.
func testGone(t *testing.T, f *fixture) {
	const none = "0000000000000000000000000000000000000000000000000000000000000000"
	for what, call := range map[string]func() error{
		"StopPodSandbox": func() error {
			_, err := f.runtime.StopPodSandbox(f.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: none})
			return err
		},
		"RemovePodSandbox": func() error {
			_, err := f.runtime.RemovePodSandbox(f.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: none})
			return err
		},
		"StopContainer": func() error {
			_, err := f.runtime.StopContainer(f.ctx, &runtimeapi.StopContainerRequest{ContainerId: none, Timeout: 1})
			return err
		},
		"RemoveContainer": func() error {
			_, err := f.runtime.RemoveContainer(f.ctx, &runtimeapi.RemoveContainerRequest{ContainerId: none})
			return err
		},
	} {
		wantCode(t, what, call(), codes.OK)
	}
	for what, call := range map[string]func() error{
		"PodSandboxStatus": func() error {
			_, err := f.runtime.PodSandboxStatus(f.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: none})
			return err
		},
		"ContainerStatus": func() error {
			_, err := f.runtime.ContainerStatus(f.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: none})
			return err
		},
		"StartContainer": func() error {
			_, err := f.runtime.StartContainer(f.ctx, &runtimeapi.StartContainerRequest{ContainerId: none})
			return err
		},
		"ExecSync": func() error {
			_, err := f.runtime.ExecSync(f.ctx, &runtimeapi.ExecSyncRequest{ContainerId: none, Cmd: []string{"x"}})
			return err
		},
		"ReopenContainerLog": func() error {
			_, err := f.runtime.ReopenContainerLog(f.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: none})
			return err
		},
		"UpdateContainerResources": func() error {
			_, err := f.runtime.UpdateContainerResources(f.ctx,
				&runtimeapi.UpdateContainerResourcesRequest{ContainerId: none})
			return err
		},
	} {
		wantCode(t, what, call(), codes.NotFound)
	}
}

func testRemoveRunning(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "ignore-term")
	began := time.Now()
	f.removeContainer(t, id)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("removing a running container took %s; it should be killed at once", took)
	}
	_, err := f.runtime.ContainerStatus(f.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "status of a container removed while it ran", err, codes.NotFound)
}

func testListContainers(t *testing.T, f *fixture) {
	p, q := f.runPod(t), f.runPod(t)
	runs, done, other := p.start(t, "runs", "sleep", "1h"), p.start(t, "done", "exit", "0"),
		q.start(t, "other", "sleep", "1h")
	f.awaitExit(t, done)
	list := func(filter *runtimeapi.ContainerFilter) map[string]*runtimeapi.Container {
		r, err := f.runtime.ListContainers(f.ctx, &runtimeapi.ListContainersRequest{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		return byID(r.GetContainers())
	}
	in := func(state runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: state}
	}

	all := list(nil)
	wantHas(t, "the unfiltered list", all, runs, done, other)
	if item := all[runs]; item != nil {
		config := p.containerConfig("runs", "sleep", "1h")
		if item.GetPodSandboxId() != p.id || !maps.Equal(item.GetLabels(), config.GetLabels()) ||
			!maps.Equal(item.GetAnnotations(), config.GetAnnotations()) ||
			!proto.Equal(item.GetMetadata(), config.GetMetadata()) ||
			item.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("listed container is %v, which isn't %v in %s", item, config, p.id)
		}
		if item.GetImage().GetImage() != f.Image || item.GetImageId() == "" {
			t.Errorf("it lists the image %v and image ID %q, want %q as given and an ID", item.GetImage(),
				item.GetImageId(), f.Image)
		}
		wantRecent(t, "listed CreatedAt", item.GetCreatedAt())
	}
	wantHas(t, "the list by sandbox", list(&runtimeapi.ContainerFilter{PodSandboxId: p.id}), runs, done, "!"+other)
	wantHas(t, "the list by ID", list(&runtimeapi.ContainerFilter{Id: other}), other, "!"+runs, "!"+done)
	wantHas(t, "the list of running ones",
		list(&runtimeapi.ContainerFilter{State: in(runtimeapi.ContainerState_CONTAINER_RUNNING)}), runs, other,
		"!"+done)
	wantHas(t, "the list by label", list(&runtimeapi.ContainerFilter{LabelSelector: map[string]string{
		"io.kubernetes.pod.uid": p.config.GetMetadata().GetUid(), "io.kubernetes.container.name": "done",
	}}), done, "!"+runs, "!"+other)
	wantHas(t, "the list by sandbox and state",
		list(&runtimeapi.ContainerFilter{PodSandboxId: p.id, State: in(runtimeapi.ContainerState_CONTAINER_EXITED)}),
		done, "!"+runs, "!"+other)
	if got := list(&runtimeapi.ContainerFilter{PodSandboxId: "no-such-sandbox"}); len(got) != 0 {
		t.Errorf("the list of no sandbox's containers is %v", got)
	}
}
