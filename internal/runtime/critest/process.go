package critest

import (
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// targeting returns the configuration of a container that shares the PID namespace of another.
func (p *pod) targeting(name, target string, words ...string) *runtimeapi.ContainerConfig {
	config := p.containerConfig(name, words...)
	config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target},
	}
	return config
}

func testTarget(t *testing.T, f *fixture) {
	p := f.runPod(t)
	config := p.containerConfig("main", "ignore-term")
	config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
	}
	target := p.create(t, config)
	f.startContainer(t, target)
	id := p.create(t, p.targeting("debug", target, "sleep", "1h"))
	f.startContainer(t, id)
	if f.RunsPrograms {
		r, err := f.exec(id, 20, "cat", "/proc/1/cmdline")
		if err != nil || !strings.Contains(string(r.GetStdout()), "ignore-term") {
			t.Errorf("the first process it sees is %q (%v), want its target's", r.GetStdout(), err)
		}
	}
	f.stopContainer(t, target, 0)
	// The kernel ends a PID namespace with its first process.
	if st := f.awaitExit(t, id); st.GetExitCode() != 137 {
		t.Errorf("it ended with code %d together with its target, want 137", st.GetExitCode())
	}

	_, err := p.tryCreate(p.targeting("late", target, "sleep", "1h"))
	wantError(t, "creating a container among the processes of one that has ended", err)
	_, err = p.tryCreate(p.targeting("astray", "none", "sleep", "1h"))
	wantError(t, "creating a container among the processes of none", err)
	q := f.runPod(t)
	_, err = p.tryCreate(p.targeting("foreign", q.start(t, "main", "sleep", "1h"), "sleep", "1h"))
	wantError(t, "creating a container among the processes of another pod's", err)
}

func testUser(t *testing.T, f *fixture) {
	p := f.runPod(t)
	config := p.containerConfig("main", "sleep", "1h")
	config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: &runtimeapi.Int64Value{Value: 7}, RunAsGroup: &runtimeapi.Int64Value{Value: 8},
		SupplementalGroups: []int64{9, 10},
	}
	u := f.containerStatus(t, p.create(t, config)).GetUser().GetLinux()
	if u.GetUid() != 7 || u.GetGid() != 8 || !slices.Equal(u.GetSupplementalGroups(), []int64{8, 9, 10}) {
		t.Errorf("a created container's user is %v, want 7, 8 and groups 8, 9, 10", u)
	}
	root := f.containerStatus(t, p.start(t, "root", "sleep", "1h")).GetUser().GetLinux()
	if root == nil || root.GetUid() != 0 || root.GetGid() != 0 ||
		!slices.Equal(root.GetSupplementalGroups(), []int64{0}) {
		t.Errorf("a container of whose user nothing was said runs as %v, want root", root)
	}
}

func testStopSignal(t *testing.T, f *fixture) {
	p := f.runPod(t)
	config := p.containerConfig("main", "ignore-term")
	config.StopSignal = runtimeapi.Signal_SIGQUIT
	id := p.create(t, config)
	if got := f.containerStatus(t, id).GetStopSignal(); got != runtimeapi.Signal_SIGQUIT {
		t.Errorf("the stop signal is %s, want SIGQUIT as asked for", got)
	}
	f.startContainer(t, id)
	p.awaitOutput(t, "main")
	began := time.Now()
	f.stopContainer(t, id, 60)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("stopping took %s: it wasn't sent SIGQUIT", took)
	}
	if st := f.containerStatus(t, id); st.GetExitCode() == 137 {
		t.Error("it was killed, though the stop signal ends it")
	}
	if got := f.containerStatus(t,
		p.start(t, "plain", "sleep", "1h")).GetStopSignal(); got != runtimeapi.Signal_SIGTERM {
		t.Errorf("the stop signal is %s where nothing was said, want SIGTERM", got)
	}
}
