package embeddedtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// Pod is a pod with one container of the web image, made by plain CRI calls.
type Pod struct {
	UID, Sandbox, Container string
	// IP is the pod's first address.
	IP string
}

// Connect connects to the instance's CRI until the test ends.
func (in *Instance) Connect(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := embedded.Dial(in.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// RunPod runs the web image with the given arguments ("serve" if none) in a pod
// with the given port mappings.
func (in *Instance) RunPod(t testing.TB, name string, ports []*cri.PortMapping, args ...string) Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := cri.NewRuntimeServiceClient(in.Connect(t))
	pod := Pod{UID: uid(name)}
	config := in.SandboxConfig(name, ports)
	if err := os.MkdirAll(filepath.Join(config.GetLogDirectory(), "web"), 0o755); err != nil {
		t.Fatal(err)
	}
	sandbox, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	pod.Sandbox = sandbox.GetPodSandboxId()
	created, err := client.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: pod.Sandbox,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "web"},
			Image:    &cri.ImageSpec{Image: WebImage},
			Args:     args,
			LogPath:  "web/0.log",
			Linux:    &cri.LinuxContainerConfig{},
		},
		SandboxConfig: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	pod.Container = created.GetContainerId()
	if _, err := client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: pod.Container}); err != nil {
		t.Fatal(err)
	}
	status, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: pod.Sandbox})
	if err != nil {
		t.Fatal(err)
	}
	pod.IP = status.GetStatus().GetNetwork().GetIp()
	return pod
}

// SandboxConfig is what RunPod asks RunPodSandbox for.
func (in *Instance) SandboxConfig(name string, ports []*cri.PortMapping) *cri.PodSandboxConfig {
	uid := uid(name)
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: uid},
		Hostname:     name,
		LogDirectory: filepath.Join(in.PodLogs, "default_"+name+"_"+uid),
		PortMappings: ports,
		Labels:       map[string]string{"io.kubernetes.pod.uid": uid},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    filepath.Join(in.CgroupRoot, "kubepods", "pod"+uid),
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}},
		},
	}
}

func uid(name string) string { return "uid-" + name }
