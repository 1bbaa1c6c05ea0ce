package translate_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

const gi = 1 << 30

func settings() *translate.Settings {
	return &translate.Settings{PodLogsDir: "/var/log/pods", ClusterDomain: "cluster.local", SeccompRoot: "/root/seccomp", MemoryCapacity: 4 * gi}
}

func webPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "1234",
			Labels:      map[string]string{"app": "web", "io.kubernetes.pod.uid": "forged"},
			Annotations: map[string]string{"kubernetes.io/config.source": "file", "note": "x"},
		},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(20)),
			Containers: []v1.Container{{
				Name: "main", Image: "example/web:1", Command: []string{"/web"}, Args: []string{"--port=$(PORT)", "$$(PORT)"}, WorkingDir: "/srv",
				Ports: []v1.ContainerPort{
					{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP, HostIP: "127.0.0.1"},
					{ContainerPort: 53, HostPort: 53, Protocol: v1.ProtocolUDP},
					{ContainerPort: 81, Protocol: v1.ProtocolTCP},
				},
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
		Status: v1.PodStatus{QOSClass: v1.PodQOSBestEffort},
	}
}

func sandbox(t *testing.T, p *v1.Pod) *runtimeapi.PodSandboxConfig {
	t.Helper()
	cfg, err := translate.SandboxConfig(settings(), translate.SandboxInput{Pod: p, Attempt: 2, CgroupParent: "/kubepods/x"})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func container(t *testing.T, p *v1.Pod, change func(*translate.ContainerInput)) *runtimeapi.ContainerConfig {
	t.Helper()
	in := translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Attempt: 4, ImageRef: "sha256:1"}
	if change != nil {
		change(&in)
	}
	cfg, err := translate.ContainerConfig(settings(), in)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func equal(t *testing.T, what string, have, want any) {
	t.Helper()
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%s:\nhave %v\nwant %v", what, have, want)
	}
}

func TestSandbox(t *testing.T) {
	cfg := sandbox(t, webPod())
	m := cfg.Metadata
	equal(t, "metadata", []any{m.Name, m.Uid, m.Namespace, m.Attempt}, []any{"web", "1234", "default", uint32(2)})
	equal(t, "hostname", cfg.Hostname, "web")
	equal(t, "log directory", cfg.LogDirectory, "/var/log/pods/default_web_1234")
	equal(t, "labels", cfg.Labels, map[string]string{"app": "web", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "1234"})
	equal(t, "annotations", cfg.Annotations, map[string]string{"kubernetes.io/config.source": "file", "note": "x"})
	equal(t, "cgroup parent", cfg.Linux.CgroupParent, "/kubepods/x")
	if len(cfg.PortMappings) != 2 {
		t.Fatalf("port mappings: %v", cfg.PortMappings)
	}
	a, b := cfg.PortMappings[0], cfg.PortMappings[1]
	equal(t, "ports", []any{a.Protocol, a.ContainerPort, a.HostPort, a.HostIp, b.Protocol, b.HostPort},
		[]any{runtimeapi.Protocol_TCP, int32(80), int32(8080), "127.0.0.1", runtimeapi.Protocol_UDP, int32(53)})
	sc := cfg.Linux.SecurityContext
	equal(t, "namespaces", []any{sc.NamespaceOptions.Network, sc.NamespaceOptions.Pid, sc.NamespaceOptions.Ipc},
		[]any{runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_POD})
	equal(t, "security", []any{sc.Privileged, sc.Seccomp.ProfileType, sc.RunAsUser}, []any{false, runtimeapi.SecurityProfile_RuntimeDefault, (*runtimeapi.Int64Value)(nil)})
}

func TestSandboxOnTheHost(t *testing.T) {
	p := webPod()
	p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true
	p.Spec.InitContainers = []v1.Container{{Name: "setup", SecurityContext: &v1.SecurityContext{Privileged: ptr.To(true)}}}
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To(int64(7)), RunAsGroup: ptr.To(int64(8)), FSGroup: ptr.To(int64(9)),
		SupplementalGroups: []int64{10}}
	p.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("500m")}
	cfg := sandbox(t, p)
	if cfg.Hostname != "" || cfg.PortMappings != nil {
		t.Errorf("a pod on the host's network has no host name or ports of its own: %q, %v", cfg.Hostname, cfg.PortMappings)
	}
	sc := cfg.Linux.SecurityContext
	equal(t, "namespaces", []any{sc.NamespaceOptions.Network, sc.NamespaceOptions.Pid, sc.NamespaceOptions.Ipc},
		[]any{runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE})
	equal(t, "security", []any{sc.Privileged, sc.RunAsUser.Value, sc.RunAsGroup.Value, sc.SupplementalGroups}, []any{true, int64(7), int64(8), []int64{9, 10}})
	equal(t, "overhead", cfg.Linux.Overhead.MemoryLimitInBytes, int64(64<<20))
	r := cfg.Linux.Resources
	equal(t, "resources", []int64{r.CpuShares, r.CpuQuota, r.CpuPeriod, r.MemoryLimitInBytes}, []int64{512, 50000, 100000, gi})
}

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 62) + "-bcd"
	const local = "cluster.local"
	asFQDN := func(host, subdomain string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = host, subdomain, ptr.To(true)
		}
	}
	for _, tc := range []struct {
		change       func(*v1.Pod)
		domain, want string
	}{
		{func(*v1.Pod) {}, local, "web"},
		{func(p *v1.Pod) { p.Spec.Hostname = "h" }, local, "h"},
		{func(p *v1.Pod) { p.Name = long }, local, strings.Repeat("a", 62)},
		{func(p *v1.Pod) { p.Spec.HostnameOverride = ptr.To("a.b.c"); p.Spec.Hostname = "h" }, local, "a.b.c"},
		{func(p *v1.Pod) { p.Spec.HostnameOverride = ptr.To("a.b.c"); p.Spec.Subdomain = "sub" }, local, "a.b.c"},
		{func(p *v1.Pod) { p.Spec.HostnameOverride = ptr.To(""); p.Spec.Hostname = "h" }, local, "h"},
		{func(p *v1.Pod) { p.Name = "web.with.dots" }, local, "web.with.dots"},
		{func(p *v1.Pod) { p.Spec.Subdomain = "sub" }, local, "web"},
		{asFQDN("", ""), local, "web"},
		{asFQDN("", "sub"), local, "web.sub.default.svc.cluster.local"},
		{asFQDN("", "sub"), "", "web.sub.default.svc."}, // Hostname of Pod, in Kubernetes' node suite
		{asFQDN("h", "sub"), "", "h.sub.default.svc."},
		{asFQDN("h", "sub"), "example.", "h.sub.default.svc.example."},
		{asFQDN("", long), local, "error"},
		{asFQDN(strings.Repeat("h", 63-len(".sub.default.svc.")), "sub"), "x", strings.Repeat("h", 46) + ".sub.default.svc.x"},
		{asFQDN(strings.Repeat("h", 64-len(".sub.default.svc.")), "sub"), "", strings.Repeat("h", 47) + ".sub.default.svc."}, // 64
		{asFQDN(strings.Repeat("h", 65-len(".sub.default.svc.")), "sub"), "", "error"},
	} {
		p := webPod()
		tc.change(p)
		got, err := translate.Hostname(p, tc.domain)
		if err != nil {
			got = "error"
			if !strings.HasPrefix(err.Error(), "failed to construct FQDN from pod hostname and cluster domain, FQDN ") {
				t.Errorf("the kubelet's words aren't in %v", err)
			}
		}
		equal(t, "host name", got, tc.want)
	}
}

func TestContainer(t *testing.T) {
	p := webPod()
	p.DeletionGracePeriodSeconds = ptr.To(int64(5))
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
		PreStop:    &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}},
		StopSignal: ptr.To(v1.SIGUSR1),
	}
	cfg := container(t, p, func(in *translate.ContainerInput) {
		in.Env = []*runtimeapi.KeyValue{{Key: "PORT", Value: []byte("80")}}
		in.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/x"}}
		in.Backoff = 20 * time.Second
	})
	equal(t, "metadata", []any{cfg.Metadata.Name, cfg.Metadata.Attempt, cfg.LogPath}, []any{"main", uint32(4), "main/4.log"})
	equal(t, "image", []string{cfg.Image.Image, cfg.Image.UserSpecifiedImage}, []string{"sha256:1", "example/web:1"})
	equal(t, "command", cfg.Command, []string{"/web"})
	equal(t, "args", cfg.Args, []string{"--port=80", "$(PORT)"})
	equal(t, "signal", cfg.StopSignal, runtimeapi.Signal_SIGUSR1)
	equal(t, "the rest", []any{cfg.WorkingDir, len(cfg.Envs), len(cfg.Mounts)}, []any{"/srv", 1, 1})
	equal(t, "labels", cfg.Labels, map[string]string{"io.kubernetes.container.name": "main", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "1234"})
	equal(t, "annotations", cfg.Annotations, map[string]string{
		"io.kubernetes.container.hash":                     "513c9bfd",
		"io.kubernetes.container.restartCount":             "4",
		"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
		"io.kubernetes.container.terminationMessagePolicy": "File",
		"io.kubernetes.container.ports":                    `[{"hostPort":8080,"containerPort":80,"protocol":"TCP","hostIP":"127.0.0.1"},{"hostPort":53,"containerPort":53,"protocol":"UDP"},{"containerPort":81,"protocol":"TCP"}]`,
		"io.kubernetes.container.preStopHandler":           `{"exec":{"command":["bye"]}}`,
		"io.kubernetes.pod.terminationGracePeriod":         "20",
		"io.kubernetes.pod.deletionGracePeriod":            "5",
		"deckhand.io/restart-backoff":                      "20s",
		"deckhand.io/image":                                "example/web:1",
	})
}

func TestHash(t *testing.T) {
	// What the kubelet says of these containers: see test/kubernetes and desired/reader/testdata/kubelet.txt.
	for want, c := range map[string]v1.Container{
		"12214ab0": {Name: "main", Image: "app:1"},
		"2db8e762": {Name: "a", Image: "app:1", Env: []v1.EnvVar{{Name: "A", Value: "b"}}},
		"c78d724a": {Name: "a", Image: "app"},
		"75fd0cc4": {Name: "kube-apiserver", Image: "registry.k8s.io/kube-apiserver:v1.36.3"},
	} {
		if got, err := translate.Hash(&c); err != nil || got != want {
			t.Errorf("the hash of %s, %s is %q (%v), want %q", c.Name, c.Image, got, err, want)
		}
	}
}

func TestContainerResources(t *testing.T) {
	rl := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	for _, tc := range []struct {
		name                          string
		requests, limits              v1.ResourceList
		shares, quota, memory, oomAdj int64
		qos                           v1.PodQOSClass
	}{
		{"nothing", nil, nil, 2, 0, 0, 1000, v1.PodQOSBestEffort},
		{"guaranteed", rl("1", "1Gi"), rl("1", "1Gi"), 1024, 100000, gi, -997, v1.PodQOSGuaranteed},
		{"burstable", rl("250m", "1Gi"), rl("2", "2Gi"), 256, 200000, 2 * gi, 750, v1.PodQOSBurstable},
		{"tiny", rl("1m", ""), rl("1m", ""), 2, 1000, 0, 999, v1.PodQOSBurstable},
		{"huge", rl("1000", "8Gi"), nil, 262144, 0, 0, 2, v1.PodQOSBurstable},
		{"limit only", nil, rl("2", ""), 2048, 200000, 0, 999, v1.PodQOSBurstable},
		{"request of 0", rl("0", ""), rl("2", ""), 2, 200000, 0, 999, v1.PodQOSBurstable},
	} {
		p := webPod()
		p.Status.QOSClass = tc.qos
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits}
		r := container(t, p, nil).Linux.Resources
		equal(t, tc.name, []int64{r.CpuShares, r.CpuQuota, r.CpuPeriod, r.MemoryLimitInBytes, r.OomScoreAdj}, []int64{tc.shares, tc.quota, 100000, tc.memory, tc.oomAdj})
		if r.Unified != nil || r.MemorySwapLimitInBytes != 0 || r.HugepageLimits != nil {
			t.Errorf("%s: what wasn't asked for: %v", tc.name, r)
		}
	}
}

func TestNodeSettingsOfResources(t *testing.T) {
	p := webPod()
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("1")}
	s := settings()
	s.NoCPUQuota, s.GroupOOMKill, s.BoundSwap = true, true, true
	cfg, err := translate.ContainerConfig(s, translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil {
		t.Fatal(err)
	}
	r := cfg.Linux.Resources
	equal(t, "resources", []any{r.CpuQuota, r.CpuPeriod, r.MemorySwapLimitInBytes, r.Unified}, []any{int64(0), int64(0), int64(gi), map[string]string{"memory.oom.group": "1"}})
	s = settings()
	s.CPUQuotaPeriod = 10 * time.Millisecond
	if cfg, err = translate.ContainerConfig(s, translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0]}); err != nil {
		t.Fatal(err)
	}
	equal(t, "period", []int64{cfg.Linux.Resources.CpuPeriod, cfg.Linux.Resources.CpuQuota}, []int64{10000, 10000})
}

func TestOOMScoreOfSidecarsAndCriticalPods(t *testing.T) {
	memory := func(q string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(q)}}
	}
	p := webPod()
	p.Status.QOSClass = v1.PodQOSBurstable
	p.Spec.Containers[0].Resources = memory("2Gi")
	p.Spec.InitContainers = []v1.Container{{Name: "sidecar", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways), Resources: memory("1Gi")}, {Name: "init", Resources: memory("1Gi")}}
	equal(t, "main", translate.OOMScoreAdj(p, &p.Spec.Containers[0], 4*gi), int64(500))
	equal(t, "sidecar", translate.OOMScoreAdj(p, &p.Spec.InitContainers[0], 4*gi), int64(500))
	equal(t, "init", translate.OOMScoreAdj(p, &p.Spec.InitContainers[1], 4*gi), int64(750))
	whole := memory("4Gi")
	p.Spec.Resources = &whole
	equal(t, "with a pod-level request", translate.OOMScoreAdj(p, &p.Spec.Containers[0], 8*gi), int64(688))
	p.Spec.PriorityClassName = "system-node-critical"
	equal(t, "critical", translate.OOMScoreAdj(p, &p.Spec.Containers[0], 4*gi), int64(-997))
}
