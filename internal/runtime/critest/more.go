package critest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testImages(t *testing.T, f *fixture) {
	r, err := f.images.ImageStatus(f.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: f.Image}})
	if err != nil {
		t.Fatal(err)
	}
	img := r.GetImage()
	if img.GetId() == "" || img.GetSize() == 0 {
		t.Fatalf("the image %s is %v, want an ID and a size", f.Image, img)
	}
	byItsID, err := f.images.ImageStatus(f.ctx,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: img.GetId()}})
	if err != nil || byItsID.GetImage().GetId() != img.GetId() {
		t.Errorf("the image asked for by its ID %s is %v (%v)", img.GetId(), byItsID.GetImage(), err)
	}
	list, err := f.images.ListImages(f.ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantHas(t, "the list of images", byID(list.GetImages()), img.GetId())

	none := &runtimeapi.ImageSpec{Image: "critest.invalid/none:1"}
	absent, err := f.images.ImageStatus(f.ctx, &runtimeapi.ImageStatusRequest{Image: none})
	if err != nil || absent.GetImage() != nil {
		t.Errorf("status of an image that isn't there is %v (%v), want nothing and no error", absent, err)
	}
	if _, err := f.images.RemoveImage(f.ctx, &runtimeapi.RemoveImageRequest{Image: none}); err != nil {
		t.Errorf("removing an image that isn't there: %v", err)
	}
	_, err = f.images.PullImage(f.ctx,
		&runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "Not a reference"}})
	wantError(t, "pulling what is no reference", err)

	fs, err := f.images.ImageFsInfo(f.ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(fs.GetImageFilesystems()) == 0 || fs.GetImageFilesystems()[0].GetFsId().GetMountpoint() == "" {
		t.Errorf("image file systems are %v, want one with a mount point", fs.GetImageFilesystems())
	}
}

// logLine is a full line in the CRI's log format.
var logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d) (stdout|stderr) F .+$`)

func testLogs(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "logs", "3")
	path := filepath.Join(p.config.GetLogDirectory(), "main", "0.log") // the runtime has to create its directories
	f.awaitExit(t, id)
	f.eventually(t, "three lines are logged", func() bool { return countLines(t, path) >= 3 })
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 3 {
		t.Errorf("the log has %d lines, want 3:\n%s", len(lines), text)
	}
	streams := map[string]int{}
	for _, line := range lines {
		if m := logLine.FindStringSubmatch(line); m != nil {
			streams[m[2]]++
		} else {
			t.Errorf("log line %q isn't in the CRI's format", line)
		}
	}
	if streams["stdout"] != 2 || streams["stderr"] != 1 {
		t.Errorf("lines by stream are %v, want 2 of stdout and 1 of stderr", streams)
	}
	f.removeContainer(t, id)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the log is gone with its container (%v); it is the caller's to remove", err)
	}

	// A container without a log path has no log, but runs.
	config := p.containerConfig("mute", "logs", "1")
	config.LogPath = ""
	f.startContainer(t, p.create(t, config))
}

func countLines(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

func testLogReopen(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "sleep", "1h")
	path := filepath.Join(p.config.GetLogDirectory(), "main", "0.log")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatalf("a started container has no log: %v", err)
	}
	if _, err := f.runtime.ReopenContainerLog(f.ctx,
		&runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("no new log after ReopenContainerLog: %v", err)
	}
	f.stopContainer(t, id, 0)
	_, err := f.runtime.ReopenContainerLog(f.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	wantError(t, "ReopenContainerLog of an exited container", err)
}

// Containers continue when the runtime's process dies. The exit codes of containers that end before its restart are
// lost, as in containerd.
func testRuntimeRestart(t *testing.T, f *fixture) {
	if f.Crash == nil || f.Restart == nil {
		t.Skip("this harness can't restart its runtime")
	}
	p := f.runPod(t)
	runs, ends := p.startReady(t, "runs", "serve"), p.start(t, "ends", "exit", "5", "1s")
	created := p.create(t, p.containerConfig("created", "sleep", "1h"))
	before, ip := f.containerStatus(t, runs), p.status(t).GetNetwork().GetIp()

	f.Crash(t)
	time.Sleep(2 * time.Second) // "ends" ends while no runtime can report it
	f.Restart(t)

	// A connection notices the runtime's return with a delay.
	f.eventually(t, "the runtime answers", func() bool {
		_, err := f.runtime.Version(f.ctx, &runtimeapi.VersionRequest{})
		return err == nil
	})
	st := p.status(t)
	if st.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || st.GetNetwork().GetIp() != ip {
		t.Errorf("sandbox is %s with address %q, want READY and %q", st.GetState(), st.GetNetwork().GetIp(), ip)
	}
	after := f.containerStatus(t, runs)
	wantState(t, after, runtimeapi.ContainerState_CONTAINER_RUNNING)
	if after.GetStartedAt() != before.GetStartedAt() {
		t.Errorf("start time changed from %d to %d over the restart", before.GetStartedAt(), after.GetStartedAt())
	}
	if st := f.awaitExit(t, ends); st.GetExitCode() != 255 || st.GetReason() != "Unknown" {
		t.Errorf("the container that ended meanwhile has exit code %d and reason %q, want 255 and Unknown",
			st.GetExitCode(), st.GetReason())
	}
	wantState(t, f.containerStatus(t, created), runtimeapi.ContainerState_CONTAINER_CREATED)
	f.startContainer(t, created)
	f.stopContainer(t, runs, 20)
	wantState(t, f.containerStatus(t, runs), runtimeapi.ContainerState_CONTAINER_EXITED)
}
