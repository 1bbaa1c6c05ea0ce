package translate_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestEphemeralContainer(t *testing.T) {
	p := webPod()
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "tools", Stdin: true, TTY: true,
			SecurityContext: &v1.SecurityContext{Privileged: ptr.To(true)}},
		TargetContainerName: "main",
	}}
	debug := func(target string) *runtimeapi.ContainerConfig {
		return container(t, p, func(in *translate.ContainerInput) {
			in.Container, in.TargetID, in.Attempt = pod.ContainerNamed(p, "debug"), target, 0
		})
	}
	cfg := debug("main-id")
	equal(t, "config", []any{cfg.Metadata.Name, cfg.LogPath, cfg.Labels["io.kubernetes.container.name"], cfg.Stdin, cfg.Tty},
		[]any{"debug", "debug/0.log", "debug", true, true})
	process := func(cfg *runtimeapi.ContainerConfig) []any {
		o := cfg.Linux.SecurityContext.NamespaceOptions
		return []any{o.Pid, o.TargetId, o.Network}
	}
	equal(t, "with a target", process(cfg), []any{runtimeapi.NamespaceMode_TARGET, "main-id", runtimeapi.NamespaceMode_POD})
	equal(t, "without", process(debug("")), []any{runtimeapi.NamespaceMode_CONTAINER, "", runtimeapi.NamespaceMode_POD})
	p.Spec.ShareProcessNamespace = ptr.To(true)
	equal(t, "in a pod that shares its processes", process(debug("main-id")), []any{runtimeapi.NamespaceMode_POD, "", runtimeapi.NamespaceMode_POD})

	// A runtime runs privileged containers only in a privileged sandbox.
	if !cfg.Linux.SecurityContext.Privileged || !sandbox(t, p).Linux.SecurityContext.Privileged {
		t.Error("a privileged ephemeral container, or its sandbox, isn't privileged")
	}
}
