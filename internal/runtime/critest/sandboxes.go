package critest

import (
	"maps"
	"net/netip"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testReady(t *testing.T, f *fixture) {
	v, err := f.runtime.Version(f.ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if v.GetRuntimeApiVersion() != "v1" || v.GetRuntimeName() == "" || v.GetRuntimeVersion() == "" {
		t.Errorf("version is %v, want API version v1, a name and a version", v)
	}
	r, err := f.runtime.Status(f.ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ready := map[string]bool{}
	for _, c := range r.GetStatus().GetConditions() {
		ready[c.GetType()] = c.GetStatus()
	}
	if !ready[runtimeapi.RuntimeReady] || !ready[runtimeapi.NetworkReady] {
		t.Errorf("conditions are %v, want RuntimeReady and NetworkReady true", r.GetStatus().GetConditions())
	}
	if _, err := f.runtime.RuntimeConfig(f.ctx, &runtimeapi.RuntimeConfigRequest{}); err != nil {
		t.Errorf("RuntimeConfig: %v", err)
	}
}

func testSandboxLifecycle(t *testing.T, f *fixture) {
	p := f.runPod(t)
	st := p.status(t)
	if st.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("state is %s as soon as RunPodSandbox returned, want READY", st.GetState())
	}
	wantRecent(t, "CreatedAt", st.GetCreatedAt())
	if !proto.Equal(st.GetMetadata(), p.config.GetMetadata()) {
		t.Errorf("metadata is %v, want %v", st.GetMetadata(), p.config.GetMetadata())
	}
	if !maps.Equal(st.GetLabels(), p.config.GetLabels()) ||
		!maps.Equal(st.GetAnnotations(), p.config.GetAnnotations()) {
		t.Errorf("labels %v and annotations %v aren't those given", st.GetLabels(), st.GetAnnotations())
	}

	for range 2 {
		p.stop(t)
		st = p.status(t)
		if st.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("state is %s after StopPodSandbox, want NOTREADY", st.GetState())
		}
		if ip := st.GetNetwork().GetIp(); ip != "" {
			t.Errorf("stopped sandbox still has address %s", ip)
		}
	}
	for range 2 {
		p.remove(t)
		_, err := f.runtime.PodSandboxStatus(f.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
		wantCode(t, "status of a removed sandbox", err, codes.NotFound)
	}
	p.stop(t)
}

func testSandboxName(t *testing.T, f *fixture) {
	p := f.runPod(t)
	again := func() error {
		_, err := f.runtime.RunPodSandbox(f.ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
		return err
	}
	wantCode(t, "RunPodSandbox with a name in use", again(), codes.FailedPrecondition)
	p.stop(t)
	wantCode(t, "RunPodSandbox with the name of a stopped sandbox", again(), codes.FailedPrecondition)

	next := f.newPod()
	next.config.Metadata = proto.CloneOf(p.config.GetMetadata())
	next.config.Metadata.Attempt = 1
	next.run(t)
	if got := next.status(t).GetMetadata().GetAttempt(); got != 1 {
		t.Errorf("attempt is %d, want 1", got)
	}

	p.remove(t)
	p.run(t) // the name is free again
}

func testSandboxAddresses(t *testing.T, f *fixture) {
	seen := map[string]bool{}
	for range 2 {
		p := f.runPod(t)
		ip := p.status(t).GetNetwork().GetIp()
		if _, err := netip.ParseAddr(ip); err != nil {
			t.Errorf("a sandbox's address is %q: %v", ip, err)
		}
		if seen[ip] {
			t.Errorf("two sandboxes have the address %s", ip)
		}
		seen[ip] = true
	}

	host := f.newPod()
	host.config.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	host.config.Hostname = ""
	host.run(t)
	st := host.status(t)
	if ip := st.GetNetwork().GetIp(); ip != "" {
		t.Errorf("a sandbox on the host's network has the address %s, want none", ip)
	}
	if got := st.GetLinux().GetNamespaces().GetOptions().GetNetwork(); got != runtimeapi.NamespaceMode_NODE {
		t.Errorf("its network namespace mode is %s, want NODE", got)
	}
}

func testSandboxTakesContainersAlong(t *testing.T, f *fixture) {
	p := f.runPod(t)
	runs, created, done := p.start(t, "runs", "sleep", "1h"), p.create(t, p.containerConfig("created", "sleep", "1h")),
		p.start(t, "done", "exit", "0")
	f.awaitExit(t, done)

	p.stop(t)
	st := f.containerStatus(t, runs)
	wantState(t, st, runtimeapi.ContainerState_CONTAINER_EXITED)
	if st.GetExitCode() != 137 {
		t.Errorf("a container killed with its sandbox has exit code %d, want 137", st.GetExitCode())
	}
	wantState(t, f.containerStatus(t, created), runtimeapi.ContainerState_CONTAINER_CREATED)

	p.remove(t)
	for _, id := range []string{runs, created, done} {
		_, err := f.runtime.ContainerStatus(f.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		wantCode(t, "status of a container of a removed sandbox", err, codes.NotFound)
	}

	q := f.runPod(t)
	id := q.start(t, "runs", "sleep", "1h")
	q.remove(t) // without stopping it first
	_, err := f.runtime.ContainerStatus(f.ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	wantCode(t, "status of a container of a sandbox removed while it ran", err, codes.NotFound)
}

func testListSandboxes(t *testing.T, f *fixture) {
	a, b := f.runPod(t), f.runPod(t)
	b.stop(t)
	list := func(filter *runtimeapi.PodSandboxFilter) map[string]*runtimeapi.PodSandbox {
		r, err := f.runtime.ListPodSandbox(f.ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		return byID(r.GetItems())
	}
	in := func(state runtimeapi.PodSandboxState) *runtimeapi.PodSandboxFilter {
		return &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: state}}
	}
	uid := func(p *pod) map[string]string {
		return map[string]string{"io.kubernetes.pod.uid": p.config.GetMetadata().GetUid()}
	}

	all := list(nil)
	wantHas(t, "the unfiltered list", all, a.id, b.id)
	if item := all[a.id]; item != nil {
		if !proto.Equal(item.GetMetadata(), a.config.GetMetadata()) ||
			!maps.Equal(item.GetLabels(), a.config.GetLabels()) ||
			!maps.Equal(item.GetAnnotations(), a.config.GetAnnotations()) ||
			item.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			t.Errorf("listed sandbox is %v, which isn't %v", item, a.config)
		}
		wantRecent(t, "listed CreatedAt", item.GetCreatedAt())
	}
	wantHas(t, "the list of ready ones", list(in(runtimeapi.PodSandboxState_SANDBOX_READY)), a.id, "!"+b.id)
	wantHas(t, "the list of those not ready", list(in(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)), b.id, "!"+a.id)
	wantHas(t, "the list by ID", list(&runtimeapi.PodSandboxFilter{Id: a.id}), a.id, "!"+b.id)
	wantHas(t, "the list by label", list(&runtimeapi.PodSandboxFilter{LabelSelector: uid(b)}), b.id, "!"+a.id)
	wantHas(t, "the list by label and other state",
		list(&runtimeapi.PodSandboxFilter{LabelSelector: uid(b),
			State: in(runtimeapi.PodSandboxState_SANDBOX_READY).State}), "!"+b.id)
}

func byID[T interface{ GetId() string }](items []T) map[string]T {
	m := make(map[string]T, len(items))
	for _, item := range items {
		m[item.GetId()] = item
	}
	return m
}

// wantHas checks which IDs items has; IDs that start with "!" must be missing.
func wantHas[T any](t *testing.T, what string, items map[string]T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		want := id[0] != '!'
		if !want {
			id = id[1:]
		}
		if _, has := items[id]; has != want {
			t.Errorf("%s has %s: %t, want %t", what, id, has, want)
		}
	}
}
